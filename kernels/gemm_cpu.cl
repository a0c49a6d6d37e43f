/*
 * GEMM for OpenCL devices that are CPUs (PoCL): one work-item per work-group, operands packed into
 * panels, a register micro-tile of vector accumulators.  It differs from the portable family in
 * that it uses neither local memory nor barriers, which CPU devices emulate through memory.
 *
 *   C = alpha*A*B + beta*C,   A m x k, B k x n, C m x n column-major
 *
 * Packed layout (private to this file).  An operand of width w (the rows of A, the columns of B)
 * and depth k is cut into panels of W = CLB_MR or CLB_NR; panel q holds i = q*W ... q*W + W - 1 and
 * starts q*W*kp elements after the operand's offset, where kp is k rounded up to CLB_KU; in it,
 * element (i, p) stands at p*W + i - q*W.  Width and depth are padded with zeros in *both*
 * operands: padded depth adds 0*0, never 0*Inf, and a NaN made by a padded row or column lies in a
 * row or column of C that is never stored.
 *
 * With CLB_COMPLEX the packing kernels read complex operands, interleaved pairs (re, im), and write
 * the packed form of real ones whose product is the complex one, interleaved: A, m x k, becomes
 * 2m x 2k with blocks [re -im; im re], B, k x n, becomes 2k x n with the rows re and im in turn.
 * clb_gemm is the same; its m and k are the real operands'.
 *
 * All kernels have one work-item per work-group: local size (1, 1, 1).
 */

/* 0: float, 1: double. */
#ifndef CLB_DOUBLE
#define CLB_DOUBLE 0
#endif

/* 0: the kernels of plain products, 1: those that know triangles and B in the panels of A.  They are
 * programs of their own, since compilers for CPUs take seconds for either. */
#ifndef CLB_SHAPES
#define CLB_SHAPES 0
#endif

/* 1: the packing kernels read complex operands. */
#ifndef CLB_COMPLEX
#define CLB_COMPLEX 0
#endif

#if CLB_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#pragma OPENCL FP_CONTRACT OFF

/* The defaults are for AVX-512 (tuned on an AMD EPYC of family 26 under PoCL 3.1, November 2026).
 * For AVX2: CLB_MR 16 (double 8), CLB_NR 6, CLB_NC 252, CLB_KC 384, CLB_VP 8 (double 4). */

/* The micro-tile CLB_MR x CLB_NR.  On AVX-512 it takes 16 of 32 registers as accumulators. */
#ifndef CLB_MR
#define CLB_MR (CLB_DOUBLE ? 16 : 32)
#endif
#ifndef CLB_NR
#define CLB_NR 8
#endif

/* Depth of one pass over a block of C; a multiple of CLB_KU. */
#ifndef CLB_KC
#define CLB_KC (CLB_DOUBLE ? 192 : 256)
#endif

/* The block of C that a work-group computes; multiples of CLB_MR and CLB_NR. */
#ifndef CLB_MC
#define CLB_MC 64
#endif
#ifndef CLB_NC
#define CLB_NC 256
#endif

/* Steps of depth per turn of the inner loop. */
#ifndef CLB_KU
#define CLB_KU 4
#endif

/* How many cache lines ahead of its use the inner loop asks for B. */
#ifndef CLB_AHEAD
#define CLB_AHEAD 32
#endif

/* What a work-group packs: CLB_PACK_PANELS panels over CLB_PACK_K steps of depth (a multiple of
 * CLB_KU). */
#ifndef CLB_PACK_PANELS
#define CLB_PACK_PANELS 8
#endif
#ifndef CLB_PACK_K
#define CLB_PACK_K 256
#endif

/* How many columns ahead of its copying a packing kernel asks for the source. */
#ifndef CLB_PACK_AHEAD
#define CLB_PACK_AHEAD 8
#endif

/* Width of the vectors that pack: the machine's register. */
#ifndef CLB_VP
#define CLB_VP (CLB_DOUBLE ? 8 : 16)
#endif

/* Width of the vectors that accumulate: the widest that divides CLB_MR. */
#if CLB_MR % 16 == 0 && !CLB_DOUBLE
#define CLB_VL 16
#elif CLB_MR % 8 == 0
#define CLB_VL 8
#elif CLB_MR % 4 == 0
#define CLB_VL 4
#else
#define CLB_VL 2
#endif
#define CLB_MV (CLB_MR / CLB_VL)

#if CLB_MR % CLB_VL || CLB_MC % CLB_MR || CLB_NC % CLB_NR || CLB_KC % CLB_KU || CLB_PACK_K % CLB_KU
#error "block sizes must be multiples of the micro-tile, depths multiples of CLB_KU, CLB_MR even"
#endif
#if CLB_COMPLEX && CLB_KU % 2
#error "CLB_KU must be even where a complex number takes two steps of depth"
#endif

#if CLB_DOUBLE
#define CLB_REAL double
#define CLB_BITS ulong
#else
#define CLB_REAL float
#define CLB_BITS uint
#endif

#define CLB_JOIN_(a, b) a##b
#define CLB_JOIN(a, b) CLB_JOIN_(a, b)

/* CLB_VP may be an expression, so it is evaluated before it becomes part of a name. */
#if CLB_VP == 16
#define CLB_VPN 16
#define CLB_VPH 8
#elif CLB_VP == 8
#define CLB_VPN 8
#define CLB_VPH 4
#elif CLB_VP == 4
#define CLB_VPN 4
#define CLB_VPH 2
#else
#error "CLB_VP must be 4, 8 or 16"
#endif

typedef CLB_REAL real;
typedef CLB_JOIN(CLB_REAL, CLB_VL) vacc;
typedef CLB_JOIN(CLB_REAL, CLB_VPN) vpack;
#define load_acc(p) CLB_JOIN(vload, CLB_VL)(0, p)
#define store_acc(v, p) CLB_JOIN(vstore, CLB_VL)(v, 0, p)
#define load_pack(p) CLB_JOIN(vload, CLB_VPN)(0, p)
#define store_pack(v, p) CLB_JOIN(vstore, CLB_VPN)(v, 0, p)
#define store_half(v, p) CLB_JOIN(vstore, CLB_VPH)(v, 0, p)

