/* The device: one is chosen, described and used, with one context, for the life of the process.
 * SPDX-License-Identifier: BSD-3-Clause
 * It is started by the first call worth offloading and never torn down: drivers may be gone when
 * destructors run. A forked child abandons it: the driver's threads and locks did not survive. */
#include "helper.h"
#include "start.h"
#include "store.h"
#include "host/process.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* ---- devices: listed, described, chosen ---- */

#define MAX_PLATFORMS  16
#define MAX_DIMENSIONS 8

/* The answer of a driver as text, empty where there is none. */
#define ASK_TEXT(ask, id, what, text)                                               \
    do {                                                                            \
        if (clb_cl.ask((id), (what), sizeof(text) - 1, (text), NULL) != CL_SUCCESS) \
            (text)[0] = '\0';                                                       \
        (text)[sizeof(text) - 1] = '\0';                                            \
    } while (0)

/* Reads a number of 4 or 8 bytes; zero when the device doesn't answer. */
#define DEVICE_NUMBER(id, what, variable)                                                          \
    do {                                                                                           \
        if (clb_cl.GetDeviceInfo((id), (what), sizeof(variable), &(variable), NULL) != CL_SUCCESS) \
            (variable) = 0;                                                                        \
    } while (0)

/* The makers whose GPUs have rows in the tuning tables and no quirks. */
static clb_vendor vendor_by_name(const struct clb_device *device)
{
    if ((device->type & CL_DEVICE_TYPE_GPU) == 0)
        return CLB_VENDOR_OTHER;
    if (strcasestr(device->vendor_name, "advanced micro") != NULL ||
        strcasecmp(device->vendor_name, "AMD") == 0)
        return CLB_VENDOR_AMD;
    return strcasestr(device->vendor_name, "intel") != NULL ? CLB_VENDOR_INTEL : CLB_VENDOR_OTHER;
}

/* Numbers that no device has are a driver's errors: computing with them must not overflow. */
enum { MOST_UNITS = 1 << 16, MOST_VECTOR_BYTES = 1 << 10 };
#define MOST_GROUP ((size_t)1 << 16)
#define MOST_BYTES ((uint64_t)1 << 50)

static void device_describe(cl_platform_id platform, cl_device_id id, struct clb_device *device)
{
    cl_bool unified = CL_FALSE;
    cl_device_fp_config fp64 = 0;
    cl_uint floats = 0;
    const long pages = get_phys_pages(); /* -1: not known */
    char version[128];
    size_t items[MAX_DIMENSIONS];      /* the query fails for a device with more dimensions */
    memset(device, 0, sizeof *device); /* padding, too: it is kept as it is */
    device->platform = platform;
    device->id = id;
    ASK_TEXT(GetDeviceInfo, id, CL_DEVICE_NAME, device->name);
    ASK_TEXT(GetDeviceInfo, id, CL_DEVICE_VENDOR, device->vendor_name);
    ASK_TEXT(GetDeviceInfo, id, CL_DRIVER_VERSION, device->driver);
    ASK_TEXT(GetPlatformInfo, platform, CL_PLATFORM_NAME, device->platform_name);
    ASK_TEXT(GetPlatformInfo, platform, CL_PLATFORM_VERSION, version);
    snprintf(device->identity, sizeof device->identity, "%s\n%s\n%s\n%s\n%s", device->platform_name,
             version, device->vendor_name, device->name, device->driver);
    DEVICE_NUMBER(id, CL_DEVICE_TYPE, device->type);
    DEVICE_NUMBER(id, CL_DEVICE_DOUBLE_FP_CONFIG, fp64);
    DEVICE_NUMBER(id, CL_DEVICE_HOST_UNIFIED_MEMORY, unified);
    DEVICE_NUMBER(id, CL_DEVICE_MAX_COMPUTE_UNITS, device->units);
    DEVICE_NUMBER(id, CL_DEVICE_GLOBAL_MEM_SIZE, device->memory);
    DEVICE_NUMBER(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, device->max_alloc);
    DEVICE_NUMBER(id, CL_DEVICE_LOCAL_MEM_SIZE, device->local_memory);
    DEVICE_NUMBER(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, device->max_group);
    DEVICE_NUMBER(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, floats);
    if (clb_cl.GetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL) ==
        CL_SUCCESS)
        device->max_group = clb_min(device->max_group, items[0]);
    device->vector_bytes = (cl_uint)clb_min((size_t)floats * 4, MOST_VECTOR_BYTES);
    device->fp64 = fp64 != 0;
    device->unified = unified || (device->type & CL_DEVICE_TYPE_CPU) != 0;
    if (device->unified) /* the size that PoCL reports is wrong and changes */
        device->memory = (uint64_t)(pages > 0 ? pages : 0) * (uint64_t)getpagesize();
    device->units = (cl_uint)clb_min(clb_max(device->units, 1), MOST_UNITS);
    device->max_group = clb_min(device->max_group, MOST_GROUP);
    device->memory = clb_min(device->memory, MOST_BYTES);
    device->max_alloc = clb_min(device->max_alloc, MOST_BYTES);
    device->local_memory = clb_min(device->local_memory, MOST_BYTES);
    device->vendor = vendor_by_name(device);
    clb_nvidia_describe(device);
    clb_pocl_describe(device);
}

