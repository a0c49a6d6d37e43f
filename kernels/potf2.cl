/* A small diagonal block of Cholesky's factorisation, A = L*L^H, factored by one work-group in
 * local memory: right-looking, a column at a time.
 * SPDX-License-Identifier: BSD-3-Clause
 * A(i, p) is x[x_off + i*xi + p*xp] for i >= p; offsets and strides count elements. For A = U^H*U
 * the caller exchanges the strides, and L is U^T, since that is the factor of conj(A). Imaginary
 * parts on the diagonal are not read and are set to zero.
 *
 * Every loop has the same bounds for all work-items, with a condition inside for those that don't
 * take part: PoCL 7.1 miscompiles loops that begin at a column of the work-item's own where a row
 * of work-items has none (blocks of 1 to 7 columns).
 *
 * The first pivot that is not positive (or NaN) is noted in `state`, if that is 0: its column,
 * counted from 1, where the block begins with column `first`. That column and those after it are
 * undefined then; the columns before it are right.
 *
 * CLB_NB: largest order of a block. CLB_WG: work-items.
 */

#include "common.h"

#pragma OPENCL FP_CONTRACT OFF

#if CLB_WG % CLB_NB
#error "CLB_WG must be a multiple of CLB_NB"
#endif

/* Columns that the work-items process at once. */
#define CLB_COLS (CLB_WG / CLB_NB)
/* Where element (i, p) is in local memory; an odd column length keeps rows in different banks. */
#define CLB_AT(i, p) (((i) + (p) * (CLB_NB + 1)) * CLB_PARTS)

/* Single precision's sqrt may be off by 3 ulp. */
static inline real get_root(real x)
{
    const real root = sqrt(x);

#if CLB_DOUBLE
    return root;
#else
    return x > 0 && isfinite(x) ? fma(fma(-root, root, x), 0.5f / root, root) : root;
#endif
}

CLB_KERNEL_OF(CLB_WG)
void clb_potrf_block(global real *x, ulong x_off, long xi, long xp, uint n, uint first,
                     global int *state CLB_LAUNCH_PARAMETERS)
{
    CLB_NOTE_LAUNCH();
    local real a[CLB_AT(0, CLB_NB)];
    local real root_of[CLB_NB];
    const uint id = get_local_id(0);
    const uint row = id % CLB_NB, col = id / CLB_NB;
    uint bad = 0;

    for (uint p0 = 0; p0 < n; p0 += CLB_COLS) {
        const uint p = p0 + col;
        const long at = ((long)x_off + (long)row * xi + (long)p * xp) * CLB_PARTS;

        for (uint part = 0; part < CLB_PARTS; part++)
            if (row >= p && row < n)
                a[CLB_AT(row, p) + part] = part > 0 && row == p ? 0 : x[at + part];
    }
    for (uint j = 0; j < n; j++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        const real pivot = a[CLB_AT(j, j)], root = get_root(pivot);

        if (bad == 0 && !(pivot > 0))
            bad = j + 1;
        if (id == 0)
            root_of[j] = root;
        for (uint part = 0; part < CLB_PARTS; part++)
            if (id > j && id < n)
                a[CLB_AT(id, j) + part] /= root;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint p0 = j + 1; p0 < n; p0 += CLB_COLS) {
            const uint p = p0 + col;

            if (row < p || row >= n)
                continue;
            const real re = a[CLB_AT(row, j)], other = a[CLB_AT(p, j)];
#if CLB_COMPLEX
            const real im = a[CLB_AT(row, j) + 1], other_im = a[CLB_AT(p, j) + 1];

            a[CLB_AT(row, p)] = fma(-re, other, fma(-im, other_im, a[CLB_AT(row, p)]));
            a[CLB_AT(row, p) + 1] = fma(-im, other, fma(re, other_im, a[CLB_AT(row, p) + 1]));
#else
            a[CLB_AT(row, p)] = fma(-re, other, a[CLB_AT(row, p)]);
#endif
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint p0 = 0; p0 < n; p0 += CLB_COLS) {
        const uint p = p0 + col;
        const long at = ((long)x_off + (long)row * xi + (long)p * xp) * CLB_PARTS;

        for (uint part = 0; part < CLB_PARTS; part++)
            if (row >= p && row < n)
                x[at + part] = row > p ? a[CLB_AT(row, p) + part] : part > 0 ? 0 : root_of[p];
    }
    if (id == 0 && bad != 0 && state[0] == 0)
        state[0] = (int)(first + bad);
}
