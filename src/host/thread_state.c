/* What the program must not notice of the OpenCL driver: in its threads, their signal masks and
 * floating-point environments; in the process, what happens to signals meanwhile.
 *
 * A thread that enters the driver blocks all asynchronous signals, because a handler must not run
 * inside the driver: it may jump out of it. Threads that the driver makes inherit the mask. The
 * floating-point environment must be the default meanwhile: the worker threads of PoCL 3.1 inherit
 * trapping from the thread that creates them.
 *
 * A thread of the shim, the watcher, has three tasks:
 *
 * - A signal whose disposition is the default must still end or stop the program at once. When one
 *   is pending for the process and a thread inside the driver had not blocked it, the watcher
 *   unblocks it in itself, and the kernel takes the default action. Signals with a handler are
 *   delivered when the thread has left the driver.
 *
 * - Signal handlers that a driver installs are removed: LLVM replaces 15 dispositions when it
 *   starts. Only handlers in objects that were loaded by a driver task (clb_signals_begin_task) are
 *   removed, and the program's latest disposition is restored; a handler that another thread of the
 *   program installs meanwhile stays.
 *
 * - A program whose main thread has called pthread_exit ends with its last thread, by exit(0) of
 * the C library, which counts the threads of the shim and of drivers too. The watcher calls exit
 * when only these are left.
 *
 * Unless a thread is, or was a moment ago, inside the driver, the watcher sleeps, and only looks
 * twice a second whether the main thread has ended. */
#include "host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Signals are 1 to 64 on Linux. sigaction fails for those that the C library uses itself; they are
 * skipped. */
#define SIGNALS 64

/* Time between two checks: while a task runs, in which a driver may install handlers; while a
 * thread is inside the driver; otherwise. */
#define TASK_INTERVAL_NS   1000000L
#define THREAD_INTERVAL_NS 50000000L
#define SLEEP_NS           500000000L

/* The watcher goes to sleep after so many checks that find no thread inside the driver. */
#define IDLE_LOOKS 4

/* Most threads inside the driver that are registered; further ones are ignored. Their masks are
 * stored here and not on their stacks, because a SIGSEGV handler may jump out of the driver. */
#define MAX_THREADS 256

/* All signals except those that the hardware raises in the offending thread: with these blocked,
 * the kernel would kill the process instead of calling the program's handler. */
static void list_asynchronous(sigset_t *set)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < CLB_COUNT_OF(synchronous); i++)
        sigdelset(set, synchronous[i]);
}

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct {
    bool used;
    sigset_t mask; /* the thread's signal mask before it entered the driver */
} threads[MAX_THREADS];
static int thread_count;
static bool watcher_exists;
static bool asleep; /* the watcher waits for `wake` */

static _Atomic bool task_runs;

/* The child has neither the watcher nor the other threads inside the driver. Its own thread is
 * inside the driver only when the driver forks. */
static void take(void)
{
    if (!clb_lock(&lock))
        return;
    memset(threads, 0, sizeof threads);
    thread_count = 0;
    watcher_exists = asleep = false;
    atomic_store(&task_runs, false);
}

/* ---- dispositions that a driver has changed -------------------------------------------------- */

struct object {
    uintptr_t address;
    const ElfW(Phdr) * headers;
};

struct objects {
    size_t count, capacity;
    struct object *object;
    bool failed;
};

static pthread_mutex_t task_lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct sigaction program[SIGNALS + 1];                 /* the program's dispositions */
static bool known[SIGNALS + 1];
static struct objects programs; /* objects that were loaded when the task began */
static struct objects drivers;  /* objects that tasks have loaded */

static bool signals_contains(const struct objects *objects, const struct object *object)
{
    for (size_t i = 0; i < objects->count; i++) {
        if (objects->object[i].address == object->address &&
            objects->object[i].headers == object->headers)
            return true;
    }
    return false;
}

