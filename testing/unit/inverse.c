/* SPDX-License-Identifier: BSD-3-Clause
 * xTRTRI, xLAUUM, xPOTRI and xGETRI through the route layer with a next library of plain loops:
 * residuals, what is neither to be read nor to be written, special values. */
#include "dense.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 150

static uint64_t seed;

/* ---- the next library ---- */

static size_t pivot_at(const struct clb_call *p, size_t i)
{
    return (size_t)clb_integer_get(p->ipiv, i, p->wide) - 1;
}

/* X with X*A = I, by rows of the identity, and the columns in order at last. */
static void invert(const struct clb_call *p)
{
    size_t n = p->n, element = clb_precision_size(p->precision);
    char *x = calloc(n * n, element);
    struct clb_call trsm = clb_call_as(p, CLB_KIND_trsm);
    trsm.right = trsm.upper = true;
    trsm.m = n;
    trsm.alpha = clb_scalar_of(p->precision, 1);
    trsm.b = x;
    trsm.ldb = n;
    if (x == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        memcpy(x + i * (n + 1) * element, trsm.alpha, element);
    clb_host_call(&dense_next, &trsm);
    trsm.upper = false;
    trsm.unit = true;
    clb_host_call(&dense_next, &trsm);
    for (size_t j = n; j-- > 0;) {
        size_t other = pivot_at(p, j);
        for (size_t i = 0; i < n * element; i++) {
            char held = x[j * n * element + i];
            x[j * n * element + i] = x[other * n * element + i];
            x[other * n * element + i] = held;
        }
    }
    for (size_t j = 0; j < n; j++)
        memcpy((char *)p->a + j * p->lda * element, x + j * n * element, n * element);
    free(x);
}

static size_t call_getri(const struct clb_host_blas *host, const struct clb_call *call)
{
    if (host->lwork == -1)
        memcpy(host->work, clb_scalar_of(call->precision, 1), clb_precision_size(call->precision));
    else
        invert(call);
    return 0;
}

/* Everything is said of a lower triangle; of an upper one it is the transpose. */
static number get_lower(const struct clb_call *p, size_t i, size_t j)
{
    if (i == j && p->unit)
        return 1;
    return dense_at(p->precision, p->a, p->lda, p->upper ? j : i, p->upper ? i : j);
}

/* T = L^-1, by columns of L*T = I. */
static void invert_lower(const struct clb_call *p, number *t)
{
    size_t n = p->n;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            number sum = i == j;
            for (size_t k = j; k < i; k++)
                sum -= get_lower(p, i, k) * t[k + j * n];
            t[i + j * n] = sum / get_lower(p, i, i);
        }
    }
}

/* Entry (i, j) of T^H*T, which is entry (j, i) of U*U^H where T = U^T. */
static number square_entry(const number *t, size_t n, size_t i, size_t j)
{
    number sum = 0;
    for (size_t k = i; k < n; k++)
        sum += conjl(t[k + i * n]) * t[k + j * n];
    return i == j ? creall(sum) : sum;
}

static void next_inverse(const struct clb_call *p)
{
    size_t n = p->n;
    number *t = calloc(n * n, sizeof *t);
    if (t == NULL)
        return;
    for (size_t j = 0; j < n && p->kind == CLB_KIND_lauum; j++) {
        for (size_t i = j; i < n; i++)
            t[i + j * n] = get_lower(p, i, j);
    }
    if (p->kind != CLB_KIND_lauum)
        invert_lower(p, t);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j + p->unit; i < n; i++) {
            dense_store(p->precision, p->a, p->lda, p->upper ? j : i, p->upper ? i : j,
                        p->kind != CLB_KIND_trtri ? square_entry(t, n, i, j) : t[i + j * n]);
        }
    }
    free(t);
}

static size_t call_inverse(const struct clb_host_blas *host, const struct clb_call *call)
{
    (void)host;
    next_inverse(call);
    return 0;
}

