/*
 * Triangular systems T*X = B with a diagonal block T and many right-hand sides, by substitution.
 *
 * T is lower triangular in the order of elimination: the host reverses indices, transposes and
 * conjugates by strides, so that every case of BLAS's xTRSM comes here as this one. Divisions are
 * divisions, no inverse is formed, so the error is that of substitution.
 *
 * Packed triangle (private to this file): blocks of CLB_NB x CLB_NB, the diagonal blocks of one
 * matrix one after the other; in a block, element (i, p) is at (i / R * CLB_NB + p) * R + i % R with
 * R = CLB_R, as pairs where elements are complex. Above the diagonal are zeros; rows beyond the
 * matrix are those of the identity, so that loops may run over whole groups of R rows.
 *
 * CLB_CPU = 1, for devices that are CPUs (local size 1): a work-group takes CLB_W right-hand sides at
 * a time into a private array, lanes of vectors run across them, R rows are eliminated at once.
 * CLB_CPU = 0, for others (local size CLB_WG): a work-item has one right-hand side in registers, the
 * work-group brings its CLB_WG right-hand sides through local memory.
 *
 * The grids have any number of work-groups: each takes every get_num_groups(0)-th share.
 */

/* 0: float, 1: double. */
#ifndef CLB_DOUBLE
#define CLB_DOUBLE 0
#endif
#ifndef CLB_COMPLEX
#define CLB_COMPLEX 0
#endif
#ifndef CLB_CPU
#define CLB_CPU 1
#endif
/* Order of a diagonal block; a multiple of R. */
#ifndef CLB_NB
#define CLB_NB (CLB_CPU ? 256 : 32)
#endif
#ifndef CLB_WG
#define CLB_WG 64
#endif

#if CLB_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double real;
#define CLB_VL 8
#else
typedef float real;
#define CLB_VL 16
#endif
#pragma OPENCL FP_CONTRACT OFF

#if CLB_CPU
#define CLB_R 8
#define CLB_GROUP 1
#else
#define CLB_R CLB_NB
#define CLB_GROUP CLB_WG
#endif
#define CLB_PARTS (CLB_COMPLEX ? 2 : 1)

#if CLB_NB % CLB_R
#error "CLB_NB must be a multiple of the rows that are eliminated at once"
#endif

#define CLB_KERNEL kernel __attribute__((reqd_work_group_size(CLB_GROUP, 1, 1)))
#define CLB_INLINE static inline __attribute__((always_inline))

/*
 * The diagonal blocks of T, n x n, into the packed form at `packed + packed_off` elements. T(i, p) is
 * a[a_off + i*ai + p*ap], of which i >= p is read, with `unit` i > p. Offsets and strides count
 * elements.
 */
CLB_KERNEL void clb_trsm_pack(global const real *a, ulong a_off, long ai, long ap, uint n, uint conj,
                              uint unit, global real *packed, ulong packed_off)
{
    const uint blocks = (n + CLB_NB - 1) / CLB_NB;
    const uint shares = blocks * CLB_NB;

    /* A share is one depth of a block. */
    for (uint s = get_group_id(0); s < shares; s += get_num_groups(0)) {
        const uint p = s % CLB_NB;
        const uint first = s / CLB_NB * CLB_NB;
        global real *to = packed + (packed_off + (ulong)first * CLB_NB) * CLB_PARTS;

        for (uint i = get_local_id(0); i < CLB_NB; i += CLB_GROUP) {
            const bool inside = first + i < n && (i > p || (i == p && !unit));
            const ulong at = (ulong)((long)a_off + (long)(first + i) * ai + (long)(first + p) * ap);
            const uint e = (i / CLB_R * CLB_NB + p) * CLB_R + i % CLB_R;

#if CLB_COMPLEX
            real im = inside ? a[2 * at + 1] : 0;
            to[2 * e] = inside ? a[2 * at] : i == p;
            to[2 * e + 1] = conj ? -im : im;
#else
            to[e] = inside ? a[at] : i == p;
#endif
        }
    }
}

