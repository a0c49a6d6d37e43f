/* The checks of this layer's kernels, by random matrices. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/kernel/check.h"
#include "potf2.h"

#include <stdlib.h>

static struct clb_check systems[CLB_PRECISIONS], panels[CLB_PRECISIONS], blocks[CLB_PRECISIONS];
const struct clb_workspace *_Atomic clb_known_workspaces[CLB_PRECISIONS];
const struct clb_getf2 *_Atomic clb_known_panels[CLB_PRECISIONS];

/* What a check is asked for, of panels those like this one; and what it works with. */
struct dense_check {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    clb_helper_step step;
    clb_status (*check_all)(struct dense_check *check);
    struct clb_workspace_limits limits;
    struct clb_getf2 like;
    struct clb_workspace *workspace;
    struct clb_potf2 *block;
};

_Static_assert(sizeof(struct dense_check) <= CLB_CHECK_ARGUMENT, "an argument of clb_check_once");

/* Compute a trial's call. *bad: the first pivot that stopped a factorisation, from 1; 0: none. */
typedef clb_status compute_call(struct dense_check *check, const struct clb_trial *trial,
                                size_t *bad);

static clb_status try_call(struct dense_check *check, struct clb_call call,
                           const struct clb_trial_numbers *numbers, compute_call *compute)
{
    struct clb_workspace *workspace = check->workspace;
    struct clb_trial trial;
    size_t bad = 0;
    int64_t info = 0;
    call.info = &info;
    call.wide = true;
    clb_status status =
        clb_trial_open(&trial, workspace->runtime, workspace->queue, &call, numbers);
    CLB_THEN(status, compute(check, &trial, &bad));
    CLB_THEN(status, bad == 0 ? clb_trial_judge(&trial) : CLB_ERR_BUILD);
    clb_trial_close(&trial, clb_workspace_finish(workspace));
    return status;
}

static struct clb_call call_of(const struct dense_check *check, clb_kind kind)
{
    return clb_call_of(clb_routine_of(kind, check->variant->precision, false));
}

static struct clb_dmat matrix_of(const struct clb_trial *trial, size_t i)
{
    struct clb_shape matrix = {0};
    (void)clb_call_shape(&trial->call, (char)('A' + i), &matrix);
    return (struct clb_dmat){trial->memory[i]->mem, 0, matrix.rows, matrix.cols, matrix.ld};
}

/* Note what has been checked, but for variants of tests, which may change them. */
static clb_status remember(const struct dense_check *check)
{
    static struct clb_workspace workspaces[CLB_PRECISIONS];
    static struct clb_getf2 like[CLB_PRECISIONS];
    const clb_precision precision = check->variant->precision;
    const struct clb_gemm_variant *all = atomic_load(&clb_gemm_variants[precision]);
    if (all == NULL || clb_plain_variant(all) != check->variant)
        return CLB_OK;
    if (check->step == CLB_STEP_SYSTEMS) {
        CLB_TRY(clb_workspace_choose(&workspaces[precision], check->runtime, check->variant));
        atomic_store(&clb_known_workspaces[precision], &workspaces[precision]);
    } else if (check->step == CLB_STEP_PANELS) {
        like[precision] = check->like;
        atomic_store(&clb_known_panels[precision], &like[precision]);
    }
    return CLB_OK;
}

/* Groups that wait for each other in vain fail their launch: of panels a failure of OpenCL means
 * that the device can't factor them. */
static clb_status run_check(void *argument)
{
    struct dense_check *check = argument;
    struct clb_workspace workspace;
    clb_status status = clb_step_need(check->runtime, check->step, check->variant->precision);
    CLB_THEN(status, clb_workspace_open(&workspace, check->runtime, check->variant, &check->limits,
                                        check->step != CLB_STEP_SYSTEMS));
    if (status == CLB_OK) {
        check->workspace = &workspace;
        status = check->check_all(check);
        CLB_THEN(status, remember(check));
        clb_workspace_close(&workspace, clb_workspace_finish(&workspace));
    }
    return status == CLB_ERR_OPENCL && check->step == CLB_STEP_PANELS ? CLB_ERR_BUILD : status;
}

/* ---- triangular systems and interchanges ---- */

