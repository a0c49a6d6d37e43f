/* LU on the device, small blocks: backward error of every entry, multipliers, pivots and info; and
 * the rest of a factorisation that was written in part. SPDX-License-Identifier: BSD-3-Clause */
#include "dense.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum kind { UNIFORM, GRADED, ZERO_COLUMNS, TRIANGLE, GROWTH, TIES, KINDS };

static const char *const kinds[KINDS] = {"uniform",           "graded", "with zero columns",
                                         "permuted triangle", "growth", "with ties"};

struct factorisation {
    enum kind kind;
    struct dense a;
    int64_t *ipiv;
    struct clb_call problem;
    struct clb_host_blas next;
    struct clb_factors result;
    size_t zero; /* the first column of zeros, 1-based; 0 is none */
};

static number element_of(const struct factorisation *f, size_t i, size_t j, number random)
{
    size_t n = f->a.cols;
    switch (f->kind) {
    case GRADED:
        return random * ldexpl(1, (int)(i % 19) - (int)(j % 23));
    case ZERO_COLUMNS:
        return f->zero != 0 && j + 1 >= f->zero && (j + 1 - f->zero) % 5 == 0 ? 0 : random;
    case TRIANGLE: /* rows in another order */
        return (i * 7 + 3) % f->a.rows <= j ? random + 2 : 0;
    case GROWTH: /* Wilkinson's: the last column doubles with every step, up to a point */
        return i % 40 == j % 40 || j + 1 == n ? 1 : i > j && i - j < 12 ? -1 : 0;
    case TIES:
        return creall(random) < 0 ? -1 : 1;
    default:
        return random;
    }
}

static void make(struct factorisation *f, clb_precision precision, size_t m, size_t n,
                 uint64_t *seed)
{
    *f = (struct factorisation){.kind = (enum kind)random_below(seed, KINDS)};
    f->zero = f->kind == ZERO_COLUMNS ? 1 + random_below(seed, n) : 0;
    dense_make(&f->a, precision, m, n, 9, seed);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            dense_set(&f->a, i, j, element_of(f, i, j, dense_get(&f->a, i, j)));
    }
    dense_remember(&f->a);
    f->ipiv = calloc(clb_min(m, n) + 1, sizeof *f->ipiv);
    f->problem = dense_call(CLB_KIND_getrf, m, n, &f->a);
    f->next = dense_next;
    f->result.ipiv = f->ipiv;
}

static void discard(struct factorisation *f)
{
    dense_free(&f->a);
    free(f->ipiv);
}

/* Multipliers of columns [first, ...) are at most 1, in the measure that chose the pivot at most
 * sqrt(2) times that. */
static void check_multipliers(const struct factorisation *f, size_t first, const char *what)
{
    long double most = clb_precision_parts(f->a.precision) > 1 ? sqrtl(2) : 1, worst = 0;
    for (size_t j = first; j < f->a.cols; j++) {
        for (size_t i = j + 1; i < f->a.rows; i++) {
            long double size = dense_abs(dense_get(&f->a, i, j));
            worst = size <= worst ? worst : size;
        }
    }
    expect(worst <= most * (1 + 4 * dense_unit(f->a.precision)), "%s: a multiplier of %.8Lg", what,
           worst);
}

static void check(const struct factorisation *f, size_t first, const char *what)
{
    long double error = dense_lu_error(&f->a, f->ipiv);
    bool pairs = clb_precision_parts(f->a.precision) > 1;
    expect(error <= (pairs ? 3 : 1), "%s %c %zux%zu %s: backward error %.3Lg", what,
           "sdcz"[f->a.precision], f -> a.rows, f->a.cols, kinds[f->kind], error);
    check_multipliers(f, first, what);
    size_t zero = f->zero <= clb_min(f->a.rows, f->a.cols) ? f->zero : 0;
    if (f->kind == ZERO_COLUMNS || f->kind == UNIFORM)
        expect(f->result.info == zero, "%s: info = %zu, expected %zu", what, f->result.info, zero);
    if (f->result.info != 0)
        expect(dense_get(&f->a, f->result.info - 1, f->result.info - 1) == 0,
               "%s: info = %zu, but that pivot is not zero", what, f->result.info);
    expect(dense_gaps_intact(&f->a), "%s: written outside of A", what);
}

static void factor(struct clb_runtime *runtime, void *factorisation)
{
    struct factorisation *f = factorisation;
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, f->problem.precision);
    if (variant == NULL)
        return;
    clb_status status = clb_getrf_run(runtime, variant, &f->problem, &f->next, &f->result);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    expect(f->result.columns_written == f->a.cols, "%zu of %zu columns written",
           f->result.columns_written, f->a.cols);
}

