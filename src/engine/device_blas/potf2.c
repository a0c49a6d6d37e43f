/* Diagonal blocks of Cholesky on the device. SPDX-License-Identifier: BSD-3-Clause */
#include "potf2.h"

#include "engine/kernel/kernels.h"

#include <stdio.h>
#include <string.h>

#define ORDER ((size_t)32)
#define GROUP ((size_t)256)

static clb_status potf2_get_program(struct clb_potf2 *block, struct clb_workspace *workspace)
{
    clb_precision precision = workspace->variant->precision;
    char options[120];
    block->most = ORDER;
    block->group = GROUP;
    while (block->group > workspace->runtime->device.max_group && block->group > block->most)
        block->group /= 2;
    snprintf(options, sizeof options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_NB=%zu -DCLB_WG=%zu",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, block->most, block->group);
    return clb_program_get(workspace->runtime, &clb_kernel_potf2, options, &block->program);
}

static clb_status potf2_get_memory(struct clb_potf2 *block, struct clb_workspace *workspace)
{
    const size_t bytes = sizeof(cl_int);
    CLB_TRY(clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, bytes, &block->state));
    CLB_TRY(clb_buffer_get(workspace->runtime, CLB_MEMORY_HOST, bytes, &block->state_host));
    memset(block->state_host->host, 0, bytes);
    return clb_queue_write_now(workspace->queue, block->state->mem, 0, bytes,
                               block->state_host->host);
}

clb_status clb_potf2_prepare(struct clb_potf2 *block, struct clb_workspace *workspace)
{
    *block = (struct clb_potf2){0};
    clb_status status = potf2_get_program(block, workspace);
    CLB_THEN(status, potf2_get_memory(block, workspace));
    if (status != CLB_OK)
        clb_potf2_close(block, workspace, clb_workspace_finish(workspace));
    return status;
}

clb_status clb_potf2_open(struct clb_potf2 *block, struct clb_workspace *workspace)
{
    *block = (struct clb_potf2){0};
    clb_status status = clb_potf2_check(workspace->runtime, workspace->variant);
    return status == CLB_OK ? clb_potf2_prepare(block, workspace) : status;
}

void clb_potf2_close(struct clb_potf2 *block, struct clb_workspace *workspace, bool idle)
{
    clb_event_drop(&block->seen);
    clb_buffer_end(workspace->runtime, block->state, idle);
    clb_buffer_end(workspace->runtime, block->state_host, idle);
    *block = (struct clb_potf2){0};
}

clb_status clb_potf2_factor(struct clb_potf2 *block, struct clb_workspace *workspace,
                            const struct clb_dmat *x, bool upper, size_t first)
{
    const cl_long step = (cl_long)x->ld, xi = upper ? step : 1, xp = upper ? 1 : step;
    const cl_uint n = (cl_uint)x->rows, column = (cl_uint)first;
    return clb_workspace_launch_groups(
        workspace, block->program, "clb_potrf_block", 1, block->group, (struct clb_order){0},
        CLB_ARGUMENTS(CLB_ARG(x->mem), CLB_ARG(x->offset), CLB_ARG(xi), CLB_ARG(xp), CLB_ARG(n),
                      CLB_ARG(column), CLB_ARG(block->state->mem)));
}

/* Wait for the copy of the state, and read it; leaves *info alone where there is none. */
static clb_status potf2_take(struct clb_potf2 *block, struct clb_workspace *workspace, size_t *info)
{
    if (block->seen == NULL)
        return CLB_OK;
    CLB_TRY(clb_queue_set_await(workspace->queue_set, &block->seen));
    *info = (size_t) * (const cl_int *)block->state_host->host;
    return CLB_OK;
}

clb_status clb_potf2_look(struct clb_potf2 *block, struct clb_workspace *workspace, size_t *info)
{
    *info = 0;
    clb_status status = potf2_take(block, workspace, info);
    CLB_THEN(status,
             clb_queue_read(workspace->queue, block->state->mem, CLB_LINE(0, sizeof(cl_int)),
                            block->state_host->host, NULL, &block->seen));
    return status == CLB_OK ? clb_queue_flush(workspace->queue) : status;
}

clb_status clb_potf2_finish(struct clb_potf2 *block, struct clb_workspace *workspace, size_t *info)
{
    clb_status status = clb_potf2_look(block, workspace, info);
    return status == CLB_OK ? potf2_take(block, workspace, info) : status;
}
