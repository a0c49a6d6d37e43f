/* SPDX-License-Identifier: BSD-3-Clause
 * The failing OpenCL table, expanded from the loader's list. */
#include "fakecl.h"

#include "engine/ocl/cl.h"
#include "tap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct fake_cl fake_cl;
static struct clb_cl real;

const char *fake_cl_name(fake_function function)
{
    static const char *const names[] = {
#define CLB_CL_STATUS(name, parameters, arguments)       #name,
#define CLB_CL_HANDLE(type, name, parameters, arguments) #name,
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    };
    return names[function];
}

void fake_cl_arm(long at, cl_int code, bool persistent)
{
    fake_cl.fail_at = at;
    fake_cl.code = code;
    fake_cl.persistent = persistent;
    atomic_store(&fake_cl.calls, 0);
    atomic_store(&fake_cl.failures, 0);
}

static bool should_fail(fake_function function)
{
    atomic_fetch_add(&fake_cl.of[function], 1);
    if (fake_cl.enter != NULL)
        fake_cl.enter(function);
    /* How often events are asked depends on time. */
    if (fake_cl.only == 0 && function == FAKE_GetEventInfo)
        return false;
    if (fake_cl.only != 0 && (fake_cl.only >> function & 1) == 0)
        return false;
    long call = atomic_fetch_add(&fake_cl.calls, 1) + 1;
    bool fail = fake_cl.fail_at != 0 &&
                (call == fake_cl.fail_at || (fake_cl.persistent && call > fake_cl.fail_at));
    if (fail)
        atomic_fetch_add(&fake_cl.failures, 1);
    return fail;
}