static void factorisations(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        struct factorisation f;
        size_t m = 1 + random_below(&setting->seed, setting->largest);
        size_t n = 1 + random_below(&setting->seed, setting->largest);
        make(&f, (clb_precision)(i % CLB_PRECISIONS), m, i % 3 ? n : m, &setting->seed);
        factor(runtime, &f);
        check(&f, 0, setting->name);
        discard(&f);
    }
}

/* A NaN spreads, but it neither leaves the matrix nor makes pivots that don't exist. */
static void not_a_number(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < 20; i++) {
        struct factorisation f;
        size_t n = 20 + random_below(&setting->seed, 60);
        make(&f, (clb_precision)(i % CLB_PRECISIONS), n, n, &setting->seed);
        dense_set(&f.a, random_below(&setting->seed, n), random_below(&setting->seed, n), NAN);
        dense_remember(&f.a);
        factor(runtime, &f);
        for (size_t k = 0; k < n; k++)
            expect(f.ipiv[k] > (int64_t)k && f.ipiv[k] <= (int64_t)n, "ipiv[%zu] = %lld", k,
                   (long long)f.ipiv[k]);
        expect(dense_gaps_intact(&f.a), "written outside of A");
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
    int declined = 0, in_blocks = 0;
    clb_status status = CLB_ERR_NOMEM;
    make(&f, CLB_D, 130, 150, &setting->seed);
    if (variant == NULL)
        return;
    for (runtime->memory_limit = 4096; status == CLB_ERR_NOMEM || f.result.blocks > 1;
         runtime->memory_limit += runtime->memory_limit / 16) {
        if (status == CLB_OK) { /* in blocks: again, with more */
            check(&f, 0, "in blocks");
            discard(&f);
            make(&f, CLB_D, 130, 150, &setting->seed);
        }
        status = clb_getrf_run(runtime, variant, &f.problem, &f.next, &f.result);
        in_blocks += status == CLB_OK && f.result.blocks > 1;
        if (status != CLB_OK) {
            declined++;
            expect(f.result.columns_written == 0 && dense_intact(&f.a), "written without memory");
        }
    }
    expect(status == CLB_OK, "%s", clb_status_name(status));
    bool streams = setting->discrete || strstr(setting->params, "gemm.stream=1") != NULL;
    expect((in_blocks > 0) == streams, "%d times in blocks", in_blocks);
    expect(declined >= 3, "only %d limits were too low", declined);
    check(&f, 0, "with enough memory");
    discard(&f);
}

/* In blocks the same operations as in one, in the same order. */
static void same_bits(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < tap_runs(setting->runs); i++) {
        const clb_precision precision = (clb_precision)(i % CLB_PRECISIONS);
        const struct clb_gemm_variant *variant = fake_cl_variant(runtime, precision);
        struct factorisation f[2];
        size_t m = 1 + random_below(&setting->seed, setting->largest);
        size_t n = 1 + random_below(&setting->seed, setting->largest);
        uint64_t seed = random_bits(&setting->seed);
        for (int k = 0; k < 2; k++) {
            uint64_t same = seed;
            make(&f[k], precision, m, n, &same);
        }
        if (variant == NULL)
            return;
        struct clb_gemm_variant blocks = *variant;
        blocks.tuning.value[CLB_PARAM_GETRF_BLOCK] = 1 + random_below(&setting->seed, n);
        expect(clb_getrf_run(runtime, variant, &f[0].problem, &f[0].next, &f[0].result) == CLB_OK &&
                   clb_getrf_run(runtime, &blocks, &f[1].problem, &f[1].next, &f[1].result) ==
                       CLB_OK,
               "not factored");
        size_t each = blocks.tuning.value[CLB_PARAM_GETRF_BLOCK];
        expect(f[0].result.blocks == 1 && f[1].result.blocks >= clb_div_up(n, clb_max(each, 10)),
               "%zu and %zu blocks of %zu in %zu columns", f[0].result.blocks, f[1].result.blocks,
               each, n);
        for (size_t j = 0; j < n; j++) {
            for (size_t k = 0; k < m; k++)
                expect(dense_get(&f[0].a, k, j) == dense_get(&f[1].a, k, j),
                       "%zux%zu: (%zu, %zu) differs", m, n, k, j);
        }
        expect(memcmp(f[0].ipiv, f[1].ipiv, clb_min(m, n) * sizeof *f[0].ipiv) == 0 &&
                   f[0].result.info == f[1].result.info,
               "other pivots");
        discard(&f[0]);
        discard(&f[1]);
    }
}

/* ---- several at once ---- */

