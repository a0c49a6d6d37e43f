/* The helper process that meets drivers, as seen by the program that needs it.
 *
 * Drivers crash, hang and take all memory, mostly in their compilers. So a helper process lists the
 * devices, builds, checks and times kernels, and stores programs and the result of each step in the
 * cache. This process asks for a step, looks or waits until it has a record, and loads only what
 * has passed. What a helper has died of is marked, and not done again until the mark is old or the
 * driver another one. SPDX-License-Identifier: BSD-3-Clause */
#include "helper.h"
#include "start.h"
#include "store.h"
#include "host/process.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seconds until a step that has failed without harm is done again: it may have wanted memory or a
 * disk that another process had. */
#define VERDICT_LASTS 3600

/* The helper bounds its children, and writes to the cache's lock as long as it works: where that
 * does not change for so many seconds, its holder is stopped. */
#define LONGEST_SILENCE 60.0

#define LOOK_NS      20000000 /* a program looks so often whether a step has been done */
#define ERRAND_STACK ((size_t)1 << 20)

static const char helper_name[] = "clblas-shim-probe";

/* ---- what this process is ---- */

static clb_helper_role role;
static bool role_known;
struct clb_helper_shared *clb_helper_shared;
struct clb_helper_child *clb_helper_child;
static char path[PATH_MAX]; /* the helper's */

void clb_helper_become(clb_helper_role as, struct clb_helper_shared *with)
{
    role = as;
    clb_helper_shared = with;
    role_known = true;
}

static bool can_run(const char *format, const char *folder)
{
    int length = snprintf(path, sizeof path, format, folder, helper_name);
    return length > 0 && (size_t)length < sizeof path && access(path, X_OK) == 0;
}

/* False in a program that has this code without the library, and so no helper. */
static bool find_library(char folder[PATH_MAX])
{
    Dl_info info;
    if (dladdr((void *)&role_known, &info) == 0 || info.dli_fname == NULL ||
        realpath(info.dli_fname, folder) == NULL)
        return false;
    char *slash = strrchr(folder, '/');
    if (slash == NULL || strstr(slash, "libclblas_shim") == NULL)
        return false;
    *slash = '\0';
    return true;
}

/* Why there is no helper where the user says or near the library; or NULL. */
static const char *find_helper(const char *folder)
{
    const char *wanted = clb_config_get()->probe;
    const size_t length = strlen(folder);
    if (wanted != NULL && strcmp(wanted, "none") == 0)
        return "CLBLAS_SHIM_PROBE is none";
    if (clb_cache_directory() == NULL)
        return "there is no cache";
    if (wanted != NULL)
        return can_run("%s%.0s", wanted) ? NULL : "CLBLAS_SHIM_PROBE can't be run";
    /* In a build folder, or installed; also where the folder is lib/x86_64-linux-gnu. */
    const bool built = length > 6 && strcmp(folder + length - 6, "/.libs") == 0;
    return (built && can_run("%s/../%s", folder)) ||
                   can_run("%s/../libexec/clblas-shim/%s", folder) ||
                   can_run("%s/../../libexec/clblas-shim/%s", folder) ||
                   can_run("%s/%s", CLB_PKGLIBEXECDIR)
               ? NULL
               : "it is not installed";
}

/* True where the user has said that the device is to be used, not only where it is faster. */
static bool insists(void)
{
    static const char threshold[] = "CLBLAS_SHIM_THRESHOLD";
    const struct clb_config *config = clb_config_get();
    bool found = config->mode == CLB_MODE_ALWAYS || config->kernel != NULL || config->reproducible;
    for (char **entry = clb_spawn_environment(); entry != NULL && *entry != NULL && !found; entry++)
        found = strncmp(*entry, threshold, sizeof threshold - 1) == 0;
    return found;
}

clb_helper_role clb_helper_get_role(void)
{
    char folder[PATH_MAX];
    if (role_known)
        return role;
    role = CLB_HELPER_NONE;
    if (clb_cl_loaded_hook == NULL && find_library(folder)) {
        const char *obstacle = find_helper(folder);
        if (obstacle != NULL)
            path[0] = '\0';
        if (obstacle == NULL || !insists())
            role = CLB_HELPER_USED;
        if (obstacle != NULL)
            clb_log(CLB_LOG_INFO, "no helper process (%s): kernels are built in %s", obstacle,
                    role == CLB_HELPER_NONE ? "this process" : "none");
    }
    role_known = true;
    return role;
}

