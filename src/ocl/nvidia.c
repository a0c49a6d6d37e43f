/* What is peculiar to NVIDIA's driver. */
#include "ocl.h"

#include <string.h>

static bool nvidia_is_nvidia(const struct clb_device *device)
{
    return (device->type & CL_DEVICE_TYPE_GPU) != 0 && strcasestr(device->vendor, "nvidia") != NULL;
}

/* A kernel that fails takes the context along. */
bool clb_device_fails_for_good(const struct clb_device *device)
{
    return nvidia_is_nvidia(device);
}

/* 256 work-items and 48 KiB for kernels that it runs with 512 and 180 KiB (H200, driver 580,
 * 2026-11). Its launches fail where there is really too little. */
bool clb_device_understates_limits(const struct clb_device *device)
{
    return nvidia_is_nvidia(device);
}
