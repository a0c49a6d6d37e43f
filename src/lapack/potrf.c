/* Cholesky: the steps on the device's matrix. potrf.h has the scheme.
 *
 * The comments describe A = L*L^H. Where A = U^H*U is stored, L stands for U^H, and rows and
 * columns are exchanged. */
#include "potrf.h"
#include "transfer/transfer_queue.h"

/* Defaults for devices without tuned values. */
#define DEFAULT_NB_SHARED ((size_t)128)
#define DEFAULT_NB_OWN    ((size_t)512)
#define MOST_NB           ((size_t)4096)

/* ---- open and close -------------------------------------------------------------------------- */

/* Whether the device shall factor diagonal blocks; `choice` is the value of potrf.block. */
static bool wants_block(const struct clb_chol *chol, size_t choice)
{
    enum { BY_KIND, BY_CPU, BY_DEVICE };
    return choice == BY_DEVICE ||
           (choice == BY_KIND && clb_potf2_is_faster(&chol->runtime->device));
}

static clb_status open_blocks(struct clb_chol *chol, size_t choice)
{
    size_t width = clb_chol_width(chol, 0);
    if (wants_block(chol, choice)) {
        if (clb_potf2_open(&chol->block, &chol->workspace) == CLB_OK)
            return CLB_OK;
        clb_log(CLB_LOG_INFO, "potrf: the CPU factors the diagonal blocks");
    }
    return clb_buffer_get(chol->runtime, CLB_MEMORY_HOST, width * width * chol->element,
                          &chol->host_block);
}

clb_status clb_chol_open(struct clb_chol *chol, const struct clb_gemm_variant *variant)
{
    const size_t *value = variant->tuning.value;
    size_t n = chol->problem->n, wanted = value[CLB_PARAM_POTRF_NB];
    if (wanted == 0)
        wanted = chol->runtime->device.unified ? DEFAULT_NB_SHARED : DEFAULT_NB_OWN;
    chol->element = clb_precision_size(chol->problem->precision);
    chol->n = n;
    chol->nb = clb_min(wanted, MOST_NB);
    chol->x = (struct clb_dmat){.rows = n, .cols = n, .ld = clb_dmat_ld(n, chol->element)};
    size_t width = clb_chol_width(chol, 0);
    bool upper = chol->problem->upper;
    struct clb_workspace_limits limits = clb_solve_limits(width, !upper, n);
    limits.m = upper ? width : n;
    limits.n = upper ? n : width;
    limits.k = n;
    clb_status status = clb_workspace_open(&chol->workspace, chol->runtime, variant, &limits);
    if (status != CLB_OK)
        return status;
    chol->result->kernel = chol->workspace.variant->name;
    return open_blocks(chol, value[CLB_PARAM_POTRF_BLOCK]);
}

void clb_chol_close(struct clb_chol *chol, bool idle)
{
    if (chol->workspace.runtime != NULL)
        clb_potf2_close(&chol->block, &chol->workspace, idle);
    clb_buffer_end(chol->runtime, chol->host_block, idle);
    clb_buffer_end(chol->runtime, chol->memory, idle);
    clb_workspace_close(&chol->workspace, idle);
}

size_t clb_chol_width(const struct clb_chol *chol, size_t k)
{
    return clb_min(chol->nb, chol->n - k);
}

size_t clb_chol_columns(const struct clb_chol *chol)
{
    return chol->result->info != 0 ? chol->result->info - 1 : chol->n;
}

