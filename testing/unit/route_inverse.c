/* xTRTRI, xLAUUM and xPOTRI through the route layer with a next library of plain loops: residuals,
 * what is neither to be read nor to be written, special values, calls that are declined, and every
 * OpenCL call of a warm one failing in turn. */
#include "dense.h"
#include "fakecl.h"
#include "lapack_next.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 150

static uint64_t seed;

enum kind { TRTRI, LAUUM, POTRI, KINDS };

static const struct routine {
    const char *name;
    clb_symbol_id symbol[CLB_PRECISIONS];
} routines[KINDS] = {
    {"trtri",
     {CLB_SYMBOL_strtri_plain, CLB_SYMBOL_dtrtri_plain, CLB_SYMBOL_ctrtri_plain,
      CLB_SYMBOL_ztrtri_plain}},
    {"lauum",
     {CLB_SYMBOL_slauum_plain, CLB_SYMBOL_dlauum_plain, CLB_SYMBOL_clauum_plain,
      CLB_SYMBOL_zlauum_plain}},
    {"potri",
     {CLB_SYMBOL_spotri_plain, CLB_SYMBOL_dpotri_plain, CLB_SYMBOL_cpotri_plain,
      CLB_SYMBOL_zpotri_plain}},
};

/* The other triangle, and a unit diagonal, hold this. */
static const double other = NAN;

struct inverse {
    enum kind kind;
    struct clb_call call;
    struct dense a;
    int64_t info;
};

static struct clb_symbol *symbol_of(const struct inverse *s)
{
    return &clb_symbols[routines[s->kind].symbol[s->call.precision]];
}

/* Entry (i, j) of the lower triangle, or of the upper one's transpose; before the call or after. */
static bool is_stored(const struct inverse *s, size_t i, size_t j)
{
    return i == j ? !s->call.unit : (i < j) == s->call.upper;
}

static number lower(const struct inverse *s, size_t i, size_t j, bool old)
{
    if (i == j && s->call.unit)
        return 1;
    if (i < j)
        return 0;
    return (old ? dense_old : dense_get)(&s->a, s->call.upper ? j : i, s->call.upper ? i : j);
}

/* Rows of falling size below a diagonal of about 1, so that the condition grows with `grade`. */
static void make(struct inverse *s, enum kind kind, clb_precision precision, size_t n, int grade,
                 size_t pad, uint64_t *state)
{
    *s = (struct inverse){.kind = kind, .info = -77};
    s->call = (struct clb_call){.precision = precision,
                                .upper = random_below(state, 2),
                                .unit = kind == TRTRI && random_below(state, 3) == 0,
                                .n = n,
                                .info = &s->info,
                                .wide = random_below(state, 2)};
    dense_make(&s->a, precision, n, n, pad, state);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            number value = dense_get(&s->a, i, j) * ldexpl(1, -grade * (int)((i + 2 * j) % 5));
            if (!is_stored(s, i, j))
                value = dense_number(other, other);
            else if (i == j)
                value = 1 + fabsl(creall(value));
            else if (n > 8)
                value /= sqrtl((long double)n) / 2;
            dense_set(&s->a, i, j, value);
        }
    }
    dense_remember(&s->a);
    s->call.a = dense_data(&s->a);
    s->call.lda = clb_max(s->a.ld, 1);
}

static bool run(struct inverse *s)
{
    struct clb_host_blas next = lapack_next;
    next_inverse_calls = 0;
    return routed_call(symbol_of(s), &s->call, &next);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const char *name_of(const struct inverse *s, const char *what)
{
    static char name[120];
    snprintf(name, sizeof name, "%s: %c%s %c%s n=%zu", what, "sdcz"[s->call.precision],
             routines[s->kind].name, s->call.upper ? 'U' : 'L', s->call.unit ? "U" : "", s->a.rows);
    return name;
}

static void check_around(const struct inverse *s, const char *what)
{
    for (size_t j = 0; j < s->a.cols; j++) {
        for (size_t i = 0; i < s->a.rows; i++) {
            if (!is_stored(s, i, j))
                expect(isnan((double)creall(dense_get(&s->a, i, j))), "%s: (%zu, %zu) is written",
                       name_of(s, what), i, j);
        }
    }
    expect(dense_gaps_intact(&s->a), "%s: a gap was written", name_of(s, what));
    expect((int32_t)s->info == 0 && (s->call.wide ? s->info == 0 : (s->info >> 32) == -1),
           "%s: info", name_of(s, what));
}

/* |X*L - I| <= c n u |X||L|, entry by entry. */
static long double inverse_error(const struct inverse *s)
{
    size_t n = s->a.rows;
    long double worst = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            number sum = i == j ? -1 : 0;
            long double size = 0;
            for (size_t k = j; k <= i; k++) {
                number term = dense_times(lower(s, i, k, false), lower(s, k, j, true));
                sum += term;
                size += dense_abs(term);
            }
            long double error = dense_abs(sum) / (size * (long double)(n + 4));
            worst = error <= worst ? worst : error;
        }
    }
    return worst / dense_unit(s->a.precision);
}

