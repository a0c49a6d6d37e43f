/* memory: pooled buffers under one allowance. */
#ifndef CLB_MEMORY_H
#define CLB_MEMORY_H

#include "runtime.h"

typedef enum clb_memory_kind {
    CLB_MEMORY_DEVICE, /* kernels only */
    CLB_MEMORY_HOST    /* the CPU reads and writes it, kernels or transfers too */
} clb_memory_kind;

struct clb_buffer {
    cl_mem mem;
    size_t size; /* usable bytes */
    void *host;  /* the CPU's address: pinned staging or shared memory; NULL for DEVICE kind on a
                    device with its own memory */
    clb_memory_kind kind;
    bool large;              /* private to the pool */
    struct clb_buffer *link; /* private to the pool */
};

/* The bytes that a buffer of `size` bytes takes of the allowance. Sizes are rounded up, by an
 * eighth at most, so that calls of similar sizes share buffers. */
size_t clb_buffer_rounded(size_t size);

/* A buffer of at least `size` bytes, or CLB_ERR_NOMEM at once when the allowance is used up. */
clb_status clb_buffer_get(struct clb_runtime *runtime, clb_memory_kind kind, size_t size,
                          struct clb_buffer **buffer) CLB_MUST_CHECK;

/* The same, but only a buffer that the pool has kept; otherwise NULL. */
struct clb_buffer *clb_buffer_find(struct clb_runtime *runtime, clb_memory_kind kind, size_t size);

/* Called before a call allocates `bytes`, after it has taken the kept buffers that it can use. On a
 * device that shares the host's memory, kept buffers are freed until those, the buffers in use and
 * `bytes` together are within the bound for kept buffers. */
void clb_pool_make_room(struct clb_runtime *runtime, uint64_t bytes);

/* Return a buffer to the pool; no command that uses it may be outstanding. NULL is allowed. */
void clb_buffer_put(struct clb_runtime *runtime, struct clb_buffer *buffer);

/* The same when `idle`. Otherwise a command that uses it may still be outstanding: its memory and
 * its share of the allowance stay taken. */
void clb_buffer_end(struct clb_runtime *runtime, struct clb_buffer *buffer, bool idle);

/* Zeroed host memory for data that is too large for the pool and not used by the device. NULL when
 * the system has less available memory than that. */
void *clb_host_map(size_t size);
void clb_host_unmap(void *memory, size_t size);

/* True when a driver can map the few MiB that it needs for a call: drivers end the process when
 * they can't (PoCL 3.1, in clEnqueueNDRangeKernel). Costs two system calls where there is no limit.
 */
bool clb_host_has_room(void);

/* Bytes of memory that the system has available (limits.c). */
uint64_t clb_proc_available(void);

/* Bytes of the allowance that are not in use; kept buffers count as free. */
uint64_t clb_memory_available(struct clb_runtime *runtime);

/* A read-only buffer that uses the caller's memory [host, host+size) in place. The memory must stay
 * valid while a command uses it; release the buffer with clb_mem_release. */
clb_status clb_buffer_wrap(struct clb_runtime *runtime, const void *host, size_t size,
                           cl_mem *mem) CLB_MUST_CHECK;
void clb_mem_release(cl_mem mem);

#endif
