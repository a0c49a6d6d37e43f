/* In-order queues that detect failed commands; queue sets, the queues and kernel objects of one
 * call.
 *
 * clFinish, or waiting for one event, does not tell whether earlier commands have failed: an
 * in-order queue may continue after a failed command (OpenCL 1.2, 5.12), and only that command's
 * own event reports the failure. So each command's event is kept in a list until its status has
 * been checked. On a device where all commands and waits fail after a failure
 * (CLB_QUIRK_FAILS_FOR_GOOD) no events are kept: any wait reports it.
 *
 * A command is enqueued and its event is added to the list under the queue's lock, so the list has
 * the order of the queue although several threads may enqueue. Commands end in that order: a check
 * stops at the first one that has not ended. Where no events are kept, commands are enqueued
 * without the lock: enqueueing blocks while the driver's own queue is full, and threads that only
 * check would wait for the lock.
 *
 * A kernel that the device has not run, although its event says that it is complete, is found by
 * counting: launches on a queue are numbered from 1, and each kernel stores its number unless the
 * one before it has not (CLB_NOTE_LAUNCH in kernels/common.h). The number stored when a launch has
 * ended is smaller than its own exactly if that launch or one before it was dropped. Where events
 * are kept, a launch's number is compared when its event is removed from the list; elsewhere when
 * the queue is finished, and before that by who asks with clb_queue_has_run.
 *
 * Where one thread enqueues for all (enqueuer.c), the functions leave it copies of their commands.
 * What can't be enqueued then fails the queue: the next function that uses it says so. */
#include "ocl.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A list of this length is checked when a command is added, and again when it has doubled. */
#define MANY ((size_t)64)

/* A command; `launch` is its number if it is a kernel that is counted, otherwise 0. */
struct queued_command {
    cl_event event;
    cl_uint launch;
};

struct clb_queue {
    struct clb_runtime *runtime;
    cl_command_queue handle;
    pthread_mutex_t lock;
    struct queued_command
        *events; /* [first, first + count) are not yet checked; a reference to each */
    size_t first, count, capacity, look_at;
    bool keeps;         /* keep the events of commands */
    atomic_bool failed; /* a command or clFinish has failed; never reset */
    _Atomic int error;  /* the clb_status of the first command that could not be enqueued */
    atomic_bool stuck;  /* clFinish has failed: commands may be outstanding for ever */
    atomic_bool busy;   /* there were commands since it was finished */
    bool unflushed;     /* the enqueuing thread's */
    bool is_for_transfers;
    bool asked;                           /* has asked for a counter */
    struct clb_launch_counters *counters; /* NULL: its launches are not counted */
    cl_uint counter;                      /* the place of its counter */
    cl_uint launches;                     /* counted launches so far, */
    _Atomic cl_uint given;                /* those that the enqueuing thread has not come to too */
};

clb_status clb_cl_check(cl_int status, const char *what)
{
    return CLB_LIKELY(status == CL_SUCCESS) ? CLB_OK : clb_cl_failed(status, what);
}

clb_status clb_cl_check_launch(cl_int status, const char *name)
{
    return CLB_LIKELY(status == CL_SUCCESS) ? CLB_OK : clb_cl_launch_failed(status, name);
}

/* With an enqueuing thread, what callers hold is not the driver's event. */
static struct clb_promise *promise_of(cl_event event)
{
    return clb_enqueuer_exists() ? (struct clb_promise *)(void *)event : NULL;
}

bool clb_event_is_pending(cl_event event)
{
    struct clb_promise *promise = promise_of(event);
    return promise != NULL ? !clb_promise_has_ended(promise) : clb_cl_event_is_pending(event);
}

bool clb_cl_event_is_pending(cl_event event)
{
    cl_int state = CL_COMPLETE;
    return clb_cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                               NULL) == CL_SUCCESS &&
           state > CL_COMPLETE;
}

/* ---- waiting with an end ----------------------------------------------------------------------
 */

/* A device with its own memory may stop working while the call still has all it needs to be
 * finished by the CPU. A wait for it asks the driver again and again instead of waiting in the
 * driver, from which nothing could call a thread back: at intervals of a 256th of the time that has
 * passed, awake at first, as drivers of GPUs wait. The time in which no command ends is the sum of
 * short intervals, so that it does not grow while the process is stopped. When it exceeds
 * runtime->patience the device is abandoned: from then on no function of this file enters the
 * driver to enqueue or to wait, and all report an error.
 *
 * Where memory is shared a wait has no end: kernels may be reading the caller's matrices. */
#define AWAKE_SECONDS    10e-3
#define SHORTEST_SECONDS 50e-6
#define LONGEST_SECONDS  1e-3
#define COUNTED_SECONDS  10e-3 /* of an interval, at most */

static bool is_bounded(const struct clb_runtime *runtime)
{
    return !runtime->device.unified && clb_runtime_patience(runtime) < INFINITY;
}

static bool is_abandoned(const struct clb_runtime *runtime)
{
    return CLB_UNLIKELY(atomic_load_explicit(&runtime->abandoned, memory_order_relaxed));
}

static void pause_between(double elapsed, double until)
{
    if (elapsed < AWAKE_SECONDS) {
        do
            sched_yield();
        while (clb_now() < until);
        return;
    }
    const double seconds = fmin(fmax(elapsed / 256, SHORTEST_SECONDS), LONGEST_SECONDS);
    nanosleep(&(struct timespec){0, (long)(1e9 * seconds)}, NULL);
}

/* Wait until has_ended(subject). False when the device has been abandoned. */
static bool wait_until(struct clb_runtime *runtime, bool (*has_ended)(void *), void *subject)
{
    double begin = 0, last = 0, idle = 0;
    unsigned seen = atomic_load(&runtime->ended);
    while (!is_abandoned(runtime)) {
        if (has_ended(subject)) {
            atomic_fetch_add(&runtime->ended, 1);
            return true;
        }
        const double now = clb_now();
        const unsigned ended = atomic_load(&runtime->ended);
        begin = begin > 0 ? begin : now;
        idle = ended != seen || last <= 0 ? 0 : idle + fmin(now - last, COUNTED_SECONDS);
        seen = ended;
        last = now;
        if (idle > clb_runtime_patience(runtime))
            clb_runtime_abandon(runtime, idle);
        else
            pause_between(now - begin, now + (now - begin) / 256);
    }
    return false;
}

