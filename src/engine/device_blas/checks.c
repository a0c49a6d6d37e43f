/* The checks of this layer's kernels: the first use in each precision builds, launches and verifies
 * them, by random matrices. */
#include "getf2.h"
#include "potf2.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- triangular systems and interchanges ----------------------------------------------------- */

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
    struct trsm_check_task task = {runtime, variant};
    return clb_check_once(&clb_dense_checks.systems[variant->precision],
                          "triangular systems are not the device's", trsm_check_open_and_check,
                          &task, sizeof task);
}

/* ---- panels of LU ---------------------------------------------------------------------------- */

/* All numbers are complex here, as pairs; the imaginary parts of real precisions are zero. */
struct getf2_check_check {
    clb_precision precision;
    size_t m, n, ld;
    void *typed; /* m x n, ld */
    double *a;   /* the matrix before it is factored, pairs, m x n */
    int64_t *ipiv;
};

static double get_part(const struct getf2_check_check *check, size_t i, size_t j, size_t part)
{
    size_t parts = clb_precision_parts(check->precision), at = (i + j * check->ld) * parts + part;
    return part < parts ? clb_check_get(check->precision, check->typed, at) : 0;
}

static void set_part(struct getf2_check_check *check, size_t i, size_t j, size_t part, double value)
{
    size_t parts = clb_precision_parts(check->precision), at = (i + j * check->ld) * parts + part;
    clb_check_put(check->precision, check->typed, at, value);
}

static void set_panel(struct getf2_check_check *check)
{
    uint64_t state = 20261121;
    for (size_t j = 0; j < check->n; j++) {
        for (size_t i = 0; i < check->m; i++) {
            for (size_t part = 0; part < clb_precision_parts(check->precision); part++) {
                set_part(check, i, j, part, clb_check_random(&state));
                check->a[2 * (i + j * check->m) + part] = get_part(check, i, j, part);
            }
        }
    }
}

/* Apply the interchanges to the rows of a; false if one is invalid. */
static bool getf2_check_interchange(struct getf2_check_check *check)
{
    for (size_t k = 0; k < clb_min(check->m, check->n); k++) {
        if (check->ipiv[k] < (int64_t)k + 1 || check->ipiv[k] > (int64_t)check->m)
            return false;
        size_t other = (size_t)check->ipiv[k] - 1;
        for (size_t j = 0; j < 2 * check->n; j++) {
            double *x = check->a + 2 * (j / 2 * check->m + k) + j % 2;
            double *y = check->a + 2 * (j / 2 * check->m + other) + j % 2, held = *x;
            *x = *y;
            *y = held;
        }
    }
    return true;
}

/* |a - l*u| for an entry, in units of the sum of its terms. */
static double residual(const struct getf2_check_check *check, size_t i, size_t j)
{
    double re = check->a[2 * (i + j * check->m)], im = check->a[2 * (i + j * check->m) + 1];
    double size = fabs(re) + fabs(im);
    for (size_t k = 0; k <= clb_min(i, j); k++) {
        double l[2] = {k == i, 0}, u[2] = {get_part(check, k, j, 0), get_part(check, k, j, 1)};
        if (k < i) {
            l[0] = get_part(check, i, k, 0);
            l[1] = get_part(check, i, k, 1);
        }
        re -= l[0] * u[0] - l[1] * u[1];
        im -= l[0] * u[1] + l[1] * u[0];
        size += (fabs(l[0]) + fabs(l[1])) * (fabs(u[0]) + fabs(u[1]));
    }
    return (fabs(re) + fabs(im)) / size;
}

static bool getf2_check_is_right(struct getf2_check_check *check)
{
    double unit = clb_check_unit(check->precision);
    if (!getf2_check_interchange(check))
        return false;
    for (size_t j = 0; j < check->n; j++) {
        for (size_t i = 0; i < check->m; i++) {
            /* Partial pivoting: |re| + |im| of a multiplier is at most 2 when complex. */
            double multiplier = fabs(get_part(check, i, j, 0)) + fabs(get_part(check, i, j, 1));
            if (!(residual(check, i, j) <= 4 * (double)(check->n + 4) * unit) ||
                (i > j && multiplier > 2))
                return false;
        }
    }
    return true;
}

