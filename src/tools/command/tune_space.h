/* tune_space: the values of kernel families that tune --kernels may try. */
#ifndef CLB_TUNE_SPACE_H
#define CLB_TUNE_SPACE_H

#include "engine/tuning/tuning.h"

struct clb_tune_axis {
    clb_param param;
    size_t count;
    const size_t *values;
};

/* The values of a family that are varied. Values that decide on accuracy are not among them. */
struct clb_tune_space {
    const struct clb_tune_axis *axes;
    size_t count;
    void (*repair)(size_t *value);                      /* after one was changed; may be NULL */
    bool (*sensible)(const size_t *value, size_t real); /* worth a build */
};

const struct clb_tune_space *clb_tune_space_of(clb_family family);

/* Print a row for src/engine/tuning/gemm.def. */
void clb_tune_print_row(const char *class, clb_precision precision,
                        const struct clb_gemm_tuning *tuning);

#endif
