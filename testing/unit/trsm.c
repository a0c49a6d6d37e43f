/* Triangular systems on the device, every case, and systems from LU's factors: the residual of each
 * entry is at most that of substitution, |alpha*B - op(A)*X| <= (n + c) u (|op(A)||X| + |alpha*B|),
 * which holds however badly the triangle is conditioned; inverses of diagonal blocks would not
 * pass. SPDX-License-Identifier: BSD-3-Clause */
#include "dense.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

struct setting {
    const char *name, *kernel, *params;
    bool discrete;
    size_t largest;
    int runs;
    uint64_t seed;
    size_t rhs; /* 0: up to the largest */
};

enum kind { UNIFORM, GRADED, TINY_DIAGONAL, GROWING, KINDS };

static const char *const kinds[KINDS] = {"uniform", "graded", "tiny diagonal", "growing"};

struct system {
    struct clb_call problem;
    enum kind kind;
    number alpha;
    double scalar_d[2];
    float scalar_s[2];
    struct dense a, b;
};

/* What is not referenced is NaN. */
static void make_triangle(struct system *s, uint64_t *seed)
{
    const struct clb_call *problem = &s->problem;
    size_t n = s->a.rows;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            number e = dense_get(&s->a, i, j);
            if ((problem->upper ? i > j : i < j) || (i == j && problem->unit)) {
                e = dense_number(NAN, NAN);
            } else if (i == j) {
                e += creall(e) < 0 ? -1 : 1;
                if (s->kind == TINY_DIAGONAL)
                    e *= ldexpl(1, -(int)random_below(seed, 12));
            } else if (s->kind == GROWING) {
                e = -1; /* solutions as large as 2^n */
            } else {
                e /= s->kind == TINY_DIAGONAL ? (long double)n * 4 : sqrtl((long double)n);
            }
            /* With ones on the diagonal large factors would overflow. */
            if (s->kind == GRADED)
                e *=
                    ldexpl(1, problem->unit ? -(int)((i + j) % 19) : (int)(i % 23) - (int)(j % 17));
            dense_set(&s->a, i, j, e);
        }
    }
    dense_remember(&s->a);
}

static void make_system(struct system *s, const struct setting *setting, uint64_t *seed)
{
    struct clb_call *problem = &s->problem;
    bool single;
    *s = (struct system){.kind = (enum kind)random_below(seed, KINDS)};
    *problem = clb_call_of(
        clb_routine_of(CLB_KIND_trsm, (clb_precision)random_below(seed, CLB_PRECISIONS), false));
    problem->right = random_below(seed, 2);
    problem->upper = random_below(seed, 2);
    problem->unit = random_below(seed, 2);
    problem->transa = (clb_op)random_below(seed, 3);
    single = clb_precision_real_size(problem->precision) == sizeof(float);
    size_t n = 1 + random_below(seed, s->kind == GROWING ? 80 : setting->largest);
    size_t rhs = setting->rhs != 0 ? setting->rhs : 1 + random_below(seed, setting->largest);
    problem->m = problem->right ? rhs : n;
    problem->n = problem->right ? n : rhs;
    dense_make(&s->a, problem->precision, n, n, 9, seed);
    dense_make(&s->b, problem->precision, problem->m, problem->n, 9, seed);
    make_triangle(s, seed);
    s->alpha = random_below(seed, 2) ? 1 : -0.75;
    if (s->alpha != 1 && clb_precision_parts(problem->precision) > 1)
        s->alpha = dense_number(0.5, -1.25);
    for (int i = 0; i < 2; i++) {
        s->scalar_d[i] = (double)(i == 0 ? creall(s->alpha) : cimagl(s->alpha));
        s->scalar_s[i] = (float)s->scalar_d[i];
    }
    problem->alpha = single ? (const void *)s->scalar_s : s->scalar_d;
    problem->a = dense_data(&s->a);
    problem->b = dense_data(&s->b);
    problem->lda = s->a.ld;
    problem->ldb = s->b.ld;
}

static number element(const struct system *s, size_t i, size_t j)
{
    const struct clb_call *problem = &s->problem;
    bool plain = problem->transa == CLB_OP_N;
    size_t row = plain ? i : j, col = plain ? j : i;
    if (row == col && problem->unit)
        return 1;
    if (problem->upper ? row > col : row < col)
        return 0;
    number e = dense_get(&s->a, row, col);
    return problem->transa == CLB_OP_C ? conjl(e) : e;
}

