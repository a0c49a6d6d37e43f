/* cgemm and zgemm under their names in the built library against sums in extended precision, for
 * every kernel family and way of bringing the data to the device.
 *
 * A complex m x n matrix is kept as the real 2m x n one that its memory is, so that matrix.h's
 * guard bands and poisoned gaps serve. */
#include "matrix.h"
#include "report.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void gemm_fortran(const char *, const char *, const int *, const int *, const int *,
                          const void *, const void *, const int *, const void *, const int *,
                          const void *, void *, const int *, size_t, size_t);
typedef void gemm_c(int, int, int, int, int, int, const void *, const void *, int, const void *,
                    int, const void *, void *, int);
gemm_fortran cgemm_, zgemm_;
gemm_c cblas_cgemm, cblas_zgemm;

enum form { FORTRAN, C_COLUMNS, C_ROWS, FORMS };

struct complex_number {
    long double re, im;
};

/* Values of the case's precision. */
struct scalar {
    double re, im;
};

struct product {
    bool single;
    clb_op transa, transb;
    size_t m, n, k;
    struct scalar alpha, beta;
    struct matrix a, b, c; /* real views: twice the rows and leading dimensions */
};

/* ---- the reference --------------------------------------------------------------------------- */

/* Element (i, j) of op(X). */
static struct complex_number element(const struct matrix *x, clb_op op, size_t i, size_t j)
{
    size_t row = op == CLB_OP_N ? i : j, col = op == CLB_OP_N ? j : i;
    struct complex_number e = {matrix_get(x, 2 * row, col), matrix_get(x, 2 * row + 1, col)};
    if (op == CLB_OP_C)
        e.im = -e.im;
    return e;
}

/* sum += x*y; *size grows by the absolute values of the terms of either part. */
static void add_product(struct complex_number *sum, struct complex_number *size,
                        struct complex_number x, struct complex_number y)
{
    sum->re += x.re * y.re - x.im * y.im;
    sum->im += x.re * y.im + x.im * y.re;
    size->re += fabsl(x.re * y.re) + fabsl(x.im * y.im);
    size->im += fabsl(x.re * y.im) + fabsl(x.im * y.re);
}

static bool is_zero(struct scalar x)
{
    return x.re == 0 && x.im == 0;
}

/* sum += factor*x; the factor 1 is no product, which matters to NaN and infinity. */
static void add_scaled(struct complex_number *sum, struct complex_number *size,
                       struct scalar factor, struct complex_number x, struct complex_number x_size)
{
    const long double re = fabsl((long double)factor.re), im = fabsl((long double)factor.im);
    if (factor.re == 1 && factor.im == 0) {
        sum->re += x.re;
        sum->im += x.im;
        size->re += x_size.re;
        size->im += x_size.im;
    } else {
        sum->re += factor.re * x.re - factor.im * x.im;
        sum->im += factor.re * x.im + factor.im * x.re;
        size->re += re * x_size.re + im * x_size.im;
        size->im += re * x_size.im + im * x_size.re;
    }
}

static struct complex_number old_c(const struct product *g, size_t i, size_t j)
{
    struct matrix before = g->c;
    before.memory = g->c.snapshot;
    return element(&before, CLB_OP_N, i, j);
}

static struct complex_number sum_entry(const struct product *g, size_t i, size_t j,
                                       struct complex_number *size)
{
    struct complex_number sum = {0, 0}, inner = {0, 0}, inner_size = {0, 0};
    *size = sum;
    for (size_t p = 0; !is_zero(g->alpha) && p < g->k; p++)
        add_product(&inner, &inner_size, element(&g->a, g->transa, i, p),
                    element(&g->b, g->transb, p, j));
    add_scaled(&sum, size, g->alpha, inner, inner_size);
    if (!is_zero(g->beta)) {
        const struct complex_number old = old_c(g, i, j);
        add_scaled(&sum, size, g->beta, old, (struct complex_number){fabsl(old.re), fabsl(old.im)});
    }
    return sum;
}

static bool check_part(const struct product *g, size_t i, size_t j, const char *part, double got,
                       long double sum, long double size, const char *what)
{
    long double u = g->single ? 0x1p-24L : 0x1p-53L, tiny = g->single ? 0x1p-148L : 0x1p-1073L;
    if (!isfinite(size))
        return expect(!isfinite(got), "%s: %s C(%zu,%zu) = %g, expected no finite value", what,
                      part, i, j, got);
    long double error = fabsl((long double)got - sum), depth = 2 * (long double)g->k + 6;
    return expect(error <= depth * (u * size + tiny),
                  "%s: %s C(%zu,%zu) = %.17g, expected %.17Lg (%.3Lg of u|A||B|)", what, part, i, j,
                  got, sum, error / (u * size));
}

