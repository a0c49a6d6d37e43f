/* SPDX-License-Identifier: BSD-3-Clause
 * The algo layer: plans, the merge, and runs under memory limits. */
#include "engine/kernel/check.h"
#include "engine/gemm/discrete.h"
#include "engine/gemm/gemm.h"
#include "fakecl.h"
#include "matrix.h"
#include "tap.h"
#include "tools/command/product.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SHAPES 4000

/* ---- plans ---- */

static size_t random_extent(uint64_t *seed, size_t largest)
{
    size_t bits = 1 + random_below(seed, 63);
    return 1 + random_below(seed, clb_min(largest, ((size_t)1 << clb_min(bits, 40))));
}

/* A variant of the tables' kind; no kernel of it is ever built. */
static struct clb_gemm_variant random_variant(uint64_t *seed)
{
    static const size_t widths[] = {1, 2, 3, 4, 6, 8, 16, 32, 64, 128};
    struct clb_gemm_variant variant = {.precision = random_below(seed, 2) ? CLB_S : CLB_D};
    size_t *value = variant.tuning.value;
    variant.family =
        clb_gemm_family_get(random_below(seed, 2) ? CLB_FAMILY_CPU : CLB_FAMILY_PORTABLE);
    for (int i = 0; i < CLB_PARAMS; i++)
        value[i] = clb_params[i].standard[false];
    value[CLB_PARAM_MR] = widths[random_below(seed, CLB_COUNT_OF(widths))];
    value[CLB_PARAM_NR] = widths[random_below(seed, CLB_COUNT_OF(widths))];
    value[CLB_PARAM_KU] = 1 + random_below(seed, 16);
    value[CLB_PARAM_TM] = 1 + random_below(seed, 5000);
    value[CLB_PARAM_TN] = 1 + random_below(seed, 500);
    value[CLB_PARAM_BAND_M] = random_below(seed, 3) * 40;
    value[CLB_PARAM_BAND_N] = random_below(seed, 3) * 24;
    value[CLB_PARAM_SLAB] = 1 + random_below(seed, 5000);
    value[CLB_PARAM_DIRECT] = random_below(seed, 2) * 100;
    value[CLB_PARAM_STRIP] = random_below(seed, 3) * (1 + random_below(seed, 40));
    value[CLB_PARAM_PIECE] = random_below(seed, 2) * (size_t)100000;
    return variant;
}

/* Parts of the depth: whole steps, no more work-groups than units, room for their products. */
static void parts_of_depth(void *seed)
{
    long divided = 0;
    for (int i = 0; i < SHAPES; i++) {
        struct clb_gemm_variant variant = random_variant(seed);
        size_t *value = variant.tuning.value,
               forced = random_below(seed, 2) * random_below(seed, 9);
        size_t m = random_extent(seed, 2000), n = random_extent(seed, 2000);
        size_t k = random_extent(seed, 300000), units = random_below(seed, 200);
        variant.family = clb_gemm_family_get(CLB_FAMILY_PORTABLE);
        value[CLB_PARAM_PARTS] = forced;
        value[CLB_PARAM_MIN_K] = random_below(seed, 2) * random_below(seed, 400);
        size_t tiles = clb_div_up(m, value[CLB_PARAM_MR]) * clb_div_up(n, value[CLB_PARAM_NR]);
        size_t part = clb_part_depth(&variant, units, m, n, k);
        size_t count = part != 0 ? clb_div_up(k, part) : 1;
        divided += part != 0;
        expect(part == 0 ||
                   (part < k && part % value[CLB_PARAM_KU] == 0 && part >= value[CLB_PARAM_MIN_K]),
               "%zu of %zu depths is no part", part, k);
        expect(forced != 0 ? count <= forced : count == 1 || count * tiles <= units,
               "%zu parts of %zu tiles for %zu units", count, tiles, units);
        expect(forced != 0 || count > 1 || units < 2 * tiles || k < 1024 + value[CLB_PARAM_KU],
               "%zu tiles leave most of %zu units idle", tiles, units);
        expect(clb_part_bytes(&variant, part, m, n, k) <= clb_part_most(&variant, units, m, n),
               "no room for %zu parts of %zu x %zu", count, m, n);
    }
    expect(divided > SHAPES / 20, "only %ld were divided", divided);
}

