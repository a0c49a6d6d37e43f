/* A libOpenCL.so.1 over the system's that plays a smaller device: LIMITS names one of the table
 * below. What is reported is enforced as well: a launch, a buffer or a program beyond it fails with
 * the status that OpenCL has for it. LIMITS_OPENCL is the real loader's path where it is not
 * Debian's.
 *
 * The device's name is the same for all, so that those of one vendor share compiled kernels, which
 * are the same.
 * SPDX-License-Identifier: BSD-3-Clause */
#include "limits.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

struct limits {
    const char *name;
    const char *vendor; /* as its drivers say it; NULL: the real one's */
    cl_device_type type;
    bool unified; /* shares the host's memory */
    bool fp64;
    size_t group;          /* work-items of a group */
    uint64_t local;        /* bytes of local memory */
    uint64_t memory;       /* bytes of all buffers; one has a quarter at most */
    const char *described; /* for people */
};

static const struct limits devices[] = {
    {"amd", "Advanced Micro Devices, Inc.", CL_DEVICE_TYPE_GPU, false, true, 256, 32 * KIB,
     2048 * MIB, "a GPU of AMD's kind"},
    {"intel", "Intel(R) Corporation", CL_DEVICE_TYPE_GPU, true, true, 256, 64 * KIB, 4096 * MIB,
     "a GPU of Intel's kind"},
    {"nofp64", NULL, CL_DEVICE_TYPE_GPU, false, false, 256, 32 * KIB, 2048 * MIB,
     "no double precision"},
    {"memory", NULL, CL_DEVICE_TYPE_GPU, false, true, 256, 32 * KIB, 16 * MIB, "hardly any memory"},
    {"group128", NULL, CL_DEVICE_TYPE_GPU, false, true, 128, 32 * KIB, 2048 * MIB, "small groups"},
    {"group64", NULL, CL_DEVICE_TYPE_GPU, false, true, 64, 32 * KIB, 2048 * MIB, "smaller groups"},
    {"local16", NULL, CL_DEVICE_TYPE_GPU, false, true, 256, 16 * KIB, 2048 * MIB,
     "little local memory"},
};

static const struct limits *limits(void)
{
    const char *wanted = getenv("LIMITS");
    for (size_t i = 0; wanted != NULL && i < sizeof devices / sizeof *devices; i++) {
        if (strcmp(devices[i].name, wanted) == 0)
            return &devices[i];
    }
    fprintf(stderr, "limits: LIMITS is none of");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        fprintf(stderr, " %s (%s)", devices[i].name, devices[i].described);
    fprintf(stderr, "\n");
    abort();
}

/* ---- what the device says of itself ---- */

static cl_int answer(const void *data, size_t length, size_t size, void *value, size_t *needed)
{
    if (needed != NULL)
        *needed = length;
    if (value != NULL && size < length)
        return CL_INVALID_VALUE;
    if (value != NULL)
        memcpy(value, data, length);
    return CL_SUCCESS;
}

static cl_int answer_text(const char *text, size_t size, void *value, size_t *needed)
{
    return answer(text, strlen(text) + 1, size, value, needed);
}

/* The real device's extensions without those for double precision. */
static cl_int answer_extensions(cl_device_id device, size_t size, void *value, size_t *needed)
{
    char text[8192];
    const cl_int status =
        real_cl()->GetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof text, text, NULL);
    if (status != CL_SUCCESS)
        return status;
    for (char *fp64 = limits()->fp64 ? NULL : strstr(text, "cl_khr_fp64"); fp64 != NULL;
         fp64 = strstr(fp64, "cl_khr_fp64"))
        memset(fp64, ' ', strlen("cl_khr_fp64"));
    return answer_text(text, size, value, needed);
}

cl_int CL_API_CALL clGetDeviceInfo(cl_device_id device, cl_device_info name, size_t size,
                                   void *value, size_t *needed)
{
    const struct limits *l = limits();
    const cl_bool unified = l->unified;
    const cl_ulong local = l->local, memory = l->memory, most = l->memory / 4;
    const cl_device_fp_config fp64 = 0;
    const size_t items[3] = {l->group, l->group, l->group};
    switch (name) {
    case CL_DEVICE_NAME:
        return answer_text("limited", size, value, needed);
    case CL_DEVICE_VENDOR:
        if (l->vendor != NULL)
            return answer_text(l->vendor, size, value, needed);
        break;
    case CL_DEVICE_TYPE:
        return answer(&l->type, sizeof l->type, size, value, needed);
    case CL_DEVICE_HOST_UNIFIED_MEMORY:
        return answer(&unified, sizeof unified, size, value, needed);
    case CL_DEVICE_MAX_WORK_GROUP_SIZE:
        return answer(&l->group, sizeof l->group, size, value, needed);
    case CL_DEVICE_MAX_WORK_ITEM_SIZES:
        return answer(items, sizeof items, size, value, needed);
    case CL_DEVICE_LOCAL_MEM_SIZE:
        return answer(&local, sizeof local, size, value, needed);
    case CL_DEVICE_GLOBAL_MEM_SIZE:
        return answer(&memory, sizeof memory, size, value, needed);
    case CL_DEVICE_MAX_MEM_ALLOC_SIZE:
        return answer(&most, sizeof most, size, value, needed);
    case CL_DEVICE_VERSION:
        return answer_text("OpenCL 1.2 limited", size, value, needed);
    case CL_DEVICE_OPENCL_C_VERSION:
        return answer_text("OpenCL C 1.2 limited", size, value, needed);
    case CL_DEVICE_EXTENSIONS:
        return answer_extensions(device, size, value, needed);
    case CL_DEVICE_DOUBLE_FP_CONFIG:
        if (!l->fp64)
            return answer(&fp64, sizeof fp64, size, value, needed);
        break;
    default:
        break;
    }
    return real_cl()->GetDeviceInfo(device, name, size, value, needed);
}

