/* xGETRF, xGETRS and xGESV through the route layer with a next library of plain loops: every reason
 * for which a call is declined, pivots and info in both integer widths, calls that the next library
 * makes, and every OpenCL call of a warm one failing in turn. */
#include "dense.h"
#include "fakecl.h"
#include "lapack_next.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST  64
#define UNSET INT64_C(0x5a5a5a5a5a5a5a5a)

static uint64_t seed;

/* ---- systems --------------------------------------------------------------------------------- */

enum routine { GETRF, GETRS, GESV, ROUTINES };

struct system {
    enum routine routine;
    struct clb_call call;
    struct dense a, b, factors; /* factors: what getrs is given, over A's memory otherwise */
    int64_t ipiv[MOST + 2], info, given[MOST + 2];
    size_t zero; /* a column of zeros, counted from 1; 0: none */
};

static struct clb_symbol *symbol_of(enum routine routine, clb_precision precision)
{
    static const clb_symbol_id ids[ROUTINES][CLB_PRECISIONS] = {
        {CLB_SYMBOL_sgetrf_plain, CLB_SYMBOL_dgetrf_plain, CLB_SYMBOL_cgetrf_plain,
         CLB_SYMBOL_zgetrf_plain},
        {CLB_SYMBOL_sgetrs_plain, CLB_SYMBOL_dgetrs_plain, CLB_SYMBOL_cgetrs_plain,
         CLB_SYMBOL_zgetrs_plain},
        {CLB_SYMBOL_sgesv_plain, CLB_SYMBOL_dgesv_plain, CLB_SYMBOL_cgesv_plain,
         CLB_SYMBOL_zgesv_plain}};
    return &clb_symbols[ids[routine][precision]];
}

/* The first `count` integers in the caller's width. */
static void narrow(const struct system *s, int64_t *array, size_t count)
{
    int64_t from[MOST];
    memcpy(from, array, count * sizeof *from);
    for (size_t i = 0; i < count && !s->call.wide; i++)
        array[i] = UNSET;
    for (size_t i = 0; i < count && !s->call.wide; i++) {
        int32_t value = (int32_t)from[i];
        memcpy((char *)array + i * sizeof value, &value, sizeof value);
    }
}

static int64_t integer(const struct system *s, const int64_t *array, size_t index)
{
    int32_t value;
    memcpy(&value, (const char *)array + index * sizeof value, sizeof value);
    return s->call.wide ? array[index] : value;
}

/* For getrs the factors of A are made first, by the plain loops. */
static void make_system(struct system *s, enum routine routine, clb_precision precision, size_t m,
                        size_t n, size_t nrhs, uint64_t *state)
{
    bool wide = random_below(state, 2);
    *s = (struct system){.routine = routine};
    dense_make(&s->a, precision, m, n, 5, state);
    dense_make(&s->b, precision, n, nrhs, 5, state);
    s->factors = s->a;
    for (size_t i = 0; i < MOST + 2; i++)
        s->ipiv[i] = s->given[i] = UNSET;
    s->info = UNSET;
    s->call = (struct clb_call){.precision = precision,
                                .transa = (clb_op)random_below(state, 3),
                                .m = m,
                                .n = n,
                                .nrhs = nrhs,
                                .lda = clb_max(s->a.ld, 1),
                                .ldb = clb_max(s->b.ld, 1),
                                .a = dense_data(&s->a),
                                .b = dense_data(&s->b),
                                .ipiv = s->ipiv,
                                .info = &s->info,
                                .wide = wide};
    if (routine != GETRS)
        return;
    dense_getrf(&s->a, s->given);
    memcpy(s->ipiv, s->given, sizeof s->ipiv);
    narrow(s, s->ipiv, n);
    next_getrs_calls = 0;
}

static void put_zeros(struct system *s, size_t column)
{
    for (size_t i = 0; i < s->a.rows; i++)
        dense_set(&s->a, i, column, 0);
    dense_remember(&s->a);
    s->zero = column + 1;
}

