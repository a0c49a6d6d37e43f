/* The tuner's parts: what may be tried (tune_space.c), how it is measured (tune_worker.c) and the
 * search (tune.c). */
#ifndef TUNE_H
#define TUNE_H

#include "resident.h"

struct tune_axis {
    clb_param param;
    size_t count;
    const size_t *values;
};

/* The values of a family that the tuner varies. Values that decide on accuracy are not among them.
 */
struct tune_space {
    const struct tune_axis *axes;
    size_t count;
    void (*repair)(size_t *value);                      /* after one was changed; may be NULL */
    bool (*sensible)(const size_t *value, size_t real); /* worth a build */
};

const struct tune_space *tune_space_of(clb_family family);

/* What is tuned, in the worker's terms. */
struct tune_task {
    clb_precision precision;
    const size_t *sizes;
    size_t size_count;
    bool host; /* measure from host memory to host memory, not on the device alone */
};

/* The process that runs candidates: a kernel may crash or hang, and takes only this one along.
 * Reads requests from stdin, a line each, and answers each with a line:
 *   start                       CLASS THRESHOLD SMALLEST VALUE...   the table's row, and the device
 *                               to stderr
 *   try REPS MS VALUE... BASE...   ok RATIO SECONDS...  (candidate / base, seconds for each size)
 *                               bad REASON           (not built, or wrong)
 * Each time is taken over MS milliseconds, after as long untimed: at the limit of its power a
 * device's clock depends on what it has just done, and a candidate that takes more would profit
 * from the base's thrift and slow the base down (seen with FP64 tensor cores on an H200: 3 % faster
 * in short turns, 10 % slower on its own). */
int tune_worker(const struct tune_task *task);

#endif
