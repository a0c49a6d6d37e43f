/* Runs products as discrete.h describes: the calling thread enqueues the kernels in order, the
 * transfer queue's threads move the data. SPDX-License-Identifier: BSD-3-Clause */
#include "discrete.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- the run ---- */

/* The first queue set packs, the others multiply. As many as are asked for also transfer. */
#define QUEUE_SETS (1 + CLB_STRIP_QUEUES)

/* The buffers of a run. */
enum {
    PACKED_A, /* of each slab; PACKED_B follows, as roles do */
    PACKED_B,
    RAW,
    STRIPS,    /* none where one buffer holds all of C */
    PARTS,     /* of each queue of strips, which are multiplied into memory beside C; or none */
    FLAG,      /* split families: the flag, */
    WORDS,     /* and its values after each step */
    EXPONENTS, /* of scaled operands: see exponents_of() */
    NEEDS
};

struct discrete_run {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    const struct clb_gemm *problem;
    struct clb_gemm_progress *progress; /* part p is download piece p */
    struct clb_discrete_plan plan;
    struct clb_schedule schedule;
    struct clb_queue_set *queue_set[QUEUE_SETS]; /* the first packs */
    struct clb_need need[NEEDS];
    struct clb_buffer *whole;      /* all of C, or NULL */
    struct clb_transfer *transfer; /* of the loads, then of the strips */
    struct clb_transfer_queue transfers;
};

/* NULL: there is no such buffer. */
static cl_mem mem_of(const struct discrete_run *run, int what, size_t number)
{
    return number < run->need[what].count ? run->need[what].buffer[number]->mem : NULL;
}

static cl_mem mem_of_strip(const struct discrete_run *run, size_t number)
{
    return run->whole != NULL ? run->whole->mem
                              : mem_of(run, STRIPS, number % run->plan.strip_slots);
}

static struct clb_transfer *transfer_of_strip(const struct discrete_run *run, size_t number)
{
    return &run->transfer[run->schedule.loads + number];
}

/* ---- pieces of loads ---- */

/* Short columns lie on different pages, at which hardware prefetchers stop. */
#define PREFETCH_BYTES   ((size_t)8192)
#define PREFETCH_COLUMNS 4

static void prefetch(const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(from + i, 0, 3);
}

/* Look for infinities and NaNs in a column of the general operand of a triangular product, because
 * zeros outside the triangle are multiplied with it. Here the column is in the cache. */
static void look_for_infinite(const struct discrete_run *run, const struct clb_load *load,
                              const char *column, size_t rows)
{
    if (load->operand->shape == CLB_STRUCTURE_GENERAL && clb_gemm_adds_zeros(run->problem) &&
        !clb_tile_is_finite(run->problem->precision, rows, 1, column, rows))
        atomic_store_explicit(&run->schedule.step[load->step].infinite, true, memory_order_relaxed);
}

/* Smaller operands, for which the device waits, are copied past the caches, from which it reads
 * more slowly. Where link and CPUs are busy both ways for long, ordinary stores are faster. */
#define LARGE_OPERANDS ((size_t)192 << 20)

static void copy_columns_in(const struct discrete_run *run, const struct clb_transfer *transfer,
                            const struct clb_rect *columns, char *slot)
{
    const struct clb_gemm *problem = run->problem;
    const struct clb_load *load = &run->schedule.load[transfer - run->transfer];
    const struct clb_operand *operand = load->operand;
    size_t bytes = columns->rows * operand->element, step = operand->ld * operand->element;
    const char *from = transfer->host + columns->col * step;
    if (load->kind == CLB_PIECE_EXPANDED) {
        clb_operand_make(problem->precision, operand, load->i0, load->p0, load->w, load->k,
                         columns->col, columns->cols, slot);
        return;
    }
    if (!clb_gemm_adds_zeros(problem) &&
        (problem->m + problem->n) * problem->k * operand->element < LARGE_OPERANDS) {
        clb_copy_nontemporal(slot, bytes, from, step, bytes, columns->cols);
        return;
    }
    for (size_t j = 0; j < columns->cols; j++) {
        if (bytes <= PREFETCH_BYTES && j + PREFETCH_COLUMNS < columns->cols)
            prefetch(from + (j + PREFETCH_COLUMNS) * step, bytes);
        memcpy(slot + j * bytes, from + j * step, bytes);
        look_for_infinite(run, load, slot + j * bytes, columns->rows);
    }
}

