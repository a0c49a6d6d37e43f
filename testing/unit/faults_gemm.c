/* Every OpenCL call of a warm product fails once, and every second or third of a process's first
 * one, once or from there on: the program's result is right all the same, its gaps and guards are
 * untouched and the report adds up. */
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const cl_int codes[] = {CL_OUT_OF_RESOURCES,
                               CL_MEM_OBJECT_ALLOCATION_FAILURE,
                               CL_OUT_OF_HOST_MEMORY,
                               CL_INVALID_VALUE,
                               CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                               CL_BUILD_PROGRAM_FAILURE,
                               CL_DEVICE_NOT_AVAILABLE,
                               -9999 /* a vendor's own */};

struct setting {
    const char *name;
    clb_precision precision;
    const char *kernel;
    bool discrete, no_cache;
    const char *params;
    uint64_t only; /* functions of the first GEMM that fail, 0: all */
};

#define TILES "gemm.tile=min"

static const struct setting settings[] = {
    {"in place, cpu family, single", CLB_S, "cpu", false, false, TILES, 0},
    {"own memory, portable family, double", CLB_D, "portable", true, false, TILES, 0},
    {"in place, portable family, double", CLB_D, "portable", false, false, TILES, 0},
    {"own memory, gathered, cpu family, single", CLB_S, "cpu", true, false,
     TILES ",gemm.threads=2,gemm.band_m=16,gemm.band_n=8", 0},
};

static const struct setting unstored = {
    "building from source",
    CLB_D,
    "cpu",
    false,
    true,
    TILES,
    1ull << FAKE_CreateProgramWithSource | 1ull << FAKE_CreateProgramWithBinary |
        1ull << FAKE_BuildProgram | 1ull << FAKE_GetProgramInfo | 1ull << FAKE_GetProgramBuildInfo |
        1ull << FAKE_CreateKernel};

/* Between the test and its children. */
static struct shared {
    struct setting setting;
    uint64_t seed;
    long at, calls;
    bool persistent, run_anyway;
    cl_int code;
} * shared;

static const char *symbol_of(const struct setting *setting)
{
    return setting->precision == CLB_S ? "sgemm_" : "dgemm_";
}

static void start(const struct setting *setting)
{
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_PARAMS", setting->params, 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("CLBLAS_SHIM_KERNEL", setting->kernel, 1);
    setenv("CLBLAS_SHIM_DEVICE", setting->discrete ? "gpu" : "cpu", 1);
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    if (setting->no_cache)
        setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    /* A device that can't be found is complained about; that is not looked at here. */
    if (freopen("/dev/null", "w", stderr) == NULL)
        exit(1);
    fake_cl.discrete = setting->discrete;
    fake_cl_install();
}

/* Several tiles and slabs of every kind of edge. */
static void make_case(struct gemm_case *g, const struct setting *setting, uint64_t *seed)
{
    *g = (struct gemm_case){.precision = setting->precision,
                            .transa = (clb_op)random_below(seed, 3),
                            .transb = (clb_op)random_below(seed, 3),
                            .m = 33 + random_below(seed, 15),
                            .n = 9 + random_below(seed, 8),
                            .k = 9 + random_below(seed, 15),
                            .alpha = random_below(seed, 2) ? 1 : -0.75,
                            .beta = random_below(seed, 2) ? 0 : 0.5};
    gemm_make(g, seed, 5);
}

static void run_case(const struct setting *setting, uint64_t *seed, const char *what)
{
    struct gemm_case g;
    make_case(&g, setting, seed);
    routed_gemm(&g);
    gemm_check(&g, what);
    gemm_free(&g);
}

/* ---- the first GEMM -------------------------------------------------------------------------- */

static void first_gemm(void *unused)
{
    const char *symbol = symbol_of(&shared->setting);
    uint64_t seed = shared->seed;
    (void)unused;
    start(&shared->setting);
    fake_cl.only = shared->setting.only;
    fake_cl.run_anyway = shared->run_anyway;
    fake_cl_arm(shared->at, shared->code, shared->persistent);
    run_case(&shared->setting, &seed, "first call");
    shared->calls = fake_cl.calls;
    if (shared->at != 0)
        expect(fake_cl.failures > 0, "nothing failed");
    if (!shared->persistent)
        fake_cl_arm(0, 0, false);
    run_case(&shared->setting, &seed, "second call");
    run_case(&shared->setting, &seed, "third call");
    expect(reported(symbol, "calls") == 3, "calls = 3");
    expect_sums(symbol);
    if (shared->at == 0)
        expect(reported(symbol, "device") == 3, "all on the device without a failure");
}

