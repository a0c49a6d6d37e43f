/* The functions of include/clblas_shim.h. SPDX-License-Identifier: BSD-3-Clause */
#include "host/host.h"
#include "report.h"
#include "tap.h"

#include "clblas_shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);
void dsyrk_(const char *, const char *, const int *, const int *, const double *, const double *,
            const int *, const double *, double *, const int *, size_t, size_t);

/* `products` calls of dgemm_ and one of dsyrk_, of order 3. */
static void call(int products)
{
    const int n = 3;
    const double a[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, one = 1, zero = 0;
    double c[9];
    for (int i = 0; i < products; i++)
        dgemm_("N", "N", &n, &n, &n, &one, a, &n, a, &n, &zero, c, &n, 1, 1);
    dsyrk_("L", "N", &n, &n, &one, a, &n, &zero, c, &n, 1, 1);
}

static void check_version(void *unused)
{
    char text[32];
    const int number = clblas_shim_version_number();
    (void)unused;
    snprintf(text, sizeof text, "%d.%d.%d", number / 10000, number / 100 % 100, number % 100);
    expect(number == CLBLAS_SHIM_VERSION_NUMBER, "number %d", number);
    expect(strcmp(text, clblas_shim_version()) == 0, "%s, %s", text, clblas_shim_version());
    expect(strcmp(text, CLB_VERSION) == 0, "%s, configured as " CLB_VERSION, text);
}

static void check_report(void *unused)
{
    char report[4096], part[11];
    (void)unused;
    setenv("CLBLAS_SHIM", "off", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    call(2);
    const size_t length = clblas_shim_report(report, sizeof report);
    expect(length == strlen(report) && length > 10, "length %zu", length);
    expect(report_number(report, "dgemm_", "calls") == 2, "calls of dgemm_: %s", report);
    expect(clblas_shim_report(NULL, 0) == length, "the length without a buffer");
    expect(clblas_shim_report(part, sizeof part) == length, "the length of a part");
    expect(strlen(part) == 10 && strncmp(part, report, 10) == 0, "a part: %s", part);
}

static void check_statistics(void *unused)
{
    struct clblas_shim_calls of, all;
    struct {
        struct clblas_shim_calls known;
        double later;
    } newer = {.later = 1};
    (void)unused;
    setenv("CLBLAS_SHIM", "off", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    expect(clblas_shim_statistics("dgemm_", &of, sizeof of) == 1 && of.calls == 0, "no call yet");
    call(2);
    expect(clblas_shim_statistics("dgemm_", &of, sizeof of) == 1, "dgemm_ is counted");
    expect(of.calls == 2 && of.next == 2 && of.device == 0 && of.recovered == 0,
           "%g calls, %g device, %g next, %g recovered", of.calls, of.device, of.next,
           of.recovered);
    expect(of.flops == 2 * 2 * 27 && of.flops_device == 0, "%g and %g operations", of.flops,
           of.flops_device);
    expect(of.seconds_next > 0 && of.seconds_device == 0, "%g and %g s", of.seconds_next,
           of.seconds_device);
    expect(clblas_shim_statistics(NULL, &all, sizeof all) == 1 && all.calls == 3, "%g calls in all",
           all.calls);
    expect(all.flops > of.flops && all.seconds_next > of.seconds_next, "sums of all");
    expect(clblas_shim_statistics("dgemm_", &newer.known, sizeof newer) == 1 &&
               newer.known.calls == 2 && newer.later == 0,
           "members that the library does not know are 0");
    of.device = 7;
    expect(clblas_shim_statistics("dgemm_", &of, sizeof of.calls) == 1 && of.device == 7,
           "nothing beyond the caller's size is written");
    expect(clblas_shim_statistics("daxpy_", &of, sizeof of) == 0 && of.calls == 0,
           "a name that is none of ours");
    expect(clblas_shim_statistics("dgemm_", NULL, sizeof of) == 1, "nowhere to write");
}

static void check_uncounted(void *unused)
{
    struct clblas_shim_calls of;
    (void)unused;
    setenv("CLBLAS_SHIM", "off", 1);
    unsetenv("CLBLAS_SHIM_STATS");
    call(1);
    expect(clblas_shim_statistics("dgemm_", &of, sizeof of) == 0 && of.calls == 0,
           "nothing is counted without CLBLAS_SHIM_STATS");
}

int main(void)
{
    const struct tap_test tests[] = {
        {"the versions agree", check_version, NULL},
        {"the report, whole and in part", check_report, NULL},
        {"sums of calls", check_statistics, NULL},
        {"no sums where nothing is counted", check_uncounted, NULL},
    };
    tap_children(20, tests, CLB_COUNT_OF(tests));
    return tap_done();
}
