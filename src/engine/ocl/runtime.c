/* The device: one is chosen, described and used, with one context, for the life of the process.
 *
 * It is started by the first call that is worth offloading and never torn down: drivers may already
 * be gone when destructors run. A forked child of a process that had started abandons it, because
 * the driver's threads and locks did not survive the fork. */
#include "queue_private.h"
#include "helper.h"
#include "start.h"
#include "store.h"
#include "host/process.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- devices: listed, described, chosen ------------------------------------------------------ */

#define MAX_PLATFORMS  16
#define MAX_DIMENSIONS 8

static void device_text(cl_device_id id, cl_device_info what, char *text, size_t size)
{
    if (clb_cl.GetDeviceInfo(id, what, size - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    text[size - 1] = '\0';
}

static void platform_text(cl_platform_id id, cl_platform_info what, char *text, size_t size)
{
    if (clb_cl.GetPlatformInfo(id, what, size - 1, text, NULL) != CL_SUCCESS)
        text[0] = '\0';
    text[size - 1] = '\0';
}

/* Reads a number of 4 or 8 bytes; zero when the device doesn't answer. */
#define DEVICE_NUMBER(id, what, variable)                                                          \
    do {                                                                                           \
        if (clb_cl.GetDeviceInfo((id), (what), sizeof(variable), &(variable), NULL) != CL_SUCCESS) \
            (variable) = 0;                                                                        \
    } while (0)

/* Physical memory of the host: the size that PoCL reports is wrong and changes. */
static uint64_t host_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

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

/* Numbers that no device has are a driver's errors: what is computed from them must not overflow.
 */
enum { MOST_UNITS = 1 << 16, MOST_VECTOR_BYTES = 1 << 10 };
#define MOST_GROUP ((size_t)1 << 16)
#define MOST_BYTES ((uint64_t)1 << 50)

static void limit_numbers(struct clb_device *device)
{
    device->units = (cl_uint)clb_min(clb_max(device->units, 1), MOST_UNITS);
    device->max_group = clb_min(device->max_group, MOST_GROUP);
    device->memory = clb_min(device->memory, MOST_BYTES);
    device->max_alloc = clb_min(device->max_alloc, MOST_BYTES);
    device->local_memory = clb_min(device->local_memory, MOST_BYTES);
}

static void device_describe(cl_platform_id platform, cl_device_id id, struct clb_device *device)
{
    cl_bool unified = CL_FALSE;
    cl_device_fp_config fp64 = 0;
    cl_uint floats = 0;
    cl_ulong memory = 0, max_alloc = 0, local_memory = 0;
    char version[128];
    size_t items[MAX_DIMENSIONS]; /* the query fails for a device with more dimensions */
    *device = (struct clb_device){.platform = platform, .id = id};
    device_text(id, CL_DEVICE_NAME, device->name, sizeof device->name);
    device_text(id, CL_DEVICE_VENDOR, device->vendor_name, sizeof device->vendor_name);
    device_text(id, CL_DRIVER_VERSION, device->driver, sizeof device->driver);
    platform_text(platform, CL_PLATFORM_NAME, device->platform_name, sizeof device->platform_name);
    platform_text(platform, CL_PLATFORM_VERSION, version, sizeof version);
    snprintf(device->identity, sizeof device->identity, "%s\n%s\n%s\n%s\n%s", device->platform_name,
             version, device->vendor_name, device->name, device->driver);
    DEVICE_NUMBER(id, CL_DEVICE_TYPE, device->type);
    DEVICE_NUMBER(id, CL_DEVICE_DOUBLE_FP_CONFIG, fp64);
    DEVICE_NUMBER(id, CL_DEVICE_HOST_UNIFIED_MEMORY, unified);
    DEVICE_NUMBER(id, CL_DEVICE_MAX_COMPUTE_UNITS, device->units);
    DEVICE_NUMBER(id, CL_DEVICE_GLOBAL_MEM_SIZE, memory);
    DEVICE_NUMBER(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE, max_alloc);
    DEVICE_NUMBER(id, CL_DEVICE_LOCAL_MEM_SIZE, local_memory);
    DEVICE_NUMBER(id, CL_DEVICE_MAX_WORK_GROUP_SIZE, device->max_group);
    DEVICE_NUMBER(id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, floats);
    if (clb_cl.GetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL) ==
        CL_SUCCESS)
        device->max_group = clb_min(device->max_group, items[0]);
    device->vector_bytes = (cl_uint)clb_min((size_t)floats * 4, MOST_VECTOR_BYTES);
    device->fp64 = fp64 != 0;
    device->unified = unified || (device->type & CL_DEVICE_TYPE_CPU) != 0;
    device->memory = device->unified ? host_memory() : memory;
    device->max_alloc = max_alloc;
    device->local_memory = local_memory;
    limit_numbers(device);
    device->vendor = vendor_by_name(device);
    clb_nvidia_describe(device);
    clb_pocl_describe(device);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* Tests' drivers come and go. */
static bool can_be_marked(void)
{
    return clb_cl_loaded_hook == NULL && clb_cache_directory() != NULL;
}

/* Other processes do without the device for a week, or until it has another driver. */
static void mark_device(const struct clb_device *device, const char *reason)
{
    if (can_be_marked())
        clb_mark_set(device->identity, reason);
}

/* NULL, or why a process has marked the device. The text belongs to the list that has this index
 * next: devices are listed by one thread at a time. */
static const char *find_mark(const struct clb_device *device, size_t index)
{
    static char reasons[CLB_MAX_DEVICES][128];
    struct clb_record mark;
    if (!can_be_marked() || index >= CLB_MAX_DEVICES || !clb_mark_find(device->identity, &mark))
        return NULL;
    snprintf(reasons[index], sizeof reasons[index], "%s", mark.text);
    clb_record_free(&mark);
    return reasons[index];
}

/* ---- the list -------------------------------------------------------------------------------- */

size_t clb_device_list(struct clb_listed_device *list, size_t capacity)
{
    /* A driver may report more than it gives. */
    cl_platform_id platforms[MAX_PLATFORMS] = {0};
    cl_uint platform_count = 0;
    size_t count = 0;
    if (clb_cl.GetPlatformIDs(MAX_PLATFORMS, platforms, &platform_count) != CL_SUCCESS)
        return 0;
    for (cl_uint p = 0; p < platform_count && p < MAX_PLATFORMS && platforms[p] != NULL; p++) {
        cl_device_id ids[CLB_MAX_DEVICES] = {0};
        cl_uint found = 0;
        char name[128];
        platform_text(platforms[p], CL_PLATFORM_NAME, name, sizeof name);
        const char *reason = clb_pocl_refusal(name);
        if (reason != NULL && count < capacity) {
            clb_log(CLB_LOG_WARN, "PoCL is not used: %s", reason);
            list[count] = (struct clb_listed_device){.defect = reason, .platform = p};
            memcpy(list[count++].device.platform_name, name, sizeof name);
        }
        if (reason != NULL)
            continue;
        if (clb_cl.GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, CLB_MAX_DEVICES, ids, &found) !=
            CL_SUCCESS)
            continue;
        for (cl_uint d = 0; d < found && d < CLB_MAX_DEVICES && ids[d] != NULL && count < capacity;
             d++) {
            cl_bool available = CL_FALSE, compiler = CL_FALSE;
            DEVICE_NUMBER(ids[d], CL_DEVICE_AVAILABLE, available);
            DEVICE_NUMBER(ids[d], CL_DEVICE_COMPILER_AVAILABLE, compiler);
            list[count] = (struct clb_listed_device){.platform = p,
                                                     .index = d,
                                                     .defect = !available  ? "it is not available"
                                                               : !compiler ? "it has no compiler"
                                                                           : NULL};
            device_describe(platforms[p], ids[d], &list[count].device);
            if (list[count].defect == NULL &&
                (reason = find_mark(&list[count].device, count)) != NULL) {
                clb_log(CLB_LOG_WARN, "%s is marked for this driver: %s", list[count].device.name,
                        reason);
                list[count].defect = reason;
            }
            clb_log(CLB_LOG_INFO, "device %u:%u: %s (%s, %s)", p, d, list[count].device.name,
                    list[count].device.platform_name, list[count].device.driver);
            count++;
        }
    }
    return count;
}

/* Devices rank in this order: a GPU with its own memory, any GPU, an accelerator, a CPU; of the
 * same kind those with fp64. */
static int kind_of(const struct clb_device *device)
{
    int kind = 1;
    if (device->type & CL_DEVICE_TYPE_GPU)
        kind = device->unified ? 3 : 4;
    else if (device->type & CL_DEVICE_TYPE_ACCELERATOR)
        kind = 2;
    return 2 * kind + device->fp64;
}

/* Among equals those with more compute units. */
double clb_device_rank(const struct clb_device *device)
{
    return kind_of(device) * 1e8 + (double)device->units;
}

/* The names that a word of CLBLAS_SHIM_DEVICE is compared with, in this order: the first in which
 * any device has the word decides. */
enum name { NAME_DEVICE, NAME_PLATFORM, NAME_VENDOR, NAMES };

static bool has_name(const struct clb_device *device, enum name name, const char *word)
{
    char vendor[128];
    switch (name) {
    case NAME_DEVICE:
        return strcasestr(device->name, word) != NULL;
    case NAME_PLATFORM:
        return strcasestr(device->platform_name, word) != NULL;
    default:
        platform_text(device->platform, CL_PLATFORM_VENDOR, vendor, sizeof vendor);
        return strcasestr(device->vendor_name, word) != NULL || strcasestr(vendor, word) != NULL;
    }
}

/* True when an item of CLBLAS_SHIM_DEVICE names this device. */
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
    return has_name(&entry->device, name, word);
}

