/* LAPACK xGETRF in the caller's memory: the steps, which job.h describes, and all of it on a
 * device that shares the host's memory. */
#include "job.h"

#include <stdlib.h>
#include <string.h>

/* Columns that the CPU factors at once, for devices without a tuned value. */
#define DEFAULT_STRIP ((size_t)128)

/* Whether the device shall factor panels. (H200, 2026-11: dgetrf, n = 8192, host to host, takes 85
 * ms; with panels factored by 16 CPUs 480 ms.) */
static bool wants_panel(const struct clb_getrf_run *lu)
{
    enum { BY_KIND, BY_CPU, BY_DEVICE };
    size_t choice = lu->run.variant->tuning.value[CLB_PARAM_GETRF_PANEL];
    return choice == BY_DEVICE || (choice == BY_KIND && clb_device_has(&lu->run.runtime->device,
                                                                       CLB_QUIRK_GROUPS_PROGRESS));
}

/* ---- open and close -------------------------------------------------------------------------- */

void clb_getrf_shape(struct clb_getrf_run *lu)
{
    const size_t *value = lu->run.variant->tuning.value;
    size_t m = lu->call->m, n = lu->call->n;
    lu->inner = clb_min(m, n);
    bool large = wants_panel(lu) && lu->inner >= value[CLB_PARAM_GETRF_LARGE];
    lu->nb = value[large ? CLB_PARAM_GETRF_LARGE_NB : CLB_PARAM_GETRF_SMALL_NB];
    if (value[CLB_PARAM_GETRF_NB] != 0)
        lu->nb = value[CLB_PARAM_GETRF_NB];
    lu->nb = clb_min(lu->nb, CLB_MAX_SWAPS);
    lu->tail = clb_min(clb_max(value[CLB_PARAM_GETRF_TAIL], lu->nb), CLB_MAX_SWAPS);
    /* Strips are faster where the device has other threads than the one that factors the panel. */
    lu->strip = lu->run.runtime->device.units > 1 ? DEFAULT_STRIP : CLB_MAX_SWAPS;
    if (value[CLB_PARAM_GETRF_STRIP] != 0)
        lu->strip = value[CLB_PARAM_GETRF_STRIP];
    lu->x = (struct clb_dmat){.rows = m, .cols = n, .ld = clb_dmat_ld(m, lu->run.element)};
    if (lu->solves)
        lu->x.cols += lu->call->nrhs;
}

clb_status clb_getrf_open(struct clb_getrf_run *lu, const struct clb_panel_work *work)
{
    clb_getrf_shape(lu);
    size_t m = lu->x.rows, n = lu->x.cols;
    size_t last = clb_min(clb_max(lu->nb, lu->tail), lu->inner); /* the widest panel */
    size_t cols = lu->most == 0 ? n : clb_min(clb_max(lu->most, last), n);
    struct clb_workspace_limits limits = clb_solve_limits(last, false, cols);
    limits.k = last;
    limits.kept_m = m;
    if (wants_panel(lu)) {
        limits.m = m;
        limits.triangle = clb_max(limits.triangle, CLB_MAX_BLOCK);
    }
    if (lu->solves)
        clb_getrf_add_solve(lu, &limits);
    lu->panels = (struct clb_panels){
        .run = &lu->run, .work = work, .context = lu, .x = &lu->x, .end = lu->inner, .cols = n};
    clb_status status = clb_job_open(&lu->run, &limits);
    if (status != CLB_OK)
        return status;
    lu->result->kernel = lu->run.workspace.variant->name;
    if (wants_panel(lu) && clb_getf2_open(&lu->panel, &lu->run.workspace, m, lu->inner) != CLB_OK)
        clb_log(CLB_LOG_INFO, "getrf: the CPU factors the panels");
    lu->row = calloc(m, sizeof *lu->row);
    for (size_t i = 0; lu->row != NULL && i < m; i++)
        lu->row[i] = (cl_uint)i;
    return lu->row != NULL ? CLB_OK : CLB_ERR_NOMEM;
}

