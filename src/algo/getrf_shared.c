/* LU on a device that shares the host's memory: the matrix is in memory of the shim that the CPU
 * reads and writes as well, so the panels are factored where they are. The device brings the
 * caller's columns in, with the first step's interchanges; the CPU takes them out, with those of
 * the later steps, so that neither costs a pass of its own. */
#include "lu.h"
#include "shared.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- panels ---------------------------------------------------------------------------------- */

static clb_status factor_panel(struct clb_lu *lu, size_t k, size_t width)
{
    const struct clb_dmat part = clb_dmat_part(&lu->x, k, k, lu->x.rows - k, width);
    void *panel;
    clb_status status = clb_dmat_map(&lu->engine, &part, &panel);
    if (status != CLB_OK)
        return status;
    if (!clb_lu_is_on_device(lu, k))
        clb_lu_factor(lu, k, width, panel, lu->x.ld);
    status = clb_dmat_unmap(&lu->engine, &part, panel);
    if (status == CLB_OK && clb_lu_is_on_device(lu, k))
        status = clb_lu_factor_there(lu, k, width);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static clb_status step(struct clb_lu *lu, const struct clb_dmat *caller, size_t k, size_t width)
{
    size_t first = k + width, count = lu->x.cols - first, moves;
    clb_status status = clb_lu_prepare(lu, k, width, &moves);
    if (status != CLB_OK || count == 0)
        return status;
    if (k == 0 && caller->mem != NULL) {
        const struct clb_dmat from = clb_dmat_part(caller, 0, first, lu->x.rows, count);
        const struct clb_dmat to = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
        status = clb_dmat_move_copy(&lu->engine, &from, &to, moves);
        moves = 0;
    }
    if (status == CLB_OK)
        status = clb_lu_apply(lu, k, width, first, count, moves, false);
    return status;
}

static clb_status run_steps(struct clb_lu *lu, const struct clb_dmat *caller)
{
    /* The first panel is brought in by the CPU, which factors it, and so is everything where the
     * device can't have the caller's matrix. */
    const struct clb_dmat part = clb_dmat_part(
        &lu->x, 0, 0, lu->x.rows, caller->mem != NULL ? clb_lu_width(lu, 0) : lu->x.cols);
    clb_status status = clb_dmat_copy_in(&lu->engine, &part, lu->problem->a, lu->problem->lda);
    for (size_t k = 0; k < lu->inner && status == CLB_OK;) {
        size_t width = clb_lu_width(lu, k);
        status = factor_panel(lu, k, width);
        if (status == CLB_OK)
            status = step(lu, caller, k, width);
        k += width;
    }
    return status;
}

/* ---- write-back ------------------------------------------------------------------------------ */

/* Columns that a thread takes at once. */
#define SHARE ((size_t)64)

struct writer {
    const struct clb_lu *lu;
    const char *from;
    atomic_size_t *next; /* column */
    cl_uint *order;      /* the writer's own */
};

/* The panel of a column. */
static size_t panel_of(const struct clb_lu *lu, size_t column, size_t *width)
{
    size_t k = 0;
    for (;;) {
        *width = clb_lu_width(lu, k);
        if (column < k + *width || k + *width >= lu->inner)
            return k;
        k += *width;
    }
}

static void write_columns(const struct writer *writer, size_t begin, size_t end)
{
    const struct clb_lu *lu = writer->lu;
    const struct clb_getrf *problem = lu->problem;
    size_t ordered = 0, top = lu->x.rows; /* columns for which the order holds, rows that stay */
    for (size_t j = begin; j < end; j++) {
        const char *from = writer->from + j * lu->x.ld * lu->element;
        char *to = (char *)problem->a + j * problem->lda * lu->element;
        if (j >= ordered) {
            size_t width, k = panel_of(lu, j, &width);
            bool later = k + width < lu->inner;
            clb_lu_order(lu, k, width, writer->order);
            ordered = later ? k + width : lu->x.cols;
            top = later ? k + width : lu->x.rows;
        }
        memcpy(to, from, top * lu->element);
        clb_copy_ordered(problem->precision, lu->x.rows - top, 1, writer->order + top, from, 0,
                         to + top * lu->element, 0);
    }
}

static void write_shares(void *argument)
{
    const struct writer *writer = argument;
    size_t cols = writer->lu->x.cols;
    for (;;) {
        size_t begin = atomic_fetch_add(writer->next, SHARE);
        if (begin >= cols)
            return;
        write_columns(writer, begin, clb_min(begin + SHARE, cols));
    }
}

/* By as many threads as the device has. Nothing of it can fail. */
static void write_back(struct clb_lu *lu, const char *from, cl_uint *order, size_t threads)
{
    struct clb_workers workers;
    struct writer writer[CLB_MAX_WORKERS + 1];
    atomic_size_t next = 0;
    clb_workers_lend(&workers, threads - 1, false);
    for (size_t i = 0; i <= workers.count; i++)
        writer[i] = (struct writer){lu, from, &next, order + i * lu->x.rows};
    for (size_t i = 0; i < workers.count; i++)
        clb_workers_start(&workers, i, write_shares, &writer[i + 1]);
    write_shares(&writer[0]);
    clb_workers_return(&workers);
    lu->result->columns_written = lu->x.cols;
}

static clb_status take_out(struct clb_lu *lu)
{
    size_t shares = clb_div_up(lu->x.cols, SHARE);
    size_t threads = clb_min(clb_min(shares, lu->runtime->device.units), CLB_MAX_WORKERS + 1);
    cl_uint *order = calloc(clb_max(threads, 1) * lu->x.rows, sizeof *order);
    void *mapped;
    clb_status status = order == NULL ? CLB_ERR_NOMEM : clb_dmat_map(&lu->engine, &lu->x, &mapped);
    if (status == CLB_OK) {
        write_back(lu, mapped, order, clb_max(threads, 1));
        status = clb_dmat_unmap(&lu->engine, &lu->x, mapped);
    }
    free(order);
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status open_matrices(struct clb_lu *lu, struct clb_dmat *caller)
{
    const struct clb_getrf *problem = lu->problem;
    size_t bytes;
    clb_status status = clb_extent_bytes(problem->m, problem->n, problem->lda, lu->element, &bytes);
    /* Without it the CPU copies. */
    if (status == CLB_OK && clb_buffer_wrap(lu->runtime, problem->a, bytes, &caller->mem) != CLB_OK)
        caller->mem = NULL;
    if (status == CLB_OK)
        status = clb_extent_bytes(lu->x.rows, lu->x.cols, lu->x.ld, lu->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(lu->runtime, CLB_MEMORY_HOST, bytes, &lu->memory);
    if (status == CLB_OK)
        lu->x.mem = lu->memory->mem;
    return status;
}

clb_status clb_getrf_run_shared(struct clb_lu *lu, const struct clb_gemm_variant *variant)
{
    struct clb_dmat caller = {
        .rows = lu->problem->m, .cols = lu->problem->n, .ld = lu->problem->lda};
    clb_status status = clb_lu_open(lu, variant);
    if (status == CLB_OK)
        status = open_matrices(lu, &caller);
    if (status == CLB_OK)
        status = run_steps(lu, &caller);
    if (status == CLB_OK)
        status = take_out(lu);
    bool idle = clb_engine_finish(&lu->engine);
    if (caller.mem != NULL && idle)
        clb_cl.ReleaseMemObject(caller.mem);
    clb_lu_close(lu, idle);
    return status;
}
