/* QR on a device with its own memory, with look-ahead.
 *
 * The first panel is factored from a copy in pinned memory while the other columns are uploaded,
 * and the first step is applied to them in groups as they arrive. Step k first updates the columns
 * of the next panel, which is then downloaded, so that the CPU factors it while the device updates
 * the other columns. Nothing is downloaded to the caller's memory before the last step is done.
 * Then the transfer queue writes the columns to the caller's matrix, from left to right. */
#include "qr.h"
#include "transfer/panel_staging.h"

#include <stdlib.h>

/* Groups of columns of the first step. */
#define GROUPS ((size_t)8)

struct geqrf_stream_run {
    struct clb_qr *qr;
    struct clb_transfer_queue transfers;
    struct clb_transfer
        transfer[GROUPS + 2]; /* uploads of groups, then the download of the matrix */
    size_t groups;
    struct clb_panel_staging staging;
};

/* ---- transfers ------------------------------------------------------------------------------- */

static struct clb_transfer geqrf_stream_columns(const struct clb_qr *qr, size_t first, size_t count,
                                                bool down)
{
    return (struct clb_transfer){.down = down,
                                 .x = clb_dmat_part(&qr->x, 0, first, qr->x.rows, count),
                                 .host = (char *)qr->problem->a +
                                         first * qr->problem->lda * qr->element,
                                 .ld = qr->problem->lda,
                                 .alpha = clb_scalar_one(qr->problem->precision)};
}

/* The groups: the second panel, then equal shares of the columns after it. */
static void geqrf_stream_make_transfer(struct geqrf_stream_run *run)
{
    const struct clb_qr *qr = run->qr;
    size_t n = qr->x.cols, first = clb_qr_width(qr, 0);
    size_t share = clb_max(clb_div_up(n - first, GROUPS), qr->nb);
    for (size_t j = first; j < n;) {
        bool panel = j == first && j < qr->inner;
        size_t count = clb_min(panel ? clb_qr_width(qr, first) : share, n - j);
        run->transfer[run->groups++] = geqrf_stream_columns(qr, j, count, false);
        j += count;
    }
    run->transfer[run->groups] = geqrf_stream_columns(qr, 0, n, true);
    run->transfer[run->groups].extent = clb_piece_columns(qr->x.rows * qr->element, qr->nb);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Apply the step to the columns after the next panel's; in the first step as they arrive. */
static clb_status geqrf_stream_apply_rest(struct geqrf_stream_run *run, size_t k, size_t first)
{
    struct clb_qr *qr = run->qr;
    clb_status status = CLB_OK;
    if (k > 0 && first < qr->x.cols)
        status = clb_qr_apply(qr, k, first, qr->x.cols - first);
    for (size_t i = 1; k == 0 && i < run->groups && status == CLB_OK; i++) {
        size_t count = run->transfer[i].x.cols;
        status = clb_transfer_queue_await(&run->transfers, i, qr->workspace.queue);
        if (status == CLB_OK)
            status = clb_qr_apply(qr, k, first, count);
        first += count;
    }
    if (status == CLB_OK)
        status = clb_queue_flush(qr->workspace.queue);
    return status;
}

/* Apply step k, whose panel is factored, and download the next panel. */
static clb_status geqrf_stream_step(struct geqrf_stream_run *run, size_t k)
{
    struct clb_qr *qr = run->qr;
    size_t first = k + clb_qr_width(qr, k);
    bool last = first >= qr->inner;
    size_t next = last ? 0 : clb_qr_width(qr, first);
    if (k == 0 && run->groups > 0)
        next = run->transfer[0].x.cols;
    clb_status status = clb_qr_prepare(qr, k);
    if (status == CLB_OK && k == 0 && run->groups > 0)
        status = clb_transfer_queue_await(&run->transfers, 0, qr->workspace.queue);
    if (status == CLB_OK && next > 0)
        status = clb_qr_apply(qr, k, first, next);
    if (status == CLB_OK && !last) {
        const struct clb_dmat panel = clb_qr_panel(qr, first);
        status = clb_panel_staging_down(&run->staging, &panel);
    }
    if (status == CLB_OK)
        status = geqrf_stream_apply_rest(run, k, first + next);
    clb_status waited = clb_panel_staging_await(&run->staging);
    return status == CLB_OK ? waited : status;
}

static clb_status geqrf_stream_run_steps(struct geqrf_stream_run *run)
{
    struct clb_qr *qr = run->qr;
    clb_status status = CLB_OK;
    clb_panel_staging_fill(&run->staging, qr->x.rows, clb_qr_width(qr, 0), qr->problem->a,
                           qr->problem->lda);
    for (size_t k = 0; k < qr->inner && status == CLB_OK; k += qr->nb) {
        const struct clb_dmat panel = clb_qr_panel(qr, k);
        clb_qr_factor(qr, k, run->staging.pinned->host, panel.rows);
        status = clb_panel_staging_up(&run->staging, &panel);
        if (status == CLB_OK)
            status = geqrf_stream_step(run, k);
    }
    return status;
}

/* ---- the run --------------------------------------------------------------------------------- */

static clb_status geqrf_stream_run_all(struct geqrf_stream_run *run)
{
    struct clb_qr *qr = run->qr;
    clb_transfer_queue_start(&run->transfers);
    clb_status status = geqrf_stream_run_steps(run);
    /* The device must have completed everything without error before anything is written. */
    if (status == CLB_OK)
        status = clb_queue_set_finish(qr->workspace.queue_set);
    if (status == CLB_OK)
        status = clb_transfer_queue_publish(&run->transfers, run->groups, qr->workspace.queue);
    status = clb_transfer_queue_finish(&run->transfers, status);
    qr->result->columns_written =
        clb_min(run->transfers.arrived * run->transfer[run->groups].extent, qr->x.cols);
    return status;
}

clb_status clb_geqrf_run_stream(struct clb_qr *qr, const struct clb_gemm_variant *variant)
{
    struct geqrf_stream_run run = {.qr = qr};
    clb_status status = clb_qr_open(qr, variant, CLB_MEMORY_DEVICE);
    if (status == CLB_OK)
        status = clb_panel_staging_open(&run.staging, &qr->workspace, qr->x.rows, qr->nb);
    if (status == CLB_OK) {
        geqrf_stream_make_transfer(&run);
        status = clb_transfer_queue_open(&run.transfers, qr->workspace.queue_set,
                                         qr->problem->precision, run.transfer, run.groups + 1,
                                         variant->tuning.value[CLB_PARAM_THREADS]);
    }
    if (status == CLB_OK)
        status = geqrf_stream_run_all(&run);
    bool idle = clb_workspace_finish(&qr->workspace);
    if (status == CLB_OK)
        status = clb_queue_set_check(qr->workspace.queue_set);
    clb_transfer_queue_close(&run.transfers, idle);
    clb_panel_staging_close(&run.staging, idle);
    clb_qr_close(qr, idle);
    return status;
}
