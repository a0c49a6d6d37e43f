/* xTRSM: op(A)*X = alpha*B or X*op(A) = alpha*B, X overwrites B. xTRMM, with the same arguments and
 * checks: B = alpha*op(A)*B or B = alpha*B*op(A). */
#include "blas3.h"

#include <stdio.h>

struct trsm {
    struct clb_dispatch dispatch;
    struct clb_trsm_call *call;
    const struct clb_target *target;
    clb_next_trsm next;
    struct clb_gemm_progress progress;
};

static bool trsm_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_trsm_call *call = ((const struct trsm *)dispatch)->call;
    return call->options_valid && call->m >= 0 && call->n >= 0 &&
           clb_ld_is_valid(call->lda, call->problem.right ? call->n : call->m) &&
           clb_ld_is_valid(call->ldb, call->m);
}

/* No solve or product: the reference returns or clears B. */
static bool trsm_is_quick(const struct clb_dispatch *dispatch)
{
    const struct clb_trsm_call *call = ((const struct trsm *)dispatch)->call;
    return call->m == 0 || call->n == 0 ||
           clb_scalar_is_zero(call->problem.precision, call->problem.alpha);
}

static void trsm_take_sizes(struct clb_trsm_call *call)
{
    call->problem.m = (size_t)call->m;
    call->problem.n = (size_t)call->n;
    call->problem.lda = (size_t)call->lda;
    call->problem.ldb = (size_t)call->ldb;
}

static bool is_product(clb_routine routine)
{
    return routine == CLB_ROUTINE_strmm || routine == CLB_ROUTINE_dtrmm ||
           routine == CLB_ROUTINE_ctrmm || routine == CLB_ROUTINE_ztrmm;
}

static clb_status run_product(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                              const struct clb_trsm *p, struct clb_gemm_progress *progress)
{
    const struct clb_level3_operand a = {.data = p->a,
                                         .ld = p->lda,
                                         .op = p->trans,
                                         .shape = CLB_STRUCTURE_TRIANGULAR,
                                         .upper = p->upper,
                                         .unit = p->unit};
    const struct clb_level3_operand b = {.data = p->b, .ld = p->ldb, .op = CLB_OP_N};
    const struct clb_level3 level3 = {
        .precision = p->precision,
        .m = p->m,
        .n = p->n,
        .k = p->right ? p->n : p->m,
        .terms = 1,
        .a = {p->right ? b : a},
        .b = {p->right ? a : b},
        .alpha = {clb_scalar_get(p->precision, false, p->alpha)},
        .c = p->b,
        .ldc = p->ldb,
        .in_place = true,
    };
    return clb_level3_run(runtime, variant, &level3, progress);
}

static clb_status trsm_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    struct trsm *trsm = (struct trsm *)dispatch;
    trsm_take_sizes(trsm->call);
    const struct clb_trsm *problem = &trsm->call->problem;
    clb_status status = is_product(dispatch->symbol->routine)
                            ? run_product(runtime, variant, problem, &trsm->progress)
                            : clb_trsm_run(runtime, variant, problem, &trsm->progress);
    clb_dispatch_take_progress(dispatch, &trsm->progress, status, problem->m, problem->n);
    return status;
}

/* Parts are independent, and a missing part of X still has the values of B, from which the next
 * library computes it. */
static void trsm_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    const struct trsm *trsm = (const struct trsm *)dispatch;
    struct clb_trsm part = trsm->call->problem;
    if (rect != NULL)
        part = clb_trsm_part(&trsm->call->problem, rect);
    trsm->next(trsm->target, &part);
}

static bool trsm_complete(struct clb_dispatch *dispatch, clb_status status)
{
    return clb_dispatch_complete_parts(dispatch, &((struct trsm *)dispatch)->progress, status,
                                       trsm_compute_next);
}

static void trsm_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct clb_trsm_call *call = ((const struct trsm *)dispatch)->call;
    const struct clb_trsm *problem = &call->problem;
    snprintf(text, size, "%c%c%c%c m=%lld n=%lld", problem->right ? 'R' : 'L',
             problem->upper ? 'U' : 'L', clb_op_letter(problem->trans), problem->unit ? 'U' : 'N',
             (long long)call->m, (long long)call->n);
}

bool clb_route_trsm(struct clb_symbol *symbol, const struct clb_target *target,
                    struct clb_trsm_call *call, clb_next_trsm next)
{
    static const struct clb_dispatch_ops type = {trsm_is_valid, trsm_is_quick, trsm_run,
                                                 trsm_complete, trsm_describe};
    struct trsm trsm = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = target,
                     .m = call->m,
                     .n = call->n,
                     .k = call->problem.right ? call->n : call->m,
                     .smallest = clb_min((size_t)call->m, (size_t)call->n)},
        .call = call,
        .target = target,
        .next = next,
    };
    bool computed = clb_route_dispatch(&trsm.dispatch);
    clb_gemm_progress_free(&trsm.progress);
    return computed;
}
