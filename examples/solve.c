/* A program that knows nothing of the shim: solves systems by dgesv and multiplies by dgemm, three
 * times each, and prints what that took.
 *
 * gcc -O2 -o solve examples/solve.c -l:liblapack.so.3 -l:libblas.so.3 -lm
 * ./solve N SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void dgesv_(const int *n, const int *nrhs, double *a, const int *lda, int *ipiv, double *b,
            const int *ldb, int *info);
void dgemm_(const char *transa, const char *transb, const int *m, const int *n, const int *k,
            const double *alpha, const double *a, const int *lda, const double *b, const int *ldb,
            const double *beta, double *c, const int *ldc, size_t length_a, size_t length_b);

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

int main(int count, char **arguments)
{
    const int n = count > 1 ? atoi(arguments[1]) : 4000, one = 1;
    const double alpha = 1, beta = 0;
    const size_t order = (size_t)n;
    double *a = malloc(order * order * sizeof *a), *lu = malloc(order * order * sizeof *lu),
           *c = malloc(order * order * sizeof *c), *b = malloc(order * sizeof *b),
           *x = malloc(order * sizeof *x);
    int *pivots = malloc(order * sizeof *pivots), info = 0;
    if (n < 1 || a == NULL || lu == NULL || c == NULL || b == NULL || x == NULL || pivots == NULL)
        return EXIT_FAILURE;
    for (int run = 0; run < 3; run++) {
        for (size_t i = 0; i < order * order; i++)
            lu[i] = a[i] = drand48() - 0.5;
        for (size_t i = 0; i < order; i++)
            x[i] = b[i] = drand48();
        double begin = milliseconds();
        dgesv_(&n, &one, lu, &n, pivots, x, &n, &info);
        const double solved = milliseconds() - begin;
        double worst = 0;
        for (size_t i = 0; i < order; i++) {
            double difference = -b[i];
            for (size_t j = 0; j < order; j++)
                difference += a[i + j * order] * x[j];
            worst = fmax(worst, fabs(difference));
        }
        begin = milliseconds();
        dgemm_("N", "N", &n, &n, &n, &alpha, a, &n, lu, &n, &beta, c, &n, 1, 1);
        printf("n = %d: dgesv %.1f ms, |b - A x| = %.2g; dgemm %.1f ms\n", n, solved, worst,
               milliseconds() - begin);
        if (info != 0 || !(worst < 1e-6))
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