#define CLB_KERNEL kernel __attribute__((reqd_work_group_size(1, 1, 1)))
#define CLB_INLINE static inline __attribute__((always_inline))

/* A hint that the cache line at p is needed soon.  It may point anywhere: it cannot fault.  A
 * compiler for another device gets none. */
#if defined(__x86_64__) || defined(__aarch64__)
#define CLB_PREFETCH(p)       __builtin_prefetch((const void *)(size_t)(p), 0, 2)
#define CLB_PREFETCH_NEAR(p)  __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#define CLB_PREFETCH_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1, 3)
#else
#define CLB_PREFETCH(p)       ((void)(p))
#define CLB_PREFETCH_NEAR(p)  ((void)(p))
#define CLB_PREFETCH_WRITE(p) ((void)(p))
#endif
#define CLB_LINE (64 / (uint)sizeof(real))

CLB_INLINE uint round_up(uint x, uint unit)
{
    return (x + unit - 1) / unit * unit;
}

/* Asks for count elements. */
CLB_INLINE void prefetch_run(global const real *p, uint count)
{
    for (uint i = 0; i < count; i += CLB_LINE)
        CLB_PREFETCH(p + i);
}

/* ---- packing -------------------------------------------------------------------------------- */

/* Real numbers in an element; where there are two the packing kernels have a last argument more. */
#if CLB_COMPLEX
#define CLB_CONJ_PARAMETER , uint conj
#define CLB_CONJ           conj
#define CLB_PARTS          2
#else
#define CLB_CONJ_PARAMETER
#define CLB_CONJ           0
#define CLB_PARTS          1
#endif

/* The share of one work-group: panels q0 ... q1 - 1, depths p0 ... p1 - 1 (p1 counts padding). */
typedef struct {
    uint q0, q1, p0, p1;
} pack_share;

CLB_INLINE pack_share get_pack_share(uint w, uint k, uint W)
{
    pack_share s;
    s.q0 = (uint)get_group_id(0) * CLB_PACK_PANELS;
    s.q1 = min(s.q0 + CLB_PACK_PANELS, (w + W - 1) / W);
    s.p0 = (uint)get_group_id(1) * CLB_PACK_K;
    s.p1 = min(s.p0 + CLB_PACK_K, round_up(k, CLB_KU));
    return s;
}

CLB_INLINE void zero_row(global real *dst, uint count)
{
    for (uint i = 0; i < count; i++)
        dst[i] = 0;
}

#if CLB_COMPLEX

/* Signs to be changed in a run of pairs, as bits for xor: those of the first and of the second numbers. */
typedef CLB_JOIN(CLB_BITS, CLB_VPN) vbits;
#define CLB_SIGN      ((CLB_BITS)1 << (8 * sizeof(real) - 1))
#define as_vbits(x)   CLB_JOIN(as_, CLB_JOIN(CLB_BITS, CLB_VPN))(x)
#define as_vpack(x)   CLB_JOIN(as_, CLB_JOIN(CLB_REAL, CLB_VPN))(x)
#define CLB_FLIP(x, bits) as_vpack(as_vbits(x) ^ (bits))

#if CLB_VPN == 16
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b)
#define CLB_SWAP(x)     (x).s1032547698badcfe
#elif CLB_VPN == 8
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b, a, b, a, b)
#define CLB_SWAP(x)     (x).s10325476
#else
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b)
#define CLB_SWAP(x)     (x).s1032
#endif

/* The real number at row i and depth p of the operand, which stands at src in pairs: of A the block
 * [re -im; im re], of B the column (re, im). */
CLB_INLINE real element_of_a(global const real *src, uint i, uint p, uint conj)
{
    const real x = src[(i ^ p) & 1];
    return (i ^ p) & 1 && (i & 1) == conj ? -x : x;
}

CLB_INLINE real element_of_b(global const real *src, uint p, uint conj)
{
    const real x = src[p & 1];
    return p & conj & 1 ? -x : x;
}

/* A run of count real numbers, pairs of A or B, at two successive depths. */
CLB_INLINE void copy_pairs(global real *even, global real *odd, global const real *src, uint count,
                           uint conj, const bool of_a)
{
    const CLB_BITS kept = conj ? CLB_SIGN : 0, turned = conj ? 0 : CLB_SIGN;
    uint i = 0;
    if (of_a) {
        for (; i + CLB_VP <= count; i += CLB_VP) {
            const vpack x = load_pack(src + i);
            store_pack(CLB_FLIP(x, CLB_PAIRS(0, kept)), even + i);
            store_pack(CLB_FLIP(CLB_SWAP(x), CLB_PAIRS(turned, 0)), odd + i);
        }
        for (; i < count; i++) {
            even[i] = element_of_a(src + (i & ~1u), i, 0, conj);
            odd[i] = element_of_a(src + (i & ~1u), i, 1, conj);
        }
    } else {
        for (; i + CLB_VP <= count; i += CLB_VP) {
            const vpack x = CLB_FLIP(load_pack(src + i), CLB_PAIRS(0, kept));
            store_half(x.even, even + i / 2);
            store_half(x.odd, odd + i / 2);
        }
        for (; i < count; i += 2) {
            even[i / 2] = element_of_b(src + i, 0, conj);
            odd[i / 2] = element_of_b(src + i, 1, conj);
        }
    }
}

/* Element (i, p) is src[2*(i + p*ld)] and the next; w and k are the real operand's.  Two depths after
 * the other, so that a column of the source is read in one go over all panels of the work-group. */
