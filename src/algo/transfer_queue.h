/* transfers: the caller's matrices to and from a device with its own memory.
 *
 * Matrices travel in pieces through pinned memory: CPU threads, lent for the run, copy a piece of
 * the caller's into a slot and enqueue its transfer on the upload queue, or enqueue a transfer on
 * the download queue, wait for it and copy the slot's content out. Pieces are taken in the order of
 * the loads, those that come down when they have been published. Where no threads can be lent the
 * calling thread does the same whenever it would wait for it.
 *
 * A piece that comes down is written to the caller's memory only when all pieces before it have
 * arrived in their slots. So what is written in the end is always a number of first pieces, each
 * completely, whatever fails.
 *
 * Loads may share memory on the device one after the other: those that go up can be held back until
 * what had the memory before is done with. */
#ifndef CLB_FERRY_H
#define CLB_FERRY_H

#include "dmat.h"

#include <pthread.h>

#define CLB_MAX_TRANSFER_THREADS 12

/* All entries of a rectangle, those on and below a diagonal, or on and above it. Transfers take
 * rectangles; it is the CPU's copies that keep to the shape. */
typedef enum clb_transfer_shape {
    CLB_TRANSFER_WHOLE,
    CLB_TRANSFER_LOWER,
    CLB_TRANSFER_UPPER
} clb_transfer_shape;

/* A matrix or part of one on its way. `x` is as large as what the host has. */
struct clb_transfer {
    bool down, by_rows; /* pieces are blocks of rows */
    bool held;          /* up: not before clb_transfer_queue_release, as all loads behind it */
    struct clb_dmat x;
    char *host;
    size_t ld;
    const void *alpha;    /* up, without an order: times the host's matrix */
    const cl_uint *order; /* row i of what is written is row order[i] of what is read; or NULL */
    clb_transfer_shape shape; /* which entries the host has; the others of x are undefined */
    ptrdiff_t diagonal; /* where it is no rectangle: the row of x that the diagonal begins in */

    /* The transfers's. */
    size_t first_piece, pieces;
    size_t extent;  /* rows or columns of a piece; may be set before */
    size_t done;    /* pieces enqueued (up) or arrived (down) */
    size_t written; /* down: pieces in the caller's memory */
    cl_event ready; /* up: x is complete; down: x may be read */
};

/* Columns [k, k + width) of a triangle of order x->rows between the device's x and the caller's
 * memory, where the triangle begins at `a`. */
struct clb_transfer clb_transfer_of_triangle(const struct clb_dmat *x, size_t element, bool upper,
                                             size_t k, size_t width, void *a, size_t ld);

struct clb_transfer_queue;

struct clb_transfer_thread {
    struct clb_transfer_queue *transfers;
    struct clb_buffer *slot[2];
    cl_event busy[2]; /* transfers out of the slots */
    size_t turn;
};

struct clb_transfer_queue {
    struct clb_runtime *runtime;
    struct clb_queue_set *queue_set; /* its upload and download queues */
    clb_precision precision;
    size_t element, slot_bytes;
    struct clb_transfer *transfer; /* loads that go up, then those that come down, in order */
    size_t transfer_count;
    size_t up_pieces, down_pieces; /* in all */
    struct clb_workers workers;
    struct clb_transfer_thread thread[CLB_MAX_TRANSFER_THREADS];
    size_t threads;

    /* Shared by the threads, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t next_up, next_down; /* pieces handed out; those that come down count from 0 */
    size_t released;           /* pieces that may go up */
    size_t published;          /* pieces that may come down */
    size_t arrived;            /* the first ones that are in their slots, hence get written */
    bool *has_arrived;         /* each */
    bool complete;
    clb_status status; /* the first failure */
};

/* Bytes of a piece and slot. */
#define CLB_PIECE_BYTES ((size_t)4 << 20)

/* Columns of a piece of a matrix whose columns have so many bytes: at most `most`, so that small
 * matrices travel in several pieces too. */
static inline size_t clb_piece_columns(size_t bytes, size_t most)
{
    return clb_max(clb_min(CLB_PIECE_BYTES / bytes, most), 1);
}

/* Cut the loads into pieces and get slots and threads: `wanted` of them where that is not 0. The
 * array is the caller's and stays. On failure only clb_transfer_queue_close is left to do. */
clb_status clb_transfer_queue_open(struct clb_transfer_queue *transfers,
                                   struct clb_queue_set *queue_set, clb_precision precision,
                                   struct clb_transfer *transfer, size_t transfer_count,
                                   size_t wanted) CLB_MUST_CHECK;

/* Let the threads begin. */
void clb_transfer_queue_start(struct clb_transfer_queue *transfers);

/* Have commands that are enqueued on `queue` from now on wait until a load is on the device. */
clb_status clb_transfer_queue_await(struct clb_transfer_queue *transfers, size_t transfer,
                                    struct clb_queue *queue) CLB_MUST_CHECK;

/* A held load may go up when what `queue` has now is done; what it goes to and its order may be set
 * until then. In order. */
clb_status clb_transfer_queue_release(struct clb_transfer_queue *transfers, size_t transfer,
                                      struct clb_queue *queue) CLB_MUST_CHECK;
/* Whether that would not wait: a load is under way, all of it, or the transfers has failed. */
bool clb_transfer_queue_has(struct clb_transfer_queue *transfers, size_t transfer);

/* A load may come down when what `queue` has now is done. In order. */
clb_status clb_transfer_queue_publish(struct clb_transfer_queue *transfers, size_t transfer,
                                      struct clb_queue *queue) CLB_MUST_CHECK;

/* Before anything is published: of a load that comes down only the first columns, at least one, are
 * wanted, and it will be the last that is published. */
void clb_transfer_queue_shorten(struct clb_transfer_queue *transfers, size_t transfer, size_t cols);

/* Wait until the device's memory of a load that comes down may be used again. */
clb_status clb_transfer_queue_await_arrival(struct clb_transfer_queue *transfers,
                                            size_t transfer) CLB_MUST_CHECK;
/* Wait until all of it is in the caller's memory. */
clb_status clb_transfer_queue_await_written(struct clb_transfer_queue *transfers,
                                            size_t transfer) CLB_MUST_CHECK;

/* Nothing more will be published; with a failure: give up. Waits for everything that is taken and
 * returns the first failure. The first `arrived` pieces are in the caller's memory then. */
clb_status clb_transfer_queue_finish(struct clb_transfer_queue *transfers,
                                     clb_status status) CLB_MUST_CHECK;

/* `idle`: nothing is under way on the queue_set. */
void clb_transfer_queue_close(struct clb_transfer_queue *transfers, bool idle);

/* The part of a load that its piece is. */
struct clb_rect clb_transfer_piece(const struct clb_transfer *transfer, size_t piece);

/* The event of what `queue` has now, for other queues. */
clb_status clb_queue_mark(struct clb_queue *queue, cl_event *event) CLB_MUST_CHECK;
/* Enqueue a barrier on `to`: it goes on when what `from` has now is done. */
clb_status clb_queue_join(struct clb_queue *from, struct clb_queue *to) CLB_MUST_CHECK;

/* Rectangular transfers between a device matrix and host memory of the same shape; not blocking. */
clb_status clb_dmat_write(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                          const void *host, size_t ld, cl_event *event) CLB_MUST_CHECK;
clb_status clb_dmat_read(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                         void *host, size_t ld, cl_event *event) CLB_MUST_CHECK;

#endif
