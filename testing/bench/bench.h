/* What the measuring programs share: clock, statistics, random data, the libraries that they
 * compare. SPDX-License-Identifier: BSD-3-Clause */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

double bench_now(void);
double bench_median(double *values, size_t count); /* sorts */
double bench_best(const double *values, size_t count);

/* Uniform in (-1, 1), the same numbers in every run. */
double bench_random(uint64_t *state);

/* Precisions are numbered as the letters of BLAS's names stand here. */
#define BENCH_PRECISIONS "sdcz"
int bench_precision(char letter);      /* -1 for another letter */
int bench_parts(int precision);        /* real numbers in an element */
size_t bench_real_size(int precision); /* bytes of such a number */

/* Memory fresh from the system; ends the program when there is none. */
void *bench_memory(size_t bytes);
void bench_release(void *memory, size_t bytes);
void bench_fill(void *matrix, size_t elements, int precision, uint64_t seed);

/* Seconds of one of so many launches that they take `least` seconds; *launches is where to begin. A
 * device at the limit of its power takes a while to settle at the clock that a kernel allows: run
 * it untimed before. */
double bench_repeat(void (*enqueue)(void *), void (*finish)(void *), void *argument, double least,
                    size_t *launches);

/* Print to stderr and exit. */
void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* dlopen and dlsym that end the program when they fail. */
void *bench_open(const char *path);
void (*bench_symbol(void *handle, const char *name))(void);

/* `variable` of the environment, or the first of the paths that exists; NULL when none does. */
const char *bench_find_library(const char *variable, const char *const *paths, size_t count);
const char *bench_reference(void); /* BENCH_REFERENCE, or Debian's */
const char *
bench_reference_lapack(void);     /* BENCH_REFERENCE_LAPACK, likewise; open the BLAS first */
const char *bench_openblas(void); /* BENCH_OPENBLAS, or Debian's */
const char *bench_shim(void);     /* BENCH_SHIM, or the one beside the program's build folder */

/* The CPU's AVX-512, that an older OpenBLAS may not know how to use on a newer CPU. */
bool bench_has_avx512(void);

/* A line of /proc/cpuinfo, "unknown" when there is none. */
const char *bench_cpu(void);

#endif
