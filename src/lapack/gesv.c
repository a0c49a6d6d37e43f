/* LAPACK xGESV: the factors stay on the device for the solve.
 *
 * The right-hand sides are columns after those of A (getrf_stream.c). The steps of the
 * factorisation interchange their rows and solve with L, so that U*X = L^-1*P*B remains. So there
 * is one upload, and the solve with L costs the device next to nothing. The solutions are
 * downloaded after A's last column and don't depend on each other: nothing of B is written before
 * all of A is, and after a failure the columns of B that are left are computed by clb_getrs_part.
 * Where A is singular B is not downloaded.
 *
 * A device that shares the host's memory solves with the factors in the caller's memory, and so
 * does one whose memory does not hold both matrices. */
#include "getrf.h"

clb_status clb_getrf_solve(struct clb_getrf_run *lu)
{
    size_t n = lu->problem->n;
    const struct clb_dmat_triangle triangle = {
        .a = clb_dmat_part(&lu->x, 0, 0, n, n), .upper = true, .short_sums = true};
    const struct clb_dmat b = clb_dmat_part(&lu->x, 0, n, n, lu->x.cols - n);
    clb_status status = clb_dmat_pack_triangle(&lu->workspace, &triangle);
    return status == CLB_OK ? clb_dmat_solve(&lu->workspace, &triangle, &b) : status;
}

/* Solve with the factors in the caller's memory. */
static clb_status solve_again(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                              const struct clb_getrs *system, const int64_t *ipiv,
                              struct clb_gemm_progress *progress)
{
    struct clb_getrs again = *system;
    again.ipiv = ipiv;
    return clb_getrs_run(runtime, variant, &again, progress);
}

clb_status clb_gesv_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_getrf *problem, const struct clb_getrs *system,
                        const struct clb_host_blas *next, struct clb_getrf_result *result,
                        struct clb_gemm_progress *progress)
{
    struct clb_getrf_run lu = {.runtime = runtime,
                               .problem = problem,
                               .next = next,
                               .result = result,
                               .system = system,
                               .progress = progress};
    clb_status status = CLB_ERR_NOMEM;
    *progress = (struct clb_gemm_progress){0};
    *result = (struct clb_getrf_result){.ipiv = result->ipiv, .kernel = variant->name, .blocks = 1};
    if (clb_getrf_streams(runtime, variant) && variant->tuning.value[CLB_PARAM_GETRF_BLOCK] == 0)
        status = clb_getrf_run_stream(&lu, variant);
    if (status != CLB_ERR_NOMEM || lu.begun)
        return status;
    clb_gemm_progress_free(progress);
    status = clb_getrf_run(runtime, variant, problem, next, result);
    if (status != CLB_OK || result->info != 0)
        return status;
    return solve_again(runtime, variant, system, result->ipiv, progress);
}
