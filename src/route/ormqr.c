/* xORMQR and xUNMQR: op(Q)*C or C*op(Q) from the reflectors of xGEQRF. */
#include "qr.h"

#include <stdio.h>

struct ormqr {
    struct clb_dispatch dispatch;
    const struct clb_qr_call *call;
    const struct clb_next_qr *next;
    struct clb_ormqr problem;
    struct clb_gemm_progress progress;
};

static const struct clb_qr_call *ormqr_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct ormqr *)dispatch)->call;
}

/* LAPACK accepts neither 'T' for complex reflectors nor 'C' for real ones. */
static bool trans_is_valid(const struct clb_qr_call *call)
{
    bool real = clb_precision_parts(call->precision) == 1;
    return call->trans == CLB_OP_N || call->trans == (real ? CLB_OP_T : CLB_OP_C);
}

static bool ormqr_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_qr_call *call = ormqr_call_of(dispatch);
    const int64_t order = call->right ? call->n : call->m;
    return call->options_valid && trans_is_valid(call) && call->m >= 0 && call->n >= 0 &&
           call->k >= 0 && call->k <= order && clb_ld_is_valid(call->lda, order) &&
           clb_ld_is_valid(call->ldc, call->m) &&
           clb_work_is_valid(call, call->right ? call->m : call->n);
}

static bool ormqr_is_quick(const struct clb_dispatch *dispatch)
{
    return ormqr_call_of(dispatch)->m == 0 || ormqr_call_of(dispatch)->n == 0 ||
           ormqr_call_of(dispatch)->k == 0;
}

static clb_status ormqr_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct ormqr *ormqr = (struct ormqr *)dispatch;
    const struct clb_qr_call *call = ormqr->call;
    if (ormqr->next->ormqr == NULL)
        return CLB_ERR_UNSUPPORTED;
    ormqr->problem = (struct clb_ormqr){.precision = call->precision,
                                        .right = call->right,
                                        .trans = call->trans,
                                        .m = (size_t)call->m,
                                        .n = (size_t)call->n,
                                        .k = (size_t)call->k,
                                        .a = call->a,
                                        .lda = (size_t)call->lda,
                                        .tau = call->tau,
                                        .c = call->c,
                                        .ldc = (size_t)call->ldc};
    clb_status status = clb_ormqr_run(runtime, variant, &ormqr->problem, &ormqr->progress);
    clb_dispatch_take_progress(dispatch, &ormqr->progress, status, ormqr->problem.m,
                               ormqr->problem.n);
    return status;
}

/* A part is a range of columns or rows of C, which do not depend on each other. */
static void ormqr_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    const struct ormqr *ormqr = (const struct ormqr *)dispatch;
    struct clb_ormqr part = ormqr->problem;
    if (rect != NULL)
        part = clb_ormqr_part(&ormqr->problem, rect);
    ormqr->next->call_ormqr(ormqr->next->ormqr, &part, ormqr->call->work, ormqr->call->lwork);
}

static bool ormqr_complete(struct clb_dispatch *dispatch, clb_status status)
{
    return clb_dispatch_complete_parts(dispatch, &((struct ormqr *)dispatch)->progress, status,
                                       ormqr_compute_next);
}

static void ormqr_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_qr_call *call = ormqr_call_of(dispatch);
    snprintf(text, size, "%c%c m=%lld n=%lld k=%lld", call->right ? 'R' : 'L',
             clb_op_letter(call->trans), (long long)call->m, (long long)call->n,
             (long long)call->k);
}

bool clb_route_ormqr(struct clb_symbol *symbol, const struct clb_qr_call *call,
                     const struct clb_next_qr *next)
{
    static const struct clb_dispatch_ops type = {ormqr_is_valid, ormqr_is_quick, ormqr_run,
                                                 ormqr_complete, ormqr_describe};
    const int64_t order = call->right ? call->n : call->m, others = call->right ? call->m : call->n;
    struct ormqr ormqr = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->ormqr,
                     .lapacke = call->lapacke,
                     .m = order,
                     .n = others,
                     .k = call->k,
                     .smallest = clb_qr_smallest(call->k, others),
                     .query = call->lwork == -1},
        .call = call,
        .next = next,
    };
    bool computed = clb_route_dispatch(&ormqr.dispatch);
    clb_gemm_progress_free(&ormqr.progress);
    return computed;
}
