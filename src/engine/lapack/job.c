/* What the runs of all algorithms have in common, see job.h. */
#include "job.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- open ------------------------------------------------------------------------------------ */

struct clb_job clb_job_on(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          clb_precision precision)
{
    return (struct clb_job){.runtime = runtime,
                            .variant = variant,
                            .precision = precision,
                            .element = clb_precision_size(precision),
                            .discrete = !runtime->device.unified ||
                                        variant->tuning.value[CLB_PARAM_STREAM] != 0,
                            .idle = true};
}

clb_status clb_job_open(struct clb_job *run, const struct clb_workspace_limits *limits)
{
    clb_status status = clb_workspace_open(&run->workspace, run->runtime, run->variant, limits);
    run->sees = status == CLB_OK && !run->discrete && clb_queue_shows_memory(run->workspace.queue);
    return status;
}

clb_status clb_job_buffer(struct clb_job *run, clb_memory_kind kind, size_t bytes,
                          struct clb_buffer **buffer)
{
    clb_status status = clb_buffer_get(run->runtime, kind, bytes, buffer);
    if (status == CLB_OK)
        run->buffer[run->buffers++] = *buffer;
    return status;
}

clb_status clb_job_matrix(struct clb_job *run, struct clb_dmat *x)
{
    struct clb_buffer *buffer;
    size_t bytes;
    if (x->ld == 0)
        x->ld = clb_dmat_ld(x->rows, run->element);
    clb_status status = clb_extent_bytes(x->ld, x->cols, x->ld, run->element, &bytes);
    if (status == CLB_OK)
        status = clb_job_buffer(run, run->discrete ? CLB_MEMORY_DEVICE : CLB_MEMORY_HOST, bytes,
                                &buffer);
    if (status == CLB_OK)
        x->mem = buffer->mem;
    return status;
}

/* ---- unified memory ------------------------------------------------------------------------- */

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

clb_status clb_job_map_result(struct clb_job *run, const struct clb_dmat *x, void **mapped)
{
    clb_status status = clb_queue_set_finish(run->workspace.queue_set);
    return status == CLB_OK ? clb_job_map(run, x, mapped) : status;
}

clb_status clb_job_unmap(struct clb_job *run, const struct clb_dmat *x, void *mapped)
{
    return clb_job_see(run, x) != NULL ? CLB_OK
                                       : clb_queue_unmap(run->workspace.queue, x->mem, mapped);
}

/* Columns that a thread takes at once. */
#define SHARE ((size_t)64)

struct sharing {
    void (*work)(void *context, size_t thread, size_t begin, size_t end);
    void *context;
    size_t cols;
    atomic_size_t next_column, next_thread;
};

static void take_shares(void *argument)
{
    struct sharing *sharing = argument;
    size_t begin, thread = atomic_fetch_add(&sharing->next_thread, 1);
    while ((begin = atomic_fetch_add(&sharing->next_column, SHARE)) < sharing->cols)
        sharing->work(sharing->context, thread, begin, clb_min(begin + SHARE, sharing->cols));
}

void clb_share_columns(size_t cols, size_t threads,
                       void (*work)(void *context, size_t thread, size_t begin, size_t end),
                       void *context)
{
    struct clb_workers workers;
    struct sharing sharing = {.work = work, .context = context, .cols = cols};
    size_t wanted = clb_min(clb_min(clb_div_up(cols, SHARE), threads), CLB_MAX_WORKERS + 1);
    clb_workers_lend(&workers, clb_max(wanted, 1) - 1, false);
    for (size_t i = 0; i < workers.count; i++)
        clb_workers_start(&workers, i, take_shares, &sharing);
    take_shares(&sharing);
    clb_workers_return(&workers);
}

struct column_copy {
    const char *from;
    char *to;
    size_t from_step, to_step, bytes; /* steps between columns */
};

static void copy_columns(void *context, size_t thread, size_t begin, size_t end)
{
    const struct column_copy *copy = context;
    (void)thread;
    for (size_t j = begin; j < end; j++)
        memcpy(copy->to + j * copy->to_step, copy->from + j * copy->from_step, copy->bytes);
}

/* Copy between the first columns of the caller's first matrix and memory that the CPU has mapped,
 * by at most so many threads; adjoints by as many as are free. */
