/* The plan of a GEMM on a device that shares the host's memory: tiles of C and slabs of the
 * depth. */
#include "structure.h"

/* Tiles and slabs are multiples of the kernel's own, so that only the last ones have edges, and
 * nearly equal in size, so that the last one is not too small. */
static size_t even_tile(size_t extent, size_t wanted, size_t unit)
{
    size_t tile = clb_max(clb_round_up(wanted, unit), unit);
    size_t count = clb_div_up(extent, tile);
    return clb_round_up(clb_div_up(extent, count), unit);
}

/* The most elements of an operand's width that are expanded at once, where it can't be packed as it
 * is. */
#define MIXED ((size_t)256)

static void size_plan(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                      struct clb_gemm_plan *plan)
{
    size_t element = clb_precision_size(variant->precision);
    size_t line = clb_max(128 / element, 1);
    plan->tile_rows = clb_div_up(problem->m, plan->tile_m);
    plan->tile_cols = clb_div_up(problem->n, plan->tile_n);
    plan->slabs = clb_gemm_passes(problem, plan->slab);
    plan->ldc = clb_round_up(clb_min(plan->tile_m, problem->m), line);
    size_t depth = clb_min(plan->slab, problem->k);
    plan->a_bytes =
        clb_packed_bytes(variant, CLB_OPERAND_A, clb_min(plan->tile_m, problem->m), depth);
    plan->b_bytes =
        clb_packed_bytes(variant, CLB_OPERAND_B, clb_min(plan->tile_n, problem->n), depth);
    plan->c_bytes = plan->ldc * clb_min(plan->tile_n, problem->n) * element;
    plan->c_slots = clb_min(plan->tile_rows * plan->tile_cols, 2);
    if (clb_gemm_is_expanded(variant, problem)) {
        size_t widest = clb_min(clb_max(plan->tile_m, plan->tile_n), MIXED);
        plan->mixed_w = clb_round_up(widest, clb_gemm_square_unit(variant));
        plan->mixed_bytes = plan->mixed_w * depth * element;
    }
}

/* Packing B pays only when every packed element is multiplied with many rows of A. */
static bool plan_is_direct(const struct clb_gemm_variant *variant, const struct clb_gemm *problem)
{
    return variant->family->has_direct && problem->transb == CLB_OP_N && problem->level3 == NULL &&
           problem->m <= variant->tuning.value[CLB_PARAM_DIRECT];
}

/* The op with which B is op(A) in every term, A being the A of the transposed term, so that only A
 * has to be packed; CLB_OP_N where there is none. The packed panels of A must contain all of B and
 * must all be kept. */
