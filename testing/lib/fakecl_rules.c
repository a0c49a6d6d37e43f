/* OpenCL 1.2's rules for the arguments of every function in the table, as a strict driver keeps
 * them: drivers differ in what they let pass. A breach is a failed expectation of the test, and the
 * call returns what such a driver would.
 *
 * This is the outermost layer of the table: what it knows of objects is what the library was given
 * and gave back, whatever the layers below did. SPDX-License-Identifier: BSD-3-Clause */
#include "fakecl.h"

#include "tap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { CONTEXT = 1, QUEUE, BUFFER, PROGRAM, KERNEL, EVENT };

#define MAX_ARGUMENTS 24
#define MAX_MAPPINGS  4

/* What an argument of a kernel must be. */
enum space { UNKNOWN, POINTER, LOCAL, VALUE };

struct argument {
    enum space space;
    size_t size; /* of a value of a known type; or 0 */
    bool set;
    cl_mem mem;
};

struct object {
    const void *handle;
    struct object *next;
    enum kind kind;
    long references; /* 0: released */
    const void *context;
    cl_device_id device; /* of a queue */
    /* Buffers. */
    cl_mem_flags flags;
    size_t size;
    const char *host;
    const void *mapped[MAX_MAPPINGS];
    /* Programs and kernels. */
    bool built;
    cl_uint arguments;
    size_t group[3];
    struct argument argument[MAX_ARGUMENTS];
    char name[64];
};

#define BUCKETS 8192

static struct clb_cl below, driver;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *buckets[BUCKETS];
static size_t max_group, max_alloc, max_items[3];

static cl_int(CL_API_CALL *get_kernel_info)(cl_kernel, cl_kernel_info, size_t, void *, size_t *);
static cl_int(CL_API_CALL *get_argument_info)(cl_kernel, cl_uint, cl_kernel_arg_info, size_t,
                                              void *, size_t *);
static cl_int(CL_API_CALL *get_group_info)(cl_kernel, cl_device_id, cl_kernel_work_group_info,
                                           size_t, void *, size_t *);

/* ---- breaches ---- */

static __attribute__((format(printf, 2, 3))) bool keep(bool kept, const char *format, ...)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    char text[200];
    va_list args;
    if (kept)
        return true;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pthread_mutex_lock(&one);
    fake_cl.breaches++;
    if (!fake_cl.breaches_wanted)
        expect(false, "a rule of OpenCL: %s", text);
    pthread_mutex_unlock(&one);
    return false;
}

/* ---- objects; under the lock ---- */

static struct object **find(const void *handle)
{
    struct object **link = &buckets[((uintptr_t)handle >> 4) % BUCKETS];
    while (*link != NULL && (*link)->handle != handle)
        link = &(*link)->next;
    return link;
}

/* Objects stay. Their memory is not malloc's: tests count and fail the library's allocations. */
static struct object *new_object(void)
{
    enum { MANY = 1024 };
    static struct object *chunk;
    static size_t used = MANY;
    if (used == MANY) {
        chunk = mmap(NULL, MANY * sizeof *chunk, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        used = 0;
    }
    if (chunk == MAP_FAILED)
        abort();
    return &chunk[used++];
}

/* An address may be that of something released before. */
static struct object *enter(const void *handle, enum kind kind, const void *context)
{
    struct object **link = find(handle), *object = *link;
    if (object == NULL)
        object = *link = new_object();
    *object = (struct object){
        .handle = handle, .next = object->next, .kind = kind, .references = 1, .context = context};
    return object;
}

/* The live object, or NULL and a breach. */
static struct object *look_up(const void *handle, enum kind kind, const char *where)
{
    static const char *const names[] = {"",        "context", "queue", "buffer",
                                        "program", "kernel",  "event"};
    struct object *object = handle == NULL ? NULL : *find(handle);
    bool live = object != NULL && object->kind == kind && object->references > 0;
    bool once = object != NULL && object->kind == kind;
    (void)keep(live, "%s: %s %s", where,
               handle == NULL ? "NULL instead of a"
               : once         ? "use of a released"
                              : "what should be a",
               names[kind]);
    return live ? object : NULL;
}

/* Give back a reference. */
static bool release(const void *handle, enum kind kind, const char *where)
{
    pthread_mutex_lock(&lock);
    struct object *object = look_up(handle, kind, where);
    if (object != NULL)
        object->references--;
    pthread_mutex_unlock(&lock);
    return object != NULL;
}

static bool is_live(const void *handle, enum kind kind, const char *where)
{
    pthread_mutex_lock(&lock);
    bool live = look_up(handle, kind, where) != NULL;
    pthread_mutex_unlock(&lock);
    return live;
}

/* ---- what commands have in common; under the lock ---- */

static cl_int check_waits(const void *context, cl_uint waits, const cl_event *wait_list,
                          const char *where)
{
    if (!keep((waits == 0) == (wait_list == NULL), "%s: %u events and %s list", where, waits,
              wait_list == NULL ? "no" : "a"))
        return CL_INVALID_EVENT_WAIT_LIST;
    for (cl_uint i = 0; i < waits; i++) {
        const struct object *event = look_up(wait_list[i], EVENT, where);
        if (event == NULL)
            return CL_INVALID_EVENT_WAIT_LIST;
        if (!keep(event->context == context, "%s: an event of another context", where))
            return CL_INVALID_CONTEXT;
    }
    return CL_SUCCESS;
}

static cl_int check_command(cl_command_queue queue, cl_uint waits, const cl_event *wait_list,
                            const char *where)
{
    const struct object *object = look_up(queue, QUEUE, where);
    return object == NULL ? CL_INVALID_COMMAND_QUEUE
                          : check_waits(object->context, waits, wait_list, where);
}

/* The buffer of a command. */
static cl_int check_buffer(cl_command_queue queue, cl_mem mem, struct object **buffer,
                           const char *where)
{
    *buffer = look_up(mem, BUFFER, where);
    if (*buffer == NULL)
        return CL_INVALID_MEM_OBJECT;
    return keep((*buffer)->context == (*find(queue))->context, "%s: a buffer of another context",
                where)
               ? CL_SUCCESS
               : CL_INVALID_CONTEXT;
}

static cl_int check_range(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                          size_t size, const char *where)
{
    struct object *buffer;
    cl_int status = check_buffer(queue, mem, &buffer, where);
    if (status != CL_SUCCESS)
        return status;
    bool kept =
        keep(blocking == CL_TRUE || blocking == CL_FALSE, "%s: blocking is %u", where, blocking) &&
        keep(size > 0, "%s: no bytes", where) &&
        keep(offset <= buffer->size && size <= buffer->size - offset, "%s: [%zu, %zu) of %zu bytes",
             where, offset, offset + size, buffer->size);
    return kept ? CL_SUCCESS : CL_INVALID_VALUE;
}

static cl_int check_transfer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                             size_t size, const void *host, cl_uint waits,
                             const cl_event *wait_list, const char *where)
{
    pthread_mutex_lock(&lock);
    cl_int status = check_command(queue, waits, wait_list, where);
    if (status == CL_SUCCESS)
        status = check_range(queue, mem, blocking, offset, size, where);
    pthread_mutex_unlock(&lock);
    if (status == CL_SUCCESS && !keep(host != NULL, "%s: NULL as the host's memory", where))
        status = CL_INVALID_VALUE;
    return status;
}

