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
 * the queue is finished. */
#include "ocl.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A list of this length is checked when a command is added, and again when it has doubled. */
#define MANY ((size_t)64)

/* A command; `launch` is its number if it is a kernel that is counted, otherwise 0. */
struct command {
    cl_event event;
    cl_uint launch;
};

struct clb_queue {
    struct clb_runtime *runtime;
    cl_command_queue handle;
    pthread_mutex_t lock;
    struct command *events; /* [first, first + count) are not yet checked; a reference to each */
    size_t first, count, capacity, look_at;
    bool keeps;         /* keep the events of commands */
    atomic_bool failed; /* a command or clFinish has failed; never reset */
    atomic_bool stuck;  /* clFinish has failed: commands may be outstanding for ever */
    atomic_bool busy;   /* there were commands since it was finished */
    bool asked;         /* has asked for a counter */
    struct clb_launch_counters *counters; /* NULL: its launches are not counted */
    cl_uint counter;                      /* the place of its counter */
    cl_uint launches;                     /* counted launches so far */
};

clb_status clb_cl_check(cl_int status, const char *what)
{
    return CLB_LIKELY(status == CL_SUCCESS) ? CLB_OK : clb_cl_failed(status, what);
}

clb_status clb_cl_check_launch(cl_int status, const char *name)
{
    return CLB_LIKELY(status == CL_SUCCESS) ? CLB_OK : clb_cl_launch_failed(status, name);
}

bool clb_event_is_pending(cl_event event)
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

clb_status clb_event_wait(struct clb_runtime *runtime, cl_event event)
{
    cl_command_queue queue = NULL;
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
        const struct command *command = &queue->events[queue->first];
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
        struct command *larger = realloc(queue->events, capacity * sizeof *larger);
        if (larger == NULL)
            return CLB_ERR_NOMEM;
        queue->events = larger;
        queue->capacity = capacity;
    }
    memmove(queue->events, queue->events + queue->first, queue->count * sizeof *queue->events);
    queue->first = 0;
    return CLB_OK;
}

