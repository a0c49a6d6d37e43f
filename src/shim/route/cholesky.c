/* Cholesky: xPOTRF, xPOTRS and xPOSV; and inverses of triangles and what follows from the factor:
 * xTRTRI, xLAUUM and xPOTRI. The device updates the trailing matrix; diagonal blocks that the
 * algorithm factors on the CPU are factored by the next library. */
#include "run.h"

/* ---- xPOTRF ---------------------------------------------------------------------------------- */

static struct clb_potrf potrf_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_potrf){run->precision, call->upper, call->n, call->a, call->lda};
}

static clb_status potrf_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_potrf problem = potrf_problem(run);
    struct clb_potrf_result *result = &run->cholesky;
    double n = (double)problem.n;
    bool held = clb_run_hold_threads(run, runtime);
    clb_status status = clb_potrf_run(runtime, variant, &problem, run->host, result);
    if (held)
        clb_next_release_threads();
    clb_run_take_columns(run, status, problem.n, result->columns_written, result->host_work,
                         clb_work_of(CLB_STEM_potrf, n, n, n), result->kernel);
    return status;
}

static bool potrf_complete(struct clb_run *run, clb_status status)
{
    const struct clb_potrf problem = potrf_problem(run);
    struct clb_potrf_result *result = &run->cholesky;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = run->host->potrf(run->host, &problem);
    else if (status != CLB_OK)
        clb_potrf_resume(&problem, run->host, result);
    clb_run_set_info(run, result->info);
    return status != CLB_OK;
}

const struct clb_ops clb_potrf_ops = {.run = potrf_run,
                                      .complete = potrf_complete,
                                      .main = CLB_HOST_POTRF,
                                      .needs = 1U << CLB_HOST_TRSM | 1U << CLB_HOST_GEMM};

/* ---- xPOTRS ---------------------------------------------------------------------------------- */

static struct clb_potrs potrs_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_potrs){.precision = run->precision,
                              .upper = call->upper,
                              .n = call->n,
                              .nrhs = call->nrhs,
                              .a = call->a,
                              .lda = call->lda,
                              .b = call->b,
                              .ldb = call->ldb};
}

static clb_status potrs_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const struct clb_potrs problem = potrs_problem(run);
    clb_status status = clb_potrs_run(runtime, variant, &problem, &run->progress);
    clb_run_take_progress(run, status, problem.n, problem.nrhs);
    return status;
}

/* A part is a range of columns of B. */
static void potrs_compute(struct clb_run *run, const struct clb_rect *rect)
{
    const struct clb_potrs whole = potrs_problem(run);
    const struct clb_potrs part = rect != NULL ? clb_potrs_part(&whole, rect) : whole;
    run->host->potrs(run->host, &part);
}

static bool potrs_complete(struct clb_run *run, clb_status status)
{
    bool next_used = clb_run_complete_parts(run, status, potrs_compute);
    clb_run_set_info(run, 0);
    return next_used;
}

const struct clb_ops clb_potrs_ops = {
    .run = potrs_run, .complete = potrs_complete, .main = CLB_HOST_POTRS};

/* ---- xPOSV: A = U^H*U or L*L^H, then A*X = B unless a pivot is not positive ------------------ */

static clb_status posv_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_potrs system = potrs_problem(run);
    double n = (double)system.n;
    clb_status status = potrf_run(run, runtime, variant);
    run->factored = status == CLB_OK;
    if (!run->factored)
        return status;
    /* In mode `auto` the next library solves for few right-hand sides. */
    if (run->cholesky.info == 0 &&
        !(clb_run_is_auto(run) && system.nrhs < variant->tuning.smallest))
        run->solution = clb_potrs_run(runtime, variant, &system, &run->progress);
    if (run->solution != CLB_ERR_UNSUPPORTED)
        status = run->solution;
    clb_run_add_solution(run, clb_work_of(CLB_STEM_potrf, n, n, n),
                         clb_work_of(CLB_STEM_potrs, n, n, (double)system.nrhs));
    return status;
}

static bool posv_complete(struct clb_run *run, clb_status status)
{
    bool next_used = potrf_complete(run, run->factored ? CLB_OK : status);
    if (run->cholesky.info != 0)
        return next_used;
    return clb_run_complete_solution(run, potrs_compute) || next_used;
}

const struct clb_ops clb_posv_ops = {.run = posv_run,
                                     .complete = posv_complete,
                                     .main = CLB_HOST_POTRF,
                                     .needs = 1U << CLB_HOST_TRSM | 1U << CLB_HOST_GEMM |
                                              1U << CLB_HOST_POTRS,
                                     .smallest = CLB_SMALLEST_M};

/* ---- xTRTRI inverts a triangle, xLAUUM multiplies it by its transpose, xPOTRI does both ------ */

const struct clb_ops clb_trtri_ops, clb_lauum_ops, clb_potri_ops;

static struct clb_inverse inverse_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_inverse){.precision = run->precision,
                                .inverts = run->ops != &clb_lauum_ops,
                                .multiplies = run->ops != &clb_trtri_ops,
                                .upper = call->upper,
                                .unit = call->unit,
                                .n = call->n,
                                .a = call->a,
                                .lda = call->lda};
}

static clb_status inverse_run(struct clb_run *run, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant)
{
    const struct clb_inverse problem = inverse_problem(run);
    /* A zero on the diagonal: LAPACK sets info to its index and leaves the matrix unchanged. */
    if (problem.inverts && !problem.unit &&
        clb_diagonal_has_zero(problem.precision, problem.n, problem.a, problem.lda)) {
        run->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    clb_status status = clb_inverse_run(runtime, variant, &problem, &run->kernel);
    run->parts = status != CLB_ERR_UNSUPPORTED;
    run->written = status == CLB_OK;
    run->share = status == CLB_OK ? 1 : 0;
    return status;
}

static bool inverse_complete(struct clb_run *run, clb_status status)
{
    const struct clb_inverse problem = inverse_problem(run);
    clb_run_set_info(run, status != CLB_OK ? run->host->inverse(run->host, &problem) : 0);
    return status != CLB_OK;
}

const struct clb_ops clb_trtri_ops = {inverse_run, inverse_complete, .main = CLB_HOST_INVERSE};
const struct clb_ops clb_lauum_ops = {inverse_run, inverse_complete, .main = CLB_HOST_INVERSE};
const struct clb_ops clb_potri_ops = {inverse_run, inverse_complete, .main = CLB_HOST_INVERSE};
