/* SPDX-License-Identifier: BSD-3-Clause
 * Predictions of both sides: their tables, shapes, and what has been measured. */
#include "shim/route/profile.h"
#include "tap.h"
#include "host/process.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct clb_device h200 = {.name = "NVIDIA H200", .type = CL_DEVICE_TYPE_GPU};
static const struct clb_device other = {.name = "a GPU", .type = CL_DEVICE_TYPE_GPU};
static const struct clb_device cpu = {.name = "a CPU", .type = CL_DEVICE_TYPE_CPU, .unified = true};

/* With rates of an H200, or of a core of a CPU. */
static struct clb_cost_machine machine_of(const struct clb_device *device, int threads)
{
    static const double own[CLB_PRECISIONS] = {200e12, 50e12, 200e12, 50e12},
                        shared[CLB_PRECISIONS] = {100e9, 50e9, 100e9, 50e9};
    struct clb_cost_machine machine = {.device = device, .next = {"", true, threads}, .link = 54e9};
    memcpy(machine.rate, device == &cpu ? shared : own, sizeof own);
    return machine;
}

/* A call of a routine; its options are N and beta is zero. */
static struct clb_cost_call make_call(clb_routine routine, int64_t m, int64_t n, int64_t k)
{
    static const double zero[2];
    struct clb_call call = {.routine = routine,
                            .precision = clb_routines[routine].precision,
                            .m = (size_t)m,
                            .n = (size_t)n,
                            .k = (size_t)k,
                            .nrhs = (size_t)k,
                            .beta = zero};
    return clb_cost_describe(&call);
}

static bool is_for(const struct clb_cost_machine *machine, clb_routine routine, int64_t m,
                   int64_t n, int64_t k)
{
    const struct clb_cost_call call = make_call(routine, m, n, k);
    const struct clb_prediction p = clb_cost_predict(machine, &call);
    expect(clb_prediction_is_known(&p), "%s is not known", clb_routines[routine].name);
    return clb_prediction_is_for_device(&p);
}

static void families(void *unused)
{
    (void)unused;
    for (int r = 0; r < CLB_ROUTINES; r++) {
        const double order = make_call((clb_routine)r, 1000, 1000, 1000).order;
        expect(fabs(order - 1000) < 1 || strstr(clb_routines[r].stem, "sv") != NULL ||
                   strcmp(clb_routines[r].stem, "gemmtr") == 0 ||
                   strcmp(clb_routines[r].stem, "gemmt") == 0,
               "%s has order %g", clb_routines[r].name, order);
    }
}

/* What a call moves: C is not read where beta is zero, B of a solve goes both ways. */
static void bytes(void *unused)
{
    (void)unused;
    expect(make_call(CLB_ROUTINE_dgemm, 10, 20, 30).bytes == 8 * (10 * 30 + 30 * 20 + 10 * 20),
           "products");
    expect(make_call(CLB_ROUTINE_zgetrf, 10, 20, 0).bytes == 16 * 2 * 10 * 20, "LU");
    expect(make_call(CLB_ROUTINE_strsm, 10, 20, 0).bytes == 4 * (10 * 10 + 2 * 10 * 20), "solves");
    const double one = 1;
    const struct clb_call call = {
        .routine = CLB_ROUTINE_dgemm, .precision = CLB_D, .m = 10, .n = 20, .k = 30, .beta = &one};
    expect(clb_cost_describe(&call).bytes == 8 * (10 * 30 + 30 * 20 + 2 * 10 * 20), "C is read");
    /* A Hermitian product's beta is one real number; what is behind it is not beta's. */
    const float real[2] = {0, 1};
    const struct clb_call herk = {
        .routine = CLB_ROUTINE_cherk, .precision = CLB_C, .n = 20, .k = 30, .beta = real};
    expect(clb_cost_describe(&herk).bytes == 8 * (20 * 30 + 20 * 20 / 2), "real beta");
}