/* ---- marks ---- */

/* Tests' drivers come and go. */
static bool can_be_marked(void)
{
    return clb_cl_loaded_hook == NULL && clb_cache_directory() != NULL;
}

static struct clb_key mark_of(const struct clb_device *device)
{
    return (struct clb_key){CLB_RECORD_MARK, device->identity, NULL};
}

/* ---- the list ---- */

static void find_defect(struct clb_listed_device *entry)
{
    const cl_device_id id = entry->device.id;
    cl_bool available = CL_FALSE, compiler = CL_FALSE;
    struct clb_record mark;
    DEVICE_NUMBER(id, CL_DEVICE_AVAILABLE, available);
    DEVICE_NUMBER(id, CL_DEVICE_COMPILER_AVAILABLE, compiler);
    if (!available || !compiler) {
        strcpy(entry->defect, available ? "it has no compiler" : "it is not available");
    } else if (can_be_marked() &&
               clb_record_load_recent(mark_of(&entry->device), CLB_MARK_LASTS, &mark)) {
        snprintf(entry->defect, sizeof entry->defect, "%s", mark.text);
        clb_log(CLB_LOG_WARN, "%s is marked for this driver: %s", entry->device.name, mark.text);
        clb_record_free(&mark);
    }
}

static size_t list_platform(cl_platform_id platform, unsigned p, struct clb_listed_device *list,
                            size_t capacity)
{
    cl_device_id ids[CLB_MAX_DEVICES] = {0};
    cl_uint found = 0;
    size_t count = 0;
    char name[128];
    ASK_TEXT(GetPlatformInfo, platform, CL_PLATFORM_NAME, name);
    const char *reason = clb_pocl_refusal(name);
    if (reason != NULL) {
        clb_log(CLB_LOG_WARN, "PoCL is not used: %s", reason);
        if (capacity == 0)
            return 0;
        *list = (struct clb_listed_device){.platform = p};
        memcpy(list->device.platform_name, name, sizeof name);
        snprintf(list->defect, sizeof list->defect, "%s", reason);
        return 1;
    }
    if (clb_cl.GetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, CLB_MAX_DEVICES, ids, &found) !=
        CL_SUCCESS)
        return 0;
    for (; count < clb_min(clb_min(found, CLB_MAX_DEVICES), capacity) && ids[count] != NULL;
         count++) {
        struct clb_listed_device *entry = &list[count];
        *entry = (struct clb_listed_device){.platform = p, .index = (unsigned)count};
        device_describe(platform, ids[count], &entry->device);
        find_defect(entry);
        clb_log(CLB_LOG_INFO, "device %u:%zu: %s (%s, %s)", p, count, entry->device.name,
                entry->device.platform_name, entry->device.driver);
    }
    return count;
}

