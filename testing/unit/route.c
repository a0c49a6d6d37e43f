/* SPDX-License-Identifier: BSD-3-Clause
 * The route layer: decisions by thresholds, times and history, the start, memory that is short, the
 * report. Reasons that are the same for all routines are in routines.c. */
#include "fakecl.h"
#include "host/process.h"
#include "shim/route/profile.h"
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

/* ---- helpers ---- */

static bool run_one(clb_precision precision, size_t m, size_t n, size_t k)
{
    struct gemm_case g = {.precision = precision,
                          .transa = CLB_OP_N,
                          .transb = CLB_OP_T,
                          .m = m,
                          .n = n,
                          .k = k,
                          .alpha = 1.25,
                          .beta = 0.5};
    gemm_make(&g, &seed, 3);
    bool taken = routed_gemm(&g);
    gemm_check(&g, "routed");
    gemm_free(&g);
    return taken;
}

static void set_up(const char *mode)
{
    routed_set_up(mode, "gemm.tile=min");
}

/* ---- reasons ---- */

static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_SGEMM", "10", 1);
    set_up("auto");
    expect(!run_one(CLB_D, 19, 20, 20), "taken below the threshold");
    expect(!run_one(CLB_S, 9, 10, 10), "taken below the routine's threshold");
    expect_declined("dgemm_", "small", 1);
    expect_declined("sgemm_", "small", 1);
    expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started for small calls");
    expect(run_one(CLB_D, 20, 20, 20) && run_one(CLB_S, 10, 10, 10), "declined at the threshold");
    expect(run_one(CLB_S, 1000, 1, 1), "the threshold is not on the cube root of the work");
    expect(reported("dgemm_", "device") == 1 && reported("sgemm_", "device") == 2, "device");
}

/* No call is the device's below all crossovers, and none that has few operations for what it moves.
 */
static void reason_small_in_auto(void *unused)
{
    (void)unused;
    set_up("auto");
    const size_t small = 39;
    run_one(CLB_S, small, small, small);
    expect_declined("sgemm_", "small", 1);
    expect_sums("sgemm_");
}

static size_t no_next(const struct clb_host_blas *host, const struct clb_call *call)
{
    (void)host;
    (void)call;
    expect(false, "an invalid call was computed");
    return 0;
}

static void mark(bool *marked, size_t begin, size_t rows, size_t cols, size_t ld)
{
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < rows; i++)
            marked[begin + i + j * ld] = true;
    }
}

/* Element by element. Where leading dimensions differ, too much is taken for an overlap. */
static void finds_overlaps(void *unused)
{
    enum { PLACES = 60, MOST = 5, ELEMENTS = PLACES + MOST * (3 * MOST), CALLS = 20000 };
    static double memory[ELEMENTS];
    int overlapping = 0, beside = 0;
    (void)unused;
    for (int t = 0; t < CALLS; t++) {
        bool read[ELEMENTS] = {false}, written[ELEMENTS] = {false};
        const size_t at[] = {random_below(&seed, PLACES), random_below(&seed, PLACES),
                             random_below(&seed, PLACES)};
        const size_t m = 1 + random_below(&seed, MOST), n = 1 + random_below(&seed, MOST),
                     k = 1 + random_below(&seed, MOST), same = MOST + random_below(&seed, 2 * MOST);
        const bool differ = random_below(&seed, 4) == 0;
        const struct clb_call call = {.routine = CLB_ROUTINE_dgemm,
                                      .precision = CLB_D,
                                      .a = memory + at[0],
                                      .b = memory + at[1],
                                      .c = memory + at[2],
                                      .m = m,
                                      .n = n,
                                      .k = k,
                                      .lda = differ ? m : same,
                                      .ldb = differ ? k + 1 : same,
                                      .ldc = same};
        bool exact = false;
        mark(read, at[0], m, k, call.lda);
        mark(read, at[1], k, n, call.ldb);
        mark(written, at[2], m, n, call.ldc);
        for (size_t i = 0; i < ELEMENTS; i++)
            exact = exact || (read[i] && written[i]);
        const bool found = clb_call_overlaps(&call);
        expect(found == exact || (differ && found),
               "m=%d n=%d k=%d, at %zu %zu %zu, ld %d %d %d: %d instead of %d", (int)m, (int)n,
               (int)k, at[0], at[1], at[2], (int)call.lda, (int)call.ldb, (int)call.ldc, found,
               exact);
        overlapping += exact;
        beside += !exact && !differ;
    }
    expect(overlapping > CALLS / 10 && beside > CALLS / 10, "%d overlap, %d don't", overlapping,
           beside);
}

