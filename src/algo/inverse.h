/* inverse: what the files inverse*.c share.
 *
 * Everything is said of a lower triangle L; where U is stored, U^T is L, and rows and columns
 * change places.
 *
 * The inverse: X*L = I by halves, from the end,
 *
 *     L = [L11 0; L21 L22]:  X22 = L22^-1, X21 = -(X22*L21)*L11^-1, X11 = L11^-1,
 *
 * a product with what is inverted already, and a solve with what was given. So X*L - I is small as
 * a solve's residual is, componentwise (Du Croz and Higham 1992, method 2C; LAPACK xTRTRI); of U it
 * is U*X - I. Solving on both sides would multiply the error by the condition. Blocks on the
 * diagonal solve X*L = I by substitution.
 *
 * The product L^H*L, or U*U^H, block row after block row: rows [i, i + h) of it are
 * L(i:n, i:i+h)^H*L(i:n, 0:i+h), in one product as deep as that is. The inverse of L*L^H is one
 * after the other, and of the two residuals of L^-1 the small one is that on which the inverse's
 * depends less: L*L^H*X^H*X - I is L*(R + R^H)*L^-1 where R = X*L - I.
 *
 * Products are of strips, of which the triangles' zeros are multiplied or, by a kernel for that,
 * left out but for a micro-tile's width. So the matrix X has zeros within `base` of its diagonal in
 * the triangle that is not its own, and anything beyond.
 *
 * Nothing is written to the caller's matrix before the result is complete in the host's memory.
 * Then the CPU copies it, which can't fail; before, a failure leaves the matrix intact for the next
 * library. So does a result with an entry that is not finite: zeros were multiplied that the sums
 * don't have, and zero times infinity is not zero. */
#ifndef CLB_INVERSE_H
#define CLB_INVERSE_H

#include "dmat.h"
#include "lapack.h"

struct clb_inverse_state {
    struct clb_runtime *runtime;
    const struct clb_inverse *problem;
    size_t element, n;
    size_t base;  /* order of the diagonal blocks */
    size_t strip; /* rows (or columns) of a product; at most base where zeros are multiplied */
    bool cuts;    /* zeros are left out */
    const char *kernel; /* of the products, for reports */
    struct clb_workspace workspace;
    struct clb_dmat a, x, y; /* what is given; the inverse, or a copy; the product. n x n, there */
};

/* The workspace, and the shapes of a, x and y, of which the memory is not this one's. */
clb_status clb_inverting_open(struct clb_inverse_state *inverting,
                              const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* Enqueue all of it. y may be a. */
clb_status clb_inverting_compute(struct clb_inverse_state *inverting) CLB_MUST_CHECK;

/* What the result is in: x or y. */
const struct clb_dmat *clb_inverting_result(const struct clb_inverse_state *inverting);

/* From the host's memory to the caller's matrix, by as many threads as are free; CLB_ERR_RANGE when
 * it is not finite, and nothing is written. */
clb_status clb_inverting_write(const struct clb_inverse_state *inverting, const void *result,
                               size_t ld) CLB_MUST_CHECK;

clb_status clb_inverse_run_shared(struct clb_inverse_state *inverting,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_inverse_run_stream(struct clb_inverse_state *inverting,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