static clb_status solve(struct dense_check *check, const struct clb_trial *trial, size_t *bad)
{
    const struct clb_dmat_triangle triangle = {
        .a = matrix_of(trial, 0), .right = trial->call.right, .op = trial->call.transa};
    const struct clb_dmat b = matrix_of(trial, 1);
    (void)bad;
    clb_status status = clb_dmat_pack_triangle(check->workspace, &triangle);
    return status == CLB_OK ? clb_dmat_solve(check->workspace, &triangle, &b) : status;
}

/* Systems of up to one block and a bit, for all kernels and the product between blocks: A^H*X = B
 * with A lower triangular, which reverses, transposes and conjugates, and X*A = B. */
static clb_status solve_random(struct dense_check *check, bool right, size_t n, size_t rhs)
{
    static const struct clb_trial_numbers numbers = {
        .seed = 20261121, .diagonal = 2, .scale = 0.125};
    struct clb_call call = call_of(check, CLB_KIND_trsm);
    call.right = right;
    call.m = right ? rhs : n;
    call.n = right ? n : rhs;
    call.alpha = clb_scalar_of(check->variant->precision, 1);
    call.transa = right ? CLB_OP_N : CLB_OP_C;
    return try_call(check, call, &numbers, solve);
}

/* Matrices in one: A, B, B's rows reversed, that restored, B's trapezoid, A's upper triangle. */
enum copies { OF_A, OF_B, REVERSED, RESTORED, TRAPEZOID, UPPER, COPIES };

static clb_status make_copies(struct clb_workspace *workspace, const struct clb_dmat x[COPIES])
{
    const size_t n = x[OF_A].rows;
    struct clb_move *moves = workspace->moves_host->host;
    cl_uint *order = workspace->moves_host->host;
    for (size_t i = 0; i < n; i++)
        moves[i] = (struct clb_move){(cl_uint)i, (cl_uint)(n - 1 - i)};
    clb_status status = clb_dmat_send_moves(workspace, n);
    CLB_THEN(status, clb_dmat_move_copy(workspace, &x[OF_B], &x[REVERSED], n));
    for (int twice = 0; twice < 2 && status == CLB_OK; twice++)
        status = clb_dmat_move(workspace, &x[REVERSED], n);
    status = status == CLB_OK ? clb_queue_finish(workspace->queue) : status;
    for (size_t i = 0; i < n; i++)
        order[i] = (cl_uint)(n - 1 - i);
    CLB_THEN(status, clb_dmat_send_moves(workspace, n));
    CLB_THEN(status,
             clb_dmat_permute(workspace, &x[REVERSED], &x[RESTORED], workspace->moves->mem));
    CLB_THEN(status, clb_dmat_trapezoid(workspace, &x[OF_B], &x[TRAPEZOID], true));
    return status == CLB_OK ? clb_dmat_triangle_copy(workspace, &x[OF_A], &x[UPPER], true) : status;
}

/* Whether each element of copy `c` is what it is a copy of, or the zero or one in its place. */
static bool copy_is_right(clb_precision precision, const void *data,
                          const struct clb_dmat x[COPIES], enum copies c)
{
    const struct clb_dmat *of = &x[c == UPPER ? OF_A : OF_B];
    const size_t parts = clb_precision_parts(precision), rows = of->rows;
    for (size_t e = 0; e < rows * of->cols * parts; e++) {
        const size_t i = e / parts % rows, j = e / parts / rows, part = e % parts;
        const size_t from = of->offset + (c == REVERSED ? rows - 1 - i : i) + j * of->ld;
        const size_t to = x[c].offset + i + j * of->ld;
        double wanted = clb_check_get(precision, data, from * parts + part);
        if (c == TRAPEZOID && i <= j)
            wanted = i == j && part == 0;
        else if (c == UPPER && i > j)
            wanted = 0;
        if (clb_check_get(precision, data, to * parts + part) != wanted)
            return false;
    }
    return true;
}

