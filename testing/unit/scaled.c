/* Products of extreme scale by a split family, whose instructions are emulated: rows and columns
 * far beyond its range are scaled and stay with it, and what is out of range even then is left to
 * the plain family. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/kernel/kernel.h"
#include "engine/gemm/gemm.h"
#include "fakecl.h"
#include "matrix.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILY "nv-bf16-sync"
#define SLAB   64 /* of gemm.tile=min */

/* Operands: how A's rows and B's columns are scaled, and who has to compute the product. */
static const struct kind {
    const char *name;
    int a_exponents[3], b_exponents[3]; /* of row i and column j: the one at their remainder of 3 */
    double spoiled;                     /* an element of either operand; 0: none */
    int spread;                         /* of the elements of a row of A; B has the opposite */
    bool zeros;                         /* a row and a column are zero */
    bool ordinary, plain;               /* in range without scaling; not even with it */
} kinds[] = {
    {.name = "ordinary", .ordinary = true},
    {.name = "tiny rows", .a_exponents = {-100, -100, -100}, .b_exponents = {40, 0, 7}},
    {.name = "graded rows",
     .a_exponents = {-120, 100, 3},
     .b_exponents = {0, 10, -5},
     .zeros = true},
    {.name = "graded columns", .a_exponents = {0, 2, -20}, .b_exponents = {-120, 0, 100}},
    {.name = "denormal rows", .a_exponents = {-130, -140, -149}, .b_exponents = {60, 90, 120}},
    {.name = "overflow", .a_exponents = {100, 0, 127}, .b_exponents = {70, 80, 0}},
    {.name = "underflow", .a_exponents = {-90, -70, -100}, .b_exponents = {-40, -60, -70}},
    {.name = "spread", .a_exponents = {60, 0, 60}, .b_exponents = {0, -60, 0}, .spread = 90},
    {.name = "too wide a spread", .a_exponents = {60, 60, 60}, .spread = 120, .plain = true},
    {.name = "NaN", .a_exponents = {-100, 60, 0}, .spoiled = NAN, .plain = true},
    {.name = "infinity", .b_exponents = {-100, 20, 0}, .spoiled = -INFINITY, .plain = true},
};

static void scale_row(struct matrix *x, bool by_rows, size_t i, const int exponents[3], int spread,
                      bool zero)
{
    size_t depth = by_rows ? x->cols : x->rows;
    for (size_t p = 0; p < depth; p++) {
        size_t row = by_rows ? i : p, col = by_rows ? p : i;
        int exponent = exponents[i % 3] - (p % 2 != 0 ? spread : 0);
        matrix_set(x, row, col, zero ? 0 : ldexp(matrix_get(x, row, col), exponent));
    }
}

static void set_operands(struct gemm_case *g, const struct kind *kind, uint64_t *seed)
{
    static const int rest[] = {0, 0, 0};
    for (size_t i = 0; i < g->m; i++)
        scale_row(&g->a, g->transa == CLB_OP_N, i, kind->a_exponents, kind->spread,
                  kind->zeros && i == g->m / 2);
    for (size_t j = 0; j < g->n; j++) {
        scale_row(&g->b, g->transb != CLB_OP_N, j, kind->b_exponents, 0,
                  kind->zeros && j == g->n / 2);
        scale_row(&g->b, g->transb != CLB_OP_N, j, rest, -kind->spread, false);
    }
    /* In the first row or column, because the plain family can't go on in the middle. */
    size_t depth = random_below(seed, g->k);
    if (kind->spoiled != 0 && random_below(seed, 2))
        matrix_set(&g->a, g->transa == CLB_OP_N ? 0 : depth, g->transa == CLB_OP_N ? depth : 0,
                   kind->spoiled);
    else if (kind->spoiled != 0)
        matrix_set(&g->b, g->transb == CLB_OP_N ? depth : 0, g->transb == CLB_OP_N ? 0 : depth,
                   kind->spoiled);
    matrix_remember(&g->a);
    matrix_remember(&g->b);
}

/* Results that are far out of range on either side: infinity of the sum's sign, or of that of the
 * first slabs, or a denormal that was rounded once for each slab. */
