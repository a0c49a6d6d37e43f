/* Limits the next library to one thread for a while.
 *
 * OpenBLAS's idle threads spin for 25 ms after each call; when the device is the CPU they take CPU
 * time from it. OpenBLAS has one thread count for the process: the first holder sets it to one, and
 * the last one restores it unless the program has set another since. Meanwhile other callers get
 * one thread as well. A child forked meanwhile keeps one thread: setting the count in the fork
 * handler would start threads during the fork. */
#include "next.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*set_threads)(int count);
static int (*get_threads)(void);
static size_t holders;
static int before;

/* The threads that are holders do not exist in the child. */
static void threads_forget_in_child(void)
{
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    lock = fresh;
    holders = 0;
}

static void threads_watch_forks(void)
{
    clb_fork_on_child(threads_forget_in_child);
}

bool clb_next_hold_threads(const struct clb_target *target)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    bool held = false;
    if (target->set_threads == NULL || target->get_threads == NULL)
        return false;
    pthread_once(&once, threads_watch_forks);
    pthread_mutex_lock(&lock);
    if (holders == 0) {
        before = target->get_threads();
        set_threads = target->set_threads;
        get_threads = target->get_threads;
    }
    /* Only one library is held at a time; one that has one thread already needs no change. */
    if (set_threads == target->set_threads && before > 1) {
        held = true;
        if (holders++ == 0)
            set_threads(1);
    }
    pthread_mutex_unlock(&lock);
    return held;
}

void clb_next_release_threads(void)
{
    pthread_mutex_lock(&lock);
    if (--holders == 0 && get_threads() == 1)
        set_threads(before);
    pthread_mutex_unlock(&lock);
}