static void check_system(const struct system *s)
{
    const struct clb_call *problem = &s->problem;
    long double unit = dense_unit(problem->precision), worst = 0;
    size_t n = s->a.rows;
    for (size_t j = 0; j < problem->n; j++) {
        for (size_t i = 0; i < problem->m; i++) {
            number sum = s->alpha * dense_old(&s->b, i, j);
            long double size = dense_abs(sum);
            for (size_t p = 0; p < n; p++) {
                number term = problem->right
                                  ? dense_times(dense_get(&s->b, i, p), element(s, p, j))
                                  : dense_times(element(s, i, p), dense_get(&s->b, p, j));
                sum -= term;
                size += dense_abs(term);
            }
            long double error = dense_abs(sum) / (size * unit * ((long double)n + 4));
            worst = error <= worst ? worst : error;
        }
    }
    bool pairs = clb_precision_parts(problem->precision) > 1;
    expect(worst <= (pairs ? 3 : 1),
           "%c %s %s %c %s m=%zu n=%zu, %s: residual %.3Lg of substitution's bound",
           "sdcz"[problem->precision], problem -> right ? "right" : "left",
           problem->upper ? "upper" : "lower", "NTC"[problem->transa],
           problem -> unit ? "unit" : "non-unit", problem->m, problem->n, kinds[s->kind], worst);
    expect(dense_gaps_intact(&s->b) && dense_intact(&s->a), "something else was written");
}

static void run_system(struct clb_runtime *runtime, struct system *s)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, s->problem.precision);
    struct clb_gemm_progress progress;
    if (variant == NULL)
        return;
    clb_status status = clb_trsm_run(runtime, variant, &s->problem, &progress);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    size_t entries = 0;
    for (size_t i = 0; i < progress.parts; i++) {
        expect(progress.written[i], "part %zu is not written", i);
        entries += progress.part[i].rows * progress.part[i].cols;
    }
    expect(entries == s->problem.m * s->problem.n, "the parts don't cover B");
    clb_gemm_progress_free(&progress);
    if (status == CLB_OK)
        check_system(s);
}

/* ---- from the factors of LU ---- */

struct factored {
    struct clb_call problem;
    struct dense a, b;
    int64_t *ipiv;
};

static void make_factored(struct factored *f, const struct setting *setting, uint64_t *seed)
{
    struct clb_call *problem = &f->problem;
    size_t n = 1 + random_below(seed, setting->largest);
    *problem = clb_call_of(
        clb_routine_of(CLB_KIND_getrs, (clb_precision)random_below(seed, CLB_PRECISIONS), false));
    problem->wide = true;
    problem->transa = (clb_op)random_below(seed, 3);
    problem->m = problem->n = n;
    problem->nrhs = 1 + random_below(seed, setting->largest);
    dense_make(&f->a, problem->precision, n, n, 9, seed);
    dense_make(&f->b, problem->precision, n, problem->nrhs, 9, seed);
    f->ipiv = calloc(n, sizeof *f->ipiv);
    dense_getrf(&f->a, f->ipiv);
    dense_remember(&f->a);
    problem->a = dense_data(&f->a);
    problem->b = dense_data(&f->b);
    problem->lda = f->a.ld;
    problem->ldb = f->b.ld;
    problem->ipiv = f->ipiv;
}

static number factor_element(const struct factored *f, bool upper, size_t i, size_t j)
{
    if (upper ? i > j : i < j)
        return 0;
    return !upper && i == j ? 1 : dense_get(&f->a, i, j);
}

/* y = op(L) or op(U) times x, and the sums of the terms' sizes. */
static void multiply(const struct factored *f, bool upper, const number *x, const long double *sx,
                     number *y, long double *sy)
{
    clb_op op = f->problem.transa;
    for (size_t i = 0; i < f->problem.n; i++) {
        y[i] = 0;
        sy[i] = 0;
        for (size_t p = 0; p < f->problem.n; p++) {
            number e =
                op == CLB_OP_N ? factor_element(f, upper, i, p) : factor_element(f, upper, p, i);
            y[i] += dense_times(op == CLB_OP_C ? conjl(e) : e, x[p]);
            sy[i] += dense_abs(e) * sx[p];
        }
    }
}

static void interchange(const struct factored *f, number *x)
{
    for (size_t i = 0; i < f->problem.n; i++) {
        size_t other = (size_t)f->ipiv[i] - 1;
        number held = x[i];
        x[i] = x[other];
        x[other] = held;
    }
}

/* |P*B - L*(U*X)| or |B - op(U)*(op(L)*(P*X))|. */
static long double factored_error(const struct factored *f)
{
    size_t n = f->problem.n;
    bool plain = f->problem.transa == CLB_OP_N;
    number *x = calloc(4 * n, sizeof *x), *y = x + n, *z = y + n, *b = z + n;
    long double *size = calloc(3 * n, sizeof *size), worst = 0;
    for (size_t j = 0; j < f->problem.nrhs; j++) {
        for (size_t i = 0; i < n; i++) {
            x[i] = dense_get(&f->b, i, j);
            b[i] = dense_old(&f->b, i, j);
        }
        interchange(f, plain ? b : x);
        for (size_t i = 0; i < n; i++)
            size[i] = dense_abs(x[i]);
        multiply(f, plain, x, size, y, size + n);
        multiply(f, !plain, y, size + n, z, size + 2 * n);
        for (size_t i = 0; i < n; i++) {
            long double error = dense_abs(b[i] - z[i]) / (dense_unit(f->a.precision) * 2 *
                                                          ((long double)n + 4) * size[2 * n + i]);
            worst = error <= worst ? worst : error;
        }
    }
    free(x);
    free(size);
    return worst;
}

