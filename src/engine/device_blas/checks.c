/* The checks of this layer's kernels: the first use in each precision builds, launches and verifies
 * them, by random matrices. */
#include "engine/kernel/check.h"
#include "potf2.h"

#include "engine/kernel/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct clb_check systems[CLB_PRECISIONS], panels[CLB_PRECISIONS], blocks[CLB_PRECISIONS];
} checks;
_Atomic bool clb_systems_passed[CLB_PRECISIONS], clb_panels_passed[CLB_PRECISIONS];

/* What a check is asked for: of panels, those like this one. */
struct checks_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_getf2 like;
};

/* ---- triangular systems and interchanges ----------------------------------------------------- */

/* Systems of up to one block and a bit, so that all kernels and the product between blocks are
 * used: A^H*X = B with A lower triangular, which reverses, transposes and conjugates, and X*A = B.
 */
static clb_status solve_random(struct clb_workspace *workspace, bool right, size_t n, size_t rhs)
{
    static const struct clb_trial_numbers numbers = {
        .seed = 20261121, .diagonal = 2, .scale = 0.125};
    const clb_precision precision = workspace->variant->precision;
    struct clb_call call = clb_call_of(clb_routine_of(CLB_KIND_trsm, precision, false));
    struct clb_trial trial;
    call.right = right;
    call.m = right ? rhs : n;
    call.n = right ? n : rhs;
    call.alpha = clb_scalar_one(precision);
    call.transa = right ? CLB_OP_N : CLB_OP_C;
    clb_status status =
        clb_trial_open(&trial, workspace->runtime, workspace->queue, &call, &numbers);
    if (status == CLB_OK) {
        const struct clb_dmat_triangle triangle = {
            .a = {trial.memory[0]->mem, 0, n, n, trial.call.lda},
            .right = right,
            .op = call.transa};
        const struct clb_dmat b = {trial.memory[1]->mem, 0, call.m, call.n, trial.call.ldb};
        status = clb_dmat_pack_triangle(workspace, &triangle);
        if (status == CLB_OK)
            status = clb_dmat_solve(workspace, &triangle, &b);
    }
    if (status == CLB_OK)
        status = clb_trial_judge(&trial);
    clb_trial_close(&trial, clb_workspace_finish(workspace));
    return status;
}

/* A matrix of n rows: A, B, B with the rows reversed, that permuted back, the trapezoid of B, and
 * A's upper triangle. */
struct copies_check {
    struct clb_workspace *workspace;
    struct clb_dmat all;
    size_t n, rhs;
};

/* The first column of B (index 0) or one of its copies; index 4: of A's upper triangle. */
static size_t column_of(const struct copies_check *check, size_t index)
{
    return check->n + index * check->rhs;
}

static clb_status make_copies(const struct copies_check *check)
{
    struct clb_workspace *workspace = check->workspace;
    const size_t n = check->n;
    struct clb_move *moves = workspace->moves_host->host;
    struct clb_dmat b[4]; /* and its copies */
    for (size_t c = 0; c < CLB_COUNT_OF(b); c++)
        b[c] = clb_dmat_part(&check->all, 0, column_of(check, c), n, check->rhs);
    for (size_t i = 0; i < n; i++)
        moves[i] = (struct clb_move){(cl_uint)i, (cl_uint)(n - 1 - i)};
    clb_status status = clb_dmat_send_moves(workspace, n);
    if (status == CLB_OK)
        status = clb_dmat_move_copy(workspace, &b[0], &b[1], n);
    for (int twice = 0; twice < 2 && status == CLB_OK; twice++)
        status = clb_dmat_move(workspace, &b[1], n);
    cl_uint *order = workspace->moves_host->host;
    status = status == CLB_OK ? clb_queue_finish(workspace->queue) : status;
    for (size_t i = 0; i < n; i++)
        order[i] = (cl_uint)(n - 1 - i);
    if (status == CLB_OK)
        status = clb_dmat_send_moves(workspace, n);
    if (status == CLB_OK)
        status = clb_dmat_permute(workspace, &b[1], &b[2], workspace->moves->mem);
    if (status == CLB_OK)
        status = clb_dmat_trapezoid(workspace, &b[0], &b[3], true);
    const struct clb_dmat a = clb_dmat_part(&check->all, 0, 0, n, n),
                          upper = clb_dmat_part(&check->all, 0, column_of(check, 4), n, n);
    return status == CLB_OK ? clb_dmat_triangle_copy(workspace, &a, &upper, true) : status;
}

