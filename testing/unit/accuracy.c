/* Accuracy of the default kernels: |C^ - C| / (|A||B|u), its rms and its largest value over at
 * least 10^4 entries of a class for k = 1 ... 8192, against those of a plain chain of fma() in
 * order of the depth. Products that are exact in that chain are exact.
 * SPDX-License-Identifier: BSD-3-Clause
 * A complex product is judged as the real one of its parts: the blocks [re -im; im re] for A, the
 * rows re and im for B, so that the chain has the four products of a complex one, two to a part. */
#include "host/host.h"
#include "report.h"
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

typedef void gemm(const char *, const char *, const int *, const int *, const int *, const void *,
                  const void *, const int *, const void *, const int *, const void *, void *,
                  const int *, size_t, size_t);
gemm sgemm_, dgemm_, cgemm_, zgemm_;

static const struct precision {
    const char *name, *symbol;
    gemm *call;
    bool single;
    size_t parts; /* real numbers of an element */
} precisions[] = {
    {"single", "sgemm_", sgemm_, true, 1},
    {"double", "dgemm_", dgemm_, false, 1},
    {"single complex", "cgemm_", cgemm_, true, 2},
    {"double complex", "zgemm_", zgemm_, false, 2},
};

/* C = A*B with A m x k and B k x n, as the real product of a `rows` x `depth` and a `depth` x n
 * matrix, dense and column-major. Values of `single` are floats. */
struct product {
    const struct precision *precision;
    bool single;
    size_t parts, m, n, k, rows, depth;
    double *a, *b;       /* the values */
    double *size;        /* |A||B| */
    double *high, *low;  /* the exact product to twice the precision, times 2^-scale */
    double *got, *chain; /* the kernel's result and the chain's */
    int scale;           /* A*B*2^-scale is far from underflow */
};

/* ---- sums ---- */