/* |Y - L^H*L| <= c n u |L^H||L|, entry by entry. */
static long double product_error(const struct inverse *s)
{
    size_t n = s->a.rows;
    long double worst = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            number sum = -lower(s, i, j, false);
            long double size = 0;
            for (size_t k = i; k < n; k++) {
                number term = dense_times(conjl(lower(s, k, i, true)), lower(s, k, j, true));
                sum += term;
                size += dense_abs(term);
            }
            long double error = dense_abs(sum) / (size * (long double)(n + 4));
            worst = error <= worst || (sum == 0 && size == 0) ? worst : error;
        }
        expect(cimagl(lower(s, j, j, false)) == 0, "%s: the diagonal is not real",
               name_of(s, "a product"));
    }
    return worst / dense_unit(s->a.precision);
}

/* Entry (i, j) of a Hermitian matrix of which the lower triangle is given; row sums of it. */
static number hermitian(const number *x, size_t n, size_t i, size_t j)
{
    return i >= j ? x[i + j * n] : conjl(x[j + i * n]);
}

static long double norm(const number *x, size_t n)
{
    long double largest = 0;
    for (size_t i = 0; i < n; i++) {
        long double sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += dense_abs(hermitian(x, n, i, j));
        largest = fmaxl(largest, sum);
    }
    return largest;
}

/* LAPACK's own measure, ||A*X - I|| / (n u ||A|| ||X||), of A = L*L^H. Of A = U^H*U with U = L^T
 * the conjugates are measured. */
static long double definite_error(const struct inverse *s)
{
    size_t n = s->a.rows;
    long double worst = 0;
    number *a = calloc(2 * n * n, sizeof *a), *x = a + n * n;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            for (size_t k = 0; k <= j; k++)
                a[i + j * n] += lower(s, i, k, true) * conjl(lower(s, j, k, true));
            x[i + j * n] = lower(s, i, j, false);
        }
    }
    for (size_t j = 0; j < n; j++) {
        long double sum = 0;
        for (size_t i = 0; i < n; i++) {
            number e = i == j ? -1 : 0;
            for (size_t k = 0; k < n; k++)
                e += hermitian(a, n, i, k) * hermitian(x, n, k, j);
            sum += dense_abs(e);
        }
        worst = sum <= worst ? worst : sum;
    }
    worst /= (long double)n * dense_unit(s->a.precision) * norm(a, n) * norm(x, n);
    free(a);
    return worst;
}

static void check(const struct inverse *s, const char *what)
{
    long double error = s->kind == TRTRI   ? inverse_error(s)
                        : s->kind == LAUUM ? product_error(s)
                                           : definite_error(s);
    /* Complex products and divisions have larger constants. */
    long double most = s->kind == POTRI ? 5 : clb_precision_parts(s->a.precision) > 1 ? 3 : 1;
    expect(error <= most, "%s: error %.3Lg", name_of(s, what), error);
    check_around(s, what);
}

/* ---- results --------------------------------------------------------------------------------- */

#define SMALL "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,trsm.nb=8"

static const char *symbol_name(int kind, clb_precision precision)
{
    return clb_symbols[routines[kind].symbol[precision]].next.name;
}

static bool run_one(int kind, clb_precision precision, size_t m, size_t n, size_t k)
{
    struct inverse s;
    (void)m;
    (void)k;
    make(&s, (enum kind)kind, precision, n, 0, 5, &seed);
    bool taken = run(&s);
    if (taken)
        check(&s, "a call");
    else
        expect(dense_intact_bits(&s.a) && s.info == -77, "a declined call has changed something");
    dense_free(&s.a);
    return taken;
}

static const struct routed_family family = {SMALL, symbol_name, run_one, 0, KINDS, 1, 0};

static void set_up(const char *kernel, const char *params, bool discrete)
{
    setenv("CLBLAS_SHIM_KERNEL", kernel, 1);
    routed_set_device(discrete);
    routed_set_up("always", params);
}