static bool event_has_ended(void *event)
{
    return !clb_event_is_pending(*(cl_event *)event);
}

static bool promise_has_ended(void *promise)
{
    return clb_promise_has_ended(promise);
}

static clb_status promise_wait(struct clb_promise *promise)
{
    return wait_until(promise->runtime, promise_has_ended, promise) ? promise->status
                                                                    : CLB_ERR_OPENCL;
}

clb_status clb_event_wait(struct clb_runtime *runtime, cl_event event)
{
    cl_command_queue queue = NULL;
    struct clb_promise *promise = promise_of(event);
    if (promise != NULL)
        return promise_wait(promise);
    if (is_bounded(runtime)) {
        /* As clWaitForEvents does. */
        if (clb_cl.GetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof(cl_command_queue), &queue,
                                NULL) == CL_SUCCESS &&
            queue != NULL && !is_abandoned(runtime))
            (void)clb_cl.Flush(queue);
        if (!wait_until(runtime, event_has_ended, &event))
            return CLB_ERR_OPENCL;
    }
    return clb_cl_check(clb_cl.WaitForEvents(1, &event), "clWaitForEvents");
}

void clb_event_release(cl_event event)
{
    struct clb_promise *promise = promise_of(event);
    if (promise != NULL)
        clb_promise_release(promise);
    else
        clb_cl.ReleaseEvent(event);
}

void clb_event_drop(cl_event *event)
{
    if (*event != NULL)
        clb_event_release(*event);
    *event = NULL;
}

clb_status clb_queue_open(struct clb_runtime *runtime, struct clb_queue **out)
{
    struct clb_queue *queue = *out = calloc(1, sizeof *queue);
    if (queue == NULL)
        return CLB_ERR_NOMEM;
    cl_int error;
    queue->runtime = runtime;
    queue->handle = clb_cl.CreateCommandQueue(runtime->context, runtime->device.id, 0, &error);
    queue->look_at = MANY;
    queue->keeps = !clb_device_has(&runtime->device, CLB_QUIRK_FAILS_FOR_GOOD);
    pthread_mutex_init(&queue->lock, NULL);
    clb_status status = clb_cl_check(error, "clCreateCommandQueue");
    if (status != CLB_OK) {
        pthread_mutex_destroy(&queue->lock);
        free(queue);
        *out = NULL;
    }
    return status;
}

bool clb_queue_is_for_transfers(const struct clb_queue *queue)
{
    return queue->is_for_transfers;
}

cl_command_queue clb_queue_handle(const struct clb_queue *queue)
{
    return queue->handle;
}

/* ---- counting launches ----------------------------------------------------------------------- */

/* A counter is not used again, and a call that fails on the device costs some queues. Queues beyond
 * this number are not counted. */
enum { COUNTERS = 16384 };
#define COUNTER_BYTES (COUNTERS * sizeof(cl_uint))

/* The counters of all queues of a device: `chain` in its memory, `report` in memory that the CPU
 * reads; both are the same where memory is shared. */
struct clb_launch_counters {
    struct clb_buffer *chain, *report;
    _Atomic cl_uint queues;
    /* The CPU has seen what kernels store, when a queue was finished. Nothing is concluded before,
     * or where it never does. */
    atomic_bool seen;
};

static void counters_free(struct clb_runtime *runtime, struct clb_launch_counters *counters)
{
    if (counters->chain != counters->report)
        clb_buffer_put(runtime, counters->chain);
    clb_buffer_put(runtime, counters->report);
    free(counters);
}

/* NULL when there is no memory for them. */
static struct clb_launch_counters *counters_make(struct clb_runtime *runtime,
                                                 struct clb_queue *queue)
{
    struct clb_launch_counters *counters = calloc(1, sizeof *counters);
    if (counters == NULL)
        return NULL;
    clb_status status = clb_buffer_get(runtime, CLB_MEMORY_HOST, COUNTER_BYTES, &counters->report);
    if (status == CLB_OK) {
        memset(counters->report->host, 0, COUNTER_BYTES);
        counters->chain = counters->report;
        if (!runtime->device.unified)
            status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, COUNTER_BYTES, &counters->chain);
        if (status == CLB_OK && !runtime->device.unified)
            status = clb_queue_write_now(queue, counters->chain->mem, 0, COUNTER_BYTES,
                                         counters->report->host);
    }
    if (status == CLB_OK)
        return counters;
    counters_free(runtime, counters);
    return NULL;
}

/* Give a queue that launches its first kernel a counter. Without one, its launches are 0. */
static void counter_get(struct clb_queue *queue)
{
    struct clb_runtime *runtime = queue->runtime;
    struct clb_launch_counters *none = NULL, *counters = atomic_load(&runtime->sets.counters);
    queue->asked = true;
    if (counters == NULL) {
        counters = counters_make(runtime, queue);
        if (counters == NULL)
            return;
        if (!atomic_compare_exchange_strong(&runtime->sets.counters, &none, counters)) {
            counters_free(runtime, counters);
            counters = none;
        }
    }
    cl_uint number = atomic_fetch_add(&counters->queues, 1);
    if (number >= COUNTERS)
        return;
    queue->counter = number;
    queue->counters = counters;
}

/* True when the device has stored the number of this launch, or a later one, or can't be asked. To
 * be called when the launch has ended. */
static bool has_run(const struct clb_queue *queue, cl_uint launch)
{
    if (launch == 0 || !atomic_load(&queue->counters->seen))
        return true;
    const volatile cl_uint *report = queue->counters->report->host;
    if ((cl_int)(report[queue->counter] - launch) >= 0)
        return true;
    clb_log(CLB_LOG_WARN, "launch %u of a queue is complete, but its kernel has not run",
            (unsigned)launch);
    return false;
}

/* All launches of a queue have ended: true unless one has not run. */
static bool have_all_run(const struct clb_queue *queue)
{
    if (queue->launches == 0)
        return true;
    const volatile cl_uint *report = queue->counters->report->host;
    if (report[queue->counter] == queue->launches)
        atomic_store(&queue->counters->seen, true);
    return has_run(queue, queue->launches);
}

/* ---- the list of events ---------------------------------------------------------------------- */

/* Check the commands that have ended and remove them from the list. A command whose status can't be
 * read stays in the list. With the lock held. */
