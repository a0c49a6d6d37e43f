/* Pooled buffers under one allowance.
 *
 * Freed buffers are kept for the next call, up to a bound, because allocating costs page faults
 * where memory is shared and driver round trips elsewhere. On the host, the pool is ordinary memory
 * in huge pages, handed to OpenCL by CL_MEM_USE_HOST_PTR. SPDX-License-Identifier: BSD-3-Clause */
#include "cl.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define HUGE_PAGE ((size_t)2 << 20)
#define PAGE      ((size_t)4096)

/* Bytes that stay allocated between calls: few on the host, where the program needs the memory. */
#define KEEP_HOST   ((uint64_t)64 << 20)
#define KEEP_DEVICE ((uint64_t)8 << 30)
/* Large buffers on the host are kept too, but the system may take their pages until they are next
 * written (MADV_FREE). Allocating the pages anew would cost a twentieth of a factorisation. */
#define LARGE_HOST ((size_t)32 << 20)
#define KEEP_LARGE ((uint64_t)1 << 30)

/* Classes of kept buffers, each with its bound: the kinds, and large host buffers of any kind. */
enum { LARGE = CLB_MEMORY_HOST + 1 };

size_t clb_buffer_rounded(size_t size)
{
    size_t unit = PAGE;
    while (unit * 16 < size)
        unit *= 2;
    return clb_round_up(clb_max(size, 1), unit);
}

bool clb_host_has_room(size_t bytes)
{
    struct rlimit all, data;
    if (getrlimit(RLIMIT_AS, &all) == 0 && all.rlim_cur == RLIM_INFINITY &&
        getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur == RLIM_INFINITY)
        return true;
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return room != MAP_FAILED && munmap(room, bytes) == 0;
}

/* ---- the pool; all of these run with the lock held ---- */

static int class_of(const struct clb_buffer *buffer)
{
    return buffer->large ? LARGE : (int)buffer->kind;
}

static struct clb_buffer *unlink_kept(struct clb_buffer **link)
{
    struct clb_buffer *buffer = *link;
    *link = buffer->link;
    buffer->link = NULL;
    return buffer;
}

#define BIT(class) (1U << (class))
#define ALL        (BIT(LARGE + 1) - 1)
#define SMALL      (BIT(CLB_MEMORY_DEVICE) | BIT(CLB_MEMORY_HOST))

/* *oldest: the link to the buffer kept longest. */
static uint64_t kept_of(struct clb_pool *pool, unsigned classes, struct clb_buffer ***oldest)
{
    uint64_t bytes = 0;
    for (struct clb_buffer **link = &pool->kept; *link != NULL; link = &(*link)->link) {
        if ((classes & BIT(class_of(*link))) == 0)
            continue;
        bytes += (*link)->size;
        if (oldest != NULL)
            *oldest = link;
    }
    return bytes;
}

/* Move kept buffers of some classes to `list` until at most `bytes` of them are kept. Oldest first,
 * because the next call asks for the sizes that the last call has returned. Their bytes of the
 * allowance stay taken until destroy_list has freed them. */
static void evict(struct clb_pool *pool, unsigned classes, uint64_t bytes, struct clb_buffer **list)
{
    struct clb_buffer **link;
    while (kept_of(pool, classes, &link) > bytes) {
        struct clb_buffer *buffer = unlink_kept(link);
        buffer->link = *list;
        *list = buffer;
    }
}

/* ---- without the lock ---- */

void clb_pool_unreserve(struct clb_pool *pool, uint64_t size)
{
    pthread_mutex_lock(&pool->lock);
    pool->taken_bytes -= size;
    pthread_mutex_unlock(&pool->lock);
}

static void destroy_list(struct clb_runtime *runtime, struct clb_buffer *list)
{
    uint64_t size = 0;
    while (list != NULL) {
        struct clb_buffer *next = list->link;
        size += list->size;
        clb_cl.ReleaseMemObject(list->mem);
        clb_host_unmap(list->host, list->size);
        free(list);
        list = next;
    }
    if (size > 0)
        clb_pool_unreserve(&runtime->pool, size);
}

clb_status clb_pool_reserve(struct clb_runtime *runtime, size_t size)
{
    struct clb_pool *pool = &runtime->pool;
    for (bool again = true; again;) {
        struct clb_buffer *evicted = NULL;
        pthread_mutex_lock(&pool->lock);
        const bool enough = pool->taken_bytes + size <= runtime->memory_limit;
        if (enough)
            pool->taken_bytes += size;
        else
            evict(pool, ALL, 0, &evicted);
        pthread_mutex_unlock(&pool->lock);
        if (enough)
            return CLB_OK;
        again = evicted != NULL;
        destroy_list(runtime, evicted);
    }
    return CLB_ERR_NOMEM;
}

