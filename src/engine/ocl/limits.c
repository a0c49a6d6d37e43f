/* Resource limits: may a driver start, or compile, in this process? */
#include "device.h"
#include "start.h"
#include "host/process.h"

#include <limits.h>
#include <link.h>
#include <poll.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

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

static uint64_t limit_of(int resource)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return (uint64_t)limit.rlim_cur;
}

void clb_proc_read(const char *path, const char *format, ...)
{
    va_list numbers;
    FILE *file = clb_file_read(path);
    if (file == NULL)
        return;
    va_start(numbers, format);
    (void)!vfscanf(file, format, numbers);
    va_end(numbers);
    fclose(file);
}

uint64_t clb_proc_available(void)
{
    unsigned long kib = 0;
    clb_proc_read("/proc/meminfo", "MemTotal: %*u kB MemFree: %*u kB MemAvailable: %lu", &kib);
    return kib == 0 ? UINT64_MAX : (uint64_t)kib << 10;
}

/* Of what is mapped in all, and as private data; without /proc there is no room. */
static bool has_memory(uint64_t wanted)
{
    const uint64_t most = limit_of(RLIMIT_AS), most_data = limit_of(RLIMIT_DATA);
    const uint64_t page = (uint64_t)getpagesize();
    unsigned long all = ULONG_MAX, data = ULONG_MAX;
    if (most == UINT64_MAX && most_data == UINT64_MAX)
        return true;
    clb_proc_read("/proc/self/statm", "%lu %*u %*u %*u %*u %lu", &all, &data);
    return data != ULONG_MAX && (all * page + wanted <= most) &&
           (data * page + wanted <= most_data);
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

static sem_t may_end, has_ended;

static void *await_others(void *unused)
{
    while (sem_wait(&may_end) != 0)
        continue;
    sem_post(&has_ended);
    return unused;
}

/* Can the process make as many threads as a driver, all at the same time? The limits of the user
 * and of control groups count different things, so the threads are made. */
static bool has_threads(void)
{
    const size_t wanted = (size_t)get_nprocs() + FURTHER_THREADS;
    size_t made = 0;
    sem_init(&may_end, 0, 0);
    sem_init(&has_ended, 0, 0);
    while (made < wanted && clb_thread_start((size_t)256 << 10, await_others, NULL) == CLB_OK)
        made++;
    for (size_t i = 0; i < made; i++)
        sem_post(&may_end);
    for (size_t i = 0; i < made;)
        i += sem_wait(&has_ended) == 0;
    return made == wanted;
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

static int is_valgrinds(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    return strstr(info->dlpi_name, "/vgpreload_") != NULL;
}

const char *clb_limits_on_start(void)
{
    /* It ends a process that starts the helper (it has no clone with CLONE_VM), and lacks
     * instructions that a driver's compiler takes for this CPU (3.19). */
    if (dl_iterate_phdr(is_valgrinds, NULL) != 0)
        return "valgrind runs the program";
    const char *obstacle = find_obstacle(ROOM_TO_START);
    return obstacle == NULL && !has_threads() ? "it may not make enough threads (ulimit -u)"
                                              : obstacle;
}

const char *clb_limits_on_build(void)
{
    return find_obstacle(ROOM_TO_BUILD);
}
