/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim doctor: whether the shim works here, for a program or a process, and why not. */
#include "doctor.h"
#include "engine/ocl/store.h"

#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static json_t *findings;
static char works[512];

void clb_find(enum clb_found kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    json_array_append_new(findings, json_pack("{s:i,s:o}", "kind", (int)kind, "text",
                                              json_vsprintf(format, arguments)));
    va_end(arguments);
}

void clb_find_works(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(works, sizeof works, format, arguments);
    va_end(arguments);
}

void clb_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (clb_option('j') == NULL)
        vprintf(format, arguments);
    va_end(arguments);
}

/* ---- devices and the next BLAS ---- */

static void judge_devices(const json_t *list)
{
    const char *problem = clb_text_of(list, "problem");
    const json_t *cache = json_object_get(list, "cache"), *taken = clb_devices_taken(list);
    CLB_EACH(device, json_object_get(list, "devices")) {
        if (clb_number_of(device, "memory") == 0 && *problem == '\0')
            clb_find(CLB_FOUND_NOTE, "%s: %s", clb_text_of(device, "platform"),
                     clb_text_of(device, "why"));
    }
    if (*problem != '\0')
        clb_find(CLB_FOUND_BROKEN, "%s", problem);
    if (taken != NULL)
        clb_find_works("large calls run on %s", clb_text_of(taken, "name"));
    if (taken != NULL && !clb_is_true(taken, "fp64"))
        clb_find(CLB_FOUND_NO_GAIN, "in double precision, which the device %s does not have",
                 clb_text_of(taken, "name"));
    if (*clb_text_of(cache, "folder") == '\0')
        clb_find(CLB_FOUND_NO_GAIN,
                 "there is no cache that can be written (CLBLAS_SHIM_CACHE_DIR), so that every "
                 "process compiles the kernels anew");
    else if (!clb_is_true(cache, "room"))
        clb_find(CLB_FOUND_NO_GAIN,
                 "the disk of the cache %s is full, so that kernels can't be compiled or kept",
                 clb_text_of(cache, "folder"));
}

/* In a child, which a driver may harm: the rates of the link to the device's memory. */
static json_t *answer_link(void *unused)
{
    struct clb_measure measure;
    (void)unused;
    return clb_measure_start(&measure, CLB_S) ? clb_measure_link(&measure) : NULL;
}

/* The next libraries with a profile for the device, by the keys of route/profile.c. */
static json_t *list_profiles(const char *folder, const char *device)
{
    json_t *libraries = json_array();
    DIR *files = *folder != '\0' ? opendir(folder) : NULL;
    const struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        char path[PATH_MAX], owner[256], next[256];
        const char *ending = strrchr(entry->d_name, '.');
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = ending != NULL && strcmp(ending, ".profile") == 0 ? fopen(path, "re") : NULL;
        if (file == NULL)
            continue;
        if (fseek(file, CLB_RECORD_HEADER, SEEK_SET) == 0 &&
            fscanf(file, "%*[^\n]\ndevice: %255[^\n]\nnext: %255[^\n]", owner, next) == 2 &&
            strncmp(owner, device, strlen(device)) == 0)
            json_array_append_new(libraries, json_string(next));
        fclose(file);
    }
    if (files != NULL)
        closedir(files);
    return libraries;
}

static void add_state(json_t *devices)
{
    const json_t *taken = clb_devices_taken(devices);
    if (taken == NULL)
        return;
    const bool unified = clb_is_true(taken, "unified");
    json_t *link = unified ? NULL : clb_ask_child(answer_link, NULL);
    json_t *profiles = list_profiles(clb_text_of(json_object_get(devices, "cache"), "folder"),
                                     clb_text_of(taken, "name"));
    if (unified)
        clb_say("Transfers: none, the device computes in the host's memory.\n");
    else if (link == NULL)
        clb_say("Transfers: not measured.\n");
    else
        clb_say("Transfers: %.1f GB/s to the device, %.1f GB/s back (pinned memory).\n",
                1e-9 * clb_number_of(link, "up"), 1e-9 * clb_number_of(link, "down"));
    if (json_array_size(profiles) == 0)
        clb_say("Profile: none, times of calls are estimated; clblas-shim tune measures them.\n");
    CLB_EACH(next, profiles)
        clb_say("Profile: times of calls have been measured beside %s.\n", json_string_value(next));
    json_object_set_new(devices, "link", link != NULL ? link : json_object());
    json_object_set_new(devices, "profiles", profiles);
}

/* OpenBLAS's kernels for CPUs that it does not know, or without AVX2. */
static bool is_generic(const char *core)
{
    static const char *const names[] = {
        "Prescott",  "Core2",  "Penryn",  "Dunnington", "Nehalem", "Katmai", "Coppermine",
        "Northwood", "Banias", "Opteron", "Barcelona",  "Generic", "Atom",   "Athlon"};
    for (size_t i = 0; i < CLB_COUNT_OF(names); i++) {
        if (strcasecmp(core, names[i]) == 0)
            return true;
    }
    return false;
}

static const char *better_core(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f") ? "SkylakeX"
           : __builtin_cpu_supports("avx2")  ? "Haswell"
                                             : NULL;
#else
    return NULL;
#endif
}

