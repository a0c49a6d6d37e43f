/* xTRSM, xGETRS and xPOTRS by blocks, see rhs_blocks.h. SPDX-License-Identifier: BSD-3-Clause */
#include "rhs_blocks.h"
#include "engine/transfer/transfer_queue.h"

#include <stdlib.h>

/* The right-hand sides of a part are a multiple of this. */
#define PART_UNIT ((size_t)32)

size_t clb_solve_order(const struct clb_solve *solve)
{
    return solve->call.right ? solve->call.n : solve->call.m;
}

size_t clb_solve_part(const struct clb_solve *solve)
{
    const struct clb_rect *part = &solve->progress->part[0]; /* none is larger */
    return solve->call.right ? part->rows : part->cols;
}

/* ---- triangles ---- */

static struct clb_workspace_limits solve_limits_of(const struct clb_solve *solve)
{
    const struct clb_solve_triangles *triangles = solve->context;
    size_t n = clb_solve_order(solve);
    struct clb_workspace_limits limits =
        clb_solve_limits(n, solve->call.right, clb_solve_part(solve));
    limits.triangle = triangles->steps * (n + CLB_MAX_BLOCK); /* whole blocks of each */
    return limits;
}

static clb_status solve_pack(struct clb_solve *solve, struct clb_workspace *workspace,
                             const struct clb_dmat *a)
{
    struct clb_solve_triangles *triangles = solve->context;
    clb_status status = CLB_OK;
    for (size_t i = 0; i < triangles->steps && status == CLB_OK; i++) {
        struct clb_dmat_triangle *step = &triangles->step[i];
        step->a = *a;
        step->right = solve->call.right;
        step->short_sums = true;
        step->at = i * clb_round_up(a->rows, workspace->block);
        status = clb_dmat_pack_triangle(workspace, step);
    }
    return status;
}

static clb_status solve_part(struct clb_solve *solve, struct clb_workspace *workspace,
                             const struct clb_dmat *part)
{
    const struct clb_solve_triangles *triangles = solve->context;
    clb_status status = CLB_OK;
    for (size_t i = 0; i < triangles->steps && status == CLB_OK; i++)
        status = clb_dmat_solve(workspace, &triangles->step[i], part);
    return status;
}

const struct clb_solve_work clb_solve_triangles_work = {
    .limits = solve_limits_of, .prepare = solve_pack, .apply = solve_part};

/* ---- a run ---- */

/* Unified memory: two of them hold parts of B by turns. */
struct slot {
    struct clb_buffer *buffer;
    void *mapped;    /* NULL while the device has it */
    clb_event ready; /* the part is solved and mapped */
};

struct solve_run {
    struct clb_job run;
    struct clb_solve *solve;
    struct clb_dmat a;
    struct slot slot[2];
    size_t ld;         /* of a slot */
    size_t resident;   /* discrete: parts on the device at once */
    struct clb_dmat b; /* discrete: the resident parts */
};

/* ---- unified memory: the CPU copies a part of B while the device works on another ---- */

static char *part_of_b(const struct solve_run *run, size_t index)
{
    const struct clb_call *call = &run->solve->call;
    const struct clb_rect *rect = &run->solve->progress->part[index];
    return (char *)call->b + (rect->row + rect->col * call->ldb) * run->run.element;
}

static clb_status enqueue_map(struct solve_run *run, struct slot *slot, bool blocking)
{
    return clb_queue_map(run->run.workspace.queue, slot->buffer->mem, CL_MAP_READ | CL_MAP_WRITE, 0,
                         slot->buffer->size, &slot->mapped, blocking ? NULL : &slot->ready);
}

static clb_status enqueue_unmap(struct solve_run *run, struct slot *slot)
{
    void *mapped = slot->mapped;
    slot->mapped = NULL;
    return mapped == NULL ? CLB_OK
                          : clb_queue_unmap(run->run.workspace.queue, slot->buffer->mem, mapped);
}

