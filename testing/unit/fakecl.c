/* The failing OpenCL table, expanded from the loader's list. */
#include "fakecl.h"

#include "tap.h"

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
#include "ocl/functions.def"
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
    if (fake_cl.only != 0 && (fake_cl.only >> function & 1) == 0)
        return false;
    long call = atomic_fetch_add(&fake_cl.calls, 1) + 1;
    bool fail = fake_cl.fail_at != 0 &&
                (call == fake_cl.fail_at || (fake_cl.persistent && call > fake_cl.fail_at));
    if (fail)
        atomic_fetch_add(&fake_cl.failures, 1);
    return fail;
}

#define CLB_CL_STATUS(name, parameters, arguments)                                                 \
    static cl_int CL_API_CALL fake_##name parameters                                               \
    {                                                                                              \
        bool fail = should_fail(FAKE_##name);                                                      \
        cl_int result = fail && !fake_cl.run_anyway ? fake_cl.code : real.name arguments;          \
        return fail ? fake_cl.code : result;                                                       \
    }
#define CLB_CL_HANDLE(type, name, parameters, arguments)                                           \
    static type CL_API_CALL fake_##name parameters                                                 \
    {                                                                                              \
        bool fail = should_fail(FAKE_##name);                                                      \
        type result = fail && !fake_cl.run_anyway ? NULL : real.name arguments;                    \
        if (fail)                                                                                  \
            *status = fake_cl.code;                                                                \
        return fail ? NULL : result;                                                               \
    }
#include "ocl/functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE

/* ---- another device -------------------------------------------------------------------------- */

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
    return result;
}

/* ---- buffers --------------------------------------------------------------------------------- */

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

static void install(struct clb_cl *table)
{
    real = *table;
#define CLB_CL_STATUS(name, parameters, arguments)       table->name = fake_##name;
#define CLB_CL_HANDLE(type, name, parameters, arguments) table->name = fake_##name;
#include "ocl/functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    table->GetDeviceInfo = disguised_device_info;
    table->CreateBuffer = counted_create_buffer;
    table->ReleaseMemObject = counted_release;
}

void fake_cl_install(void)
{
    clb_cl_loaded_hook = install;
}

struct clb_runtime *fake_cl_start(const char *kernel, const char *params, bool discrete)
{
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_KERNEL", kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", params, 1);
    setenv("CLBLAS_SHIM_DEVICE", discrete ? "gpu" : "cpu", 1);
    fake_cl.discrete = discrete;
    fake_cl_install();
    struct clb_runtime *runtime = clb_runtime_get(&state);
    expect(runtime != NULL, "no device");
    return runtime;
}