/* ---- pieces of strips ---- */

/* Split families: *clean: all that went into a strip is within their range. The flag was read
 * before the strip's kernel ended, so this hardly waits. */
static clb_status check_flag(struct discrete_run *run, const struct clb_strip *strip, bool *clean)
{
    *clean = true;
    if (!run->variant->split)
        return CLB_OK;
    clb_status status = clb_event_wait(run->schedule.step[strip->step].checked);
    *clean = ((const volatile cl_uint *)run->need[WORDS].buffer[0]->host)[strip->step] == 0;
    if (status == CLB_OK && !*clean)
        clb_transfer_queue_stop(&run->transfers);
    return status;
}

/* Matrices that don't fit the caches are written with non-temporal stores. */
#define LARGE_MATRIX ((size_t)64 << 20)

static void merge(const struct clb_gemm *problem, const struct clb_rect *rect, const char *p,
                  size_t ldp)
{
    size_t element = clb_precision_size(problem->precision);
    clb_precision precision = problem->precision;
    bool triangle = problem->region != CLB_REGION_FULL && rect->row == rect->col;
    bool copies =
        clb_scalar_equal(precision, clb_gemm_factor(problem), clb_scalar_of(precision, 1)) &&
        clb_scalar_equal(precision, &problem->beta, clb_scalar_of(precision, 0));
    if (triangle || !copies || problem->n * problem->ldc * element < LARGE_MATRIX) {
        clb_merge_part(problem, rect, p, ldp);
        return;
    }
    char *c = (char *)problem->c + (rect->row + rect->col * problem->ldc) * element;
    clb_copy_nontemporal(c, problem->ldc * element, p, ldp * element, rect->rows * element,
                         rect->cols);
}

/* The product of a batch that a part of C belongs to, in whose C the part is then. */
static struct clb_gemm product_at(const struct discrete_run *run, struct clb_rect *part)
{
    struct clb_gemm problem = *run->problem;
    const size_t p = part->row / problem.m;
    if (problem.count > 0) {
        problem.c = problem.batch[p].of[2];
        part->row -= p * problem.m;
        part->col -= p * problem.n;
    }
    return problem;
}

/* Merge a piece of a strip into C, unless another family or the CPU must compute it. */
static clb_status write_part(struct discrete_run *run, const struct clb_transfer *transfer,
                             const struct clb_rect *columns, char *slot)
{
    const struct clb_strip *strip = &run->schedule.strip[transfer - transfer_of_strip(run, 0)];
    struct clb_rect part = {strip->rect.row, strip->rect.col + columns->col, columns->rows,
                            columns->cols};
    const struct clb_gemm problem = product_at(run, &part);
    bool clean;
    CLB_TRY(check_flag(run, strip, &clean));
    if (!clb_queue_has_run(run->queue_set[0]->queue, strip->packing_launches))
        return CLB_ERR_OPENCL;
    if (!clean ||
        (atomic_load_explicit(&run->schedule.step[strip->step].infinite, memory_order_relaxed) &&
         !clb_part_is_exact(run->problem, &part, slot, strip->ldc)))
        return CLB_ERR_RANGE;
    merge(&problem, &part, slot, strip->ldc);
    return CLB_OK;
}

static clb_status copy_piece(void *context, const struct clb_transfer *transfer,
                             const struct clb_rect *columns, char *slot)
{
    if (transfer->down)
        return write_part(context, transfer, columns, slot);
    copy_columns_in(context, transfer, columns, slot);
    return CLB_OK;
}

/* ---- resources: all are acquired before anything is enqueued ---- */

