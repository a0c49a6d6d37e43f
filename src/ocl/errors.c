/* Names of OpenCL errors, and their translation to clb_status. */
#include "ocl.h"

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

clb_status clb_cl_check(cl_int status, const char *what)
{
    if (CLB_LIKELY(status == CL_SUCCESS))
        return CLB_OK;
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

clb_status clb_cl_check_launch(cl_int status, const char *name)
{
    clb_status checked = clb_cl_check(status, name);
    bool refused = status == CL_OUT_OF_RESOURCES || status == CL_INVALID_WORK_GROUP_SIZE ||
                   status == CL_INVALID_WORK_ITEM_SIZE;
    return refused ? CLB_ERR_LAUNCH : checked;
}
