/* Systems and products where the device has its own memory. A and the parts of B are uploaded; each
 * part is processed as soon as it has arrived, and downloaded while the device works on the next
 * ones. Where not all parts fit at once they share memory, and a part is uploaded when the one that
 * had the memory before has been downloaded. */
#include "transfer/transfer_queue.h"
#include "solve.h"

#include <stdlib.h>

struct solve_stream_run {
    struct clb_runtime *runtime;
    struct clb_solve *solve;
    size_t element;
    size_t resident; /* parts on the device at once */
    bool begun;
    struct clb_workspace workspace;
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer; /* A, the parts of B, the parts of X */
    struct clb_buffer *memory[2];
    struct clb_dmat a, b;
};

/* ---- memory and transfers -------------------------------------------------------------------- */

static clb_status solve_stream_get_matrix(struct solve_stream_run *run, struct clb_dmat *x,
                                          size_t rows, size_t cols, struct clb_buffer **buffer)
{
    size_t bytes;
    *x = (struct clb_dmat){.rows = rows, .cols = cols, .ld = clb_dmat_ld(rows, run->element)};
    clb_status status = clb_extent_bytes(x->ld, cols, x->ld, run->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(run->runtime, CLB_MEMORY_DEVICE, bytes, buffer);
    if (status == CLB_OK)
        x->mem = (*buffer)->mem;
    return status;
}

static struct clb_transfer part_transfer(const struct solve_stream_run *run, size_t index,
                                         bool down)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *rect = &solve->progress->part[index];
    const struct clb_rect *place = &solve->progress->part[index % run->resident];
    return (struct clb_transfer){
        .down = down,
        .held = !down && index >= run->resident,
        .by_rows = solve->right,
        .x = clb_dmat_part(&run->b, place->row, place->col, rect->rows, rect->cols),
        .host = (char *)solve->b + (rect->row + rect->col * solve->ldb) * run->element,
        .ld = solve->ldb,
        .alpha = solve->alpha,
        .order = down ? solve->order_out : solve->order_in};
}

static clb_status solve_stream_make_transfer(struct solve_stream_run *run)
{
    const struct clb_solve *solve = run->solve;
    size_t parts = solve->progress->parts;
    run->transfer = calloc(1 + 2 * parts, sizeof *run->transfer);
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    run->transfer[0] = (struct clb_transfer){.x = run->a,
                                             .host = (char *)(uintptr_t)solve->a,
                                             .ld = solve->lda,
                                             .alpha = clb_scalar_one(solve->precision)};
    for (size_t i = 0; i < parts; i++) {
        run->transfer[1 + i] = part_transfer(run, i, false);
        run->transfer[1 + parts + i] = part_transfer(run, i, true);
    }
    return CLB_OK;
}

/* Get memory for the first `resident` parts; later ones reuse it. */
static clb_status get_parts(struct solve_stream_run *run)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *last = &solve->progress->part[run->resident - 1];
    return solve_stream_get_matrix(run, &run->b, last->row + last->rows, last->col + last->cols,
                                   &run->memory[1]);
}

/* Replace the parts of the progress by the pieces of the downloads, since each of these is written
 * completely or not at all. */
