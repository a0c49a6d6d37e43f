/* CLBLAS_SHIM_VERIFY: in each family of routines bits are flipped in what kernels have computed,
 * and kernels are dropped although their events say that they ran. With VERIFY=1 no wrong result
 * reaches the caller: the next library computes it, and after a flip the device is quarantined;
 * that a kernel was not run is noticed before. So it is where solves and inverses bring back NaNs.
 * First uses are verified once. SPDX-License-Identifier: BSD-3-Clause */
#include "any_call.h"
#include "blas/operator.h"
#include "fakecl.h"
#include "blas/judge.h"
#include "engine/kernel/kernel.h"
#include "shim/route/route.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PARAMS   "gemm.tile=min,trsm.nb=8,trsm.part=8,getrf.nb=8,potrf.nb=8,geqrf.nb=8"
#define STREAMED PARAMS ",gemm.stream=1,gemm.threads=2"

/* ---- faults ---- */

enum fault { FLIP, DROP, FAULTS };

/* Between the test and its children. */
static struct shared {
    clb_routine routine;
    const char *params, *kernel, *verify;
    bool discrete;
    uint64_t seed;
    long injected[FAULTS], noticed[FAULTS], wrong[FAULTS], harmless[FAULTS];
    long checked, absent; /* `absent`: processes whose routine the next library has not */
} * shared;

static struct {
    enum fault kind;
    long at; /* launch; 0: none */
    bool single, done;
    uint64_t seed;
    _Atomic long launches;
} fault;

static cl_int lose(const char *kernel, const cl_ulong *argument)
{
    (void)kernel;
    (void)argument;
    const bool hit = ++fault.launches == fault.at;
    fault.done = fault.done || (hit && fault.kind == DROP);
    return hit && fault.kind == DROP ? FAKE_LOST : CL_SUCCESS;
}

static void flip(cl_command_queue queue)
{
    if (fault.launches == fault.at && fault.kind == FLIP && !fault.done)
        fault.done = fake_cl_flip(queue, fault.single, &fault.seed);
}

static void start(void)
{
    setenv("CLBLAS_SHIM_VERIFY", shared->verify, 1);
    setenv("CLBLAS_SHIM_KERNEL", shared->kernel, 1);
    routed_set_device(shared->discrete);
    routed_set_up("always", shared->params);
    fake_cl.launch = lose;
    fake_cl.launched = flip;
}

static bool is_quarantined(const char *name)
{
    return reported(name, "quarantined") > 0;
}

/* Until one of them is noticed, which ends the use of the device. */
static void inject(void *unused)
{
    enum { TRIALS = 8 };
    const char *name = clb_symbol_at(shared->routine, 0)->next.name;
    uint64_t seed = shared->seed;
    (void)unused;
    start();
    fault.single = any_call_tolerance(shared->routine) > 1e-3;
    for (int warm = 0; warm < 2; warm++) {
        fault.launches = 0;
        uint64_t same = shared->seed;
        const double worst = any_call_run(shared->routine, &same);
        expect(worst < any_call_tolerance(shared->routine), "%s: off by %g without a fault", name,
               worst);
        if (worst < 0) {
            shared->absent++;
            return;
        }
    }
    expect(reported(name, "device") == 2 && !is_quarantined(name), "%s: not computed there", name);
    shared->checked += clb_verified_calls;
    const long launches = fault.launches;
    fault.seed = random_bits(&seed);
    for (int trial = 0; trial < TRIALS && !is_quarantined(name); trial++) {
        fault.kind = (enum fault)((trial + (int)(shared->seed % FAULTS)) % FAULTS);
        fault.launches = 0;
        fault.at = 1 + (long)random_below(&seed, (size_t)launches);
        fault.done = false;
        uint64_t same = shared->seed;
        const double recovered = reported(name, "recovered");
        const double worst = any_call_run(shared->routine, &same);
        const bool wrong = !(worst < any_call_tolerance(shared->routine));
        const bool noticed = is_quarantined(name) || reported(name, "recovered") > recovered;
        if (!fault.done)
            continue;
        shared->injected[fault.kind]++;
        shared->noticed[fault.kind] += noticed;
        shared->wrong[fault.kind] += wrong;
        shared->harmless[fault.kind] += !noticed && !wrong;
        if (strcmp(shared->verify, "1") == 0)
            expect(!wrong, "%s: kernel %ld %s: off by %g", name, fault.at,
                   fault.kind == DROP ? "is dropped" : "has a flipped bit", worst);
    }
}