/* Copy a part of B to its slot, or X back. */
static void copy_part(struct solve_run *run, size_t index, bool out)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *rect = &solve->progress->part[index];
    const clb_precision precision = solve->call.precision;
    const cl_uint *order = out ? solve->order_out : solve->order_in;
    void *b = part_of_b(run, index), *slot = run->slot[index % 2].mapped;
    const void *from = out ? slot : b,
               *alpha = out ? clb_scalar_of(precision, 1) : solve->call.alpha;
    void *to = out ? b : slot;
    const size_t ldb = solve->call.ldb, ld_from = out ? run->ld : ldb, ld_to = out ? ldb : run->ld;
    if (order != NULL)
        clb_copy_ordered(precision, rect->rows, rect->cols, order, from, ld_from, to, ld_to);
    else
        clb_merge_tile(precision, rect->rows, rect->cols, alpha, from, ld_from,
                       clb_scalar_of(precision, 0), to, ld_to);
}

static clb_status enqueue_part(struct solve_run *run, size_t index)
{
    struct slot *slot = &run->slot[index % 2];
    const struct clb_rect *rect = &run->solve->progress->part[index];
    const struct clb_dmat x = {slot->buffer->mem, 0, rect->rows, rect->cols, run->ld};
    copy_part(run, index, false);
    CLB_TRY(enqueue_unmap(run, slot));
    CLB_TRY(run->solve->work->apply(run->solve, &run->run.workspace, &x));
    CLB_TRY(enqueue_map(run, slot, false));
    return clb_queue_flush(run->run.workspace.queue);
}

static clb_status write_part(struct solve_run *run, size_t index)
{
    struct slot *slot = &run->slot[index % 2];
    bool last = index + 1 == run->solve->progress->parts;
    if (last)
        CLB_TRY(clb_queue_finish(run->run.workspace.queue));
    CLB_TRY(clb_queue_set_await(run->run.workspace.queue_set, &slot->ready));
    copy_part(run, index, true);
    run->solve->progress->written[index] = true;
    return CLB_OK;
}

static clb_status open_slots(struct solve_run *run)
{
    const struct clb_gemm_progress *progress = run->solve->progress;
    const struct clb_rect *rect = &progress->part[0]; /* none is larger */
    clb_status status = CLB_OK;
    run->ld = clb_dmat_ld(rect->rows, run->run.element);
    for (size_t i = 0; i < clb_min(progress->parts, 2) && status == CLB_OK; i++) {
        status = clb_job_buffer(&run->run, CLB_MEMORY_HOST, run->ld * rect->cols * run->run.element,
                                &run->slot[i].buffer);
        CLB_THEN(status, enqueue_map(run, &run->slot[i], true));
    }
    return status;
}

static clb_status solve_mapped(struct solve_run *run)
{
    struct clb_solve *solve = run->solve;
    size_t parts = solve->progress->parts;
    clb_status status = open_slots(run);
    CLB_THEN(status, clb_job_view(&run->run, &run->a));
    CLB_THEN(status, solve->work->prepare(solve, &run->run.workspace, &run->a));
    for (size_t i = 0; i <= parts && status == CLB_OK; i++) {
        if (i < parts)
            status = enqueue_part(run, i);
        if (i > 0 && status == CLB_OK)
            status = write_part(run, i - 1);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(run->slot); i++) {
        clb_status unmapped = enqueue_unmap(run, &run->slot[i]);
        run->run.stuck = run->run.stuck || unmapped != CLB_OK;
        status = status != CLB_OK ? status : unmapped;
        clb_event_drop(&run->slot[i].ready);
    }
    return status;
}

/* ---- discrete memory: each part is processed when it has arrived, and downloaded meanwhile. Where
 * not all parts fit, one is uploaded when that which had its memory has been downloaded. */

static void add_part(struct solve_run *run, size_t index, bool down)
{
    const struct clb_solve *solve = run->solve;
    const struct clb_rect *rect = &solve->progress->part[index];
    const struct clb_rect *place = &solve->progress->part[index % run->resident];
    const struct clb_dmat x =
        clb_dmat_part(&run->b, place->row, place->col, rect->rows, rect->cols);
    struct clb_transfer *transfer =
        clb_job_add(&run->run, down, &x, part_of_b(run, index), solve->call.ldb);
    transfer->held = !down && index >= run->resident;
    transfer->by_rows = solve->call.right;
    transfer->alpha = solve->call.alpha;
    transfer->order = down ? solve->order_out : solve->order_in;
}