/* Rates of devices of one kind that are closer than this don't decide. */
#define NEARLY 0.8

/* Leave out the devices that are slower than the fastest. Returns how many are left. */
static size_t drop_slow(const struct clb_listed_device **list, size_t count)
{
    struct clb_rate rates[CLB_MAX_DEVICES];
    char place[32];
    size_t fastest = 0, left = 0;
    for (size_t i = 0; i < count; i++) {
        snprintf(place, sizeof place, "%u:%u", list[i]->platform, list[i]->index);
        rates[i] = clb_device_rate(&list[i]->device, place);
        if (rates[i].gflops > rates[fastest].gflops)
            fastest = i;
    }
    const struct clb_listed_device *best = list[fastest];
    const double limit = NEARLY * rates[fastest].gflops;
    for (size_t i = 0; i < count; i++) {
        const bool known = rates[i].useless || rates[i].gflops > 0;
        if (!known || rates[i].gflops >= limit) {
            list[left++] = list[i];
            continue;
        }
        struct clb_rate_decision decision = {.dropped_rate = rates[i].gflops,
                                             .used_rate = rates[fastest].gflops};
        snprintf(decision.dropped, sizeof decision.dropped, "%.90s (%.90s)", list[i]->device.name,
                 list[i]->device.platform_name);
        snprintf(decision.used, sizeof decision.used, "%.90s (%.90s)", best->device.name,
                 best->device.platform_name);
        clb_rate_note(&decision);
    }
    return left;
}

