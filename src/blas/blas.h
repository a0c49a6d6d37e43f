/* blas: the problems of BLAS and LAPACK as the layers above describe them, and what the CPU does
 * with the caller's matrices.
 *
 * Matrices belong to the caller and are column-major in host memory; a column-major rows x cols
 * operand occupies (cols-1)*ld + rows elements, and nothing else is touched. */
#ifndef CLB_BLAS_H
#define CLB_BLAS_H

#include "host/host.h"

struct clb_rect {
    size_t row, col, rows, cols;
};

/* ---- products -------------------------------------------------------------------------------- */

struct clb_level3;

/* C = alpha*op(A)*op(B) + beta*C; op(A) is m x k, op(B) k x n, C m x n (BLAS xGEMM). The scalars
 * and matrices are of type `precision`. */
struct clb_gemm {
    clb_precision precision;
    clb_op transa, transb;
    size_t m, n, k;
    const void *alpha, *a, *b, *beta;
    void *c;
    size_t lda, ldb, ldc;
    /* Extensions for the other Level 3 routines: structured operands, a second term, a triangle of
     * C. NULL: plain GEMM. */
    const struct clb_level3 *level3;
};

/* How an operand is stored. Of the last three structures only one triangle is read; on the diagonal
 * of a Hermitian matrix only the real parts are read, on that of a unit triangular matrix
 * nothing. */
typedef enum {
    CLB_STRUCTURE_GENERAL,
    CLB_STRUCTURE_SYMMETRIC,
    CLB_STRUCTURE_HERMITIAN,
    CLB_STRUCTURE_TRIANGULAR
} clb_structure;

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

/* ---- merge.c --------------------------------------------------------------------------------- */

/* On the CPU: Y(i, j) = X(order[i], j), for `rows` rows of Y. */
void clb_copy_ordered(clb_precision precision, size_t rows, size_t cols, const uint32_t *order,
                      const void *x, size_t ldx, void *y, size_t ldy);

/* Zero, one and minus one in a precision. */
const void *clb_scalar_zero(clb_precision precision);
const void *clb_scalar_one(clb_precision precision);
const void *clb_scalar_minus_one(clb_precision precision);
bool clb_scalar_equal(clb_precision precision, const void *x, const void *y);

/* On the CPU: C = alpha*P + beta*C, which writes a finished tile P (ldp) to the caller's matrix.
 * With beta = 0 C is not read. */
void clb_merge_tile(clb_precision precision, size_t m, size_t n, const void *alpha, const void *p,
                    size_t ldp, const void *beta, void *c, size_t ldc);

/* True when no element of P is infinite or NaN. */
bool clb_tile_is_finite(clb_precision precision, size_t m, size_t n, const void *p, size_t ldp);

/* The parts of C that a run has written. They cover C without overlap; each is written completely
 * or not at all. No parts: nothing was begun. */
struct clb_gemm_progress {
    struct clb_rect *part;
    bool *written;
    size_t parts;
    const char *kernel; /* the variant that computed the last part */
};

/* So many parts, none of which is written; the caller sets their rectangles. */
clb_status clb_gemm_progress_make(struct clb_gemm_progress *progress, size_t parts) CLB_MUST_CHECK;
void clb_gemm_progress_free(struct clb_gemm_progress *progress);

/* Called when a command, or clFinish at the end of a run, turns out to have failed. The parts that
 * are written came from commands that reported success, so they are kept. But where C is not an
 * operand all parts are marked as not written and computed again, because some drivers report only
 * in clFinish that a kernel was not run. Returns the status that the run must return. */
clb_status clb_gemm_distrust(const struct clb_gemm *problem,
                             struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- transpose.c: by as many threads as are free --------------------------------------------- */

/* Y = X^T or X^H for a rows x cols matrix Y, on the CPU. */
void clb_transpose(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                   void *y, size_t ldy, bool conjugate);

/* By the calling thread alone: Y = X in the entries (i, j) with i >= diagonal + j, or i <= diagonal
 * + j if `upper`; other entries of Y are neither read nor written. */
void clb_copy_trapezoid(clb_precision precision, bool upper, ptrdiff_t diagonal, size_t rows,
                        size_t cols, const void *x, size_t ldx, void *y, size_t ldy);

/* Y = X^H by the calling thread alone. */
void clb_copy_adjoint(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                      void *y, size_t ldy);

/* True when X (rows x cols) has a NaN; with `part` 'U' or 'L' only that triangle and the diagonal
 * are searched, with 'u' or 'l' that triangle without the diagonal. */
bool clb_has_nan(clb_precision precision, size_t rows, size_t cols, const void *x, size_t ldx,
                 char part);

/* For such a part of a square matrix of order n > 0: true when it has no NaN and no infinity. */
bool clb_triangle_is_finite(clb_precision precision, char part, size_t n, const void *x,
                            size_t ldx);
/* Copy such a part of the first `cols` columns of a matrix, or with 0 all of them. Nothing outside
 * the part is read or written. */
void clb_copy_part(clb_precision precision, char part, size_t rows, size_t cols, const void *x,
                   size_t ldx, void *y, size_t ldy);

#endif
