/* ahead: the steps of LU with look-ahead, where the device factors the panels (getrf_lookahead.c).
 */
#ifndef CLB_AHEAD_H
#define CLB_AHEAD_H

#include "transfer_queue.h"
#include "getrf.h"

/* All steps on the matrix that comes up in `groups` loads of whole panels, and behind the last
 * panel of any columns; the transfers has been started. CLB_OK: the factorisation is complete on
 * the device, and the pivots are here. *idle is false when something may still be under way on a
 * queue that is not lu's. */
clb_status clb_getrf_run_lookahead(struct clb_getrf_run *lu, const struct clb_gemm_variant *variant,
                                   struct clb_transfer_queue *transfers,
                                   const struct clb_transfer *group, size_t groups,
                                   bool *idle) CLB_MUST_CHECK;

#endif