/* The crossovers that were measured beside OpenBLAS with 16 threads. */
static void crossovers(void *unused)
{
    static const struct {
        clb_routine routine;
        int64_t below, above;
    } known[] = {{CLB_ROUTINE_dgemm, 300, 800},    {CLB_ROUTINE_sgemm, 400, 1000},
                 {CLB_ROUTINE_zgemm, 200, 500},    {CLB_ROUTINE_cgemm, 250, 500},
                 {CLB_ROUTINE_dsyrk, 350, 1200},   {CLB_ROUTINE_dtrsm, 600, 1000},
                 {CLB_ROUTINE_dgetrf, 150, 1000},  {CLB_ROUTINE_dtrmm, 700, 2000},
                 {CLB_ROUTINE_dpotrf, 350, 1200},  {CLB_ROUTINE_dgetri, 150, 800},
                 {CLB_ROUTINE_dpotri, 300, 1200},  {CLB_ROUTINE_dgeqrf, 800, 2000},
                 {CLB_ROUTINE_dtrtri, 1000, 2000}, {CLB_ROUTINE_dlauum, 700, 1500},
                 {CLB_ROUTINE_dormqr, 200, 2000},  {CLB_ROUTINE_dorgqr, 200, 800},
                 {CLB_ROUTINE_sgesv, 300, 1000},   {CLB_ROUTINE_zposv, 250, 1500}};
    (void)unused;
    const struct clb_cost_machine machine = machine_of(&h200, 16);
    for (size_t i = 0; i < CLB_COUNT_OF(known); i++) {
        const clb_routine r = known[i].routine;
        const int64_t below = known[i].below, above = known[i].above;
        expect(!is_for(&machine, r, below, below, below), "%s at %d", clb_routines[r].name,
               (int)below);
        expect(is_for(&machine, r, above, above, above), "%s at %d", clb_routines[r].name,
               (int)above);
        expect(is_for(&machine, r, 8192, 8192, 8192), "%s at 8192", clb_routines[r].name);
    }
}

/* Few threads, or a library that is not optimised, leave more to the device. */
static void next_library(void *unused)
{
    (void)unused;
    struct clb_cost_machine machine = machine_of(&h200, 1);
    expect(is_for(&machine, CLB_ROUTINE_dgemm, 400, 400, 400), "one thread at 400");
    expect(!is_for(&machine, CLB_ROUTINE_dgemm, 150, 150, 150), "one thread at 150");
    double last = INFINITY;
    for (int threads = 1; threads <= 64; threads *= 2) {
        const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, 1000, 1000, 1000);
        machine.next.threads = threads;
        const double seconds = clb_cost_predict(&machine, &call).next;
        expect(seconds < last, "%d threads are not faster", threads);
        last = seconds;
    }
    machine.next.optimised = false;
    expect(is_for(&machine, CLB_ROUTINE_dgemm, 250, 250, 250), "the reference library at 250");
    /* A device's name is nothing. */
    const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, 1000, 1000, 1000);
    const double seconds = clb_cost_predict(&machine, &call).device;
    machine.device = &other;
    expect(clb_cost_predict(&machine, &call).device == seconds, "another name");
}

/* Of the same work, thin products move more and leave tiles empty; very tall panels are the CPU's.
 */
