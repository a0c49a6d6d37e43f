/* Triangular systems on device matrices.
 *
 * Every case is converted to T*X = B with T lower triangular in the order of elimination: T =
 * op(A), or op(A)^T with the rows of B as right-hand sides; where that is upper triangular the
 * indices are reversed. The recursion halves T: X1 from T11*X1 = B1, then B2 -= T21*X1 by GEMM,
 * then X2, so that most of the work is in deep products. Diagonal blocks are solved by substitution
 * (kernels/trsm.cl). */
#include "dense.h"

struct solve {
    struct clb_workspace *workspace;
    const struct clb_dmat_triangle *triangle;
    const struct clb_dmat *b;
    size_t n; /* order of A */
    bool reversed;
};

static bool trsm_is_reversed(const struct clb_dmat_triangle *triangle)
{
    bool as_stored = triangle->op == CLB_OP_N;
    return triangle->right ? triangle->upper != as_stored : triangle->upper == as_stored;
}

clb_status clb_dmat_pack_triangle(struct clb_workspace *workspace,
                                  const struct clb_dmat_triangle *triangle)
{
    const struct clb_dmat *a = &triangle->a;
    bool reversed = trsm_is_reversed(triangle);
    bool transposed = triangle->right != (triangle->op != CLB_OP_N);
    cl_long row = transposed ? (cl_long)a->ld : 1, col = transposed ? 1 : (cl_long)a->ld;
    const cl_ulong offset = a->offset + (reversed ? (a->rows - 1) * (a->ld + 1) : 0);
    const cl_long ai = reversed ? -row : row, ap = reversed ? -col : col;
    const cl_uint n = (cl_uint)a->rows, conjugate = triangle->op == CLB_OP_C;
    const cl_uint unit = triangle->unit;
    const cl_ulong packed = triangle->at * workspace->block;
    const struct clb_argument arguments[] = {
        CLB_ARG(a->mem), CLB_ARG(offset),    CLB_ARG(ai),   CLB_ARG(ap),
        CLB_ARG(n),      CLB_ARG(conjugate), CLB_ARG(unit), CLB_ARG(workspace->triangles->mem),
        CLB_ARG(packed)};
    return clb_workspace_launch(workspace, workspace->trsm, "clb_trsm_pack", arguments,
                                CLB_COUNT_OF(arguments));
}

/* Solve with diagonal block [i0, i0 + n) in the order of elimination. */
static clb_status solve_block(const struct solve *solve, size_t i0, size_t n)
{
    struct clb_workspace *workspace = solve->workspace;
    const struct clb_dmat *b = solve->b;
    bool right = solve->triangle->right;
    cl_long step = right ? (cl_long)b->ld : 1;
    size_t first = solve->reversed ? solve->n - 1 - i0 : i0;
    const cl_ulong packed = (solve->triangle->at + i0) * workspace->block,
                   rhs = right ? b->rows : b->cols;
    const cl_ulong offset = b->offset + first * (right ? b->ld : 1);
    const cl_long bi = solve->reversed ? -step : step, br = right ? 1 : (cl_long)b->ld;
    const cl_uint order = (cl_uint)n, unit = solve->triangle->unit;
    const struct clb_argument arguments[] = {CLB_ARG(workspace->triangles->mem),
                                             CLB_ARG(packed),
                                             CLB_ARG(order),
                                             CLB_ARG(unit),
                                             CLB_ARG(rhs),
                                             CLB_ARG(b->mem),
                                             CLB_ARG(offset),
                                             CLB_ARG(bi),
                                             CLB_ARG(br)};
    return clb_workspace_launch(workspace, workspace->trsm, "clb_trsm_solve", arguments,
                                CLB_COUNT_OF(arguments));
}

/* Limits for the sums of complex products. The device rounds each of the real products whose sum a
 * complex one is, where the reference rounds their sum. Sums over half the order, whose terms
 * cancel, had 1.3 times the reference's error (AX - B of random systems, n = 300 to 8192, H200,
 * 2026-11). So they are limited to an eighth of the order. The CPU family's kernel makes short sums
 * anyway. */
#define SUM_MIN   ((size_t)64)
#define SUM_SHARE ((size_t)8)

size_t clb_dmat_sum_depth(const struct clb_workspace *workspace, size_t n)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    if (clb_precision_parts(variant->precision) == 1 || variant->tuning.family == CLB_FAMILY_CPU)
        return 0;
    return clb_round_up(clb_max(n / SUM_SHARE, SUM_MIN), clb_gemm_depth_unit(variant));
}

/* B2 -= T21*X1 for [i0, i0 + n1) and [i0 + n1, i0 + n), in the order of elimination. */
static clb_status trsm_update(const struct solve *solve, size_t i0, size_t n1, size_t n)
{
    const struct clb_dmat_triangle *triangle = solve->triangle;
    const struct clb_dmat *a = &triangle->a, *b = solve->b;
    bool as_stored = triangle->op == CLB_OP_N;
    size_t n2 = n - n1;
    size_t first1 = solve->reversed ? solve->n - i0 - n1 : i0;
    size_t first2 = solve->reversed ? solve->n - i0 - n : i0 + n1;
    struct clb_dmat_update update;
    if (triangle->right) {
        update = (struct clb_dmat_update){.a = clb_dmat_part(b, 0, first1, b->rows, n1),
                                          .b = as_stored ? clb_dmat_part(a, first1, first2, n1, n2)
                                                         : clb_dmat_part(a, first2, first1, n2, n1),
                                          .op_b = triangle->op,
                                          .c = clb_dmat_part(b, 0, first2, b->rows, n2)};
    } else {
        update = (struct clb_dmat_update){.a = as_stored ? clb_dmat_part(a, first2, first1, n2, n1)
                                                         : clb_dmat_part(a, first1, first2, n1, n2),
                                          .op_a = triangle->op,
                                          .b = clb_dmat_part(b, first1, 0, n1, b->cols),
                                          .c = clb_dmat_part(b, first2, 0, n2, b->cols)};
    }
    update.depth = triangle->short_sums ? clb_dmat_sum_depth(solve->workspace, solve->n) : 0;
    return clb_dmat_update(solve->workspace, &update);
}

static clb_status solve_range(const struct solve *solve, size_t i0, size_t n)
{
    size_t block = solve->workspace->block;
    if (n <= block)
        return solve_block(solve, i0, n);
    size_t n1 = clb_round_up(n / 2, block);
    clb_status status = solve_range(solve, i0, n1);
    if (status == CLB_OK)
        status = trsm_update(solve, i0, n1, n);
    if (status == CLB_OK)
        status = solve_range(solve, i0 + n1, n - n1);
    return status;
}

clb_status clb_dmat_solve(struct clb_workspace *workspace, const struct clb_dmat_triangle *triangle,
                          const struct clb_dmat *b)
{
    const struct solve solve = {workspace, triangle, b, triangle->a.rows,
                                trsm_is_reversed(triangle)};
    if (b->rows == 0 || b->cols == 0)
        return CLB_OK;
    return solve_range(&solve, 0, solve.n);
}

/* All halves but the last are whole blocks. */
struct clb_workspace_limits clb_solve_limits(size_t n, bool right, size_t rhs)
{
    size_t half = clb_min(n / 2 + CLB_MAX_BLOCK, n);
    return (struct clb_workspace_limits){
        .m = right ? rhs : half, .n = right ? half : rhs, .k = half, .triangle = n};
}