#define CLB_CL_STATUS(name, parameters, arguments)                                        \
    static cl_int CL_API_CALL fake_##name parameters                                      \
    {                                                                                     \
        bool fail = should_fail(FAKE_##name);                                             \
        cl_int result = fail && !fake_cl.run_anyway ? fake_cl.code : real.name arguments; \
        return fail ? fake_cl.code : result;                                              \
    }
#define CLB_CL_HANDLE(type, name, parameters, arguments)                        \
    static type CL_API_CALL fake_##name parameters                              \
    {                                                                           \
        bool fail = should_fail(FAKE_##name);                                   \
        type result = fail && !fake_cl.run_anyway ? NULL : real.name arguments; \
        if (fail)                                                               \
            *status = fake_cl.code;                                             \
        return fail ? NULL : result;                                            \
    }
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE

/* ---- another device ---- */

static void put(void *value, const void *from, size_t size, size_t room)
{
    if (value != NULL && room >= size)
        memcpy(value, from, size);
}

static cl_int CL_API_CALL disguised_device_info(cl_device_id device, cl_device_info name,
                                                size_t size, void *value, size_t *needed)
{
    const cl_device_type gpu = CL_DEVICE_TYPE_GPU;
    const cl_bool no = CL_FALSE;
    const cl_device_fp_config nothing = 0;
    cl_int result = fake_GetDeviceInfo(device, name, size, value, needed);
    if (result != CL_SUCCESS)
        return result;
    if (fake_cl.discrete && name == CL_DEVICE_TYPE)
        put(value, &gpu, sizeof gpu, size);
    if (fake_cl.discrete && name == CL_DEVICE_HOST_UNIFIED_MEMORY)
        put(value, &no, sizeof no, size);
    if (fake_cl.no_fp64 && name == CL_DEVICE_DOUBLE_FP_CONFIG)
        put(value, &nothing, sizeof nothing, size);
    if (fake_cl.max_alloc != 0 && name == CL_DEVICE_MAX_MEM_ALLOC_SIZE)
        put(value, &fake_cl.max_alloc, sizeof fake_cl.max_alloc, size);
    if (fake_cl.vector_floats != 0 && name == CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT)
        put(value, &fake_cl.vector_floats, sizeof fake_cl.vector_floats, size);
    if (fake_cl.local_memory != 0 && name == CL_DEVICE_LOCAL_MEM_SIZE)
        put(value, &fake_cl.local_memory, sizeof fake_cl.local_memory, size);
    if (fake_cl.max_group != 0 && name == CL_DEVICE_MAX_WORK_GROUP_SIZE)
        put(value, &fake_cl.max_group, sizeof fake_cl.max_group, size);
    return result;
}

/* ---- kernels ---- */

#define MAX_KERNELS   1024
#define MAX_ARGUMENTS 24

static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cl_kernel kernel;
    char name[32];
} kernels[MAX_KERNELS];
static CLB_THREAD cl_ulong argument[MAX_ARGUMENTS]; /* set last, by this thread */

static cl_kernel CL_API_CALL named_kernel(cl_program program, const char *name, cl_int *status)
{
    cl_kernel kernel = fake_CreateKernel(program, name, status);
    pthread_mutex_lock(&kernel_lock);
    for (size_t i = 0; kernel != NULL && i < MAX_KERNELS; i++) {
        if (kernels[i].kernel != NULL && kernels[i].kernel != kernel)
            continue;
        kernels[i].kernel = kernel;
        strncpy(kernels[i].name, name, sizeof kernels[i].name - 1);
        break;
    }
    pthread_mutex_unlock(&kernel_lock);
    return kernel;
}

static const char *name_of(cl_kernel kernel)
{
    const char *name = "";
    pthread_mutex_lock(&kernel_lock);
    for (size_t i = 0; i < MAX_KERNELS; i++) {
        if (kernels[i].kernel == kernel)
            name = kernels[i].name;
    }
    pthread_mutex_unlock(&kernel_lock);
    return name;
}

static cl_int CL_API_CALL seen_argument(cl_kernel kernel, cl_uint index, size_t size,
                                        const void *value)
{
    if (index < MAX_ARGUMENTS && size <= sizeof argument[0] && value != NULL) {
        argument[index] = 0;
        memcpy(&argument[index], value, size);
    }
    return fake_SetKernelArg(kernel, index, size, value);
}

static cl_int CL_API_CALL limited_kernel(cl_kernel kernel, cl_device_id device,
                                         cl_kernel_work_group_info name, size_t size, void *value,
                                         size_t *needed)
{
    cl_int result = fake_GetKernelWorkGroupInfo(kernel, device, name, size, value, needed);
    if (result == CL_SUCCESS && fake_cl.max_group != 0 && name == CL_KERNEL_WORK_GROUP_SIZE)
        put(value, &fake_cl.max_group, sizeof fake_cl.max_group, size);
    return result;
}

/* What a device of these limits says of a launch. */
static cl_int limited_launch(cl_kernel kernel, cl_uint dimensions, const size_t *local)
{
    size_t items = 1;
    cl_ulong bytes = 0;
    for (cl_uint i = 0; local != NULL && i < dimensions; i++)
        items *= local[i];
    if (fake_cl.max_group != 0 && items > fake_cl.max_group)
        return CL_INVALID_WORK_GROUP_SIZE;
    if (fake_cl.local_memory != 0 &&
        real.GetKernelWorkGroupInfo(kernel, NULL, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes, &bytes,
                                    NULL) == CL_SUCCESS &&
        bytes > fake_cl.local_memory)
        return CL_OUT_OF_RESOURCES;
    return fake_cl.launch != NULL ? fake_cl.launch(name_of(kernel), argument) : CL_SUCCESS;
}

/* A lost launch leaves a barrier in its place, so that its event says that it was carried out. */
static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    cl_int status = limited_launch(kernel, dimensions, local);
    if (status == FAKE_LOST) /* an event that says that it was carried out */
        return real.EnqueueBarrierWithWaitList(queue, waits, wait_list, event);
    if (status != CL_SUCCESS)
        return status;
    status = fake_EnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                       wait_list, event);
    if (status == CL_SUCCESS && fake_cl.launched != NULL)
        fake_cl.launched(queue);
    return status;
}

/* ---- buffers ---- */

#define MAX_BUFFERS 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    cl_mem mem;
    size_t size;
} buffers[MAX_BUFFERS];

static cl_mem CL_API_CALL counted_create_buffer(cl_context context, cl_mem_flags flags, size_t size,
                                                void *host, cl_int *status)
{
    cl_mem mem = fake_CreateBuffer(context, flags, size, host, status);
    if (mem == NULL || (flags & CL_MEM_READ_ONLY) != 0)
        return mem;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < MAX_BUFFERS; i++) {
        if (buffers[i].mem == NULL) {
            buffers[i].mem = mem;
            buffers[i].size = size;
            break;
        }
    }
    long long now = atomic_fetch_add(&fake_cl.live_bytes, (long long)size) + (long long)size;
    if (now > atomic_load(&fake_cl.peak_bytes))
        atomic_store(&fake_cl.peak_bytes, now);
    pthread_mutex_unlock(&lock);
    return mem;
}