size_t clb_device_list(struct clb_listed_device *list, size_t capacity)
{
    /* A driver may report more than it gives. */
    cl_platform_id platforms[MAX_PLATFORMS] = {0};
    cl_uint platform_count = 0;
    size_t count = 0;
    if (clb_cl.GetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < MAX_PLATFORMS && platforms[p] != NULL; p++)
        count += list_platform(platforms[p], p, list + count, capacity - count);
    return count;
}

/* Best first: a GPU with its own memory, any GPU, an accelerator, a CPU; of a kind, fp64 first. */
static int kind_of(const struct clb_device *device)
{
    int kind = 1;
    if (device->type & CL_DEVICE_TYPE_GPU)
        kind = device->unified ? 3 : 4;
    else if (device->type & CL_DEVICE_TYPE_ACCELERATOR)
        kind = 2;
    return 2 * kind + device->fp64;
}

double clb_device_rank(const struct clb_device *device)
{
    return kind_of(device) * 1e8 + (double)device->units;
}

/* What a word of CLBLAS_SHIM_DEVICE may be in; the first in which any device has it decides. */
enum name { NAME_DEVICE, NAME_PLATFORM, NAME_VENDOR, NAMES };

static bool matches(const char *item, size_t length, enum name name,
                    const struct clb_listed_device *entry)
{
    char word[128];
    if (length == 0 || length >= sizeof word)
        return false;
    memcpy(word, item, length);
    word[length] = '\0';
    unsigned platform, index;
    int used = 0;
    if (sscanf(word, "%u:%u%n", &platform, &index, &used) == 2 && (size_t)used == length)
        return platform == entry->platform && index == entry->index;
    if (strcasecmp(word, "gpu") == 0)
        return (entry->device.type & CL_DEVICE_TYPE_GPU) != 0;
    if (strcasecmp(word, "cpu") == 0)
        return (entry->device.type & CL_DEVICE_TYPE_CPU) != 0;
    char vendor[128] = "";
    if (name == NAME_VENDOR)
        ASK_TEXT(GetPlatformInfo, entry->device.platform, CL_PLATFORM_VENDOR, vendor);
    const char *names[NAMES] = {entry->device.name, entry->device.platform_name,
                                entry->device.vendor_name};
    return strcasestr(names[name], word) != NULL || strcasestr(vendor, word) != NULL;
}

/* Rates of devices of one kind that are closer than this don't decide. */
#define NEARLY 0.8

/* Returns how many devices are left without those slower than the fastest. */
static size_t drop_slow(const struct clb_listed_device **list, size_t count)
{
    double rates[CLB_MAX_DEVICES]; /* as clb_device_rate says */
    char place[32];
    size_t fastest = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(place, sizeof place, "%u:%u", list[i]->platform, list[i]->index);
        rates[i] = clb_device_rate(&list[i]->device, place);
        if (rates[i] > rates[fastest])
            fastest = i;
    }
    if (rates[fastest] <= 0)
        return count;
    const struct clb_listed_device *best = list[fastest];
    const double limit = NEARLY * rates[fastest];
    for (size_t i = 0; i < count; i++) {
        if (rates[i] == 0 || rates[i] >= limit) {
            list[left++] = list[i];
            continue;
        }
        struct clb_rate_decision decision = {.dropped_rate = fmax(rates[i], 0),
                                             .used_rate = rates[fastest]};
        snprintf(decision.dropped, sizeof decision.dropped, "%.90s (%.90s)", list[i]->device.name,
                 list[i]->device.platform_name);
        snprintf(decision.used, sizeof decision.used, "%.90s (%.90s)", best->device.name,
                 best->device.platform_name);
        clb_rate_note(&decision);
    }
    return left;
}

