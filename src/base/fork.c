/* Forks: functions that run in the child, and code during which a fork must wait.
 *
 * The C library does not take the dynamic linker's lock for a fork. A child that was forked while
 * another thread was loading a library inherits incomplete tables of the linker: its own dlopen
 * ends the process ("dl_open_worker_begin: Assertion ... RT_CONSISTENT failed"), or it hangs at
 * exit, because the loading thread held the lock of the exit handlers (both seen with glibc 2.36
 * and PoCL, which loads LLVM when it starts). So a fork waits, for a limited time, while the shim
 * causes a library to be loaded. It does not wait for whole calls: loading is a short part of the
 * first ones. */
#include "base.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define MAX_HOOKS 8

/* The longest that a fork waits. That is reached when loading itself waits for a lock that the
 * forking thread holds, when a helper thread of a driver forks, and when a driver compiles in this
 * process. */
#define LONGEST_WAIT_SECONDS 0.05

static void (*hooks[MAX_HOOKS])(void);
static _Atomic int hook_count;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int loading;                   /* threads between clb_load_begin and clb_load_end */
static int forking;                   /* forks in progress, for which clb_load_begin waits */
static CLB_THREAD int depth;          /* nesting of clb_load_begin in this thread */
static CLB_THREAD bool fork_is_noted; /* this thread's fork is counted in `forking` */

/* Wait until no thread loads a library. A thread that forks while it loads one itself does not
 * wait: drivers start compilers so. */
static void before_fork(void)
{
    const struct timespec until = clb_time_of(clb_now() + LONGEST_WAIT_SECONDS);
    if (depth > 0)
        return;
    pthread_mutex_lock(&lock);
    forking++; /* no thread begins to load, and who does so already stops at the next chance */
    fork_is_noted = true;
    while (loading > 0 && pthread_cond_clockwait(&changed, &lock, CLOCK_MONOTONIC, &until) == 0)
        ;
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
    pthread_mutex_unlock(&lock);
}

static void load_leave(void)
{
    pthread_mutex_lock(&lock);
    loading--;
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
