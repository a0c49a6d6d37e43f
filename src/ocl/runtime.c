/* The runtime: one device, one context, for the life of the process.
 *
 * It is started by the first call that is worth offloading and never torn down: drivers may already
 * be gone when destructors run. A forked child of a process that had started abandons it, because
 * the driver's threads and locks did not survive the fork. */
#include "ocl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* After so many consecutive calls that failed on the device, all calls go to the next BLAS. */
#define FAILURES_BEFORE_QUARANTINE 3

enum { STARTING = CLB_RUNTIME_QUARANTINED + 1 };

static struct clb_runtime runtime;
static _Atomic int state = CLB_RUNTIME_IDLE;
static _Atomic int failures;

static void abandon_in_child(void)
{
    int now = atomic_load(&state);
    if (now == CLB_RUNTIME_READY || now == STARTING || now == CLB_RUNTIME_QUARANTINED)
        atomic_store(&state, CLB_RUNTIME_ABANDONED);
}

static void runtime_watch_forks(void)
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
    const char *limit = clb_limits_on_start();
    if (limit != NULL) {
        clb_log(CLB_LOG_WARN, "no device is started in this process: %s", limit);
        return CLB_ERR_NODEVICE;
    }
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
    for (size_t i = 0; i < CLB_STATES; i++)
        pthread_mutex_init(&runtime.state[i].lock, NULL);
    set_memory_limit(&config->memory);
    clb_log(CLB_LOG_INFO, "using %s (%s), at most %.1f GiB", runtime.device.name,
            runtime.device.platform_name, (double)runtime.memory_limit / (1 << 30));
    return CLB_OK;
}

/* Runs on the driver thread, so never twice at the same time. */
static clb_status start_once(void *unused)
{
    static struct clb_thread_list threads;
    (void)unused;
    if (atomic_load(&state) != CLB_RUNTIME_IDLE)
        return CLB_OK;
    char *environment = clb_pocl_save_environment();
    double begin = clb_now();
    atomic_store(&state, STARTING);
    clb_load_begin();
    clb_threads_note(&threads);
    clb_status status = start(clb_config_get());
    clb_pocl_restore_environment(environment);
    if (status == CLB_OK)
        clb_threads_pin(&runtime.device, &threads);
    clb_load_end();
    atomic_store(&state, status == CLB_OK ? CLB_RUNTIME_READY : CLB_RUNTIME_FAILED);
    clb_log(CLB_LOG_INFO, "device start: %s, %.0f ms", clb_status_name(status),
            1e3 * (clb_now() - begin));
    return status;
}

struct clb_runtime *clb_runtime_get(clb_runtime_state *why)
{
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == CLB_RUNTIME_IDLE || now == STARTING) {
        static pthread_once_t watching = PTHREAD_ONCE_INIT;
        pthread_once(&watching, runtime_watch_forks);
        if (clb_driver_call(start_once, NULL) != CLB_OK && atomic_load(&state) == CLB_RUNTIME_IDLE)
            atomic_store(&state, CLB_RUNTIME_FAILED); /* the driver thread can't be made */
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
