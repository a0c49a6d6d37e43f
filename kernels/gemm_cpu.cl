/* GEMM for OpenCL devices that are CPUs (PoCL): one work-item per work-group, operands packed into
 * panels, a register micro-tile of vector accumulators.  It differs from the portable family in
 * that it uses neither local memory nor barriers, which CPU devices emulate through memory.
 * SPDX-License-Identifier: BSD-3-Clause
 *   C = alpha*A*B + beta*C,   A m x k, B k x n, C m x n column-major
 *
 * Packed layout (private to this file and those it includes).  An operand of width w (the rows of
 * A, the columns of B) and depth k is cut into panels of W = CLB_MW or CLB_NR; panel q holds
 * i = q*W ... q*W + W - 1 and starts q*W*kp elements after the operand's offset, where kp is k
 * rounded up to CLB_KU; in it, element (i, p) stands at p*W + i - q*W.  Width and depth are padded
 * with zeros in *both* operands: padded depth adds 0*0, never 0*Inf, and a NaN made by a padded row
 * or column lies in a row or column of C that is never stored.
 *
 * With CLB_COMPLEX both operands are packed as B is in operand.h: panels of CLB_MR / 2 rows of A or
 * CLB_NR columns of B with the real parts of an element at one depth and the imaginary parts at the
 * next, so that k counts two depths for each.  The product has the real 2m x n of C, and the sums
 * are those of the real matrices that operand.h describes, bit by bit.
 *
 * All kernels have one work-item per work-group: local size (1, 1, 1).
 */

#include "common.h"

#pragma OPENCL FP_CONTRACT OFF

/* From gemm.def:
 *   CLB_MR, CLB_NR   the micro-tile; on AVX-512 it takes 16 of 32 registers as accumulators
 *   CLB_KU           steps of depth per turn of the inner loop
 *   CLB_KC           depth of one pass over a block of C; a multiple of CLB_KU
 *   CLB_MC, CLB_NC   the block of C that a work-group computes; multiples of CLB_MR and CLB_NR
 *   CLB_PACK_PANELS, what a work-group packs: so many panels over so many steps of depth (a
 * multiple CLB_PACK_K       of CLB_KU) */

/* How many cache lines ahead of its use the inner loop asks for B. */
#define CLB_AHEAD 32

/* From how many bytes on panels are written past the caches. Otherwise every line is fetched before
 * it is written: complex A of n = 1024 takes 4.5 ms instead of 2.0 in double precision, and the
 * product is no faster for it. Smaller ones stay in a second-level cache, and real products of
 * n = 512 would lose 1 % (Xeon, PoCL 3.1, 2026-11). */
#ifndef CLB_NT_PACK
#define CLB_NT_PACK (4 << 20)
#endif

/* How many columns ahead of its copying a packing kernel asks for the source. */
#define CLB_PACK_AHEAD 8

/* Width of the vectors that pack: the machine's register, that of AVX-512 where gemm.def does not
 * say. */
#ifndef CLB_VP
#define CLB_VP (CLB_DOUBLE ? 8 : 16)
#endif

/* Width of A's panels: the micro-tile's elements in a column, of which the first CLB_MH vectors of
 * CLB_MV hold the real parts. */
#define CLB_MW (CLB_MR / CLB_PARTS)

/* Width of the vectors that accumulate: the widest that divides CLB_MW. */
#if CLB_MW % 16 == 0 && !CLB_DOUBLE
#define CLB_VL 16
#elif CLB_MW % 8 == 0
#define CLB_VL 8
#elif CLB_MW % 4 == 0
#define CLB_VL 4
#else
#define CLB_VL 2
#endif
#define CLB_MV (CLB_MR / CLB_VL)
#define CLB_MH (CLB_MW / CLB_VL)

#if CLB_MW % CLB_VL || CLB_MC % CLB_MR || CLB_NC % CLB_NR || CLB_KC % CLB_KU || CLB_PACK_K % CLB_KU
#error "block sizes must be multiples of the micro-tile, depths multiples of CLB_KU, CLB_MW even"
#endif
#if CLB_COMPLEX && CLB_KU % 2
#error "CLB_KU must be even where a complex number takes two steps of depth"
#endif

#if CLB_DOUBLE
#define CLB_BITS ulong
#else
#define CLB_BITS uint
#endif

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

