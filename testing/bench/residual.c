/* Matrices and residuals, see residual.h. SPDX-License-Identifier: BSD-3-Clause */
#include "residual.h"

#include "bench.h"
#include "number.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

const char *const residual_kinds[RESIDUAL_KINDS] = {"random", "graded", "singular",
                                                    "growth", "upper",  "lower"};

int residual_threads = 1;

/* Calls one function by all threads, each with its own of the tasks. */
static void run_all(void *(*function)(void *), void *tasks, size_t size)
{
    pthread_t thread[RESIDUAL_MOST_THREADS];
    for (int t = 1; t < residual_threads; t++) {
        if (pthread_create(&thread[t], NULL, function, (char *)tasks + (size_t)t * size) != 0)
            bench_fail("no thread");
    }
    function(tasks);
    for (int t = 1; t < residual_threads; t++)
        pthread_join(thread[t], NULL);
}

/* ---- matrices ---- */

static bool is_single(int precision)
{
    return bench_real_size(precision) == sizeof(float);
}

static void put(int precision, void *column, size_t i, double re, double im)
{
    size_t parts = (size_t)bench_parts(precision);
    const double value[2] = {re, im};
    for (size_t part = 0; part < parts; part++) {
        if (is_single(precision))
            ((float *)column)[i * parts + part] = (float)value[part];
        else
            ((double *)column)[i * parts + part] = value[part];
    }
}

/* Where row i of a triangle is: a step through the rows that meets all of them. */
static size_t other_row(size_t n, size_t i)
{
    static const size_t steps[] = {7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61};
    size_t k = 0;
    while (n % steps[k] == 0)
        k++;
    return (i * steps[k] + 3) % n;
}

/* The element's size, by which a random number is multiplied. */
static double scale_of(const struct residual_matrix *matrix, size_t i, size_t j)
{
    double n = (double)matrix->n;
    switch (matrix->kind) {
    case RESIDUAL_GRADED:
        return ldexp(1, (int)(10.0 * (double)j / n) - (int)(20.0 * (double)i / n));
    case RESIDUAL_UPPER:
        return i <= j;
    case RESIDUAL_LOWER:
        return i >= j;
    default:
        return 1;
    }
}

/* Element (i, j) of the growing kind: its last column grows by almost 2 in each of these steps. */
static double growing(const struct residual_matrix *matrix, size_t i, size_t j, double random)
{
    size_t steps = is_single(matrix->precision) ? 10 : 26;
    if (j + 1 == matrix->n)
        return 1;
    if (j >= steps)
        return random;
    return i == j ? 1 : i > j ? -1 + 0.05 * fabs(random) : 0;
}

/* Where a column's random numbers begin: the generator is linear, so this must not be. */
static uint64_t begin_of(const struct residual_matrix *matrix, size_t j)
{
    uint64_t x = matrix->seed + (j + 1) * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void make_column(const struct residual_matrix *matrix, size_t j, void *column)
{
    uint64_t state = begin_of(matrix, j);
    bool triangle = matrix->kind == RESIDUAL_UPPER || matrix->kind == RESIDUAL_LOWER;
    for (size_t i = 0; i < matrix->n; i++) {
        double re = bench_random(&state), im = bench_random(&state), scale = scale_of(matrix, i, j);
        if (matrix->kind == RESIDUAL_GROWTH) {
            re = growing(matrix, i, j, re);
            im = 0;
        }
        if (triangle && i == j) /* so that its inverse doesn't grow exponentially */
            re = copysign(sqrt((double)matrix->n), re) + re;
        put(matrix->precision, column, triangle ? other_row(matrix->n, i) : i, scale * re,
            scale * im);
    }
}

/* x = x - y + noise of a few units in the last place. */
static void make_dependent(const struct residual_matrix *matrix, void *x, const void *y)
{
    size_t count = matrix->n * (size_t)bench_parts(matrix->precision);
    uint64_t state = ~matrix->seed;
    for (size_t i = 0; i < count; i++) {
        double noise = 16 * bench_random(&state);
        if (is_single(matrix->precision))
            ((float *)x)[i] =
                (float)((double)((float *)x)[i] - ((const float *)y)[i] + noise * 0x1p-24);
        else
            ((double *)x)[i] = ((double *)x)[i] - ((const double *)y)[i] + noise * 0x1p-53;
    }
}

static size_t column_bytes(const struct residual_matrix *matrix)
{
    return matrix->n * (size_t)bench_parts(matrix->precision) * bench_real_size(matrix->precision);
}

static void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        bench_fail("no memory");
    return memory;
}

