/* GEMM on a device that shares the host's memory.
 *
 * For every tile of C, slab after slab: the chunks of A and B that are not on the device are
 * packed, a kernel adds their product to the tile P in the shim's memory, and P is made visible to
 * the CPU. While the device works on the next tile the calling thread merges the finished one into
 * the caller's matrix, C = alpha*P + beta*C, which is the only write to the caller's memory: a tile
 * of C is either old or new. Queues are in order, so a slot may be packed again as soon as the
 * kernel of the same queue that reads it has been enqueued. */
#include "algo.h"

#include <stdlib.h>

/* A packed chunk of an operand. */
struct chunk_slot {
    struct clb_buffer *buffer;
    size_t holds;   /* number of the chunk plus one; 0 is none */
    size_t turn;    /* the queue that packed it */
    cl_event ready; /* when, for the other queue */
};

struct run {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_plan plan;
    struct clb_lane *lane;
    struct clb_operands operands;
    struct chunk_slot *a, *b; /* one array of a_count + b_count */
    size_t a_count, b_count;
    struct clb_buffer *c[2];
    cl_event event[2]; /* the tile in the slot is readable */
    void *mapped[2];
};

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

/* One of the buffers: those of A, of B, the tiles. */
struct need {
    clb_memory_kind kind;
    size_t bytes;
    struct clb_buffer **buffer;
};

static struct need get_need(struct run *run, size_t i)
{
    const struct clb_gemm_plan *plan = &run->plan;
    if (i < run->a_count)
        return (struct need){CLB_MEMORY_DEVICE, plan->a_bytes, &run->a[i].buffer};
    i -= run->a_count;
    if (i < run->b_count)
        return (struct need){CLB_MEMORY_DEVICE, plan->b_bytes, &run->b[i].buffer};
    return (struct need){CLB_MEMORY_HOST, plan->c_bytes, &run->c[i - run->b_count]};
}

static clb_status get_buffers(struct run *run)
{
    const struct clb_gemm_plan *plan = &run->plan;
    uint64_t missing = 0;
    run->a_count = plan->a_slots;
    run->b_count = plan->queues * plan->b_slots;
    run->a = calloc(run->a_count + run->b_count, sizeof *run->a);
    if (run->a == NULL)
        return CLB_ERR_NOMEM;
    run->b = run->a + run->a_count;
    size_t count = run->a_count + run->b_count + plan->c_slots;
    for (size_t i = 0; i < count; i++) {
        struct need need = get_need(run, i);
        *need.buffer = clb_buffer_find(run->runtime, need.kind, need.bytes);
        if (*need.buffer == NULL)
            missing += clb_buffer_rounded(need.bytes);
    }
    clb_status status = CLB_OK;
    if (missing > 0)
        clb_pool_make_room(run->runtime, missing);
    for (size_t i = 0; i < count && status == CLB_OK; i++) {
        struct need need = get_need(run, i);
        if (*need.buffer == NULL)
            status = clb_buffer_get(run->runtime, need.kind, need.bytes, need.buffer);
    }
    return status;
}

static void put_or_leak(struct run *run, struct clb_buffer *buffer, bool idle)
{
    if (idle)
        clb_buffer_put(run->runtime, buffer);
    else
        clb_buffer_leak(buffer);
}

