/* Rates of kernels and devices: slow kernels, devices of one kind, rates that are old or damaged.
 * SPDX-License-Identifier: BSD-3-Clause */
#include "fakecl.h"
#include "engine/kernel/kernel.h"
#include "engine/ocl/helper.h"
#include "engine/ocl/start.h"
#include "engine/ocl/store.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64];

/* ---- kernels ---- */

static _Atomic long built, slow_programs;

static void count_builds(fake_function function)
{
    if (function == FAKE_BuildProgram)
        built++;
}

/* Products are timed by powers of two; the self-check has none of these sizes. */
static cl_int be_slow(const char *kernel, const cl_ulong *argument)
{
    const cl_ulong m = argument[0], k = argument[2];
    double until = clb_now() + 0.05;
    if (strcmp(kernel, "clb_gemm") == 0 && m == k && m >= 64 && (m & (m - 1)) == 0 &&
        built <= slow_programs) {
        while (clb_now() < until)
            continue;
    }
    return CL_SUCCESS;
}

struct row {
    const char *name, *variable, *value;
    clb_helper_role role;
    long slow; /* so many programs are */
    bool too_slow, known;
    size_t decisions;
};

static void choose_row(void *argument)
{
    const struct row *row = argument;
    const struct clb_gemm_variant *variant;
    const struct clb_rate_decision *decisions;
    struct clb_gemm_tuning first;
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    if (row->variable != NULL)
        setenv(row->variable, row->value, 1);
    fake_cl_install();
    fake_cl.enter = count_builds;
    fake_cl.launch = be_slow;
    slow_programs = row->slow;
    clb_helper_become(row->role, NULL);
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (!expect(runtime != NULL && clb_gemm_variant_get(runtime, CLB_D, &variant) == CLB_OK,
                "no variant"))
        return;
    if (clb_tuning_gemm(&runtime->device, CLB_D, CLB_MATH_DEFAULT, 0, &first) == CLB_OK)
        expect(memcmp(first.value, variant->tuning.value, sizeof first.value) == 0, "%s is used",
               variant->name);
    expect((variant->rate > 0) == row->known, "%g GFLOP/s", variant->rate);
    expect(variant->too_slow == row->too_slow, "%g GFLOP/s is%s too slow", variant->rate,
           row->too_slow ? " not" : "");
    expect(clb_rate_decisions(&decisions) == row->decisions, "%zu decisions",
           clb_rate_decisions(&decisions));
    if (row->role == CLB_HELPER_BUILDS) /* as the helper does */
        clb_step_record(&runtime->device, CLB_STEP_GEMM, CLB_D, CLB_OK);
}

/* The record of a device's products, so many days old; with a rate below 0 of products that failed.
 */
static void record_products(const struct clb_device *device, double rate, double days)
{
    struct clb_record record;
    const struct clb_choice choice = {.rate = rate, .name = "gemm"};
    clb_choice_note(CLB_D, 0, &choice);
    clb_choice_note(CLB_D, 1, &choice);
    clb_step_record(device, CLB_STEP_GEMM, CLB_D, rate < 0 ? CLB_ERR_BUILD : CLB_OK);
    if (!expect(clb_step_find(device, CLB_STEP_GEMM, CLB_D, &record), "a record"))
        return;
    record.time -= (int64_t)(days * 86400e9);
    char *detail = clb_step_describe(device, CLB_STEP_GEMM, CLB_D);
    clb_record_store((struct clb_key){CLB_RECORD_STEP, device->identity, detail}, record);
    clb_record_free(&record);
    free(detail);
}

static void age_rate(void *argument)
{
    const double days = *(const double *)argument;
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    clb_helper_become(CLB_HELPER_LOADS, NULL);
    const struct clb_runtime *runtime = clb_runtime_get(&state);
    if (!expect(runtime != NULL, "no device"))
        return;
    record_products(&runtime->device, 0.5, days);
    expect(clb_rate_was_slow(&runtime->device, CLB_D) == (days < 7), "of %g days", days);
    expect(!clb_rate_was_slow(&runtime->device, CLB_S), "in single precision");
    expect(clb_device_rate(&runtime->device, "0:0") == 0.5, "an old rate counts");
}

