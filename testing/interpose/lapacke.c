/* A program that solves a system by LAPACK's C names, which it is linked to, with matrices by
 * columns and by rows. Prints nothing when all is right. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

int LAPACKE_dgesv(int layout, blas_int n, blas_int nrhs, double *a, blas_int lda, blas_int *ipiv,
                  double *b, blas_int ldb);
int LAPACKE_dgetrf_work(int layout, blas_int m, blas_int n, double *a, blas_int lda,
                        blas_int *ipiv);
int LAPACKE_dgetrs_work(int layout, char trans, blas_int n, blas_int nrhs, const double *a,
                        blas_int lda, const blas_int *ipiv, double *b, blas_int ldb);

enum { N = 60, LD = N + GAP };

/* A*X = B with X(i) = i, by one name or by two. */
static void solve(int layout, bool at_once)
{
    static double a[LD * N], b[LD];
    blas_int ipiv[N];
    for (size_t i = 0; i < N; i++) {
        b[i] = 0;
        for (size_t j = 0; j < N; j++) {
            const double entry = check_entry(i, j, 1) + (i == j ? 100 : 0);
            a[layout == 101 ? j + i * LD : i + j * LD] = entry;
            b[i] += entry * (double)j;
        }
    }
    if (at_once) {
        REQUIRE(LAPACKE_dgesv(layout, N, 1, a, LD, ipiv, b, layout == 101 ? 1 : LD) == 0);
    } else {
        REQUIRE(LAPACKE_dgetrf_work(layout, N, N, a, LD, ipiv) == 0);
        REQUIRE(LAPACKE_dgetrs_work(layout, 'N', N, 1, a, LD, ipiv, b, layout == 101 ? 1 : LD) ==
                0);
    }
    for (size_t i = 0; i < N; i++)
        REQUIRE(fabs(b[i] - (double)i) < 1e-9);
}

int main(void)
{
    for (int layout = 101; layout <= 102; layout++) {
        solve(layout, true);
        solve(layout, false);
    }
    return 0;
}
