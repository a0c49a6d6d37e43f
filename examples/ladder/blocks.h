/* What the kernels of `clblas-shim ladder` begin with.
 *
 * Matrices are column-major without gaps: element (i, j) of an n x n matrix is at i + j*n. n is a
 * multiple of 64. The last parameters and the first statement of each kernel tell the host whether
 * the launch was carried out, as in all kernels of the library; they cost nothing. A product and a
 * sum are written as such: the compiler fuses them where the device has that, and fma() is slow
 * where it has not. SPDX-License-Identifier: BSD-3-Clause */
#include "../../kernels/common.h"

/* Each rung of the product computes C = A*B. */
#define OPERANDS uint n, global const real *a, global const real *b, global real *c

/* Work-groups of the rungs with local memory have TILE x TILE work-items. */
#ifndef TILE
#define TILE 16
#endif

/* A C block of BLOCK x BLOCK elements is computed by SIDE x SIDE work-items, each of which has a
 * square of PART x PART sums in registers; DEPTH columns of A and rows of B are in local memory at
 * a time. */
#define BLOCK 64
#define SIDE  16
#define PART  4
#define DEPTH 16
/* Rows of local memory are a little longer than what they hold: see `local_tiles` in gemm.cl. */
#define ROW (BLOCK + 4)

#define REAL_VECTOR CLB_JOIN(CLB_REAL, 4)

/* The part of a block of A (BLOCK x DEPTH) and of B (DEPTH x BLOCK) that one work-item moves:
 * neighbours read neighbouring addresses. */
typedef struct {
    real a[PART], b[PART];
} share;

CLB_INLINE share read_share(uint item, global const real *a, uint lda, global const real *b,
                            uint ldb)
{
    share s;
#pragma unroll
    for (uint q = 0; q < PART; q++) {
        uint at = item + q * SIDE * SIDE;
        s.a[q] = a[at % BLOCK + at / BLOCK * lda];
        s.b[q] = b[at % DEPTH + at / DEPTH * ldb];
    }
    return s;
}

CLB_INLINE void write_share(uint item, share s, local real *a, local real *b)
{
#pragma unroll
    for (uint q = 0; q < PART; q++) {
        uint at = item + q * SIDE * SIDE;
        a[at / BLOCK * ROW + at % BLOCK] = s.a[q];
        b[at % DEPTH * ROW + at / DEPTH] = s.b[q];
    }
}

/* Add to four columns of four sums the products of what is in local memory; x and y are the first
 * row and column. */
CLB_INLINE void add_vectors(local const real *a, local const real *b, uint x, uint y,
                            REAL_VECTOR sum[PART])
{
#pragma unroll
    for (uint p = 0; p < DEPTH; p++) {
        REAL_VECTOR left = vload4(0, a + p * ROW + x), right = vload4(0, b + p * ROW + y);
        sum[0] += left * right.s0;
        sum[1] += left * right.s1;
        sum[2] += left * right.s2;
        sum[3] += left * right.s3;
    }
}

/* The sums of one work-item over `depth` columns of A and rows of B. While one pair of local blocks
 * is multiplied the next is on its way from global memory. Called by whole work-groups. */
CLB_INLINE void block_product(uint depth, global const real *a, uint lda, global const real *b,
                              uint ldb, local real *block, REAL_VECTOR sum[PART])
{
    uint x = get_local_id(0), y = get_local_id(1), item = x + y * SIDE;
    local real *now = block, *then = block + 2 * DEPTH * ROW;
    write_share(item, read_share(item, a, lda, b, ldb), now, now + DEPTH * ROW);
    for (uint p = DEPTH; p <= depth; p += DEPTH) {
        share next;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (p < depth)
            next = read_share(item, a + p * lda, lda, b + p, ldb);
        add_vectors(now, now + DEPTH * ROW, PART * x, PART * y, sum);
        if (p < depth)
            write_share(item, next, then, then + DEPTH * ROW);
        local real *other = now;
        now = then;
        then = other;
    }
}
