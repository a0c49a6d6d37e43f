/* A program that knows nothing of the shim: one call that may take long. long dgemm|dgetrf|dpotrf N
 * SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);
void dgetrf_(const int *, const int *, double *, const int *, int *, int *);
void dpotrf_(const char *, const int *, double *, const int *, int *, size_t);
void dgeqrf_(const int *, const int *, double *, const int *, double *, double *, const int *,
             int *);

int main(int argc, char **argv)
{
    const int n = argc > 2 ? atoi(argv[2]) : 0, lwork = 64 * n;
    const size_t count = (size_t)n * (size_t)n;
    double *a = malloc(count * sizeof *a), *c = malloc(count * sizeof *c),
           *work = malloc((size_t)(lwork + n) * sizeof *work);
    int *ipiv = malloc((size_t)n * sizeof *ipiv), info = 0;
    const double one = 1, zero = 0;
    if (n <= 0 || a == NULL || c == NULL || work == NULL || ipiv == NULL)
        return 1;
    for (size_t i = 0; i < count; i++)
        a[i] = i % ((size_t)n + 1) == 0 ? n : 1.0 / (double)(1 + i % 7);
    if (strcmp(argv[1], "dgemm") == 0)
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    else if (strcmp(argv[1], "dgetrf") == 0)
        dgetrf_(&n, &n, a, &n, ipiv, &info);
    else if (strcmp(argv[1], "dpotrf") == 0)
        dpotrf_("L", &n, a, &n, &info, 1);
    else
        dgeqrf_(&n, &n, a, &n, work, work + n, &lwork, &info);
    return info != 0;
}
