/* A BLAS that passes calls on to a back end, as FlexiBLAS does.
 * SPDX-License-Identifier: BSD-3-Clause
 * CLB_TEST_DISPATCHER: the library, whose back end is $DISPATCH; with CLB_TEST_OWN_CALLS it calls
 * its own dgemm_ by name as well, with CLB_TEST_JUMPS it leaves its dgemm_ by a jump, as optimising
 * compilers build FlexiBLAS. CLB_TEST_WRAPPER: a back end with a dgemm_ of its own, which
 * calls that of $WRAPPED. CLB_TEST_EMPTY: one without. Otherwise the program. */
#define CHECK_NO_FORTRAN
#include "check.h"

#include <dlfcn.h>

#define PARAMETERS                                                                           \
    const char *ta, const char *tb, const blas_int *m, const blas_int *n, const blas_int *k, \
        const double *alpha, const double *a, const blas_int *lda, const double *b,          \
        const blas_int *ldb, const double *beta, double *c, const blas_int *ldc
#define ARGUMENTS ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
typedef void function(PARAMETERS);

int dispatched(void);
void own_calls(PARAMETERS);

#if defined CLB_TEST_DISPATCHER || defined CLB_TEST_WRAPPER
#ifdef CLB_TEST_WRAPPER
#define VARIABLE "WRAPPED"
#else
#define VARIABLE "DISPATCH"
#endif
static function *back_end;
static int calls;

static __attribute__((constructor)) void open_back_end(void)
{
    void *handle = dlopen(getenv(VARIABLE), RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        fprintf(stderr, "%s\n", dlerror());
    *(void **)&back_end = handle == NULL ? NULL : dlsym(handle, "dgemm_");
}

#ifdef CLB_TEST_JUMPS
/* The last thing it does is the call. */
void dgemm_(PARAMETERS)
{
    calls++;
    back_end(ARGUMENTS);
}
#else
/* Not a tail call, as it must come back to where this is. */
void dgemm_(PARAMETERS)
{
    static int depth;
    REQUIRE(++depth < 100);
    back_end(ARGUMENTS);
    depth--;
    calls++;
}
#endif

#ifdef CLB_TEST_DISPATCHER
int dispatched(void)
{
    return calls;
}

void own_calls(PARAMETERS)
{
#ifdef CLB_TEST_OWN_CALLS
    dgemm_(ARGUMENTS);
    calls += 0;
#else
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)ldc;
    c[0] = 23;
    c[3] = 46;
    calls++;
#endif
}
#endif
#elif !defined CLB_TEST_EMPTY
int main(void)
{
    const blas_int two = 2;
    const double one = 1, zero = 0, a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
    for (int i = 0; i < 20; i++) {
        double c[4] = {0}, d[4] = {0};
        dgemm_("N", "N", &two, &two, &two, &one, a, &two, b, &two, &zero, c, &two);
        REQUIRE(c[0] == 23 && c[3] == 46);
        own_calls("N", "N", &two, &two, &two, &one, a, &two, b, &two, &zero, d, &two);
        REQUIRE(d[0] == 23 && d[3] == 46);
        REQUIRE(dispatched() == 2 * (i + 1));
    }
    return 0;
}
#endif
