/* LU of a matrix that is larger than the device's memory: left-looking over blocks of columns.
 * SPDX-License-Identifier: BSD-3-Clause
 * A block is uploaded with all interchanges so far applied. Then the panels on its left are
 * uploaded one after the other; the L of each has the interchanges since it was factored applied.
 * Each gives the block's part of U by a solve, and then updates the rows below. Then the block is
 * factored right-looking, like a matrix that fits, and each panel downloaded when it is final. So
 * every entry has the same operations in the same order, and the same bits, as in core.
 *
 * Downloads go to a copy of the matrix in host memory, from which the panels are uploaded again. So
 * writing the caller's matrix in the end needs nothing from the driver. The columns of the copy
 * lack later interchanges, as those on the device do in core (job.h).
 *
 * lu->x describes the whole matrix, but only a block of it is in memory: columns keep their
 * numbers, so that the functions of job.h need not know. The offset is that of a column 0 which may
 * lie before the buffer. Offsets of parts are computed modulo 2^64 and are right. */
#include "engine/transfer/transfer_queue.h"
#include "job.h"

#include <stdlib.h>
#include <unistd.h>

/* Buffers for panels of earlier blocks: one is used while the other is filled. */
#define SLOTS ((size_t)2)

struct ooc_panel {
    size_t first, width;
    size_t down; /* index of its download */
};

struct ooc_block {
    size_t first, end;
    size_t panels, panels_end; /* panels of the block; those before `panels` are on its left */
    size_t up;                 /* index of its upload; those of the panels on the left follow it */
    size_t down, down_end;     /* downloads of its panels, then of the rest */
    size_t rest;               /* columns after the last panel, which have none */
};

struct ooc_run {
    struct clb_getrf_run lu; /* first: the context of its functions */
    struct ooc_panel *panel;
    struct ooc_block *block;
    size_t panels, blocks;
    struct clb_dmat memory, slot[SLOTS]; /* for a block; for panels of earlier ones */
    cl_uint *order[SLOTS + 1];           /* row orders for the slots; the last for a block */
    char *host;                          /* the copy of the matrix; leading dimension lu.x.ld */
};

/* ---- plan ---- */

/* Make the panels and blocks. No panel is divided between two blocks. */
static clb_status make_blocks(struct ooc_run *ooc, size_t width)
{
    const struct clb_getrf_run *lu = &ooc->lu;
    size_t n = lu->call->n, each = clb_div_up(n, clb_div_up(n, width));
    size_t most = clb_div_up(lu->inner, lu->nb);
    ooc->panel = calloc(most, sizeof *ooc->panel);
    ooc->block = calloc(most + clb_div_up(n, width) + 1, sizeof *ooc->block);
    if (ooc->panel == NULL || ooc->block == NULL)
        return CLB_ERR_NOMEM;
    for (size_t k = 0; k < lu->inner; k += clb_getrf_width(lu, k))
        ooc->panel[ooc->panels++] = (struct ooc_panel){.first = k, .width = clb_getrf_width(lu, k)};
    for (size_t j = 0, p = 0; j < n;) {
        struct ooc_block *block = &ooc->block[ooc->blocks++];
        *block = (struct ooc_block){.first = j, .end = j, .panels = p};
        while (p < ooc->panels && (block->end == j || block->end - j + ooc->panel[p].width <= each))
            block->end += ooc->panel[p++].width;
        block->panels_end = p;
        block->rest =
            p < ooc->panels ? 0 : clb_min(j + clb_max(each, block->end - j), n) - block->end;
        block->end += block->rest;
        j = block->end;
    }
    return CLB_OK;
}

static char *host_column(const struct ooc_run *ooc, size_t j)
{
    return ooc->host + j * ooc->lu.x.ld * ooc->lu.run.element;
}

static struct clb_dmat window(const struct ooc_run *ooc, const struct ooc_block *block)
{
    struct clb_dmat x = ooc->lu.x;
    x.mem = ooc->memory.mem;
    x.offset = (size_t)0 - block->first * x.ld;
    x.cols = block->end;
    return x;
}

