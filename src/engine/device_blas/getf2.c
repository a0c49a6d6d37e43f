/* SPDX-License-Identifier: BSD-3-Clause
 * Panels of LU on the device. A panel is divided into blocks, and these into strips of columns. One
 * launch factors a strip. Two more update the other columns of its block: one for interchanges and
 * the solve, one for the update on the right. When all strips of a block are done the other columns
 * of the panel are updated in the same way, with the workspace's operations. Nothing waits for the
 * host: the kernel that factors a strip writes the interchanges as moves. */
#include "device_blas.h"

#include <stdlib.h>

/* Work-items of a group of the other kernels. */
#define FOLLOW_GROUP ((size_t)64)
#define UPDATE_GROUP ((size_t)128)

/* Words of the state that the kernels write. */
enum { STATE_INFO, STATE_FAILED, STATE_IPIV };

/* ---- open and close ---- */

/* 32-bit words of a row and its position after it, as groups exchange them, in vectors of four. */
static size_t slot_words(const struct clb_getf2 *panel, clb_precision precision)
{
    return panel->width * clb_precision_size(precision) / sizeof(cl_uint) + 4;
}

/* Fill a buffer with zeros: in `exchange` no word may have a tag of this run; moves that a failed
 * launch has not made are then those of row 0 to itself. */
static clb_status clear(struct clb_workspace *workspace, const struct clb_buffer *buffer,
                        size_t bytes)
{
    void *clean = calloc(1, bytes);
    clb_status status = CLB_ERR_NOMEM;
    if (clean != NULL)
        status = clb_queue_write_now(workspace->queue, buffer->mem, 0, bytes, clean);
    free(clean);
    return status;
}

/* The moves of a strip and of a block, which precede those of whole panels, two for each column. */
static size_t moves_before(const struct clb_getf2 *panel)
{
    return 2 * (panel->width + panel->block);
}

static clb_status getf2_get_memory(struct clb_getf2 *panel, struct clb_workspace *workspace)
{
    clb_precision precision = workspace->variant->precision;
    size_t groups = clb_min(clb_div_up(panel->rows, panel->group), panel->most_groups);
    struct {
        struct clb_buffer **buffer;
        size_t bytes;
        bool clean;
    } const wanted[] = {
        {&panel->aside, groups * panel->group * panel->width * clb_precision_size(precision),
         false},
        {&panel->exchange, 2 * groups * slot_words(panel, precision) * sizeof(cl_ulong), true},
        {&panel->state, (STATE_IPIV + panel->cols) * sizeof(cl_int), true},
        {&panel->order, 2 * panel->rows * sizeof(cl_uint), false},
        {&panel->moves, (moves_before(panel) + 2 * panel->cols) * sizeof(struct clb_move), true},
    };
    clb_status status = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(wanted) && status == CLB_OK; i++) {
        status = clb_buffer_get(workspace->runtime, CLB_MEMORY_DEVICE, wanted[i].bytes,
                                wanted[i].buffer);
        if (status == CLB_OK && wanted[i].clean)
            status = clear(workspace, *wanted[i].buffer, wanted[i].bytes);
    }
    panel->state_host = calloc(STATE_IPIV + panel->cols, sizeof(cl_int));
    return status == CLB_OK && panel->state_host == NULL ? CLB_ERR_NOMEM : status;
}

/* That of the workspace's variant, where it is known. */
static const struct clb_getf2 *getf2_known_for(const struct clb_workspace *workspace)
{
    const clb_precision precision = workspace->variant->precision;
    const struct clb_workspace *like = atomic_load(&clb_known_workspaces[precision]);
    return like != NULL && like->variant == workspace->variant
               ? atomic_load(&clb_known_panels[precision])
               : NULL;
}

clb_status clb_getf2_prepare(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                             size_t cols)
{
    const struct clb_getf2 *known = getf2_known_for(workspace);
    clb_status status = CLB_OK;
    if (known != NULL)
        *panel = *known;
    else
        status = clb_getf2_choose(panel, workspace);
    panel->rows = rows;
    panel->cols = cols;
    CLB_THEN(status, getf2_get_memory(panel, workspace));
    if (status != CLB_OK)
        clb_getf2_close(panel, workspace, true);
    return status;
}

clb_status clb_getf2_open(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                          size_t cols)
{
    clb_status status = CLB_OK;
    *panel = (struct clb_getf2){0};
    if (getf2_known_for(workspace) == NULL)
        status = clb_getf2_check(workspace->runtime, workspace->variant);
    return status == CLB_OK ? clb_getf2_prepare(panel, workspace, rows, cols) : status;
}

void clb_getf2_close(struct clb_getf2 *panel, struct clb_workspace *workspace, bool idle)
{
    struct clb_buffer *const buffers[] = {panel->aside, panel->exchange, panel->state, panel->order,
                                          panel->moves};
    for (size_t i = 0; i < CLB_COUNT_OF(buffers); i++)
        clb_buffer_end(workspace->runtime, buffers[i], idle);
    free(panel->state_host);
    *panel = (struct clb_getf2){0};
}

