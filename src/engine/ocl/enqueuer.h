/* enqueuer: the thread that enqueues, for queue.c alone. */
#ifndef CLB_ENQUEUER_H
#define CLB_ENQUEUER_H

#include "runtime.h"

/* Called when the device starts: make the thread if the device is one where it does all
 * (CLB_QUIRK_ONE_ENQUEUER). Tests may have it on every device with its own memory. */
clb_status clb_enqueuer_start(const struct clb_device *device) CLB_MUST_CHECK;
extern bool clb_enqueuer_always;
/* True when there is the thread, so that all commands are to be left to it. */
extern atomic_bool clb_enqueuer_made;
static inline bool clb_enqueuer_exists(void)
{
    return atomic_load_explicit(&clb_enqueuer_made, memory_order_relaxed);
}
extern CLB_THREAD bool clb_enqueuer_is_self; /* this is the thread */

/* What the thread is to do: first member of a larger struct, which `run` frees. */
struct clb_request {
    void (*run)(struct clb_request *request);
    /* Whether all that it uses has been made; NULL where it uses nothing of other queues. */
    bool (*is_ready)(const struct clb_request *request);
    bool overtakes; /* it belongs to a queue for transfers */
    struct clb_request *next;
};

/* Leave a request; it is carried out after all that were left before, or, if it overtakes, after
 * all of those that do so too. */
void clb_enqueuer_leave(struct clb_request *request);

/* What becomes of a command, or of another request. Threads hold it as a cl_event. */
struct clb_promise {
    struct clb_request request, watch; /* the thread's */
    struct clb_runtime *runtime;
    _Atomic unsigned references;
    atomic_bool is_watched, ended;
    clb_status status; /* these two are known when it has ended */
    void *mapped;      /* the memory that a command has mapped */
    cl_event event;    /* the thread's: NULL when the command is not enqueued, or has ended */
    struct clb_promise *next; /* the thread's */
    struct clb_queue *queue;  /* of the command */
    /* What the thread does when the command has ended; NULL: nothing. */
    clb_status (*then)(struct clb_queue *queue);
};

/* NULL when there is no memory. */
struct clb_promise *clb_promise_new(struct clb_runtime *runtime);
void clb_promise_retain(struct clb_promise *promise);
void clb_promise_release(struct clb_promise *promise);
/* The thread says that the request has ended. */
void clb_promise_end(struct clb_promise *promise, clb_status status);
/* Has the thread ask for it from now on. */
bool clb_promise_has_ended(struct clb_promise *promise);
/* The thread flushes a queue, unless nothing has been enqueued since it did. */
void clb_queue_flush_now(struct clb_queue *queue);
bool clb_queue_is_for_transfers(const struct clb_queue *queue);

/* Wait until the thread has nothing to do, but no longer than this: the process ends. */
void clb_enqueuer_await_idle(double seconds);

#endif