static void check_ends(const struct gemm_case *g, const char *name)
{
    for (size_t e = 0; g->beta == 0 && g->alpha == 1 && e < g->m * g->n; e++) {
        size_t i = e % g->m, j = e / g->m;
        double sum = 0, size = 0, got = matrix_get(&g->c, i, j);
        for (size_t p = 0; p < g->k; p++) {
            sum += gemm_a(g, i, p) * gemm_b(g, p, j);
            size += fabs(gemm_a(g, i, p) * gemm_b(g, p, j));
        }
        double slack = 0x1p-24 * size * (double)g->k, slabs = (double)g->k / SLAB + 1;
        if (fabs(sum) - slack >= 0x1p128)
            expect(isinf(got) && (g->k > SLAB || (got > 0) == (sum > 0)),
                   "%s: (%zu,%zu) = %g, expected %g", name, i, j, got, sum);
        if (size < 0x1p-126)
            expect(fabs(got - sum) <= slack + 0x1p-150 * slabs, "%s: (%zu,%zu) = %g, expected %g",
                   name, i, j, got, sum);
    }
}

static void run_once(struct clb_runtime *runtime, const struct kind *kind, clb_op transa,
                     clb_op transb, uint64_t *seed)
{
    static const double factors[] = {1, 1, 0.75, -1};
    struct gemm_case g = {.precision = CLB_S,
                          .transa = transa,
                          .transb = transb,
                          .m = 30 + random_below(seed, 60),
                          .n = 10 + random_below(seed, 50),
                          .k = 33 + random_below(seed, 140),
                          .alpha = factors[random_below(seed, 4)],
                          .beta = random_below(seed, 2) ? 0 : factors[random_below(seed, 4)]};
    const struct clb_gemm_variant *variant;
    struct clb_gemm_progress progress;
    char name[96];
    gemm_make(&g, seed, 5);
    set_operands(&g, kind, seed);
    snprintf(name, sizeof name, "%s %c%c %zux%zux%zu alpha=%g beta=%g", kind->name, "NTC"[transa],
             "NTC"[transb], g.m, g.n, g.k, g.alpha, g.beta);
    const struct clb_gemm problem = gemm_problem(&g);
    if (!expect(clb_gemm_variant_get(runtime, CLB_S, &variant) == CLB_OK && variant->split,
                "no variant of a split family"))
        return;
    clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
    if (expect(status == CLB_OK, "%s: %s", name, clb_status_name(status))) {
        const char *want = kind->plain      ? variant->plain->name
                           : kind->ordinary ? variant->name
                                            : variant->scaled->name;
        expect(strcmp(progress.kernel, want) == 0, "%s: computed by %s, expected %s", name,
               progress.kernel, want);
        gemm_check(&g, name);
        if (!kind->plain)
            check_ends(&g, name);
    }
    clb_gemm_progress_free(&progress);
    gemm_free(&g);
}

static void body(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    const int rounds = tap_rounds(3);
    struct clb_runtime *runtime =
        fake_cl_start(FAMILY, "gemm.tile=min,gemm.emulate=1,gemm.min_k=32,gemm.threads=2", false);
    for (int round = 0; round < rounds && runtime != NULL; round++) {
        for (size_t i = 0; i < CLB_COUNT_OF(kinds); i++) {
            for (int ops = 0; ops < 4; ops++)
                run_once(runtime, &kinds[i], (clb_op)(ops / 2), (clb_op)(ops % 2), &seed);
        }
    }
}

/* An element that needs scaling is found when other strips have been written: both parts of C are
 * right, with any number of bands. */
static void late(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    struct clb_runtime *runtime = fake_cl_start(
        FAMILY, "gemm.tile=min,gemm.emulate=1,gemm.min_k=32,gemm.threads=2,gemm.parts=2", false);
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, CLB_S);
    if (variant == NULL)
        return;
    for (int i = 0; i < 6; i++) {
        struct gemm_case g = {
            .precision = CLB_S, .m = 150, .n = 100, .k = 64 + 64 * (size_t)(i % 3), .alpha = 1};
        struct clb_gemm_progress progress;
        gemm_make(&g, &seed, 3);
        matrix_set(&g.a, g.m - 1, i % 2 != 0 ? g.k - 1 : 0, 0x1p70);
        matrix_remember(&g.a);
        const struct clb_gemm problem = gemm_problem(&g);
        clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
        expect(status == CLB_OK && strcmp(progress.kernel, variant->scaled->name) == 0, "%s, by %s",
               clb_status_name(status), progress.kernel);
        gemm_check(&g, "a late element");
        clb_gemm_progress_free(&progress);
        gemm_free(&g);
    }
}

int main(void)
{
    uint64_t seed = tap_seed();
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    tap_child("rows and columns of extreme scale", 200, body, &seed);
    tap_child("an element of extreme scale among the last", 100, late, &seed);
    return tap_done();
}
