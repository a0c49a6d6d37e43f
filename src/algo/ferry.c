/* Pieces of matrices between the caller's memory and a device's, see ferry.h. */
#include "ferry.h"

#include <stdlib.h>

/* ---- pieces ---------------------------------------------------------------------------------- */

struct clb_rect clb_cargo_piece(const struct clb_cargo *cargo, size_t piece)
{
    const struct clb_dmat *x = &cargo->x;
    size_t first = piece * cargo->extent;
    if (cargo->by_rows)
        return (struct clb_rect){first, 0, clb_min(cargo->extent, x->rows - first), x->cols};
    return (struct clb_rect){0, first, x->rows, clb_min(cargo->extent, x->cols - first)};
}

struct clb_cargo clb_cargo_of_triangle(const struct clb_dmat *x, size_t element, bool upper,
                                       size_t k, size_t width, void *a, size_t ld)
{
    size_t row = upper ? 0 : k, rows = upper ? k + width : x->rows - k;
    return (struct clb_cargo){.x = clb_dmat_part(x, row, k, rows, width),
                              .host = (char *)a + (row + k * ld) * element,
                              .ld = ld,
                              .shape = upper ? CLB_CARGO_UPPER : CLB_CARGO_LOWER,
                              .diagonal = (ptrdiff_t)(k - row)};
}

/* A piece is at least one row or column, and slots are as large as that needs. */
static void cut(struct clb_ferry *ferry, struct clb_cargo *cargo)
{
    size_t all = cargo->by_rows ? cargo->x.rows : cargo->x.cols;
    size_t each = (cargo->by_rows ? cargo->x.cols : cargo->x.rows) * ferry->element;
    size_t *pieces = cargo->down ? &ferry->down_pieces : &ferry->up_pieces;
    if (cargo->extent == 0)
        cargo->extent = clb_max(CLB_PIECE_BYTES / clb_max(each, 1), 1);
    cargo->extent = clb_min(cargo->extent, clb_max(all, 1));
    cargo->pieces = clb_div_up(all, cargo->extent);
    cargo->first_piece = *pieces;
    cargo->done = cargo->written = 0;
    cargo->ready = NULL;
    *pieces += cargo->pieces;
    ferry->slot_bytes = clb_max(ferry->slot_bytes, cargo->extent * each);
}

static struct clb_cargo *cargo_of(const struct clb_ferry *ferry, bool down, size_t piece)
{
    for (size_t i = 0; i < ferry->cargoes; i++) {
        struct clb_cargo *cargo = &ferry->cargo[i];
        if (cargo->down == down && piece >= cargo->first_piece &&
            piece < cargo->first_piece + cargo->pieces)
            return cargo;
    }
    return NULL;
}

static char *host_of(const struct clb_ferry *ferry, const struct clb_cargo *cargo,
                     const struct clb_rect *rect)
{
    return cargo->host + (rect->row + rect->col * cargo->ld) * ferry->element;
}

/* Where the diagonal begins in a piece. */
static ptrdiff_t diagonal_of(const struct clb_cargo *cargo, const struct clb_rect *rect)
{
    return cargo->diagonal + (ptrdiff_t)rect->col - (ptrdiff_t)rect->row;
}

/* ---- open, start, close ---------------------------------------------------------------------- */

static clb_status get_slots(struct clb_ferry *ferry, size_t wanted)
{
    size_t pieces = ferry->up_pieces + ferry->down_pieces;
    clb_workers_lend(&ferry->workers, clb_min(wanted != 0 ? wanted : pieces / 2, CLB_MAX_FERRYMEN),
                     wanted != 0);
    ferry->men = clb_max(ferry->workers.count, 1);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < ferry->men; i++) {
        struct clb_ferryman *man = &ferry->man[i];
        man->ferry = ferry;
        for (size_t s = 0; s < CLB_COUNT_OF(man->slot) && status == CLB_OK; s++)
            status =
                clb_buffer_get(ferry->runtime, CLB_MEMORY_HOST, ferry->slot_bytes, &man->slot[s]);
    }
    return status;
}

