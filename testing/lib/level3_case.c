/* Problems of Level 3 and their results by plain loops. SPDX-License-Identifier: BSD-3-Clause */
#include "level3_case.h"

#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[LEVEL3_ROUTINES] = {"symm",  "hemm",  "syrk", "herk",
                                                   "syr2k", "her2k", "trmm", "gemmtr"};

/* ---- making ---- */

static clb_scalar scalar(clb_precision precision, double re, double im)
{
    clb_scalar x = {{0}};
    if (clb_precision_real_size(precision) == sizeof(float)) {
        x.s[0] = (float)re;
        x.s[1] = (float)im;
    } else {
        x.d[0] = re;
        x.d[1] = im;
    }
    return x;
}

static void spoil_operand(struct dense *x, const struct clb_gemm_operand *operand)
{
    for (size_t j = 0; j < x->cols && operand->shape != CLB_STRUCTURE_GENERAL; j++) {
        for (size_t i = 0; i < x->rows; i++) {
            if (operand->upper ? i > j : i < j)
                dense_set(x, i, j, dense_number(NAN, NAN));
        }
        if (operand->shape == CLB_STRUCTURE_HERMITIAN)
            dense_set(x, j, j, dense_number(creall(dense_get(x, j, j)), NAN));
        if (operand->unit)
            dense_set(x, j, j, dense_number(NAN, NAN));
    }
    dense_remember(x);
}

static struct clb_gemm_operand operand(const struct dense *x, clb_op op)
{
    return (struct clb_gemm_operand){.data = dense_data(x), .ld = x->ld, .op = op};
}

/* Rows and columns of what is stored for a w x k operand. */
static void make_general(struct dense *x, clb_precision precision, size_t rows, size_t cols,
                         bool transposed, uint64_t *seed)
{
    dense_make(x, precision, transposed ? cols : rows, transposed ? rows : cols, 5, seed);
}

static void make_one_sided(struct level3_case *x, clb_structure shape, uint64_t *seed)
{
    struct clb_gemm *p = &x->problem;
    bool right = random_below(seed, 2), triangular = shape == CLB_STRUCTURE_TRIANGULAR;
    p->k = right ? p->n : p->m;
    dense_make(&x->a, p->precision, p->k, p->k, 5, seed);
    dense_make(&x->b, p->precision, p->m, p->n, 5, seed);
    struct clb_gemm_operand a =
        operand(&x->a, triangular ? (clb_op)random_below(seed, 3) : CLB_OP_N);
    a.shape = shape;
    a.upper = random_below(seed, 2);
    a.unit = triangular && random_below(seed, 2);
    spoil_operand(&x->a, &a);
    p->a[0] = right ? operand(&x->b, CLB_OP_N) : a;
    p->b[0] = right ? a : operand(&x->b, CLB_OP_N);
    p->in_place = triangular;
    snprintf(x->name, sizeof x->name, "%s%s%s%s op %d", names[x->routine],
             right ? " right" : " left", a.upper ? " upper" : " lower", a.unit ? " unit" : "",
             (int)a.op);
}

static void make_two_sided(struct level3_case *x, clb_op other, uint64_t *seed)
{
    struct clb_gemm *p = &x->problem;
    bool transposed = random_below(seed, 2);
    p->m = p->n;
    make_general(&x->a, p->precision, p->n, p->k, transposed, seed);
    make_general(&x->b, p->precision, p->n, p->k, transposed, seed);
    const struct dense *second =
        x->routine == LEVEL3_SYR2K || x->routine == LEVEL3_HER2K ? &x->b : &x->a;
    p->a[0] = operand(&x->a, transposed ? other : CLB_OP_N);
    p->b[0] = operand(second, transposed ? CLB_OP_N : other);
    p->a[1] = operand(second, transposed ? other : CLB_OP_N);
    p->b[1] = operand(&x->a, transposed ? CLB_OP_N : other);
    p->terms = second == &x->b ? 2 : 1;
    p->real_diagonal = x->routine == LEVEL3_HERK || x->routine == LEVEL3_HER2K;
    p->region = random_below(seed, 2) ? CLB_REGION_UPPER : CLB_REGION_LOWER;
    snprintf(x->name, sizeof x->name, "%s%s%s", names[x->routine],
             p->region == CLB_REGION_UPPER ? " upper" : " lower", transposed ? " transposed" : "");
}

static void make_gemmtr(struct level3_case *x, uint64_t *seed)
{
    struct clb_gemm *p = &x->problem;
    clb_op a = (clb_op)random_below(seed, 3), b = (clb_op)random_below(seed, 3);
    p->m = p->n;
    make_general(&x->a, p->precision, p->n, p->k, a != CLB_OP_N, seed);
    make_general(&x->b, p->precision, p->k, p->n, b != CLB_OP_N, seed);
    p->a[0] = operand(&x->a, a);
    p->b[0] = operand(&x->b, b);
    p->region = random_below(seed, 2) ? CLB_REGION_UPPER : CLB_REGION_LOWER;
    snprintf(x->name, sizeof x->name, "gemmtr%s op %d op %d",
             p->region == CLB_REGION_UPPER ? " upper" : " lower", (int)a, (int)b);
}