/* In the precision of the matrices, one fma() for every term. */
static inline __attribute__((always_inline)) void sum_chain(const struct product *x)
{
    for (size_t j = 0; j < x->n; j++) {
        double *c = x->chain + j * x->rows;
        for (size_t i = 0; i < x->rows; i++)
            c[i] = 0;
        for (size_t p = 0; p < x->depth; p++) {
            const double *a = x->a + p * x->rows, b = x->b[p + j * x->depth];
            if (x->single) {
                CLB_SIMD
                for (size_t i = 0; i < x->rows; i++)
                    c[i] = (double)__builtin_fmaf((float)a[i], (float)b, (float)c[i]);
            } else {
                CLB_SIMD
                for (size_t i = 0; i < x->rows; i++)
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
        double *high = x->high + j * x->rows, *low = x->low + j * x->rows,
               *size = x->size + j * x->rows;
        for (size_t i = 0; i < x->rows; i++)
            high[i] = low[i] = size[i] = 0;
        for (size_t p = 0; p < x->depth; p++) {
            const double *a = x->a + p * x->rows, b = x->b[p + j * x->depth] * b_scale;
            CLB_SIMD
            for (size_t i = 0; i < x->rows; i++) {
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

/* ---- the library's product ---- */

/* rows x cols elements, of which (i, j) begins at values[i*parts + j*stride], as the library gets
 * them: of the precision's type, dense, transposed where that is asked for. */
static void *store(const struct product *x, const double *values, size_t rows, size_t cols,
                   size_t stride, bool transposed)
{
    size_t count = rows * cols * x->parts;
    void *memory = malloc(count * (x->single ? sizeof(float) : sizeof(double)));
    if (memory == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        size_t part = i % x->parts, row = i / x->parts % rows, col = i / x->parts / rows;
        size_t at = (transposed ? row * cols + col : col * rows + row) * x->parts + part;
        double value = values[row * x->parts + part + col * stride];
        if (x->single)
            ((float *)memory)[at] = (float)value;
        else
            ((double *)memory)[at] = value;
    }
    return memory;
}

/* Every second column of the real A is the complex one as it lies in memory. */
static void multiply(const struct product *x, bool trans_a, bool trans_b)
{
    const int m = (int)x->m, n = (int)x->n, k = (int)x->k;
    const float one_s[2] = {1, 0}, zero_s[2] = {0, 0};
    const double one_d[2] = {1, 0}, zero_d[2] = {0, 0};
    void *a = store(x, x->a, x->m, x->k, x->parts * x->rows, trans_a);
    void *b = store(x, x->b, x->k, x->n, x->depth, trans_b);
    void *c = store(x, x->got, x->m, x->n, x->rows, false);
    x->precision->call(trans_a ? "T" : "N", trans_b ? "T" : "N", &m, &n, &k,
                       x->single ? (const void *)one_s : one_d, a, trans_a ? &k : &m, b,
                       trans_b ? &n : &k, x->single ? (const void *)zero_s : zero_d, c, &m, 1, 1);
    for (size_t i = 0; i < x->rows * x->n; i++)
        x->got[i] = x->single ? (double)((float *)c)[i] : ((double *)c)[i];
    free(a);
    free(b);
    free(c);
}

/* ---- classes: of A rows x k numbers are filled, of B depth x n ----
 */

static double round_to(const struct product *x, double value)
{
    return x->single ? (double)(float)value : value;
}

static void fill_uniform(struct product *x, uint64_t *seed)
{
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = round_to(x, random_uniform(seed));
    for (size_t i = 0; i < x->depth * x->n; i++)
        x->b[i] = round_to(x, random_uniform(seed));
}

static void fill_positive(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = fabs(x->a[i]);
    for (size_t i = 0; i < x->depth * x->n; i++)
        x->b[i] = fabs(x->b[i]);
}

/* Rows of A and columns of B of very different size. */
static void fill_graded(struct product *x, uint64_t *seed)
{
    int range = x->single ? 40 : 300;
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = ldexp(x->a[i], -(int)(i % x->rows / x->parts * 7 % (size_t)range));
    for (size_t i = 0; i < x->depth * x->n; i++)
        x->b[i] = ldexp(x->b[i], -(int)(i / x->depth * 5 % (size_t)range));
}

/* Rows of A, or columns of B, as far apart as single precision allows. */
static void fill_extreme(struct product *x, uint64_t *seed)
{
    static const int exponents[] = {-120, 100, 0, -40, 70};
    bool of_a = random_below(seed, 2);
    fill_uniform(x, seed);
    for (size_t i = 0; of_a && i < x->rows * x->k; i++)
        x->a[i] = ldexp(x->a[i], exponents[i % x->rows / x->parts % CLB_COUNT_OF(exponents)]);
    for (size_t i = 0; !of_a && i < x->depth * x->n; i++)
        x->b[i] = ldexp(x->b[i], exponents[i / x->depth % CLB_COUNT_OF(exponents)]);
}

/* Terms of one sum of very different size. */
static void fill_graded_depth(struct product *x, uint64_t *seed)
{
    int range = x->single ? 30 : 60;
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = ldexp(x->a[i], -(int)(i / x->rows * 11 % (size_t)range));
}

static void scale_to(struct product *x, int a_exponent, int b_exponent)
{
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = ldexp(x->a[i], a_exponent);
    for (size_t i = 0; i < x->depth * x->n; i++)
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
    int depth = (int)ceil(log2((double)x->depth)) + 1;
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
        for (size_t p = 0; p < x->k * x->parts; p++)
            x->a[i * x->parts + p % x->parts + p / x->parts * x->rows] *= p / x->parts == hot;
    }
}

static void fill_identity(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = i % x->rows == i / x->rows * x->parts;
}

/* B a permutation, or its first columns. */
static void fill_permutation(struct product *x, uint64_t *seed)
{
    fill_uniform(x, seed);
    memset(x->b, 0, x->depth * x->n * sizeof *x->b);
    size_t shift = random_below(seed, x->k), stride = 1;
    while (stride + 2 < x->k / 3 && random_below(seed, 4) != 0)
        stride += 2;
    for (size_t j = 0; j < x->n; j++)
        x->b[(j * stride + shift) % x->k * x->parts + j * x->depth] = 1;
}

static void fill_integers(struct product *x, uint64_t *seed)
{
    for (size_t i = 0; i < x->rows * x->k; i++)
        x->a[i] = (double)random_below(seed, 33) - 16;
    for (size_t i = 0; i < x->depth * x->n; i++)
        x->b[i] = (double)random_below(seed, 33) - 16;
}

/* The real A of a complex one, whose parts are in the first rows x k numbers: from the last column
 * on, so that none is overwritten before it is read. */
static void expand(struct product *x)
{
    for (size_t p = x->parts == 1 ? 0 : x->k; p-- > 0;) {
        double *even = x->a + 2 * p * x->rows, *odd = even + x->rows;
        memmove(even, x->a + p * x->rows, x->rows * sizeof *even);
        for (size_t i = 0; i < x->rows; i += 2) {
            odd[i] = -even[i + 1];
            odd[i + 1] = even[i];
        }
    }
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
    {"extreme rows or columns", fill_extreme, false},
    {"graded depth", fill_graded_depth, false},
    {"near underflow", fill_underflow, false},
    {"near overflow", fill_overflow, false},
    {"one-hot rows", fill_one_hot, false},
    {"identity", fill_identity, true},
    {"permutation", fill_permutation, true},
    {"small integers", fill_integers, true},
};

/* ---- statistics ---- */

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

/* ---- the body ---- */

static void make_product(struct product *x, const struct precision *precision, size_t m, size_t n,
                         size_t k)
{
    size_t parts = precision->parts, rows = parts * m, depth = parts * k;
    *x = (struct product){.precision = precision,
                          .single = precision->single,
                          .parts = parts,
                          .m = m,
                          .n = n,
                          .k = k,
                          .rows = rows,
                          .depth = depth};
    x->a = malloc((rows * depth + depth * n + 5 * rows * n) * sizeof *x->a);
    if (x->a == NULL)
        abort();
    x->b = x->a + rows * depth;
    x->size = x->b + depth * n;
    x->high = x->size + rows * n;
    x->low = x->high + rows * n;
    x->got = x->low + rows * n;
    x->chain = x->got + rows * n;
    for (size_t i = 0; i < rows * n; i++)
        x->got[i] = NAN;
}

static void check_exact(const struct class *class, const struct product *x)
{
    for (size_t i = 0; i < x->rows * x->n; i++)
        expect(x->got[i] == x->high[i] && x->low[i] == 0,
               "%s, k = %zu: entry %zu is %.17g, not %.17g", class->name, x->k, i, x->got[i],
               x->high[i]);
}

static void run_class(const struct class *class, const struct precision *precision, size_t deepest,
                      uint64_t *seed)
{
    static const size_t depths[] = {1,   2,   3,   5,   8,    17,   64,   100,
                                    192, 255, 257, 511, 1000, 2049, 4096, 8192};
    struct errors got = {0}, chain = {0};
    for (size_t d = 0; d < CLB_COUNT_OF(depths) && depths[d] <= deepest; d++) {
        size_t k = depths[d], m = (k > 1000 ? 32 : 34) / precision->parts, n = k > 1000 ? 24 : 25;
        struct errors got_k = {0}, chain_k = {0};
        struct product x;
        make_product(&x, precision, m, n, k);
        class->fill(&x, seed);
        expand(&x);
        multiply(&x, random_below(seed, 2) == 0, random_below(seed, 2) == 0);
        sum_all(&x);
        if (class->exact)
            check_exact(class, &x);
        for (size_t i = 0; !class->exact && i < x.rows * n; i++) {
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
    tap_note("%c %-24s rms %.4g (chain %.4g), largest %.4g (chain %.4g), %zu entries",
             precision->symbol[0], class->name, rms(&got), rms(&chain), got.largest, chain.largest,
             got.count);
    expect(got.count >= 10000, "%zu entries", got.count);
    judge(class->name, 0, &got, &chain, RMS_LIMIT + NOISE);
}

struct run {
    const char *kernel, *params;
    const struct precision *precision;
    size_t deepest; /* k */
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
        run_class(&classes[i], run->precision, run->deepest, &run->seed);
        if (i == 0)
            check_report(run->kernel);
    }
    expect_on_device(&run->precision->symbol, 1);
}

static void judge_kernel(struct run run)
{
    char name[64];
    snprintf(name, sizeof name, "%s, %s precision", run.kernel, run.precision->name);
    tap_child(name, 200, run_kernel, &run);
}

/* usage: accuracy [FAMILY s|d|c|z [PARAMS]]: a kernel family that runs with its own parameters, on
 * another device than the tests' own for example. */
int main(int count, char **arguments)
{
    /* Small tiles, but no cuts of the depth that the rows of the table don't have. */
    static const char emulated[] =
        "gemm.tile=min,gemm.slab=8192,gemm.kc=256,gemm.min_k=96,gemm.emulate=1";
    static const char *const kernels[] = {"cpu", "portable"};
    const size_t deep = 2049, deepest = tap_full() ? 8192 : deep; /* of the device's own family */
    uint64_t seed = tap_seed();
    if (count > 2) {
        size_t at = strcspn("sdcz", arguments[2]);
        if (at >= CLB_COUNT_OF(precisions))
            return 99;
        judge_kernel((struct run){arguments[1], count > 3 ? arguments[3] : "", &precisions[at],
                                  8192, random_bits(&seed)});
        return tap_done();
    }
    for (size_t i = 0; i < CLB_COUNT_OF(kernels); i++) {
        for (size_t p = 0; p < CLB_COUNT_OF(precisions); p++)
            judge_kernel((struct run){kernels[i], "", &precisions[p], i == 0 ? deepest : deep,
                                      random_bits(&seed)});
    }
    judge_kernel(
        (struct run){"portable", "gemm.parts=8", &precisions[CLB_S], deep, random_bits(&seed)});
    judge_kernel(
        (struct run){"nv-bf16-sync", emulated, &precisions[CLB_S], deep, random_bits(&seed)});
    /* Mostly to see that it takes all products where they count. */
    judge_kernel((struct run){"nv-bf16x6", emulated, &precisions[CLB_S], 600, random_bits(&seed)});
    return tap_done();
}
