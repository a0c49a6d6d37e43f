/* Accuracy of the default kernels: |C^ - C| / (|A||B|u), its rms and its largest value over at
 * least 10^4 entries of a class for k = 1 ... 8192, against those of a plain chain of fma() in
 * order of the depth. Products that are exact in that chain are exact. */
#include "base/base.h"
#include "tap.h"

#include "clblas_shim.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RMS_LIMIT 1.0
#define MAX_LIMIT 1.25
/* Sums of the same terms in another order differ by chance where they are of the same quality. */
#define NOISE 2e-3

void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *, size_t, size_t);
void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *,
            const double *, const int *, const double *, const int *, const double *, double *,
            const int *, size_t, size_t);

/* C = A*B with A m x k and B k x n, dense and column-major. Values of `single` are floats. */
struct product {
    bool single;
    size_t m, n, k;
    double *a, *b;       /* the values */
    double *size;        /* |A||B| */
    double *high, *low;  /* the exact product to twice the precision, times 2^-scale */
    double *got, *chain; /* the kernel's result and the chain's */
    int scale;           /* A*B*2^-scale is far from underflow */
};

/* ---- sums ------------------------------------------------------------------------------------ */

/* In the precision of the matrices, one fma() for every term. */
static inline __attribute__((always_inline)) void sum_chain(const struct product *x)
{
    for (size_t j = 0; j < x->n; j++) {
        double *c = x->chain + j * x->m;
        for (size_t i = 0; i < x->m; i++)
            c[i] = 0;
        for (size_t p = 0; p < x->k; p++) {
            const double *a = x->a + p * x->m, b = x->b[p + j * x->k];
            if (x->single) {
                CLB_SIMD
                for (size_t i = 0; i < x->m; i++)
                    c[i] = (double)__builtin_fmaf((float)a[i], (float)b, (float)c[i]);
            } else {
                CLB_SIMD
                for (size_t i = 0; i < x->m; i++)
                    c[i] = __builtin_fma(a[i], b, c[i]);
            }
        }
    }
}

/* In twice the working precision of double (Ogita, Rump, Oishi: Dot2), on values scaled away from
 * underflow. */
static inline __attribute__((always_inline)) void sum_twice(const struct product *x, double a_scale,
                                                            double b_scale)
{
    for (size_t j = 0; j < x->n; j++) {
        double *high = x->high + j * x->m, *low = x->low + j * x->m, *size = x->size + j * x->m;
        for (size_t i = 0; i < x->m; i++)
            high[i] = low[i] = size[i] = 0;
        for (size_t p = 0; p < x->k; p++) {
            const double *a = x->a + p * x->m, b = x->b[p + j * x->k] * b_scale;
            CLB_SIMD
            for (size_t i = 0; i < x->m; i++) {
                double t = a[i] * a_scale, product = t * b;
                double rest = __builtin_fma(t, b, -product);
                double sum = high[i] + product, z = sum - high[i];
                low[i] += (high[i] - (sum - z)) + (product - z) + rest;
                high[i] = sum;
                size[i] += __builtin_fabs(product);
            }
        }
    }
}

#if defined(__x86_64__)
#define FAST_FMA __attribute__((target("avx2,fma")))
static bool has_fma(void)
{
    return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
}
#else
#define FAST_FMA
static bool has_fma(void)
{
    return true;
}
#endif

static FAST_FMA void sum_fast(const struct product *x, double a_scale, double b_scale)
{
    sum_chain(x);
    sum_twice(x, a_scale, b_scale);
}

static void sum_slowly(const struct product *x, double a_scale, double b_scale)
{
    sum_chain(x);
    sum_twice(x, a_scale, b_scale);
}

static void sum_all(const struct product *x)
{
    double a_scale = ldexp(1, -x->scale / 2), b_scale = ldexp(1, -x->scale - -x->scale / 2);
    (has_fma() ? sum_fast : sum_slowly)(x, a_scale, b_scale);
}

/* ---- the library's product ------------------------------------------------------------------- */

static float *as_floats(const double *values, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    for (size_t i = 0; floats != NULL && i < count; i++)
        floats[i] = (float)values[i];
    return floats;
}

static void multiply(const struct product *x)
{
    const int m = (int)x->m, n = (int)x->n, k = (int)x->k;
    const float one_s = 1, zero_s = 0;
    const double one = 1, zero = 0;
    if (!x->single) {
        dgemm_("N", "N", &m, &n, &k, &one, x->a, &m, x->b, &k, &zero, x->got, &m, 1, 1);
        return;
    }
    float *a = as_floats(x->a, x->m * x->k), *b = as_floats(x->b, x->k * x->n);
    float *c = as_floats(x->got, x->m * x->n);
    if (a == NULL || b == NULL || c == NULL)
        abort();
    sgemm_("N", "N", &m, &n, &k, &one_s, a, &m, b, &k, &zero_s, c, &m, 1, 1);
    for (size_t i = 0; i < x->m * x->n; i++)
        x->got[i] = (double)c[i];
    free(a);
    free(b);
    free(c);
}

