/* SPDX-License-Identifier: BSD-3-Clause
 * Matrices in extended precision, and sums with the magnitudes that bound their errors. */
#include "fuzz.h"

#include <stdlib.h>

/* What a judge has made, freed at once behind it. */
struct made {
    struct made *before;
    number memory[];
};
static _Thread_local struct made *last_made;

void *make_memory(size_t bytes)
{
    struct made *made = calloc(1, sizeof *made + bytes);
    if (made == NULL)
        abort();
    made->before = last_made;
    last_made = made;
    return made->memory;
}

void free_models(void)
{
    while (last_made != NULL) {
        struct made *before = last_made->before;
        free(last_made);
        last_made = before;
    }
}

struct model *make_model(long rows, long cols, bool complex)
{
    struct model *x = make_memory(sizeof *x);
    *x = (struct model){rows, cols, complex, make_memory((size_t)(rows * cols) * sizeof *x->at)};
    return x;
}

struct model *model_of(const struct problem *p, const struct operand *x)
{
    struct model *y = make_model(x->rows, x->cols, p->p->complex);
    for (long j = 0; j < x->cols; j++) {
        for (long i = 0; i < x->rows; i++) {
            if (!is_in_part(x, i, j))
                continue;
            const number value = get_number(p->p, element(p, x, i, j));
            *model_at(y, i, j) = x->real_diagonal && i == j ? creall(value) : value;
        }
    }
    return y;
}

struct model *model_triangle(const struct model *x, bool upper, bool unit)
{
    const long n = smaller(x->rows, x->cols);
    struct model *y = make_model(upper ? n : x->rows, upper ? x->cols : n, x->complex);
    for (long j = 0; j < y->cols; j++) {
        for (long i = 0; i < y->rows; i++) {
            if (upper ? i <= j : i >= j)
                *model_at(y, i, j) = unit && i == j ? 1 : *model_at(x, i, j);
        }
    }
    return y;
}

static number op_of(number value, bool conjugate)
{
    return conjugate ? conjl(value) : value;
}

struct model *model_mirror(const struct model *x, bool upper, bool conjugate)
{
    struct model *y = make_model(x->rows, x->cols, x->complex);
    for (long j = 0; j < y->cols; j++) {
        for (long i = 0; i < y->rows; i++) {
            const bool stored = upper ? i <= j : i >= j;
            *model_at(y, i, j) = stored ? *model_at(x, i, j) : op_of(*model_at(x, j, i), conjugate);
        }
    }
    return y;
}

struct model *model_op(const struct model *x, char op)
{
    const bool transposed = op != 'N';
    struct model *y =
        make_model(transposed ? x->cols : x->rows, transposed ? x->rows : x->cols, x->complex);
    for (long j = 0; j < y->cols; j++) {
        for (long i = 0; i < y->rows; i++)
            *model_at(y, i, j) =
                op_of(transposed ? *model_at(x, j, i) : *model_at(x, i, j), op == 'C');
    }
    return y;
}

struct model *model_abs(const struct problem *p, const struct model *x)
{
    struct model *y = make_model(x->rows, x->cols, false);
    for (long i = 0; i < x->rows * x->cols; i++)
        y->at[i] = dense_abs1(x->at[i]) + p->p->tiny;
    return y;
}

void swap_rows(struct model *x, long row, long other)
{
    for (long j = 0; other != row && j < x->cols; j++) {
        const number held = *model_at(x, row, j);
        *model_at(x, row, j) = *model_at(x, other, j);
        *model_at(x, other, j) = held;
    }
}

void permute_rows(struct model *x, const int *ipiv, long count)
{
    for (long i = 0; i < count; i++)
        swap_rows(x, i, ipiv[i] - 1);
}

/* ---- products ---- */

struct term {
    number sum;
    real size;
};

static bool is_no_number(number x, bool complex)
{
    return isnan(creall(x)) && (!complex || isnan(cimagl(x)));
}

/* Row i of X times column j of Y. Arithmetic with NaN is many times slower and changes nothing
 * more. */