static void copy_mapped(const struct clb_job *run, bool out, size_t rows, size_t cols, void *mapped,
                        size_t ld, size_t threads)
{
    const struct clb_caller *caller = &run->caller[0];
    size_t step = ld * run->element, caller_step = caller->lda * run->element;
    struct column_copy copy = {caller->a, mapped, caller_step, step, rows * run->element};
    if (out)
        copy = (struct column_copy){mapped, caller->a, step, caller_step, rows * run->element};
    if (!caller->adjoint)
        clb_share_columns(cols, threads, copy_columns, &copy);
    else if (out)
        clb_transpose(run->precision, cols, rows, mapped, ld, caller->a, caller->lda, true);
    else
        clb_transpose(run->precision, rows, cols, caller->a, caller->lda, mapped, ld, true);
}

static clb_status copy_to(struct clb_job *run, const struct clb_dmat *x)
{
    void *mapped;
    clb_status status = clb_job_map(run, x, &mapped);
    if (status != CLB_OK)
        return status;
    copy_mapped(run, false, x->rows, x->cols, mapped, x->ld, run->runtime->device.units);
    return clb_job_unmap(run, x, mapped);
}

clb_status clb_job_copy_out(struct clb_job *run, const struct clb_dmat *x, bool *written)
{
    void *mapped;
    clb_status status = clb_job_map_result(run, x, &mapped);
    *written = status == CLB_OK;
    if (status != CLB_OK)
        return status;
    copy_mapped(run, true, x->rows, x->cols, mapped, x->ld, run->runtime->device.units);
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
    if (status == CLB_OK)
        status = clb_job_matrix(run, x);
    return status == CLB_OK ? copy_to(run, x) : status;
}

void clb_job_unwrap(struct clb_job *run)
{
    if (run->wrapped != NULL)
        clb_mem_release(run->wrapped);
    run->wrapped = NULL;
}

clb_status clb_job_copy_in(struct clb_job *run, const struct clb_dmat *x, size_t cols,
                           struct clb_dmat *rest)
{
    clb_status status = wrap(run, x);
    if (status != CLB_OK)
        return status;
    *rest = (struct clb_dmat){run->wrapped, 0, x->rows, x->cols, run->caller[0].lda};
    const struct clb_dmat part =
        clb_dmat_part(x, 0, 0, x->rows, run->wrapped != NULL ? cols : x->cols);
    return copy_to(run, &part);
}

/* ---- discrete memory ------------------------------------------------------------------------ */

clb_status clb_job_plan(struct clb_job *run, size_t most)
{
    run->transfer = calloc(most, sizeof *run->transfer);
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
                                      .alpha = clb_scalar_one(run->precision)};
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
    struct clb_transfer *transfer =
        clb_job_add(run, down, x,
                    (char *)caller->a + first * (caller->adjoint ? 1 : caller->lda) * run->element,
                    caller->lda);
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
    run->transfers =
        (struct clb_transfer_queue){.queue_set = &run->workspace.queue_set,
                                    .queue_sets = 1,
                                    .queues = 1,
                                    .precision = run->precision,
                                    .transfer = run->transfer,
                                    .uploads = run->uploads,
                                    .downloads = run->downloads,
                                    .wanted_threads = run->variant->tuning.value[CLB_PARAM_THREADS],
                                    .most_threads = CLB_TRANSFER_THREADS,
                                    .in_order = true,
                                    .marks = true};
    clb_status status = clb_transfer_queue_open(&run->transfers);
    if (status != CLB_OK)
        return status;
    run->begun = true;
    clb_transfer_queue_start(&run->transfers, CLB_MAX_WORKERS);
    return CLB_OK;
}

clb_status clb_job_await(struct clb_job *run, size_t upload)
{
    return run->discrete ? clb_transfer_queue_await(&run->transfers, upload, run->workspace.queue)
                         : CLB_OK;
}

clb_status clb_job_publish(struct clb_job *run, size_t download)
{
    return clb_transfer_queue_release(&run->transfers, run->uploads + download,
                                      run->workspace.queue);
}

/* The first `arrived` pieces of the downloads are written when the transfer queue has ended. */
size_t clb_job_written(const struct clb_job *run)
{
    size_t left = run->transfers.arrived, columns = 0;
    for (size_t i = 0; left > 0 && i < run->downloads; i++) {
        const struct clb_transfer *transfer = &run->transfer[run->uploads + i];
        size_t pieces = clb_min(left, transfer->pieces);
        columns += clb_min(pieces * transfer->extent, transfer->x.cols);
        left -= pieces;
    }
    return columns;
}

/* ---- the end --------------------------------------------------------------------------------- */

clb_status clb_job_complete(struct clb_job *run)
{
    return clb_queue_set_finish(run->workspace.queue_set);
}

