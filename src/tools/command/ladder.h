/* ladder: what the rungs of the product and of LU share. */
#ifndef CLB_LADDER_H
#define CLB_LADDER_H

#include "measure.h"

struct clb_ladder {
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
struct clb_rung {
    const char *name, *adds;
    double seconds, error, limit;
};
void clb_ladder_add(struct clb_ladder *ladder, const struct clb_rung *rung);

/* Y = X times the vector `x`, or with `absolute` of their absolute values; of X only the part 'U',
 * the part 'L' with ones on the diagonal, or 'A', all of it. */
void clb_ladder_times(const struct clb_ladder *ladder, const void *matrix, char part, bool absolute,
                      const long double *x, long double *y);
/* The largest |difference| of rows, as a multiple of the precision's unit roundoff times `scale`.
 */
double clb_ladder_error(const struct clb_ladder *ladder, const long double *found,
                        const long double *expected, const long double *scale);
/* A random vector of n numbers 1 and -1, and n zeros. NULL: no memory. */
long double *clb_ladder_signs(const struct clb_ladder *ladder);

/* Measure all rungs. CLB_OK also where some can't be run. */
clb_status clb_ladder_climb_gemm(struct clb_ladder *ladder) CLB_MUST_CHECK;
clb_status clb_ladder_climb_lu(struct clb_ladder *ladder) CLB_MUST_CHECK;

#endif
