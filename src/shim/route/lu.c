/* LU: xGETRF, xGETRS, xGESV and xGETRI. The device updates the trailing matrix; panels that the
 * algorithm factors on the CPU are factored by the next library. */
#include "engine/kernel/kernel.h"
#include "run.h"

#include <stdlib.h>

/* ---- xGETRF ---------------------------------------------------------------------------------- */

/* Factor, and for xGESV with `solves` solve with the factors. */
static clb_status factor(struct clb_run *run, struct clb_runtime *runtime,
                         const struct clb_gemm_variant *variant, bool solves)
{
    const struct clb_call *call = run->call;
    const size_t count = clb_min(call->m, call->n);
    struct clb_factors *result = &run->factors;
    if (!call->wide)
        run->pivots = malloc(count * sizeof *run->pivots);
    result->ipiv = call->wide ? call->ipiv : run->pivots;
    if (result->ipiv == NULL)
        return CLB_ERR_NOMEM;
    bool held = clb_run_hold_threads(run, runtime);
    clb_status status =
        solves ? clb_gesv_run(runtime, variant, call, run->host, result, &run->progress)
               : clb_getrf_run(runtime, variant, call, run->host, result);
    if (held)
        clb_next_release_threads();
    clb_run_take_columns(
        run, status, call->n, result->columns_written, result->host_work,
        clb_work_of(CLB_STEM_getrf, (double)call->m, (double)call->n, (double)count),
        result->kernel);
    return status;
}

static clb_status getrf_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    return factor(run, runtime, variant, false);
}

static bool getrf_complete(struct clb_run *run, clb_status status)
{
    struct clb_call call = clb_call_as(run->call, CLB_KIND_getrf);
    struct clb_factors *result = &run->factors;
    call.ipiv = result->ipiv;
    call.wide = true;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = clb_host_call(run->host, &call);
    else if (status != CLB_OK)
        clb_getrf_resume(&call, run->host, result);
    for (size_t i = 0; run->pivots != NULL && i < clb_min(call.m, call.n); i++)
        clb_integer_set(run->call->ipiv, i, run->call->wide, run->pivots[i]);
    clb_run_set_info(run, result->info);
    return status != CLB_OK;
}

const struct clb_ops clb_getrf_ops = {.run = getrf_run,
                                      .complete = getrf_complete,
                                      .needs =
                                          CLB_NEEDS(getrf) | CLB_NEEDS(trsm) | CLB_NEEDS(gemm)};

/* ---- xGETRS ---------------------------------------------------------------------------------- */

/* Reference LAPACK does not check that pivots are row indices; the next library gets a call where
 * they are not. */
static bool are_rows(const struct clb_call *call)
{
    for (size_t i = 0; i < call->n; i++) {
        const int64_t pivot = clb_integer_get(call->ipiv, i, call->wide);
        if (pivot < 1 || pivot > (int64_t)call->n)
            return false;
    }
    return true;
}

static clb_status getrs_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    if (!are_rows(run->call)) {
        run->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    clb_status status = clb_getrs_run(runtime, variant, run->call, &run->progress);
    clb_run_take_progress(run, status, run->call->n, run->call->nrhs);
    return status;
}

static bool getrs_complete(struct clb_run *run, clb_status status)
{
    bool next_used = clb_run_complete_parts(run, status, clb_run_compute_part);
    clb_run_set_info(run, 0);
    return next_used;
}

const struct clb_ops clb_getrs_ops = {
    .run = getrs_run, .complete = getrs_complete, .needs = CLB_NEEDS(getrs)};

/* ---- xGESV: A = P*L*U, then A*X = B unless A is singular ------------------------------------- */

static clb_status gesv_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_call *call = run->call;
    const double n = (double)call->n;
    /* In mode `auto` the next library solves for few right-hand sides, unless the factors are on
     * the device and would have to be read from host memory. */
    const bool solves =
        !(clb_run_is_auto(run) && runtime->device.unified && call->nrhs < variant->tuning.smallest);
    clb_status status = factor(run, runtime, variant, solves);
    run->factored = run->factors.columns_written == call->n;
    if (!run->factored)
        return status;
    if (solves && run->factors.info == 0)
        run->solution = status;
    status = run->solution == CLB_ERR_UNSUPPORTED ? CLB_OK : run->solution;
    clb_run_add_solution(run, clb_work_of(CLB_STEM_getrf, n, n, n),
                         clb_work_of(CLB_STEM_getrs, n, n, (double)call->nrhs));
    return status;
}

static bool gesv_complete(struct clb_run *run, clb_status status)
{
    bool next_used = getrf_complete(run, run->factored ? CLB_OK : status);
    if (run->factors.info != 0)
        return next_used;
    return clb_run_complete_solution(run) || next_used;
}

const struct clb_ops clb_gesv_ops = {.run = gesv_run,
                                     .complete = gesv_complete,
                                     .needs = CLB_NEEDS(getrf) | CLB_NEEDS(trsm) | CLB_NEEDS(gemm) |
                                              CLB_NEEDS(getrs),
                                     .smallest = CLB_SMALLEST_M};

/* ---- xGETRI ---------------------------------------------------------------------------------- */

static clb_status getri_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_call *call = run->call;
    /* For a singular matrix LAPACK sets info to the zero pivot and leaves A unchanged. */
    if (!are_rows(call) || clb_diagonal_has_zero(call->precision, call->n, call->a, call->lda)) {
        run->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    clb_status status = clb_getri_run(runtime, variant, call, &run->kernel);
    clb_run_take_all(run, status);
    return status;
}

static bool getri_complete(struct clb_run *run, clb_status status)
{
    size_t info = 0;
    if (status != CLB_OK || clb_run_asks_for_size(run))
        info = clb_host_call(run->host, run->call);
    clb_run_set_info(run, info);
    return status != CLB_OK;
}

const struct clb_ops clb_getri_ops = {
    .run = getri_run, .complete = getri_complete, .needs = CLB_NEEDS(getri)};
