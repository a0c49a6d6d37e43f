/* The trace and the summary of a call's commands. */
#include "timeline.h"

#include "bench.h"
#include "ocl/ocl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_KINDS 64

struct kind {
    const char *name;
    cl_command_queue queue;
    size_t count;
    double total, first, last; /* us */
};

void bench_timeline_clear(void)
{
    struct clb_profiled *commands;
    clb_profile_take(&commands);
    free(commands);
}

static int by_start(const void *a, const void *b)
{
    const struct clb_profiled *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static size_t queue_of(const struct clb_profiled *commands, size_t index)
{
    cl_command_queue seen[16];
    size_t count = 0;
    for (size_t i = 0; i <= index; i++) {
        size_t q = 0;
        while (q < count && seen[q] != commands[i].queue)
            q++;
        if (i == index)
            return q;
        if (q == count && count < CLB_COUNT_OF(seen))
            seen[count++] = commands[i].queue;
    }
    return count;
}

static void write_trace(const char *path, const struct clb_profiled *commands, size_t count)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        bench_fail("%s can't be written", path);
    fputs("[\n", file);
    for (size_t i = 0; i < count; i++)
        fprintf(file,
                "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%zu,\"ts\":%.3f,\"dur\":%.3f}%s\n",
                commands[i].name, queue_of(commands, i),
                1e-3 * (double)(commands[i].start - commands[0].start),
                1e-3 * (double)(commands[i].end - commands[i].start), i + 1 < count ? "," : "");
    fputs("]\n", file);
    if (fclose(file) != 0)
        bench_fail("%s can't be written", path);
}

static void add(struct kind *kinds, size_t *count, const struct clb_profiled *command,
                cl_ulong begin)
{
    size_t k = 0;
    while (k < *count &&
           (strcmp(kinds[k].name, command->name) != 0 || kinds[k].queue != command->queue))
        k++;
    if (k == MOST_KINDS)
        return;
    if (k == *count)
        kinds[(*count)++] = (struct kind){.name = command->name,
                                          .queue = command->queue,
                                          .first = 1e-3 * (double)(command->start - begin)};
    kinds[k].count++;
    kinds[k].total += 1e-3 * (double)(command->end - command->start);
    kinds[k].last = 1e-3 * (double)(command->end - begin);
}

void bench_timeline(const char *path)
{
    struct clb_profiled *commands;
    struct kind kinds[MOST_KINDS];
    size_t count = clb_profile_take(&commands), found = 0;
    qsort(commands, count, sizeof *commands, by_start);
    for (size_t i = 0; i < count; i++)
        add(kinds, &found, &commands[i], commands[0].start);
    printf("# %-20s %6s %10s %9s %10s %10s\n", "on the device", "number", "us in all", "us each",
           "first at", "last until");
    for (size_t k = 0; k < found; k++)
        printf("# %-20s %6zu %10.0f %9.1f %10.0f %10.0f\n", kinds[k].name, kinds[k].count,
               kinds[k].total, kinds[k].total / (double)kinds[k].count, kinds[k].first,
               kinds[k].last);
    if (count > 0)
        write_trace(path, commands, count);
    free(commands);
}
