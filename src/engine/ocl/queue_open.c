/* What is done once for a queue: opening it, a place for counting its launches, and kernel objects;
 * and the times of commands for the trace. SPDX-License-Identifier: BSD-3-Clause */
#include "cl.h"
#include "host/process.h"

#include <stdlib.h>
#include <string.h>

clb_status clb_queue_open(struct clb_runtime *runtime, bool for_transfers, struct clb_queue **out)
{
    static atomic_long opened;
    struct clb_queue *queue = *out = calloc(1, sizeof *queue);
    if (queue == NULL)
        return CLB_ERR_NOMEM;
    cl_int error;
    queue->runtime = runtime;
    queue->handle =
        clb_cl.CreateCommandQueue(runtime->context, runtime->device.id,
                                  clb_trace_wanted() ? CL_QUEUE_PROFILING_ENABLE : 0, &error);
    queue->keeps =
        clb_trace_wanted() || !clb_device_has(&runtime->device, CLB_QUIRK_FAILS_FOR_GOOD);
    queue->number = atomic_fetch_add(&opened, 1);
    queue->is_for_transfers = for_transfers;
    pthread_mutex_init(&queue->lock, NULL);
    pthread_mutex_init(&queue->spare_lock, NULL);
    clb_status status = clb_cl_check(error, "clCreateCommandQueue");
    if (status != CLB_OK) {
        free(queue);
        *out = NULL;
    }
    return status;
}

cl_command_queue clb_queue_handle(const struct clb_queue *queue)
{
    return queue->handle;
}

/* Queues share memory for their numbers: a call that fails on the device costs some queues, and a
 * page for each would use up the allowance. A place is not used again. */
#define PLACES      1024
#define PLACE_BYTES (PLACES * sizeof(cl_uint))

/* True unless all places are taken. */
static bool take_place(struct clb_queue *queue)
{
    struct clb_runtime *runtime = queue->runtime;
    pthread_mutex_lock(&runtime->sets.lock);
    const bool any = runtime->sets.report != NULL && runtime->sets.taken < PLACES;
    if (any) {
        queue->chain = runtime->sets.chain;
        queue->report = runtime->sets.report;
        queue->place = runtime->sets.taken++;
    }
    pthread_mutex_unlock(&runtime->sets.lock);
    return any;
}

/* Without the lock, as mapping takes it: if two threads make places, those of one are lost. */
clb_status clb_queue_count_launches(struct clb_queue *queue)
{
    struct clb_runtime *runtime = queue->runtime;
    struct clb_buffer *report, *chain;
    if (take_place(queue))
        return CLB_OK;
    CLB_TRY(clb_buffer_get(runtime, CLB_MEMORY_HOST, PLACE_BYTES, &report));
    memset(report->host, 0, PLACE_BYTES);
    chain = report;
    if (!runtime->device.unified) {
        clb_status status = clb_buffer_get(runtime, CLB_MEMORY_DEVICE, PLACE_BYTES, &chain);
        CLB_THEN(status, clb_queue_write_now(queue, chain->mem, 0, PLACE_BYTES, report->host));
        CLB_THEN(status, clb_queue_finish(queue));
        if (status != CLB_OK) {
            clb_buffer_end(runtime, chain, !queue->unended);
            clb_buffer_end(runtime, report, true);
            return status;
        }
    }
    pthread_mutex_lock(&runtime->sets.lock);
    runtime->sets.chain = chain;
    runtime->sets.report = report;
    runtime->sets.taken = 0;
    pthread_mutex_unlock(&runtime->sets.lock);
    return take_place(queue) ? CLB_OK : CLB_ERR_NOMEM;
}

/* ---- the trace ---- */

static bool read_time(cl_event handle, cl_profiling_info what, double *seconds)
{
    cl_ulong ns = 0;
    const cl_int status = clb_cl.GetEventProfilingInfo(handle, what, sizeof ns, &ns, NULL);
    *seconds = 1e-9 * (double)ns;
    return status == CL_SUCCESS;
}

void clb_event_trace(const struct clb_event *event)
{
    double queued, begin, end;
    if (event->name == NULL || !read_time(event->handle, CL_PROFILING_COMMAND_QUEUED, &queued) ||
        !read_time(event->handle, CL_PROFILING_COMMAND_START, &begin) ||
        !read_time(event->handle, CL_PROFILING_COMMAND_END, &end))
        return;
    clb_trace_command(event->queue->number, event->name, begin, end, event->enqueued - queued);
}

/* ---- kernel objects ---- */

/* CLB_ERR_LAUNCH when the compiled kernel, with the work-group size of its attribute, needs more
 * than the device has. CLB_OK if the driver does not answer. */
static clb_status check_needs(const struct clb_device *device, cl_kernel kernel, const char *name)
{
    size_t group[3] = {1, 1, 1}, most = SIZE_MAX;
    cl_ulong bytes = 0;
    if (clb_device_has(device, CLB_QUIRK_UNDERSTATES_LIMITS))
        return CLB_OK;
    bool known =
        clb_cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof most,
                                      &most, NULL) == CL_SUCCESS &&
        clb_cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                                      sizeof group, group, NULL) == CL_SUCCESS &&
        clb_cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof bytes,
                                      &bytes, NULL) == CL_SUCCESS;
    size_t items = group[0] * group[1] * group[2];
    if (!known || (items <= most && items <= device->max_group && bytes <= device->local_memory))
        return CLB_OK;
    clb_log(CLB_LOG_WARN,
            "%s: groups of %zu with %llu bytes of local memory, the device has %zu and %llu", name,
            items, (unsigned long long)bytes, clb_min(most, device->max_group),
            (unsigned long long)device->local_memory);
    return CLB_ERR_LAUNCH;
}

clb_status clb_queue_set_make_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                     const char *name, cl_kernel *kernel)
{
    cl_int error;
    *kernel = clb_cl.CreateKernel(program->handle, name, &error);
    CLB_TRY(clb_cl_check(error, name));
    const clb_status status = check_needs(&queue_set->runtime->device, *kernel, name);
    struct clb_queue_set_kernel *entry = status == CLB_OK ? malloc(sizeof *entry) : NULL;
    if (entry == NULL) {
        clb_cl.ReleaseKernel(*kernel);
        return status != CLB_OK ? status : CLB_ERR_NOMEM;
    }
    *entry = (struct clb_queue_set_kernel){program, name, *kernel, queue_set->kernels};
    queue_set->kernels = entry;
    return CLB_OK;
}
