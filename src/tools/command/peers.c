/* Libraries that multiply matrices on a GPU, too, where they are: CLBlast, NVIDIA's cuBLAS and its
 * NVBLAS. They are loaded at run time, in children; no header of theirs is needed. */
#include "clblast.h"
#include "engine/kernel/kernel.h"
#include "measure.h"

#include <complex.h>
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONG_CALL 5.0 /* seconds; an order whose call would take longer is left out */
#define ENTRIES   16  /* of a product that are looked at */

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

/* C = A*B on a device: three matrices of one order there. */
struct peer {
    const char *name;
    bool (*open)(clb_precision precision);
    bool (*reserve)(size_t bytes); /* of each matrix; what was reserved before is given back */
    bool (*write)(int matrix, const void *data, size_t bytes);
    bool (*multiply)(size_t n); /* only enqueues it */
    bool (*read)(void *data, size_t bytes);
    bool (*finish)(void);
};

/* ---- CLBlast, on the shim's device ----------------------------------------------------------- */

static struct {
    struct clb_measure measure;
    struct clb_buffer *matrix[3];
    void (*gemm)(void);
} clblast;

static bool open_clblast(clb_precision precision)
{
    static const char *const names[] = {"libclblast.so.1", NULL};
    char gemm[16];
    clb_clblast_name(gemm, precision);
    return find_function(open_library(names), gemm, &clblast.gemm) &&
           clb_measure_start(&clblast.measure, precision);
}

static bool reserve_clblast(size_t bytes)
{
    clb_status status = CLB_OK;
    for (int i = 0; i < 3; i++) {
        clb_buffer_put(clblast.measure.runtime, clblast.matrix[i]);
        clblast.matrix[i] = NULL;
    }
    for (int i = 0; i < 3 && status == CLB_OK; i++)
        status =
            clb_buffer_get(clblast.measure.runtime, CLB_MEMORY_DEVICE, bytes, &clblast.matrix[i]);
    return status == CLB_OK;
}

static bool write_clblast(int matrix, const void *data, size_t bytes)
{
    return clb_queue_write_now(clblast.measure.queue_set->queue, clblast.matrix[matrix]->mem, 0,
                               bytes, data) == CLB_OK;
}

static bool multiply_clblast(size_t n)
{
    const cl_mem matrix[] = {clblast.matrix[0]->mem, clblast.matrix[1]->mem,
                             clblast.matrix[2]->mem};
    return clb_clblast_multiply(clblast.gemm, clblast.measure.precision, n, n, n, matrix,
                                clb_queue_handle(clblast.measure.queue_set->queue)) == 0;
}

static bool read_clblast(void *data, size_t bytes)
{
    return clb_queue_read_now(clblast.measure.queue_set->queue, clblast.matrix[2]->mem, 0, bytes,
                              data) == CLB_OK;
}

static bool finish_clblast(void)
{
    return clb_queue_finish(clblast.measure.queue_set->queue) == CLB_OK;
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

/* False: there is no device of NVIDIA's, or no driver for it. */
static bool open_cuda(void)
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

static bool open_cublas(clb_precision precision)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12",
                                        "/usr/local/cuda/lib64/libcublas.so", NULL};
    char gemm[] = "cublas?gemm_v2";
    gemm[6] = "SDCZ"[precision];
    cublas.precision = precision;
    if (!open_cuda())
        return false;
    void *handle = open_library(names);
    return find_function(handle, "cublasCreate_v2", &cublas.create) &&
           find_function(handle, gemm, &cublas.gemm) && cublas.create(&cublas.handle) == 0;
}

static bool reserve_cublas(size_t bytes)
{
    bool all = true;
    for (int i = 0; i < 3; i++) {
        all = (cublas.matrix[i] == 0 || cuda.release(cublas.matrix[i]) == 0) && all;
        cublas.matrix[i] = 0;
    }
    for (int i = 0; i < 3 && all; i++)
        all = cuda.allocate(&cublas.matrix[i], bytes) == 0;
    return all;
}

static bool write_cublas(int matrix, const void *data, size_t bytes)
{
    return cuda.write(cublas.matrix[matrix], data, bytes) == 0;
}

