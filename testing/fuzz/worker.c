/* SPDX-License-Identifier: BSD-3-Clause
 * The libraries, the threads that call, and what the library says about it in the end. */
#include "worker.h"

#include "report.h"

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct crew {
    const struct settings *settings;
    struct shared *shared;
    const struct library *library, *behind, *witnesses[2];
    unsigned short allowed[MOST_ROUTINES][4]; /* name_bit()s */
    struct timespec begin;
    atomic_long next; /* the next case */
    pthread_mutex_t lock;
};

/* ---- libraries ---- */

static bool is_listed(const char *names, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = names; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return names == NULL;
}

/* Those that a next library has: the shim has all of them. names.c has others where it has files.
 */
static bool is_behind(const struct crew *crew, const struct fuzz_case *c)
{
    const struct library *next = crew->behind != NULL ? crew->behind : crew->library;
    const long names = c->value[FIELD_NAMES];
    const struct routine *routine = &routines[c->value[FIELD_ROUTINE]];
    char product[60];
    name_routine(c, "gemm", product);
    if (names != 0 && getenv(names == 3 ? "CLB_TEST_NARROW" : "CLB_TEST_WIDE") == NULL)
        return false;
    return find_routine(next, c) != NULL ||
           (*routine->others != '\0' && find_symbol(next, product) != NULL);
}

/* The names by which the routine can be called. */
static unsigned short names_of(const struct crew *crew, size_t routine, long precision)
{
    struct fuzz_case c = {
        .value = {[FIELD_ROUTINE] = (long)routine, [FIELD_PRECISION] = precision}};
    const char *forms = crew->settings->forms;
    unsigned names = 0;
    for (long i = 0; i < NAMES * GROUPS; i++) {
        const long group = i % GROUPS;
        c.value[FIELD_NAMES] = i / GROUPS;
        c.value[FIELD_FORM] = 2 * group;
        if ((group < 2 || routines[routine].lapack) &&
            (forms == NULL || strchr(forms, "fcw"[group]) != NULL) &&
            find_routine(crew->library, &c) != NULL && is_behind(crew, &c))
            names |= name_bit(i / GROUPS, group);
    }
    return (unsigned short)names;
}

static bool allow_routines(struct crew *crew)
{
    bool any = false;
    for (size_t r = 0; r < routine_count; r++) {
        for (long i = 0; i < 4; i++) {
            char name[40];
            snprintf(name, sizeof name, "%c%s", precisions[i].letter, routines[r].name);
            if (strchr(routines[r].precisions, precisions[i].letter) != NULL &&
                (is_listed(crew->settings->routines, routines[r].name) ||
                 is_listed(crew->settings->routines, name)))
                crew->allowed[r][i] = names_of(crew, r, i);
            any |= crew->allowed[r][i] != 0;
        }
    }
    return any;
}

/* Witnesses first: they find no names but their own. */
static bool open_crew(struct crew *crew, const struct settings *settings, struct shared *shared)
{
    *crew = (struct crew){.settings = settings, .shared = shared, .next = settings->first};
    pthread_mutex_init(&crew->lock, NULL);
    setenv("CLBLAS_SHIM", "always", 0);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 0);
    if (settings->next != NULL)
        setenv("CLBLAS_SHIM_NEXT", settings->next, 0);
    for (int i = 0; i < 2; i++) {
        if (settings->witnesses[i] != NULL)
            crew->witnesses[i] = open_library(settings->witnesses[i], true);
    }
    const char *next = getenv("CLBLAS_SHIM_NEXT");
    lenient = strstr(settings->library, "openblas") != NULL ||
              (next != NULL && strstr(next, "openblas") != NULL);
    flushing = settings->flush;
    struct library *library = open_library(settings->library, false);
    struct library *behind = next != NULL ? open_library(next, true) : NULL;
    if (library != NULL && strstr(settings->library, "clblas_shim") != NULL)
        crew->behind = behind;
    if (library != NULL)
        set_wide_integers(library,
                          has_wide_integers(crew->behind != NULL ? crew->behind : library));
    crew->library = library;
    clock_gettime(CLOCK_MONOTONIC, &crew->begin);
    return crew->library != NULL && allow_routines(crew);
}