/* Whether an element of what was made is the one of x that it is a copy of, in one part. */
static bool copy_is_right(const struct copies_check *check, const void *x, size_t i, size_t j,
                          size_t part)
{
    const clb_precision precision = check->workspace->variant->precision;
    const size_t n = check->n, rhs = check->rhs, ld = check->all.ld;
    const size_t index = j < n ? 0 : (j - n) / rhs;
    double wanted;
    if (j < column_of(check, 1))
        return true;
    if (index < 4) {
        const size_t from = index == 1 ? n - 1 - i : i, col = n + (j - n) % rhs;
        wanted =
            clb_check_get(precision, x, (from + col * ld) * clb_precision_parts(precision) + part);
        if (index == 3 && i <= (j - n) % rhs)
            wanted = i == (j - n) % rhs && part == 0;
    } else {
        const size_t col = j - column_of(check, 4);
        wanted = i <= col ? clb_check_get(precision, x,
                                          (i + col * ld) * clb_precision_parts(precision) + part)
                          : 0;
    }
    return clb_check_get(precision, x, (i + j * ld) * clb_precision_parts(precision) + part) ==
           wanted;
}

static clb_status check_copies(struct clb_workspace *workspace, size_t n, size_t rhs)
{
    const clb_precision precision = workspace->variant->precision;
    const size_t parts = clb_precision_parts(precision);
    struct copies_check check = {
        workspace, {.rows = n, .cols = 2 * n + 4 * rhs, .ld = n + 1}, n, rhs};
    const size_t count = check.all.ld * check.all.cols * parts;
    const size_t bytes = count * clb_precision_real_size(precision);
    struct clb_buffer *buffer = NULL;
    uint64_t state = 20261121;
    void *x = calloc(1, bytes);
    if (x == NULL)
        return CLB_ERR_NOMEM;
    for (size_t e = 0; e < count; e++)
        clb_check_put(precision, x, e, clb_check_random(&state));
    clb_status status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, bytes, &buffer);
    if (status == CLB_OK) {
        check.all.mem = buffer->mem;
        status = clb_queue_write_now(workspace->queue, buffer->mem, 0, bytes, x);
    }
    if (status == CLB_OK)
        status = make_copies(&check);
    if (status == CLB_OK)
        status = clb_queue_read_now(workspace->queue, buffer->mem, 0, bytes, x);
    for (size_t e = 0; e < check.all.cols * n * parts && status == CLB_OK; e++) {
        if (!copy_is_right(&check, x, e / parts % n, e / parts / n, e % parts))
            status = CLB_ERR_BUILD;
    }
    clb_buffer_end(workspace->runtime, buffer, clb_workspace_finish(workspace));
    free(x);
    return status;
}

static clb_status check_systems(void *context, struct clb_check_size size)
{
    struct clb_workspace *workspace = context;
    clb_status status = solve_random(workspace, false, size.m, size.n);
    if (status == CLB_OK)
        status = solve_random(workspace, true, size.m, size.n);
    return status == CLB_OK ? check_copies(workspace, size.m, size.n) : status;
}

/* Orders around those of a vector, a sub-block and a block; numbers of right-hand sides around that
 * of a tile, which is 8 to 32. */
#define MOST_RHS ((size_t)33)

static clb_status check_sizes(struct clb_workspace *workspace)
{
    size_t block = workspace->block;
    const struct clb_check_size sizes[] = {
        {9, 3, 0},         {1, 1, 0},          {1, 32, 0},         {2, 16, 0},
        {7, 8, 0},         {8, 7, 0},          {15, 17, 0},        {16, 9, 0},
        {33, 15, 0},       {block - 1, 31, 0}, {block, 16, 0},     {block, MOST_RHS, 0},
        {block + 1, 1, 0}, {block + 1, 8, 0},  {block + 5, 32, 0}, {block + 5, 3, 0}};
    const struct clb_check_programs programs = {
        "triangular systems 2", workspace->runtime, {workspace->trsm, workspace->laswp}};
    return clb_check_sizes(&programs, sizes, CLB_COUNT_OF(sizes), check_systems, workspace);
}

