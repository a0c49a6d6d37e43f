/* SPDX-License-Identifier: BSD-3-Clause
 * Cholesky on the device, small blocks: backward error of every entry, info, what is not to be read
 * or written; the rest of a factorisation that was written in part; and solving with the factor. */
#include "dense.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    UNIFORM,
    GRADED,
    HUGE_NUMBERS,
    TINY_NUMBERS,
    INDEFINITE,
    ZERO_PIVOT,
    NOT_A_NUMBER,
    KINDS
};

static const char *const kinds[KINDS] = {"definite",   "graded",       "huge",    "tiny",
                                         "indefinite", "a zero pivot", "with NaN"};

struct factorisation {
    enum kind kind;
    struct dense a;
    struct clb_call problem;
    struct clb_host_blas next;
    struct clb_factors result;
    size_t info; /* expected */
};

static void scale_all(struct dense *a, bool upper, int exponent)
{
    for (size_t j = 0; j < a->cols; j++) {
        for (size_t i = 0; i < a->rows; i++) {
            if (i == j || (i > j) != upper)
                dense_set(a, i, j, dense_get(a, i, j) * ldexpl(1, exponent));
        }
    }
}

/* A NaN on the diagonal, or in the row of L whose pivot it spoils. */
static void put_nan(struct factorisation *f, size_t at, uint64_t *seed)
{
    size_t other = random_below(seed, at + 1);
    if (f->problem.upper)
        dense_set(&f->a, other, at, dense_number(NAN, 0));
    else
        dense_set(&f->a, at, other, dense_number(NAN, 0));
}

static void make_kind(struct factorisation *f, uint64_t *seed)
{
    size_t n = f->a.rows, at = random_below(seed, n);
    bool single = clb_precision_real_size(f->a.precision) == sizeof(float);
    f->info = f->kind >= INDEFINITE ? at + 1 : 0;
    switch (f->kind) {
    case HUGE_NUMBERS:
        scale_all(&f->a, f->problem.upper, single ? 120 : 1000);
        break;
    case TINY_NUMBERS: /* the smallest products are not below the smallest normal number */
        scale_all(&f->a, f->problem.upper, single ? -70 : -900);
        break;
    case INDEFINITE: /* the minors before this one are those of a definite matrix */
        dense_set(&f->a, at, at, -1);
        break;
    case ZERO_PIVOT: /* a row and column of zeros stays one */
        for (size_t j = 0; j < n; j++) {
            size_t low = j < at ? j : at, high = j < at ? at : j;
            dense_set(&f->a, f->problem.upper ? low : high, f->problem.upper ? high : low, 0);
        }
        break;
    case NOT_A_NUMBER:
        put_nan(f, at, seed);
        break;
    default:
        break;
    }
}

static void make(struct factorisation *f, clb_precision precision, size_t n, enum kind kind,
                 uint64_t *seed)
{
    *f = (struct factorisation){.kind = kind, .next = dense_next};
    const bool upper = random_below(seed, 2);
    dense_make_definite(&f->a, precision, n, 9, upper, kind == GRADED ? 9 : 0, seed);
    f->problem = dense_call(CLB_KIND_potrf, n, n, &f->a);
    f->problem.upper = upper;
    make_kind(f, seed);
    dense_remember(&f->a);
}

static void check(const struct factorisation *f, size_t columns, const char *what)
{
    char text[160];
    size_t right = f->result.info != 0 ? f->result.info - 1 : f->a.rows;
    snprintf(text, sizeof text, "%s: %c %c n=%zu %s", what, "sdcz"[f->a.precision],
             f -> problem.upper ? 'U' : 'L', f->a.rows, kinds[f->kind]);
    expect(f->result.info == f->info, "%s: info = %zu, not %zu", text, f->result.info, f->info);
    long double error = dense_cholesky_error(&f->a, f->problem.upper, clb_min(right, columns));
    expect(error <= (clb_precision_parts(f->a.precision) > 1 ? 3 : 1), "%s: backward error %.3Lg",
           text, error);
}

static clb_status factor(struct clb_runtime *runtime, struct factorisation *f)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, f->problem.precision);
    if (variant == NULL)
        return CLB_ERR_UNSUPPORTED;
    return clb_potrf_run(runtime, variant, &f->problem, &f->next, &f->result);
}

static void factor_and_check(struct clb_runtime *runtime, struct factorisation *f, const char *what)
{
    clb_status status = factor(runtime, f);
    size_t columns = f->info != 0 ? f->info - 1 : f->a.rows;
    expect(status == CLB_OK, "%s: %s", what, clb_status_name(status));
    expect(f->result.columns_written == columns, "%s: %zu of %zu columns written", what,
           f->result.columns_written, columns);
    check(f, columns, what);
}