static void check(const struct product *g, const char *what)
{
    for (size_t j = 0; j < g->n; j++) {
        for (size_t i = 0; i < g->m; i++) {
            struct complex_number size, sum = sum_entry(g, i, j, &size);
            check_part(g, i, j, "re", matrix_get(&g->c, 2 * i, j), sum.re, size.re, what);
            check_part(g, i, j, "im", matrix_get(&g->c, 2 * i + 1, j), sum.im, size.im, what);
        }
    }
    expect(matrix_gaps_intact(&g->c), "%s: written outside of C", what);
    expect(matrix_intact(&g->a) && matrix_intact(&g->b), "%s: A or B written", what);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void call_fortran(const struct product *g, const void *alpha, const void *beta,
                         uint64_t *seed)
{
    static const char letters[] = "NTCntc";
    const char transa = letters[(size_t)g->transa + 3 * random_below(seed, 2)];
    const char transb = letters[(size_t)g->transb + 3 * random_below(seed, 2)];
    const int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    const int lda = (int)g->a.ld / 2, ldb = (int)g->b.ld / 2, ldc = (int)g->c.ld / 2;
    (g->single ? cgemm_ : zgemm_)(&transa, &transb, &m, &n, &k, alpha, matrix_data(&g->a), &lda,
                                  matrix_data(&g->b), &ldb, beta, matrix_data(&g->c), &ldc, 1, 1);
}

/* In rows it is C^T = op(B)^T * op(A)^T over the same memory. */
static void call_c(const struct product *g, const void *alpha, const void *beta, bool rows)
{
    const struct matrix *x = rows ? &g->b : &g->a, *y = rows ? &g->a : &g->b;
    (g->single ? cblas_cgemm : cblas_zgemm)(
        rows ? 101 : 102, 111 + (int)(rows ? g->transb : g->transa),
        111 + (int)(rows ? g->transa : g->transb), (int)(rows ? g->n : g->m),
        (int)(rows ? g->m : g->n), (int)g->k, alpha, matrix_data(x), (int)x->ld / 2, matrix_data(y),
        (int)y->ld / 2, beta, matrix_data(&g->c), (int)g->c.ld / 2);
}

static void call_and_check(const struct product *g, enum form form, const char *kind,
                           uint64_t *seed)
{
    static const char *const names[] = {"fortran", "cblas columns", "cblas rows"};
    const float alpha_c[2] = {(float)g->alpha.re, (float)g->alpha.im};
    const float beta_c[2] = {(float)g->beta.re, (float)g->beta.im};
    const void *alpha = g->single ? (const void *)alpha_c : &g->alpha;
    const void *beta = g->single ? (const void *)beta_c : &g->beta;
    char what[200];
    snprintf(what, sizeof what,
             "%s %s %s %c%c m=%zu n=%zu k=%zu alpha=(%g,%g) beta=(%g,%g) ld=%zu,%zu,%zu",
             g->single ? "c" : "z", names[form], kind, "NTC"[g->transa], "NTC"[g->transb], g -> m,
             g -> n, g -> k, g -> alpha.re, g->alpha.im, g->beta.re, g->beta.im, g->a.ld / 2,
             g->b.ld / 2, g->c.ld / 2);
    if (form == FORTRAN)
        call_fortran(g, alpha, beta, seed);
    else
        call_c(g, alpha, beta, form == C_ROWS);
    check(g, what);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void make_view(const struct product *g, struct matrix *x, size_t rows, size_t cols,
                      uint64_t *seed)
{
    size_t ld = clb_max(rows, 1) + random_below(seed, 8);
    matrix_make(x, g->single ? CLB_S : CLB_D, 2 * rows, cols, 2 * ld, random_below(seed, 8));
    matrix_fill(x, seed);
    matrix_remember(x);
}

static void make(struct product *g, uint64_t *seed)
{
    bool plain_a = g->transa == CLB_OP_N, plain_b = g->transb == CLB_OP_N;
    make_view(g, &g->a, plain_a ? g->m : g->k, plain_a ? g->k : g->m, seed);
    make_view(g, &g->b, plain_b ? g->k : g->n, plain_b ? g->n : g->k, seed);
    make_view(g, &g->c, g->m, g->n, seed);
}

static void discard(struct product *g)
{
    matrix_free(&g->a);
    matrix_free(&g->b);
    matrix_free(&g->c);
}

static void plain_case(struct product *g, enum form form, uint64_t *seed)
{
    make(g, seed);
    call_and_check(g, form, "random", seed);
    discard(g);
}

/* NaN and infinity in one part of one element; C is all NaN where beta = 0 promises not to read it.
 */
static void special_case(struct product *g, enum form form, uint64_t *seed)
{
    make(g, seed);
    struct matrix *const operands[] = {&g->a, &g->b, &g->c};
    struct matrix *spoiled = operands[random_below(seed, CLB_COUNT_OF(operands))];
    if (spoiled->rows > 0 && spoiled->cols > 0)
        matrix_set(spoiled, random_below(seed, spoiled->rows), random_below(seed, spoiled->cols),
                   random_below(seed, 2) ? NAN : INFINITY);
    for (size_t j = 0; is_zero(g->beta) && j < g->n; j++) {
        for (size_t i = 0; i < g->c.rows; i++)
            matrix_set(&g->c, i, j, NAN);
    }
    matrix_remember(spoiled);
    matrix_remember(&g->c);
    call_and_check(g, form, "special", seed);
    discard(g);
}

/* A and B are overlapping parts of one matrix, a whole number of complex elements or of real ones
 * apart. */
static void overlapping_case(struct product *g, enum form form, uint64_t *seed)
{
    size_t rows_a = g->transa == CLB_OP_N ? g->m : g->k,
           cols_a = g->transa == CLB_OP_N ? g->k : g->m;
    size_t rows_b = g->transb == CLB_OP_N ? g->k : g->n,
           cols_b = g->transb == CLB_OP_N ? g->n : g->k;
    size_t rows = clb_max(rows_a, rows_b) + 3, ld = rows + random_below(seed, 4);
    struct matrix both;
    matrix_make(&both, g->single ? CLB_S : CLB_D, 2 * rows, clb_max(cols_a, cols_b) + 3, 2 * ld,
                random_below(seed, 4));
    matrix_fill(&both, seed);
    matrix_remember(&both);
    g->a = matrix_part(&both, 0, 0, 2 * rows_a, cols_a);
    g->b = matrix_part(&both, random_below(seed, 5), random_below(seed, 3), 2 * rows_b, cols_b);
    make_view(g, &g->c, g->m, g->n, seed);
    call_and_check(g, form, "overlapping", seed);
    matrix_free(&both);
    matrix_free(&g->c);
}

/* ---- one configuration ----------------------------------------------------------------------- */

struct setting {
    const char *name, *kernel, *params;
    const size_t *sizes; /* that m, n and k are taken from; ends with SIZE_MAX */
    int repeats;         /* of all transposes, precisions and forms */
    char only;           /* the family's one precision; 0 for both */
};

static const size_t small_sizes[] = {0,  1,  2,  3,  4,  5,  7,  8,  9,       11,
                                     13, 15, 16, 17, 19, 24, 25, 33, SIZE_MAX};
static const size_t large_sizes[] = {1,  2,  7,  15,  16,  17,  31,  32,      33,
                                     64, 65, 97, 127, 128, 129, 191, SIZE_MAX};

static const struct setting settings[] = {
    {"cpu, minimal tiles", "cpu", "gemm.tile=min", small_sizes, 9, 0},
    {"portable, minimal tiles", "portable", "gemm.tile=min", small_sizes, 9, 0},
    {"cpu, minimal tiles, streamed", "cpu", "gemm.tile=min,gemm.stream=1,gemm.threads=2",
     small_sizes, 3, 0},
    {"portable, minimal tiles, streamed by one thread", "portable", "gemm.tile=min,gemm.stream=1",
     small_sizes, 3, 0},
    {"cpu, default tiles", "cpu", "", large_sizes, 3, 0},
    {"portable, default tiles", "portable", "", large_sizes, 1, 0},
    {"cpu, default tiles, streamed", "cpu", "gemm.stream=1,gemm.threads=3", large_sizes, 1, 0},
    {"cpu, for AVX2", "cpu",
     "gemm.mr=16,gemm.nr=6,gemm.kc=384,gemm.nc=252,gemm.pack_k=256,gemm.vp=8,gemm.slab=32,gemm.tn="
     "32",
     large_sizes, 1, 0},
    {"cpu, odd parameters", "cpu",
     "gemm.tile=min,gemm.mr=12,gemm.nr=3,gemm.mc=24,gemm.nc=9,gemm.ku=6,gemm.kc=6,gemm.pack_k=12,"
     "gemm.tm=7,gemm.tn=5,gemm.slab=5",
     small_sizes, 2, 0},
    {"nv-dmma, minimal tiles, emulated", "nv-dmma", "gemm.tile=min,gemm.emulate=1", small_sizes, 3,
     'z'},
    {"nv-bf16-sync, minimal tiles, emulated", "nv-bf16-sync",
     "gemm.tile=min,gemm.band_m=64,gemm.band_n=32,gemm.emulate=1", small_sizes, 3, 'c'},
    {"nv-bf16x6, emulated", "nv-bf16x6",
     "gemm.tile=min,gemm.band_m=128,gemm.band_n=128,gemm.emulate=1", large_sizes, 1, 'c'},
    {"nv-fp16x3, emulated", "nv-fp16x3",
     "gemm.tile=min,gemm.band_m=128,gemm.band_n=128,gemm.min_k=16,gemm.emulate=1", large_sizes, 1,
     'c'},
};

static struct scalar pick_scalar(bool single, uint64_t *seed)
{
    static const struct scalar special[] = {{0, 0}, {1, 0}, {-1, 0}, {0, 1}, {1, 1}, {0.5, 0}};
    size_t choice = random_below(seed, CLB_COUNT_OF(special) + 2);
    if (choice < CLB_COUNT_OF(special))
        return special[choice];
    struct scalar value = {2 * random_uniform(seed), 2 * random_uniform(seed)};
    return single ? (struct scalar){(float)value.re, (float)value.im} : value;
}

static size_t pick(const size_t *sizes, uint64_t *seed)
{
    size_t count = 0;
    while (sizes[count] != SIZE_MAX)
        count++;
    return sizes[random_below(seed, count)];
}

static void one_of_each(const struct setting *setting, int round, uint64_t *seed)
{
    for (int choice = 0; choice < 9 * 2 * FORMS; choice++) {
        enum form form = (enum form)(choice / 18);
        bool single = choice / 9 % 2 == 0;
        if (setting->only != 0 && single != (setting->only == 'c'))
            continue;
        struct product g = {.single = single,
                            .transa = (clb_op)(choice % 3),
                            .transb = (clb_op)(choice / 3 % 3),
                            .m = pick(setting->sizes, seed),
                            .n = pick(setting->sizes, seed),
                            .k = pick(setting->sizes, seed),
                            .alpha = pick_scalar(single, seed),
                            .beta = pick_scalar(single, seed)};
        if (round % 3 == 0)
            plain_case(&g, form, seed);
        else if (round % 3 == 1)
            special_case(&g, form, seed);
        else
            overlapping_case(&g, form, seed);
    }
}

struct run {
    const struct setting *setting;
    uint64_t seed;
};

static void run_setting(void *argument)
{
    static const char *const symbols[] = {"cgemm_", "cblas_cgemm", "zgemm_", "cblas_zgemm"};
    struct run *run = argument;
    const struct setting *setting = run->setting;
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_KERNEL", setting->kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", setting->params, 1);
    setenv("CLBLAS_SHIM_NEXT", "libblas.so.3", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("OPENBLAS_CORETYPE", "Haswell", 1);
    for (int round = 0; round < tap_rounds(setting->repeats); round++)
        one_of_each(setting, round, &run->seed);
    /* One precision has two of them. */
    size_t skip = setting->only == 'z' ? 2 : 0;
    expect_on_device(symbols + skip, setting->only == 0 ? CLB_COUNT_OF(symbols) : 2);
}

/* usage: complex [FAMILY [c|z|both [PARAMS]]]: a kernel family that runs with its own parameters,
 * on another device than the tests' own for example. */
int main(int count, char **arguments)
{
    uint64_t seed = tap_seed();
    if (count > 1) {
        const struct setting own = {arguments[1],
                                    arguments[1],
                                    count > 3 ? arguments[3] : "",
                                    large_sizes,
                                    6,
                                    count > 2 && *arguments[2] != 'b' ? *arguments[2] : '\0'};
        struct run run = {&own, random_bits(&seed)};
        tap_child(own.name, 240, run_setting, &run);
        return tap_done();
    }
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        struct run run = {&settings[i], random_bits(&seed)};
        tap_child(settings[i].name, 240, run_setting, &run);
    }
    return tap_done();
}