static clb_status getf2_check_run(struct getf2_check_check *check, struct clb_getf2 *panel,
                                  struct clb_workspace *workspace, const struct clb_buffer *memory)
{
    size_t bytes = check->ld * check->n * clb_precision_size(check->precision), info = 0;
    const struct clb_dmat x = {memory->mem, 0, check->m, check->n, check->ld};
    clb_status status = clb_queue_write_now(workspace->queue, memory->mem, 0, bytes, check->typed);
    if (status == CLB_OK)
        status = clb_getf2_enqueue(panel, workspace, &x, 0, check->n);
    if (status == CLB_OK)
        status = clb_getf2_read(panel, workspace, 0, check->n, check->ipiv, &info);
    if (status == CLB_OK)
        status = clb_queue_read_now(workspace->queue, memory->mem, 0, bytes, check->typed);
    if (status == CLB_OK && (info != 0 || !getf2_check_is_right(check)))
        status = CLB_ERR_BUILD;
    return status;
}

struct getf2_check_size {
    size_t m, n;
};

static clb_status getf2_check_factor_random(struct clb_workspace *workspace,
                                            struct getf2_check_size size)
{
    struct clb_getf2 panel;
    struct clb_buffer *memory = NULL;
    struct getf2_check_check check = {.precision = workspace->variant->precision,
                                      .m = size.m,
                                      .n = clb_min(size.m, size.n),
                                      .ld = size.m + 1};
    check.typed = calloc(check.ld * check.n, clb_precision_size(check.precision));
    check.a = calloc(check.m * check.n, 2 * sizeof *check.a);
    check.ipiv = calloc(check.n, sizeof *check.ipiv);
    clb_status status = CLB_ERR_NOMEM;
    if (check.typed != NULL && check.a != NULL && check.ipiv != NULL)
        status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE,
                                check.ld * check.n * clb_precision_size(check.precision), &memory);
    if (status == CLB_OK)
        status = clb_getf2_prepare(&panel, workspace, check.m, check.n);
    if (status == CLB_OK) {
        set_panel(&check);
        status = getf2_check_run(&check, &panel, workspace, memory);
        bool idle = clb_workspace_finish(workspace);
        clb_getf2_close(&panel, workspace, idle);
        clb_buffer_end(workspace->runtime, memory, idle);
    } else {
        clb_buffer_end(workspace->runtime, memory, true);
    }
    free(check.typed);
    free(check.a);
    free(check.ipiv);
    return status;
}

struct getf2_check_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_getf2 like;
};

/* Sizes at the edges of strips, blocks and groups. The last is the largest: it has several groups
 * if the device can, several strips and blocks, and no even extents. */
static clb_status factor_sizes(struct clb_workspace *workspace, const struct clb_getf2 *like,
                               struct getf2_check_size largest)
{
    size_t width = like->width, block = like->block, group = like->group;
    const struct getf2_check_size sizes[] = {{5, 3},
                                             {1, 1},
                                             {2, 1},
                                             {3, 3},
                                             {width, width - 1},
                                             {width + 1, width},
                                             {2 * width + 3, width + 1},
                                             {block, block - 1},
                                             {group - 1, block},
                                             {group, block + 1},
                                             {clb_min(group + 1, largest.m), 1},
                                             largest};
    const struct clb_check_programs programs = {"panels 1", workspace->runtime, {like->program}};
    bool all = clb_check_tries_all(&programs);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < (all ? CLB_COUNT_OF(sizes) : 1) && status == CLB_OK; i++)
        status = getf2_check_factor_random(workspace, sizes[i]);
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

/* A launch whose groups wait for each other in vain fails, so here a failure of OpenCL means that
 * the device can't factor panels. */
