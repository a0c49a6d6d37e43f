/* Error handlers that leave a declined call by longjmp, as R's and Octave's do.
 * SPDX-License-Identifier: BSD-3-Clause
 * longjmp TIMES: so many invalid calls by each of dgemm_ and cblas_dgemm, products in between. */
#define CHECK_CBLAS
#include "check.h"

#include <fenv.h>
#include <setjmp.h>
#include <signal.h>

static jmp_buf back;

void xerbla_(const char *name, const int *info, size_t length)
{
    (void)name, (void)length;
    longjmp(back, *info);
}

void cblas_xerbla(int info, const char *name, const char *format, ...)
{
    (void)name, (void)format;
    longjmp(back, info);
}

int main(int argc, char **argv)
{
    int times = argc > 1 ? atoi(argv[1]) : 1000;
    volatile int jumps = 0;
    volatile size_t wrong = 0;
    const double a[4] = {1, 2, 3, 4};
    double c[4] = {5, 6, 7, 8};
    sigset_t before, after;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    sigprocmask(SIG_SETMASK, NULL, &before);
    int rounding = fegetround();
    for (volatile int i = 0; i < times; i++) {
        if (i % 100 == 0)
            wrong += check_dgemm('N', 'N', 50, 40, 30);
        if (setjmp(back) == 0)
            call_invalid();
        else
            jumps++;
        if (setjmp(back) == 0)
            cblas_dgemm(102, 110, 111, 2, 2, 2, 1, a, 2, a, 2, 0, c, 2);
        else
            jumps++;
    }
    wrong += check_dgemm('T', 'N', 60, 50, 40) + check_cblas_sgemm('N', 'T', 60, 50, 40);
    sigprocmask(SIG_SETMASK, NULL, &after);
    REQUIRE(memcmp(&before, &after, sizeof before) == 0);
    REQUIRE(fegetround() == rounding);
    REQUIRE(jumps == 2 * times);
    REQUIRE(wrong == 0);
    return 0;
}