CLB_INLINE void pack_n(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, const bool of_a, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);
    const uint S = of_a ? 1 : 2; /* real numbers of the source for each element of a panel's row */
    const uint full = min(s.q1, w / W);
    const uint rest = w % W;
    const uint width = min(s.q1 * W, w) - s.q0 * W;

    for (uint p = s.p0; p < min(s.p1, k); p += 2) {
        global const real *from = src + (size_t)p * ld;
        global real *even = dst + (size_t)p * W, *odd = even + W;
        if (p + 2 * CLB_PACK_AHEAD < k)
            prefetch_run(from + 2 * CLB_PACK_AHEAD * ld + (size_t)s.q0 * W * S, width * S);
        for (uint q = s.q0; q < full; q++)
            copy_pairs(even + q * panel, odd + q * panel, from + (size_t)q * W * S, W * S, conj,
                       of_a);
        if (full < s.q1) {
            copy_pairs(even + full * panel, odd + full * panel, from + (size_t)full * W * S,
                       rest * S, conj, of_a);
            zero_row(even + full * panel + rest, W - rest);
            zero_row(odd + full * panel + rest, W - rest);
        }
    }
    for (uint p = max(s.p0, k); p < s.p1; p++)
        for (uint q = s.q0; q < s.q1; q++)
            zero_row(dst + q * panel + (size_t)p * W, W);
}

#else

CLB_INLINE void copy_row(global real *dst, global const real *src, uint count)
{
    uint i = 0;
    for (; i + CLB_VP <= count; i += CLB_VP)
        store_pack(load_pack(src + i), dst + i);
    for (; i + 8 <= count; i += 8)
        vstore8(vload8(0, src + i), 0, dst + i);
    for (; i + 4 <= count; i += 4)
        vstore4(vload4(0, src + i), 0, dst + i);
    for (; i < count; i++)
        dst[i] = src[i];
}

/* Element (i, p) is src[i + p*ld].  One depth after the other, so that a column of the source is
 * read in one go over all panels of the work-group. */
CLB_INLINE void pack_n(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, const bool of_a, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);
    const uint full = min(s.q1, w / W);
    const uint rest = w % W;
    const uint width = min(s.q1 * W, w) - s.q0 * W;

    for (uint p = s.p0; p < min(s.p1, k); p++) {
        global const real *from = src + p * ld;
        global real *to = dst + (size_t)p * W;
        if (p + CLB_PACK_AHEAD < k)
            prefetch_run(from + CLB_PACK_AHEAD * ld + (size_t)s.q0 * W, width);
        for (uint q = s.q0; q < full; q++)
            copy_row(to + q * panel, from + (size_t)q * W, W);
        if (full < s.q1) {
            copy_row(to + full * panel, from + (size_t)full * W, rest);
            zero_row(to + full * panel + rest, W - rest);
        }
    }
    for (uint p = max(s.p0, k); p < s.p1; p++)
        for (uint q = s.q0; q < s.q1; q++)
            zero_row(dst + q * panel + (size_t)p * W, W);
}

#endif

/* CLB_VP depths of row i of an operand, of which element (0, 0) is at src; p, the first, is even
 * where elements are pairs. Row i of A is the real or the imaginary part of a row of pairs. */
CLB_INLINE vpack load_row(global const real *src, size_t ld, uint i, uint p, const bool of_a,
                          uint conj)
{
#if CLB_COMPLEX
    const CLB_BITS kept = conj ? CLB_SIGN : 0, turned = conj ? 0 : CLB_SIGN;
    if (of_a && i % 2 == 0)
        return CLB_FLIP(load_pack(src + i * ld + p), CLB_PAIRS(0, turned));
    if (of_a)
        return CLB_FLIP(CLB_SWAP(load_pack(src + (i - 1) * ld + p)), CLB_PAIRS(kept, 0));
    return CLB_FLIP(load_pack(src + i * 2 * ld + p), CLB_PAIRS(0, kept));
#else
    return load_pack(src + i * ld + p);
#endif
}

/* Element (i, p), rows or depths contiguous. */
CLB_INLINE real load_element(global const real *src, size_t ld, uint i, uint p, const bool by_rows,
                             const bool of_a, uint conj)
{
#if CLB_COMPLEX
    const uint pair = of_a ? i & ~1u : 2 * i, depth = p & ~1u;
    global const real *at = src + (by_rows ? pair + depth * ld : pair * ld + depth);
    return of_a ? element_of_a(at, i, p, conj) : element_of_b(at, p, conj);
#else
    return src[by_rows ? i + p * ld : i * ld + p];
#endif
}

/* Element 0 of a, of b, element 1 of a, of b, ...: half a vector of each. */
#if CLB_VPN == 16
#define CLB_INTERLEAVE(a, b) ((vpack)(a, b)).s08192a3b4c5d6e7f
#elif CLB_VPN == 8
#define CLB_INTERLEAVE(a, b) ((vpack)(a, b)).s04152637
#else
#define CLB_INTERLEAVE(a, b) ((vpack)(a, b)).s0213
#endif

/* Turns G rows of CLB_VP depths into CLB_VP depths of G elements, in place.  With the element's
 * row as the high and its depth as the low digits of an address over all of x, every step rotates
 * that address by one bit; log2(G) steps swap row and depth. */
CLB_INLINE void transpose(vpack x[CLB_VP], const uint G)
{
#pragma unroll
    for (uint step = 1; step < CLB_VP; step *= 2) {
        if (step < G) {
            vpack y[CLB_VP];
#pragma unroll
            for (uint i = 0; i < CLB_VP / 2; i++) {
                if (i < G / 2) {
                    y[2 * i] = CLB_INTERLEAVE(x[i].lo, x[i + G / 2].lo);
                    y[2 * i + 1] = CLB_INTERLEAVE(x[i].hi, x[i + G / 2].hi);
                }
            }
#pragma unroll
            for (uint i = 0; i < CLB_VP; i++)
                if (i < G)
                    x[i] = y[i];
        }
    }
}

