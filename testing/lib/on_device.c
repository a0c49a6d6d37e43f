/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"
#include "tap.h"

#include "clblas_shim.h"

void expect_on_device(const char *const *symbols, size_t count)
{
    static char report[8192];
    expect(clblas_shim_report(report, sizeof report) < sizeof report, "the report's length");
    for (size_t i = 0; i < count; i++) {
        double calls = report_number(report, symbols[i], "calls");
        double device = report_number(report, symbols[i], "device");
        double quick = report_number(report, symbols[i], "quick");
        expect(device > 0 && calls == device + quick, "%s: %g calls, %g on the device, %g quick",
               symbols[i], calls, device, quick);
    }
}
