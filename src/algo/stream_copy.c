/* Porters: CPU threads that carry pieces between the caller's memory and pinned memory.
 *
 * A porter copies a piece while the transfer of its other slot is under way. Uploads are handed out
 * in the order of the loads, downloads in the order of the strips; nobody waits for anything but
 * the device and commands that have been enqueued already, so there is always progress. */
#include "stream.h"

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

/* The load whose raw buffer this one takes over; NULL when the buffer is fresh. */
static const struct clb_load *predecessor(const struct clb_stream *stream, size_t index)
{
    size_t slots = stream->plan.raw_slots;
    return index < slots ? NULL : &stream->schedule.load[index - slots];
}

static bool all_uploaded(const struct clb_stream *stream)
{
    return stream->next_upload >= stream->schedule.load_pieces;
}

/* True when the next piece has a raw buffer: the kernel that empties it has been enqueued. A porter
 * never takes a piece that it would have to wait for, because the calling thread, which enqueues
 * that kernel, may be waiting for this very porter to bring a strip down. With the lock held. */
static bool upload_is_ready(const struct clb_stream *stream)
{
    if (all_uploaded(stream) || stream->out_of_range)
        return false;
    const struct clb_load *before = predecessor(stream, load_of_piece(stream, stream->next_upload));
    return before == NULL || before->packed != NULL;
}

/* Short columns lie on different pages: without help every one begins with the latency of memory.
 */
#define PREFETCH_BYTES   ((size_t)8192)
#define PREFETCH_COLUMNS 4

static void prefetch(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 3);
}

/* Through the cache, from which the device then reads: where the link and the CPUs are busy in both
 * directions that is a little faster than past it. (H200, 2026-11, n = 8192, double precision.) */
static void copy_in(const struct clb_stream *stream, const struct clb_load *load, size_t col,
                    size_t cols, size_t rows, char *slot)
{
    const struct clb_operand *operand = load->operand;
    bool cached = stream->variant->tuning.value[CLB_PARAM_PAST] != 1;
    size_t row0 = load->depth_contiguous ? load->p0 : load->i0;
    size_t col0 = load->depth_contiguous ? load->i0 : load->p0;
    if (load->kind == CLB_PIECE_MIXED) {
        clb_operand_make(stream->problem->precision, operand, load->i0, load->p0, load->w, load->k,
                         col, cols, slot);
        return;
    }
    const char *from = operand->host + (row0 + (col0 + col) * operand->ld) * operand->element;
    size_t bytes = rows * operand->element, step = operand->ld * operand->element;
    if (!cached) {
        clb_copy_past_cache(slot, bytes, from, step, bytes, cols);
        return;
    }
    for (size_t j = 0; j < cols; j++) {
        if (bytes <= PREFETCH_BYTES && j + PREFETCH_COLUMNS < cols)
            prefetch(from + (j + PREFETCH_COLUMNS) * step, bytes);
        memcpy(slot + j * bytes, from + j * step, bytes);
    }
}

