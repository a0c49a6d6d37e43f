/* LU with look-ahead on two queues, where the device has its own memory and factors the panels.
 * SPDX-License-Identifier: BSD-3-Clause
 * Columns are uploaded in groups: one for each panel, and others for the columns after the last
 * one. Panels have a queue of their own, "ahead". In step s it applies step s-1 to group s and
 * factors that panel. Meanwhile the other queue, for updates, applies step s-1 to the groups after
 * s: first to s+1, the next panel. The host neither reads pivots nor waits for panels to be
 * factored. It is at most one panel ahead of the device, so that it knows which groups have arrived
 * when it enqueues the work on them. Groups that arrive later catch up on the steps they missed.
 *
 * Only one queue uses a group at a time: the queue of updates applies step t only to groups from
 * t+2 on, and `ready` signals when it has done so to group t+2, which the queue "ahead" uses from
 * step t+2 on. What a queue reads of the other's results is final: panels and their moves. */
#include "engine/transfer/transfer_queue.h"
#include "job.h"

#include <stdlib.h>

/* Compute units that updates leave free, besides one for each work-group of a panel. */
#define SPARE_UNITS ((size_t)2)
/* The launches, of one tile per compute unit, that take about as long as a panel, and leave
 * units free at the beginning of a step's updates. Both take longer where panels are wider. */
#define SMALL_LAUNCHES ((size_t)48)

/* Pieces that the first panel is uploaded in, because the device waits for them. */
#define FIRST_PIECES ((size_t)32)

struct getrf_lookahead_run {
    struct clb_getrf_run *lu;
    struct clb_transfer_queue *transfers;
    const struct clb_transfer *group; /* the uploads */
    size_t groups, steps;
    struct clb_workspace own;    /* of the queue "ahead", where there are two queues */
    struct clb_workspace *ahead; /* &own, or the only workspace */
    size_t *applied;             /* steps that were enqueued for each group */
    clb_event ready[2]; /* that of group t has index t % 2; NULL where that has not arrived */
};

/* ---- a step on some columns ---- */

/* The first column of a group, and the end of its columns. */
static size_t first_of(const struct getrf_lookahead_run *run, size_t group)
{
    return run->group[group].x.offset / run->lu->x.ld;
}

static size_t end_of(const struct getrf_lookahead_run *run, size_t group)
{
    return first_of(run, group) + run->group[group].x.cols;
}

static clb_status getrf_lookahead_apply(struct getrf_lookahead_run *run,
                                        struct clb_workspace *workspace, size_t step, size_t from,
                                        size_t to, enum clb_keep keep)
{
    struct clb_getrf_run *lu = run->lu;
    size_t k = first_of(run, step), width = run->group[step].x.cols;
    size_t first = first_of(run, from), count = end_of(run, to - 1) - first;
    const struct clb_dmat columns = clb_dmat_part(&lu->x, 0, first, lu->x.rows, count);
    const struct clb_moves moves = clb_getf2_moves(&lu->panel, k, width);
    const struct clb_dmat panel = clb_dmat_part(&lu->x, k, k, lu->x.rows - k, width);
    clb_status status = clb_dmat_move_by(workspace, &columns, &moves, count, 0);
    CLB_THEN(status, clb_getrf_update(lu, workspace, &panel, k, first, count, keep));
    for (size_t g = from; g < to; g++)
        run->applied[g] = step + 1;
    return status;
}

/* Apply the missing steps before `steps` to groups [from, to), which all miss the same ones. */
static clb_status catch_up(struct getrf_lookahead_run *run, struct clb_workspace *workspace,
                           size_t from, size_t to, size_t steps, bool *kept)
{
    clb_status status = CLB_OK;
    while (run->applied[from] < steps && status == CLB_OK) {
        size_t step = run->applied[from];
        bool last = workspace == &run->lu->run.workspace && step + 1 == steps;
        status = getrf_lookahead_apply(run, workspace, step, from, to,
                                       !last   ? CLB_PACK_ONCE
                                       : *kept ? CLB_PACK_KEPT
                                               : CLB_PACK_KEEP);
        *kept = *kept || last;
    }
    return status;
}

/* ---- the queue of panels ---- */

static clb_status wait_in(struct clb_queue *queue, const clb_event *event)
{
    return *event == NULL ? CLB_OK : clb_queue_barrier(queue, *event, NULL);
}

/* Apply all missing steps to group s, enqueue its factorisation, and wait until that begins. */
static clb_status getrf_lookahead_factor(struct getrf_lookahead_run *run, size_t s)
{
    struct clb_workspace *ahead = run->ahead;
    clb_event *ready = &run->ready[s % 2], begun = NULL;
    bool kept = false;
    clb_status status = wait_in(ahead->queue, ready);
    if (status == CLB_OK && run->applied[s] == 0)
        status = clb_transfer_queue_await(run->transfers, s, ahead->queue);
    CLB_THEN(status, catch_up(run, ahead, s, s + 1, s, &kept));
    CLB_THEN(status, clb_queue_mark(ahead->queue, &begun));
    CLB_THEN(status, clb_getf2_enqueue(&run->lu->panel, ahead, &run->lu->x, first_of(run, s),
                                       run->group[s].x.cols));
    if (status == CLB_OK && ahead != &run->lu->run.workspace)
        status = clb_queue_join(ahead->queue, run->lu->run.workspace.queue);
    if (begun != NULL) {
        clb_status waited = clb_queue_set_await(ahead->queue_set, &begun);
        status = status != CLB_OK ? status : waited;
    }
    clb_event_drop(ready);
    return status;
}

