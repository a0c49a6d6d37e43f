/* Matrices that both the CPU and the device can access, see shared.h. */
#include "shared.h"

#include <stdatomic.h>
#include <string.h>

clb_status clb_dmat_map(struct clb_workspace *workspace, const struct clb_dmat *x, void **mapped)
{
    size_t element = clb_precision_size(workspace->variant->precision);
    return clb_queue_map(workspace->queue, x->mem, CL_MAP_READ | CL_MAP_WRITE, x->offset * element,
                         ((x->cols - 1) * x->ld + x->rows) * element, mapped, NULL);
}

clb_status clb_dmat_map_result(struct clb_workspace *workspace, const struct clb_dmat *x,
                               void **mapped)
{
    clb_status status = clb_queue_set_finish(workspace->queue_set);
    return status == CLB_OK ? clb_dmat_map(workspace, x, mapped) : status;
}

clb_status clb_dmat_unmap(struct clb_workspace *workspace, const struct clb_dmat *x, void *mapped)
{
    return clb_queue_unmap(workspace->queue, x->mem, mapped);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Columns that a thread takes at once. */
#define SHARE ((size_t)64)

struct copy {
    const char *from;
    char *to;
    size_t from_step, to_step, bytes, cols; /* steps between columns */
    atomic_size_t next;                     /* column */
};

static void shared_copy_shares(void *argument)
{
    struct copy *copy = argument;
    for (;;) {
        size_t begin = atomic_fetch_add(&copy->next, SHARE);
        if (begin >= copy->cols)
            return;
        for (size_t j = begin; j < clb_min(begin + SHARE, copy->cols); j++)
            memcpy(copy->to + j * copy->to_step, copy->from + j * copy->from_step, copy->bytes);
    }
}

static void copy_by_threads(struct copy *copy, size_t threads)
{
    struct clb_workers workers;
    size_t wanted = clb_min(clb_min(clb_div_up(copy->cols, SHARE), threads), CLB_MAX_WORKERS + 1);
    clb_workers_lend(&workers, clb_max(wanted, 1) - 1, false);
    for (size_t i = 0; i < workers.count; i++)
        clb_workers_start(&workers, i, shared_copy_shares, copy);
    shared_copy_shares(copy);
    clb_workers_return(&workers);
}

clb_status clb_dmat_copy_in(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const void *a, size_t lda)
{
    size_t element = clb_precision_size(workspace->variant->precision);
    void *mapped;
    clb_status status = clb_dmat_map(workspace, x, &mapped);
    if (status != CLB_OK)
        return status;
    struct copy copy = {a, mapped, lda * element, x->ld * element, x->rows * element, x->cols, 0};
    copy_by_threads(&copy, workspace->runtime->device.units);
    return clb_dmat_unmap(workspace, x, mapped);
}

clb_status clb_dmat_copy_out(struct clb_workspace *workspace, const struct clb_dmat *x, void *a,
                             size_t lda, bool *written)
{
    size_t element = clb_precision_size(workspace->variant->precision);
    void *mapped;
    clb_status status = clb_dmat_map_result(workspace, x, &mapped);
    *written = status == CLB_OK;
    if (status != CLB_OK)
        return status;
    struct copy copy = {mapped, a, x->ld * element, lda * element, x->rows * element, x->cols, 0};
    copy_by_threads(&copy, workspace->runtime->device.units);
    return clb_dmat_unmap(workspace, x, mapped);
}

/* ---- views ----------------------------------------------------------------------------------- */

static clb_status copy_there(struct clb_operand_view *view, struct clb_workspace *workspace,
                             const void *a, size_t lda, struct clb_dmat *x)
{
    size_t element = clb_precision_size(workspace->variant->precision), bytes;
    x->ld = clb_dmat_ld(x->rows, element);
    clb_status status = clb_extent_bytes(x->ld, x->cols, x->ld, element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(workspace->runtime, CLB_MEMORY_HOST, bytes, &view->copy);
    if (status != CLB_OK)
        return status;
    x->mem = view->copy->mem;
    return clb_dmat_copy_in(workspace, x, a, lda);
}

clb_status clb_operand_view_open(struct clb_operand_view *view, struct clb_workspace *workspace,
                                 const void *a, size_t lda, struct clb_dmat *x)
{
    size_t element = clb_precision_size(workspace->variant->precision), bytes;
    clb_status status = clb_extent_bytes(x->rows, x->cols, lda, element, &bytes);
    *view = (struct clb_operand_view){0};
    if (status != CLB_OK)
        return status;
    if (clb_buffer_wrap(workspace->runtime, a, bytes, &view->wrapped) != CLB_OK)
        return copy_there(view, workspace, a, lda, x);
    x->mem = view->wrapped;
    x->ld = lda;
    return CLB_OK;
}

void clb_operand_view_close(struct clb_operand_view *view, struct clb_runtime *runtime, bool idle)
{
    if (view->wrapped != NULL && idle)
        clb_mem_release(view->wrapped);
    clb_buffer_end(runtime, view->copy, idle);
    *view = (struct clb_operand_view){0};
}