/* Pitches of 0 are set to what they stand for. */
static bool check_pitches(const size_t *region, size_t *row, size_t *slice, const char *where)
{
    *row = *row == 0 ? region[0] : *row;
    if (!keep(*row >= region[0], "%s: a row of %zu bytes, %zu apart", where, region[0], *row))
        return false;
    *slice = *slice == 0 ? region[1] * *row : *slice;
    return keep(*slice >= region[1] * *row && *slice % *row == 0,
                "%s: a slice of %zu rows of %zu bytes, %zu apart", where, region[1], *row, *slice);
}

static cl_int check_rect(cl_command_queue queue, cl_mem mem, cl_bool blocking, const size_t *origin,
                         const size_t *host_origin, const size_t *region, const size_t pitches[4],
                         const void *host, cl_uint waits, const cl_event *wait_list,
                         const char *where)
{
    size_t row = pitches[0], slice = pitches[1], host_row = pitches[2], host_slice = pitches[3];
    struct object *buffer = NULL;
    pthread_mutex_lock(&lock);
    cl_int status = check_command(queue, waits, wait_list, where);
    if (status == CL_SUCCESS)
        status = check_buffer(queue, mem, &buffer, where);
    size_t size = buffer != NULL ? buffer->size : 0;
    pthread_mutex_unlock(&lock);
    if (status != CL_SUCCESS)
        return status;
    bool kept =
        keep(blocking == CL_TRUE || blocking == CL_FALSE, "%s: blocking is %u", where, blocking) &&
        keep(host != NULL, "%s: NULL as the host's memory", where) &&
        keep(origin != NULL && host_origin != NULL && region != NULL, "%s: no origin", where) &&
        keep(region[0] > 0 && region[1] > 0 && region[2] > 0, "%s: an empty region", where) &&
        check_pitches(region, &row, &slice, where) &&
        check_pitches(region, &host_row, &host_slice, where);
    if (!kept)
        return CL_INVALID_VALUE;
    size_t end = (origin[2] + region[2] - 1) * slice + (origin[1] + region[1] - 1) * row +
                 origin[0] + region[0];
    return keep(end <= size, "%s: %zu bytes of %zu", where, end, size) ? CL_SUCCESS
                                                                       : CL_INVALID_VALUE;
}

/* A command was enqueued. */
static cl_int enqueued(cl_int status, cl_command_queue queue, const cl_event *event)
{
    if (status != CL_SUCCESS || event == NULL)
        return status;
    pthread_mutex_lock(&lock);
    (void)enter(*event, EVENT, (*find(queue))->context);
    pthread_mutex_unlock(&lock);
    return status;
}

/* ---- platforms and devices ---- */

static bool check_list(cl_uint count, const void *list, const cl_uint *found, const char *where)
{
    return keep(list != NULL || found != NULL, "%s: nothing is asked for", where) &&
           keep((count > 0) == (list != NULL), "%s: room for %u in %s list", where, count,
                list == NULL ? "no" : "a");
}

static bool check_room(size_t size, const void *value, size_t needed, const char *where)
{
    return keep(value == NULL || size >= needed, "%s: %zu bytes of room for %zu", where, size,
                needed);
}

static cl_int CL_API_CALL rule_GetPlatformIDs(cl_uint count, cl_platform_id *ids, cl_uint *found)
{
    return check_list(count, ids, found, "clGetPlatformIDs")
               ? below.GetPlatformIDs(count, ids, found)
               : CL_INVALID_VALUE;
}

static cl_int CL_API_CALL rule_GetPlatformInfo(cl_platform_id platform, cl_platform_info name,
                                               size_t size, void *value, size_t *needed)
{
    size_t least = 0;
    if (driver.GetPlatformInfo(platform, name, 0, NULL, &least) == CL_SUCCESS &&
        !check_room(size, value, least, "clGetPlatformInfo"))
        return CL_INVALID_VALUE;
    return below.GetPlatformInfo(platform, name, size, value, needed);
}

