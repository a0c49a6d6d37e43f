/* What all algorithms' runs have in common, see job.h. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/transfer/transfer_queue.h"
#include "job.h"

#include <stdlib.h>
#include <string.h>

struct clb_job clb_job_on(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          clb_precision precision, struct clb_caller caller)
{
    return (struct clb_job){.runtime = runtime,
                            .variant = variant,
                            .precision = precision,
                            .element = clb_precision_size(precision),
                            .discrete = !runtime->device.unified ||
                                        variant->tuning.value[CLB_PARAM_STREAM] != 0,
                            .caller = {caller},
                            .idle = true};
}

clb_status clb_job_open(struct clb_job *run, const struct clb_workspace_limits *limits)
{
    clb_status status =
        clb_workspace_open(&run->workspace, run->runtime, run->variant, limits, true);
    run->sees = status == CLB_OK && !run->discrete && clb_queue_shows_memory(run->workspace.queue);
    return status;
}

clb_status clb_job_buffer(struct clb_job *run, clb_memory_kind kind, size_t bytes,
                          struct clb_buffer **buffer)
{
    CLB_TRY(clb_buffer_get(run->runtime, kind, bytes, buffer));
    run->buffer[run->buffers++] = *buffer;
    return CLB_OK;
}

clb_status clb_job_matrix(struct clb_job *run, struct clb_dmat *x)
{
    struct clb_buffer *buffer;
    size_t bytes;
    if (x->ld == 0)
        x->ld = clb_dmat_ld(x->rows, run->element);
    CLB_TRY(clb_extent_bytes(x->ld, x->cols, x->ld, run->element, &bytes));
    CLB_TRY(
        clb_job_buffer(run, run->discrete ? CLB_MEMORY_DEVICE : CLB_MEMORY_HOST, bytes, &buffer));
    x->mem = buffer->mem;
    return CLB_OK;
}

clb_status clb_job_complete(struct clb_job *run)
{
    return clb_queue_set_finish(run->workspace.queue_set);
}

clb_status clb_job_write_back(struct clb_job *run, const struct clb_dmat *x)
{
    clb_status status = run->discrete ? CLB_OK : clb_job_copy_matrix(run, x, true);
    for (size_t i = 0; i < run->downloads && status == CLB_OK; i++)
        status = clb_job_publish(run, i);
    return status;
}

clb_status clb_job_end(struct clb_job *run, clb_status status)
{
    if (run->begun)
        status = clb_transfer_queue_finish(run->transfers, status);
    run->idle = clb_workspace_finish(&run->workspace) && !run->stuck;
    return status == CLB_OK ? clb_queue_set_check(run->workspace.queue_set) : status;
}

void clb_job_close(struct clb_job *run)
{
    if (run->transfers != NULL)
        clb_transfer_queue_close(run->transfers, run->idle);
    free(run->transfers);
    free(run->transfer);
    if (run->idle)
        clb_job_unwrap(run);
    for (size_t i = 0; i < run->buffers; i++)
        clb_buffer_end(run->runtime, run->buffer[i], run->idle);
    clb_workspace_close(&run->workspace, run->idle);
}

void clb_copy_columns(void *context, size_t thread, size_t begin, size_t end)
{
    const struct clb_column_copy *copy = context;
    (void)thread;
    for (size_t j = begin; j < end; j++) {
        const size_t column = copy->order != NULL ? copy->order[j] : j;
        memcpy(copy->to + j * copy->to_step, copy->from + column * copy->from_step, copy->bytes);
    }
}

void clb_job_copy(const struct clb_job *run, bool out, size_t rows, size_t cols, void *mapped,
                  size_t ld, size_t threads)
{
    const struct clb_caller *caller = &run->caller[0];
    size_t step = ld * run->element, caller_step = caller->lda * run->element;
    struct clb_column_copy copy = {mapped, caller->a, step, caller_step, rows * run->element, NULL};
    if (!out)
        copy = (struct clb_column_copy){caller->a, mapped, caller_step, step, copy.bytes, NULL};
    if (!caller->adjoint)
        clb_workers_share(cols, CLB_COLUMN_SHARE, threads, clb_copy_columns, &copy);
    else if (out)
        clb_transpose(run->precision, cols, rows, mapped, ld, caller->a, caller->lda, true, false);
    else
        clb_transpose(run->precision, rows, cols, caller->a, caller->lda, mapped, ld, true, false);
}

void clb_job_unwrap(struct clb_job *run)
{
    if (run->wrapped != NULL)
        clb_mem_release(run->wrapped);
    run->wrapped = NULL;
}

static bool is_in_place(const struct clb_panels *panels, size_t k)
{
    return panels->work->is_in_place != NULL && panels->work->is_in_place(panels->context, k);
}

/* Apply step k, whose panel is on the device, in the order that job.h describes. */
static clb_status apply_step(struct clb_panels *panels, size_t k, size_t width)
{
    struct clb_job *run = panels->run;
    size_t first = k + width, arriving = k == panels->first ? panels->arriving : 0;
    bool last = first >= panels->end, kept = false;
    size_t count =
        run->discrete && !last ? panels->work->width(panels->context, first) : panels->cols - first;
    clb_status status = panels->work->prepare(panels->context, k, width);
    for (size_t i = 0; first < panels->cols && status == CLB_OK; i++) {
        if (i < arriving) {
            count = run->transfer[i].x.cols;
            status = clb_job_await(run, i);
        }
        CLB_THEN(status, panels->work->apply(panels->context, k, width, first, count, kept));
        if (status == CLB_OK && i == 0 && run->discrete && !last && !is_in_place(panels, first))
            status = clb_panels_fetch(panels, first);
        first += count;
        count = panels->cols - first;
        kept = true;
    }
    if (status == CLB_OK && run->discrete)
        status = clb_queue_flush(run->workspace.queue);
    return status;
}

clb_status clb_panels_run(struct clb_panels *panels)
{
    clb_status status = CLB_OK, waited = CLB_OK;
    for (size_t k = panels->first, width; k < panels->end && status == CLB_OK; k += width) {
        width = panels->work->width(panels->context, k);
        if (is_in_place(panels, k))
            status = panels->work->factor_in_place(panels->context, k, width);
        else
            status = panels->run->discrete ? clb_panels_factor_pinned(panels, k, width)
                                           : clb_panels_factor_mapped(panels, k, width);
        CLB_THEN(status, apply_step(panels, k, width));
        clb_progress_note_columns(k + width, panels->cols);
    }
    if (panels->down != NULL) /* after a failure one may still be on its way */
        waited = clb_queue_set_await(panels->run->workspace.queue_set, &panels->down);
    return status != CLB_OK ? status : waited;
}
