/* SPDX-License-Identifier: BSD-3-Clause
 * Products on a device that shares the host's memory.
 *
 * For every tile of C, slab after slab: chunks of A and B that are not packed yet are packed, a
 * kernel adds their product to the tile P in the shim's memory. While the device works on the next
 * tile the calling thread merges the finished one, C = alpha*P + beta*C. This is the only write to
 * the caller's memory, so each part of a tile of C is either old or new. Queues are in order, so a
 * slot may be packed again when the kernel of the same queue that reads it has been enqueued.
 *
 * An operand is one read-only buffer over the caller's memory; overlapping operands (A*A^T) share
 * one, since buffers over overlapping memory are not defined. Where an operand is larger than a
 * buffer may be discrete.c computes the product.
 *
 * Structured operands are packed in pieces (structure.h); those that cross the diagonal from a
 * buffer to which they are expanded before. */
#include "structure.h"
#include "engine/transfer/transfer_queue.h"

#include <stdlib.h>

/* ---- the plan: tiles of C and slabs of the depth ---- */

/* Multiples of the kernel's own size, so that only the last has edges, and nearly equal, so that
 * the last is not too small. */
static size_t even_tile(size_t extent, size_t wanted, size_t unit)
{
    size_t tile = clb_max(clb_round_up(wanted, unit), unit);
    size_t count = clb_div_up(extent, tile);
    return clb_round_up(clb_div_up(extent, count), unit);
}

static void size_plan(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                      struct clb_gemm_plan *plan)
{
    size_t element = clb_precision_size(variant->precision);
    size_t m = clb_min(plan->tile[0], problem->m), n = clb_min(plan->tile[1], problem->n);
    size_t depth = clb_min(plan->slab, problem->k);
    plan->tile_rows = clb_div_up(problem->m, plan->tile[0]);
    plan->tile_cols = clb_div_up(problem->n, plan->tile[1]);
    plan->slabs = clb_gemm_passes(problem, plan->slab);
    plan->ldc = clb_round_up(m, clb_max(128 / element, 1));
    plan->c_slots = clb_min(plan->tile_rows * plan->tile_cols, 2);
    plan->need[CLB_NEED_A].bytes = clb_packed_bytes(variant, CLB_OPERAND_A, m, depth);
    plan->need[CLB_NEED_B].bytes = clb_packed_bytes(variant, CLB_OPERAND_B, n, depth);
    plan->need[CLB_NEED_C] =
        (struct clb_need){CLB_MEMORY_HOST, plan->c_slots, plan->ldc * n * element, NULL};
    const size_t expanded = clb_gemm_expanded_bytes(variant, problem, depth);
    plan->need[CLB_NEED_EXPANDED] =
        (struct clb_need){CLB_MEMORY_HOST, expanded > 0 ? plan->slabs : 0, expanded, NULL};
}

/* Packing B pays only when every packed element is multiplied with many rows of A. */
static bool plan_is_direct(const struct clb_gemm_variant *variant, const struct clb_gemm *problem)
{
    return problem->b[0].op == CLB_OP_N && clb_gemm_is_plain(problem) &&
           problem->m <= variant->tuning.value[CLB_PARAM_DIRECT] &&
           clb_direct_prepare(variant) == CLB_OK;
}

/* Columns of C up to which A is not packed either: it is copied again for each block of columns. */
#define MOST_RAW ((size_t)1024)

/* The op with which B is op(A) in every term, A being the transposed term's, so that only A has to
 * be packed; CLB_OP_N where there is none. All of B must be in A's panels, and all kept. */
static clb_op find_b_of_a(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                          const struct clb_gemm_plan *plan)
{
    size_t terms = problem->terms;
    bool adjoint = false;
    if (problem->region == CLB_REGION_FULL || !variant->family->has_skip ||
        plan->kept != CLB_OPERAND_A || plan->tile_rows > 1 ||
        (terms > 1 && plan->slots[CLB_OPERAND_A] < plan->slabs))
        return CLB_OP_N;
    for (size_t t = 0; t < terms; t++) {
        const struct clb_operand a = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        const struct clb_operand b = clb_operand_of_term(problem, CLB_OPERAND_B, t);
        if (clb_gemm_transposed_term(problem, t) == CLB_MAX_TERMS || a.scale != NULL)
            return CLB_OP_N;
        adjoint = a.conjugated != b.conjugated;
    }
    return adjoint && clb_precision_parts(problem->precision) > 1 ? CLB_OP_C : CLB_OP_T;
}

/* What a plan is made for. Indices are roles: rows for A, columns for B. */
struct planner {
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    size_t unit[2];
    bool square, whole[2]; /* square: rows are a multiple of the columns; whole: not divided */
    size_t tile[2];        /* wanted */
    uint64_t budget, max_alloc;
};

