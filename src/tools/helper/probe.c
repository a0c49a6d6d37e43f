/* clblas-shim-probe: the helper process that meets drivers. Started by the library; not for people.
 *
 *   clblas-shim-probe [--cpu SECONDS] [--memory MIB] [--stall SECONDS] devices | STEP[@P:D] | list
 *
 * This process opens no driver. For each step it starts a child that builds, checks and stores, and
 * then one that loads what is stored and checks it again. What a child dies of, by itself or at a
 * limit, is marked, and the step begins anew without it. One helper works at a time: it holds a
 * lock in the cache.
 *
 * Results are records in the cache (src/engine/ocl/helper.c); the exit status only says whether
 * there is one. `list`, for the clblas-shim command, stores nothing and prints one JSON object. */
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
#define MOST_ATTEMPTS 16 /* marks in one step */
#define LAST_CPU      60 /* seconds of CPU time that a child has when the program has ended */
#define MOST_MEMORY   ((uint64_t)4 << 30)
#define PROGRESS      0.05 /* seconds of CPU time; a thread that only looks at times uses less */

/* What a child may use; options change it, for tests. */
static struct limits {
    double cpu, stall;
    uint64_t memory;
} limits = {.cpu = 300, .stall = 60};

static struct clb_helper_shared *shared;
static sigset_t awaited; /* SIGCHLD, and SIGTERM when the program has ended */

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
        shared->stop =
            sigtimedwait(&awaited, NULL, &(struct timespec){.tv_nsec = LOOK_NS}) == SIGTERM;
    }
    show_life();
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

/* ---- children ---- */

typedef int child_task(const char *argument);

static char death[128]; /* what the last child that has died has died of */

static void limit_child(pid_t child, double cpu)
{
    struct rlimit seconds = {.rlim_cur = (rlim_t)cpu, .rlim_max = (rlim_t)cpu + 1};
    prlimit(child, RLIMIT_CPU, &seconds, NULL);
}

static void run_child(child_task *task, const char *argument, clb_helper_role role)
{
    const struct rlimit none = {0, 0};
    sigset_t empty;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    setrlimit(RLIMIT_CORE, &none);
    sigemptyset(&empty);
    sigprocmask(SIG_SETMASK, &empty, NULL);
    clb_signals_have_no_program();
    clb_helper_become(role, shared);
    int status = task(argument);
    shared->finished = true;
    _exit(status);
}

/* The child's exit status, or -1 where it has died. */
static int judge_end(int status, const char *killed)
{
    if (killed == NULL && WIFEXITED(status) && shared->finished)
        return WEXITSTATUS(status);
    if (killed != NULL)
        snprintf(death, sizeof death, "%s", killed);
    else if (WIFEXITED(status))
        snprintf(death, sizeof death, "it ended the process (status %d)", WEXITSTATUS(status));
    else if (WTERMSIG(status) == SIGXCPU)
        snprintf(death, sizeof death, "it took too much CPU time");
    else
        snprintf(death, sizeof death, "it crashed (%s)", strsignal(WTERMSIG(status)));
    return -1;
}