static void shapes(void *unused)
{
    (void)unused;
    const struct clb_cost_machine machine = machine_of(&h200, 16);
    /* Measured beside 16 threads on one machine: which side was faster by more than a fifth. */
    static const struct {
        clb_routine routine;
        int64_t m, n, k;
        bool device;
    } known[] = {
        {CLB_ROUTINE_dgemm, 32, 32, 32768, true},   {CLB_ROUTINE_dgemm, 512, 512, 8192, true},
        {CLB_ROUTINE_dgemm, 8192, 512, 512, true},  {CLB_ROUTINE_dgemm, 4096, 4096, 256, true},
        {CLB_ROUTINE_dgemm, 1024, 1024, 64, false}, {CLB_ROUTINE_dgemm, 32768, 32, 32, false},
        {CLB_ROUTINE_dgemm, 32, 32768, 32, false},  {CLB_ROUTINE_dgemm, 2048, 128, 128, false},
        {CLB_ROUTINE_dsyrk, 0, 8192, 500, true},    {CLB_ROUTINE_dsyrk, 0, 8192, 64, true},
        {CLB_ROUTINE_dgetrf, 20000, 500, 0, true},  {CLB_ROUTINE_dgetrf, 100000, 128, 0, false},
        {CLB_ROUTINE_dtrsm, 4096, 1, 0, true},      {CLB_ROUTINE_dtrsm, 2000, 1, 0, false},
        {CLB_ROUTINE_dtrmm, 2000, 64, 0, true},     {CLB_ROUTINE_dtrsm, 1000, 100, 0, false},
        {CLB_ROUTINE_dgetrs, 4096, 4096, 1, true},  {CLB_ROUTINE_dgetrs, 2000, 2000, 1, false}};
    for (size_t i = 0; i < CLB_COUNT_OF(known); i++) {
        const clb_routine r = known[i].routine;
        const int64_t m = known[i].m, n = known[i].n, k = known[i].k;
        expect(is_for(&machine, r, m, n, k) == known[i].device, "%s %d x %d x %d",
               clb_routines[r].name, (int)m, (int)n, (int)k);
    }
    /* Measured: 3.2 ms beside 0.66, and 0.11 beside 0.26. */
    expect(is_for(&machine, CLB_ROUTINE_dsyrk, 0, 64, 20000), "a small result for 16 threads");
    expect(!is_for(&machine, CLB_ROUTINE_dgemm, 64, 64, 1024), "a small one of little work");
    const struct clb_cost_machine one = machine_of(&h200, 1);
    const struct clb_cost_call deep = make_call(CLB_ROUTINE_dgemm, 32, 32, 125000);
    const struct clb_cost_call same = make_call(CLB_ROUTINE_dgemm, 504, 504, 504);
    const double ratio = clb_cost_predict(&one, &deep).next / clb_cost_predict(&one, &same).next;
    expect(fabs(ratio - 1) < 0.02, "one thread takes %g times as long", ratio);
    expect(!is_for(&machine, CLB_ROUTINE_dgemm, 100000, 32, 64), "100000 x 32 x 64");
    expect(is_for(&machine, CLB_ROUTINE_dgemm, 8192, 8192, 512), "a deep update");
    expect(!is_for(&machine, CLB_ROUTINE_dgeqrf, 20000, 500, 0), "QR of 20000 x 500");
    const struct clb_cost_call square = make_call(CLB_ROUTINE_dtrsm, 2000, 2000, 0);
    const struct clb_cost_call few = make_call(CLB_ROUTINE_dtrsm, 8000, 125, 0);
    const struct clb_prediction a = clb_cost_predict(&machine, &square);
    const struct clb_prediction b = clb_cost_predict(&machine, &few);
    expect(square.work == few.work && b.device > 2 * a.device && b.next > 2 * a.next,
           "few right-hand sides");
}

/* Predictions grow with the order, whichever table or measurement they are from. */
static void order(void *profile)
{
    struct clb_cost_machine machine = machine_of(&h200, 16);
    machine.profile = profile;
    double device = 0, next = 0;
    for (int64_t n = 64; n < 30000; n += n / 16) {
        const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, n, n, n);
        const struct clb_prediction p = clb_cost_predict(&machine, &call);
        expect(p.device > 0.999 * device && p.next >= next, "n = %d: %g and %g s", (int)n, p.device,
               p.next);
        device = p.device;
        next = p.next;
    }
}

static void learn_both(struct clb_profile *profile, const struct clb_cost_machine *machine,
                       int64_t n, double device, double next)
{
    const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, n, n, n);
    clb_cost_measure(profile, CLB_SIDE_DEVICE, machine, &call, device);
    clb_cost_measure(profile, CLB_SIDE_NEXT, machine, &call, next);
}

/* What is measured counts for the sizes around it, and of products in the next library for other
 * routines, too. */
