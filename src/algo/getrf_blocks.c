/* LU of a matrix that the device's memory does not hold: left-looking over blocks of columns.
 *
 * A block is brought up with the interchanges so far. The panels on its left follow one after the
 * other, L of each with the interchanges since it was factored: the block's part of U by a solve,
 * then an update. After that the block is factored right-looking, as a matrix that fits is; each of
 * its panels comes down when it is final. So every entry has the operations of the in-core
 * algorithm in its order, and the same bits.
 *
 * What comes down goes to a copy of the matrix in the host's memory, from which panels go up again:
 * the caller's matrix stays intact until all is complete, and writing it then asks nothing of the
 * driver. The copy lacks interchanges as the device's matrix does elsewhere (lu.h).
 *
 * The matrix there is a window on the block: its columns keep their numbers, so that the functions
 * of lu.h need not know, and the offset is that of a column 0 which may be before the buffer.
 * Offsets of parts are computed modulo 2^64 and come out right. */
#include "blocks.h"

#include <unistd.h>

/* ---- panels of earlier blocks ---------------------------------------------------------------- */

/* Let panel p go to its slot, when what has been enqueued for that is done. */
static clb_status send_panel(struct clb_block_run *run, const struct clb_block *block, size_t p,
                             size_t turn)
{
    const struct clb_block_panel *panel = &run->panel[p];
    clb_status status = clb_ferry_await_written(&run->ferry, panel->down);
    if (status != CLB_OK)
        return status;
    clb_lu_order(run->lu, panel->first + panel->width, clb_min(block->first, run->lu->inner),
                 run->order[turn % CLB_BLOCK_SLOTS]);
    return clb_ferry_release(&run->ferry, block->up + 1 + p, run->lu->engine.queue);
}

static clb_status apply_earlier(struct clb_block_run *run, const struct clb_block *block, size_t p,
                                size_t turn)
{
    struct clb_lu *lu = run->lu;
    const struct clb_dmat panel = clb_blocks_slot(run, &run->panel[p], turn);
    size_t width = panel.cols;
    const struct clb_dmat_triangle triangle = {.a = clb_dmat_part(&panel, 0, 0, width, width),
                                               .unit = true};
    clb_status status = clb_ferry_await(&run->ferry, block->up + 1 + p, lu->engine.queue);
    if (status == CLB_OK)
        status = clb_dmat_pack_triangle(&lu->engine, &triangle);
    if (status == CLB_OK)
        status = clb_lu_apply_panel(lu, &panel, run->panel[p].first, block->first,
                                    block->end - block->first, 0, false);
    return status;
}

/* `turn` is the number of panels that went through the slots for earlier blocks. */
static clb_status look_left(struct clb_block_run *run, const struct clb_block *block, size_t turn)
{
    clb_status status = CLB_OK;
    for (size_t p = 0; p < clb_min(CLB_BLOCK_SLOTS, block->panels) && status == CLB_OK; p++)
        status = send_panel(run, block, p, turn + p);
    for (size_t p = 0; p < block->panels && status == CLB_OK; p++) {
        status = apply_earlier(run, block, p, turn + p);
        if (status == CLB_OK && p + CLB_BLOCK_SLOTS < block->panels)
            status = send_panel(run, block, p + CLB_BLOCK_SLOTS, turn + p + CLB_BLOCK_SLOTS);
    }
    return status;
}

/* ---- the block's own panels ------------------------------------------------------------------ */

/* Ask for a panel behind what the queue for kernels has now, where the CPU factors it. */
static clb_status fetch(struct clb_block_run *run, const struct clb_block_panel *panel,
                        cl_event *event)
{
    const struct clb_lu *lu = run->lu;
    size_t k = panel->first, rows = lu->x.rows - k;
    const struct clb_dmat x = clb_dmat_part(&lu->x, k, k, rows, panel->width);
    struct clb_queue *download = lu->engine.lane->download;
    if (clb_lu_is_on_device(lu, k))
        return CLB_OK;
    clb_status status = clb_queue_join(lu->engine.queue, download);
    if (status == CLB_OK)
        status = clb_dmat_read(download, &x, lu->element, run->staging->host, rows, event);
    if (status == CLB_OK)
        status = clb_queue_flush(download);
    return status;
}

static clb_status await(struct clb_block_run *run, cl_event *event)
{
    return *event == NULL ? CLB_OK : clb_lane_await(run->lu->engine.lane, event);
}

static clb_status factor(struct clb_block_run *run, const struct clb_block_panel *panel,
                         cl_event *fetched)
{
    struct clb_lu *lu = run->lu;
    size_t k = panel->first, rows = lu->x.rows - k;
    const struct clb_dmat x = clb_dmat_part(&lu->x, k, k, rows, panel->width);
    if (clb_lu_is_on_device(lu, k))
        return clb_lu_factor_there(lu, k, panel->width);
    clb_status status = await(run, fetched);
    if (status != CLB_OK)
        return status;
    clb_lu_factor(lu, k, panel->width, run->staging->host, rows);
    status =
        clb_dmat_write(lu->engine.lane->upload, &x, lu->element, run->staging->host, rows, NULL);
    if (status == CLB_OK)
        status = clb_queue_join(lu->engine.lane->upload, lu->engine.queue);
    return status;
}

/* The panel's step on the columns right of it; those of the next panel first, which comes down
 * meanwhile. */
