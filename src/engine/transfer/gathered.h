/* gathered: what transfer_queue.c and gathered.c use of each other; theirs alone. */
#ifndef CLB_GATHERED_H
#define CLB_GATHERED_H

#include "transfer_queue.h"

/* ---- transfer_queue.c ------------------------------------------------------------------------ */

/* The transfer of a piece: the last one in its direction that begins no later. */
struct clb_transfer *clb_transfer_of(const struct clb_transfer_queue *transfers, bool down,
                                     size_t piece);
/* Wake so many of the threads that wait for this; all with SIZE_MAX. With the lock held, or a
 * thread that has just seen that nobody was woken would sleep all the same. */
void clb_transfer_queue_wake(struct clb_transfer_queue *transfers, pthread_cond_t *condition,
                             size_t threads);
/* Record the first failure and wake all threads; with the lock held. */
void clb_transfer_queue_fail(struct clb_transfer_queue *transfers, clb_status status);
/* Enqueue the transfer of a piece, once `before` has completed. */
clb_status clb_transfer_queue_enqueue(const struct clb_transfer_queue *transfers,
                                      const struct clb_transfer *transfer, size_t piece,
                                      const struct clb_rect *rect, void *slot,
                                      clb_event *event) CLB_MUST_CHECK;

/* ---- gathered.c ------------------------------------------------------------------------------ */

clb_status clb_gathered_open(struct clb_transfer_queue *transfers) CLB_MUST_CHECK;
/* Where the first column of a rectangle is in the buffer for all pieces. */
char *clb_gathered_place(const struct clb_transfer_queue *transfers,
                         const struct clb_transfer *transfer, const struct clb_rect *rect);
/* Copy a piece into the buffer: any thread. */
void clb_gathered_copy(struct clb_transfer_queue *transfers, size_t piece);
/* Enqueue the download of all pieces of a transfer: this and the following, the calling thread. */
clb_status clb_gathered_ask(struct clb_transfer_queue *transfers,
                            const struct clb_transfer *transfer) CLB_MUST_CHECK;

/* With the lock held, which they give up meanwhile. Enqueue the next pieces that have been copied,
 * as far as they are of one transfer; false when there are none. */
bool clb_gathered_send(struct clb_transfer_queue *transfers);
/* Hand out the oldest download piece that has been enqueued, when it has arrived or after waiting
 * for it; false when there is none. */
bool clb_gathered_receive(struct clb_transfer_queue *transfers, bool waits);
/* Do what is there to do; where that is nothing, copy a piece, or wait for a download if that is
 * what the thread needs. False when there is nothing of these either. */
bool clb_gathered_advance(struct clb_transfer_queue *transfers, bool down);

#endif
