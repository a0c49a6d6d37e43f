/* Checked sizes of matrices. */
#include "base.h"

clb_status clb_extent_bytes(size_t rows, size_t cols, size_t ld, size_t size, size_t *bytes)
{
    size_t elements, total;
    *bytes = 0;
    if (rows == 0 || cols == 0)
        return CLB_OK;
    if (__builtin_mul_overflow(cols - 1, ld, &elements) ||
        __builtin_add_overflow(elements, rows, &elements) ||
        __builtin_mul_overflow(elements, size, &total) || total > PTRDIFF_MAX)
        return CLB_ERR_RANGE;
    *bytes = total;
    return CLB_OK;
}
