/* Times of CLBlast, cuBLAS and NVBLAS, in children. SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"
#include "peers.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LONG_CALL 5.0 /* seconds; an order whose call would take longer is left out */

/* ---- a product ---- */

struct product {
    const struct clb_peer *peer;
    clb_routine routine;
    const size_t *sizes;
    size_t count;
    bool resident;
    struct clb_call call; /* of the size that is timed now */
    size_t bytes;         /* of each of its matrices */
};

static bool write_operands(const struct product *x)
{
    return x->peer->write(0, x->call.a, x->bytes) && x->peer->write(1, x->call.b, x->bytes);
}

static clb_status run_product(void *argument)
{
    const struct product *x = argument;
    const bool good = (x->resident || write_operands(x)) &&
                      x->peer->multiply(x->call.m, x->call.n, x->call.k) &&
                      (x->resident ? x->peer->finish() : x->peer->read(x->call.c, x->bytes));
    return good ? CLB_OK : CLB_ERR_OPENCL;
}

/* Seconds of a product of order n, NAN where it fails or is wrong. */
static double time_product(struct product *x, size_t n)
{
    const int64_t order = (int64_t)n;
    double seconds = NAN;
    x->call = clb_trial_make(x->routine, order, order, order, 0);
    x->bytes = n * n * clb_precision_size(x->call.precision);
    clb_trial_fill(&x->call, false);
    /* The first one may compile kernels, however long that takes. */
    if (x->peer->reserve((const size_t[3]){x->bytes, x->bytes, x->bytes}) && write_operands(x) &&
        run_product(x) == CLB_OK)
        seconds = clb_measure_seconds(run_product, x, false);
    if (isfinite(seconds) && !(x->peer->read(x->call.c, x->bytes) &&
                               clb_trial_product_is_right(x->call.precision, n, n, n, x->call.a,
                                                          x->call.b, x->call.c))) {
        clb_fail(0, "%s multiplies wrong matrices of order %zu", x->peer->name, n);
        seconds = NAN;
    }
    return seconds;
}

static json_t *answer_product(void *argument)
{
    struct product *x = argument;
    const clb_precision precision = clb_routines[x->routine].precision;
    json_t *rows = json_array();
    double last = 0, before = 1;
    struct clb_measure measure = {0};
    if ((x->peer->on_our_device && !clb_measure_start(&measure, precision)) ||
        !x->peer->open(precision, measure.queue_set))
        return rows;
    for (size_t i = 0; i < x->count; i++) {
        const double n = (double)x->sizes[i];
        if (!(last * pow(n / before, 3) < LONG_CALL))
            break;
        last = time_product(x, x->sizes[i]);
        before = n;
        if (isfinite(last))
            json_array_append_new(
                rows, json_pack("{s:I,s:f}", "n", (json_int_t)x->sizes[i], "seconds", last));
    }
    return rows;
}

/* ---- NVBLAS, which has the names of a BLAS ---- */

static json_t *answer_cuda(void *unused)
{
    (void)unused;
    return clb_cuda_open() ? json_array() : json_object();
}

/* Make a file with its best settings, and the BLAS for the rest; -1: can't. */
static int make_nvblas_settings(void)
{
    json_auto_t *next = clb_next_describe(NULL);
    const char *library = clb_text_of(next, "library");
    const int file = *library != '\0' ? memfd_create("nvblas.conf", MFD_CLOEXEC) : -1;
    if (file >= 0)
        dprintf(file,
                "NVBLAS_LOGFILE /dev/null\nNVBLAS_CPU_BLAS_LIB %s\nNVBLAS_GPU_LIST 0\n"
                "NVBLAS_AUTOPIN_MEM_ENABLED\n",
                library);
    return file;
}

static json_t *time_nvblas(clb_routine routine, const size_t *sizes, size_t count)
{
    static const char *const names[] = {"libnvblas.so.13", "libnvblas.so.12",
                                        "/usr/local/cuda/lib64/libnvblas.so"};
    json_auto_t *gpu = clb_ask_child(answer_cuda, NULL);
    json_t *rows = json_array();
    const bool is_set = getenv("NVBLAS_CONFIG_FILE") != NULL;
    const int file = json_is_array(gpu) && !is_set ? make_nvblas_settings() : -1;
    const bool ready = json_is_array(gpu) && (is_set || file >= 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file); /* children inherit it */
    setenv("NVBLAS_CONFIG_FILE", path, 0);
    for (size_t i = 0; i < CLB_COUNT_OF(names) && ready && json_array_size(rows) == 0; i++) {
        json_decref(rows);
        rows = clb_time_calls(names[i], routine, sizes, count);
    }
    if (!is_set)
        unsetenv("NVBLAS_CONFIG_FILE");
    if (file >= 0)
        close(file);
    return rows != NULL ? rows : json_array();
}

/* ---- in this process ---- */

json_t *clb_time_peer(const char *name, clb_routine routine, const size_t *sizes, size_t count,
                      bool resident)
{
    if (strcmp(name, "nvblas") == 0)
        return resident ? json_array() : time_nvblas(routine, sizes, count);
    struct product product = {clb_peer_find(name), routine, sizes, count, resident, .bytes = 0};
    if (product.peer == NULL || strcmp(clb_routines[routine].stem, "gemm") != 0)
        return json_array();
    return clb_ask_child(answer_product, &product);
}