bool clb_helper_lock_path(char *text, size_t size)
{
    const char *folder = clb_cache_directory();
    const int length = folder != NULL ? snprintf(text, size, "%s/lock", folder) : -1;
    return length > 0 && (size_t)length < size;
}

/* ---- requests ---- */

/* A byte of the file, which is locked as a whole by other means. */
static bool lock_one(const char *what, short type)
{
    struct flock lock = {
        .l_type = type,
        .l_whence = SEEK_SET,
        .l_start = (off_t)(clb_cache_hash(what, strlen(what)) >> 32),
        .l_len = 1,
    };
    return fcntl(clb_helper_shared->lock_file, F_SETLK, &lock) == 0;
}

/* No longer than this: who hangs is found out by the helper. */
#define LONGEST_WAIT 30.0

bool clb_helper_take(const char *what, bool waits)
{
    const double end = clb_now() + LONGEST_WAIT;
    while (clb_helper_shared != NULL && !lock_one(what, F_WRLCK)) {
        if (!waits)
            return false;
        if (clb_now() > end)
            break;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS / 4}, NULL);
    }
    return true;
}

void clb_helper_leave(const char *what)
{
    if (clb_helper_shared != NULL)
        lock_one(what, F_UNLCK);
}

/* "gemm:d"; set by clb_step_need. */
static char current_step[64];

/* Have the helper do steps, "gemm:d,direct:d"; false when that fails. */
static bool request(const char *steps)
{
    char *arguments[] = {path, (char *)(uintptr_t)steps, NULL};
    char lock[PATH_MAX];
    struct clb_spawn_result result = {.error = ENAMETOOLONG};
    if (path[0] == '\0')
        return false;
    clb_log(CLB_LOG_INFO, "helper for %s: %s", steps, path);
    int left = clb_driver_leave();
    clb_status status = CLB_ERR_IO;
    if (clb_helper_lock_path(lock, sizeof lock))
        status = clb_spawn(path, arguments, lock, LONGEST_SILENCE, &result);
    clb_driver_enter(left);
    const bool good = status == CLB_OK && result.exit_status == 0;
    char ended[32];
    snprintf(ended, sizeof ended, "ended with status %d", result.exit_status);
    clb_log(good ? CLB_LOG_INFO : CLB_LOG_WARN,
            "helper for %s: %s%s, %.1f s, %.1f s of CPU time, at most %ld MiB", steps,
            result.error != 0 ? "can't be started: " : "",
            result.error != 0 ? clb_file_error(result.error)
            : result.gave_up  ? "did not get on"
                              : ended,
            result.seconds, result.cpu_seconds, result.peak_kib >> 10);
    if (status == CLB_OK && result.exit_status == CLB_HELPER_EXIT_NO_LOCK && insists()) {
        clb_log(CLB_LOG_INFO, "the cache can't be locked: kernels are built in this process");
        role = CLB_HELPER_NONE;
    }
    return good;
}

bool clb_helper_request_again(void)
{
    return role == CLB_HELPER_USED && current_step[0] != '\0' && request(current_step);
}

/* ---- steps ---- */

static const char *const step_names[CLB_STEPS] = {
    [CLB_STEP_GEMM] = "gemm",       [CLB_STEP_DIRECT] = "direct", [CLB_STEP_SKIP] = "skip",
    [CLB_STEP_SYSTEMS] = "systems", [CLB_STEP_PANELS] = "panels", [CLB_STEP_BLOCKS] = "blocks",
};

void clb_step_format(char *text, size_t size, clb_helper_step step, clb_precision precision)
{
    snprintf(text, size, "%s:%c", step_names[step], "sdcz"[precision]);
}

