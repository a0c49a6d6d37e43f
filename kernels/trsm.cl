/* Triangular systems T*X = B with a diagonal block T and many right-hand sides, by substitution.
 * SPDX-License-Identifier: BSD-3-Clause
 * T is lower triangular in the order of elimination: the host reverses indices, transposes and
 * conjugates by strides, so that every case of BLAS's xTRSM becomes this one. Elements are divided
 * by those of T's diagonal, not multiplied by inverses, so the error is that of substitution.
 *
 * Packed triangle (private to this file): blocks of CLB_NB x CLB_NB, the diagonal blocks of one
 * matrix one after the other; in a block, element (i, p) is at (i / R * CLB_NB + p) * R + i % R
 * with R = CLB_R, as pairs where elements are complex. Above the diagonal are zeros, with
 * CLB_CPU = 1 only in the R x R blocks on it; rows beyond the matrix are those of the identity, so
 * that loops may run over whole groups of R rows.
 *
 * CLB_CPU = 1, for devices that are CPUs (local size 1): a work-group copies CLB_W right-hand sides
 * at a time to a private array. Vectors hold elements of several right-hand sides, and R rows are
 * eliminated at once.
 * CLB_CPU = 0, for others (local size CLB_WG): a work-group has CLB_RHS right-hand sides in local
 * memory and goes through T in sub-blocks. For a sub-block on the diagonal one work-item per
 * right-hand side holds the elements in registers; for those below all work-items take part.
 *
 * The grids have any number of work-groups: each takes every get_num_groups(0)-th share.
 */

#include "common.h"

#pragma OPENCL FP_CONTRACT OFF

/* From the host, where CLB_CPU = 1: bytes of the device's vectors, 16, 32 or 64. The sums of R rows
 * take 12 of 16 registers, or with 64 bytes 16 of 32. */
#ifndef CLB_VECTOR
#define CLB_VECTOR 64
#endif

#if CLB_CPU
#define CLB_R     (CLB_VECTOR == 64 ? 8 : 4)
#define CLB_ITEMS 1
#else
#define CLB_R     CLB_NB
#define CLB_ITEMS CLB_WG
#endif

#if CLB_NB % CLB_R
#error "CLB_NB must be a multiple of the rows that are eliminated at once"
#endif

#define CLB_KERNEL CLB_KERNEL_OF(CLB_ITEMS)

#include "laswp.h"

#if CLB_CPU

/* Element (i, p) of a triangle that begins at `a`, of which n rows exist. */
CLB_INLINE void pack_element(global const real *a, long ai, long ap, uint n, uint conj, uint unit,
                             uint i, uint p, global real *to)
{
    const bool inside = i < n && (i > p || (i == p && !unit));
    global const real *from = a + ((long)i * ai + (long)p * ap) * CLB_PARTS;
    to[0] = inside ? from[0] : i == p;
#if CLB_COMPLEX
    const real im = inside ? from[1] : 0;
    to[1] = conj ? -im : im;
#endif
}

typedef CLB_JOIN(CLB_REAL, 4) row_piece;

/* R elements of a column of T, which are contiguous. */
CLB_INLINE void copy_rows(global const real *from, uint conj, global real *to)
{
#pragma unroll
    for (uint e = 0; e < CLB_R * CLB_PARTS; e += 4) {
        row_piece x = vload4(0, from + e);
#if CLB_COMPLEX
        if (conj)
            x.odd = -x.odd;
#endif
        vstore4(x, 0, to + e);
    }
}

/* Rows i0 ... i0 + R - 1 of a block, as far as they are read. */
CLB_INLINE void pack_rows(global const real *a, long ai, long ap, uint n, uint conj, uint unit,
                          uint i0, global real *to)
{
    const uint step = CLB_R * CLB_PARTS;
    uint p = 0;
    for (; ai == 1 && i0 + CLB_R <= n && p < i0; p++)
        copy_rows(a + ((long)i0 + (long)p * ap) * CLB_PARTS, conj, to + p * step);
    for (; p < i0 + CLB_R; p++)
        for (uint r = 0; r < CLB_R; r++)
            pack_element(a, ai, ap, n, conj, unit, i0 + r, p, to + p * step + r * CLB_PARTS);
}

