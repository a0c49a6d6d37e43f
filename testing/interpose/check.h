/* What the programs of this folder share: BLAS as programs see it, and checked products.
 * SPDX-License-Identifier: BSD-3-Clause
 * Matrices have guard bands: the gap between m and ld and the columns behind the last one hold a
 * value that must still be there afterwards. CLB_TEST_INT is the width of the BLAS integers. */
#ifndef CHECK_H
#define CHECK_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef CLB_TEST_INT
#define CLB_TEST_INT int
#endif
typedef CLB_TEST_INT blas_int;

#define PROTOTYPE(name, real)                                                               \
    void name(const char *transa, const char *transb, const blas_int *m, const blas_int *n, \
              const blas_int *k, const real *alpha, const real *a, const blas_int *lda,     \
              const real *b, const blas_int *ldb, const real *beta, real *c, const blas_int *ldc)
PROTOTYPE(sgemm_, float);
PROTOTYPE(dgemm_, double);

#define CBLAS_PROTOTYPE(name, real)                                                               \
    void name(int layout, int transa, int transb, blas_int m, blas_int n, blas_int k, real alpha, \
              const real *a, blas_int lda, const real *b, blas_int ldb, real beta, real *c,       \
              blas_int ldc)
CBLAS_PROTOTYPE(cblas_sgemm, float);
CBLAS_PROTOTYPE(cblas_dgemm, double);

enum { GAP = 3 };
static const double guard = -77.25;

/* Small integers: every sum is exact in both precisions, so results must be bit-exact. */
static inline double check_entry(size_t i, size_t j, unsigned seed)
{
    return (double)((i * 7 + j * 13 + seed * 5 + i * j % 3) % 9) - 4;
}

/* op(A) is m x k, op(B) is k x n; C = 2*op(A)*op(B) - C. Returns the number of wrong entries. */
#define CHECKED_PRODUCT(name, real, CALL)                                                          \
    static inline size_t name(char transa, char transb, size_t m, size_t n, size_t k)              \
    {                                                                                              \
        bool ta = transa != 'N', tb = transb != 'N';                                               \
        size_t rows_a = ta ? k : m, cols_a = ta ? m : k, rows_b = tb ? n : k, cols_b = tb ? k : n; \
        size_t lda = rows_a + GAP, ldb = rows_b + GAP, ldc = m + GAP, wrong = 0;                   \
        real *a = malloc((lda * cols_a + 1) * sizeof *a),                                          \
             *b = malloc((ldb * cols_b + 1) * sizeof *b);                                          \
        real *c = malloc(ldc * (n + 1) * sizeof *c);                                               \
        const real alpha = 2, beta = -1;                                                           \
        if (a == NULL || b == NULL || c == NULL)                                                   \
            return 1;                                                                              \
        for (size_t i = 0; i < lda * cols_a; i++)                                                  \
            a[i] = i % lda < rows_a ? (real)check_entry(i % lda, i / lda, 1) : (real)NAN;          \
        for (size_t i = 0; i < ldb * cols_b; i++)                                                  \
            b[i] = i % ldb < rows_b ? (real)check_entry(i % ldb, i / ldb, 2) : (real)NAN;          \
        for (size_t i = 0; i < ldc * (n + 1); i++)                                                 \
            c[i] =                                                                                 \
                i % ldc < m && i / ldc < n ? (real)check_entry(i % ldc, i / ldc, 3) : (real)guard; \
        CALL;                                                                                      \
        /* Every entry of small products, a sample of large ones, and all guards. */               \
        size_t step = m * n * k > 8000000 ? m * n * k / 8000000 : 1;                               \
        for (size_t i = 0; i < ldc * (n + 1); i++) {                                               \
            size_t row = i % ldc, col = i / ldc;                                                   \
            if (row >= m || col >= n) {                                                            \
                wrong += c[i] != (real)guard;                                                      \
            } else if (i % step == 0) {                                                            \
                double sum = 0;                                                                    \
                for (size_t p = 0; p < k; p++)                                                     \
                    sum += (ta ? a[p + row * lda] : a[row + p * lda]) *                            \
                           (tb ? b[col + p * ldb] : b[p + col * ldb]);                             \
                wrong += c[i] != (real)(2 * sum - check_entry(row, col, 3));                       \
            }                                                                                      \
        }                                                                                          \
        free(a);                                                                                   \
        free(b);                                                                                   \
        free(c);                                                                                   \
        return wrong;                                                                              \
    }

#define FORTRAN_CALL(function)                                                           \
    blas_int m_ = (blas_int)m, n_ = (blas_int)n, k_ = (blas_int)k, lda_ = (blas_int)lda, \
             ldb_ = (blas_int)ldb, ldc_ = (blas_int)ldc;                                 \
    function(&transa, &transb, &m_, &n_, &k_, &alpha, a, &lda_, b, &ldb_, &beta, c, &ldc_)
#define C_CALL(function)                                                                           \
    function(102, ta ? 112 : 111, tb ? 112 : 111, (blas_int)m, (blas_int)n, (blas_int)k, alpha, a, \
             (blas_int)lda, b, (blas_int)ldb, beta, c, (blas_int)ldc)

#ifndef CHECK_NO_FORTRAN
CHECKED_PRODUCT(check_sgemm, float, FORTRAN_CALL(sgemm_))
CHECKED_PRODUCT(check_dgemm, double, FORTRAN_CALL(dgemm_))
#endif
#ifdef CHECK_CBLAS
CHECKED_PRODUCT(check_cblas_sgemm, float, C_CALL(cblas_sgemm))
CHECKED_PRODUCT(check_cblas_dgemm, double, C_CALL(cblas_dgemm))
#endif

/* A call with a negative m: xerbla_ gets parameter 3. */
static inline void call_invalid(void)
{
    const blas_int m = -1, n = 2, ld = 2;
    const double one = 1, a[4] = {1, 2, 3, 4};
    double c[4] = {0};
    dgemm_("N", "N", &m, &n, &n, &one, a, &ld, a, &ld, &one, c, &ld);
}

#define REQUIRE(condition)                                                  \
    do {                                                                    \
        if (!(condition)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                        \
        }                                                                   \
    } while (0)

#endif
