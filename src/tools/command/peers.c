/* Libraries that multiply matrices on a device, too: CLBlast on the shim's, NVIDIA's cuBLAS on
 * CUDA's first one. They are loaded at run time; no header of theirs is needed. */
#include "peers.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The first library of these names. NULL: none is there. */
static void *open_library(const char *const *names)
{
    void *handle = NULL;
    for (; *names != NULL && handle == NULL; names++)
        handle = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
    return handle;
}

static bool find_function(void *handle, const char *name, void *function)
{
    void *address = handle != NULL ? dlsym(handle, name) : NULL;
    memcpy(function, &address, sizeof address);
    return address != NULL;
}

/* ---- CLBlast ------------------------------------------------------------------------------------
 */

static struct {
    struct clb_runtime *runtime;
    struct clb_queue *queue;
    clb_precision precision;
    struct clb_buffer *matrix[3];
    void (*gemm)(void);
} clblast;

static bool open_clblast(clb_precision precision, struct clb_queue_set *queue_set)
{
    const char *wanted = getenv("BENCH_CLBLAST");
    const char *const names[] = {wanted != NULL ? wanted : "libclblast.so.1", NULL};
    char gemm[] = "CLBlast?gemm";
    gemm[7] = "SDCZ"[precision];
    clblast.runtime = queue_set->runtime;
    clblast.queue = queue_set->queue;
    clblast.precision = precision;
    return find_function(open_library(names), gemm, &clblast.gemm);
}

static bool reserve_clblast(const size_t bytes[3])
{
    clb_status status = CLB_OK;
    for (int i = 0; i < 3; i++) {
        clb_buffer_put(clblast.runtime, clblast.matrix[i]);
        clblast.matrix[i] = NULL;
    }
    for (int i = 0; i < 3 && status == CLB_OK; i++)
        status = clb_buffer_get(clblast.runtime, CLB_MEMORY_DEVICE, bytes[i], &clblast.matrix[i]);
    return status == CLB_OK;
}

static bool write_clblast(int matrix, const void *data, size_t bytes)
{
    return clb_queue_write_now(clblast.queue, clblast.matrix[matrix]->mem, 0, bytes, data) ==
           CLB_OK;
}

enum { CLBLAST_COLUMNS = 102, CLBLAST_PLAIN = 111 };

#define CLBLAST_GEMM(name, scalar)                                                                 \
    typedef int name(int, int, int, size_t, size_t, size_t, scalar, cl_mem, size_t, size_t,        \
                     cl_mem, size_t, size_t, scalar, cl_mem, size_t, size_t, cl_command_queue *,   \
                     cl_event *)
CLBLAST_GEMM(clblast_s, cl_float);
CLBLAST_GEMM(clblast_d, cl_double);
CLBLAST_GEMM(clblast_c, cl_float2);
CLBLAST_GEMM(clblast_z, cl_double2);
#undef CLBLAST_GEMM

static bool multiply_clblast(size_t m, size_t n, size_t k)
{
    const cl_float2 one_c = {{1, 0}}, zero_c = {{0, 0}};
    const cl_double2 one_z = {{1, 0}}, zero_z = {{0, 0}};
    cl_command_queue queue = clb_queue_handle(clblast.queue);
#define CLBLAST_CALL(type, one, zero)                                                              \
    (((type *)clblast.gemm)(CLBLAST_COLUMNS, CLBLAST_PLAIN, CLBLAST_PLAIN, m, n, k, one,           \
                            clblast.matrix[0]->mem, 0, m, clblast.matrix[1]->mem, 0, k, zero,      \
                            clblast.matrix[2]->mem, 0, m, &queue, NULL) == 0)
    switch (clblast.precision) {
    case CLB_S:
        return CLBLAST_CALL(clblast_s, 1, 0);
    case CLB_D:
        return CLBLAST_CALL(clblast_d, 1, 0);
    case CLB_C:
        return CLBLAST_CALL(clblast_c, one_c, zero_c);
    default:
        return CLBLAST_CALL(clblast_z, one_z, zero_z);
    }
#undef CLBLAST_CALL
}

static bool read_clblast(void *data, size_t bytes)
{
    return clb_queue_read_now(clblast.queue, clblast.matrix[2]->mem, 0, bytes, data) == CLB_OK;
}

static bool finish_clblast(void)
{
    return clb_queue_finish(clblast.queue) == CLB_OK;
}

