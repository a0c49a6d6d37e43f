/* Transposes, triangles; search for NaN and infinity. SPDX-License-Identifier: BSD-3-Clause */
#include "blas.h"

#include <stdatomic.h>
#include <string.h>

/* Lines of the result that a thread takes at once, and the side of a block, which stays in the
 * cache while it is read along one side and written along the other. */
#define SHARE ((size_t)64)
#define BLOCK ((size_t)16)

enum transpose_kind { TRANSPOSE, COPY, FIND_NAN, FIND_NOT_FINITE };

struct transpose_work {
    enum transpose_kind kind;
    clb_precision precision;
    char part;
    size_t length, lines; /* of the result, or of what is searched */
    const char *from;
    char *to;
    size_t from_ld, to_ld; /* bytes from one line to the next */
    bool conjugate;
    atomic_bool found;
};

static inline __attribute__((always_inline)) void transpose_block(const struct transpose_work *work,
                                                                  size_t line, size_t lines,
                                                                  size_t at, size_t count,
                                                                  size_t element)
{
    for (size_t j = line; j < line + lines; j++) {
        const char *from = work->from + at * work->from_ld + j * element;
        char *to = work->to + j * work->to_ld + at * element;
        for (size_t i = 0; i < count; i++, from += work->from_ld, to += element)
            memcpy(to, from, element);
    }
}

static void conjugate_line(const struct transpose_work *work, size_t line)
{
    char *to = work->to + line * work->to_ld;
    for (size_t i = 0; i < work->length && work->precision == CLB_C; i++)
        ((float *)(void *)to)[2 * i + 1] *= -1;
    for (size_t i = 0; i < work->length && work->precision == CLB_Z; i++)
        ((double *)(void *)to)[2 * i + 1] *= -1;
}

static void transpose_lines(struct transpose_work *work, size_t line, size_t lines)
{
    const size_t element = clb_precision_size(work->precision);
    for (size_t at = 0; at < work->length; at += BLOCK) {
        const size_t count = clb_min(BLOCK, work->length - at);
        for (size_t j = line; j < line + lines; j += BLOCK) {
            const size_t width = clb_min(BLOCK, line + lines - j);
            if (element == 4)
                transpose_block(work, j, width, at, count, 4);
            else if (element == 8)
                transpose_block(work, j, width, at, count, 8);
            else
                transpose_block(work, j, width, at, count, 16);
        }
    }
    for (size_t j = line; j < line + lines && work->conjugate; j++)
        conjugate_line(work, j);
}

static bool any_nan(clb_precision precision, const void *x, size_t count)
{
    const float *s = x;
    const double *d = x;
    int found = 0;
    if (clb_precision_real_size(precision) == sizeof(float)) {
#pragma omp simd reduction(| : found)
        for (size_t i = 0; i < count; i++)
            found |= s[i] != s[i];
    } else {
#pragma omp simd reduction(| : found)
        for (size_t i = 0; i < count; i++)
            found |= d[i] != d[i];
    }
    return found != 0;
}

/* Lines are columns here. */
static void search_lines(struct transpose_work *work, size_t line, size_t lines)
{
    const size_t element = clb_precision_size(work->precision);
    size_t first, end;
    for (size_t j = line; j < line + lines && !atomic_load(&work->found); j++) {
        clb_part_rows(work->part, work->length, j, &first, &end);
        const char *const x = work->from + j * work->from_ld + first * element;
        if (work->kind == FIND_NAN
                ? any_nan(work->precision, x, (end - first) * clb_precision_parts(work->precision))
                : !clb_tile_is_finite(work->precision, end - first, 1, x, end - first))
            atomic_store(&work->found, true);
    }
}

void clb_copy_trapezoid(clb_precision precision, bool upper, ptrdiff_t diagonal, size_t rows,
                        size_t cols, const void *x, size_t ldx, void *y, size_t ldy)
{
    size_t element = clb_precision_size(precision);
    for (size_t j = 0; j < cols; j++) {
        /* The first row below the upper part, or of the lower part. */
        ptrdiff_t edge = diagonal + (ptrdiff_t)j + upper;
        size_t cut = edge < 0 ? 0 : clb_min((size_t)edge, rows);
        size_t first = upper ? 0 : cut, count = upper ? cut : rows - cut;
        memcpy((char *)y + (first + j * ldy) * element,
               (const char *)x + (first + j * ldx) * element, count * element);
    }
}

/* Lines are columns here too. */
static void copy_lines(struct transpose_work *work, size_t line, size_t lines)
{
    const size_t element = clb_precision_size(work->precision);
    const char *const from = work->from + line * work->from_ld;
    char *const to = work->to + line * work->to_ld;
    const ptrdiff_t diagonal = (ptrdiff_t)line + (work->part == 'l') - (work->part == 'u');
    if (work->part == 0)
        clb_copy_nontemporal(to, work->to_ld, from, work->from_ld, work->length * element, lines);
    else
        clb_copy_trapezoid(work->precision, work->part == 'U' || work->part == 'u', diagonal,
                           work->length, lines, from, work->from_ld / element, to,
                           work->to_ld / element);
}

static void do_lines(void *context, size_t thread, size_t begin, size_t end)
{
    struct transpose_work *work = context;
    (void)thread;
    if (work->kind == TRANSPOSE)
        transpose_lines(work, begin, end - begin);
    else if (work->kind == COPY)
        copy_lines(work, begin, end - begin);
    else
        search_lines(work, begin, end - begin);
}

/* True when something was found. */
static bool share_work(struct transpose_work *work, enum transpose_kind kind)
{
    work->kind = kind;
    if (work->length > 0 && work->lines > 0)
        clb_workers_share(work->lines, SHARE, CLB_MAX_WORKERS + 1, do_lines, work);
    return atomic_load(&work->found);
}

static struct transpose_work work_of(clb_precision precision, char part, size_t rows, size_t cols,
                                     const void *x, size_t ldx, void *y, size_t ldy)
{
    return (struct transpose_work){.precision = precision,
                                   .part = part,
                                   .length = rows,
                                   .lines = cols,
                                   .from = x,
                                   .to = y,
                                   .from_ld = ldx * clb_precision_size(precision),
                                   .to_ld = ldy * clb_precision_size(precision)};
}

void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate, bool alone)
{
    struct transpose_work work = work_of(precision, 0, rows, cols, x, ldx, y, ldy);
    work.conjugate = conjugate;
    if (alone)
        transpose_lines(&work, 0, cols);
    else
        (void)share_work(&work, TRANSPOSE);
}

bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part)
{
    struct transpose_work work = work_of(precision, part, rows, cols, x, ldx, NULL, 0);
    return share_work(&work, FIND_NAN);
}

bool clb_triangle_is_finite(clb_precision precision, char part, size_t n, const void *x, size_t ldx)
{
    struct transpose_work work = work_of(precision, part, n, n, x, ldx, NULL, 0);
    return !share_work(&work, FIND_NOT_FINITE);
}

void clb_copy_part(clb_precision precision, char part, size_t rows, size_t cols, const void *x,
                   size_t ldx, void *y, size_t ldy)
{
    struct transpose_work work = work_of(precision, part, rows, cols, x, ldx, y, ldy);
    (void)share_work(&work, COPY);
}
