/* shared: matrices in memory of the shim that both the CPU and the device can access. */
#ifndef CLB_SHARED_H
#define CLB_SHARED_H

#include "dense.h"

/* Wait for the queue and map x for the CPU; it begins at *mapped. */
clb_status clb_dmat_map(struct clb_workspace *workspace, const struct clb_dmat *x,
                        void **mapped) CLB_MUST_CHECK;
/* The same for a result that will be written to the caller's memory: checks that all commands
 * before have succeeded. */
clb_status clb_dmat_map_result(struct clb_workspace *workspace, const struct clb_dmat *x,
                               void **mapped) CLB_MUST_CHECK;
clb_status clb_dmat_unmap(struct clb_workspace *workspace, const struct clb_dmat *x,
                          void *mapped) CLB_MUST_CHECK;

/* Wait for the queue; the CPU then copies the caller's columns to x. */
clb_status clb_dmat_copy_in(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const void *a, size_t lda) CLB_MUST_CHECK;

/* Wait for the queue and copy x to the caller's columns, by as many threads as the device has.
 * *written says whether all of it or nothing has been written, whatever the status. */
clb_status clb_dmat_copy_out(struct clb_workspace *workspace, const struct clb_dmat *x, void *a,
                             size_t lda, bool *written) CLB_MUST_CHECK;

/* The caller's matrix for reading by the device: in place, or a copy where the device can't access
 * it because its columns are too far apart. */
struct clb_operand_view {
    cl_mem wrapped;
    struct clb_buffer *copy;
};
/* The caller sets the rows and columns of *x; the rest is set here. The view must be closed
 * whatever the status. */
clb_status clb_operand_view_open(struct clb_operand_view *view, struct clb_workspace *workspace,
                                 const void *a, size_t lda, struct clb_dmat *x) CLB_MUST_CHECK;
/* `idle`: no command that uses the view is outstanding. */
void clb_operand_view_close(struct clb_operand_view *view, struct clb_runtime *runtime, bool idle);

#endif