static clb_status queue_begin(struct clb_queue *queue)
{
    if (is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
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
static clb_status queue_end_launch(struct clb_queue *queue, clb_status status, cl_event event,
                                   cl_uint launch, cl_event *callers)
{
    if (queue->keeps) {
        if (status == CLB_OK) {
            queue->events[queue->first + queue->count++] = (struct command){event, launch};
            if (callers != NULL)
                status = clb_cl_check(clb_cl.RetainEvent(event), "clRetainEvent");
        }
        pthread_mutex_unlock(&queue->lock);
    }
    if (status == CLB_OK && callers != NULL)
        *callers = event;
    return status;
}

static clb_status queue_end(struct clb_queue *queue, clb_status status, cl_event event,
                            cl_event *callers)
{
    return queue_end_launch(queue, status, event, 0, callers);
}

/* ---- waiting and checking -------------------------------------------------------------------- */

/* An error when a command that has ended has failed. Does not wait. */
static clb_status queue_check(struct clb_queue *queue)
{
    if (!queue->keeps)
        return queue->failed ? CLB_ERR_OPENCL : CLB_OK;
    pthread_mutex_lock(&queue->lock);
    clb_status status = queue->failed ? CLB_ERR_OPENCL : queue_look(queue);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

/* True when no command is outstanding and none has failed. */
static bool queue_is_clean(struct clb_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    bool clean = !queue->failed && queue_look(queue) == CLB_OK && queue->count == 0;
    pthread_mutex_unlock(&queue->lock);
    return clean;
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
clb_status clb_queue_finish(struct clb_queue *queue)
{
    if (is_bounded(queue->runtime)) {
        if (!wait_for_all(queue)) {
            queue->stuck = queue->failed = true;
            return CLB_ERR_OPENCL;
        }
    } else if (!queue->keeps && !atomic_exchange(&queue->busy, false)) {
        /* Nothing has been enqueued since. */
        return queue->failed ? CLB_ERR_OPENCL : CLB_OK;
    }
    clb_status status = clb_cl_check(clb_cl.Finish(queue->handle), "clFinish");
    pthread_mutex_lock(&queue->lock);
    queue->stuck = queue->stuck || status != CLB_OK;
    queue->failed = queue->failed || queue->stuck || !have_all_run(queue);
    clb_status looked = queue_look(queue);
    pthread_mutex_unlock(&queue->lock);
    clb_driver_gate();
    return status != CLB_OK ? status : looked;
}

clb_status clb_queue_confirm(struct clb_queue *queue)
{
    return queue->keeps ? clb_queue_finish(queue) : CLB_OK;
}

clb_status clb_queue_flush(struct clb_queue *queue)
{
    if (is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
    return clb_cl_check(clb_cl.Flush(queue->handle), "clFlush");
}

/* Wait for a command and release its event. When this returns, the command no longer uses the host
 * memory, unless clFinish has failed. */
static clb_status wait_for(struct clb_queue *queue, cl_event event)
{
    clb_status status = clb_event_wait(queue->runtime, event);
    clb_cl.ReleaseEvent(event);
    if (status != CLB_OK) {
        (void)!clb_queue_finish(queue);
        return status;
    }
    return queue_check(queue);
}

/* ---- commands -------------------------------------------------------------------------------- */

/* An empty wait list must be NULL: drivers refuse anything else. */
static const cl_event *list(cl_uint waits, const cl_event *wait_list)
{
    return waits > 0 ? wait_list : NULL;
}

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

clb_status clb_queue_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                            const struct clb_argument *arguments, size_t count, cl_uint dimensions,
                            const size_t *global, const size_t *local, cl_uint waits,
                            const cl_event *wait_list, cl_event *event)
{
    cl_event own = NULL;
    clb_status status = set_arguments(kernel, name, 0, arguments, count);
    if (status != CLB_OK)
        return status;
    if (!queue->asked)
        counter_get(queue);
    status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    const struct clb_launch_counters *counters = queue->counters;
    const cl_mem chain = counters != NULL ? counters->chain->mem : NULL;
    const cl_mem report = counters != NULL ? counters->report->mem : NULL;
    const cl_uint launch = counters != NULL ? queue->launches + 1 : 0;
    const struct clb_argument counting[] = {CLB_ARG(chain), CLB_ARG(report),
                                            CLB_ARG(queue->counter), CLB_ARG(launch)};
    status = set_arguments(kernel, name, count, counting, CLB_COUNT_OF(counting));
    if (status == CLB_OK)
        status = clb_cl_check_launch(clb_cl.EnqueueNDRangeKernel(queue->handle, kernel, dimensions,
                                                                 NULL, global, local, waits,
                                                                 list(waits, wait_list),
                                                                 event_of(queue, &own, event)),
                                     name);
    if (status == CLB_OK)
        queue->launches = launch;
    return queue_end_launch(queue, status, own, launch, event);
}

clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                           const void *host, cl_uint waits, const cl_event *wait_list,
                           cl_event *event)
{
    cl_event own = NULL;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    cl_int error =
        clb_cl.EnqueueWriteBuffer(queue->handle, mem, CL_FALSE, offset, size, host, waits,
                                  list(waits, wait_list), event_of(queue, &own, event));
    return queue_end(queue, clb_cl_check(error, "clEnqueueWriteBuffer"), own, event);
}

clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                          void *host, cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    cl_event own = NULL;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    cl_int error = clb_cl.EnqueueReadBuffer(queue->handle, mem, CL_FALSE, offset, size, host, waits,
                                            list(waits, wait_list), event_of(queue, &own, event));
    return queue_end(queue, clb_cl_check(error, "clEnqueueReadBuffer"), own, event);
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

/* A blocking write of a few bytes may return before the commands ahead of it have ended, which
 * waiting for its event would not. */
clb_status clb_queue_write_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                               const void *host)
{
    if (queue->keeps)
        return transfer_now(queue, false, mem, offset, size, (void *)(uintptr_t)host);
    if (is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
    return clb_cl_check(
        clb_cl.EnqueueWriteBuffer(queue->handle, mem, CL_TRUE, offset, size, host, 0, NULL, NULL),
        "clEnqueueWriteBuffer");
}

clb_status clb_queue_read_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                              void *host)
{
    if (queue->keeps || is_bounded(queue->runtime))
        return transfer_now(queue, true, mem, offset, size, host);
    return clb_cl_check(
        clb_cl.EnqueueReadBuffer(queue->handle, mem, CL_TRUE, offset, size, host, 0, NULL, NULL),
        "clEnqueueReadBuffer");
}

clb_status clb_queue_write_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                                const void *host, cl_uint waits, const cl_event *wait_list,
                                cl_event *event)
{
    cl_event own = NULL;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    cl_int error = clb_cl.EnqueueWriteBufferRect(
        queue->handle, mem, CL_FALSE, box->origin, box->host, box->size, box->pitch, 0,
        box->host_pitch, 0, host, waits, list(waits, wait_list), event_of(queue, &own, event));
    return queue_end(queue, clb_cl_check(error, "clEnqueueWriteBufferRect"), own, event);
}

clb_status clb_queue_read_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                               void *host, cl_uint waits, const cl_event *wait_list,
                               cl_event *event)
{
    cl_event own = NULL;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    cl_int error = clb_cl.EnqueueReadBufferRect(
        queue->handle, mem, CL_FALSE, box->origin, box->host, box->size, box->pitch, 0,
        box->host_pitch, 0, host, waits, list(waits, wait_list), event_of(queue, &own, event));
    return queue_end(queue, clb_cl_check(error, "clEnqueueReadBufferRect"), own, event);
}

