/* SPDX-License-Identifier: BSD-3-Clause
 * Writing results to the caller's matrix, and which parts of them are written. */
#include "blas.h"

#include <stdlib.h>
#include <string.h>

/* Short columns lie on a page each, where the hardware's prefetchers stop: lines of C are
 * prefetched some columns before they are written. */
#define SHORT_COLUMN  ((size_t)4 << 10)
#define COLUMNS_AHEAD 4

static inline void fetch_column(const void *c, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch((const char *)c + at, 1);
}

#define CLB_REAL          float
#define CLB_MERGE         merge_s
#define CLB_FINITE        is_finite_s
#define CLB_MERGE_COMPLEX merge_c
#include "merge.t.h"

#define CLB_REAL          double
#define CLB_MERGE         merge_d
#define CLB_FINITE        is_finite_d
#define CLB_MERGE_COMPLEX merge_z
#include "merge.t.h"

/* Copy one column; `element` is a constant in each call. */
static inline void copy_ordered(size_t rows, const uint32_t *order, const char *x, char *y,
                                size_t element)
{
    for (size_t i = 0; i < rows; i++)
        memcpy(y + i * element, x + order[i] * element, element);
}

void clb_copy_ordered(clb_precision precision, size_t rows, size_t cols, const uint32_t *order,
                      const void *x, size_t ldx, void *y, size_t ldy)
{
    size_t element = clb_precision_size(precision);
    const char *from = x;
    char *to = y;
    for (size_t j = 0; j < cols; j++, from += ldx * element, to += ldy * element) {
        fetch_column(to + ldy * element, rows * element);
        if (element == 4)
            copy_ordered(rows, order, from, to, 4);
        else if (element == 8)
            copy_ordered(rows, order, from, to, 8);
        else
            copy_ordered(rows, order, from, to, 16);
    }
}

const void *clb_scalar_of(clb_precision precision, int x)
{
    static const float singles[][2] = {{-1}, {0}, {1}};
    static const double doubles[][2] = {{-1}, {0}, {1}};
    return clb_precision_real_size(precision) == sizeof(float) ? (const void *)singles[x + 1]
                                                               : doubles[x + 1];
}

bool clb_scalar_equal(clb_precision precision, const void *x, const void *y)
{
    const float *const xs = x, *const ys = y;
    const double *const xd = x, *const yd = y;
    const bool complex = clb_precision_parts(precision) == 2;
    return clb_precision_real_size(precision) == sizeof(float)
               ? xs[0] == ys[0] && (!complex || xs[1] == ys[1])
               : xd[0] == yd[0] && (!complex || xd[1] == yd[1]);
}

void clb_merge_tile(clb_precision precision, size_t m, size_t n, const void *alpha, const void *p,
                    size_t ldp, const void *beta, void *c, size_t ldc)
{
    switch (precision) {
    case CLB_S:
        merge_s(m, n, *(const float *)alpha, p, ldp, *(const float *)beta, c, ldc);
        break;
    case CLB_D:
        merge_d(m, n, *(const double *)alpha, p, ldp, *(const double *)beta, c, ldc);
        break;
    case CLB_C:
        merge_c(m, n, alpha, p, ldp, beta, c, ldc);
        break;
    default:
        merge_z(m, n, alpha, p, ldp, beta, c, ldc);
    }
}

bool clb_tile_is_finite(clb_precision precision, size_t m, size_t n, const void *p, size_t ldp)
{
    size_t parts = clb_precision_parts(precision);
    return clb_precision_real_size(precision) == sizeof(float)
               ? is_finite_s(parts * m, n, p, parts * ldp)
               : is_finite_d(parts * m, n, p, parts * ldp);
}

/* ---- progress ---- */

clb_status clb_gemm_progress_make(struct clb_gemm_progress *progress, size_t parts)
{
    progress->part = calloc(parts, sizeof *progress->part);
    progress->written = calloc(parts, sizeof *progress->written);
    if (progress->part == NULL || progress->written == NULL) {
        clb_gemm_progress_free(progress);
        return CLB_ERR_NOMEM;
    }
    progress->parts = parts;
    return CLB_OK;
}

void clb_gemm_progress_free(struct clb_gemm_progress *progress)
{
    free(progress->part);
    free(progress->written);
    *progress = (struct clb_gemm_progress){0};
}

clb_status clb_gemm_distrust(const struct clb_gemm *problem, struct clb_gemm_progress *progress)
{
    const void *zero = clb_scalar_of(problem->precision, 0);
    bool reads_c = problem->in_place ||
                   memcmp(&problem->beta, zero, clb_precision_size(problem->precision)) != 0;
    for (size_t i = 0; i < progress->parts && !reads_c; i++)
        progress->written[i] = false;
    if (reads_c)
        clb_log(CLB_LOG_WARN, "a command has failed, perhaps of a part that is written already");
    return CLB_ERR_OPENCL;
}
