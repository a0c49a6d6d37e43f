/* A layer over the system's drivers (OPENCL_LAYERS) that gives platforms and devices the name and
 * the vendor of RENAMED. SPDX-License-Identifier: BSD-3-Clause */
#include "../lib/layer.h"

#include <stdlib.h>

static struct _cl_icd_dispatch real;

static cl_int answer(size_t size, void *value, size_t *needed)
{
    const char *name = getenv("RENAMED");
    if (needed != NULL)
        *needed = strlen(name) + 1;
    if (value != NULL && size <= strlen(name))
        return CL_INVALID_VALUE;
    if (value != NULL)
        strcpy(value, name);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL get_device(cl_device_id device, cl_device_info name, size_t size,
                                     void *value, size_t *needed)
{
    return name == CL_DEVICE_NAME || name == CL_DEVICE_VENDOR
               ? answer(size, value, needed)
               : real.clGetDeviceInfo(device, name, size, value, needed);
}

static cl_int CL_API_CALL get_platform(cl_platform_id platform, cl_platform_info name, size_t size,
                                       void *value, size_t *needed)
{
    return name == CL_PLATFORM_NAME || name == CL_PLATFORM_VENDOR
               ? answer(size, value, needed)
               : real.clGetPlatformInfo(platform, name, size, value, needed);
}

static void layer_init(struct _cl_icd_dispatch *table)
{
    real = *table;
    table->clGetDeviceInfo = get_device;
    table->clGetPlatformInfo = get_platform;
}