bool clb_step_parse(const char *text, clb_helper_step *step, clb_precision *precision)
{
    char name[64];
    for (int i = 0; i < CLB_STEPS * CLB_PRECISIONS; i++) {
        *step = (clb_helper_step)(i / CLB_PRECISIONS);
        *precision = (clb_precision)(i % CLB_PRECISIONS);
        clb_step_format(name, sizeof name, *step, *precision);
        if (strcmp(text, name) == 0)
            return true;
    }
    return false;
}

/* Another one when any kernel has changed, or what this machine has kept of the tuning tables. */
static uint64_t hash_kernels(const struct clb_device *device)
{
    static _Atomic uint64_t sources; /* of one value, whichever thread stores it */
    uint64_t sum = atomic_load(&sources);
    for (size_t i = 0; sum == 0 && clb_sources[i] != NULL; i++)
        sum += clb_cache_hash(clb_sources[i]->text, clb_sources[i]->length) * (i + 1);
    atomic_store(&sources, sum);
    for (int p = 0; p < CLB_PRECISIONS; p++) {
        struct clb_record row;
        if (clb_record_load(clb_row_key(device->identity, (clb_precision)p), &row))
            sum += clb_cache_hash(row.text, row.size) * (uint64_t)(p + 1);
        clb_record_free(&row);
    }
    return sum;
}

char *clb_step_describe(const struct clb_device *device, clb_helper_step step,
                        clb_precision precision)
{
    const struct clb_config *config = clb_config_get();
    struct clb_text text = {0};
    char name[64];
    clb_step_format(name, sizeof name, step, precision);
    clb_text_addf(&text, "%s %zu %016llx %d %s\n", name, sizeof(struct clb_choice),
                  (unsigned long long)hash_kernels(device), (int)config->math,
                  config->kernel != NULL ? config->kernel : "");
    clb_text_add(&text, config->params != NULL ? config->params : "");
    if (text.failed)
        clb_text_free(&text);
    return text.data;
}

bool clb_step_find(const struct clb_device *device, clb_helper_step step, clb_precision precision,
                   struct clb_record *record)
{
    char *detail = clb_step_describe(device, step, precision);
    const bool found =
        clb_record_load((struct clb_key){CLB_RECORD_STEP, device->identity, detail}, record);
    free(detail);
    return found;
}

struct need {
    const struct clb_device *device;
    clb_helper_step step;
    clb_precision precision;
};

/* CLB_OK when the step has passed, CLB_ERR_UNSUPPORTED when it has failed; *again where the helper
 * should do it, perhaps once more. */
static clb_status look(const struct need *need, bool *again)
{
    struct clb_record record;
    clb_status status = CLB_ERR_BUILD;
    *again = true;
    if (clb_step_find(need->device, need->step, need->precision, &record)) {
        const bool passed = record.verdict == CLB_PASSED;
        const double lasts = !passed                       ? VERDICT_LASTS
                             : need->step == CLB_STEP_GEMM ? CLB_RATE_LASTS
                                                           : INFINITY;
        *again = clb_record_is_older(&record, lasts);
        status = passed ? CLB_OK : CLB_ERR_UNSUPPORTED;
        if (!passed && !*again)
            clb_log(CLB_LOG_WARN, "%s:%c: %s", step_names[need->step], "sdcz"[need->precision],
                    record.text);
        clb_record_free(&record);
    }
    return status;
}

/* What a thread of its own has the helper do; one at a time. */
static char errand[512];
static _Atomic bool errand_runs;

static void *run_errand(void *unused)
{
    (void)unused;
    (void)request(errand);
    errand_runs = false;
    return NULL;
}

/* Bits of steps: those that this process wants next, and those that it has once had a helper begin
 * with. Only driver tasks use them, and one of these runs at a time. */
#define BIT(step, precision) (1U << ((unsigned)(step)*CLB_PRECISIONS + (unsigned)(precision)))
static unsigned wanted, begun;

/* False when the helper has ended. A forked child has none. */
static bool await_errand(bool sleeps)
{
    static unsigned process;
    if (process != clb_generation()) {
        process = clb_generation();
        errand_runs = false;
        begun = 0;
    }
    const bool runs = errand_runs;
    if (runs && sleeps)
        nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    return runs;
}

