/* In-order queues that detect failed commands. SPDX-License-Identifier: BSD-3-Clause
 *
 * clFinish, or waiting for one event, does not tell whether earlier commands have failed: an
 * in-order queue may continue after a failed command (OpenCL 1.2, 5.12), and only that command's
 * own event reports the failure. So each command's event is kept in a list until its status has
 * been checked. With CLB_QUIRK_FAILS_FOR_GOOD none are kept: any wait reports a failure.
 *
 * A command is enqueued and its event added to the list under the queue's lock, so the list has the
 * queue's order although several threads may enqueue, and a check stops at the first command that
 * has not ended. Where no events are kept, commands are enqueued without the lock: enqueueing
 * blocks while the driver's own queue is full, and threads that only check would wait for it.
 *
 * Launches are counted to find a kernel that the device has not run although its event is complete.
 * They are numbered from 1 in each queue, and each kernel stores its number unless the one before
 * it has not (CLB_NOTE_LAUNCH in kernels/common.h): the number stored when a launch has ended is
 * smaller than its own exactly if it or one before it was dropped. An event has the number of the
 * last launch up to it. It is compared when the event leaves the list; where none are kept, when it
 * has been waited for, when the queue is finished, and by clb_event_has_run and clb_queue_has_run.
 *
 * The calling thread carries a command out, or leaves a copy to the thread that enqueues for all
 * (enqueuer.c). What that can't enqueue fails the queue: the next function that uses it says so. */
#include "cl.h"

#include <stdlib.h>
#include <string.h>

/* The list is checked whenever it has become so much longer. */
#define MANY ((size_t)64)

/* A queue has fewer unfinished launches than twice as many: with about 1000 the driver would hold
 * the thread that enqueues another until one has ended, on a hung device for ever. */
#define LAUNCHES_AHEAD 240

/* ---- events ---- */

static clb_event event_new(struct clb_queue *queue)
{
    pthread_mutex_lock(&queue->spare_lock);
    clb_event event = queue->spare;
    if (event != NULL)
        queue->spare = event->next;
    pthread_mutex_unlock(&queue->spare_lock);
    if (event == NULL)
        event = malloc(sizeof *event);
    if (event != NULL)
        *event = (struct clb_event){.references = 1, .queue = queue};
    return event;
}

void clb_event_retain(clb_event event)
{
    atomic_fetch_add(&event->references, 1);
}

void clb_event_release_handle(clb_event event)
{
    if (clb_trace_wanted())
        clb_event_trace(event);
    clb_cl.ReleaseEvent(event->handle);
    event->handle = NULL;
}

static void event_destroy(struct clb_request *request)
{
    clb_event event = CLB_EVENT_OF(request);
    if (event->handle != NULL)
        clb_event_release_handle(event);
    struct clb_queue *queue = event->queue;
    pthread_mutex_lock(&queue->spare_lock);
    event->next = queue->spare;
    queue->spare = event;
    pthread_mutex_unlock(&queue->spare_lock);
}

/* The enqueuing thread does not enter an abandoned driver, so there an event is not freed. */
void clb_event_drop(clb_event *reference)
{
    clb_event event = *reference;
    *reference = NULL;
    if (event == NULL || atomic_fetch_sub(&event->references, 1) > 1)
        return;
    event->request = (struct clb_request){.run = event_destroy};
    if (event->handle == NULL || !clb_enqueuer_exists())
        event_destroy(&event->request);
    else if (!clb_is_abandoned(event->queue->runtime))
        clb_enqueuer_leave(&event->request);
}

bool clb_cl_event_is_pending(cl_event handle)
{
    cl_int state = CL_COMPLETE;
    return clb_cl.GetEventInfo(handle, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state,
                               NULL) == CL_SUCCESS &&
           state > CL_COMPLETE;
}

bool clb_event_is_pending(clb_event event)
{
    if (!clb_enqueuer_exists())
        return clb_cl_event_is_pending(event->handle);
    if (!atomic_load(&event->ended) && !clb_is_abandoned(event->queue->runtime))
        clb_enqueuer_watch(event);
    return !atomic_load(&event->ended);
}

/* ---- counted launches ---- */

static cl_uint number_of(const struct clb_queue *queue)
{
    return ((const volatile cl_uint *)queue->report->host)[queue->place];
}

