/* Staged transfers of matrices between the caller's memory and a device, see transfer_queue.h. */
#include "transfer_queue.h"

#include <stdlib.h>

/* ---- pieces ---------------------------------------------------------------------------------- */

struct clb_rect clb_transfer_piece(const struct clb_transfer *transfer, size_t piece)
{
    const struct clb_dmat *x = &transfer->x;
    size_t first = piece * transfer->extent;
    if (transfer->by_rows)
        return (struct clb_rect){first, 0, clb_min(transfer->extent, x->rows - first), x->cols};
    return (struct clb_rect){0, first, x->rows, clb_min(transfer->extent, x->cols - first)};
}

/* Divide a transfer into pieces. A piece has at least one row or column; slots are as large as the
 * largest piece. */
static void transfer_queue_cut(struct clb_transfer_queue *transfers, struct clb_transfer *transfer)
{
    size_t all = transfer->by_rows ? transfer->x.rows : transfer->x.cols;
    size_t each = (transfer->by_rows ? transfer->x.cols : transfer->x.rows) * transfers->element;
    size_t *pieces = transfer->down ? &transfers->down_pieces : &transfers->up_pieces;
    if (transfer->extent == 0)
        transfer->extent = clb_max(CLB_PIECE_BYTES / clb_max(each, 1), 1);
    transfer->extent = clb_min(transfer->extent, clb_max(all, 1));
    transfer->pieces = clb_div_up(all, transfer->extent);
    transfer->first_piece = *pieces;
    transfer->done = transfer->written = 0;
    transfer->ready = NULL;
    *pieces += transfer->pieces;
    transfers->slot_bytes = clb_max(transfers->slot_bytes, transfer->extent * each);
}

static struct clb_transfer *transfer_of(const struct clb_transfer_queue *transfers, bool down,
                                        size_t piece)
{
    for (size_t i = 0; i < transfers->transfer_count; i++) {
        struct clb_transfer *transfer = &transfers->transfer[i];
        if (transfer->down == down && piece >= transfer->first_piece &&
            piece < transfer->first_piece + transfer->pieces)
            return transfer;
    }
    return NULL;
}

static char *host_of(const struct clb_transfer_queue *transfers,
                     const struct clb_transfer *transfer, const struct clb_rect *rect)
{
    size_t row = transfer->adjoint ? rect->col : rect->row;
    size_t col = transfer->adjoint ? rect->row : rect->col;
    return transfer->host + (row + col * transfer->ld) * transfers->element;
}

/* The row of a piece in which the diagonal begins. */
static ptrdiff_t diagonal_of(const struct clb_transfer *transfer, const struct clb_rect *rect)
{
    return transfer->diagonal + (ptrdiff_t)rect->col - (ptrdiff_t)rect->row;
}

/* ---- open, start, close ---------------------------------------------------------------------- */

static clb_status get_slots(struct clb_transfer_queue *transfers, size_t wanted)
{
    size_t pieces = transfers->up_pieces + transfers->down_pieces;
    clb_workers_lend(&transfers->workers,
                     clb_min(wanted != 0 ? wanted : pieces / 2, CLB_MAX_TRANSFER_THREADS),
                     wanted != 0);
    transfers->threads = clb_max(transfers->workers.count, 1);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < transfers->threads; i++) {
        struct clb_transfer_thread *thread = &transfers->thread[i];
        thread->transfers = transfers;
        for (size_t s = 0; s < CLB_COUNT_OF(thread->slot) && status == CLB_OK; s++)
            status = clb_buffer_get(transfers->runtime, CLB_MEMORY_HOST, transfers->slot_bytes,
                                    &thread->slot[s]);
    }
    return status;
}