static void measured(void *unused)
{
    static struct clb_profile profile;
    (void)unused;
    struct clb_cost_machine machine = machine_of(&cpu, 2);
    const struct clb_cost_call update = make_call(CLB_ROUTINE_dsyrk, 1024, 1024, 1024);
    const struct clb_prediction before = clb_cost_predict(&machine, &update);
    machine.profile = &profile;
    struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, 1024, 1024, 1024);
    struct clb_prediction p = clb_cost_predict(&machine, &call);
    const double next = p.next;
    expect(clb_prediction_is_known(&p) && !p.measured, "an empty profile has measured");
    learn_both(&profile, &machine, 512, 4e-3, 3e-3);
    learn_both(&profile, &machine, 1024, 20e-3, 22e-3);
    p = clb_cost_predict(&machine, &call);
    expect(p.measured && fabs(p.device - 20e-3) < 1e-5 && fabs(p.next - 22e-3) < 1e-5,
           "%g and %g s", p.device, p.next);
    expect(clb_prediction_is_for_device(&p), "a gain of a tenth");
    expect(!is_for(&machine, CLB_ROUTINE_dgemm, 512, 512, 512), "a loss");
    expect(!is_for(&machine, CLB_ROUTINE_dgemm, 700, 700, 700), "between both");
    /* Larger ones are as much slower than predicted as the largest, as far as four times its order.
     */
    call = make_call(CLB_ROUTINE_dgemm, 3000, 3000, 3000);
    p = clb_cost_predict(&machine, &call);
    expect(p.measured && fabs(p.device / (20e-3 * pow(3000. / 1024, 3)) - 1) < 0.05,
           "%g and %g s of a larger one", p.device, p.next);
    call = make_call(CLB_ROUTINE_dgemm, 6000, 6000, 6000);
    expect(!clb_cost_predict(&machine, &call).measured, "far above what was measured");
    call = make_call(CLB_ROUTINE_dgemm, 256, 256, 256);
    expect(!clb_cost_predict(&machine, &call).measured, "far below what was measured");
    p = clb_cost_predict(&machine, &update);
    expect(!p.measured && p.device == before.device &&
               fabs(p.next / before.next - 22e-3 / next) < 1e-3,
           "another routine");
    /* A product may be too thin to say anything. */
    call = make_call(CLB_ROUTINE_dgemm, 20000, 2000, 27);
    expect(!clb_cost_measure(&profile, CLB_SIDE_NEXT, &machine, &call, 1), "a flat product counts");
    for (int i = 0; i < CLB_COST_CLASSES; i++)
        expect(clb_cost_class_of(clb_cost_class_work(i)) == i, "class %d", i);
    expect(clb_cost_class_of(1e30) == -1 && clb_cost_class_of(10) == -1, "no class");
}

/* Calls of a shape are as much slower than predicted as one of it was; others are not. */
static void thin(void *unused)
{
    static struct clb_profile profile;
    (void)unused;
    struct clb_cost_machine machine = machine_of(&cpu, 1);
    const struct clb_cost_call wide = make_call(CLB_ROUTINE_dorgqr, 3000, 2000, 100),
                               like = make_call(CLB_ROUTINE_dorgqr, 3200, 1800, 150),
                               square = make_call(CLB_ROUTINE_dorgqr, 1000, 1000, 1000);
    const struct clb_cost_call calls[] = {wide, like, square};
    const double grows[] = {3, 3, 1};
    struct clb_prediction before[3];
    for (int i = 0; i < 3; i++)
        before[i] = clb_cost_predict(&machine, &calls[i]);
    machine.profile = &profile;
    clb_cost_measure(&profile, CLB_SIDE_NEXT, &machine, &wide, 3 * before[0].next);
    for (int i = 0; i < 3; i++) {
        const double ratio = clb_cost_predict(&machine, &calls[i]).next / before[i].next;
        expect(fabs(ratio / grows[i] - 1) < 1e-3, "call %d: %g times as long", i, ratio);
    }
    /* Every shape that a routine has, with about the work that is asked for. */
    int count = 0;
    for (int family = 0; family < CLB_KINDS; family++) {
        for (int shape = 0; shape < CLB_COST_SHAPES; shape++) {
            struct clb_call call;
            if (!clb_cost_reference((clb_kind)family, CLB_C, shape, 1e9, &call))
                continue;
            const struct clb_cost_call cost = clb_cost_describe(&call);
            expect(fabs(cost.work / 1e9 - 1) < 0.05 && (int)cost.family == family,
                   "family %d, %d: %g", family, shape, cost.work);
            count++;
        }
    }
    expect(count == 67, "%d shapes", count);
}