static void free_system(struct system *s)
{
    dense_free(&s->a);
    dense_free(&s->b);
}

/* As the interface would; true when the route layer took the call. */
static bool run_with(struct system *s, struct clb_host_blas *next)
{
    dense_next_entries = 0;
    next_getrf_calls = next_getrs_calls = 0;
    return routed_call(symbol_of(s->routine, s->call.precision), &s->call, next);
}

static bool run(struct system *s)
{
    struct clb_host_blas next = lapack_next;
    return run_with(s, &next);
}

/* Normwise, with LAPACK's threshold: ||B - op(A)*X|| <= 30 n u ||A|| ||X||. */
static void check_solution(const struct system *s, clb_op trans, const char *what, long at)
{
    size_t n = s->a.rows;
    long double norm = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        long double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += trans == CLB_OP_N ? dense_abs(dense_old(&s->a, i, j))
                                     : dense_abs(dense_old(&s->a, j, i));
        norm = sum > norm ? sum : norm;
    }
    for (size_t j = 0; j < s->b.cols; j++) {
        long double residual = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            number e = dense_old(&s->b, i, j);
            for (size_t k = 0; k < n; k++) {
                number t = trans == CLB_OP_N ? dense_old(&s->a, i, k) : dense_old(&s->a, k, i);
                e -= (trans == CLB_OP_C ? conjl(t) : t) * dense_get(&s->b, k, j);
            }
            residual = dense_abs(e) <= residual ? residual : dense_abs(e);
            size = dense_abs(dense_get(&s->b, i, j)) <= size ? size
                                                             : dense_abs(dense_get(&s->b, i, j));
        }
        long double error = residual / ((long double)n * dense_unit(s->a.precision) * norm * size);
        worst = error <= worst ? worst : error;
    }
    expect(worst < 30, "%s %ld: residual %Lg", what, at, worst);
}

static void check_factors(const struct system *s, const char *what, long at)
{
    size_t inner = clb_min(s->a.rows, s->a.cols);
    int64_t ipiv[MOST];
    for (size_t i = 0; i < inner; i++)
        ipiv[i] = integer(s, s->ipiv, i);
    long double error = dense_lu_error(&s->a, ipiv);
    expect(error <= (clb_precision_parts(s->a.precision) > 1 ? 3 : 1), "%s %ld: backward error %Lg",
           what, at, error);
    expect(integer(s, s->info == UNSET ? s->ipiv : &s->info, 0) == (int64_t)s->zero,
           "%s %ld: info is %lld, not %zu", what, at, (long long)integer(s, &s->info, 0), s->zero);
}

/* After a call that was computed: results, and nothing beyond them. */
static void check_system(const struct system *s, const char *what, long at)
{
    size_t count = clb_min(s->a.rows, s->a.cols);
    size_t used = count * (s->call.wide ? sizeof(int64_t) : sizeof(int32_t));
    const int64_t unset = UNSET;
    expect(memcmp((const char *)s->ipiv + used, &unset, sizeof(int32_t)) == 0,
           "%s %ld: written behind ipiv", what, at);
    expect(s->call.wide || (int32_t)(s->info >> 32) == (int32_t)(unset >> 32),
           "%s %ld: written behind info", what, at);
    expect(dense_gaps_intact(&s->a) && dense_gaps_intact(&s->b), "%s %ld: a gap was written", what,
           at);
    if (s->routine != GETRS)
        check_factors(s, what, at);
    else
        expect(integer(s, &s->info, 0) == 0, "%s %ld: info", what, at);
    if (s->routine == GETRF || s->zero != 0)
        expect(dense_intact(&s->b), "%s %ld: B was written", what, at);
    else
        check_solution(s, s->routine == GETRS ? s->call.transa : CLB_OP_N, what, at);
}

