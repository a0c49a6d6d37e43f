/* host: types, status, checked sizes, configuration, log, files, the thread state guard, threads.
 *
 * This layer uses neither OpenCL nor a BLAS library. Every other layer may include this header. */
#ifndef CLB_BASE_H
#define CLB_BASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define CLB_MUST_CHECK   __attribute__((warn_unused_result))
#define CLB_NOINLINE     __attribute__((noinline))
#define CLB_COLD         __attribute__((cold, noinline))
#define CLB_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define CLB_PUBLIC       __attribute__((visibility("default")))
#define CLB_WEAK         __attribute__((weak))
#define CLB_LIKELY(x)    __builtin_expect(!!(x), 1)
#define CLB_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define CLB_THREAD       _Thread_local __attribute__((tls_model("initial-exec")))
#define CLB_COUNT_OF(a)  (sizeof(a) / sizeof((a)[0]))
#define CLB_SIMD         _Pragma("omp simd") /* built with -fopenmp-simd: no OpenMP runtime */

/* The result of a function that can fail. CLB_OK is zero. */
typedef enum clb_status {
    CLB_OK = 0,
    CLB_ERR_NOMEM,       /* host or device memory, or an allowance, is used up */
    CLB_ERR_OPENCL,      /* an OpenCL call failed */
    CLB_ERR_LAUNCH,      /* a kernel needs more than the device has */
    CLB_ERR_NODEVICE,    /* no usable device */
    CLB_ERR_BUILD,       /* a kernel does not build or fails its self-check */
    CLB_ERR_RANGE,       /* a size or value is out of range */
    CLB_ERR_UNSUPPORTED, /* the device or the library can't do this */
    CLB_ERR_IO,          /* a file can't be read or written */
    CLB_ERR_STARTING     /* not ready yet, and the calling thread may not wait for it */
} clb_status;

const char *clb_status_name(clb_status status);

/* Element types, in LAPACK's order. */
typedef enum clb_precision { CLB_S, CLB_D, CLB_C, CLB_Z, CLB_PRECISIONS } clb_precision;

static inline size_t clb_precision_size(clb_precision precision)
{
    static const size_t sizes[CLB_PRECISIONS] = {
        [CLB_S] = 4, [CLB_D] = 8, [CLB_C] = 8, [CLB_Z] = 16};
    return sizes[precision];
}

/* The number of real numbers in an element, 2 for complex types; and the bytes of one. */
static inline size_t clb_precision_parts(clb_precision precision)
{
    return precision == CLB_C || precision == CLB_Z ? 2 : 1;
}

static inline size_t clb_precision_real_size(clb_precision precision)
{
    return clb_precision_size(precision) / clb_precision_parts(precision);
}

/* op(X) = X, X^T or X^H. */
typedef enum clb_op { CLB_OP_N, CLB_OP_T, CLB_OP_C } clb_op;

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Bytes that a column-major rows x cols operand with leading dimension ld occupies:
 * ((cols-1)*ld + rows) * size; 0 when empty. CLB_ERR_RANGE when that passes PTRDIFF_MAX. */
static inline CLB_MUST_CHECK clb_status clb_extent_bytes(size_t rows, size_t cols, size_t ld,
                                                         size_t size, size_t *bytes)
{
    size_t elements, total;
    *bytes = 0;
    if (rows == 0 || cols == 0)
        return CLB_OK;
    if (__builtin_mul_overflow(cols - 1, ld, &elements) ||
        __builtin_add_overflow(elements, rows, &elements) ||
        __builtin_mul_overflow(elements, size, &total) || total > PTRDIFF_MAX)
        return CLB_ERR_RANGE;
    *bytes = total;
    return CLB_OK;
}

static inline size_t clb_round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

static inline size_t clb_div_up(size_t value, size_t by)
{
    return (value + by - 1) / by;
}