/* Stores CLB_VP depths of G elements, which begin at `to` and are W apart. */
CLB_INLINE void store_rows(vpack x[CLB_VP], global real *to, const uint W, const uint G)
{
#pragma unroll
    for (uint i = 0; i < CLB_VP; i++) {
        if (i >= G) {
            continue;
        } else if (G == W) {
            store_pack(x[i], to + i * CLB_VP);
        } else if (G == CLB_VP) {
            store_pack(x[i], to + i * W);
        } else {
            real t[CLB_VP];
            store_pack(x[i], t);
            for (uint e = 0; e < CLB_VP; e++)
                to[(i * CLB_VP + e) / G * W + e % G] = t[e];
        }
    }
}

/* Packs a panel over depths p0 ... p1 - 1, G rows at a time; `rows` of the panel exist, and k depths
 * are valid. All of the panel before the next depths: lines are written one after the other. */
CLB_INLINE void pack_rows(global const real *src, size_t ld, uint rows, uint p0, uint p1, uint k,
                          global real *dst, const uint W, const uint G, const bool of_a,
                          uint conj)
{
    uint p = p0;
    for (; p + CLB_VP <= min(p1, k); p += CLB_VP) {
        for (uint r = 0; r < W; r += G) {
            vpack x[CLB_VP];
#pragma unroll
            for (uint i = 0; i < CLB_VP; i++)
                if (i < G)
                    x[i] = r + i < rows ? load_row(src, ld, r + i, p, of_a, conj) : (vpack)(0);
            transpose(x, G);
            store_rows(x, dst + (size_t)p * W + r, W, G);
        }
    }
    for (; p < p1; p++)
        for (uint i = 0; i < W; i++)
            dst[(size_t)p * W + i] =
                i < rows && p < k ? load_element(src, ld, i, p, false, of_a, conj) : 0;
}

/* The largest power of two that divides the panel's width, at most a vector. */
#define CLB_PIECE(W) \
    ((W) % CLB_VP == 0 ? CLB_VP : (W) % 8 == 0 ? 8 : (W) % 4 == 0 ? 4 : (W) % 2 == 0 ? 2 : 1)

/* Element (i, p) is src[p + i*ld], where elements are pairs src[2*(p + i*ld)] and the next; w and k
 * are the real operand's. */
CLB_INLINE void pack_t(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, const uint G, const bool of_a, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);

    for (uint q = s.q0; q < s.q1; q++) {
        const uint rows = min(w - q * W, W);
        global const real *from = src + (size_t)(q * W) * (of_a ? 1 : CLB_PARTS) * ld;
        global real *to = dst + q * panel;
        /* The usual case apart, so that its loads need no tests. */
        if (rows == W)
            pack_rows(from, ld, W, s.p0, s.p1, k, to, W, G, of_a, conj);
        else
            pack_rows(from, ld, rows, s.p0, s.p1, k, to, W, G, of_a, conj);
    }
}

#if !CLB_SHAPES
/*
 * Operand A (w = m) or B (w = n) of op(A)*op(B), k deep, from src + src_off into the packed form at
 * dst + dst_off, which must be aligned to 128 bytes and has
 * round_up(w, W)*round_up(k, CLB_KU) elements.  The variant n is for i contiguous, t for p
 * contiguous.  Nothing outside the w x k elements is read.
 *
 * Global size, exactly:
 *   (ceil(ceil(w / W) / CLB_PACK_PANELS), ceil(round_up(k, CLB_KU) / CLB_PACK_K)).
 *
 * Where elements are complex, src_off, ld, w and k count complex ones, and `conj` asks for the
 * conjugates; dst_off and the sizes are the real operand's, 2m x 2k or 2k x n.
 */
CLB_KERNEL void clb_pack_a_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst, ulong dst_off CLB_CONJ_PARAMETER)
{
    pack_n(src + CLB_PARTS * src_off, ld, CLB_PARTS * w, CLB_PARTS * k, dst + dst_off, CLB_MR, true,
           CLB_CONJ, get_pack_share(CLB_PARTS * w, CLB_PARTS * k, CLB_MR));
}

CLB_KERNEL void clb_pack_a_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst, ulong dst_off CLB_CONJ_PARAMETER)
{
    pack_t(src + CLB_PARTS * src_off, ld, CLB_PARTS * w, CLB_PARTS * k, dst + dst_off, CLB_MR,
           CLB_PIECE(CLB_MR), true, CLB_CONJ, get_pack_share(CLB_PARTS * w, CLB_PARTS * k, CLB_MR));
}

CLB_KERNEL void clb_pack_b_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst, ulong dst_off CLB_CONJ_PARAMETER)
{
    pack_n(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR, false, CLB_CONJ,
           get_pack_share(w, CLB_PARTS * k, CLB_NR));
}

CLB_KERNEL void clb_pack_b_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst, ulong dst_off CLB_CONJ_PARAMETER)
{
    pack_t(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR,
           CLB_PIECE(CLB_NR), false, CLB_CONJ, get_pack_share(w, CLB_PARTS * k, CLB_NR));
}

#endif

/* ---- packing triangles ---------------------------------------------------------------------- */

/* Kinds: element (i, p) is zero for p > i + diagonal, or for p < i + diagonal; ones on the diagonal. */
#define CLB_TRIANGLE_LOW  1
#define CLB_TRIANGLE_HIGH 2
#define CLB_TRIANGLE_UNIT 4
typedef struct {
    uint kind;
    int diagonal;
} triangle;

/* Element (i, p), which exists; nothing is read where it is not stored. */
CLB_INLINE real triangle_element(global const real *src, size_t ld, uint i, uint p, triangle shape,
                                 const bool by_rows, const bool of_a, uint conj)
{
    const int behind = (int)(p / CLB_PARTS) - (int)(of_a ? i / CLB_PARTS : i) - shape.diagonal;
    if (shape.kind & CLB_TRIANGLE_LOW ? behind > 0 : behind < 0)
        return 0;
    if (behind == 0 && shape.kind & CLB_TRIANGLE_UNIT)
        return CLB_PARTS == 1 || ((of_a ? i ^ p : p) & 1) == 0;
    return load_element(src, ld, i, p, by_rows, of_a, conj);
}

