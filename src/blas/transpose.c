/* Matrices by rows as matrices by columns and back, copies of triangles, and the search for NaN and
 * infinity: work of the CPU, by as many threads as are free. */
#include "blas.h"
#include "host/workers.h"

#include <stdatomic.h>
#include <string.h>

/* Lines of the result that a thread takes at once, and the side of a block, which stays in the
 * cache while it is read along one side and written along the other. */
#define SHARE ((size_t)64)
#define BLOCK ((size_t)16)

struct transpose_work {
    clb_precision precision;
    enum { TRANSPOSE, COPY, FIND_NAN, FIND_NOT_FINITE } kind;
    size_t lines, length; /* of the result, or of what is searched */
    const char *from;
    char *to;
    size_t from_ld, to_ld; /* bytes from one line to the next */
    bool conjugate;
    char part;
    atomic_size_t next; /* line */
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
    if (work->precision == CLB_C) {
        for (size_t i = 0; i < work->length; i++)
            ((float *)(void *)to)[2 * i + 1] *= -1;
    } else {
        for (size_t i = 0; i < work->length; i++)
            ((double *)(void *)to)[2 * i + 1] *= -1;
    }
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

static bool any_nan_s(const float *x, size_t count)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (size_t i = 0; i < count; i++)
        found |= x[i] != x[i];
    return found != 0;
}

static bool any_nan_d(const double *x, size_t count)
{
    int found = 0;
#pragma omp simd reduction(| : found)
    for (size_t i = 0; i < count; i++)
        found |= x[i] != x[i];
    return found != 0;
}

static bool is_found(const struct transpose_work *work, const void *x, size_t elements)
{
    const size_t count = elements * clb_precision_parts(work->precision);
    if (work->kind == FIND_NOT_FINITE)
        return !clb_tile_is_finite(work->precision, elements, 1, x, elements);
    return clb_precision_real_size(work->precision) == sizeof(float) ? any_nan_s(x, count)
                                                                     : any_nan_d(x, count);
}

/* Lines are columns here. */
static void search_lines(struct transpose_work *work, size_t line, size_t lines)
{
    const size_t element = clb_precision_size(work->precision);
    const bool lower = work->part == 'L' || work->part == 'l';
    const bool upper = work->part == 'U' || work->part == 'u';
    for (size_t j = line; j < line + lines && !atomic_load(&work->found); j++) {
        const size_t first = lower ? clb_min(j + (work->part == 'l'), work->length) : 0;
        const size_t end = upper ? clb_min(j + (work->part == 'U'), work->length) : work->length;
        if (is_found(work, work->from + j * work->from_ld + first * element, end - first))
            atomic_store(&work->found, true);
    }
}

/* Lines are columns here too. */
static void copy_lines(struct transpose_work *work, size_t line, size_t lines)
{
    const size_t element = clb_precision_size(work->precision);
    const bool upper = work->part == 'U' || work->part == 'u';
    if (work->part == 0) {
        clb_copy_nontemporal(work->to + line * work->to_ld, work->to_ld,
                             work->from + line * work->from_ld, work->from_ld,
                             work->length * element, lines);
        return;
    }
    const ptrdiff_t diagonal = (ptrdiff_t)line + (work->part == 'l') - (work->part == 'u');
    clb_copy_trapezoid(work->precision, upper, diagonal, work->length, lines,
                       work->from + line * work->from_ld, work->from_ld / element,
                       work->to + line * work->to_ld, work->to_ld / element);
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

static void share_work(struct transpose_work *work)
{
    clb_workers_share(work->lines, SHARE, CLB_MAX_WORKERS + 1, do_lines, work);
}

static struct transpose_work transpose_of(clb_precision precision, size_t rows, size_t cols,
                                          const void *x, size_t ldx, void *y, size_t ldy,
                                          bool conjugate)
{
    const size_t element = clb_precision_size(precision);
    return (struct transpose_work){.precision = precision,
                                   .kind = TRANSPOSE,
                                   .lines = cols,
                                   .length = rows,
                                   .from = x,
                                   .to = y,
                                   .from_ld = ldx * element,
                                   .to_ld = ldy * element,
                                   .conjugate = conjugate && clb_precision_parts(precision) == 2};
}

void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate)
{
    struct transpose_work work = transpose_of(precision, rows, cols, x, ldx, y, ldy, conjugate);
    if (rows > 0 && cols > 0)
        share_work(&work);
}

void clb_copy_adjoint(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                      void *y, size_t ldy)
{
    struct transpose_work work = transpose_of(precision, rows, cols, x, ldx, y, ldy, true);
    transpose_lines(&work, 0, cols);
}

bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part)
{
    struct transpose_work work = {.precision = precision,
                                  .kind = FIND_NAN,
                                  .lines = cols,
                                  .length = rows,
                                  .from = x,
                                  .from_ld = ldx * clb_precision_size(precision),
                                  .part = part};
    if (rows > 0 && cols > 0)
        share_work(&work);
    return atomic_load(&work.found);
}

bool clb_triangle_is_finite(clb_precision precision, char part, size_t n, const void *x, size_t ldx)
{
    struct transpose_work work = {.precision = precision,
                                  .kind = FIND_NOT_FINITE,
                                  .lines = n,
                                  .length = n,
                                  .from = x,
                                  .from_ld = ldx * clb_precision_size(precision),
                                  .part = part};
    share_work(&work);
    return !atomic_load(&work.found);
}

void clb_copy_part(clb_precision precision, char part, size_t rows, size_t cols, const void *x,
                   size_t ldx, void *y, size_t ldy)
{
    const size_t element = clb_precision_size(precision);
    struct transpose_work work = {.precision = precision,
                                  .kind = COPY,
                                  .lines = cols,
                                  .length = rows,
                                  .from = x,
                                  .to = y,
                                  .from_ld = ldx * element,
                                  .to_ld = ldy * element,
                                  .part = part};
    if (rows > 0 && cols > 0)
        share_work(&work);
}
