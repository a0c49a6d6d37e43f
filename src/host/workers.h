/* host: worker threads, and what they do with memory: pages that are not there yet, copies. */
#ifndef CLB_WORKERS_H
#define CLB_WORKERS_H

#include "host.h"

/* ---- worker threads (workers.c) -------------------------------------------------------------- */

#define CLB_MAX_WORKERS 16

/* Worker threads that one call uses. */
struct clb_workers {
    size_t count;                   /* threads in the team */
    size_t running;                 /* threads in a task; private to workers.c */
    size_t member[CLB_MAX_WORKERS]; /* private to workers.c */
};

/* Get at most `wanted` threads without waiting: fewer or none when other calls use them. Unless
 * `forced`, also no more than there are CPUs that this thread may use besides its own, and none
 * inside an OpenMP parallel region. */
void clb_workers_lend(struct clb_workers *team, size_t wanted, bool forced);
/* Run a task on member `index` < count, which must be idle. */
void clb_workers_start(struct clb_workers *team, size_t index, void (*task)(void *),
                       void *argument);
/* Wait until all tasks have ended, and return the threads for other calls. */
void clb_workers_return(struct clb_workers *team);

/* Call `work` for pieces of [0, count), of `share` each but the last, on this thread and on free
 * ones, at most `threads` in all; `thread` numbers them. */
void clb_workers_share(size_t count, size_t share, size_t threads,
                       void (*work)(void *context, size_t thread, size_t begin, size_t end),
                       void *context);

/* Copy `runs` pieces of `bytes` each, to_step and from_step bytes apart, with non-temporal stores:
 * for data that will not be read soon (copy.c). */
void clb_copy_nontemporal(void *to, size_t to_step, const void *from, size_t from_step,
                          size_t bytes, size_t runs);

/* ---- memory that the program may not have touched (prefault.c); best effort ------------------ */

/* Look at a few pages spread over [begin, begin + bytes): true when one of them is not present. */
bool clb_pages_absent(const void *begin, size_t bytes);
/* Prefault the whole pages in the range; their content is kept. */
void clb_pages_populate(void *begin, size_t bytes);
/* Ask the system for huge pages where whole ones lie in the range. */
void clb_pages_want_huge(void *begin, size_t bytes);

/* The columns of a matrix in units, which threads may fault in before results come. */
struct clb_prefault {
    char *c;
    size_t bytes, step, columns; /* of a column; between columns; number of them */
    bool solid;                  /* every page between the first and the last byte holds entries */
    size_t per_unit, units;      /* columns of a unit; 0 units: nothing to do */
    size_t next;                 /* the next unit; counted by the user of the struct */
};

/* Returns the units of a matrix to fault in, none where the pages seem to be there, and advises the
 * system to use huge pages for the faults. `bytes` are a column's, which begin `step` bytes apart;
 * `mode` is the value of CLB_PARAM_FAULT. */
struct clb_prefault clb_prefault_begin(void *c, size_t bytes, size_t step, size_t columns,
                                       size_t mode);
/* The number of first units that have all pages of the columns before `end`. */
size_t clb_prefault_units(const struct clb_prefault *prefault, size_t end);
/* Fault in the pages of one unit. */
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

#endif