static bool run_one(int routine, clb_precision precision, size_t m, size_t n, size_t nrhs)
{
    struct system s;
    make_system(&s, (enum routine)routine, precision, m, n, nrhs, &seed);
    bool taken = run(&s);
    if (taken)
        check_system(&s, "a call", 0);
    else
        expect(s.info == UNSET && dense_intact(&s.b) && (routine == GETRS || dense_intact(&s.a)),
               "a declined call has changed something");
    free_system(&s);
    return taken;
}

static const char *symbol_name(int routine, clb_precision precision)
{
    return symbol_of((enum routine)routine, precision)->next.name;
}

static const struct routed_family family = {
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,getrf.nb=8,trsm.nb=8,trsm.part=8",
    symbol_name,
    run_one,
    0,
    ROUTINES,
    9,
    0};

static void set_up(const char *mode)
{
    routed_set_up(mode, family.params);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static const struct routed_reason reasons[] = {
    {.reason = "quick",
     .mode = "always",
     .call = {{GETRF, CLB_D, 0, 7, 1},
              {GETRF, CLB_D, 7, 0, 1},
              {GETRS, CLB_D, 0, 0, 3},
              {GETRS, CLB_D, 7, 7, 0},
              {GESV, CLB_D, 0, 0, 3},
              {GESV, CLB_D, 7, 7, 0}}},
};

static void single_without_fp64(void *unused)
{
    (void)unused;
    fake_cl.no_fp64 = true;
    set_up("always");
    expect(run_one(GESV, CLB_C, 30, 30, 3), "single precision needs no fp64");
}

/* The work is the number of multiplications with an addition. */
static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1); /* 8000 */
    set_up("auto");
    expect(!run_one(GETRF, CLB_S, 28, 28, 1) && run_one(GETRF, CLB_S, 29, 29, 1), "n^3/3");
    expect(!run_one(GETRF, CLB_S, 58, 17, 1) && run_one(GETRF, CLB_S, 62, 17, 1), "tall");
    expect(!run_one(GETRS, CLB_S, 20, 20, 19) && run_one(GETRS, CLB_S, 20, 20, 20), "n^2*nrhs");
    expect(!run_one(GESV, CLB_S, 20, 20, 13) && run_one(GESV, CLB_S, 20, 20, 14), "their sum");
    expect(reported("sgetrf_", "small") == 2 && reported("sgetrf_", "device") == 2, "getrf");
    expect(reported("sgetrs_", "small") == 1 && reported("sgetrs_", "device") == 1, "getrs");
    expect(reported("sgesv_", "small") == 1 && reported("sgesv_", "device") == 1, "gesv");
}

/* A matrix of one panel is the next library's, whoever calls it. */
static void reason_cost(void *unused)
{
    (void)unused;
    set_up("always");
    run_one(GETRF, CLB_D, 40, 8, 1);
    run_one(GETRF, CLB_D, 5, 5, 1);
    expect_declined("dgetrf_", "cost", 2);
    expect(reported("dgetrf_", "flops_device") == 0, "operations on the device");
    expect(run_one(GETRF, CLB_D, 8, 40, 1), "a panel with columns on its right");
    expect(reported("dgetrf_", "device") == 1 && reported("dgetrf_", "flops_device") > 0, "device");
}

