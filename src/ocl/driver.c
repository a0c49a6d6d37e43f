/* What drivers need of the process: a thread on which they start and compile, resource limits that
 * let them, and a CPU for each of their worker threads. */
#include "ocl.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- the driver thread: starts the driver, builds programs and checks kernels ---------------- */

/* These tasks need more stack than a thread of the program may have (PoCL's device query uses
 * 64 KiB, LLVM recurses), may compile for many seconds, and are those in which drivers install
 * signal handlers. The calling thread only waits, so signals can end the program meanwhile. One
 * thread, which lives as long as the process, runs one task after the other.
 *
 * A caller holds no lock while it waits: the task itself takes the locks that it needs. */
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
