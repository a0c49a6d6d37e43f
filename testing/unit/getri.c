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
    struct clb_lu_call call;
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
    dense_next.getrf(&precision, n, n, dense_data(&s->factors), s->factors.ld, ipiv);
    dense_remember(&s->factors);
    for (size_t i = 0; i < n; i++) {
        const int32_t narrow = (int32_t)ipiv[i];
        if (s->call.wide)
            s->ipiv[i] = ipiv[i];
        else
            memcpy((char *)s->ipiv + i * sizeof narrow, &narrow, sizeof narrow);
    }
    s->call.precision = precision;
    s->call.m = s->call.n = (int64_t)n;
    s->call.lda = (int64_t)clb_max(s->factors.ld, 1);
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
    const struct clb_next_lapack next = lapack_next_for(&s->call);
    next_getri_calls = 0;
    return clb_route_getri(symbol_of(s->call.precision), &s->call, &next);
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

static void set_up(const char *mode)
{
    setenv("CLBLAS_SHIM", mode, 1);
    if (getenv("CLBLAS_SHIM_PARAMS") == NULL)
        setenv("CLBLAS_SHIM_PARAMS",
               "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.ks=64,trsm.nb=8,trsm.part=12", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    fake_cl_install();
}

/* Sizes around the blocks of rows and diagonals; conditions up to 1/u and beyond. */
static void inverts(void *discrete)
{
    fake_cl.discrete = discrete != NULL;
    setenv("CLBLAS_SHIM_DEVICE", discrete != NULL ? "gpu" : "cpu", 1);
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
    s.call.lda = (int64_t)s.factors.ld;
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

static void declines_without_memory(void *unused)
{
    struct inverse s;
    (void)unused;
    setenv("CLBLAS_SHIM_MEMORY", "2K", 1);
    set_up("always");
    make_inverse(&s, CLB_D, 40, 0, &seed);
    expect(is_declined(&s, "nomemory", 1), "no memory");
    free_inverse(&s);
}

/* ---- failures -------------------------------------------------------------------------------- */

struct setting {
    const char *name;
    clb_precision precision;
    bool discrete, no_work;
    uint64_t seed;
};

static long run_failing(const struct setting *setting, long at, bool anyway)
{
    struct inverse s;
    uint64_t state = setting->seed;
    make_inverse(&s, setting->precision, 18 + random_below(&state, 8), 1, &state);
    if (setting->no_work)
        s.call.work = NULL;
    fake_cl.run_anyway = anyway;
    fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
    bool taken = run(&s);
    long calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    expect(taken, "call %ld: declined", at);
    if (taken)
        check_inverse(&s, setting->name, at);
    free_inverse(&s);
    return calls;
}

static void fail_every_call(void *argument)
{
    const struct setting *setting = argument;
    const char *symbol = symbol_of(setting->precision)->next.name;
    fake_cl.discrete = setting->discrete;
    setenv("CLBLAS_SHIM_DEVICE", setting->discrete ? "gpu" : "cpu", 1);
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    set_up("always");
    run_failing(setting, 0, false);
    run_failing(setting, 0, false);
    long calls = run_failing(setting, 0, false);
    expect(reported(symbol, "device") == 3, "the device did not compute the first calls");
    for (long at = 1; at <= calls; at++) {
        run_failing(setting, at, at % 3 == 0);
        if (at % 2 == 0) /* three failures in a row would end it */
            run_failing(setting, 0, false);
    }
    double recovered = reported(symbol, "recovered");
    expect(calls > 20, "only %ld calls", calls);
    expect(recovered > 0.5 * (double)calls, "only %g of %ld calls recovered", recovered, calls);
    expect_sums(symbol);
    tap_note("%ld OpenCL calls, %g recovered", calls, recovered);
}

int main(void)
{
    static struct setting settings[] = {
        {"dgetri in place", CLB_D, false, false, 0},
        {"cgetri in place, no workspace", CLB_C, false, true, 0},
        {"zgetri in own memory", CLB_Z, true, false, 0},
    };
    static int yes;
    seed = tap_seed();
    tap_child("in place", 60, inverts, NULL);
    tap_child("in own memory", 60, inverts, &yes);
    tap_child("declined", 60, declines, NULL);
    tap_child("no memory", 60, declines_without_memory, NULL);
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        char name[80];
        settings[i].seed = random_bits(&seed);
        snprintf(name, sizeof name, "%s: every OpenCL call fails", settings[i].name);
        tap_child(name, 120, fail_every_call, &settings[i]);
    }
    return tap_done();
}
