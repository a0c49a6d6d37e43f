/* LU on a device that shares the host's memory. The matrix is copied to memory of the shim that the
 * CPU can access too, so that the CPU factors panels in place. The device copies the caller's
 * columns in and applies the first step's interchanges in doing so; the CPU copies them out and
 * applies those of the later steps. So neither costs a pass of its own. */
#include "getrf.h"
#include "dense/shared.h"

#include <string.h>

/* ---- panels ---------------------------------------------------------------------------------- */

static clb_status getrf_shared_factor_here(struct clb_getrf_run *lu, size_t k, size_t width)
{
    const struct clb_dmat part = clb_dmat_part(&lu->x, k, k, lu->x.rows - k, width);
    void *panel;
    clb_status status = clb_dmat_map(&lu->workspace, &part, &panel);
    if (status != CLB_OK)
        return status;
    clb_getrf_factor(lu, k, width, panel, lu->x.ld);
    return clb_dmat_unmap(&lu->workspace, &part, panel);
}

/* Strip [j, j + width) of the panel [k, end) has been factored. Apply its step to the rest of the
 * panel, and its interchanges to the strips on its left. */
static clb_status getrf_shared_follow_strip(struct clb_getrf_run *lu, size_t k, size_t end,
                                            size_t j, size_t width)
{
    const struct clb_dmat left = clb_dmat_part(&lu->x, 0, k, lu->x.rows, j - k);
    size_t first = j + width, moves;
    clb_status status = first < end ? clb_getrf_prepare(lu, j, width, &moves)
                                    : clb_getrf_send_moves(lu, j, width, &moves);
    if (status == CLB_OK)
        status = clb_dmat_move(&lu->workspace, &left, moves);
    if (status == CLB_OK && first < end)
        status = clb_getrf_apply(lu, j, width, first, end - first, moves, false);
    return status;
}

/* Factor the panel in strips, because the device's other threads have no work while the CPU factors
 * on one of them. The transfer of a strip's moves is complete when the next strip is mapped, and at
 * the end. */
static clb_status factor_strips(struct clb_getrf_run *lu, size_t k, size_t width)
{
    clb_status status = CLB_OK;
    for (size_t j = k; j < k + width && status == CLB_OK; j += lu->strip) {
        size_t cols = clb_min(lu->strip, k + width - j);
        status = getrf_shared_factor_here(lu, j, cols);
        if (status == CLB_OK)
            status = getrf_shared_follow_strip(lu, k, k + width, j, cols);
    }
    return status == CLB_OK ? clb_queue_set_finish(lu->workspace.queue_set) : status;
}

static clb_status getrf_shared_factor_panel(struct clb_getrf_run *lu, size_t k, size_t width)
{
    if (clb_getrf_is_on_device(lu, k))
        return clb_getrf_factor_on_device(lu, k, width);
    return width > lu->strip ? factor_strips(lu, k, width) : getrf_shared_factor_here(lu, k, width);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static clb_status getrf_shared_step(struct clb_getrf_run *lu, const struct clb_dmat *caller,
                                    size_t k, size_t width)
{
    size_t first = k + width, count = lu->x.cols - first, moves;
    clb_status status = clb_getrf_prepare(lu, k, width, &moves);
    if (status != CLB_OK || count == 0)
        return status;
    if (k == 0 && caller->mem != NULL) {
        const struct clb_dmat from = clb_dmat_part(caller, 0, first, lu->x.rows, count);
        const struct clb_dmat to = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
        status = clb_dmat_move_copy(&lu->workspace, &from, &to, moves);
        moves = 0;
    }
    if (status == CLB_OK)
        status = clb_getrf_apply(lu, k, width, first, count, moves, false);
    return status;
}

static clb_status getrf_shared_run_steps(struct clb_getrf_run *lu, const struct clb_dmat *caller)
{
    /* The CPU copies the first panel in, because it factors it. It copies all columns where the
     * device can't access the caller's matrix. */
    const struct clb_dmat part = clb_dmat_part(
        &lu->x, 0, 0, lu->x.rows, caller->mem != NULL ? clb_getrf_width(lu, 0) : lu->x.cols);
    clb_status status = clb_dmat_copy_in(&lu->workspace, &part, lu->problem->a, lu->problem->lda);
    for (size_t k = 0; k < lu->inner && status == CLB_OK;) {
        size_t width = clb_getrf_width(lu, k);
        status = getrf_shared_factor_panel(lu, k, width);
        if (status == CLB_OK)
            status = getrf_shared_step(lu, caller, k, width);
        k += width;
    }
    return status;
}

/* ---- write-back ------------------------------------------------------------------------------ */

static clb_status take_out(struct clb_getrf_run *lu)
{
    void *mapped;
    clb_status status = clb_dmat_map_result(&lu->workspace, &lu->x, &mapped);
    if (status != CLB_OK)
        return status;
    status = clb_getrf_write_back(lu, mapped, lu->runtime->device.units);
    clb_status unmapped = clb_dmat_unmap(&lu->workspace, &lu->x, mapped);
    return status != CLB_OK ? status : unmapped;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status getrf_shared_open_matrices(struct clb_getrf_run *lu, struct clb_dmat *caller)
{
    const struct clb_getrf *problem = lu->problem;
    size_t bytes;
    clb_status status = clb_extent_bytes(problem->m, problem->n, problem->lda, lu->element, &bytes);
    /* If this fails the CPU copies. */
    if (status == CLB_OK && clb_buffer_wrap(lu->runtime, problem->a, bytes, &caller->mem) != CLB_OK)
        caller->mem = NULL;
    if (status == CLB_OK)
        status = clb_extent_bytes(lu->x.rows, lu->x.cols, lu->x.ld, lu->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_HOST, bytes, &lu->memory);
    if (status == CLB_OK)
        lu->x.mem = lu->memory->mem;
    return status;
}

clb_status clb_getrf_run_shared(struct clb_getrf_run *lu, const struct clb_gemm_variant *variant)
{
    struct clb_dmat caller = {
        .rows = lu->problem->m, .cols = lu->problem->n, .ld = lu->problem->lda};
    clb_status status = clb_getrf_open(lu, variant);
    if (status == CLB_OK)
        status = getrf_shared_open_matrices(lu, &caller);
    if (status == CLB_OK)
        status = getrf_shared_run_steps(lu, &caller);
    if (status == CLB_OK)
        status = take_out(lu);
    bool idle = clb_workspace_finish(&lu->workspace);
    if (caller.mem != NULL && idle)
        clb_mem_release(caller.mem);
    clb_getrf_close(lu, idle);
    return status;
}
