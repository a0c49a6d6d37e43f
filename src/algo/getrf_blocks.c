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
#include "ferry.h"
#include "lu.h"

#include <stdlib.h>
#include <unistd.h>

/* Memory for panels of earlier blocks: one is used while the other is brought up. */
#define SLOTS ((size_t)2)

struct panel {
    size_t first, width;
    size_t down; /* load */
};

struct block {
    size_t first, end;
    size_t panels, panels_end; /* its own; those before are on its left */
    size_t up;                 /* load; behind it those of the panels on the left */
    size_t down, down_end;     /* loads of the panels, then of the rest */
    size_t rest;               /* columns without a panel, the last ones */
};

struct run {
    struct clb_lu *lu;
    struct clb_ferry ferry;
    struct clb_cargo *cargo;
    struct panel *panel;
    struct block *block;
    size_t cargoes, panels, blocks;
    struct clb_buffer *staging, *slot[SLOTS]; /* staging: a panel for the CPU */
    cl_uint *order[SLOTS + 1];                /* of rows; the last is the block's */
    char *host;                               /* the copy, not owned; leading dimension lu->x.ld */
};

/* ---- plan ------------------------------------------------------------------------------------ */

/* Panels are never cut. */
static void cut(struct run *run, size_t width)
{
    const struct clb_lu *lu = run->lu;
    size_t n = lu->problem->n, each = clb_div_up(n, clb_div_up(n, width));
    for (size_t k = 0; k < lu->inner; k += clb_lu_width(lu, k))
        run->panel[run->panels++] = (struct panel){.first = k, .width = clb_lu_width(lu, k)};
    for (size_t j = 0, p = 0; j < n;) {
        struct block *block = &run->block[run->blocks++];
        *block = (struct block){.first = j, .end = j, .panels = p};
        while (p < run->panels && (block->end == j || block->end - j + run->panel[p].width <= each))
            block->end += run->panel[p++].width;
        block->panels_end = p;
        block->rest =
            p < run->panels ? 0 : clb_min(j + clb_max(each, block->end - j), n) - block->end;
        block->end += block->rest;
        j = block->end;
    }
}

static char *host_column(const struct run *run, size_t j)
{
    return run->host + j * run->lu->x.ld * run->lu->element;
}

static struct clb_dmat window(const struct run *run, const struct block *block)
{
    struct clb_dmat x = run->lu->x;
    x.mem = run->lu->memory->mem;
    x.offset = (size_t)0 - block->first * x.ld;
    x.cols = block->end;
    return x;
}

/* Where a panel of an earlier block is: its rows from its first on. */
static struct clb_dmat slot_panel(const struct run *run, const struct panel *panel, size_t turn)
{
    return (struct clb_dmat){run->slot[turn % SLOTS]->mem, 0, run->lu->x.rows - panel->first,
                             panel->width, run->lu->x.ld};
}

static void plan_up(struct run *run, struct block *block, size_t turn)
{
    const struct clb_lu *lu = run->lu;
    const struct clb_dmat x = window(run, block);
    block->up = run->cargoes;
    run->cargo[run->cargoes++] = (struct clb_cargo){
        .held = block->first > 0,
        .x = clb_dmat_part(&x, 0, block->first, x.rows, block->end - block->first),
        .host = (char *)lu->problem->a + block->first * lu->problem->lda * lu->element,
        .ld = lu->problem->lda,
        .alpha = clb_scalar_one(lu->problem->precision),
        .order = block->first > 0 ? run->order[SLOTS] : NULL};
    for (size_t p = 0; p < block->panels; p++, turn++)
        run->cargo[run->cargoes++] =
            (struct clb_cargo){.held = true,
                               .x = slot_panel(run, &run->panel[p], turn),
                               .host = host_column(run, run->panel[p].first),
                               .ld = lu->x.ld,
                               .order = run->order[turn % SLOTS] + run->panel[p].first};
}

static void plan_down(struct run *run, const struct block *block, size_t first, size_t cols)
{
    const struct clb_dmat x = window(run, block);
    run->cargo[run->cargoes++] = (struct clb_cargo){.down = true,
                                                    .x = clb_dmat_part(&x, 0, first, x.rows, cols),
                                                    .host = host_column(run, first),
                                                    .ld = x.ld};
}

