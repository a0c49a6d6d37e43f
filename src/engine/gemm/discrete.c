/* Products on a device with its own memory: the calling thread enqueues the kernels in order, while
 * the transfer queue's threads move the data: a transfer for each load, in pieces of whole columns
 * of the copied elements, then one for each strip. discrete.h describes the algorithm. */
#include "discrete.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- the run --------------------------------------------------------------------------------- */

/* One queue set packs, the others multiply. Transfers use the queues of as many as are asked for.
 */
#define QUEUE_SETS (1 + CLB_STRIP_QUEUES)

struct stream {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_progress *progress; /* part p is download piece p */
    struct clb_discrete_plan plan;
    struct clb_schedule schedule;
    struct clb_queue_set *queue_set[QUEUE_SETS]; /* the first packs */
    struct clb_operand a[CLB_MAX_TERMS], b[CLB_MAX_TERMS];
    struct clb_buffer **packed_a, **packed_b, **raw, **strip_buffer;
    struct clb_buffer **parts;   /* of each queue of strips, for clb_product; or none */
    struct clb_buffer **buffers; /* all of the above, one array */
    size_t buffer_count;
    bool whole;                      /* one strip buffer holds all of C */
    struct clb_buffer *flag, *words; /* split families: the flag, and its values after each step */
    struct clb_buffer *exponents;    /* of scaled operands: see exponents_of() */
    struct clb_transfer *transfer;   /* of the loads, then of the strips */
    struct clb_transfer_queue transfers;
};

static struct clb_transfer *transfer_of_strip(const struct stream *stream, size_t number)
{
    return &stream->transfer[stream->schedule.loads + number];
}

/* ---- pieces of loads ------------------------------------------------------------------------- */

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

/* Copy columns of a load with ordinary stores: where the link and the CPUs are busy in both
 * directions this is a little faster than non-temporal stores (H200, 2026-11, n = 8192, double
 * precision). But what several CPUs have just written a device reads from their caches at 33 to 40
 * GB/s, and from memory at 54, so small matrices, whose transfers the device waits for, are copied
 * past the caches. */
static void copy_columns_in(void *context, const struct clb_transfer *transfer,
                            const struct clb_rect *columns, char *slot)
{
    const struct stream *stream = context;
    const struct clb_load *load = &stream->schedule.load[transfer - stream->transfer];
    const struct clb_operand *operand = load->operand;
    size_t bytes = columns->rows * operand->element, step = operand->ld * operand->element;
    const char *from = transfer->host + columns->col * step;
    if (load->kind == CLB_PIECE_EXPANDED) {
        clb_operand_make(stream->problem->precision, operand, load->i0, load->p0, load->w, load->k,
                         columns->col, columns->cols, slot);
        return;
    }
    if (stream->transfers.gathered.buffer != NULL && !clb_gemm_adds_zeros(stream->problem)) {
        clb_copy_nontemporal(slot, bytes, from, step, bytes, columns->cols);
        return;
    }
    for (size_t j = 0; j < columns->cols; j++) {
        if (bytes <= PREFETCH_BYTES && j + PREFETCH_COLUMNS < columns->cols)
            prefetch(from + (j + PREFETCH_COLUMNS) * step, bytes);
        memcpy(slot + j * bytes, from + j * step, bytes);
        look_for_infinite(stream, load, slot + j * bytes, columns->rows);
    }
}

/* ---- pieces of strips ------------------------------------------------------------------------ */

/* Split families: *clean tells whether everything that went into a strip is within their range. The
 * flag was read before the strip's kernel ended, so this hardly waits. */
