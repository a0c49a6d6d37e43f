/* SPDX-License-Identifier: BSD-3-Clause
 * QR on the device, small blocks: the error of every column and reflector, what is written and
 * when; and the rest of a factorisation that was written in part. */
#include "dense_qr.h"
#include "fakecl.h"
#include "tap.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { UNIFORM, GRADED, ZERO_COLUMNS, TRIANGLE, SAME_COLUMNS, HUGE_COLUMNS, KINDS };

static const char *const kinds[KINDS] = {
    "uniform", "graded", "with zero columns", "triangular", "with one column again and again",
    "huge"};

struct factorisation {
    enum kind kind;
    struct dense a;
    struct dense adjoint; /* A^H, where the problem's memory has that */
    char *tau;            /* and 16 bytes more, which stay as they are */
    struct clb_call problem;
    struct clb_host_blas next;
    struct clb_factors result;
};

static number element_of(const struct factorisation *f, size_t i, size_t j, number random)
{
    bool single = clb_precision_real_size(f->a.precision) == sizeof(float);
    switch (f->kind) {
    case GRADED:
        return random * ldexpl(1, (int)(i % 19) - 2 * (int)(j % 23));
    case ZERO_COLUMNS:
        return j % 5 == 2 ? 0 : random;
    case TRIANGLE:
        return i <= j ? random : 0;
    case SAME_COLUMNS:
        return j % 3 != 0 ? dense_get(&f->a, i, j - j % 3) : random;
    case HUGE_COLUMNS: /* and tiny ones; sums of squares are no numbers */
        return random * ldexpl(1, (j % 2 ? 1 : -1) * (single ? 80 : 700));
    default:
        return random;
    }
}

/* Put A's content into the problem's memory, and take it from there. */
static void give(struct factorisation *f)
{
    dense_remember(&f->a);
    dense_set_adjoint(&f->adjoint, &f->a);
    dense_remember(&f->adjoint);
}

static void take(struct factorisation *f)
{
    if (clb_call_is_adjoint(&f->problem))
        dense_set_adjoint(&f->a, &f->adjoint);
}

static void make(struct factorisation *f, clb_precision precision, size_t m, size_t n,
                 uint64_t *seed)
{
    size_t element = clb_precision_size(precision), inner = clb_min(m, n);
    *f = (struct factorisation){.kind = (enum kind)random_below(seed, KINDS)};
    dense_make(&f->a, precision, m, n, 9, seed);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            dense_set(&f->a, i, j, element_of(f, i, j, dense_get(&f->a, i, j)));
    }
    f->tau = malloc((inner + 1) * element);
    memset(f->tau, 0x5a, (inner + 1) * element);
    dense_make(&f->adjoint, precision, n, m, 9, seed);
    f->problem = random_below(seed, 2) != 0 ? dense_lq_call(CLB_KIND_geqrf, m, n, &f->adjoint)
                                            : dense_call(CLB_KIND_geqrf, m, n, &f->a);
    give(f);
    f->next = dense_qr_next;
    f->result.tau = f->tau;
}

static void discard(struct factorisation *f)
{
    dense_free(&f->a);
    dense_free(&f->adjoint);
    free(f->tau);
}

static void check(struct factorisation *f, const char *what)
{
    take(f);
    size_t element = clb_precision_size(f->a.precision), inner = clb_min(f->a.rows, f->a.cols);
    long double error = dense_qr_error(&f->a, f->tau);
    expect(error <= 3, "%s %c %zux%zu %s%s: error %.3Lg", what, "sdcz"[f->a.precision], f -> a.rows,
           f->a.cols, kinds[f->kind], clb_call_is_adjoint(&f->problem) ? ", adjoint" : "", error);
    expect(dense_gaps_intact(&f->a) && dense_gaps_intact(&f->adjoint), "%s: written outside of A",
           what);
    expect(clb_call_is_adjoint(&f->problem) || dense_intact_bits(&f->adjoint), "%s: the adjoint",
           what);
    for (size_t i = 0; i < element; i++)
        expect(f->tau[inner * element + i] == 0x5a, "%s: written behind tau", what);
}

static void factor(struct clb_runtime *runtime, void *factorisation)
{
    struct factorisation *f = factorisation;
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, f->problem.precision);
    if (variant == NULL)
        return;
    clb_status status = clb_geqrf_run(runtime, variant, &f->problem, &f->next, &f->result);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    expect(f->result.columns_written == f->a.cols, "%zu of %zu columns written",
           f->result.columns_written, f->a.cols);
}

/* Sizes of every shape: square, tall, very tall, wide, one row or column now and then. */
static void random_sizes(struct fake_setting *setting, int i, size_t *m, size_t *n)
{
    size_t most = setting->largest;
    *m = 1 + random_below(&setting->seed, most);
    *n = i % 4 == 0 ? *m : 1 + random_below(&setting->seed, i % 4 == 1 ? 4 : most);
    if (i % 4 == 1 && i % 8 != 1)
        *m = 4 * most;
}

static void factorisations(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        struct factorisation f;
        size_t m, n;
        random_sizes(setting, i, &m, &n);
        make(&f, (clb_precision)(i / 4 % CLB_PRECISIONS), m, n, &setting->seed);
        factor(runtime, &f);
        check(&f, setting->name);
        discard(&f);
    }
}

static bool is_finite(number x)
{
    return cabsl(x) <= LDBL_MAX;
}

