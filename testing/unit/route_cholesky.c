/* xPOTRF, xPOTRS and xPOSV through the route layer with a next library of plain loops: reasons for
 * which a call is declined, info in both integer widths, matrices that are not positive definite,
 * and every OpenCL call of a warm one failing in turn. */
#include "dense.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNSET INT64_C(0x5a5a5a5a5a5a5a5a)

static uint64_t seed;
static _Atomic long next_potrf_calls, next_potrs_calls;
static void (*potrf_hook)(void); /* called by the next library's potrf */

/* ---- the next library ------------------------------------------------------------------------ */

static size_t call_potrf(const struct clb_host_blas *host, const struct clb_call *call)
{
    (void)host;
    next_potrf_calls++;
    if (potrf_hook != NULL)
        potrf_hook();
    return clb_host_call(&dense_next, call);
}

static size_t call_potrs(const struct clb_host_blas *host, const struct clb_call *call)
{
    next_potrs_calls++;
    return dense_potrs(host, call);
}

static const struct clb_host_blas all_of_next = {.of = {[CLB_KIND_potrf] = call_potrf,
                                                        [CLB_KIND_potrs] = call_potrs,
                                                        [CLB_KIND_trsm] = dense_trsm,
                                                        [CLB_KIND_gemm] = dense_gemm}};

/* ---- systems --------------------------------------------------------------------------------- */

enum routine { POTRF, POTRS, POSV, ROUTINES };

struct system {
    enum routine routine;
    struct clb_call call;
    struct dense a, b, expected;
    int64_t info;
    size_t bad; /* the column of a pivot that is not positive, counted from 1; 0: none */
};

static struct clb_symbol *symbol_of(enum routine routine, clb_precision precision)
{
    static const clb_symbol_id ids[ROUTINES][CLB_PRECISIONS] = {
        {CLB_SYMBOL_spotrf_plain, CLB_SYMBOL_dpotrf_plain, CLB_SYMBOL_cpotrf_plain,
         CLB_SYMBOL_zpotrf_plain},
        {CLB_SYMBOL_spotrs_plain, CLB_SYMBOL_dpotrs_plain, CLB_SYMBOL_cpotrs_plain,
         CLB_SYMBOL_zpotrs_plain},
        {CLB_SYMBOL_sposv_plain, CLB_SYMBOL_dposv_plain, CLB_SYMBOL_cposv_plain,
         CLB_SYMBOL_zposv_plain}};
    return &clb_symbols[ids[routine][precision]];
}

/* What X is to be, from a copy of A by the plain loops. */
static void make_expected(struct system *s)
{
    struct clb_call factor = dense_call(CLB_KIND_potrf, s->a.rows, s->a.rows, &s->a);
    factor.upper = s->call.upper;
    expect(clb_host_call(&dense_next, &factor) == 0, "no factor");
    struct clb_call solve = clb_call_as(&factor, CLB_KIND_potrs);
    solve.nrhs = s->b.cols;
    solve.b = dense_data(&s->expected);
    solve.ldb = s->expected.ld;
    clb_host_call(&dense_next, &solve);
    if (s->routine != POTRS)
        dense_restore(&s->a, 0);
    else
        dense_remember(&s->a);
}

static void make_system(struct system *s, enum routine routine, clb_precision precision, size_t n,
                        size_t nrhs, bool indefinite, uint64_t *state)
{
    *s = (struct system){.routine = routine, .info = UNSET};
    bool upper = random_below(state, 2), wide = random_below(state, 2);
    uint64_t same = random_bits(state), again = same;
    dense_make_definite(&s->a, precision, n, 5, upper, 0, state);
    dense_make(&s->b, precision, n, nrhs, 5, &same);
    dense_make(&s->expected, precision, n, nrhs, 5, &again);
    s->call = (struct clb_call){.precision = precision,
                                .upper = upper,
                                .n = n,
                                .nrhs = nrhs,
                                .lda = s->a.ld,
                                .ldb = s->b.ld,
                                .a = dense_data(&s->a),
                                .b = dense_data(&s->b),
                                .info = &s->info,
                                .wide = wide};
    if (n > 0)
        make_expected(s);
    if (indefinite) {
        s->bad = 1 + random_below(state, n);
        dense_set(&s->a, s->bad - 1, s->bad - 1, -1);
        dense_remember(&s->a);
    }
}

static void free_system(struct system *s)
{
    dense_free(&s->a);
    dense_free(&s->b);
    dense_free(&s->expected);
}

/* As the interface would; true when the route layer took the call. */
static bool run_with(struct system *s, struct clb_host_blas next)
{
    return routed_call(symbol_of(s->routine, s->call.precision), &s->call, &next);
}

static bool run(struct system *s)
{
    return run_with(s, all_of_next);
}

