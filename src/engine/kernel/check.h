/* check: kernels must compute known results on the device before they are used.
 *
 * A check runs once for each kernel and precision, for the first call that needs the kernel.
 * Callers wait for its result until their time limit (clb_driver_set_time_limit). Matrices are real
 * here: a complex element is two numbers. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_CHECK_H
#define CLB_CHECK_H

#include "blas/judge.h"
#include "engine/ocl/helper.h"
#include "kernel.h"

/* ---- variant.c: checks that run once ---- */

typedef clb_status clb_check_task(void *argument);

/* Run `task` in the first call, and return its result then and in all later calls: CLB_OK, or
 * CLB_ERR_UNSUPPORTED after CLB_ERR_BUILD, CLB_ERR_LAUNCH or CLB_ERR_UNSUPPORTED: the kernels don't
 * work on this device, which is logged as "`lost`: why". Any other status, a lack of memory or a
 * failing device, is no result: it is returned, and the next call runs the task again.
 * CLB_ERR_STARTING: the caller may not wait longer, and the task goes on without it, or a helper is
 * at work, and calls of the next 20 ms run nothing. `check` and `lost` must stay valid, and the
 * task gets a copy of the `size` bytes at `argument`.
 *
 * Checks run one at a time. A task may run other checks, but not itself. */
#define CLB_CHECK_ARGUMENT 256 /* bytes, at most */
clb_status clb_check_once(struct clb_check *check, const char *lost, clb_check_task *task,
                          const void *argument, size_t size) CLB_MUST_CHECK;

/* ---- check.c: what checks share ---- */

/* A check of a program. Its name, which marks programs that have passed, must change when the check
 * does. A new program is checked at all sizes at which its code takes another path, by
 * later processes at a single small size. */
struct clb_program_check {
    const char *name;
    const struct clb_runtime *runtime;
    const struct clb_program *program;
    bool known; /* clb_check_sizes sets it: all sizes have passed before */
};
struct clb_check_size {
    size_t m, n, k;
};
/* Try these sizes, or the small one, which is the first, and note that all have passed. */
clb_status clb_check_sizes(struct clb_program_check *check, const struct clb_check_size *sizes,
                           size_t count,
                           clb_status (*try_size)(void *context, struct clb_check_size size),
                           void *context) CLB_MUST_CHECK;

/* Device memory, but for what has no bytes; and back. `idle`: no command may use it any more. */
clb_status clb_check_memory(struct clb_runtime *runtime, const size_t *bytes,
                            struct clb_buffer **buffer, size_t count) CLB_MUST_CHECK;
void clb_check_memory_end(struct clb_runtime *runtime, struct clb_buffer **buffer, size_t count,
                          bool idle);

/* Release the queue set of a check, or NULL. False: commands may be outstanding on it, and the
 * buffers that they use must be leaked. */
bool clb_check_end(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* ---- calls that kernels compute ----
 *
 * A check makes a call's matrices, in host and device memory, and has its kernels compute it. Every
 * entry of the result must be right, and what the call does not write must keep its bits. */

struct clb_trial_numbers {
    uint64_t seed;
    double diagonal;   /* is added to A's, */
    double scale;      /* after A's numbers from -1/2 to 1/2 were multiplied by this */
    bool spoils;       /* what must not be read is NaN */
    bool begins_later; /* what is only read begins CLB_TRIAL_BEGIN elements behind its memory's
                          begin: callers' matrices are aligned to their elements only */
    bool extreme;      /* rows of op(A) and columns of op(B) have scales out of split families'
                          range; the kernels may scale the operands in place */
    bool sampled;      /* the result is judged by random vectors, not entry by entry */
    bool rounded;      /* as in struct clb_judged */
};
#define CLB_TRIAL_BEGIN ((size_t)1)

struct clb_trial {
    struct clb_runtime *runtime;
    struct clb_queue *queue;
    const struct clb_trial_numbers *numbers;
    struct clb_call call; /* its matrices are those of the result */
    struct clb_before before[CLB_CALL_MATRICES];
    struct clb_buffer *memory[CLB_CALL_MATRICES];              /* of the same layout */
    size_t bytes[CLB_CALL_MATRICES], begin[CLB_CALL_MATRICES]; /* begin: bytes */
    char *host; /* owned: what was before, and the result */
};

/* The call has its routine, letters, sizes, and what else its routine has but matrices; leading
 * dimensions that are not 0 stay. Before the kernels: write the matrices. After them: read what
 * they have written, and judge; CLB_ERR_BUILD when it is wrong. close, also where open has failed;
 * `idle`: no command may use the memory any more. */
clb_status clb_trial_open(struct clb_trial *trial, struct clb_runtime *runtime,
                          struct clb_queue *queue, const struct clb_call *call,
                          const struct clb_trial_numbers *numbers) CLB_MUST_CHECK;
clb_status clb_trial_judge(const struct clb_trial *trial) CLB_MUST_CHECK;
void clb_trial_close(struct clb_trial *trial, bool idle);

/* The next random number from -1/2 to 1/2, exact in single precision; *state is the position. */
double clb_check_random(uint64_t *state);

/* Real number `at` of a matrix. */
double clb_check_get(clb_precision precision, const void *x, size_t at);
void clb_check_put(clb_precision precision, void *x, size_t at, double value);

/* ---- gemm_check.c ---- */

/* Check a new variant's kernels, with `direct` those that read B unpacked; CLB_ERR_BUILD: wrong. */
clb_status clb_gemm_check_full(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               bool direct) CLB_MUST_CHECK;

/* The rate of a variant that has passed, in GFLOP/s; of a CPU device per second of CPU time, of one
 * core. Takes some 0.1 s, longer only where one small product does. */
clb_status clb_gemm_measure(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            double *gflops) CLB_MUST_CHECK;

/* Bytes in a second of pinned memory to a device with memory of its own, and back; 0: not known. */
void clb_link_measure(struct clb_runtime *runtime, double rate[2]);

/* clb_gemm_check_full for the kernels that has_skip stands for. */
clb_status clb_gemm_check_skip(struct clb_runtime *runtime,
                               const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* Order of the matrices with which the latter are checked: several micro-tiles and passes. */
size_t clb_gemm_check_order(const struct clb_gemm_variant *variant);

/* ---- prelaunch.c ---- */

/* Launch every kernel of a new variant, or with `direct` those that read B unpacked, once with its
 * largest grid, before any other launch: for PoCL, see prelaunch.c. */
clb_status clb_gemm_prelaunch(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                              bool direct) CLB_MUST_CHECK;
/* The same for the kernels that has_skip stands for, which are launched only when needed. */
clb_status clb_gemm_prelaunch_cut(struct clb_queue_set *queue_set,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