static void reason_quarantined(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_D, 30, 30, 30);
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, true);
    for (int i = 0; i < 5; i++)
        run_one(CLB_D, 30, 30, 30);
    expect(reported("dgemm_", "device") == 1 && reported("dgemm_", "recovered") == 3 &&
               reported("dgemm_", "quarantined") == 2,
           "not quarantined after three failures");
    expect_sums("dgemm_");
}

/* In `auto` the call that pays for the start waits for it, but not for ever; other calls are not
 * kept by a driver that never returns from its start, or from compiling. */
static atomic_int held_function = FAKE_GetPlatformIDs;

static void hold(fake_function function)
{
    while ((int)function == atomic_load(&held_function))
        usleep(1000);
}

/* A call that the tables give to the device. */
static bool run_worthy(void)
{
    return run_one(CLB_D, 1500, 1500, 64);
}

/* Whether a square product is taken, on memory that it has not, beside a next library that computes
 * nothing. */
static struct clb_call square_call(void *a, void *b, void *c, size_t n)
{
    static const double one = 1, zero = 0;
    return (struct clb_call){.alpha = &one,
                             .beta = &zero,
                             .a = a,
                             .b = b,
                             .c = c,
                             .m = n,
                             .n = n,
                             .k = n,
                             .lda = n,
                             .ldb = n,
                             .ldc = n};
}

static bool takes_product(size_t n, struct clb_host_blas *next)
{
    double memory[1] = {0};
    struct clb_call call = square_call(memory, memory, (void *)(uintptr_t)4096, n);
    return routed_call(&clb_symbols[CLB_SYMBOL_dgemm_plain], &call, next);
}

static void reason_starting(void *unused)
{
    struct clb_host_blas next = {.of = {[CLB_KIND_gemm] = no_next}};
    (void)unused;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "0", 1);
    setenv("CLBLAS_SHIM_PARAMS", "", 1);
    set_up("auto");
    fake_cl.enter = hold;
    run_one(CLB_D, 3, 3, 3);
    expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started for a small call");
    expect(!run_worthy() && reported("dgemm_", "cost") == 1 && fake_cl.of[FAKE_GetPlatformIDs] == 0,
           "one call has paid for the start of a device that is not known");
    const double begin = clb_now();
    expect(!takes_product(2800, &next) && reported("dgemm_", "starting") == 1,
           "a call that pays for the start has not started it");
    const double waited = clb_now() - begin;
    expect(waited > 0.5 && waited < 20, "it has waited %g s", waited);
    for (int i = 0; i < 3; i++) {
        expect(!run_worthy(), "taken before the device is ready");
        if (i == 1) /* it starts, but the programs can't be built */
            atomic_store(&held_function, FAKE_BuildProgram);
        usleep(400000);
    }
    const double again = clb_now();
    expect(!takes_product(2800, &next) && reported("dgemm_", "starting") == 5,
           "not declined as starting");
    expect(clb_now() - again < waited / 2, "a later call has waited");
    atomic_store(&held_function, -1);
    int declined = 5;
    while (!run_worthy() && declined++ < 300)
        usleep(100000);
    expect(reported("dgemm_", "device") == 1 && reported("dgemm_", "starting") == declined,
           "no call reaches the device that is ready");
    expect_sums("dgemm_");
}

/* Slower than 16 threads, and faster than one. */
#define FAST "gemm.rate=100"

static struct clb_runtime *device(void)
{
    clb_runtime_state state;
    return clb_runtime_get(&state);
}