static void signals_add_object(struct objects *objects, const struct object *object)
{
    if (objects->count == objects->capacity) {
        size_t capacity = 2 * objects->capacity + 64;
        struct object *larger = realloc(objects->object, capacity * sizeof *larger);
        if (larger == NULL) {
            objects->failed = true;
            return;
        }
        objects->object = larger;
        objects->capacity = capacity;
    }
    objects->object[objects->count++] = *object;
}

static int note_program(struct dl_phdr_info *info, size_t size, void *unused)
{
    const struct object object = {info->dlpi_addr, info->dlpi_phdr};
    (void)size;
    (void)unused;
    if (!signals_contains(&drivers, &object))
        signals_add_object(&programs, &object);
    return 0;
}

static int note_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
    const struct object object = {info->dlpi_addr, info->dlpi_phdr};
    (void)size;
    (void)unused;
    if (!signals_contains(&programs, &object) && !signals_contains(&drivers, &object))
        signals_add_object(&drivers, &object);
    return 0;
}

struct owner {
    uintptr_t address;
    bool found, is_driver;
};

static int find_owner(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct owner *owner = argument;
    const struct object object = {info->dlpi_addr, info->dlpi_phdr};
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum && !owner->found; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr;
        owner->found = header->p_type == PT_LOAD && owner->address >= begin &&
                       owner->address < begin + header->p_memsz;
    }
    owner->is_driver = owner->found && !signals_contains(&programs, &object);
    return owner->found;
}

static bool has_handler(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

static bool is_default(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) == 0 && action->sa_handler == SIG_DFL;
}

/* Forks wait meanwhile: in a child forked now the linker's lock would stay held for ever. */
static void iterate_objects(int (*callback)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    clb_load_begin();
    dl_iterate_phdr(callback, argument);
    clb_load_end();
}

/* True for a handler of a driver. One outside of all objects counts as the program's: a
 * just-in-time compiler has made it. */
static bool signals_is_drivers(const struct sigaction *action)
{
    struct owner owner = {.address = (action->sa_flags & SA_SIGINFO) != 0
                                         ? (uintptr_t)action->sa_sigaction
                                         : (uintptr_t)action->sa_handler};
    if (!has_handler(action) || programs.failed)
        return false;
    iterate_objects(find_owner, &owner);
    return owner.is_driver;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    /* sigaction sets only 64 signals of the mask, the rest of sa_mask is undefined. */
    return a->sa_flags == b->sa_flags && a->sa_handler == b->sa_handler &&
           memcmp(&a->sa_mask, &b->sa_mask, SIGNALS / 8) == 0;
}

/* Replace the driver's handler by the program's. When the program has installed another handler
 * since the driver's one was seen, that one is kept. */
static void put_back(int number)
{
    struct sigaction replaced;
    if (sigaction(number, &program[number], &replaced) != 0 || signals_is_drivers(&replaced))
        return;
    program[number] = replaced;
    sigaction(number, &replaced, NULL);
}

static void look_at_dispositions(void)
{
    for (int number = 1; number <= SIGNALS; number++) {
        struct sigaction now;
        if (!known[number] || sigaction(number, NULL, &now) != 0 || is_same(&now, &program[number]))
            continue;
        if (signals_is_drivers(&now))
            put_back(number);
        else
            program[number] = now;
    }
}

static bool no_program;

void clb_signals_have_no_program(void)
{
    no_program = true;
}

void clb_signals_begin_task(void)
{
    if (no_program)
        return;
    pthread_mutex_lock(&task_lock);
    programs.count = 0;
    programs.failed = false;
    iterate_objects(note_program, NULL);
    for (int number = 1; number <= SIGNALS; number++)
        known[number] = sigaction(number, NULL, &program[number]) == 0;
    pthread_mutex_unlock(&task_lock);
    atomic_store(&task_runs, true);
    take();
    pthread_cond_signal(&wake);
    clb_unlock(&lock);
}

void clb_signals_end_task(void)
{
    if (no_program)
        return;
    atomic_store(&task_runs, false);
    pthread_mutex_lock(&task_lock);
    iterate_objects(note_driver, NULL);
    look_at_dispositions();
    pthread_mutex_unlock(&task_lock);
}

