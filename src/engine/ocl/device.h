/* SPDX-License-Identifier: BSD-3-Clause
 * device: the device in use: what it is like, what is kept for it once started, its memory. */
#ifndef CLB_DEVICE_H
#define CLB_DEVICE_H

#include "host/host.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

/* ---- what a device is like ---- */

/* Who made the device, as far as the shim treats makers differently: GPUs only, because drivers of
 * others name the maker of a CPU. */
typedef enum clb_vendor {
    CLB_VENDOR_OTHER,
    CLB_VENDOR_NVIDIA,
    CLB_VENDOR_AMD,
    CLB_VENDOR_INTEL
} clb_vendor;

/* Peculiarities of drivers, found when a device is described, in the file named here. */
typedef enum clb_quirk {
    /* nvidia.c: once a command has failed, the context is unusable: all later commands and waits
     * fail. So queues keep no events, which cost a lock and some microseconds a command. */
    CLB_QUIRK_FAILS_FOR_GOOD = 1 << 0,
    /* nvidia.c: the driver reports fewer work-items and less local memory for kernels than their
     * launches accept, so it is not asked; a launch that really needs too much fails. */
    CLB_QUIRK_UNDERSTATES_LIMITS = 1 << 1,
    /* nvidia.c: all work-groups of a launch that the device can hold make progress, so they may
     * wait for each other; elsewhere that may hang. */
    CLB_QUIRK_GROUPS_PROGRESS = 1 << 2,
    /* pocl.c: a launch of a kernel that is wider than those before it ends the process when another
     * thread's launch of that kernel ends meanwhile. So the first launch must be the widest. */
    CLB_QUIRK_WIDEST_LAUNCH_FIRST = 1 << 3,
    /* pocl.c: the user has asked the driver to pin its worker threads. The shim doesn't. */
    CLB_QUIRK_PINS_WORKERS = 1 << 4,
    /* pocl.c: the driver keeps compiled programs itself, and compiles every kernel once more when
     * it is asked for binaries. So programs are built from source in each process. */
    CLB_QUIRK_KEEPS_PROGRAMS = 1 << 5,
    /* nvidia.c: a thread of the driver spins for a while after calls when more than one thread of
     * the process has enqueued, and threads that ask it for events delay each other. So one thread
     * does both for all (enqueuer.c). */
    CLB_QUIRK_ONE_ENQUEUER = 1 << 6
} clb_quirk;

struct clb_device {
    cl_platform_id platform;
    cl_device_id id;
    clb_vendor vendor;
    unsigned quirks; /* of clb_quirk */
    char name[128];
    char vendor_name[128];
    char driver[128];
    char platform_name[128];
    /* Platform, vendor, name and driver, with versions; devices with the same share records. */
    char identity[648];
    cl_device_type type;
    bool fp64;
    bool unified; /* shares the host's memory: inputs are used in place */
    cl_uint units;
    cl_uint vector_bytes; /* native vector width in bytes */
    uint64_t memory;      /* bytes; host memory if unified */
    uint64_t max_alloc;   /* largest buffer in bytes */
    uint64_t local_memory;
    size_t max_group; /* most work-items of a work-group, all in the first dimension */
};

static inline bool clb_device_has(const struct clb_device *device, clb_quirk quirk)
{
    return (device->quirks & (unsigned)quirk) != 0;
}

/* The started device, or the one that an earlier process chose among the same drivers, without its
 * ids: calls not worth it need not start it. NULL: not known. The first call reads a file. */
const struct clb_device *clb_device_expected(void);

/* True, for a week, of a device that was found too slow in a precision and need not be started for
 * it; the decision is noted when it is first asked. */
bool clb_rate_was_slow(const struct clb_device *device, clb_precision precision);

/* ---- runtime.c: what is kept for the device in use ---- */

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
    /* Waits for a device with its own memory, see hang.c. */
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

/* NULL unless it has been started: for reports. */
static inline const struct clb_runtime *clb_runtime_peek(void)
{
    const int now = clb_runtime_settle();
    return now == CLB_RUNTIME_READY || now == CLB_RUNTIME_QUARANTINED || now == CLB_RUNTIME_CLOSED
               ? &clb_runtime_started
               : NULL;
}

