/* clblas-shim doctor: whether the shim works here, for a program or a running process, and if not,
 * why. Everything it finds is a finding with a severity; the verdict is the worst one. */
#include "measure.h"

#include <dirent.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <link.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Also the exit statuses. NOTE: worth saying, and the shim works. */
enum severity { NOTE, NO_GAIN, BROKEN };

static json_t *findings;
static char works[256]; /* what is said where it works */

static void find(enum severity severity, const char *format, ...) CLB_PRINTF(2, 3);
static void find(enum severity severity, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    json_array_append_new(findings, json_pack("{s:i,s:o}", "severity", (int)severity, "text",
                                              json_vsprintf(format, arguments)));
    va_end(arguments);
}

/* ---- devices and the next BLAS --------------------------------------------------------------- */

static const json_t *find_taken(const json_t *devices)
{
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(devices, "devices"), i, device)
    {
        if (json_is_true(json_object_get(device, "taken")))
            return device;
    }
    return NULL;
}

static void judge_devices(const json_t *list)
{
    const char *problem = clb_text_of(list, "problem");
    const json_t *cache = json_object_get(list, "cache"), *taken = find_taken(list);
    size_t i;
    json_t *device;
    json_array_foreach(json_object_get(list, "devices"), i, device)
    {
        if (clb_number_of(device, "memory") == 0 && *problem == '\0')
            find(NOTE, "%s: %s", clb_text_of(device, "platform"), clb_text_of(device, "why"));
    }
    if (*problem != '\0')
        find(BROKEN, "%s", problem);
    if (taken != NULL)
        snprintf(works, sizeof works, ": large calls run on %s", clb_text_of(taken, "name"));
    if (taken != NULL && !json_is_true(json_object_get(taken, "fp64")))
        find(NO_GAIN, "in double precision, which the device %s does not have",
             clb_text_of(taken, "name"));
    if (*clb_text_of(cache, "folder") == '\0')
        find(NO_GAIN,
             "there is no cache that can be written (CLBLAS_SHIM_CACHE_DIR), so that every "
             "process compiles the kernels anew");
    else if (!json_is_true(json_object_get(cache, "room")))
        find(NO_GAIN, "the disk of the cache %s is full, so that kernels can't be compiled or kept",
             clb_text_of(cache, "folder"));
}

/* The rates of the link to the device's memory, of all of them; an empty object: unknown, or the
 * device uses the host's memory. The child is what a driver may harm. */
static json_t *answer_link(void *unused)
{
    struct clb_measure measure;
    struct clb_link link;
    (void)unused;
    if (!clb_measure_start(&measure, CLB_S) || !clb_measure_link(&measure, &link) ||
        !isfinite(link.up))
        return json_object();
    return json_pack("{s:f,s:f}", "up", link.up, "down", link.down);
}

/* The next libraries of which there is a profile for the device; first lines of the files of
 * route/profile.c. */
static json_t *list_profiles(const char *folder, const char *device)
{
    json_t *next = json_array();
    DIR *files = *folder != '\0' ? opendir(folder) : NULL;
    const struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        char path[PATH_MAX], line[3][256] = {"", "", ""};
        const char *ending = strrchr(entry->d_name, '.');
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *file = ending != NULL && strcmp(ending, ".profile") == 0 && length > 0 &&
                             (size_t)length < sizeof path
                         ? fopen(path, "re")
                         : NULL;
        for (int i = 0; i < 3 && file != NULL && fgets(line[i], sizeof line[i], file) != NULL; i++)
            line[i][strcspn(line[i], "\n")] = '\0';
        if (file != NULL)
            fclose(file);
        if (strncmp(line[1], "device: ", 8) == 0 && strncmp(line[2], "next: ", 6) == 0 &&
            strncmp(line[1] + 8, device, strlen(device)) == 0)
            json_array_append_new(next, json_string(line[2] + 6));
    }
    if (files != NULL)
        closedir(files);
    return next;
}