/* An H200's rows in double precision. */
static void second_rows(void *argument)
{
    static const struct {
        size_t m, n, k;
        bool second;
    } cases[] = {{1000, 1000, 1000, true},
                 {1500, 1500, 1500, true},
                 {2048, 2048, 2048, true},
                 {4096, 4096, 4096, false},
                 {128, 128, 65536, true},
                 {256, 256, 200000, true},
                 {16384, 128, 16384, true},
                 {128, 16384, 16384, true},
                 {16384, 16384, 64, false},
                 {8192, 8192, 512, false},
                 {1, 1, 1, true}};
    struct clb_gemm_variant first = {.precision = CLB_D}, second = {.precision = CLB_D};
    const struct clb_device device = {.type = CL_DEVICE_TYPE_GPU, .vendor = CLB_VENDOR_NVIDIA};
    (void)argument;
    first.raw = &second;
    expect(clb_tuning_gemm(&device, CLB_D, CLB_MATH_DEFAULT, 0, &first.tuning) == CLB_OK &&
               clb_tuning_second(&device, CLB_D, &first.tuning, true, &second.tuning) == CLB_OK,
           "no rows");
    first.family = second.family = clb_gemm_family_get(first.tuning.family);
    for (size_t i = 0; i < CLB_COUNT_OF(cases); i++)
        expect(clb_gemm_for(&first, 132, cases[i].m, cases[i].n, cases[i].k, true) ==
                   (cases[i].second ? &second : &first),
               "the wrong row for %zu x %zu x %zu", cases[i].m, cases[i].n, cases[i].k);
}

struct raw_setting {
    const char *kernel;
    clb_precision precision;
    float large; /* an element of A; beyond 1: out of the split family's range */
};

/* Emulated kernels that read operands unpacked have the bits of those that read packed ones, and
 * raise their flag. Some blocks of A are sparse in nv_bf16.h's terms. */
static void raw_products(void *argument)
{
    enum { M = 150, N = 70, K = 132, FLAG = 2 };
    const struct raw_setting *x = argument;
    const size_t element = clb_precision_size(x->precision), count = M * K * element / 4;
    const size_t bytes[] = {M * K * element, K * N * element, M * N * element};
    const struct clb_gemm_variant *variant;
    struct clb_buffer *memory[3] = {NULL};
    struct clb_queue_set *set;
    struct clb_resident r;
    char *c[2] = {malloc(bytes[0]), malloc(bytes[0])};
    cl_uint flag[2] = {0};
    uint64_t state = 1;
    struct clb_runtime *runtime = fake_cl_start(x->kernel, "gemm.tile=min,gemm.emulate=1", false);
    clb_status status = clb_gemm_variant_get(runtime, x->precision, &variant);
    CLB_THEN(status, clb_direct_prepare(variant));
    CLB_THEN(status, clb_queue_set_acquire(runtime, &set));
    CLB_THEN(status, clb_check_memory(runtime, bytes, memory, 3));
    for (size_t e = 0; e < count; e++) /* as doubles they are numbers, too */
        ((float *)c[0])[e] = e % 9 && e < 5000 ? 0
                             : e == 9000       ? x->large
                                               : (float)clb_check_random(&state);
    for (int i = 0; i < 2; i++)
        CLB_THEN(status, clb_queue_write_now(set->queue, memory[i]->mem, 0, bytes[i], c[0]));
    for (int raw = 0; raw < 2; raw++) {
        const struct clb_gemm_variant *packed = variant->second != NULL ? variant->second : variant;
        CLB_THEN(status, clb_resident_open(&r, set, raw ? variant->raw : packed, M, N, K));
        r.a = memory[0]->mem, r.b = memory[1]->mem, r.c = memory[2]->mem;
        if (variant->split)
            CLB_THEN(status,
                     clb_queue_write_now(set->queue, r.memory[FLAG]->mem, 0, 4, &flag[raw]));
        CLB_THEN(status, clb_resident_enqueue(&r, true, true));
        CLB_THEN(status, clb_queue_read_now(set->queue, r.c, 0, bytes[2], c[raw]));
        if (variant->split)
            CLB_THEN(status, clb_queue_read_now(set->queue, r.memory[FLAG]->mem, 0, 4, &flag[raw]));
    }
    expect(status == CLB_OK && r.raw && flag[0] == (x->large > 1) && flag[1] == flag[0],
           "%s, flags %u and %u", clb_status_name(status), flag[0], flag[1]);
    expect(flag[0] || memcmp(c[0], c[1], bytes[2]) == 0, "other bits");
}

