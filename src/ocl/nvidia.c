/* Properties of NVIDIA's driver. */
#include "ocl.h"

#include <string.h>

static bool nvidia_is_nvidia(const struct clb_device *device)
{
    return (device->type & CL_DEVICE_TYPE_GPU) != 0 && strcasestr(device->vendor, "nvidia") != NULL;
}

/* A kernel that fails makes the whole context unusable. */
bool clb_device_fails_for_good(const struct clb_device *device)
{
    return nvidia_is_nvidia(device);
}

/* It reports 256 work-items and 48 KiB of local memory for kernels that it runs with 512 and 180
 * KiB (H200, driver 580, 2026-11). A launch that really needs too much fails. */
bool clb_device_understates_limits(const struct clb_device *device)
{
    return nvidia_is_nvidia(device);
}