/* The best of several devices: of the best kind, and of these the fastest where rates are known,
 * then the one with most compute units, then the first. */
static const struct clb_listed_device *choose(const struct clb_listed_device **list, size_t count)
{
    size_t left = 0;
    int kind = 0;
    bool differ = false;
    for (size_t i = 0; i < count; i++)
        kind = kind_of(&list[i]->device) > kind ? kind_of(&list[i]->device) : kind;
    for (size_t i = 0; i < count; i++) {
        if (kind_of(&list[i]->device) == kind)
            list[left++] = list[i];
    }
    for (size_t i = 1; i < left; i++)
        differ = differ || strcmp(list[i]->device.identity, list[0]->device.identity) != 0;
    if (differ && !clb_config_get()->reproducible)
        left = drop_slow(list, left);
    const struct clb_listed_device *best = left > 0 ? list[0] : NULL;
    for (size_t i = 1; i < left; i++) {
        if (clb_device_rank(&list[i]->device) > clb_device_rank(&best->device))
            best = list[i];
    }
    return best;
}

static const struct clb_listed_device *best_match(const struct clb_listed_device *list,
                                                  size_t count, const char *item, size_t length)
{
    const struct clb_listed_device *found[CLB_MAX_DEVICES];
    size_t number = 0;
    for (int name = 0; name < NAMES && number == 0; name++) {
        for (size_t i = 0; i < count; i++) {
            if (list[i].defect == NULL &&
                (item == NULL || matches(item, length, (enum name)name, &list[i])))
                found[number++] = &list[i];
        }
    }
    return choose(found, number);
}

/* Of these the log tells. */
static bool has_defects(const struct clb_listed_device *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].defect != NULL)
            return true;
    }
    return false;
}

