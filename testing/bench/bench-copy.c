/* What the threads that carry streamed data can copy: runs of columns of a large matrix into slots
 * that are too many for the caches, and back, by memcpy and past the cache.
 *
 * usage: bench-copy [THREADS,...]        (default: 1)
 *
 * Rates in GB/s of all threads together, by the CPU time of each, medians of 5: what they would
 * reach undisturbed. The slots are ordinary memory. */
#include "bench.h"

#include "base/base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LD       ((size_t)32 << 10) /* bytes from one column to the next: n = 8192 single */
#define COLUMNS  ((size_t)8192)
#define PIECE    ((size_t)2 << 20)
#define SLOTS    ((size_t)24) /* of all threads */
#define SHARE    ((size_t)32 << 20)
#define REPS     5
#define MAX_WORK 64

enum way { BY_MEMCPY, PAST_CACHE, MERGE_BY_MEMCPY, MERGE_PAST_CACHE, WAYS };

static const char *const names[WAYS] = {"in, memcpy", "in, past the cache", "out, memcpy",
                                        "out, past the cache"};

/* A thread's part: SHARE bytes in runs, columns [first, first + columns) again and again. */
struct work {
    enum way way;
    size_t run, first, columns, turns; /* slots of the thread */
    char *matrix, *slots;
    pthread_barrier_t *start;
    double seconds; /* out */
};

static void copy_piece(enum way way, char *column, char *slot, size_t run, size_t runs)
{
    switch (way) {
    case PAST_CACHE:
        clb_copy_nontemporal(slot, run, column, LD, run, runs);
        break;
    case MERGE_PAST_CACHE:
        clb_copy_nontemporal(column, LD, slot, run, run, runs);
        break;
    default:
        for (size_t j = 0; j < runs; j++) {
            char *inside = column + j * LD, *packed = slot + j * run;
            memcpy(way == BY_MEMCPY ? packed : inside, way == BY_MEMCPY ? inside : packed, run);
        }
    }
}

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *carry(void *argument)
{
    struct work *work = argument;
    size_t runs = clb_min(PIECE / work->run, work->columns), column = 0, band = 0, turn = 0;
    pthread_barrier_wait(work->start);
    double begin = cpu_seconds();
    for (size_t done = 0; done < SHARE; done += runs * work->run) {
        copy_piece(work->way, work->matrix + (work->first + column) * LD + band * work->run,
                   work->slots + turn++ % work->turns * PIECE, work->run, runs);
        column += runs;
        if (column + runs > work->columns) {
            column = 0;
            band = (band + 1) % (LD / work->run);
        }
    }
    work->seconds = cpu_seconds() - begin;
    return NULL;
}

static double rate(enum way way, size_t run, size_t threads, char *matrix, char *slots)
{
    pthread_t thread[MAX_WORK];
    struct work work[MAX_WORK];
    pthread_barrier_t start;
    size_t turns = clb_max(SLOTS / threads, 2);
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    for (size_t i = 0; i < threads; i++) {
        work[i] = (struct work){way,   run,    i * (COLUMNS / threads),   COLUMNS / threads,
                                turns, matrix, slots + i * turns * PIECE, &start,
                                0};
        if (pthread_create(&thread[i], NULL, carry, &work[i]) != 0)
            bench_fail("no threads");
    }
    pthread_barrier_wait(&start);
    double bytes_per_second = 0;
    for (size_t i = 0; i < threads; i++) {
        pthread_join(thread[i], NULL);
        bytes_per_second += (double)SHARE / work[i].seconds;
    }
    pthread_barrier_destroy(&start);
    return 1e-9 * bytes_per_second;
}

static void measure(size_t threads, char *matrix, char *slots)
{
    static const size_t runs[] = {1024, 1536, 2048, 3584, 4096, 8192, 32768};
    printf("%zu threads, bytes of a run:%s", threads, threads < 10 ? " " : "");
    for (size_t r = 0; r < CLB_COUNT_OF(runs); r++)
        printf(" %7zu", runs[r]);
    printf("\n");
    for (int way = 0; way < WAYS; way++) {
        printf("%-28s", names[way]);
        for (size_t r = 0; r < CLB_COUNT_OF(runs); r++) {
            double rates[REPS];
            for (size_t rep = 0; rep < REPS; rep++)
                rates[rep] = rate((enum way)way, runs[r], threads, matrix, slots);
            printf(" %7.1f", bench_median(rates, REPS));
            fflush(stdout);
        }
        printf("\n");
    }
}

int main(int count, char **arguments)
{
    size_t room = 2 * MAX_WORK * PIECE;
    char *matrix = bench_memory(COLUMNS * LD + 4096);
    char *slots = bench_memory(room);
    memset(matrix, 1, COLUMNS * LD + 4096);
    printf("%s\n", bench_cpu());
    for (const char *list = count > 1 ? arguments[1] : "1"; *list != '\0';) {
        char *end;
        size_t threads = strtoul(list, &end, 10);
        if (threads < 1 || threads > MAX_WORK)
            bench_fail("see the head of bench-copy.c");
        memset(slots, 2, room);
        /* As malloc aligns large blocks. */
        measure(threads, matrix + 16, slots);
        list = end + (*end == ',');
    }
    return 0;
}
