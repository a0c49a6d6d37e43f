/* Calls of BLAS libraries by name, timed in a child process, which opens the library that is named,
 * or finds the next one as a call of the shim would. SPDX-License-Identifier: BSD-3-Clause */
#include "measure.h"
#include "shim/next/next.h"
#include "trial.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* A size is timed by so many calls, fewer when they take long: seconds. */
#define MOST_CALLS  15
#define LONG_ENOUGH 0.5

bool clb_is_named(const char *text, const char *name)
{
    const size_t length = strlen(name);
    return strncmp(text, name, length) == 0 &&
           (text[length] == '\0' || strcmp(text + length, "_") == 0);
}

double clb_call_flops(clb_routine routine, size_t n)
{
    const struct clb_routine_info *info = &clb_routines[routine];
    double order = (double)n;
    return (clb_precision_parts(info->precision) == 2 ? 8 : 2) *
           clb_work_of(info->row, order, order, order);
}

/* ---- in the child ---- */

json_t *clb_library_report(const char *library)
{
    typedef size_t reporter(char *buffer, size_t size);
    reporter *report = NULL;
    void *handle = library != NULL ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *address = handle != NULL ? dlsym(handle, "clblas_shim_report") : NULL;
    memcpy(&report, &address, sizeof address);
    const size_t size = report != NULL ? report(NULL, 0) + 1 : 0;
    char *text = size > 1 ? malloc(size) : NULL;
    json_t *json = text != NULL && report(text, size) < size ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return json;
}

/* Calls so far that were computed on the shim's device alone. */
static json_int_t count_device_calls(const char *library)
{
    json_auto_t *report = clb_library_report(library);
    json_int_t calls = 0;
    CLB_EACH_MEMBER(name, row, json_object_get(report, "routines"))
        calls += json_integer_value(json_object_get(row, "device"));
    return calls;
}

/* The shim's own search refuses copies of the shim, so a library that is named is opened here. */
bool clb_find_target(const char *library, clb_routine routine, struct clb_target *target)
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

struct timed_calls {
    const char *library;
    clb_routine routine;
    const size_t *sizes;
    size_t count;
};

static json_t *answer_calls(void *argument)
{
    const struct timed_calls *calls = argument;
    struct clb_target target;
    json_t *rows = json_array();
    unsetenv("CLBLAS_SHIM_TRACE");
    setenv("CLBLAS_SHIM", "always", 0);
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 0);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    if (!clb_find_target(calls->library, calls->routine, &target))
        return rows;
    for (size_t i = 0; i < calls->count; i++) {
        const int64_t n = (int64_t)calls->sizes[i];
        struct clb_call call = clb_trial_make(calls->routine, n, n, n, n);
        clb_trial_run(&call, &target, 0, 1, 0);
        const json_int_t before = count_device_calls(calls->library);
        const struct clb_trial_time time =
            clb_trial_run(&call, &target, 0, MOST_CALLS, LONG_ENOUGH);
        const bool device = count_device_calls(calls->library) == before + (json_int_t)time.calls;
        json_array_append_new(rows, json_pack("{s:I,s:f,s:b}", "n", (json_int_t)n, "seconds",
                                              time.median, "device", device));
    }
    return rows;
}

json_t *clb_time_calls(const char *library, clb_routine routine, const size_t *sizes, size_t count)
{
    struct timed_calls calls = {library, routine, sizes, count};
    return clb_ask_child(answer_calls, &calls);
}
