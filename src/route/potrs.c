/* xPOTRS: A*X = B from the factor of xPOTRF. */
#include "chol.h"

#include <stdio.h>

/* ---- a solve --------------------------------------------------------------------------------- */

struct clb_potrs clb_potrs_state_problem(const struct clb_chol_call *call)
{
    return (struct clb_potrs){.precision = call->precision,
                              .upper = call->upper,
                              .n = (size_t)call->n,
                              .nrhs = (size_t)call->nrhs,
                              .a = call->a,
                              .lda = (size_t)call->lda,
                              .b = call->b,
                              .ldb = (size_t)call->ldb};
}

/* A part is a range of columns of B. */
void clb_potrs_state_compute_next(const struct clb_potrs_state *state, const struct clb_rect *rect)
{
    struct clb_potrs part = state->problem;
    if (rect != NULL)
        part = clb_potrs_part(&state->problem, rect);
    state->next->call_potrs(state->next->potrs, &part);
}

bool clb_chol_call_is_valid(const struct clb_chol_call *call)
{
    return call->options_valid && call->n >= 0 && call->nrhs >= 0 &&
           clb_ld_is_valid(call->lda, call->n) && clb_ld_is_valid(call->ldb, call->n);
}

void clb_chol_call_describe(const struct clb_chol_call *call, char *text, size_t size)
{
    snprintf(text, size, "%c n=%lld nrhs=%lld", call->upper ? 'U' : 'L', (long long)call->n,
             (long long)call->nrhs);
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct potrs {
    struct clb_dispatch dispatch;
    struct clb_potrs_state state;
};

static const struct clb_chol_call *potrs_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct potrs *)dispatch)->state.call;
}

static bool potrs_is_valid(const struct clb_dispatch *dispatch)
{
    return clb_chol_call_is_valid(potrs_call_of(dispatch));
}

static bool potrs_is_quick(const struct clb_dispatch *dispatch)
{
    return potrs_call_of(dispatch)->n == 0 || potrs_call_of(dispatch)->nrhs == 0;
}

static clb_status potrs_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct clb_potrs_state *state = &((struct potrs *)dispatch)->state;
    state->problem = clb_potrs_state_problem(state->call);
    if (state->next->potrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = clb_potrs_run(runtime, variant, &state->problem, &state->progress);
    clb_dispatch_take_progress(dispatch, &state->progress, status, state->problem.n,
                               state->problem.nrhs);
    return status;
}

static void potrs_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    clb_potrs_state_compute_next(&((struct potrs *)dispatch)->state, rect);
}

static bool potrs_complete(struct clb_dispatch *dispatch, clb_status status)
{
    const struct clb_potrs_state *state = &((const struct potrs *)dispatch)->state;
    bool next_used =
        clb_dispatch_complete_parts(dispatch, &state->progress, status, potrs_compute_next);
    clb_set_integer(state->call->info, 0, state->call->wide, 0);
    return next_used;
}

static void potrs_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    clb_chol_call_describe(potrs_call_of(dispatch), text, size);
}

bool clb_route_potrs(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {potrs_is_valid, potrs_is_quick, potrs_run,
                                                 potrs_complete, potrs_describe};
    struct potrs potrs = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->potrs,
                     .lapacke = call->lapacke,
                     .m = call->n,
                     .n = call->n,
                     .k = call->nrhs,
                     .smallest = clb_min((size_t)call->n, (size_t)call->nrhs)},
        .state = {.call = call, .next = next},
    };
    bool computed = clb_route_dispatch(&potrs.dispatch);
    clb_gemm_progress_free(&potrs.state.progress);
    return computed;
}
