/* GEMM on a device that shares the host's memory.
 *
 * For every tile of C, slab after slab: the chunks of A and B that are not packed yet are packed, a
 * kernel adds their product to the tile P in the shim's memory, and P is mapped for the CPU. While
 * the device works on the next tile the calling thread merges the finished one into the caller's
 * matrix, C = alpha*P + beta*C. This is the only write to the caller's memory, so each part of a
 * tile of C is either old or new. Queues are in order, so a slot may be packed again as soon as the
 * kernel of the same queue that reads it has been enqueued.
 *
 * Structured operands are packed in pieces (structure.h): from either triangle as it is stored, and
 * where they cross the diagonal through a buffer. Triangular operands are packed in one piece by a
 * kernel of their own if the family has one. */
#include "inplace.h"

#include <stdlib.h>
#include <string.h>

/* ---- one tile -------------------------------------------------------------------------------- */

/* The part of a tile to which a pass contributes. */
static struct clb_rect inplace_find_support(const struct clb_inplace *run,
                                            const struct clb_inplace_tile *tile,
                                            const struct clb_pass *pass)
{
    const struct clb_rect *block = &tile->block, *rect = &tile->rect;
    const struct clb_span rows =
        clb_operand_support(&run->operands.a[pass->term], block->row, block->rows, pass->p0,
                            pass->k, clb_gemm_unit(run->variant, CLB_OPERAND_A));
    const struct clb_span cols =
        clb_operand_support(&run->operands.b[pass->term], block->col, block->cols, pass->p0,
                            pass->k, clb_gemm_unit(run->variant, CLB_OPERAND_B));
    size_t row = clb_max(rect->row, rows.first),
           row_end = clb_min(rect->row + rect->rows, rows.end);
    size_t col = clb_max(rect->col, cols.first),
           col_end = clb_min(rect->col + rect->cols, cols.end);
    return (struct clb_rect){row, col, row < row_end ? row_end - row : 0,
                             col < col_end ? col_end - col : 0};
}

/* Enqueue the product of packed chunks for a rectangle of a tile, in launches of at most
 * clb_gemm_widest. */
static clb_status inplace_launch(struct clb_inplace *run, const struct clb_inplace_tile *tile,
                                 const struct clb_pass *pass, const struct clb_rect *rect,
                                 struct clb_product product, struct clb_order order)
{
    const struct clb_gemm_variant *variant = run->variant;
    size_t most_m = clb_gemm_widest(variant, CLB_OPERAND_A);
    size_t most_n = clb_gemm_widest(variant, CLB_OPERAND_B);
    cl_ulong b_offset = product.b_offset;
    clb_status status = CLB_OK;
    for (size_t j = 0; j < rect->cols && status == CLB_OK; j += clb_min(most_n, rect->cols - j)) {
        for (size_t i = 0; i < rect->rows && status == CLB_OK;
             i += clb_min(most_m, rect->rows - i)) {
            size_t row = rect->row + i, col = rect->col + j;
            product.m = clb_min(most_m, rect->rows - i);
            product.n = clb_min(most_n, rect->cols - j);
            product.a_offset =
                clb_packed_offset(variant, CLB_OPERAND_A, row - tile->block.row, product.k);
            product.b_offset = b_offset;
            if (product.b_op_of_a != CLB_OP_N)
                product.b_offset = clb_packed_offset(variant, CLB_OPERAND_A, col, product.k);
            else if (product.ldb == 0)
                product.b_offset =
                    clb_packed_offset(variant, CLB_OPERAND_B, col - tile->block.col, product.k);
            product.c_offset = row - tile->rect.row + (col - tile->rect.col) * product.ldc;
            product.cut = clb_gemm_skip(variant, run->problem, pass,
                                        &(struct clb_rect){row, col, product.m, product.n});
            status = clb_gemm_multiply(run->queue_set, variant, &product, order);
            order.waits = 0;
            order.wait_list = NULL;
        }
    }
    return status;
}

static clb_status inplace_multiply(struct clb_inplace *run, const struct clb_inplace_tile *tile,
                                   size_t slab, size_t index, const struct clb_buffer *c)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct clb_pass pass = clb_gemm_pass(run->problem, plan->slab, slab);
    const struct clb_rect rect = inplace_find_support(run, tile, &pass);
    const cl_event *wait;
    struct clb_product product = {.k = pass.k, .c = c->mem, .ldc = plan->ldc, .add = slab > 0};
    if (rect.rows == 0 || rect.cols == 0)
        return CLB_OK;
    clb_status status =
        clb_inplace_operands(run, &tile->block, slab, &pass, index, &product, &wait);
    if (status != CLB_OK)
        return status;
    return inplace_launch(run, tile, &pass, &rect, product,
                          (struct clb_order){.queue = clb_inplace_queue(run, index % plan->queues),
                                             .waits = wait != NULL,
                                             .wait_list = wait});
}

