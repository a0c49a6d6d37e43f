/* Forks: functions that run in the child, and code during which a fork must wait.
 *
 * The C library does not take the dynamic linker's lock for a fork. A child that was forked while
 * another thread was loading a library inherits incomplete tables of the linker: its own dlopen
 * ends the process ("dl_open_worker_begin: Assertion ... RT_CONSISTENT failed"), or it hangs at
 * exit, because the loading thread held the lock of the exit handlers (both seen with glibc 2.36
 * and PoCL, which loads LLVM when it starts). So a fork waits, for a limited time, while the shim
 * causes a library to be loaded. It does not wait for whole calls: loading is a short part of the
 * first ones. */
#include "host.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_HOOKS 8

/* The longest that a fork waits. That is reached when loading itself waits for a lock that the
 * forking thread holds, and when a helper thread of a driver forks. Where other programs keep the
 * CPUs busy it is the CPU time that a loading thread gets, within the second limit. What has got as
 * much CPU time since it began is not a step that loads but a compiler, and is not waited for. */
#define LONGEST_WAIT_SECONDS 0.04
#define LONGEST_BUSY_SECONDS 2

/* How often it looks at threads that load, and after how long without running one counts as
 * waiting for something. */
#define LOOK_SECONDS 0.01
#define IDLE_SECONDS 0.02

static void (*hooks[MAX_HOOKS])(void);
static _Atomic int hook_count;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int loading; /* threads between clb_load_begin and clb_load_end */
static int forking; /* forks in progress, for which clb_load_begin waits */
static struct loader {
    pid_t id;
    clockid_t clock;         /* its CPU time, */
    double used;             /* what that was when it began, */
    double was_ready;        /* and when it was last seen to run or to wait for a CPU or a disk */
} loaders[16];               /* the threads that load; others, if more do, are waited for briefly */
static CLB_THREAD int depth; /* nesting of clb_load_begin in this thread */
static CLB_THREAD bool fork_is_noted; /* this thread's fork is counted in `forking` */

static double cpu_time_of(const struct loader *loader)
{
    struct timespec time;
    return clock_gettime(loader->clock, &time) == 0
               ? (double)time.tv_sec + 1e-9 * (double)time.tv_nsec
               : 0;
}

char clb_thread_state(int id)
{
    char file[64], line[256];
    snprintf(file, sizeof file, "/proc/self/task/%d/stat", id);
    const int fd = clb_file_open(file, O_RDONLY, 0);
    const ssize_t length = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    line[length > 0 ? length : 0] = '\0';
    const char *end = strrchr(line, ')');
    return end != NULL && end[1] == ' ' ? end[2] : '\0';
}

bool clb_thread_is_ready(int id)
{
    const char state = clb_thread_state(id);
    return state == 'R' || state == 'D';
}

/* With the lock held: until when a fork that began to wait at `begin` waits for the threads that
 * load now. */
static double find_end(double begin, double now)
{
    int compiling = 0;
    bool held_up = false;
    for (size_t i = 0; i < CLB_COUNT_OF(loaders); i++) {
        struct loader *loader = &loaders[i];
        if (loader->id == 0)
            continue;
        if (clb_thread_is_ready((int)loader->id))
            loader->was_ready = now;
        const bool compiles = cpu_time_of(loader) >= loader->used + LONGEST_WAIT_SECONDS;
        compiling += compiles;
        held_up = held_up || (!compiles && now < loader->was_ready + IDLE_SECONDS);
    }
    if (compiling == loading)
        return begin;
    return begin + (held_up ? LONGEST_BUSY_SECONDS : LONGEST_WAIT_SECONDS);
}

/* Wait until no thread loads a library. A thread that forks while it loads one itself does not
 * wait: drivers start compilers so. */
static void before_fork(void)
{
    const double begin = clb_now();
    if (depth > 0)
        return;
    pthread_mutex_lock(&lock);
    forking++; /* no thread begins to load, and who does so already stops at the next chance */
    fork_is_noted = true;
    for (double now = begin; loading > 0 && now < find_end(begin, now); now = clb_now()) {
        const struct timespec until = clb_time_of(now + LOOK_SECONDS);
        pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until);
    }
    bool loads = loading > 0;
    pthread_mutex_unlock(&lock);
    /* It may only compile: this waits until the dynamic linker is free. */
    if (loads)
        dlopen("", RTLD_LAZY | RTLD_NOLOAD);
}

static void after_fork(void)
{
    if (!fork_is_noted)
        return;
    fork_is_noted = false;
    pthread_mutex_lock(&lock);
    forking--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* The other threads, and the locks that they held, do not exist in the child. */
static void in_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t unwaited = PTHREAD_COND_INITIALIZER;
    lock = unlocked;
    changed = unwaited;
    loading = depth > 0;
    memset(loaders, 0, sizeof loaders);
    forking = 0;
    fork_is_noted = false;
    int count = atomic_load(&hook_count);
    for (int i = 0; i < count; i++)
        hooks[i]();
}

static void register_handlers(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

void clb_fork_on_child(void (*child)(void))
{
    pthread_once(&registered, register_handlers);
    int count = atomic_load(&hook_count);
    if (count < MAX_HOOKS) {
        hooks[count] = child;
        atomic_store(&hook_count, count + 1);
    }
}

static void load_enter(void)
{
    pthread_mutex_lock(&lock);
    while (forking > 0)
        pthread_cond_wait(&changed, &lock);
    loading++;
    for (size_t i = 0; i < CLB_COUNT_OF(loaders); i++) {
        if (loaders[i].id != 0)
            continue;
        if (pthread_getcpuclockid(pthread_self(), &loaders[i].clock) == 0) {
            loaders[i].id = (pid_t)syscall(SYS_gettid);
            loaders[i].used = cpu_time_of(&loaders[i]);
        }
        break;
    }
    pthread_mutex_unlock(&lock);
}

static void load_leave(void)
{
    const pid_t self = (pid_t)syscall(SYS_gettid);
    pthread_mutex_lock(&lock);
    loading--;
    for (size_t i = 0; i < CLB_COUNT_OF(loaders); i++) {
        if (loaders[i].id == self)
            loaders[i].id = 0;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void clb_load_begin(void)
{
    pthread_once(&registered, register_handlers);
    if (depth++ == 0)
        load_enter();
}

void clb_load_end(void)
{
    if (--depth == 0)
        load_leave();
}

int clb_load_suspend(void)
{
    int suspended = depth;
    depth = 0;
    if (suspended > 0)
        load_leave();
    return suspended;
}

void clb_load_resume(int suspended)
{
    if (suspended > 0)
        load_enter();
    depth = suspended;
}
