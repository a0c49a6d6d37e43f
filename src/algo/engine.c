/* What a run needs to compute on device matrices: a queue, programs, workspace. */
#include "dmat.h"

#include "kernels.h"

#include <stdio.h>

size_t clb_dmat_ld(size_t rows, size_t element)
{
    size_t line = clb_max(128 / element, 1), ld = clb_round_up(rows, line);
    /* Columns a multiple of 1 KiB apart fall into every eighth set of a cache or fewer. */
    return ld * element % 1024 == 0 ? ld + line : ld;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* A group has one work-item on CPUs. Elsewhere a tile of right-hand sides and a sub-block of the
 * triangle are in less than 48 KiB of local memory; half as large a block fits 32 KiB, and smaller
 * devices get what fits them. */
#define GROUP       ((size_t)128)
#define LEAST_GROUP ((size_t)32) /* as many as right-hand sides of a tile */
#define CPU_BLOCK   ((size_t)128)
#define GPU_BLOCK   ((size_t)128)
#define GPU_BLOCK_Z ((size_t)64)
#define GPU_MEMORY  ((uint64_t)48 << 10)
#define GPU_STEP    ((size_t)16)
#define BLOCK_UNIT  ((size_t)8)

/* As the arrays of clb_trsm_solve in kernels/trsm.cl: a block's rows of right-hand sides, and a
 * sub-block. */
static uint64_t solve_memory(clb_precision precision, size_t block)
{
    enum { PITCH = 34 };
    size_t sub = block % 32 == 0 && precision != CLB_Z ? 32 : block % 16 == 0 ? 16 : 8;
    return (block * PITCH + sub * sub) * clb_precision_size(precision);
}

static size_t largest_block(const struct clb_engine *engine, bool cpu)
{
    clb_precision precision = engine->variant->precision;
    uint64_t memory = engine->runtime->device.local_memory;
    size_t block = precision == CLB_Z ? GPU_BLOCK_Z : GPU_BLOCK;
    if (cpu)
        return CLB_MAX_BLOCK;
    if (memory < GPU_MEMORY)
        block /= 2;
    while (block > GPU_STEP && solve_memory(precision, block) > memory)
        block -= GPU_STEP;
    return block;
}

static size_t largest_group(const struct clb_engine *engine)
{
    size_t group = GROUP;
    while (group > LEAST_GROUP && group > engine->runtime->device.max_group)
        group /= 2;
    return group;
}

static clb_status get_programs(struct clb_engine *engine)
{
    clb_precision precision = engine->variant->precision;
    bool cpu = engine->variant->tuning.family == CLB_FAMILY_CPU;
    size_t wanted = engine->variant->tuning.value[CLB_PARAM_TRSM_NB];
    char options[120];
    size_t most = largest_block(engine, cpu);
    if (wanted == 0)
        wanted = cpu ? CPU_BLOCK : most;
    engine->block = clb_round_up(clb_min(wanted, most), BLOCK_UNIT);
    size_t group = largest_group(engine);
    engine->group = cpu ? 1 : group;
    engine->groups = clb_max(64, 8 * (size_t)engine->runtime->device.units);
    snprintf(options, sizeof options,
             "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_CPU=%d -DCLB_NB=%zu -DCLB_WG=%zu",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, cpu, engine->block, group);
    clb_status status = clb_program_get(engine->runtime, &clb_kernel_trsm, options, &engine->trsm);
    if (status != CLB_OK)
        return status;
    snprintf(options, sizeof options, "-DCLB_SIZE=%zu -DCLB_CPU=%d -DCLB_MOVES=%zu -DCLB_WG=%zu",
             clb_precision_size(precision), cpu, 2 * CLB_MAX_SWAPS, group);
    return clb_program_get(engine->runtime, &clb_kernel_laswp, options, &engine->laswp);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Columns of B that are packed at once where memory is the program's. */
#define CPU_COLUMNS ((size_t)1024)

static void set_cuts(struct clb_engine *engine)
{
    const struct clb_gemm_variant *variant = engine->variant;
    engine->cut_m = clb_gemm_widest(variant, CLB_OPERAND_A);
    engine->cut_n = clb_gemm_widest(variant, CLB_OPERAND_B);
    if (engine->runtime->device.unified)
        engine->cut_n = clb_min(engine->cut_n,
                                clb_round_up(CPU_COLUMNS, clb_gemm_unit(variant, CLB_OPERAND_B)));
    engine->cut_k = clb_round_up(clb_max(variant->tuning.value[CLB_PARAM_SLAB], 1),
                                 clb_gemm_depth_unit(variant));
}

static size_t operand_bytes(const struct clb_engine *engine, clb_operand_role role, size_t w,
                            size_t k)
{
    size_t cut = role == CLB_OPERAND_B ? engine->cut_n : w;
    return clb_packed_bytes(engine->variant, role, clb_min(w, cut), clb_min(k, engine->cut_k));
}

/* For updates of either shape. */
static clb_status get_operands(struct clb_engine *engine, const struct clb_engine_limits *limits)
{
    size_t a = operand_bytes(engine, CLB_OPERAND_A, limits->m, limits->k);
    size_t b = operand_bytes(engine, CLB_OPERAND_B, limits->n, limits->k);
    a = clb_max(a, operand_bytes(engine, CLB_OPERAND_A, limits->other_m, limits->other_k));
    b = clb_max(b, operand_bytes(engine, CLB_OPERAND_B, limits->other_n, limits->other_k));
    clb_status status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE, a, &engine->packed_a);
    if (status == CLB_OK)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE, b, &engine->packed_b);
    return status;
}