/* Enqueue the mapping of the tile in a slot for the CPU; run->event[slot] is its event. */
static clb_status enqueue_fetch(struct clb_inplace *run, const struct clb_rect *tile, size_t slot,
                                struct clb_queue *queue)
{
    size_t bytes = run->plan.ldc * tile->cols * clb_precision_size(run->variant->precision);
    return clb_queue_map(queue, run->c[slot]->mem, CL_MAP_READ, 0, bytes, &run->mapped[slot],
                         &run->event[slot]);
}

static clb_status enqueue_tile(struct clb_inplace *run, size_t index)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct clb_inplace_tile *tile = &run->tile[index];
    size_t slot = index % plan->c_slots, turn = index % plan->queues;
    clb_status status = CLB_OK;
    for (size_t slab = 0; slab < plan->slabs && status == CLB_OK; slab++)
        status = inplace_multiply(run, tile, slab, index, run->c[slot]);
    if (status == CLB_OK)
        status = enqueue_fetch(run, &tile->rect, slot, clb_inplace_queue(run, turn));
    if (status == CLB_OK)
        status = clb_queue_flush(clb_inplace_queue(run, turn));
    return status;
}

/* Wait until a tile is mapped. If no later tile is on its queue, finish the queue first, which
 * costs nothing then: some drivers report a command's failure only in clFinish. */
static clb_status await_tile(struct clb_inplace *run, size_t index, size_t slot)
{
    const struct clb_gemm_plan *plan = &run->plan;
    size_t latest = clb_min(index + plan->c_slots - 1, run->tiles - 1);
    clb_status status = CLB_OK;
    if (index + plan->queues > latest)
        status = clb_queue_finish(clb_inplace_queue(run, index % plan->queues));
    clb_status waited = clb_queue_set_await(run->queue_set, &run->event[slot]);
    return status != CLB_OK ? status : waited;
}

static clb_status write_tile(struct clb_inplace *run, size_t index,
                             struct clb_gemm_progress *progress)
{
    const struct clb_inplace_tile *tile = &run->tile[index];
    size_t slot = index % run->plan.c_slots, ldc = run->plan.ldc;
    clb_status status = await_tile(run, index, slot);
    if (status != CLB_OK)
        return status;
    for (size_t p = tile->first_part; p < tile->first_part + tile->parts; p++) {
        const struct clb_rect *part = &progress->part[p];
        size_t at = part->row - tile->rect.row + (part->col - tile->rect.col) * ldc;
        const char *from =
            (const char *)run->mapped[slot] + at * clb_precision_size(run->problem->precision);
        if (!clb_part_is_exact(run->problem, part, from, ldc)) {
            run->out_of_range = true;
            continue;
        }
        clb_merge_part(run->problem, part, from, ldc);
        progress->written[p] = true;
    }
    return CLB_OK;
}

/* Unmap the memory of a tile. The result is written already, but the slot is used for other tiles,
 * and later for other calls. */
static clb_status unmap_slot(struct clb_inplace *run, size_t slot)
{
    void *mapped = run->mapped[slot];
    run->mapped[slot] = NULL;
    return mapped == NULL ? CLB_OK
                          : clb_queue_unmap(clb_inplace_queue(run, slot % run->plan.queues),
                                            run->c[slot]->mem, mapped);
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Keep c_slots tiles in flight: enqueue a tile, then merge the oldest. */
static clb_status run_tiles(struct clb_inplace *run, struct clb_gemm_progress *progress)
{
    size_t ahead = run->plan.c_slots - 1;
    for (size_t step = 0; step < run->tiles + ahead; step++) {
        clb_status status = CLB_OK;
        if (step < run->tiles)
            status = enqueue_tile(run, step);
        if (status == CLB_OK && step >= ahead) {
            status = write_tile(run, step - ahead, progress);
            if (status == CLB_OK)
                status = unmap_slot(run, (step - ahead) % run->plan.c_slots);
        }
        if (status != CLB_OK)
            return status;
    }
    return run->out_of_range ? CLB_ERR_RANGE : CLB_OK;
}

/* Wait for all commands, because none may use the caller's memory after the return, and release
 * everything. False when a command, or the wait, has failed. */
static bool inplace_end_run(struct clb_inplace *run, bool enqueued)
{
    bool idle = true;
    for (size_t i = 0; enqueued && i < run->plan.c_slots; i++)
        idle = unmap_slot(run, i) == CLB_OK && idle;
    idle = (!enqueued || clb_queue_set_settle(run->queue_set)) && idle;
    bool good = !enqueued || clb_queue_set_check(run->queue_set) == CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(run->event); i++) {
        if (run->event[i] != NULL)
            clb_event_release(run->event[i]);
    }
    clb_operands_close(run->runtime, &run->operands, idle);
    clb_inplace_put(run, idle);
    if (run->queue_set != NULL && idle)
        clb_queue_set_release(run->queue_set);
    else if (run->queue_set != NULL)
        clb_queue_set_discard(run->queue_set);
    return good;
}

