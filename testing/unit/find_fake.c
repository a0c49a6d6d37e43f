/* SPDX-License-Identifier: BSD-3-Clause
 * A next library for tests. FAKE_INT is its integer; with FAKE_ONLY_SGEMM it lacks the rest, with
 * FAKE_OPENMP its threads are OpenMP's. Its sgemm_ sets C(1,1) to FAKE_MARK. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

typedef FAKE_INT integer;

EXPORT integer isamax_(const integer *n, const float *x, const integer *step);
EXPORT integer isamax_(const integer *n, const float *x, const integer *step)
{
    integer best = 0;
    for (integer i = 1; i < *n; i++)
        best = x[i * *step] > x[best * *step] ? i : best;
    return *n > 0 ? best + 1 : 0;
}

EXPORT size_t cblas_isamax(integer n, const float *x, integer step);
EXPORT size_t cblas_isamax(integer n, const float *x, integer step)
{
    integer result = isamax_(&n, x, &step);
    return result > 0 ? (size_t)(result - 1) : 0;
}

EXPORT void sgemm_(const char *ta, const char *tb, const integer *m, const integer *n,
                   const integer *k, const float *alpha, const float *a, const integer *lda,
                   const float *b, const integer *ldb, const float *beta, float *c,
                   const integer *ldc);
EXPORT void sgemm_(const char *ta, const char *tb, const integer *m, const integer *n,
                   const integer *k, const float *alpha, const float *a, const integer *lda,
                   const float *b, const integer *ldb, const float *beta, float *c,
                   const integer *ldc)
{
    (void)ta, (void)tb, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb, (void)beta;
    (void)ldc;
    if (*m > 0 && *n > 0)
        *c = FAKE_MARK;
}

#ifndef FAKE_ONLY_SGEMM
EXPORT void cblas_sgemm(int layout, int ta, int tb, integer m, integer n, integer k, float alpha,
                        const float *a, integer lda, const float *b, integer ldb, float beta,
                        float *c, integer ldc);
EXPORT void cblas_sgemm(int layout, int ta, int tb, integer m, integer n, integer k, float alpha,
                        const float *a, integer lda, const float *b, integer ldb, float beta,
                        float *c, integer ldc)
{
    (void)layout, (void)ta, (void)tb, (void)k, (void)alpha, (void)a, (void)lda, (void)b, (void)ldb;
    (void)beta, (void)ldc;
    if (m > 0 && n > 0)
        *c = FAKE_MARK;
}

/* A BLAS with threads, as OpenBLAS lets them be counted. */
static int threads = 5;
EXPORT void openblas_set_num_threads(int count);
EXPORT void openblas_set_num_threads(int count)
{
    threads = count;
}

EXPORT int openblas_get_num_threads(void);
EXPORT int openblas_get_num_threads(void)
{
    return threads;
}

#ifdef FAKE_OPENMP
EXPORT int omp_get_max_threads(void);
EXPORT int omp_get_max_threads(void)
{
    return threads;
}
#endif
#endif