struct setting {
    const char *name, *kernel, *params;
    bool discrete;
    size_t pad;         /* of leading dimensions */
    cl_ulong max_alloc; /* with which a far-flung matrix can't be had in place */
    int runs;
};

/* Sizes around blocks, strips and micro-tiles. */
static void computes(void *argument)
{
    const struct setting *setting = argument;
    const int step = tap_full() ? 1 : 11; /* few of the smallest sizes in a sample */
    double device = 0;
    fake_cl.max_alloc = setting->max_alloc;
    set_up(setting->kernel, setting->params, setting->discrete);
    for (int i = 0; i < step * tap_runs(setting->runs); i += step) {
        struct inverse s;
        size_t n = i < 24 ? (size_t)i / 12 + 1 : 1 + random_below(&seed, i % 3 == 0 ? MOST : 50);
        make(&s, (enum kind)(i % KINDS), (clb_precision)(i / KINDS % CLB_PRECISIONS), n, i % 5,
             setting->pad, &seed);
        if (expect(run(&s), "%s: declined", name_of(&s, setting->name)))
            check(&s, setting->name);
        dense_free(&s.a);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            expect_sums(symbol_name(kind, (clb_precision)p));
            device += reported(symbol_name(kind, (clb_precision)p), "device");
        }
    }
    expect(device == tap_runs(setting->runs), "%g of %d on the device", device,
           tap_runs(setting->runs));
}

/* Much larger than everything that has a size of its own. */
static void computes_large(void *unused)
{
    (void)unused;
    set_up("cpu", "gemm.slab=256", false);
    for (int kind = 0; kind < KINDS; kind++) {
        struct inverse s;
        make(&s, (enum kind)kind, (clb_precision)random_below(&seed, CLB_PRECISIONS),
             380 + random_below(&seed, 40), 0, 5, &seed);
        if (expect(run(&s), "%s: declined", name_of(&s, "large")))
            check(&s, "large");
        dense_free(&s.a);
    }
}

/* ---- special values -------------------------------------------------------------------------- */

static bool is_special(number x)
{
    return !isfinite((double)creall(x)) || !isfinite((double)cimagl(x));
}

/* Infinity or NaN in one entry, of which the zeros beside it must not make more: the result is the
 * next library's. */
static void keeps_special_values_apart(void *unused)
{
    (void)unused;
    set_up("cpu", SMALL, false);
    for (int i = 0; i < 48; i++) {
        struct inverse s;
        size_t n = 20 + random_below(&seed, 60), row = 1 + random_below(&seed, n - 1),
               col = random_below(&seed, row);
        make(&s, (enum kind)(i % KINDS), (clb_precision)(i / KINDS % CLB_PRECISIONS), n, 0, 5,
             &seed);
        dense_set(&s.a, s.call.upper ? col : row, s.call.upper ? row : col, i % 2 ? NAN : INFINITY);
        dense_remember(&s.a);
        struct inverse expected = s;
        struct clb_call problem =
            clb_call_of(clb_symbols[routines[s.kind].symbol[s.call.precision]].routine);
        problem.upper = s.call.upper;
        problem.unit = s.call.unit;
        problem.n = problem.lda = n;
        problem.a = malloc(n * n * sizeof(double complex));
        for (size_t e = 0; e < n * n; e++)
            dense_store(s.call.precision, problem.a, n, e % n, e / n,
                        dense_get(&s.a, e % n, e / n));
        lapack_next_inverse(&problem);
        expect(run(&s), "%s: declined", name_of(&s, "special"));
        for (size_t e = 0; e < n * n; e++) {
            number x = dense_get(&s.a, e % n, e / n);
            number y = dense_at(s.call.precision, problem.a, n, e % n, e / n);
            if (is_stored(&expected, e % n, e / n) && !is_special(y))
                expect(dense_abs(x - y) <= 1e3L * dense_unit(s.call.precision) * (1 + dense_abs(y)),
                       "%s: (%zu, %zu) is %Lg, not %Lg", name_of(&s, "special"), e % n, e / n,
                       creall(x), creall(y));
        }
        check_around(&s, "special");
        free(problem.a);
        dense_free(&s.a);
    }
    expect(reported("dtrtri_", "recovered") > 0, "nothing was the next library's");
    expect_sums("dtrtri_");
}

/* ---- declined -------------------------------------------------------------------------------- */

static void expect_refused(struct inverse *s, const char *reason, double count)
{
    const char *symbol = symbol_of(s)->next.name;
    expect(!run(s) && s->info == -77, "%s: computed", name_of(s, reason));
    expect(dense_intact_bits(&s->a), "%s: written", name_of(s, reason));
    expect(reported(symbol, reason) == count, "%s: %g times", name_of(s, reason),
           reported(symbol, reason));
    expect_sums(symbol);
}