static struct clb_gemm shape(clb_precision precision, size_t m, size_t n, size_t k)
{
    return (struct clb_gemm){.precision = precision, .m = m, .n = n, .k = k, .terms = 1};
}

/* Rectangles of C, each entry counted. */
struct cover {
    size_t m, n;
    unsigned char *count;
};

static void cover_add(struct cover *cover, const struct clb_rect *rect)
{
    expect(rect->row + rect->rows <= cover->m && rect->col + rect->cols <= cover->n,
           "(%zu,%zu) + %zux%zu is outside of %zux%zu", rect->row, rect->col, rect->rows,
           rect->cols, cover->m, cover->n);
    for (size_t j = rect->col; j < rect->col + rect->cols && j < cover->n; j++) {
        for (size_t i = rect->row; i < rect->row + rect->rows && i < cover->m; i++)
            cover->count[i + j * cover->m]++;
    }
}

static void cover_end(struct cover *cover, const char *what)
{
    bool once = true;
    for (size_t i = 0; i < cover->m * cover->n; i++)
        once = once && cover->count[i] == 1;
    expect(once, "%s: %zux%zu is not covered exactly once", what, cover->m, cover->n);
    free(cover->count);
}

static void check_tiles(const struct clb_gemm_plan *plan, const struct clb_gemm *problem)
{
    struct cover cover = {problem->m, problem->n, calloc(problem->m, problem->n)};
    for (size_t i = 0; i < plan->tile_rows * plan->tile_cols; i++) {
        struct clb_rect tile = clb_gemm_tile(plan, problem, i);
        expect(tile.rows > 0 && tile.cols > 0, "tile %zu is empty", i);
        cover_add(&cover, &tile);
    }
    cover_end(&cover, "tiles");
}

/* What must hold for shapes of any size. */
static void check_plan(const struct clb_gemm_variant *variant, const struct clb_gemm *problem,
                       const struct clb_gemm_plan *plan, uint64_t available, uint64_t max_alloc)
{
    const size_t *value = variant->tuning.value;
    expect(plan->bytes <= available, "%llu of %llu bytes", (unsigned long long)plan->bytes,
           (unsigned long long)available);
    expect(plan->need[CLB_NEED_A].bytes <= max_alloc && plan->need[CLB_NEED_B].bytes <= max_alloc &&
               plan->need[CLB_NEED_C].bytes <= max_alloc,
           "a buffer is larger than the device allows");
    expect(plan->tile[0] % value[CLB_PARAM_MR] == 0 && plan->tile[1] % value[CLB_PARAM_NR] == 0,
           "tiles of %zux%zu are no multiples of the kernel's", plan->tile[0], plan->tile[1]);
    expect(plan->slab % value[CLB_PARAM_KU] == 0, "a slab of %zu", plan->slab);
    expect((plan->tile_rows - 1) * plan->tile[0] < problem->m &&
               plan->tile_rows * plan->tile[0] >= problem->m &&
               (plan->tile_cols - 1) * plan->tile[1] < problem->n &&
               plan->tile_cols * plan->tile[1] >= problem->n &&
               (plan->slabs - 1) * plan->slab < problem->k &&
               plan->slabs * plan->slab >= problem->k,
           "the counts don't fit the extents");
    expect(plan->c_slots >= 1 && plan->c_slots <= 2, "slots");
    expect(plan->raw ? plan->slots[0] == 0 : plan->slots[0] >= 1, "slots of A");
    expect(!plan->raw || (plan->direct && problem->a[0].op == CLB_OP_N), "A is not packed");
    expect(plan->direct ? plan->slots[1] == 0 : plan->slots[1] >= 1, "slots of B");
    expect(!plan->direct || (problem->m <= value[CLB_PARAM_DIRECT] && problem->b[0].op == CLB_OP_N),
           "B is not packed, m = %zu", problem->m);
}

