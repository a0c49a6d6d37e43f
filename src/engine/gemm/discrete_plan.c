/* SPDX-License-Identifier: BSD-3-Clause
 * The plan of a product on a device with its own memory, and its loads and strips (discrete.h). */
#include "discrete.h"

#include <stdlib.h>

/* ---- the plan ---- */

/* Bands: about STEPS of each operand, so that the device is busy soon, unless strips would be too
 * small for the device, buffers too large, or pieces of columns too short to copy fast. */
#define STEPS       16
#define STEPS_SHORT 10

/* Raw buffers let uploads run ahead of the kernels: as many as fit into an eighth of the available
 * memory. With two, uploads wait for kernels half of the time. */
#define RAW_SLOTS_MIN  ((size_t)2)
#define RAW_SLOTS_GOOD ((size_t)4)
#define RAW_SLOTS_MAX  ((size_t)64)

/* Buffers for strips where C is not kept on the device; more where strips are divided. */
#define STRIP_SLOTS_MAX ((size_t)8)
#define CUT_SLOTS_MAX   ((size_t)24)

/* Devices with fewer compute units than these, as CPUs have, get undivided strips. */
#define MANY_UNITS ((size_t)16)

/* Most blocks along one side of C. */
#define MAX_BLOCKS 64

/* Where the depth is small most of the time is results', which are copied faster in long columns.
 * So a band of A may have as many rows as are loaded in the time of a piece. */
#define TALL_BAND   ((size_t)4 << 20)
#define TALL_COLUMN ((size_t)32 << 10)

static size_t tall_band(const struct clb_gemm *problem)
{
    if (problem->region != CLB_REGION_FULL)
        return 0;
    return clb_min(TALL_BAND / clb_max(problem->k, 1), TALL_COLUMN) /
           clb_precision_size(problem->precision);
}

/* The length of `count` equal parts. */
static size_t block_of(size_t extent, size_t count, size_t unit)
{
    return clb_round_up(clb_div_up(extent, count), unit);
}

/* The width of bands of an operand; of A not less than tall_band. Strips run one after the other,
 * each at least as long as one tile takes: so a strip along all of C has a tile for each unit. */
static size_t band(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                   clb_operand_role role, size_t units, const size_t unit[2])
{
    const size_t *value = variant->tuning.value;
    const bool is_a = role == CLB_OPERAND_A;
    size_t extent = is_a ? problem->m : problem->n, other = is_a ? problem->n : problem->m;
    size_t override = value[is_a ? CLB_PARAM_BAND_M : CLB_PARAM_BAND_N];
    bool short_pieces = is_a == ((is_a ? problem->a[0].op : problem->b[0].op) == CLB_OP_N);
    size_t filling = units * unit[0] * unit[1] / clb_max(other, 1);
    size_t wanted = clb_min(clb_max(clb_div_up(extent, short_pieces ? STEPS_SHORT : STEPS),
                                    clb_max(value[CLB_PARAM_BAND_MIN], filling)),
                            value[CLB_PARAM_BAND_MAX]);
    wanted = clb_max(wanted, is_a ? tall_band(problem) : 0);
    return override != 0 ? clb_round_up(override, unit[role])
                         : block_of(extent, clb_div_up(extent, wanted), unit[role]);
}

#define PIECE        ((size_t)4 << 20)
#define PIECE_SMALL  ((size_t)2 << 20)
#define PIECE_TINY   ((size_t)1 << 20)
#define PIECES_SMALL ((size_t)32)
#define PIECES_LARGE ((size_t)256)
#define PIECE_MIN    ((size_t)64 << 10)

#define BYTES_SMALL ((size_t)128 << 20)
#define FEW_THREADS ((size_t)8)

/* Small products have fewer staging threads, which get into each other's way in the driver. */
static size_t staging_threads(const size_t *value, double bytes)
{
    const size_t few = bytes < (double)BYTES_SMALL ? FEW_THREADS : CLB_TRANSFER_THREADS;
    return clb_min(clb_max(value[CLB_PARAM_THREADS], few), CLB_MAX_WORKERS);
}

/* Slots take at most a quarter of the available memory. Pieces of 4 MiB move at the link's full
 * rate, of 1 MiB at three quarters of it. Where there are few pieces a late one costs more than
 * that, so there are some hundreds if possible. Products of less than 64 MiB have pieces of 1
 * MiB, so that no thread copies for long before the first transfer. */