static void run_factored(struct clb_runtime *runtime, struct factored *f)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, f->problem.precision);
    struct clb_gemm_progress progress;
    if (variant == NULL)
        return;
    clb_status status = clb_getrs_run(runtime, variant, &f->problem, &progress);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    for (size_t i = 0; i < progress.parts; i++)
        expect(progress.written[i], "part %zu is not written", i);
    clb_gemm_progress_free(&progress);
    long double error = factored_error(f);
    bool pairs = clb_precision_parts(f->a.precision) > 1;
    expect(error <= (pairs ? 3 : 1), "%c %c n=%zu nrhs=%zu: residual %.3Lg", "sdcz"[f->a.precision],
           "NTC"[f->problem.transa], f -> problem.n, f->problem.nrhs, error);
    expect(dense_gaps_intact(&f->b) && dense_intact(&f->a), "something else was written");
}

/* ---- all of them ---- */

static struct clb_runtime *start(const struct setting *setting)
{
    return fake_cl_start(setting->kernel, setting->params, setting->discrete);
}

static void systems(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        struct system s;
        make_system(&s, setting, &setting->seed);
        run_system(runtime, &s);
        dense_free(&s.a);
        dense_free(&s.b);
    }
    for (int i = 0; runtime != NULL && i < setting->runs / 3; i++) {
        struct factored f;
        make_factored(&f, setting, &setting->seed);
        run_factored(runtime, &f);
        dense_free(&f.a);
        dense_free(&f.b);
        free(f.ipiv);
    }
}

/* The least memory that is enough is less than B's; until then B is untouched. */
static void taking_turns(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (int i = 0; runtime != NULL && i < setting->runs; i++) {
        struct system s;
        struct clb_gemm_progress progress;
        clb_status status = CLB_ERR_NOMEM;
        make_system(&s, setting, &setting->seed);
        const struct clb_gemm_variant *variant = fake_cl_variant(runtime, s.problem.precision);
        uint64_t limit = 10000, all = runtime->memory_limit;
        size_t bytes = s.problem.m * s.problem.n * clb_precision_size(s.problem.precision);
        if (variant == NULL)
            return;
        run_system(runtime, &s); /* checks kernels, which takes memory as well */
        matrix_fill(&s.b.real, &setting->seed);
        dense_remember(&s.b);
        for (; status == CLB_ERR_NOMEM; limit += limit / 4) {
            runtime->memory_limit = limit;
            status = clb_trsm_run(runtime, variant, &s.problem, &progress);
            clb_gemm_progress_free(&progress);
            expect(status == CLB_OK || (status == CLB_ERR_NOMEM && dense_intact(&s.b)), "%s",
                   clb_status_name(status));
        }
        check_system(&s);
        expect(s.a.rows < 20 || limit < bytes, "%llu bytes for a B of %zu",
               (unsigned long long)limit, bytes);
        runtime->memory_limit = all;
        dense_free(&s.a);
        dense_free(&s.b);
    }
}

/* The plain loops that other tests rely on. */
static void plain(void *argument)
{
    struct setting *setting = argument;
    for (int i = 0; i < setting->runs; i++) {
        struct system s;
        make_system(&s, setting, &setting->seed);
        dense_trsm(&dense_next, &s.problem);
        check_system(&s);
        dense_free(&s.a);
        dense_free(&s.b);
    }
}

int main(void)
{
    uint64_t seed = tap_seed();
    struct setting loops = {"plain loops", NULL, NULL, false, 40, 60, random_bits(&seed), 0};
    struct setting turns = {"right-hand sides take turns",
                            "cpu",
                            "gemm.tile=min,trsm.nb=8,trsm.part=100,gemm.threads=2",
                            true,
                            60,
                            5,
                            random_bits(&seed),
                            4000};
    struct setting settings[] = {
        {"in place, cpu family", "cpu", "gemm.tile=min,trsm.nb=8,trsm.part=24", false, 70, 200, 0,
         0},
        {"in place, portable family", "portable", "gemm.tile=min,trsm.nb=8,trsm.part=24", false, 70,
         60, 0, 0},
        {"in place, the device's values", "cpu", "trsm.part=100", false, 300, 15, 0, 0},
        {"streamed, cpu family", "cpu",
         "gemm.tile=min,trsm.nb=8,trsm.part=24,gemm.stream=1,gemm.threads=3", false, 70, 200, 0, 0},
        {"own memory, portable family", "portable",
         "gemm.tile=min,gemm.parts=3,trsm.nb=8,trsm.part=24", true, 70, 60, 0, 0},
    };
    tap_child(loops.name, 60, plain, &loops);
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        settings[i].seed = random_bits(&seed);
        tap_child(settings[i].name, 300, systems, &settings[i]);
    }
    tap_child(turns.name, 300, taking_turns, &turns);
    return tap_done();
}
