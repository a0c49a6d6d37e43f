/* SPDX-License-Identifier: BSD-3-Clause
 * level3_case: problems of Level 3 with random shapes, and their results by plain loops in higher
 * precision. Whatever must not be read is NaN: the other triangle of operands, imaginary parts of
 * Hermitian diagonals, unit diagonals, C where beta is zero. */
#ifndef LEVEL3_CASE_H
#define LEVEL3_CASE_H

#include "engine/gemm/gemm.h"
#include "dense.h"

typedef enum level3_routine {
    LEVEL3_SYMM,
    LEVEL3_HEMM,
    LEVEL3_SYRK,
    LEVEL3_HERK,
    LEVEL3_SYR2K,
    LEVEL3_HER2K,
    LEVEL3_TRMM,
    LEVEL3_GEMMTR,
    LEVEL3_ROUTINES
} level3_routine;

struct level3_case {
    level3_routine routine;
    struct clb_gemm problem;
    struct dense a, b, c; /* C is B in place */
    char name[64];
};

/* Extents up to `largest`; beta is 0 in one of four cases. */
void level3_make(struct level3_case *x, level3_routine routine, clb_precision precision,
                 size_t largest, uint64_t *seed);
void level3_free(struct level3_case *x);
/* C as it was. */
void level3_restore(struct level3_case *x);

/* True for the elements of C that are computed. */
bool level3_in_region(const struct level3_case *x, size_t i, size_t j);

/* Expectations about a part of C: that it has been computed, or not been touched. */
void level3_check_part(const struct level3_case *x, const struct clb_rect *part, bool written,
                       const char *what);
/* That nothing else was written, and that the parts of the progress are as promised. */
void level3_check_rest(const struct level3_case *x, const struct clb_gemm_progress *progress,
                       const char *what);

#endif