static clb_status check_copies(struct clb_workspace *workspace, size_t n, size_t rhs)
{
    const clb_precision precision = workspace->variant->precision;
    struct clb_dmat all = {.rows = n, .cols = 2 * n + 4 * rhs, .ld = n + 1}, x[COPIES];
    const size_t count = all.ld * all.cols * clb_precision_parts(precision);
    const size_t bytes = count * clb_precision_real_size(precision);
    struct clb_buffer *buffer = NULL;
    uint64_t state = 20261121;
    void *data = calloc(1, bytes);
    if (data == NULL)
        return CLB_ERR_NOMEM;
    for (size_t e = 0; e < count; e++)
        clb_check_put(precision, data, e, clb_check_random(&state));
    clb_status status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, bytes, &buffer);
    if (status == CLB_OK) {
        all.mem = buffer->mem;
        status = clb_queue_write_now(workspace->queue, buffer->mem, 0, bytes, data);
    }
    for (size_t c = 0, at = 0; c < COPIES; at += x[c++].cols)
        x[c] = clb_dmat_part(&all, 0, at, n, c == OF_A || c == UPPER ? n : rhs);
    CLB_THEN(status, make_copies(workspace, x));
    CLB_THEN(status, clb_queue_read_now(workspace->queue, buffer->mem, 0, bytes, data));
    for (enum copies c = REVERSED; c < COPIES && status == CLB_OK; c++)
        status = copy_is_right(precision, data, x, c) ? CLB_OK : CLB_ERR_BUILD;
    clb_buffer_end(workspace->runtime, buffer, clb_workspace_finish(workspace));
    free(data);
    return status;
}

static clb_status check_systems(void *context, struct clb_check_size size)
{
    struct dense_check *check = context;
    clb_status status = solve_random(check, false, size.m, size.n);
    CLB_THEN(status, solve_random(check, true, size.m, size.n));
    return status == CLB_OK ? check_copies(check->workspace, size.m, size.n) : status;
}

/* Orders around a vector, a sub-block and a block, right-hand sides around a tile (8 to 32). */
#define MOST_RHS ((size_t)33)

static clb_status check_all_systems(struct dense_check *check)
{
    const struct clb_workspace *workspace = check->workspace;
    size_t block = workspace->block;
    const struct clb_check_size sizes[] = {
        {9, 3, 0},         {1, 1, 0},          {1, 32, 0},         {2, 16, 0},
        {7, 8, 0},         {8, 7, 0},          {15, 17, 0},        {16, 9, 0},
        {33, 15, 0},       {block - 1, 31, 0}, {block, 16, 0},     {block, MOST_RHS, 0},
        {block + 1, 1, 0}, {block + 1, 8, 0},  {block + 5, 32, 0}, {block + 5, 3, 0}};
    struct clb_program_check program = {"triangular systems 2", workspace->runtime,
                                        workspace->program, false};
    return clb_check_sizes(&program, sizes, CLB_COUNT_OF(sizes), check_systems, check);
}

clb_status clb_workspace_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct clb_workspace_limits right = clb_solve_limits(2 * CLB_MAX_BLOCK, true, MOST_RHS);
    struct dense_check check = {.runtime = runtime,
                                .variant = variant,
                                .step = CLB_STEP_SYSTEMS,
                                .check_all = check_all_systems,
                                .limits = clb_solve_limits(2 * CLB_MAX_BLOCK, false, MOST_RHS)};
    check.limits.other_m = right.m;
    check.limits.other_n = right.n;
    check.limits.other_k = right.k;
    return clb_check_once(&systems[variant->precision], "triangular systems are not the device's",
                          run_check, &check, sizeof check);
}

/* ---- panels of LU ---- */

static clb_status factor_panel(struct dense_check *check, const struct clb_trial *trial,
                               size_t *bad)
{
    struct clb_workspace *workspace = check->workspace;
    const struct clb_dmat x = matrix_of(trial, 0);
    struct clb_getf2 panel;
    CLB_TRY(clb_getf2_prepare(&panel, workspace, x.rows, x.cols));
    clb_status status = clb_getf2_enqueue(&panel, workspace, &x, 0, x.cols);
    CLB_THEN(status, clb_getf2_read(&panel, workspace, 0, x.cols, trial->call.ipiv, bad));
    clb_getf2_close(&panel, workspace, clb_workspace_finish(workspace));
    return status;
}

static clb_status factor_random(void *context, struct clb_check_size size)
{
    static const struct clb_trial_numbers numbers = {.seed = 20261121, .scale = 1, .spoils = true};
    struct dense_check *check = context;
    struct clb_call call = call_of(check, CLB_KIND_getrf);
    call.m = size.m;
    call.n = clb_min(size.m, size.n);
    call.ipiv = calloc(call.n, sizeof(int64_t));
    clb_status status =
        call.ipiv != NULL ? try_call(check, call, &numbers, factor_panel) : CLB_ERR_NOMEM;
    free(call.ipiv);
    return status;
}

