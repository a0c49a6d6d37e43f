/* The driver thread: starts the driver, builds programs and checks kernels.
 *
 * These tasks need more stack than a thread of the program may have (PoCL's device query uses
 * 64 KiB, LLVM recurses), may compile for many seconds, and are those in which drivers install
 * signal handlers. The calling thread only waits, so signals can end the program meanwhile. One
 * thread, which lives as long as the process, runs one task after the other.
 *
 * A caller holds no lock while it waits: the task itself takes the locks that it needs. */
#include "ocl.h"

#include <pthread.h>

#define STACK ((size_t)8 << 20)

/* A task, on the stack of its caller, which waits until `done`. */
struct driver_task {
    clb_status (*run)(void *argument);
    void *argument;
    clb_status status;
    bool done;
    struct driver_task *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static struct driver_task *first, *last; /* waiting tasks */
static bool exists;

static CLB_THREAD bool is_driver_thread;

static void *run_tasks(void *unused)
{
    (void)unused;
    is_driver_thread = true;
    pthread_setname_np(pthread_self(), "clblas-shim");
    pthread_mutex_lock(&lock);
    for (;;) {
        while (first == NULL)
            pthread_cond_wait(&arrived, &lock);
        struct driver_task *task = first;
        first = task->next;
        pthread_mutex_unlock(&lock);
        clb_signals_begin_task();
        task->status = task->run(task->argument);
        clb_signals_end_task();
        pthread_mutex_lock(&lock);
        task->done = true;
        pthread_cond_broadcast(&ended);
    }
    return NULL;
}

/* The child has neither the driver thread nor the threads that wait for tasks. */
static void driver_forget_in_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t unwaited = PTHREAD_COND_INITIALIZER;
    lock = unlocked;
    arrived = ended = unwaited;
    first = last = NULL;
    exists = false;
}

static void driver_watch_forks(void)
{
    clb_fork_on_child(driver_forget_in_child);
}

clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct driver_task task = {.run = run, .argument = argument};
    if (is_driver_thread)
        return run(argument);
    pthread_once(&once, driver_watch_forks);
    clb_status status = clb_signals_watch();
    pthread_mutex_lock(&lock);
    if (status == CLB_OK && !exists) {
        status = clb_thread_start(STACK, run_tasks, NULL);
        exists = status == CLB_OK;
    }
    if (status == CLB_OK) {
        *(first == NULL ? &first : &last->next) = &task;
        last = &task;
        pthread_cond_signal(&arrived);
        while (!task.done)
            pthread_cond_wait(&ended, &lock);
        status = task.status;
    }
    pthread_mutex_unlock(&lock);
    return status;
}