/* A panel over depths p0 ... p1 - 1. */
CLB_INLINE void pack_crossing(global const real *src, size_t ld, uint w, uint k, global real *dst,
                              const uint W, uint q, uint p0, uint p1, triangle shape,
                              const bool by_rows, const bool of_a, uint conj)
{
    global real *to = dst + (size_t)q * W * round_up(k, CLB_KU);
    for (uint p = p0; p < p1; p++)
        for (uint i = 0; i < W; i++)
            to[(size_t)p * W + i] =
                q * W + i < w && p < k
                    ? triangle_element(src, ld, q * W + i, p, shape, by_rows, of_a, conj)
                    : 0;
}

/* A depth, as far as it lies in [p0, p1), in steps of CLB_KU; p0 and p1 are such. */
CLB_INLINE uint down_to_step(int p, int p0, int p1)
{
    return (uint)(clamp(p, p0, p1) / CLB_KU * CLB_KU);
}

CLB_INLINE uint up_to_step(int p, int p0, int p1)
{
    return round_up((uint)clamp(p, p0, p1), CLB_KU);
}

/* What is not zero, and as much of the zeros beside it as clb_gemm_cut reads: panels up to where they
 * meet the diagonal, in steps of CLB_KU, and where they cross it element by element. */
CLB_INLINE void pack_triangle(global const real *src, size_t ld, uint w, uint k, global real *dst,
                              const uint W, const uint G, const bool by_rows, const bool of_a,
                              uint conj, triangle shape)
{
    const pack_share all = get_pack_share(w, k, W);
    const int each = of_a ? 1 : CLB_PARTS, diagonal = CLB_PARTS * shape.diagonal;
    const int p0 = (int)all.p0, p1 = (int)all.p1;
    const bool low = shape.kind & CLB_TRIANGLE_LOW;
    /* Depths from the first panel's beginning and to the last one's end. */
    const uint first = down_to_step((int)(all.q0 * W) * each + diagonal, p0, p1);
    const uint last = up_to_step((int)(all.q1 * W) * each + diagonal, p0, p1);
    /* In the last turn what all panels have, in one go. */
    for (uint q = all.q0; q <= all.q1; q++) {
        const int meets = (int)(q * W) * each + diagonal;
        const uint near = down_to_step(meets, p0, p1);
        const uint far = up_to_step(meets + (int)W * each, p0, p1);
        pack_share s = {q, q + 1, low ? first : far, low ? near : last};
        if (q == all.q1)
            s = (pack_share){all.q0, all.q1, low ? all.p0 : last, low ? first : all.p1};
        else
            pack_crossing(src, ld, w, k, dst, W, q, near, far, shape, by_rows, of_a, conj);
        if (s.p0 < s.p1 && by_rows)
            pack_n(src, ld, w, k, dst, W, of_a, conj, s);
        else if (s.p0 < s.p1)
            pack_t(src, ld, w, k, dst, W, G, of_a, conj, s);
    }
}

#if CLB_SHAPES
/*
 * The same for triangular operands, of `kind`, with the diagonal at p = i + diagonal in elements. What
 * clb_gemm_cut does not read is not packed, and of the source only the triangle is read.
 */
CLB_KERNEL void clb_pack_triangle_a_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                                      global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER)
{
    pack_triangle(src + CLB_PARTS * src_off, ld, CLB_PARTS * w, CLB_PARTS * k, dst + dst_off, CLB_MR,
                  CLB_PIECE(CLB_MR), true, true, CLB_CONJ, (triangle){kind, diagonal});
}

CLB_KERNEL void clb_pack_triangle_a_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                                      global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER)
{
    pack_triangle(src + CLB_PARTS * src_off, ld, CLB_PARTS * w, CLB_PARTS * k, dst + dst_off, CLB_MR,
                  CLB_PIECE(CLB_MR), false, true, CLB_CONJ, (triangle){kind, diagonal});
}

CLB_KERNEL void clb_pack_triangle_b_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                                      global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER)
{
    pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR,
                  CLB_PIECE(CLB_NR), true, false, CLB_CONJ, (triangle){kind, diagonal});
}

CLB_KERNEL void clb_pack_triangle_b_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                                      global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER)
{
    pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR,
                  CLB_PIECE(CLB_NR), false, false, CLB_CONJ, (triangle){kind, diagonal});
}

#endif

/* ---- multiplication ------------------------------------------------------------------------- */

/* Where B is. */
#define CLB_B_PACKED    0
#define CLB_B_PLAIN     1 /* the caller's */
#define CLB_B_OF_A      2 /* in the panels of A: B = A^T */
#define CLB_B_OF_A_CONJ 3 /* B = A^H */

/* Panels of A have whole panels of B in them. */
#define CLB_SHARES_PANELS (CLB_MR % (CLB_PARTS * CLB_NR) == 0)

/* From one depth of a panel with B in it to the next. */
CLB_INLINE uint b_step(const uint source)
{
    return source == CLB_B_PACKED ? CLB_NR : CLB_MR;
}

/* Column j of B, u depths behind an even one. Of complex numbers the first column of A's block
 * [re -im; im re] is B's. */
CLB_INLINE uint b_place(uint u, uint j, const uint source)
{
#if CLB_COMPLEX
    if (source != CLB_B_PACKED)
        return (u & ~1u) * CLB_MR + (u & 1) + 2 * j;
#endif
    return u * b_step(source) + j;
}

/* Where to ask for element i of B in the order of its own panels: of two depths of complex numbers,
 * which lie side by side in A's, one half each. */
