/* LAPACK xGEQRF, xORGQR and xUNGQR in the caller's memory.
 *
 * xGEQRF has the steps of job.h: the next library factors panels, on the CPU; the device applies
 * the block of reflectors, conjugate-transposed, to the columns on the right (larfb.h).
 *
 * The memory of A may have A^H, as xGELQF's has: the copies to and from the device transpose, and
 * rows of the memory are written as columns of A would be. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/device_blas/larfb.h"
#include "engine/transfer/transfer_queue.h"
#include "job.h"

struct qr_run {
    struct clb_job run;
    const struct clb_call *call;
    size_t nb;
    struct clb_reflectors reflectors;
    struct clb_dmat x; /* m x n: A, or Q */

    /* xGEQRF */
    const struct clb_host_blas *next;
    struct clb_factors *result;
    size_t inner; /* min(m, n) */
    bool has_t;   /* of the latest panel, in the reflectors' host memory */
    struct clb_panels panels;

    /* xORGQR */
    struct clb_dmat vectors;
};

static struct qr_run qr_of(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_call *call)
{
    const bool adjoint = clb_call_is_adjoint(call);
    const size_t m = adjoint ? call->n : call->m, n = adjoint ? call->m : call->n;
    const struct clb_caller caller = {call->a, call->lda, n, adjoint};
    return (struct qr_run){.run = clb_job_on(runtime, variant, call->precision, caller),
                           .call = call,
                           .x = {.rows = m, .cols = n}};
}

/* For `count` reflectors in all. */
static clb_status qr_open(struct qr_run *qr, size_t count, const char **kernel)
{
    struct clb_job *run = &qr->run;
    qr->nb = clb_min(run->variant->tuning.value[CLB_PARAM_GEQRF_NB], count);
    const struct clb_workspace_limits limits =
        clb_reflectors_limits(qr->x.rows, qr->nb, false, qr->x.cols);
    CLB_TRY(clb_job_open(run, &limits));
    *kernel = run->workspace.variant->name;
    return clb_job_matrix(run, &qr->x);
}

static clb_status open_reflectors(struct qr_run *qr, struct clb_dmat vectors, const void *tau)
{
    qr->reflectors = (struct clb_reflectors){.nb = qr->nb, .a = vectors, .tau = tau};
    return clb_reflectors_open(&qr->reflectors, &qr->run.workspace, qr->x.cols);
}

static void qr_close(struct qr_run *qr)
{
    clb_reflectors_close(&qr->reflectors, qr->run.idle);
    clb_job_close(&qr->run);
}

/* ---- xGEQRF: steps ---- */

static size_t geqrf_width(const void *context, size_t k)
{
    const struct qr_run *qr = context;
    return clb_min(qr->nb, qr->inner - k);
}

static void geqrf_factor(void *context, size_t k, size_t width, void *panel, size_t ld)
{
    struct qr_run *qr = context;
    const struct clb_host_blas *next = qr->next;
    struct clb_call part = clb_call_of(clb_routine_of(CLB_KIND_geqrf, qr->call->precision, false));
    part.m = qr->x.rows - k;
    part.n = width;
    part.a = panel;
    part.lda = ld;
    part.tau = (char *)qr->result->tau + k * qr->run.element;
    /* xGEQRF is unblocked for so few columns, so xGEQRT is used where there is one. Its T costs
     * less than that of clb_reflectors_form where the device is the CPU. */
    void *t = qr->run.discrete ? NULL : clb_reflectors_host_t(&qr->reflectors, k);
    const bool has_t = next->geqrt != NULL && next->geqrt(next, &part, t, qr->reflectors.t.ld);
    if (!has_t)
        clb_host_call(next, &part);
    qr->has_t = has_t && t != NULL;
    qr->result->host_work +=
        clb_work_of(CLB_STEM_geqrf, (double)part.m, (double)width, (double)clb_min(part.m, width));
}

static clb_status geqrf_prepare(void *context, size_t k, size_t width)
{
    struct qr_run *qr = context;
    size_t first = k + width;
    if (first >= qr->x.cols)
        return CLB_OK;
    return qr->has_t ? clb_reflectors_send(&qr->reflectors, k, first)
                     : clb_reflectors_form(&qr->reflectors, k, first);
}

static clb_status geqrf_apply(void *context, size_t k, size_t width, size_t first, size_t count,
                              bool kept)
{
    struct qr_run *qr = context;
    const struct clb_dmat c = clb_dmat_part(&qr->x, k, first, qr->x.rows - k, count);
    (void)width;
    (void)kept;
    return clb_reflectors_apply(&qr->reflectors, k, CLB_OP_C, &c);
}

/* ---- xGEQRF: the run ---- */

static clb_status geqrf_open(struct qr_run *qr)
{
    qr->inner = clb_min(qr->x.rows, qr->x.cols);
    qr->panels.end = qr->inner;
    qr->panels.cols = qr->x.cols;
    CLB_TRY(qr_open(qr, qr->inner, &qr->result->kernel));
    return open_reflectors(qr, clb_dmat_part(&qr->x, 0, 0, qr->x.rows, qr->inner), qr->result->tau);
}

/* Unified memory: the CPU copies in the first panel, which it factors, and the device the rest
 * where it can. Discrete memory: uploads begin, and the CPU copies the first panel. */