static clb_status queue_look(struct clb_queue *queue)
{
    clb_status status = CLB_OK;
    while (queue->count > 0 && status == CLB_OK) {
        const struct queued_command *command = &queue->events[queue->first];
        cl_event event = command->event;
        cl_int state = CL_QUEUED;
        status = clb_cl_check(clb_cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS,
                                                  sizeof state, &state, NULL),
                              "clGetEventInfo");
        if (status != CLB_OK || state > CL_COMPLETE)
            break;
        if (clb_cl_check(state, "a command") != CLB_OK || !has_run(queue, command->launch))
            queue->failed = true;
        clb_cl.ReleaseEvent(event);
        queue->first++;
        queue->count--;
    }
    return queue->failed ? CLB_ERR_OPENCL : status;
}

/* Make room for one more event; checks a list that has become long. With the lock held. */
static clb_status queue_make_room(struct clb_queue *queue)
{
    clb_status status = CLB_OK;
    if (queue->count >= queue->look_at) {
        status = queue_look(queue);
        queue->look_at = clb_max(MANY, 2 * queue->count);
    }
    if (status != CLB_OK || queue->first + queue->count < queue->capacity)
        return status;
    if (queue->first < queue->capacity / 2 || queue->capacity == 0) {
        size_t capacity = clb_max(2 * queue->capacity, 2 * MANY);
        struct queued_command *larger = realloc(queue->events, capacity * sizeof *larger);
        if (larger == NULL)
            return CLB_ERR_NOMEM;
        queue->events = larger;
        queue->capacity = capacity;
    }
    memmove(queue->events, queue->events + queue->first, queue->count * sizeof *queue->events);
    queue->first = 0;
    return CLB_OK;
}

/* Called by the enqueuing thread: whoever uses the queue next is told. */
static void queue_fail(struct clb_queue *queue, clb_status status)
{
    int none = CLB_OK;
    atomic_compare_exchange_strong(&queue->error, &none, status);
    queue->failed = true;
}

static clb_status queue_error(struct clb_queue *queue)
{
    const clb_status error = (clb_status)atomic_load(&queue->error);
    return error == CLB_OK && queue->failed ? CLB_ERR_OPENCL : error;
}

static clb_status queue_begin(struct clb_queue *queue)
{
    if (is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
    if (!clb_enqueuer_is_self)
        atomic_store_explicit(&queue->busy, true, memory_order_relaxed);
    if (!queue->keeps)
        return CLB_OK;
    pthread_mutex_lock(&queue->lock);
    clb_status status = queue_make_room(queue);
    if (status != CLB_OK)
        pthread_mutex_unlock(&queue->lock);
    return status;
}

/* The event argument of a command: `own`, or NULL when neither the list nor the caller needs it. */
static cl_event *event_of(const struct clb_queue *queue, cl_event *own, const cl_event *callers)
{
    return queue->keeps || callers != NULL ? own : NULL;
}

/* Called after a command was enqueued with `status`; releases the lock that queue_begin took. Adds
 * the event to the list and returns it in *callers, if not NULL, with a reference of its own. */
static clb_status queue_end(struct clb_queue *queue, clb_status status, cl_event event,
                            cl_uint launch, cl_event *callers)
{
    if (queue->keeps) {
        if (status == CLB_OK) {
            queue->events[queue->first + queue->count++] = (struct queued_command){event, launch};
            if (callers != NULL)
                status = clb_cl_check(clb_cl.RetainEvent(event), "clRetainEvent");
        }
        pthread_mutex_unlock(&queue->lock);
    }
    if (status == CLB_OK && callers != NULL)
        *callers = event;
    return status;
}

/* ---- commands -------------------------------------------------------------------------------- */

enum verb { LAUNCH, WRITE, WRITE_NOW, READ, WRITE_RECT, READ_RECT, BARRIER, MAP, UNMAP };

/* What is to be enqueued. The members of a launch, and those of all others. */
struct wait_order {
    enum verb verb;
    cl_kernel kernel;
    const char *name;
    const struct clb_argument *arguments;
    size_t count;
    cl_uint dimensions;
    const size_t *global, *local;

    cl_mem mem;
    size_t offset, size;
    const struct clb_box *box;
    cl_map_flags flags;
    void *host; /* also what has been mapped */

    cl_uint waits;
    const cl_event *wait_list;
};

static clb_status set_arguments(cl_kernel kernel, const char *name, size_t first,
                                const struct clb_argument *arguments, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        clb_status status = clb_cl_check(clb_cl.SetKernelArg(kernel, (cl_uint)(first + i),
                                                             arguments[i].size, arguments[i].value),
                                         name);
        if (status != CLB_OK)
            return status;
    }
    return CLB_OK;
}

static clb_status launch(struct clb_queue *queue, const struct wait_order *order,
                         const cl_event *waits, cl_uint *number, cl_event *event)
{
    const struct clb_launch_counters *counters = queue->counters;
    const cl_mem chain = counters != NULL ? counters->chain->mem : NULL;
    const cl_mem report = counters != NULL ? counters->report->mem : NULL;
    const cl_uint next = counters != NULL ? queue->launches + 1 : 0;
    const struct clb_argument counting[] = {CLB_ARG(chain), CLB_ARG(report),
                                            CLB_ARG(queue->counter), CLB_ARG(next)};
    clb_status status =
        set_arguments(order->kernel, order->name, 0, order->arguments, order->count);
    if (status == CLB_OK)
        status = set_arguments(order->kernel, order->name, order->count, counting,
                               CLB_COUNT_OF(counting));
    if (status == CLB_OK)
        status = clb_cl_check_launch(
            clb_cl.EnqueueNDRangeKernel(queue->handle, order->kernel, order->dimensions, NULL,
                                        order->global, order->local, order->waits, waits, event),
            order->name);
    if (status == CLB_OK)
        queue->launches = *number = next;
    return status;
}

/* Enqueue by the driver's function. An empty wait list must be NULL: drivers refuse anything else.
 */