static clb_status step(struct clb_block_run *run, const struct clb_block *block, size_t p,
                       cl_event *fetched)
{
    struct clb_lu *lu = run->lu;
    const struct clb_block_panel *panel = &run->panel[p];
    size_t k = panel->first, first = k + panel->width, moves;
    bool last = p + 1 == block->panels_end;
    size_t next = last ? block->end - first : panel[1].width;
    clb_status status = clb_lu_prepare(lu, k, panel->width, &moves);
    if (status == CLB_OK && next > 0)
        status = clb_lu_apply(lu, k, panel->width, first, next, moves, false);
    if (status == CLB_OK && !last)
        status = fetch(run, &panel[1], fetched);
    if (status == CLB_OK && first + next < block->end)
        status =
            clb_lu_apply(lu, k, panel->width, first + next, block->end - first - next, moves, true);
    if (status == CLB_OK)
        status = clb_queue_flush(lu->engine.queue);
    return status;
}

static clb_status factor_block(struct clb_block_run *run, const struct clb_block *block)
{
    struct clb_lu *lu = run->lu;
    cl_event fetched = NULL;
    clb_status status = CLB_OK;
    if (block->panels < block->panels_end)
        status = fetch(run, &run->panel[block->panels], &fetched);
    for (size_t p = block->panels; p < block->panels_end && status == CLB_OK; p++) {
        status = factor(run, &run->panel[p], &fetched);
        if (status == CLB_OK)
            status = clb_ferry_publish(&run->ferry, run->panel[p].down, lu->engine.queue);
        if (status == CLB_OK)
            status = step(run, block, p, &fetched);
    }
    if (status == CLB_OK && block->rest > 0)
        status = clb_ferry_publish(&run->ferry, block->down_end - 1, lu->engine.queue);
    clb_status waited = await(run, &fetched); /* of a panel that there was a failure behind */
    return status != CLB_OK ? status : waited;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The block's columns go up when those of the block before have come down. */
static clb_status bring_up(struct clb_block_run *run, size_t b)
{
    struct clb_lu *lu = run->lu;
    const struct clb_block *block = &run->block[b];
    clb_status status = CLB_OK;
    lu->x = clb_blocks_window(run, block);
    for (size_t i = b > 0 ? block[-1].down : 0; b > 0 && i < block[-1].down_end; i++) {
        if (status == CLB_OK)
            status = clb_ferry_await_arrival(&run->ferry, i);
    }
    if (status == CLB_OK && b > 0) {
        clb_lu_order(lu, 0, clb_min(block->first, lu->inner), run->order[CLB_BLOCK_SLOTS]);
        status = clb_ferry_release(&run->ferry, block->up, lu->engine.queue);
    }
    if (status == CLB_OK)
        status = clb_ferry_await(&run->ferry, block->up, lu->engine.queue);
    return status;
}

static clb_status run_blocks(struct clb_block_run *run)
{
    clb_status status = CLB_OK;
    clb_ferry_start(&run->ferry);
    for (size_t b = 0, turn = 0; b < run->blocks && status == CLB_OK; b++) {
        const struct clb_block *block = &run->block[b];
        status = bring_up(run, b);
        if (status == CLB_OK)
            status = look_left(run, block, turn);
        if (status == CLB_OK)
            status = factor_block(run, block);
        turn += block->panels;
    }
    return clb_ferry_finish(&run->ferry, status);
}

/* From the copy to the caller's matrix. */
static clb_status finish(struct clb_block_run *run)
{
    struct clb_lu *lu = run->lu;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    lu->x.cols = lu->problem->n;
    lu->result->blocks = run->blocks;
    clb_log(CLB_LOG_INFO, "getrf: %zu x %zu in %zu blocks of columns", lu->x.rows, lu->x.cols,
            run->blocks);
    return clb_lu_write_back(lu, run->host, cpus > 0 ? (size_t)cpus : 1);
}

/* Columns that may fit: a panel's memory is needed about five times beside the block's. */
static size_t guess_width(const struct clb_lu *lu)
{
    size_t column = lu->x.ld * lu->element, panel = clb_max(lu->nb, lu->tail);
    uint64_t bytes = clb_min(clb_memory_available(lu->runtime),
                             lu->runtime->device.max_alloc + 5 * panel * column);
    size_t columns = (size_t)(bytes / column);
    return clb_max(clb_min(columns - clb_min(columns, 5 * panel), lu->problem->n), panel);
}

clb_status clb_getrf_run_blocks(struct clb_lu *lu, const struct clb_gemm_variant *variant)
{
    size_t bytes, width = variant->tuning.value[CLB_PARAM_GETRF_BLOCK];
    const struct clb_lu fresh = *lu;
    clb_lu_shape(lu, variant);
    bool forced = width != 0;
    size_t least = clb_max(lu->nb, lu->tail);
    width = forced ? width : guess_width(lu);
    clb_status status = clb_extent_bytes(lu->x.rows, lu->problem->n, lu->x.ld, lu->element, &bytes);
    char *host = status == CLB_OK ? clb_host_map(bytes) : NULL;
    if (host == NULL)
        return CLB_ERR_NOMEM;
    do {
        struct clb_block_run run = {.lu = lu, .host = host};
        *lu = fresh;
        status = clb_blocks_open(&run, variant, width);
        lu->begun = status == CLB_OK;
        if (status == CLB_OK)
            status = run_blocks(&run);
        /* Complete, and known to be so, before anything is written. */
        if (status == CLB_OK)
            status = clb_lane_finish(lu->engine.lane);
        if (status == CLB_OK)
            status = finish(&run);
        clb_blocks_close(&run);
        width -= clb_max(width / 4, 1);
    } while (status == CLB_ERR_NOMEM && !lu->begun && !forced && width >= least);
    clb_host_unmap(host, bytes);
    return status;
}
