/* The thread on which drivers start and compile, and how the process ends without destroying what
 * it uses. */
#include "ocl.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the driver thread: starts the driver, builds programs and checks kernels ---------------- */

/* These tasks need more stack than a thread of the program may have (PoCL's device query uses
 * 64 KiB, LLVM recurses), may compile for many seconds, and are those in which drivers install
 * signal handlers. The calling thread waits, as long as it may, so signals can end the program
 * meanwhile. One thread, which lives as long as the process, runs one task after the other.
 *
 * A caller holds no lock while it waits: the task itself takes the locks that it needs. */
#define STACK ((size_t)8 << 20)

#define SECONDS_BEFORE_TELLING 2

/* A task. The caller waits until `done`; when it has `left`, the driver thread frees the task. */
struct driver_task {
    clb_status (*run)(void *argument);
    void *argument;
    clb_status status;
    bool done, left;
    struct driver_task *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static struct driver_task *first, *last; /* waiting tasks */
static bool exists;
static _Atomic pid_t driver_id; /* the driver thread's */
static _Atomic pid_t owner;     /* the process that has it; 0: none yet */
static bool in_driver;          /* the driver thread runs a task, and may be inside the driver, */
static double entered;          /* since then */
static bool starts;             /* the task is the driver's start */
static bool closing;            /* the process ends: the driver thread must not enter the driver */
static bool stopped;            /* and has not left it in time: its threads were stopped */

CLB_THREAD bool clb_driver_is_self;
CLB_THREAD double clb_driver_patience = INFINITY;

/* ---- the end of the process ------------------------------------------------------------------
 *
 * Destructors of drivers and compilers must not run while the driver thread, or a thread of the
 * driver that works for it, is inside them (seen with PoCL 3.1: "pure virtual method called"). So
 * before they run, the driver thread stops at the next gate, where nothing is outstanding. */

/* The longest that the end of the process waits: for a gate between programs and launches, and for
 * the end of the driver's start, during which the dynamic linker is locked. What has taken longer
 * than a step should is a compiler in this process, for which it does not wait: the driver's
 * threads are stopped where they are. */
#define LONGEST_STEP_SECONDS  0.025
#define STEP_SECONDS          0.05
#define LONGEST_START_SECONDS 10

struct linker_place {
    uintptr_t address;
    bool found;
};

static int find_in_linker(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct linker_place *place = argument;
    (void)size;
    if (strstr(info->dlpi_name, "/ld-linux") == NULL)
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t begin = info->dlpi_addr + header->p_vaddr;
        place->found = place->found || (header->p_type == PT_LOAD && place->address >= begin &&
                                        place->address < begin + header->p_memsz);
    }
    return 1;
}

/* True while the driver thread waits for a lock of the dynamic linker that this thread holds: the
 * constructor of a library that the program loads may call exit. The C library's mutexes have the
 * owner's id behind the word that threads wait at. */
static bool holds_linker(void)
{
    char file[64], line[256];
    unsigned long long call = 0, word = 0;
    snprintf(file, sizeof file, "/proc/self/task/%d/syscall", (int)atomic_load(&driver_id));
    const int fd = clb_file_open(file, O_RDONLY, 0);
    const ssize_t length = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    line[length > 0 ? length : 0] = '\0';
    if (sscanf(line, "%llu %llx", &call, &word) != 2 || call != SYS_futex)
        return false;
    struct linker_place place = {.address = (uintptr_t)word};
    dl_iterate_phdr(find_in_linker, &place);
    return place.found && ((const int *)place.address)[2] == (int)syscall(SYS_gettid);
}

/* With the lock held. The longest wait between two looks at `holds_linker`. */
#define LOOK_SECONDS 0.01

static void wait_for_gate(void)
{
    const double begin = clb_now();
    while (in_driver && !stopped) {
        const double now = clb_now(),
                     end = starts ? begin + LONGEST_START_SECONDS
                                  : fmin(begin + LONGEST_STEP_SECONDS, entered + STEP_SECONDS);
        if (now >= end || (starts && now > begin + LOOK_SECONDS && holds_linker()))
            break;
        const struct timespec until = clb_time_of(fmin(end, now + LOOK_SECONDS));
        pthread_cond_clockwait(&ended, &lock, CLOCK_MONOTONIC, &until);
    }
}

/* ThreadSanitizer does not know pthread_mutex_clocklock. */
static bool lock_within(double seconds)
{
    const double end = clb_now() + seconds;
    while (pthread_mutex_trylock(&lock) != 0) {
        if (clb_now() >= end)
            return false;
        nanosleep(&(struct timespec){0, 500000}, NULL);
    }
    return true;
}