static cl_int CL_API_CALL rule_GetDeviceIDs(cl_platform_id platform, cl_device_type type,
                                            cl_uint count, cl_device_id *ids, cl_uint *found)
{
    const cl_device_type known = CL_DEVICE_TYPE_DEFAULT | CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_GPU |
                                 CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CUSTOM;
    if (!keep(type == CL_DEVICE_TYPE_ALL || (type != 0 && (type & ~known) == 0),
              "clGetDeviceIDs: type %#llx", (unsigned long long)type))
        return CL_INVALID_DEVICE_TYPE;
    if (!check_list(count, ids, found, "clGetDeviceIDs"))
        return CL_INVALID_VALUE;
    return below.GetDeviceIDs(platform, type, count, ids, found);
}

static cl_int CL_API_CALL rule_GetDeviceInfo(cl_device_id device, cl_device_info name, size_t size,
                                             void *value, size_t *needed)
{
    size_t least = 0;
    if (driver.GetDeviceInfo(device, name, 0, NULL, &least) == CL_SUCCESS &&
        !check_room(size, value, least, "clGetDeviceInfo"))
        return CL_INVALID_VALUE;
    return below.GetDeviceInfo(device, name, size, value, needed);
}

/* ---- contexts and queues ---- */

static bool check_properties(const cl_context_properties *properties)
{
    for (size_t i = 0; properties != NULL && properties[i] != 0; i += 2) {
        if (!keep(properties[i] == CL_CONTEXT_PLATFORM && i == 0,
                  "clCreateContext: property %ld at %zu", (long)properties[i], i))
            return false;
    }
    return true;
}

