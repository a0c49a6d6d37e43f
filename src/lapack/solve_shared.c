/* Systems and products where the device shares the host's memory. A is used in place. The CPU
 * copies a part of B to one of two slots while the device works on the other. */
#include "dense/shared.h"
#include "solve.h"

struct slot {
    struct clb_buffer *buffer;
    void *mapped;   /* NULL while the device has it */
    cl_event ready; /* signals that the part is solved and mapped */
};

struct solve_shared_run {
    struct clb_runtime *runtime;
    struct clb_solve *solve;
    struct clb_workspace workspace;
    struct slot slot[2];
    size_t ld;                    /* of a slot */
    struct clb_operand_view view; /* the caller's A */
};

/* ---- one part -------------------------------------------------------------------------------- */

static struct clb_dmat slot_matrix(const struct solve_shared_run *run, size_t index)
{
    const struct clb_rect *rect = &run->solve->progress->part[index];
    return (struct clb_dmat){run->slot[index % 2].buffer->mem, 0, rect->rows, rect->cols, run->ld};
}

static char *part_of_b(const struct solve_shared_run *run, size_t index)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *rect = &solve->progress->part[index];
    return (char *)solve->b +
           (rect->row + rect->col * solve->ldb) * clb_precision_size(solve->precision);
}

static clb_status enqueue_map(struct solve_shared_run *run, struct slot *slot, bool blocking)
{
    return clb_queue_map(run->workspace.queue, slot->buffer->mem, CL_MAP_READ | CL_MAP_WRITE, 0,
                         slot->buffer->size, &slot->mapped, blocking ? NULL : &slot->ready);
}

static clb_status enqueue_unmap(struct solve_shared_run *run, struct slot *slot)
{
    void *mapped = slot->mapped;
    slot->mapped = NULL;
    return mapped == NULL ? CLB_OK
                          : clb_queue_unmap(run->workspace.queue, slot->buffer->mem, mapped);
}

static void solve_shared_copy_in(struct solve_shared_run *run, size_t index)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *rect = &solve->progress->part[index];
    void *slot = run->slot[index % 2].mapped;
    if (solve->order_in != NULL)
        clb_copy_ordered(solve->precision, rect->rows, rect->cols, solve->order_in,
                         part_of_b(run, index), solve->ldb, slot, run->ld);
    else
        clb_merge_tile(solve->precision, rect->rows, rect->cols, solve->alpha,
                       part_of_b(run, index), solve->ldb, clb_scalar_zero(solve->precision), slot,
                       run->ld);
}

static void copy_out(struct solve_shared_run *run, size_t index)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *rect = &solve->progress->part[index];
    const void *slot = run->slot[index % 2].mapped;
    if (solve->order_out != NULL)
        clb_copy_ordered(solve->precision, rect->rows, rect->cols, solve->order_out, slot, run->ld,
                         part_of_b(run, index), solve->ldb);
    else
        clb_merge_tile(solve->precision, rect->rows, rect->cols, clb_scalar_one(solve->precision),
                       slot, run->ld, clb_scalar_zero(solve->precision), part_of_b(run, index),
                       solve->ldb);
}

static clb_status enqueue_part(struct solve_shared_run *run, size_t index)
{
    struct slot *slot = &run->slot[index % 2];
    struct clb_dmat x = slot_matrix(run, index);
    solve_shared_copy_in(run, index);
    clb_status status = enqueue_unmap(run, slot);
    if (status == CLB_OK)
        status = run->solve->work->apply(run->solve, &run->workspace, &x);
    if (status == CLB_OK)
        status = enqueue_map(run, slot, false);
    if (status == CLB_OK)
        status = clb_queue_flush(run->workspace.queue);
    return status;
}

static clb_status write_part(struct solve_shared_run *run, size_t index)
{
    struct slot *slot = &run->slot[index % 2];
    bool last = index + 1 == run->solve->progress->parts;
    clb_status status = last ? clb_queue_finish(run->workspace.queue) : CLB_OK;
    if (status == CLB_OK)
        status = clb_queue_set_await(run->workspace.queue_set, &slot->ready);
    if (status != CLB_OK)
        return status;
    copy_out(run, index);
    run->solve->progress->written[index] = true;
    return CLB_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status open_slots(struct solve_shared_run *run)
{
    const struct clb_gemm_progress *progress = run->solve->progress;
    const struct clb_rect *rect = &progress->part[0]; /* none is larger */
    size_t element = clb_precision_size(run->solve->precision);
    run->ld = clb_dmat_ld(rect->rows, element);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < clb_min(progress->parts, 2) && status == CLB_OK; i++) {
        status = clb_buffer_get(run->runtime, CLB_MEMORY_HOST, run->ld * rect->cols * element,
                                &run->slot[i].buffer);
        if (status == CLB_OK)
            status = enqueue_map(run, &run->slot[i], true);
    }
    return status;
}

static clb_status open_a(struct solve_shared_run *run)
{
    struct clb_solve *solve = run->solve;
    struct clb_dmat a = {.rows = clb_solve_order(solve), .cols = solve->cols_a};
    clb_status status =
        clb_operand_view_open(&run->view, &run->workspace, solve->a, solve->lda, &a);
    if (status == CLB_OK)
        status = solve->work->prepare(solve, &run->workspace, &a);
    return status;
}

static clb_status run_parts(struct solve_shared_run *run)
{
    clb_status status = open_slots(run);
    if (status == CLB_OK)
        status = open_a(run);
    for (size_t i = 0; i <= run->solve->progress->parts && status == CLB_OK; i++) {
        if (i < run->solve->progress->parts)
            status = enqueue_part(run, i);
        if (i > 0 && status == CLB_OK)
            status = write_part(run, i - 1);
    }
    for (size_t i = 0; i < clb_min(run->solve->progress->parts, 2) && status == CLB_OK; i++)
        status = enqueue_unmap(run, &run->slot[i]);
    return status;
}

static clb_status solve_shared_end_run(struct solve_shared_run *run)
{
    bool idle = true;
    for (size_t i = 0; i < CLB_COUNT_OF(run->slot); i++)
        idle = enqueue_unmap(run, &run->slot[i]) == CLB_OK && idle;
    idle = clb_workspace_finish(&run->workspace) && idle;
    clb_status status = clb_queue_set_check(run->workspace.queue_set);
    for (size_t i = 0; i < CLB_COUNT_OF(run->slot); i++) {
        if (run->slot[i].ready != NULL)
            clb_event_release(run->slot[i].ready);
        clb_buffer_end(run->runtime, run->slot[i].buffer, idle);
    }
    clb_operand_view_close(&run->view, run->runtime, idle);
    if (run->solve->work->end != NULL)
        run->solve->work->end(run->solve, idle);
    clb_workspace_close(&run->workspace, idle);
    return status;
}

clb_status clb_solve_run_shared(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                struct clb_solve *solve)
{
    struct solve_shared_run run = {.runtime = runtime, .solve = solve};
    const struct clb_workspace_limits limits = solve->work->limits(solve);
    clb_status status = clb_workspace_open(&run.workspace, runtime, variant, &limits);
    if (status != CLB_OK)
        return status;
    solve->progress->kernel = run.workspace.variant->name;
    status = run_parts(&run);
    clb_status ended = solve_shared_end_run(&run);
    return status != CLB_OK ? status : ended;
}
