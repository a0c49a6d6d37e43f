/* SPDX-License-Identifier: BSD-3-Clause
 * Memory that the pool makes where it has kept none, and for data that is too large for it. */
#include "cl.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE      ((size_t)4096)

/* The shim must not make the system swap: larger memory is taken only from what is available. */
#define LOOKED_AT ((size_t)64 << 20)

/* Buffers from so many bytes on get their pages before they are used. */
#define POPULATED ((size_t)32 << 20)

/* Not by malloc, which does not return freed blocks of up to 32 MiB to the system. */
void *clb_host_map(size_t size)
{
    size = clb_round_up(size, PAGE);
    size_t alignment = size >= HUGE_PAGE ? HUGE_PAGE : PAGE, extra = alignment - PAGE;
    if (size >= LOOKED_AT && size >= clb_proc_available())
        return NULL;
    char *memory =
        mmap(NULL, size + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    char *aligned = (char *)clb_round_up((uintptr_t)memory, alignment);
    size_t before = (size_t)(aligned - memory);
    if (before > 0)
        munmap(memory, before);
    if (before < extra)
        munmap(aligned + size, extra - before);
    if (size >= HUGE_PAGE)
        madvise(aligned, size, MADV_HUGEPAGE);
    return aligned;
}

void clb_host_unmap(void *memory, size_t size)
{
    if (memory != NULL)
        munmap(memory, clb_round_up(size, PAGE));
}

/* A pinned buffer stays mapped as long as it exists, or transfers are slower; kernels do not use
 * it. One at a time: threads that ask at once would open a queue each. After a failure nothing is
 * left, except where the driver may still map. */
static clb_status map_pinned(struct clb_runtime *runtime, struct clb_buffer *buffer)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct clb_queue_set *queue_set;
    void *mapped;
    pthread_mutex_lock(&lock);
    clb_status status = clb_queue_set_acquire(runtime, &queue_set);
    CLB_THEN(status, clb_queue_map(queue_set->queue, buffer->mem, CL_MAP_READ | CL_MAP_WRITE, 0,
                                   buffer->size, &mapped, NULL));
    const bool ended = queue_set == NULL || !queue_set->queue->unended;
    clb_queue_set_end(queue_set, status == CLB_OK);
    pthread_mutex_unlock(&lock);
    if (status != CLB_OK && ended) {
        clb_cl.ReleaseMemObject(buffer->mem);
        clb_host_unmap(buffer->host, buffer->size);
    }
    return status;
}

/* A kernel that is the first to touch memory, in pieces, takes six times as long as threads that
 * clear whole huge pages before. */
static void populate(void *context, size_t thread, size_t begin, size_t end)
{
    char *memory = context;
    (void)thread;
    clb_pages_populate(memory + begin * HUGE_PAGE, (end - begin) * HUGE_PAGE);
}

/* Drivers make and pin huge pages in a quarter of the time in which they make pinned memory. A
 * child process does not get these: writing after a fork, the parent would get others, not pinned.
 */
static clb_status create(struct clb_runtime *runtime, struct clb_buffer *buffer)
{
    const bool shared = runtime->device.unified, host = shared || buffer->kind == CLB_MEMORY_HOST;
    cl_int error;
    if (host && (buffer->host = clb_host_map(buffer->size)) == NULL)
        return CLB_ERR_NOMEM;
    if (host && !shared)
        (void)madvise(buffer->host, buffer->size, MADV_DONTFORK);
    else if (shared && buffer->size >= POPULATED)
        clb_workers_share(buffer->size / HUGE_PAGE, 1, CLB_MAX_WORKERS + 1, populate, buffer->host);
    buffer->mem =
        clb_cl.CreateBuffer(runtime->context, CL_MEM_READ_WRITE | (host ? CL_MEM_USE_HOST_PTR : 0),
                            buffer->size, buffer->host, &error);
    if (error == CL_SUCCESS)
        return host && !shared ? map_pinned(runtime, buffer) : CLB_OK;
    clb_host_unmap(buffer->host, buffer->size);
    return clb_cl_failed(error, "clCreateBuffer");
}

clb_status clb_buffer_make(struct clb_runtime *runtime, clb_memory_kind kind, size_t size,
                           struct clb_buffer **out)
{
    struct clb_buffer *buffer = malloc(sizeof *buffer);
    if (buffer == NULL)
        return CLB_ERR_NOMEM;
    *buffer = (struct clb_buffer){.size = size, .kind = kind};
    const double begin = clb_trace_wanted() ? clb_now() : 0;
    clb_status status = clb_pool_reserve(runtime, size);
    if (status == CLB_OK && (status = create(runtime, buffer)) != CLB_OK)
        clb_pool_unreserve(&runtime->pool, size);
    if (clb_trace_wanted())
        clb_trace_since(kind == CLB_MEMORY_HOST ? "allocate, pinned" : "allocate", begin);
    if (status == CLB_OK)
        *out = buffer;
    else
        free(buffer);
    return status;
}
