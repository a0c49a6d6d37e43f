/* The helper process that meets drivers, as seen by the program that needs it.
 *
 * Drivers crash, hang and take all memory, mostly in their compilers. So a helper process lists the
 * devices, builds kernels and checks them, and stores programs and what has become of each step in
 * the cache. This process asks for a step, waits on the driver thread until the helper has ended,
 * and then only loads what has passed. What a helper has died of is marked, and is not done again
 * until the mark is old or the driver another one. */
#include "ocl.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Seconds for which a mark and the verdict of a step that has failed are believed. */
#define MARK_LASTS 604800
/* A step that has failed without harm may have wanted what another process had: memory, a disk. */
#define VERDICT_LASTS 3600

/* The helper bounds what its children do, and writes to the cache's lock as long as it works. So a
 * lock that does not change for so many seconds means that whoever has it is stopped. */
#define PATIENCE 60.0

static const char helper_name[] = "clblas-shim-probe";

/* ---- what this process is -------------------------------------------------------------------- */

static clb_probe_role role;
static bool role_known;
static struct clb_probe_shared *shared; /* of a helper's child with the helper */
static char path[PATH_MAX];             /* the helper's */

void clb_probe_become(clb_probe_role as, struct clb_probe_shared *with)
{
    role = as;
    shared = with;
    role_known = true;
}

static bool can_run(const char *format, const char *folder)
{
    int length = snprintf(path, sizeof path, format, folder, helper_name);
    return length > 0 && (size_t)length < sizeof path && access(path, X_OK) == 0;
}

/* Beside the library in a build folder, or where it was installed with the library. A program that
 * has this code without the library has no helper of its own. */
static bool find_beside_library(void)
{
    Dl_info info;
    char folder[PATH_MAX];
    if (dladdr((void *)&role_known, &info) == 0 || info.dli_fname == NULL ||
        realpath(info.dli_fname, folder) == NULL)
        return false;
    char *slash = strrchr(folder, '/');
    if (slash == NULL || strstr(slash, "libclblas_shim") == NULL)
        return false;
    *slash = '\0';
    size_t length = strlen(folder);
    if (length > 6 && strcmp(folder + length - 6, "/.libs") == 0 && can_run("%s/../%s", folder))
        return true;
    /* Also where the folder is lib/x86_64-linux-gnu. */
    return can_run("%s/../libexec/clblas-shim/%s", folder) ||
           can_run("%s/../../libexec/clblas-shim/%s", folder) ||
           can_run("%s/%s", CLB_PKGLIBEXECDIR);
}

static const char *find_obstacle(void)
{
    const char *wanted = clb_config_get()->probe;
    if (clb_cl_loaded_hook != NULL || (wanted != NULL && strcmp(wanted, "none") == 0))
        return "";
    if (clb_cache_directory() == NULL)
        return "there is no cache";
    if (wanted != NULL) {
        snprintf(path, sizeof path, "%s", wanted);
        return access(path, X_OK) == 0 ? NULL : "CLBLAS_SHIM_PROBE can't be run";
    }
    return find_beside_library() ? NULL : "it is not installed";
}

clb_probe_role clb_probe_get_role(void)
{
    if (role_known)
        return role;
    const char *obstacle = find_obstacle();
    if (obstacle != NULL && *obstacle != '\0')
        clb_log(CLB_LOG_INFO, "no helper process (%s): kernels are built in this process",
                obstacle);
    role = obstacle == NULL ? CLB_PROBE_USER : CLB_PROBE_HERE;
    role_known = true;
    return role;
}

/* ---- records --------------------------------------------------------------------------------- */

/* A record is a word, a time and a rate, and for people a reason. */
bool clb_record_load(const char *key, struct clb_record *record)
{
    unsigned char *data = NULL;
    size_t size = 0;
    struct clb_text full = {0};
    clb_text_addf(&full, "%s%s", CLB_CACHE_RECORD, key);
    bool found =
        !full.failed && clb_cache_load(full.data, &data, &size) == CLB_OK && size == sizeof *record;
    if (found)
        memcpy(record, data, size);
    free(data);
    clb_text_free(&full);
    return found;
}

static int64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void clb_record_store(const char *key, struct clb_record record)
{
    struct clb_text full = {0};
    if (record.time == 0)
        record.time = wall_clock();
    clb_text_addf(&full, "%s%s", CLB_CACHE_RECORD, key);
    if (!full.failed)
        clb_cache_store(full.data, (const unsigned char *)&record, sizeof record);
    clb_text_free(&full);
}