static double device_seconds(const struct clb_cost_machine *machine, clb_routine routine, int64_t m,
                             int64_t n, int64_t k)
{
    const struct clb_cost_call call = make_call(routine, m, n, k);
    return clb_cost_predict(machine, &call).device;
}

/* A CPU device copies a product's result and what a solve reads: deep products take as long as
 * square ones of the same work. */
static void copies(void *unused)
{
    (void)unused;
    const struct clb_cost_machine machine = machine_of(&cpu, 1);
    const double square = device_seconds(&machine, CLB_ROUTINE_dgemm, 512, 512, 512);
    const double deep = device_seconds(&machine, CLB_ROUTINE_dgemm, 64, 64, 32768);
    const double flat = device_seconds(&machine, CLB_ROUTINE_dgemm, 2048, 1024, 64);
    expect(fabs(deep / square - 1) < 1e-3, "a deep product takes %g s, a square %g", deep, square);
    expect(fabs((flat - square) / (8 * 7.0 * 512 * 512 / 20e9) - 1) < 0.01, "a flat one %g s",
           flat);
    const double half = device_seconds(&machine, CLB_ROUTINE_dsyrk, 0, 1024, 128);
    const double whole = device_seconds(&machine, CLB_ROUTINE_dsyrk, 0, 512, 512);
    expect(half > whole, "a flat update takes %g s", half);
    const double few = device_seconds(&machine, CLB_ROUTINE_dtrsm, 1024, 128, 0);
    const double many = device_seconds(&machine, CLB_ROUTINE_dtrsm, 512, 512, 0);
    expect(few > 1.02 * many, "few right-hand sides take %g s, many %g", few, many);
}

/* Beside any number of threads all families are known, and a quicker CPU than the tables' is found
 * by its products, for the families that were not measured, too. */
static void threads(void *unused)
{
    static struct clb_profile profile;
    static const clb_routine routines[] = {
        CLB_ROUTINE_dgetrs, CLB_ROUTINE_dpotrs, CLB_ROUTINE_dtrtri, CLB_ROUTINE_dlauum,
        CLB_ROUTINE_dormqr, CLB_ROUTINE_dorgqr, CLB_ROUTINE_dgesv,  CLB_ROUTINE_dposv};
    (void)unused;
    for (size_t i = 0; i < CLB_COUNT_OF(routines); i++) {
        const struct clb_cost_call call = make_call(routines[i], 1000, 1000, 1000);
        double last = INFINITY;
        for (int count = 1; count <= 16; count *= 2) {
            const struct clb_cost_machine machine = machine_of(&h200, count);
            const struct clb_prediction p = clb_cost_predict(&machine, &call);
            expect(clb_prediction_is_known(&p) && p.next < last, "%s with %d threads: %g s",
                   clb_routines[routines[i]].name, count, p.next);
            last = p.next;
        }
    }
    struct clb_cost_machine machine = machine_of(&h200, 4);
    const struct clb_cost_call product = make_call(CLB_ROUTINE_dgemm, 1024, 1024, 1024);
    const struct clb_cost_call solve = make_call(CLB_ROUTINE_dgesv, 1024, 1024, 1024);
    const struct clb_prediction before = clb_cost_predict(&machine, &solve);
    const double seconds = clb_cost_predict(&machine, &product).next;
    expect(clb_prediction_is_for_device(&before), "dgesv beside 4 threads");
    machine.profile = &profile;
    clb_cost_measure(&profile, CLB_SIDE_NEXT, &machine, &product, seconds / 8);
    const struct clb_prediction after = clb_cost_predict(&machine, &solve);
    expect(fabs(after.next / before.next - 1.0 / 8) < 1e-3 && !after.measured &&
               !clb_prediction_is_for_device(&after),
           "a CPU eight times as fast: %g s", after.next);
}

