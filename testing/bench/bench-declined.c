/* What a declined call costs: a 2x2x2 product or a 2x2 triangular system through the shim minus the
 * same by the next library's function directly, in nanoseconds.
 *
 * usage: bench-declined [--next LIBRARY] [--batches N]
 *
 * Three ways for the shim to find the next library: globally (both preloaded, the address is known
 * for all callers), by caller (RTLD_NEXT finds nothing, the address is remembered for each call
 * site), and behind a provider, where ddot_ of one element is none of the shim's names. Batches of
 * calls alternate between the shim and the direct call, the median of the differences is reported.
 * No device is started. SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 2000

typedef void (*function)(void);
typedef void fortran(const char *, const char *, const int *, const int *, const int *,
                     const double *, const double *, const int *, const double *, const int *,
                     const double *, double *, const int *, size_t, size_t);
typedef void triangular(const char *, const char *, const char *, const char *, const int *,
                        const int *, const double *, const double *, const int *, double *,
                        const int *, size_t, size_t, size_t, size_t);
typedef void cblas(int, int, int, int, int, int, double, const double *, int, const double *, int,
                   double, double *, int);

static const int two = 2;
static const double alpha = 1, beta = 0, a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
static const double identity[4] = {1, 0, 0, 1};
static double c[4];

static __attribute__((noinline)) double time_fortran(function volatile *f)
{
    double begin = bench_now();
    for (int i = 0; i < CALLS; i++)
        ((fortran *)*f)("N", "N", &two, &two, &two, &alpha, a, &two, b, &two, &beta, c, &two, 1, 1);
    return bench_now() - begin;
}

static __attribute__((noinline)) double time_cblas(function volatile *f)
{
    double begin = bench_now();
    for (int i = 0; i < CALLS; i++)
        ((cblas *)*f)(102, 111, 111, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
    return bench_now() - begin;
}

/* Solutions stay as they are: the triangle is the identity's. */
static __attribute__((noinline)) double time_trsm(function volatile *f)
{
    double begin = bench_now();
    for (int i = 0; i < CALLS; i++)
        ((triangular *)*f)("L", "U", "N", "U", &two, &two, &alpha, identity, &two, c, &two, 1, 1, 1,
                           1);
    return bench_now() - begin;
}

static __attribute__((noinline)) double time_dot(function volatile *f)
{
    static const int one = 1;
    double begin = bench_now();
    for (int i = 0; i < CALLS; i++)
        ((double (*)(const int *, const double *, const int *, const double *, const int *)) *
         f)(&one, a, &one, b, &one);
    return bench_now() - begin;
}

static void measure(const char *name, const char *how, size_t batches, void *next)
{
    double (*time_of)(function volatile *) = name[0] == 'c'   ? time_cblas
                                             : name[2] == 'o' ? time_dot
                                             : name[1] == 't' ? time_trsm
                                                              : time_fortran;
    void *address = dlsym(RTLD_DEFAULT, name);
    function volatile shim, direct = bench_symbol(next, name);
    memcpy((void *)&shim, &address, sizeof address);
    if (address == NULL || shim == direct)
        bench_fail("%s does not reach the shim", name);
    double *differences = calloc(batches, sizeof *differences);
    double *directs = calloc(batches, sizeof *directs);
    if (differences == NULL || directs == NULL)
        bench_fail("out of memory");
    time_of(&shim);
    time_of(&direct);
    for (size_t i = 0; i < batches; i++) {
        double first = time_of(i % 2 == 0 ? &shim : &direct);
        double second = time_of(i % 2 == 0 ? &direct : &shim);
        directs[i] = 1e9 / CALLS * (i % 2 == 0 ? second : first);
        differences[i] = 1e9 / CALLS * (i % 2 == 0 ? first - second : second - first);
    }
    double best = bench_best(directs, batches);
    double direct_median = bench_median(directs, batches);
    printf("%-12s %-10s %10.1f %10.1f %10.1f\n", name, how, bench_median(differences, batches),
           direct_median, best);
    free(differences);
    free(directs);
}

static void measure_here(const char *how, size_t batches, const char *next)
{
    void *handle = bench_open(next);
    measure("dgemm_", how, batches, handle);
    measure("cblas_dgemm", how, batches, handle);
    measure("dtrsm_", how, batches, handle);
    if (strcmp(how, "provider") == 0)
        measure("ddot_", how, batches, handle);
}

/* Beside the shim in the build folder. */
static const char *provider(void)
{
    static char path[4096];
    const char *shim = bench_shim(), *end = strstr(shim, ".libs/");
    if (end != NULL)
        snprintf(path, sizeof path, "%.*sprovider/.libs/libblas.so.3", (int)(end - shim), shim);
    return path;
}

/* Run again with the library preloaded: the dynamic linker reads LD_PRELOAD at the start only. */
static void run_again(char **arguments, const char *how, const char *next)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char preload[4096];
        bool global = strcmp(how, "global") == 0;
        snprintf(preload, sizeof preload, "%s%s%s", bench_shim(), global ? ":" : "",
                 global ? next : "");
        if (strcmp(how, "provider") == 0) {
            snprintf(preload, sizeof preload, "%s", provider());
            setenv("CLBLAS_SHIM_NEXT", next, 1);
        }
        setenv("LD_PRELOAD", preload, 1);
        setenv("BENCH_DECLINED", how, 1);
        setenv("BENCH_NEXT", next, 1);
        if (!global)
            setenv("CLBLAS_SHIM_LOG", "warn", 1);
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
        bench_fail("the measurement (%s) failed", how);
}

int main(int count, char **arguments)
{
    const char *next = getenv("BENCH_NEXT"), *how = getenv("BENCH_DECLINED");
    size_t batches = 2001;
    for (int i = 1; i + 1 < count; i += 2) {
        if (strcmp(arguments[i], "--next") == 0)
            next = arguments[i + 1];
        else if (strcmp(arguments[i], "--batches") == 0)
            batches = strtoul(arguments[i + 1], NULL, 10);
        else
            bench_fail("usage: bench-declined [--next LIBRARY] [--batches N]");
    }
    next = next != NULL ? next : bench_reference();
    if (next == NULL || bench_shim() == NULL || batches == 0)
        bench_fail("the shim or the next library is missing (BENCH_SHIM, --next)");
    if (how != NULL) {
        measure_here(how, batches, next);
        return 0;
    }
    printf("next: %s\n%-12s %-10s %10s %10s %10s   nanoseconds a call\n", next, "name",
           "next found", "added", "direct", "best");
    run_again(arguments, "global", next);
    run_again(arguments, "by caller", next);
    if (access(provider(), R_OK) == 0)
        run_again(arguments, "provider", next);
    return 0;
}
