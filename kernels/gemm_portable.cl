/* GEMM by plain fused multiply-add: any OpenCL 1.2 GPU, float or double. The `strict` path and the
 * fallback of the split kernels.
 * SPDX-License-Identifier: BSD-3-Clause
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand; beta = CLB_IN_ORDER see
 * below.
 *
 * Packed layout: operand = panels of W rows (columns for B; W = CLB_MR for A, CLB_NR for B), panel
 * q holding rows q*W .. q*W+W-1 for all depths: element (r, p) of panel q is at (q*KP + p)*W + r,
 * with KP = k rounded up to CLB_KU. A tile of CLB_KU depths is thus one contiguous block that is
 * also the image of the tile in local memory. Rows and depths beyond the operand are zero, so the
 * GEMM has no bounds tests before its epilogue; both operands are zero there, so the caller's Inf
 * never meets a padding zero in an entry of C that is kept. Packed size: ceil(w/W) * W * KP
 * elements. dst_off, pa_off, pb_off: multiples of 16 bytes.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local CLB_WG = (CLB_MR/CLB_WM) * (CLB_NR/CLB_WN),
 *               global CLB_WG * ceil(m/CLB_MR) * ceil(n/CLB_NR) * parts
 *
 * Every entry of C is one chain of fused multiply-adds in ascending depth, whatever the tile.
 *
 * With CLB_COMPLEX the packing kernels read complex operands: see operand.h.
 */

#include "common.h"

/* From gemm.def:
 *   CLB_MR, CLB_NR, CLB_KU  tile of C of one work-group, and depth of one step
 *   CLB_WM, CLB_WN          tile of C of one work-item
 *   CLB_VW                  elements per access to local memory and packed panels: 1, 2 or 4 */

/*
 * Consecutive work-items form blocks of CLB_LX rows x CLB_LY columns of work-items: 8 x 4 makes the
 * 32 that run together read few distinct local addresses. Any divisors of the work-item grid are
 * right.
 */
#ifndef CLB_LX
#define CLB_LX (CLB_MR / CLB_WM)
#endif
#ifndef CLB_LY
#define CLB_LY 1
#endif
/* 0: copies through registers, two stages. 1: NVIDIA's bulk copies (compute capability >= 9.0). */
#ifndef CLB_COPY
#define CLB_COPY 0
#endif
#ifndef CLB_STAGES
#define CLB_STAGES 2
#endif
/* Depths unrolled in the inner loop. */
#ifndef CLB_UNROLL
#define CLB_UNROLL CLB_KU
#endif
#define CLB_WX (CLB_MR / CLB_WM)
#define CLB_WY (CLB_NR / CLB_WN)
#define CLB_WG (CLB_WX * CLB_WY)

#if CLB_MR % CLB_WM || CLB_NR % CLB_WN || CLB_WM % CLB_VW || CLB_WN % CLB_VW
#error "tiles must nest: CLB_VW | CLB_WM | CLB_MR and CLB_VW | CLB_WN | CLB_NR"
#endif
#if CLB_WX % CLB_LX || CLB_WY % CLB_LY
#error "CLB_LX x CLB_LY must divide the grid of work-items"
#endif
#if CLB_COPY == 0 && CLB_STAGES != 2
#error "copies through registers need two stages"
#endif
#if CLB_COPY == 0 && \
    ((CLB_MR * CLB_KU) % (CLB_WG * CLB_VW) || (CLB_NR * CLB_KU) % (CLB_WG * CLB_VW))
#error "a tile must be whole vectors for every work-item"
#endif
#if CLB_COMPLEX && CLB_KU % 2
#error "CLB_KU must be even where a complex number takes two steps of depth"
#endif
#if CLB_KU % CLB_UNROLL
#error "CLB_UNROLL must divide CLB_KU"
#endif

#if CLB_VW == 1
#define V                real
#define CLB_UNPACK(v, p) (*(p) = (v))
#else
#define V                CLB_JOIN(CLB_REAL, CLB_VW)
#define CLB_UNPACK(v, p) CLB_JOIN(vstore, CLB_VW)(v, 0, p)
#endif

/* Without a fast fma() product and sum are left to the compiler, which fuses them if it can. */
#if CLB_DOUBLE || defined(FP_FAST_FMAF)
#define CLB_FMA(a, b, c) fma(a, b, c)
#else
#define CLB_FMA(a, b, c) ((a) * (b) + (c))
#endif

