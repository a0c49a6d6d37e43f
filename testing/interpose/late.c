/* A program of a few products, and a library for it: when it ends it has run for twenty seconds
 * more, by the clock. The library is preloaded before others, so that its destructor is called
 * before theirs. SPDX-License-Identifier: BSD-3-Clause */
#ifdef LATE_PROGRAM

extern void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
                   const double *alpha, const double *a, const int *lda, const double *b,
                   const int *ldb, const double *beta, double *c, const int *ldc);

#define N 150

int main(void)
{
    static double a[N * N], c[N * N];
    static const int n = N;
    static const double one = 1, zero = 0;
    for (int i = 0; i < N * N; i++)
        a[i] = 1.0 / (i + 1);
    for (int i = 0; i < 20; i++)
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n);
    return 0;
}

#else

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int late;

__attribute__((destructor)) static void end(void)
{
    late = 20;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long status = syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += late;
    return (int)status;
}

#endif
