/* The thread that enqueues: on some devices it alone calls the driver's functions that enqueue
 * commands, ask or wait for them.
 *
 * It carries out requests in their order, so that one may use what earlier ones have made. Only
 * those of queues for transfers overtake others, as soon as what they use has been made: enqueueing
 * a kernel takes some microseconds, and the link would be idle while those of a whole step are
 * enqueued. Nobody waits for a request: who wants to know what has become of a command has its
 * event watched. The thread asks the driver for watched commands again and again, because it could
 * not be called back from waiting. Where the driver does not return, whoever waits abandons the
 * device, and no more requests are left. SPDX-License-Identifier: BSD-3-Clause */
#include "cl.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#define STACK ((size_t)8 << 20) /* PoCL compiles kernels when they are enqueued */

/* How long it is awake without anything to do; after so long without an end of a command it sleeps
 * between two questions. */
#define AWAKE_SECONDS    50e-6
#define WATCH_SECONDS    10e-3
#define SHORTEST_SECONDS 50e-6
#define LONGEST_SECONDS  1e-3

static _Atomic(struct clb_request *) left; /* the latest first */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
atomic_bool clb_enqueuer_made;
static atomic_bool sleeps; /* it waits for `arrived`, or is about to */
static clb_event watched;  /* its own: what was enqueued first comes first */

/* Its own: requests that it has taken, the earliest first. */
struct line {
    struct clb_request *first, *last;
};
static struct line ahead, others;

CLB_THREAD bool clb_enqueuer_is_self;

bool clb_enqueuer_always;

/* ---- requests ---- */

/* Put all that have been left in their lines, the earliest first. */
static void take_requests(void)
{
    if (atomic_load_explicit(&left, memory_order_relaxed) == NULL)
        return;
    struct clb_request *latest = atomic_exchange(&left, NULL), *first = NULL, *next;
    for (; latest != NULL; latest = next) {
        next = latest->next;
        latest->next = first;
        first = latest;
    }
    for (; first != NULL; first = next) {
        struct line *line = first->overtakes ? &ahead : &others;
        next = first->next;
        first->next = NULL;
        *(line->first == NULL ? &line->first : &line->last->next) = first;
        line->last = first;
    }
}

/* Whether the command that it waits for is enqueued, or has ended. */
static bool is_ready(const struct clb_request *request)
{
    const struct clb_event *event = request->after;
    return event == NULL || event->handle != NULL || atomic_load(&event->ended);
}

/* The next request, or NULL. The earliest is always ready, so the first of one of the lines is. */
static struct clb_request *next_request(void)
{
    take_requests();
    struct clb_request *request = ahead.first;
    const bool overtakes = request != NULL && (others.first == NULL || is_ready(request));
    struct line *line = overtakes ? &ahead : &others;
    request = line->first;
    if (request != NULL)
        line->first = request->next;
    return request;
}

void clb_enqueuer_leave(struct clb_request *request)
{
    if (clb_enqueuer_is_self) {
        request->run(request);
        return;
    }
    request->next = atomic_load(&left);
    while (!atomic_compare_exchange_weak(&left, &request->next, request))
        continue;
    if (!atomic_load(&sleeps))
        return;
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&arrived);
    pthread_mutex_unlock(&lock);
}

/* ---- commands ---- */

#define MOST_ARGUMENTS 24
#define MOST_BYTES     16 /* of an argument */

/* A command with copies of all that it refers to; `memory` has the bytes to be written. */
struct posted {
    struct clb_request request;
    struct clb_command command;
    clb_event event; /* NULL where nobody wants it */
    struct clb_box box;
    struct clb_geometry geometry;
    struct clb_argument argument[MOST_ARGUMENTS];
    _Alignas(max_align_t) char value[MOST_ARGUMENTS][MOST_BYTES];
    char memory[];
};

static void run_posted(struct clb_request *request)
{
    static unsigned long turn;
    struct posted *posted = (struct posted *)(void *)request;
    if (posted->event != NULL)
        posted->event->turn = ++turn;
    clb_queue_carry_out(&posted->command, posted->event);
    clb_event_drop(&posted->event);
    clb_event_drop(&posted->command.after);
    free(posted);
}

static bool copy_launch(struct posted *posted, const struct clb_command *command)
{
    if (command->count > MOST_ARGUMENTS)
        return false;
    for (size_t i = 0; i < command->count; i++) {
        struct clb_argument *argument = &posted->argument[i];
        *argument = command->arguments[i];
        if (argument->value == NULL) /* so much local memory is asked for */
            continue;
        if (argument->size > MOST_BYTES)
            return false;
        argument->value = memcpy(posted->value[i], argument->value, argument->size);
    }
    posted->geometry = *command->geometry;
    posted->command.arguments = posted->argument;
    posted->command.geometry = &posted->geometry;
    return true;
}

