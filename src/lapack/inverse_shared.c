/* Inverses on a device that shares the host's memory: the device reads the caller's matrix in
 * place, and writes results to memory of the shim. */
#include "inverse.h"
#include "dense/shared.h"

struct inverse_shared_run {
    struct clb_inverse_state *inverting;
    struct clb_operand_view view;
    struct clb_buffer *x, *y;
};

static clb_status inverse_shared_get_matrix(struct inverse_shared_run *run, struct clb_dmat *x,
                                            struct clb_buffer **buffer)
{
    size_t bytes;
    clb_status status = clb_extent_bytes(x->ld, x->cols, x->ld, run->inverting->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(run->inverting->runtime, CLB_MEMORY_HOST, bytes, buffer);
    if (status == CLB_OK)
        x->mem = (*buffer)->mem;
    return status;
}

static clb_status inverse_shared_open_matrices(struct inverse_shared_run *run)
{
    struct clb_inverse_state *inverting = run->inverting;
    const struct clb_inverse *problem = inverting->problem;
    clb_status status = inverse_shared_get_matrix(run, &inverting->x, &run->x);
    if (status == CLB_OK && problem->multiplies)
        status = inverse_shared_get_matrix(run, &inverting->y, &run->y);
    if (status == CLB_OK)
        status = clb_operand_view_open(&run->view, &inverting->workspace, problem->a, problem->lda,
                                       &inverting->a);
    return status;
}

/* Copy the result to the caller's matrix. The view of that is closed first, when all commands that
 * used it have completed. */
static clb_status inverse_shared_write_back(struct inverse_shared_run *run)
{
    struct clb_inverse_state *inverting = run->inverting;
    const struct clb_dmat *result = clb_inverting_result(inverting);
    void *mapped;
    clb_status status = clb_dmat_map_result(&inverting->workspace, result, &mapped);
    if (status != CLB_OK)
        return status;
    clb_operand_view_close(&run->view, inverting->runtime, true);
    status = clb_inverting_write(inverting, mapped, result->ld);
    clb_status unmapped = clb_dmat_unmap(&inverting->workspace, result, mapped);
    if (unmapped != CLB_OK)
        clb_log(CLB_LOG_INFO, "inverse: %s after the result was written",
                clb_status_name(unmapped));
    return status;
}

clb_status clb_inverse_run_shared(struct clb_inverse_state *inverting,
                                  const struct clb_gemm_variant *variant)
{
    struct inverse_shared_run run = {.inverting = inverting};
    clb_status status = clb_inverting_open(inverting, variant);
    if (status == CLB_OK)
        status = inverse_shared_open_matrices(&run);
    if (status == CLB_OK)
        status = clb_inverting_compute(inverting);
    if (status == CLB_OK)
        status = inverse_shared_write_back(&run);
    bool idle = clb_workspace_finish(&inverting->workspace);
    clb_operand_view_close(&run.view, inverting->runtime, idle);
    clb_buffer_end(inverting->runtime, run.x, idle);
    clb_buffer_end(inverting->runtime, run.y, idle);
    clb_workspace_close(&inverting->workspace, idle);
    return status;
}
