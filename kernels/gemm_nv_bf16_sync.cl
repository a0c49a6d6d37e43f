/* Single-precision GEMM on the bf16 tensor cores of compute capability 8.0 and later (mma.sync).
 * SPDX-License-Identifier: BSD-3-Clause
 * Each operand element is split into three bf16 pieces: see nv_bf16.h. All eight products are
 * taken, because with six an entry of C that one product dominates is less accurate than plain
 * FMA's. The tensor core truncates its sums, so it adds up CLB_KU depths only: the small products,
 * smallest first, and on its own the largest, x1*y1, so that no truncated sum of others contains
 * it. The results are then added in registers with rounding. Under k = 96 use the FMA kernel: a
 * unit that keeps 24 bits of 8 products at a time loses more than it where few of the depths count.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand.
 *
 * Packed layout: nv_bf16.h's. A chunk is what a work-item needs of A for one mma, of B for two
 * (depths may be taken in any order common to A and B), so that it gets its registers in order and
 * without bank conflicts.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local CLB_WG = 32 * (CLB_MR/CLB_WARP_M) * (CLB_NR/CLB_WARP_N),
 *               global CLB_WG * ceil(m/CLB_MR) * ceil(n/CLB_NR) * parts
 *
 * With CLB_COMPLEX the packing kernels read complex operands: see operand.h.
 */

#include "common.h"
#include "operand.h"
#include "nv.h"
#include "nv_scale.h"
#include "nv_warp.h"

/* Bytes of a row in a piece, of a piece, of a stage. */
#define CLB_ROW          (CLB_KU * 2)
#define CLB_PIECE(width) ((width)*CLB_ROW)
#define CLB_TAIL         0
#define CLB_BYTES_A      CLB_BLOCK(CLB_MR)
#define CLB_BYTES_B      CLB_BLOCK(CLB_NR)
#if CLB_KU != 32
#error "CLB_KU, what the tensor core adds up, is two mma: 32"
#endif
#if CLB_STAGES < 2
#error "CLB_STAGES is 2 at least"
#endif

#define CLB_COPY 2

#include "nv_bf16.h"
#include "nv_copy.h"
#include "nv_mma.h"
#include "nv_tile.h"

/* Of A, 64 chunks hold 16 rows: 32 lanes of the first mma, then of the second. Of B, 32 chunks hold
 * 8 columns, the first half of each for the first mma. */
static inline uint2 place_of(uint e, uint d, uint width, bool is_a)
{
    if (is_a)
        return (uint2)(e / 64 * 16 + d / 2 % 2 * 8 + e % 32 / 4,
                       e % 4 * 8 + e / 32 % 2 * 4 + d / 4 * 2 + d % 2);
    return (uint2)(e / 4, e % 4 * 8 + d);
}

/* A piece of A: for each row of fragments the chunks of the first and of the second mma. */
static inline void load_piece(local const uchar *la, uint i, uint4 a[2 * CLB_FM])
{
#pragma unroll
    for (uint e = 0; e < 2 * CLB_FM; e++)
        a[e] = *(local const uint4 *)(la + (i - 1) * CLB_PIECE(CLB_MR) + e * (8 * CLB_ROW));
}

/* d += a piece of A times a piece of B. Products that follow each other are independent. */
static inline void multiply_piece(const uint4 a[2 * CLB_FM], const uint4 b[CLB_FN],
                                  float d[CLB_ACC], local uint *exchange)
{
#pragma unroll
    for (uint e = 0; e < CLB_FM * CLB_FN; e++)
        mma_bf16(d + e * 4, a[e / CLB_FN * 2], b[e % CLB_FN].xy, exchange);
#pragma unroll
    for (uint e = 0; e < CLB_FM * CLB_FN; e++)
        mma_bf16(d + e * 4, a[e / CLB_FN * 2 + 1], b[e % CLB_FN].zw, exchange);
}

/* la, lb: this lane's chunk of the warp's first row and column in the stage. Each piece is loaded
 * once. */
