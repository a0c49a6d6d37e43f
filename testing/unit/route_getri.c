/* xGETRI through the route layer with a next library of plain loops: A^-1 as accurate from the left
 * as from LAPACK, calls that are declined, and every OpenCL call of a warm one failing in turn. */
#include "dense.h"
#include "fakecl.h"
#include "lapack_next.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 160

static uint64_t seed;

struct inverse {
    struct clb_call call;
    struct dense a, factors; /* factors are what the call gets */
    int64_t ipiv[MOST], info;
    double work[2 * MOST];
};

/* Columns of falling size, so that the condition grows with `grade`. */
static void make_inverse(struct inverse *s, clb_precision precision, size_t n, int grade,
                         uint64_t *state)
{
    int64_t ipiv[MOST];
    *s = (struct inverse){.info = -77};
    s->call.wide = random_below(state, 2);
    dense_make(&s->a, precision, n, n, 5, state);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++)
            dense_set(&s->a, i, j,
                      dense_get(&s->a, i, j) * ldexpl(1, -grade * (int)((i + 2 * j) % 7)) +
                          (i == j ? 0.5L : 0));
    }
    dense_make(&s->factors, precision, n, n, 5, state);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++)
            dense_set(&s->factors, i, j, dense_get(&s->a, i, j));
    }
    dense_getrf(&s->factors, ipiv);
    dense_remember(&s->factors);
    for (size_t i = 0; i < n; i++) {
        const int32_t narrow = (int32_t)ipiv[i];
        if (s->call.wide)
            s->ipiv[i] = ipiv[i];
        else
            memcpy((char *)s->ipiv + i * sizeof narrow, &narrow, sizeof narrow);
    }
    s->call.precision = precision;
    s->call.m = s->call.n = n;
    s->call.lda = clb_max(s->factors.ld, 1);
    s->call.a = dense_data(&s->factors);
    s->call.ipiv = s->ipiv;
    s->call.info = &s->info;
    s->call.work = s->work;
    s->call.lwork = MOST;
}

static void free_inverse(struct inverse *s)
{
    dense_free(&s->a);
    dense_free(&s->factors);
}

static struct clb_symbol *symbol_of(clb_precision precision)
{
    static const clb_symbol_id ids[] = {CLB_SYMBOL_sgetri_plain, CLB_SYMBOL_dgetri_plain,
                                        CLB_SYMBOL_cgetri_plain, CLB_SYMBOL_zgetri_plain};
    return &clb_symbols[ids[precision]];
}

static bool run(struct inverse *s)
{
    struct clb_host_blas next = lapack_next;
    next_getri_calls = 0;
    return routed_call(symbol_of(s->call.precision), &s->call, &next);
}

static long double norm_of(const struct dense *x)
{
    long double largest = 0;
    for (size_t j = 0; j < x->cols; j++) {
        long double sum = 0;
        for (size_t i = 0; i < x->rows; i++)
            sum += cabsl(dense_get(x, i, j));
        largest = fmaxl(largest, sum);
    }
    return largest;
}

/* LAPACK's own measure: ||X*A - I|| / (n u ||A|| ||X||) in 1-norms. */
static void check_inverse(const struct inverse *s, const char *what, long at)
{
    size_t n = s->a.rows;
    long double worst = 0;
    for (size_t j = 0; j < n; j++) {
        long double sum = 0;
        for (size_t i = 0; i < n; i++) {
            number e = i == j ? -1 : 0;
            for (size_t k = 0; k < n; k++)
                e += dense_get(&s->factors, i, k) * dense_get(&s->a, k, j);
            sum += cabsl(e);
        }
        worst = fmaxl(worst, sum);
    }
    worst /= (long double)n * dense_unit(s->a.precision) * norm_of(&s->a) * norm_of(&s->factors);
    expect(worst < 30, "%s %ld: ||XA - I|| is %Lg", what, at, worst);
    expect(dense_gaps_intact(&s->factors), "%s %ld: a gap was written", what, at);
    expect((int32_t)s->info == 0 && (s->call.wide ? s->info == 0 : (s->info >> 32) == -1),
           "%s %ld: info", what, at);
}