static const struct {
    const char *name, *kernel, *params;
    bool discrete;
} settings[] = {{"in place", "cpu", PARAMS, false}, {"own memory", "portable", STREAMED, true}};

static void run_setting(size_t s, uint64_t *seed)
{
    static const char *const words[FAULTS] = {"flipped bits", "dropped kernels"};
    memset(shared, 0, sizeof *shared);
    shared->verify = "1";
    shared->kernel = settings[s].kernel;
    shared->params = settings[s].params;
    shared->discrete = settings[s].discrete;
    long failed = 0, children = 0;
    for (int r = 0; r < CLB_ROUTINES; r++) {
        const clb_precision precision = clb_routines[r].precision;
        shared->routine = (clb_routine)r;
        shared->seed = random_bits(seed);
        /* Sampled: one precision of each routine. */
        if (!tap_full() && (size_t)precision != (s == 0 ? CLB_D : CLB_Z))
            continue;
        if (any_call_reads_beyond((clb_routine)r))
            continue;
        children++;
        failed += run_child(60, inject, NULL, NULL, 0) != 0;
    }
    for (int f = 0; f < FAULTS; f++) {
        tap_ok(shared->wrong[f] == 0 && shared->noticed[f] > children / 4,
               "%s: %s: %ld injected, %ld noticed, %ld without effect, %ld wrong", settings[s].name,
               words[f], shared->injected[f], shared->noticed[f], shared->harmless[f],
               shared->wrong[f]);
    }
    tap_ok(failed == 0 && shared->checked >= 2 * (children - shared->absent) &&
               shared->absent < children / 8,
           "%s: %ld processes, %ld failed, %ld calls verified before", settings[s].name, children,
           failed, shared->checked);
}

/* ---- results that are not finite ---- */

/* A number that is read back becomes a NaN: no residual can be made of its column. The check solves
 * for a column of a solution or an inverse; factors of what is finite are finite. */
static void spoil(void *unused)
{
    const char *name = clb_symbol_at(shared->routine, 0)->next.name;
    uint64_t seed = shared->seed, same;
    (void)unused;
    start();
    for (int warm = 0; warm < 2; warm++) {
        fake_cl_flip_read(0, false, 0);
        same = shared->seed;
        expect(any_call_run(shared->routine, &same) >= 0, "%s: not in the next library", name);
    }
    const long at = 1 + (long)random_below(&seed, (size_t)fake_cl.reads);
    fake_cl_flip_read(at, false, seed);
    fake_cl.flip_spoils = true;
    same = shared->seed;
    const double worst = any_call_run(shared->routine, &same);
    expect(worst < any_call_tolerance(shared->routine), "%s: a NaN at read %ld: off by %g", name,
           at, worst);
    shared->injected[FLIP] += fake_cl.flipped;
    shared->noticed[FLIP] += is_quarantined(name);
}

static void test_not_finite(uint64_t *seed)
{
    static const clb_routine routines[] = {
        CLB_ROUTINE_dtrsm,  CLB_ROUTINE_zgetrs, CLB_ROUTINE_dpotrs, CLB_ROUTINE_ztrtri,
        CLB_ROUTINE_dgetri, CLB_ROUTINE_dpotri, CLB_ROUTINE_dgetrf, CLB_ROUTINE_zgetrf,
        CLB_ROUTINE_zgesv,  CLB_ROUTINE_dpotrf, CLB_ROUTINE_zgeqrf};
    const size_t children = (tap_full() ? 3 : 2) * CLB_COUNT_OF(routines);
    long failed = 0;
    *shared =
        (struct shared){.verify = "1", .kernel = "portable", .params = STREAMED, .discrete = true};
    for (size_t i = 0; i < children; i++) {
        shared->routine = routines[i % CLB_COUNT_OF(routines)];
        shared->seed = random_bits(seed);
        failed += run_child(60, spoil, NULL, NULL, 0) != 0;
    }
    tap_ok(failed == 0 && shared->noticed[FLIP] > (long)children / 4,
           "NaNs in what factorisations, solves and inverses bring back: %ld made, %ld noticed, "
           "%ld failed",
           shared->injected[FLIP], shared->noticed[FLIP], failed);
}

/* ---- factors that need not be finite ---- */

/* LU of the identity with one pivot changed, and a NaN in the last row of a column. Libraries
 * multiply by a pivot's reciprocal, or that of its square: where that overflows, its column and
 * those on its right need not be finite. Cholesky that ends at the pivot, which A has. */
static const struct {
    clb_routine routine;
    double pivot; /* number PIVOT */
    int spoilt;   /* the column; negative: none */
    bool is_right;
} factors[] = {
    {CLB_ROUTINE_dgetrf, 1, -1, true},      {CLB_ROUTINE_dgetrf, 1, 3, false},
    {CLB_ROUTINE_dgetrf, 5e-309, 2, true},  {CLB_ROUTINE_dgetrf, -5e-309, 4, true},
    {CLB_ROUTINE_dgetrf, 5e-309, 1, false}, {CLB_ROUTINE_dgetrf, 1e-300, 2, false},
    {CLB_ROUTINE_dgetrf, 0, 2, false},      {CLB_ROUTINE_sgetrf, 2e-39, 2, true},
    {CLB_ROUTINE_sgetrf, 1e-30, 2, false},  {CLB_ROUTINE_zgetrf, 5e-155, 2, true},
    {CLB_ROUTINE_zgetrf, -5e-155, 3, true}, {CLB_ROUTINE_zgetrf, 5e-155, 0, false},
    {CLB_ROUTINE_zgetrf, 1e-140, 2, false}, {CLB_ROUTINE_cgetrf, 1e-20, 2, true},
    {CLB_ROUTINE_cgetrf, 1e-10, 2, false},  {CLB_ROUTINE_dpotrf, -1, -1, true},
    {CLB_ROUTINE_dpotrf, 1, -1, false},     {CLB_ROUTINE_cpotrf, 1, -1, false},
};
enum { ORDER = 5, PIVOT = 2 };

static void put(clb_precision precision, void *matrix, size_t i, size_t j, double value)
{
    const size_t at = (i + j * ORDER) * clb_precision_parts(precision);
    if (clb_precision_real_size(precision) == sizeof(float))
        ((float *)matrix)[at] = (float)value;
    else
        ((double *)matrix)[at] = value;
}

static void factors_with_nans(void *unused)
{
    static struct clb_runtime runtime;
    static struct clb_gemm_variant variant;
    (void)unused;
    setenv("CLBLAS_SHIM_VERIFY", "1", 1);
    for (size_t f = 0; f < CLB_COUNT_OF(factors); f++) {
        double a[2 * ORDER * ORDER] = {0};
        int32_t ipiv[ORDER], info = 0;
        struct clb_call call = {.routine = factors[f].routine,
                                .kind = clb_routines[factors[f].routine].kind,
                                .precision = clb_routines[factors[f].routine].precision,
                                .m = ORDER,
                                .n = ORDER,
                                .lda = ORDER,
                                .a = a,
                                .ipiv = ipiv,
                                .info = &info};
        struct clb_entry entry = {.symbol = clb_symbol_at(factors[f].routine, 0)};
        struct clb_run run = {
            .entry = &entry, .call = &call, .runtime = &runtime, .variant = &variant};
        for (size_t i = 0; i < ORDER; i++) {
            put(call.precision, a, i, i, 1);
            ipiv[i] = (int32_t)i + 1;
        }
        if (call.kind == CLB_KIND_potrf)
            put(call.precision, a, PIVOT, PIVOT, factors[f].pivot);
        expect(clb_verify_begin(&run) == CLB_REASONS && run.verification != NULL,
               "not to be verified");
        put(call.precision, a, PIVOT, PIVOT, factors[f].pivot);
        info = call.kind == CLB_KIND_potrf ? PIVOT + 1 : 0;
        if (factors[f].spoilt >= 0)
            put(call.precision, a, ORDER - 1, (size_t)factors[f].spoilt, NAN);
        expect(clb_verify_end(&run) == factors[f].is_right,
               "%s: a pivot of %g and a NaN in column %d %s", entry.symbol->next.name,
               factors[f].pivot, factors[f].spoilt,
               factors[f].is_right ? "are refused" : "are accepted");
    }
}