/* On a device whose times are known they decide, beside what the next library takes. */
static void by_cost(void *unused)
{
    struct clb_host_blas fast = {
        .of = {[CLB_KIND_gemm] = no_next}, .optimised = true, .threads = 16};
    (void)unused;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 1);
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    const size_t small = 78; /* below all crossovers */
    expect(run_worthy() && !takes_product(small, &fast), "by the tables");
    expect(reported("dgemm_", "small") == 1, "below the table's threshold");
    /* Another call than before: that one is remembered. */
    expect(run_one(CLB_D, 1500, 1500, 65) && run_one(CLB_D, 300, 300, 300),
           "declined beside a slow library");
    expect(!takes_product(400, &fast), "taken beside a fast library");
    expect(reported("dgemm_", "cost") == 1, "not for its cost");
    /* What was taken: the report has what the next library was predicted to take besides. */
    const double predicted = reported("dgemm_", "predicted_next");
    expect(reported("dgemm_", "predicted") == 4 && reported("dgemm_", "measured") == 0,
           "%g calls are predicted", reported("dgemm_", "predicted"));
    expect(predicted > 0.02 && reported("dgemm_", "predicted_device") > 0.001, "%g s are predicted",
           predicted);
    expect(reported("dgemm_", "seconds_saved") < predicted, "all is saved");
    expect(!takes_product(small, &fast), "taken below any crossover");
    expect(reported("dgemm_", "small") == 2, "below any crossover");
    expect_sums("dgemm_");
}

/* A call like one that was declined is declined without being asked about, until a prediction
 * changes. The device loses its double precision, which only a call that is asked about notices. */
static void declined_again(void *unused)
{
    struct clb_host_blas fast = {
        .of = {[CLB_KIND_gemm] = no_next}, .optimised = true, .threads = 16};
    (void)unused;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 1);
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    expect(run_worthy(), "no device");
    struct clb_runtime *runtime = device();
    expect(!takes_product(400, &fast) && reported("dgemm_", "cost") == 1, "taken");
    const double predicted = reported("dgemm_", "predicted_next");
    runtime->device.fp64 = false;
    expect(!takes_product(400, &fast) && reported("dgemm_", "cost") == 2, "it is asked about");
    expect(run_worthy(), "one that is the device's is asked about");
    expect(reported("dgemm_", "predicted_next") > 1.5 * predicted, "without its prediction");
    expect(!takes_product(401, &fast) && reported("dgemm_", "nofp64") == 1, "another size");
    fast.threads = 8;
    expect(!takes_product(400, &fast) && reported("dgemm_", "nofp64") == 2, "other threads");
    fast.threads = 16;
    fast.library = "another";
    expect(!takes_product(400, &fast) && reported("dgemm_", "nofp64") == 3, "another library");
    fast.library = NULL;
    runtime->device.fp64 = true;
    expect(!takes_product(400, &fast) && reported("dgemm_", "cost") == 3, "taken again");
    expect_sums("dgemm_");
}

static void *begin_call(void *expected)
{
    clb_history_begin(CLB_SIDE_DEVICE, 1, *(double *)expected);
    return NULL;
}

static void begin_calls(double expected)
{
    for (int i = 0; i < 128; i++) {
        pthread_t thread;
        expect(pthread_create(&thread, NULL, begin_call, &expected) == 0, "no thread");
        pthread_join(thread, NULL);
    }
}

static struct clb_cost_call square_product(double order)
{
    return (struct clb_cost_call){.family = CLB_KIND_gemm,
                                  .precision = CLB_D,
                                  .work = order * order * order,
                                  .order = order,
                                  .m = order,
                                  .n = order,
                                  .k = order,
                                  .times = 1};
}

/* What was declined because of other calls is asked about again when these have ended. */
static void declined_beside_others(void *unused)
{
    struct clb_host_blas one = {.of = {[CLB_KIND_gemm] = no_next}, .optimised = true, .threads = 1};
    (void)unused;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        return; /* calls of one thread get in each other's way as on the device */
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "0", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_SGEMM", "20", 1); /* waits for the device */
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    expect(run_one(CLB_S, 30, 30, 30), "no device");
    struct clb_runtime *runtime = device();
    begin_calls(1000);
    for (int i = 0; i < 2; i++)
        expect(!takes_product(220, &one), "taken beside others");
    expect(reported("dgemm_", "cost") == 2, "not for its cost");
    begin_calls(0);
    runtime->device.fp64 = false;
    expect(!takes_product(220, &one) && reported("dgemm_", "nofp64") == 1, "it is remembered");
    expect(!takes_product(150, &one) && reported("dgemm_", "nofp64") == 2, "another size");
}

