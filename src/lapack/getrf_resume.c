/* Finishes on the CPU, left-looking, a factorisation of which the first columns are written.
 *
 * With w columns written and k = min(w, m): undo the interchanges of later steps in the written
 * columns; apply those of the first k steps to the other columns, which are still as before the
 * factorisation; U12 = L11^-1*A12; A22 -= L21*U12; factor A22 anew, and apply its interchanges to
 * the written columns. So the pivots are a sequence as in LAPACK, even where the new ones differ
 * from the device's. */
#include "lapack.h"

#include <string.h>

static char *getrf_resume_at(const struct clb_getrf *problem, size_t row, size_t col)
{
    return (char *)problem->a + (row + col * problem->lda) * clb_precision_size(problem->precision);
}

static void swap_rows(const struct clb_getrf *problem, size_t col, size_t i, size_t other)
{
    size_t element = clb_precision_size(problem->precision);
    char held[16], *x = getrf_resume_at(problem, i, col), *y = getrf_resume_at(problem, other, col);
    memcpy(held, x, element);
    memcpy(x, y, element);
    memcpy(y, held, element);
}

/* Apply interchanges [i0, i1) to columns [j0, j1), or with `backward` undo them. */
static void getrf_resume_interchange(const struct clb_getrf *problem, const int64_t *ipiv,
                                     size_t i0, size_t i1, bool backward, size_t j0, size_t j1)
{
    for (size_t j = j0; j < j1; j++) {
        for (size_t i = i0; i < i1; i++) {
            size_t row = backward ? i1 - 1 - (i - i0) : i;
            swap_rows(problem, j, row, (size_t)ipiv[row] - 1);
        }
    }
}

static void getrf_resume_look_left(const struct clb_getrf *problem,
                                   const struct clb_host_blas *next, size_t k, size_t written)
{
    static const float minus_one_s[2] = {-1};
    static const double minus_one_d[2] = {-1};
    clb_precision precision = problem->precision;
    bool single = clb_precision_real_size(precision) == sizeof(float);
    const struct clb_trsm trsm = {.precision = precision,
                                  .unit = true,
                                  .m = k,
                                  .n = problem->n - written,
                                  .alpha = clb_scalar_one(precision),
                                  .a = problem->a,
                                  .b = getrf_resume_at(problem, 0, written),
                                  .lda = problem->lda,
                                  .ldb = problem->lda};
    const struct clb_gemm gemm = {.precision = precision,
                                  .m = problem->m - k,
                                  .n = problem->n - written,
                                  .k = k,
                                  .alpha = single ? (const void *)minus_one_s : minus_one_d,
                                  .beta = clb_scalar_one(precision),
                                  .a = getrf_resume_at(problem, k, 0),
                                  .b = trsm.b,
                                  .c = getrf_resume_at(problem, k, written),
                                  .lda = problem->lda,
                                  .ldb = problem->lda,
                                  .ldc = problem->lda};
    next->trsm(next, &trsm);
    if (gemm.m > 0)
        next->gemm(next, &gemm);
}

static void factor_rest(const struct clb_getrf *problem, const struct clb_host_blas *next,
                        struct clb_getrf_result *result, size_t k)
{
    size_t inner = clb_min(problem->m, problem->n);
    int64_t *ipiv = result->ipiv + k;
    const struct clb_getrf rest = {problem->precision, problem->m - k, problem->n - k,
                                   getrf_resume_at(problem, k, k), problem->lda};
    size_t info = next->getrf(next, &rest, ipiv);
    for (size_t i = 0; i < inner - k; i++)
        ipiv[i] += (int64_t)k;
    getrf_resume_interchange(problem, result->ipiv, k, inner, false, 0, k);
    if (result->info == 0 || result->info > k)
        result->info = info != 0 ? k + info : 0;
}

void clb_getrf_resume(const struct clb_getrf *problem, const struct clb_host_blas *next,
                      struct clb_getrf_result *result)
{
    size_t written = result->columns_written, inner = clb_min(problem->m, problem->n);
    size_t k = clb_min(written, inner);
    if (written == problem->n)
        return;
    getrf_resume_interchange(problem, result->ipiv, k, inner, true, 0, written);
    getrf_resume_interchange(problem, result->ipiv, 0, k, false, written, problem->n);
    if (k > 0)
        getrf_resume_look_left(problem, next, k, written);
    if (k < inner)
        factor_rest(problem, next, result, k);
    result->columns_written = problem->n;
}
