/* SPDX-License-Identifier: BSD-3-Clause
 * Chooses between unified.c, for devices that share the host's memory, and discrete.c. */
#include "gemm.h"
#include "structure.h"

static bool is_begun(const struct clb_gemm_progress *progress)
{
    bool begun = false;
    for (size_t i = 0; i < progress->parts; i++)
        begun = begun || progress->written[i];
    return begun;
}

/* The variant that continues where another one ends with `status`; NULL: none. */
static const struct clb_gemm_variant *successor(const struct clb_gemm_variant *variant,
                                                clb_status status)
{
    if (status == CLB_ERR_RANGE)
        return variant->scaled != NULL ? variant->scaled : variant->plain;
    /* Scaling takes memory, without which other parts of C may be planned. */
    return variant->scales && (status == CLB_ERR_NOMEM || status == CLB_ERR_UNSUPPORTED)
               ? variant->plain
               : NULL;
}

/* A split variant may find operands outside its range while it packs them; what it has written by
 * then came from operands inside. The one that scales continues with the rest, and where a row's
 * elements are too far apart for that the plain one, in the same parts. */
clb_status clb_gemm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    bool resumes = false;
    *progress = (struct clb_gemm_progress){0};
    if (variant->split && problem->k < variant->tuning.value[CLB_PARAM_MIN_K])
        variant = variant->plain;
    if (clb_gemm_is_plain(problem))
        variant = clb_gemm_for(
            variant, runtime->device.units, problem->m, problem->n,
            clb_min(problem->k, clb_max(variant->tuning.value[CLB_PARAM_SLAB], 1)), false);
    for (;;) {
        bool discrete = resumes || !runtime->device.unified ||
                        variant->tuning.value[CLB_PARAM_STREAM] != 0 || variant->split;
        clb_status status = discrete || problem->count == 0 ? CLB_OK : CLB_ERR_UNSUPPORTED;
        if (problem->region != CLB_REGION_FULL || clb_gemm_adds_zeros(problem))
            status = clb_skip_prepare(runtime, variant);
        if (status == CLB_OK && !discrete) {
            status = clb_gemm_run_unified(runtime, variant, problem, progress);
            discrete = status == CLB_ERR_UNSUPPORTED;
            status = discrete ? CLB_OK : status;
        }
        if (status == CLB_OK && discrete)
            status = clb_gemm_run_discrete(runtime, variant, problem, progress);
        const struct clb_gemm_variant *next = successor(variant, status);
        if (next == NULL)
            return status;
        clb_log(CLB_LOG_INFO, "%s: %s, %s takes over", variant->name,
                status == CLB_ERR_RANGE ? "operands outside its range" : clb_status_name(status),
                next->name);
        variant = next;
        resumes = is_begun(progress);
        if (!resumes)
            clb_gemm_progress_free(progress);
    }
}

/* The operands, and the number of terms. `right`: A is on the right side. */
static void set_operands(const struct clb_call *call, bool right, struct clb_gemm *problem)
{
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    const clb_op other = call->transa != CLB_OP_N ? CLB_OP_N : hermitian ? CLB_OP_C : CLB_OP_T;
    struct clb_gemm_operand a = {
        .data = call->a, .ld = call->lda, .op = call->transa, .upper = call->upper};
    struct clb_gemm_operand b = {.data = call->b, .ld = call->ldb};
    problem->terms = 1;
    switch (call->kind) {
    case CLB_KIND_symm:
        a.op = CLB_OP_N;
        a.shape = hermitian ? CLB_STRUCTURE_HERMITIAN : CLB_STRUCTURE_SYMMETRIC;
        break;
    case CLB_KIND_trmm:
        a.shape = CLB_STRUCTURE_TRIANGULAR;
        a.unit = call->unit;
        break;
    case CLB_KIND_syrk:
        b = a;
        b.op = other;
        break;
    case CLB_KIND_syr2k:
        b.op = a.op;
        problem->terms = 2;
        problem->a[1] = b;
        problem->b[1] = a;
        b.op = problem->b[1].op = other;
        break;
    default:
        b.op = call->transb;
    }
    problem->a[0] = right ? b : a;
    problem->b[0] = right ? a : b;
}

clb_status clb_product_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_call *call, const struct clb_matrices *batch,
                           size_t count, struct clb_gemm_progress *progress)
{
    const clb_precision precision = call->precision;
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    const bool one_side = call->kind == CLB_KIND_symm || call->kind == CLB_KIND_trmm;
    const bool in_place = call->kind == CLB_KIND_trmm;
    struct clb_gemm problem = {
        .precision = precision,
        .m = call->m,
        .n = call->n,
        .k = one_side ? (size_t)clb_call_size(call, 'o') : call->k,
        .c = in_place ? call->b : call->c,
        .ldc = in_place ? call->ldb : call->ldc,
        .region = one_side || call->kind == CLB_KIND_gemm ? CLB_REGION_FULL
                  : call->upper                           ? CLB_REGION_UPPER
                                                          : CLB_REGION_LOWER,
        .real_diagonal = hermitian && !one_side,
        .in_place = in_place,
        .count = count,
        .batch = batch,
    };
    problem.alpha[0] =
        clb_scalar_get(precision, clb_routine_has_flag(call->routine, '*'), call->alpha);
    problem.alpha[1] =
        hermitian ? clb_scalar_conjugate(precision, problem.alpha[0]) : problem.alpha[0];
    if (!in_place)
        problem.beta =
            clb_scalar_get(precision, clb_routine_has_flag(call->routine, '+'), call->beta);
    set_operands(call, one_side && call->right, &problem);
    return clb_gemm_run(runtime, variant, &problem, progress);
}
