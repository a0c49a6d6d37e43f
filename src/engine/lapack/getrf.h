/* getrf: the steps of LU, shared by the files getrf*.c.
 *
 * Right-looking, blocked, partial pivoting. Step k has a panel of columns k ... k+w-1. The next
 * library factors the panel's rows from k on, on the CPU; or the device does, where it is fast
 * enough. Then the device interchanges rows of the columns on the right, solves with the panel's
 * unit lower triangle, and updates the rows below. The columns on the left get the interchanges of
 * later steps only when they are written back, so nothing is done to a panel after its step.
 *
 * Nothing is written to the caller's matrix before the factorisation on the device is complete.
 * After a failure until then the next library factors the intact matrix. The columns are written
 * back from left to right; clb_getrf_resume handles a failure during that. */
#ifndef CLB_GETRF_H
#define CLB_GETRF_H

#include "job.h"

struct clb_getrf_run {
    struct clb_job run;
    const struct clb_call *call;
    const struct clb_host_blas *next;
    struct clb_factors *result;
    bool solves;  /* xGESV: right-hand sides are stored as columns after A's */
    size_t inner; /* min(m, n) */
    size_t nb, tail;
    size_t strip;           /* columns that the CPU factors at once where memory is unified */
    size_t most;            /* most columns per call of clb_getrf_apply; 0: all */
    struct clb_getf2 panel; /* accepts no panel where the CPU factors all */
    cl_uint *row;           /* converts interchanges to moves; between calls row[i] = i */
    size_t moves; /* that the rows of columns right of the panel need in the current step */
    struct clb_panels panels;
    struct clb_dmat x;      /* on the device: m x n, or with the right-hand sides' columns too */
    struct clb_dmat caller; /* unified: the caller's matrix; without memory where the device can't
                             * access it or the columns after the first panel have been copied */
};

struct clb_getrf_run clb_getrf_run_of(struct clb_runtime *runtime,
                                      const struct clb_gemm_variant *variant,
                                      const struct clb_call *call, const struct clb_host_blas *next,
                                      struct clb_factors *result);

/* clb_getrf_shape sets the panel widths and the dimensions of x. clb_getrf_open does that too and
 * opens all but the memory of x; the context of `work` is lu. clb_getrf_close: after clb_job_end.
 */
void clb_getrf_shape(struct clb_getrf_run *lu);
clb_status clb_getrf_open(struct clb_getrf_run *lu,
                          const struct clb_panel_work *work) CLB_MUST_CHECK;
void clb_getrf_close(struct clb_getrf_run *lu);

/* ---- a step; those with a `context`, a struct clb_getrf_run, are a struct clb_panel_work's --- */

/* Columns of the panel that begins with column k; have the next library factor it, or any part of
 * the matrix, for which info is returned. */
size_t clb_getrf_width(const void *context, size_t k);
void clb_getrf_factor(void *context, size_t k, size_t width, void *panel, size_t ld);
size_t clb_getrf_on_host(const struct clb_host_blas *next, const struct clb_call *call, size_t m,
                         size_t n, void *a, size_t lda, int64_t *ipiv);

/* Whether the device factors the panel of the rows from k on; let it do so, and wait for it; wait
 * for all that it factors, and read the pivots of columns [k, k + width) and info. */
bool clb_getrf_is_on_device(const void *context, size_t k);
clb_status clb_getrf_factor_on_device(void *context, size_t k, size_t width) CLB_MUST_CHECK;
clb_status clb_getrf_read_pivots(struct clb_getrf_run *lu, size_t k, size_t width) CLB_MUST_CHECK;

/* Send the interchanges of columns [k, k + width) to the device as lu->moves, and pack the triangle
 * of a panel that is on the device. Nothing is done, and lu->moves is 0, if no columns follow the
 * panel. */
clb_status clb_getrf_prepare(void *context, size_t k, size_t width) CLB_MUST_CHECK;

/* Apply step k to columns [first, first + count). `kept`: an earlier call for this step has packed
 * the panel. */
clb_status clb_getrf_apply(void *context, size_t k, size_t width, size_t first, size_t count,
                           bool kept) CLB_MUST_CHECK;
/* The same on any workspace, without interchanges, and with any panel: `panel` has its rows from k
 * on; its triangle has been packed in that workspace. */
clb_status clb_getrf_update(const struct clb_getrf_run *lu, struct clb_workspace *workspace,
                            const struct clb_dmat *panel, size_t k, size_t first, size_t count,
                            enum clb_keep keep) CLB_MUST_CHECK;

/* ---- write-back ------------------------------------------------------------------------------ */

/* Set order[i], for each of m rows, to the row that interchanges [first, end) bring to row i. When
 * they are written back the columns of a panel still need those of all later steps. */
void clb_getrf_order(const struct clb_getrf_run *lu, size_t first, size_t end, cl_uint *order);

/* Copy the complete factors from host memory, with the leading dimension of x, to the caller's
 * matrix, and apply the interchanges that columns still lack; by at most `threads` threads.
 * CLB_ERR_NOMEM: nothing is written. */
clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from,
                                size_t threads) CLB_MUST_CHECK;

/* ---- getrf_discrete.c: the device has memory of its own -------------------------------------- */

/* `progress` is that of the right-hand sides, if any. *begun: some command for the matrix was
 * enqueued. CLB_ERR_NOMEM without that: the matrices don't fit. */
clb_status clb_getrf_run_discrete(struct clb_getrf_run *lu, struct clb_gemm_progress *progress,
                                  bool *begun) CLB_MUST_CHECK;

/* Right-hand sides: raise the limits for a solve with the whole triangle; how many of columns
 * [first, first + count) have sums of their own, see clb_dmat_update. */
void clb_getrf_add_solve(const struct clb_getrf_run *lu, struct clb_workspace_limits *limits);
size_t clb_getrf_count_rhs(const struct clb_getrf_run *lu, size_t first, size_t count);

/* ---- getrf_lookahead.c: all steps, where the device factors the panels ----------------------- */

/* Add the uploads: one for each panel, then any number for the columns that follow. Run all steps,
 * when the run has begun. CLB_OK: the factors are complete on the device, and the host has the
 * pivots. */
void clb_lookahead_add_uploads(struct clb_getrf_run *lu);
clb_status clb_lookahead_run(struct clb_getrf_run *lu) CLB_MUST_CHECK;

/* ---- getrf_ooc.c: matrices larger than the device's memory ----------------------------------- */

/* clb_getrf_run where the matrix does not fit, one block of columns after the other, into a copy in
 * host memory. CLB_ERR_NOMEM: there is no room for that; nothing was written. */
clb_status clb_getrf_run_blocks(const struct clb_getrf_run *lu) CLB_MUST_CHECK;

#endif
