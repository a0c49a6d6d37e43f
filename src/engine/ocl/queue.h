/* queue: queues that detect failed commands; queue sets. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_QUEUE_H
#define CLB_QUEUE_H

#include "device.h"

/* All commands are enqueued by these functions; several threads may use a queue. A command also
 * waits for that of the event `after`, unless it is NULL. The caller drops an event returned in
 * *event; `event` may be NULL, and *event is unchanged on failure. */
struct clb_queue;
typedef struct clb_event *clb_event;

/* Wait for one command. CLB_ERR_OPENCL when it has failed, or the device has been abandoned. */
clb_status clb_event_wait(clb_event event) CLB_MUST_CHECK;
/* True when the command has not ended yet; false also when the driver does not say. */
bool clb_event_is_pending(clb_event event);
/* False when a launch of its queue up to the command, which has ended, has not run. NULL: true. */
bool clb_event_has_run(clb_event event);
/* Give a reference up, NULL is allowed; *event becomes NULL. */
void clb_event_drop(clb_event *event);

clb_status clb_queue_open(struct clb_runtime *runtime, bool for_transfers,
                          struct clb_queue **queue) CLB_MUST_CHECK;

/* A rectangle of a buffer and one of host memory: x in bytes, y in rows, pitches in bytes. Or
 * contiguous bytes, CLB_LINE(offset, bytes), with size[2] = 0. */
struct clb_box {
    size_t origin[3], host[3], size[3], pitch, host_pitch;
};
#define CLB_LINE(offset, bytes) (&(const struct clb_box){.origin = {offset}, .size = {bytes}})

/* The launches that a queue has been given, where one thread launches. False when the device has
 * not run all of the first so many, whose end has been waited for. */
cl_uint clb_queue_launches(const struct clb_queue *queue);
bool clb_queue_has_run(const struct clb_queue *queue, cl_uint launches);
clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                           const void *host, clb_event after, clb_event *event) CLB_MUST_CHECK;
clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                          void *host, clb_event after, clb_event *event) CLB_MUST_CHECK;
clb_status clb_queue_barrier(struct clb_queue *queue, clb_event after,
                             clb_event *event) CLB_MUST_CHECK;
/* With `event` NULL, wait until the memory is mapped, and check the queue. */
clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, clb_event *event) CLB_MUST_CHECK;
clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped) CLB_MUST_CHECK;
/* True on CPUs once the CPU has seen what kernels store in buffers of CLB_MEMORY_HOST: then these
 * need not be mapped, which would wake a thread of the driver for nothing. */
bool clb_queue_shows_memory(const struct clb_queue *queue);
/* On such a device, a reference to the event of the last command not seen to end; or NULL. */
clb_event clb_queue_last_event(struct clb_queue *queue);
/* As clb_queue_map for reading a buffer of CLB_MEMORY_HOST, but without a command where
 * clb_queue_shows_memory. *mapped is NULL then, with nothing to be unmapped; *results is what is
 * read when *event, that of the queue's last command, has ended. */
clb_status clb_queue_map_results(struct clb_queue *queue, const struct clb_buffer *buffer,
                                 size_t size, const void **results, void **mapped,
                                 clb_event *event) CLB_MUST_CHECK;

/* Blocking transfers; they check the queue. */
clb_status clb_queue_write_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                               const void *host) CLB_MUST_CHECK;
clb_status clb_queue_read_now(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                              void *host) CLB_MUST_CHECK;

/* Have the driver begin what has been enqueued. */
clb_status clb_queue_flush(struct clb_queue *queue) CLB_MUST_CHECK;

/* Wait until no command is outstanding. An error when any command has ever failed on this queue:
 * drivers report a failure only once. */
clb_status clb_queue_finish(struct clb_queue *queue) CLB_MUST_CHECK;
/* The same in two steps, so that several queues are finished at once. */
bool clb_queue_finish_begin(struct clb_queue *queue, clb_event *last) CLB_MUST_CHECK;
clb_status clb_queue_finish_end(struct clb_queue *queue, bool begun, clb_event last) CLB_MUST_CHECK;