#include "operand.h"
#include "tile.h"

/* Where the panels' block of this work-group begins in the packed operand. */
static inline ulong pack_base(ulong dst_off, uint width)
{
    ulong depth = (ulong)get_num_groups(1) * CLB_KU;

    return dst_off + (get_group_id(0) * depth + get_group_id(1) * CLB_KU) * width;
}

/* Rows contiguous in the source: reads and writes run along the rows. */
static inline void pack_n(global const real *src, ulong ld, uint w, uint k, global real *dst,
                          uint width, bool of_a, uint conj)
{
    uint row0 = get_group_id(0) * width;
    uint p0 = get_group_id(1) * CLB_KU;

#pragma unroll 16
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = row0 + e % width;
        uint p = p0 + e / width;

        dst[e] = element(src, 1, ld, w, k, i, p, of_a, conj);
    }
}

/* Depths contiguous in the source: reads run along the depth, the odd row pitch turns the block. */
static inline void pack_t(global const real *src, ulong ld, uint w, uint k, global real *dst,
                          uint width, local real *block, bool of_a, uint conj)
{
    uint row0 = get_group_id(0) * width;
    uint p0 = get_group_id(1) * CLB_KU;

#pragma unroll 16
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = row0 + e / CLB_KU;
        uint p = p0 + e % CLB_KU;

        block[(e % CLB_KU) * (width + 1) + e / CLB_KU] =
            element(src, ld, 1, w, k, i, p, of_a, conj);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll 16
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG)
        dst[e] = block[e / width * (width + 1) + e % width];
}

#define CLB_PACK_KERNELS(name_n, name_t, W, each, of_a)                                          \
    CLB_PACK_KERNEL void name_n(global const real *src, ulong src_off, ulong ld, uint w, uint k, \
                                global real *dst,                                                \
                                ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)          \
    {                                                                                            \
        CLB_NOTE_LAUNCH();                                                                       \
        pack_n(src + CLB_PARTS * src_off, ld, each * w, CLB_PARTS * k,                           \
               dst + pack_base(dst_off, W), W, of_a, CLB_CONJ);                                  \
    }                                                                                            \
    CLB_PACK_KERNEL void name_t(global const real *src, ulong src_off, ulong ld, uint w, uint k, \
                                global real *dst,                                                \
                                ulong dst_off CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)          \
    {                                                                                            \
        CLB_NOTE_LAUNCH();                                                                       \
        local real block[CLB_KU * (W + 1)];                                                      \
                                                                                                 \
        pack_t(src + CLB_PARTS * src_off, ld, each * w, CLB_PARTS * k,                           \
               dst + pack_base(dst_off, W), W, block, of_a, CLB_CONJ);                           \
    }

CLB_PACK_KERNELS(clb_pack_a_n, clb_pack_a_t, CLB_MR, CLB_PARTS, true)
CLB_PACK_KERNELS(clb_pack_b_n, clb_pack_b_t, CLB_NR, 1, false)

/* acc[j][i] += A(i, p) * B(p, j) over the tile's CLB_KU depths; x, y: place of the work-item. */
static inline void multiply_tile(local const real *la, local const real *lb, uint x, uint y,
                                 real acc[CLB_WN][CLB_WM])
{
    la += x * CLB_VW;
    lb += y * CLB_VW;
#pragma unroll CLB_UNROLL
    for (uint p = 0; p < CLB_KU; p++) {
        real a[CLB_WM];
        real b[CLB_WN];

#pragma unroll
        for (uint i = 0; i < CLB_WM; i += CLB_VW)
            CLB_UNPACK(*(local const V *)(la + p * CLB_MR + i * CLB_WX), a + i);
#pragma unroll
        for (uint j = 0; j < CLB_WN; j += CLB_VW)
            CLB_UNPACK(*(local const V *)(lb + p * CLB_NR + j * CLB_WY), b + j);
#pragma unroll
        for (uint j = 0; j < CLB_WN; j++) {
#pragma unroll
            for (uint i = 0; i < CLB_WM; i++)
                acc[j][i] = CLB_FMA(a[i], b[j], acc[j][i]);
        }
    }
}

