/* Start a helper process that the program cannot notice, see clb_spawn.
 *
 * The calling thread makes the keeper by clone(CLONE_VM) without an exit signal: a process in the
 * program's memory that never calls exec, which only a wait with __WCLONE sees. The keeper makes
 * the helper by clone(CLONE_VM | CLONE_VFORK) and exec, and is its parent for as long as it runs:
 * an orphan would be given to a program that is process 1 or a subreaper, with SIGCHLD, and an
 * exec'ed process sends SIGCHLD whatever clone was told. SPDX-License-Identifier: BSD-3-Clause
 *
 * The keeper runs with the calling thread's thread pointer, while that thread waits. So it and the
 * helper before its exec only make system calls: no malloc, no stdio. */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACK          ((size_t)64 << 10)
#define SIGNALS        64
#define SIGNAL_SET     8 /* bytes of the kernel's signal set */
#define ALL_SIGNALS    (~(uint64_t)0)
#define LOOK_NS        100000000 /* the keeper looks so often whether the program has gone */
#define SIGN_SECONDS   1         /* the program looks so often whether the helper gets on */
#define LAST_SECONDS   5.0       /* that a keeper has to end, when it has been given up */
#define MOST_CLOSED    4096      /* descriptors closed one by one, before Linux 5.9 */
#define EXIT_NO_CLONE  126
#define EXIT_NO_EXEC   127
#define EXIT_BY_SIGNAL 128

/* No sanitizer's code may run in the keeper. */
#define BARE __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

/* The C library's clone under a name that nobody replaces: ThreadSanitizer's runs code of its own
 * in the new process, and the helper died of it. */
extern int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...);

struct launch {
    /* Held by the calling thread. When that thread ends, also by an exec of the program, the kernel
     * sets FUTEX_OWNER_DIED in the mutex's first word. */
    pthread_mutex_t alive;
    const char *path;
    char *const *arguments, *const *environment;
    cpu_set_t cpus; /* the program's, not those of one thread */
    pid_t host;
    _Atomic int keeper; /* its process id, which the kernel clears at its end */
    _Atomic int error;  /* of clone or exec in the keeper */
    _Atomic bool give_up;
    _Alignas(64) unsigned char stacks[2 * STACK];
};

/* ---- the environment ---- */

static char **environment;
static pthread_once_t environment_once = PTHREAD_ONCE_INIT;

static void copy_environment(void)
{
    static const char preload[] = "LD_PRELOAD=";
    size_t count = 0, kept = 0;
    while (environ != NULL && environ[count] != NULL)
        count++;
    environment = calloc(count + 1, sizeof *environment);
    for (size_t i = 0; environment != NULL && i < count; i++) {
        if (strncmp(environ[i], preload, sizeof preload - 1) != 0 &&
            (environment[kept] = strdup(environ[i])) != NULL)
            kept++;
    }
}

char **clb_spawn_environment(void)
{
    pthread_once(&environment_once, copy_environment);
    return environment;
}

/* ---- in the keeper ---- */

static BARE void reset_signals(void)
{
    static const uint64_t by_default[4]; /* the kernel's struct sigaction, all zero: SIG_DFL */
    for (long signal = 1; signal <= SIGNALS; signal++)
        syscall(SYS_rt_sigaction, signal, by_default, NULL, SIGNAL_SET);
}

static BARE void close_descriptors(void)
{
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 0U, ~0U, 0) != 0)
#endif
        for (int fd = 0; fd < MOST_CLOSED; fd++)
            syscall(SYS_close, fd);
    for (int fd = 0; fd < 3; fd++)
        syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
}

static BARE void be_polite(const struct launch *launch)
{
    const struct sched_param none = {0};
    syscall(SYS_setpriority, PRIO_PROCESS, 0, 19);
    syscall(SYS_sched_setscheduler, 0, SCHED_BATCH, &none);
    syscall(SYS_sched_setaffinity, 0, sizeof launch->cpus, &launch->cpus);
}

/* Where the kernel groups processes by session, nice values count inside the group only, and the
 * group has one of its own. It may not be set again within 0.1 s of anybody's setting. */