/* For a panel of an earlier block: its rows from its first on. */
static struct clb_dmat slot_of(const struct ooc_run *ooc, const struct ooc_panel *panel,
                               size_t turn)
{
    return (struct clb_dmat){ooc->slot[turn % SLOTS].mem, 0, ooc->lu.x.rows - panel->first,
                             panel->width, ooc->lu.x.ld};
}

static void add_up(struct ooc_run *ooc, struct ooc_block *block, size_t turn)
{
    struct clb_job *run = &ooc->lu.run;
    const struct clb_dmat all = window(ooc, block);
    const struct clb_dmat x =
        clb_dmat_part(&all, 0, block->first, all.rows, block->end - block->first);
    block->up = run->uploads;
    struct clb_transfer *transfer = clb_job_add_columns(run, false, &x, block->first);
    transfer->held = block->first > 0;
    transfer->order = block->first > 0 ? ooc->order[SLOTS] : NULL;
    for (size_t p = 0; p < block->panels; p++, turn++) {
        const struct clb_dmat slot = slot_of(ooc, &ooc->panel[p], turn);
        transfer = clb_job_add(run, false, &slot, host_column(ooc, ooc->panel[p].first), slot.ld);
        transfer->held = true;
        transfer->order = ooc->order[turn % SLOTS] + ooc->panel[p].first;
    }
}

/* Returns the number of the download. */
static size_t add_down(struct ooc_run *ooc, const struct ooc_block *block, size_t first,
                       size_t cols)
{
    const struct clb_dmat all = window(ooc, block);
    const struct clb_dmat x = clb_dmat_part(&all, 0, first, all.rows, cols);
    clb_job_add(&ooc->lu.run, true, &x, host_column(ooc, first), x.ld);
    return ooc->lu.run.downloads - 1;
}

static clb_status add_transfers(struct ooc_run *ooc)
{
    size_t most = ooc->panels + 2 * ooc->blocks;
    for (size_t b = 0; b < ooc->blocks; b++)
        most += ooc->block[b].panels;
    clb_status status = clb_job_plan(&ooc->lu.run, most);
    for (size_t i = 0; i < CLB_COUNT_OF(ooc->order) && status == CLB_OK; i++) {
        ooc->order[i] = calloc(ooc->lu.x.rows, sizeof *ooc->order[i]);
        status = ooc->order[i] == NULL ? CLB_ERR_NOMEM : CLB_OK;
    }
    if (status != CLB_OK)
        return status;
    for (size_t b = 0, turn = 0; b < ooc->blocks; turn += ooc->block[b++].panels)
        add_up(ooc, &ooc->block[b], turn);
    for (size_t b = 0; b < ooc->blocks; b++) {
        struct ooc_block *block = &ooc->block[b];
        block->down = ooc->lu.run.downloads;
        for (size_t p = block->panels; p < block->panels_end; p++)
            ooc->panel[p].down = add_down(ooc, block, ooc->panel[p].first, ooc->panel[p].width);
        if (block->rest > 0)
            add_down(ooc, block, block->end - block->rest, block->rest);
        block->down_end = ooc->lu.run.downloads;
    }
    return CLB_OK;
}

static clb_status ooc_get_columns(struct ooc_run *ooc, size_t cols, struct clb_dmat *x)
{
    *x = (struct clb_dmat){.rows = ooc->lu.x.rows, .cols = cols, .ld = ooc->lu.x.ld};
    return clb_job_matrix(&ooc->lu.run, x);
}

/* Plan blocks of about `width` columns and get all memory. */
static clb_status ooc_open(struct ooc_run *ooc, size_t width)
{
    struct clb_getrf_run *lu = &ooc->lu;
    size_t widest = 0, widest_panel = 0;
    lu->most = width;
    clb_status status = clb_getrf_open(lu);
    CLB_THEN(status, make_blocks(ooc, width));
    for (size_t b = 0; b < ooc->blocks; b++)
        widest = clb_max(widest, ooc->block[b].end - ooc->block[b].first);
    for (size_t p = 0; p < ooc->panels; p++)
        widest_panel = clb_max(widest_panel, ooc->panel[p].width);
    CLB_THEN(status, ooc_get_columns(ooc, widest, &ooc->memory));
    for (size_t i = 0; i < SLOTS && status == CLB_OK; i++)
        status = ooc_get_columns(ooc, widest_panel, &ooc->slot[i]);
    CLB_THEN(status,
             clb_job_buffer(&lu->run, CLB_MEMORY_HOST, lu->x.rows * widest_panel * lu->run.element,
                            &lu->panels.pinned));
    CLB_THEN(status, add_transfers(ooc));
    return status == CLB_OK ? clb_job_begin(&lu->run) : status;
}

