/* LAPACKE calls: row-major matrices are copied to column-major order; a call with a NaN in its
 * input is declined, and the next library's function reports where it is. */
#include "dispatch.h"

#include <stdlib.h>

static bool is_copied(const struct clb_lapacke *lapacke, const struct clb_lapacke_matrix *matrix)
{
    return lapacke->by_rows && matrix->use != CLB_LAPACKE_KEPT;
}

static char other_part(char part)
{
    switch (part) {
    case 'U':
        return 'L';
    case 'L':
        return 'U';
    case 'u':
        return 'l';
    case 'l':
        return 'u';
    default:
        return part;
    }
}

/* The memory of a row-major matrix is that of its transpose in column-major order. */
static bool has_nan(const struct clb_lapacke *lapacke, const struct clb_lapacke_matrix *matrix)
{
    const bool by_rows = lapacke->by_rows;
    const char part = by_rows ? other_part(matrix->part) : matrix->part;
    return clb_has_nan(lapacke->precision, (size_t)(by_rows ? matrix->cols : matrix->rows),
                       (size_t)(by_rows ? matrix->rows : matrix->cols), *matrix->at,
                       (size_t)matrix->ld, part);
}

static clb_status copy_by_columns(const struct clb_lapacke *lapacke,
                                  struct clb_lapacke_matrix *matrix)
{
    size_t bytes;
    clb_status status =
        clb_extent_bytes((size_t)matrix->ld_copied, (size_t)matrix->cols, (size_t)matrix->ld_copied,
                         clb_precision_size(lapacke->precision), &bytes);
    if (status != CLB_OK || bytes == 0)
        return status;
    void *copy = malloc(bytes);
    if (copy == NULL)
        return CLB_ERR_NOMEM;
    clb_pages_want_huge(copy, bytes);
    clb_transpose(lapacke->precision, (size_t)matrix->rows, (size_t)matrix->cols, *matrix->at,
                  (size_t)matrix->ld, copy, (size_t)matrix->ld_copied, matrix->conjugated);
    matrix->callers = *matrix->at;
    *matrix->at = copy;
    return CLB_OK;
}

clb_reason clb_lapacke_open(struct clb_lapacke *lapacke)
{
    for (size_t i = 0; i < lapacke->count && lapacke->checks; i++) {
        if (has_nan(lapacke, &lapacke->matrix[i]))
            return CLB_REASON_INVALID;
    }
    for (size_t i = 0; i < lapacke->count; i++) {
        struct clb_lapacke_matrix *matrix = &lapacke->matrix[i];
        if (is_copied(lapacke, matrix) && copy_by_columns(lapacke, matrix) != CLB_OK) {
            clb_lapacke_close(lapacke, false);
            return CLB_REASON_NOMEMORY;
        }
    }
    return CLB_REASONS;
}

void clb_lapacke_close(struct clb_lapacke *lapacke, bool computed)
{
    for (size_t i = 0; i < lapacke->count; i++) {
        struct clb_lapacke_matrix *matrix = &lapacke->matrix[i];
        if (matrix->callers == NULL)
            continue;
        if (computed && matrix->use == CLB_LAPACKE_INOUT)
            clb_transpose(lapacke->precision, (size_t)matrix->cols, (size_t)matrix->rows,
                          *matrix->at, (size_t)matrix->ld_copied, matrix->callers,
                          (size_t)matrix->ld, matrix->conjugated);
        free(*matrix->at);
        *matrix->at = matrix->callers;
        matrix->callers = NULL;
    }
}