/* Count the bytes for a number of slots of the operand that is kept; true when they fit. Chunks of
 * the other are kept where all tiles share them; else one slot, which stays in the cache. */
static bool plan_fits(const struct planner *planner, struct clb_gemm_plan *plan, size_t slots)
{
    bool a_kept = !planner->whole[1];
    size_t largest = 0;
    plan->kept = a_kept ? CLB_OPERAND_A : CLB_OPERAND_B;
    plan->slots[plan->kept] = slots;
    plan->slots[!plan->kept] = a_kept && plan->tile_cols == 1 ? slots : 1;
    if (plan->raw)
        plan->slots[CLB_OPERAND_A] = 0;
    plan->b_op_of_a = find_b_of_a(planner->variant, planner->problem, plan);
    if (plan->direct || plan->b_op_of_a != CLB_OP_N)
        plan->slots[CLB_OPERAND_B] = 0;
    plan->queues = slots == plan->slabs ? plan->c_slots : 1;
    for (int role = CLB_OPERAND_A; role <= CLB_OPERAND_B; role++)
        plan->need[role].count = plan->slots[role] * (role == (int)plan->kept ? 1 : plan->queues);
    plan->bytes = 0;
    for (int i = 0; i < CLB_NEEDS; i++) {
        plan->bytes += (uint64_t)plan->need[i].count * clb_buffer_rounded(plan->need[i].bytes);
        largest = clb_max(largest, plan->need[i].bytes);
    }
    return plan->bytes <= planner->budget && largest <= planner->max_alloc - planner->max_alloc / 8;
}

/* The least rows of A in a block: with fewer, packing B again for every block costs too much. */
#define SMALLEST_BLOCK ((size_t)512)
/* The other operand is packed for each tile of all rows or columns: so much wider ones pay. */
#define WIDER ((size_t)4)
/* Shares of a triangular region's columns, whose tiles on the diagonal are computed in full. */
#define REGION_SHARES ((size_t)8)

/* On CPUs tiles of whole columns or rows are half as wide where the second-level cache holds only
 * half a tile (gemm.cached_c). */
static bool halves_fit(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                       size_t width)
{
    size_t line = clb_gemm_has_whole_columns(problem) ? problem->m : problem->n;
    size_t bytes = variant->tuning.value[CLB_PARAM_CACHED_C];
    size_t most = bytes / clb_precision_size(variant->precision) / clb_max(line, 1);
    return variant->family->has_skip && width > most && width / 2 <= most;
}

/* A device of one unit, whose products the merging of tiles takes time from, gets wider ones, as
 * far as one launch allows (clb_gemm_widest). */
static struct planner get_planner(const struct clb_gemm_variant *variant, size_t units,
                                  const struct clb_gemm *problem, uint64_t max_alloc)
{
    const size_t *value = variant->tuning.value;
    struct planner planner = {
        .variant = variant,
        .problem = problem,
        .unit = {clb_gemm_unit(variant, CLB_OPERAND_A), clb_gemm_unit(variant, CLB_OPERAND_B)},
        .square = problem->region != CLB_REGION_FULL,
        .whole = {clb_gemm_has_whole_columns(problem), clb_gemm_has_whole_rows(problem)},
        .tile = {value[CLB_PARAM_TM],
                 value[CLB_PARAM_TN] *
                     (units == 1 && value[CLB_PARAM_TM] >= 2 * value[CLB_PARAM_TN] ? 2 : 1)},
        .max_alloc = max_alloc};
    if (planner.square)
        planner.unit[0] = planner.unit[1] = clb_gemm_square_unit(variant);
    if (planner.square && !variant->family->has_skip)
        planner.tile[1] = clb_min(planner.tile[1], clb_div_up(problem->n, REGION_SHARES));
    if ((planner.whole[0] || planner.whole[1]) && halves_fit(variant, problem, planner.tile[1]))
        planner.tile[1] /= 2;
    if (planner.whole[1])
        planner.tile[0] = planner.tile[1];
    return planner;
}

/* Plan tiles of about `wanted` rows and columns, with slots for `all` chunks of the operand that is
 * kept, or for one; true when they fit. */
static bool plan_tiles(const struct planner *planner, const size_t wanted[2], bool all,
                       struct clb_gemm_plan *plan)
{
    const struct clb_gemm *problem = planner->problem;
    const size_t *unit = planner->unit;
    plan->tile[1] = planner->whole[1] ? clb_round_up(problem->n, unit[1])
                                      : even_tile(problem->n, wanted[1], unit[1]);
    plan->tile[0] = planner->whole[0] ? clb_round_up(problem->m, unit[0])
                                      : even_tile(problem->m, wanted[0],
                                                  planner->square ? plan->tile[1] : unit[0]);
    size_plan(planner->variant, problem, plan);
    return plan_fits(planner, plan, all ? plan->slabs : 1);
}

