/* fork around device calls.
 *
 * fork after      parent uses the device, child computes
 * fork before     parent has not called, child computes
 * fork during     child is forked while other threads are in device calls, 20 times
 * fork declined   parent has made declined calls only, child computes
 * fork exec CMD   parent uses the device, then system(CMD) and posix_spawn of /bin/sh
 * Children end by exit, so that they may write reports. SPDX-License-Identifier: BSD-3-Clause */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static size_t compute(void)
{
    return check_dgemm('N', 'N', 60, 50, 40) + check_sgemm('T', 'N', 60, 50, 40);
}

/* A child that hangs is killed by its alarm. */
static int in_child(int seconds)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        alarm((unsigned)seconds);
        size_t wrong = compute() + compute();
        exit(wrong != 0);
    }
    int status = -1;
    REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFSIGNALED(status))
        fprintf(stderr, "the child got signal %d\n", WTERMSIG(status));
    return status;
}

static atomic_bool stop;
static atomic_size_t wrong_in_threads, calls_in_threads;

static void *call_all_the_time(void *unused)
{
    while (!atomic_load(&stop)) {
        atomic_fetch_add(&wrong_in_threads, check_dgemm('N', 'T', 150, 140, 130));
        atomic_fetch_add(&calls_in_threads, 1);
    }
    return unused;
}

static int during(bool started)
{
    pthread_t threads[3];
    int bad = 0;
    for (int i = 0; i < 3; i++)
        REQUIRE(pthread_create(&threads[i], NULL, call_all_the_time, NULL) == 0);
    while (started && atomic_load(&calls_in_threads) < 3)
        usleep(1000);
    for (int i = 0; i < 20; i++) {
        bad += in_child(60) != 0;
        usleep(1000);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return bad != 0 || atomic_load(&wrong_in_threads) != 0;
}

static int spawn(const char *command)
{
    char *arguments[] = {"sh", "-c", (char *)command, NULL};
    pid_t pid;
    int status;
    REQUIRE(system(command) == 0);
    REQUIRE(posix_spawn(&pid, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    REQUIRE(waitpid(pid, &status, 0) == pid);
    return status;
}

int main(int argc, char **argv)
{
    REQUIRE(argc > 1);
    if (strcmp(argv[1], "after") == 0)
        return compute() != 0 || in_child(60) != 0 || compute() != 0;
    if (strcmp(argv[1], "before") == 0)
        return in_child(60) != 0 || in_child(60) != 0;
    if (strcmp(argv[1], "declined") == 0)
        return check_dgemm('N', 'N', 4, 4, 4) != 0 || in_child(60) != 0;
    if (strcmp(argv[1], "during") == 0)
        return during(true);
    if (strcmp(argv[1], "starting") == 0)
        return during(false);
    if (strcmp(argv[1], "exec") == 0 && argc > 2)
        return compute() != 0 || spawn(argv[2]) != 0 || compute() != 0;
    return 2;
}
