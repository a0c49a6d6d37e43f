/* What drivers need of the process: a thread on which they start and compile, resource limits that
 * let them, and a CPU for each of their worker threads. */
#include "ocl.h"
#include "base/symbols.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
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

/* ---- threads of the process ------------------------------------------------------------------ */

/* Ids of this process's threads. */
static size_t list_threads(pid_t *ids, size_t capacity)
{
    size_t count = 0;
    int fd = clb_file_open("/proc/self/task", O_RDONLY | O_DIRECTORY, 0);
    DIR *tasks = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; tasks != NULL && count < capacity;) {
        entry = readdir(tasks);
        if (entry == NULL)
            break;
        long id = strtol(entry->d_name, NULL, 10);
        if (id > 0)
            ids[count++] = (pid_t)id;
    }
    if (tasks != NULL)
        closedir(tasks);
    else if (fd >= 0)
        close(fd);
    return count;
}

/* True for a thread of the driver: it has inherited the signal mask of the host_state guard. A
 * thread that the program has started meanwhile will not block these three signals, which programs
 * hardly ever block. */
static bool affinity_is_drivers(pid_t id)
{
    char path[64], line[128];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%ld/status", (long)id);
    FILE *file = clb_file_read(path);
    bool known = false;
    while (file != NULL && !known && fgets(line, sizeof line, file) != NULL)
        known = sscanf(line, "SigBlk: %llx", &blocked) == 1;
    if (file != NULL)
        fclose(file);
    return known && (blocked >> (SIGPROF - 1) & 1) != 0 && (blocked >> (SIGURG - 1) & 1) != 0 &&
           (blocked >> (SIGWINCH - 1) & 1) != 0;
}

void clb_threads_note(struct clb_thread_list *before)
{
    before->count = list_threads(before->id, CLB_COUNT_OF(before->id));
}

/* ---- the end of the process ------------------------------------------------------------------
 *
 * Destructors of drivers and compilers must not run while the driver thread, or a thread of the
 * driver that works for it, is inside them (seen with PoCL 3.1: "pure virtual method called"). So
 * before they run, the driver thread stops at the next gate, where nothing is outstanding. */

/* The longest that the end of the process waits: for a gate between programs and launches, and for
 * the end of the driver's start, during which the dynamic linker is locked. What has taken longer
 * than a step should is a compiler, for which it does not wait. */
#define LONGEST_STEP_SECONDS  0.025
#define STEP_SECONDS          0.05
#define LONGEST_START_SECONDS 10

/* A compiler in this process takes longer. Then the driver's threads are stopped where they are, by
 * a signal that they have not blocked, but not inside the C library or the dynamic linker, whose
 * locks exit needs. */
#define STOP_SIGNAL  SIGSYS
#define STOP_ROUNDS  40
#define QUIET_ROUNDS 8

static struct {
    struct clb_thread_list threads;
    atomic_bool stopped[CLB_COUNT_OF(((struct clb_thread_list *)0)->id)];
    atomic_size_t answers;
    struct {
        uintptr_t begin, end;
    } system[16]; /* segments of the C library and the dynamic linker */
    size_t segments;
} stop;

static int note_system(struct dl_phdr_info *info, size_t size, void *unused)
{
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash != NULL ? slash + 1 : "";
    (void)size;
    (void)unused;
    if (strncmp(name, "libc.so", 7) != 0 && strncmp(name, "ld-linux", 8) != 0 &&
        strncmp(name, "libpthread", 10) != 0)
        return 0;
    for (size_t i = 0; i < info->dlpi_phnum && stop.segments < CLB_COUNT_OF(stop.system); i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || (header->p_flags & PF_X) == 0)
            continue;
        stop.system[stop.segments].begin = info->dlpi_addr + header->p_vaddr;
        stop.system[stop.segments++].end = info->dlpi_addr + header->p_vaddr + header->p_memsz;
    }
    return 0;
}

/* True where the signal has interrupted code of the C library. */
static bool is_in_system(const ucontext_t *context)
{
#if defined(__x86_64__)
    uintptr_t at = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    uintptr_t at = (uintptr_t)context->uc_mcontext.pc;
#else
    uintptr_t at = 0;
    (void)context;
    return true;
#endif
    for (size_t i = 0; i < stop.segments; i++) {
        if (at >= stop.system[i].begin && at < stop.system[i].end)
            return true;
    }
    return false;
}

static void stop_here(int number, siginfo_t *info, void *context)
{
    const int error = errno, id = (int)syscall(SYS_gettid);
    (void)number;
    (void)info;
    bool stops = !is_in_system(context);
    for (size_t i = 0; i < stop.threads.count && stops; i++) {
        if (stop.threads.id[i] == id)
            atomic_store(&stop.stopped[i], true);
    }
    atomic_fetch_add(&stop.answers, 1);
    while (stops)
        syscall(SYS_ppoll, NULL, 0, NULL, NULL, 0);
    errno = error;
}

