/* The steps of LU with partial pivoting on the device's matrix. getrf.h has the scheme. */
#include "getrf.h"
#include "host/workers.h"

#include <stdlib.h>
#include <string.h>

/* Columns that the CPU factors at once, for devices without a tuned value. */
#define DEFAULT_STRIP ((size_t)128)

/* Whether the device shall factor panels; `choice` is the value of getrf.panel. (H200, 2026-11:
 * dgetrf, n = 8192, host to host, takes 85 ms; with panels factored by 16 CPUs 480 ms.) */
static bool wants_panel(const struct clb_getrf_run *lu, size_t choice)
{
    enum { BY_KIND, BY_CPU, BY_DEVICE };
    return choice == BY_DEVICE || (choice == BY_KIND && clb_device_has(&lu->run.runtime->device,
                                                                       CLB_QUIRK_GROUPS_PROGRESS));
}

/* Strips are faster where the device has other threads than the one that factors the panel. */
static size_t strip_of(const struct clb_getrf_run *lu, size_t wanted)
{
    if (wanted != 0)
        return wanted;
    return lu->run.runtime->device.units > 1 ? DEFAULT_STRIP : CLB_MAX_SWAPS;
}

/* ---- right-hand sides (getrf.c, xGESV) ---------------------------------------------------------
 */

/* Whether the sums for right-hand sides are formed otherwise than those for the matrix's columns,
 * see clb_dmat_update. For real precisions the order that is used for the matrix is no worse for
 * them. */
static bool has_own_sums(const struct clb_getrf_run *lu)
{
    return clb_precision_parts(lu->call->precision) > 1;
}

/* Raise the limits for a solve of the right-hand sides with the whole triangle. */
static void add_solve(const struct clb_getrf_run *lu, struct clb_workspace_limits *limits)
{
    const struct clb_workspace_limits solve = clb_solve_limits(lu->call->n, false, lu->call->nrhs);
    limits->m = clb_max(limits->m, solve.m);
    if (has_own_sums(lu)) /* their updates pack a panel beside the one that is kept */
        limits->m = clb_max(limits->m, lu->x.rows);
    limits->n = clb_max(limits->n, solve.n);
    limits->k = clb_max(limits->k, solve.k);
    limits->triangle = clb_max(limits->triangle, solve.triangle);
}

/* How many of columns [first, first + count) are right-hand sides that have sums of their own. */
static size_t count_rhs(const struct clb_getrf_run *lu, size_t first, size_t count)
{
    size_t n = lu->call->n;
    if (!has_own_sums(lu) || first + count <= n)
        return 0;
    return clb_min(first + count - n, count);
}

clb_status clb_getrf_solve(struct clb_getrf_run *lu)
{
    size_t n = lu->call->n;
    const struct clb_dmat_triangle triangle = {
        .a = clb_dmat_part(&lu->x, 0, 0, n, n), .upper = true, .short_sums = true};
    const struct clb_dmat b = clb_dmat_part(&lu->x, 0, n, n, lu->x.cols - n);
    clb_status status = clb_dmat_pack_triangle(&lu->run.workspace, &triangle);
    return status == CLB_OK ? clb_dmat_solve(&lu->run.workspace, &triangle, &b) : status;
}

/* ---- open and close -------------------------------------------------------------------------- */

void clb_getrf_shape(struct clb_getrf_run *lu)
{
    const size_t *value = lu->run.variant->tuning.value;
    size_t m = lu->call->m, n = lu->call->n;
    lu->inner = clb_min(m, n);
    bool panels = wants_panel(lu, value[CLB_PARAM_GETRF_PANEL]);
    bool large = panels && lu->inner >= value[CLB_PARAM_GETRF_LARGE];
    lu->nb = value[large ? CLB_PARAM_GETRF_LARGE_NB : CLB_PARAM_GETRF_SMALL_NB];
    if (value[CLB_PARAM_GETRF_NB] != 0)
        lu->nb = value[CLB_PARAM_GETRF_NB];
    lu->nb = clb_min(lu->nb, CLB_MAX_SWAPS);
    lu->tail = clb_min(clb_max(value[CLB_PARAM_GETRF_TAIL], lu->nb), CLB_MAX_SWAPS);
    lu->strip = strip_of(lu, value[CLB_PARAM_GETRF_STRIP]);
    lu->x = (struct clb_dmat){.rows = m, .cols = n, .ld = clb_dmat_ld(m, lu->run.element)};
    if (lu->solves)
        lu->x.cols += lu->call->nrhs;
}

