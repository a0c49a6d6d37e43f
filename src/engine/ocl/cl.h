/* SPDX-License-Identifier: BSD-3-Clause
 * cl: for this folder only: OpenCL functions and their errors; commands, queues and programs. */
#ifndef CLB_CL_H
#define CLB_CL_H

#include "queue.h"

/* The entry points that the shim uses. */
#define CLB_CL_FUNCTIONS(X)       \
    X(GetPlatformIDs)             \
    X(GetPlatformInfo)            \
    X(GetDeviceIDs)               \
    X(GetDeviceInfo)              \
    X(CreateContext)              \
    X(ReleaseContext)             \
    X(CreateCommandQueue)         \
    X(ReleaseCommandQueue)        \
    X(CreateBuffer)               \
    X(ReleaseMemObject)           \
    X(EnqueueReadBuffer)          \
    X(EnqueueWriteBuffer)         \
    X(EnqueueReadBufferRect)      \
    X(EnqueueWriteBufferRect)     \
    X(EnqueueBarrierWithWaitList) \
    X(EnqueueMapBuffer)           \
    X(EnqueueUnmapMemObject)      \
    X(EnqueueNDRangeKernel)       \
    X(CreateProgramWithSource)    \
    X(CreateProgramWithBinary)    \
    X(BuildProgram)               \
    X(GetProgramInfo)             \
    X(GetProgramBuildInfo)        \
    X(ReleaseProgram)             \
    X(CreateKernel)               \
    X(SetKernelArg)               \
    X(ReleaseKernel)              \
    X(GetKernelWorkGroupInfo)     \
    X(Flush)                      \
    X(Finish)                     \
    X(WaitForEvents)              \
    X(GetEventInfo)               \
    X(GetEventProfilingInfo)      \
    X(RetainEvent)                \
    X(ReleaseEvent)

struct clb_cl {
#define CLB_CL_MEMBER(name) __typeof__(cl##name) *name;
    CLB_CL_FUNCTIONS(CLB_CL_MEMBER)
#undef CLB_CL_MEMBER
};

extern struct clb_cl clb_cl;

/* The tests' fault injector: called once after loading, may replace entries of the table. */
extern void (*clb_cl_loaded_hook)(struct clb_cl *table);

const char *clb_cl_error_name(cl_int status);

/* Log an error of a function ("what: CL_...") and map it; memory errors are CLB_ERR_NOMEM. */
CLB_COLD clb_status clb_cl_failed(cl_int status, const char *what) CLB_MUST_CHECK;

CLB_MUST_CHECK static inline clb_status clb_cl_check(cl_int status, const char *what)
{
    return CLB_LIKELY(status == CL_SUCCESS) ? CLB_OK : clb_cl_failed(status, what);
}

/* ---- commands and queues ---- */

enum clb_verb {
    CLB_LAUNCH,
    CLB_WRITE,
    CLB_WRITE_COPY, /* of few bytes, blocking; the enqueuing thread has a copy of them */
    CLB_READ,
    CLB_BARRIER,
    CLB_MAP,
    CLB_UNMAP,
    CLB_ASK /* no command: call `ask` on the thread that enters the driver */
};

/* What a thread wants to have enqueued. The members of a launch, and those of all others. */
struct clb_command {
    enum clb_verb verb;
    struct clb_queue *queue;

    cl_kernel kernel;
    const char *name; /* of the kernel, or of what the trace has: a constant */
    const struct clb_argument *arguments;
    size_t count;
    const struct clb_geometry *geometry;

    cl_mem mem;
    const struct clb_box *box;
    size_t offset, size; /* that are mapped */
    cl_map_flags flags;
    void *host;
    clb_status (*ask)(struct clb_queue *queue);

    clb_event after; /* that it waits for, or NULL */
};

/* What the thread is to do: first member of a larger struct, which `run` frees. */
struct clb_request {
    void (*run)(struct clb_request *request);
    clb_event after; /* that is to be enqueued, or to have ended, before it; or NULL */
    bool overtakes;  /* it belongs to a queue for transfers */
    struct clb_request *next;
};

/* What becomes of a command. Who holds a reference may ask for it. */
struct clb_event {
    _Atomic unsigned references;
    struct clb_queue *queue;
    /* Of the thread that enqueues. NULL when the command is not enqueued; and where that is a
     * thread of its own, when it has ended. */
    cl_event handle;
    cl_uint launch;   /* the number of the queue's last launch so far, be it this one */
    bool finishes;    /* the command ends a queue: clb_event_end finishes it */
    void *mapped;     /* the memory that the command has mapped; known when it is enqueued */
    const char *name; /* in the trace; NULL: not in it */
    double enqueued;  /* clb_now(), only with a trace */
    /* Only with an enqueuing thread, which writes these two, `status` before `ended`. */
    clb_status status;
    atomic_bool ended;
    struct clb_event *next; /* in the queue's list, under its lock */
    /* The enqueuing thread's, but for `is_watched`: whoever sets it leaves the request. */
    struct clb_request request;
    atomic_bool is_watched;
    unsigned long turn; /* when its command was enqueued: later ones have larger numbers */
    struct clb_event *next_watched;
};
#define CLB_EVENT_OF(its_request) \
    ((clb_event)(void *)((char *)(its_request)-offsetof(struct clb_event, request)))

