/* SPDX-License-Identifier: BSD-3-Clause
 * The table of routines, which is the library's own, with a judge for each; and of precisions. */
#include "fuzz.h"

const struct routine routines[] = {
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex, \
                    flags, sizes, work, kind, others)                                           \
    {#stem,  #precisions, LIBRARY_##library,      signature,                                    \
     shapes, limits,      {trans, trans_complex}, flags,                                        \
     sizes,  others,      &judge_##kind},
#include "blas/routines.def"
};
const size_t routine_count = sizeof routines / sizeof *routines;

const struct precision precisions[4] = {
    {'s', sizeof(float), false, 0x1p-24L, 0x1p-126L, (real)FLT_MAX},
    {'d', sizeof(double), false, 0x1p-53L, 0x1p-1022L, (real)DBL_MAX},
    {'c', sizeof(float), true, 0x1p-24L, 0x1p-126L, (real)FLT_MAX},
    {'z', sizeof(double), true, 0x1p-53L, 0x1p-1022L, (real)DBL_MAX},
};
