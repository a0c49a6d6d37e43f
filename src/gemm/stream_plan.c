/* The plan of a GEMM on a device with its own memory: blocks, bands, slabs, strips and buffers. */
#include "stream.h"

/* Bands: about STEPS of each operand, so that the device is busy soon and stays busy; not so narrow
 * that a strip is too small for the device, nor so wide that the buffers are too large. Fewer where
 * a band is made of short pieces of columns, which are slower to copy. (H200, 2026-11, n = 8192: 22
 * steps of both were 9 % slower in single precision and no faster in double.) */
#define STEPS       16
#define STEPS_SHORT 10

/* Raw buffers, which let uploads run ahead of the kernels: as many as fit into an eighth of the
 * available memory. With two, uploads wait for kernels half of the time (H200, 2026-11). */
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

static size_t band(const size_t *value, size_t extent, bool short_pieces, size_t unit,
                   size_t override)
{
    size_t steps = short_pieces ? STEPS_SHORT : STEPS;
    size_t wanted = clb_min(clb_max(clb_div_up(extent, steps), value[CLB_PARAM_BAND_MIN]),
                            value[CLB_PARAM_BAND_MAX]);
    if (override != 0)
        return clb_round_up(override, unit);
    size_t count = clb_div_up(extent, wanted);
    return clb_round_up(clb_div_up(extent, count), unit);
}

/* The staging threads' slots take at most a quarter of the available memory. Pieces of 4 MiB move
 * at the link's full rate, pieces of 1 MiB at three quarters of it (H200, 2026-11), because the
 * link idles between two pieces. Where there are few pieces a late one costs more than that, so
 * there are some hundreds if possible (2 MiB for n = 8192 in single precision: 3 to 10 %
 * faster). */
#define PIECE        ((size_t)4 << 20)
#define PIECE_SMALL  ((size_t)2 << 20)
#define PIECES_LARGE ((size_t)256)
#define PIECE_MIN    ((size_t)64 << 10)

static size_t piece(const struct clb_gemm *problem, uint64_t available, size_t staging_threads,
                    size_t override)
{
    double m = (double)problem->m, n = (double)problem->n, k = (double)problem->k;
    double all = (m * k + k * n + m * n) * (double)clb_precision_size(problem->precision);
    size_t bytes = all < (double)(PIECES_LARGE * PIECE) ? PIECE_SMALL : PIECE;
    if (override != 0)
        bytes = clb_round_up(override, PIECE_MIN);
    while (bytes > PIECE_MIN && (uint64_t)staging_threads * 4 * bytes > available / 4)
        bytes /= 2;
    return bytes;
}

/* Columns begin on a boundary that suits vector accesses and DMA. */
size_t clb_stream_ld(size_t rows, size_t element)
{
    return clb_round_up(rows, 128 / element);
}

/* Bytes of the largest strip: either of `strip_tiles` tiles, or as wide as a band and as long as
 * the block. */
static size_t strip_bytes(const struct clb_stream_plan *plan, size_t m, size_t n, size_t band_m,
                          size_t band_n, size_t element)
{
    if (plan->strip_m != 0)
        return clb_stream_ld(clb_min(plan->strip_m, m), element) * clb_min(plan->strip_n, n) *
               element;
    size_t whole =
        clb_max(clb_stream_ld(band_m, element) * n, clb_stream_ld(m, element) * band_n) * element;
    size_t across = clb_max(clb_div_up(band_m, plan->unit_m), clb_div_up(band_n, plan->unit_n));
    size_t cut = clb_max(plan->strip_tiles, across) * clb_stream_ld(plan->unit_m, element) *
                 plan->unit_n * element;
    return plan->strip_tiles != 0 ? clb_min(whole, cut) : whole;
}

struct limits {
    uint64_t available, max_alloc;
    size_t raw_slots; /* the minimum */
};

