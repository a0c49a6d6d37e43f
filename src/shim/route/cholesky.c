/* Cholesky: xPOTRF, xPOTRS and xPOSV; and inverses of triangles and what follows from the factor:
 * xTRTRI, xLAUUM and xPOTRI. The device updates the trailing matrix; diagonal blocks that the
 * algorithm factors on the CPU are factored by the next library. */
#include "engine/kernel/kernel.h"
#include "run.h"

/* ---- xPOTRF ---------------------------------------------------------------------------------- */

static clb_status potrf_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct clb_factors *result = &run->factors;
    double n = (double)run->call->n;
    bool held = clb_run_hold_threads(run, runtime);
    clb_status status = clb_potrf_run(runtime, variant, run->call, run->host, result);
    if (held)
        clb_next_release_threads();
    clb_run_take_columns(run, status, run->call->n, result->columns_written, result->host_work,
                         clb_work_of(CLB_STEM_potrf, n, n, n), result->kernel);
    return status;
}

static bool potrf_complete(struct clb_run *run, clb_status status)
{
    const struct clb_call call = clb_call_as(run->call, CLB_KIND_potrf);
    struct clb_factors *result = &run->factors;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = clb_host_call(run->host, &call);
    else if (status != CLB_OK)
        clb_potrf_resume(&call, run->host, result);
    clb_run_set_info(run, result->info);
    return status != CLB_OK;
}

const struct clb_ops clb_potrf_ops = {.run = potrf_run,
                                      .complete = potrf_complete,
                                      .needs =
                                          CLB_NEEDS(potrf) | CLB_NEEDS(trsm) | CLB_NEEDS(gemm)};

/* ---- xPOTRS ---------------------------------------------------------------------------------- */

static clb_status potrs_run(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    clb_status status = clb_potrs_run(runtime, variant, run->call, &run->progress);
    clb_run_take_progress(run, status, run->call->n, run->call->nrhs);
    return status;
}

static bool potrs_complete(struct clb_run *run, clb_status status)
{
    bool next_used = clb_run_complete_parts(run, status, clb_run_compute_part);
    clb_run_set_info(run, 0);
    return next_used;
}

const struct clb_ops clb_potrs_ops = {
    .run = potrs_run, .complete = potrs_complete, .needs = CLB_NEEDS(potrs)};

/* ---- xPOSV: A = U^H*U or L*L^H, then A*X = B unless a pivot is not positive ------------------ */

static clb_status posv_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_call *call = run->call;
    double n = (double)call->n;
    clb_status status = potrf_run(run, runtime, variant);
    run->factored = status == CLB_OK;
    if (!run->factored)
        return status;
    /* In mode `auto` the next library solves for few right-hand sides. */
    if (run->factors.info == 0 && !(clb_run_is_auto(run) && call->nrhs < variant->tuning.smallest))
        run->solution = clb_potrs_run(runtime, variant, call, &run->progress);
    if (run->solution != CLB_ERR_UNSUPPORTED)
        status = run->solution;
    clb_run_add_solution(run, clb_work_of(CLB_STEM_potrf, n, n, n),
                         clb_work_of(CLB_STEM_potrs, n, n, (double)call->nrhs));
    return status;
}

static bool posv_complete(struct clb_run *run, clb_status status)
{
    bool next_used = potrf_complete(run, run->factored ? CLB_OK : status);
    if (run->factors.info != 0)
        return next_used;
    return clb_run_complete_solution(run) || next_used;
}

const struct clb_ops clb_posv_ops = {.run = posv_run,
                                     .complete = posv_complete,
                                     .needs = CLB_NEEDS(potrf) | CLB_NEEDS(trsm) | CLB_NEEDS(gemm) |
                                              CLB_NEEDS(potrs),
                                     .smallest = CLB_SMALLEST_M};

/* ---- xTRTRI inverts a triangle, xLAUUM multiplies it by its transpose, xPOTRI does both ------ */

static clb_status inverse_run(struct clb_run *run, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant)
{
    const struct clb_call *call = run->call;
    /* A zero on the diagonal: LAPACK sets info to its index and leaves the matrix unchanged. */
    if (call->kind != CLB_KIND_lauum && !call->unit &&
        clb_diagonal_has_zero(call->precision, call->n, call->a, call->lda)) {
        run->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    clb_status status = clb_inverse_run(runtime, variant, call, &run->kernel);
    clb_run_take_all(run, status);
    return status;
}

static bool inverse_complete(struct clb_run *run, clb_status status)
{
    clb_run_set_info(run, status != CLB_OK ? clb_host_call(run->host, run->call) : 0);
    return status != CLB_OK;
}

const struct clb_ops clb_trtri_ops = {inverse_run, inverse_complete, .needs = CLB_NEEDS(trtri)};
const struct clb_ops clb_lauum_ops = {inverse_run, inverse_complete, .needs = CLB_NEEDS(lauum)};
const struct clb_ops clb_potri_ops = {inverse_run, inverse_complete, .needs = CLB_NEEDS(potri)};