/* Use the largest block of rows of A whose chunks, and those of one column of tiles of B, fit into
 * the budget; else one chunk of each at a time, with ever smaller tiles. */
static bool plan_within(const struct planner *planner, struct clb_gemm_plan *plan)
{
    const bool *whole = planner->whole;
    size_t wanted[2] = {planner->tile[0], planner->tile[1]};
    do {
        if (plan_tiles(planner, wanted, true, plan))
            return true;
        wanted[0] = plan->tile[0] / 2;
    } while (wanted[0] >= SMALLEST_BLOCK && !whole[0] && !whole[1]);
    wanted[0] = planner->tile[0] * (whole[1] ? WIDER : 1);
    wanted[1] *= whole[0] ? WIDER : 1;
    while (!plan_tiles(planner, wanted, false, plan)) {
        /* Halve the longer side that the kernel's own tile still allows to be halved. */
        bool long_m =
            !whole[0] && plan->tile[0] > (planner->square ? plan->tile[1] : planner->unit[0]);
        bool long_n = !whole[1] && plan->tile[1] > planner->unit[1];
        if (!long_m && !long_n)
            return false;
        int side = long_m && (!long_n || plan->tile[0] >= plan->tile[1]) ? 0 : 1;
        wanted[side] = plan->tile[side] / 2;
    }
    return true;
}

/* The program needs the memory, too: prefers a plan with 64 MiB and a tenth of the operands. */
clb_status clb_gemm_make_plan(const struct clb_gemm_variant *variant, size_t units,
                              const struct clb_gemm *problem, uint64_t available,
                              uint64_t max_alloc, struct clb_gemm_plan *plan)
{
    uint64_t modest = ((uint64_t)64 << 20) + (uint64_t)(clb_gemm_bytes(problem) / 10);
    *plan =
        (struct clb_gemm_plan){.slab = even_tile(problem->k, clb_gemm_slab(variant, problem, true),
                                                 clb_gemm_depth_unit(variant)),
                               .direct = plan_is_direct(variant, problem)};
    plan->raw = plan->direct && problem->a[0].op == CLB_OP_N && problem->n <= MOST_RAW;
    struct planner planner = get_planner(variant, units, problem, max_alloc);
    planner.budget = modest;
    if (modest < available && plan_within(&planner, plan))
        return CLB_OK;
    planner.budget = available;
    return plan_within(&planner, plan) ? CLB_OK : CLB_ERR_NOMEM;
}

struct clb_rect clb_gemm_tile(const struct clb_gemm_plan *plan, const struct clb_gemm *problem,
                              size_t index)
{
    struct clb_rect rect = {.row = index / plan->tile_cols * plan->tile[0],
                            .col = index % plan->tile_cols * plan->tile[1]};
    rect.rows = clb_min(plan->tile[0], problem->m - rect.row);
    rect.cols = clb_min(plan->tile[1], problem->n - rect.col);
    return rect;
}

/* ---- the run ---- */

/* A tile of C: the block for which operands are packed, and its part that is computed. */
struct unified_tile {
    struct clb_rect block, rect;
    size_t first_part, parts; /* of the progress */
};

/* What is in a buffer for one packed chunk of an operand. */
struct unified_slot {
    size_t holds;    /* number of the chunk plus one; 0: none */
    size_t turn;     /* the queue that packed it */
    clb_event ready; /* it has been packed, for the other queue */
};

/* Indices are roles where there are two of A and of B. */
struct unified_run {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_plan plan;
    struct clb_queue_set *queue_set;
    struct clb_operand operand[2][CLB_MAX_TERMS];
    cl_mem wrapped[2 * CLB_MAX_TERMS]; /* buffers over the caller's memory */
    struct unified_slot *slot[2];      /* parts of one array; slot i has buffer i of the need */
    void **place;                      /* where slabs are to be expanded; NULL: they have been */
    struct unified_tile *tile;
    size_t tiles;
    size_t part;            /* see clb_part_depth; 0: the depth is not divided */
    clb_event event[2];     /* the tile in the slot is readable, at results */
    const void *results[2]; /* where the CPU reads the tile */
    void *mapped[2];        /* NULL: the slot is not mapped, the device may use it */
    bool out_of_range;      /* some parts were not written, see clb_part_is_exact */
};

static cl_mem mem_of(const struct unified_run *run, int need, size_t number)
{
    return run->plan.need[need].buffer[number]->mem;
}

static cl_mem mem_of_slot(const struct unified_run *run, clb_operand_role role,
                          const struct unified_slot *slot)
{
    return mem_of(run, (int)role, (size_t)(slot - run->slot[role]));
}

/* Tile t runs on queue t % queues. */
static struct clb_queue *queue_of(const struct unified_run *run, size_t turn)
{
    return turn == 0 ? run->queue_set->queue : run->queue_set->upload;
}

/* ---- the operands in device memory ---- */

