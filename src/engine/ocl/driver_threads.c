/* The threads of a driver: which they are, and a CPU for each worker of a CPU device. */
#include "start.h"
#include "host/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- which they are -------------------------------------------------------------------------- */

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

/* True for a thread of the driver: it has inherited the signal mask of the thread that starts it. A
 * thread that the program has started meanwhile will not block these three signals, which programs
 * hardly ever block. */
static bool is_drivers(pid_t id)
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

/* ---- a CPU for each worker of a CPU device --------------------------------------------------- */

/* Each is pinned to one CPU of the process. Calls are short and the workers sleep between them.
 * Linux may wake all workers on the CPU of the calling thread, and a call of some milliseconds ends
 * before Linux moves one to another CPU: on two CPUs this halves the rate (PoCL 3.1, Linux 6.1,
 * 2026-11: n = 1024 in single precision at 0.5 of OpenBLAS's rate, at 0.9 with pinned workers).
 * PoCL can pin them itself, but to the machine's CPUs instead of the process's, and not when the
 * process has fewer. */
static bool list_contains(const struct clb_thread_list *list, pid_t id)
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
        if (!list_contains(before, now.id[i]) && is_drivers(now.id[i]))
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
