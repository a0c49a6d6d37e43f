/* The route layer: every reason for which a call is declined, counters that add up, the report. */
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t seed;

/* ---- helpers --------------------------------------------------------------------------------- */

static void set_up(const char *mode)
{
    setenv("CLBLAS_SHIM", mode, 1);
    setenv("CLBLAS_SHIM_PARAMS", "gemm.tile=min", 1);
    if (getenv("CLBLAS_SHIM_STATS") == NULL)
        setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    fake_cl_install();
}

static bool run_one(clb_precision precision, size_t m, size_t n, size_t k, double alpha)
{
    struct gemm_case g = {.precision = precision,
                          .transa = CLB_OP_N,
                          .transb = CLB_OP_T,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = alpha,
                          .beta = 0.5};
    gemm_make(&g, &seed, 3);
    bool taken = routed_gemm(&g);
    gemm_check(&g, "routed");
    gemm_free(&g);
    return taken;
}

/* `count` calls were declined for this reason, and nothing else happened. */
static void expect_only(const char *symbol, const char *reason, double count)
{
    expect(reported(symbol, reason) == count, "%s: %s is %g, not %g", symbol, reason,
           reported(symbol, reason), count);
    expect(reported(symbol, "calls") == count, "%s: %g calls, not %g", symbol,
           reported(symbol, "calls"), count);
    expect_sums(symbol);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void reason_off(void *unused)
{
    (void)unused;
    set_up("off");
    run_one(CLB_D, 40, 40, 40, 1);
    run_one(CLB_D, 0, 40, 40, 1);
    expect_only("dgemm_", "off", 2);
    expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started");
}

static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_SGEMM", "10", 1);
    set_up("auto");
    expect(!run_one(CLB_D, 19, 20, 20, 1), "taken below the threshold");
    expect(!run_one(CLB_S, 9, 10, 10, 1), "taken below the routine's threshold");
    expect_only("dgemm_", "small", 1);
    expect_only("sgemm_", "small", 1);
    expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started for small calls");
    expect(run_one(CLB_D, 20, 20, 20, 1) && run_one(CLB_S, 10, 10, 10, 1),
           "declined at the threshold");
    expect(run_one(CLB_S, 1000, 1, 1, 1), "the threshold is not on the cube root of the work");
    expect(reported("dgemm_", "device") == 1 && reported("sgemm_", "device") == 2, "device");
}

/* Without a threshold of the user's the device's table decides. */
static void reason_small_and_cost_by_table(void *unused)
{
    (void)unused;
    set_up("auto");
    run_one(CLB_S, 100, 100, 100, 1);
    expect_only("sgemm_", "small", 1);
    run_one(CLB_S, 2200, 2200, 28, 1);
    expect(reported("sgemm_", "cost") == 1, "a thin product is worth the device");
    expect_sums("sgemm_");
}

static void reason_quick(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_D, 0, 5, 5, 1);
    run_one(CLB_D, 5, 0, 5, 1);
    run_one(CLB_D, 5, 5, 0, 1);
    run_one(CLB_D, 5, 5, 5, 0);
    expect_only("dgemm_", "quick", 4);
}

static void no_next(const struct clb_target *target, const struct clb_gemm *problem)
{
    (void)target;
    (void)problem;
    expect(false, "an invalid call was computed");
}

static void reason_invalid(void *unused)
{
    static const struct {
        int64_t m, n, k, lda, ldb, ldc;
        clb_op transa, transb;
        bool layout_valid;
    } bad[] = {
        {-1, 5, 5, 5, 5, 5, CLB_OP_N, CLB_OP_N, true},
        {5, -1, 5, 5, 5, 5, CLB_OP_N, CLB_OP_N, true},
        {5, 5, -1, 5, 5, 5, CLB_OP_N, CLB_OP_N, true},
        {-5, -5, 5, 5, 5, 5, CLB_OP_N, CLB_OP_N, true},
        {5, 5, 5, 4, 5, 5, CLB_OP_N, CLB_OP_N, true},
        {5, 5, 5, 5, 4, 5, CLB_OP_N, CLB_OP_N, true},
        {5, 5, 5, 5, 5, 4, CLB_OP_N, CLB_OP_N, true},
        {0, 5, 5, 0, 5, 5, CLB_OP_N, CLB_OP_N, true},
        {5, 5, 6, 5, 6, 5, CLB_OP_T, CLB_OP_N, true},
        {5, 7, 5, 5, 6, 5, CLB_OP_N, CLB_OP_C, true},
        {5, 5, 5, 5, 5, 5, CLB_OP_INVALID, CLB_OP_N, true},
        {5, 5, 5, 5, 5, 5, CLB_OP_N, CLB_OP_INVALID, true},
        {5, 5, 5, 5, 5, 5, CLB_OP_N, CLB_OP_N, false},
    };
    const double one = 1;
    double memory[100] = {0};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct clb_gemm_call call = {.problem = {.precision = CLB_D,
                                                 .transa = bad[i].transa,
                                                 .transb = bad[i].transb,
                                                 .alpha = &one,
                                                 .beta = &one,
                                                 .a = memory,
                                                 .b = memory,
                                                 .c = memory},
                                     .m = bad[i].m,
                                     .n = bad[i].n,
                                     .k = bad[i].k,
                                     .lda = bad[i].lda,
                                     .ldb = bad[i].ldb,
                                     .ldc = bad[i].ldc,
                                     .layout_valid = bad[i].layout_valid};
        expect(!clb_route_gemm(&clb_symbols[CLB_SYMBOL_dgemm_plain], NULL, &call, no_next),
               "call %zu was taken", i);
    }
    expect_only("dgemm_", "invalid", CLB_COUNT_OF(bad));
    expect(reported("dgemm_", "flops") >= 0, "negative flops");
}