static void judge_next(const json_t *next, bool of_program, bool on_cpu)
{
    const char *library = clb_text_of(next, "library"), *core = clb_text_of(next, "core");
    double rate = 1e-9 * clb_number_of(next, "flops");
    int threads = (int)clb_number_of(next, "threads"), cpus = (int)clb_number_of(next, "cpus");
    bool fast = clb_is_true(next, "optimised");
    if (!fast)
        clb_find(
            CLB_FOUND_NOTE,
            "the next BLAS, %s, is the reference or another slow one (%.1f GFLOP/s): what does not "
            "run on the device gains by an optimised one (in Debian libopenblas0-pthread)",
            library, rate);
    if (fast && is_generic(core) && better_core() != NULL)
        clb_find(CLB_FOUND_NOTE,
                 "OpenBLAS does not know this CPU and computes by kernels for %s: "
                 "OPENBLAS_CORETYPE=%s, or a newer OpenBLAS",
                 core, better_core());
    if (fast && threads > 0 && threads < cpus)
        clb_find(CLB_FOUND_NOTE,
                 "OpenBLAS computes with %d thread%s on %d CPUs (OPENBLAS_NUM_THREADS, %s)",
                 threads, threads == 1 ? "" : "s", cpus, "OMP_NUM_THREADS or its build say so");
    if (fast && !of_program && on_cpu)
        clb_find(CLB_FOUND_NO_GAIN, "the only device is the CPU, for which %s is about as fast",
                 library);
}

void clb_doctor_next(const json_t *next, const json_t *devices, bool of_program)
{
    const char *library = clb_text_of(next, "library"), *config = clb_text_of(next, "config");
    if (*library == '\0') {
        if (!of_program)
            clb_find(CLB_FOUND_NOTE,
                     "no next BLAS was found (libblas.so.3): programs bring theirs, or %s",
                     "CLBLAS_SHIM_NEXT names one");
        clb_say("\nNext BLAS: none was found.\n");
        return;
    }
    judge_next(next, of_program, clb_devices_on_cpu(devices));
    clb_say("\nNext BLAS: %s%s%s\n  %.1f GFLOP/s (dgemm, n = 512)", library,
            *config != '\0' ? ": " : "", config, 1e-9 * clb_number_of(next, "flops"));
    if (clb_number_of(next, "threads") > 0)
        clb_say(", %.0f threads on %.0f CPUs, kernels for %s", clb_number_of(next, "threads"),
                clb_number_of(next, "cpus"), clb_text_of(next, "core"));
    clb_say("\n");
}

/* ---- the verdict ---- */

static const struct {
    int status;
    const char *verdict, *colour;
} kinds[CLB_FOUND_KINDS] = {
    [CLB_FOUND_NOTE] = {0, "works: ", CLB_GREEN},
    [CLB_FOUND_UNUSED] = {1, "is not used because ", CLB_YELLOW},
    [CLB_FOUND_NO_GAIN] = {1, "works but gains nothing because ", CLB_YELLOW},
    [CLB_FOUND_BROKEN] = {2, "does not work because ", CLB_RED},
};

/* Print findings, and the verdict as the last line. */
static int conclude(json_t *result)
{
    enum clb_found kind = CLB_FOUND_NOTE;
    const char *text = works; /* or the first of the worst findings */
    CLB_EACH(finding, findings) {
        const enum clb_found found = (enum clb_found)clb_number_of(finding, "kind");
        text = found > kind ? clb_text_of(finding, "text") : text;
        kind = found > kind ? found : kind;
    }
    CLB_EACH(finding, findings) {
        if (clb_text_of(finding, "text") != text)
            clb_say("%s%s\n", finding_at == 0 ? "\n* " : "* ", clb_text_of(finding, "text"));
        json_object_set_new(finding, "severity",
                            json_integer(kinds[(int)clb_number_of(finding, "kind")].status));
        json_object_del(finding, "kind");
    }
    json_object_set_new(result, "verdict", json_sprintf("%s%s", kinds[kind].verdict, text));
    json_object_set_new(result, "findings", findings);
    json_object_set_new(result, "status", json_integer(kinds[kind].status));
    clb_say("\n%s%s%s\n", clb_style(stdout, kinds[kind].colour), clb_text_of(result, "verdict"),
            clb_style(stdout, CLB_PLAIN));
    if (clb_option('j') != NULL)
        clb_json_print(result);
    json_decref(result);
    return kinds[kind].status;
}

/* ---- the command ---- */

static int examine(char **program)
{
    json_t *devices = clb_devices_list();
    int status = 0;
    if (devices == NULL)
        return CLB_EXIT_FAILED;
    json_t *result = json_pack("{s:o}", "devices", devices);
    judge_devices(devices);
    if (clb_option('j') == NULL)
        clb_devices_print(stdout, devices);
    add_state(devices);
    if (*program != NULL) {
        status = clb_doctor_program(program, devices, result);
    } else {
        json_t *next = clb_next_describe(NULL);
        clb_doctor_next(next, devices, false);
        json_object_set_new(result, "next", next != NULL ? next : json_null());
    }
    return status != 0 ? status : conclude(result);
}

int clb_command_doctor(int argc, char **argv)
{
    char *end = NULL, **program = argv + clb_options_read(argc, argv);
    const char *pid = clb_option('p');
    findings = json_array();
    if (pid == NULL)
        return examine(program);
    long number = strtol(pid, &end, 10);
    if (*end != '\0' || number <= 0)
        return clb_fail(CLB_EXIT_USAGE, "--pid %s is no process id", pid);
    if (*program != NULL)
        return clb_fail(CLB_EXIT_USAGE, "--pid and a program exclude each other");
    clb_doctor_process(number);
    return conclude(json_object());
}
