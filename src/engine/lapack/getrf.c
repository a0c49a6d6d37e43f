/* LAPACK xGETRF in the caller's memory: the steps. SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

#include <stdlib.h>

/* Columns that the CPU factors at once, for devices without a tuned value. */
#define DEFAULT_STRIP ((size_t)128)

static bool wants_panel(const struct clb_getrf_run *lu)
{
    enum { BY_KIND, BY_CPU, BY_DEVICE };
    size_t choice = lu->run.variant->tuning.value[CLB_PARAM_GETRF_PANEL];
    return choice == BY_DEVICE || (choice == BY_KIND && clb_device_has(&lu->run.runtime->device,
                                                                       CLB_QUIRK_GROUPS_PROGRESS));
}

/* ---- open and close ---- */

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

clb_status clb_getrf_open(struct clb_getrf_run *lu)
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
    lu->panels = (struct clb_panels){.run = &lu->run,
                                     .work = &clb_getrf_work,
                                     .context = lu,
                                     .x = &lu->x,
                                     .end = lu->inner,
                                     .cols = n};
    CLB_TRY(clb_job_open(&lu->run, &limits));
    lu->result->kernel = lu->run.workspace.variant->name;
    if (wants_panel(lu) && clb_getf2_open(&lu->panel, &lu->run.workspace, m, lu->inner) != CLB_OK)
        clb_log(CLB_LOG_INFO, "getrf: the CPU factors the panels");
    lu->row = clb_order_make(m);
    return lu->row != NULL ? CLB_OK : CLB_ERR_NOMEM;
}

void clb_getrf_close(struct clb_getrf_run *lu)
{
    if (lu->panel.program != NULL)
        clb_getf2_close(&lu->panel, &lu->run.workspace, lu->run.idle);
    free(lu->row);
    clb_job_close(&lu->run);
}

/* ---- panels ---- */

size_t clb_getrf_width(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    size_t left = lu->inner - k;
    return left <= lu->tail ? left : lu->nb;
}

size_t clb_getrf_order_end(const struct clb_getrf_run *lu, size_t k, size_t n)
{
    return k < lu->inner ? k + clb_getrf_width(lu, k) : n;
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

static void factor(void *context, size_t k, size_t width, void *panel, size_t ld)
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

/* ---- a step ---- */

cl_uint *clb_order_make(size_t n)
{
    cl_uint *order = calloc(n, sizeof *order);
    for (size_t i = 0; order != NULL && i < n; i++)
        order[i] = (cl_uint)i;
    return order;
}

void clb_order_swap(cl_uint *order, const void *ipiv, bool wide, size_t first, size_t end,
                    bool backward)
{
    for (size_t k = first; k < end; k++) {
        size_t i = backward ? first + end - 1 - k : k;
        size_t other = (size_t)clb_integer_get(ipiv, i, wide) - 1;
        cl_uint held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
}

static size_t take_move(cl_uint *rows, size_t row, struct clb_move *move)
{
    cl_uint from = rows[row];
    if (from == row)
        return 0;
    rows[row] = (cl_uint)row;
    *move = (struct clb_move){(cl_uint)row, from};
    return 1;
}

/* At most two moves for each column: the top rows first, in order, so that neighbouring work-items
 * write neighbouring rows. */
clb_status clb_getrf_prepare(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    const int64_t *ipiv = lu->result->ipiv;
    struct clb_move *moves = lu->run.workspace.moves_host->host;
    lu->moves = 0;
    clb_order_swap(lu->row, ipiv, true, k, k + width, false);
    for (size_t i = k; i < k + width; i++)
        lu->moves += take_move(lu->row, i, moves + lu->moves);
    for (size_t i = k; i < k + width; i++)
        lu->moves += take_move(lu->row, (size_t)ipiv[i] - 1, moves + lu->moves);
    return clb_dmat_send_moves(&lu->run.workspace, lu->moves);
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
    clb_status status = clb_dmat_pack_triangle(workspace, &triangle);
    CLB_THEN(status, clb_dmat_solve(workspace, &triangle, &top));
    CLB_THEN(status, clb_dmat_update(workspace, &update));
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
    CLB_TRY(clb_dmat_move(&lu->run.workspace, &columns, lu->moves));
    return clb_getrf_update(lu, &lu->run.workspace, &panel, k, first, count,
                            kept ? CLB_PACK_KEPT : CLB_PACK_KEEP);
}

const struct clb_panel_work clb_getrf_work = {.width = clb_getrf_width,
                                              .factor = factor,
                                              .is_in_place = clb_getrf_is_on_device,
                                              .factor_in_place = clb_getrf_factor_on_device,
                                              .prepare = clb_getrf_prepare,
                                              .apply = clb_getrf_apply};

/* ---- write-back ---- */

void clb_getrf_order(const struct clb_getrf_run *lu, size_t first, size_t end, cl_uint *order)
{
    for (size_t i = 0; i < lu->x.rows; i++)
        order[i] = (cl_uint)i;
    clb_order_swap(order, lu->result->ipiv, true, first, end, false);
}

/* ---- the choice ---- */

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
        return clb_getrf_run_unified(&lu);
    clb_status status = CLB_ERR_NOMEM;
    if (variant->tuning.value[CLB_PARAM_GETRF_BLOCK] == 0)
        status = clb_getrf_run_discrete(&lu, NULL, &begun);
    return status == CLB_ERR_NOMEM && !begun ? clb_getrf_run_blocks(&unopened) : status;
}