/* Have the helper do the first, "gemm:d", and all else that is wanted. */
static bool begin_steps(const char *first)
{
    size_t length = (size_t)sprintf(errand, "%s", first);
    char name[64];
    for (int i = 0; wanted != 0; wanted >>= 1, i++) {
        if ((wanted & 1) == 0)
            continue;
        clb_step_format(name, sizeof name, (clb_helper_step)(i / CLB_PRECISIONS),
                        (clb_precision)(i % CLB_PRECISIONS));
        length += (size_t)sprintf(errand + length, ",%s", name);
    }
    errand_runs = true;
    if (clb_thread_start(ERRAND_STACK, run_errand, NULL) != CLB_OK)
        errand_runs = false;
    return errand_runs;
}

/* Waits until the helper has done the step, not until it has ended; for a call with a time limit
 * not at all, since tasks for other kernels would have to wait, too: the next call that needs the
 * step asks again. */
static clb_status ask(void *argument)
{
    const struct need *need = argument;
    const unsigned own = BIT(need->step, need->precision);
    bool again, runs = true;
    clb_step_format(current_step, sizeof current_step, need->step, need->precision);
    clb_status status = look(need, &again);
    if (again) {
        const int left = clb_driver_leave();
        wanted |= own;
        if (need->step == CLB_STEP_GEMM) /* and what the same calls need next */
            wanted |= BIT(CLB_STEP_DIRECT, need->precision);
        else if (need->step == CLB_STEP_SYSTEMS && !need->device->unified)
            wanted |= BIT(CLB_STEP_PANELS, need->precision) | BIT(CLB_STEP_BLOCKS, need->precision);
        do {
            runs = await_errand(!clb_driver_has_limit());
            if (!runs && (own & ~begun) != 0) {
                wanted &= ~own;
                begun |= own;
                runs = begin_steps(current_step);
            }
            status = look(need, &again);
        } while (again && runs && !clb_driver_has_limit());
        clb_driver_enter(left);
        if (!again || !runs)
            clb_log(CLB_LOG_INFO, "helper for %s: %s", current_step, again ? "failed" : "done");
    }
    wanted &= again ? ~0U : ~own;
    if (role != CLB_HELPER_USED)
        return CLB_OK;
    return !again || status == CLB_OK ? status : runs ? CLB_ERR_STARTING : CLB_ERR_BUILD;
}

clb_status clb_step_need(const struct clb_runtime *runtime, clb_helper_step step,
                         clb_precision precision)
{
    struct need need = {&runtime->device, step, precision};
    return clb_helper_get_role() == CLB_HELPER_USED ? clb_driver_call(ask, &need) : CLB_OK;
}

/* ---- choices ---- */

static struct clb_choice own_choice[CLB_PRECISIONS][CLB_CHOICES];

static struct clb_choice *choices(clb_precision precision)
{
    return (clb_helper_shared != NULL ? clb_helper_shared->choice : own_choice)[precision];
}

/* The text of the record of products that have passed is the array of choices. */
static bool recall_choice(const struct clb_device *device, clb_precision precision, int which,
                          double lasts, struct clb_choice *choice)
{
    struct clb_record record;
    const bool found = clb_step_find(device, CLB_STEP_GEMM, precision, &record) &&
                       record.verdict == CLB_PASSED && record.size == sizeof own_choice[0] &&
                       !clb_record_is_older(&record, lasts);
    *choice = (struct clb_choice){0};
    if (found)
        memcpy(choice, record.text + (size_t)which * sizeof *choice, sizeof *choice);
    clb_record_free(&record);
    return found && choice->name[0] != '\0';
}

bool clb_choice_find(const struct clb_device *device, clb_precision precision, int which,
                     struct clb_choice *choice)
{
    *choice = (struct clb_choice){0};
    if (clb_helper_get_role() == CLB_HELPER_NONE)
        return false;
    if (clb_helper_shared != NULL)
        *choice = clb_helper_shared->choice[precision][which];
    return choice->name[0] != '\0' || ((clb_helper_child == NULL || !clb_helper_child->chooses) &&
                                       recall_choice(device, precision, which, INFINITY, choice));
}

