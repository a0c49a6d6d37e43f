/* LAPACK xGEQRF in the caller's memory.
 *
 * Right-looking, blocked. Step k takes a panel of columns k ... k+w-1: the next library factors its
 * rows from k on, on the CPU; the device applies the block of reflectors, conjugate-transposed, to
 * the columns on the right (larfb.h). job.h has the order of the steps for both kinds of
 * memory.
 *
 * The memory of A may have A^H, as xGELQF's has: the copies to and from the device transpose, and
 * rows of the memory are written as columns of A would be.
 *
 * Nothing is written to the caller's matrix before the factorisation on the device is complete:
 * until then a failure means that the next library factors the intact matrix. The columns are
 * written back from left to right; a failure in it is what clb_geqrf_resume is for. */
#include "engine/device_blas/larfb.h"
#include "engine/transfer/transfer_queue.h"
#include "job.h"

struct geqrf_run {
    struct clb_job run;
    const struct clb_call *call;
    const struct clb_host_blas *next;
    struct clb_factors *result;
    size_t inner, nb; /* inner: min(m, n) */
    struct clb_reflectors reflectors;
    struct clb_panels panels;
    struct clb_dmat x; /* m x n, on the device */
};

/* ---- steps ----------------------------------------------------------------------------------- */

static size_t geqrf_width(const void *context, size_t k)
{
    const struct geqrf_run *qr = context;
    return clb_min(qr->nb, qr->inner - k);
}

static void geqrf_factor(void *context, size_t k, size_t width, void *panel, size_t ld)
{
    const struct geqrf_run *qr = context;
    const struct clb_host_blas *next = qr->next;
    struct clb_call part = clb_call_of(clb_routine_of(CLB_KIND_geqrf, qr->call->precision, false));
    part.m = qr->x.rows - k;
    part.n = width;
    part.a = panel;
    part.lda = ld;
    part.tau = (char *)qr->result->tau + k * qr->run.element;
    /* xGEQRF is unblocked for so few columns, so xGEQRT is used where there is one. */
    if (next->geqrt == NULL || !next->geqrt(next, &part))
        clb_host_call(next, &part);
    qr->result->host_work +=
        clb_work_of(CLB_STEM_geqrf, (double)part.m, (double)width, (double)clb_min(part.m, width));
}

static clb_status geqrf_prepare(void *context, size_t k, size_t width)
{
    struct geqrf_run *qr = context;
    size_t first = k + width;
    return first < qr->x.cols ? clb_reflectors_form(&qr->reflectors, k, first) : CLB_OK;
}

static clb_status geqrf_apply(void *context, size_t k, size_t width, size_t first, size_t count,
                              bool kept)
{
    struct geqrf_run *qr = context;
    const struct clb_dmat c = clb_dmat_part(&qr->x, k, first, qr->x.rows - k, count);
    (void)width;
    (void)kept;
    return clb_reflectors_apply(&qr->reflectors, k, CLB_OP_C, &c);
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status geqrf_open(struct geqrf_run *qr)
{
    const bool adjoint = clb_call_is_adjoint(qr->call);
    struct clb_job *run = &qr->run;
    size_t m = adjoint ? qr->call->n : qr->call->m, n = adjoint ? qr->call->m : qr->call->n;
    qr->inner = clb_min(m, n);
    qr->nb = clb_min(run->variant->tuning.value[CLB_PARAM_GEQRF_NB], qr->inner);
    qr->x = (struct clb_dmat){.rows = m, .cols = n};
    qr->panels.end = qr->inner;
    qr->panels.cols = n;
    const struct clb_workspace_limits limits = clb_reflectors_limits(m, qr->nb, false, n);
    clb_status status = clb_job_open(run, &limits);
    if (status != CLB_OK)
        return status;
    qr->result->kernel = run->workspace.variant->name;
    status = clb_job_matrix(run, &qr->x);
    if (status != CLB_OK)
        return status;
    qr->reflectors = (struct clb_reflectors){
        .nb = qr->nb, .a = clb_dmat_part(&qr->x, 0, 0, m, qr->inner), .tau = qr->result->tau};
    return clb_reflectors_open(&qr->reflectors, &run->workspace, n);
}

/* Unified memory: the CPU copies the first panel in, because it factors it, and the device the rest
 * where it can. Discrete memory: uploads begin, and the CPU copies the first panel to pinned
 * memory. */
static clb_status geqrf_bring_in(struct geqrf_run *qr)
{
    struct clb_job *run = &qr->run;
    size_t m = qr->x.rows, n = qr->x.cols, first = geqrf_width(qr, 0);
    struct clb_dmat caller;
    clb_status status;
    if (!run->discrete) {
        status = clb_job_copy_in(run, &qr->x, first, &caller);
        if (status != CLB_OK || caller.mem == NULL || first == n)
            return status;
        const struct clb_dmat from = clb_dmat_part(&caller, 0, first, m, n - first);
        const struct clb_dmat to = clb_dmat_part(&qr->x, 0, first, m, n - first);
        return clb_dmat_move_copy(&run->workspace, &from, &to, 0);
    }
    status = clb_panels_open(&qr->panels, qr->nb);
    if (status == CLB_OK)
        status = clb_job_plan(run, CLB_PANELS_UPLOADS + 1);
    if (status != CLB_OK)
        return status;
    clb_panels_add_uploads(&qr->panels, qr->nb);
    clb_job_add_columns(run, true, &qr->x, 0)->extent = clb_piece_columns(m * run->element, qr->nb);
    status = clb_job_begin(run);
    if (status == CLB_OK)
        clb_panels_copy_in(&qr->panels);
    return status;
}

clb_status clb_geqrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_factors *result)
{
    static const struct clb_panel_work work = {.width = geqrf_width,
                                               .factor = geqrf_factor,
                                               .prepare = geqrf_prepare,
                                               .apply = geqrf_apply};
    const bool adjoint = clb_call_is_adjoint(call);
    const struct clb_caller caller = {call->a, call->lda, adjoint ? call->m : call->n, adjoint};
    struct geqrf_run qr = {.run = clb_job_on(runtime, variant, call->precision, caller),
                           .call = call,
                           .next = next,
                           .result = result};
    qr.panels = (struct clb_panels){.run = &qr.run, .work = &work, .context = &qr, .x = &qr.x};
    *result = (struct clb_factors){.tau = result->tau, .kernel = variant->name};
    bool written = false;
    clb_status status = geqrf_open(&qr);
    if (status == CLB_OK)
        status = geqrf_bring_in(&qr);
    if (status == CLB_OK)
        status = clb_panels_run(&qr.panels);
    if (status == CLB_OK)
        status = clb_job_complete(&qr.run);
    if (status == CLB_OK)
        status = qr.run.discrete ? clb_job_publish(&qr.run, 0)
                                 : clb_job_copy_out(&qr.run, &qr.x, &written);
    status = clb_job_end(&qr.run, status);
    result->columns_written = qr.run.discrete ? clb_job_written(&qr.run) : written ? qr.x.cols : 0;
    clb_reflectors_close(&qr.reflectors, qr.run.idle);
    clb_job_close(&qr.run);
    return status;
}
