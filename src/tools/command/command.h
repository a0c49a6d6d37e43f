/* command: the clblas-shim command. One file for each sub-command; commands.def lists them.
 * SPDX-License-Identifier: BSD-3-Clause
 * It opens no OpenCL driver but to measure (otherwise the helper process does that), and looks up
 * its files beside itself, in a build folder as well as installed. */
#ifndef CLB_COMMAND_H
#define CLB_COMMAND_H

#include "host/process.h"

#include <jansson.h>

/* Exit statuses; `run` and `doctor` have others besides. */
enum {
    CLB_EXIT_FAILED = 1,
    CLB_EXIT_USAGE = 64,
    CLB_EXIT_RUN = 125, /* run: this command failed, not the program */
    CLB_EXIT_NO_EXEC = 126,
    CLB_EXIT_NOT_FOUND = 127,
    CLB_EXIT_SIGNAL = 128
};

/* ---- options.c: options, messages, JSON ---- */

#define CLB_COMMAND(name, operands, summary, text) int clb_command_##name(int argc, char **argv);
#define CLB_OPTION(command, letter, name, argument, help)
#include "commands.def"

/* The sub-command whose options are read: its row in commands.def, -1: there is none. */
int clb_command_choose(const char *name);
/* Help for the chosen sub-command, or for the command. */
void clb_help_print(void);
/* What the process returns: the status, unless the output can't be written. */
int clb_end(int status);

/* Read the options; operands begin at argv[the result]. Options may stand behind operands, but not
 * behind the name of a program. -d sets CLBLAS_SHIM_DEVICE. Ends the process for --help and a wrong
 * option. */
int clb_options_read(int argc, char **argv);
/* The argument of an option, "" where it takes none; NULL: it was not given. */
const char *clb_option(char letter);

/* Write one line to stderr, with the command's name. Returns `status`. */
int clb_fail(int status, const char *format, ...) CLB_PRINTF(2, 3);

/* The sequence; "" unless the stream is a terminal. */
const char *clb_style(FILE *stream, const char *sequence);
#define CLB_BOLD   "\033[1m"
#define CLB_RED    "\033[31m"
#define CLB_GREEN  "\033[32m"
#define CLB_YELLOW "\033[33m"
#define CLB_PLAIN  "\033[0m"

/* On a terminal, a bar on stderr, `share` of it full, and a text. Cleared before other output. */
void clb_bar_draw(double share, const char *format, ...) CLB_PRINTF(2, 3);
void clb_bar_clear(void);

void clb_json_print(const json_t *result); /* on a line of its own */

