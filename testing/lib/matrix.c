/* Operands with guard bands, and the reference. SPDX-License-Identifier: BSD-3-Clause */
#include "matrix.h"

#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 1024

/* NaN as a float and in pairs as a double. */
static const uint32_t poison = 0xfff8deadu;

/* Not clb_precision_size: this file also serves programs that have the shim as a library only. */
static size_t size_of(clb_precision precision)
{
    return precision == CLB_S ? sizeof(float) : sizeof(double);
}

void matrix_make(struct matrix *x, clb_precision precision, size_t rows, size_t cols, size_t ld,
                 size_t unaligned)
{
    size_t size = size_of(precision);
    size_t inner = rows == 0 || cols == 0 ? 0 : ((cols - 1) * ld + rows) * size;
    *x = (struct matrix){.precision = precision,
                         .rows = rows,
                         .cols = cols,
                         .ld = ld,
                         .shift = GUARD + unaligned * size};
    x->bytes = clb_round_up(x->shift + inner + GUARD, 64);
    x->memory = aligned_alloc(64, x->bytes);
    x->snapshot = malloc(x->bytes);
    if (x->memory == NULL || x->snapshot == NULL)
        abort();
    for (size_t i = 0; i < x->bytes; i += sizeof poison)
        memcpy(x->memory + i, &poison, sizeof poison);
}

void matrix_free(struct matrix *x)
{
    free(x->memory);
    free(x->snapshot);
    *x = (struct matrix){0};
}

void *matrix_data(const struct matrix *x)
{
    return x->memory + x->shift;
}

static double get_element(clb_precision precision, const void *data, size_t index)
{
    return precision == CLB_S ? (double)((const float *)data)[index]
                              : ((const double *)data)[index];
}

double matrix_get(const struct matrix *x, size_t i, size_t j)
{
    return get_element(x->precision, matrix_data(x), i + j * x->ld);
}

void matrix_set(struct matrix *x, size_t i, size_t j, double value)
{
    if (x->precision == CLB_S)
        ((float *)matrix_data(x))[i + j * x->ld] = (float)value;
    else
        ((double *)matrix_data(x))[i + j * x->ld] = value;
}

void matrix_fill(struct matrix *x, uint64_t *seed)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            matrix_set(x, i, j, random_uniform(seed));
    }
}

void matrix_remember(struct matrix *x)
{
    memcpy(x->snapshot, x->memory, x->bytes);
}

bool matrix_intact(const struct matrix *x)
{
    return memcmp(x->snapshot, x->memory, x->bytes) == 0;
}

bool matrix_gaps_intact(const struct matrix *x)
{
    size_t size = size_of(x->precision), at = 0;
    for (size_t j = 0; x->rows > 0 && j < x->cols; j++) {
        size_t begin = x->shift + j * x->ld * size;
        if (memcmp(x->snapshot + at, x->memory + at, begin - at) != 0)
            return false;
        at = begin + x->rows * size;
    }
    return memcmp(x->snapshot + at, x->memory + at, x->bytes - at) == 0;
}

/* ---- GEMM ---- */

void gemm_make(struct gemm_case *g, uint64_t *seed, size_t pad)
{
    size_t rows_a = g->transa == CLB_OP_N ? g->m : g->k,
           cols_a = g->transa == CLB_OP_N ? g->k : g->m;
    size_t rows_b = g->transb == CLB_OP_N ? g->k : g->n,
           cols_b = g->transb == CLB_OP_N ? g->n : g->k;
    matrix_make(&g->a, g->precision, rows_a, cols_a,
                clb_max(rows_a, 1) + random_below(seed, pad + 1), random_below(seed, 8));
    matrix_make(&g->b, g->precision, rows_b, cols_b,
                clb_max(rows_b, 1) + random_below(seed, pad + 1), random_below(seed, 8));
    matrix_make(&g->c, g->precision, g->m, g->n, clb_max(g->m, 1) + random_below(seed, pad + 1),
                random_below(seed, 8));
    g->alpha_s = (float)g->alpha;
    g->beta_s = (float)g->beta;
    matrix_fill(&g->a, seed);
    matrix_fill(&g->b, seed);
    matrix_fill(&g->c, seed);
    matrix_remember(&g->a);
    matrix_remember(&g->b);
    matrix_remember(&g->c);
}

struct clb_gemm gemm_problem(const struct gemm_case *g)
{
    const bool single = g->precision == CLB_S;
    return (struct clb_gemm){
        .precision = g->precision,
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .terms = 1,
        .a = {{.data = matrix_data(&g->a), .ld = g->a.ld, .op = g->transa}},
        .b = {{.data = matrix_data(&g->b), .ld = g->b.ld, .op = g->transb}},
        .alpha = {single ? (clb_scalar){.s = {g->alpha_s}} : (clb_scalar){.d = {g->alpha}}},
        .beta = single ? (clb_scalar){.s = {g->beta_s}} : (clb_scalar){.d = {g->beta}},
        .c = matrix_data(&g->c),
        .ldc = g->c.ld};
}