static size_t piece(double all, uint64_t available, size_t staging_threads, size_t override)
{
    size_t bytes = all < (double)(PIECES_SMALL * PIECE_SMALL) ? PIECE_TINY
                   : all < (double)(PIECES_LARGE * PIECE)     ? PIECE_SMALL
                                                              : PIECE;
    if (override != 0)
        bytes = clb_round_up(override, PIECE_MIN);
    while (bytes > PIECE_MIN && (uint64_t)staging_threads * 4 * bytes > available / 4)
        bytes /= 2;
    return bytes;
}

/* Columns begin on a boundary that suits vector accesses and DMA. */
size_t clb_strip_ld(size_t rows, size_t element)
{
    return clb_round_up(rows, 128 / element);
}

/* Bytes of the largest strip: of `strip_tiles` tiles, or as wide as a band, long as the block. */
static size_t strip_bytes(const struct clb_discrete_plan *plan, size_t m, size_t n, size_t band_m,
                          size_t band_n, size_t element)
{
    if (plan->strip[0] != 0)
        return clb_strip_ld(clb_min(plan->strip[0], m), element) * clb_min(plan->strip[1], n) *
               element;
    size_t whole =
        clb_max(clb_strip_ld(band_m, element) * n, clb_strip_ld(m, element) * band_n) * element;
    size_t across = clb_max(clb_div_up(band_m, plan->unit[0]), clb_div_up(band_n, plan->unit[1]));
    size_t cut = clb_max(plan->strip_tiles, across) * clb_strip_ld(plan->unit[0], element) *
                 plan->unit[1] * element;
    return plan->strip_tiles != 0 ? clb_min(whole, cut) : whole;
}

struct plan_limits {
    uint64_t available, max_alloc;
    size_t raw_slots; /* the minimum */
};

/* Set the sizes of the buffers for the plan's block size; false when they don't fit. */
static bool size_blocks(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                        const struct plan_limits *limits, struct clb_discrete_plan *plan)
{
    size_t element = clb_precision_size(variant->precision);
    size_t m = clb_min(plan->block[0], problem->m), n = clb_min(plan->block[1], problem->n);
    size_t band_m = clb_min(plan->band[0], m), band_n = clb_min(plan->band[1], n);
    size_t widest = clb_max(clb_max(band_m, band_n), plan->slab);
    plan->packed_bytes[0] = clb_packed_bytes(variant, CLB_OPERAND_A, m, plan->slab);
    plan->packed_bytes[1] = clb_packed_bytes(variant, CLB_OPERAND_B, n, plan->slab);
    plan->raw_bytes = clb_max(band_m, band_n) * plan->slab * element;
    plan->strip_bytes = strip_bytes(plan, m, n, band_m, band_n, element);
    /* A column of a strip or of a load must fit into one piece. */
    if (clb_max(clb_strip_ld(m, element), widest) * element > plan->piece_bytes)
        return false;
    size_t largest = clb_max(clb_max(plan->packed_bytes[0], plan->packed_bytes[1]),
                             clb_max(plan->raw_bytes, plan->strip_bytes));
    if (largest > limits->max_alloc - limits->max_alloc / 8)
        return false;
    uint64_t packed =
        clb_buffer_rounded(plan->packed_bytes[0]) + clb_buffer_rounded(plan->packed_bytes[1]);
    uint64_t fixed = (uint64_t)plan->staging_threads * 4 * clb_buffer_rounded(plan->piece_bytes) +
                     (uint64_t)plan->slabs * packed;
    if (plan->part != 0 || variant->scales)
        fixed += CLB_STRIP_QUEUES *
                 clb_buffer_rounded((plan->part != 0 ? clb_div_up(plan->slab, plan->part) : 1) *
                                    plan->strip_bytes);
    if (variant->scales)
        fixed +=
            clb_buffer_rounded(plan->slabs * (plan->block[0] + plan->block[1]) * sizeof(cl_int));
    if (variant->split) /* the flag and its words; with thousands of steps they take more */
        fixed += 2 * clb_buffer_rounded(1);
    plan->raw_slots = clb_max(limits->raw_slots, (size_t)(limits->available / 8 / plan->raw_bytes));
    plan->raw_slots = clb_min(plan->raw_slots, RAW_SLOTS_MAX);
    plan->strip_slots = plan->strip_tiles != 0 ? CUT_SLOTS_MAX : STRIP_SLOTS_MAX;
    for (; plan->strip_slots > 1; plan->strip_slots--) {
        plan->bytes = fixed + (uint64_t)plan->raw_slots * clb_buffer_rounded(plan->raw_bytes) +
                      (uint64_t)plan->strip_slots * clb_buffer_rounded(plan->strip_bytes);
        if (plan->bytes <= limits->available)
            return true;
    }
    return false;
}

