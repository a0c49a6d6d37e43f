/* shared: matrices in memory of the shim that the CPU reads and writes as the device does. */
#ifndef CLB_SHARED_H
#define CLB_SHARED_H

#include "dmat.h"

/* Wait for the queue and have the CPU see x, which begins at *mapped. */
clb_status clb_dmat_map(struct clb_workspace *workspace, const struct clb_dmat *x,
                        void **mapped) CLB_MUST_CHECK;
/* The same for what is about to be written to the caller's memory: all commands before are known to
 * have done what they were to do. */
clb_status clb_dmat_map_result(struct clb_workspace *workspace, const struct clb_dmat *x,
                               void **mapped) CLB_MUST_CHECK;
clb_status clb_dmat_unmap(struct clb_workspace *workspace, const struct clb_dmat *x,
                          void *mapped) CLB_MUST_CHECK;

/* Have the CPU bring the caller's columns into x; it waits for the queue. */
clb_status clb_dmat_copy_in(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const void *a, size_t lda) CLB_MUST_CHECK;

/* Wait for the queue and write x to the caller's columns, by as many threads as the device has:
 * either nothing is written or all of it, whatever the status. */
clb_status clb_dmat_copy_out(struct clb_workspace *workspace, const struct clb_dmat *x, void *a,
                             size_t lda, bool *written) CLB_MUST_CHECK;

/* The caller's matrix, to be read by the device: in place, or a copy where the device can't have it
 * because its columns are too far apart. */
struct clb_operand_view {
    cl_mem wrapped;
    struct clb_buffer *copy;
};
/* Of *x the rows and columns are set; it is the matrix then. Whatever the status, the view is to be
 * returned. */
clb_status clb_operand_view_open(struct clb_operand_view *view, struct clb_workspace *workspace,
                                 const void *a, size_t lda, struct clb_dmat *x) CLB_MUST_CHECK;
/* `idle`: no command that uses it is outstanding. */
void clb_operand_view_close(struct clb_operand_view *view, struct clb_runtime *runtime, bool idle);

#endif
