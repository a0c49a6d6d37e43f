/* runtime: what is kept for the device in use. It is started by the first clb_runtime_get(). */
#ifndef CLB_RUNTIME_H
#define CLB_RUNTIME_H

#include "device.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

struct clb_buffer;
struct clb_queue_set;
struct clb_program;

/* Buffers that are kept for later calls; memory.c's alone. */
struct clb_pool {
    pthread_mutex_t lock;
    struct clb_buffer *kept; /* free buffers, most recent first */
    uint64_t taken_bytes;    /* all buffers, kept or in use */
};

enum { CLB_TURNS = 16 };

/* A process has one: what the layers above know of its device (variants, results of checks) is
 * static there, and zero before the start. */
struct clb_runtime {
    struct clb_device device;
    cl_context context;
    uint64_t memory_limit;        /* bytes of device memory that the pool may hold */
    _Atomic double start_seconds; /* that the start has taken, its kernels included */
    struct clb_pool pool;
    struct {
        pthread_mutex_t lock;
        struct clb_queue_set *idle; /* queue_set.c's alone */
        /* Where the next queues have their launches counted, and the places that are taken;
         * queue_open.c's alone. */
        struct clb_buffer *chain, *report;
        cl_uint taken;
    } sets;
    struct clb_turns { /* queue_set.c's alone */
        pthread_mutex_t lock;
        size_t begun, ended;            /* calls; under the lock */
        pthread_cond_t come[CLB_TURNS]; /* call number i waits for come[i % CLB_TURNS] */
    } turns;
    struct {
        pthread_mutex_t lock;
        struct clb_program *first; /* program.c's alone */
    } programs;
    _Atomic int failures;        /* calls in a row that failed on the device */
    atomic_bool counts_launches; /* the CPU has seen what kernels store, see queue.c */
    /* Waits for a device with its own memory, see queue.c. */
    _Atomic unsigned ended;       /* commands that were seen to end */
    _Atomic unsigned hang_millis; /* 0: no call has said what it expects */
    atomic_bool abandoned;        /* nothing is enqueued any more, nobody waits */
};

typedef enum clb_runtime_state {
    CLB_RUNTIME_IDLE,        /* no call has needed a device yet */
    CLB_RUNTIME_READY,       /* started */
    CLB_RUNTIME_FAILED,      /* no usable device */
    CLB_RUNTIME_ABANDONED,   /* this is a forked child of a process that had started */
    CLB_RUNTIME_QUARANTINED, /* the device failed too often */
    CLB_RUNTIME_STARTING,    /* another thread starts it, and the caller may not wait */
    CLB_RUNTIME_CLOSED       /* the process ends */
} clb_runtime_state;

/* runtime.c's alone, as are the slow paths of the functions that follow. */
extern struct clb_runtime clb_runtime_started;
extern _Atomic int clb_runtime_now; /* of clb_runtime_state */
/* The generation (clb_generation) of the process that has begun to start the device. */
extern _Atomic unsigned clb_runtime_process;
struct clb_runtime *clb_runtime_start(clb_runtime_state *state);
int clb_runtime_inherit(void);

/* The state now. What a forked child has inherited of a device is abandoned. */
static inline int clb_runtime_settle(void)
{
    return CLB_LIKELY(atomic_load_explicit(&clb_runtime_process, memory_order_relaxed) ==
                      clb_generation())
               ? atomic_load(&clb_runtime_now)
               : clb_runtime_inherit();
}

/* The runtime, started by the first caller. NULL when there is none: *state says why. The caller
 * waits for the start until its time limit (clb_driver_set_time_limit). */
static inline struct clb_runtime *clb_runtime_get(clb_runtime_state *state)
{
    *state = CLB_RUNTIME_READY;
    return CLB_LIKELY(clb_runtime_settle() == CLB_RUNTIME_READY) ? &clb_runtime_started
                                                                 : clb_runtime_start(state);
}

/* The runtime if it has been started, otherwise NULL: for reports. */
static inline const struct clb_runtime *clb_runtime_peek(void)
{
    const int now = clb_runtime_settle();
    return now == CLB_RUNTIME_READY || now == CLB_RUNTIME_QUARANTINED || now == CLB_RUNTIME_CLOSED
               ? &clb_runtime_started
               : NULL;
}

/* Report a call that has failed on the device, or one that has not. Repeated failures quarantine
 * the device. */
