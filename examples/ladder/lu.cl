/* The LU factorisation on the ladder, P*A = L*U by partial pivoting, in place. docs/ladder.md walks
 * through it; lu.c launches it. SPDX-License-Identifier: BSD-3-Clause */
#include "blocks.h"

/* The columns of a panel, that of a block of the trailing update, and the work-items that look for
 * a pivot. */
#define PANEL BLOCK
#ifndef ITEMS
#define ITEMS 256
#endif

/* The naive factorisation has two launches for each column k. This one, of one work-group: find the
 * pivot (the lowest of equal ones, as LAPACK), swap the rows, divide the column by it. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
column(uint n, uint k, global real *a, global uint *pivots CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real largest[ITEMS];
    local uint where[ITEMS];
    uint item = get_local_id(0);
    real found = -1;
    uint row = n;
    for (uint i = k + item; i < n; i += ITEMS) {
        real size = fabs(a[i + k * n]);
        row = size > found ? i : row;
        found = fmax(found, size);
    }
    largest[item] = found;
    where[item] = row;
    for (uint half_of = ITEMS / 2; half_of > 0; half_of /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_of) {
            uint other = item + half_of;
            if (largest[other] > largest[item] ||
                (largest[other] == largest[item] && where[other] < where[item])) {
                largest[item] = largest[other];
                where[item] = where[other];
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint pivot = where[0];
    for (uint j = item; j < n; j += ITEMS) {
        real x = a[k + j * n];
        a[k + j * n] = a[pivot + j * n];
        a[pivot + j * n] = x;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (item == 0)
        pivots[k] = pivot;
    real diagonal = a[k + k * n];
    if (diagonal == 0)
        return;
    for (uint i = k + 1 + item; i < n; i += ITEMS) {
#ifdef NATIVE
        a[i + k * n] *= native_recip(diagonal); /* as many bits as the hardware has, perhaps few */
#else
        a[i + k * n] /= diagonal;
#endif
    }
}

/* And this one: subtract column k times row k from what is right of and below them. */
kernel void rank_one(uint n, uint k, global real *a CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint i = get_global_id(0), j = get_global_id(1);
    if (i > k && j > k)
        a[i + j * n] -= a[i + k * n] * a[k + j * n];
}

/* The blocked factorisation: the CPU has factored columns [k, k + PANEL). Swap the rows of the
 * other columns accordingly; a work-item for each. */
kernel void swap_rows(uint n, uint k, global real *a,
                      global const uint *pivots CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    uint j = get_global_id(0);
    if (j >= k && j < k + PANEL)
        return;
    for (uint r = k; r < k + PANEL; r++) {
        real x = a[r + j * n];
        a[r + j * n] = a[pivots[r] + j * n];
        a[pivots[r] + j * n] = x;
    }
}

/* Rows [k, k + PANEL) of U from column k + PANEL on: L11*U12 = A12 (TRSM). A work-item for each
 * column, which it has in registers; L11 is in local memory. */
kernel __attribute__((reqd_work_group_size(PANEL, 1, 1))) void
solve(uint n, uint k, global real *a CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real lower[PANEL][PANEL];
    uint item = get_local_id(0);
    for (uint p = 0; p < PANEL; p++)
        lower[p][item] = a[k + item + (k + p) * n];
    barrier(CLK_LOCAL_MEM_FENCE);
    global real *column = a + k + (k + PANEL + get_global_id(0)) * n;
    real x[PANEL];
    for (uint i = 0; i < PANEL; i++)
        x[i] = column[i];
    for (uint p = 0; p < PANEL; p++) {
        for (uint i = p + 1; i < PANEL; i++)
            x[i] -= lower[p][i] * x[p];
    }
    for (uint i = 0; i < PANEL; i++)
        column[i] = x[i];
}

/* What is below and from column `first` on, minus L21*U12 (GEMM), by local tiles. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1))) void
update_tiles(uint n, uint k, uint first, global real *a CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real a_tile[TILE][TILE + 1], b_tile[TILE][TILE + 1];
    uint x = get_local_id(0), y = get_local_id(1);
    uint i = k + PANEL + get_global_id(0), j = first + get_global_id(1);
    real sum = 0;
    for (uint p0 = 0; p0 < PANEL; p0 += TILE) {
        a_tile[x][y] = a[i + (k + p0 + y) * n];
        b_tile[x][y] = a[k + p0 + x + j * n];
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (uint p = 0; p < TILE; p++)
            sum += a_tile[x][p] * b_tile[p][y];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    a[i + j * n] -= sum;
}

/* The same by register tiles of vectors. */
kernel __attribute__((reqd_work_group_size(SIDE, SIDE, 1))) void
update_blocks(uint n, uint k, uint first, global real *a CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real block[4 * DEPTH * ROW];
    uint i0 = k + PANEL + get_group_id(0) * BLOCK, j0 = first + get_group_id(1) * BLOCK;
    REAL_VECTOR sum[PART] = {0, 0, 0, 0};
    block_product(PANEL, a + i0 + k * n, n, a + k + j0 * n, n, block, sum);
#pragma unroll
    for (uint s = 0; s < PART; s++) {
        global real *c = a + i0 + PART * get_local_id(0) + (j0 + PART * get_local_id(1) + s) * n;
        vstore4(vload4(0, c) - sum[s], 0, c);
    }
}