/* Loads up, then loads down. */
static void plan_loads(struct run *run)
{
    for (size_t b = 0, turn = 0; b < run->blocks; turn += run->block[b++].panels)
        plan_up(run, &run->block[b], turn);
    for (size_t b = 0; b < run->blocks; b++) {
        struct block *block = &run->block[b];
        block->down = run->cargoes;
        for (size_t p = block->panels; p < block->panels_end; p++) {
            run->panel[p].down = run->cargoes;
            plan_down(run, block, run->panel[p].first, run->panel[p].width);
        }
        if (block->rest > 0)
            plan_down(run, block, block->end - block->rest, block->rest);
        block->down_end = run->cargoes;
    }
}

static clb_status make_plan(struct run *run, size_t width)
{
    const struct clb_lu *lu = run->lu;
    size_t panels = clb_div_up(lu->inner, lu->nb),
           most = panels + clb_div_up(lu->problem->n, width) + 1;
    run->panel = calloc(panels, sizeof *run->panel);
    run->block = calloc(most, sizeof *run->block);
    if (run->panel == NULL || run->block == NULL)
        return CLB_ERR_NOMEM;
    cut(run, width);
    return CLB_OK;
}

static clb_status make_loads(struct run *run)
{
    size_t loads = run->panels + 2 * run->blocks;
    for (size_t b = 0; b < run->blocks; b++)
        loads += run->block[b].panels;
    run->cargo = calloc(loads, sizeof *run->cargo);
    for (size_t i = 0; i < CLB_COUNT_OF(run->order); i++) {
        run->order[i] = calloc(run->lu->x.rows, sizeof *run->order[i]);
        if (run->order[i] == NULL)
            return CLB_ERR_NOMEM;
    }
    if (run->cargo == NULL)
        return CLB_ERR_NOMEM;
    plan_loads(run);
    return CLB_OK;
}

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

static clb_status get_matrix(struct run *run, size_t cols, struct clb_buffer **buffer)
{
    size_t bytes;
    const struct clb_lu *lu = run->lu;
    clb_status status = clb_extent_bytes(lu->x.ld, cols, lu->x.ld, lu->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_DEVICE, bytes, buffer);
    return status;
}

static clb_status get_memory(struct run *run)
{
    struct clb_lu *lu = run->lu;
    size_t widest = 0, widest_panel = 0;
    for (size_t b = 0; b < run->blocks; b++)
        widest = clb_max(widest, run->block[b].end - run->block[b].first);
    for (size_t p = 0; p < run->panels; p++)
        widest_panel = clb_max(widest_panel, run->panel[p].width);
    clb_status status = get_matrix(run, widest, &lu->memory);
    for (size_t i = 0; i < SLOTS && status == CLB_OK; i++)
        status = get_matrix(run, widest_panel, &run->slot[i]);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_HOST,
                                lu->x.rows * widest_panel * lu->element, &run->staging);
    return status;
}

static clb_status open_run(struct run *run, const struct clb_gemm_variant *variant, size_t width)
{
    struct clb_lu *lu = run->lu;
    lu->most = width;
    clb_status status = clb_lu_open(lu, variant);
    if (status == CLB_OK)
        status = make_plan(run, width);
    if (status == CLB_OK)
        status = get_memory(run);
    if (status == CLB_OK)
        status = make_loads(run);
    if (status == CLB_OK)
        status = clb_ferry_open(&run->ferry, lu->engine.lane, lu->problem->precision, run->cargo,
                                run->cargoes, variant->tuning.value[CLB_PARAM_THREADS]);
    return status;
}

static void close_run(struct run *run)
{
    struct clb_lu *lu = run->lu;
    bool idle = clb_engine_finish(&lu->engine);
    clb_ferry_close(&run->ferry, idle);
    for (size_t i = 0; i < SLOTS; i++)
        clb_buffer_end(lu->runtime, run->slot[i], idle);
    clb_buffer_end(lu->runtime, run->staging, idle);
    for (size_t i = 0; i < CLB_COUNT_OF(run->order); i++)
        free(run->order[i]);
    free(run->cargo);
    free(run->block);
    free(run->panel);
    clb_lu_close(lu, idle);
}

/* ---- panels of earlier blocks ---------------------------------------------------------------- */

/* Let panel p go to its slot, when what has been enqueued for that is done. */
static clb_status send_panel(struct run *run, const struct block *block, size_t p, size_t turn)
{
    const struct panel *panel = &run->panel[p];
    clb_status status = clb_ferry_await_written(&run->ferry, panel->down);
    if (status != CLB_OK)
        return status;
    clb_lu_order(run->lu, panel->first + panel->width, clb_min(block->first, run->lu->inner),
                 run->order[turn % SLOTS]);
    return clb_ferry_release(&run->ferry, block->up + 1 + p, run->lu->engine.queue);
}