void clb_getrf_close(struct clb_getrf_run *lu)
{
    if (lu->panel.program != NULL)
        clb_getf2_close(&lu->panel, &lu->run.workspace, lu->run.idle);
    free(lu->row);
    clb_job_close(&lu->run);
}

/* ---- panels ---------------------------------------------------------------------------------- */

size_t clb_getrf_width(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    size_t left = lu->inner - k;
    return left <= lu->tail ? left : lu->nb;
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
    struct clb_factors *result = lu->result;
    int64_t *ipiv = result->ipiv + k;
    double begin = clb_trace_wanted() ? clb_now() : 0;
    const size_t m = lu->call->m - k;
    size_t info = clb_getrf_on_host(lu->next, lu->call, m, width, panel, ld, ipiv);
    result->host_work +=
        clb_work_of(CLB_STEM_getrf, (double)m, (double)width, (double)clb_min(m, width));
    if (clb_trace_wanted())
        clb_trace_since("panel", begin);
    /* They count from the panel's first row. */
    for (size_t i = 0; i < width; i++)
        ipiv[i] += (int64_t)k;
    if (info != 0 && result->info == 0)
        result->info = k + info;
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

/* ---- a step ---------------------------------------------------------------------------------- */

static size_t take_move(cl_uint *rows, size_t row, struct clb_move *move)
{
    cl_uint from = rows[row];
    if (from == row)
        return 0;
    rows[row] = (cl_uint)row;
    *move = (struct clb_move){(cl_uint)row, from};
    return 1;
}

/* Exchange the rows that the pivots name, for those from `first` on in turn. */
static void interchange(cl_uint *rows, const int64_t *ipiv, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        size_t other = (size_t)ipiv[i] - 1;
        cl_uint held = rows[i];
        rows[i] = rows[other];
        rows[other] = held;
    }
}

/* Send the interchanges of columns [k, k + width) to the device as moves of the rows that change
 * place, at most two for each: the top rows first, in order, so that neighbouring work-items write
 * neighbouring rows. */
static clb_status send_moves(struct clb_getrf_run *lu, size_t k, size_t width)
{
    const int64_t *ipiv = lu->result->ipiv;
    struct clb_move *moves = lu->run.workspace.moves_host->host;
    lu->moves = 0;
    interchange(lu->row, ipiv, k, k + width);
    for (size_t i = k; i < k + width; i++)
        lu->moves += take_move(lu->row, i, moves + lu->moves);
    for (size_t i = k; i < k + width; i++)
        lu->moves += take_move(lu->row, (size_t)ipiv[i] - 1, moves + lu->moves);
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
    clb_status status = send_moves(lu, k, width);
    return status == CLB_OK ? clb_dmat_pack_triangle(&lu->run.workspace, &triangle) : status;
}

clb_status clb_getrf_update(const struct clb_getrf_run *lu, struct clb_workspace *workspace,
                            const struct clb_dmat *panel, size_t k, size_t first, size_t count,
                            enum clb_keep keep)
{
    size_t width = panel->cols, below = panel->rows - width;
    size_t rhs = lu->solves ? clb_getrf_count_rhs(lu, first, count) : 0;
    const struct clb_dmat top = clb_dmat_part(&lu->x, k, first, width, count);
    const struct clb_dmat_triangle triangle = {.a = clb_dmat_part(panel, 0, 0, width, width),
                                               .unit = true};
    struct clb_dmat_update update = {
        .a = clb_dmat_part(panel, width, 0, below, width),
        .b = clb_dmat_part(&top, 0, 0, width, count - rhs),
        .c = clb_dmat_part(&lu->x, k + width, first, below, count - rhs),
        .keep = keep,
        .in_order = true};
    clb_status status = clb_dmat_solve(workspace, &triangle, &top);
    if (status == CLB_OK)
        status = clb_dmat_update(workspace, &update);
    if (rhs == 0 || status != CLB_OK)
        return status;
    update.b = clb_dmat_part(&top, 0, count - rhs, width, rhs);
    update.c = clb_dmat_part(&lu->x, k + width, first + count - rhs, below, rhs);
    update.keep = CLB_PACK_ONCE;
    update.in_order = false;
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
        status = clb_getrf_update(lu, &lu->run.workspace, &panel, k, first, count,
                                  kept ? CLB_PACK_KEPT : CLB_PACK_KEEP);
    return status;
}