/* Get buffers over the operands, one over those that overlap, directly or by way of others.
 * CLB_ERR_UNSUPPORTED where that is impossible. */
static clb_status open_operands(struct unified_run *run)
{
    const struct clb_gemm *problem = run->problem;
    struct {
        const char *begin, *end;
    } range[2 * CLB_MAX_TERMS];
    const size_t count = 2 * problem->terms;
    for (size_t x = 0; x < count; x++) {
        struct clb_operand *operand = &run->operand[x % 2][x / 2];
        *operand = clb_operand_of_term(problem, (clb_operand_role)(x % 2), x / 2);
        const struct clb_rect all =
            clb_stored(operand->depth_contiguous, 0, 0,
                       x % 2 == CLB_OPERAND_A ? problem->m : problem->n, problem->k);
        size_t bytes;
        CLB_TRY(clb_extent_bytes(all.rows, all.cols, operand->ld, operand->element, &bytes));
        range[x].begin = operand->host;
        range[x].end = operand->host + bytes;
    }
    /* Each pair as often as there are ranges. */
    for (size_t i = 0; i < count * count * count; i++) {
        const size_t x = i % count, y = i / count % count;
        if (range[x].begin < range[y].end && range[y].begin < range[x].end) {
            range[x].begin = range[x].begin < range[y].begin ? range[x].begin : range[y].begin;
            range[x].end = range[x].end > range[y].end ? range[x].end : range[y].end;
            range[y] = range[x];
        }
    }
    for (size_t x = 0; x < count; x++) {
        struct clb_operand *operand = &run->operand[x % 2][x / 2];
        size_t first = 0, distance = (size_t)(operand->host - range[x].begin);
        while (range[first].begin != range[x].begin)
            first++;
        if (distance % operand->element != 0 ||
            (first == x &&
             clb_buffer_wrap(run->runtime, range[x].begin, (size_t)(range[x].end - range[x].begin),
                             &run->wrapped[x]) != CLB_OK))
            return CLB_ERR_UNSUPPORTED;
        operand->mem = run->wrapped[first];
        operand->offset = distance / operand->element;
    }
    return CLB_OK;
}

/* The elements (i0.., p0..) of an operand. */
static struct clb_chunk operand_chunk(const struct clb_operand *operand, size_t i0, size_t p0)
{
    const struct clb_rect at = clb_stored(operand->depth_contiguous, i0, p0, 0, 0);
    return (struct clb_chunk){.mem = operand->mem,
                              .offset = operand->offset + at.row + at.col * operand->ld,
                              .ld = operand->ld,
                              .depth_contiguous = operand->depth_contiguous,
                              .conjugated = operand->conjugated};
}

/* What is expanded of an operand for a pass, for all blocks of C. */
static struct clb_piece expanded_piece(const struct unified_run *run,
                                       const struct clb_operand *operand,
                                       const struct clb_pass *pass)
{
    return clb_operand_expanded(operand,
                                operand->role == CLB_OPERAND_A ? run->problem->m : run->problem->n,
                                pass->p0, pass->k, clb_gemm_unit(run->variant, operand->role));
}

/* Expand, once, what a pass needs and can't be packed as it is; the device works meanwhile. */
static clb_status expand(struct unified_run *run, const struct clb_operand *operand,
                         const struct clb_pass *pass, size_t slab, size_t turn)
{
    void *to = run->place != NULL ? run->place[slab] : NULL;
    const struct clb_piece piece = expanded_piece(run, operand, pass);
    if (piece.w == 0 || to == NULL || clb_operand_packs_triangle(run->variant, operand))
        return CLB_OK;
    run->place[slab] = NULL;
    clb_operand_make(run->problem->precision, operand, piece.i0, pass->p0, piece.w, pass->k, 0,
                     operand->depth_contiguous ? piece.w : pass->k, to);
    clb_status status =
        clb_queue_unmap(queue_of(run, turn), mem_of(run, CLB_NEED_EXPANDED, slab), to);
    /* The other queue may read it, too. */
    if (status == CLB_OK && run->plan.queues > 1)
        status = clb_queue_join(queue_of(run, turn), queue_of(run, !turn));
    return status;
}

/* Map what operands are expanded to. */
static clb_status map_places(struct unified_run *run)
{
    const struct clb_need *need = &run->plan.need[CLB_NEED_EXPANDED];
    clb_status status = CLB_OK;
    if (need->count == 0)
        return CLB_OK;
    run->place = calloc(need->count, sizeof *run->place);
    if (run->place == NULL)
        return CLB_ERR_NOMEM;
    for (size_t slab = 0; slab < need->count && status == CLB_OK; slab++) {
        clb_event event = NULL;
        CLB_TRY(clb_queue_map(run->queue_set->queue, need->buffer[slab]->mem, CL_MAP_WRITE, 0,
                              need->bytes, &run->place[slab], &event));
        status = clb_queue_set_await(run->queue_set, &event);
    }
    return status;
}

