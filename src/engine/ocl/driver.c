/* The thread on which a driver starts, programs are loaded or compiled, and kernels are checked.
 * SPDX-License-Identifier: BSD-3-Clause
 * These tasks need more stack than a thread of the program may have (LLVM recurses, PoCL's device
 * query uses 64 KiB), may take seconds, and are those in which drivers install signal handlers. So
 * each runs on a thread of its own, made by the call that needs it; there is one at a time.
 *
 * clb_driver_request waits until clb_driver_time_limit; with a limit not for a helper process, and
 * never long for the dynamic linker, whose lock its caller may hold: a constructor of a library
 * that is being loaded may call BLAS. A task whose caller has left is finished all the same. */
#include "helper.h"
#include "start.h"
#include "host/process.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STACK ((size_t)8 << 20)

#define SECONDS_BEFORE_TELLING 2

/* Seconds for taking the dynamic linker's lock before the caller leaves; one without a time limit
 * allows for a busy system. */
#define LINKER_SECONDS      0.25
#define LINKER_SECONDS_EVER 2

/* How often a waiting caller looks for handlers that the driver has installed, and whether the task
 * has ended where there are none to look for: a helper whose driver hangs must use no CPU time that
 * its supervisor takes for progress. */
#define LOOK_SECONDS 0.001
#define WAIT_SECONDS 0.05

struct driver_task {
    clb_status (*run)(void *argument);
    void *argument;
    clb_status status;
    bool is_linked; /* the thread has had the dynamic linker's lock */
    bool is_long;   /* it waits for a helper process */
    bool has_limit; /* its caller has, when it began */
    bool done;
    bool left; /* by the caller: the thread frees the task */
    _Alignas(max_align_t) char copy[];
};

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards what follows, and tasks */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct driver_task *running; /* NULL: none */

CLB_THREAD bool clb_driver_is_self;
CLB_THREAD double clb_driver_time_limit = INFINITY;

/* A forked child has no such thread. */
static void take(void)
{
    static const pthread_cond_t unwaited = PTHREAD_COND_INITIALIZER;
    if (!clb_lock(&lock))
        return;
    running = NULL;
    changed = unwaited;
}

static void give(void)
{
    pthread_cond_broadcast(&changed);
    clb_unlock(&lock);
}

/* ---- the thread ---- */

/* Returns when no other thread loads a library, or runs constructors of one. */
static void await_linker(void)
{
    clb_load_begin();
    dlopen("", RTLD_LAZY | RTLD_NOLOAD);
    clb_load_end();
}

/* LLVM gives the thread that first enters it a stack for signals, which must not be this thread's
 * when it ends: AddressSanitizer, for one, frees the stack that it finds then. */
static void *run_task(void *argument)
{
    struct driver_task *task = argument;
    stack_t signal_stack;
    const bool has_stack = sigaltstack(NULL, &signal_stack) == 0;
    clb_driver_is_self = true;
    pthread_setname_np(pthread_self(), "clblas-shim");
    await_linker();
    take();
    task->is_linked = true;
    give();
    clb_inside_add(1);
    clb_signals_begin_task();
    const clb_status status = task->run(task->argument);
    clb_signals_end_task();
    clb_inside_add(-1);
    if (has_stack)
        (void)sigaltstack(&signal_stack, NULL);
    take();
    running = NULL;
    task->status = status;
    task->done = true;
    if (task->left)
        free(task);
    give();
    return NULL;
}

bool clb_driver_has_limit(void)
{
    return clb_driver_is_self && running->has_limit;
}

int clb_driver_leave(void)
{
    if (!clb_driver_is_self)
        return 0;
    clb_signals_end_task();
    clb_inside_add(-1);
    take();
    running->is_long = true;
    give();
    return clb_load_suspend();
}

void clb_driver_enter(int loads)
{
    if (!clb_driver_is_self)
        return;
    clb_load_resume(loads);
    take();
    running->is_long = false;
    give();
    clb_inside_add(1);
    clb_signals_begin_task();
}

/* ---- its callers ---- */

/* With the lock held: whether the caller has waited long enough for the running task. */
static bool may_leave(double begin, double now)
{
    const bool for_ever = clb_driver_time_limit == INFINITY;
    return (!running->is_linked &&
            now >= begin + (for_ever ? LINKER_SECONDS_EVER : LINKER_SECONDS)) ||
           (!for_ever && (running->is_long || now >= clb_driver_time_limit));
}

/* With the lock held: wait until the running task has ended; false when the caller leaves. */
static bool await_running(bool may_always_leave)
{
    static atomic_bool told;
    const double begin = clb_now();
    double pause = LOOK_SECONDS;
    const struct driver_task *awaited = running;
    clb_signals_let_through();
    while (running == awaited && awaited != NULL) {
        const double now = clb_now();
        const bool tells = now >= begin + SECONDS_BEFORE_TELLING;
        if (may_always_leave && may_leave(begin, now))
            return false;
        const struct timespec until = clb_time_of(now + pause);
        pthread_cond_clockwait(&changed, &lock.mutex, CLOCK_MONOTONIC, &until);
        clb_unlock(&lock);
        const bool looks = clb_signals_look() || now < begin + WAIT_SECONDS;
        pause = looks ? LOOK_SECONDS : WAIT_SECONDS;
        /* Nothing that the program can see tells why its call takes seconds, a terminal says it. */
        if (tells && isatty(STDERR_FILENO) && !atomic_exchange(&told, true))
            clb_complain("compiling kernels for the OpenCL device (once)...");
        take();
    }
    return true;
}

/* Where another task runs, a call with a time limit does not wait at all. A task that may be left
 * is freed, here or by its thread. */
static clb_status submit(struct driver_task *task, bool may_leave_it)
{
    clb_status status = CLB_OK;
    clb_spawn_environment();
    take();
    while (running != NULL && status == CLB_OK) {
        if ((may_leave_it && clb_driver_time_limit < INFINITY) || !await_running(may_leave_it))
            status = CLB_ERR_STARTING;
    }
    CLB_THEN(status, clb_thread_start(STACK, run_task, task));
    if (status == CLB_OK) {
        running = task;
        status = await_running(may_leave_it) ? task->status : CLB_ERR_STARTING;
        task->left = !task->done;
    }
    const bool ended = !task->left;
    clb_unlock(&lock);
    if (ended && may_leave_it)
        free(task);
    return status;
}

clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument)
{
    struct driver_task task = {.run = run, .argument = argument};
    return clb_driver_is_self ? run(argument) : submit(&task, false);
}

clb_status clb_driver_request(clb_status (*run)(void *argument), const void *argument, size_t size)
{
    if (clb_driver_is_self)
        return run((void *)(uintptr_t)argument);
    struct driver_task *task = calloc(1, sizeof *task + size);
    if (task == NULL)
        return CLB_ERR_NOMEM;
    task->run = run;
    task->argument = task->copy;
    task->has_limit = clb_driver_time_limit < INFINITY;
    if (size > 0)
        memcpy(task->copy, argument, size);
    return submit(task, true);
}
