/* measure: what the commands that measure share. The device is used in this process (measure.c),
 * BLAS libraries in children (calls.c). SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_MEASURE_H
#define CLB_MEASURE_H

#include "blas/blas.h"
#include "command.h"
#include "engine/kernel/kernel.h"
#include "shim/next/next.h"
#include "shim/route/profile.h"

/* ---- measure.c: the device ---- */

struct clb_measure {
    struct clb_runtime *runtime;
    struct clb_queue_set *queue_set; /* with all three queues */
    clb_precision precision;
};

/* False after a message. No child may use OpenCL that is forked after this. */
bool clb_measure_start(struct clb_measure *measure, clb_precision precision);
void clb_measure_end(struct clb_measure *measure);

/* Seconds of a run, the median or the best of several, after one that is not counted unless it
 * takes very long. `run` returns when its work has ended. NAN when it fails. */
double clb_measure_seconds(clb_status (*run)(void *argument), void *argument, bool best);

/* {up, down}: bytes per second from pinned memory to the device's and back; 0 where the device uses
 * the host's memory. NULL after a message. */
json_t *clb_measure_link(const struct clb_measure *measure);

/* The library's own product of order n in the device's memory, packing included. */
clb_status clb_measure_product(const struct clb_measure *measure,
                               const struct clb_gemm_variant *variant, size_t n,
                               struct clb_buffer *const matrix[3], bool best,
                               double *seconds) CLB_MUST_CHECK;
/* Operations per second of large ones; 0 after a message. */
double clb_measure_product_rate(const struct clb_measure *measure);

/* ---- blas.c ---- */

/* Whose profile the library would use beside this next library. */
struct clb_cost_machine clb_owner_of(const struct clb_target *next);

/* ---- calls.c: BLAS libraries ---- */

/* Real operations that a call with matrices of order n does. */
double clb_call_flops(clb_routine routine, size_t n);

/* In a child: a routine of a library, or of the next BLAS where that is NULL; false where it has
 * none. And what the library reports so far; NULL: it is not the shim. */
bool clb_find_target(const char *library, clb_routine routine, struct clb_target *target);
json_t *clb_library_report(const char *library);

/* Time calls with matrices of some orders in a child process. `library` is a path, or NULL: the
 * next BLAS as the shim finds it; the shim's own calls go to its device unless CLBLAS_SHIM says
 * otherwise. An array of {n, seconds, device}: the median, and whether the shim's device computed
 * it. Empty where the library has no such routine, NULL where the child has died. */
json_t *clb_time_calls(const char *library, clb_routine routine, const size_t *sizes, size_t count);

/* Whether a text is this name of a routine, with or without an underscore. */
bool clb_is_named(const char *text, const char *name);

/* ---- peer_times.c: other libraries for products on a device ---- */

/* Time calls in a child process, as clb_time_calls: by "clblast" on the shim's device, by "cublas"
 * or "nvblas" on NVIDIA's first one. `resident`: operands and result are in the device's memory;
 * otherwise in ordinary memory, as always for NVBLAS. An array of {n, seconds}, empty where the
 * library, its device or such a routine is missing; NULL where the child has died. */
json_t *clb_time_peer(const char *name, clb_routine routine, const size_t *sizes, size_t count,
                      bool resident);

/* ---- tune_kernels.c ---- */

/* Search a precision's kernel parameters, print the best and keep it. Returns an exit status. */
int clb_tune_kernels(clb_precision precision, double seconds);

/* ---- tune_space.c: the values of kernel families that tune --kernels may try ---- */

struct clb_tune_axis {
    clb_param param;
    size_t count;
    const size_t *values;
};

/* The values of a family that are varied, none of which decides on accuracy. */
struct clb_tune_space {
    const struct clb_tune_axis *axes;
    size_t count;
    void (*repair)(size_t *value);                      /* after one was changed; may be NULL */
    bool (*sensible)(const size_t *value, size_t real); /* see below; may be NULL */
};

const struct clb_tune_space *clb_tune_space_of(clb_family family);

/* Whether values are worth a build: the operands' pieces fit in local memory, too. */
bool clb_tune_is_sensible(clb_family family, const size_t *value, size_t real);

/* Print a row for src/engine/tuning/gemm.def. */
void clb_tune_print_row(const char *class, clb_precision precision,
                        const struct clb_gemm_tuning *tuning);

#endif