/* Link and profiles of the device that is taken. */
static void add_state(json_t *devices, bool as_json)
{
    const json_t *taken = find_taken(devices);
    if (taken == NULL)
        return;
    json_t *link = json_is_true(json_object_get(taken, "unified"))
                       ? json_object()
                       : clb_ask_child(answer_link, NULL);
    json_t *profiles = list_profiles(clb_text_of(json_object_get(devices, "cache"), "folder"),
                                     clb_text_of(taken, "name")),
           *next;
    size_t i;
    json_object_set_new(devices, "link", link != NULL ? link : json_object());
    json_object_set_new(devices, "profiles", profiles);
    if (as_json)
        return;
    if (json_is_true(json_object_get(taken, "unified")))
        printf("Link: none, the device uses the host's memory.\n");
    else if (json_object_size(link) == 0)
        printf("Link: not measured.\n");
    else
        printf("Link: %.1f GB/s up, %.1f GB/s down (pinned memory).\n",
               1e-9 * clb_number_of(link, "up"), 1e-9 * clb_number_of(link, "down"));
    if (json_array_size(profiles) == 0)
        printf("Profile: none; clblas-shim tune measures one.\n");
    json_array_foreach(profiles, i, next) printf("Profile: for %s.\n", json_string_value(next));
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

static void judge_next(const json_t *next, const json_t *taken, bool of_program)
{
    const char *library = clb_text_of(next, "library"), *core = clb_text_of(next, "core");
    double rate = 1e-9 * clb_number_of(next, "flops");
    int threads = (int)clb_number_of(next, "threads"), cpus = (int)clb_number_of(next, "cpus");
    bool fast = json_is_true(json_object_get(next, "optimised"));
    if (next == NULL || *library == '\0') {
        if (!of_program)
            find(NOTE, "no next BLAS was found (libblas.so.3): programs bring theirs, or %s",
                 "CLBLAS_SHIM_NEXT names one");
        return;
    }
    if (!fast)
        find(
            NOTE,
            "the next BLAS, %s, is the reference or another slow one (%.1f GFLOP/s): what does not "
            "run on the device gains by an optimised one (in Debian libopenblas0-pthread)",
            library, rate);
    if (fast && is_generic(core) && better_core() != NULL)
        find(NOTE,
             "OpenBLAS does not know this CPU and computes by kernels for %s: "
             "OPENBLAS_CORETYPE=%s, or a newer OpenBLAS",
             core, better_core());
    if (fast && threads > 0 && threads < cpus)
        find(NOTE, "OpenBLAS computes with %d thread%s on %d CPUs (OPENBLAS_NUM_THREADS, %s)",
             threads, threads == 1 ? "" : "s", cpus, "OMP_NUM_THREADS or its build say so");
    if (fast && !of_program && taken != NULL && strcmp(clb_text_of(taken, "type"), "CPU") == 0)
        find(NO_GAIN, "the only device is the CPU, for which %s is about as fast", library);
}

static void print_next(const json_t *next)
{
    if (next == NULL || *clb_text_of(next, "library") == '\0') {
        printf("\nNext BLAS: none was found.\n");
        return;
    }
    printf("\nNext BLAS: %s", clb_text_of(next, "library"));
    if (*clb_text_of(next, "config") != '\0')
        printf(": %s", clb_text_of(next, "config"));
    printf("\n  %.1f GFLOP/s (dgemm, n = 512)", 1e-9 * clb_number_of(next, "flops"));
    if (clb_number_of(next, "threads") > 0)
        printf(", %.0f threads on %.0f CPUs, kernels for %s", clb_number_of(next, "threads"),
               clb_number_of(next, "cpus"), clb_text_of(next, "core"));
    printf("\n");
}

/* ---- a program ------------------------------------------------------------------------------- */

/* The file of a program, found as execvp does; NULL: none. */
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

struct contents {
    size_t ours;
    bool needs_shim;
};

static void note_contents(const char *name, clb_elf_relation relation, void *argument)
{
    struct contents *contents = argument;
    contents->ours +=
        relation == CLB_ELF_DEFINES && clb_name_classify(name) == CLB_NAME_OURS ? 1 : 0;
    contents->needs_shim = contents->needs_shim || (relation == CLB_ELF_NEEDS &&
                                                    strncmp(name, "libclblas_shim.so", 17) == 0);
}

/* What the program's file says before it runs. */
static struct contents judge_file(const char *path)
{
    struct contents contents = {0};
    struct stat info;
    clb_elf_kind kind = clb_elf_read(path, note_contents, &contents);
    if (stat(path, &info) == 0 && (((info.st_mode & S_ISUID) != 0 && info.st_uid != getuid()) ||
                                   ((info.st_mode & S_ISGID) != 0 && info.st_gid != getgid())))
        find(BROKEN,
             "%s is set-uid or set-gid: nothing is preloaded into it, and the shim stays "
             "off in it",
             path);
    if (kind == CLB_ELF_STATIC)
        find(BROKEN, "%s is a static program, into which nothing can be preloaded%s; %s", path,
             contents.ours > 0 ? ", and has a BLAS of its own" : "",
             "link it dynamically: -lclblas_shim -lblas");
    if (kind == CLB_ELF_FOREIGN)
        find(BROKEN, "%s is a 32-bit program", path);
    return contents;
}

struct results {
    struct clb_bindings bindings;
    json_t *report;
};

static void read_result(const char *path, void *argument)
{
    struct results *results = argument;
    if (strncmp(clb_base_name(path), "debug", 5) == 0)
        clb_bindings_read(&results->bindings, path);
    else
        (void)clb_report_add(results->report, path);
}

/* Run the program under the shim, with reports and the dynamic linker's messages in a folder.
 * False after a message. */
static bool run_program(char **program, struct results *results)
{
    const char *library = clb_find_library();
    char *folder = library != NULL ? clb_make_folder() : NULL;
    char path[PATH_MAX];
    if (folder == NULL)
        return false;
    if (!results->bindings.linked)
        clb_preload(library, NULL);
    snprintf(path, sizeof path, "%s/report.%%p", folder);
    setenv("CLBLAS_SHIM_STATS", path, 1);
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 0); /* what the program gets when all is compiled */
    snprintf(path, sizeof path, "%s/debug", folder);
    setenv("LD_DEBUG", "bindings,scopes", 1);
    setenv("LD_DEBUG_OUTPUT", path, 1);
    fflush(stdout);
    int status = clb_run_program(program);
    unsetenv("LD_DEBUG");
    unsetenv("LD_DEBUG_OUTPUT");
    unsetenv("CLBLAS_SHIM_STATS");
    unsetenv("LD_PRELOAD");
    clb_consume_folder(folder, read_result, results);
    free(folder);
    if (status != 0)
        find(NOTE, "the program ended with status %d", status);
    return true;
}