/* ---- write-back ------------------------------------------------------------------------------ */

void clb_getrf_order(const struct clb_getrf_run *lu, size_t first, size_t end, cl_uint *order)
{
    for (size_t i = 0; i < lu->x.rows; i++)
        order[i] = (cl_uint)i;
    interchange(order, lu->result->ipiv, first, end);
}

struct getrf_writer {
    const struct clb_getrf_run *lu;
    const char *from;
    cl_uint *order; /* each thread's own, one after the other */
};

/* The end of the panel that contains a column; where it is the last one, of all columns. */
static size_t end_of_panel(const struct clb_getrf_run *lu, size_t column)
{
    size_t end = 0;
    while (end <= column && end < lu->inner)
        end += clb_getrf_width(lu, end);
    return end < lu->inner ? end : lu->x.cols;
}

static void write_columns(void *context, size_t thread, size_t begin, size_t end)
{
    const struct getrf_writer *writer = context;
    const struct clb_getrf_run *lu = writer->lu;
    const struct clb_call *call = lu->call;
    const size_t rows = lu->x.rows, element = lu->run.element;
    cl_uint *order = writer->order + thread * rows;
    /* `order` is valid for columns before `ordered`; rows before `top` are not moved. */
    size_t ordered = 0, top = rows;
    for (size_t j = begin; j < end; j++) {
        const char *from = writer->from + j * lu->x.ld * element;
        char *to = (char *)call->a + j * call->lda * element;
        if (j >= ordered) {
            ordered = end_of_panel(lu, j);
            top = ordered < lu->x.cols ? ordered : rows;
            if (top < rows)
                clb_getrf_order(lu, top, lu->inner, order);
        }
        memcpy(to, from, top * element);
        clb_copy_ordered(call->precision, rows - top, 1, order + top, from, 0, to + top * element,
                         0);
    }
}

clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from, size_t threads)
{
    struct getrf_writer writer = {.lu = lu, .from = from};
    threads = clb_min(threads, CLB_MAX_WORKERS + 1);
    writer.order = calloc(threads * lu->x.rows, sizeof *writer.order);
    if (writer.order == NULL)
        return CLB_ERR_NOMEM;
    clb_workers_share(lu->x.cols, CLB_COLUMN_SHARE, threads, write_columns, &writer);
    lu->result->columns_written = lu->x.cols;
    free(writer.order);
    return CLB_OK;
}

/* ---- unified memory -------------------------------------------------------------------------
 *
 * The matrix is copied to memory of the shim that the CPU can access too, so that the CPU factors
 * panels in place. The device copies the caller's columns in and applies the first step's
 * interchanges in doing so; the CPU copies them out and applies those of the later steps. So
 * neither costs a pass of its own. */

/* Strip [j, j + width) of the panel [k, end) has been factored. Apply its step to the rest of the
 * panel, and its interchanges to the strips on its left. */
static clb_status follow_strip(struct clb_getrf_run *lu, size_t k, size_t end, size_t j,
                               size_t width)
{
    const struct clb_dmat left = clb_dmat_part(&lu->x, 0, k, lu->x.rows, j - k);
    size_t first = j + width;
    clb_status status = first < end ? clb_getrf_prepare(lu, j, width) : send_moves(lu, j, width);
    if (status == CLB_OK)
        status = clb_dmat_move(&lu->run.workspace, &left, lu->moves);
    if (status == CLB_OK && first < end)
        status = clb_getrf_apply(lu, j, width, first, end - first, false);
    return status;
}