typedef CLB_JOIN(CLB_REAL, CLB_VL) vacc;
typedef CLB_JOIN(CLB_REAL, CLB_VPN) vpack;
#define load_acc(p)      CLB_JOIN(vload, CLB_VL)(0, p)
#define store_acc(v, p)  CLB_JOIN(vstore, CLB_VL)(v, 0, p)
#define load_pack(p)     CLB_JOIN(vload, CLB_VPN)(0, p)
#define store_pack(v, p) CLB_JOIN(vstore, CLB_VPN)(v, 0, p)
#define store_half(v, p) CLB_JOIN(vstore, CLB_VPH)(v, 0, p)

#define CLB_KERNEL CLB_KERNEL_OF(1)

/* CLB_PREFETCH is a hint that the cache line at p is needed soon.  It may point anywhere: it cannot
 * fault.  stream_pack stores past the caches, to an aligned place; order_streams orders such
 * stores.  A compiler for another device gets no hints and plain stores. */
#if defined(__x86_64__) || defined(__aarch64__)
#define CLB_PREFETCH(p)       __builtin_prefetch((const void *)(size_t)(p), 0, 2)
#define CLB_PREFETCH_NEAR(p)  __builtin_prefetch((const void *)(size_t)(p), 0, 3)
#define CLB_PREFETCH_WRITE(p) __builtin_prefetch((const void *)(size_t)(p), 1, 3)
#define stream_pack(v, p)     __builtin_nontemporal_store(v, (global vpack *)(p))
#define order_streams()       __sync_synchronize()
#else
#define CLB_PREFETCH(p)       ((void)(p))
#define CLB_PREFETCH_NEAR(p)  ((void)(p))
#define CLB_PREFETCH_WRITE(p) ((void)(p))
#define stream_pack(v, p)     store_pack(v, p)
#define order_streams()       ((void)0)
#endif
#define CLB_LINE (64 / (uint)sizeof(real))

CLB_INLINE uint round_up(uint x, uint unit)
{
    return (x + unit - 1) / unit * unit;
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

/* Asks for count elements. */
CLB_INLINE void prefetch_run(global const real *p, uint count)
{
    for (uint i = 0; i < count; i += CLB_LINE)
        CLB_PREFETCH(p + i);
}

#include "operand.h"
#include "cpu_product.h"

/* ---- packing: panels of an operand, from rows or from depths that are contiguous ---- */

/* The share of one work-group: panels q0 ... q1 - 1, depths p0 ... p1 - 1 (p1 counts padding).
 * `past`: past the caches, which takes panels of whole vectors. */
typedef struct {
    uint q0, q1, p0, p1;
    bool past;
} pack_share;

CLB_INLINE pack_share get_pack_share(uint w, uint k, uint W)
{
    pack_share s;
    s.q0 = (uint)get_group_id(0) * CLB_PACK_PANELS;
    s.q1 = min(s.q0 + CLB_PACK_PANELS, (w + W - 1) / W);
    s.p0 = (uint)get_group_id(1) * CLB_PACK_K;
    s.p1 = min(s.p0 + CLB_PACK_K, round_up(k, CLB_KU));
    s.past = W % CLB_VP == 0 && (size_t)w * k * sizeof(real) >= CLB_NT_PACK;
    return s;
}

CLB_INLINE void store_panel(vpack x, global real *to, bool past)
{
    if (past)
        stream_pack(x, to);
    else
        store_pack(x, to);
}

CLB_INLINE void zero_row(global real *dst, uint count)
{
    for (uint i = 0; i < count; i++)
        dst[i] = 0;
}

#if CLB_COMPLEX

/* Signs to be changed in a run of pairs, as bits for xor: those of the first and of the second
 * numbers. */
typedef CLB_JOIN(CLB_BITS, CLB_VPN) vbits;
#define CLB_SIGN          ((CLB_BITS)1 << (8 * sizeof(real) - 1))
#define as_vbits(x)       CLB_JOIN(as_, CLB_JOIN(CLB_BITS, CLB_VPN))(x)
#define as_vpack(x)       CLB_JOIN(as_, CLB_JOIN(CLB_REAL, CLB_VPN))(x)
#define CLB_FLIP(x, bits) as_vpack(as_vbits(x) ^ (bits))

#if CLB_VPN == 16
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b, a, b, a, b, a, b, a, b, a, b, a, b)
#elif CLB_VPN == 8
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b, a, b, a, b)
#else
#define CLB_PAIRS(a, b) (vbits)(a, b, a, b)
#endif

