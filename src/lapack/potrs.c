/* LAPACK xPOTRS in the caller's memory: A = L*L^H, so A*X = B is X = L^-H*L^-1*B, where L may be
 * stored as U = L^H. */
#include "solve.h"

struct clb_potrs clb_potrs_part(const struct clb_potrs *problem, const struct clb_rect *rect)
{
    struct clb_potrs part = *problem;
    size_t element = clb_precision_size(problem->precision);
    part.nrhs = rect->cols;
    part.b = (char *)problem->b + rect->col * problem->ldb * element;
    return part;
}

clb_status clb_potrs_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_potrs *problem, struct clb_gemm_progress *progress)
{
    bool upper = problem->upper;
    struct clb_solve_triangles triangles = {.step = {{upper, false, upper ? CLB_OP_C : CLB_OP_N},
                                                     {upper, false, upper ? CLB_OP_N : CLB_OP_C}},
                                            .steps = 2};
    struct clb_solve solve = {.work = &clb_solve_triangles_work,
                              .context = &triangles,
                              .cols_a = problem->n,
                              .precision = problem->precision,
                              .m = problem->n,
                              .n = problem->nrhs,
                              .alpha = clb_scalar_one(problem->precision),
                              .a = problem->a,
                              .b = problem->b,
                              .lda = problem->lda,
                              .ldb = problem->ldb,
                              .progress = progress};
    *progress = (struct clb_gemm_progress){0};
    return clb_solve_run(runtime, variant, &solve);
}
