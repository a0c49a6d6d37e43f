/* Do limits let a driver start, or compile, here? SPDX-License-Identifier: BSD-3-Clause */
#include "start.h"
#include "host/process.h"

#include <fcntl.h>
#include <link.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

/* Drivers and their compilers end the process when they can't map memory, open a file, make a
 * thread or write a file completely (PoCL 3.1, LLVM 15). So the limits are checked before a driver
 * starts and before each build. */

/* Address space and data that a start and a build need, and the largest file that they write. */
#define ROOM_TO_START ((size_t)1 << 30)
#define ROOM_TO_BUILD ((size_t)512 << 20)
#define LARGEST_FILE  ((rlim_t)64 << 20)

#define DESCRIPTORS 12

/* Threads that a driver makes for a CPU device beside one for each CPU. */
#define FURTHER_THREADS 4

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

/* Asking for a descriptor's flags needs no descriptor itself. */
static bool has_descriptors(void)
{
    struct rlimit most;
    int free = 0;
    if (getrlimit(RLIMIT_NOFILE, &most) != 0)
        return true;
    for (int fd = 0; (rlim_t)fd < most.rlim_cur && free < DESCRIPTORS; fd++)
        free += fcntl(fd, F_GETFD) < 0;
    return free >= DESCRIPTORS;
}

static struct clb_mutex gate = CLB_MUTEX_INITIALIZER;
static sem_t has_ended;

static void *await_others(void *unused)
{
    clb_lock(&gate);
    clb_unlock(&gate);
    sem_post(&has_ended);
    return unused;
}

/* The limits of the user and of control groups count different things, so as many threads as a
 * driver's are made, all at the same time. */
static bool has_threads(void)
{
    const size_t wanted = (size_t)get_nprocs() + FURTHER_THREADS;
    size_t made = 0;
    sem_init(&has_ended, 0, 0);
    clb_lock(&gate);
    while (made < wanted && clb_thread_start((size_t)256 << 10, await_others, NULL) == CLB_OK)
        made++;
    clb_unlock(&gate);
    for (size_t i = 0; i < made;)
        i += sem_wait(&has_ended) == 0;
    return made == wanted;
}

static const char *find_obstacle(size_t memory)
{
    struct rlimit file;
    if (getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur < LARGEST_FILE)
        return "its files may not be large enough (ulimit -f)";
    if (!clb_host_has_room(memory))
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
