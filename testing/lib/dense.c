/* Matrices of all precisions, and LAPACK by plain loops. SPDX-License-Identifier: BSD-3-Clause */
#include "dense.h"

#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Atomic size_t dense_next_entries;

static size_t parts(clb_precision precision)
{
    return clb_precision_parts(precision);
}

void dense_make(struct dense *x, clb_precision precision, size_t rows, size_t cols, size_t pad,
                uint64_t *seed)
{
    size_t ld = rows + random_below(seed, pad + 1);
    bool single = clb_precision_real_size(precision) == sizeof(float);
    *x = (struct dense){.precision = precision, .rows = rows, .cols = cols, .ld = ld};
    matrix_make(&x->real, single ? CLB_S : CLB_D, rows * parts(precision), cols,
                ld * parts(precision), random_below(seed, 4));
    matrix_fill(&x->real, seed);
    matrix_remember(&x->real);
}

void dense_free(struct dense *x)
{
    matrix_free(&x->real);
}

void *dense_data(const struct dense *x)
{
    return matrix_data(&x->real);
}

number dense_get(const struct dense *x, size_t i, size_t j)
{
    if (parts(x->precision) == 1)
        return matrix_get(&x->real, i, j);
    return dense_number(matrix_get(&x->real, 2 * i, j), matrix_get(&x->real, 2 * i + 1, j));
}

number dense_old(const struct dense *x, size_t i, size_t j)
{
    struct dense old = *x;
    old.real.memory = x->real.snapshot;
    return dense_get(&old, i, j);
}

void dense_set(struct dense *x, size_t i, size_t j, number value)
{
    if (parts(x->precision) == 1) {
        matrix_set(&x->real, i, j, (double)creall(value));
    } else {
        matrix_set(&x->real, 2 * i, j, (double)creall(value));
        matrix_set(&x->real, 2 * i + 1, j, (double)cimagl(value));
    }
}

void dense_remember(struct dense *x)
{
    matrix_remember(&x->real);
}

void dense_restore(struct dense *x, size_t first)
{
    struct dense old = *x;
    size_t element = clb_precision_size(x->precision);
    old.real.memory = x->real.snapshot;
    for (size_t j = first; j < x->cols; j++)
        memcpy((char *)dense_data(x) + j * x->ld * element,
               (char *)dense_data(&old) + j * x->ld * element, x->rows * element);
}

void dense_set_adjoint(struct dense *x, const struct dense *y)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            dense_set(x, i, j, conjl(dense_get(y, j, i)));
    }
}

bool dense_gaps_intact(const struct dense *x)
{
    return matrix_gaps_intact(&x->real);
}

bool dense_intact(const struct dense *x)
{
    return matrix_intact(&x->real);
}

long double dense_unit(clb_precision precision)
{
    return clb_precision_real_size(precision) == sizeof(float) ? 0x1p-24L : 0x1p-53L;
}

/* ---- the next library ---- */

/* Any memory as a matrix. */
struct view {
    clb_precision precision;
    void *data;
    size_t ld;
};

static number get(const struct view *x, size_t i, size_t j)
{
    size_t at = (i + j * x->ld) * parts(x->precision);
    switch (x->precision) {
    case CLB_S:
        return ((const float *)x->data)[at];
    case CLB_D:
        return ((const double *)x->data)[at];
    case CLB_C:
        return dense_number(((const float *)x->data)[at], ((const float *)x->data)[at + 1]);
    default:
        return dense_number(((const double *)x->data)[at], ((const double *)x->data)[at + 1]);
    }
}

static void put(const struct view *x, size_t i, size_t j, number value)
{
    size_t at = (i + j * x->ld) * parts(x->precision);
    bool pair = parts(x->precision) > 1;
    if (clb_precision_real_size(x->precision) == sizeof(float)) {
        ((float *)x->data)[at] = (float)creall(value);
        if (pair)
            ((float *)x->data)[at + 1] = (float)cimagl(value);
    } else {
        ((double *)x->data)[at] = (double)creall(value);
        if (pair)
            ((double *)x->data)[at + 1] = (double)cimagl(value);
    }
}

number dense_at(clb_precision precision, const void *data, size_t ld, size_t i, size_t j)
{
    const struct view view = {precision, (void *)(uintptr_t)data, ld};
    return get(&view, i, j);
}

void dense_store(clb_precision precision, void *data, size_t ld, size_t i, size_t j, number value)
{
    const struct view view = {precision, data, ld};
    put(&view, i, j, value);
}