/* The elements that the device packs for a piece. */
static struct clb_chunk piece_chunk(const struct unified_run *run,
                                    const struct clb_operand *operand,
                                    const struct clb_piece *piece, const struct clb_pass *pass,
                                    size_t slab)
{
    struct clb_operand view = *operand;
    if (piece->kind == CLB_PIECE_EXPANDED) {
        const struct clb_piece whole = expanded_piece(run, operand, pass);
        view.mem = mem_of(run, CLB_NEED_EXPANDED, slab);
        view.offset = 0;
        view.ld = operand->depth_contiguous ? pass->k : whole.w;
        return operand_chunk(&view, piece->i0 - whole.i0, 0);
    }
    if (piece->kind == CLB_PIECE_TRANSPOSED)
        view = clb_operand_other_half(operand);
    struct clb_chunk chunk = operand_chunk(&view, piece->i0, pass->p0);
    if (piece->kind == CLB_PIECE_TRIANGLE)
        clb_operand_set_triangle(operand, piece->i0, pass->p0, &chunk);
    return chunk;
}

/* Get the packed chunk of an operand for a block of C and a slab: pack its elements, without known
 * zeros, unless they are packed already.
 *
 * Kernels on the queue that did not pack a chunk of the operand that is kept wait for its event;
 * packing over one waits for the previous tile, which may still read that on the other queue. */
static clb_status get_packed(struct unified_run *run, clb_operand_role role,
                             const struct clb_rect *block, size_t slab, size_t index,
                             struct unified_slot **out)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct clb_pass pass = clb_gemm_pass(run->problem, plan->slab, slab);
    const struct clb_operand *operand = &run->operand[role][pass.term];
    bool kept = role == plan->kept;
    const struct clb_span all = clb_rect_span(block, role);
    size_t slots = plan->slots[role], turn = index % plan->queues, i0 = all.first;
    size_t chunk_number = i0 / plan->tile[role] * plan->slabs + slab;
    struct unified_slot *slot = *out =
        &run->slot[role][kept ? chunk_number % slots : turn * slots + slab % slots];
    if (slot->holds == chunk_number + 1)
        return CLB_OK;
    bool both = kept && plan->queues > 1, over = both && slot->holds != 0;
    clb_event_drop(&slot->ready);
    slot->holds = chunk_number + 1;
    slot->turn = turn;

    struct clb_piece piece[3];
    const size_t pieces =
        clb_operand_pieces(operand, clb_operand_packs_triangle(run->variant, operand), i0,
                           all.end - i0, pass.p0, pass.k, clb_gemm_unit(run->variant, role), piece);
    const size_t most = clb_gemm_widest(run->variant, role);
    clb_status status = expand(run, operand, &pass, slab, turn);
    for (size_t p = 0; p < pieces; p++) {
        for (size_t at = 0; at < piece[p].w && status == CLB_OK;
             at += clb_min(most, piece[p].w - at)) {
            const struct clb_piece part = {piece[p].kind, piece[p].i0 + at,
                                           clb_min(most, piece[p].w - at)};
            const struct clb_chunk chunk = piece_chunk(run, operand, &part, &pass, slab);
            struct clb_order order = {.queue = queue_of(run, turn)};
            if (over && p == 0 && at == 0)
                order.after = run->event[(index - 1) % plan->c_slots];
            if (both && p + 1 == pieces && at + part.w == piece[p].w)
                order.event = &slot->ready;
            status = clb_gemm_pack(run->queue_set, run->variant, role, &chunk, part.w, pass.k,
                                   mem_of_slot(run, role, slot),
                                   clb_packed_offset(run->variant, role, part.i0 - i0, pass.k),
                                   NULL, order);
        }
    }
    /* Flush, because the other queue waits for the packing. */
    if (status == CLB_OK && both)
        status = clb_queue_flush(queue_of(run, turn));
    return status;
}

/* ---- tiles ---- */

