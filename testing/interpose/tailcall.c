/* Code that reaches BLAS without needing a library that has it, as what calls scipy's cython_blas
 * does. SPDX-License-Identifier: BSD-3-Clause
 *
 * CLB_TEST_BLAS: a library with scipy_dgemm_ and scipy_isamax_ of CLB_TEST_INT; its product is
 * CLB_TEST_MARK. CLB_TEST_TABLE: one that jumps there. CLB_TEST_CALLER: a plugin that calls that by
 * pointer. Otherwise the program, tailcall LIBRARY... : opens all under RTLD_LOCAL, the table and
 * the caller last, and prints the product. With `nobody` it calls what no library has, second. */
#define CHECK_NO_FORTRAN
#include "check.h"

#include <dlfcn.h>

#define PARAMETERS                                                                           \
    const char *ta, const char *tb, const blas_int *m, const blas_int *n, const blas_int *k, \
        const double *alpha, const double *a, const blas_int *lda, const double *b,          \
        const blas_int *ldb, const double *beta, double *c, const blas_int *ldc
typedef void function(PARAMETERS);

void scipy_dgemm_(PARAMETERS);
void scipy_sgemm_(PARAMETERS);
blas_int scipy_isamax_(const blas_int *n, const float *x, const blas_int *step);
void table_jump(PARAMETERS);
void table_nobody(PARAMETERS);
double caller_product(function *jump);

#if defined CLB_TEST_BLAS
void scipy_dgemm_(PARAMETERS)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)ldc;
    *c = CLB_TEST_MARK;
}

blas_int scipy_isamax_(const blas_int *n, const float *x, const blas_int *step)
{
    blas_int best = 0;
    for (blas_int i = 1; i < *n; i++)
        best = x[i * *step] > x[best * *step] ? i : best;
    return *n > 0 ? best + 1 : 0;
}
#elif defined CLB_TEST_TABLE
void table_jump(PARAMETERS)
{
    scipy_dgemm_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#ifdef CLB_TEST_NOBODY
void table_nobody(PARAMETERS)
{
    scipy_sgemm_(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
#endif
#elif defined CLB_TEST_CALLER
double caller_product(function *jump)
{
    const blas_int one = 1;
    const double x = 1;
    double c = 0;
    jump("N", "N", &one, &one, &one, &x, &x, &one, &x, &one, &x, &c, &one);
    return c;
}
#else
int main(int argc, char **argv)
{
    void *table = NULL, *caller = NULL;
    bool nobody = strcmp(argv[1], "nobody") == 0;
    for (int i = 1 + nobody; i < argc; i++) {
        void *handle = dlopen(argv[i], RTLD_LAZY | RTLD_LOCAL);
        if (handle == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 2;
        }
        table = caller;
        caller = handle;
    }
    REQUIRE(argc > 2 + nobody);
    double (*product)(function *);
    function *jump;
    *(void **)&product = dlsym(caller, "caller_product");
    *(void **)&jump = dlsym(table, "table_jump");
    REQUIRE(product != NULL && jump != NULL);
    for (int i = 0; i < 3; i++) {
        printf("%g\n", product(jump));
        fflush(stdout);
    }
    if (nobody) {
        *(void **)&jump = dlsym(table, "table_nobody");
        REQUIRE(jump != NULL);
        product(jump);
    }
    return 0;
}
#endif