/* ---- strips ---- */

/* A panel that is being enqueued, columns [first, first + width) of x, and its current block. */
struct getf2_work {
    struct clb_getf2 *panel;
    struct clb_workspace *workspace;
    const struct clb_dmat *x;
    size_t first, width, block, block_width;
};

static cl_ulong element_at(const struct clb_dmat *x, size_t row, size_t col)
{
    return x->offset + row + col * x->ld;
}

static clb_status factor_strip(const struct getf2_work *work, size_t k, size_t width,
                               struct clb_order order)
{
    struct clb_getf2 *panel = work->panel;
    const struct clb_dmat *x = work->x;
    const size_t groups = clb_div_up(x->rows - k, panel->group);
    const cl_uint m = (cl_uint)(x->rows - k), n = (cl_uint)width, column = (cl_uint)k;
    const cl_uint tag = panel->tag + 1, rows = (cl_uint)x->rows;
    const cl_uint block = (cl_uint)work->block, block_width = (cl_uint)work->block_width;
    const cl_uint first = (cl_uint)work->first, panel_width = (cl_uint)work->width;
    const cl_ulong offset = element_at(x, k, k);
    const struct clb_argument local = {
        groups * slot_words(panel, work->workspace->variant->precision) * sizeof(cl_uint), NULL};
    panel->tag += (cl_uint)panel->width;
    return clb_workspace_launch_groups(
        work->workspace, panel->program, "clb_getrf_panel", groups, panel->group, order,
        CLB_ARGUMENTS(CLB_ARG(m), CLB_ARG(n), CLB_ARG(x->mem), CLB_ARG(offset), CLB_ARG(x->ld),
                      CLB_ARG(panel->state->mem), CLB_ARG(column), CLB_ARG(panel->aside->mem),
                      CLB_ARG(panel->exchange->mem), CLB_ARG(tag), CLB_ARG(panel->order->mem),
                      CLB_ARG(rows), CLB_ARG(panel->moves->mem), CLB_ARG(block),
                      CLB_ARG(block_width), CLB_ARG(first), CLB_ARG(panel_width), local));
}

/* The strip's interchanges in its block's other columns, and the solve in those on its right. */
static clb_status getf2_follow_strip(const struct getf2_work *work, size_t k, size_t width)
{
    const struct clb_dmat *x = work->x;
    const cl_ulong offset = element_at(x, 0, work->block);
    const cl_uint cols = (cl_uint)(work->block_width - width), strip = (cl_uint)(k - work->block);
    const cl_uint n = (cl_uint)width, column = (cl_uint)k;
    if (cols == 0)
        return CLB_OK;
    return clb_workspace_launch_groups(work->workspace, work->panel->program, "clb_getrf_follow",
                                       work->panel->block, FOLLOW_GROUP, (struct clb_order){0},
                                       CLB_ARGUMENTS(CLB_ARG(x->mem), CLB_ARG(offset),
                                                     CLB_ARG(x->ld), CLB_ARG(cols), CLB_ARG(strip),
                                                     CLB_ARG(n), CLB_ARG(column),
                                                     CLB_ARG(work->panel->moves->mem)));
}

/* Update the block below the strip's triangle and on its right. */
static clb_status update_strip(const struct getf2_work *work, size_t k, size_t width)
{
    const struct clb_dmat *x = work->x;
    const size_t end = k + width;
    const cl_ulong l = element_at(x, end, k), u = element_at(x, k, end),
                   c = element_at(x, end, end);
    const cl_uint rows = (cl_uint)(x->rows - end), n = (cl_uint)width;
    const cl_uint cols = (cl_uint)(work->block + work->block_width - end);
    if (rows == 0 || cols == 0)
        return CLB_OK;
    return clb_workspace_launch_groups(work->workspace, work->panel->program, "clb_getrf_update",
                                       work->workspace->groups, UPDATE_GROUP, (struct clb_order){0},
                                       CLB_ARGUMENTS(CLB_ARG(x->mem), CLB_ARG(l), CLB_ARG(u),
                                                     CLB_ARG(c), CLB_ARG(x->ld), CLB_ARG(rows),
                                                     CLB_ARG(cols), CLB_ARG(n)));
}

/* ---- blocks ---- */

static clb_status do_strips(const struct getf2_work *work, struct clb_order order)
{
    size_t end = work->block + work->block_width, width;
    clb_status status = CLB_OK;
    for (size_t k = work->block; k < end && status == CLB_OK; k += width) {
        width = clb_min(work->panel->width, end - k);
        const bool begins = k == work->first, ends = k + width == work->first + work->width;
        const struct clb_order of_strip = {.after = begins ? order.after : NULL,
                                           .event = ends ? order.event : NULL};
        status = factor_strip(work, k, width, of_strip);
        CLB_THEN(status, getf2_follow_strip(work, k, width));
        CLB_THEN(status, update_strip(work, k, width));
    }
    return status;
}