static clb_status enqueue(struct clb_queue *queue, struct wait_order *order, cl_uint *number,
                          cl_event *event)
{
    const cl_event *waits = order->waits > 0 ? order->wait_list : NULL;
    const struct clb_box *box = order->box;
    cl_int error;
    switch (order->verb) {
    case LAUNCH:
        return launch(queue, order, waits, number, event);
    case WRITE:
    case WRITE_NOW:
        error = clb_cl.EnqueueWriteBuffer(queue->handle, order->mem, order->verb == WRITE_NOW,
                                          order->offset, order->size, order->host, order->waits,
                                          waits, event);
        return clb_cl_check(error, "clEnqueueWriteBuffer");
    case READ:
        error = clb_cl.EnqueueReadBuffer(queue->handle, order->mem, CL_FALSE, order->offset,
                                         order->size, order->host, order->waits, waits, event);
        return clb_cl_check(error, "clEnqueueReadBuffer");
    case WRITE_RECT:
        error = clb_cl.EnqueueWriteBufferRect(queue->handle, order->mem, CL_FALSE, box->origin,
                                              box->host, box->size, box->pitch, 0, box->host_pitch,
                                              0, order->host, order->waits, waits, event);
        return clb_cl_check(error, "clEnqueueWriteBufferRect");
    case READ_RECT:
        error = clb_cl.EnqueueReadBufferRect(queue->handle, order->mem, CL_FALSE, box->origin,
                                             box->host, box->size, box->pitch, 0, box->host_pitch,
                                             0, order->host, order->waits, waits, event);
        return clb_cl_check(error, "clEnqueueReadBufferRect");
    case BARRIER:
        error = clb_cl.EnqueueBarrierWithWaitList(queue->handle, order->waits, waits, event);
        return clb_cl_check(error, "clEnqueueBarrierWithWaitList");
    case MAP:
        order->host = clb_cl.EnqueueMapBuffer(queue->handle, order->mem, CL_FALSE, order->flags,
                                              order->offset, order->size, 0, NULL, event, &error);
        return clb_cl_check(error, "clEnqueueMapBuffer");
    default:
        error =
            clb_cl.EnqueueUnmapMemObject(queue->handle, order->mem, order->host, 0, NULL, event);
        return clb_cl_check(error, "clEnqueueUnmapMemObject");
    }
}

/* Enqueue by this thread. */
static clb_status enqueue_here(struct clb_queue *queue, struct wait_order *order, cl_event *event)
{
    cl_event own = NULL;
    cl_uint number = 0;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    status = enqueue(queue, order, &number, event_of(queue, &own, event));
    return queue_end(queue, status, own, number, event);
}

/* ---- commands by the enqueuing thread ---------------------------------------------------------
 */

/* A copy of an order with all that it refers to; in `memory` the promises that it waits for. */
struct posted {
    struct clb_request request;
    struct clb_queue *queue;
    struct clb_promise *promise; /* NULL where nobody waits */
    struct wait_order order;
    struct clb_box box;
    size_t global[3], local[3];
    char name[32];
    _Alignas(max_align_t) char memory[];
};

/* Whether all commands that it waits for are enqueued, or have ended. */
static bool is_ready(const struct clb_request *request)
{
    const struct posted *posted = (const struct posted *)(const void *)request;
    for (cl_uint i = 0; i < posted->order.waits; i++) {
        const struct clb_promise *promise = promise_of(posted->order.wait_list[i]);
        if (promise->event == NULL && !atomic_load(&promise->ended))
            return false;
    }
    return true;
}

/* The events of the commands that it waits for and that have not ended, and their number; an error
 * when one has failed. */
static clb_status resolve(const struct posted *posted, cl_event *events, cl_uint *count)
{
    *count = 0;
    for (cl_uint i = 0; i < posted->order.waits; i++) {
        const struct clb_promise *promise = promise_of(posted->order.wait_list[i]);
        if (promise->event != NULL)
            events[(*count)++] = promise->event;
        else if (!atomic_load(&promise->ended) || promise->status != CLB_OK)
            return promise->status != CLB_OK ? promise->status : CLB_ERR_OPENCL;
    }
    return CLB_OK;
}

static void run_posted(struct clb_request *request)
{
    struct posted *posted = (struct posted *)(void *)request;
    struct clb_queue *queue = posted->queue;
    struct clb_promise *promise = posted->promise;
    struct wait_order order = posted->order;
    cl_event *events = (cl_event *)(void *)posted->memory + order.waits;
    order.wait_list = events;
    clb_status status = queue_error(queue);
    if (status == CLB_OK)
        status = resolve(posted, events, &order.waits);
    if (status == CLB_OK)
        status = enqueue_here(queue, &order, promise != NULL ? &promise->event : NULL);
    atomic_fetch_add(&queue->runtime->ended, 1);
    queue->unflushed = true;
    if (status != CLB_OK)
        queue_fail(queue, status);
    if (promise != NULL) {
        promise->mapped = order.host;
        if (status != CLB_OK)
            clb_promise_end(promise, status);
        clb_promise_release(promise);
    }
    for (cl_uint i = 0; i < posted->order.waits; i++)
        clb_promise_release(promise_of(posted->order.wait_list[i]));
    free(posted);
}

/* Copy `size` bytes to *end, which is aligned for any kernel argument. */
static void *copy_to(char **end, const void *from, size_t size)
{
    void *to = *end;
    if (size > 0)
        memcpy(to, from, size);
    *end += clb_round_up(size, _Alignof(max_align_t));
    return to;
}

static size_t copied(size_t size)
{
    return clb_round_up(size, _Alignof(max_align_t));
}

static size_t extra_bytes(const struct wait_order *order)
{
    size_t bytes = copied(2 * order->waits * sizeof(cl_event)) +
                   copied(order->count * sizeof *order->arguments) +
                   copied(order->verb == WRITE_NOW ? order->size : 0);
    for (size_t i = 0; i < order->count; i++)
        bytes += copied(order->arguments[i].size);
    return bytes;
}

static struct posted *copy_order(struct clb_queue *queue, const struct wait_order *order)
{
    struct posted *posted = malloc(sizeof *posted + extra_bytes(order));
    if (posted == NULL)
        return NULL;
    char *end = posted->memory + copied(2 * order->waits * sizeof(cl_event));
    struct wait_order *copy = &posted->order;
    *copy = *order;
    posted->queue = queue;
    if (order->waits > 0)
        memcpy(posted->memory, order->wait_list, order->waits * sizeof(cl_event));
    copy->wait_list = (cl_event *)(void *)posted->memory;
    for (cl_uint i = 0; i < order->waits; i++)
        clb_promise_retain(promise_of(order->wait_list[i]));
    if (order->box != NULL)
        posted->box = *order->box;
    copy->box = &posted->box;
    if (order->verb == WRITE_NOW)
        copy->host = copy_to(&end, order->host, order->size);
    if (order->verb != LAUNCH)
        return posted;
    struct clb_argument *arguments =
        copy_to(&end, order->arguments, order->count * sizeof *arguments);
    for (size_t i = 0; i < order->count; i++) {
        if (arguments[i].value != NULL) /* or so much local memory is asked for */
            arguments[i].value = copy_to(&end, arguments[i].value, arguments[i].size);
    }
    memcpy(posted->global, order->global, order->dimensions * sizeof(size_t));
    memcpy(posted->local, order->local, order->dimensions * sizeof(size_t));
    snprintf(posted->name, sizeof posted->name, "%s", order->name);
    copy->arguments = arguments;
    copy->global = posted->global;
    copy->local = posted->local;
    copy->name = posted->name;
    return posted;
}