static clb_status trsm_check_open_and_check(void *argument)
{
    const struct checks_task *task = argument;
    struct clb_workspace workspace;
    const struct clb_workspace_limits right = clb_solve_limits(2 * CLB_MAX_BLOCK, true, MOST_RHS);
    struct clb_workspace_limits limits = clb_solve_limits(2 * CLB_MAX_BLOCK, false, MOST_RHS);
    limits.other_m = right.m;
    limits.other_n = right.n;
    limits.other_k = right.k;
    clb_status status = clb_step_need(task->runtime, CLB_STEP_SYSTEMS, task->variant->precision);
    if (status == CLB_OK)
        status = clb_workspace_open_unchecked(&workspace, task->runtime, task->variant, &limits);
    if (status == CLB_OK) {
        status = check_sizes(&workspace);
        clb_workspace_close(&workspace, clb_workspace_finish(&workspace));
    }
    return status;
}

clb_status clb_workspace_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    struct checks_task task = {.runtime = runtime, .variant = variant};
    clb_status status = clb_check_once(&checks.systems[variant->precision],
                                       "triangular systems are not the device's",
                                       trsm_check_open_and_check, &task, sizeof task);
    if (status == CLB_OK)
        clb_systems_passed[variant->precision] = true;
    return status;
}

/* ---- panels of LU ---------------------------------------------------------------------------- */

static clb_status factor_random(void *context, struct clb_check_size size)
{
    struct clb_workspace *workspace = context;
    static const struct clb_trial_numbers numbers = {.seed = 20261121, .scale = 1, .spoils = true};
    const size_t m = size.m, n = clb_min(m, size.n);
    struct clb_call call =
        clb_call_of(clb_routine_of(CLB_KIND_getrf, workspace->variant->precision, false));
    struct clb_getf2 panel;
    struct clb_trial trial;
    size_t first_zero = 0;
    int64_t info = 0, *ipiv = calloc(n, sizeof *ipiv);
    call.m = m;
    call.n = n;
    call.ipiv = ipiv;
    call.info = &info;
    call.wide = true;
    if (ipiv == NULL)
        return CLB_ERR_NOMEM;
    clb_status status =
        clb_trial_open(&trial, workspace->runtime, workspace->queue, &call, &numbers);
    const bool prepared =
        status == CLB_OK && (status = clb_getf2_prepare(&panel, workspace, m, n)) == CLB_OK;
    if (prepared) {
        const struct clb_dmat x = {trial.memory[0]->mem, 0, m, n, trial.call.lda};
        status = clb_getf2_enqueue(&panel, workspace, &x, 0, n);
    }
    if (status == CLB_OK)
        status = clb_getf2_read(&panel, workspace, 0, n, ipiv, &first_zero);
    info = (int64_t)first_zero;
    if (status == CLB_OK && info != 0)
        status = CLB_ERR_BUILD;
    if (status == CLB_OK)
        status = clb_trial_judge(&trial);
    const bool idle = clb_workspace_finish(workspace);
    if (prepared)
        clb_getf2_close(&panel, workspace, idle);
    clb_trial_close(&trial, idle);
    free(ipiv);
    return status;
}

/* Sizes at the edges of strips, blocks and groups. The last is the largest: it has several groups
 * if the device can, several strips and blocks, and no even extents. */
static clb_status factor_sizes(struct clb_workspace *workspace, const struct clb_getf2 *like,
                               struct clb_check_size largest)
{
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
    const struct clb_check_programs programs = {"panels 2", workspace->runtime, {like->program}};
    return clb_check_sizes(&programs, sizes, CLB_COUNT_OF(sizes), factor_random, workspace);
}

/* A launch whose groups wait for each other in vain fails, so here a failure of OpenCL means that
 * the device can't factor panels. */
static clb_status getf2_check_open_and_check(void *argument)
{
    struct checks_task *task = argument;
    struct clb_getf2 *like = &task->like;
    const struct clb_check_size largest = {like->most_groups > 1 ? 2 * like->group + like->group / 3
                                                                 : like->group,
                                           like->block + like->width + like->width / 2 + 1, 0};
    const struct clb_workspace_limits limits = {
        .m = largest.m, .n = largest.n, .k = like->block, .triangle = CLB_MAX_BLOCK};
    struct clb_workspace workspace;
    clb_status status = clb_step_need(task->runtime, CLB_STEP_PANELS, task->variant->precision);
    if (status == CLB_OK)
        status = clb_workspace_open(&workspace, task->runtime, task->variant, &limits);
    if (status == CLB_OK) {
        status = clb_getf2_get_program(like, &workspace);
        if (status == CLB_OK)
            status = factor_sizes(&workspace, like, largest);
        clb_workspace_close(&workspace, clb_workspace_finish(&workspace));
    }
    return status == CLB_ERR_OPENCL ? CLB_ERR_BUILD : status;
}