static void factorisations(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        struct factorisation f;
        enum kind kind = (enum kind)(i / CLB_PRECISIONS % (2 * KINDS));
        make(&f, (clb_precision)(i % CLB_PRECISIONS),
             1 + random_below(&setting->seed, setting->largest), kind < KINDS ? kind : UNIFORM,
             &setting->seed);
        factor_and_check(runtime, &f, setting->name);
        dense_free(&f.a);
    }
}

/* A long way before the end the device is told no more. */
static void early_end(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    struct factorisation f;
    long calls[2] = {0};
    for (int i = 0; runtime != NULL && i < 2; i++) {
        make(&f, CLB_D, 240, UNIFORM, &setting->seed);
        if (i == 1) {
            dense_set(&f.a, 20, 20, -1);
            dense_remember(&f.a);
            f.info = 21;
        }
        factor_and_check(runtime, &f, setting->name);
        calls[i] = fake_cl.of[FAKE_EnqueueNDRangeKernel];
        dense_free(&f.a);
    }
    expect(runtime == NULL || calls[1] - calls[0] < calls[0] / 4, "%ld launches, then %ld more",
           calls[0], calls[1] - calls[0]);
}

/* More and more memory: declined with the matrix intact until it is enough. */
static void growing_memory(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    struct factorisation f;
    int declined = 0;
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, CLB_D);
    clb_status status = CLB_ERR_NOMEM;
    make(&f, CLB_D, 140, UNIFORM, &setting->seed);
    if (variant == NULL)
        return;
    for (runtime->memory_limit = 4096; status == CLB_ERR_NOMEM; runtime->memory_limit *= 2) {
        status = factor(runtime, &f);
        if (status != CLB_OK) {
            declined++;
            expect(isfinite(dense_cholesky_error(&f.a, f.problem.upper, 0)),
                   "written without memory");
        }
    }
    expect(status == CLB_OK, "%s", clb_status_name(status));
    expect(declined >= 3, "only %d limits were too low", declined);
    check(&f, f.a.rows, "with enough memory");
    dense_free(&f.a);
}

/* ---- several at once ---- */

static void factor_one(struct clb_runtime *runtime, void *factorisation)
{
    factor_and_check(runtime, factorisation, "at once");
}

/* The threads begin with different precisions. */
static void at_once(void *argument)
{
    struct fake_setting *setting = argument;
    static struct factorisation f[20];
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    if (runtime == NULL)
        return;
    for (size_t i = 0; i < CLB_COUNT_OF(f); i++)
        make(&f[i], (clb_precision)((i % 5 + i / 5) % CLB_PRECISIONS),
             20 + random_below(&setting->seed, setting->largest), (enum kind)(i % 5),
             &setting->seed);
    fake_cl_at_once(runtime, factor_one, f, CLB_COUNT_OF(f), sizeof *f);
}

/* ---- resuming ---- */

static void resume(struct fake_setting *setting, int run)
{
    struct factorisation f;
    make(&f, (clb_precision)(run % CLB_PRECISIONS),
         1 + random_below(&setting->seed, setting->largest),
         (enum kind)random_below(&setting->seed, KINDS), &setting->seed);
    size_t n = f.a.rows, right = f.info != 0 ? f.info - 1 : n;
    size_t written = random_below(&setting->seed, right + 1);
    f.result.info = clb_host_call(&f.next, &f.problem);
    f.result.columns_written = written;
    dense_restore(&f.a, written);
    dense_next_entries = 0;
    clb_potrf_resume(&f.problem, &f.next, &f.result);
    if (f.info != 0) /* what is behind the pivot may hold anything */
        dense_restore(&f.a, right);
    check(&f, right, "resumed");
    expect(dense_next_entries <= (n - written) * (2 * n + 1),
           "written columns were computed again");
    dense_free(&f.a);
}

static void resumptions(void *argument)
{
    struct fake_setting *setting = argument;
    for (int i = 0; i < setting->runs; i++)
        resume(setting, i);
}

/* ---- solving ---- */

