/* Results, forked bodies, random numbers. SPDX-License-Identifier: BSD-3-Clause */
#include "tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILURES_SHOWN 8

static int count, failed;
static long expectations_failed;

static void say(const char *prefix, const char *format, va_list args, const char *suffix)
{
    fputs(prefix, stdout);
    if (format != NULL) /* gcc's sanitizers look at the other case and warn */
        vfprintf(stdout, format, args);
    fputs(suffix, stdout);
    fflush(stdout);
}

bool tap_ok(bool good, const char *format, ...)
{
    char prefix[32];
    va_list args;
    snprintf(prefix, sizeof prefix, "%sok %d - ", good ? "" : "not ", ++count);
    failed += !good;
    va_start(args, format);
    say(prefix, format, args, "\n");
    va_end(args);
    return good;
}

void tap_skip(const char *reason, const char *format, ...)
{
    char prefix[32], suffix[256];
    va_list args;
    snprintf(prefix, sizeof prefix, "ok %d - ", ++count);
    snprintf(suffix, sizeof suffix, " # SKIP %s\n", reason);
    va_start(args, format);
    say(prefix, format, args, suffix);
    va_end(args);
}

void tap_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say("# ", format, args, "\n");
    va_end(args);
}

int tap_done(void)
{
    printf("1..%d\n", count);
    return failed != 0;
}

bool expect(bool good, const char *format, ...)
{
    if (good)
        return true;
    if (++expectations_failed <= FAILURES_SHOWN) {
        va_list args;
        va_start(args, format);
        say("# failed: ", format, args, "\n");
        va_end(args);
    }
    return false;
}

long expect_failures(void)
{
    return expectations_failed;
}

enum { PATIENCE = 3 }; /* other tests and other programs may want the CPUs too */

static volatile sig_atomic_t running; /* the child, for the alarm: it may have signals blocked */

static void kill_running(int signal_number)
{
    (void)signal_number;
    kill((pid_t)running, SIGKILL);
}

/* _exit: the destructors of the shim and of the sanitizers belong to the parent. */
static _Noreturn void run_body(void (*body)(void *), void *argument)
{
    expectations_failed = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a child that was given up takes its own along */
    if (!tap_full()) /* a few elements in a buffer of huge pages would cost 2 MiB of zeros */
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    body(argument);
    fflush(NULL);
    _exit(expectations_failed != 0);
}

int run_child(unsigned seconds, void (*body)(void *), void *argument, char *error_text, size_t size)
{
    int ends[2] = {-1, -1}, status = -1;
    if (error_text != NULL && pipe(ends) != 0)
        return -1;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (error_text != NULL)
            dup2(ends[1], STDERR_FILENO);
        run_body(body, argument);
    }
    if (child < 0)
        return -1;
    running = child;
    signal(SIGALRM, kill_running);
    alarm(PATIENCE * seconds);
    if (error_text != NULL) {
        size_t used = 0;
        ssize_t got;
        char rest[256];
        close(ends[1]);
        while ((got = read(ends[0], used + 1 < size ? error_text + used : rest,
                           used + 1 < size ? size - 1 - used : sizeof rest)) > 0)
            used += used + 1 < size ? (size_t)got : 0;
        error_text[used] = '\0';
        close(ends[0]);
    }
    if (waitpid(child, &status, 0) != child)
        status = -1;
    alarm(0);
    return status;
}

bool tap_child(const char *name, unsigned seconds, void (*body)(void *), void *argument)
{
    int status = run_child(seconds, body, argument, NULL, 0);
    if (WIFSIGNALED(status))
        tap_note("%s: signal %d", name, WTERMSIG(status));
    return tap_ok(status == 0, "%s", name);
}

void tap_children(unsigned seconds, const struct tap_test *tests, size_t tests_count)
{
    for (size_t i = 0; i < tests_count; i++)
        tap_child(tests[i].name, seconds, tests[i].body, tests[i].argument);
}

bool tap_folder(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");
    snprintf(path, size, "%s/clb-test-XXXXXX", parent != NULL && *parent != '\0' ? parent : "/tmp");
    return mkdtemp(path) != NULL;
}

void run_threads(size_t threads, void *(*body)(void *), void *array, size_t size)
{
    pthread_t thread[64];
    size_t started = 0;
    while (started < threads && started < sizeof thread / sizeof *thread &&
           pthread_create(&thread[started], NULL, body, (char *)array + started * size) == 0)
        started++;
    expect(started == threads, "%zu of %zu threads", started, threads);
    for (size_t i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

uint64_t tap_seed(void)
{
    const char *text = getenv("SEED");
    uint64_t seed = text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : 1;
    tap_note("SEED=%llu", (unsigned long long)seed);
    return seed;
}

/* How much is wanted: all of it, or in `make check` a sample (""), or "few" of everything. */
enum { ALL, SAMPLE, FEW };

static int amount(void)
{
    const char *text = getenv("FULL");
    return text == NULL ? ALL : *text == '\0' ? SAMPLE : strcmp(text, "few") == 0 ? FEW : ALL;
}

bool tap_full(void)
{
    return amount() == ALL;
}

void tap_few_threads(void)
{
    if (!tap_full())
        setenv("POCL_MAX_PTHREAD_COUNT", "1", 1);
}

long tap_step(long series)
{
    static const long steps[] = {1, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 97, 199};
    const size_t last = sizeof steps / sizeof *steps - 1;
    const long most = amount() == SAMPLE ? 40 : 6;
    size_t i = 0;
    while (i < last && series / steps[i] > most)
        i++;
    return tap_full() ? 1 : steps[i];
}

int tap_runs(int runs)
{
    const int least = amount() == SAMPLE ? 8 : 2, part = amount() == SAMPLE ? 8 : 24;
    if (tap_full() || runs <= least)
        return runs;
    return runs / part > least ? runs / part : least;
}

int tap_rounds(int rounds)
{
    const int part = amount() == SAMPLE ? 3 : 6;
    return tap_full() ? rounds : (rounds + part - 1) / part;
}

/* splitmix64. */
uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

size_t random_below(uint64_t *state, size_t bound)
{
    return (size_t)(random_bits(state) % bound);
}

double random_uniform(uint64_t *state)
{
    return ((double)(random_bits(state) >> 32) + 0.5) / 2147483648.0 - 1;
}
