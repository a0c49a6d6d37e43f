/* staging: a panel of a device's matrix to the CPU and back, through pinned memory, on the
 * queue_set's queues of transfers.
 *
 * One panel's memory is enough for look-ahead: the next panel comes down behind work that follows
 * the last one's way up. */
#ifndef CLB_SHUTTLE_H
#define CLB_SHUTTLE_H

#include "transfer_queue.h"

struct clb_panel_staging {
    struct clb_workspace *workspace;
    size_t element;
    struct clb_buffer *pinned; /* the panel, without gaps */
    cl_event down;             /* while one is under way */
};

/* Room for panels of rows x cols. On failure only the close is left to do. */
clb_status clb_panel_staging_open(struct clb_panel_staging *staging,
                                  struct clb_workspace *workspace, size_t rows,
                                  size_t cols) CLB_MUST_CHECK;
void clb_panel_staging_close(struct clb_panel_staging *staging, bool idle);

/* The caller's matrix instead of what comes down: rows x cols. */
void clb_panel_staging_fill(struct clb_panel_staging *staging, size_t rows, size_t cols,
                            const void *a, size_t lda);

/* Send what the pinned memory has; the queue for kernels goes on when it is there. */
clb_status clb_panel_staging_up(struct clb_panel_staging *staging,
                                const struct clb_dmat *panel) CLB_MUST_CHECK;

/* Ask for a panel behind what the queue for kernels has now, and wait for it; waiting for none is
 * no failure. */
clb_status clb_panel_staging_down(struct clb_panel_staging *staging,
                                  const struct clb_dmat *panel) CLB_MUST_CHECK;
clb_status clb_panel_staging_await(struct clb_panel_staging *staging) CLB_MUST_CHECK;

#endif