static const struct clb_listed_device *highest(const struct clb_listed_device **list, size_t count)
{
    const struct clb_listed_device *best = count > 0 ? list[0] : NULL;
    for (size_t i = 1; i < count; i++) {
        if (clb_device_rank(&list[i]->device) > clb_device_rank(&best->device))
            best = list[i];
    }
    return best;
}

/* The best of the devices that an item names, or of all: of the best kind the fastest where rates
 * are known, then the one with most compute units, then the first. */
static const struct clb_listed_device *best_match(const struct clb_listed_device *list,
                                                  size_t count, const char *item, size_t length)
{
    const struct clb_listed_device *found[CLB_MAX_DEVICES];
    size_t number = 0;
    for (int name = 0; name < NAMES && number == 0; name++) {
        for (size_t i = 0; i < count; i++) {
            if (list[i].defect[0] == '\0' &&
                (item == NULL || matches(item, length, (enum name)name, &list[i])))
                found[number++] = &list[i];
        }
    }
    const struct clb_listed_device *best = highest(found, number);
    size_t left = 0;
    bool differ = false;
    for (size_t i = 0; i < number; i++) {
        if (kind_of(&found[i]->device) != kind_of(&best->device))
            continue;
        differ = differ || strcmp(found[i]->device.identity, best->device.identity) != 0;
        found[left++] = found[i];
    }
    if (differ && !clb_config_get()->reproducible)
        left = drop_slow(found, left);
    return highest(found, left);
}

clb_status clb_device_select(const char *wanted, struct clb_device *device)
{
    struct clb_listed_device *list = calloc(CLB_MAX_DEVICES, sizeof *list);
    if (list == NULL)
        return CLB_ERR_NOMEM;
    size_t count = clb_device_list(list, CLB_MAX_DEVICES);
    const struct clb_listed_device *chosen =
        wanted == NULL ? best_match(list, count, NULL, 0) : NULL;
    for (const char *item = wanted; chosen == NULL && item != NULL && *item != '\0';) {
        size_t length = strcspn(item, ",");
        chosen = best_match(list, count, item, length);
        item += length + (item[length] == ',');
    }
    bool defects = false; /* of these the log tells */
    for (size_t i = 0; i < count; i++)
        defects = defects || list[i].defect[0] != '\0';
    if (chosen == NULL && wanted != NULL && !defects)
        clb_complain("CLBLAS_SHIM_DEVICE=%s matches none of %zu OpenCL devices, the next BLAS "
                     "is used",
                     wanted, count);
    if (chosen != NULL)
        *device = chosen->device;
    free(list);
    return chosen != NULL ? CLB_OK : CLB_ERR_NODEVICE;
}

/* ---- the device of earlier processes ---- */

static struct clb_device expected;
static bool is_expected;
static pthread_once_t expected_once = PTHREAD_ONCE_INIT;

static void recall_expected(void)
{
    struct clb_record record = {0};
    char *drivers = can_be_marked() ? clb_drivers_describe() : NULL;
    is_expected = drivers != NULL &&
                  clb_record_load((struct clb_key){CLB_RECORD_DEVICE, drivers, NULL}, &record) &&
                  record.size == sizeof expected;
    if (is_expected)
        memcpy(&expected, record.text, sizeof expected);
    clb_record_free(&record);
    free(drivers);
}

static void remember(const struct clb_device *device)
{
    struct clb_device kept;
    memcpy(&kept, device, sizeof kept);
    kept.platform = NULL;
    kept.id = NULL;
    pthread_once(&expected_once, recall_expected);
    if (!can_be_marked() || (is_expected && memcmp(&expected, &kept, sizeof kept) == 0))
        return;
    char *drivers = clb_drivers_describe();
    if (drivers != NULL)
        clb_record_store(
            (struct clb_key){CLB_RECORD_DEVICE, drivers, NULL},
            (struct clb_record){.verdict = CLB_PASSED, .text = (char *)&kept, .size = sizeof kept});
    free(drivers);
}