/* Plans count rounded sizes. Where memory is shared, buffers of 1 MiB or more must have exactly
 * that size, or a plan would exceed the memory that it has promised. */
struct clb_buffer *clb_buffer_find(struct clb_runtime *runtime, clb_memory_kind kind, size_t size)
{
    struct clb_pool *pool = &runtime->pool;
    size = clb_buffer_rounded(size);
    size_t excess = runtime->device.unified && size >= HUGE_PAGE / 2 ? 0 : size / 7;
    struct clb_buffer **best = NULL; /* the smallest */
    pthread_mutex_lock(&pool->lock);
    for (struct clb_buffer **link = &pool->kept; *link != NULL; link = &(*link)->link) {
        const struct clb_buffer *buffer = *link;
        if (buffer->kind == kind && buffer->size >= size && buffer->size - size <= excess &&
            (best == NULL || buffer->size < (*best)->size))
            best = link;
    }
    struct clb_buffer *found = best != NULL ? unlink_kept(best) : NULL;
    pthread_mutex_unlock(&pool->lock);
    return found;
}

void clb_pool_make_room(struct clb_runtime *runtime, uint64_t bytes)
{
    struct clb_pool *pool = &runtime->pool;
    struct clb_buffer *evicted = NULL;
    if (!runtime->device.unified)
        return;
    pthread_mutex_lock(&pool->lock);
    uint64_t used = pool->taken_bytes - kept_of(pool, ALL, NULL) + bytes;
    evict(pool, SMALL, used < KEEP_HOST ? KEEP_HOST - used : 0, &evicted);
    pthread_mutex_unlock(&pool->lock);
    destroy_list(runtime, evicted);
}

clb_status clb_buffer_get(struct clb_runtime *runtime, clb_memory_kind kind, size_t size,
                          struct clb_buffer **out)
{
    size = clb_buffer_rounded(size);
    *out = NULL;
    if (size > runtime->device.max_alloc)
        return CLB_ERR_NOMEM;
    struct clb_buffer *buffer = *out = clb_buffer_find(runtime, kind, size);
    if (buffer != NULL)
        return CLB_OK;
    clb_pool_make_room(runtime, size);
    return clb_buffer_make(runtime, kind, size, out);
}

void clb_buffer_end(struct clb_runtime *runtime, struct clb_buffer *buffer, bool idle)
{
    if (buffer == NULL || !idle)
        return;
    struct clb_pool *pool = &runtime->pool;
    struct clb_buffer *evicted = NULL;
    bool unified = runtime->device.unified;
    buffer->large = unified && buffer->size >= LARGE_HOST &&
                    madvise(buffer->host, buffer->size, MADV_FREE) == 0;
    pthread_mutex_lock(&pool->lock);
    buffer->link = pool->kept;
    pool->kept = buffer;
    if (buffer->large)
        evict(pool, BIT(LARGE), KEEP_LARGE, &evicted);
    else if (unified)
        evict(pool, SMALL, KEEP_HOST, &evicted);
    else
        evict(pool, BIT(buffer->kind),
              buffer->kind == CLB_MEMORY_HOST ? 4 * KEEP_HOST : KEEP_DEVICE, &evicted);
    pthread_mutex_unlock(&pool->lock);
    destroy_list(runtime, evicted);
}

uint64_t clb_memory_available(struct clb_runtime *runtime)
{
    struct clb_pool *pool = &runtime->pool;
    pthread_mutex_lock(&pool->lock);
    uint64_t used = pool->taken_bytes - kept_of(pool, ALL, NULL);
    pthread_mutex_unlock(&pool->lock);
    return used < runtime->memory_limit ? runtime->memory_limit - used : 0;
}

clb_status clb_buffer_wrap(struct clb_runtime *runtime, const void *host, size_t size, cl_mem *mem)
{
    cl_int error;
    if (size > runtime->device.max_alloc)
        return CLB_ERR_NOMEM;
    /* OpenCL has no const host pointer; CL_MEM_READ_ONLY keeps the promise. */
    *mem = clb_cl.CreateBuffer(runtime->context, CL_MEM_READ_ONLY | CL_MEM_USE_HOST_PTR, size,
                               (void *)(uintptr_t)host, &error);
    return clb_cl_check(error, "clCreateBuffer (in place)");
}

void clb_mem_release(cl_mem mem)
{
    clb_cl.ReleaseMemObject(mem);
}
