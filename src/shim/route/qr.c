/* QR: xGEQRF, xORMQR (xUNMQR) and xORGQR (xUNGQR). The next library factors panels, the device
 * updates the trailing matrix. LQ, xGELQF and so on, is QR of the adjoint matrix: A = L*Q is A^H =
 * Q^H*L^H, with the same reflectors.
 *
 * The best size of the workspace, which goes to the first element of one that the caller passes, is
 * what the next library says to a query. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

/* ---- xGEQRF ---------------------------------------------------------------------------------- */

/* Columns of the matrix that has Q*R: of an LQ call's adjoint. */
static size_t columns_of(const struct clb_call *call)
{
    return clb_call_is_adjoint(call) ? call->m : call->n;
}

static clb_status geqrf_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_call *call = run->call;
    const size_t count = clb_min(call->m, call->n), n = columns_of(call);
    const size_t m = call->m + call->n - n;
    struct clb_factors *result = &run->factors;
    result->tau = calloc(count, clb_precision_size(run->precision));
    if (result->tau == NULL)
        return CLB_ERR_NOMEM;
    bool held = clb_run_hold_threads(run, runtime);
    clb_status status = clb_geqrf_run(runtime, variant, call, run->host, result);
    if (held)
        clb_next_release_threads();
    clb_run_take_columns(run, status, n, result->columns_written, result->host_work,
                         clb_work_of(CLB_STEM_geqrf, (double)m, (double)n, (double)count),
                         result->kernel);
    return status;
}

static bool geqrf_complete(struct clb_run *run, clb_status status)
{
    struct clb_call call = *run->call;
    struct clb_factors *result = &run->factors;
    call.tau = result->tau;
    if (status != CLB_OK && result->columns_written == 0)
        clb_host_call(run->host, &call);
    else if (status != CLB_OK)
        clb_geqrf_resume(&call, run->host, result);
    memcpy(run->call->tau, result->tau,
           clb_min(call.m, call.n) * clb_precision_size(run->precision));
    if (clb_run_asks_for_size(run))
        clb_host_call(run->host, run->call);
    clb_run_set_info(run, 0);
    return status != CLB_OK;
}

const struct clb_ops clb_geqrf_ops = {.run = geqrf_run,
                                      .complete = geqrf_complete,
                                      .needs = CLB_NEEDS(geqrf) | CLB_NEEDS(ormqr),
                                      .smallest = CLB_SMALLEST_HALF};

/* ---- xORMQR: parts are ranges of columns or rows of C, which don't depend on each other ------ */

static clb_status ormqr_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    clb_status status = clb_ormqr_run(runtime, variant, run->call, &run->progress);
    clb_run_take_progress(run, status, run->call->m, run->call->n);
    return status;
}

static bool ormqr_complete(struct clb_run *run, clb_status status)
{
    bool next_used = clb_run_complete_parts(run, status, clb_run_compute_part);
    if (clb_run_asks_for_size(run))
        clb_host_call(run->host, run->call);
    clb_run_set_info(run, 0);
    return next_used;
}

const struct clb_ops clb_ormqr_ops = {.run = ormqr_run,
                                      .complete = ormqr_complete,
                                      .needs = CLB_NEEDS(ormqr),
                                      .smallest = CLB_SMALLEST_HALF};

/* ---- xORGQR ---------------------------------------------------------------------------------- */

static clb_status orgqr_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const size_t n = columns_of(run->call);
    clb_status status = clb_orgqr_run(runtime, variant, run->call, &run->orgqr);
    clb_run_take_columns(run, status, n, n - run->orgqr.columns_left, 0, 1, run->orgqr.kernel);
    return status;
}

static bool orgqr_complete(struct clb_run *run, clb_status status)
{
    const struct clb_call rest = clb_orgqr_rest(run->call, &run->orgqr);
    if (status != CLB_OK && run->orgqr.columns_left > 0)
        clb_host_call(run->host, &rest);
    if (clb_run_asks_for_size(run))
        clb_host_call(run->host, run->call);
    clb_run_set_info(run, 0);
    return status != CLB_OK;
}

const struct clb_ops clb_orgqr_ops = {.run = orgqr_run,
                                      .complete = orgqr_complete,
                                      .needs = CLB_NEEDS(orgqr),
                                      .smallest = CLB_SMALLEST_HALF};
