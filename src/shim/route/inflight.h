/* inflight: the calls of this process that are in flight, for predictions of a call beside them.
 *
 * A thread has a place, where it notes each call that is worth a prediction, and until when the
 * call will last as predicted. It counts no longer, so that none has to be ended: an error handler
 * may jump out of a call of the next library, and a child's other threads are gone. */
#ifndef CLB_INFLIGHT_H
#define CLB_INFLIGHT_H

#include "cost.h"

/* How many calls other threads are at, beside one of which the seconds on both sides are known:
 * each by how much of this one's time it lasts, one at most. */
double clb_inflight_beside(const struct clb_prediction *alone);

/* This thread begins a call which takes so many seconds alone, and is expected to take `expected`.
 */
void clb_inflight_begin(clb_side side, double seconds, double expected);

/* Its call has ended. Calls of the next library need not be ended. */
void clb_inflight_end(void);

#endif
