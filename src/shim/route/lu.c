/* LU: xGETRF, xGETRS, xGESV and xGETRI. The device updates the trailing matrix; panels that the
 * algorithm factors on the CPU are factored by the next library. */
#include "run.h"

#include <stdlib.h>

/* ---- xGETRF ---------------------------------------------------------------------------------- */

static struct clb_getrf getrf_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_getrf){run->precision, call->m, call->n, call->a, call->lda};
}

/* Factor, and solve `system` with the factors unless that is NULL. */
static clb_status factor(struct clb_run *run, struct clb_runtime *runtime,
                         const struct clb_gemm_variant *variant, const struct clb_getrs *system)
{
    const struct clb_getrf problem = getrf_problem(run);
    const size_t count = clb_min(problem.m, problem.n);
    struct clb_getrf_result *result = &run->lu;
    if (!run->call->wide)
        run->pivots = malloc(count * sizeof *run->pivots);
    result->ipiv = run->call->wide ? run->call->ipiv : run->pivots;
    if (result->ipiv == NULL)
        return CLB_ERR_NOMEM;
    bool held = clb_run_hold_threads(run, runtime);
    clb_status status =
        system != NULL
            ? clb_gesv_run(runtime, variant, &problem, system, run->host, result, &run->progress)
            : clb_getrf_run(runtime, variant, &problem, run->host, result);
    if (held)
        clb_next_release_threads();
    clb_run_take_columns(
        run, status, problem.n, result->columns_written, result->host_work,
        clb_work_of(CLB_STEM_getrf, (double)problem.m, (double)problem.n, (double)count),
        result->kernel);
    return status;
}

static clb_status getrf_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    return factor(run, runtime, variant, NULL);
}

static bool getrf_complete(struct clb_run *run, clb_status status)
{
    const struct clb_getrf problem = getrf_problem(run);
    struct clb_getrf_result *result = &run->lu;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = run->host->getrf(run->host, &problem, result->ipiv);
    else if (status != CLB_OK)
        clb_getrf_resume(&problem, run->host, result);
    for (size_t i = 0; run->pivots != NULL && i < clb_min(problem.m, problem.n); i++)
        clb_integer_set(run->call->ipiv, i, run->call->wide, run->pivots[i]);
    clb_run_set_info(run, result->info);
    return status != CLB_OK;
}

const struct clb_ops clb_getrf_ops = {.run = getrf_run,
                                      .complete = getrf_complete,
                                      .main = CLB_HOST_GETRF,
                                      .needs = 1U << CLB_HOST_TRSM | 1U << CLB_HOST_GEMM};

/* ---- xGETRS ---------------------------------------------------------------------------------- */

static struct clb_getrs getrs_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_getrs){.precision = run->precision,
                              .trans = call->transa,
                              .n = call->n,
                              .nrhs = call->nrhs,
                              .a = call->a,
                              .lda = call->lda,
                              .ipiv = run->ipiv,
                              .b = call->b,
                              .ldb = call->ldb};
}

/* Set run->ipiv to the pivots as 64-bit integers: the caller's array, or a copy. CLB_ERR_RANGE when
 * a pivot is not a row index. Reference LAPACK does not check that; the next library gets such a
 * call. */
static clb_status open_pivots(struct clb_run *run)
{
    const struct clb_call *call = run->call;
    size_t n = call->n;
    if (!call->wide) {
        run->pivots = malloc(n * sizeof *run->pivots);
        if (run->pivots == NULL)
            return CLB_ERR_NOMEM;
    }
    run->ipiv = call->wide ? call->ipiv : run->pivots;
    for (size_t i = 0; i < n; i++) {
        int64_t pivot = clb_integer_get(call->ipiv, i, call->wide);
        if (pivot < 1 || pivot > (int64_t)n)
            return CLB_ERR_RANGE;
        if (!call->wide)
            run->pivots[i] = pivot;
    }
    return CLB_OK;
}

