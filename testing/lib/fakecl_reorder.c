/* Queues that leave as much as they may undone, and undone as long as they may.
 *
 * A command is kept when it is enqueued, with its arguments. Commands are carried out only when the
 * program waits for one (clWaitForEvents, clFinish, a blocking command) or asks for a status, one
 * at a time, in a random order that the wait lists, in-order queues and barriers allow: of those
 * that are waited for, and what they need, and at times of any others. clFlush does nothing. So
 * what reads memory without waiting for what writes it, or writes before others have read, sees it.
 *
 * REORDER in the environment is the seed, so that any test whose OpenCL is the fake one runs so.
 * The order also depends on when threads wait. SPDX-License-Identifier: BSD-3-Clause
 *
 * Events are structs of this file. What is wrong with a command the driver says when it is carried
 * out, which ends the process: the tests' rules of arguments stand above. */
#include "fakecl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGUMENTS = 32, MAX_VALUE = 64 };

enum operation { BARRIER, READ, WRITE, READ_RECT, WRITE_RECT, UNMAP, LAUNCH };

struct value {
    size_t size;
    bool local;  /* only a size */
    bool buffer; /* with a reference, in a command */
    unsigned char bytes[MAX_VALUE];
};

/* A command, and its event. */
struct command {
    size_t references; /* of the program, of those that wait for it, and one until it is done */
    bool done, wanted;
    struct queue *queue;
    enum operation operation;
    struct command **after; /* those that come first, a reference each */
    size_t count;
    cl_mem mem;
    size_t offset, size;
    void *host;
    size_t origin[3], host_origin[3], region[3], pitch[4];
    cl_kernel kernel;
    cl_uint dimensions;
    size_t global[3], local[3];
    bool has_local;
    cl_uint arguments;
    struct value *argument;
};

struct queue {
    struct queue *next;
    cl_command_queue handle;
    bool any_order;
    struct command *last, *barrier; /* with a reference each */
};

struct kernel {
    struct kernel *next;
    cl_kernel handle;
    cl_uint arguments;
    struct value argument[MAX_ARGUMENTS];
};

static struct clb_cl below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for all of it, and while one is done */
static uint64_t state;
static struct queue *queues;
static struct kernel *kernels;
static struct command **pending; /* in the order in which they were enqueued */
static size_t pending_count, pending_capacity;
static cl_int(CL_API_CALL *retain_mem)(cl_mem);
static cl_int(CL_API_CALL *retain_kernel)(cl_kernel);

static _Noreturn void fail(const char *what, cl_int status)
{
    fprintf(stderr, "fakecl: %s: %d\n", what, (int)status);
    abort();
}

static void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (memory == NULL)
        fail("no memory", 0);
    return memory;
}

/* splitmix64. */
static size_t below_bound(size_t bound)
{
    uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (size_t)((z ^ (z >> 31)) % bound);
}

/* ---- commands; under the lock ---- */

static void release(struct command *command)
{
    if (command == NULL || --command->references > 0)
        return;
    free(command->after);
    free(command->argument);
    free(command);
}

static void wait_first(struct command *command, struct command *first)
{
    if (first == NULL || first->done)
        return;
    first->references++;
    command->after[command->count++] = first;
}

static struct queue *queue_of(cl_command_queue handle)
{
    for (struct queue *queue = queues; queue != NULL; queue = queue->next) {
        if (queue->handle == handle)
            return queue;
    }
    fail("an unknown queue", CL_INVALID_COMMAND_QUEUE);
}

static void replace(struct command **place, struct command *command)
{
    command->references++;
    release(*place);
    *place = command;
}