/* Where the next library is nearly as fast some calls go there, 16 in a row, of long ones two;
 * never where routing is frozen. */
static struct row {
    bool frozen;
    double seconds; /* of a call on the device */
    int calls, before;
} of_short = {false, 1e-3, 16, 24}, of_long = {false, 1, 2, 6}, of_frozen = {true, 1e-3, 0, 20};

static void tries_the_other_side(void *argument)
{
    const struct row *row = argument;
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", row->frozen ? "1" : "0", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_SGEMM", "20", 1); /* waits for the device */
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    setenv("CLBLAS_SHIM_LEARN", "1", 1);
    set_up("auto");
    expect(run_one(CLB_S, 30, 30, 30), "no device");
    struct clb_runtime *runtime = clb_runtime_get(&state);
    const struct clb_cost_machine owner = {.device = &runtime->device,
                                           .next = {"", false, (int)sysconf(_SC_NPROCESSORS_ONLN)}};
    const struct clb_cost_call cost = square_product(256);
    /* What is free at first is spent. */
    const struct clb_history_key key = {{99}};
    struct clb_prediction alone = {.device = 3.3555e-3, .next = 1.6778e-3};
    (void)(clb_history_tries(&key, 1, false, &alone) || clb_history_tries(&key, 1, false, &alone));
    int declined = 0, first = -1, last = -1;
    for (int i = 0; i < 2 * row->before; i++) {
        /* However long calls take here. */
        for (int j = 0; j < CLB_TIME_RECENT; j++) {
            clb_profile_learn(&owner, CLB_SIDE_DEVICE, &cost, row->seconds);
            clb_profile_learn(&owner, CLB_SIDE_NEXT, &cost, 1.06 * row->seconds);
        }
        if (run_one(CLB_D, 256, 256, 256) || reported("dgemm_", "cost") == declined)
            continue; /* or kernels are being loaded */
        declined++;
        first = first < 0 ? i : first;
        last = i;
    }
    expect(reported("dgemm_", "device") > 0, "no call is the device's");
    expect(declined == row->calls, "%d calls went to the next library", declined);
    expect(declined == 0 || (first > row->before && last == first + row->calls - 1),
           "they were %d to %d", first, last);
}

/* A factorisation that is left to a fast library. */
static void decline_factorisation(struct clb_entry *entry, struct clb_host_blas *fast)
{
    static double memory[1];
    static const struct clb_target target = {.optimised = true};
    *entry = (struct clb_entry){.symbol = &clb_symbols[CLB_SYMBOL_dgeqrf_plain],
                                .target = &target,
                                .call = {.a = memory,
                                         .tau = memory,
                                         .work = memory,
                                         .m = 20000,
                                         .n = 500,
                                         .lda = 20000,
                                         .lwork = 64 * 500}};
    expect(!clb_route(entry, fast) && entry->encloses, "the factorisation is not left whole");
}

/* As if an error handler jumped out of it. */
static CLB_NOINLINE void leave_factorisation(struct clb_host_blas *fast)
{
    volatile char deep[1 << 16] = {0};
    struct clb_entry entry;
    decline_factorisation(&entry, fast);
    deep[0] = deep[1];
}

/* The products of a factorisation that a fast library computes are in its time, so they stay there;
 * others don't. */
static void inner_calls(void *unused)
{
    struct clb_host_blas fast = {.optimised = true, .threads = 16};
    struct clb_entry entry;
    (void)unused;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 1);
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    expect(run_worthy(), "no device");
    decline_factorisation(&entry, &fast);
    expect(!run_worthy() && reported("dgemm_", "cost") == 1, "a product of it is the device's");
    expect(reported("dgemm_", "inside") == 1 && reported("dgemm_", "flops_inside") > 0,
           "the product is not shown as inside");
    clb_next_end(&entry, clb_now());
    expect(run_worthy() && reported("dgemm_", "inside") == 1, "a product behind it is not");
    clb_history_enclose(&entry.call, false, 0);
    expect(run_worthy() && reported("dgemm_", "inside") == 2, "nor one on the device inside");
    clb_history_enclose(NULL, false, 0);
    leave_factorisation(&fast);
    expect(run_worthy(), "a product is not the device's after one that did not return");
    expect_sums("dgemm_");
}

