/* lookahead: the steps of LU with look-ahead, where the device factors the panels
 * (getrf_lookahead.c). */
#ifndef CLB_AHEAD_H
#define CLB_AHEAD_H

#include "transfer/transfer_queue.h"
#include "getrf.h"

/* Run all steps on the matrix, which is uploaded in `groups` transfers: one for each panel, then
 * any number for the columns that follow. The caller has started the transfer queue. CLB_OK: the
 * factorisation is complete on the device, and the host has the pivots. *idle is false if some
 * command may still be running on a queue that is not lu's. */
clb_status clb_getrf_run_lookahead(struct clb_getrf_run *lu, const struct clb_gemm_variant *variant,
                                   struct clb_transfer_queue *transfers,
                                   const struct clb_transfer *group, size_t groups,
                                   bool *idle) CLB_MUST_CHECK;

#endif
