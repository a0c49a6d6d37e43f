/* base: what every layer stands on. Types, status, checked sizes, configuration, log, guest guard.
 *
 * Nothing here knows OpenCL or BLAS libraries. Every other layer may include this header. */
#ifndef CLB_BASE_H
#define CLB_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

/* The outcome of anything that can fail. CLB_OK is zero. */
typedef enum clb_status {
    CLB_OK = 0,
    CLB_ERR_NOMEM,       /* host or device memory, or an allowance, is used up */
    CLB_ERR_OPENCL,      /* an OpenCL call failed */
    CLB_ERR_LAUNCH,      /* a kernel needs more than the device has */
    CLB_ERR_NODEVICE,    /* no usable device */
    CLB_ERR_BUILD,       /* a kernel does not build or fails its self-check */
    CLB_ERR_RANGE,       /* a size or value is out of range */
    CLB_ERR_UNSUPPORTED, /* the device or the library can't do this */
    CLB_ERR_IO           /* a file can't be read or written */
} clb_status;

const char *clb_status_name(clb_status status);

/* Element types, in LAPACK's order. */
typedef enum clb_precision { CLB_S, CLB_D, CLB_C, CLB_Z, CLB_PRECISIONS } clb_precision;

size_t clb_precision_size(clb_precision precision);
/* Real numbers in an element: 2 for the complex types; and the bytes of each. */
size_t clb_precision_parts(clb_precision precision);
size_t clb_precision_real_size(clb_precision precision);

/* op(X) = X, X^T or X^H. */
typedef enum clb_op { CLB_OP_N, CLB_OP_T, CLB_OP_C } clb_op;

/* ---- checked sizes (extent.c) ---------------------------------------------------------------- */

/* Bytes that a column-major rows x cols operand with leading dimension ld occupies:
 * ((cols-1)*ld + rows) * size; 0 when empty. CLB_ERR_RANGE when that passes PTRDIFF_MAX. */
clb_status clb_extent_bytes(size_t rows, size_t cols, size_t ld, size_t size,
                            size_t *bytes) CLB_MUST_CHECK;

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

/* What a kernel family promises, and CLBLAS_SHIM_MATH the most that is allowed. */
typedef enum clb_math {
    CLB_MATH_STRICT,  /* plain fused multiply-add */
    CLB_MATH_DEFAULT, /* errors at most plain multiply-add's */
    CLB_MATH_FAST     /* neither */
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
    struct clb_param_override overrides[CLB_MAX_OVERRIDES];
    size_t override_count;
    clb_log_level log;
    const char *log_file;  /* NULL: stderr */
    const char *stats;     /* NULL: no report */
    const char *trace;     /* NULL: none */
    const char *cache_dir; /* NULL: $XDG_CACHE_HOME/clblas-shim */
};

/* The process's configuration: read from the environment on the first call, constant from then on.
 * In a set-uid program the environment is ignored and the mode is `off`. */
const struct clb_config *clb_config_get(void);

/* The threshold that CLBLAS_SHIM_THRESHOLD_<NAME> or CLBLAS_SHIM_THRESHOLD sets for a routine
 * ("dgemm"), as the cube root of the work; negative when neither is set. */
double clb_config_threshold(const char *routine);

/* Whether CLBLAS_SHIM_STATS is `-` now. Nothing else is read, for a process that made no call. */
bool clb_config_asks_for_table(void);

/* One line on stderr for every CLBLAS_SHIM... of the environment that is no variable of ours.
 * `routine` has the names of routines for CLBLAS_SHIM_THRESHOLD_<NAME>, NULL after the last. */
void clb_config_check_names(const char *(*routine)(size_t index));

/* Parse one configuration from `lookup` (getenv in the library, a table in the tests). Every value
 * that is not valid is reported by one line and replaced by its default. */
void clb_config_parse(struct clb_config *config, const char *(*lookup)(const char *name));

/* Numbers are parsed without regard to the locale. Both take the whole of [text, text+length). */
bool clb_parse_number(const char *text, size_t length, double *value);
bool clb_parse_bytes(const char *text, size_t length, double *value, bool *percent);

/* ---- log (log.c) ----------------------------------------------------------------------------- */

/* True when messages of this level are wanted. Cheap. */
bool clb_log_wanted(clb_log_level level);

/* One line, written with a single write(2), prefixed with "clblas-shim: ". */
void clb_log(clb_log_level level, const char *format, ...) CLB_PRINTF(2, 3);

/* One line on stderr whatever the log level, and in the log file when one is open: for invalid
 * configuration values and fatal errors. */
void clb_complain(const char *format, ...) CLB_PRINTF(1, 2);

/* Open the log file and take the level from the configuration. Called once, by clb_config_get. */
void clb_log_open(clb_log_level level, const char *file);

/* ---- files (file.c): in a process that is not ours --------------------------------------------
 */

/* open(2) that waits for nobody (a FIFO without a reader is ENXIO), takes none of the descriptors 0
 * to 2, also where they are closed, and is not inherited by other programs. */
int clb_file_open(const char *path, int flags, unsigned mode);
/* A regular file opened so for reading; NULL when it is none or can't be read. */
FILE *clb_file_read(const char *path);
/* A new file for writing in the folder of `path`; its name, of at most `size` characters, goes into
 * `name`. -1 and errno on failure. */
int clb_file_temporary(char *name, size_t size, const char *path, unsigned mode);
/* Write all of it; 0 or the error. No SIGPIPE, no SIGXFSZ. Where the descriptor does not block, its
 * reader gets `patience` seconds to take the next piece, or it is EAGAIN. */