static const struct clb_host_blas lapack_next = {.of = {[CLB_KIND_getri] = call_getri,
                                                        [CLB_KIND_trtri] = call_inverse,
                                                        [CLB_KIND_lauum] = call_inverse,
                                                        [CLB_KIND_potri] = call_inverse}};

/* ---- calls ---- */

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
    return routed_call(symbol_of(s), &s->call, &next);
}

/* ---- checks ---- */

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

/* ---- results ---- */

#define SMALL "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,trsm.nb=8"

static const char *symbol_name(int kind, clb_precision precision)
{
    return clb_symbols[routines[kind].symbol[precision]].next.name;
}

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

/* ---- special values ---- */

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
        next_inverse(&problem);
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

/* ---- xGETRI ---- */

#define MOST_LU 160
#define LU      "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,trsm.nb=8,trsm.part=12"

struct from_lu {
    struct clb_call call;
    struct dense a, factors; /* factors are what the call gets */
    int64_t ipiv[MOST_LU], info;
    double work[2 * MOST_LU];
};

/* Columns of falling size, so that the condition grows with `grade`. */
static void make_from_lu(struct from_lu *s, clb_precision precision, size_t n, int grade,
                         uint64_t *state)
{
    int64_t ipiv[MOST_LU];
    *s = (struct from_lu){.info = -77};
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
    s->call.lwork = MOST_LU;
}

static void free_from_lu(struct from_lu *s)
{
    dense_free(&s->a);
    dense_free(&s->factors);
}

static struct clb_symbol *getri_of(clb_precision precision)
{
    static const clb_symbol_id ids[] = {CLB_SYMBOL_sgetri_plain, CLB_SYMBOL_dgetri_plain,
                                        CLB_SYMBOL_cgetri_plain, CLB_SYMBOL_zgetri_plain};
    return &clb_symbols[ids[precision]];
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
static void check_from_lu(const struct from_lu *s, const char *what, long at)
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
        worst = sum <= worst ? worst : sum;
    }
    worst /= (long double)n * dense_unit(s->a.precision) * norm_of(&s->a) * norm_of(&s->factors);
    expect(worst < 30, "%s %ld: ||XA - I|| is %Lg", what, at, worst);
    expect(dense_gaps_intact(&s->factors), "%s %ld: a gap was written", what, at);
    expect((int32_t)s->info == 0 && (s->call.wide ? s->info == 0 : (s->info >> 32) == -1),
           "%s %ld: info", what, at);
}

/* Sizes around the blocks of rows and diagonals; conditions up to 1/u and beyond. */
static void inverts(void *discrete)
{
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    setenv("CLBLAS_SHIM_PARAMS", LU, 1);
    set_up(discrete != NULL ? "portable" : "cpu", LU, discrete != NULL);
    for (int i = 0; i < tap_runs(96); i++) {
        const size_t n = i < 4 ? (size_t)i + 1 : 1 + random_below(&seed, i % 3 == 0 ? MOST_LU : 60);
        struct clb_host_blas next = lapack_next;
        struct from_lu s;
        make_from_lu(&s, (clb_precision)(i % CLB_PRECISIONS), n, i % 5, &seed);
        if (i % 2 == 0)
            s.call.work = NULL;
        expect(routed_call(getri_of(s.call.precision), &s.call, &next), "an inverse was declined");
        check_from_lu(&s, "an inverse", (long)n);
        expect(i % 2 == 0 || s.work[0] != 0, "work has no size");
        free_from_lu(&s);
    }
    expect_sums("dgetri_");
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
        {"xGETRI in place", inverts, NULL},
        {"xGETRI in own memory", inverts, &seed},
    };
    seed = tap_seed();
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        seed = random_bits(&seed);
        tap_child(settings[i].name, 120, computes, &settings[i]);
    }
    tap_children(120, tests, CLB_COUNT_OF(tests));
    return tap_done();
}