/* The largest panel: several groups if the device can, strips and blocks, no even extents. */
static struct clb_check_size largest_panel(const struct clb_getf2 *like)
{
    return (struct clb_check_size){like->most_groups > 1 ? 2 * like->group + like->group / 3
                                                         : like->group,
                                   like->block + like->width + like->width / 2 + 1, 0};
}

/* Sizes at the edges of strips, blocks and groups. */
static clb_status check_all_panels(struct dense_check *check)
{
    struct clb_getf2 *like = &check->like;
    const struct clb_check_size largest = largest_panel(like);
    CLB_TRY(clb_getf2_choose(like, check->workspace));
    size_t width = like->width, block = like->block, group = like->group;
    const struct clb_check_size sizes[] = {{5, 3, 0},
                                           {1, 1, 0},
                                           {2, 1, 0},
                                           {3, 3, 0},
                                           {width, width - 1, 0},
                                           {width + 1, width, 0},
                                           {2 * width + 3, width + 1, 0},
                                           {block, block - 1, 0},
                                           {group - 1, block, 0},
                                           {group, block + 1, 0},
                                           {clb_min(group + 1, largest.m), 1, 0},
                                           largest};
    struct clb_program_check program = {"panels 2", check->runtime, like->program, false};
    return clb_check_sizes(&program, sizes, CLB_COUNT_OF(sizes), factor_random, check);
}

clb_status clb_getf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    struct clb_getf2 like = {0};
    clb_getf2_set_shape(&like, &runtime->device, variant);
    const struct clb_check_size largest = largest_panel(&like);
    const struct dense_check check = {
        .runtime = runtime,
        .variant = variant,
        .step = CLB_STEP_PANELS,
        .check_all = check_all_panels,
        .limits = {.m = largest.m, .n = largest.n, .k = like.block, .triangle = CLB_MAX_BLOCK},
        .like = like};
    return clb_check_once(&panels[variant->precision], "the device's panels are not used",
                          run_check, &check, sizeof check);
}

/* ---- diagonal blocks of Cholesky ---- */

static clb_status factor_block(struct dense_check *check, const struct clb_trial *trial,
                               size_t *bad)
{
    const struct clb_dmat a = matrix_of(trial, 0);
    clb_status status = clb_potf2_factor(check->block, check->workspace, &a, trial->call.upper, 0);
    return status == CLB_OK ? clb_potf2_finish(check->block, check->workspace, bad) : status;
}

/* Positive definite, because the diagonal dominates; elements that must not be read are NaN. */
static clb_status factor_definite(void *context, struct clb_check_size size)
{
    struct dense_check *check = context;
    const struct clb_trial_numbers numbers = {
        .seed = 20261122, .diagonal = (double)size.n, .scale = 1, .spoils = true};
    struct clb_call call = call_of(check, CLB_KIND_potrf);
    clb_status status = CLB_OK;
    call.m = call.n = size.n;
    for (int upper = 0; upper < 2 && status == CLB_OK; upper++) {
        call.upper = upper;
        status = try_call(check, call, &numbers, factor_block);
    }
    return status;
}

/* Every order that a block may have: there are few. */
static clb_status check_all_blocks(struct dense_check *check)
{
    struct clb_check_size sizes[CLB_MAX_BLOCK + 1] = {{.n = 5}};
    struct clb_potf2 block;
    CLB_TRY(clb_potf2_prepare(&block, check->workspace));
    struct clb_program_check program = {"blocks 2", check->runtime, block.program, false};
    for (size_t n = 1; n <= block.most; n++)
        sizes[n].n = n;
    check->block = &block;
    clb_status status = clb_check_sizes(&program, sizes, 1 + block.most, factor_definite, check);
    clb_potf2_close(&block, check->workspace, clb_workspace_finish(check->workspace));
    return status;
}

clb_status clb_potf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct dense_check check = {.runtime = runtime,
                                      .variant = variant,
                                      .step = CLB_STEP_BLOCKS,
                                      .check_all = check_all_blocks};
    return clb_check_once(&blocks[variant->precision], "the device's diagonal blocks are not used",
                          run_check, &check, sizeof check);
}
