/* operator: matrices applied to a vector, with what bounds the errors of the results that are to be
 * checked. For checks in O(n^2) of what was computed in O(n^3) (Freivalds 1977). */
#ifndef CLB_OPERATOR_H
#define CLB_OPERATOR_H

#include "blas.h"

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

/* A vector y = M*x and a bound for each of its entries. Sizes of x itself are |x(j)|. The signs of
 * x are random, so that errors E of M, however they came about, have |E*x| below 9 times the rows'
 * norms of E*diag(|x|) but for one row in 10^17 (Hoeffding 1963). Where |E| <= u|F||M|, these norms
 * are at most u|F|r with r those of M*diag(|x|) (Minkowski): r is y's size, and |F|r that of F*y.
 *
 * `least` and `norm` add to sizes what underflow loses: see clb_operator_apply. */
struct clb_sample {
    size_t n;
    double *re, *im, *size; /* owned, one block */
    double norm;            /* the sum of |x(j)| */
    double least;
};

/* A vector of zeros. */
clb_status clb_sample_make(struct clb_sample *sample, size_t n) CLB_MUST_CHECK;
void clb_sample_free(struct clb_sample *sample);
/* Swap the entries i and ipiv(i) in order, as xLASWP; 1-based. */
void clb_sample_swap(struct clb_sample *sample, const void *ipiv, bool wide, size_t count);

/* The largest magnitude |re| + |im| of each column of the matrix as it is applied, infinity where
 * one is not finite. Mirrored triangles: of the stored part only. */
void clb_operator_columns(const struct clb_operator *m, double *largest);

/* y = M*x. `first`: sizes are the norms of the rows of M*diag(size of x), and columns j where that
 * size is zero are not read; otherwise |M|*size. */
void clb_operator_apply(const struct clb_operator *m, const struct clb_sample *x,
                        struct clb_sample *y, bool first);

/* Element (i, j) of the matrix as it is applied, re and im; not for mirrored ones. */
void clb_operator_get(const struct clb_operator *m, size_t i, size_t j, double value[2]);

/* Solve with a triangle, in place. Returns the largest magnitude on the way; infinity when one is
 * not finite or the diagonal has an element below `smallest`. */
double clb_operator_solve(const struct clb_operator *m, double *re, double *im, double smallest);

/* Reflectors H(j) = I - tau(j)*v(j)*v(j)^H of order `order` as xGEQRF stores them: v(j) has zeros
 * before j, a one there, and then what column j of the matrix has below; or, if `adjoint`, as
 * xGELQF does in rows: the matrix is the adjoint of that. */
struct clb_reflector_list {
    clb_precision precision;
    const void *data;
    size_t order, count, ld;
    const void *tau;
    bool adjoint;
};
/* y = Q*y with Q = H(0)*H(1)...; or y = Q^H*y. */
void clb_reflector_list_apply(const struct clb_reflector_list *list, bool adjoint, double *re,
                              double *im);
/* True when Q is unitary as far as checks need it. */
bool clb_reflector_list_is_unitary(const struct clb_reflector_list *list);

#endif