/* ---- which calls ---- */

static long checks_of(const char *verify, int calls)
{
    uint64_t seed = 1;
    if (verify != NULL)
        setenv("CLBLAS_SHIM_VERIFY", verify, 1);
    routed_set_device(false);
    routed_set_up("always", PARAMS);
    for (int i = 0; i < calls; i++) {
        uint64_t same = seed;
        expect(any_call_run(CLB_ROUTINE_dgemm, &same) < 1e-7, "a wrong result");
    }
    return clb_verified_calls;
}

static void share_is_kept(void *unused)
{
    (void)unused;
    const long checks = checks_of("0.25", 20);
    expect(checks == 5, "%ld of 20 calls were verified", checks);
}

static void none_is_verified(void *unused)
{
    (void)unused;
    expect(checks_of("0", 3) == 0, "a call was verified");
}

static void first_use(void *expected)
{
    const long checks = checks_of(NULL, 3);
    expect(checks == *(const long *)expected, "%ld calls were verified", checks);
}

/* A flip in what is not read again has no effect: until one has. */
static void test_unverified(uint64_t *seed)
{
    long failed = 0;
    *shared = (struct shared){.routine = CLB_ROUTINE_dgemm,
                              .verify = "0",
                              .kernel = settings[0].kernel,
                              .params = settings[0].params};
    for (int child = 0; child < 10 && shared->wrong[FLIP] == 0; child++) {
        shared->seed = random_bits(seed);
        failed += run_child(60, inject, NULL, NULL, 0) != 0;
    }
    tap_ok(failed == 0 && shared->wrong[FLIP] > 0, "without checks flipped bits reach the caller");
}

/* In a cache of its own: compiled kernels and what is remembered of them. */
static void test_first_uses(void)
{
    static const long once = 1, never = 0;
    char folder[200], command[240];
    if (!tap_folder(folder, sizeof folder)) {
        tap_ok(false, "a folder for a cache");
        return;
    }
    setenv("CLBLAS_SHIM_CACHE_DIR", folder, 1);
    tap_child("the first use is verified, once", 120, first_use, (void *)(uintptr_t)&once);
    tap_child("another process remembers", 60, first_use, (void *)(uintptr_t)&never);
    unsetenv("CLBLAS_SHIM_CACHE_DIR");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        tap_note("%s is left", folder);
}

/* ---- matrices that several threads apply ----
 */

/* One random matrix in each way of applying it, against plain loops. It is large enough for as many
 * shares as the machine has CPUs. */
