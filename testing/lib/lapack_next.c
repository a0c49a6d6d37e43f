/* The next LAPACK by plain loops. */
#include "lapack_next.h"

#include "dense.h"

#include <stdlib.h>
#include <string.h>

_Atomic long next_getrf_calls, next_getrs_calls, next_getri_calls, next_inverse_calls;
void (*next_getrf_hook)(void);

static size_t call_getrf(const struct clb_host_blas *host, const struct clb_call *call)
{
    (void)host;
    next_getrf_calls++;
    if (next_getrf_hook != NULL)
        next_getrf_hook();
    return clb_host_call(&dense_next, call);
}

static size_t pivot_at(const struct clb_call *p, size_t i)
{
    return (size_t)clb_integer_get(p->ipiv, i, p->wide) - 1;
}

static void swap_rows(const struct clb_call *p, size_t i, size_t other)
{
    size_t element = clb_precision_size(p->precision);
    for (size_t j = 0; j < p->nrhs; j++) {
        char held[16], *x = (char *)p->b + (i + j * p->ldb) * element,
                       *y = (char *)p->b + (other + j * p->ldb) * element;
        memcpy(held, x, element);
        memcpy(x, y, element);
        memcpy(y, held, element);
    }
}

static size_t call_getrs(const struct clb_host_blas *host, const struct clb_call *p)
{
    bool plain = p->transa == CLB_OP_N;
    struct clb_call trsm = clb_call_as(p, CLB_KIND_trsm);
    trsm.transa = p->transa;
    trsm.m = p->n;
    trsm.n = p->nrhs;
    trsm.alpha = clb_scalar_one(p->precision);
    (void)host;
    next_getrs_calls++;
    for (size_t step = 0; step < 3; step++) {
        if (step == (plain ? 0 : 2)) {
            for (size_t q = 0; q < p->n; q++) {
                size_t i = plain ? q : p->n - 1 - q;
                swap_rows(p, i, pivot_at(p, i));
            }
        } else {
            trsm.upper = step == (plain ? 2 : 0);
            trsm.unit = !trsm.upper;
            clb_host_call(&dense_next, &trsm);
        }
    }
    return 0;
}

/* X with X*A = I, by rows of the identity, and the columns in order at last. */
static void invert(const struct clb_call *p)
{
    size_t n = p->n, element = clb_precision_size(p->precision);
    char *x = calloc(n * n, element);
    struct clb_call trsm = clb_call_as(p, CLB_KIND_trsm);
    trsm.right = trsm.upper = true;
    trsm.m = n;
    trsm.alpha = clb_scalar_one(p->precision);
    trsm.b = x;
    trsm.ldb = n;
    if (x == NULL)
        return;
    next_getri_calls++;
    for (size_t i = 0; i < n; i++)
        memcpy(x + i * (n + 1) * element, trsm.alpha, element);
    clb_host_call(&dense_next, &trsm);
    trsm.upper = false;
    trsm.unit = true;
    clb_host_call(&dense_next, &trsm);
    for (size_t j = n; j-- > 0;) {
        size_t other = pivot_at(p, j);
        for (size_t i = 0; i < n * element; i++) {
            char held = x[j * n * element + i];
            x[j * n * element + i] = x[other * n * element + i];
            x[other * n * element + i] = held;
        }
    }
    for (size_t j = 0; j < n; j++)
        memcpy((char *)p->a + j * p->lda * element, x + j * n * element, n * element);
    free(x);
}

static size_t call_getri(const struct clb_host_blas *host, const struct clb_call *call)
{
    if (host->lwork == -1)
        memcpy(host->work, clb_scalar_one(call->precision), clb_precision_size(call->precision));
    else
        invert(call);
    return 0;
}

/* ---- triangles ------------------------------------------------------------------------------- */

/* Everything is said of a lower triangle; of an upper one it is the transpose. */
static number get_lower(const struct clb_call *p, size_t i, size_t j)
{
    if (i == j && p->unit)
        return 1;
    return dense_at(p->precision, p->a, p->lda, p->upper ? j : i, p->upper ? i : j);
}

/* T = L^-1, by columns of L*T = I. */
static void invert_lower(const struct clb_call *p, number *t)
{
    size_t n = p->n;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            number sum = i == j;
            for (size_t k = j; k < i; k++)
                sum -= get_lower(p, i, k) * t[k + j * n];
            t[i + j * n] = sum / get_lower(p, i, i);
        }
    }
}

/* Entry (i, j) of T^H*T, which is entry (j, i) of U*U^H where T = U^T. */
static number square_entry(const number *t, size_t n, size_t i, size_t j)
{
    number sum = 0;
    for (size_t k = i; k < n; k++)
        sum += conjl(t[k + i * n]) * t[k + j * n];
    return i == j ? creall(sum) : sum;
}

void lapack_next_inverse(const struct clb_call *p)
{
    size_t n = p->n;
    number *t = calloc(n * n, sizeof *t);
    if (t == NULL)
        return;
    next_inverse_calls++;
    for (size_t j = 0; j < n && p->kind == CLB_KIND_lauum; j++) {
        for (size_t i = j; i < n; i++)
            t[i + j * n] = get_lower(p, i, j);
    }
    if (p->kind != CLB_KIND_lauum)
        invert_lower(p, t);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j + p->unit; i < n; i++) {
            dense_store(p->precision, p->a, p->lda, p->upper ? j : i, p->upper ? i : j,
                        p->kind != CLB_KIND_trtri ? square_entry(t, n, i, j) : t[i + j * n]);
        }
    }
    free(t);
}

static size_t call_inverse(const struct clb_host_blas *host, const struct clb_call *call)
{
    (void)host;
    lapack_next_inverse(call);
    return 0;
}

const struct clb_host_blas lapack_next = {.of = {[CLB_KIND_getrf] = call_getrf,
                                                 [CLB_KIND_getrs] = call_getrs,
                                                 [CLB_KIND_getri] = call_getri,
                                                 [CLB_KIND_trtri] = call_inverse,
                                                 [CLB_KIND_lauum] = call_inverse,
                                                 [CLB_KIND_potri] = call_inverse,
                                                 [CLB_KIND_trsm] = dense_trsm,
                                                 [CLB_KIND_gemm] = dense_gemm}};
