/* ladder: what the rungs of the product and of LU share. */
#ifndef LADDER_H
#define LADDER_H

#include "tools/command/measure.h"

extern const struct clb_source kernel_ladder_gemm, kernel_ladder_lu, kernel_ladder_peak;

struct ladder {
    struct clb_measure measure;
    const char *title;
    size_t n;
    double flops, bound; /* operations of the problem; the device's most per second */
    bool as_json, wrong; /* `wrong`: a result was */
    json_t *result;      /* what --json prints, the rungs last */
    json_t *peers;       /* seconds of other libraries' products, by name */
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

/* Y = X times the vector `x`, or with `absolute` of their absolute values; of X only the part 'U',
 * the part 'L' with ones on the diagonal, or 'A', all of it. */
void ladder_times(const struct ladder *ladder, const void *matrix, char part, bool absolute,
                  const long double *x, long double *y);
/* The largest |difference| of rows, as a multiple of the precision's unit roundoff times `scale`.
 */
double ladder_error(const struct ladder *ladder, const long double *found,
                    const long double *expected, const long double *scale);
/* A random vector of n numbers 1 and -1, and n zeros. NULL: no memory. */
long double *ladder_signs(const struct ladder *ladder);

/* Measure all rungs. CLB_OK also where some can't be run. */
clb_status ladder_climb_gemm(struct ladder *ladder) CLB_MUST_CHECK;
clb_status ladder_climb_lu(struct ladder *ladder) CLB_MUST_CHECK;

#endif
