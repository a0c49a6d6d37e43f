/* The table of OpenCL functions, and what their errors mean. The OpenCL ICD loader is opened by
 * dlopen at first use: the shim must load on systems without it. */
#include "ocl.h"

#include <dlfcn.h>
#include <string.h>

struct clb_cl clb_cl;
void (*clb_cl_loaded_hook)(struct clb_cl *table);

clb_status clb_cl_load(void)
{
    static const struct {
        const char *name;
        size_t offset;
    } functions[] = {
#define CLB_CL_STATUS(name, parameters, arguments) {"cl" #name, offsetof(struct clb_cl, name)},
#define CLB_CL_HANDLE(type, name, parameters, arguments)                                           \
    {"cl" #name, offsetof(struct clb_cl, name)},
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    };
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        clb_log(CLB_LOG_INFO, "no OpenCL: %s", dlerror());
        return CLB_ERR_NODEVICE;
    }
    for (size_t i = 0; i < CLB_COUNT_OF(functions); i++) {
        void *address = dlsym(library, functions[i].name);
        if (address == NULL) {
            clb_log(CLB_LOG_INFO, "no OpenCL: %s is missing", functions[i].name);
            return CLB_ERR_NODEVICE;
        }
        memcpy((char *)&clb_cl + functions[i].offset, &address, sizeof address);
    }
    if (clb_cl_loaded_hook != NULL)
        clb_cl_loaded_hook(&clb_cl);
    if (clb_trace_wanted())
        clb_cl_trace(&clb_cl);
    return CLB_OK;
}

/* ---- errors ---------------------------------------------------------------------------------- */

const char *clb_cl_error_name(cl_int status)
{
#define NAME(e) [-(e)] = #e
    static const char *const names[] = {
        NAME(CL_SUCCESS),
        NAME(CL_DEVICE_NOT_FOUND),
        NAME(CL_DEVICE_NOT_AVAILABLE),
        NAME(CL_COMPILER_NOT_AVAILABLE),
        NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE),
        NAME(CL_OUT_OF_RESOURCES),
        NAME(CL_OUT_OF_HOST_MEMORY),
        NAME(CL_PROFILING_INFO_NOT_AVAILABLE),
        NAME(CL_MEM_COPY_OVERLAP),
        NAME(CL_BUILD_PROGRAM_FAILURE),
        NAME(CL_MAP_FAILURE),
        NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET),
        NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
        NAME(CL_INVALID_VALUE),
        NAME(CL_INVALID_DEVICE_TYPE),
        NAME(CL_INVALID_PLATFORM),
        NAME(CL_INVALID_DEVICE),
        NAME(CL_INVALID_CONTEXT),
        NAME(CL_INVALID_QUEUE_PROPERTIES),
        NAME(CL_INVALID_COMMAND_QUEUE),
        NAME(CL_INVALID_HOST_PTR),
        NAME(CL_INVALID_MEM_OBJECT),
        NAME(CL_INVALID_BINARY),
        NAME(CL_INVALID_BUILD_OPTIONS),
        NAME(CL_INVALID_PROGRAM),
        NAME(CL_INVALID_PROGRAM_EXECUTABLE),
        NAME(CL_INVALID_KERNEL_NAME),
        NAME(CL_INVALID_KERNEL_DEFINITION),
        NAME(CL_INVALID_KERNEL),
        NAME(CL_INVALID_ARG_INDEX),
        NAME(CL_INVALID_ARG_VALUE),
        NAME(CL_INVALID_ARG_SIZE),
        NAME(CL_INVALID_KERNEL_ARGS),
        NAME(CL_INVALID_WORK_DIMENSION),
        NAME(CL_INVALID_WORK_GROUP_SIZE),
        NAME(CL_INVALID_WORK_ITEM_SIZE),
        NAME(CL_INVALID_GLOBAL_OFFSET),
        NAME(CL_INVALID_EVENT_WAIT_LIST),
        NAME(CL_INVALID_EVENT),
        NAME(CL_INVALID_OPERATION),
        NAME(CL_INVALID_BUFFER_SIZE),
        NAME(CL_INVALID_GLOBAL_WORK_SIZE),
    };
#undef NAME
    int64_t index = -(int64_t)status;
    if (index < 0 || index >= (int64_t)CLB_COUNT_OF(names) || names[index] == NULL)
        return "unknown OpenCL error";
    return names[index];
}

clb_status clb_cl_failed(cl_int status, const char *what)
{
    clb_log(CLB_LOG_WARN, "%s: %s (%d)", what, clb_cl_error_name(status), (int)status);
    switch (status) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_HOST_MEMORY:
    case CL_INVALID_BUFFER_SIZE:
        return CLB_ERR_NOMEM;
    default:
        return CLB_ERR_OPENCL;
    }
}

clb_status clb_cl_launch_failed(cl_int status, const char *name)
{
    clb_status failed = clb_cl_failed(status, name);
    bool refused = status == CL_OUT_OF_RESOURCES || status == CL_INVALID_WORK_GROUP_SIZE ||
                   status == CL_INVALID_WORK_ITEM_SIZE;
    return refused ? CLB_ERR_LAUNCH : failed;
}