static cl_context CL_API_CALL rule_CreateContext(
    const cl_context_properties *properties, cl_uint count, const cl_device_id *devices,
    void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *), void *user,
    cl_int *status)
{
    if (!check_properties(properties) ||
        !keep(count > 0 && devices != NULL, "clCreateContext: no devices") ||
        !keep(notify != NULL || user == NULL, "clCreateContext: data for no callback")) {
        *status = CL_INVALID_VALUE;
        return NULL;
    }
    cl_context context = below.CreateContext(properties, count, devices, notify, user, status);
    if (context == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    (void)enter(context, CONTEXT, context);
    size_t items[8] = {0};
    cl_ulong bytes = 0;
    (void)below.GetDeviceInfo(devices[0], CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof max_group,
                              &max_group, NULL);
    (void)below.GetDeviceInfo(devices[0], CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL);
    if (below.GetDeviceInfo(devices[0], CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof bytes, &bytes, NULL) ==
        CL_SUCCESS)
        max_alloc = bytes;
    memcpy(max_items, items, sizeof max_items);
    pthread_mutex_unlock(&lock);
    return context;
}

static cl_int CL_API_CALL rule_ReleaseContext(cl_context context)
{
    return release(context, CONTEXT, "clReleaseContext") ? below.ReleaseContext(context)
                                                         : CL_INVALID_CONTEXT;
}

static cl_command_queue CL_API_CALL rule_CreateCommandQueue(cl_context context, cl_device_id device,
                                                            cl_command_queue_properties properties,
                                                            cl_int *status)
{
    const cl_command_queue_properties known =
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | CL_QUEUE_PROFILING_ENABLE;
    *status = !is_live(context, CONTEXT, "clCreateCommandQueue")         ? CL_INVALID_CONTEXT
              : !keep(device != NULL, "clCreateCommandQueue: no device") ? CL_INVALID_DEVICE
              : !keep((properties & ~known) == 0, "clCreateCommandQueue: unknown properties")
                  ? CL_INVALID_VALUE
                  : CL_SUCCESS;
    if (*status != CL_SUCCESS)
        return NULL;
    cl_command_queue queue = below.CreateCommandQueue(context, device, properties, status);
    if (queue != NULL) {
        pthread_mutex_lock(&lock);
        enter(queue, QUEUE, context)->device = device;
        pthread_mutex_unlock(&lock);
    }
    return queue;
}

static cl_int CL_API_CALL rule_ReleaseCommandQueue(cl_command_queue queue)
{
    return release(queue, QUEUE, "clReleaseCommandQueue") ? below.ReleaseCommandQueue(queue)
                                                          : CL_INVALID_COMMAND_QUEUE;
}

static cl_int CL_API_CALL rule_Flush(cl_command_queue queue)
{
    return is_live(queue, QUEUE, "clFlush") ? below.Flush(queue) : CL_INVALID_COMMAND_QUEUE;
}

static cl_int CL_API_CALL rule_Finish(cl_command_queue queue)
{
    return is_live(queue, QUEUE, "clFinish") ? below.Finish(queue) : CL_INVALID_COMMAND_QUEUE;
}

/* ---- buffers ---- */

static cl_int check_new_buffer(cl_context context, cl_mem_flags flags, size_t size,
                               const void *host)
{
    const char *where = "clCreateBuffer";
    const cl_mem_flags access = CL_MEM_READ_WRITE | CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY;
    const cl_mem_flags known = access | CL_MEM_USE_HOST_PTR | CL_MEM_ALLOC_HOST_PTR |
                               CL_MEM_COPY_HOST_PTR | CL_MEM_HOST_WRITE_ONLY |
                               CL_MEM_HOST_READ_ONLY | CL_MEM_HOST_NO_ACCESS;
    bool use = (flags & CL_MEM_USE_HOST_PTR) != 0, copy = (flags & CL_MEM_COPY_HOST_PTR) != 0;
    bool kept =
        keep((flags & ~known) == 0, "%s: unknown flags %#llx", where, (unsigned long long)flags) &&
        keep((flags & access & ((flags & access) - 1)) == 0, "%s: two ways of access", where) &&
        keep(!use || (flags & (CL_MEM_ALLOC_HOST_PTR | CL_MEM_COPY_HOST_PTR)) == 0,
             "%s: the host's memory is used, and allocated or copied", where);
    if (!is_live(context, CONTEXT, where))
        return CL_INVALID_CONTEXT;
    if (!kept)
        return CL_INVALID_VALUE;
    if (!keep((use || copy) == (host != NULL), "%s: %s host's memory", where,
              host == NULL ? "no" : "unused"))
        return CL_INVALID_HOST_PTR;
    return keep(size > 0 && (max_alloc == 0 || size <= max_alloc), "%s: %zu bytes", where, size)
               ? CL_SUCCESS
               : CL_INVALID_BUFFER_SIZE;
}

static cl_mem CL_API_CALL rule_CreateBuffer(cl_context context, cl_mem_flags flags, size_t size,
                                            void *host, cl_int *status)
{
    *status = check_new_buffer(context, flags, size, host);
    if (*status != CL_SUCCESS)
        return NULL;
    cl_mem mem = below.CreateBuffer(context, flags, size, host, status);
    if (mem != NULL) {
        pthread_mutex_lock(&lock);
        struct object *object = enter(mem, BUFFER, context);
        object->flags = flags;
        object->size = size;
        object->host = (flags & CL_MEM_USE_HOST_PTR) != 0 ? host : NULL;
        pthread_mutex_unlock(&lock);
    }
    return mem;
}

static cl_int CL_API_CALL rule_ReleaseMemObject(cl_mem memory)
{
    return release(memory, BUFFER, "clReleaseMemObject") ? below.ReleaseMemObject(memory)
                                                         : CL_INVALID_MEM_OBJECT;
}

static cl_int CL_API_CALL rule_EnqueueReadBuffer(cl_command_queue queue, cl_mem buffer,
                                                 cl_bool blocking, size_t offset, size_t size,
                                                 void *host, cl_uint waits,
                                                 const cl_event *wait_list, cl_event *event)
{
    cl_int status = check_transfer(queue, buffer, blocking, offset, size, host, waits, wait_list,
                                   "clEnqueueReadBuffer");
    if (status == CL_SUCCESS)
        status = below.EnqueueReadBuffer(queue, buffer, blocking, offset, size, host, waits,
                                         wait_list, event);
    return enqueued(status, queue, event);
}

static cl_int CL_API_CALL rule_EnqueueWriteBuffer(cl_command_queue queue, cl_mem buffer,
                                                  cl_bool blocking, size_t offset, size_t size,
                                                  const void *host, cl_uint waits,
                                                  const cl_event *wait_list, cl_event *event)
{
    cl_int status = check_transfer(queue, buffer, blocking, offset, size, host, waits, wait_list,
                                   "clEnqueueWriteBuffer");
    if (status == CL_SUCCESS)
        status = below.EnqueueWriteBuffer(queue, buffer, blocking, offset, size, host, waits,
                                          wait_list, event);
    return enqueued(status, queue, event);
}

static cl_int CL_API_CALL rule_EnqueueWriteBufferRect(
    cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *origin,
    const size_t *host_origin, const size_t *region, size_t row, size_t slice, size_t host_row,
    size_t host_slice, const void *host, cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    const size_t pitches[4] = {row, slice, host_row, host_slice};
    cl_int status = check_rect(queue, buffer, blocking, origin, host_origin, region, pitches, host,
                               waits, wait_list, "clEnqueueWriteBufferRect");
    if (status == CL_SUCCESS)
        status = below.EnqueueWriteBufferRect(queue, buffer, blocking, origin, host_origin, region,
                                              row, slice, host_row, host_slice, host, waits,
                                              wait_list, event);
    return enqueued(status, queue, event);
}

static cl_int CL_API_CALL rule_EnqueueReadBufferRect(
    cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t *origin,
    const size_t *host_origin, const size_t *region, size_t row, size_t slice, size_t host_row,
    size_t host_slice, void *host, cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    const size_t pitches[4] = {row, slice, host_row, host_slice};
    cl_int status = check_rect(queue, buffer, blocking, origin, host_origin, region, pitches, host,
                               waits, wait_list, "clEnqueueReadBufferRect");
    if (status == CL_SUCCESS)
        status =
            below.EnqueueReadBufferRect(queue, buffer, blocking, origin, host_origin, region, row,
                                        slice, host_row, host_slice, host, waits, wait_list, event);
    return enqueued(status, queue, event);
}

static cl_int CL_API_CALL rule_EnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint waits,
                                                          const cl_event *wait_list,
                                                          cl_event *event)
{
    pthread_mutex_lock(&lock);
    cl_int status = check_command(queue, waits, wait_list, "clEnqueueBarrierWithWaitList");
    pthread_mutex_unlock(&lock);
    if (status == CL_SUCCESS)
        status = below.EnqueueBarrierWithWaitList(queue, waits, wait_list, event);
    return enqueued(status, queue, event);
}

/* ---- mapping ---- */

static bool check_map_flags(cl_map_flags flags)
{
    const cl_map_flags both = CL_MAP_READ | CL_MAP_WRITE;
    return keep((flags & both) != 0 ? (flags & ~both) == 0
                                    : flags == CL_MAP_WRITE_INVALIDATE_REGION,
                "clEnqueueMapBuffer: flags %#llx", (unsigned long long)flags);
}

/* With the lock held. */
static void note_mapping(struct object *buffer, const void *mapped)
{
    size_t i = 0;
    while (i + 1 < MAX_MAPPINGS && buffer->mapped[i] != NULL)
        i++;
    buffer->mapped[i] = mapped;
}