/* Elements of the operands that a serpentine over rows x cols blocks loads. Going down first, A is
 * loaded for every column of blocks, but at each turn the last block of A is kept. */
static double traffic(const struct clb_gemm *problem, size_t rows, size_t cols, bool down_first)
{
    double a = (double)problem->m, b = (double)problem->n, r = (double)rows, c = (double)cols;
    return down_first ? b + a * c - a / r * (c - 1) : a + b * r - b / c * (r - 1);
}

/* Parts of a triangular region's diagonal; these squares are computed in full. */
#define SQUARES ((size_t)8)

/* Plan a triangular region: both operands have the same bands. */
static bool plan_squares(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                         struct clb_discrete_plan *plan)
{
    size_t unit = clb_gemm_square_unit(variant), element = clb_precision_size(variant->precision);
    plan->band[0] = plan->band[1] = clb_round_up(plan->band[0], unit);
    /* Where the depth is divided, launches take longer than the work of the other triangle. */
    size_t squares = plan->part != 0 ? 1 : SQUARES;
    plan->square = clb_min(clb_round_up(clb_div_up(problem->n, squares), unit), plan->band[0]);
    for (; plan->square > 0; plan->square -= unit) {
        size_t tiles = plan->square / plan->unit[0] * (plan->square / plan->unit[1]);
        bool narrow = plan->strip_tiles == 0 || tiles <= plan->strip_tiles || plan->square == unit;
        if (narrow &&
            clb_strip_ld(plan->square, element) * plan->square * element <= plan->piece_bytes)
            return true;
    }
    return false;
}

/* Plan strips of whole columns, several of which are a piece, or of whole rows, each one piece, for
 * which pieces may have to be larger and staging threads fewer. */
static void plan_whole(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                       struct clb_discrete_plan *plan)
{
    size_t element = clb_precision_size(variant->precision);
    if (clb_gemm_has_whole_columns(problem)) {
        size_t across = plan->strip_tiles / clb_div_up(problem->m, plan->unit[0]);
        plan->strip[0] = clb_round_up(problem->m, plan->unit[0]);
        plan->strip[1] = plan->strip_tiles == 0
                             ? plan->band[1]
                             : clb_min(plan->band[1], clb_max(across, 1) * plan->unit[1]);
        return;
    }
    size_t least = clb_strip_ld(plan->unit[0], element) * problem->n * element;
    plan->piece_bytes = clb_max(plan->piece_bytes, clb_round_up(least, PIECE_MIN));
    while (plan->staging_threads > 1 &&
           (uint64_t)plan->staging_threads * 4 * plan->piece_bytes > plan->available / 4)
        plan->staging_threads--;
    plan->strip[1] = clb_round_up(problem->n, plan->unit[1]);
    plan->strip[0] = plan->unit[0];
    while (plan->strip[0] + plan->unit[0] <= plan->band[0] &&
           clb_strip_ld(plan->strip[0] + plan->unit[0], element) * problem->n * element <=
               plan->piece_bytes)
        plan->strip[0] += plan->unit[0];
}

/* Search the division of C into blocks that moves the fewest bytes with the plan's bands. */
static void search_blocks(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                          const struct plan_limits *limits, struct clb_discrete_plan plan,
                          double *least, struct clb_discrete_plan *best)
{
    bool columns = clb_gemm_has_whole_columns(problem), lines = clb_gemm_has_whole_rows(problem);
    if (problem->region != CLB_REGION_FULL && !plan_squares(variant, problem, &plan))
        return;
    if (problem->region == CLB_REGION_FULL && (columns || lines))
        plan_whole(variant, problem, &plan);
    size_t most_rows = columns ? 1 : MAX_BLOCKS, most_cols = lines ? 1 : MAX_BLOCKS;
    for (size_t rows = 1; rows <= most_rows; rows++) {
        for (size_t cols = 1; cols <= most_cols; cols++) {
            plan.block[0] = block_of(problem->m, rows, plan.band[0]);
            plan.block[1] = block_of(problem->n, cols, plan.band[1]);
            if (!size_blocks(variant, problem, limits, &plan))
                continue;
            bool down = traffic(problem, rows, cols, true) <= traffic(problem, rows, cols, false);
            double cost = traffic(problem, rows, cols, down);
            if (*least < 0 || cost < 0.95 * *least) {
                *least = cost;
                plan.down_first = down;
                *best = plan;
            }
            break; /* more columns of blocks move more bytes */
        }
        if (rows == 1 && *least >= 0 && best->block[1] >= problem->n)
            break; /* one block is all of C */
    }
}

