/* xTRSM through the route layer with a next library of plain loops: every reason for which a call
 * is declined, and every OpenCL call of a warm one failing in turn. */
#include "dense.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <stdlib.h>

static uint64_t seed;

struct system {
    struct clb_call problem;
    float scalar_s[2];
    double scalar_d[2];
    struct dense a, b, expected;
};

static size_t next_trsm(const struct clb_host_blas *host, const struct clb_call *call)
{
    return dense_trsm(host, call);
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
    struct clb_call *problem = &s->problem;
    bool single = clb_precision_real_size(precision) == sizeof(float);
    *s = (struct system){.problem = {.kind = CLB_KIND_trsm,
                                     .precision = precision,
                                     .right = random_below(state, 2),
                                     .upper = random_below(state, 2),
                                     .unit = random_below(state, 2),
                                     .transa = (clb_op)random_below(state, 3)},
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
    dense_trsm(&dense_next, problem);
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
    struct clb_host_blas next = {.of = {[CLB_KIND_trsm] = next_trsm}};
    const struct clb_call call = s->problem;
    if (routed_call(symbol_of(s->problem.precision), &call, &next))
        return true;
    next_trsm(NULL, &s->problem);
    return false;
}

static bool run_one(int routine, clb_precision precision, size_t m, size_t n, size_t rhs)
{
    struct system s;
    (void)routine;
    (void)m;
    make_system(&s, precision, n, rhs, &seed);
    bool taken = run(&s);
    check_system(&s, "a call", 0);
    free_system(&s);
    return taken;
}

static const char *symbol_name(int routine, clb_precision precision)
{
    (void)routine;
    return symbol_of(precision)->next.name;
}

static const struct routed_family family = {
    "gemm.tile=min,trsm.nb=4,trsm.part=8", symbol_name, run_one, 0, 1, 40, 0};

static void set_up(const char *mode)
{
    routed_set_up(mode, family.params);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static void single_without_fp64(void *unused)
{
    (void)unused;
    fake_cl.no_fp64 = true;
    set_up("always");
    expect(run_one(0, CLB_C, 30, 30, 30), "single precision needs no fp64");
}

static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD_DTRSM", "20", 1);
    setenv("CLBLAS_SHIM_THRESHOLD", "1000", 1);
    set_up("auto");
    expect(!run_one(0, CLB_D, 20, 20, 39), "taken below the threshold");
    expect(!run_one(0, CLB_S, 100, 100, 100), "another routine's threshold");
    expect_declined("dtrsm_", "small", 1);
    expect_declined("strsm_", "small", 1);
    expect(run_one(0, CLB_D, 20, 20, 40), "declined at the threshold");
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
    struct clb_host_blas next = {.of = {[CLB_KIND_trsm] = next_trsm}};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(calls); i++) {
        struct clb_call call = {.precision = CLB_Z,
                                .alpha = calls[i].alpha,
                                .a = memory,
                                .b = memory,
                                .m = (size_t)calls[i].m,
                                .n = (size_t)calls[i].n,
                                .lda = 5,
                                .ldb = 5};
        expect(!routed_call(symbol_of(CLB_Z), &call, &next), "call %zu was taken", i);
    }
    expect_declined("ztrsm_", "quick", CLB_COUNT_OF(calls));
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
    double memory[3][64] = {{0}};
    struct clb_host_blas next = {.of = {[CLB_KIND_trsm] = next_trsm}};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct clb_call call = {.precision = CLB_D,
                                .right = bad[i].right,
                                .alpha = &one,
                                .a = memory[0],
                                .b = memory[1],
                                .m = (size_t)bad[i].m,
                                .n = (size_t)bad[i].n,
                                .lda = (size_t)bad[i].lda,
                                .ldb = (size_t)bad[i].ldb,
                                .invalid = bad[i].options_valid ? 0 : 'u'};
        expect(!routed_call(symbol_of(CLB_D), &call, &next), "call %zu was taken", i);
    }
    expect_declined("dtrsm_", "invalid", CLB_COUNT_OF(bad));
    expect(dense_next_entries == 0, "an invalid call was computed");
}

/* ---- failures -------------------------------------------------------------------------------- */

static void call_failing(const struct routed_failing *setting, long at)
{
    struct system s;
    uint64_t state = setting->seed;
    size_t n = 9 + random_below(&state, 8), rhs = 17 + random_below(&state, 15);
    make_system(&s, setting->precision, n, rhs, &state);
    expect(run(&s), "call %ld: declined", at);
    check_system(&s, "failing call", at);
    expect(dense_next_entries <= n * rhs, "call %ld: the next library got too much", at);
    free_system(&s);
}

static struct routed_failing failing[] = {
    {"strsm in place", NULL, 0, CLB_S, false, false, 0},
    {"dtrsm in own memory", NULL, 0, CLB_D, true, false, 0},
    {"ctrsm in own memory", NULL, 0, CLB_C, true, false, 0},
    {"ztrsm in place", NULL, 0, CLB_Z, false, false, 0},
};

static const struct tap_test tests[] = {
    {"small", reason_small, NULL},
    {"quick", reason_quick, NULL},
    {"invalid", reason_invalid, NULL},
    {"single precision without fp64", single_without_fp64, NULL},
};

int main(void)
{
    seed = tap_seed();
    routed_test_usual(&family);
    tap_children(60, tests, CLB_COUNT_OF(tests));
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
