/* SPDX-License-Identifier: BSD-3-Clause
 * What a program does while one of its calls starts the device.
 *
 * startup CALLS       calls DGEMM so often, every 100 ms
 * startup together    16 threads whose first calls coincide; each is right, and soon over
 * startup plugin      loads ./eager.so, whose constructor calls DGEMM (STARTUP_PLUGIN), then calls
 * it startup ACTION COUNT LONGEST
 *
 * COUNT processes in which a thread makes the first call; the main thread does ACTION at a random
 * moment of the next LONGEST ms. Fails when one gets a signal, hangs, or gets something wrong.
 * Prints the longest time of an action in ms.
 *
 * fork         fork; the child loads a library and exits
 * spawn        posix_spawn of a program
 * dlopen       load a library
 * call         another DGEMM
 * environment  200 times getenv, and setenv of a name that exists
 * interrupt    SIGINT at its default ends the process
 * exit         exit of the main thread
 * return       return from main */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

#ifndef STARTUP_PLUGIN
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

static void sleep_ms(double ms)
{
    struct timespec time = {(time_t)(ms / 1e3), 0};
    time.tv_nsec = (long)(1e6 * (ms - 1e3 * (double)time.tv_sec));
    nanosleep(&time, NULL);
}
#endif

/* A call that the tables give to the device; right? */
static bool multiply(void)
{
    const blas_int m = 1100, k = 128;
    const double one = 1, zero = 0;
    double *a = malloc(1100 * 128 * sizeof *a), *c = malloc(1100 * 1100 * sizeof *c);
    REQUIRE(a != NULL && c != NULL);
    for (size_t i = 0; i < 1100 * 128; i++)
        a[i] = 1;
    dgemm_("N", "N", &m, &m, &k, &one, a, &m, a, &k, &zero, c, &m);
    const bool right = c[0] == 128 && c[1100 * 1100 - 1] == 128;
    free(a);
    free(c);
    return right;
}

#ifdef STARTUP_PLUGIN
static void __attribute__((constructor)) begin(void)
{
    REQUIRE(multiply() && multiply());
}
#else

static int call_for_long(int calls)
{
    int bad = 0;
    for (int i = 0; i < calls; i++) {
        bad += !multiply();
        if (i + 1 < calls)
            sleep_ms(100);
    }
    return bad;
}

static atomic_int right;

static void *multiply_in_thread(void *barrier)
{
    if (barrier != NULL)
        pthread_barrier_wait(barrier);
    atomic_fetch_add(&right, multiply());
    return NULL;
}

static int call_together(void)
{
    pthread_barrier_t barrier;
    pthread_t threads[16];
    REQUIRE(pthread_barrier_init(&barrier, NULL, 16) == 0);
    for (int i = 0; i < 16; i++)
        REQUIRE(pthread_create(&threads[i], NULL, multiply_in_thread, &barrier) == 0);
    for (int i = 0; i < 16; i++)
        REQUIRE(pthread_join(threads[i], NULL) == 0);
    return atomic_load(&right) != 16;
}

static int load_plugin(void)
{
    REQUIRE(dlopen("./eager.so", RTLD_NOW) != NULL);
    sleep_ms(500); /* for a start that has waited for the constructor */
    return !multiply();
}

static int fork_and_load(void)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        exit(dlopen("libresolv.so.2", RTLD_NOW) == NULL);
    }
    return waitpid(pid, &status, 0) != pid || status != 0;
}

static int spawn(void)
{
    char *arguments[] = {"true", NULL};
    pid_t pid;
    int status = -1;
    int error = posix_spawnp(&pid, "true", NULL, NULL, arguments, environ);
    return error != 0 || waitpid(pid, &status, 0) != pid || status != 0;
}

static int use_environment(void)
{
    int bad = 0;
    for (int i = 0; i < 200; i++) {
        bad += setenv("SEED", i % 2 == 0 ? "2" : "3", 1) != 0 || getenv("PATH") == NULL ||
               getenv("STARTUP_UNKNOWN") != NULL;
        sleep_ms(0.2);
    }
    return bad;
}

static int act(const char *what)
{
    if (strcmp(what, "exit") == 0)
        exit(0);
    if (strcmp(what, "fork") == 0)
        return fork_and_load();
    if (strcmp(what, "spawn") == 0)
        return spawn();
    if (strcmp(what, "call") == 0)
        return !multiply();
    if (strcmp(what, "environment") == 0)
        return use_environment();
    if (strcmp(what, "interrupt") == 0)
        raise(SIGINT);
    return dlopen("libresolv.so.2", RTLD_NOW) == NULL;
}

/* Shared with the processes: what the action took; 0 where the process ends with it. */
static double *took;

/* In a child: its status, or RETURNS, with which it is to return from main. */
#define RETURNS (-1)

static int be_process(const char *what, double moment)
{
    pthread_t thread;
    alarm(60); /* its default ends a process that hangs */
    signal(SIGINT, SIG_DFL);
    REQUIRE(pthread_create(&thread, NULL, multiply_in_thread, NULL) == 0);
    sleep_ms(moment);
    if (strcmp(what, "return") == 0)
        return RETURNS;
    const double begun = now();
    const int bad = act(what);
    *took = now() - begun;
    REQUIRE(pthread_join(thread, NULL) == 0);
    return bad != 0 || atomic_load(&right) != 1;
}

int main(int count, char **arguments)
{
    REQUIRE(count == 2 || count == 4);
    if (strcmp(arguments[1], "together") == 0)
        return call_together();
    if (strcmp(arguments[1], "plugin") == 0)
        return load_plugin();
    if (count == 2)
        return call_for_long(atoi(arguments[1])) != 0;
    const bool interrupts = strcmp(arguments[1], "interrupt") == 0;
    double longest = 0;
    int bad = 0;
    took = mmap(NULL, sizeof *took, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    srand((unsigned)atoi(getenv("SEED") != NULL ? getenv("SEED") : "1"));
    for (int i = 0; i < atoi(arguments[2]); i++) {
        const double moment = atof(arguments[3]) * rand() / RAND_MAX;
        int status = 0;
        *took = 0;
        pid_t pid = fork();
        if (pid == 0) {
            status = be_process(arguments[1], moment);
            if (status == RETURNS)
                return 0;
            fflush(NULL);
            _exit(status);
        }
        REQUIRE(waitpid(pid, &status, 0) == pid);
        if (interrupts && WIFSIGNALED(status) && WTERMSIG(status) == SIGINT)
            status = 0;
        if (status != 0)
            fprintf(stderr, "%s after %.1f ms: status %#x\n", arguments[1], moment,
                    (unsigned)status);
        bad += status != 0;
        longest = *took > longest ? *took : longest;
    }
    printf("%.1f\n", longest);
    return bad != 0;
}
#endif