static bool is_in_strips(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    return clb_getrf_is_on_device(lu, k) || clb_getrf_width(lu, k) > lu->strip;
}

/* The CPU factors a panel in strips, because the device's other threads have no work while it
 * factors on one of them. The transfer of a strip's moves is complete when the next strip is
 * mapped, and at the end. */
static clb_status factor_strips(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    clb_status status = CLB_OK;
    if (clb_getrf_is_on_device(lu, k))
        return clb_getrf_factor_on_device(lu, k, width);
    for (size_t j = k; j < k + width && status == CLB_OK; j += lu->strip) {
        size_t cols = clb_min(lu->strip, k + width - j);
        status = clb_panels_factor_mapped(&lu->panels, j, cols);
        if (status == CLB_OK)
            status = follow_strip(lu, k, k + width, j, cols);
    }
    return status == CLB_OK ? clb_job_complete(&lu->run) : status;
}

static clb_status prepare_and_copy(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    size_t first = k + width, count = lu->x.cols - first;
    clb_status status = clb_getrf_prepare(lu, k, width);
    if (status != CLB_OK || count == 0 || lu->caller.mem == NULL)
        return status;
    const struct clb_dmat from = clb_dmat_part(&lu->caller, 0, first, lu->x.rows, count);
    const struct clb_dmat to = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
    status = clb_dmat_move_copy(&lu->run.workspace, &from, &to, lu->moves);
    lu->caller.mem = NULL;
    lu->moves = 0;
    return status;
}

static clb_status run_unified(struct clb_getrf_run *lu)
{
    static const struct clb_panel_work work = {.width = clb_getrf_width,
                                               .factor = clb_getrf_factor,
                                               .is_in_place = is_in_strips,
                                               .factor_in_place = factor_strips,
                                               .prepare = prepare_and_copy,
                                               .apply = clb_getrf_apply};
    struct clb_job *run = &lu->run;
    void *mapped;
    clb_status status = clb_getrf_open(lu, &work);
    if (status == CLB_OK)
        status = clb_job_matrix(run, &lu->x);
    if (status == CLB_OK)
        status = clb_job_copy_in(run, &lu->x, clb_getrf_width(lu, 0), &lu->caller);
    if (status == CLB_OK)
        status = clb_panels_run(&lu->panels);
    if (status == CLB_OK)
        status = clb_job_map_result(run, &lu->x, &mapped);
    if (status == CLB_OK) {
        status = clb_getrf_write_back(lu, mapped, run->runtime->device.units);
        clb_status unmapped = clb_job_unmap(run, &lu->x, mapped);
        status = status != CLB_OK ? status : unmapped;
    }
    status = clb_job_end(run, status);
    clb_getrf_close(lu);
    return status;
}

/* ---- the choice ------------------------------------------------------------------------------ */

struct clb_getrf_run clb_getrf_run_of(struct clb_runtime *runtime,
                                      const struct clb_gemm_variant *variant,
                                      const struct clb_call *call, const struct clb_host_blas *next,
                                      struct clb_factors *result)
{
    const struct clb_caller caller = {call->a, call->lda, call->n, false};
    *result = (struct clb_factors){.ipiv = result->ipiv, .kernel = variant->name, .blocks = 1};
    return (struct clb_getrf_run){.run = clb_job_on(runtime, variant, call->precision, caller),
                                  .call = call,
                                  .next = next,
                                  .result = result};
}

clb_status clb_getrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_factors *result)
{
    const struct clb_getrf_run unopened = clb_getrf_run_of(runtime, variant, call, next, result);
    struct clb_getrf_run lu = unopened;
    bool begun = false;
    if (!lu.run.discrete)
        return run_unified(&lu);
    clb_status status = CLB_ERR_NOMEM;
    if (variant->tuning.value[CLB_PARAM_GETRF_BLOCK] == 0)
        status = clb_getrf_run_discrete(&lu, NULL, &begun);
    return status == CLB_ERR_NOMEM && !begun ? clb_getrf_run_blocks(&unopened) : status;
}
