/* job: what the runs of all algorithms have in common, for both kinds of memory; the steps of LU.
 *
 * Unified memory: a matrix is in memory that the CPU can map, and the CPU copies between that and
 * the caller's matrix. Discrete memory: a transfer queue moves the matrix in the order of an array
 * of transfers, uploads, then downloads. A run is SPDX-License-Identifier: BSD-3-Clause
 *
 *     clb_job_open       the workspace; a device that can't compute declines here
 *     clb_job_matrix     memory for each matrix, and the transfers: all of it before anything is
 *                        enqueued, so that a lack of memory is found in time
 *     clb_job_begin      starts the transfer queue
 *                        (the algorithm's steps)
 *     clb_job_complete   waits; nothing may be written to the caller's matrix before
 *                        (write-back)
 *     clb_job_end        waits for what is under way; says whether all of it has succeeded
 *     clb_job_close      releases everything; these two whatever has failed before */
#ifndef CLB_JOB_H
#define CLB_JOB_H

#include "engine/device_blas/device_blas.h"
#include "lapack.h"

struct clb_transfer;
struct clb_transfer_queue;

#define CLB_RUN_BUFFERS 8

/* A matrix in the caller's memory. Where the memory has its adjoint the CPU's copies undo that;
 * `lda` is between that one's columns, the matrix's rows. */
struct clb_caller {
    void *a;
    size_t lda, cols;
    bool adjoint;
};

struct clb_job {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    clb_precision precision;
    size_t element; /* bytes */
    bool discrete;
    struct clb_caller caller[2]; /* the caller's matrices, as columns of one: A, those after it */
    struct clb_workspace workspace;
    struct clb_buffer *buffer[CLB_RUN_BUFFERS]; /* released when the run is closed */
    size_t buffers;
    cl_mem wrapped; /* the caller's matrix in place, or NULL */
    size_t copied;  /* columns that the CPU has written to the caller's matrix from mapped memory */
    struct clb_transfer_queue *transfers;
    struct clb_transfer *transfer;
    size_t uploads, downloads;
    bool begun; /* the transfer queue was started: some command for the matrix was enqueued */
    bool sees;  /* the CPU sees the memory of matrices without a map (clb_queue_shows_memory) */
    bool stuck; /* a command on another queue than the workspace's may never end */
    bool idle;  /* set by clb_job_end: no command of the run is outstanding */
};

/* A run on this device, not yet open, for the caller's first matrix. */
struct clb_job clb_job_on(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          clb_precision precision, struct clb_caller caller);
clb_status clb_job_open(struct clb_job *run,
                        const struct clb_workspace_limits *limits) CLB_MUST_CHECK;
/* Get memory that lasts until the run is closed: a buffer; the memory of a matrix of *x's rows and
 * columns, with a leading dimension unless that is set. */
clb_status clb_job_buffer(struct clb_job *run, clb_memory_kind kind, size_t bytes,
                          struct clb_buffer **buffer) CLB_MUST_CHECK;
clb_status clb_job_matrix(struct clb_job *run, struct clb_dmat *x) CLB_MUST_CHECK;
clb_status clb_job_complete(struct clb_job *run) CLB_MUST_CHECK;
/* Write x to the caller's first matrix, by the CPU or by all downloads. */
clb_status clb_job_write_back(struct clb_job *run, const struct clb_dmat *x) CLB_MUST_CHECK;
clb_status clb_job_end(struct clb_job *run, clb_status status) CLB_MUST_CHECK;
void clb_job_close(struct clb_job *run);

/* ---- unified memory (job_unified.c) ---- */

/* The caller's first matrix for reading by the device: *x, whose rows and columns are set, is in
 * place, or a copy of an adjoint or of columns too far apart for the device. */
clb_status clb_job_view(struct clb_job *run, struct clb_dmat *x) CLB_MUST_CHECK;

/* End that access, when all commands that used it have completed. */
void clb_job_unwrap(struct clb_job *run);

/* Copy the first `cols` columns of the caller's first matrix to x, by the CPU. The device may copy
 * the others from *rest, that matrix in place; if not the CPU has copied all: rest->mem is NULL. */
