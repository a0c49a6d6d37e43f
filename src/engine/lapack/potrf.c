/* LAPACK xPOTRF in the caller's memory. SPDX-License-Identifier: BSD-3-Clause
 *
 * The comments describe A = L*L^H. Where A = U^H*U is stored, L stands for U^H, and rows and
 * columns are exchanged.
 *
 * Left-looking, blocked. Step k has a panel, columns k ... k+w-1 from row k on. First all panels
 * before it update it in one product, whose depth is their total width,
 *
 *     A(k:n, k:k+w) -= L(k:n, 0:k)*L(k:k+w, 0:k)^H;
 *
 * then its diagonal block is factored, and the rows below it are solved with that. So a panel is
 * final after its step, and need not be on the device before. The next library factors the diagonal
 * block on the CPU; or the device does, halving the panel until the blocks fit into one work-group.
 *
 * Where kernels read both operands from one packed form and the CPU factors diagonal blocks, final
 * panels are kept packed, and the update reads these one after the other.
 *
 * Unified memory: the CPU copies the triangle to the shim's memory; where it sees that, a panel
 * while the device ends the step before, and of L a final one back in the next step, so that two
 * panels' memory is enough for L where they are kept packed, and stays in the cache. Discrete
 * memory: panels are uploaded while those before them are factored; of U, block rows. Both write
 * back columns from the left, since that is how clb_potrf_resume continues. */
#include "engine/device_blas/potf2.h"
#include "engine/transfer/transfer_queue.h"
#include "job.h"

/* Columns of a panel, at most. */
#define MOST_NB ((size_t)4096)

struct potrf_run {
    struct clb_job run;
    const struct clb_call *call;
    const struct clb_host_blas *next;
    struct clb_factors *result;
    size_t n, nb;
    struct clb_potf2 block;
    struct clb_buffer *host_block; /* the CPU's memory for a diagonal block that it factors */
    bool keeps;                    /* final panels are kept packed: */
    struct clb_buffer *kept;       /* rows below the diagonal blocks */
    struct clb_dmat x; /* n x n, or two panels: column j is j % x.cols; undefined outside
                        * the stated triangle */
};

/* ---- open ---- */

static size_t potrf_width(const struct potrf_run *chol, size_t k)
{
    return clb_min(chol->nb, chol->n - k);
}

/* Whether the device shall factor diagonal blocks. A round trip to the CPU costs three launches. */
static bool wants_block(const struct potrf_run *chol)
{
    enum { BY_KIND, BY_CPU, BY_DEVICE };
    size_t choice = chol->run.variant->tuning.value[CLB_PARAM_POTRF_BLOCK];
    return choice == BY_DEVICE || (choice == BY_KIND && !chol->run.runtime->device.unified);
}

/* Rows of packed panels that begin a block must begin a panel of the kernels, and a panel's depths
 * be whole steps. */
static bool may_keep(const struct potrf_run *chol)
{
    const struct clb_gemm_variant *variant = chol->run.variant;
    return variant->family->has_skip && chol->nb % clb_gemm_unit(variant, CLB_OPERAND_A) == 0 &&
           chol->nb % clb_gemm_depth_unit(variant) == 0 && !wants_block(chol);
}

/* Where rows from `row` on of kept panel k are. All panels have room for all rows. */
static cl_ulong kept_offset(const struct potrf_run *chol, size_t k, size_t row)
{
    const struct clb_gemm_variant *variant = chol->run.variant;
    return k / chol->nb * clb_packed_offset(variant, CLB_OPERAND_A, chol->n, chol->nb) +
           clb_packed_offset(variant, CLB_OPERAND_A, row, chol->nb);
}

static clb_status open_kept(struct potrf_run *chol)
{
    const size_t each = clb_packed_bytes(chol->run.variant, CLB_OPERAND_A, chol->n, chol->nb);
    const size_t panels = (chol->n - 1) / chol->nb;
    return chol->keeps && panels > 0
               ? clb_job_buffer(&chol->run, CLB_MEMORY_DEVICE, panels * each, &chol->kept)
               : CLB_OK;
}

static clb_status open_blocks(struct potrf_run *chol)
{
    size_t width = potrf_width(chol, 0);
    if (wants_block(chol)) {
        if (clb_potf2_open(&chol->block, &chol->run.workspace) == CLB_OK)
            return CLB_OK;
        clb_log(CLB_LOG_INFO, "potrf: the CPU factors the diagonal blocks");
    }
    return clb_job_buffer(&chol->run, CLB_MEMORY_HOST, width * width * chol->run.element,
                          &chol->host_block);
}