/* Where a step failed so many minutes ago: the helper, which there is none of, is asked after an
 * hour.
 */
static void believe_failure(void *argument)
{
    const double minutes = *(const double *)argument;
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    clb_helper_become(CLB_HELPER_LOADS, NULL);
    const struct clb_runtime *runtime = clb_runtime_get(&state);
    if (!expect(runtime != NULL, "no device"))
        return;
    record_products(&runtime->device, -1, minutes / 1440);
    clb_helper_become(CLB_HELPER_USED, NULL);
    const clb_status status = clb_step_need(runtime, CLB_STEP_GEMM, CLB_D);
    expect(status == (minutes < 60 ? CLB_ERR_UNSUPPORTED : CLB_ERR_BUILD), "%g minutes ago: %s",
           minutes, clb_status_name(status));
}

/* ---- devices ---- */

/* One device under several names. */
enum { TWINS = 3 };
static char twins[TWINS];
static size_t twin_count;
static cl_uint twin_units[TWINS];
static cl_device_id real_id;
static struct clb_cl real;

static cl_int CL_API_CALL twin_ids(cl_platform_id platform, cl_device_type type, cl_uint room,
                                   cl_device_id *ids, cl_uint *found)
{
    cl_int status = real.GetDeviceIDs(platform, type, 1, &real_id, found);
    for (size_t i = 0; i < twin_count && i < room; i++)
        ids[i] = (cl_device_id)(void *)&twins[i];
    *found = (cl_uint)twin_count;
    return status;
}

static cl_int CL_API_CALL twin_info(cl_device_id id, cl_device_info what, size_t size, void *value,
                                    size_t *needed)
{
    const size_t twin = (size_t)((char *)(void *)id - twins);
    if (what == CL_DEVICE_NAME)
        return snprintf(value, size, "twin %c", "ABC"[twin]) > 0 ? CL_SUCCESS : CL_INVALID_VALUE;
    cl_int status = real.GetDeviceInfo(real_id, what, size, value, needed);
    if (what == CL_DEVICE_MAX_COMPUTE_UNITS && twin_units[twin] != 0)
        memcpy(value, &twin_units[twin], sizeof twin_units[twin]);
    return status;
}

/* The identity of a twin from that of the first. */
static void describe_twin(const char *first, size_t twin, char *identity)
{
    char *name;
    memmove(identity, first, strlen(first) + 1);
    if ((name = strstr(identity, "twin ")) != NULL)
        name[5] = "ABC"[twin];
}

struct ranking {
    const char *name;
    double rate[TWINS]; /* 0: no record, below 0: no kernel works */
    cl_uint units[TWINS];
    double days; /* the age of the records */
    size_t best;
    const char *reproducible;
    bool no_rates; /* in a process that builds its kernels itself */
};

static void choose_device(void *argument)
{
    const struct ranking *ranking = argument;
    struct clb_device device;
    const char wanted[] = {"ABC"[ranking->best], '\0'};
    setenv("CLBLAS_SHIM_CACHE_DIR", directory, 1);
    if (ranking->reproducible != NULL)
        setenv("CLBLAS_SHIM_REPRODUCIBLE", ranking->reproducible, 1);
    clb_helper_become(CLB_HELPER_LOADS, NULL);
    if (!expect(clb_cl_load(NULL) == CLB_OK, "no loader"))
        return;
    real = clb_cl;
    clb_cl.GetDeviceIDs = twin_ids;
    clb_cl.GetDeviceInfo = twin_info;
    twin_count = 1;
    /* The keys of the records are those of the descriptions. */
    struct clb_device described[TWINS];
    memcpy(twin_units, ranking->units, sizeof twin_units);
    if (!expect(clb_device_select("cpu", &described[0]) == CLB_OK, "no device"))
        return;
    twin_count = TWINS;
    for (size_t i = 0; i < TWINS; i++) {
        described[i] = described[0];
        snprintf(described[i].name, sizeof described[i].name, "twin %c", "ABC"[i]);
        describe_twin(described[0].identity, i, described[i].identity);
        if (ranking->rate[i] != 0)
            record_products(&described[i], ranking->rate[i], ranking->days);
    }
    if (ranking->no_rates)
        clb_helper_become(CLB_HELPER_NONE, NULL);
    expect(clb_device_select("cpu", &device) == CLB_OK && device.name[5] == wanted[0], "%s, not %s",
           device.name, wanted);
}