clb_status clb_job_copy_in(struct clb_job *run, const struct clb_dmat *x, size_t cols,
                           struct clb_dmat *rest) CLB_MUST_CHECK;
/* Copy x from the caller's first matrix, or `out` to it: all of it or nothing. */
clb_status clb_job_copy_matrix(struct clb_job *run, const struct clb_dmat *x,
                               bool out) CLB_MUST_CHECK;

/* Copy between its first columns and memory that the CPU has mapped, by at most so many threads;
 * adjoints by as many as are free. */
void clb_job_copy(const struct clb_job *run, bool out, size_t rows, size_t cols, void *mapped,
                  size_t ld, size_t threads);

/* Wait for the queue and map x for the CPU; it begins at *mapped. */
clb_status clb_job_map(struct clb_job *run, const struct clb_dmat *x, void **mapped) CLB_MUST_CHECK;
clb_status clb_job_unmap(struct clb_job *run, const struct clb_dmat *x,
                         void *mapped) CLB_MUST_CHECK;
/* Where the CPU sees x without a map, if no command under way uses that; else NULL. */
void *clb_job_see(const struct clb_job *run, const struct clb_dmat *x);

/* Columns that a thread copies at once; a copy of columns, for clb_workers_share. */
#define CLB_COLUMN_SHARE ((size_t)64)
struct clb_column_copy {
    const char *from;
    char *to;
    size_t from_step, to_step, bytes; /* steps between columns */
    const cl_uint *order;             /* column j is from column order[j]; NULL: j */
};
void clb_copy_columns(void *context, size_t thread, size_t begin, size_t end);

/* ---- discrete memory (job_discrete.c) ---- */

/* Get room for so many transfers, and add one: of x and a matrix of its size in host memory; or the
 * caller's columns from `first` on; or columns [k, k + width) of a triangle of order x->rows at
 * `host`. All uploads are added before the first download. */
clb_status clb_job_plan(struct clb_job *run, size_t most) CLB_MUST_CHECK;
struct clb_transfer *clb_job_add(struct clb_job *run, bool down, const struct clb_dmat *x,
                                 const void *host, size_t ld);
struct clb_transfer *clb_job_add_columns(struct clb_job *run, bool down, const struct clb_dmat *x,
                                         size_t first);
struct clb_transfer *clb_job_add_triangle(struct clb_job *run, bool down, const struct clb_dmat *x,
                                          bool upper, size_t k, size_t width, const void *host,
                                          size_t ld);
/* The first column of the caller's matrix after the one that has column j. */
size_t clb_job_end_of_matrix(const struct clb_job *run, size_t j);

/* Open and start the transfer queue. */
clb_status clb_job_begin(struct clb_job *run) CLB_MUST_CHECK;

/* Let the workspace's queue wait for an upload. In unified memory this and begin do nothing. */
clb_status clb_job_await(struct clb_job *run, size_t upload) CLB_MUST_CHECK;
/* Let a download begin when the workspace's queue has come here. Downloads are in order. */
clb_status clb_job_publish(struct clb_job *run, size_t download) CLB_MUST_CHECK;
/* The number of columns of the caller's matrix that are written, in either kind of memory. */
size_t clb_job_written(const struct clb_job *run);

/* ---- panels ---- */

/* A right-looking factorisation: step k factors a panel, columns k ... k+w-1 of x from row k on,
 * and applies it to the columns on its right. Nothing is done to a panel after its step.
 *
 * Discrete memory: the CPU factors panels in pinned memory, with look-ahead: step k first updates
 * the columns of the next panel, which is then downloaded, so that the CPU factors it while the
 * device updates the others. One panel's memory is enough: the next one's download is enqueued
 * behind work that waits for the last one's upload. Columns that are still being uploaded get the
 * first step in groups as they arrive. */
