/* panel staging: copies a panel of a device matrix to pinned memory and back, on the queue set's
 * transfer queues.
 *
 * Memory for one panel is enough for look-ahead: the download of the next panel is enqueued behind
 * work that waits for the upload of the last one. */
#ifndef CLB_PANEL_STAGING_H
#define CLB_PANEL_STAGING_H

#include "transfer_queue.h"

struct clb_panel_staging {
    struct clb_workspace *workspace;
    size_t element;
    struct clb_buffer *pinned; /* the panel, its columns without gaps */
    cl_event down;             /* the download's event, while one is outstanding */
};

/* Get memory for panels of up to rows x cols. On failure the caller only has to call
 * clb_panel_staging_close. */
clb_status clb_panel_staging_open(struct clb_panel_staging *staging,
                                  struct clb_workspace *workspace, size_t rows,
                                  size_t cols) CLB_MUST_CHECK;
void clb_panel_staging_close(struct clb_panel_staging *staging, bool idle);

/* Copy rows x cols elements of the caller's matrix to the pinned memory, instead of a download. */
void clb_panel_staging_fill(struct clb_panel_staging *staging, size_t rows, size_t cols,
                            const void *a, size_t lda);

/* Upload the pinned memory to the panel. Commands that are enqueued on the queue for kernels from
 * now on wait for it. */
clb_status clb_panel_staging_up(struct clb_panel_staging *staging,
                                const struct clb_dmat *panel) CLB_MUST_CHECK;

/* clb_panel_staging_down enqueues the download of a panel after all commands that the queue for
 * kernels has now; clb_panel_staging_await waits for it, and returns CLB_OK at once if there is
 * none. */
clb_status clb_panel_staging_down(struct clb_panel_staging *staging,
                                  const struct clb_dmat *panel) CLB_MUST_CHECK;
clb_status clb_panel_staging_await(struct clb_panel_staging *staging) CLB_MUST_CHECK;

#endif
