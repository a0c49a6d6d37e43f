/* Staged transfers, see transfer_queue.h. SPDX-License-Identifier: BSD-3-Clause */
#include "transfer_queue.h"

#include <sched.h>
#include <stdlib.h>

/* ---- pieces ---- */

struct clb_rect clb_transfer_piece(const struct clb_transfer *transfer, size_t piece)
{
    const struct clb_dmat *x = &transfer->x;
    size_t first = piece * transfer->extent;
    if (transfer->by_rows)
        return (struct clb_rect){first, 0, clb_min(transfer->extent, x->rows - first), x->cols};
    return (struct clb_rect){0, first, x->rows, clb_min(transfer->extent, x->cols - first)};
}

/* Gathered transfers begin at multiples of this. */
#define PLACE_UNIT ((size_t)4096)

/* Divide a transfer into pieces of at least one row or column. Slots fit the largest piece. */
static void transfer_queue_cut(struct clb_transfer_queue *transfers, struct clb_transfer *transfer)
{
    const struct clb_dmat *x = &transfer->x;
    size_t all = transfer->by_rows ? x->rows : x->cols, element = transfers->element;
    size_t each = (transfer->by_rows ? x->cols : x->rows) * element;
    size_t *pieces = &transfers->pieces[transfer->down];
    if (transfer->extent == 0)
        transfer->extent = clb_max(CLB_PIECE_BYTES / clb_max(each, 1), 1);
    transfer->extent = clb_min(transfer->extent, clb_max(all, 1));
    if (transfer->slot_ld == 0)
        transfer->slot_ld = transfer->by_rows ? transfer->extent : x->rows;
    transfer->pieces = clb_div_up(all, transfer->extent);
    transfer->first_piece = *pieces;
    transfer->at = transfers->gathered.bytes;
    transfers->gathered.bytes += clb_round_up(transfer->slot_ld * element * all, PLACE_UNIT);
    *pieces += transfer->pieces;
    for (size_t p = transfer->first_piece;
         transfer->down && transfers->written != NULL && p < *pieces; p++)
        transfer->written += transfers->written[p];
    transfers->slot_bytes =
        clb_max(transfers->slot_bytes,
                transfer->slot_ld * (transfer->by_rows ? x->cols : transfer->extent) * element);
}

struct clb_transfer *clb_transfer_of(const struct clb_transfer_queue *transfers, bool down,
                                     size_t piece, struct clb_rect *rect)
{
    size_t low = down ? transfers->uploads : 0;
    size_t high = transfers->uploads + (down ? transfers->downloads : 0);
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (transfers->transfer[middle].first_piece <= piece)
            low = middle;
        else
            high = middle;
    }
    *rect =
        clb_transfer_piece(&transfers->transfer[low], piece - transfers->transfer[low].first_piece);
    return &transfers->transfer[low];
}

/* ---- copies of pieces that are as the transfer says ---- */

static clb_status copy_matrix(void *context, const struct clb_transfer *transfer,
                              const struct clb_rect *rect, char *slot)
{
    const struct clb_transfer_queue *transfers = context;
    clb_precision precision = transfers->precision;
    bool down = transfer->down, adjoint = transfer->adjoint;
    size_t row = adjoint ? rect->col : rect->row, col = adjoint ? rect->row : rect->col;
    char *host = transfer->host + (row + col * transfer->ld) * transfers->element;
    const char *from = down ? slot : host;
    char *to = down ? host : slot;
    size_t from_ld = down ? transfer->slot_ld : transfer->ld;
    size_t to_ld = down ? transfer->ld : transfer->slot_ld;
    ptrdiff_t diagonal = transfer->diagonal + (ptrdiff_t)rect->col - (ptrdiff_t)rect->row;
    if (transfer->order != NULL)
        clb_copy_ordered(precision, rect->rows, rect->cols, transfer->order, from, from_ld, to,
                         to_ld);
    else if (transfer->shape != CLB_TRANSFER_WHOLE)
        clb_copy_trapezoid(precision, transfer->shape == CLB_TRANSFER_UPPER, diagonal, rect->rows,
                           rect->cols, from, from_ld, to, to_ld);
    else if (adjoint)
        clb_transpose(precision, down ? rect->cols : rect->rows, down ? rect->rows : rect->cols,
                      from, from_ld, to, to_ld, true, true);
    else
        clb_merge_tile(precision, rect->rows, rect->cols,
                       down ? clb_scalar_of(precision, 1) : transfer->alpha, from, from_ld,
                       clb_scalar_of(precision, 0), to, to_ld);
    return CLB_OK;
}