/* Set the sizes of the buffers for the plan's block size; false when they don't fit. */
static bool size_blocks(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                        const struct limits *limits, struct clb_stream_plan *plan)
{
    size_t element = clb_precision_size(variant->precision);
    size_t m = clb_min(plan->block_m, problem->m), n = clb_min(plan->block_n, problem->n);
    size_t band_m = clb_min(plan->band_m, m), band_n = clb_min(plan->band_n, n);
    size_t widest = clb_max(clb_max(band_m, band_n), plan->slab);
    plan->a_bytes = clb_packed_bytes(variant, CLB_OPERAND_A, m, plan->slab);
    plan->b_bytes = clb_packed_bytes(variant, CLB_OPERAND_B, n, plan->slab);
    plan->raw_bytes = clb_max(band_m, band_n) * plan->slab * element;
    plan->strip_bytes = strip_bytes(plan, m, n, band_m, band_n, element);
    /* A column of a strip or of a load must fit into one piece. */
    if (clb_max(clb_stream_ld(m, element), widest) * element > plan->piece_bytes)
        return false;
    size_t largest =
        clb_max(clb_max(plan->a_bytes, plan->b_bytes), clb_max(plan->raw_bytes, plan->strip_bytes));
    if (largest > limits->max_alloc - limits->max_alloc / 8)
        return false;
    uint64_t packed = clb_buffer_rounded(plan->a_bytes) + clb_buffer_rounded(plan->b_bytes);
    uint64_t fixed = (uint64_t)plan->staging_threads * 4 * clb_buffer_rounded(plan->piece_bytes) +
                     (uint64_t)plan->slabs * packed;
    if (clb_gemm_is_split(
            variant)) /* the flag and its words; with thousands of steps they take more */
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
 * loaded once for every column of blocks, except that at each turn the last block of A is kept. */
static double traffic(const struct clb_gemm *problem, size_t rows, size_t cols, bool down_first)
{
    double a = (double)problem->m, b = (double)problem->n, r = (double)rows, c = (double)cols;
    return down_first ? b + a * c - a / r * (c - 1) : a + b * r - b / c * (r - 1);
}

static size_t block_of(size_t extent, size_t count, size_t unit)
{
    return clb_round_up(clb_div_up(extent, count), unit);
}

/* Squares that a triangular region's diagonal is divided into; they are computed in full. */
#define SQUARES ((size_t)8)

/* Plan a triangular region: bands of both operands are the same, and a square on the diagonal is
 * one strip of one piece. */
static bool plan_squares(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                         struct clb_stream_plan *plan)
{
    size_t unit = clb_gemm_square_unit(variant), element = clb_precision_size(variant->precision);
    plan->band_m = plan->band_n = clb_round_up(plan->band_m, unit);
    plan->square = clb_min(clb_round_up(clb_div_up(problem->n, SQUARES), unit), plan->band_m);
    for (; plan->square > 0; plan->square -= unit) {
        size_t tiles = plan->square / plan->unit_m * (plan->square / plan->unit_n);
        bool narrow = plan->strip_tiles == 0 || tiles <= plan->strip_tiles || plan->square == unit;
        if (narrow &&
            clb_stream_ld(plan->square, element) * plan->square * element <= plan->piece_bytes)
            return true;
    }
    return false;
}

/* Plan strips of whole columns, of which a piece has several, or strips of whole rows, each one
 * piece, for which pieces may have to be larger and staging threads fewer. */
static bool plan_whole(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                       struct clb_stream_plan *plan)
{
    size_t element = clb_precision_size(variant->precision);
    if (clb_gemm_has_whole_columns(problem)) {
        size_t across = plan->strip_tiles / clb_div_up(problem->m, plan->unit_m);
        plan->strip_m = clb_round_up(problem->m, plan->unit_m);
        plan->strip_n = plan->strip_tiles == 0
                            ? plan->band_n
                            : clb_min(plan->band_n, clb_max(across, 1) * plan->unit_n);
        return true;
    }
    size_t least = clb_stream_ld(plan->unit_m, element) * problem->n * element;
    plan->piece_bytes = clb_max(plan->piece_bytes, clb_round_up(least, PIECE_MIN));
    while (plan->staging_threads > 1 &&
           (uint64_t)plan->staging_threads * 4 * plan->piece_bytes > plan->available / 4)
        plan->staging_threads--;
    plan->strip_n = clb_round_up(problem->n, plan->unit_n);
    plan->strip_m = plan->unit_m;
    while (plan->strip_m + plan->unit_m <= plan->band_m &&
           clb_stream_ld(plan->strip_m + plan->unit_m, element) * problem->n * element <=
               plan->piece_bytes)
        plan->strip_m += plan->unit_m;
    return true;
}

/* Adapt a plan with given bands to the problem's structure; false when that is impossible. */
static bool plan_shape(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                       struct clb_stream_plan *plan)
{
    if (clb_gemm_region(problem) != CLB_REGION_FULL)
        return plan_squares(variant, problem, plan);
    if (clb_gemm_has_whole_columns(problem) || clb_gemm_has_whole_rows(problem))
        return plan_whole(variant, problem, plan);
    return true;
}

/* Search the division of C into blocks that moves the fewest bytes with the plan's bands. */
static void search_blocks(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                          const struct limits *limits, struct clb_stream_plan plan, double *least,
                          struct clb_stream_plan *best)
{
    if (!plan_shape(variant, problem, &plan))
        return;
    size_t most_rows = clb_gemm_has_whole_columns(problem) ? 1 : MAX_BLOCKS;
    size_t most_cols = clb_gemm_has_whole_rows(problem) ? 1 : MAX_BLOCKS;
    for (size_t rows = 1; rows <= most_rows; rows++) {
        for (size_t cols = 1; cols <= most_cols; cols++) {
            plan.block_m = block_of(problem->m, rows, plan.band_m);
            plan.block_n = block_of(problem->n, cols, plan.band_n);
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
        if (rows == 1 && *least >= 0 && best->block_n >= problem->n)
            break; /* one block is all of C */
    }
}

/* True when C's region is a triangle and every operand of one role is also one of the other
 * role. */
static bool is_shared(const struct clb_gemm *problem)
{
    bool shared = clb_gemm_region(problem) != CLB_REGION_FULL;
    for (size_t t = 0; t < clb_gemm_terms(problem); t++)
        shared = shared && clb_gemm_transposed_term(problem, t) < CLB_MAX_TERMS;
    return shared;
}

/* The number of first slabs (stream.h): one, for plain products that have at least two other slabs.
 * Results come down only while the others are multiplied; with fewer of these the downloads would
 * take longest. */
static size_t first_slabs_of(const struct clb_gemm *problem, const struct clb_stream_plan *plan)
{
    return problem->level3 == NULL && plan->slabs > 2 ? 1 : 0;
}

clb_status clb_stream_make_plan(const struct clb_gemm_variant *variant,
                                const struct clb_gemm *problem, uint64_t available,
                                uint64_t max_alloc, size_t units, struct clb_stream_plan *best)
{
    const size_t *value = variant->tuning.value;
    struct limits limits = {available, max_alloc, RAW_SLOTS_MIN};
    size_t unit_m = clb_gemm_unit(variant, CLB_OPERAND_A);
    size_t unit_n = clb_gemm_unit(variant, CLB_OPERAND_B);
    double least = -1;
    struct clb_stream_plan plan = {
        .band_m =
            band(value, problem->m, problem->transa == CLB_OP_N, unit_m, value[CLB_PARAM_BAND_M]),
        .band_n =
            band(value, problem->n, problem->transb != CLB_OP_N, unit_n, value[CLB_PARAM_BAND_N]),
        .slab = clb_min(
            clb_round_up(clb_gemm_slab(variant, problem, false), clb_gemm_depth_unit(variant)),
            problem->k),
        .staging_threads = clb_min(clb_max(value[CLB_PARAM_THREADS], CLB_STAGING_THREADS),
                                   CLB_MAX_STAGING_THREADS),
        .unit_m = unit_m,
        .unit_n = unit_n,
        .strip_tiles = value[CLB_PARAM_STRIP] != 0 ? value[CLB_PARAM_STRIP]
                       : units >= MANY_UNITS       ? units
                                                   : 0,
        .available = available};
    plan.piece_bytes = piece(problem, available, plan.staging_threads, value[CLB_PARAM_PIECE]);
    plan.slabs = clb_gemm_passes(problem, plan.slab);
    search_blocks(variant, problem, &limits, plan, &least, best);
    if (least >= 0 && best->block_m >= problem->m && best->block_n >= problem->n) {
        best->shared = is_shared(problem);
        best->first_slabs = first_slabs_of(problem, best);
        return CLB_OK;
    }
    /* Several blocks: narrow bands with raw buffers for uploads to run ahead, then other choices if
     * they move clearly fewer bytes. */
    const struct clb_stream_plan wide = plan;
    size_t narrow = clb_min(plan.band_m, plan.band_n);
    least = -1;
    limits.raw_slots = RAW_SLOTS_GOOD;
    plan.band_m = clb_round_up(narrow, unit_m);
    plan.band_n = clb_round_up(narrow, unit_n);
    search_blocks(variant, problem, &limits, plan, &least, best);
    limits.raw_slots = RAW_SLOTS_MIN;
    search_blocks(variant, problem, &limits, wide, &least, best);
    plan.band_m = clb_round_up(clb_div_up(narrow, 2), unit_m);
    plan.band_n = clb_round_up(clb_div_up(narrow, 2), unit_n);
    search_blocks(variant, problem, &limits, plan, &least, best);
    return least >= 0 ? CLB_OK : CLB_ERR_NOMEM;
}
