/* xSYMM, xHEMM, xSYRK, xHERK, xSYR2K, xHER2K and xGEMMTR: C = alpha*(...) + beta*C, where A is
 * symmetric or Hermitian or where only a triangle of C is computed. */
#include "blas3.h"

#include <stdio.h>

struct blas3 {
    struct clb_dispatch dispatch;
    struct clb_blas3_traits traits;
    struct clb_blas3_call *call;
    const struct clb_next_blas3 *next;
    struct clb_gemm_progress progress;
};

/* ---- traits of the routines ------------------------------------------------------------------ */

static struct clb_blas3_traits traits_of(clb_routine routine)
{
    static const struct clb_blas3_traits traits[CLB_ROUTINES] = {
#define COMPLEX(name, ...)                                                                         \
    [CLB_ROUTINE_c##name] = {__VA_ARGS__}, [CLB_ROUTINE_z##name] = {__VA_ARGS__}
#define ALL(name, ...)                                                                             \
    [CLB_ROUTINE_s##name] = {__VA_ARGS__}, [CLB_ROUTINE_d##name] = {__VA_ARGS__},                  \
    COMPLEX(name, __VA_ARGS__)
        ALL(symm, CLB_SORT_SYMM, false, false, false),
        COMPLEX(hemm, CLB_SORT_SYMM, true, false, false),
        ALL(syrk, CLB_SORT_SYRK, false, false, false),
        COMPLEX(herk, CLB_SORT_SYRK, true, true, true),
        ALL(syr2k, CLB_SORT_SYR2K, false, false, false),
        COMPLEX(her2k, CLB_SORT_SYR2K, true, false, true),
        ALL(gemmtr, CLB_SORT_GEMMTR, false, false, false),
        ALL(gemmt, CLB_SORT_GEMMTR, false, false, false),
#undef ALL
#undef COMPLEX
    };
    return traits[routine];
}

bool clb_blas3_is_hermitian(clb_routine routine)
{
    return traits_of(routine).hermitian;
}

clb_op clb_blas3_adjoint(const struct clb_blas3_traits *traits, clb_op op)
{
    return op != CLB_OP_N ? CLB_OP_N : traits->hermitian ? CLB_OP_C : CLB_OP_T;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Valid values of TRANS when the result is symmetric or Hermitian: N, and T (symmetric) or C
 * (Hermitian); real routines take both. */
static bool is_valid_trans(clb_routine routine, clb_op trans)
{
    bool real = clb_precision_parts(clb_routine_get(routine)->precision) == 1;
    if (trans == CLB_OP_N || (real && trans != CLB_OP_INVALID))
        return true;
    return trans == (traits_of(routine).hermitian ? CLB_OP_C : CLB_OP_T);
}

clb_op clb_blas3_op_in_rows(clb_routine routine, clb_op op)
{
    const struct clb_blas3_traits traits = traits_of(routine);
    return is_valid_trans(routine, op) ? clb_blas3_adjoint(&traits, op) : CLB_OP_INVALID;
}

/* The position of xGEMMTR's first wrong argument in Fortran's list, 0 when all are right. */
static int first_wrong(const struct clb_blas3_call *call)
{
    const struct clb_blas3 *problem = &call->problem;
    if (!call->options_valid)
        return 1;
    if (problem->transa == CLB_OP_INVALID)
        return 2;
    if (problem->transb == CLB_OP_INVALID)
        return 3;
    if (call->n < 0)
        return 4;
    if (call->k < 0)
        return 5;
    if (!clb_ld_is_valid(call->lda, problem->transa == CLB_OP_N ? call->n : call->k))
        return 8;
    if (!clb_ld_is_valid(call->ldb, problem->transb == CLB_OP_N ? call->k : call->n))
        return 10;
    return clb_ld_is_valid(call->ldc, call->n) ? 0 : 13;
}

static bool blas3_is_valid(const struct clb_dispatch *dispatch)
{
    const struct blas3 *blas3 = (const struct blas3 *)dispatch;
    const struct clb_blas3_call *call = blas3->call;
    clb_op trans = call->problem.transa;
    int64_t rows = trans == CLB_OP_N ? call->n : call->k;
    if (blas3->traits.sort == CLB_SORT_GEMMTR)
        return first_wrong(call) == 0;
    if (!call->options_valid || call->m < 0 || call->n < 0 || call->k < 0 ||
        !clb_ld_is_valid(call->ldc, call->m))
        return false;
    if (blas3->traits.sort == CLB_SORT_SYMM)
        return clb_ld_is_valid(call->lda, call->k) && clb_ld_is_valid(call->ldb, call->m);
    return is_valid_trans(dispatch->symbol->routine, trans) && clb_ld_is_valid(call->lda, rows) &&
           (blas3->traits.sort == CLB_SORT_SYRK || clb_ld_is_valid(call->ldb, rows));
}

clb_scalar clb_scalar_get(clb_precision precision, bool real, const void *value)
{
    clb_scalar scalar = {.d = {0, 0}};
    bool pair = clb_precision_parts(precision) == 2 && !real;
    if (clb_precision_real_size(precision) == sizeof(float)) {
        scalar.s[0] = ((const float *)value)[0];
        scalar.s[1] = pair ? ((const float *)value)[1] : 0;
    } else {
        scalar.d[0] = ((const double *)value)[0];
        scalar.d[1] = pair ? ((const double *)value)[1] : 0;
    }
    return scalar;
}

/* No multiplication: the reference returns, scales C or clears it. */
static bool blas3_is_quick(const struct clb_dispatch *dispatch)
{
    const struct blas3 *blas3 = (const struct blas3 *)dispatch;
    const struct clb_blas3_call *call = blas3->call;
    clb_precision precision = call->problem.precision;
    clb_scalar alpha = clb_scalar_get(precision, blas3->traits.real_alpha, call->problem.alpha);
    return call->m == 0 || call->n == 0 || call->k == 0 || clb_scalar_is_zero(precision, &alpha);
}

/* ---- on the device --------------------------------------------------------------------------- */

static void blas3_take_sizes(struct clb_blas3_call *call)
{
    call->problem.m = (size_t)call->m;
    call->problem.n = (size_t)call->n;
    call->problem.k = (size_t)call->k;
    call->problem.lda = (size_t)call->lda;
    call->problem.ldb = (size_t)call->ldb;
    call->problem.ldc = (size_t)call->ldc;
}

clb_scalar clb_scalar_conjugate(clb_precision precision, clb_scalar scalar)
{
    if (clb_precision_real_size(precision) == sizeof(float))
        scalar.s[1] = -scalar.s[1];
    else
        scalar.d[1] = -scalar.d[1];
    return scalar;
}

static void blas3_set_operands(const struct clb_blas3_traits *traits, const struct clb_blas3 *p,
                               struct clb_level3 *level3)
{
    struct clb_level3_operand a = {.data = p->a, .ld = p->lda, .op = p->transa, .upper = p->upper};
    struct clb_level3_operand b = {.data = p->b, .ld = p->ldb, .op = p->transb};
    switch (traits->sort) {
    case CLB_SORT_SYMM:
        a.shape = traits->hermitian ? CLB_STRUCTURE_HERMITIAN : CLB_STRUCTURE_SYMMETRIC;
        level3->a[0] = p->right ? b : a;
        level3->b[0] = p->right ? a : b;
        break;
    case CLB_SORT_SYRK:
        level3->a[0] = level3->b[0] = a;
        level3->b[0].op = clb_blas3_adjoint(traits, p->transa);
        break;
    case CLB_SORT_SYR2K:
        b.op = a.op;
        level3->a[0] = level3->b[1] = a;
        level3->a[1] = level3->b[0] = b;
        level3->b[0].op = level3->b[1].op = clb_blas3_adjoint(traits, p->transa);
        break;
    default:
        level3->a[0] = a;
        level3->b[0] = b;
    }
}

static struct clb_level3 describe_problem(const struct clb_blas3_traits *traits,
                                          const struct clb_blas3 *p)
{
    clb_precision precision = p->precision;
    clb_scalar alpha = clb_scalar_get(precision, traits->real_alpha, p->alpha);
    struct clb_level3 level3 = {
        .precision = precision,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .terms = traits->sort == CLB_SORT_SYR2K ? 2 : 1,
        .alpha = {alpha, traits->hermitian ? clb_scalar_conjugate(precision, alpha) : alpha},
        .beta = clb_scalar_get(precision, traits->real_beta, p->beta),
        .c = p->c,
        .ldc = p->ldc,
        .region = traits->sort == CLB_SORT_SYMM ? CLB_REGION_FULL
                  : p->upper                    ? CLB_REGION_UPPER
                                                : CLB_REGION_LOWER,
        .real_diagonal = traits->hermitian && traits->sort != CLB_SORT_SYMM,
    };
    blas3_set_operands(traits, p, &level3);
    return level3;
}

static size_t area_of(const struct clb_gemm_progress *progress)
{
    size_t area = 0;
    for (size_t i = 0; i < progress->parts; i++)
        area += progress->part[i].rows * progress->part[i].cols;
    return area;
}

static clb_status blas3_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct blas3 *blas3 = (struct blas3 *)dispatch;
    if (blas3->next->gemm == NULL) {
        clb_log(CLB_LOG_INFO, "%s: there is no product of its integer width to finish it",
                dispatch->symbol->next.name);
        return CLB_ERR_UNSUPPORTED;
    }
    blas3_take_sizes(blas3->call);
    const struct clb_level3 problem = describe_problem(&blas3->traits, &blas3->call->problem);
    clb_status status = clb_level3_run(runtime, variant, &problem, &blas3->progress);
    clb_dispatch_take_progress(dispatch, &blas3->progress, status, area_of(&blas3->progress), 1);
    return status;
}

static void blas3_compute_next(struct clb_dispatch *dispatch, const struct clb_rect *rect)
{
    const struct blas3 *blas3 = (const struct blas3 *)dispatch;
    const struct clb_blas3 *problem = &blas3->call->problem;
    if (rect == NULL)
        clb_blas3_compute_next(problem, blas3->next);
    else
        clb_blas3_compute_part(&blas3->traits, problem, blas3->next, rect);
}

static bool blas3_complete(struct clb_dispatch *dispatch, clb_status status)
{
    return clb_dispatch_complete_parts(dispatch, &((struct blas3 *)dispatch)->progress, status,
                                       blas3_compute_next);
}

static void blas3_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    const struct blas3 *blas3 = (const struct blas3 *)dispatch;
    const struct clb_blas3_call *call = blas3->call;
    const struct clb_blas3 *problem = &call->problem;
    char options[4] = {problem->upper ? 'U' : 'L', clb_op_letter(problem->transa)};
    if (blas3->traits.sort == CLB_SORT_SYMM) {
        options[0] = problem->right ? 'R' : 'L';
        options[1] = problem->upper ? 'U' : 'L';
    } else if (blas3->traits.sort == CLB_SORT_GEMMTR) {
        options[2] = clb_op_letter(problem->transb);
    }
    snprintf(text, size, "%s m=%lld n=%lld k=%lld", options, (long long)call->m, (long long)call->n,
             (long long)call->k);
}

bool clb_route_blas3(struct clb_symbol *symbol, struct clb_blas3_call *call,
                     const struct clb_next_blas3 *next)
{
    static const struct clb_dispatch_ops type = {blas3_is_valid, blas3_is_quick, blas3_run,
                                                 blas3_complete, blas3_describe};
    struct blas3 blas3 = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->own,
                     .m = call->m,
                     .n = call->n,
                     .k = call->k,
                     .smallest =
                         clb_min(clb_min((size_t)call->m, (size_t)call->n), (size_t)call->k)},
        .traits = traits_of(symbol->routine),
        .call = call,
        .next = next,
    };
    bool computed = clb_route_dispatch(&blas3.dispatch);
    clb_gemm_progress_free(&blas3.progress);
    return computed;
}

int clb_route_compose_gemmtr(struct clb_blas3_call *call, const struct clb_next_blas3 *next)
{
    int wrong = first_wrong(call);
    blas3_take_sizes(call);
    if (wrong == 0)
        clb_blas3_compute_next(&call->problem, next);
    return wrong;
}