/* ---- the watcher ----------------------------------------------------------------------------- */

/* Pending signals that some thread inside the driver did not block itself. With `lock` held. */
static void list_awaited(sigset_t *awaited)
{
    sigset_t pending;
    sigemptyset(awaited);
    if (sigpending(&pending) != 0 || sigisemptyset(&pending))
        return;
    for (int i = 0; i < MAX_THREADS; i++) {
        for (int number = 1; threads[i].used && number <= SIGNALS; number++) {
            if (sigismember(&pending, number) == 1 && sigismember(&threads[i].mask, number) == 0)
                sigaddset(awaited, number);
        }
    }
}

/* Unblock those of the signals that have the default disposition, so that the kernel takes the
 * default action now. */
static void let_defaults_through(const sigset_t *awaited)
{
    sigset_t defaults;
    sigemptyset(&defaults);
    for (int number = 1; number <= SIGNALS; number++) {
        struct sigaction now;
        if (sigismember(awaited, number) == 1 && sigaction(number, NULL, &now) == 0 &&
            is_default(&now))
            sigaddset(&defaults, number);
    }
    if (sigisemptyset(&defaults))
        return;
    pthread_sigmask(SIG_UNBLOCK, &defaults, NULL);
    pthread_sigmask(SIG_BLOCK, &defaults, NULL);
}

/* With `lock` held; false when nobody has woken the watcher. */
static bool sleep_for(long nanoseconds)
{
    const struct timespec until = clb_time_of(clb_now() + 1e-9 * (double)nanoseconds);
    return pthread_cond_clockwait(&wake, &lock.mutex, CLOCK_MONOTONIC, &until) == 0;
}

/* The names of the shim's threads begin so. Threads that a driver makes in them inherit the name;
 * of a driver that gives them other names nothing is known, and the program does not end. */
static bool is_named_ours(long id)
{
    static const char ours[] = "clblas-";
    char path[64], name[sizeof ours - 1];
    snprintf(path, sizeof path, "/proc/self/task/%ld/comm", id);
    const int fd = clb_file_open(path, O_RDONLY, 0);
    const bool found = fd >= 0 && read(fd, name, sizeof name) == (ssize_t)sizeof name &&
                       memcmp(name, ours, sizeof name) == 0;
    if (fd >= 0)
        close(fd);
    return found;
}

/* The state of a thread of this process as in /proc/PID/stat, 'Z' for a main thread that has ended
 * before others. */
static char thread_state(int id)
{
    char file[64], line[256];
    snprintf(file, sizeof file, "/proc/self/task/%d/stat", id);
    const int fd = clb_file_open(file, O_RDONLY, 0);
    const ssize_t length = fd < 0 ? -1 : read(fd, line, sizeof line - 1);
    if (fd >= 0)
        close(fd);
    line[length > 0 ? length : 0] = '\0';
    const char *end = strrchr(line, ')');
    return end != NULL && end[1] == ' ' ? end[2] : '\0';
}

