/* cl: the OpenCL functions of the system's ICD loader, dlopen'ed at first use, and their errors. */
#ifndef CLB_CL_H
#define CLB_CL_H

#include "device.h"

/* The entry points that the shim uses, once. */
#define CLB_CL_FUNCTIONS(X)                                                                        \
    X(GetPlatformIDs)                                                                              \
    X(GetPlatformInfo)                                                                             \
    X(GetDeviceIDs)                                                                                \
    X(GetDeviceInfo)                                                                               \
    X(CreateContext)                                                                               \
    X(ReleaseContext)                                                                              \
    X(CreateCommandQueue)                                                                          \
    X(ReleaseCommandQueue)                                                                         \
    X(CreateBuffer)                                                                                \
    X(ReleaseMemObject)                                                                            \
    X(EnqueueReadBuffer)                                                                           \
    X(EnqueueWriteBuffer)                                                                          \
    X(EnqueueReadBufferRect)                                                                       \
    X(EnqueueWriteBufferRect)                                                                      \
    X(EnqueueBarrierWithWaitList)                                                                  \
    X(EnqueueMapBuffer)                                                                            \
    X(EnqueueUnmapMemObject)                                                                       \
    X(EnqueueNDRangeKernel)                                                                        \
    X(CreateProgramWithSource)                                                                     \
    X(CreateProgramWithBinary)                                                                     \
    X(BuildProgram)                                                                                \
    X(GetProgramInfo)                                                                              \
    X(GetProgramBuildInfo)                                                                         \
    X(ReleaseProgram)                                                                              \
    X(CreateKernel)                                                                                \
    X(SetKernelArg)                                                                                \
    X(ReleaseKernel)                                                                               \
    X(GetKernelWorkGroupInfo)                                                                      \
    X(Flush)                                                                                       \
    X(Finish)                                                                                      \
    X(WaitForEvents)                                                                               \
    X(GetEventInfo)                                                                                \
    X(GetEventProfilingInfo)                                                                       \
    X(RetainEvent)                                                                                 \
    X(ReleaseEvent)

struct clb_cl {
#define CLB_CL_MEMBER(name) __typeof__(cl##name) *name;
    CLB_CL_FUNCTIONS(CLB_CL_MEMBER)
#undef CLB_CL_MEMBER
};

extern struct clb_cl clb_cl;

/* The tests' fault injector: called once after loading, may replace entries of the table. */
extern void (*clb_cl_loaded_hook)(struct clb_cl *table);

const char *clb_cl_error_name(cl_int status);

/* What an error of a function means: it is logged ("what: CL_...") and mapped; memory errors are
 * CLB_ERR_NOMEM. */
CLB_COLD clb_status clb_cl_failed(cl_int status, const char *what) CLB_MUST_CHECK;

CLB_MUST_CHECK static inline clb_status clb_cl_check(cl_int status, const char *what)
{
    return CLB_LIKELY(status == CL_SUCCESS) ? CLB_OK : clb_cl_failed(status, what);
}

#endif
