/* Calls of BLAS libraries by name, timed. Each library is loaded in a child process, which finds it
 * as a call of the shim would, or opens the one that is named. */
#include "measure.h"
#include "shim/next/next.h"
#include "trial.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A size is timed by so many calls, fewer when they take long: seconds. */
#define MOST_CALLS  15
#define LONG_ENOUGH 0.5

clb_routine clb_find_routine(const char *name)
{
    size_t length = strlen(name), i = 0;
    length -= length > 0 && name[length - 1] == '_';
    while (i < CLB_ROUTINES && (strlen(clb_routines[i].name) != length ||
                                strncmp(clb_routines[i].name, name, length) != 0))
        i++;
    return (clb_routine)i;
}

double clb_call_flops(clb_routine routine, size_t n)
{
    const struct clb_routine_info *info = &clb_routines[routine];
    double order = (double)n;
    return (clb_precision_parts(info->precision) == 2 ? 8 : 2) *
           clb_work_of(info->row, order, order, order);
}

struct clb_call_bytes clb_call_traffic(clb_routine routine, size_t n)
{
    const struct clb_routine_info *info = &clb_routines[routine];
    const struct clb_call call = {.routine = routine, .m = n, .n = n, .k = n, .nrhs = n};
    struct clb_call_bytes bytes = {0};
    for (const char *name = "ABC"; *name != '\0'; name++) {
        struct clb_shape shape;
        if (!clb_call_shape(&call, *name, &shape))
            continue;
        double size = (double)n * (double)n * (double)clb_precision_size(info->precision) /
                      (shape.triangle ? 2 : 1);
        /* With beta = 0 the result is not read. */
        bytes.read += shape.written && strchr(info->signature, '+') != NULL ? 0 : size;
        bytes.written += shape.written ? size : 0;
    }
    return bytes;
}

/* ---- whether the shim's device did it -------------------------------------------------------- */

typedef size_t reporter(char *buffer, size_t size);

/* clblas_shim_report of the library that has a function; NULL: that is not the shim. */
static reporter *find_reporter(const struct clb_target *target)
{
    const void *function;
    reporter *report = NULL;
    Dl_info info, other;
    memcpy(&function, &target->function, sizeof function);
    void *handle =
        dladdr(function, &info) != 0 ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *address = handle != NULL ? dlsym(handle, "clblas_shim_report") : NULL;
    if (address != NULL && dladdr(address, &other) != 0 && other.dli_fbase == info.dli_fbase)
        memcpy(&report, &address, sizeof address);
    return report;
}

/* Calls so far that were computed on the shim's device alone. */
static json_int_t count_device_calls(reporter *report_calls)
{
    char text[65536];
    json_int_t calls = 0;
    const char *name;
    json_t *row, *report = NULL;
    if (report_calls != NULL && report_calls(text, sizeof text) < sizeof text)
        report = json_loads(text, 0, NULL);
    json_object_foreach(json_object_get(report, "routines"), name, row) calls +=
        json_integer_value(json_object_get(row, "device"));
    json_decref(report);
    return calls;
}

/* ---- in the child ---------------------------------------------------------------------------- */

static json_t *time_size(const struct clb_target *target, reporter *report, clb_routine routine,
                         size_t n)
{
    const int64_t order = (int64_t)n;
    struct clb_call call = clb_trial_make(routine, order, order, order, order);
    clb_trial_run(&call, target, 0, 1, 0);
    json_int_t before = count_device_calls(report);
    const struct clb_trial_time time = clb_trial_run(&call, target, 0, MOST_CALLS, LONG_ENOUGH);
    bool device = count_device_calls(report) == before + (json_int_t)time.calls;
    return json_pack("{s:I,s:f,s:b}", "n", (json_int_t)n, "seconds", time.median, "device", device);
}

/* The shim's own search refuses copies of the shim, so a library that is named is opened here.
 * False: it can't be, or has no such routine. */
static bool find_target(const char *library, clb_routine routine, struct clb_target *target)
{
    struct clb_next_symbol *symbol = &clb_symbol_at(routine, 0)->next;
    const struct clb_target *next = clb_next_try(symbol, __builtin_return_address(0));
    void *handle = library != NULL ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = handle != NULL ? dlsym(handle, symbol->name) : NULL,
         *probe = handle != NULL ? dlsym(handle, symbol->probe) : NULL;
    *target = (struct clb_target){.ilp64 = next != NULL && next->ilp64};
    if (library == NULL && next != NULL)
        target->function = next->function;
    memcpy(&target->function, &address, library != NULL ? sizeof address : 0);
    void (*function)(void);
    memcpy(&function, &probe, sizeof function);
    if (probe != NULL) /* the shim has none: its integers are the next library's */
        target->ilp64 = clb_next_probe_ilp64(function, symbol->probe, CLB_ABI_FORTRAN);
    return target->function != NULL;
}

static json_t *time_sizes(const char *library, clb_routine routine, const size_t *sizes,
                          size_t count)
{
    struct clb_target target;
    json_t *rows = json_array();
    if (!find_target(library, routine, &target))
        return rows;
    reporter *report = find_reporter(&target);
    for (size_t i = 0; i < count; i++)
        json_array_append_new(rows, time_size(&target, report, routine, sizes[i]));
    return rows;
}

/* ---- in this process ------------------------------------------------------------------------- */

struct calls {
    const char *library;
    clb_routine routine;
    const size_t *sizes;
    size_t count;
};

static json_t *answer_calls(void *argument)
{
    const struct calls *calls = argument;
    unsetenv("LD_PRELOAD");
    unsetenv("CLBLAS_SHIM_TRACE");
    setenv("CLBLAS_SHIM", "always", 0);
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 0);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    return time_sizes(calls->library, calls->routine, calls->sizes, calls->count);
}

json_t *clb_time_calls(const char *library, clb_routine routine, const size_t *sizes, size_t count)
{
    struct calls calls = {library, routine, sizes, count};
    return clb_ask_child(answer_calls, &calls);
}