/* True when C is a triangle and every operand of one role is also one of the other role. */
static bool is_shared(const struct clb_gemm *problem)
{
    bool shared = problem->region != CLB_REGION_FULL;
    for (size_t t = 0; t < problem->terms; t++)
        shared = shared && clb_gemm_transposed_term(problem, t) < CLB_MAX_TERMS;
    return shared;
}

/* Several blocks: narrow bands with raw buffers for uploads to run ahead, then other choices if
 * they move clearly fewer bytes. */
static bool plan_blocks(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                        struct plan_limits *limits, struct clb_discrete_plan plan,
                        struct clb_discrete_plan *best)
{
    const struct clb_discrete_plan wide = plan;
    size_t narrow = clb_min(plan.band[0], plan.band[1]);
    double least = -1;
    for (int choice = 0; choice < 3; choice++) {
        limits->raw_slots = choice == 0 ? RAW_SLOTS_GOOD : RAW_SLOTS_MIN;
        for (int role = 0; role < 2; role++)
            plan.band[role] =
                clb_round_up(choice == 2 ? clb_div_up(narrow, 2) : narrow, plan.unit[role]);
        search_blocks(variant, problem, limits, choice == 1 ? wide : plan, &least, best);
    }
    return least >= 0;
}

clb_status clb_discrete_make_plan(const struct clb_gemm_variant *variant,
                                  const struct clb_gemm *problem, uint64_t available,
                                  uint64_t max_alloc, size_t units, struct clb_discrete_plan *best)
{
    const size_t *value = variant->tuning.value;
    const double bytes = clb_gemm_bytes(problem);
    struct plan_limits limits = {available, max_alloc, RAW_SLOTS_MIN};
    double least = -1;
    struct clb_discrete_plan plan = {
        .slab = clb_min(
            clb_round_up(clb_gemm_slab(variant, problem, false), clb_gemm_depth_unit(variant)),
            problem->k),
        .staging_threads = staging_threads(value, bytes),
        .strip_tiles = value[CLB_PARAM_STRIP] != 0 ? value[CLB_PARAM_STRIP]
                       : units >= MANY_UNITS       ? units
                                                   : 0,
        .gathers = bytes <= (double)value[CLB_PARAM_GATHER],
        .available = available};
    for (int role = CLB_OPERAND_A; role <= CLB_OPERAND_B; role++)
        plan.unit[role] = clb_gemm_unit(variant, (clb_operand_role)role);
    for (int role = CLB_OPERAND_A; role <= CLB_OPERAND_B; role++)
        plan.band[role] = band(variant, problem, (clb_operand_role)role, units, plan.unit);
    plan.piece_bytes = piece(bytes, available, plan.staging_threads, value[CLB_PARAM_PIECE]);
    plan.slabs = clb_gemm_passes(problem, plan.slab);
    plan.part = clb_part_depth(variant, units, problem->m, problem->n, plan.slab);
    search_blocks(variant, problem, &limits, plan, &least, best);
    if (problem->count > 0)
        return least >= 0 && best->block[0] >= problem->m && best->block[1] >= problem->n
                   ? CLB_OK
                   : CLB_ERR_UNSUPPORTED;
    if (least >= 0 && best->block[0] >= problem->m && best->block[1] >= problem->n) {
        best->shared = is_shared(problem);
        /* First slabs (discrete.h) are one, for plain products that have at least two other slabs:
         * results come down only while the others are multiplied; with fewer of these the downloads
         * would take longest. C of few tiles comes down in no time, and its products are many
         * launches: with slab after slab only the last one's are left to do after the last load. */
        best->slab_by_slab = best->part != 0 && best->slabs > 1 && problem->terms == 1 &&
                             (clb_gemm_is_plain(problem) || best->shared);
        best->first_slabs =
            best->slab_by_slab || (clb_gemm_is_plain(problem) && best->slabs > 2) ? 1 : 0;
        return CLB_OK;
    }
    return plan_blocks(variant, problem, &limits, plan, best) ? CLB_OK : CLB_ERR_NOMEM;
}