void clb_choice_note(clb_precision precision, int which, const struct clb_choice *choice)
{
    if (role != CLB_HELPER_AHEAD)
        choices(precision)[which] = *choice;
}

/* A lack of memory and the like say nothing of the next attempt. */
void clb_step_record(const struct clb_device *device, clb_helper_step step, clb_precision precision,
                     clb_status status)
{
    const bool chooses = step == CLB_STEP_GEMM && status == CLB_OK;
    const char *text = chooses ? (const char *)choices(precision) : clb_status_name(status);
    if (status != CLB_OK && status != CLB_ERR_BUILD && status != CLB_ERR_LAUNCH &&
        status != CLB_ERR_UNSUPPORTED)
        return;
    char *detail = clb_step_describe(device, step, precision);
    if (detail != NULL)
        clb_record_store(
            (struct clb_key){CLB_RECORD_STEP, device->identity, detail},
            (struct clb_record){.verdict = status == CLB_OK ? CLB_PASSED : CLB_FAILED,
                                .text = (char *)(uintptr_t)text,
                                .size = chooses ? sizeof own_choice[0] : strlen(text)});
    free(detail);
}

/* ---- rates ---- */

bool clb_rates_decide(void)
{
    const struct clb_config *config = clb_config_get();
    return config->mode != CLB_MODE_ALWAYS && config->kernel == NULL && !config->reproducible &&
           config->params == NULL;
}

double clb_device_rate(const struct clb_device *device, const char *place)
{
    const struct need need = {device, CLB_STEP_GEMM, device->fp64 ? CLB_D : CLB_S};
    const struct clb_key asked = {CLB_RECORD_REQUEST, device->identity, "rate"};
    struct clb_choice choice;
    char step[64];
    bool again;
    if (clb_helper_get_role() == CLB_HELPER_NONE)
        return 0;
    clb_status status = look(&need, &again);
    /* Not where it was asked for in vain within that time. */
    if (role == CLB_HELPER_USED && again && !clb_record_exists(asked, CLB_RATE_LASTS)) {
        snprintf(step, sizeof step, "gemm:%c@%s", "sdcz"[need.precision], place);
        const bool done = request(step);
        status = look(&need, &again);
        if (done && again)
            clb_record_note(asked, CLB_FAILED, "");
    }
    if (status == CLB_ERR_UNSUPPORTED)
        return -1;
    return recall_choice(device, need.precision, 0, INFINITY, &choice) ? fmax(choice.rate, 0) : 0;
}

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;
static struct clb_rate_decision decisions[CLB_RATE_DECISIONS];
static size_t decision_count;

void clb_rate_note(const struct clb_rate_decision *decision)
{
    clb_log(CLB_LOG_INFO, "%s: %.3g GFLOP/s, %s: %.3g GFLOP/s: the latter is used",
            decision->dropped, decision->dropped_rate, decision->used, decision->used_rate);
    clb_lock(&lock);
    if (decision_count < CLB_COUNT_OF(decisions))
        decisions[decision_count++] = *decision;
    clb_unlock(&lock);
}

size_t clb_rate_decisions(const struct clb_rate_decision **list)
{
    *list = decisions;
    clb_lock(&lock);
    size_t now = decision_count;
    clb_unlock(&lock);
    return now;
}

void clb_rate_note_slow(const struct clb_device *device, clb_precision precision, const char *name,
                        double rate)
{
    struct clb_rate_decision decision = {
        .dropped_rate = rate, .used = CLB_LEAST_NAME, .used_rate = CLB_LEAST_RATE};
    const char letter = "sdcz"[precision];
    snprintf(decision.dropped, sizeof decision.dropped, "%s in %c on %s", name, letter,
             device->name);
    clb_rate_note(&decision);
}