/* Columns of a part where C is an operand (trmm from the left): few, so that a part searched for
 * infinities and NaNs is still in the cache when it is merged. Parts of whole rows are not divided
 * so, because their columns would be short. */
#define PART_COLS ((size_t)32)

/* List the parts of a tile; with `part` NULL only count them. */
static size_t list_parts(const struct clb_gemm *problem, const struct clb_rect *rect,
                         struct clb_rect *part)
{
    struct clb_rect few[2], one = *rect;
    size_t count = 0, end = rect->col + rect->cols;
    if (!clb_gemm_has_whole_columns(problem)) {
        count = clb_region_parts(clb_gemm_region(problem), rect, few);
        if (part != NULL)
            memcpy(part, few, count * sizeof *part);
        return count;
    }
    for (; one.col < end; one.col += PART_COLS, count++) {
        one.cols = clb_min(PART_COLS, end - one.col);
        if (part != NULL)
            part[count] = one;
    }
    return count;
}

/* Make the tiles in the region of C, and the parts of the progress that belong to each. */
static clb_status make_tiles(struct clb_inplace *run, struct clb_gemm_progress *progress)
{
    size_t blocks = run->plan.tile_rows * run->plan.tile_cols, parts = 0;
    run->tile = calloc(blocks, sizeof *run->tile);
    if (run->tile == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < blocks; i++) {
        struct clb_inplace_tile *tile = &run->tile[run->tiles];
        tile->block = clb_gemm_tile(&run->plan, run->problem, i);
        tile->rect = clb_region_trim(clb_gemm_region(run->problem), tile->block);
        if (tile->rect.rows == 0)
            continue;
        tile->first_part = parts;
        tile->parts = list_parts(run->problem, &tile->rect, NULL);
        parts += tile->parts;
        run->tiles++;
    }
    clb_status status = clb_gemm_progress_make(progress, parts);
    for (size_t i = 0; i < run->tiles && status == CLB_OK; i++)
        (void)list_parts(run->problem, &run->tile[i].rect,
                         &progress->part[run->tile[i].first_part]);
    return status;
}

static clb_status open_operands(struct clb_inplace *run)
{
    clb_status status = clb_operands_open(run->runtime, run->problem, &run->plan, &run->operands);
    /* Structured operands are not copied, because only one triangle may be read. */
    if (status == CLB_OK && clb_gemm_is_structured(run->problem) &&
        !clb_operands_in_place(&run->operands))
        status = CLB_ERR_NOMEM;
    if (status == CLB_OK)
        status = clb_structure_prepare(run->runtime, run->variant, run->problem, true, &run->shape);
    return status;
}

static clb_status begin_run(struct clb_inplace *run, struct clb_gemm_progress *progress)
{
    clb_status status = clb_queue_set_acquire(run->runtime, &run->queue_set);
    if (status == CLB_OK && run->plan.queues > 1)
        status = clb_queue_set_open_queues(run->queue_set);
    if (status == CLB_OK)
        status = clb_inplace_get(run);
    if (status == CLB_OK)
        status = open_operands(run);
    /* Chunks are copied through one buffer, which only the order of a single queue protects. */
    if (!clb_operands_in_place(&run->operands))
        run->plan.queues = 1;
    if (status == CLB_OK)
        status = make_tiles(run, progress);
    /* No units are faulted in here, because the device's threads use all CPUs. The merge faults C
     * in; the call advises the system to use huge pages for that. */
    if (status == CLB_OK)
        (void)clb_prefault_begin(run->problem, run->variant->tuning.value[CLB_PARAM_FAULT]);
    return status;
}

clb_status clb_gemm_run_inplace(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct clb_inplace run = {.runtime = runtime, .variant = variant, .problem = problem};
    progress->kernel = variant->name;
    clb_status status = clb_gemm_make_plan(variant, problem, clb_memory_available(runtime),
                                           runtime->device.max_alloc, &run.plan);
    if (status != CLB_OK)
        return status;
    status = begin_run(&run, progress);
    bool enqueued = status == CLB_OK;
    if (enqueued)
        status = run_tiles(&run, progress);
    return inplace_end_run(&run, enqueued) ? status : clb_gemm_distrust(problem, progress);
}