/* The real devices, whatever their type, all have the type of the table. */
cl_int CL_API_CALL clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint count,
                                  cl_device_id *ids, cl_uint *found)
{
    if ((type & (limits()->type | CL_DEVICE_TYPE_DEFAULT)) == 0)
        return CL_DEVICE_NOT_FOUND;
    return real_cl()->GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, ids, found);
}

/* ---- memory ---- */

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t allocated; /* bytes of all buffers; under memory_lock */

/* Takes or gives back bytes; false when the device has not so many. */
static bool account(int64_t bytes)
{
    pthread_mutex_lock(&memory_lock);
    const bool fits = bytes <= 0 || allocated + (uint64_t)bytes <= limits()->memory;
    if (fits)
        allocated += (uint64_t)bytes;
    pthread_mutex_unlock(&memory_lock);
    return fits;
}

cl_mem CL_API_CALL clCreateBuffer(cl_context context, cl_mem_flags flags, size_t size, void *host,
                                  cl_int *status)
{
    cl_int ignored;
    status = status != NULL ? status : &ignored;
    if (size > limits()->memory / 4 || !account((int64_t)size)) {
        *status =
            size > limits()->memory / 4 ? CL_INVALID_BUFFER_SIZE : CL_MEM_OBJECT_ALLOCATION_FAILURE;
        return NULL;
    }
    cl_mem memory = real_cl()->CreateBuffer(context, flags, size, host, status);
    if (memory == NULL)
        account(-(int64_t)size);
    return memory;
}

typedef cl_int(CL_API_CALL *mem_info)(cl_mem, cl_mem_info, size_t, void *, size_t *);

cl_int CL_API_CALL clReleaseMemObject(cl_mem memory)
{
    const mem_info info = (mem_info)real_function("clGetMemObjectInfo");
    size_t size = 0;
    cl_uint references = 0;
    if (info(memory, CL_MEM_SIZE, sizeof size, &size, NULL) == CL_SUCCESS &&
        info(memory, CL_MEM_REFERENCE_COUNT, sizeof references, &references, NULL) == CL_SUCCESS &&
        references == 1)
        account(-(int64_t)size);
    return real_cl()->ReleaseMemObject(memory);
}

/* ---- programs and launches ---- */

cl_int CL_API_CALL clBuildProgram(cl_program program, cl_uint count, const cl_device_id *ids,
                                  const char *options,
                                  void(CL_CALLBACK *notify)(cl_program, void *), void *user)
{
    char longer[8192];
    options = options != NULL ? options : "";
    if (!limits()->fp64 && strstr(options, "CLB_DOUBLE=1") != NULL)
        return CL_BUILD_PROGRAM_FAILURE;
    const char *version = strstr(options, "-cl-std=") == NULL ? " -cl-std=CL1.2" : "";
    if (snprintf(longer, sizeof longer, "%s%s", options, version) >= (int)sizeof longer)
        return CL_INVALID_BUILD_OPTIONS;
    return real_cl()->BuildProgram(program, count, ids, longer, notify, user);
}

typedef cl_int(CL_API_CALL *group_info)(cl_kernel, cl_device_id, cl_kernel_work_group_info, size_t,
                                        void *, size_t *);

static group_info real_group_info(void)
{
    return (group_info)real_function("clGetKernelWorkGroupInfo");
}

cl_int CL_API_CALL clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                            cl_kernel_work_group_info name, size_t size,
                                            void *value, size_t *needed)
{
    const cl_int status = real_group_info()(kernel, device, name, size, value, needed);
    if (status == CL_SUCCESS && name == CL_KERNEL_WORK_GROUP_SIZE && value != NULL &&
        *(size_t *)value > limits()->group)
        *(size_t *)value = limits()->group;
    return status;
}

typedef cl_int(CL_API_CALL *queue_info)(cl_command_queue, cl_command_queue_info, size_t, void *,
                                        size_t *);

static uint64_t local_bytes(cl_command_queue queue, cl_kernel kernel)
{
    const queue_info info = (queue_info)real_function("clGetCommandQueueInfo");
    cl_device_id device;
    cl_ulong bytes = 0;
    if (info(queue, CL_QUEUE_DEVICE, sizeof device, &device, NULL) != CL_SUCCESS ||
        real_group_info()(kernel, device, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes, NULL) !=
            CL_SUCCESS)
        return 0;
    return bytes;
}

cl_int CL_API_CALL clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                          cl_uint dimensions, const size_t *offset,
                                          const size_t *global, const size_t *local, cl_uint waits,
                                          const cl_event *wait_list, cl_event *event)
{
    size_t items = 1;
    for (cl_uint i = 0; local != NULL && i < dimensions; i++) {
        if (local[i] > limits()->group)
            return CL_INVALID_WORK_ITEM_SIZE;
        items *= local[i];
    }
    if (items > limits()->group)
        return CL_INVALID_WORK_GROUP_SIZE;
    if (local_bytes(queue, kernel) > limits()->local)
        return CL_OUT_OF_RESOURCES;
    return real_cl()->EnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                           wait_list, event);
}