/* Add the transfer of panel k between x and the caller's triangle. */
static void potrf_add(struct potrf_run *chol, bool down, size_t k)
{
    const struct clb_call *call = chol->call;
    size_t width = potrf_width(chol, k);
    struct clb_transfer *transfer =
        clb_job_add_triangle(&chol->run, down, &chol->x, call->upper, k, width, call->a, call->lda);
    if (call->upper && !down) {
        transfer->x = clb_dmat_part(&chol->x, k, k, width, chol->n - k);
        transfer->host = (char *)call->a + k * (call->lda + 1) * chol->run.element;
        transfer->diagonal = 0;
    }
}

static clb_status potrf_plan(struct potrf_run *chol)
{
    if (!chol->run.discrete)
        return CLB_OK;
    clb_status status = clb_job_plan(&chol->run, 2 * clb_div_up(chol->n, chol->nb));
    for (size_t k = 0; k < chol->n && status == CLB_OK; k += chol->nb)
        potrf_add(chol, false, k);
    for (size_t k = 0; k < chol->n && status == CLB_OK; k += chol->nb)
        potrf_add(chol, true, k);
    return status;
}

static clb_status potrf_open(struct potrf_run *chol)
{
    size_t n = chol->call->n;
    chol->n = n;
    chol->nb = clb_min(chol->run.variant->tuning.value[CLB_PARAM_POTRF_NB], MOST_NB);
    chol->x = (struct clb_dmat){.rows = n, .cols = n};
    size_t width = potrf_width(chol, 0);
    bool upper = chol->call->upper;
    struct clb_workspace_limits limits = clb_solve_limits(width, !upper, n);
    chol->keeps = may_keep(chol);
    if (!chol->keeps) {
        limits.m = upper ? width : n;
        limits.n = upper ? n : width;
        limits.k = n;
    }
    /* Open nothing if the kernels that read kept panels are known to be wrong. */
    if (chol->keeps)
        CLB_TRY(clb_skip_prepare(chol->run.runtime, chol->run.variant));
    CLB_TRY(clb_job_open(&chol->run, &limits));
    if (chol->keeps && chol->run.sees && !upper)
        chol->x.cols = clb_min(n, 2 * chol->nb);
    chol->result->kernel = chol->run.workspace.variant->name;
    clb_status status = open_blocks(chol);
    CLB_THEN(status, clb_job_matrix(&chol->run, &chol->x));
    CLB_THEN(status, open_kept(chol));
    CLB_THEN(status, potrf_plan(chol));
    return status == CLB_OK ? clb_job_begin(&chol->run) : status;
}

/* ---- panels ---- */

/* A block of L, as it is stored in x. */
static struct clb_dmat part(const struct potrf_run *chol, size_t row, size_t col, size_t rows,
                            size_t cols)
{
    return chol->call->upper ? clb_dmat_part(&chol->x, col, row, cols, rows)
                             : clb_dmat_part(&chol->x, row, col % chol->x.cols, rows, cols);
}

/* A(row:row+rows, col:col+cols) -= L(row:.., p:p+depth)*L(col:.., p:p+depth)^H. */
static clb_status potrf_update(struct potrf_run *chol, size_t p, size_t depth, size_t row,
                               size_t rows, size_t col, size_t cols)
{
    const struct clb_dmat left = part(chol, row, p, rows, depth);
    const struct clb_dmat right = part(chol, col, p, cols, depth);
    bool upper = chol->call->upper;
    const struct clb_dmat_update update = {.c = part(chol, row, col, rows, cols),
                                           .a = upper ? right : left,
                                           .b = upper ? left : right,
                                           .op_a = upper ? CLB_OP_C : CLB_OP_N,
                                           .op_b = upper ? CLB_OP_N : CLB_OP_C};
    return depth > 0 ? clb_dmat_update(&chol->run.workspace, &update) : CLB_OK;
}