static void put_buffers(struct run *run, bool idle)
{
    for (size_t i = 0; run->a != NULL && i < run->a_count + run->b_count; i++) {
        if (run->a[i].ready != NULL)
            clb_cl.ReleaseEvent(run->a[i].ready);
        put_or_leak(run, run->a[i].buffer, idle);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(run->c); i++)
        put_or_leak(run, run->c[i], idle);
    free(run->a);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Tile t runs on queue t % queues. */
static cl_command_queue queue_of(const struct run *run, size_t turn)
{
    return turn == 0 ? run->lane->queue : run->lane->upload;
}

static clb_status pack(struct run *run, const struct clb_operand *operand, size_t i0, size_t p0,
                       size_t w, size_t k, const struct clb_buffer *slot, struct clb_order order)
{
    struct clb_chunk chunk;
    clb_status status = clb_operand_chunk(order.queue, operand, i0, p0, w, k, &chunk);
    if (status == CLB_OK)
        status = clb_gemm_pack(run->lane, run->variant, operand->role, &chunk, w, k, slot->mem, 0,
                               NULL, order);
    return status;
}

/* The packed chunk of A for a row of tiles and a slab. Kernels on the other queue than the one that
 * packs it wait for its event; packing over another chunk waits for the last tile, which may still
 * read that on the other queue. */
static clb_status ensure_a(struct run *run, const struct clb_rect *tile, size_t slab, size_t depth,
                           size_t index, struct chunk_slot **out)
{
    const struct clb_gemm_plan *plan = &run->plan;
    size_t chunk = tile->row / plan->tile_m * plan->slabs + slab, turn = index % plan->queues;
    struct chunk_slot *slot = *out = &run->a[chunk % plan->a_slots];
    if (slot->holds == chunk + 1)
        return CLB_OK;
    bool both = plan->queues > 1, over = both && slot->holds != 0;
    if (slot->ready != NULL)
        clb_cl.ReleaseEvent(slot->ready);
    slot->ready = NULL;
    slot->holds = chunk + 1;
    slot->turn = turn;
    clb_status status =
        pack(run, &run->operands.a, tile->row, slab * plan->slab, tile->rows, depth, slot->buffer,
             (struct clb_order){.queue = queue_of(run, turn),
                                .waits = over,
                                .wait_list = over ? &run->event[(index - 1) % plan->c_slots] : NULL,
                                .event = both ? &slot->ready : NULL});
    /* The other queue waits for it. */
    if (status == CLB_OK && both)
        status = clb_cl_check(clb_cl.Flush(queue_of(run, turn)), "clFlush");
    return status;
}

/* Of B for a column of tiles: each queue packs its own, or the product takes B as it is. */
static clb_status ensure_b(struct run *run, const struct clb_rect *tile, size_t slab, size_t turn,
                           struct clb_product *product)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct clb_operand *operand = &run->operands.b;
    if (plan->direct) {
        struct clb_chunk chunk;
        clb_status status = clb_operand_chunk(queue_of(run, turn), operand, tile->col,
                                              slab * plan->slab, tile->cols, product->k, &chunk);
        product->b = chunk.mem;
        product->b_offset = chunk.offset;
        product->ldb = chunk.ld;
        return status;
    }
    size_t number = tile->col / plan->tile_n * plan->slabs + slab;
    struct chunk_slot *slot = &run->b[turn * plan->b_slots + slab % plan->b_slots];
    product->b = slot->buffer->mem;
    if (slot->holds == number + 1)
        return CLB_OK;
    slot->holds = number + 1;
    return pack(run, operand, tile->col, slab * plan->slab, tile->cols, product->k, slot->buffer,
                (struct clb_order){.queue = queue_of(run, turn)});
}

/* ---- one tile -------------------------------------------------------------------------------- */

static clb_status multiply(struct run *run, const struct clb_rect *tile, size_t slab, size_t index,
                           const struct clb_buffer *c)
{
    const struct clb_gemm_plan *plan = &run->plan;
    size_t turn = index % plan->queues;
    struct chunk_slot *a;
    struct clb_product product = {.m = tile->rows,
                                  .n = tile->cols,
                                  .k = clb_min(plan->slab, run->problem->k - slab * plan->slab),
                                  .c = c->mem,
                                  .ldc = plan->ldc,
                                  .add = slab > 0};
    clb_status status = ensure_a(run, tile, slab, product.k, index, &a);
    if (status == CLB_OK)
        status = ensure_b(run, tile, slab, turn, &product);
    if (status != CLB_OK)
        return status;
    product.a = a->buffer->mem;
    bool foreign = a->ready != NULL && a->turn != turn;
    return clb_gemm_multiply(run->lane, run->variant, &product,
                             (struct clb_order){.queue = queue_of(run, turn),
                                                .waits = foreign,
                                                .wait_list = foreign ? &a->ready : NULL});
}

/* Make the tile in a slot readable by the CPU: run->event[slot] says when. */
static clb_status enqueue_fetch(struct run *run, const struct clb_rect *tile, size_t slot,
                                cl_command_queue queue)
{
    size_t bytes = run->plan.ldc * tile->cols * clb_precision_size(run->variant->precision);
    cl_int error;
    run->mapped[slot] = clb_cl.EnqueueMapBuffer(queue, run->c[slot]->mem, CL_FALSE, CL_MAP_READ, 0,
                                                bytes, 0, NULL, &run->event[slot], &error);
    return clb_cl_check(error, "clEnqueueMapBuffer");
}

static clb_status enqueue_tile(struct run *run, size_t index)
{
    const struct clb_gemm_plan *plan = &run->plan;
    struct clb_rect tile = clb_gemm_tile(plan, run->problem, index);
    size_t slot = index % plan->c_slots, turn = index % plan->queues;
    clb_status status = CLB_OK;
    for (size_t slab = 0; slab < plan->slabs && status == CLB_OK; slab++)
        status = multiply(run, &tile, slab, index, run->c[slot]);
    if (status == CLB_OK)
        status = enqueue_fetch(run, &tile, slot, queue_of(run, turn));
    if (status == CLB_OK)
        status = clb_cl_check(clb_cl.Flush(queue_of(run, turn)), "clFlush");
    return status;
}

