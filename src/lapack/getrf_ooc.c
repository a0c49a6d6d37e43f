/* LU of a matrix that is larger than the device's memory: left-looking over blocks of columns.
 *
 * A block is uploaded with all interchanges so far applied. Then the panels on its left are
 * uploaded one after the other; the L of each has the interchanges since it was factored applied.
 * Each gives the block's part of U by a solve, and then updates the rows below. After that the
 * block is factored right-looking, like a matrix that fits, and each of its panels is downloaded
 * when it is final. So every entry has the same operations in the same order as in the in-core
 * algorithm, and the same bits.
 *
 * Downloads go to a copy of the matrix in host memory, from which the panels are uploaded again. So
 * the caller's matrix stays intact until everything is complete, and writing it then needs nothing
 * from the driver. The columns of the copy lack later interchanges, as those on the device do in
 * the in-core algorithm (getrf.h).
 *
 * lu->x describes the whole matrix, but only a block of it is in memory: columns keep their
 * numbers, so that the functions of getrf.h need not know. The offset is that of a column 0 which
 * may lie before the buffer. Offsets of parts are computed modulo 2^64 and are right. */
#include "ooc.h"

#include <unistd.h>

/* ---- panels of earlier blocks ---------------------------------------------------------------- */

/* Allow the upload of panel p to its slot when the commands enqueued so far, which use the slot,
 * are done. Waits until the panel is in the copy. */
static clb_status send_panel(struct clb_ooc_run *run, const struct clb_ooc_block *block, size_t p,
                             size_t turn)
{
    const struct clb_ooc_panel *panel = &run->panel[p];
    clb_status status = clb_transfer_queue_await_written(&run->transfers, panel->down);
    if (status != CLB_OK)
        return status;
    clb_getrf_order(run->lu, panel->first + panel->width, clb_min(block->first, run->lu->inner),
                    run->order[turn % CLB_OOC_SLOTS]);
    return clb_transfer_queue_release(&run->transfers, block->up + 1 + p, run->lu->workspace.queue);
}

static clb_status apply_earlier(struct clb_ooc_run *run, const struct clb_ooc_block *block,
                                size_t p, size_t turn)
{
    struct clb_getrf_run *lu = run->lu;
    const struct clb_dmat panel = clb_ooc_slot(run, &run->panel[p], turn);
    size_t width = panel.cols;
    const struct clb_dmat_triangle triangle = {.a = clb_dmat_part(&panel, 0, 0, width, width),
                                               .unit = true};
    clb_status status =
        clb_transfer_queue_await(&run->transfers, block->up + 1 + p, lu->workspace.queue);
    if (status == CLB_OK)
        status = clb_dmat_pack_triangle(&lu->workspace, &triangle);
    if (status == CLB_OK)
        status = clb_getrf_apply_panel(lu, &panel, run->panel[p].first, block->first,
                                       block->end - block->first, 0, false);
    return status;
}

/* Apply the panels on the block's left. `turn` is the number of panels that went through the slots
 * for earlier blocks. */
static clb_status getrf_ooc_look_left(struct clb_ooc_run *run, const struct clb_ooc_block *block,
                                      size_t turn)
{
    clb_status status = CLB_OK;
    for (size_t p = 0; p < clb_min(CLB_OOC_SLOTS, block->panels) && status == CLB_OK; p++)
        status = send_panel(run, block, p, turn + p);
    for (size_t p = 0; p < block->panels && status == CLB_OK; p++) {
        status = apply_earlier(run, block, p, turn + p);
        if (status == CLB_OK && p + CLB_OOC_SLOTS < block->panels)
            status = send_panel(run, block, p + CLB_OOC_SLOTS, turn + p + CLB_OOC_SLOTS);
    }
    return status;
}

/* ---- the block's own panels ------------------------------------------------------------------ */

/* Enqueue the download of a panel that the CPU factors, to run after all that is on the queue for
 * kernels now. */