/* Add a command behind what it has to wait for. */
static void enqueue(struct command *command, cl_uint waits, const cl_event *wait_list,
                    cl_event *event)
{
    struct queue *queue = command->queue;
    const bool barrier = command->operation == BARRIER && command->mem == NULL;
    command->after = allocate((waits + pending_count + 2) * sizeof *command->after);
    for (cl_uint i = 0; i < waits; i++)
        wait_first(command, (struct command *)wait_list[i]);
    wait_first(command, queue->any_order ? queue->barrier : queue->last);
    for (size_t i = 0; barrier && waits == 0 && queue->any_order && i < pending_count; i++) {
        if (pending[i]->queue == queue)
            wait_first(command, pending[i]);
    }
    size_t launches = 0;
    for (size_t i = 0; i < pending_count; i++)
        launches += pending[i]->queue == queue && pending[i]->operation == LAUNCH;
    if (launches >= 500)
        fail("500 launches of a queue are unfinished: drivers would wait for one to end", 0);
    replace(&queue->last, command);
    if (barrier)
        replace(&queue->barrier, command);
    if (pending_count == pending_capacity) {
        pending_capacity = 2 * pending_capacity + 256;
        pending = realloc(pending, pending_capacity * sizeof *pending);
        if (pending == NULL)
            fail("no memory", 0);
    }
    pending[pending_count++] = command;
    command->references += event != NULL ? 2 : 1;
    if (event != NULL)
        *event = (cl_event)command;
}

static void check(cl_int status, const char *what)
{
    if (status != CL_SUCCESS)
        fail(what, status);
}

static cl_mem buffer_of(const struct value *value)
{
    cl_mem mem;
    memcpy(&mem, value->bytes, sizeof mem);
    return mem;
}

static void launch_now(const struct command *c)
{
    for (cl_uint i = 0; i < c->arguments; i++) {
        const struct value *value = &c->argument[i];
        if (value->size > 0)
            check(below.SetKernelArg(c->kernel, i, value->size, value->local ? NULL : value->bytes),
                  "clSetKernelArg");
    }
    check(below.EnqueueNDRangeKernel(c->queue->handle, c->kernel, c->dimensions, NULL, c->global,
                                     c->has_local ? c->local : NULL, 0, NULL, NULL),
          "clEnqueueNDRangeKernel");
    check(below.Finish(c->queue->handle), "clFinish");
    check(below.ReleaseKernel(c->kernel), "clReleaseKernel");
}

static void carry_out(struct command *c)
{
    const cl_command_queue queue = c->queue->handle;
    switch (c->operation) {
    case BARRIER:
        break;
    case READ:
        check(below.EnqueueReadBuffer(queue, c->mem, CL_TRUE, c->offset, c->size, c->host, 0, NULL,
                                      NULL),
              "clEnqueueReadBuffer");
        break;
    case WRITE:
        check(below.EnqueueWriteBuffer(queue, c->mem, CL_TRUE, c->offset, c->size, c->host, 0, NULL,
                                       NULL),
              "clEnqueueWriteBuffer");
        break;
    case READ_RECT:
        check(below.EnqueueReadBufferRect(queue, c->mem, CL_TRUE, c->origin, c->host_origin,
                                          c->region, c->pitch[0], c->pitch[1], c->pitch[2],
                                          c->pitch[3], c->host, 0, NULL, NULL),
              "clEnqueueReadBufferRect");
        break;
    case WRITE_RECT:
        check(below.EnqueueWriteBufferRect(queue, c->mem, CL_TRUE, c->origin, c->host_origin,
                                           c->region, c->pitch[0], c->pitch[1], c->pitch[2],
                                           c->pitch[3], c->host, 0, NULL, NULL),
              "clEnqueueWriteBufferRect");
        break;
    case UNMAP:
        check(below.EnqueueUnmapMemObject(queue, c->mem, c->host, 0, NULL, NULL),
              "clEnqueueUnmapMemObject");
        check(below.Finish(queue), "clFinish");
        break;
    case LAUNCH:
        launch_now(c);
        break;
    }
    if (c->mem != NULL)
        check(below.ReleaseMemObject(c->mem), "clReleaseMemObject");
    for (cl_uint i = 0; i < c->arguments; i++) {
        if (c->argument[i].buffer)
            check(below.ReleaseMemObject(buffer_of(&c->argument[i])), "clReleaseMemObject");
    }
    for (size_t i = 0; i < c->count; i++)
        release(c->after[i]);
    c->count = 0;
    c->done = true;
}

