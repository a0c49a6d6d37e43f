/* Products with Q and its columns on the device, small blocks, next to plain loops: every side and
 * op, every shape, what is written and what is left. SPDX-License-Identifier: BSD-3-Clause */
#include "dense_qr.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static size_t one_to(uint64_t *seed, size_t most)
{
    return 1 + random_below(seed, most);
}

/* Vectors of a random matrix, some of them of zeros, and room for k of tau. */
static char *make_vectors(struct dense *a, clb_precision precision, size_t rows, size_t cols,
                          size_t k, uint64_t *seed)
{
    char *tau = calloc(k, clb_precision_size(precision));
    dense_make(a, precision, rows, cols, 9, seed);
    for (size_t i = 0; i < rows && random_below(seed, 4) == 0; i++)
        dense_set(a, i, k / 2, 0);
    struct clb_call problem = dense_call(CLB_KIND_geqrf, rows, k, a);
    problem.tau = tau;
    clb_host_call(&dense_qr_next, &problem);
    dense_remember(a);
    return tau;
}

/* The same content in another place. */
static void copy(struct dense *to, const struct dense *from, uint64_t *seed)
{
    dense_make(to, from->precision, from->rows, from->cols, 9, seed);
    for (size_t j = 0; j < from->cols; j++) {
        for (size_t i = 0; i < from->rows; i++)
            dense_set(to, i, j, dense_get(from, i, j));
    }
    dense_remember(to);
}

static void make_adjoint(struct dense *to, const struct dense *from, uint64_t *seed)
{
    dense_make(to, from->precision, from->cols, from->rows, 9, seed);
    dense_set_adjoint(to, from);
    dense_remember(to);
}

/* The largest difference, in units of `scale` and k of u. */
static long double distance(const struct dense *x, const struct dense *y, size_t k,
                            long double scale)
{
    long double worst = 0;
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++) {
            long double d = cabsl(dense_get(x, i, j) - dense_get(y, i, j));
            worst = d <= worst ? worst : d;
        }
    }
    return worst / (dense_unit(x->precision) * (long double)(k + 4) * scale);
}

/* ---- products ---- */

static void multiply(struct clb_runtime *runtime, struct fake_setting *setting, int i)
{
    clb_precision precision = (clb_precision)(i % CLB_PRECISIONS);
    bool right = random_below(&setting->seed, 2), real = clb_precision_parts(precision) == 1;
    size_t order = one_to(&setting->seed, setting->largest), k = one_to(&setting->seed, order);
    size_t others = one_to(&setting->seed, setting->largest);
    struct dense a, adjoint, c, expected;
    struct clb_gemm_progress progress;
    char *tau = make_vectors(&a, precision, order, k, k, &setting->seed);
    make_adjoint(&adjoint, &a, &setting->seed);
    const struct dense *given = random_below(&setting->seed, 2) != 0 ? &adjoint : &a;
    dense_make(&c, precision, right ? others : order, right ? order : others, 9, &setting->seed);
    copy(&expected, &c, &setting->seed);
    clb_op op = i / 4 % 2 ? CLB_OP_N : real && i / 8 % 2 ? CLB_OP_T : CLB_OP_C;
    struct clb_call problem = dense_call(CLB_KIND_ormqr, c.rows, c.cols, &a);
    problem.right = right;
    problem.transa = op;
    problem.k = k;
    problem.tau = tau;
    problem.c = dense_data(&c);
    problem.ldc = c.ld;
    struct clb_call lq = problem;
    lq.routine = clb_routine_of(CLB_KIND_ormqr, precision, true);
    lq.transa = op != CLB_OP_N ? CLB_OP_N : real ? CLB_OP_T : CLB_OP_C;
    lq.a = dense_data(&adjoint);
    lq.lda = adjoint.ld;
    clb_status status = clb_ormqr_run(runtime, fake_cl_variant(runtime, precision),
                                      given == &adjoint ? &lq : &problem, &progress);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    for (size_t p = 0; p < progress.parts; p++)
        expect(progress.written[p], "part %zu is missing", p);
    clb_gemm_progress_free(&progress);
    problem.c = dense_data(&expected);
    problem.ldc = expected.ld;
    clb_host_call(&dense_qr_next, &problem);
    long double error = distance(&c, &expected, k, sqrtl((long double)order));
    expect(error <= 3, "%s %c %c%c %zux%zu k=%zu%s: off by %.3Lg", setting->name, "sdcz"[precision],
           right ? 'R' : 'L', "NTC"[op], c.rows, c.cols, k, given == &adjoint ? ", adjoint" : "",
           error);
    expect(dense_gaps_intact(&c) && dense_intact(&a) && dense_intact(&adjoint),
           "something else was written");
    dense_free(&a);
    dense_free(&adjoint);
    dense_free(&c);
    dense_free(&expected);
    free(tau);
}

static void products(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++)
        multiply(runtime, setting, i);
}

/* ---- Q ---- */

struct generation {
    struct dense a, adjoint, expected; /* adjoint: A^H, where the problem's memory has that */
    char *tau;
    size_t m, n;
    struct clb_call problem;
    struct clb_orgqr_result result;
};

