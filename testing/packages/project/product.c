/* SPDX-License-Identifier: BSD-3-Clause */
/* A product of two matrices of ones, which knows nothing of the shim. */
#include <stdio.h>

enum { N = 200 };

void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc);

int main(void)
{
    static double a[N * N], b[N * N], c[N * N];
    const int n = N;
    const double one = 1.0, zero = 0.0;
    int wrong = 0;
    for (int i = 0; i < N * N; i++)
        a[i] = b[i] = 1.0;
    dgemm_("N", "N", &n, &n, &n, &one, a, &n, b, &n, &zero, c, &n);
    for (int i = 0; i < N * N; i++)
        wrong += c[i] != N;
    printf("%d wrong\n", wrong);
    return wrong != 0;
}
