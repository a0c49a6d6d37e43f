/* The thread that enqueues: on some devices it alone calls the driver's functions that enqueue
 * commands or ask and wait for them, for all threads of the process.
 *
 * Threads leave requests, which it carries out in their order: so a request may use what earlier
 * ones have made, whoever has left them. Only those of queues for transfers overtake others, as
 * soon as what they use has been made: enqueueing a kernel takes some microseconds, and the link
 * would be idle while those of a whole step are enqueued. Nobody waits for a request as such; who
 * wants to know what has become of one waits for its promise, by looking at it. The thread asks the
 * driver for the commands of watched promises again and again, awake while there are any, because
 * the driver could not be called back from waiting. Where the driver does not return from a call,
 * the thread stays there: the device is abandoned by who waits, and no more requests are left. */
#include "enqueuer.h"
#include "queue.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

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
static atomic_bool sleeps;          /* it waits for `arrived`, or is about to */
static struct clb_promise *watched; /* its own: the oldest first */

/* Its own: requests that it has taken, the earliest first. */
struct line {
    struct clb_request *first, *last;
};
static struct line ahead, others;

CLB_THREAD bool clb_enqueuer_is_self;

bool clb_enqueuer_always;

/* ---- requests -------------------------------------------------------------------------------- */

static bool is_abandoned(const struct clb_runtime *runtime)
{
    return CLB_UNLIKELY(atomic_load_explicit(&runtime->abandoned, memory_order_relaxed));
}

static void line_add(struct line *line, struct clb_request *request)
{
    request->next = NULL;
    if (line->first == NULL)
        line->first = request;
    else
        line->last->next = request;
    line->last = request;
}

/* Put all that have been left in their lines. */
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
        next = first->next;
        line_add(first->overtakes ? &ahead : &others, first);
    }
}

/* The request that is to be carried out, NULL if there is none. The earliest of all is always
 * ready, so where the first of one line is not, that of the other is. */
static struct clb_request *next_request(void)
{
    take_requests();
    struct clb_request *request = ahead.first;
    const bool overtakes = request != NULL && (request->is_ready == NULL || others.first == NULL ||
                                               request->is_ready(request));
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

/* ---- promises -------------------------------------------------------------------------------- */

struct clb_promise *clb_promise_new(struct clb_runtime *runtime)
{
    struct clb_promise *promise = calloc(1, sizeof *promise);
    if (promise == NULL)
        return NULL;
    promise->runtime = runtime;
    atomic_init(&promise->references, 1);
    return promise;
}

static void promise_destroy(struct clb_request *request)
{
    struct clb_promise *promise = (struct clb_promise *)request;
    if (promise->event != NULL)
        clb_cl.ReleaseEvent(promise->event);
    free(promise);
}

void clb_promise_retain(struct clb_promise *promise)
{
    atomic_fetch_add(&promise->references, 1);
}

/* An abandoned driver is not entered, so an event is left to it. */
void clb_promise_release(struct clb_promise *promise)
{
    if (promise == NULL || atomic_fetch_sub(&promise->references, 1) > 1)
        return;
    promise->request = (struct clb_request){.run = promise_destroy};
    if (promise->event == NULL)
        promise_destroy(&promise->request);
    else if (!is_abandoned(promise->runtime))
        clb_enqueuer_leave(&promise->request);
}

void clb_promise_end(struct clb_promise *promise, clb_status status)
{
    clb_status more = promise->then != NULL ? promise->then(promise->queue) : CLB_OK;
    promise->status = status != CLB_OK ? status : more;
    atomic_fetch_add(&promise->runtime->ended, 1);
    atomic_store(&promise->ended, true);
}

static void watch_promise(struct clb_request *request)
{
    struct clb_promise *promise =
        (struct clb_promise *)((char *)request - offsetof(struct clb_promise, watch));
    struct clb_promise **end = &watched;
    while (*end != NULL)
        end = &(*end)->next;
    *end = promise;
    promise->next = NULL;
    /* As clWaitForEvents does. */
    if (!atomic_load(&promise->ended))
        clb_queue_flush_now(promise->queue);
}

bool clb_promise_has_ended(struct clb_promise *promise)
{
    if (atomic_load(&promise->ended))
        return true;
    if (!is_abandoned(promise->runtime) && !atomic_exchange(&promise->is_watched, true)) {
        clb_promise_retain(promise);
        promise->watch = (struct clb_request){
            .run = watch_promise, .overtakes = clb_queue_is_for_transfers(promise->queue)};
        clb_enqueuer_leave(&promise->watch);
    }
    return atomic_load(&promise->ended);
}

/* The driver's word that a command has ended does not make its results visible; waiting does. */
static bool ask_for(struct clb_promise *promise)
{
    if (atomic_load(&promise->ended))
        return true;
    if (promise->event == NULL || clb_cl_event_is_pending(promise->event))
        return false;
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, &promise->event), "a command");
    clb_cl.ReleaseEvent(promise->event);
    promise->event = NULL;
    clb_promise_end(promise, status);
    return true;
}

/* Queues are in order: a command can't end before an earlier one of its queue. */
static bool is_behind_another(const struct clb_promise *promise)
{
    const struct clb_promise *other = watched;
    while (other != promise && other->queue != promise->queue)
        other = other->next;
    return other != promise;
}

/* Ask for the commands that somebody waits for. True when one has ended. */
static bool look(void)
{
    bool any = false;
    for (struct clb_promise **at = &watched; *at != NULL;) {
        struct clb_promise *promise = *at;
        if (is_behind_another(promise) || !ask_for(promise)) {
            at = &promise->next;
            continue;
        }
        *at = promise->next;
        clb_promise_release(promise);
        any = true;
    }
    return any;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Sleep until there is a request, for ever or so many seconds. */
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

/* Carry out all requests, and look for ends meanwhile. False when there was nothing to do. */
static bool work(void)
{
    bool any = false;
    for (struct clb_request *request; (request = next_request()) != NULL; any = true) {
        request->run(request);
        look();
    }
    return look() || any;
}

static void *enqueue_for_all(void *unused)
{
    double busy = clb_now();
    (void)unused;
    clb_enqueuer_is_self = true;
    pthread_setname_np(pthread_self(), "clblas-queue");
    for (;;) {
        const bool any = work();
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

/* It is idle when it sleeps and nothing is left for it. Where it was left in the driver, the
 * process waits once. */
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