static clb_status check_flag(struct stream *stream, const struct clb_strip *strip, bool *clean)
{
    *clean = true;
    if (stream->flag == NULL)
        return CLB_OK;
    clb_status status = clb_event_wait(stream->schedule.step[strip->step].checked);
    *clean = ((const volatile cl_uint *)stream->words->host)[strip->step] == 0;
    if (status == CLB_OK && !*clean)
        clb_transfer_queue_stop(&stream->transfers);
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

/* A launch that was left out fails a queue where the events of commands are kept. Elsewhere nothing
 * but its number tells before the queues are finished, when parts have been written. */
static bool has_run(const struct stream *stream, const struct clb_strip *strip)
{
    return clb_queue_has_run(stream->queue_set[0]->queue, strip->packing_launches) &&
           clb_queue_has_run(stream->queue_set[1 + strip->queue]->queue, strip->launches);
}

/* Merge a piece of a strip into C, unless another family, or the CPU, must compute it. */
static clb_status write_part(void *context, const struct clb_transfer *transfer,
                             const struct clb_rect *columns, char *slot)
{
    struct stream *stream = context;
    const struct clb_strip *strip =
        &stream->schedule.strip[transfer - transfer_of_strip(stream, 0)];
    const struct clb_rect part = {strip->rect.row, strip->rect.col + columns->col, columns->rows,
                                  columns->cols};
    bool clean;
    clb_status status = check_flag(stream, strip, &clean);
    if (status == CLB_OK && !has_run(stream, strip))
        status = CLB_ERR_OPENCL;
    if (status != CLB_OK)
        return status;
    if (!clean ||
        (atomic_load_explicit(&stream->schedule.step[strip->step].infinite, memory_order_relaxed) &&
         !clb_part_is_exact(stream->problem, &part, slot, strip->ldc)))
        return CLB_ERR_RANGE;
    merge(stream->problem, &part, slot, strip->ldc);
    return CLB_OK;
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

/* Strips are multiplied into memory beside C. */
static bool has_parts(const struct stream *stream)
{
    return stream->plan.part != 0 || stream->variant->scales;
}

/* Where the exponents of an operand's slab begin: of A's rows or of B's columns in a block. */
static cl_ulong exponents_of(const struct stream *stream, clb_operand_role role, size_t slab)
{
    const struct clb_discrete_plan *plan = &stream->plan;
    return slab * (plan->block_m + plan->block_n) + (role == CLB_OPERAND_A ? 0 : plan->block_m);
}

/* Of the largest strip. */
static size_t bytes_in_parts(const struct stream *stream)
{
    const struct clb_discrete_plan *plan = &stream->plan;
    size_t most = 1;
    for (size_t i = 0; i < stream->schedule.strips; i++) {
        const struct clb_rect *rect = &stream->schedule.strip[i].rect;
        most = clb_max(most, clb_scaled_bytes(stream->variant, plan->part, rect->rows, rect->cols,
                                              plan->slab));
    }
    return most;
}

static clb_status get_buffers(struct stream *stream)
{
    struct clb_discrete_plan *plan = &stream->plan;
    struct clb_buffer *whole = NULL;
    stream->whole = get_whole(stream, &whole) == CLB_OK;
    clb_status status = stream->whole ? CLB_OK : make_in_one_part(stream);
    plan->raw_slots = clb_min(plan->raw_slots, stream->schedule.loads);
    plan->strip_slots = stream->whole ? 1 : clb_min(plan->strip_slots, stream->schedule.strips);
    stream->buffer_count = 2 * plan->slabs + plan->raw_slots + plan->strip_slots +
                           (has_parts(stream) ? CLB_STRIP_QUEUES : 0);
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
    stream->parts = stream->strip_buffer + plan->strip_slots;
    status = get_some(stream, stream->packed_a, plan->slabs, plan->a_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->packed_b, plan->slabs, plan->b_bytes);
    if (status == CLB_OK)
        status = get_some(stream, stream->raw, plan->raw_slots, plan->raw_bytes);
    if (status == CLB_OK && !stream->whole)
        status = get_some(stream, stream->strip_buffer, plan->strip_slots, plan->strip_bytes);
    if (status == CLB_OK && has_parts(stream))
        status = get_some(stream, stream->parts, CLB_STRIP_QUEUES, bytes_in_parts(stream));
    if (status == CLB_OK && stream->variant->split)
        status = get_some(stream, &stream->flag, 1, sizeof(cl_uint));
    if (status == CLB_OK && stream->variant->scales)
        status = get_some(stream, &stream->exponents, 1,
                          exponents_of(stream, CLB_OPERAND_A, plan->slabs) * sizeof(cl_int));
    if (status == CLB_OK && stream->flag != NULL)
        status = clb_buffer_get(stream->runtime, CLB_MEMORY_HOST,
                                stream->schedule.steps * sizeof(cl_uint), &stream->words);
    return status;
}

#define FEW_PIECES ((size_t)8) /* of a staging thread, to upload */

/* The number of staging threads that prefer uploads. While C is kept on the device nothing waits
 * for a merge before the end, when all threads merge, and the operands should arrive as soon as
 * possible; but what has not come down by then is left to do. (H200, 2026-11, with 9 and with 10 of
 * 12: dgemm n = 4096 7.6 and 7.95 ms, sgemm 8192 16.5 and 17.7, dgemm 8192 alike; but sgemm 4096,
 * where a thread uploads few pieces, 4.4 and 4.3.) And where strips are whole columns or rows
 * (trmm), downloads move as many bytes as uploads from the first strip on. */
static size_t upload_first(const struct stream *stream)
{
    size_t threads = stream->transfers.threads;
    size_t forced = stream->variant->tuning.value[CLB_PARAM_UPLOADERS];
    if (forced != 0)
        return forced;
    if (stream->transfers.prefault.units > 0)
        return clb_div_up(4 * threads, 7);
    if (!stream->whole || stream->plan.strip_m != 0)
        return clb_div_up(6 * threads, 10);
    return stream->transfers.pieces[CLB_UP] < FEW_PIECES * threads ? clb_div_up(5 * threads, 6)
                                                                   : clb_div_up(3 * threads, 4);
}

static clb_status get_queue_sets(struct stream *stream)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < QUEUE_SETS && status == CLB_OK; i++)
        status = clb_queue_set_acquire(stream->runtime, &stream->queue_set[i]);
    return status;
}