/* Run a task in a child within the limits; returns as judge_end. */
static int supervise(child_task *task, const char *argument, clb_helper_role role)
{
    struct rusage usage = {0};
    const char *killed = NULL;
    double begin = clb_now(), cpu = 0, progress = begin;
    /* Half of what the system has left, but for tests. */
    const uint64_t memory =
        limits.memory != 0 ? limits.memory : clb_min(clb_proc_available() / 2, MOST_MEMORY);
    int status = 0;
    shared->current[0] = '\0';
    if (role == CLB_HELPER_BUILDS)
        memset(shared->choice, 0, sizeof shared->choice);
    shared->rank = -1;
    shared->finished = false;
    pid_t child = fork();
    if (child < 0) {
        snprintf(death, sizeof death, "no process can be made");
        return -1;
    }
    if (child == 0)
        run_child(task, argument, role);
    limit_child(child, shared->stop ? LAST_CPU : limits.cpu);
    while (wait4(child, &status, WNOHANG, &usage) == 0) {
        if (sigtimedwait(&awaited, NULL, &(struct timespec){.tv_nsec = LOOK_NS}) == SIGTERM) {
            shared->stop = true;
            limit_child(child, read_cpu_seconds(child) + LAST_CPU);
        }
        show_life();
        const double now = clb_now(), used = read_cpu_seconds(child);
        if (used > cpu + PROGRESS) {
            cpu = used;
            progress = now;
        }
        if (killed == NULL)
            killed = read_resident(child) > memory   ? "it took too much memory"
                     : now - progress > limits.stall ? "it hung"
                                                     : NULL;
        if (killed != NULL)
            kill(-child, SIGKILL);
    }
    kill(-child, SIGKILL); /* what it may have started */
    status = judge_end(status, killed);
    cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
          1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    clb_log(status == 0 ? CLB_LOG_INFO : CLB_LOG_WARN,
            "%s, %s: %s, %.1f s, %.1f s of CPU time, at most %ld MiB", argument,
            role == CLB_HELPER_LOADS ? "loaded again" : "built",
            status < 0    ? death
            : status == 0 ? "ok"
                          : clb_status_name((clb_status)status),
            clb_now() - begin, cpu, usage.ru_maxrss >> 10);
    return status;
}

/* ---- in a child ---- */

