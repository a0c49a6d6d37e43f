/* SPDX-License-Identifier: BSD-3-Clause
 * layer: what a layer over the system's OpenCL drivers (OPENCL_LAYERS) tells the loader. Included
 * once by each layer, which defines layer_init: `table` is the drivers' and becomes its own. */
#ifndef LAYER_H
#define LAYER_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl_layer.h>

#include <string.h>

static void layer_init(struct _cl_icd_dispatch *table);

cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t size, void *value, size_t *needed)
{
    static const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    (void)name;
    if (needed != NULL)
        *needed = sizeof version;
    if (value != NULL && size >= sizeof version)
        memcpy(value, &version, sizeof version);
    return CL_SUCCESS;
}

cl_int CL_API_CALL clInitLayer(cl_uint count, const struct _cl_icd_dispatch *target,
                               cl_uint *count_here, const struct _cl_icd_dispatch **here)
{
    static struct _cl_icd_dispatch table;
    const size_t size = count * sizeof(void *);
    memcpy(&table, target, size < sizeof table ? size : sizeof table);
    layer_init(&table);
    *here = &table;
    *count_here = count;
    return CL_SUCCESS;
}

#endif
