/* clblas_shim.h: what clblas-shim has done, and which version it is.
 * SPDX-License-Identifier: BSD-3-Clause
 * The BLAS and LAPACK routines need no header of ours: declare them as for any other library. A
 * program that may run without the shim looks these functions up with dlsym. All of them may be
 * called by any thread at any time. None starts the device. docs/abi.md says what stays as it is.
 */
#ifndef CLBLAS_SHIM_H
#define CLBLAS_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: 10000*major + 100*minor + patch. */
#define CLBLAS_SHIM_VERSION_NUMBER 200

/* The version of the library that is loaded: "0.2.0", and as a number. */
const char *clblas_shim_version(void);
int clblas_shim_version_number(void); /* since 0.2.0 */

/* The report of CLBLAS_SHIM_STATS so far, as JSON (docs/report.md). Calls are counted only
 * when CLBLAS_SHIM_STATS is set. At most size-1 characters and a terminator are written to buffer,
 * which may be NULL when size is 0; returns the length of the whole report, 0 when memory runs out.
 */
size_t clblas_shim_report(char *buffer, size_t size);

/* Sums over calls, the report's fields of these names. Later versions may append members. */
struct clblas_shim_calls {
    double calls;                        /* device + next + recovered; exact up to 2^53 */
    double device, next, recovered;      /* computed on the device; by the next library; by both */
    double flops, flops_device;          /* operations of all calls, and those on the device */
    double seconds_device, seconds_next; /* in calls on the device, and in the next library */
};

/* Fills *statistics, of which the caller knows `size` bytes (its sizeof), with the sums of the
 * calls of one exported name ("dgemm_", "cblas_dgemm") or, with NULL, of all; what calls inside
 * other calls took is then counted once. Returns 1, or 0 and zeros when the library has no such
 * name or counts no calls, because CLBLAS_SHIM_STATS is not set. Since 0.2.0. */
int clblas_shim_statistics(const char *name, struct clblas_shim_calls *statistics, size_t size);

#ifdef __cplusplus
}
#endif

#endif