static bool multiply_cublas(size_t n)
{
    const double one_d[2] = {1}, zero[2] = {0};
    const float one_s[2] = {1};
    bool single = clb_precision_real_size(cublas.precision) == sizeof(float);
    int order = (int)n;
    return cublas.gemm(cublas.handle, 0, 0, order, order, order,
                       single ? (const void *)one_s : one_d, cublas.matrix[0], order,
                       cublas.matrix[1], order, zero, cublas.matrix[2], order) == 0;
}

static bool read_cublas(void *data, size_t bytes)
{
    return cuda.read(data, cublas.matrix[2], bytes) == 0;
}

static bool finish_cublas(void)
{
    return cuda.finish() == 0;
}

/* ---- a product ------------------------------------------------------------------------------- */

static const struct peer peers[] = {
    {"clblast", open_clblast, reserve_clblast, write_clblast, multiply_clblast, read_clblast,
     finish_clblast},
    {"cublas", open_cublas, reserve_cublas, write_cublas, multiply_cublas, read_cublas,
     finish_cublas},
};

struct product {
    const struct peer *peer;
    bool resident;
    size_t n, bytes;
    void *matrix[3];
};

static clb_status run_product(void *argument)
{
    const struct product *x = argument;
    bool good = true;
    for (int i = 0; i < 2 && good && !x->resident; i++)
        good = x->peer->write(i, x->matrix[i], x->bytes);
    good = good && x->peer->multiply(x->n);
    good = good && (x->resident ? x->peer->finish() : x->peer->read(x->matrix[2], x->bytes));
    return good ? CLB_OK : CLB_ERR_OPENCL;
}

static double complex entry(clb_precision precision, const void *matrix, size_t at)
{
    switch (precision) {
    case CLB_S:
        return (double)((const float *)matrix)[at];
    case CLB_D:
        return ((const double *)matrix)[at];
    case CLB_C:
        return (double)((const float *)matrix)[2 * at] +
               I * (double)((const float *)matrix)[2 * at + 1];
    default:
        return ((const double *)matrix)[2 * at] + I * ((const double *)matrix)[2 * at + 1];
    }
}

/* Whether some entries of C are sums of products. */
static bool is_right(const struct product *x, clb_precision precision)
{
    const double unit = clb_precision_real_size(precision) == sizeof(float) ? 0x1p-23 : 0x1p-52;
    for (size_t e = 0; e < ENTRIES; e++) {
        size_t i = e * (x->n - 1) / (ENTRIES - 1), j = (e * 7 + 3) % x->n;
        double complex sum = 0;
        for (size_t l = 0; l < x->n; l++)
            sum += entry(precision, x->matrix[0], i + l * x->n) *
                   entry(precision, x->matrix[1], l + j * x->n);
        if (!(cabs(entry(precision, x->matrix[2], i + j * x->n) - sum) < 4 * unit * (double)x->n))
            return false;
    }
    return true;
}

static bool open_product(struct product *x, clb_precision precision)
{
    size_t numbers = x->n * x->n * clb_precision_parts(precision);
    uint64_t state = 1;
    bool good = x->peer->reserve(x->bytes);
    for (int i = 0; i < 3 && good; i++) {
        x->matrix[i] = calloc(1, x->bytes);
        for (size_t k = 0; x->matrix[i] != NULL && i < 2 && k < numbers; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            double value = (double)(int64_t)(state >> 11) * 0x1p-52 - 1;
            if (clb_precision_real_size(precision) == sizeof(float))
                ((float *)x->matrix[i])[k] = (float)value;
            else
                ((double *)x->matrix[i])[k] = value;
        }
        good = x->matrix[i] != NULL && (i == 2 || x->peer->write(i, x->matrix[i], x->bytes));
    }
    return good;
}

/* Seconds, NAN where it fails or is wrong. */
static double time_product(struct product *x, clb_precision precision)
{
    double seconds = NAN;
    /* The first one may compile kernels, however long that takes. */
    if (open_product(x, precision) && run_product(x) == CLB_OK)
        seconds = clb_measure_seconds(run_product, x, false);
    if (isfinite(seconds) && !(x->peer->read(x->matrix[2], x->bytes) && is_right(x, precision))) {
        clb_fail(0, "%s multiplies wrong matrices of order %zu", x->peer->name, x->n);
        seconds = NAN;
    }
    for (int i = 0; i < 3; i++)
        free(x->matrix[i]);
    return seconds;
}