/* |B - A*X| by the factor: a solution by plain loops is the same within rounding. */
static void check_solution(const struct clb_call *problem, const struct dense *x,
                           struct dense *expected, const char *what)
{
    struct clb_call other = *problem;
    other.b = dense_data(expected);
    long double worst = 0, largest = 0;
    clb_host_call(&dense_next, &other);
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++) {
            long double off = dense_abs(dense_get(x, i, j) - dense_get(expected, i, j));
            worst = off <= worst ? worst : off;
            largest = fmaxl(largest, dense_abs(dense_get(expected, i, j)));
        }
    }
    /* The matrices' condition is at most 20 n / 0.05. */
    expect(worst <= 2000 * (long double)problem->n * dense_unit(x->precision) * largest,
           "%s %c n=%zu nrhs=%zu: off by %Lg of %Lg", what, problem->upper ? 'U' : 'L', problem->n,
           problem->nrhs, worst, largest);
    expect(dense_gaps_intact(x), "%s: written outside of B", what);
}

static void solutions(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        struct factorisation f;
        struct dense b, expected;
        struct clb_gemm_progress progress;
        clb_precision precision = (clb_precision)(i % CLB_PRECISIONS);
        make(&f, precision, 1 + random_below(&setting->seed, setting->largest), UNIFORM,
             &setting->seed);
        size_t n = f.a.rows, nrhs = 1 + random_below(&setting->seed, setting->largest);
        uint64_t same = random_bits(&setting->seed), again = same;
        dense_make(&b, precision, n, nrhs, 5, &same);
        dense_make(&expected, precision, n, nrhs, 5, &again);
        expect(clb_host_call(&f.next, &f.problem) == 0, "no factor");
        struct clb_call problem = clb_call_as(&f.problem, CLB_KIND_potrs);
        problem.nrhs = nrhs;
        problem.b = dense_data(&b);
        problem.ldb = b.ld;
        dense_remember(&f.a);
        const struct clb_gemm_variant *variant = fake_cl_variant(runtime, precision);
        if (variant != NULL) {
            clb_status status = clb_potrs_run(runtime, variant, &problem, &progress);
            expect(status == CLB_OK, "%s", clb_status_name(status));
            check_solution(&problem, &b, &expected, setting->name);
            expect(isfinite(dense_cholesky_error(&f.a, problem.upper, 0)),
                   "the factor was written");
            clb_gemm_progress_free(&progress);
        }
        dense_free(&f.a);
        dense_free(&b);
        dense_free(&expected);
    }
}

#define SMALL "gemm.tile=min,potrf.nb=8,trsm.nb=8,trsm.part=8"

int main(void)
{
    uint64_t seed = tap_seed();
    struct fake_setting rest = {"resumed", "cpu", "", false, 90, 200, random_bits(&seed)};
    struct fake_setting settings[] = {
        {"in place, cpu family", "cpu", SMALL ",gemm.cached_c=1024", false, 70, 112, 0},
        {"in place, portable family", "portable", "gemm.tile=min,potrf.nb=24,trsm.nb=8", false, 60,
         56, 0},
        {"in place, larger blocks", "cpu", "potrf.nb=48,trsm.nb=16", false, 200, 16, 0},
        {"streamed, cpu family", "cpu", SMALL ",gemm.stream=1,gemm.threads=3", false, 70, 112, 0},
        {"own memory, blocks by the device", "portable", "gemm.tile=min,potrf.nb=80,trsm.nb=8",
         true, 120, 56, 0},
        {"own memory, blocks by the CPU", "portable", SMALL ",potrf.block=1", true, 60, 56, 0},
        {"in place, blocks by the device", "cpu", "potrf.nb=72,trsm.nb=16,potrf.block=2", false,
         130, 28, 0},
        {"streamed by one thread, blocks by the device", "cpu",
         SMALL ",potrf.block=2,gemm.stream=1,gemm.threads=1", false, 70, 56, 0},
        {"in place, panels wider than tiles", "cpu", "gemm.tile=min,potrf.nb=40,trsm.nb=8", false,
         110, 56, 0},
    };
    struct fake_setting *own = &settings[4];
    tap_child("a factorisation is resumed", 300, resumptions, &rest);
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        settings[i].seed = random_bits(&seed);
        tap_child(settings[i].name, 300, factorisations, &settings[i]);
    }
    tap_child("a bad pivot ends it early, in place", 300, early_end, &settings[0]);
    tap_child("a bad pivot ends it early, own memory", 300, early_end, &settings[7]);
    tap_child("four threads, in place", 300, at_once, &settings[0]);
    tap_child("four threads, own memory", 300, at_once, own);
    tap_child("more and more memory, in place", 300, growing_memory, &settings[0]);
    tap_child("more and more memory, own memory", 300, growing_memory, own);
    settings[0].runs = settings[3].runs = 48;
    tap_child("solved, in place", 300, solutions, &settings[0]);
    tap_child("solved, streamed", 300, solutions, &settings[3]);
    return tap_done();
}
