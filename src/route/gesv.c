/* xGESV: A = P*L*U, then A*X = B unless A is singular. */
#include "driver.h"
#include "lu.h"

#include <stdio.h>

struct gesv {
    struct clb_driver driver;
    struct clb_getrf_state state;
    struct clb_getrs_state solving;
};

static struct gesv *gesv_of(const struct clb_driver *driver)
{
    return (struct gesv *)(uintptr_t)driver;
}

static const struct clb_lu_call *gesv_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct gesv *)dispatch)->state.call;
}

/* ---- the factorisation and the solve --------------------------------------------------------- */

/* In mode `auto` the next library solves for few right-hand sides, unless the factors are on the
 * device and would have to be read from host memory. */
static bool gesv_is_solved_here(const struct gesv *gesv, const struct clb_runtime *runtime,
                                const struct clb_gemm_variant *variant)
{
    return !(clb_dispatch_is_auto(&gesv->driver.dispatch) && runtime->device.unified &&
             (size_t)gesv->state.call->nrhs < variant->tuning.smallest);
}

static clb_status gesv_factor(struct clb_driver *driver, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant)
{
    struct gesv *gesv = gesv_of(driver);
    struct clb_getrf_state *state = &gesv->state;
    const struct clb_getrf_result *result = &state->result;
    if (gesv->solving.next->getrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    gesv->solving.problem = clb_getrs_state_problem(state->call, CLB_OP_N);
    if (gesv_is_solved_here(gesv, runtime, variant)) {
        state->system = &gesv->solving.problem;
        state->solution = driver->progress;
    }
    clb_status status = clb_getrf_state_run(state, &driver->dispatch, runtime, variant);
    gesv->solving.problem.ipiv = result->ipiv;
    bool factored = state->problem.n > 0 && result->columns_written == state->problem.n;
    if (!factored)
        return status;
    driver->solved = state->system != NULL && result->info == 0;
    if (driver->solved)
        driver->solution = status;
    return CLB_OK;
}

static bool gesv_complete_factor(struct clb_driver *driver, clb_status status)
{
    return clb_getrf_state_complete(&gesv_of(driver)->state, status);
}

static size_t gesv_info(const struct clb_driver *driver)
{
    return gesv_of(driver)->state.result.info;
}

static void gesv_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    clb_getrs_state_compute_next(&((struct gesv *)dispatch)->solving, rect);
}

/* ---- the routine ----------------------------------------------------------------------------- */

static bool gesv_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_lu_call *call = gesv_call_of(dispatch);
    return call->n >= 0 && call->nrhs >= 0 && clb_ld_is_valid(call->lda, call->n) &&
           clb_ld_is_valid(call->ldb, call->n);
}

/* Without right-hand sides reference LAPACK factors A and other libraries don't. */
static bool gesv_is_quick(const struct clb_dispatch *dispatch)
{
    return gesv_call_of(dispatch)->n == 0 || gesv_call_of(dispatch)->nrhs == 0;
}

static void gesv_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_lu_call *call = gesv_call_of(dispatch);
    snprintf(text, size, "n=%lld nrhs=%lld", (long long)call->n, (long long)call->nrhs);
}

bool clb_route_gesv(struct clb_symbol *symbol, const struct clb_lu_call *call,
                    const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {gesv_is_valid, gesv_is_quick, clb_driver_run,
                                                 clb_driver_complete, gesv_describe};
    static const struct clb_driver_type driver = {gesv_factor, gesv_complete_factor, gesv_info,
                                                  NULL, gesv_compute_next};
    double n = (double)call->n, nrhs = (double)call->nrhs;
    struct gesv gesv = {
        .driver = {.dispatch = {.type = &type,
                                .symbol = symbol,
                                .next = next->getrf,
                                .lapacke = call->lapacke,
                                .m = call->n,
                                .n = call->n,
                                .k = call->nrhs,
                                .smallest = (size_t)call->n},
                   .type = &driver,
                   .factor_work = clb_work_getrf(n, n, n),
                   .solve_work = clb_work_getrs(n, n, nrhs),
                   .progress = &gesv.solving.progress},
        .state = {.assist = {.next = next}, .call = call},
        .solving = {.call = call, .next = next},
    };
    bool computed = clb_route_dispatch(&gesv.driver.dispatch);
    clb_gemm_progress_free(&gesv.solving.progress);
    clb_getrf_state_free(&gesv.state);
    return computed;
}
