/* Calls that are made again and again. */
#include "repeated.h"

#include <math.h>
#include <string.h>

#define CLOSE 1.5  /* times as long as on the better side: farther away nothing is tried */
#define LONG  2e-3 /* seconds of a long call: few say enough, and asking costs nothing beside it */

static _Atomic uint64_t turns; /* calls that have begun to go to the other side */

uint64_t clb_repeated_version(void)
{
    return clb_profile_changes() + atomic_load_explicit(&turns, memory_order_acquire);
}

static size_t hash_of(const struct clb_asked *asked, int bits)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < CLB_ASKED_WORDS; i++)
        hash = (hash ^ asked->word[i]) * 0x9e3779b97f4a7c15U;
    return (size_t)(hash >> (64 - bits));
}

/* ---- declined calls -------------------------------------------------------------------------- */

/* The version of a place is odd while its words are written, and another one afterwards. */
enum { DECLINED_BITS = 6, DECLINED_WORDS = CLB_ASKED_WORDS + 4 };
static struct declined_place {
    _Atomic uint64_t version, word[DECLINED_WORDS];
    _Atomic unsigned calls; /* since it was remembered first; some may not be counted */
} declined_places[1 << DECLINED_BITS];

/* The first ones are asked about again, then each so manieth, of long ones each. */
enum { FIRST_CALLS = 6, ASKED_EVERY = 32 };

static struct declined_place *place_of(const struct clb_asked *asked)
{
    return &declined_places[hash_of(asked, DECLINED_BITS)];
}

void clb_declined_remember(const struct clb_asked *asked, uint64_t valid,
                           const struct clb_declined *declined)
{
    struct declined_place *place = place_of(asked);
    uint64_t word[DECLINED_WORDS];
    uint64_t version = atomic_load(&place->version);
    bool known = true;
    memcpy(word, asked->word, sizeof asked->word);
    memcpy(&word[CLB_ASKED_WORDS], &declined->prediction.device, sizeof *word);
    memcpy(&word[CLB_ASKED_WORDS + 1], &declined->prediction.next, sizeof *word);
    word[CLB_ASKED_WORDS + 2] = (uint64_t)declined->reason << 1 | declined->prediction.measured;
    word[CLB_ASKED_WORDS + 3] = valid;
    if (version % 2 != 0 || !atomic_compare_exchange_strong(&place->version, &version, version + 1))
        return;
    for (size_t i = 0; i < DECLINED_WORDS; i++) {
        known = known && (i >= CLB_ASKED_WORDS ||
                          atomic_load_explicit(&place->word[i], memory_order_relaxed) == word[i]);
        atomic_store_explicit(&place->word[i], word[i], memory_order_release);
    }
    if (!known)
        atomic_store_explicit(&place->calls, 0, memory_order_relaxed);
    atomic_store_explicit(&place->version, version + 2, memory_order_release);
}

bool clb_declined_recall(const struct clb_asked *asked, bool asks_again,
                         struct clb_declined *declined, unsigned *calls)
{
    struct declined_place *place = place_of(asked);
    uint64_t word[DECLINED_WORDS];
    const uint64_t version = atomic_load_explicit(&place->version, memory_order_acquire);
    *calls = 1;
    if (version == 0 || version % 2 != 0)
        return false;
    for (size_t i = 0; i < DECLINED_WORDS; i++)
        word[i] = atomic_load_explicit(&place->word[i], memory_order_acquire);
    if (atomic_load_explicit(&place->version, memory_order_relaxed) != version ||
        memcmp(word, asked->word, sizeof asked->word) != 0 ||
        word[CLB_ASKED_WORDS + 3] != clb_repeated_version())
        return false;
    memcpy(&declined->prediction.device, &word[CLB_ASKED_WORDS], sizeof *word);
    memcpy(&declined->prediction.next, &word[CLB_ASKED_WORDS + 1], sizeof *word);
    declined->prediction.measured = (word[CLB_ASKED_WORDS + 2] & 1) != 0;
    declined->reason = (unsigned)(word[CLB_ASKED_WORDS + 2] >> 1);
    if (!asks_again || !isless(declined->prediction.device, CLOSE * declined->prediction.next))
        return true;
    if (isgreaterequal(declined->prediction.next, LONG))
        return false;
    const unsigned count = atomic_load_explicit(&place->calls, memory_order_relaxed) + 1;
    atomic_store_explicit(&place->calls, count, memory_order_relaxed);
    *calls = count > FIRST_CALLS ? ASKED_EVERY : 1;
    return count > FIRST_CALLS && count % ASKED_EVERY != 0;
}

/* ---- both sides' times ----------------------------------------------------------------------- */

enum {
    SHAPE_BITS = 8,
    NEEDED = 3,      /* times of a side before they count, */
    NEEDED_LONG = 2, /* and of long calls */
    FIRST = 4,       /* the first call that may; then */
    LATER = 8        /* times as many */
};

