/* prefault: memory that the program may not have touched; best effort. */
#ifndef CLB_PREFAULT_H
#define CLB_PREFAULT_H

#include "blas/blas.h"

/* Look at a few pages spread over [begin, begin + bytes): true when one of them is not present. */
bool clb_pages_absent(const void *begin, size_t bytes);
/* Prefault the whole pages in the range; their content is kept. */
void clb_pages_populate(void *begin, size_t bytes);
/* Ask the system for huge pages where whole ones lie in the range. */
void clb_pages_want_huge(void *begin, size_t bytes);

/* ---- the pages of C -------------------------------------------------------------------------- */

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
/* The number of first units that have all pages of the columns before `end`. */
size_t clb_prefault_units(const struct clb_prefault *prefault, size_t end);
/* Fault in the pages of one unit. */
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

#endif
