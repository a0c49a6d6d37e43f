/* The check of panels of LU on the device: random ones are factored and verified before any
 * others. */
#include "kernel/check.h"
#include "getf2.h"

#include <math.h>
#include <stdlib.h>

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

/* ---- on the device --------------------------------------------------------------------------- */

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
    const struct clb_getf2 *like;
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
    const struct getf2_check_task *task = argument;
    const struct clb_getf2 *like = task->like;
    const struct getf2_check_size largest = {
        like->most_groups > 1 ? 2 * like->group + like->group / 3 : like->group,
        like->block + like->width + like->width / 2 + 1};
    const struct clb_workspace_limits limits = {
        .m = largest.m, .n = largest.n, .k = like->block, .triangle = CLB_MAX_BLOCK};
    struct clb_workspace workspace;
    clb_status status = clb_workspace_open(&workspace, task->runtime, task->variant, &limits);
    if (status == CLB_OK) {
        status = factor_sizes(&workspace, like, largest);
        clb_workspace_close(&workspace, clb_workspace_finish(&workspace));
    }
    return status == CLB_ERR_OPENCL ? CLB_ERR_BUILD : status;
}

clb_status clb_getf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_getf2 *like)
{
    static struct clb_check checks[CLB_PRECISIONS];
    struct getf2_check_task task = {runtime, variant, like};
    return clb_check_once(&checks[variant->precision], "the device's panels are not used",
                          getf2_check_open_and_check, &task);
}