/* ---- open, close ---- */

/* Threads make what slots are not kept when they first need them; in order all are made before
 * anything has begun: a factorisation without enough memory is done in blocks. */
static clb_status get_slot(struct clb_transfer_thread *thread, size_t slot)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    return thread->slot[slot] != NULL ? CLB_OK
                                      : clb_buffer_get(transfers->runtime, CLB_MEMORY_HOST,
                                                       transfers->slot_bytes, &thread->slot[slot]);
}

static clb_status get_threads(struct clb_transfer_queue *transfers)
{
    size_t wanted = transfers->wanted_threads;
    size_t pieces = transfers->pieces[CLB_UP] + transfers->pieces[CLB_DOWN];
    clb_workers_lend(&transfers->workers,
                     clb_min(wanted != 0 ? wanted : pieces / 2, transfers->most_threads),
                     wanted != 0);
    if (transfers->workers.count < 2 && !transfers->in_order)
        clb_workers_return(&transfers->workers);
    transfers->threads = clb_max(transfers->workers.count, 1);
    for (size_t i = 0; i < transfers->threads; i++)
        transfers->thread[i].transfers = transfers;
    /* Slots may fit where that much memory does not. */
    if (transfers->gathers && transfers->workers.count > 0 &&
        clb_gathered_open(transfers) == CLB_OK)
        return CLB_OK;
    clb_status status = CLB_OK;
    const size_t slots = transfers->in_order ? 2 : 4;
    for (size_t i = 0; i < transfers->threads * slots; i++) {
        struct clb_transfer_thread *thread = &transfers->thread[i / slots];
        if (transfers->in_order)
            CLB_THEN(status, get_slot(thread, i % slots));
        else
            thread->slot[i % slots] =
                clb_buffer_find(transfers->runtime, CLB_MEMORY_HOST, transfers->slot_bytes);
    }
    return status;
}

clb_status clb_transfer_queue_open(struct clb_transfer_queue *transfers)
{
    size_t held = 0;
    transfers->runtime = transfers->queue_set[0]->runtime;
    transfers->element = clb_precision_size(transfers->precision);
    pthread_mutex_init(&transfers->lock, NULL);
    pthread_cond_init(&transfers->work, NULL);
    pthread_cond_init(&transfers->advance, NULL);
    if (transfers->copy == NULL) {
        transfers->copy = copy_matrix;
        transfers->context = transfers;
    }
    for (size_t i = 0; i < transfers->uploads + transfers->downloads; i++)
        transfer_queue_cut(transfers, &transfers->transfer[i]);
    while (held < transfers->uploads && !transfers->transfer[held].held)
        held++;
    transfers->released[CLB_UP] = held < transfers->uploads ? transfers->transfer[held].first_piece
                                                            : transfers->pieces[CLB_UP];
    const size_t pieces = transfers->pieces[CLB_UP] + transfers->pieces[CLB_DOWN];
    transfers->event[CLB_UP] = calloc(pieces + 1, sizeof(clb_event));
    transfers->done[CLB_UP] = calloc(pieces + 1, sizeof(bool));
    if (transfers->event[CLB_UP] == NULL || transfers->done[CLB_UP] == NULL)
        return CLB_ERR_NOMEM;
    transfers->event[CLB_DOWN] = transfers->event[CLB_UP] + transfers->pieces[CLB_UP];
    transfers->done[CLB_DOWN] = transfers->done[CLB_UP] + transfers->pieces[CLB_UP];
    clb_status status = CLB_OK;
    for (size_t i = 0; i < transfers->queues && status == CLB_OK; i++)
        status = clb_queue_set_open_queues(transfers->queue_set[i]);
    return status == CLB_OK ? get_threads(transfers) : status;
}

void clb_transfer_queue_forget_uploads(struct clb_transfer_queue *transfers)
{
    for (size_t i = 0; i < transfers->uploads; i++) {
        clb_event_drop(&transfers->transfer[i].before);
        clb_event_drop(&transfers->transfer[i].ready);
    }
    for (size_t i = 0; transfers->event[CLB_UP] != NULL && i < transfers->pieces[CLB_UP]; i++)
        clb_event_drop(&transfers->event[CLB_UP][i]);
}