bool clb_rate_was_slow(const struct clb_device *device, clb_precision precision)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known[CLB_PRECISIONS];
    struct clb_choice choice;
    int now = atomic_load(&known[precision]);
    if (!clb_rates_decide())
        return false;
    if (now == UNKNOWN) {
        now = recall_choice(device, precision, 0, CLB_RATE_LASTS, &choice) && choice.rate > 0 &&
                      choice.rate < CLB_LEAST_RATE
                  ? YES
                  : NO;
        if (atomic_exchange(&known[precision], now) == UNKNOWN && now == YES)
            clb_rate_note_slow(device, precision, choice.name, choice.rate);
    }
    return now == YES;
}

/* ---- drivers ---- */

unsigned clb_gpu_files(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd",
                                        "/dev/dri/renderD128", "/dev/dxg"};
    unsigned found = 0;
    for (size_t i = 0; i < CLB_COUNT_OF(files); i++)
        found |= access(files[i], F_OK) == 0 ? 1U << i : 0;
    return found;
}

/* What may change the devices: variables, in any order; which kinds of GPUs there are, because
 * other machines may share the cache; and the drivers. */
char *clb_drivers_describe(void)
{
    static const char variables[] =
        "OCL_ OPENCL_ POCL_ RUSTICL_ CUDA_ ROCR_ HIP_ LD_LIBRARY_PATH= CLBLAS_SHIM_DEVICE=";
    struct clb_icd icd[CLB_MAX_ICDS];
    struct clb_text text = {0};
    uint64_t sum = 0;
    for (char **entry = clb_spawn_environment(); entry != NULL && *entry != NULL; entry++) {
        size_t length;
        for (const char *prefix = variables; *prefix != '\0'; prefix += length) {
            length = strcspn(prefix, " ");
            if (strncmp(*entry, prefix, length) == 0)
                sum += clb_cache_hash(*entry, strlen(*entry));
            length += prefix[length] == ' ';
        }
    }
    clb_text_addf(&text, "%016llx %x\n", (unsigned long long)sum, clb_gpu_files());
    const size_t count = clb_icd_list(icd);
    for (size_t i = 0; i < count; i++)
        clb_text_addf(&text, "%s %llu %llu\n", icd[i].library, (unsigned long long)icd[i].size,
                      (unsigned long long)icd[i].time);
    if (text.failed)
        clb_text_free(&text);
    return text.data;
}

clb_status clb_drivers_recall(char *library, size_t size, bool *known)
{
    struct clb_record record = {0};
    char *drivers = clb_drivers_describe();
    *known = drivers != NULL &&
             clb_record_load((struct clb_key){CLB_RECORD_DRIVERS, drivers, NULL}, &record) &&
             (record.verdict == CLB_PASSED || !clb_record_is_older(&record, CLB_MARK_LASTS));
    const bool failed = !*known || record.verdict == CLB_FAILED;
    if (*known && failed)
        clb_log(CLB_LOG_WARN, "no OpenCL driver is used: %s", record.text);
    if (*known && record.verdict == CLB_LIBRARY) {
        snprintf(library, size, "%s", record.text);
        clb_log(CLB_LOG_WARN, "only the driver %s is used, another one does not work", library);
    }
    clb_record_free(&record);
    free(drivers);
    return failed ? CLB_ERR_NODEVICE : CLB_OK;
}

static _Atomic unsigned expected; /* bits of steps */

void clb_helper_expect(clb_precision precision, bool systems)
{
    expected = BIT(CLB_STEP_GEMM, precision) | BIT(CLB_STEP_DIRECT, precision) |
               (systems ? BIT(CLB_STEP_SYSTEMS, precision) : 0);
}

clb_status clb_helper_meet_drivers(char *library, size_t size)
{
    bool known;
    snprintf(library, size, "%s", clb_helper_shared != NULL ? clb_helper_shared->library : "");
    if (clb_helper_get_role() != CLB_HELPER_USED)
        return CLB_OK;
    clb_status status = clb_drivers_recall(library, size, &known);
    if (!known && path[0] != '\0') {
        const int left = clb_driver_leave();
        wanted |= expected; /* the helper builds it while this process opens the driver, too */
        for (bool runs = await_errand(true) || begin_steps("devices"); !known && runs;
             status = clb_drivers_recall(library, size, &known))
            runs = await_errand(true);
        clb_driver_enter(left);
    }
    return role == CLB_HELPER_USED ? status : CLB_OK;
}
