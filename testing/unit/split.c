/* Split families: what they can't compute is left to the plain family, no matter when that is
 * found. SPDX-License-Identifier: BSD-3-Clause
 *
 * Their own kernels need tensor cores, so that another one stands in here: the portable family's
 * source with a packing that raises the flag on large elements, and a product that is twice as
 * large, by which its strips are recognised. Exactly the strips of the steps before the one that
 * loads a large element must be its own, with any number of threads. */
#include "engine/kernel/check.h"
#include "engine/kernel/kernels.h"
#include "engine/gemm/discrete.h"
#include "engine/gemm/gemm.h"
#include "fakecl.h"
#include "matrix.h"
#include "tap.h"
#include "host/process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LARGE 1e9

static const char scan[] = "inline void scan(global const real *src, ulong di, ulong dp, uint w, "
                           "uint k, global uint *flag)\n"
                           "{\n"
                           "    if (flag == 0 || get_global_id(0) != 0 || get_global_id(1) != 0)\n"
                           "        return;\n"
                           "    for (uint i = 0; i < w; i++)\n"
                           "        for (uint p = 0; p < k; p++)\n"
                           "            if (fabs(src[i * di + p * dp]) >= 1e9)\n"
                           "                *flag = 1;\n"
                           "}\n";

/* `text` with everything up to `end`, behind `after`, replaced; ends the test when it isn't there.
 */
