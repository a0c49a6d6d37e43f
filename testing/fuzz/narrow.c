/* A layer over the system's drivers (OPENCL_LAYERS) whose devices have vectors of 32 bytes, as CPUs
 * with AVX2 do. SPDX-License-Identifier: BSD-3-Clause */
#include "../lib/layer.h"

static struct _cl_icd_dispatch real;

static cl_int CL_API_CALL get_narrow(cl_device_id device, cl_device_info name, size_t size,
                                     void *value, size_t *needed)
{
    const cl_int status = real.clGetDeviceInfo(device, name, size, value, needed);
    if (name == CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT && value != NULL)
        *(cl_uint *)value = 8;
    return status;
}

static void layer_init(struct _cl_icd_dispatch *table)
{
    real = *table;
    table->clGetDeviceInfo = get_narrow;
}