static clb_status solve_stream_make_parts(struct solve_stream_run *run)
{
    struct clb_gemm_progress *progress = run->solve->progress;
    struct clb_gemm_progress pieces = {.kernel = progress->kernel};
    size_t parts = progress->parts, at = 0;
    clb_status status = clb_gemm_progress_make(&pieces, run->transfers.down_pieces);
    if (status != CLB_OK)
        return status;
    for (size_t i = 0; i < parts; i++) {
        const struct clb_transfer *transfer = &run->transfer[1 + parts + i];
        const struct clb_rect *part = &progress->part[i];
        for (size_t p = 0; p < transfer->pieces; p++) {
            struct clb_rect rect = clb_transfer_piece(transfer, p);
            rect.row += part->row;
            rect.col += part->col;
            pieces.part[at++] = rect;
        }
    }
    clb_gemm_progress_free(progress);
    *progress = pieces;
    return CLB_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status solve_stream_begin(struct solve_stream_run *run,
                                     const struct clb_gemm_variant *variant)
{
    const struct clb_solve *solve = run->solve;
    size_t n = clb_solve_order(solve), parts = solve->progress->parts;
    const struct clb_workspace_limits limits = solve->work->limits(solve);
    clb_status status = clb_workspace_open(&run->workspace, run->runtime, variant, &limits);
    if (status == CLB_OK)
        status = solve_stream_get_matrix(run, &run->a, n, solve->cols_a, &run->memory[0]);
    if (status == CLB_OK)
        status = get_parts(run);
    if (status == CLB_OK)
        status = solve_stream_make_transfer(run);
    if (status == CLB_OK)
        status = clb_transfer_queue_open(&run->transfers, run->workspace.queue_set,
                                         solve->precision, run->transfer, 1 + 2 * parts,
                                         variant->tuning.value[CLB_PARAM_THREADS]);
    if (status == CLB_OK) {
        solve->progress->kernel = run->workspace.variant->name;
        status = solve_stream_make_parts(run);
    }
    return status;
}

/* Allow the upload of a part that was held back, when its memory is free. */
static clb_status release_part(struct solve_stream_run *run, size_t parts, size_t index)
{
    if (index >= parts || index < run->resident)
        return CLB_OK;
    clb_status status =
        clb_transfer_queue_await_arrival(&run->transfers, 1 + parts + index - run->resident);
    if (status == CLB_OK)
        status = clb_transfer_queue_release(&run->transfers, 1 + index, run->workspace.queue);
    return status;
}

static clb_status solve_parts(struct solve_stream_run *run, size_t parts)
{
    struct clb_queue *queue = run->workspace.queue;
    run->begun = true;
    clb_transfer_queue_start(&run->transfers);
    clb_status status = clb_transfer_queue_await(&run->transfers, 0, queue);
    if (status == CLB_OK)
        status = run->solve->work->prepare(run->solve, &run->workspace, &run->a);
    for (size_t i = 0; i < parts && status == CLB_OK; i++) {
        status = clb_transfer_queue_await(&run->transfers, 1 + i, queue);
        if (status == CLB_OK)
            status = run->solve->work->apply(run->solve, &run->workspace, &run->transfer[1 + i].x);
        if (status == CLB_OK)
            status = clb_transfer_queue_publish(&run->transfers, 1 + parts + i, queue);
        if (status == CLB_OK)
            status = release_part(run, parts, i + 1);
    }
    return clb_transfer_queue_finish(&run->transfers, status);
}

static clb_status run_once(struct solve_stream_run *run, const struct clb_gemm_variant *variant)
{
    size_t parts = run->solve->progress->parts;
    clb_status status = solve_stream_begin(run, variant);
    if (status == CLB_OK) {
        status = solve_parts(run, parts);
        for (size_t i = 0; i < run->transfers.arrived; i++)
            run->solve->progress->written[i] = true;
    }
    bool idle = clb_workspace_finish(&run->workspace);
    if (status == CLB_OK)
        status = clb_queue_set_check(run->workspace.queue_set);
    clb_transfer_queue_close(&run->transfers, idle);
    free(run->transfer);
    for (size_t i = 0; i < CLB_COUNT_OF(run->memory); i++)
        clb_buffer_end(run->runtime, run->memory[i], idle);
    if (run->solve->work->end != NULL)
        run->solve->work->end(run->solve, idle);
    clb_workspace_close(&run->workspace, idle);
    return status;
}

clb_status clb_solve_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                struct clb_solve *solve)
{
    clb_status status = CLB_ERR_NOMEM;
    bool begun = false;
    for (size_t resident = solve->progress->parts;
         resident > 0 && status == CLB_ERR_NOMEM && !begun; resident /= 2) {
        struct solve_stream_run run = {.runtime = runtime,
                                       .solve = solve,
                                       .element = clb_precision_size(solve->precision),
                                       .resident = resident};
        status = run_once(&run, variant);
        begun = run.begun;
    }
    return status;
}
