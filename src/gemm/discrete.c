/* Products on a device with its own memory: the calling thread enqueues the kernels in order, while
 * staging threads, CPU threads that copy pieces between the caller's memory and pinned memory, move
 * the data. discrete.h describes the algorithm.
 *
 * A thread copies a piece while the transfer of its other slot is under way. Uploads are handed out
 * in the order of the loads, downloads in the order of the strips. A thread waits only for commands
 * that have been enqueued already, so there is always progress. */
#include "discrete.h"
#include "transfer/prefault.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- the run --------------------------------------------------------------------------------- */

#define MAX_QUEUES (1 + CLB_STRIP_QUEUES) /* in one direction: one of each queue set */

/* A staging thread. It has two pinned slots for each direction, so that a copy overlaps with the
 * transfer before it: slots 0 and 1 for uploads, 2 and 3 for downloads. */
struct stream_thread {
    struct stream *stream;
    bool uploads_first;
    bool helps; /* no piece is left to upload; set with a download piece */
    struct clb_buffer *slot[4];
    cl_event busy[2]; /* transfers from the upload slots; the load owns the events */
    size_t turn_up, turn_down;
    size_t pending; /* the download piece in transfer, plus one; or 0 */
    cl_event pending_event;
    /* The upload piece that is being copied, for threads that help with it (copy_shares):
     * `ticket` has piece + 1 and the next column, `copied` counts its copied columns, `at` is the
     * slot. */
    _Atomic uint64_t ticket;
    _Atomic size_t copied, at;
    double since; /* the end of the last span of the trace */
};

struct stream {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_progress *progress; /* part p is download piece p */
    struct clb_discrete_plan plan;
    struct clb_schedule schedule;
    struct clb_queue_set *queue_set;
    struct clb_queue_set *strip_queue_set[CLB_STRIP_QUEUES];
    size_t queues; /* queues for transfers, in each direction */
    struct clb_operand a[CLB_MAX_TERMS], b[CLB_MAX_TERMS];
    struct clb_buffer **packed_a, **packed_b, **raw, **strip_buffer;
    struct clb_buffer **buffers; /* all of the above, one array */
    size_t buffer_count;
    bool whole;                      /* one strip buffer holds all of C */
    struct clb_buffer *flag, *words; /* split families: the flag, and its values after each step */
    struct clb_workers workers;
    struct stream_thread thread[CLB_MAX_STAGING_THREADS];
    size_t staging_threads;
    struct clb_prefault prefault; /* `next` is used under the lock */

    /* Used by all threads of the run, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work;               /* staging threads wait for something to do */
    pthread_cond_t advance;            /* the calling thread waits for loads and strips */
    size_t next_upload, next_download; /* pieces handed out */
    size_t published;                  /* download pieces whose kernel has been enqueued */
    bool complete;                     /* everything has been published */
    bool out_of_range;                 /* a split family's flag is raised: load no more */
    bool inexact;                      /* some pieces were not merged, see clb_part_is_exact */
    clb_status status;                 /* the first failure */
};

/* The queue of a piece's transfer. */
static struct clb_queue *stream_queue(const struct stream *stream, bool up, size_t piece)
{
    size_t turn = piece % stream->queues;
    const struct clb_queue_set *queue_set =
        turn == 0 ? stream->queue_set : stream->strip_queue_set[turn - 1];
    return up ? queue_set->upload : queue_set->download;
}

/* Record the first failure and wake all threads. */
static void stream_fail(struct stream *stream, clb_status status)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->status == CLB_OK)
        stream->status = status;
    pthread_cond_broadcast(&stream->work);
    pthread_cond_broadcast(&stream->advance);
    pthread_mutex_unlock(&stream->lock);
}

/* CLB_OK when all commands that have ended were successful. All queue sets are checked, because a
 * piece of C depends on its loads, its packing and its product, which are on different ones. */
static clb_status stream_check(struct stream *stream)
{
    clb_status status = clb_queue_set_check(stream->queue_set);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && status == CLB_OK; i++)
        status = clb_queue_set_check(stream->strip_queue_set[i]);
    return status;
}

/* For the trace: what a thread has done since its last note. */
static void note(struct stream_thread *thread, const char *what)
{
    if (!clb_trace_wanted())
        return;
    clb_trace_since(what, thread->since);
    thread->since = clb_now();
}

/* ---- uploads --------------------------------------------------------------------------------- */

