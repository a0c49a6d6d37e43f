/* SPDX-License-Identifier: BSD-3-Clause
 * A next library with OpenBLAS's thread functions, and a machine of 16 CPUs. The file HELD gets the
 * least number of threads that a call of DGEMM had, and the last. */
#include "check.h"

#include <dlfcn.h>
#include <sched.h>

static int threads = 16, least = 16;

void openblas_set_num_threads(int count)
{
    threads = count;
}

int openblas_get_num_threads(void)
{
    return threads;
}

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set)
{
    (void)process;
    memset(set, 0, size);
    memset(set, 0xff, 2);
    return 0;
}

PROTOTYPE(dgemm_, double)
{
    PROTOTYPE((*next), double);
    *(void **)&next = dlsym(dlopen("libblas.so.3", RTLD_NOW), "dgemm_");
    least = threads < least ? threads : least;
    next(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static void __attribute__((destructor)) say(void)
{
    FILE *file = fopen(getenv("HELD"), "w");
    fprintf(file, "%d %d\n", least, threads);
    fclose(file);
}
