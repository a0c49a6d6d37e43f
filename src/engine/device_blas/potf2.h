/* potf2: small diagonal blocks of Cholesky factored by the device (kernels/potf2.cl), where that
 * takes less time than a round trip to the CPU. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_POTF2_H
#define CLB_POTF2_H

#include "device_blas.h"

struct clb_potf2 {
    struct clb_program *program; /* NULL: the device does not factor blocks */
    size_t most, group;          /* largest order of a block; work-items */
    struct clb_buffer *state, *state_host;
    clb_event seen; /* the last copy of the state to the host */
};

/* CLB_ERR_UNSUPPORTED when the device factored a test block wrongly. On failure nothing is held. */
clb_status clb_potf2_open(struct clb_potf2 *block, struct clb_workspace *workspace) CLB_MUST_CHECK;
void clb_potf2_close(struct clb_potf2 *block, struct clb_workspace *workspace, bool idle);

/* clb_potf2_prepare: the same without the test; clb_potf2_check: the test (clb_check_once). */
clb_status clb_potf2_prepare(struct clb_potf2 *block,
                             struct clb_workspace *workspace) CLB_MUST_CHECK;
clb_status clb_potf2_check(struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* Enqueue the factorisation in place of one triangle of a block of at most `most` rows, which
 * begins with column `first` of the matrix; the other triangle is neither read nor written. */
clb_status clb_potf2_factor(struct clb_potf2 *block, struct clb_workspace *workspace,
                            const struct clb_dmat *x, bool upper, size_t first) CLB_MUST_CHECK;

/* Set *info to the first column (1-based) with a pivot that is not positive, or 0, one call late:
 * returns what the call before has asked for, which the first call has not, and enqueues a copy of
 * the current value, so that the device has work while the host waits. */
clb_status clb_potf2_look(struct clb_potf2 *block, struct clb_workspace *workspace,
                          size_t *info) CLB_MUST_CHECK;
/* The same, but not late: waits for everything that was enqueued. */
clb_status clb_potf2_finish(struct clb_potf2 *block, struct clb_workspace *workspace,
                            size_t *info) CLB_MUST_CHECK;

#endif