clb_status clb_getrf_open(struct clb_getrf_run *lu)
{
    const size_t *value = lu->run.variant->tuning.value;
    clb_getrf_shape(lu);
    size_t m = lu->x.rows, n = lu->x.cols;
    size_t last = clb_min(clb_max(lu->nb, lu->tail), lu->inner); /* the widest panel */
    size_t cols = lu->most == 0 ? n : clb_min(clb_max(lu->most, last), n);
    struct clb_workspace_limits limits = clb_solve_limits(last, false, cols);
    limits.k = last;
    limits.kept_m = m;
    if (wants_panel(lu, value[CLB_PARAM_GETRF_PANEL])) {
        limits.m = m;
        limits.triangle = clb_max(limits.triangle, CLB_MAX_BLOCK);
    }
    if (lu->solves)
        add_solve(lu, &limits);
    clb_status status = clb_job_open(&lu->run, &limits);
    if (status != CLB_OK)
        return status;
    lu->result->kernel = lu->run.workspace.variant->name;
    if (wants_panel(lu, value[CLB_PARAM_GETRF_PANEL]) &&
        clb_getf2_open(&lu->panel, &lu->run.workspace, m, lu->inner) != CLB_OK)
        clb_log(CLB_LOG_INFO, "getrf: the CPU factors the panels");
    return clb_row_permutation_make(&lu->permutation, m);
}

void clb_getrf_close(struct clb_getrf_run *lu)
{
    if (lu->panel.program != NULL)
        clb_getf2_close(&lu->panel, &lu->run.workspace, lu->run.idle);
    clb_row_permutation_free(&lu->permutation);
    clb_job_close(&lu->run);
}

/* ---- a step ---------------------------------------------------------------------------------- */

size_t clb_getrf_width(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    size_t left = lu->inner - k;
    return left <= lu->tail ? left : lu->nb;
}

/* Convert pivots and info of the panel of step k, which count from the panel's first row, to those
 * of the matrix. */
static void take_pivots(struct clb_getrf_run *lu, size_t k, size_t width, size_t info)
{
    for (size_t i = k; i < k + width; i++)
        lu->result->ipiv[i] += (int64_t)k;
    if (info != 0 && lu->result->info == 0)
        lu->result->info = k + info;
}

size_t clb_getrf_on_host(const struct clb_host_blas *next, const struct clb_call *call, size_t m,
                         size_t n, void *a, size_t lda, int64_t *ipiv)
{
    struct clb_call part = clb_call_as(call, CLB_KIND_getrf);
    part.m = m;
    part.n = n;
    part.a = a;
    part.lda = lda;
    part.ipiv = ipiv;
    part.wide = true;
    return clb_host_call(next, &part);
}

void clb_getrf_factor(void *context, size_t k, size_t width, void *panel, size_t ld)
{
    struct clb_getrf_run *lu = context;
    int64_t *ipiv = lu->result->ipiv + k;
    double begin = clb_trace_wanted() ? clb_now() : 0;
    const size_t m = lu->call->m - k;
    size_t info = clb_getrf_on_host(lu->next, lu->call, m, width, panel, ld, ipiv);
    lu->result->host_work +=
        clb_work_of(CLB_STEM_getrf, (double)m, (double)width, (double)clb_min(m, width));
    if (clb_trace_wanted())
        clb_trace_since("panel", begin);
    take_pivots(lu, k, width, info);
}

bool clb_getrf_is_on_device(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    const struct clb_getf2 *panel = &lu->panel;
    return panel->program != NULL && clb_div_up(lu->x.rows - k, panel->group) <= panel->most_groups;
}

clb_status clb_getrf_read_pivots(struct clb_getrf_run *lu, size_t k, size_t width)
{
    size_t info = 0;
    clb_status status =
        clb_getf2_read(&lu->panel, &lu->run.workspace, k, width, lu->result->ipiv + k, &info);
    if (status == CLB_OK && lu->result->info == 0)
        lu->result->info = info;
    return status;
}

clb_status clb_getrf_factor_on_device(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    clb_status status = clb_getf2_enqueue(&lu->panel, &lu->run.workspace, &lu->x, k, width);
    return status == CLB_OK ? clb_getrf_read_pivots(lu, k, width) : status;
}

clb_status clb_getrf_send_moves(struct clb_getrf_run *lu, size_t k, size_t width)
{
    lu->moves = clb_row_permutation_moves(&lu->permutation, lu->result->ipiv + k, k, width,
                                          lu->run.workspace.moves_host->host);
    return clb_dmat_send_moves(&lu->run.workspace, lu->moves);
}

clb_status clb_getrf_prepare(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    lu->moves = 0;
    if (k + width == lu->x.cols)
        return CLB_OK;
    const struct clb_dmat_triangle triangle = {.a = clb_dmat_part(&lu->x, k, k, width, width),
                                               .unit = true};
    clb_status status = clb_getrf_send_moves(lu, k, width);
    if (status == CLB_OK)
        status = clb_dmat_pack_triangle(&lu->run.workspace, &triangle);
    return status;
}

