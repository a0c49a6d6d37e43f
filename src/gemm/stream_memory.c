/* The resources of a streamed run: queues, buffers, threads and their pinned slots. All are
 * acquired before anything is enqueued. */
#include "stream.h"

#include <stdlib.h>

static clb_status get_some(struct clb_stream *stream, struct clb_buffer **buffer, size_t count,
                           size_t bytes)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < count && status == CLB_OK; i++)
        status = clb_buffer_get(stream->runtime, CLB_MEMORY_DEVICE, bytes, &buffer[i]);
    return status;
}

/* Try to get one buffer for all of C. CLB_ERR_NOMEM when it would take more than an eighth of the
 * available memory, or does not fit. */
static clb_status get_whole(struct clb_stream *stream, struct clb_buffer **buffer)
{
    const struct clb_stream_plan *plan = &stream->plan;
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
static clb_status make_in_one_part(struct clb_stream *stream)
{
    if (stream->plan.first_slabs == 0)
        return CLB_OK;
    stream->plan.first_slabs = 0;
    clb_schedule_free(&stream->schedule);
    return clb_schedule_make(&stream->plan, stream->problem, stream->a, stream->b,
                             &stream->schedule);
}

static clb_status get_buffers(struct clb_stream *stream)
{
    struct clb_stream_plan *plan = &stream->plan;
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
static size_t upload_first(const struct clb_stream *stream)
{
    if (stream->plan.strip_m != 0)
        return clb_div_up(6 * stream->staging_threads, 10);
    return stream->whole ? clb_div_up(5 * stream->staging_threads, 6)
                         : clb_div_up(6 * stream->staging_threads, 10);
}

/* Get as many staging threads as are available and have work; with fewer than two the calling
 * thread moves everything itself. */
static clb_status get_staging_threads(struct clb_stream *stream)
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
        struct clb_staging_thread *thread = &stream->thread[i];
        thread->stream = stream;
        thread->uploads_first = i < (up != 0 ? up : upload_first(stream));
        for (size_t s = 0; s < CLB_COUNT_OF(thread->slot) && status == CLB_OK; s++)
            status = clb_buffer_get(stream->runtime, CLB_MEMORY_HOST, stream->plan.piece_bytes,
                                    &thread->slot[s]);
    }
    return status;
}

static clb_status get_queue_sets(struct clb_stream *stream)
{
    clb_status status = clb_queue_set_acquire(stream->runtime, &stream->queue_set);
    size_t queues = stream->variant->tuning.value[CLB_PARAM_QUEUES];
    stream->queues = clb_min(clb_max(queues, 1), CLB_MAX_QUEUES);
    if (status == CLB_OK)
        status = clb_queue_set_open_queues(stream->queue_set);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && status == CLB_OK; i++) {
        status = clb_queue_set_acquire(stream->runtime, &stream->strip_queue_set[i]);
        if (status == CLB_OK && i + 1 < stream->queues)
            status = clb_queue_set_open_queues(stream->strip_queue_set[i]);
    }
    return status;
}

clb_status clb_stream_get(struct clb_stream *stream)
{
    clb_status status = get_queue_sets(stream);
    if (status == CLB_OK)
        status = get_buffers(stream);
    if (status == CLB_OK)
        status = get_staging_threads(stream);
    return status;
}

/* ---- release --------------------------------------------------------------------------------- */

static void stream_memory_release_event(cl_event event)
{
    if (event != NULL)
        clb_event_release(event);
}

void clb_stream_release_loads(struct clb_stream *stream)
{
    for (size_t i = 0; i < stream->schedule.loads; i++) {
        struct clb_load *load = &stream->schedule.load[i];
        for (size_t p = 0; p < load->pieces; p++) {
            stream_memory_release_event(load->upload[p]);
            load->upload[p] = NULL;
        }
        stream_memory_release_event(load->packed);
        load->packed = NULL;
    }
}

static void release_events(struct clb_stream *stream)
{
    clb_stream_release_loads(stream);
    for (size_t i = 0; i < stream->schedule.strips; i++)
        stream_memory_release_event(stream->schedule.strip[i].ready);
    for (size_t i = 0; i < stream->schedule.steps; i++)
        stream_memory_release_event(stream->schedule.step[i].checked);
    for (size_t i = 0; i < stream->staging_threads; i++)
        stream_memory_release_event(stream->thread[i].pending != 0 ? stream->thread[i].pending_event
                                                                   : NULL);
}

static void stream_memory_put_or_leak(struct clb_stream *stream, struct clb_buffer *buffer,
                                      bool idle)
{
    if (idle)
        clb_buffer_put(stream->runtime, buffer);
    else
        clb_buffer_leak(buffer);
}

clb_status clb_stream_check(struct clb_stream *stream)
{
    clb_status status = clb_queue_set_check(stream->queue_set);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && status == CLB_OK; i++)
        status = clb_queue_set_check(stream->strip_queue_set[i]);
    return status;
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

bool clb_stream_put(struct clb_stream *stream, bool enqueued)
{
    clb_workers_return(&stream->workers);
    bool idle = !enqueued || finish_queue_set(stream->queue_set);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && enqueued; i++)
        idle = finish_queue_set(stream->strip_queue_set[i]) && idle;
    bool good = !enqueued || clb_stream_check(stream) == CLB_OK;
    release_events(stream);
    for (size_t i = 0; i < stream->buffer_count && stream->buffers != NULL; i++)
        stream_memory_put_or_leak(stream, stream->buffers[i], idle);
    stream_memory_put_or_leak(stream, stream->flag, idle);
    stream_memory_put_or_leak(stream, stream->words, idle);
    for (size_t i = 0; i < stream->staging_threads; i++) {
        for (size_t s = 0; s < CLB_COUNT_OF(stream->thread[i].slot); s++)
            stream_memory_put_or_leak(stream, stream->thread[i].slot[s], idle);
    }
    free(stream->buffers);
    give_queue_set(stream->queue_set, idle);
    for (size_t i = 0; i < CLB_STRIP_QUEUES; i++)
        give_queue_set(stream->strip_queue_set[i], idle);
    clb_schedule_free(&stream->schedule);
    return good;
}
