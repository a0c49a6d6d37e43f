/* lu_ladder: LU next to the published rungs that the library grew out of. */
#ifndef LU_LADDER_H
#define LU_LADDER_H

#include "engine/ocl/ocl.h"

#include <stdbool.h>

/* Print the table. OpenBLAS, opened, is the next library and multiplies the factors; false when the
 * factorisation failed or is wrong. */
bool lu_ladder(struct clb_runtime *runtime, void *openblas);

#endif
