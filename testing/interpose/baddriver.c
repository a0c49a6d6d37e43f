/* OpenCL drivers that do harm, where BAD says how: crash, hang, memory, cpu, exit, slow, wrong,
 * stall, flip; gpu does none.
 *
 * As a driver of its own (an .icd file names it) when it is asked for its platforms. As a layer
 * over the system's drivers (OPENCL_LAYERS) when it compiles a program whose options contain
 * BAD_BUILD, where BAD_FIRST names a file not the first time, which makes the file; where it is
 * slow, each work-group of a kernel takes BAD_MS (1) ms of CPU time instead, a launch at most
 * BAD_MOST ms;
 * where it is wrong, the first byte of what is read in ten KiB or more at a time is another one;
 * where it is gpu it plays GPUs; where it stalls or flips, too, and after 200 reads nothing comes
 * any more, or with a bit flipped. SPDX-License-Identifier: BSD-3-Clause */
#include "../lib/layer.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void do_harm(void)
{
    const char *how = getenv("BAD");
    if (strcmp(how, "crash") == 0)
        *(volatile int *)(uintptr_t)getpagesize() = 1; /* a signal that is sent might be handled */
    if (strcmp(how, "exit") == 0)
        exit(1);
    for (;;) {
        if (strcmp(how, "hang") == 0)
            sleep(1);
        if (strcmp(how, "memory") == 0)
            memset(malloc((size_t)1 << 24), 1, (size_t)1 << 24);
    }
}

/* ---- a driver ---- */

static cl_int CL_API_CALL get_platforms(cl_uint count, cl_platform_id *ids, cl_uint *found)
{
    (void)count;
    (void)ids;
    (void)found;
    do_harm();
    return CL_SUCCESS;
}

/* The loader asks for this one first, and does without a driver that has none. */
static cl_int CL_API_CALL get_platform(cl_platform_id platform, cl_platform_info name, size_t size,
                                       void *value, size_t *needed)
{
    (void)platform;
    (void)name;
    (void)size;
    (void)value;
    (void)needed;
    return CL_INVALID_VALUE;
}

void *CL_API_CALL clGetExtensionFunctionAddress(const char *name)
{
    return strcmp(name, "clIcdGetPlatformIDsKHR") == 0 ? (void *)get_platforms
           : strcmp(name, "clGetPlatformInfo") == 0    ? (void *)get_platform
                                                       : NULL;
}

/* ---- a layer ---- */

static struct _cl_icd_dispatch real;

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static cl_int CL_API_CALL launch_slowly(cl_command_queue queue, cl_kernel kernel,
                                        cl_uint dimensions, const size_t *offset,
                                        const size_t *global, const size_t *local, cl_uint waits,
                                        const cl_event *wait_list, cl_event *event)
{
    const char *ms = getenv("BAD_MS");
    const char *most = getenv("BAD_MOST");
    double groups = 1, begin = cpu_seconds(), each = 1e-3 * (ms != NULL ? atof(ms) : 1);
    double longest = most != NULL ? 1e-3 * atof(most) : 1e9;
    for (cl_uint i = 0; i < dimensions && local != NULL; i++)
        groups *= (double)(global[i] / local[i]);
    while (cpu_seconds() - begin < each * groups && cpu_seconds() - begin < longest)
        continue;
    return real.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                       wait_list, event);
}

static cl_int CL_API_CALL read_wrongly(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                       size_t offset, size_t size, void *host, cl_uint waits,
                                       const cl_event *wait_list, cl_event *event)
{
    cl_int status = real.clEnqueueReadBuffer(queue, memory, CL_TRUE, offset, size, host, waits,
                                             wait_list, event);
    (void)blocking;
    if (size >= 10240)
        ((unsigned char *)host)[3] ^= 0x40; /* the exponent of a little-endian float */
    return status;
}

/* The shim's checks of kernels read fewer times. */
#define GOOD_READS 200

static cl_int CL_API_CALL read_badly(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                     size_t offset, size_t size, void *host, cl_uint waits,
                                     const cl_event *wait_list, cl_event *event)
{
    static atomic_int reads;
    const bool later = event != NULL && atomic_fetch_add(&reads, 1) >= GOOD_READS;
    cl_context context;
    if (later && strcmp(getenv("BAD"), "stall") == 0) {
        real.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(cl_context), &context, NULL);
        *event = real.clCreateUserEvent(context, NULL);
        return CL_SUCCESS;
    }
    cl_int status = real.clEnqueueReadBuffer(queue, memory, later ? CL_TRUE : blocking, offset,
                                             size, host, waits, wait_list, event);
    if (later)
        ((unsigned char *)host)[7] ^= 0x40; /* the exponent of a little-endian double */
    return status;
}

static cl_int CL_API_CALL get_gpu(cl_device_id device, cl_device_info name, size_t size,
                                  void *value, size_t *needed)
{
    cl_int status = real.clGetDeviceInfo(device, name, size, value, needed);
    if (name == CL_DEVICE_TYPE && value != NULL)
        *(cl_device_type *)value = CL_DEVICE_TYPE_GPU;
    if (name == CL_DEVICE_HOST_UNIFIED_MEMORY && value != NULL)
        *(cl_bool *)value = CL_FALSE;
    return status;
}

static bool is_first(void)
{
    const char *first = getenv("BAD_FIRST");
    return first != NULL && open(first, O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id *ids,
                                const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                void *user)
{
    if (options != NULL && getenv("BAD_BUILD") != NULL &&
        strstr(options, getenv("BAD_BUILD")) != NULL && !is_first())
        do_harm();
    return real.clBuildProgram(program, count, ids, options, notify, user);
}

static void layer_init(struct _cl_icd_dispatch *table)
{
    const char *how = getenv("BAD");
    real = *table;
    table->clBuildProgram = build;
    if (strcmp(how, "slow") == 0)
        table->clEnqueueNDRangeKernel = launch_slowly;
    if (strcmp(how, "wrong") == 0)
        table->clEnqueueReadBuffer = read_wrongly;
    if (strcmp(how, "stall") == 0 || strcmp(how, "flip") == 0)
        table->clEnqueueReadBuffer = read_badly;
    if (table->clEnqueueReadBuffer == read_badly || strcmp(how, "gpu") == 0)
        table->clGetDeviceInfo = get_gpu;
}