static number times_conjugate(number x, number y)
{
    return dense_times(x, conjl(y));
}

static number get_op(const struct view *x, clb_op op, size_t i, size_t j)
{
    number e = op == CLB_OP_N ? get(x, i, j) : get(x, j, i);
    return op == CLB_OP_C ? conjl(e) : e;
}

/* A divisor or pivot may be zero, and C's complex arithmetic would make NaN of more than that. */
static number divide(number x, number y)
{
    return cimagl(y) == 0 ? dense_number(creall(x) / creall(y), cimagl(x) / creall(y)) : x / y;
}

number dense_scalar(clb_precision precision, const void *scalar)
{
    const struct view view = {precision, (void *)(uintptr_t)scalar, 1};
    return get(&view, 0, 0);
}

static size_t getrf(const struct clb_host_blas *host, const struct clb_call *call)
{
    const struct view x = {call->precision, call->a, call->lda};
    size_t info = 0, m = call->m, n = call->n;
    (void)host;
    dense_next_entries += m * n;
    for (size_t k = 0; k < clb_min(m, n); k++) {
        size_t pivot = k;
        for (size_t i = k + 1; i < m; i++) {
            if (dense_abs1(get(&x, i, k)) > dense_abs1(get(&x, pivot, k)))
                pivot = i;
        }
        ((int64_t *)call->ipiv)[k] = (int64_t)pivot + 1;
        if (get(&x, pivot, k) == 0) {
            info = info == 0 ? k + 1 : info;
            continue;
        }
        for (size_t j = 0; j < n; j++) {
            number held = get(&x, k, j);
            put(&x, k, j, get(&x, pivot, j));
            put(&x, pivot, j, held);
        }
        for (size_t i = k + 1; i < m; i++) {
            put(&x, i, k, divide(get(&x, i, k), get(&x, k, k)));
            for (size_t j = k + 1; j < n; j++)
                put(&x, i, j, get(&x, i, j) - dense_times(get(&x, i, k), get(&x, k, j)));
        }
    }
    return info;
}

/* T(i, p) of T*X = B, T lower triangular in the order `at`; see src/algo/trsm.c. */
size_t dense_trsm(const struct clb_host_blas *host, const struct clb_call *call)
{
    const struct view a = {call->precision, call->a, call->lda};
    const struct view b = {call->precision, call->b, call->ldb};
    number alpha = dense_scalar(call->precision, call->alpha);
    size_t n = call->right ? call->n : call->m;
    size_t rhs = call->right ? call->m : call->n;
    bool lower = call->upper == (call->transa != CLB_OP_N);
    bool forward = lower != call->right;
    number *t = malloc((n + 1) * n * sizeof *t), *x = t + n * n; /* T in the order of the steps */
    (void)host;
    if (t == NULL)
        abort();
    dense_next_entries += n * rhs;
    for (size_t k = 0; k < n; k++) {
        for (size_t q = 0; q <= k; q++) {
            size_t i = forward ? k : n - 1 - k, p = forward ? q : n - 1 - q;
            t[k * n + q] = q == k && call->unit ? 1
                           : call->right        ? get_op(&a, call->transa, p, i)
                                                : get_op(&a, call->transa, i, p);
        }
    }
    for (size_t r = 0; r < rhs; r++) {
        for (size_t k = 0; k < n; k++) {
            size_t i = forward ? k : n - 1 - k;
            size_t row = call->right ? r : i, col = call->right ? i : r;
            number sum = alpha * get(&b, row, col);
            for (size_t q = 0; q < k; q++)
                sum -= dense_times(t[k * n + q], x[q]);
            put(&b, row, col, call->unit ? sum : divide(sum, t[k * n + k]));
            x[k] = get(&b, row, col);
        }
    }
    free(t);
    return 0;
}

size_t dense_gemm(const struct clb_host_blas *host, const struct clb_call *call)
{
    const struct view a = {call->precision, call->a, call->lda};
    const struct view b = {call->precision, call->b, call->ldb};
    const struct view c = {call->precision, call->c, call->ldc};
    number alpha = dense_scalar(call->precision, call->alpha);
    number beta = dense_scalar(call->precision, call->beta);
    (void)host;
    dense_next_entries += call->m * call->n;
    for (size_t j = 0; j < call->n; j++) {
        for (size_t i = 0; i < call->m; i++) {
            number sum = 0;
            for (size_t p = 0; p < call->k; p++)
                sum += dense_times(get_op(&a, call->transa, i, p), get_op(&b, call->transb, p, j));
            put(&c, i, j, alpha * sum + (beta != 0 ? beta * get(&c, i, j) : 0));
        }
    }
    return 0;
}

