/* Level 3 in the pipelines of GEMM. */
#include "level3.h"

static bool is_plain(const struct clb_level3 *problem)
{
    return problem->terms == 1 && problem->region == CLB_REGION_FULL && !problem->in_place &&
           problem->a[0].shape == CLB_SHAPE_GENERAL && problem->b[0].shape == CLB_SHAPE_GENERAL;
}

clb_status clb_level3_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          const struct clb_level3 *problem, struct clb_gemm_progress *progress)
{
    const struct clb_gemm product = {.precision = problem->precision,
                                     .transa = problem->a[0].op,
                                     .transb = problem->b[0].op,
                                     .m = problem->m,
                                     .n = problem->n,
                                     .k = problem->k,
                                     .alpha = &problem->alpha[0],
                                     .a = problem->a[0].data,
                                     .b = problem->b[0].data,
                                     .beta = &problem->beta,
                                     .c = problem->c,
                                     .lda = problem->a[0].ld,
                                     .ldb = problem->b[0].ld,
                                     .ldc = problem->ldc};
    *progress = (struct clb_gemm_progress){0};
    if (!is_plain(problem))
        return CLB_ERR_UNSUPPORTED;
    return clb_gemm_run(runtime, variant, &product, progress);
}
