/* ocl: the OpenCL runtime. Loader table, device, queue_sets (queues), memory pool, programs.
 *
 * Everything is started lazily by clb_runtime_get(). All functions may be called by any number of
 * threads at once, except that a queue_set belongs to one call at a time. Every OpenCL status other
 * than CL_SUCCESS becomes a clb_status and a log line; nothing here aborts. */
#ifndef CLB_OCL_H
#define CLB_OCL_H

#include "base/base.h"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

/* ---- loader.c: the ICD loader's functions, dlopen'ed at first use ---------------------------- */

struct clb_cl {
#define CLB_CL_STATUS(name, parameters, arguments)       cl_int(CL_API_CALL *name) parameters;
#define CLB_CL_HANDLE(type, name, parameters, arguments) type(CL_API_CALL *name) parameters;
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
};

extern struct clb_cl clb_cl;

clb_status clb_cl_load(void) CLB_MUST_CHECK;

/* The tests' fault injector: called once after loading, may replace entries of the table. */
extern void (*clb_cl_loaded_hook)(struct clb_cl *table);

const char *clb_cl_error_name(cl_int status);

/* CLB_OK for CL_SUCCESS, otherwise logged ("what: CL_...") and mapped; memory errors are
 * CLB_ERR_NOMEM. */
clb_status clb_cl_check(cl_int status, const char *what) CLB_MUST_CHECK;

/* The same for the launch of a kernel: CLB_ERR_LAUNCH when the device has not the local memory, the
 * work-items or the registers for it. */
clb_status clb_cl_check_launch(cl_int status, const char *name) CLB_MUST_CHECK;

/* trace.c: have the table's functions note when the device ran what they enqueue. Called once after
 * loading, where a trace is wanted; otherwise nothing of it is in the way. */
void clb_cl_trace(struct clb_cl *table);

/* ---- device.c -------------------------------------------------------------------------------- */

struct clb_device {
    cl_platform_id platform;
    cl_device_id id;
    char name[128];
    char vendor[128];
    char driver[128];
    char platform_name[128];
    char platform_version[128];
    cl_device_type type;
    bool fp64;
    bool unified; /* shares the host's memory: inputs are used in place */
    cl_uint units;
    cl_uint vector_bytes; /* native vector width in bytes */
    uint64_t memory;      /* bytes; of the host where unified */
    uint64_t max_alloc;   /* bytes of one buffer */
    uint64_t local_memory;
    size_t max_group; /* work-items of a group, all in the first dimension */
};

/* nvidia.c: what is peculiar to NVIDIA's driver. After a command has failed all later ones fail
 * too, and so does every wait. */
bool clb_device_fails_for_good(const struct clb_device *device);
/* It says less work-items and local memory of a kernel than it launches. */
bool clb_device_understates_limits(const struct clb_device *device);

/* The device that CLBLAS_SHIM_DEVICE asks for, or the best one. */
clb_status clb_device_select(const char *wanted, struct clb_device *device) CLB_MUST_CHECK;

/* ---- pocl.c: what is peculiar to PoCL ---------------------------------------------------------
 */

bool clb_device_is_pocl(const struct clb_device *device);
/* NULL, or why PoCL must not be asked for its devices. Throws away what is damaged in its cache. */
const char *clb_pocl_refusal(void);
/* Around its start: what it puts into the environment is taken back. */
char *clb_pocl_save_environment(void);
void clb_pocl_restore_environment(char *saved);

/* ---- limits.c: room for a driver under the process's resource limits ------------------------- */

/* NULL, or what keeps this process from starting a driver, and from building. */
const char *clb_limits_on_start(void);
const char *clb_limits_on_build(void);

/* ---- driver.c: the thread on which drivers start and compile --------------------------------- */

/* Run a task on the driver thread and wait for it; at once when this is that thread. The caller
 * holds no lock that a task may take. CLB_ERR_NOMEM when there can be no such thread, otherwise
 * what the task returns. */
clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument) CLB_MUST_CHECK;

/* ---- affinity.c: the worker threads of a CPU device ---------------------------------------------
 */

struct clb_thread_list {
    size_t count;
    int id[4096];
};

/* The process's threads before the driver starts. */
void clb_threads_note(struct clb_thread_list *before);
/* Give each of the driver's new threads a CPU of its own, where there are enough. */
void clb_threads_pin(const struct clb_device *device, const struct clb_thread_list *before);

/* ---- runtime.c: the one singleton ------------------------------------------------------------ */

struct clb_pool;
struct clb_queue_set;
struct clb_program;

struct clb_runtime {
    struct clb_device device;
    cl_context context;
    uint64_t memory_limit; /* bytes of device memory that the pool may hold */
};

typedef enum clb_runtime_state {
    CLB_RUNTIME_IDLE,       /* nobody has asked for a device yet */
    CLB_RUNTIME_READY,      /* started */
    CLB_RUNTIME_FAILED,     /* no usable device */
    CLB_RUNTIME_ABANDONED,  /* this is a forked child of a process that had started */
    CLB_RUNTIME_QUARANTINED /* the device failed too often */
} clb_runtime_state;