/* Of the calls of a process's first product one of every `step` fails, each in a process of its
 * own. */
static void test_first(const struct setting *setting, uint64_t *seed, long step)
{
    long failed = 0, tried = 0;
    *shared = (struct shared){.setting = *setting, .seed = random_bits(seed)};
    /* What this compiles and checks the others find in the cache: they have fewer calls. */
    (void)run_child(60, first_gemm, NULL, NULL, 0);
    tap_child(setting->name, 60, first_gemm, NULL);
    long calls = shared->calls;
    step *= tap_step(calls);
    for (long at = 1 + (long)random_below(seed, (size_t)step); at <= calls; at += step) {
        shared->at = at;
        shared->code = codes[random_below(seed, CLB_COUNT_OF(codes))];
        shared->persistent = random_below(seed, 3) == 0;
        shared->run_anyway = random_below(seed, 3) == 0;
        int status = run_child(60, first_gemm, NULL, NULL, 0);
        tried++;
        if (status != 0) {
            tap_note("call %ld of %ld, %d%s%s: status %#x", at, calls, (int)shared->code,
                     shared->persistent ? ", persistent" : "",
                     shared->run_anyway ? ", run anyway" : "", (unsigned)status);
            failed++;
        }
    }
    tap_ok(failed == 0 && tried > 0, "%s: first GEMM, %ld of its %ld calls fail", setting->name,
           tried, calls);
}

/* ---- a warm GEMM ----------------------------------------------------------------------------- */

/* With threads, which calls are made depends on time. */
static bool is_timed(const struct setting *setting)
{
    return strstr(setting->params, "gemm.threads") != NULL;
}

/* The same problem for every n, so that call n is the same call. */
static void fail_one(const struct setting *setting, uint64_t seed, long at, cl_int code)
{
    char what[80];
    struct gemm_case g;
    make_case(&g, setting, &seed);
    snprintf(what, sizeof what, "warm call %ld fails with %d", at, (int)code);
    double before = reported(symbol_of(setting), "recovered");
    size_t entries = next_entries;
    fake_cl_arm(at, code, false);
    routed_gemm(&g);
    expect(at == 0 || fake_cl.failures == 1 || is_timed(setting), "%s: nothing failed", what);
    fake_cl_arm(0, 0, false);
    gemm_check(&g, what);
    /* What the device has written is not computed again. */
    expect(next_entries - entries <= g.m * g.n, "%s: the next library got too much", what);
    if (next_entries != entries && code == CL_OUT_OF_RESOURCES)
        expect(reported(symbol_of(setting), "recovered") == before + 1, "%s: not recovered", what);
    gemm_free(&g);
}

static void warm_gemm(void *unused)
{
    const struct setting *setting = &shared->setting;
    uint64_t seed = shared->seed;
    long partly = 0;
    (void)unused;
    start(setting);
    run_case(setting, &seed, "first call");
    run_case(setting, &seed, "warm call");
    const uint64_t problem = seed;
    fail_one(setting, problem, 0, 0);
    fail_one(setting, problem, 0, 0);
    fake_cl_arm(0, 0, false);
    struct gemm_case g;
    uint64_t again = problem;
    make_case(&g, setting, &again);
    routed_gemm(&g);
    long calls = fake_cl.calls;
    for (long at = 1; at <= calls; at += tap_step(calls)) {
        for (int anyway = 0; anyway < 2; anyway++) {
            size_t entries = next_entries;
            fake_cl.run_anyway = anyway != 0;
            fail_one(setting, problem, at, codes[(size_t)(at + anyway) % CLB_COUNT_OF(codes)]);
            partly += next_entries > entries && next_entries - entries < g.m * g.n;
            fake_cl.run_anyway = false;
            fail_one(setting, problem, 0, 0); /* three failures in a row would end it */
        }
    }
    gemm_free(&g);
    shared->calls = calls;
    expect(calls > 100, "only %ld calls", calls);
    expect(partly > 0 || tap_step(calls) > 1 || is_timed(setting),
           "no call was finished by the next library in part");
    expect_sums(symbol_of(setting));
    expect(reported(symbol_of(setting), "quarantined") == 0, "quarantined");
}

