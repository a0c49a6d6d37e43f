/* transfer queue: moves matrices between the caller's memory and a device that has its own.
 *
 * A matrix is moved in pieces through pinned memory by staging threads, CPU threads lent to the
 * queue. For an upload a thread copies a piece into a pinned slot and enqueues its transfer; for a
 * download it enqueues the transfer, awaits it, and writes the slot to the caller's matrix. The
 * calling thread enqueues the kernels: it waits until an upload has been enqueued, and releases a
 * download when its kernels have been. If no threads can be lent, it does the work of one whenever
 * it would wait. SPDX-License-Identifier: BSD-3-Clause
 *
 * In each direction pieces are handed out in the order of the array of transfers, and never before
 * their transfer is released. A thread waits only for commands that have been enqueued, so there is
 * always progress, also where the calling thread waits for that thread.
 *
 * Several transfers may use the same device memory one after the other: an upload can be held back
 * until the work on the memory's previous content has been enqueued.
 *
 * Products (gemm/discrete.c) and factorisations (lapack/) differ in this:
 *
 *                          factorisations (`in_order`)    products
 *   results are written    in order                       as they arrive, each by itself
 *   a thread's downloads   one at a time                  the next begins before one is written
 *   slots of a thread      two for both directions        two for each direction
 *   the device waits for   an event behind all pieces,    the events of the pieces, which are on
 *     an upload by         on the one upload queue        several queues
 *   a thread that waits    sleeps                         stays awake for AWAKE_SECONDS before
 *   with one thread        it stages                      the calling thread stages alone
 *   pages of C             are faulted in by writes       are faulted in before, see next_job
 *   small matrices         the same                       gathered, see `gathers`
 *   a piece is copied by   alpha, order and shape         functions that know the operands, and
 *                                                         C = alpha*P + beta*C */
#ifndef CLB_TRANSFER_QUEUE_H
#define CLB_TRANSFER_QUEUE_H

#include "engine/kernel/kernel.h"

#include <pthread.h>
#include <stdatomic.h>

/* The directions, as indices. */
enum { CLB_UP, CLB_DOWN };

/* Threads of a queue, unless more are asked for; CLB_MAX_WORKERS at most. */
#define CLB_TRANSFER_THREADS ((size_t)12)

/* All entries of a rectangle, those on and below a diagonal, or on and above it. The device
 * transfers rectangles; only the CPU's copies leave out entries. */
typedef enum clb_transfer_shape {
    CLB_TRANSFER_WHOLE,
    CLB_TRANSFER_LOWER,
    CLB_TRANSFER_UPPER
} clb_transfer_shape;

/* A matrix, or part of one, to move. x has the host's rows and columns, or those of its adjoint. */
struct clb_transfer {
    bool down, by_rows; /* by_rows: pieces are blocks of rows */
    /* An upload that waits for its release, as all uploads after it and all downloads do. */
    bool held;
    struct clb_dmat x;
    char *host;
    size_t ld;
    size_t column; /* downloads: the column of `prefault` that the first one of x is written to */
    const void *alpha; /* factor for uploads of a whole matrix without an order */
    /* Row i of the destination is row order[i] of the source; or NULL. Not by rows. */
    const cl_uint *order;
    clb_transfer_shape shape; /* which entries the host has; the others of x are undefined */
    ptrdiff_t diagonal;       /* unless WHOLE: the row of x in which the diagonal begins */
    bool adjoint;             /* of a whole matrix: the host has its conjugate transpose */

    /* Set by the transfer queue, unless the caller has: */
    size_t extent;  /* rows or columns of a piece */
    size_t slot_ld; /* leading dimension of a piece in its slot; pieces that have that of x are
                     * moved without a stride, gaps included */