static clb_status apply_earlier(struct run *run, const struct block *block, size_t p, size_t turn)
{
    struct clb_lu *lu = run->lu;
    const struct clb_dmat panel = slot_panel(run, &run->panel[p], turn);
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
static clb_status look_left(struct run *run, const struct block *block, size_t turn)
{
    clb_status status = CLB_OK;
    for (size_t p = 0; p < clb_min(SLOTS, block->panels) && status == CLB_OK; p++)
        status = send_panel(run, block, p, turn + p);
    for (size_t p = 0; p < block->panels && status == CLB_OK; p++) {
        status = apply_earlier(run, block, p, turn + p);
        if (status == CLB_OK && p + SLOTS < block->panels)
            status = send_panel(run, block, p + SLOTS, turn + p + SLOTS);
    }
    return status;
}

/* ---- the block's own panels ------------------------------------------------------------------ */

/* Ask for a panel behind what the queue for kernels has now, where the CPU factors it. */
static clb_status fetch(struct run *run, const struct panel *panel, cl_event *event)
{
    const struct clb_lu *lu = run->lu;
    size_t k = panel->first, rows = lu->x.rows - k;
    const struct clb_dmat x = clb_dmat_part(&lu->x, k, k, rows, panel->width);
    cl_command_queue download = lu->engine.lane->download;
    if (clb_lu_is_on_device(lu, k))
        return CLB_OK;
    clb_status status = clb_queue_join(lu->engine.queue, download);
    if (status == CLB_OK)
        status = clb_dmat_read(download, &x, lu->element, run->staging->host, rows, event);
    if (status == CLB_OK)
        status = clb_cl_check(clb_cl.Flush(download), "clFlush");
    return status;
}

static clb_status await(cl_event *event)
{
    if (*event == NULL)
        return CLB_OK;
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, event), "clWaitForEvents");
    clb_cl.ReleaseEvent(*event);
    *event = NULL;
    return status;
}

static clb_status factor(struct run *run, const struct panel *panel, cl_event *fetched)
{
    struct clb_lu *lu = run->lu;
    size_t k = panel->first, rows = lu->x.rows - k;
    const struct clb_dmat x = clb_dmat_part(&lu->x, k, k, rows, panel->width);
    if (clb_lu_is_on_device(lu, k))
        return clb_lu_factor_there(lu, k, panel->width);
    clb_status status = await(fetched);
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
static clb_status step(struct run *run, const struct block *block, size_t p, cl_event *fetched)
{
    struct clb_lu *lu = run->lu;
    const struct panel *panel = &run->panel[p];
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
        status = clb_cl_check(clb_cl.Flush(lu->engine.queue), "clFlush");
    return status;
}

static clb_status factor_block(struct run *run, const struct block *block)
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
    clb_status waited = await(&fetched); /* of a panel that there was a failure behind */
    return status != CLB_OK ? status : waited;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The block's columns go up when those of the block before have come down. */
static clb_status bring_up(struct run *run, size_t b)
{
    struct clb_lu *lu = run->lu;
    const struct block *block = &run->block[b];
    clb_status status = CLB_OK;
    lu->x = window(run, block);
    for (size_t i = b > 0 ? block[-1].down : 0; b > 0 && i < block[-1].down_end; i++) {
        if (status == CLB_OK)
            status = clb_ferry_await_arrival(&run->ferry, i);
    }
    if (status == CLB_OK && b > 0) {
        clb_lu_order(lu, 0, clb_min(block->first, lu->inner), run->order[SLOTS]);
        status = clb_ferry_release(&run->ferry, block->up, lu->engine.queue);
    }
    if (status == CLB_OK)
        status = clb_ferry_await(&run->ferry, block->up, lu->engine.queue);
    return status;
}

static clb_status run_blocks(struct run *run)
{
    clb_status status = CLB_OK;
    clb_ferry_start(&run->ferry);
    for (size_t b = 0, turn = 0; b < run->blocks && status == CLB_OK; b++) {
        const struct block *block = &run->block[b];
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
static clb_status finish(struct run *run)
{
    struct clb_lu *lu = run->lu;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    lu->x.cols = lu->problem->n;
    lu->result->blocks = run->blocks;
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
        struct run run = {.lu = lu, .host = host};
        *lu = fresh;
        status = open_run(&run, variant, width);
        lu->begun = status == CLB_OK;
        if (status == CLB_OK)
            status = run_blocks(&run);
        if (status == CLB_OK)
            status = finish(&run);
        close_run(&run);
        width -= clb_max(width / 4, 1);
    } while (status == CLB_ERR_NOMEM && !lu->begun && !forced && width >= least);
    clb_host_unmap(host, bytes);
    return status;
}
