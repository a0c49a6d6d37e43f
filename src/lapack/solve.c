/* Division of B into parts, and the solves with triangles. */
#include "solve.h"

/* Right-hand sides of a part, and the unit that they are a multiple of. A part takes about n/8
 * launches, which limit the speed of a device with memory of its own: 16 parts of 512 took 193 ms
 * at n = 8192 (H200, 2026-11). */
#define PART_SHARED ((size_t)512)
#define PART_OWN    ((size_t)4096)
#define PART_UNIT   ((size_t)32)

size_t clb_solve_order(const struct clb_solve *solve)
{
    return solve->right ? solve->n : solve->m;
}

size_t clb_solve_extent(const struct clb_solve *solve)
{
    return solve->right ? solve->m : solve->n;
}

size_t clb_solve_part(const struct clb_solve *solve)
{
    const struct clb_rect *part = &solve->progress->part[0]; /* none is larger */
    return solve->right ? part->rows : part->cols;
}

/* ---- triangles ------------------------------------------------------------------------------- */

static struct clb_workspace_limits solve_limits_of(const struct clb_solve *solve)
{
    const struct clb_solve_triangles *triangles = solve->context;
    size_t n = clb_solve_order(solve);
    struct clb_workspace_limits limits = clb_solve_limits(n, solve->right, clb_solve_part(solve));
    limits.triangle = triangles->steps * clb_round_up(n, CLB_MAX_BLOCK);
    return limits;
}

static clb_status solve_pack(struct clb_solve *solve, struct clb_workspace *workspace,
                             const struct clb_dmat *a)
{
    struct clb_solve_triangles *triangles = solve->context;
    clb_status status = CLB_OK;
    for (size_t i = 0; i < triangles->steps && status == CLB_OK; i++) {
        triangles->packed[i] =
            (struct clb_dmat_triangle){.a = *a,
                                       .right = solve->right,
                                       .upper = triangles->step[i].upper,
                                       .unit = triangles->step[i].unit,
                                       .short_sums = true,
                                       .op = triangles->step[i].op,
                                       .at = i * clb_round_up(a->rows, workspace->block)};
        status = clb_dmat_pack_triangle(workspace, &triangles->packed[i]);
    }
    return status;
}

static clb_status solve_part(struct clb_solve *solve, struct clb_workspace *workspace,
                             const struct clb_dmat *part)
{
    const struct clb_solve_triangles *triangles = solve->context;
    clb_status status = CLB_OK;
    for (size_t i = 0; i < triangles->steps && status == CLB_OK; i++)
        status = clb_dmat_solve(workspace, &triangles->packed[i], part);
    return status;
}

const struct clb_solve_work clb_solve_triangles_work = {solve_limits_of, solve_pack, solve_part,
                                                        NULL};

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status solve_make_parts(struct clb_solve *solve, size_t wanted, size_t most)
{
    size_t extent = clb_solve_extent(solve), each = wanted;
    if (wanted == 0)
        each = clb_round_up(clb_div_up(extent, clb_div_up(extent, most)), PART_UNIT);
    clb_status status = clb_gemm_progress_make(solve->progress, clb_div_up(extent, each));
    for (size_t i = 0; i < solve->progress->parts; i++) {
        size_t first = i * each, count = clb_min(each, extent - first);
        solve->progress->part[i] = solve->right ? (struct clb_rect){first, 0, count, solve->n}
                                                : (struct clb_rect){0, first, solve->m, count};
    }
    return status;
}

clb_status clb_solve_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         struct clb_solve *solve)
{
    bool stream = !runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0;
    solve->progress->kernel = variant->name;
    clb_status status = clb_workspace_prepare(runtime, variant);
    if (status != CLB_OK)
        return status;
    status = solve_make_parts(solve, variant->tuning.value[CLB_PARAM_TRSM_PART],
                              runtime->device.unified ? PART_SHARED : PART_OWN);
    if (status != CLB_OK)
        return status;
    return stream ? clb_solve_run_stream(runtime, variant, solve)
                  : clb_solve_run_shared(runtime, variant, solve);
}
