/* Single-precision GEMM on the bf16 tensor cores of compute capability 9.0 (wgmma).
 * SPDX-License-Identifier: BSD-3-Clause
 * Each operand element is split into three bf16 pieces: see nv_bf16.h. The tensor core truncates
 * its sums, so it adds up CLB_KU depths only, small products first and x1*y1 apart from them, and
 * its results are then added in registers with rounding. Under k = 32 use the FMA kernel.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand.
 *
 * Packed layout: nv_bf16.h's, with the chunks of nv_split.h.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local 384, global 384 * ceil(m/CLB_MR) * ceil(n/CLB_NR) * parts
 *
 * With CLB_COMPLEX the packing kernels read complex operands: see operand.h.
 *
 * Building needs a patch: see nv_wgmma.h.
 *
 * With CLB_RAW there are other kernels instead, which read unpacked operands: see nv_raw.h.
 */

/*
 * 8: x2*y3 and x3*y2 as well; 6: without them; 0: with them where a block of either operand is
 * sparse. Without them the rms error of an entry of C that is a single product is 1.014 times plain
 * FMA's, and the largest 1.3 times; where two products count the sum's roundings are more than
 * that.
 */
#ifndef CLB_PRODUCTS
#define CLB_PRODUCTS 0
#endif

#define CLB_TYPE "bf16"

#include "common.h"
#include "operand.h"
#include "nv.h"
#include "nv_split.h"
#if !CLB_RAW
#include "nv_scale.h"
#endif
#include "nv_bf16.h"
#include "nv_copy.h"
#include "nv_mma.h"
#include "nv_tile.h"
#include "nv_wgmma.h"

static inline uint2 place_of(uint e, uint d, uint width, bool is_a)
{
    return (uint2)(e % width, e / width * 8 + d);
}

#if CLB_EMULATE
static inline float read_number(local const uchar *place)
{
    return low_bf16(*(local const ushort *)place);
}
#endif

/* Whether the stage needs all products. */
static inline uint is_sparse(local const uchar *la, local const uchar *lb, uint step)
{
    uint a = *(local const uint *)(la + 3 * CLB_PIECE(CLB_MR));
    uint b = *(local const uint *)(lb + 3 * CLB_PIECE(CLB_NR));

    if (CLB_PRODUCTS)
        return CLB_PRODUCTS == 8;
    return CLB_RAW ? a == step + 1 || b == step + 1 : a | b;
}

/* The small products of one stage are added up on their own, the smallest first, so that no
 * truncated sum contains x1*y1. */
static inline float multiply_stage(local const uchar *la, local const uchar *lb, uint step,
                                   uint group, float d[CLB_ACC], float sum[CLB_ACC])
{
    uint sparse = is_sparse(la, lb, step);

    la += group * CLB_CHUNK(64);
    if (sparse) {
        begin_products(d);
        multiply_piece(la, lb, 3, 2, 0, d);
        multiply_piece(la, lb, 2, 3, 1, d);
        finish_products(d);
    }
    begin_products(d);
    multiply_piece(la, lb, 3, 1, sparse, d);
    multiply_piece(la, lb, 1, 3, 1, d);
    multiply_piece(la, lb, 2, 2, 1, d);
    multiply_piece(la, lb, 2, 1, 1, d);
    multiply_piece(la, lb, 1, 2, 1, d);
    finish_products(d);
    add_scaled(sum, 1.0f, d);
    begin_products(d);
    multiply_piece(la, lb, 1, 1, 0, d);
    finish_products(d);
    return 1.0f;
}

#if CLB_RAW
#include "nv_raw.h"
#endif
