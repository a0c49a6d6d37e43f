/* SPDX-License-Identifier: BSD-3-Clause
 * A library that has batches of products under two of their names, and nothing else. */
#include "check.h"

#include <stddef.h>

static double entry(const double *x, blas_int ld, bool other, blas_int i, blas_int j)
{
    return other ? x[j + i * (size_t)ld] : x[i + j * (size_t)ld];
}

/* `rows`: matrices by rows. */
static void multiply(bool rows, bool ta, bool tb, blas_int m, blas_int n, blas_int k, double alpha,
                     const double *a, blas_int lda, const double *b, blas_int ldb, double beta,
                     double *c, blas_int ldc)
{
    const bool nothing = (alpha == 0 || k == 0) && beta == 1;
    for (blas_int j = 0; j < n && !nothing; j++) {
        for (blas_int i = 0; i < m; i++) {
            double *at = rows ? &c[j + i * (size_t)ldc] : &c[i + j * (size_t)ldc], sum = 0;
            for (blas_int l = 0; l < k && alpha != 0; l++)
                sum += entry(a, lda, ta != rows, i, l) * entry(b, ldb, tb != rows, l, j);
            *at = alpha * sum + (beta == 0 ? 0 : beta * *at);
        }
    }
}

void dgemm_batch_(const char *transa, const char *transb, const blas_int *m, const blas_int *n,
                  const blas_int *k, const double *alpha, double *const *a, const blas_int *lda,
                  double *const *b, const blas_int *ldb, const double *beta, double *const *c,
                  const blas_int *ldc, const blas_int *count, const blas_int *sizes);
void cblas_dgemm_batch_strided(int layout, int transa, int transb, blas_int m, blas_int n,
                               blas_int k, double alpha, const double *a, blas_int lda,
                               blas_int stride_a, const double *b, blas_int ldb, blas_int stride_b,
                               double beta, double *c, blas_int ldc, blas_int stride_c,
                               blas_int count);

void dgemm_batch_(const char *transa, const char *transb, const blas_int *m, const blas_int *n,
                  const blas_int *k, const double *alpha, double *const *a, const blas_int *lda,
                  double *const *b, const blas_int *ldb, const double *beta, double *const *c,
                  const blas_int *ldc, const blas_int *count, const blas_int *sizes)
{
    size_t at = 0;
    for (blas_int g = 0; g < *count; g++) {
        for (blas_int i = 0; i < sizes[g]; i++, at++)
            multiply(false, (transa[g] & 0xdf) != 'N', (transb[g] & 0xdf) != 'N', m[g], n[g], k[g],
                     alpha[g], a[at], lda[g], b[at], ldb[g], beta[g], c[at], ldc[g]);
    }
}

void cblas_dgemm_batch_strided(int layout, int transa, int transb, blas_int m, blas_int n,
                               blas_int k, double alpha, const double *a, blas_int lda,
                               blas_int stride_a, const double *b, blas_int ldb, blas_int stride_b,
                               double beta, double *c, blas_int ldc, blas_int stride_c,
                               blas_int count)
{
    for (blas_int i = 0; i < count; i++)
        multiply(layout == 101, transa != 111, transb != 111, m, n, k, alpha,
                 a + i * (ptrdiff_t)stride_a, lda, b + i * (ptrdiff_t)stride_b, ldb, beta,
                 c + i * (ptrdiff_t)stride_c, ldc);
}