static clb_status do_step(struct clb_runtime *runtime, clb_helper_step step,
                          clb_precision precision)
{
    const struct clb_gemm_variant *variant;
    clb_status status = clb_gemm_variant_get(runtime, precision, &variant);
    if (status != CLB_OK || step == CLB_STEP_GEMM)
        return status;
    if (variant->plain != NULL) /* a split family is for products in full only */
        variant = variant->plain;
    switch (step) {
    case CLB_STEP_DIRECT:
        return variant->family->has_direct ? clb_direct_prepare(variant) : CLB_OK;
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

static int child_step(const char *name)
{
    clb_helper_step step;
    clb_precision precision;
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (!clb_step_parse(name, &step, &precision) || runtime == NULL)
        return CLB_ERR_NODEVICE;
    shared->chooses = step == CLB_STEP_GEMM;
    clb_status status = do_step(runtime, step, precision);
    if (status == CLB_OK)
        clb_pocl_store_sums(&runtime->device);
    /* A step has passed when it has been loaded; it has failed at either. */
    if (!shared->stop && (status != CLB_OK || clb_helper_get_role() == CLB_HELPER_LOADS))
        clb_step_record(&runtime->device, step, precision, status);
    return (int)status;
}

static int child_devices(const char *unused)
{
    clb_runtime_state state;
    const struct clb_runtime *runtime = clb_runtime_get(&state);
    (void)unused;
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
        if (supervise(child_devices, icd[i].library, CLB_HELPER_BUILDS) < 0)
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
    char *drivers = clb_drivers_describe();
    int64_t verdict = CLB_PASSED;
    const char *text = "";
    if (drivers == NULL)
        return false;
    shared->library[0] = '\0';
    if (supervise(child_devices, "devices", CLB_HELPER_BUILDS) < 0) {
        clb_log(CLB_LOG_WARN, "a driver does not work: %s", death);
        const size_t chosen = choose_driver(icd, count);
        verdict = chosen < count ? CLB_LIBRARY : CLB_FAILED;
        text = chosen < count ? icd[chosen].library : "none of them works";
    }
    if (!shared->stop)
        clb_record_note((struct clb_key){CLB_RECORD_DRIVERS, drivers, NULL}, verdict, text);
    free(drivers);
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
static int child_list(const char *unused)
{
    static struct clb_listed_device list[CLB_MAX_DEVICES];
    clb_runtime_state state;
    struct clb_text devices = {0}, steps = {0};
    (void)unused;
    dup2(STDERR_FILENO, STDOUT_FILENO); /* drivers print */
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
    snprintf(shared->current, sizeof shared->current, "\"devices\":[%s],\"steps\":{%s}",
             devices.data != NULL ? devices.data : "", steps.data != NULL ? steps.data : "");
    return CLB_OK;
}

/* Add the drivers that `library` names, or all, and what has become of opening them. */
static void add_drivers(struct clb_text *text, const char *library)
{
    snprintf(shared->library, sizeof shared->library, "%s", library);
    const int status = supervise(child_list, "list", CLB_HELPER_BUILDS);
    clb_text_add(text, "{");
    add_text(text, "library", library);
    add_text(text, "death", status < 0 ? death : "");
    clb_text_addf(text, "\"loaded\":%s,\"rank\":%.0f,%s}", status == CLB_OK ? "true" : "false",
                  shared->rank, status == CLB_OK ? shared->current : "\"devices\":[],\"steps\":{}");
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

/* False when it died; what it died of is marked. */
static bool survives(const char *step, clb_helper_role role, int *status)
{
    *status = supervise(child_step, step, role);
    if (*status >= 0 || shared->stop)
        return true;
    if (shared->current[0] != '\0')
        clb_record_note((struct clb_key){CLB_RECORD_MARK, shared->current, NULL}, CLB_FAILED,
                        death);
    else
        return !meet_drivers(); /* it died before any program: of a driver */
    return false;
}

/* "gemm:d", or "gemm:d@P:D" on that device. */
static bool make_step(const char *step)
{
    int status = -1;
    bool known;
    char name[64];
    const size_t length = strcspn(step, "@");
    snprintf(name, sizeof name, "%.*s", (int)clb_min(length, sizeof name - 1), step);
    if (step[length] == '@')
        snprintf(shared->device, sizeof shared->device, "%s", step + length + 1);
    for (int attempt = 0; attempt < MOST_ATTEMPTS && !shared->stop; attempt++) {
        /* Only the driver that meet_drivers has chosen is opened. */
        (void)!clb_drivers_recall(shared->library, sizeof shared->library, &known);
        if (!survives(name, CLB_HELPER_BUILDS, &status))
            continue;
        if (status != CLB_OK || shared->stop)
            return status >= 0;
        if (survives(name, CLB_HELPER_LOADS, &status))
            return status >= 0;
    }
    return false;
}

static int serve(const char *step)
{
    double begin = clb_now();
    char request[128];
    uint64_t sum = 0;
    if (strcmp(step, "list") == 0)
        return list_drivers();
    int failed = take_lock();
    char *drivers = failed == 0 ? clb_drivers_describe() : NULL;
    if (drivers == NULL)
        return failed;
    for (char **entry = environ; *entry != NULL; entry++) {
        if (strncmp(*entry, "CLBLAS_SHIM", 11) == 0)
            sum += clb_cache_hash(*entry, strlen(*entry));
    }
    snprintf(request, sizeof request, "%.64s %016llx", step, (unsigned long long)sum);
    const struct clb_key key = {CLB_RECORD_REQUEST, drivers, request};
    /* Another helper may have done it while this one waited. */
    bool done = clb_record_exists(key, clb_now() - begin);
    if (!done) {
        (void)clb_store_visit_outdated(true);
        done = strcmp(step, "devices") == 0 ? meet_drivers() : make_step(step);
        if (done && !shared->stop)
            clb_record_note(key, CLB_PASSED, "");
    }
    free(drivers);
    return done ? 0 : CLB_HELPER_EXIT_FAILED;
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
    }
    if (at + 1 != argc) {
        fprintf(stderr,
                "usage: %s devices | STEP | list\n"
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
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? CLB_HELPER_EXIT_FAILED : serve(argv[at]);
}
