/* xTRTRI inverts a triangle, xLAUUM multiplies it by its transpose, xPOTRI does both. */
#include "dispatch.h"

#include <stdio.h>

struct inverse {
    struct clb_dispatch dispatch;
    const struct clb_chol_call *call;
    const struct clb_next_lapack *next;
    struct clb_inverse problem;
};

static const struct clb_chol_call *inverse_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct inverse *)dispatch)->call;
}

static bool inverse_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_chol_call *call = inverse_call_of(dispatch);
    return call->options_valid && call->n >= 0 && clb_ld_is_valid(call->lda, call->n);
}

static bool inverse_is_quick(const struct clb_dispatch *dispatch)
{
    return inverse_call_of(dispatch)->n == 0;
}

static clb_status inverse_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant)
{
    struct inverse *inverse = (struct inverse *)dispatch;
    struct clb_inverse *problem = &inverse->problem;
    const struct clb_chol_call *call = inverse->call;
    problem->n = (size_t)call->n;
    problem->a = call->a;
    problem->lda = (size_t)call->lda;
    if (dispatch->next == NULL)
        return CLB_ERR_UNSUPPORTED;
    /* A zero on the diagonal: LAPACK sets info to its index and leaves the matrix unchanged. */
    if (problem->inverts && !problem->unit &&
        clb_diagonal_has_zero(problem->precision, problem->n, problem->a, problem->lda)) {
        dispatch->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    dispatch->parts = 1;
    clb_status status = clb_inverse_run(runtime, variant, problem, &dispatch->kernel);
    if (status == CLB_ERR_UNSUPPORTED)
        dispatch->parts = 0;
    dispatch->written = status == CLB_OK;
    dispatch->share = status == CLB_OK ? 1 : 0;
    return status;
}

static bool inverse_complete(struct clb_dispatch *dispatch, clb_status status)
{
    const struct inverse *inverse = (const struct inverse *)dispatch;
    const struct clb_chol_call *call = inverse->call;
    size_t info = 0;
    if (status != CLB_OK)
        info = inverse->next->call_inverse(dispatch->next, &inverse->problem);
    clb_set_integer(call->info, 0, call->wide, (int64_t)info);
    return status != CLB_OK;
}

static void inverse_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_chol_call *call = inverse_call_of(dispatch);
    snprintf(text, size, "%c%s n=%lld", call->upper ? 'U' : 'L', call->unit ? "U" : "",
             (long long)call->n);
}

static bool route(struct clb_symbol *symbol, const struct clb_chol_call *call,
                  const struct clb_next_lapack *next, const struct clb_target *target, bool inverts,
                  bool multiplies)
{
    static const struct clb_dispatch_ops type = {inverse_is_valid, inverse_is_quick, inverse_run,
                                                 inverse_complete, inverse_describe};
    struct inverse inverse = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = target,
                     .lapacke = call->lapacke,
                     .m = call->n,
                     .n = call->n,
                     .k = call->n,
                     .smallest = (size_t)call->n},
        .call = call,
        .next = next,
        .problem = {.precision = call->precision,
                    .inverts = inverts,
                    .multiplies = multiplies,
                    .upper = call->upper,
                    .unit = call->unit},
    };
    return clb_route_dispatch(&inverse.dispatch);
}

bool clb_route_potri(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next)
{
    return route(symbol, call, next, next->potri, true, true);
}

bool clb_route_lauum(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next)
{
    return route(symbol, call, next, next->lauum, false, true);
}

bool clb_route_trtri(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next)
{
    return route(symbol, call, next, next->trtri, true, false);
}
