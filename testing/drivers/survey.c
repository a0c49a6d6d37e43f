/* What a driver makes of the shim's products: of a fresh process, the seconds that the first takes
 * and the rate of those after it, for drivers.sh and docs/drivers.md.
 *
 * usage: survey SHIM, with CLBLAS_SHIM=always and CLBLAS_SHIM_STATS=/dev/null
 *
 * Prints the device's name, and a line for each of s and d:
 *   LETTER FIRST N RATE DEVICE CALLS RESULT
 * seconds of the first call, order of the products, GFLOP per second of the process's CPU time
 * (best call), calls on the device, all calls, and `right` or `wrong`. Slow drivers get smaller
 * products. SPDX-License-Identifier: BSD-3-Clause */
#include "testing/bench/bench.h"
#include "tools/command/trial.h"
#include "report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { SMALL = 192, LARGE = 1024, CALLS = 12 };

typedef void gemm(const char *transa, const char *transb, const int *m, const int *n, const int *k,
                  const void *alpha, const void *a, const int *lda, const void *b, const int *ldb,
                  const void *beta, void *c, const int *ldc);
typedef size_t report(char *buffer, size_t size);

struct survey {
    gemm *multiply;
    int precision;
    void *a, *b, *c;
    bool right;
};

static double cpu_seconds(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* The CPU time of a product of order n, and its wall time in *wall. */
static double multiply(struct survey *survey, int n, double *wall)
{
    const float ones = 1, zeros = 0;
    const double one = 1, zero = 0;
    const bool single = survey->precision == bench_precision('s');
    const double begin = bench_now(), cpu = cpu_seconds();
    survey->multiply("N", "N", &n, &n, &n, single ? (const void *)&ones : &one, survey->a, &n,
                     survey->b, &n, single ? (const void *)&zeros : &zero, survey->c, &n);
    const double used = cpu_seconds() - cpu;
    *wall = bench_now() - begin;
    if (!clb_trial_product_is_right((clb_precision)survey->precision, (size_t)n, (size_t)n,
                                    (size_t)n, survey->a, survey->b, survey->c))
        survey->right = false;
    return used;
}

static void measure(void *shim, char letter, char *text, size_t size)
{
    const char name[] = {letter, 'g', 'e', 'm', 'm', '_', '\0'};
    struct survey survey = {.precision = bench_precision(letter), .right = true};
    const size_t bytes = (size_t)LARGE * LARGE * bench_real_size(survey.precision);
    survey.multiply = (gemm *)bench_symbol(shim, name);
    survey.a = bench_memory(bytes);
    survey.b = bench_memory(bytes);
    survey.c = bench_memory(bytes);
    bench_fill(survey.a, (size_t)LARGE * LARGE, survey.precision, 1);
    bench_fill(survey.b, (size_t)LARGE * LARGE, survey.precision, 2);

    double first, wall, best = 1e9;
    multiply(&survey, SMALL, &first);
    multiply(&survey, SMALL, &wall);
    const double ratio = (double)LARGE / SMALL;
    const int n = wall * ratio * ratio * ratio < 10 ? LARGE : SMALL;
    for (int i = 0; i < CALLS; i++) {
        const double used = multiply(&survey, n, &wall);
        best = used < best ? used : best;
    }

    report *get = (report *)bench_symbol(shim, "clblas_shim_report");
    get(text, size);
    printf("%c %.1f %d %.2f %.0f %.0f %s\n", letter, first, n, 2e-9 * n * n * n / best,
           report_number(text, name, "device"), report_number(text, name, "calls"),
           survey.right ? "right" : "wrong");
    fflush(stdout);
    bench_release(survey.a, bytes);
    bench_release(survey.b, bytes);
    bench_release(survey.c, bytes);
}

int main(int count, char **arguments)
{
    static char text[1 << 20];
    if (count != 2)
        bench_fail("usage: survey SHIM");
    void *shim = bench_open(arguments[1]);
    measure(shim, 's', text, sizeof text);
    measure(shim, 'd', text, sizeof text);
    const char *device = strstr(text, "\"device\":\"");
    if (device != NULL)
        printf("device %.*s\n", (int)strcspn(device + 10, "\""), device + 10);
    return 0;
}
