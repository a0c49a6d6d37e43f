/* SPDX-License-Identifier: BSD-3-Clause
 * matrix: operands with poisoned gaps and guard bands, and a GEMM in higher precision. */
#ifndef MATRIX_H
#define MATRIX_H

#include "blas/blas.h"

/* Column-major. Every byte that is not an element, before, between and behind the columns, is a NaN
 * of a pattern that is checked afterwards. */
struct matrix {
    clb_precision precision;
    size_t rows, cols, ld;
    unsigned char *memory, *snapshot; /* guard, (cols-1)*ld + rows elements, guard */
    size_t bytes;                     /* of all that */
    size_t shift;                     /* where the first element is */
};

/* `unaligned` elements are added in front, so that the data is aligned to its element only. */
void matrix_make(struct matrix *x, clb_precision precision, size_t rows, size_t cols, size_t ld,
                 size_t unaligned);
void matrix_free(struct matrix *x);

void *matrix_data(const struct matrix *x);
double matrix_get(const struct matrix *x, size_t i, size_t j);
void matrix_set(struct matrix *x, size_t i, size_t j, double value);
/* Uniform in [-1, 1). */
void matrix_fill(struct matrix *x, uint64_t *seed);

/* Remember the content; true when the bytes outside the elements, or all bytes, are still the same.
 */
void matrix_remember(struct matrix *x);
bool matrix_gaps_intact(const struct matrix *x);
bool matrix_intact(const struct matrix *x);

/* C = alpha*op(A)*op(B) + beta*C; op(A) is m x k, op(B) k x n. */
struct gemm_case {
    clb_precision precision;
    clb_op transa, transb;
    size_t m, n, k;
    double alpha, beta;    /* values of `precision` */
    float alpha_s, beta_s; /* the same, by gemm_make */
    struct matrix a, b, c;
};

/* Matrices with leading dimensions padded by up to `pad` elements, random content, C remembered. */
void gemm_make(struct gemm_case *g, uint64_t *seed, size_t pad);
void gemm_free(struct gemm_case *g);
/* The same for the shim; refers to `g`. */
struct clb_gemm gemm_problem(const struct gemm_case *g);

/* op(A)(i, p) and op(B)(p, j). */
double gemm_a(const struct gemm_case *g, size_t i, size_t p);
double gemm_b(const struct gemm_case *g, size_t p, size_t j);

/* Check C, of large products columns at equal distances and the last, against the sum in extended
 * precision: |error| <= (k + 4) u (|alpha||A||B| + |beta C|), and that gaps, guards, A and B are
 * untouched. C's old content is the remembered one. An entry whose sum is not finite must not be
 * finite. Expectations fail with `what`; true when all is well.
 */
bool gemm_check(const struct gemm_case *g, const char *what);

/* The next library's part in tests that have none: plain loops over the caller's memory. */
void gemm_plain(clb_precision precision, clb_op transa, clb_op transb, size_t m, size_t n, size_t k,
                const void *alpha, const void *a, size_t lda, const void *b, size_t ldb,
                const void *beta, void *c, size_t ldc);

#endif