    /* Set by the transfer queue. */
    size_t first_piece, pieces;
    size_t at;        /* where gathered pieces begin in the buffer */
    size_t done;      /* uploads: pieces enqueued; downloads in order: pieces arrived */
    size_t written;   /* downloads: pieces in the caller's memory */
    clb_event before; /* the transfer waits for this: from then on x may be overwritten, or read */
    clb_event ready;  /* uploads of factorisations: x is complete */
};

struct clb_transfer_queue;

/* A staging thread, or the calling thread in place of one. */
struct clb_transfer_thread {
    struct clb_transfer_queue *transfers;
    bool uploads_first;
    bool helps;      /* no piece is left to upload; set with a download piece */
    size_t touching; /* the prefault unit that it faults in, plus one; or 0 */
    struct clb_buffer *slot[4];
    size_t turn[2];    /* pieces that went through slots 0 and 1, through 2 and 3 */
    clb_event busy[4]; /* uploads from the slots; events of `moved` */
    size_t pending;    /* the download piece in transfer, plus one; or 0 */
    size_t pending_slot;
    clb_event pending_event;
    /* The upload piece that is being copied, for threads that help with it (copy_shares): `ticket`
     * has piece + 1 in its high half and the next column in its low half, `copied` counts copied
     * columns, `at` is the slot. */
    _Atomic uint64_t ticket;
    _Atomic size_t copied, at;
    double since; /* the end of the last span of the trace */
};

struct clb_transfer_queue {
    /* Set by the caller before clb_transfer_queue_open. */
    struct clb_queue_set *const *queue_set; /* all whose commands a download depends on */
    size_t queue_sets;
    size_t queues; /* pieces use the transfer queues of the first so many queue sets in turn */
    clb_precision precision;
    struct clb_transfer *transfer; /* uploads, then downloads, in order; outlives the queue */
    size_t uploads, downloads;
    size_t slot_bytes;     /* at least; raised to the largest piece */
    size_t wanted_threads; /* 0: as many as there are CPUs and work for */
    size_t most_threads;
    /* A downloaded piece is written only when all before it have arrived in their slots. So
     * whatever fails, the first pieces up to some number are written completely, and no others. */
    bool in_order;
    /* For small matrices, nothing of which is held, in pieces without a stride: all have places in
     * one pinned buffer, and the calling thread alone enqueues and awaits transfers. What has been
     * copied of an upload is one command. So there are few, and threads don't wait for each other
     * in the driver. */
    bool gathers;
    /* How pieces are copied; NULL: as the transfer says. Any thread may call this, to copy the
     * columns `rect` of an upload's piece to `slot` (CLB_OK), or to write a download's piece
     * (CLB_ERR_RANGE: it has not, and the run will not be complete). */
    clb_status (*copy)(void *context, const struct clb_transfer *transfer,
                       const struct clb_rect *rect, char *slot);
    void *context;
    bool *written; /* for each download piece, or NULL; what is true already is not moved again */

    /* May be set before the start: pages that threads fault in before results are written to them;
     * `next` is used under the lock. */
    struct clb_prefault prefault;

    /* Private, but for `pieces`. Arrays of two are for uploads and for downloads. */
    struct clb_runtime *runtime;
    size_t element;
    size_t pieces[2]; /* of all transfers */
    struct clb_workers workers;
    struct clb_transfer_thread thread[CLB_MAX_WORKERS];
    size_t threads;

    /* For each piece; parts of one array. `event`, of enqueued uploads: written under the lock,
     * read by the calling thread after it has seen under the lock that all of the transfer are; of
     * gathered downloads: the calling thread's. `done`, under the lock: gathered uploads are in the
     * buffer; downloads in order are in their slots. */
    clb_event *event[2];
    bool *done[2];

    /* The calling thread's, but for the content of the buffer. */
    struct {
        struct clb_buffer *buffer; /* NULL: transfers are staged; set before the start */
        size_t bytes;
        size_t sent;  /* uploads: pieces that have been enqueued */
        size_t asked; /* downloads: pieces that have been enqueued; `released` have arrived */
    } gathered;

