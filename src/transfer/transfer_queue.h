/* transfer queue: moves matrices between the caller's memory and a device that has its own.
 *
 * A matrix is moved in pieces through pinned memory by staging threads, CPU threads lent to the
 * queue. For an upload a thread copies a piece from the caller's matrix into a pinned slot and
 * enqueues the transfer on the upload queue. For a download it enqueues the transfer on the
 * download queue, waits for it, and copies the slot to the caller's matrix. Uploads are done in the
 * order of the array of transfers; downloads too, each after it has been published. If no threads
 * can be lent, the calling thread does the same whenever it would have to wait.
 *
 * A downloaded piece is written to the caller's memory only when all download pieces before it have
 * arrived in their slots. So whatever fails, in the end the first pieces up to some number are
 * written, each completely, and no others.
 *
 * Several transfers may use the same device memory one after the other: an upload can be held back
 * until the work on the memory's previous content is done. */
#ifndef CLB_TRANSFER_QUEUE_H
#define CLB_TRANSFER_QUEUE_H

#include "dense/dense.h"

#include <pthread.h>

#define CLB_MAX_TRANSFER_THREADS 12

/* All entries of a rectangle, those on and below a diagonal, or on and above it. The device always
 * transfers rectangles; only the CPU's copies leave out the other entries. */
typedef enum clb_transfer_shape {
    CLB_TRANSFER_WHOLE,
    CLB_TRANSFER_LOWER,
    CLB_TRANSFER_UPPER
} clb_transfer_shape;

/* One matrix, or part of one, to upload or download. `x` has as many rows and columns as the host's
 * matrix, or as many columns and rows if that is the adjoint. */
struct clb_transfer {
    bool down, by_rows; /* `down`: a download; `by_rows`: pieces are blocks of rows */
    /* An upload that waits for clb_transfer_queue_release, and so do all uploads after it in the
     * array. */
    bool held;
    struct clb_dmat x;
    char *host;
    size_t ld;
    const void *alpha; /* factor for uploads of a whole matrix without an order */
    /* Row i of the destination is row order[i] of the source; or NULL. */
    const cl_uint *order;
    clb_transfer_shape shape; /* which entries the host has; the others of x are undefined */
    ptrdiff_t diagonal;       /* unless WHOLE: the row of x in which the diagonal begins */
    bool adjoint;             /* of a whole matrix: the host has its conjugate transpose */

    /* Set by the transfer queue. */
    size_t first_piece, pieces;
    size_t extent;  /* rows or columns of a piece; the caller may set it before */
    size_t done;    /* uploads: pieces enqueued; downloads: pieces arrived */
    size_t written; /* downloads: pieces in the caller's memory */
    cl_event ready; /* uploads: x is complete; downloads: x may be read */
};

struct clb_transfer_queue;

struct clb_transfer_thread {
    struct clb_transfer_queue *transfers;
    struct clb_buffer *slot[2];
    cl_event busy[2]; /* transfers to or from the slots */
    size_t turn;
};

struct clb_transfer_queue {
    struct clb_runtime *runtime;
    struct clb_queue_set *queue_set; /* its upload and download queues */
    clb_precision precision;
    size_t element, slot_bytes;
    struct clb_transfer *transfer; /* the caller's array: uploads, then downloads, in order */
    size_t transfer_count;
    size_t up_pieces, down_pieces; /* pieces of all uploads, of all downloads */
    struct clb_workers workers;
    struct clb_transfer_thread thread[CLB_MAX_TRANSFER_THREADS];
    size_t threads;

    /* Used by all threads, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t next_up, next_down; /* pieces handed out; download pieces count from 0 */
    size_t released;           /* pieces that may be uploaded */
    size_t published;          /* pieces that may be downloaded */
    /* The first so many download pieces are in their slots and will be written. */
    size_t arrived;
    bool *has_arrived; /* for each download piece */
    bool complete;
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

/* Divide the transfers into pieces and get slots and threads: `wanted` threads if that is not 0.
 * The array belongs to the caller and must outlive the queue. On failure the caller only has to
 * call clb_transfer_queue_close. */
clb_status clb_transfer_queue_open(struct clb_transfer_queue *transfers,
                                   struct clb_queue_set *queue_set, clb_precision precision,
                                   struct clb_transfer *transfer, size_t transfer_count,
                                   size_t wanted) CLB_MUST_CHECK;

/* Start the threads. */
void clb_transfer_queue_start(struct clb_transfer_queue *transfers);

/* Make commands that are enqueued on `queue` from now on wait until an upload is complete. */
clb_status clb_transfer_queue_await(struct clb_transfer_queue *transfers, size_t transfer,
                                    struct clb_queue *queue) CLB_MUST_CHECK;

/* Let a held upload begin when all commands that `queue` has now are done. Until this call the
 * caller may set its x and order. Uploads must be released in the order of the array. */
clb_status clb_transfer_queue_release(struct clb_transfer_queue *transfers, size_t transfer,
                                      struct clb_queue *queue) CLB_MUST_CHECK;
/* True when all pieces of an upload have been enqueued, or a transfer has failed:
 * clb_transfer_queue_await would not block. For a download: when all pieces have arrived in their
 * slots. */
bool clb_transfer_queue_has(struct clb_transfer_queue *transfers, size_t transfer);

/* Let a download begin when all commands that `queue` has now are done. Downloads must be published
 * in the order of the array. */
clb_status clb_transfer_queue_publish(struct clb_transfer_queue *transfers, size_t transfer,
                                      struct clb_queue *queue) CLB_MUST_CHECK;

/* Download only the first `cols` columns, at least one, of a transfer. The caller must do this
 * before it publishes anything, and must publish no later transfer. */
void clb_transfer_queue_shorten(struct clb_transfer_queue *transfers, size_t transfer, size_t cols);

/* Wait until all of a download is in its slots, so that its device memory may be used again. */
clb_status clb_transfer_queue_await_arrival(struct clb_transfer_queue *transfers,
                                            size_t transfer) CLB_MUST_CHECK;
/* Wait until all of a download is in the caller's memory. */
clb_status clb_transfer_queue_await_written(struct clb_transfer_queue *transfers,
                                            size_t transfer) CLB_MUST_CHECK;

/* Nothing more will be published; if `status` is a failure, give up. Waits until the threads have
 * ended and returns the first failure. The first `arrived` download pieces are in the caller's
 * memory then. */
clb_status clb_transfer_queue_finish(struct clb_transfer_queue *transfers,
                                     clb_status status) CLB_MUST_CHECK;

/* Release everything. `idle`: no command is outstanding on the queue set. */
void clb_transfer_queue_close(struct clb_transfer_queue *transfers, bool idle);

/* The rectangle of a transfer's matrix that its piece number `piece` covers. */
struct clb_rect clb_transfer_piece(const struct clb_transfer *transfer, size_t piece);

/* Make an event that completes when all commands that `queue` has now are done; for use on other
 * queues. */
clb_status clb_queue_mark(struct clb_queue *queue, cl_event *event) CLB_MUST_CHECK;
/* Make `to` wait, by a barrier, until all commands that `from` has now are done. */
clb_status clb_queue_join(struct clb_queue *from, struct clb_queue *to) CLB_MUST_CHECK;

/* Enqueue a rectangular transfer between a device matrix and a host matrix of the same size; does
 * not block. */
clb_status clb_dmat_write(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                          const void *host, size_t ld, cl_event *event) CLB_MUST_CHECK;
clb_status clb_dmat_read(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                         void *host, size_t ld, cl_event *event) CLB_MUST_CHECK;

#endif
