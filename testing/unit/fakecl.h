/* fakecl: an OpenCL table between the shim and the real one that fails chosen calls and can make
 * the device look like another. Installed before the runtime starts; one per process. */
#ifndef FAKECL_H
#define FAKECL_H

#include "ocl/ocl.h"

typedef enum fake_function {
#define CLB_CL_STATUS(name, parameters, arguments)       FAKE_##name,
#define CLB_CL_HANDLE(type, name, parameters, arguments) FAKE_##name,
#include "ocl/functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    FAKE_FUNCTIONS
} fake_function;

struct fake_cl {
    _Atomic long calls;    /* so far; of the functions in `only` when that is set */
    long fail_at;          /* this call fails, 1 is the first; 0: none */
    bool persistent;       /* and all later ones */
    bool run_anyway;       /* the real call is made, its success is denied */
    cl_int code;           /* what a failing call returns; handles are NULL */
    uint64_t only;         /* a bit for each function that counts; 0: all */
    _Atomic long failures; /* that were injected */
    _Atomic long of[FAKE_FUNCTIONS];

    /* Called first, in whatever thread calls; NULL by default. */
    void (*enter)(fake_function function);

    /* What the device says of itself. */
    bool discrete; /* a GPU with memory of its own */
    bool no_fp64;
    cl_ulong max_alloc; /* 0: as it is */
    cl_uint vector_floats;
    size_t max_group;      /* 0: as it is; launches of larger groups fail, */
    cl_ulong local_memory; /* of kernels with more too */

    /* Called before a kernel is launched, with its arguments of at most 8 bytes as numbers:
     * CL_SUCCESS, what the launch returns instead, or FAKE_LOST: it says that it is made. NULL by
     * default. */
    cl_int (*launch)(const char *kernel, const cl_ulong *argument);

    /* Buffers as the driver sees them. */
    _Atomic long long live_bytes, peak_bytes; /* not those over the caller's memory */
};

#define FAKE_LOST 1

extern struct fake_cl fake_cl;

void fake_cl_install(void);

/* Configure this process, install and start, on a device with memory of its own where `discrete`;
 * NULL, and a failed expectation, when there is none. */
struct clb_runtime *fake_cl_start(const char *kernel, const char *params, bool discrete);
const char *fake_cl_name(fake_function function);

/* Count from zero and fail call number `at`. */
void fake_cl_arm(long at, cl_int code, bool persistent);

#endif
