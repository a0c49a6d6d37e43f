/* Resource limits: may a driver start, or compile, in this process? */
#include "start.h"

#include <link.h>
#include <poll.h>
#include <semaphore.h>
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

/* Valgrind ends a process that starts the helper (it has no clone with CLONE_VM), and lacks
 * instructions that a driver's compiler takes for this CPU (3.19). */
static bool is_under_valgrind(void)
{
    return dl_iterate_phdr(is_valgrinds, NULL) != 0;
}

const char *clb_limits_on_start(void)
{
    if (is_under_valgrind())
        return "valgrind runs the program";
    const char *obstacle = find_obstacle(ROOM_TO_START);
    return obstacle == NULL && !has_threads() ? "it may not make enough threads (ulimit -u)"
                                              : obstacle;
}

const char *clb_limits_on_build(void)
{
    return find_obstacle(ROOM_TO_BUILD);
}
