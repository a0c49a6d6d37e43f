/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim doctor PROGRAM: the library that calls are bound to and what became of them. */
#include "doctor.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_NAMES     12 /* that a line lists */
#define MOST_LIBRARIES 4  /* next libraries that are described */

struct results {
    struct clb_bindings bindings;
    json_t *report;
    int status; /* of the program */
};

/* ---- its file ---- */

/* The file of a program, as execvp finds it; NULL: none. */
static char *find_program(const char *name)
{
    const char *folders = getenv("PATH");
    char path[PATH_MAX];
    if (strchr(name, '/') != NULL)
        return access(name, X_OK) == 0 ? strdup(name) : NULL;
    while (folders != NULL && *folders != '\0') {
        size_t length = strcspn(folders, ":");
        int used = snprintf(path, sizeof path, "%.*s/%s", (int)length, folders, name);
        if (used > 0 && (size_t)used < sizeof path && access(path, X_OK) == 0)
            return strdup(path);
        folders += length + (folders[length] == ':');
    }
    return NULL;
}

static void judge_file(const struct clb_elf *elf)
{
    const char *path = elf->path;
    struct stat info;
    if (stat(path, &info) == 0 && (((info.st_mode & S_ISUID) != 0 && info.st_uid != getuid()) ||
                                   ((info.st_mode & S_ISGID) != 0 && info.st_gid != getgid())))
        clb_find(CLB_FOUND_BROKEN,
                 "%s is set-uid or set-gid: nothing is preloaded into it, and the shim stays "
                 "off in it",
                 path);
    if (elf->kind == CLB_ELF_STATIC)
        clb_find(CLB_FOUND_BROKEN,
                 "%s is a static program, into which nothing can be preloaded%s; link it "
                 "dynamically: -lclblas_shim -lblas",
                 path, json_object_size(elf->defines) > 0 ? ", and has a BLAS of its own" : "");
    if (elf->kind == CLB_ELF_FOREIGN)
        clb_find(CLB_FOUND_BROKEN, "%s is a 32-bit program", path);
}

/* ---- its run ---- */

static void read_result(const char *path, void *argument)
{
    struct results *results = argument;
    if (strncmp(clb_base_name(path), "debug", 5) == 0)
        clb_bindings_read(&results->bindings, path);
    else
        (void)clb_report_add(results->report, path);
}

/* With reports and the dynamic linker's messages in a folder. False after a message. */
static bool run_program(char **program, struct results *results)
{
    const char *library = clb_find_library();
    char *folder = library != NULL ? clb_make_folder() : NULL;
    char path[PATH_MAX];
    if (folder == NULL)
        return false;
    if (!results->bindings.linked)
        clb_preload(library);
    snprintf(path, sizeof path, "%s/report.%%p", folder);
    setenv("CLBLAS_SHIM_STATS", path, 1);
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 0); /* what the program gets when all is compiled */
    snprintf(path, sizeof path, "%s/debug", folder);
    setenv("LD_DEBUG", "bindings,scopes", 1);
    setenv("LD_DEBUG_OUTPUT", path, 1);
    fflush(stdout);
    results->status = clb_run_program(program);
    unsetenv("LD_DEBUG");
    unsetenv("LD_DEBUG_OUTPUT");
    unsetenv("CLBLAS_SHIM_STATS");
    unsetenv("LD_PRELOAD");
    clb_consume_folder(folder, read_result, results);
    free(folder);
    if (results->status != 0)
        clb_find(CLB_FOUND_NOTE, "the program ended with status %d", results->status);
    return true;
}

/* ---- the next libraries ---- */

/* The libraries to which declined calls go: an array, of the next BLAS as the shim finds it where
 * the program has none. */
static json_t *describe_next(const struct results *results)
{
    json_t *found = json_array();
    CLB_EACH_MEMBER(path, unused, results->bindings.objects) {
        bool is_next = false;
        CLB_EACH_MEMBER(name, list, json_object_get(results->report, "next"))
            is_next = is_next || clb_list_has(json_string_value(list), clb_base_name(path));
        is_next = is_next && !clb_is_shim(path);
        json_auto_t *next =
            is_next && json_array_size(found) < MOST_LIBRARIES ? clb_next_describe(path) : NULL;
        if (*clb_text_of(next, "library") != '\0') /* otherwise it has LAPACK only */
            json_array_append(found, next);
    }
    json_t *next = json_array_size(found) == 0 ? clb_next_describe(NULL) : NULL;
    if (next != NULL)
        json_array_append_new(found, next);
    return found;
}

/* ---- bindings ---- */