static struct clb_transfer upload_of(const struct stream *stream, size_t number)
{
    const struct clb_load *load = &stream->schedule.load[number];
    const struct clb_operand *operand = load->operand;
    size_t slots = stream->plan.raw_slots;
    size_t row = load->depth_contiguous ? load->p0 : load->i0;
    size_t col = load->depth_contiguous ? load->i0 : load->p0;
    size_t rows = load->depth_contiguous ? load->k : load->w;
    size_t cols = load->depth_contiguous ? load->w : load->k;
    return (struct clb_transfer){.held = number >= slots,
                                 .x = {stream->raw[number % slots]->mem, 0, rows, cols, rows},
                                 .host = (char *)(uintptr_t)operand->host +
                                         (row + col * operand->ld) * operand->element,
                                 .ld = operand->ld,
                                 .extent = load->piece_cols,
                                 .slot_ld = rows};
}

static struct clb_transfer download_of(const struct stream *stream, size_t number)
{
    const struct clb_strip *strip = &stream->schedule.strip[number];
    return (struct clb_transfer){.down = true,
                                 .column = strip->rect.col,
                                 .x = {stream->strip_buffer[number % stream->plan.strip_slots]->mem,
                                       stream->whole ? strip->offset : 0, strip->rect.rows,
                                       strip->pieces > 0 ? strip->rect.cols : 0, strip->ldc},
                                 .extent = strip->piece_cols,
                                 .slot_ld = strip->ldc};
}

/* (H200, 2026-11, virtual machine with 16 CPUs: dgemm of n = 1024 takes 1.3 instead of 1.7 ms.) */
#define AWAKE_SECONDS 100e-6

/* Where pages of C are missing, making them takes the threads nearly as long as copying the
 * operands. So there are more of them, and fewer upload first. (H200, 2026-11, dgemm, n =
 * 8192: 29.5 ms with 8 or 9 of 14, 30.3 with 8 of 12 and 7 of 14.) What is gathered was not tried
 * so. */
static void take_to_pages(struct stream *stream, struct clb_prefault prefault)
{
    struct clb_transfer_queue *transfers = &stream->transfers;
    const size_t staging = stream->plan.staging_threads, more = staging / 6;
    transfers->prefault = prefault;
    if (prefault.units > 0 && !transfers->gathers &&
        more * 4 * stream->plan.piece_bytes <= stream->plan.available / 16)
        transfers->most_threads = clb_min(staging + more, CLB_MAX_WORKERS);
}

