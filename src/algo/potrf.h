/* chol: what the files potrf*.c share.
 *
 * Left-looking, blocked. Step k takes a panel: columns k ... k+w-1 from row k on where A = L*L^H,
 * the rows k ... k+w-1 from column k on where A = U^H*U. It is updated by all panels before it in
 * one product, as deep as they are wide together,
 *
 *     A(k:n, k:k+w) -= L(k:n, 0:k)*L(k:k+w, 0:k)^H,
 *
 * its diagonal block is factored, and what is below (or on the right) solved with that. So a panel
 * is final after its step, nothing is done before it to what is behind it, and a panel need not be
 * there before its step. The diagonal block is the next library's, on the CPU; or the device's,
 * which halves the panel until the blocks fit into one work-group.
 *
 * Nothing is written to the caller's matrix before the factorisation on the device is complete:
 * until then a failure means that the next library factors the intact matrix. Columns are written
 * back from left to right, those before a pivot that is not positive; a failure in it is what
 * clb_potrf_resume is for. */
#ifndef CLB_CHOL_H
#define CLB_CHOL_H

#include "potf2.h"
#include "dmat.h"
#include "lapack.h"

struct clb_chol {
    struct clb_runtime *runtime;
    const struct clb_potrf *problem;
    const struct clb_host_cholesky *next;
    struct clb_potrf_result *result;
    size_t element, n, nb;
    struct clb_workspace workspace;
    struct clb_potf2 block;        /* takes nothing where diagonal blocks are the CPU's */
    struct clb_buffer *host_block; /* or where the CPU has them */
    struct clb_buffer *memory;
    struct clb_dmat x; /* n x n, there; of the triangle that is not stated it holds anything */
};

/* Everything but the matrix's memory, of which this chooses the shape. */
clb_status clb_chol_open(struct clb_chol *chol,
                         const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
void clb_chol_close(struct clb_chol *chol, bool idle);

/* Columns of the panel that begins with column k. */
size_t clb_chol_width(const struct clb_chol *chol, size_t k);

/* All steps; `bring` has panel k of the caller's matrix on the device for what is enqueued behind
 * it. In the result then is `info`. Waits for everything. */
clb_status clb_chol_factor(struct clb_chol *chol,
                           clb_status (*bring)(void *context, size_t k, size_t width),
                           void *context) CLB_MUST_CHECK;

/* Columns that are to be written. */
size_t clb_chol_columns(const struct clb_chol *chol);

/* Of the caller's matrix. */
char *clb_chol_host(const struct clb_chol *chol, size_t row, size_t col);

clb_status clb_potrf_run_shared(struct clb_chol *chol,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_potrf_run_stream(struct clb_chol *chol,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
