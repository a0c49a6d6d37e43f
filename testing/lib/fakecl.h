/* SPDX-License-Identifier: BSD-3-Clause
 * fakecl: an OpenCL table between the shim and the real one that fails chosen calls and can make
 * the device look like another. Installed before the runtime starts; one per process. */
#ifndef FAKECL_H
#define FAKECL_H

#include "engine/kernel/kernel.h"
#include "engine/ocl/cl.h"
#include "engine/ocl/queue.h"

typedef enum fake_function {
#define CLB_CL_STATUS(name, parameters, arguments)       FAKE_##name,
#define CLB_CL_HANDLE(type, name, parameters, arguments) FAKE_##name,
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
    FAKE_FUNCTIONS
} fake_function;

/* A call fails; or a kernel is not run while its queue goes on, and its event, clFinish or nobody
 * says so; or it never ends, and its queue with it. */
typedef enum fake_failure_kind {
    FAKE_CALL_FAILS,
    FAKE_EVENT_REPORTS,
    FAKE_FINISH_REPORTS,
    FAKE_NOBODY_REPORTS,
    FAKE_FAILURE_KINDS,
    FAKE_NEVER_ENDS = FAKE_FAILURE_KINDS
} fake_failure_kind;

struct fake_cl {
    _Atomic long calls;    /* so far; of the functions in `only` when that is set */
    long fail_at;          /* this call fails, 1 is the first; 0: none */
    bool persistent;       /* and all later ones */
    bool run_anyway;       /* the real call is made, its success is denied */
    cl_int code;           /* what a failing call returns; handles are NULL */
    uint64_t only;         /* a bit for each function that counts; 0: all */
    _Atomic long failures; /* that were injected */
    _Atomic long of[FAKE_FUNCTIONS];

    /* fakecl_rules.c */
    bool breaches_wanted; /* only count them */
    long breaches;

    /* fakecl_skip.c */
    _Atomic long launches, transfers; /* transfers: whose end was seen */
    long skip_at, fail_transfer_at;
    long skipped; /* and failed transfers */
    fake_failure_kind skip_kind;

    /* fakecl_lie.c */
    _Atomic long reads, queries; /* maps for reading among the reads */
    long flip_at, lie_at;        /* the read, the query; 0: none */
    _Atomic long flipped, lies;
    bool flip_single, flip_spoils; /* spoils: the element becomes a NaN */
    uint64_t flip_seed, lie_seed;

    /* Called first, in whatever thread calls; NULL by default. */
    void (*enter)(fake_function function);

    /* What the device says of itself. */
    bool discrete; /* a GPU with memory of its own */
    bool no_fp64;
    cl_ulong max_alloc; /* 0: as it is */
    cl_uint vector_floats;
    size_t max_group;      /* 0: as it is; launches of larger groups fail, */
    cl_ulong local_memory; /* of kernels with more too */

    /* Called before a kernel is launched, with its arguments of at most 8 bytes as numbers:
     * CL_SUCCESS, what the launch returns instead, or FAKE_LOST: it says that it is made. NULL by
     * default. */
    cl_int (*launch)(const char *kernel, const cl_ulong *argument);

    /* Called after a kernel was launched; NULL by default. */
    void (*launched)(cl_command_queue queue);

    /* Buffers as the driver sees them. */
    _Atomic long long live_bytes, peak_bytes; /* not those over the caller's memory */
};

#define FAKE_LOST 1

extern struct fake_cl fake_cl;

void fake_cl_install(void);

/* How a pipeline is tried: random problems of up to `largest` rows. */
struct fake_setting {
    const char *name, *kernel, *params;
    bool discrete;
    size_t largest;
    int runs;
    uint64_t seed;
};

/* Configure this process, install and start, on a device with memory of its own where `discrete`;
 * NULL, and a failed expectation, when there is none. */
struct clb_runtime *fake_cl_start(const char *kernel, const char *params, bool discrete);
struct clb_runtime *fake_cl_start_setting(const struct fake_setting *setting);
/* The same without a kernel and parameters. */
struct clb_runtime *fake_cl_start_device(bool discrete);
/* The kernels of a precision; NULL, and a failed expectation, when there are none. */
const struct clb_gemm_variant *fake_cl_variant(struct clb_runtime *runtime,
                                               clb_precision precision);
/* Run four threads at once, each with its part of an array of problems of `size` bytes, one problem
 * after the other. */
void fake_cl_at_once(struct clb_runtime *runtime, void (*run)(struct clb_runtime *, void *),
                     void *problems, size_t count, size_t size);
const char *fake_cl_name(fake_function function);

/* Called by `launched`: when the kernel has ended, flip a bit of an element in one of the buffers
 * that it was given, inputs in the caller's memory excepted: the sign, or one that changes the
 * magnitude by 2^4 to 2^32. The element is of single precision or double, from 0.001 to 1000. False
 * when none was found. */
bool fake_cl_flip(cl_command_queue queue, bool single, uint64_t *seed);

/* Flip such a bit in the memory that `at` points to. False for other magnitudes. */
bool fake_cl_flip_bit(void *at, bool single, size_t bit);

/* Flip one in what read number `at` brings, or report garbage in answer to query number `at`, 1 is
 * the first from now on; 0: none. */
void fake_cl_flip_read(long at, bool single, uint64_t seed);
void fake_cl_lie(long at, uint64_t seed);

/* Count from zero and fail call number `at`. */
void fake_cl_arm(long at, cl_int code, bool persistent);

/* Have kernel number `at`, 1 is the first from now on, not be run; 0: none. Its queue goes on. */
void fake_cl_skip(long at, fake_failure_kind kind);

/* Have the event of transfer number `at`, in the order in which their ends are seen, say that it
 * failed; 0: none. */
void fake_cl_fail_transfer(long at);

/* The layers of the table: where REORDER is set, one over the driver's, whose library has what the
 * table has not; two over that; and one over all others. */
void fake_cl_add_reordering(struct clb_cl *table, void *library);
void fake_cl_add_skipping(struct clb_cl *table);
void fake_cl_add_lying(struct clb_cl *table);
void fake_cl_add_rules(struct clb_cl *table, const struct clb_cl *real);

#endif
