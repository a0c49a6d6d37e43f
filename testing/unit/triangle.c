/* xTRSM through the route layer with a next library of plain loops: every reason for which a call
 * is declined, and every OpenCL call of a warm one failing in turn. */
#include "dense.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <stdlib.h>

static uint64_t seed;

struct system {
    struct clb_trsm problem;
    float scalar_s[2];
    double scalar_d[2];
    struct dense a, b, expected;
};

static void next_trsm(const struct clb_target *target, const struct clb_trsm *problem)
{
    (void)target;
    dense_next.trsm(dense_next.context, problem);
}

/* Well conditioned: solutions of any order of operations are close. */
static void make_triangle(struct dense *a)
{
    for (size_t j = 0; j < a->cols; j++) {
        for (size_t i = 0; i < a->rows; i++) {
            number e = dense_get(a, i, j);
            dense_set(a, i, j, i == j ? e + (creall(e) < 0 ? -1 : 1) : e / (long double)a->rows);
        }
    }
    dense_remember(a);
}

static void make_system(struct system *s, clb_precision precision, size_t n, size_t rhs,
                        uint64_t *state)
{
    struct clb_trsm *problem = &s->problem;
    bool single = clb_precision_real_size(precision) == sizeof(float);
    *s = (struct system){.problem = {.precision = precision,
                                     .right = random_below(state, 2),
                                     .upper = random_below(state, 2),
                                     .unit = random_below(state, 2),
                                     .trans = (clb_op)random_below(state, 3)},
                         .scalar_s = {-0.75f, 0.5f},
                         .scalar_d = {-0.75, 0.5}};
    problem->m = problem->right ? rhs : n;
    problem->n = problem->right ? n : rhs;
    problem->alpha = single ? (const void *)s->scalar_s : s->scalar_d;
    dense_make(&s->a, precision, n, n, 5, state);
    make_triangle(&s->a);
    uint64_t again = *state;
    dense_make(&s->b, precision, problem->m, problem->n, 5, state);
    dense_make(&s->expected, precision, problem->m, problem->n, 5, &again);
    problem->a = dense_data(&s->a);
    problem->lda = s->a.ld;
    problem->ldb = s->b.ld;
    problem->b = dense_data(&s->expected);
    dense_next.trsm(dense_next.context, problem);
    problem->b = dense_data(&s->b);
    dense_next_entries = 0;
}

static void free_system(struct system *s)
{
    dense_free(&s->a);
    dense_free(&s->b);
    dense_free(&s->expected);
}

static void check_system(const struct system *s, const char *what, long at)
{
    long double largest = 0, worst = 0;
    for (size_t j = 0; j < s->problem.n; j++) {
        for (size_t i = 0; i < s->problem.m; i++) {
            number right = dense_get(&s->expected, i, j);
            long double error = cabsl(dense_get(&s->b, i, j) - right);
            worst = error <= worst ? worst : error;
            largest = cabsl(right) <= largest ? largest : cabsl(right);
        }
    }
    expect(worst <= 100 * largest * dense_unit(s->problem.precision), "%s %ld: error %Lg of %Lg",
           what, at, worst, largest);
    expect(dense_gaps_intact(&s->b) && dense_intact(&s->a), "%s %ld: something else was written",
           what, at);
}

static struct clb_trsm_call call_of(const struct system *s)
{
    return (struct clb_trsm_call){.problem = s->problem,
                                  .m = (int64_t)s->problem.m,
                                  .n = (int64_t)s->problem.n,
                                  .lda = (int64_t)s->problem.lda,
                                  .ldb = (int64_t)s->problem.ldb,
                                  .options_valid = true};
}

static struct clb_symbol *symbol_of(clb_precision precision)
{
    static const clb_symbol_id ids[CLB_PRECISIONS] = {
        CLB_SYMBOL_strsm_plain, CLB_SYMBOL_dtrsm_plain, CLB_SYMBOL_ctrsm_plain,
        CLB_SYMBOL_ztrsm_plain};
    return &clb_symbols[ids[precision]];
}

/* As the interface would; true when the route layer took the call. */
static bool run(const struct system *s)
{
    struct clb_trsm_call call = call_of(s);
    if (clb_route_trsm(symbol_of(s->problem.precision), NULL, &call, next_trsm))
        return true;
    next_trsm(NULL, &s->problem);
    return false;
}

static bool run_one(clb_precision precision, size_t n, size_t rhs)
{
    struct system s;
    make_system(&s, precision, n, rhs, &seed);
    bool taken = run(&s);
    check_system(&s, "a call", 0);
    free_system(&s);
    return taken;
}