static void *CL_API_CALL rule_EnqueueMapBuffer(cl_command_queue queue, cl_mem buffer,
                                               cl_bool blocking, cl_map_flags flags, size_t offset,
                                               size_t size, cl_uint waits,
                                               const cl_event *wait_list, cl_event *event,
                                               cl_int *status)
{
    const char *where = "clEnqueueMapBuffer";
    pthread_mutex_lock(&lock);
    *status = check_command(queue, waits, wait_list, where);
    if (*status == CL_SUCCESS)
        *status = check_range(queue, buffer, blocking, offset, size, where);
    pthread_mutex_unlock(&lock);
    if (*status == CL_SUCCESS && !check_map_flags(flags))
        *status = CL_INVALID_VALUE;
    if (*status != CL_SUCCESS)
        return NULL;
    void *mapped = below.EnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, waits,
                                          wait_list, event, status);
    if (mapped != NULL) {
        pthread_mutex_lock(&lock);
        note_mapping(*find(buffer), mapped);
        pthread_mutex_unlock(&lock);
        (void)enqueued(*status, queue, event);
    }
    return mapped;
}

/* With the lock held. */
static bool forget_mapping(struct object *buffer, const void *mapped)
{
    for (size_t i = 0; i < MAX_MAPPINGS; i++) {
        if (mapped != NULL && buffer->mapped[i] == mapped) {
            buffer->mapped[i] = NULL;
            return true;
        }
    }
    return false;
}

static cl_int CL_API_CALL rule_EnqueueUnmapMemObject(cl_command_queue queue, cl_mem memory,
                                                     void *mapped, cl_uint waits,
                                                     const cl_event *wait_list, cl_event *event)
{
    const char *where = "clEnqueueUnmapMemObject";
    struct object *buffer = NULL;
    pthread_mutex_lock(&lock);
    cl_int status = check_command(queue, waits, wait_list, where);
    if (status == CL_SUCCESS)
        status = check_buffer(queue, memory, &buffer, where);
    if (status == CL_SUCCESS && !keep(forget_mapping(buffer, mapped), "%s: not mapped", where))
        status = CL_INVALID_VALUE;
    pthread_mutex_unlock(&lock);
    if (status == CL_SUCCESS)
        status = below.EnqueueUnmapMemObject(queue, memory, mapped, waits, wait_list, event);
    return enqueued(status, queue, event);
}

/* ---- programs ---- */

static cl_program enter_program(cl_program program, cl_context context)
{
    pthread_mutex_lock(&lock);
    if (program != NULL)
        (void)enter(program, PROGRAM, context);
    pthread_mutex_unlock(&lock);
    return program;
}

static cl_program CL_API_CALL rule_CreateProgramWithSource(cl_context context, cl_uint count,
                                                           const char **strings,
                                                           const size_t *lengths, cl_int *status)
{
    bool kept = keep(count > 0 && strings != NULL, "clCreateProgramWithSource: no strings");
    for (cl_uint i = 0; kept && i < count; i++)
        kept = keep(strings[i] != NULL, "clCreateProgramWithSource: string %u is NULL", i);
    *status = kept ? CL_SUCCESS : CL_INVALID_VALUE;
    if (!is_live(context, CONTEXT, "clCreateProgramWithSource"))
        *status = CL_INVALID_CONTEXT;
    if (*status != CL_SUCCESS)
        return NULL;
    return enter_program(below.CreateProgramWithSource(context, count, strings, lengths, status),
                         context);
}

static cl_program CL_API_CALL rule_CreateProgramWithBinary(cl_context context, cl_uint count,
                                                           const cl_device_id *devices,
                                                           const size_t *lengths,
                                                           const unsigned char **binaries,
                                                           cl_int *binary_status, cl_int *status)
{
    const char *where = "clCreateProgramWithBinary";
    bool kept = keep(count > 0 && devices != NULL && lengths != NULL && binaries != NULL,
                     "%s: no devices, lengths or binaries", where);
    for (cl_uint i = 0; kept && i < count; i++)
        kept = keep(lengths[i] > 0 && binaries[i] != NULL, "%s: binary %u is empty", where, i);
    *status = kept ? CL_SUCCESS : CL_INVALID_VALUE;
    if (!is_live(context, CONTEXT, where))
        *status = CL_INVALID_CONTEXT;
    if (*status != CL_SUCCESS)
        return NULL;
    return enter_program(below.CreateProgramWithBinary(context, count, devices, lengths, binaries,
                                                       binary_status, status),
                         context);
}

/* Words that any compiler of OpenCL C 1.2 must know, and those that begin with a vendor's name. */
static bool check_options(const char *options)
{
    static const char *const known[] = {"-w",
                                        "-Werror",
                                        "-cl-single-precision-constant",
                                        "-cl-denorms-are-zero",
                                        "-cl-fp32-correctly-rounded-divide-sqrt",
                                        "-cl-opt-disable",
                                        "-cl-mad-enable",
                                        "-cl-no-signed-zeros",
                                        "-cl-unsafe-math-optimizations",
                                        "-cl-finite-math-only",
                                        "-cl-fast-relaxed-math",
                                        "-cl-std=CL1.1",
                                        "-cl-std=CL1.2",
                                        "-cl-kernel-arg-info"};
    char *copy = strdup(options), *rest = copy;
    bool kept = copy != NULL;
    for (char *word; kept && (word = strtok_r(rest, " ", &rest)) != NULL;) {
        bool good =
            strncmp(word, "-cl-nv-", 7) == 0 ||
            ((strncmp(word, "-D", 2) == 0 || strncmp(word, "-I", 2) == 0) && word[2] != '\0');
        for (size_t i = 0; i < CLB_COUNT_OF(known); i++)
            good = good || strcmp(word, known[i]) == 0;
        kept = keep(good, "clBuildProgram: option %s", word);
    }
    free(copy);
    return kept;
}

