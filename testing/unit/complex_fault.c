/* Every OpenCL call of a warm complex GEMM fails once: what the device has not written is computed
 * by the next library, from parts whose offsets count complex elements, and nothing else is
 * touched.
 *
 * Values are small integers, so that both give the same bits. */
#include "fakecl.h"
#include "matrix.h"
#include "route/route.h"
#include "tap.h"

#include <stdlib.h>

/* Real views of complex matrices: twice the rows and leading dimensions. */
struct product {
    clb_precision precision;
    clb_op transa, transb;
    size_t m, n, k;
    struct matrix a, b, c, expected;
};

static const float alpha_c[2] = {2, -1}, beta_c[2] = {1, 3};
static const double alpha_z[2] = {2, -1}, beta_z[2] = {1, 3};
static size_t next_entries;
static long driver_calls; /* of the last run */

static double get(clb_precision precision, const void *x, size_t index)
{
    return precision == CLB_C ? (double)((const float *)x)[index] : ((const double *)x)[index];
}

static void put(clb_precision precision, void *x, size_t index, double value)
{
    if (precision == CLB_C)
        ((float *)x)[index] = (float)value;
    else
        ((double *)x)[index] = value;
}

/* The next library: plain loops. */
static void fake_next(const struct clb_target *target, const struct clb_gemm *g)
{
    clb_precision precision = g->precision;
    const double alpha[2] = {get(precision, g->alpha, 0), get(precision, g->alpha, 1)};
    const double beta[2] = {get(precision, g->beta, 0), get(precision, g->beta, 1)};
    (void)target;
    next_entries += g->m * g->n;
    for (size_t j = 0; j < g->n; j++) {
        for (size_t i = 0; i < g->m; i++) {
            double re = 0, im = 0;
            for (size_t p = 0; p < g->k; p++) {
                size_t x = 2 * (g->transa == CLB_OP_N ? i + p * g->lda : p + i * g->lda);
                size_t y = 2 * (g->transb == CLB_OP_N ? p + j * g->ldb : j + p * g->ldb);
                double ar = get(precision, g->a, x), ai = get(precision, g->a, x + 1);
                double br = get(precision, g->b, y), bi = get(precision, g->b, y + 1);
                ai = g->transa == CLB_OP_C ? -ai : ai;
                bi = g->transb == CLB_OP_C ? -bi : bi;
                re += ar * br - ai * bi;
                im += ar * bi + ai * br;
            }
            size_t at = 2 * (i + j * g->ldc);
            double cr = get(precision, g->c, at), ci = get(precision, g->c, at + 1);
            put(precision, g->c, at, alpha[0] * re - alpha[1] * im + beta[0] * cr - beta[1] * ci);
            put(precision, g->c, at + 1,
                alpha[0] * im + alpha[1] * re + beta[0] * ci + beta[1] * cr);
        }
    }
}

static void make(struct product *g, struct matrix *x, size_t rows, size_t cols, uint64_t *seed)
{
    matrix_make(x, g->precision == CLB_C ? CLB_S : CLB_D, 2 * rows, cols,
                2 * (rows + random_below(seed, 5)), random_below(seed, 4));
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            matrix_set(x, i, j, (double)random_below(seed, 9) - 4);
    }
    matrix_remember(x);
}

static struct clb_gemm problem_of(const struct product *g)
{
    bool single = g->precision == CLB_C;
    return (struct clb_gemm){.precision = g->precision,
                             .transa = g->transa,
                             .transb = g->transb,
                             .m = g->m,
                             .n = g->n,
                             .k = g->k,
                             .alpha = single ? (const void *)alpha_c : alpha_z,
                             .beta = single ? (const void *)beta_c : beta_z,
                             .a = matrix_data(&g->a),
                             .b = matrix_data(&g->b),
                             .c = matrix_data(&g->c),
                             .lda = g->a.ld / 2,
                             .ldb = g->b.ld / 2,
                             .ldc = g->c.ld / 2};
}

static void make_product(struct product *g, uint64_t *seed)
{
    bool plain_a = g->transa == CLB_OP_N, plain_b = g->transb == CLB_OP_N;
    uint64_t same = random_bits(seed), again = same;
    make(g, &g->a, plain_a ? g->m : g->k, plain_a ? g->k : g->m, seed);
    make(g, &g->b, plain_b ? g->k : g->n, plain_b ? g->n : g->k, seed);
    make(g, &g->c, g->m, g->n, &same);
    make(g, &g->expected, g->m, g->n, &again);
    struct clb_gemm problem = problem_of(g);
    problem.c = matrix_data(&g->expected);
    fake_next(NULL, &problem);
    next_entries = 0;
}

