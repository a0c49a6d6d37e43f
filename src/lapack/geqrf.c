/* QR: the steps on the device's matrix. qr.h has the scheme. */
#include "qr.h"

clb_status clb_qr_open(struct clb_qr *qr, const struct clb_gemm_variant *variant,
                       clb_memory_kind kind)
{
    const struct clb_geqrf *problem = qr->problem;
    size_t m = problem->m, n = problem->n, bytes;
    qr->element = clb_precision_size(problem->precision);
    qr->inner = clb_min(m, n);
    qr->nb = clb_min(clb_reflectors_width(qr->runtime, variant), qr->inner);
    qr->x = (struct clb_dmat){.rows = m, .cols = n, .ld = clb_dmat_ld(m, qr->element)};
    const struct clb_workspace_limits limits = clb_reflectors_limits(m, qr->nb, false, n);
    clb_status status = clb_workspace_open(&qr->workspace, qr->runtime, variant, &limits);
    if (status != CLB_OK)
        return status;
    qr->result->kernel = qr->workspace.variant->name;
    status = clb_extent_bytes(qr->x.ld, n, qr->x.ld, qr->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(qr->runtime, kind, bytes, &qr->memory);
    if (status != CLB_OK)
        return status;
    qr->x.mem = qr->memory->mem;
    qr->reflectors = (struct clb_reflectors){
        .nb = qr->nb, .a = clb_dmat_part(&qr->x, 0, 0, m, qr->inner), .tau = qr->result->tau};
    return clb_reflectors_open(&qr->reflectors, &qr->workspace, n);
}

void clb_qr_close(struct clb_qr *qr, bool idle)
{
    clb_reflectors_close(&qr->reflectors, idle);
    clb_buffer_end(qr->runtime, qr->memory, idle);
    clb_workspace_close(&qr->workspace, idle);
}

size_t clb_qr_width(const struct clb_qr *qr, size_t k)
{
    return clb_min(qr->nb, qr->inner - k);
}

struct clb_dmat clb_qr_panel(const struct clb_qr *qr, size_t k)
{
    return clb_dmat_part(&qr->x, k, k, qr->x.rows - k, clb_qr_width(qr, k));
}

void clb_qr_factor(const struct clb_qr *qr, size_t k, void *panel, size_t ld)
{
    const struct clb_host_blas *next = qr->next;
    const struct clb_geqrf part = {qr->problem->precision, qr->x.rows - k, clb_qr_width(qr, k),
                                   panel, ld};
    void *tau = (char *)qr->result->tau + k * qr->element;
    /* xGEQRF is unblocked for so few columns, so xGEQRT is used where there is one. */
    if (next->geqrt == NULL || !next->geqrt(next, &part, tau))
        next->geqrf(next, &part, tau);
    qr->result->host_work +=
        clb_work_geqrf((double)part.m, (double)part.n, (double)clb_min(part.m, part.n));
}

clb_status clb_qr_prepare(struct clb_qr *qr, size_t k)
{
    size_t first = k + clb_qr_width(qr, k);
    return first < qr->x.cols ? clb_reflectors_form(&qr->reflectors, k, first) : CLB_OK;
}

clb_status clb_qr_apply(struct clb_qr *qr, size_t k, size_t first, size_t count)
{
    const struct clb_dmat c = clb_dmat_part(&qr->x, k, first, qr->x.rows - k, count);
    return clb_reflectors_apply(&qr->reflectors, k, CLB_OP_C, &c);
}

clb_status clb_geqrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_geqrf *problem, const struct clb_host_blas *next,
                         struct clb_geqrf_result *result)
{
    struct clb_qr qr = {.runtime = runtime, .problem = problem, .next = next, .result = result};
    result->columns_written = 0;
    result->host_work = 0;
    result->kernel = variant->name;
    if (!runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0)
        return clb_geqrf_run_stream(&qr, variant);
    return clb_geqrf_run_shared(&qr, variant);
}

void clb_geqrf_resume(const struct clb_geqrf *problem, const struct clb_host_blas *next,
                      struct clb_geqrf_result *result)
{
    size_t element = clb_precision_size(problem->precision), written = result->columns_written;
    size_t k = clb_min(written, clb_min(problem->m, problem->n));
    char *right = (char *)problem->a + written * problem->lda * element;
    if (written == problem->n)
        return;
    if (k > 0) {
        const struct clb_ormqr reflect = {.precision = problem->precision,
                                          .trans = CLB_OP_C,
                                          .m = problem->m,
                                          .n = problem->n - written,
                                          .k = k,
                                          .a = problem->a,
                                          .lda = problem->lda,
                                          .tau = result->tau,
                                          .c = right,
                                          .ldc = problem->lda};
        next->ormqr(next, &reflect);
    }
    if (k < problem->m) {
        const struct clb_geqrf rest = {problem->precision, problem->m - k, problem->n - written,
                                       right + k * element, problem->lda};
        next->geqrf(next, &rest, (char *)result->tau + k * element);
    }
    result->columns_written = problem->n;
}