static bool is_ready(const struct command *command)
{
    for (size_t i = 0; i < command->count; i++) {
        if (!command->after[i]->done)
            return false;
    }
    return true;
}

/* Carry out one command of those that may be, where `all` is false of the wanted ones. */
static bool do_one(bool all)
{
    size_t ready = 0, chosen = 0;
    for (size_t i = 0; i < pending_count; i++) {
        if ((all || pending[i]->wanted) && is_ready(pending[i]) && below_bound(++ready) == 0)
            chosen = i;
    }
    if (ready == 0)
        return false;
    struct command *command = pending[chosen];
    memmove(&pending[chosen], &pending[chosen + 1], (--pending_count - chosen) * sizeof *pending);
    carry_out(command);
    release(command);
    return true;
}

/* A command after what it needs, and some others among these. */
static void do_until(struct command *command)
{
    const size_t others = below_bound(2) * below_bound(6); /* in eight */
    command->wanted = true;
    for (size_t i = pending_count; i-- > 0;) {
        for (size_t j = 0; pending[i]->wanted && j < pending[i]->count; j++)
            pending[i]->after[j]->wanted = true;
    }
    while (!command->done)
        (void)do_one(below_bound(8) < others);
}

/* Something else may come first, as far as it can without the rest. */
static void force(struct command *command)
{
    if (command == NULL || command->done)
        return;
    while (pending_count > 0 && below_bound(3) == 0)
        do_until(pending[below_bound(pending_count)]);
    if (!command->done)
        do_until(command);
}

/* ---- buffers and kernels ---- */

/* Those that live for the program, so that an argument is recognised as one. Commands have
 * references of their own. */
static cl_mem *buffers;
static size_t buffer_count;

/* Its place, or one behind the last. */
static size_t place_of(cl_mem mem)
{
    size_t i = 0;
    while (i < buffer_count && buffers[i] != mem)
        i++;
    return i;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size,
                                        void *host, cl_int *status)
{
    pthread_mutex_lock(&lock);
    cl_mem mem = below.CreateBuffer(context, flags, size, host, status);
    size_t place = place_of(NULL);
    if (mem != NULL && place == buffer_count) {
        buffers = realloc(buffers, ++buffer_count * sizeof *buffers);
        if (buffers == NULL)
            fail("no memory", 0);
    }
    if (mem != NULL)
        buffers[place] = mem;
    pthread_mutex_unlock(&lock);
    return mem;
}

static cl_int CL_API_CALL release_buffer(cl_mem mem)
{
    pthread_mutex_lock(&lock);
    size_t place = place_of(mem);
    cl_int status = below.ReleaseMemObject(mem);
    if (status == CL_SUCCESS && place < buffer_count)
        buffers[place] = NULL;
    pthread_mutex_unlock(&lock);
    return status;
}