/* acc = -C. */
static inline void load_tile(real acc[CLB_WN][CLB_WM], uint m, uint n, global const real *c,
                             ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint j = 0; j < CLB_WN; j++) {
        uint s = col + j / CLB_VW * CLB_VW * CLB_WY + j % CLB_VW;

#pragma unroll
        for (uint i = 0; i < CLB_WM; i++) {
            uint r = row + i / CLB_VW * CLB_VW * CLB_WX + i % CLB_VW;

            acc[j][i] = r < m && s < n ? -c[r + s * ldc] : (real)0;
        }
    }
}

/*
 * The loads of C come before all stores of the same batch: the compiler can't move them across
 * stores that may alias, and one round trip to memory per entry would cost two thirds of the rate.
 */
static inline void store_tile(real acc[CLB_WN][CLB_WM], uint m, uint n, real alpha, real beta,
                              global real *c, ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint j0 = 0; j0 < CLB_WN; j0 += CLB_VW) {
        uint j1 = col + j0 * CLB_WY;
        real old[CLB_VW][CLB_WM];

        if (beta != (real)0) {
#pragma unroll
            for (uint j = 0; j < CLB_VW; j++) {
#pragma unroll
                for (uint i = 0; i < CLB_WM; i++) {
                    uint r = row + i / CLB_VW * CLB_VW * CLB_WX + i % CLB_VW;

                    old[j][i] = r < m && j1 + j < n ? c[r + (j1 + j) * ldc] : (real)0;
                }
            }
#pragma unroll
            for (uint j = 0; j < CLB_VW; j++) {
#pragma unroll
                for (uint i = 0; i < CLB_WM; i++)
                    old[j][i] = CLB_FMA(alpha, acc[j0 + j][i], beta * old[j][i]);
            }
        } else {
#pragma unroll
            for (uint j = 0; j < CLB_VW; j++) {
#pragma unroll
                for (uint i = 0; i < CLB_WM; i++)
                    old[j][i] = CLB_FMA(alpha, acc[j0 + j][i], (real)0);
            }
        }
#pragma unroll
        for (uint j = 0; j < CLB_VW; j++) {
#pragma unroll
            for (uint i = 0; i < CLB_WM; i++) {
                uint r = row + i / CLB_VW * CLB_VW * CLB_WX + i % CLB_VW;

                if (r < m && j1 + j < n)
                    c[r + (j1 + j) * ldc] = old[j][i];
            }
        }
    }
}

#if CLB_COPY == 0

/* Vectors per work-item and tile. */
#define CLB_CA (CLB_MR * CLB_KU / (CLB_WG * CLB_VW))
#define CLB_CB (CLB_NR * CLB_KU / (CLB_WG * CLB_VW))

/*
 * Two stages: the next tile is on its way in registers while the present one is multiplied, and one
 * barrier a step is enough, because the stage written was last read before the barrier passed.
 */
