/* The check of the kernels for triangular systems and interchanges: the first use in each precision
 * builds, launches and verifies them. */
#include "kernel/check.h"
#include "dense.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Systems of up to one block and a bit, so that all kernels and the product between blocks are
 * used: A^H*X = B with A lower triangular, which reverses, transposes and conjugates, and Y*A = C.
 * After A the same matrix has B, its copy with the rows reversed, that permuted back, the trapezoid
 * of B, A's upper triangle, and C. */
struct trsm_check_check {
    struct clb_workspace *workspace;
    struct clb_buffer *buffer;
    struct clb_dmat all;
    clb_precision precision;
    size_t n, rhs, parts, bytes;
    void *before, *after;
};

static double trsm_check_get(const struct trsm_check_check *check, const void *x, size_t i,
                             size_t j, size_t part)
{
    return clb_check_get(check->precision, x, (i + j * check->all.ld) * check->parts + part);
}

static void put(const struct trsm_check_check *check, void *x, size_t i, size_t j, size_t part,
                double value)
{
    clb_check_put(check->precision, x, (i + j * check->all.ld) * check->parts + part, value);
}

static void trsm_check_fill(const struct trsm_check_check *check)
{
    uint64_t state = 20261121;
    for (size_t j = 0; j < check->all.cols; j++) {
        for (size_t i = 0; i < check->all.rows; i++) {
            for (size_t part = 0; part < check->parts; part++) {
                double value = clb_check_random(&state);
                bool diagonal = i == j && part == 0;
                put(check, check->before, i, j, part,
                    diagonal       ? 2 + value
                    : j < check->n ? value / 8
                                   : value);
            }
        }
    }
}

/* The first column of the right-hand sides (index 0) or one of their copies after A; the next two
 * functions: that of A's upper triangle, and of C. */
static size_t trsm_check_column_of(const struct trsm_check_check *check, size_t index)
{
    return check->n + index * check->rhs;
}

static size_t triangle_column(const struct trsm_check_check *check)
{
    return trsm_check_column_of(check, 4);
}

static size_t right_column(const struct trsm_check_check *check)
{
    return triangle_column(check) + check->n;
}

static struct clb_dmat trsm_check_columns(const struct trsm_check_check *check, size_t index)
{
    return clb_dmat_part(&check->all, 0, trsm_check_column_of(check, index), check->n, check->rhs);
}

/* Interchange rows i and n-1-i. */
static clb_status enqueue_moves(const struct trsm_check_check *check)
{
    struct clb_workspace *workspace = check->workspace;
    struct clb_move *moves = workspace->moves_host->host;
    const struct clb_dmat b = trsm_check_columns(check, 0), copy = trsm_check_columns(check, 1),
                          back = trsm_check_columns(check, 2),
                          trapezoid = trsm_check_columns(check, 3);
    for (size_t i = 0; i < check->n; i++)
        moves[i] = (struct clb_move){(cl_uint)i, (cl_uint)(check->n - 1 - i)};
    clb_status status = clb_dmat_send_moves(workspace, check->n);
    if (status == CLB_OK)
        status = clb_dmat_move_copy(workspace, &b, &copy, check->n);
    if (status == CLB_OK)
        status = clb_dmat_move(workspace, &copy, check->n);
    if (status == CLB_OK)
        status = clb_dmat_move(workspace, &copy, check->n);
    cl_uint *order = workspace->moves_host->host;
    status = status == CLB_OK ? clb_queue_finish(workspace->queue) : status;
    for (size_t i = 0; i < check->n; i++)
        order[i] = (cl_uint)(check->n - 1 - i);
    if (status == CLB_OK)
        status = clb_dmat_send_moves(workspace, check->n);
    if (status == CLB_OK)
        status = clb_dmat_permute(workspace, &copy, &back, workspace->moves->mem);
    if (status == CLB_OK)
        status = clb_dmat_trapezoid(workspace, &b, &trapezoid, true);
    return status;
}