struct clb_panel_work {
    size_t (*width)(const void *context, size_t k);
    /* The CPU factors the panel in a copy or in mapped memory, where row k is first. */
    void (*factor)(void *context, size_t k, size_t width, void *panel, size_t ld);
    /* Whether the algorithm factors the panel itself, where it is; and how. NULL: never. */
    bool (*is_in_place)(const void *context, size_t k);
    clb_status (*factor_in_place)(void *context, size_t k, size_t width);
    /* Once for each step, when the panel is on the device; then on columns [first, first + count),
     * `kept` in all calls for a step but the first. */
    clb_status (*prepare)(void *context, size_t k, size_t width);
    clb_status (*apply)(void *context, size_t k, size_t width, size_t first, size_t count,
                        bool kept);
};

struct clb_panels {
    struct clb_job *run;
    const struct clb_panel_work *work;
    void *context;
    const struct clb_dmat *x;
    size_t first, end, cols; /* panels begin in [first, end); columns before `cols` are updated */
    size_t arriving; /* transfers of the columns after the first panel: uploads [0, arriving) */
    struct clb_buffer *pinned; /* host memory for the widest panel, its columns without gaps */
    clb_event down;            /* the download of a panel, while one is outstanding */
};

/* Run all steps; have the CPU factor a panel in mapped memory. */
clb_status clb_panels_run(struct clb_panels *panels) CLB_MUST_CHECK;
clb_status clb_panels_factor_mapped(struct clb_panels *panels, size_t k,
                                    size_t width) CLB_MUST_CHECK;

/* The others are for discrete memory (job_discrete.c). Add the uploads behind the first panel, at
 * most CLB_PANELS_UPLOADS: the second panel's, then shares of at least `least` columns. */
#define CLB_PANELS_UPLOADS ((size_t)12)
void clb_panels_add_uploads(struct clb_panels *panels, size_t least);

/* Copy the first panel from the caller's first matrix, or enqueue the download of panel k. Wait for
 * it, have the CPU factor it, and enqueue its upload. */
void clb_panels_copy_in(struct clb_panels *panels);
clb_status clb_panels_fetch(struct clb_panels *panels, size_t k) CLB_MUST_CHECK;
clb_status clb_panels_factor_pinned(struct clb_panels *panels, size_t k,
                                    size_t width) CLB_MUST_CHECK;

/* ---- LU: the steps that the files getrf*.c share ----
 *
 * With partial pivoting. The next library factors panels, on the CPU; or the device does, where it
 * is fast enough. Then the device interchanges rows of the columns on the right, solves with the
 * panel's unit lower triangle, and updates the rows below. The columns on the left get the
 * interchanges of later steps only when they are written back. */

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
    size_t moves;           /* of the columns right of the panel in the current step */
    struct clb_panels panels;
    struct clb_dmat x;      /* m x n, or with the right-hand sides' columns too */
    struct clb_dmat caller; /* unified: the caller's matrix; without memory where the device can't
                             * access it or the columns after the first panel have been copied */
};

struct clb_getrf_run clb_getrf_run_of(struct clb_runtime *runtime,
                                      const struct clb_gemm_variant *variant,
                                      const struct clb_call *call, const struct clb_host_blas *next,
                                      struct clb_factors *result);

/* clb_getrf_shape sets the panel widths and the dimensions of x; clb_getrf_open does, too, and
 * opens all but the memory of x, with clb_getrf_work for its panels, which may be changed then.
 * clb_getrf_close: after clb_job_end. */
extern const struct clb_panel_work clb_getrf_work;
void clb_getrf_shape(struct clb_getrf_run *lu);
clb_status clb_getrf_open(struct clb_getrf_run *lu) CLB_MUST_CHECK;
void clb_getrf_close(struct clb_getrf_run *lu);

/* ---- a step; those with a `context`, a struct clb_getrf_run, are a struct clb_panel_work's --- */

/* Columns of the panel that begins with column k; the end of those that are written back in its row
 * order, of n: the panel's, or all after the last one; have the next library factor any part of
 * the matrix, for which info is returned. */
size_t clb_getrf_width(const void *context, size_t k);
size_t clb_getrf_order_end(const struct clb_getrf_run *lu, size_t k, size_t n);
size_t clb_getrf_on_host(const struct clb_host_blas *next, const struct clb_call *call, size_t m,
                         size_t n, void *a, size_t lda, int64_t *ipiv);