static size_t potrf(const struct clb_host_blas *host, const struct clb_call *call)
{
    const struct view x = {call->precision, call->a, call->lda};
    clb_op op = call->upper ? CLB_OP_C : CLB_OP_N; /* L(i, j), wherever it is */
    (void)host;
    dense_next_entries += call->n * (call->n + 1) / 2;
    for (size_t j = 0; j < call->n; j++) {
        for (size_t i = j; i < call->n; i++) {
            number sum = i == j ? creall(get(&x, j, j)) : get_op(&x, op, i, j);
            for (size_t p = 0; p < j; p++)
                sum -= times_conjugate(get_op(&x, op, i, p), get_op(&x, op, j, p));
            if (i == j && !(creall(sum) > 0))
                return j + 1;
            number l = i == j ? sqrtl(creall(sum)) : divide(sum, get(&x, j, j));
            put(&x, call->upper ? j : i, call->upper ? i : j, call->upper ? conjl(l) : l);
        }
    }
    return 0;
}

size_t dense_potrs(const struct clb_host_blas *host, const struct clb_call *call)
{
    struct clb_call system = clb_call_as(call, CLB_KIND_trsm);
    system.m = call->n;
    system.n = call->nrhs;
    system.alpha = clb_scalar_of(call->precision, 1);
    for (int step = 0; step < 2; step++) {
        system.transa = (step == 0) == call->upper ? CLB_OP_C : CLB_OP_N;
        dense_trsm(host, &system);
    }
    return 0;
}

const struct clb_host_blas dense_next = {.of = {[CLB_KIND_gemm] = dense_gemm,
                                                [CLB_KIND_trsm] = dense_trsm,
                                                [CLB_KIND_potrf] = potrf,
                                                [CLB_KIND_potrs] = dense_potrs,
                                                [CLB_KIND_getrf] = getrf}};

struct clb_call dense_call(clb_kind kind, size_t m, size_t n, const struct dense *a)
{
    struct clb_call call = clb_call_of(clb_routine_of(kind, a->precision, false));
    call.m = m;
    call.n = n;
    call.a = dense_data(a);
    call.lda = a->ld;
    call.wide = true;
    return call;
}

struct clb_call dense_lq_call(clb_kind kind, size_t m, size_t n, const struct dense *a)
{
    struct clb_call call = dense_call(kind, n, m, a);
    call.routine = clb_routine_of(kind, a->precision, true);
    return call;
}

size_t dense_getrf(const struct dense *a, int64_t *ipiv)
{
    struct clb_call call = dense_call(CLB_KIND_getrf, a->rows, a->cols, a);
    call.ipiv = ipiv;
    return clb_host_call(&dense_next, &call);
}

/* ---- positive definite matrices ---- */

void dense_make_definite(struct dense *x, clb_precision precision, size_t n, size_t pad, bool upper,
                         int grading, uint64_t *seed)
{
    struct dense b;
    int *scale = malloc(n * sizeof *scale);
    if (scale == NULL)
        abort();
    dense_make(x, precision, n, n, pad, seed);
    dense_make(&b, precision, n, n, 0, seed);
    for (size_t i = 0; i < n; i++)
        scale[i] = (int)random_below(seed, 2 * (uint64_t)grading + 1) - grading;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            number sum = 0;
            if (i != j && (i > j) == upper) {
                dense_set(x, i, j, dense_number(NAN, NAN));
                continue;
            }
            for (size_t p = 0; p < n; p++)
                sum += times_conjugate(dense_get(&b, i, p), dense_get(&b, j, p));
            sum = sum / n + (i == j ? 0.05L : 0);
            sum *= ldexpl(1, scale[i] + scale[j]);
            dense_set(x, i, j, i == j ? dense_number(creall(sum), NAN) : sum);
        }
    }
    dense_remember(x);
    dense_free(&b);
    free(scale);
}

/* Whatever no factor is to be written to is as it was, bit by bit. */
static bool rest_is_intact(const struct dense *x, bool upper, size_t columns)
{
    struct dense old = *x;
    size_t element = clb_precision_size(x->precision);
    old.real.memory = x->real.snapshot;
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++) {
            size_t at = (i + j * x->ld) * element;
            bool factor = j < columns && (upper ? i <= j : i >= j);
            if (!factor &&
                memcmp((char *)dense_data(x) + at, (char *)dense_data(&old) + at, element) != 0)
                return false;
        }
    }
    return dense_gaps_intact(x);
}