clb_status clb_transfer_queue_open(struct clb_transfer_queue *transfers,
                                   struct clb_queue_set *queue_set, clb_precision precision,
                                   struct clb_transfer *transfer, size_t transfer_count,
                                   size_t wanted)
{
    *transfers = (struct clb_transfer_queue){.runtime = queue_set->runtime,
                                             .queue_set = queue_set,
                                             .precision = precision,
                                             .element = clb_precision_size(precision),
                                             .transfer = transfer,
                                             .transfer_count = transfer_count,
                                             .lock = PTHREAD_MUTEX_INITIALIZER,
                                             .changed = PTHREAD_COND_INITIALIZER};
    for (size_t i = 0; i < transfer_count; i++)
        transfer_queue_cut(transfers, &transfer[i]);
    transfers->released = transfers->up_pieces;
    for (size_t i = transfer_count; i-- > 0;)
        transfers->released = transfer[i].held ? transfer[i].first_piece : transfers->released;
    transfers->has_arrived = calloc(transfers->down_pieces + 1, sizeof *transfers->has_arrived);
    if (transfers->has_arrived == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_queue_set_open_queues(queue_set);
    if (status == CLB_OK)
        status = get_slots(transfers, wanted);
    return status;
}

static void transfer_queue_release_event(cl_event *event)
{
    if (*event != NULL)
        clb_event_release(*event);
    *event = NULL;
}

void clb_transfer_queue_close(struct clb_transfer_queue *transfers, bool idle)
{
    if (transfers->runtime == NULL)
        return;
    clb_workers_return(&transfers->workers);
    for (size_t i = 0; i < transfers->transfer_count; i++)
        transfer_queue_release_event(&transfers->transfer[i].ready);
    for (size_t i = 0; i < transfers->threads; i++) {
        for (size_t s = 0; s < CLB_COUNT_OF(transfers->thread[i].slot); s++) {
            transfer_queue_release_event(&transfers->thread[i].busy[s]);
            clb_buffer_end(transfers->runtime, transfers->thread[i].slot[s], idle);
        }
    }
    free(transfers->has_arrived);
    pthread_mutex_destroy(&transfers->lock);
    pthread_cond_destroy(&transfers->changed);
    transfers->runtime = NULL;
}

/* ---- one piece ------------------------------------------------------------------------------- */

static void fail(struct clb_transfer_queue *transfers, clb_status status)
{
    pthread_mutex_lock(&transfers->lock);
    if (transfers->status == CLB_OK)
        transfers->status = status;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->lock);
}

static clb_status transfer_queue_wait_for_slot(struct clb_transfer_thread *thread, size_t slot)
{
    if (thread->busy[slot] == NULL)
        return CLB_OK;
    return clb_queue_set_await(thread->transfers->queue_set, &thread->busy[slot]);
}

static clb_status transfer_queue_bring_up(struct clb_transfer_thread *thread, size_t piece)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    struct clb_transfer *transfer = transfer_of(transfers, false, piece);
    const struct clb_rect rect = clb_transfer_piece(transfer, piece - transfer->first_piece);
    const struct clb_dmat x = clb_dmat_part(&transfer->x, rect.row, rect.col, rect.rows, rect.cols);
    size_t turn = thread->turn++ % CLB_COUNT_OF(thread->slot);
    void *slot = thread->slot[turn]->host;
    clb_status status = transfer_queue_wait_for_slot(thread, turn);
    if (status != CLB_OK)
        return status;
    if (transfer->order != NULL)
        clb_copy_ordered(transfers->precision, rect.rows, rect.cols, transfer->order + rect.row,
                         transfer->host + rect.col * transfer->ld * transfers->element,
                         transfer->ld, slot, rect.rows);
    else if (transfer->shape != CLB_TRANSFER_WHOLE)
        clb_copy_trapezoid(transfers->precision, transfer->shape == CLB_TRANSFER_UPPER,
                           diagonal_of(transfer, &rect), rect.rows, rect.cols,
                           host_of(transfers, transfer, &rect), transfer->ld, slot, rect.rows);
    else if (transfer->adjoint)
        clb_copy_adjoint(transfers->precision, rect.rows, rect.cols,
                         host_of(transfers, transfer, &rect), transfer->ld, slot, rect.rows);
    else
        clb_merge_tile(transfers->precision, rect.rows, rect.cols, transfer->alpha,
                       host_of(transfers, transfer, &rect), transfer->ld,
                       clb_scalar_zero(transfers->precision), slot, rect.rows);
    status = clb_dmat_write(transfers->queue_set->upload, &x, transfers->element, slot, rect.rows,
                            &thread->busy[turn]);
    if (status == CLB_OK)
        status = clb_queue_flush(transfers->queue_set->upload);
    pthread_mutex_lock(&transfers->lock);
    /* After the last piece the event marks the completion of all pieces of this transfer. Under the
     * lock, before other threads see that all pieces have been enqueued. */
    if (status == CLB_OK && transfer->done + 1 == transfer->pieces)
        status = clb_queue_mark(transfers->queue_set->upload, &transfer->ready);
    transfer->done += status == CLB_OK;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->lock);
    return status;
}