static void declines(void *unused)
{
    (void)unused;
    set_up("cpu", SMALL, false);
    for (int kind = 0; kind < KINDS; kind++) {
        struct inverse s;
        double invalid = 0;
        do {
            make(&s, (enum kind)kind, CLB_D, 30, 0, 5, &seed);
        } while (s.call.unit);
        s.call.invalid = 'u';
        expect_refused(&s, "invalid", ++invalid);
        s.call.invalid = 0;
        s.call.lda = 29;
        expect_refused(&s, "invalid", ++invalid);
        s.call.lda = s.a.ld;
        s.call.n = (size_t)-1;
        expect_refused(&s, "invalid", ++invalid);
        s.call.n = 0;
        expect_refused(&s, "quick", 1);
        s.call.n = 30;
        dense_set(&s.a, 29, 29, 0);
        dense_remember(&s.a);
        if (kind == LAUUM) {
            expect(run(&s), "%s: a zero on the diagonal", name_of(&s, "declined"));
            check(&s, "a zero on the diagonal");
        } else {
            expect_refused(&s, "invalid", ++invalid);
        }
        dense_free(&s.a);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

static void call_failing(const struct routed_failing *setting, long at)
{
    struct inverse s;
    uint64_t state = setting->seed;
    make(&s, (enum kind)setting->routine, setting->precision, 60 + random_below(&state, 20), 1, 5,
         &state);
    if (expect(run(&s), "call %ld: declined", at))
        check(&s, setting->name);
    dense_free(&s.a);
}

static struct routed_failing failing[] = {
    {"dpotri in place", SMALL, POTRI, CLB_D, false, false, 0},
    {"ctrtri in place", SMALL, TRTRI, CLB_C, false, false, 0},
    {"slauum in own memory", SMALL, LAUUM, CLB_S, true, false, 0},
    {"zpotri in own memory", SMALL ",gemm.threads=2", POTRI, CLB_Z, true, false, 0},
};

/* ---- several at once ------------------------------------------------------------------------- */

#define THREADS 4

struct caller {
    struct inverse s[6];
};

static void *run_some(void *argument)
{
    struct caller *caller = argument;
    for (size_t i = 0; i < CLB_COUNT_OF(caller->s); i++)
        expect(run(&caller->s[i]), "%s: declined", routines[caller->s[i].kind].name);
    return NULL;
}

static void at_once(void *unused)
{
    static struct caller callers[THREADS];
    (void)unused;
    set_up("cpu", SMALL, false);
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < CLB_COUNT_OF(callers[t].s); i++)
            make(&callers[t].s[i], (enum kind)(i % KINDS),
                 (clb_precision)((i + t) % CLB_PRECISIONS), 20 + random_below(&seed, 80), 0, 5,
                 &seed);
    }
    run_threads(THREADS, run_some, callers, sizeof *callers);
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < CLB_COUNT_OF(callers[t].s); i++) {
            callers[t].s[i].call.info = &callers[t].s[i].info;
            check(&callers[t].s[i], "at once");
            dense_free(&callers[t].s[i].a);
        }
    }
}

int main(void)
{
    static struct setting settings[] = {
        {"in place", "cpu", SMALL, false, 5, 0, 96},
        {"in place, zeros are multiplied", "cpu", "gemm.tile=min,trsm.nb=4", false, 5, 0, 72},
        {"in place, portable family", "portable", SMALL, false, 5, 0, 48},
        {"in place, panels of A and B are apart", "cpu",
         SMALL ",gemm.nr=3,gemm.nc=6,gemm.tm=8,gemm.tn=8", false, 5, 0, 48},
        {"in place, large tiles", "cpu", "trsm.nb=16", false, 5, 0, 48},
        {"columns far apart", "cpu", SMALL, false, 12000, 2 << 20, 48},
        {"in own memory", "portable", SMALL, true, 5, 0, 72},
        {"streamed by one thread", "cpu", SMALL ",gemm.stream=1,gemm.threads=1", false, 5, 0, 72},
    };
    static const struct tap_test tests[] = {
        {"large", computes_large, NULL},
        {"special values", keeps_special_values_apart, NULL},
        {"declined", declines, NULL},
        {"four threads", at_once, NULL},
    };
    seed = tap_seed();
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        seed = random_bits(&seed);
        tap_child(settings[i].name, 120, computes, &settings[i]);
    }
    tap_children(120, tests, CLB_COUNT_OF(tests));
    routed_test_usual(&family);
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
