/* Staging threads: CPU threads that copy pieces between the caller's memory and pinned memory.
 *
 * A thread copies a piece while the transfer of its other slot is under way. Uploads are handed out
 * in the order of the loads, downloads in the order of the strips. A thread waits only for commands
 * that have been enqueued already, so there is always progress. */
#include "stream.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

void clb_stream_fail(struct clb_stream *stream, clb_status status)
{
    pthread_mutex_lock(&stream->lock);
    if (stream->status == CLB_OK)
        stream->status = status;
    pthread_cond_broadcast(&stream->work);
    pthread_cond_broadcast(&stream->advance);
    pthread_mutex_unlock(&stream->lock);
}

void clb_staging_thread_note(struct clb_staging_thread *thread, enum clb_spell spell)
{
    static const char *const names[] = {[CLB_SPELL_IDLE] = "idle",
                                        [CLB_SPELL_COPY] = "copy in",
                                        [CLB_SPELL_ENQUEUE] = "enqueue",
                                        [CLB_SPELL_UP] = "wait for uploads",
                                        [CLB_SPELL_DOWN] = "wait for results",
                                        [CLB_SPELL_MERGE] = "copy out",
                                        [CLB_SPELL_TOUCH] = "fault in"};
    double now = clb_now();
    thread->spent[spell] += now - thread->since;
    if (clb_trace_wanted())
        clb_trace_since(names[spell], thread->since);
    thread->since = now;
}

/* ---- uploads --------------------------------------------------------------------------------- */

static size_t load_of_piece(const struct clb_stream *stream, size_t piece)
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
static const struct clb_load *predecessor(const struct clb_stream *stream, size_t index)
{
    size_t slots = stream->plan.raw_slots;
    return index < slots ? NULL : &stream->schedule.load[index - slots];
}

static bool all_uploaded(const struct clb_stream *stream)
{
    return stream->next_upload >= stream->schedule.load_pieces;
}

/* True when the next upload piece has a raw buffer: when the kernel that packs the buffer's
 * previous load has been enqueued. A thread never takes a piece that it would have to wait for,
 * because the calling thread, which enqueues that kernel, may be waiting for this very thread to
 * download a strip. The caller holds the lock. */
static bool upload_is_ready(const struct clb_stream *stream)
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

