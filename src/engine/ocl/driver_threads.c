/* The threads of a driver: which they are, how they are stopped where they are, and a CPU for each
 * worker of a CPU device. */
#include "ocl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
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

/* True for a thread of the driver: it has inherited the signal mask of the host_state guard. A
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

/* ---- stopped where they are ------------------------------------------------------------------ */

/* By a signal that they have not blocked, but not inside the C library or the dynamic linker, whose
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
void clb_threads_stop(void)
{
    const struct sigaction action = {.sa_sigaction = stop_here,
                                     .sa_flags = SA_SIGINFO | SA_RESTART};
    struct sigaction before;
    size_t count = 0, asked = 0, quiet = 0;
    const int self = (int)syscall(SYS_gettid);
    dl_iterate_phdr(note_system, NULL);
    clb_threads_note(&stop.threads);
    for (size_t i = 0; i < stop.threads.count; i++) {
        if (stop.threads.id[i] != self && is_drivers(stop.threads.id[i]))
            stop.threads.id[count++] = stop.threads.id[i];
    }
    stop.threads.count = count;
    sigaction(STOP_SIGNAL, &action, &before);
    for (int round = 0; round < STOP_ROUNDS && quiet < QUIET_ROUNDS; round++) {
        const size_t asked_before = asked;
        for (size_t i = 0; i < count; i++) {
            if (!atomic_load(&stop.stopped[i]))
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