bool level3_in_region(const struct level3_case *x, size_t i, size_t j)
{
    return x->problem.region == CLB_REGION_FULL ||
           (x->problem.region == CLB_REGION_UPPER ? i <= j : i >= j);
}

static void make_c(struct level3_case *x, bool clear, uint64_t *seed)
{
    struct clb_gemm *p = &x->problem;
    dense_make(&x->c, p->precision, p->m, p->n, 5, seed);
    for (size_t j = 0; j < p->n; j++) {
        for (size_t i = 0; i < p->m; i++) {
            if (clear || !level3_in_region(x, i, j))
                dense_set(&x->c, i, j, dense_number(NAN, NAN));
            else if (i == j && p->real_diagonal)
                dense_set(&x->c, i, j, dense_number(creall(dense_get(&x->c, i, j)), NAN));
        }
    }
    dense_remember(&x->c);
    p->c = dense_data(&x->c);
    p->ldc = x->c.ld;
}

void level3_make(struct level3_case *x, level3_routine routine, clb_precision precision,
                 size_t largest, uint64_t *seed)
{
    struct clb_gemm *p = &x->problem;
    bool real = clb_precision_parts(precision) == 1, clear = random_below(seed, 4) == 0;
    *x = (struct level3_case){.routine = routine,
                              .problem = {.precision = precision,
                                          .m = 1 + random_below(seed, largest),
                                          .n = 1 + random_below(seed, largest),
                                          .k = 1 + random_below(seed, largest),
                                          .terms = 1}};
    if (routine == LEVEL3_SYMM || routine == LEVEL3_HEMM)
        make_one_sided(
            x, routine == LEVEL3_SYMM ? CLB_STRUCTURE_SYMMETRIC : CLB_STRUCTURE_HERMITIAN, seed);
    else if (routine == LEVEL3_TRMM)
        make_one_sided(x, CLB_STRUCTURE_TRIANGULAR, seed);
    else if (routine == LEVEL3_GEMMTR)
        make_gemmtr(x, seed);
    else
        make_two_sided(x, routine == LEVEL3_HERK || routine == LEVEL3_HER2K ? CLB_OP_C : CLB_OP_T,
                       seed);
    bool real_alpha = real || routine == LEVEL3_HERK, hermitian = p->real_diagonal;
    double re = random_uniform(seed), im = real_alpha ? 0 : random_uniform(seed);
    p->alpha[0] = scalar(precision, re, im);
    p->alpha[1] = scalar(precision, re, hermitian ? -im : im);
    clear = clear && !p->in_place;
    p->beta = scalar(precision, clear || p->in_place ? 0 : random_uniform(seed),
                     real || hermitian || clear || p->in_place ? 0 : random_uniform(seed));
    if (p->in_place) {
        p->c = dense_data(&x->b);
        p->ldc = x->b.ld;
    } else {
        make_c(x, clear, seed);
    }
}

void level3_free(struct level3_case *x)
{
    dense_free(&x->a);
    dense_free(&x->b);
    if (!x->problem.in_place)
        dense_free(&x->c);
}

static const struct dense *result_of(const struct level3_case *x)
{
    return x->problem.in_place ? &x->b : &x->c;
}

void level3_restore(struct level3_case *x)
{
    const struct matrix *c = &result_of(x)->real;
    memcpy(c->memory, c->snapshot, c->bytes);
}

/* ---- the result ---- */

/* Element (i, j) of op(X), from what was there before. */
static number element(const struct level3_case *x, const struct clb_gemm_operand *operand, size_t i,
                      size_t j)
{
    const struct dense *matrix = operand->data == dense_data(&x->a) ? &x->a : &x->b;
    size_t row = operand->op == CLB_OP_N ? i : j, col = operand->op == CLB_OP_N ? j : i;
    bool other = operand->upper ? row > col : row < col;
    number value;
    if (operand->shape == CLB_STRUCTURE_GENERAL || !other)
        value = dense_old(matrix, row, col);
    else if (operand->shape == CLB_STRUCTURE_TRIANGULAR)
        value = 0;
    else
        value = dense_old(matrix, col, row);
    if (operand->shape == CLB_STRUCTURE_HERMITIAN && row == col)
        value = creall(value);
    else if (operand->shape == CLB_STRUCTURE_HERMITIAN && other)
        value = conjl(value);
    if (operand->unit && row == col)
        value = 1;
    return operand->op == CLB_OP_C ? conjl(value) : value;
}