static clb_status geqrf_bring_in(struct qr_run *qr)
{
    struct clb_job *run = &qr->run;
    size_t m = qr->x.rows, n = qr->x.cols, first = geqrf_width(qr, 0);
    struct clb_dmat caller;
    if (!run->discrete) {
        CLB_TRY(clb_job_copy_in(run, &qr->x, first, &caller));
        if (caller.mem == NULL || first == n)
            return CLB_OK;
        const struct clb_dmat from = clb_dmat_part(&caller, 0, first, m, n - first);
        const struct clb_dmat to = clb_dmat_part(&qr->x, 0, first, m, n - first);
        return clb_dmat_move_copy(&run->workspace, &from, &to, 0);
    }
    CLB_TRY(clb_job_buffer(run, CLB_MEMORY_HOST, m * qr->nb * run->element, &qr->panels.pinned));
    CLB_TRY(clb_job_plan(run, CLB_PANELS_UPLOADS + 1));
    clb_panels_add_uploads(&qr->panels, qr->nb);
    clb_job_add_columns(run, true, &qr->x, 0)->extent = clb_piece_columns(m * run->element, qr->nb);
    CLB_TRY(clb_job_begin(run));
    clb_panels_copy_in(&qr->panels);
    return CLB_OK;
}

clb_status clb_geqrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_factors *result)
{
    static const struct clb_panel_work work = {.width = geqrf_width,
                                               .factor = geqrf_factor,
                                               .prepare = geqrf_prepare,
                                               .apply = geqrf_apply};
    struct qr_run qr = qr_of(runtime, variant, call);
    qr.next = next;
    qr.result = result;
    qr.panels = (struct clb_panels){.run = &qr.run, .work = &work, .context = &qr, .x = &qr.x};
    *result = (struct clb_factors){.tau = result->tau, .kernel = variant->name};
    clb_status status = geqrf_open(&qr);
    CLB_THEN(status, geqrf_bring_in(&qr));
    CLB_THEN(status, clb_panels_run(&qr.panels));
    CLB_THEN(status, clb_job_complete(&qr.run));
    CLB_THEN(status, clb_job_write_back(&qr.run, &qr.x));
    status = clb_job_end(&qr.run, status);
    result->columns_written = clb_job_written(&qr.run);
    qr_close(&qr);
    return status;
}

/* ---- xORGQR ----
 *
 * Q = H1*...*Hb*I, from the last block to the first, so that block k only changes rows and columns
 * from its first on. Q has memory of its own, beside that of the vectors, which a device that
 * shares the host's memory uses in place. */

struct clb_call clb_orgqr_rest(const struct clb_call *call, const struct clb_orgqr_result *result)
{
    struct clb_call rest = *call;
    *(clb_call_is_adjoint(call) ? &rest.m : &rest.n) = result->columns_left;
    rest.k = clb_min(call->k, result->columns_left);
    return rest;
}

/* The upload of the vectors, and downloads of Q's columns from right to left. */
static clb_status orgqr_plan(struct qr_run *qr)
{
    struct clb_job *run = &qr->run;
    const size_t m = qr->x.rows, n = qr->x.cols;
    size_t each = clb_piece_columns(m * run->element, qr->nb);
    CLB_TRY(clb_job_plan(run, 1 + clb_div_up(n, each)));
    clb_job_add_columns(run, false, &qr->vectors, 0);
    for (size_t end = n, cols; end > 0; end -= cols) {
        cols = clb_min(each, end);
        const struct clb_dmat part = clb_dmat_part(&qr->x, 0, end - cols, m, cols);
        clb_job_add_columns(run, true, &part, end - cols)->extent = cols;
    }
    return CLB_OK;
}

static clb_status orgqr_open(struct qr_run *qr, struct clb_orgqr_result *result)
{
    struct clb_job *run = &qr->run;
    clb_status status = qr_open(qr, qr->call->k, &result->kernel);
    qr->vectors = (struct clb_dmat){.rows = qr->x.rows, .cols = qr->call->k};
    CLB_THEN(status,
             run->discrete ? clb_job_matrix(run, &qr->vectors) : clb_job_view(run, &qr->vectors));
    CLB_THEN(status, open_reflectors(qr, qr->vectors, qr->call->tau));
    if (status == CLB_OK && run->discrete)
        status = orgqr_plan(qr);
    return status == CLB_OK ? clb_job_begin(run) : status;
}

static clb_status make_q(struct qr_run *qr)
{
    struct clb_workspace *workspace = &qr->run.workspace;
    size_t m = qr->x.rows, n = qr->x.cols, blocks = clb_div_up(qr->call->k, qr->nb);
    clb_status status = clb_job_await(&qr->run, 0);
    CLB_THEN(status, clb_reflectors_form(&qr->reflectors, 0, qr->call->k));
    CLB_THEN(status, clb_dmat_trapezoid(workspace, &qr->x, &qr->x, false));
    for (size_t i = blocks; i-- > 0 && status == CLB_OK;) {
        size_t k = i * qr->nb;
        const struct clb_dmat c = clb_dmat_part(&qr->x, k, k, m - k, n - k);
        status = clb_reflectors_apply(&qr->reflectors, k, CLB_OP_N, &c);
    }
    /* The caller's columns hold the vectors until everything is known to have succeeded. */
    return status == CLB_OK ? clb_job_complete(&qr->run) : status;
}

clb_status clb_orgqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, struct clb_orgqr_result *result)
{
    struct qr_run qr = qr_of(runtime, variant, call);
    *result = (struct clb_orgqr_result){.columns_left = qr.x.cols, .kernel = variant->name};
    clb_status status = orgqr_open(&qr, result);
    CLB_THEN(status, make_q(&qr));
    CLB_THEN(status, clb_job_write_back(&qr.run, &qr.x));
    status = clb_job_end(&qr.run, status);
    result->columns_left -= clb_job_written(&qr.run);
    qr_close(&qr);
    return status;
}
