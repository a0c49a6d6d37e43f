/* How a GEMM is cut into tiles of C and slabs of the depth where the device shares the host's
 * memory. */
#include "algo.h"

/* Tiles and slabs are multiples of the kernel's own, so that only the last ones have edges, and of
 * equal size, so that the last one is not a sliver. */
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
    size_t line = clb_max(128 / element, 1);
    plan->tile_rows = clb_div_up(problem->m, plan->tile_m);
    plan->tile_cols = clb_div_up(problem->n, plan->tile_n);
    plan->slabs = clb_div_up(problem->k, plan->slab);
    plan->ldc = clb_round_up(clb_min(plan->tile_m, problem->m), line);
    size_t depth = clb_min(plan->slab, problem->k);
    plan->a_bytes =
        clb_packed_bytes(variant, CLB_OPERAND_A, clb_min(plan->tile_m, problem->m), depth);
    plan->b_bytes =
        clb_packed_bytes(variant, CLB_OPERAND_B, clb_min(plan->tile_n, problem->n), depth);
    plan->c_bytes = plan->ldc * clb_min(plan->tile_n, problem->n) * element;
    plan->c_slots = clb_min(plan->tile_rows * plan->tile_cols, 2);
}

/* Packing B is worth it when every packed element meets many rows of A. */
static bool is_direct(const struct clb_gemm_variant *variant, const struct clb_gemm *problem)
{
    return variant->family->has_direct && problem->transb == CLB_OP_N &&
           problem->m <= variant->tuning.value[CLB_PARAM_DIRECT];
}

/* Bytes of the raw chunk through which an operand is copied that is larger than a buffer may be. */
static uint64_t raw_bytes(const struct clb_gemm *problem, clb_operand_role role, size_t chunk,
                          uint64_t max_alloc)
{
    const struct clb_operand operand = clb_operand_describe(problem, role);
    size_t width = role == CLB_OPERAND_A ? problem->m : problem->n;
    size_t columns = operand.depth_contiguous ? width : problem->k;
    bool in_place = columns <= max_alloc / (clb_max(operand.ld, 1) * operand.element);
    return in_place ? 0 : clb_buffer_rounded(chunk);
}

/* Count the bytes for a choice of slots. */
static bool fits(const struct clb_gemm *problem, struct clb_gemm_plan *plan, size_t a_slots,
                 size_t b_slots, uint64_t budget, uint64_t max_alloc)
{
    plan->a_slots = a_slots;
    plan->b_slots = plan->direct ? 0 : b_slots;
    plan->queues = a_slots == plan->slabs ? plan->c_slots : 1;
    plan->bytes = (uint64_t)a_slots * clb_buffer_rounded(plan->a_bytes) +
                  (uint64_t)(plan->queues * plan->b_slots) * clb_buffer_rounded(plan->b_bytes) +
                  raw_bytes(problem, CLB_OPERAND_A, plan->a_bytes, max_alloc) +
                  raw_bytes(problem, CLB_OPERAND_B, plan->b_bytes, max_alloc) +
                  (uint64_t)plan->c_slots * clb_buffer_rounded(plan->c_bytes);
    size_t largest = clb_max(clb_max(plan->a_bytes, plan->b_bytes), plan->c_bytes);
    return plan->bytes <= budget && largest <= max_alloc - max_alloc / 8;
}

/* Rows of A below which packing B again for every block of them costs too much. */
#define SMALLEST_BLOCK ((size_t)512)

/* The largest block of rows of A whose chunks, and a column of B's, fit into the budget; otherwise
 * one chunk of each at a time, with smaller and smaller tiles. */
static bool plan_within(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                        uint64_t budget, uint64_t max_alloc, struct clb_gemm_plan *plan)
{
    const size_t *value = variant->tuning.value;
    size_t unit_m = clb_gemm_unit(variant, CLB_OPERAND_A);
    size_t unit_n = clb_gemm_unit(variant, CLB_OPERAND_B);
    size_t wanted_m = value[CLB_PARAM_TILE_M], wanted_n = value[CLB_PARAM_TILE_N];
    plan->tile_n = even_tile(problem->n, wanted_n, unit_n);
    do {
        plan->tile_m = even_tile(problem->m, wanted_m, unit_m);
        size_plan(variant, problem, plan);
        if (fits(problem, plan, plan->slabs, plan->slabs, budget, max_alloc))
            return true;
        wanted_m = plan->tile_m / 2;
    } while (wanted_m >= SMALLEST_BLOCK);
    for (wanted_m = value[CLB_PARAM_TILE_M];;) {
        plan->tile_m = even_tile(problem->m, wanted_m, unit_m);
        plan->tile_n = even_tile(problem->n, wanted_n, unit_n);
        size_plan(variant, problem, plan);
        if (fits(problem, plan, 1, 1, budget, max_alloc))
            return true;
        /* Halve the longer side that the kernel's own tile still allows to be halved. */
        bool long_m = plan->tile_m > unit_m, long_n = plan->tile_n > unit_n;
        if (!long_m && !long_n)
            return false;
        if (long_m && (!long_n || plan->tile_m >= plan->tile_n))
            wanted_m = plan->tile_m / 2;
        else
            wanted_n = plan->tile_n / 2;
    }
}

/* The memory is the program's: 64 MiB and a tenth of the operands should do. */
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
        (struct clb_gemm_plan){.slab = even_tile(problem->k, variant->tuning.value[CLB_PARAM_SLAB],
                                                 clb_gemm_depth_unit(variant)),
                               .direct = is_direct(variant, problem)};
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