void clb_transfer_queue_close(struct clb_transfer_queue *transfers, bool idle)
{
    if (transfers->runtime == NULL)
        return;
    clb_workers_return(&transfers->workers);
    clb_transfer_queue_forget_uploads(transfers);
    for (size_t i = 0; i < transfers->downloads; i++)
        clb_event_drop(&transfers->transfer[transfers->uploads + i].before);
    /* Backwards: the next call's threads find their own, which are in their CPUs' caches. */
    for (size_t i = transfers->threads; i-- > 0;) {
        clb_event_drop(&transfers->thread[i].pending_event);
        for (size_t s = CLB_COUNT_OF(transfers->thread[i].slot); s-- > 0;)
            clb_buffer_end(transfers->runtime, transfers->thread[i].slot[s], idle);
    }
    clb_buffer_end(transfers->runtime, transfers->gathered.buffer, idle);
    for (size_t i = 0; transfers->event[CLB_DOWN] != NULL && i < transfers->pieces[CLB_DOWN]; i++)
        clb_event_drop(&transfers->event[CLB_DOWN][i]);
    free(transfers->event[CLB_UP]);
    free(transfers->done[CLB_UP]);
    pthread_mutex_destroy(&transfers->lock);
    pthread_cond_destroy(&transfers->work);
    pthread_cond_destroy(&transfers->advance);
    transfers->runtime = NULL;
}

/* ---- waiting for one another ---- */

void clb_transfer_queue_wake(struct clb_transfer_queue *transfers, pthread_cond_t *condition,
                             size_t threads)
{
    atomic_fetch_add(&transfers->wakes, 1);
    if (threads == SIZE_MAX)
        pthread_cond_broadcast(condition);
    for (size_t i = 0; i < threads && threads != SIZE_MAX; i++)
        pthread_cond_signal(condition);
}

/* In virtual machines a thread that sleeps takes some 0.1 ms to wake. */
#define AWAKE_SECONDS 100e-6

/* Wait, with the lock held, until somebody is woken; the caller looks what has changed. */
static void wait_awhile(struct clb_transfer_queue *transfers, pthread_cond_t *condition)
{
    const unsigned seen = atomic_load(&transfers->wakes);
    if (!transfers->in_order) {
        pthread_mutex_unlock(&transfers->lock);
        const double end = clb_now() + AWAKE_SECONDS;
        while (atomic_load(&transfers->wakes) == seen && clb_now() < end)
            sched_yield();
        pthread_mutex_lock(&transfers->lock);
    }
    if (atomic_load(&transfers->wakes) == seen)
        pthread_cond_wait(condition, &transfers->lock);
}

/* ---- one piece ---- */

void clb_transfer_queue_fail(struct clb_transfer_queue *transfers, clb_status status)
{
    if (transfers->status == CLB_OK)
        transfers->status = status;
    clb_transfer_queue_wake(transfers, &transfers->work, SIZE_MAX);
    clb_transfer_queue_wake(transfers, &transfers->advance, SIZE_MAX);
}

static void fail(struct clb_transfer_queue *transfers, clb_status status)
{
    pthread_mutex_lock(&transfers->lock);
    clb_transfer_queue_fail(transfers, status);
    pthread_mutex_unlock(&transfers->lock);
}

/* For the trace: what a thread has done since its last note. */
static void note(struct clb_transfer_thread *thread, const char *what)
{
    if (!clb_trace_wanted())
        return;
    clb_trace_since(what, thread->since);
    thread->since = clb_now();
}

static struct clb_box box_of(const struct clb_dmat *x, size_t element, size_t ld)
{
    size_t row = x->offset % x->ld, col = x->offset / x->ld;
    return (struct clb_box){.origin = {row * element, col, 0},
                            .size = {x->rows * element, x->cols, 1},
                            .pitch = x->ld * element,
                            .host_pitch = ld * element};
}

clb_status clb_transfer_queue_enqueue(const struct clb_transfer_queue *transfers,
                                      const struct clb_transfer *transfer, size_t piece,
                                      const struct clb_rect *rect, void *slot, clb_event *event)
{
    const struct clb_queue_set *queue_set = transfers->queue_set[piece % transfers->queues];
    struct clb_queue *queue = transfer->down ? queue_set->download : queue_set->upload;
    const struct clb_dmat x =
        clb_dmat_part(&transfer->x, rect->row, rect->col, rect->rows, rect->cols);
    const struct clb_box box =
        transfer->slot_ld == x.ld
            ? *CLB_LINE(x.offset * transfers->element, x.cols * x.ld * transfers->element)
            : box_of(&x, transfers->element, transfer->slot_ld);
    clb_status status = transfer->down
                            ? clb_queue_read(queue, x.mem, &box, slot, transfer->before, event)
                            : clb_queue_write(queue, x.mem, &box, slot, transfer->before, event);
    return status == CLB_OK ? clb_queue_flush(queue) : status;
}

