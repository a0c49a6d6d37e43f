/* Single-precision GEMM for the `fast` mode, on the fp16 tensor cores of compute capability 9.0
 * (wgmma).
 * SPDX-License-Identifier: BSD-3-Clause
 * Each element, scaled by the power of two of its packed block, is x1 + x2 * 2^-11 with two fp16
 * pieces, up to 2^-24 of its magnitude; the product is x1*y1 + 2^-11 (x1*y2 + x2*y1). Not exact:
 * A*I may differ from A in the last bits. The tensor core truncates its sums, so it adds up CLB_KU
 * depths only, and its results are then scaled back and added in registers with rounding. CLB_KU =
 * 64 is the faster, and from k = 256 on below plain FMA's error; 32 from k = 48 on.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand.
 *
 * Packed layout: operand = panels of W rows (columns for B; W = CLB_MR for A, CLB_NR for B), panel
 * = blocks of CLB_KU depths, block = the image of the tile in local memory: x1, then x2, each in
 * chunks of 8 depths by rows (16 bytes each: 8 rows are one core matrix without swizzle), then the
 * factor that undoes the scaling, a float in CLB_TAIL bytes. Zero beyond the operand.
 * Packed size: ceil(w/W) * (KP/CLB_KU) * (W * CLB_KU * 4 + CLB_TAIL) *bytes*, KP = k rounded up to
 * CLB_KU. dst_off, pa_off and pb_off are in bytes, multiples of 16.
 *
 * *flag is set to 1, never cleared, when a block holds Inf or NaN, its largest magnitude is outside
 * 2^-50 .. 2^60, or that of one of its rows or depths, not zero, is more than CLB_SPREAD binades
 * below it: C must then come from another kernel. Accuracy is relative to a block's largest
 * element, not to each element.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local 384, global 384 * ceil(m/CLB_MR) * ceil(n/CLB_NR) * parts
 *
 * With CLB_COMPLEX the packing kernels read complex operands: see operand.h.
 *
 * Building needs a patch: see nv_wgmma.h.
 */

#define CLB_SPREAD 20

#define CLB_TYPE "f16"

#include "common.h"
#include "operand.h"
#include "nv.h"
#include "nv_scale.h"
#include "nv_split.h"

#define CLB_BLOCK(width) (CLB_PIECE(width) * 2 + CLB_TAIL)

#if CLB_EMULATE

static inline uint pair_half(float low, float high)
{
    uint pair;

    vstore_half2_rte((float2)(low, high), 0, (half *)&pair);
    return pair;
}

static inline float2 unpair_half(uint pair)
{
    return vload_half2(0, (const half *)&pair);
}

#else

/* Two floats to fp16, to nearest, `low` in the lower half. */
static inline uint pair_half(float low, float high)
{
    uint pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

static inline float2 unpair_half(uint pair)
{
    float2 v;

    asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(v.x), "=f"(v.y)
        : "r"(pair));
    return v;
}

#endif

/* 2^e, -126 <= e <= 127. */
static inline float power_of_two(int e)
{
    return as_float((uint)(e + 127) << 23);
}

/* The largest magnitude of `count` elements as an integer, which orders Inf and NaN on top. */
static inline uint largest_of(local const float *x, uint count, uint stride)
{
    uint top = 0;

#pragma unroll 16
    for (uint i = 0; i < count; i++)
        top = max(top, as_uint(x[i * stride]) & 0x7fffffff);
    return top;
}

/*
 * Packs the block that the work-group has put into local memory, element (i, p) at p * (width + 1)
 * + i. largest: for each row, each depth (from largest[width] on), and last the block.
 */