static void check_solution(const struct system *s, const char *what, long at)
{
    long double worst = 0, largest = 0;
    for (size_t j = 0; j < s->b.cols; j++) {
        for (size_t i = 0; i < s->b.rows; i++) {
            number x = dense_get(&s->expected, i, j);
            long double off = cabsl(dense_get(&s->b, i, j) - x);
            worst = off <= worst ? worst : off;
            largest = fmaxl(largest, cabsl(x));
        }
    }
    expect(worst <= 1e5L * dense_unit(s->b.precision) * largest, "%s %ld: off by %Lg of %Lg", what,
           at, worst, largest);
}

/* After a call that was computed: results, and nothing beyond them. */
static void check_system(struct system *s, const char *what, long at)
{
    int32_t low;
    memcpy(&low, &s->info, sizeof low);
    int64_t info = s->call.wide ? s->info : low;
    size_t right = s->bad != 0 ? s->bad - 1 : s->a.rows;
    expect(info == (int64_t)s->bad, "%s %ld: info is %lld, not %zu", what, at, (long long)info,
           s->bad);
    expect(s->call.wide || (int32_t)(s->info >> 32) == (int32_t)(UNSET >> 32),
           "%s %ld: written behind info", what, at);
    dense_restore(&s->a, right); /* behind the pivot there may be anything */
    if (s->routine == POTRS) {
        expect(dense_intact_bits(&s->a), "%s %ld: the factor was written", what, at);
    } else {
        long double error = dense_cholesky_error(&s->a, s->call.upper, right);
        expect(error <= (clb_precision_parts(s->a.precision) > 1 ? 3 : 1),
               "%s %ld: backward error %Lg", what, at, error);
    }
    if (s->routine == POTRF || s->bad != 0)
        expect(dense_intact(&s->b), "%s %ld: B was written", what, at);
    else
        check_solution(s, what, at);
    expect(dense_gaps_intact(&s->b), "%s %ld: a gap of B was written", what, at);
}

/* n is the order, twice. */
static bool run_one(int routine, clb_precision precision, size_t m, size_t n, size_t nrhs)
{
    struct system s;
    (void)m;
    make_system(&s, (enum routine)routine, precision, n, nrhs, false, &seed);
    bool taken = run(&s);
    if (taken)
        check_system(&s, "a call", 0);
    else
        expect(s.info == UNSET && dense_intact(&s.b) && dense_intact_bits(&s.a),
               "a declined call has changed something");
    free_system(&s);
    return taken;
}

static const char *symbol_name(int routine, clb_precision precision)
{
    return symbol_of((enum routine)routine, precision)->next.name;
}

static const struct routed_family family = {
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,potrf.nb=8,trsm.nb=8,trsm.part=8",
    symbol_name,
    run_one,
    0,
    ROUTINES,
    9,
    1U << POTRS};

static void set_up(const char *mode)
{
    routed_set_up(mode, family.params);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1); /* 8000 */
    set_up("auto");
    expect(!run_one(POTRF, CLB_S, 36, 36, 1) && run_one(POTRF, CLB_S, 37, 37, 1), "n^3/6");
    expect(!run_one(POTRS, CLB_S, 20, 20, 19) && run_one(POTRS, CLB_S, 20, 20, 20), "n^2*nrhs");
    expect(!run_one(POSV, CLB_S, 20, 20, 16) && run_one(POSV, CLB_S, 20, 20, 17), "their sum");
    expect(reported("spotrf_", "small") == 1 && reported("spotrf_", "device") == 1, "spotrf_");
    expect(reported("spotrs_", "small") == 1 && reported("spotrs_", "device") == 1, "spotrs_");
    expect(reported("sposv_", "small") == 1 && reported("sposv_", "device") == 1, "sposv_");
}

/* A matrix of one block is the next library's, whoever calls it. */
static void reason_cost(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(POTRF, CLB_D, 8, 8, 1);
    run_one(POTRF, CLB_Z, 5, 5, 1);
    expect_declined("dpotrf_", "cost", 1);
    expect_declined("zpotrf_", "cost", 1);
    expect(run_one(POTRF, CLB_D, 9, 9, 1), "two blocks");
    expect(reported("dpotrf_", "flops_device") > 0, "nothing on the device");
}

static void reason_quick(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(POTRS, CLB_D, 7, 7, 0);
    run_one(POSV, CLB_D, 7, 7, 0);
    struct clb_host_blas host = all_of_next;
    const struct clb_call call = {.lda = 1};
    expect(!routed_call(symbol_of(POTRF, CLB_D), &call, &host), "n = 0");
    expect_declined("dpotrf_", "quick", 1);
    expect_declined("dpotrs_", "quick", 1);
    expect_declined("dposv_", "quick", 1);
}