/* Try to get one buffer for all of C, of at most an eighth of the available memory. */
static void get_whole(struct discrete_run *run)
{
    const struct clb_discrete_plan *plan = &run->plan;
    uint64_t max_alloc = run->runtime->device.max_alloc;
    uint64_t bytes =
        (uint64_t)run->schedule.strip_elements * clb_precision_size(run->variant->precision);
    uint64_t rounded = clb_buffer_rounded(bytes);
    uint64_t slots = plan->strip_slots * (uint64_t)clb_buffer_rounded(plan->strip_bytes);
    if (bytes > max_alloc - max_alloc / 8 || rounded > plan->available / 8 ||
        plan->bytes - slots + rounded > plan->available ||
        clb_buffer_get(run->runtime, CLB_MEMORY_DEVICE, bytes, &run->whole) != CLB_OK)
        run->whole = NULL;
}

/* Where not all of C is kept, strips can't be added to: make the schedule again, in one part. */
static clb_status make_in_one_part(struct discrete_run *run)
{
    if (run->plan.first_slabs == 0)
        return CLB_OK;
    run->plan.first_slabs = 0;
    clb_schedule_free(&run->schedule);
    return clb_schedule_make(&run->plan, run->problem, &run->schedule);
}

/* Where the exponents of an operand's slab begin: of A's rows or of B's columns in a block. */
static cl_ulong exponents_of(const struct discrete_run *run, clb_operand_role role, size_t slab)
{
    const struct clb_discrete_plan *plan = &run->plan;
    return slab * (plan->block[0] + plan->block[1]) + (role == CLB_OPERAND_A ? 0 : plan->block[0]);
}

/* Of the largest strip. */
static size_t bytes_in_parts(const struct discrete_run *run)
{
    const struct clb_discrete_plan *plan = &run->plan;
    size_t most = 1;
    for (size_t i = 0; i < run->schedule.strips; i++) {
        const struct clb_rect *rect = &run->schedule.strip[i].rect;
        most = clb_max(
            most, clb_scaled_bytes(run->variant, plan->part, rect->rows, rect->cols, plan->slab));
    }
    return most;
}

static clb_status get_buffers(struct discrete_run *run)
{
    struct clb_discrete_plan *plan = &run->plan;
    const bool split = run->variant->split, scales = run->variant->scales;
    get_whole(run);
    CLB_TRY(run->whole != NULL ? CLB_OK : make_in_one_part(run));
    plan->raw_slots = clb_min(plan->raw_slots, run->schedule.loads);
    plan->strip_slots = run->whole != NULL ? 1 : clb_min(plan->strip_slots, run->schedule.strips);
    const struct clb_need need[NEEDS] = {
        [PACKED_A] = {CLB_MEMORY_DEVICE, plan->slabs, plan->packed_bytes[CLB_OPERAND_A], NULL},
        [PACKED_B] = {CLB_MEMORY_DEVICE, plan->slabs, plan->packed_bytes[CLB_OPERAND_B], NULL},
        [RAW] = {CLB_MEMORY_DEVICE, plan->raw_slots, plan->raw_bytes, NULL},
        [STRIPS] = {CLB_MEMORY_DEVICE, run->whole != NULL ? 0 : plan->strip_slots,
                    plan->strip_bytes, NULL},
        [PARTS] = {CLB_MEMORY_DEVICE, plan->part != 0 || scales ? CLB_STRIP_QUEUES : 0,
                   bytes_in_parts(run), NULL},
        [FLAG] = {CLB_MEMORY_DEVICE, split, sizeof(cl_uint), NULL},
        [WORDS] = {CLB_MEMORY_HOST, split, run->schedule.steps * sizeof(cl_uint), NULL},
        [EXPONENTS] = {CLB_MEMORY_DEVICE, scales,
                       exponents_of(run, CLB_OPERAND_A, plan->slabs) * sizeof(cl_int), NULL}};
    memcpy(run->need, need, sizeof need);
    return clb_needs_get(run->runtime, run->need, NEEDS);
}

#define FEW_PIECES ((size_t)8) /* of a staging thread, to upload */

/* The number of staging threads that prefer uploads. While C is kept on the device nothing waits
 * for a merge before the end, and operands should arrive soon; but what has not come down by
 * then is left to do. Where strips are whole columns or rows (trmm), downloads move as many
 * bytes from the first strip on. */