const struct clb_device *clb_device_expected(void)
{
    const struct clb_runtime *started = clb_runtime_peek();
    if (started != NULL)
        return &started->device;
    pthread_once(&expected_once, recall_expected);
    return is_expected ? &expected : NULL;
}

/* ---- the runtime ---- */

/* After so many consecutive calls that failed on the device, all calls go to the next BLAS. */
#define FAILURES_BEFORE_QUARANTINE 3

struct clb_runtime clb_runtime_started = {
    .pool.lock = PTHREAD_MUTEX_INITIALIZER,
    .sets.lock = PTHREAD_MUTEX_INITIALIZER,
    .turns.lock = PTHREAD_MUTEX_INITIALIZER,
    .turns.come = {[0 ... CLB_TURNS - 1] = PTHREAD_COND_INITIALIZER},
    .programs.lock = PTHREAD_MUTEX_INITIALIZER,
};
_Atomic int clb_runtime_now = CLB_RUNTIME_IDLE;
_Atomic unsigned clb_runtime_process;

int clb_runtime_inherit(void)
{
    int now = atomic_load(&clb_runtime_now);
    if (atomic_load(&clb_runtime_process) == clb_generation())
        return now; /* another thread has been faster, and may have started the device */
    if (now == CLB_RUNTIME_READY || now == CLB_RUNTIME_STARTING || now == CLB_RUNTIME_QUARANTINED)
        atomic_store(&clb_runtime_now, now = CLB_RUNTIME_ABANDONED);
    return now;
}

static clb_status start(const struct clb_config *config)
{
    if (config->device != NULL && strcmp(config->device, "none") == 0)
        return CLB_ERR_NODEVICE;
    const char *limit = clb_limits_on_start();
    if (limit != NULL) {
        clb_log(CLB_LOG_WARN, "no device is started in this process: %s", limit);
        return CLB_ERR_NODEVICE;
    }
    struct clb_runtime *runtime = &clb_runtime_started;
    const struct clb_device *device = &runtime->device;
    const struct clb_helper_shared *shared = clb_helper_shared;
    const bool is_given = shared != NULL && shared->device[0] != '\0';
    char driver[CLB_DRIVER_PATH];
    cl_int error;
    CLB_TRY(clb_helper_meet_drivers(driver, sizeof driver));
    CLB_TRY(clb_cl_load(driver[0] != '\0' ? driver : NULL));
    CLB_TRY(clb_device_select(is_given ? shared->device : config->device, &runtime->device));
    runtime->context = clb_cl.CreateContext(
        (cl_context_properties[]){CL_CONTEXT_PLATFORM, (cl_context_properties)device->platform, 0},
        1, &device->id, NULL, NULL, &error);
    CLB_TRY(clb_cl_check(error, "clCreateContext"));
    CLB_TRY(clb_enqueuer_start(device));
    runtime->memory_limit = config->memory.percent > 0
                                ? (uint64_t)((double)device->memory * config->memory.percent / 100)
                                : config->memory.bytes;
    if (!is_given)
        remember(device);
    clb_log(CLB_LOG_INFO, "using %s (%s), at most %.1f GiB", device->name, device->platform_name,
            (double)runtime->memory_limit / (1 << 30));
    return CLB_OK;
}

/* ---- the end of the process ---- */

/* The longest wait for other threads' calls on the device. */
#define LONGEST_WAIT_SECONDS 0.1

/* Registered when the driver's libraries have been loaded, so that it runs before their
 * destructors: no call enters the driver any more, and those inside get time to leave. A child that
 * was forked, or shares this process's memory, has none. */
static void close_at_exit(void)
{
    const double end = clb_now() + LONGEST_WAIT_SECONDS;
    int cancel, ready = CLB_RUNTIME_READY;
    if (clb_runtime_settle() != CLB_RUNTIME_READY ||
        !atomic_compare_exchange_strong(&clb_runtime_now, &ready, CLB_RUNTIME_CLOSED))
        return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
    while (clb_inside_others() && clb_now() < end)
        nanosleep(&(struct timespec){0, 200000}, NULL);
    clb_enqueuer_await_idle(end - clb_now());
    pthread_setcancelstate(cancel, NULL);
}

