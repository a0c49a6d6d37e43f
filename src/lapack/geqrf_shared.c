/* QR on a device that shares the host's memory. The matrix is copied to memory of the shim that the
 * CPU can access too, so that the CPU factors panels in place. */
#include "qr.h"
#include "dense/shared.h"

static clb_status bring_in(struct clb_qr *qr, const struct clb_dmat *caller)
{
    size_t m = qr->x.rows, n = qr->x.cols, first = clb_qr_width(qr, 0);
    const struct clb_dmat panel = clb_dmat_part(&qr->x, 0, 0, m, caller->mem != NULL ? first : n);
    clb_status status = clb_dmat_copy_in(&qr->workspace, &panel, qr->problem->a, qr->problem->lda);
    if (status != CLB_OK || panel.cols == n)
        return status;
    const struct clb_dmat from = clb_dmat_part(caller, 0, first, m, n - first);
    const struct clb_dmat to = clb_dmat_part(&qr->x, 0, first, m, n - first);
    return clb_dmat_move_copy(&qr->workspace, &from, &to, 0);
}

static clb_status geqrf_shared_factor_panel(struct clb_qr *qr, size_t k)
{
    const struct clb_dmat panel = clb_qr_panel(qr, k);
    void *mapped;
    clb_status status = clb_dmat_map(&qr->workspace, &panel, &mapped);
    if (status != CLB_OK)
        return status;
    clb_qr_factor(qr, k, mapped, panel.ld);
    return clb_dmat_unmap(&qr->workspace, &panel, mapped);
}

static clb_status geqrf_shared_run_steps(struct clb_qr *qr, const struct clb_dmat *caller)
{
    clb_status status = bring_in(qr, caller);
    for (size_t k = 0; k < qr->inner && status == CLB_OK; k += qr->nb) {
        size_t first = k + clb_qr_width(qr, k);
        status = geqrf_shared_factor_panel(qr, k);
        if (status == CLB_OK)
            status = clb_qr_prepare(qr, k);
        if (status == CLB_OK && first < qr->x.cols)
            status = clb_qr_apply(qr, k, first, qr->x.cols - first);
    }
    return status;
}

/* If this fails the CPU copies. */
static clb_status geqrf_shared_wrap(struct clb_qr *qr, struct clb_dmat *caller)
{
    const struct clb_geqrf *problem = qr->problem;
    size_t bytes;
    clb_status status = clb_extent_bytes(problem->m, problem->n, problem->lda, qr->element, &bytes);
    if (status == CLB_OK && clb_buffer_wrap(qr->runtime, problem->a, bytes, &caller->mem) != CLB_OK)
        caller->mem = NULL;
    return status;
}

clb_status clb_geqrf_run_shared(struct clb_qr *qr, const struct clb_gemm_variant *variant)
{
    const struct clb_geqrf *problem = qr->problem;
    struct clb_dmat caller = {.rows = problem->m, .cols = problem->n, .ld = problem->lda};
    bool written = false;
    clb_status status = clb_qr_open(qr, variant, CLB_MEMORY_HOST);
    if (status == CLB_OK)
        status = geqrf_shared_wrap(qr, &caller);
    if (status == CLB_OK)
        status = geqrf_shared_run_steps(qr, &caller);
    if (status == CLB_OK)
        status = clb_dmat_copy_out(&qr->workspace, &qr->x, problem->a, problem->lda, &written);
    qr->result->columns_written = written ? problem->n : 0;
    bool idle = clb_workspace_finish(&qr->workspace);
    if (caller.mem != NULL && idle)
        clb_mem_release(caller.mem);
    clb_qr_close(qr, idle);
    return status;
}