#endif

/*
 * Copy the diagonal blocks of T, n x n, to the packed form at `packed + packed_off` elements. T(i,
 * p) is a[a_off + i*ai + p*ap]; it is read for i >= p, with `unit` for i > p. Offsets and strides
 * count elements.
 */
CLB_KERNEL void clb_trsm_pack(global const real *a, ulong a_off, long ai, long ap, uint n,
                              uint conj, uint unit, global real *packed,
                              ulong packed_off CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
#if CLB_CPU
    /* A share is R rows of a block. */
    for (uint s = get_group_id(0); s * CLB_R < n; s += get_num_groups(0)) {
        const uint first = s * CLB_R / CLB_NB * CLB_NB, i0 = s * CLB_R - first;
        pack_rows(a + ((long)a_off + (long)first * (ai + ap)) * CLB_PARTS, ai, ap, n - first, conj,
                  unit, i0, packed + (packed_off + (ulong)(first + i0) * CLB_NB) * CLB_PARTS);
    }
#else
    const uint blocks = (n + CLB_NB - 1) / CLB_NB;
    const uint shares = blocks * CLB_NB;

    /* A share is one depth of a block. */
    for (uint s = get_group_id(0); s < shares; s += get_num_groups(0)) {
        const uint p = s % CLB_NB;
        const uint first = s / CLB_NB * CLB_NB;
        global real *to = packed + (packed_off + (ulong)first * CLB_NB) * CLB_PARTS;

        for (uint i = get_local_id(0); i < CLB_NB; i += CLB_ITEMS) {
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
#endif
}

#if CLB_COMPLEX
/* Division by t = (re, im) by Smith's method: x / t = (x * (1, -q) or x * (q, -1)) / d. */
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

#if CLB_VECTOR == 64 && !CLB_DOUBLE
#define CLB_VL 16
#elif CLB_VECTOR == 64 || (CLB_VECTOR == 32 && !CLB_DOUBLE)
#define CLB_VL 8
#elif CLB_VECTOR == 32 || !CLB_DOUBLE
#define CLB_VL 4
#else
#define CLB_VL 2
#endif
typedef CLB_JOIN(CLB_REAL, CLB_VL) vec;
#define load_vec(p)     CLB_JOIN(vload, CLB_VL)(0, p)
#define store_vec(v, p) CLB_JOIN(vstore, CLB_VL)(v, 0, p)

/* Vectors of a row: of real numbers, or one of real and one of imaginary parts. */
#define CLB_V   (CLB_COMPLEX || CLB_VECTOR == 64 ? 2 : 3)
#define CLB_W   (CLB_COMPLEX ? CLB_VL : CLB_V * CLB_VL)
#define CLB_ROW (CLB_V * CLB_VL)

/* Row i of x holds CLB_W right-hand sides; if complex, the real parts before the imaginary ones.
 * Number q of right-hand side r, of which an element has CLB_PARTS, is here. */
#define CLB_AT(q, r) ((q) / CLB_PARTS * CLB_ROW + (q) % CLB_PARTS * CLB_VL + (r))

/* Four by four numbers, in place. */
CLB_INLINE void transpose(row_piece x[4])
{
    const row_piece a = (row_piece)(x[0].s0, x[1].s0, x[0].s1, x[1].s1),
                    b = (row_piece)(x[2].s0, x[3].s0, x[2].s1, x[3].s1),
                    c = (row_piece)(x[0].s2, x[1].s2, x[0].s3, x[1].s3),
                    d = (row_piece)(x[2].s2, x[3].s2, x[2].s3, x[3].s3);
    x[0] = (row_piece)(a.lo, b.lo);
    x[1] = (row_piece)(a.hi, b.hi);
    x[2] = (row_piece)(c.lo, d.lo);
    x[3] = (row_piece)(c.hi, d.hi);
}

/* Right-hand sides r ... r + 3, each contiguous, of `numbers` numbers, to x, or `back`. */
CLB_INLINE void transpose_columns(real *x, global real *b, long br, uint r, uint numbers, bool back)
{
    const long step = br * CLB_PARTS;
    global real *const from = b + (long)r * step;
    uint q = 0;
    for (; q + 4 <= numbers; q += 4) {
        row_piece y[4];
#pragma unroll
        for (uint e = 0; e < 4; e++)
            y[e] = back ? vload4(0, x + CLB_AT(q + e, r)) : vload4(0, from + (long)e * step + q);
        transpose(y);
#pragma unroll
        for (uint e = 0; e < 4; e++) {
            if (back)
                vstore4(y[e], 0, from + (long)e * step + q);
            else
                vstore4(y[e], 0, x + CLB_AT(q + e, r));
        }
    }
    for (; q < numbers; q++) {
        for (uint e = 0; e < 4; e++) {
            if (back)
                from[(long)e * step + q] = x[CLB_AT(q, r + e)];
            else
                x[CLB_AT(q, r + e)] = from[(long)e * step + q];
        }
    }
}

/* Right-hand sides that are contiguous, as many as a row of x has: four at a time. */
CLB_INLINE bool transpose_tile(real *x, global real *b, long bi, long br, uint nb, uint width,
                               bool back)
{
    if (CLB_W % 4 != 0 || bi != 1 || width < CLB_W)
        return false;
    for (uint r = 0; r < CLB_W; r += 4)
        transpose_columns(x, b, br, r, nb * CLB_PARTS, back);
    return true;
}

CLB_INLINE void load_tile(real *x, global real *b, long bi, long br, uint nb, uint width)
{
    if (transpose_tile(x, b, bi, br, nb, width, false))
        return;
    if (br == 1 && width == CLB_W) {
        for (uint i = 0; i < nb; i++) {
            global const real *from = b + (long)i * bi * CLB_PARTS;
#if CLB_COMPLEX
            for (uint r = 0; r < CLB_W; r++) {
                x[i * CLB_ROW + r] = from[2 * r];
                x[i * CLB_ROW + CLB_VL + r] = from[2 * r + 1];
            }
#else
#pragma unroll
            for (uint v = 0; v < CLB_V; v++)
                store_vec(load_vec(from + v * CLB_VL), x + i * CLB_ROW + v * CLB_VL);
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

CLB_INLINE void store_tile(real *x, global real *b, long bi, long br, uint nb, uint width)
{
    if (transpose_tile(x, b, bi, br, nb, width, true))
        return;
    if (br == 1 && width == CLB_W) {
        for (uint i = 0; i < nb; i++) {
            global real *to = b + (long)i * bi * CLB_PARTS;
#if CLB_COMPLEX
            for (uint r = 0; r < CLB_W; r++) {
                to[2 * r] = x[i * CLB_ROW + r];
                to[2 * r + 1] = x[i * CLB_ROW + CLB_VL + r];
            }
#else
#pragma unroll
            for (uint v = 0; v < CLB_V; v++)
                store_vec(load_vec(x + i * CLB_ROW + v * CLB_VL), to + v * CLB_VL);
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

/* acc -= t*x for one row of R; t is an element of T. A complex product is formed before it is
 * subtracted, so that the larger numbers are rounded once. */
CLB_INLINE void subtract(vec acc[CLB_V], global const real *t, const vec x[CLB_V])
{
#if CLB_COMPLEX
    const vec re = (vec)(t[0]), im = (vec)(t[1]);
    acc[0] -= fma(re, x[0], -im * x[1]);
    acc[1] -= fma(re, x[1], im * x[0]);
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
                               ulong nrhs, global real *b, ulong b_off, long bi,
                               long br CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
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

/* Rows that are eliminated in registers, and right-hand sides of a tile. */
#if CLB_NB % 32 == 0 && !(CLB_DOUBLE && CLB_COMPLEX)
#define CLB_SUB 32
#elif CLB_NB % 16 == 0
#define CLB_SUB 16
#else
#define CLB_SUB 8
#endif
#define CLB_RHS   32
#define CLB_PITCH (CLB_RHS + 2) /* of a row of the tile: rows begin in different banks */
/* For each work-item: elements of a sub-block of T, and right-hand sides of a row. */
#define CLB_HELD  (CLB_SUB * CLB_SUB / CLB_WG > 0 ? CLB_SUB * CLB_SUB / CLB_WG : 1)
#define CLB_MINE  (CLB_RHS * CLB_SUB / CLB_WG)

#if CLB_WG % CLB_SUB || CLB_RHS * CLB_SUB % CLB_WG || CLB_WG < CLB_RHS
#error "CLB_WG must be a multiple of a sub-block's rows"
#endif

/* Copy sub-block (t, s) of T to registers; keep_block copies it to local memory, element (i, p) to
 * p*SUB + i. */
CLB_INLINE void fetch_block(global const real *packed, uint t, uint s, real held[])
{
#pragma unroll
    for (uint h = 0; h < CLB_HELD; h++) {
        const uint e = get_local_id(0) + h * CLB_WG;
        const uint i = t * CLB_SUB + e % CLB_SUB, p = s * CLB_SUB + e / CLB_SUB;

#pragma unroll
        for (uint part = 0; part < CLB_PARTS; part++)
            held[h * CLB_PARTS + part] =
                e < CLB_SUB * CLB_SUB ? packed[(p * CLB_NB + i) * CLB_PARTS + part] : 0;
    }
}

CLB_INLINE void keep_block(const real held[], local real *t)
{
#pragma unroll
    for (uint h = 0; h < CLB_HELD; h++) {
        const uint e = get_local_id(0) + h * CLB_WG;

#pragma unroll
        for (uint part = 0; part < CLB_PARTS; part++)
            if (e < CLB_SUB * CLB_SUB)
                t[e * CLB_PARTS + part] = held[h * CLB_PARTS + part];
    }
}

/* x -= t*y. A complex product is formed before it is subtracted, as above. */
CLB_INLINE void subtract(real *x, local const real *t, const real *y)
{
#if CLB_COMPLEX
    x[0] -= fma(t[0], y[0], -t[1] * y[1]);
    x[1] -= fma(t[0], y[1], t[1] * y[0]);
#else
    x[0] = fma(-t[0], y[0], x[0]);
#endif
}

CLB_INLINE void divide(real *x, local const real *t)
{
#if CLB_COMPLEX
    const divisor by = get_divisor(t[0], t[1]);
    const real re = x[0], im = x[1];

    x[0] = (by.real_is_larger ? fma(im, by.q, re) : fma(re, by.q, im)) / by.d;
    x[1] = (by.real_is_larger ? fma(-re, by.q, im) : fma(im, by.q, -re)) / by.d;
#else
    x[0] /= t[0];
#endif
}

/* Solve with a diagonal sub-block for one right-hand side; `tile` is its first element. The bounds
 * of loops over registers are constants before anything is unrolled. */
CLB_INLINE void solve_sub(local real *tile, local const real *t, uint unit)
{
    real x[CLB_SUB * CLB_PARTS];

#pragma unroll
    for (uint e = 0; e < CLB_SUB * CLB_PARTS; e++)
        x[e] = tile[e / CLB_PARTS * CLB_PITCH * CLB_PARTS + e % CLB_PARTS];
#pragma unroll
    for (uint p = 0; p < CLB_SUB; p++) {
        if (!unit)
            divide(x + p * CLB_PARTS, t + (p * CLB_SUB + p) * CLB_PARTS);
#pragma unroll
        for (uint i = 0; i < CLB_SUB; i++)
            if (i > p)
                subtract(x + i * CLB_PARTS, t + (p * CLB_SUB + i) * CLB_PARTS, x + p * CLB_PARTS);
    }
#pragma unroll
    for (uint e = 0; e < CLB_SUB * CLB_PARTS; e++)
        tile[e / CLB_PARTS * CLB_PITCH * CLB_PARTS + e % CLB_PARTS] = x[e];
}

/* Subtract from the rows at `to` the product of T's sub-block and the solved rows at `from`. Each
 * work-item has a row and neighbouring right-hand sides. */
CLB_INLINE void update_sub(local real *to, local const real *from, local const real *t)
{
    const uint i = get_local_id(0) % CLB_SUB, r = get_local_id(0) / CLB_SUB * CLB_MINE;
    local real *row = to + (i * CLB_PITCH + r) * CLB_PARTS;
    real x[CLB_MINE * CLB_PARTS];

#pragma unroll
    for (uint e = 0; e < CLB_MINE * CLB_PARTS; e++)
        x[e] = row[e];
#pragma unroll 4
    for (uint p = 0; p < CLB_SUB; p++) {
        local const real *known = from + (p * CLB_PITCH + r) * CLB_PARTS;
        real y[CLB_MINE * CLB_PARTS];

#pragma unroll
        for (uint e = 0; e < CLB_MINE * CLB_PARTS; e++)
            y[e] = known[e];
#pragma unroll
        for (uint q = 0; q < CLB_MINE; q++)
            subtract(x + q * CLB_PARTS, t + (p * CLB_SUB + i) * CLB_PARTS, y + q * CLB_PARTS);
    }
#pragma unroll
    for (uint e = 0; e < CLB_MINE * CLB_PARTS; e++)
        row[e] = x[e];
}

/* Copy a tile of right-hand sides from or (with `out`) to the matrix; consecutive work-items copy
 * consecutive elements. */
CLB_INLINE void copy_tile(local real *tile, global real *b, long start, long bi, long br, uint nb,
                          uint width, bool out)
{
    for (uint e = get_local_id(0); e < CLB_NB * CLB_RHS; e += CLB_WG) {
        const uint i = br == 1 ? e / CLB_RHS : e % CLB_NB;
        const uint r = br == 1 ? e % CLB_RHS : e / CLB_NB;
        const bool inside = i < nb && r < width;
        local real *here = tile + (i * CLB_PITCH + r) * CLB_PARTS;
        global real *there = b + (start + (long)i * bi + (long)r * br) * CLB_PARTS;

        for (uint part = 0; part < CLB_PARTS; part++) {
            if (out && inside)
                there[part] = here[part];
            else if (!out)
                here[part] = inside ? there[part] : 0;
        }
    }
}

/* As above; local size CLB_WG. Sub-blocks of T are read one after the other, column by column, each
 * while the one before it is used. */
CLB_KERNEL void clb_trsm_solve(global const real *packed, ulong packed_off, uint nb, uint unit,
                               ulong nrhs, global real *b, ulong b_off, long bi,
                               long br CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real tile[CLB_NB * CLB_PITCH * CLB_PARTS] __attribute__((aligned(16)));
    local real t[CLB_SUB * CLB_SUB * CLB_PARTS] __attribute__((aligned(16)));
    const uint subs = (nb + CLB_SUB - 1) / CLB_SUB;
    const ulong shares = (nrhs + CLB_RHS - 1) / CLB_RHS;

    packed += packed_off * CLB_PARTS;
    for (ulong share = get_group_id(0); share < shares; share += get_num_groups(0)) {
        const uint width = (uint)min((ulong)CLB_RHS, nrhs - share * CLB_RHS);
        const long start = (long)b_off + (long)(share * CLB_RHS) * br;
        real held[CLB_HELD * CLB_PARTS];

        fetch_block(packed, 0, 0, held);
        copy_tile(tile, b, start, bi, br, nb, width, false);
        for (uint s = 0; s < subs; s++) {
            local real *solved = tile + s * CLB_SUB * CLB_PITCH * CLB_PARTS;

            for (uint q = s; q < subs; q++) {
                const uint next = q + 1 < subs ? q + 1 : s + 1;

                keep_block(held, t);
                barrier(CLK_LOCAL_MEM_FENCE);
                if (next < subs)
                    fetch_block(packed, next, q + 1 < subs ? s : s + 1, held);
                if (q > s)
                    update_sub(tile + q * CLB_SUB * CLB_PITCH * CLB_PARTS, solved, t);
                else if (get_local_id(0) < CLB_RHS)
                    solve_sub(solved + get_local_id(0) * CLB_PARTS, t, unit);
                barrier(CLK_LOCAL_MEM_FENCE);
            }
        }
        copy_tile(tile, b, start, bi, br, nb, width, true);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#endif