static cl_int CL_API_CALL rule_BuildProgram(cl_program program, cl_uint count,
                                            const cl_device_id *devices, const char *options,
                                            void(CL_CALLBACK *notify)(cl_program, void *),
                                            void *user)
{
    const char *where = "clBuildProgram";
    if (!is_live(program, PROGRAM, where))
        return CL_INVALID_PROGRAM;
    if (!keep((count > 0) == (devices != NULL), "%s: %u devices in %s list", where, count,
              devices == NULL ? "no" : "a") ||
        !keep(notify != NULL || user == NULL, "%s: data for no callback", where))
        return CL_INVALID_VALUE;
    if (options != NULL && !check_options(options))
        return CL_INVALID_BUILD_OPTIONS;
    cl_int status = below.BuildProgram(program, count, devices, options, notify, user);
    pthread_mutex_lock(&lock);
    (*find(program))->built = status == CL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return status;
}

static cl_int CL_API_CALL rule_GetProgramInfo(cl_program program, cl_program_info name, size_t size,
                                              void *value, size_t *needed)
{
    size_t least = 0;
    if (!is_live(program, PROGRAM, "clGetProgramInfo"))
        return CL_INVALID_PROGRAM;
    if (driver.GetProgramInfo(program, name, 0, NULL, &least) == CL_SUCCESS &&
        !check_room(size, value, least, "clGetProgramInfo"))
        return CL_INVALID_VALUE;
    return below.GetProgramInfo(program, name, size, value, needed);
}

static cl_int CL_API_CALL rule_GetProgramBuildInfo(cl_program program, cl_device_id device,
                                                   cl_program_build_info name, size_t size,
                                                   void *value, size_t *needed)
{
    size_t least = 0;
    if (!is_live(program, PROGRAM, "clGetProgramBuildInfo"))
        return CL_INVALID_PROGRAM;
    if (driver.GetProgramBuildInfo(program, device, name, 0, NULL, &least) == CL_SUCCESS &&
        !check_room(size, value, least, "clGetProgramBuildInfo"))
        return CL_INVALID_VALUE;
    return below.GetProgramBuildInfo(program, device, name, size, value, needed);
}

static cl_int CL_API_CALL rule_ReleaseProgram(cl_program program)
{
    return release(program, PROGRAM, "clReleaseProgram") ? below.ReleaseProgram(program)
                                                         : CL_INVALID_PROGRAM;
}

/* ---- kernels ---- */

/* 0: not known. */
static size_t size_of_type(const char *name)
{
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"char", 1},   {"uchar", 1}, {"short", 2}, {"ushort", 2},  {"int", 4},
                 {"uint", 4},   {"float", 4}, {"long", 8},  {"ulong", 8},   {"double", 8},
                 {"float2", 8}, {"uint2", 8}, {"int2", 8},  {"double2", 16}};
    for (size_t i = 0; i < CLB_COUNT_OF(types); i++) {
        if (strcmp(name, types[i].name) == 0)
            return types[i].size;
    }
    return 0;
}

/* As far as the driver tells. */
static void describe_argument(cl_kernel kernel, cl_uint index, struct argument *argument)
{
    cl_kernel_arg_address_qualifier space = 0;
    char type[64] = "";
    if (get_argument_info(kernel, index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space,
                          NULL) != CL_SUCCESS)
        return;
    argument->space = space == CL_KERNEL_ARG_ADDRESS_LOCAL     ? LOCAL
                      : space == CL_KERNEL_ARG_ADDRESS_PRIVATE ? VALUE
                                                               : POINTER;
    if (get_argument_info(kernel, index, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, NULL) ==
        CL_SUCCESS)
        argument->size = size_of_type(type);
}

