/* Inverses on a device with its own memory: block columns of the triangle go up, and those of the
 * result come down into memory of the host that the caller does not see. A product takes the place
 * of what was given. */
#include "ferry.h"
#include "inverse.h"

#include <stdlib.h>

/* Columns of a load. */
#define COLUMNS ((size_t)512)

struct run {
    struct clb_inverting *inverting;
    struct clb_buffer *memory[2]; /* of a and y, of x */
    void *host;                   /* the result's, with the device's leading dimension */
    size_t bytes;                 /* of each */
    struct clb_ferry ferry;
    struct clb_cargo *cargo; /* those that go up, then those that come down */
    size_t loads;
};

static clb_status get_memory(struct run *run)
{
    struct clb_inverting *inverting = run->inverting;
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

static clb_status make_loads(struct run *run)
{
    const struct clb_inverting *inverting = run->inverting;
    const struct clb_inverse *problem = inverting->problem;
    const struct clb_dmat *result = clb_inverting_result(inverting);
    size_t n = inverting->n;
    run->loads = clb_div_up(n, COLUMNS);
    run->cargo = calloc(2 * run->loads, sizeof *run->cargo);
    if (run->cargo == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < run->loads; i++) {
        size_t k = i * COLUMNS, width = clb_min(COLUMNS, n - k);
        struct clb_cargo *down = &run->cargo[run->loads + i];
        run->cargo[i] = clb_cargo_of_triangle(&inverting->a, inverting->element, problem->upper, k,
                                              width, problem->a, problem->lda);
        *down = clb_cargo_of_triangle(result, inverting->element, problem->upper, k, width,
                                      run->host, result->ld);
        down->down = true;
    }
    return CLB_OK;
}

static clb_status compute(struct run *run)
{
    struct clb_inverting *inverting = run->inverting;
    struct clb_queue *queue = inverting->engine.queue;
    clb_status status = CLB_OK;
    clb_ferry_start(&run->ferry);
    for (size_t i = 0; i < run->loads && status == CLB_OK; i++)
        status = clb_ferry_await(&run->ferry, i, queue);
    if (status == CLB_OK)
        status = clb_inverting_compute(inverting);
    for (size_t i = 0; i < run->loads && status == CLB_OK; i++)
        status = clb_ferry_publish(&run->ferry, run->loads + i, queue);
    return clb_ferry_finish(&run->ferry, status);
}

clb_status clb_inverse_run_stream(struct clb_inverting *inverting,
                                  const struct clb_gemm_variant *variant)
{
    struct run run = {.inverting = inverting};
    clb_status status = clb_inverting_open(inverting, variant);
    if (status == CLB_OK)
        status = get_memory(&run);
    if (status == CLB_OK)
        status = make_loads(&run);
    if (status == CLB_OK)
        status = clb_ferry_open(&run.ferry, inverting->engine.lane, inverting->problem->precision,
                                run.cargo, 2 * run.loads, variant->tuning.value[CLB_PARAM_THREADS]);
    if (status == CLB_OK)
        status = compute(&run);
    bool idle = clb_engine_finish(&inverting->engine);
    clb_ferry_close(&run.ferry, idle);
    if (status == CLB_OK)
        status = clb_lane_check(inverting->engine.lane);
    if (status == CLB_OK)
        status = clb_inverting_write(inverting, run.host, inverting->x.ld);
    free(run.cargo);
    if (run.host != NULL)
        clb_host_unmap(run.host, run.bytes);
    for (size_t i = 0; i < CLB_COUNT_OF(run.memory); i++)
        clb_buffer_end(inverting->runtime, run.memory[i], idle);
    clb_engine_close(&inverting->engine, idle);
    return status;
}
