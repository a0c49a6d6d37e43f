/* LAPACK xGESV: the factors stay on the device for the solve.
 *
 * The right-hand sides are columns after those of A in the device's own memory. The steps of the
 * factorisation interchange their rows and solve with L, so that U*X = L^-1*P*B remains. So there
 * is one upload, and the solve with L costs next to nothing. The solutions are downloaded after A's
 * last column and don't depend on each other: after a failure xGETRS computes those that are left.
 *
 * A device that shares the host's memory solves with the factors in the caller's memory, and so
 * does one whose memory does not hold both matrices. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/transfer/transfer_queue.h"
#include "job.h"

/* Whether the sums for right-hand sides are formed otherwise than the matrix's. For real precisions
 * that order is no worse for them. */
static bool has_own_sums(const struct clb_getrf_run *lu)
{
    return clb_precision_parts(lu->call->precision) > 1;
}

void clb_getrf_add_solve(const struct clb_getrf_run *lu, struct clb_workspace_limits *limits)
{
    const struct clb_workspace_limits solve = clb_solve_limits(lu->call->n, false, lu->call->nrhs);
    limits->m = clb_max(limits->m, solve.m);
    if (has_own_sums(lu)) /* their updates pack a panel beside the one that is kept */
        limits->m = clb_max(limits->m, lu->x.rows);
    limits->n = clb_max(limits->n, solve.n);
    limits->k = clb_max(limits->k, solve.k);
    limits->triangle = clb_max(limits->triangle, solve.triangle);
}

size_t clb_getrf_count_rhs(const struct clb_getrf_run *lu, size_t first, size_t count)
{
    size_t n = lu->call->n;
    if (!has_own_sums(lu) || first + count <= n)
        return 0;
    return clb_min(first + count - n, count);
}

clb_status clb_getrf_make_parts(const struct clb_getrf_run *lu, struct clb_gemm_progress *progress)
{
    const struct clb_job *run = &lu->run;
    size_t n = lu->call->n, first = 0;
    const struct clb_transfer *chunk = run->transfer + run->uploads;
    while (first < n)
        first += chunk++->x.cols;
    clb_status status = clb_gemm_progress_make(
        progress, (size_t)(run->transfer + run->uploads + run->downloads - chunk));
    for (size_t i = 0, j = 0; i < progress->parts; j += chunk[i++].x.cols)
        progress->part[i] = (struct clb_rect){0, j, lu->x.rows, chunk[i].x.cols};
    return status;
}

clb_status clb_getrf_solve_rhs(struct clb_getrf_run *lu)
{
    size_t n = lu->call->n;
    const struct clb_dmat_triangle triangle = {
        .a = clb_dmat_part(&lu->x, 0, 0, n, n), .upper = true, .short_sums = true};
    const struct clb_dmat b = clb_dmat_part(&lu->x, 0, n, n, lu->x.cols - n);
    clb_status status = clb_dmat_pack_triangle(&lu->run.workspace, &triangle);
    return status == CLB_OK ? clb_dmat_solve(&lu->run.workspace, &triangle, &b) : status;
}

clb_status clb_gesv_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_call *call, const struct clb_host_blas *next,
                        struct clb_factors *result, struct clb_gemm_progress *progress)
{
    struct clb_getrf_run lu = clb_getrf_run_of(runtime, variant, call, next, result);
    clb_status status = CLB_ERR_NOMEM;
    bool begun = false;
    *progress = (struct clb_gemm_progress){0};
    lu.solves = true;
    lu.run.caller[1] = (struct clb_caller){call->b, call->ldb, call->nrhs, false};
    if (lu.run.discrete && variant->tuning.value[CLB_PARAM_GETRF_BLOCK] == 0)
        status = clb_getrf_run_discrete(&lu, progress, &begun);
    if (status != CLB_ERR_NOMEM || begun)
        return status;
    clb_gemm_progress_free(progress);
    status = clb_getrf_run(runtime, variant, call, next, result);
    if (status != CLB_OK || result->info != 0)
        return status;
    struct clb_call with_factors = clb_call_as(call, CLB_KIND_getrs);
    with_factors.ipiv = result->ipiv;
    with_factors.wide = true;
    return clb_getrs_run(runtime, variant, &with_factors, progress);
}