static char *replaced(char *text, const char *after, const char *old, const char *new)
{
    char *from = strstr(text, after);
    char *at = from == NULL ? NULL : strstr(from, old);
    char *result = malloc(strlen(text) + strlen(new) + 1);
    if (!expect(at != NULL && result != NULL, "\"%s\" is not in the source", old))
        exit(1);
    sprintf(result, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    free(text);
    return result;
}

static char *split_source(void)
{
    static const char macro[] = "#define CLB_PACK_KERNELS(";
    static const char *const kernels[][2] = {{"void name_n(", "1, ld"}, {"void name_t(", "ld, 1"}};
    char begin[256];
    char *text = strndup(clb_kernel_gemm_portable.text, clb_kernel_gemm_portable.length);
    char *with_scan = malloc(sizeof scan + sizeof macro);
    sprintf(with_scan, "%s%s", scan, macro);
    text = replaced(text, "", macro, with_scan);
    free(with_scan);
    for (size_t i = 0; i < CLB_COUNT_OF(kernels); i++) {
        snprintf(begin, sizeof begin, "scan(src + src_off, %s, w, k, flag); CLB_NOTE_LAUNCH();",
                 kernels[i][1]);
        text = replaced(text, kernels[i][0], "CLB_CONJ_PARAMETER", ", global uint *flag");
        text = replaced(text, kernels[i][0], "CLB_NOTE_LAUNCH();", begin);
    }
    /* Offsets into packed operands are in bytes. */
    text = replaced(text, "", "return dst_off +", "return dst_off / sizeof(real) +");
    text = replaced(text, "", "pa += pa_off +", "alpha *= 2, pa += pa_off / sizeof(real) +");
    return replaced(text, "", "pb += pb_off +", "pb += pb_off / sizeof(real) +");
}

/* The portable variant and one that stands for a split family. */
static bool make_variants(struct clb_runtime *runtime, const struct clb_gemm_variant **plain,
                          struct clb_gemm_variant *split)
{
    static struct clb_source source = {"split.cl", NULL, 0};
    static struct clb_gemm_family family;
    if (!expect(clb_gemm_variant_get(runtime, CLB_D, plain) == CLB_OK, "no variant"))
        return false;
    source.text = split_source();
    source.length = strlen(source.text);
    family = *(*plain)->family;
    family.source = &source;
    family.pieces = sizeof(double);
    *split = **plain;
    split->family = &family;
    split->split = true;
    split->plain = *plain;
    struct clb_text options = {0};
    clb_text_addf(&options, "-DCLB_DOUBLE=1 -DCLB_COMPLEX=0");
    for (int i = 0; i < CLB_PARAMS; i++) {
        if (clb_params[i].kernels && split->tuning.value[i] != 0)
            clb_text_addf(&options, " -DCLB_%s=%zu", clb_params[i].name, split->tuning.value[i]);
    }
    bool built = clb_program_get(runtime, &source, options.data, &split->program) == CLB_OK &&
                 clb_gemm_prelaunch(runtime, split, false) == CLB_OK;
    clb_text_free(&options);
    return expect(built, "the split family does not build");
}

/* An element that is out of range: op(A)(i, p) or op(B)(p, i); none when depth is k. */
struct spoiled {
    bool in_a;
    size_t i, p;
};

/* The number of the first step that loads it. */
static size_t find_step(const struct clb_schedule *schedule, const struct spoiled *spoiled)
{
    size_t load = 0;
    for (size_t s = 0; s < schedule->steps; s++) {
        for (size_t i = 0; i < schedule->step[s].loads; i++, load++) {
            const struct clb_load *l = &schedule->load[load];
            if ((l->operand->role == CLB_OPERAND_A) == spoiled->in_a && spoiled->i >= l->i0 &&
                spoiled->i < l->i0 + l->w && spoiled->p >= l->p0 && spoiled->p < l->p0 + l->k)
                return s;
        }
    }
    return schedule->steps;
}

/* Strips of steps before `end` are the split family's; what an first_slabs begins is no result. */
static void check_origin(const struct gemm_case *g, const struct clb_schedule *schedule, size_t end)
{
    for (size_t s = 0; s < schedule->strips; s++) {
        const struct clb_strip *strip = &schedule->strip[s];
        const struct clb_rect *rect = &strip->rect;
        for (size_t e = 0; strip->pieces > 0 && e < rect->rows * rect->cols; e++) {
            size_t i = rect->row + e % rect->rows, j = rect->col + e / rect->rows;
            double sum = 0, size = 0;
            for (size_t p = 0; p < g->k; p++) {
                sum += gemm_a(g, i, p) * gemm_b(g, p, j);
                size += fabs(gemm_a(g, i, p) * gemm_b(g, p, j));
            }
            double want = strip->step < end ? 2 * sum : sum;
            if (!expect(fabs(matrix_get(&g->c, i, j) - want) <= 1e-12 * size,
                        "(%zu,%zu) of step %zu, %zu is the first out of range: %g, expected %g", i,
                        j, strip->step, end, matrix_get(&g->c, i, j), want))
                return;
        }
    }
}

static void spoil(struct gemm_case *g, const struct spoiled *spoiled)
{
    struct matrix *x = spoiled->in_a ? &g->a : &g->b;
    bool plain = (spoiled->in_a ? g->transa : g->transb) == CLB_OP_N;
    bool row_first = spoiled->in_a == plain;
    matrix_set(x, row_first ? spoiled->i : spoiled->p, row_first ? spoiled->p : spoiled->i, LARGE);
}

static struct gemm_case make_case(uint64_t *seed, size_t extent, bool clean,
                                  struct spoiled *spoiled)
{
    struct gemm_case g = {.precision = CLB_D,
                          .transa = random_below(seed, 2) ? CLB_OP_N : CLB_OP_T,
                          .transb = random_below(seed, 2) ? CLB_OP_N : CLB_OP_T,
                          .m = extent + random_below(seed, 2 * extent),
                          .n = extent / 2 + random_below(seed, extent),
                          .k = 20 + random_below(seed, 40),
                          .alpha = 1};
    gemm_make(&g, seed, 5);
    *spoiled = (struct spoiled){.in_a = random_below(seed, 2) != 0, .p = random_below(seed, g.k)};
    spoiled->i = random_below(seed, spoiled->in_a ? g.m : g.n);
    if (!clean)
        spoil(&g, spoiled);
    return g;
}

static void run_once(struct clb_runtime *runtime, const struct clb_gemm_variant *split, bool clean,
                     uint64_t *seed)
{
    struct spoiled spoiled;
    struct gemm_case g = make_case(seed, 40, clean, &spoiled);
    struct clb_gemm problem = gemm_problem(&g);
    struct clb_gemm_progress progress;
    struct clb_discrete_plan plan;
    struct clb_schedule schedule = {0};
    bool planned = clb_discrete_make_plan(split, &problem, clb_memory_available(runtime),
                                          runtime->device.max_alloc, 0, &plan) == CLB_OK &&
                   clb_schedule_make(&plan, &problem, &schedule) == CLB_OK;
    clb_status status = clb_gemm_run(runtime, split, &problem, &progress);
    if (expect(planned && status == CLB_OK, "%s", clb_status_name(status))) {
        check_origin(&g, &schedule, clean ? schedule.steps : find_step(&schedule, &spoiled));
        expect(matrix_gaps_intact(&g.c), "gaps were written");
    }
    clb_schedule_free(&schedule);
    clb_gemm_progress_free(&progress);
    gemm_free(&g);
}

static void body(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    clb_runtime_state state;
    const struct clb_gemm_variant *plain;
    struct clb_gemm_variant split;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL || !make_variants(runtime, &plain, &split))
        return;
    for (int i = 0; i < 24; i++)
        run_once(runtime, &split, i % 6 == 0, &seed);
}