/* The path of the library to which most that is declined goes. */
static const char *find_next(const struct results *results)
{
    const char *name, *path, *found = NULL;
    json_t *value;
    json_object_foreach(json_object_get(results->report, "next"), name, value)
    {
        json_object_foreach(results->bindings.objects, path, value)
        {
            if (strcmp(clb_base_name(path),
                       clb_text_of(json_object_get(results->report, "next"), name)) == 0)
                found = path;
        }
    }
    return found;
}

static void judge_bindings(const struct results *results, const char *path)
{
    const struct clb_bindings *bindings = &results->bindings;
    const char *own;
    enum severity severity = bindings->caught > 0 ? NOTE : BROKEN;
    size_t i;
    json_t *row;
    json_array_foreach(bindings->rows, i, row)
    {
        const char *name = json_object_iter_key(json_object_iter(json_object_get(row, "names")));
        if (strcmp(clb_text_of(row, "state"), "missed") == 0)
            find(severity, "%s of %s goes to %s: %s", name, clb_text_of(row, "from"),
                 clb_text_of(row, "to"), clb_text_of(row, "why"));
    }
    if (json_object_size(results->report) > 0 || bindings->caught > 0 || bindings->missed > 0)
        return;
    if (json_object_size(bindings->objects) == 0)
        find(BROKEN,
             "the dynamic linker said nothing of %s: it is static, set-uid, or not for glibc",
             path);
    else if ((own = clb_bindings_own_blas(bindings)) != NULL)
        find(BROKEN, "%s has a BLAS of its own inside, and calls it directly; %s", own,
             "build it with a shared BLAS");
    else
        find(NO_GAIN, "%s calls no BLAS or LAPACK routine that the shim has", path);
}

/* The reason for which most calls were declined. */
static const char *main_reason(const json_t *report)
{
    const char *name, *reason, *most = "";
    json_int_t count = 0;
    json_t *row, *value, *sum = json_object();
    json_object_foreach(json_object_get(report, "routines"), name, row)
    {
        json_object_foreach(json_object_get(row, "declined"), reason, value)
        {
            json_int_t all =
                json_integer_value(json_object_get(sum, reason)) + json_integer_value(value);
            json_object_set_new(sum, reason, json_integer(all));
            if (all > count && strcmp(reason, "query") != 0 && strcmp(reason, "quick") != 0) {
                count = all;
                most = reason;
            }
        }
    }
    json_decref(sum);
    return most;
}