static void plans_in_place(void *seed)
{
    long declined = 0, planned = 0;
    for (int i = 0; i < SHAPES; i++) {
        struct clb_gemm_variant variant = random_variant(seed);
        bool small = random_below(seed, 4) != 0;
        size_t largest = small ? 300 : (size_t)1 << 36;
        struct clb_gemm problem = shape(variant.precision, random_extent(seed, largest),
                                        random_extent(seed, largest), random_extent(seed, largest));
        uint64_t available = random_extent(seed, (size_t)1 << 36);
        uint64_t max_alloc = random_below(seed, 20) == 0 ? 0 : random_extent(seed, (size_t)1 << 34);
        struct clb_gemm_plan plan, plenty;
        if (clb_gemm_make_plan(&variant, 2, &problem, available, max_alloc, &plan) != CLB_OK) {
            declined++;
            continue;
        }
        planned++;
        check_plan(&variant, &problem, &plan, available, max_alloc);
        if (small)
            check_tiles(&plan, &problem);
        expect(clb_gemm_make_plan(&variant, 2, &problem, 2 * available, max_alloc, &plenty) ==
                       CLB_OK &&
                   plenty.slab == plan.slab && plenty.slabs == plan.slabs,
               "more memory changes the slabs");
    }
    tap_note("%ld planned, %ld declined", planned, declined);
    expect(declined > SHAPES / 50 && planned > SHAPES / 3, "the shapes are one-sided");
}

/* Which row of op(A), or column of op(B), is at a position of the packed block; for every slab. */
struct resident {
    size_t extent, slabs;
    size_t *at; /* [slab * extent + position], plus one; 0 is none */
};

static void resident_load(struct resident *resident, const struct clb_load *load, size_t block)
{
    size_t position = load->i0 - load->origin;
    expect(load->i0 >= load->origin && position + load->w <= block, "a load beside its block");
    expect(load->i0 + load->w <= resident->extent && load->slab < resident->slabs,
           "a load outside");
    for (size_t i = 0; i < load->w && position + i < resident->extent; i++)
        resident->at[load->slab * resident->extent + position + i] = load->i0 + i + 1;
}

static bool resident_has(const struct resident *resident, size_t slabs, size_t origin, size_t first,
                         size_t count)
{
    for (size_t slab = 0; slab < slabs; slab++) {
        for (size_t i = first; i < first + count; i++) {
            if (resident->at[slab * resident->extent + i - origin] != i + 1)
                return false;
        }
    }
    return true;
}

/* What adds to another strip is the same part of C, in the same queue; `first` are those of the
 * first slabs. */
static void check_opening(const struct clb_schedule *schedule, size_t number, size_t first)
{
    const struct clb_strip *strip = &schedule->strip[number];
    const struct clb_strip *before = &schedule->strip[number - first];
    expect(before->end_slab == strip->slab &&
               memcmp(&before->rect, &strip->rect, sizeof strip->rect) == 0 &&
               before->offset == strip->offset && before->queue == strip->queue,
           "strip %zu adds to another one", number);
}

/* Walk the schedule: every strip finds its operands, and C is covered once. */
static void check_schedule(const struct clb_discrete_plan *plan, const struct clb_gemm *problem,
                           const struct clb_schedule *schedule)
{
    struct cover cover = {problem->m, problem->n, calloc(problem->m, problem->n)};
    struct resident a = {problem->m, plan->slabs, calloc(problem->m * plan->slabs, sizeof *a.at)};
    struct resident b = {problem->n, plan->slabs, calloc(problem->n * plan->slabs, sizeof *b.at)};
    size_t load = 0, strip = 0, elements = 0, first = 0;
    while (first < schedule->strips && schedule->strip[first].slab == 0)
        first++;
    for (size_t s = 0; s < schedule->steps; s++) {
        for (size_t i = 0; i < schedule->step[s].loads; i++, load++) {
            const struct clb_load *l = &schedule->load[load];
            bool is_a = l->operand->role == CLB_OPERAND_A;
            expect(l->p0 == l->slab * plan->slab && l->k == clb_min(plan->slab, problem->k - l->p0),
                   "depths %zu + %zu of slab %zu", l->p0, l->k, l->slab);
            resident_load(is_a ? &a : &b, l, is_a ? plan->block[0] : plan->block[1]);
        }
        for (size_t i = 0; i < schedule->step[s].strips; i++, strip++) {
            const struct clb_strip *t = &schedule->strip[strip];
            bool last = t->end_slab == plan->slabs;
            expect(last == (t->pieces > 0), "strip %zu has %zu pieces", strip, t->pieces);
            if (last)
                cover_add(&cover, &t->rect);
            expect(!plan->slab_by_slab || t->end_slab == t->slab + 1,
                   "strip %zu has slabs %zu to %zu", strip, t->slab, t->end_slab);
            expect(resident_has(&a, t->end_slab, t->origin[0], t->rect.row, t->rect.rows) &&
                       resident_has(&b, t->end_slab, t->origin[1], t->rect.col, t->rect.cols),
                   "strip %zu is ahead of its operands", strip);
            expect(t->ldc >= t->rect.rows &&
                       t->ldc * t->rect.cols * clb_precision_size(problem->precision) <=
                           plan->strip_bytes,
                   "strip %zu does not fit its buffer", strip);
            expect(t->step == s && (t->slab > 0 || t->offset == elements), "strip %zu is elsewhere",
                   strip);
            if (t->slab > 0)
                check_opening(schedule, strip, first);
            else
                elements += t->ldc * t->rect.cols;
            size_t tiles_m = clb_div_up(t->rect.rows, plan->unit[0]);
            size_t tiles_n = clb_div_up(t->rect.cols, plan->unit[1]);
            expect(plan->strip_tiles == 0 || tiles_m * tiles_n <= plan->strip_tiles ||
                       tiles_m == 1 || tiles_n == 1,
                   "strip %zu has %zux%zu tiles, not %zu", strip, tiles_m, tiles_n,
                   plan->strip_tiles);
        }
    }
    expect(load == schedule->loads && strip == schedule->strips, "the steps miss something");
    expect(elements == schedule->strip_elements, "%zu elements", schedule->strip_elements);
    cover_end(&cover, "strips");
    free(a.at);
    free(b.at);
}

