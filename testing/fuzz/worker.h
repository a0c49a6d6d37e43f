/* SPDX-License-Identifier: BSD-3-Clause
 * worker: the process that calls. The one that judges its end never loads a library, so that a
 * crash or a hang is a failure like any other, and simpler cases run in processes of their own. */
#ifndef WORKER_H
#define WORKER_H

#include "fuzz.h"

#include <stdatomic.h>

enum { MOST_THREADS = 64, MOST_ROUTINES = 64 };

struct settings {
    const char *library, *next, *witnesses[2];
    const char *routines; /* names with commas; NULL: all */
    const char *forms;    /* f Fortran, c C, w LAPACKE with a workspace; NULL: all */
    const char *report;   /* the file that gets the library's own */
    long seed, first, count, threads, largest, often;
    long hang; /* seconds without a call's end */
    long seconds;
    bool quiet, flush;
    long wide;
};

/* Between the two processes. */
struct shared {
    struct fuzz_case current[MOST_THREADS], failed;
    atomic_bool busy[MOST_THREADS], has_failed;
    atomic_bool ended;     /* as it should; a library may end the process with status 0 */
    atomic_long calls, at; /* of `failed`: which of all cases it was */
    atomic_long by_routine[MOST_ROUTINES];
    char message[MESSAGE];
};

/* Random cases until the count, the time or a failure; the exit status. */
int work(const struct settings *settings, struct shared *shared);
/* One case, three times in a row. */
int work_once(const struct settings *settings, const struct fuzz_case *c, struct shared *shared);

#endif