/* Download a piece into its slot and wait for it. */
static clb_status transfer_queue_bring_down(struct clb_transfer_thread *thread,
                                            const struct clb_transfer *transfer,
                                            const struct clb_rect *rect, size_t turn)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    const struct clb_dmat x =
        clb_dmat_part(&transfer->x, rect->row, rect->col, rect->rows, rect->cols);
    clb_status status = transfer_queue_wait_for_slot(thread, turn);
    if (status == CLB_OK)
        status = clb_queue_barrier(transfers->queue_set->download, 1, &transfer->ready, NULL);
    if (status == CLB_OK)
        status = clb_dmat_read(transfers->queue_set->download, &x, transfers->element,
                               thread->slot[turn]->host, rect->rows, &thread->busy[turn]);
    if (status == CLB_OK)
        status = clb_queue_flush(transfers->queue_set->download);
    if (status == CLB_OK)
        status = transfer_queue_wait_for_slot(thread, turn);
    return status;
}

/* The piece is in its slot: wait until all pieces before it are in theirs. Then no failure can
 * prevent any of them from being written. False: a transfer has failed, don't write the piece. */
static bool await_turn(struct clb_transfer_queue *transfers, struct clb_transfer *transfer,
                       size_t piece)
{
    pthread_mutex_lock(&transfers->lock);
    transfers->has_arrived[piece] = true;
    transfer->done++;
    /* After a failure `arrived` must not grow: other threads may have given up waiting for their
     * turn. */
    while (transfers->status == CLB_OK && transfers->arrived < transfers->down_pieces &&
           transfers->has_arrived[transfers->arrived])
        transfers->arrived++;
    pthread_cond_broadcast(&transfers->changed);
    while (transfers->arrived <= piece && transfers->status == CLB_OK)
        pthread_cond_wait(&transfers->changed, &transfers->lock);
    bool go = transfers->arrived > piece;
    pthread_mutex_unlock(&transfers->lock);
    return go;
}

static clb_status take_down(struct clb_transfer_thread *thread, size_t piece)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    struct clb_transfer *transfer = transfer_of(transfers, true, piece);
    const struct clb_rect rect = clb_transfer_piece(transfer, piece - transfer->first_piece);
    size_t turn = thread->turn++ % CLB_COUNT_OF(thread->slot);
    const void *slot = thread->slot[turn]->host;
    clb_status status = transfer_queue_bring_down(thread, transfer, &rect, turn);
    if (status != CLB_OK || !await_turn(transfers, transfer, piece))
        return status;
    if (transfer->order != NULL)
        clb_copy_ordered(transfers->precision, rect.rows, rect.cols, transfer->order, slot,
                         rect.rows, host_of(transfers, transfer, &rect), transfer->ld);
    else if (transfer->shape != CLB_TRANSFER_WHOLE)
        clb_copy_trapezoid(transfers->precision, transfer->shape == CLB_TRANSFER_UPPER,
                           diagonal_of(transfer, &rect), rect.rows, rect.cols, slot, rect.rows,
                           host_of(transfers, transfer, &rect), transfer->ld);
    else if (transfer->adjoint)
        clb_copy_adjoint(transfers->precision, rect.cols, rect.rows, slot, rect.rows,
                         host_of(transfers, transfer, &rect), transfer->ld);
    else
        clb_merge_tile(transfers->precision, rect.rows, rect.cols,
                       clb_scalar_one(transfers->precision), slot, rect.rows,
                       clb_scalar_zero(transfers->precision), host_of(transfers, transfer, &rect),
                       transfer->ld);
    pthread_mutex_lock(&transfers->lock);
    transfer->written++;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->lock);
    return CLB_OK;
}