static clb_status trsm_check_run(const struct trsm_check_check *check)
{
    struct clb_workspace *workspace = check->workspace;
    const struct clb_dmat b = trsm_check_columns(check, 0);
    const struct clb_dmat_triangle triangle = {
        .a = clb_dmat_part(&check->all, 0, 0, check->n, check->n), .op = CLB_OP_C};
    const struct clb_dmat_triangle on_right = {.a = triangle.a, .right = true};
    const struct clb_dmat copy =
        clb_dmat_part(&check->all, 0, triangle_column(check), check->n, check->n);
    const struct clb_dmat c =
        clb_dmat_part(&check->all, 0, right_column(check), check->rhs, check->n);
    clb_status status =
        clb_queue_write_now(workspace->queue, check->all.mem, 0, check->bytes, check->before);
    if (status == CLB_OK)
        status = clb_dmat_pack_triangle(workspace, &triangle);
    if (status == CLB_OK)
        status = clb_dmat_solve(workspace, &triangle, &b);
    if (status == CLB_OK)
        status = clb_dmat_pack_triangle(workspace, &on_right);
    if (status == CLB_OK)
        status = clb_dmat_solve(workspace, &on_right, &c);
    if (status == CLB_OK)
        status = enqueue_moves(check);
    if (status == CLB_OK)
        status = clb_dmat_triangle_copy(workspace, &triangle.a, &copy, true);
    if (status == CLB_OK)
        status =
            clb_queue_read_now(workspace->queue, check->all.mem, 0, check->bytes, check->after);
    return status;
}

/* Right-hand side j before or after the solve: element i of B's column, or of C's row. */
static double get_rhs(const struct trsm_check_check *check, const void *x, bool right, size_t i,
                      size_t j, size_t part)
{
    return right ? trsm_check_get(check, x, j, right_column(check) + i, part)
                 : trsm_check_get(check, x, i, check->n + j, part);
}

/* Whether |b - sum of conj(A(p, i))*x(p)|, or of A(p, i)*y(p), is within twice substitution's bound
 * in both parts of an entry. */
static bool trsm_check_entry_is_right(const struct trsm_check_check *check, bool right, size_t i,
                                      size_t j, size_t part)
{
    double sum = get_rhs(check, check->before, right, i, j, part), size = fabs(sum);
    double unit = clb_check_unit(check->precision), sign = right ? -1 : 1;
    for (size_t p = i; p < check->n; p++) {
        double re = trsm_check_get(check, check->before, p, i, 0);
        double x = get_rhs(check, check->after, right, p, j, part);
        double im = 0, y = 0;
        if (check->parts > 1) { /* (re -+ i*im) * (x + i*y), or the imaginary part of that */
            im = trsm_check_get(check, check->before, p, i, 1) * (part == 0 ? sign : -sign);
            y = get_rhs(check, check->after, right, p, j, 1 - part);
        }
        sum -= re * x + im * y;
        size += fabs(re * x) + fabs(im * y);
    }
    return fabs(sum) <= 2 * (double)(check->n + 4) * unit * size;
}

static bool triangle_is_right(const struct trsm_check_check *check)
{
    for (size_t j = 0; j < check->n; j++) {
        for (size_t e = 0; e < check->n * check->parts; e++) {
            size_t i = e / check->parts, part = e % check->parts;
            if (trsm_check_get(check, check->after, i, triangle_column(check) + j, part) !=
                (i <= j ? trsm_check_get(check, check->before, i, j, part) : 0))
                return false;
        }
    }
    return true;
}

/* Whether the copies of an entry of X are right: reversed, permuted back, in a trapezoid. */
static bool copies_are_right(const struct trsm_check_check *check, size_t i, size_t j, size_t part)
{
    double x = trsm_check_get(check, check->after, i, check->n + j, part);
    double below = i > j ? x : i == j && part == 0 ? 1 : 0;
    return trsm_check_get(check, check->after, check->n - 1 - i, trsm_check_column_of(check, 1) + j,
                          part) == x &&
           trsm_check_get(check, check->after, i, trsm_check_column_of(check, 2) + j, part) == x &&
           trsm_check_get(check, check->after, i, trsm_check_column_of(check, 3) + j, part) ==
               below;
}