#if CLB_COMPLEX
/* What division by t = (re, im) needs, by Smith's method: x / t = (x * (1, -q) or x * (q, -1)) / d. */
typedef struct {
    real q, d;
    bool real_is_larger;
} divisor;

CLB_INLINE divisor get_divisor(real re, real im)
{
    divisor t;

    t.real_is_larger = fabs(re) >= fabs(im);
    t.q = t.real_is_larger ? im / re : re / im;
    t.d = t.real_is_larger ? fma(im, t.q, re) : fma(re, t.q, im);
    return t;
}
#endif

#if CLB_CPU

#define CLB_JOIN_(a, b) a##b
#define CLB_JOIN(a, b) CLB_JOIN_(a, b)
#if CLB_DOUBLE
typedef double8 vec;
#define load_vec(p) vload8(0, p)
#define store_vec(v, p) vstore8(v, 0, p)
#else
typedef float16 vec;
#define load_vec(p) vload16(0, p)
#define store_vec(v, p) vstore16(v, 0, p)
#endif

/* Vectors of a row: two of real numbers, or one of real and one of imaginary parts. */
#define CLB_V 2
#define CLB_W (CLB_COMPLEX ? CLB_VL : 2 * CLB_VL)
#define CLB_ROW (CLB_V * CLB_VL)

/* Row i of x holds CLB_W right-hand sides, where complex first the real, then the imaginary parts. */

CLB_INLINE void load_tile(real *x, global const real *b, long bi, long br, uint nb, uint width)
{
    if (br == 1 && width == CLB_W) {
        for (uint i = 0; i < nb; i++) {
            global const real *from = b + (long)i * bi * CLB_PARTS;
#if CLB_COMPLEX
            for (uint r = 0; r < CLB_W; r++) {
                x[i * CLB_ROW + r] = from[2 * r];
                x[i * CLB_ROW + CLB_VL + r] = from[2 * r + 1];
            }
#else
            store_vec(load_vec(from), x + i * CLB_ROW);
            store_vec(load_vec(from + CLB_VL), x + i * CLB_ROW + CLB_VL);
#endif
        }
        return;
    }
    for (uint i = 0; width < CLB_W && i < nb * CLB_ROW; i++)
        x[i] = 0;
    for (uint r = 0; r < width; r++) {
        global const real *from = b + (long)r * br * CLB_PARTS;
        for (uint i = 0; i < nb; i++) {
            global const real *e = from + (long)i * bi * CLB_PARTS;
            x[i * CLB_ROW + r] = e[0];
#if CLB_COMPLEX
            x[i * CLB_ROW + CLB_VL + r] = e[1];
#endif
        }
    }
}

CLB_INLINE void store_tile(const real *x, global real *b, long bi, long br, uint nb, uint width)
{
    if (br == 1 && width == CLB_W) {
        for (uint i = 0; i < nb; i++) {
            global real *to = b + (long)i * bi * CLB_PARTS;
#if CLB_COMPLEX
            for (uint r = 0; r < CLB_W; r++) {
                to[2 * r] = x[i * CLB_ROW + r];
                to[2 * r + 1] = x[i * CLB_ROW + CLB_VL + r];
            }
#else
            store_vec(load_vec(x + i * CLB_ROW), to);
            store_vec(load_vec(x + i * CLB_ROW + CLB_VL), to + CLB_VL);
#endif
        }
        return;
    }
    for (uint r = 0; r < width; r++) {
        global real *to = b + (long)r * br * CLB_PARTS;
        for (uint i = 0; i < nb; i++) {
            global real *e = to + (long)i * bi * CLB_PARTS;
            e[0] = x[i * CLB_ROW + r];
#if CLB_COMPLEX
            e[1] = x[i * CLB_ROW + CLB_VL + r];
#endif
        }
    }
}

