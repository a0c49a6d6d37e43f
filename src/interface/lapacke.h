/* LAPACKE functions are decoded into the call that the Fortran function would make.
 *
 * Integers and letters are passed by value, see abi.h; the function returns info. Names without
 * _work check their input for NaN unless the next library's switch for that is off. A row-major
 * matrix is copied to column-major order where the routine has no row-major form, see
 * src/route/lapacke.c. */
#ifndef CLB_LAPACKE_H
#define CLB_LAPACKE_H

#include "abi.h"

#include "dense/dense.h"

/* lapacke.c: true when the next library's functions of the symbol's form check for NaN. */
bool clb_lapacke_checks_nan(const struct clb_symbol *symbol, const void *caller);

/* True for the names with _work. */
CLB_INLINE bool clb_lapacke_is_work(const struct clb_symbol *symbol)
{
    return symbol->form >= CLB_FORM_lapacke_work;
}

CLB_INLINE struct clb_lapacke clb_lapacke_for(const struct clb_symbol *symbol, const void *caller,
                                              int layout)
{
    return (struct clb_lapacke){.precision = clb_routine_get(symbol->routine)->precision,
                                .by_rows = layout == CLB_ROW_MAJOR,
                                .checks = !clb_lapacke_is_work(symbol) &&
                                          clb_lapacke_checks_nan(symbol, caller)};
}

/* Adds a matrix of the call and returns its leading dimension in the Fortran call; 0, which is
 * never valid, when the layout or the caller's leading dimension is invalid. */
CLB_INLINE int64_t clb_lapacke_add(struct clb_lapacke *lapacke, int layout, int64_t ld,
                                   struct clb_lapacke_matrix matrix)
{
    const size_t element = clb_precision_size(lapacke->precision);
    const bool copied = lapacke->by_rows && matrix.use != CLB_LAPACKE_KEPT;
    if ((layout != CLB_ROW_MAJOR && layout != CLB_COL_MAJOR) ||
        ld < (lapacke->by_rows ? matrix.cols : matrix.rows) || matrix.rows < 0)
        return 0;
    matrix.ld = ld;
    matrix.ld_copied = copied ? (int64_t)clb_dmat_ld(clb_max((size_t)matrix.rows, 1), element) : ld;
    lapacke->matrix[lapacke->count++] = matrix;
    return matrix.ld_copied;
}

/* Called when the next library has returned `result` from a declined call; returns it as an integer
 * of its width. */
CLB_INLINE int64_t clb_lapacke_end(const struct clb_symbol *symbol, const struct clb_target *target,
                                   double begin, int64_t result)
{
    clb_route_end_declined();
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
    return clb_c_int(result, target->ilp64);
}

#endif