static void reason_nodevice(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_DEVICE", "none", 1);
    set_up("always");
    run_one(CLB_D, 30, 30, 30, 1);
    run_one(CLB_D, 30, 30, 30, 1);
    expect_only("dgemm_", "nodevice", 2);
    expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started");
}

static void reason_nofp64(void *unused)
{
    (void)unused;
    fake_cl.no_fp64 = true;
    set_up("always");
    run_one(CLB_D, 30, 30, 30, 1);
    expect_only("dgemm_", "nofp64", 1);
    expect(run_one(CLB_S, 30, 30, 30, 1), "single precision needs no fp64");
}

static void reason_quarantined(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_D, 30, 30, 30, 1);
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, true);
    for (int i = 0; i < 5; i++)
        run_one(CLB_D, 30, 30, 30, 1);
    expect(reported("dgemm_", "device") == 1 && reported("dgemm_", "recovered") == 3 &&
               reported("dgemm_", "quarantined") == 2,
           "not quarantined after three failures");
    expect_sums("dgemm_");
}

static void reason_dry_run(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    set_up("dry-run");
    run_one(CLB_D, 30, 30, 30, 1);
    run_one(CLB_D, 3, 3, 3, 1);
    expect(reported("dgemm_", "dry-run") == 1 && reported("dgemm_", "small") == 1, "dry-run");
    expect(reported("dgemm_", "calls") == 2, "calls");
    expect_sums("dgemm_");
}

static void in_forked_child(void *device_expected)
{
    expect(reported("dgemm_", "calls") == 0, "counted before the first call of a child");
    run_one(CLB_D, 30, 30, 30, 1);
    run_one(CLB_D, 3, 3, 0, 1);
    expect(reported("dgemm_", "calls") == 2, "%g calls in the child", reported("dgemm_", "calls"));
    expect(reported("dgemm_", device_expected != NULL ? "device" : "forked") == 1,
           "the child's call went elsewhere");
    expect_sums("dgemm_");
}

static void reason_forked(void *unused)
{
    static int yes = 1;
    (void)unused;
    set_up("always");
    run_one(CLB_D, 3, 3, 0, 1);
    expect(run_child(30, in_forked_child, &yes, NULL, 0) == 0,
           "a child of a process without device");
    expect(run_one(CLB_D, 30, 30, 30, 1), "the parent's call");
    expect(run_child(30, in_forked_child, NULL, NULL, 0) == 0, "a child of a process with one");
    expect(run_one(CLB_D, 30, 30, 30, 1), "the parent's call after the fork");
    expect(reported("dgemm_", "calls") == 3, "the child's calls are counted in the parent");
}

/* A driver that calls BLAS itself. */
static void call_blas(fake_function function)
{
    if (function == FAKE_Finish || function == FAKE_EnqueueNDRangeKernel) {
        fake_cl.enter = NULL;
        run_one(CLB_S, 20, 20, 20, 1);
    }
}

static void reason_reentrant(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_D, 30, 30, 30, 1);
    fake_cl.enter = call_blas;
    expect(run_one(CLB_D, 30, 30, 30, 1), "the outer call");
    expect_only("sgemm_", "reentrant", 1);
    expect(reported("dgemm_", "device") == 2, "device");
}

/* The next library's own calls to us are routed like any other. */
static void call_again(void)
{
    next_hook = NULL;
    expect(run_one(CLB_S, 20, 20, 20, 1), "a call made by the next library was declined");
}