/* acc -= t*x for one row of R; t is an element of T. */
CLB_INLINE void subtract(vec acc[CLB_V], global const real *t, const vec x[CLB_V])
{
#if CLB_COMPLEX
    const vec re = (vec)(t[0]), im = (vec)(t[1]);
    acc[0] = fma(-re, x[0], fma(im, x[1], acc[0]));
    acc[1] = fma(-re, x[1], fma(-im, x[0], acc[1]));
#else
    const vec re = (vec)(t[0]);
#pragma unroll
    for (uint v = 0; v < CLB_V; v++)
        acc[v] = fma(-re, x[v], acc[v]);
#endif
}

CLB_INLINE void divide(vec acc[CLB_V], global const real *t)
{
#if CLB_COMPLEX
    const divisor by = get_divisor(t[0], t[1]);
    const vec re = acc[0], im = acc[1], q = (vec)(by.q), d = (vec)(by.d);
    acc[0] = (by.real_is_larger ? fma(im, q, re) : fma(re, q, im)) / d;
    acc[1] = (by.real_is_larger ? fma(-re, q, im) : fma(im, q, -re)) / d;
#else
#pragma unroll
    for (uint v = 0; v < CLB_V; v++)
        acc[v] /= (vec)(t[0]);
#endif
}

/* Eliminates rows i0 ... i0 + R - 1 of x; `t` are these rows of T. */
CLB_INLINE void solve_rows(real *x, global const real *t, uint i0, uint unit)
{
    vec acc[CLB_R][CLB_V];

#pragma unroll
    for (uint r = 0; r < CLB_R; r++)
#pragma unroll
        for (uint v = 0; v < CLB_V; v++)
            acc[r][v] = load_vec(x + (i0 + r) * CLB_ROW + v * CLB_VL);
    for (uint p = 0; p < i0; p++) {
        vec y[CLB_V];
#pragma unroll
        for (uint v = 0; v < CLB_V; v++)
            y[v] = load_vec(x + p * CLB_ROW + v * CLB_VL);
#pragma unroll
        for (uint r = 0; r < CLB_R; r++)
            subtract(acc[r], t + (p * CLB_R + r) * CLB_PARTS, y);
    }
#pragma unroll
    for (uint q = 0; q < CLB_R; q++) {
        if (!unit)
            divide(acc[q], t + ((i0 + q) * CLB_R + q) * CLB_PARTS);
#pragma unroll
        for (uint r = q + 1; r < CLB_R; r++)
            subtract(acc[r], t + ((i0 + q) * CLB_R + r) * CLB_PARTS, acc[q]);
    }
#pragma unroll
    for (uint r = 0; r < CLB_R; r++)
#pragma unroll
        for (uint v = 0; v < CLB_V; v++)
            store_vec(acc[r][v], x + (i0 + r) * CLB_ROW + v * CLB_VL);
}

/*
 * Solves T*X = B in place for one packed diagonal block of order nb at `packed + packed_off`
 * elements. B(i, r) is b[b_off + i*bi + r*br], r < nrhs.
 */
CLB_KERNEL void clb_trsm_solve(global const real *packed, ulong packed_off, uint nb, uint unit,
                               ulong nrhs, global real *b, ulong b_off, long bi, long br)
{
    real x[CLB_NB * CLB_ROW] __attribute__((aligned(64)));
    const ulong shares = (nrhs + CLB_W - 1) / CLB_W;
    const ulong each = (shares + get_num_groups(0) - 1) / get_num_groups(0);
    const ulong end = min((get_group_id(0) + 1) * each, shares);

    packed += packed_off * CLB_PARTS;
    for (ulong s = get_group_id(0) * each; s < end; s++) {
        const uint width = (uint)min((ulong)CLB_W, nrhs - s * CLB_W);
        global real *tile = b + ((long)b_off + (long)(s * CLB_W) * br) * CLB_PARTS;

        load_tile(x, tile, bi, br, nb, width);
        for (uint i = nb * CLB_ROW; i < (nb + CLB_R - 1) / CLB_R * CLB_R * CLB_ROW; i++)
            x[i] = 0;
        for (uint i0 = 0; i0 < nb; i0 += CLB_R)
            solve_rows(x, packed + (ulong)i0 * CLB_NB * CLB_PARTS, i0, unit);
        store_tile(x, tile, bi, br, nb, width);
    }
}

#else

