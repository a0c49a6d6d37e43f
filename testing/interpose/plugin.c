/* SPDX-License-Identifier: BSD-3-Clause
 * A plugin linked to a BLAS of 32-bit or of 64-bit integers (CLB_TEST_INT). */
#include "check.h"

size_t plugin_run(void);
size_t plugin_invalid(void);

static int loads;

size_t plugin_run(void)
{
    size_t wrong = 0;
    loads++;
    for (size_t n = 1; n <= 61; n += 20) {
        wrong += check_dgemm('N', 'N', n, n + 2, n + 5);
        wrong += check_dgemm('T', 'C', n, n + 2, n + 5);
        wrong += check_sgemm('N', 'T', n, n + 2, n + 5);
    }
    return wrong;
}

/* beta = 0 clears C, whatever k = 0 and a leading dimension with a non-zero upper half make of it.
 * A 32-bit library would see ld = 4 in a value that a 64-bit one must refuse or take as it is. */
size_t plugin_invalid(void)
{
    const blas_int m = 4, n = 4, k = 0, ld = 4;
    const double one = 1, zero = 0, a[16] = {0};
    double c[16];
    size_t wrong = 0;
    for (int i = 0; i < 16; i++)
        c[i] = NAN;
    dgemm_("N", "N", &m, &n, &k, &one, a, &ld, a, &ld, &zero, c, &ld);
    for (int i = 0; i < 16; i++)
        wrong += c[i] != 0;
    /* Only a library of the caller's width sees more than 2^32 - 1 columns of nothing. */
    if (sizeof(blas_int) == 8) {
        const blas_int none = 0, many = (blas_int)(INT64_C(1) << 32) - 3;
        dgemm_("N", "N", &none, &many, &k, &one, a, &ld, a, &ld, &zero, c, &ld);
    }
    return wrong;
}