clb_status clb_device_select(const char *wanted, struct clb_device *device)
{
    struct clb_listed_device *list = calloc(CLB_MAX_DEVICES, sizeof *list);
    if (list == NULL)
        return CLB_ERR_NOMEM;
    size_t count = clb_device_list(list, CLB_MAX_DEVICES);
    const struct clb_listed_device *chosen = NULL;
    if (wanted == NULL) {
        chosen = best_match(list, count, NULL, 0);
    } else {
        for (const char *item = wanted; chosen == NULL && *item != '\0';) {
            size_t length = strcspn(item, ",");
            chosen = best_match(list, count, item, length);
            item += length;
            item += *item == ',';
        }
        if (chosen == NULL && !has_defects(list, count))
            clb_complain("CLBLAS_SHIM_DEVICE=%s matches none of %zu OpenCL devices, the next BLAS "
                         "is used",
                         wanted, count);
    }
    if (chosen != NULL)
        *device = chosen->device;
    free(list);
    return chosen != NULL ? CLB_OK : CLB_ERR_NODEVICE;
}

/* ---- the device of earlier processes --------------------------------------------------------- */

/* The cache remembers which device was chosen where there are the same drivers, so that calls that
 * are not worth it need not start it. */

static struct clb_device expected;
static bool is_expected;

/* As text: a line for each name, and one of numbers. The names come from drivers. */
#define NUMBERS "%llu %d %d %u %u %llu %llu %llu %zu %d %u"

static void format_device(const struct clb_device *d, struct clb_text *text)
{
    clb_text_addf(text, "%s\n%s\n" NUMBERS "\n%s", d->vendor_name, d->driver,
                  (unsigned long long)d->type, d->fp64, d->unified, d->units, d->vector_bytes,
                  (unsigned long long)d->memory, (unsigned long long)d->max_alloc,
                  (unsigned long long)d->local_memory, d->max_group, (int)d->vendor, d->quirks,
                  d->identity);
}

static bool parse_device(const char *text, struct clb_device *d)
{
    unsigned long long type, memory, max_alloc, local_memory;
    int fp64, unified, vendor, used = 0;
    *d = (struct clb_device){0};
    if (sscanf(text, "%127[^\n]\n%127[^\n]\n" NUMBERS "\n%n", d->vendor_name, d->driver, &type,
               &fp64, &unified, &d->units, &d->vector_bytes, &memory, &max_alloc, &local_memory,
               &d->max_group, &vendor, &d->quirks, &used) != 13 ||
        used == 0)
        return false;
    d->type = type;
    d->fp64 = fp64 != 0;
    d->unified = unified != 0;
    d->memory = memory;
    d->max_alloc = max_alloc;
    d->local_memory = local_memory;
    d->vendor = (clb_vendor)vendor;
    snprintf(d->identity, sizeof d->identity, "%s", text + used);
    return sscanf(d->identity, "%127[^\n]\n%*[^\n]\n%*[^\n]\n%127[^\n]", d->platform_name,
                  d->name) == 2;
}

/* The record that is kept, with its text; false without a cache. Tests' drivers come and go. */
static bool load_expected(char **drivers, struct clb_record *record)
{
    *record = (struct clb_record){0};
    *drivers =
        clb_cl_loaded_hook == NULL && clb_cache_directory() != NULL ? clb_drivers_describe() : NULL;
    if (*drivers != NULL)
        clb_record_load((struct clb_key){CLB_RECORD_DEVICE, *drivers, NULL}, record);
    return *drivers != NULL;
}

static void recall_expected(void)
{
    char *drivers;
    struct clb_record record;
    load_expected(&drivers, &record);
    is_expected = record.text != NULL && parse_device(record.text, &expected);
    clb_record_free(&record);
    free(drivers);
}

static void remember(const struct clb_device *device)
{
    char *drivers;
    struct clb_record record;
    struct clb_text text = {0};
    format_device(device, &text);
    if (load_expected(&drivers, &record) && !text.failed &&
        (record.text == NULL || strcmp(record.text, text.data) != 0))
        clb_record_note((struct clb_key){CLB_RECORD_DEVICE, drivers, NULL}, CLB_PASSED, text.data);
    clb_record_free(&record);
    clb_text_free(&text);
    free(drivers);
}

const struct clb_device *clb_device_expected(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct clb_runtime *started = clb_runtime_peek();
    if (started != NULL)
        return &started->device;
    pthread_once(&once, recall_expected);
    return is_expected ? &expected : NULL;
}

/* ---- the runtime ----------------------------------------------------------------------------- */

/* After so many consecutive calls that failed on the device, all calls go to the next BLAS. */
#define FAILURES_BEFORE_QUARANTINE 3

struct clb_runtime clb_runtime_started;
_Atomic int clb_runtime_now = CLB_RUNTIME_IDLE;
_Atomic unsigned clb_runtime_process;

