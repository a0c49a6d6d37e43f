/* SPDX-License-Identifier: BSD-3-Clause
 * host: what a call needs of the operating system. What happens outside of calls is in process.h.
 * The room uses neither OpenCL nor a BLAS library; every other one may include it. */
#ifndef CLB_HOST_H
#define CLB_HOST_H

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
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

/* The next step, unless one has failed; and one without which the function returns. */
#define CLB_THEN(status, step) ((status) = (status) == CLB_OK ? (step) : (status))
#define CLB_TRY(step)                     \
    do {                                  \
        const clb_status tried_ = (step); \
        if (tried_ != CLB_OK)             \
            return tried_;                \
    } while (0)

const char *clb_status_name(clb_status status);

/* Element types, in LAPACK's order. */
typedef enum clb_precision { CLB_S, CLB_D, CLB_C, CLB_Z, CLB_PRECISIONS } clb_precision;

static inline size_t clb_precision_size(clb_precision precision)
{
    return precision == CLB_S ? 4 : precision == CLB_Z ? 16 : 8;
}

/* The number of real numbers in an element, and the bytes of one. */
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

/* ---- sizes ---- */

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

/* ---- configuration (config.c, config.def) ---- */

typedef enum clb_mode { CLB_MODE_AUTO, CLB_MODE_OFF, CLB_MODE_ALWAYS, CLB_MODE_DRY_RUN } clb_mode;

typedef enum { CLB_LOG_ERROR, CLB_LOG_WARN, CLB_LOG_INFO, CLB_LOG_DEBUG } clb_log_level;

/* Accuracy that a kernel family promises; CLBLAS_SHIM_MATH sets the least that is accepted. */
typedef enum clb_math {
    CLB_MATH_STRICT,  /* plain fused multiply-add */
    CLB_MATH_DEFAULT, /* other arithmetic, with errors at most those of plain multiply-add */
    CLB_MATH_FAST     /* errors may be larger */
} clb_math;