/* The parts of the progress become the pieces of the downloads, each written completely or not. */
static clb_status note_pieces(struct solve_run *run)
{
    struct clb_gemm_progress *progress = run->solve->progress;
    struct clb_gemm_progress pieces = {.kernel = progress->kernel};
    size_t at = 0;
    CLB_TRY(clb_gemm_progress_make(&pieces, run->run.transfers->pieces[CLB_DOWN]));
    for (size_t i = 0; i < progress->parts; i++) {
        const struct clb_transfer *transfer = &run->run.transfer[run->run.uploads + i];
        for (size_t p = 0; p < transfer->pieces; p++) {
            struct clb_rect rect = clb_transfer_piece(transfer, p);
            rect.row += progress->part[i].row;
            rect.col += progress->part[i].col;
            pieces.part[at++] = rect;
        }
    }
    clb_gemm_progress_free(progress);
    *progress = pieces;
    return CLB_OK;
}

/* Get memory for A and the resident parts, and begin the transfers. */
static clb_status bring_in_parts(struct solve_run *run)
{
    struct clb_solve *solve = run->solve;
    size_t parts = solve->progress->parts;
    const struct clb_rect *last = &solve->progress->part[run->resident - 1];
    run->b = (struct clb_dmat){.rows = last->row + last->rows, .cols = last->col + last->cols};
    CLB_TRY(clb_job_matrix(&run->run, &run->a));
    CLB_TRY(clb_job_matrix(&run->run, &run->b));
    CLB_TRY(clb_job_plan(&run->run, 1 + 2 * parts));
    clb_job_add_columns(&run->run, false, &run->a, 0);
    for (size_t i = 0; i < 2 * parts; i++)
        add_part(run, i % parts, i >= parts);
    CLB_TRY(clb_job_begin(&run->run));
    return note_pieces(run);
}

static clb_status release_part(struct solve_run *run, size_t parts, size_t index)
{
    struct clb_transfer_queue *transfers = run->run.transfers;
    if (index >= parts || index < run->resident)
        return CLB_OK;
    CLB_TRY(clb_transfer_queue_await(transfers, run->run.uploads + index - run->resident, NULL));
    return clb_transfer_queue_release(transfers, 1 + index, run->run.workspace.queue);
}

static clb_status solve_transferred(struct solve_run *run)
{
    struct clb_solve *solve = run->solve;
    size_t parts = solve->progress->parts;
    clb_status status = bring_in_parts(run);
    CLB_THEN(status, clb_job_await(&run->run, 0));
    CLB_THEN(status, solve->work->prepare(solve, &run->run.workspace, &run->a));
    for (size_t i = 0; i < parts && status == CLB_OK; i++) {
        status = clb_job_await(&run->run, 1 + i);
        CLB_THEN(status,
                 solve->work->apply(solve, &run->run.workspace, &run->run.transfer[1 + i].x));
        CLB_THEN(status, clb_job_publish(&run->run, i));
        CLB_THEN(status, release_part(run, parts, i + 1));
    }
    return status;
}

/* ---- all of it ---- */

static clb_status solve_make_parts(struct clb_solve *solve, size_t wanted, size_t most)
{
    const struct clb_call *call = &solve->call;
    size_t extent = call->right ? call->m : call->n, each = wanted;
    if (wanted == 0)
        each = clb_round_up(clb_div_up(extent, clb_div_up(extent, most)), PART_UNIT);
    clb_status status = clb_gemm_progress_make(solve->progress, clb_div_up(extent, each));
    for (size_t i = 0; i < solve->progress->parts; i++) {
        size_t first = i * each, count = clb_min(each, extent - first);
        solve->progress->part[i] = call->right ? (struct clb_rect){first, 0, count, call->n}
                                               : (struct clb_rect){0, first, call->m, count};
    }
    return status;
}

static clb_status solve_once(struct solve_run *run)
{
    struct clb_solve *solve = run->solve;
    struct clb_gemm_progress *progress = solve->progress;
    const struct clb_workspace_limits limits = solve->work->limits(solve);
    run->a = (struct clb_dmat){.rows = clb_solve_order(solve), .cols = solve->cols_a};
    clb_status status = clb_job_open(&run->run, &limits);
    if (status == CLB_OK) {
        progress->kernel = run->run.workspace.variant->name;
        status = run->run.discrete ? solve_transferred(run) : solve_mapped(run);
    }
    status = clb_job_end(&run->run, status);
    for (size_t i = 0; run->run.begun && i < run->run.transfers->arrived; i++)
        progress->written[i] = true;
    if (solve->work->end != NULL)
        solve->work->end(solve, run->run.idle);
    clb_job_close(&run->run);
    return status;
}