/* Leave a command to the thread. `promise` may be NULL; the thread keeps a reference of its own. */
static clb_status post(struct clb_queue *queue, const struct wait_order *order,
                       struct clb_promise *promise)
{
    if (is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
    struct posted *posted = copy_order(queue, order);
    if (posted == NULL)
        return CLB_ERR_NOMEM;
    if (promise != NULL) {
        clb_promise_retain(promise);
        promise->queue = queue;
    }
    posted->promise = promise;
    posted->request = (struct clb_request){
        .run = run_posted, .is_ready = is_ready, .overtakes = queue->is_for_transfers};
    clb_enqueuer_leave(&posted->request);
    return CLB_OK;
}

static clb_status post_order(struct clb_queue *queue, const struct wait_order *order,
                             cl_event *event)
{
    struct clb_promise *promise = event != NULL ? clb_promise_new(queue->runtime) : NULL;
    clb_status status = event != NULL && promise == NULL ? CLB_ERR_NOMEM : queue_error(queue);
    if (status == CLB_OK) {
        atomic_store_explicit(&queue->busy, true, memory_order_relaxed);
        status = post(queue, order, promise);
    }
    if (status == CLB_OK && event != NULL)
        *event = (cl_event)(void *)promise;
    else
        clb_promise_release(promise);
    return status;
}

/* ---- waiting and checking -------------------------------------------------------------------- */

/* What the enqueuing thread is asked about a queue, and who asks. */
struct event_question {
    struct clb_request request;
    clb_status (*ask)(struct clb_queue *queue);
    struct clb_queue *queue;
    struct clb_promise *promise;
};

static void run_question(struct clb_request *request)
{
    struct event_question *question = (struct event_question *)(void *)request;
    clb_promise_end(question->promise, question->ask(question->queue));
    clb_promise_release(question->promise);
    free(question);
}

/* Ask by the thread that enters the driver. */
static clb_status queue_ask(struct clb_queue *queue, clb_status (*ask)(struct clb_queue *queue))
{
    if (!clb_enqueuer_exists() || clb_enqueuer_is_self)
        return ask(queue);
    struct clb_promise *promise =
        is_abandoned(queue->runtime) ? NULL : clb_promise_new(queue->runtime);
    struct event_question *question = promise == NULL ? NULL : malloc(sizeof *question);
    if (question == NULL) {
        clb_promise_release(promise);
        return CLB_ERR_OPENCL;
    }
    *question = (struct event_question){
        {.run = run_question, .overtakes = queue->is_for_transfers}, ask, queue, promise};
    atomic_store(&promise->is_watched, true);
    clb_promise_retain(promise);
    clb_enqueuer_leave(&question->request);
    clb_status status = promise_wait(promise);
    clb_promise_release(promise);
    return status;
}

static clb_status check_kept(struct clb_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    clb_status status = queue->failed ? CLB_ERR_OPENCL : queue_look(queue);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* An error when a command that has ended has failed. Does not wait. */
static clb_status queue_check(struct clb_queue *queue)
{
    const clb_status error = queue_error(queue);
    return !queue->keeps || error != CLB_OK ? error : queue_ask(queue, check_kept);
}

static clb_status check_clean(struct clb_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool clean = !queue->failed && queue_look(queue) == CLB_OK && queue->count == 0;
    pthread_mutex_unlock(&queue->lock);
    return clean ? CLB_OK : CLB_ERR_OPENCL;
}

/* True when no command is outstanding and none has failed. */
static bool queue_is_clean(struct clb_queue *queue)
{
    return queue_ask(queue, check_clean) == CLB_OK;
}

static bool queue_has_ended(void *argument)
{
    struct clb_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    const size_t count = queue->count;
    const clb_status status = queue_look(queue);
    const bool ended = queue->count == 0 || (status != CLB_OK && !queue->failed);
    atomic_fetch_add(&queue->runtime->ended, queue->count < count);
    pthread_mutex_unlock(&queue->lock);
    return ended;
}

/* Wait until clFinish would return at once. False when the device has been abandoned. Where no
 * events are kept, a barrier has one. */
static bool wait_for_all(struct clb_queue *queue)
{
    struct clb_runtime *runtime = queue->runtime;
    cl_event last = NULL;
    if (is_abandoned(runtime))
        return false;
    if (queue->keeps) {
        (void)clb_cl.Flush(queue->handle);
        return wait_until(runtime, queue_has_ended, queue);
    }
    if (!atomic_exchange(&queue->busy, false) ||
        clb_cl.EnqueueBarrierWithWaitList(queue->handle, 0, NULL, &last) != CL_SUCCESS)
        return true;
    (void)clb_cl.Flush(queue->handle);
    const bool ended = wait_until(runtime, event_has_ended, &last);
    clb_event_release(last);
    return ended;
}

/* An error of clFinish may belong to any earlier command, and drivers report it only once: so it is
 * stored in the queue. */
static clb_status finish_now(struct clb_queue *queue)
{
    clb_status status = clb_cl_check(clb_cl.Finish(queue->handle), "clFinish");
    pthread_mutex_lock(&queue->lock);
    queue->stuck = queue->stuck || status != CLB_OK;
    queue->failed = queue->failed || queue->stuck || !have_all_run(queue);
    clb_status looked = queue_look(queue);
    pthread_mutex_unlock(&queue->lock);
    return status != CLB_OK ? status : looked;
}

/* Begin to finish a queue by the enqueuing thread: behind its last command there is a barrier,
 * after whose end clFinish does not wait. *promise is NULL where there is nothing to wait for. */
static clb_status finish_begin(struct clb_queue *queue, struct clb_promise **promise)
{
    const struct wait_order barrier = {.verb = BARRIER};
    *promise = NULL;
    if (!queue->keeps && !atomic_exchange(&queue->busy, false))
        return CLB_OK;
    *promise = clb_promise_new(queue->runtime);
    if (*promise == NULL)
        return CLB_ERR_NOMEM;
    (*promise)->then = finish_now;
    clb_status status = post(queue, &barrier, *promise);
    if (status == CLB_OK)
        status = clb_queue_flush(queue);
    return status;
}

static clb_status finish_end(struct clb_queue *queue, clb_status begun, struct clb_promise *promise)
{
    clb_status status = begun;
    if (status == CLB_OK && promise != NULL) {
        status = promise_wait(promise);
        if (!atomic_load(&promise->ended))
            queue->stuck = queue->failed = true;
    }
    if (begun != CLB_OK)
        queue->stuck = queue->failed = true;
    clb_promise_release(promise);
    const clb_status error = queue_error(queue);
    return error != CLB_OK ? error : status;
}

clb_status clb_queue_finish(struct clb_queue *queue)
{
    clb_status status;
    if (clb_enqueuer_exists()) {
        struct clb_promise *promise;
        status = finish_begin(queue, &promise);
        status = finish_end(queue, status, promise);
        clb_driver_gate();
        return status;
    }
    if (is_bounded(queue->runtime)) {
        if (!wait_for_all(queue)) {
            queue->stuck = queue->failed = true;
            return CLB_ERR_OPENCL;
        }
    } else if (!queue->keeps && !atomic_exchange(&queue->busy, false)) {
        /* Nothing has been enqueued since. */
        return queue->failed ? CLB_ERR_OPENCL : CLB_OK;
    }
    status = finish_now(queue);
    clb_driver_gate();
    return status;
}

clb_status clb_queue_confirm(struct clb_queue *queue)
{
    return queue->keeps ? clb_queue_finish(queue) : CLB_OK;
}

/* What an enqueuing thread is to flush. */
struct flush {
    struct clb_request request;
    struct clb_queue *queue;
};

static void run_flush(struct clb_request *request)
{
    struct flush *flush = (struct flush *)(void *)request;
    clb_queue_flush_now(flush->queue);
    free(flush);
}

void clb_queue_flush_now(struct clb_queue *queue)
{
    if (!queue->unflushed)
        return;
    queue->unflushed = false;
    clb_status status = clb_cl_check(clb_cl.Flush(queue->handle), "clFlush");
    if (status != CLB_OK)
        queue_fail(queue, status);
}

clb_status clb_queue_flush(struct clb_queue *queue)
{
    if (is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
    if (!clb_enqueuer_exists() || clb_enqueuer_is_self)
        return clb_cl_check(clb_cl.Flush(queue->handle), "clFlush");
    struct flush *flush = malloc(sizeof *flush);
    if (flush == NULL)
        return CLB_ERR_NOMEM;
    *flush = (struct flush){{.run = run_flush, .overtakes = queue->is_for_transfers}, queue};
    clb_enqueuer_leave(&flush->request);
    return CLB_OK;
}

/* Wait for a command and release its event. When this returns, the command no longer uses the host
 * memory, unless clFinish has failed. */
static clb_status wait_for(struct clb_queue *queue, cl_event event)
{
    clb_status status = clb_event_wait(queue->runtime, event);
    clb_event_release(event);
    if (status != CLB_OK) {
        (void)!clb_queue_finish(queue);
        return status;
    }
    return queue_check(queue);
}

/* ---- the commands' functions -------------------------------------------------------------------
 */

static clb_status queue_do(struct clb_queue *queue, struct wait_order *order, cl_event *event)
{
    return clb_enqueuer_exists() && !clb_enqueuer_is_self ? post_order(queue, order, event)
                                                          : enqueue_here(queue, order, event);
}

clb_status clb_queue_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                            const struct clb_argument *arguments, size_t count, cl_uint dimensions,
                            const size_t *global, const size_t *local, cl_uint waits,
                            const cl_event *wait_list, cl_event *event)
{
    struct wait_order order = {.verb = LAUNCH,
                               .kernel = kernel,
                               .name = name,
                               .arguments = arguments,
                               .count = count,
                               .dimensions = dimensions,
                               .global = global,
                               .local = local,
                               .waits = waits,
                               .wait_list = wait_list};
    if (!queue->asked)
        counter_get(queue);
    clb_status status = queue_do(queue, &order, event);
    if (status == CLB_OK && queue->counters != NULL)
        atomic_fetch_add_explicit(&queue->given, 1, memory_order_relaxed);
    return status;
}

cl_uint clb_queue_launches(const struct clb_queue *queue)
{
    return atomic_load_explicit(&queue->given, memory_order_relaxed);
}

bool clb_queue_has_run(const struct clb_queue *queue, cl_uint launches)
{
    return has_run(queue, launches);
}

clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                           const void *host, cl_uint waits, const cl_event *wait_list,
                           cl_event *event)
{
    struct wait_order order = {.verb = WRITE,
                               .mem = mem,
                               .offset = offset,
                               .size = size,
                               .host = (void *)(uintptr_t)host,
                               .waits = waits,
                               .wait_list = wait_list};
    return queue_do(queue, &order, event);
}

clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                          void *host, cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    struct wait_order order = {.verb = READ,
                               .mem = mem,
                               .offset = offset,
                               .size = size,
                               .host = host,
                               .waits = waits,
                               .wait_list = wait_list};
    return queue_do(queue, &order, event);
}