clb_status clb_enqueuer_post(const struct clb_command *command, clb_event event)
{
    const size_t bytes = command->verb == CLB_WRITE_COPY ? command->box->size[0] : 0;
    struct posted *posted = malloc(sizeof *posted + bytes);
    if (posted == NULL)
        return CLB_ERR_NOMEM;
    posted->command = *command;
    posted->event = event;
    if (command->verb == CLB_LAUNCH && !copy_launch(posted, command)) {
        free(posted);
        return CLB_ERR_UNSUPPORTED;
    }
    if (command->verb == CLB_WRITE_COPY)
        posted->command.host = memcpy(posted->memory, command->host, bytes);
    if (command->box != NULL) {
        posted->box = *command->box;
        posted->command.box = &posted->box;
    }
    if (command->after != NULL)
        clb_event_retain(command->after);
    if (event != NULL)
        clb_event_retain(event);
    posted->request = (struct clb_request){
        .run = run_posted,
        .after = command->after,
        .overtakes = command->queue->is_for_transfers,
    };
    clb_enqueuer_leave(&posted->request);
    return CLB_OK;
}

/* ---- watched events ---- */

static void watch(struct clb_request *request)
{
    clb_event event = CLB_EVENT_OF(request);
    clb_event *end = &watched;
    while (*end != NULL && (*end)->turn < event->turn)
        end = &(*end)->next_watched;
    event->next_watched = *end;
    *end = event;
    /* As clWaitForEvents does. */
    if (!atomic_load(&event->ended))
        (void)!clb_queue_flush_now(event->queue);
}

void clb_enqueuer_watch(clb_event event)
{
    if (atomic_exchange(&event->is_watched, true))
        return;
    clb_event_retain(event);
    event->request =
        (struct clb_request){.run = watch, .overtakes = event->queue->is_for_transfers};
    clb_enqueuer_leave(&event->request);
}

/* The driver's word that a command has ended does not make its results visible; waiting does. */
static bool ask_for(clb_event event)
{
    if (atomic_load(&event->ended))
        return true;
    if (event->handle == NULL || clb_cl_event_is_pending(event->handle))
        return false;
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, &event->handle), "a command");
    clb_event_release_handle(event);
    clb_event_end(event, status);
    return true;
}

/* Ask for the commands that somebody waits for. True when one has ended. */
static bool look(void)
{
    bool any = false;
    for (clb_event *at = &watched; *at != NULL;) {
        clb_event event = *at, first = watched;
        while (first->queue != event->queue)
            first = first->next_watched;
        /* Queues are in order: a command can't end before an earlier one of its queue. */
        if (first != event || !ask_for(event)) {
            at = &event->next_watched;
            continue;
        }
        *at = event->next_watched;
        clb_event_drop(&event);
        any = true;
    }
    return any;
}

/* ---- the thread ---- */

static void sleep_until_asked(double seconds)
{
    const struct timespec until = clb_time_of(clb_now() + fmin(seconds, 1));
    pthread_mutex_lock(&lock);
    atomic_store(&sleeps, true);
    while (atomic_load(&left) == NULL) {
        if (seconds == INFINITY)
            pthread_cond_wait(&arrived, &lock);
        else if (pthread_cond_clockwait(&arrived, &lock, CLOCK_MONOTONIC, &until) != 0)
            break;
    }
    atomic_store(&sleeps, false);
    pthread_mutex_unlock(&lock);
}

static void *enqueue_for_all(void *unused)
{
    double busy = clb_now();
    (void)unused;
    clb_enqueuer_is_self = true;
    pthread_setname_np(pthread_self(), "clblas-queue");
    for (;;) {
        bool any = false;
        for (struct clb_request *request; (request = next_request()) != NULL; any = true) {
            request->run(request);
            look();
        }
        any = look() || any;
        const double now = clb_now(), elapsed = now - busy;
        if (any)
            busy = now;
        else if (watched != NULL && elapsed > WATCH_SECONDS)
            sleep_until_asked(fmin(fmax(elapsed / 256, SHORTEST_SECONDS), LONGEST_SECONDS));
        else if (watched == NULL && elapsed > AWAKE_SECONDS)
            sleep_until_asked(INFINITY);
        else
            sched_yield();
    }
    return NULL;
}

clb_status clb_enqueuer_start(const struct clb_device *device)
{
    if (device->unified || !(clb_enqueuer_always || clb_device_has(device, CLB_QUIRK_ONE_ENQUEUER)))
        return CLB_OK;
    clb_status status = clb_thread_start(STACK, enqueue_for_all, NULL);
    atomic_store(&clb_enqueuer_made, status == CLB_OK);
    return status;
}

/* Where the thread is stuck in the driver, the process waits once. */
void clb_enqueuer_await_idle(double seconds)
{
    static atomic_bool in_vain;
    const double end = clb_now() + seconds;
    while (clb_enqueuer_exists() && !clb_enqueuer_is_self && !atomic_load(&in_vain) &&
           !(atomic_load(&sleeps) && atomic_load(&left) == NULL)) {
        if (clb_now() >= end)
            atomic_store(&in_vain, true);
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
}