static void clear(void)
{
    char command[120];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command) != 0)
        tap_note("%s fails", command);
}

int main(void)
{
    static const struct row rows[] = {
        {"no rates where a process builds its kernels itself", NULL, NULL, CLB_HELPER_NONE, 1,
         false, false, 0},
        {"slow kernels", NULL, NULL, CLB_HELPER_BUILDS, 9, true, true, 1},
        {"their rate is kept", NULL, NULL, CLB_HELPER_LOADS, 0, true, true, 1},
        {"always: too slow for nothing", "CLBLAS_SHIM", "always", CLB_HELPER_LOADS, 0, false, true,
         0},
        {"nor where the user has named them", "CLBLAS_SHIM_KERNEL", "cpu", CLB_HELPER_LOADS, 0,
         false, false, 0},
        {"nor where routing is frozen", "CLBLAS_SHIM_REPRODUCIBLE", "1", CLB_HELPER_LOADS, 0, false,
         true, 0},
    };
    static const struct ranking rankings[] = {
        {.name = "no rates: the first", .best = 0},
        {.name = "the fastest", .rate = {0.04, 50, 10}, .best = 1},
        {.name = "the fastest, which has fewer units",
         .rate = {0.04, 50, 10},
         .units = {8, 2, 8},
         .best = 1},
        {.name = "nearly as fast: the first", .rate = {45, 50, 10}, .best = 0},
        {.name = "nearly as fast: more units", .rate = {10, 45, 50}, .units = {8, 2, 4}, .best = 2},
        {.name = "one is not known: the first", .rate = {0, 50, 10}, .best = 0},
        {.name = "one is not known: the first that is not slow", .rate = {1, 0, 50}, .best = 1},
        {.name = "a device without a kernel", .rate = {-1, 0.1, 0.1}, .best = 1},
        {.name = "none has a kernel: the first", .rate = {-1, -1, -1}, .best = 0},
        {.name = "old rates count until there are new ones",
         .rate = {0.04, 50, 10},
         .days = 30,
         .best = 1},
        {.name = "routing is frozen: the first",
         .rate = {0.04, 50, 10},
         .best = 0,
         .reproducible = "1"},
        {.name = "no rates in a process that builds its kernels",
         .rate = {0.04, 50, 10},
         .best = 0,
         .no_rates = true},
    };
    static double ages[] = {6, 8}, minutes[] = {50, 70};
    snprintf(directory, sizeof directory, "/tmp/clb-rates-%ld", (long)getpid());
    for (size_t i = 0; i < CLB_COUNT_OF(rows); i++)
        tap_child(rows[i].name, 300, choose_row, (void *)(uintptr_t)&rows[i]);
    for (size_t i = 0; i < CLB_COUNT_OF(ages); i++)
        tap_child(ages[i] < 7 ? "a rate of this week" : "an old rate", 120, age_rate, &ages[i]);
    for (size_t i = 0; i < CLB_COUNT_OF(minutes); i++)
        tap_child("a step that has failed is tried again after an hour", 60, believe_failure,
                  &minutes[i]);
    for (size_t i = 0; i < CLB_COUNT_OF(rankings); i++) {
        clear();
        tap_child(rankings[i].name, 60, choose_device, (void *)(uintptr_t)&rankings[i]);
    }
    clear();
    return tap_done();
}
