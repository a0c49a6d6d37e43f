/* xORGQR and xUNGQR: columns of Q from the reflectors of xGEQRF. */
#include "qr.h"

#include <stdio.h>

struct orgqr {
    struct clb_dispatch dispatch;
    const struct clb_qr_call *call;
    const struct clb_next_qr *next;
    struct clb_orgqr problem;
    struct clb_orgqr_result result;
};

static const struct clb_qr_call *orgqr_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct orgqr *)dispatch)->call;
}

static bool orgqr_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_qr_call *call = orgqr_call_of(dispatch);
    return call->m >= 0 && call->n >= 0 && call->n <= call->m && call->k >= 0 &&
           call->k <= call->n && clb_ld_is_valid(call->lda, call->m) &&
           clb_work_is_valid(call, call->n);
}

/* Without reflectors Q is the identity. */
static bool orgqr_is_quick(const struct clb_dispatch *dispatch)
{
    return orgqr_call_of(dispatch)->n == 0 || orgqr_call_of(dispatch)->k == 0;
}

static clb_status orgqr_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct orgqr *orgqr = (struct orgqr *)dispatch;
    const struct clb_qr_call *call = orgqr->call;
    size_t n = (size_t)call->n;
    if (orgqr->next->orgqr == NULL)
        return CLB_ERR_UNSUPPORTED;
    orgqr->problem =
        (struct clb_orgqr){call->precision, (size_t)call->m,   n,        (size_t)call->k,
                           call->a,         (size_t)call->lda, call->tau};
    clb_status status = clb_orgqr_run(runtime, variant, &orgqr->problem, &orgqr->result);
    size_t written = n - orgqr->result.columns_left;
    if (status == CLB_ERR_UNSUPPORTED && written == 0)
        return status;
    dispatch->kernel = orgqr->result.kernel;
    dispatch->parts = n;
    dispatch->written = written;
    dispatch->share = status == CLB_OK ? 1 : (double)written / (double)n;
    return status;
}

static bool orgqr_complete(struct clb_dispatch *dispatch, clb_status status)
{
    const struct orgqr *orgqr = (const struct orgqr *)dispatch;
    const struct clb_orgqr rest = clb_orgqr_rest(&orgqr->problem, &orgqr->result);
    if (status != CLB_OK && rest.n > 0)
        orgqr->next->call_orgqr(orgqr->next->orgqr, &rest, orgqr->call->work, orgqr->call->lwork);
    return status != CLB_OK;
}

static void orgqr_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_qr_call *call = orgqr_call_of(dispatch);
    snprintf(text, size, "m=%lld n=%lld k=%lld", (long long)call->m, (long long)call->n,
             (long long)call->k);
}

bool clb_route_orgqr(struct clb_symbol *symbol, const struct clb_qr_call *call,
                     const struct clb_next_qr *next)
{
    static const struct clb_dispatch_ops type = {orgqr_is_valid, orgqr_is_quick, orgqr_run,
                                                 orgqr_complete, orgqr_describe};
    struct orgqr orgqr = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->orgqr,
                     .lapacke = call->lapacke,
                     .m = call->m,
                     .n = call->n,
                     .k = call->k,
                     .smallest = clb_qr_smallest(call->k, call->k),
                     .query = call->lwork == -1},
        .call = call,
        .next = next,
    };
    return clb_route_dispatch(&orgqr.dispatch);
}