static void discard(struct product *g)
{
    matrix_free(&g->a);
    matrix_free(&g->b);
    matrix_free(&g->c);
    matrix_free(&g->expected);
}

/* True when the route layer took the call. */
static bool run(const struct product *g)
{
    struct clb_symbol *symbol =
        &clb_symbols[g->precision == CLB_C ? CLB_SYMBOL_cgemm_plain : CLB_SYMBOL_zgemm_plain];
    struct clb_gemm_call call = {.problem = problem_of(g),
                                 .m = (int64_t)g->m,
                                 .n = (int64_t)g->n,
                                 .k = (int64_t)g->k,
                                 .lda = (int64_t)g->a.ld / 2,
                                 .ldb = (int64_t)g->b.ld / 2,
                                 .ldc = (int64_t)g->c.ld / 2,
                                 .layout_valid = true};
    if (clb_route_gemm(symbol, NULL, &call, fake_next))
        return true;
    struct clb_gemm problem = problem_of(g);
    fake_next(NULL, &problem);
    return false;
}

/* Call number `at` of the driver fails; 0: none. */
static void run_failing(clb_precision precision, uint64_t seed, long at)
{
    struct product g = {.precision = precision,
                        .transa = (clb_op)random_below(&seed, 3),
                        .transb = (clb_op)random_below(&seed, 3),
                        .m = 17 + random_below(&seed, 15),
                        .n = 9 + random_below(&seed, 8),
                        .k = 5 + random_below(&seed, 9)};
    make_product(&g, &seed);
    fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
    run(&g);
    driver_calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    for (size_t j = 0; j < g.n; j++) {
        for (size_t i = 0; i < 2 * g.m; i++)
            expect(matrix_get(&g.c, i, j) == matrix_get(&g.expected, i, j),
                   "%s call %ld: C(%zu,%zu) = %g, expected %g", at == 0 ? "no" : "failing", at, i,
                   j, matrix_get(&g.c, i, j), matrix_get(&g.expected, i, j));
    }
    expect(matrix_gaps_intact(&g.c), "call %ld: written outside of C", at);
    expect(matrix_intact(&g.a) && matrix_intact(&g.b), "call %ld: A or B written", at);
    expect(next_entries <= g.m * g.n, "call %ld: the next library got too much", at);
    discard(&g);
}

struct setting {
    const char *name;
    clb_precision precision;
    const char *kernel;
    bool discrete;
    uint64_t seed;
};

static void fail_every_call(void *argument)
{
    const struct setting *setting = argument;
    long partly = 0;
    setenv("CLBLAS_SHIM", "always", 1);
    setenv("CLBLAS_SHIM_PARAMS", "gemm.tile=min", 1);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 1);
    setenv("CLBLAS_SHIM_KERNEL", setting->kernel, 1);
    setenv("CLBLAS_SHIM_DEVICE", setting->discrete ? "gpu" : "cpu", 1);
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    fake_cl.discrete = setting->discrete;
    fake_cl_install();
    run_failing(setting->precision, setting->seed, 0);
    expect(next_entries == 0, "the device did not compute the first call");
    run_failing(setting->precision, setting->seed, 0);
    long calls = driver_calls;
    for (long at = 1; at <= calls; at++) {
        run_failing(setting->precision, setting->seed, at);
        partly += next_entries > 0;
        run_failing(setting->precision, setting->seed,
                    0); /* three failures in a row would end it */
    }
    expect(calls > 20, "only %ld calls", calls);
    expect(partly > 0, "no call was finished by the next library");
}

int main(void)
{
    static struct setting settings[] = {
        {"in place, cpu family, single", CLB_C, "cpu", false, 0},
        {"own memory, portable family, double", CLB_Z, "portable", true, 0},
        {"own memory, cpu family, single", CLB_C, "cpu", true, 0},
        {"in place, portable family, double", CLB_Z, "portable", false, 0}};
    uint64_t seed = tap_seed();
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        settings[i].seed = random_bits(&seed);
        tap_child(settings[i].name, 120, fail_every_call, &settings[i]);
    }
    return tap_done();
}
