/* The runtime: one device, one context, for the life of the process.
 *
 * It is started by the first call that is worth offloading and never torn down: drivers may already
 * be gone when destructors run. A forked child of a process that had started abandons it, because
 * the driver's threads and locks did not survive the fork. */
#include "ocl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* After so many calls in a row that failed on the device, calls go straight to the next BLAS. */
#define FAILURES_BEFORE_QUARANTINE 3

enum { STARTING = CLB_RUNTIME_QUARANTINED + 1 };

static struct clb_runtime runtime;
static _Atomic int state = CLB_RUNTIME_IDLE;
static _Atomic int failures;
static pthread_mutex_t start_lock = PTHREAD_MUTEX_INITIALIZER;

static void abandon_in_child(void)
{
    static const pthread_mutex_t unlocked = PTHREAD_MUTEX_INITIALIZER;
    int now = atomic_load(&state);
    start_lock = unlocked; /* whoever held it is not in this process */
    if (now == CLB_RUNTIME_READY || now == STARTING || now == CLB_RUNTIME_QUARANTINED)
        atomic_store(&state, CLB_RUNTIME_ABANDONED);
}

static void watch_forks(void)
{
    clb_fork_on_child(abandon_in_child);
}

static void set_memory_limit(const struct clb_memory_limit *limit)
{
    double bytes = limit->percent > 0 ? (double)runtime.device.memory * limit->percent / 100
                                      : (double)limit->bytes;
    runtime.memory_limit = (uint64_t)bytes;
}

static clb_status start(const struct clb_config *config)
{
    if (config->device != NULL && strcmp(config->device, "none") == 0)
        return CLB_ERR_NODEVICE;
    clb_status status = clb_cl_load();
    if (status == CLB_OK)
        status = clb_device_select(config->device, &runtime.device);
    if (status != CLB_OK)
        return status;
    cl_int error;
    runtime.context = clb_cl.CreateContext(
        (cl_context_properties[]){CL_CONTEXT_PLATFORM,
                                  (cl_context_properties)runtime.device.platform, 0},
        1, &runtime.device.id, NULL, NULL, &error);
    status = clb_cl_check(error, "clCreateContext");
    if (status != CLB_OK)
        return status;
    set_memory_limit(&config->memory);
    clb_log(CLB_LOG_INFO, "using %s (%s), at most %.1f GiB", runtime.device.name,
            runtime.device.platform_name, (double)runtime.memory_limit / (1 << 30));
    return CLB_OK;
}

/* What drivers put into the environment for libraries of theirs, and children would inherit: PoCL
 * keeps hwloc from loading plugins. */
static const char *const driver_variable = "HWLOC_PLUGINS_PATH";

/* The program's value, owned; NULL when it has none. */
static char *save_driver_variable(void)
{
    const char *value = getenv(driver_variable);
    return value != NULL ? strdup(value) : NULL;
}

static void restore_driver_variable(char *value)
{
    const char *now = getenv(driver_variable);
    if (value == NULL && now != NULL)
        unsetenv(driver_variable);
    else if (value != NULL && (now == NULL || strcmp(now, value) != 0))
        setenv(driver_variable, value, 1);
    free(value);
}

/* Starting a driver may replace signal handlers, and PoCL refuses to start or fails later when its
 * cache directory can't be written. */
static void start_as_guest(void)
{
    static struct clb_thread_list threads; /* one start at a time */
    struct clb_cache_guard cache;
    struct clb_dispositions *dispositions = clb_dispositions_save();
    char *variable = save_driver_variable();
    double begin = clb_now();
    atomic_store(&state, STARTING);
    clb_load_begin();
    clb_cache_guard_enter(&cache);
    clb_threads_note(&threads);
    clb_status status = start(clb_config_get());
    clb_cache_guard_leave(&cache);
    restore_driver_variable(variable);
    clb_dispositions_restore(dispositions);
    if (status == CLB_OK)
        clb_threads_spread(&runtime.device, &threads);
    clb_load_end();
    atomic_store(&state, status == CLB_OK ? CLB_RUNTIME_READY : CLB_RUNTIME_FAILED);
    clb_log(CLB_LOG_INFO, "device start: %s, %.0f ms", clb_status_name(status),
            1e3 * (clb_now() - begin));
}

struct clb_runtime *clb_runtime_get(clb_runtime_state *why)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == CLB_RUNTIME_IDLE || now == STARTING) {
        static pthread_once_t watching = PTHREAD_ONCE_INIT;
        pthread_once(&watching, watch_forks);
        pthread_mutex_lock(&start_lock);
        if (atomic_load(&state) == CLB_RUNTIME_IDLE)
            start_as_guest();
        pthread_mutex_unlock(&start_lock);
        now = atomic_load(&state);
    }
    *why = (clb_runtime_state)now;
    return now == CLB_RUNTIME_READY ? &runtime : NULL;
}

const struct clb_runtime *clb_runtime_peek(void)
{
    int now = atomic_load(&state);
    return now == CLB_RUNTIME_READY || now == CLB_RUNTIME_QUARANTINED ? &runtime : NULL;
}

void clb_runtime_report(bool succeeded)
{
    if (succeeded) {
        if (CLB_UNLIKELY(atomic_load_explicit(&failures, memory_order_relaxed) != 0))
            atomic_store(&failures, 0);
        return;
    }
    if (atomic_fetch_add(&failures, 1) + 1 < FAILURES_BEFORE_QUARANTINE)
        return;
    int ready = CLB_RUNTIME_READY;
    if (atomic_compare_exchange_strong(&state, &ready, CLB_RUNTIME_QUARANTINED))
        clb_log(CLB_LOG_ERROR, "%s failed %d calls in a row, it is not used any more",
                runtime.device.name, FAILURES_BEFORE_QUARANTINE);
}
