/* repeated: calls that are made again and again. What was decided about one is remembered, and what
 * such calls take on both sides decides about later ones of this process.
 *
 * Predictions are for kinds of calls, and may be off for a call of a certain shape. So where they
 * are close, some calls of a row of equal ones go to the other side, and when both sides' times are
 * known these count and not the predictions. Nothing of it is written to the profile. */
#ifndef CLB_REPEATED_H
#define CLB_REPEATED_H

#include "profile.h"

/* What decides about a call, but for the profiles: the words that route.c makes of it. */
enum { CLB_ASKED_WORDS = 7 };
struct clb_asked {
    uint64_t word[CLB_ASKED_WORDS];
};

/* Why it was declined, a clb_reason, with the prediction for it alone. */
struct clb_declined {
    struct clb_prediction prediction;
    unsigned reason;
};

/* Changes whenever a prediction may have moved by more than 2 %. */
uint64_t clb_repeated_version(void);

/* Without locks, by any thread. remember: `valid` is clb_repeated_version() from before the call
 * was predicted; another call's place may be taken. recall: false when it was not remembered, or is
 * no longer valid; and, where that is wanted and predictions are close, now and then, or always if
 * it takes long, since such a call may be one that is timed. `calls` are those that it stands for
 * then. */
void clb_declined_remember(const struct clb_asked *asked, uint64_t valid,
                           const struct clb_declined *declined);
bool clb_declined_recall(const struct clb_asked *asked, bool asks_again,
                         struct clb_declined *declined, unsigned *calls);

/* A call is to be decided that stands for so many, with the prediction for it alone. Where the
 * times of such calls are known on both sides, they become the prediction. True: the call should go
 * to the other side than the prediction says, for its time there, which no other thread's call
 * disturbs. */
bool clb_repeated_tries(const struct clb_asked *asked, unsigned calls, bool disturbed,
                        struct clb_prediction *alone);

/* Such a call has taken so many seconds, undisturbed. */
void clb_repeated_learn(const struct clb_asked *asked, clb_side side, double seconds);

#endif
