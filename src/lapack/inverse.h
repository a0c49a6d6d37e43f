/* inverse: shared by the files inverse*.c.
 *
 * The comments describe a lower triangle L. Where U is stored, L stands for U^T, and rows and
 * columns are exchanged.
 *
 * The inverse: X*L = I is solved by halves, from the end:
 *
 *     L = [L11 0; L21 L22]:  X22 = L22^-1, X21 = -(X22*L21)*L11^-1, X11 = L11^-1.
 *
 * X21 is a product with the part that is already inverted, and then a solve with the given
 * triangle. So X*L - I is small componentwise, like the residual of a solve (Du Croz and Higham
 * 1992, method 2C; LAPACK xTRTRI); for U it is U*X - I. Solving on both sides would multiply the
 * error by the condition number. For diagonal blocks X*L = I is solved by substitution.
 *
 * The product L^H*L, or U*U^H, is computed by block rows: its rows [i, i + h) are L(i:n,
 * i:i+h)^H*L(i:n, 0:i+h), one product of depth n - i. The inverse of L*L^H is the inverse followed
 * by the product. Of the two residuals of L^-1 the small one matters more for that: L*L^H*X^H*X - I
 * is L*(R + R^H)*L^-1 where R = X*L - I.
 *
 * Products are computed in strips. The zeros of triangles in them are multiplied or, by kernels
 * that can, skipped except for the width of a micro-tile. So X has zeros within `base` of its
 * diagonal in the other triangle, and is undefined beyond.
 *
 * Nothing is written to the caller's matrix before the result is complete in host memory. Then the
 * CPU copies it, which can't fail; a failure before leaves the matrix intact for the next library.
 * So does a result with an entry that is not finite, because it may come from multiplied zeros that
 * are not terms of the sums: zero times infinity is not zero. */
#ifndef CLB_INVERSE_H
#define CLB_INVERSE_H

#include "dense/dense.h"
#include "lapack.h"

struct clb_inverse_state {
    struct clb_runtime *runtime;
    const struct clb_inverse *problem;
    size_t element, n;
    size_t base;  /* order of the diagonal blocks */
    size_t strip; /* rows (or columns) of a product; at most base where zeros are multiplied */
    bool cuts;    /* products skip zeros */
    const char *kernel; /* of the products, for reports */
    struct clb_workspace workspace;
    struct clb_dmat a, x, y; /* the given triangle; its inverse, or a copy of it; the product. n x
                              * n, on the device */
};

/* Open the workspace and set the dimensions of a, x and y. The caller provides their memory. */
clb_status clb_inverting_open(struct clb_inverse_state *inverting,
                              const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

/* Enqueue the whole computation. y may be the same memory as a. */
clb_status clb_inverting_compute(struct clb_inverse_state *inverting) CLB_MUST_CHECK;

/* The matrix with the result: x or y. */
const struct clb_dmat *clb_inverting_result(const struct clb_inverse_state *inverting);

/* Copy the result from host memory to the caller's matrix, by as many threads as are free.
 * CLB_ERR_RANGE: it is not finite, and nothing is written. */
clb_status clb_inverting_write(const struct clb_inverse_state *inverting, const void *result,
                               size_t ld) CLB_MUST_CHECK;

clb_status clb_inverse_run_shared(struct clb_inverse_state *inverting,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_inverse_run_stream(struct clb_inverse_state *inverting,
                                  const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
