/* SPDX-License-Identifier: BSD-3-Clause
 * gemm: products of the caller's matrices and the other Level 3 routines on the device. Nothing
 * here reads the environment, calls dlsym or decides whether to use the device. */
#ifndef CLB_GEMM_H
#define CLB_GEMM_H

#include "blas/blas.h"

struct clb_call;
struct clb_gemm_variant;
struct clb_runtime;

/* Products of general matrices, and as extensions of these the other Level 3 routines, with
 * structured operands, triangular results, and sums of two products.
 *
 * On failure, the parts of C that *progress does not call written must be computed elsewhere; they
 * are untouched, unless C is not read. When this returns, no command that uses the caller's memory
 * is outstanding. The caller frees *progress. CLB_ERR_RANGE: an operand is triangular, and parts of
 * the product that are not finite were not written, because zeros outside the triangle were
 * multiplied as well. The parts don't overlap and cover the region of C, and
 *   - in a triangular region each is inside the triangle, or a square on the diagonal (its `row`
 *     is its `col`), of which only the triangle is meant;
 *   - in place they are independent: blocks of all rows (left) or all columns (right);
 *   - otherwise they are any rectangles.
 * No parts: nothing was begun. */
clb_status clb_gemm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_gemm *problem,
                        struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* Run a valid call of a Level 3 routine other than xTRSM by one of them; or where `count` is not 0
 * a batch of such products. CLB_ERR_UNSUPPORTED without parts: these must be run one by one,
 * because the device shares the host's memory, or C does not fit into the device's. */
clb_status clb_product_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_call *call, const struct clb_matrices *batch,
                           size_t count, struct clb_gemm_progress *progress) CLB_MUST_CHECK;

#endif
