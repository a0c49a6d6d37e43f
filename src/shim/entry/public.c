/* The shim's own API, include/clblas_shim.h. SPDX-License-Identifier: BSD-3-Clause */
#include "abi.h"
#include "host/process.h"

#include "clblas_shim.h"

#include <string.h>

CLB_PUBLIC const char *clblas_shim_version(void)
{
    return CLB_VERSION;
}

CLB_PUBLIC int clblas_shim_version_number(void)
{
    return CLBLAS_SHIM_VERSION_NUMBER;
}

CLB_PUBLIC int clblas_shim_statistics(const char *name, struct clblas_shim_calls *statistics,
                                      size_t size)
{
    double sums[CLB_STATS_SUMS];
    _Static_assert(sizeof sums == sizeof *statistics, "the members are the sums");
    clb_route_configure();
    const bool counted = clb_stats_sum_calls(name, sums);
    if (statistics != NULL) {
        memset(statistics, 0, size);
        memcpy(statistics, sums, clb_min(size, sizeof sums));
    }
    return counted;
}

CLB_PUBLIC size_t clblas_shim_report(char *buffer, size_t size)
{
    struct clb_text report = {0};
    clb_route_configure();
    clb_stats_format_json(&report);
    size_t length = report.failed ? 0 : report.length;
    if (size > 0 && buffer != NULL) {
        size_t copied = clb_min(length, size - 1);
        if (copied > 0)
            memcpy(buffer, report.data, copied);
        buffer[copied] = '\0';
    }
    clb_text_free(&report);
    return length;
}

/* For provider libraries, which must not import dlsym: find.c takes what does for a dispatcher. */
void *clblas_shim_provide(const char *name);
CLB_PUBLIC void *clblas_shim_provide(const char *name)
{
    return clb_next_provide(name);
}
