/* Copies a complete factorisation from host memory to the caller's matrix, and applies the
 * interchanges that its columns still lack. */
#include "getrf.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Columns that a thread takes at once. */
#define SHARE ((size_t)64)

struct getrf_write_writer {
    const struct clb_getrf_run *lu;
    const char *from;
    atomic_size_t *next; /* column */
    cl_uint *order;      /* the writer's own */
};

/* The first column of the panel that contains a column. */
static size_t getrf_write_panel_of(const struct clb_getrf_run *lu, size_t column, size_t *width)
{
    size_t k = 0;
    for (;;) {
        *width = clb_getrf_width(lu, k);
        if (column < k + *width || k + *width >= lu->inner)
            return k;
        k += *width;
    }
}

static void write_columns(const struct getrf_write_writer *writer, size_t begin, size_t end)
{
    const struct clb_getrf_run *lu = writer->lu;
    const struct clb_getrf *problem = lu->problem;
    size_t ordered = 0, top = lu->x.rows; /* writer->order is valid for columns before `ordered`;
                                           * rows before `top` are not moved */
    for (size_t j = begin; j < end; j++) {
        const char *from = writer->from + j * lu->x.ld * lu->element;
        char *to = (char *)problem->a + j * problem->lda * lu->element;
        if (j >= ordered) {
            size_t width, k = getrf_write_panel_of(lu, j, &width);
            bool later = k + width < lu->inner;
            clb_getrf_order(lu, k + width, lu->inner, writer->order);
            ordered = later ? k + width : lu->x.cols;
            top = later ? k + width : lu->x.rows;
        }
        memcpy(to, from, top * lu->element);
        clb_copy_ordered(problem->precision, lu->x.rows - top, 1, writer->order + top, from, 0,
                         to + top * lu->element, 0);
    }
}

static void getrf_write_shares(void *argument)
{
    const struct getrf_write_writer *writer = argument;
    size_t cols = writer->lu->x.cols;
    for (;;) {
        size_t begin = atomic_fetch_add(writer->next, SHARE);
        if (begin >= cols)
            return;
        write_columns(writer, begin, clb_min(begin + SHARE, cols));
    }
}

clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from, size_t threads)
{
    struct clb_workers workers;
    struct getrf_write_writer writer[CLB_MAX_WORKERS + 1];
    atomic_size_t next = 0;
    threads = clb_min(clb_min(clb_div_up(lu->x.cols, SHARE), threads), CLB_MAX_WORKERS + 1);
    cl_uint *order = calloc(clb_max(threads, 1) * lu->x.rows, sizeof *order);
    if (order == NULL)
        return CLB_ERR_NOMEM;
    clb_workers_lend(&workers, clb_max(threads, 1) - 1, false);
    for (size_t i = 0; i <= workers.count; i++)
        writer[i] = (struct getrf_write_writer){lu, from, &next, order + i * lu->x.rows};
    for (size_t i = 0; i < workers.count; i++)
        clb_workers_start(&workers, i, getrf_write_shares, &writer[i + 1]);
    getrf_write_shares(&writer[0]);
    clb_workers_return(&workers);
    lu->result->columns_written = lu->x.cols;
    free(order);
    return CLB_OK;
}