CLB_INLINE uint b_line(uint i, const uint source)
{
    const uint u = i / CLB_NR;
    const bool second = CLB_PARTS > 1 && source != CLB_B_PACKED && u % 2 == 1;
    return b_place(u, second ? CLB_NR / 2 : i % CLB_NR, source);
}

/* acc += A*B over kc steps, kc a multiple of CLB_KU, in vectors v0 ... v1 - 1 of every column.  The
 * panel of A stays in the first-level cache, that of B is new in every micro-tile: it comes from the
 * second level, and what the hardware fetches ahead of so short a run is not enough.  Behind its end
 * follows b_next. */
CLB_INLINE void multiply(vacc acc[CLB_NR][CLB_MV], global const real *a, global const real *b,
                         global const real *b_next, uint kc, const uint source, const uint v0,
                         const uint v1)
{
    /* What a line of B has, where it is packed, and depths where it is in the panels of A. */
    const uint line = source == CLB_B_PACKED ? CLB_LINE : CLB_NR;
    const uint ahead = source == CLB_B_PACKED ? CLB_AHEAD * CLB_LINE : CLB_AHEAD * CLB_MR;
    const uint turn = kc - min(ahead / b_step(source), kc);
    global const real *soon = b + ahead;
    for (uint p = 0; p < kc; p += CLB_KU) {
        if (p == turn / CLB_KU * CLB_KU)
            soon = b_next;
#pragma unroll
        for (uint i = 0; i < CLB_KU * CLB_NR; i += line)
            CLB_PREFETCH_NEAR(soon + b_line(i, source));
        soon += CLB_KU * b_step(source);
#pragma unroll
        for (uint u = 0; u < CLB_KU; u++) {
            vacc x[CLB_MV];
#pragma unroll
            for (uint i = v0; i < v1; i++) {
                x[i] = load_acc(a + u * CLB_MR + i * CLB_VL);
                if (source == CLB_B_OF_A_CONJ && u % 2 == 1)
                    x[i] = -x[i];
            }
#pragma unroll
            for (uint j = 0; j < CLB_NR; j++) {
                const vacc y = (vacc)(b[b_place(u, j, source)]);
#pragma unroll
                for (uint i = v0; i < v1; i++)
                    acc[j][i] = fma(x[i], y, acc[j][i]);
            }
        }
        a += CLB_KU * CLB_MR;
        b += CLB_KU * b_step(source);
    }
}

/* Where A is triangular in a micro-tile of two vectors a column: in [0, begin) the second one's rows
 * are zero still, in [end, kc) the first one's are zero again. */
typedef struct {
    uint begin, end;
} halves;

CLB_INLINE void multiply_halves(vacc acc[CLB_NR][CLB_MV], global const real *a,
                                global const real *b, global const real *b_next, uint kc,
                                halves ends, const uint source)
{
    const uint step = b_step(source);
    if (ends.begin > 0)
        multiply(acc, a, b, b + ends.begin * step, ends.begin, source, 0, 1);
    multiply(acc, a + ends.begin * CLB_MR, b + ends.begin * step,
             ends.end < kc ? b + ends.end * step : b_next, ends.end - ends.begin, source, 0,
             CLB_MV);
    if (ends.end < kc)
        multiply(acc, a + ends.end * CLB_MR, b + ends.end * step, b_next, kc - ends.end, source,
                 CLB_MV / 2, CLB_MV);
}

/* One step of depth: column j of B is at column[j]. */
CLB_INLINE void multiply_step(vacc acc[CLB_NR][CLB_MV], global const real *a,
                              global const real *const column[CLB_NR], uint p)
{
    vacc x[CLB_MV];
#pragma unroll
    for (uint i = 0; i < CLB_MV; i++)
        x[i] = load_acc(a + i * CLB_VL);
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++) {
        const vacc y = (vacc)(column[j][p]);
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            acc[j][i] = fma(x[i], y, acc[j][i]);
    }
}

/* The same for a B that is not packed: element (p, j) is b[p + j*ldb], of `columns` columns and
 * exactly kc rows.  Columns that don't exist are computed as the last one. */
CLB_INLINE void multiply_direct(vacc acc[CLB_NR][CLB_MV], global const real *a,
                                global const real *b, size_t ldb, uint columns, uint kc)
{
    global const real *column[CLB_NR];
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
        column[j] = b + min(j, columns - 1) * ldb;
    uint p = 0;
    for (; p + CLB_KU <= kc; p += CLB_KU)
#pragma unroll
        for (uint u = 0; u < CLB_KU; u++)
            multiply_step(acc, a + (p + u) * CLB_MR, column, p + u);
#pragma unroll 1
    for (; p < kc; p++)
        multiply_step(acc, a + p * CLB_MR, column, p);
}

/* One column of the micro-tile, rows of it valid: c = alpha*acc + beta*c. */
CLB_INLINE void update_column(const vacc acc[CLB_MV], real alpha, real beta, global real *c,
                              uint rows)
{
    if (rows >= CLB_MR) {
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++) {
            vacc v = fma((vacc)(alpha), acc[i], (vacc)(0)); /* no negative zeros */
            if (beta != 0)
                v = fma((vacc)(beta), load_acc(c + i * CLB_VL), v);
            store_acc(v, c + i * CLB_VL);
        }
    } else {
        real t[CLB_MR];
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            store_acc(fma((vacc)(alpha), acc[i], (vacc)(0)), t + i * CLB_VL);
        for (uint i = 0; i < rows; i++)
            c[i] = beta == 0 ? t[i] : fma(beta, c[i], t[i]);
    }
}

/* As beta with alpha = -1: C - A*B as -((-C) + A*B), so that products are subtracted one after the other
 * (clb_dmat_update). */
#define CLB_IN_ORDER 2

