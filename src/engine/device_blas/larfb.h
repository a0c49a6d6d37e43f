/* larfb: products of elementary reflectors on the device, for QR.
 * SPDX-License-Identifier: BSD-3-Clause
 * Q = H(1)*...*H(k), H(i) = I - tau(i)*v*v^H with v(1:i-1) = 0 and v(i) = 1; the elements of v
 * below are in column i of a matrix (LAPACK xGEQRF). nb reflectors are a block, H = I - V*T*V^H
 * with T upper triangular, which is applied by products: from the left W = V^H*C, W = op(T)*W, C -=
 * V*W; from the right W = C*V, W = W*op(T), C -= W*V^H. For that V is expanded to a dense matrix,
 * one block at a time. The device computes S = V^H*V, and the CPU computes T from it by a
 * recurrence (LAPACK xLARFT, Users' Guide 5.4.6; Schreiber and Van Loan 1989). */
#ifndef CLB_LARFB_H
#define CLB_LARFB_H

#include "device_blas.h"

struct clb_reflectors {
    struct clb_workspace *workspace;
    size_t element, nb;
    bool right;
    struct clb_dmat a; /* the vectors, (order of Q) x k, on the device */
    const void *tau;   /* k */

    struct clb_dmat v, w[2], t; /* V of one block; W before and after the product with T; T of each
                                 * block, nb x k */
    size_t loaded;              /* first column of the block that V has; SIZE_MAX: none */
    struct clb_buffer *memory, *host; /* of v, w and t; of T for its transfers */
};

/* The workspace limits for a C of `extent` columns (rows, if Q is applied from the right). */
struct clb_workspace_limits clb_reflectors_limits(size_t order, size_t nb, bool right,
                                                  size_t extent);

/* The caller has set a, tau, right and nb, and also after a failure calls clb_reflectors_close. */
clb_status clb_reflectors_open(struct clb_reflectors *reflectors, struct clb_workspace *workspace,
                               size_t extent) CLB_MUST_CHECK;
void clb_reflectors_close(struct clb_reflectors *reflectors, bool idle);

/* Where the CPU may put T of the block that begins with column k, with zeros below its diagonal. */
void *clb_reflectors_host_t(const struct clb_reflectors *reflectors, size_t k);
/* Copy T of the blocks in columns [first, end) from there to the device. */
clb_status clb_reflectors_send(struct clb_reflectors *reflectors, size_t first,
                               size_t end) CLB_MUST_CHECK;
/* Compute T of the blocks in columns [first, end), whose vectors are on the device. Waits for S. */
clb_status clb_reflectors_form(struct clb_reflectors *reflectors, size_t first,
                               size_t end) CLB_MUST_CHECK;

/* C = op(H)*C or C*op(H) for the block that begins with column k; op is N or C. C is the part that
 * H changes: the rows, or columns, from k on. */
clb_status clb_reflectors_apply(struct clb_reflectors *reflectors, size_t k, clb_op op,
                                const struct clb_dmat *c) CLB_MUST_CHECK;

#endif