/* ---- classes --------------------------------------------------------------------------------- */

static double round_to(const struct product *x, double value)
{
    return x->single ? (double)(float)value : value;
}

static void fill_uniform(struct product *x, uint64_t *seed)
{
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = round_to(x, random_uniform(seed));
    for (size_t i = 0; i < x->k * x->n; i++)
        x->b[i] = round_to(x, random_uniform(seed));
}

static void fill_positive(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = fabs(x->a[i]);
    for (size_t i = 0; i < x->k * x->n; i++)
        x->b[i] = fabs(x->b[i]);
}

/* Rows of A and columns of B of very different size. */
static void fill_graded(struct product *x, uint64_t *seed)
{
    int range = x->single ? 40 : 300;
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = ldexp(x->a[i], -(int)(i % x->m * 7 % (size_t)range));
    for (size_t i = 0; i < x->k * x->n; i++)
        x->b[i] = ldexp(x->b[i], -(int)(i / x->k * 5 % (size_t)range));
}

/* Terms of one sum of very different size. */
static void fill_graded_depth(struct product *x, uint64_t *seed)
{
    int range = x->single ? 30 : 60;
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = ldexp(x->a[i], -(int)(i / x->m * 11 % (size_t)range));
}

static void scale_to(struct product *x, int a_exponent, int b_exponent)
{
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = ldexp(x->a[i], a_exponent);
    for (size_t i = 0; i < x->k * x->n; i++)
        x->b[i] = ldexp(x->b[i], b_exponent);
}

/* Products on either side of the smallest normal number. */
static void fill_underflow(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    if (x->single)
        scale_to(x, -62, -64);
    else
        scale_to(x, -510, -512);
    x->scale = x->single ? 0 : -1022;
}

static void fill_overflow(struct product *x, uint64_t *seed)
{
    int depth = (int)ceil(log2((double)x->k)) + 1;
    fill_uniform(x, seed);
    if (x->single)
        scale_to(x, 63, 64 - depth);
    else
        scale_to(x, 511, 512 - depth);
}

static void fill_one_hot(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->m; i++) {
        size_t hot = random_below(seed, x->k);
        for (size_t p = 0; p < x->k; p++)
            x->a[i + p * x->m] *= p == hot;
    }
}

static void fill_identity(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = i % x->m == i / x->m;
}

/* B a permutation, or its first columns. */
static void fill_permutation(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    memset(x->b, 0, x->k * x->n * sizeof *x->b);
    size_t shift = random_below(seed, x->k), stride = 1;
    while (stride + 2 < x->k / 3 && random_below(seed, 4) != 0)
        stride += 2;
    for (size_t j = 0; j < x->n; j++)
        x->b[(j * stride + shift) % x->k + j * x->k] = 1;
}

static void fill_integers(struct product *x, uint64_t *seed)
{
    for (size_t i = 0; i < x->m * x->k; i++)
        x->a[i] = (double)random_below(seed, 33) - 16;
    for (size_t i = 0; i < x->k * x->n; i++)
        x->b[i] = (double)random_below(seed, 33) - 16;
}

static const struct class
{
    const char *name;
    void (*fill)(struct product *x, uint64_t *seed);
    bool exact;
} classes[] = {
    {"uniform", fill_uniform, false},
    {"positive", fill_positive, false},
    {"graded rows and columns", fill_graded, false},
    {"graded depth", fill_graded_depth, false},
    {"near underflow", fill_underflow, false},
    {"near overflow", fill_overflow, false},
    {"one-hot rows", fill_one_hot, false},
    {"identity", fill_identity, true},
    {"permutation", fill_permutation, true},
    {"small integers", fill_integers, true},
};

/* ---- statistics ------------------------------------------------------------------------------ */

struct errors {
    double squares, largest;
    size_t count;
};

static void add_error(struct errors *errors, const struct product *x, size_t i, double value)
{
    double u = x->single ? 0x1p-24 : 0x1p-53,
           tiny = ldexp(1, (x->single ? -150 : -1075) - x->scale);
    double scaled = ldexp(value, -x->scale);
    double error = fabs((scaled - x->high[i]) - x->low[i]);
    double ratio = error / fmax(u * x->size[i], fmax(tiny, DBL_TRUE_MIN));
    errors->squares += ratio * ratio;
    errors->largest = fmax(errors->largest, ratio);
    errors->count++;
    expect(isfinite(value), "entry %zu is %g", i, value);
}

static double rms(const struct errors *errors)
{
    return sqrt(errors->squares / (double)errors->count);
}

static void judge(const char *name, size_t k, const struct errors *got, const struct errors *chain,
                  double rms_limit)
{
    double mean = rms(got), mean_chain = rms(chain);
    expect(mean <= rms_limit * mean_chain, "%s, k = %zu: rms %.4g, that of the chain is %.4g", name,
           k, mean, mean_chain);
    if (k == 0)
        expect(got->largest <= MAX_LIMIT * chain->largest,
               "%s: largest %.4g, that of the chain is %.4g", name, got->largest, chain->largest);
}

