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
#include "panel.h"

struct clb_lu {
    struct clb_runtime *runtime;
    const struct clb_getrf *problem;
    const struct clb_lapack_next *next;
    struct clb_getrf_result *result;
    size_t element, inner; /* bytes; min(m, n) */
    size_t nb, tail;
    struct clb_engine engine;
    struct clb_panel panel; /* takes nothing where panels are the CPU's */
    struct clb_swapper swapper;
    struct clb_buffer *memory;
    struct clb_dmat x; /* m x n, there */
};

/* Everything but the matrix's memory, of which this chooses the shape. */
clb_status clb_lu_open(struct clb_lu *lu, const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
void clb_lu_close(struct clb_lu *lu, bool idle);

/* Columns of the panel that begins with column k. */
size_t clb_lu_width(const struct clb_lu *lu, size_t k);

/* Have the panel that begins at (k, k) factored, from a copy whose first row is row k. */
void clb_lu_factor(struct clb_lu *lu, size_t k, size_t width, void *panel, size_t ld);

/* Whether the panel of the rows from k on is the device's; have it factored there. */
bool clb_lu_is_on_device(const struct clb_lu *lu, size_t k);
clb_status clb_lu_factor_there(struct clb_lu *lu, size_t k, size_t width) CLB_MUST_CHECK;

/* Wait for the device's panels, and take the pivots of columns [k, k + width) and info. */
clb_status clb_lu_read_pivots(struct clb_lu *lu, size_t k, size_t width) CLB_MUST_CHECK;

/* Send the interchanges and pack the triangle of a panel that the device has. */
clb_status clb_lu_prepare(struct clb_lu *lu, size_t k, size_t width, size_t *moves) CLB_MUST_CHECK;

/* The step's work on columns [first, first + count). `kept`: not the first call of the step.
 * `moves` is 0 where the rows have been interchanged already. */
clb_status clb_lu_apply(struct clb_lu *lu, size_t k, size_t width, size_t first, size_t count,
                        size_t moves, bool kept) CLB_MUST_CHECK;

/* The same on any engine, without interchanges and with the triangle packed there. `keep` and
 * `kept`: see clb_dmat_update. */
clb_status clb_lu_update(const struct clb_lu *lu, struct clb_engine *engine, size_t k, size_t width,
                         size_t first, size_t count, bool keep, bool kept) CLB_MUST_CHECK;

/* The order in which the rows of the columns of panel [k, k + width) are written back: the
 * interchanges of all later steps. Row i is order[i]; has room for m. */
void clb_lu_order(const struct clb_lu *lu, size_t k, size_t width, cl_uint *order);

clb_status clb_getrf_run_shared(struct clb_lu *lu,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_getrf_run_stream(struct clb_lu *lu,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
