/* Products from the caller's memory to the caller's memory: chooses between the ways of devices
 * that share the host's memory (unified.c) and of those that have their own (discrete.c). */
#include "gemm.h"
#include "discrete.h"
#include "unified.h"

#include <string.h>

struct clb_gemm clb_gemm_part(const struct clb_gemm *problem, const struct clb_rect *rect)
{
    struct clb_gemm part = *problem;
    size_t element = clb_precision_size(problem->precision);
    size_t a = rect->row * (problem->transa == CLB_OP_N ? 1 : problem->lda);
    size_t b = rect->col * (problem->transb == CLB_OP_N ? problem->ldb : 1);
    part.m = rect->rows;
    part.n = rect->cols;
    part.a = (const char *)problem->a + a * element;
    part.b = (const char *)problem->b + b * element;
    part.c = (char *)problem->c + (rect->row + rect->col * problem->ldc) * element;
    return part;
}

/* ---- the run --------------------------------------------------------------------------------- */

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

/* While a split variant packs operands, they may turn out to be outside its range. What it has
 * written by then came from operands inside the range. The one that scales continues with the rest,
 * and where a row's elements are too far apart for that the plain one, in the same way, because the
 * parts must be the same. */
clb_status clb_gemm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    bool resumes = false;
    *progress = (struct clb_gemm_progress){0};
    if (variant->split && problem->k < variant->tuning.value[CLB_PARAM_MIN_K])
        variant = variant->plain;
    if (problem->level3 == NULL)
        variant =
            clb_gemm_for(variant, runtime->device.units, problem->m, problem->n,
                         clb_min(problem->k, clb_max(variant->tuning.value[CLB_PARAM_SLAB], 1)));
    for (;;) {
        bool discrete = resumes || !runtime->device.unified ||
                        variant->tuning.value[CLB_PARAM_STREAM] != 0 || variant->split;
        struct clb_program *expander; /* nothing is prepared for kernels that are known to be bad */
        clb_status status = clb_structure_prepare(runtime, variant, problem, !discrete, &expander);
        if (status == CLB_OK && !discrete) {
            status = clb_gemm_run_unified(runtime, variant, problem, expander, progress);
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

/* ---- the other Level 3 routines -------------------------------------------------------------- */

static bool are_conjugate(clb_precision precision, const clb_scalar *x, const clb_scalar *y)
{
    clb_scalar conjugate = *y;
    if (precision == CLB_C)
        conjugate.s[1] = -y->s[1];
    else if (precision == CLB_Z)
        conjugate.d[1] = -y->d[1];
    return clb_scalar_equal(precision, x, &conjugate);
}

/* Only her2k has two different factors, and its terms are adjoint to each other. */
static bool is_supported(const struct clb_level3 *problem)
{
    const struct clb_level3_operand *a = problem->a, *b = problem->b;
    if (problem->terms == 1 ||
        clb_scalar_equal(problem->precision, &problem->alpha[0], &problem->alpha[1]))
        return true;
    return a[1].data == b[0].data && b[1].data == a[0].data && a[0].op != b[0].op &&
           (a[0].op == CLB_OP_N ? b[0].op : a[0].op) == CLB_OP_C && a[1].op == a[0].op &&
           b[1].op == b[0].op &&
           are_conjugate(problem->precision, &problem->alpha[0], &problem->alpha[1]);
}

clb_status clb_level3_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          const struct clb_level3 *problem, struct clb_gemm_progress *progress)
{
    bool scaled = problem->terms > 1 &&
                  !clb_scalar_equal(problem->precision, &problem->alpha[0], &problem->alpha[1]);
    const struct clb_gemm product = {
        .precision = problem->precision,
        .transa = problem->a[0].op,
        .transb = problem->b[0].op,
        .m = problem->m,
        .n = problem->n,
        .k = problem->k,
        .alpha = scaled ? clb_scalar_one(problem->precision) : &problem->alpha[0],
        .a = problem->a[0].data,
        .b = problem->b[0].data,
        .beta = problem->in_place ? clb_scalar_zero(problem->precision) : &problem->beta,
        .c = problem->c,
        .lda = problem->a[0].ld,
        .ldb = problem->b[0].ld,
        .ldc = problem->ldc,
        .level3 = problem};
    *progress = (struct clb_gemm_progress){0};
    if (!is_supported(problem))
        return CLB_ERR_UNSUPPORTED;
    return clb_gemm_run(runtime, variant, &product, progress);
}