/* The product of packed chunks for a rectangle, in launches of at most clb_gemm_widest. */
static clb_status unified_multiply(struct unified_run *run, const struct unified_tile *tile,
                                   const struct clb_pass *pass, const struct clb_rect *rect,
                                   size_t turn, struct clb_product product, struct clb_order order)
{
    const struct clb_gemm_variant *variant = run->variant;
    size_t most_m = clb_gemm_widest(variant, CLB_OPERAND_A);
    size_t most_n = clb_gemm_widest(variant, CLB_OPERAND_B);
    clb_status status = CLB_OK;
    for (size_t j = 0; j < rect->cols && status == CLB_OK; j += clb_min(most_n, rect->cols - j)) {
        for (size_t i = 0; i < rect->rows && status == CLB_OK;
             i += clb_min(most_m, rect->rows - i)) {
            size_t row = rect->row + i, col = rect->col + j;
            product.m = clb_min(most_m, rect->rows - i);
            product.n = clb_min(most_n, rect->cols - j);
            product.part = run->part;
            product.parts = run->part != 0 ? mem_of(run, CLB_NEED_PARTS, turn) : NULL;
            if (!product.raw)
                product.a_offset =
                    clb_packed_offset(variant, CLB_OPERAND_A, row - tile->block.row, product.k);
            if (product.b_op_of_a != CLB_OP_N)
                product.b_offset = clb_packed_offset(variant, CLB_OPERAND_A, col, product.k);
            else if (product.ldb == 0)
                product.b_offset =
                    clb_packed_offset(variant, CLB_OPERAND_B, col - tile->block.col, product.k);
            product.c_offset = row - tile->rect.row + (col - tile->rect.col) * product.ldc;
            product.cut = clb_gemm_skip(variant, run->problem, pass,
                                        &(struct clb_rect){row, col, product.m, product.n});
            status = clb_gemm_multiply(run->queue_set, variant, &product, order);
            order.after = NULL;
        }
    }
    return status;
}

/* Let a product read the rows of A, or the columns of B, as they are. */
static void take_unpacked(const struct unified_run *run, clb_operand_role role,
                          const struct clb_rect *block, const struct clb_pass *pass,
                          struct clb_product *product)
{
    const bool of_a = role == CLB_OPERAND_A;
    const struct clb_chunk chunk =
        operand_chunk(&run->operand[role][pass->term], of_a ? block->row : block->col, pass->p0);
    if (of_a) {
        product->raw = product->b_depth_contiguous = true;
        product->a = chunk.mem;
        product->a_offset = chunk.offset;
        product->lda = chunk.ld;
    } else {
        product->b = chunk.mem;
        product->b_offset = chunk.offset;
        product->ldb = chunk.ld;
    }
}

/* Enqueue everything that computes a tile, and makes it readable for the CPU. */
static clb_status enqueue_tile(struct unified_run *run, size_t index)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct unified_tile *tile = &run->tile[index];
    const struct clb_rect *block = &tile->block;
    size_t slot = index % plan->c_slots, turn = index % plan->queues;
    size_t term_slabs = plan->slabs / run->problem->terms;
    struct clb_queue *queue = queue_of(run, turn);
    clb_operand_role other = plan->kept == CLB_OPERAND_A ? CLB_OPERAND_B : CLB_OPERAND_A;
    bool transposed = plan->b_op_of_a != CLB_OP_N;
    clb_status status = CLB_OK;
    for (size_t slab = 0; slab < plan->slabs && status == CLB_OK; slab++) {
        const struct clb_pass pass = clb_gemm_pass(run->problem, plan->slab, slab);
        const struct clb_rect rect =
            clb_gemm_support(run->variant, run->operand, &pass,
                             (const size_t[2]){block->row, block->col}, &tile->rect);
        struct unified_slot *packed[2] = {NULL, NULL}, *of_other_term = NULL;
        struct clb_product product = {.k = pass.k,
                                      .c = mem_of(run, CLB_NEED_C, slot),
                                      .ldc = plan->ldc,
                                      .b_op_of_a = plan->b_op_of_a,
                                      .add = slab > 0};
        if (rect.rows == 0 || rect.cols == 0)
            continue;
        /* B is read from the packed panels of the transposed term, the A of another term or of this
         * one. They are packed before this term's, so that a kernel has to wait for these alone. */
        if (transposed)
            status = get_packed(run, CLB_OPERAND_A, block,
                                plan->slabs - term_slabs - slab / term_slabs * term_slabs +
                                    slab % term_slabs,
                                index, &of_other_term);
        if (plan->raw)
            take_unpacked(run, CLB_OPERAND_A, block, &pass, &product);
        else if (status == CLB_OK)
            status = get_packed(run, plan->kept, block, slab, index, &packed[plan->kept]);
        if (plan->direct)
            take_unpacked(run, CLB_OPERAND_B, block, &pass, &product);
        else if (status == CLB_OK && !transposed)
            status = get_packed(run, other, block, slab, index, &packed[other]);
        if (status != CLB_OK)
            break;
        const struct unified_slot *kept = packed[plan->kept];
        bool waits = kept != NULL && kept->ready != NULL && kept->turn != turn;
        if (!plan->raw)
            product.a = mem_of_slot(run, CLB_OPERAND_A, packed[CLB_OPERAND_A]);
        if (!plan->direct)
            product.b = transposed ? mem_of_slot(run, CLB_OPERAND_A, of_other_term)
                                   : mem_of_slot(run, CLB_OPERAND_B, packed[CLB_OPERAND_B]);
        status = unified_multiply(
            run, tile, &pass, &rect, turn, product,
            (struct clb_order){.queue = queue, .after = waits ? kept->ready : NULL});
    }
    CLB_THEN(status, clb_queue_map_results(
                         queue, plan->need[CLB_NEED_C].buffer[slot],
                         plan->ldc * tile->rect.cols * clb_precision_size(run->variant->precision),
                         &run->results[slot], &run->mapped[slot], &run->event[slot]));
    return status == CLB_OK ? clb_queue_flush(queue) : status;
}