/* L(k+w:n, k:k+w) = A(k+w:n, k:k+w)*L(k:k+w, k:k+w)^-H. */
static clb_status potrf_solve(struct potrf_run *chol, size_t k, size_t width)
{
    size_t first = k + width, rest = chol->n - first;
    bool upper = chol->call->upper;
    const struct clb_dmat b = part(chol, first, k, rest, width);
    const struct clb_dmat_triangle triangle = {
        .a = part(chol, k, k, width, width), .right = !upper, .upper = upper, .op = CLB_OP_C};
    if (rest == 0)
        return CLB_OK;
    CLB_TRY(clb_dmat_pack_triangle(&chol->run.workspace, &triangle));
    return clb_dmat_solve(&chol->run.workspace, &triangle, &b);
}

static clb_status factor_there(struct potrf_run *chol, size_t k, size_t width)
{
    size_t most = chol->block.most;
    clb_status status;
    if (width <= most) {
        const struct clb_dmat diagonal = part(chol, k, k, width, width);
        status =
            clb_potf2_factor(&chol->block, &chol->run.workspace, &diagonal, chol->call->upper, k);
        return status == CLB_OK ? potrf_solve(chol, k, width) : status;
    }
    size_t half = clb_round_up(width / 2, most), second = k + half;
    status = factor_there(chol, k, half);
    CLB_THEN(status, potrf_update(chol, k, half, second, chol->n - second, second, width - half));
    CLB_THEN(status, factor_there(chol, second, width - half));
    return status;
}

static clb_status step_there(struct potrf_run *chol, size_t k, size_t width)
{
    CLB_TRY(potrf_update(chol, 0, k, k, chol->n - k, k, width));
    CLB_TRY(factor_there(chol, k, width));
    CLB_TRY(clb_queue_flush(chol->run.workspace.queue));
    return clb_potf2_look(&chol->block, &chol->run.workspace, &chol->result->info);
}

/* ---- diagonal blocks by the next library ---- */

/* Copy the stated triangle of the first `cols` columns of a matrix of order n. */
static void copy_triangle(const struct potrf_run *chol, size_t n, size_t cols, const void *from,
                          size_t ld_from, void *to, size_t ld_to)
{
    clb_copy_part(chol->call->precision, chol->call->upper ? 'U' : 'L', n, cols, from, ld_from, to,
                  ld_to);
}

/* Where the CPU sees the block, only the event of what the queue has been given so far is awaited:
 * later commands don't use the block. Else all of the queue is waited for. */
static clb_status potrf_bring_down(struct potrf_run *chol, const struct clb_dmat *diagonal,
                                   clb_event *event)
{
    struct clb_queue *queue = chol->run.workspace.queue;
    if (clb_job_see(&chol->run, diagonal) != NULL) {
        *event = clb_queue_last_event(queue);
        return *event != NULL ? clb_queue_flush(queue) : clb_queue_finish(queue);
    }
    clb_status status = clb_dmat_read(queue, diagonal, chol->run.element, chol->host_block->host,
                                      diagonal->rows, event);
    return status == CLB_OK ? clb_queue_flush(queue) : status;
}

static clb_status await_block(struct potrf_run *chol, const struct clb_dmat *diagonal,
                              clb_event *event)
{
    const void *seen = clb_job_see(&chol->run, diagonal);
    clb_status status =
        *event == NULL ? CLB_OK : clb_queue_set_await(chol->run.workspace.queue_set, event);
    if (status == CLB_OK && seen != NULL)
        copy_triangle(chol, diagonal->rows, diagonal->rows, seen, diagonal->ld,
                      chol->host_block->host, diagonal->rows);
    return status;
}

static clb_status take_back(struct potrf_run *chol, const struct clb_dmat *diagonal)
{
    void *seen = clb_job_see(&chol->run, diagonal);
    if (seen == NULL)
        return clb_dmat_write(chol->run.workspace.queue, diagonal, chol->run.element,
                              chol->host_block->host, diagonal->rows, NULL);
    copy_triangle(chol, diagonal->rows, diagonal->rows, chol->host_block->host, diagonal->rows,
                  seen, diagonal->ld);
    return CLB_OK;
}

/* Wait for the diagonal block, factor it, and enqueue its upload. A library leaves the rows below a
 * pivot that is not positive undefined, so the part before is downloaded again and factored on its
 * own; *width is then its order. */