/* A handler of a signal may call exit, and have interrupted a thread that holds the lock; a driver
 * may call it on the driver thread; and so may a child that shares this process's memory, or was
 * made without the C library's knowledge. */
static void driver_stop(void)
{
    int cancel;
    if (clb_driver_is_self || atomic_load(&owner) != getpid() || !lock_within(LONGEST_STEP_SECONDS))
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    closing = exists;
    if (closing)
        wait_for_gate();
    bool stops = closing && in_driver && !starts && !stopped;
    stopped = stopped || stops;
    pthread_mutex_unlock(&lock);
    if (stops)
        clb_threads_stop();
    else
        clb_enqueuer_await_idle(LONGEST_STEP_SECONDS);
    pthread_setcancelstate(cancel, NULL);
}

_Noreturn void clb_driver_exit(int status)
{
    void (*next)(int status);
    driver_stop();
    /* The linker's lock, which this takes, is taken by the C library's exit too. */
    const void *address = dlsym(RTLD_NEXT, "exit");
    memcpy(&next, &address, sizeof next);
    if (next != NULL)
        next(status);
    _exit(status);
}

static void driver_stop_at_exit(void *unused)
{
    (void)unused;
    driver_stop();
}

/* Where the shim's own exit is not reached (src/shim/entry/exit.c), the C library's calls
 * destructors in the order opposite to that of their registration, but first those of the thread's
 * own objects: only these come before the destructors of a library that another thread is loading
 * just now. For other threads, driver_stop is registered before the first task, at each gate of
 * a start and after each task, and while constructors run (register_again). A main thread may end
 * without an exit; so later tasks make the driver thread go on. */
extern int __cxa_thread_atexit_impl(void (*destructor)(void *), void *object, void *dso)
    __attribute__((weak));
extern void *__dso_handle;

static void driver_watch_exit(void)
{
    static atomic_bool watched;
    if (getpid() == (pid_t)syscall(SYS_gettid) && __cxa_thread_atexit_impl != NULL &&
        !atomic_exchange(&watched, true))
        __cxa_thread_atexit_impl(driver_stop_at_exit, NULL, &__dso_handle);
}

/* A child that is forked while another thread holds the lock of the exit handlers hangs at exit. */
static bool register_stop(void)
{
    clb_load_begin();
    const bool registered = atexit(driver_stop) == 0;
    clb_load_end();
    return registered;
}

/* Where the program's exit is the C library's, it first destroys what was made last. So while the
 * start is inside the driver, whose libraries' constructors make objects, a thread registers
 * driver_stop again and again: what exit destroys before that is what they have made in some
 * microseconds. A start that takes longer than so many registrations is not in constructors. */
#define AGAIN_NANOSECONDS 10000
#define MOST_AGAIN        30000

static void *register_again(void *unused)
{
    bool goes_on = true;
    (void)unused;
    prctl(PR_SET_TIMERSLACK, 1UL);
    for (int count = 0; goes_on && count < MOST_AGAIN;) {
        pthread_mutex_lock(&lock);
        const bool registers = in_driver && !closing;
        goes_on = starts;
        pthread_mutex_unlock(&lock);
        count += registers && register_stop();
        nanosleep(&(struct timespec){0, AGAIN_NANOSECONDS}, NULL);
    }
    return NULL;
}

void clb_driver_note_start(bool begins)
{
    pthread_mutex_lock(&lock);
    starts = begins;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    if (begins && dlsym(RTLD_DEFAULT, "exit") == dlsym(RTLD_NEXT, "exit") &&
        clb_thread_start((size_t)256 << 10, register_again, NULL) != CLB_OK)
        clb_log(CLB_LOG_INFO,
                "nothing watches for an exit while the driver's libraries are loaded");
}

int clb_driver_leave(void)
{
    if (!clb_driver_is_self)
        return 0;
    pthread_mutex_lock(&lock);
    in_driver = false;
    pthread_cond_broadcast(&ended);
    pthread_mutex_unlock(&lock);
    return clb_load_suspend();
}

void clb_driver_enter(int loads)
{
    if (!clb_driver_is_self)
        return;
    clb_load_resume(loads);
    pthread_mutex_lock(&lock);
    while (closing)
        pthread_cond_wait(&arrived, &lock);
    in_driver = true;
    entered = clb_now();
    const bool loads_more = starts;
    pthread_mutex_unlock(&lock);
    if (loads_more)
        (void)register_stop();
}

