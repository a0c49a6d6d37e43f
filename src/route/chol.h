/* chol.h: state of a Cholesky factorisation and of a solve, shared by xPOTRF, xPOTRS and xPOSV. */
#ifndef CLB_CHOL_H
#define CLB_CHOL_H

#include "assist.h"

/* potrf.c: A = U^H*U or L*L^H. */
struct clb_potrf_state {
    struct clb_assist assist; /* first member: its address is also that of the factorisation */
    const struct clb_chol_call *call;
    struct clb_potrf problem;
    struct clb_potrf_result result;
};

/* Run on the device, inside clb_host_state_save/restore, and set the dispatch's progress. */
clb_status clb_potrf_state_run(struct clb_potrf_state *state, struct clb_dispatch *dispatch,
                               struct clb_runtime *runtime, const struct clb_gemm_variant *variant);
/* After clb_host_state_restore: compute with the next library what run has left, and store info for
 * the caller. True when the next library was needed. */
bool clb_potrf_state_complete(struct clb_potrf_state *state, clb_status status);

/* potrs.c: A*X = B from the factor. */
struct clb_potrs_state {
    const struct clb_chol_call *call;
    const struct clb_next_lapack *next;
    struct clb_potrs problem;
    struct clb_gemm_progress progress;
};

struct clb_potrs clb_potrs_state_problem(const struct clb_chol_call *call);
/* Compute a missing part of B with the next library; all of B when `rect` is NULL. */
void clb_potrs_state_compute_next(const struct clb_potrs_state *solving,
                                  const struct clb_rect *rect);

/* The argument checks and the log text of xPOTRS and xPOSV. */
bool clb_chol_call_is_valid(const struct clb_chol_call *call);
void clb_chol_call_describe(const struct clb_chol_call *call, char *text, size_t size);

#endif
