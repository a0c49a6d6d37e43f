/* The C names of LAPACK (LAPACKE): decoded into the call that their Fortran names make.
 *
 * Integers and letters come by value, see abi.h; info is what the function returns. Names without
 * _work search their input for NaN unless the next library's switch is off. Matrices by rows are
 * copied by columns where the routine has no form of its own for them, see route's lapacke.c. */
#ifndef CLB_LAPACKE_H
#define CLB_LAPACKE_H

#include "abi.h"

#include "algo/dmat.h"

/* lapacke.c: whether the next library's functions of the symbol's form search for NaN. */
bool clb_lapacke_checks_nan(const struct clb_symbol *symbol, const void *caller);

/* The names with _work. */
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

/* Adds a matrix of the call and returns its leading dimension there; 0, which is never valid, where
 * the layout or the caller's leading dimension is not. */
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

/* The next library's result, after a call that was declined. */
CLB_INLINE int64_t clb_lapacke_end(const struct clb_symbol *symbol, const struct clb_target *target,
                                   double begin, int64_t result)
{
    clb_route_end_declined();
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
    return clb_c_int(result, target->ilp64);
}

#endif