static void reason_invalid(void *unused)
{
    static const struct {
        enum routine routine;
        int64_t n, nrhs, lda, ldb;
        bool uplo;
    } bad[] = {
        {POTRF, -1, 0, 5, 0, true}, {POTRF, 5, 0, 4, 0, true},  {POTRF, 0, 0, 0, 0, true},
        {POTRF, 5, 0, 5, 0, false}, {POTRS, -1, 5, 5, 5, true}, {POTRS, 5, -1, 5, 5, true},
        {POTRS, 5, 5, 4, 5, true},  {POTRS, 5, 5, 5, 4, true},  {POTRS, 5, 5, 5, 5, false},
        {POSV, -1, 5, 5, 5, true},  {POSV, 5, -1, 5, 5, true},  {POSV, 5, 5, 4, 5, true},
        {POSV, 5, 5, 5, 4, true},   {POSV, 5, 5, 5, 5, false},
    };
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct system s;
        make_system(&s, bad[i].routine, CLB_Z, 8, 8, false, &seed);
        s.call.n = (size_t)bad[i].n;
        s.call.nrhs = (size_t)bad[i].nrhs;
        s.call.lda = (size_t)bad[i].lda;
        s.call.ldb = (size_t)bad[i].ldb;
        s.call.invalid = bad[i].uplo ? 0 : 'u';
        expect(!run(&s) && s.info == UNSET && dense_intact_bits(&s.a) && dense_intact(&s.b),
               "call %zu was taken", i);
        free_system(&s);
    }
    expect_declined("zpotrf_", "invalid", 4);
    expect_declined("zpotrs_", "invalid", 5);
    expect_declined("zposv_", "invalid", 5);
}

/* Without a BLAS of the same integers beside the next LAPACK nothing could be finished. */
static void reason_no_siblings(void *unused)
{
    (void)unused;
    set_up("always");
    for (int routine = POTRF; routine < ROUTINES; routine++) {
        struct system s;
        struct clb_host_blas next = all_of_next;
        if (routine == POTRF)
            next.of[CLB_KIND_gemm] = NULL;
        else
            next.of[CLB_KIND_potrs] = NULL;
        make_system(&s, (enum routine)routine, CLB_D, 30, 9, false, &seed);
        expect(!run_with(&s, next) && dense_intact_bits(&s.a), "routine %d was taken", routine);
        free_system(&s);
    }
    expect_declined("dpotrf_", "cost", 1);
    expect_declined("dpotrs_", "cost", 1);
    expect_declined("dposv_", "cost", 1);
}

/* ---- LAPACK's semantics ---------------------------------------------------------------------- */

static void not_definite(void *unused)
{
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < 16; i++) {
        struct system s;
        make_system(&s, i % 2 == 0 ? POSV : POTRF, (clb_precision)(i % 4), 40, 5, true, &seed);
        expect(run(&s) || s.bad <= 8, "declined");
        expect(next_potrs_calls == 0, "the next library has solved");
        if (s.info != UNSET)
            check_system(&s, "an indefinite matrix", (long)i);
        free_system(&s);
    }
}

/* What the next library's potrf calls through our names goes straight back while the device is in
 * use; when the rest is its own it is like any. */
static void reentrant(void *unused)
{
    struct system s;
    (void)unused;
    set_up("always");
    potrf_hook = routed_call_product;
    make_system(&s, POTRF, CLB_D, 30, 1, false, &seed);
    expect(run(&s) && !routed_product_taken && routed_products == 4, "%ld nested calls",
           routed_products);
    check_system(&s, "with nested calls", 0);
    free_system(&s);
    fake_cl.only = 1ull << FAKE_EnqueueNDRangeKernel;
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, false);
    make_system(&s, POTRF, CLB_D, 30, 1, false, &seed);
    expect(run(&s) && routed_product_taken, "a call of the next library was declined");
    check_system(&s, "recovered with nested calls", 0);
    free_system(&s);
    expect(reported("dpotrf_", "recovered") == 1, "recovered");
}

/* ---- failures -------------------------------------------------------------------------------- */

static void call_failing(const struct routed_failing *setting, long at)
{
    struct system s;
    uint64_t state = setting->seed;
    size_t n = 25 + random_below(&state, 8), nrhs = 5 + random_below(&state, 6);
    make_system(&s, (enum routine)setting->routine, setting->precision, n, nrhs, setting->wrong,
                &state);
    if (expect(run(&s), "call %ld: declined", at))
        check_system(&s, setting->name, at);
    free_system(&s);
}

static struct routed_failing failing[] = {
    {"dpotrs in place", NULL, POTRS, CLB_D, false, false, 0},
    {"sposv in own memory", NULL, POSV, CLB_S, true, false, 0},
    {"zposv in place", NULL, POSV, CLB_Z, false, false, 0},
    {"cpotrf in own memory, indefinite", NULL, POTRF, CLB_C, true, true, 0},
};

static const struct tap_test tests[] = {
    {"small", reason_small, NULL},
    {"cost", reason_cost, NULL},
    {"quick", reason_quick, NULL},
    {"invalid", reason_invalid, NULL},
    {"no BLAS beside LAPACK", reason_no_siblings, NULL},
    {"matrices that are not definite", not_definite, NULL},
    {"calls that the next library makes", reentrant, NULL},
};

int main(void)
{
    seed = tap_seed();
    routed_test_usual(&family);
    tap_children(120, tests, CLB_COUNT_OF(tests));
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