static clb_status fetch(struct clb_ooc_run *run, const struct clb_ooc_panel *panel, cl_event *event)
{
    const struct clb_getrf_run *lu = run->lu;
    size_t k = panel->first, rows = lu->x.rows - k;
    const struct clb_dmat x = clb_dmat_part(&lu->x, k, k, rows, panel->width);
    struct clb_queue *download = lu->workspace.queue_set->download;
    if (clb_getrf_is_on_device(lu, k))
        return CLB_OK;
    clb_status status = clb_queue_join(lu->workspace.queue, download);
    if (status == CLB_OK)
        status = clb_dmat_read(download, &x, lu->element, run->staging->host, rows, event);
    if (status == CLB_OK)
        status = clb_queue_flush(download);
    return status;
}

static clb_status await(struct clb_ooc_run *run, cl_event *event)
{
    return *event == NULL ? CLB_OK : clb_queue_set_await(run->lu->workspace.queue_set, event);
}

static clb_status getrf_ooc_factor(struct clb_ooc_run *run, const struct clb_ooc_panel *panel,
                                   cl_event *fetched)
{
    struct clb_getrf_run *lu = run->lu;
    size_t k = panel->first, rows = lu->x.rows - k;
    const struct clb_dmat x = clb_dmat_part(&lu->x, k, k, rows, panel->width);
    if (clb_getrf_is_on_device(lu, k))
        return clb_getrf_factor_on_device(lu, k, panel->width);
    clb_status status = await(run, fetched);
    if (status != CLB_OK)
        return status;
    clb_getrf_factor(lu, k, panel->width, run->staging->host, rows);
    status = clb_dmat_write(lu->workspace.queue_set->upload, &x, lu->element, run->staging->host,
                            rows, NULL);
    if (status == CLB_OK)
        status = clb_queue_join(lu->workspace.queue_set->upload, lu->workspace.queue);
    return status;
}

/* Apply the panel's step to the columns on its right; first to those of the next panel, which is
 * downloaded while the others are updated. */
static clb_status getrf_ooc_step(struct clb_ooc_run *run, const struct clb_ooc_block *block,
                                 size_t p, cl_event *fetched)
{
    struct clb_getrf_run *lu = run->lu;
    const struct clb_ooc_panel *panel = &run->panel[p];
    size_t k = panel->first, first = k + panel->width, moves;
    bool last = p + 1 == block->panels_end;
    size_t next = last ? block->end - first : panel[1].width;
    clb_status status = clb_getrf_prepare(lu, k, panel->width, &moves);
    if (status == CLB_OK && next > 0)
        status = clb_getrf_apply(lu, k, panel->width, first, next, moves, false);
    if (status == CLB_OK && !last)
        status = fetch(run, &panel[1], fetched);
    if (status == CLB_OK && first + next < block->end)
        status = clb_getrf_apply(lu, k, panel->width, first + next, block->end - first - next,
                                 moves, true);
    if (status == CLB_OK)
        status = clb_queue_flush(lu->workspace.queue);
    return status;
}