/* A run of count pairs: their first numbers at one depth, their second ones at the next, W behind
 * it. */
CLB_INLINE void copy_run(global real *even, const uint W, global const real *src, uint count,
                         uint conj, bool past)
{
    global real *odd = even + W;
    const vbits signs = CLB_PAIRS(0, conj ? CLB_SIGN : 0);
    uint i = 0;
    for (; i + CLB_VP <= count; i += CLB_VP) {
        const vpack x = CLB_FLIP(load_pack(src + 2 * i), signs);
        const vpack y = CLB_FLIP(load_pack(src + 2 * i + CLB_VP), signs);
        store_panel((vpack)(x.even, y.even), even + i, past);
        store_panel((vpack)(x.odd, y.odd), odd + i, past);
    }
    for (; i + CLB_VP / 2 <= count; i += CLB_VP / 2) {
        const vpack x = CLB_FLIP(load_pack(src + 2 * i), signs);
        store_half(x.even, even + i);
        store_half(x.odd, odd + i);
    }
    for (; i < count; i++) {
        even[i] = element_at(src, 1, 0, i, 0, false, conj);
        odd[i] = element_at(src, 1, 0, i, 1, false, conj);
    }
}

#else

/* A run of count numbers at one depth. */
CLB_INLINE void copy_run(global real *dst, const uint W, global const real *src, uint count,
                         uint conj, bool past)
{
    uint i = 0;
    for (; i + CLB_VP <= count; i += CLB_VP)
        store_panel(load_pack(src + i), dst + i, past);
    for (; i + 8 <= count; i += 8)
        vstore8(vload8(0, src + i), 0, dst + i);
    for (; i + 4 <= count; i += 4)
        vstore4(vload4(0, src + i), 0, dst + i);
    for (; i < count; i++)
        dst[i] = src[i];
}

#endif

/* Element (i, p) is src[i + p*ld], where elements are pairs src[2*(i + p*ld)] and the next; k
 * counts both.  The depths of one element after the other, so that a column of the source is read
 * in one go over all panels of the work-group. */
CLB_INLINE void pack_n(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);
    const uint full = min(s.q1, w / W);
    const uint rest = w % W;
    const uint width = min(s.q1 * W, w) - s.q0 * W;

    for (uint p = s.p0; p < min(s.p1, k); p += CLB_PARTS) {
        global const real *from = src + p * ld;
        global real *to = dst + (size_t)p * W;
        if (p + CLB_PARTS * CLB_PACK_AHEAD < k)
            prefetch_run(from + CLB_PARTS * (CLB_PACK_AHEAD * ld + (size_t)s.q0 * W),
                         CLB_PARTS * width);
        for (uint q = s.q0; q < full; q++)
            copy_run(to + q * panel, W, from + CLB_PARTS * (size_t)q * W, W, conj, s.past);
        if (full < s.q1) {
            copy_run(to + full * panel, W, from + CLB_PARTS * (size_t)full * W, rest, conj, s.past);
            for (uint depth = 0; depth < CLB_PARTS; depth++)
                zero_row(to + full * panel + depth * W + rest, W - rest);
        }
    }
    for (uint p = max(s.p0, k); p < s.p1; p++)
        for (uint q = s.q0; q < s.q1; q++)
            zero_row(dst + q * panel + (size_t)p * W, W);
    if (s.past)
        order_streams();
}

/* CLB_VP depths of row i of an operand, of which element (0, 0) is at src; p, the first, is even
 * where elements are pairs. */
