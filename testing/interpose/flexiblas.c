/* SPDX-License-Identifier: BSD-3-Clause
 * A program of real FlexiBLAS: products, LU, systems and QR of the given sizes, by Fortran names,
 * CBLAS and LAPACKE where the library has it. Results are checked by products with a vector. */
#define CHECK_CBLAS
#include "check.h"

void dsyrk_(const char *uplo, const char *trans, const blas_int *n, const blas_int *k,
            const double *alpha, const double *a, const blas_int *lda, const double *beta,
            double *c, const blas_int *ldc);
void dgetrf_(const blas_int *m, const blas_int *n, double *a, const blas_int *lda, blas_int *ipiv,
             blas_int *info);
void dgesv_(const blas_int *n, const blas_int *nrhs, double *a, const blas_int *lda, blas_int *ipiv,
            double *b, const blas_int *ldb, blas_int *info);
void dgeqrf_(const blas_int *m, const blas_int *n, double *a, const blas_int *lda, double *tau,
             double *work, const blas_int *lwork, blas_int *info);
blas_int LAPACKE_dgetrf(int layout, blas_int m, blas_int n, double *a, blas_int lda, blas_int *ipiv)
    __attribute__((weak));

static size_t n;
static int wrong;

static double *new_matrix(size_t columns)
{
    double *a = calloc(n * columns, sizeof *a);
    if (a == NULL)
        exit(99);
    return a;
}

static double *random_matrix(size_t columns)
{
    double *a = new_matrix(columns);
    for (size_t i = 0; i < n * columns; i++)
        a[i] = (double)rand() / RAND_MAX - 0.5;
    return a;
}

/* y = op(A) x, for the entries of A between the diagonals `first` and `last` (column - row). */
static void band_times(bool transposed, const double *a, long first, long last, const double *x,
                       double *y)
{
    memset(y, 0, n * sizeof *y);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            if ((long)j - (long)i < first || (long)j - (long)i > last)
                continue;
            y[transposed ? j : i] += a[i + j * n] * x[transposed ? i : j];
        }
    }
}

static void times(const double *a, const double *x, double *y)
{
    band_times(false, a, -(long)n, (long)n, x, y);
}

static void times_transposed(const double *a, const double *x, double *y)
{
    band_times(true, a, -(long)n, (long)n, x, y);
}

static void compare(const char *what, const double *x, const double *y)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += fabs(x[i] - y[i]);
        size += fabs(y[i]);
    }
    if (difference <= 1e-9 * size)
        return;
    printf("%s, n = %zu: wrong by %g of %g\n", what, n, difference, size);
    wrong = 1;
}

/* L U x = P A x */
static void compare_factors(const char *what, const double *a, const double *lu,
                            const blas_int *ipiv, const double *x, double *y, double *z)
{
    double *ux = new_matrix(1);
    band_times(false, lu, 0, (long)n, x, ux);
    band_times(false, lu, -(long)n, -1, ux, y);
    for (size_t i = 0; i < n; i++)
        y[i] += ux[i];
    times(a, x, z);
    for (size_t i = 0; i < n; i++) {
        const size_t other = (size_t)ipiv[i] - 1;
        const double held = z[i];
        z[i] = z[other];
        z[other] = held;
    }
    compare(what, y, z);
    free(ux);
}

static void check_all(void)
{
    const blas_int order = (blas_int)n, one_column = 1, lwork = order * 64;
    const double one = 1, zero = 0;
    double *a = random_matrix(n), *b = random_matrix(n), *c = new_matrix(n), *x = random_matrix(1);
    double *y = new_matrix(1), *z = new_matrix(1), *t = new_matrix(1), *work = new_matrix(64);
    blas_int *ipiv = calloc(n, sizeof *ipiv), info = 1;
    if (ipiv == NULL)
        exit(99);

    times(b, x, t);
    times(a, t, z);
    dgemm_("N", "N", &order, &order, &order, &one, a, &order, b, &order, &zero, c, &order);
    times(c, x, y);
    compare("dgemm_", y, z);
    memset(c, 0, n * n * sizeof *c);
    cblas_dgemm(102, 111, 111, order, order, order, 1, a, order, b, order, 0, c, order);
    times(c, x, y);
    compare("cblas_dgemm", y, z);

    times_transposed(a, x, t);
    times(a, t, z);
    dsyrk_("L", "N", &order, &order, &one, a, &order, &zero, c, &order);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < j; i++)
            c[i + j * n] = c[j + i * n];
    }
    times(c, x, y);
    compare("dsyrk_", y, z);

    memcpy(c, a, n * n * sizeof *c);
    dgetrf_(&order, &order, c, &order, ipiv, &info);
    wrong |= info != 0;
    compare_factors("dgetrf_", a, c, ipiv, x, y, z);
    if (LAPACKE_dgetrf != NULL) {
        memcpy(c, a, n * n * sizeof *c);
        wrong |= LAPACKE_dgetrf(102, order, order, c, order, ipiv) != 0;
        compare_factors("LAPACKE_dgetrf", a, c, ipiv, x, y, z);
    }

    memcpy(c, a, n * n * sizeof *c);
    memcpy(t, x, n * sizeof *t);
    dgesv_(&order, &one_column, c, &order, ipiv, t, &order, &info);
    wrong |= info != 0;
    times(a, t, y);
    compare("dgesv_", y, x);

    /* R'R = A'A */
    memcpy(c, a, n * n * sizeof *c);
    dgeqrf_(&order, &order, c, &order, t, work, &lwork, &info);
    wrong |= info != 0;
    band_times(false, c, 0, (long)n, x, t);
    band_times(true, c, 0, (long)n, t, y);
    times(a, x, t);
    times_transposed(a, t, z);
    compare("dgeqrf_", y, z);
    free(a), free(b), free(c), free(x), free(y), free(z), free(t), free(work), free(ipiv);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        n = (size_t)atoi(argv[i]);
        check_all();
    }
    return wrong;
}