/* Unmap a tile, whose result is written already, for other tiles and later calls. */
static clb_status unmap_slot(struct unified_run *run, size_t slot)
{
    void *mapped = run->mapped[slot];
    run->mapped[slot] = NULL;
    return mapped == NULL ? CLB_OK
                          : clb_queue_unmap(queue_of(run, slot % run->plan.queues),
                                            mem_of(run, CLB_NEED_C, slot), mapped);
}

/* Wait until a tile is readable, and merge it. If no later tile is on its queue, finish the queue
 * first, which costs nothing then: some drivers report a command's failure only in clFinish. */
static clb_status write_tile(struct unified_run *run, size_t index,
                             struct clb_gemm_progress *progress)
{
    const struct clb_gemm_plan *plan = &run->plan;
    const struct unified_tile *tile = &run->tile[index];
    size_t slot = index % plan->c_slots, latest = clb_min(index + plan->c_slots, run->tiles) - 1;
    clb_status status = CLB_OK;
    if (index + plan->queues > latest)
        status = clb_queue_finish(queue_of(run, index % plan->queues));
    clb_status waited = clb_queue_set_await(run->queue_set, &run->event[slot]);
    if (status != CLB_OK || waited != CLB_OK)
        return status != CLB_OK ? status : waited;
    for (size_t p = tile->first_part; p < tile->first_part + tile->parts; p++) {
        const struct clb_rect *part = &progress->part[p];
        size_t at = part->row - tile->rect.row + (part->col - tile->rect.col) * plan->ldc;
        const char *from =
            (const char *)run->results[slot] + at * clb_precision_size(run->problem->precision);
        if (!clb_part_is_exact(run->problem, part, from, plan->ldc)) {
            run->out_of_range = true;
            continue;
        }
        clb_merge_part(run->problem, part, from, plan->ldc);
        progress->written[p] = true;
    }
    clb_progress_note((double)(tile->first_part + tile->parts) / (double)progress->parts);
    return unmap_slot(run, slot);
}

/* Columns of a part where C is an operand (trmm from the left): few, so that a part searched for
 * infinities and NaNs is still in the cache when it is merged. Rows would be short columns. */
#define PART_COLS ((size_t)32)

/* Trim a block to its columns' rows in the region, if any. Rows and columns of blocks begin and end
 * at multiples of the columns' width. */
static struct clb_rect trim(clb_region region, struct clb_rect block)
{
    size_t end = block.row + block.rows, col_end = block.col + block.cols;
    if (region == CLB_REGION_LOWER)
        block.row = clb_min(clb_max(block.row, block.col), end);
    else if (region == CLB_REGION_UPPER)
        end = clb_max(clb_min(end, col_end), block.row);
    block.rows = end - block.row;
    return block;
}

/* List the parts of a tile, or only count them (NULL); in a triangular region these are the square
 * on the diagonal and the rectangle beside it. */
static size_t list_parts(const struct clb_gemm *problem, const struct clb_rect *rect,
                         struct clb_rect *part)
{
    const clb_region region = problem->region;
    struct clb_rect unused[2], one = *rect;
    size_t count = 0, end = rect->row + rect->rows, col_end = rect->col + rect->cols;
    size_t width = clb_gemm_has_whole_columns(problem) ? PART_COLS : rect->cols;
    if (region == CLB_REGION_FULL || rect->row >= col_end || rect->col >= end) {
        for (; one.col < col_end; one.col += width, count++) {
            one.cols = clb_min(width, col_end - one.col);
            if (part != NULL)
                part[count] = one;
        }
        return count;
    }
    part = part != NULL ? part : unused;
    part[0] = (struct clb_rect){rect->col, rect->col, rect->cols, rect->cols};
    one.row = region == CLB_REGION_LOWER ? col_end : rect->row;
    one.rows = region == CLB_REGION_LOWER ? end - col_end : rect->col - rect->row;
    if (one.rows > 0)
        part[1] = one;
    return one.rows > 0 ? 2 : 1;
}

