/* Memory and packed operands of a GEMM on a device that shares the host's memory. */
#include "inplace.h"

#include <stdlib.h>

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

/* One of the run's buffers, in this order: the slots of A, of B, the tiles, the expanded pieces of
 * structured operands. */
struct need {
    clb_memory_kind kind;
    size_t bytes;
    struct clb_buffer **buffer;
};

static struct need get_need(struct clb_inplace *run, size_t i)
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

clb_status clb_inplace_get(struct clb_inplace *run)
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

static void inplace_pack_put_or_leak(struct clb_inplace *run, struct clb_buffer *buffer, bool idle)
{
    if (idle)
        clb_buffer_put(run->runtime, buffer);
    else
        clb_buffer_leak(buffer);
}

void clb_inplace_put(struct clb_inplace *run, bool idle)
{
    for (size_t i = 0; run->a != NULL && i < run->a_count + run->b_count; i++) {
        if (run->a[i].ready != NULL)
            clb_event_release(run->a[i].ready);
        inplace_pack_put_or_leak(run, run->a[i].buffer, idle);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(run->c); i++) {
        inplace_pack_put_or_leak(run, run->c[i], idle);
        inplace_pack_put_or_leak(run, run->mixed[i], idle);
    }
    free(run->a);
    free(run->tile);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Set *chunk to the elements that the device packs for a piece; a piece that crosses the diagonal
 * is expanded first. */
static clb_status get_chunk(struct clb_inplace *run, const struct clb_operand *operand,
                            const struct clb_piece *piece, const struct clb_pass *pass, size_t turn,
                            struct clb_chunk *chunk)
{
    struct clb_queue *queue = clb_inplace_queue(run, turn);
    struct clb_operand mirrored;
    clb_status status;
    switch (piece->kind) {
    case CLB_PIECE_STORED:
        return clb_operand_chunk(queue, operand, piece->i0, pass->p0, piece->w, pass->k, chunk);
    case CLB_PIECE_TRANSPOSED:
        mirrored = clb_operand_other_half(operand);
        return clb_operand_chunk(queue, &mirrored, piece->i0, pass->p0, piece->w, pass->k, chunk);
    case CLB_PIECE_TRIANGLE:
        status = clb_operand_chunk(queue, operand, piece->i0, pass->p0, piece->w, pass->k, chunk);
        clb_operand_set_triangle(operand, piece->i0, pass->p0, chunk);
        return status;
    default:
        *chunk = (struct clb_chunk){.mem = run->mixed[turn]->mem,
                                    .ld = operand->depth_contiguous ? pass->k : piece->w,
                                    .depth_contiguous = operand->depth_contiguous,
                                    .conjugated = operand->conjugated};
        return clb_structure_make(run->queue_set, run->shape, run->variant, operand, piece->i0,
                                  pass->p0, piece->w, pass->k, chunk->mem, queue);
    }
}

/* Pack elements [i0, i0 + w) of an operand, without those known to be zero. Only the first launch
 * waits for order.wait_list, and order.event is the last one's. */
static clb_status pack_chunk(struct clb_inplace *run, const struct clb_operand *operand, size_t i0,
                             size_t w, const struct clb_pass *pass, const struct clb_buffer *slot,
                             size_t turn, struct clb_order order)
{
    size_t unit = clb_gemm_unit(run->variant, operand->role), count;
    size_t widest = clb_gemm_widest(run->variant, operand->role);
    struct clb_span span = clb_operand_support(operand, i0, w, pass->p0, pass->k, unit);
    struct clb_piece piece[3] = {{CLB_PIECE_TRIANGLE, span.first, span.end - span.first}};
    clb_status status = CLB_OK;
    count = clb_operand_packs_triangle(run->variant, operand)
                ? span.first < span.end
                : clb_operand_pieces(operand, i0, span, pass->p0, pass->k, unit, piece);
    for (size_t p = 0; p < count; p++) {
        size_t most = piece[p].kind == CLB_PIECE_EXPANDED ? run->plan.mixed_w : widest;
        for (size_t at = 0; at < piece[p].w && status == CLB_OK; at += most) {
            const struct clb_piece part = {piece[p].kind, piece[p].i0 + at,
                                           clb_min(most, piece[p].w - at)};
            struct clb_chunk chunk;
            struct clb_order one = {.queue = clb_inplace_queue(run, turn)};
            if (part.i0 == span.first)
                one = order;
            one.event = part.i0 + part.w == span.end ? order.event : NULL;
            status = get_chunk(run, operand, &part, pass, turn, &chunk);
            if (status == CLB_OK)
                status = clb_gemm_pack(
                    run->queue_set, run->variant, operand->role, &chunk, part.w, pass->k, slot->mem,
                    clb_packed_offset(run->variant, operand->role, part.i0 - i0, pass->k), NULL,
                    one);
        }
    }
    return status;
}

/* The slots of an operand, how many of them each queue has, and the place of a block in the
 * operand. */
struct side {
    struct clb_inplace_slot *slot;
    const struct clb_operand *operand;
    size_t slots, first, extent, number;
};

static struct side side_of(const struct clb_inplace *run, clb_operand_role role,
                           const struct clb_rect *block, size_t term)
{
    const struct clb_gemm_plan *plan = &run->plan;
    if (role == CLB_OPERAND_A)
        return (struct side){run->a,      &run->operands.a[term],   plan->a_slots, block->row,
                             block->rows, block->row / plan->tile_m};
    return (struct side){run->b,      &run->operands.b[term],   plan->b_slots, block->col,
                         block->cols, block->col / plan->tile_n};
}

/* Get the packed chunk of the operand that is kept, for a row of tiles and a slab. Kernels on the
 * queue that did not pack it wait for its event. Packing over another chunk waits for the previous
 * tile, which may still read that chunk on the other queue. */
static clb_status ensure_kept(struct clb_inplace *run, const struct clb_rect *block, size_t slab,
                              const struct clb_pass *pass, size_t index,
                              struct clb_inplace_slot **out)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct side side = side_of(run, plan->kept, block, pass->term);
    size_t chunk = side.number * plan->slabs + slab, turn = index % plan->queues;
    struct clb_inplace_slot *slot = *out = &side.slot[chunk % side.slots];
    if (slot->holds == chunk + 1)
        return CLB_OK;
    bool both = plan->queues > 1, over = both && slot->holds != 0;
    if (slot->ready != NULL)
        clb_event_release(slot->ready);
    slot->ready = NULL;
    slot->holds = chunk + 1;
    slot->turn = turn;
    clb_status status = pack_chunk(
        run, side.operand, side.first, side.extent, pass, slot->buffer, turn,
        (struct clb_order){.queue = clb_inplace_queue(run, turn),
                           .waits = over,
                           .wait_list = over ? &run->event[(index - 1) % plan->c_slots] : NULL,
                           .event = both ? &slot->ready : NULL});
    /* Flush, because the other queue waits for the packing. */
    if (status == CLB_OK && both)
        status = clb_queue_flush(clb_inplace_queue(run, turn));
    return status;
}