static clb_status getf2_check_open_and_check(void *argument)
{
    struct getf2_check_task *task = argument;
    struct clb_getf2 *like = &task->like;
    const struct getf2_check_size largest = {
        like->most_groups > 1 ? 2 * like->group + like->group / 3 : like->group,
        like->block + like->width + like->width / 2 + 1};
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
    struct getf2_check_task task = {runtime, variant, *like};
    return clb_check_once(&clb_dense_checks.panels[variant->precision],
                          "the device's panels are not used", getf2_check_open_and_check, &task,
                          sizeof task);
}

/* ---- diagonal blocks of Cholesky ------------------------------------------------------------- */

/* Two matrices of order n share one of 2n + 1 columns: the lower triangle of one and the upper
 * triangle of the other are factored. All numbers are complex, as pairs. */
struct potf2_check_check {
    clb_precision precision;
    size_t n, ld, bytes;
    void *before, *after;
};

static double potf2_check_get(const struct potf2_check_check *check, const void *x, size_t i,
                              size_t j, size_t part)
{
    size_t parts = clb_precision_parts(check->precision);
    return part < parts ? clb_check_get(check->precision, x, (i + j * check->ld) * parts + part)
                        : 0;
}

/* Positive definite, because the diagonal dominates; elements that must not be read are NaN. */
static void potf2_check_fill(const struct potf2_check_check *check)
{
    size_t parts = clb_precision_parts(check->precision), n = check->n;
    uint64_t state = 20261122;
    for (size_t at = 0; at < check->ld * (2 * n + 1) * parts; at++) {
        size_t i = at / parts % check->ld, j = at / parts / check->ld, k = j < n ? j : j - n;
        bool inside = i < n && j < 2 * n && (j < n ? i >= k : i <= k);
        double value = clb_check_random(&state);
        if (!inside || (i == k && at % parts == 1))
            value = NAN;
        else if (i == k)
            value += (double)n;
        clb_check_put(check->precision, check->before, at, value);
    }
}

/* The factor of the lower triangle, or the transpose of the upper triangle's. */
static double potf2_check_factor(const struct potf2_check_check *check, bool upper, size_t i,
                                 size_t p, size_t part)
{
    return upper ? potf2_check_get(check, check->after, p, check->n + i, part)
                 : potf2_check_get(check, check->after, i, p, part);
}

/* Whether |A - L*L^H| of an entry is within its bound. */
static bool potf2_check_entry_is_right(const struct potf2_check_check *check, bool upper, size_t i,
                                       size_t j)
{
    size_t row = upper ? j : i, col = upper ? check->n + i : j;
    double unit = clb_check_unit(check->precision);
    double re = potf2_check_get(check, check->before, row, col, 0);
    double im = i == j ? 0 : potf2_check_get(check, check->before, row, col, 1);
    double size = fabs(re) + fabs(im);
    for (size_t p = 0; p <= j; p++) {
        const double x[2] = {potf2_check_factor(check, upper, i, p, 0),
                             potf2_check_factor(check, upper, i, p, 1)};
        const double y[2] = {potf2_check_factor(check, upper, j, p, 0),
                             potf2_check_factor(check, upper, j, p, 1)};
        re -= x[0] * y[0] + x[1] * y[1];
        im -= x[1] * y[0] - x[0] * y[1];
        size += (fabs(x[0]) + fabs(x[1])) * (fabs(y[0]) + fabs(y[1]));
    }
    return fabs(re) + fabs(im) <= 4 * (double)(check->n + 4) * unit * size;
}

static bool potf2_check_is_right(const struct potf2_check_check *check)
{
    for (size_t j = 0; j < check->n; j++) {
        for (size_t i = 0; i < check->n; i++) {
            /* The other triangles must be unchanged. */
            if (i < j && !(isnan(potf2_check_get(check, check->after, i, j, 0)) &&
                           isnan(potf2_check_get(check, check->after, j, check->n + i, 0))))
                return false;
            if (i >= j && !(potf2_check_entry_is_right(check, false, i, j) &&
                            potf2_check_entry_is_right(check, true, i, j)))
                return false;
        }
    }
    return true;
}

