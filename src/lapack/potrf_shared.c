/* Cholesky on a device that shares the host's memory. The CPU copies the stated triangle to memory
 * of the shim, and the factor from there. */
#include "potrf.h"
#include "dense/shared.h"

/* Copy columns [0, cols) of the stated triangle from or (with `out`) to the caller's matrix. */
static clb_status move(struct clb_chol *chol, bool out, size_t cols)
{
    const struct clb_potrf *problem = chol->problem;
    const char part = problem->upper ? 'U' : 'L';
    void *memory;
    clb_status status = clb_dmat_map(&chol->workspace, &chol->x, &memory);
    if (status != CLB_OK)
        return status;
    if (out)
        clb_copy_triangle(problem->precision, part, chol->n, cols, memory, chol->x.ld, problem->a,
                          problem->lda);
    else
        clb_copy_triangle(problem->precision, part, chol->n, cols, problem->a, problem->lda, memory,
                          chol->x.ld);
    if (out)
        chol->result->columns_written = cols;
    return clb_dmat_unmap(&chol->workspace, &chol->x, memory);
}

/* The whole triangle is copied in with the first panel. */
static clb_status potrf_shared_bring(void *context, size_t k, size_t width)
{
    struct clb_chol *chol = context;
    (void)width;
    return k == 0 ? move(chol, false, chol->n) : CLB_OK;
}

clb_status clb_potrf_run_shared(struct clb_chol *chol, const struct clb_gemm_variant *variant)
{
    size_t bytes;
    clb_status status = clb_chol_open(chol, variant);
    if (status == CLB_OK)
        status = clb_extent_bytes(chol->n, chol->n, chol->x.ld, chol->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(chol->runtime, CLB_MEMORY_HOST, bytes, &chol->memory);
    if (status == CLB_OK) {
        chol->x.mem = chol->memory->mem;
        status = clb_chol_factor(chol, potrf_shared_bring, chol);
    }
    if (status == CLB_OK && clb_chol_columns(chol) > 0)
        status = move(chol, true, clb_chol_columns(chol));
    clb_chol_close(chol, clb_workspace_finish(&chol->workspace));
    return status;
}
