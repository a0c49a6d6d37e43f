/* Queue sets: in-order queues with their own kernel objects, used by one call at a time.
 *
 * A call never waits for a queue set: when all are in use a new one is made, and it is kept for
 * later calls. */
#include "ocl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct clb_queue_set_kernel {
    const struct clb_program *program;
    char name[32];
    cl_kernel kernel;
    struct clb_queue_set_kernel *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct clb_queue_set *idle;

clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set)
{
    clb_status status = CLB_OK;
    if (queue_set->upload == NULL)
        status = clb_queue_open(queue_set->runtime, &queue_set->upload);
    if (status == CLB_OK && queue_set->download == NULL)
        status = clb_queue_open(queue_set->runtime, &queue_set->download);
    return status;
}

clb_status clb_queue_set_acquire(struct clb_runtime *runtime, struct clb_queue_set **out)
{
    pthread_mutex_lock(&lock);
    struct clb_queue_set *queue_set = idle;
    if (queue_set != NULL)
        idle = queue_set->link;
    pthread_mutex_unlock(&lock);
    *out = queue_set;
    if (queue_set != NULL)
        return CLB_OK;
    queue_set = calloc(1, sizeof *queue_set);
    if (queue_set == NULL)
        return CLB_ERR_NOMEM;
    queue_set->runtime = runtime;
    clb_status status = clb_queue_open(runtime, &queue_set->queue);
    if (status != CLB_OK) {
        free(queue_set);
        return status;
    }
    *out = queue_set;
    return CLB_OK;
}

static bool is_clean(const struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    bool clean = true;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++)
        clean = clean && (queues[i] == NULL || clb_queue_is_clean(queues[i]));
    return clean;
}

void clb_queue_set_release(struct clb_queue_set *queue_set)
{
    if (!is_clean(queue_set)) {
        clb_queue_set_discard(queue_set);
        return;
    }
    pthread_mutex_lock(&lock);
    queue_set->link = idle;
    idle = queue_set;
    pthread_mutex_unlock(&lock);
}

/* Waits for all queues even when one fails, so that all commands that can end have ended. */
clb_status clb_queue_set_finish(struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    clb_status result = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = queues[i] == NULL ? CLB_OK : clb_queue_finish(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
    return result;
}

bool clb_queue_set_settle(struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    bool stuck = false;
    if (clb_queue_set_finish(queue_set) == CLB_OK)
        return true;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++)
        stuck = stuck || (queues[i] != NULL && clb_queue_is_stuck(queues[i]));
    return !stuck;
}

clb_status clb_queue_set_check(struct clb_queue_set *queue_set)
{
    struct clb_queue *const queues[] = {queue_set->upload, queue_set->queue, queue_set->download};
    clb_status result = CLB_OK;
    for (size_t i = 0; i < CLB_COUNT_OF(queues); i++) {
        clb_status status = queues[i] == NULL ? CLB_OK : clb_queue_check(queues[i]);
        if (status != CLB_OK)
            result = status;
    }
    return result;
}

clb_status clb_queue_set_await(struct clb_queue_set *queue_set, cl_event *event)
{
    clb_status status = clb_cl_check(clb_cl.WaitForEvents(1, event), "clWaitForEvents");
    clb_cl.ReleaseEvent(*event);
    *event = NULL;
    return status == CLB_OK ? clb_queue_set_check(queue_set) : status;
}

/* The queues may still hold commands, so nothing is released. */
void clb_queue_set_discard(struct clb_queue_set *queue_set)
{
    (void)queue_set;
}

/* CLB_ERR_LAUNCH when the compiled kernel needs more than the device has. The work-group size is
 * the one that each kernel of the shim requires by attribute. CLB_OK if the driver does not answer.
 */
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

clb_status clb_queue_set_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, cl_kernel *kernel)
{
    for (struct clb_queue_set_kernel *entry = queue_set->kernels; entry != NULL;
         entry = entry->next) {
        if (entry->program == program && strcmp(entry->name, name) == 0) {
            *kernel = entry->kernel;
            return CLB_OK;
        }
    }
    struct clb_queue_set_kernel *entry = calloc(1, sizeof *entry);
    if (entry == NULL || strlen(name) >= sizeof entry->name) {
        free(entry);
        return CLB_ERR_NOMEM;
    }
    cl_int error;
    entry->kernel = clb_cl.CreateKernel(clb_program_handle(program), name, &error);
    clb_status status = clb_cl_check(error, name);
    if (status == CLB_OK)
        status = check_needs(&queue_set->runtime->device, entry->kernel, name);
    if (status != CLB_OK) {
        if (entry->kernel != NULL)
            clb_cl.ReleaseKernel(entry->kernel);
        free(entry);
        return status;
    }
    strcpy(entry->name, name);
    entry->program = program;
    entry->next = queue_set->kernels;
    queue_set->kernels = entry;
    *kernel = entry->kernel;
    return CLB_OK;
}

clb_status clb_queue_set_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                                const struct clb_argument *arguments, size_t count,
                                cl_uint dimensions, const size_t *global, const size_t *local,
                                cl_uint waits, const cl_event *wait_list, cl_event *event)
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
