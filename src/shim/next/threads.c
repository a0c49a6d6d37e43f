/* Limits the next library to one thread for a while.
 *
 * OpenBLAS's idle threads spin for 25 ms after each call; when the device is the CPU they take CPU
 * time from it. OpenBLAS has one thread count for the process: the first holder sets it to one, and
 * the last one restores it unless the program has set another since. Meanwhile other callers get
 * one thread as well. A child that was forked meanwhile has no holders: its next call sets the
 * count back. Doing that in the fork handler would start threads during the fork. */
#include "next.h"

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards what follows */
static void (*set_threads)(int count);
static int (*get_threads)(void);
static size_t holders;
static int before;

_Atomic unsigned clb_next_threads_process;

static void give_back(void)
{
    if (get_threads() == 1)
        set_threads(before);
}

/* The holders' threads do not exist in a forked child. */
static void take(void)
{
    if (!clb_lock(&lock))
        return;
    if (holders > 0)
        give_back();
    holders = 0;
    atomic_store(&clb_next_threads_process, clb_generation());
}

void clb_next_forget_holders(void)
{
    take();
    clb_unlock(&lock);
}

bool clb_next_hold_threads(const struct clb_target *target)
{
    bool held = false;
    if (target->set_threads == NULL || target->get_threads == NULL)
        return false;
    take();
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
    clb_unlock(&lock);
    return held;
}

void clb_next_release_threads(void)
{
    take();
    if (holders > 0 && --holders == 0)
        give_back();
    clb_unlock(&lock);
}