static void plans_streamed(void *seed)
{
    long declined = 0, planned = 0, by_slab = 0;
    for (int i = 0; i < SHAPES / 4; i++) {
        struct clb_gemm_variant variant = random_variant(seed);
        struct clb_gemm problem = shape(variant.precision, random_extent(seed, 400),
                                        random_extent(seed, 400), random_extent(seed, 9000));
        uint64_t available = random_extent(seed, (size_t)1 << (22 + random_below(seed, 10)));
        uint64_t max_alloc = random_below(seed, 20) == 0 ? 0 : random_extent(seed, (size_t)1 << 30);
        struct clb_discrete_plan plan, plenty;
        struct clb_schedule schedule = {0};
        if (random_below(seed, 2))
            variant.tuning.value[CLB_PARAM_SLAB] = 1 + random_below(seed, 40) + problem.k / 30;
        size_t units = random_below(seed, 60);
        if (clb_discrete_make_plan(&variant, &problem, available, max_alloc, units, &plan) !=
            CLB_OK) {
            declined++;
            continue;
        }
        planned++;
        by_slab += plan.slab_by_slab;
        expect(plan.bytes <= available, "too many bytes");
        expect(clb_max(clb_max(plan.packed_bytes[0], plan.packed_bytes[1]),
                       clb_max(plan.raw_bytes, plan.strip_bytes)) <= max_alloc,
               "a buffer is larger than the device allows");
        expect(clb_discrete_make_plan(&variant, &problem, 2 * available, max_alloc, units,
                                      &plenty) == CLB_OK &&
                   plenty.slab == plan.slab,
               "more memory changes the slabs");
        if (expect(clb_schedule_make(&plan, &problem, &schedule) == CLB_OK, "no schedule"))
            check_schedule(&plan, &problem, &schedule);
        clb_schedule_free(&schedule);
    }
    tap_note("%ld planned, %ld declined", planned, declined);
    expect(declined > SHAPES / 100 && planned > SHAPES / 20 && by_slab > SHAPES / 500,
           "the shapes are one-sided");
}

/* The plan for a product on an H200, and its schedule. */
static struct clb_discrete_plan plan_large(const struct clb_gemm *problem,
                                           struct clb_schedule *schedule)
{
    const struct clb_device device = {.type = CL_DEVICE_TYPE_GPU, .vendor = CLB_VENDOR_NVIDIA};
    struct clb_gemm_variant variant = {.precision = problem->precision};
    struct clb_discrete_plan plan = {0};
    if (!expect(clb_tuning_gemm(&device, problem->precision, CLB_MATH_DEFAULT, 0,
                                &variant.tuning) == CLB_OK,
                "no row"))
        return plan;
    variant.family = clb_gemm_family_get(variant.tuning.family);
    expect(clb_discrete_make_plan(&variant, problem, (uint64_t)100 << 30, (uint64_t)35 << 30, 132,
                                  &plan) == CLB_OK &&
               clb_schedule_make(&plan, problem, schedule) == CLB_OK,
           "no plan");
    return plan;
}

