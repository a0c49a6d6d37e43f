/* host: what happens once in a process, or outside of calls: the configuration's parser, files,
 * text, reports, the start of drivers, forks. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_PROCESS_H
#define CLB_PROCESS_H

#include "host.h"

/* ---- configuration (config.c) ---- */

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

/* One override of CLBLAS_SHIM_PARAMS: "gemm.kc=64". The texts are not terminated. */
struct clb_param_override {
    const char *key, *value;
    size_t key_length, value_length;
};
/* Take the next one off a list, which may be NULL. False at its end, and where it is damaged. */
bool clb_param_next(const char **list, struct clb_param_override *item);

/* Parse numbers independently of the locale. False unless all of [text, text+length) is valid. */
bool clb_parse_number(const char *text, size_t length, double *value);
bool clb_parse_bytes(const char *text, size_t length, double *value, bool *percent);

/* Called once, by clb_config_read: open the log file and set the level; name the trace's file. */
void clb_log_open(clb_log_level level, const char *file);
void clb_trace_open(const char *file);

/* ---- log, trace, time ---- */

/* Write one line to stderr, whatever the log level, and to an open log file: for invalid
 * configuration values and fatal errors. */
void clb_complain(const char *format, ...) CLB_PRINTF(1, 2);

/* Add a span of a device's queue, in seconds of the device's clock. `offset` is an estimate of
 * clb_now() minus that clock; the smallest of all is used. */
void clb_trace_command(long queue, const char *name, double begin, double end, double offset);

/* Seconds of CPU time that the process has used. */
static inline double clb_cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- files (file.c): files of the shim in the program's process ---- */

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

/* ---- text (text.c): locale-independent formatting into a growing buffer ---- */

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
/* Adds a file's name, in which %p stands for the process id. */
void clb_text_add_file(struct clb_text *text, const char *name);
/* Adds the shortest decimal that reads back as the same double, with a '.' in every locale. */
void clb_text_add_double(struct clb_text *text, double value);

/* ---- report_file.c: files that are written when the process ends ---- */

/* At the first intercepted call: note the working directory, for relative names, and the time. */
void clb_report_file_note(const char *name);
/* Write the text, a JSON object, to the file `name`, in which %p stands for the process id, or any
 * text to stderr (`-`). The time becomes the object's first member. A file of ours of an earlier
 * run is replaced; otherwise the process id is appended to the new file's name. A failure is
 * reported by one line that names the variable. */
void clb_report_file_write(const char *variable, const char *name, const struct clb_text *text);

/* ---- handlers of drivers (signals.c) ---- */

/* Called around each task in which a driver may install signal handlers (its start, builds), one
 * task at a time, and by any thread meanwhile. No such handler is left after it. */
void clb_signals_begin_task(void);
bool clb_signals_look(void); /* false: no task has begun, or it has ended */
void clb_signals_end_task(void);
/* In a process of the shim's own: signals are the driver's. */
void clb_signals_have_no_program(void);

/* ---- forks (fork.c) ---- */

/* Called before the first lock is taken: the generation counts forks from then on. */
void clb_fork_watch(void);
/* Returns false at once when it is locked; `first` is what clb_lock returns. */
bool clb_lock_try(struct clb_mutex *mutex, bool *first);

/* Called around code that may make the dynamic linker load libraries. Forks by other threads wait
 * meanwhile, for a limited time. May be nested; loading threads don't wait for each other. */
void clb_load_begin(void);
void clb_load_end(void);
/* Between these, a thread inside clb_load_begin and clb_load_end loads nothing, so that forks go
 * on; resume waits for their end. */
int clb_load_suspend(void);
void clb_load_resume(int suspended);

#endif
