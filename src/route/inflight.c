/* The calls in flight. */
#include "inflight.h"

#include <math.h>
#include <pthread.h>

/* More threads share places, so that fewer calls are counted. */
enum { PLACES = 128 };

/* A call counts until twice its expected time has passed. */
#define PATIENCE 2

static struct place {
    _Atomic double until;   /* by clb_now */
    _Atomic double seconds; /* negative: in the next library */
} places[PLACES];
static atomic_size_t threads; /* that have a place */

/* Of this thread, from 1. */
static CLB_THREAD size_t own;

double clb_inflight_beside(const struct clb_prediction *alone)
{
    double others = 0;
    const size_t used = clb_min(atomic_load_explicit(&threads, memory_order_relaxed), PLACES);
    if (used == 0 || (used == 1 && own != 0))
        return others;
    const double now = clb_now();
    for (size_t i = 0; i < used; i++) {
        const struct place *place = &places[i];
        if (own == i + 1 || atomic_load_explicit(&place->until, memory_order_relaxed) <= now)
            continue;
        const double seconds = atomic_load_explicit(&place->seconds, memory_order_relaxed);
        others += fmin(1, seconds > 0 ? seconds / alone->device : -seconds / alone->next);
    }
    return others;
}

void clb_inflight_begin(clb_side side, double seconds, double expected)
{
    if (own == 0)
        own = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % PLACES + 1;
    struct place *place = &places[own - 1];
    atomic_store_explicit(&place->seconds, side == CLB_SIDE_DEVICE ? seconds : -seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&place->until, clb_now() + PATIENCE * expected, memory_order_relaxed);
}

void clb_inflight_end(void)
{
    if (own != 0)
        atomic_store_explicit(&places[own - 1].until, 0, memory_order_relaxed);
}

/* ---- the gate -------------------------------------------------------------------------------- */

/* An H200 multiplies n = 512 2550, 3150, 2620 and 1120 times a second for 1, 4, 16 and 64 threads.
 */
enum { AT_ONCE = 4 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t inside;
static struct waiter {
    pthread_cond_t wake;
    bool entered;
    struct waiter *next;
} * first, **last = &first;

static void forget_in_child(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    inside = 0;
    first = NULL;
    last = &first;
}

static void watch_forks(void)
{
    clb_fork_on_child(forget_in_child);
}

/* With the lock held. */
static void take_out(const struct waiter *waiter)
{
    struct waiter **place = &first;
    while (*place != waiter)
        place = &(*place)->next;
    *place = waiter->next;
    if (waiter->next == NULL)
        last = place;
}

void clb_inflight_enter(double patience)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    if (inside >= AT_ONCE) {
        struct waiter self = {.wake = PTHREAD_COND_INITIALIZER};
        const struct timespec until = clb_time_of(clb_now() + patience);
        int status = 0;
        *last = &self;
        last = &self.next;
        while (!self.entered && status == 0)
            status = pthread_cond_clockwait(&self.wake, &lock, CLOCK_MONOTONIC, &until);
        pthread_cond_destroy(&self.wake);
        if (!self.entered)
            take_out(&self);
        inside += !self.entered;
    } else {
        inside++;
    }
    pthread_mutex_unlock(&lock);
}

void clb_inflight_leave(void)
{
    pthread_mutex_lock(&lock);
    if (first != NULL && inside <= AT_ONCE) {
        struct waiter *waiter = first;
        take_out(waiter);
        waiter->entered = true;
        pthread_cond_signal(&waiter->wake);
    } else {
        inside--;
    }
    pthread_mutex_unlock(&lock);
}
