/* Cholesky on a device with its own memory: panels are factored while those after them are
 * uploaded. For U the uploads are block rows, because a step uses one block row. Downloads are
 * block columns for both L and U, since clb_potrf_resume can only continue after a number of first
 * columns. */
#include "potrf.h"
#include "transfer/transfer_queue.h"

#include <stdlib.h>

struct potrf_stream_run {
    struct clb_chol *chol;
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer; /* uploads of the panels, then downloads of the block columns */
    size_t panels;
};

/* ---- transfers ------------------------------------------------------------------------------- */

static struct clb_transfer make_load(const struct clb_chol *chol, bool down, size_t k)
{
    const struct clb_potrf *problem = chol->problem;
    size_t width = clb_chol_width(chol, k);
    struct clb_transfer load = clb_transfer_of_triangle(&chol->x, chol->element, problem->upper, k,
                                                        width, problem->a, problem->lda);
    load.down = down;
    if (problem->upper && !down) {
        load.x = clb_dmat_part(&chol->x, k, k, width, chol->n - k);
        load.host = clb_chol_host(chol, k, k);
        load.diagonal = 0;
    }
    return load;
}

static clb_status potrf_stream_make_loads(struct potrf_stream_run *run)
{
    struct clb_chol *chol = run->chol;
    run->panels = clb_div_up(chol->n, chol->nb);
    run->transfer = calloc(2 * run->panels, sizeof *run->transfer);
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < run->panels; i++) {
        run->transfer[i] = make_load(chol, false, i * chol->nb);
        run->transfer[run->panels + i] = make_load(chol, true, i * chol->nb);
    }
    return CLB_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status potrf_stream_bring(void *context, size_t k, size_t width)
{
    struct potrf_stream_run *run = context;
    (void)width;
    return clb_transfer_queue_await(&run->transfers, k / run->chol->nb, run->chol->workspace.queue);
}

static clb_status potrf_stream_write_back(struct potrf_stream_run *run)
{
    struct clb_chol *chol = run->chol;
    size_t cols = clb_chol_columns(chol), blocks = clb_div_up(cols, chol->nb);
    clb_status status = CLB_OK;
    if (blocks > 0)
        clb_transfer_queue_shorten(&run->transfers, run->panels + blocks - 1,
                                   cols - (blocks - 1) * chol->nb);
    for (size_t i = 0; i < blocks && status == CLB_OK; i++)
        status =
            clb_transfer_queue_publish(&run->transfers, run->panels + i, chol->workspace.queue);
    return status;
}

/* The columns that the first `arrived` pieces have written to the caller's matrix. */
static size_t columns_written(const struct potrf_stream_run *run)
{
    size_t left = run->transfers.arrived, columns = 0;
    for (size_t i = run->panels; left > 0 && i < 2 * run->panels; i++) {
        const struct clb_transfer *transfer = &run->transfer[i];
        size_t pieces = clb_min(left, transfer->pieces);
        columns += clb_min(pieces * transfer->extent, transfer->x.cols);
        left -= pieces;
    }
    return columns;
}

static clb_status potrf_stream_run_all(struct potrf_stream_run *run)
{
    clb_transfer_queue_start(&run->transfers);
    clb_status status = clb_chol_factor(run->chol, potrf_stream_bring, run);
    if (status == CLB_OK)
        status = potrf_stream_write_back(run);
    status = clb_transfer_queue_finish(&run->transfers, status);
    run->chol->result->columns_written = columns_written(run);
    return status;
}

clb_status clb_potrf_run_stream(struct clb_chol *chol, const struct clb_gemm_variant *variant)
{
    struct potrf_stream_run run = {.chol = chol};
    size_t bytes;
    clb_status status = clb_chol_open(chol, variant);
    if (status == CLB_OK)
        status = clb_extent_bytes(chol->x.ld, chol->n, chol->x.ld, chol->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(chol->runtime, CLB_MEMORY_DEVICE, bytes, &chol->memory);
    if (status == CLB_OK) {
        chol->x.mem = chol->memory->mem;
        status = potrf_stream_make_loads(&run);
    }
    if (status == CLB_OK)
        status = clb_transfer_queue_open(&run.transfers, chol->workspace.queue_set,
                                         chol->problem->precision, run.transfer, 2 * run.panels,
                                         variant->tuning.value[CLB_PARAM_THREADS]);
    if (status == CLB_OK)
        status = potrf_stream_run_all(&run);
    bool idle = clb_workspace_finish(&chol->workspace);
    if (status == CLB_OK)
        status = clb_queue_set_check(chol->workspace.queue_set);
    clb_transfer_queue_close(&run.transfers, idle);
    free(run.transfer);
    clb_chol_close(chol, idle);
    return status;
}