static void make_generation(struct generation *g, clb_precision precision, size_t most,
                            uint64_t *seed)
{
    size_t m = one_to(seed, most), n = one_to(seed, m), k = one_to(seed, n);
    g->tau = make_vectors(&g->a, precision, m, n, k, seed);
    copy(&g->expected, &g->a, seed);
    make_adjoint(&g->adjoint, &g->a, seed);
    struct clb_call other = dense_call(CLB_KIND_orgqr, m, n, &g->expected);
    g->m = m;
    g->n = n;
    g->problem = random_below(seed, 2) != 0 ? dense_lq_call(CLB_KIND_orgqr, m, n, &g->adjoint)
                                            : dense_call(CLB_KIND_orgqr, m, n, &g->a);
    g->problem.k = other.k = k;
    g->problem.tau = other.tau = g->tau;
    clb_host_call(&dense_qr_next, &other);
}

static void check_generation(struct generation *g, const char *what)
{
    const struct clb_call *p = &g->problem;
    if (clb_call_is_adjoint(p))
        dense_set_adjoint(&g->a, &g->adjoint);
    long double error = distance(&g->a, &g->expected, p->k, 1);
    expect(error <= 3, "%s %c %zux%zu k=%zu%s: off by %.3Lg", what, "sdcz"[p->precision], g -> m,
           g -> n, p -> k, clb_call_is_adjoint(p) ? ", adjoint" : "", error);
    expect(dense_gaps_intact(&g->a) && dense_gaps_intact(&g->adjoint), "%s: written outside of A",
           what);
}

static void discard(struct generation *g)
{
    dense_free(&g->a);
    dense_free(&g->adjoint);
    dense_free(&g->expected);
    free(g->tau);
}

static void generations(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        struct generation g;
        clb_precision precision = (clb_precision)(i % CLB_PRECISIONS);
        make_generation(&g, precision, setting->largest, &setting->seed);
        clb_status status =
            clb_orgqr_run(runtime, fake_cl_variant(runtime, precision), &g.problem, &g.result);
        expect(status == CLB_OK, "%s", clb_status_name(status));
        expect(g.result.columns_left == 0, "%zu columns are missing", g.result.columns_left);
        check_generation(&g, setting->name);
        discard(&g);
    }
}

/* Columns that are written from the right leave a problem of the same kind. */
static void rests(void *argument)
{
    struct fake_setting *setting = argument;
    for (int i = 0; i < setting->runs; i++) {
        struct generation g;
        make_generation(&g, (clb_precision)(i % CLB_PRECISIONS), setting->largest, &setting->seed);
        g.result.columns_left = one_to(&setting->seed, g.n) - 1;
        for (size_t j = g.result.columns_left; j < g.n; j++) {
            for (size_t r = 0; r < g.m; r++)
                dense_set(&g.a, r, j, dense_get(&g.expected, r, j));
        }
        if (clb_call_is_adjoint(&g.problem))
            dense_set_adjoint(&g.adjoint, &g.a);
        const struct clb_call rest = clb_orgqr_rest(&g.problem, &g.result);
        clb_host_call(&dense_qr_next, &rest);
        check_generation(&g, setting->name);
        discard(&g);
    }
}

/* Declined with everything intact until memory is enough. */
static void growing_memory(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    struct generation g;
    int declined = 0;
    clb_status status = CLB_ERR_NOMEM;
    do {
        make_generation(&g, CLB_Z, 200, &setting->seed);
    } while (g.n < 100 && (discard(&g), true));
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, CLB_Z);
    if (variant == NULL)
        return;
    for (runtime->memory_limit = 4096; status == CLB_ERR_NOMEM; runtime->memory_limit *= 2) {
        status = clb_orgqr_run(runtime, variant, &g.problem, &g.result);
        declined += status != CLB_OK;
        expect(status == CLB_OK ||
                   (g.result.columns_left == g.n && dense_intact(&g.a) && dense_intact(&g.adjoint)),
               "written without memory");
    }
    expect(status == CLB_OK && declined >= 3, "%s after %d", clb_status_name(status), declined);
    check_generation(&g, "with enough memory");
    discard(&g);
}

int main(void)
{
    uint64_t seed = tap_seed();
    struct fake_setting rest = {"the rest of Q", "cpu", "", false, 40, 60, random_bits(&seed)};
    struct fake_setting settings[] = {
        {"in place, cpu family", "cpu", "gemm.tile=min,geqrf.nb=8,trsm.part=16", false, 60, 96, 0},
        {"in place, portable family", "portable", "gemm.tile=min,geqrf.nb=24", false, 60, 32, 0},
        {"in place, larger blocks", "cpu", "geqrf.nb=40,trsm.part=64", false, 150, 16, 0},
        {"streamed, cpu family", "cpu",
         "gemm.tile=min,geqrf.nb=8,trsm.part=16,gemm.stream=1,gemm.threads=3", false, 60, 96, 0},
        {"own memory, portable family", "portable", "gemm.tile=min,geqrf.nb=24", true, 60, 32, 0},
        {"own memory, larger blocks", "cpu", "geqrf.nb=40", true, 150, 16, 0},
    };
    tap_child(rest.name, 120, rests, &rest);
    for (size_t i = 0; i < 2 * CLB_COUNT_OF(settings); i++) {
        struct fake_setting *setting = &settings[i / 2];
        char name[80];
        setting->seed = random_bits(&seed);
        strcpy(name, i % 2 ? "Q, " : "products, ");
        strcat(name, setting->name);
        tap_child(name, 300, i % 2 ? generations : products, setting);
    }
    tap_child("more and more memory, in place", 120, growing_memory, &settings[0]);
    tap_child("more and more memory, own memory", 120, growing_memory, &settings[4]);
    return tap_done();
}