/* A transfer that is waited for. An abandoned device may still carry it out, so there the memory is
 * a copy of the caller's, and is kept then. */
static clb_status transfer_now(struct clb_queue *queue, bool down, cl_mem mem, size_t offset,
                               size_t size, void *host)
{
    const bool bounded = is_bounded(queue->runtime);
    void *memory = bounded ? malloc(clb_max(size, 1)) : host;
    cl_event moved = NULL;
    if (memory == NULL)
        return CLB_ERR_NOMEM;
    if (bounded && !down)
        memcpy(memory, host, size);
    clb_status status = down ? clb_queue_read(queue, mem, offset, size, memory, 0, NULL, &moved)
                             : clb_queue_write(queue, mem, offset, size, memory, 0, NULL, &moved);
    if (status == CLB_OK)
        status = wait_for(queue, moved);
    else
        (void)!clb_queue_finish(queue);
    if (bounded && down && status == CLB_OK)
        memcpy(host, memory, size);
    if (bounded && !queue->stuck)
        free(memory);
    return status;
}

/* The most bytes that a request of the enqueuing thread has a copy of. */
#define MOST_COPIED ((size_t)4096)

/* A blocking write of a few bytes may return before the commands ahead of it have ended, which
 * waiting for its event would not. */
clb_status clb_queue_write_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                               const void *host)
{
    struct wait_order order = {.verb = WRITE_NOW,
                               .mem = mem,
                               .offset = offset,
                               .size = size,
                               .host = (void *)(uintptr_t)host};
    if (queue->keeps || (clb_enqueuer_exists() && size > MOST_COPIED))
        return transfer_now(queue, false, mem, offset, size, (void *)(uintptr_t)host);
    return queue_do(queue, &order, NULL);
}