/* Threads that wait are not asked: what they wait for is done by those that run. It ends when none
 * has run for some rounds; a thread that is in the C library in all rounds goes on. */
static void stop_threads(void)
{
    const struct sigaction action = {.sa_sigaction = stop_here,
                                     .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction before;
    size_t count = 0, asked = 0, quiet = 0;
    const int self = (int)syscall(SYS_gettid);
    dl_iterate_phdr(note_system, NULL);
    clb_threads_note(&stop.threads);
    for (size_t i = 0; i < stop.threads.count; i++) {
        if (stop.threads.id[i] != self && affinity_is_drivers(stop.threads.id[i]))
            stop.threads.id[count++] = stop.threads.id[i];
    }
    stop.threads.count = count;
    sigaction(STOP_SIGNAL, &action, &before);
    for (int round = 0; round < STOP_ROUNDS && quiet < QUIET_ROUNDS; round++) {
        const size_t asked_before = asked;
        for (size_t i = 0; i < count; i++) {
            if (!atomic_load(&stop.stopped[i]) && clb_thread_is_ready(stop.threads.id[i]))
                asked += syscall(SYS_tgkill, getpid(), stop.threads.id[i], STOP_SIGNAL) == 0;
        }
        quiet = asked == asked_before ? quiet + 1 : 0;
        if (quiet > 0)
            usleep(250);
        for (int wait = 0; wait < 20 && atomic_load(&stop.answers) < asked; wait++)
            usleep(250);
    }
    /* A thread that has not had the time to answer would end the process. */
    if (atomic_load(&stop.answers) >= asked)
        sigaction(STOP_SIGNAL, &before, NULL);
}

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
        stop_threads();
    else
        clb_enqueuer_await_idle(LONGEST_STEP_SECONDS);
    pthread_setcancelstate(cancel, NULL);
}

_Noreturn void clb_driver_exit(int status)
{
    void (*next)(int status);
    driver_stop();
    /* The linker's lock, which this takes, is taken by the C library's exit too. */
    const void *address = clb_next_symbol("exit");
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

/* Where the shim's own exit is not reached (src/interface/exit.c), the C library's calls
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
    if (begins && clb_loaded_symbol("exit") == clb_next_symbol("exit") &&
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

/* The child has neither the driver thread nor the threads that wait for tasks. */
static void driver_forget_in_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    static const pthread_cond_t unwaited = PTHREAD_COND_INITIALIZER;
    lock = unlocked;
    arrived = ended = unwaited;
    first = last = NULL;
    exists = in_driver = starts = closing = stopped = false;
}

static void driver_watch_forks(void)
{
    clb_fork_on_child(driver_forget_in_child);
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
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, driver_watch_forks);
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

/* ---- limits: may a driver start, or compile, in this process? -------------------------------- */

/* Drivers and the compilers in them end the process when they can't map memory, open a file, make a
 * thread or write a file completely (seen with PoCL 3.1 and LLVM 15: std::bad_alloc, an assertion
 * in pthread_scheduler_init, "LLVM ERROR: IO failure on output stream", SIGXFSZ). So the limits are
 * checked before a driver starts and before each build. */
/* Address space and data that a start and a build need, and the largest file that they write. */
#define ROOM_TO_START ((uint64_t)1 << 30)
#define ROOM_TO_BUILD ((uint64_t)512 << 20)
#define LARGEST_FILE  ((uint64_t)64 << 20)

#define DESCRIPTORS    12
#define MOST_LOOKED_AT 1024 /* descriptors; a limit above twice this is not checked */

/* Threads that a driver makes for a CPU device: one for each CPU, and FURTHER_THREADS. */
#define FURTHER_THREADS 4
#define MOST_THREADS    1024

static uint64_t limit_of(int resource)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return (uint64_t)limit.rlim_cur;
}

/* Bytes mapped in all, and as private data; UINT64_MAX, which leaves no room, without /proc. */
static void read_mapped(uint64_t *all, uint64_t *data)
{
    unsigned long long size, text, library, private;
    FILE *file = fopen("/proc/self/statm", "re");
    *all = *data = UINT64_MAX;
    if (file == NULL)
        return;
    if (fscanf(file, "%llu %*u %*u %llu %llu %llu", &size, &text, &library, &private) == 4) {
        *all = size * (uint64_t)sysconf(_SC_PAGESIZE);
        *data = private * (uint64_t)sysconf(_SC_PAGESIZE);
    }
    fclose(file);
}

static bool limits_fits(uint64_t used, uint64_t wanted, uint64_t limit)
{
    return used <= limit && wanted <= limit - used;
}

static bool has_memory(uint64_t wanted)
{
    uint64_t all, data, most = limit_of(RLIMIT_AS), most_data = limit_of(RLIMIT_DATA);
    if (most == UINT64_MAX && most_data == UINT64_MAX)
        return true;
    read_mapped(&all, &data);
    return (most == UINT64_MAX || limits_fits(all, wanted, most)) &&
           (most_data == UINT64_MAX || limits_fits(data, wanted, most_data));
}