bool clb_record_is_older(const struct clb_record *record, double seconds)
{
    return (double)(wall_clock() - record->time) > 1e9 * seconds;
}

/* ---- marks ----------------------------------------------------------------------------------- */

static char *mark_key(const char *what)
{
    struct clb_text key = {0};
    clb_text_addf(&key, "mark\n%s", what);
    if (key.failed)
        clb_text_free(&key);
    return key.data;
}

void clb_mark_set(const char *what, const char *reason)
{
    struct clb_record record = {.word = CLB_WORD_FAILED};
    char *key = mark_key(what);
    snprintf(record.text, sizeof record.text, "%s", reason);
    if (key != NULL)
        clb_record_store(key, record);
    free(key);
}

bool clb_mark_find(const char *what, struct clb_record *record)
{
    char *key = mark_key(what);
    bool found =
        key != NULL && clb_record_load(key, record) && !clb_record_is_older(record, MARK_LASTS);
    free(key);
    return found;
}

void clb_probe_note(const char *what)
{
    if (shared != NULL)
        snprintf(shared->current, sizeof shared->current, "%s", what);
}

bool clb_probe_should_stop(void)
{
    return shared != NULL && shared->stop;
}

bool clb_probe_lock_path(char *text, size_t size)
{
    const char *folder = clb_cache_directory();
    const int length = folder != NULL ? snprintf(text, size, "%s/lock", folder) : -1;
    return length > 0 && (size_t)length < size;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* The step whose programs are wanted, "gemm:d"; set by clb_step_need. */
static char current_step[64];

static void log_outcome(const char *step, const struct clb_spawn_result *result)
{
    bool good = result->error == 0 && !result->gave_up && result->exit_status == 0;
    char text[128] = "";
    if (result->error != 0)
        snprintf(text, sizeof text, "can't be started: %s", clb_file_error(result->error));
    else if (result->gave_up)
        snprintf(text, sizeof text, "did not get on");
    else if (!good)
        snprintf(text, sizeof text, "ended with status %d", result->exit_status);
    clb_log(good ? CLB_LOG_INFO : CLB_LOG_WARN,
            "helper for %s: %s, %.1f s, %.1f s of CPU time, at most %ld MiB", step,
            good ? "done" : text, result->seconds, result->cpu_seconds, result->peak_kib >> 10);
}

/* Have the helper do a step; false when it could not be asked. */
static bool request(const char *step)
{
    char *arguments[] = {path, (char *)(uintptr_t)step, NULL};
    char lock[PATH_MAX];
    const struct clb_spawn_bound bound = {lock, PATIENCE};
    struct clb_spawn_result result = {.error = ENAMETOOLONG};
    clb_log(CLB_LOG_INFO, "helper for %s: %s", step, path);
    /* Nothing is loaded, and no driver installs handlers, while this thread waits. */
    clb_signals_end_task();
    int left = clb_driver_leave();
    clb_status status = CLB_ERR_IO;
    if (clb_probe_lock_path(lock, sizeof lock))
        status = clb_spawn(path, arguments, &bound, &result);
    clb_driver_enter(left);
    clb_signals_begin_task();
    log_outcome(step, &result);
    if (status == CLB_OK && result.exit_status == CLB_PROBE_EXIT_NO_LOCK) {
        clb_log(CLB_LOG_INFO, "the cache can't be locked: kernels are built in this process");
        role = CLB_PROBE_HERE;
    }
    return status == CLB_OK && result.exit_status == 0;
}

bool clb_probe_request_again(void)
{
    return role == CLB_PROBE_USER && current_step[0] != '\0' && request(current_step);
}

clb_status clb_probe_need(const char *step, const char *key, double lasts)
{
    struct clb_record record;
    if (clb_probe_get_role() != CLB_PROBE_USER)
        return CLB_OK;
    snprintf(current_step, sizeof current_step, "%s", step);
    for (int attempt = 0; attempt < 2; attempt++) {
        bool found = clb_record_load(key, &record);
        bool passed = found && record.word == CLB_WORD_PASSED;
        if (passed && (attempt > 0 || !clb_record_is_older(&record, lasts)))
            return CLB_OK;
        if (found && !passed && !clb_record_is_older(&record, VERDICT_LASTS)) {
            clb_log(CLB_LOG_WARN, "%s: %s", step, record.text);
            return CLB_ERR_UNSUPPORTED;
        }
        if (attempt == 0 && !request(step))
            return passed || role != CLB_PROBE_USER ? CLB_OK : CLB_ERR_BUILD;
    }
    return role == CLB_PROBE_USER ? CLB_ERR_BUILD : CLB_OK;
}

/* A helper that leaves no record is not asked again in every process. */
void clb_probe_need_rate(const char *device, const char *key)
{
    char step[64];
    snprintf(step, sizeof step, "rate:%s", device);
    if (clb_probe_get_role() == CLB_PROBE_USER && !clb_rate_load(key).fresh && request(step) &&
        !clb_rate_load(key).fresh)
        clb_record_store(key, (struct clb_record){.word = CLB_WORD_PASSED});
}

const char *clb_probe_device(void)
{
    return shared != NULL && shared->device[0] != '\0' ? shared->device : NULL;
}

/* ---- drivers --------------------------------------------------------------------------------- */

/* Hashes of what may change which devices there are. Their sum does not depend on the order. */
static uint64_t hash_environment(void)
{
    static const char *const prefixes[] = {"OCL_",
                                           "OPENCL_",
                                           "POCL_",
                                           "RUSTICL_",
                                           "CUDA_",
                                           "ROCR_",
                                           "HIP_",
                                           "LD_LIBRARY_PATH=",
                                           "CLBLAS_SHIM_DEVICE="};
    uint64_t sum = 0;
    char **entries = clb_spawn_environment();
    for (size_t i = 0; entries != NULL && entries[i] != NULL; i++) {
        for (size_t p = 0; p < CLB_COUNT_OF(prefixes); p++) {
            if (strncmp(entries[i], prefixes[p], strlen(prefixes[p])) == 0)
                sum += clb_cache_hash(entries[i], strlen(entries[i]));
        }
    }
    return sum;
}

/* Which kinds of GPUs there are: a cache may be shared with machines that have others, or none. */
static unsigned list_device_files(void)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/kfd",
                                        "/dev/dri/renderD128", "/dev/dxg"};
    unsigned found = 0;
    for (size_t i = 0; i < CLB_COUNT_OF(files); i++)
        found |= access(files[i], F_OK) == 0 ? 1U << i : 0;
    return found;
}

