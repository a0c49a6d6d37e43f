/* operator: matrices applied to vectors, with bounds for the errors: checks in O(n^2) of what was
 * computed in O(n^3) (Freivalds 1977).
 *
 * Each function reads its matrix once: several vectors are applied in one pass, and large matrices
 * are shared out in tiles between the calling thread and free worker threads (none inside a
 * parallel region of the program). SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_OPERATOR_H
#define CLB_OPERATOR_H

#include "blas.h"

#include <complex.h>
#include <float.h>
#include <math.h>

/* A matrix as it is applied: M, M^T, conj(M) or M^H of a rows x cols matrix in memory. */
struct clb_operator {
    clb_precision precision;
    const void *data;
    size_t rows, cols, ld;
    bool transposed, conjugated;
    char part;      /* 0: all of it; U, L: that triangle or trapezoid; u, l: with ones on its
                       diagonal, which is not read */
    bool mirrored;  /* the other triangle is the stored one's transpose, */
    bool hermitian; /* its conjugate transpose, and the diagonal is real */
};

static inline size_t clb_operator_rows(const struct clb_operator *m)
{
    return m->transposed ? m->cols : m->rows;
}

static inline size_t clb_operator_cols(const struct clb_operator *m)
{
    return m->transposed ? m->rows : m->cols;
}

/* Three vectors y = M*x and a bound for each of their entries. Sizes of x itself are |x(j)|,
 * the same for each vector. The signs of x are random, so that errors E of M, however they came
 * about, have |E*x| below 9 times the rows' norms of E*diag(|x|) but for one row in 10^17
 * (Hoeffding 1963). Where |E| <= u|F||M|, these norms are at most u|F|r with r those of M*diag(|x|)
 * (Minkowski): r is y's size, and |F|r that of F*y.
 *
 * `least` and `norm` add to sizes what underflow loses: see clb_operator_apply. */
enum { CLB_VECTORS = 3 };
struct clb_sample {
    size_t n;
    union {
        double *of[2 * CLB_VECTORS + 1]; /* owned, one block: */
        struct {
            double *size, *re[CLB_VECTORS], *im[CLB_VECTORS];
        };
    };
    double norm; /* the sum of |x(j)| */
    double least;
};

/* Vectors of zeros. */
clb_status clb_sample_make(struct clb_sample *sample, size_t n) CLB_MUST_CHECK;
void clb_sample_free(struct clb_sample *sample);
/* Zeros, of which there is room for so many. */
void clb_sample_clear(struct clb_sample *sample, size_t n);
/* Swap the entries i and ipiv(i) in order, as xLASWP; 1-based. */
void clb_sample_swap(struct clb_sample *sample, const void *ipiv, bool wide, size_t count);
/* y = alpha*y; sizes by |alpha|. */
void clb_sample_scale(struct clb_sample *y, double complex alpha);
/* y = y + sign*z; sizes only where `sized`. */
void clb_sample_add(struct clb_sample *y, double sign, const struct clb_sample *z, bool sized);

/* The largest magnitude |re| + |im| of each column of the matrix as it is applied, infinity where
 * one is not finite; with `only` that of one of them, while others are taken for zeros. Mirrored
 * triangles: of the stored part only. `factor` NULL, or its first vector has numbers that columns
 * are multiplied by, 1 or -1 in real precisions; then the matrix is not transposed. */
#define CLB_EVERY SIZE_MAX
void clb_operator_columns(const struct clb_operator *m, size_t only,
                          const struct clb_sample *factor, double *largest);

/* y = M*x. `first`: sizes are the norms of the rows of M*diag(size of x), and columns j where that
 * size is zero are not read; otherwise |M|*size. */
void clb_operator_apply(const struct clb_operator *m, const struct clb_sample *x,
                        struct clb_sample *y, bool first);

/* y = the triangle of outer*inner times x; general matrices, of which each is read once. */
void clb_operator_triangle(const struct clb_operator *outer, const struct clb_operator *inner,
                           bool upper, const struct clb_sample *x, struct clb_sample *y);

/* Element (i, j) of the matrix as it is applied; not for mirrored ones. */
double complex clb_operator_get(const struct clb_operator *m, size_t i, size_t j);

/* |re| + |im|, or infinity where one is not finite. */
static inline double clb_magnitude(double re, double im)
{
    const double size = fabs(re) + fabs(im);
    return size <= DBL_MAX ? size : INFINITY;
}

/* Solve with a triangle, in place. Returns the largest magnitude on the way; infinity when one is
 * not finite or the diagonal has an element below `smallest`. */
double clb_operator_solve(const struct clb_operator *m, double *re, double *im, double smallest);

/* Reflectors H(j) = I - tau(j)*v(j)*v(j)^H as xGEQRF stores them: v(j) has zeros before j, a one
 * there, and then what column j of m has below; xGELQF's are those of the adjoint matrix. */
struct clb_stored_q {
    struct clb_operator m;
    size_t count;
    const void *tau;
};
/* y = Q*y with Q = H(0)*H(1)...; or y = Q^H*y. Sizes stay. *unitary: Q is, enough for checks. */
clb_status clb_stored_q_apply(const struct clb_stored_q *q, bool adjoint, struct clb_sample *y,
                              bool *unitary) CLB_MUST_CHECK;

#endif
