/* lu.h: the state of an LU factorisation and of a solve, shared by xGETRF, xGETRS and xGESV. */
#ifndef CLB_LU_H
#define CLB_LU_H

#include "assist.h"

/* getrf.c: A = P*L*U. */
struct clb_getrf_state {
    struct clb_assist assist; /* first member: its address is also that of the factorisation */
    const struct clb_lu_call *call;
    struct clb_getrf problem;
    struct clb_getrf_result result;
    const struct clb_getrs *system;     /* a system to be solved with the factors, or NULL */
    struct clb_gemm_progress *solution; /* progress of that solve */
    int64_t *pivots; /* owned; NULL where the caller's array has 64-bit integers */
};

/* Run on the device, inside clb_host_state_save/restore, and set the dispatch's progress. */
clb_status clb_getrf_state_run(struct clb_getrf_state *state, struct clb_dispatch *dispatch,
                               struct clb_runtime *runtime, const struct clb_gemm_variant *variant);
/* After clb_host_state_restore: compute with the next library what run has left, and store pivots
 * and info for the caller. True when the next library was needed. */
bool clb_getrf_state_complete(struct clb_getrf_state *state, clb_status status);
void clb_getrf_state_free(struct clb_getrf_state *state);

/* getrs.c: op(A)*X = B. */
struct clb_getrs_state {
    const struct clb_lu_call *call;
    const struct clb_next_lapack *next;
    struct clb_getrs problem;
    struct clb_gemm_progress progress;
    int64_t *pivots; /* owned; NULL where the problem's pivots are not a copy */
};

/* Sets *ipiv to the pivots as 64-bit integers: the caller's array, or a copy in *owned.
 * CLB_ERR_RANGE when a pivot is not a row index. Reference LAPACK does not check that; the next
 * library gets such a call. */
clb_status clb_lu_open_pivots(const struct clb_lu_call *call, int64_t **owned,
                              const int64_t **ipiv) CLB_MUST_CHECK;

struct clb_getrs clb_getrs_state_problem(const struct clb_lu_call *call, clb_op trans);
/* Compute a missing part of B with the next library; all of B when `rect` is NULL. */
void clb_getrs_state_compute_next(const struct clb_getrs_state *solving,
                                  const struct clb_rect *rect);

/* Read an element of an array of Fortran integers of the caller's width; see clb_set_integer. */
int64_t clb_lu_integer(const struct clb_lu_call *call, const void *array, size_t index);

#endif
