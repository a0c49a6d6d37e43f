/* xGETRF: A = P*L*U. The device updates the trailing matrix; panels that the algorithm factors on
 * the CPU are factored by the next library. */
#include "lu.h"

#include <stdio.h>
#include <stdlib.h>

int64_t clb_lu_integer(const struct clb_lu_call *call, const void *array, size_t index)
{
    return call->wide ? ((const int64_t *)array)[index] : ((const int32_t *)array)[index];
}

/* ---- a factorisation ------------------------------------------------------------------------- */

static size_t next_getrf(const struct clb_host_blas *host, const struct clb_getrf *panel,
                         int64_t *ipiv)
{
    struct clb_getrf_state *state = (struct clb_getrf_state *)(uintptr_t)host->context;
    const struct clb_next_lapack *next = state->assist.next;
    double work =
        clb_work_getrf((double)panel->m, (double)panel->n, (double)clb_min(panel->m, panel->n));
    bool before = clb_assist_begin(&state->assist, work);
    size_t info = next->call_getrf(next->getrf, panel, ipiv);
    clb_assist_end(before);
    return info;
}

/* The next library's functions for the algorithm. */
static struct clb_host_blas getrf_next_of(const struct clb_getrf_state *state)
{
    return (struct clb_host_blas){.context = &state->assist,
                                  .getrf = next_getrf,
                                  .trsm = clb_assist_trsm,
                                  .gemm = clb_assist_gemm};
}

static bool open_factoring(struct clb_getrf_state *state)
{
    const struct clb_lu_call *call = state->call;
    size_t m = (size_t)call->m, n = (size_t)call->n;
    state->problem = (struct clb_getrf){call->precision, m, n, call->a, (size_t)call->lda};
    if (!call->wide)
        state->pivots = malloc(clb_min(m, n) * sizeof *state->pivots);
    state->result.ipiv = call->wide ? call->ipiv : state->pivots;
    return state->result.ipiv != NULL;
}

/* The share of the operations that the device did for the columns that are written. */
static double getrf_device_share(const struct clb_getrf_state *state, clb_status status)
{
    double m = (double)state->problem.m, n = (double)state->problem.n;
    double work = clb_work_getrf(m, n, m < n ? m : n);
    double share = clb_assist_share(&state->assist, work);
    return status == CLB_OK ? share : share * (double)state->result.columns_written / n;
}

clb_status clb_getrf_state_run(struct clb_getrf_state *state, struct clb_dispatch *dispatch,
                               struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct clb_host_blas next = getrf_next_of(state);
    const struct clb_next_lapack *found = state->assist.next;
    if (found->getrf == NULL || found->trsm == NULL || found->gemm == NULL) {
        clb_log(CLB_LOG_INFO, "%s: there is no BLAS of its integer width to finish it",
                dispatch->symbol->next.name);
        return CLB_ERR_UNSUPPORTED;
    }
    if (!open_factoring(state))
        return CLB_ERR_NOMEM;
    /* The next library's idle threads spin and would take CPU time from a device that is the CPU.
     */
    bool held = runtime->device.unified && clb_next_hold_threads(found->getrf);
    state->assist.on_device = true;
    clb_status status =
        state->system != NULL
            ? clb_gesv_run(runtime, variant, &state->problem, state->system, &next, &state->result,
                           state->solution)
            : clb_getrf_run(runtime, variant, &state->problem, &next, &state->result);
    state->assist.on_device = false;
    if (held)
        clb_next_release_threads();
    /* The algorithm has not begun. */
    if (status == CLB_ERR_UNSUPPORTED && state->result.columns_written == 0)
        return status;
    dispatch->kernel = state->result.kernel;
    dispatch->parts = state->problem.n;
    dispatch->written = status == CLB_OK ? dispatch->parts : state->result.columns_written;
    dispatch->share = getrf_device_share(state, status);
    return status;
}

static void give_results(const struct clb_getrf_state *state)
{
    const struct clb_lu_call *call = state->call;
    size_t count = clb_min(state->problem.m, state->problem.n);
    for (size_t i = 0; state->pivots != NULL && i < count; i++)
        clb_set_integer(call->ipiv, i, call->wide, state->pivots[i]);
    clb_set_integer(call->info, 0, call->wide, (int64_t)state->result.info);
}

bool clb_getrf_state_complete(struct clb_getrf_state *state, clb_status status)
{
    const struct clb_host_blas next = getrf_next_of(state);
    const struct clb_next_lapack *found = state->assist.next;
    struct clb_getrf_result *result = &state->result;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = found->call_getrf(found->getrf, &state->problem, result->ipiv);
    else if (status != CLB_OK)
        clb_getrf_resume(&state->problem, &next, result);
    give_results(state);
    return status != CLB_OK;
}

void clb_getrf_state_free(struct clb_getrf_state *state)
{
    free(state->pivots);
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct getrf {
    struct clb_dispatch dispatch;
    struct clb_getrf_state state;
};

static const struct clb_lu_call *getrf_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct getrf *)dispatch)->state.call;
}

static bool getrf_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_lu_call *call = getrf_call_of(dispatch);
    return call->m >= 0 && call->n >= 0 && clb_ld_is_valid(call->lda, call->m);
}

static bool getrf_is_quick(const struct clb_dispatch *dispatch)
{
    return getrf_call_of(dispatch)->m == 0 || getrf_call_of(dispatch)->n == 0;
}

static clb_status getrf_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    return clb_getrf_state_run(&((struct getrf *)dispatch)->state, dispatch, runtime, variant);
}

static bool getrf_complete(struct clb_dispatch *dispatch, clb_status status)
{
    return clb_getrf_state_complete(&((struct getrf *)dispatch)->state, status);
}

static void getrf_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    snprintf(text, size, "m=%lld n=%lld", (long long)getrf_call_of(dispatch)->m,
             (long long)getrf_call_of(dispatch)->n);
}

bool clb_route_getrf(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {getrf_is_valid, getrf_is_quick, getrf_run,
                                                 getrf_complete, getrf_describe};
    const int64_t smaller = call->m < call->n ? call->m : call->n;
    struct getrf getrf = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->getrf,
                     .lapacke = call->lapacke,
                     .m = call->m,
                     .n = call->n,
                     .k = smaller,
                     .smallest = (size_t)smaller},
        .state = {.assist = {.next = next}, .call = call},
    };
    bool computed = clb_route_dispatch(&getrf.dispatch);
    clb_getrf_state_free(&getrf.state);
    return computed;
}