struct clb_config {
    clb_mode mode;
    const char *device; /* NULL: best by capability */
    const char *next;   /* NULL: search as the linker would */
    double threshold;   /* < 0: not set */
    struct clb_memory_limit {
        uint64_t bytes;
        double percent; /* not 0: a share of the device's memory instead */
    } memory;
    clb_math math;
    const char *kernel; /* NULL: by device */
    bool reproducible, progress;
    bool learn;
    double verify;      /* the share of calls; < 0: first uses */
    const char *params; /* NULL: no overrides; see clb_param_next */
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

/* ---- time ---- */

/* Monotonic time in seconds. */
static inline double clb_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A time of clb_now() for pthread_cond_clockwait(..., CLOCK_MONOTONIC, ...). */
static inline struct timespec clb_time_of(double now)
{
    time_t seconds = (time_t)now;
    return (struct timespec){.tv_sec = seconds, .tv_nsec = (long)(1e9 * (now - (double)seconds))};
}

/* ---- log, trace ---- */

extern _Atomic int clb_log_limit; /* of clb_log_level: lines above it are not written */

static inline bool clb_log_wanted(clb_log_level level)
{
    return (int)level <= atomic_load_explicit(&clb_log_limit, memory_order_relaxed);
}

/* Write one line, prefixed with "clblas-shim: ", with a single write(2). */
void clb_log(clb_log_level level, const char *format, ...) CLB_PRINTF(2, 3);

extern const char *clb_trace_file; /* NULL: no trace. Constant once the configuration is read. */

static inline bool clb_trace_wanted(void)
{
    return CLB_UNLIKELY(clb_trace_file != NULL);
}

/* Add a span of the calling thread from `begin` until now; `name` must stay valid. */
void clb_trace_since(const char *name, double begin);

/* ---- progress (progress.c): how far a long call is, on a terminal ---- */

/* The calling thread's; name is NULL where it is not wanted, and outside of calls. */
extern CLB_THREAD struct clb_progress {
    const char *name;
    double flops, begin, shown; /* by clb_now(); `shown` is 0 before the first line */
} clb_progress;

void clb_progress_open(const char *name, double flops);
void clb_progress_close(void);
void clb_progress_show(double share);

/* Called by the thread that makes a call of so many operations, around it. */
static inline void clb_progress_begin(const char *name, double flops)
{
    if (CLB_UNLIKELY(clb_config_get()->progress))
        clb_progress_open(name, flops);
}
static inline void clb_progress_end(void)
{
    if (CLB_UNLIKELY(clb_progress.name != NULL))
        clb_progress_close();
}

/* Called by that thread where it has waited for results: the share of operations done. */
static inline void clb_progress_note(double share)
{
    if (CLB_UNLIKELY(clb_progress.name != NULL))
        clb_progress_show(share);
}

/* The same for a factorisation that has done k of n columns: its work is about that of a cube. */
static inline void clb_progress_note_columns(size_t k, size_t n)
{
    double rest = 1 - (double)k / (double)n;
    clb_progress_note(1 - rest * rest * rest);
}

/* ---- what the program must not notice of the driver (thread_state.c) ---- */

struct clb_thread_state {
    sigset_t mask, pending;
    fenv_t environment;
    int cancel_state, error;
};

/* Called by the program's thread before and after any code that may enter the OpenCL driver. In
 * between the signals that have a handler are blocked, the floating-point environment is the
 * default and cancellation is disabled; errno is restored at the end. Unless `lets_through`, those
 * at their default are blocked, too, until clb_signals_let_through, which is called before a wait,
 * and may be called at any time. */
void clb_thread_state_save(struct clb_thread_state *state, bool lets_through);
void clb_signals_let_through(void);
void clb_thread_state_restore(const struct clb_thread_state *state);

/* The threads that are between these two, and others that are inside the driver: clb_inside_add(1)
 * and (-1) by the thread itself. True while there are any besides the calling thread. */
void clb_inside_add(int change);
bool clb_inside_others(void);
/* For the room: of sigaction, neither the default nor ignored; remove a SIGPIPE or SIGXFSZ that
 * this thread has raised by writing, one that is pending now and was not `before`. */
bool clb_signal_has_handler(const struct sigaction *action);
void clb_signals_remove_raised(const sigset_t *before);

/* True while this thread is inside a device call of the shim, and always for its worker threads:
 * BLAS calls that they make are declined. */
extern CLB_THREAD bool clb_thread_inside;

/* Start a detached thread with all asynchronous signals blocked and the default floating-point
 * environment. CLB_ERR_NOMEM when the system can't create it. */
clb_status clb_thread_start(size_t stack, void *(*run)(void *), void *argument) CLB_MUST_CHECK;

/* ---- forks and locks (fork.c) ---- */

/* How many forks lie between the program's first process and this one. A forked child finds other
 * threads' locks held and their data half changed; who owns a lock, a thread or a count compares
 * this number with the one at which it was last used. */
extern _Atomic unsigned clb_process_generation;
static inline unsigned clb_generation(void)
{
    return atomic_load_explicit(&clb_process_generation, memory_order_relaxed);
}

/* A mutex that a forked child finds free, whichever thread of the parent held it. */
struct clb_mutex {
    pthread_mutex_t mutex;
    _Atomic unsigned generation; /* of the process that `mutex` was made for */
    unsigned last;               /* under the mutex: generation of the last process to lock it */
};
#define CLB_MUTEX_INITIALIZER              \
    {                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER \
    }
void clb_mutex_renew(struct clb_mutex *mutex); /* makes it anew in a forked child */

/* True the first time that a forked child locks it. What the mutex guards may be half changed. */
static inline bool clb_lock(struct clb_mutex *mutex)
{
    const unsigned now = clb_generation();
    if (CLB_UNLIKELY(atomic_load_explicit(&mutex->generation, memory_order_acquire) != now))
        clb_mutex_renew(mutex);
    pthread_mutex_lock(&mutex->mutex);
    const bool first = mutex->last != now;
    mutex->last = now;
    return first;
}
static inline void clb_unlock(struct clb_mutex *mutex)
{
    pthread_mutex_unlock(&mutex->mutex);
}

/* ---- worker threads (workers.c) ---- */

#define CLB_MAX_WORKERS 16

struct clb_workers {
    size_t count;                   /* threads in the team */
    size_t running;                 /* threads in a task; private to workers.c */
    size_t member[CLB_MAX_WORKERS]; /* private to workers.c */
};

/* Get at most `wanted` threads that no other call uses, without waiting. Unless `forced`, no more
 * than there are CPUs that this thread may use besides its own, and none inside an OpenMP parallel
 * region. */
void clb_workers_lend(struct clb_workers *team, size_t wanted, bool forced);
/* Run a task on member `index` < count, which must be idle. */
void clb_workers_start(struct clb_workers *team, size_t index, void (*task)(void *),
                       void *argument);
/* Wait until all tasks have ended, and return the threads for other calls. */
void clb_workers_return(struct clb_workers *team);

/* Call `work` for pieces of [0, count), of `share` each but the last, on this thread and on free
 * ones, at most `threads` in all; `thread` numbers them. */
void clb_workers_share(size_t count, size_t share, size_t threads,
                       void (*work)(void *context, size_t thread, size_t begin, size_t end),
                       void *context);

/* Copy `runs` pieces of `bytes` each, to_step and from_step bytes apart, with non-temporal stores:
 * for data that will not be read soon (copy.c). */
void clb_copy_nontemporal(void *to, size_t to_step, const void *from, size_t from_step,
                          size_t bytes, size_t runs);

/* ---- memory that the program may not have touched (prefault.c); best effort ---- */

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

/* The units of a matrix to fault in, none where pages seem to be there; where huge pages are
 * advised. `bytes` are a column's, which begin `step` bytes apart; `mode` is CLB_PARAM_FAULT. */
struct clb_prefault clb_prefault_begin(void *c, size_t bytes, size_t step, size_t columns,
                                       size_t mode);
/* The number of first units that have all pages of the columns before `end`. */
size_t clb_prefault_units(const struct clb_prefault *prefault, size_t end);
void clb_prefault_unit(const struct clb_prefault *prefault, size_t unit);

#endif
