/* What runs in a forked child. Only the child handler exists: the prepare handler would have to
 * wait for calls in flight, and waits for nothing. */
#include "base.h"

#include <pthread.h>
#include <stdatomic.h>

#define MAX_HOOKS 8

static void (*hooks[MAX_HOOKS])(void);
static _Atomic int hook_count;
static pthread_once_t registered = PTHREAD_ONCE_INIT;

static void run_child_hooks(void)
{
    int count = atomic_load(&hook_count);
    for (int i = 0; i < count; i++)
        hooks[i]();
}

static void register_handlers(void)
{
    pthread_atfork(NULL, NULL, run_child_hooks);
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