/* One column of -C, rows of it valid. */
CLB_INLINE void load_column(vacc acc[CLB_MV], global const real *c, uint rows)
{
    if (rows >= CLB_MR) {
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            acc[i] = -load_acc(c + i * CLB_VL);
    } else {
        real t[CLB_MR];
        for (uint i = 0; i < CLB_MR; i++)
            t[i] = i < rows ? -c[i] : 0;
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            acc[i] = load_acc(t + i * CLB_VL);
    }
}

/* One micro-tile, of which rows x columns are valid, over kc steps; b_next is what follows b. */
CLB_INLINE void update_tile(global const real *a, global const real *b, global const real *b_next,
                            size_t ldb, uint kc, halves ends, real alpha, real beta,
                            global real *c, size_t ldc, uint rows, uint columns,
                            const uint source)
{
    const bool in_order = beta == CLB_IN_ORDER;
    vacc acc[CLB_NR][CLB_MV];
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
#pragma unroll
        for (uint i = 0; i < CLB_MV; i++)
            acc[j][i] = (vacc)(0);
    if (in_order) {
#pragma unroll
        for (uint j = 0; j < CLB_NR; j++)
            if (j < columns)
                load_column(acc[j], c + j * ldc, rows);
    }
    /* What is read in the end; in order, what is read of the next tile in the beginning. */
    global const real *soon = c + (in_order ? CLB_NR * ldc : 0);
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
#pragma unroll
        for (uint i = 0; i < CLB_MR; i += CLB_LINE)
            CLB_PREFETCH_WRITE(soon + j * ldc + i);
    if (source == CLB_B_PLAIN)
        multiply_direct(acc, a, b, ldb, columns, kc);
    else
        multiply_halves(acc, a, b, b_next, kc, ends, source);
#pragma unroll
    for (uint j = 0; j < CLB_NR; j++)
        if (j < columns)
            update_column(acc[j], alpha, in_order ? 0 : beta, c + j * ldc, rows);
}

/* What of a product is zero or not wanted, in real rows and depths, which are CLB_PARTS as many where
 * elements are complex; columns count as many. */
#define CLB_CUT_A_END 1   /* A(i, p) is zero for p > i + a */
#define CLB_CUT_A_BEGIN 2 /* for p < i + a */
#define CLB_CUT_B_END 4   /* B(p, j) is zero for p > j + b */
#define CLB_CUT_B_BEGIN 8 /* for p < j + b */
#define CLB_CUT_LOWER 16  /* C(i, j) is wanted for i + c >= j */
#define CLB_CUT_UPPER 32  /* for i + c <= j */
typedef struct {
    uint kind;
    int a, b, c;
} cuts;

/* The depths at which products of rows [row, row_end) and columns [col, col_end) are not all zero, as
 * (begin, end); all are in real numbers. */
CLB_INLINE int2 get_depths(cuts cut, uint row, uint row_end, uint col, uint col_end, uint kp)
{
    int begin = 0, end = (int)kp;
    if (cut.kind & CLB_CUT_A_END)
        end = min(end, (int)row_end + cut.a);
    if (cut.kind & CLB_CUT_B_END)
        end = min(end, (int)col_end + cut.b);
    if (cut.kind & CLB_CUT_A_BEGIN)
        begin = max(begin, (int)row + cut.a);
    if (cut.kind & CLB_CUT_B_BEGIN)
        begin = max(begin, (int)col + cut.b);
    return (int2)(begin / CLB_KU * CLB_KU, (int)round_up((uint)max(end, 0), CLB_KU));
}

/* Anything of the micro-tile is wanted. */
CLB_INLINE bool is_wanted(cuts cut, uint row, uint col)
{
    return !(cut.kind & CLB_CUT_LOWER && (int)row + CLB_MR + cut.c <= (int)col) &&
           !(cut.kind & CLB_CUT_UPPER && (int)row + cut.c >= (int)(col + CLB_PARTS * CLB_NR));
}

/* Of the micro-tile's depths first ... last - 1, for a product with a triangular A. */
CLB_INLINE halves get_halves(cuts cut, uint row, uint first, uint last)
{
    halves ends = {0, last - first};
    if (CLB_MV == 2 && cut.kind & (CLB_CUT_A_END | CLB_CUT_A_BEGIN)) {
        const int middle = (int)row + CLB_VL + cut.a, p0 = (int)first, p1 = (int)last;
        if (cut.kind & CLB_CUT_A_BEGIN)
            ends.begin = down_to_step(middle, p0, p1) - first;
        else
            ends.end = up_to_step(middle, p0, p1) - first;
    }
    return ends;
}

/* Columns from j on and depths from p on. */
CLB_INLINE global const real *panel_of_b(global const real *pb, size_t ldb, size_t kp, uint j,
                                         uint p, const uint source)
{
    if (source == CLB_B_PLAIN)
        return pb + j * ldb + p;
    if (source == CLB_B_PACKED)
        return pb + j * kp + (size_t)p * CLB_NR;
    const uint row = CLB_PARTS * j;
    return pb + row / CLB_MR * CLB_MR * kp + (size_t)p * CLB_MR + row % CLB_MR;
}

/*
 * C = alpha*A*B + beta*C from packed operands, or with B as the caller has it; beta = 0 does not read
 * C, and with beta = CLB_IN_ORDER and alpha = -1 it is C - A*B, product by product.
 *
 * A work-group takes its block of C in passes of CLB_KC steps of depth.  In a pass a panel of A
 * (CLB_MR x CLB_KC, first-level cache) meets every panel of B in turn (CLB_KC x CLB_NC, second
 * level), while the next panel of A is fetched piece by piece.
 */
