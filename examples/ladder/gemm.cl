/* The product on the ladder, C = A*B, from the text-book's loop up. docs/ladder.md walks through
 * it; gemm.c launches it. SPDX-License-Identifier: BSD-3-Clause */
#include "blocks.h"

/* Rung 1: a work-item for each element, the sum in global memory. */
kernel void global_sum(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(1), j = get_global_id(0);
    c[i + j * n] = 0;
    for (uint p = 0; p < n; p++)
        c[i + j * n] += a[i + p * n] * b[p + j * n];
}

/* Rung 2 adds: the sum is in a register. The compiler could not put it there itself, since C might
 * be A or B. */
kernel void private_sum(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(1), j = get_global_id(0);
    real sum = 0;
    for (uint p = 0; p < n; p++)
        sum += a[i + p * n] * b[p + j * n];
    c[i + j * n] = sum;
}

/* For rung 3: B^T. */
kernel void transpose(uint n, global const real *b, global real *other CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint p = get_global_id(0), j = get_global_id(1);
    other[j + p * n] = b[p + j * n];
}

/* Rung 3 adds: B is transposed, so neighbouring work-items (j, j + 1) read neighbouring addresses,
 * which the memory delivers in one access. */
kernel void transposed(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(1), j = get_global_id(0);
    real sum = 0;
    for (uint p = 0; p < n; p++)
        sum += a[i + p * n] * b[j + p * n];
    c[i + j * n] = sum;
}

/* Rung 4: the same without the transposition. The dimension in which work-items are neighbours is
 * that in which A and C are contiguous. */
kernel void coalesced(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0), j = get_global_id(1);
    real sum = 0;
    for (uint p = 0; p < n; p++)
        sum += a[i + p * n] * b[p + j * n];
    c[i + j * n] = sum;
}

/* For the next rung: columns [first, first + columns) of B. */
kernel void copy_slab(uint n, uint first, global const real *b,
                      global real *slab CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    slab[get_global_id(0)] = b[get_global_id(0) + first * n];
}

/* Constant memory: what all work-items read at the same time comes from a cache that is made for
 * it. It holds a few columns of B only, so there is a launch for each slab of them. */
kernel void constant_slab(uint n, uint first, global const real *a, constant real *slab,
                          global real *c CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0), j = get_global_id(1);
    real sum = 0;
    for (uint p = 0; p < n; p++)
        sum += a[i + p * n] * slab[p + j * n];
    c[i + (first + j) * n] = sum;
}

/* For the next rung: numbers rounded to half precision, 11 significant bits. */
kernel void to_half(global const real *x, global half *y CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    vstore_half(x[get_global_id(0)], get_global_id(0), y);
}

/* Small data types: operands of two bytes take half of the memory's time; sums stay as they are.
 * The operands' rounding is in the result. */
kernel void half_operands(uint n, global const half *a, global const half *b,
                          global real *c CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0), j = get_global_id(1);
    real sum = 0;
    for (uint p = 0; p < n; p++)
        sum += (real)vload_half(i + p * n, a) * (real)vload_half(p + j * n, b);
    c[i + j * n] = sum;
}

/* Local tiles: a work-group copies a tile of A and one of B to local memory, and each element that
 * it has read is used TILE times. Neighbouring work-items read a_tile with stride TILE, though: on
 * many devices these addresses are in the same bank of local memory and are served one by one.
 * PADDING makes rows of the tiles one element longer, so that a column's elements are in different
 * banks. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
local_tiles(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real a_tile[TILE][TILE + PADDING], b_tile[TILE][TILE + PADDING];
    uint x = get_local_id(0), y = get_local_id(1), i = get_global_id(0), j = get_global_id(1);
    real sum = 0;
    for (uint p0 = 0; p0 < n; p0 += TILE) {
        a_tile[x][y] = a[i + (p0 + y) * n];
        b_tile[x][y] = b[p0 + x + j * n];
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint p = 0; p < TILE; p++)
            sum += a_tile[x][p] * b_tile[p][y];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[i + j * n] = sum;
}

/* Thread coarsening: a work-item for each row of C. Fewer work-items, each with more to do. */
kernel void row_each(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0);
    for (uint j = 0; j < n; j++) {
        real sum = 0;
        for (uint p = 0; p < n; p++)
            sum += a[i + p * n] * b[p + j * n];
        c[i + j * n] = sum;
    }
}

#ifdef ORDER
/* Adds: the work-item's row of A is in private memory. Where it does not fit into registers, that
 * is global memory again. ORDER is n. */
