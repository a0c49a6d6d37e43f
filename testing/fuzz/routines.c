/* The tables of routines and precisions. */
#include "fuzz.h"

const struct routine routines[] = {
#define ROUTINE(name, precisions, signature, trans, trans_complex, flags, shape, judge)            \
    {name, precisions, signature, {trans, trans_complex}, flags, shape, judge},
#include "routines.def"
#undef ROUTINE
};
const size_t routine_count = sizeof routines / sizeof *routines;

const struct precision precisions[4] = {
    {'s', sizeof(float), false, 0x1p-24L, 0x1p-126L, (real)FLT_MAX},
    {'d', sizeof(double), false, 0x1p-53L, 0x1p-1022L, (real)DBL_MAX},
    {'c', sizeof(float), true, 0x1p-24L, 0x1p-126L, (real)FLT_MAX},
    {'z', sizeof(double), true, 0x1p-53L, 0x1p-1022L, (real)DBL_MAX},
};