/* Bands of A are tall where the depth is small, so that strips have long columns. */
static void tall_bands(void *unused)
{
    static const struct {
        clb_precision precision;
        size_t m, n, k, band_m, band_n;
    } row[] = {{CLB_D, 8192, 8192, 64, 4096, 512},
               {CLB_S, 8192, 8192, 64, 8192, 576},
               {CLB_D, 5000, 8192, 64, 2560, 512},
               {CLB_D, 8192, 8192, 512, 1024, 512},
               {CLB_D, 8192, 8192, 8192, 896, 512}};
    (void)unused;
    for (size_t i = 0; i < CLB_COUNT_OF(row); i++) {
        const struct clb_gemm problem = shape(row[i].precision, row[i].m, row[i].n, row[i].k);
        struct clb_schedule schedule = {0};
        const struct clb_discrete_plan plan = plan_large(&problem, &schedule);
        expect(plan.band[0] == row[i].band_m && plan.band[1] == row[i].band_n,
               "%zux%zux%zu: bands of %zu and %zu", row[i].m, row[i].n, row[i].k, plan.band[0],
               plan.band[1]);
        clb_schedule_free(&schedule);
    }
}

/* The last results come in smaller pieces than the others. */
static void last_pieces(void *unused)
{
    const struct clb_gemm problem = shape(CLB_D, 4096, 4096, 4096);
    struct clb_schedule schedule = {0};
    const struct clb_discrete_plan plan = plan_large(&problem, &schedule);
    size_t small = 0, pieces = 0;
    (void)unused;
    for (size_t i = 0; i < schedule.strips; i++) {
        const struct clb_strip *strip = &schedule.strip[i];
        const size_t bytes = strip->piece_cols * strip->ldc * sizeof(double);
        const bool is_small = 4 * bytes <= plan.piece_bytes;
        pieces += strip->pieces;
        small += is_small ? strip->ldc * strip->rect.cols * sizeof(double) : 0;
        expect(is_small || i + 1 < schedule.strips, "the last pieces have %zu bytes", bytes);
    }
    expect(pieces == schedule.strip_pieces && small > (size_t)4 << 20 && small < (size_t)32 << 20,
           "%zu pieces, %zu bytes in small ones", pieces, small);
    clb_schedule_free(&schedule);
}

/* ---- merge ---- */

static void merges(void *seed)
{
    static const double scalars[] = {0, 1, -1, 0.5, -2.25};
    for (int i = 0; i < 600; i++) {
        clb_precision precision = random_below(seed, 2) ? CLB_S : CLB_D;
        double alpha = scalars[random_below(seed, CLB_COUNT_OF(scalars))];
        double beta = scalars[random_below(seed, CLB_COUNT_OF(scalars))];
        float alpha_s = (float)alpha, beta_s = (float)beta;
        bool single = precision == CLB_S, spoiled = random_below(seed, 2) != 0;
        size_t m = random_below(seed, 40), n = random_below(seed, 12);
        struct matrix p, c;
        matrix_make(&p, precision, m, n, m + random_below(seed, 9), random_below(seed, 8));
        matrix_make(&c, precision, m, n, m + random_below(seed, 9), random_below(seed, 8));
        matrix_fill(&p, seed);
        matrix_fill(&c, seed);
        if (spoiled && m > 0 && n > 0)
            matrix_set(&c, m - 1, n - 1, random_below(seed, 2) ? NAN : INFINITY);
        matrix_remember(&p);
        matrix_remember(&c);
        struct matrix old = c;
        old.memory = c.snapshot;
        clb_merge_tile(precision, m, n, single ? (void *)&alpha_s : (void *)&alpha, matrix_data(&p),
                       p.ld, single ? (void *)&beta_s : (void *)&beta, matrix_data(&c), c.ld);
        expect(matrix_intact(&p) && matrix_gaps_intact(&c), "something else was written");
        for (size_t e = 0; e < m * n; e++) {
            size_t row = e % m, col = e / m;
            double want = alpha * matrix_get(&p, row, col), got = matrix_get(&c, row, col);
            if (beta != 0)
                want += beta * matrix_get(&old, row, col);
            double tolerance = single ? 1e-6 : 1e-15;
            expect(isfinite(want) ? fabs(got - want) <= tolerance * 4 : !isfinite(got),
                   "alpha=%g beta=%g: %g, expected %g", alpha, beta, got, want);
        }
        matrix_free(&p);
        matrix_free(&c);
    }
}

