/* LAPACK xGETRF on a device that shares the host's memory.
 *
 * The CPU factors panels in place, in memory of the shim. The device copies the caller's columns in
 * and applies the first step's interchanges in doing so; the CPU copies them out and applies those
 * of the later steps. So neither costs a pass of its own. SPDX-License-Identifier: BSD-3-Clause */
#include "job.h"

#include <stdlib.h>
#include <string.h>

struct getrf_writer {
    const struct clb_getrf_run *lu;
    const char *from;
    cl_uint *order; /* each thread's own, one after the other */
};

static void write_columns(void *context, size_t thread, size_t begin, size_t end)
{
    const struct getrf_writer *writer = context;
    const struct clb_getrf_run *lu = writer->lu;
    const struct clb_call *call = lu->call;
    const size_t rows = lu->x.rows, element = lu->run.element;
    cl_uint *order = writer->order + thread * rows;
    /* `order` is valid for columns before `ordered`; rows before `top` are not moved. */
    size_t ordered = 0, top = rows;
    for (size_t j = begin; j < end; j++) {
        const char *from = writer->from + j * lu->x.ld * element;
        char *to = (char *)call->a + j * call->lda * element;
        if (j >= ordered) {
            while (ordered <= j)
                ordered = clb_getrf_order_end(lu, ordered, lu->x.cols);
            top = ordered < lu->x.cols ? ordered : rows;
            if (top < rows)
                clb_getrf_order(lu, top, lu->inner, order);
        }
        memcpy(to, from, top * element);
        clb_copy_ordered(call->precision, rows - top, 1, order + top, from, 0, to + top * element,
                         call->lda);
    }
}

clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from, size_t threads)
{
    struct getrf_writer writer = {.lu = lu, .from = from};
    threads = clb_min(threads, CLB_MAX_WORKERS + 1);
    writer.order = calloc(threads * lu->x.rows, sizeof *writer.order);
    if (writer.order == NULL)
        return CLB_ERR_NOMEM;
    clb_workers_share(lu->x.cols, CLB_COLUMN_SHARE, threads, write_columns, &writer);
    lu->result->columns_written = lu->x.cols;
    free(writer.order);
    return CLB_OK;
}

/* Strip [j, j + width) of the panel [k, end) has been factored: apply its step to the rest of the
 * panel, and its interchanges to the strips on its left. */
static clb_status follow_strip(struct clb_getrf_run *lu, size_t k, size_t end, size_t j,
                               size_t width)
{
    const struct clb_dmat left = clb_dmat_part(&lu->x, 0, k, lu->x.rows, j - k);
    size_t first = j + width;
    clb_status status = clb_getrf_prepare(lu, j, width);
    CLB_THEN(status, clb_dmat_move(&lu->run.workspace, &left, lu->moves));
    if (status == CLB_OK && first < end)
        status = clb_getrf_apply(lu, j, width, first, end - first, false);
    return status;
}

static bool is_in_strips(const void *context, size_t k)
{
    const struct clb_getrf_run *lu = context;
    return clb_getrf_is_on_device(lu, k) || clb_getrf_width(lu, k) > lu->strip;
}

/* The CPU factors a panel in strips, because the device's other threads have no work while it
 * factors on one. A strip's moves have been sent when the next one is mapped, and at the end. */
static clb_status factor_strips(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    clb_status status = CLB_OK;
    if (clb_getrf_is_on_device(lu, k))
        return clb_getrf_factor_on_device(lu, k, width);
    for (size_t j = k; j < k + width && status == CLB_OK; j += lu->strip) {
        size_t cols = clb_min(lu->strip, k + width - j);
        status = clb_panels_factor_mapped(&lu->panels, j, cols);
        CLB_THEN(status, follow_strip(lu, k, k + width, j, cols));
    }
    return status == CLB_OK ? clb_job_complete(&lu->run) : status;
}

static clb_status prepare_and_copy(void *context, size_t k, size_t width)
{
    struct clb_getrf_run *lu = context;
    size_t first = k + width, count = lu->x.cols - first;
    clb_status status = clb_getrf_prepare(lu, k, width);
    if (status != CLB_OK || count == 0 || lu->caller.mem == NULL)
        return status;
    const struct clb_dmat from = clb_dmat_part(&lu->caller, 0, first, lu->x.rows, count);
    const struct clb_dmat to = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
    status = clb_dmat_move_copy(&lu->run.workspace, &from, &to, lu->moves);
    lu->caller.mem = NULL;
    lu->moves = 0;
    return status;
}

clb_status clb_getrf_run_unified(struct clb_getrf_run *lu)
{
    struct clb_panel_work work = clb_getrf_work;
    struct clb_job *run = &lu->run;
    void *mapped;
    work.is_in_place = is_in_strips;
    work.factor_in_place = factor_strips;
    work.prepare = prepare_and_copy;
    clb_status status = clb_getrf_open(lu);
    lu->panels.work = &work;
    CLB_THEN(status, clb_job_matrix(run, &lu->x));
    CLB_THEN(status, clb_job_copy_in(run, &lu->x, clb_getrf_width(lu, 0), &lu->caller));
    CLB_THEN(status, clb_panels_run(&lu->panels));
    CLB_THEN(status, clb_job_complete(run));
    CLB_THEN(status, clb_job_map(run, &lu->x, &mapped));
    if (status == CLB_OK) {
        status = clb_getrf_write_back(lu, mapped, run->runtime->device.units);
        clb_status unmapped = clb_job_unmap(run, &lu->x, mapped);
        status = status != CLB_OK ? status : unmapped;
    }
    status = clb_job_end(run, status);
    clb_getrf_close(lu);
    return status;
}
