/* GEMM on a device that shares the host's memory.
 *
 * For every tile of C, slab after slab: the chunks of A and B that are not on the device are
 * packed, a kernel adds their product to the tile P in the shim's memory, and P is made visible to
 * the CPU. While the device works on the next tile the calling thread merges the finished one into
 * the caller's matrix, C = alpha*P + beta*C, which is the only write to the caller's memory: a tile
 * of C is either old or new. Queues are in order, so a slot may be packed again as soon as the
 * kernel of the same queue that reads it has been enqueued.
 *
 * Operands with a shape are packed in pieces: from either triangle as it is stored, and through a
 * buffer where they cross the diagonal (shape.h). */
#include "shape.h"

#include <stdlib.h>
#include <string.h>

/* A tile of C: the block for which operands are packed, and the part of it that is computed. */
struct tile {
    struct clb_rect block, rect;
    size_t first_part, parts; /* of the progress */
};

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
    struct clb_program *shape; /* where operands have one */
    struct clb_buffer *mixed[2];
    struct tile *tile;
    size_t tiles;
    struct clb_buffer *c[2];
    cl_event event[2]; /* the tile in the slot is readable */
    void *mapped[2];
};

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

/* One of the buffers: those of A, of B, the tiles, what is made of operands with a shape. */
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
    i -= run->b_count;
    if (i < plan->c_slots)
        return (struct need){CLB_MEMORY_HOST, plan->c_bytes, &run->c[i]};
    return (struct need){CLB_MEMORY_DEVICE, plan->mixed_bytes, &run->mixed[i - plan->c_slots]};
}