static struct portion portion_of(const struct clb_stream *stream, size_t piece)
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
static void look_for_infinite(const struct clb_stream *stream, const struct clb_load *load,
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
static void stream_copy_in(const struct clb_stream *stream, const struct portion *portion,
                           size_t begin, size_t end, char *slot)
{
    const struct clb_load *load = portion->load;
    const struct clb_operand *operand = load->operand;
    size_t row0 = load->depth_contiguous ? load->p0 : load->i0;
    size_t col0 = (load->depth_contiguous ? load->i0 : load->p0) + portion->col;
    size_t bytes = portion->rows * operand->element, step = operand->ld * operand->element;
    const char *from = operand->host + row0 * operand->element + col0 * step;
    bool cached = stream->variant->tuning.value[CLB_PARAM_NT_COPY] != 1;
    if (load->kind == CLB_PIECE_EXPANDED) {
        clb_operand_make(stream->problem->precision, operand, load->i0, load->p0, load->w, load->k,
                         portion->col + begin, end - begin, slot + begin * bytes);
        return;
    }
    if (!cached) {
        clb_copy_nontemporal(slot + begin * bytes, bytes, from + begin * step, step, bytes,
                             end - begin);
        for (size_t j = begin; j < end; j++)
            look_for_infinite(stream, load, from + j * step, portion->rows);
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
static void stream_copy_shares(struct clb_stream *stream, struct clb_staging_thread *owner,
                               uint64_t ticket)
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

static void copy_piece(struct clb_staging_thread *thread, size_t piece,
                       const struct portion *portion, size_t turn)
{
    uint64_t ticket = (uint64_t)(piece + 1) << 32;
    atomic_store_explicit(&thread->at, turn, memory_order_relaxed);
    atomic_store(&thread->copied, 0);
    atomic_store(&thread->ticket, ticket);
    stream_copy_shares(thread->stream, thread, ticket);
    /* Helpers may still be copying, each one share at most. */
    while (atomic_load(&thread->copied) < portion->cols)
        sched_yield();
    atomic_store(&thread->ticket, 0);
}

/* A staging thread that falls behind all others delays the load that its piece belongs to, and the
 * kernels: CPUs of virtual machines stop at times. Help such threads before uploading a later
 * piece. */
static void help_others(struct clb_staging_thread *thread, size_t next_piece)
{
    struct clb_stream *stream = thread->stream;
    for (size_t i = 0; i < stream->staging_threads; i++) {
        struct clb_staging_thread *other = &stream->thread[i];
        uint64_t ticket = atomic_load(&other->ticket);
        if (ticket != 0 && (size_t)(ticket >> 32) + stream->staging_threads <= next_piece)
            stream_copy_shares(stream, other, ticket);
    }
}

static clb_status upload(struct clb_staging_thread *thread, size_t piece)
{
    struct clb_stream *stream = thread->stream;
    const struct portion portion = portion_of(stream, piece);
    struct clb_load *load = portion.load;
    size_t column = portion.rows * load->operand->element;
    size_t turn = thread->turn_up++ % 2;
    const struct clb_load *before = predecessor(stream, portion.index);
    const cl_event *free_again = before != NULL ? &before->packed : NULL;
    struct clb_queue *queue = clb_stream_queue(stream, true, piece);
    cl_event moved;

    clb_status status = CLB_OK;
    help_others(thread, piece);
    clb_staging_thread_spent(thread, CLB_SPELL_COPY);
    if (thread->busy[turn] != NULL)
        status = clb_event_wait(&thread->busy[turn]);
    thread->busy[turn] = NULL;
    clb_staging_thread_spent(thread, CLB_SPELL_UP);
    if (status != CLB_OK)
        return status;
    copy_piece(thread, piece, &portion, turn);
    clb_staging_thread_spent(thread, CLB_SPELL_COPY);
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
    clb_staging_thread_spent(thread, CLB_SPELL_ENQUEUE);
    return status;
}

/* ---- downloads ------------------------------------------------------------------------------- */

static struct clb_strip *strip_of_piece(const struct clb_stream *stream, size_t piece)
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
static clb_status check_flag(struct clb_stream *stream, const struct clb_strip *strip, bool *clean)
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
static clb_status end_download(struct clb_staging_thread *thread)
{
    struct clb_stream *stream = thread->stream;
    size_t piece = thread->pending - 1;
    struct clb_strip *strip = strip_of_piece(stream, piece);
    clb_status status = clb_event_wait(&thread->pending_event);
    clb_event_release(thread->pending_event);
    thread->pending = 0;
    bool clean = true;
    if (status == CLB_OK)
        status = check_flag(stream, strip, &clean);
    if (status == CLB_OK)
        status = clb_stream_check(stream);
    clb_staging_thread_spent(thread, CLB_SPELL_DOWN);
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
    clb_staging_thread_spent(thread, CLB_SPELL_MERGE);
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
static clb_status download(struct clb_staging_thread *thread, size_t piece)
{
    struct clb_stream *stream = thread->stream;
    struct clb_strip *strip = strip_of_piece(stream, piece);
    if (stream->progress->written[piece]) /* by the run that this one continues */
        return CLB_OK;
    size_t element = clb_precision_size(stream->variant->precision);
    const struct clb_rect *rect = &stream->progress->part[piece];
    size_t offset = (piece - strip->first_piece) * strip->piece_cols * strip->ldc * element;
    offset += stream->whole ? strip->offset * element : 0;
    size_t number = (size_t)(strip - stream->schedule.strip);
    struct clb_queue *queue = clb_stream_queue(stream, false, piece);
    cl_event moved;
    clb_status status =
        clb_queue_read(queue, stream->strip_buffer[number % stream->plan.strip_slots]->mem, offset,
                       rect->cols * strip->ldc * element,
                       thread->slot[2 + thread->turn_down % 2]->host, 1, &strip->ready, &moved);
    if (status != CLB_OK)
        return status;
    status = clb_queue_flush(queue);
    clb_staging_thread_spent(thread, CLB_SPELL_ENQUEUE);
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
static bool would_wait(const struct clb_staging_thread *thread)
{
    cl_event event = thread->busy[thread->turn_up % 2];
    return event != NULL && clb_event_is_pending(event);
}

/* The next job, and its piece or prefault unit; waits for one. JOB_NONE: the run is over. */
static enum job next_job(struct clb_staging_thread *thread, size_t *piece)
{
    struct clb_stream *stream = thread->stream;
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
    clb_staging_thread_spent(thread, CLB_SPELL_IDLE);
    return job;
}

void clb_stream_carry(void *argument)
{
    struct clb_staging_thread *thread = argument;
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
            clb_staging_thread_spent(thread, CLB_SPELL_TOUCH);
            break;
        case JOB_NONE:
            return;
        }
    }
    clb_stream_fail(thread->stream, status);
}

void clb_stream_upload_now(struct clb_staging_thread *thread, size_t end_piece)
{
    struct clb_stream *stream = thread->stream;
    while (stream->next_upload < end_piece && stream->status == CLB_OK) {
        clb_status status = upload(thread, stream->next_upload++);
        if (status != CLB_OK)
            clb_stream_fail(stream, status);
    }
}

void clb_stream_download_now(struct clb_staging_thread *thread)
{
    struct clb_stream *stream = thread->stream;
    clb_status status = CLB_OK;
    while (stream->next_download < stream->published && status == CLB_OK)
        status = download(thread, stream->next_download++);
    if (status == CLB_OK && thread->pending != 0)
        status = end_download(thread);
    if (status != CLB_OK)
        clb_stream_fail(stream, status);
}
