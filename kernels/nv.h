/* What the families for NVIDIA's tensor cores have in common: the blocks that are packed. Included
 * behind common.h and operand.h. From gemm.def:
 *   CLB_MR, CLB_NR  tile of C of one work-group
 *   CLB_KU          depth of one stage
 *   CLB_STAGES      stages in local memory SPDX-License-Identifier: BSD-3-Clause */

/* 1: NVIDIA's instructions in plain OpenCL C, for tests on other devices. */
#ifndef CLB_EMULATE
#define CLB_EMULATE 0
#endif

#if CLB_EMULATE
/* The compiler would say on stderr that no kernel needs all of the functions included, and that
 * loops with barriers are not unrolled. */
#pragma clang diagnostic ignored "-Wunused-function"
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

#include "tile.h"

/* Number of the block, of one panel and CLB_KU depths, that a packing kernel's work-group writes.
 */
static inline ulong packed_index(void)
{
    return get_group_id(0) * get_num_groups(1) + get_group_id(1);
}

/* The work-group's block of an operand into local memory, element (i, p) to p * (width + 1) + i:
 * depths contiguous in the source. The odd pitch turns the block without bank conflicts. */
static inline void load_depths(global const real *src, ulong ld, uint w, uint k, uint width,
                               bool of_a, uint conj, local real *block)
{
#pragma unroll 8
    for (uint e = get_local_id(0); e < width * CLB_KU; e += CLB_PACK_WG) {
        uint i = get_group_id(0) * width + e / CLB_KU;
        uint p = get_group_id(1) * CLB_KU + e % CLB_KU;

        block[e % CLB_KU * (width + 1) + e / CLB_KU] = element(src, ld, 1, w, k, i, p, of_a, conj);
    }
}