static size_t upload_first(const struct discrete_run *run)
{
    size_t threads = run->transfers.threads;
    size_t forced = run->variant->tuning.value[CLB_PARAM_UPLOADERS];
    if (forced != 0)
        return forced;
    if (run->transfers.prefault.units > 0)
        return clb_div_up(4 * threads, 7);
    if (run->whole == NULL || run->plan.strip[0] != 0)
        return clb_div_up(6 * threads, 10);
    return run->transfers.pieces[CLB_UP] < FEW_PIECES * threads ? clb_div_up(5 * threads, 6)
                                                                : clb_div_up(3 * threads, 4);
}

static clb_status get_queue_sets(struct discrete_run *run)
{
    clb_status status = CLB_OK;
    for (size_t i = 0; i < QUEUE_SETS && status == CLB_OK; i++)
        status = clb_queue_set_acquire(run->runtime, &run->queue_set[i]);
    return status;
}

static struct clb_transfer upload_of(const struct discrete_run *run, size_t number)
{
    const struct clb_load *load = &run->schedule.load[number];
    const struct clb_operand *operand = load->operand;
    size_t slots = run->plan.raw_slots, i0 = load->i0;
    char *host = (char *)(uintptr_t)operand->host;
    if (run->problem->count > 0) {
        const bool is_a = operand->role == CLB_OPERAND_A;
        const size_t extent = is_a ? run->problem->m : run->problem->n;
        host = run->problem->batch[load->origin / extent].of[operand->role];
        i0 -= load->origin;
    }
    const struct clb_rect at = clb_stored(load->depth_contiguous, i0, load->p0, load->w, load->k);
    return (struct clb_transfer){
        .held = number >= slots,
        .x = {mem_of(run, RAW, number % slots), 0, at.rows, at.cols, at.rows},
        .host = host + (at.row + at.col * operand->ld) * operand->element,
        .ld = operand->ld,
        .extent = load->piece_cols,
        .slot_ld = at.rows};
}

static struct clb_transfer download_of(const struct discrete_run *run, size_t number)
{
    const struct clb_strip *strip = &run->schedule.strip[number];
    return (struct clb_transfer){.down = true,
                                 .column = strip->rect.col,
                                 .x = {mem_of_strip(run, number),
                                       run->whole != NULL ? strip->offset : 0, strip->rect.rows,
                                       strip->pieces > 0 ? strip->rect.cols : 0, strip->ldc},
                                 .extent = strip->piece_cols,
                                 .slot_ld = strip->ldc};
}

/* Where pages of C are missing, making them takes nearly as long as copying the operands. So there
 * are more threads, and fewer upload first. */
static void take_to_pages(struct discrete_run *run, struct clb_prefault prefault)
{
    struct clb_transfer_queue *transfers = &run->transfers;
    const size_t staging = run->plan.staging_threads, more = staging / 6;
    transfers->prefault = prefault;
    if (prefault.units > 0 && !transfers->gathers &&
        more * 4 * run->plan.piece_bytes <= run->plan.available / 16)
        transfers->most_threads = clb_min(staging + more, CLB_MAX_WORKERS);
}

/* With fewer than two staging threads the calling thread moves everything itself. */
static clb_status open_transfers(struct discrete_run *run)
{
    const struct clb_schedule *schedule = &run->schedule;
    const size_t *value = run->variant->tuning.value;
    run->transfer = calloc(schedule->loads + schedule->strips, sizeof *run->transfer);
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < schedule->loads; i++)
        run->transfer[i] = upload_of(run, i);
    for (size_t i = 0; i < schedule->strips; i++)
        *transfer_of_strip(run, i) = download_of(run, i);
    run->transfers = (struct clb_transfer_queue){
        .queue_set = run->queue_set,
        .queue_sets = QUEUE_SETS,
        .queues = clb_min(clb_max(value[CLB_PARAM_QUEUES], 1), QUEUE_SETS),
        .precision = run->variant->precision,
        .transfer = run->transfer,
        .uploads = schedule->loads,
        .downloads = schedule->strips,
        .slot_bytes = run->plan.piece_bytes,
        .wanted_threads = value[CLB_PARAM_THREADS],
        .most_threads = run->plan.staging_threads,
        .gathers = run->plan.gathers && schedule->loads <= run->plan.raw_slots,
        .copy = copy_piece,
        .context = run,
        .written = run->progress->written};
    take_to_pages(run, run->problem->count > 0
                           ? (struct clb_prefault){.per_unit = 1}
                           : clb_gemm_prefault(run->problem, value[CLB_PARAM_FAULT]));
    return clb_transfer_queue_open(&run->transfers);
}