/* ---- the threads' loop ----------------------------------------------------------------------- */

enum task { NOTHING, UP, DOWN };

/* The next piece to move. The caller holds the lock, or is the only thread. */
static enum task take_task(struct clb_transfer_queue *transfers, size_t *piece)
{
    if (transfers->status != CLB_OK)
        return NOTHING;
    if (transfers->next_up < transfers->released) {
        *piece = transfers->next_up++;
        return UP;
    }
    if (transfers->next_down < transfers->published) {
        *piece = transfers->next_down++;
        return DOWN;
    }
    return NOTHING;
}

static void do_task(struct clb_transfer_thread *thread, enum task task, size_t piece)
{
    double begin = clb_trace_wanted() ? clb_now() : 0;
    clb_status status =
        task == UP ? transfer_queue_bring_up(thread, piece) : take_down(thread, piece);
    if (clb_trace_wanted())
        clb_trace_since(task == UP ? "bring up" : "take down", begin);
    if (status != CLB_OK)
        fail(thread->transfers, status);
}

/* A staging thread's loop. */
static void carry(void *argument)
{
    struct clb_transfer_thread *thread = argument;
    struct clb_transfer_queue *transfers = thread->transfers;
    for (;;) {
        size_t piece;
        enum task task;
        pthread_mutex_lock(&transfers->lock);
        while ((task = take_task(transfers, &piece)) == NOTHING && !transfers->complete &&
               transfers->status == CLB_OK)
            pthread_cond_wait(&transfers->changed, &transfers->lock);
        pthread_mutex_unlock(&transfers->lock);
        if (task == NOTHING)
            return;
        do_task(thread, task, piece);
    }
}

/* Without staging threads: the calling thread moves all pieces that can be moved now. */
static void carry_alone(struct clb_transfer_queue *transfers)
{
    enum task task;
    size_t piece;
    while (transfers->workers.count == 0 && (task = take_task(transfers, &piece)) != NOTHING)
        do_task(&transfers->thread[0], task, piece);
}

void clb_transfer_queue_start(struct clb_transfer_queue *transfers)
{
    for (size_t i = 0; i < transfers->workers.count; i++)
        clb_workers_start(&transfers->workers, i, carry, &transfers->thread[i]);
}

/* Wait until `*count` of the transfer's pieces is complete. */
static clb_status await_count(struct clb_transfer_queue *transfers,
                              const struct clb_transfer *transfer, const size_t *count)
{
    carry_alone(transfers);
    pthread_mutex_lock(&transfers->lock);
    while (*count < transfer->pieces && transfers->status == CLB_OK)
        pthread_cond_wait(&transfers->changed, &transfers->lock);
    clb_status status = transfers->status;
    pthread_mutex_unlock(&transfers->lock);
    return status;
}

clb_status clb_transfer_queue_await(struct clb_transfer_queue *transfers, size_t transfer,
                                    struct clb_queue *queue)
{
    clb_status status =
        await_count(transfers, &transfers->transfer[transfer], &transfers->transfer[transfer].done);
    if (status == CLB_OK)
        status = clb_queue_barrier(queue, 1, &transfers->transfer[transfer].ready, NULL);
    return status;
}