static inline void multiply_tile(local const uchar *la, local const uchar *lb, float sum[CLB_ACC],
                                 local uint *exchange)
{
    uint4 a[2 * CLB_FM];
    uint4 b[3][CLB_FN];
    float d[CLB_ACC];

#pragma unroll
    for (uint e = 0; e < 3 * CLB_FN; e++)
        b[e / CLB_FN][e % CLB_FN] = *(local const uint4 *)(lb + e / CLB_FN * CLB_PIECE(CLB_NR) +
                                                           e % CLB_FN * (8 * CLB_ROW));
    clear(d);
    load_piece(la, 3, a);
    multiply_piece(a, b[1], d, exchange);
    multiply_piece(a, b[0], d, exchange);
    load_piece(la, 2, a);
    multiply_piece(a, b[2], d, exchange);
    multiply_piece(a, b[1], d, exchange);
    multiply_piece(a, b[0], d, exchange);
    load_piece(la, 1, a);
    multiply_piece(a, b[2], d, exchange);
    multiply_piece(a, b[1], d, exchange);
    add_scaled(sum, 1.0f, d);
    clear(d);
    multiply_piece(a, b[0], d, exchange);
    add_scaled(sum, 1.0f, d);
}

static inline void fetch_step(global const uchar *pa, global const uchar *pb, uint step, uint steps,
                              uint stage, local uchar *la, local uchar *lb)
{
    if (step < steps) {
        copy_block(la + stage * CLB_BYTES_A, pa + (ulong)step * CLB_BYTES_A, CLB_BYTES_A, CLB_WG);
        copy_block(lb + stage * CLB_BYTES_B, pb + (ulong)step * CLB_BYTES_B, CLB_BYTES_B, CLB_WG);
    }
    end_step();
}

/*
 * The copies are CLB_STAGES - 1 steps ahead. The barrier of step s makes its stage visible to all,
 * and behind it nobody reads that of step s - 1 any more, which is refilled. from_a, from_b: this
 * lane's bytes in a stage.
 */
static inline void multiply_panels(global const uchar *pa, global const uchar *pb, uint steps,
                                   local uchar *la, local uchar *lb, uint from_a, uint from_b,
                                   float sum[CLB_ACC], local uint *exchange)
{
    uint stage = 0;

    clear(sum);
    for (uint i = 0; i < CLB_STAGES - 1; i++)
        fetch_step(pa, pb, i, steps, i, la, lb);
    for (uint s = 0; s < steps; s++) {
        wait_step();
        barrier(CLK_LOCAL_MEM_FENCE);
        fetch_step(pa, pb, s + CLB_STAGES - 1, steps, (stage ? stage : CLB_STAGES) - 1, la, lb);
        multiply_tile(la + stage * CLB_BYTES_A + from_a, lb + stage * CLB_BYTES_B + from_b, sum,
                      exchange);
        if (++stage == CLB_STAGES)
            stage = 0;
    }
}

CLB_GEMM_KERNEL void clb_gemm(uint m, uint n, uint k, float alpha, float beta,
                              global const uchar *pa, ulong pa_off, global const uchar *pb,
                              ulong pb_off, global float *c, ulong c_off,
                              ulong ldc CLB_PART_PARAMETERS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local uchar la[CLB_STAGES * CLB_BYTES_A] __attribute__((aligned(128)));
    local uchar lb[CLB_STAGES * CLB_BYTES_B] __attribute__((aligned(128)));
    CLB_EXCHANGE(uint, 6);
    struct share share = share_of_group(m, n, k, part, part_stride);
    uint2 tile = share.tile;
    uint lane = get_local_id(0) % 32;
    uint row = get_local_id(0) / 32 % (CLB_MR / CLB_WARP_M) * CLB_WARP_M;
    uint col = get_local_id(0) / 32 / (CLB_MR / CLB_WARP_M) * CLB_WARP_N;
    float sum[CLB_ACC];

    pa += pa_off + ((ulong)tile.x * share.total + share.first) * CLB_BYTES_A;
    pb += pb_off + ((ulong)tile.y * share.total + share.first) * CLB_BYTES_B;
    c += c_off + share.c_offset;
    if (beta != 0.0f)
        prefetch_tile(c, ldc, m, n, tile.x * CLB_MR, tile.y * CLB_NR);
    multiply_panels(pa, pb, share.steps, la, lb, row * CLB_ROW + lane * 16,
                    col * CLB_ROW + lane * 16, sum, exchange);
    store_tile(sum, m, n, alpha, beta, c, ldc, tile.x * CLB_MR + row + lane / 4,
               tile.y * CLB_NR + col + lane % 4 * 2);
}