static cl_int CL_API_CALL counted_release(cl_mem mem)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < MAX_BUFFERS; i++) {
        if (buffers[i].mem == mem) {
            buffers[i].mem = NULL;
            atomic_fetch_sub(&fake_cl.live_bytes, (long long)buffers[i].size);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return fake_ReleaseMemObject(mem);
}

/* A buffer among the arguments set last, and its size; NULL: number `index` is none. */
static cl_mem buffer_argument(size_t index, size_t *size)
{
    cl_mem found = NULL;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < MAX_BUFFERS && found == NULL; i++) {
        if (buffers[i].mem == NULL || (cl_ulong)(uintptr_t)buffers[i].mem != argument[index])
            continue;
        found = buffers[i].mem;
        *size = buffers[i].size;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

bool fake_cl_flip(cl_command_queue queue, bool single, uint64_t *seed)
{
    const size_t element = single ? sizeof(float) : sizeof(double);
    if (real.Finish(queue) != CL_SUCCESS)
        return false;
    for (int attempt = 0; attempt < 1000; attempt++) {
        size_t size = 0, bit = random_below(seed, 5);
        char value[sizeof(double)];
        cl_mem mem = buffer_argument(random_below(seed, MAX_ARGUMENTS), &size);
        const size_t at = size < element ? 0 : random_below(seed, size / element) * element;
        if (mem == NULL || size < element ||
            real.EnqueueReadBuffer(queue, mem, CL_TRUE, at, element, &value, 0, NULL, NULL) !=
                CL_SUCCESS ||
            !fake_cl_flip_bit(value, single, bit))
            continue;
        return real.EnqueueWriteBuffer(queue, mem, CL_TRUE, at, element, &value, 0, NULL, NULL) ==
               CL_SUCCESS;
    }
    return false;
}

static void install(struct clb_cl *table)
{
    const struct clb_cl drivers = *table;
    real = *table;
    if (getenv("REORDER") != NULL)
        fake_cl_add_reordering(&real, dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL));
    fake_cl_add_skipping(&real);
    fake_cl_add_lying(&real);
#define CLB_CL_STATUS(name, parameters, arguments)       table->name = fake_##name;
#define CLB_CL_HANDLE(type, name, parameters, arguments) table->name = fake_##name;
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    table->GetDeviceInfo = disguised_device_info;
    table->CreateKernel = named_kernel;
    table->SetKernelArg = seen_argument;
    table->GetKernelWorkGroupInfo = limited_kernel;
    table->EnqueueNDRangeKernel = launch;
    table->CreateBuffer = counted_create_buffer;
    table->ReleaseMemObject = counted_release;
    fake_cl_add_rules(table, &drivers);
}

void fake_cl_install(void)
{
    clb_cl_loaded_hook = install;
    clb_enqueuer_always = getenv("ENQUEUER") != NULL;
}

struct clb_runtime *fake_cl_start(const char *kernel, const char *params, bool discrete)
{
    setenv("CLBLAS_SHIM_KERNEL", kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", params, 1);
    return fake_cl_start_device(discrete);
}

struct clb_runtime *fake_cl_start_setting(const struct fake_setting *setting)
{
    return fake_cl_start(setting->kernel, setting->params, setting->discrete);
}

struct clb_runtime *fake_cl_start_device(bool discrete)
{
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_DEVICE", discrete ? "gpu" : "cpu", 1);
    fake_cl.discrete = discrete;
    fake_cl_install();
    struct clb_runtime *runtime = clb_runtime_get(&state);
    expect(runtime != NULL, "no device");
    return runtime;
}

const struct clb_gemm_variant *fake_cl_variant(struct clb_runtime *runtime, clb_precision precision)
{
    const struct clb_gemm_variant *variant = NULL;
    clb_status status =
        runtime != NULL ? clb_gemm_variant_get(runtime, precision, &variant) : CLB_ERR_NODEVICE;
    expect(status == CLB_OK, "no kernels for %c: %s", "sdcz"[precision], clb_status_name(status));
    return status == CLB_OK ? variant : NULL;
}

/* ---- several at once ---- */

struct share {
    struct clb_runtime *runtime;
    void (*run)(struct clb_runtime *, void *);
    char *problems;
    size_t count, size;
};

static void *run_share(void *of_thread)
{
    const struct share *share = of_thread;
    for (size_t i = 0; i < share->count; i++)
        share->run(share->runtime, share->problems + i * share->size);
    return NULL;
}

void fake_cl_at_once(struct clb_runtime *runtime, void (*run)(struct clb_runtime *, void *),
                     void *problems, size_t count, size_t size)
{
    struct share shares[4];
    const size_t each = count / CLB_COUNT_OF(shares);
    for (size_t t = 0; t < CLB_COUNT_OF(shares); t++)
        shares[t] = (struct share){runtime, run, (char *)problems + t * each * size, each, size};
    run_threads(CLB_COUNT_OF(shares), run_share, shares, sizeof *shares);
}
