/* Products that are streamed in blocks by several threads, with little memory.
 * SPDX-License-Identifier: BSD-3-Clause
 * Few raw buffers and many loads: threads that ran ahead with uploads once waited for a buffer that
 * only the calling thread could free, which waited for them to bring a strip down. */
#include "engine/kernel/kernel.h"
#include "matrix.h"
#include "engine/ocl/cl.h"
#include "tap.h"

#include "engine/gemm/gemm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* A C of so many bytes does not fit the caches: products that are only copied into it are written
 * past them (LARGE_MATRIX, src/engine/gemm/discrete.c). */
#define LARGE ((size_t)64 << 20)

static void run_once(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                     bool large, uint64_t *seed)
{
    struct gemm_case g = {.precision = CLB_D,
                          .transa = random_below(seed, 2) == 0 ? CLB_OP_N : CLB_OP_T,
                          .transb = random_below(seed, 2) == 0 ? CLB_OP_N : CLB_OP_T,
                          .m = 200 + random_below(seed, 300),
                          .n = 200 + random_below(seed, 300),
                          .k = 100 + random_below(seed, 200),
                          .alpha = large ? 1 : -1,
                          .beta = large ? 0 : 0.5};
    gemm_make(&g, seed, 5);
    if (large) {
        matrix_free(&g.c);
        matrix_make(&g.c, g.precision, g.m, g.n, LARGE / sizeof(double) / g.n + 1, 1);
        matrix_fill(&g.c, seed);
        matrix_remember(&g.c);
    }
    const struct clb_gemm problem = gemm_problem(&g);
    struct clb_gemm_progress progress;
    clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
    char what[128];
    snprintf(what, sizeof what, "%zux%zux%zu within %llu bytes", g.m, g.n, g.k,
             (unsigned long long)runtime->memory_limit);
    clb_gemm_progress_free(&progress);
    if (expect(status == CLB_OK, "%s: %s", what, clb_status_name(status)))
        gemm_check(&g, what);
    gemm_free(&g);
}

/* NULL: there is no device, or no variant. */
static struct clb_runtime *start(const struct clb_gemm_variant **variant)
{
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    const bool found = runtime != NULL && clb_gemm_variant_get(runtime, CLB_D, variant) == CLB_OK;
    return expect(found, "no device, or no variant") ? runtime : NULL;
}

#define BLOCKS "gemm.stream=1,gemm.band_m=32,gemm.band_n=32,gemm.slab=64,gemm.kc=64,gemm.threads="

static void body(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = start(&variant);
    if (runtime == NULL)
        return;
    for (int i = 0; i < 24; i++) {
        runtime->memory_limit = (uint64_t)(5 + i % 4) << 20;
        run_once(runtime, variant, i == 0, &seed);
    }
}

/* ---- gathered transfers ---- */

static pthread_t caller;
static atomic_int commands, elsewhere;

static void note_command(void)
{
    atomic_fetch_add(&commands, 1);
    if (!pthread_equal(pthread_self(), caller))
        atomic_fetch_add(&elsewhere, 1);
}

static struct clb_cl real;

static cl_int CL_API_CALL noted_write(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                      size_t offset, size_t size, const void *host, cl_uint waits,
                                      const cl_event *wait_list, cl_event *event)
{
    note_command();
    return real.EnqueueWriteBuffer(queue, mem, blocking, offset, size, host, waits, wait_list,
                                   event);
}

static cl_int CL_API_CALL noted_read(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                     size_t offset, size_t size, void *host, cl_uint waits,
                                     const cl_event *wait_list, cl_event *event)
{
    note_command();
    return real.EnqueueReadBuffer(queue, mem, blocking, offset, size, host, waits, wait_list,
                                  event);
}

/* Small matrices: only the calling thread enqueues; the results come although it also waits. */
static void gathered(void *argument)
{
    uint64_t seed = *(const uint64_t *)argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = start(&variant);
    if (runtime == NULL)
        return;
    caller = pthread_self();
    real = clb_cl;
    clb_cl.EnqueueWriteBuffer = noted_write;
    clb_cl.EnqueueReadBuffer = noted_read;
    for (int i = 0; i < 12; i++)
        run_once(runtime, variant, i == 0, &seed);
    expect(commands > 12 * 3 && elsewhere == 0, "%d of %d transfers are from other threads",
           elsewhere, commands);
    clb_cl = real;
}

int main(void)
{
    uint64_t seed = tap_seed();
    setenv("CLBLAS_SHIM_KERNEL", "cpu", 1);
    for (int threads = 2; threads <= 6; threads += 2) {
        char params[128], name[64];
        snprintf(params, sizeof params, BLOCKS "%d", threads);
        snprintf(name, sizeof name, "blocks by %d threads", threads);
        setenv("CLBLAS_SHIM_PARAMS", params, 1);
        tap_child(name, 120, body, &seed);
    }
    setenv("CLBLAS_SHIM_PARAMS",
           "gemm.stream=1,gemm.gather=128M,gemm.band_m=96,gemm.band_n=96,gemm.threads=3", 1);
    tap_child("gathered", 120, gathered, &seed);
    setenv("CLBLAS_SHIM_PARAMS", BLOCKS "3,gemm.gather=128M", 1);
    tap_child("gathered where there is room", 120, body, &seed);
    return tap_done();
}
