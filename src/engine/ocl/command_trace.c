/* The device's side of the trace: wrappers in the table of OpenCL functions. They create queues
 * with profiling, keep the events of commands and read their times when the commands have ended. */
#include "cl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct traced_command {
    cl_event event;
    cl_command_queue queue;
    const char *name;
    double enqueued; /* clb_now(), after the driver returned */
};

struct kernel_name {
    cl_kernel kernel;
    char *name;
    struct kernel_name *next;
};

/* Events are read when a queue is finished, or when there are so many of them. */
#define MANY       ((size_t)2048)
#define MAX_QUEUES 64

static struct clb_cl real;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct traced_command *commands;
static size_t count, capacity;
static struct kernel_name *names;
static cl_command_queue queues[MAX_QUEUES];

/* ---- finished commands; with the lock held --------------------------------------------------- */

/* Queues are numbered in the order in which they first appear. */
static long number_of(cl_command_queue queue)
{
    size_t i = 0;
    while (i + 1 < MAX_QUEUES && queues[i] != NULL && queues[i] != queue)
        i++;
    queues[i] = queue;
    return (long)i;
}

static bool time_of(cl_event event, cl_profiling_info what, double *seconds)
{
    cl_ulong ns;
    if (real.GetEventProfilingInfo(event, what, sizeof ns, &ns, NULL) != CL_SUCCESS)
        return false;
    *seconds = 1e-9 * (double)ns;
    return true;
}

static bool has_ended(const struct traced_command *command)
{
    double queued, begin, end;
    if (!time_of(command->event, CL_PROFILING_COMMAND_END, &end) ||
        !time_of(command->event, CL_PROFILING_COMMAND_START, &begin) ||
        !time_of(command->event, CL_PROFILING_COMMAND_QUEUED, &queued))
        return false;
    clb_trace_offset(command->enqueued - queued);
    clb_trace_span(CLB_TRACE_DEVICE, number_of(command->queue), command->name, begin, end);
    return true;
}

static void sweep(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (has_ended(&commands[i]))
            real.ReleaseEvent(commands[i].event);
        else
            commands[kept++] = commands[i];
    }
    count = kept;
}

static bool ocl_trace_make_room(void)
{
    if (count >= MANY)
        sweep();
    if (count < capacity)
        return true;
    size_t wanted = capacity == 0 ? MANY : 2 * capacity;
    struct traced_command *larger = realloc(commands, wanted * sizeof *commands);
    if (larger == NULL)
        return false;
    commands = larger;
    capacity = wanted;
    return true;
}

/* ---- wrappers -------------------------------------------------------------------------------- */

/* Called after a command was enqueued. If the caller wants its event, this file retains it too. */
static cl_int trace_note(cl_int status, cl_command_queue queue, const char *name,
                         const cl_event *callers, cl_event own)
{
    cl_event event = callers != NULL ? *callers : own;
    if (status != CL_SUCCESS || event == NULL)
        return status;
    if (callers != NULL && real.RetainEvent(event) != CL_SUCCESS)
        return status;
    pthread_mutex_lock(&lock);
    bool kept = ocl_trace_make_room();
    if (kept)
        commands[count++] = (struct traced_command){event, queue, name, clb_now()};
    pthread_mutex_unlock(&lock);
    if (!kept)
        real.ReleaseEvent(event);
    return status;
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                                 cl_command_queue_properties properties,
                                                 cl_int *status)
{
    return real.CreateCommandQueue(context, device, properties | CL_QUEUE_PROFILING_ENABLE, status);
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *status)
{
    cl_kernel kernel = real.CreateKernel(program, name, status);
    struct kernel_name *entry = malloc(sizeof *entry);
    if (kernel == NULL || entry == NULL) {
        free(entry);
        return kernel;
    }
    pthread_mutex_lock(&lock);
    *entry = (struct kernel_name){kernel, strdup(name), names};
    names = entry;
    pthread_mutex_unlock(&lock);
    return kernel;
}

static const char *trace_name_of(cl_kernel kernel)
{
    pthread_mutex_lock(&lock);
    const struct kernel_name *entry = names;
    while (entry != NULL && entry->kernel != kernel)
        entry = entry->next;
    pthread_mutex_unlock(&lock);
    return entry != NULL && entry->name != NULL ? entry->name : "kernel";
}

static cl_int CL_API_CALL trace_launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                       const size_t *offset, const size_t *global,
                                       const size_t *local, cl_uint waits,
                                       const cl_event *wait_list, cl_event *event)
{
    cl_event own = NULL;
    cl_int status = real.EnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local,
                                              waits, wait_list, event != NULL ? event : &own);
    return trace_note(status, queue, trace_name_of(kernel), event, own);
}

/* A transfer, with the parameters of functions.def. */
#define TRANSFER(function, what, parameters, arguments)                                            \
    static cl_int CL_API_CALL function parameters                                                  \
    {                                                                                              \
        cl_event own = NULL, *callers = event;                                                     \
        if (event == NULL)                                                                         \
            event = &own;                                                                          \
        return trace_note(real.function arguments, queue, what, callers, own);                     \
    }

TRANSFER(EnqueueReadBuffer, "download",
         (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
          void *host, cl_uint waits, const cl_event *wait_list, cl_event *event),
         (queue, buffer, blocking, offset, size, host, waits, wait_list, event))
TRANSFER(EnqueueWriteBuffer, "upload",
         (cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
          const void *host, cl_uint waits, const cl_event *wait_list, cl_event *event),
         (queue, buffer, blocking, offset, size, host, waits, wait_list, event))
TRANSFER(EnqueueReadBufferRect, "download",
         (cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *buffer_origin,
          const size_t *host_origin, const size_t *region, size_t buffer_row_pitch,
          size_t buffer_slice_pitch, size_t host_row_pitch, size_t host_slice_pitch, void *host,
          cl_uint waits, const cl_event *wait_list, cl_event *event),
         (queue, buffer, blocking, buffer_origin, host_origin, region, buffer_row_pitch,
          buffer_slice_pitch, host_row_pitch, host_slice_pitch, host, waits, wait_list, event))
TRANSFER(EnqueueWriteBufferRect, "upload",
         (cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *buffer_origin,
          const size_t *host_origin, const size_t *region, size_t buffer_row_pitch,
          size_t buffer_slice_pitch, size_t host_row_pitch, size_t host_slice_pitch,
          const void *host, cl_uint waits, const cl_event *wait_list, cl_event *event),
         (queue, buffer, blocking, buffer_origin, host_origin, region, buffer_row_pitch,
          buffer_slice_pitch, host_row_pitch, host_slice_pitch, host, waits, wait_list, event))

static cl_int CL_API_CALL trace_finish(cl_command_queue queue)
{
    cl_int status = real.Finish(queue);
    pthread_mutex_lock(&lock);
    sweep();
    pthread_mutex_unlock(&lock);
    return status;
}

void clb_cl_trace(struct clb_cl *table)
{
    real = *table;
    table->CreateCommandQueue = create_queue;
    table->CreateKernel = create_kernel;
    table->EnqueueNDRangeKernel = trace_launch;
    table->EnqueueReadBuffer = EnqueueReadBuffer;
    table->EnqueueWriteBuffer = EnqueueWriteBuffer;
    table->EnqueueReadBufferRect = EnqueueReadBufferRect;
    table->EnqueueWriteBufferRect = EnqueueWriteBufferRect;
    table->Finish = trace_finish;
}
