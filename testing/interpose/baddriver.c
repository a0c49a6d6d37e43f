/* OpenCL drivers that do harm, where BAD says how: crash, hang, memory, cpu, exit, slow, wrong,
 * stall, flip.
 *
 * As a driver of its own (an .icd file names it) when it is asked for its platforms. As a layer
 * over the system's drivers (OPENCL_LAYERS) when it compiles a program whose options contain
 * BAD_BUILD; where it is slow, each work-group of a kernel takes 2 ms of CPU time instead; where it
 * is wrong, the first byte of what is read in ten KiB or more at a time is another one; where it
 * stalls or flips, it plays GPUs, and after 200 reads nothing comes any more, or with a bit
 * flipped. */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl_layer.h>

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

/* ---- a driver -------------------------------------------------------------------------------- */

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

/* ---- a layer --------------------------------------------------------------------------------- */

static struct _cl_icd_dispatch table;
static __typeof__(table.clBuildProgram) real_build;

static __typeof__(table.clEnqueueNDRangeKernel) real_launch;
static __typeof__(table.clEnqueueReadBuffer) real_read;
static __typeof__(table.clGetDeviceInfo) real_device;

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
    double groups = 1, begin = cpu_seconds();
    for (cl_uint i = 0; i < dimensions && local != NULL; i++)
        groups *= (double)(global[i] / local[i]);
    while (cpu_seconds() - begin < 0.002 * groups)
        continue;
    return real_launch(queue, kernel, dimensions, offset, global, local, waits, wait_list, event);
}

static cl_int CL_API_CALL read_wrongly(cl_command_queue queue, cl_mem memory, cl_bool blocking,
                                       size_t offset, size_t size, void *host, cl_uint waits,
                                       const cl_event *wait_list, cl_event *event)
{
    cl_int status = real_read(queue, memory, CL_TRUE, offset, size, host, waits, wait_list, event);
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
        table.clGetCommandQueueInfo(queue, CL_QUEUE_CONTEXT, sizeof(cl_context), &context, NULL);
        *event = table.clCreateUserEvent(context, NULL);
        return CL_SUCCESS;
    }
    cl_int status = real_read(queue, memory, later ? CL_TRUE : blocking, offset, size, host, waits,
                              wait_list, event);
    if (later)
        ((unsigned char *)host)[7] ^= 0x40; /* the exponent of a little-endian double */
    return status;
}

static cl_int CL_API_CALL get_gpu(cl_device_id device, cl_device_info name, size_t size,
                                  void *value, size_t *needed)
{
    cl_int status = real_device(device, name, size, value, needed);
    if (name == CL_DEVICE_TYPE && value != NULL)
        *(cl_device_type *)value = CL_DEVICE_TYPE_GPU;
    if (name == CL_DEVICE_HOST_UNIFIED_MEMORY && value != NULL)
        *(cl_bool *)value = CL_FALSE;
    return status;
}

static cl_int CL_API_CALL build(cl_program program, cl_uint count, const cl_device_id *ids,
                                const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                void *user)
{
    if (options != NULL && getenv("BAD_BUILD") != NULL &&
        strstr(options, getenv("BAD_BUILD")) != NULL)
        do_harm();
    return real_build(program, count, ids, options, notify, user);
}

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
    size_t size = count * sizeof(void *);
    memcpy(&table, target, size < sizeof table ? size : sizeof table);
    real_build = table.clBuildProgram;
    table.clBuildProgram = build;
    real_launch = table.clEnqueueNDRangeKernel;
    if (strcmp(getenv("BAD"), "slow") == 0)
        table.clEnqueueNDRangeKernel = launch_slowly;
    real_read = table.clEnqueueReadBuffer;
    if (strcmp(getenv("BAD"), "wrong") == 0)
        table.clEnqueueReadBuffer = read_wrongly;
    real_device = table.clGetDeviceInfo;
    if (strcmp(getenv("BAD"), "stall") == 0 || strcmp(getenv("BAD"), "flip") == 0) {
        table.clEnqueueReadBuffer = read_badly;
        table.clGetDeviceInfo = get_gpu;
    }
    *here = &table;
    *count_here = count;
    return CL_SUCCESS;
}