static BARE bool make_session_polite(void)
{
    static const char politeness[] = "19";
    const long fd = syscall(SYS_openat, AT_FDCWD, "/proc/self/autogroup", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return true; /* this kernel does not */
    const bool again = syscall(SYS_write, fd, politeness, sizeof politeness - 1) < 0 &&
                       (errno == EAGAIN || errno == EINTR);
    syscall(SYS_close, fd);
    return !again;
}

static BARE int run_helper(void *argument)
{
    struct launch *launch = argument;
    static const uint64_t none;
    syscall(SYS_prctl, PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, SIGNAL_SET);
    syscall(SYS_execve, launch->path, launch->arguments, launch->environment);
    launch->error = errno;
    syscall(SYS_exit_group, EXIT_NO_EXEC);
    return EXIT_NO_EXEC;
}

static BARE bool host_is_gone(const struct launch *launch)
{
    unsigned owner = (unsigned)__atomic_load_n((const int *)&launch->alive, __ATOMIC_ACQUIRE);
    return syscall(SYS_getppid) != launch->host || (owner & FUTEX_OWNER_DIED) != 0;
}

/* Where the program ends first, the helper is told and left to init: the program's memory is not
 * freed before the keeper ends. One that the program has given up is killed, because it may be
 * stopped and hold the cache's lock. */
static BARE int run_keeper(void *argument)
{
    struct launch *launch = argument;
    static const uint64_t of_child = (uint64_t)1 << (SIGCHLD - 1);
    const struct timespec moment = {.tv_nsec = LOOK_NS};
    int status = 0;
    reset_signals();
    syscall(SYS_setsid);
    syscall(SYS_prctl, PR_SET_NAME, "clblas-shim", 0, 0, 0);
    close_descriptors();
    be_polite(launch);
    bool polite = make_session_polite();
    int helper =
        __clone(run_helper, launch->stacks + 2 * STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, launch);
    if (helper < 0) {
        launch->error = errno;
        syscall(SYS_exit_group, EXIT_NO_CLONE);
    }
    while (syscall(SYS_wait4, helper, &status, WNOHANG, NULL) != helper) {
        if (host_is_gone(launch)) {
            syscall(SYS_kill, helper, SIGTERM);
            syscall(SYS_exit_group, 0);
        }
        if (launch->give_up)
            syscall(SYS_kill, helper, SIGKILL);
        polite = polite || make_session_polite();
        syscall(SYS_rt_sigtimedwait, &of_child, NULL, &moment, SIGNAL_SET);
    }
    syscall(SYS_exit_group,
            WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_BY_SIGNAL + WTERMSIG(status));
    return 0;
}

/* ---- in the program ---- */

/* The keeper is told when there was no sign of life for so long. False: it does not even end then,
 * as one that a debugger holds. */
static bool has_ended(struct launch *launch, int keeper, const char *sign, double seconds)
{
    struct stat info = {0};
    struct timespec last = {0};
    double until = clb_now() + seconds;
    for (int running; (running = launch->keeper) != 0;) {
        if (stat(sign, &info) == 0 && memcmp(&info.st_mtim, &last, sizeof last) != 0)
            until = clb_now() + seconds;
        last = info.st_mtim;
        const double left = until - clb_now();
        if (left <= -LAST_SECONDS)
            return false;
        if (left <= 0) {
            launch->give_up = true;
            kill(keeper, SIGCONT);
        }
        syscall(SYS_futex, &launch->keeper, FUTEX_WAIT, running,
                &(struct timespec){.tv_sec = SIGN_SECONDS}, NULL, 0);
    }
    return true;
}

/* The caller holds launch->alive. All signals are blocked in the keeper, because the program's
 * handlers must not run in it; in this thread only until it is made, because setuid() and the like
 * return when each thread has taken a signal. False: the keeper still runs, and uses the launch. */
static bool launch_and_wait(struct launch *launch, const char *sign, double seconds,
                            struct clb_spawn_result *result)
{
    static const uint64_t all = ALL_SIGNALS;
    struct rusage usage = {0};
    uint64_t before = 0;
    int status = 0;
    launch->keeper = -1; /* not 0, which means that it has ended */
    /* pthread_sigmask leaves out the C library's own two. */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &before, SIGNAL_SET);
    int keeper = __clone(run_keeper, launch->stacks + STACK, CLONE_VM | CLONE_CHILD_CLEARTID,
                         launch, NULL, NULL, (pid_t *)&launch->keeper);
    result->error = keeper < 0 ? errno : 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, SIGNAL_SET);
    if (keeper < 0)
        return true;
    const bool ended = has_ended(launch, keeper, sign, seconds);
    result->gave_up = launch->give_up;
    result->error = launch->error;
    if (!ended)
        return false;
    while (wait4(keeper, &status, (int)__WCLONE, &usage) < 0 && errno == EINTR)
        ;
    result->exit_status =
        WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_BY_SIGNAL + WTERMSIG(status);
    result->cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                          1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    result->peak_kib = usage.ru_maxrss;
    return true;
}

static _Atomic uint64_t leaves; /* below the generation of the process whose helper it is */

int clb_helper_leaves(void)
{
    const uint64_t value = atomic_load_explicit(&leaves, memory_order_relaxed);
    return value >> 32 == clb_generation() && !clb_config_get()->reproducible ? (int)(uint32_t)value
                                                                              : 0;
}

clb_status clb_spawn(const char *path, char *const *arguments, const char *sign, double seconds,
                     struct clb_spawn_result *result)
{
    double begin = clb_now();
    pthread_mutexattr_t robust;
    *result = (struct clb_spawn_result){.error = ENOMEM};
    char **entries = clb_spawn_environment();
    if (entries == NULL)
        return CLB_ERR_NOMEM;
    struct launch *launch = mmap(NULL, sizeof *launch, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (launch == MAP_FAILED)
        return CLB_ERR_NOMEM;
    launch->path = path;
    launch->arguments = arguments;
    launch->environment = entries;
    launch->host = getpid();
    if (sched_getaffinity(launch->host, sizeof launch->cpus, &launch->cpus) != 0)
        memset(&launch->cpus, 0xff, sizeof launch->cpus);
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&launch->alive, &robust);
    pthread_mutexattr_destroy(&robust);
    pthread_mutex_lock(&launch->alive);
    const int cpus = CPU_COUNT(&launch->cpus);
    atomic_store(&leaves, (uint64_t)clb_generation() << 32 | (uint32_t)(cpus < 4 ? 0 : cpus - 1));
    const bool ended = launch_and_wait(launch, sign, seconds, result);
    atomic_store(&leaves, 0);
    if (ended) {
        pthread_mutex_unlock(&launch->alive);
        pthread_mutex_destroy(&launch->alive);
        munmap(launch, sizeof *launch);
    }
    result->seconds = clb_now() - begin;
    return result->error == 0 && !result->gave_up ? CLB_OK : CLB_ERR_IO;
}