clb_status clb_solve_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         struct clb_solve *solve)
{
    const struct clb_caller a = {solve->call.a, solve->call.lda, solve->cols_a, solve->adjoint_a};
    bool begun = false;
    *solve->progress = (struct clb_gemm_progress){.kernel = variant->name};
    CLB_TRY(clb_workspace_prepare(runtime, variant));
    CLB_TRY(solve_make_parts(solve, variant->tuning.value[CLB_PARAM_TRSM_PART],
                             variant->tuning.value[CLB_PARAM_TRSM_PART_MAX]));
    /* Where memory does not suffice, with half as many parts at once. */
    size_t resident = solve->progress->parts;
    clb_status status;
    do {
        struct solve_run run = {.run = clb_job_on(runtime, variant, solve->call.precision, a),
                                .solve = solve,
                                .resident = resident};
        status = solve_once(&run);
        begun = run.run.begun || !run.run.discrete;
        resident /= 2;
    } while (resident > 0 && status == CLB_ERR_NOMEM && !begun);
    return status;
}

/* ---- xTRSM ---- */

struct clb_solve clb_solve_of(const struct clb_call *call, void *context,
                              struct clb_gemm_progress *progress)
{
    struct clb_solve solve = {.work = &clb_solve_triangles_work,
                              .context = context,
                              .call = clb_call_as(call, CLB_KIND_trsm),
                              .progress = progress};
    struct clb_shape b = {0};
    (void)(clb_call_shape(call, 'B', &b) || clb_call_shape(call, 'C', &b));
    solve.call.right = call->right && clb_signature_has(call, 's');
    solve.call.m = b.rows;
    solve.call.n = b.cols;
    solve.call.b = b.data;
    solve.call.ldb = b.ld;
    solve.call.alpha = clb_scalar_of(call->precision, 1);
    solve.cols_a = solve.call.right ? b.cols : b.rows;
    return solve;
}

clb_status clb_trsm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_call *call, struct clb_gemm_progress *progress)
{
    struct clb_solve_triangles triangles = {
        .step = {{.upper = call->upper, .unit = call->unit, .op = call->transa}}, .steps = 1};
    struct clb_solve solve = clb_solve_of(call, &triangles, progress);
    solve.call.alpha = call->alpha;
    return clb_solve_run(runtime, variant, &solve);
}

/* ---- xGETRS ----
 *
 * The CPU interchanges rows of B when it copies them. A = P^T*L*U, so A*X = B is X =
 * U^-1*L^-1*P*B, and op(A)*X = B is X = P^T*op(L)^-1*op(U)^-1*B. */

cl_uint *clb_pivot_order(const struct clb_call *call, bool backward)
{
    cl_uint *order = clb_order_make(call->n);
    if (order != NULL)
        clb_order_swap(order, call->ipiv, call->wide, 0, call->n, backward);
    return order;
}

clb_status clb_getrs_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, struct clb_gemm_progress *progress)
{
    bool transposed = call->transa != CLB_OP_N;
    /* The order of P, row i of P*B is row order[i] of B; or that of P^T. */
    cl_uint *order = clb_pivot_order(call, transposed);
    /* U is upper triangular; L is unit triangular. */
    struct clb_solve_triangles triangles = {
        .step = {{.upper = transposed, .unit = !transposed, .op = call->transa},
                 {.upper = !transposed, .unit = transposed, .op = call->transa}},
        .steps = 2};
    struct clb_solve solve = clb_solve_of(call, &triangles, progress);
    *(transposed ? &solve.order_out : &solve.order_in) = order;
    *progress = (struct clb_gemm_progress){0};
    clb_status status = order != NULL ? clb_solve_run(runtime, variant, &solve) : CLB_ERR_NOMEM;
    free(order);
    return status;
}

/* ---- xPOTRS ----
 *
 * A = L*L^H, so A*X = B is X = L^-H*L^-1*B, where L may be stored as U = L^H. */

clb_status clb_potrs_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, struct clb_gemm_progress *progress)
{
    bool upper = call->upper;
    struct clb_solve_triangles triangles = {
        .step = {{.upper = upper, .op = upper ? CLB_OP_C : CLB_OP_N},
                 {.upper = upper, .op = upper ? CLB_OP_N : CLB_OP_C}},
        .steps = 2};
    struct clb_solve solve = clb_solve_of(call, &triangles, progress);
    return clb_solve_run(runtime, variant, &solve);
}
