/* Cholesky on a device with its own memory: panels are factored while those behind them are on
 * their way up. Of U the panels that go up are block rows, because a step takes one; what comes
 * down are block columns either way, since a prefix of columns is what can be resumed. */
#include "chol.h"
#include "ferry.h"

#include <stdlib.h>

struct run {
    struct clb_chol *chol;
    struct clb_ferry ferry;
    struct clb_cargo *cargo; /* the panels that go up, then the block columns that come down */
    size_t panels;
};

/* ---- loads ----------------------------------------------------------------------------------- */

static struct clb_cargo make_load(const struct clb_chol *chol, bool down, size_t k)
{
    const struct clb_potrf *problem = chol->problem;
    size_t width = clb_chol_width(chol, k);
    struct clb_cargo load = clb_cargo_of_triangle(&chol->x, chol->element, problem->upper, k, width,
                                                  problem->a, problem->lda);
    load.down = down;
    if (problem->upper && !down) {
        load.x = clb_dmat_part(&chol->x, k, k, width, chol->n - k);
        load.host = clb_chol_host(chol, k, k);
        load.diagonal = 0;
    }
    return load;
}

static clb_status make_loads(struct run *run)
{
    struct clb_chol *chol = run->chol;
    run->panels = clb_div_up(chol->n, chol->nb);
    run->cargo = calloc(2 * run->panels, sizeof *run->cargo);
    if (run->cargo == NULL)
        return CLB_ERR_NOMEM;
    for (size_t i = 0; i < run->panels; i++) {
        run->cargo[i] = make_load(chol, false, i * chol->nb);
        run->cargo[run->panels + i] = make_load(chol, true, i * chol->nb);
    }
    return CLB_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status bring(void *context, size_t k, size_t width)
{
    struct run *run = context;
    (void)width;
    return clb_ferry_await(&run->ferry, k / run->chol->nb, run->chol->engine.queue);
}

static clb_status write_back(struct run *run)
{
    struct clb_chol *chol = run->chol;
    size_t cols = clb_chol_columns(chol), blocks = clb_div_up(cols, chol->nb);
    clb_status status = CLB_OK;
    if (blocks > 0)
        clb_ferry_shorten(&run->ferry, run->panels + blocks - 1, cols - (blocks - 1) * chol->nb);
    for (size_t i = 0; i < blocks && status == CLB_OK; i++)
        status = clb_ferry_publish(&run->ferry, run->panels + i, chol->engine.queue);
    return status;
}

/* The first `arrived` pieces are in the caller's matrix. */
static size_t columns_written(const struct run *run)
{
    size_t left = run->ferry.arrived, columns = 0;
    for (size_t i = run->panels; left > 0 && i < 2 * run->panels; i++) {
        const struct clb_cargo *cargo = &run->cargo[i];
        size_t pieces = clb_min(left, cargo->pieces);
        columns += clb_min(pieces * cargo->extent, cargo->x.cols);
        left -= pieces;
    }
    return columns;
}

static clb_status run_all(struct run *run)
{
    clb_ferry_start(&run->ferry);
    clb_status status = clb_chol_factor(run->chol, bring, run);
    if (status == CLB_OK)
        status = write_back(run);
    status = clb_ferry_finish(&run->ferry, status);
    run->chol->result->columns_written = columns_written(run);
    return status;
}

clb_status clb_potrf_run_stream(struct clb_chol *chol, const struct clb_gemm_variant *variant)
{
    struct run run = {.chol = chol};
    size_t bytes;
    clb_status status = clb_chol_open(chol, variant);
    if (status == CLB_OK)
        status = clb_extent_bytes(chol->x.ld, chol->n, chol->x.ld, chol->element, &bytes);
    if (status == CLB_OK)
        status = clb_buffer_get(chol->runtime, CLB_MEMORY_DEVICE, bytes, &chol->memory);
    if (status == CLB_OK) {
        chol->x.mem = chol->memory->mem;
        status = make_loads(&run);
    }
    if (status == CLB_OK)
        status = clb_ferry_open(&run.ferry, chol->engine.lane, chol->problem->precision, run.cargo,
                                2 * run.panels, variant->tuning.value[CLB_PARAM_THREADS]);
    if (status == CLB_OK)
        status = run_all(&run);
    bool idle = clb_engine_finish(&chol->engine);
    if (status == CLB_OK)
        status = clb_lane_check(chol->engine.lane);
    clb_ferry_close(&run.ferry, idle);
    free(run.cargo);
    clb_chol_close(chol, idle);
    return status;
}