static struct term dot(const struct model *x, const struct model *y, long i, long j)
{
    struct term t = {0, 0};
    for (long k = 0; k < x->cols && !is_no_number(t.sum, x->complex); k++) {
        const number a = *model_at(x, i, k), b = *model_at(y, k, j);
        t.sum += x->complex ? dense_times(a, b) : creall(a) * creall(b);
        t.size += dense_abs1(a) * dense_abs1(b);
    }
    return t;
}

struct model *model_product(const struct model *x, const struct model *y)
{
    struct model *z = make_model(x->rows, y->cols, x->complex);
    for (long j = 0; j < z->cols; j++) {
        for (long i = 0; i < z->rows; i++)
            *model_at(z, i, j) = dot(x, y, i, j).sum;
    }
    return z;
}

/* ---- sums ---- */

/* Told from the caller's scalars by their addresses. */
static const char one_scalar, minus_one_scalar;
const char *const one = &one_scalar, *const minus_one = &minus_one_scalar;

struct sums make_sums(long rows, long cols)
{
    const size_t count = (size_t)(rows * cols);
    return (struct sums){rows,
                         cols,
                         make_memory(count * sizeof(number)),
                         make_memory(count * sizeof(real)),
                         make_memory(count * sizeof(bool)),
                         0};
}

static struct term scalar_of(const struct problem *p, const char *scalar)
{
    const number value = scalar == one ? 1 : scalar == minus_one ? -1 : get_number(p->p, scalar);
    return (struct term){value, dense_abs1(value)};
}

static void add_term(const struct problem *p, struct sums *s, long index, struct term scale,
                     struct term t)
{
    const real re = creall(scale.sum);
    /* A zero imaginary part does not make NaN of infinity. */
    s->at[index] += cimagl(scale.sum) == 0 ? dense_number(re * creall(t.sum), re * cimagl(t.sum))
                                           : dense_times(scale.sum, t.sum);
    s->size[index] += scale.size * t.size;
    /* Sums of scaled terms and scaled sums may both be intermediates. */
    s->overflow[index] |= !(t.size < p->p->huge / 8 && s->size[index] < p->p->huge / 8);
}

static real largest_of(const struct problem *p, const struct model *x)
{
    real largest = 0;
    for (long i = 0; i < x->rows * x->cols; i++) {
        const real size = dense_abs1(x->at[i]);
        largest = size > largest && size <= p->p->huge ? size : largest;
    }
    return largest;
}

/* Each product may underflow; with a scale also that of the scale and an operand. Where subnormal
 * numbers are taken for zero, underflow loses more, and operands may. */
static void add_slack(const struct problem *p, struct sums *s, struct term scale, long terms,
                      real operands)
{
    const real denormal = 2 * p->p->tiny * (flushing ? 1 : p->p->unit);
    const real slack = 4 * denormal * ((scale.size + operands) * (real)(terms + 1) + 2);
    s->slack += isfinite(slack) ? slack : 0;
}

/* A scale of zero means that nothing is read. */
void add_product(const struct problem *p, struct sums *s, const char *alpha, const struct model *x,
                 const struct model *y)
{
    const struct term scale = scalar_of(p, alpha);
    const bool scaled = flushing || (alpha != one && alpha != minus_one);
    if (scale.size == 0)
        return;
    for (long j = 0; j < s->cols; j++) {
        for (long i = 0; i < s->rows; i++)
            add_term(p, s, i + j * s->rows, scale, dot(x, y, i, j));
    }
    add_slack(p, s, scale, x->cols, scaled ? largest_of(p, x) + largest_of(p, y) : 0);
}

void add_model(const struct problem *p, struct sums *s, const char *alpha, const struct model *x)
{
    const struct term scale = scalar_of(p, alpha);
    if (scale.size == 0)
        return;
    for (long i = 0; i < x->rows * x->cols; i++)
        add_term(p, s, i, scale, (struct term){x->at[i], dense_abs1(x->at[i])});
    add_slack(p, s, scale, 1, 0);
}

void add_size(struct sums *s, const struct model *x, const struct model *y)
{
    for (long j = 0; j < s->cols; j++) {
        for (long i = 0; i < s->rows; i++)
            s->size[i + j * s->rows] += creall(dot(x, y, i, j).sum);
    }
}