static clb_status potf2_check_run(const struct potf2_check_check *check, struct clb_potf2 *block,
                                  struct clb_workspace *workspace, cl_mem mem)
{
    const struct clb_dmat lower = {mem, 0, check->n, check->n, check->ld};
    const struct clb_dmat upper = {mem, check->n * check->ld, check->n, check->n, check->ld};
    size_t info = 0;
    clb_status status = clb_queue_write_now(workspace->queue, mem, 0, check->bytes, check->before);
    if (status == CLB_OK)
        status = clb_potf2_factor(block, workspace, &lower, false, 0);
    if (status == CLB_OK)
        status = clb_potf2_factor(block, workspace, &upper, true, 0);
    if (status == CLB_OK)
        status = clb_queue_read_now(workspace->queue, mem, 0, check->bytes, check->after);
    if (status == CLB_OK)
        status = clb_potf2_finish(block, workspace, &info);
    if (status == CLB_OK && (info != 0 || !potf2_check_is_right(check)))
        status = CLB_ERR_BUILD;
    return status;
}

/* The order that is checked where an earlier process has checked all. */
#define SMALL ((size_t)5)

struct potf2_check_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
};

static clb_status potf2_check_factor_random(struct clb_potf2 *block,
                                            struct clb_workspace *workspace, cl_mem mem, void *host,
                                            size_t n)
{
    struct potf2_check_check check = {
        .precision = workspace->variant->precision, .n = n, .ld = n + 2};
    check.bytes = check.ld * (2 * n + 1) * clb_precision_size(check.precision);
    check.before = host;
    check.after = (char *)host + check.bytes;
    potf2_check_fill(&check);
    return potf2_check_run(&check, block, workspace, mem);
}

/* Every order that a block may have: there are few. */
static clb_status factor_all(struct clb_potf2 *block, struct clb_workspace *workspace, cl_mem mem,
                             void *host)
{
    const struct clb_check_programs programs = {"blocks 1", workspace->runtime, {block->program}};
    bool all = clb_check_tries_all(&programs);
    size_t first = all ? 1 : SMALL, last = all ? block->most : SMALL;
    clb_status status = CLB_OK;
    for (size_t n = first; n <= last && status == CLB_OK; n++)
        status = potf2_check_factor_random(block, workspace, mem, host, n);
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

static clb_status allocate_and_factor(struct clb_potf2 *block, struct clb_workspace *workspace)
{
    struct clb_buffer *memory = NULL;
    size_t n = block->most;
    size_t bytes = (n + 2) * (2 * n + 1) * clb_precision_size(workspace->variant->precision);
    void *host = calloc(2, bytes);
    if (host == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, bytes, &memory);
    if (status == CLB_OK)
        status = factor_all(block, workspace, memory->mem, host);
    clb_buffer_end(workspace->runtime, memory, clb_workspace_finish(workspace));
    free(host);
    return status;
}

static clb_status potf2_check_open_and_check(void *argument)
{
    const struct potf2_check_task *task = argument;
    const struct clb_workspace_limits limits = {0};
    struct clb_workspace workspace;
    struct clb_potf2 block;
    clb_status status = clb_step_need(task->runtime, CLB_STEP_BLOCKS, task->variant->precision);
    if (status == CLB_OK)
        status = clb_workspace_open(&workspace, task->runtime, task->variant, &limits);
    if (status != CLB_OK)
        return status;
    status = clb_potf2_prepare(&block, &workspace);
    if (status == CLB_OK) {
        status = allocate_and_factor(&block, &workspace);
        clb_potf2_close(&block, &workspace, clb_workspace_finish(&workspace));
    }
    clb_workspace_close(&workspace, clb_workspace_finish(&workspace));
    return status;
}

clb_status clb_potf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    struct potf2_check_task task = {runtime, variant};
    return clb_check_once(&clb_dense_checks.blocks[variant->precision],
                          "the device's diagonal blocks are not used", potf2_check_open_and_check,
                          &task, sizeof task);
}