/* ---- release ---- */

/* Loads' events belong to the transfer queue where a later load waits for them. */
static void release_loads(struct discrete_run *run)
{
    size_t loads = run->schedule.loads, slots = run->plan.raw_slots;
    clb_transfer_queue_forget_uploads(&run->transfers);
    for (size_t i = loads > slots ? loads - slots : 0; i < loads; i++)
        clb_event_drop(&run->schedule.load[i].packed);
}

static bool end_run(struct discrete_run *run, bool enqueued)
{
    bool idle = true, good = true;
    for (size_t i = 0; i < QUEUE_SETS && enqueued; i++)
        idle = clb_queue_set_settle(run->queue_set[i]) && idle;
    for (size_t i = 0; i < QUEUE_SETS && enqueued; i++)
        good = clb_queue_set_check(run->queue_set[i]) == CLB_OK && good;
    release_loads(run);
    for (size_t i = 0; i < run->schedule.steps; i++)
        clb_event_drop(&run->schedule.step[i].checked);
    clb_transfer_queue_close(&run->transfers, idle);
    clb_needs_end(run->runtime, run->need, NEEDS, idle);
    clb_buffer_end(run->runtime, run->whole, idle);
    for (size_t i = 0; i < QUEUE_SETS; i++)
        clb_queue_set_end(run->queue_set[i], idle);
    free(run->transfer);
    clb_schedule_free(&run->schedule);
    return good;
}

/* ---- parts of the progress ---- */

/* What an earlier run has written is not computed again. CLB_ERR_UNSUPPORTED: its parts differ. */
static clb_status make_parts(struct discrete_run *run)
{
    struct clb_gemm_progress *progress = run->progress;
    const struct clb_schedule *schedule = &run->schedule;
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
            if (resumed && memcmp(known, &rect, sizeof rect) != 0)
                return CLB_ERR_UNSUPPORTED;
            progress->part[index] = rect;
        }
    }
    return CLB_OK;
}

/* ---- the calling thread ---- */

/* Scale the rows of a load, for all that it is packed for. */
static clb_status scale(struct discrete_run *run, const struct clb_load *load,
                        const struct clb_chunk *chunk, struct clb_order order)
{
    const struct clb_pack_target *one = &load->target[0], *last = &load->target[load->targets - 1];
    const size_t row = load->i0 - load->origin;
    const cl_ulong first[2] = {exponents_of(run, one->role, one->slab) + row,
                               exponents_of(run, last->role, last->slab) + row};
    return clb_gemm_scale(run->queue_set[0], run->variant, chunk, load->w, load->k,
                          mem_of(run, EXPONENTS, 0), first, order);
}

/* Enqueue the kernels that pack a load, after its transfers and the `count` events of `more`. */
static clb_status pack_load(struct discrete_run *run, size_t index, const clb_event *more,
                            size_t count)
{
    struct clb_load *load = &run->schedule.load[index];
    size_t pieces = 0;
    size_t next = index + run->plan.raw_slots; /* the load that gets the raw buffer */
    const clb_event *uploaded;
    clb_status status = clb_transfer_queue_await_events(&run->transfers, index, &uploaded, &pieces);
    struct clb_order order = {0};
    /* A launch waits for one event: barriers before it do for the others. */
    for (size_t i = 0; i < pieces + count && status == CLB_OK; i++) {
        if (order.after != NULL)
            status = clb_queue_barrier(run->queue_set[0]->queue, order.after, NULL);
        order.after = i < pieces ? uploaded[i] : more[i - pieces];
    }
    if (status != CLB_OK)
        return status;
    struct clb_chunk chunk = {.mem = mem_of(run, RAW, index % run->plan.raw_slots),
                              .ld = load->depth_contiguous ? load->k : load->w,
                              .depth_contiguous = load->depth_contiguous};
    if (run->variant->scales) {
        status = scale(run, load, &chunk, order);
        order = (struct clb_order){0}; /* the queue is in order */
    }
    for (size_t t = 0; t < load->targets && status == CLB_OK; t++) {
        const struct clb_pack_target *target = &load->target[t];
        cl_mem packed = mem_of(run, PACKED_A + (int)target->role, target->slab);
        chunk.conjugated = target->conjugated;
        order.event = t + 1 == load->targets ? &load->packed : NULL;
        status = clb_gemm_pack(
            run->queue_set[0], run->variant, target->role, &chunk, load->w, load->k, packed,
            clb_packed_offset(run->variant, target->role, load->i0 - load->origin, load->k),
            mem_of(run, FLAG, 0), order);
        order = (struct clb_order){0};
    }
    if (status != CLB_OK)
        return status;
    status = clb_queue_flush(run->queue_set[0]->queue);
    clb_transfer_queue_announce(&run->transfers);
    if (next < run->schedule.loads) {
        run->transfer[next].before = load->packed;
        clb_transfer_queue_release_now(&run->transfers, next);
    }
    return status;
}