static void reason_invalid(void *unused)
{
    static const struct {
        enum routine routine;
        int64_t m, n, nrhs, lda, ldb;
        clb_op trans;
    } bad[] = {
        {GETRF, -1, 5, 0, 5, 0, CLB_OP_N},      {GETRF, 5, -1, 0, 5, 0, CLB_OP_N},
        {GETRF, 5, 4, 0, 4, 0, CLB_OP_N},       {GETRF, 0, 5, 0, 0, 0, CLB_OP_N},
        {GETRS, -1, -1, 5, 5, 5, CLB_OP_N},     {GETRS, 5, 5, -1, 5, 5, CLB_OP_N},
        {GETRS, 5, 5, 5, 4, 5, CLB_OP_N},       {GETRS, 5, 5, 5, 5, 4, CLB_OP_N},
        {GETRS, 5, 5, 5, 5, 5, CLB_OP_INVALID}, {GETRS, 0, 0, 5, 1, 0, CLB_OP_N},
        {GESV, -1, -1, 5, 5, 5, CLB_OP_N},      {GESV, 5, 5, -1, 5, 5, CLB_OP_N},
        {GESV, 5, 5, 5, 4, 5, CLB_OP_N},        {GESV, 5, 5, 5, 5, 4, CLB_OP_N},
    };
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct system s;
        make_system(&s, bad[i].routine, CLB_Z, 8, 8, 8, &seed);
        dense_remember(&s.a);
        s.call.m = (size_t)bad[i].m;
        s.call.n = (size_t)bad[i].n;
        s.call.nrhs = (size_t)bad[i].nrhs;
        s.call.lda = (size_t)bad[i].lda;
        s.call.ldb = (size_t)bad[i].ldb;
        s.call.transa = bad[i].trans;
        expect(!run(&s) && s.info == UNSET && dense_intact(&s.a) && dense_intact(&s.b),
               "call %zu was taken", i);
        free_system(&s);
    }
    expect_declined("zgetrf_", "invalid", 4);
    expect_declined("zgetrs_", "invalid", 6);
    expect_declined("zgesv_", "invalid", 4);
}

/* Nothing that a device might read out of bounds with. */
static void reason_invalid_pivots(void *unused)
{
    static const int64_t bad[] = {0, -1, 31, INT32_MAX};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct system s;
        make_system(&s, GETRS, CLB_S, 30, 30, 9, &seed);
        size_t at = random_below(&seed, 30);
        if (s.call.wide)
            s.ipiv[at] = bad[i];
        else
            memcpy((char *)s.ipiv + 4 * at, &(const int32_t){(int32_t)bad[i]}, 4);
        expect(!run(&s) && dense_intact(&s.b), "a pivot of %lld was taken", (long long)bad[i]);
        free_system(&s);
    }
    expect_declined("sgetrs_", "invalid", CLB_COUNT_OF(bad));
}

/* Without a BLAS of the same integers beside the next LAPACK nothing could be finished. */
static void reason_no_siblings(void *unused)
{
    struct system s;
    (void)unused;
    set_up("always");
    make_system(&s, GETRF, CLB_D, 30, 30, 3, &seed);
    struct clb_host_blas next = lapack_next;
    next.of[CLB_KIND_trsm] = NULL;
    expect(!run_with(&s, &next), "taken");
    expect_declined("dgetrf_", "cost", 1);
    make_system(&s, GESV, CLB_D, 30, 30, 3, &seed);
    next = lapack_next;
    next.of[CLB_KIND_getrs] = NULL;
    expect(!run_with(&s, &next), "taken");
    make_system(&s, GETRS, CLB_D, 30, 30, 3, &seed);
    next = lapack_next;
    next.of[CLB_KIND_getrs] = NULL;
    expect(!run_with(&s, &next), "taken");
    expect_declined("dgesv_", "cost", 1);
    expect_declined("dgetrs_", "cost", 1);
}

/* ---- LAPACK's semantics ---------------------------------------------------------------------- */

static void singular(void *unused)
{
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < 12; i++) {
        struct system s;
        make_system(&s, i % 2 == 0 ? GESV : GETRF, (clb_precision)(i % 4), 30, 30, 5, &seed);
        put_zeros(&s, random_below(&seed, 30));
        expect(run(&s), "declined");
        check_system(&s, "a singular matrix", (long)i);
        expect(next_getrs_calls == 0, "the next library has solved");
        free_system(&s);
    }
}