clb_status clb_queue_barrier(struct clb_queue *queue, cl_uint waits, const cl_event *wait_list,
                             cl_event *event)
{
    cl_event own = NULL;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    cl_int error = clb_cl.EnqueueBarrierWithWaitList(queue->handle, waits, list(waits, wait_list),
                                                     event_of(queue, &own, event));
    return queue_end(queue, clb_cl_check(error, "clEnqueueBarrierWithWaitList"), own, event);
}

clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, cl_event *event)
{
    cl_event own = NULL, now = NULL;
    cl_int error;
    clb_status status = queue_begin(queue);
    *mapped = NULL;
    if (status != CLB_OK)
        return status;
    *mapped = clb_cl.EnqueueMapBuffer(queue->handle, mem, CL_FALSE, flags, offset, size, 0, NULL,
                                      &own, &error);
    status = queue_end(queue, clb_cl_check(error, "clEnqueueMapBuffer"), own,
                       event != NULL ? event : &now);
    return status == CLB_OK && event == NULL ? wait_for(queue, now) : status;
}

/* The event of the last command in the list, with a reference; NULL where there is none. */
static cl_event last_event(struct clb_queue *queue)
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
    const bool is_cpu = (queue->runtime->device.type & CL_DEVICE_TYPE_CPU) != 0;
    *mapped = NULL;
    *results = buffer->host;
    if (is_cpu && queue->counters != NULL && atomic_load(&queue->counters->seen)) {
        *event = last_event(queue);
        if (*event != NULL)
            return CLB_OK;
    }
    clb_status status = clb_queue_map(queue, buffer->mem, CL_MAP_READ, 0, size, mapped, event);
    *results = *mapped;
    return status;
}

clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped)
{
    cl_event own = NULL;
    clb_status status = queue_begin(queue);
    if (status != CLB_OK)
        return status;
    cl_int error = clb_cl.EnqueueUnmapMemObject(queue->handle, mem, mapped, 0, NULL,
                                                event_of(queue, &own, NULL));
    return queue_end(queue, clb_cl_check(error, "clEnqueueUnmapMemObject"), own, NULL);
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

clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set)
{
    clb_status status = CLB_OK;
    if (queue_set->upload == NULL)
        status = clb_queue_open(queue_set->runtime, &queue_set->upload);
    if (status == CLB_OK && queue_set->download == NULL)
        status = clb_queue_open(queue_set->runtime, &queue_set->download);
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
    clb_status result = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = queues[i] == NULL ? CLB_OK : clb_queue_finish(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
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
    clb_cl.ReleaseEvent(*event);
    *event = NULL;
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
