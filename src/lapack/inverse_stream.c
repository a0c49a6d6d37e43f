/* Inverses on a device with its own memory. Block columns of the triangle are uploaded, and those
 * of the result are downloaded to private host memory. A product overwrites the given matrix. */
#include "transfer/transfer_queue.h"
#include "inverse.h"

#include <stdlib.h>

/* Columns of one transfer. */
#define COLUMNS ((size_t)512)

struct inverse_stream_run {
    struct clb_inverse_state *inverting;
    struct clb_buffer *memory[2]; /* of a and y; of x */
    void *host;                   /* for the result, with the device's leading dimension */
    size_t bytes;                 /* of each */
    struct clb_transfer_queue transfers;
    struct clb_transfer *transfer; /* the uploads, then the downloads */
    size_t loads;
};

static clb_status inverse_stream_get_memory(struct inverse_stream_run *run)
{
    struct clb_inverse_state *inverting = run->inverting;
    size_t ld = inverting->x.ld;
    clb_status status = clb_extent_bytes(ld, inverting->n, ld, inverting->element, &run->bytes);
    for (size_t i = 0; i < CLB_COUNT_OF(run->memory) && status == CLB_OK; i++)
        status = clb_buffer_get(inverting->runtime, CLB_MEMORY_DEVICE, run->bytes, &run->memory[i]);
    if (status != CLB_OK)
        return status;
    inverting->a.mem = inverting->y.mem = run->memory[0]->mem;
    inverting->x.mem = run->memory[1]->mem;
    run->host = clb_host_map(run->bytes);
    return run->host != NULL ? CLB_OK : CLB_ERR_NOMEM;
}

static clb_status inverse_stream_make_loads(struct inverse_stream_run *run)
{
    const struct clb_inverse_state *inverting = run->inverting;
    const struct clb_inverse *problem = inverting->problem;
    const struct clb_dmat *result = clb_inverting_result(inverting);
    size_t n = inverting->n;
    run->loads = clb_div_up(n, COLUMNS);
    run->transfer = calloc(2 * run->loads, sizeof *run->transfer);
    if (run->transfer == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < run->loads; i++) {
        size_t k = i * COLUMNS, width = clb_min(COLUMNS, n - k);
        struct clb_transfer *down = &run->transfer[run->loads + i];
        run->transfer[i] = clb_transfer_of_triangle(
            &inverting->a, inverting->element, problem->upper, k, width, problem->a, problem->lda);
        *down = clb_transfer_of_triangle(result, inverting->element, problem->upper, k, width,
                                         run->host, result->ld);
        down->down = true;
    }
    return CLB_OK;
}

static clb_status compute(struct inverse_stream_run *run)
{
    struct clb_inverse_state *inverting = run->inverting;
    struct clb_queue *queue = inverting->workspace.queue;
    clb_status status = CLB_OK;
    clb_transfer_queue_start(&run->transfers);
    for (size_t i = 0; i < run->loads && status == CLB_OK; i++)
        status = clb_transfer_queue_await(&run->transfers, i, queue);
    if (status == CLB_OK)
        status = clb_inverting_compute(inverting);
    for (size_t i = 0; i < run->loads && status == CLB_OK; i++)
        status = clb_transfer_queue_publish(&run->transfers, run->loads + i, queue);
    return clb_transfer_queue_finish(&run->transfers, status);
}

clb_status clb_inverse_run_stream(struct clb_inverse_state *inverting,
                                  const struct clb_gemm_variant *variant)
{
    struct inverse_stream_run run = {.inverting = inverting};
    clb_status status = clb_inverting_open(inverting, variant);
    if (status == CLB_OK)
        status = inverse_stream_get_memory(&run);
    if (status == CLB_OK)
        status = inverse_stream_make_loads(&run);
    if (status == CLB_OK)
        status = clb_transfer_queue_open(&run.transfers, inverting->workspace.queue_set,
                                         inverting->problem->precision, run.transfer, 2 * run.loads,
                                         variant->tuning.value[CLB_PARAM_THREADS]);
    if (status == CLB_OK)
        status = compute(&run);
    bool idle = clb_workspace_finish(&inverting->workspace);
    clb_transfer_queue_close(&run.transfers, idle);
    if (status == CLB_OK)
        status = clb_queue_set_check(inverting->workspace.queue_set);
    if (status == CLB_OK)
        status = clb_inverting_write(inverting, run.host, inverting->x.ld);
    free(run.transfer);
    if (run.host != NULL)
        clb_host_unmap(run.host, run.bytes);
    for (size_t i = 0; i < CLB_COUNT_OF(run.memory); i++)
        clb_buffer_end(inverting->runtime, run.memory[i], idle);
    clb_workspace_close(&inverting->workspace, idle);
    return status;
}
