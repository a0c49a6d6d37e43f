/* xGEMM: C = alpha*op(A)*op(B) + beta*C. */
#include "dispatch.h"

#include <stdio.h>

struct gemm {
    struct clb_dispatch dispatch;
    struct clb_gemm_call *call;
    const struct clb_target *target;
    clb_next_gemm next;
    struct clb_gemm_progress progress;
};

static bool gemm_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_gemm_call *call = ((const struct gemm *)dispatch)->call;
    clb_op transa = call->problem.transa, transb = call->problem.transb;
    if (!call->layout_valid || transa == CLB_OP_INVALID || transb == CLB_OP_INVALID ||
        call->m < 0 || call->n < 0 || call->k < 0)
        return false;
    return clb_ld_is_valid(call->lda, transa == CLB_OP_N ? call->m : call->k) &&
           clb_ld_is_valid(call->ldb, transb == CLB_OP_N ? call->k : call->n) &&
           clb_ld_is_valid(call->ldc, call->m);
}

/* No multiplication: the reference returns, scales C or clears it. */
static bool gemm_is_quick(const struct clb_dispatch *dispatch)
{
    const struct clb_gemm_call *call = ((const struct gemm *)dispatch)->call;
    return call->m == 0 || call->n == 0 || call->k == 0 ||
           clb_scalar_is_zero(call->problem.precision, call->problem.alpha);
}

static void gemm_take_sizes(struct clb_gemm_call *call)
{
    call->problem.m = (size_t)call->m;
    call->problem.n = (size_t)call->n;
    call->problem.k = (size_t)call->k;
    call->problem.lda = (size_t)call->lda;
    call->problem.ldb = (size_t)call->ldb;
    call->problem.ldc = (size_t)call->ldc;
}

static clb_status gemm_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    struct gemm *gemm = (struct gemm *)dispatch;
    gemm_take_sizes(gemm->call);
    const struct clb_gemm *problem = &gemm->call->problem;
    clb_status status = clb_gemm_run(runtime, variant, problem, &gemm->progress);
    clb_dispatch_take_progress(dispatch, &gemm->progress, status, problem->m, problem->n);
    return status;
}

static void gemm_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    const struct gemm *gemm = (const struct gemm *)dispatch;
    struct clb_gemm part = gemm->call->problem;
    if (rect != NULL)
        part = clb_gemm_part(&gemm->call->problem, rect);
    gemm->next(gemm->target, &part);
}

static bool gemm_complete(struct clb_dispatch *dispatch, clb_status status)
{
    return clb_dispatch_complete_parts(dispatch, &((struct gemm *)dispatch)->progress, status,
                                       gemm_compute_next);
}

static void gemm_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_gemm_call *call = ((const struct gemm *)dispatch)->call;
    snprintf(text, size, "%c%c m=%lld n=%lld k=%lld", clb_op_letter(call->problem.transa),
             clb_op_letter(call->problem.transb), (long long)call->m, (long long)call->n,
             (long long)call->k);
}

bool clb_route_gemm(struct clb_symbol *symbol, const struct clb_target *target,
                    struct clb_gemm_call *call, clb_next_gemm next)
{
    static const struct clb_dispatch_ops type = {gemm_is_valid, gemm_is_quick, gemm_run,
                                                 gemm_complete, gemm_describe};
    struct gemm gemm = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = target,
                     .m = call->m,
                     .n = call->n,
                     .k = call->k,
                     .smallest =
                         clb_min(clb_min((size_t)call->m, (size_t)call->n), (size_t)call->k)},
        .call = call,
        .target = target,
        .next = next,
    };
    bool computed = clb_route_dispatch(&gemm.dispatch);
    clb_gemm_progress_free(&gemm.progress);
    return computed;
}