/* Get the packed chunk of the other operand; each queue packs its own. */
static clb_status ensure_own(struct clb_inplace *run, const struct clb_rect *block, size_t slab,
                             const struct clb_pass *pass, size_t turn,
                             struct clb_inplace_slot **out)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct side side = side_of(
        run, plan->kept == CLB_OPERAND_A ? CLB_OPERAND_B : CLB_OPERAND_A, block, pass->term);
    size_t chunk = side.number * plan->slabs + slab;
    struct clb_inplace_slot *slot = *out = &side.slot[turn * side.slots + slab % side.slots];
    if (slot->holds == chunk + 1)
        return CLB_OK;
    slot->holds = chunk + 1;
    return pack_chunk(run, side.operand, side.first, side.extent, pass, slot->buffer, turn,
                      (struct clb_order){.queue = clb_inplace_queue(run, turn)});
}

/* Make the product read B unpacked. */
static clb_status take_direct(struct clb_inplace *run, const struct clb_rect *block,
                              const struct clb_pass *pass, size_t turn, struct clb_product *product)
{
    struct clb_chunk chunk;
    clb_status status =
        clb_operand_chunk(clb_inplace_queue(run, turn), &run->operands.b[pass->term], block->col,
                          pass->p0, block->cols, pass->k, &chunk);
    product->b = chunk.mem;
    product->b_offset = chunk.offset;
    product->ldb = chunk.ld;
    return status;
}

/* Make the product read B from the packed panels of transposed_term, the A of another term or of
 * this one. They are packed before this term's panels, so that a kernel which waits for this term's
 * need not wait for them. */
static clb_status take_transposed(struct clb_inplace *run, const struct clb_rect *block,
                                  size_t slab, size_t index, struct clb_product *product)
{
    const struct clb_gemm_plan *plan = &run->plan;
    size_t terms = clb_gemm_terms(run->problem), slabs = plan->slabs / terms;
    size_t transposed_term = (terms - 1 - slab / slabs) * slabs + slab % slabs;
    const struct clb_pass pass = clb_gemm_pass(run->problem, plan->slab, transposed_term);
    struct clb_inplace_slot *slot;
    clb_status status = ensure_kept(run, block, transposed_term, &pass, index, &slot);
    product->b = slot->buffer->mem;
    product->b_op_of_a = plan->b_op_of_a;
    return status;
}

clb_status clb_inplace_operands(struct clb_inplace *run, const struct clb_rect *block, size_t slab,
                                const struct clb_pass *pass, size_t index,
                                struct clb_product *product, const cl_event **wait)
{
    const struct clb_gemm_plan *plan = &run->plan;
    size_t turn = index % plan->queues;
    bool a_kept = plan->kept == CLB_OPERAND_A;
    bool transposed_term = plan->b_op_of_a != CLB_OP_N;
    struct clb_inplace_slot *kept, *own = NULL;
    clb_status status =
        transposed_term ? take_transposed(run, block, slab, index, product) : CLB_OK;
    if (status == CLB_OK)
        status = ensure_kept(run, block, slab, pass, index, &kept);
    if (status == CLB_OK && plan->direct)
        status = take_direct(run, block, pass, turn, product);
    else if (status == CLB_OK && !transposed_term)
        status = ensure_own(run, block, slab, pass, turn, &own);
    if (status != CLB_OK)
        return status;
    product->a = (a_kept ? kept : own)->buffer->mem;
    if (!plan->direct && !transposed_term)
        product->b = (a_kept ? own : kept)->buffer->mem;
    *wait = kept->ready != NULL && kept->turn != turn ? &kept->ready : NULL;
    return CLB_OK;
}