static clb_status upload(struct clb_porter *porter, size_t piece)
{
    struct clb_stream *stream = porter->stream;
    size_t index = load_of_piece(stream, piece);
    struct clb_load *load = &stream->schedule.load[index];
    const struct clb_operand *operand = load->operand;
    size_t rows = load->depth_contiguous ? load->k : load->w;
    size_t all_cols = load->depth_contiguous ? load->w : load->k;
    size_t col = (piece - load->first_piece) * load->piece_cols;
    size_t cols = clb_min(load->piece_cols, all_cols - col);
    size_t turn = porter->turn_up++ % 2;
    struct clb_buffer *slot = porter->slot[turn];
    const struct clb_load *before = predecessor(stream, index);
    const cl_event *free_again = before != NULL ? &before->packed : NULL;
    cl_command_queue queue = clb_stream_queue(stream, true, piece);
    cl_event moved;

    clb_status status = CLB_OK;
    if (porter->busy[turn] != NULL)
        status = clb_cl_check(clb_cl.WaitForEvents(1, &porter->busy[turn]), "clWaitForEvents");
    porter->busy[turn] = NULL;
    clb_porter_spent(porter, CLB_SPELL_UP);
    if (status != CLB_OK)
        return status;
    copy_in(stream, load, col, cols, rows, slot->host);
    clb_porter_spent(porter, CLB_SPELL_COPY);
    status = clb_cl_check(
        clb_cl.EnqueueWriteBuffer(queue, stream->raw[index % stream->plan.raw_slots]->mem, CL_FALSE,
                                  col * rows * operand->element, cols * rows * operand->element,
                                  slot->host, free_again != NULL, free_again, &moved),
        "clEnqueueWriteBuffer");
    if (status == CLB_OK) {
        pthread_mutex_lock(&stream->lock);
        load->upload[piece - load->first_piece] = moved; /* released with the load */
        bool all = ++load->enqueued == load->pieces;
        pthread_mutex_unlock(&stream->lock);
        porter->busy[turn] = moved;
        status = clb_cl_check(clb_cl.Flush(queue), "clFlush");
        if (all)
            pthread_cond_signal(&stream->advance);
    }
    clb_porter_spent(porter, CLB_SPELL_ENQUEUE);
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

/* Split families: *clean says whether everything that went into a strip is within their range. The
 * flag was read before the strip's kernel ended, so that there is hardly anything to wait for. */
static clb_status check_flag(struct clb_stream *stream, const struct clb_strip *strip, bool *clean)
{
    *clean = true;
    if (stream->flag == NULL)
        return CLB_OK;
    clb_status status = clb_cl_check(
        clb_cl.WaitForEvents(1, &stream->schedule.step[strip->step].checked), "clWaitForEvents");
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

/* A matrix that the caches can't hold is written past them. */
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
    clb_copy_past_cache(c, problem->ldc * element, p, ldp * element, rect->rows * element,
                        rect->cols);
}

/* Merge the piece whose transfer is under way. */
static clb_status end_download(struct clb_porter *porter)
{
    struct clb_stream *stream = porter->stream;
    size_t piece = porter->pending - 1;
    struct clb_strip *strip = strip_of_piece(stream, piece);
    clb_status status =
        clb_cl_check(clb_cl.WaitForEvents(1, &porter->pending_event), "clWaitForEvents");
    clb_cl.ReleaseEvent(porter->pending_event);
    porter->pending = 0;
    bool clean;
    if (status == CLB_OK)
        status = check_flag(stream, strip, &clean);
    clb_porter_spent(porter, CLB_SPELL_DOWN);
    if (status != CLB_OK || !clean)
        return status;
    const struct clb_gemm *problem = stream->problem;
    const struct clb_rect *rect = &stream->progress->part[piece];
    const struct clb_buffer *slot = porter->slot[2 + (porter->turn_down + 1) % 2];
    bool exact = clb_part_is_exact(problem, rect, slot->host, strip->ldc);
    if (exact)
        merge(problem, rect, slot->host, strip->ldc);
    clb_porter_spent(porter, CLB_SPELL_MERGE);
    pthread_mutex_lock(&stream->lock);
    stream->progress->written[piece] = exact;
    stream->inexact = stream->inexact || !exact;
    bool all = ++strip->merged == strip->pieces;
    pthread_mutex_unlock(&stream->lock);
    if (all)
        pthread_cond_signal(&stream->advance);
    return CLB_OK;
}

/* Start the transfer of a piece, then merge the one before it. */
static clb_status download(struct clb_porter *porter, size_t piece)
{
    struct clb_stream *stream = porter->stream;
    struct clb_strip *strip = strip_of_piece(stream, piece);
    if (stream->progress->written[piece]) /* by the run that this one continues */
        return CLB_OK;
    size_t element = clb_precision_size(stream->variant->precision);
    const struct clb_rect *rect = &stream->progress->part[piece];
    size_t offset = (piece - strip->first_piece) * strip->piece_cols * strip->ldc * element;
    offset += stream->whole ? strip->offset * element : 0;
    size_t number = (size_t)(strip - stream->schedule.strip);
    cl_command_queue queue = clb_stream_queue(stream, false, piece);
    cl_event moved;
    clb_status status =
        clb_cl_check(clb_cl.EnqueueReadBuffer(
                         queue, stream->strip_buffer[number % stream->plan.strip_slots]->mem,
                         CL_FALSE, offset, rect->cols * strip->ldc * element,
                         porter->slot[2 + porter->turn_down % 2]->host, 1, &strip->ready, &moved),
                     "clEnqueueReadBuffer");
    if (status != CLB_OK)
        return status;
    status = clb_cl_check(clb_cl.Flush(queue), "clFlush");
    clb_porter_spent(porter, CLB_SPELL_ENQUEUE);
    if (porter->pending != 0) {
        clb_status merged = end_download(porter);
        status = status != CLB_OK ? status : merged;
    }
    porter->turn_down++;
    porter->pending = piece + 1;
    porter->pending_event = moved;
    return status;
}

/* ---- the porter's loop ----------------------------------------------------------------------- */

enum job { JOB_NONE, JOB_UPLOAD, JOB_DOWNLOAD, JOB_MERGE, JOB_TOUCH };

/* The next thing to do, a piece or a unit; waits for one. JOB_NONE: the run is over. */
static enum job next_job(struct clb_porter *porter, size_t *piece)
{
    struct clb_stream *stream = porter->stream;
    enum job job = JOB_NONE;
    pthread_mutex_lock(&stream->lock);
    while (stream->status == CLB_OK) {
        bool up = upload_is_ready(stream);
        bool down = stream->next_download < stream->published;
        bool idle = !down && porter->pending == 0;
        bool touch = stream->touch.next < stream->touch.units && !stream->complete;
        if (up && (porter->uploads_first || idle)) {
            *piece = stream->next_upload++;
            job = JOB_UPLOAD;
        } else if (touch && (!porter->uploads_first || (idle && all_uploaded(stream)))) {
            *piece = stream->touch.next++;
            job = JOB_TOUCH;
        } else if (down) {
            *piece = stream->next_download++;
            job = JOB_DOWNLOAD;
        } else if (porter->pending != 0) {
            job = JOB_MERGE;
        } else if (!stream->complete) {
            pthread_cond_wait(&stream->work, &stream->lock);
            continue;
        }
        break;
    }
    pthread_mutex_unlock(&stream->lock);
    clb_porter_spent(porter, CLB_SPELL_IDLE);
    return job;
}

void clb_stream_carry(void *argument)
{
    struct clb_porter *porter = argument;
    clb_status status = CLB_OK;
    while (status == CLB_OK) {
        size_t piece;
        switch (next_job(porter, &piece)) {
        case JOB_UPLOAD:
            status = upload(porter, piece);
            break;
        case JOB_DOWNLOAD:
            status = download(porter, piece);
            break;
        case JOB_MERGE:
            status = end_download(porter);
            break;
        case JOB_TOUCH:
            clb_touch_unit(&porter->stream->touch, piece);
            clb_porter_spent(porter, CLB_SPELL_TOUCH);
            break;
        case JOB_NONE:
            return;
        }
    }
    clb_stream_fail(porter->stream, status);
}

void clb_stream_upload_now(struct clb_porter *porter, size_t end_piece)
{
    struct clb_stream *stream = porter->stream;
    while (stream->next_upload < end_piece && stream->status == CLB_OK) {
        clb_status status = upload(porter, stream->next_upload++);
        if (status != CLB_OK)
            clb_stream_fail(stream, status);
    }
}

void clb_stream_download_now(struct clb_porter *porter)
{
    struct clb_stream *stream = porter->stream;
    clb_status status = CLB_OK;
    while (stream->next_download < stream->published && status == CLB_OK)
        status = download(porter, stream->next_download++);
    if (status == CLB_OK && porter->pending != 0)
        status = end_download(porter);
    if (status != CLB_OK)
        clb_stream_fail(stream, status);
}
