/* panel: the panels of LU factored by the device, for devices so fast that the CPU's would hold
 * them up. kernels/getf2.cl has the kernels. */
#ifndef CLB_GETF2_H
#define CLB_GETF2_H

#include "dmat.h"

struct clb_getf2 {
    struct clb_program *program;
    size_t width, block,
        group;          /* columns of a strip and of a block of strips, rows of a work-group */
    size_t most_groups; /* 1 where work-groups can't wait for each other */
    size_t rows, cols;  /* of the matrix: its rows, and its columns that get a pivot */
    struct clb_buffer *aside, *exchange, *state, *order, *moves;
    cl_int *state_host; /* what is read back of the state */
    cl_uint tag;        /* of the last launch */
};

/* Ready to factor panels of one matrix, which has `rows` rows and `cols` columns that get a pivot,
 * on the workspace's device. CLB_ERR_UNSUPPORTED when that can't, or did not compute a test panel
 * rightly. The workspace must be open for updates of `rows` rows by as many columns and depths as
 * the widest panel has, and for CLB_MAX_BLOCK rows of a triangle. On failure nothing is held. */
clb_status clb_getf2_open(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                          size_t cols) CLB_MUST_CHECK;
/* `idle`: nothing that was enqueued is under way. */
void clb_getf2_close(struct clb_getf2 *panel, struct clb_workspace *workspace, bool idle);

/* getf2_check.c: the same without the test panel; and the test, once for a precision. */
clb_status clb_getf2_prepare(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                             size_t cols) CLB_MUST_CHECK;
clb_status clb_getf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_getf2 *like) CLB_MUST_CHECK;

/* Whether the device's panels are faster than a CPU's, as far as its kind tells. */
bool clb_getf2_is_faster(const struct clb_device *device);

/* Whether a panel of so many rows can be factored. */
bool clb_getf2_accepts(const struct clb_getf2 *panel, size_t rows);

/* Factor the panel of the matrix x that begins at (first, first), in place and in the workspace's
 * queue (LAPACK xGETRF): rows of its `width` columns are interchanged, no others. Panels go from
 * left to right, each once. The workspace's first CLB_MAX_BLOCK rows of triangles are used. */
clb_status clb_getf2_enqueue(struct clb_getf2 *panel, struct clb_workspace *workspace,
                             const struct clb_dmat *x, size_t first, size_t width) CLB_MUST_CHECK;

/* The interchanges of an enqueued panel as moves on the device, for clb_dmat_move_by. */
struct clb_moves clb_getf2_moves(const struct clb_getf2 *panel, size_t first, size_t width);

/* Wait for the panels, and read the pivots of columns [first, first + count), 1-based and counted
 * from the first row of x. *info is 0 or the first column (1-based) of all panels so far whose
 * pivot is zero. */
clb_status clb_getf2_read(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t first,
                          size_t count, int64_t *ipiv, size_t *info) CLB_MUST_CHECK;

#endif