/* Loops over elements and members. `break` is not allowed. */
#define CLB_EACH(element, array)                                                         \
    for (size_t element##_at = 0; element##_at < json_array_size(array); element##_at++) \
        for (json_t *element = json_array_get(array, element##_at); element != NULL; element = NULL)

#define CLB_EACH_MEMBER(key, value, object)                                                  \
    for (void *key##_at = json_object_iter((json_t *)(uintptr_t)(object)); key##_at != NULL; \
         key##_at = json_object_iter_next((json_t *)(uintptr_t)(object), key##_at))          \
        for (const char *key = json_object_iter_key(key##_at); key != NULL; key = NULL)      \
            for (json_t *value = json_object_iter_value(key##_at); value != NULL; value = NULL)

/* Members of an object; "", 0 or false: there is none. */
static inline const char *clb_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

static inline double clb_number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static inline bool clb_is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

/* ---- start.c: files of the installation, programs under the shim ---- */

/* Paths, kept until the process ends; NULL after a message. */
const char *clb_find_library(void);
const char *clb_find_helper(void);
const char *clb_find_ladder(void);

/* What the helper process lists (src/tools/helper/probe.c): `cache`, the folder or "", and its
 * `room`; `all`, the drivers together, and `drivers`, each one alone where that says more. Of each:
 * `library`, `death` (what the helper's child died of, or ""), `loaded`, `rank`, `devices` and the
 * `steps` of the one that is taken. NULL after a message. */
json_t *clb_ask_helper(void);

/* Have the helper do steps ("gemm:d,direct:d"); what it writes. NULL after a message. */
FILE *clb_helper_begin(const char *steps);

/* Add the library to LD_PRELOAD. */
void clb_preload(const char *library);

/* Run a program to its end; signals that other processes send to this one are passed on. Returns
 * its exit status as a shell has it. */
int clb_run_program(char **program);

/* Have a child process compute an answer, without LD_PRELOAD: libraries that it loads, and what it
 * does to its environment, leave no trace here. NULL: it has died. */
json_t *clb_ask_child(json_t *(*answer)(void *argument), void *argument);

/* A new folder for temporary files. NULL after a message. */
char *clb_make_folder(void);
/* Call `visit` with each file of a folder in the order of their names, and remove the folder. */
void clb_consume_folder(const char *folder, void (*visit)(const char *path, void *argument),
                        void *argument);

/* ---- elf.c: executables and shared libraries as files ---- */

typedef enum clb_elf_kind {
    CLB_ELF_NONE,    /* no such file: a script, something else, or it can't be read */
    CLB_ELF_FOREIGN, /* of another width */
    CLB_ELF_PROGRAM, /* has an interpreter, so the dynamic linker starts it */
    CLB_ELF_STATIC   /* has none: a static program, or a shared library */
} clb_elf_kind;

/* A file, and names as keys: of ours those that it defines and refers to, and the libraries that it
 * needs. Read once, and kept until the process ends. */
struct clb_elf {
    const char *path;
    clb_elf_kind kind;
    json_t *defines, *refers, *needs;
    struct clb_elf *next;
};
const struct clb_elf *clb_elf_read(const char *path);

/* Whether the shim exports this name. */
bool clb_name_is_ours(const char *name);

/* ---- bindings.c: which library each name is bound to ---- */

struct clb_bindings {
    bool linked;           /* the program is linked with the shim, and not preloaded */
    json_t *rows;          /* of {state, from, to, why, names}; owned by the caller */
    json_t *objects;       /* the paths of the files that were loaded, as keys; the same */
    size_t caught, missed; /* bindings of our names */
};

/* Add what LD_DEBUG=bindings,scopes wrote of one process. */
void clb_bindings_read(struct clb_bindings *bindings, const char *path);
/* A loaded file that defines names of ours and that no other is linked with; NULL: none. */
const char *clb_bindings_own_blas(const struct clb_bindings *bindings);

/* The name of a file without its folder; whether it is the shim's. */
const char *clb_base_name(const char *path);
bool clb_is_shim(const char *path);

/* ---- blas.c: the next BLAS ---- */

/* Its `library` ("": none), OpenBLAS's `config`, `core` and `threads`, the number of `cpus`,
 * whether it is `optimised`, its `flops` per second, and the seconds that calls must have saved
 * before the default mode starts the device beside it (`start`). `library` is its path, NULL: as
 * the shim finds it. NULL: it ended the process. */
json_t *clb_next_describe(const char *library);

/* ---- devices.c: what the helper lists, as the user should know it ---- */

/* The devices and broken drivers: an object with `devices`, each with `taken` and `why` it is not,
 * `cache` with its folder, its steps and which results are `outdated`, and `problem`: NULL or why
 * no device is taken. NULL after a message. */
json_t *clb_devices_list(void);
/* The same, NULL after a message also where no device is taken. */
json_t *clb_devices_ready(void);
const json_t *clb_devices_taken(const json_t *list);             /* NULL: none */
bool clb_devices_on_cpu(const json_t *list);                     /* whether that is a CPU */
size_t clb_devices_count(const json_t *list, const char *state); /* its steps in this state */
void clb_devices_print(FILE *stream, const json_t *list);

/* ---- report.c: sums of reports ---- */

/* Add the report in a file to a sum, at first an empty object. False after a message, with nothing
 * added: the file can't be read or is damaged. */
bool clb_report_add(json_t *sum, const char *path);
/* Whether a name is in a comma list, which is how a sum has several. */
bool clb_list_has(const char *list, const char *name);
void clb_report_print(FILE *stream, const json_t *sum);
/* The rows of all its routines added up. */
json_t *clb_report_total(const json_t *sum);

/* ---- plot.c: pictures of results, drawn by gnuplot ---- */

/* Whether a file's name is that of a picture; a message where it is not. */
bool clb_plot_name(const char *file);
/* Draw a picture by a function that writes gnuplot's script: it first calls clb_plot_begin or
 * clb_plot_bars, and writes texts by clb_plot_quote. False after a message. */
bool clb_plot_draw(const char *file, void (*write)(FILE *, const json_t *, const char *),
                   const json_t *result);
void clb_plot_begin(FILE *script, const char *file, size_t width, size_t height);
void clb_plot_quote(FILE *script, const char *text);
/* Horizontal bars of the data in $bars: number from 0, begin, end on the device, end, "name" and
 * "text" behind it. `settings` are commands for axes and key. */
void clb_plot_bars(FILE *script, const char *file, const char *title, const char *settings,
                   size_t count);

/* What --json has written: an object with the array `key`. NULL after a message. */
json_t *clb_result_load(const char *file, const char *key);

#endif
