/* Matrices in extended precision, and sums with the magnitudes that bound their errors. */
#include "fuzz.h"

#include <stdlib.h>

static real *make_reals(size_t count)
{
    real *reals = calloc(count + 1, sizeof *reals);
    if (reals == NULL)
        abort();
    return reals;
}

struct model *make_model(long rows, long cols, bool complex)
{
    struct model *x = malloc(sizeof *x);
    if (x == NULL)
        abort();
    const size_t count = (size_t)rows * (size_t)cols;
    *x = (struct model){rows, cols, make_reals(count), complex ? make_reals(count) : NULL};
    return x;
}

void free_model(struct model *x)
{
    if (x != NULL) {
        free(x->re);
        free(x->im);
    }
    free(x);
}

static inline size_t at(const struct model *x, long i, long j)
{
    return (size_t)(i + j * x->rows);
}

struct model *model_of(const struct problem *p, const struct operand *x)
{
    struct model *y = make_model(x->rows, x->cols, p->p->complex);
    for (long j = 0; j < x->cols; j++) {
        for (long i = 0; i < x->rows; i++) {
            if (!is_in_part(x, i, j))
                continue;
            const char *from = element(p, x, i, j);
            y->re[at(y, i, j)] = get_real(p->p, from);
            if (p->p->complex && !(x->real_diagonal && i == j))
                y->im[at(y, i, j)] = get_real(p->p, from + p->p->real_size);
        }
    }
    return y;
}

struct model *model_triangle(const struct model *x, bool upper, bool unit)
{
    const long n = smaller(x->rows, x->cols);
    struct model *y = make_model(upper ? n : x->rows, upper ? x->cols : n, x->im != NULL);
    for (long j = 0; j < y->cols; j++) {
        for (long i = 0; i < y->rows; i++) {
            const bool one_there = unit && i == j;
            if (upper ? i > j : i < j)
                continue;
            y->re[at(y, i, j)] = one_there ? 1 : x->re[at(x, i, j)];
            if (x->im != NULL)
                y->im[at(y, i, j)] = one_there ? 0 : x->im[at(x, i, j)];
        }
    }
    return y;
}

struct model *model_mirror(const struct model *x, bool upper, bool conjugate)
{
    struct model *y = make_model(x->rows, x->cols, x->im != NULL);
    for (long j = 0; j < y->cols; j++) {
        for (long i = 0; i < y->rows; i++) {
            const bool stored = upper ? i <= j : i >= j;
            const size_t from = stored ? at(x, i, j) : at(x, j, i);
            y->re[at(y, i, j)] = x->re[from];
            if (x->im != NULL)
                y->im[at(y, i, j)] = stored || !conjugate ? x->im[from] : -x->im[from];
        }
    }
    return y;
}

struct model *model_op(const struct model *x, char op)
{
    const bool transposed = op != 'N';
    struct model *y =
        make_model(transposed ? x->cols : x->rows, transposed ? x->rows : x->cols, x->im != NULL);
    for (long j = 0; j < y->cols; j++) {
        for (long i = 0; i < y->rows; i++) {
            const size_t from = transposed ? at(x, j, i) : at(x, i, j);
            y->re[at(y, i, j)] = x->re[from];
            if (x->im != NULL)
                y->im[at(y, i, j)] = op == 'C' ? -x->im[from] : x->im[from];
        }
    }
    return y;
}

struct model *model_abs(const struct model *x, real least)
{
    struct model *y = make_model(x->rows, x->cols, false);
    for (size_t i = 0; i < (size_t)x->rows * (size_t)x->cols; i++)
        y->re[i] = fabsl(x->re[i]) + (x->im != NULL ? fabsl(x->im[i]) : 0) + least;
    return y;
}

void swap_rows(struct model *x, long row, long other)
{
    for (long j = 0; other != row && j < x->cols; j++) {
        const size_t to = at(x, row, j), from = at(x, other, j);
        const real re = x->re[to], im = x->im != NULL ? x->im[to] : 0;
        x->re[to] = x->re[from];
        x->re[from] = re;
        if (x->im != NULL) {
            x->im[to] = x->im[from];
            x->im[from] = im;
        }
    }
}

void permute_rows(struct model *x, const int *ipiv, long count)
{
    for (long i = 0; i < count; i++)
        swap_rows(x, i, ipiv[i] - 1);
}

/* ---- products -------------------------------------------------------------------------------- */

struct term {
    real re, im, size;
};

/* Row i of X times column j of Y. Arithmetic with NaN is many times slower and changes nothing
 * more. */
