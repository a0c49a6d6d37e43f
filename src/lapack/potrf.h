/* potrf: shared by the files potrf*.c.
 *
 * Left-looking, blocked. Step k has a panel: for A = L*L^H columns k ... k+w-1 from row k on, for A
 * = U^H*U rows k ... k+w-1 from column k on. First all panels before it update it in one product,
 * whose depth is their total width,
 *
 *     A(k:n, k:k+w) -= L(k:n, 0:k)*L(k:k+w, 0:k)^H;
 *
 * then its diagonal block is factored, and the rows below it (or the columns on its right) are
 * solved with that. So a panel is final after its step, no step touches the panels after it, and a
 * panel need not be on the device before its step. The next library factors the diagonal block on
 * the CPU; or the device does, which halves the panel until the diagonal blocks fit into one
 * work-group.
 *
 * Nothing is written to the caller's matrix before the factorisation on the device is complete.
 * After a failure until then the next library factors the intact matrix. The columns before a pivot
 * that is not positive are written back from left to right; clb_potrf_resume handles a failure
 * during that. */
#ifndef CLB_POTRF_H
#define CLB_POTRF_H

#include "dense/potf2.h"
#include "dense/dense.h"
#include "lapack.h"

struct clb_chol {
    struct clb_runtime *runtime;
    const struct clb_potrf *problem;
    const struct clb_host_blas *next;
    struct clb_potrf_result *result;
    size_t element, n, nb;
    struct clb_workspace workspace;
    struct clb_potf2 block;        /* program is NULL where the CPU factors diagonal blocks */
    struct clb_buffer *host_block; /* otherwise the CPU's memory for a diagonal block */
    struct clb_buffer *memory;
    struct clb_dmat x; /* n x n, on the device; undefined outside the stated triangle */
};

/* Open everything but the memory of x, whose dimensions this sets. */
clb_status clb_chol_open(struct clb_chol *chol,
                         const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
void clb_chol_close(struct clb_chol *chol, bool idle);

/* Columns of the panel that begins with column k. */
size_t clb_chol_width(const struct clb_chol *chol, size_t k);

/* Run all steps, set the result's info, and wait for everything. `bring` makes sure that panel k of
 * the caller's matrix is on the device for the commands that are enqueued after it. */
clb_status clb_chol_factor(struct clb_chol *chol,
                           clb_status (*bring)(void *context, size_t k, size_t width),
                           void *context) CLB_MUST_CHECK;

/* The number of columns to write back. */
size_t clb_chol_columns(const struct clb_chol *chol);

/* The address of an element in the caller's matrix. */
char *clb_chol_host(const struct clb_chol *chol, size_t row, size_t col);

clb_status clb_potrf_run_shared(struct clb_chol *chol,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_potrf_run_stream(struct clb_chol *chol,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