static size_t next_slot(struct clb_transfer_thread *thread, bool down)
{
    size_t own = down && !thread->transfers->in_order;
    return 2 * own + thread->turn[own]++ % 2;
}

static clb_status await_slot(struct clb_transfer_thread *thread, size_t slot)
{
    clb_event busy = thread->busy[slot];
    thread->busy[slot] = NULL;
    return busy != NULL ? clb_event_wait(busy) : get_slot(thread, slot);
}

/* ---- uploads ---- */

/* Bytes of columns that a thread copies at once. */
#define SHARE_BYTES ((size_t)256 << 10)

/* Copy the rest of the piece that `owner` is copying, share by share, as owner or helper. The
 * ticket names the piece, so that a compare-and-swap can't take a share of another one. */
static void copy_shares(const struct clb_transfer_queue *transfers,
                        struct clb_transfer_thread *owner, uint64_t ticket)
{
    size_t piece = (size_t)(ticket >> 32) - 1;
    struct clb_rect rect;
    const struct clb_transfer *transfer = clb_transfer_of(transfers, false, piece, &rect);
    size_t column = transfer->slot_ld * transfers->element;
    /* A share of few columns of an adjoint would read a part of every cache line. */
    size_t share = transfer->adjoint ? rect.cols : clb_max(SHARE_BYTES / clb_max(column, 1), 1);
    while (ticket >> 32 == piece + 1 && (uint32_t)ticket < rect.cols) {
        size_t begin = (uint32_t)ticket, end = clb_min(begin + share, rect.cols);
        char *slot = owner->slot[atomic_load_explicit(&owner->at, memory_order_relaxed)]->host;
        if (!atomic_compare_exchange_weak(&owner->ticket, &ticket, ticket - begin + end))
            continue;
        const struct clb_rect part = {rect.row, rect.col + begin, rect.rows, end - begin};
        (void)transfers->copy(transfers->context, transfer, &part, slot + begin * column);
        atomic_fetch_add(&owner->copied, end - begin);
        ticket = atomic_load(&owner->ticket);
    }
}

static void copy_piece(struct clb_transfer_thread *thread, size_t piece, size_t cols, size_t slot)
{
    uint64_t ticket = (uint64_t)(piece + 1) << 32;
    atomic_store_explicit(&thread->at, slot, memory_order_relaxed);
    atomic_store(&thread->copied, 0);
    atomic_store(&thread->ticket, ticket);
    copy_shares(thread->transfers, thread, ticket);
    /* Helpers may still be copying, each one share at most. */
    while (atomic_load(&thread->copied) < cols)
        sched_yield();
    atomic_store(&thread->ticket, 0);
}

/* CPUs of virtual machines stop at times, and a staging thread that falls behind delays the
 * transfer of its piece, and the kernels. So help such threads before uploading a later piece. */
static void help_others(struct clb_transfer_queue *transfers, size_t next_piece)
{
    for (size_t i = 0; i < transfers->threads; i++) {
        struct clb_transfer_thread *other = &transfers->thread[i];
        uint64_t ticket = atomic_load(&other->ticket);
        if (ticket != 0 && (size_t)(ticket >> 32) + transfers->threads <= next_piece)
            copy_shares(transfers, other, ticket);
    }
}