static inline void multiply_panels(global const real *pa, global const real *pb, uint steps, uint x,
                                   uint y, local real *la, local real *lb, real acc[CLB_WN][CLB_WM])
{
    uint id = get_local_id(0);
    V ra[CLB_CA];
    V rb[CLB_CB];

    for (uint s = 0; s <= steps; s++) {
        uint next = s % 2;
        uint here = 1 - next;

        if (s < steps) {
            global const V *ga = (global const V *)(pa + (ulong)s * (CLB_MR * CLB_KU)) + id;
            global const V *gb = (global const V *)(pb + (ulong)s * (CLB_NR * CLB_KU)) + id;

#pragma unroll
            for (uint i = 0; i < CLB_CA; i++)
                ra[i] = ga[i * CLB_WG];
#pragma unroll
            for (uint i = 0; i < CLB_CB; i++)
                rb[i] = gb[i * CLB_WG];
        }
        if (s > 0)
            multiply_tile(la + here * (CLB_MR * CLB_KU), lb + here * (CLB_NR * CLB_KU), x, y, acc);
        if (s < steps) {
#pragma unroll
            for (uint i = 0; i < CLB_CA; i++)
                ((local V *)(la + next * (CLB_MR * CLB_KU)))[id + i * CLB_WG] = ra[i];
#pragma unroll
            for (uint i = 0; i < CLB_CB; i++)
                ((local V *)(lb + next * (CLB_NR * CLB_KU)))[id + i * CLB_WG] = rb[i];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

#else

#include "nv_copy.h"

#define CLB_BYTES_A (CLB_MR * CLB_KU * (uint)sizeof(real))
#define CLB_BYTES_B (CLB_NR * CLB_KU * (uint)sizeof(real))

/* Asks for the tiles of one step; the stage's barrier completes when all its bytes have arrived. */
static inline void fetch_step(global const real *pa, global const real *pb, uint step,
                              local real *la, local real *lb, uint full)
{
    expect_bytes(full, CLB_BYTES_A + CLB_BYTES_B);
    bulk_copy((uint)la, pa + (ulong)step * (CLB_MR * CLB_KU), CLB_BYTES_A, full);
    bulk_copy((uint)lb, pb + (ulong)step * (CLB_NR * CLB_KU), CLB_BYTES_B, full);
}

/*
 * CLB_STAGES stages. A stage is refilled by work-item 0 one step after it was last read, behind the
 * work-group barrier that all its readers have passed.
 */
static inline void multiply_panels(global const real *pa, global const real *pb, uint steps, uint x,
                                   uint y, local real *la, local real *lb, local ulong *full,
                                   real acc[CLB_WN][CLB_WM])
{
    uint bars = (uint)full;
    bool leader = get_local_id(0) == 0;

    if (leader) {
        for (uint i = 0; i < CLB_STAGES; i++)
            init_barrier(bars + 8 * i, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (uint i = 0; i < CLB_STAGES - 1 && i < steps; i++)
            fetch_step(pa, pb, i, la + i * (CLB_MR * CLB_KU), lb + i * (CLB_NR * CLB_KU),
                       bars + 8 * i);
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    uint stage = 0;
    uint parity = 0;

    for (uint s = 0; s < steps; s++) {
        wait_barrier(bars + 8 * stage, parity);
        if (s > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
        if (leader && s + CLB_STAGES - 1 < steps) {
            uint refill = (stage ? stage : CLB_STAGES) - 1;

            fetch_step(pa, pb, s + CLB_STAGES - 1, la + refill * (CLB_MR * CLB_KU),
                       lb + refill * (CLB_NR * CLB_KU), bars + 8 * refill);
        }
        multiply_tile(la + stage * (CLB_MR * CLB_KU), lb + stage * (CLB_NR * CLB_KU), x, y, acc);
        if (++stage == CLB_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
}

#endif

CLB_GEMM_KERNEL void clb_gemm(uint m, uint n, uint k, real alpha, real beta, global const real *pa,
                              ulong pa_off, global const real *pb, ulong pb_off, global real *c,
                              ulong c_off, ulong ldc CLB_PART_PARAMETERS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real la[CLB_STAGES * CLB_MR * CLB_KU] __attribute__((aligned(128)));
    local real lb[CLB_STAGES * CLB_NR * CLB_KU] __attribute__((aligned(128)));
    struct share share = share_of_group(m, n, k, part, part_stride);
    uint2 tile = share.tile;
    uint id = get_local_id(0);
    uint block = id / (CLB_LX * CLB_LY);
    uint x = block % (CLB_WX / CLB_LX) * CLB_LX + id % CLB_LX;
    uint y = block / (CLB_WX / CLB_LX) * CLB_LY + id / CLB_LX % CLB_LY;
    real acc[CLB_WN][CLB_WM];

    for (uint j = 0; j < CLB_WN; j++) {
        for (uint i = 0; i < CLB_WM; i++)
            acc[j][i] = (real)0;
    }
    c += c_off + share.c_offset;
    if (beta == (real)CLB_IN_ORDER) {
        load_tile(acc, m, n, c, ldc, tile.x * CLB_MR + x * CLB_VW, tile.y * CLB_NR + y * CLB_VW);
        beta = (real)0;
    }
    pa += pa_off + ((ulong)tile.x * share.total + share.first) * (CLB_MR * CLB_KU);
    pb += pb_off + ((ulong)tile.y * share.total + share.first) * (CLB_NR * CLB_KU);
#if CLB_COPY == 0
    multiply_panels(pa, pb, share.steps, x, y, la, lb, acc);
#else
    local ulong full[CLB_STAGES];

    multiply_panels(pa, pb, share.steps, x, y, la, lb, full, acc);
#endif
    store_tile(acc, m, n, alpha, beta, c, ldc, tile.x * CLB_MR + x * CLB_VW,
               tile.y * CLB_NR + y * CLB_VW);
}
