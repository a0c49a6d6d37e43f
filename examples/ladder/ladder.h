/* ladder: what the rungs of the product and of LU share. SPDX-License-Identifier: BSD-3-Clause */
#ifndef LADDER_H
#define LADDER_H

#include "tools/command/measure.h"
#include "engine/kernel/check.h"

extern const struct clb_source kernel_ladder_gemm, kernel_ladder_lu, kernel_ladder_peak;

struct ladder {
    struct clb_measure measure;
    const char *title;
    size_t n, size, bytes; /* the order; bytes of an element and of a matrix */
    struct clb_queue *queue;
    double flops, bound; /* operations of the problem; the device's most per second */
    bool as_json, wrong; /* `wrong`: a result was */
    json_t *result;      /* what --json prints, the rungs last */
    /* In host memory, column-major without gaps: operands, the result. LU has no B. */
    void *a, *b, *c;
};

/* Add a rung: what it adds to those before it; its seconds, NAN where it can't be run; its error,
 * NAN where that is not looked at. More than `limit` is wrong. */
struct rung {
    const char *name, *adds;
    double seconds, error, limit;
};
void ladder_add(struct ladder *ladder, const struct rung *rung);

/* A product and its factors are applied to a random vector of 1 and -1: the largest difference of
 * rows of whole*x, in the order that the pivots say where there are some, and left*(right*x), as a
 * multiple of the precision's unit roundoff times |left||right||x|. Of the factors the part 'U',
 * the part 'L' with ones on the diagonal, or 'A', all. NAN: no memory. */
double ladder_error(const struct ladder *ladder, const void *whole, const cl_uint *pivot,
                    const void *left, char left_part, const void *right, char right_part);

/* Measure all rungs. CLB_OK also where some can't be run. */
clb_status ladder_climb_gemm(struct ladder *ladder) CLB_MUST_CHECK;
clb_status ladder_climb_lu(struct ladder *ladder) CLB_MUST_CHECK;

#endif