/* Queues are never freed. */
struct clb_queue {
    struct clb_runtime *runtime;
    cl_command_queue handle;
    bool keeps; /* keep the events of commands */
    bool is_for_transfers;
    pthread_mutex_t lock;
    /* Commands that are not yet checked, a reference to each, and their number; under the lock. */
    clb_event first, last;
    pthread_mutex_t spare_lock;
    clb_event spare; /* for later events, so that warm calls need no memory; under spare_lock */
    size_t count;
    atomic_bool failed;    /* a command or clFinish has failed; never reset */
    _Atomic int error;     /* the clb_status of the first command that could not be enqueued */
    atomic_bool unended;   /* it was to be finished, and clFinish has not succeeded */
    atomic_bool busy;      /* there were commands since it was to be finished */
    atomic_bool unflushed; /* there were commands since it was flushed */
    /* The launching thread's, one at a time. */
    unsigned unmarked;     /* launches since `mark` */
    clb_event mark;        /* of a launch, or NULL */
    _Atomic cl_uint given; /* launches so far */
    /* The number of the last launch that has run, at `place` in the device's memory and in the
     * CPU's; both are the same where memory is shared. NULL before the first launch. */
    struct clb_buffer *chain, *report;
    cl_uint place;
    cl_uint launches; /* that are enqueued, by the thread that enqueues */
    long number;      /* in the trace */
};

/* A source built with options; never freed. Driver tasks add them to the runtime's list. */
struct clb_program {
    const struct clb_source *source;
    cl_program handle;
    clb_status status;
    bool is_new; /* compiled by this process */
    /* All that determines the binary, for keys of records; the options are its end. */
    char *identity;
    const char *options;
    struct clb_program *next;
};

/* A kernel object of a queue set, which belongs to it. */
struct clb_queue_set_kernel {
    const struct clb_program *program;
    const char *name;
    cl_kernel kernel;
    struct clb_queue_set_kernel *next;
};

/* ---- enqueuer.c ---- */

/* Called when the device starts: make the thread if it has CLB_QUIRK_ONE_ENQUEUER. Tests may have
 * it on every device with its own memory. */
clb_status clb_enqueuer_start(const struct clb_device *device) CLB_MUST_CHECK;
extern bool clb_enqueuer_always;
/* There is the thread: all commands are to be left to it. */
extern atomic_bool clb_enqueuer_made;
static inline bool clb_enqueuer_exists(void)
{
    return atomic_load_explicit(&clb_enqueuer_made, memory_order_relaxed);
}
extern CLB_THREAD bool clb_enqueuer_is_self; /* this is the thread */

/* Leave a copy of a command, with references to its events and, unless that is NULL, to `event`. */
clb_status clb_enqueuer_post(const struct clb_command *command, clb_event event) CLB_MUST_CHECK;
/* Have the thread ask for a command from now on, until it calls clb_event_end. */
void clb_enqueuer_watch(clb_event event);
/* Leave a request, carried out after the earlier ones; if it overtakes, after those that do. */
void clb_enqueuer_leave(struct clb_request *request);

/* Wait until the thread has nothing to do, but no longer than this: the process ends. */
void clb_enqueuer_await_idle(double seconds);

/* ---- queue_open.c ---- */

/* The queue set's own kernel object, because setting arguments is not thread-safe on a shared one:
 * found (queue_set.c), or made the first time. */
clb_status clb_queue_set_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, cl_kernel *kernel) CLB_MUST_CHECK;
clb_status clb_queue_set_make_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                     const char *name, cl_kernel *kernel) CLB_MUST_CHECK;
/* Called before a queue's first launch, which is not made where there is no memory for numbers. */
clb_status clb_queue_count_launches(struct clb_queue *queue) CLB_MUST_CHECK;
/* Add the times of a command that has ended to the trace. */
CLB_COLD void clb_event_trace(const struct clb_event *event);

/* ---- memory.c and allocate.c ---- */

/* Reserve so many bytes of the allowance, which frees all kept buffers when it is exceeded; and
 * give them back. Make a buffer of just this size, a multiple of the page's. */
clb_status clb_pool_reserve(struct clb_runtime *runtime, size_t size) CLB_MUST_CHECK;
void clb_pool_unreserve(struct clb_pool *pool, uint64_t size);
clb_status clb_buffer_make(struct clb_runtime *runtime, clb_memory_kind kind, size_t size,
                           struct clb_buffer **buffer) CLB_MUST_CHECK;

/* ---- hang.c: waiting for a device with its own memory ---- */

static inline bool clb_is_abandoned(const struct clb_runtime *runtime)
{
    return CLB_UNLIKELY(atomic_load_explicit(&runtime->abandoned, memory_order_relaxed));
}
/* Wait until a command has ended. False when the device has been abandoned. */
bool clb_event_await_end(clb_event event) CLB_MUST_CHECK;

/* ---- queue.c, for hang.c and the thread ---- */

/* With the queue's lock: check the commands that have ended. */
clb_status clb_queue_look(struct clb_queue *queue) CLB_MUST_CHECK;
/* Carry out a command that was left. What fails, fails its queue and ends `event`. */
void clb_queue_carry_out(const struct clb_command *command, clb_event event);
void clb_event_retain(clb_event event);
/* The command of an event has ended, or could not be enqueued. */
void clb_event_end(clb_event event, clb_status status);
/* False also when the driver does not say. */
bool clb_cl_event_is_pending(cl_event event);
void clb_event_release_handle(clb_event event);
/* Flush a queue, unless nothing has been enqueued since that was done. */
clb_status clb_queue_flush_now(struct clb_queue *queue);

#endif
