/* ocl: the OpenCL runtime. Table of OpenCL functions, device, queue sets, memory pool, programs.
 *
 * Everything is started lazily by clb_runtime_get(). All functions may be called by any number of
 * threads at once, except that one call uses a queue set at a time. Every OpenCL status other
 * than CL_SUCCESS becomes a clb_status and a log line; nothing here aborts. */
#ifndef CLB_OCL_H
#define CLB_OCL_H

#include "host/host.h"

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- loader.c: the ICD loader's functions, dlopen'ed at first use, and their errors ---------- */

struct clb_cl {
#define CLB_CL_STATUS(name, parameters, arguments)       cl_int(CL_API_CALL *name) parameters;
#define CLB_CL_HANDLE(type, name, parameters, arguments) type(CL_API_CALL *name) parameters;
#include "functions.def"
#undef CLB_CL_STATUS
#undef CLB_CL_HANDLE
};

extern struct clb_cl clb_cl;

/* Load the system's ICD loader, or with `driver` only that driver's library. */
clb_status clb_cl_load(const char *driver) CLB_MUST_CHECK;

/* A driver that is installed: the library that its .icd file names. */
enum { CLB_MAX_ICDS = 32, CLB_DRIVER_PATH = 512 };
struct clb_icd {
    char library[CLB_DRIVER_PATH];
    uint64_t size, time; /* of the library's file; 0 where it is not found */
};
/* List them in the loader's order; returns their number. `icd` has CLB_MAX_ICDS elements. */
size_t clb_icd_list(struct clb_icd *icd);

/* The tests' fault injector: called once after loading, may replace entries of the table. */
extern void (*clb_cl_loaded_hook)(struct clb_cl *table);

const char *clb_cl_error_name(cl_int status);

/* What an error of a function means: it is logged ("what: CL_...") and mapped; memory errors are
 * CLB_ERR_NOMEM. For the launch of a kernel also CLB_ERR_LAUNCH: the device has too little local
 * memory, too few work-items or too few registers for it. */
CLB_COLD clb_status clb_cl_failed(cl_int status, const char *what) CLB_MUST_CHECK;
CLB_COLD clb_status clb_cl_launch_failed(cl_int status, const char *name) CLB_MUST_CHECK;

/* trace.c: replace the table's functions by ones that record when the device ran the commands that
 * they enqueue. Called once after loading, only where a trace is wanted. */
void clb_cl_trace(struct clb_cl *table);

/* ---- runtime.c: the device ------------------------------------------------------------------- */

/* Who made the device, as far as the shim treats makers differently: GPUs only, because drivers of
 * others name the maker of a CPU. */
typedef enum clb_vendor {
    CLB_VENDOR_OTHER,
    CLB_VENDOR_NVIDIA,
    CLB_VENDOR_AMD,
    CLB_VENDOR_INTEL
} clb_vendor;

/* Peculiarities of drivers. They are found once, when a device is described: each vendor's and
 * driver's in the file that is named here. */
typedef enum clb_quirk {
    /* nvidia.c: after a command has failed, all later commands and every wait fail too, because the
     * context is unusable. So queues keep no events there, which elsewhere are the only report of a
     * failure and cost a lock and some microseconds a command. */
    CLB_QUIRK_FAILS_FOR_GOOD = 1 << 0,
    /* nvidia.c: the driver reports fewer work-items (256) and less local memory (48 KiB) for
     * kernels than their launches accept. Kernels that run would be refused if it were believed; a
     * launch that really needs too much fails. */
    CLB_QUIRK_UNDERSTATES_LIMITS = 1 << 1,
    /* nvidia.c: all work-groups of a launch that the device can hold make progress, so that they
     * may wait for each other. Elsewhere they may run one after the other, and such a kernel hangs.
     */
    CLB_QUIRK_GROUPS_PROGRESS = 1 << 2,
    /* pocl.c: a launch of a kernel that is wider than those before it ends the process when another
     * thread's launch of that kernel ends meanwhile. So the first launch must be the widest. */
    CLB_QUIRK_WIDEST_LAUNCH_FIRST = 1 << 3,
    /* pocl.c: the user has asked the driver to pin its worker threads. The shim doesn't. */
    CLB_QUIRK_PINS_WORKERS = 1 << 4,
    /* pocl.c: the driver keeps compiled programs itself, and compiles every kernel once more when
     * it is asked for binaries. So programs are built from source in each process. */
    CLB_QUIRK_KEEPS_PROGRAMS = 1 << 5,
    /* nvidia.c: a thread of the driver spins for a while after calls when more than one thread of
     * the process has enqueued, and threads that ask it for events delay each other. So one thread
     * does both for all (enqueuer.c). */
    CLB_QUIRK_ONE_ENQUEUER = 1 << 6
} clb_quirk;

struct clb_device {
    cl_platform_id platform;
    cl_device_id id;
    clb_vendor vendor;
    unsigned quirks; /* of clb_quirk */
    char name[128];
    char vendor_name[128];
    char driver[128];
    char platform_name[128];
    char platform_version[128];
    cl_device_type type;
    bool fp64;
    bool unified; /* shares memory with the host: inputs are used in place */
    cl_uint units;
    cl_uint vector_bytes; /* native vector width in bytes */
    uint64_t memory;      /* bytes; host memory if unified */
    uint64_t max_alloc;   /* largest buffer in bytes */
    uint64_t local_memory;
    size_t max_group; /* most work-items of a work-group, all in the first dimension */
};

static inline bool clb_device_has(const struct clb_device *device, clb_quirk quirk)
{
    return (device->quirks & (unsigned)quirk) != 0;
}

/* A device with its indices in CLBLAS_SHIM_DEVICE. `defect` is NULL or why it can't be used; a
 * platform that can't be asked for its devices is listed as one without an id. */
enum { CLB_MAX_DEVICES = 64 };
struct clb_listed_device {
    struct clb_device device;
    unsigned platform, index;
    const char *defect;
};

/* List the devices of the drivers that clb_cl_load has loaded; returns their number. */
size_t clb_device_list(struct clb_listed_device *list, size_t capacity);

/* The device that CLBLAS_SHIM_DEVICE asks for, or the best one: that with the highest rank, but for
 * those that are known to be clearly slower than the fastest of their kind. */
clb_status clb_device_select(const char *wanted, struct clb_device *device) CLB_MUST_CHECK;
double clb_device_rank(const struct clb_device *device);

/* What this process's device is like: the one that has started, or before that the one that an
 * earlier process has chosen among the same drivers, without its ids. NULL: not known. Reads a file
 * at its first call. */
const struct clb_device *clb_device_expected(void);

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
    bool gave_up;       /* it still ran when the patience had ended */
    double seconds;     /* from the call to its end */
    double cpu_seconds; /* of it and its children */
    long peak_kib;      /* the memory of the largest of them */
};

/* Run the program `path` and wait for its end, at most `patience` seconds. The calling program gets
 * no signal, nothing from any form of wait, and no descriptor. The helper has the environment at
 * the time of clb_spawn_note_environment without LD_PRELOAD, /dev/null as its three files, a
 * session of its own and a lower priority; it gets SIGTERM when the program ends or the patience
 * does. CLB_ERR_IO where it was not started or has not ended. Called on the driver thread only. */
clb_status clb_spawn(const char *path, char *const *arguments, double patience,
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

/* ---- runtime.c: what is kept for the device in use ------------------------------------------- */

struct clb_buffer;
struct clb_queue_set;
struct clb_launch_counters;
struct clb_program;

/* Buffers that are kept for later calls; memory.c's alone. */
enum { CLB_BUFFER_CLASSES = 3 };
struct clb_pool {
    pthread_mutex_t lock;
    struct clb_buffer *kept;                 /* free buffers, most recent first */
    uint64_t kept_bytes[CLB_BUFFER_CLASSES]; /* by class */
    uint64_t taken_bytes;                    /* all buffers, kept or in use */
};

/* What a layer above keeps for each device: its variants, the results of its self-checks. `data` is
 * zero when the device starts; the layer says what `lock` guards. */
enum { CLB_STATE_BYTES = 24576 };
typedef enum clb_state { CLB_STATE_KERNEL, CLB_STATE_DENSE, CLB_STATE_GEMM, CLB_STATES } clb_state;

struct clb_device_state {
    pthread_mutex_t lock;
    _Alignas(64) unsigned char data[CLB_STATE_BYTES];
};

struct clb_runtime {
    struct clb_device device;
    cl_context context;
    uint64_t memory_limit; /* bytes of device memory that the pool may hold */
    double start_seconds;  /* that the start has taken */
    struct clb_pool pool;
    struct {
        pthread_mutex_t lock;
        struct clb_queue_set *idle;                     /* queue.c's alone */
        _Atomic(struct clb_launch_counters *) counters; /* too; NULL before the first launch */
    } sets;
    struct { /* queue.c's alone */
        pthread_mutex_t lock;
        size_t inside; /* calls that have a turn, or have gone on without one */
        struct clb_turn *first;
    } turns;
    struct {
        pthread_mutex_t lock;
        struct clb_program *first; /* program.c's alone */
    } programs;
    _Atomic int failures; /* calls in a row that failed on the device */
    /* Waits for a device with its own memory, see queue.c. */
    _Atomic unsigned ended;           /* commands that were seen to end */
    _Atomic unsigned patience_millis; /* 0: no call has said what it expects */
    atomic_bool abandoned;            /* nothing is enqueued any more, nobody waits */
    struct clb_device_state state[CLB_STATES];
};

/* The state of one layer: a pointer to its struct `type`, which is that layer's alone. */
#define CLB_DEVICE_STATE(runtime, which, type)                                                     \
    ((type *)(void *)((runtime)->state[which].data + 0 * sizeof(struct {                           \
                                                         _Static_assert(sizeof(type) <=            \
                                                                            CLB_STATE_BYTES,       \
                                                                        "raise CLB_STATE_BYTES");  \
                                                         char unused;                              \
                                                     })))

typedef enum clb_runtime_state {
    CLB_RUNTIME_IDLE,        /* no call has needed a device yet */
    CLB_RUNTIME_READY,       /* started */
    CLB_RUNTIME_FAILED,      /* no usable device */
    CLB_RUNTIME_ABANDONED,   /* this is a forked child of a process that had started */
    CLB_RUNTIME_QUARANTINED, /* the device failed too often */
    CLB_RUNTIME_STARTING     /* another thread starts it, and the caller may not wait */
} clb_runtime_state;

/* runtime.c's alone, as is the slow path of clb_runtime_get. */
extern struct clb_runtime clb_runtime_started;
extern _Atomic int clb_runtime_now; /* of clb_runtime_state */
struct clb_runtime *clb_runtime_start(clb_runtime_state *state);

/* The runtime, started by the first caller. NULL when there is none: *state says why. The caller
 * waits for the start as long as its patience lasts. */
static inline struct clb_runtime *clb_runtime_get(clb_runtime_state *state)
{
    *state = CLB_RUNTIME_READY;
    return CLB_LIKELY(atomic_load_explicit(&clb_runtime_now, memory_order_acquire) ==
                      CLB_RUNTIME_READY)
               ? &clb_runtime_started
               : clb_runtime_start(state);
}

/* The runtime if it has been started, otherwise NULL: for reports. */
static inline const struct clb_runtime *clb_runtime_peek(void)
{
    const int now = atomic_load(&clb_runtime_now);
    return now == CLB_RUNTIME_READY || now == CLB_RUNTIME_QUARANTINED ? &clb_runtime_started : NULL;
}

/* Report a call that has failed on the device, or one that has not. Repeated failures quarantine
 * the device. */
void clb_runtime_report_failure(struct clb_runtime *runtime);
static inline void clb_runtime_report_success(struct clb_runtime *runtime)
{
    if (CLB_UNLIKELY(atomic_load_explicit(&runtime->failures, memory_order_relaxed) != 0))
        atomic_store(&runtime->failures, 0);
}

/* Never use the device again in this process: its result was wrong. */
void clb_runtime_quarantine(struct clb_runtime *runtime);

/* Called before a call is computed: how long a device with its own memory may complete no command
 * before it is abandoned, INFINITY for ever. The longest of all calls' so far holds. */
static inline void clb_runtime_expect(struct clb_runtime *runtime, double seconds)
{
    const unsigned millis = seconds < UINT_MAX / 1000 ? (unsigned)(1000 * seconds) : UINT_MAX;
    unsigned now = atomic_load_explicit(&runtime->patience_millis, memory_order_relaxed);
    while (now < millis && !atomic_compare_exchange_weak(&runtime->patience_millis, &now, millis))
        continue;
}
double clb_runtime_patience(const struct clb_runtime *runtime);

/* Called when no command has ended for so long: never use the device again, and don't wait for it.
 * What its commands may still use is never freed. */
void clb_runtime_abandon(struct clb_runtime *runtime, double seconds);

/* ---- memory.c: pooled buffers under one allowance -------------------------------------------- */

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

/* Never use this buffer again: a command that uses it may still be outstanding. */
void clb_buffer_leak(struct clb_buffer *buffer);

/* clb_buffer_put when `idle`, otherwise clb_buffer_leak. */
void clb_buffer_end(struct clb_runtime *runtime, struct clb_buffer *buffer, bool idle);

/* Zeroed host memory for data that is too large for the pool and not used by the device. NULL when
 * the system has less available memory than that. */
void *clb_host_map(size_t size);
void clb_host_unmap(void *memory, size_t size);

/* Bytes of the allowance that are not in use; kept buffers count as free. */
uint64_t clb_memory_available(struct clb_runtime *runtime);

/* A read-only buffer that uses the caller's memory [host, host+size) in place. The memory must stay
 * valid while a command uses it; release the buffer with clb_mem_release. */
clb_status clb_buffer_wrap(struct clb_runtime *runtime, const void *host, size_t size,
                           cl_mem *mem) CLB_MUST_CHECK;
void clb_mem_release(cl_mem mem);

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

/* True when the program has passed the check of this name in an earlier process, compiled by the
 * same driver; set_checked records that. Never true for a program that this process compiled. */
bool clb_program_is_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                            const char *check);
void clb_program_set_checked(const struct clb_runtime *runtime, const struct clb_program *program,
                             const char *check);
/* The OpenCL program. */
cl_program clb_program_handle(const struct clb_program *program);
/* How fast its kernels are, and to store that. */
struct clb_rate clb_program_get_rate(const struct clb_runtime *runtime,
                                     const struct clb_program *program);
void clb_program_set_rate(const struct clb_runtime *runtime, const struct clb_program *program,
                          double gflops);

/* ---- queue.c: queues that detect failed commands, and the queue sets of calls ---------------- */

/* All commands are enqueued by these functions. They keep each command's event until its execution
 * status has been checked. The caller releases an event that a function returns in *event; `event`
 * may be NULL, and *event is unchanged on failure. Several threads may use a queue. */
struct clb_queue;

/* CLB_OK for CL_SUCCESS, otherwise clb_cl_failed or, for a launch, clb_cl_launch_failed. */
clb_status clb_cl_check(cl_int status, const char *what) CLB_MUST_CHECK;
clb_status clb_cl_check_launch(cl_int status, const char *name) CLB_MUST_CHECK;

/* False also when the driver does not say. */
bool clb_cl_event_is_pending(cl_event event);

/* Wait for one command. CLB_ERR_OPENCL when it has failed, or the device has been abandoned. */
clb_status clb_event_wait(struct clb_runtime *runtime, cl_event event) CLB_MUST_CHECK;
/* True when the command has not ended yet; false also when the driver does not say. */
bool clb_event_is_pending(cl_event event);
void clb_event_release(cl_event event);
/* clb_event_release for an event that may be NULL; *event becomes NULL. */
void clb_event_drop(cl_event *event);

clb_status clb_queue_open(struct clb_runtime *runtime, struct clb_queue **queue) CLB_MUST_CHECK;

/* One kernel argument. */
struct clb_argument {
    size_t size;
    const void *value;
};
#define CLB_ARG(x) ((struct clb_argument){sizeof(x), &(x)})

/* A rectangle of a buffer and one of host memory: x in bytes, y in rows, pitches in bytes. */
struct clb_box {
    size_t origin[3], host[3], size[3], pitch, host_pitch;
};

/* Set all arguments of the kernel and enqueue it; the kernel has the parameters of
 * CLB_LAUNCH_PARAMETERS (kernels/common.h) after those. `local` and `global` have `dimensions`
 * entries. The kernel object must be the calling thread's alone: clb_queue_set_kernel. */
clb_status clb_queue_launch(struct clb_queue *queue, cl_kernel kernel, const char *name,
                            const struct clb_argument *arguments, size_t count, cl_uint dimensions,
                            const size_t *global, const size_t *local, cl_uint waits,
                            const cl_event *wait_list, cl_event *event) CLB_MUST_CHECK;
/* The launches that a queue has been given, where one thread launches. False when the device has
 * not run all of the first so many, whose end has been waited for. */
cl_uint clb_queue_launches(const struct clb_queue *queue);
bool clb_queue_has_run(const struct clb_queue *queue, cl_uint launches);
clb_status clb_queue_write(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                           const void *host, cl_uint waits, const cl_event *wait_list,
                           cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_read(struct clb_queue *queue, cl_mem mem, size_t offset, size_t size,
                          void *host, cl_uint waits, const cl_event *wait_list,
                          cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_write_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                                const void *host, cl_uint waits, const cl_event *wait_list,
                                cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_read_rect(struct clb_queue *queue, cl_mem mem, const struct clb_box *box,
                               void *host, cl_uint waits, const cl_event *wait_list,
                               cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_barrier(struct clb_queue *queue, cl_uint waits, const cl_event *wait_list,
                             cl_event *event) CLB_MUST_CHECK;
/* With `event` NULL, wait until the memory is mapped, and check the queue. */
clb_status clb_queue_map(struct clb_queue *queue, cl_mem mem, cl_map_flags flags, size_t offset,
                         size_t size, void **mapped, cl_event *event) CLB_MUST_CHECK;
clb_status clb_queue_unmap(struct clb_queue *queue, cl_mem mem, void *mapped) CLB_MUST_CHECK;
/* True on CPUs once it has been seen that what their kernels store in buffers of CLB_MEMORY_HOST is
 * there, so that those need not be mapped: a map would wake a thread of the driver for nothing. */
bool clb_queue_shows_memory(const struct clb_queue *queue);
/* On such a device: the event, with a reference, of the last command that has not been seen to end;
 * NULL where all have, or where the driver gives no reference. */
cl_event clb_queue_last_event(struct clb_queue *queue);
/* As clb_queue_map for reading a buffer of CLB_MEMORY_HOST, but without a command where
 * clb_queue_shows_memory. *mapped is NULL then, with nothing to be unmapped; *results is what is
 * read when *event, that of the queue's last command, has ended. */
clb_status clb_queue_map_results(struct clb_queue *queue, const struct clb_buffer *buffer,
                                 size_t size, const void **results, void **mapped,
                                 cl_event *event) CLB_MUST_CHECK;

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

/* The same on devices where only the commands' own events report failures. Does nothing where any
 * later wait reports them too (CLB_QUIRK_FAILS_FOR_GOOD). */
clb_status clb_queue_confirm(struct clb_queue *queue) CLB_MUST_CHECK;

/* The OpenCL queue, for measuring other libraries. Commands that they enqueue are not checked. */
cl_command_queue clb_queue_handle(const struct clb_queue *queue);

/* The queues and kernel objects that one call uses. */
struct clb_queue_set {
    struct clb_runtime *runtime;
    struct clb_queue *queue;             /* for kernels; for all commands where memory is shared */
    struct clb_queue *upload, *download; /* for transfers; NULL until clb_queue_set_open_queues */
    struct clb_queue_set_kernel *kernels;
    struct clb_queue_set *link; /* next in the free list */
};

/* Before and after a call: a device with memory of its own is filled by few calls at once, and more
 * only take its time and the CPUs' from each other. Callers wait in order, but no longer than so
 * many seconds: then the call goes on beside the others. Nobody waits for other devices. */
void clb_turn_begin(struct clb_runtime *runtime, double patience);
void clb_turn_end(struct clb_runtime *runtime);

/* Get a queue set for one call. Never waits: a new one is made when all are in use. */
clb_status clb_queue_set_acquire(struct clb_runtime *runtime,
                                 struct clb_queue_set **queue_set) CLB_MUST_CHECK;

/* Open the upload and download queues: transfers overlap with kernels only on separate queues. */
clb_status clb_queue_set_open_queues(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Return a queue set to the free list; its queues must be idle. One on which a command has failed
 * is discarded. */
void clb_queue_set_release(struct clb_queue_set *queue_set);

/* Wait until no command is outstanding on any queue. An error when a command has failed. */
clb_status clb_queue_set_finish(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* The same at the end of a run, also of one that failed. False: commands may still be outstanding
 * and will not end; the queue set must be discarded and the buffers of the run leaked. */
bool clb_queue_set_settle(struct clb_queue_set *queue_set) CLB_MUST_CHECK;
void clb_queue_set_discard(struct clb_queue_set *queue_set);

/* Called after waiting for a command and before its result is used: an error when any command of
 * the queue set that has ended has failed, so also when the result depends on a failed one. */
clb_status clb_queue_set_check(struct clb_queue_set *queue_set) CLB_MUST_CHECK;

/* Wait for an event of the queue set, release it, and check the queue set. *event becomes NULL. */
clb_status clb_queue_set_await(struct clb_queue_set *queue_set, cl_event *event) CLB_MUST_CHECK;

/* The queue set's own kernel object (setting arguments is not thread-safe on a shared one).
 * CLB_ERR_LAUNCH when its work-groups are too large for the device, or need more local memory. */
clb_status clb_queue_set_kernel(struct clb_queue_set *queue_set, struct clb_program *program,
                                const char *name, cl_kernel *kernel) CLB_MUST_CHECK;

/* ---- enqueuer.c: the thread that enqueues, for queue.c alone --------------------------------- */

/* Called when the device starts: make the thread if the device is one where it does all
 * (CLB_QUIRK_ONE_ENQUEUER). Tests may have it on every device with its own memory. */
clb_status clb_enqueuer_start(const struct clb_device *device) CLB_MUST_CHECK;
extern bool clb_enqueuer_always;
/* True when there is the thread, so that all commands are to be left to it. */
extern atomic_bool clb_enqueuer_made;
static inline bool clb_enqueuer_exists(void)
{
    return atomic_load_explicit(&clb_enqueuer_made, memory_order_relaxed);
}
extern CLB_THREAD bool clb_enqueuer_is_self; /* this is the thread */

/* What the thread is to do: first member of a larger struct, which `run` frees. */
struct clb_request {
    void (*run)(struct clb_request *request);
    /* Whether all that it uses has been made; NULL where it uses nothing of other queues. */
    bool (*is_ready)(const struct clb_request *request);
    bool overtakes; /* it belongs to a queue for transfers */
    struct clb_request *next;
};

/* Leave a request; it is carried out after all that were left before, or, if it overtakes, after
 * all of those that do so too. */
void clb_enqueuer_leave(struct clb_request *request);

/* What becomes of a command, or of another request. Threads hold it as a cl_event. */
struct clb_promise {
    struct clb_request request, watch; /* the thread's */
    struct clb_runtime *runtime;
    _Atomic unsigned references;
    atomic_bool is_watched, ended;
    clb_status status; /* these two are known when it has ended */
    void *mapped;      /* the memory that a command has mapped */
    cl_event event;    /* the thread's: NULL when the command is not enqueued, or has ended */
    struct clb_promise *next; /* the thread's */
    struct clb_queue *queue;  /* of the command */
    /* What the thread does when the command has ended; NULL: nothing. */
    clb_status (*then)(struct clb_queue *queue);
};

/* NULL when there is no memory. */
struct clb_promise *clb_promise_new(struct clb_runtime *runtime);
void clb_promise_retain(struct clb_promise *promise);
void clb_promise_release(struct clb_promise *promise);
/* The thread says that the request has ended. */
void clb_promise_end(struct clb_promise *promise, clb_status status);
/* Has the thread ask for it from now on. */
bool clb_promise_has_ended(struct clb_promise *promise);
/* The thread flushes a queue, unless nothing has been enqueued since it did. */
void clb_queue_flush_now(struct clb_queue *queue);
bool clb_queue_is_for_transfers(const struct clb_queue *queue);

/* Wait until the thread has nothing to do, but no longer than this: the process ends. */
void clb_enqueuer_await_idle(double seconds);

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