/* ---- the queue of updates ---- */

/* The end of the groups from `from` on that have arrived and been through the same steps. */
static size_t end_of_same(const struct getrf_lookahead_run *run, size_t from, size_t arrived)
{
    size_t end = from + 1;
    while (end < arrived && run->applied[end] == run->applied[from])
        end++;
    return end;
}

/* Apply all steps before `steps` to the arrived groups from `from` on, with `wait` to all. */
static clb_status getrf_lookahead_update(struct getrf_lookahead_run *run, size_t from, size_t steps,
                                         bool wait)
{
    struct clb_workspace *workspace = &run->lu->run.workspace;
    size_t arrived = from, next = steps + 1;
    bool kept = false;
    workspace->small_launches = workspace->most_tiles > 0 ? SMALL_LAUNCHES : 0;
    clb_status status = CLB_OK;
    while (arrived < run->groups && status == CLB_OK &&
           (wait || clb_transfer_queue_has(run->transfers, arrived))) {
        if (run->applied[arrived] == 0)
            status = clb_transfer_queue_await(run->transfers, arrived, workspace->queue);
        arrived++;
    }
    for (size_t g = from, end; g < arrived && status == CLB_OK; g = end) {
        end = g == next ? g + 1 : end_of_same(run, g, arrived);
        status = catch_up(run, workspace, g, end, steps, &kept);
        if (status == CLB_OK && g == next && run->ahead != workspace)
            status = clb_queue_mark(workspace->queue, &run->ready[next % 2]);
    }
    CLB_THEN(status, clb_queue_flush(workspace->queue));
    return status;
}

/* ---- the run ---- */

/* Open the workspace for panels, if look-ahead is wanted. Launches of updates leave compute units
 * to it, since all work-groups of a panel must be resident. */
static clb_status open_ahead(struct getrf_lookahead_run *run)
{
    enum { BY_DEVICE, NO_AHEAD };
    struct clb_getrf_run *lu = run->lu;
    const struct clb_gemm_variant *variant = lu->run.variant;
    size_t tiles = variant->tuning.value[CLB_PARAM_GETRF_AHEAD];
    size_t units = lu->run.runtime->device.units, widest = clb_max(lu->nb, lu->tail);
    size_t groups = clb_div_up(lu->x.rows, lu->panel.group) + SPARE_UNITS;
    const struct clb_workspace_limits limits = {
        .m = lu->x.rows, .n = widest, .k = widest, .triangle = clb_max(widest, CLB_MAX_BLOCK)};
    run->ahead = &lu->run.workspace;
    if (tiles == NO_AHEAD || run->steps < 2)
        return CLB_OK;
    run->ahead = &run->own;
    lu->run.workspace.most_tiles = tiles != BY_DEVICE ? tiles : units > groups ? units - groups : 0;
    return clb_workspace_open(&run->own, lu->run.runtime, variant, &limits, true);
}

static clb_status getrf_lookahead_run_steps(struct getrf_lookahead_run *run)
{
    clb_status status = CLB_OK;
    for (size_t s = 0; s < run->steps && status == CLB_OK; s++) {
        bool last = s + 1 == run->steps;
        status = getrf_lookahead_factor(run, s);
        /* Group s + 1 belongs to the queue "ahead". */
        CLB_THEN(status, getrf_lookahead_update(run, last ? s + 1 : s + 2, s + 1, last));
        clb_progress_note_columns(s + 1, run->steps);
    }
    return status;
}

void clb_lookahead_add_uploads(struct clb_getrf_run *lu)
{
    struct clb_job *run = &lu->run;
    for (size_t j = 0, cols; j < lu->x.cols; j += cols) {
        cols = j < lu->inner ? clb_getrf_width(lu, j) : lu->nb;
        cols = clb_min(cols, clb_job_end_of_matrix(run, j) - j);
        const struct clb_dmat part = clb_dmat_part(&lu->x, 0, j, lu->x.rows, cols);
        struct clb_transfer *transfer = clb_job_add_columns(run, false, &part, j);
        transfer->extent = j == 0 ? clb_div_up(cols, FIRST_PIECES) : 0;
    }
}

clb_status clb_lookahead_run(struct clb_getrf_run *lu)
{
    struct getrf_lookahead_run run = {.lu = lu,
                                      .transfers = lu->run.transfers,
                                      .group = lu->run.transfer,
                                      .groups = lu->run.uploads};
    while (run.steps < run.groups && first_of(&run, run.steps) < lu->inner)
        run.steps++;
    run.applied = calloc(run.groups, sizeof *run.applied);
    clb_status status = run.applied == NULL ? CLB_ERR_NOMEM : open_ahead(&run);
    CLB_THEN(status, getrf_lookahead_run_steps(&run));
    if (status == CLB_OK && run.own.runtime != NULL)
        status = clb_queue_set_finish(run.own.queue_set);
    CLB_THEN(status, clb_getrf_read_pivots(lu, 0, lu->inner));
    if (run.own.runtime != NULL)
        lu->run.stuck = !clb_workspace_finish(&run.own);
    bool idle = clb_workspace_finish(&lu->run.workspace) && !lu->run.stuck;
    clb_event_drop(&run.ready[0]);
    clb_event_drop(&run.ready[1]);
    if (run.own.runtime != NULL)
        clb_workspace_close(&run.own, idle);
    lu->run.workspace.most_tiles = lu->run.workspace.small_launches = 0;
    free(run.applied);
    return status;
}