/* Each queue's last strips before `end`: after them, operands that they read may be overwritten. */
static size_t last_strips(const struct discrete_run *run, size_t end, clb_event *events)
{
    size_t count = 0;
    for (size_t i = end; i > 0 && end - i < CLB_STRIP_QUEUES; i--) {
        clb_event ready = transfer_of_strip(run, i - 1)->before;
        if (ready != NULL)
            events[count++] = ready;
    }
    return count;
}

/* Wait until the previous strip in a strip's buffer has been merged. */
static clb_status wait_for_slot(struct discrete_run *run, size_t number)
{
    size_t slots = run->plan.strip_slots;
    if (run->whole != NULL || number < slots)
        return CLB_OK;
    clb_progress_note((double)(number - slots + 1) / (double)run->schedule.strips);
    return clb_transfer_queue_await_written(&run->transfers, run->schedule.loads + number - slots);
}

static clb_status multiply_slab(struct discrete_run *run, size_t number, size_t slab,
                                const struct clb_rect *rect, struct clb_order order)
{
    const struct clb_strip *strip = &run->schedule.strip[number];
    const struct clb_discrete_plan *plan = &run->plan;
    const struct clb_pass pass = clb_gemm_pass(run->problem, plan->slab, slab);
    const size_t row = rect->row - strip->origin[0], col = rect->col - strip->origin[1];
    const struct clb_product product = {
        .m = rect->rows,
        .n = rect->cols,
        .k = pass.k,
        .a = mem_of(run, PACKED_A, slab),
        .b = mem_of(run, PACKED_B, slab),
        .c = mem_of_strip(run, number),
        .a_offset = clb_packed_offset(run->variant, CLB_OPERAND_A, row, pass.k),
        .b_offset = clb_packed_offset(run->variant, CLB_OPERAND_B, col, pass.k),
        .c_offset = (run->whole != NULL ? strip->offset : 0) + rect->row - strip->rect.row +
                    (rect->col - strip->rect.col) * strip->ldc,
        .ldc = strip->ldc,
        .add = slab > 0,
        .part = plan->part,
        .parts = mem_of(run, PARTS, strip->queue),
        .exponents = mem_of(run, EXPONENTS, 0),
        .a_exponents = exponents_of(run, CLB_OPERAND_A, slab) + row,
        .b_exponents = exponents_of(run, CLB_OPERAND_B, slab) + col,
        .cut = clb_gemm_skip(run->variant, run->problem, &pass, rect)};
    return clb_gemm_multiply(run->queue_set[1 + strip->queue], run->variant, &product, order);
}

/* The part of a strip to which a slab contributes. */
static struct clb_rect support_of(struct discrete_run *run, const struct clb_strip *strip,
                                  size_t slab)
{
    const struct clb_pass pass = clb_gemm_pass(run->problem, run->plan.slab, slab);
    return clb_gemm_support(run->variant, run->schedule.operand, &pass, strip->origin,
                            &strip->rect);
}

/* Enqueue the kernels of a strip after the packing of its operands, which ends with the event
 * `packed`. Later strips that add to it are on the same queue. */
