/* xPOTRF: A = U^H*U or A = L*L^H. The device updates the trailing matrix; diagonal blocks that the
 * algorithm factors on the CPU are factored by the next library. */
#include "chol.h"

#include <stdio.h>

/* ---- a factorisation ------------------------------------------------------------------------- */

static double potrf_work_of(size_t n)
{
    return clb_work_potrf((double)n, (double)n, (double)n);
}

static size_t next_potrf(const struct clb_host_blas *host, const struct clb_potrf *problem)
{
    struct clb_assist *assist = (struct clb_assist *)(uintptr_t)host->context;
    bool before = clb_assist_begin(assist, potrf_work_of(problem->n));
    size_t info = assist->next->call_potrf(assist->next->potrf, problem);
    clb_assist_end(before);
    return info;
}

/* The next library's functions for the algorithm. */
static struct clb_host_blas potrf_next_of(const struct clb_potrf_state *state)
{
    return (struct clb_host_blas){.context = &state->assist,
                                  .potrf = next_potrf,
                                  .trsm = clb_assist_trsm,
                                  .gemm = clb_assist_gemm};
}

/* The share of the operations that the device did for the columns that are written. */
static double potrf_device_share(const struct clb_potrf_state *state, clb_status status)
{
    double share = clb_assist_share(&state->assist, potrf_work_of(state->problem.n));
    if (status == CLB_OK)
        return share;
    return share * (double)state->result.columns_written / (double)state->problem.n;
}

clb_status clb_potrf_state_run(struct clb_potrf_state *state, struct clb_dispatch *dispatch,
                               struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct clb_chol_call *call = state->call;
    const struct clb_host_blas next = potrf_next_of(state);
    const struct clb_next_lapack *found = state->assist.next;
    if (found->potrf == NULL || found->trsm == NULL || found->gemm == NULL) {
        clb_log(CLB_LOG_INFO, "%s: there is no BLAS of its integer width to finish it",
                dispatch->symbol->next.name);
        return CLB_ERR_UNSUPPORTED;
    }
    state->problem = (struct clb_potrf){call->precision, call->upper, (size_t)call->n, call->a,
                                        (size_t)call->lda};
    /* The next library's idle threads spin and would take CPU time from a device that is the CPU.
     */
    bool held = runtime->device.unified && clb_next_hold_threads(found->potrf);
    state->assist.on_device = true;
    clb_status status = clb_potrf_run(runtime, variant, &state->problem, &next, &state->result);
    state->assist.on_device = false;
    if (held)
        clb_next_release_threads();
    /* The algorithm has not begun. */
    if (status == CLB_ERR_UNSUPPORTED && state->result.columns_written == 0)
        return status;
    dispatch->kernel = state->result.kernel;
    dispatch->parts = state->problem.n;
    dispatch->written = status == CLB_OK ? dispatch->parts : state->result.columns_written;
    dispatch->share = potrf_device_share(state, status);
    return status;
}

bool clb_potrf_state_complete(struct clb_potrf_state *state, clb_status status)
{
    const struct clb_host_blas next = potrf_next_of(state);
    const struct clb_chol_call *call = state->call;
    struct clb_potrf_result *result = &state->result;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = next.potrf(&next, &state->problem);
    else if (status != CLB_OK)
        clb_potrf_resume(&state->problem, &next, result);
    clb_set_integer(call->info, 0, call->wide, (int64_t)result->info);
    return status != CLB_OK;
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct potrf {
    struct clb_dispatch dispatch;
    struct clb_potrf_state state;
};

static const struct clb_chol_call *potrf_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct potrf *)dispatch)->state.call;
}

static bool potrf_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_chol_call *call = potrf_call_of(dispatch);
    return call->options_valid && call->n >= 0 && clb_ld_is_valid(call->lda, call->n);
}

static bool potrf_is_quick(const struct clb_dispatch *dispatch)
{
    return potrf_call_of(dispatch)->n == 0;
}

static clb_status potrf_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    return clb_potrf_state_run(&((struct potrf *)dispatch)->state, dispatch, runtime, variant);
}

static bool potrf_complete(struct clb_dispatch *dispatch, clb_status status)
{
    return clb_potrf_state_complete(&((struct potrf *)dispatch)->state, status);
}

static void potrf_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_chol_call *call = potrf_call_of(dispatch);
    snprintf(text, size, "%c n=%lld", call->upper ? 'U' : 'L', (long long)call->n);
}

bool clb_route_potrf(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {potrf_is_valid, potrf_is_quick, potrf_run,
                                                 potrf_complete, potrf_describe};
    struct potrf potrf = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->potrf,
                     .lapacke = call->lapacke,
                     .m = call->n,
                     .n = call->n,
                     .k = call->n,
                     .smallest = (size_t)call->n},
        .state = {.assist = {.next = next}, .call = call},
    };
    return clb_route_dispatch(&potrf.dispatch);
}