CLB_INLINE vpack load_row(global const real *src, size_t ld, uint i, uint p, uint conj)
{
#if CLB_COMPLEX
    return CLB_FLIP(load_pack(src + i * 2 * ld + p), CLB_PAIRS(0, conj ? CLB_SIGN : 0));
#else
    return load_pack(src + i * ld + p);
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
CLB_INLINE void store_rows(vpack x[CLB_VP], global real *to, const uint W, const uint G, bool past)
{
#pragma unroll
    for (uint i = 0; i < CLB_VP; i++) {
        if (i >= G) {
            continue;
        } else if (G == W) {
            store_panel(x[i], to + i * CLB_VP, past);
        } else if (G == CLB_VP) {
            store_panel(x[i], to + i * W, past);
        } else {
            real t[CLB_VP];
            store_pack(x[i], t);
            for (uint e = 0; e < CLB_VP; e++)
                to[(i * CLB_VP + e) / G * W + e % G] = t[e];
        }
    }
}

/* Packs a panel over depths p0 ... p1 - 1, G rows at a time; `rows` of the panel exist, and k
 * depths are valid. All of the panel before the next depths: lines are written one after the other.
 * A panel with fewer rows is packed element by element: there is one at most in an operand, and
 * code of vectors for it takes as long to compile as all else here. */
CLB_INLINE void pack_rows(global const real *src, size_t ld, uint rows, uint p0, uint p1, uint k,
                          global real *dst, const uint W, const uint G, uint conj, bool past)
{
    uint p = p0;
    for (; rows == W && p + CLB_VP <= min(p1, k); p += CLB_VP) {
        for (uint r = 0; r < W; r += G) {
            vpack x[CLB_VP];
#pragma unroll
            for (uint i = 0; i < CLB_VP; i++)
                if (i < G)
                    x[i] = load_row(src, ld, r + i, p, conj);
            transpose(x, G);
            store_rows(x, dst + (size_t)p * W + r, W, G, past);
        }
    }
    for (; p < p1; p++)
        for (uint i = 0; i < W; i++)
            dst[(size_t)p * W + i] = element(src, ld, 1, rows, k, i, p, false, conj);
}

/* The largest power of two that divides the panel's width, at most a vector. */
#define CLB_PIECE(W) \
    ((W) % CLB_VP == 0 ? CLB_VP : (W) % 8 == 0 ? 8 : (W) % 4 == 0 ? 4 : (W) % 2 == 0 ? 2 : 1)

/* Element (i, p) is src[p + i*ld], where elements are pairs src[2*(p + i*ld)] and the next; k
 * counts both. */
CLB_INLINE void pack_t(global const real *src, size_t ld, uint w, uint k, global real *dst,
                       const uint W, const uint G, uint conj, pack_share s)
{
    const size_t panel = (size_t)W * round_up(k, CLB_KU);

    for (uint q = s.q0; q < s.q1; q++) {
        const uint rows = min(w - q * W, W);
        global const real *from = src + (size_t)(q * W) * CLB_PARTS * ld;
        global real *to = dst + q * panel;
        pack_rows(from, ld, rows, s.p0, s.p1, k, to, W, G, conj, s.past);
    }
    if (s.past)
        order_streams();
}

/* ---- packing of triangular operands, without what is zero ---- */

/* Kinds: element (i, p) is zero for p > i + diagonal, or for p < i + diagonal; ones on the
 * diagonal. */
#define CLB_TRIANGLE_LOW  1
#define CLB_TRIANGLE_HIGH 2
#define CLB_TRIANGLE_UNIT 4
typedef struct {
    uint kind;
    int diagonal;
} triangle;

/* Element (i, p), which exists; nothing is read where it is not stored. */
CLB_INLINE real triangle_element(global const real *src, size_t ld, uint i, uint p, triangle shape,
                                 const bool by_rows, uint conj)
{
    const int behind = (int)(p / CLB_PARTS) - (int)i - shape.diagonal;
    if (shape.kind & CLB_TRIANGLE_LOW ? behind > 0 : behind < 0)
        return 0;
    if (behind == 0 && shape.kind & CLB_TRIANGLE_UNIT)
        return CLB_PARTS == 1 || p % 2 == 0;
    return element_at(src, by_rows ? 1 : ld, by_rows ? ld : 1, i, p, false, conj);
}

/* A panel over depths p0 ... p1 - 1. */
CLB_INLINE void pack_crossing(global const real *src, size_t ld, uint w, uint k, global real *dst,
                              const uint W, uint q, uint p0, uint p1, triangle shape,
                              const bool by_rows, uint conj)
{
    global real *to = dst + (size_t)q * W * round_up(k, CLB_KU);
    for (uint p = p0; p < p1; p++)
        for (uint i = 0; i < W; i++)
            to[(size_t)p * W + i] = q * W + i < w && p < k ? triangle_element(src, ld, q * W + i, p,
                                                                              shape, by_rows, conj)
                                                           : 0;
}

/* Columns of B before or after a panel of A that a micro-tile of clb_gemm_syrk may have, in real
 * depths: their depths are read of the panel, too. */
#define CLB_STRADDLE (CLB_MW % CLB_NR == 0 ? 0 : CLB_PARTS * (CLB_NR - 1))

/* What is not zero, and as much of the zeros beside it as clb_gemm_skip and clb_gemm_syrk read:
 * panels up to where they meet the diagonal, in steps of CLB_KU, and where they cross it element by
 * element. */
CLB_INLINE void pack_triangle(global const real *src, size_t ld, uint w, uint k, global real *dst,
                              const uint W, const uint G, const bool by_rows, uint conj,
                              triangle shape)
{
    const pack_share all = get_pack_share(w, k, W);
    const int diagonal = CLB_PARTS * shape.diagonal;
    const int p0 = (int)all.p0, p1 = (int)all.p1;
    const bool low = shape.kind & CLB_TRIANGLE_LOW;
    /* Depths from the first panel's beginning and to the last one's end. */
    const int begin = diagonal - CLB_STRADDLE, end = diagonal + CLB_STRADDLE;
    const uint first = down_to_step((int)(all.q0 * W) * CLB_PARTS + begin, p0, p1);
    const uint last = up_to_step((int)(all.q1 * W) * CLB_PARTS + end, p0, p1);
    /* In the last turn what all panels have, in one go. */
    for (uint q = all.q0; q <= all.q1; q++) {
        const uint near = down_to_step((int)(q * W) * CLB_PARTS + begin, p0, p1);
        const uint far = up_to_step((int)((q + 1) * W) * CLB_PARTS + end, p0, p1);
        pack_share s = {q, q + 1, low ? first : far, low ? near : last, all.past};
        if (q == all.q1)
            s = (pack_share){all.q0, all.q1, low ? all.p0 : last, low ? first : all.p1, all.past};
        else
            pack_crossing(src, ld, w, k, dst, W, q, near, far, shape, by_rows, conj);
        if (s.p0 < s.p1 && by_rows)
            pack_n(src, ld, w, k, dst, W, conj, s);
        else if (s.p0 < s.p1)
            pack_t(src, ld, w, k, dst, W, G, conj, s);
    }
}

/* ---- packing kernels ---- */

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
 * conjugates; dst_off counts real numbers, and above k is twice as large.
 */
#define CLB_PLAIN_KERNELS(name_n, name_t, W)                                                    \
    CLB_KERNEL void name_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,     \
                           global real *dst,                                                    \
                           ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)              \
    {                                                                                           \
        CLB_NOTE_LAUNCH();                                                                      \
        pack_n(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, W, CLB_CONJ,     \
               get_pack_share(w, CLB_PARTS * k, W));                                            \
    }                                                                                           \
    CLB_KERNEL void name_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,     \
                           global real *dst,                                                    \
                           ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)              \
    {                                                                                           \
        CLB_NOTE_LAUNCH();                                                                      \
        pack_t(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, W, CLB_PIECE(W), \
               CLB_CONJ, get_pack_share(w, CLB_PARTS * k, W));                                  \
    }

