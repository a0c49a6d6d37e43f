/* Blocks of the families that split single precision for the warpgroups of compute capability 9.0,
 * and their tile of C: 64 rows for each of two warpgroups that multiply, by 128 or 192 columns.
 * Included behind nv.h, where CLB_BLOCK(width), the bytes of a block, is defined before it is used.
 *
 * A piece of a block is made of chunks of 8 depths of a row, 16 bytes, and all rows' chunks of the
 * same depths follow each other: 8 are a core matrix without swizzle. Behind the pieces a block has
 * CLB_TAIL bytes.
 * SPDX-License-Identifier: BSD-3-Clause */

/* CLB_RAW: two warpgroups multiply, two fetch. */
#ifndef CLB_RAW
#define CLB_RAW 0
#endif
#define CLB_WG (CLB_RAW ? 512 : 384)
/* Byte distance in a piece from a chunk of 8 depths to the next; bytes of a piece, of a stage. */
#define CLB_CHUNK(width) ((width)*16)
#define CLB_PIECE(width) ((width)*CLB_KU * 2)
#define CLB_TAIL         128
#define CLB_BYTES_A      CLB_BLOCK(CLB_MR)
#define CLB_BYTES_B      CLB_BLOCK(CLB_NR)
/* A work-item's sums: fragments of 16 x 8, 4 elements each, CLB_FN fragments in a row. */
#define CLB_FN  (CLB_NR / 8)
#define CLB_ACC (CLB_FN * 4)
/* Bulk copies. */
#define CLB_COPY 1

#if CLB_MR != 128 || (CLB_NR != 128 && CLB_NR != (CLB_RAW ? 64 : 192)) || CLB_KU % 16
#error "CLB_MR is 128, CLB_NR 128, 192 or, with CLB_RAW, 64, CLB_KU a multiple of 16"
#endif