bool clb_transfer_queue_has(struct clb_transfer_queue *transfers, size_t transfer)
{
    pthread_mutex_lock(&transfers->lock);
    bool has = transfers->transfer[transfer].done == transfers->transfer[transfer].pieces ||
               transfers->status != CLB_OK;
    pthread_mutex_unlock(&transfers->lock);
    return has;
}

void clb_transfer_queue_shorten(struct clb_transfer_queue *transfers, size_t index, size_t cols)
{
    struct clb_transfer *transfer = &transfers->transfer[index];
    transfer->x.cols = cols;
    transfer->pieces = clb_div_up(cols, transfer->extent);
}

clb_status clb_transfer_queue_await_arrival(struct clb_transfer_queue *transfers, size_t transfer)
{
    return await_count(transfers, &transfers->transfer[transfer],
                       &transfers->transfer[transfer].done);
}

clb_status clb_transfer_queue_await_written(struct clb_transfer_queue *transfers, size_t transfer)
{
    return await_count(transfers, &transfers->transfer[transfer],
                       &transfers->transfer[transfer].written);
}

clb_status clb_transfer_queue_release(struct clb_transfer_queue *transfers, size_t index,
                                      struct clb_queue *queue)
{
    const struct clb_transfer *transfer = &transfers->transfer[index];
    clb_status status = clb_queue_join(queue, transfers->queue_set->upload);
    if (status != CLB_OK)
        return status;
    pthread_mutex_lock(&transfers->lock);
    transfers->released = transfer->first_piece + transfer->pieces;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->lock);
    return CLB_OK;
}

clb_status clb_transfer_queue_publish(struct clb_transfer_queue *transfers, size_t index,
                                      struct clb_queue *queue)
{
    struct clb_transfer *transfer = &transfers->transfer[index];
    clb_status status = clb_queue_mark(queue, &transfer->ready);
    if (status != CLB_OK)
        return status;
    pthread_mutex_lock(&transfers->lock);
    transfers->published = transfer->first_piece + transfer->pieces;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->lock);
    return CLB_OK;
}

clb_status clb_transfer_queue_finish(struct clb_transfer_queue *transfers, clb_status status)
{
    if (transfers->runtime == NULL)
        return status;
    if (status != CLB_OK)
        fail(transfers, status);
    carry_alone(transfers);
    pthread_mutex_lock(&transfers->lock);
    transfers->complete = true;
    pthread_cond_broadcast(&transfers->changed);
    pthread_mutex_unlock(&transfers->lock);
    clb_workers_return(&transfers->workers);
    return transfers->status;
}

/* ---- transfers ------------------------------------------------------------------------------- */

clb_status clb_queue_mark(struct clb_queue *queue, cl_event *event)
{
    clb_status status = clb_queue_barrier(queue, 0, NULL, event);
    if (status == CLB_OK)
        status = clb_queue_flush(queue);
    return status;
}

clb_status clb_queue_join(struct clb_queue *from, struct clb_queue *to)
{
    cl_event event = NULL;
    clb_status status = clb_queue_mark(from, &event);
    if (status == CLB_OK)
        status = clb_queue_barrier(to, 1, &event, NULL);
    transfer_queue_release_event(&event);
    return status;
}

static struct clb_box box_of(const struct clb_dmat *x, size_t element, size_t ld)
{
    size_t row = x->offset % x->ld, col = x->offset / x->ld;
    return (struct clb_box){.origin = {row * element, col, 0},
                            .size = {x->rows * element, x->cols, 1},
                            .pitch = x->ld * element,
                            .host_pitch = ld * element};
}

clb_status clb_dmat_write(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                          const void *host, size_t ld, cl_event *event)
{
    const struct clb_box box = box_of(x, element, ld);
    return clb_queue_write_rect(queue, x->mem, &box, host, event);
}

clb_status clb_dmat_read(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                         void *host, size_t ld, cl_event *event)
{
    const struct clb_box box = box_of(x, element, ld);
    return clb_queue_read_rect(queue, x->mem, &box, host, event);
}
