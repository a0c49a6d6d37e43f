/* QR by plain loops. SPDX-License-Identifier: BSD-3-Clause */
#include "dense_qr.h"

#include "tap.h"

#include <math.h>
#include <stdlib.h>

/* The matrix that the memory has, or the adjoint of that. */
struct vectors {
    clb_precision precision;
    void *a;
    size_t lda;
    bool adjoint;
};

static number get(const struct vectors *x, size_t i, size_t j)
{
    return x->adjoint ? conjl(dense_at(x->precision, x->a, x->lda, j, i))
                      : dense_at(x->precision, x->a, x->lda, i, j);
}

static void put(const struct vectors *x, size_t i, size_t j, number value)
{
    if (x->adjoint)
        dense_store(x->precision, x->a, x->lda, j, i, conjl(value));
    else
        dense_store(x->precision, x->a, x->lda, i, j, value);
}

/* ---- one reflector ---- */

/* H(k) with H^H*A(k:, k) = beta*e1; LAPACK xLARFG. */
static number make_reflector(const struct vectors *a, size_t m, size_t k)
{
    number alpha = get(a, k, k);
    long double below = 0;
    for (size_t i = k + 1; i < m; i++)
        below += dense_square(get(a, i, k));
    below = sqrtl(below);
    if (below == 0 && cimagl(alpha) == 0)
        return 0;
    long double beta = -copysignl(hypotl(cabsl(alpha), below), creall(alpha));
    for (size_t i = k + 1; i < m; i++)
        put(a, i, k, get(a, i, k) / (alpha - beta));
    put(a, k, k, beta);
    return dense_number((beta - creall(alpha)) / beta, -cimagl(alpha) / beta);
}

/* x -= factor * v * (v^H*x) for v of column i of a, x of `rows` elements `step` apart. */
static void reflect(const struct vectors *a, size_t rows, size_t i, number factor, number *x)
{
    number sum = x[i];
    for (size_t r = i + 1; r < rows; r++)
        sum += dense_times(conjl(get(a, r, i)), x[r]);
    sum = factor * sum;
    x[i] -= sum;
    for (size_t r = i + 1; r < rows; r++)
        x[r] -= dense_times(sum, get(a, r, i));
}

void dense_reflect(const struct dense *a, const void *tau, size_t i, bool conjugated, number *x)
{
    const struct vectors vectors = {a->precision, dense_data(a), a->ld, false};
    number factor = dense_at(a->precision, tau, 1, i, 0);
    reflect(&vectors, a->rows, i, conjugated ? conjl(factor) : factor, x);
}

/* ---- the next library ---- */

/* The matrix that is Q*R: of LQ the adjoint. */
static struct vectors vectors_of(const struct clb_call *p, size_t *m, size_t *n)
{
    const bool adjoint = clb_call_is_adjoint(p);
    *m = adjoint ? p->n : p->m;
    *n = adjoint ? p->m : p->n;
    return (struct vectors){p->precision, p->a, p->lda, adjoint};
}

static size_t geqrf(const struct clb_host_blas *host, const struct clb_call *p)
{
    size_t m, n;
    const struct vectors a = vectors_of(p, &m, &n);
    number *x = calloc(m, sizeof *x);
    (void)host;
    if (x == NULL)
        abort();
    dense_next_entries += m * n;
    for (size_t k = 0; k < clb_min(m, n); k++) {
        dense_store(p->precision, p->tau, 1, k, 0, make_reflector(&a, m, k));
        number factor = conjl(dense_at(p->precision, p->tau, 1, k, 0));
        for (size_t j = k + 1; j < n; j++) {
            for (size_t i = k; i < m; i++)
                x[i] = get(&a, i, j);
            reflect(&a, m, k, factor, x);
            for (size_t i = k; i < m; i++)
                put(&a, i, j, x[i]);
        }
    }
    free(x);
    return 0;
}

