/* SPDX-License-Identifier: BSD-3-Clause
 * The programs of workspaces and of panels, and the sizes compiled into them. */
#include "device_blas.h"

#include "engine/kernel/kernels.h"

#include <stdio.h>

/* ---- workspaces ---- */

/* Work-items of a group and orders of diagonal blocks. On CPUs a group has one work-item. Elsewhere
 * a tile of right-hand sides and a sub-block take less than 48 KiB of local memory; devices with
 * less get the largest block that fits. */
#define GROUP       ((size_t)128)
#define LEAST_GROUP ((size_t)32) /* number of right-hand sides of a tile */
#define CPU_BLOCK   ((size_t)128)
#define GPU_BLOCK   ((size_t)128)
#define GPU_BLOCK_Z ((size_t)64)
#define GPU_MEMORY  ((uint64_t)48 << 10)
#define GPU_STEP    ((size_t)16)
#define BLOCK_UNIT  ((size_t)8)

/* Bytes of local arrays of clb_trsm_solve (kernels/trsm.cl): right-hand sides and a sub-block. */
static uint64_t solve_memory(clb_precision precision, size_t block)
{
    enum { PITCH = 34 };
    size_t sub = block % 32 == 0 && precision != CLB_Z ? 32 : block % 16 == 0 ? 16 : 8;
    return (block * PITCH + sub * sub) * clb_precision_size(precision);
}

static size_t largest_block(const struct clb_workspace *workspace, bool cpu)
{
    clb_precision precision = workspace->variant->precision;
    uint64_t memory = workspace->runtime->device.local_memory;
    size_t block = precision == CLB_Z ? GPU_BLOCK_Z : GPU_BLOCK;
    if (cpu)
        return CLB_MAX_BLOCK;
    if (memory < GPU_MEMORY)
        block /= 2;
    while (block > GPU_STEP && solve_memory(precision, block) > memory)
        block -= GPU_STEP;
    return block;
}

static clb_status get_program(struct clb_workspace *workspace)
{
    clb_precision precision = workspace->variant->precision;
    bool cpu = workspace->variant->tuning.family == CLB_FAMILY_CPU;
    size_t wanted = workspace->variant->tuning.value[CLB_PARAM_TRSM_NB], group = GROUP;
    const cl_uint vector_bytes = workspace->runtime->device.vector_bytes;
    char options[160];
    size_t most = largest_block(workspace, cpu);
    if (wanted == 0)
        wanted = cpu ? CPU_BLOCK : most;
    while (group > LEAST_GROUP && group > workspace->runtime->device.max_group)
        group /= 2;
    workspace->block = clb_round_up(clb_min(wanted, most), BLOCK_UNIT);
    workspace->group = cpu ? 1 : group;
    workspace->groups = clb_max(64, 8 * (size_t)workspace->runtime->device.units);
    snprintf(options, sizeof options,
             "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_CPU=%d -DCLB_NB=%zu -DCLB_MOVES=%zu "
             "-DCLB_WG=%zu -DCLB_VECTOR=%d",
             clb_precision_real_size(precision) == sizeof(double),
             clb_precision_parts(precision) > 1, cpu, workspace->block, 2 * CLB_MAX_SWAPS, group,
             vector_bytes >= 64   ? 64
             : vector_bytes >= 32 ? 32
                                  : 16);
    return clb_program_get(workspace->runtime, &clb_kernel_trsm, options, &workspace->program);
}

/* Columns of B that are packed at once where the device shares the host's memory. */
#define CPU_COLUMNS ((size_t)1024)

static void set_cuts(struct clb_workspace *workspace)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    workspace->max_m = clb_gemm_widest(variant, CLB_OPERAND_A);
    workspace->max_n = clb_gemm_widest(variant, CLB_OPERAND_B);
    if (workspace->runtime->device.unified)
        workspace->max_n = clb_min(
            workspace->max_n, clb_round_up(CPU_COLUMNS, clb_gemm_unit(variant, CLB_OPERAND_B)));
    workspace->max_k = clb_round_up(clb_max(variant->tuning.value[CLB_PARAM_SLAB], 1),
                                    clb_gemm_depth_unit(variant));
}

clb_status clb_workspace_choose(struct clb_workspace *workspace, struct clb_runtime *runtime,
                                const struct clb_gemm_variant *variant)
{
    *workspace = (struct clb_workspace){.runtime = runtime, .variant = variant};
    set_cuts(workspace);
    return get_program(workspace);
}

/* ---- panels of LU ---- */

/* Rows of a work-group. A work-item holds the rest of its row in registers. */
#define GROUP_NVIDIA ((size_t)512)
#define GROUP_OTHER  ((size_t)256)
/* At least the width of a strip, and a warp. */
#define SMALLEST_GROUP ((size_t)32)
/* Strips per block. */
#define STRIPS ((size_t)4)

void clb_getf2_set_shape(struct clb_getf2 *panel, const struct clb_device *device,
                         const struct clb_gemm_variant *variant)
{
    bool progress = clb_device_has(device, CLB_QUIRK_GROUPS_PROGRESS);
    /* At most 64 registers for a row; PoCL takes many seconds to compile wide strips. */
    panel->width = !progress ? 8 : variant->precision == CLB_Z ? 16 : 32;
    panel->block = STRIPS * panel->width;
    panel->group = variant->tuning.value[CLB_PARAM_GETRF_GROUP];
    if (panel->group < SMALLEST_GROUP || (panel->group & (panel->group - 1)) != 0)
        panel->group = progress ? GROUP_NVIDIA : GROUP_OTHER;
    panel->group = clb_min(panel->group, device->max_group);
    panel->most_groups = progress ? device->units : 1;
}

/* With shuffles that take fewer instructions, where the device has them. */
clb_status clb_getf2_choose(struct clb_getf2 *panel, const struct clb_workspace *workspace)
{
    const clb_precision precision = workspace->variant->precision;
    const bool warps = clb_device_has(&workspace->runtime->device, CLB_QUIRK_GROUPS_PROGRESS);
    clb_status status = CLB_ERR_BUILD;
    char options[160];
    *panel = (struct clb_getf2){0};
    clb_getf2_set_shape(panel, &workspace->runtime->device, workspace->variant);
    for (int shuffle = warps ? 2 : 0; shuffle >= warps && status == CLB_ERR_BUILD; shuffle--) {
        snprintf(options, sizeof options,
                 "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d -DCLB_WIDTH=%zu -DCLB_BLOCK=%zu "
                 "-DCLB_PANEL_WG=%zu -DCLB_SHUFFLE=%d -DCLB_TAPER=%d",
                 clb_precision_real_size(precision) == sizeof(double),
                 clb_precision_parts(precision) > 1, panel->width, panel->block, panel->group,
                 shuffle, warps);
        status = clb_program_get(workspace->runtime, &clb_kernel_getf2, options, &panel->program);
    }
    return status;
}