static void judge_bindings(const struct results *results, const char *path)
{
    const struct clb_bindings *bindings = &results->bindings;
    const char *own;
    enum clb_found kind = bindings->caught > 0 ? CLB_FOUND_NOTE : CLB_FOUND_BROKEN;
    CLB_EACH(row, bindings->rows) {
        const char *name = json_object_iter_key(json_object_iter(json_object_get(row, "names")));
        if (strcmp(clb_text_of(row, "state"), "missed") == 0)
            clb_find(kind, "%s of %s goes to %s: %s", name, clb_text_of(row, "from"),
                     clb_text_of(row, "to"), clb_text_of(row, "why"));
    }
    if (json_object_size(results->report) > 0 || bindings->missed > 0)
        return;
    if (bindings->caught > 0)
        clb_find(CLB_FOUND_UNUSED, "%s made no call of a routine that the shim has", path);
    else if (json_object_size(bindings->objects) == 0)
        clb_find(CLB_FOUND_BROKEN,
                 "the dynamic linker said nothing of %s: it is static, set-uid, or not for glibc",
                 path);
    else if ((own = clb_bindings_own_blas(bindings)) != NULL)
        clb_find(CLB_FOUND_BROKEN,
                 "%s has a BLAS of its own inside, and calls it directly; build it with a shared "
                 "BLAS",
                 own);
    else
        clb_find(CLB_FOUND_UNUSED, "%s %s BLAS or LAPACK routine that the shim has", path,
                 results->status == 0 ? "calls no" : "ended with an error before it called a");
}

/* Of names that reach the shim, those that were called. */
static void print_names(const json_t *row, const json_t *report)
{
    json_t *names = json_object_get(row, "names");
    const json_t *called = strcmp(clb_text_of(row, "state"), "caught") == 0
                               ? json_object_get(report, "routines")
                               : NULL;
    size_t printed = 0;
    clb_say("   ");
    CLB_EACH_MEMBER(name, unused, names) {
        if (called != NULL ? json_object_get(called, name) != NULL : printed < MOST_NAMES) {
            clb_say(" %s", name);
            printed++;
        }
    }
    if (printed < json_object_size(names))
        clb_say("%s%zu %s", printed > 0 ? " and " : " ", json_object_size(names) - printed,
                called != NULL ? "that were not called" : "more");
    clb_say("\n");
}

static void print_bindings(const struct results *results)
{
    const json_t *rows = results->bindings.rows;
    clb_say("\n%sBLAS and LAPACK names by library%s\n", clb_style(stdout, CLB_BOLD),
            clb_style(stdout, CLB_PLAIN));
    CLB_EACH(row, rows) {
        bool caught = strcmp(clb_text_of(row, "state"), "caught") == 0;
        clb_say("  %s%s%s: %s -> %s", clb_style(stdout, caught ? CLB_GREEN : CLB_YELLOW),
                clb_text_of(row, "state"), clb_style(stdout, CLB_PLAIN),
                clb_base_name(clb_text_of(row, "from")), clb_base_name(clb_text_of(row, "to")));
        clb_say("%s%s\n", caught ? "" : ": ", clb_text_of(row, "why"));
        print_names(row, results->report);
    }
    if (json_array_size(rows) == 0)
        clb_say("  none\n");
}

/* ---- what became of its calls ---- */

/* The rows of all routines added up, the sums of products that ran on the device, and the `reason`
 * for which most calls were declined. */
static json_t *sum_report(const json_t *report)
{
    json_t *all = clb_report_total(report);
    double flops = 0, seconds = 0, most = 0;
    CLB_EACH_MEMBER(name, row, json_object_get(report, "routines")) {
        const bool product = strstr(name, "gemm") != NULL;
        flops += product ? clb_number_of(row, "flops_device") : 0;
        seconds += product ? clb_number_of(row, "seconds_device") : 0;
    }
    json_object_set_new(all, "product_flops", json_real(flops));
    json_object_set_new(all, "product_seconds", json_real(seconds));
    CLB_EACH_MEMBER(name, count, json_object_get(all, "declined")) {
        if (json_number_value(count) > most && strcmp(name, "query") != 0 &&
            strcmp(name, "quick") != 0) {
            most = json_number_value(count);
            json_object_set_new(all, "reason", json_string(name));
        }
    }
    return all;
}

/* Whether the program has waited for the compilation of kernels. */
static bool has_compiled(const json_t *before)
{
    json_auto_t *after = clb_devices_list();
    return after != NULL &&
           clb_devices_count(after, "passed") > clb_devices_count(before, "passed");
}

/* What the environment sets that sends calls elsewhere than the default mode; NULL: nothing. */
static const char *find_setting(void)
{
    const char *mode = getenv("CLBLAS_SHIM");
    for (char **variable = environ; *variable != NULL; variable++) {
        if (strncmp(*variable, "CLBLAS_SHIM_THRESHOLD", 21) == 0)
            return *variable;
    }
    return mode != NULL && *mode != '\0' && strcmp(mode, "auto") != 0
               ? mode - strlen("CLBLAS_SHIM=")
               : NULL;
}