static inline void pack_block(local const float *block, local uint *largest, global uchar *dst,
                              uint width, global uint *flag)
{
    for (uint e = get_local_id(0); e <= width + CLB_KU; e += CLB_PACK_WG)
        largest[e] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = get_local_id(0); e < width * 2; e += CLB_PACK_WG) {
        uint p = e / width * (CLB_KU / 2);
        uint top = largest_of(block + p * (width + 1) + e % width, CLB_KU / 2, width + 1);

        atomic_max(largest + e % width, top);
        atomic_max(largest + width + CLB_KU, top);
    }
    for (uint e = get_local_id(0); e < CLB_KU * 4; e += CLB_PACK_WG) {
        uint p = e % CLB_KU;

        atomic_max(largest + width + p,
                   largest_of(block + p * (width + 1) + e / CLB_KU * (width / 4), width / 4, 1));
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    /* The largest magnitude becomes 2^14 .. 2^15. */
    uint top = largest[width + CLB_KU];
    int shift = top ? 14 + 127 - (int)(top >> 23) : 0;

    if (top && (top < as_uint(0x1p-50f) || top > as_uint(0x1p60f))) {
        *flag = 1;
        shift = 0;
    }
    for (uint e = get_local_id(0); e < width + CLB_KU; e += CLB_PACK_WG) {
        if (largest[e] && (largest[e] >> 23) + CLB_SPREAD < top >> 23)
            *flag = 1;
    }

    float scale = power_of_two(shift);

    for (uint e = get_local_id(0); e < width * CLB_KU / 8; e += CLB_PACK_WG) {
        uint large[4];
        uint small[4];

#pragma unroll
        for (uint d = 0; d < 4; d++) {
            uint at = (e / width * 8 + 2 * d) * (width + 1) + e % width;
            float x = block[at] * scale;
            float y = block[at + width + 1] * scale;
            float2 v;

            large[d] = pair_half(x, y);
            v = unpair_half(large[d]);
            small[d] = pair_half((x - v.x) * 0x1p11f, (y - v.y) * 0x1p11f);
        }
        ((global uint4 *)dst)[e] = (uint4)(large[0], large[1], large[2], large[3]);
        ((global uint4 *)(dst + CLB_PIECE(width)))[e] =
            (uint4)(small[0], small[1], small[2], small[3]);
    }
    if (get_local_id(0) < CLB_TAIL / 4)
        ((global float *)(dst + 2 * CLB_PIECE(width)))[get_local_id(0)] = power_of_two(-shift);
}

/* As load_depths, rows contiguous in the source. */
static inline void load_rows(global const float *src, ulong ld, uint w, uint k, uint width,
                             bool of_a, uint conj, local float *block)
{
#pragma unroll 8
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = get_group_id(0) * width + e % width;
        uint p = get_group_id(1) * CLB_KU + e / width;

        block[e / width * (width + 1) + e % width] = element(src, 1, ld, w, k, i, p, of_a, conj);
    }
}

/* A packing kernel for an operand in panels of `width` rows; `parts` are the real rows in one of
 * the caller's. */
#define CLB_FP16_KERNEL(name, width, parts, load, of_a)                                         \
    CLB_PACK_KERNEL void name(global const float *src, ulong src_off, ulong ld, uint w, uint k, \
                              global uchar *dst, ulong dst_off,                                 \
                              global uint *flag CLB_CONJ_PARAMETER CLB_LAUNCH_PARAMETERS)       \
    {                                                                                           \
        CLB_NOTE_LAUNCH();                                                                      \
        local float block[CLB_KU * (width + 1)];                                                \
        local uint largest[width + CLB_KU + 1];                                                 \
                                                                                                \
        load(src + CLB_PARTS * src_off, ld, parts * w, CLB_PARTS * k, width, of_a, CLB_CONJ,    \
             block);                                                                            \
        pack_block(block, largest, dst + dst_off + packed_index() * CLB_BLOCK(width), width,    \
                   flag);                                                                       \
    }

CLB_FP16_KERNEL(clb_pack_a_n, CLB_MR, CLB_PARTS, load_rows, true)
CLB_FP16_KERNEL(clb_pack_a_t, CLB_MR, CLB_PARTS, load_depths, true)
CLB_FP16_KERNEL(clb_pack_b_n, CLB_NR, 1, load_rows, false)
CLB_FP16_KERNEL(clb_pack_b_t, CLB_NR, 1, load_depths, false)

#include "nv_copy.h"
#include "nv_mma.h"
#include "nv_tile.h"
#include "nv_wgmma.h"

#if CLB_EMULATE
static inline float read_number(local const uchar *place)
{
    return vload_half(0, (local const half *)place);
}
#endif

static inline float multiply_stage(local const uchar *la, local const uchar *lb, uint step,
                                   uint group, float d[CLB_ACC], float sum[CLB_ACC])
{
    float scale = *(local const float *)(la + 2 * CLB_PIECE(CLB_MR)) *
                  *(local const float *)(lb + 2 * CLB_PIECE(CLB_NR));

    la += group * CLB_CHUNK(64);
    begin_products(d);
    multiply_piece(la, lb, 2, 1, 0, d);
    multiply_piece(la, lb, 1, 2, 1, d);
    finish_products(d);
    add_scaled(sum, scale * 0x1p-11f, d);
    begin_products(d);
    multiply_piece(la, lb, 1, 1, 0, d);
    finish_products(d);
    return scale;
}