/* ---- the threads ---- */

static double elapsed(const struct crew *crew)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - crew->begin.tv_sec) +
           1e-9 * (double)(now.tv_nsec - crew->begin.tv_nsec);
}

static void note_failure(struct crew *crew, const struct fuzz_case *c, long index,
                         const char *message)
{
    pthread_mutex_lock(&crew->lock);
    if (!atomic_load(&crew->shared->has_failed)) {
        crew->shared->failed = *c;
        atomic_store(&crew->shared->at, index);
        snprintf(crew->shared->message, MESSAGE, "%s", message);
        atomic_store(&crew->shared->has_failed, true);
    }
    pthread_mutex_unlock(&crew->lock);
}

static void run_one(struct crew *crew, size_t slot, const struct fuzz_case *c, long index)
{
    char message[MESSAGE];
    crew->shared->current[slot] = *c;
    atomic_store(&crew->shared->busy[slot], true);
    if (!run_case(c, crew->library, crew->witnesses, message))
        note_failure(crew, c, index, message);
    atomic_store(&crew->shared->busy[slot], false);
    atomic_fetch_add(&crew->shared->calls, 1);
    atomic_fetch_add(&crew->shared->by_routine[c->value[FIELD_ROUTINE]], 1);
}

struct member {
    struct crew *crew;
    size_t slot;
};

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* Case i is the same whichever thread runs it. */
static void *run_many(void *argument)
{
    const struct member *member = argument;
    struct crew *crew = member->crew;
    const struct settings *settings = crew->settings;
    const struct limits limits = {crew->allowed, settings->largest, settings->often,
                                  settings->wide};
    while (!atomic_load(&crew->shared->has_failed) && !stopped &&
           elapsed(crew) < (double)settings->seconds) {
        const long index = atomic_fetch_add(&crew->next, 1);
        if (index - settings->first >= settings->count)
            break;
        uint64_t seed = (uint64_t)settings->seed + (uint64_t)index * UINT64_C(0x2545f4914f6cdd1d);
        const struct fuzz_case c = draw_case(random_bits(&seed), &limits);
        run_one(crew, member->slot, &c, index);
    }
    return NULL;
}

/* ---- what became of the calls ---- */

typedef size_t report_function(char *, size_t);

static char *get_report(const struct crew *crew)
{
    report_function *report;
    void *found = find_symbol(crew->library, "clblas_shim_report");
    memcpy(&report, &found, sizeof found);
    if (found == NULL)
        return NULL;
    const size_t size = report(NULL, 0) + 1000;
    char *text = calloc(1, size);
    if (text != NULL)
        report(text, size);
    return text;
}

/* The process ends without the library's own. */
static void write_report(const struct crew *crew)
{
    char *report = get_report(crew);
    FILE *file = fopen(crew->settings->report, "w");
    if (report != NULL && file != NULL)
        fputs(report, file);
    if (file != NULL)
        fclose(file);
    free(report);
}

/* Calls of a routine that came from here, and those of them that the device computed. */
static void count_routine(const char *report, const struct routine *routine, double *calls,
                          double *device)
{
    struct fuzz_case c = {.value = {[FIELD_ROUTINE] = routine - routines}};
    for (long i = 0; i < 4 * NAMES * GROUPS; i++) {
        char name[60];
        c.value[FIELD_PRECISION] = i % 4;
        c.value[FIELD_NAMES] = i / 4 % NAMES;
        c.value[FIELD_FORM] = 2 * (i / 4 / NAMES);
        name_routine(&c, routine->name, name);
        *calls += report_number(report, name, "calls") - report_number(report, name, "reentrant") -
                  report_number(report, name, "quick");
        *device += report_number(report, name, "device");
    }
}

