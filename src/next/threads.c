/* How many threads the next library computes with.
 *
 * OpenBLAS's idle threads spin for 25 ms after each call, and where the device is the CPU they take
 * it from the device. Its number is one for the process: the first holder sets it, the last one
 * sets it back unless the program has set another since, and meanwhile other callers get one thread
 * as well. A forked child is left with one: setting the number there would start threads in the
 * midst of the fork. */
#include "next.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void (*set_threads)(int count);
static int (*get_threads)(void);
static size_t holders;
static int before;

/* The holders are not in the child. */
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
    /* One library at a time; where it has one thread already there is nothing to do. */
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
