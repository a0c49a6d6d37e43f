/* Commands that move or map memory, and waits for them. */
#include "cl.h"

#include <stdlib.h>
#include <string.h>

/* Wait for a command and release its event. When this returns, the command no longer uses the host
 * memory, unless clFinish has failed. */
static clb_status wait_for(struct clb_queue *queue, clb_event event)
{
    clb_status status = clb_event_wait(event);
    clb_event_release(event);
    if (status != CLB_OK) {
        (void)!clb_queue_finish(queue);
        return status;
    }
    return clb_queue_check(queue);
}

static clb_status transfer(struct clb_queue *queue, enum clb_verb verb, cl_mem mem,
                           const struct clb_box *box, void *host, cl_uint waits,
                           const clb_event *wait_list, clb_event *event)
{
    static const char *const names[] = {[CLB_WRITE] = "upload",
                                        [CLB_WRITE_COPY] = "upload",
                                        [CLB_READ] = "download",
                                        [CLB_UNMAP] = NULL};
    const struct clb_command command = {.verb = verb,
                                        .queue = queue,
                                        .name = names[verb],
                                        .mem = mem,
                                        .box = box,
                                        .host = host,
                                        .waits = waits,
                                        .wait_list = wait_list};
    return clb_queue_give(command, false, event);
}

clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                           const void *host, cl_uint waits, const clb_event *wait_list,
                           clb_event *event)
{
    return transfer(queue, CLB_WRITE, mem, box, (void *)(uintptr_t)host, waits, wait_list, event);
}

clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                          void *host, cl_uint waits, const clb_event *wait_list, clb_event *event)
{
    return transfer(queue, CLB_READ, mem, box, host, waits, wait_list, event);
}

/* A transfer that is waited for. An abandoned device may still carry it out, so there the memory is
 * a copy of the caller's, and is kept then. */
static clb_status transfer_now(struct clb_queue *queue, enum clb_verb verb, cl_mem mem,
                               size_t offset, size_t size, void *host)
{
    const bool copies = !queue->runtime->device.unified;
    void *memory = copies ? malloc(clb_max(size, 1)) : host;
    clb_event moved = NULL;
    if (memory == NULL)
        return CLB_ERR_NOMEM;
    if (copies && verb == CLB_WRITE)
        memcpy(memory, host, size);
    clb_status status = transfer(queue, verb, mem, CLB_LINE(offset, size), memory, 0, NULL, &moved);
    if (status == CLB_OK)
        status = wait_for(queue, moved);
    else
        (void)!clb_queue_finish(queue);
    if (copies && verb == CLB_READ && status == CLB_OK)
        memcpy(host, memory, size);
    if (copies && !queue->unended)
        free(memory);
    return status;
}

/* The most bytes that a request of the enqueuing thread has a copy of. */
#define MOST_COPIED ((size_t)4096)

/* With a copy, this need not wait for the commands ahead. */
clb_status clb_queue_write_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                               const void *host)
{
    void *memory = (void *)(uintptr_t)host;
    return clb_enqueuer_exists() && size <= MOST_COPIED
               ? transfer(queue, CLB_WRITE_COPY, mem, CLB_LINE(offset, size), memory, 0, NULL, NULL)
               : transfer_now(queue, CLB_WRITE, mem, offset, size, memory);
}

clb_status clb_queue_read_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                              void *host)
{
    return transfer_now(queue, CLB_READ, mem, offset, size, host);
}

clb_status clb_queue_barrier(struct clb_queue *queue, cl_uint waits, const clb_event *wait_list,
                             clb_event *event)
{
    return transfer(queue, CLB_BARRIER, NULL, NULL, NULL, waits, wait_list, event);
}

clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped)
{
    return transfer(queue, CLB_UNMAP, mem, NULL, mapped, 0, NULL, NULL);
}

/* What an enqueuing thread maps is known when it has enqueued the command. */
clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, clb_event *event)
{
    const struct clb_command command = {.verb = CLB_MAP,
                                        .queue = queue,
                                        .mem = mem,
                                        .flags = flags,
                                        .offset = offset,
                                        .size = size};
    clb_event now = NULL;
    *mapped = NULL;
    clb_status status = clb_queue_give(command, false, &now);
    if (status == CLB_OK && clb_enqueuer_exists())
        status = clb_event_wait(now);
    if (status == CLB_OK)
        *mapped = now->mapped;
    if (status == CLB_OK && event != NULL) {
        *event = now;
        return CLB_OK;
    }
    clb_status waited = now != NULL ? wait_for(queue, now) : CLB_OK;
    return status != CLB_OK ? status : waited;
}
