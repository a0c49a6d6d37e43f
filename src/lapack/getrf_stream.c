/* LU on a device with its own memory, with look-ahead.
 *
 * The first panel is factored from a copy in pinned memory while the other columns are uploaded,
 * and the first step is applied to them in groups as they arrive. Step k first updates the columns
 * of the next panel, which is then downloaded, so that the CPU factors it while the device updates
 * the other columns; transfers have queues of their own. Nothing is downloaded to the caller's
 * memory before the last step is done. Then the device copies columns, with their rows in the final
 * order, to one of a few chunks of memory, from which the transfer queue writes them to the
 * caller's matrix, from left to right.
 *
 * Right-hand sides are stored as columns after the matrix's, see gesv.c.
 *
 * Where the device factors the panels, getrf_lookahead.c runs the steps, and all columns are
 * uploaded in groups. */
#include "lookahead.h"
#include "transfer/panel_staging.h"

#include <stdlib.h>

/* Chunks being downloaded at once, and groups of columns of the first step. */
#define CHUNKS ((size_t)4)
#define GROUPS ((size_t)8)
/* Pieces that the first panel is uploaded in where the device factors it, and waits for them. */
#define FIRST_PIECES ((size_t)32)

struct getrf_stream_run {
    struct clb_getrf_run *lu;
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer;        /* uploads of groups, then downloads of chunks */
    size_t groups, chunks, matrix_chunks; /* matrix_chunks are those of A, B's follow */
    struct clb_panel_staging staging;
    struct clb_buffer *chunk[CHUNKS], *order;
    cl_uint *order_host; /* row order of a panel's columns at write-back */
    size_t chunk_cols;
    bool ahead, idle; /* the device factors panels; no command of the look-ahead is still running */
};

/* ---- transfers ------------------------------------------------------------------------------- */

/* Column j of the caller's A, or of B if it is after A's last. */
static char *column(const struct clb_getrf_run *lu, size_t j)
{
    const struct clb_getrf *problem = lu->problem;
    if (j < problem->n)
        return (char *)problem->a + j * problem->lda * lu->element;
    return (char *)lu->system->b + (j - problem->n) * lu->system->ldb * lu->element;
}

static size_t column_ld(const struct clb_getrf_run *lu, size_t j)
{
    return j < lu->problem->n ? lu->problem->lda : lu->system->ldb;
}

/* The groups: the second panel, then equal shares of the columns after it; the first panel is
 * uploaded otherwise. With look-ahead: all columns panel by panel, the first one in small
 * pieces. */
static void make_groups(struct getrf_stream_run *run)
{
    const struct clb_getrf_run *lu = run->lu;
    size_t m = lu->x.rows, n = lu->x.cols, first = run->ahead ? 0 : clb_getrf_width(lu, 0);
    size_t share = run->ahead ? lu->nb : clb_max(clb_div_up(n - first, GROUPS), lu->nb);
    for (size_t j = first; j < n;) {
        bool panel = j < lu->inner && (run->ahead || j == first);
        size_t wanted = panel ? clb_getrf_width(lu, j) : share;
        size_t cols = clb_min(wanted, (j < lu->problem->n ? lu->problem->n : n) - j);
        run->transfer[run->groups++] = (struct clb_transfer){
            .x = clb_dmat_part(&lu->x, 0, j, m, cols),
            .host = column(lu, j),
            .ld = column_ld(lu, j),
            .alpha = clb_scalar_one(lu->problem->precision),
            .extent = run->ahead && j == 0 ? clb_div_up(cols, FIRST_PIECES) : 0};
        j += cols;
    }
}

/* A chunk has columns of one panel only, so that it has one row order. Columns after the last panel
 * have no such limit. */
