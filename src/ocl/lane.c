/* Lanes: in-order queues with their own kernel objects, leased to one call at a time.
 *
 * A call never waits for a lane: when all are taken a new one is made, and it is kept for later. */
#include "ocl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct clb_lane_kernel {
    const struct clb_program *program;
    char name[32];
    cl_kernel kernel;
    struct clb_lane_kernel *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clb_lane *idle;

clb_status clb_lane_open_queues(struct clb_lane *lane)
{
    clb_status status = CLB_OK;
    if (lane->upload == NULL)
        status = clb_queue_open(lane->runtime, &lane->upload);
    if (status == CLB_OK && lane->download == NULL)
        status = clb_queue_open(lane->runtime, &lane->download);
    return status;
}

clb_status clb_lane_acquire(struct clb_runtime *runtime, struct clb_lane **out)
{
    pthread_mutex_lock(&lock);
    struct clb_lane *lane = idle;
    if (lane != NULL)
        idle = lane->link;
    pthread_mutex_unlock(&lock);
    *out = lane;
    if (lane != NULL)
        return CLB_OK;
    lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return CLB_ERR_NOMEM;
    lane->runtime = runtime;
    clb_status status = clb_queue_open(runtime, &lane->queue);
    if (status != CLB_OK) {
        free(lane);
        return status;
    }
    *out = lane;
    return CLB_OK;
}

static bool is_clean(const struct clb_lane *lane)
{
    struct clb_queue *const queues[] = {lane->upload, lane->queue, lane->download};
    bool clean = true;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++)
        clean = clean && (queues[i] == NULL || clb_queue_is_clean(queues[i]));
    return clean;
}

void clb_lane_release(struct clb_lane *lane)
{
    if (!is_clean(lane)) {
        clb_lane_discard(lane);
        return;
    }
    pthread_mutex_lock(&lock);
    lane->link = idle;
    idle = lane;
    pthread_mutex_unlock(&lock);
}

/* All queues are tried, so that what can end has ended even when one fails. */
clb_status clb_lane_finish(struct clb_lane *lane)
{
    struct clb_queue *const queues[] = {lane->upload, lane->queue, lane->download};
    clb_status result = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = queues[i] == NULL ? CLB_OK : clb_queue_finish(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
    return result;
}

bool clb_lane_settle(struct clb_lane *lane)
{
    struct clb_queue *const queues[] = {lane->upload, lane->queue, lane->download};
    bool stuck = false;
    if (clb_lane_finish(lane) == CLB_OK)
        return true;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++)
        stuck = stuck || (queues[i] != NULL && clb_queue_is_stuck(queues[i]));
    return !stuck;
}

clb_status clb_lane_check(struct clb_lane *lane)
{
    struct clb_queue *const queues[] = {lane->upload, lane->queue, lane->download};
    clb_status result = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = queues[i] == NULL ? CLB_OK : clb_queue_check(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
    return result;
}

clb_status clb_lane_await(struct clb_lane *lane, cl_event *event)
{
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, event), "clWaitForEvents");
    clb_cl.ReleaseEvent(*event);
    *event = NULL;
    return status == CLB_OK ? clb_lane_check(lane) : status;
}

/* The queues may still hold commands, so nothing of it is released. */
void clb_lane_discard(struct clb_lane *lane)
{
    (void)lane;
}

/* What the compiler made of a kernel may need more than the device has: by the sizes that all our
 * kernels require of their groups. A driver that does not answer is believed. */
static clb_status check_needs(const struct clb_device *device, cl_kernel kernel, const char *name)
{
    size_t group[3] = {1, 1, 1}, most = SIZE_MAX;
    cl_ulong bytes = 0;
    if (clb_device_understates_limits(device))
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

clb_status clb_lane_kernel(struct clb_lane *lane, struct clb_program *program, const char *name,
                           cl_kernel *kernel)
{
    for (struct clb_lane_kernel *entry = lane->kernels; entry != NULL; entry = entry->next) {
        if (entry->program == program && strcmp(entry->name, name) == 0) {
            *kernel = entry->kernel;
            return CLB_OK;
        }
    }
    struct clb_lane_kernel *entry = calloc(1, sizeof *entry);
    if (entry == NULL || strlen(name) >= sizeof entry->name) {
        free(entry);
        return CLB_ERR_NOMEM;
    }
    cl_int error;
    entry->kernel = clb_cl.CreateKernel(clb_program_handle(program), name, &error);
    clb_status status = clb_cl_check(error, name);
    if (status == CLB_OK)
        status = check_needs(&lane->runtime->device, entry->kernel, name);
    if (status != CLB_OK) {
        if (entry->kernel != NULL)
            clb_cl.ReleaseKernel(entry->kernel);
        free(entry);
        return status;
    }
    strcpy(entry->name, name);
    entry->program = program;
    entry->next = lane->kernels;
    lane->kernels = entry;
    *kernel = entry->kernel;
    return CLB_OK;
}

clb_status clb_lane_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                           const struct clb_argument *arguments, size_t count, cl_uint dimensions,
                           const size_t *global, const size_t *local, cl_uint waits,
                           const cl_event *wait_list, cl_event *event)
{
    for (size_t i = 0; i < count; i++) {
        clb_status status = clb_cl_check(
            clb_cl.SetKernelArg(kernel, (cl_uint)i, arguments[i].size, arguments[i].value), name);
        if (status != CLB_OK)
            return status;
    }
    return clb_queue_launch(queue, kernel, name, dimensions, global, local, waits, wait_list,
                            event);
}