static struct kernel **find_kernel(cl_kernel handle)
{
    struct kernel **link = &kernels;
    while (*link != NULL && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

static cl_kernel CL_API_CALL create_kernel(cl_program program, const char *name, cl_int *status)
{
    pthread_mutex_lock(&lock);
    cl_kernel handle = below.CreateKernel(program, name, status);
    if (handle != NULL) {
        struct kernel *kernel = allocate(sizeof *kernel);
        kernel->handle = handle;
        kernel->next = kernels;
        kernels = kernel;
    }
    pthread_mutex_unlock(&lock);
    return handle;
}

static cl_int CL_API_CALL release_kernel(cl_kernel handle)
{
    pthread_mutex_lock(&lock);
    struct kernel **link = find_kernel(handle), *kernel = *link;
    if (kernel != NULL) {
        *link = kernel->next;
        free(kernel);
    }
    cl_int status = below.ReleaseKernel(handle);
    pthread_mutex_unlock(&lock);
    return status;
}

static cl_int CL_API_CALL set_argument(cl_kernel handle, cl_uint index, size_t size,
                                       const void *data)
{
    pthread_mutex_lock(&lock);
    struct kernel *kernel = *find_kernel(handle);
    cl_int status = below.SetKernelArg(handle, index, size, data);
    if (status == CL_SUCCESS) {
        if (kernel == NULL || index >= MAX_ARGUMENTS || (data != NULL && size > MAX_VALUE))
            fail("an argument that can't be kept", CL_INVALID_ARG_INDEX);
        struct value *value = &kernel->argument[index];
        *value = (struct value){.size = size, .local = data == NULL};
        if (data != NULL)
            memcpy(value->bytes, data, size);
        if (index >= kernel->arguments)
            kernel->arguments = index + 1;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- queues and events ---- */

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                                 cl_command_queue_properties properties,
                                                 cl_int *status)
{
    cl_command_queue handle = below.CreateCommandQueue(context, device, properties, status);
    if (handle == NULL)
        return NULL;
    struct queue *queue = allocate(sizeof *queue);
    pthread_mutex_lock(&lock);
    *queue = (struct queue){.handle = handle, .next = queues};
    queue->any_order = (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE) != 0;
    queues = queue;
    pthread_mutex_unlock(&lock);
    return handle;
}

static void finish_queue(struct queue *queue)
{
    for (size_t i = 0; queue->any_order && i < pending_count;) {
        if (pending[i]->queue == queue) {
            force(pending[i]);
            i = 0;
        } else {
            i++;
        }
    }
    force(queue->last);
}

static cl_int CL_API_CALL finish(cl_command_queue handle)
{
    pthread_mutex_lock(&lock);
    finish_queue(queue_of(handle));
    pthread_mutex_unlock(&lock);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL flush(cl_command_queue handle)
{
    (void)handle;
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_queue(cl_command_queue handle)
{
    pthread_mutex_lock(&lock);
    struct queue **link = &queues, *queue = queue_of(handle);
    finish_queue(queue);
    while (*link != queue)
        link = &(*link)->next;
    *link = queue->next;
    release(queue->last);
    release(queue->barrier);
    free(queue);
    pthread_mutex_unlock(&lock);
    return below.ReleaseCommandQueue(handle);
}

static cl_int CL_API_CALL wait_for(cl_uint count, const cl_event *events)
{
    pthread_mutex_lock(&lock);
    for (cl_uint i = 0; i < count; i++)
        force((struct command *)events[i]);
    pthread_mutex_unlock(&lock);
    return CL_SUCCESS;
}

/* Who asks again and again, instead of waiting, sees commands end at last. */
static cl_int CL_API_CALL event_info(cl_event event, cl_event_info name, size_t size, void *value,
                                     size_t *needed)
{
    static const cl_command_type types[] = {[BARRIER] = CL_COMMAND_BARRIER,
                                            [READ] = CL_COMMAND_READ_BUFFER,
                                            [WRITE] = CL_COMMAND_WRITE_BUFFER,
                                            [READ_RECT] = CL_COMMAND_READ_BUFFER_RECT,
                                            [WRITE_RECT] = CL_COMMAND_WRITE_BUFFER_RECT,
                                            [UNMAP] = CL_COMMAND_UNMAP_MEM_OBJECT,
                                            [LAUNCH] = CL_COMMAND_NDRANGE_KERNEL};
    struct command *command = (struct command *)event;
    if (name == CL_EVENT_COMMAND_TYPE && size == sizeof *types && value != NULL) {
        memcpy(value, &types[command->operation], size);
        return CL_SUCCESS;
    }
    if (name == CL_EVENT_COMMAND_QUEUE && size == sizeof(cl_command_queue) && value != NULL) {
        memcpy(value, &command->queue->handle, size);
        return CL_SUCCESS;
    }
    if (name != CL_EVENT_COMMAND_EXECUTION_STATUS || size < sizeof(cl_int) || value == NULL)
        fail("clGetEventInfo for something else", (cl_int)name);
    pthread_mutex_lock(&lock);
    const size_t choice = command->done ? 0 : below_bound(8);
    if (choice == 1)
        (void)do_one(true);
    else if (choice == 2)
        force(command);
    *(cl_int *)value = command->done ? CL_COMPLETE : CL_SUBMITTED;
    pthread_mutex_unlock(&lock);
    if (needed != NULL)
        *needed = sizeof(cl_int);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL event_times(cl_event event, cl_profiling_info name, size_t size,
                                      void *value, size_t *needed)
{
    (void)event;
    (void)name;
    (void)size;
    (void)value;
    (void)needed;
    return CL_PROFILING_INFO_NOT_AVAILABLE;
}

static cl_int CL_API_CALL retain_event(cl_event event)
{
    pthread_mutex_lock(&lock);
    ((struct command *)event)->references++;
    pthread_mutex_unlock(&lock);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL release_event(cl_event event)
{
    pthread_mutex_lock(&lock);
    release((struct command *)event);
    pthread_mutex_unlock(&lock);
    return CL_SUCCESS;
}

/* ---- commands, as the program calls them ---- */

/* Takes the lock. */
static struct command *begin(cl_command_queue queue, enum operation operation, cl_mem mem)
{
    pthread_mutex_lock(&lock);
    struct command *command = allocate(sizeof *command);
    command->queue = queue_of(queue);
    command->operation = operation;
    command->mem = mem;
    if (mem != NULL)
        check(retain_mem(mem), "clRetainMemObject");
    return command;
}

/* Releases it. */
static cl_int end(struct command *command, cl_bool blocking, cl_uint waits,
                  const cl_event *wait_list, cl_event *event)
{
    enqueue(command, waits, wait_list, event);
    if (blocking == CL_TRUE)
        force(command);
    pthread_mutex_unlock(&lock);
    return CL_SUCCESS;
}

static cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                      size_t offset, size_t size, void *host, cl_uint waits,
                                      const cl_event *wait_list, cl_event *event)
{
    struct command *c = begin(queue, READ, mem);
    c->offset = offset;
    c->size = size;
    c->host = host;
    return end(c, blocking, waits, wait_list, event);
}

static cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                       size_t offset, size_t size, const void *host, cl_uint waits,
                                       const cl_event *wait_list, cl_event *event)
{
    struct command *c = begin(queue, WRITE, mem);
    c->offset = offset;
    c->size = size;
    c->host = (void *)(uintptr_t)host;
    return end(c, blocking, waits, wait_list, event);
}

static cl_int rect(struct command *c, cl_bool blocking, const size_t *origin,
                   const size_t *host_origin, const size_t *region, const size_t pitch[4],
                   const void *host, cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    memcpy(c->origin, origin, sizeof c->origin);
    memcpy(c->host_origin, host_origin, sizeof c->host_origin);
    memcpy(c->region, region, sizeof c->region);
    memcpy(c->pitch, pitch, sizeof c->pitch);
    c->host = (void *)(uintptr_t)host;
    return end(c, blocking, waits, wait_list, event);
}

static cl_int CL_API_CALL read_rect(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                    const size_t *origin, const size_t *host_origin,
                                    const size_t *region, size_t row, size_t slice, size_t host_row,
                                    size_t host_slice, void *host, cl_uint waits,
                                    const cl_event *wait_list, cl_event *event)
{
    const size_t pitch[4] = {row, slice, host_row, host_slice};
    return rect(begin(queue, READ_RECT, mem), blocking, origin, host_origin, region, pitch, host,
                waits, wait_list, event);
}

static cl_int CL_API_CALL write_rect(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                     const size_t *origin, const size_t *host_origin,
                                     const size_t *region, size_t row, size_t slice,
                                     size_t host_row, size_t host_slice, const void *host,
                                     cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    const size_t pitch[4] = {row, slice, host_row, host_slice};
    return rect(begin(queue, WRITE_RECT, mem), blocking, origin, host_origin, region, pitch, host,
                waits, wait_list, event);
}

static cl_int CL_API_CALL barrier(cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                                  cl_event *event)
{
    return end(begin(queue, BARRIER, NULL), CL_FALSE, waits, wait_list, event);
}

/* The address is known at once, and PoCL copies nothing; what is to be seen there is not until this
 * command is done. */
static void *CL_API_CALL map_buffer(cl_command_queue queue, cl_mem mem, cl_bool blocking,
                                    cl_map_flags flags, size_t offset, size_t size, cl_uint waits,
                                    const cl_event *wait_list, cl_event *event, cl_int *status)
{
    struct command *c = begin(queue, BARRIER, mem);
    void *mapped =
        below.EnqueueMapBuffer(queue, mem, CL_TRUE, flags, offset, size, 0, NULL, NULL, status);
    check(*status, "clEnqueueMapBuffer");
    *status = end(c, blocking, waits, wait_list, event);
    return mapped;
}

static cl_int CL_API_CALL unmap(cl_command_queue queue, cl_mem mem, void *mapped, cl_uint waits,
                                const cl_event *wait_list, cl_event *event)
{
    struct command *c = begin(queue, UNMAP, mem);
    c->host = mapped;
    return end(c, CL_FALSE, waits, wait_list, event);
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel handle, cl_uint dimensions,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    if (offset != NULL)
        fail("an offset of work-items", CL_INVALID_GLOBAL_OFFSET);
    struct command *c = begin(queue, LAUNCH, NULL);
    const struct kernel *kernel = *find_kernel(handle);
    if (kernel == NULL)
        fail("an unknown kernel", CL_INVALID_KERNEL);
    c->kernel = handle;
    check(retain_kernel(handle), "clRetainKernel");
    c->dimensions = dimensions;
    memcpy(c->global, global, dimensions * sizeof *global);
    c->has_local = local != NULL;
    if (local != NULL)
        memcpy(c->local, local, dimensions * sizeof *local);
    c->arguments = kernel->arguments;
    c->argument = allocate((c->arguments + 1) * sizeof *c->argument);
    memcpy(c->argument, kernel->argument, c->arguments * sizeof *c->argument);
    for (cl_uint i = 0; i < c->arguments; i++) {
        struct value *value = &c->argument[i];
        if (value->local || value->size != sizeof(cl_mem) || buffer_of(value) == NULL ||
            place_of(buffer_of(value)) == buffer_count)
            continue;
        value->buffer = true;
        check(retain_mem(buffer_of(value)), "clRetainMemObject");
    }
    return end(c, CL_FALSE, waits, wait_list, event);
}

/* ---- installation ---- */

static void find_function(void *library, const char *name, void *function)
{
    void *address = library != NULL ? dlsym(library, name) : NULL;
    if (address == NULL)
        fail(name, 0);
    memcpy(function, &address, sizeof address);
}

void fake_cl_add_reordering(struct clb_cl *table, void *library)
{
    find_function(library, "clRetainMemObject", &retain_mem);
    find_function(library, "clRetainKernel", &retain_kernel);
    below = *table;
    state = strtoull(getenv("REORDER"), NULL, 0);
    table->CreateBuffer = create_buffer;
    table->ReleaseMemObject = release_buffer;
    table->CreateKernel = create_kernel;
    table->ReleaseKernel = release_kernel;
    table->SetKernelArg = set_argument;
    table->CreateCommandQueue = create_queue;
    table->ReleaseCommandQueue = release_queue;
    table->Flush = flush;
    table->Finish = finish;
    table->WaitForEvents = wait_for;
    table->GetEventInfo = event_info;
    table->GetEventProfilingInfo = event_times;
    table->RetainEvent = retain_event;
    table->ReleaseEvent = release_event;
    table->EnqueueReadBuffer = read_buffer;
    table->EnqueueWriteBuffer = write_buffer;
    table->EnqueueReadBufferRect = read_rect;
    table->EnqueueWriteBufferRect = write_rect;
    table->EnqueueBarrierWithWaitList = barrier;
    table->EnqueueMapBuffer = map_buffer;
    table->EnqueueUnmapMemObject = unmap;
    table->EnqueueNDRangeKernel = launch;
}
