/* shared: matrices in memory of the shim that the CPU reads and writes as the device does. */
#ifndef CLB_SHARED_H
#define CLB_SHARED_H

#include "dmat.h"

/* Wait for the queue and have the CPU see x, which begins at *mapped. */
clb_status clb_dmat_map(struct clb_engine *engine, const struct clb_dmat *x,
                        void **mapped) CLB_MUST_CHECK;
clb_status clb_dmat_unmap(struct clb_engine *engine, const struct clb_dmat *x,
                          void *mapped) CLB_MUST_CHECK;

/* Have the CPU bring the caller's columns into x; it waits for the queue. */
clb_status clb_dmat_copy_in(struct clb_engine *engine, const struct clb_dmat *x, const void *a,
                            size_t lda) CLB_MUST_CHECK;

/* Wait for the queue and write x to the caller's columns, by as many threads as the device has:
 * either nothing is written or all of it, whatever the status. */
clb_status clb_dmat_copy_out(struct clb_engine *engine, const struct clb_dmat *x, void *a,
                             size_t lda, bool *written) CLB_MUST_CHECK;

#endif
