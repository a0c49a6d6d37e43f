/* A tile of C that a work-item holds as fragments of tensor instructions in single precision: 16 x
 * 8 of C each, 4 elements of a work-item, CLB_FN fragments in a row, CLB_ACC elements in all.
 * Included where those are defined. SPDX-License-Identifier: BSD-3-Clause */

static inline void clear(float d[CLB_ACC])
{
#pragma unroll
    for (uint e = 0; e < CLB_ACC; e++)
        d[e] = 0.0f;
}

static inline void add_scaled(float sum[CLB_ACC], float scale, const float d[CLB_ACC])
{
#pragma unroll
    for (uint e = 0; e < CLB_ACC; e++)
        sum[e] = fma(scale, d[e], sum[e]);
}

/*
 * All loads of C of a batch before its stores: the compiler can't move them across stores that may
 * alias. Two batches, because registers hold no more. row, col: of the work-item's first element.
 */
static inline void store_tile(const float sum[CLB_ACC], uint m, uint n, float alpha, float beta,
                              global float *c, ulong ldc, uint row, uint col)
{
#pragma unroll
    for (uint e0 = 0; e0 < CLB_ACC; e0 += CLB_ACC / 2) {
        float old[CLB_ACC / 2];

#pragma unroll
        for (uint e = 0; e < CLB_ACC / 2; e++) {
            uint r = row + (e0 + e) / (4 * CLB_FN) * 16 + (e0 + e) % 4 / 2 * 8;
            uint s = col + (e0 + e) / 4 % CLB_FN * 8 + e % 2;

            old[e] = beta != 0.0f && r < m && s < n ? c[r + s * ldc] : 0.0f;
        }
#pragma unroll
        for (uint e = 0; e < CLB_ACC / 2; e++) {
            uint r = row + (e0 + e) / (4 * CLB_FN) * 16 + (e0 + e) % 4 / 2 * 8;
            uint s = col + (e0 + e) / 4 % CLB_FN * 8 + e % 2;

            if (r < m && s < n)
                c[r + s * ldc] = fma(alpha, sum[e0 + e], beta * old[e]);
        }
    }
}