static clb_status upload(struct clb_transfer_thread *thread, size_t piece)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    struct clb_rect rect;
    struct clb_transfer *transfer = clb_transfer_of(transfers, false, piece, &rect);
    if (transfers->gathered.buffer != NULL) {
        note(thread, "idle");
        clb_gathered_copy(transfers, piece);
        note(thread, "copy in");
        return CLB_OK;
    }
    size_t slot = next_slot(thread, false);
    clb_event moved = NULL;
    help_others(transfers, piece);
    note(thread, "copy in");
    clb_status status = await_slot(thread, slot);
    note(thread, "wait for uploads");
    if (status != CLB_OK)
        return status;
    copy_piece(thread, piece, rect.cols, slot);
    note(thread, "copy in");
    status = clb_transfer_queue_enqueue(transfers, transfer, piece, &rect, thread->slot[slot]->host,
                                        &moved);
    thread->busy[slot] = moved;
    pthread_mutex_lock(&transfers->lock);
    transfers->event[CLB_UP][piece] = moved;
    bool all = status == CLB_OK && transfer->done + 1 == transfer->pieces;
    /* Under the lock, before other threads see that all pieces have been enqueued. */
    if (all && transfers->in_order)
        status = clb_queue_mark(transfers->queue_set[0]->upload, &transfer->ready);
    transfer->done += status == CLB_OK;
    if (all)
        clb_transfer_queue_wake(transfers, &transfers->advance, SIZE_MAX);
    pthread_mutex_unlock(&transfers->lock);
    note(thread, "enqueue");
    return status;
}

/* ---- downloads ---- */

/* Wait until all pieces before one that is in its slot are in theirs (`in_order`). False: a
 * transfer has failed, don't write the piece. */
static bool await_turn(struct clb_transfer_queue *transfers, struct clb_transfer *transfer,
                       size_t piece)
{
    pthread_mutex_lock(&transfers->lock);
    transfers->done[CLB_DOWN][piece] = true;
    transfer->done++;
    /* After a failure `arrived` must not grow: threads may have given up waiting for their turn. */
    while (transfers->status == CLB_OK && transfers->arrived < transfers->pieces[CLB_DOWN] &&
           transfers->done[CLB_DOWN][transfers->arrived])
        transfers->arrived++;
    clb_transfer_queue_wake(transfers, &transfers->advance, SIZE_MAX);
    while (transfers->arrived <= piece && transfers->status == CLB_OK)
        wait_awhile(transfers, &transfers->advance);
    bool go = transfers->arrived > piece;
    pthread_mutex_unlock(&transfers->lock);
    return go;
}

/* The only place from which results get into the caller's memory. All commands that the piece
 * depends on have ended without error. */
static clb_status write_piece(struct clb_transfer_thread *thread, struct clb_transfer *transfer,
                              size_t piece, const struct clb_rect *rect, char *slot)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    clb_status status = transfers->copy(transfers->context, transfer, rect, slot);
    note(thread, "copy out");
    if (status != CLB_OK && status != CLB_ERR_RANGE)
        return status;
    pthread_mutex_lock(&transfers->lock);
    if (transfers->written != NULL)
        transfers->written[piece] = status == CLB_OK;
    transfers->left_out = transfers->left_out || status != CLB_OK;
    if (++transfer->written == transfer->pieces)
        clb_transfer_queue_wake(transfers, &transfers->advance, SIZE_MAX);
    pthread_mutex_unlock(&transfers->lock);
    return CLB_OK;
}

/* A launch that was left out fails a queue set where the events of commands are kept. Elsewhere
 * nothing but its number tells before the queues are finished, when the piece has been counted. */
clb_status clb_transfer_queue_arrive(const struct clb_transfer_queue *transfers,
                                     const struct clb_transfer *transfer, clb_event *event)
{
    clb_status status = *event != NULL ? clb_event_wait(*event) : CLB_OK;
    if (*event != NULL && status == CLB_OK && !clb_event_has_run(transfer->before))
        status = CLB_ERR_OPENCL;
    for (size_t i = 0; i < transfers->queue_sets && status == CLB_OK; i++)
        status = clb_queue_set_check(transfers->queue_set[i]);
    clb_event_drop(event);
    return status;
}

static clb_status end_download(struct clb_transfer_thread *thread)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    size_t piece = thread->pending - 1;
    struct clb_rect rect;
    struct clb_transfer *transfer = clb_transfer_of(transfers, true, piece, &rect);
    clb_status status = clb_transfer_queue_arrive(transfers, transfer, &thread->pending_event);
    thread->pending = 0;
    bool go = status == CLB_OK && (!transfers->in_order || await_turn(transfers, transfer, piece));
    note(thread, "wait for results");
    return go ? write_piece(thread, transfer, piece, &rect,
                            thread->slot[thread->pending_slot]->host)
              : status;
}

