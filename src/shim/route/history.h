/* history: what this process knows of the calls that it has made; no file has it.
 * SPDX-License-Identifier: BSD-3-Clause
 * An entry for each routine with its sizes, beside a next library with a number of threads, has the
 * seconds that such a call was predicted to take and has taken on either side, and the decision. So
 * a call that is made again is decided without predicting it, goes to the other side now and then
 * where that is nearly as fast, and to the side that has proved faster from then on; and it
 * corrects what is predicted for other sizes of about the same work. The history also knows the
 * calls that other threads are in, and the declined call that this thread is in. */
#ifndef CLB_HISTORY_H
#define CLB_HISTORY_H

#include "blas/blas.h"

#include <math.h>

typedef enum clb_side { CLB_SIDE_DEVICE, CLB_SIDE_NEXT, CLB_SIDES } clb_side;

/* ---- seconds ---- */

/* What calls of a kind take. add: the median of the last three counts, of two the shorter one,
 * since a first call takes longer. */
enum { CLB_TIME_RECENT = 3 };
struct clb_time {
    float seconds; /* 0: not measured */
    unsigned count;
    float recent[CLB_TIME_RECENT]; /* that this process has measured; 0: none */
};
void clb_time_add(struct clb_time *time, double seconds);

/* The seconds of a call on both sides. NAN: not known. */
struct clb_prediction {
    double device, next;
    bool measured; /* both follow from what was measured on this machine */
};
static inline bool clb_prediction_is_known(const struct clb_prediction *prediction)
{
    return isfinite(prediction->device) && isfinite(prediction->next);
}
/* Whether the device is faster by a margin, which is larger where the predictions are not from this
 * machine. Both sides must be known. */
bool clb_prediction_is_for_device(const struct clb_prediction *prediction);

/* The next library, beside which calls are decided. */
struct clb_next_library {
    const char *name; /* of its file, kept for good */
    bool optimised;
    int threads; /* that it uses */
};

/* ---- entries ---- */

/* What tells entries apart: words that decide.c makes of the call. The first holds the routine. */
enum { CLB_HISTORY_WORDS = 7 };
struct clb_history_key {
    uint64_t word[CLB_HISTORY_WORDS];
};

/* A decision, without regard to other threads' calls. */
struct clb_decision {
    struct clb_prediction alone;
    bool for_device;
    bool by_times;   /* the predicted times have decided, not a threshold */
    unsigned reason; /* a clb_reason, why it is declined */
};

/* The prediction of the device's seconds for that work, of calls with a `thin` size or others,
 * becomes what later calls have shown. The entry is taken from the call that had its place. */
void clb_history_correct(const struct clb_history_key *key, double work, bool thin,
                         struct clb_prediction *alone);

/* Remember a decision that follows from the last prediction; NULL: forget it. */
void clb_history_decide(const struct clb_history_key *key, const struct clb_decision *decision);

/* Decide all calls anew: what predictions follow from has changed. */
void clb_history_ask_anew(void);

/* Takes no lock, needs no guard of the host's state. False: decide the call anew, because none was,
 * another one has taken the place, or what is predicted for this work has moved by more than 5 %.
 * Where calls are timed on both sides (`timed`) and these are close, `asks` says that the call may
 * be one for clb_history_tries: each call for the device, of declined ones the first 6 and then
 * every 32nd, which stands for so many `calls`, and all that take long. */
bool clb_history_recall(const struct clb_history_key *key, bool timed,
                        struct clb_decision *decision, bool *asks, unsigned *calls);

/* A call is to be decided that stands for so many. Times that are known on both sides become the
 * prediction. True: it should go to the other side than the prediction says, for its time there,
 * which no other thread's call must disturb. */
bool clb_history_tries(const struct clb_history_key *key, unsigned calls, bool disturbed,
                       struct clb_prediction *alone);

/* Such a call has taken so many seconds, undisturbed by other threads' calls; NAN: its result was
 * verified, and the row is longer by it. False: that does not count, since threads and caches were
 * still at other calls. */