static void next_is_not_inside(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_S, 20, 20, 20, 1);
    next_hook = call_again;
    run_one(CLB_D, 0, 20, 20, 1);
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, true);
    fake_cl.only = 1ull << FAKE_EnqueueNDRangeKernel;
    next_hook = call_again;
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, false);
    expect(run_one(CLB_S, 20, 20, 20, 1), "recovered");
    expect(reported("sgemm_", "recovered") == 1 && reported("sgemm_", "device") == 3, "counters");
    expect_sums("sgemm_");
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A table's limit that no tile fits into. */
static void memory_is_short(void *discrete)
{
    setenv("CLBLAS_SHIM_MEMORY", "2K", 1);
    fake_cl.discrete = discrete != NULL;
    setenv("CLBLAS_SHIM_DEVICE", discrete != NULL ? "gpu" : "cpu", 1);
    set_up("always");
    for (int i = 0; i < 5; i++)
        run_one(CLB_D, 60, 60, 60, 1);
    expect_only("dgemm_", "nomemory", 5);
}

/* Allocations fail, now and then and for good: nothing is wrong with the device. */
static void allocation_fails(void *discrete)
{
    fake_cl.discrete = discrete != NULL;
    setenv("CLBLAS_SHIM_DEVICE", discrete != NULL ? "gpu" : "cpu", 1);
    set_up("always");
    fake_cl.only = 1ull << FAKE_CreateBuffer;
    for (int i = 0; i < 6; i++) {
        run_one(CLB_D, 30, 30, 30, 1);
        fake_cl_arm(1, CL_MEM_OBJECT_ALLOCATION_FAILURE, true);
    }
    fake_cl_arm(0, 0, false);
    run_one(CLB_D, 30, 30, 30, 1);
    expect(reported("dgemm_", "quarantined") == 0, "quarantined for lack of memory");
    expect(reported("dgemm_", "device") >= 2, "the device is not used again");
    expect_sums("dgemm_");
}

struct contender {
    pthread_t thread;
    uint64_t seed;
};

static void *contend(void *argument)
{
    struct contender *self = argument;
    for (int i = 0; i < 40; i++) {
        struct gemm_case g;
        routed_random(&g, CLB_D, 60, &self->seed);
        routed_gemm(&g);
        gemm_check(&g, "contended");
        gemm_free(&g);
    }
    return NULL;
}

/* Threads that compete for less memory than they need together: what can't have it declines, what
 * can have it no longer is finished by the next library, and nothing is held against the device. */
static void contended_memory(void *discrete)
{
    struct contender contenders[4];
    fake_cl.discrete = discrete != NULL;
    setenv("CLBLAS_SHIM_DEVICE", discrete != NULL ? "gpu" : "cpu", 1);
    setenv("CLBLAS_SHIM_MEMORY", discrete != NULL ? "5M" : "100K", 1);
    set_up("always");
    setenv("CLBLAS_SHIM_PARAMS", "gemm.tile=min,gemm.threads=8", 1);
    run_one(CLB_D, 30, 30, 30, 1);
    for (size_t i = 0; i < CLB_COUNT_OF(contenders); i++) {
        contenders[i].seed = random_bits(&seed);
        pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(contenders); i++)
        pthread_join(contenders[i].thread, NULL);
    expect(reported("dgemm_", "quarantined") == 0, "quarantined");
    expect(reported("dgemm_", "calls") == 161, "%g calls", reported("dgemm_", "calls"));
    expect(fake_cl.peak_bytes <= (discrete != NULL ? 5 << 20 : 100 << 10), "%lld bytes",
           (long long)fake_cl.peak_bytes);
    tap_note("%g on the device, %g in part, %g declined for memory", reported("dgemm_", "device"),
             reported("dgemm_", "recovered"), reported("dgemm_", "nomemory"));
    expect_sums("dgemm_");
}

/* ---- the report ------------------------------------------------------------------------------ */

static char directory[] = "/tmp/clb-route-XXXXXX";

static void report_calls(void)
{
    run_one(CLB_D, 30, 30, 30, 1);
    run_one(CLB_S, 30, 30, 30, 1);
    run_one(CLB_D, 30, 0, 30, 1);
}

static void *report_and_exit(void *unused)
{
    (void)unused;
    report_calls();
    exit(expect_failures() != 0);
}