static size_t load_of_piece(const struct stream *stream, size_t piece)
{
    size_t low = 0, high = stream->schedule.loads;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (stream->schedule.load[middle].first_piece <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The load that used the raw buffer before this one; NULL when there is none. */
static const struct clb_load *predecessor(const struct stream *stream, size_t index)
{
    size_t slots = stream->plan.raw_slots;
    return index < slots ? NULL : &stream->schedule.load[index - slots];
}

static bool all_uploaded(const struct stream *stream)
{
    return stream->next_upload >= stream->schedule.load_pieces;
}

/* True when the next upload piece has a raw buffer: when the kernel that packs the buffer's
 * previous load has been enqueued. A thread never takes a piece that it would have to wait for,
 * because the calling thread, which enqueues that kernel, may be waiting for this very thread to
 * download a strip. The caller holds the lock. */
static bool upload_is_ready(const struct stream *stream)
{
    if (all_uploaded(stream) || stream->out_of_range)
        return false;
    const struct clb_load *before = predecessor(stream, load_of_piece(stream, stream->next_upload));
    return before == NULL || before->packed != NULL;
}

/* The part of its load that a piece covers. */
struct portion {
    struct clb_load *load;
    size_t index, rows, col, cols; /* columns of the load's memory, with all their rows */
};

static struct portion portion_of(const struct stream *stream, size_t piece)
{
    size_t index = load_of_piece(stream, piece);
    struct clb_load *load = &stream->schedule.load[index];
    bool along = load->depth_contiguous;
    size_t col = (piece - load->first_piece) * load->piece_cols;
    return (struct portion){.load = load,
                            .index = index,
                            .rows = along ? load->k : load->w,
                            .col = col,
                            .cols = clb_min(load->piece_cols, (along ? load->w : load->k) - col)};
}

/* Short columns lie on different pages, where the hardware's prefetchers stop: without prefetching
 * each column begins with the latency of memory. */
#define PREFETCH_BYTES   ((size_t)8192)
#define PREFETCH_COLUMNS 4

static void prefetch(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 3);
}

/* Look for infinities and NaNs in a column of the general operand of a triangular product, because
 * zeros outside the triangle are multiplied with it. It is in the cache now; a search of the
 * results would read these from memory once more. */
static void look_for_infinite(const struct stream *stream, const struct clb_load *load,
                              const char *column, size_t rows)
{
    if (load->operand->shape == CLB_STRUCTURE_GENERAL && clb_gemm_adds_zeros(stream->problem) &&
        !clb_tile_is_finite(stream->problem->precision, rows, 1, column, rows))
        atomic_store_explicit(&stream->schedule.step[load->step].infinite, true,
                              memory_order_relaxed);
}

/* Copy columns [begin, end) of a portion with ordinary stores, unless the tuning says otherwise:
 * the device then reads them from the cache. Where the link and the CPUs are busy in both
 * directions this is a little faster than non-temporal stores. (H200, 2026-11, n = 8192, double
 * precision.) */
static void stream_copy_in(const struct stream *stream, const struct portion *portion, size_t begin,
                           size_t end, char *slot)
{
    const struct clb_load *load = portion->load;
    const struct clb_operand *operand = load->operand;
    size_t row0 = load->depth_contiguous ? load->p0 : load->i0;
    size_t col0 = (load->depth_contiguous ? load->i0 : load->p0) + portion->col;
    size_t bytes = portion->rows * operand->element, step = operand->ld * operand->element;
    const char *from = operand->host + row0 * operand->element + col0 * step;
    if (load->kind == CLB_PIECE_EXPANDED) {
        clb_operand_make(stream->problem->precision, operand, load->i0, load->p0, load->w, load->k,
                         portion->col + begin, end - begin, slot + begin * bytes);
        return;
    }
    for (size_t j = begin; j < end; j++) {
        if (bytes <= PREFETCH_BYTES && j + PREFETCH_COLUMNS < end)
            prefetch(from + (j + PREFETCH_COLUMNS) * step, bytes);
        memcpy(slot + j * bytes, from + j * step, bytes);
        look_for_infinite(stream, load, slot + j * bytes, portion->rows);
    }
}

/* Bytes of columns that a thread copies at once. */
#define SHARE_BYTES ((size_t)256 << 10)

/* Copy the rest of the piece that `owner` is copying, share by share; the thread is the owner or
 * helps it. The ticket has the piece's number plus one in its high half and the next column in its
 * low half, so that a compare-and-swap can't take a share of another piece than the one that was
 * looked at. */
static void copy_shares(struct stream *stream, struct stream_thread *owner, uint64_t ticket)
{
    size_t piece = (size_t)(ticket >> 32) - 1;
    const struct portion portion = portion_of(stream, piece);
    size_t column = portion.rows * portion.load->operand->element;
    size_t share = clb_max(SHARE_BYTES / column, 1);
    while (ticket >> 32 == piece + 1 && (uint32_t)ticket < portion.cols) {
        size_t begin = (uint32_t)ticket, end = clb_min(begin + share, portion.cols);
        char *slot = owner->slot[atomic_load_explicit(&owner->at, memory_order_relaxed)]->host;
        if (!atomic_compare_exchange_weak(&owner->ticket, &ticket, ticket - begin + end))
            continue;
        stream_copy_in(stream, &portion, begin, end, slot);
        atomic_fetch_add(&owner->copied, end - begin);
        ticket = atomic_load(&owner->ticket);
    }
}

static void copy_piece(struct stream_thread *thread, size_t piece, const struct portion *portion,
                       size_t turn)
{
    uint64_t ticket = (uint64_t)(piece + 1) << 32;
    atomic_store_explicit(&thread->at, turn, memory_order_relaxed);
    atomic_store(&thread->copied, 0);
    atomic_store(&thread->ticket, ticket);
    copy_shares(thread->stream, thread, ticket);
    /* Helpers may still be copying, each one share at most. */
    while (atomic_load(&thread->copied) < portion->cols)
        sched_yield();
    atomic_store(&thread->ticket, 0);
}

/* A staging thread that falls behind all others delays the load that its piece belongs to, and the
 * kernels: CPUs of virtual machines stop at times. Help such threads before uploading a later
 * piece. */
static void help_others(struct stream_thread *thread, size_t next_piece)
{
    struct stream *stream = thread->stream;
    for (size_t i = 0; i < stream->staging_threads; i++) {
        struct stream_thread *other = &stream->thread[i];
        uint64_t ticket = atomic_load(&other->ticket);
        if (ticket != 0 && (size_t)(ticket >> 32) + stream->staging_threads <= next_piece)
            copy_shares(stream, other, ticket);
    }
}

static clb_status upload(struct stream_thread *thread, size_t piece)
{
    struct stream *stream = thread->stream;
    const struct portion portion = portion_of(stream, piece);
    struct clb_load *load = portion.load;
    size_t column = portion.rows * load->operand->element;
    size_t turn = thread->turn_up++ % 2;
    const struct clb_load *before = predecessor(stream, portion.index);
    const cl_event *free_again = before != NULL ? &before->packed : NULL;
    struct clb_queue *queue = stream_queue(stream, true, piece);
    cl_event moved;

    clb_status status = CLB_OK;
    help_others(thread, piece);
    note(thread, "copy in");
    if (thread->busy[turn] != NULL)
        status = clb_event_wait(&thread->busy[turn]);
    thread->busy[turn] = NULL;
    note(thread, "wait for uploads");
    if (status != CLB_OK)
        return status;
    copy_piece(thread, piece, &portion, turn);
    note(thread, "copy in");
    status = clb_queue_write(queue, stream->raw[portion.index % stream->plan.raw_slots]->mem,
                             portion.col * column, portion.cols * column, thread->slot[turn]->host,
                             free_again != NULL, free_again, &moved);
    if (status == CLB_OK) {
        pthread_mutex_lock(&stream->lock);
        load->upload[piece - load->first_piece] = moved; /* released with the load */
        bool all = ++load->enqueued == load->pieces;
        pthread_mutex_unlock(&stream->lock);
        thread->busy[turn] = moved;
        status = clb_queue_flush(queue);
        if (all)
            pthread_cond_signal(&stream->advance);
    }
    note(thread, "enqueue");
    return status;
}

/* ---- downloads ------------------------------------------------------------------------------- */

static struct clb_strip *strip_of_piece(const struct stream *stream, size_t piece)
{
    size_t low = 0, high = stream->schedule.strips;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (stream->schedule.strip[middle].first_piece <= piece)
            low = middle;
        else
            high = middle;
    }
    return &stream->schedule.strip[low];
}

