/* SPDX-License-Identifier: BSD-3-Clause
 * clblas_shim.h: control and reporting API of clblas-shim.
 *
 * The BLAS and LAPACK routines need no header of ours: declare them as for any other library. A
 * program that may run without the shim looks these functions up with dlsym. */
#ifndef CLBLAS_SHIM_H
#define CLBLAS_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, "0.1.0". */
const char *clblas_shim_version(void);

/* The report of CLBLAS_SHIM_STATS so far, as JSON (docs/report.md). Calls are counted only
 * when CLBLAS_SHIM_STATS is set. At most size-1 characters and a terminator are written to buffer,
 * which may be NULL when size is 0; returns the length of the whole report, 0 when memory runs out.
 */
size_t clblas_shim_report(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
