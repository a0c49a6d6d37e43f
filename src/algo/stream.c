/* GEMM on a device with its own memory: the calling thread enqueues the kernels in order, while
 * porters (stream_copy.c) carry the data. stream.h has the scheme. */
#include "stream.h"

#include <stdlib.h>

/* ---- parts of the progress ------------------------------------------------------------------- */

/* Part p is download piece p. A run may continue one whose parts are the same: what is written then
 * is left alone. CLB_ERR_UNSUPPORTED when the parts differ. */
static clb_status make_parts(struct clb_stream *stream)
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

/* ---- memory: all of it before anything is enqueued ------------------------------------------- */

static clb_status get_some(struct clb_stream *stream, struct clb_buffer **buffer, size_t count,
                           size_t bytes)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < count && status == CLB_OK; i++)
        status = clb_buffer_get(stream->runtime, CLB_MEMORY_DEVICE, bytes, &buffer[i]);
    return status;
}

static clb_status get_buffers(struct clb_stream *stream)
{
    struct clb_stream_plan *plan = &stream->plan;
    plan->raw_slots = clb_min(plan->raw_slots, stream->schedule.loads);
    plan->strip_slots = clb_min(plan->strip_slots, stream->schedule.strips);
    stream->buffer_count = 2 * plan->slabs + plan->raw_slots + plan->strip_slots;
    stream->buffers = calloc(stream->buffer_count, sizeof *stream->buffers);
    if (stream->buffers == NULL)
        return CLB_ERR_NOMEM;
    stream->packed_a = stream->buffers;
    stream->packed_b = stream->packed_a + plan->slabs;
    stream->raw = stream->packed_b + plan->slabs;
    stream->strip_buffer = stream->raw + plan->raw_slots;
    clb_status status = get_some(stream, stream->packed_a, plan->slabs, plan->a_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->packed_b, plan->slabs, plan->b_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->raw, plan->raw_slots, plan->raw_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->strip_buffer, plan->strip_slots, plan->strip_bytes);
    if (status == CLB_OK && clb_gemm_is_split(stream->variant))
        status = get_some(stream, &stream->flag, 1, sizeof(cl_uint));
    return status;
}

/* As many porters as there are threads to be had and work for; with fewer than two threads the
 * calling thread carries everything itself. */
static clb_status get_porters(struct clb_stream *stream)
{
    size_t pieces = stream->schedule.load_pieces + stream->schedule.strip_pieces;
    size_t forced = stream->variant->tuning.value[CLB_PARAM_THREADS];
    size_t wanted = clb_min(forced != 0 ? forced : pieces / 2, CLB_MAX_PORTERS);
    clb_workers_lend(&stream->workers, wanted, forced != 0);
    if (stream->workers.count < 2)
        clb_workers_return(&stream->workers);
    stream->porters = clb_max(stream->workers.count, 1);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < stream->porters; i++) {
        struct clb_porter *porter = &stream->porter[i];
        porter->stream = stream;
        porter->uploads_first = i < clb_div_up(6 * stream->porters, 10);
        for (size_t s = 0; s < CLB_COUNT_OF(porter->slot) && status == CLB_OK; s++)
            status = clb_buffer_get(stream->runtime, CLB_MEMORY_HOST, stream->plan.piece_bytes,
                                    &porter->slot[s]);
    }
    return status;
}

static clb_status get_lanes(struct clb_stream *stream)
{
    clb_status status = clb_lane_acquire(stream->runtime, &stream->lane);
    if (status == CLB_OK)
        status = clb_lane_open_queues(stream->lane);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && status == CLB_OK; i++)
        status = clb_lane_acquire(stream->runtime, &stream->strip_lane[i]);
    return status;
}

/* ---- the calling thread ---------------------------------------------------------------------- */

static bool alone(const struct clb_stream *stream)
{
    return stream->workers.count == 0;
}

