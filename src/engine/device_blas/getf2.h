/* getf2: panels of LU factored by the device, for devices that are so fast that panels on the CPU
 * would delay them. kernels/getf2.cl has the kernels. */
#ifndef CLB_GETF2_H
#define CLB_GETF2_H

#include "device_blas.h"

struct clb_getf2 {
    struct clb_program *program;
    size_t width, block,
        group;          /* columns of a strip and of a block of strips, rows of a work-group */
    size_t most_groups; /* most work-groups of a launch; 1 where groups can't wait for each other */
    size_t rows, cols;  /* rows of the matrix, and columns of it that get a pivot */
    struct clb_buffer *aside, *exchange, *state, *order, *moves;
    cl_int *state_host; /* host copy of the state */
    cl_uint tag;        /* of the last launch; marks words in `exchange` as new */
};

/* Prepare to factor panels of one matrix, which has `rows` rows and `cols` columns that get a
 * pivot, on the workspace's device. CLB_ERR_UNSUPPORTED when the device can't, or when it computed
 * a test panel wrongly. The workspace must be open for updates of `rows` rows by as many columns
 * and depths as the widest panel has, and for CLB_MAX_BLOCK rows of a triangle. On failure nothing
 * is held. */
clb_status clb_getf2_open(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                          size_t cols) CLB_MUST_CHECK;
/* `idle`: no enqueued command is still running. */
void clb_getf2_close(struct clb_getf2 *panel, struct clb_workspace *workspace, bool idle);

/* clb_getf2_get_program: set the sizes of strips and groups, and the program. clb_getf2_prepare:
 * the same as clb_getf2_open without the test panel. clb_getf2_check (checks.c): factor the test
 * panel, once for each precision, with the sizes of `like`; see clb_check_once. */
clb_status clb_getf2_get_program(struct clb_getf2 *panel,
                                 struct clb_workspace *workspace) CLB_MUST_CHECK;
clb_status clb_getf2_prepare(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                             size_t cols) CLB_MUST_CHECK;
clb_status clb_getf2_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_getf2 *like) CLB_MUST_CHECK;

/* Enqueue on the workspace's queue the factorisation of the panel of x that begins at (first,
 * first), in place (LAPACK xGETRF). Rows of its `width` columns are interchanged, those of no
 * others. Panels must come from left to right, each once. Overwrites the first CLB_MAX_BLOCK rows
 * of the workspace's triangles. */
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
