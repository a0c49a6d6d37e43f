/* LAPACK xORGQR and xUNGQR: Q = H1*...*Hb*I, from the last block to the first, so that block k only
 * changes rows and columns from its first on. Q has memory of its own, beside that of the vectors,
 * which a device that shares the host's memory uses in place. */
#include "engine/device_blas/larfb.h"
#include "engine/transfer/transfer_queue.h"
#include "job.h"

struct orgqr_run {
    struct clb_job run;
    const struct clb_call *call;
    struct clb_orgqr_result *result;
    size_t nb;
    struct clb_reflectors reflectors;
    struct clb_dmat q, vectors;
};

struct clb_call clb_orgqr_rest(const struct clb_call *call, const struct clb_orgqr_result *result)
{
    struct clb_call rest = *call;
    *(clb_call_is_adjoint(call) ? &rest.m : &rest.n) = result->columns_left;
    rest.k = clb_min(call->k, result->columns_left);
    return rest;
}

/* The transfers: the upload of the vectors, and downloads of Q's columns from right to left. */
static clb_status orgqr_plan(struct orgqr_run *qr)
{
    struct clb_job *run = &qr->run;
    const size_t m = qr->q.rows, n = qr->q.cols;
    size_t each = clb_piece_columns(m * run->element, qr->nb);
    clb_status status = clb_job_plan(run, 1 + clb_div_up(n, each));
    if (status != CLB_OK)
        return status;
    clb_job_add_columns(run, false, &qr->vectors, 0);
    for (size_t end = n, cols; end > 0; end -= cols) {
        cols = clb_min(each, end);
        const struct clb_dmat part = clb_dmat_part(&qr->q, 0, end - cols, m, cols);
        clb_job_add_columns(run, true, &part, end - cols)->extent = cols;
    }
    return CLB_OK;
}

static clb_status orgqr_open(struct orgqr_run *qr)
{
    const struct clb_call *call = qr->call;
    struct clb_job *run = &qr->run;
    qr->nb = clb_min(run->variant->tuning.value[CLB_PARAM_GEQRF_NB], call->k);
    const bool adjoint = clb_call_is_adjoint(call);
    const size_t m = adjoint ? call->n : call->m, n = adjoint ? call->m : call->n;
    qr->q = (struct clb_dmat){.rows = m, .cols = n};
    qr->vectors = (struct clb_dmat){.rows = m, .cols = call->k};
    const struct clb_workspace_limits limits = clb_reflectors_limits(m, qr->nb, false, n);
    clb_status status = clb_job_open(run, &limits);
    if (status != CLB_OK)
        return status;
    qr->result->kernel = run->workspace.variant->name;
    status = clb_job_matrix(run, &qr->q);
    if (status == CLB_OK)
        status =
            run->discrete ? clb_job_matrix(run, &qr->vectors) : clb_job_view(run, &qr->vectors);
    if (status != CLB_OK)
        return status;
    qr->reflectors = (struct clb_reflectors){.nb = qr->nb, .a = qr->vectors, .tau = call->tau};
    status = clb_reflectors_open(&qr->reflectors, &run->workspace, n);
    if (status == CLB_OK && run->discrete)
        status = orgqr_plan(qr);
    return status == CLB_OK ? clb_job_begin(run) : status;
}

static clb_status make_q(struct orgqr_run *qr)
{
    struct clb_workspace *workspace = &qr->run.workspace;
    size_t m = qr->q.rows, n = qr->q.cols, blocks = clb_div_up(qr->call->k, qr->nb);
    clb_status status = clb_job_await(&qr->run, 0);
    if (status == CLB_OK)
        status = clb_reflectors_form(&qr->reflectors, 0, qr->call->k);
    if (status == CLB_OK)
        status = clb_dmat_trapezoid(workspace, &qr->q, &qr->q, false);
    for (size_t i = blocks; i-- > 0 && status == CLB_OK;) {
        size_t k = i * qr->nb;
        const struct clb_dmat c = clb_dmat_part(&qr->q, k, k, m - k, n - k);
        status = clb_reflectors_apply(&qr->reflectors, k, CLB_OP_N, &c);
    }
    /* The caller's columns hold the vectors until everything is known to have succeeded. */
    return status == CLB_OK ? clb_job_complete(&qr->run) : status;
}

static clb_status orgqr_write_back(struct orgqr_run *qr)
{
    struct clb_job *run = &qr->run;
    bool written = false;
    clb_status status = CLB_OK;
    for (size_t i = 0; i < run->downloads && status == CLB_OK; i++)
        status = clb_job_publish(run, i);
    if (run->discrete)
        return status;
    status = clb_job_copy_out(run, &qr->q, &written);
    qr->result->columns_left = written ? 0 : qr->q.cols;
    return status;
}

clb_status clb_orgqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, struct clb_orgqr_result *result)
{
    const bool adjoint = clb_call_is_adjoint(call);
    const size_t n = adjoint ? call->m : call->n;
    const struct clb_caller caller = {call->a, call->lda, n, adjoint};
    struct orgqr_run qr = {.run = clb_job_on(runtime, variant, call->precision, caller),
                           .call = call,
                           .result = result};
    result->columns_left = n;
    result->kernel = variant->name;
    clb_status status = orgqr_open(&qr);
    if (status == CLB_OK)
        status = make_q(&qr);
    if (status == CLB_OK)
        status = orgqr_write_back(&qr);
    status = clb_job_end(&qr.run, status);
    if (qr.run.discrete)
        result->columns_left = n - clb_job_written(&qr.run);
    clb_reflectors_close(&qr.reflectors, qr.run.idle);
    clb_job_close(&qr.run);
    return status;
}
