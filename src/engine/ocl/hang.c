/* Waiting for a device that may hang. SPDX-License-Identifier: BSD-3-Clause
 *
 * A device with its own memory may stop working while the CPU can still finish the call. So a wait
 * asks the driver again and again, at intervals of a 256th of the time that has passed and awake at
 * first, instead of waiting in the driver, which nothing could end. The time in which no command
 * ends is a sum of short intervals, so that it does not grow while the process is stopped. When it
 * exceeds what calls expect (clb_runtime_expect), the device is abandoned: no function of queue.c
 * enters the driver to enqueue or wait any more, and all report an error.
 *
 * Where memory is shared a wait has no end: kernels may be reading the caller's matrices. */
#include "cl.h"

#include <math.h>
#include <sched.h>
#include <time.h>

#define AWAKE_SECONDS    10e-3
#define SHORTEST_SECONDS 50e-6
#define LONGEST_SECONDS  1e-3
#define COUNTED_SECONDS  10e-3 /* of an interval, at most */
#define LEAST_LIMIT      30.0  /* until a call has said more: checks of kernels take less */

bool clb_event_await_end(clb_event event)
{
    struct clb_queue *queue = event->queue;
    struct clb_runtime *runtime = queue->runtime;
    double begin = clb_now(), last = begin, idle = 0;
    unsigned seen = atomic_load(&runtime->ended);
    while (!clb_is_abandoned(runtime)) {
        if (!clb_event_is_pending(event)) {
            atomic_fetch_add(&runtime->ended, 1);
            return true;
        }
        if (event->finishes && queue->keeps && !clb_enqueuer_exists()) {
            /* A queue that is finished makes progress with each of its commands. */
            pthread_mutex_lock(&queue->lock);
            const size_t count = queue->count;
            (void)!clb_queue_look(queue);
            atomic_fetch_add(&runtime->ended, queue->count < count);
            pthread_mutex_unlock(&queue->lock);
        }
        const double now = clb_now();
        const unsigned ended = atomic_load(&runtime->ended);
        idle = ended != seen ? 0 : idle + fmin(now - last, COUNTED_SECONDS);
        seen = ended;
        last = now;
        const double pause = (now - begin) / 256;
        const unsigned millis = atomic_load_explicit(&runtime->hang_millis, memory_order_relaxed);
        if (millis != UINT_MAX && idle > (millis == 0 ? LEAST_LIMIT : 1e-3 * millis)) {
            clb_runtime_abandon(runtime, idle);
        } else if (now - begin < AWAKE_SECONDS) {
            do
                sched_yield();
            while (clb_now() < now + pause);
        } else {
            const double seconds = fmin(fmax(pause, SHORTEST_SECONDS), LONGEST_SECONDS);
            nanosleep(&(struct timespec){0, (long)(1e9 * seconds)}, NULL);
        }
    }
    return false;
}