/* Two calls may fail at once: the one that ends a tile and the one that waits for the rest. */
static void failing_pairs(void *unused)
{
    const struct setting *setting = &shared->setting;
    uint64_t seed = shared->seed;
    (void)unused;
    start(setting);
    run_case(setting, &seed, "first call");
    fake_cl.only = 1ull << FAKE_Finish | 1ull << FAKE_WaitForEvents | 1ull << FAKE_Flush |
                   1ull << FAKE_ReleaseEvent | 1ull << FAKE_ReleaseMemObject |
                   1ull << FAKE_EnqueueUnmapMemObject;
    for (long at = 1; at <= 12; at++) {
        struct gemm_case g;
        make_case(&g, setting, &seed);
        fake_cl_arm(at, CL_OUT_OF_RESOURCES, true);
        routed_gemm(&g);
        fake_cl_arm(0, 0, false);
        gemm_check(&g, "waiting fails");
        run_case(setting, &seed, "afterwards");
        /* Kept: commands that nobody could wait for may still read A and B. */
    }
    expect_sums(symbol_of(setting));
}

/* Asking what has become of a command fails. How often that is done depends on time. */
static void failing_questions(void *unused)
{
    const struct setting *setting = &shared->setting;
    uint64_t seed = shared->seed;
    (void)unused;
    start(setting);
    run_case(setting, &seed, "first call");
    long failures = 0;
    const long questions = tap_full() ? 60 : 12;
    for (long at = 1; at <= questions; at++) {
        struct gemm_case g;
        make_case(&g, setting, &seed);
        fake_cl.only = 1ull << FAKE_GetEventInfo;
        fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
        routed_gemm(&g);
        failures += fake_cl.failures;
        fake_cl_arm(0, 0, false);
        gemm_check(&g, "asking fails");
        run_case(setting, &seed, "afterwards");
    }
    expect(failures > questions / 6, "%ld questions failed", failures);
    expect_sums(symbol_of(setting));
}

/* ---- kernels that are not run, transfers that fail ------------------------------------------- */

/* The result is right all the same, and the call is not counted as the device's. */
static void skip_one(const struct setting *setting, uint64_t seed, const char *what)
{
    struct gemm_case g;
    double device = reported(symbol_of(setting), "device");
    make_case(&g, setting, &seed);
    routed_gemm(&g);
    gemm_check(&g, what);
    expect(reported(symbol_of(setting), "device") == device + (fake_cl.skipped == 0),
           "%s: counted as the device's", what);
    gemm_free(&g);
}

static void skip_kernel(const struct setting *setting, uint64_t seed, long at,
                        fake_failure_kind kind)
{
    char what[80];
    snprintf(what, sizeof what, "kernel %ld is not run, %s says so", at, fake_cl_reporter(kind));
    fake_cl_skip(at, kind);
    skip_one(setting, seed, what);
    expect(fake_cl.skipped == (at != 0), "%s: it was not launched", what);
}

/* Where no events are kept, as on NVIDIA's devices. */
static void keep_no_events(void)
{
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (expect(runtime != NULL, "no device"))
        runtime->device.quirks |= CLB_QUIRK_FAILS_FOR_GOOD;
}

/* How often the end of a transfer is seen depends on time: the last ones may not come. */
static long fail_transfer(const struct setting *setting, uint64_t seed, long at)
{
    char what[80];
    snprintf(what, sizeof what, "transfer %ld fails, its event says so", at);
    fake_cl_fail_transfer(at);
    skip_one(setting, seed, what);
    return fake_cl.skipped;
}