static inline size_t clb_min(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t clb_max(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- configuration (config.c, config.def) ---------------------------------------------------- */

typedef enum clb_mode { CLB_MODE_AUTO, CLB_MODE_OFF, CLB_MODE_ALWAYS, CLB_MODE_DRY_RUN } clb_mode;

typedef enum clb_log_level {
    CLB_LOG_ERROR,
    CLB_LOG_WARN,
    CLB_LOG_INFO,
    CLB_LOG_DEBUG
} clb_log_level;

/* Accuracy that a kernel family promises; CLBLAS_SHIM_MATH sets the least that is accepted. */
typedef enum clb_math {
    CLB_MATH_STRICT,  /* plain fused multiply-add */
    CLB_MATH_DEFAULT, /* other arithmetic, with errors at most those of plain multiply-add */
    CLB_MATH_FAST     /* errors may be larger */
} clb_math;

/* CLBLAS_SHIM_MEMORY: bytes, or a share of the device's memory when percent is not 0. */
struct clb_memory_limit {
    uint64_t bytes;
    double percent;
};

/* One override of CLBLAS_SHIM_PARAMS: "gemm.kc=64". `key` is not terminated. */
struct clb_param_override {
    const char *key;
    size_t key_length;
    const char *value;
    size_t value_length;
};

#define CLB_MAX_OVERRIDES 32

struct clb_config {
    clb_mode mode;
    const char *device; /* NULL: best by capability */
    const char *next;   /* NULL: search as the linker would */
    double threshold;   /* < 0: not set */
    struct clb_memory_limit memory;
    clb_math math;
    const char *kernel; /* NULL: by device */
    bool reproducible, progress;
    bool learn;
    double verify; /* the share of calls; < 0: first uses */
    struct clb_param_override overrides[CLB_MAX_OVERRIDES];
    size_t override_count;
    clb_log_level log;
    const char *log_file;  /* NULL: stderr */
    const char *stats;     /* NULL: no report */
    const char *trace;     /* NULL: none */
    const char *cache_dir; /* NULL: $XDG_CACHE_HOME/clblas-shim */
    uint64_t cache_size;   /* bytes */
    const char *probe;     /* NULL: found beside the library; "none" */
};

/* NULL until the configuration has been read, which the other function does. */
extern const struct clb_config *_Atomic clb_config_known;
const struct clb_config *clb_config_read(void);

/* The process's configuration: read from the environment on the first call, constant from then on.
 * In a set-uid program the environment is ignored and the mode is `off`. */
static inline const struct clb_config *clb_config_get(void)
{
    const struct clb_config *config = atomic_load_explicit(&clb_config_known, memory_order_acquire);
    return CLB_LIKELY(config != NULL) ? config : clb_config_read();
}

/* The threshold that CLBLAS_SHIM_THRESHOLD_<NAME> or CLBLAS_SHIM_THRESHOLD sets for a routine
 * ("dgemm"), as the cube root of the work; negative when neither is set. */
double clb_config_threshold(const char *routine);

/* True when CLBLAS_SHIM_STATS is `-` now. Reads no other variable: for a process that ends without
 * an intercepted call. */
bool clb_config_asks_for_table(void);

/* Write one line to stderr for every CLBLAS_SHIM... in the environment that is not a known
 * variable. `routine` returns the names for CLBLAS_SHIM_THRESHOLD_<NAME>, NULL after the last. */
void clb_config_check_names(const char *(*routine)(size_t index));

/* Parse one configuration from `lookup` (getenv in the library, a table in the tests). Each invalid
 * value is reported by one line and replaced by its default. */
void clb_config_parse(struct clb_config *config, const char *(*lookup)(const char *name));

/* Parse numbers independently of the locale. False unless all of [text, text+length) is valid. */
bool clb_parse_number(const char *text, size_t length, double *value);
bool clb_parse_bytes(const char *text, size_t length, double *value, bool *percent);

/* ---- log (log.c) ----------------------------------------------------------------------------- */

extern _Atomic int clb_log_limit; /* of clb_log_level: lines above it are not written */

/* True when messages of this level are written. */
static inline bool clb_log_wanted(clb_log_level level)
{
    return (int)level <= atomic_load_explicit(&clb_log_limit, memory_order_relaxed);
}

/* Write one line, prefixed with "clblas-shim: ", with a single write(2). */
void clb_log(clb_log_level level, const char *format, ...) CLB_PRINTF(2, 3);

/* Write one line to stderr, whatever the log level is, and to the log file when one is open: for
 * invalid configuration values and fatal errors. */
void clb_complain(const char *format, ...) CLB_PRINTF(1, 2);

/* Open the log file and take the level from the configuration. Called once, by clb_config_read. */
void clb_log_open(clb_log_level level, const char *file);

/* ---- progress (progress.c): how far a long call is, on a terminal ---------------------------- */

struct clb_progress {
    const char *name;
    double flops, begin, shown; /* by clb_now(); `shown` is 0 before the first line */
};
/* The calling thread's; NULL: not wanted, or it is in no call. */
extern CLB_THREAD struct clb_progress *clb_progress_now;

/* Called by the thread that makes a call of so many operations, around it. */
void clb_progress_open(struct clb_progress *progress, const char *name, double flops);
void clb_progress_close(void);
static inline void clb_progress_begin(struct clb_progress *progress, const char *name, double flops)
{
    if (CLB_UNLIKELY(clb_config_get()->progress))
        clb_progress_open(progress, name, flops);
}
static inline void clb_progress_end(const struct clb_progress *progress)
{
    if (CLB_UNLIKELY(clb_progress_now == progress))
        clb_progress_close();
}
void clb_progress_show(double share);

/* Called by that thread where it has waited for results: the share of the operations that are done.
 * Does nothing on other threads. */
static inline void clb_progress_note(double share)
{
    if (CLB_UNLIKELY(clb_progress_now != NULL))
        clb_progress_show(share);
}

/* The same for a factorisation that has done k of n columns: its work is about that of a cube. */
static inline void clb_progress_note_columns(size_t k, size_t n)
{
    double rest = 1 - (double)k / (double)n;
    clb_progress_note(1 - rest * rest * rest);
}

/* ---- files (file.c): files of the shim in the program's process ------------------------------ */

/* open(2) that never blocks (a FIFO without a reader is ENXIO). The descriptor is close-on-exec and
 * never 0 to 2, even when the program has closed those. */
int clb_file_open(const char *path, int flags, unsigned mode);
/* Open a regular file for reading by clb_file_open; NULL when it isn't one or can't be read. */
FILE *clb_file_read(const char *path);
/* True for what belongs to the user or root, and which no other user may write to. */
struct stat;
bool clb_file_is_private(const struct stat *info);
/* Create a new file for writing in the folder of `path`; its name is stored in `name`, which has
 * `size` characters. -1 and errno on failure. */
int clb_file_temporary(char *name, size_t size, const char *path, unsigned mode);
/* Write all of `data`; returns 0 or the errno. The program gets neither SIGPIPE nor SIGXFSZ. On a
 * non-blocking descriptor this waits up to `patience` seconds for room for each piece, then returns
 * EAGAIN. */
int clb_file_write(int fd, const char *data, size_t length, double patience);
/* The text of an error of clb_file_write or open, for the user. */
const char *clb_file_error(int error);

/* ---- text (text.c): locale-independent formatting into a growing buffer ---------------------- */

struct clb_text {
    char *data; /* owned, terminated; NULL while empty */
    size_t length;
    size_t capacity;
    bool failed; /* memory ran out: the content must not be used */
};

void clb_text_free(struct clb_text *text);
void clb_text_add(struct clb_text *text, const char *string);
void clb_text_addf(struct clb_text *text, const char *format, ...) CLB_PRINTF(2, 3);
/* Adds a JSON string, escaped and with quotes. */
void clb_text_add_quoted(struct clb_text *text, const char *string);
/* Adds the shortest decimal that reads back as the same double, with a '.' in every locale. */
void clb_text_add_double(struct clb_text *text, double value);

/* ---- report_file.c: files that are written when the process ends ----------------------------- */

/* Remember the working directory, for a relative name, and the time. Called at the first
 * intercepted call. */
void clb_report_file_note(const char *name);
/* Write the text, a JSON object, to the file `name`, in which %p stands for the process id; the
 * time becomes the object's first member. A file of ours that was written before this process's
 * first call is replaced; otherwise the process id is appended to the new file's name. `-` is
 * stderr, for any text. A failure is reported by one line that names the variable. */
void clb_report_file_write(const char *variable, const char *name, const struct clb_text *text);

/* Monotonic time in seconds. */
static inline double clb_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds of CPU time that the process has used. */
static inline double clb_cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A time of clb_now() for pthread_cond_clockwait(..., CLOCK_MONOTONIC, ...). */
static inline struct timespec clb_time_of(double now)
{
    time_t seconds = (time_t)now;
    return (struct timespec){.tv_sec = seconds, .tv_nsec = (long)(1e9 * (now - (double)seconds))};
}

/* ---- trace (trace.c): CLBLAS_SHIM_TRACE, a timeline of calls and commands -------------------- */

/* The side of a span: a thread of the program, or a queue of the device. */
enum clb_trace_side { CLB_TRACE_HOST, CLB_TRACE_DEVICE };

extern const char *clb_trace_file; /* NULL: no trace. Constant once the configuration is read. */

static inline bool clb_trace_wanted(void)
{
    return CLB_UNLIKELY(clb_trace_file != NULL);
}

/* Add a span from `begin` to `end`, in seconds of the side's own clock. `name` must stay valid;
 * `track` is the number of the thread or queue. */
void clb_trace_span(enum clb_trace_side side, long track, const char *name, double begin,
                    double end);
/* Add a span of the calling thread from `begin` until now. */
void clb_trace_since(const char *name, double begin);
/* Report one estimate of clb_now() minus the device's clock; the smallest of all is used. */
void clb_trace_offset(double offset);
/* Called once, by clb_config_read. */
void clb_trace_open(const char *file);

/* ---- thread_state.c: what the program must not notice of the driver ------------------------ */

struct clb_host_state {
    /* the saved signal mask, floating-point environment, cancel state, errno */
    uint64_t storage[64];
};

/* Called by the program's thread before and after any code that may enter the OpenCL driver. In
 * between the signals that have a handler are blocked, the floating-point environment is the
 * default and cancellation is disabled; errno is restored at the end. */
void clb_host_state_save(struct clb_host_state *state);
void clb_host_state_restore(const struct clb_host_state *state);

/* The threads between these two, and others that are inside the driver: clb_inside_add(1) and (-1)
 * by the thread itself. True while there are any besides the calling thread. */
void clb_inside_add(int change);
bool clb_inside_others(void);

/* Called around each task in which a driver may install signal handlers (its start, builds), one
 * task at a time, and by any thread meanwhile. No such handler is left after it. */
void clb_signals_begin_task(void);
void clb_signals_look(void);
void clb_signals_end_task(void);
/* In a process of the shim's own: signals are the driver's. */
void clb_signals_have_no_program(void);

/* Start a detached thread with all asynchronous signals blocked and the default floating-point
 * environment. CLB_ERR_NOMEM when the system can't create it. */
clb_status clb_thread_start(size_t stack, void *(*run)(void *), void *argument) CLB_MUST_CHECK;

/* ---- fork (fork.c) --------------------------------------------------------------------------- */

/* How many forks lie between the program's first process and this one. A forked child finds other
 * threads' locks held and their data half changed; who owns a lock, a thread or a count compares
 * this number with the one at which it was last used. Raised from clb_fork_watch on. */
extern _Atomic unsigned clb_process_generation;
static inline unsigned clb_generation(void)
{
    return atomic_load_explicit(&clb_process_generation, memory_order_relaxed);
}
/* Called before the first lock is taken: when the configuration is read, and where that may not
 * have happened yet. */
void clb_fork_watch(void);

/* A mutex that a forked child finds free, whichever thread of the parent held it. */
struct clb_mutex {
    pthread_mutex_t mutex;
    _Atomic unsigned generation; /* of the process that `mutex` was made for */
    unsigned last;               /* under the mutex: generation of the last process to lock it */
};
#define CLB_MUTEX_INITIALIZER                                                                      \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                         \
    }
/* True the first time that a forked child locks it. What the mutex guards may be half changed. */
bool clb_lock(struct clb_mutex *mutex);
/* Returns false at once when it is locked. */
bool clb_lock_try(struct clb_mutex *mutex, bool *first);
void clb_unlock(struct clb_mutex *mutex);

/* Called before and after code that may make the dynamic linker load libraries. Forks by other
 * threads wait meanwhile, for a limited time. May be nested; loading threads don't wait for each
 * other. */
void clb_load_begin(void);
void clb_load_end(void);
/* Between these, a thread inside clb_load_begin and clb_load_end loads nothing, so that forks go
 * on; resume waits for their end. */
int clb_load_suspend(void);
void clb_load_resume(int suspended);

/* ---- memory that the program may not have touched (prefault.c); best effort ------------------ */

/* Look at a few pages spread over [begin, begin + bytes): true when one of them is not present. */
bool clb_pages_absent(const void *begin, size_t bytes);
/* Prefault the whole pages in the range; their content is kept. */
void clb_pages_populate(void *begin, size_t bytes);
/* Ask the system for huge pages where whole ones lie in the range. */
void clb_pages_want_huge(void *begin, size_t bytes);

/* The columns of a matrix in units, which threads may fault in before results come. */
struct clb_prefault {
    char *c;
    size_t bytes, step, columns; /* of a column; between columns; number of them */
    bool solid;                  /* every page between the first and the last byte holds entries */
    size_t per_unit, units;      /* columns of a unit; 0 units: nothing to do */
    size_t next;                 /* the next unit; counted by the user of the struct */
};

/* Returns the units of a matrix to fault in, none where the pages seem to be there, and advises the
 * system to use huge pages for the faults. `bytes` are a column's, which begin `step` bytes apart;
 * `mode` is the value of CLB_PARAM_FAULT. */
struct clb_prefault clb_prefault_begin(void *c, size_t bytes, size_t step, size_t columns,
                                       size_t mode);
/* The number of first units that have all pages of the columns before `end`. */
size_t clb_prefault_units(const struct clb_prefault *prefault, size_t end);
/* Fault in the pages of one unit. */
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

/* ---- worker threads (workers.c) -------------------------------------------------------------- */

#define CLB_MAX_WORKERS 16

/* True while this thread is inside a device call of the shim, and always for its worker threads:
 * BLAS calls that they make are declined. */
extern CLB_THREAD bool clb_thread_inside;

/* Worker threads that one call uses. */
struct clb_workers {
    size_t count;                   /* threads in the team */
    size_t running;                 /* threads in a task; private to workers.c */
    size_t member[CLB_MAX_WORKERS]; /* private to workers.c */
};

/* Get at most `wanted` threads without waiting: fewer or none when other calls use them. Unless
 * `forced`, also no more than there are CPUs that this thread may use besides its own, and none
 * inside an OpenMP parallel region. */
void clb_workers_lend(struct clb_workers *team, size_t wanted, bool forced);
/* Run a task on member `index` < count, which must be idle. */
void clb_workers_start(struct clb_workers *team, size_t index, void (*task)(void *),
                       void *argument);
/* Wait until all tasks have ended, and return the threads for other calls. */
void clb_workers_return(struct clb_workers *team);

/* Copy `runs` pieces of `bytes` each, to_step and from_step bytes apart, with non-temporal stores:
 * for data that will not be read soon (copy.c). */
void clb_copy_nontemporal(void *to, size_t to_step, const void *from, size_t from_step,
                          size_t bytes, size_t runs);

#endif