/* The block's step on the panel's other columns: on its right also a solve and an update. */
static clb_status follow_block(const struct getf2_work *work)
{
    const struct clb_dmat *x = work->x;
    struct clb_workspace *workspace = work->workspace;
    size_t k = work->block, width = work->block_width, end = k + width;
    size_t right = work->first + work->width - end, below = x->rows - end;
    const struct clb_dmat others = clb_dmat_part(x, 0, work->first, x->rows, work->width - width);
    const struct clb_dmat top = clb_dmat_part(x, k, end, width, right);
    const struct clb_dmat_triangle triangle = {.a = clb_dmat_part(x, k, k, width, width),
                                               .unit = true};
    const struct clb_dmat_update update = {.a = clb_dmat_part(x, end, k, below, width),
                                           .b = top,
                                           .c = clb_dmat_part(x, end, end, below, right),
                                           .in_order = true};
    const struct clb_moves moves = {work->panel->moves->mem, 2 * work->panel->width, 2 * width};
    clb_status status = clb_dmat_move_by(workspace, &others, &moves, k - work->first, width);
    if (status == CLB_OK && right > 0)
        status = clb_dmat_pack_triangle(workspace, &triangle);
    CLB_THEN(status, clb_dmat_solve(workspace, &triangle, &top));
    CLB_THEN(status, clb_dmat_update(workspace, &update));
    return status;
}

/* ---- panels ---- */

static clb_status do_blocks(struct getf2_work *work, struct clb_order order)
{
    clb_status status = CLB_OK;
    size_t end = work->first + work->width;
    for (size_t k = work->first; k < end && status == CLB_OK; k += work->block_width) {
        work->block = k;
        work->block_width = clb_min(work->panel->block, end - k);
        status = do_strips(work, order);
        CLB_THEN(status, follow_block(work));
    }
    return status;
}

/* Work-groups that wait for each other must all be resident, so the process has one such launch at
 * a time on the device. Whoever enqueues a panel holds the lock, and makes its first strip wait for
 * the last strip of the panel that was enqueued before, if that is on another queue. */
static struct {
    pthread_mutex_t lock;
    clb_event last_strip; /* these two under the lock */
    const struct clb_queue *last_queue;
} strips = {.lock = PTHREAD_MUTEX_INITIALIZER};

static clb_status do_in_turn(struct getf2_work *work)
{
    clb_event event = NULL; /* of the last strip */
    bool waits = strips.last_strip != NULL && strips.last_queue != work->workspace->queue;
    const struct clb_order order = {.after = waits ? strips.last_strip : NULL, .event = &event};
    clb_status status = do_blocks(work, order);
    CLB_THEN(status, clb_queue_flush(work->workspace->queue));
    /* The next panel can't wait for these strips by an event: they must end under the lock. */
    if (status != CLB_OK && !clb_workspace_finish(work->workspace))
        clb_log(CLB_LOG_WARN, "panels may still be under way");
    if (strips.last_strip != NULL && event != NULL)
        clb_event_drop(&strips.last_strip);
    if (event != NULL) {
        strips.last_strip = event;
        strips.last_queue = work->workspace->queue;
    }
    return status;
}

clb_status clb_getf2_enqueue(struct clb_getf2 *panel, struct clb_workspace *workspace,
                             const struct clb_dmat *x, size_t first, size_t width)
{
    struct getf2_work work = {
        .panel = panel, .workspace = workspace, .x = x, .first = first, .width = width};
    if (x->rows - first <= panel->group)
        return do_blocks(&work, (struct clb_order){0});
    pthread_mutex_lock(&strips.lock);
    clb_status status = do_in_turn(&work);
    pthread_mutex_unlock(&strips.lock);
    return status;
}

struct clb_moves clb_getf2_moves(const struct clb_getf2 *panel, size_t first, size_t width)
{
    return (struct clb_moves){panel->moves->mem, moves_before(panel) + 2 * first, 2 * width};
}

clb_status clb_getf2_read(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t first,
                          size_t count, int64_t *ipiv, size_t *info)
{
    CLB_TRY(clb_queue_read_now(workspace->queue, panel->state->mem, 0,
                               (STATE_IPIV + first + count) * sizeof(cl_int), panel->state_host));
    if (panel->state_host[STATE_FAILED] != 0) {
        clb_log(CLB_LOG_WARN, "a work-group waited in vain for another");
        return CLB_ERR_OPENCL;
    }
    for (size_t i = 0; i < count; i++)
        ipiv[i] = panel->state_host[STATE_IPIV + first + i];
    *info = (size_t)panel->state_host[STATE_INFO];
    return CLB_OK;
}