static bool trsm_check_is_right(const struct trsm_check_check *check)
{
    for (size_t j = 0; j < check->rhs; j++) {
        for (size_t e = 0; e < check->n * check->parts; e++) {
            size_t i = e / check->parts, part = e % check->parts;
            if (!trsm_check_entry_is_right(check, false, i, j, part) ||
                !trsm_check_entry_is_right(check, true, i, j, part) ||
                !copies_are_right(check, i, j, part))
                return false;
        }
    }
    return triangle_is_right(check);
}

static clb_status check_kernels(struct clb_workspace *workspace, size_t n, size_t rhs)
{
    clb_precision precision = workspace->variant->precision;
    size_t rows = clb_max(n, rhs);
    struct trsm_check_check check = {
        .workspace = workspace,
        .n = n,
        .rhs = rhs,
        .precision = precision,
        .parts = clb_precision_parts(precision),
        .all = {.rows = rows, .cols = 3 * n + 4 * rhs, .ld = rows + 1}};
    check.bytes = check.all.ld * check.all.cols * clb_precision_size(precision);
    check.before = calloc(2, check.bytes);
    if (check.before == NULL)
        return CLB_ERR_NOMEM;
    check.after = (char *)check.before + check.bytes;
    trsm_check_fill(&check);
    clb_status status =
        clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, check.bytes, &check.buffer);
    if (status == CLB_OK) {
        check.all.mem = check.buffer->mem;
        status = trsm_check_run(&check);
    }
    if (status == CLB_OK && !trsm_check_is_right(&check))
        status = CLB_ERR_BUILD;
    clb_buffer_end(workspace->runtime, check.buffer, clb_workspace_finish(workspace));
    free(check.before);
    return status;
}

/* Orders around those of a vector, a sub-block and a block; numbers of right-hand sides around that
 * of a tile, which is 8 to 32. */
#define MOST_RHS ((size_t)33)

static clb_status check_sizes(struct clb_workspace *workspace)
{
    size_t block = workspace->block;
    const struct {
        size_t n, rhs;
    } sizes[] = {{9, 3},         {1, 1},          {1, 32},         {2, 16},
                 {7, 8},         {8, 7},          {15, 17},        {16, 9},
                 {33, 15},       {block - 1, 31}, {block, 16},     {block, MOST_RHS},
                 {block + 1, 1}, {block + 1, 8},  {block + 5, 32}, {block + 5, 3}};
    const struct clb_check_programs programs = {
        "triangular systems 1", workspace->runtime, {workspace->trsm, workspace->laswp}};
    bool all = clb_check_tries_all(&programs);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < (all ? CLB_COUNT_OF(sizes) : 1) && status == CLB_OK; i++)
        status = check_kernels(workspace, sizes[i].n, sizes[i].rhs);
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

/* ---- once for each precision ----------------------------------------------------------------- */

struct trsm_check_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
};

static clb_status trsm_check_open_and_check(void *argument)
{
    const struct trsm_check_task *task = argument;
    struct clb_workspace workspace;
    const struct clb_workspace_limits right = clb_solve_limits(2 * CLB_MAX_BLOCK, true, MOST_RHS);
    struct clb_workspace_limits limits = clb_solve_limits(2 * CLB_MAX_BLOCK, false, MOST_RHS);
    limits.other_m = right.m;
    limits.other_n = right.n;
    limits.other_k = right.k;
    clb_status status =
        clb_workspace_open_unchecked(&workspace, task->runtime, task->variant, &limits);
    if (status == CLB_OK) {
        status = check_sizes(&workspace);
        clb_workspace_close(&workspace, clb_workspace_finish(&workspace));
    }
    return status;
}

clb_status clb_workspace_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    static struct clb_check checks[CLB_PRECISIONS];
    struct trsm_check_task task = {runtime, variant};
    return clb_check_once(&checks[variant->precision], "triangular systems are not the device's",
                          trsm_check_open_and_check, &task);
}