static clb_status potrf_factor_here(struct potrf_run *chol, size_t k, size_t *width,
                                    clb_event *event)
{
    struct clb_dmat diagonal = part(chol, k, k, *width, *width);
    size_t first_width = *width, info = 0;
    clb_status status = await_block(chol, &diagonal, event);
    while (status == CLB_OK) {
        struct clb_call block = clb_call_as(chol->call, CLB_KIND_potrf);
        block.m = block.n = block.lda = *width;
        block.a = chol->host_block->host;
        info = clb_host_call(chol->next, &block);
        chol->result->host_work +=
            clb_work_of(CLB_STEM_potrf, (double)*width, (double)*width, (double)*width);
        if (info == 0)
            break;
        *width = clb_min(info, *width) - 1;
        if (*width == 0)
            break;
        diagonal = part(chol, k, k, *width, *width);
        status = potrf_bring_down(chol, &diagonal, event);
        CLB_THEN(status, await_block(chol, &diagonal, event));
    }
    if (*width < first_width)
        chol->result->info = k + *width + 1;
    return status == CLB_OK && *width > 0 ? take_back(chol, &diagonal) : status;
}

/* ---- kept panels ---- */

static clb_status keep_panel(struct potrf_run *chol, size_t k)
{
    const bool upper = chol->call->upper;
    const size_t first = k + chol->nb, rows = chol->n - first;
    const struct clb_dmat panel = part(chol, first, k, rows, chol->nb);
    const struct clb_chunk chunk = {.mem = panel.mem,
                                    .offset = panel.offset,
                                    .ld = panel.ld,
                                    .depth_contiguous = upper,
                                    .conjugated = upper};
    return clb_workspace_pack(&chol->run.workspace, &chunk, rows, chol->nb, chol->kept->mem,
                              kept_offset(chol, k, first));
}

/* A(row:row+rows, k:k+cols) minus the products of all panels before column k, or for the diagonal
 * block its triangle. */
static clb_status subtract_kept(struct potrf_run *chol, size_t row, size_t rows, size_t k,
                                size_t cols)
{
    const struct clb_workspace *workspace = &chol->run.workspace;
    const struct clb_dmat c = part(chol, row, k, rows, cols);
    const bool upper = chol->call->upper;
    const size_t parts = clb_precision_parts(chol->run.precision);
    const unsigned triangle = row != k ? 0U : upper ? CLB_SKIP_UPPER : CLB_SKIP_LOWER;
    const struct clb_product product = {
        .m = c.rows,
        .n = c.cols,
        .k = k,
        .a = chol->kept->mem,
        .b = chol->kept->mem,
        .a_offset = kept_offset(chol, 0, upper ? k : row),
        .b_offset = kept_offset(chol, 0, upper ? row : k),
        .b_op_of_a = parts > 1 ? CLB_OP_C : CLB_OP_T,
        .c = c.mem,
        .c_offset = c.offset,
        .ldc = c.ld,
        .subtract = true,
        .cut = {.kind = triangle | CLB_SKIP_PIECES,
                .a = (ptrdiff_t)chol->nb,
                .b = (ptrdiff_t)(kept_offset(chol, chol->nb, 0) / parts)}};
    return clb_gemm_multiply(workspace->queue_set, workspace->variant, &product,
                             (struct clb_order){.queue = workspace->queue});
}

static clb_status update_from_left(struct potrf_run *chol, size_t k, size_t row, size_t rows,
                                   size_t width)
{
    return k == 0        ? CLB_OK
           : chol->keeps ? subtract_kept(chol, row, rows, k, width)
                         : potrf_update(chol, 0, k, row, rows, k, width);
}

/* Copy panels, A(k:n, k:k+width), from the caller's or `out`. False: the CPU does not see them. */
static bool copy_panels(const struct potrf_run *chol, bool out, size_t k, size_t width)
{
    const struct clb_call *call = chol->call;
    for (size_t j = k; j < k + width; j += chol->nb) {
        const struct clb_dmat x = part(chol, j, j, chol->n - j, clb_min(chol->nb, k + width - j));
        char *own = clb_job_see(&chol->run, &x);
        char *theirs = (char *)call->a + (j + j * call->lda) * chol->run.element;
        if (own == NULL)
            return false;
        clb_copy_trapezoid(call->precision, call->upper, 0, x.rows, x.cols, out ? own : theirs,
                           out ? x.ld : call->lda, out ? theirs : own, out ? call->lda : x.ld);
    }
    return true;
}