static void at_once(void *argument)
{
    struct fake_setting *setting = argument;
    static struct factorisation f[24]; /* six for each thread */
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    if (runtime == NULL)
        return;
    for (size_t i = 0; i < CLB_COUNT_OF(f); i++)
        make(&f[i], (clb_precision)(i % 6 % CLB_PRECISIONS),
             20 + random_below(&setting->seed, setting->largest),
             20 + random_below(&setting->seed, setting->largest), &setting->seed);
    fake_cl_at_once(runtime, factor, f, CLB_COUNT_OF(f), sizeof *f);
    for (size_t i = 0; i < CLB_COUNT_OF(f); i++)
        check(&f[i], 0, "at once");
}

/* Columns so far apart that indices pass 2^32. Only what is touched takes memory. */
static void far_columns(void *argument)
{
    const struct fake_setting *setting = argument;
    const size_t m = 30, n = 60, ld = (size_t)1 << 27, bytes = ((n - 1) * ld + m) * sizeof(float);
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    float *a = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (runtime == NULL || !expect(a != MAP_FAILED, "no address space"))
        return;
    struct factorisation f;
    uint64_t seed = setting->seed;
    make(&f, CLB_S, m, n, &seed);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            a[i + j * ld] = (float)creall(dense_get(&f.a, i, j));
    }
    f.problem.a = a;
    f.problem.lda = ld;
    factor(runtime, &f);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            dense_set(&f.a, i, j, a[i + j * ld]);
        for (size_t i = m; j + 1 < n && i < m + 1000; i++)
            expect(a[i + j * ld] == 0, "written behind column %zu", j);
    }
    check(&f, 0, "far columns");
    discard(&f);
}

/* ---- resuming ---- */

/* Any pivot of at least half the largest size: what another library or device may choose. */
static void factor_otherwise(struct factorisation *f, uint64_t *seed)
{
    struct dense *a = &f->a;
    for (size_t k = 0; k < clb_min(a->rows, a->cols); k++) {
        long double largest = 0;
        for (size_t i = k; i < a->rows; i++)
            largest = fmaxl(largest, dense_abs1(dense_get(a, i, k)));
        size_t pivot;
        do {
            pivot = k + random_below(seed, a->rows - k);
        } while (dense_abs1(dense_get(a, pivot, k)) < largest / 2 || (largest == 0 && pivot != k));
        f->ipiv[k] = (int64_t)pivot + 1;
        if (largest == 0) {
            f->result.info = f->result.info == 0 ? k + 1 : f->result.info;
            continue;
        }
        for (size_t j = 0; j < a->cols; j++) {
            number held = dense_get(a, k, j);
            dense_set(a, k, j, dense_get(a, pivot, j));
            dense_set(a, pivot, j, held);
        }
        for (size_t i = k + 1; i < a->rows; i++) {
            dense_set(a, i, k, dense_get(a, i, k) / dense_get(a, k, k));
            for (size_t j = k + 1; j < a->cols; j++)
                dense_set(a, i, j, dense_get(a, i, j) - dense_get(a, i, k) * dense_get(a, k, j));
        }
    }
}

static void resume(struct fake_setting *setting, int run)
{
    struct factorisation f;
    size_t m = 1 + random_below(&setting->seed, setting->largest);
    size_t n = 1 + random_below(&setting->seed, setting->largest);
    make(&f, (clb_precision)(run % CLB_PRECISIONS), m, n, &setting->seed);
    size_t written = random_below(&setting->seed, n + 1);
    factor_otherwise(&f, &setting->seed);
    for (size_t j = written; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            dense_set(&f.a, i, j, dense_old(&f.a, i, j));
    }
    f.result.columns_written = written;
    dense_next_entries = 0;
    clb_getrf_resume(&f.problem, &f.next, &f.result);
    check(&f, written, "resumed");
    expect(f.result.columns_written == n, "columns are missing");
    expect(dense_next_entries <= 2 * m * (n - written), "written columns were computed again");
    discard(&f);
}

static void resumptions(void *argument)
{
    struct fake_setting *setting = argument;
    for (int i = 0; i < setting->runs; i++)
        resume(setting, i);
}

/* The thread is bound to one CPU, so that no staging threads are lent: it moves all pieces itself.
 */
static void without_staging_threads(void *argument)
{
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET((size_t)sched_getcpu(), &cpu);
    if (expect(sched_setaffinity(0, sizeof cpu, &cpu) == 0, "can't be bound to one CPU"))
        factorisations(argument);
}

