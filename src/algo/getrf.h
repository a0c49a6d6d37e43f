/* lu: what the files getrf*.c share.
 *
 * Right-looking, blocked, partial pivoting. Step k takes a panel of columns k ... k+w-1: the next
 * library factors its rows from k on, on the CPU, or the device does where it is that much faster;
 * the device interchanges rows of the columns on the right, solves with the panel's unit lower
 * triangle, and updates what is below. The
 * interchanges of later steps reach the columns on the left when these are written back, so nothing
 * is done to a panel after its step.
 *
 * Nothing is written to the caller's matrix before the factorisation on the device is complete:
 * until then a failure means that the next library factors the intact matrix. The columns are
 * written back from left to right; a failure in it is what clb_getrf_resume is for. */
#ifndef CLB_LU_H
#define CLB_LU_H

#include "dmat.h"
#include "lapack.h"
#include "getf2.h"

struct clb_getrf_run {
    struct clb_runtime *runtime;
    const struct clb_getrf *problem;
    const struct clb_host_lu *next;
    struct clb_getrf_result *result;
    const struct clb_getrs *system;     /* right-hand sides, columns behind the matrix's; or NULL */
    struct clb_gemm_progress *progress; /* of these, where there are any */
    size_t element, inner;              /* bytes; min(m, n) */
    size_t nb, tail;
    size_t strip; /* columns of a panel that the CPU factors at once, where memory is shared */
    size_t most;  /* columns that a step is applied to at once; 0: all */
    bool begun;   /* anything was enqueued for the matrix */
    struct clb_workspace workspace;
    struct clb_getf2 panel; /* takes nothing where panels are the CPU's */
    struct clb_row_permutation permutation;
    struct clb_buffer *memory;
    struct clb_dmat x; /* m x n, or with the right-hand sides, there */
};

/* Panels and the shape of the matrix there; everything but its memory, shape included. */
void clb_getrf_shape(struct clb_getrf_run *lu, const struct clb_gemm_variant *variant);
clb_status clb_getrf_open(struct clb_getrf_run *lu,
                          const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
void clb_getrf_close(struct clb_getrf_run *lu, bool idle);

/* Columns of the panel that begins with column k. */
size_t clb_getrf_width(const struct clb_getrf_run *lu, size_t k);

/* Have the panel that begins at (k, k) factored, from a copy whose first row is row k. */
void clb_getrf_factor(struct clb_getrf_run *lu, size_t k, size_t width, void *panel, size_t ld);

/* Whether the panel of the rows from k on is the device's; have it factored there. */
bool clb_getrf_is_on_device(const struct clb_getrf_run *lu, size_t k);
clb_status clb_getrf_factor_on_device(struct clb_getrf_run *lu, size_t k,
                                      size_t width) CLB_MUST_CHECK;

/* Wait for the device's panels, and take the pivots of columns [k, k + width) and info. */
clb_status clb_getrf_read_pivots(struct clb_getrf_run *lu, size_t k, size_t width) CLB_MUST_CHECK;

/* Send the interchanges of columns [k, k + width) as moves. */
clb_status clb_getrf_send_moves(struct clb_getrf_run *lu, size_t k, size_t width,
                                size_t *moves) CLB_MUST_CHECK;
/* Send the interchanges and pack the triangle of a panel that the device has. */
clb_status clb_getrf_prepare(struct clb_getrf_run *lu, size_t k, size_t width,
                             size_t *moves) CLB_MUST_CHECK;

/* The step's work on columns [first, first + count). `kept`: not the first call of the step.
 * `moves` is 0 where the rows have been interchanged already. */
clb_status clb_getrf_apply(struct clb_getrf_run *lu, size_t k, size_t width, size_t first,
                           size_t count, size_t moves, bool kept) CLB_MUST_CHECK;

/* The same with a panel that is not in the matrix there: its rows from k on, packed before. */
clb_status clb_getrf_apply_panel(struct clb_getrf_run *lu, const struct clb_dmat *panel, size_t k,
                                 size_t first, size_t count, size_t moves,
                                 bool kept) CLB_MUST_CHECK;
/* That on any workspace, without interchanges and with the triangle packed there. `keep` and
 * `kept`: see clb_dmat_update. */
clb_status clb_getrf_update(const struct clb_getrf_run *lu, struct clb_workspace *workspace,
                            const struct clb_dmat *panel, size_t k, size_t first, size_t count,
                            bool keep, bool kept) CLB_MUST_CHECK;

/* gesv.c: the right-hand sides, which have had all steps: U*X = B. */
clb_status clb_getrf_solve(struct clb_getrf_run *lu) CLB_MUST_CHECK;

/* Row i is order[i] after interchanges [first, end); has room for m. Those of all later steps are
 * what the columns of a panel lack when they are written back. */
void clb_getrf_order(const struct clb_getrf_run *lu, size_t first, size_t end, cl_uint *order);

/* getrf_write.c: the matrix, which is complete, from memory with its leading dimension to the
 * caller's. CLB_ERR_NOMEM: nothing is written. */
clb_status clb_getrf_write_back(struct clb_getrf_run *lu, const char *from,
                                size_t threads) CLB_MUST_CHECK;

/* Whether the matrix goes to the device's own memory. */
bool clb_getrf_streams(const struct clb_runtime *runtime, const struct clb_gemm_variant *variant);
clb_status clb_getrf_run_shared(struct clb_getrf_run *lu,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_getrf_run_stream(struct clb_getrf_run *lu,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
/* Where the device's memory does not hold the matrix. */
clb_status clb_getrf_run_blocks(struct clb_getrf_run *lu,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
