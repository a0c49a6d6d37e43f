/* Wide least squares problems by dgels_: the solutions of least norm, A*X = B, and of least squares
 * with A^T. Prints what is wrong. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

void dgels_(const char *trans, const blas_int *m, const blas_int *n, const blas_int *nrhs,
            double *a, const blas_int *lda, double *b, const blas_int *ldb, double *work,
            const blas_int *lwork, blas_int *info, size_t trans_length);

enum { M = 120, N = 200, COLUMNS = 30, LWORK = 64 * N };
static double a[M * N], factors[M * N], b[N * COLUMNS], x[N * COLUMNS], work[LWORK];

static bool solve(const char *trans)
{
    const blas_int m = M, n = N, columns = COLUMNS, size = LWORK;
    blas_int info = -1;
    memcpy(factors, a, sizeof a);
    memcpy(x, b, sizeof b);
    dgels_(trans, &m, &n, &columns, factors, &m, x, &n, work, &size, &info, 1);
    if (info != 0)
        printf("info %d\n", (int)info);
    return info == 0;
}

/* The largest entry of A*Y - C, both with N rows between columns. */
static double distance(const double *y, const double *c)
{
    double worst = 0;
    for (size_t j = 0; j < COLUMNS; j++) {
        for (size_t i = 0; i < M; i++) {
            double sum = c == NULL ? 0 : -c[i + j * N];
            for (size_t k = 0; k < N; k++)
                sum += a[i + k * M] * y[k + j * N];
            worst = fmax(worst, fabs(sum));
        }
    }
    return worst;
}

int main(void)
{
    for (size_t i = 0; i < M * N; i++)
        a[i] = check_entry(i % M, i / M, 1) / 4 + (i % M == i / M ? 9 : 0);
    for (size_t i = 0; i < N * COLUMNS; i++)
        b[i] = check_entry(i % N, i / N, 2);
    bool good = solve("N");
    double worst = distance(x, b);
    if (!good || !(worst < 1e-10))
        printf("A*X - B: %g\n", worst);
    /* The residual B - A^T*X is orthogonal to A's rows. */
    good = solve("T") && good && worst < 1e-10;
    for (size_t j = 0; j < COLUMNS; j++) {
        for (size_t i = 0; i < N; i++) {
            double sum = b[i + j * N];
            for (size_t k = 0; k < M; k++)
                sum -= a[k + i * M] * x[k + j * N];
            work[i + j * N] = sum;
        }
    }
    worst = distance(work, NULL);
    if (!(worst < 1e-8))
        printf("A*(B - A'*X): %g\n", worst);
    return good && worst < 1e-8 ? 0 : 1;
}