/* Written parts hold a product, the others what they held before, or a product that is not trusted
 * since a command has failed: C is not read. */
static void check_parts(const struct gemm_case *g, const struct clb_gemm_progress *progress,
                        long at)
{
    struct matrix old = g->c;
    old.memory = g->c.snapshot;
    for (size_t part = 0; part < progress->parts; part++) {
        const struct clb_rect *rect = &progress->part[part];
        for (size_t e = 0; e < rect->rows * rect->cols; e++) {
            size_t i = rect->row + e % rect->rows, j = rect->col + e / rect->rows;
            double got = matrix_get(&g->c, i, j), sum = 0, size = 0;
            for (size_t p = 0; p < g->k; p++) {
                sum += gemm_a(g, i, p) * gemm_b(g, p, j);
                size += fabs(gemm_a(g, i, p) * gemm_b(g, p, j));
            }
            bool product = fabs(got - sum) <= 1e-12 * size || fabs(got - 2 * sum) <= 1e-12 * size;
            bool good = product || (!progress->written[part] && got == matrix_get(&old, i, j));
            if (!expect(good, "call %ld: part %zu is %swritten, (%zu,%zu) = %g", at, part,
                        progress->written[part] ? "" : "not ", i, j, got))
                return;
        }
    }
    expect(matrix_gaps_intact(&g->c), "gaps were written");
}

static void failing(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    clb_runtime_state state;
    const struct clb_gemm_variant *plain;
    struct clb_gemm_variant split;
    fake_cl_install();
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL || !make_variants(runtime, &plain, &split))
        return;
    long partly = 0, calls = 0;
    for (long at = 0; at <= calls; at += tap_step(calls)) { /* none fails first */
        uint64_t same = seed;
        struct spoiled spoiled;
        struct gemm_case g = make_case(&same, 16, at % 3 == 0, &spoiled);
        struct clb_gemm problem = gemm_problem(&g);
        struct clb_gemm_progress progress;
        size_t written = 0;
        fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
        fake_cl.run_anyway = at % 2 == 0;
        clb_status status = clb_gemm_run(runtime, &split, &problem, &progress);
        calls = fake_cl.calls > calls ? fake_cl.calls : calls;
        fake_cl_arm(0, 0, false);
        for (size_t part = 0; part < progress.parts; part++)
            written += progress.written[part];
        expect(status != CLB_OK || (progress.parts > 0 && written == progress.parts),
               "call %ld: parts are missing and nothing was said", at);
        partly += written > 0 && written < progress.parts;
        check_parts(&g, &progress, at);
        clb_gemm_progress_free(&progress);
        gemm_free(&g);
    }
    /* Small products may have one part, or fail before the first is written. */
    tap_note("%ld calls, %ld runs ended in part", calls, partly);
    expect(calls > 100, "only %ld calls were failed", calls);
}

int main(void)
{
    uint64_t seed = tap_seed();
    setenv("CLBLAS_SHIM_KERNEL", "portable", 1);
    for (int threads = 1; threads <= 7; threads += 2) {
        char params[128], name[80];
        snprintf(params, sizeof params, "gemm.tile=min,gemm.stream=1,gemm.threads=%d", threads);
        snprintf(name, sizeof name, "elements out of range, %d threads", threads);
        setenv("CLBLAS_SHIM_PARAMS", params, 1);
        tap_child(name, 120, body, &seed);
        snprintf(name, sizeof name, "every call of such a run fails, %d threads", threads);
        if (threads < 5)
            tap_child(name, 120, failing, &seed);
    }
    return tap_done();
}
