/* The next LAPACK by plain loops. */
#include "lapack_next.h"

#include "dense.h"

#include <stdlib.h>
#include <string.h>

_Atomic long next_getrf_calls, next_getrs_calls, next_getri_calls, next_inverse_calls;
void (*next_getrf_hook)(void);

static size_t call_getrf(const struct clb_host_blas *host, const struct clb_getrf *p, int64_t *ipiv)
{
    (void)host;
    next_getrf_calls++;
    if (next_getrf_hook != NULL)
        next_getrf_hook();
    return dense_next.getrf(&dense_next, p, ipiv);
}

static void swap_rows(const struct clb_getrs *p, size_t i, size_t other)
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

static void solve(const struct clb_getrs *p, const void *ipiv, bool wide)
{
    bool plain = p->trans == CLB_OP_N;
    struct clb_trsm trsm = {.precision = p->precision,
                            .trans = p->trans,
                            .m = p->n,
                            .n = p->nrhs,
                            .alpha = clb_scalar_one(p->precision),
                            .a = p->a,
                            .b = p->b,
                            .lda = p->lda,
                            .ldb = p->ldb};
    next_getrs_calls++;
    for (size_t step = 0; step < 3; step++) {
        if (step == (plain ? 0 : 2)) {
            for (size_t q = 0; q < p->n; q++) {
                size_t i = plain ? q : p->n - 1 - q;
                swap_rows(p, i,
                          (size_t)(wide ? ((const int64_t *)ipiv)[i] : ((const int32_t *)ipiv)[i]) -
                              1);
            }
        } else {
            trsm.upper = trsm.unit = false;
            if (step == (plain ? 2 : 0))
                trsm.upper = true;
            else
                trsm.unit = true;
            dense_next.trsm(&dense_next, &trsm);
        }
    }
}

static void call_getrs_wide(const struct clb_host_blas *host, const struct clb_getrs *problem,
                            const void *ipiv)
{
    (void)host;
    solve(problem, ipiv, true);
}

static void call_getrs_narrow(const struct clb_host_blas *host, const struct clb_getrs *problem,
                              const void *ipiv)
{
    (void)host;
    solve(problem, ipiv, false);
}

/* X with X*A = I, by rows of the identity, and the columns in order at last. */
static void invert(const struct clb_getri *p, const void *ipiv, bool wide)
{
    size_t n = p->n, element = clb_precision_size(p->precision);
    char *x = calloc(n * n, element);
    struct clb_trsm trsm = {.precision = p->precision,
                            .right = true,
                            .upper = true,
                            .m = n,
                            .n = n,
                            .alpha = clb_scalar_one(p->precision),
                            .a = p->a,
                            .b = x,
                            .lda = p->lda,
                            .ldb = n};
    if (x == NULL)
        return;
    next_getri_calls++;
    for (size_t i = 0; i < n; i++)
        memcpy(x + i * (n + 1) * element, trsm.alpha, element);
    dense_next.trsm(&dense_next, &trsm);
    trsm.upper = false;
    trsm.unit = true;
    dense_next.trsm(&dense_next, &trsm);
    for (size_t j = n; j-- > 0;) {
        size_t other = (size_t)(wide ? ((const int64_t *)ipiv)[j] : ((const int32_t *)ipiv)[j]) - 1;
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

static size_t getri(const struct clb_host_blas *host, const struct clb_getri *problem,
                    const void *ipiv, bool wide)
{
    if (host->lwork == -1)
        memcpy(host->work, clb_scalar_one(problem->precision),
               clb_precision_size(problem->precision));
    else
        invert(problem, ipiv, wide);
    return 0;
}

static size_t call_getri_wide(const struct clb_host_blas *host, const struct clb_getri *problem,
                              const void *ipiv)
{
    return getri(host, problem, ipiv, true);
}

static size_t call_getri_narrow(const struct clb_host_blas *host, const struct clb_getri *problem,
                                const void *ipiv)
{
    return getri(host, problem, ipiv, false);
}

/* ---- triangles ------------------------------------------------------------------------------- */

/* Everything is said of a lower triangle; of an upper one it is the transpose. */
static number get_lower(const struct clb_inverse *p, size_t i, size_t j)
{
    if (i == j && p->unit)
        return 1;
    return dense_at(p->precision, p->a, p->lda, p->upper ? j : i, p->upper ? i : j);
}

/* T = L^-1, by columns of L*T = I. */
static void invert_lower(const struct clb_inverse *p, number *t)
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

void lapack_next_inverse(const struct clb_inverse *p)
{
    size_t n = p->n;
    number *t = calloc(n * n, sizeof *t);
    if (t == NULL)
        return;
    next_inverse_calls++;
    for (size_t j = 0; j < n && !p->inverts; j++) {
        for (size_t i = j; i < n; i++)
            t[i + j * n] = get_lower(p, i, j);
    }
    if (p->inverts)
        invert_lower(p, t);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j + p->unit; i < n; i++) {
            dense_store(p->precision, p->a, p->lda, p->upper ? j : i, p->upper ? i : j,
                        p->multiplies ? square_entry(t, n, i, j) : t[i + j * n]);
        }
    }
    free(t);
}

static size_t call_inverse(const struct clb_host_blas *host, const struct clb_inverse *problem)
{
    (void)host;
    lapack_next_inverse(problem);
    return 0;
}

struct clb_host_blas lapack_next_for(bool wide)
{
    return (struct clb_host_blas){.getrf = call_getrf,
                                  .getrs = wide ? call_getrs_wide : call_getrs_narrow,
                                  .getri = wide ? call_getri_wide : call_getri_narrow,
                                  .inverse = call_inverse,
                                  .trsm = dense_trsm,
                                  .gemm = dense_gemm};
}