static clb_status multiply_strip(struct discrete_run *run, size_t number, clb_event packed)
{
    struct clb_strip *strip = &run->schedule.strip[number];
    struct clb_queue *queue = run->queue_set[1 + strip->queue]->queue;
    struct clb_rect rect;
    clb_status status = wait_for_slot(run, number);
    size_t last = strip->end_slab;
    do
        rect = support_of(run, strip, --last);
    while (last > strip->slab && (rect.rows == 0 || rect.cols == 0));
    for (size_t slab = strip->slab; slab <= last && status == CLB_OK; slab++) {
        const bool first = slab == strip->slab;
        rect = support_of(run, strip, slab);
        if (rect.rows > 0 && rect.cols > 0)
            status = multiply_slab(
                run, number, slab, &rect,
                (struct clb_order){.after = first ? packed : NULL,
                                   .event = slab == last ? &transfer_of_strip(run, number)->before
                                                         : NULL});
    }
    strip->packing_launches = clb_queue_launches(run->queue_set[0]->queue);
    return status == CLB_OK ? clb_queue_flush(queue) : status;
}

static clb_status read_flag(struct discrete_run *run, size_t s)
{
    struct clb_step *step = &run->schedule.step[s];
    if (!run->variant->split)
        return CLB_OK;
    CLB_TRY(clb_queue_read(run->queue_set[0]->queue, mem_of(run, FLAG, 0),
                           CLB_LINE(0, sizeof(cl_uint)),
                           (cl_uint *)run->need[WORDS].buffer[0]->host + s, NULL, &step->checked));
    return clb_queue_flush(run->queue_set[0]->queue);
}

static clb_status enqueue_all(struct discrete_run *run)
{
    const struct clb_schedule *schedule = &run->schedule;
    clb_status status = CLB_OK;
    size_t load = 0, strip = 0;
    for (size_t s = 0; s < schedule->steps && status == CLB_OK; s++) {
        const struct clb_step *step = &schedule->step[s];
        clb_event before[CLB_STRIP_QUEUES];
        size_t waits = step->new_block ? last_strips(run, strip, before) : 0;
        for (size_t i = 0; i < step->loads && status == CLB_OK; i++)
            status = pack_load(run, load++, before, i == 0 ? waits : 0);
        CLB_THEN(status, read_flag(run, s));
        for (size_t i = 0; i < step->strips && status == CLB_OK; i++, strip++) {
            const struct clb_transfer *transfer = transfer_of_strip(run, strip);
            if (transfer->written < transfer->pieces || transfer->pieces == 0)
                status = multiply_strip(run, strip, schedule->load[load - 1].packed);
            if (status == CLB_OK)
                clb_transfer_queue_release_now(&run->transfers, schedule->loads + strip);
        }
    }
    return status;
}

static clb_status lower_flag(struct discrete_run *run)
{
    static const cl_uint clean = 0;
    if (!run->variant->split)
        return CLB_OK;
    return clb_queue_write(run->queue_set[0]->queue, mem_of(run, FLAG, 0),
                           CLB_LINE(0, sizeof clean), &clean, NULL, NULL);
}

static clb_status begin_run(struct discrete_run *run)
{
    const struct clb_device *device = &run->runtime->device;
    clb_status status =
        clb_discrete_make_plan(run->variant, run->problem, clb_memory_available(run->runtime),
                               device->max_alloc, device->unified ? 0 : device->units, &run->plan);
    CLB_THEN(status, clb_schedule_make(&run->plan, run->problem, &run->schedule));
    CLB_THEN(status, get_queue_sets(run));
    CLB_THEN(status, get_buffers(run));
    CLB_THEN(status, make_parts(run));
    return status == CLB_OK ? open_transfers(run) : status;
}

clb_status clb_gemm_run_discrete(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    struct discrete_run run = {
        .runtime = runtime, .variant = variant, .problem = problem, .progress = progress};
    clb_status status = begin_run(&run);
    bool enqueued = status == CLB_OK;
    if (enqueued) {
        progress->kernel = variant->name;
        status = lower_flag(&run);
        clb_transfer_queue_start(&run.transfers, upload_first(&run));
        CLB_THEN(status, enqueue_all(&run));
        if (status == CLB_OK)
            release_loads(&run);
        status = clb_transfer_queue_finish(&run.transfers, status);
    }
    if (!end_run(&run, enqueued))
        status = clb_gemm_distrust(problem, progress);
    return status;
}