/* The runtime, started by the first caller. NULL when there is none: *state says why. */
struct clb_runtime *clb_runtime_get(clb_runtime_state *state);

/* The runtime as it is, without starting it: for reports. NULL unless it was started. */
const struct clb_runtime *clb_runtime_peek(void);

/* The outcome of a call that used the device. Repeated failures quarantine it. */
void clb_runtime_report(bool succeeded);

/* ---- memory.c: pooled buffers under one allowance -------------------------------------------- */

typedef enum clb_memory_kind {
    CLB_MEMORY_DEVICE, /* kernels only */
    CLB_MEMORY_HOST    /* kernels or transfers write it, the CPU reads it */
} clb_memory_kind;

struct clb_buffer {
    cl_mem mem;
    size_t size; /* usable bytes */
    void *host;  /* where the CPU reads it: pinned staging or shared memory; NULL for DEVICE kind
                    of a device with its own memory */
    clb_memory_kind kind;
    bool large;              /* the pool's */
    struct clb_buffer *link; /* the pool's */
};

/* Sizes are rounded, by an eighth at most, so that calls of similar sizes share buffers: what a
 * buffer of `size` bytes takes of the allowance. */
size_t clb_buffer_rounded(size_t size);

/* A buffer of at least `size` bytes, or CLB_ERR_NOMEM at once when the allowance is used up. */
clb_status clb_buffer_get(struct clb_runtime *runtime, clb_memory_kind kind, size_t size,
                          struct clb_buffer **buffer) CLB_MUST_CHECK;

/* The same from what the pool keeps, or NULL. */
struct clb_buffer *clb_buffer_find(struct clb_runtime *runtime, clb_memory_kind kind, size_t size);

/* Before a call allocates `bytes`, and after it has found what the pool had for it: where memory is
 * the program's own, what is kept from other calls is given up as far as all of it together would
 * exceed what may be kept. */
void clb_pool_make_room(struct clb_runtime *runtime, uint64_t bytes);

/* Give it back to the pool; no command that uses it may be outstanding. NULL is allowed. */
void clb_buffer_put(struct clb_runtime *runtime, struct clb_buffer *buffer);

/* Never use this buffer again: a command that uses it may still be outstanding. */
void clb_buffer_leak(struct clb_buffer *buffer);

/* One or the other. */
static inline void clb_buffer_end(struct clb_runtime *runtime, struct clb_buffer *buffer, bool idle)
{
    if (idle)
        clb_buffer_put(runtime, buffer);
    else
        clb_buffer_leak(buffer);
}

/* Ordinary memory of the host, zeros, for what is too large for the pool and not the device's. NULL
 * when the system can't give so much without taking it from others. */
void *clb_host_map(size_t size);
void clb_host_unmap(void *memory, size_t size);

/* Bytes that a call may still take. */
uint64_t clb_memory_available(struct clb_runtime *runtime);

/* The caller's memory [host, host+size) as a read-only buffer in place. The program's memory must
 * not be released while a command uses it; release with clb_cl.ReleaseMemObject. */
clb_status clb_buffer_wrap(struct clb_runtime *runtime, const void *host, size_t size,
                           cl_mem *mem) CLB_MUST_CHECK;

/* ---- program.c: compiled programs, in memory and on disk ------------------------------------- */

struct clb_source {
    const char *name; /* "gemm_cpu.cl" */
    const char *text;
    size_t length;
};

/* The program for a source and its options ("-DCLB_MR=32 ..."), built or taken from a cache. A
 * program that failed to build once fails at once the next time. */
clb_status clb_program_get(struct clb_runtime *runtime, const struct clb_source *source,
                           const char *options, struct clb_program **program) CLB_MUST_CHECK;

/* Whether the program has passed a check, of this name, in an earlier process that had it compiled
 * by the same driver; and a note that it has. Never for what this process compiled itself. */
bool clb_program_is_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                            const char *check);
void clb_program_set_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                             const char *check);

/* ---- queue.c: in-order queues that know what has become of their commands ---------------------
 */

/* Whatever is enqueued goes through these functions. They keep each command's event until its
 * execution status has been looked at. An event that a function returns is the caller's to release,
 * NULL is allowed; it is untouched on failure. Several threads may use a queue. */
struct clb_queue;

clb_status clb_queue_open(const struct clb_runtime *runtime,
                          struct clb_queue **queue) CLB_MUST_CHECK;

/* A rectangle of a buffer and of the host's memory: bytes of a row, rows. */
struct clb_box {
    size_t origin[3], host[3], size[3], pitch, host_pitch;
};

clb_status clb_queue_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                            cl_uint dimensions, const size_t *global, const size_t *local,
                            cl_uint waits, const cl_event *wait_list,
                            cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                           const void *host, cl_uint waits, const cl_event *wait_list,
                           cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                          void *host, cl_uint waits, const cl_event *wait_list,
                          cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_write_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                                const void *host, cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_read_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                               void *host, cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_barrier(struct clb_queue *queue, cl_uint waits, const cl_event *wait_list,
                             cl_event *event) CLB_MUST_CHECK;
/* With event NULL this returns when the memory is mapped, and checks the queue. */
clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped) CLB_MUST_CHECK;