static struct term dot(const struct model *x, const struct model *y, long i, long j)
{
    struct term t = {0, 0, 0};
    const real *xr = x->re + i, *yr = y->re + j * y->rows;
    if (x->im == NULL) {
        for (long k = 0; k < x->cols && !isnan(t.re); k++) {
            const real product = xr[k * x->rows] * yr[k];
            t.re += product;
            t.size += fabsl(product);
        }
        return t;
    }
    const real *xi = x->im + i, *yi = y->im + j * y->rows;
    for (long k = 0; k < x->cols && !(isnan(t.re) && isnan(t.im)); k++) {
        const long in = k * x->rows;
        t.re += xr[in] * yr[k] - xi[in] * yi[k];
        t.im += xr[in] * yi[k] + xi[in] * yr[k];
        t.size += (fabsl(xr[in]) + fabsl(xi[in])) * (fabsl(yr[k]) + fabsl(yi[k]));
    }
    return t;
}

struct model *model_product(const struct model *x, const struct model *y)
{
    struct model *z = make_model(x->rows, y->cols, x->im != NULL);
    for (long j = 0; j < z->cols; j++) {
        for (long i = 0; i < z->rows; i++) {
            const struct term t = dot(x, y, i, j);
            z->re[at(z, i, j)] = t.re;
            if (z->im != NULL)
                z->im[at(z, i, j)] = t.im;
        }
    }
    return z;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* Told from the caller's scalars by their addresses. */
static const char one_scalar, minus_one_scalar;
const char *const one = &one_scalar, *const minus_one = &minus_one_scalar;

struct sums make_sums(long rows, long cols)
{
    const size_t count = (size_t)rows * (size_t)cols;
    struct sums s = {rows,
                     cols,
                     make_reals(count),
                     make_reals(count),
                     make_reals(count),
                     calloc(count + 1, sizeof(bool)),
                     0};
    if (s.overflow == NULL)
        abort();
    return s;
}

void free_sums(struct sums *s)
{
    free(s->re);
    free(s->im);
    free(s->size);
    free(s->overflow);
}

static struct term scalar_of(const struct problem *p, const char *scalar)
{
    struct term t = {1, 0, 1};
    if (scalar == one)
        return t;
    t.re = scalar == minus_one ? -1 : get_real(p->p, scalar);
    if (p->p->complex && scalar != minus_one)
        t.im = get_real(p->p, scalar + p->p->real_size);
    t.size = fabsl(t.re) + fabsl(t.im);
    return t;
}

static void add_term(const struct problem *p, struct sums *s, size_t index, struct term scale,
                     struct term t)
{
    const real size = scale.size * t.size;
    /* A zero imaginary part does not make NaN of infinity. */
    s->re[index] += scale.re * t.re - (scale.im == 0 ? 0 : scale.im * t.im);
    s->im[index] += scale.re * t.im + (scale.im == 0 ? 0 : scale.im * t.re);
    s->size[index] += size;
    /* Sums of scaled terms and scaled sums may both be intermediates. */
    s->overflow[index] |= !(t.size < p->p->huge / 8 && s->size[index] < p->p->huge / 8);
}

static real largest_of(const struct problem *p, const struct model *x)
{
    real largest = 0;
    for (size_t i = 0; i < (size_t)x->rows * (size_t)x->cols; i++) {
        const real size = fabsl(x->re[i]) + (x->im != NULL ? fabsl(x->im[i]) : 0);
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
            add_term(p, s, (size_t)(i + j * s->rows), scale, dot(x, y, i, j));
    }
    add_slack(p, s, scale, x->cols, scaled ? largest_of(p, x) + largest_of(p, y) : 0);
}

void add_model(const struct problem *p, struct sums *s, const char *alpha, const struct model *x)
{
    const struct term scale = scalar_of(p, alpha);
    if (scale.size == 0)
        return;
    for (size_t i = 0; i < (size_t)x->rows * (size_t)x->cols; i++) {
        struct term t = {x->re[i], x->im != NULL ? x->im[i] : 0, 0};
        t.size = fabsl(t.re) + fabsl(t.im);
        add_term(p, s, i, scale, t);
    }
    add_slack(p, s, scale, 1, 0);
}

void add_size(struct sums *s, const struct model *x, const struct model *y)
{
    for (long j = 0; j < s->cols; j++) {
        for (long i = 0; i < s->rows; i++)
            s->size[i + j * s->rows] += dot(x, y, i, j).re;
    }
}
