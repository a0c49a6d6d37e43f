/*
 * Single-precision GEMM on the bf16 tensor cores of compute capability 9.0 (wgmma).
 *
 * Each operand element is split into three bf16 pieces: see nv_bf16.h. The tensor core truncates
 * its sums, so it adds up CLB_KU depths only, small products first and x1*y1 apart from them, and
 * its results are then added in registers with rounding. Under k = 32 use the FMA kernel.
 *
 * C (m x n, column-major) = alpha*A*B + beta*C, A and B packed beforehand.
 *
 * Packed layout: nv_bf16.h's. A chunk is 8 depths of a row, and all rows' chunks of the same depths
 * follow each other: 8 are a core matrix without swizzle.
 *
 * Launch, all sizes at least 1:
 *   clb_pack_*: local (CLB_PACK_WG, 1), global (CLB_PACK_WG * ceil(w/W), KP / CLB_KU)
 *   clb_gemm:   local 384, global 384 * ceil(m/CLB_MR) * ceil(n/CLB_NR)
 *
 * With CLB_COMPLEX the packing kernels read complex operands: see nv_operand.h.
 *
 * Building needs a patch: see nv_wgmma.h.
 */

/* Tile of C of one work-group: 64 rows for each of the two consumer warpgroups by 128 or 192. */
#ifndef CLB_MR
#define CLB_MR 128
#endif
#ifndef CLB_NR
#define CLB_NR 192
#endif
/* Depth of one stage, and of what the tensor core adds up. */
#ifndef CLB_KU
#define CLB_KU 32
#endif
#ifndef CLB_STAGES
#if CLB_NR == 192
#define CLB_STAGES 3
#else
#define CLB_STAGES 4
#endif
#endif
/*
 * 8: x2*y3 and x3*y2 as well; 6: without them; 0: with them where a block of either operand is
 * sparse. Without them the rms error of an entry of C that is a single product is 1.014 times plain
 * FMA's, and the largest 1.3 times; where two products count the sum's roundings are more than
 * that.
 */
#ifndef CLB_PRODUCTS
#define CLB_PRODUCTS 0
#endif
/* Tile rows that are walked together, so that their panels of A stay in L2. */
#ifndef CLB_GROUP
#define CLB_GROUP 8
#endif
#ifndef CLB_PACK_WG
#define CLB_PACK_WG 256
#endif

#define CLB_WG 384
/* Byte distance in a piece from a chunk of 8 depths to the next; bytes of a piece, of a stage. */
#define CLB_CHUNK(width) ((width)*16)
#define CLB_PIECE(width) ((width)*CLB_KU * 2)
#define CLB_TAIL         128
#define CLB_BYTES_A      CLB_BLOCK(CLB_MR)
#define CLB_BYTES_B      CLB_BLOCK(CLB_NR)
#define CLB_PACK_KERNEL  kernel __attribute__((reqd_work_group_size(CLB_PACK_WG, 1, 1)))
#define CLB_GEMM_KERNEL  kernel __attribute__((reqd_work_group_size(CLB_WG, 1, 1)))
/* A work-item's sums: fragments of 16 x 8, 4 elements each, CLB_FN fragments in a row. */
#define CLB_FN   (CLB_NR / 8)
#define CLB_ACC  (CLB_FN * 4)
#define CLB_TYPE "bf16"

#if CLB_MR != 128 || (CLB_NR != 128 && CLB_NR != 192) || CLB_KU % 16
#error "CLB_MR is 128, CLB_NR 128 or 192, CLB_KU a multiple of 16"
#endif

#define CLB_COPY 1
#define T        float

#include "nv_operand.h"
#include "nv_bf16.h"
#include "tile.h"
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
static inline uint is_sparse(local const uchar *la, local const uchar *lb)
{
#if CLB_PRODUCTS
    return CLB_PRODUCTS == 8;
#else
    return *(local const uint *)(la + 3 * CLB_PIECE(CLB_MR)) |
           *(local const uint *)(lb + 3 * CLB_PIECE(CLB_NR));
#endif
}

/* The small products of one stage are added up on their own, the smallest first, so that no
 * truncated sum contains x1*y1. */
static inline float multiply_stage(local const uchar *la, local const uchar *lb, uint group,
                                   float d[CLB_ACC], float sum[CLB_ACC])
{
    uint sparse = is_sparse(la, lb);

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
