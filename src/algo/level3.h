/* level3: the Level 3 routines other than GEMM, as extensions of a product of general matrices:
 * symmetric, Hermitian and triangular operands, results of which only a triangle is computed, and
 * sums of two products.
 *
 * All of it runs in the pipelines of GEMM (inplace.c, stream.c), with the same guarantees. */
#ifndef CLB_LEVEL3_H
#define CLB_LEVEL3_H

#include "algo.h"

/* A number of the problem's precision. */
typedef union clb_scalar {
    float s[2]; /* re, im */
    double d[2];
} clb_scalar;

struct clb_level3_operand {
    const void *data;
    size_t ld;
    clb_op op; /* CLB_OP_N for symmetric and Hermitian operands */
    clb_structure shape;
    bool upper, unit; /* as stored, before op */
};

typedef enum { CLB_REGION_FULL, CLB_REGION_UPPER, CLB_REGION_LOWER } clb_region;

/* C := sum over terms of alpha[t]*op(A[t])*op(B[t]) + beta*C, on the region of C only. op(A) is m x
 * k, op(B) k x n, C m x n; m = n where the region is a triangle. None of m, n, k is 0.
 *
 *   symm, hemm     one operand is symmetric or Hermitian
 *   syrk, herk     a = A, b = A^T or A^H (ops N and T or C, or T or C and N), a triangle
 *   syr2k, her2k   two terms: A*B^T + B*A^T; alpha[1] is alpha[0], for her2k its conjugate
 *   trmm           one operand is triangular, in_place, beta = 0
 *   gemmtr         general operands, a triangle
 *
 * Any combination of these is computed, with these limits: at most one operand of a term is not
 * general; an operand in place is general and not transposed; two different alphas are conjugates,
 * and then the two terms without alpha are adjoints of each other, as in her2k. */
struct clb_level3 {
    clb_precision precision;
    size_t m, n, k, terms;
    struct clb_level3_operand a[2], b[2];
    clb_scalar alpha[2], beta;
    void *c;
    size_t ldc;
    clb_region region;
    bool real_diagonal; /* herk, her2k: C's diagonal is read and written as real */
    bool in_place;      /* trmm: c is b[0]'s memory (left), or a[0]'s (right) */
};

/* Run on the device. CLB_ERR_RANGE: an operand is triangular, and parts of the product that are not
 * finite were not written, because zeros outside the triangle were multiplied as well; the other
 * parts are written. As with clb_gemm_run, the parts of C that *progress does not call written are
 * untouched unless C is not read, no command is outstanding on return, and the caller frees
 * *progress. The parts don't overlap and cover the region of C, and
 *   - in a triangular region each part is either inside the triangle, or a square on the diagonal
 *     (its `row` is its `col`), of which only the triangle is meant;
 *   - in place the parts are independent: blocks of all rows (left) or all columns (right);
 *   - otherwise they are any rectangles.
 * No parts: nothing was begun. */
clb_status clb_level3_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                          const struct clb_level3 *problem,
                          struct clb_gemm_progress *progress) CLB_MUST_CHECK;

#endif