/* ---- the order of loads and strips ---- */

/* Where memory for one more element is missing nothing more is added. */
struct builder {
    const struct clb_discrete_plan *plan;
    const struct clb_gemm *problem;
    struct clb_schedule *schedule;
    struct clb_rect block;
    size_t slab, end_slab; /* being added */
    size_t first_strip;    /* of these slabs */
    bool failed;
};

/* Make room for one more element in a growing table. */
static void *extend(struct builder *builder, void *table, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0) /* the capacity is the next power of two */
        return table;
    void *larger = realloc(table, (count == 0 ? 1 : 2 * count) * size);
    builder->failed = builder->failed || larger == NULL;
    return larger != NULL ? larger : table;
}

static void add_step(struct builder *builder, bool new_block)
{
    struct clb_schedule *schedule = builder->schedule;
    schedule->step = extend(builder, schedule->step, schedule->steps, sizeof *schedule->step);
    if (builder->failed)
        return;
    schedule->step[schedule->steps] =
        (struct clb_step){.new_block = new_block && schedule->steps > 0};
    schedule->steps++;
}

/* The largest upload piece; download pieces may be larger. */
#define LOAD_PIECE ((size_t)4 << 20)

/* What is gathered goes up in larger commands than a piece; of downloads each piece is one. */
#define GATHERED_PIECE   ((size_t)256 << 10)
#define GATHERED_RESULTS ((size_t)512 << 10)

/* Add the load of a piece of a band: its elements in one pass. */
static void add_load(struct builder *builder, const struct clb_operand *operand,
                     const struct clb_piece *piece, const struct clb_pass *pass,
                     const struct clb_pack_target *target, size_t targets)
{
    struct clb_schedule *schedule = builder->schedule;
    const struct clb_discrete_plan *plan = builder->plan;
    bool mirrored = piece->kind == CLB_PIECE_TRANSPOSED;
    schedule->load = extend(builder, schedule->load, schedule->loads, sizeof *schedule->load);
    if (builder->failed)
        return;
    struct clb_load load = {.operand = operand,
                            .kind = piece->kind,
                            .depth_contiguous = operand->depth_contiguous != mirrored,
                            .slab = target[0].slab,
                            .i0 = piece->i0,
                            .w = piece->w,
                            .p0 = pass->p0,
                            .k = pass->k,
                            .targets = targets,
                            .origin = clb_rect_span(&builder->block, operand->role).first,
                            .step = schedule->steps - 1};
    for (size_t t = 0; t < targets; t++) {
        load.target[t] = target[t];
        load.target[t].conjugated ^= mirrored && operand->shape == CLB_STRUCTURE_HERMITIAN;
    }
    const struct clb_rect at = clb_stored(load.depth_contiguous, load.i0, load.p0, load.w, load.k);
    size_t bytes = clb_min(plan->piece_bytes, LOAD_PIECE);
    /* The link idles until the first pieces have been copied. */
    bytes = schedule->loads == 0 ? bytes / 2 : bytes;
    if (plan->gathers)
        bytes = GATHERED_PIECE;
    load.piece_cols = clb_min(clb_max(bytes / (at.rows * operand->element), 1), at.cols);
    schedule->load[schedule->loads++] = load;
    schedule->step[schedule->steps - 1].loads++;
}

/* Add the loads of one slab, without its zeros, of the band that begins at element i0. */
static void add_slab(struct builder *builder, clb_operand_role role, size_t i0, size_t slab)
{
    const struct clb_discrete_plan *plan = builder->plan;
    const struct clb_pass pass = clb_gemm_pass(builder->problem, plan->slab, slab);
    const struct clb_operand *operand = &builder->schedule->operand[role][pass.term];
    size_t w = clb_min(plan->band[role], clb_rect_span(&builder->block, role).end - i0);
    size_t unit = plan->unit[role];
    struct clb_pack_target target[2] = {{role, slab, operand->conjugated}};
    struct clb_piece piece[3];
    if (plan->shared) {
        size_t transposed_term = clb_gemm_transposed_term(builder->problem, pass.term);
        size_t per_term = plan->slabs / builder->problem->terms;
        target[1] =
            (struct clb_pack_target){CLB_OPERAND_B, slab % per_term + transposed_term * per_term,
                                     builder->schedule->operand[1][transposed_term].conjugated};
    }
    size_t count = clb_operand_pieces(operand, false, i0, w, pass.p0, pass.k, unit, piece);
    for (size_t p = 0; p < count; p++)
        add_load(builder, operand, &piece[p], &pass, target, plan->shared ? 2 : 1);
}

