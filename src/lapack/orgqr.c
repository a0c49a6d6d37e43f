/* LAPACK xORGQR and xUNGQR: Q = H1*...*Hb*I, from the last block to the first, so that block k only
 * changes rows and columns from its first on. Q has memory of its own, beside that of the
 * vectors. */
#include "transfer/transfer_queue.h"
#include "dense/reflect.h"
#include "lapack.h"
#include "dense/shared.h"

#include <stdlib.h>

struct orgqr_run {
    struct clb_runtime *runtime;
    const struct clb_orgqr *problem;
    struct clb_orgqr_result *result;
    size_t element, nb;
    struct clb_workspace workspace;
    struct clb_reflectors reflectors;
    struct clb_buffer *memory, *copy; /* of Q; of the vectors, NULL where they are used in place */
    struct clb_dmat q, vectors;
    cl_mem wrapped;
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer; /* upload of the vectors; downloads of Q's columns, from right to
                                    * left */
    size_t transfer_count;
};

struct clb_orgqr clb_orgqr_rest(const struct clb_orgqr *problem,
                                const struct clb_orgqr_result *result)
{
    struct clb_orgqr rest = *problem;
    rest.n = result->columns_left;
    rest.k = clb_min(problem->k, rest.n);
    return rest;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static clb_status orgqr_get_matrix(struct orgqr_run *run, clb_memory_kind kind, size_t cols,
                                   struct clb_dmat *x, struct clb_buffer **buffer)
{
    size_t bytes, ld = clb_dmat_ld(run->problem->m, run->element);
    clb_status status = clb_extent_bytes(ld, cols, ld, run->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(run->runtime, kind, bytes, buffer);
    if (status == CLB_OK)
        *x = (struct clb_dmat){(*buffer)->mem, 0, run->problem->m, cols, ld};
    return status;
}

static clb_status open_run(struct orgqr_run *run, const struct clb_gemm_variant *variant,
                           clb_memory_kind kind)
{
    const struct clb_orgqr *problem = run->problem;
    run->element = clb_precision_size(problem->precision);
    run->nb = clb_min(clb_reflectors_width(run->runtime, variant), problem->k);
    const struct clb_workspace_limits limits =
        clb_reflectors_limits(problem->m, run->nb, false, problem->n);
    clb_status status = clb_workspace_open(&run->workspace, run->runtime, variant, &limits);
    if (status != CLB_OK)
        return status;
    run->result->kernel = run->workspace.variant->name;
    return orgqr_get_matrix(run, kind, problem->n, &run->q, &run->memory);
}

static clb_status open_reflectors(struct orgqr_run *run)
{
    run->reflectors =
        (struct clb_reflectors){.nb = run->nb, .a = run->vectors, .tau = run->problem->tau};
    return clb_reflectors_open(&run->reflectors, &run->workspace, run->problem->n);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static clb_status make_q(struct orgqr_run *run)
{
    size_t m = run->q.rows, n = run->q.cols, blocks = clb_div_up(run->problem->k, run->nb);
    clb_status status = clb_reflectors_form(&run->reflectors, 0, run->problem->k);
    if (status == CLB_OK)
        status = clb_dmat_trapezoid(&run->workspace, &run->q, &run->q, false);
    for (size_t i = blocks; i-- > 0 && status == CLB_OK;) {
        size_t k = i * run->nb;
        const struct clb_dmat c = clb_dmat_part(&run->q, k, k, m - k, n - k);
        status = clb_reflectors_apply(&run->reflectors, k, CLB_OP_N, &c);
    }
    return status;
}

/* ---- where memory is shared: the caller's vectors are used in place -------------------------- */

static clb_status open_vectors(struct orgqr_run *run)
{
    const struct clb_orgqr *problem = run->problem;
    size_t bytes;
    clb_status status =
        clb_extent_bytes(problem->m, problem->k, problem->lda, run->element, &bytes);
    if (status != CLB_OK)
        return status;
    if (clb_buffer_wrap(run->runtime, problem->a, bytes, &run->wrapped) == CLB_OK) {
        run->vectors = (struct clb_dmat){run->wrapped, 0, problem->m, problem->k, problem->lda};
        return CLB_OK;
    }
    run->wrapped = NULL;
    status = orgqr_get_matrix(run, CLB_MEMORY_HOST, problem->k, &run->vectors, &run->copy);
    if (status == CLB_OK)
        status = clb_dmat_copy_in(&run->workspace, &run->vectors, problem->a, problem->lda);
    return status;
}

static clb_status run_shared(struct orgqr_run *run)
{
    bool written = false;
    clb_status status = open_vectors(run);
    if (status == CLB_OK)
        status = open_reflectors(run);
    if (status == CLB_OK)
        status = make_q(run);
    if (status == CLB_OK)
        status = clb_dmat_copy_out(&run->workspace, &run->q, run->problem->a, run->problem->lda,
                                   &written);
    run->result->columns_left = written ? 0 : run->problem->n;
    return status;
}

/* ---- a device with its own memory ------------------------------------------------------------ */

static clb_status orgqr_make_transfer(struct orgqr_run *run)
{
    const struct clb_orgqr *problem = run->problem;
    size_t each = clb_piece_columns(problem->m * run->element, run->nb);
    run->transfer = calloc(1 + clb_div_up(problem->n, each), sizeof *run->transfer);
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    run->transfer[run->transfer_count++] =
        (struct clb_transfer){.x = run->vectors,
                              .host = problem->a,
                              .ld = problem->lda,
                              .alpha = clb_scalar_one(problem->precision)};
    for (size_t end = problem->n; end > 0;) {
        size_t cols = clb_min(each, end);
        end -= cols;
        run->transfer[run->transfer_count++] =
            (struct clb_transfer){.down = true,
                                  .x = clb_dmat_part(&run->q, 0, end, problem->m, cols),
                                  .host = (char *)problem->a + end * problem->lda * run->element,
                                  .ld = problem->lda,
                                  .extent = cols};
    }
    return CLB_OK;
}

static clb_status travel(struct orgqr_run *run)
{
    clb_transfer_queue_start(&run->transfers);
    clb_status status = clb_transfer_queue_await(&run->transfers, 0, run->workspace.queue);
    if (status == CLB_OK)
        status = make_q(run);
    /* The caller's columns hold the vectors until everything is known to have succeeded. */
    if (status == CLB_OK)
        status = clb_queue_set_finish(run->workspace.queue_set);
    for (size_t i = 1; i < run->transfer_count && status == CLB_OK; i++)
        status = clb_transfer_queue_publish(&run->transfers, i, run->workspace.queue);
    status = clb_transfer_queue_finish(&run->transfers, status);
    for (size_t i = 0; i < run->transfers.arrived; i++)
        run->result->columns_left -= run->transfer[1 + i].x.cols;
    return status;
}

static clb_status run_stream(struct orgqr_run *run, size_t threads)
{
    clb_status status =
        orgqr_get_matrix(run, CLB_MEMORY_DEVICE, run->problem->k, &run->vectors, &run->copy);
    if (status == CLB_OK)
        status = open_reflectors(run);
    if (status == CLB_OK)
        status = orgqr_make_transfer(run);
    if (status == CLB_OK)
        status = clb_transfer_queue_open(&run->transfers, run->workspace.queue_set,
                                         run->problem->precision, run->transfer,
                                         run->transfer_count, threads);
    return status == CLB_OK ? travel(run) : status;
}

/* ---- the run --------------------------------------------------------------------------------- */

clb_status clb_orgqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_orgqr *problem, struct clb_orgqr_result *result)
{
    struct orgqr_run run = {.runtime = runtime, .problem = problem, .result = result};
    bool stream = !runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0;
    result->columns_left = problem->n;
    result->kernel = variant->name;
    clb_status status = open_run(&run, variant, stream ? CLB_MEMORY_DEVICE : CLB_MEMORY_HOST);
    if (status == CLB_OK)
        status =
            stream ? run_stream(&run, variant->tuning.value[CLB_PARAM_THREADS]) : run_shared(&run);
    bool idle = clb_workspace_finish(&run.workspace);
    if (status == CLB_OK)
        status = clb_queue_set_check(run.workspace.queue_set);
    clb_transfer_queue_close(&run.transfers, idle);
    free(run.transfer);
    if (run.wrapped != NULL && idle)
        clb_mem_release(run.wrapped);
    clb_reflectors_close(&run.reflectors, idle);
    clb_buffer_end(runtime, run.copy, idle);
    clb_buffer_end(runtime, run.memory, idle);
    clb_workspace_close(&run.workspace, idle);
    return status;
}
