/* The shim's own API, include/clblas_shim.h. SPDX-License-Identifier: BSD-3-Clause */
#include "abi.h"
#include "host/process.h"

#include "clblas_shim.h"

#include <string.h>

CLB_PUBLIC const char *clblas_shim_version(void)
{
    return CLB_VERSION;
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