/* Split families: *clean tells whether everything that went into a strip is within their range. The
 * flag was read before the strip's kernel ended, so this hardly waits. */
static clb_status check_flag(struct stream *stream, const struct clb_strip *strip, bool *clean)
{
    *clean = true;
    if (stream->flag == NULL)
        return CLB_OK;
    clb_status status = clb_event_wait(&stream->schedule.step[strip->step].checked);
    *clean = ((const volatile cl_uint *)stream->words->host)[strip->step] == 0;
    if (status == CLB_OK && !*clean) {
        pthread_mutex_lock(&stream->lock);
        stream->out_of_range = true;
        pthread_cond_broadcast(&stream->advance);
        pthread_mutex_unlock(&stream->lock);
    }
    return status;
}

/* C = P: alpha is one and beta zero, real or complex. */
static bool is_copy(const struct clb_gemm *problem)
{
    static const float one_s[2] = {1};
    static const double one_d[2] = {1};
    static const double zero[2] = {0};
    size_t size = clb_precision_size(problem->precision);
    bool single = problem->precision == CLB_S || problem->precision == CLB_C;
    return memcmp(problem->alpha, single ? (const void *)one_s : one_d, size) == 0 &&
           memcmp(problem->beta, zero, size) == 0;
}

/* Matrices of at least this size don't fit the caches and are written with non-temporal stores. */
#define LARGE_MATRIX ((size_t)64 << 20)

static void merge(const struct clb_gemm *problem, const struct clb_rect *rect, const char *p,
                  size_t ldp)
{
    size_t element = clb_precision_size(problem->precision);
    bool triangle = clb_gemm_region(problem) != CLB_REGION_FULL && rect->row == rect->col;
    if (triangle || !is_copy(problem) || problem->n * problem->ldc * element < LARGE_MATRIX) {
        clb_merge_part(problem, rect, p, ldp);
        return;
    }
    char *c = (char *)problem->c + (rect->row + rect->col * problem->ldc) * element;
    clb_copy_nontemporal(c, problem->ldc * element, p, ldp * element, rect->rows * element,
                         rect->cols);
}

/* Wait for the thread's pending download and merge its piece. */
static clb_status end_download(struct stream_thread *thread)
{
    struct stream *stream = thread->stream;
    size_t piece = thread->pending - 1;
    struct clb_strip *strip = strip_of_piece(stream, piece);
    clb_status status = clb_event_wait(&thread->pending_event);
    clb_event_release(thread->pending_event);
    thread->pending = 0;
    bool clean = true;
    if (status == CLB_OK)
        status = check_flag(stream, strip, &clean);
    if (status == CLB_OK)
        status = stream_check(stream);
    note(thread, "wait for results");
    if (status != CLB_OK || !clean)
        return status;
    const struct clb_gemm *problem = stream->problem;
    const struct clb_rect *rect = &stream->progress->part[piece];
    const struct clb_buffer *slot = thread->slot[2 + (thread->turn_down + 1) % 2];
    bool exact =
        !atomic_load_explicit(&stream->schedule.step[strip->step].infinite, memory_order_relaxed) ||
        clb_part_is_exact(problem, rect, slot->host, strip->ldc);
    if (exact)
        merge(problem, rect, slot->host, strip->ldc);
    note(thread, "copy out");
    pthread_mutex_lock(&stream->lock);
    stream->progress->written[piece] = exact;
    stream->inexact = stream->inexact || !exact;
    bool all = ++strip->merged == strip->pieces;
    pthread_mutex_unlock(&stream->lock);
    if (all)
        pthread_cond_signal(&stream->advance);
    return CLB_OK;
}