/* An error when a command that has ended has failed. Does not wait. */
clb_status clb_queue_check(struct clb_queue *queue) CLB_MUST_CHECK;

/* clb_queue_finish where only the commands' own events report failures; nothing where any later
 * wait does too (CLB_QUIRK_FAILS_FOR_GOOD). */
clb_status clb_queue_confirm(struct clb_queue *queue) CLB_MUST_CHECK;

/* The OpenCL queue, for measuring other libraries, whose commands are not checked. */
cl_command_queue clb_queue_handle(const struct clb_queue *queue);

/* The queues and kernel objects that one call uses. */
struct clb_queue_set {
    struct clb_runtime *runtime;
    union {
        struct {
            struct clb_queue *upload, *download; /* NULL until clb_queue_set_open_queues */
            struct clb_queue *queue; /* for kernels; for all commands where memory is shared */
        };
        struct clb_queue *each[3];
    };
    struct clb_queue_set_kernel *kernels;
    struct clb_queue_set *link; /* next in the free list */
};

/* Before and after a call: few calls at once fill a device with its own memory, and more only slow
 * each other. Callers wait in order, but no longer than so many seconds, and then go on beside the
 * others. Nobody waits for other devices. */
void clb_turn_begin(struct clb_runtime *runtime, double patience);
void clb_turn_end(struct clb_runtime *runtime);

/* Get a queue set for one call. Never waits: a new one is made when all are in use. */
clb_status clb_queue_set_acquire(struct clb_runtime *runtime,
                                 struct clb_queue_set **queue_set) CLB_MUST_CHECK;

/* Open the upload and download queues: transfers overlap with kernels only on separate queues. */
clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Give a queue set back, NULL is allowed. It is kept for later calls if its queues are `idle` and
 * no command on them has failed; otherwise it is never used again. */
void clb_queue_set_end(struct clb_queue_set *queue_set, bool idle);

/* Wait until no command is outstanding on any queue. An error when a command has failed. */
clb_status clb_queue_set_finish(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* The same at the end of a run, also of one that failed; returns `idle` for clb_queue_set_end and
 * clb_buffer_end. False: commands may still be outstanding and will not end. */
bool clb_queue_set_settle(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Called after waiting for a command, before its result is used: an error when any ended command of
 * the queue set has failed, because the result may depend on it. */
clb_status clb_queue_set_check(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Wait for an event of the queue set, drop it, and check the queue set. */
clb_status clb_queue_set_await(struct clb_queue_set *queue_set, clb_event *event) CLB_MUST_CHECK;

/* ---- launches ---- */

/* A kernel's argument; a size_t is the kernels' ulong. One of size 0 is left out. */
struct clb_argument {
    size_t size;
    const void *value;
};
#define CLB_ARG(x)               ((struct clb_argument){sizeof(x), &(x)})
#define CLB_ARG_IF(condition, x) ((condition) ? CLB_ARG(x) : (struct clb_argument){0})
#define CLB_ARGUMENTS(...)                      \
    (const struct clb_argument[]){__VA_ARGS__}, \
        sizeof((const struct clb_argument[]){__VA_ARGS__}) / sizeof(struct clb_argument)
_Static_assert(sizeof(size_t) == sizeof(cl_ulong), "size_t is the kernels' ulong");

struct clb_geometry {
    size_t global[2], local[2]; /* local[0] is 0 where the driver chooses */
    cl_uint dimensions;
};

struct clb_order {
    struct clb_queue *queue; /* one of the queue set's; NULL: that for kernels */
    clb_event after;         /* that the launch waits for; or NULL */
    clb_event *event;        /* where to store the launch's own; or NULL */
};

/* `name` is a constant. The last two arguments are CLB_ARGUMENTS(CLB_ARG(...), ...); the kernel has
 * the parameters of CLB_LAUNCH_PARAMETERS (kernels/common.h) after them. CLB_ERR_LAUNCH when its
 * work-groups are too large for the device, or need more local memory. */
clb_status clb_kernel_launch(struct clb_queue_set *queue_set, struct clb_program *program,
                             const char *name, const struct clb_geometry *geometry,
                             struct clb_order order, const struct clb_argument *arguments,
                             size_t count) CLB_MUST_CHECK;

#endif