static clb_status get_memory(struct clb_engine *engine, const struct clb_engine_limits *limits)
{
    const struct clb_gemm_variant *variant = engine->variant;
    size_t k = clb_min(limits->k, engine->cut_k);
    size_t moves = 2 * CLB_MAX_SWAPS * sizeof(struct clb_move);
    size_t blocks = clb_div_up(limits->triangle, engine->block);
    size_t triangle =
        blocks * engine->block * engine->block * clb_precision_size(variant->precision);
    clb_status status = CLB_OK;
    if (limits->m > 0 && limits->n > 0 && k > 0)
        status = get_operands(engine, limits);
    if (status == CLB_OK && limits->kept_m > 0)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE,
                                clb_packed_bytes(variant, CLB_OPERAND_A, limits->kept_m, k),
                                &engine->kept_a);
    if (status == CLB_OK && triangle > 0)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE, triangle, &engine->triangles);
    if (status == CLB_OK)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE, moves, &engine->moves);
    if (status == CLB_OK)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_HOST, moves, &engine->moves_host);
    return status;
}

/* ---- open and close -------------------------------------------------------------------------- */

clb_status clb_engine_open_unchecked(struct clb_engine *engine, struct clb_runtime *runtime,
                                     const struct clb_gemm_variant *variant,
                                     const struct clb_engine_limits *limits)
{
    *engine = (struct clb_engine){.runtime = runtime, .variant = variant};
    clb_status status = get_programs(engine);
    set_cuts(engine);
    if (status == CLB_OK)
        status = clb_lane_acquire(runtime, &engine->lane);
    if (status == CLB_OK) {
        engine->queue = engine->lane->queue;
        status = get_memory(engine, limits);
    }
    if (status != CLB_OK)
        clb_engine_close(engine, true);
    return status;
}

static const struct clb_gemm_variant *plain_of(const struct clb_gemm_variant *variant)
{
    return clb_gemm_is_split(variant) ? variant->plain : variant;
}

clb_status clb_engine_prepare(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct clb_gemm_variant *plain = plain_of(variant);
    return plain == NULL ? CLB_ERR_UNSUPPORTED : clb_engine_check(runtime, plain);
}

clb_status clb_engine_open(struct clb_engine *engine, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant,
                           const struct clb_engine_limits *limits)
{
    *engine = (struct clb_engine){0};
    clb_status status = clb_engine_prepare(runtime, variant);
    if (status != CLB_OK)
        return status;
    return clb_engine_open_unchecked(engine, runtime, plain_of(variant), limits);
}

bool clb_engine_finish(struct clb_engine *engine)
{
    return engine->lane == NULL || clb_lane_settle(engine->lane);
}

void clb_engine_close(struct clb_engine *engine, bool idle)
{
    struct clb_buffer *const buffers[] = {engine->packed_a,  engine->packed_b, engine->kept_a,
                                          engine->triangles, engine->moves,    engine->moves_host};
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++)
        clb_buffer_end(engine->runtime, buffers[i], idle);
    if (engine->lane != NULL && idle)
        clb_lane_release(engine->lane);
    else if (engine->lane != NULL)
        clb_lane_discard(engine->lane);
    *engine = (struct clb_engine){0};
}