static clb_op find_b_of_a(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                          const struct clb_gemm_plan *plan)
{
    size_t terms = clb_gemm_terms(problem);
    bool adjoint = false;
    if (clb_gemm_region(problem) == CLB_REGION_FULL || !clb_gemm_shares_panels(variant) ||
        plan->kept != CLB_OPERAND_A || plan->tile_rows > 1 ||
        (terms > 1 && plan->a_slots < plan->slabs))
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

/* Bytes of the buffer through which chunks of an operand are copied that is too large for one
 * buffer over the caller's memory. */
static uint64_t raw_bytes(const struct clb_gemm *problem, clb_operand_role role, size_t chunk,
                          uint64_t max_alloc)
{
    const struct clb_operand operand = clb_operand_describe(problem, role);
    size_t width = role == CLB_OPERAND_A ? problem->m : problem->n;
    size_t columns = operand.depth_contiguous ? width : problem->k;
    bool in_place = columns <= max_alloc / (clb_max(operand.ld, 1) * operand.element);
    return in_place ? 0 : clb_buffer_rounded(chunk);
}

/* Count the bytes for a number of slots of the operand that is kept; true when they fit. Chunks of
 * the other operand are kept where all tiles share them; otherwise there is one slot, which stays
 * in the cache. */
static bool plan_fits(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                      struct clb_gemm_plan *plan, size_t slots, uint64_t budget, uint64_t max_alloc)
{
    bool a_kept = !clb_gemm_has_whole_rows(problem);
    size_t others = a_kept && plan->tile_cols == 1 ? slots : 1;
    plan->kept = a_kept ? CLB_OPERAND_A : CLB_OPERAND_B;
    plan->a_slots = a_kept ? slots : others;
    plan->b_op_of_a = find_b_of_a(variant, problem, plan);
    plan->b_slots = plan->direct || plan->b_op_of_a != CLB_OP_N ? 0 : a_kept ? others : slots;
    plan->queues = slots == plan->slabs ? plan->c_slots : 1;
    size_t own_a = plan->kept == CLB_OPERAND_B ? plan->queues : 1;
    size_t own_b = plan->kept == CLB_OPERAND_A ? plan->queues : 1;
    plan->bytes =
        (uint64_t)(own_a * plan->a_slots) * clb_buffer_rounded(plan->a_bytes) +
        (uint64_t)(own_b * plan->b_slots) * clb_buffer_rounded(plan->b_bytes) +
        raw_bytes(problem, CLB_OPERAND_A, plan->a_bytes, max_alloc) +
        raw_bytes(problem, CLB_OPERAND_B, plan->b_bytes, max_alloc) +
        (plan->mixed_bytes > 0 ? plan->queues * clb_buffer_rounded(plan->mixed_bytes) : 0) +
        (uint64_t)plan->c_slots * clb_buffer_rounded(plan->c_bytes);
    size_t largest = clb_max(clb_max(plan->a_bytes, plan->b_bytes), plan->c_bytes);
    return plan->bytes <= budget && largest <= max_alloc - max_alloc / 8;
}

/* The least rows of A in a block: with fewer, packing B again for every block costs too much. */
#define SMALLEST_BLOCK ((size_t)512)
/* Where tiles are all rows or columns of C, the other operand is packed for each tile: tiles that
 * are so many times wider are worth their memory. */
#define WIDER ((size_t)4)
/* Shares of the columns of a triangular region, whose tiles on the diagonal are computed in
 * full. */
#define REGION_SHARES ((size_t)8)

/* The units of tiles, and the sides of tiles that must not be divided. */
struct tile_limits {
    size_t unit_m, unit_n;
    bool square, whole_m, whole_n; /* square: rows are a multiple of the columns */
    size_t tile_m, tile_n;         /* wanted */
};

/* On CPUs tiles of whole columns or rows are half as wide where the second-level cache holds half a
 * tile (gemm.cached_c) and not a whole one. */
static bool halves_fit(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                       size_t width)
{
    size_t line = clb_gemm_has_whole_columns(problem) ? problem->m : problem->n;
    size_t bytes = variant->tuning.value[CLB_PARAM_CACHED_C];
    size_t most = bytes / clb_precision_size(variant->precision) / clb_max(line, 1);
    return variant->family->has_skip && width > most && width / 2 <= most;
}

static struct tile_limits get_limits(const struct clb_gemm_variant *variant,
                                     const struct clb_gemm *problem)
{
    const size_t *value = variant->tuning.value;
    struct tile_limits limits = {.unit_m = clb_gemm_unit(variant, CLB_OPERAND_A),
                                 .unit_n = clb_gemm_unit(variant, CLB_OPERAND_B),
                                 .square = clb_gemm_region(problem) != CLB_REGION_FULL,
                                 .whole_m = clb_gemm_has_whole_columns(problem),
                                 .whole_n = clb_gemm_has_whole_rows(problem),
                                 .tile_m = value[CLB_PARAM_TM],
                                 .tile_n = value[CLB_PARAM_TN]};
    if (limits.square) {
        limits.unit_m = limits.unit_n = clb_gemm_square_unit(variant);
        if (!variant->family->has_skip)
            limits.tile_n = clb_min(limits.tile_n, clb_div_up(problem->n, REGION_SHARES));
    }
    if ((limits.whole_m || limits.whole_n) && halves_fit(variant, problem, limits.tile_n))
        limits.tile_n /= 2;
    if (limits.whole_n)
        limits.tile_m = limits.tile_n;
    return limits;
}

static void set_tiles(const struct clb_gemm *problem, const struct tile_limits *limits,
                      size_t wanted_m, size_t wanted_n, struct clb_gemm_plan *plan)
{
    plan->tile_n = limits->whole_n ? clb_round_up(problem->n, limits->unit_n)
                                   : even_tile(problem->n, wanted_n, limits->unit_n);
    plan->tile_m = limits->whole_m ? clb_round_up(problem->m, limits->unit_m)
                                   : even_tile(problem->m, wanted_m,
                                               limits->square ? plan->tile_n : limits->unit_m);
}

/* Use the largest block of rows of A whose chunks, and those of one column of tiles of B, fit into
 * the budget; otherwise one chunk of each at a time, with smaller and smaller tiles. */
static bool plan_within(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                        uint64_t budget, uint64_t max_alloc, struct clb_gemm_plan *plan)
{
    const struct tile_limits limits = get_limits(variant, problem);
    size_t wanted_m = limits.tile_m, wanted_n = limits.tile_n;
    do {
        set_tiles(problem, &limits, wanted_m, wanted_n, plan);
        size_plan(variant, problem, plan);
        if (plan_fits(variant, problem, plan, plan->slabs, budget, max_alloc))
            return true;
        wanted_m = plan->tile_m / 2;
    } while (wanted_m >= SMALLEST_BLOCK && !limits.whole_m && !limits.whole_n);
    wanted_m = limits.tile_m * (limits.whole_n ? WIDER : 1);
    wanted_n *= limits.whole_m ? WIDER : 1;
    for (;;) {
        set_tiles(problem, &limits, wanted_m, wanted_n, plan);
        size_plan(variant, problem, plan);
        if (plan_fits(variant, problem, plan, 1, budget, max_alloc))
            return true;
        /* Halve the longer side that the kernel's own tile still allows to be halved. */
        bool long_m =
            !limits.whole_m && plan->tile_m > (limits.square ? plan->tile_n : limits.unit_m);
        bool long_n = !limits.whole_n && plan->tile_n > limits.unit_n;
        if (!long_m && !long_n)
            return false;
        if (long_m && (!long_n || plan->tile_m >= plan->tile_n))
            wanted_m = plan->tile_m / 2;
        else
            wanted_n = plan->tile_n / 2;
    }
}

/* The device's memory is the host's, and the program needs it too: prefer a plan with 64 MiB and a
 * tenth of the operands. */
static uint64_t modest_budget(const struct clb_gemm *problem)
{
    double m = (double)problem->m, n = (double)problem->n, k = (double)problem->k;
    double bytes = (m * k + k * n + m * n) * (double)clb_precision_size(problem->precision);
    return ((uint64_t)64 << 20) + (uint64_t)(bytes / 10);
}

clb_status clb_gemm_make_plan(const struct clb_gemm_variant *variant,
                              const struct clb_gemm *problem, uint64_t available,
                              uint64_t max_alloc, struct clb_gemm_plan *plan)
{
    uint64_t modest = modest_budget(problem);
    *plan =
        (struct clb_gemm_plan){.slab = even_tile(problem->k, clb_gemm_slab(variant, problem, true),
                                                 clb_gemm_depth_unit(variant)),
                               .direct = plan_is_direct(variant, problem)};
    if ((modest < available && plan_within(variant, problem, modest, max_alloc, plan)) ||
        plan_within(variant, problem, available, max_alloc, plan))
        return CLB_OK;
    return CLB_ERR_NOMEM;
}

struct clb_rect clb_gemm_tile(const struct clb_gemm_plan *plan, const struct clb_gemm *problem,
                              size_t index)
{
    struct clb_rect rect = {.row = index / plan->tile_cols * plan->tile_m,
                            .col = index % plan->tile_cols * plan->tile_n};
    rect.rows = clb_min(plan->tile_m, problem->m - rect.row);
    rect.cols = clb_min(plan->tile_n, problem->n - rect.col);
    return rect;
}

struct clb_gemm clb_gemm_part(const struct clb_gemm *problem, const struct clb_rect *rect)
{
    struct clb_gemm part = *problem;
    size_t element = clb_precision_size(problem->precision);
    size_t a = rect->row * (problem->transa == CLB_OP_N ? 1 : problem->lda);
    size_t b = rect->col * (problem->transb == CLB_OP_N ? problem->ldb : 1);
    part.m = rect->rows;
    part.n = rect->cols;
    part.a = (const char *)problem->a + a * element;
    part.b = (const char *)problem->b + b * element;
    part.c = (char *)problem->c + (rect->row + rect->col * problem->ldc) * element;
    return part;
}