/* With fewer than two staging threads the calling thread moves everything itself. */
static clb_status open_transfers(struct stream *stream)
{
    const struct clb_schedule *schedule = &stream->schedule;
    const size_t *value = stream->variant->tuning.value;
    stream->transfer = calloc(schedule->loads + schedule->strips, sizeof *stream->transfer);
    if (stream->transfer == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < schedule->loads; i++)
        stream->transfer[i] = upload_of(stream, i);
    for (size_t i = 0; i < schedule->strips; i++)
        *transfer_of_strip(stream, i) = download_of(stream, i);
    stream->transfers = (struct clb_transfer_queue){
        .queue_set = stream->queue_set,
        .queue_sets = QUEUE_SETS,
        .queues = clb_min(clb_max(value[CLB_PARAM_QUEUES], 1), QUEUE_SETS),
        .precision = stream->variant->precision,
        .transfer = stream->transfer,
        .uploads = schedule->loads,
        .downloads = schedule->strips,
        .slot_bytes = stream->plan.piece_bytes,
        .wanted_threads = value[CLB_PARAM_THREADS],
        .least_threads = 2,
        .most_threads = stream->plan.staging_threads,
        .gathers = stream->plan.gathers && schedule->loads <= stream->plan.raw_slots,
        .awake = AWAKE_SECONDS,
        .copy_in = copy_columns_in,
        .write = write_part,
        .context = stream,
        .written = stream->progress->written};
    take_to_pages(stream, clb_prefault_begin(stream->problem, value[CLB_PARAM_FAULT]));
    return clb_transfer_queue_open(&stream->transfers);
}

/* ---- release --------------------------------------------------------------------------------- */

/* A load's event belongs to the transfer queue where a later load waits for it. */
static void release_loads(struct stream *stream)
{
    size_t loads = stream->schedule.loads, slots = stream->plan.raw_slots;
    clb_transfer_queue_forget_uploads(&stream->transfers);
    for (size_t i = loads > slots ? loads - slots : 0; i < loads; i++)
        clb_event_drop(&stream->schedule.load[i].packed);
}

static bool stream_put(struct stream *stream, bool enqueued)
{
    bool idle = true, good = true;
    for (size_t i = 0; i < QUEUE_SETS && enqueued; i++)
        idle = clb_queue_set_settle(stream->queue_set[i]) && idle;
    for (size_t i = 0; i < QUEUE_SETS && enqueued; i++)
        good = clb_queue_set_check(stream->queue_set[i]) == CLB_OK && good;
    release_loads(stream);
    for (size_t i = 0; i < stream->schedule.steps; i++)
        clb_event_drop(&stream->schedule.step[i].checked);
    clb_transfer_queue_close(&stream->transfers, idle);
    for (size_t i = 0; i < stream->buffer_count && stream->buffers != NULL; i++)
        clb_buffer_end(stream->runtime, stream->buffers[i], idle);
    clb_buffer_end(stream->runtime, stream->flag, idle);
    clb_buffer_end(stream->runtime, stream->exponents, idle);
    clb_buffer_end(stream->runtime, stream->words, idle);
    for (size_t i = 0; i < QUEUE_SETS; i++)
        clb_queue_set_end(stream->queue_set[i], idle);
    free(stream->buffers);
    free(stream->transfer);
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
    for (size_t i = 0, index = 0; i < schedule->strips; i++) {
        const struct clb_strip *strip = &schedule->strip[i];
        for (size_t p = 0; p < strip->pieces; p++, index++) {
            size_t col = p * strip->piece_cols;
            const struct clb_rect rect = {strip->rect.row, strip->rect.col + col, strip->rect.rows,
                                          clb_min(strip->piece_cols, strip->rect.cols - col)};
            const struct clb_rect *known = &progress->part[index];
            if (resumed && (known->row != rect.row || known->col != rect.col ||
                            known->rows != rect.rows || known->cols != rect.cols))
                return CLB_ERR_UNSUPPORTED;
            progress->part[index] = rect;
        }
    }
    return CLB_OK;
}

/* ---- the calling thread ---------------------------------------------------------------------- */

/* Scale the rows of a load, for all that it is packed for. */
static clb_status scale(struct stream *stream, const struct clb_load *load,
                        const struct clb_chunk *chunk, struct clb_order order)
{
    const struct clb_pack_target *one = &load->target[0], *last = &load->target[load->targets - 1];
    const size_t row = load->i0 - load->origin;
    const cl_ulong first[2] = {exponents_of(stream, one->role, one->slab) + row,
                               exponents_of(stream, last->role, last->slab) + row};
    return clb_gemm_scale(stream->queue_set[0], stream->variant, chunk, load->w, load->k,
                          stream->exponents->mem, first, order);
}