/* Whether the device factors the panel of the rows from k on; let it; wait for all that it factors,
 * and read the pivots of columns [k, k + width) and info. */
bool clb_getrf_is_on_device(const void *context, size_t k);
clb_status clb_getrf_factor_on_device(void *context, size_t k, size_t width) CLB_MUST_CHECK;
clb_status clb_getrf_read_pivots(struct clb_getrf_run *lu, size_t k, size_t width) CLB_MUST_CHECK;

/* Send the interchanges of columns [k, k + width) to the device as lu->moves. */
clb_status clb_getrf_prepare(void *context, size_t k, size_t width) CLB_MUST_CHECK;

/* Apply step k to columns [first, first + count). `kept`: an earlier call has packed the panel. */
clb_status clb_getrf_apply(void *context, size_t k, size_t width, size_t first, size_t count,
                           bool kept) CLB_MUST_CHECK;
/* The same on any workspace, without interchanges; `panel` has the rows from k on of any panel. */
clb_status clb_getrf_update(const struct clb_getrf_run *lu, struct clb_workspace *workspace,
                            const struct clb_dmat *panel, size_t k, size_t first, size_t count,
                            enum clb_keep keep) CLB_MUST_CHECK;

/* ---- write-back ---- */

/* Set order[i] of each of m rows to the row that interchanges [first, end) bring there. */
void clb_getrf_order(const struct clb_getrf_run *lu, size_t first, size_t end, cl_uint *order);

/* An order in which each of n rows is in its place; the caller frees it. NULL: no memory. Apply
 * pivots [first, end) of an xGETRF, in turn or backwards: row order[i] comes to row i. */
cl_uint *clb_order_make(size_t n);
void clb_order_swap(cl_uint *order, const void *ipiv, bool wide, size_t first, size_t end,
                    bool backward);

/* Copy the complete factors from host memory, with the leading dimension of x, to the caller's
 * matrix, with the interchanges that columns still lack. CLB_ERR_NOMEM: nothing is written. */
clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from,
                                size_t threads) CLB_MUST_CHECK;

/* ---- getrf_unified.c, getrf_discrete.c: the two kinds of memory ---- */

clb_status clb_getrf_run_unified(struct clb_getrf_run *lu) CLB_MUST_CHECK;

/* `progress`: of the right-hand sides, if any. *begun: some command for the matrix was enqueued;
 * CLB_ERR_NOMEM without that: the matrices don't fit. */
clb_status clb_getrf_run_discrete(struct clb_getrf_run *lu, struct clb_gemm_progress *progress,
                                  bool *begun) CLB_MUST_CHECK;

/* ---- gesv.c: right-hand sides ---- */

/* Raise the limits for a solve with the whole triangle; how many of columns [first, first + count)
 * have sums of their own, see clb_dmat_update; make the parts of B in the progress, the downloads
 * after A's last column; solve U*X = B when all steps have been applied. */
void clb_getrf_add_solve(const struct clb_getrf_run *lu, struct clb_workspace_limits *limits);
size_t clb_getrf_count_rhs(const struct clb_getrf_run *lu, size_t first, size_t count);
clb_status clb_getrf_make_parts(const struct clb_getrf_run *lu,
                                struct clb_gemm_progress *progress) CLB_MUST_CHECK;
clb_status clb_getrf_solve_rhs(struct clb_getrf_run *lu) CLB_MUST_CHECK;

/* ---- getrf_lookahead.c: all steps, where the device factors the panels ---- */

/* Add the uploads: one for each panel, then any number for the columns that follow. Run all steps,
 * when the run has begun; then the device has the factors, and the host the pivots. */
void clb_lookahead_add_uploads(struct clb_getrf_run *lu);
clb_status clb_lookahead_run(struct clb_getrf_run *lu) CLB_MUST_CHECK;

/* ---- getrf_ooc.c: matrices larger than the device's memory ---- */

/* clb_getrf_run where the matrix does not fit, block by block, into a copy in host memory.
 * CLB_ERR_NOMEM: there is no room for that. */
clb_status clb_getrf_run_blocks(const struct clb_getrf_run *lu) CLB_MUST_CHECK;

#endif