clb_status clb_queue_read_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                              void *host)
{
    if (queue->keeps || is_bounded(queue->runtime) || clb_enqueuer_exists())
        return transfer_now(queue, true, mem, offset, size, host);
    return clb_cl_check(
        clb_cl.EnqueueReadBuffer(queue->handle, mem, CL_TRUE, offset, size, host, 0, NULL, NULL),
        "clEnqueueReadBuffer");
}

static clb_status transfer_rect(struct clb_queue *queue, enum verb verb, cl_mem mem,
                                const struct clb_box *box, void *host, cl_uint waits,
                                const cl_event *wait_list, cl_event *event)
{
    struct wait_order order = {
        .verb = verb, .mem = mem, .box = box, .host = host, .waits = waits, .wait_list = wait_list};
    return queue_do(queue, &order, event);
}

clb_status clb_queue_write_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                                const void *host, cl_uint waits, const cl_event *wait_list,
                                cl_event *event)
{
    return transfer_rect(queue, WRITE_RECT, mem, box, (void *)(uintptr_t)host, waits, wait_list,
                         event);
}

clb_status clb_queue_read_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                               void *host, cl_uint waits, const cl_event *wait_list,
                               cl_event *event)
{
    return transfer_rect(queue, READ_RECT, mem, box, host, waits, wait_list, event);
}

clb_status clb_queue_barrier(struct clb_queue *queue, cl_uint waits, const cl_event *wait_list,
                             cl_event *event)
{
    struct wait_order order = {.verb = BARRIER, .waits = waits, .wait_list = wait_list};
    return queue_do(queue, &order, event);
}

/* What has been mapped is known when the thread has enqueued the command. */
clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, cl_event *event)
{
    cl_event now = NULL;
    struct wait_order order = {
        .verb = MAP, .mem = mem, .flags = flags, .offset = offset, .size = size};
    *mapped = NULL;
    clb_status status = queue_do(queue, &order, &now);
    if (status != CLB_OK)
        return status;
    *mapped = order.host;
    struct clb_promise *promise = promise_of(now);
    if (promise != NULL) {
        status = clb_event_wait(queue->runtime, now);
        *mapped = status == CLB_OK ? promise->mapped : NULL;
    }
    if (status == CLB_OK && event != NULL) {
        *event = now;
        return CLB_OK;
    }
    clb_status waited = wait_for(queue, now);
    return status != CLB_OK ? status : waited;
}

bool clb_queue_shows_memory(const struct clb_queue *queue)
{
    return (queue->runtime->device.type & CL_DEVICE_TYPE_CPU) != 0 && queue->counters != NULL &&
           atomic_load(&queue->counters->seen);
}

cl_event clb_queue_last_event(struct clb_queue *queue)
{
    cl_event last = NULL;
    pthread_mutex_lock(&queue->lock);
    if (queue->count > 0) {
        last = queue->events[queue->first + queue->count - 1].event;
        if (clb_cl.RetainEvent(last) != CL_SUCCESS)
            last = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    return last;
}

clb_status clb_queue_map_results(struct clb_queue *queue, const struct clb_buffer *buffer,
                                 size_t size, const void **results, void **mapped, cl_event *event)
{
    *mapped = NULL;
    *results = buffer->host;
    if (clb_queue_shows_memory(queue)) {
        *event = clb_queue_last_event(queue);
        if (*event != NULL)
            return CLB_OK;
    }
    clb_status status = clb_queue_map(queue, buffer->mem, CL_MAP_READ, 0, size, mapped, event);
    *results = *mapped;
    return status;
}

clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped)
{
    struct wait_order order = {.verb = UNMAP, .mem = mem, .host = mapped};
    return queue_do(queue, &order, NULL);
}

/* ---- calls at once --------------------------------------------------------------------------- */

/* An H200 multiplies n = 512 2550, 3150, 2620 and 1120 times a second for 1, 4, 16 and 64 threads.
 */
enum { CALLS_AT_ONCE = 4 };

struct clb_turn {
    pthread_cond_t come;
    bool has_come;
    struct clb_turn *next;
};

void clb_turn_begin(struct clb_runtime *runtime, double patience)
{
    if (runtime->device.unified)
        return;
    pthread_mutex_lock(&runtime->turns.lock);
    if (runtime->turns.inside >= CALLS_AT_ONCE) {
        struct clb_turn self = {.come = PTHREAD_COND_INITIALIZER}, **place = &runtime->turns.first;
        const struct timespec until = clb_time_of(clb_now() + patience);
        int status = 0;
        while (*place != NULL)
            place = &(*place)->next;
        *place = &self;
        while (!self.has_come && status == 0)
            status =
                pthread_cond_clockwait(&self.come, &runtime->turns.lock, CLOCK_MONOTONIC, &until);
        if (!self.has_come) {
            for (place = &runtime->turns.first; *place != &self;)
                place = &(*place)->next;
            *place = self.next;
            runtime->turns.inside++;
        }
        pthread_cond_destroy(&self.come);
    } else {
        runtime->turns.inside++;
    }
    pthread_mutex_unlock(&runtime->turns.lock);
}

/* The turn goes to who has waited for the longest time. */
void clb_turn_end(struct clb_runtime *runtime)
{
    if (runtime->device.unified)
        return;
    pthread_mutex_lock(&runtime->turns.lock);
    struct clb_turn *next = runtime->turns.first;
    if (next != NULL && runtime->turns.inside <= CALLS_AT_ONCE) {
        runtime->turns.first = next->next;
        next->has_come = true;
        pthread_cond_signal(&next->come);
    } else {
        runtime->turns.inside--;
    }
    pthread_mutex_unlock(&runtime->turns.lock);
}