/* Nothing is concluded before the CPU has seen, when a queue was finished, what kernels store. */
bool clb_queue_has_run(const struct clb_queue *queue, cl_uint launch)
{
    if (launch == 0 || !atomic_load(&queue->runtime->counts_launches) ||
        (cl_int)(number_of(queue) - launch) >= 0)
        return true;
    clb_log(CLB_LOG_WARN, "launch %u of a queue is complete, but its kernel has not run",
            (unsigned)launch);
    return false;
}

bool clb_event_has_run(clb_event event)
{
    return event == NULL || clb_queue_has_run(event->queue, event->launch);
}

/* Called when all launches have ended. */
static bool all_have_run(const struct clb_queue *queue)
{
    if (queue->launches != 0 && number_of(queue) == queue->launches)
        atomic_store(&queue->runtime->counts_launches, true);
    return clb_queue_has_run(queue, queue->launches);
}

cl_uint clb_queue_launches(const struct clb_queue *queue)
{
    return atomic_load_explicit(&queue->given, memory_order_relaxed);
}

/* ---- the list of events ---- */

/* One whose status can't be read stays in the list. */
clb_status clb_queue_look(struct clb_queue *queue)
{
    while (queue->first != NULL) {
        clb_event event = queue->first;
        cl_int state = event->status == CLB_OK ? CL_COMPLETE : -1;
        if (event->handle != NULL) {
            const cl_int error = clb_cl.GetEventInfo(
                event->handle, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
            if (error != CL_SUCCESS)
                return clb_cl_failed(error, "clGetEventInfo");
        }
        if (state > CL_COMPLETE)
            break;
        if (clb_cl_check(state, "a command") != CLB_OK || !clb_queue_has_run(queue, event->launch))
            queue->failed = true;
        queue->first = event->next;
        queue->count--;
        clb_event_drop(&event);
    }
    return queue->failed ? CLB_ERR_OPENCL : CLB_OK;
}

/* An error of clFinish may belong to any earlier command, and drivers report it only once: so it is
 * stored in the queue. Waits only where memory is shared. */
static clb_status finish_now(struct clb_queue *queue)
{
    clb_status status = clb_cl_check(clb_cl.Finish(queue->handle), "clFinish");
    pthread_mutex_lock(&queue->lock);
    queue->unended = status != CLB_OK;
    queue->failed = queue->failed || status != CLB_OK || !all_have_run(queue);
    clb_status looked = clb_queue_look(queue);
    pthread_mutex_unlock(&queue->lock);
    return status != CLB_OK ? status : looked;
}

/* An error also where a launch before the command has not run. */
static clb_status end_of(clb_event event, clb_status status)
{
    const clb_status more = event->finishes ? finish_now(event->queue) : CLB_OK;
    if (status != CLB_OK || more != CLB_OK)
        return status != CLB_OK ? status : more;
    return clb_event_has_run(event) ? CLB_OK : CLB_ERR_OPENCL;
}

void clb_event_end(clb_event event, clb_status status)
{
    event->status = end_of(event, status);
    atomic_fetch_add(&event->queue->runtime->ended, 1);
    atomic_store(&event->ended, true);
}

/* ---- commands ---- */

static clb_status launch(const struct clb_command *command, cl_uint waits, const cl_event *list,
                         cl_event *event)
{
    struct clb_queue *queue = command->queue;
    const struct clb_geometry *geometry = command->geometry;
    const cl_uint next = queue->launches + 1;
    const struct clb_argument counting[] = {CLB_ARG(queue->chain->mem), CLB_ARG(queue->report->mem),
                                            CLB_ARG(queue->place), CLB_ARG(next)};
    cl_int error = CL_SUCCESS;
    cl_uint at = 0;
    for (size_t i = 0; i < command->count + CLB_COUNT_OF(counting) && error == CL_SUCCESS; i++) {
        const struct clb_argument *argument =
            i < command->count ? &command->arguments[i] : &counting[i - command->count];
        if (argument->size > 0)
            error = clb_cl.SetKernelArg(command->kernel, at++, argument->size, argument->value);
    }
    if (error != CL_SUCCESS)
        return clb_cl_failed(error, command->name);
    error = clb_cl.EnqueueNDRangeKernel(
        queue->handle, command->kernel, geometry->dimensions, NULL, geometry->global,
        geometry->local[0] > 0 ? geometry->local : NULL, waits, list, event);
    if (error == CL_SUCCESS) {
        queue->launches = next;
        return CLB_OK;
    }
    const clb_status failed = clb_cl_failed(error, command->name);
    /* The device has too little local memory, too few work-items or too few registers. */
    return error == CL_OUT_OF_RESOURCES || error == CL_INVALID_WORK_GROUP_SIZE ||
                   error == CL_INVALID_WORK_ITEM_SIZE
               ? CLB_ERR_LAUNCH
               : failed;
}

/* Drivers refuse an empty wait list that is not NULL. */
static clb_status enqueue(const struct clb_command *command, cl_event after, void **mapped,
                          cl_event *event)
{
    const cl_command_queue queue = command->queue->handle;
    const struct clb_box *box = command->box;
    const cl_mem mem = command->mem;
    const cl_uint waits = after != NULL;
    const cl_event *list = waits ? &after : NULL;
    void *host = command->host;
    cl_int error;
    switch (command->verb) {
    case CLB_LAUNCH:
        return launch(command, waits, list, event);
    case CLB_WRITE:
    case CLB_WRITE_COPY:
        if (box->size[2] > 0)
            error = clb_cl.EnqueueWriteBufferRect(queue, mem, CL_FALSE, box->origin, box->host,
                                                  box->size, box->pitch, 0, box->host_pitch, 0,
                                                  host, waits, list, event);
        else
            error =
                clb_cl.EnqueueWriteBuffer(queue, mem, command->verb == CLB_WRITE_COPY,
                                          box->origin[0], box->size[0], host, waits, list, event);
        return clb_cl_check(error, "clEnqueueWriteBuffer");
    case CLB_READ:
        if (box->size[2] > 0)
            error = clb_cl.EnqueueReadBufferRect(queue, mem, CL_FALSE, box->origin, box->host,
                                                 box->size, box->pitch, 0, box->host_pitch, 0, host,
                                                 waits, list, event);
        else
            error = clb_cl.EnqueueReadBuffer(queue, mem, CL_FALSE, box->origin[0], box->size[0],
                                             host, waits, list, event);
        return clb_cl_check(error, "clEnqueueReadBuffer");
    case CLB_BARRIER:
        error = clb_cl.EnqueueBarrierWithWaitList(queue, waits, list, event);
        return clb_cl_check(error, "clEnqueueBarrierWithWaitList");
    case CLB_MAP:
        *mapped = clb_cl.EnqueueMapBuffer(queue, mem, CL_FALSE, command->flags, command->offset,
                                          command->size, 0, NULL, event, &error);
        return clb_cl_check(error, "clEnqueueMapBuffer");
    default:
        error = clb_cl.EnqueueUnmapMemObject(queue, mem, host, 0, NULL, event);
        return clb_cl_check(error, "clEnqueueUnmapMemObject");
    }
}

/* The driver's event to wait for, NULL if it has ended or is NULL; an error when it has failed. */
static clb_status resolve(const struct clb_event *event, cl_event *handle)
{
    *handle = event != NULL ? event->handle : NULL;
    if (event == NULL || *handle != NULL || (atomic_load(&event->ended) && event->status == CLB_OK))
        return CLB_OK;
    return event->status != CLB_OK ? event->status : CLB_ERR_OPENCL;
}

/* `event` is NULL when neither list nor caller needs it. */
static clb_status carry_out(const struct clb_command *command, clb_event event)
{
    struct clb_queue *queue = command->queue;
    cl_event after, handle = NULL;
    clb_status status = resolve(command->after, &after);
    if (queue->keeps)
        pthread_mutex_lock(&queue->lock);
    if (status == CLB_OK && queue->keeps && queue->count % MANY == MANY - 1)
        status = clb_queue_look(queue);
    CLB_THEN(status, enqueue(command, after, event != NULL ? &event->mapped : NULL,
                             event != NULL ? &handle : NULL));
    if (status == CLB_OK && event != NULL) {
        event->handle = handle;
        event->launch = queue->launches;
        if (clb_trace_wanted()) {
            event->name = command->name;
            event->enqueued = clb_now();
        }
    }
    if (status == CLB_OK && queue->keeps) {
        clb_event_retain(event);
        *(queue->first == NULL ? &queue->first : &queue->last->next) = event;
        queue->last = event;
        queue->count++;
    }
    if (queue->keeps)
        pthread_mutex_unlock(&queue->lock);
    atomic_store_explicit(&queue->unflushed, true, memory_order_release);
    return status;
}

/* Called by the enqueuing thread: whoever uses the queue next is told. */
static void queue_fail(struct clb_queue *queue, clb_status status)
{
    int none = CLB_OK;
    atomic_compare_exchange_strong(&queue->error, &none, status);
    queue->failed = true;
}

void clb_queue_carry_out(const struct clb_command *command, clb_event event)
{
    struct clb_queue *queue = command->queue;
    const bool asks = command->verb == CLB_ASK;
    clb_status status = asks ? command->ask(queue) : (clb_status)atomic_load(&queue->error);
    if (status == CLB_OK && !asks)
        status = carry_out(command, event);
    atomic_fetch_add(&queue->runtime->ended, 1);
    if (status != CLB_OK && !asks)
        queue_fail(queue, status);
    if (event != NULL && (asks || status != CLB_OK))
        clb_event_end(event, status);
}

/* The one way for all commands. `finishes`: see clb_event. */
static clb_status queue_give(struct clb_command command, bool finishes, clb_event *out)
{
    struct clb_queue *queue = command.queue;
    clb_status status = (clb_status)atomic_load(&queue->error);
    if (status != CLB_OK || clb_is_abandoned(queue->runtime))
        return status != CLB_OK ? status : CLB_ERR_OPENCL;
    clb_event event = queue->keeps || out != NULL ? event_new(queue) : NULL;
    if (event == NULL && (queue->keeps || out != NULL))
        return CLB_ERR_NOMEM;
    if (event != NULL)
        event->finishes = finishes;
    if (!finishes)
        atomic_store_explicit(&queue->busy, true, memory_order_relaxed);
    status =
        clb_enqueuer_exists() ? clb_enqueuer_post(&command, event) : carry_out(&command, event);
    if (status == CLB_OK && out != NULL)
        *out = event;
    else
        clb_event_drop(&event);
    return status;
}

/* ---- waiting ---- */

clb_status clb_event_wait(clb_event event)
{
    clb_signals_let_through();
    if (!event->queue->runtime->device.unified) {
        /* As clWaitForEvents does. */
        if (!clb_enqueuer_exists() && !clb_is_abandoned(event->queue->runtime))
            (void)!clb_queue_flush_now(event->queue);
        if (!clb_event_await_end(event))
            return CLB_ERR_OPENCL;
    }
    return clb_enqueuer_exists()
               ? event->status
               : end_of(event,
                        clb_cl_check(clb_cl.WaitForEvents(1, &event->handle), "clWaitForEvents"));
}

/* ---- finishing and checking ---- */

/* Ask on the thread that enters the driver, and wait for the answer if it is wanted. */
static clb_status queue_ask(struct clb_queue *queue, clb_status (*ask)(struct clb_queue *queue),
                            bool waits)
{
    const struct clb_command question = {.verb = CLB_ASK, .queue = queue, .ask = ask};
    if (clb_is_abandoned(queue->runtime))
        return CLB_ERR_OPENCL;
    if (waits)
        clb_signals_let_through();
    if (!clb_enqueuer_exists())
        return ask(queue);
    clb_event answer = waits ? event_new(queue) : NULL;
    if (waits && answer == NULL)
        return CLB_ERR_NOMEM;
    if (waits)
        atomic_store(&answer->is_watched, true); /* it ends by itself */
    clb_status status = clb_enqueuer_post(&question, answer);
    if (status == CLB_OK && waits)
        status = clb_event_wait(answer);
    clb_event_drop(&answer);
    return status;
}

clb_status clb_queue_flush_now(struct clb_queue *queue)
{
    if (!atomic_exchange(&queue->unflushed, false))
        return CLB_OK;
    clb_status status = clb_cl_check(clb_cl.Flush(queue->handle), "clFlush");
    if (status != CLB_OK && clb_enqueuer_is_self)
        queue_fail(queue, status);
    return status;
}

clb_status clb_queue_flush(struct clb_queue *queue)
{
    const clb_status status = queue_ask(queue, clb_queue_flush_now, false);
    clb_signals_let_through();
    return status;
}

static clb_status queue_error(struct clb_queue *queue)
{
    const clb_status error = (clb_status)atomic_load(&queue->error);
    return error == CLB_OK && queue->failed ? CLB_ERR_OPENCL : error;
}

static clb_status look_now(struct clb_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    clb_status status = queue->failed ? CLB_ERR_OPENCL : clb_queue_look(queue);
    pthread_mutex_unlock(&queue->lock);
    return status;
}

clb_status clb_queue_check(struct clb_queue *queue)
{
    const clb_status error = queue_error(queue);
    return !queue->keeps || error != CLB_OK ? error : queue_ask(queue, look_now, true);
}

/* Behind the last command there is a barrier, *last, after whose end clFinish does not wait; none
 * where memory is shared, and waits have no end. False when there is nothing to finish. */
bool clb_queue_finish_begin(struct clb_queue *queue, clb_event *last)
{
    *last = NULL;
    if (!atomic_exchange(&queue->busy, false))
        return false;
    queue->unended = true;
    if (!queue->runtime->device.unified &&
        queue_give((struct clb_command){.verb = CLB_BARRIER, .queue = queue}, true, last) == CLB_OK)
        (void)!clb_queue_flush(queue);
    return true;
}

/* Without a barrier, because memory is shared or it could not be had, clFinish waits. */
clb_status clb_queue_finish_end(struct clb_queue *queue, bool begun, clb_event last)
{
    clb_status status = CLB_OK;
    if (begun)
        status = last != NULL ? clb_event_wait(last) : queue_ask(queue, finish_now, true);
    clb_event_drop(&last);
    clb_event_drop(&queue->mark);
    if (queue->unended)
        queue->failed = true;
    const clb_status error = queue_error(queue);
    return error != CLB_OK ? error : status;
}

clb_status clb_queue_finish(struct clb_queue *queue)
{
    clb_event last;
    const bool begun = clb_queue_finish_begin(queue, &last);
    return clb_queue_finish_end(queue, begun, last);
}

clb_status clb_queue_confirm(struct clb_queue *queue)
{
    return queue->keeps ? clb_queue_finish(queue) : CLB_OK;
}

/* ---- launches ---- */

clb_status clb_kernel_launch(struct clb_queue_set *queue_set, struct clb_program *program,
                             const char *name, const struct clb_geometry *geometry,
                             struct clb_order order, const struct clb_argument *arguments,
                             size_t count)
{
    struct clb_queue *queue = order.queue != NULL ? order.queue : queue_set->queue;
    struct clb_command command = {.verb = CLB_LAUNCH,
                                  .queue = queue,
                                  .name = name,
                                  .arguments = arguments,
                                  .count = count,
                                  .geometry = geometry,
                                  .after = order.after};
    CLB_TRY(clb_queue_set_kernel(queue_set, program, name, &command.kernel));
    if (queue->report == NULL)
        CLB_TRY(clb_queue_count_launches(queue));
    const bool marks = ++queue->unmarked >= LAUNCHES_AHEAD; /* later launches wait for this one */
    if (marks && queue->mark != NULL)
        CLB_TRY(clb_event_wait(queue->mark));
    if (marks)
        clb_event_drop(&queue->mark);
    CLB_TRY(queue_give(command, false, marks ? &queue->mark : order.event));
    if (marks) {
        queue->unmarked = 0;
        if (order.event != NULL)
            clb_event_retain(*order.event = queue->mark);
    }
    atomic_fetch_add_explicit(&queue->given, 1, memory_order_relaxed);
    return CLB_OK;
}

bool clb_queue_shows_memory(const struct clb_queue *queue)
{
    return (queue->runtime->device.type & CL_DEVICE_TYPE_CPU) != 0 && queue->report != NULL &&
           atomic_load(&queue->runtime->counts_launches);
}

clb_event clb_queue_last_event(struct clb_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    clb_event last = queue->first != NULL ? queue->last : NULL;
    if (last != NULL)
        clb_event_retain(last);
    pthread_mutex_unlock(&queue->lock);
    return last;
}

clb_status clb_queue_map_results(struct clb_queue *queue, const struct clb_buffer *buffer,
                                 size_t size, const void **results, void **mapped, clb_event *event)
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

/* ---- commands that move or map memory, and waits for them ---- */

/* When this returns, the command no longer uses the host memory, unless clFinish has failed. */
static clb_status wait_for(struct clb_queue *queue, clb_event event)
{
    clb_status status = clb_event_wait(event);
    clb_event_drop(&event);
    if (status != CLB_OK) {
        (void)!clb_queue_finish(queue);
        return status;
    }
    return clb_queue_check(queue);
}

static clb_status transfer(struct clb_queue *queue, enum clb_verb verb, cl_mem mem,
                           const struct clb_box *box, void *host, clb_event after, clb_event *event)
{
    static const char *const names[] = {[CLB_WRITE] = "upload",
                                        [CLB_WRITE_COPY] = "upload",
                                        [CLB_READ] = "download",
                                        [CLB_UNMAP] = NULL};
    const struct clb_command command = {.verb = verb,
                                        .queue = queue,
                                        .name = names[verb],
                                        .mem = mem,
                                        .box = box,
                                        .host = host,
                                        .after = after};
    return queue_give(command, false, event);
}

clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                           const void *host, clb_event after, clb_event *event)
{
    return transfer(queue, CLB_WRITE, mem, box, (void *)(uintptr_t)host, after, event);
}

clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                          void *host, clb_event after, clb_event *event)
{
    return transfer(queue, CLB_READ, mem, box, host, after, event);
}

/* An abandoned device may still transfer, so its memory is a copy, and is not freed then. */
static clb_status transfer_now(struct clb_queue *queue, enum clb_verb verb, cl_mem mem,
                               size_t offset, size_t size, void *host)
{
    const bool copies = !queue->runtime->device.unified;
    void *memory = copies ? malloc(clb_max(size, 1)) : host;
    clb_event moved = NULL;
    if (memory == NULL)
        return CLB_ERR_NOMEM;
    if (copies && verb == CLB_WRITE)
        memcpy(memory, host, size);
    clb_status status = transfer(queue, verb, mem, CLB_LINE(offset, size), memory, NULL, &moved);
    if (status == CLB_OK)
        status = wait_for(queue, moved);
    else
        (void)!clb_queue_finish(queue);
    if (copies && verb == CLB_READ && status == CLB_OK)
        memcpy(host, memory, size);
    if (copies && !queue->unended)
        free(memory);
    return status;
}

/* Most bytes that a request has a copy of. */
#define MOST_COPIED ((size_t)4096)

/* With a copy, this need not wait for the commands ahead. */
clb_status clb_queue_write_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                               const void *host)
{
    void *memory = (void *)(uintptr_t)host;
    return clb_enqueuer_exists() && size <= MOST_COPIED
               ? transfer(queue, CLB_WRITE_COPY, mem, CLB_LINE(offset, size), memory, NULL, NULL)
               : transfer_now(queue, CLB_WRITE, mem, offset, size, memory);
}

clb_status clb_queue_read_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                              void *host)
{
    return transfer_now(queue, CLB_READ, mem, offset, size, host);
}

clb_status clb_queue_barrier(struct clb_queue *queue, clb_event after, clb_event *event)
{
    return transfer(queue, CLB_BARRIER, NULL, NULL, NULL, after, event);
}

clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped)
{
    return transfer(queue, CLB_UNMAP, mem, NULL, mapped, NULL, NULL);
}

/* What an enqueuing thread maps is known when it has enqueued the command. */
clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, clb_event *event)
{
    const struct clb_command command = {.verb = CLB_MAP,
                                        .queue = queue,
                                        .mem = mem,
                                        .flags = flags,
                                        .offset = offset,
                                        .size = size};
    clb_event now = NULL;
    *mapped = NULL;
    CLB_TRY(queue_give(command, false, &now));
    clb_status status = clb_enqueuer_exists() ? clb_event_wait(now) : CLB_OK;
    if (status == CLB_OK)
        *mapped = now->mapped;
    if (status == CLB_OK && event != NULL) {
        *event = now;
        return CLB_OK;
    }
    const clb_status waited = wait_for(queue, now);
    return status != CLB_OK ? status : waited;
}
