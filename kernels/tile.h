/* What the families have in common whose work-groups compute tiles of C from local memory. Included
 * where CLB_WG is defined. From gemm.def:
 *   CLB_GROUP    tile rows that are walked together, so that their panels of A stay in the device's
 *                cache
 *   CLB_PACK_WG  work-items of a packing kernel's group SPDX-License-Identifier: BSD-3-Clause */

#define CLB_PACK_KERNEL CLB_KERNEL_OF(CLB_PACK_WG)
#define CLB_GEMM_KERNEL CLB_KERNEL_OF(CLB_WG)

/*
 * What a work-group computes: a tile of C, from steps [first, first + steps) of CLB_KU depths.
 *
 * C may have fewer tiles than the device has room for. Then the depth is divided into parts of
 * `part` depths, a multiple of CLB_KU, and there are as many work-groups for each tile. Those of
 * part s write their product to the matrix at s * part_stride of C's buffer, which clb_gemm_sum
 * adds up. Undivided products have a part of all depths.
 */
#define CLB_PART_PARAMETERS , uint part, ulong part_stride

struct share {
    uint2 tile;
    uint first, steps, total; /* total: the steps of all parts */
    ulong c_offset;
};

/* Down CLB_GROUP tile rows, then to the next tile column; the last group of rows may be lower. */
static inline struct share share_of_group(uint m, uint n, uint k, uint part, ulong part_stride)
{
    uint rows = (m - 1) / CLB_MR + 1;
    uint cols = (n - 1) / CLB_NR + 1;
    uint group = get_group_id(0); /* divided by 32 bits it takes less time */
    uint number = group / (rows * cols);
    uint g = group % (rows * cols);
    uint top = g / (CLB_GROUP * cols) * CLB_GROUP;
    uint height = min((uint)CLB_GROUP, rows - top);
    struct share share;

    g %= CLB_GROUP * cols;
    share.tile = (uint2)(top + g % height, g / height);
    share.total = (k - 1) / CLB_KU + 1;
    share.first = number * (part / CLB_KU);
    share.steps = min(part / CLB_KU, share.total - share.first);
    share.c_offset = number * part_stride;
    return share;
}

/*
 * C = alpha * (X0 + X1 + ...) + beta*C, where X0 to X(parts - 1) are m x n matrices part_stride
 * elements apart, with the leading dimension ldx. Each entry is one chain of additions in ascending
 * order, whatever the launch's size. Launch: local CLB_PACK_WG, any number of groups.
 */
CLB_PACK_KERNEL void clb_gemm_sum(uint m, uint n, uint parts, real alpha, real beta,
                                  global const real *x, ulong part_stride, ulong ldx,
                                  global real *c, ulong c_off, ulong ldc CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    const ulong entries = (ulong)m * n;

    c += c_off;
    for (ulong e = get_global_id(0); e < entries; e += get_global_size(0)) {
        ulong i = e % m, j = e / m;
        global const real *from = x + i + j * ldx;
        real old = beta != (real)0 ? c[i + j * ldc] : (real)0;
        real sum = from[0];

        for (uint s = 1; s < parts; s += 16) {
            real term[16];

            /* All loads before the sums, which wait for each other. */
#pragma unroll
            for (uint t = 0; t < 16; t++)
                term[t] = from[min(s + t, parts - 1) * part_stride];
#pragma unroll
            for (uint t = 0; t < 16; t++)
                sum = s + t < parts ? sum + term[t] : sum;
        }
        c[i + j * ldc] = alpha * sum + beta * old; /* exact: they are -1, 0 or 1 */
    }
}
