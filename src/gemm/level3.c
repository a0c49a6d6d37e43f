/* Level 3 in the pipelines of GEMM. */
#include "level3.h"

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