CLB_PLAIN_KERNELS(clb_pack_a_n, clb_pack_a_t, CLB_MW)
CLB_PLAIN_KERNELS(clb_pack_b_n, clb_pack_b_t, CLB_NR)

/*
 * As these packing kernels, for triangular operands of `kind` with the diagonal
 * at p = i + diagonal in elements.  What clb_gemm_skip does not read is not packed, and of the
 * source only the triangle is read.
 */
#define CLB_TRIANGLE_KERNEL(name, W, by_rows)                                             \
    CLB_KERNEL void name(global const real *src, ulong src_off, ulong ld, uint w, uint k, \
                         global real *dst, ulong dst_off, uint kind,                      \
                         int diagonal CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)           \
    {                                                                                     \
        CLB_NOTE_LAUNCH();                                                                \
        pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, W,  \
                      CLB_PIECE(W), by_rows, CLB_CONJ, (triangle){kind, diagonal});       \
    }

CLB_TRIANGLE_KERNEL(clb_pack_triangle_a_n, CLB_MW, true)
CLB_TRIANGLE_KERNEL(clb_pack_triangle_a_t, CLB_MW, false)
CLB_TRIANGLE_KERNEL(clb_pack_triangle_b_n, CLB_NR, true)
CLB_TRIANGLE_KERNEL(clb_pack_triangle_b_t, CLB_NR, false)

