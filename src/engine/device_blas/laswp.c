/* Copies between places of device matrices: row interchanges, trapezoids, triangles. */
#include "device_blas.h"

#include <stdlib.h>
#include <string.h>

clb_status clb_row_permutation_make(struct clb_row_permutation *permutation, size_t rows)
{
    permutation->row = calloc(rows, sizeof *permutation->row);
    if (permutation->row == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < rows; i++)
        permutation->row[i] = (cl_uint)i;
    return CLB_OK;
}

void clb_row_permutation_free(struct clb_row_permutation *permutation)
{
    free(permutation->row);
    permutation->row = NULL;
}

static size_t take_move(struct clb_row_permutation *permutation, size_t row, struct clb_move *move)
{
    cl_uint from = permutation->row[row];
    if (from == row)
        return 0;
    permutation->row[row] = (cl_uint)row;
    *move = (struct clb_move){(cl_uint)row, from};
    return 1;
}

size_t clb_row_permutation_moves(struct clb_row_permutation *permutation, const int64_t *ipiv,
                                 size_t first, size_t count, struct clb_move *moves)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        size_t other = (size_t)ipiv[i] - 1;
        cl_uint held = permutation->row[first + i];
        permutation->row[first + i] = permutation->row[other];
        permutation->row[other] = held;
    }
    /* The top rows first, in order, so that neighbouring work-items write neighbouring rows. */
    for (size_t i = 0; i < count; i++)
        made += take_move(permutation, first + i, moves + made);
    for (size_t i = 0; i < count; i++)
        made += take_move(permutation, (size_t)ipiv[i] - 1, moves + made);
    return made;
}

clb_status clb_dmat_send_moves(struct clb_workspace *workspace, size_t count)
{
    if (count == 0)
        return CLB_OK;
    return clb_queue_write(workspace->queue, workspace->moves->mem, 0,
                           count * sizeof(struct clb_move), workspace->moves_host->host, 0, NULL,
                           NULL);
}

clb_status clb_dmat_move_by(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_moves *moves, size_t before, size_t gap)
{
    const cl_ulong offset = x->offset, ld = x->ld, cols = x->cols;
    const cl_ulong gap_first = before, gap_cols = gap, first = moves->first;
    const cl_uint count = (cl_uint)moves->count;
    const struct clb_argument arguments[] = {
        CLB_ARG(x->mem),   CLB_ARG(offset),     CLB_ARG(ld),    CLB_ARG(cols), CLB_ARG(gap_first),
        CLB_ARG(gap_cols), CLB_ARG(moves->mem), CLB_ARG(first), CLB_ARG(count)};
    if (count == 0 || cols == 0)
        return CLB_OK;
    return clb_workspace_launch(workspace, workspace->laswp, "clb_laswp", arguments,
                                CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_move(struct clb_workspace *workspace, const struct clb_dmat *x, size_t count)
{
    const struct clb_moves moves = {workspace->moves->mem, 0, count};
    return clb_dmat_move_by(workspace, x, &moves, x->cols, 0);
}

clb_status clb_dmat_move_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, size_t count)
{
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong rows = x->rows, cols = x->cols;
    const cl_uint moves = (cl_uint)count;
    const struct clb_argument arguments[] = {
        CLB_ARG(x->mem), CLB_ARG(x_offset), CLB_ARG(ldx),
        CLB_ARG(y->mem), CLB_ARG(y_offset), CLB_ARG(ldy),
        CLB_ARG(rows),   CLB_ARG(cols),     CLB_ARG(workspace->moves->mem),
        CLB_ARG(moves)};
    if (cols == 0)
        return CLB_OK;
    return clb_workspace_launch(workspace, workspace->laswp, "clb_laswp_copy", arguments,
                                CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_permute(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_dmat *y, cl_mem order)
{
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong rows = x->rows, cols = x->cols;
    const struct clb_argument arguments[] = {CLB_ARG(x->mem), CLB_ARG(x_offset), CLB_ARG(ldx),
                                             CLB_ARG(y->mem), CLB_ARG(y_offset), CLB_ARG(ldy),
                                             CLB_ARG(rows),   CLB_ARG(cols),     CLB_ARG(order)};
    return clb_workspace_launch(workspace, workspace->laswp, "clb_permute_rows", arguments,
                                CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_trapezoid(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, bool below)
{
    clb_precision precision = workspace->variant->precision;
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong rows = y->rows, cols = y->cols;
    const cl_uint copies = below;
    const struct clb_argument arguments[] = {
        CLB_ARG(x->mem),
        CLB_ARG(x_offset),
        CLB_ARG(ldx),
        CLB_ARG(y->mem),
        CLB_ARG(y_offset),
        CLB_ARG(ldy),
        CLB_ARG(rows),
        CLB_ARG(cols),
        {clb_precision_size(precision), clb_scalar_one(precision)},
        CLB_ARG(copies)};
    return clb_workspace_launch(workspace, workspace->laswp, "clb_trapezoid", arguments,
                                CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_triangle_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                                  const struct clb_dmat *y, bool upper)
{
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong n = y->cols;
    const cl_uint above = upper;
    const struct clb_argument arguments[] = {CLB_ARG(x->mem), CLB_ARG(x_offset), CLB_ARG(ldx),
                                             CLB_ARG(y->mem), CLB_ARG(y_offset), CLB_ARG(ldy),
                                             CLB_ARG(n),      CLB_ARG(above)};
    return clb_workspace_launch(workspace, workspace->laswp, "clb_triangle", arguments,
                                CLB_COUNT_OF(arguments));
}