int main(void)
{
    uint64_t seed = tap_seed();
    struct fake_setting rest = {"resumed", "cpu", "", false, 40, 200, random_bits(&seed)};
    struct fake_setting settings[] = {
        {"in place, cpu family", "cpu", "gemm.tile=min,getrf.nb=8,trsm.nb=8", false, 70, 160, 0},
        {"in place, portable family", "portable",
         "gemm.tile=min,getrf.nb=24,getrf.strip=8,trsm.nb=8", false, 70, 40, 0},
        {"in place, larger blocks", "cpu", "getrf.nb=48,getrf.tail=60,getrf.strip=16,trsm.nb=16",
         false, 300, 12, 0},
        {"streamed, cpu family", "cpu",
         "gemm.tile=min,getrf.nb=8,trsm.nb=8,gemm.stream=1,gemm.threads=3", false, 70, 160, 0},
        {"own memory, portable family", "portable", "gemm.tile=min,getrf.nb=24,trsm.nb=8", true, 70,
         40, 0},
        {"own memory, larger blocks", "cpu", "getrf.nb=48,getrf.tail=60,trsm.nb=16", true, 300, 12,
         0},
        {"in place, panels by the device", "cpu", "getrf.nb=20,trsm.nb=8,getrf.panel=2", false, 120,
         80, 0},
        {"streamed, panels by the device from some row on", "cpu",
         "getrf.nb=24,trsm.nb=8,getrf.panel=2,gemm.stream=1", false, 320, 20, 0},
        {"in place, panels of blocks by the device", "cpu", "getrf.nb=84,trsm.nb=16,getrf.panel=2",
         false, 160, 12, 0},
        {"streamed, look-ahead with panels by the device", "cpu",
         "gemm.tile=min,getrf.nb=16,trsm.nb=8,getrf.panel=2,getrf.ahead=5,gemm.stream=1,gemm."
         "threads=3",
         false, 150, 24, 0},
        {"streamed, panels by the device one after the other", "cpu",
         "getrf.nb=12,trsm.nb=8,getrf.panel=2,getrf.ahead=1,gemm.stream=1,gemm.threads=2", false,
         120, 16, 0},
        {"own memory, panels by the device", "portable",
         "gemm.tile=min,getrf.nb=20,trsm.nb=8,getrf.panel=2", true, 70, 40, 0},
        {"blocks of columns", "cpu",
         "gemm.tile=min,getrf.nb=8,trsm.nb=8,gemm.stream=1,gemm.threads=3,getrf.block=20", false,
         70, 80, 0},
        {"blocks of columns, own memory", "portable",
         "gemm.tile=min,getrf.nb=8,getrf.tail=20,trsm.nb=8,gemm.threads=1,getrf.block=30", true, 70,
         20, 0},
        {"blocks of columns, panels by the device", "cpu",
         "getrf.nb=20,trsm.nb=8,gemm.stream=1,getrf.panel=2,getrf.block=50", false, 120, 20, 0},
        {"the same bits", "cpu",
         "gemm.tile=min,getrf.nb=8,getrf.tail=10,trsm.nb=8,gemm.stream=1,gemm.threads=2", false, 90,
         40, 0},
    };
    size_t all = CLB_COUNT_OF(settings) - 1;
    tap_child("a factorisation is resumed", 120, resumptions, &rest);
    for (size_t i = 0; i <= all; i++) {
        settings[i].seed = random_bits(&seed);
        tap_child(settings[i].name, 300, i < all ? factorisations : same_bits, &settings[i]);
    }
    tap_child("own memory, no staging threads", 120, without_staging_threads, &settings[4]);
    tap_child("look-ahead, no staging threads", 120, without_staging_threads, &settings[7]);
    tap_child("columns far apart, in place", 120, far_columns, &settings[0]);
    tap_child("columns far apart, streamed", 120, far_columns, &settings[3]);
    tap_child("four threads, in place", 120, at_once, &settings[0]);
    tap_child("four threads, own memory", 120, at_once, &settings[4]);
    tap_child("four threads, blocks of columns", 120, at_once, &settings[9]);
    tap_child("more and more memory, in place", 120, growing_memory, &settings[0]);
    tap_child("more and more memory, own memory", 120, growing_memory, &settings[4]);
    tap_child("NaN, in place", 120, not_a_number, &settings[0]);
    tap_child("NaN, streamed", 120, not_a_number, &settings[3]);
    tap_child("NaN, panels by the device", 120, not_a_number, &settings[6]);
    tap_child("NaN, blocks of columns", 120, not_a_number, &settings[12]);
    tap_child("NaN, look-ahead with panels by the device", 120, not_a_number, &settings[9]);
    tap_child("four threads, look-ahead with panels by the device", 120, at_once, &settings[9]);
    tap_child("more and more memory, panels by the device", 120, growing_memory, &settings[9]);
    return tap_done();
}