struct request {
    const struct peer *peer;
    clb_precision precision;
    const size_t *sizes;
    size_t count;
    bool resident;
};

static json_t *answer_product(void *argument)
{
    const struct request *request = argument;
    json_t *rows = json_array();
    unsetenv("LD_PRELOAD");
    double last = 0;
    size_t before = 1;
    if (!request->peer->open(request->precision))
        return rows;
    for (size_t i = 0; i < request->count; i++) {
        size_t n = request->sizes[i];
        struct product x = {.peer = request->peer, .resident = request->resident, .n = n};
        x.bytes = n * n * clb_precision_size(request->precision);
        if (!(last * pow((double)n / (double)before, 3) < LONG_CALL))
            break;
        last = time_product(&x, request->precision);
        before = n;
        if (isfinite(last))
            json_array_append_new(rows,
                                  json_pack("{s:I,s:f}", "n", (json_int_t)n, "seconds", last));
    }
    return rows;
}

/* ---- NVBLAS, which has the names of a BLAS --------------------------------------------------- */

static json_t *answer_cuda(void *unused)
{
    (void)unused;
    return open_cuda() ? json_array() : json_object();
}

static void ignore_file(const char *path, void *unused)
{
    (void)path;
    (void)unused;
}

/* What it needs: the BLAS for what it does not do. Its best settings. */
static bool write_nvblas_settings(const char *file, const char *folder)
{
    json_t *next = clb_next_describe(NULL);
    const char *library = json_string_value(json_object_get(next, "library"));
    FILE *settings = library != NULL && *library != '\0' ? fopen(file, "w") : NULL;
    if (settings != NULL) {
        fprintf(settings,
                "NVBLAS_LOGFILE %s/log\nNVBLAS_CPU_BLAS_LIB %s\nNVBLAS_GPU_LIST 0\n"
                "NVBLAS_AUTOPIN_MEM_ENABLED\n",
                folder, library);
        fclose(settings);
    }
    json_decref(next);
    return settings != NULL;
}

static json_t *time_nvblas(clb_routine routine, const size_t *sizes, size_t count)
{
    static const char *const names[] = {"libnvblas.so.13", "libnvblas.so.12",
                                        "/usr/local/cuda/lib64/libnvblas.so"};
    const char *wanted = getenv("NVBLAS_CONFIG_FILE");
    struct clb_text file = {0};
    json_t *gpu = clb_ask_child(answer_cuda, NULL), *rows = NULL;
    char *folder = json_is_array(gpu) && wanted == NULL ? clb_make_folder() : NULL;
    bool ready = json_is_array(gpu) && (wanted != NULL || folder != NULL);
    json_decref(gpu);
    if (folder != NULL) {
        clb_text_addf(&file, "%s/nvblas.conf", folder);
        ready = !file.failed && write_nvblas_settings(file.data, folder);
        if (ready)
            setenv("NVBLAS_CONFIG_FILE", file.data, 1);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(names) && ready && json_array_size(rows) == 0; i++) {
        json_decref(rows);
        rows = clb_time_calls(names[i], routine, sizes, count);
    }
    if (folder != NULL) {
        unsetenv("NVBLAS_CONFIG_FILE");
        clb_consume_folder(folder, ignore_file, NULL);
    }
    clb_text_free(&file);
    free(folder);
    return rows != NULL ? rows : json_array();
}

/* ---- in this process ------------------------------------------------------------------------- */

json_t *clb_time_peer(const char *name, clb_routine routine, const size_t *sizes, size_t count,
                      bool resident)
{
    if (strcmp(name, "nvblas") == 0)
        return resident ? json_array() : time_nvblas(routine, sizes, count);
    struct request request = {NULL, clb_routines[routine].precision, sizes, count, resident};
    for (size_t i = 0; i < CLB_COUNT_OF(peers); i++) {
        if (strcmp(peers[i].name, name) == 0)
            request.peer = &peers[i];
    }
    if (request.peer == NULL || strcmp(clb_routines[routine].stem, "gemm") != 0)
        return json_array();
    return clb_ask_child(answer_product, &request);
}