/* ---- multiplication ---- */

/*
 * Both operands packed.
 *
 * Global size, exactly: (ceil(m / CLB_MC), ceil(n / CLB_NC)).
 */
CLB_KERNEL void clb_gemm(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                         ulong pa_off, global const real *pb, ulong pb_off, global real *c,
                         ulong c_off, ulong ldc CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    multiply_block(m, n, k, alpha, beta, pa + pa_off, 0, pb + pb_off, 0, c + c_off, ldc,
                   CLB_B_PACKED, (cuts){0, 0, 0, 0});
}

/*
 * A packed, B the caller's: element (p, j) is b[b_off + p + j*ldb], all in real numbers; nothing
 * but its k x n elements is read.  Worth it where C has few rows: packing B then costs more than it
 * gains.  The sums are the other kernel's, bit by bit.
 *
 * Global size, exactly: (ceil(m / CLB_MC), ceil(n / CLB_NC)).
 */
CLB_KERNEL void clb_gemm_direct(uint m, uint n, uint k, real alpha, real beta,
                                global const real *pa, ulong pa_off, global const real *b,
                                ulong b_off, global real *c, ulong c_off, ulong ldc,
                                ulong ldb CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    multiply_block(m, n, k, alpha, beta, pa + pa_off, 0, b + b_off, ldb, c + c_off, ldc,
                   CLB_B_PLAIN, (cuts){0, 0, 0, 0});
}

/*
 * Both the caller's: element (i, p) of A is a[a_off + i + p*lda], all in real numbers.  Where C has
 * few columns as well, packing A by a kernel of its own costs more than to copy each panel for
 * every CLB_NC columns, into memory of the work-group, while it is first multiplied.  The sums are
 * the other kernels', bit by bit.
 *
 * Global size, exactly: (ceil(m / CLB_MC), ceil(n / CLB_NC)).
 */
CLB_KERNEL void clb_gemm_nn(uint m, uint n, uint k, real alpha, real beta, global const real *a,
                            ulong a_off, ulong lda, global const real *b, ulong b_off, ulong ldb,
                            global real *c, ulong c_off, ulong ldc CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    multiply_block(m, n, k, alpha, beta, a + a_off, lda, b + b_off, ldb, c + c_off, ldc,
                   CLB_BOTH_PLAIN, (cuts){0, 0, 0, 0});
}

/*
 * As clb_gemm where an operand is triangular or only a triangle of C is wanted: `kind` of the cuts
 * (cpu_product.h).  Micro-tiles that are not wanted are not written.  Each other must have a depth
 * at which it is not zero; what is packed of its operands at others is not read.
 */
#define CLB_SKIP_KERNEL(name, source)                                                          \
    CLB_KERNEL void name(uint m, uint n, uint k, real alpha, real beta, global const real *pa, \
                         ulong pa_off, global const real *pb, ulong pb_off, global real *c,    \
                         ulong c_off, ulong ldc, uint kind, int a_cut, int b_cut,              \
                         int c_cut CLB_LAUNCH_PARAMETERS)                                      \
    {                                                                                          \
        CLB_NOTE_LAUNCH();                                                                     \
        multiply_block(m, n, k, alpha, beta, pa + pa_off, 0, pb + pb_off, 0, c + c_off, ldc,   \
                       source, (cuts){kind, a_cut, b_cut, c_cut});                             \
    }

CLB_SKIP_KERNEL(clb_gemm_skip, CLB_B_PACKED)

/*
 * The same with B in packed panels of A: the columns are rows that begin where a panel does.
 * B = A^T in clb_gemm_syrk and A^H in clb_gemm_herk.  `kind` may be 0.  The sums are the other
 * kernel's, bit by bit.
 */
CLB_SKIP_KERNEL(clb_gemm_syrk, CLB_B_OF_A)
#if CLB_COMPLEX
CLB_SKIP_KERNEL(clb_gemm_herk, CLB_B_OF_A_CONJ)
#endif
