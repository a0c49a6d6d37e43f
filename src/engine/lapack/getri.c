/* LAPACK xGETRI in the caller's memory. SPDX-License-Identifier: BSD-3-Clause
 *
 * A = P^T*L*U, so A^-1 = X*P with X*L = U^-1. As in LAPACK the solve with L is from the right,
 * which keeps X*A - I small. Rows of X don't depend on each other. Row i of U^-1 begins with column
 * i; the zeros before it are left out, so that this takes (4/3)n^3 operations, as many as LAPACK.
 *
 * The CPU interchanges the columns of X when it copies it over the factors. */
#include "rhs_blocks.h"

#include <stdlib.h>
#include <string.h>

/* The identity of order n, in memory where the inverse will overwrite it. */
static void *make_identity(clb_precision precision, size_t n, size_t ld)
{
    size_t element = clb_precision_size(precision), bytes;
    if (clb_extent_bytes(ld, n, ld, element, &bytes) != CLB_OK)
        return NULL;
    char *x = calloc(n, ld * element);
    if (x == NULL)
        return NULL;
    clb_pages_want_huge(x, bytes);
    for (size_t i = 0; i < n; i++)
        memcpy(x + i * (ld + 1) * element, clb_scalar_of(precision, 1), element);
    return x;
}

/* Solve Y*U = I and X*L = Y. Parts are blocks of rows, starting with row 0. The columns of Y before
 * a part's first row are zero. */
struct inverting {
    struct clb_solve_triangles triangles; /* first: the context of clb_solve_triangles_work */
    size_t row;
};

static clb_status invert_rows(struct clb_solve *solve, struct clb_workspace *workspace,
                              const struct clb_dmat *part)
{
    struct inverting *inverting = solve->context;
    const struct clb_dmat_triangle *packed = inverting->triangles.step;
    size_t n = solve->call.n, first = inverting->row / workspace->block * workspace->block;
    struct clb_dmat_triangle upper = packed[0];
    const struct clb_dmat y = clb_dmat_part(part, 0, first, part->rows, n - first);
    upper.a = clb_dmat_part(&upper.a, first, first, n - first, n - first);
    upper.at += first;
    inverting->row += part->rows;
    CLB_TRY(clb_dmat_solve(workspace, &upper, &y));
    return clb_dmat_solve(workspace, &packed[1], part);
}

clb_status clb_getri_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const char **kernel)
{
    size_t element = clb_precision_size(call->precision), n = call->n;
    size_t ld = clb_dmat_ld(n, element);
    cl_uint *order = clb_pivot_order(call, true);
    void *x = make_identity(call->precision, n, ld);
    struct clb_gemm_progress progress = {0};
    struct clb_solve_work work = clb_solve_triangles_work;
    struct inverting inverting = {
        .triangles = {.step = {{.upper = true}, {.unit = true}}, .steps = 2}};
    struct clb_solve solve = clb_solve_of(call, &inverting, &progress);
    clb_status status = CLB_ERR_NOMEM;
    work.apply = invert_rows;
    solve.work = &work;
    solve.cols_a = n;
    solve.call.right = true;
    solve.call.m = solve.call.n = n;
    solve.call.b = x;
    solve.call.ldb = ld;
    if (order != NULL && x != NULL) {
        status = clb_solve_run(runtime, variant, &solve);
        *kernel = progress.kernel;
        clb_gemm_progress_free(&progress);
    }
    if (status == CLB_OK) {
        struct clb_column_copy copy = {.from = x,
                                       .to = call->a,
                                       .from_step = ld * element,
                                       .to_step = call->lda * element,
                                       .bytes = n * element,
                                       .order = order};
        clb_workers_share(n, CLB_COLUMN_SHARE, CLB_MAX_WORKERS + 1, clb_copy_columns, &copy);
    }
    free(order);
    free(x);
    return status;
}