void gemm_free(struct gemm_case *g)
{
    matrix_free(&g->a);
    matrix_free(&g->b);
    matrix_free(&g->c);
}

double gemm_a(const struct gemm_case *g, size_t i, size_t p)
{
    return g->transa == CLB_OP_N ? matrix_get(&g->a, i, p) : matrix_get(&g->a, p, i);
}

double gemm_b(const struct gemm_case *g, size_t p, size_t j)
{
    return g->transb == CLB_OP_N ? matrix_get(&g->b, p, j) : matrix_get(&g->b, j, p);
}

static double old_c(const struct gemm_case *g, size_t i, size_t j)
{
    return get_element(g->precision, g->c.snapshot + g->c.shift, i + j * g->c.ld);
}

/* The entry's defining sum, and the sum of its terms' absolute values. alpha = 0 and beta = 0 read
 * nothing, as BLAS has it. */
static long double sum_entry(const struct gemm_case *g, const long double *a, const long double *b,
                             size_t i, size_t j, long double *size)
{
    long double sum = 0;
    *size = 0;
    for (size_t p = 0; g->alpha != 0 && p < g->k; p++) {
        long double term = a[p] * b[p];
        sum += term;
        *size += fabsl(term);
    }
    sum *= g->alpha;
    *size *= fabsl((long double)g->alpha);
    if (g->beta != 0) {
        long double term = (long double)g->beta * old_c(g, i, j);
        sum += term;
        *size += fabsl(term);
    }
    return sum;
}

static bool check_entry(const struct gemm_case *g, size_t i, size_t j, long double sum,
                        long double size, const char *what)
{
    bool single = g->precision == CLB_S;
    long double u = single ? 0x1p-24L : 0x1p-53L, tiny = single ? 0x1p-148L : 0x1p-1073L;
    long double limit = single ? 0x1p127L : 0x1p1023L;
    double got = matrix_get(&g->c, i, j);
    if (!(size < limit)) {
        /* A finite size up here may or may not overflow on the way. */
        return expect(!isfinite(got) || isfinite(size),
                      "%s: C(%zu,%zu) = %g, expected no finite value", what, i, j, got);
    }
    long double error = fabsl((long double)got - sum), depth = (long double)g->k + 4;
    return expect(error <= depth * (u * size + tiny),
                  "%s: C(%zu,%zu) = %.17g, expected %.17Lg (%.3Lg of u|A||B|)", what, i, j, got,
                  sum, error / (u * size));
}

/* Terms of a product that are summed at most: of larger products some columns are left out. */
#define MOST_TERMS 4e6

bool gemm_check(const struct gemm_case *g, const char *what)
{
    bool good = true;
    const double terms = (double)g->m * (double)g->n * (double)g->k;
    const size_t step = terms > MOST_TERMS ? (size_t)ceil(terms / MOST_TERMS) : 1;
    long double *a = malloc((g->k + 1) * (g->m + 1) * sizeof *a);
    long double *b = malloc((g->k + 1) * sizeof *b);
    if (a == NULL || b == NULL)
        abort();
    for (size_t i = 0; i < g->m; i++) {
        for (size_t p = 0; p < g->k; p++)
            a[i * g->k + p] = gemm_a(g, i, p);
    }
    for (size_t turn = 0; turn < g->n; turn += step) {
        const size_t j = turn + step < g->n ? turn : g->n - 1;
        for (size_t p = 0; p < g->k; p++)
            b[p] = gemm_b(g, p, j);
        for (size_t i = 0; i < g->m; i++) {
            long double size, sum = sum_entry(g, a + i * g->k, b, i, j, &size);
            good = check_entry(g, i, j, sum, size, what) && good;
        }
    }
    free(a);
    free(b);
    good = expect(matrix_gaps_intact(&g->c), "%s: written outside of C", what) && good;
    good = expect(matrix_intact(&g->a) && matrix_intact(&g->b), "%s: A or B written", what) && good;
    return good;
}

static void set_element(clb_precision precision, void *data, size_t index, double value)
{
    if (precision == CLB_S)
        ((float *)data)[index] = (float)value;
    else
        ((double *)data)[index] = value;
}

void gemm_plain(clb_precision precision, clb_op transa, clb_op transb, size_t m, size_t n, size_t k,
                const void *alpha, const void *a, size_t lda, const void *b, size_t ldb,
                const void *beta, void *c, size_t ldc)
{
    double factor = get_element(precision, alpha, 0), keep = get_element(precision, beta, 0);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) {
            double sum = 0;
            for (size_t p = 0; factor != 0 && p < k; p++)
                sum += get_element(precision, a, transa == CLB_OP_N ? i + p * lda : p + i * lda) *
                       get_element(precision, b, transb == CLB_OP_N ? p + j * ldb : j + p * ldb);
            sum *= factor;
            if (keep != 0)
                sum += keep * get_element(precision, c, i + j * ldc);
            set_element(precision, c, i + j * ldc, sum);
        }
    }
}