/* Start the download of a piece, then merge the piece before it. */
static clb_status download(struct stream_thread *thread, size_t piece)
{
    struct stream *stream = thread->stream;
    struct clb_strip *strip = strip_of_piece(stream, piece);
    if (stream->progress->written[piece]) /* by the run that this one continues */
        return CLB_OK;
    size_t element = clb_precision_size(stream->variant->precision);
    const struct clb_rect *rect = &stream->progress->part[piece];
    size_t offset = (piece - strip->first_piece) * strip->piece_cols * strip->ldc * element;
    offset += stream->whole ? strip->offset * element : 0;
    size_t number = (size_t)(strip - stream->schedule.strip);
    struct clb_queue *queue = stream_queue(stream, false, piece);
    cl_event moved;
    clb_status status =
        clb_queue_read(queue, stream->strip_buffer[number % stream->plan.strip_slots]->mem, offset,
                       rect->cols * strip->ldc * element,
                       thread->slot[2 + thread->turn_down % 2]->host, 1, &strip->ready, &moved);
    if (status != CLB_OK)
        return status;
    status = clb_queue_flush(queue);
    note(thread, "enqueue");
    if (thread->pending != 0) {
        clb_status merged = end_download(thread);
        status = status != CLB_OK ? status : merged;
    }
    thread->turn_down++;
    thread->pending = piece + 1;
    thread->pending_event = moved;
    return status;
}

/* ---- the thread's loop ----------------------------------------------------------------------- */

enum job { JOB_NONE, JOB_UPLOAD, JOB_DOWNLOAD, JOB_MERGE, JOB_TOUCH };

/* True when the slot of the thread's next upload is still in transfer. Called only while uploads
 * are left: the events are released after the last one. */
static bool would_wait(const struct stream_thread *thread)
{
    cl_event event = thread->busy[thread->turn_up % 2];
    return event != NULL && clb_event_is_pending(event);
}

/* The next job, and its piece or prefault unit; waits for one. JOB_NONE: the run is over. */
static enum job next_job(struct stream_thread *thread, size_t *piece)
{
    struct stream *stream = thread->stream;
    enum job job = JOB_NONE;
    pthread_mutex_lock(&stream->lock);
    while (stream->status == CLB_OK) {
        bool up = upload_is_ready(stream);
        bool down = stream->next_download < stream->published;
        bool idle = !down && thread->pending == 0;
        bool prefault = stream->prefault.next < stream->prefault.units && !stream->complete;
        if (prefault && up && would_wait(thread)) {
            *piece = stream->prefault.next++;
            job = JOB_TOUCH;
        } else if (up && (thread->uploads_first || idle)) {
            *piece = stream->next_upload++;
            job = JOB_UPLOAD;
        } else if (prefault && (!thread->uploads_first || (idle && all_uploaded(stream)))) {
            *piece = stream->prefault.next++;
            job = JOB_TOUCH;
        } else if (down) {
            thread->helps = all_uploaded(stream);
            *piece = stream->next_download++;
            job = JOB_DOWNLOAD;
        } else if (thread->pending != 0) {
            job = JOB_MERGE;
        } else if (!stream->complete) {
            pthread_cond_wait(&stream->work, &stream->lock);
            continue;
        }
        break;
    }
    pthread_mutex_unlock(&stream->lock);
    note(thread, "idle");
    return job;
}

static void stream_carry(void *argument)
{
    struct stream_thread *thread = argument;
    clb_status status = CLB_OK;
    while (status == CLB_OK) {
        size_t piece = 0;
        switch (next_job(thread, &piece)) {
        case JOB_UPLOAD:
            status = upload(thread, piece);
            break;
        case JOB_DOWNLOAD:
            if (thread->helps)
                help_others(thread, SIZE_MAX);
            status = download(thread, piece);
            break;
        case JOB_MERGE:
            status = end_download(thread);
            break;
        case JOB_TOUCH:
            clb_prefault_unit(&thread->stream->prefault, piece);
            note(thread, "fault in");
            break;
        case JOB_NONE:
            return;
        }
    }
    stream_fail(thread->stream, status);
}

static void stream_upload_now(struct stream_thread *thread, size_t end_piece)
{
    struct stream *stream = thread->stream;
    while (stream->next_upload < end_piece && stream->status == CLB_OK) {
        clb_status status = upload(thread, stream->next_upload++);
        if (status != CLB_OK)
            stream_fail(stream, status);
    }
}

static void stream_download_now(struct stream_thread *thread)
{
    struct stream *stream = thread->stream;
    clb_status status = CLB_OK;
    while (stream->next_download < stream->published && status == CLB_OK)
        status = download(thread, stream->next_download++);
    if (status == CLB_OK && thread->pending != 0)
        status = end_download(thread);
    if (status != CLB_OK)
        stream_fail(stream, status);
}

/* ---- resources: all are acquired before anything is enqueued --------------------------------- */

static clb_status get_some(struct stream *stream, struct clb_buffer **buffer, size_t count,
                           size_t bytes)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < count && status == CLB_OK; i++)
        status = clb_buffer_get(stream->runtime, CLB_MEMORY_DEVICE, bytes, &buffer[i]);
    return status;
}

/* Try to get one buffer for all of C. CLB_ERR_NOMEM when it would take more than an eighth of the
 * available memory, or does not fit. */
static clb_status get_whole(struct stream *stream, struct clb_buffer **buffer)
{
    const struct clb_discrete_plan *plan = &stream->plan;
    uint64_t max_alloc = stream->runtime->device.max_alloc;
    uint64_t bytes =
        (uint64_t)stream->schedule.strip_elements * clb_precision_size(stream->variant->precision);
    uint64_t rounded = clb_buffer_rounded(bytes);
    uint64_t slots = plan->strip_slots * (uint64_t)clb_buffer_rounded(plan->strip_bytes);
    if (bytes > max_alloc - max_alloc / 8 || rounded > plan->available / 8 ||
        plan->bytes - slots + rounded > plan->available)
        return CLB_ERR_NOMEM;
    return get_some(stream, buffer, 1, bytes);
}

