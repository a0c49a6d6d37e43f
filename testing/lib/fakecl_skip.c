/* A kernel that is not run while its queue goes on: its event says so, or nothing does but the next
 * clFinish of that queue, or nothing at all; or its queue does not go on. Or a transfer whose event
 * says that it failed. SPDX-License-Identifier: BSD-3-Clause */
#include "fakecl.h"

#include "tap.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define MAX_SKIPPED 16

static struct clb_cl below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cl_event failed[MAX_SKIPPED]; /* a reference each, so that no other event has the address */
static size_t failures;
static cl_command_queue broken; /* its next clFinish fails */

void fake_cl_skip(long at, fake_failure_kind kind)
{
    pthread_mutex_lock(&lock);
    fake_cl.launches = 0;
    fake_cl.skip_at = at;
    fake_cl.skip_kind = kind;
    fake_cl.skipped = 0;
    broken = NULL;
    pthread_mutex_unlock(&lock);
}

void fake_cl_fail_transfer(long at)
{
    fake_cl_skip(0, FAKE_EVENT_REPORTS);
    fake_cl.transfers = 0;
    fake_cl.fail_transfer_at = at;
}

static bool is_failed(cl_event event)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < failures && i < MAX_SKIPPED; i++)
        found = found || failed[i] == event;
    pthread_mutex_unlock(&lock);
    return found;
}

/* With the lock held. */
static void note_failed(cl_event event)
{
    cl_event *entry = &failed[failures++ % MAX_SKIPPED];
    if (*entry != NULL)
        (void)below.ReleaseEvent(*entry);
    *entry = event;
    (void)below.RetainEvent(event);
}

static cl_context context;

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint count,
                                             const cl_device_id *devices,
                                             void(CL_CALLBACK *notify)(const char *, const void *,
                                                                       size_t, void *),
                                             void *user, cl_int *status)
{
    return context = below.CreateContext(properties, count, devices, notify, user, status);
}

/* An event of the program's own that it never completes. */
static cl_event never(void)
{
    cl_event(CL_API_CALL * create)(cl_context, cl_int *) = NULL;
    cl_int status = CL_SUCCESS;
    const void *found = dlsym(dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL), "clCreateUserEvent");
    memcpy(&create, &found, sizeof create);
    return create(context, &status);
}

static cl_int CL_API_CALL launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions,
                                 const size_t *offset, const size_t *global, const size_t *local,
                                 cl_uint waits, const cl_event *wait_list, cl_event *event)
{
    pthread_mutex_lock(&lock);
    bool skip = ++fake_cl.launches == fake_cl.skip_at;
    pthread_mutex_unlock(&lock);
    if (!skip)
        return below.EnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, waits,
                                          wait_list, event);
    const cl_event end = fake_cl.skip_kind == FAKE_NEVER_ENDS ? never() : NULL;
    cl_int status = below.EnqueueBarrierWithWaitList(queue, end != NULL ? 1 : waits,
                                                     end != NULL ? &end : wait_list, event);
    pthread_mutex_lock(&lock);
    fake_cl.skipped += status == CL_SUCCESS;
    if (status == CL_SUCCESS && fake_cl.skip_kind == FAKE_EVENT_REPORTS && event != NULL)
        note_failed(*event);
    if (status == CL_SUCCESS && fake_cl.skip_kind == FAKE_FINISH_REPORTS)
        broken = queue;
    pthread_mutex_unlock(&lock);
    return status;
}

static cl_int CL_API_CALL finish(cl_command_queue queue)
{
    cl_int status = below.Finish(queue);
    pthread_mutex_lock(&lock);
    bool reports = broken == queue;
    if (reports)
        broken = NULL;
    pthread_mutex_unlock(&lock);
    return reports ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : status;
}

static cl_int CL_API_CALL wait_for(cl_uint count, const cl_event *events)
{
    cl_int status = below.WaitForEvents(count, events);
    for (cl_uint i = 0; i < count; i++) {
        if (is_failed(events[i]))
            status = CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    }
    return status;
}

/* Of an event that says that its command is complete. Later questions get the same answer. */
static bool is_failing_transfer(cl_event event)
{
    cl_command_type type = 0;
    (void)below.GetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL);
    bool transfer = type == CL_COMMAND_READ_BUFFER || type == CL_COMMAND_WRITE_BUFFER ||
                    type == CL_COMMAND_READ_BUFFER_RECT || type == CL_COMMAND_WRITE_BUFFER_RECT;
    pthread_mutex_lock(&lock);
    bool fails = transfer && ++fake_cl.transfers == fake_cl.fail_transfer_at;
    fake_cl.skipped += fails;
    if (fails)
        note_failed(event);
    pthread_mutex_unlock(&lock);
    return fails;
}

static cl_int CL_API_CALL event_info(cl_event event, cl_event_info name, size_t size, void *value,
                                     size_t *needed)
{
    cl_int status = below.GetEventInfo(event, name, size, value, needed);
    if (status == CL_SUCCESS && name == CL_EVENT_COMMAND_EXECUTION_STATUS && value != NULL &&
        *(cl_int *)value == CL_COMPLETE && (is_failed(event) || is_failing_transfer(event)))
        *(cl_int *)value = CL_OUT_OF_RESOURCES;
    return status;
}

void fake_cl_add_skipping(struct clb_cl *table)
{
    below = *table;
    table->CreateContext = create_context;
    table->EnqueueNDRangeKernel = launch;
    table->Finish = finish;
    table->WaitForEvents = wait_for;
    table->GetEventInfo = event_info;
}