/* Seconds that the calls on the device save: as predicted, or by the rate of the next BLAS. */
static double estimate_saved(const json_t *all, const json_t *next)
{
    const double rate = clb_number_of(next, "flops");
    if (clb_number_of(all, "predicted") > 0)
        return clb_number_of(all, "predicted_next") - clb_number_of(all, "predicted_device");
    return rate > 0
               ? clb_number_of(all, "flops_device") / rate - clb_number_of(all, "seconds_device")
               : 0;
}

/* The verdict of a program that works: which mode it is of, and what the default mode would do. */
static void say_works(const json_t *all, const json_t *next, double saved)
{
    const char *setting = find_setting();
    const double seconds = clb_number_of(all, "seconds_device");
    char mode[256];
    if (setting != NULL)
        snprintf(mode, sizeof mode,
                 "with %s; without it only calls that are expected to gain run there", setting);
    else
        snprintf(mode, sizeof mode,
                 "the device was started at once; by default it is started when calls have "
                 "saved %.2f s, and these save about %.2f s",
                 clb_number_of(next, "start"), saved);
    clb_find_works(
        "%.0f of %.0f calls ran on the device, at %.1f GFLOP/s; the next BLAS does %.1f (%s)",
        clb_number_of(all, "device"), clb_number_of(all, "calls"),
        seconds > 0 ? 1e-9 * clb_number_of(all, "flops_device") / seconds : 0,
        1e-9 * clb_number_of(next, "flops"), mode);
}

static void judge_report(const struct results *results, const json_t *next, const json_t *devices)
{
    json_auto_t *all = sum_report(results->report);
    const double rate = clb_number_of(next, "flops"), start = clb_number_of(next, "start"),
                 saved = estimate_saved(all, next), device = clb_number_of(all, "device"),
                 flops = clb_number_of(all, "product_flops"),
                 seconds = clb_number_of(all, "product_seconds");
    const bool same_cpu = clb_devices_on_cpu(devices) && clb_is_true(next, "optimised"),
               slow = seconds > 0 && flops < 0.9 * rate * seconds;
    say_works(all, next, saved);
    if (device == 0)
        clb_find(CLB_FOUND_NO_GAIN,
                 "no call ran on the device%s: most were declined as \"%s\" (docs/report.md "
                 "explains the reasons)",
                 same_cpu ? ", which is the same CPU as the next BLAS" : "",
                 clb_text_of(all, "reason"));
    else if (slow && has_compiled(devices))
        clb_find(CLB_FOUND_NOTE,
                 "kernels were compiled in this run, so that its times tell nothing: once more");
    else if (slow && same_cpu)
        clb_find(CLB_FOUND_NO_GAIN, "the device and the next BLAS are the same CPU");
    else if (find_setting() == NULL && saved < start)
        clb_find(CLB_FOUND_NO_GAIN,
                 "by default none of its calls would run on the device: they save about %.2f s, "
                 "and a start takes %.2f s (%.0f of %.0f ran there now, because doctor starts the "
                 "device at once)",
                 fmax(saved, 0), start, device, clb_number_of(all, "calls"));
    else if (slow)
        clb_find(CLB_FOUND_NO_GAIN,
                 "the device did %.1f GFLOP/s in products of this program, and the next BLAS does "
                 "%.1f: the calls are small, or the device is slow",
                 1e-9 * flops / seconds, 1e-9 * rate);
}

/* ---- all of it ---- */

int clb_doctor_program(char **program, const json_t *devices, json_t *result)
{
    struct results results = {.bindings = {.rows = json_array(), .objects = json_object()},
                              .report = json_object()};
    char *path = find_program(program[0]);
    if (path == NULL)
        return clb_fail(CLB_EXIT_NOT_FOUND, "%s: there is no such program", program[0]);
    judge_file(clb_elf_read(path));
    CLB_EACH_MEMBER(needed, unused, clb_elf_read(path)->needs)
        results.bindings.linked |= strncmp(needed, "libclblas_shim.so", 17) == 0;
    if (!run_program(program, &results))
        return CLB_EXIT_FAILED;
    json_t *list = describe_next(&results);
    json_t *best = json_array_get(list, 0); /* the fastest */
    CLB_EACH(next, list) {
        clb_doctor_next(next, devices, true);
        best = clb_number_of(next, "flops") > clb_number_of(best, "flops") ? next : best;
    }
    judge_bindings(&results, path);
    if (json_object_size(results.report) > 0)
        judge_report(&results, best, devices);
    print_bindings(&results);
    if (clb_option('j') == NULL && json_object_size(results.report) > 0) {
        printf("\n");
        clb_report_print(stdout, results.report);
    }
    json_object_set(result, "next", best != NULL ? best : json_null());
    json_object_set_new(result, "next_libraries", list);
    json_object_set_new(result, "bindings", results.bindings.rows);
    json_object_set_new(result, "report", results.report);
    json_decref(results.bindings.objects);
    free(path);
    return 0;
}