static void make_chunks(struct getrf_stream_run *run)
{
    const struct clb_getrf_run *lu = run->lu;
    size_t m = lu->x.rows, n = lu->x.cols;
    for (size_t k = 0; k < n;) {
        size_t end = k < lu->inner ? k + clb_getrf_width(lu, k) : n;
        for (size_t j = k; j < end; j += run->chunk_cols) {
            size_t cols = clb_min(run->chunk_cols, end - j);
            const struct clb_dmat x = {NULL, 0, m, cols, m};
            run->transfer[run->groups + run->chunks++] =
                (struct clb_transfer){.down = true,
                                      .x = x,
                                      .host = column(lu, j),
                                      .ld = column_ld(lu, j),
                                      .extent = cols};
        }
        k = end;
        if (k <= lu->problem->n)
            run->matrix_chunks = run->chunks;
    }
}

/* The parts of B in the progress are its chunks. */
static clb_status getrf_stream_make_parts(struct getrf_stream_run *run)
{
    const struct clb_getrf_run *lu = run->lu;
    if (lu->system == NULL)
        return CLB_OK;
    clb_status status = clb_gemm_progress_make(lu->progress, run->chunks - run->matrix_chunks);
    for (size_t i = 0, j = 0; i < lu->progress->parts; i++) {
        size_t cols = run->transfer[run->groups + run->matrix_chunks + i].x.cols;
        lu->progress->part[i] = (struct clb_rect){0, j, lu->x.rows, cols};
        j += cols;
    }
    return status;
}

static clb_status getrf_stream_make_transfer(struct getrf_stream_run *run)
{
    const struct clb_getrf_run *lu = run->lu;
    size_t n = lu->x.cols, most = 3 + GROUPS + 2 * n;
    run->chunk_cols = clb_max(CLB_PIECE_BYTES / (lu->x.rows * lu->element), 1);
    run->transfer = calloc(most, sizeof *run->transfer);
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    make_groups(run);
    make_chunks(run);
    return getrf_stream_make_parts(run);
}

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

static clb_status getrf_stream_get_memory(struct getrf_stream_run *run)
{
    struct clb_getrf_run *lu = run->lu;
    size_t m = lu->x.rows, width = clb_max(clb_getrf_width(lu, 0), clb_min(lu->tail, lu->inner));
    size_t bytes;
    clb_status status = clb_extent_bytes(lu->x.ld, lu->x.cols, lu->x.ld, lu->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_DEVICE, bytes, &lu->memory);
    if (status == CLB_OK) {
        lu->x.mem = lu->memory->mem;
        if (!run->ahead)
            status = clb_panel_staging_open(&run->staging, &lu->workspace, m, width);
    }
    if (status == CLB_OK)
        status = getrf_stream_make_transfer(run);
    for (size_t i = 0; i < clb_min(CHUNKS, run->chunks) && status == CLB_OK; i++)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_DEVICE, m * run->chunk_cols * lu->element,
                                &run->chunk[i]);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_DEVICE, m * sizeof(cl_uint), &run->order);
    run->order_host = calloc(m, sizeof *run->order_host);
    return status == CLB_OK && run->order_host == NULL ? CLB_ERR_NOMEM : status;
}

/* ---- panels ---------------------------------------------------------------------------------- */

static struct clb_dmat getrf_stream_panel_of(const struct clb_getrf_run *lu, size_t k, size_t width)
{
    return clb_dmat_part(&lu->x, k, k, lu->x.rows - k, width);
}

/* Factor the panel of step k, so that it is on the device. If the CPU factors it, it is in pinned
 * memory. */