static clb_status write_tile(struct run *run, size_t index)
{
    const struct clb_gemm *problem = run->problem;
    struct clb_rect tile = clb_gemm_tile(&run->plan, problem, index);
    struct clb_gemm part = clb_gemm_part(problem, &tile);
    size_t slot = index % run->plan.c_slots;
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, &run->event[slot]), "clWaitForEvents");
    clb_cl.ReleaseEvent(run->event[slot]);
    run->event[slot] = NULL;
    if (status != CLB_OK)
        return status;
    clb_merge_tile(problem->precision, tile.rows, tile.cols, problem->alpha, run->mapped[slot],
                   run->plan.ldc, problem->beta, part.c, problem->ldc);
    return CLB_OK;
}

/* The tile's memory back to the device. Not needed for the result, which is written already. */
static clb_status unmap_tile(struct run *run, size_t index)
{
    size_t slot = index % run->plan.c_slots;
    return clb_cl_check(clb_cl.EnqueueUnmapMemObject(queue_of(run, index % run->plan.queues),
                                                     run->c[slot]->mem, run->mapped[slot], 0, NULL,
                                                     NULL),
                        "clEnqueueUnmapMemObject");
}

/* ---- the run --------------------------------------------------------------------------------- */

/* Keep c_slots tiles in flight: enqueue ahead, merge behind. The parts of the progress are the
 * tiles. */
static clb_status run_tiles(struct run *run, struct clb_gemm_progress *progress)
{
    size_t ahead = run->plan.c_slots - 1;
    for (size_t step = 0; step < progress->parts + ahead; step++) {
        clb_status status = CLB_OK;
        if (step < progress->parts)
            status = enqueue_tile(run, step);
        if (status == CLB_OK && step >= ahead) {
            status = write_tile(run, step - ahead);
            if (status == CLB_OK) {
                progress->written[step - ahead] = true;
                status = unmap_tile(run, step - ahead);
            }
        }
        if (status != CLB_OK)
            return status;
    }
    return CLB_OK;
}

/* Nothing may be outstanding when the caller's memory goes back to the program. */
static void end_run(struct run *run, bool enqueued)
{
    bool idle =
        !enqueued || clb_lane_finish(run->lane) == CLB_OK || clb_lane_finish(run->lane) == CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(run->event); i++) {
        if (run->event[i] != NULL)
            clb_cl.ReleaseEvent(run->event[i]);
    }
    clb_operands_close(run->runtime, &run->operands, idle);
    put_buffers(run, idle);
    if (run->lane != NULL && idle)
        clb_lane_release(run->lane);
    else if (run->lane != NULL)
        clb_lane_discard(run->lane);
}

static clb_status begin_run(struct run *run, struct clb_gemm_progress *progress)
{
    clb_status status = clb_lane_acquire(run->runtime, &run->lane);
    if (status == CLB_OK && run->plan.queues > 1)
        status = clb_lane_open_queues(run->lane);
    if (status == CLB_OK)
        status = get_buffers(run);
    if (status == CLB_OK)
        status = clb_operands_open(run->runtime, run->problem, &run->plan, &run->operands);
    /* Chunks that are copied go through one buffer: only the order of one queue protects it. */
    if (run->operands.a.mem == NULL || run->operands.b.mem == NULL)
        run->plan.queues = 1;
    if (status == CLB_OK)
        status = clb_gemm_progress_make(progress, run->plan.tile_rows * run->plan.tile_cols);
    for (size_t i = 0; i < progress->parts; i++)
        progress->part[i] = clb_gemm_tile(&run->plan, run->problem, i);
    /* The device's threads have all CPUs: the merge faults C in, in huge pages. */
    if (status == CLB_OK)
        (void)clb_touch_begin(run->problem, run->variant->tuning.value[CLB_PARAM_FAULT]);
    return status;
}

clb_status clb_gemm_run_inplace(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct run run = {.runtime = runtime, .variant = variant, .problem = problem};
    progress->kernel = variant->name;
    clb_status status = clb_gemm_make_plan(variant, problem, clb_memory_available(runtime),
                                           runtime->device.max_alloc, &run.plan);
    if (status != CLB_OK)
        return status;
    status = begin_run(&run, progress);
    bool enqueued = status == CLB_OK;
    if (enqueued)
        status = run_tiles(&run, progress);
    end_run(&run, enqueued);
    return status;
}
