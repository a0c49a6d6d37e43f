/*
 * GEMM for OpenCL devices that are CPUs (PoCL): one work-item per work-group, operands packed into
 * panels, a register micro-tile of vector accumulators.  It differs from the portable family in
 * that it uses neither local memory nor barriers, which CPU devices emulate through memory.
 *
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

/* 0: the kernels of plain products, 1: those that know triangles and B in the panels of A.  They
 * are programs of their own, since compilers for CPUs take seconds for either. */
#ifndef CLB_SHAPES
#define CLB_SHAPES 0
#endif

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

/* From how many bytes on panels are written past the caches. Otherwise every line is fetched before
 * it is written: complex A of n = 1024 takes 4.5 ms instead of 2.0 in double precision, and the
 * product is no faster for it. Smaller ones stay in a second-level cache, and real products of
 * n = 512 would lose 1 % (Xeon, PoCL 3.1, 2026-11). */
#ifndef CLB_NT_PACK
#define CLB_NT_PACK (4 << 20)
#endif

/* How many columns ahead of its copying a packing kernel asks for the source. */
#ifndef CLB_PACK_AHEAD
#define CLB_PACK_AHEAD 8
#endif

/* Width of the vectors that pack: the machine's register. */
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
#include "cpu_pack.h"
#include "cpu_product.h"
#if CLB_SHAPES
#include "cpu_triangle.h"
#endif

/* ---- packing -------------------------------------------------------------------------------- */

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
 * conjugates; dst_off counts real numbers, and above k is twice as large.
 */
CLB_KERNEL void clb_pack_a_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst,
                             ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_n(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_MW, CLB_CONJ,
           get_pack_share(w, CLB_PARTS * k, CLB_MW));
}

CLB_KERNEL void clb_pack_a_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst,
                             ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_t(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_MW,
           CLB_PIECE(CLB_MW), CLB_CONJ, get_pack_share(w, CLB_PARTS * k, CLB_MW));
}

CLB_KERNEL void clb_pack_b_n(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst,
                             ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_n(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR, CLB_CONJ,
           get_pack_share(w, CLB_PARTS * k, CLB_NR));
}

CLB_KERNEL void clb_pack_b_t(global const real *src, ulong src_off, ulong ld, uint w, uint k,
                             global real *dst,
                             ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_t(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR,
           CLB_PIECE(CLB_NR), CLB_CONJ, get_pack_share(w, CLB_PARTS * k, CLB_NR));
}

#else

/*
 * As the packing kernels of the other program, for triangular operands of `kind` with the diagonal
 * at p = i + diagonal in elements.  What clb_gemm_skip does not read is not packed, and of the
 * source only the triangle is read.
 */
CLB_KERNEL void clb_pack_triangle_a_n(global const real *src, ulong src_off, ulong ld, uint w,
                                      uint k, global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_MW,
                  CLB_PIECE(CLB_MW), true, CLB_CONJ, (triangle){kind, diagonal});
}

CLB_KERNEL void clb_pack_triangle_a_t(global const real *src, ulong src_off, ulong ld, uint w,
                                      uint k, global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_MW,
                  CLB_PIECE(CLB_MW), false, CLB_CONJ, (triangle){kind, diagonal});
}

CLB_KERNEL void clb_pack_triangle_b_n(global const real *src, ulong src_off, ulong ld, uint w,
                                      uint k, global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR,
                  CLB_PIECE(CLB_NR), true, CLB_CONJ, (triangle){kind, diagonal});
}

CLB_KERNEL void clb_pack_triangle_b_t(global const real *src, ulong src_off, ulong ld, uint w,
                                      uint k, global real *dst, ulong dst_off, uint kind,
                                      int diagonal CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    pack_triangle(src + CLB_PARTS * src_off, ld, w, CLB_PARTS * k, dst + dst_off, CLB_NR,
                  CLB_PIECE(CLB_NR), false, CLB_CONJ, (triangle){kind, diagonal});
}

#endif

/* ---- multiplication ------------------------------------------------------------------------- */

#if !CLB_SHAPES

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

#else

/*
 * As clb_gemm where an operand is triangular or only a triangle of C is wanted: `kind` of the cuts
 * (cpu_product.h).  Micro-tiles that are not wanted are not written.  Each other must have a depth
 * at which it is not zero; what is packed of its operands at others is not read.
 */
#define CLB_SKIP_KERNEL(name, source)                                                              \
    CLB_KERNEL void name(uint m, uint n, uint k, real alpha, real beta, global const real *pa,     \
                         ulong pa_off, global const real *pb, ulong pb_off, global real *c,        \
                         ulong c_off, ulong ldc, uint kind, int a_cut, int b_cut,                  \
                         int c_cut CLB_LAUNCH_PARAMETERS)                                          \
    {                                                                                              \
        CLB_NOTE_LAUNCH();                                                                         \
        multiply_block(m, n, k, alpha, beta, pa + pa_off, 0, pb + pb_off, 0, c + c_off, ldc,       \
                       source, (cuts){kind, a_cut, b_cut, c_cut});                                 \
    }

CLB_SKIP_KERNEL(clb_gemm_skip, CLB_B_PACKED)

#if CLB_SHARES_PANELS
/*
 * The same with B in packed panels of A: the columns are rows that begin where a panel does.
 * B = A^T in clb_gemm_syrk and A^H in clb_gemm_herk.  `kind` may be 0.  The sums are the other
 * kernel's, bit by bit.
 */
CLB_SKIP_KERNEL(clb_gemm_syrk, CLB_B_OF_A)
#if CLB_COMPLEX
CLB_SKIP_KERNEL(clb_gemm_herk, CLB_B_OF_A_CONJ)
#endif
#endif

#endif