/* poll(2) tells which descriptors are open, and needs no descriptor itself. */
static bool has_descriptors(void)
{
    struct pollfd looked_at[MOST_LOOKED_AT];
    uint64_t most = limit_of(RLIMIT_NOFILE);
    nfds_t count = most < MOST_LOOKED_AT ? (nfds_t)most : MOST_LOOKED_AT;
    size_t free = 0;
    for (nfds_t i = 0; i < count; i++)
        looked_at[i] = (struct pollfd){.fd = (int)i};
    if (most > 2 * MOST_LOOKED_AT)
        return true;
    if (poll(looked_at, count, 0) < 0)
        return false;
    for (nfds_t i = 0; i < count; i++)
        free += (looked_at[i].revents & POLLNVAL) != 0;
    return free + (size_t)(most - count) >= DESCRIPTORS;
}

/* Can the process make as many threads as a driver, all at the same time? */
struct gathering {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t here;
    bool over;
};

static void *attend(void *argument)
{
    struct gathering *gathering = argument;
    pthread_mutex_lock(&gathering->lock);
    while (!gathering->over)
        pthread_cond_wait(&gathering->changed, &gathering->lock);
    gathering->here--;
    pthread_cond_broadcast(&gathering->changed);
    pthread_mutex_unlock(&gathering->lock);
    return NULL;
}

/* The limits of the user and of control groups count different things, so the threads are made. */
static bool has_threads(void)
{
    static struct gathering gathering = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                         .changed = PTHREAD_COND_INITIALIZER};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = clb_min((cpus > 0 ? (size_t)cpus : 1) + FURTHER_THREADS, MOST_THREADS);
    pthread_mutex_lock(&gathering.lock);
    gathering.over = false;
    while (gathering.here < wanted &&
           clb_thread_start((size_t)256 << 10, attend, &gathering) == CLB_OK)
        gathering.here++;
    bool all = gathering.here == wanted;
    gathering.over = true;
    pthread_cond_broadcast(&gathering.changed);
    while (gathering.here > 0)
        pthread_cond_wait(&gathering.changed, &gathering.lock);
    pthread_mutex_unlock(&gathering.lock);
    return all;
}

static const char *find_obstacle(uint64_t memory)
{
    if (limit_of(RLIMIT_FSIZE) < LARGEST_FILE)
        return "its files may not be large enough (ulimit -f)";
    if (!has_memory(memory))
        return "it may not map enough memory (ulimit -v, -d)";
    if (!has_descriptors())
        return "it may not open enough files (ulimit -n)";
    return NULL;
}

const char *clb_limits_on_start(void)
{
    const char *obstacle = find_obstacle(ROOM_TO_START);
    return obstacle == NULL && !has_threads() ? "it may not make enough threads (ulimit -u)"
                                              : obstacle;
}

const char *clb_limits_on_build(void)
{
    return find_obstacle(ROOM_TO_BUILD);
}

/* ---- the worker threads of a CPU device ------------------------------------------------------ */

/* Each is pinned to one CPU of the process. Calls are short and the workers sleep between them.
 * Linux may wake all workers on the CPU of the calling thread, and a call of some milliseconds ends
 * before Linux moves one to another CPU: on two CPUs this halves the rate (PoCL 3.1, Linux 6.1,
 * 2026-11: n = 1024 in single precision at 0.5 of OpenBLAS's rate, at 0.9 with pinned workers).
 * PoCL can pin them itself, but to the machine's CPUs instead of the process's, and not when the
 * process has fewer. */
static bool affinity_contains(const struct clb_thread_list *list, pid_t id)
{
    for (size_t i = 0; i < list->count; i++) {
        if (list->id[i] == id)
            return true;
    }
    return false;
}

/* The n-th CPU of a set. */
static size_t nth_cpu(const cpu_set_t *set, size_t n)
{
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, set) && n-- == 0)
            return cpu;
    }
    return 0;
}

void clb_threads_pin(const struct clb_device *device, const struct clb_thread_list *before)
{
    static struct clb_thread_list now; /* static: the driver starts only once at a time */
    cpu_set_t allowed;
    size_t workers = 0;
    if ((device->type & CL_DEVICE_TYPE_CPU) == 0 ||
        clb_device_has(device, CLB_QUIRK_PINS_WORKERS) ||
        sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    clb_threads_note(&now);
    for (size_t i = 0; i < now.count; i++) {
        if (!affinity_contains(before, now.id[i]) && affinity_is_drivers(now.id[i]))
            now.id[workers++] = now.id[i];
    }
    /* With fewer CPUs than workers, the system decides which workers share a CPU. */
    if (workers < 2 || workers > (size_t)CPU_COUNT(&allowed))
        return;
    for (size_t i = 0; i < workers; i++) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(nth_cpu(&allowed, i), &one);
        if (sched_setaffinity(now.id[i], sizeof one, &one) != 0)
            return;
    }
    clb_log(CLB_LOG_INFO, "%zu worker threads of the driver have a CPU each", workers);
}