char *clb_drivers_key(const struct clb_icd *icd, size_t count)
{
    struct clb_text key = {0};
    clb_text_addf(&key, "drivers\n%s\n%016llx %x\n", CLB_VERSION,
                  (unsigned long long)hash_environment(), list_device_files());
    for (size_t i = 0; i < count; i++)
        clb_text_addf(&key, "%s %llu %llu\n", icd[i].library, (unsigned long long)icd[i].size,
                      (unsigned long long)icd[i].time);
    if (key.failed)
        clb_text_free(&key);
    return key.data;
}

clb_status clb_probe_meet_drivers(char *library, size_t size)
{
    struct clb_icd icd[CLB_MAX_ICDS];
    struct clb_record record;
    snprintf(library, size, "%s", shared != NULL ? shared->library : "");
    if (clb_probe_get_role() != CLB_PROBE_USER)
        return CLB_OK;
    char *key = clb_drivers_key(icd, clb_icd_list(icd));
    clb_status status = CLB_ERR_NODEVICE;
    for (int attempt = 0; key != NULL && attempt < 2; attempt++) {
        if (clb_record_load(key, &record) &&
            (record.word == CLB_WORD_PASSED || !clb_record_is_older(&record, MARK_LASTS))) {
            status = record.word == CLB_WORD_FAILED ? CLB_ERR_NODEVICE : CLB_OK;
            if (record.word == CLB_WORD_FAILED)
                clb_log(CLB_LOG_WARN, "no OpenCL driver is used: %s", record.text);
            if (record.word == CLB_WORD_LIBRARY) {
                snprintf(library, size, "%s", record.text);
                clb_log(CLB_LOG_WARN, "only the driver %s is used, another one does not work",
                        library);
            }
            break;
        }
        if (attempt == 0 && !request("devices")) {
            status = role == CLB_PROBE_USER ? CLB_ERR_NODEVICE : CLB_OK;
            break;
        }
    }
    free(key);
    return status;
}
