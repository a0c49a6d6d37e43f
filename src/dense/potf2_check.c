/* The check of diagonal blocks on the device: some are factored and verified before any others. */
#include "potf2.h"
#include "kernel/check.h"

#include <math.h>
#include <stdlib.h>

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
    struct clb_potf2 *block;
    struct clb_workspace *workspace;
};

static clb_status potf2_check_factor_random(const struct potf2_check_task *task, cl_mem mem,
                                            void *host, size_t n)
{
    struct potf2_check_check check = {
        .precision = task->workspace->variant->precision, .n = n, .ld = n + 2};
    check.bytes = check.ld * (2 * n + 1) * clb_precision_size(check.precision);
    check.before = host;
    check.after = (char *)host + check.bytes;
    potf2_check_fill(&check);
    return potf2_check_run(&check, task->block, task->workspace, mem);
}

/* Every order that a block may have: there are few. */
static clb_status factor_all(const struct potf2_check_task *task, cl_mem mem, void *host)
{
    const struct clb_check_programs programs = {
        "blocks 1", task->workspace->runtime, {task->block->program}};
    bool all = clb_check_tries_all(&programs);
    size_t first = all ? 1 : SMALL, last = all ? task->block->most : SMALL;
    clb_status status = CLB_OK;
    for (size_t n = first; n <= last && status == CLB_OK; n++)
        status = potf2_check_factor_random(task, mem, host, n);
    if (all && status == CLB_OK)
        clb_check_note_passed(&programs);
    return status;
}

static clb_status allocate_and_factor(void *argument)
{
    const struct potf2_check_task *task = argument;
    struct clb_workspace *workspace = task->workspace;
    struct clb_buffer *memory = NULL;
    size_t n = task->block->most;
    size_t bytes = (n + 2) * (2 * n + 1) * clb_precision_size(workspace->variant->precision);
    void *host = calloc(2, bytes);
    if (host == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, bytes, &memory);
    if (status == CLB_OK)
        status = factor_all(task, memory->mem, host);
    clb_buffer_end(workspace->runtime, memory, clb_workspace_finish(workspace));
    free(host);
    return status;
}

clb_status clb_potf2_check(struct clb_potf2 *block, struct clb_workspace *workspace)
{
    static struct clb_check checks[CLB_PRECISIONS];
    struct potf2_check_task task = {block, workspace};
    return clb_check_once(&checks[workspace->variant->precision],
                          "the device's diagonal blocks are not used", allocate_and_factor, &task);
}
