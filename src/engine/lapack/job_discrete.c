/* Transfers of a run on discrete memory, see job.h. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/transfer/transfer_queue.h"
#include "job.h"

#include <stdlib.h>

clb_status clb_job_plan(struct clb_job *run, size_t most)
{
    run->transfers = calloc(1, sizeof *run->transfers);
    run->transfer = run->transfers != NULL ? calloc(most, sizeof *run->transfer) : NULL;
    return run->transfer != NULL ? CLB_OK : CLB_ERR_NOMEM;
}

struct clb_transfer *clb_job_add(struct clb_job *run, bool down, const struct clb_dmat *x,
                                 const void *host, size_t ld)
{
    struct clb_transfer *transfer = &run->transfer[run->uploads + run->downloads];
    *transfer = (struct clb_transfer){.down = down,
                                      .x = *x,
                                      .host = (char *)(uintptr_t)host,
                                      .ld = ld,
                                      .alpha = clb_scalar_of(run->precision, 1)};
    *(down ? &run->downloads : &run->uploads) += 1;
    return transfer;
}

struct clb_transfer *clb_job_add_columns(struct clb_job *run, bool down, const struct clb_dmat *x,
                                         size_t first)
{
    const struct clb_caller *caller = &run->caller[0];
    if (first >= caller->cols) {
        first -= caller->cols;
        caller++;
    }
    const size_t step = (caller->adjoint ? 1 : caller->lda) * run->element;
    struct clb_transfer *transfer =
        clb_job_add(run, down, x, (char *)caller->a + first * step, caller->lda);
    transfer->adjoint = caller->adjoint;
    return transfer;
}

struct clb_transfer *clb_job_add_triangle(struct clb_job *run, bool down, const struct clb_dmat *x,
                                          bool upper, size_t k, size_t width, const void *host,
                                          size_t ld)
{
    size_t row = upper ? 0 : k, rows = upper ? k + width : x->rows - k;
    const struct clb_dmat part = clb_dmat_part(x, row, k, rows, width);
    struct clb_transfer *transfer =
        clb_job_add(run, down, &part, (const char *)host + (row + k * ld) * run->element, ld);
    transfer->shape = upper ? CLB_TRANSFER_UPPER : CLB_TRANSFER_LOWER;
    transfer->diagonal = (ptrdiff_t)(k - row);
    return transfer;
}

size_t clb_job_end_of_matrix(const struct clb_job *run, size_t j)
{
    size_t end = run->caller[0].cols;
    return j < end ? end : end + run->caller[1].cols;
}

clb_status clb_job_begin(struct clb_job *run)
{
    if (!run->discrete)
        return CLB_OK;
    *run->transfers =
        (struct clb_transfer_queue){.queue_set = &run->workspace.queue_set,
                                    .queue_sets = 1,
                                    .queues = 1,
                                    .precision = run->precision,
                                    .transfer = run->transfer,
                                    .uploads = run->uploads,
                                    .downloads = run->downloads,
                                    .wanted_threads = run->variant->tuning.value[CLB_PARAM_THREADS],
                                    .most_threads = CLB_TRANSFER_THREADS,
                                    .in_order = true};
    CLB_TRY(clb_transfer_queue_open(run->transfers));
    run->begun = true;
    clb_transfer_queue_start(run->transfers, CLB_MAX_WORKERS);
    return CLB_OK;
}

clb_status clb_job_await(struct clb_job *run, size_t upload)
{
    return run->discrete ? clb_transfer_queue_await(run->transfers, upload, run->workspace.queue)
                         : CLB_OK;
}

clb_status clb_job_publish(struct clb_job *run, size_t download)
{
    return clb_transfer_queue_release(run->transfers, run->uploads + download,
                                      run->workspace.queue);
}

size_t clb_job_written(const struct clb_job *run)
{
    size_t left = run->begun ? run->transfers->arrived : 0, columns = run->copied;
    for (size_t i = 0; left > 0 && i < run->downloads; i++) {
        const struct clb_transfer *transfer = &run->transfer[run->uploads + i];
        size_t pieces = clb_min(left, transfer->pieces);
        columns += clb_min(pieces * transfer->extent, transfer->x.cols);
        left -= pieces;
    }
    return columns;
}

/* Groups of columns that get the first step as they arrive, after those of the second panel; at the
 * end of each of the caller's matrices one may be smaller. */
#define GROUPS ((size_t)8)

void clb_panels_add_uploads(struct clb_panels *panels, size_t least)
{
    struct clb_job *run = panels->run;
    const struct clb_dmat *x = panels->x;
    size_t first = panels->work->width(panels->context, 0);
    size_t share = clb_max(clb_div_up(x->cols - first, GROUPS), least);
    for (size_t j = first, cols; j < x->cols; j += cols) {
        bool panel = j == first && j < panels->end;
        cols = panel ? panels->work->width(panels->context, j) : share;
        cols = clb_min(cols, clb_job_end_of_matrix(run, j) - j);
        const struct clb_dmat part = clb_dmat_part(x, 0, j, x->rows, cols);
        clb_job_add_columns(run, false, &part, j);
    }
    panels->arriving = run->uploads;
}

void clb_panels_copy_in(struct clb_panels *panels)
{
    size_t rows = panels->x->rows, width = panels->work->width(panels->context, panels->first);
    clb_job_copy(panels->run, false, rows, width, panels->pinned->host, rows, 1);
}

clb_status clb_panels_fetch(struct clb_panels *panels, size_t k)
{
    const struct clb_job *run = panels->run;
    const size_t rows = panels->x->rows - k, width = panels->work->width(panels->context, k);
    const struct clb_dmat panel = clb_dmat_part(panels->x, k, k, rows, width);
    struct clb_queue *download = run->workspace.queue_set->download;
    clb_status status = clb_queue_join(run->workspace.queue, download);
    CLB_THEN(status, clb_dmat_read(download, &panel, run->element, panels->pinned->host, rows,
                                   &panels->down));
    return status == CLB_OK ? clb_queue_flush(download) : status;
}

clb_status clb_panels_factor_pinned(struct clb_panels *panels, size_t k, size_t width)
{
    const struct clb_job *run = panels->run;
    const struct clb_dmat panel = clb_dmat_part(panels->x, k, k, panels->x->rows - k, width);
    struct clb_queue *upload = run->workspace.queue_set->upload;
    clb_status status = CLB_OK;
    if (panels->down != NULL)
        CLB_TRY(clb_queue_set_await(run->workspace.queue_set, &panels->down));
    panels->work->factor(panels->context, k, width, panels->pinned->host, panel.rows);
    status = clb_dmat_write(upload, &panel, run->element, panels->pinned->host, panel.rows, NULL);
    return status == CLB_OK ? clb_queue_join(upload, run->workspace.queue) : status;
}