bool clb_history_learn(const struct clb_history_key *key, clb_side side, double seconds);

/* Such a call has taken so many seconds on the device, `crowding` times as long as alone: what is
 * predicted for its work comes nearer to that. */
void clb_history_learn_work(const struct clb_history_key *key, double seconds, double crowding);

/* ---- other threads' calls ---- */

/* A call of this thread begins on a side: seconds alone, and as expected. On the device it is over
 * with `end`; in the next library, from which an error handler may jump, when the thread's next
 * call begins; in any case after twice the expected time. */
void clb_history_begin(clb_side side, double seconds, double expected);
void clb_history_end(void);

/* How many calls of other threads there are beside one that takes so long alone. Shorter ones count
 * by their share of its time. */
double clb_history_beside(const struct clb_prediction *alone);

/* How many times as long as alone a call takes on a side, were so many others there too: the device
 * computes one after the other, and the next library's threads share the CPUs. Some on each side
 * would be quicker, did the device's transfers not wait for CPUs. */
double clb_history_crowding(clb_side side, double others, double threads, double cpus);

/* ---- the declined call that this thread is in ---- */

/* Calls that the next library makes by their names while it computes a declined call are inside
 * that one: the report has their time once. Where it `keeps` them they are declined, too, for so
 * many seconds, which were predicted for it. NULL: it is over. */
void clb_history_enclose(const struct clb_call *call, bool keeps, double seconds);
bool clb_history_is_inside(const struct clb_call *call);
bool clb_history_is_kept(const struct clb_call *call);

/* ---- what the files of the history have in common: no other's ---- */

/* Times as long as on the better side: farther away nothing is tried. Seconds of a long call: few
 * say enough, and asking costs nothing beside it. */
#define CLB_HISTORY_CLOSE 2.0
#define CLB_HISTORY_LONG  2e-3

enum { CLB_HISTORY_ENTRY_WORDS = CLB_HISTORY_WORDS + 4 };

struct clb_history_entry {
    /* Read by all threads without the lock: the key, the decision, and its class's version. The
     * entry's version is odd while the words are written, and another one afterwards. */
    _Atomic uint64_t version, word[CLB_HISTORY_ENTRY_WORDS];
    _Atomic unsigned declined; /* calls, since it was taken; some may not be counted */
    _Atomic bool trying;       /* calls of a row go to the other side */

    /* Under the lock. */
    struct clb_time side[CLB_SIDES];
    double model;          /* seconds on the device, not corrected; 0: not predicted */
    unsigned class, valid; /* of its work and shape, and that class's version when predicted */
    unsigned calls, next;  /* so far; the next one that may go to the other side */
    unsigned left;         /* of a row, at most */
    unsigned times;        /* that it has found */
    double here;           /* seconds on the better side when it began, predicted or measured */
    double expected, lost; /* seconds, by the row */
    clb_side tried;        /* by it */
    clb_side last;         /* that has computed a call; */
    double passed;         /* seconds of calls since then, or of settled ones since the last time */
    double sum, counted;   /* of those of them that count: their seconds, and how many */
};

/* Of a routine's calls of about the same work: the factor of the device's predicted seconds. The
 * version rises when that has moved by more than 5 %. Other fields under the lock. */
struct clb_history_class {
    _Atomic unsigned version;
    unsigned calls;
    float factor, announced; /* 0: 1 */
};

/* recall.c: the place of a call's entry, which may be another call's; a class of its routine. Write
 * an entry's key and decision (NULL: none), and forget all entries, both under the lock. */
struct clb_history_entry *clb_history_place(const struct clb_history_key *key);
struct clb_history_class *clb_history_class_of(const struct clb_history_key *key, unsigned class);
void clb_history_publish(struct clb_history_entry *entry, const struct clb_history_key *key,
                         const struct clb_decision *decision);
void clb_history_clear(void);

#endif