/* What an entry should be, and the size of what it is the sum of. */
static number expected(const struct level3_case *x, size_t i, size_t j, long double *size)
{
    const struct clb_gemm *p = &x->problem;
    const number beta = dense_scalar(p->precision, &p->beta);
    number sum = 0;
    *size = 0;
    if (beta != 0) {
        number old = dense_old(&x->c, i, j);
        old = p->real_diagonal && i == j ? creall(old) : old;
        sum = beta * old;
        *size = cabsl(sum);
    }
    for (size_t t = 0; t < p->terms; t++) {
        const number alpha = dense_scalar(p->precision, &p->alpha[t]);
        for (size_t q = 0; q < p->k; q++) {
            const number a = element(x, &p->a[t], i, q), b = element(x, &p->b[t], q, j);
            const number term = dense_times(dense_times(alpha, a), b);
            sum += term;
            *size += dense_abs(term);
        }
    }
    return p->real_diagonal && i == j ? creall(sum) : sum;
}

static bool same_bits(const struct dense *x, size_t i, size_t j)
{
    size_t element = clb_precision_size(x->precision);
    size_t at =
        (size_t)((unsigned char *)dense_data(x) - x->real.memory) + (i + j * x->ld) * element;
    return memcmp(x->real.memory + at, x->real.snapshot + at, element) == 0;
}

void level3_check_part(const struct level3_case *x, const struct clb_rect *part, bool written,
                       const char *what)
{
    const struct clb_gemm *p = &x->problem;
    const struct dense *c = result_of(x);
    size_t parts = clb_precision_parts(p->precision);
    for (size_t j = part->col; j < part->col + part->cols; j++) {
        for (size_t i = part->row; i < part->row + part->rows; i++) {
            if (!written || !level3_in_region(x, i, j)) {
                expect(same_bits(c, i, j), "%s: %s: (%zu, %zu) was written", what, x->name, i, j);
                continue;
            }
            long double size;
            const number want = expected(x, i, j, &size), got = dense_get(c, i, j);
            long double bound =
                (long double)(parts * (p->terms * p->k + 6)) * dense_unit(p->precision) * size;
            bool real = !p->real_diagonal || i != j || cimagl(got) == 0;
            expect(cabsl(got - want) <= bound && real,
                   "%s: %s m %zu n %zu k %zu: (%zu, %zu) is %Lg%+Lgi, not %Lg%+Lgi", what, x->name,
                   p->m, p->n, p->k, i, j, creall(got), cimagl(got), creall(want), cimagl(want));
        }
    }
}

static bool is_promised(const struct level3_case *x, const struct clb_rect *r)
{
    const struct clb_gemm *p = &x->problem;
    if (p->in_place && p->b[0].data == p->c && (r->row != 0 || r->rows != p->m))
        return false;
    if (p->in_place && p->a[0].data == p->c && (r->col != 0 || r->cols != p->n))
        return false;
    if (p->region == CLB_REGION_UPPER)
        return (r->row == r->col && r->rows == r->cols) || r->row + r->rows <= r->col + 1;
    if (p->region == CLB_REGION_LOWER)
        return (r->row == r->col && r->rows == r->cols) || r->col + r->cols <= r->row + 1;
    return true;
}

void level3_check_rest(const struct level3_case *x, const struct clb_gemm_progress *progress,
                       const char *what)
{
    const struct clb_gemm *p = &x->problem;
    unsigned char *count = calloc(p->m, p->n);
    bool once = true;
    for (size_t q = 0; q < progress->parts; q++) {
        const struct clb_rect *r = &progress->part[q];
        expect(r->row + r->rows <= p->m && r->col + r->cols <= p->n && is_promised(x, r),
               "%s: %s: part (%zu, %zu) %zux%zu of %zux%zu", what, x->name, r->row, r->col, r->rows,
               r->cols, p->m, p->n);
        for (size_t j = r->col; j < r->col + r->cols && j < p->n; j++) {
            for (size_t i = r->row; i < r->row + r->rows && i < p->m; i++)
                count[i + j * p->m]++;
        }
    }
    for (size_t j = 0; j < p->n; j++) {
        for (size_t i = 0; i < p->m; i++) {
            bool inside = level3_in_region(x, i, j);
            once = once && (inside ? count[i + j * p->m] == 1 : count[i + j * p->m] <= 1);
            expect(inside || same_bits(result_of(x), i, j), "%s: %s: (%zu, %zu) was written", what,
                   x->name, i, j);
        }
    }
    expect(once || progress->parts == 0, "%s: %s: not covered once", what, x->name);
    expect(dense_intact(&x->a) && (x->problem.in_place || dense_intact(&x->b)) &&
               dense_gaps_intact(result_of(x)),
           "%s: %s: something else was written", what, x->name);
    free(count);
}