/* Rows of C from the right are columns of C^H: C*H = (H^H*C^H)^H. */
static size_t ormqr(const struct clb_host_blas *host, const struct clb_call *p)
{
    size_t order = p->right ? p->n : p->m, others = p->right ? p->m : p->n;
    const bool adjoint = clb_call_is_adjoint(p);
    bool plain = (p->transa == CLB_OP_N) != adjoint, forward = p->right == plain;
    const struct vectors a = {p->precision, p->a, p->lda, adjoint};
    number *x = calloc(order, sizeof *x);
    (void)host;
    if (x == NULL)
        abort();
    dense_next_entries += p->m * p->n;
    for (size_t j = 0; j < others; j++) {
        for (size_t i = 0; i < order; i++)
            x[i] = p->right ? conjl(dense_at(p->precision, p->c, p->ldc, j, i))
                            : dense_at(p->precision, p->c, p->ldc, i, j);
        for (size_t q = 0; q < p->k; q++) {
            size_t i = forward ? q : p->k - 1 - q;
            number factor = dense_at(p->precision, p->tau, 1, i, 0);
            reflect(&a, order, i, plain != p->right ? factor : conjl(factor), x);
        }
        for (size_t i = 0; i < order; i++)
            dense_store(p->precision, p->c, p->ldc, p->right ? j : i, p->right ? i : j,
                        p->right ? conjl(x[i]) : x[i]);
    }
    free(x);
    return 0;
}

const struct clb_host_blas dense_qr_next = {
    .of = {[CLB_KIND_geqrf] = geqrf, [CLB_KIND_ormqr] = ormqr, [CLB_KIND_orgqr] = dense_orgqr}};

/* The last column first: the vectors of the others are needed until then. */
size_t dense_orgqr(const struct clb_host_blas *host, const struct clb_call *p)
{
    size_t m, n;
    (void)host;
    const struct vectors a = vectors_of(p, &m, &n);
    number *x = calloc(m, sizeof *x);
    if (x == NULL)
        abort();
    expect(p->k <= n && n <= m, "orgqr is asked for %zux%zu of %zu", m, n, p->k);
    dense_next_entries += m * n;
    for (size_t j = n; j-- > 0;) {
        for (size_t i = 0; i < m; i++)
            x[i] = i == j;
        for (size_t i = clb_min(p->k, j + 1); i-- > 0;)
            reflect(&a, m, i, dense_at(p->precision, p->tau, 1, i, 0), x);
        for (size_t i = 0; i < m; i++)
            put(&a, i, j, x[i]);
    }
    free(x);
    return 0;
}

/* ---- errors ---- */

/* |I - H^H*H| = |tau|^2 |v|^2 |...|: twice the real part of tau against |tau|^2 |v|^2. */
static long double reflector_error(const struct dense *x, const void *tau, size_t i)
{
    number factor = dense_at(x->precision, tau, 1, i, 0);
    long double norm = 1, size = dense_square(factor);
    for (size_t r = i + 1; r < x->rows; r++)
        norm += dense_square(dense_get(x, r, i));
    return fabsl(2 * creall(factor) - size * norm) * norm;
}

long double dense_qr_error(const struct dense *x, const void *tau)
{
    size_t m = x->rows, n = x->cols, inner = clb_min(m, n);
    number *column = calloc(m, sizeof *column);
    long double worst = 0, scale = dense_unit(x->precision) * (long double)(inner + 4);
    if (column == NULL)
        abort();
    for (size_t i = 0; i < inner; i++) {
        long double error = reflector_error(x, tau, i) / scale;
        worst = error <= worst ? worst : error;
    }
    for (size_t j = 0; j < n; j++) {
        long double error = 0, size = 0;
        for (size_t i = 0; i < m; i++)
            column[i] = i <= j ? dense_get(x, i, j) : 0;
        for (size_t i = clb_min(inner, j + 1); i-- > 0;)
            dense_reflect(x, tau, i, false, column);
        for (size_t i = 0; i < m; i++) {
            error += dense_square(column[i] - dense_old(x, i, j));
            size += dense_square(dense_old(x, i, j));
        }
        error = size == 0 ? sqrtl(error) : sqrtl(error / size) / scale;
        worst = error <= worst ? worst : error;
    }
    free(column);
    return isnan(worst) ? INFINITY : worst;
}
