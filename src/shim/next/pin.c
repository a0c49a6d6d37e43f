/* Keeps libraries loaded.
 *
 * The stored addresses of callers and functions are valid as long as their objects are loaded.
 * Objects loaded with the program stay loaded. Others are kept by dlopen with RTLD_NODELETE. That
 * waits for a dlopen of another thread, whose constructors may wait for this thread; so when the
 * process has other threads, a thread made for this purpose calls dlopen. Until it has done so,
 * nothing is stored and each call searches anew. */
#include "pin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>

/* The base addresses of objects that are kept loaded, or (`failed`) that can't be; push-only. */
struct kept {
    uintptr_t base;
    bool failed;
    struct kept *link;
};
static _Atomic(struct kept *) all_kept;

/* The objects that the thread still has to keep; guarded by `lock`. */
#define MAX_PENDING 32
static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;
static struct clb_place pending[MAX_PENDING];
static size_t pending_count;
static bool is_working;
static unsigned attempts_to_skip; /* set when the thread could not be made: calls until a retry */

void clb_place_note(struct clb_place *place, const struct clb_objects *objects,
                    const struct clb_object *object)
{
    place->stays = object == NULL || (size_t)(object - objects->object) < objects->startup;
    place->base = object != NULL ? object->base : 0;
    place->path[0] = '\0';
    if (object != NULL && strlen(object->path) < sizeof place->path)
        strcpy(place->path, object->path);
}

static const struct kept *known(const struct clb_place *place)
{
    const struct kept *kept = atomic_load_explicit(&all_kept, memory_order_acquire);
    while (kept != NULL && kept->base != place->base)
        kept = kept->link;
    return kept;
}

bool clb_place_stays(const struct clb_place *place)
{
    const struct kept *kept = place->stays ? NULL : known(place);
    return place->stays || (kept != NULL && !kept->failed);
}

static void keep_note(const struct clb_place *place, bool failed)
{
    struct kept *kept = malloc(sizeof *kept);
    if (kept == NULL)
        return;
    *kept = (struct kept){place->base, failed, atomic_load(&all_kept)};
    while (!atomic_compare_exchange_weak(&all_kept, &kept->link, kept))
        ;
}

void clb_place_is_kept(const struct clb_place *place)
{
    if (!clb_place_stays(place))
        keep_note(place, false);
}

bool clb_place_keep_now(const struct clb_place *place)
{
    if (clb_place_stays(place))
        return true;
    if (place->path[0] == '\0')
        return false;
    clb_load_begin();
    struct link_map *map = dlopen(place->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
    clb_load_end();
    /* Meanwhile the object may have been unloaded and loaded again at another address. */
    bool kept = map != NULL && map->l_addr == place->base;
    keep_note(place, !kept);
    return kept;
}

static void *work(void *unused)
{
    struct clb_place place;
    (void)unused;
    pthread_setname_np(pthread_self(), "clblas-shim");
    clb_lock(&lock);
    while (pending_count > 0) {
        place = pending[--pending_count];
        clb_unlock(&lock);
        clb_place_keep_now(&place);
        clb_lock(&lock);
    }
    is_working = false;
    clb_unlock(&lock);
    return NULL;
}

/* The thread has all signals blocked, so that the program's handlers run in its own threads. */
static bool start_work(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, (size_t)512 << 10);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &attributes, work, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

static bool is_pending(const struct clb_place *place)
{
    for (size_t i = 0; i < pending_count; i++) {
        if (pending[i].base == place->base)
            return true;
    }
    return false;
}

bool clb_place_keep(const struct clb_place *place)
{
    bool in_new_child;
    if (clb_place_stays(place))
        return true;
    if (place->path[0] == '\0' || known(place) != NULL)
        return false;
    if (__libc_single_threaded)
        return clb_place_keep_now(place);
    clb_fork_watch();
    /* A signal handler that calls BLAS must not wait for the code that it interrupted. */
    if (!clb_lock_try(&lock, &in_new_child))
        return false;
    if (in_new_child) { /* which does not have the thread */
        pending_count = 0;
        is_working = false;
    }
    if (!is_pending(place) && pending_count < MAX_PENDING)
        pending[pending_count++] = *place;
    if (attempts_to_skip > 0) {
        attempts_to_skip--;
    } else if (!is_working) {
        is_working = start_work();
        attempts_to_skip = is_working ? 0 : 1000;
    }
    clb_unlock(&lock);
    return false;
}