void clb_runtime_report_failure(struct clb_runtime *runtime);
static inline void clb_runtime_report_success(struct clb_runtime *runtime)
{
    if (CLB_UNLIKELY(atomic_load_explicit(&runtime->failures, memory_order_relaxed) != 0))
        atomic_store(&runtime->failures, 0);
}

/* Never use the device again in this process: its result was wrong. */
void clb_runtime_quarantine(struct clb_runtime *runtime);

/* Called before a call is computed: how long a device with its own memory may complete no command
 * before it is abandoned, INFINITY for ever. The longest of all calls' so far holds. */
static inline void clb_runtime_expect(struct clb_runtime *runtime, double seconds)
{
    const unsigned millis = seconds < UINT_MAX / 1000 ? (unsigned)(1000 * seconds) : UINT_MAX;
    unsigned now = atomic_load_explicit(&runtime->hang_millis, memory_order_relaxed);
    while (now < millis && !atomic_compare_exchange_weak(&runtime->hang_millis, &now, millis))
        continue;
}

/* Called when no command has ended for so long: never use the device again, and don't wait for it.
 * What its commands may still use is never freed. */
void clb_runtime_abandon(struct clb_runtime *runtime, double seconds);

/* ---- driver.c: the thread on which drivers start and compile --------------------------------- */

/* Run a task on a thread with a large stack and wait until it has ended; on such a thread, call it
 * directly. The caller must hold no lock that a task may take. Returns the task's status, or
 * CLB_ERR_NOMEM when the thread can't be made. */
clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument) CLB_MUST_CHECK;

/* Until when, by clb_now(), this thread may wait in clb_driver_request; INFINITY, the default: for
 * ever. */
extern CLB_THREAD double clb_driver_time_limit;
/* Returns the time before. */
static inline double clb_driver_set_time_limit(double until)
{
    const double before = clb_driver_time_limit;
    clb_driver_time_limit = until;
    return before;
}

/* The same for a thread that may not wait for ever: CLB_ERR_STARTING when another task runs, or
 * when this one has not ended by then or waits for a helper process. It goes on all the same, so it
 * gets a copy of the `size` bytes at `argument`, which must not refer to the caller's stack. */
clb_status clb_driver_request(clb_status (*run)(void *argument), const void *argument,
                              size_t size) CLB_MUST_CHECK;

/* ---- program.c: compiled programs, in memory and on disk ------------------------------------- */

struct clb_source {
    const char *name; /* "gemm_cpu.cl" */
    const char *text;
    size_t length;
};

/* All there are, NULL after the last: of the layer above that has them. */
extern const struct clb_source *const clb_sources[];

/* The program for a source and its options ("-DCLB_MR=32 ..."), built or taken from a cache. A
 * program that failed to build once fails at once the next time. */
clb_status clb_program_get(struct clb_runtime *runtime, const struct clb_source *source,
                           const char *options, struct clb_program **program) CLB_MUST_CHECK;

/* True when the program has passed the check of this name in an earlier process, compiled by the
 * same driver; set_checked records that. Never true for a program that this process compiled. */
bool clb_program_is_checked(const struct clb_program *program, const char *check);
void clb_program_set_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                             const char *check);

/* ---- steps -----------------------------------------------------------------------------------
 *
 * A step is what one check needs, in one precision: its programs, built, launched and checked. */

typedef enum clb_helper_step {
    CLB_STEP_GEMM,      /* clb_gemm_variant_get */
    CLB_STEP_DIRECT,    /* clb_direct_prepare */
    CLB_STEP_SKIP,      /* clb_skip_prepare */
    CLB_STEP_STRUCTURE, /* clb_structure_check */
    CLB_STEP_SYSTEMS,   /* clb_workspace_check */
    CLB_STEP_PANELS,    /* clb_getf2_check */
    CLB_STEP_BLOCKS,    /* clb_potf2_check */
    CLB_STEPS
} clb_helper_step;

/* Called by a check before it gets its programs: CLB_OK when the helper has done the step, or when
 * there is no helper and this process builds them. The helper does a step of which there is no
 * record, and again one that failed an hour ago, or whose rates are a week old. */
clb_status clb_step_need(const struct clb_runtime *runtime, clb_helper_step step,
                         clb_precision precision) CLB_MUST_CHECK;

#endif
