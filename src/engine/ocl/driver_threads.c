/* SPDX-License-Identifier: BSD-3-Clause
 * The threads of a driver: which they are, and a CPU for each worker of a CPU device. */
#include "start.h"
#include "host/process.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>

/* ---- which they are ---- */

void clb_threads_note(struct clb_thread_list *list)
{
    DIR *tasks = opendir("/proc/self/task");
    list->count = 0;
    for (struct dirent *entry; tasks != NULL && list->count < CLB_COUNT_OF(list->id) &&
                               (entry = readdir(tasks)) != NULL;) {
        const int id = atoi(entry->d_name);
        if (id > 0)
            list->id[list->count++] = id;
    }
    if (tasks != NULL)
        closedir(tasks);
}

static bool list_contains(const struct clb_thread_list *list, int id)
{
    size_t i = 0;
    while (i < list->count && list->id[i] != id)
        i++;
    return i < list->count;
}

/* A thread of the driver has the signal mask of the thread that starts it; one that the program has
 * started meanwhile hardly ever blocks these three signals. */
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

/* ---- a CPU for each worker of a CPU device ---- */

/* Workers sleep between calls, and Linux may wake them all on the calling thread's CPU. A call of
 * some milliseconds ends before one is moved: on two CPUs this halves the rate (PoCL 3.1, Linux
 * 6.1). PoCL can pin them itself, but to the machine's CPUs, and not when the process has fewer. */
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
    /* With fewer CPUs than workers, the system decides which of them share one. */
    if (workers < 2 || workers > (size_t)CPU_COUNT(&allowed))
        return;
    for (size_t i = 0, cpu = 0; i < workers; i++, cpu++) {
        cpu_set_t one;
        while (!CPU_ISSET(cpu, &allowed))
            cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(now.id[i], sizeof one, &one) != 0)
            return;
    }
    clb_log(CLB_LOG_INFO, "%zu worker threads of the driver have a CPU each", workers);
}
