/* QR: xGEQRF, xORMQR (xUNMQR) and xORGQR (xUNGQR). The next library factors panels, the device
 * updates the trailing matrix. LQ, xGELQF and so on, is QR of the adjoint matrix: A = L*Q is A^H =
 * Q^H*L^H, with the same reflectors.
 *
 * The best size of the workspace, which goes to the first element of one that the caller passes, is
 * what the next library says to a query. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

static bool is_lq(const struct clb_call *call)
{
    return clb_routine_has_flag(call->routine, 'l');
}

/* ---- xGEQRF ---------------------------------------------------------------------------------- */

static struct clb_geqrf geqrf_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    const bool lq = is_lq(call);
    return (struct clb_geqrf){.precision = run->precision,
                              .m = lq ? call->n : call->m,
                              .n = lq ? call->m : call->n,
                              .a = call->a,
                              .lda = call->lda,
                              .adjoint = lq};
}

static clb_status geqrf_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_geqrf problem = geqrf_problem(run);
    const size_t count = clb_min(problem.m, problem.n);
    struct clb_geqrf_result *result = &run->qr;
    result->tau = calloc(count, clb_precision_size(run->precision));
    if (result->tau == NULL)
        return CLB_ERR_NOMEM;
    bool held = clb_run_hold_threads(run, runtime);
    clb_status status = clb_geqrf_run(runtime, variant, &problem, run->host, result);
    if (held)
        clb_next_release_threads();
    clb_run_take_columns(
        run, status, problem.n, result->columns_written, result->host_work,
        clb_work_of(CLB_STEM_geqrf, (double)problem.m, (double)problem.n, (double)count),
        result->kernel);
    return status;
}

static bool geqrf_complete(struct clb_run *run, clb_status status)
{
    const struct clb_geqrf problem = geqrf_problem(run);
    struct clb_geqrf_result *result = &run->qr;
    if (status != CLB_OK && result->columns_written == 0)
        run->host->geqrf(run->host, &problem, result->tau);
    else if (status != CLB_OK)
        clb_geqrf_resume(&problem, run->host, result);
    memcpy(run->call->tau, result->tau,
           clb_min(problem.m, problem.n) * clb_precision_size(run->precision));
    if (clb_run_asks_for_size(run))
        run->host->geqrf(run->host, &problem, run->call->tau);
    clb_run_set_info(run, 0);
    return status != CLB_OK;
}

const struct clb_ops clb_geqrf_ops = {.run = geqrf_run,
                                      .complete = geqrf_complete,
                                      .main = CLB_HOST_GEQRF,
                                      .needs = 1U << CLB_HOST_ORMQR,
                                      .smallest = CLB_SMALLEST_HALF};

/* ---- xORMQR ---------------------------------------------------------------------------------- */

static struct clb_ormqr ormqr_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    const bool lq = is_lq(call);
    const clb_op turned = call->transa == CLB_OP_N ? CLB_OP_C : CLB_OP_N;
    return (struct clb_ormqr){.precision = run->precision,
                              .right = call->right,
                              .trans = lq ? turned : call->transa,
                              .m = call->m,
                              .n = call->n,
                              .k = call->k,
                              .a = call->a,
                              .lda = call->lda,
                              .tau = call->tau,
                              .c = call->c,
                              .ldc = call->ldc,
                              .adjoint = lq};
}

static clb_status ormqr_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_ormqr problem = ormqr_problem(run);
    clb_status status = clb_ormqr_run(runtime, variant, &problem, &run->progress);
    clb_run_take_progress(run, status, problem.m, problem.n);
    return status;
}

/* A part is a range of columns or rows of C, which do not depend on each other. */
static void ormqr_compute(struct clb_run *run, const struct clb_rect *rect)
{
    const struct clb_ormqr whole = ormqr_problem(run);
    const struct clb_ormqr part = rect != NULL ? clb_ormqr_part(&whole, rect) : whole;
    run->host->ormqr(run->host, &part);
}

static bool ormqr_complete(struct clb_run *run, clb_status status)
{
    bool next_used = clb_run_complete_parts(run, status, ormqr_compute);
    if (clb_run_asks_for_size(run))
        ormqr_compute(run, NULL);
    clb_run_set_info(run, 0);
    return next_used;
}

const struct clb_ops clb_ormqr_ops = {.run = ormqr_run,
                                      .complete = ormqr_complete,
                                      .main = CLB_HOST_ORMQR,
                                      .smallest = CLB_SMALLEST_HALF};

/* ---- xORGQR ---------------------------------------------------------------------------------- */

static struct clb_orgqr orgqr_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    const bool lq = is_lq(call);
    return (struct clb_orgqr){.precision = run->precision,
                              .m = lq ? call->n : call->m,
                              .n = lq ? call->m : call->n,
                              .k = call->k,
                              .a = call->a,
                              .lda = call->lda,
                              .tau = call->tau,
                              .adjoint = lq};
}

static clb_status orgqr_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_orgqr problem = orgqr_problem(run);
    clb_status status = clb_orgqr_run(runtime, variant, &problem, &run->orgqr);
    clb_run_take_columns(run, status, problem.n, problem.n - run->orgqr.columns_left, 0, 1,
                         run->orgqr.kernel);
    return status;
}

static bool orgqr_complete(struct clb_run *run, clb_status status)
{
    const struct clb_orgqr problem = orgqr_problem(run);
    const struct clb_orgqr rest = clb_orgqr_rest(&problem, &run->orgqr);
    if (status != CLB_OK && rest.n > 0)
        run->host->orgqr(run->host, &rest);
    if (clb_run_asks_for_size(run))
        run->host->orgqr(run->host, &problem);
    clb_run_set_info(run, 0);
    return status != CLB_OK;
}

const struct clb_ops clb_orgqr_ops = {.run = orgqr_run,
                                      .complete = orgqr_complete,
                                      .main = CLB_HOST_ORGQR,
                                      .smallest = CLB_SMALLEST_HALF};