/* The first call after those on the other side, and all of the first seconds, are not counted:
 * threads slept that are needed, or share a CPU, and caches have other data. To a call that takes
 * more times as long that makes no difference. */
#define SETTLING   1.5e-3
#define SETTLED    10.0
#define LEAST_LOSS 0.05 /* of a call's time, that one on the other side is expected to lose */
#define SHARE      0.01 /* of the time of all calls that may be lost so */
#define FAR        2.0  /* times as long as on the other side: the row ends */

static struct repeated_shape {
    struct clb_asked asked;
    struct clb_time side[CLB_SIDES];
    unsigned calls, next; /* so far; the next one that may go to the other side */
    unsigned left;        /* of a row */
    clb_side tried;       /* by it */
    clb_side last;        /* that has computed a call, */
    unsigned consecutive; /* so many that were timed, */
    double passed;        /* in so many seconds */
    bool is_long;
} shapes[1 << SHAPE_BITS];

static double spent, seconds;                         /* by rows, as expected, and by all calls */
static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* of shapes and of these */

/* Takes the lock. Another call's place may be taken. */
static struct repeated_shape *take(const struct clb_asked *asked)
{
    clb_lock(&lock);
    struct repeated_shape *shape = &shapes[hash_of(asked, SHAPE_BITS)];
    if (memcmp(&shape->asked, asked, sizeof *asked) != 0)
        *shape = (struct repeated_shape){.asked = *asked, .next = FIRST};
    return shape;
}

/* NAN: not known. */
static double seconds_of(const struct repeated_shape *shape, clb_side side)
{
    const struct clb_time *time = &shape->side[side];
    const unsigned needed = (double)time->seconds >= LONG ? NEEDED_LONG : NEEDED;
    return time->count >= needed ? (double)time->seconds : NAN;
}

static bool is_settled(double took)
{
    return took >= SETTLED * SETTLING;
}

/* How many calls go to the other side one after the other, so that enough of them count. */
static unsigned row_of(double there, bool is_long)
{
    const unsigned needed = is_long ? NEEDED_LONG : NEEDED;
    return is_settled(there) ? needed : needed + (unsigned)ceil(SETTLING / fmax(there, 1e-6));
}

bool clb_repeated_tries(const struct clb_asked *asked, unsigned calls, bool disturbed,
                        struct clb_prediction *alone)
{
    struct repeated_shape *shape = take(asked);
    const double device = seconds_of(shape, CLB_SIDE_DEVICE);
    const double next = seconds_of(shape, CLB_SIDE_NEXT);
    if (device > 0 && next > 0)
        *alone = (struct clb_prediction){.device = device, .next = next, .measured = true};
    const clb_side better = clb_cost_is_for_device(alone) ? CLB_SIDE_DEVICE : CLB_SIDE_NEXT;
    const double known = seconds_of(shape, better);
    const double expected = better == CLB_SIDE_DEVICE ? alone->device : alone->next;
    const double here = known > 0 ? known : expected;
    const double there = better == CLB_SIDE_DEVICE ? alone->next : alone->device;
    shape->is_long = isgreaterequal(fmin(here, there), LONG);
    const unsigned row = row_of(there, shape->is_long);
    const double loss = row * fmax(there - here, LEAST_LOSS * here);
    bool turns_now = false;
    shape->calls += calls;
    shape->passed += shape->last == better ? here * (calls - 1) : 0; /* that were not asked about */
    seconds += here * calls;
    if (shape->left > 0 && !disturbed) {
        shape->left--;
        turns_now = shape->tried != better;
    } else if (shape->left == 0 && !disturbed && shape->calls >= shape->next &&
               there <= CLOSE * here && spent + loss <= SHARE * seconds) {
        spent += loss;
        shape->left = row - 1;
        shape->tried = better == CLB_SIDE_DEVICE ? CLB_SIDE_NEXT : CLB_SIDE_DEVICE;
        turns_now = true;
        shape->next = shape->calls + FIRST;
        atomic_fetch_add(&turns, 1);
    }
    clb_unlock(&lock);
    return turns_now;
}

void clb_repeated_learn(const struct clb_asked *asked, clb_side side, double took)
{
    struct repeated_shape *shape = take(asked);
    const clb_side other = side == CLB_SIDE_DEVICE ? CLB_SIDE_NEXT : CLB_SIDE_DEVICE;
    const bool in_row = shape->left > 0 && side == shape->tried;
    if (side != shape->last)
        shape->passed = shape->consecutive = 0;
    shape->last = side;
    if ((++shape->consecutive > 1 && shape->passed >= SETTLING) || is_settled(took))
        clb_time_add(&shape->side[side], took);
    shape->passed += took;
    if (in_row)
        shape->next = LATER * shape->calls;
    if (in_row && (shape->consecutive > 1 || is_settled(took)) &&
        isgreater(took, FAR * seconds_of(shape, other)))
        shape->left = 0;
    clb_unlock(&lock);
}