/* Make the tiles in the region of C, and the parts of the progress that belong to each. */
static clb_status make_tiles(struct unified_run *run, struct clb_gemm_progress *progress)
{
    size_t blocks = run->plan.tile_rows * run->plan.tile_cols, parts = 0;
    run->tile = calloc(blocks, sizeof *run->tile);
    if (run->tile == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < blocks; i++) {
        struct unified_tile *tile = &run->tile[run->tiles];
        tile->block = clb_gemm_tile(&run->plan, run->problem, i);
        tile->rect = trim(run->problem->region, tile->block);
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

/* ---- begin and end ---- */

static clb_status unified_get_memory(struct unified_run *run)
{
    struct clb_gemm_plan *plan = &run->plan;
    struct clb_need *need = plan->need;
    if (run->part != 0)
        need[CLB_NEED_PARTS] = (struct clb_need){
            CLB_MEMORY_DEVICE, plan->queues,
            clb_part_bytes(run->variant, run->part, clb_min(plan->tile[0], run->problem->m),
                           clb_min(plan->tile[1], run->problem->n),
                           clb_min(plan->slab, run->problem->k)),
            NULL};
    run->slot[0] =
        calloc(need[CLB_NEED_A].count + need[CLB_NEED_B].count + 1, sizeof *run->slot[0]);
    if (run->slot[0] == NULL)
        return CLB_ERR_NOMEM;
    run->slot[1] = run->slot[0] + need[CLB_NEED_A].count;
    return clb_needs_get(run->runtime, need, CLB_NEEDS);
}

static clb_status begin_run(struct unified_run *run, struct clb_gemm_progress *progress)
{
    clb_status status = clb_queue_set_acquire(run->runtime, &run->queue_set);
    if (status == CLB_OK && run->plan.queues > 1)
        status = clb_queue_set_open_queues(run->queue_set);
    CLB_THEN(status, open_operands(run));
    CLB_THEN(status, unified_get_memory(run));
    CLB_THEN(status, map_places(run));
    CLB_THEN(status, make_tiles(run, progress));
    /* No units are faulted in here, because the device's threads use all CPUs. The merge faults C
     * in; the call advises the system to use huge pages for that. */
    if (status == CLB_OK)
        (void)clb_gemm_prefault(run->problem, run->variant->tuning.value[CLB_PARAM_FAULT]);
    return status;
}

/* Wait for all commands and release everything. False when a command, or the wait, has failed. */
static bool unified_end_run(struct unified_run *run, bool enqueued)
{
    bool idle = true;
    enqueued = enqueued || run->place != NULL;
    for (size_t i = 0; enqueued && i < run->plan.c_slots; i++)
        idle = unmap_slot(run, i) == CLB_OK && idle;
    for (size_t i = 0; run->place != NULL && i < run->plan.need[CLB_NEED_EXPANDED].count; i++)
        idle = (run->place[i] == NULL ||
                clb_queue_unmap(run->queue_set->queue, mem_of(run, CLB_NEED_EXPANDED, i),
                                run->place[i]) == CLB_OK) &&
               idle;
    idle = (!enqueued || clb_queue_set_settle(run->queue_set)) && idle;
    bool good = !enqueued || clb_queue_set_check(run->queue_set) == CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(run->wrapped); i++) {
        if (idle && run->wrapped[i] != NULL)
            clb_mem_release(run->wrapped[i]);
    }
    size_t slots = run->plan.need[CLB_NEED_A].count + run->plan.need[CLB_NEED_B].count;
    for (size_t i = 0; run->slot[0] != NULL && i < slots; i++)
        clb_event_drop(&run->slot[0][i].ready);
    clb_needs_end(run->runtime, run->plan.need, CLB_NEEDS, idle);
    clb_event_drop(&run->event[0]);
    clb_event_drop(&run->event[1]);
    free(run->place);
    free(run->slot[0]);
    free(run->tile);
    clb_queue_set_end(run->queue_set, idle);
    return good;
}

/* Keeps c_slots tiles in flight: enqueues a tile, then merges the oldest. */
clb_status clb_gemm_run_unified(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct unified_run run = {.runtime = runtime, .variant = variant, .problem = problem};
    progress->kernel = variant->name;
    clb_status status =
        clb_gemm_make_plan(variant, runtime->device.units, problem, clb_memory_available(runtime),
                           runtime->device.max_alloc, &run.plan);
    /* Streamed operands are expanded a piece at a time. */
    if (status != CLB_OK)
        return clb_gemm_expanded_bytes(variant, problem, 1) > 0 ? CLB_ERR_UNSUPPORTED : status;
    run.part = clb_part_depth(variant, runtime->device.units, problem->m, problem->n,
                              clb_min(run.plan.slab, problem->k));
    status = begin_run(&run, progress);
    bool enqueued = status == CLB_OK;
    size_t ahead = run.plan.c_slots - 1;
    for (size_t step = 0; step < run.tiles + ahead && status == CLB_OK; step++) {
        if (step < run.tiles)
            status = enqueue_tile(&run, step);
        if (status == CLB_OK && step >= ahead)
            status = write_tile(&run, step - ahead, progress);
    }
    if (status == CLB_OK && run.out_of_range)
        status = CLB_ERR_RANGE;
    return unified_end_run(&run, enqueued) ? status : clb_gemm_distrust(problem, progress);
}