/* These return when it is done, and check the queue. */
clb_status clb_queue_write_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                               const void *host) CLB_MUST_CHECK;
clb_status clb_queue_read_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                              void *host) CLB_MUST_CHECK;

clb_status clb_queue_flush(struct clb_queue *queue) CLB_MUST_CHECK;

/* Wait until nothing is outstanding. An error also when a command has failed, and from then on: a
 * failure is reported once by drivers, and for ever here. */
clb_status clb_queue_finish(struct clb_queue *queue) CLB_MUST_CHECK;

/* The same where only waiting for all of it tells that everything was carried out; where any later
 * wait tells as well this does nothing. */
clb_status clb_queue_confirm(struct clb_queue *queue) CLB_MUST_CHECK;

/* An error when a command that has ended by now has failed. Doesn't wait. */
clb_status clb_queue_check(struct clb_queue *queue) CLB_MUST_CHECK;

/* The driver's, for measurements of other libraries: what they enqueue isn't known here. */
cl_command_queue clb_queue_handle(const struct clb_queue *queue);

/* clFinish has failed, so that something may be outstanding for ever. */
bool clb_queue_is_stuck(struct clb_queue *queue);

/* Nothing is outstanding and nothing has failed. */
bool clb_queue_is_clean(struct clb_queue *queue);

/* ---- queue_set.c: queues and their kernels, leased to one call
 * ------------------------------------ */

struct clb_queue_set {
    struct clb_runtime *runtime;
    struct clb_queue *queue;             /* kernels, and everything where memory is shared */
    struct clb_queue *upload, *download; /* of transfers; NULL until clb_queue_set_open_queues */
    struct clb_queue_set_kernel *kernels;
    struct clb_queue_set *link; /* the free list's */
};

/* A queue_set for one call. Never waits: a new one is made when all are taken. */
clb_status clb_queue_set_acquire(struct clb_runtime *runtime,
                                 struct clb_queue_set **queue_set) CLB_MUST_CHECK;

/* Open all queues of a queue_set: transfers overlap with kernels only on queues of their own. */
clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Back to the free list; the queues must be idle. A queue_set on which a command has failed is
 * discarded. */
void clb_queue_set_release(struct clb_queue_set *queue_set);

/* Wait until nothing is outstanding on the queue_set. An error also when a command has failed. */
clb_status clb_queue_set_finish(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* The same at the end of a run, whatever has failed. False: something may still be outstanding, the
 * queue_set must be discarded and its buffers left alone; asking again doesn't help. */
bool clb_queue_set_settle(struct clb_queue_set *queue_set) CLB_MUST_CHECK;
void clb_queue_set_discard(struct clb_queue_set *queue_set);

/* The queue_set's own kernel object (argument setting is not thread-safe on a shared one).
 * CLB_ERR_LAUNCH when its work-groups are larger than the device runs, or need more local memory.
 */
/* After waiting for a command and before its result is used: whether all commands of the queue_set
 * that have ended did what they were to do, and so those that the result depends on. */
clb_status clb_queue_set_check(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Wait for an event of the queue_set, release it, and check the queue_set. *event becomes NULL. */
clb_status clb_queue_set_await(struct clb_queue_set *queue_set, cl_event *event) CLB_MUST_CHECK;

/* The queue_set's own kernel object (argument setting is not thread-safe on a shared one). */
clb_status clb_queue_set_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, cl_kernel *kernel) CLB_MUST_CHECK;

cl_program clb_program_handle(const struct clb_program *program);

/* One kernel argument. */
struct clb_argument {
    size_t size;
    const void *value;
};
#define CLB_ARG(x) ((struct clb_argument){sizeof(x), &(x)})

/* Set all arguments and enqueue on one of the queue_set's queues. `local` and `global` have
 * `dimensions` entries. */
clb_status clb_queue_set_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                                const struct clb_argument *arguments, size_t count,
                                cl_uint dimensions, const size_t *global, const size_t *local,
                                cl_uint waits, const cl_event *wait_list,
                                cl_event *event) CLB_MUST_CHECK;

/* ---- cache.c: files of compiled programs ----------------------------------------------------- */

/* A directory proved writable for compiled programs, or NULL. Constant once found. */
const char *clb_cache_directory(void);

/* True while the file system below `directory` has room for a build (PoCL ends the process when
 * the disk fills while it compiles). */
bool clb_cache_has_room(const char *directory);

/* Make the directory `path`, with those above it, and say whether it can be used. */
bool clb_cache_usable(const char *path);
/* $XDG_CACHE_HOME/name or $HOME/.cache/name; false when neither variable is set. */
bool clb_cache_user_path(char *path, size_t size, const char *name);

/* Keys of records about programs begin with this: they are in files of another kind. */
#define CLB_CACHE_RECORD "record: "

/* The entry stored under `key` (any text); *data is malloc'ed. CLB_ERR_IO when there is none or it
 * is damaged. */
clb_status clb_cache_load(const char *key, unsigned char **data, size_t *size) CLB_MUST_CHECK;
void clb_cache_store(const char *key, const unsigned char *data, size_t size);

#endif