static cl_kernel CL_API_CALL rule_CreateKernel(cl_program program, const char *name, cl_int *status)
{
    pthread_mutex_lock(&lock);
    const struct object *of = look_up(program, PROGRAM, "clCreateKernel");
    *status = of == NULL ? CL_INVALID_PROGRAM
              : !keep(of->built, "clCreateKernel: the program is not built")
                  ? CL_INVALID_PROGRAM_EXECUTABLE
              : !keep(name != NULL, "clCreateKernel: no name") ? CL_INVALID_VALUE
                                                               : CL_SUCCESS;
    const void *context = of != NULL ? of->context : NULL;
    pthread_mutex_unlock(&lock);
    cl_kernel kernel = *status == CL_SUCCESS ? below.CreateKernel(program, name, status) : NULL;
    if (kernel == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    struct object *object = enter(kernel, KERNEL, context);
    snprintf(object->name, sizeof object->name, "%s", name);
    (void)get_kernel_info(kernel, CL_KERNEL_NUM_ARGS, sizeof object->arguments, &object->arguments,
                          NULL);
    for (cl_uint i = 0; i < clb_min(object->arguments, MAX_ARGUMENTS); i++)
        describe_argument(kernel, i, &object->argument[i]);
    pthread_mutex_unlock(&lock);
    return kernel;
}

static cl_int CL_API_CALL rule_ReleaseKernel(cl_kernel kernel)
{
    return release(kernel, KERNEL, "clReleaseKernel") ? below.ReleaseKernel(kernel)
                                                      : CL_INVALID_KERNEL;
}

/* With the lock held. NULL stands for no buffer. */
static cl_int check_pointer(const struct object *kernel, cl_uint index, size_t size,
                            const void *value)
{
    cl_mem mem = NULL;
    if (!keep(size == sizeof mem, "%s: argument %u has %zu bytes, a buffer", kernel->name, index,
              size))
        return CL_INVALID_ARG_SIZE;
    if (value != NULL)
        memcpy(&mem, value, sizeof mem);
    return mem == NULL || look_up(mem, BUFFER, kernel->name) != NULL ? CL_SUCCESS
                                                                     : CL_INVALID_MEM_OBJECT;
}

/* With the lock held. */
static cl_int check_argument(struct object *kernel, cl_uint index, size_t size, const void *value)
{
    if (!keep(index < kernel->arguments, "%s: argument %u of %u", kernel->name, index,
              kernel->arguments))
        return CL_INVALID_ARG_INDEX;
    struct argument *argument = &kernel->argument[clb_min(index, MAX_ARGUMENTS - 1)];
    argument->set = true;
    argument->mem = NULL;
    switch (argument->space) {
    case POINTER:
        if (value != NULL && size == sizeof argument->mem)
            memcpy(&argument->mem, value, sizeof argument->mem);
        return check_pointer(kernel, index, size, value);
    case LOCAL:
        return keep(value == NULL && size > 0, "%s: local argument %u", kernel->name, index)
                   ? CL_SUCCESS
                   : CL_INVALID_ARG_VALUE;
    case VALUE:
        if (!keep(value != NULL, "%s: argument %u is NULL", kernel->name, index))
            return CL_INVALID_ARG_VALUE;
        return keep(argument->size == 0 ? size > 0 : size == argument->size,
                    "%s: argument %u has %zu bytes of %zu", kernel->name, index, size,
                    argument->size)
                   ? CL_SUCCESS
                   : CL_INVALID_ARG_SIZE;
    case UNKNOWN:
        break;
    }
    return keep(size > 0, "%s: argument %u is empty", kernel->name, index) ? CL_SUCCESS
                                                                           : CL_INVALID_ARG_SIZE;
}

static cl_int CL_API_CALL rule_SetKernelArg(cl_kernel kernel, cl_uint index, size_t size,
                                            const void *value)
{
    pthread_mutex_lock(&lock);
    struct object *object = look_up(kernel, KERNEL, "clSetKernelArg");
    cl_int status = object == NULL ? CL_INVALID_KERNEL : check_argument(object, index, size, value);
    pthread_mutex_unlock(&lock);
    return status == CL_SUCCESS ? below.SetKernelArg(kernel, index, size, value) : status;
}

static bool overlap(const struct object *x, const struct object *y)
{
    return x != y && x->host != NULL && y->host != NULL && x->host < y->host + y->size &&
           y->host < x->host + x->size;
}

static bool is_mapped(const struct object *buffer)
{
    bool mapped = false;
    for (size_t i = 0; i < MAX_MAPPINGS; i++)
        mapped = mapped || buffer->mapped[i] != NULL;
    return mapped;
}

/* With the lock held. All arguments are set, buffers are alive, not the CPU's at the time, and no
 * two of them stand for the same memory. */
static cl_int check_arguments(const struct object *kernel)
{
    const struct object *buffer[MAX_ARGUMENTS];
    size_t buffers = 0;
    for (cl_uint i = 0; i < clb_min(kernel->arguments, MAX_ARGUMENTS); i++) {
        const struct argument *argument = &kernel->argument[i];
        if (!keep(argument->set, "%s: argument %u is not set", kernel->name, i))
            return CL_INVALID_KERNEL_ARGS;
        if (argument->mem == NULL)
            continue;
        buffer[buffers] = look_up(argument->mem, BUFFER, kernel->name);
        if (buffer[buffers] == NULL)
            return CL_INVALID_KERNEL_ARGS;
        if (!keep(!is_mapped(buffer[buffers]), "%s: argument %u is mapped", kernel->name, i))
            return CL_INVALID_OPERATION;
        for (size_t j = 0; j < buffers; j++) {
            if (!keep(!overlap(buffer[j], buffer[buffers]), "%s: two buffers of the same memory",
                      kernel->name))
                return CL_INVALID_KERNEL_ARGS;
        }
        buffers++;
    }
    return CL_SUCCESS;
}

static cl_int check_geometry(const char *name, const size_t required[3], cl_uint dimensions,
                             const size_t *global, const size_t *local)
{
    size_t items = 1;
    if (!keep(dimensions >= 1 && dimensions <= 3, "%s: %u dimensions", name, dimensions))
        return CL_INVALID_WORK_DIMENSION;
    if (!keep(global != NULL, "%s: no global size", name))
        return CL_INVALID_GLOBAL_WORK_SIZE;
    if (!keep(local != NULL || required[0] == 0, "%s: no local size", name))
        return CL_INVALID_WORK_GROUP_SIZE;
    for (cl_uint d = 0; d < dimensions; d++) {
        if (!keep(global[d] > 0, "%s: a global size of 0", name))
            return CL_INVALID_GLOBAL_WORK_SIZE;
        if (local == NULL)
            continue;
        if (!keep(local[d] > 0 && global[d] % local[d] == 0, "%s: groups of %zu in %zu", name,
                  local[d], global[d]) ||
            !keep(required[0] == 0 || local[d] == required[d], "%s: groups of %zu, not %zu", name,
                  local[d], required[d]))
            return CL_INVALID_WORK_GROUP_SIZE;
        if (!keep(max_items[d] == 0 || local[d] <= max_items[d], "%s: %zu work-items in a group",
                  name, local[d]))
            return CL_INVALID_WORK_ITEM_SIZE;
        items *= local[d];
    }
    return keep(max_group == 0 || items <= max_group, "%s: groups of %zu of at most %zu", name,
                items, max_group)
               ? CL_SUCCESS
               : CL_INVALID_WORK_GROUP_SIZE;
}

static cl_int CL_API_CALL rule_EnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel,
                                                    cl_uint dimensions, const size_t *offset,
                                                    const size_t *global, const size_t *local,
                                                    cl_uint waits, const cl_event *wait_list,
                                                    cl_event *event)
{
    size_t required[3] = {0};
    pthread_mutex_lock(&lock);
    cl_int status = check_command(queue, waits, wait_list, "clEnqueueNDRangeKernel");
    const struct object *object = look_up(kernel, KERNEL, "clEnqueueNDRangeKernel");
    if (object == NULL)
        status = CL_INVALID_KERNEL;
    if (status == CL_SUCCESS && !keep(object->context == (*find(queue))->context,
                                      "%s: a kernel of another context", object->name))
        status = CL_INVALID_CONTEXT;
    if (status == CL_SUCCESS)
        status = check_arguments(object);
    if (status == CL_SUCCESS) {
        (void)get_group_info(kernel, (*find(queue))->device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
                             sizeof required, required, NULL);
        status = check_geometry(object->name, required, dimensions, global, local);
    }
    pthread_mutex_unlock(&lock);
    if (status == CL_SUCCESS)
        status = below.EnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                            wait_list, event);
    return enqueued(status, queue, event);
}