/* Add the loads of the band that begins at element `at` of the operand's block. */
static void add_loads(struct builder *builder, clb_operand_role role, size_t at)
{
    for (size_t slab = builder->slab; slab < builder->end_slab; slab++)
        add_slab(builder, role, clb_rect_span(&builder->block, role).first + at, slab);
}

static void add_one_strip(struct builder *builder, struct clb_rect rect)
{
    struct clb_schedule *schedule = builder->schedule;
    size_t element = builder->schedule->operand[0][0].element;
    schedule->strip = extend(builder, schedule->strip, schedule->strips, sizeof *schedule->strip);
    if (builder->failed)
        return;
    size_t number = schedule->strips - builder->first_strip;
    struct clb_strip strip = {.rect = rect,
                              .origin = {builder->block.row, builder->block.col},
                              .ldc = clb_strip_ld(rect.rows, element),
                              .offset = schedule->strip_elements,
                              .step = schedule->steps - 1,
                              .slab = builder->slab,
                              .end_slab = builder->end_slab,
                              .queue = number % CLB_STRIP_QUEUES};
    /* Pieces must not cut squares of a triangle, or strips of whole rows. */
    size_t bytes = builder->plan->piece_bytes;
    if (builder->plan->gathers && builder->plan->square == 0 && builder->plan->strip[0] == 0)
        bytes = clb_min(bytes, GATHERED_RESULTS);
    strip.piece_cols = clb_min(clb_max(bytes / (strip.ldc * element), 1), rect.cols);
    if (strip.end_slab == builder->plan->slabs)
        strip.pieces = clb_div_up(rect.cols, strip.piece_cols);
    schedule->strip_pieces += strip.pieces;
    /* Strips of later slabs are those of the first slabs, in the same order and memory. */
    if (strip.slab == 0)
        schedule->strip_elements += strip.ldc * rect.cols;
    else
        strip.offset = schedule->strip[number].offset;
    schedule->strip[schedule->strips++] = strip;
    schedule->step[schedule->steps - 1].strips++;
}

/* The length of equal parts of `length`: multiples of `unit`, at most `most` units; 0: any. */
static size_t part_length(size_t length, size_t unit, size_t most)
{
    size_t units = clb_div_up(length, unit);
    return clb_div_up(units, clb_div_up(units, clb_max(most, 1))) * unit;
}

/* Add a rectangle as one strip, or divided across its longer side into strips of at most the plan's
 * number of tiles, because nothing else is left to do during the last one's download. Strips of
 * whole columns or rows are divided between these only. */
static void add_rectangle(struct builder *builder, struct clb_rect rect)
{
    const struct clb_discrete_plan *plan = builder->plan;
    if (rect.rows == 0 || rect.cols == 0)
        return;
    size_t tiles_m = clb_div_up(rect.rows, plan->unit[0]);
    size_t tiles_n = clb_div_up(rect.cols, plan->unit[1]);
    size_t rows = rect.rows, cols = rect.cols;
    if (plan->strip[0] != 0) {
        rows = clb_min(plan->strip[0], rows);
        cols = clb_min(plan->strip[1], cols);
    } else if (plan->strip_tiles != 0 && tiles_m >= tiles_n)
        rows = part_length(rows, plan->unit[0], plan->strip_tiles / tiles_n);
    else if (plan->strip_tiles != 0)
        cols = part_length(cols, plan->unit[1], plan->strip_tiles / tiles_m);
    for (size_t i = 0; i < rect.rows; i += rows) {
        for (size_t j = 0; j < rect.cols; j += cols)
            add_one_strip(builder, (struct clb_rect){rect.row + i, rect.col + j,
                                                     clb_min(rows, rect.rows - i),
                                                     clb_min(cols, rect.cols - j)});
    }
}

