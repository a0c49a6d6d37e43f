/* SPDX-License-Identifier: BSD-3-Clause
 * A BLAS whose dgemm_ carries a version node, as some distributions build them. */
#include "check.h"

PROTOTYPE(dgemm_, double)
{
    bool ta = *transa != 'N' && *transa != 'n', tb = *transb != 'N' && *transb != 'n';
    for (blas_int j = 0; j < *n; j++) {
        for (blas_int i = 0; i < *m; i++) {
            double sum = 0;
            for (blas_int p = 0; p < *k; p++)
                sum += a[ta ? p + i * *lda : i + p * *lda] * b[tb ? j + p * *ldb : p + j * *ldb];
            c[i + j * *ldc] = *alpha * sum + (*beta == 0 ? 0 : *beta * c[i + j * *ldc]);
        }
    }
}

PROTOTYPE(sgemm_, float)
{
    (void)transa, (void)transb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda;
    (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    abort();
}

int isamax_(const int *n, const float *x, const int *step);

int isamax_(const int *n, const float *x, const int *step)
{
    int best = 0;
    for (int i = 1; i < *n; i++)
        best = fabsf(x[i * *step]) > fabsf(x[best * *step]) ? i : best;
    return *n > 0 ? best + 1 : 0;
}