static const char *symbol_name(int routine, clb_precision precision)
{
    (void)routine;
    return symbol_of(precision)->next.name;
}

static bool run_one(int routine, clb_precision precision, size_t m, size_t n, size_t k)
{
    struct inverse s;
    (void)routine;
    (void)m;
    (void)k;
    make_inverse(&s, precision, n, 0, &seed);
    bool taken = run(&s);
    if (taken)
        check_inverse(&s, "a call", 0);
    else
        expect(dense_intact(&s.factors) && s.info == -77, "a declined call has changed something");
    free_inverse(&s);
    return taken;
}

static const struct routed_family family = {
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,trsm.nb=8,trsm.part=12",
    symbol_name,
    run_one,
    0,
    1,
    1,
    0};

static void set_up(const char *mode)
{
    routed_set_up(mode, family.params);
}

/* Sizes around the blocks of rows and diagonals; conditions up to 1/u and beyond. */
static void inverts(void *discrete)
{
    routed_set_device(discrete != NULL);
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    set_up("always");
    for (int i = 0; i < 24; i++) {
        struct inverse s;
        size_t n = i < 4 ? (size_t)i + 1 : 1 + random_below(&seed, i % 3 == 0 ? MOST : 60);
        make_inverse(&s, (clb_precision)(i % CLB_PRECISIONS), n, i % 5, &seed);
        expect(run(&s), "an inverse was declined");
        check_inverse(&s, "an inverse", (long)n);
        expect(s.work[0] != 0, "work has no size");
        free_inverse(&s);
    }
    expect(reported("dgetri_", "device") == 6, "not on the device");
    expect_sums("dgetri_");
}

/* ---- declined -------------------------------------------------------------------------------- */

static bool is_declined(struct inverse *s, const char *reason, double count)
{
    const char *symbol = symbol_of(s->call.precision)->next.name;
    bool declined =
        !run(s) && dense_intact(&s->factors) && s->info == -77 && reported(symbol, reason) == count;
    expect_sums(symbol);
    return declined;
}

static void declines(void *unused)
{
    struct inverse s;
    (void)unused;
    set_up("always");
    make_inverse(&s, CLB_D, 30, 0, &seed);
    s.call.lwork = -1;
    expect(is_declined(&s, "query", 1), "a query");
    s.call.lwork = 29;
    expect(is_declined(&s, "invalid", 1), "too small a workspace");
    s.call.lwork = 30;
    s.call.lda = 29;
    expect(is_declined(&s, "invalid", 2), "a leading dimension");
    s.call.lda = s.factors.ld;
    memset(s.ipiv, 0x7f, sizeof s.ipiv);
    expect(is_declined(&s, "invalid", 3), "pivots that are no rows");
    s.call.n = 0;
    expect(is_declined(&s, "quick", 1), "nothing to invert");
    free_inverse(&s);
    make_inverse(&s, CLB_D, 30, 0, &seed);
    dense_set(&s.factors, 17, 17, 0);
    dense_remember(&s.factors);
    expect(is_declined(&s, "invalid", 4), "a singular matrix");
    free_inverse(&s);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void call_failing(const struct routed_failing *setting, long at)
{
    struct inverse s;
    uint64_t state = setting->seed;
    make_inverse(&s, setting->precision, 18 + random_below(&state, 8), 1, &state);
    if (setting->wrong)
        s.call.work = NULL;
    if (expect(run(&s), "call %ld: declined", at))
        check_inverse(&s, setting->name, at);
    free_inverse(&s);
}

static struct routed_failing failing[] = {
    {"dgetri in place", NULL, 0, CLB_D, false, false, 0},
    {"cgetri in place, no workspace", NULL, 0, CLB_C, false, true, 0},
    {"zgetri in own memory", NULL, 0, CLB_Z, true, false, 0},
};

static const struct tap_test tests[] = {
    {"in place", inverts, NULL}, {"in own memory", inverts, &seed}, {"declined", declines, NULL}};

int main(void)
{
    seed = tap_seed();
    routed_test_usual(&family);
    tap_children(60, tests, CLB_COUNT_OF(tests));
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