/* Add the part of a triangular region in a square on its diagonal: smaller squares, each of one
 * piece, and the rectangles beside them. */
static void add_diagonal(struct builder *builder, size_t first, size_t size)
{
    bool lower = builder->problem->region == CLB_REGION_LOWER;
    size_t square = builder->plan->square;
    for (size_t j = 0; j < size; j += square) {
        size_t cols = clb_min(square, size - j), end = j + cols;
        add_one_strip(builder, (struct clb_rect){first + j, first + j, cols, cols});
        add_rectangle(builder, lower ? (struct clb_rect){first + end, first + j, size - end, cols}
                                     : (struct clb_rect){first, first + j, j, cols});
    }
}

/* Add the part of C's region in a rectangle that is one band high or wide. In a triangular region
 * bands of rows and of columns are the same. */
static void add_strip(struct builder *builder, struct clb_rect rect)
{
    clb_region region = builder->problem->region;
    size_t band = builder->plan->band[0], end = rect.row + rect.rows,
           col_end = rect.col + rect.cols;
    if (region == CLB_REGION_FULL || rect.rows == 0 || rect.cols == 0) {
        add_rectangle(builder, rect);
        return;
    }
    bool by_rows = rect.rows <= band;
    size_t at = by_rows ? rect.row : rect.col; /* where the band crosses the diagonal */
    if (by_rows ? at >= rect.col && at < col_end : at >= rect.row && at < end)
        add_diagonal(builder, at, by_rows ? rect.rows : rect.cols);
    /* The parts before and behind the crossing; one of them is in the region. */
    size_t begin = by_rows ? rect.col : rect.row, stop = by_rows ? col_end : end;
    size_t before = clb_max(clb_min(at, stop), begin);
    size_t behind = clb_min(clb_max(at + band, begin), stop);
    bool takes_before = by_rows == (region == CLB_REGION_LOWER);
    size_t from = takes_before ? begin : behind, count = (takes_before ? before : stop) - from;
    add_rectangle(builder, by_rows ? (struct clb_rect){rect.row, from, rect.rows, count}
                                   : (struct clb_rect){from, rect.col, count, rect.cols});
}

/* Add the strip of a band, `count` elements of an operand's block from `at` on, with the first
 * `others` of the other operand's. */
static void add_product(struct builder *builder, clb_operand_role role, size_t at, size_t count,
                        size_t others)
{
    const struct clb_rect *block = &builder->block;
    add_strip(builder, role == CLB_OPERAND_A
                           ? (struct clb_rect){block->row + at, block->col, count, others}
                           : (struct clb_rect){block->row, block->col + at, others, count});
}

/* Growing squares over the slabs [slab, end_slab). */
static void add_squares(struct builder *builder)
{
    const size_t extent[2] = {builder->block.rows, builder->block.cols};
    size_t loaded[2] = {0, 0};
    while (loaded[0] < extent[0] || loaded[1] < extent[1]) {
        bool is_a = loaded[1] == extent[1] || (loaded[0] < extent[0] && loaded[0] <= loaded[1]);
        const clb_operand_role role = is_a ? CLB_OPERAND_A : CLB_OPERAND_B;
        size_t at = loaded[role], more = clb_min(builder->plan->band[role], extent[role] - at);
        add_step(builder, loaded[0] + loaded[1] + builder->slab == 0);
        add_loads(builder, role, at);
        if (builder->plan->shared) {
            add_product(builder, CLB_OPERAND_A, at, more, at + more);
            add_product(builder, CLB_OPERAND_B, at, more, at);
            loaded[1] += more;
        } else {
            add_product(builder, role, at, more, loaded[!role]);
        }
        loaded[role] += more;
    }
}

static void add_square_steps(struct builder *builder)
{
    const struct clb_discrete_plan *plan = builder->plan;
    for (size_t slab = 0; slab < plan->slabs; slab = builder->end_slab) {
        bool some = plan->first_slabs > 0 && (slab == 0 || plan->slab_by_slab);
        builder->slab = slab;
        builder->end_slab = some ? clb_min(slab + plan->first_slabs, plan->slabs) : plan->slabs;
        builder->first_strip = builder->schedule->strips;
        add_squares(builder);
    }
}

/* The bands of one operand in turn, each with its product with all of the other operand, which is
 * loaded in the first step, unless it is there. */