/* As above; local size CLB_WG. */
CLB_KERNEL void clb_trsm_solve(global const real *packed, ulong packed_off, uint nb, uint unit,
                               ulong nrhs, global real *b, ulong b_off, long bi, long br)
{
    local real t[CLB_NB * CLB_NB * CLB_PARTS];
    local real tile[CLB_NB * (CLB_WG + 1) * CLB_PARTS];
    const uint id = get_local_id(0);
    const ulong shares = (nrhs + CLB_WG - 1) / CLB_WG;

    packed += packed_off * CLB_PARTS;
    for (uint e = id; e < CLB_NB * CLB_NB * CLB_PARTS; e += CLB_WG)
        t[e] = packed[e];
    for (ulong s = get_group_id(0); s < shares; s += get_num_groups(0)) {
        const uint width = (uint)min((ulong)CLB_WG, nrhs - s * CLB_WG);
        const long start = (long)b_off + (long)(s * CLB_WG) * br;

        /* Consecutive work-items read consecutive elements. */
        for (uint e = id; e < CLB_NB * CLB_WG; e += CLB_WG) {
            const uint i = br == 1 ? e / CLB_WG : e % CLB_NB;
            const uint r = br == 1 ? e % CLB_WG : e / CLB_NB;
            const bool inside = i < nb && r < width;

            for (uint part = 0; part < CLB_PARTS; part++)
                tile[(i * (CLB_WG + 1) + r) * CLB_PARTS + part] =
                    inside ? b[(start + (long)i * bi + (long)r * br) * CLB_PARTS + part] : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        {
            real x[CLB_NB * CLB_PARTS];

#pragma unroll
            for (uint i = 0; i < CLB_NB; i++)
#pragma unroll
                for (uint part = 0; part < CLB_PARTS; part++)
                    x[i * CLB_PARTS + part] = tile[(i * (CLB_WG + 1) + id) * CLB_PARTS + part];
#pragma unroll
            for (uint p = 0; p < CLB_NB; p++) {
#if CLB_COMPLEX
                if (!unit) {
                    local const real *pivot = t + 2 * (p * CLB_NB + p);
                    const divisor by = get_divisor(pivot[0], pivot[1]);
                    const bool first = by.real_is_larger;
                    const real re = x[2 * p], im = x[2 * p + 1];
                    x[2 * p] = (first ? fma(im, by.q, re) : fma(re, by.q, im)) / by.d;
                    x[2 * p + 1] = (first ? fma(-re, by.q, im) : fma(im, by.q, -re)) / by.d;
                }
#pragma unroll
                for (uint i = p + 1; i < CLB_NB; i++) {
                    const real re = t[2 * (p * CLB_NB + i)], im = t[2 * (p * CLB_NB + i) + 1];
                    x[2 * i] = fma(-re, x[2 * p], fma(im, x[2 * p + 1], x[2 * i]));
                    x[2 * i + 1] = fma(-re, x[2 * p + 1], fma(-im, x[2 * p], x[2 * i + 1]));
                }
#else
                if (!unit)
                    x[p] /= t[p * CLB_NB + p];
#pragma unroll
                for (uint i = p + 1; i < CLB_NB; i++)
                    x[i] = fma(-t[p * CLB_NB + i], x[p], x[i]);
#endif
            }
#pragma unroll
            for (uint i = 0; i < CLB_NB; i++)
#pragma unroll
                for (uint part = 0; part < CLB_PARTS; part++)
                    tile[(i * (CLB_WG + 1) + id) * CLB_PARTS + part] = x[i * CLB_PARTS + part];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint e = id; e < CLB_NB * CLB_WG; e += CLB_WG) {
            const uint i = br == 1 ? e / CLB_WG : e % CLB_NB;
            const uint r = br == 1 ? e % CLB_WG : e / CLB_NB;

            for (uint part = 0; part < CLB_PARTS; part++)
                if (i < nb && r < width)
                    b[(start + (long)i * bi + (long)r * br) * CLB_PARTS + part] =
                        tile[(i * (CLB_WG + 1) + r) * CLB_PARTS + part];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif
