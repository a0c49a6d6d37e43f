/* ocl: the OpenCL runtime. Table of OpenCL functions, device, queue sets, memory pool, programs.
 *
 * Everything is started lazily by clb_runtime_get(). All functions may be called by any number of
 * threads at once, except that one call uses a queue set at a time. Every OpenCL status other
 * than CL_SUCCESS becomes a clb_status and a log line; nothing here aborts. */
#ifndef CLB_OCL_H
#define CLB_OCL_H

#include "enqueuer.h"
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

/* Copy the environment, once. Called in a thread of the program, because the driver thread may run
 * while the program changes its environment. */
void clb_spawn_note_environment(void);
char **clb_spawn_environment(void);

/* ---- probe.c: the helper process that meets drivers ------------------------------------------ */

typedef enum clb_probe_role {
    CLB_PROBE_HERE,    /* no helper: this process starts drivers and builds programs itself */
    CLB_PROBE_USER,    /* has the helper do that, and loads what has passed */
    CLB_PROBE_BUILDER, /* a child of the helper: builds, checks and stores */
    CLB_PROBE_LOADER   /* a child of the helper: loads what is stored, and checks it again */
} clb_probe_role;

/* Exit statuses of the helper; 0: the step's record is in the cache. */
enum { CLB_PROBE_EXIT_FAILED = 1, CLB_PROBE_EXIT_NO_LOCK = 73, CLB_PROBE_EXIT_BUSY = 75 };

/* Memory that the helper shares with its child. */
struct clb_probe_shared {
    _Atomic bool stop;             /* the program has ended: begin nothing that takes long */
    bool finished;                 /* the child has: a driver may call exit */
    double rank;                   /* of the best device, for choosing between drivers */
    char library[CLB_DRIVER_PATH]; /* the only driver that the child may open; empty: the loader */
    char device[32];               /* the only device, as in CLBLAS_SHIM_DEVICE; empty: the best */
    char current[(size_t)1 << 20]; /* what the child does: a program's key, or empty */
};

/* Called in a child of the helper before all else. */
void clb_probe_become(clb_probe_role as, struct clb_probe_shared *with);
clb_probe_role clb_probe_get_role(void);

/* A record in the cache: what has become of a step, how fast something is, or why it is marked. */
enum { CLB_WORD_PASSED = 1, CLB_WORD_FAILED, CLB_WORD_LIBRARY };
struct clb_record {
    int64_t word;
    int64_t time; /* nanoseconds since 1970; 0: set when it is stored */
    double rate;  /* GFLOP/s; 0: not known */
    char text[CLB_DRIVER_PATH];
};
bool clb_record_load(const char *key, struct clb_record *record);
void clb_record_store(const char *key, struct clb_record record);
bool clb_record_is_older(const struct clb_record *record, double seconds);

/* Mark a program, by its key, that a helper has died of, or a device. A mark is found for a week.
 */
void clb_mark_set(const char *what, const char *reason);
bool clb_mark_find(const char *what, struct clb_record *record);

/* In a child of the helper: say what is begun now, so that it can be marked; the helper should end
 * before the next program. Elsewhere nothing happens. */
void clb_probe_note(const char *what);
bool clb_probe_should_stop(void);

/* Called on the driver thread before the programs of a step are wanted: CLB_OK when they may be
 * loaded, or built here. The helper does the step when there is no record under `key`, and again
 * when that is older than `lasts` seconds, or says that the step failed an hour ago. */
clb_status clb_probe_need(const char *step, const char *key, double lasts) CLB_MUST_CHECK;
/* Have the helper measure the rate of device "P:D", which it stores under `key`; on the driver
 * thread. */
void clb_probe_need_rate(const char *device, const char *key);
/* The file that a working helper has locked, and writes to. */
bool clb_probe_lock_path(char *text, size_t size);
/* In a child of the helper: the only device that it may use, or NULL. */
const char *clb_probe_device(void);
/* Have the last step done again, because the cache has lost a program; false if that fails. */
bool clb_probe_request_again(void);

/* Before a driver is loaded: CLB_OK, and in `library` the only driver that may be opened or "" for
 * all of them by the loader; CLB_ERR_NODEVICE when there is none that works. */
clb_status clb_probe_meet_drivers(char *library, size_t size) CLB_MUST_CHECK;
/* The key of the record about these drivers, malloc'ed. */
char *clb_drivers_key(const struct clb_icd *icd, size_t count);

/* ---- rate.c: how fast devices and kernels are ------------------------------------------------ */

#define CLB_RATE_LASTS 604800 /* seconds after which a rate is measured again */

/* A plain loop on one core of any CPU does about so many GFLOP/s in any precision; a device that
 * does less, a CPU device for each of its cores, is too slow. */
#define CLB_LEAST_RATE 1.0
#define CLB_LEAST_NAME "a core's plain loop"

/* True where the user leaves it to rates which kernels are used, and whether. */
bool clb_rates_decide(void);

struct clb_rate {
    double gflops; /* of a CPU device for each core; 0: not known */
    bool useless;  /* no kernel works */
    bool fresh;    /* it need not be measured again */
};
/* The rate of the record under `key`; all zero where there is none. */
struct clb_rate clb_rate_load(const char *key);
/* The key of a device's rate, malloc'ed. */
char *clb_device_rate_key(const struct clb_device *device);

/* What was not used because of its rate, what was instead, and their rates in GFLOP/s: for the log
 * and the report, which has the first few. */
enum { CLB_RATE_DECISIONS = 16 };
struct clb_rate_decision {
    char dropped[192], used[192];
    double dropped_rate, used_rate;
};
void clb_rate_note(const struct clb_rate_decision *decision);

/* A device was found too slow in a precision: it need not be started for that to find out again.
 * `was_slow` is true for a week, and notes the decision when it is first asked. */
void clb_rate_remember_slow(const struct clb_device *device, clb_precision precision,
                            const struct clb_rate_decision *decision);
bool clb_rate_was_slow(const struct clb_device *device, clb_precision precision);
/* The key of the record about that, malloc'ed. */
char *clb_rate_slow_key(const struct clb_device *device, clb_precision precision);
/* Returns their number. */
size_t clb_rate_decisions(const struct clb_rate_decision **list);

/* ---- limits.c -------------------------------------------------------------------------------- */

/* NULL, or the limit that keeps this process from starting a driver, or from building a program. */
const char *clb_limits_on_start(void);
const char *clb_limits_on_build(void);

/* ---- driver.c: the thread on which drivers start and compile --------------------------------- */

/* Run a task on the driver thread and wait until it has ended; when called by the driver thread,
 * call it directly. The caller must hold no lock that a task may take. Returns the task's status,
 * or CLB_ERR_NOMEM when the thread can't be made. */
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
/* False when that time has come. */
bool clb_driver_may_wait(void);

/* The same as clb_driver_call for a thread that may not wait for ever: CLB_ERR_STARTING when the
 * task has not ended by then. It will be run all the same, so it gets a copy of the `size` bytes at
 * `argument`, which must not refer to the caller's stack. */
clb_status clb_driver_request(clb_status (*run)(void *argument), const void *argument,
                              size_t size) CLB_MUST_CHECK;

/* The driver thread calls this in a long task where it is outside the driver and nothing that it
 * has enqueued is outstanding: there it stops when the process ends or forks. Does nothing on other
 * threads. */
int clb_driver_leave(void);
void clb_driver_enter(int left);
extern CLB_THREAD bool clb_driver_is_self; /* this is the driver thread */
static inline void clb_driver_gate(void)
{
    if (CLB_UNLIKELY(clb_driver_is_self))
        clb_driver_enter(clb_driver_leave());
}

/* Called by any thread: wait until the driver thread is outside of the driver and will not enter
 * it, or is stopped, or can't be waited for; then call the next library's exit. */
_Noreturn void clb_driver_exit(int status);

/* The driver thread calls this at the begin and end of the driver's start. */
void clb_driver_note_start(bool begins);

/* ---- driver_threads.c: the threads of a driver ----------------------------------------------- */

struct clb_thread_list {
    size_t count;
    int id[4096];
};

/* List the threads of the process, before the driver starts. */
void clb_threads_note(struct clb_thread_list *before);
/* Pin each thread that the driver has started since to a CPU of its own, if there are enough. */
void clb_threads_pin(const struct clb_device *device, const struct clb_thread_list *before);
/* Stop those that run where they are, for good: destructors may run then, and nothing else of the
 * driver. What is inside the C library or the dynamic linker in all of several tries goes on. */
void clb_threads_stop(void);

/* ---- cache.c: files of compiled programs ----------------------------------------------------- */

/* The directory for compiled programs, or NULL; constant once found. One that the user has named
 * may be read-only: what is there is used, and nothing is stored. */
const char *clb_cache_directory(void);

/* True when there is any entry. */
bool clb_cache_has_entries(void);

/* True while the file system below `directory` has room for a build (PoCL ends the process when
 * the disk fills while it compiles). */
bool clb_cache_has_room(const char *directory);

/* Make the directory `path` and its parents; true when files can be created in it. */
bool clb_cache_usable(const char *path);
/* $XDG_CACHE_HOME/name or $HOME/.cache/name; false when neither variable is set. */
bool clb_cache_user_path(char *path, size_t size, const char *name);

/* Keys of records about programs begin with this; such records are in files of another kind. */
#define CLB_CACHE_RECORD "record: "

/* The entry stored under `key` (any text); *data is malloc'ed. CLB_ERR_IO when there is none or it
 * is damaged. */
clb_status clb_cache_load(const char *key, unsigned char **data, size_t *size) CLB_MUST_CHECK;
void clb_cache_store(const char *key, const unsigned char *data, size_t size);
uint64_t clb_cache_hash(const void *data, size_t size);

#endif