/* Start the download of a piece; then write the one before it, or, in order, this one. */
static clb_status download(struct clb_transfer_thread *thread, size_t piece)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    if (transfers->written != NULL && transfers->written[piece])
        return CLB_OK;
    struct clb_rect rect;
    struct clb_transfer *transfer = clb_transfer_of(transfers, true, piece, &rect);
    if (transfers->gathered.buffer != NULL)
        return write_piece(thread, transfer, piece, &rect,
                           clb_gathered_place(transfers, transfer, &rect));
    size_t slot = next_slot(thread, true);
    clb_event moved = NULL;
    clb_status status = await_slot(thread, slot);
    CLB_THEN(status, clb_transfer_queue_enqueue(transfers, transfer, piece, &rect,
                                                thread->slot[slot]->host, &moved));
    note(thread, "enqueue");
    if (moved == NULL)
        return status;
    if (thread->pending != 0) {
        clb_status ended = end_download(thread);
        status = status != CLB_OK ? status : ended;
    }
    thread->pending = piece + 1;
    thread->pending_slot = slot;
    thread->pending_event = moved;
    return status == CLB_OK && transfers->in_order ? end_download(thread) : status;
}

/* ---- the threads' loop ---- */

enum job { JOB_NONE, JOB_UPLOAD, JOB_DOWNLOAD, JOB_WRITE, JOB_TOUCH };

/* Whether the pages are there that the next download is written to. With the lock held. */
static bool has_pages(const struct clb_transfer_queue *transfers)
{
    const struct clb_prefault *prefault = &transfers->prefault;
    struct clb_rect rect;
    size_t made = prefault->next;
    for (size_t i = 0; i < transfers->threads; i++) {
        if (transfers->thread[i].touching != 0)
            made = clb_min(made, transfers->thread[i].touching - 1);
    }
    const struct clb_transfer *transfer =
        clb_transfer_of(transfers, true, transfers->next[CLB_DOWN], &rect);
    return made >= clb_prefault_units(prefault, transfer->column + rect.col + rect.cols);
}

/* The thread has faulted in its unit; others may wait for that. With the lock held. */
static void end_touch(struct clb_transfer_thread *thread)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    if (thread->touching == 0)
        return;
    thread->touching = 0;
    if (transfers->next[CLB_DOWN] < transfers->released[CLB_DOWN] && has_pages(transfers))
        clb_transfer_queue_wake(transfers, &transfers->work, SIZE_MAX);
}

/* The next job, and its piece or prefault unit; waits for one. JOB_NONE: the run is over.
 *
 * Where pages of C are missing, no result is brought down before its own are there: writing a
 * piece of a few rows would be a fault, and 2 MiB of zeros, for each of its columns, and threads
 * that do so at once make the same pages. Threads that don't upload first make pages when a
 * result waits for some, and while one of theirs is on its way; else they upload, for which the
 * device waits. */
static enum job next_job(struct clb_transfer_thread *thread, size_t *piece)
{
    struct clb_transfer_queue *transfers = thread->transfers;
    struct clb_prefault *prefault = &transfers->prefault;
    enum job job = JOB_NONE;
    pthread_mutex_lock(&transfers->lock);
    end_touch(thread);
    while (transfers->status == CLB_OK) {
        bool up = transfers->next[CLB_UP] < transfers->released[CLB_UP] && !transfers->stopped;
        bool down = transfers->next[CLB_DOWN] < transfers->released[CLB_DOWN];
        bool blocked = down && prefault->units > 0 && !has_pages(transfers);
        bool idle = (!down || blocked) && thread->pending == 0;
        bool touch = prefault->next < prefault->units &&
                     transfers->next[CLB_DOWN] < transfers->pieces[CLB_DOWN];
        if (touch && thread->pending != 0 && clb_event_is_pending(thread->pending_event)) {
            job = JOB_TOUCH;
        } else if (up && (thread->uploads_first || (idle && !(blocked && touch)))) {
            *piece = transfers->next[CLB_UP]++;
            job = JOB_UPLOAD;
        } else if (down && !blocked) {
            thread->helps = transfers->next[CLB_UP] >= transfers->pieces[CLB_UP];
            *piece = transfers->next[CLB_DOWN]++;
            job = JOB_DOWNLOAD;
        } else if (thread->pending != 0) {
            job = JOB_WRITE;
        } else if (touch) {
            job = JOB_TOUCH;
        } else if (!transfers->complete || blocked) {
            wait_awhile(transfers, &transfers->work);
            continue;
        }
        break;
    }
    if (job == JOB_TOUCH) {
        *piece = prefault->next++;
        thread->touching = *piece + 1;
    }
    pthread_mutex_unlock(&transfers->lock);
    note(thread, "idle");
    return job;
}