static size_t factor_nothing(const struct clb_host_blas *host, const struct clb_call *call)
{
    (void)host;
    for (size_t i = 0; i < call->n; i++)
        ((int64_t *)call->ipiv)[i] = (int64_t)i + 1;
    return 0;
}

/* All of a narrow factorisation is left to the next library: it is not the device's again. */
static void leaves_all(void *unused)
{
    enum { M = 3000, N = 60 };
    struct clb_host_blas next = {.threads = 1};
    int ipiv[N], info = 1;
    (void)unused;
    for (int kind = 0; kind < CLB_KINDS; kind++)
        next.of[kind] = factor_nothing;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "0", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_SGEMM", "20", 1); /* waits for the device */
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    expect(run_one(CLB_S, 30, 30, 30), "no device");
    double *a = calloc(M * N, sizeof *a);
    for (size_t i = 0; i < N; i++)
        a[i * (M + 1)] = 1; /* its own factors */
    const struct clb_call call = {.a = a, .ipiv = ipiv, .info = &info, .m = M, .n = N, .lda = M};
    int taken = 0;
    for (int i = 0; i < 20 || (i < 300 && taken == 0); i++)
        taken += routed_call(&clb_symbols[CLB_SYMBOL_dgetrf_plain], &call, &next);
    expect(taken == 1, "%d of 20 calls were taken", taken);
    expect_declined("dgetrf_", "cost", reported("dgetrf_", "calls"));
}

/* The driver's thread, for whom the caller waits. */
static void sleep_at_kernels(fake_function function)
{
    static int left = 5;
    if (function == FAKE_EnqueueNDRangeKernel && left-- > 0)
        usleep(100000);
}

/* What others take of the CPU, here by sleeping, counts as a GPU's time and not as a CPU's. */
static void learns_undisturbed(void *is_gpu)
{
    clb_runtime_state state;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "0", 1);
    setenv("CLBLAS_SHIM_LEARN", "1", 1);
    set_up("always");
    run_one(CLB_D, 64, 64, 64); /* kernels are built and checked */
    struct clb_runtime *runtime = clb_runtime_get(&state);
    runtime->device.type = is_gpu != NULL ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU;
    const struct clb_cost_machine owner = {.device = &runtime->device,
                                           .next = {"", false, (int)sysconf(_SC_NPROCESSORS_ONLN)}};
    const struct clb_cost_call cost = square_product(128);
    /* The other side of a prediction. */
    clb_profile_learn(&owner, CLB_SIDE_NEXT, &cost, 1);
    const double cpu_begin = clb_cpu_now(), begin = clb_now();
    fake_cl.enter = sleep_at_kernels;
    run_one(CLB_D, 128, 128, 128);
    const double cpu = clb_cpu_now() - cpu_begin, slept = clb_now() - begin - cpu;
    const double device = clb_profile_predict(&owner, &cost).device;
    expect(reported("dgemm_", "device") == 2 && slept > 0.3, "it slept %g s", slept);
    expect(is_gpu != NULL ? device > slept : device > 0 && device <= cpu,
           "%g s were learnt of %g of CPU time and %g of sleep", device, cpu, slept);
}

/* A product for which the next library takes long is the device's, also where a profile has next to
 * no time for it. */