static clb_status get_buffers(struct run *run)
{
    const struct clb_gemm_plan *plan = &run->plan;
    uint64_t missing = 0;
    run->a_count = plan->a_slots * (plan->kept == CLB_OPERAND_A ? 1 : plan->queues);
    run->b_count = plan->b_slots * (plan->kept == CLB_OPERAND_B ? 1 : plan->queues);
    run->a = calloc(run->a_count + run->b_count, sizeof *run->a);
    if (run->a == NULL)
        return CLB_ERR_NOMEM;
    run->b = run->a + run->a_count;
    size_t count = run->a_count + run->b_count + plan->c_slots;
    count += plan->mixed_bytes > 0 ? plan->queues : 0;
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
    for (size_t i = 0; i < CLB_COUNT_OF(run->c); i++) {
        put_or_leak(run, run->c[i], idle);
        put_or_leak(run, run->mixed[i], idle);
    }
    free(run->a);
    free(run->tile);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Tile t runs on queue t % queues. */
static cl_command_queue queue_of(const struct run *run, size_t turn)
{
    return turn == 0 ? run->lane->queue : run->lane->upload;
}

/* What the device is to pack of a piece; where it crosses the diagonal that is made first. */
static clb_status get_chunk(struct run *run, const struct clb_operand *operand,
                            const struct clb_piece *piece, const struct clb_pass *pass, size_t turn,
                            struct clb_chunk *chunk)
{
    cl_command_queue queue = queue_of(run, turn);
    struct clb_operand mirrored;
    switch (piece->kind) {
    case CLB_PIECE_STORED:
        return clb_operand_chunk(queue, operand, piece->i0, pass->p0, piece->w, pass->k, chunk);
    case CLB_PIECE_MIRRORED:
        mirrored = clb_operand_mirrored(operand);
        return clb_operand_chunk(queue, &mirrored, piece->i0, pass->p0, piece->w, pass->k, chunk);
    default:
        *chunk = (struct clb_chunk){run->mixed[turn]->mem, 0,
                                    operand->depth_contiguous ? pass->k : piece->w,
                                    operand->depth_contiguous, operand->conjugated};
        return clb_shape_make(run->lane, run->shape, run->variant, operand, piece->i0, pass->p0,
                              piece->w, pass->k, chunk->mem, queue);
    }
}

/* Pack elements [i0, i0 + w) of an operand, or what of them is not zero. Only the first launch
 * waits, and the event is the last one's. */
static clb_status pack(struct run *run, const struct clb_operand *operand, size_t i0, size_t w,
                       const struct clb_pass *pass, const struct clb_buffer *slot, size_t turn,
                       struct clb_order order)
{
    size_t unit = clb_gemm_unit(run->variant, operand->role), count;
    size_t widest = clb_gemm_widest(run->variant, operand->role);
    struct clb_span span = clb_operand_support(operand, i0, w, pass->p0, pass->k, unit);
    struct clb_piece piece[3];
    clb_status status = CLB_OK;
    count = clb_operand_pieces(operand, i0, span, pass->p0, pass->k, unit, piece);
    for (size_t p = 0; p < count; p++) {
        size_t most = piece[p].kind == CLB_PIECE_MIXED ? run->plan.mixed_w : widest;
        for (size_t at = 0; at < piece[p].w && status == CLB_OK; at += most) {
            const struct clb_piece part = {piece[p].kind, piece[p].i0 + at,
                                           clb_min(most, piece[p].w - at)};
            struct clb_chunk chunk;
            struct clb_order one = {.queue = queue_of(run, turn)};
            if (part.i0 == span.first)
                one = order;
            one.event = part.i0 + part.w == span.end ? order.event : NULL;
            status = get_chunk(run, operand, &part, pass, turn, &chunk);
            if (status == CLB_OK)
                status = clb_gemm_pack(
                    run->lane, run->variant, operand->role, &chunk, part.w, pass->k, slot->mem,
                    clb_packed_offset(run->variant, operand->role, part.i0 - i0, pass->k), NULL,
                    one);
        }
    }
    return status;
}

/* The slots of an operand, their number for each queue, and a block's place in it. */
struct side {
    struct chunk_slot *slot;
    const struct clb_operand *operand;
    size_t slots, first, extent, number;
};

static struct side side_of(const struct run *run, clb_operand_role role,
                           const struct clb_rect *block, size_t term)
{
    const struct clb_gemm_plan *plan = &run->plan;
    if (role == CLB_OPERAND_A)
        return (struct side){run->a,      &run->operands.a[term],   plan->a_slots, block->row,
                             block->rows, block->row / plan->tile_m};
    return (struct side){run->b,      &run->operands.b[term],   plan->b_slots, block->col,
                         block->cols, block->col / plan->tile_n};
}

/* The packed chunk of the operand that is kept, for a row of tiles and a slab. Kernels on the other
 * queue than the one that packs it wait for its event; packing over another chunk waits for the
 * last tile, which may still read that on the other queue. */
static clb_status ensure_kept(struct run *run, const struct clb_rect *block, size_t slab,
                              const struct clb_pass *pass, size_t index, struct chunk_slot **out)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct side side = side_of(run, plan->kept, block, pass->term);
    size_t chunk = side.number * plan->slabs + slab, turn = index % plan->queues;
    struct chunk_slot *slot = *out = &side.slot[chunk % side.slots];
    if (slot->holds == chunk + 1)
        return CLB_OK;
    bool both = plan->queues > 1, over = both && slot->holds != 0;
    if (slot->ready != NULL)
        clb_cl.ReleaseEvent(slot->ready);
    slot->ready = NULL;
    slot->holds = chunk + 1;
    slot->turn = turn;
    clb_status status =
        pack(run, side.operand, side.first, side.extent, pass, slot->buffer, turn,
             (struct clb_order){.queue = queue_of(run, turn),
                                .waits = over,
                                .wait_list = over ? &run->event[(index - 1) % plan->c_slots] : NULL,
                                .event = both ? &slot->ready : NULL});
    /* The other queue waits for it. */
    if (status == CLB_OK && both)
        status = clb_cl_check(clb_cl.Flush(queue_of(run, turn)), "clFlush");
    return status;
}

