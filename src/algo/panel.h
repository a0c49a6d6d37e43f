/* panel: the panels of LU factored by the device, for devices so fast that the CPU's would hold
 * them up. kernels/getrf_panel.cl has the kernels. */
#ifndef CLB_PANEL_H
#define CLB_PANEL_H

#include "dmat.h"

struct clb_panel {
    struct clb_program *program;
    size_t width, group; /* columns of a strip, rows of a work-group */
    size_t most_groups;  /* 1 where work-groups can't wait for each other */
    struct clb_buffer *aside, *exchange, *state;
    cl_int *state_host; /* what is read back of the state */
    cl_uint tag;        /* of the last launch */
};

/* Ready to factor panels of at most `rows` x `cols` on the engine's device. CLB_ERR_UNSUPPORTED
 * when that can't, or did not compute a test panel rightly. The engine must keep operands of `rows`
 * rows and min(cols, 32) depths. On failure nothing is held. */
clb_status clb_panel_open(struct clb_panel *panel, struct clb_engine *engine, size_t rows,
                          size_t cols) CLB_MUST_CHECK;
/* `idle`: nothing that was enqueued is under way. */
void clb_panel_close(struct clb_panel *panel, struct clb_engine *engine, bool idle);

/* panel_check.c: the same without the test panel; and the test, once for a precision. */
clb_status clb_panel_prepare(struct clb_panel *panel, struct clb_engine *engine, size_t rows,
                             size_t cols) CLB_MUST_CHECK;
clb_status clb_panel_check(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           size_t group, size_t groups, size_t width) CLB_MUST_CHECK;

/* Whether the device's panels are faster than a CPU's, as far as its kind tells. */
bool clb_panel_is_faster(const struct clb_device *device);

/* Whether a panel of so many rows can be factored. */
bool clb_panel_takes(const struct clb_panel *panel, size_t rows);

/* Factor x in place, after what is in the engine's queue, and wait for it (LAPACK xGETRF): ipiv is
 * 1-based and counts from the first row of x; *info is 0 or the first column (1-based) whose pivot
 * is zero. */
clb_status clb_panel_factor(struct clb_panel *panel, struct clb_engine *engine,
                            const struct clb_dmat *x, int64_t *ipiv, size_t *info) CLB_MUST_CHECK;

#endif
