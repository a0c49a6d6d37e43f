/* lu.h: what xGETRF, xGETRS and xGESV share: a factorisation and a solve under way. */
#ifndef CLB_LU_H
#define CLB_LU_H

#include "assist.h"

/* getrf.c: A = P*L*U. */
struct clb_getrf_state {
    struct clb_assist assist; /* the first, so that it has the factorisation around it */
    const struct clb_lu_call *call;
    struct clb_getrf problem;
    struct clb_getrf_result result;
    const struct clb_getrs *system;     /* to be solved with the factors as well, or NULL */
    struct clb_gemm_progress *solution; /* of that */
    int64_t *pivots; /* owned; NULL where the caller's array has 64-bit integers */
};

/* Guarded; also the dispatch's progress. */
clb_status clb_getrf_state_run(struct clb_getrf_state *state, struct clb_dispatch *dispatch,
                               struct clb_runtime *runtime, const struct clb_gemm_variant *variant);
/* Unguarded: finish what run has left, and give pivots and info to the caller. True when the next
 * library was needed. */
bool clb_getrf_state_complete(struct clb_getrf_state *state, clb_status status);
void clb_getrf_state_free(struct clb_getrf_state *state);

/* getrs.c: op(A)*X = B. */
struct clb_getrs_state {
    const struct clb_lu_call *call;
    const struct clb_next_lapack *next;
    struct clb_getrs problem;
    struct clb_gemm_progress progress;
    int64_t *pivots; /* owned; NULL where they are somebody else's */
};

/* The pivots as the algorithms take them: the caller's array, or a copy in *owned.
 * CLB_ERR_RANGE when one is no row: the reference does not check that, and whatever it does is the
 * next library's business. */
clb_status clb_lu_open_pivots(const struct clb_lu_call *call, int64_t **owned,
                              const int64_t **ipiv) CLB_MUST_CHECK;

struct clb_getrs clb_getrs_state_problem(const struct clb_lu_call *call, clb_op trans);
/* The missing part of B, or all of it. */
void clb_getrs_state_compute_next(const struct clb_getrs_state *solving,
                                  const struct clb_rect *rect);

/* Of Fortran integers in the caller's width; clb_set_integer is its counterpart. */
int64_t clb_lu_integer(const struct clb_lu_call *call, const void *array, size_t index);

#endif