static void doubts_a_profile(void *unused)
{
    enum { N = 256 };
    static double memory[3][N * N];
    static const struct clb_target target = {.optimised = true};
    bool taken = false;
    (void)unused;
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "0", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_SGEMM", "20", 1); /* waits for the device */
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    expect(run_one(CLB_S, 30, 30, 30), "no device");
    const struct clb_cost_machine owner = {.device = &device()->device,
                                           .next = clb_decide_next(NULL, &target)};
    const struct clb_cost_call cost = square_product(N);
    for (int j = 0; j < CLB_TIME_RECENT; j++) {
        clb_profile_learn(&owner, CLB_SIDE_DEVICE, &cost, 1e-3);
        clb_profile_learn(&owner, CLB_SIDE_NEXT, &cost, 1e-6);
    }
    for (int i = 0; i < 8 && !taken; i++) {
        struct clb_host_blas next = {.of = {[CLB_KIND_gemm] = no_next}, .optimised = true};
        struct clb_entry entry = {.symbol = &clb_symbols[CLB_SYMBOL_dgemm_plain],
                                  .target = &target,
                                  .call = square_call(memory[0], memory[1], memory[2], N)};
        taken = clb_route(&entry, &next);
        expect(taken || i > 0 || entry.learnt, "the first one is not timed");
        const double begin = clb_now(), cpu_begin = clb_cpu_now();
        while (!taken && clb_cpu_now() < cpu_begin + 0.02)
            ;
        if (!taken)
            clb_next_end(&entry, begin);
    }
    expect(taken && reported("dgemm_", "cost") > 0, "%g are declined", reported("dgemm_", "cost"));
}

/* Smaller calls are declined without a prediction. */
static void smallest_crossover(void *unused)
{
    struct clb_host_blas fast = {
        .of = {[CLB_KIND_gemm] = no_next}, .optimised = true, .threads = 16};
    (void)unused;
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    set_up("auto");
    (void)device();
    for (int i = 0; i < 3; i++)
        expect(!takes_product(150, &fast) && !takes_product(70, &fast), "taken");
    expect(reported("dgemm_", "cost") == 3 && reported("dgemm_", "small") == 3,
           "declined otherwise");
}

/* A mode, threshold or family that the user has set, and CLBLAS_SHIM_REPRODUCIBLE, wait. */
static void waits(void *variable)
{
    char *name = variable, *value = strchr(name, '=');
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "0", 1);
    setenv("CLBLAS_SHIM_PARAMS", FAST, 1);
    (void)putenv(name);
    set_up(strncmp(name, "CLBLAS_SHIM=", (size_t)(value - name) + 1) == 0 ? value + 1 : "auto");
    run_worthy();
    expect(reported("dgemm_", "starting") == 0 &&
               reported("dgemm_", "device") + reported("dgemm_", "dry-run") == 1,
           "the first call did not wait");
}

static void test_waits(void)
{
    static char variables[][40] = {"CLBLAS_SHIM=always",        "CLBLAS_SHIM=dry-run",
                                   "CLBLAS_SHIM_THRESHOLD=300", "CLBLAS_SHIM_THRESHOLD_DGEMM=300",
                                   "CLBLAS_SHIM_KERNEL=cpu",    "CLBLAS_SHIM_REPRODUCIBLE=1"};
    for (size_t i = 0; i < CLB_COUNT_OF(variables); i++)
        tap_child(variables[i], 60, waits, variables[i]);
}

static void in_forked_child(void *device_expected)
{
    expect(reported("dgemm_", "calls") == 0, "counted before the first call of a child");
    run_one(CLB_D, 30, 30, 30);
    run_one(CLB_D, 3, 3, 0);
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
    run_one(CLB_D, 3, 3, 0);
    expect(run_child(30, in_forked_child, &yes, NULL, 0) == 0,
           "a child of a process without device");
    expect(run_one(CLB_D, 30, 30, 30), "the parent's call");
    expect(run_child(30, in_forked_child, NULL, NULL, 0) == 0, "a child of a process with one");
    expect(run_one(CLB_D, 30, 30, 30), "the parent's call after the fork");
    expect(reported("dgemm_", "calls") == 3, "the child's calls are counted in the parent");
}

/* A driver that calls BLAS itself. */
static void call_blas(fake_function function)
{
    if (function == FAKE_Finish || function == FAKE_EnqueueNDRangeKernel) {
        fake_cl.enter = NULL;
        run_one(CLB_S, 20, 20, 20);
    }
}

static void reason_reentrant(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_D, 30, 30, 30);
    fake_cl.enter = call_blas;
    expect(run_one(CLB_D, 30, 30, 30), "the outer call");
    expect_declined("sgemm_", "reentrant", 1);
    expect(reported("dgemm_", "device") == 2, "device");
}

/* The next library's own calls to us are routed like any other. */
static void call_again(void)
{
    next_hook = NULL;
    expect(run_one(CLB_S, 20, 20, 20), "a call made by the next library was declined");
}