static void skip_every_kernel(void *without_events)
{
    const struct setting *setting = &shared->setting;
    uint64_t seed = shared->seed;
    start(setting);
    if (without_events != NULL)
        keep_no_events();
    run_case(setting, &seed, "first call");
    for (int problem = 0; problem < 4; problem++) {
        const uint64_t begin = random_bits(&seed);
        skip_kernel(setting, begin, 0, FAKE_EVENT_REPORTS);
        long launches = fake_cl.launches;
        expect(launches > 2, "%ld kernels", launches);
        for (long at = 1; at <= launches; at += tap_step(launches)) {
            const int first = without_events != NULL ? FAKE_NOBODY_REPORTS : FAKE_EVENT_REPORTS;
            for (int kind = first; kind < FAKE_FAILURE_KINDS; kind++) {
                skip_kernel(setting, begin, at, (fake_failure_kind)kind);
                /* Three in a row would end it. */
                skip_kernel(setting, begin, 0, FAKE_EVENT_REPORTS);
            }
        }
        shared->calls += launches;
    }
    expect_sums(symbol_of(setting));
}

static void fail_every_transfer(void *unused)
{
    const struct setting *setting = &shared->setting;
    uint64_t seed = shared->seed;
    (void)unused;
    start(setting);
    run_case(setting, &seed, "first call");
    const uint64_t begin = random_bits(&seed);
    fail_transfer(setting, begin, 0);
    long transfers = fake_cl.transfers, tried = 0, failed = 0;
    expect(transfers > 2, "%ld transfers", transfers);
    for (long at = 1; at <= transfers; at += tap_step(transfers), tried++) {
        failed += fail_transfer(setting, begin, at);
        fail_transfer(setting, begin, 0); /* three in a row would end it */
    }
    expect(failed > tried / 2, "%ld of %ld transfers failed", failed, tried);
    shared->calls = transfers;
    expect_sums(symbol_of(setting));
}

/* ---- quarantine ------------------------------------------------------------------------------ */

static void broken_for_good(void *unused)
{
    const struct setting *setting = &shared->setting;
    const char *symbol = symbol_of(setting);
    uint64_t seed = shared->seed;
    (void)unused;
    start(setting);
    run_case(setting, &seed, "first call");
    fake_cl.only = 1ull << FAKE_EnqueueNDRangeKernel;
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, true);
    for (int i = 0; i < 5; i++)
        run_case(setting, &seed, "the device is broken");
    expect(reported(symbol, "device") == 1, "device = 1");
    expect(reported(symbol, "recovered") == 3, "recovered = 3");
    expect(reported(symbol, "quarantined") == 2, "quarantined = 2");
    long calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    run_case(setting, &seed, "quarantined");
    expect(calls == 3 && fake_cl.calls == 0, "the device was used after its quarantine");
    expect_sums(symbol);
}

int main(void)
{
    uint64_t seed = tap_seed();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        char name[120];
        *shared = (struct shared){.setting = settings[i], .seed = random_bits(&seed)};
        snprintf(name, sizeof name, "%s: every call of a warm GEMM fails", settings[i].name);
        tap_child(name, 120, warm_gemm, NULL);
        tap_note("%ld calls", shared->calls);
        snprintf(name, sizeof name, "%s: waiting fails", settings[i].name);
        tap_child(name, 60, failing_pairs, NULL);
        snprintf(name, sizeof name, "%s: asking for the status of commands fails",
                 settings[i].name);
        tap_child(name, 60, failing_questions, NULL);
        shared->calls = 0;
        snprintf(name, sizeof name, "%s: a kernel that is not run is noticed", settings[i].name);
        tap_child(name, 120, skip_every_kernel, NULL);
        tap_note("%ld kernels", shared->calls);
        if (settings[i].discrete) {
            snprintf(name, sizeof name, "%s: so it is where no events are kept", settings[i].name);
            tap_child(name, 120, skip_every_kernel, (void *)(uintptr_t)&settings[i]);
            snprintf(name, sizeof name, "%s: a transfer that fails is noticed", settings[i].name);
            tap_child(name, 120, fail_every_transfer, NULL);
            tap_note("%ld transfers", shared->calls);
        }
        snprintf(name, sizeof name, "%s: a device that fails for good is quarantined",
                 settings[i].name);
        tap_child(name, 60, broken_for_good, NULL);
    }
    test_first(&settings[0], &seed, 2);
    test_first(&settings[1], &seed, 3);
    test_first(&unstored, &seed, 1);
    return tap_done();
}