clb_status clb_job_end(struct clb_job *run, clb_status status)
{
    if (run->begun)
        status = clb_transfer_queue_finish(&run->transfers, status);
    run->idle = clb_workspace_finish(&run->workspace) && !run->stuck;
    return status == CLB_OK ? clb_queue_set_check(run->workspace.queue_set) : status;
}

void clb_job_close(struct clb_job *run)
{
    if (run->transfer != NULL)
        clb_transfer_queue_close(&run->transfers, run->idle);
    free(run->transfer);
    if (run->idle)
        clb_job_unwrap(run);
    for (size_t i = 0; i < run->buffers; i++)
        clb_buffer_end(run->runtime, run->buffer[i], run->idle);
    clb_workspace_close(&run->workspace, run->idle);
}

/* ---- panels ---------------------------------------------------------------------------------- */

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

clb_status clb_panels_open(struct clb_panels *panels, size_t width)
{
    struct clb_job *run = panels->run;
    return clb_job_buffer(run, CLB_MEMORY_HOST, panels->x->rows * width * run->element,
                          &panels->pinned);
}

static struct clb_dmat panel_at(const struct clb_panels *panels, size_t k, size_t width)
{
    return clb_dmat_part(panels->x, k, k, panels->x->rows - k, width);
}

void clb_panels_copy_in(struct clb_panels *panels)
{
    size_t rows = panels->x->rows, width = panels->work->width(panels->context, panels->first);
    copy_mapped(panels->run, false, rows, width, panels->pinned->host, rows, 1);
}

clb_status clb_panels_fetch(struct clb_panels *panels, size_t k)
{
    const struct clb_job *run = panels->run;
    const struct clb_dmat panel = panel_at(panels, k, panels->work->width(panels->context, k));
    struct clb_queue *download = run->workspace.queue_set->download;
    clb_status status = clb_queue_join(run->workspace.queue, download);
    if (status == CLB_OK)
        status = clb_dmat_read(download, &panel, run->element, panels->pinned->host, panel.rows,
                               &panels->down);
    return status == CLB_OK ? clb_queue_flush(download) : status;
}

static clb_status await_panel(struct clb_panels *panels)
{
    return panels->down == NULL
               ? CLB_OK
               : clb_queue_set_await(panels->run->workspace.queue_set, &panels->down);
}

static clb_status factor_pinned(struct clb_panels *panels, size_t k, size_t width)
{
    const struct clb_job *run = panels->run;
    const struct clb_dmat panel = panel_at(panels, k, width);
    struct clb_queue *upload = run->workspace.queue_set->upload;
    clb_status status = await_panel(panels);
    if (status != CLB_OK)
        return status;
    panels->work->factor(panels->context, k, width, panels->pinned->host, panel.rows);
    status = clb_dmat_write(upload, &panel, run->element, panels->pinned->host, panel.rows, NULL);
    return status == CLB_OK ? clb_queue_join(upload, run->workspace.queue) : status;
}

clb_status clb_panels_factor_mapped(struct clb_panels *panels, size_t k, size_t width)
{
    const struct clb_dmat panel = panel_at(panels, k, width);
    void *mapped;
    clb_status status = clb_job_map(panels->run, &panel, &mapped);
    if (status != CLB_OK)
        return status;
    panels->work->factor(panels->context, k, width, mapped, panel.ld);
    return clb_job_unmap(panels->run, &panel, mapped);
}

static bool is_in_place(const struct clb_panels *panels, size_t k)
{
    return panels->work->is_in_place != NULL && panels->work->is_in_place(panels->context, k);
}

/* Apply step k, whose panel is on the device, to the columns from `first` on. Discrete memory:
 * first to those of the next panel, which is then downloaded; in the first step as columns arrive.
 */
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
        if (status == CLB_OK)
            status = panels->work->apply(panels->context, k, width, first, count, kept);
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
    clb_status status = CLB_OK;
    for (size_t k = panels->first, width; k < panels->end && status == CLB_OK; k += width) {
        width = panels->work->width(panels->context, k);
        if (is_in_place(panels, k))
            status = panels->work->factor_in_place(panels->context, k, width);
        else
            status = panels->run->discrete ? factor_pinned(panels, k, width)
                                           : clb_panels_factor_mapped(panels, k, width);
        if (status == CLB_OK)
            status = apply_step(panels, k, width);
        clb_progress_note_columns(k + width, panels->cols);
    }
    clb_status waited = await_panel(panels); /* after a failure one may still be on its way */
    return status != CLB_OK ? status : waited;
}