/* What calls would have saved, where a device is known and where none is. */
static void starts(void *unused)
{
    (void)unused;
    const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, 1000, 1000, 1000);
    const struct clb_cost_call large = make_call(CLB_ROUTINE_dgemm, 8192, 8192, 8192);
    const struct clb_prediction unknown = {.device = NAN, .next = NAN};
    const struct clb_prediction known = {.device = 1, .next = 3};
    struct clb_cost_machine machine = machine_of(NULL, 16);
    machine.rate[CLB_D] = 0;
    const double cold = clb_cost_of_start(&machine, CLB_D);
    const double any = clb_cost_saved(&machine, &call, &unknown);
    expect(clb_cost_saved(&machine, &call, &known) == 2, "not what is predicted");
    machine.next.optimised = false;
    expect(clb_cost_saved(&machine, &call, &unknown) > 10 * any && any > 0, "beside the reference");
    machine = machine_of(&cpu, 16);
    expect(clb_cost_of_start(&machine, CLB_D) < cold, "a cold start is not longer");
    /* A GPU is started by one large product, and by no small one. */
    machine = machine_of(&other, 16);
    const double price = clb_cost_of_start(&machine, CLB_D);
    const struct clb_prediction of_large = clb_cost_predict(&machine, &large),
                                of_small = clb_cost_predict(&machine, &call);
    expect(clb_cost_saved(&machine, &large, &of_large) > price, "fast, yet no start");
    expect(clb_cost_saved(&machine, &call, &of_small) < 0.01 * price, "small");
}

/* Whether the device is the side for calls of the order that so many threads make at once. */
static bool is_for_many(const struct clb_cost_machine *machine, int64_t n, double threads)
{
    const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, n, n, n);
    struct clb_prediction p = clb_cost_predict(machine, &call);
    p.device *= clb_history_crowding(CLB_SIDE_DEVICE, threads - 1, machine->next.threads, 16);
    p.next *= clb_history_crowding(CLB_SIDE_NEXT, threads - 1, machine->next.threads, 16);
    return clb_prediction_is_for_device(&p);
}

/* Calls that are made at once: the device computes one after the other, and threads share the CPUs.
 */
static void crowding(void *unused)
{
    (void)unused;
    struct clb_cost_machine machine = machine_of(&h200, 16);
    for (int side = 0; side < CLB_SIDES; side++) {
        for (int threads = 1; threads <= 64; threads *= 2)
            expect(clb_history_crowding((clb_side)side, 0, threads, 16) == 1, "alone");
    }
    expect(clb_history_crowding(CLB_SIDE_DEVICE, 2.5, 16, 16) == 3.5 &&
               clb_history_crowding(CLB_SIDE_NEXT, 2.5, 16, 16) == 3.5,
           "calls of 16 threads on 16 CPUs");
    machine.next.threads = 1;
    expect(clb_history_crowding(CLB_SIDE_NEXT, 15, 1, 16) == 1 &&
               clb_history_crowding(CLB_SIDE_NEXT, 47, 1, 16) == 3,
           "calls of one thread");
    /* Measured, calls a second on the CPUs and on the device: 451 and 1393, 2777 and 3563; with 16
     * threads a call 212 and 1590; at n = 300 CPUs for each are quicker. */
    expect(is_for_many(&machine, 1024, 16) && is_for_many(&machine, 1024, 64), "n = 1024");
    expect(is_for_many(&machine, 300, 1) && !is_for_many(&machine, 300, 16), "n = 300");
    machine.next.threads = 16;
    expect(is_for_many(&machine, 1024, 1) && is_for_many(&machine, 1024, 64), "16 threads a call");
}

/* The median of the last calls counts, without the first one's surplus or a call that was
 * disturbed.
 */
static void medians(void *unused)
{
    static struct clb_profile profile;
    static const double millis[] = {90, 11, 10, 30, 12, 10.5, 11.5, 20, 21, 22};
    static const double medians[] = {90, 11, 11, 11, 12, 12, 11.5, 11.5, 20, 21};
    (void)unused;
    struct clb_cost_machine machine = machine_of(&cpu, 2);
    machine.profile = &profile;
    const struct clb_cost_call call = make_call(CLB_ROUTINE_dgemm, 1024, 1024, 1024);
    for (size_t i = 0; i < CLB_COUNT_OF(millis); i++) {
        clb_cost_measure(&profile, CLB_SIDE_DEVICE, &machine, &call, 1e-3 * millis[i]);
        clb_cost_measure(&profile, CLB_SIDE_NEXT, &machine, &call, 1);
        const double device = clb_cost_predict(&machine, &call).device;
        expect(fabs(1e3 * device - medians[i]) < 1e-3, "%g ms after call %zu", 1e3 * device, i + 1);
    }
}