static void ooc_close(struct ooc_run *ooc)
{
    for (size_t i = 0; i < CLB_COUNT_OF(ooc->order); i++)
        free(ooc->order[i]);
    free(ooc->block);
    free(ooc->panel);
    clb_getrf_close(&ooc->lu);
}

/* ---- panels of earlier blocks ---- */

/* Allow the upload of panel p to its slot when the commands so far, which use that, are done. Waits
 * until the panel is in the copy. */
static clb_status send_panel(struct ooc_run *ooc, const struct ooc_block *block, size_t p,
                             size_t turn)
{
    const struct ooc_panel *panel = &ooc->panel[p];
    struct clb_job *run = &ooc->lu.run;
    CLB_TRY(clb_transfer_queue_await_written(run->transfers, run->uploads + panel->down));
    clb_getrf_order(&ooc->lu, panel->first + panel->width, clb_min(block->first, ooc->lu.inner),
                    ooc->order[turn % SLOTS]);
    return clb_transfer_queue_release(run->transfers, block->up + 1 + p, run->workspace.queue);
}

static clb_status apply_earlier(struct ooc_run *ooc, const struct ooc_block *block, size_t p,
                                size_t turn)
{
    struct clb_getrf_run *lu = &ooc->lu;
    const struct clb_dmat panel = slot_of(ooc, &ooc->panel[p], turn);
    CLB_TRY(clb_job_await(&lu->run, block->up + 1 + p));
    return clb_getrf_update(lu, &lu->run.workspace, &panel, ooc->panel[p].first, block->first,
                            block->end - block->first, CLB_PACK_KEEP);
}

/* Apply the panels on the block's left; `turn`: how many went through the slots before. */
static clb_status ooc_look_left(struct ooc_run *ooc, const struct ooc_block *block, size_t turn)
{
    clb_status status = CLB_OK;
    for (size_t p = 0; p < clb_min(SLOTS, block->panels) && status == CLB_OK; p++)
        status = send_panel(ooc, block, p, turn + p);
    for (size_t p = 0; p < block->panels && status == CLB_OK; p++) {
        status = apply_earlier(ooc, block, p, turn + p);
        if (status == CLB_OK && p + SLOTS < block->panels)
            status = send_panel(ooc, block, p + SLOTS, turn + p + SLOTS);
    }
    return status;
}

/* ---- the block's own panels ---- */

/* A panel of the block has been factored: its download may begin. */
static clb_status publish_and_prepare(void *context, size_t k, size_t width)
{
    struct ooc_run *ooc = context;
    const struct ooc_panel *panel = ooc->panel;
    while (panel->first < k)
        panel++;
    clb_status status = clb_job_publish(&ooc->lu.run, panel->down);
    return status == CLB_OK ? clb_getrf_prepare(context, k, width) : status;
}

static clb_status factor_block(struct ooc_run *ooc, const struct ooc_block *block)
{
    struct clb_getrf_run *lu = &ooc->lu;
    clb_status status = CLB_OK;
    if (block->panels < block->panels_end) {
        const struct ooc_panel *last = &ooc->panel[block->panels_end - 1];
        lu->panels.first = ooc->panel[block->panels].first;
        lu->panels.end = last->first + last->width;
        lu->panels.cols = block->end;
        if (!clb_getrf_is_on_device(lu, lu->panels.first))
            status = clb_panels_fetch(&lu->panels, lu->panels.first);
        CLB_THEN(status, clb_panels_run(&lu->panels));
    }
    if (status == CLB_OK && block->rest > 0)
        status = clb_job_publish(&lu->run, block->down_end - 1);
    return status;
}

/* ---- the run ---- */

