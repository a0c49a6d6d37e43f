/* LAPACK xGETRF on a device that has memory of its own. SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps are those of job.h; where the device factors the panels, those of getrf_lookahead.c.
 * When the last step is done the device copies columns, rows in the final order, to one of a few
 * chunks, from which the transfer queue writes them to the caller's matrix from left to right. */
#include "engine/transfer/transfer_queue.h"
#include "job.h"

#include <stdlib.h>

/* Chunks being downloaded at once. */
#define CHUNKS ((size_t)4)

struct getrf_discrete {
    struct clb_getrf_run *lu;
    struct clb_job *run;
    struct clb_gemm_progress *progress; /* of the right-hand sides, if any */
    struct clb_buffer *chunk[CHUNKS], *order;
    cl_uint *order_host; /* row order of a panel's columns at write-back */
    bool ahead;          /* the device factors the panels */
};

/* Add the downloads, each of columns with one row order. */
static void add_chunks(struct clb_getrf_run *lu, size_t chunk_cols)
{
    size_t m = lu->x.rows, n = lu->x.cols;
    for (size_t k = 0, end; k < n; k = end) {
        end = clb_getrf_order_end(lu, k, n);
        for (size_t j = k; j < end; j += chunk_cols) {
            const struct clb_dmat x = {.rows = m, .cols = clb_min(chunk_cols, end - j), .ld = m};
            clb_job_add_columns(&lu->run, true, &x, j)->extent = x.cols;
        }
    }
}

static clb_status discrete_open(struct getrf_discrete *discrete)
{
    struct clb_getrf_run *lu = discrete->lu;
    struct clb_job *run = discrete->run;
    CLB_TRY(clb_getrf_open(lu));
    size_t m = lu->x.rows, n = lu->x.cols;
    size_t widest = clb_max(clb_getrf_width(lu, 0), clb_min(lu->tail, lu->inner));
    size_t chunk_cols = clb_max(CLB_PIECE_BYTES / (m * run->element), 1);
    discrete->ahead = clb_getrf_is_on_device(lu, 0);
    CLB_TRY(clb_job_matrix(run, &lu->x));
    if (!discrete->ahead)
        CLB_TRY(
            clb_job_buffer(run, CLB_MEMORY_HOST, m * widest * run->element, &lu->panels.pinned));
    CLB_TRY(clb_job_plan(run, CLB_PANELS_UPLOADS + 2 * n));
    if (discrete->ahead)
        clb_lookahead_add_uploads(lu);
    else
        clb_panels_add_uploads(&lu->panels, lu->nb);
    add_chunks(lu, chunk_cols);
    for (size_t i = 0; i < clb_min(CHUNKS, run->downloads); i++)
        CLB_TRY(clb_job_buffer(run, CLB_MEMORY_DEVICE, m * chunk_cols * run->element,
                               &discrete->chunk[i]));
    CLB_TRY(clb_job_buffer(run, CLB_MEMORY_DEVICE, m * sizeof(cl_uint), &discrete->order));
    discrete->order_host = calloc(m, sizeof *discrete->order_host);
    if (discrete->order_host == NULL)
        return CLB_ERR_NOMEM;
    if (lu->solves)
        CLB_TRY(clb_getrf_make_parts(lu, discrete->progress));
    return clb_job_begin(run);
}

static clb_status send_order(struct getrf_discrete *discrete, size_t end)
{
    const struct clb_getrf_run *lu = discrete->lu;
    clb_getrf_order(lu, end, lu->inner, discrete->order_host);
    return clb_queue_write_now(lu->run.workspace.queue, discrete->order->mem, 0,
                               lu->x.rows * sizeof(cl_uint), discrete->order_host);
}

static clb_status send_chunk(struct getrf_discrete *discrete, size_t index, size_t first)
{
    struct clb_job *run = discrete->run;
    struct clb_transfer *transfer = &run->transfer[run->uploads + index];
    const struct clb_dmat from =
        clb_dmat_part(&discrete->lu->x, 0, first, discrete->lu->x.rows, transfer->x.cols);
    clb_status status = CLB_OK;
    if (index >= CHUNKS)
        status = clb_transfer_queue_await(run->transfers, run->uploads + index - CHUNKS, NULL);
    transfer->x.mem = discrete->chunk[index % CHUNKS]->mem;
    CLB_THEN(status, clb_dmat_permute(&run->workspace, &from, &transfer->x, discrete->order->mem));
    CLB_THEN(status, clb_queue_confirm(run->workspace.queue));
    return status == CLB_OK ? clb_job_publish(run, index) : status;
}

static clb_status discrete_write_back(struct getrf_discrete *discrete)
{
    const struct clb_getrf_run *lu = discrete->lu;
    const struct clb_transfer *download = discrete->run->transfer + discrete->run->uploads;
    size_t chunk = 0, n = lu->result->info == 0 ? lu->x.cols : lu->call->n;
    clb_status status = CLB_OK;
    for (size_t k = 0, end; k < n && status == CLB_OK; k = end) {
        end = clb_getrf_order_end(lu, k, n);
        status = send_order(discrete, end);
        for (size_t j = k; j < end && status == CLB_OK; j += download[chunk++].x.cols)
            status = send_chunk(discrete, chunk, j);
    }
    return status;
}

static clb_status discrete_run_steps(struct getrf_discrete *discrete)
{
    struct clb_getrf_run *lu = discrete->lu;
    if (discrete->ahead)
        return clb_lookahead_run(lu);
    clb_panels_copy_in(&lu->panels);
    return clb_panels_run(&lu->panels);
}

static void note_written(struct getrf_discrete *discrete)
{
    struct clb_gemm_progress *progress = discrete->progress;
    struct clb_factors *result = discrete->lu->result;
    size_t written = clb_job_written(discrete->run), n = discrete->lu->call->n;
    result->columns_written = clb_min(written, n);
    if (!discrete->lu->solves)
        return;
    for (size_t i = 0; i < progress->parts; i++)
        progress->written[i] = n + progress->part[i].col < written;
    progress->kernel = result->kernel;
    if (result->info != 0)
        clb_gemm_progress_free(progress);
}

clb_status clb_getrf_run_discrete(struct clb_getrf_run *lu, struct clb_gemm_progress *progress,
                                  bool *begun)
{
    struct getrf_discrete discrete = {.lu = lu, .run = &lu->run, .progress = progress};
    clb_status status = discrete_open(&discrete);
    *begun = lu->run.begun;
    CLB_THEN(status, discrete_run_steps(&discrete));
    if (status == CLB_OK && lu->solves && lu->result->info == 0)
        status = clb_getrf_solve_rhs(lu);
    CLB_THEN(status, clb_job_complete(&lu->run));
    CLB_THEN(status, discrete_write_back(&discrete));
    status = clb_job_end(&lu->run, status);
    if (*begun)
        note_written(&discrete);
    free(discrete.order_host);
    clb_getrf_close(lu);
    return status;
}