static void carry(void *argument)
{
    struct clb_transfer_thread *thread = argument;
    clb_status status = CLB_OK;
    while (status == CLB_OK) {
        size_t piece = 0;
        switch (next_job(thread, &piece)) {
        case JOB_UPLOAD:
            status = upload(thread, piece);
            break;
        case JOB_DOWNLOAD:
            if (thread->helps)
                help_others(thread->transfers, SIZE_MAX);
            status = download(thread, piece);
            break;
        case JOB_WRITE:
            status = end_download(thread);
            break;
        case JOB_TOUCH:
            clb_prefault_unit(&thread->transfers->prefault, piece);
            note(thread, "fault in");
            break;
        case JOB_NONE:
            return;
        }
    }
    fail(thread->transfers, status);
}

/* Without staging threads: move the pieces before `end`, and write what has been downloaded. */
static void carry_alone(struct clb_transfer_queue *transfers, bool down, size_t end)
{
    struct clb_transfer_thread *thread = &transfers->thread[0];
    if (transfers->workers.count > 0 || transfers->status != CLB_OK)
        return;
    clb_status status = CLB_OK;
    while (transfers->next[down] < end && status == CLB_OK) {
        size_t piece = transfers->next[down]++;
        status = down ? download(thread, piece) : upload(thread, piece);
    }
    if (down && status == CLB_OK && thread->pending != 0)
        status = end_download(thread);
    if (status != CLB_OK)
        fail(transfers, status);
}

void clb_transfer_queue_start(struct clb_transfer_queue *transfers, size_t uploaders)
{
    for (size_t i = 0; i < transfers->threads; i++) {
        transfers->thread[i].uploads_first = i < uploaders;
        transfers->thread[i].since = clb_trace_wanted() ? clb_now() : 0;
    }
    for (size_t i = 0; i < transfers->workers.count; i++)
        clb_workers_start(&transfers->workers, i, carry, &transfers->thread[i]);
}

/* ---- the calling thread ---- */

/* Wait until `*count` of the transfer's pieces is complete. */
static clb_status await_count(struct clb_transfer_queue *transfers,
                              const struct clb_transfer *transfer, const size_t *count)
{
    carry_alone(transfers, transfer->down,
                transfer->down ? transfers->released[CLB_DOWN]
                               : transfer->first_piece + transfer->pieces);
    pthread_mutex_lock(&transfers->lock);
    while (*count < transfer->pieces && transfers->status == CLB_OK && !transfers->stopped) {
        if (transfers->gathered.buffer == NULL || !clb_gathered_advance(transfers, transfer->down))
            wait_awhile(transfers, &transfers->advance);
    }
    /* What comes next takes the calling thread some time. */
    while (transfers->gathered.buffer != NULL && transfers->status == CLB_OK &&
           clb_gathered_send(transfers))
        ;
    clb_status status =
        transfers->status == CLB_OK && transfers->stopped ? CLB_ERR_RANGE : transfers->status;
    pthread_mutex_unlock(&transfers->lock);
    return status;
}

clb_status clb_transfer_queue_await(struct clb_transfer_queue *transfers, size_t index,
                                    struct clb_queue *queue)
{
    const struct clb_transfer *transfer = &transfers->transfer[index];
    clb_status status = await_count(transfers, transfer, &transfer->done);
    return status == CLB_OK && queue != NULL ? clb_queue_barrier(queue, transfer->ready, NULL)
                                             : status;
}

clb_status clb_transfer_queue_await_events(struct clb_transfer_queue *transfers, size_t index,
                                           const clb_event **events, size_t *count)
{
    const struct clb_transfer *transfer = &transfers->transfer[index];
    /* One queue carries all that is gathered, in order. */
    *count = transfers->gathered.buffer != NULL ? 1 : transfer->pieces;
    *events = transfers->event[CLB_UP] + transfer->first_piece + transfer->pieces - *count;
    return await_count(transfers, transfer, &transfer->done);
}

bool clb_transfer_queue_has(struct clb_transfer_queue *transfers, size_t index)
{
    const struct clb_transfer *transfer = &transfers->transfer[index];
    carry_alone(transfers, false, transfer->first_piece + transfer->pieces);
    pthread_mutex_lock(&transfers->lock);
    bool has = transfer->done == transfer->pieces || transfers->status != CLB_OK;
    pthread_mutex_unlock(&transfers->lock);
    return has;
}