/* The diagonal block is updated first, so that it is factored while the device updates the rest. */
static clb_status step_here(struct potrf_run *chol, size_t k, size_t width)
{
    const struct clb_dmat diagonal = part(chol, k, k, width, width);
    size_t below = k + width;
    clb_event event = NULL;
    (void)copy_panels(chol, false, k, width);
    clb_status status = update_from_left(chol, k, k, width, width);
    CLB_THEN(status, potrf_bring_down(chol, &diagonal, &event));
    if (status == CLB_OK && below < chol->n)
        status = update_from_left(chol, k, below, chol->n - below, width);
    CLB_THEN(status, clb_queue_flush(chol->run.workspace.queue));
    CLB_THEN(status, potrf_factor_here(chol, k, &width, &event));
    clb_event_drop(&event);
    if (status == CLB_OK && width > 0)
        status = potrf_solve(chol, k, width);
    if (status == CLB_OK && chol->keeps && below < chol->n && chol->result->info == 0)
        status = keep_panel(chol, k);
    CLB_THEN(status, clb_queue_flush(chol->run.workspace.queue));
    if (status == CLB_OK && !chol->call->upper && chol->result->info == 0 &&
        copy_panels(chol, true, chol->run.copied, k - chol->run.copied))
        chol->run.copied = k;
    return status;
}

/* ---- the run ---- */

/* Unified memory: copy the first `cols` columns from the caller's matrix, or what is left to it. */
static clb_status copy_stated(struct potrf_run *chol, bool out, size_t cols)
{
    const struct clb_call *call = chol->call;
    const size_t k = chol->run.copied, ld = chol->x.ld;
    void *memory;
    CLB_TRY(clb_job_map(&chol->run, &chol->x, &memory));
    char *own = (char *)memory + (k + k * ld) * chol->run.element;
    char *theirs = (char *)call->a + (k + k * call->lda) * chol->run.element;
    copy_triangle(chol, chol->n - k, cols - k, out ? own : theirs, out ? ld : call->lda,
                  out ? theirs : own, out ? call->lda : ld);
    chol->run.copied = out ? cols : 0;
    return clb_job_unmap(&chol->run, &chol->x, memory);
}

static clb_status potrf_steps(struct potrf_run *chol)
{
    bool there = chol->block.program != NULL;
    bool later = chol->run.discrete || (!there && clb_job_see(&chol->run, &chol->x) != NULL);
    clb_status status = later ? CLB_OK : copy_stated(chol, false, chol->n);
    for (size_t k = 0; k < chol->n && chol->result->info == 0 && status == CLB_OK;) {
        size_t width = potrf_width(chol, k);
        status = clb_job_await(&chol->run, k / chol->nb);
        CLB_THEN(status, there ? step_there(chol, k, width) : step_here(chol, k, width));
        k += width;
        clb_progress_note_columns(k, chol->n);
    }
    CLB_THEN(status, clb_job_complete(&chol->run));
    if (status == CLB_OK && there)
        status = clb_potf2_finish(&chol->block, &chol->run.workspace, &chol->result->info);
    return status;
}

/* Write the columns before a pivot that is not positive, or all. */
static clb_status potrf_write_back(struct potrf_run *chol)
{
    struct clb_job *run = &chol->run;
    size_t cols = chol->result->info != 0 ? chol->result->info - 1 : chol->n;
    size_t blocks = clb_div_up(cols, chol->nb);
    clb_status status = CLB_OK;
    if (cols == 0)
        return CLB_OK;
    if (!run->discrete) {
        if (chol->call->upper || !copy_panels(chol, true, run->copied, cols - run->copied))
            return copy_stated(chol, true, cols);
        run->copied = cols;
        return CLB_OK;
    }
    clb_transfer_queue_shorten(run->transfers, run->uploads + blocks - 1,
                               cols - (blocks - 1) * chol->nb);
    for (size_t i = 0; i < blocks && status == CLB_OK; i++)
        status = clb_job_publish(run, i);
    return status;
}

clb_status clb_potrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_factors *result)
{
    const struct clb_caller caller = {call->a, call->lda, call->n, false};
    struct potrf_run chol = {.run = clb_job_on(runtime, variant, call->precision, caller),
                             .call = call,
                             .next = next,
                             .result = result};
    *result = (struct clb_factors){.kernel = variant->name};
    clb_status status = potrf_open(&chol);
    CLB_THEN(status, potrf_steps(&chol));
    CLB_THEN(status, potrf_write_back(&chol));
    status = clb_job_end(&chol.run, status);
    result->columns_written = clb_job_written(&chol.run);
    if (chol.block.program != NULL)
        clb_potf2_close(&chol.block, &chol.run.workspace, chol.run.idle);
    clb_job_close(&chol.run);
    return status;
}