static void next_is_not_inside(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(CLB_S, 20, 20, 20);
    next_hook = call_again;
    run_one(CLB_D, 0, 20, 20);
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, true);
    fake_cl.only = 1ull << FAKE_EnqueueNDRangeKernel;
    next_hook = call_again;
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, false);
    expect(run_one(CLB_S, 20, 20, 20), "recovered");
    expect(reported("sgemm_", "recovered") == 1 && reported("sgemm_", "device") == 3, "counters");
    expect_sums("sgemm_");
}

/* ---- memory ---- */

/* Allocations fail, now and then and for good: nothing is wrong with the device. */
static void allocation_fails(void *discrete)
{
    routed_set_device(discrete != NULL);
    set_up("always");
    fake_cl.only = 1ull << FAKE_CreateBuffer;
    for (int i = 0; i < 6; i++) {
        run_one(CLB_D, 30, 30, 30);
        fake_cl_arm(1, CL_MEM_OBJECT_ALLOCATION_FAILURE, true);
    }
    fake_cl_arm(0, 0, false);
    run_one(CLB_D, 30, 30, 30);
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
    routed_set_device(discrete != NULL);
    setenv("CLBLAS_SHIM_MEMORY", discrete != NULL ? "5M" : "100K", 1);
    setenv("CLBLAS_SHIM_PARAMS", "gemm.tile=min,gemm.threads=8", 1);
    set_up("always");
    run_one(CLB_D, 30, 30, 30);
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

/* ---- the report ---- */

static char directory[200];

static void report_calls(void)
{
    run_one(CLB_D, 30, 30, 30);
    run_one(CLB_S, 30, 30, 30);
    run_one(CLB_D, 30, 0, 30);
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
    run_one(CLB_D, 30, 30, 30);
    expect(chdir("/") == 0, "chdir");
    pid_t child = fork();
    if (child == 0) {
        run_one(CLB_D, 3, 3, 3);
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
    char path[240];
    snprintf(path, sizeof path, "%s/same.json", directory);
    setenv("CLBLAS_SHIM_STATS", path, 1);
    set_up("off");
    run_one(CLB_D, 3, 3, 3);
    exit(expect_failures() != 0);
}

static void write_no_report(void *unused)
{
    (void)unused;
    char path[240];
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
    char command[300];
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
    char command[600];
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
    char text[4096], remove[240];
    if (!tap_folder(directory, sizeof directory)) {
        tap_ok(false, "a folder for reports");
        return;
    }
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
    static const struct tap_test tests[] = {
        {"small", reason_small, NULL},
        {"small in auto", reason_small_in_auto, NULL},
        {"by the times of both sides", by_cost, NULL},
        {"calls that are declined again", declined_again, NULL},
        {"not those that were declined beside others", declined_beside_others, NULL},
        {"products of a factorisation that is declined", inner_calls, NULL},
        {"a factorisation that is left whole", leaves_all, NULL},
        {"the other side is tried", tries_the_other_side, &of_short},
        {"by fewer calls that are long", tries_the_other_side, &of_long},
        {"but not where routing is frozen", tries_the_other_side, &of_frozen},
        {"durations on a busy machine, of a CPU", learns_undisturbed, NULL},
        {"durations on a busy machine, of a GPU", learns_undisturbed, &seed},
        {"doubts about a profile", doubts_a_profile, NULL},
        {"the smallest crossover", smallest_crossover, NULL},
        {"matrices that overlap", finds_overlaps, NULL},
        {"quarantined", reason_quarantined, NULL},
        {"starting", reason_starting, NULL},
        {"forked", reason_forked, NULL},
        {"reentrant", reason_reentrant, NULL},
        {"calls that the next library makes", next_is_not_inside, NULL},
        {"failing allocations, in place", allocation_fails, NULL},
        {"failing allocations, own memory", allocation_fails, &seed},
        {"threads compete for memory, in place", contended_memory, NULL},
        {"threads compete for memory, own memory", contended_memory, &seed},
    };
    seed = tap_seed();
    tap_children(60, tests, CLB_COUNT_OF(tests));
    test_waits();
    test_reports();
    return tap_done();
}