char *clb_chol_host(const struct clb_chol *chol, size_t row, size_t col)
{
    return (char *)chol->problem->a + (row + col * chol->problem->lda) * chol->element;
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* A block of L, as it is stored in x. */
static struct clb_dmat part(const struct clb_chol *chol, size_t row, size_t col, size_t rows,
                            size_t cols)
{
    return chol->problem->upper ? clb_dmat_part(&chol->x, col, row, cols, rows)
                                : clb_dmat_part(&chol->x, row, col, rows, cols);
}

/* A(row:row+rows, col:col+cols) -= L(row:.., p:p+depth)*L(col:.., p:p+depth)^H. */
static clb_status potrf_update(struct clb_chol *chol, size_t p, size_t depth, size_t row,
                               size_t rows, size_t col, size_t cols)
{
    const struct clb_dmat left = part(chol, row, p, rows, depth);
    const struct clb_dmat right = part(chol, col, p, cols, depth);
    bool upper = chol->problem->upper;
    const struct clb_dmat_update update = {.c = part(chol, row, col, rows, cols),
                                           .a = upper ? right : left,
                                           .b = upper ? left : right,
                                           .op_a = upper ? CLB_OP_C : CLB_OP_N,
                                           .op_b = upper ? CLB_OP_N : CLB_OP_C};
    return depth > 0 ? clb_dmat_update(&chol->workspace, &update) : CLB_OK;
}

/* L(k+w:n, k:k+w) = A(k+w:n, k:k+w)*L(k:k+w, k:k+w)^-H. */
static clb_status potrf_solve(struct clb_chol *chol, size_t k, size_t width)
{
    size_t first = k + width, rest = chol->n - first;
    bool upper = chol->problem->upper;
    const struct clb_dmat b = part(chol, first, k, rest, width);
    const struct clb_dmat_triangle triangle = {
        .a = part(chol, k, k, width, width), .right = !upper, .upper = upper, .op = CLB_OP_C};
    if (rest == 0)
        return CLB_OK;
    clb_status status = clb_dmat_pack_triangle(&chol->workspace, &triangle);
    return status == CLB_OK ? clb_dmat_solve(&chol->workspace, &triangle, &b) : status;
}

/* Factor a panel on the device: halves it until the diagonal block is small enough for one
 * work-group. */
static clb_status factor_there(struct clb_chol *chol, size_t k, size_t width)
{
    size_t most = chol->block.most;
    clb_status status;
    if (width <= most) {
        const struct clb_dmat diagonal = part(chol, k, k, width, width);
        status =
            clb_potf2_factor(&chol->block, &chol->workspace, &diagonal, chol->problem->upper, k);
        return status == CLB_OK ? potrf_solve(chol, k, width) : status;
    }
    size_t half = clb_round_up(width / 2, most), second = k + half;
    status = factor_there(chol, k, half);
    if (status == CLB_OK)
        status = potrf_update(chol, k, half, second, chol->n - second, second, width - half);
    if (status == CLB_OK)
        status = factor_there(chol, second, width - half);
    return status;
}

static clb_status step_there(struct clb_chol *chol, size_t k, size_t width)
{
    clb_status status = potrf_update(chol, 0, k, k, chol->n - k, k, width);
    if (status == CLB_OK)
        status = factor_there(chol, k, width);
    if (status == CLB_OK)
        status = clb_queue_flush(chol->workspace.queue);
    if (status == CLB_OK)
        status = clb_potf2_look(&chol->block, &chol->workspace, &chol->result->info);
    return status;
}

/* ---- diagonal blocks by the next library ----------------------------------------------------- */

static clb_status potrf_bring_down(struct clb_chol *chol, const struct clb_dmat *diagonal,
                                   cl_event *event)
{
    clb_status status = clb_dmat_read(chol->workspace.queue, diagonal, chol->element,
                                      chol->host_block->host, diagonal->rows, event);
    return status == CLB_OK ? clb_queue_flush(chol->workspace.queue) : status;
}

/* Wait for the diagonal block, factor it, and enqueue its upload. Where it has a pivot that is not
 * positive, the part before that pivot is downloaded again and factored on its own, because a
 * library leaves the rows below it undefined. *width is then the order of that part. */
static clb_status potrf_factor_here(struct clb_chol *chol, size_t k, size_t *width, cl_event *event)
{
    struct clb_dmat diagonal = part(chol, k, k, *width, *width);
    size_t first_width = *width, info = 0;
    clb_status status = clb_queue_set_await(chol->workspace.queue_set, event);
    while (status == CLB_OK) {
        const struct clb_potrf block = {chol->problem->precision, chol->problem->upper, *width,
                                        chol->host_block->host, *width};
        info = chol->next->potrf(chol->next, &block);
        chol->result->host_work += clb_work_potrf((double)*width, (double)*width, (double)*width);
        if (info == 0)
            break;
        *width = clb_min(info, *width) - 1;
        if (*width == 0)
            break;
        diagonal = part(chol, k, k, *width, *width);
        status = potrf_bring_down(chol, &diagonal, event);
        if (status == CLB_OK)
            status = clb_queue_set_await(chol->workspace.queue_set, event);
    }
    if (*width < first_width)
        chol->result->info = k + *width + 1;
    if (status == CLB_OK && *width > 0)
        status = clb_dmat_write(chol->workspace.queue, &diagonal, chol->element,
                                chol->host_block->host, *width, NULL);
    return status;
}

/* The diagonal block is updated first, so that it is factored while the device updates the rest. */
static clb_status step_here(struct clb_chol *chol, size_t k, size_t width)
{
    const struct clb_dmat diagonal = part(chol, k, k, width, width);
    size_t below = k + width;
    cl_event event = NULL;
    clb_status status = potrf_update(chol, 0, k, k, width, k, width);
    if (status == CLB_OK)
        status = potrf_bring_down(chol, &diagonal, &event);
    if (status == CLB_OK && below < chol->n)
        status = potrf_update(chol, 0, k, below, chol->n - below, k, width);
    if (status == CLB_OK)
        status = clb_queue_flush(chol->workspace.queue);
    if (status == CLB_OK)
        status = potrf_factor_here(chol, k, &width, &event);
    if (event != NULL)
        clb_event_release(event);
    if (status == CLB_OK && width > 0)
        status = potrf_solve(chol, k, width);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

clb_status clb_chol_factor(struct clb_chol *chol,
                           clb_status (*bring)(void *context, size_t k, size_t width),
                           void *context)
{
    bool there = chol->block.program != NULL;
    clb_status status = CLB_OK;
    for (size_t k = 0; k < chol->n && chol->result->info == 0 && status == CLB_OK;) {
        size_t width = clb_chol_width(chol, k);
        status = bring(context, k, width);
        if (status == CLB_OK)
            status = there ? step_there(chol, k, width) : step_here(chol, k, width);
        k += width;
    }
    /* The device must have completed everything without error before anything is written. */
    if (status == CLB_OK)
        status = clb_queue_set_finish(chol->workspace.queue_set);
    if (status == CLB_OK && there)
        status = clb_potf2_finish(&chol->block, &chol->workspace, &chol->result->info);
    return status;
}

clb_status clb_potrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_potrf *problem, const struct clb_host_blas *next,
                         struct clb_potrf_result *result)
{
    struct clb_chol chol = {.runtime = runtime, .problem = problem, .next = next, .result = result};
    *result = (struct clb_potrf_result){.kernel = variant->name};
    if (!runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0)
        return clb_potrf_run_stream(&chol, variant);
    return clb_potrf_run_shared(&chol, variant);
}