/* A NaN spreads, but it does not leave the matrix, nor reach columns on the left. */
static void not_a_number(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < 20; i++) {
        struct factorisation f;
        size_t n = 20 + random_below(&setting->seed, 60);
        size_t bad = random_below(&setting->seed, n), wrong = 0;
        make(&f, (clb_precision)(i % CLB_PRECISIONS), n, n, &setting->seed);
        dense_set(&f.a, random_below(&setting->seed, n), bad, i % 2 ? NAN : INFINITY);
        give(&f);
        factor(runtime, &f);
        take(&f);
        for (size_t j = 0; j < bad; j++) {
            for (size_t k = 0; k < n; k++)
                wrong += !is_finite(dense_get(&f.a, k, j));
        }
        expect(wrong == 0, "%zu entries left of column %zu are not finite", wrong, bad);
        expect(!is_finite(dense_get(&f.a, bad, bad)), "the NaN is lost");
        expect(dense_gaps_intact(&f.a) && dense_gaps_intact(&f.adjoint), "written outside of A");
        discard(&f);
    }
}

/* More and more memory: declined with the matrix intact until it is enough. */
static void growing_memory(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, CLB_D);
    struct factorisation f;
    int declined = 0;
    clb_status status = CLB_ERR_NOMEM;
    make(&f, CLB_D, 130, 150, &setting->seed);
    if (variant == NULL)
        return;
    for (runtime->memory_limit = 4096; status == CLB_ERR_NOMEM; runtime->memory_limit *= 2) {
        status = clb_geqrf_run(runtime, variant, &f.problem, &f.next, &f.result);
        if (status != CLB_OK) {
            declined++;
            expect(f.result.columns_written == 0 && dense_intact(&f.a) && dense_intact(&f.adjoint),
                   "written without memory");
        }
    }
    expect(status == CLB_OK, "%s", clb_status_name(status));
    expect(declined >= 3, "only %d limits were too low", declined);
    check(&f, "with enough memory");
    discard(&f);
}

/* ---- several at once ---- */

static void at_once(void *argument)
{
    struct fake_setting *setting = argument;
    static struct factorisation f[16];
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    if (runtime == NULL)
        return;
    for (size_t i = 0; i < CLB_COUNT_OF(f); i++)
        make(&f[i], (clb_precision)(i % CLB_PRECISIONS),
             20 + random_below(&setting->seed, setting->largest),
             20 + random_below(&setting->seed, setting->largest), &setting->seed);
    fake_cl_at_once(runtime, factor, f, CLB_COUNT_OF(f), sizeof *f);
    for (size_t i = 0; i < CLB_COUNT_OF(f); i++)
        check(&f[i], "at once");
}

/* ---- resumed ---- */

/* As a run that failed after `written` columns leaves it. */
static void resume(struct fake_setting *setting, int i)
{
    struct factorisation f, done;
    size_t m = 1 + random_below(&setting->seed, setting->largest);
    size_t n = 1 + random_below(&setting->seed, setting->largest);
    size_t written = random_below(&setting->seed, n) + 1;
    uint64_t again = setting->seed;
    make(&f, (clb_precision)(i % CLB_PRECISIONS), m, n, &setting->seed);
    make(&done, (clb_precision)(i % CLB_PRECISIONS), m, n, &again);
    done.problem.tau = f.tau;
    clb_host_call(&f.next, &done.problem);
    take(&done);
    for (size_t j = 0; j < written; j++) {
        for (size_t r = 0; r < m; r++)
            dense_set(&f.a, r, j, dense_get(&done.a, r, j));
    }
    if (clb_call_is_adjoint(&f.problem))
        dense_set_adjoint(&f.adjoint, &f.a);
    f.result.columns_written = written;
    dense_next_entries = 0;
    clb_geqrf_resume(&f.problem, &f.next, &f.result);
    check(&f, setting->name);
    expect(f.result.columns_written == n, "columns are missing");
    expect(dense_next_entries <= 2 * m * (n - written), "written columns were computed again");
    discard(&f);
    discard(&done);
}

static void resumptions(void *argument)
{
    struct fake_setting *setting = argument;
    for (int i = 0; i < setting->runs; i++)
        resume(setting, i);
}

int main(void)
{
    uint64_t seed = tap_seed();
    struct fake_setting rest = {"resumed", "cpu", "", false, 40, 100, random_bits(&seed)};
    struct fake_setting settings[] = {
        {"in place, cpu family", "cpu", "gemm.tile=min,geqrf.nb=8", false, 70, 96, 0},
        {"in place, portable family", "portable", "gemm.tile=min,geqrf.nb=24", false, 60, 32, 0},
        {"in place, larger blocks", "cpu", "geqrf.nb=48", false, 200, 12, 0},
        {"in place, blocks of one", "cpu", "gemm.tile=min,geqrf.nb=1", false, 20, 32, 0},
        {"streamed, cpu family", "cpu", "gemm.tile=min,geqrf.nb=8,gemm.stream=1,gemm.threads=3",
         false, 70, 96, 0},
        {"own memory, portable family", "portable", "gemm.tile=min,gemm.parts=3,geqrf.nb=24", true,
         60, 32, 0},
        {"own memory, larger blocks", "cpu", "geqrf.nb=48", true, 200, 12, 0},
    };
    tap_child("a factorisation is resumed", 120, resumptions, &rest);
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        settings[i].seed = random_bits(&seed);
        tap_child(settings[i].name, 300, factorisations, &settings[i]);
    }
    tap_child("four threads, in place", 120, at_once, &settings[0]);
    tap_child("four threads, own memory", 120, at_once, &settings[5]);
    tap_child("more and more memory, in place", 120, growing_memory, &settings[0]);
    tap_child("more and more memory, own memory", 120, growing_memory, &settings[5]);
    tap_child("NaN and Inf, in place", 120, not_a_number, &settings[0]);
    tap_child("NaN and Inf, streamed", 120, not_a_number, &settings[4]);
    return tap_done();
}