/* Strips are added to on the device, after the first slabs, only where all of C is kept. Without
 * that, make the schedule again, with all slabs in one part. */
static clb_status make_in_one_part(struct stream *stream)
{
    if (stream->plan.first_slabs == 0)
        return CLB_OK;
    stream->plan.first_slabs = 0;
    clb_schedule_free(&stream->schedule);
    return clb_schedule_make(&stream->plan, stream->problem, stream->a, stream->b,
                             &stream->schedule);
}

static clb_status get_buffers(struct stream *stream)
{
    struct clb_discrete_plan *plan = &stream->plan;
    struct clb_buffer *whole = NULL;
    stream->whole = get_whole(stream, &whole) == CLB_OK;
    clb_status status = stream->whole ? CLB_OK : make_in_one_part(stream);
    plan->raw_slots = clb_min(plan->raw_slots, stream->schedule.loads);
    plan->strip_slots = stream->whole ? 1 : clb_min(plan->strip_slots, stream->schedule.strips);
    stream->buffer_count = 2 * plan->slabs + plan->raw_slots + plan->strip_slots;
    stream->buffers = calloc(stream->buffer_count, sizeof *stream->buffers);
    if (status != CLB_OK || stream->buffers == NULL) {
        clb_buffer_put(stream->runtime, whole);
        return status != CLB_OK ? status : CLB_ERR_NOMEM;
    }
    stream->packed_a = stream->buffers;
    stream->packed_b = stream->packed_a + plan->slabs;
    stream->raw = stream->packed_b + plan->slabs;
    stream->strip_buffer = stream->raw + plan->raw_slots;
    stream->strip_buffer[0] = whole;
    status = get_some(stream, stream->packed_a, plan->slabs, plan->a_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->packed_b, plan->slabs, plan->b_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->raw, plan->raw_slots, plan->raw_bytes);
    if (status == CLB_OK && !stream->whole)
        status = get_some(stream, stream->strip_buffer, plan->strip_slots, plan->strip_bytes);
    if (status == CLB_OK && clb_gemm_is_split(stream->variant))
        status = get_some(stream, &stream->flag, 1, sizeof(cl_uint));
    if (status == CLB_OK && stream->flag != NULL)
        status = clb_buffer_get(stream->runtime, CLB_MEMORY_HOST,
                                stream->schedule.steps * sizeof(cl_uint), &stream->words);
    return status;
}

/* The number of staging threads that prefer uploads. While C is kept on the device nothing waits
 * for a merge before the end, when all threads merge, and the operands should arrive as soon as
 * possible. But where strips are whole columns or rows (trmm), downloads move as many bytes as
 * uploads from the first strip on. */
static size_t upload_first(const struct stream *stream)
{
    if (stream->plan.strip_m != 0)
        return clb_div_up(6 * stream->staging_threads, 10);
    return stream->whole ? clb_div_up(5 * stream->staging_threads, 6)
                         : clb_div_up(6 * stream->staging_threads, 10);
}

/* Get as many staging threads as are available and have work; with fewer than two the calling
 * thread moves everything itself. */
static clb_status get_staging_threads(struct stream *stream)
{
    size_t pieces = stream->schedule.load_pieces + stream->schedule.strip_pieces;
    size_t forced = stream->variant->tuning.value[CLB_PARAM_THREADS];
    size_t up = stream->variant->tuning.value[CLB_PARAM_UPLOADERS];
    size_t wanted = clb_min(forced != 0 ? forced : pieces / 2, stream->plan.staging_threads);
    clb_workers_lend(&stream->workers, wanted, forced != 0);
    if (stream->workers.count < 2)
        clb_workers_return(&stream->workers);
    stream->staging_threads = clb_max(stream->workers.count, 1);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < stream->staging_threads; i++) {
        struct stream_thread *thread = &stream->thread[i];
        thread->stream = stream;
        thread->uploads_first = i < (up != 0 ? up : upload_first(stream));
        for (size_t s = 0; s < CLB_COUNT_OF(thread->slot) && status == CLB_OK; s++)
            status = clb_buffer_get(stream->runtime, CLB_MEMORY_HOST, stream->plan.piece_bytes,
                                    &thread->slot[s]);
    }
    return status;
}

static clb_status get_queue_sets(struct stream *stream)
{
    clb_status status = clb_queue_set_acquire(stream->runtime, &stream->queue_set);
    size_t queues = stream->variant->tuning.value[CLB_PARAM_QUEUES];
    stream->queues = clb_min(clb_max(queues, 1), MAX_QUEUES);
    if (status == CLB_OK)
        status = clb_queue_set_open_queues(stream->queue_set);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && status == CLB_OK; i++) {
        status = clb_queue_set_acquire(stream->runtime, &stream->strip_queue_set[i]);
        if (status == CLB_OK && i + 1 < stream->queues)
            status = clb_queue_set_open_queues(stream->strip_queue_set[i]);
    }
    return status;
}

static clb_status stream_get(struct stream *stream)
{
    clb_status status = get_queue_sets(stream);
    if (status == CLB_OK)
        status = get_buffers(stream);
    if (status == CLB_OK)
        status = get_staging_threads(stream);
    return status;
}

/* ---- release --------------------------------------------------------------------------------- */

static void release_event(cl_event event)
{
    if (event != NULL)
        clb_event_release(event);
}

static void release_loads(struct stream *stream)
{
    for (size_t i = 0; i < stream->schedule.loads; i++) {
        struct clb_load *load = &stream->schedule.load[i];
        for (size_t p = 0; p < load->pieces; p++) {
            release_event(load->upload[p]);
            load->upload[p] = NULL;
        }
        release_event(load->packed);
        load->packed = NULL;
    }
}

