/* SPDX-License-Identifier: BSD-3-Clause
 * CLBlast on the shim's device, cuBLAS on CUDA's first one; loaded at run time, without headers. */
#include "peers.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The first of these names; NULL: none is there. */
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

/* The peer that is open, on either device: an open queue means the shim's. */
typedef uint64_t cuda_memory;
static struct {
    clb_precision precision;
    struct clb_runtime *runtime;
    struct clb_queue *queue;
    struct clb_buffer *buffer[3];
    cuda_memory memory[3];
    void (*clblast_gemm)(void);
    void *cublas;
    int (*cublas_create)(void **handle);
    int (*cublas_gemm)(void *handle, int, int, int, int, int, const void *, cuda_memory, int,
                       cuda_memory, int, const void *, cuda_memory, int);
} use;

/* ---- CLBlast ---- */

static bool open_clblast(clb_precision precision, struct clb_queue_set *queue_set)
{
    const char *wanted = getenv("BENCH_CLBLAST");
    const char *const names[] = {wanted != NULL ? wanted : "libclblast.so.1", NULL};
    char gemm[] = "CLBlast?gemm";
    gemm[7] = "SDCZ"[precision];
    use.runtime = queue_set->runtime;
    use.queue = queue_set->queue;
    use.precision = precision;
    return find_function(open_library(names), gemm, &use.clblast_gemm);
}

enum { CLBLAST_COLUMNS = 102, CLBLAST_PLAIN = 111 };

static bool multiply_clblast(size_t m, size_t n, size_t k)
{
    const cl_float2 one_c = {{1, 0}}, zero_c = {{0, 0}};
    const cl_double2 one_z = {{1, 0}}, zero_z = {{0, 0}};
    cl_command_queue queue = clb_queue_handle(use.queue);
#define CLBLAST_CALL(scalar, one, zero)                                                         \
    (((int (*)(int, int, int, size_t, size_t, size_t, scalar, cl_mem, size_t, size_t, cl_mem,   \
               size_t, size_t, scalar, cl_mem, size_t, size_t, cl_command_queue *,              \
               cl_event *))use.clblast_gemm)(                                                   \
         CLBLAST_COLUMNS, CLBLAST_PLAIN, CLBLAST_PLAIN, m, n, k, one, use.buffer[0]->mem, 0, m, \
         use.buffer[1]->mem, 0, k, zero, use.buffer[2]->mem, 0, m, &queue, NULL) == 0)
    switch (use.precision) {
    case CLB_S:
        return CLBLAST_CALL(cl_float, 1, 0);
    case CLB_D:
        return CLBLAST_CALL(cl_double, 1, 0);
    case CLB_C:
        return CLBLAST_CALL(cl_float2, one_c, zero_c);
    default:
        return CLBLAST_CALL(cl_double2, one_z, zero_z);
    }
#undef CLBLAST_CALL
}

/* ---- cuBLAS, on CUDA's first device ---- */

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
    use.precision = precision;
    if (!clb_cuda_open())
        return false;
    void *handle = open_library(names);
    return find_function(handle, "cublasCreate_v2", &use.cublas_create) &&
           find_function(handle, gemm, &use.cublas_gemm) && use.cublas_create(&use.cublas) == 0;
}

static bool multiply_cublas(size_t m, size_t n, size_t k)
{
    const void *const one = clb_scalar_of(use.precision, 1);
    const void *const zero = clb_scalar_of(use.precision, 0);
    return use.cublas_gemm(use.cublas, 0, 0, (int)m, (int)n, (int)k, one, use.memory[0], (int)m,
                           use.memory[1], (int)k, zero, use.memory[2], (int)m) == 0;
}

/* ---- the matrices of both ---- */

static bool reserve(const size_t bytes[3])
{
    bool all = true;
    for (int i = 0; i < 3; i++) {
        clb_buffer_end(use.runtime, use.buffer[i], true);
        use.buffer[i] = NULL;
        all = (use.memory[i] == 0 || cuda.release(use.memory[i]) == 0) && all;
        use.memory[i] = 0;
    }
    for (int i = 0; i < 3 && all; i++)
        all = use.queue != NULL ? clb_buffer_get(use.runtime, CLB_MEMORY_DEVICE, bytes[i],
                                                 &use.buffer[i]) == CLB_OK
                                : cuda.allocate(&use.memory[i], bytes[i]) == 0;
    return all;
}

static bool write_matrix(int i, const void *data, size_t bytes)
{
    return use.queue != NULL
               ? clb_queue_write_now(use.queue, use.buffer[i]->mem, 0, bytes, data) == CLB_OK
               : cuda.write(use.memory[i], data, bytes) == 0;
}

static bool read_result(void *data, size_t bytes)
{
    return use.queue != NULL
               ? clb_queue_read_now(use.queue, use.buffer[2]->mem, 0, bytes, data) == CLB_OK
               : cuda.read(data, use.memory[2], bytes) == 0;
}

static bool finish(void)
{
    return use.queue != NULL ? clb_queue_finish(use.queue) == CLB_OK : cuda.finish() == 0;
}

static const struct clb_peer peers[] = {
    {"clblast", true, open_clblast, reserve, write_matrix, multiply_clblast, read_result, finish},
    {"cublas", false, open_cublas, reserve, write_matrix, multiply_cublas, read_result, finish},
};

const struct clb_peer *clb_peer_find(const char *name)
{
    for (size_t i = 0; i < CLB_COUNT_OF(peers); i++) {
        if (strcmp(peers[i].name, name) == 0)
            return &peers[i];
    }
    return NULL;
}