kernel void row_private(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0);
    real row[ORDER];
    for (uint p = 0; p < n; p++)
        row[p] = a[i + p * n];
    for (uint j = 0; j < n; j++) {
        real sum = 0;
        for (uint p = 0; p < n; p++)
            sum += row[p] * b[p + j * n];
        c[i + j * n] = sum;
    }
}

/* Adds: the work-group fetches the column of B that all its rows need into local memory. */
kernel void row_local(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0);
    local real column[ORDER];
    real row[ORDER];
    for (uint p = 0; p < n; p++)
        row[p] = a[i + p * n];
    for (uint j = 0; j < n; j++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint p = get_local_id(0); p < n; p += get_local_size(0))
            column[p] = b[p + j * n];
        barrier(CLK_LOCAL_MEM_FENCE);
        real sum = 0;
        for (uint p = 0; p < n; p++)
            sum += row[p] * column[p];
        c[i + j * n] = sum;
    }
}
#endif

/* Register tiling: a work-item has PART x PART sums, so what it reads from local memory is used
 * PART times. Its rows and columns are SIDE apart: neighbours read neighbouring addresses. */
kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void
register_tiles(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real a_block[DEPTH * ROW], b_block[DEPTH * ROW];
    uint x = get_local_id(0), y = get_local_id(1), item = x + y * SIDE;
    uint i0 = get_group_id(0) * BLOCK, j0 = get_group_id(1) * BLOCK;
    real sum[PART][PART] = {{0}};
    for (uint p0 = 0; p0 < n; p0 += DEPTH) {
        write_share(item, read_share(item, a + i0 + p0 * n, n, b + p0 + j0 * n, n), a_block,
                    b_block);
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint p = 0; p < DEPTH; p++) {
#pragma unroll
            for (uint r = 0; r < PART; r++) {
#pragma unroll
                for (uint s = 0; s < PART; s++)
                    sum[r][s] += a_block[p * ROW + x + r * SIDE] * b_block[p * ROW + y + s * SIDE];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (uint r = 0; r < PART; r++) {
#pragma unroll
        for (uint s = 0; s < PART; s++)
            c[i0 + x + r * SIDE + (j0 + y + s * SIDE) * n] = sum[r][s];
    }
}

/* Vectors add: a work-item's rows are four neighbours, read, multiplied and written at once. */
kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void
vectors(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real a_block[DEPTH * ROW], b_block[DEPTH * ROW];
    uint x = get_local_id(0), y = get_local_id(1), item = x + y * SIDE;
    uint i0 = get_group_id(0) * BLOCK, j0 = get_group_id(1) * BLOCK;
    REAL_VECTOR sum[PART] = {0, 0, 0, 0};
    for (uint p0 = 0; p0 < n; p0 += DEPTH) {
        write_share(item, read_share(item, a + i0 + p0 * n, n, b + p0 + j0 * n, n), a_block,
                    b_block);
        barrier(CLK_LOCAL_MEM_FENCE);
        add_vectors(a_block, b_block, PART * x, PART * y, sum);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#pragma unroll
    for (uint s = 0; s < PART; s++)
        vstore4(sum[s], 0, c + i0 + PART * x + (j0 + PART * y + s) * n);
}

/* Prefetch adds: there are two pairs of blocks in local memory. While one is multiplied the other
 * is read from global memory, and a step needs one barrier. */
kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void
prefetched(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real block[4 * DEPTH * ROW];
    uint i0 = get_group_id(0) * BLOCK, j0 = get_group_id(1) * BLOCK;
    REAL_VECTOR sum[PART] = {0, 0, 0, 0};
    block_product(n, a + i0, n, b + j0 * n, n, block, sum);
#pragma unroll
    for (uint s = 0; s < PART; s++)
        vstore4(sum[s], 0, c + i0 + PART * get_local_id(0) + (j0 + PART * get_local_id(1) + s) * n);
}

#if defined(cl_khr_subgroups) || defined(__opencl_c_subgroups)
#ifdef cl_khr_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
/* Sub-groups instead of local memory: each work-item of a sub-group reads one element of B, and the
 * others get it from its register. */
kernel void sub_groups(OPERANDS CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0), j = get_global_id(1), lanes = get_sub_group_size();
    real sum = 0;
    for (uint p0 = 0; p0 < n; p0 += lanes) {
        real mine = b[p0 + get_sub_group_local_id() + j * n];
        for (uint lane = 0; lane < lanes; lane++)
            sum += a[i + (p0 + lane) * n] * sub_group_broadcast(mine, lane);
    }
    c[i + j * n] = sum;
}
#endif
