/* Runs on devices with unified memory, see job.h. SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

void *clb_job_see(const struct clb_job *run, const struct clb_dmat *x)
{
    for (size_t i = 0; run->sees && i < run->buffers; i++) {
        const struct clb_buffer *buffer = run->buffer[i];
        if (buffer->mem == x->mem && buffer->kind == CLB_MEMORY_HOST)
            return (char *)buffer->host + x->offset * run->element;
    }
    return NULL;
}

clb_status clb_job_map(struct clb_job *run, const struct clb_dmat *x, void **mapped)
{
    *mapped = clb_job_see(run, x);
    if (*mapped != NULL)
        return clb_queue_finish(run->workspace.queue);
    return clb_queue_map(run->workspace.queue, x->mem, CL_MAP_READ | CL_MAP_WRITE,
                         x->offset * run->element, ((x->cols - 1) * x->ld + x->rows) * run->element,
                         mapped, NULL);
}

clb_status clb_job_unmap(struct clb_job *run, const struct clb_dmat *x, void *mapped)
{
    return clb_job_see(run, x) != NULL ? CLB_OK
                                       : clb_queue_unmap(run->workspace.queue, x->mem, mapped);
}

clb_status clb_job_copy_matrix(struct clb_job *run, const struct clb_dmat *x, bool out)
{
    void *mapped;
    CLB_TRY(clb_job_map(run, x, &mapped));
    run->copied = out ? x->cols : 0;
    clb_job_copy(run, out, x->rows, x->cols, mapped, x->ld, run->runtime->device.units);
    return clb_job_unmap(run, x, mapped);
}

/* CLB_OK with run->wrapped NULL: the device can't access the matrix as it is. */
static clb_status wrap(struct clb_job *run, const struct clb_dmat *x)
{
    const struct clb_caller *caller = &run->caller[0];
    size_t bytes;
    if (caller->adjoint)
        return CLB_OK;
    clb_status status = clb_extent_bytes(x->rows, x->cols, caller->lda, run->element, &bytes);
    if (status == CLB_OK &&
        clb_buffer_wrap(run->runtime, caller->a, bytes, &run->wrapped) != CLB_OK)
        run->wrapped = NULL;
    return status;
}

clb_status clb_job_view(struct clb_job *run, struct clb_dmat *x)
{
    clb_status status = wrap(run, x);
    if (status == CLB_OK && run->wrapped != NULL) {
        x->mem = run->wrapped;
        x->ld = run->caller[0].lda;
        return CLB_OK;
    }
    CLB_THEN(status, clb_job_matrix(run, x));
    return status == CLB_OK ? clb_job_copy_matrix(run, x, false) : status;
}

clb_status clb_job_copy_in(struct clb_job *run, const struct clb_dmat *x, size_t cols,
                           struct clb_dmat *rest)
{
    CLB_TRY(wrap(run, x));
    *rest = (struct clb_dmat){run->wrapped, 0, x->rows, x->cols, run->caller[0].lda};
    const struct clb_dmat part =
        clb_dmat_part(x, 0, 0, x->rows, run->wrapped != NULL ? cols : x->cols);
    return clb_job_copy_matrix(run, &part, false);
}

clb_status clb_panels_factor_mapped(struct clb_panels *panels, size_t k, size_t width)
{
    const struct clb_dmat panel = clb_dmat_part(panels->x, k, k, panels->x->rows - k, width);
    void *mapped;
    CLB_TRY(clb_job_map(panels->run, &panel, &mapped));
    panels->work->factor(panels->context, k, width, mapped, panel.ld);
    return clb_job_unmap(panels->run, &panel, mapped);
}
