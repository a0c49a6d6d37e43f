/* clblas-shim-probe: the helper process that meets drivers. Started by the library; not for people.
 *
 *   clblas-shim-probe [--cpu SECONDS] [--memory MIB] [--stall SECONDS] [--ahead CHILDREN]
 *                     STEP[,STEP]...[@P:D] | list
 *
 * This process opens no driver. A child, the builder, opens it and builds, checks and stores one
 * step after the other, behind the first only those without a record; beside it another, the
 * loader, loads what is stored and checks it again. Where there are CPUs for them, others build
 * programs of later steps ahead. What a child dies of, by itself or at a limit,
 * is marked, and it begins anew at that step without it. The step "devices" only opens drivers. One
 * helper works at a time: it holds a lock in the cache. SPDX-License-Identifier: BSD-3-Clause
 *
 * Results are records in the cache (src/engine/ocl/helper.c); the exit status only says whether all
 * steps have come to an end. For the clblas-shim command a line on stdout has the name of each and
 * its status. `list` stores nothing and prints one JSON object. */
#include "engine/device_blas/device_blas.h"
#include "engine/ocl/helper.h"
#include "engine/ocl/start.h"
#include "engine/ocl/store.h"
#include "engine/device_blas/potf2.h"
#include "host/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define LONGEST_LOCK  900.0 /* seconds that another helper may hold the lock */
#define LOOK_NS       50000000
#define WAIT_US       5000
#define MOST_ATTEMPTS 64 /* marks */
#define LAST_CPU      60 /* seconds of CPU time that a child has when the program has ended */
#define MOST_MEMORY   ((uint64_t)4 << 30)
#define PROGRESS      0.05 /* seconds of CPU time; a thread that only looks at times uses less */

/* What a child may use, of CPU time in each step; options change it, for tests. */
static struct limits {
    double cpu, stall;
    uint64_t memory;
    int ahead; /* children that build ahead; -1: by CPUs */
} limits = {.cpu = 300, .stall = 60, .ahead = -1};

static struct clb_helper_shared *shared;
static sigset_t awaited; /* SIGCHLD, and SIGTERM when the program has ended */

static void await_signal(void)
{
    if (sigtimedwait(&awaited, NULL, &(struct timespec){.tv_nsec = LOOK_NS}) == SIGTERM)
        shared->stop = true;
}

/* ---- the lock ---- */

static int lock_file = -1;

/* Programs that wait look at the time of the file. */
static void show_life(void)
{
    static double last;
    const double now = clb_now();
    if (lock_file >= 0 && now - last >= 1 && pwrite(lock_file, "\n", 1, 0) == 1)
        last = now;
}

/* 0 when this process has it, otherwise the exit status. It is held until this process ends; its
 * children inherit it, but they end first. Where files can't be locked at all, helpers may do a
 * step twice, which harms nobody. */
static int take_lock(void)
{
    char path[PATH_MAX];
    double until = clb_now() + LONGEST_LOCK;
    if (clb_helper_lock_path(path, sizeof path) && access(clb_cache_directory(), W_OK) == 0)
        lock_file = clb_file_open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
    if (lock_file < 0)
        return CLB_HELPER_EXIT_NO_LOCK;
    while (flock(lock_file, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR) {
            clb_log(CLB_LOG_INFO, "%s can't be locked: %s", path, clb_file_error(errno));
            break;
        }
        if (clb_now() > until || shared->stop)
            return CLB_HELPER_EXIT_BUSY;
        await_signal();
    }
    show_life();
    shared->lock_file = lock_file;
    return 0;
}

/* ---- what a child uses ---- */

