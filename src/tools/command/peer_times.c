/* Times of other libraries that multiply matrices on a device, where they are: CLBlast, cuBLAS and
 * NVIDIA's NVBLAS, in children. */
#include "measure.h"
#include "peers.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LONG_CALL 5.0 /* seconds; an order whose call would take longer is left out */
#define ENTRIES   16  /* of a product that are looked at */

/* ---- a product ------------------------------------------------------------------------------- */

struct product {
    const struct clb_peer *peer;
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
    good = good && x->peer->multiply(x->n, x->n, x->n);
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
    uint64_t state = 1;
    bool good = x->peer->reserve((const size_t[3]){x->bytes, x->bytes, x->bytes});
    for (int i = 0; i < 3 && good; i++) {
        x->matrix[i] = clb_measure_random(precision, x->n * x->n, &state);
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
    const struct clb_peer *peer;
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
    struct clb_measure measure = {0};
    if ((request->peer->on_our_device && !clb_measure_start(&measure, request->precision)) ||
        !request->peer->open(request->precision, measure.queue_set))
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
    return clb_cuda_open() ? json_array() : json_object();
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
    struct request request = {clb_peer_find(name), clb_routines[routine].precision, sizes, count,
                              resident};
    if (request.peer == NULL || strcmp(clb_routines[routine].stem, "gemm") != 0)
        return json_array();
    return clb_ask_child(answer_product, &request);
}
