/* The calls in flight. */
#include "inflight.h"

#include <math.h>

/* More threads share places, so that fewer calls are counted. */
enum { PLACES = 128 };

/* A call counts until twice its expected time has passed. */
#define PATIENCE 2

static struct inflight_place {
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
        const struct inflight_place *place = &places[i];
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
    struct inflight_place *place = &places[own - 1];
    atomic_store_explicit(&place->seconds, side == CLB_SIDE_DEVICE ? seconds : -seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&place->until, clb_now() + PATIENCE * expected, memory_order_relaxed);
}

void clb_inflight_end(void)
{
    if (own != 0)
        atomic_store_explicit(&places[own - 1].until, 0, memory_order_relaxed);
}
