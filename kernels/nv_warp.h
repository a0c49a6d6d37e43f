/* The tile of C of a warp, CLB_WARP_M x CLB_WARP_N of gemm.def, for the families in which each warp
 * multiplies on its own (mma.sync). Included behind nv.h. SPDX-License-Identifier: BSD-3-Clause */

/* Warps of a work-group; they lie side by side in columns of CLB_WARPS_M. */
#define CLB_WARPS_M (CLB_MR / CLB_WARP_M)
#define CLB_WARPS   (CLB_WARPS_M * (CLB_NR / CLB_WARP_N))
#define CLB_WG      (32 * CLB_WARPS)
/* A work-item's sums: CLB_FM x CLB_FN fragments of 16 x 8, 4 elements each. */
#define CLB_FM  (CLB_WARP_M / 16)
#define CLB_FN  (CLB_WARP_N / 8)
#define CLB_ACC (CLB_FM * CLB_FN * 4)

#if CLB_MR % CLB_WARP_M || CLB_NR % CLB_WARP_N || CLB_WARP_M % 16 || CLB_WARP_N % 8
#error "tiles must nest: 16 | CLB_WARP_M | CLB_MR, 8 | CLB_WARP_N | CLB_NR"
#endif
