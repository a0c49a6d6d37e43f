/* Counting launches: a kernel that the device has not run, although its event says that it is
 * complete, is found by this.
 *
 * Launches on a queue are numbered from 1, and each kernel stores its number unless the one before
 * it has not (CLB_NOTE_LAUNCH in kernels/common.h). The number stored when a launch has ended is
 * smaller than its own exactly if that launch or one before it was dropped. */
#include "queue_private.h"

#include <stdlib.h>
#include <string.h>

/* A counter is not used again, and a call that fails on the device costs some queues. Queues beyond
 * this number are not counted. */
enum { COUNTERS = 16384 };
#define COUNTER_BYTES (COUNTERS * sizeof(cl_uint))

static void counters_free(struct clb_runtime *runtime, struct clb_launch_counters *counters)
{
    if (counters->chain != counters->report)
        clb_buffer_put(runtime, counters->chain);
    clb_buffer_put(runtime, counters->report);
    free(counters);
}

/* NULL when there is no memory for them. */
static struct clb_launch_counters *counters_make(struct clb_runtime *runtime,
                                                 struct clb_queue *queue)
{
    struct clb_launch_counters *counters = calloc(1, sizeof *counters);
    if (counters == NULL)
        return NULL;
    clb_status status = clb_buffer_get(runtime, CLB_MEMORY_HOST, COUNTER_BYTES, &counters->report);
    if (status == CLB_OK) {
        memset(counters->report->host, 0, COUNTER_BYTES);
        counters->chain = counters->report;
        if (!runtime->device.unified)
            status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, COUNTER_BYTES, &counters->chain);
        if (status == CLB_OK && !runtime->device.unified)
            status = clb_queue_write_now(queue, counters->chain->mem, 0, COUNTER_BYTES,
                                         counters->report->host);
    }
    if (status == CLB_OK)
        return counters;
    counters_free(runtime, counters);
    return NULL;
}

void clb_launch_counter_get(struct clb_queue *queue)
{
    struct clb_runtime *runtime = queue->runtime;
    struct clb_launch_counters *none = NULL, *counters = atomic_load(&runtime->sets.counters);
    queue->asked = true;
    if (counters == NULL) {
        counters = counters_make(runtime, queue);
        if (counters == NULL)
            return;
        if (!atomic_compare_exchange_strong(&runtime->sets.counters, &none, counters)) {
            counters_free(runtime, counters);
            counters = none;
        }
    }
    cl_uint number = atomic_fetch_add(&counters->queues, 1);
    if (number >= COUNTERS)
        return;
    queue->counter = number;
    queue->counters = counters;
}

bool clb_queue_has_run(const struct clb_queue *queue, cl_uint launch)
{
    if (launch == 0 || !atomic_load(&queue->counters->seen))
        return true;
    const volatile cl_uint *report = queue->counters->report->host;
    if ((cl_int)(report[queue->counter] - launch) >= 0)
        return true;
    clb_log(CLB_LOG_WARN, "launch %u of a queue is complete, but its kernel has not run",
            (unsigned)launch);
    return false;
}

bool clb_launches_have_run(const struct clb_queue *queue)
{
    if (queue->launches == 0)
        return true;
    const volatile cl_uint *report = queue->counters->report->host;
    if (report[queue->counter] == queue->launches)
        atomic_store(&queue->counters->seen, true);
    return clb_queue_has_run(queue, queue->launches);
}

cl_uint clb_queue_launches(const struct clb_queue *queue)
{
    return atomic_load_explicit(&queue->given, memory_order_relaxed);
}
