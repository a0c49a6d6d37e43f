/* SPDX-License-Identifier: BSD-3-Clause
 * residual: matrices that try LU factorisations, made by columns so that none has to be kept, and
 * the residuals of factors and solutions by random vectors, in extended precision. */
#ifndef RESIDUAL_H
#define RESIDUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum residual_kind {
    RESIDUAL_RANDOM,
    RESIDUAL_GRADED,
    RESIDUAL_SINGULAR, /* nearly: the last column is within rounding of two others' difference */
    RESIDUAL_GROWTH,   /* Wilkinson's: the last column doubles with each of the first steps */
    RESIDUAL_UPPER,    /* triangles with their rows in another order */
    RESIDUAL_LOWER,
    RESIDUAL_KINDS
};

extern const char *const residual_kinds[RESIDUAL_KINDS];

/* n x n; the same numbers for the same values. Precisions as in bench.h. */
struct residual_matrix {
    enum residual_kind kind;
    int precision;
    size_t n;
    uint64_t seed;
};

/* Threads that compute what follows; 1 unless it is set. */
enum { RESIDUAL_MOST_THREADS = 64 };
extern int residual_threads;

void residual_column(const struct residual_matrix *matrix, size_t j, void *column);

/* All of it, with leading dimension n. */
void residual_fill(const struct residual_matrix *matrix, void *a);

/* Vectors at once; solutions have as many columns. */
#define RESIDUAL_LANES 4

/* |P*A - L*U| / (n |A| u) in Frobenius norms, of which the first is estimated by random signs;
 * `factors` has leading dimension n, ipiv is 1-based. */
double residual_of_factors(const struct residual_matrix *matrix, const void *factors,
                           const int64_t *ipiv, uint64_t seed);

/* |B - A*X| / (n |A| |X| u) likewise, X and B n x RESIDUAL_LANES with leading dimension n. */
double residual_of_solution(const struct residual_matrix *matrix, const void *x, const void *b);

#endif