static void release_events(struct stream *stream)
{
    release_loads(stream);
    for (size_t i = 0; i < stream->schedule.strips; i++)
        release_event(stream->schedule.strip[i].ready);
    for (size_t i = 0; i < stream->schedule.steps; i++)
        release_event(stream->schedule.step[i].checked);
    for (size_t i = 0; i < stream->staging_threads; i++)
        release_event(stream->thread[i].pending != 0 ? stream->thread[i].pending_event : NULL);
}

static bool finish_queue_set(struct clb_queue_set *queue_set)
{
    return queue_set == NULL || clb_queue_set_settle(queue_set);
}

static void give_queue_set(struct clb_queue_set *queue_set, bool idle)
{
    if (queue_set != NULL && idle)
        clb_queue_set_release(queue_set);
    else if (queue_set != NULL)
        clb_queue_set_discard(queue_set);
}

static bool stream_put(struct stream *stream, bool enqueued)
{
    clb_workers_return(&stream->workers);
    bool idle = !enqueued || finish_queue_set(stream->queue_set);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && enqueued; i++)
        idle = finish_queue_set(stream->strip_queue_set[i]) && idle;
    bool good = !enqueued || stream_check(stream) == CLB_OK;
    release_events(stream);
    for (size_t i = 0; i < stream->buffer_count && stream->buffers != NULL; i++)
        clb_buffer_end(stream->runtime, stream->buffers[i], idle);
    clb_buffer_end(stream->runtime, stream->flag, idle);
    clb_buffer_end(stream->runtime, stream->words, idle);
    for (size_t i = 0; i < stream->staging_threads; i++) {
        for (size_t s = 0; s < CLB_COUNT_OF(stream->thread[i].slot); s++)
            clb_buffer_end(stream->runtime, stream->thread[i].slot[s], idle);
    }
    free(stream->buffers);
    give_queue_set(stream->queue_set, idle);
    for (size_t i = 0; i < CLB_STRIP_QUEUES; i++)
        give_queue_set(stream->strip_queue_set[i], idle);
    clb_schedule_free(&stream->schedule);
    return good;
}

/* ---- parts of the progress ------------------------------------------------------------------- */

/* Part p is download piece p. A run may continue an earlier one whose parts are the same; parts
 * that are written already are not computed again. CLB_ERR_UNSUPPORTED when the parts differ. */
static clb_status stream_make_parts(struct stream *stream)
{
    struct clb_gemm_progress *progress = stream->progress;
    const struct clb_schedule *schedule = &stream->schedule;
    bool resumed = progress->parts > 0;
    if (resumed && progress->parts != schedule->strip_pieces)
        return CLB_ERR_UNSUPPORTED;
    if (!resumed && clb_gemm_progress_make(progress, schedule->strip_pieces) != CLB_OK)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < schedule->strips; i++) {
        struct clb_strip *strip = &schedule->strip[i];
        for (size_t p = 0; p < strip->pieces; p++) {
            size_t index = strip->first_piece + p, col = p * strip->piece_cols;
            const struct clb_rect rect = {strip->rect.row, strip->rect.col + col, strip->rect.rows,
                                          clb_min(strip->piece_cols, strip->rect.cols - col)};
            const struct clb_rect *known = &progress->part[index];
            if (resumed && (known->row != rect.row || known->col != rect.col ||
                            known->rows != rect.rows || known->cols != rect.cols))
                return CLB_ERR_UNSUPPORTED;
            progress->part[index] = rect;
            strip->merged += progress->written[index];
        }
    }
    return CLB_OK;
}

/* ---- the calling thread ---------------------------------------------------------------------- */

static bool alone(const struct stream *stream)
{
    return stream->workers.count == 0;
}