bool dense_intact_bits(const struct dense *x)
{
    return rest_is_intact(x, false, 0);
}

/* The stated triangle's element (i, j) with i >= j, of what is remembered or of the factor. */
static number lower_of(const struct dense *x, bool upper, bool old, size_t i, size_t j)
{
    number (*const element)(const struct dense *, size_t, size_t) = old ? dense_old : dense_get;
    return upper ? conjl(element(x, j, i)) : element(x, i, j);
}

/* An element of a factor, and its absolute value. */
struct element {
    number value;
    long double size;
};

static struct element *make_elements(size_t count)
{
    struct element *elements = calloc(count, sizeof *elements);
    if (elements == NULL && count > 0)
        abort();
    return elements;
}

static struct element element(number value)
{
    return (struct element){value, dense_abs(value)};
}

/* The largest error yet; no number is worse than any. */
static long double worse(long double worst, number off, long double size, long double unit)
{
    long double error = dense_abs(off) / (size * unit);
    if (size == 0 || error <= worst)
        return worst;
    return isnan(error) ? INFINITY : error;
}

long double dense_cholesky_error(const struct dense *x, bool upper, size_t columns)
{
    /* Of U the columns above the diagonal are there, of L all rows. */
    const size_t rows = upper ? columns : x->rows;
    long double worst = 0;
    if (!rest_is_intact(x, upper, columns))
        return INFINITY;
    struct element *l = make_elements(rows * columns); /* by rows */
    bool *spoiled =
        calloc(rows + 1, sizeof *spoiled); /* A's row has NaN; its pivot is behind that */
    if (spoiled == NULL)
        abort();
    for (size_t i = 0; i < rows; i++) {
        for (size_t p = 0; p <= i && p < columns; p++)
            l[i * columns + p] = element(lower_of(x, upper, false, i, p));
    }
    for (size_t j = 0; j < columns; j++) {
        number pivot = l[j * columns + j].value;
        if (!spoiled[j] && (!(creall(pivot) > 0) || cimagl(pivot) != 0))
            worst = INFINITY;
        for (size_t i = j; i < rows; i++) {
            const struct element *li = &l[i * columns], *lj = &l[j * columns];
            number sum = lower_of(x, upper, true, i, j);
            sum = i == j ? creall(sum) : sum;
            spoiled[i] = spoiled[i] || (i != j && isnan(creall(sum)));
            if (spoiled[i])
                continue;
            long double size = dense_abs(sum);
            for (size_t p = 0; p <= j; p++) {
                sum -= times_conjugate(li[p].value, lj[p].value);
                size += li[p].size * lj[p].size;
            }
            worst = worse(worst, sum, size, dense_unit(x->precision) * (j + 4));
        }
    }
    free(spoiled);
    free(l);
    return worst;
}

/* ---- errors ---- */

long double dense_lu_error(const struct dense *x, const int64_t *ipiv)
{
    size_t m = x->rows, n = x->cols, inner = clb_min(m, n);
    size_t *row = malloc(m * sizeof *row);
    long double worst = 0;
    if (row == NULL)
        abort();
    for (size_t i = 0; i < m; i++)
        row[i] = i;
    for (size_t i = 0; i < inner; i++) {
        size_t other = (size_t)ipiv[i] - 1, held = row[i];
        if (ipiv[i] < (int64_t)i + 1 || other >= m) {
            free(row);
            return INFINITY;
        }
        row[i] = row[other];
        row[other] = held;
    }
    struct element *l = make_elements(m * inner), *u = make_elements(n * inner); /* columns of U */
    for (size_t i = 0; i < m; i++) {
        for (size_t p = 0; p <= i && p < inner; p++)
            l[i * inner + p] = element(p == i ? 1 : dense_get(x, i, p));
    }
    for (size_t j = 0; j < n; j++) {
        for (size_t p = 0; p <= j && p < inner; p++)
            u[j * inner + p] = element(dense_get(x, p, j));
    }
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) {
            const struct element *li = &l[i * inner], *uj = &u[j * inner];
            number sum = dense_old(x, row[i], j);
            long double size = dense_abs(sum);
            for (size_t p = 0; p <= clb_min(i, j); p++) {
                sum -= dense_times(li[p].value, uj[p].value);
                size += li[p].size * uj[p].size;
            }
            worst = worse(worst, sum, size, dense_unit(x->precision) * (inner + 4));
        }
    }
    free(l);
    free(u);
    free(row);
    return worst;
}