    pthread_mutex_t lock;
    pthread_cond_t work;    /* staging threads wait for something to do */
    pthread_cond_t advance; /* the calling thread waits for transfers, threads for their turn */
    atomic_uint
        wakes; /* how often either was signalled; threads that stay awake read it unlocked */

    /* All below: under the lock, by all threads. */
    size_t next[2];     /* pieces handed out */
    size_t released[2]; /* pieces that may be moved */
    /* In order: the first so many download pieces are in their slots and will be written. */
    size_t arrived;
    bool complete;     /* nothing more will be released */
    bool stopped;      /* no more uploads; downloads that have been released are still done */
    bool left_out;     /* a piece was not written, although nothing has failed */
    clb_status status; /* the first failure */
};

/* Bytes of a piece and of a slot. */
#define CLB_PIECE_BYTES ((size_t)4 << 20)

/* The number of columns of a piece, for columns of `bytes` bytes: at most `most`, so that small
 * matrices are moved in several pieces too. */
static inline size_t clb_piece_columns(size_t bytes, size_t most)
{
    return clb_max(clb_min(CLB_PIECE_BYTES / bytes, most), 1);
}

/* Make pieces, get slots and threads. On failure only clb_transfer_queue_close has to be called. */
clb_status clb_transfer_queue_open(struct clb_transfer_queue *transfers) CLB_MUST_CHECK;

/* Start the threads, of which `uploaders` prefer uploads. */
void clb_transfer_queue_start(struct clb_transfer_queue *transfers, size_t uploaders);

/* Factorisations: wait until all pieces of an upload have been enqueued, and make later commands on
 * `queue` wait until it is complete; with NULL, until all of a download is in its slots, so that
 * its device memory may be reused. CLB_ERR_RANGE, here and below: it is stopped. */
clb_status clb_transfer_queue_await(struct clb_transfer_queue *transfers, size_t transfer,
                                    struct clb_queue *queue) CLB_MUST_CHECK;
/* Products: the same, without a queue: the upload is complete after the *count events at *events,
 * which the queue owns. */
clb_status clb_transfer_queue_await_events(struct clb_transfer_queue *transfers, size_t transfer,
                                           const clb_event **events, size_t *count) CLB_MUST_CHECK;
/* Whether clb_transfer_queue_await would not block for an upload. */
bool clb_transfer_queue_has(struct clb_transfer_queue *transfers, size_t transfer);

/* Let a held upload, or a download, begin when all commands that `queue` has now are done. The
 * caller may set its x and order until now. Releases are in the order of the array. */
clb_status clb_transfer_queue_release(struct clb_transfer_queue *transfers, size_t transfer,
                                      struct clb_queue *queue) CLB_MUST_CHECK;
/* Wake the threads that wait for a release, which will come soon. */
void clb_transfer_queue_announce(struct clb_transfer_queue *transfers);

/* The same after the event `before`, which the caller sets and the queue releases. */
void clb_transfer_queue_release_now(struct clb_transfer_queue *transfers, size_t transfer);

/* Download only the first `cols` columns, at least one, of a transfer: before any download is
 * released; no later one may be. */
void clb_transfer_queue_shorten(struct clb_transfer_queue *transfers, size_t transfer, size_t cols);

/* Wait until a download is in the caller's memory. */
clb_status clb_transfer_queue_await_written(struct clb_transfer_queue *transfers,
                                            size_t transfer) CLB_MUST_CHECK;

/* Upload nothing more, because results have to be computed in another way; for `copy`. */
void clb_transfer_queue_stop(struct clb_transfer_queue *transfers);

/* Release the events of uploads, all of which have been awaited, before the end. */
void clb_transfer_queue_forget_uploads(struct clb_transfer_queue *transfers);

/* Nothing more will be released; if `status` is a failure, give up. Waits for the threads' end and
 * returns the first failure, or CLB_ERR_RANGE when pieces were left out for other reasons. In
 * order, the first `arrived` download pieces are in the caller's memory then. */