clb_status clb_getrf_update(const struct clb_getrf_run *lu, struct clb_workspace *workspace,
                            const struct clb_dmat *panel, size_t k, size_t first, size_t count,
                            bool keep, bool kept)
{
    size_t width = panel->cols, below = panel->rows - width, rhs = count_rhs(lu, first, count);
    const struct clb_dmat top = clb_dmat_part(&lu->x, k, first, width, count);
    const struct clb_dmat_triangle triangle = {.a = clb_dmat_part(panel, 0, 0, width, width),
                                               .unit = true};
    struct clb_dmat_update update = {
        .a = clb_dmat_part(panel, width, 0, below, width),
        .b = clb_dmat_part(&top, 0, 0, width, count - rhs),
        .c = clb_dmat_part(&lu->x, k + width, first, below, count - rhs),
        .keep = keep,
        .kept = kept,
        .in_order = true};
    clb_status status = clb_dmat_solve(workspace, &triangle, &top);
    if (status == CLB_OK)
        status = clb_dmat_update(workspace, &update);
    if (rhs == 0 || status != CLB_OK)
        return status;
    update.b = clb_dmat_part(&top, 0, count - rhs, width, rhs);
    update.c = clb_dmat_part(&lu->x, k + width, first + count - rhs, below, rhs);
    update.keep = update.kept = update.in_order = false;
    update.depth = clb_dmat_sum_depth(workspace, lu->x.rows);
    return clb_dmat_update(workspace, &update);
}

clb_status clb_getrf_apply(void *context, size_t k, size_t width, size_t first, size_t count,
                           bool kept)
{
    struct clb_getrf_run *lu = context;
    const struct clb_dmat panel = clb_dmat_part(&lu->x, k, k, lu->x.rows - k, width);
    const struct clb_dmat columns = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
    clb_status status = clb_dmat_move(&lu->run.workspace, &columns, lu->moves);
    if (status == CLB_OK)
        status = clb_getrf_update(lu, &lu->run.workspace, &panel, k, first, count, true, kept);
    return status;
}

/* ---- write-back ------------------------------------------------------------------------------ */

void clb_getrf_order(const struct clb_getrf_run *lu, size_t first, size_t end, cl_uint *order)
{
    const int64_t *ipiv = lu->result->ipiv;
    for (size_t i = 0; i < lu->x.rows; i++)
        order[i] = (cl_uint)i;
    for (size_t i = first; i < end; i++) {
        size_t other = (size_t)ipiv[i] - 1;
        cl_uint held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
}

struct getrf_writer {
    const struct clb_getrf_run *lu;
    const char *from;
    cl_uint *order; /* each thread's own, one after the other */
};

/* The first column of the panel that contains a column. */
static size_t panel_with(const struct clb_getrf_run *lu, size_t column, size_t *width)
{
    size_t k = 0;
    for (;;) {
        *width = clb_getrf_width(lu, k);
        if (column < k + *width || k + *width >= lu->inner)
            return k;
        k += *width;
    }
}

static void write_columns(void *context, size_t thread, size_t begin, size_t end)
{
    const struct getrf_writer *writer = context;
    const struct clb_getrf_run *lu = writer->lu;
    const struct clb_call *call = lu->call;
    cl_uint *order = writer->order + thread * lu->x.rows;
    /* `order` is valid for columns before `ordered`; rows before `top` are not moved. */
    size_t ordered = 0, top = lu->x.rows;
    for (size_t j = begin; j < end; j++) {
        const char *from = writer->from + j * lu->x.ld * lu->run.element;
        char *to = (char *)call->a + j * call->lda * lu->run.element;
        if (j >= ordered) {
            size_t width, k = panel_with(lu, j, &width);
            bool later = k + width < lu->inner;
            clb_getrf_order(lu, k + width, lu->inner, order);
            ordered = later ? k + width : lu->x.cols;
            top = later ? k + width : lu->x.rows;
        }
        memcpy(to, from, top * lu->run.element);
        clb_copy_ordered(call->precision, lu->x.rows - top, 1, order + top, from, 0,
                         to + top * lu->run.element, 0);
    }
}

clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from, size_t threads)
{
    struct getrf_writer writer = {.lu = lu, .from = from};
    threads = clb_min(threads, CLB_MAX_WORKERS + 1);
    writer.order = calloc(threads * lu->x.rows, sizeof *writer.order);
    if (writer.order == NULL)
        return CLB_ERR_NOMEM;
    clb_share_columns(lu->x.cols, threads, write_columns, &writer);
    lu->result->columns_written = lu->x.cols;
    free(writer.order);
    return CLB_OK;
}
