/* GEMM on a device with its own memory: the calling thread enqueues the kernels in order, while
 * staging threads (stream_copy.c) copy the data. stream.h describes the algorithm. */
#include "stream.h"

#include <stdlib.h>

/* ---- parts of the progress ------------------------------------------------------------------- */

/* Part p is download piece p. A run may continue an earlier one whose parts are the same; parts
 * that are written already are not computed again. CLB_ERR_UNSUPPORTED when the parts differ. */
static clb_status stream_make_parts(struct clb_stream *stream)
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

static bool alone(const struct clb_stream *stream)
{
    return stream->workers.count == 0;
}

/* Wait until all transfers of a load have been enqueued. */
static clb_status wait_for_load(struct clb_stream *stream, const struct clb_load *load)
{
    if (alone(stream))
        clb_stream_upload_now(&stream->thread[0], load->first_piece + load->pieces);
    pthread_mutex_lock(&stream->lock);
    while (load->enqueued < load->pieces && stream->status == CLB_OK && !stream->out_of_range)
        pthread_cond_wait(&stream->advance, &stream->lock);
    clb_status status =
        stream->status == CLB_OK && stream->out_of_range ? CLB_ERR_RANGE : stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* Enqueue the packing of a load's raw buffer for one target. */
static clb_status pack_for(struct clb_stream *stream, size_t index,
                           const struct clb_pack_target *target, struct clb_order order)
{
    const struct clb_load *load = &stream->schedule.load[index];
    const struct clb_buffer *packed =
        (target->role == CLB_OPERAND_A ? stream->packed_a : stream->packed_b)[target->slab];
    const struct clb_chunk chunk = {.mem = stream->raw[index % stream->plan.raw_slots]->mem,
                                    .ld = load->depth_contiguous ? load->k : load->w,
                                    .depth_contiguous = load->depth_contiguous,
                                    .conjugated = target->conjugated};
    return clb_gemm_pack(
        stream->queue_set, stream->variant, target->role, &chunk, load->w, load->k, packed->mem,
        clb_packed_offset(stream->variant, target->role, load->i0 - load->origin, load->k),
        stream->flag != NULL ? stream->flag->mem : NULL, order);
}

/* Enqueue the kernels that pack a load, after its transfers and the `count` events of `more`. */
static clb_status stream_pack(struct clb_stream *stream, size_t index, const cl_event *more,
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
    for (size_t t = 0; t < load->targets && status == CLB_OK; t++)
        status = pack_for(stream, index, &load->target[t],
                          (struct clb_order){.waits = t == 0 ? (cl_uint)(load->pieces + count) : 0,
                                             .wait_list = t == 0 ? waits : NULL,
                                             .event = t + 1 == load->targets ? &done : NULL});
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

/* Wait until the buffer of a strip is free: until its previous strip has been merged. */
static clb_status stream_wait_for_slot(struct clb_stream *stream, size_t number)
{
    if (stream->whole || number < stream->plan.strip_slots)
        return CLB_OK;
    const struct clb_strip *before = &stream->schedule.strip[number - stream->plan.strip_slots];
    if (alone(stream))
        clb_stream_download_now(&stream->thread[0]);
    pthread_mutex_lock(&stream->lock);
    while (before->merged < before->pieces && stream->status == CLB_OK && !stream->out_of_range)
        pthread_cond_wait(&stream->advance, &stream->lock);
    clb_status status =
        stream->status == CLB_OK && stream->out_of_range ? CLB_ERR_RANGE : stream->status;
    pthread_mutex_unlock(&stream->lock);
    return status;
}

/* The part of a strip to which a pass contributes. */
static struct clb_rect stream_find_support(const struct clb_stream *stream,
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

static clb_status multiply_slab(struct clb_stream *stream, size_t number, size_t slab,
                                const struct clb_rect *rect, struct clb_order order)
{
    const struct clb_strip *strip = &stream->schedule.strip[number];
    const struct clb_stream_plan *plan = &stream->plan;
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
static clb_status stream_multiply(struct clb_stream *stream, size_t number, cl_event packed)
{
    struct clb_strip *strip = &stream->schedule.strip[number];
    const struct clb_stream_plan *plan = &stream->plan;
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

static void stream_publish(struct clb_stream *stream, const struct clb_strip *strip)
{
    pthread_mutex_lock(&stream->lock);
    stream->published = strip->first_piece + strip->pieces;
    pthread_mutex_unlock(&stream->lock);
    for (size_t i = 0; i < clb_min(strip->pieces, stream->workers.count); i++)
        pthread_cond_signal(&stream->work);
}

/* Split families: read the flag after a step's packing; the queue is in order. */
static clb_status read_flag(struct clb_stream *stream, size_t s)
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
            status = stream_pack(stream, load++, before, i == 0 ? waits : 0);
        if (status == CLB_OK)
            status = read_flag(stream, s);
        if (load == schedule->loads)
            clb_stream_mark(stream, CLB_MARK_LOADED);
        for (size_t i = 0; i < step->strips && status == CLB_OK; i++, strip++) {
            struct clb_strip *next = &schedule->strip[strip];
            if (next->merged < next->pieces || next->pieces == 0)
                status = stream_multiply(stream, strip, schedule->load[load - 1].packed);
            clb_stream_mark(stream, CLB_MARK_FIRST);
            if (status == CLB_OK)
                stream_publish(stream, next);
        }
    }
    clb_stream_mark(stream, CLB_MARK_QUEUED);
    return status;
}

static clb_status lower_flag(struct clb_stream *stream)
{
    static const cl_uint clean = 0;
    if (stream->flag == NULL)
        return CLB_OK;
    return clb_queue_write(stream->queue_set->queue, stream->flag->mem, 0, sizeof clean, &clean, 0,
                           NULL, NULL);
}

static clb_status stream_run(struct clb_stream *stream)
{
    clb_status status = lower_flag(stream);
    for (size_t i = 0; i < stream->staging_threads; i++)
        stream->thread[i].since = stream->begin + stream->mark[CLB_MARK_HELD];
    for (size_t i = 0; i < stream->workers.count; i++)
        clb_workers_start(&stream->workers, i, clb_stream_carry, &stream->thread[i]);
    if (status == CLB_OK)
        status = enqueue_all(stream);
    if (status == CLB_OK)
        clb_stream_release_loads(stream);
    /* When the range was left, the threads still merge what was published before. */
    if (status != CLB_OK && !(status == CLB_ERR_RANGE && stream->out_of_range))
        clb_stream_fail(stream, status);
    if (alone(stream))
        clb_stream_download_now(&stream->thread[0]);
    pthread_mutex_lock(&stream->lock);
    stream->complete = true;
    pthread_cond_broadcast(&stream->work);
    pthread_mutex_unlock(&stream->lock);
    clb_workers_return(&stream->workers);
    clb_stream_mark(stream, CLB_MARK_MERGED);
    bool left_out = stream->out_of_range || stream->inexact;
    return stream->status == CLB_OK && left_out ? CLB_ERR_RANGE : stream->status;
}

/* ---- the run --------------------------------------------------------------------------------- */

static void report(const struct clb_stream *stream, const struct clb_schedule *schedule)
{
    const double *mark = stream->mark;
    double spent[CLB_SPELLS] = {0}, ms = 1e3;
    if (!stream->timed)
        return;
    for (size_t i = 0; i < stream->staging_threads; i++) {
        for (int s = 0; s < CLB_SPELLS; s++)
            spent[s] += ms * stream->thread[i].spent[s];
    }
    clb_log(CLB_LOG_DEBUG,
            "stream: %zux%zux%zu, %zu loads in %zu pieces, %zu strips in %zu, %zu "
            "staging_threads%s; ms "
            "held %.2f first %.2f loaded %.2f queued %.2f merged %.2f end %.2f; threads' "
            "idle %.1f "
            "copy %.1f enqueue %.1f up %.1f down %.1f merge %.1f prefault %.1f",
            stream->problem->m, stream->problem->n, stream->problem->k, schedule->loads,
            schedule->load_pieces, schedule->strips, schedule->strip_pieces,
            stream->staging_threads, stream->whole ? ", C whole" : "", ms * mark[CLB_MARK_HELD],
            ms * mark[CLB_MARK_FIRST], ms * mark[CLB_MARK_LOADED], ms * mark[CLB_MARK_QUEUED],
            ms * mark[CLB_MARK_MERGED], ms * (clb_now() - stream->begin), spent[CLB_SPELL_IDLE],
            spent[CLB_SPELL_COPY], spent[CLB_SPELL_ENQUEUE], spent[CLB_SPELL_UP],
            spent[CLB_SPELL_DOWN], spent[CLB_SPELL_MERGE], spent[CLB_SPELL_TOUCH]);
}

static clb_status begin_stream(struct clb_stream *stream)
{
    const struct clb_device *device = &stream->runtime->device;
    struct clb_program *unused;
    clb_status status =
        clb_structure_prepare(stream->runtime, stream->variant, stream->problem, false, &unused);
    if (status != CLB_OK)
        return status;
    status = clb_stream_make_plan(stream->variant, stream->problem,
                                  clb_memory_available(stream->runtime), device->max_alloc,
                                  device->unified ? 0 : device->units, &stream->plan);
    if (status == CLB_OK)
        status = clb_schedule_make(&stream->plan, stream->problem, stream->a, stream->b,
                                   &stream->schedule);
    if (status == CLB_OK)
        status = clb_stream_get(stream);
    if (status == CLB_OK)
        status = stream_make_parts(stream);
    if (status == CLB_OK)
        stream->prefault =
            clb_prefault_begin(stream->problem, stream->variant->tuning.value[CLB_PARAM_FAULT]);
    return status;
}

clb_status clb_gemm_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                               const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct clb_stream stream = {.runtime = runtime,
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
    stream.timed = clb_log_wanted(CLB_LOG_DEBUG) || clb_trace_wanted();
    stream.begin = stream.timed ? clb_now() : 0;
    clb_status status = begin_stream(&stream);
    clb_stream_mark(&stream, CLB_MARK_HELD);
    bool enqueued = status == CLB_OK;
    if (enqueued) {
        progress->kernel = variant->name;
        status = stream_run(&stream);
    }
    const struct clb_schedule counts = stream.schedule; /* its tables are freed before the report */
    if (!clb_stream_put(&stream, enqueued))
        status = clb_gemm_distrust(problem, progress);
    report(&stream, &counts);
    pthread_mutex_destroy(&stream.lock);
    pthread_cond_destroy(&stream.work);
    pthread_cond_destroy(&stream.advance);
    return status;
}