static void add_bands(struct builder *builder, clb_operand_role role, bool others)
{
    const struct clb_discrete_plan *plan = builder->plan;
    const size_t extent[2] = {builder->block.rows, builder->block.cols};
    const clb_operand_role other = role == CLB_OPERAND_A ? CLB_OPERAND_B : CLB_OPERAND_A;
    for (size_t at = 0; at < extent[role]; at += plan->band[role]) {
        add_step(builder, at == 0);
        for (size_t i = 0; others && at == 0 && i < extent[other]; i += plan->band[other])
            add_loads(builder, other, i);
        add_loads(builder, role, at);
        add_product(builder, role, at, clb_min(plan->band[role], extent[role] - at), extent[other]);
    }
}

static void add_block(struct builder *builder, size_t i, size_t j, bool first, bool row_changed)
{
    const struct clb_discrete_plan *plan = builder->plan;
    size_t row = i * plan->block[0], col = j * plan->block[1];
    builder->block = (struct clb_rect){row, col, clb_min(plan->block[0], builder->problem->m - row),
                                       clb_min(plan->block[1], builder->problem->n - col)};
    bool whole = plan->strip[0] != 0; /* strips are whole columns or rows */
    bool by_rows =
        first && whole ? !clb_gemm_has_whole_columns(builder->problem) : !first && row_changed;
    if (first && !whole)
        add_square_steps(builder);
    else
        add_bands(builder, by_rows ? CLB_OPERAND_A : CLB_OPERAND_B, first);
}

/* During the last results' copies nothing else is left to do: they come down in small pieces. */
#define LAST_BYTES  ((size_t)8 << 20)
#define LAST_PIECES 4

static void cut_last_pieces(const struct builder *builder)
{
    const struct clb_discrete_plan *plan = builder->plan;
    struct clb_schedule *schedule = builder->schedule;
    size_t bytes = 0;
    if (plan->gathers || plan->square != 0 || plan->strip[0] != 0)
        return;
    for (size_t i = schedule->strips; i > 0 && bytes < LAST_BYTES; i--) {
        struct clb_strip *strip = &schedule->strip[i - 1];
        if (strip->pieces == 0)
            continue;
        bytes += strip->ldc * strip->rect.cols * schedule->operand[0][0].element;
        schedule->strip_pieces -= strip->pieces;
        strip->piece_cols = clb_max(strip->piece_cols / LAST_PIECES, 1);
        strip->pieces = clb_div_up(strip->rect.cols, strip->piece_cols);
        schedule->strip_pieces += strip->pieces;
    }
}

clb_status clb_schedule_make(const struct clb_discrete_plan *plan, const struct clb_gemm *problem,
                             struct clb_schedule *schedule)
{
    struct builder builder = {
        .plan = plan, .problem = problem, .schedule = schedule, .end_slab = plan->slabs};
    size_t block_rows = clb_div_up(problem->m, plan->block[0]);
    size_t block_cols = clb_div_up(problem->n, plan->block[1]);
    size_t outer_count = plan->down_first ? block_cols : block_rows;
    size_t inner_count = plan->down_first ? block_rows : block_cols;
    *schedule = (struct clb_schedule){0};
    for (size_t i = 0; i < 2 * problem->terms; i++)
        schedule->operand[i % 2][i / 2] =
            clb_operand_of_term(problem, (clb_operand_role)(i % 2), i / 2);
    for (size_t outer = 0; outer < outer_count; outer++) {
        for (size_t k = 0; k < inner_count; k++) {
            size_t inner = outer % 2 == 0 ? k : inner_count - 1 - k;
            bool inner_changed = k > 0;
            add_block(&builder, plan->down_first ? inner : outer, plan->down_first ? outer : inner,
                      outer == 0 && k == 0, inner_changed == plan->down_first);
        }
    }
    for (size_t p = 1; p < problem->count; p++) {
        builder.block = (struct clb_rect){p * problem->m, p * problem->n, problem->m, problem->n};
        add_square_steps(&builder);
    }
    if (builder.failed)
        return CLB_ERR_NOMEM;
    cut_last_pieces(&builder);
    return CLB_OK;
}

void clb_schedule_free(struct clb_schedule *schedule)
{
    free(schedule->load);
    free(schedule->strip);
    free(schedule->step);
    *schedule = (struct clb_schedule){0};
}
