/* SPDX-License-Identifier: BSD-3-Clause
 * Workspaces: a queue and memory; and the launches that move rows and copy matrices. */
#include "device_blas.h"

size_t clb_dmat_ld(size_t rows, size_t element)
{
    size_t line = clb_max(128 / element, 1), ld = clb_round_up(rows, line);
    /* Columns a multiple of 1 KiB apart fall into every eighth set of a cache or fewer. */
    return ld * element % 1024 == 0 ? ld + line : ld;
}

/* ---- memory ---- */

static size_t operand_bytes(const struct clb_workspace *workspace, clb_operand_role role, size_t w,
                            size_t k)
{
    size_t cut = role == CLB_OPERAND_B ? workspace->max_n : w;
    return clb_packed_bytes(workspace->variant, role, clb_min(w, cut),
                            clb_min(k, workspace->max_k));
}

static clb_status workspace_get_memory(struct clb_workspace *workspace,
                                       const struct clb_workspace_limits *limits)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    const size_t moves = 2 * CLB_MAX_SWAPS * sizeof(struct clb_move);
    const size_t square =
        workspace->block * workspace->block * clb_precision_size(variant->precision);
    size_t a = 0, b = 0, parts = 0;
    if (limits->m > 0 && limits->n > 0 && limits->k > 0) {
        a = clb_max(operand_bytes(workspace, CLB_OPERAND_A, limits->m, limits->k),
                    operand_bytes(workspace, CLB_OPERAND_A, limits->other_m, limits->other_k));
        b = clb_max(operand_bytes(workspace, CLB_OPERAND_B, limits->n, limits->k),
                    operand_bytes(workspace, CLB_OPERAND_B, limits->other_n, limits->other_k));
        parts = clb_part_most(variant, workspace->runtime->device.units,
                              clb_max(limits->m, limits->other_m),
                              clb_min(clb_max(limits->n, limits->other_n), workspace->max_n));
    }
    const struct {
        struct clb_buffer **buffer;
        size_t bytes;
        clb_memory_kind kind;
    } wanted[] = {{&workspace->packed_a, a, CLB_MEMORY_DEVICE},
                  {&workspace->packed_b, b, CLB_MEMORY_DEVICE},
                  {&workspace->parts, parts, CLB_MEMORY_DEVICE},
                  {&workspace->kept_a,
                   operand_bytes(workspace, CLB_OPERAND_A, limits->kept_m, limits->k),
                   CLB_MEMORY_DEVICE},
                  {&workspace->triangles, clb_div_up(limits->triangle, workspace->block) * square,
                   CLB_MEMORY_DEVICE},
                  {&workspace->moves, moves, CLB_MEMORY_DEVICE},
                  {&workspace->moves_host, moves, CLB_MEMORY_HOST}};
    clb_status status = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(wanted) && status == CLB_OK; i++) {
        if (wanted[i].bytes > 0)
            status = clb_buffer_get(workspace->runtime, wanted[i].kind, wanted[i].bytes,
                                    wanted[i].buffer);
    }
    return status;
}

/* ---- open and close ---- */

/* That of the variant, where it is known. */
static const struct clb_workspace *known_for(const struct clb_gemm_variant *variant)
{
    const struct clb_workspace *known = atomic_load(&clb_known_workspaces[variant->precision]);
    return known != NULL && known->variant == variant ? known : NULL;
}

clb_status clb_workspace_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant)
{
    const struct clb_gemm_variant *plain = clb_plain_variant(variant);
    if (plain == NULL)
        return CLB_ERR_UNSUPPORTED;
    return known_for(plain) != NULL ? CLB_OK : clb_workspace_check(runtime, plain);
}