/* The elements that an operand of 64 x 64 takes when it is packed. */
static void packed_sizes(void *unused)
{
    static const clb_precision precisions[] = {CLB_S, CLB_D, CLB_C, CLB_Z};
    (void)unused;
    for (int i = 0; i < 8; i++) {
        struct clb_gemm_variant variant = {.precision = precisions[i / 2]};
        variant.family = clb_gemm_family_get(i % 2 ? CLB_FAMILY_PORTABLE : CLB_FAMILY_CPU);
        variant.tuning.value[CLB_PARAM_MR] = variant.tuning.value[CLB_PARAM_NR] = 16;
        variant.tuning.value[CLB_PARAM_KU] = 4;
        const size_t bytes = 64 * 64 * clb_precision_size(variant.precision);
        const bool twice = i % 2 == 1 && clb_precision_parts(variant.precision) == 2;
        expect(clb_packed_bytes(&variant, CLB_OPERAND_A, 64, 64) == (twice ? 2 : 1) * bytes,
               "A of precision %d, family %d", i / 2, i % 2);
        expect(clb_packed_bytes(&variant, CLB_OPERAND_B, 64, 64) == bytes,
               "B of precision %d, family %d", i / 2, i % 2);
    }
}

/* ---- runs ---- */

struct run_setting {
    const char *name, *kernel, *params;
    bool discrete;
    uint64_t seed;
};

/* Runs with less and less memory give the same bits, until one is declined without touching C. */
static void shrink_memory(struct clb_runtime *runtime, struct gemm_case *g)
{
    unsigned char *first = malloc(g->c.bytes);
    int succeeded = 0;
    runtime->memory_limit = (uint64_t)64 << 20;
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, g->precision);
    if (variant == NULL)
        return;
    for (;; runtime->memory_limit /= 2) {
        struct clb_gemm_progress progress;
        struct clb_gemm problem = gemm_problem(g);
        /* What the pool keeps from a higher limit is not this run's. */
        const long long before = (long long)fake_cl.live_bytes;
        const long maps = fake_cl.of[FAKE_EnqueueMapBuffer];
        fake_cl.peak_bytes = before;
        memcpy(g->c.memory, g->c.snapshot, g->c.bytes);
        clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
        expect(status == CLB_OK || status == CLB_ERR_NOMEM, "%s", clb_status_name(status));
        expect((uint64_t)fake_cl.peak_bytes <= clb_max((size_t)before, runtime->memory_limit),
               "%lld bytes with a limit of %llu", (long long)fake_cl.peak_bytes,
               (unsigned long long)runtime->memory_limit);
        for (size_t i = 0; status == CLB_OK && i < progress.parts; i++)
            expect(progress.written[i], "part %zu was not written", i);
        for (size_t i = 0; status != CLB_OK && i < progress.parts; i++)
            expect(!progress.written[i] || progress.part[i].rows * progress.part[i].cols == 0,
                   "part %zu was written without memory", i);
        clb_gemm_progress_free(&progress);
        if (status != CLB_OK) {
            expect(matrix_intact(&g->c), "C written without memory");
            break;
        }
        /* By the first one the CPU has seen that it need not map. */
        expect(succeeded == 0 || fake_cl.discrete || fake_cl.of[FAKE_EnqueueMapBuffer] == maps,
               "results were mapped");
        if (succeeded++ == 0) {
            gemm_check(g, "direct run");
            memcpy(first, g->c.memory, g->c.bytes);
        }
        expect(memcmp(first, g->c.memory, g->c.bytes) == 0, "other bits with %llu bytes",
               (unsigned long long)runtime->memory_limit);
    }
    expect(succeeded >= 3, "only %d limits were enough", succeeded);
    free(first);
}

static void direct_runs(void *argument)
{
    struct run_setting *setting = argument;
    struct clb_runtime *runtime =
        fake_cl_start(setting->kernel, setting->params, setting->discrete);
    if (runtime == NULL)
        return;
    for (int i = 0; i < 6; i++) {
        struct gemm_case g = {.precision = i % 2 ? CLB_S : CLB_D,
                              .transa = (clb_op)random_below(&setting->seed, 3),
                              .transb = (clb_op)random_below(&setting->seed, 3),
                              .m = 60 + random_below(&setting->seed, 90),
                              .n = 30 + random_below(&setting->seed, 90),
                              .k = 40 + random_below(&setting->seed, 90),
                              .alpha = 1,
                              .beta = 0.5};
        gemm_make(&g, &setting->seed, 7);
        shrink_memory(runtime, &g);
        gemm_free(&g);
    }
}