/* ---- the body -------------------------------------------------------------------------------- */

static void make_product(struct product *x, bool single, size_t m, size_t n, size_t k)
{
    *x = (struct product){.single = single, .m = m, .n = n, .k = k};
    x->a = malloc((m * k + k * n + 5 * m * n) * sizeof *x->a);
    if (x->a == NULL)
        abort();
    x->b = x->a + m * k;
    x->size = x->b + k * n;
    x->high = x->size + m * n;
    x->low = x->high + m * n;
    x->got = x->low + m * n;
    x->chain = x->got + m * n;
    for (size_t i = 0; i < m * n; i++)
        x->got[i] = NAN;
}

static void check_exact(const struct class *class, const struct product *x)
{
    for (size_t i = 0; i < x->m * x->n; i++)
        expect(x->got[i] == x->high[i] && x->low[i] == 0,
               "%s, k = %zu: entry %zu is %.17g, not %.17g", class->name, x->k, i, x->got[i],
               x->high[i]);
}

static void run_class(const struct class *class, bool single, uint64_t *seed)
{
    static const size_t depths[] = {1,   2,   3,   5,   8,    17,   64,   100,
                                    192, 255, 257, 511, 1000, 2049, 4096, 8192};
    struct errors got = {0}, chain = {0};
    for (size_t d = 0; d < CLB_COUNT_OF(depths); d++) {
        size_t k = depths[d], m = k > 1000 ? 32 : 33, n = k > 1000 ? 24 : 25;
        struct errors got_k = {0}, chain_k = {0};
        struct product x;
        make_product(&x, single, m, n, k);
        class->fill(&x, seed);
        multiply(&x);
        sum_all(&x);
        if (class->exact)
            check_exact(class, &x);
        for (size_t i = 0; !class->exact && i < m * n; i++) {
            add_error(&got_k, &x, i, x.got[i]);
            add_error(&chain_k, &x, i, x.chain[i]);
        }
        if (!class->exact)
            judge(class->name, k, &got_k, &chain_k, 1.05);
        got.squares += got_k.squares;
        chain.squares += chain_k.squares;
        got.count += got_k.count;
        chain.count += chain_k.count;
        got.largest = fmax(got.largest, got_k.largest);
        chain.largest = fmax(chain.largest, chain_k.largest);
        free(x.a);
    }
    if (class->exact)
        return;
    tap_note("%s %-24s rms %.4g (chain %.4g), largest %.4g (chain %.4g), %zu entries",
             single ? "s" : "d", class->name, rms(&got), rms(&chain), got.largest, chain.largest,
             got.count);
    expect(got.count >= 10000, "%zu entries", got.count);
    judge(class->name, 0, &got, &chain, RMS_LIMIT + NOISE);
}

struct run {
    const char *kernel, *params;
    bool single;
    uint64_t seed;
};

/* Otherwise the next library was judged. */
static void check_report(const char *kernel)
{
    static char report[8192];
    char name[64];
    snprintf(name, sizeof name, "\"gemm-%s-", kernel);
    expect(clblas_shim_report(report, sizeof report) < sizeof report, "the report's length");
    expect(strstr(report, name) != NULL, "%s was not used", kernel);
}

static void run_kernel(void *argument)
{
    struct run *run = argument;
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_KERNEL", run->kernel, 1);
    setenv("CLBLAS_SHIM_PARAMS", run->params, 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    for (size_t i = 0; i < CLB_COUNT_OF(classes); i++) {
        run_class(&classes[i], run->single, &run->seed);
        if (i == 0)
            check_report(run->kernel);
    }
}

static void judge_kernel(struct run run)
{
    char name[64];
    snprintf(name, sizeof name, "%s, %s precision", run.kernel, run.single ? "single" : "double");
    tap_child(name, 200, run_kernel, &run);
}

/* usage: accuracy [FAMILY s|d [PARAMS]]: a kernel family that runs with its own parameters, on
 * another device than the tests' own for example. */
int main(int count, char **arguments)
{
    static const struct run runs[] = {
        {"cpu", "", true, 0},
        {"cpu", "", false, 0},
        {"portable", "", true, 0},
        {"portable", "", false, 0},
        /* Small tiles, but no cuts of the depth that the rows of the table don't have. */
        {"nv-bf16-sync", "gemm.tile=min,gemm.ks=8192,gemm.kc=256,gemm.mink=96,gemm.emulate=1", true,
         0},
    };
    uint64_t seed = tap_seed();
    if (count > 2) {
        judge_kernel((struct run){arguments[1], count > 3 ? arguments[3] : "", *arguments[2] == 's',
                                  random_bits(&seed)});
        return tap_done();
    }
    for (size_t i = 0; i < CLB_COUNT_OF(runs); i++) {
        struct run run = runs[i];
        run.seed = random_bits(&seed);
        judge_kernel(run);
    }
    return tap_done();
}