/* Enqueue the kernels that pack a load, after its transfers and the `count` events of `more`. */
static clb_status stream_pack(struct stream *stream, size_t index, const clb_event *more,
                              size_t count)
{
    struct clb_load *load = &stream->schedule.load[index];
    size_t pieces = 0;
    size_t next = index + stream->plan.raw_slots; /* the load that gets the raw buffer */
    const clb_event *uploaded;
    clb_status status =
        clb_transfer_queue_await_events(&stream->transfers, index, &uploaded, &pieces);
    clb_event *waits = calloc(pieces + count, sizeof(clb_event));
    if (status != CLB_OK || waits == NULL) {
        free(waits);
        return status != CLB_OK ? status : CLB_ERR_NOMEM;
    }
    for (size_t i = 0; i < pieces + count; i++)
        waits[i] = i < pieces ? uploaded[i] : more[i - pieces];
    struct clb_order order = {.waits = (cl_uint)(pieces + count), .wait_list = waits};
    struct clb_chunk chunk = {.mem = stream->raw[index % stream->plan.raw_slots]->mem,
                              .ld = load->depth_contiguous ? load->k : load->w,
                              .depth_contiguous = load->depth_contiguous};
    if (stream->variant->scales) {
        status = scale(stream, load, &chunk, order);
        order = (struct clb_order){0}; /* the queue is in order */
    }
    for (size_t t = 0; t < load->targets && status == CLB_OK; t++) {
        const struct clb_pack_target *target = &load->target[t];
        const struct clb_buffer *packed =
            (target->role == CLB_OPERAND_A ? stream->packed_a : stream->packed_b)[target->slab];
        chunk.conjugated = target->conjugated;
        order.event = t + 1 == load->targets ? &load->packed : NULL;
        status = clb_gemm_pack(
            stream->queue_set[0], stream->variant, target->role, &chunk, load->w, load->k,
            packed->mem,
            clb_packed_offset(stream->variant, target->role, load->i0 - load->origin, load->k),
            stream->flag != NULL ? stream->flag->mem : NULL, order);
        order = (struct clb_order){0};
    }
    free(waits);
    if (status != CLB_OK)
        return status;
    status = clb_queue_flush(stream->queue_set[0]->queue);
    clb_transfer_queue_announce(&stream->transfers);
    if (next < stream->schedule.loads) {
        stream->transfer[next].before = load->packed;
        clb_transfer_queue_release_now(&stream->transfers, next);
    }
    return status;
}

/* The events of the last strip before `end` on each queue: after them, packed operands that strips
 * read may be overwritten. */
static size_t last_strips(const struct stream *stream, size_t end, clb_event *events)
{
    size_t count = 0;
    for (size_t i = end; i > 0 && end - i < CLB_STRIP_QUEUES; i--) {
        clb_event ready = transfer_of_strip(stream, i - 1)->before;
        if (ready != NULL)
            events[count++] = ready;
    }
    return count;
}

/* Wait until the buffer of a strip is free: until its previous strip has been merged. */
static clb_status stream_wait_for_slot(struct stream *stream, size_t number)
{
    size_t slots = stream->plan.strip_slots;
    if (stream->whole || number < slots)
        return CLB_OK;
    clb_progress_note((double)(number - slots + 1) / (double)stream->schedule.strips);
    return clb_transfer_queue_await_written(&stream->transfers,
                                            stream->schedule.loads + number - slots);
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
        .part = plan->part,
        .parts = has_parts(stream) ? stream->parts[strip->queue]->mem : NULL,
        .exponents = stream->exponents != NULL ? stream->exponents->mem : NULL,
        .a_exponents = exponents_of(stream, CLB_OPERAND_A, slab) + rect->row - strip->a_origin,
        .b_exponents = exponents_of(stream, CLB_OPERAND_B, slab) + rect->col - strip->b_origin,
        .cut = clb_gemm_skip(stream->variant, stream->problem, &pass, rect)};
    return clb_gemm_multiply(stream->queue_set[1 + strip->queue], stream->variant, &product, order);
}

/* Enqueue the kernels of a strip after the packing of its operands; `packed` is the event of the
 * last of them. The first slab contributes to all of the strip. Strips of later slabs that add to
 * those of the first slabs are on the same queue, hence after them. */
