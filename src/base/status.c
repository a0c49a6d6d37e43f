/* Names of clb_status values; sizes of precisions. */
#include "base.h"

#include <time.h>

const char *clb_status_name(clb_status status)
{
    static const char *const names[] = {
        [CLB_OK] = "ok",
        [CLB_ERR_NOMEM] = "out of memory",
        [CLB_ERR_OPENCL] = "OpenCL failure",
        [CLB_ERR_LAUNCH] = "a kernel needs more than the device has",
        [CLB_ERR_NODEVICE] = "no device",
        [CLB_ERR_BUILD] = "kernel build failure",
        [CLB_ERR_RANGE] = "out of range",
        [CLB_ERR_UNSUPPORTED] = "not supported",
        [CLB_ERR_IO] = "input/output failure",
    };
    return (size_t)status < CLB_COUNT_OF(names) ? names[status] : "unknown";
}

size_t clb_precision_size(clb_precision precision)
{
    static const size_t sizes[CLB_PRECISIONS] = {
        [CLB_S] = 4, [CLB_D] = 8, [CLB_C] = 8, [CLB_Z] = 16};
    return sizes[precision];
}

size_t clb_precision_parts(clb_precision precision)
{
    return precision == CLB_C || precision == CLB_Z ? 2 : 1;
}

size_t clb_precision_real_size(clb_precision precision)
{
    return clb_precision_size(precision) / clb_precision_parts(precision);
}

double clb_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