/* Upload the block's columns, when those of the block before have been downloaded. */
static clb_status ooc_bring_up(struct ooc_run *ooc, size_t b)
{
    struct clb_getrf_run *lu = &ooc->lu;
    struct clb_job *run = &lu->run;
    const struct ooc_block *block = &ooc->block[b];
    clb_status status = CLB_OK;
    lu->x = window(ooc, block);
    for (size_t i = b > 0 ? block[-1].down : 0; b > 0 && i < block[-1].down_end; i++) {
        CLB_THEN(status, clb_transfer_queue_await(run->transfers, run->uploads + i, NULL));
    }
    if (status == CLB_OK && b > 0) {
        clb_getrf_order(lu, 0, clb_min(block->first, lu->inner), ooc->order[SLOTS]);
        status = clb_transfer_queue_release(run->transfers, block->up, run->workspace.queue);
    }
    return status == CLB_OK ? clb_job_await(run, block->up) : status;
}

static clb_status run_blocks(struct ooc_run *ooc)
{
    clb_status status = CLB_OK;
    for (size_t b = 0, turn = 0; b < ooc->blocks && status == CLB_OK; b++) {
        const struct ooc_block *block = &ooc->block[b];
        status = ooc_bring_up(ooc, b);
        CLB_THEN(status, ooc_look_left(ooc, block, turn));
        CLB_THEN(status, factor_block(ooc, block));
        turn += block->panels;
    }
    return status;
}

static clb_status write_copy(struct ooc_run *ooc)
{
    struct clb_getrf_run *lu = &ooc->lu;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    lu->x.cols = lu->call->n;
    lu->result->blocks = ooc->blocks;
    clb_log(CLB_LOG_INFO, "getrf: %zu x %zu in %zu blocks of columns", lu->x.rows, lu->x.cols,
            ooc->blocks);
    return clb_getrf_write_back(lu, ooc->host, cpus > 0 ? (size_t)cpus : 1);
}

static clb_status run_with_width(const struct clb_getrf_run *unopened, char *host, size_t width,
                                 bool *begun)
{
    struct clb_panel_work work = clb_getrf_work;
    struct ooc_run ooc = {.lu = *unopened, .host = host};
    struct clb_job *run = &ooc.lu.run;
    work.prepare = publish_and_prepare;
    clb_status status = ooc_open(&ooc, width);
    ooc.lu.panels.work = &work;
    *begun = run->begun;
    CLB_THEN(status, run_blocks(&ooc));
    if (*begun)
        status = clb_transfer_queue_finish(run->transfers, status);
    CLB_THEN(status, clb_job_complete(run));
    CLB_THEN(status, write_copy(&ooc));
    status = clb_job_end(run, status);
    ooc_close(&ooc);
    return status;
}

/* Estimate how many columns fit. Beside the block about five times a panel's memory is needed. */
static size_t guess_width(const struct clb_getrf_run *lu)
{
    size_t column = lu->x.ld * lu->run.element, panel = clb_max(lu->nb, lu->tail);
    uint64_t bytes = clb_min(clb_memory_available(lu->run.runtime),
                             lu->run.runtime->device.max_alloc + 5 * panel * column);
    size_t columns = (size_t)(bytes / column);
    return clb_max(clb_min(columns - clb_min(columns, 5 * panel), lu->call->n), panel);
}

clb_status clb_getrf_run_blocks(const struct clb_getrf_run *lu)
{
    size_t bytes, width = lu->run.variant->tuning.value[CLB_PARAM_GETRF_BLOCK];
    struct clb_getrf_run shape = *lu;
    clb_getrf_shape(&shape);
    bool forced = width != 0, begun = false;
    size_t least = clb_max(shape.nb, shape.tail);
    width = forced ? width : guess_width(&shape);
    clb_status status =
        clb_extent_bytes(shape.x.rows, lu->call->n, shape.x.ld, lu->run.element, &bytes);
    char *host = status == CLB_OK ? clb_host_map(bytes) : NULL;
    if (host == NULL)
        return CLB_ERR_NOMEM;
    do {
        status = run_with_width(lu, host, width, &begun);
        width -= clb_max(width / 4, 1);
    } while (status == CLB_ERR_NOMEM && !begun && !forced && width >= least);
    clb_host_unmap(host, bytes);
    return status;
}
