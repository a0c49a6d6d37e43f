/* A factorisation and a solve in one call. */
#include "driver.h"

/* The factorisation's progress, counted in columns, and the solve's, in parts, become one. */
static void add_progress(struct clb_driver *driver)
{
    struct clb_offer *offer = &driver->offer, solve = *offer;
    double all = driver->factor_work + driver->solve_work;
    clb_offer_take_progress(&solve, driver->progress, driver->solution, (size_t)offer->m,
                            (size_t)offer->k);
    offer->parts += solve.parts;
    offer->written += solve.written;
    offer->share = (offer->share * driver->factor_work + solve.share * driver->solve_work) / all;
}

/* Few right-hand sides are the next library's in `auto`. */
static bool is_solved_here(const struct clb_driver *driver, const struct clb_gemm_variant *variant)
{
    return driver->type->solve != NULL && driver->type->info(driver) == 0 &&
           !(clb_offer_is_auto(&driver->offer) &&
             (size_t)driver->offer.k < variant->tuning.smallest);
}

clb_status clb_driver_run(struct clb_offer *offer, struct clb_runtime *runtime,
                          const struct clb_gemm_variant *variant)
{
    struct clb_driver *driver = (struct clb_driver *)offer;
    driver->solution = CLB_ERR_UNSUPPORTED;
    clb_status status = driver->type->factor(driver, runtime, variant);
    driver->factored = status == CLB_OK;
    if (driver->factored && !driver->solved && is_solved_here(driver, variant))
        driver->solution = driver->type->solve(driver, runtime, variant);
    if (driver->factored && driver->solution != CLB_ERR_UNSUPPORTED)
        status = driver->solution;
    if (driver->factored)
        add_progress(driver);
    return status;
}

bool clb_driver_complete(struct clb_offer *offer, clb_status status)
{
    struct clb_driver *driver = (struct clb_driver *)offer;
    bool next_used = driver->type->complete_factor(driver, driver->factored ? CLB_OK : status);
    if (driver->type->info(driver) != 0)
        return next_used;
    offer->written = 0;
    for (size_t i = 0; i < driver->progress->parts; i++)
        offer->written += driver->progress->written[i];
    return clb_offer_complete_parts(offer, driver->progress, driver->solution,
                                    driver->type->compute_next) ||
           next_used;
}