clb_status clb_transfer_queue_await_written(struct clb_transfer_queue *transfers, size_t index)
{
    const struct clb_transfer *transfer = &transfers->transfer[index];
    return await_count(transfers, transfer, &transfer->written);
}

void clb_transfer_queue_announce(struct clb_transfer_queue *transfers)
{
    pthread_mutex_lock(&transfers->lock);
    clb_transfer_queue_wake(transfers, &transfers->work, SIZE_MAX);
    pthread_mutex_unlock(&transfers->lock);
}

void clb_transfer_queue_release_now(struct clb_transfer_queue *transfers, size_t index)
{
    const struct clb_transfer *transfer = &transfers->transfer[index];
    if (transfers->gathered.buffer != NULL && transfer->down) {
        clb_status status = clb_gathered_ask(transfers, transfer);
        if (status != CLB_OK)
            fail(transfers, status);
        return;
    }
    pthread_mutex_lock(&transfers->lock);
    transfers->released[transfer->down] = transfer->first_piece + transfer->pieces;
    clb_transfer_queue_wake(transfers, &transfers->work,
                            clb_min(transfer->pieces, transfers->workers.count));
    pthread_mutex_unlock(&transfers->lock);
}

clb_status clb_transfer_queue_release(struct clb_transfer_queue *transfers, size_t index,
                                      struct clb_queue *queue)
{
    clb_status status = clb_queue_mark(queue, &transfers->transfer[index].before);
    if (status == CLB_OK)
        clb_transfer_queue_release_now(transfers, index);
    return status;
}

void clb_transfer_queue_shorten(struct clb_transfer_queue *transfers, size_t index, size_t cols)
{
    struct clb_transfer *transfer = &transfers->transfer[index];
    transfer->x.cols = cols;
    transfer->pieces = clb_div_up(cols, transfer->extent);
}

void clb_transfer_queue_stop(struct clb_transfer_queue *transfers)
{
    pthread_mutex_lock(&transfers->lock);
    transfers->stopped = transfers->left_out = true;
    clb_transfer_queue_wake(transfers, &transfers->advance, SIZE_MAX);
    pthread_mutex_unlock(&transfers->lock);
}

clb_status clb_transfer_queue_finish(struct clb_transfer_queue *transfers, clb_status status)
{
    if (transfers->runtime == NULL)
        return status;
    pthread_mutex_lock(&transfers->lock);
    bool failed = status != CLB_OK && !(status == CLB_ERR_RANGE && transfers->stopped);
    pthread_mutex_unlock(&transfers->lock);
    if (failed)
        fail(transfers, status);
    carry_alone(transfers, true, transfers->released[CLB_DOWN]);
    pthread_mutex_lock(&transfers->lock);
    while (transfers->gathered.buffer != NULL && transfers->status == CLB_OK &&
           clb_gathered_receive(transfers, true))
        ;
    transfers->complete = true;
    clb_transfer_queue_wake(transfers, &transfers->work, SIZE_MAX);
    pthread_mutex_unlock(&transfers->lock);
    clb_workers_return(&transfers->workers);
    return transfers->status == CLB_OK && transfers->left_out ? CLB_ERR_RANGE : transfers->status;
}

/* ---- transfers ---- */

clb_status clb_queue_mark(struct clb_queue *queue, clb_event *event)
{
    CLB_TRY(clb_queue_barrier(queue, NULL, event));
    return clb_queue_flush(queue);
}

clb_status clb_queue_join(struct clb_queue *from, struct clb_queue *to)
{
    clb_event event = NULL;
    clb_status status = clb_queue_mark(from, &event);
    CLB_THEN(status, clb_queue_barrier(to, event, NULL));
    clb_event_drop(&event);
    return status;
}

clb_status clb_dmat_write(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                          const void *host, size_t ld, clb_event *event)
{
    const struct clb_box box = box_of(x, element, ld);
    return clb_queue_write(queue, x->mem, &box, host, NULL, event);
}

clb_status clb_dmat_read(struct clb_queue *queue, const struct clb_dmat *x, size_t element,
                         void *host, size_t ld, clb_event *event)
{
    const struct clb_box box = box_of(x, element, ld);
    return clb_queue_read(queue, x->mem, &box, host, NULL, event);
}
