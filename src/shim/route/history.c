/* What calls teach, and which other calls there are. SPDX-License-Identifier: BSD-3-Clause */
#include "history.h"

#include "host/host.h"

#include <math.h>
#include <string.h>

/* ---- seconds ---- */

/* The shortest times are seldom reached again, least of all by many threads. */
void clb_time_add(struct clb_time *time, double seconds)
{
    float sorted[CLB_TIME_RECENT];
    size_t count = 0;
    time->recent[time->count % CLB_TIME_RECENT] = (float)seconds;
    for (size_t i = 0; i < CLB_TIME_RECENT; i++) {
        size_t place = count;
        if (time->recent[i] <= 0)
            continue;
        for (; place > 0 && sorted[place - 1] > time->recent[i]; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = time->recent[i];
        count++;
    }
    time->seconds = sorted[(count - 1) / 2];
    time->count += time->count < UINT16_MAX;
}

#define MARGIN_MEASURED 1.05
#define MARGIN_BY_TABLE 1.1

bool clb_prediction_is_for_device(const struct clb_prediction *prediction)
{
    const double margin = prediction->measured ? MARGIN_MEASURED : MARGIN_BY_TABLE;
    return margin * prediction->device < prediction->next;
}

/* ---- entries ---- */

enum {
    NEEDED = 2, /* times of a side before they count */
    FIRST = 2,  /* the first call that may go to the other side; then */
    LATER = 8   /* times as many */
};

/* Calls so soon after a change of side are not counted: threads are still waking up, caches have
 * other data. To a call that takes ten times as long that makes no difference. */
#define SETTLING 1.5e-3
#define SETTLED  10.0
/* Shorter calls have one time for so long, their mean: a CPU that wakes up for each of a device's
 * first calls after a pause, of ten or thirty, soon waits for the next one instead. */
#define PERIOD      3e-3
#define LEAST_LOSS  0.05 /* of a call's time, that one on the other side is expected to lose */
#define AT_FIRST    5e-3 /* seconds that may be lost so, */
#define SHARE       0.01 /* of the time of all calls, */
#define SHARE_SAVED 0.1  /* and of what calls on the device have saved */
#define FAR         0.3  /* of a call's time, or a period, is lost: the row ends */

/* What rows lost or may lose; all calls; what those on the device have saved; under the lock. */
static double spent, seconds_of_all, saved;
static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;

static bool has_key(struct clb_history_entry *entry, const struct clb_history_key *key)
{
    for (size_t i = 0; i < CLB_HISTORY_WORDS; i++) {
        if (atomic_load_explicit(&entry->word[i], memory_order_relaxed) != key->word[i])
            return false;
    }
    return true;
}

/* Takes the lock. Another call's entry may be taken. A forked child begins anew. */
static struct clb_history_entry *take(const struct clb_history_key *key)
{
    if (clb_lock(&lock))
        clb_history_clear();
    struct clb_history_entry *entry = clb_history_place(key);
    if (has_key(entry, key))
        return entry;
    clb_history_publish(entry, key, NULL);
    entry->declined = 0;
    entry->trying = false;
    memset(&entry->side, 0, sizeof *entry - offsetof(struct clb_history_entry, side));
    entry->next = FIRST;
    return entry;
}

/* NAN: not known. */
static double seconds_of(const struct clb_history_entry *entry, clb_side side)
{
    const struct clb_time *time = &entry->side[side];
    return time->count >= NEEDED ? (double)time->seconds : NAN;
}

void clb_history_correct(const struct clb_history_key *key, double work, bool thin,
                         struct clb_prediction *alone)
{
    int exponent = 0;
    (void)frexp(work, &exponent);
    struct clb_history_entry *entry = take(key);
    entry->class = (exponent > 0 ? (unsigned)exponent * 2 / 3 : 0) * 2 + thin;
    struct clb_history_class *class = clb_history_class_of(key, entry->class);
    entry->valid = atomic_load_explicit(&class->version, memory_order_relaxed);
    entry->model = clb_prediction_is_known(alone) ? alone->device : 0;
    /* Where such calls were measured, what one of them takes longer says half of another one. */
    if (class->factor > 0)
        alone->device *= alone->measured ? sqrt((double)class->factor) : (double)class->factor;
    /* What such calls have taken counts for more than what is predicted. */
    const double device = seconds_of(entry, CLB_SIDE_DEVICE),
                 next = seconds_of(entry, CLB_SIDE_NEXT);
    alone->device = device > 0 ? device : alone->device;
    alone->next = next > 0 ? next : alone->next;
    clb_unlock(&lock);
}

void clb_history_decide(const struct clb_history_key *key, const struct clb_decision *decision)
{
    clb_history_publish(take(key), key, decision);
    clb_unlock(&lock);
}

static clb_side other_than(clb_side side)
{
    return side == CLB_SIDE_DEVICE ? CLB_SIDE_NEXT : CLB_SIDE_DEVICE;
}

static double side_of(const struct clb_prediction *prediction, clb_side side)
{
    return side == CLB_SIDE_DEVICE ? prediction->device : prediction->next;
}

static bool is_settled(double took)
{
    return took >= SETTLED * SETTLING;
}

/* How many calls go to the other side one after the other, so that enough of them count. */
static unsigned row_of(double there)
{
    const double calls = (SETTLING + NEEDED * PERIOD) / fmax(there, 1e-6);
    return is_settled(there) ? NEEDED : (unsigned)ceil(fmax(calls, NEEDED + 1));
}

/* Where the other side is close, and rows are expected to lose little beside all calls. */
static bool tries_now(struct clb_history_entry *entry, clb_side better, double here, double there)
{
    const unsigned row = row_of(there);
    const double loss = row * fmax(there - here, LEAST_LOSS * here);
    if (entry->left > 0) {
        entry->left--;
        return entry->tried != better;
    }
    if (entry->calls < entry->next || there > CLB_HISTORY_CLOSE * here ||
        spent + loss > AT_FIRST + SHARE * seconds_of_all + SHARE_SAVED * saved)
        return false;
    spent += loss;
    entry->here = fmax(here, (double)entry->side[better].seconds);
    entry->expected = loss;
    entry->lost = entry->times = 0;
    /* At most: they may be shorter than was predicted. */
    entry->left = is_settled(there) ? row - 1 : 2 * row - 1;
    entry->tried = other_than(better);
    entry->next = entry->calls + FIRST;
    return true;
}

bool clb_history_tries(const struct clb_history_key *key, unsigned calls, bool disturbed,
                       struct clb_prediction *alone)
{
    struct clb_history_entry *entry = take(key);
    const double device = seconds_of(entry, CLB_SIDE_DEVICE);
    const double next = seconds_of(entry, CLB_SIDE_NEXT);
    if (device > 0 && next > 0)
        *alone = (struct clb_prediction){.device = device, .next = next, .measured = true};
    const clb_side better = clb_prediction_is_for_device(alone) ? CLB_SIDE_DEVICE : CLB_SIDE_NEXT;
    const double known = seconds_of(entry, better);
    const double here = known > 0 ? known : side_of(alone, better);
    const double there = side_of(alone, other_than(better));
    entry->calls += calls;
    /* Those that were not asked about. */
    entry->passed += entry->last == better ? here * (calls - 1) : 0;
    seconds_of_all += here * calls;
    saved += better == CLB_SIDE_DEVICE ? fmax(0, fmin(there - here, here)) * calls : 0;
    const bool tries = !disturbed && tries_now(entry, better, here, there);
    atomic_store_explicit(&entry->trying, entry->left > 0, memory_order_relaxed);
    clb_unlock(&lock);
    return tries;
}

bool clb_history_learn(const struct clb_history_key *key, clb_side side, double seconds)
{
    struct clb_history_entry *entry = take(key);
    const bool in_row = entry->left > 0 && side == entry->tried;
    if (side != entry->last)
        entry->passed = entry->sum = entry->counted = 0;
    entry->last = side;
    const bool counts = seconds > 0 && (entry->passed >= SETTLING || is_settled(seconds));
    if (entry->passed > 0 || is_settled(seconds))
        entry->lost += fmax(0, seconds - entry->here);
    entry->sum += counts ? seconds : 0;
    entry->counted += counts;
    entry->passed += fmax(0, seconds);
    entry->passed = counts ? entry->passed : fmin(entry->passed, SETTLING);
    if (entry->passed >= SETTLING + PERIOD) {
        clb_time_add(&entry->side[side], entry->sum / entry->counted);
        entry->passed = SETTLING;
        entry->sum = entry->counted = 0;
        entry->times++;
    }
    if (in_row) {
        entry->next = LATER * entry->calls;
        entry->left += isnan(seconds) != 0;
        if (entry->times >= NEEDED || entry->lost > fmax(PERIOD, FAR * entry->here)) {
            spent += entry->lost - entry->expected;
            entry->left = 0;
        }
        atomic_store_explicit(&entry->trying, entry->left > 0, memory_order_relaxed);
    }
    clb_unlock(&lock);
    return counts;
}

/* The first calls of a work have results checked and memory made. Of the next ones and the
 * prediction itself the factor is the mean; later ones move it by a thirty-second of what it was
 * off, and by twice it at most: a longer call was disturbed. */
#define UNCOUNTED  2
#define REMEMBERED 32
#define MOST_WRONG 2.0
#define UNNOTICED  0.05F

void clb_history_learn_work(const struct clb_history_key *key, double seconds, double crowding)
{
    const struct clb_history_entry *entry = take(key);
    struct clb_history_class *class = clb_history_class_of(key, entry->class);
    if (entry->model > 0 && seconds > 0 && class->calls++ >= UNCOUNTED) {
        const double factor = class->factor > 0 ? (double)class->factor : 1;
        const double off = fmin(seconds / crowding / entry->model, MOST_WRONG * factor) - factor;
        if (class->factor <= 0)
            class->announced = 1;
        class->factor =
            (float)(factor + off / crowding / fmin(class->calls - UNCOUNTED + 1, REMEMBERED));
        if (fabsf(class->factor - class->announced) > UNNOTICED * class->announced) {
            class->announced = class->factor;
            atomic_fetch_add(&class->version, 1);
        }
    }
    clb_unlock(&lock);
}

/* ---- other threads' calls ---- */

/* More threads share places, so that fewer calls are counted. */
enum { PLACES = 128 };

#define PATIENCE 2

static struct thread_place {
    _Atomic double until;   /* by clb_now */
    _Atomic double seconds; /* negative: in the next library */
} places[PLACES];
static atomic_size_t threads; /* that have a place */

/* Of this thread, from 1. */
static CLB_THREAD size_t own;

double clb_history_beside(const struct clb_prediction *alone)
{
    double others = 0;
    const size_t used = clb_min(atomic_load_explicit(&threads, memory_order_relaxed), PLACES);
    if (used == 0 || (used == 1 && own != 0))
        return others;
    const double now = clb_now();
    for (size_t i = 0; i < used; i++) {
        const struct thread_place *place = &places[i];
        if (own == i + 1 || atomic_load_explicit(&place->until, memory_order_relaxed) <= now)
            continue;
        const double seconds = atomic_load_explicit(&place->seconds, memory_order_relaxed);
        others += fmin(1, seconds > 0 ? seconds / alone->device : -seconds / alone->next);
    }
    return others;
}

void clb_history_begin(clb_side side, double seconds, double expected)
{
    if (own == 0)
        own = atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % PLACES + 1;
    struct thread_place *place = &places[own - 1];
    atomic_store_explicit(&place->seconds, side == CLB_SIDE_DEVICE ? seconds : -seconds,
                          memory_order_relaxed);
    atomic_store_explicit(&place->until, clb_now() + PATIENCE * expected, memory_order_relaxed);
}

void clb_history_end(void)
{
    if (own != 0)
        atomic_store_explicit(&places[own - 1].until, 0, memory_order_relaxed);
}

double clb_history_crowding(clb_side side, double others, double used, double cpus)
{
    return side == CLB_SIDE_DEVICE ? 1 + others : fmax(1, (1 + others) * fmin(used, cpus) / cpus);
}
