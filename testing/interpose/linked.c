/* A program linked with the shim alone that brings its own error handlers, or its own dgemm_.
 *
 * linked xerbla | cblas | product | own SPDX-License-Identifier: BSD-3-Clause */
#define CHECK_CBLAS
#include "check.h"

#include <stdarg.h>

static char routine[64];
static int parameter, handler_calls;

#ifdef OWN_HANDLERS
/* Fortran's: the name is not terminated, its length is the hidden argument. */
void xerbla_(const char *name, const int *info, size_t length)
{
    handler_calls++;
    parameter = *info;
    memcpy(routine, name, length < sizeof routine ? length : sizeof routine - 1);
}

void cblas_xerbla(int info, const char *name, const char *format, ...)
{
    (void)format;
    handler_calls++;
    parameter = info;
    strncpy(routine, name, sizeof routine - 1);
}
#endif

#ifdef OWN_DGEMM
static int own_calls;

PROTOTYPE(dgemm_, double)
{
    (void)transa, (void)transb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda;
    (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    own_calls++;
}
#endif

/* What the handler was told. */
static int say(void)
{
    printf("%d call, %s %d\n", handler_calls, routine, parameter);
    return handler_calls != 1;
}

int main(int argc, char **argv)
{
    REQUIRE(argc == 2);
    const double a[4] = {1, 2, 3, 4};
    double c[4] = {5, 6, 7, 8};
    if (strcmp(argv[1], "xerbla") == 0) {
        call_invalid();
        return say();
    }
    if (strcmp(argv[1], "cblas") == 0) {
        cblas_dgemm(102, 110, 111, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2); /* transa */
        REQUIRE(c[0] == 5 && c[3] == 8);
        return say();
    }
#ifdef OWN_DGEMM
    if (strcmp(argv[1], "own") == 0) {
        call_invalid();
        return own_calls != 1;
    }
#else
    if (strcmp(argv[1], "product") == 0)
        return check_dgemm('N', 'T', 70, 60, 50) + check_cblas_sgemm('N', 'N', 70, 60, 50) != 0;
#endif
    return 2;
}
