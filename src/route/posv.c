/* xPOSV: A = U^H*U or L*L^H, then A*X = B unless a pivot is not positive. */
#include "chol.h"
#include "driver.h"

struct posv {
    struct clb_driver driver;
    struct clb_potrf_state state;
    struct clb_potrs_state solving;
};

static struct posv *posv_of(const struct clb_driver *driver)
{
    return (struct posv *)(uintptr_t)driver;
}

static const struct clb_chol_call *posv_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct posv *)dispatch)->state.call;
}

/* ---- the factorisation and the solve --------------------------------------------------------- */

static clb_status posv_factor(struct clb_driver *driver, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant)
{
    struct posv *posv = posv_of(driver);
    if (posv->solving.next->potrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    posv->solving.problem = clb_potrs_state_problem(posv->solving.call);
    return clb_potrf_state_run(&posv->state, &driver->dispatch, runtime, variant);
}

static bool posv_complete_factor(struct clb_driver *driver, clb_status status)
{
    return clb_potrf_state_complete(&posv_of(driver)->state, status);
}

static size_t posv_info(const struct clb_driver *driver)
{
    return posv_of(driver)->state.result.info;
}

static clb_status posv_solve(struct clb_driver *driver, struct clb_runtime *runtime,
                             const struct clb_gemm_variant *variant)
{
    const struct clb_potrs_state *solving = &posv_of(driver)->solving;
    return clb_potrs_run(runtime, variant, &solving->problem, driver->progress);
}

static void posv_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    clb_potrs_state_compute_next(&((struct posv *)dispatch)->solving, rect);
}

/* ---- the routine ----------------------------------------------------------------------------- */

static bool posv_is_valid(const struct clb_dispatch *dispatch)
{
    return clb_chol_call_is_valid(posv_call_of(dispatch));
}

/* Without right-hand sides some libraries factor A and others don't, as for xGESV. */
static bool posv_is_quick(const struct clb_dispatch *dispatch)
{
    return posv_call_of(dispatch)->n == 0 || posv_call_of(dispatch)->nrhs == 0;
}

static void posv_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    clb_chol_call_describe(posv_call_of(dispatch), text, size);
}

bool clb_route_posv(struct clb_symbol *symbol, const struct clb_chol_call *call,
                    const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {posv_is_valid, posv_is_quick, clb_driver_run,
                                                 clb_driver_complete, posv_describe};
    static const struct clb_driver_type driver = {posv_factor, posv_complete_factor, posv_info,
                                                  posv_solve, posv_compute_next};
    double n = (double)call->n, nrhs = (double)call->nrhs;
    struct posv posv = {
        .driver = {.dispatch = {.type = &type,
                                .symbol = symbol,
                                .next = next->potrf,
                                .lapacke = call->lapacke,
                                .m = call->n,
                                .n = call->n,
                                .k = call->nrhs,
                                .smallest = (size_t)call->n},
                   .type = &driver,
                   .factor_work = clb_work_potrf(n, n, n),
                   .solve_work = clb_work_potrs(n, n, nrhs),
                   .progress = &posv.solving.progress},
        .state = {.assist = {.next = next}, .call = call},
        .solving = {.call = call, .next = next},
    };
    bool computed = clb_route_dispatch(&posv.driver.dispatch);
    clb_gemm_progress_free(&posv.solving.progress);
    return computed;
}