/* Of the other operand each queue packs its own. */
static clb_status ensure_own(struct run *run, const struct clb_rect *block, size_t slab,
                             const struct clb_pass *pass, size_t turn, struct chunk_slot **out)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct side side = side_of(
        run, plan->kept == CLB_OPERAND_A ? CLB_OPERAND_B : CLB_OPERAND_A, block, pass->term);
    size_t chunk = side.number * plan->slabs + slab;
    struct chunk_slot *slot = *out = &side.slot[turn * side.slots + slab % side.slots];
    if (slot->holds == chunk + 1)
        return CLB_OK;
    slot->holds = chunk + 1;
    return pack(run, side.operand, side.first, side.extent, pass, slot->buffer, turn,
                (struct clb_order){.queue = queue_of(run, turn)});
}

/* The product takes B as it is. */
static clb_status take_direct(struct run *run, const struct clb_rect *block,
                              const struct clb_pass *pass, size_t turn, struct clb_product *product)
{
    struct clb_chunk chunk;
    clb_status status = clb_operand_chunk(queue_of(run, turn), &run->operands.b[pass->term],
                                          block->col, pass->p0, block->cols, pass->k, &chunk);
    product->b = chunk.mem;
    product->b_offset = chunk.offset;
    product->ldb = chunk.ld;
    return status;
}

/* ---- one tile -------------------------------------------------------------------------------- */

/* The part of a tile to which a pass contributes. */
static struct clb_rect find_support(const struct run *run, const struct tile *tile,
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

/* The product of packed chunks for a rectangle of a tile, in launches that are not too wide. */
static clb_status launch(struct run *run, const struct tile *tile, const struct clb_pass *pass,
                         const struct clb_rect *rect, struct clb_product product,
                         struct clb_order order)
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
            if (product.ldb == 0)
                product.b_offset =
                    clb_packed_offset(variant, CLB_OPERAND_B, col - tile->block.col, product.k);
            product.c_offset = row - tile->rect.row + (col - tile->rect.col) * product.ldc;
            product.cut = clb_gemm_cut(variant, run->problem, pass,
                                       &(struct clb_rect){row, col, product.m, product.n});
            status = clb_gemm_multiply(run->lane, variant, &product, order);
            order.waits = 0;
        }
    }
    return status;
}

static clb_status multiply(struct run *run, const struct tile *tile, size_t slab, size_t index,
                           const struct clb_buffer *c)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct clb_pass pass = clb_gemm_pass(run->problem, plan->slab, slab);
    const struct clb_rect rect = find_support(run, tile, &pass);
    size_t turn = index % plan->queues;
    struct chunk_slot *kept, *own = NULL;
    struct clb_product product = {.k = pass.k, .c = c->mem, .ldc = plan->ldc, .add = slab > 0};
    if (rect.rows == 0 || rect.cols == 0)
        return CLB_OK;
    clb_status status = ensure_kept(run, &tile->block, slab, &pass, index, &kept);
    if (status == CLB_OK && plan->direct)
        status = take_direct(run, &tile->block, &pass, turn, &product);
    else if (status == CLB_OK)
        status = ensure_own(run, &tile->block, slab, &pass, turn, &own);
    if (status != CLB_OK)
        return status;
    bool a_kept = plan->kept == CLB_OPERAND_A, foreign = kept->ready != NULL && kept->turn != turn;
    product.a = (a_kept ? kept : own)->buffer->mem;
    if (!plan->direct)
        product.b = (a_kept ? own : kept)->buffer->mem;
    return launch(run, tile, &pass, &rect, product,
                  (struct clb_order){.queue = queue_of(run, turn),
                                     .waits = foreign,
                                     .wait_list = foreign ? &kept->ready : NULL});
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
    const struct tile *tile = &run->tile[index];
    size_t slot = index % plan->c_slots, turn = index % plan->queues;
    clb_status status = CLB_OK;
    for (size_t slab = 0; slab < plan->slabs && status == CLB_OK; slab++)
        status = multiply(run, tile, slab, index, run->c[slot]);
    if (status == CLB_OK)
        status = enqueue_fetch(run, &tile->rect, slot, queue_of(run, turn));
    if (status == CLB_OK)
        status = clb_cl_check(clb_cl.Flush(queue_of(run, turn)), "clFlush");
    return status;
}

