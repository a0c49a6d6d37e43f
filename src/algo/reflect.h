/* reflect: products of elementary reflectors on the device, for QR.
 *
 * Q = H(1)*...*H(k), H(i) = I - tau(i)*v*v^H with v(1:i-1) = 0 and v(i) = 1; what is below is
 * column i of a matrix (LAPACK xGEQRF). nb of them are a block, H = I - V*T*V^H with T upper
 * triangular, and are applied as products: W = V^H*C, W = op(T)*W, C -= V*W from the left;
 * W = C*V, W = W*op(T), C -= W*V^H from the right. V is made dense for that, a block at a time, and
 * T comes from S = V^H*V, which is the device's work, by a recurrence, which is the CPU's (LAPACK
 * xLARFT, Users' Guide 5.4.6; Schreiber and Van Loan 1989). */
#ifndef CLB_REFLECT_H
#define CLB_REFLECT_H

#include "dmat.h"
#include "lapack.h"

struct clb_reflectors {
    struct clb_workspace *workspace;
    size_t element, nb;
    bool right;
    struct clb_dmat a; /* the vectors; (order of Q) x k, there */
    const void *tau;   /* k */

    struct clb_dmat v, w[2], t; /* V of one block; W before and after T; T of each block, nb x k */
    size_t loaded;              /* whose V that is: its first column; SIZE_MAX: nobody's */
    struct clb_buffer *memory, *host; /* of those; T on its way */
};

/* Reflectors of a block, by geqrf.nb. */
size_t clb_reflectors_width(const struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant);

/* What matrices of `extent` columns (or rows, from the right) ask of the workspace. */
struct clb_workspace_limits clb_reflectors_limits(size_t order, size_t nb, bool right,
                                                  size_t extent);

/* Memory for them; a, tau, right and nb are set. On failure only the close is left to do. */
clb_status clb_reflectors_open(struct clb_reflectors *reflectors, struct clb_workspace *workspace,
                               size_t extent) CLB_MUST_CHECK;
/* `idle`: nothing that was enqueued is under way. */
void clb_reflectors_close(struct clb_reflectors *reflectors, bool idle);

/* Reflectors of the block that begins with column k. */
size_t clb_reflectors_count(const struct clb_reflectors *reflectors, size_t k);

/* Make T of the blocks of columns [first, end), whose vectors are there; waits for S. */
clb_status clb_reflectors_form(struct clb_reflectors *reflectors, size_t first,
                               size_t end) CLB_MUST_CHECK;

/* C = op(H)*C or C*op(H) for the block that begins with column k; op is N or C. C is what H
 * touches: its rows, or columns, from k on. */
clb_status clb_reflectors_apply(struct clb_reflectors *reflectors, size_t k, clb_op op,
                                const struct clb_dmat *c) CLB_MUST_CHECK;

/* larft.c: T from S, in place: n x n, upper triangular with tau on the diagonal, zeros below. */
void clb_form_t(clb_precision precision, size_t n, const void *tau, void *t, size_t ld);

#endif