CLB_INLINE void multiply_block(uint m, uint n, uint k, real alpha, real beta,
                               global const real *pa, global const real *pb, size_t ldb,
                               global real *c, size_t ldc, const uint source, cuts cut)
{
    const uint i0 = (uint)get_group_id(0) * CLB_MC, i1 = min(i0 + CLB_MC, m);
    const uint j0 = (uint)get_group_id(1) * CLB_NC, j1 = min(j0 + CLB_NC, n);
    const uint kp = round_up(k, CLB_KU);

    int2 depths = (int2)(0, (int)kp);
    if (cut.kind != 0)
        depths = get_depths(cut, i0, i1, CLB_PARTS * j0, CLB_PARTS * j1, kp);

    /* Passes of equal depth.  The first applies beta, the others add; k = 0 is one pass of none. */
    const uint begin = (uint)depths.x, end = min((uint)depths.y, kp);
    if (begin > end)
        return;
    const uint passes = max((end - begin + CLB_KC - 1) / CLB_KC, 1u);
    const uint step = round_up((end - begin + passes - 1) / passes, CLB_KU);
    uint p = begin;
    do {
        const uint kc = min(step, end - p);
        const uint share = CLB_MR * kc / ((j1 - j0 + CLB_NR - 1) / CLB_NR) + 1;
        for (uint i = i0; i < i1; i += CLB_MR) {
            global const real *a = pa + (size_t)i * kp;
            /* The panel that follows: in this pass, in the next, in the next work-group. */
            global const real *next = a + (size_t)(kp + p) * CLB_MR;
            if (i + CLB_MR >= i1)
                next = p + kc < end ? pa + (size_t)i0 * kp + (size_t)(p + kc) * CLB_MR
                                    : pa + (size_t)i1 * kp;
            for (uint j = j0; j < j1; j += CLB_NR) {
                uint first = p, last = source == CLB_B_PLAIN ? min(p + kc, k) : p + kc;
                bool begins = p == 0;
                prefetch_run(next, share);
                next += share;
                if (cut.kind != 0) {
                    /* Passes that begin before the first depth leave beta to a later one. */
                    depths = get_depths(cut, i, i + CLB_MR, CLB_PARTS * j,
                                        CLB_PARTS * (j + CLB_NR), kp);
                    first = max(first, (uint)depths.x);
                    last = min(last, (uint)depths.y);
                    begins = first == (uint)depths.x;
                }
                if (cut.kind == 0 || (first < last && is_wanted(cut, i, CLB_PARTS * j)))
                    update_tile(a + (size_t)first * CLB_MR,
                                panel_of_b(pb, ldb, kp, j, first, source),
                                panel_of_b(pb, ldb, kp, j + CLB_NR < j1 ? j + CLB_NR : j0, first,
                                           source),
                                ldb, last - first, get_halves(cut, i, first, last), alpha,
                                begins || beta == CLB_IN_ORDER ? beta : 1, c + j * ldc + i, ldc,
                                i1 - i, j1 - j, source);
            }
        }
        p += kc;
    } while (p < end);
}

#if !CLB_SHAPES

/*
 * Both operands packed.
 *
 * Global size, exactly: (ceil(m / CLB_MC), ceil(n / CLB_NC)).
 */
CLB_KERNEL void clb_gemm(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                         ulong pa_off, global const real *pb, ulong pb_off, global real *c,
                         ulong c_off, ulong ldc)
{
    multiply_block(m, n, k, alpha, beta, pa + pa_off, pb + pb_off, 0, c + c_off, ldc,
                   CLB_B_PACKED, (cuts){0, 0, 0, 0});
}

/*
 * A packed, B the caller's: element (p, j) is b[b_off + p + j*ldb], all in real numbers; nothing but
 * its k x n elements is read.  Worth it where C has few rows: packing B then costs more than it
 * gains.  The sums are the other kernel's, bit by bit.
 *
 * Global size, exactly: (ceil(m / CLB_MC), ceil(n / CLB_NC)).
 */
CLB_KERNEL void clb_gemm_direct(uint m, uint n, uint k, real alpha, real beta,
                                global const real *pa, ulong pa_off, global const real *b,
                                ulong b_off, global real *c, ulong c_off, ulong ldc, ulong ldb)
{
    multiply_block(m, n, k, alpha, beta, pa + pa_off, b + b_off, ldb, c + c_off, ldc,
                   CLB_B_PLAIN, (cuts){0, 0, 0, 0});
}

#else

/*
 * The same where an operand is triangular or only a triangle of C is wanted: `kind` of the cuts
 * above.  Micro-tiles that are not wanted are not written.  Each other must have a depth at which it
 * is not zero; what is packed of its operands at others is not read.
 */
CLB_KERNEL void clb_gemm_cut(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                             ulong pa_off, global const real *pb, ulong pb_off, global real *c,
                             ulong c_off, ulong ldc, uint kind, int a_cut, int b_cut, int c_cut)
{
    multiply_block(m, n, k, alpha, beta, pa + pa_off, pb + pb_off, 0, c + c_off, ldc,
                   CLB_B_PACKED, (cuts){kind, a_cut, b_cut, c_cut});
}

#if CLB_SHARES_PANELS
/*
 * The same with B in packed panels of A: the columns are rows that begin where a panel does.  B = A^T
 * here and A^H in clb_gemm_herk.  `kind` may be 0.  The sums are the other kernel's, bit by bit.
 */
CLB_KERNEL void clb_gemm_syrk(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                              ulong pa_off, global const real *pb, ulong pb_off, global real *c,
                              ulong c_off, ulong ldc, uint kind, int a_cut, int b_cut, int c_cut)
{
    multiply_block(m, n, k, alpha, beta, pa + pa_off, pb + pb_off, 0, c + c_off, ldc, CLB_B_OF_A,
                   (cuts){kind, a_cut, b_cut, c_cut});
}

#if CLB_COMPLEX
CLB_KERNEL void clb_gemm_herk(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                              ulong pa_off, global const real *pb, ulong pb_off, global real *c,
                              ulong c_off, ulong ldc, uint kind, int a_cut, int b_cut, int c_cut)
{
    multiply_block(m, n, k, alpha, beta, pa + pa_off, pb + pb_off, 0, c + c_off, ldc,
                   CLB_B_OF_A_CONJ, (cuts){kind, a_cut, b_cut, c_cut});
}
#endif
#endif

#endif