/* In `auto` few right-hand sides are the next library's. */
static void few_right_hand_sides(void *unused)
{
    struct system s;
    (void)unused;
    setenv("CLBLAS_SHIM_PARAMS", "getrf.nb=64", 1);
    set_up("auto");
    size_t n = 800;
    dense_make(&s.a, CLB_S, n, n, 0, &seed);
    int64_t *ipiv = malloc(n * sizeof *ipiv), info = UNSET;
    float *b = calloc(n, sizeof *b);
    if (ipiv == NULL || b == NULL)
        return;
    s.call = (struct clb_call){.precision = CLB_S,
                               .m = n,
                               .n = n,
                               .nrhs = 1,
                               .lda = n,
                               .ldb = n,
                               .a = dense_data(&s.a),
                               .b = b,
                               .ipiv = ipiv,
                               .info = &info,
                               .wide = true};
    s.routine = GESV;
    expect(run(&s) && info == 0, "declined");
    expect(next_getrs_calls == 1, "the next library solved %ld times", next_getrs_calls);
    expect(reported("sgesv_", "device") == 1 && reported("sgesv_", "seconds_next") > 0, "device");
    s.routine = GETRS;
    expect(!run(&s), "one right-hand side was taken");
    expect(reported("sgetrs_", "cost") + reported("sgetrs_", "small") == 1, "getrs");
    free(ipiv);
    free(b);
    dense_free(&s.a);
}

/* The largest order below the table's threshold, with as many right-hand sides. */
static int64_t order_below(const struct clb_device *device, enum routine routine,
                           clb_precision precision, bool optimised)
{
    struct clb_gemm_tuning tuning;
    const clb_work work = routine == GETRS ? CLB_WORK_SOLVE : CLB_WORK_FACTOR;
    if (clb_tuning_gemm(device, precision, CLB_MATH_DEFAULT, 0, &tuning) != CLB_OK)
        return 0;
    const double edge = clb_tuning_offload(device, precision, &tuning, work, optimised).threshold;
    const double share = routine == GETRF ? cbrt(3) : routine == GESV ? cbrt(0.75) : 1;
    return (int64_t)(share * edge - 1);
}

/* Without a threshold of the user's the table has one for each kind of work and of next library. */
static void by_kind_of_next(void *unused)
{
    enum { LARGEST = 1400 };
    static const struct {
        enum routine routine;
        clb_precision precision;
        bool optimised;
        const char *symbol;
    } calls[] = {
        {GETRF, CLB_D, false, "dgetrf_"}, {GETRF, CLB_S, true, "sgetrf_"},
        {GETRF, CLB_Z, true, "zgetrf_"},  {GESV, CLB_C, true, "cgesv_"},
        {GETRS, CLB_D, false, "dgetrs_"}, {GETRS, CLB_S, true, "sgetrs_"},
        {GETRS, CLB_Z, true, "zgetrs_"},
    };
    (void)unused;
    set_up("auto");
    clb_runtime_state state;
    const struct clb_runtime *runtime = clb_runtime_get(&state);
    double *memory = calloc(LARGEST * LARGEST, sizeof *memory);
    int64_t ipiv[LARGEST] = {0}, info = UNSET;
    for (size_t i = 0; i < CLB_COUNT_OF(calls) && memory != NULL && runtime != NULL; i++) {
        const int64_t n =
            order_below(&runtime->device, calls[i].routine, calls[i].precision, calls[i].optimised);
        expect(n > 0 && n <= LARGEST, "order %lld", (long long)n);
        struct system s = {.routine = calls[i].routine,
                           .call = {.precision = calls[i].precision,
                                    .m = (size_t)n,
                                    .n = (size_t)n,
                                    .nrhs = (size_t)n,
                                    .lda = (size_t)n,
                                    .ldb = (size_t)n,
                                    .a = memory,
                                    .b = (void *)(uintptr_t)4096, /* elsewhere; not used */
                                    .ipiv = ipiv,
                                    .info = &info,
                                    .wide = true}};
        struct clb_host_blas next = lapack_next;
        if (calls[i].optimised)
            next.optimised = true;
        expect(!run_with(&s, &next) && info == UNSET, "call %zu was taken", i);
        expect_declined(calls[i].symbol, "small", 1);
    }
    expect(runtime != NULL, "no device");
    free(memory);
}

