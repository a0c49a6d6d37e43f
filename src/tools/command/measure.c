/* The device for measurements: start, launches, clocks. SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"
#include "product.h"
#include "trial.h"
#include "engine/kernel/check.h"

#include <math.h>
#include <stdlib.h>

#define MOST_RUNS 15
/* Seconds: all runs together take little longer; a run that is not repeated. */
#define LONG_RUN      0.5
#define VERY_LONG_RUN 5.0

/* The helper meets the drivers; it has only the library's kernels: others are built here. */
bool clb_measure_start(struct clb_measure *measure, clb_precision precision)
{
    const char *helper = clb_find_helper();
    clb_runtime_state state;
    struct clb_thread_state before;
    if (helper == NULL)
        return false;
    setenv("CLBLAS_SHIM_PROBE", helper, 0);
    clb_thread_state_save(&before, true);
    *measure = (struct clb_measure){.runtime = clb_runtime_get(&state), .precision = precision};
    clb_thread_state_restore(&before);
    clb_helper_become(CLB_HELPER_NONE, NULL);
    if (measure->runtime == NULL)
        return clb_fail(false, "the device does not start: CLBLAS_SHIM_LOG=info says why");
    if (precision == CLB_D && !measure->runtime->device.fp64)
        return clb_fail(false, "the device has no double precision");
    clb_status status = clb_queue_set_acquire(measure->runtime, &measure->queue_set);
    CLB_THEN(status, clb_queue_set_open_queues(measure->queue_set));
    if (status != CLB_OK)
        clb_fail(0, "the device gives no queue: %s", clb_status_name(status));
    return status == CLB_OK;
}

void clb_measure_end(struct clb_measure *measure)
{
    if (measure->queue_set != NULL)
        clb_queue_set_end(measure->queue_set, clb_queue_set_settle(measure->queue_set));
}

double clb_measure_seconds(clb_status (*run)(void *argument), void *argument, bool best)
{
    double seconds[MOST_RUNS], begun = clb_now();
    size_t count = 0;
    if (run(argument) != CLB_OK)
        return NAN;
    seconds[0] = clb_now() - begun;
    if (seconds[0] > VERY_LONG_RUN)
        return seconds[0];
    begun = clb_now();
    do {
        double begin = clb_now();
        if (run(argument) != CLB_OK)
            return NAN;
        seconds[count++] = clb_now() - begin;
    } while (count < MOST_RUNS && clb_now() - begun < LONG_RUN);
    double median = clb_median(seconds, count);
    return best ? seconds[0] : median;
}

/* ---- the library's product ---- */

static clb_status run_product(void *resident)
{
    const struct clb_resident *r = resident;
    clb_status status = clb_resident_enqueue(r, true, true);
    return status == CLB_OK ? clb_queue_finish(r->queue_set->queue) : status;
}

clb_status clb_measure_product(const struct clb_measure *measure,
                               const struct clb_gemm_variant *variant, size_t n,
                               struct clb_buffer *const matrix[3], bool best, double *seconds)
{
    struct clb_resident product;
    clb_status status = clb_resident_open(&product, measure->queue_set, variant, n, n, n);
    product.a = matrix[0]->mem;
    product.b = matrix[1]->mem;
    product.c = matrix[2]->mem;
    *seconds = status == CLB_OK ? clb_measure_seconds(run_product, &product, best) : NAN;
    clb_resident_close(&product);
    return status;
}

#define RATE_ON_CPU 1024 /* the order */
#define RATE_ON_GPU 4096

/* Any operands will do. */
double clb_measure_product_rate(const struct clb_measure *measure)
{
    const size_t n = clb_device_is_cpu(&measure->runtime->device) ? RATE_ON_CPU : RATE_ON_GPU,
                 size = n * n * clb_precision_size(measure->precision),
                 bytes[3] = {size, size, size};
    const struct clb_gemm_variant *variant;
    struct clb_buffer *matrix[3] = {NULL};
    double seconds = NAN;
    void *zeros = calloc(1, size);
    clb_status status = zeros == NULL ? CLB_ERR_NOMEM : CLB_OK;
    CLB_THEN(status, clb_gemm_variant_get(measure->runtime, measure->precision, &variant));
    CLB_THEN(status, clb_check_memory(measure->runtime, bytes, matrix, 3));
    for (int i = 0; i < 3; i++)
        CLB_THEN(status,
                 clb_queue_write_now(measure->queue_set->queue, matrix[i]->mem, 0, size, zeros));
    CLB_THEN(status, clb_measure_product(measure, variant, n, matrix, true, &seconds));
    clb_check_memory_end(measure->runtime, matrix, 3, true);
    free(zeros);
    const clb_routine routine = clb_routine_of(CLB_KIND_gemm, measure->precision, false);
    return isfinite(seconds) ? clb_call_flops(routine, n) / seconds
                             : clb_fail(0, "the device's product can't be measured");
}

/* ---- the link ---- */

json_t *clb_measure_link(const struct clb_measure *measure)
{
    double rate[2];
    clb_link_measure(measure->runtime, rate);
    if (measure->runtime->device.unified || (rate[0] > 0 && rate[1] > 0))
        return json_pack("{s:f,s:f}", "up", rate[0], "down", rate[1]);
    clb_fail(0, "the link can't be measured");
    return NULL;
}