/* ---- events ---- */

static cl_int CL_API_CALL rule_WaitForEvents(cl_uint count, const cl_event *events)
{
    const struct object *event = NULL;
    if (!keep(count > 0 && events != NULL, "clWaitForEvents: no events"))
        return CL_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    event = look_up(events[0], EVENT, "clWaitForEvents");
    cl_int status = event == NULL ? CL_INVALID_EVENT
                                  : check_waits(event->context, count, events, "clWaitForEvents");
    pthread_mutex_unlock(&lock);
    return status == CL_SUCCESS ? below.WaitForEvents(count, events) : status;
}

static cl_int CL_API_CALL rule_GetEventInfo(cl_event event, cl_event_info name, size_t size,
                                            void *value, size_t *needed)
{
    if (!is_live(event, EVENT, "clGetEventInfo"))
        return CL_INVALID_EVENT;
    bool status = name == CL_EVENT_COMMAND_EXECUTION_STATUS;
    if (!check_room(size, value, status ? sizeof(cl_int) : 0, "clGetEventInfo"))
        return CL_INVALID_VALUE;
    return below.GetEventInfo(event, name, size, value, needed);
}

static cl_int CL_API_CALL rule_GetEventProfilingInfo(cl_event event, cl_profiling_info name,
                                                     size_t size, void *value, size_t *needed)
{
    if (!is_live(event, EVENT, "clGetEventProfilingInfo"))
        return CL_INVALID_EVENT;
    if (!check_room(size, value, sizeof(cl_ulong), "clGetEventProfilingInfo"))
        return CL_INVALID_VALUE;
    return below.GetEventProfilingInfo(event, name, size, value, needed);
}

static cl_int CL_API_CALL rule_RetainEvent(cl_event event)
{
    if (!is_live(event, EVENT, "clRetainEvent"))
        return CL_INVALID_EVENT;
    cl_int status = below.RetainEvent(event);
    pthread_mutex_lock(&lock);
    (*find(event))->references += status == CL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return status;
}

static cl_int CL_API_CALL rule_ReleaseEvent(cl_event event)
{
    return release(event, EVENT, "clReleaseEvent") ? below.ReleaseEvent(event) : CL_INVALID_EVENT;
}

/* ---- installation ---- */

static void find_function(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    if (address == NULL)
        abort();
    memcpy(function, &address, sizeof address);
}

/* Functions of the list that have no rules yet are let through. */
void fake_cl_add_rules(struct clb_cl *table, const struct clb_cl *real)
{
    void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    find_function(library, "clGetKernelInfo", &get_kernel_info);
    find_function(library, "clGetKernelArgInfo", &get_argument_info);
    find_function(library, "clGetKernelWorkGroupInfo", &get_group_info);
    below = *table;
    driver = *real;
#define RULE(name) table->name = rule_##name
    RULE(GetPlatformIDs);
    RULE(GetPlatformInfo);
    RULE(GetDeviceIDs);
    RULE(GetDeviceInfo);
    RULE(CreateContext);
    RULE(ReleaseContext);
    RULE(CreateCommandQueue);
    RULE(ReleaseCommandQueue);
    RULE(CreateBuffer);
    RULE(ReleaseMemObject);
    RULE(EnqueueReadBuffer);
    RULE(EnqueueWriteBuffer);
    RULE(EnqueueWriteBufferRect);
    RULE(EnqueueReadBufferRect);
    RULE(EnqueueBarrierWithWaitList);
    RULE(EnqueueMapBuffer);
    RULE(EnqueueUnmapMemObject);
    RULE(CreateProgramWithSource);
    RULE(CreateProgramWithBinary);
    RULE(BuildProgram);
    RULE(GetProgramInfo);
    RULE(GetProgramBuildInfo);
    RULE(ReleaseProgram);
    RULE(CreateKernel);
    RULE(SetKernelArg);
    RULE(ReleaseKernel);
    RULE(EnqueueNDRangeKernel);
    RULE(Flush);
    RULE(Finish);
    RULE(WaitForEvents);
    RULE(GetEventInfo);
    RULE(GetEventProfilingInfo);
    RULE(RetainEvent);
    RULE(ReleaseEvent);
#undef RULE
}