/* Wait until all transfers of a load have been enqueued. */
static clb_status wait_for_load(struct stream *stream, const struct clb_load *load)
{
    if (alone(stream))
        stream_upload_now(&stream->thread[0], load->first_piece + load->pieces);
    pthread_mutex_lock(&stream->lock);
    while (load->enqueued < load->pieces && stream->status == CLB_OK && !stream->out_of_range)
        pthread_cond_wait(&stream->advance, &stream->lock);
    clb_status status =
        stream->status == CLB_OK && stream->out_of_range ? CLB_ERR_RANGE : stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* Enqueue the kernels that pack a load, after its transfers and the `count` events of `more`. */
static clb_status stream_pack(struct stream *stream, size_t index, const cl_event *more,
                              size_t count)
{
    struct clb_load *load = &stream->schedule.load[index];
    clb_status status = wait_for_load(stream, load);
    cl_event *waits = calloc(load->pieces + count, sizeof(cl_event)), done = NULL;
    if (status != CLB_OK || waits == NULL) {
        free(waits);
        return status != CLB_OK ? status : CLB_ERR_NOMEM;
    }
    for (size_t i = 0; i < load->pieces + count; i++)
        waits[i] = i < load->pieces ? load->upload[i] : more[i - load->pieces];
    for (size_t t = 0; t < load->targets && status == CLB_OK; t++) {
        const struct clb_pack_target *target = &load->target[t];
        const struct clb_buffer *packed =
            (target->role == CLB_OPERAND_A ? stream->packed_a : stream->packed_b)[target->slab];
        const struct clb_chunk chunk = {.mem = stream->raw[index % stream->plan.raw_slots]->mem,
                                        .ld = load->depth_contiguous ? load->k : load->w,
                                        .depth_contiguous = load->depth_contiguous,
                                        .conjugated = target->conjugated};
        status = clb_gemm_pack(
            stream->queue_set, stream->variant, target->role, &chunk, load->w, load->k, packed->mem,
            clb_packed_offset(stream->variant, target->role, load->i0 - load->origin, load->k),
            stream->flag != NULL ? stream->flag->mem : NULL,
            (struct clb_order){.waits = t == 0 ? (cl_uint)(load->pieces + count) : 0,
                               .wait_list = t == 0 ? waits : NULL,
                               .event = t + 1 == load->targets ? &done : NULL});
    }
    free(waits);
    if (status != CLB_OK)
        return status;
    status = clb_queue_flush(stream->queue_set->queue);
    pthread_mutex_lock(&stream->lock);
    load->packed = done;
    pthread_cond_broadcast(&stream->work);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* The events of the last strip before `end` on each queue: after them, packed operands that strips
 * read may be overwritten. */
static size_t last_strips(const struct stream *stream, size_t end, cl_event *events)
{
    size_t count = 0;
    for (size_t i = end; i > 0 && end - i < CLB_STRIP_QUEUES; i--) {
        cl_event ready = stream->schedule.strip[i - 1].ready;
        if (ready != NULL)
            events[count++] = ready;
    }
    return count;
}

/* Wait until the buffer of a strip is free: until its previous strip has been merged. */
static clb_status stream_wait_for_slot(struct stream *stream, size_t number)
{
    if (stream->whole || number < stream->plan.strip_slots)
        return CLB_OK;
    const struct clb_strip *before = &stream->schedule.strip[number - stream->plan.strip_slots];
    if (alone(stream))
        stream_download_now(&stream->thread[0]);
    pthread_mutex_lock(&stream->lock);
    while (before->merged < before->pieces && stream->status == CLB_OK && !stream->out_of_range)
        pthread_cond_wait(&stream->advance, &stream->lock);
    clb_status status =
        stream->status == CLB_OK && stream->out_of_range ? CLB_ERR_RANGE : stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* The part of a strip to which a pass contributes. */
static struct clb_rect stream_find_support(const struct stream *stream,
                                           const struct clb_strip *strip,
                                           const struct clb_pass *pass)
{
    const struct clb_rect *rect = &strip->rect;
    size_t row_end = rect->row + rect->rows, col_end = rect->col + rect->cols;
    const struct clb_span rows =
        clb_operand_support(&stream->a[pass->term], strip->a_origin, row_end - strip->a_origin,
                            pass->p0, pass->k, clb_gemm_unit(stream->variant, CLB_OPERAND_A));
    const struct clb_span cols =
        clb_operand_support(&stream->b[pass->term], strip->b_origin, col_end - strip->b_origin,
                            pass->p0, pass->k, clb_gemm_unit(stream->variant, CLB_OPERAND_B));
    size_t row = clb_max(rect->row, rows.first), col = clb_max(rect->col, cols.first);
    return (struct clb_rect){row, col, row < rows.end ? rows.end - row : 0,
                             col < cols.end ? cols.end - col : 0};
}

static clb_status multiply_slab(struct stream *stream, size_t number, size_t slab,
                                const struct clb_rect *rect, struct clb_order order)
{
    const struct clb_strip *strip = &stream->schedule.strip[number];
    const struct clb_discrete_plan *plan = &stream->plan;
    const struct clb_pass pass = clb_gemm_pass(stream->problem, plan->slab, slab);
    size_t depth = pass.k;
    const struct clb_product product = {
        .m = rect->rows,
        .n = rect->cols,
        .k = depth,
        .a = stream->packed_a[slab]->mem,
        .b = stream->packed_b[slab]->mem,
        .c = stream->strip_buffer[number % plan->strip_slots]->mem,
        .a_offset =
            clb_packed_offset(stream->variant, CLB_OPERAND_A, rect->row - strip->a_origin, depth),
        .b_offset =
            clb_packed_offset(stream->variant, CLB_OPERAND_B, rect->col - strip->b_origin, depth),
        .c_offset = (stream->whole ? strip->offset : 0) + rect->row - strip->rect.row +
                    (rect->col - strip->rect.col) * strip->ldc,
        .ldc = strip->ldc,
        .add = slab > 0,
        .cut = clb_gemm_skip(stream->variant, stream->problem, &pass, rect)};
    return clb_gemm_multiply(stream->strip_queue_set[strip->queue], stream->variant, &product,
                             order);
}

/* Enqueue the kernels of a strip after the packing of its operands; `packed` is the event of the
 * last of them. The first slab contributes to all of the strip. Strips of later slabs that add to
 * those of the first slabs are on the same queue, hence after them. */
static clb_status stream_multiply(struct stream *stream, size_t number, cl_event packed)
{
    struct clb_strip *strip = &stream->schedule.strip[number];
    const struct clb_discrete_plan *plan = &stream->plan;
    struct clb_rect rect, last = {0};
    size_t last_slab = 0;
    clb_status status = stream_wait_for_slot(stream, number);
    /* Each slab is launched one iteration late, because the last launch must make the event. */
    for (size_t slab = strip->slab; slab <= strip->end_slab && status == CLB_OK; slab++) {
        bool end = slab == strip->end_slab;
        if (!end) {
            const struct clb_pass pass = clb_gemm_pass(stream->problem, plan->slab, slab);
            rect = stream_find_support(stream, strip, &pass);
        }
        if (!end && (rect.rows == 0 || rect.cols == 0))
            continue;
        if (last.rows > 0)
            status = multiply_slab(
                stream, number, last_slab, &last,
                (struct clb_order){.waits = last_slab == strip->slab,
                                   .wait_list = last_slab == strip->slab ? &packed : NULL,
                                   .event = end ? &strip->ready : NULL});
        last = rect;
        last_slab = slab;
    }
    if (status == CLB_OK)
        status = clb_queue_flush(stream->strip_queue_set[strip->queue]->queue);
    return status;
}

static void stream_publish(struct stream *stream, const struct clb_strip *strip)
{
    pthread_mutex_lock(&stream->lock);
    stream->published = strip->first_piece + strip->pieces;
    pthread_mutex_unlock(&stream->lock);
    for (size_t i = 0; i < clb_min(strip->pieces, stream->workers.count); i++)
        pthread_cond_signal(&stream->work);
}

/* Split families: read the flag after a step's packing; the queue is in order. */
static clb_status read_flag(struct stream *stream, size_t s)
{
    struct clb_step *step = &stream->schedule.step[s];
    if (stream->flag == NULL)
        return CLB_OK;
    clb_status status =
        clb_queue_read(stream->queue_set->queue, stream->flag->mem, 0, sizeof(cl_uint),
                       (cl_uint *)stream->words->host + s, 0, NULL, &step->checked);
    if (status == CLB_OK)
        status = clb_queue_flush(stream->queue_set->queue);
    return status;
}

static clb_status enqueue_all(struct stream *stream)
{
    const struct clb_schedule *schedule = &stream->schedule;
    clb_status status = CLB_OK;
    size_t load = 0, strip = 0;
    for (size_t s = 0; s < schedule->steps && status == CLB_OK; s++) {
        const struct clb_step *step = &schedule->step[s];
        cl_event before[CLB_STRIP_QUEUES];
        size_t waits = step->new_block ? last_strips(stream, strip, before) : 0;
        for (size_t i = 0; i < step->loads && status == CLB_OK; i++)
            status = stream_pack(stream, load++, before, i == 0 ? waits : 0);
        if (status == CLB_OK)
            status = read_flag(stream, s);
        for (size_t i = 0; i < step->strips && status == CLB_OK; i++, strip++) {
            struct clb_strip *next = &schedule->strip[strip];
            if (next->merged < next->pieces || next->pieces == 0)
                status = stream_multiply(stream, strip, schedule->load[load - 1].packed);
            if (status == CLB_OK)
                stream_publish(stream, next);
        }
    }
    return status;
}

static clb_status lower_flag(struct stream *stream)
{
    static const cl_uint clean = 0;
    if (stream->flag == NULL)
        return CLB_OK;
    return clb_queue_write(stream->queue_set->queue, stream->flag->mem, 0, sizeof clean, &clean, 0,
                           NULL, NULL);
}

static clb_status begin_stream(struct stream *stream)
{
    const struct clb_device *device = &stream->runtime->device;
    clb_status status = clb_discrete_make_plan(
        stream->variant, stream->problem, clb_memory_available(stream->runtime), device->max_alloc,
        device->unified ? 0 : device->units, &stream->plan);
    if (status == CLB_OK)
        status = clb_schedule_make(&stream->plan, stream->problem, stream->a, stream->b,
                                   &stream->schedule);
    if (status == CLB_OK)
        status = stream_get(stream);
    if (status == CLB_OK)
        status = stream_make_parts(stream);
    if (status == CLB_OK)
        stream->prefault =
            clb_prefault_begin(stream->problem, stream->variant->tuning.value[CLB_PARAM_FAULT]);
    return status;
}

/* Let the staging threads work, and wait until they have ended. */
static clb_status end_staging(struct stream *stream)
{
    if (alone(stream))
        stream_download_now(&stream->thread[0]);
    pthread_mutex_lock(&stream->lock);
    stream->complete = true;
    pthread_cond_broadcast(&stream->work);
    pthread_mutex_unlock(&stream->lock);
    clb_workers_return(&stream->workers);
    bool left_out = stream->out_of_range || stream->inexact;
    return stream->status == CLB_OK && left_out ? CLB_ERR_RANGE : stream->status;
}

clb_status clb_gemm_run_discrete(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct stream stream = {.runtime = runtime,
                            .variant = variant,
                            .problem = problem,
                            .progress = progress,
                            .lock = PTHREAD_MUTEX_INITIALIZER,
                            .work = PTHREAD_COND_INITIALIZER,
                            .advance = PTHREAD_COND_INITIALIZER};
    for (size_t t = 0; t < clb_gemm_terms(problem); t++) {
        stream.a[t] = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        stream.b[t] = clb_operand_of_term(problem, CLB_OPERAND_B, t);
    }
    clb_status status = begin_stream(&stream);
    bool enqueued = status == CLB_OK;
    if (enqueued) {
        progress->kernel = variant->name;
        status = lower_flag(&stream);
        for (size_t i = 0; i < stream.staging_threads; i++)
            stream.thread[i].since = clb_trace_wanted() ? clb_now() : 0;
        for (size_t i = 0; i < stream.workers.count; i++)
            clb_workers_start(&stream.workers, i, stream_carry, &stream.thread[i]);
        if (status == CLB_OK)
            status = enqueue_all(&stream);
        if (status == CLB_OK)
            release_loads(&stream);
        /* When the range was left, the threads still merge what was published before. */
        if (status != CLB_OK && !(status == CLB_ERR_RANGE && stream.out_of_range))
            stream_fail(&stream, status);
        status = end_staging(&stream);
    }
    if (!stream_put(&stream, enqueued))
        status = clb_gemm_distrust(problem, progress);
    pthread_mutex_destroy(&stream.lock);
    pthread_cond_destroy(&stream.work);
    pthread_cond_destroy(&stream.advance);
    return status;
}
