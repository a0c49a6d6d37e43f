/* Forks. A child has only the thread that forked, and finds every lock and every half-made change
 * as the other threads of the parent left them: see clb_generation and struct clb_mutex.
 * SPDX-License-Identifier: BSD-3-Clause
 * The C library does not take the dynamic linker's lock for a fork. A child that was forked while
 * another thread loaded a library inherits half-made tables: its own dlopen ends the process, or it
 * hangs at exit. So a fork waits, for a limited time, while the shim has libraries loaded. */
#include "process.h"

#include <sched.h>

/* The longest that a fork waits for threads that load; later ones don't wait for these again. */
#define LONGEST_WAIT_SECONDS 0.5

_Atomic unsigned clb_process_generation;

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards the next three */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int loading;          /* threads between clb_load_begin and clb_load_end */
static int forking;          /* forks in progress, for which clb_load_begin waits */
static bool waited;          /* a fork has waited in vain for threads that are still loading */
static CLB_THREAD int depth; /* nesting of clb_load_begin in this thread */
static CLB_THREAD bool fork_is_noted; /* this thread's fork is counted in `forking` */

/* A thread that forks while it loads a library itself does not wait: drivers start compilers so. */
static void before_fork(void)
{
    if (depth > 0)
        return;
    clb_lock(&lock);
    forking++;
    fork_is_noted = true;
    const struct timespec until = clb_time_of(clb_now() + LONGEST_WAIT_SECONDS);
    while (loading > 0 && !waited)
        waited = pthread_cond_clockwait(&changed, &lock.mutex, CLOCK_MONOTONIC, &until) != 0;
    clb_unlock(&lock);
}

static void after_fork(void)
{
    if (!fork_is_noted)
        return;
    fork_is_noted = false;
    clb_lock(&lock);
    forking--;
    pthread_cond_broadcast(&changed);
    clb_unlock(&lock);
}

static void in_child(void)
{
    static const pthread_cond_t unwaited = PTHREAD_COND_INITIALIZER;
    atomic_fetch_add(&clb_process_generation, 1);
    changed = unwaited;
    loading = depth > 0;
    forking = 0;
    waited = fork_is_noted = false;
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

void clb_fork_watch(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
}

/* ---- locks that a forked child finds free ---- */

/* Set in a mutex's generation while a thread makes it anew. */
#define BEING_MADE (1U << 31)

void clb_mutex_renew(struct clb_mutex *mutex)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    const unsigned now = clb_generation();
    for (unsigned seen = atomic_load(&mutex->generation); seen != now;
         seen = atomic_load_explicit(&mutex->generation, memory_order_acquire)) {
        if (seen != (now | BEING_MADE) &&
            atomic_compare_exchange_strong(&mutex->generation, &seen, now | BEING_MADE)) {
            mutex->mutex = unlocked;
            atomic_store_explicit(&mutex->generation, now, memory_order_release);
        }
        sched_yield();
    }
}

bool clb_lock_try(struct clb_mutex *mutex, bool *first)
{
    clb_mutex_renew(mutex);
    const bool locked = pthread_mutex_trylock(&mutex->mutex) == 0;
    *first = locked && mutex->last != clb_generation();
    if (locked)
        mutex->last = clb_generation();
    return locked;
}

/* ---- loading ---- */

void clb_load_begin(void)
{
    clb_fork_watch();
    if (depth++ > 0)
        return;
    clb_lock(&lock);
    while (forking > 0)
        pthread_cond_wait(&changed, &lock.mutex);
    loading++;
    clb_unlock(&lock);
}

void clb_load_end(void)
{
    if (--depth > 0)
        return;
    clb_lock(&lock);
    if (--loading == 0)
        waited = false;
    pthread_cond_broadcast(&changed);
    clb_unlock(&lock);
}

int clb_load_suspend(void)
{
    const int suspended = depth;
    depth = suspended > 0;
    if (suspended > 0)
        clb_load_end();
    return suspended;
}

void clb_load_resume(int suspended)
{
    if (suspended > 0)
        clb_load_begin();
    depth = suspended;
}