/* ---- cuBLAS, on CUDA's first device ---------------------------------------------------------- */

typedef uint64_t cuda_memory;

static struct {
    int (*initialise)(unsigned flags);
    int (*get_device)(int *device, int ordinal);
    int (*retain_context)(void **context, int device);
    int (*set_context)(void *context);
    int (*allocate)(cuda_memory *memory, size_t bytes);
    int (*release)(cuda_memory memory);
    int (*write)(cuda_memory to, const void *from, size_t bytes);
    int (*read)(void *to, cuda_memory from, size_t bytes);
    int (*finish)(void);
} cuda;

static struct {
    int (*create)(void **handle);
    int (*gemm)(void *handle, int, int, int, int, int, const void *, cuda_memory, int, cuda_memory,
                int, const void *, cuda_memory, int);
    void *handle;
    cuda_memory matrix[3];
    clb_precision precision;
} cublas;

bool clb_cuda_open(void)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    void *handle = open_library(names), *context;
    int device;
    return find_function(handle, "cuInit", &cuda.initialise) &&
           find_function(handle, "cuDeviceGet", &cuda.get_device) &&
           find_function(handle, "cuDevicePrimaryCtxRetain", &cuda.retain_context) &&
           find_function(handle, "cuCtxSetCurrent", &cuda.set_context) &&
           find_function(handle, "cuMemAlloc_v2", &cuda.allocate) &&
           find_function(handle, "cuMemFree_v2", &cuda.release) &&
           find_function(handle, "cuMemcpyHtoD_v2", &cuda.write) &&
           find_function(handle, "cuMemcpyDtoH_v2", &cuda.read) &&
           find_function(handle, "cuCtxSynchronize", &cuda.finish) && cuda.initialise(0) == 0 &&
           cuda.get_device(&device, 0) == 0 && cuda.retain_context(&context, device) == 0 &&
           cuda.set_context(context) == 0;
}

static bool open_cublas(clb_precision precision, struct clb_queue_set *queue_set)
{
    (void)queue_set;
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                        "/usr/local/cuda/lib64/libcublas.so", NULL};
    char gemm[] = "cublas?gemm_v2";
    gemm[6] = "SDCZ"[precision];
    cublas.precision = precision;
    if (!clb_cuda_open())
        return false;
    void *handle = open_library(names);
    return find_function(handle, "cublasCreate_v2", &cublas.create) &&
           find_function(handle, gemm, &cublas.gemm) && cublas.create(&cublas.handle) == 0;
}

static bool reserve_cublas(const size_t bytes[3])
{
    bool all = true;
    for (int i = 0; i < 3; i++) {
        all = (cublas.matrix[i] == 0 || cuda.release(cublas.matrix[i]) == 0) && all;
        cublas.matrix[i] = 0;
    }
    for (int i = 0; i < 3 && all; i++)
        all = cuda.allocate(&cublas.matrix[i], bytes[i]) == 0;
    return all;
}

static bool write_cublas(int matrix, const void *data, size_t bytes)
{
    return cuda.write(cublas.matrix[matrix], data, bytes) == 0;
}

static bool multiply_cublas(size_t m, size_t n, size_t k)
{
    const double one_d[2] = {1}, zero[2] = {0};
    const float one_s[2] = {1};
    bool single = clb_precision_real_size(cublas.precision) == sizeof(float);
    return cublas.gemm(cublas.handle, 0, 0, (int)m, (int)n, (int)k,
                       single ? (const void *)one_s : one_d, cublas.matrix[0], (int)m,
                       cublas.matrix[1], (int)k, zero, cublas.matrix[2], (int)m) == 0;
}

static bool read_cublas(void *data, size_t bytes)
{
    return cuda.read(data, cublas.matrix[2], bytes) == 0;
}

static bool finish_cublas(void)
{
    return cuda.finish() == 0;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static const struct clb_peer peers[] = {
    {"clblast", true, open_clblast, reserve_clblast, write_clblast, multiply_clblast, read_clblast,
     finish_clblast},
    {"cublas", false, open_cublas, reserve_cublas, write_cublas, multiply_cublas, read_cublas,
     finish_cublas},
};

const struct clb_peer *clb_peer_find(const char *name)
{
    for (size_t i = 0; i < CLB_COUNT_OF(peers); i++) {
        if (strcmp(peers[i].name, name) == 0)
            return &peers[i];
    }
    return NULL;
}