static clb_status getrs_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    clb_status status = open_pivots(run);
    if (status == CLB_ERR_RANGE)
        run->declined = CLB_REASON_INVALID;
    if (status != CLB_OK)
        return status;
    const struct clb_getrs problem = getrs_problem(run);
    status = clb_getrs_run(runtime, variant, &problem, &run->progress);
    clb_run_take_progress(run, status, problem.n, problem.nrhs);
    return status;
}

/* A part is a range of columns of B. */
static void getrs_compute(struct clb_run *run, const struct clb_rect *rect)
{
    const struct clb_getrs whole = getrs_problem(run);
    const struct clb_getrs part = rect != NULL ? clb_getrs_part(&whole, rect) : whole;
    run->host->getrs(run->host, &part, run->call->ipiv);
}

static bool getrs_complete(struct clb_run *run, clb_status status)
{
    bool next_used = clb_run_complete_parts(run, status, getrs_compute);
    clb_run_set_info(run, 0);
    return next_used;
}

const struct clb_ops clb_getrs_ops = {
    .run = getrs_run, .complete = getrs_complete, .main = CLB_HOST_GETRS};

/* ---- xGESV: A = P*L*U, then A*X = B unless A is singular ------------------------------------- */

static clb_status gesv_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_getrs system = getrs_problem(run);
    /* In mode `auto` the next library solves for few right-hand sides, unless the factors are on
     * the device and would have to be read from host memory. */
    const bool solves = !(clb_run_is_auto(run) && runtime->device.unified &&
                          run->call->nrhs < variant->tuning.smallest);
    clb_status status = factor(run, runtime, variant, solves ? &system : NULL);
    run->factored = run->lu.columns_written == system.n;
    if (!run->factored)
        return status;
    if (solves && run->lu.info == 0)
        run->solution = status;
    status = run->solution == CLB_ERR_UNSUPPORTED ? CLB_OK : run->solution;
    clb_run_add_solution(
        run, clb_work_of(CLB_STEM_getrf, (double)system.n, (double)system.n, (double)system.n),
        clb_work_of(CLB_STEM_getrs, (double)system.n, (double)system.n, (double)system.nrhs));
    return status;
}

static bool gesv_complete(struct clb_run *run, clb_status status)
{
    bool next_used = getrf_complete(run, run->factored ? CLB_OK : status);
    if (run->lu.info != 0)
        return next_used;
    run->ipiv = run->lu.ipiv;
    return clb_run_complete_solution(run, getrs_compute) || next_used;
}

const struct clb_ops clb_gesv_ops = {.run = gesv_run,
                                     .complete = gesv_complete,
                                     .main = CLB_HOST_GETRF,
                                     .needs = 1U << CLB_HOST_TRSM | 1U << CLB_HOST_GEMM |
                                              1U << CLB_HOST_GETRS,
                                     .smallest = CLB_SMALLEST_M};

/* ---- xGETRI ---------------------------------------------------------------------------------- */

static struct clb_getri getri_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_getri){run->precision, call->n, call->a, call->lda, run->ipiv};
}

static clb_status getri_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    clb_status status = open_pivots(run);
    const struct clb_getri problem = getri_problem(run);
    /* For a singular matrix LAPACK sets info to the zero pivot and leaves A unchanged. */
    if (status == CLB_ERR_RANGE ||
        (status == CLB_OK &&
         clb_diagonal_has_zero(run->precision, problem.n, problem.a, problem.lda))) {
        run->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    if (status != CLB_OK)
        return status;
    status = clb_getri_run(runtime, variant, &problem, &run->kernel);
    run->parts = status != CLB_ERR_UNSUPPORTED;
    run->written = status == CLB_OK;
    run->share = status == CLB_OK ? 1 : 0;
    return status;
}

static bool getri_complete(struct clb_run *run, clb_status status)
{
    const struct clb_getri problem = getri_problem(run);
    size_t info = 0;
    if (status != CLB_OK || clb_run_asks_for_size(run))
        info = run->host->getri(run->host, &problem, run->call->ipiv);
    clb_run_set_info(run, info);
    return status != CLB_OK;
}

const struct clb_ops clb_getri_ops = {
    .run = getri_run, .complete = getri_complete, .main = CLB_HOST_GETRI};
