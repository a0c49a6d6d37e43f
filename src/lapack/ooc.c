/* Division of a matrix into blocks of columns for LU, with their transfers and memory. */
#include "ooc.h"

#include <stdlib.h>

/* ---- plan ------------------------------------------------------------------------------------ */

/* Make the panels and blocks. No panel is divided between two blocks. */
static void ooc_cut(struct clb_ooc_run *run, size_t width)
{
    const struct clb_getrf_run *lu = run->lu;
    size_t n = lu->problem->n, each = clb_div_up(n, clb_div_up(n, width));
    for (size_t k = 0; k < lu->inner; k += clb_getrf_width(lu, k))
        run->panel[run->panels++] =
            (struct clb_ooc_panel){.first = k, .width = clb_getrf_width(lu, k)};
    for (size_t j = 0, p = 0; j < n;) {
        struct clb_ooc_block *block = &run->block[run->blocks++];
        *block = (struct clb_ooc_block){.first = j, .end = j, .panels = p};
        while (p < run->panels && (block->end == j || block->end - j + run->panel[p].width <= each))
            block->end += run->panel[p++].width;
        block->panels_end = p;
        block->rest =
            p < run->panels ? 0 : clb_min(j + clb_max(each, block->end - j), n) - block->end;
        block->end += block->rest;
        j = block->end;
    }
}

static char *host_column(const struct clb_ooc_run *run, size_t j)
{
    return run->host + j * run->lu->x.ld * run->lu->element;
}

struct clb_dmat clb_ooc_window(const struct clb_ooc_run *run, const struct clb_ooc_block *block)
{
    struct clb_dmat x = run->lu->x;
    x.mem = run->lu->memory->mem;
    x.offset = (size_t)0 - block->first * x.ld;
    x.cols = block->end;
    return x;
}

struct clb_dmat clb_ooc_slot(const struct clb_ooc_run *run, const struct clb_ooc_panel *panel,
                             size_t turn)
{
    return (struct clb_dmat){run->slot[turn % CLB_OOC_SLOTS]->mem, 0,
                             run->lu->x.rows - panel->first, panel->width, run->lu->x.ld};
}

static void plan_up(struct clb_ooc_run *run, struct clb_ooc_block *block, size_t turn)
{
    const struct clb_getrf_run *lu = run->lu;
    const struct clb_dmat x = clb_ooc_window(run, block);
    block->up = run->transfer_count;
    run->transfer[run->transfer_count++] = (struct clb_transfer){
        .held = block->first > 0,
        .x = clb_dmat_part(&x, 0, block->first, x.rows, block->end - block->first),
        .host = (char *)lu->problem->a + block->first * lu->problem->lda * lu->element,
        .ld = lu->problem->lda,
        .alpha = clb_scalar_one(lu->problem->precision),
        .order = block->first > 0 ? run->order[CLB_OOC_SLOTS] : NULL};
    for (size_t p = 0; p < block->panels; p++, turn++)
        run->transfer[run->transfer_count++] =
            (struct clb_transfer){.held = true,
                                  .x = clb_ooc_slot(run, &run->panel[p], turn),
                                  .host = host_column(run, run->panel[p].first),
                                  .ld = lu->x.ld,
                                  .order = run->order[turn % CLB_OOC_SLOTS] + run->panel[p].first};
}

static void plan_down(struct clb_ooc_run *run, const struct clb_ooc_block *block, size_t first,
                      size_t cols)
{
    const struct clb_dmat x = clb_ooc_window(run, block);
    run->transfer[run->transfer_count++] =
        (struct clb_transfer){.down = true,
                              .x = clb_dmat_part(&x, 0, first, x.rows, cols),
                              .host = host_column(run, first),
                              .ld = x.ld};
}

/* All uploads, then all downloads. */
static void plan_loads(struct clb_ooc_run *run)
{
    for (size_t b = 0, turn = 0; b < run->blocks; turn += run->block[b++].panels)
        plan_up(run, &run->block[b], turn);
    for (size_t b = 0; b < run->blocks; b++) {
        struct clb_ooc_block *block = &run->block[b];
        block->down = run->transfer_count;
        for (size_t p = block->panels; p < block->panels_end; p++) {
            run->panel[p].down = run->transfer_count;
            plan_down(run, block, run->panel[p].first, run->panel[p].width);
        }
        if (block->rest > 0)
            plan_down(run, block, block->end - block->rest, block->rest);
        block->down_end = run->transfer_count;
    }
}

