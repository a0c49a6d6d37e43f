/* The parts of a result that are written. */
#include "blas.h"

#include <stdlib.h>

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