/* How many sets of kernels are compiled. */
static size_t count_ready(const json_t *devices)
{
    const char *name;
    json_t *state;
    size_t count = 0;
    json_object_foreach(json_object_get(json_object_get(devices, "cache"), "steps"), name, state)
        count += strcmp(json_string_value(state), "passed") == 0;
    return count;
}

/* True when the program has waited for the compilation of kernels. */
static bool has_compiled(const json_t *before)
{
    json_t *after = clb_devices_list();
    bool more = after != NULL && count_ready(after) > count_ready(before);
    json_decref(after);
    return more;
}

static void judge_report(const struct results *results, const json_t *next, const json_t *devices)
{
    const char *name;
    double calls = 0, device = 0, flops = 0, seconds = 0, rate = clb_number_of(next, "flops");
    json_t *row;
    if (json_object_size(results->report) == 0) {
        if (results->bindings.caught > 0)
            find(NO_GAIN, "the program is bound to the shim, but made no call that it counted");
        return;
    }
    json_object_foreach(json_object_get(results->report, "routines"), name, row)
    {
        calls += clb_number_of(row, "calls");
        device += clb_number_of(row, "device");
        flops += clb_number_of(row, "flops_device");
        seconds += clb_number_of(row, "seconds_device");
    }
    snprintf(works, sizeof works,
             ": %.0f of %.0f calls ran on the device, at %.1f GFLOP/s; the next BLAS does %.1f",
             device, calls, seconds > 0 ? 1e-9 * flops / seconds : 0, 1e-9 * rate);
    if (device == 0)
        find(NO_GAIN, "no call ran on the device: most were declined as \"%s\" (%s)",
             main_reason(results->report), "docs/report.md explains the reasons");
    else if (seconds > 0 && flops / seconds < 0.9 * rate && has_compiled(devices))
        find(NOTE, "kernels were compiled in this run, so that its times tell nothing: once more");
    else if (seconds > 0 && flops / seconds < 0.9 * rate)
        find(NO_GAIN,
             "the device did %.1f GFLOP/s in this program, and the next BLAS does %.1f: the calls "
             "are small, or the device is slow",
             1e-9 * flops / seconds, 1e-9 * rate);
}

static void print_bindings(const json_t *rows)
{
    size_t i;
    json_t *row, *unused;
    const char *name;
    printf("\n%sBLAS and LAPACK names by library%s\n", clb_style(stdout, CLB_BOLD),
           clb_style(stdout, CLB_PLAIN));
    json_array_foreach((json_t *)(uintptr_t)rows, i, row)
    {
        bool caught = strcmp(clb_text_of(row, "state"), "caught") == 0;
        printf("  %s%s%s: %s -> %s", clb_style(stdout, caught ? CLB_GREEN : CLB_YELLOW),
               clb_text_of(row, "state"), clb_style(stdout, CLB_PLAIN),
               clb_base_name(clb_text_of(row, "from")), clb_base_name(clb_text_of(row, "to")));
        printf("%s%s\n   ", caught ? "" : ": ", clb_text_of(row, "why"));
        json_object_foreach(json_object_get(row, "names"), name, unused) printf(" %s", name);
        printf("\n");
    }
    if (json_array_size(rows) == 0)
        printf("  none\n");
}

/* ---- a running process ----------------------------------------------------------------------- */

/* A file of /proc/PID; NULL after a finding. */
static FILE *open_proc(long pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        find(BROKEN, "%s can't be read: %s", path, strerror(errno));
    return file;
}

static bool is_privileged(long pid)
{
    ElfW(auxv_t) entry = {0};
    FILE *file = open_proc(pid, "auxv");
    bool secure = false;
    while (file != NULL && !secure && fread(&entry, sizeof entry, 1, file) == 1)
        secure = entry.a_type == AT_SECURE && entry.a_un.a_val != 0;
    if (file != NULL)
        fclose(file);
    return secure;
}

