/* What the measuring programs share. SPDX-License-Identifier: BSD-3-Clause */
#include "bench.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define LIBDIR "/usr/lib/x86_64-linux-gnu"
#else
#define LIBDIR "/usr/lib"
#endif

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
    return count % 2 != 0 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

double bench_best(const double *values, size_t count)
{
    double best = values[0];
    for (size_t i = 1; i < count; i++)
        best = values[i] < best ? values[i] : best;
    return best;
}

double bench_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(int64_t)(*state >> 11) * 0x1p-52 - 1;
}

int bench_precision(char letter)
{
    const char *at = letter == '\0' ? NULL : strchr(BENCH_PRECISIONS, letter);
    return at == NULL ? -1 : (int)(at - BENCH_PRECISIONS);
}

int bench_parts(int precision)
{
    return precision >= 2 ? 2 : 1;
}

size_t bench_real_size(int precision)
{
    return precision % 2 == 0 ? sizeof(float) : sizeof(double);
}

void *bench_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_fail("out of memory");
    return memory;
}

void bench_release(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}

void bench_fill(void *matrix, size_t elements, int precision, uint64_t seed)
{
    size_t count = elements * (size_t)bench_parts(precision);
    for (size_t i = 0; i < count; i++) {
        if (bench_real_size(precision) == sizeof(float))
            ((float *)matrix)[i] = (float)bench_random(&seed);
        else
            ((double *)matrix)[i] = bench_random(&seed);
    }
}

double bench_repeat(void (*enqueue)(void *), void (*finish)(void *), void *argument, double least,
                    size_t *launches)
{
    for (;;) {
        double begin = bench_now();
        for (size_t i = 0; i < *launches; i++)
            enqueue(argument);
        finish(argument);
        double seconds = bench_now() - begin;
        if (seconds > least || *launches >= 256)
            return seconds / (double)*launches;
        *launches *= 2;
    }
}

void bench_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

void *bench_open(const char *path)
{
    void *handle = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        bench_fail("%s", path == NULL ? "a library to compare with is missing" : dlerror());
    return handle;
}

void (*bench_symbol(void *handle, const char *name))(void)
{
    void *address = dlsym(handle, name);
    void (*function)(void);
    if (address == NULL)
        bench_fail("%s is missing: %s", name, dlerror());
    memcpy(&function, &address, sizeof function);
    return function;
}

const char *bench_find_library(const char *variable, const char *const *paths, size_t count)
{
    const char *path = getenv(variable);
    for (size_t i = 0; i < count && path == NULL; i++) {
        if (access(paths[i], R_OK) == 0)
            path = paths[i];
    }
    return path;
}

const char *bench_reference(void)
{
    static const char *const paths[] = {LIBDIR "/blas/libblas.so.3"};
    return bench_find_library("BENCH_REFERENCE", paths, 1);
}

const char *bench_reference_lapack(void)
{
    static const char *const paths[] = {LIBDIR "/lapack/liblapack.so.3"};
    return bench_find_library("BENCH_REFERENCE_LAPACK", paths, 1);
}

const char *bench_openblas(void)
{
    static const char *const paths[] = {
        LIBDIR "/openblas-pthread/libopenblas.so.0", LIBDIR "/openblas-openmp/libopenblas.so.0",
        LIBDIR "/openblas-serial/libopenblas.so.0", LIBDIR "/libopenblas.so.0"};
    return bench_find_library("BENCH_OPENBLAS", paths, sizeof paths / sizeof *paths);
}

/* A file of the build folder; the program is BUILD/testing/FOLDER/[.libs/]PROGRAM. */
static const char *find_built(const char *file, char path[PATH_MAX + 64])
{
    char *slash;
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    if (length < 0)
        return NULL;
    path[length] = '\0';
    for (int up = 0; up < 4 && (slash = strrchr(path, '/')) != NULL; up++) {
        strcpy(slash, file);
        if (access(path, R_OK) == 0)
            return path;
        *slash = '\0';
    }
    return NULL;
}

const char *bench_shim(void)
{
    static char path[PATH_MAX + 64];
    const char *set = getenv("BENCH_SHIM");
    return set != NULL ? set : find_built("/.libs/libclblas_shim.so.0", path);
}

bool bench_has_avx512(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl");
#else
    return false;
#endif
}

const char *bench_cpu(void)
{
    static char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    const char *name = NULL;
    while (file != NULL && name == NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            name = colon + 2;
        }
    }
    if (file != NULL)
        fclose(file);
    return name != NULL ? name : "unknown";
}
