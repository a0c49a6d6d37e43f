/* The tuner's parts: what may be tried (src/tools/command/tune_space.h), how it is measured
 * (tune_worker.c) and the search (tune.c). */
#ifndef TUNE_H
#define TUNE_H

#include "tools/command/tune_space.h"
#include "resident.h"

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