int clb_file_write(int fd, const char *data, size_t length, double patience);
/* What such an error means to the user. */
const char *clb_file_error(int error);

/* ---- text (text.c): locale-independent formatting into a growing buffer ---------------------- */

struct clb_text {
    char *data; /* owned, terminated; NULL while empty */
    size_t length;
    size_t capacity;
    bool failed; /* memory ran out: the content is not to be used */
};

void clb_text_free(struct clb_text *text);
void clb_text_add(struct clb_text *text, const char *string);
void clb_text_addf(struct clb_text *text, const char *format, ...) CLB_PRINTF(2, 3);
/* A JSON string with its quotes, escaped. */
void clb_text_add_quoted(struct clb_text *text, const char *string);
/* Shortest decimal that reads back as the same double, with a '.' in every locale. */
void clb_text_add_double(struct clb_text *text, double value);

/* ---- output (output.c): files that are written when the process ends --------------------------
 */

/* Keep the working directory for a relative name, and when the run began; called at the first
 * intercepted call. */
void clb_output_note(const char *name);
/* Write the text: %p in the name is the process id and `-` is stderr. A file that was written
 * before the run began is replaced; one that was written since is kept, the process id being
 * appended to the name. Failures are one line that names the variable. */
void clb_output_write(const char *variable, const char *name, const struct clb_text *text);

/* ---- trace (trace.c): CLBLAS_SHIM_TRACE, what happened when -----------------------------------
 */

/* Where a span belongs: a thread of the program, or a queue of the device. */
enum clb_trace_side { CLB_TRACE_HOST, CLB_TRACE_DEVICE };

bool clb_trace_wanted(void);
/* One thing that took from `begin` to `end`, in seconds of the side's own clock. `name` stays
 * valid; a track is a thread's or a queue's number. */
void clb_trace_span(enum clb_trace_side side, long track, const char *name, double begin,
                    double end);
/* The same of this thread, until now. */
void clb_trace_since(const char *name, double begin);
/* clb_now() minus the device's clock, as far as is known: the smallest counts. */
void clb_trace_offset(double offset);
/* Called once, by clb_config_get. */
void clb_trace_open(const char *file);

/* ---- guest guard (host_state.c): leave the host program's thread as it was found
 * ------------------ */

struct clb_host_state {
    uint64_t
        storage[64]; /* the saved signal mask, floating-point environment, cancel state, errno */
};

/* Around every stretch of code that may enter the OpenCL driver: asynchronous signals blocked (new
 * threads inherit that), floating-point environment default, cancellation off, errno kept. */
void clb_host_state_save(struct clb_host_state *guest);
void clb_host_state_restore(const struct clb_host_state *guest);

/* ---- signals.c: the program's signals while the driver works ----------------------------------
 */

/* Make the thread that ends or stops the program at once for a signal whose disposition is the
 * default, and that undoes what drivers do to dispositions. CLB_ERR_NOMEM: it can't be made, and no
 * driver should be entered. */
clb_status clb_signals_watch(void) CLB_MUST_CHECK;

/* Around whatever may make a driver install signal handlers (its start, compiling); one at a time.
 * When the task ends none of them is left. */
void clb_signals_begin_task(void);
void clb_signals_end_task(void);

/* ---- fork (fork.c) --------------------------------------------------------------------------- */

/* Register `child` to run in every forked child (in order of registration; call it from one thread
 * at a time). */
void clb_fork_on_child(void (*child)(void));

/* Around whatever may make the dynamic linker load libraries: forks of other threads wait, for a
 * limited time, until it is over. May be nested. Loading threads don't wait for each other. */
void clb_load_begin(void);
void clb_load_end(void);

/* ---- worker threads (workers.c) -------------------------------------------------------------- */

#define CLB_MAX_WORKERS 16

/* A detached thread with all asynchronous signals blocked and the default floating-point
 * environment. CLB_ERR_NOMEM when the system gives none. */
clb_status clb_thread_start(size_t stack, void *(*run)(void *), void *argument) CLB_MUST_CHECK;

/* Threads lent to one call. */
struct clb_workers {
    size_t count;                   /* lent */
    size_t running;                 /* in a task; the lender's */
    size_t member[CLB_MAX_WORKERS]; /* the lender's */
};

/* At most `wanted` threads, at once: none when all are lent, and unless `forced` none when the
 * program is inside an OpenMP parallel region or the thread is bound to one CPU. */
void clb_workers_lend(struct clb_workers *team, size_t wanted, bool forced);
/* Run a task on member `index` < count, which must be idle. */
void clb_workers_start(struct clb_workers *team, size_t index, void (*task)(void *),
                       void *argument);
/* Wait until all tasks have ended and give the threads back. */
void clb_workers_return(struct clb_workers *team);

/* Copy `runs` runs of `bytes`, to_step and from_step bytes apart, for data that will not be read
 * soon (copy.c). */
void clb_copy_nontemporal(void *to, size_t to_step, const void *from, size_t from_step,
                          size_t bytes, size_t runs);

/* ---- pages (pages.c): memory that the program may not have touched yet; all is best effort ----
 */

/* True when a page of a few that lie spread inside of [begin, begin + bytes) is not present. */
bool clb_pages_absent(const void *begin, size_t bytes);
/* Make the whole pages inside present; their content stays. */
void clb_pages_populate(void *begin, size_t bytes);
/* Ask for huge pages where whole ones lie inside. */
void clb_pages_want_huge(void *begin, size_t bytes);

/* Monotonic time in seconds. */
double clb_now(void);

#endif