static clb_status make_plan(struct clb_ooc_run *run, size_t width)
{
    const struct clb_getrf_run *lu = run->lu;
    size_t panels = clb_div_up(lu->inner, lu->nb),
           most = panels + clb_div_up(lu->problem->n, width) + 1;
    run->panel = calloc(panels, sizeof *run->panel);
    run->block = calloc(most, sizeof *run->block);
    if (run->panel == NULL || run->block == NULL)
        return CLB_ERR_NOMEM;
    ooc_cut(run, width);
    return CLB_OK;
}

static clb_status ooc_make_loads(struct clb_ooc_run *run)
{
    size_t loads = run->panels + 2 * run->blocks;
    for (size_t b = 0; b < run->blocks; b++)
        loads += run->block[b].panels;
    run->transfer = calloc(loads, sizeof *run->transfer);
    for (size_t i = 0; i < CLB_COUNT_OF(run->order); i++) {
        run->order[i] = calloc(run->lu->x.rows, sizeof *run->order[i]);
        if (run->order[i] == NULL)
            return CLB_ERR_NOMEM;
    }
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    plan_loads(run);
    return CLB_OK;
}

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

static clb_status ooc_get_matrix(struct clb_ooc_run *run, size_t cols, struct clb_buffer **buffer)
{
    size_t bytes;
    const struct clb_getrf_run *lu = run->lu;
    clb_status status = clb_extent_bytes(lu->x.ld, cols, lu->x.ld, lu->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_DEVICE, bytes, buffer);
    return status;
}

static clb_status ooc_get_memory(struct clb_ooc_run *run)
{
    struct clb_getrf_run *lu = run->lu;
    size_t widest = 0, widest_panel = 0;
    for (size_t b = 0; b < run->blocks; b++)
        widest = clb_max(widest, run->block[b].end - run->block[b].first);
    for (size_t p = 0; p < run->panels; p++)
        widest_panel = clb_max(widest_panel, run->panel[p].width);
    clb_status status = ooc_get_matrix(run, widest, &lu->memory);
    for (size_t i = 0; i < CLB_OOC_SLOTS && status == CLB_OK; i++)
        status = ooc_get_matrix(run, widest_panel, &run->slot[i]);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_HOST,
                                lu->x.rows * widest_panel * lu->element, &run->staging);
    return status;
}

clb_status clb_ooc_open(struct clb_ooc_run *run, const struct clb_gemm_variant *variant,
                        size_t width)
{
    struct clb_getrf_run *lu = run->lu;
    lu->most = width;
    clb_status status = clb_getrf_open(lu, variant);
    if (status == CLB_OK)
        status = make_plan(run, width);
    if (status == CLB_OK)
        status = ooc_get_memory(run);
    if (status == CLB_OK)
        status = ooc_make_loads(run);
    if (status == CLB_OK)
        status = clb_transfer_queue_open(&run->transfers, lu->workspace.queue_set,
                                         lu->problem->precision, run->transfer, run->transfer_count,
                                         variant->tuning.value[CLB_PARAM_THREADS]);
    return status;
}

void clb_ooc_close(struct clb_ooc_run *run)
{
    struct clb_getrf_run *lu = run->lu;
    bool idle = clb_workspace_finish(&lu->workspace);
    clb_transfer_queue_close(&run->transfers, idle);
    for (size_t i = 0; i < CLB_OOC_SLOTS; i++)
        clb_buffer_end(lu->runtime, run->slot[i], idle);
    clb_buffer_end(lu->runtime, run->staging, idle);
    for (size_t i = 0; i < CLB_COUNT_OF(run->order); i++)
        free(run->order[i]);
    free(run->transfer);
    free(run->block);
    free(run->panel);
    clb_getrf_close(lu, idle);
}