static clb_status write_tile(struct run *run, size_t index, struct clb_gemm_progress *progress)
{
    const struct tile *tile = &run->tile[index];
    size_t slot = index % run->plan.c_slots, ldc = run->plan.ldc;
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, &run->event[slot]), "clWaitForEvents");
    clb_cl.ReleaseEvent(run->event[slot]);
    run->event[slot] = NULL;
    if (status != CLB_OK)
        return status;
    for (size_t p = tile->first_part; p < tile->first_part + tile->parts; p++) {
        const struct clb_rect *part = &progress->part[p];
        size_t at = part->row - tile->rect.row + (part->col - tile->rect.col) * ldc;
        clb_merge_part(run->problem, part,
                       (const char *)run->mapped[slot] +
                           at * clb_precision_size(run->problem->precision),
                       ldc);
        progress->written[p] = true;
    }
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

/* Keep c_slots tiles in flight: enqueue ahead, merge behind. */
static clb_status run_tiles(struct run *run, struct clb_gemm_progress *progress)
{
    size_t ahead = run->plan.c_slots - 1;
    for (size_t step = 0; step < run->tiles + ahead; step++) {
        clb_status status = CLB_OK;
        if (step < run->tiles)
            status = enqueue_tile(run, step);
        if (status == CLB_OK && step >= ahead) {
            status = write_tile(run, step - ahead, progress);
            if (status == CLB_OK)
                status = unmap_tile(run, step - ahead);
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

/* The tiles that the region of C has, and the parts of the progress that they are. */
static clb_status make_tiles(struct run *run, struct clb_gemm_progress *progress)
{
    size_t blocks = run->plan.tile_rows * run->plan.tile_cols, parts = 0;
    clb_region region = clb_gemm_region(run->problem);
    struct clb_rect part[2];
    run->tile = calloc(blocks, sizeof *run->tile);
    if (run->tile == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < blocks; i++) {
        struct tile *tile = &run->tile[run->tiles];
        tile->block = clb_gemm_tile(&run->plan, run->problem, i);
        tile->rect = clb_region_trim(region, tile->block);
        if (tile->rect.rows == 0)
            continue;
        tile->first_part = parts;
        tile->parts = clb_region_parts(region, &tile->rect, part);
        parts += tile->parts;
        run->tiles++;
    }
    clb_status status = clb_gemm_progress_make(progress, parts);
    for (size_t i = 0; i < run->tiles && status == CLB_OK; i++) {
        size_t count = clb_region_parts(region, &run->tile[i].rect, part);
        memcpy(&progress->part[run->tile[i].first_part], part, count * sizeof *part);
    }
    return status;
}

static clb_status open_operands(struct run *run)
{
    clb_status status = clb_operands_open(run->runtime, run->problem, &run->plan, &run->operands);
    /* What is made on the device is made of operands in place. */
    if (status == CLB_OK && run->plan.mixed_bytes > 0 && !clb_operands_in_place(&run->operands))
        status = CLB_ERR_NOMEM;
    if (status == CLB_OK)
        status = clb_shape_prepare(run->runtime, run->variant, run->problem, true, &run->shape);
    return status;
}

static clb_status begin_run(struct run *run, struct clb_gemm_progress *progress)
{
    clb_status status = clb_lane_acquire(run->runtime, &run->lane);
    if (status == CLB_OK && run->plan.queues > 1)
        status = clb_lane_open_queues(run->lane);
    if (status == CLB_OK)
        status = get_buffers(run);
    if (status == CLB_OK)
        status = open_operands(run);
    /* Chunks that are copied go through one buffer: only the order of one queue protects it. */
    if (!clb_operands_in_place(&run->operands))
        run->plan.queues = 1;
    if (status == CLB_OK)
        status = make_tiles(run, progress);
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