/* What a smaller size took longer than a larger one was disturbed. */
static void disturbed(void *unused)
{
    static struct clb_profile profile;
    (void)unused;
    struct clb_cost_machine machine = machine_of(&h200, 16);
    learn_both(&profile, &machine, 512, 3e-3, 1e-3);
    learn_both(&profile, &machine, 1024, 2e-3, 2e-3);
    clb_cost_smooth(&profile);
    machine.profile = &profile;
    const struct clb_cost_call small = make_call(CLB_ROUTINE_dgemm, 512, 512, 512);
    const struct clb_prediction p = clb_cost_predict(&machine, &small);
    expect(fabs(p.device - 2e-3) < 1e-6 && fabs(p.next - 1e-3) < 1e-6, "%g and %g s", p.device,
           p.next);
}

/* The text of a profile is read back; what is damaged is empty. */
static void text(void *unused)
{
    static struct clb_profile profile, back;
    struct clb_text text = {0};
    (void)unused;
    const struct clb_cost_machine owner = {.device = &h200, .next = {"libopenblas.so.0", true, 16}};
    struct clb_cost_machine another = owner, machine = machine_of(&h200, 16);
    another.next.threads = 4;
    char *key = clb_profile_key(&owner), *other_key = clb_profile_key(&another);
    learn_both(&profile, &machine, 1024, 2e-3, 5e-3);
    const struct clb_cost_call thin = make_call(CLB_ROUTINE_zunmqr, 4000, 4000, 250);
    clb_cost_measure(&profile, CLB_SIDE_NEXT, &machine, &thin, 1e-3);
    expect(clb_cost_of_start(&machine, CLB_D) == 0.5, "a GPU's start");
    clb_cost_measure_start(&profile, 0.25);
    clb_cost_measure_start(&profile, 0.125);
    clb_cost_measure_start(&profile, 0.5);
    clb_profile_format(&text, &profile);
    expect(clb_profile_parse(text.data, &back), "it is not read");
    machine.profile = &back;
    expect(back.start.count == 3 && clb_cost_of_start(&machine, CLB_D) == 0.25,
           "of the shortest start");
    for (int side = 0; side < CLB_SIDES; side++) {
        const struct clb_time *a = &profile.side[side].of[0][0][0][0];
        const struct clb_time *b = &back.side[side].of[0][0][0][0];
        for (size_t i = 0; i < sizeof profile.side[0] / sizeof *a; i++)
            expect(fabsf(a[i].seconds - b[i].seconds) < 1e-8F && a[i].count == b[i].count,
                   "time %zu is another", i);
    }
    expect(strcmp(key, other_key) != 0, "another's is read");
    text.data[text.length / 2] = '\n';
    expect(!clb_profile_parse(text.data, &back), "a damaged line is read");
    clb_text_free(&text);
    free(key);
    free(other_key);
}

int main(void)
{
    static struct clb_profile profile;
    struct clb_cost_machine machine = machine_of(&h200, 16);
    tap_child("families of routines", 20, families, NULL);
    tap_child("bytes over the link", 20, bytes, NULL);
    tap_child("crossovers on an H200", 20, crossovers, NULL);
    tap_child("the next library", 20, next_library, NULL);
    tap_child("shapes", 20, shapes, NULL);
    tap_child("predictions grow with the order", 20, order, NULL);
    learn_both(&profile, &machine, 1024, 1.5e-3, 4.5e-3);
    learn_both(&profile, &machine, 2048, 5e-3, 30e-3);
    tap_child("predictions grow with the order where some are measured", 20, order, &profile);
    tap_child("what has been measured", 20, measured, NULL);
    tap_child("thin shapes", 20, thin, NULL);
    tap_child("what a CPU device copies", 20, copies, NULL);
    tap_child("numbers of threads", 20, threads, NULL);
    tap_child("what a start saves", 20, starts, NULL);
    tap_child("calls at once", 20, crowding, NULL);
    tap_child("medians", 20, medians, NULL);
    tap_child("times that were disturbed", 20, disturbed, NULL);
    tap_child("a profile's text", 20, text, NULL);
    return tap_done();
}