static bool has_preload(long pid)
{
    FILE *file = open_proc(pid, "environ");
    char *entry = NULL;
    size_t capacity = 0;
    bool found = false;
    while (file != NULL && !found && getdelim(&entry, &capacity, '\0', file) > 0)
        found = strncmp(entry, "LD_PRELOAD=", 11) == 0 && strstr(entry, "libclblas_shim") != NULL;
    free(entry);
    if (file != NULL)
        fclose(file);
    return found;
}

struct mapped {
    const char *path;
    json_t *define, *refer; /* paths of files with names of ours */
};

static void note_mapped(const char *name, clb_elf_relation relation, void *argument)
{
    const struct mapped *mapped = argument;
    if (relation != CLB_ELF_NEEDS && clb_name_classify(name) == CLB_NAME_OURS)
        json_object_set_new(relation == CLB_ELF_DEFINES ? mapped->define : mapped->refer,
                            mapped->path, json_true());
}

/* The files that a process has mapped. */
static json_t *list_mapped(long pid)
{
    FILE *file = open_proc(pid, "maps");
    json_t *paths = json_object();
    char *line = NULL;
    size_t capacity = 0;
    while (file != NULL && getline(&line, &capacity, file) > 0) {
        char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        if (path != NULL)
            json_object_set_new(paths, path, json_true());
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return paths;
}

static void print_paths(const char *title, const json_t *paths)
{
    const char *path;
    json_t *unused;
    json_object_foreach((json_t *)(uintptr_t)paths, path, unused) printf("%s%s\n", title, path);
}

static const char *first_key(json_t *object)
{
    return json_object_iter_key(json_object_iter(object));
}

static void judge_process(long pid, bool as_json)
{
    char exe[64], target[PATH_MAX];
    struct mapped mapped = {.define = json_object(), .refer = json_object()};
    const char *path, *shim = NULL;
    json_t *unused, *paths = list_mapped(pid);
    snprintf(exe, sizeof exe, "/proc/%ld/exe", pid);
    ssize_t length = readlink(exe, target, sizeof target - 1);
    target[length > 0 ? length : 0] = '\0';
    json_object_foreach(paths, path, unused)
    {
        if (strstr(clb_base_name(path), "libclblas_shim.so") != NULL)
            shim = path;
        mapped.path = path;
        if (shim != path)
            clb_elf_read(path, note_mapped, &mapped);
    }
    if (!as_json) {
        printf("Process %ld: %s\n", pid, target);
        print_paths("  has BLAS or LAPACK: ", mapped.define);
        print_paths("  calls BLAS or LAPACK: ", mapped.refer);
    }
    if (json_object_size(paths) == 0)
        find(BROKEN, "nothing is known of process %ld", pid);
    else if (clb_elf_read(exe, NULL, NULL) == CLB_ELF_STATIC)
        find(BROKEN, "%s is a static program, into which nothing can be preloaded", target);
    else if (is_privileged(pid))
        find(BROKEN, "the process is set-uid or has capabilities: the shim stays off in it");
    else if (shim == NULL)
        find(BROKEN, "the library is not loaded: %s",
             has_preload(pid) ? "LD_PRELOAD names it, but the dynamic linker did not find it"
                              : "start the program by clblas-shim run");
    else if (json_object_get(mapped.define, target) != NULL)
        find(BROKEN, "%s has a BLAS of its own inside", target);
    else if (json_object_size(mapped.refer) == 0)
        find(NO_GAIN,
             "nothing that is loaded so far calls a BLAS or LAPACK routine that the shim has%s%s",
             first_key(mapped.define) != NULL ? ", unless by dlsym from " : "",
             first_key(mapped.define) != NULL ? first_key(mapped.define) : "");
    snprintf(works, sizeof works, ": %s is loaded", shim != NULL ? clb_base_name(shim) : "");
    json_decref(paths);
    json_decref(mapped.define);
    json_decref(mapped.refer);
}

/* ---- the verdict ----------------------------------------------------------------------------- */

/* The first of the worst findings. */
static const char *worst_finding(enum severity *severity)
{
    const char *text = NULL;
    size_t i;
    json_t *finding;
    *severity = NOTE;
    json_array_foreach(findings, i, finding)
    {
        enum severity found = (enum severity)clb_number_of(finding, "severity");
        if (found > *severity) {
            *severity = found;
            text = clb_text_of(finding, "text");
        }
    }
    return text;
}

/* Print what was found, and the verdict as the last line. */
static int conclude(json_t *result, bool as_json)
{
    enum severity severity;
    const char *text = worst_finding(&severity);
    static const char *const verdicts[] = {[NOTE] = "works",
                                           [NO_GAIN] = "works but gains nothing because ",
                                           [BROKEN] = "does not work because "};
    static const char *const colours[] = {
        [NOTE] = CLB_GREEN, [NO_GAIN] = CLB_YELLOW, [BROKEN] = CLB_RED};
    char *verdict = NULL;
    size_t i;
    json_t *finding;
    if (asprintf(&verdict, "%s%s", verdicts[severity], text != NULL ? text : works) < 0)
        return CLB_EXIT_FAILED;
    json_array_foreach(findings, i, finding)
    {
        if (!as_json && clb_text_of(finding, "text") != text)
            printf("%s%s\n", i == 0 ? "\n* " : "* ", clb_text_of(finding, "text"));
    }
    json_object_set_new(result, "findings", findings);
    json_object_set_new(result, "verdict", json_string(verdict));
    json_object_set_new(result, "status", json_integer(severity));
    if (as_json)
        json_dumpf(result, stdout, JSON_COMPACT);
    else
        printf("\n%s%s%s", clb_style(stdout, colours[severity]), verdict,
               clb_style(stdout, CLB_PLAIN));
    printf("\n");
    free(verdict);
    json_decref(result);
    return (int)severity;
}

/* ---- the command ----------------------------------------------------------------------------- */

static int examine_program(char **program, const json_t *devices, json_t *result, bool as_json)
{
    struct results results = {.bindings = {.rows = json_array(), .objects = json_object()},
                              .report = json_object()};
    char *path = find_program(program[0]);
    if (path == NULL)
        return clb_fail(CLB_EXIT_NOT_FOUND, "%s: there is no such program", program[0]);
    results.bindings.linked = judge_file(path).needs_shim;
    if (!run_program(program, &results))
        return CLB_EXIT_FAILED;
    json_t *next = clb_next_describe(find_next(&results));
    if (next != NULL && *clb_text_of(next, "library") == '\0') { /* it has LAPACK only */
        json_decref(next);
        next = clb_next_describe(NULL);
    }
    judge_next(next, find_taken(devices), true);
    judge_bindings(&results, path);
    judge_report(&results, next, devices);
    if (!as_json) {
        print_next(next);
        print_bindings(results.bindings.rows);
        if (json_object_size(results.report) > 0) {
            printf("\n");
            clb_report_print(stdout, results.report);
        }
    }
    json_object_set_new(result, "next", next != NULL ? next : json_null());
    json_object_set_new(result, "bindings", results.bindings.rows);
    json_object_set_new(result, "report", results.report);
    json_decref(results.bindings.objects);
    free(path);
    return 0;
}

static int examine(char **program, bool as_json)
{
    json_t *devices = clb_devices_list();
    int status = 0;
    if (devices == NULL)
        return CLB_EXIT_FAILED;
    json_t *result = json_pack("{s:o}", "devices", devices);
    judge_devices(devices);
    if (!as_json)
        clb_devices_print(stdout, devices);
    add_state(devices, as_json);
    if (*program != NULL) {
        status = examine_program(program, devices, result, as_json);
    } else {
        json_t *next = clb_next_describe(NULL);
        judge_next(next, find_taken(devices), false);
        if (!as_json)
            print_next(next);
        json_object_set_new(result, "next", next != NULL ? next : json_null());
    }
    return status != 0 ? status : conclude(result, as_json);
}

int clb_command_doctor(int argc, char **argv)
{
    const char *pid = NULL;
    bool as_json = false;
    char *end = NULL;
    for (int letter; (letter = clb_option_next(argc, argv)) >= 0;) {
        if (letter == 'p')
            pid = optarg;
        else
            as_json = true;
    }
    findings = json_array();
    if (pid == NULL)
        return examine(argv + optind, as_json);
    long number = strtol(pid, &end, 10);
    if (*end != '\0' || number <= 0)
        return clb_fail(CLB_EXIT_USAGE, "--pid %s is no process id", pid);
    if (optind != argc)
        return clb_fail(CLB_EXIT_USAGE, "--pid and a program exclude each other");
    judge_process(number, as_json);
    return conclude(json_object(), as_json);
}