/* ---- the start ---- */

/* A driver task, so never twice at the same time. */
static clb_status start_once(void *unused)
{
    static struct clb_thread_list threads;
    int idle = CLB_RUNTIME_IDLE;
    (void)unused;
    if (!atomic_compare_exchange_strong(&clb_runtime_now, &idle, CLB_RUNTIME_STARTING))
        return CLB_OK;
    char *environment = clb_pocl_save_environment();
    double begin = clb_now();
    clb_load_begin();
    clb_threads_note(&threads);
    clb_status status = start(clb_config_get());
    clb_pocl_restore_environment(environment);
    if (status == CLB_OK)
        clb_threads_pin(&clb_runtime_started.device, &threads);
    if (status == CLB_OK && atexit(close_at_exit) != 0)
        status = CLB_ERR_NOMEM;
    clb_load_end();
    clb_runtime_started.start_seconds = clb_now() - begin;
    atomic_store(&clb_runtime_now, status == CLB_OK ? CLB_RUNTIME_READY : CLB_RUNTIME_FAILED);
    clb_log(CLB_LOG_INFO, "device start: %s, %.0f ms", clb_status_name(status),
            1e3 * clb_runtime_started.start_seconds);
    return status;
}

/* Callers with a time limit leave a start to another one. */
struct clb_runtime *clb_runtime_start(clb_runtime_state *why)
{
    int now = clb_runtime_settle();
    if (now == CLB_RUNTIME_IDLE || now == CLB_RUNTIME_STARTING) {
        int idle = CLB_RUNTIME_IDLE;
        if (now == CLB_RUNTIME_IDLE)
            atomic_store(&clb_runtime_process, clb_generation());
        /* Not even a thread for it may be had. */
        if (clb_driver_request(start_once, NULL, 0) == CLB_ERR_NOMEM)
            atomic_compare_exchange_strong(&clb_runtime_now, &idle, CLB_RUNTIME_FAILED);
        now = clb_runtime_settle();
    }
    *why = now == CLB_RUNTIME_IDLE ? CLB_RUNTIME_STARTING : (clb_runtime_state)now;
    return now == CLB_RUNTIME_READY ? &clb_runtime_started : NULL;
}

/* True for the first caller. Other processes are told by a mark, but not of calls that failed. */
static bool quarantine(const char *mark)
{
    int ready = CLB_RUNTIME_READY;
    if (!atomic_compare_exchange_strong(&clb_runtime_now, &ready, CLB_RUNTIME_QUARANTINED))
        return false;
    if (mark != NULL && can_be_marked()) /* for a week, or until it has another driver */
        clb_record_note(mark_of(&clb_runtime_started.device), CLB_FAILED, mark);
    return true;
}

void clb_runtime_quarantine(struct clb_runtime *used)
{
    if (quarantine("it has computed a wrong result"))
        clb_log(CLB_LOG_ERROR, "%s has computed a wrong result, it is not used any more",
                used->device.name);
}

void clb_runtime_abandon(struct clb_runtime *used, double seconds)
{
    atomic_store(&used->abandoned, true);
    if (quarantine("it hung"))
        clb_log(CLB_LOG_ERROR,
                "%s has completed nothing for %.1f s, it is not used any more and its memory is "
                "left as it is",
                used->device.name, seconds);
}

void clb_runtime_report_failure(struct clb_runtime *used)
{
    if (atomic_fetch_add(&used->failures, 1) + 1 < FAILURES_BEFORE_QUARANTINE)
        return;
    if (quarantine(NULL))
        clb_log(CLB_LOG_ERROR, "%s failed %d calls in a row, it is not used any more",
                used->device.name, FAILURES_BEFORE_QUARANTINE);
}
