/* Matrices by rows as matrices by columns and back, and the search for NaN: work of the CPU, by as
 * many threads as are free. */
#include "algo.h"

#include <stdatomic.h>
#include <string.h>

/* Lines of the result that a thread takes at once, and the side of a block, which stays in the
 * cache while it is read along one side and written along the other. */
#define SHARE ((size_t)64)
#define BLOCK ((size_t)16)

struct work {
    clb_precision precision;
    size_t lines, length; /* of the result, or of what is searched */
    const char *from;
    char *to;
    size_t from_ld, to_ld; /* bytes from one line to the next */
    bool conjugate;
    char part;
    atomic_size_t next; /* line */
    atomic_bool found;
};

static inline __attribute__((always_inline)) void transpose_block(const struct work *work,
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

static void conjugate_line(const struct work *work, size_t line)
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

static void transpose_lines(struct work *work, size_t line, size_t lines)
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

/* Lines are columns here. */
static void search_lines(struct work *work, size_t line, size_t lines)
{
    const size_t parts = clb_precision_parts(work->precision);
    const size_t element = clb_precision_size(work->precision);
    for (size_t j = line; j < line + lines && !atomic_load(&work->found); j++) {
        const size_t first = work->part == 'L' ? clb_min(j, work->length) : 0;
        const size_t end = work->part == 'U' ? clb_min(j + 1, work->length) : work->length;
        const void *x = work->from + j * work->from_ld + first * element;
        const size_t count = (end - first) * parts;
        if (clb_precision_real_size(work->precision) == sizeof(float) ? any_nan_s(x, count)
                                                                      : any_nan_d(x, count))
            atomic_store(&work->found, true);
    }
}

static void take_shares(void *argument)
{
    struct work *work = argument;
    for (;;) {
        size_t line = atomic_fetch_add(&work->next, SHARE);
        if (line >= work->lines)
            return;
        if (work->to != NULL)
            transpose_lines(work, line, clb_min(SHARE, work->lines - line));
        else
            search_lines(work, line, clb_min(SHARE, work->lines - line));
    }
}

static void share_work(struct work *work)
{
    struct clb_workers workers;
    clb_workers_lend(&workers, clb_div_up(work->lines, SHARE) - 1, false);
    for (size_t i = 0; i < workers.count; i++)
        clb_workers_start(&workers, i, take_shares, work);
    take_shares(work);
    clb_workers_return(&workers);
}

void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate)
{
    const size_t element = clb_precision_size(precision);
    struct work work = {.precision = precision,
                        .lines = cols,
                        .length = rows,
                        .from = x,
                        .to = y,
                        .from_ld = ldx * element,
                        .to_ld = ldy * element,
                        .conjugate = conjugate && clb_precision_parts(precision) == 2};
    if (rows > 0 && cols > 0)
        share_work(&work);
}

bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part)
{
    struct work work = {.precision = precision,
                        .lines = cols,
                        .length = rows,
                        .from = x,
                        .from_ld = ldx * clb_precision_size(precision),
                        .part = part};
    if (rows > 0 && cols > 0)
        share_work(&work);
    return atomic_load(&work.found);
}
