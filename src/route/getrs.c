/* xGETRS: op(A)*X = B from the factors of xGETRF. */
#include "lu.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a solve --------------------------------------------------------------------------------- */

struct clb_getrs clb_getrs_state_problem(const struct clb_lu_call *call, clb_op trans)
{
    return (struct clb_getrs){.precision = call->precision,
                              .trans = trans,
                              .n = (size_t)call->n,
                              .nrhs = (size_t)call->nrhs,
                              .a = call->a,
                              .lda = (size_t)call->lda,
                              .b = call->b,
                              .ldb = (size_t)call->ldb};
}

/* A part is a range of columns of B. */
void clb_getrs_state_compute_next(const struct clb_getrs_state *state, const struct clb_rect *rect)
{
    struct clb_getrs part = state->problem;
    if (rect != NULL)
        part = clb_getrs_part(&state->problem, rect);
    state->next->call_getrs(state->next->getrs, &part, state->call->ipiv);
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct getrs {
    struct clb_dispatch dispatch;
    struct clb_getrs_state state;
};

static const struct clb_lu_call *getrs_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct getrs *)dispatch)->state.call;
}

static bool getrs_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_lu_call *call = getrs_call_of(dispatch);
    return call->trans != CLB_OP_INVALID && call->n >= 0 && call->nrhs >= 0 &&
           clb_ld_is_valid(call->lda, call->n) && clb_ld_is_valid(call->ldb, call->n);
}

static bool getrs_is_quick(const struct clb_dispatch *dispatch)
{
    return getrs_call_of(dispatch)->n == 0 || getrs_call_of(dispatch)->nrhs == 0;
}

clb_status clb_lu_open_pivots(const struct clb_lu_call *call, int64_t **owned, const int64_t **ipiv)
{
    size_t n = (size_t)call->n;
    if (!call->wide) {
        *owned = malloc(n * sizeof **owned);
        if (*owned == NULL)
            return CLB_ERR_NOMEM;
    }
    *ipiv = call->wide ? call->ipiv : *owned;
    for (size_t i = 0; i < n; i++) {
        int64_t pivot = clb_lu_integer(call, call->ipiv, i);
        if (pivot < 1 || pivot > call->n)
            return CLB_ERR_RANGE;
        if (!call->wide)
            (*owned)[i] = pivot;
    }
    return CLB_OK;
}

static clb_status getrs_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct clb_getrs_state *state = &((struct getrs *)dispatch)->state;
    const struct clb_lu_call *call = state->call;
    state->problem = clb_getrs_state_problem(call, call->trans);
    if (state->next->getrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = clb_lu_open_pivots(call, &state->pivots, &state->problem.ipiv);
    if (status == CLB_ERR_RANGE)
        dispatch->declined = CLB_REASON_INVALID;
    if (status != CLB_OK)
        return status;
    status = clb_getrs_run(runtime, variant, &state->problem, &state->progress);
    clb_dispatch_take_progress(dispatch, &state->progress, status, state->problem.n,
                               state->problem.nrhs);
    return status;
}

static void getrs_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    clb_getrs_state_compute_next(&((struct getrs *)dispatch)->state, rect);
}

static bool getrs_complete(struct clb_dispatch *dispatch, clb_status status)
{
    const struct clb_getrs_state *state = &((const struct getrs *)dispatch)->state;
    bool next_used =
        clb_dispatch_complete_parts(dispatch, &state->progress, status, getrs_compute_next);
    clb_set_integer(state->call->info, 0, state->call->wide, 0);
    return next_used;
}

static void getrs_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_lu_call *call = getrs_call_of(dispatch);
    snprintf(text, size, "%c n=%lld nrhs=%lld", clb_op_letter(call->trans), (long long)call->n,
             (long long)call->nrhs);
}

bool clb_route_getrs(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {getrs_is_valid, getrs_is_quick, getrs_run,
                                                 getrs_complete, getrs_describe};
    struct getrs getrs = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->getrs,
                     .lapacke = call->lapacke,
                     .m = call->n,
                     .n = call->n,
                     .k = call->nrhs,
                     .smallest = clb_min((size_t)call->n, (size_t)call->nrhs)},
        .state = {.call = call, .next = next},
    };
    bool computed = clb_route_dispatch(&getrs.dispatch);
    clb_gemm_progress_free(&getrs.state.progress);
    free(getrs.state.pivots);
    return computed;
}