void residual_column(const struct residual_matrix *matrix, size_t j, void *column)
{
    if (matrix->kind != RESIDUAL_SINGULAR || j + 1 < matrix->n || matrix->n < 3) {
        make_column(matrix, j, column);
        return;
    }
    void *other = allocate(column_bytes(matrix));
    make_column(matrix, 0, column);
    make_column(matrix, 1, other);
    make_dependent(matrix, column, other);
    free(other);
}

/* The columns of one thread: every one of so many. */
struct filling {
    const struct residual_matrix *matrix;
    char *a;
    size_t first;
};

static void *fill_columns(void *task)
{
    const struct filling *filling = task;
    const struct residual_matrix *matrix = filling->matrix;
    for (size_t j = filling->first; j < matrix->n; j += (size_t)residual_threads)
        residual_column(matrix, j, filling->a + j * column_bytes(matrix));
    return NULL;
}

void residual_fill(const struct residual_matrix *matrix, void *a)
{
    struct filling tasks[RESIDUAL_MOST_THREADS];
    for (int t = 0; t < residual_threads; t++)
        tasks[t] = (struct filling){matrix, a, (size_t)t};
    run_all(fill_columns, tasks, sizeof *tasks);
}

/* ---- products with vectors ---- */

/* A row of some vectors. */
struct lanes {
    number of[RESIDUAL_LANES];
};

static number load(int precision, const void *column, size_t i)
{
    const bool pair = bench_parts(precision) > 1;
    const size_t at = pair ? 2 * i : i;
    if (is_single(precision)) {
        const float *x = (const float *)column + at;
        return dense_number(x[0], pair ? x[1] : 0);
    }
    const double *x = (const double *)column + at;
    return dense_number(x[0], pair ? x[1] : 0);
}

/* y[i] += column[i] * w for rows [begin, end). */
static void add_column(int precision, const void *column, size_t begin, size_t end, struct lanes *y,
                       const struct lanes *w)
{
    const bool pair = bench_parts(precision) > 1;
    for (size_t i = begin; i < end; i++) {
        const number e = load(precision, column, i);
        for (size_t v = 0; v < RESIDUAL_LANES; v++)
            y[i].of[v] += pair ? dense_times(e, w->of[v]) : creall(e) * creall(w->of[v]);
    }
}

static void add(struct lanes *y, const struct lanes *w)
{
    for (size_t v = 0; v < RESIDUAL_LANES; v++)
        y->of[v] += w->of[v];
}

enum part { WHOLE, UPPER, LOWER_UNIT };

/* What the columns of one thread add to y = M*w for a part of a matrix, which is made by columns
 * where no elements are given; of all of it also the sum of squares. */
struct product {
    const struct residual_matrix *matrix;
    const char *elements;
    enum part part;
    const struct lanes *w;
    struct lanes *y;
    size_t first;
    long double squares;
};

static long double squares_of(const struct residual_matrix *matrix, const void *column)
{
    long double sum = 0;
    for (size_t i = 0; i < matrix->n; i++)
        sum += dense_square(load(matrix->precision, column, i));
    return sum;
}

static void *multiply_columns(void *task)
{
    struct product *product = task;
    const struct residual_matrix *matrix = product->matrix;
    const size_t n = matrix->n, bytes = column_bytes(matrix);
    void *made = allocate(bytes);
    for (size_t j = product->first; j < n; j += (size_t)residual_threads) {
        const void *column = product->elements != NULL ? product->elements + j * bytes : made;
        if (product->elements == NULL) {
            residual_column(matrix, j, made);
            product->squares += squares_of(matrix, made);
        }
        add_column(matrix->precision, column, product->part == LOWER_UNIT ? j + 1 : 0,
                   product->part == UPPER ? j + 1 : n, product->y, &product->w[j]);
        if (product->part == LOWER_UNIT)
            add(&product->y[j], &product->w[j]);
    }
    free(made);
    return NULL;
}

