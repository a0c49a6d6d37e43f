/* SPDX-License-Identifier: BSD-3-Clause
 * What the programs share that measure the shim beside OpenBLAS. */
#include "beside.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- options ---- */

static void store(const struct bench_option *option, const char *value)
{
    switch (option->kind) {
    case BENCH_TEXT:
        *(const char **)option->value = value;
        break;
    case BENCH_NUMBER:
        *(int *)option->value = atoi(value);
        break;
    case BENCH_COUNT:
        *(size_t *)option->value = strtoul(value, NULL, 10);
        break;
    case BENCH_REAL:
        *(double *)option->value = strtod(value, NULL);
        break;
    case BENCH_FLAG:
        *(bool *)option->value = true;
        break;
    }
}

static bool find_and_store(const struct bench_option *options, size_t count, char ***at)
{
    const char *value = (*at)[1];
    size_t i = 0;
    while (i < count && strcmp(options[i].name, **at) != 0)
        i++;
    if (i == count)
        return false;
    if (options[i].kind != BENCH_FLAG && value == NULL)
        bench_fail("%s has no value", **at);
    store(&options[i], value);
    *at += options[i].kind != BENCH_FLAG;
    return true;
}

void bench_parse(struct bench_common *common, const struct bench_option *options, size_t count,
                 const char *source, char **arguments)
{
    struct bench_common none;
    struct bench_common *c = common != NULL ? common : &none;
    const struct bench_option table[] = {
        {"--sizes", BENCH_TEXT, &c->sizes},     {"--precisions", BENCH_TEXT, &c->precisions},
        {"--threads", BENCH_TEXT, &c->threads}, {"--pin", BENCH_TEXT, &c->pin},
        {"--core", BENCH_TEXT, &c->core},       {"--reps", BENCH_NUMBER, &c->reps},
        {"--seconds", BENCH_REAL, &c->seconds}, {"--pause", BENCH_NUMBER, &c->pause},
    };
    const size_t in_common = common != NULL ? sizeof table / sizeof *table : 0;
    if (bench_has_avx512())
        c->core = "SkylakeX";
    for (char **at = arguments + 1; *at != NULL; at++) {
        if (!find_and_store(table, in_common, &at) && !find_and_store(options, count, &at))
            bench_fail("%s is no option; see the head of %s", *at, source);
    }
}

bool bench_next_number(const char **list, int *number)
{
    char *end;
    if (**list == '\0')
        return false;
    *number = (int)strtol(*list, &end, 10);
    if (*number < 1)
        bench_fail("%s is no list of numbers", *list);
    *list = end + (*end == ',');
    return true;
}

bool bench_next_precision(const char **list, int *precision)
{
    *list += strspn(*list, ",");
    if (**list == '\0')
        return false;
    *precision = bench_precision(**list);
    if (*precision < 0)
        bench_fail("%s is no list of precisions", *list);
    ++*list;
    return true;
}

bool bench_is_listed(const char *list, const char *word)
{
    const char *at = list != NULL ? strstr(list, word) : NULL;
    if (list == NULL)
        return true;
    return at != NULL && (at == list || at[-1] == ',') && strchr(",", at[strlen(word)]) != NULL;
}

/* ---- one process for each number of threads ---- */

static int run_process(const struct bench_common *common, char **arguments, int threads,
                       bool pinned)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        char number[16], label[32];
        cpu_set_t cpu;
        snprintf(number, sizeof number, "%d", threads);
        snprintf(label, sizeof label, "%d%s", threads, pinned ? "pin" : "");
        setenv("BENCH_THREADS", label, 1);
        setenv("POCL_MAX_PTHREAD_COUNT", number, 1);
        setenv("OPENBLAS_NUM_THREADS", number, 1);
        if (common->core != NULL)
            setenv("OPENBLAS_CORETYPE", common->core, 1);
        CPU_ZERO(&cpu);
        CPU_SET((size_t)sched_getcpu(), &cpu);
        if (pinned && sched_setaffinity(0, sizeof cpu, &cpu) != 0)
            bench_fail("can't pin to one CPU");
        execv("/proc/self/exe", arguments);
        _exit(1);
    }
    int status;
    return child < 0 || waitpid(child, &status, 0) < 0 || status != 0;
}

int bench_run_processes(const struct bench_common *common, char **arguments)
{
    int failed = 0, threads;
    for (const char *list = common->threads; bench_next_number(&list, &threads);) {
        bool may_pin = threads == 1 && strcmp(common->pin, "0") != 0;
        if (may_pin)
            failed |= run_process(common, arguments, threads, true);
        if (!may_pin || strcmp(common->pin, "both") == 0)
            failed |= run_process(common, arguments, threads, false);
    }
    return failed;
}

const char *bench_core(void *openblas)
{
    typedef char *corename(void);
    const char *core = ((corename *)bench_symbol(openblas, "openblas_get_corename"))();
    const char *wanted = getenv("OPENBLAS_CORETYPE");
    if (wanted != NULL && strcasecmp(core, wanted) != 0)
        bench_fail("OpenBLAS runs its kernels for %s, not %s", core, wanted);
    return core;
}

/* ---- calls that take turns ---- */

void bench_take_turns(const struct bench_common *common, struct bench_turns *turns)
{
    double cpu[2];
    const double shim = turns->call(turns->problem, true, &cpu[0]);
    const double other = turns->call(turns->problem, false, &cpu[1]);
    const double each = shim + (isnan(other) ? 0 : other) + 2e-3 * fmax(common->pause, 0);
    const size_t fit = (size_t)fmin(common->seconds / each, BENCH_MOST_TURNS);
    turns->count = common->reps > 0 ? (size_t)common->reps : fit < 5 ? 5 : fit;
    if (turns->count > BENCH_MOST_TURNS)
        turns->count = BENCH_MOST_TURNS;
    for (size_t i = 0; i < turns->count; i++) {
        if (i % 2 == 0)
            turns->shim[i] = turns->call(turns->problem, true, &cpu[0]);
        turns->other[i] = turns->call(turns->problem, false, &cpu[1]);
        if (i % 2 != 0)
            turns->shim[i] = turns->call(turns->problem, true, &cpu[0]);
        turns->ratio[i] = turns->other[i] / turns->shim[i];
        turns->cpu_ratio[i] = cpu[1] / cpu[0];
    }
}