int clb_runtime_inherit(void)
{
    int now = atomic_load(&clb_runtime_now);
    if (now == CLB_RUNTIME_READY || now == CLB_RUNTIME_STARTING || now == CLB_RUNTIME_QUARANTINED)
        atomic_store(&clb_runtime_now, now = CLB_RUNTIME_ABANDONED);
    return now;
}

static void set_memory_limit(const struct clb_memory_limit *limit)
{
    double bytes = limit->percent > 0
                       ? (double)clb_runtime_started.device.memory * limit->percent / 100
                       : (double)limit->bytes;
    clb_runtime_started.memory_limit = (uint64_t)bytes;
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
    char driver[CLB_DRIVER_PATH];
    clb_status status = clb_helper_meet_drivers(driver, sizeof driver);
    if (status == CLB_OK)
        status = clb_cl_load(driver[0] != '\0' ? driver : NULL);
    if (status == CLB_OK)
        status =
            clb_device_select(clb_helper_device() != NULL ? clb_helper_device() : config->device,
                              &clb_runtime_started.device);
    if (status != CLB_OK)
        return status;
    cl_int error;
    clb_runtime_started.context = clb_cl.CreateContext(
        (cl_context_properties[]){CL_CONTEXT_PLATFORM,
                                  (cl_context_properties)clb_runtime_started.device.platform, 0},
        1, &clb_runtime_started.device.id, NULL, NULL, &error);
    status = clb_cl_check(error, "clCreateContext");
    if (status == CLB_OK)
        status = clb_enqueuer_start(&clb_runtime_started.device);
    if (status != CLB_OK)
        return status;
    pthread_mutex_init(&clb_runtime_started.pool.lock, NULL);
    pthread_mutex_init(&clb_runtime_started.sets.lock, NULL);
    pthread_mutex_init(&clb_runtime_started.turns.lock, NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(clb_runtime_started.turns.come); i++)
        pthread_cond_init(&clb_runtime_started.turns.come[i], NULL);
    pthread_mutex_init(&clb_runtime_started.programs.lock, NULL);
    set_memory_limit(&config->memory);
    if (clb_helper_device() == NULL)
        remember(&clb_runtime_started.device);
    clb_log(CLB_LOG_INFO, "using %s (%s), at most %.1f GiB", clb_runtime_started.device.name,
            clb_runtime_started.device.platform_name,
            (double)clb_runtime_started.memory_limit / (1 << 30));
    return CLB_OK;
}

/* ---- the end of the process ------------------------------------------------------------------ */

/* The longest that it waits for calls that other threads have on the device. */
#define LONGEST_WAIT_SECONDS 0.1

/* Registered when the driver's libraries have been loaded, so that it runs before their
 * destructors: no call enters the driver any more, and those that are inside get the time to
 * leave. A child that was forked, or shares this process's memory, has none. */
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

/* ---- the start ------------------------------------------------------------------------------- */

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

/* Callers that can't wait for ever leave a start to another one. */
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

/* True for the first caller. */
static bool quarantine(void)
{
    int ready = CLB_RUNTIME_READY;
    return atomic_compare_exchange_strong(&clb_runtime_now, &ready, CLB_RUNTIME_QUARANTINED);
}

void clb_runtime_quarantine(struct clb_runtime *used)
{
    if (!quarantine())
        return;
    clb_log(CLB_LOG_ERROR, "%s has computed a wrong result, it is not used any more",
            used->device.name);
    mark_device(&used->device, "it has computed a wrong result");
}

/* Until a call has said more: checks of kernels take less. */
#define LEAST_PATIENCE 30.0

double clb_runtime_hang_limit(const struct clb_runtime *used)
{
    const unsigned millis = atomic_load_explicit(&used->hang_millis, memory_order_relaxed);
    if (millis == 0)
        return LEAST_PATIENCE;
    return millis == UINT_MAX ? INFINITY : 1e-3 * millis;
}

void clb_runtime_abandon(struct clb_runtime *used, double seconds)
{
    atomic_store(&used->abandoned, true);
    if (!quarantine())
        return;
    clb_log(CLB_LOG_ERROR,
            "%s has completed nothing for %.1f s, it is not used any more and its memory is left "
            "as it is",
            used->device.name, seconds);
    mark_device(&used->device, "it hung");
}

void clb_runtime_report_failure(struct clb_runtime *used)
{
    if (atomic_fetch_add(&used->failures, 1) + 1 < FAILURES_BEFORE_QUARANTINE)
        return;
    if (quarantine())
        clb_log(CLB_LOG_ERROR, "%s failed %d calls in a row, it is not used any more",
                used->device.name, FAILURES_BEFORE_QUARANTINE);
}