/* ---- calls of the next library through our names --------------------------------------------- */

/* During a factorisation they go straight back; once the device is out of it they are like any. */
static void reentrant(void *unused)
{
    struct system s;
    (void)unused;
    set_up("always");
    run_one(GETRF, CLB_D, 30, 30, 1);
    next_getrf_hook = routed_call_product;
    make_system(&s, GETRF, CLB_D, 30, 30, 1, &seed);
    expect(run(&s) && !routed_product_taken && routed_products >= 3, "%ld nested calls",
           routed_products);
    check_system(&s, "with nested calls", 0);
    free_system(&s);
    double panels = (double)routed_products;
    expect_declined("sgemm_", "reentrant", panels);
    fake_cl.only = 1ull << FAKE_EnqueueNDRangeKernel;
    fake_cl_arm(1, CL_OUT_OF_RESOURCES, false);
    routed_products = 0;
    make_system(&s, GETRF, CLB_D, 30, 30, 1, &seed);
    expect(run(&s) && routed_products >= 1 && routed_product_taken,
           "a call of the next library was declined");
    check_system(&s, "recovered with nested calls", 0);
    free_system(&s);
    next_getrf_hook = NULL;
    routed_call_product();
    expect(routed_product_taken, "declined afterwards");
    expect(reported("dgetrf_", "recovered") == 1, "recovered");
}

/* ---- failures -------------------------------------------------------------------------------- */

static void call_failing(const struct routed_failing *setting, long at)
{
    struct system s;
    uint64_t state = setting->seed;
    size_t n = 18 + random_below(&state, 8), m = n, nrhs = 5 + random_below(&state, 6);
    if (setting->routine == GETRF && random_below(&state, 2))
        m = 18 + random_below(&state, 8);
    make_system(&s, (enum routine)setting->routine, setting->precision, m, n, nrhs, &state);
    if (setting->wrong)
        put_zeros(&s, 3 + random_below(&state, 14));
    if (expect(run(&s), "call %ld: declined", at))
        check_system(&s, setting->name, at);
    free_system(&s);
}

static struct routed_failing failing[] = {
    {"dgetrf in place", NULL, GETRF, CLB_D, false, false, 0},
    {"cgetrf in place, singular", NULL, GETRF, CLB_C, false, true, 0},
    {"sgetrf in own memory", NULL, GETRF, CLB_S, true, false, 0},
    {"zgetrs in place", NULL, GETRS, CLB_Z, false, false, 0},
    {"sgetrs in own memory", NULL, GETRS, CLB_S, true, false, 0},
    {"sgesv in place", NULL, GESV, CLB_S, false, false, 0},
    {"zgesv in own memory", NULL, GESV, CLB_Z, true, false, 0},
    {"dgesv in place, singular", NULL, GESV, CLB_D, false, true, 0},
    {"cgesv in own memory, singular", NULL, GESV, CLB_C, true, true, 0},
};

static const struct tap_test tests[] = {
    {"small", reason_small, NULL},
    {"cost", reason_cost, NULL},
    {"invalid", reason_invalid, NULL},
    {"invalid pivots", reason_invalid_pivots, NULL},
    {"no BLAS beside LAPACK", reason_no_siblings, NULL},
    {"single precision without fp64", single_without_fp64, NULL},
    {"singular matrices", singular, NULL},
    {"few right-hand sides", few_right_hand_sides, NULL},
    {"the kind of next library", by_kind_of_next, NULL},
    {"calls that the next library makes", reentrant, NULL},
};

int main(void)
{
    seed = tap_seed();
    routed_test_usual(&family);
    routed_test_reasons(&family, reasons, CLB_COUNT_OF(reasons));
    tap_children(60, tests, CLB_COUNT_OF(tests));
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
