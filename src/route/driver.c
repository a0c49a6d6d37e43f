/* LAPACK drivers: a factorisation and a solve in one call, for xGESV and xPOSV. */
#include "driver.h"

/* Add the progress of the factorisation, in columns, and that of the solve, in parts. */
static void add_progress(struct clb_driver *driver)
{
    struct clb_dispatch *dispatch = &driver->dispatch, solve = *dispatch;
    double all = driver->factor_work + driver->solve_work;
    clb_dispatch_take_progress(&solve, driver->progress, driver->solution, (size_t)dispatch->m,
                               (size_t)dispatch->k);
    dispatch->parts += solve.parts;
    dispatch->written += solve.written;
    dispatch->share =
        (dispatch->share * driver->factor_work + solve.share * driver->solve_work) / all;
}

/* In mode `auto` the next library solves for few right-hand sides. */
static bool driver_is_solved_here(const struct clb_driver *driver,
                                  const struct clb_gemm_variant *variant)
{
    return driver->type->solve != NULL && driver->type->info(driver) == 0 &&
           !(clb_dispatch_is_auto(&driver->dispatch) &&
             (size_t)driver->dispatch.k < variant->tuning.smallest);
}

clb_status clb_driver_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                          const struct clb_gemm_variant *variant)
{
    struct clb_driver *driver = (struct clb_driver *)dispatch;
    driver->solution = CLB_ERR_UNSUPPORTED;
    clb_status status = driver->type->factor(driver, runtime, variant);
    driver->factored = status == CLB_OK;
    if (driver->factored && !driver->solved && driver_is_solved_here(driver, variant))
        driver->solution = driver->type->solve(driver, runtime, variant);
    if (driver->factored && driver->solution != CLB_ERR_UNSUPPORTED)
        status = driver->solution;
    if (driver->factored)
        add_progress(driver);
    return status;
}

bool clb_driver_complete(struct clb_dispatch *dispatch, clb_status status)
{
    struct clb_driver *driver = (struct clb_driver *)dispatch;
    bool next_used = driver->type->complete_factor(driver, driver->factored ? CLB_OK : status);
    if (driver->type->info(driver) != 0)
        return next_used;
    dispatch->written = 0;
    for (size_t i = 0; i < driver->progress->parts; i++)
        dispatch->written += driver->progress->written[i];
    return clb_dispatch_complete_parts(dispatch, driver->progress, driver->solution,
                                       driver->type->compute_next) ||
           next_used;
}
