/* SPDX-License-Identifier: BSD-3-Clause
 * A library that has xGEMMTR under the name that OpenBLAS and MKL gave it, and nothing else. */
#include "check.h"

void dgemmt_(const char *uplo, const char *transa, const char *transb, const blas_int *n,
             const blas_int *k, const double *alpha, const double *a, const blas_int *lda,
             const double *b, const blas_int *ldb, const double *beta, double *c,
             const blas_int *ldc);

void dgemmt_(const char *uplo, const char *transa, const char *transb, const blas_int *n,
             const blas_int *k, const double *alpha, const double *a, const blas_int *lda,
             const double *b, const blas_int *ldb, const double *beta, double *c,
             const blas_int *ldc)
{
    const bool upper = (*uplo & 0xdf) == 'U', ta = (*transa & 0xdf) != 'N',
               tb = (*transb & 0xdf) != 'N';
    for (blas_int j = 0; j < *n; j++) {
        for (blas_int i = upper ? 0 : j; i <= (upper ? j : *n - 1); i++) {
            double sum = 0;
            for (blas_int l = 0; l < *k && *alpha != 0; l++)
                sum += (ta ? a[l + i * *lda] : a[i + l * *lda]) *
                       (tb ? b[j + l * *ldb] : b[l + j * *ldb]);
            c[i + j * *ldc] = *alpha * sum + (*beta == 0 ? 0 : *beta * c[i + j * *ldc]);
        }
    }
}
