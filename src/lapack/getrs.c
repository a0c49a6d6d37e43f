/* LAPACK xGETRS in the caller's memory: the CPU interchanges rows of B when it copies them.
 *
 * A = P^T*L*U, so A*X = B is X = U^-1*L^-1*P*B, and op(A)*X = B is X = P^T*op(L)^-1*op(U)^-1*B. */
#include "solve.h"

#include <stdlib.h>

cl_uint *clb_pivot_order(const int64_t *ipiv, size_t n, bool backward)
{
    cl_uint *order = calloc(n, sizeof *order);
    if (order == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        order[i] = (cl_uint)i;
    for (size_t k = 0; k < n; k++) {
        size_t i = backward ? n - 1 - k : k, other = (size_t)ipiv[i] - 1;
        cl_uint held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
    return order;
}

struct clb_getrs clb_getrs_part(const struct clb_getrs *problem, const struct clb_rect *rect)
{
    struct clb_getrs part = *problem;
    size_t element = clb_precision_size(problem->precision);
    part.nrhs = rect->cols;
    part.b = (char *)problem->b + rect->col * problem->ldb * element;
    return part;
}

clb_status clb_getrs_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_getrs *problem, struct clb_gemm_progress *progress)
{
    bool transposed = problem->trans != CLB_OP_N;
    /* The order of P, row i of P*B is row order[i] of B; or that of P^T. */
    cl_uint *order = clb_pivot_order(problem->ipiv, problem->n, transposed);
    struct clb_solve_triangles triangles = {.steps = 2};
    struct clb_solve solve = {.work = &clb_solve_triangles_work,
                              .context = &triangles,
                              .precision = problem->precision,
                              .m = problem->n,
                              .n = problem->nrhs,
                              .cols_a = problem->n,
                              .alpha = clb_scalar_one(problem->precision),
                              .a = problem->a,
                              .b = problem->b,
                              .lda = problem->lda,
                              .ldb = problem->ldb,
                              .order_in = transposed ? NULL : order,
                              .order_out = transposed ? order : NULL,
                              .progress = progress};
    *progress = (struct clb_gemm_progress){0};
    if (order == NULL)
        return CLB_ERR_NOMEM;
    /* U is upper triangular; L is unit triangular. */
    triangles.step[transposed ? 0 : 1].upper = true;
    triangles.step[transposed ? 1 : 0].unit = true;
    triangles.step[0].op = triangles.step[1].op = problem->trans;
    clb_status status = clb_solve_run(runtime, variant, &solve);
    free(order);
    return status;
}
