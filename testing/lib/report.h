/* SPDX-License-Identifier: BSD-3-Clause
 * report: numbers of the JSON report that CLBLAS_SHIM_STATS asks for. */
#ifndef REPORT_H
#define REPORT_H

#include <stddef.h>

/* A number of a routine, e.g. ("dgemm_", "calls") or ("dgemm_", "small"); 0 when it is not there.
 */
double report_number(const char *report, const char *symbol, const char *key);

/* Every routine was called and everything that computes ran on the device, says the library's own
 * report so far (public.c and its like, which are linked with the library). */
void expect_on_device(const char *const *symbols, size_t count);

#endif
