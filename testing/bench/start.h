/* The device, for programs that call the algo layer. */
#ifndef START_H
#define START_H

#include "bench.h"
#include "engine/ocl/ocl.h"

/* Started under the guest's guard as route starts it: a CPU driver's threads are known by the
 * signals that they block, and only then they are spread over the CPUs (src/engine/ocl/affinity.c).
 * Otherwise two of them often share one, at half the rate. */
static inline struct clb_runtime *bench_start_device(void)
{
    clb_runtime_state state;
    struct clb_host_state guest;
    clb_host_state_save(&guest);
    struct clb_runtime *runtime = clb_runtime_get(&state);
    clb_host_state_restore(&guest);
    if (runtime == NULL)
        bench_fail("no OpenCL device (CLBLAS_SHIM_LOG=info says why)");
    return runtime;
}

#endif
