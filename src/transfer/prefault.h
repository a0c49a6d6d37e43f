/* prefault: faulting in the pages of C. */
#ifndef CLB_PREFAULT_H
#define CLB_PREFAULT_H

#include "blas/blas.h"

/* Columns of C in units, which threads may fault in before results come. */
struct clb_prefault {
    char *c;
    size_t bytes, step, columns; /* of a column; between columns; number of them */
    bool solid;                  /* every page between the first and the last byte holds entries */
    size_t per_unit, units;      /* columns of a unit; 0 units: nothing to do */
    size_t next;                 /* the next unit; counted by the user of the struct */
};

/* Returns the units to fault in, none where the pages seem to be there, and advises the system to
 * use huge pages for the faults. `mode` is the value of CLB_PARAM_FAULT. */
struct clb_prefault clb_prefault_begin(const struct clb_gemm *problem, size_t mode);
/* Fault in the pages of one unit. */
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

#endif