static clb_status factor_block(struct clb_ooc_run *run, const struct clb_ooc_block *block)
{
    struct clb_getrf_run *lu = run->lu;
    cl_event fetched = NULL;
    clb_status status = CLB_OK;
    if (block->panels < block->panels_end)
        status = fetch(run, &run->panel[block->panels], &fetched);
    for (size_t p = block->panels; p < block->panels_end && status == CLB_OK; p++) {
        status = getrf_ooc_factor(run, &run->panel[p], &fetched);
        if (status == CLB_OK)
            status = clb_transfer_queue_publish(&run->transfers, run->panel[p].down,
                                                lu->workspace.queue);
        if (status == CLB_OK)
            status = getrf_ooc_step(run, block, p, &fetched);
    }
    if (status == CLB_OK && block->rest > 0)
        status =
            clb_transfer_queue_publish(&run->transfers, block->down_end - 1, lu->workspace.queue);
    clb_status waited = await(run, &fetched); /* after a failure the download of a panel may still
                                               * be running */
    return status != CLB_OK ? status : waited;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Upload the block's columns, when those of the block before have been downloaded. */
static clb_status getrf_ooc_bring_up(struct clb_ooc_run *run, size_t b)
{
    struct clb_getrf_run *lu = run->lu;
    const struct clb_ooc_block *block = &run->block[b];
    clb_status status = CLB_OK;
    lu->x = clb_ooc_window(run, block);
    for (size_t i = b > 0 ? block[-1].down : 0; b > 0 && i < block[-1].down_end; i++) {
        if (status == CLB_OK)
            status = clb_transfer_queue_await_arrival(&run->transfers, i);
    }
    if (status == CLB_OK && b > 0) {
        clb_getrf_order(lu, 0, clb_min(block->first, lu->inner), run->order[CLB_OOC_SLOTS]);
        status = clb_transfer_queue_release(&run->transfers, block->up, lu->workspace.queue);
    }
    if (status == CLB_OK)
        status = clb_transfer_queue_await(&run->transfers, block->up, lu->workspace.queue);
    return status;
}

static clb_status run_blocks(struct clb_ooc_run *run)
{
    clb_status status = CLB_OK;
    clb_transfer_queue_start(&run->transfers);
    for (size_t b = 0, turn = 0; b < run->blocks && status == CLB_OK; b++) {
        const struct clb_ooc_block *block = &run->block[b];
        status = getrf_ooc_bring_up(run, b);
        if (status == CLB_OK)
            status = getrf_ooc_look_left(run, block, turn);
        if (status == CLB_OK)
            status = factor_block(run, block);
        turn += block->panels;
    }
    return clb_transfer_queue_finish(&run->transfers, status);
}

/* Write the copy to the caller's matrix. */
static clb_status getrf_ooc_finish(struct clb_ooc_run *run)
{
    struct clb_getrf_run *lu = run->lu;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    lu->x.cols = lu->problem->n;
    lu->result->blocks = run->blocks;
    clb_log(CLB_LOG_INFO, "getrf: %zu x %zu in %zu blocks of columns", lu->x.rows, lu->x.cols,
            run->blocks);
    return clb_getrf_write_back(lu, run->host, cpus > 0 ? (size_t)cpus : 1);
}

/* Estimate how many columns fit. Beside the block's memory, about five times that of a panel is
 * needed. */
static size_t guess_width(const struct clb_getrf_run *lu)
{
    size_t column = lu->x.ld * lu->element, panel = clb_max(lu->nb, lu->tail);
    uint64_t bytes = clb_min(clb_memory_available(lu->runtime),
                             lu->runtime->device.max_alloc + 5 * panel * column);
    size_t columns = (size_t)(bytes / column);
    return clb_max(clb_min(columns - clb_min(columns, 5 * panel), lu->problem->n), panel);
}

clb_status clb_getrf_run_blocks(struct clb_getrf_run *lu, const struct clb_gemm_variant *variant)
{
    size_t bytes, width = variant->tuning.value[CLB_PARAM_GETRF_BLOCK];
    const struct clb_getrf_run fresh = *lu;
    clb_getrf_shape(lu, variant);
    bool forced = width != 0;
    size_t least = clb_max(lu->nb, lu->tail);
    width = forced ? width : guess_width(lu);
    clb_status status = clb_extent_bytes(lu->x.rows, lu->problem->n, lu->x.ld, lu->element, &bytes);
    char *host = status == CLB_OK ? clb_host_map(bytes) : NULL;
    if (host == NULL)
        return CLB_ERR_NOMEM;
    do {
        struct clb_ooc_run run = {.lu = lu, .host = host};
        *lu = fresh;
        status = clb_ooc_open(&run, variant, width);
        lu->begun = status == CLB_OK;
        if (status == CLB_OK)
            status = run_blocks(&run);
        /* The device must have completed everything without error before anything is written. */
        if (status == CLB_OK)
            status = clb_queue_set_finish(lu->workspace.queue_set);
        if (status == CLB_OK)
            status = getrf_ooc_finish(&run);
        clb_ooc_close(&run);
        width -= clb_max(width / 4, 1);
    } while (status == CLB_ERR_NOMEM && !lu->begun && !forced && width >= least);
    clb_host_unmap(host, bytes);
    return status;
}