clb_status clb_ferry_open(struct clb_ferry *ferry, struct clb_lane *lane, clb_precision precision,
                          struct clb_cargo *cargo, size_t cargoes, size_t wanted)
{
    *ferry = (struct clb_ferry){.runtime = lane->runtime,
                                .lane = lane,
                                .precision = precision,
                                .element = clb_precision_size(precision),
                                .cargo = cargo,
                                .cargoes = cargoes,
                                .lock = PTHREAD_MUTEX_INITIALIZER,
                                .changed = PTHREAD_COND_INITIALIZER};
    for (size_t i = 0; i < cargoes; i++)
        cut(ferry, &cargo[i]);
    ferry->released = ferry->up_pieces;
    for (size_t i = cargoes; i-- > 0;)
        ferry->released = cargo[i].held ? cargo[i].first_piece : ferry->released;
    ferry->has_arrived = calloc(ferry->down_pieces + 1, sizeof *ferry->has_arrived);
    if (ferry->has_arrived == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_lane_open_queues(lane);
    if (status == CLB_OK)
        status = get_slots(ferry, wanted);
    return status;
}

static void release_event(cl_event *event)
{
    if (*event != NULL)
        clb_cl.ReleaseEvent(*event);
    *event = NULL;
}

void clb_ferry_close(struct clb_ferry *ferry, bool idle)
{
    if (ferry->runtime == NULL)
        return;
    clb_workers_return(&ferry->workers);
    for (size_t i = 0; i < ferry->cargoes; i++)
        release_event(&ferry->cargo[i].ready);
    for (size_t i = 0; i < ferry->men; i++) {
        for (size_t s = 0; s < CLB_COUNT_OF(ferry->man[i].slot); s++) {
            release_event(&ferry->man[i].busy[s]);
            clb_buffer_end(ferry->runtime, ferry->man[i].slot[s], idle);
        }
    }
    free(ferry->has_arrived);
    pthread_mutex_destroy(&ferry->lock);
    pthread_cond_destroy(&ferry->changed);
    ferry->runtime = NULL;
}

/* ---- one piece ------------------------------------------------------------------------------- */

static void fail(struct clb_ferry *ferry, clb_status status)
{
    pthread_mutex_lock(&ferry->lock);
    if (ferry->status == CLB_OK)
        ferry->status = status;
    pthread_cond_broadcast(&ferry->changed);
    pthread_mutex_unlock(&ferry->lock);
}

static clb_status wait_for_slot(struct clb_ferryman *man, size_t slot)
{
    if (man->busy[slot] == NULL)
        return CLB_OK;
    return clb_lane_await(man->ferry->lane, &man->busy[slot]);
}

static clb_status bring_up(struct clb_ferryman *man, size_t piece)
{
    struct clb_ferry *ferry = man->ferry;
    struct clb_cargo *cargo = cargo_of(ferry, false, piece);
    const struct clb_rect rect = clb_cargo_piece(cargo, piece - cargo->first_piece);
    const struct clb_dmat x = clb_dmat_part(&cargo->x, rect.row, rect.col, rect.rows, rect.cols);
    size_t turn = man->turn++ % CLB_COUNT_OF(man->slot);
    void *slot = man->slot[turn]->host;
    clb_status status = wait_for_slot(man, turn);
    if (status != CLB_OK)
        return status;
    if (cargo->order != NULL)
        clb_copy_ordered(ferry->precision, rect.rows, rect.cols, cargo->order + rect.row,
                         cargo->host + rect.col * cargo->ld * ferry->element, cargo->ld, slot,
                         rect.rows);
    else if (cargo->shape != CLB_CARGO_WHOLE)
        clb_copy_trapezoid(ferry->precision, cargo->shape == CLB_CARGO_UPPER,
                           diagonal_of(cargo, &rect), rect.rows, rect.cols,
                           host_of(ferry, cargo, &rect), cargo->ld, slot, rect.rows);
    else
        clb_merge_tile(ferry->precision, rect.rows, rect.cols, cargo->alpha,
                       host_of(ferry, cargo, &rect), cargo->ld, clb_scalar_zero(ferry->precision),
                       slot, rect.rows);
    status =
        clb_dmat_write(ferry->lane->upload, &x, ferry->element, slot, rect.rows, &man->busy[turn]);
    if (status == CLB_OK)
        status = clb_queue_flush(ferry->lane->upload);
    pthread_mutex_lock(&ferry->lock);
    /* Its last piece: what is asked for now is there when all of it is, but not more. */
    if (status == CLB_OK && cargo->done + 1 == cargo->pieces)
        status = clb_queue_mark(ferry->lane->upload, &cargo->ready);
    cargo->done += status == CLB_OK;
    pthread_cond_broadcast(&ferry->changed);
    pthread_mutex_unlock(&ferry->lock);
    return status;
}

/* Bring the piece into the slot. */
static clb_status bring_down(struct clb_ferryman *man, const struct clb_cargo *cargo,
                             const struct clb_rect *rect, size_t turn)
{
    struct clb_ferry *ferry = man->ferry;
    const struct clb_dmat x =
        clb_dmat_part(&cargo->x, rect->row, rect->col, rect->rows, rect->cols);
    clb_status status = wait_for_slot(man, turn);
    if (status == CLB_OK)
        status = clb_queue_barrier(ferry->lane->download, 1, &cargo->ready, NULL);
    if (status == CLB_OK)
        status = clb_dmat_read(ferry->lane->download, &x, ferry->element, man->slot[turn]->host,
                               rect->rows, &man->busy[turn]);
    if (status == CLB_OK)
        status = clb_queue_flush(ferry->lane->download);
    if (status == CLB_OK)
        status = wait_for_slot(man, turn);
    return status;
}

/* The piece is in its slot: wait until all before it are in theirs. After that nothing can keep it
 * from being written. */
static bool await_turn(struct clb_ferry *ferry, struct clb_cargo *cargo, size_t piece)
{
    pthread_mutex_lock(&ferry->lock);
    ferry->has_arrived[piece] = true;
    cargo->done++;
    /* After a failure the others may have given up waiting. */
    while (ferry->status == CLB_OK && ferry->arrived < ferry->down_pieces &&
           ferry->has_arrived[ferry->arrived])
        ferry->arrived++;
    pthread_cond_broadcast(&ferry->changed);
    while (ferry->arrived <= piece && ferry->status == CLB_OK)
        pthread_cond_wait(&ferry->changed, &ferry->lock);
    bool go = ferry->arrived > piece;
    pthread_mutex_unlock(&ferry->lock);
    return go;
}

static clb_status take_down(struct clb_ferryman *man, size_t piece)
{
    struct clb_ferry *ferry = man->ferry;
    struct clb_cargo *cargo = cargo_of(ferry, true, piece);
    const struct clb_rect rect = clb_cargo_piece(cargo, piece - cargo->first_piece);
    size_t turn = man->turn++ % CLB_COUNT_OF(man->slot);
    const void *slot = man->slot[turn]->host;
    clb_status status = bring_down(man, cargo, &rect, turn);
    if (status != CLB_OK || !await_turn(ferry, cargo, piece))
        return status;
    if (cargo->order != NULL)
        clb_copy_ordered(ferry->precision, rect.rows, rect.cols, cargo->order, slot, rect.rows,
                         host_of(ferry, cargo, &rect), cargo->ld);
    else if (cargo->shape != CLB_CARGO_WHOLE)
        clb_copy_trapezoid(ferry->precision, cargo->shape == CLB_CARGO_UPPER,
                           diagonal_of(cargo, &rect), rect.rows, rect.cols, slot, rect.rows,
                           host_of(ferry, cargo, &rect), cargo->ld);
    else
        clb_merge_tile(ferry->precision, rect.rows, rect.cols, clb_scalar_one(ferry->precision),
                       slot, rect.rows, clb_scalar_zero(ferry->precision),
                       host_of(ferry, cargo, &rect), cargo->ld);
    pthread_mutex_lock(&ferry->lock);
    cargo->written++;
    pthread_cond_broadcast(&ferry->changed);
    pthread_mutex_unlock(&ferry->lock);
    return CLB_OK;
}

/* ---- who does what --------------------------------------------------------------------------- */

enum task { NOTHING, UP, DOWN };

/* With the lock held. */
static enum task take_task(struct clb_ferry *ferry, size_t *piece)
{
    if (ferry->status != CLB_OK)
        return NOTHING;
    if (ferry->next_up < ferry->released) {
        *piece = ferry->next_up++;
        return UP;
    }
    if (ferry->next_down < ferry->published) {
        *piece = ferry->next_down++;
        return DOWN;
    }
    return NOTHING;
}

static void do_task(struct clb_ferryman *man, enum task task, size_t piece)
{
    double begin = clb_trace_wanted() ? clb_now() : 0;
    clb_status status = task == UP ? bring_up(man, piece) : take_down(man, piece);
    if (clb_trace_wanted())
        clb_trace_since(task == UP ? "bring up" : "take down", begin);
    if (status != CLB_OK)
        fail(man->ferry, status);
}

/* A worker's task. */
static void carry(void *argument)
{
    struct clb_ferryman *man = argument;
    struct clb_ferry *ferry = man->ferry;
    for (;;) {
        size_t piece;
        enum task task;
        pthread_mutex_lock(&ferry->lock);
        while ((task = take_task(ferry, &piece)) == NOTHING && !ferry->complete &&
               ferry->status == CLB_OK)
            pthread_cond_wait(&ferry->changed, &ferry->lock);
        pthread_mutex_unlock(&ferry->lock);
        if (task == NOTHING)
            return;
        do_task(man, task, piece);
    }
}

/* Without workers: what can be done now. */
static void carry_alone(struct clb_ferry *ferry)
{
    enum task task;
    size_t piece;
    while (ferry->workers.count == 0 && (task = take_task(ferry, &piece)) != NOTHING)
        do_task(&ferry->man[0], task, piece);
}

void clb_ferry_start(struct clb_ferry *ferry)
{
    for (size_t i = 0; i < ferry->workers.count; i++)
        clb_workers_start(&ferry->workers, i, carry, &ferry->man[i]);
}

/* Until a count of the load's pieces is complete. */
static clb_status await_count(struct clb_ferry *ferry, const struct clb_cargo *cargo,
                              const size_t *count)
{
    carry_alone(ferry);
    pthread_mutex_lock(&ferry->lock);
    while (*count < cargo->pieces && ferry->status == CLB_OK)
        pthread_cond_wait(&ferry->changed, &ferry->lock);
    clb_status status = ferry->status;
    pthread_mutex_unlock(&ferry->lock);
    return status;
}

clb_status clb_ferry_await(struct clb_ferry *ferry, size_t cargo, struct clb_queue *queue)
{
    clb_status status = await_count(ferry, &ferry->cargo[cargo], &ferry->cargo[cargo].done);
    if (status == CLB_OK)
        status = clb_queue_barrier(queue, 1, &ferry->cargo[cargo].ready, NULL);
    return status;
}

bool clb_ferry_has(struct clb_ferry *ferry, size_t cargo)
{
    pthread_mutex_lock(&ferry->lock);
    bool has = ferry->cargo[cargo].done == ferry->cargo[cargo].pieces || ferry->status != CLB_OK;
    pthread_mutex_unlock(&ferry->lock);
    return has;
}

void clb_ferry_shorten(struct clb_ferry *ferry, size_t index, size_t cols)
{
    struct clb_cargo *cargo = &ferry->cargo[index];
    cargo->x.cols = cols;
    cargo->pieces = clb_div_up(cols, cargo->extent);
}

clb_status clb_ferry_await_arrival(struct clb_ferry *ferry, size_t cargo)
{
    return await_count(ferry, &ferry->cargo[cargo], &ferry->cargo[cargo].done);
}

clb_status clb_ferry_await_written(struct clb_ferry *ferry, size_t cargo)
{
    return await_count(ferry, &ferry->cargo[cargo], &ferry->cargo[cargo].written);
}

clb_status clb_ferry_release(struct clb_ferry *ferry, size_t index, struct clb_queue *queue)
{
    const struct clb_cargo *cargo = &ferry->cargo[index];
    clb_status status = clb_queue_join(queue, ferry->lane->upload);
    if (status != CLB_OK)
        return status;
    pthread_mutex_lock(&ferry->lock);
    ferry->released = cargo->first_piece + cargo->pieces;
    pthread_cond_broadcast(&ferry->changed);
    pthread_mutex_unlock(&ferry->lock);
    return CLB_OK;
}

clb_status clb_ferry_publish(struct clb_ferry *ferry, size_t index, struct clb_queue *queue)
{
    struct clb_cargo *cargo = &ferry->cargo[index];
    clb_status status = clb_queue_mark(queue, &cargo->ready);
    if (status != CLB_OK)
        return status;
    pthread_mutex_lock(&ferry->lock);
    ferry->published = cargo->first_piece + cargo->pieces;
    pthread_cond_broadcast(&ferry->changed);
    pthread_mutex_unlock(&ferry->lock);
    return CLB_OK;
}

clb_status clb_ferry_finish(struct clb_ferry *ferry, clb_status status)
{
    if (ferry->runtime == NULL)
        return status;
    if (status != CLB_OK)
        fail(ferry, status);
    carry_alone(ferry);
    pthread_mutex_lock(&ferry->lock);
    ferry->complete = true;
    pthread_cond_broadcast(&ferry->changed);
    pthread_mutex_unlock(&ferry->lock);
    clb_workers_return(&ferry->workers);
    return ferry->status;
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
    release_event(&event);
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