/* ---- tasks ----------------------------------------------------------------------------------- */

static void *run_tasks(void *unused)
{
    (void)unused;
    clb_driver_is_self = true;
    atomic_store(&driver_id, (pid_t)syscall(SYS_gettid));
    pthread_setname_np(pthread_self(), "clblas-shim");
    (void)register_stop();
    pthread_mutex_lock(&lock);
    for (;;) {
        while (first == NULL || closing)
            pthread_cond_wait(&arrived, &lock);
        struct driver_task *task = first;
        first = task->next;
        in_driver = true;
        entered = clb_now();
        pthread_mutex_unlock(&lock);
        clb_signals_begin_task();
        clb_status status = task->run(task->argument);
        clb_signals_end_task();
        (void)register_stop(); /* before the destructors of what the task has loaded */
        pthread_mutex_lock(&lock);
        in_driver = false;
        pthread_cond_broadcast(&ended);
        if (task->left) {
            free(task);
            continue;
        }
        task->status = status;
        task->done = true;
        pthread_cond_broadcast(&ended);
    }
    return NULL;
}

/* With the lock held: add a task for the driver thread, which is made for the first one. */
static clb_status driver_add(struct driver_task *task)
{
    if (stopped || (!exists && clb_thread_start(STACK, run_tasks, NULL) != CLB_OK))
        return CLB_ERR_NOMEM;
    exists = true;
    atomic_store(&owner, getpid());
    *(first == NULL ? &first : &last->next) = task;
    last = task;
    closing = false;
    pthread_cond_signal(&arrived);
    return CLB_OK;
}

/* Nothing that the program can see tells why its call takes seconds, so a terminal says it. */
static void driver_tell(void)
{
    static atomic_bool told;
    if (isatty(STDERR_FILENO) && !atomic_exchange(&told, true))
        clb_complain("compiling kernels for the OpenCL device (once)...");
}

/* With the lock held: wait until the task is done or the thread's patience is over. */
static clb_status driver_wait(const struct driver_task *task)
{
    double begin = clb_now();
    bool tells = true;
    while (!task->done && clb_now() < clb_driver_patience) {
        double until =
            tells ? fmin(clb_driver_patience, begin + SECONDS_BEFORE_TELLING) : clb_driver_patience;
        const struct timespec at = clb_time_of(until < INFINITY ? until : 0);
        if (until < INFINITY)
            pthread_cond_clockwait(&ended, &lock, CLOCK_MONOTONIC, &at);
        else
            pthread_cond_wait(&ended, &lock);
        if (tells && !task->done && clb_now() >= begin + SECONDS_BEFORE_TELLING) {
            pthread_mutex_unlock(&lock);
            driver_tell();
            pthread_mutex_lock(&lock);
            tells = false;
        }
    }
    return task->done ? task->status : CLB_ERR_STARTING;
}

static clb_status driver_prepare(void)
{
    driver_watch_exit();
    return clb_signals_watch();
}

clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument)
{
    struct driver_task task = {.run = run, .argument = argument};
    if (clb_driver_is_self)
        return run(argument);
    double mine = clb_driver_set_patience(INFINITY);
    clb_status status = driver_prepare();
    pthread_mutex_lock(&lock);
    if (status == CLB_OK)
        status = driver_add(&task);
    if (status == CLB_OK)
        status = driver_wait(&task);
    pthread_mutex_unlock(&lock);
    clb_driver_set_patience(mine);
    return status;
}

clb_status clb_driver_request(clb_status (*run)(void *argument), const void *argument, size_t size)
{
    struct {
        struct driver_task task;
        _Alignas(max_align_t) char argument[];
    } *request = calloc(1, sizeof *request + size);
    if (request == NULL)
        return CLB_ERR_NOMEM;
    struct driver_task *task = &request->task;
    if (size > 0)
        memcpy(request->argument, argument, size);
    *task = (struct driver_task){.run = run, .argument = request->argument};
    clb_status status = clb_driver_is_self ? CLB_OK : driver_prepare();
    if (clb_driver_is_self) {
        status = run(task->argument);
        free(request);
        return status;
    }
    pthread_mutex_lock(&lock);
    if (status == CLB_OK)
        status = driver_add(task);
    bool added = status == CLB_OK;
    if (added)
        status = driver_wait(task);
    task->left = added && !task->done;
    if (!task->left)
        free(request);
    pthread_mutex_unlock(&lock);
    return status;
}

bool clb_driver_may_wait(void)
{
    return clb_driver_patience == INFINITY || clb_now() < clb_driver_patience;
}