/* Ends with exit() in another thread, after having forked a child that exits too. */
static void write_reports(void *unused)
{
    pthread_t thread;
    (void)unused;
    expect(chdir(directory) == 0, "chdir");
    setenv("CLBLAS_SHIM_STATS", "report-%p.json", 1);
    set_up("always");
    run_one(CLB_D, 30, 30, 30, 1);
    expect(chdir("/") == 0, "chdir");
    pid_t child = fork();
    if (child == 0) {
        run_one(CLB_D, 3, 3, 3, 1);
        exit(expect_failures() != 0);
    }
    int status = -1;
    expect(waitpid(child, &status, 0) == child && status == 0, "the child");
    pthread_create(&thread, NULL, report_and_exit, NULL);
    pthread_join(thread, NULL);
}

static void write_report_twice(void *unused)
{
    (void)unused;
    char path[64];
    snprintf(path, sizeof path, "%s/same.json", directory);
    setenv("CLBLAS_SHIM_STATS", path, 1);
    set_up("off");
    run_one(CLB_D, 3, 3, 3, 1);
    exit(expect_failures() != 0);
}

static void write_no_report(void *unused)
{
    (void)unused;
    char path[64];
    snprintf(path, sizeof path, "%s/none.json", directory);
    setenv("CLBLAS_SHIM_STATS", path, 1);
    set_up("always");
    clb_route_configure();
    exit(0);
}

static void write_table(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_STATS", "-", 1);
    set_up("always");
    report_calls();
    exit(expect_failures() != 0);
}

static int count_files(const char *pattern)
{
    char command[200];
    int count = -1;
    snprintf(command, sizeof command, "ls %s/%s 2>/dev/null | wc -l", directory, pattern);
    FILE *list = popen(command, "r");
    if (list == NULL || fscanf(list, "%d", &count) != 1)
        count = -1;
    if (list != NULL)
        pclose(list);
    return count;
}

/* Every report through a parser that knows the keys; 77 without one. */
static void check_reports(void)
{
    char command[400];
    const char *python = getenv("PYTHON3"), *source = getenv("srcdir");
    if (python == NULL || *python == '\0' || source == NULL) {
        tap_skip("no python3", "reports have exactly the keys that are documented");
        return;
    }
    snprintf(command, sizeof command, "'%s' '%s/testing/unit/check_report.py' %s/*.json*", python,
             source, directory);
    fflush(NULL);
    tap_ok(system(command) == 0, "reports have exactly the keys that are documented");
}

static void test_reports(void)
{
    char text[4096], remove[64];
    if (mkdtemp(directory) == NULL)
        return;
    tap_child("exit in another thread, after a fork", 60, write_reports, NULL);
    tap_ok(count_files("report-*.json") == 2, "a report of each process");
    tap_child("a report", 60, write_report_twice, NULL);
    tap_child("another of the same name", 60, write_report_twice, NULL);
    tap_ok(count_files("same.json*") == 1, "the report of an earlier process is replaced");
    tap_child("no calls", 60, write_no_report, NULL);
    tap_ok(count_files("none.json*") == 0, "no calls, no report");
    tap_ok(run_child(60, write_table, NULL, text, sizeof text) == 0 &&
               strstr(text, "dgemm_") != NULL && strstr(text, "quick:1") != NULL,
           "a table on standard error");
    check_reports();
    snprintf(remove, sizeof remove, "rm -r %s", directory);
    tap_ok(system(remove) == 0, "clean up");
}

int main(void)
{
    static const struct {
        const char *name;
        void (*body)(void *);
        void *argument;
    } tests[] = {
        {"off", reason_off, NULL},
        {"small", reason_small, NULL},
        {"small and cost by the device's table", reason_small_and_cost_by_table, NULL},
        {"quick", reason_quick, NULL},
        {"invalid", reason_invalid, NULL},
        {"nodevice", reason_nodevice, NULL},
        {"nofp64", reason_nofp64, NULL},
        {"quarantined", reason_quarantined, NULL},
        {"dry-run", reason_dry_run, NULL},
        {"forked", reason_forked, NULL},
        {"reentrant", reason_reentrant, NULL},
        {"calls that the next library makes", next_is_not_inside, NULL},
        {"nomemory, in place", memory_is_short, NULL},
        {"nomemory, own memory", memory_is_short, &seed},
        {"failing allocations, in place", allocation_fails, NULL},
        {"failing allocations, own memory", allocation_fails, &seed},
        {"threads compete for memory, in place", contended_memory, NULL},
        {"threads compete for memory, own memory", contended_memory, &seed},
    };
    seed = tap_seed();
    for (size_t i = 0; i < CLB_COUNT_OF(tests); i++)
        tap_child(tests[i].name, 60, tests[i].body, tests[i].argument);
    test_reports();
    return tap_done();
}