/* Wait until all transfers of a load have been enqueued. */
static clb_status wait_for_load(struct clb_stream *stream, const struct clb_load *load)
{
    if (alone(stream))
        clb_stream_upload_now(&stream->porter[0], load->first_piece + load->pieces);
    pthread_mutex_lock(&stream->lock);
    while (load->enqueued < load->pieces && stream->status == CLB_OK)
        pthread_cond_wait(&stream->changed, &stream->lock);
    clb_status status = stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* Enqueue the kernel that packs a load, after its transfers and the `count` commands of `more`. */
static clb_status pack(struct clb_stream *stream, size_t index, const cl_event *more, size_t count)
{
    struct clb_load *load = &stream->schedule.load[index];
    const struct clb_operand *operand = load->operand;
    bool is_a = operand->role == CLB_OPERAND_A;
    clb_status status = wait_for_load(stream, load);
    cl_event *waits = calloc(load->pieces + count, sizeof(cl_event)), done;
    if (status != CLB_OK || waits == NULL) {
        free(waits);
        return status != CLB_OK ? status : CLB_ERR_NOMEM;
    }
    for (size_t i = 0; i < load->pieces + count; i++)
        waits[i] = i < load->pieces ? load->upload[i] : more[i - load->pieces];
    const struct clb_buffer *packed = (is_a ? stream->packed_a : stream->packed_b)[load->slab];
    struct clb_chunk chunk = {stream->raw[index % stream->plan.raw_slots]->mem, 0,
                              operand->depth_contiguous ? load->k : load->w,
                              operand->depth_contiguous, operand->conjugated};
    status = clb_gemm_pack(
        stream->lane, stream->variant, operand->role, &chunk, load->w, load->k, packed->mem,
        clb_packed_offset(stream->variant, operand->role, load->i0 - load->origin, load->k),
        stream->flag != NULL ? stream->flag->mem : NULL,
        (struct clb_order){
            .waits = (cl_uint)(load->pieces + count), .wait_list = waits, .event = &done});
    free(waits);
    if (status != CLB_OK)
        return status;
    status = clb_cl_check(clb_cl.Flush(stream->lane->queue), "clFlush");
    pthread_mutex_lock(&stream->lock);
    load->packed = done;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* The last strips of all queues before `end`: what they read may be overwritten after them. */
static size_t last_strips(const struct clb_stream *stream, size_t end, cl_event *events)
{
    size_t count = 0;
    for (size_t i = end; i > 0 && end - i < CLB_STRIP_QUEUES; i--) {
        cl_event ready = stream->schedule.strip[i - 1].ready;
        if (ready != NULL)
            events[count++] = ready;
    }
    return count;
}

/* Wait until the buffer of a strip is free. */
static clb_status wait_for_slot(struct clb_stream *stream, size_t number)
{
    if (number < stream->plan.strip_slots)
        return CLB_OK;
    const struct clb_strip *before = &stream->schedule.strip[number - stream->plan.strip_slots];
    if (alone(stream))
        clb_stream_download_now(&stream->porter[0]);
    pthread_mutex_lock(&stream->lock);
    while (before->merged < before->pieces && stream->status == CLB_OK)
        pthread_cond_wait(&stream->changed, &stream->lock);
    clb_status status = stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* Enqueue the kernels of a strip after those that packed its operands, `packed` the last of them.
 */
static clb_status multiply(struct clb_stream *stream, size_t number, cl_event packed)
{
    struct clb_strip *strip = &stream->schedule.strip[number];
    const struct clb_stream_plan *plan = &stream->plan;
    struct clb_lane *lane = stream->strip_lane[number % CLB_STRIP_QUEUES];
    clb_status status = wait_for_slot(stream, number);
    for (size_t slab = 0; slab < plan->slabs && status == CLB_OK; slab++) {
        size_t depth = clb_min(plan->slab, stream->problem->k - slab * plan->slab);
        struct clb_product product = {
            .m = strip->rect.rows,
            .n = strip->rect.cols,
            .k = depth,
            .a = stream->packed_a[slab]->mem,
            .b = stream->packed_b[slab]->mem,
            .c = stream->strip_buffer[number % plan->strip_slots]->mem,
            .a_offset = clb_packed_offset(stream->variant, CLB_OPERAND_A,
                                          strip->rect.row - strip->a_origin, depth),
            .b_offset = clb_packed_offset(stream->variant, CLB_OPERAND_B,
                                          strip->rect.col - strip->b_origin, depth),
            .ldc = strip->ldc,
            .add = slab > 0};
        status = clb_gemm_multiply(
            lane, stream->variant, &product,
            (struct clb_order){.waits = slab == 0,
                               .wait_list = slab == 0 ? &packed : NULL,
                               .event = slab + 1 == plan->slabs ? &strip->ready : NULL});
    }
    if (status == CLB_OK)
        status = clb_cl_check(clb_cl.Flush(lane->queue), "clFlush");
    return status;
}

static void publish(struct clb_stream *stream, const struct clb_strip *strip)
{
    pthread_mutex_lock(&stream->lock);
    stream->published = strip->first_piece + strip->pieces;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static clb_status enqueue_all(struct clb_stream *stream)
{
    const struct clb_schedule *schedule = &stream->schedule;
    clb_status status = CLB_OK;
    size_t load = 0, strip = 0;
    for (size_t s = 0; s < schedule->steps && status == CLB_OK; s++) {
        const struct clb_step *step = &schedule->step[s];
        cl_event before[CLB_STRIP_QUEUES];
        size_t waits = step->new_block ? last_strips(stream, strip, before) : 0;
        for (size_t i = 0; i < step->loads && status == CLB_OK; i++)
            status = pack(stream, load++, before, i == 0 ? waits : 0);
        for (size_t i = 0; i < step->strips && status == CLB_OK; i++, strip++) {
            struct clb_strip *next = &schedule->strip[strip];
            if (next->merged < next->pieces)
                status = multiply(stream, strip, schedule->load[load - 1].packed);
            if (status == CLB_OK)
                publish(stream, next);
        }
    }
    return status;
}

static clb_status lower_flag(struct clb_stream *stream)
{
    static const cl_uint clean = 0;
    if (stream->flag == NULL)
        return CLB_OK;
    return clb_cl_check(clb_cl.EnqueueWriteBuffer(stream->lane->queue, stream->flag->mem, CL_FALSE,
                                                  0, sizeof clean, &clean, 0, NULL, NULL),
                        "clEnqueueWriteBuffer");
}

static clb_status run(struct clb_stream *stream)
{
    clb_status status = lower_flag(stream);
    for (size_t i = 0; i < stream->workers.count; i++)
        clb_workers_start(&stream->workers, i, clb_stream_carry, &stream->porter[i]);
    if (status == CLB_OK)
        status = enqueue_all(stream);
    if (status != CLB_OK)
        clb_stream_fail(stream, status);
    if (alone(stream))
        clb_stream_download_now(&stream->porter[0]);
    pthread_mutex_lock(&stream->lock);
    stream->complete = true;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    clb_workers_return(&stream->workers);
    return stream->status;
}

/* ---- end ------------------------------------------------------------------------------------- */

static void release_event(cl_event event)
{
    if (event != NULL)
        clb_cl.ReleaseEvent(event);
}

static void release_events(struct clb_stream *stream)
{
    for (size_t i = 0; i < stream->schedule.loads; i++) {
        for (size_t p = 0; p < stream->schedule.load[i].pieces; p++)
            release_event(stream->schedule.load[i].upload[p]);
        release_event(stream->schedule.load[i].packed);
    }
    for (size_t i = 0; i < stream->schedule.strips; i++)
        release_event(stream->schedule.strip[i].ready);
    for (size_t i = 0; i < stream->porters; i++)
        release_event(stream->porter[i].pending != 0 ? stream->porter[i].pending_event : NULL);
}

static void put_or_leak(struct clb_stream *stream, struct clb_buffer *buffer, bool idle)
{
    if (idle)
        clb_buffer_put(stream->runtime, buffer);
    else
        clb_buffer_leak(buffer);
}

static bool finish_lane(struct clb_lane *lane)
{
    return lane == NULL || clb_lane_finish(lane) == CLB_OK || clb_lane_finish(lane) == CLB_OK;
}

static void give_lane(struct clb_lane *lane, bool idle)
{
    if (lane != NULL && idle)
        clb_lane_release(lane);
    else if (lane != NULL)
        clb_lane_discard(lane);
}

static void end_stream(struct clb_stream *stream, bool enqueued)
{
    clb_workers_return(&stream->workers);
    bool idle = !enqueued || finish_lane(stream->lane);
    for (size_t i = 0; i < CLB_STRIP_QUEUES && enqueued; i++)
        idle = finish_lane(stream->strip_lane[i]) && idle;
    release_events(stream);
    for (size_t i = 0; i < stream->buffer_count && stream->buffers != NULL; i++)
        put_or_leak(stream, stream->buffers[i], idle);
    put_or_leak(stream, stream->flag, idle);
    for (size_t i = 0; i < stream->porters; i++) {
        for (size_t s = 0; s < CLB_COUNT_OF(stream->porter[i].slot); s++)
            put_or_leak(stream, stream->porter[i].slot[s], idle);
    }
    free(stream->buffers);
    give_lane(stream->lane, idle);
    for (size_t i = 0; i < CLB_STRIP_QUEUES; i++)
        give_lane(stream->strip_lane[i], idle);
    clb_schedule_free(&stream->schedule);
    pthread_mutex_destroy(&stream->lock);
    pthread_cond_destroy(&stream->changed);
}

static clb_status begin_stream(struct clb_stream *stream)
{
    clb_status status = clb_stream_make_plan(stream->variant, stream->problem,
                                             clb_memory_available(stream->runtime),
                                             stream->runtime->device.max_alloc, &stream->plan);
    if (status == CLB_OK)
        status = clb_schedule_make(&stream->plan, stream->problem, &stream->a, &stream->b,
                                   &stream->schedule);
    if (status == CLB_OK)
        status = get_lanes(stream);
    if (status == CLB_OK)
        status = get_buffers(stream);
    if (status == CLB_OK)
        status = get_porters(stream);
    if (status == CLB_OK)
        status = make_parts(stream);
    return status;
}

clb_status clb_gemm_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct clb_stream stream = {.runtime = runtime,
                                .variant = variant,
                                .problem = problem,
                                .progress = progress,
                                .a = clb_operand_describe(problem, CLB_OPERAND_A),
                                .b = clb_operand_describe(problem, CLB_OPERAND_B),
                                .lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    clb_status status = begin_stream(&stream);
    bool enqueued = status == CLB_OK;
    if (enqueued) {
        progress->kernel = variant->name;
        status = run(&stream);
    }
    end_stream(&stream, enqueued);
    return status;
}