/* y = M*w; the result is the norm of a matrix without elements. */
static long double multiply(const struct residual_matrix *matrix, const char *elements,
                            enum part part, const struct lanes *w, struct lanes *y)
{
    struct product tasks[RESIDUAL_MOST_THREADS];
    const size_t n = matrix->n;
    struct lanes *sums = allocate((size_t)residual_threads * n * sizeof *sums);
    long double squares = 0;
    for (int t = 0; t < residual_threads; t++)
        tasks[t] = (struct product){matrix, elements, part, w, sums + (size_t)t * n, (size_t)t, 0};
    run_all(multiply_columns, tasks, sizeof *tasks);
    memset(y, 0, n * sizeof *y);
    for (int t = 0; t < residual_threads; t++) {
        squares += tasks[t].squares;
        for (size_t i = 0; i < n; i++)
            add(&y[i], &tasks[t].y[i]);
    }
    free(sums);
    return sqrtl(squares);
}

/* The norm of x - y. */
static long double distance(const struct lanes *x, const struct lanes *y, size_t n)
{
    long double sum = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t v = 0; v < RESIDUAL_LANES; v++)
            sum += dense_square(x[i].of[v] - y[i].of[v]);
    }
    return sqrtl(sum);
}

/* ---- residuals ---- */

static double in_units(const struct residual_matrix *matrix, long double residual, long double norm)
{
    long double unit = is_single(matrix->precision) ? 0x1p-24L : 0x1p-53L;
    return (double)(residual / ((long double)matrix->n * norm * unit));
}

double residual_of_factors(const struct residual_matrix *matrix, const void *factors,
                           const int64_t *ipiv, uint64_t seed)
{
    size_t n = matrix->n;
    struct lanes *memory = allocate(4 * n * sizeof *memory);
    struct lanes *w = memory, *x = w + n, *y = x + n, *between = y + n;
    for (size_t i = 0; i < n; i++) {
        for (size_t v = 0; v < RESIDUAL_LANES; v++)
            w[i].of[v] = bench_random(&seed) < 0 ? -1 : 1;
    }
    long double norm = multiply(matrix, NULL, WHOLE, w, x);
    for (size_t i = 0; i < n; i++) {
        size_t other = (size_t)ipiv[i] - 1;
        if (other >= n)
            bench_fail("ipiv[%zu] = %lld", i, (long long)ipiv[i]);
        struct lanes held = x[i];
        x[i] = x[other];
        x[other] = held;
    }
    multiply(matrix, factors, UPPER, w, between);
    multiply(matrix, factors, LOWER_UNIT, between, y);
    long double residual = distance(x, y, n) / sqrtl(RESIDUAL_LANES);
    free(memory);
    return in_units(matrix, residual, norm);
}

static void load_lanes(const struct residual_matrix *matrix, const void *from, struct lanes *to)
{
    for (size_t v = 0; v < RESIDUAL_LANES; v++) {
        const char *column = (const char *)from + v * column_bytes(matrix);
        for (size_t i = 0; i < matrix->n; i++)
            to[i].of[v] = load(matrix->precision, column, i);
    }
}

double residual_of_solution(const struct residual_matrix *matrix, const void *x, const void *b)
{
    size_t n = matrix->n;
    struct lanes *memory = allocate(4 * n * sizeof *memory);
    struct lanes *solution = memory, *given = solution + n, *product = given + n,
                 *nothing = product + n;
    load_lanes(matrix, x, solution);
    load_lanes(matrix, b, given);
    long double norm =
        multiply(matrix, NULL, WHOLE, solution, product) * distance(solution, nothing, n);
    long double residual = distance(given, product, n);
    free(memory);
    return in_units(matrix, residual, norm);
}