clb_status clb_getf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_getf2 *like)
{
    struct checks_task task = {runtime, variant, *like};
    clb_status status =
        clb_check_once(&checks.panels[variant->precision], "the device's panels are not used",
                       getf2_check_open_and_check, &task, sizeof task);
    if (status == CLB_OK)
        clb_panels_passed[variant->precision] = true;
    return status;
}

/* ---- diagonal blocks of Cholesky ------------------------------------------------------------- */

/* Positive definite, because the diagonal dominates; elements that must not be read are NaN. */
static clb_status factor_definite(struct clb_potf2 *block, struct clb_workspace *workspace,
                                  bool upper, size_t n)
{
    const struct clb_trial_numbers numbers = {
        .seed = 20261122, .diagonal = (double)n, .scale = 1, .spoils = true};
    struct clb_call call =
        clb_call_of(clb_routine_of(CLB_KIND_potrf, workspace->variant->precision, false));
    struct clb_trial trial;
    int64_t info = 0;
    size_t first_bad = 0;
    call.upper = upper;
    call.n = n;
    call.info = &info;
    call.wide = true;
    clb_status status =
        clb_trial_open(&trial, workspace->runtime, workspace->queue, &call, &numbers);
    if (status == CLB_OK) {
        const struct clb_dmat a = {trial.memory[0]->mem, 0, n, n, trial.call.lda};
        status = clb_potf2_factor(block, workspace, &a, upper, 0);
    }
    if (status == CLB_OK)
        status = clb_potf2_finish(block, workspace, &first_bad);
    info = (int64_t)first_bad;
    if (status == CLB_OK && info != 0)
        status = CLB_ERR_BUILD;
    if (status == CLB_OK)
        status = clb_trial_judge(&trial);
    clb_trial_close(&trial, clb_workspace_finish(workspace));
    return status;
}

struct blocks_check {
    struct clb_potf2 block;
    struct clb_workspace workspace;
};

static clb_status check_blocks(void *context, struct clb_check_size size)
{
    struct blocks_check *check = context;
    clb_status status = factor_definite(&check->block, &check->workspace, false, size.n);
    return status == CLB_OK ? factor_definite(&check->block, &check->workspace, true, size.n)
                            : status;
}

/* Every order that a block may have: there are few. */
static clb_status factor_all(struct blocks_check *check)
{
    struct clb_check_size sizes[CLB_MAX_BLOCK + 1] = {{.n = 5}};
    const size_t most = check->block.most;
    const struct clb_check_programs programs = {
        "blocks 2", check->workspace.runtime, {check->block.program}};
    for (size_t n = 1; n <= most; n++)
        sizes[n].n = n;
    return clb_check_sizes(&programs, sizes, 1 + most, check_blocks, check);
}

static clb_status potf2_check_open_and_check(void *argument)
{
    const struct checks_task *task = argument;
    const struct clb_workspace_limits limits = {0};
    struct blocks_check check;
    clb_status status = clb_step_need(task->runtime, CLB_STEP_BLOCKS, task->variant->precision);
    if (status == CLB_OK)
        status = clb_workspace_open(&check.workspace, task->runtime, task->variant, &limits);
    if (status != CLB_OK)
        return status;
    status = clb_potf2_prepare(&check.block, &check.workspace);
    if (status == CLB_OK) {
        status = factor_all(&check);
        clb_potf2_close(&check.block, &check.workspace, clb_workspace_finish(&check.workspace));
    }
    clb_workspace_close(&check.workspace, clb_workspace_finish(&check.workspace));
    return status;
}

clb_status clb_potf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    struct checks_task task = {.runtime = runtime, .variant = variant};
    return clb_check_once(&checks.blocks[variant->precision],
                          "the device's diagonal blocks are not used", potf2_check_open_and_check,
                          &task, sizeof task);
}
