/* chol.h: what xPOTRF, xPOTRS and xPOSV share: a factorisation and a solve under way. */
#ifndef CLB_CHOL_H
#define CLB_CHOL_H

#include "assist.h"

/* potrf.c: A = U^H*U or L*L^H. */
struct clb_potrf_state {
    struct clb_assist assist; /* the first, so that it has the factorisation around it */
    const struct clb_chol_call *call;
    struct clb_potrf problem;
    struct clb_potrf_result result;
};

/* Guarded; also the dispatch's progress. */
clb_status clb_potrf_state_run(struct clb_potrf_state *state, struct clb_dispatch *dispatch,
                               struct clb_runtime *runtime, const struct clb_gemm_variant *variant);
/* Unguarded: finish what run has left, and give info to the caller. True when the next library was
 * needed. */
bool clb_potrf_state_complete(struct clb_potrf_state *state, clb_status status);

/* potrs.c: A*X = B from the factor. */
struct clb_potrs_state {
    const struct clb_chol_call *call;
    const struct clb_next_lapack *next;
    struct clb_potrs problem;
    struct clb_gemm_progress progress;
};

struct clb_potrs clb_potrs_state_problem(const struct clb_chol_call *call);
/* The missing part of B, or all of it. */
void clb_potrs_state_compute_next(const struct clb_potrs_state *solving,
                                  const struct clb_rect *rect);

/* The checks of xPOTRS and xPOSV. */
bool clb_chol_call_is_valid(const struct clb_chol_call *call);
void clb_chol_call_describe(const struct clb_chol_call *call, char *text, size_t size);

#endif