static clb_status getrf_stream_factor_panel(struct getrf_stream_run *run, size_t k, size_t width)
{
    struct clb_getrf_run *lu = run->lu;
    bool there = clb_getrf_is_on_device(lu, k);
    clb_status status = CLB_OK;
    if (!there)
        clb_getrf_factor(lu, k, width, run->staging.pinned->host, lu->x.rows - k);
    if (!there || k == 0) {
        const struct clb_dmat panel = getrf_stream_panel_of(lu, k, width);
        status = clb_panel_staging_up(&run->staging, &panel);
    }
    if (status == CLB_OK && there)
        status = clb_getrf_factor_on_device(lu, k, width);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Apply the step to the columns after the next panel's; in the first step as they arrive. */
static clb_status getrf_stream_apply_rest(struct getrf_stream_run *run, size_t k, size_t width,
                                          size_t first, size_t moves)
{
    struct clb_getrf_run *lu = run->lu;
    clb_status status = CLB_OK;
    if (k > 0 && first < lu->x.cols)
        status = clb_getrf_apply(lu, k, width, first, lu->x.cols - first, moves, true);
    for (size_t i = 1; k == 0 && i < run->groups && status == CLB_OK; i++) {
        size_t cols = run->transfer[i].x.cols;
        status = clb_transfer_queue_await(&run->transfers, i, lu->workspace.queue);
        if (status == CLB_OK)
            status = clb_getrf_apply(lu, k, width, first, cols, moves, true);
        first += cols;
    }
    if (status == CLB_OK)
        status = clb_queue_flush(lu->workspace.queue);
    return status;
}

/* Apply step k, whose panel is factored, and download the next panel. `next` is its width; where
 * there is no next panel it is the number of columns that the first call of the step takes. */
static clb_status getrf_stream_step(struct getrf_stream_run *run, size_t k, size_t width,
                                    size_t next, bool last)
{
    struct clb_getrf_run *lu = run->lu;
    size_t first = k + width, moves;
    clb_status status = clb_getrf_prepare(lu, k, width, &moves);
    if (status == CLB_OK && k == 0 && run->groups > 0)
        status = clb_transfer_queue_await(&run->transfers, 0, lu->workspace.queue);
    if (status == CLB_OK && next > 0)
        status = clb_getrf_apply(lu, k, width, first, next, moves, false);
    if (status == CLB_OK && !last && !clb_getrf_is_on_device(lu, first)) {
        const struct clb_dmat panel = getrf_stream_panel_of(lu, first, next);
        status = clb_panel_staging_down(&run->staging, &panel);
    }
    if (status == CLB_OK)
        status = getrf_stream_apply_rest(run, k, width, first + next, moves);
    clb_status waited = clb_panel_staging_await(&run->staging);
    return status == CLB_OK ? waited : status;
}

static clb_status getrf_stream_run_steps(struct getrf_stream_run *run)
{
    struct clb_getrf_run *lu = run->lu;
    size_t k = 0, width = clb_getrf_width(lu, 0);
    clb_status status = CLB_OK;
    clb_panel_staging_fill(&run->staging, lu->x.rows, width, lu->problem->a, lu->problem->lda);
    while (k < lu->inner && status == CLB_OK) {
        size_t first = k + width;
        bool last = first >= lu->inner;
        size_t next = last ? lu->x.cols - first : clb_getrf_width(lu, first);
        if (k == 0 && run->groups > 0)
            next = run->transfer[0].x.cols;
        status = getrf_stream_factor_panel(run, k, width);
        if (status == CLB_OK)
            status = getrf_stream_step(run, k, width, next, last);
        k = first;
        width = next;
    }
    return status;
}

/* ---- write-back ------------------------------------------------------------------------------ */

static clb_status send_order(struct getrf_stream_run *run, size_t k, size_t width)
{
    struct clb_getrf_run *lu = run->lu;
    clb_getrf_order(lu, k + width, lu->inner, run->order_host);
    return clb_queue_write_now(lu->workspace.queue, run->order->mem, 0,
                               lu->x.rows * sizeof(cl_uint), run->order_host);
}

static clb_status send_chunk(struct getrf_stream_run *run, size_t index, size_t first)
{
    struct clb_getrf_run *lu = run->lu;
    struct clb_transfer *transfer = &run->transfer[run->groups + index];
    clb_status status = CLB_OK;
    if (index >= CHUNKS)
        status = clb_transfer_queue_await_arrival(&run->transfers, run->groups + index - CHUNKS);
    transfer->x.mem = run->chunk[index % CHUNKS]->mem;
    const struct clb_dmat from = clb_dmat_part(&lu->x, 0, first, lu->x.rows, transfer->x.cols);
    if (status == CLB_OK)
        status = clb_dmat_permute(&lu->workspace, &from, &transfer->x, run->order->mem);
    if (status == CLB_OK)
        status = clb_queue_confirm(lu->workspace.queue);
    if (status == CLB_OK)
        status =
            clb_transfer_queue_publish(&run->transfers, run->groups + index, lu->workspace.queue);
    return status;
}

static clb_status getrf_stream_write_back(struct getrf_stream_run *run)
{
    struct clb_getrf_run *lu = run->lu;
    size_t chunk = 0, n = lu->result->info == 0 ? lu->x.cols : lu->problem->n;
    clb_status status = CLB_OK;
    for (size_t k = 0; k < n && status == CLB_OK;) {
        size_t width = k < lu->inner ? clb_getrf_width(lu, k) : n - k;
        status = send_order(run, k, width);
        for (size_t j = k; j < k + width && status == CLB_OK; chunk++) {
            size_t cols = run->transfer[run->groups + chunk].x.cols;
            status = send_chunk(run, chunk, j);
            j += cols;
        }
        k += width;
    }
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Note in the results that the first `arrived` chunks have been written to the caller's
 * matrices. */
static void note_progress(const struct getrf_stream_run *run)
{
    const struct clb_getrf_run *lu = run->lu;
    for (size_t i = 0; i < run->transfers.arrived; i++) {
        if (i < run->matrix_chunks)
            lu->result->columns_written += run->transfer[run->groups + i].x.cols;
        else
            lu->progress->written[i - run->matrix_chunks] = true;
    }
    if (lu->system != NULL)
        lu->progress->kernel = lu->result->kernel;
    if (lu->system != NULL && lu->result->info != 0)
        clb_gemm_progress_free(lu->progress);
}

static clb_status getrf_stream_run_all(struct getrf_stream_run *run,
                                       const struct clb_gemm_variant *variant)
{
    run->lu->begun = true;
    clb_transfer_queue_start(&run->transfers);
    clb_status status = run->ahead ? clb_getrf_run_lookahead(run->lu, variant, &run->transfers,
                                                             run->transfer, run->groups, &run->idle)
                                   : getrf_stream_run_steps(run);
    if (status == CLB_OK && run->lu->system != NULL && run->lu->result->info == 0)
        status = clb_getrf_solve(run->lu);
    /* The device must have completed everything without error before anything is written. */
    if (status == CLB_OK)
        status = clb_queue_set_finish(run->lu->workspace.queue_set);
    if (status == CLB_OK)
        status = getrf_stream_write_back(run);
    status = clb_transfer_queue_finish(&run->transfers, status);
    note_progress(run);
    return status;
}

clb_status clb_getrf_run_stream(struct clb_getrf_run *lu, const struct clb_gemm_variant *variant)
{
    struct getrf_stream_run run = {.lu = lu, .idle = true};
    clb_status status = clb_getrf_open(lu, variant);
    if (status == CLB_OK) {
        run.ahead = clb_getrf_is_on_device(lu, 0);
        status = getrf_stream_get_memory(&run);
    }
    if (status == CLB_OK)
        status = clb_transfer_queue_open(
            &run.transfers, lu->workspace.queue_set, lu->problem->precision, run.transfer,
            run.groups + run.chunks, variant->tuning.value[CLB_PARAM_THREADS]);
    if (status == CLB_OK)
        status = getrf_stream_run_all(&run, variant);
    bool idle = clb_workspace_finish(&lu->workspace) && run.idle;
    if (status == CLB_OK)
        status = clb_queue_set_check(lu->workspace.queue_set);
    clb_transfer_queue_close(&run.transfers, idle);
    for (size_t i = 0; i < CHUNKS; i++)
        clb_buffer_end(lu->runtime, run.chunk[i], idle);
    clb_buffer_end(lu->runtime, run.order, idle);
    clb_panel_staging_close(&run.staging, idle);
    free(run.order_host);
    free(run.transfer);
    clb_getrf_close(lu, idle);
    return status;
}