static void apply_in_shares(void *unused)
{
    enum { ROWS = 2100, COLS = 2050, LD = 2111 };
    double *const data = malloc((size_t)COLS * LD * sizeof *data);
    double *const largest = malloc(ROWS * sizeof *largest);
    struct clb_sample x, y;
    uint64_t state = shared->seed;
    (void)unused;
    if (data == NULL || largest == NULL || clb_sample_make(&x, ROWS) != CLB_OK ||
        clb_sample_make(&y, ROWS) != CLB_OK)
        abort();
    for (size_t i = 0; i < (size_t)COLS * LD; i++)
        data[i] = random_uniform(&state);
    for (int way = 0; way < 4; way++) {
        const bool square = way >= 2;
        const struct clb_operator m = {.precision = CLB_D,
                                       .data = data,
                                       .rows = square ? COLS : ROWS,
                                       .cols = COLS,
                                       .ld = LD,
                                       .part = square ? 'L' : 0,
                                       .mirrored = square,
                                       .transposed = way == 1 || way == 3};
        const size_t rows = clb_operator_rows(&m), cols = clb_operator_cols(&m);
        x.n = cols;
        y.n = rows;
        for (size_t j = 0; j < cols; j++) {
            x.size[j] = fabs(random_uniform(&state));
            for (size_t r = 0; r < CLB_VECTORS; r++)
                x.re[r][j] = random_bits(&state) % 2 == 0 ? x.size[j] : -x.size[j];
        }
        clb_operator_apply(&m, &x, &y, true);
        if (!square)
            clb_operator_columns(&m, CLB_EVERY, NULL, largest);
        for (size_t i = 0; i < rows; i++) {
            double sum[CLB_VECTORS] = {0}, size = 0;
            for (size_t j = 0; j < cols; j++) {
                const bool swap = square ? i < j : m.transposed;
                const double a = data[(swap ? j : i) + (swap ? i : j) * LD];
                size += a * x.size[j] * a * x.size[j];
                for (size_t r = 0; r < CLB_VECTORS; r++)
                    sum[r] += a * x.re[r][j];
            }
            for (size_t r = 0; r < CLB_VECTORS; r++)
                expect(fabs(y.re[r][i] - sum[r]) <= 1e-12 * sqrt(size),
                       "way %d: entry %zu of vector %zu is %g, not %g", way, i, r, y.re[r][i],
                       sum[r]);
            expect(fabs(y.size[i] - sqrt(size)) <= 1e-12 * sqrt(size),
                   "way %d: size %zu is %g, not %g", way, i, y.size[i], sqrt(size));
        }
        for (size_t j = 0; j < cols && !square; j++) {
            double most = 0;
            for (size_t i = 0; i < rows; i++)
                most = fmax(most, fabs(data[m.transposed ? j + i * LD : i + j * LD]));
            expect(largest[j] == most, "way %d: column %zu has %g, not %g", way, j, largest[j],
                   most);
        }
    }
    exit(expect_failures() != 0);
}

/* Two errors of a row that cancel where their columns have the same signs in all vectors: some
 * pairs are missed by vectors, none where every entry is judged, as checks of kernels do. */
static void pairs_that_cancel(void *unused)
{
    enum { N = 12 };
    const double one = 1, zero = 0;
    const struct clb_before before[CLB_CALL_MATRICES] = {{0}};
    struct clb_call call = clb_call_of(CLB_ROUTINE_dgemm);
    double a[N * N] = {0}, b[N * N], c[N * N];
    uint64_t state = shared->seed;
    long missed = 0;
    (void)unused;
    for (size_t i = 0; i < (size_t)N * N; i++) {
        a[i] = i % (N + 1) == 0;
        b[i] = 0.75 + random_uniform(&state) / 8;
    }
    call.m = call.n = call.k = call.lda = call.ldb = call.ldc = N;
    call.alpha = &one;
    call.beta = &zero;
    call.a = a;
    call.b = b;
    call.c = c;
    for (size_t first = 0; first < N; first++) {
        for (size_t second = 0; second < first; second++) {
            struct clb_judged judged = {.call = &call, .before = before};
            struct clb_verdict by_vectors, by_entries;
            memcpy(c, b, sizeof c);
            c[first * N] += 0.125;
            c[second * N] -= 0.125;
            if (clb_judge(&judged, &by_vectors) != CLB_OK)
                abort();
            judged.entries = true;
            if (clb_judge(&judged, &by_entries) != CLB_OK)
                abort();
            missed += by_vectors.failed == NULL;
            expect(by_entries.failed != NULL, "columns %zu and %zu", first, second);
        }
    }
    expect(missed > 0, "vectors have missed none");
    exit(expect_failures() != 0);
}

int main(void)
{
    uint64_t seed = tap_seed();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (size_t s = 0; s < CLB_COUNT_OF(settings); s++)
        run_setting(s, &seed);
    test_not_finite(&seed);
    tap_child("factors that need not be finite", 60, factors_with_nans, NULL);
    tap_child("a quarter of the calls", 60, share_is_kept, NULL);
    tap_child("none of the calls", 60, none_is_verified, NULL);
    test_first_uses();
    test_unverified(&seed);
    tap_child("matrices that several threads apply", 60, apply_in_shares, NULL);
    tap_child("pairs of errors that cancel", 60, pairs_that_cancel, NULL);
    return tap_done();
}