static bool only_ours_are_left(void)
{
    const pid_t main_thread = getpid();
    if (thread_state(main_thread) != 'Z')
        return false;
    const int fd = clb_file_open("/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
    DIR *tasks = fd < 0 ? NULL : fdopendir(fd);
    bool ours = tasks != NULL;
    for (struct dirent *task; ours && (task = readdir(tasks)) != NULL;) {
        const long id = strtol(task->d_name, NULL, 10);
        ours = task->d_name[0] == '.' || id == main_thread || is_named_ours(id);
    }
    if (tasks != NULL)
        closedir(tasks);
    else if (fd >= 0)
        close(fd);
    return ours;
}

static void end_with_last_thread(void)
{
    sigset_t none;
    if (!only_ours_are_left())
        return;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    exit(0);
}

static void *watch(void *unused)
{
    double last = 0;
    int idle = 0;
    (void)unused;
    pthread_setname_np(pthread_self(), "clblas-shim");
    take();
    for (;;) {
        sigset_t awaited;
        bool task = atomic_load(&task_runs), looks = clb_now() - last > 0.9e-9 * THREAD_INTERVAL_NS;
        idle = task || thread_count > 0 ? 0 : idle + 1;
        if (looks)
            list_awaited(&awaited);
        clb_unlock(&lock);
        if (task && pthread_mutex_trylock(&task_lock) == 0) {
            if (atomic_load(&task_runs))
                look_at_dispositions();
            pthread_mutex_unlock(&task_lock);
        }
        if (looks) {
            let_defaults_through(&awaited);
            last = clb_now();
        }
        take();
        if (idle < IDLE_LOOKS) {
            sleep_for(task ? TASK_INTERVAL_NS : THREAD_INTERVAL_NS);
        } else if (thread_count == 0 && !atomic_load(&task_runs)) {
            asleep = true;
            bool woken = sleep_for(SLEEP_NS);
            asleep = false;
            idle = woken ? 0 : IDLE_LOOKS;
            clb_unlock(&lock);
            end_with_last_thread();
            take();
        }
    }
    return NULL;
}

clb_status clb_thread_start(size_t stack, void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t block, before;
    fenv_t environment;
    if (pthread_attr_init(&attributes) != 0)
        return CLB_ERR_NOMEM;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack);
    list_asynchronous(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    int error = pthread_create(&thread, &attributes, run, argument);
    fesetenv(&environment);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0 ? CLB_OK : CLB_ERR_NOMEM;
}

clb_status clb_signals_watch(void)
{
    take();
    if (!watcher_exists)
        watcher_exists = clb_thread_start((size_t)256 << 10, watch, NULL) == CLB_OK;
    clb_status status = watcher_exists ? CLB_OK : CLB_ERR_NOMEM;
    clb_unlock(&lock);
    return status;
}

/* ---- threads inside the driver --------------------------------------------------------------- */

/* Register the calling thread, which has blocked the asynchronous signals; `mask` is its own mask.
 * Returns the slot for leave_driver. */
static int enter_driver(const sigset_t *mask)
{
    int slot = 0;
    take();
    while (slot < MAX_THREADS && threads[slot].used)
        slot++;
    if (slot < MAX_THREADS) {
        threads[slot].used = true;
        threads[slot].mask = *mask;
        thread_count++;
    }
    if (asleep)
        pthread_cond_signal(&wake);
    clb_unlock(&lock);
    return slot;
}

static void leave_driver(int slot)
{
    take();
    if (slot < MAX_THREADS && threads[slot].used) { /* false in a forked child */
        threads[slot].used = false;
        thread_count--;
    }
    clb_unlock(&lock);
}

/* ---- the guard ------------------------------------------------------------------------------- */

struct saved_thread {
    sigset_t mask;
    fenv_t environment;
    int cancel_state;
    int error;
    int slot;
};

_Static_assert(sizeof(struct saved_thread) <= sizeof(struct clb_host_state),
               "struct clb_host_state is too small for this platform");

void clb_host_state_save(struct clb_host_state *host_state)
{
    struct saved_thread saved;
    memset(&saved, 0, sizeof saved);
    saved.error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved.cancel_state);
    sigset_t block;
    list_asynchronous(&block);
    pthread_sigmask(SIG_BLOCK, &block, &saved.mask);
    saved.slot = enter_driver(&saved.mask);
    fegetenv(&saved.environment);
    fesetenv(FE_DFL_ENV);
    memcpy(host_state->storage, &saved, sizeof saved);
}

void clb_host_state_restore(const struct clb_host_state *host_state)
{
    struct saved_thread saved;
    memcpy(&saved, host_state->storage, sizeof saved);
    fesetenv(&saved.environment);
    leave_driver(saved.slot);
    pthread_sigmask(SIG_SETMASK, &saved.mask, NULL);
    pthread_setcancelstate(saved.cancel_state, NULL);
    errno = saved.error;
}
