/* Worker threads: created when a call first needs them, kept for later calls, used by one call at a
 * time. A call gets the threads that are free and never waits for more.
 *
 * After a fork they exist in the parent only. The child never uses them, because it has abandoned
 * the device. SPDX-License-Identifier: BSD-3-Clause */
#include "host.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

/* A caller waits so long without sleeping: waking takes some 0.1 ms in virtual machines. */
#define AWAKE_SECONDS 50e-6

struct worker {
    pthread_cond_t wake;
    void (*task)(void *); /* NULL while idle */
    void *argument;
    struct clb_workers *team;
    bool exists, lent;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static struct worker workers[CLB_MAX_WORKERS];

CLB_THREAD bool clb_thread_inside;

static void *run_worker(void *argument)
{
    struct worker *self = argument;
    pthread_setname_np(pthread_self(), "clblas-shim");
    clb_thread_inside = true;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (self->task == NULL)
            pthread_cond_wait(&self->wake, &lock);
        pthread_mutex_unlock(&lock);
        self->task(self->argument);
        pthread_mutex_lock(&lock);
        self->task = NULL;
        self->team->running--;
        pthread_cond_broadcast(&done);
    }
    return NULL;
}

static int (*in_parallel)(void); /* of the OpenMP runtime that the program uses; may be NULL */

/* Looked up once, and kept loaded. */
static void find_in_parallel(void)
{
    const void *address = dlsym(RTLD_DEFAULT, "omp_in_parallel");
    Dl_info info;
    struct link_map *map;
    if (address != NULL && dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 &&
        dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != NULL)
        memcpy(&in_parallel, &address, sizeof in_parallel);
}

void clb_workers_lend(struct clb_workers *team, size_t wanted, bool forced)
{
    *team = (struct clb_workers){0};
    clb_signals_let_through();
    if (!forced) {
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        cpu_set_t cpus; /* that this thread may use, also the one it runs on */
        pthread_once(&once, find_in_parallel);
        /* Inside a parallel region of OpenMP the program has a thread on every CPU already. */
        const bool busy = (in_parallel != NULL && in_parallel() != 0) ||
                          sched_getaffinity(0, sizeof cpus, &cpus) != 0;
        wanted = busy ? 0 : clb_min(wanted, (size_t)CPU_COUNT(&cpus) - 1);
    }
    wanted = clb_min(wanted, CLB_MAX_WORKERS);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < CLB_MAX_WORKERS && team->count < wanted; i++) {
        struct worker *worker = &workers[i];
        if (!worker->exists) {
            pthread_cond_init(&worker->wake, NULL);
            worker->exists = clb_thread_start((size_t)512 << 10, run_worker, worker) == CLB_OK;
        }
        if (worker->lent || !worker->exists)
            continue;
        worker->lent = true;
        worker->team = team;
        team->member[team->count++] = i;
    }
    pthread_mutex_unlock(&lock);
}

void clb_workers_start(struct clb_workers *team, size_t index, void (*task)(void *), void *argument)
{
    struct worker *worker = &workers[team->member[index]];
    pthread_mutex_lock(&lock);
    worker->task = task;
    worker->argument = argument;
    team->running++;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&lock);
}

void clb_workers_return(struct clb_workers *team)
{
    pthread_mutex_lock(&lock);
    for (const double end = clb_now() + AWAKE_SECONDS; team->running > 0 && clb_now() < end;) {
        pthread_mutex_unlock(&lock);
        sched_yield();
        pthread_mutex_lock(&lock);
    }
    while (team->running > 0)
        pthread_cond_wait(&done, &lock);
    for (size_t i = 0; i < team->count; i++)
        workers[team->member[i]].lent = false;
    team->count = 0;
    pthread_mutex_unlock(&lock);
}

struct sharing {
    void (*work)(void *context, size_t thread, size_t begin, size_t end);
    void *context;
    size_t count, share;
    atomic_size_t next, next_thread;
};

static void take_shares(void *argument)
{
    struct sharing *sharing = argument;
    size_t begin, thread = atomic_fetch_add(&sharing->next_thread, 1);
    while ((begin = atomic_fetch_add(&sharing->next, sharing->share)) < sharing->count)
        sharing->work(sharing->context, thread, begin,
                      clb_min(begin + sharing->share, sharing->count));
}

void clb_workers_share(size_t count, size_t share, size_t threads,
                       void (*work)(void *context, size_t thread, size_t begin, size_t end),
                       void *context)
{
    struct clb_workers team;
    struct sharing sharing = {.work = work, .context = context, .count = count, .share = share};
    clb_workers_lend(&team, clb_max(clb_min(clb_div_up(count, share), threads), 1) - 1, false);
    for (size_t i = 0; i < team.count; i++)
        clb_workers_start(&team, i, take_shares, &sharing);
    take_shares(&sharing);
    clb_workers_return(&team);
}