static double read_cpu_seconds(pid_t child)
{
    clockid_t clock;
    struct timespec used = {0};
    if (clock_getcpuclockid(child, &clock) == 0)
        clock_gettime(clock, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

static uint64_t read_resident(pid_t child)
{
    char path[64];
    unsigned long pages = 0;
    snprintf(path, sizeof path, "/proc/%ld/statm", (long)child);
    clb_proc_read(path, "%*u %lu", &pages);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* ---- what is wanted and done ---- */

static char *wanted[CLB_MOST_STEPS]; /* steps, most wanted first */
static char *drivers;                /* clb_drivers_describe */
static double begun;                 /* when this helper was */
static pid_t other;                  /* looks after the builder; 0: it has ended */

/* Tell what has been done since the last call. */
static void end_steps(void)
{
    static int done;
    for (; done < shared->loader.step; done++)
        printf("%s %d\n", wanted[done], shared->status[done]);
    if (other > 0 && waitpid(other, NULL, WNOHANG) == other) {
        shared->last = shared->builder.step;
        other = 0;
    }
}

/* ---- children ---- */

typedef int child_task(void);

static char death[128]; /* what the last child that has died has died of */

static void run_child(child_task *task, struct clb_helper_child *own)
{
    const struct rlimit none = {0, 0};
    sigset_t empty;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    setrlimit(RLIMIT_CORE, &none);
    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);
    clb_signals_have_no_program();
    dup2(STDERR_FILENO, STDOUT_FILENO); /* drivers print */
    clb_helper_become(own == &shared->loader    ? CLB_HELPER_LOADS
                      : own == &shared->builder ? CLB_HELPER_BUILDS
                                                : CLB_HELPER_AHEAD,
                      shared);
    clb_helper_child = own;
    int status = task();
    own->finished = true;
    _exit(status);
}

/* The child's exit status, or -1 where it has died. */
static int judge_end(int status, const char *killed, bool finished)
{
    if (killed == NULL && WIFEXITED(status) && finished)
        return WEXITSTATUS(status);
    if (killed != NULL)
        snprintf(death, sizeof death, "%s", killed);
    else if (WIFEXITED(status))
        snprintf(death, sizeof death, "it ended the process (status %d)", WEXITSTATUS(status));
    else
        snprintf(death, sizeof death, "it crashed (%s)", strsignal(WTERMSIG(status)));
    return -1;
}

/* Run a task in a child within the limits; returns as judge_end. */
static int supervise(child_task *task, struct clb_helper_child *own)
{
    const char *killed = NULL;
    double cpu = 0, progress = clb_now(), begin = 0; /* CPU time when the step began */
    /* Half of what the system has left, but for tests. */
    const uint64_t memory =
        limits.memory != 0 ? limits.memory : clb_min(clb_proc_available() / 2, MOST_MEMORY);
    int status = 0, last = own->step;
    own->current[0] = '\0';
    shared->rank = -1;
    own->finished = false;
    pid_t child = fork();
    if (child < 0) {
        snprintf(death, sizeof death, "no process can be made");
        return -1;
    }
    if (child == 0)
        run_child(task, own);
    while (waitpid(child, &status, WNOHANG) == 0) {
        await_signal();
        show_life();
        if (own == &shared->loader)
            end_steps();
        const double now = clb_now(), used = read_cpu_seconds(child);
        const int step = own->step + (shared->stop ? CLB_MOST_STEPS : 0);
        if (step != last)
            begin = used;
        last = step;
        /* A loader that waits for the builder does not hang. */
        if (used > cpu + PROGRESS || (other > 0 && own->step >= shared->builder.step)) {
            cpu = used;
            progress = now;
        }
        if (killed == NULL)
            killed = read_resident(child) > memory   ? "it took too much memory"
                     : now - progress > limits.stall ? "it hung"
                     : used - begin > (shared->stop ? LAST_CPU : limits.cpu)
                         ? "it took too much CPU time"
                         : NULL;
        if (killed != NULL)
            kill(-child, SIGKILL);
    }
    kill(-child, SIGKILL); /* what it may have started */
    return judge_end(status, killed, own->finished);
}

/* ---- in a child ---- */

static clb_status do_step(struct clb_runtime *runtime, clb_helper_step step,
                          clb_precision precision)
{
    const struct clb_gemm_variant *variant;
    clb_status status = clb_gemm_variant_get(runtime, precision, &variant);
    if (status != CLB_OK || step == CLB_STEP_GEMM)
        return status;
    if (step == CLB_STEP_DIRECT)
        return clb_direct_check(variant);
    if (variant->plain != NULL) /* a split family is for products in full only */
        variant = variant->plain;
    switch (step) {
    case CLB_STEP_SKIP:
        return clb_skip_prepare(runtime, variant);
    case CLB_STEP_SYSTEMS:
        return clb_workspace_check(runtime, variant);
    case CLB_STEP_PANELS:
        return clb_getf2_check(runtime, variant);
    case CLB_STEP_BLOCKS:
        return clb_potf2_check(runtime, variant);
    default:
        return CLB_OK;
    }
}

static int try_step(struct clb_runtime *runtime, int at)
{
    const bool loads = clb_helper_get_role() == CLB_HELPER_LOADS;
    const double begin = clb_now();
    struct clb_record record;
    clb_helper_step step;
    clb_precision precision;
    if (!clb_step_parse(wanted[at], &step, &precision)) /* "devices" */
        return CLB_OK;
    if (!runtime->device.fp64 && clb_precision_real_size(precision) == sizeof(double))
        return CLB_HELPER_NONE_SUCH;
    if (!loads && clb_step_find(&runtime->device, step, precision, &record)) {
        clb_record_free(&record);
        /* Another helper may have done it while this one waited. */
        if (at > 0 || !clb_record_is_older(&record, clb_now() - begun))
            return record.verdict == CLB_PASSED ? CLB_HELPER_READY : CLB_HELPER_FAILED;
    }
    shared->opened = true;
    clb_helper_child->chooses = step == CLB_STEP_GEMM;
    if (loads)
        (void)clb_helper_take(CLB_HELPER_DEVICE, true);
    const clb_status status = do_step(runtime, step, precision);
    if (loads)
        clb_helper_leave(CLB_HELPER_DEVICE);
    if (status == CLB_OK)
        clb_pocl_store_sums(&runtime->device);
    clb_log(status == CLB_OK ? CLB_LOG_INFO : CLB_LOG_WARN, "%s, %s: %s, %.1f s", wanted[at],
            loads ? "loaded again" : "built", clb_status_name(status), clb_now() - begin);
    /* A step has passed when it has been loaded; it has failed at either. */
    if (!shared->stop && (status != CLB_OK || loads))
        clb_step_record(&runtime->device, step, precision, status);
    return (int)status;
}

/* A step that fails is the child's last: after an error a driver may be of no use. */
static int child_steps(void)
{
    struct clb_helper_child *own = clb_helper_child;
    struct clb_runtime *runtime = NULL;
    clb_runtime_state state;
    int status = CLB_OK;
    while (status <= 0 && own->step < shared->last && !shared->stop) {
        const int step = own->step;
        const bool loads = own == &shared->loader, waits = loads && step >= shared->builder.step;
        /* The loader opens a driver that works, when there is something to build. */
        if (runtime == NULL && (!loads || shared->opened)) {
            runtime = clb_runtime_get(&state);
            for (; runtime == NULL && own->step < shared->last; own->step++)
                shared->status[own->step] = CLB_ERR_NODEVICE;
            if (shared->library[0] == '\0') /* all drivers work */
                clb_record_note((struct clb_key){CLB_RECORD_DRIVERS, drivers, NULL}, CLB_PASSED,
                                "");
        } else if (waits) {
            usleep(WAIT_US);
        } else {
            if (!loads || shared->status[step] == CLB_OK)
                shared->status[step] = status = try_step(runtime, step);
            if (!shared->stop)
                own->step++;
            kill(getppid(), SIGCHLD); /* it looks at once */
        }
    }
    return status > 0 ? status : CLB_OK;
}

/* Builds programs that the builder will want, with other processes: NVIDIA's driver builds one
 * program at a time in each, and PoCL one kernel. */
static int child_ahead(void)
{
    const struct clb_gemm_variant *variant;
    struct clb_workspace workspace;
    struct clb_getf2 panel;
    clb_runtime_state state;
    clb_helper_step step;
    clb_precision precision;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    for (int i = 0; runtime != NULL && i < shared->last; i++) {
        if (!clb_step_parse(wanted[i], &step, &precision) ||
            (!runtime->device.fp64 && clb_precision_real_size(precision) == sizeof(double)) ||
            clb_gemm_variant_get(runtime, precision, &variant) != CLB_OK)
            continue;
        if (runtime->device.unified) /* PoCL's kernels are launched, too */
            (void)clb_helper_take(CLB_HELPER_DEVICE, true);
        if (step == CLB_STEP_DIRECT)
            (void)!clb_direct_check(variant);
        clb_helper_leave(CLB_HELPER_DEVICE);
        if (variant->plain != NULL)
            variant = variant->plain;
        if (step == CLB_STEP_SYSTEMS || step == CLB_STEP_PANELS)
            (void)!clb_workspace_choose(&workspace, runtime, variant);
        if (step == CLB_STEP_PANELS)
            (void)!clb_getf2_choose(&panel, &workspace);
    }
    return CLB_OK;
}

static int child_devices(void)
{
    clb_runtime_state state;
    const struct clb_runtime *runtime = clb_runtime_get(&state);
    shared->rank = runtime != NULL ? clb_device_rank(&runtime->device) : -1;
    return runtime != NULL ? CLB_OK : CLB_ERR_NODEVICE;
}

/* ---- drivers ---- */

/* When all drivers together crash or hang, each is opened alone, and the one with the best device
 * is used from then on. Its index, or that of none. */
static size_t choose_driver(const struct clb_icd *icd, size_t count)
{
    double best = -1;
    size_t chosen = count;
    for (size_t i = 0; i < count && !shared->stop; i++) {
        memcpy(shared->library, icd[i].library, sizeof shared->library);
        if (supervise(child_devices, &shared->builder) < 0)
            clb_log(CLB_LOG_WARN, "the driver %s is not used: %s", icd[i].library, death);
        else if (shared->rank > best) {
            best = shared->rank;
            chosen = i;
        }
    }
    shared->library[0] = '\0';
    return chosen;
}

/* True when there is a record about the drivers in the end. */
static bool meet_drivers(void)
{
    struct clb_icd icd[CLB_MAX_ICDS];
    const size_t count = clb_icd_list(icd);
    int64_t verdict = CLB_PASSED;
    const char *text = "";
    shared->library[0] = '\0';
    if (supervise(child_devices, &shared->builder) < 0) {
        clb_log(CLB_LOG_WARN, "a driver does not work: %s", death);
        const size_t chosen = choose_driver(icd, count);
        verdict = chosen < count ? CLB_LIBRARY : CLB_FAILED;
        text = chosen < count ? icd[chosen].library : "none of them works";
    }
    if (!shared->stop)
        clb_record_note((struct clb_key){CLB_RECORD_DRIVERS, drivers, NULL}, verdict, text);
    return !shared->stop;
}

/* ---- list ---- */

static void add_text(struct clb_text *text, const char *name, const char *value)
{
    clb_text_addf(text, "\"%s\":", name);
    clb_text_add_quoted(text, value);
    clb_text_add(text, ",");
}

static void add_device(struct clb_text *text, const struct clb_listed_device *entry,
                       const struct clb_runtime *used)
{
    const struct clb_device *device = &entry->device;
    clb_text_addf(text, "%s{\"place\":\"%u:%u\",\"type\":\"%s\",", text->length > 0 ? "," : "",
                  entry->platform, entry->index,
                  (device->type & CL_DEVICE_TYPE_GPU) != 0           ? "GPU"
                  : (device->type & CL_DEVICE_TYPE_CPU) != 0         ? "CPU"
                  : (device->type & CL_DEVICE_TYPE_ACCELERATOR) != 0 ? "accelerator"
                                                                     : "");
    add_text(text, "name", device->name);
    add_text(text, "platform", device->platform_name);
    add_text(text, "driver", device->driver);
    add_text(text, "defect", entry->defect);
    clb_text_addf(text, "\"fp64\":%s,\"unified\":%s,\"memory\":%llu,\"units\":%u,\"taken\":%s}",
                  device->fp64 ? "true" : "false", device->unified ? "true" : "false",
                  (unsigned long long)device->memory, device->units,
                  used != NULL && used->device.id == device->id ? "true" : "false");
}

static void add_steps(struct clb_text *text, const struct clb_runtime *used)
{
    for (int i = 0; i < CLB_STEPS * CLB_PRECISIONS; i++) {
        const clb_helper_step step = (clb_helper_step)(i / CLB_PRECISIONS);
        const clb_precision precision = (clb_precision)(i % CLB_PRECISIONS);
        struct clb_record record;
        char name[64];
        if ((precision == CLB_D || precision == CLB_Z) && !used->device.fp64)
            continue;
        clb_step_format(name, sizeof name, step, precision);
        const bool found = clb_step_find(&used->device, step, precision, &record);
        clb_text_addf(text, "%s\"%s\":\"%s\"", text->length > 0 ? "," : "", name,
                      !found                         ? ""
                      : record.verdict == CLB_PASSED ? "passed"
                                                     : "failed");
        clb_record_free(&record);
    }
}

/* Leaves "devices":[...],"steps":{...} for the helper. */
static int child_list(void)
{
    static struct clb_listed_device list[CLB_MAX_DEVICES];
    clb_runtime_state state;
    struct clb_text devices = {0}, steps = {0};
    const struct clb_runtime *used = clb_runtime_get(&state);
    if (used == NULL && clb_cl_load(shared->library[0] != '\0' ? shared->library : NULL) != CLB_OK)
        return CLB_ERR_NODEVICE;
    size_t count = clb_device_list(list, CLB_COUNT_OF(list));
    for (size_t i = 0; i < count; i++)
        add_device(&devices, &list[i], used);
    if (used != NULL)
        add_steps(&steps, used);
    shared->rank = used != NULL ? clb_device_rank(&used->device) : -1;
    if (devices.failed || steps.failed)
        return CLB_ERR_NOMEM;
    snprintf(clb_helper_child->current, sizeof clb_helper_child->current,
             "\"devices\":[%s],\"steps\":{%s}", devices.data != NULL ? devices.data : "",
             steps.data != NULL ? steps.data : "");
    return CLB_OK;
}

/* Add the drivers that `library` names, or all, and what has become of opening them. */
static void add_drivers(struct clb_text *text, const char *library)
{
    snprintf(shared->library, sizeof shared->library, "%s", library);
    const int status = supervise(child_list, &shared->builder);
    clb_text_add(text, "{");
    add_text(text, "library", library);
    add_text(text, "death", status < 0 ? death : "");
    clb_text_addf(text, "\"loaded\":%s,\"rank\":%.0f,%s}", status == CLB_OK ? "true" : "false",
                  shared->rank,
                  status == CLB_OK ? shared->builder.current : "\"devices\":[],\"steps\":{}");
}

/* All drivers together, as programs use them, and each one alone where that may say more. */
static int list_drivers(void)
{
    struct clb_icd icd[CLB_MAX_ICDS];
    struct clb_text text = {0};
    const char *cache = clb_cache_directory();
    size_t count = clb_icd_list(icd);
    clb_text_add(&text, "{");
    add_text(&text, "cache", cache != NULL && access(cache, W_OK) == 0 ? cache : "");
    const struct clb_outdated outdated = clb_store_visit_outdated(false);
    clb_text_addf(&text, "\"room\":%s,\"outdated\":{\"warm\":%s,\"tune\":%s},\"all\":",
                  clb_cache_has_room(cache) ? "true" : "false", outdated.kernels ? "true" : "false",
                  outdated.tuning ? "true" : "false");
    add_drivers(&text, "");
    clb_text_add(&text, ",\"drivers\":[");
    count = count == 1 && shared->rank >= 0 ? 0 : count;
    for (size_t i = 0; i < count && !shared->stop; i++) {
        clb_text_add(&text, i > 0 ? "," : "");
        add_drivers(&text, icd[i].library);
    }
    clb_text_add(&text, "]}\n");
    bool written = !text.failed && fputs(text.data, stdout) >= 0 && fflush(stdout) == 0;
    clb_text_free(&text);
    return written ? 0 : CLB_HELPER_EXIT_FAILED;
}

/* ---- steps ---- */

/* Have a child do its steps, and another one where that has died. What it has died of is marked
 * unless it had done steps before, which may be why. */
static void look_after(struct clb_helper_child *own)
{
    bool known;
    for (int attempts = 0; own->step < shared->last && !shared->stop && attempts < MOST_ATTEMPTS;) {
        const int first = own->step + (strcmp(wanted[own->step], "devices") == 0);
        /* Only the driver that meet_drivers has chosen is opened. */
        (void)!clb_drivers_recall(shared->library, sizeof shared->library, &known);
        if (supervise(child_steps, own) >= 0 || shared->stop)
            continue;
        clb_log(CLB_LOG_WARN, "%s, %s: %s", wanted[own->step],
                own == &shared->loader ? "loaded again" : "built", death);
        if (own->step > first)
            continue;
        attempts++;
        if (own->current[0] != '\0')
            clb_record_note((struct clb_key){CLB_RECORD_MARK, own->current, NULL}, CLB_FAILED,
                            death);
        else if (own == &shared->builder)
            (void)meet_drivers(); /* it died before any program: of a driver */
        if (own == &shared->loader)
            return; /* it must be built without what is marked */
    }
}

/* Have children build ahead, but not beside a program; four for `clblas-shim warm dgemm`, whose
 * products are five programs on NVIDIA's devices. */
static void begin_ahead(void)
{
    const bool polite = getpriority(PRIO_PROCESS, 0) > 0;
    const int spare = polite ? 0 : (int)sysconf(_SC_NPROCESSORS_ONLN) - 1;
    const int count = limits.ahead >= 0 ? limits.ahead : spare;
    bool known;
    for (int i = 0; i < count && i < 2 * (shared->last - 1) && i < CLB_MOST_AHEAD; i++) {
        if (fork() != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        usleep(100000); /* the builder opens the driver first */
        (void)!clb_drivers_recall(shared->library, sizeof shared->library, &known);
        supervise(child_ahead, &shared->ahead[i]);
        _exit(0);
    }
}

/* True when all steps have come to an end. */
static bool make_steps(void)
{
    begin_ahead();
    /* Another round where a loader has died. */
    for (int round = 0;
         shared->loader.step < shared->last && !shared->stop && round < MOST_ATTEMPTS; round++) {
        shared->builder.step = shared->loader.step;
        if ((other = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            look_after(&shared->builder);
            _exit(0);
        }
        if (other < 0)
            return false;
        look_after(&shared->loader);
        for (end_steps(); other > 0; end_steps()) {
            await_signal();
            show_life();
        }
    }
    return wanted[shared->loader.step] == NULL;
}

static int serve(char *steps)
{
    begun = clb_now();
    if (strcmp(steps, "list") == 0)
        return list_drivers();
    const int failed = take_lock();
    if (failed != 0 || (drivers = clb_drivers_describe()) == NULL)
        return failed;
    (void)clb_store_visit_outdated(true);
    const char *device = strchr(steps, '@');
    snprintf(shared->device, sizeof shared->device, "%s", device != NULL ? device + 1 : "");
    steps[strcspn(steps, "@")] = '\0';
    for (char *step = strtok(steps, ","); step != NULL && shared->last + 1 < CLB_MOST_STEPS;
         step = strtok(NULL, ","))
        wanted[shared->last++] = step;
    return make_steps() ? 0 : CLB_HELPER_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    int at = 1;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        double value = strtod(argv[at + 1], NULL);
        if (strcmp(argv[at], "--cpu") == 0)
            limits.cpu = value;
        else if (strcmp(argv[at], "--stall") == 0)
            limits.stall = value;
        else if (strcmp(argv[at], "--memory") == 0)
            limits.memory = (uint64_t)value << 20;
        else if (strcmp(argv[at], "--ahead") == 0)
            limits.ahead = (int)value;
    }
    if (at + 1 != argc) {
        fprintf(stderr,
                "usage: %s STEP[,STEP]... | list\n"
                "The helper process of libclblas_shim, which starts it.\n",
                argv[0]);
        return 2;
    }
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGTERM);
    sigprocmask(SIG_BLOCK, &awaited, NULL);
    /* Files that the program writes are not the helper's. */
    unsetenv("CLBLAS_SHIM_TRACE");
    unsetenv("CLBLAS_SHIM_STATS");
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? CLB_HELPER_EXIT_FAILED : serve(argv[at]);
}