clb_status clb_transfer_queue_finish(struct clb_transfer_queue *transfers,
                                     clb_status status) CLB_MUST_CHECK;

/* Release everything. `idle`: no command is outstanding on the queue sets. */
void clb_transfer_queue_close(struct clb_transfer_queue *transfers, bool idle);

/* The rectangle of the matrix that a piece covers. */
struct clb_rect clb_transfer_piece(const struct clb_transfer *transfer, size_t piece);

/* Make an event, for other queues, for the end of all commands that `queue` has now. */
clb_status clb_queue_mark(struct clb_queue *queue, clb_event *event) CLB_MUST_CHECK;
/* Make `to` wait, by a barrier, until all commands that `from` has now are done. */
clb_status clb_queue_join(struct clb_queue *from, struct clb_queue *to) CLB_MUST_CHECK;

/* Enqueue a transfer between a device matrix and a host matrix of the same size; does not block. */
clb_status clb_dmat_write(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                          const void *host, size_t ld, clb_event *event) CLB_MUST_CHECK;
clb_status clb_dmat_read(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                         void *host, size_t ld, clb_event *event) CLB_MUST_CHECK;

/* ---- what transfer_queue.c and gathered.c use of each other ---- */

/* A piece's transfer, the last one in its direction that begins no later, and its rectangle. */
struct clb_transfer *clb_transfer_of(const struct clb_transfer_queue *transfers, bool down,
                                     size_t piece, struct clb_rect *rect);
/* Wake so many of the threads that wait for this; all with SIZE_MAX. Hold the lock, or a thread
 * that has just seen nothing to do would sleep all the same. */
void clb_transfer_queue_wake(struct clb_transfer_queue *transfers, pthread_cond_t *condition,
                             size_t threads);
/* Record the first failure and wake all threads; with the lock held. */
void clb_transfer_queue_fail(struct clb_transfer_queue *transfers, clb_status status);
/* Enqueue the transfer of a piece, once `before` has completed. */
clb_status clb_transfer_queue_enqueue(const struct clb_transfer_queue *transfers,
                                      const struct clb_transfer *transfer, size_t piece,
                                      const struct clb_rect *rect, void *slot,
                                      clb_event *event) CLB_MUST_CHECK;
/* Wait for the download of a piece, as far as it has one, and for what went wrong before it. */
clb_status clb_transfer_queue_arrive(const struct clb_transfer_queue *transfers,
                                     const struct clb_transfer *transfer,
                                     clb_event *event) CLB_MUST_CHECK;

clb_status clb_gathered_open(struct clb_transfer_queue *transfers) CLB_MUST_CHECK;
/* Where the first column of a rectangle is in the buffer for all pieces. */
char *clb_gathered_place(const struct clb_transfer_queue *transfers,
                         const struct clb_transfer *transfer, const struct clb_rect *rect);
/* Copy a piece into the buffer: any thread. */
void clb_gathered_copy(struct clb_transfer_queue *transfers, size_t piece);
/* Enqueue the download of all pieces of a transfer: this and the following, the calling thread. */
clb_status clb_gathered_ask(struct clb_transfer_queue *transfers,
                            const struct clb_transfer *transfer) CLB_MUST_CHECK;
/* With the lock held, which they give up meanwhile. Enqueue the next pieces of one transfer that
 * have been copied; false when there are none. */
bool clb_gathered_send(struct clb_transfer_queue *transfers);
/* Hand out the oldest enqueued download piece when it has arrived, or after waiting for it; false
 * when there is none. */
bool clb_gathered_receive(struct clb_transfer_queue *transfers, bool waits);
/* Do what is there to do; where that is nothing, copy a piece, or wait for a download if that is
 * what the thread needs. False when there is nothing of these either. */
bool clb_gathered_advance(struct clb_transfer_queue *transfers, bool down);

#endif
