/* The parts of a result that are written. */
#include "blas.h"

#include <stdlib.h>
#include <string.h>

clb_status clb_gemm_progress_make(struct clb_gemm_progress *progress, size_t parts)
{
    progress->part = calloc(parts, sizeof *progress->part);
    progress->written = calloc(parts, sizeof *progress->written);
    if (progress->part == NULL || progress->written == NULL) {
        clb_gemm_progress_free(progress);
        return CLB_ERR_NOMEM;
    }
    progress->parts = parts;
    return CLB_OK;
}

void clb_gemm_progress_free(struct clb_gemm_progress *progress)
{
    free(progress->part);
    free(progress->written);
    *progress = (struct clb_gemm_progress){0};
}

clb_status clb_gemm_distrust(const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    const void *zero = clb_scalar_zero(problem->precision);
    bool in_place = problem->level3 != NULL && problem->level3->in_place;
    bool reads_c = memcmp(problem->beta, zero, clb_precision_size(problem->precision)) != 0;
    for (size_t i = 0; i < progress->parts && !in_place && !reads_c; i++)
        progress->written[i] = false;
    if (in_place || reads_c)
        clb_log(CLB_LOG_WARN, "a command has failed, perhaps of a part that is written already");
    return CLB_ERR_OPENCL;
}
