/* Elements of device matrices put in other places: row interchanges, trapezoids, triangles. */
#include "dmat.h"

#include <stdlib.h>
#include <string.h>

clb_status clb_swapper_make(struct clb_swapper *swapper, size_t rows)
{
    swapper->row = calloc(rows, sizeof *swapper->row);
    if (swapper->row == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < rows; i++)
        swapper->row[i] = (cl_uint)i;
    return CLB_OK;
}

void clb_swapper_free(struct clb_swapper *swapper)
{
    free(swapper->row);
    swapper->row = NULL;
}

static size_t take_move(struct clb_swapper *swapper, size_t row, struct clb_move *move)
{
    cl_uint from = swapper->row[row];
    if (from == row)
        return 0;
    swapper->row[row] = (cl_uint)row;
    *move = (struct clb_move){(cl_uint)row, from};
    return 1;
}

size_t clb_swapper_moves(struct clb_swapper *swapper, const int64_t *ipiv, size_t first,
                         size_t count, struct clb_move *moves)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        size_t other = (size_t)ipiv[i] - 1;
        cl_uint held = swapper->row[first + i];
        swapper->row[first + i] = swapper->row[other];
        swapper->row[other] = held;
    }
    /* The top rows first, in order: neighbours are written by neighbours. */
    for (size_t i = 0; i < count; i++)
        made += take_move(swapper, first + i, moves + made);
    for (size_t i = 0; i < count; i++)
        made += take_move(swapper, (size_t)ipiv[i] - 1, moves + made);
    return made;
}

clb_status clb_dmat_send_moves(struct clb_engine *engine, size_t count)
{
    if (count == 0)
        return CLB_OK;
    return clb_queue_write(engine->queue, engine->moves->mem, 0, count * sizeof(struct clb_move),
                           engine->moves_host->host, 0, NULL, NULL);
}

static clb_status launch(struct clb_engine *engine, const char *name,
                         const struct clb_argument *arguments, size_t count)
{
    size_t global = engine->groups * engine->group, local = engine->group;
    cl_kernel kernel;
    clb_status status = clb_lane_kernel(engine->lane, engine->laswp, name, &kernel);
    if (status != CLB_OK)
        return status;
    return clb_lane_launch(engine->queue, kernel, name, arguments, count, 1, &global, &local, 0,
                           NULL, NULL);
}

clb_status clb_dmat_move_by(struct clb_engine *engine, const struct clb_dmat *x,
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
    return launch(engine, "clb_laswp", arguments, CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_move(struct clb_engine *engine, const struct clb_dmat *x, size_t count)
{
    const struct clb_moves moves = {engine->moves->mem, 0, count};
    return clb_dmat_move_by(engine, x, &moves, x->cols, 0);
}

clb_status clb_dmat_move_copy(struct clb_engine *engine, const struct clb_dmat *x,
                              const struct clb_dmat *y, size_t count)
{
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong rows = x->rows, cols = x->cols;
    const cl_uint moves = (cl_uint)count;
    const struct clb_argument arguments[] = {
        CLB_ARG(x->mem), CLB_ARG(x_offset), CLB_ARG(ldx),
        CLB_ARG(y->mem), CLB_ARG(y_offset), CLB_ARG(ldy),
        CLB_ARG(rows),   CLB_ARG(cols),     CLB_ARG(engine->moves->mem),
        CLB_ARG(moves)};
    if (cols == 0)
        return CLB_OK;
    return launch(engine, "clb_laswp_copy", arguments, CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_permute(struct clb_engine *engine, const struct clb_dmat *x,
                            const struct clb_dmat *y, cl_mem order)
{
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong rows = x->rows, cols = x->cols;
    const struct clb_argument arguments[] = {CLB_ARG(x->mem), CLB_ARG(x_offset), CLB_ARG(ldx),
                                             CLB_ARG(y->mem), CLB_ARG(y_offset), CLB_ARG(ldy),
                                             CLB_ARG(rows),   CLB_ARG(cols),     CLB_ARG(order)};
    return launch(engine, "clb_permute_rows", arguments, CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_trapezoid(struct clb_engine *engine, const struct clb_dmat *x,
                              const struct clb_dmat *y, bool below)
{
    clb_precision precision = engine->variant->precision;
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
    return launch(engine, "clb_trapezoid", arguments, CLB_COUNT_OF(arguments));
}

clb_status clb_dmat_triangle_copy(struct clb_engine *engine, const struct clb_dmat *x,
                                  const struct clb_dmat *y, bool upper)
{
    const cl_ulong x_offset = x->offset, ldx = x->ld, y_offset = y->offset, ldy = y->ld;
    const cl_ulong n = y->cols;
    const cl_uint above = upper;
    const struct clb_argument arguments[] = {CLB_ARG(x->mem), CLB_ARG(x_offset), CLB_ARG(ldx),
                                             CLB_ARG(y->mem), CLB_ARG(y_offset), CLB_ARG(ldy),
                                             CLB_ARG(n),      CLB_ARG(above)};
    return launch(engine, "clb_triangle", arguments, CLB_COUNT_OF(arguments));
}
