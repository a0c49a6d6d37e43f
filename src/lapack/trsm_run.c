/* BLAS xTRSM in the caller's memory. */
#include "solve.h"

struct clb_trsm clb_trsm_part(const struct clb_trsm *problem, const struct clb_rect *rect)
{
    struct clb_trsm part = *problem;
    size_t element = clb_precision_size(problem->precision);
    part.m = rect->rows;
    part.n = rect->cols;
    part.b = (char *)problem->b + (rect->row + rect->col * problem->ldb) * element;
    return part;
}

clb_status clb_trsm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_trsm *problem, struct clb_gemm_progress *progress)
{
    struct clb_solve_triangles triangles = {
        .step = {{problem->upper, problem->unit, problem->trans}}, .steps = 1};
    struct clb_solve solve = {.work = &clb_solve_triangles_work,
                              .context = &triangles,
                              .precision = problem->precision,
                              .right = problem->right,
                              .m = problem->m,
                              .n = problem->n,
                              .cols_a = problem->right ? problem->n : problem->m,
                              .alpha = problem->alpha,
                              .a = problem->a,
                              .b = problem->b,
                              .lda = problem->lda,
                              .ldb = problem->ldb,
                              .progress = progress};
    *progress = (struct clb_gemm_progress){0};
    return clb_solve_run(runtime, variant, &solve);
}
