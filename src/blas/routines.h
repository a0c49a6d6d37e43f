/* routines: the rows of routines.def, one for each precision. */
#ifndef CLB_ROUTINES_H
#define CLB_ROUTINES_H

#include "base/base.h"
#include "names.h"

typedef enum clb_routine {
#define CLB_NAME(name, precision, library)          CLB_ROUTINE_##name,
#define CLB_ROUTINE(stem, precisions, library, ...) CLB_NAMES_##precisions(CLB_NAME, stem, library)
#include "routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
    CLB_ROUTINES
} clb_routine;

/* See routines.def. */
struct clb_routine_info {
    const char *name; /* "dgemm" */
    const char *stem; /* "gemm" */
    clb_precision precision;
    const char *signature, *shapes, *limits;
    const char *trans; /* letters allowed in this precision */
    const char *flags, *sizes, *others;
    double (*work)(double m, double n, double k);
};

const struct clb_routine_info *clb_routine_get(clb_routine routine);

/* The work formulas, clb_work_gemm(m, n, k). */
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,    \
                    flags, sizes, work, ...)                                                       \
    static inline double clb_work_##stem(double m, double n, double k)                             \
    {                                                                                              \
        return (void)m, (void)n, (void)k, (work);                                                  \
    }
#include "routines.def"
#undef CLB_ROUTINE

/* Floating-point operations per unit of work. */
static inline double clb_flops_per_work(clb_precision precision)
{
    return clb_precision_parts(precision) == 2 ? 8 : 2;
}

#endif