clb_status clb_workspace_open(struct clb_workspace *workspace, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant,
                              const struct clb_workspace_limits *limits, bool checked)
{
    *workspace = (struct clb_workspace){0};
    if (checked) {
        CLB_TRY(clb_workspace_prepare(runtime, variant));
        variant = clb_plain_variant(variant);
    }
    const struct clb_workspace *known = known_for(variant);
    clb_status status = CLB_OK;
    if (known != NULL)
        *workspace = *known;
    else
        status = clb_workspace_choose(workspace, runtime, variant);
    CLB_THEN(status, clb_queue_set_acquire(runtime, &workspace->queue_set));
    if (status == CLB_OK) {
        workspace->queue = workspace->queue_set->queue;
        status = workspace_get_memory(workspace, limits);
    }
    if (status != CLB_OK)
        clb_workspace_close(workspace, true);
    else if (checked)
        workspace->direct = clb_direct_prepare(variant) == CLB_OK;
    return status;
}

bool clb_workspace_finish(struct clb_workspace *workspace)
{
    return workspace->queue_set == NULL || clb_queue_set_settle(workspace->queue_set);
}

void clb_workspace_close(struct clb_workspace *workspace, bool idle)
{
    struct clb_buffer *const buffers[] = {
        workspace->packed_a, workspace->packed_b,   workspace->kept_a, workspace->triangles,
        workspace->moves,    workspace->moves_host, workspace->parts};
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++)
        clb_buffer_end(workspace->runtime, buffers[i], idle);
    clb_queue_set_end(workspace->queue_set, idle);
    *workspace = (struct clb_workspace){0};
}

/* ---- launches ---- */

clb_status clb_workspace_launch_groups(struct clb_workspace *workspace, struct clb_program *program,
                                       const char *name, size_t groups, size_t group,
                                       struct clb_order order, const struct clb_argument *arguments,
                                       size_t count)
{
    const struct clb_geometry geometry = {
        .dimensions = 1, .global = {groups * group}, .local = {group}};
    return clb_kernel_launch(workspace->queue_set, program, name, &geometry, order, arguments,
                             count);
}

clb_status clb_workspace_launch(struct clb_workspace *workspace, const char *name,
                                const struct clb_argument *arguments, size_t count)
{
    return clb_workspace_launch_groups(workspace, workspace->program, name, workspace->groups,
                                       workspace->group, (struct clb_order){0}, arguments, count);
}

clb_status clb_dmat_send_moves(struct clb_workspace *workspace, size_t count)
{
    if (count == 0)
        return CLB_OK;
    return clb_queue_write(workspace->queue, workspace->moves->mem,
                           CLB_LINE(0, count * sizeof(struct clb_move)),
                           workspace->moves_host->host, NULL, NULL);
}

clb_status clb_dmat_move_by(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_moves *moves, size_t before, size_t gap)
{
    const cl_uint count = (cl_uint)moves->count;
    if (count == 0 || x->cols == 0)
        return CLB_OK;
    return clb_workspace_launch(workspace, "clb_laswp",
                                CLB_ARGUMENTS(CLB_PLACE(x), CLB_ARG(x->cols), CLB_ARG(before),
                                              CLB_ARG(gap), CLB_ARG(moves->mem),
                                              CLB_ARG(moves->first), CLB_ARG(count)));
}

clb_status clb_dmat_move(struct clb_workspace *workspace, const struct clb_dmat *x, size_t count)
{
    const struct clb_moves moves = {workspace->moves->mem, 0, count};
    return clb_dmat_move_by(workspace, x, &moves, x->cols, 0);
}

clb_status clb_dmat_move_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, size_t count)
{
    const cl_uint moves = (cl_uint)count;
    if (x->cols == 0)
        return CLB_OK;
    return clb_workspace_launch(workspace, "clb_laswp_copy",
                                CLB_ARGUMENTS(CLB_PLACE(x), CLB_PLACE(y), CLB_ARG(x->rows),
                                              CLB_ARG(x->cols), CLB_ARG(workspace->moves->mem),
                                              CLB_ARG(moves)));
}

clb_status clb_dmat_permute(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_dmat *y, cl_mem order)
{
    return clb_workspace_launch(workspace, "clb_permute_rows",
                                CLB_ARGUMENTS(CLB_PLACE(x), CLB_PLACE(y), CLB_ARG(x->rows),
                                              CLB_ARG(x->cols), CLB_ARG(order)));
}
