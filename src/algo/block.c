/* Diagonal blocks of Cholesky on the device. */
#include "block.h"

#include "kernels.h"

#include <stdio.h>
#include <string.h>

#define ORDER ((size_t)32)
#define GROUP ((size_t)256)

/* NVIDIA H200: a trip to the CPU takes 30 us and more, a launch 9 (2026-11). Elsewhere a device
 * with memory of its own has a link between, too. */
bool clb_block_is_faster(const struct clb_device *device)
{
    return !device->unified;
}

static clb_status get_program(struct clb_block *block, struct clb_engine *engine)
{
    clb_precision precision = engine->variant->precision;
    char options[120];
    block->most = ORDER;
    block->group = GROUP;
    while (block->group > engine->runtime->device.max_group && block->group > block->most)
        block->group /= 2;
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_NB=%zu -DCLB_WG=%zu",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, block->most, block->group);
    return clb_program_get(engine->runtime, &clb_kernel_potrf_block, options, &block->program);
}

/* Two words that the host reads by turns. */
static clb_status get_memory(struct clb_block *block, struct clb_engine *engine)
{
    size_t bytes = CLB_COUNT_OF(block->seen) * sizeof(cl_int);
    clb_status status =
        clb_buffer_get(engine->runtime, CLB_MEMORY_DEVICE, sizeof(cl_int), &block->state);
    if (status == CLB_OK)
        status = clb_buffer_get(engine->runtime, CLB_MEMORY_HOST, bytes, &block->state_host);
    if (status != CLB_OK)
        return status;
    memset(block->state_host->host, 0, bytes);
    return clb_queue_write_now(engine->queue, block->state->mem, 0, sizeof(cl_int),
                               block->state_host->host);
}

clb_status clb_block_open(struct clb_block *block, struct clb_engine *engine)
{
    *block = (struct clb_block){0};
    clb_status status = get_program(block, engine);
    if (status == CLB_OK)
        status = get_memory(block, engine);
    if (status == CLB_OK)
        status = clb_block_check(block, engine);
    if (status != CLB_OK)
        clb_block_close(block, engine, clb_engine_finish(engine));
    return status;
}

void clb_block_close(struct clb_block *block, struct clb_engine *engine, bool idle)
{
    for (size_t i = 0; i < CLB_COUNT_OF(block->seen); i++) {
        if (block->seen[i] != NULL)
            clb_cl.ReleaseEvent(block->seen[i]);
    }
    clb_buffer_end(engine->runtime, block->state, idle);
    clb_buffer_end(engine->runtime, block->state_host, idle);
    *block = (struct clb_block){0};
}

clb_status clb_block_factor(struct clb_block *block, struct clb_engine *engine,
                            const struct clb_dmat *x, bool upper, size_t first)
{
    const cl_ulong offset = x->offset;
    const cl_long step = (cl_long)x->ld, xi = upper ? step : 1, xp = upper ? 1 : step;
    const cl_uint n = (cl_uint)x->rows, column = (cl_uint)first;
    const struct clb_argument arguments[] = {
        CLB_ARG(x->mem), CLB_ARG(offset),           CLB_ARG(xi), CLB_ARG(xp), CLB_ARG(n),
        CLB_ARG(column), CLB_ARG(block->state->mem)};
    cl_kernel kernel;
    clb_status status = clb_lane_kernel(engine->lane, block->program, "clb_potrf_block", &kernel);
    if (status != CLB_OK)
        return status;
    return clb_lane_launch(engine->queue, kernel, "clb_potrf_block", arguments,
                           CLB_COUNT_OF(arguments), 1, &block->group, &block->group, 0, NULL, NULL);
}

/* ---- the state ------------------------------------------------------------------------------- */

/* What has come of a turn's copy; nothing where none was asked for. */
static clb_status take(struct clb_block *block, struct clb_engine *engine, size_t turn,
                       size_t *info)
{
    const cl_int *state = block->state_host->host;
    if (block->seen[turn] == NULL)
        return CLB_OK;
    clb_status status = clb_lane_await(engine->lane, &block->seen[turn]);
    if (status == CLB_OK)
        *info = (size_t)state[turn];
    return status;
}

static clb_status ask(struct clb_block *block, struct clb_engine *engine, size_t turn)
{
    cl_int *state = block->state_host->host;
    clb_status status = clb_queue_read(engine->queue, block->state->mem, 0, sizeof *state,
                                       state + turn, 0, NULL, &block->seen[turn]);
    return status == CLB_OK ? clb_queue_flush(engine->queue) : status;
}

clb_status clb_block_look(struct clb_block *block, struct clb_engine *engine, size_t *info)
{
    size_t turn = block->turn++ % CLB_COUNT_OF(block->seen);
    clb_status status = ask(block, engine, turn);
    *info = 0;
    return status == CLB_OK ? take(block, engine, 1 - turn, info) : status;
}

clb_status clb_block_finish(struct clb_block *block, struct clb_engine *engine, size_t *info)
{
    size_t turn = block->turn++ % CLB_COUNT_OF(block->seen), before = 0;
    clb_status status = take(block, engine, 1 - turn, &before);
    *info = 0;
    if (status == CLB_OK)
        status = ask(block, engine, turn);
    return status == CLB_OK ? take(block, engine, turn, info) : status;
}