static void print_calls(const struct crew *crew)
{
    char *report = get_report(crew);
    double all = 0, all_device = 0;
    for (size_t r = 0; r < routine_count; r++) {
        double calls = 0, device = 0;
        const long run = atomic_load(&crew->shared->by_routine[r]);
        if (report != NULL)
            count_routine(report, &routines[r], &calls, &device);
        all += calls;
        all_device += device;
        if (run > 0)
            printf("# %-7s %8ld calls, %5.1f %% on the device\n", routines[r].name, run,
                   calls > 0 ? 100 * device / calls : 0);
    }
    const long run = atomic_load(&crew->shared->calls);
    printf("# %ld calls in %.1f s, %.0f a second, %.1f %% of those with work on the device\n", run,
           elapsed(crew), (double)run / elapsed(crew), all > 0 ? 100 * all_device / all : 0);
    free(report);
}

/* Kernels are compiled before the time begins. */
static void warm_up(struct crew *crew)
{
    for (size_t r = 0; r < routine_count; r++) {
        for (long i = 0; i < 4; i++) {
            struct fuzz_case c = {.value = {[FIELD_ROUTINE] = (long)r,
                                            [FIELD_PRECISION] = i,
                                            [FIELD_M] = 20,
                                            [FIELD_N] = 20,
                                            [FIELD_K] = 20}};
            c.value[FIELD_FORM] = (crew->allowed[r][i] & name_bit(0, 0)) == 0;
            if ((crew->allowed[r][i] & (name_bit(0, 0) | name_bit(0, 1))) != 0 && !stopped)
                run_one(crew, 0, &c, 0);
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &crew->begin);
    atomic_store(&crew->shared->calls, 0);
}

/* Whose code it was that crashed: the shim, a driver or a judge. The trace is made with what may be
 * broken by then; the other process notices the signal in any case. */
static void show_crash(int signal_number)
{
    void *frames[40];
    const int count = backtrace(frames, sizeof frames / sizeof *frames);
    backtrace_symbols_fd(frames, count, 2);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void show_crashes(void)
{
#ifndef __SANITIZE_ADDRESS__ /* which shows more */
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
    void *frame;
    backtrace(&frame, 1); /* loads what it needs */
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], show_crash);
#else
    (void)show_crash;
#endif
}

/* LAPACKE prints what it refuses on standard output. */
static int silence(void)
{
    fflush(stdout);
    const int output = dup(STDOUT_FILENO), nothing = open("/dev/null", O_WRONLY);
    dup2(nothing, STDOUT_FILENO);
    close(nothing);
    return output;
}

static void restore_output(int output)
{
    fflush(stdout);
    dup2(output, STDOUT_FILENO);
    close(output);
}

int work(const struct settings *settings, struct shared *shared)
{
    struct crew crew;
    pthread_t threads[MOST_THREADS];
    struct member members[MOST_THREADS];
    if (!open_crew(&crew, settings, shared)) {
        fprintf(stderr, "there is nothing to call in %s\n", settings->library);
        return 2;
    }
    signal(SIGTERM, stop);
    show_crashes();
    const int output = silence();
    warm_up(&crew);
    for (long i = 0; i < settings->threads; i++) {
        members[i] = (struct member){&crew, (size_t)i};
        if (pthread_create(&threads[i], NULL, run_many, &members[i]) != 0)
            abort();
    }
    for (long i = 0; i < settings->threads; i++)
        pthread_join(threads[i], NULL);
    restore_output(output);
    if (settings->report != NULL)
        write_report(&crew);
    if (!settings->quiet)
        print_calls(&crew);
    atomic_store(&shared->ended, true);
    return atomic_load(&shared->has_failed);
}

int work_once(const struct settings *settings, const struct fuzz_case *c, struct shared *shared)
{
    struct crew crew;
    if (!open_crew(&crew, settings, shared))
        return 2;
    if (find_routine(crew.library, c) == NULL) {
        fprintf(stderr, "%s has no such routine\n", settings->library);
        return 2;
    }
    show_crashes();
    for (int i = 0; i < 3 && !atomic_load(&shared->has_failed); i++)
        run_one(&crew, 0, c, 0);
    if (settings->report != NULL)
        write_report(&crew);
    atomic_store(&shared->ended, true);
    return atomic_load(&shared->has_failed);
}
