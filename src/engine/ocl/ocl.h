/* ocl: the OpenCL runtime. Table of OpenCL functions, device, queue sets, memory pool, programs.
 *
 * Everything is started lazily by clb_runtime_get(). All functions may be called by any number of
 * threads at once, except that one call uses a queue set at a time. Every OpenCL status other
 * than CL_SUCCESS becomes a clb_status and a log line; nothing here aborts. */
#ifndef CLB_OCL_H
#define CLB_OCL_H

#include "enqueuer.h"
#include "helper.h"
#include "program.h"
#include "queue.h"

/* ---- nvidia.c, pocl.c: what is peculiar to a vendor or a driver ------------------------------ */

/* Called by runtime.c when all else of the device is described: set the vendor and quirks of a
 * device that is the vendor's or driver's. */
void clb_nvidia_describe(struct clb_device *device);
void clb_pocl_describe(struct clb_device *device);

/* True when a source has instructions that NVIDIA's compiler passes on as comments of PTX. */
bool clb_nvidia_needs_patch(const char *source);
/* Make instructions of these comments. False when `ptx` has none, or is for another target. */
bool clb_nvidia_patch(const char *ptx, struct clb_text *patched);

/* Writes what identifies PoCL's cache of programs: another value means that it may have lost some.
 */
void clb_pocl_identify_cache(char *text, size_t size);
/* NULL, or why the platform of this name must not be asked for its devices. Removes damaged
 * programs from PoCL's cache. */
const char *clb_pocl_refusal(const char *platform_name);
/* Called when kernels have passed their checks on a device: a file of them in PoCL's cache that is
 * another one later is damaged. */
void clb_pocl_store_sums(const struct clb_device *device);
/* Called before and after PoCL starts, to undo its change of the environment. `restore` frees
 * `saved`. */
char *clb_pocl_save_environment(void);
void clb_pocl_restore_environment(char *saved);

/* ---- spawn.c: processes that the program does not notice ------------------------------------- */

struct clb_spawn_result {
    int exit_status;    /* 128 and the signal's number where one has ended it */
    int error;          /* 0, or the errno for which it was not started */
    bool gave_up;       /* it was killed, because it did not get on */
    double seconds;     /* from the call to its end */
    double cpu_seconds; /* of it and its children */
    long peak_kib;      /* the memory of the largest of them */
};

/* How long a helper is waited for: until the file `sign`, to which it writes as long as it gets on,
 * has not changed for so many seconds. NULL: so long in all. */
struct clb_spawn_bound {
    const char *sign;
    double patience;
};

/* Run the program `path` and wait for its end, within the bound. The calling program gets no
 * signal, nothing from any form of wait, and no descriptor. The helper has the environment at the
 * time of clb_spawn_note_environment without LD_PRELOAD, /dev/null as its three files, a session of
 * its own and a lower priority; it gets SIGTERM when the program ends, and is killed when the bound
 * is reached. CLB_ERR_IO where it was not started or has not ended. */
clb_status clb_spawn(const char *path, char *const *arguments, const struct clb_spawn_bound *bound,
                     struct clb_spawn_result *result) CLB_MUST_CHECK;

/* Copy the environment, once. Called in a thread of the program, because a driver task may run
 * while the program changes its environment. */
void clb_spawn_note_environment(void);
char **clb_spawn_environment(void);

/* ---- limits.c -------------------------------------------------------------------------------- */

/* NULL, or the limit that keeps this process from starting a driver, or from building a program. */
const char *clb_limits_on_start(void);
const char *clb_limits_on_build(void);
/* True when a driver can map the few MiB that it needs for a call. */
bool clb_limits_leave_room(void);

/* ---- driver.c: the thread on which drivers start and compile --------------------------------- */

/* Run a task on a thread with a large stack and wait until it has ended; on such a thread, call it
 * directly. The caller must hold no lock that a task may take. Returns the task's status, or
 * CLB_ERR_NOMEM when the thread can't be made. */
clb_status clb_driver_call(clb_status (*run)(void *argument), void *argument) CLB_MUST_CHECK;

/* Until when, by clb_now(), this thread may wait in clb_driver_request; INFINITY, the default: for
 * ever. */
extern CLB_THREAD double clb_driver_patience;
/* Returns the time before. */
static inline double clb_driver_set_patience(double until)
{
    const double before = clb_driver_patience;
    clb_driver_patience = until;
    return before;
}

/* The same for a thread that may not wait for ever: CLB_ERR_STARTING when another task runs, or
 * when this one has not ended by then or waits for a helper process. It goes on all the same, so it
 * gets a copy of the `size` bytes at `argument`, which must not refer to the caller's stack. */
clb_status clb_driver_request(clb_status (*run)(void *argument), const void *argument,
                              size_t size) CLB_MUST_CHECK;

/* Called on that thread around a wait for a helper process, outside of the driver. Does nothing on
 * other threads. */
int clb_driver_leave(void);
void clb_driver_enter(int left);
extern CLB_THREAD bool clb_driver_is_self; /* this is such a thread */

/* ---- driver_threads.c: the threads of a driver ----------------------------------------------- */

struct clb_thread_list {
    size_t count;
    int id[4096];
};

/* List the threads of the process, before the driver starts. */
void clb_threads_note(struct clb_thread_list *before);
/* Pin each thread that the driver has started since to a CPU of its own, if there are enough. */
void clb_threads_pin(const struct clb_device *device, const struct clb_thread_list *before);

#endif