static void set_up(const char *mode)
{
    setenv("CLBLAS_SHIM", mode, 1);
    setenv("CLBLAS_SHIM_PARAMS", "gemm.tile=min,trsm.nb=4,trsm.part=8", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    fake_cl_install();
}

static void expect_only(const char *symbol, const char *reason, double count)
{
    expect(reported(symbol, reason) == count && reported(symbol, "calls") == count,
           "%s: %g of %g calls are %s, not %g", symbol, reported(symbol, reason),
           reported(symbol, "calls"), reason, count);
    expect_sums(symbol);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void reason_off(void *unused)
{
    (void)unused;
    set_up("off");
    run_one(CLB_D, 30, 30);
    expect_only("dtrsm_", "off", 1);
    expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started");
}

static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD_DTRSM", "20", 1);
    setenv("CLBLAS_SHIM_THRESHOLD", "1000", 1);
    set_up("auto");
    expect(!run_one(CLB_D, 20, 39), "taken below the threshold");
    expect(!run_one(CLB_S, 100, 100), "another routine's threshold");
    expect_only("dtrsm_", "small", 1);
    expect_only("strsm_", "small", 1);
    expect(run_one(CLB_D, 20, 40), "declined at the threshold");
    expect(reported("dtrsm_", "flops_device") == 20 * 20 * 40, "%g operations",
           reported("dtrsm_", "flops_device"));
}

static void reason_quick(void *unused)
{
    static const double zero[2] = {0, 0}, one[2] = {1, 0};
    struct {
        int64_t m, n;
        const double *alpha;
    } calls[] = {{0, 5, one}, {5, 0, one}, {5, 5, zero}};
    double memory[64] = {0};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(calls); i++) {
        struct clb_trsm_call call = {
            .problem = {.precision = CLB_Z, .alpha = calls[i].alpha, .a = memory, .b = memory},
            .m = calls[i].m,
            .n = calls[i].n,
            .lda = 5,
            .ldb = 5,
            .options_valid = true};
        expect(!clb_route_trsm(symbol_of(CLB_Z), NULL, &call, next_trsm), "call %zu was taken", i);
    }
    expect_only("ztrsm_", "quick", CLB_COUNT_OF(calls));
}

static void reason_invalid(void *unused)
{
    static const struct {
        int64_t m, n, lda, ldb;
        bool right, options_valid;
    } bad[] = {
        {-1, 5, 5, 5, false, true}, {5, -1, 5, 5, false, true}, {5, 4, 4, 5, false, true},
        {4, 5, 4, 5, true, true},   {5, 5, 5, 4, false, true},  {5, 5, 5, 4, true, true},
        {0, 5, 0, 1, false, true},  {0, 5, 1, 0, false, true},  {5, 5, 5, 5, false, false},
    };
    const double one = 1;
    double memory[64] = {0};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct clb_trsm_call call = {.problem = {.precision = CLB_D,
                                                 .right = bad[i].right,
                                                 .alpha = &one,
                                                 .a = memory,
                                                 .b = memory},
                                     .m = bad[i].m,
                                     .n = bad[i].n,
                                     .lda = bad[i].lda,
                                     .ldb = bad[i].ldb,
                                     .options_valid = bad[i].options_valid};
        expect(!clb_route_trsm(symbol_of(CLB_D), NULL, &call, next_trsm), "call %zu was taken", i);
    }
    expect_only("dtrsm_", "invalid", CLB_COUNT_OF(bad));
    expect(dense_next_entries == 0, "an invalid call was computed");
}

static void reason_nofp64(void *unused)
{
    (void)unused;
    fake_cl.no_fp64 = true;
    set_up("always");
    run_one(CLB_Z, 30, 30);
    expect_only("ztrsm_", "nofp64", 1);
    expect(run_one(CLB_C, 30, 30), "single precision needs no fp64");
}

static void reason_dry_run(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    set_up("dry-run");
    run_one(CLB_S, 30, 30);
    expect_only("strsm_", "dry-run", 1);
}

static void reason_nomemory(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_MEMORY", "2K", 1);
    set_up("always");
    for (int i = 0; i < 4; i++)
        run_one(CLB_D, 40, 40);
    expect_only("dtrsm_", "nomemory", 4);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void run_failing(clb_precision precision, uint64_t state, long at)
{
    struct system s;
    size_t n = 9 + random_below(&state, 8), rhs = 17 + random_below(&state, 15);
    make_system(&s, precision, n, rhs, &state);
    fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
    run(&s);
    long calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    fake_cl.calls = calls;
    check_system(&s, "failing call", at);
    expect(dense_next_entries <= n * rhs, "call %ld: the next library got too much", at);
    free_system(&s);
}

static void fail_every_call(void *argument)
{
    const clb_precision precision = *(const clb_precision *)argument;
    const char *symbol = symbol_of(precision)->next.name;
    uint64_t state = random_bits(&seed);
    long partly = 0;
    set_up("always");
    run_failing(precision, state, 0);
    run_failing(precision, state, 0);
    expect(dense_next_entries == 0, "the device did not compute the first calls");
    long calls = fake_cl.calls;
    for (long at = 1; at <= calls; at++) {
        run_failing(precision, state, at);
        partly += dense_next_entries > 0;
        run_failing(precision, state, 0); /* three failures in a row would end it */
    }
    expect(calls > 20, "only %ld calls", calls);
    expect(partly > 0 && reported(symbol, "recovered") > 0,
           "no call was finished by the next library");
    expect(reported(symbol, "quarantined") == 0, "quarantined");
    expect_sums(symbol);
    tap_note("%ld OpenCL calls", calls);
}

int main(void)
{
    static const struct {
        const char *name;
        void (*body)(void *);
    } reasons[] = {
        {"off", reason_off},           {"small", reason_small},   {"quick", reason_quick},
        {"invalid", reason_invalid},   {"nofp64", reason_nofp64}, {"dry-run", reason_dry_run},
        {"nomemory", reason_nomemory},
    };
    seed = tap_seed();
    for (size_t i = 0; i < CLB_COUNT_OF(reasons); i++)
        tap_child(reasons[i].name, 60, reasons[i].body, NULL);
    for (clb_precision precision = CLB_S; precision < CLB_PRECISIONS; precision++) {
        char name[40] = "?trsm: every OpenCL call fails";
        name[0] = "sdcz"[precision];
        tap_child(name, 120, fail_every_call, &precision);
    }
    return tap_done();
}