/* The kernels that read B, or both operands, in place are used when they have been checked, with
 * the bits that packed operands give. */
static void in_place(void *argument)
{
    struct run_setting *setting = argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = fake_cl_start(setting->kernel, setting->params, false);
    if (runtime == NULL)
        return;
    for (int i = 0; i < 4; i++) {
        struct gemm_case g = {.precision = i < 2 ? CLB_S : CLB_D,
                              .transa = i % 2 ? CLB_OP_T : CLB_OP_N,
                              .m = 37,
                              .n = 31,
                              .k = 77,
                              .alpha = 1,
                              .beta = 0.5};
        struct clb_gemm_progress progress;
        gemm_make(&g, &setting->seed, 7);
        struct clb_gemm problem = gemm_problem(&g);
        unsigned char *packed = malloc(g.c.bytes);
        expect(clb_gemm_variant_get(runtime, g.precision, &variant) == CLB_OK, "no variant");
        struct clb_gemm_variant packs = *variant;
        struct clb_gemm_plan plan;
        packs.tuning.value[CLB_PARAM_DIRECT] = 0;
        expect(clb_direct_prepare(&packs) == CLB_ERR_UNSUPPORTED, "a kernel that is not wanted");
        expect(clb_gemm_run(runtime, &packs, &problem, &progress) == CLB_OK, "packed");
        clb_gemm_progress_free(&progress);
        memcpy(packed, g.c.memory, g.c.bytes);
        memcpy(g.c.memory, g.c.snapshot, g.c.bytes);
        /* Not before a check that must not wait has ended. */
        clb_driver_set_time_limit(clb_now());
        while (clb_direct_prepare(variant) == CLB_ERR_STARTING)
            usleep(1000);
        clb_driver_set_time_limit(INFINITY);
        expect(clb_direct_prepare(variant) == CLB_OK, "B is never read in place");
        expect(clb_gemm_make_plan(variant, 2, &problem, SIZE_MAX, SIZE_MAX, &plan) == CLB_OK &&
                   plan.direct && plan.raw == (g.transa == CLB_OP_N),
               "B is packed, or A");
        expect(clb_gemm_run(runtime, variant, &problem, &progress) == CLB_OK, "in place");
        clb_gemm_progress_free(&progress);
        gemm_check(&g, "in place");
        expect(memcmp(packed, g.c.memory, g.c.bytes) == 0, "other bits than packed");
        free(packed);
        gemm_free(&g);
    }
}

int main(void)
{
    uint64_t seed = tap_seed();
    struct run_setting runs[] = {
        {"in place under shrinking limits", "cpu", "gemm.tile=min", false, 0},
        {"in place under shrinking limits, larger tiles", "cpu",
         "gemm.tile=min,gemm.tm=64,gemm.tn=32,gemm.slab=64", false, 0},
        {"own memory under shrinking limits", "portable", "gemm.tile=min", true, 0},
        {"own memory under shrinking limits, depth in parts", "portable",
         "gemm.tile=min,gemm.slab=40,gemm.parts=4", true, 0},
    };
    struct raw_setting raw_settings[] = {{"nv-bf16x6", CLB_S, 1},
                                         {"nv-bf16x6", CLB_S, 1e18F},
                                         {"nv-dmma", CLB_D, 1},
                                         {"nv-dmma", CLB_Z, 1}};
    tap_child("plans in place", 60, plans_in_place, &seed);
    tap_child("plans for streaming", 60, plans_streamed, &seed);
    tap_child("tall bands where the depth is small", 60, tall_bands, NULL);
    tap_child("the last pieces are small", 60, last_pieces, NULL);
    tap_child("parts of the depth", 60, parts_of_depth, &seed);
    tap_child("second rows", 60, second_rows, NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(raw_settings); i++)
        tap_child("unpacked operands", 300, raw_products, &raw_settings[i]);
    tap_child("merge", 60, merges, &seed);
    tap_child("packed sizes", 60, packed_sizes, NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(runs); i++) {
        runs[i].seed = random_bits(&seed);
        tap_child(runs[i].name, 120, direct_runs, &runs[i]);
    }
    tap_child("operands in place", 120, in_place, &runs[0]);
    return tap_done();
}