/* Repeated failures of calls on the device quarantine it. */
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

/* ---- driver.c: the thread on which drivers start and compile ---- */

/* Until when, by clb_now(), this thread may wait in clb_driver_request; by default INFINITY. */
extern CLB_THREAD double clb_driver_time_limit;
/* Returns the time before. */
static inline double clb_driver_set_time_limit(double until)
{
    const double before = clb_driver_time_limit;
    clb_driver_time_limit = until;
    return before;
}

/* ---- program.c: compiled programs, in memory and on disk ---- */

struct clb_source {
    const char *name; /* "gemm_cpu.cl" */
    const char *text;
    size_t length;
};

/* All there are, NULL after the last: of the layer above that has them. */
extern const struct clb_source *const clb_sources[];

/* The program for a source and its options ("-DCLB_MR=32 ..."), built or from a cache. One that
 * failed to build fails at once the next time. */
clb_status clb_program_get(struct clb_runtime *runtime, const struct clb_source *source,
                           const char *options, struct clb_program **program) CLB_MUST_CHECK;

/* ---- memory.c: pooled buffers under one allowance ---- */

typedef enum clb_memory_kind {
    CLB_MEMORY_DEVICE, /* kernels only */
    CLB_MEMORY_HOST    /* the CPU reads and writes it, kernels or transfers too */
} clb_memory_kind;

struct clb_buffer {
    cl_mem mem;
    size_t size; /* usable bytes */
    void *host;  /* the CPU's address; NULL for DEVICE kind on a device with its own memory */
    clb_memory_kind kind;
    bool large;              /* private to the pool */
    struct clb_buffer *link; /* private to the pool */
};

/* The bytes that a buffer of `size` bytes takes of the allowance. Sizes are rounded up, by an
 * eighth at most, so that calls of similar sizes share buffers. */
size_t clb_buffer_rounded(size_t size);

/* A buffer of at least `size` bytes, or CLB_ERR_NOMEM at once when the allowance is used up. */
clb_status clb_buffer_get(struct clb_runtime *runtime, clb_memory_kind kind, size_t size,
                          struct clb_buffer **buffer) CLB_MUST_CHECK;

/* The same, but only a buffer that the pool has kept; otherwise NULL. */
struct clb_buffer *clb_buffer_find(struct clb_runtime *runtime, clb_memory_kind kind, size_t size);

/* Called before a call allocates `bytes`, after it has taken the kept buffers that it can use.
 * Where memory is shared, kept buffers are freed until they, the buffers in use and `bytes` are
 * within the bound for kept buffers. */
void clb_pool_make_room(struct clb_runtime *runtime, uint64_t bytes);

/* Return a buffer to the pool when `idle`, NULL is allowed. Otherwise a command may still use it:
 * its memory and its share of the allowance stay taken. */
void clb_buffer_end(struct clb_runtime *runtime, struct clb_buffer *buffer, bool idle);

/* Zeroed host memory; NULL when the system has less available. */
void *clb_host_map(size_t size);
void clb_host_unmap(void *memory, size_t size);

/* True when the process may map so much memory: drivers end it when they can't (PoCL 3.1, in
 * clEnqueueNDRangeKernel). Costs two system calls where there is no limit. */
bool clb_host_has_room(size_t bytes);
enum { CLB_ROOM_FOR_CALL = 16 << 20 };

/* Bytes that the system has available (limits.c). */
uint64_t clb_proc_available(void);

/* Bytes of the allowance that are not in use; kept buffers count as free. */
uint64_t clb_memory_available(struct clb_runtime *runtime);

/* A read-only buffer of the caller's memory in place, which must stay valid while a command uses
 * it; released by clb_mem_release. */
clb_status clb_buffer_wrap(struct clb_runtime *runtime, const void *host, size_t size,
                           cl_mem *mem) CLB_MUST_CHECK;
void clb_mem_release(cl_mem mem);

#endif
