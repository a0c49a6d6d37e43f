/* dense: matrices of all four precisions with guard bands, and LAPACK's algorithms by plain loops,
 * as the next library and as the reference. SPDX-License-Identifier: BSD-3-Clause */
#ifndef DENSE_H
#define DENSE_H

#include "engine/kernel/kernel.h"
#include "engine/gemm/gemm.h"
#include "engine/lapack/lapack.h"
#include "matrix.h"
#include "number.h"

struct dense {
    clb_precision precision;
    size_t rows, cols, ld;
    struct matrix real; /* the same memory as real numbers, twice the rows when complex */
};

/* Random content in [-1, 1) with a leading dimension padded by up to `pad`; remembered. */
void dense_make(struct dense *x, clb_precision precision, size_t rows, size_t cols, size_t pad,
                uint64_t *seed);
void dense_free(struct dense *x);
void *dense_data(const struct dense *x);
number dense_get(const struct dense *x, size_t i, size_t j);
number dense_old(const struct dense *x, size_t i, size_t j); /* as remembered */
/* Rounded to the precision, the imaginary part dropped where it is real. */
void dense_set(struct dense *x, size_t i, size_t j, number value);
void dense_remember(struct dense *x);
/* Columns from `first` on as remembered. */
void dense_restore(struct dense *x, size_t first);
/* X = Y^H. */
void dense_set_adjoint(struct dense *x, const struct dense *y);
bool dense_gaps_intact(const struct dense *x);
bool dense_intact(const struct dense *x);

/* The same where there may be NaN. */
bool dense_intact_bits(const struct dense *x);

/* Unit roundoff of a precision. */
long double dense_unit(clb_precision precision);
number dense_scalar(clb_precision precision, const void *scalar);

/* Element (i, j) of any memory with a leading dimension. */
number dense_at(clb_precision precision, const void *data, size_t ld, size_t i, size_t j);
void dense_store(clb_precision precision, void *data, size_t ld, size_t i, size_t j, number value);

/* The next library by plain loops in higher precision, each entry rounded once it is stored. It
 * counts the elements that it was given. */
extern _Atomic size_t dense_next_entries;
extern const struct clb_host_blas dense_next;
/* A call of a kind with A, and integers of 64 bits; of LQ, the one that does the same with A^H as
 * QR does with an m x n matrix. */
struct clb_call dense_call(clb_kind kind, size_t m, size_t n, const struct dense *a);
struct clb_call dense_lq_call(clb_kind kind, size_t m, size_t n, const struct dense *a);
/* xGETRF of A by dense_next. */
size_t dense_getrf(const struct dense *a, int64_t *ipiv);
/* Its functions that others call too; `host` is not used. */
size_t dense_trsm(const struct clb_host_blas *host, const struct clb_call *call);
size_t dense_gemm(const struct clb_host_blas *host, const struct clb_call *call);

/* Hermitian and positive definite, of order n: B*B^H/n with a random B, its rows scaled by powers
 * of two of up to `grading`, in one triangle; the other one and the imaginary parts of the diagonal
 * are NaN, which is not to be read. Remembered. */
void dense_make_definite(struct dense *x, clb_precision precision, size_t n, size_t pad, bool upper,
                         int grading, uint64_t *seed);
/* The backward error of the first columns of the factor: the largest |A - L*L^H| / ((j + 4) u (|A|
 * + |L||L^H|)) of any entry of these, j its column, where A = L*L^H or L^H is U. Infinite when
 * anything else in `x` is not as remembered: the other triangle, other columns, the gaps; or when a
 * pivot is not real and positive. */
long double dense_cholesky_error(const struct dense *x, bool upper, size_t columns);

/* X from the factor, over B, by two systems of dense_next. */
size_t dense_potrs(const struct clb_host_blas *host, const struct clb_call *call);

/* The backward error of a factorisation whose input is remembered in `x`: the largest
 * |P*A - L*U| / ((min(m, n) + 4) u (|P*A| + |L||U|)) of any entry. Not finite when ipiv is none. */
long double dense_lu_error(const struct dense *x, const int64_t *ipiv);

#endif
