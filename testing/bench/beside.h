/* beside.h: what the programs share that measure the shim beside OpenBLAS: options, a process for
 * each number of threads, calls that take turns. SPDX-License-Identifier: BSD-3-Clause */
#ifndef BESIDE_H
#define BESIDE_H

#include "bench.h"

/* `value` is a const char **, int *, size_t *, double * or bool *, by the kind; nothing follows a
 * flag. */
struct bench_option {
    const char *name;
    enum { BENCH_TEXT, BENCH_NUMBER, BENCH_COUNT, BENCH_REAL, BENCH_FLAG } kind;
    void *value;
};

/* Options that programs have in common. */
struct bench_common {
    const char *sizes, *precisions, *threads; /* comma lists */
    const char *pin;  /* whether one thread is pinned to one CPU: 0, 1, or "both" ways */
    const char *core; /* whose kernels OpenBLAS takes; NULL: it chooses */
    int reps;         /* of a call; 0: as many as fit into */
    double seconds;
    int pause; /* milliseconds between two calls; -1: those in which OpenBLAS's threads stop
                  spinning */
};

/* Store what the program's arguments say; ends the program where one is no option. `common` may be
 * NULL; `source` is the file whose head explains them. */
void bench_parse(struct bench_common *common, const struct bench_option *options, size_t count,
                 const char *source, char **arguments);

/* The numbers of a comma list, one after the other; false behind the last one. */
bool bench_next_number(const char **list, int *number);
bool bench_next_precision(const char **list, int *precision);
/* Whether a comma list has the word; NULL has all. */
bool bench_is_listed(const char *list, const char *word);

/* Run the program again for each number of threads, by POCL_MAX_PTHREAD_COUNT and
 * OPENBLAS_NUM_THREADS, which BENCH_THREADS says then. Returns its exit status. */
int bench_run_processes(const struct bench_common *common, char **arguments);

/* The CPU whose kernels OpenBLAS takes; ends the program when OPENBLAS_CORETYPE is another. */
const char *bench_core(void *openblas);

/* Calls of the shim and of OpenBLAS, and who is first, take turns. */
enum { BENCH_MOST_TURNS = 101 };
struct bench_turns {
    /* Makes one call, after the pause; returns its seconds and in *cpu those of all the process's
     * threads, NAN where it is left out. */
    double (*call)(void *problem, bool shim, double *cpu);
    void *problem;
    size_t count;
    double shim[BENCH_MOST_TURNS], other[BENCH_MOST_TURNS];
    /* Of neighbours: the other's time by the shim's. */
    double ratio[BENCH_MOST_TURNS], cpu_ratio[BENCH_MOST_TURNS];
};
void bench_take_turns(const struct bench_common *common, struct bench_turns *turns);

#endif