static clb_status stream_multiply(struct stream *stream, size_t number, clb_event packed)
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
            rect = clb_gemm_support(stream->variant, stream->a, stream->b, &pass, strip->a_origin,
                                    strip->b_origin, &strip->rect);
        }
        if (!end && (rect.rows == 0 || rect.cols == 0))
            continue;
        if (last.rows > 0)
            status = multiply_slab(
                stream, number, last_slab, &last,
                (struct clb_order){.waits = last_slab == strip->slab,
                                   .wait_list = last_slab == strip->slab ? &packed : NULL,
                                   .event =
                                       end ? &transfer_of_strip(stream, number)->before : NULL});
        last = rect;
        last_slab = slab;
    }
    strip->packing_launches = clb_queue_launches(stream->queue_set[0]->queue);
    strip->launches = clb_queue_launches(stream->queue_set[1 + strip->queue]->queue);
    if (status == CLB_OK)
        status = clb_queue_flush(stream->queue_set[1 + strip->queue]->queue);
    return status;
}

/* Split families: read the flag after a step's packing; the queue is in order. */
static clb_status read_flag(struct stream *stream, size_t s)
{
    struct clb_step *step = &stream->schedule.step[s];
    if (stream->flag == NULL)
        return CLB_OK;
    clb_status status =
        clb_queue_read(stream->queue_set[0]->queue, stream->flag->mem, 0, sizeof(cl_uint),
                       (cl_uint *)stream->words->host + s, 0, NULL, &step->checked);
    if (status == CLB_OK)
        status = clb_queue_flush(stream->queue_set[0]->queue);
    return status;
}

static clb_status enqueue_all(struct stream *stream)
{
    const struct clb_schedule *schedule = &stream->schedule;
    clb_status status = CLB_OK;
    size_t load = 0, strip = 0;
    for (size_t s = 0; s < schedule->steps && status == CLB_OK; s++) {
        const struct clb_step *step = &schedule->step[s];
        clb_event before[CLB_STRIP_QUEUES];
        size_t waits = step->new_block ? last_strips(stream, strip, before) : 0;
        for (size_t i = 0; i < step->loads && status == CLB_OK; i++)
            status = stream_pack(stream, load++, before, i == 0 ? waits : 0);
        if (status == CLB_OK)
            status = read_flag(stream, s);
        for (size_t i = 0; i < step->strips && status == CLB_OK; i++, strip++) {
            const struct clb_transfer *transfer = transfer_of_strip(stream, strip);
            if (transfer->written < transfer->pieces || transfer->pieces == 0)
                status = stream_multiply(stream, strip, schedule->load[load - 1].packed);
            if (status == CLB_OK)
                clb_transfer_queue_release_now(&stream->transfers, schedule->loads + strip);
        }
    }
    return status;
}

static clb_status lower_flag(struct stream *stream)
{
    static const cl_uint clean = 0;
    if (stream->flag == NULL)
        return CLB_OK;
    return clb_queue_write(stream->queue_set[0]->queue, stream->flag->mem, 0, sizeof clean, &clean,
                           0, NULL, NULL);
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
        status = get_queue_sets(stream);
    if (status == CLB_OK)
        status = get_buffers(stream);
    if (status == CLB_OK)
        status = stream_make_parts(stream);
    return status == CLB_OK ? open_transfers(stream) : status;
}

clb_status clb_gemm_run_discrete(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct stream stream = {
        .runtime = runtime, .variant = variant, .problem = problem, .progress = progress};
    for (size_t t = 0; t < clb_gemm_terms(problem); t++) {
        stream.a[t] = clb_operand_of_term(problem, CLB_OPERAND_A, t);
        stream.b[t] = clb_operand_of_term(problem, CLB_OPERAND_B, t);
    }
    clb_status status = begin_stream(&stream);
    bool enqueued = status == CLB_OK;
    if (enqueued) {
        progress->kernel = variant->name;
        status = lower_flag(&stream);
        clb_transfer_queue_start(&stream.transfers, upload_first(&stream));
        if (status == CLB_OK)
            status = enqueue_all(&stream);
        if (status == CLB_OK)
            release_loads(&stream);
        status = clb_transfer_queue_finish(&stream.transfers, status);
    }
    if (!stream_put(&stream, enqueued))
        status = clb_gemm_distrust(problem, progress);
    return status;
}