/* ---- queue sets ------------------------------------------------------------------------------ */

/* A call never waits for a queue set: when all are in use a new one is made, and it is kept for
 * later calls. */

struct clb_queue_set_kernel {
    const struct clb_program *program;
    char name[32];
    cl_kernel kernel;
    struct clb_queue_set_kernel *next;
};

static clb_status open_for_transfers(struct clb_runtime *runtime, struct clb_queue **queue)
{
    clb_status status = clb_queue_open(runtime, queue);
    if (status == CLB_OK)
        (*queue)->is_for_transfers = true;
    return status;
}

clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set)
{
    clb_status status = CLB_OK;
    if (queue_set->upload == NULL)
        status = open_for_transfers(queue_set->runtime, &queue_set->upload);
    if (status == CLB_OK && queue_set->download == NULL)
        status = open_for_transfers(queue_set->runtime, &queue_set->download);
    return status;
}

clb_status clb_queue_set_acquire(struct clb_runtime *runtime, struct clb_queue_set **out)
{
    pthread_mutex_lock(&runtime->sets.lock);
    struct clb_queue_set *queue_set = runtime->sets.idle;
    if (queue_set != NULL)
        runtime->sets.idle = queue_set->link;
    pthread_mutex_unlock(&runtime->sets.lock);
    *out = queue_set;
    if (queue_set != NULL)
        return CLB_OK;
    queue_set = calloc(1, sizeof *queue_set);
    if (queue_set == NULL)
        return CLB_ERR_NOMEM;
    queue_set->runtime = runtime;
    clb_status status = clb_queue_open(runtime, &queue_set->queue);
    if (status != CLB_OK) {
        free(queue_set);
        return status;
    }
    *out = queue_set;
    return CLB_OK;
}

static bool is_clean(const struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    bool clean = true;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++)
        clean = clean && (queues[i] == NULL || queue_is_clean(queues[i]));
    return clean;
}

void clb_queue_set_release(struct clb_queue_set *queue_set)
{
    if (!is_clean(queue_set)) {
        clb_queue_set_discard(queue_set);
        return;
    }
    struct clb_runtime *runtime = queue_set->runtime;
    pthread_mutex_lock(&runtime->sets.lock);
    queue_set->link = runtime->sets.idle;
    runtime->sets.idle = queue_set;
    pthread_mutex_unlock(&runtime->sets.lock);
}

/* Waits for all queues even when one fails, so that all commands that can end have ended. */
clb_status clb_queue_set_finish(struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    struct clb_promise *promise[CLB_COUNT_OF(queues)];
    clb_status begun[CLB_COUNT_OF(queues)], result = CLB_OK;
    const bool at_once = clb_enqueuer_exists();
    for (size_t i = 0; i < CLB_COUNT_OF(queues) && at_once; i++)
        begun[i] = queues[i] == NULL ? CLB_OK : finish_begin(queues[i], &promise[i]);
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = CLB_OK;
        if (queues[i] != NULL)
            status =
                at_once ? finish_end(queues[i], begun[i], promise[i]) : clb_queue_finish(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
    if (at_once)
        clb_driver_gate();
    return result;
}

bool clb_queue_set_settle(struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    bool stuck = false;
    if (clb_queue_set_finish(queue_set) == CLB_OK)
        return true;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++)
        stuck = stuck || (queues[i] != NULL && queues[i]->stuck);
    return !stuck;
}

clb_status clb_queue_set_check(struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    clb_status result = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = queues[i] == NULL ? CLB_OK : queue_check(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
    return result;
}

clb_status clb_queue_set_await(struct clb_queue_set *queue_set, cl_event *event)
{
    clb_status status = clb_event_wait(queue_set->runtime, *event);
    clb_event_drop(event);
    return status == CLB_OK ? clb_queue_set_check(queue_set) : status;
}

/* The queues may still hold commands, so nothing is released. */
void clb_queue_set_discard(struct clb_queue_set *queue_set)
{
    (void)queue_set;
}

/* CLB_ERR_LAUNCH when the compiled kernel needs more than the device has. The work-group size is
 * the one that each kernel of the shim requires by attribute. CLB_OK if the driver does not answer.
 */
static clb_status check_needs(const struct clb_device *device, cl_kernel kernel, const char *name)
{
    size_t group[3] = {1, 1, 1}, most = SIZE_MAX;
    cl_ulong bytes = 0;
    if (clb_device_has(device, CLB_QUIRK_UNDERSTATES_LIMITS))
        return CLB_OK;
    bool known =
        clb_cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                      &most, NULL) == CL_SUCCESS &&
        clb_cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                      sizeof group, group, NULL) == CL_SUCCESS &&
        clb_cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes,
                                      &bytes, NULL) == CL_SUCCESS;
    size_t items = group[0] * group[1] * group[2];
    if (!known || (items <= most && items <= device->max_group && bytes <= device->local_memory))
        return CLB_OK;
    clb_log(CLB_LOG_WARN,
            "%s: groups of %zu with %llu bytes of local memory, the device has %zu and %llu", name,
            items, (unsigned long long)bytes, clb_min(most, device->max_group),
            (unsigned long long)device->local_memory);
    return CLB_ERR_LAUNCH;
}

clb_status clb_queue_set_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, cl_kernel *kernel)
{
    for (struct clb_queue_set_kernel *entry = queue_set->kernels; entry != NULL;
         entry = entry->next) {
        if (entry->program == program && strcmp(entry->name, name) == 0) {
            *kernel = entry->kernel;
            return CLB_OK;
        }
    }
    struct clb_queue_set_kernel *entry = calloc(1, sizeof *entry);
    if (entry == NULL || strlen(name) >= sizeof entry->name) {
        free(entry);
        return CLB_ERR_NOMEM;
    }
    cl_int error;
    entry->kernel = clb_cl.CreateKernel(clb_program_handle(program), name, &error);
    clb_status status = clb_cl_check(error, name);
    if (status == CLB_OK)
        status = check_needs(&queue_set->runtime->device, entry->kernel, name);
    if (status != CLB_OK) {
        if (entry->kernel != NULL)
            clb_cl.ReleaseKernel(entry->kernel);
        free(entry);
        return status;
    }
    strcpy(entry->name, name);
    entry->program = program;
    entry->next = queue_set->kernels;
    queue_set->kernels = entry;
    *kernel = entry->kernel;
    return CLB_OK;
}
