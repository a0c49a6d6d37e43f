/* SPDX-License-Identifier: BSD-3-Clause
 * Systems of equations whose factors stay on the device for the solve: residuals, singular
 * matrices, memory that does not hold both matrices, and that A goes up once. */
#include "dense.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

#define PARAMS "gemm.tile=min,getrf.nb=8,trsm.nb=8,trsm.part=24"

struct system {
    struct dense a, b;
    int64_t *ipiv;
    struct clb_call call;
    struct clb_host_blas next;
    struct clb_factors result;
    struct clb_gemm_progress progress;
    size_t zero; /* the column of zeros, 1-based; 0 is none */
};

static void make(struct system *s, clb_precision precision, size_t n, size_t nrhs, bool singular,
                 uint64_t *seed)
{
    *s = (struct system){.zero = singular ? 1 + random_below(seed, n) : 0};
    dense_make(&s->a, precision, n, n, 5, seed);
    for (size_t i = 0; singular && i < n; i++)
        dense_set(&s->a, i, s->zero - 1, 0);
    dense_remember(&s->a);
    dense_make(&s->b, precision, n, nrhs, 5, seed);
    s->ipiv = calloc(n, sizeof *s->ipiv);
    s->call = dense_call(CLB_KIND_gesv, n, n, &s->a);
    s->call.nrhs = nrhs;
    s->call.b = dense_data(&s->b);
    s->call.ldb = s->b.ld;
    s->next = dense_next;
    s->result.ipiv = s->ipiv;
}

static void discard(struct system *s)
{
    clb_gemm_progress_free(&s->progress);
    dense_free(&s->a);
    dense_free(&s->b);
    free(s->ipiv);
}

/* |B - A*X| / (n |A||X| u), the largest of any column and row. */
static long double residual(const struct system *s)
{
    size_t n = s->a.rows;
    long double worst = 0;
    for (size_t j = 0; j < s->b.cols; j++) {
        for (size_t i = 0; i < n; i++) {
            number e = dense_old(&s->b, i, j);
            long double size = 0, largest = 0;
            for (size_t k = 0; k < n; k++) {
                e -= dense_times(dense_old(&s->a, i, k), dense_get(&s->b, k, j));
                size = fmaxl(size, dense_abs(dense_old(&s->a, i, k)));
                largest = fmaxl(largest, dense_abs(dense_get(&s->b, k, j)));
            }
            long double error =
                dense_abs(e) / ((long double)n * size * largest * dense_unit(s->a.precision));
            worst = error <= worst ? worst : error;
        }
    }
    return worst;
}

static void check(const struct system *s, clb_status status, const char *what)
{
    size_t written = 0;
    expect(status == CLB_OK && s->result.columns_written == s->a.cols, "%s: %s, %zu columns", what,
           clb_status_name(status), s->result.columns_written);
    expect(s->result.info == s->zero, "%s: info = %zu, not %zu", what, s->result.info, s->zero);
    long double error = dense_lu_error(&s->a, s->ipiv);
    expect(error <= (clb_precision_parts(s->a.precision) > 1 ? 3 : 1), "%s: backward error %.3Lg",
           what, error);
    expect(dense_gaps_intact(&s->a) && dense_gaps_intact(&s->b), "%s: a gap was written", what);
    if (s->zero != 0) {
        expect(dense_intact(&s->b) && s->progress.parts == 0, "%s: B was written", what);
        return;
    }
    for (size_t i = 0; i < s->progress.parts; i++)
        written += s->progress.written[i] ? s->progress.part[i].cols : 0;
    expect(written == s->b.cols, "%s: %zu of %zu columns of X", what, written, s->b.cols);
    error = residual(s);
    expect(error < 10, "%s: residual %.3Lg", what, error);
}

static clb_status solve(struct clb_runtime *runtime, struct system *s)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, s->call.precision);
    if (variant == NULL)
        return CLB_ERR_UNSUPPORTED;
    return clb_gesv_run(runtime, variant, &s->call, &s->next, &s->result, &s->progress);
}

static void systems(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    for (int i = 0; runtime != NULL && i < setting->runs; i++) {
        struct system s;
        make(&s, (clb_precision)(i % CLB_PRECISIONS),
             1 + random_below(&setting->seed, setting->largest),
             1 + random_below(&setting->seed, i % 3 == 0 ? 3 : 60), i % 5 == 0, &setting->seed);
        check(&s, solve(runtime, &s), setting->name);
        discard(&s);
    }
}

/* More and more memory: declined with all intact, then in blocks or with A going up again. */
static void growing_memory(void *argument)
{
    struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    const struct clb_gemm_variant *variant; /* its check wants memory */
    bool enough = false;
    int declined = 0;
    if (runtime == NULL || clb_gemm_variant_get(runtime, CLB_D, &variant) != CLB_OK)
        return;
    for (uint64_t limit = 4096; !enough; limit += limit / 4) {
        struct system s;
        make(&s, CLB_D, 130, 110, false, &setting->seed);
        runtime->memory_limit = limit;
        clb_status status = solve(runtime, &s);
        enough = status == CLB_OK && limit > (uint64_t)16 << 20;
        if (status == CLB_OK) {
            check(&s, status, "some memory");
        } else {
            expect(status == CLB_ERR_NOMEM, "%s", clb_status_name(status));
            expect(dense_intact(&s.b) || s.result.columns_written == 130, "B before A");
            declined += s.result.columns_written == 0;
            expect(s.result.columns_written != 0 || dense_intact(&s.a), "A was written");
        }
        discard(&s);
    }
    expect(declined >= 3, "only %d limits were too low", declined);
}

/* Uploads of rectangles of matrices by a run with device panels. */
static long uploads(struct clb_runtime *runtime, const struct fake_setting *setting,
                    bool with_system)
{
    struct system s;
    const struct clb_gemm_variant *variant;
    uint64_t seed = setting->seed;
    make(&s, CLB_S, 100, 3, false, &seed);
    if (clb_gemm_variant_get(runtime, CLB_S, &variant) != CLB_OK)
        return 0;
    long before = fake_cl.of[FAKE_EnqueueWriteBufferRect];
    clb_status status = with_system ? solve(runtime, &s)
                                    : clb_getrf_run(runtime, variant, &s.call, &s.next, &s.result);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    discard(&s);
    return fake_cl.of[FAKE_EnqueueWriteBufferRect] - before;
}

static void one_upload(void *argument)
{
    const struct fake_setting *setting = argument;
    struct clb_runtime *runtime = fake_cl_start_setting(setting);
    if (runtime == NULL)
        return;
    long without = uploads(runtime, setting, false), with = uploads(runtime, setting, true);
    expect(without > 1 && with == without + 1, "%ld uploads, %ld with right-hand sides", without,
           with);
}

int main(void)
{
    uint64_t seed = tap_seed();
    struct fake_setting settings[] = {
        {"in place", "cpu", PARAMS, false, 90, 32, 0},
        {"streamed by three threads", "cpu", PARAMS ",gemm.stream=1,gemm.threads=3", false, 90, 32,
         0},
        {"own memory, one thread, a panel at the end", "cpu",
         PARAMS ",getrf.tail=30,gemm.threads=1", true, 90, 32, 0},
        {"blocks of columns", "cpu", PARAMS ",gemm.threads=2,getrf.block=24", true, 90, 32, 0},
        {"panels by the device", "cpu", PARAMS ",gemm.threads=2,getrf.panel=2", true, 90, 32, 0},
    };
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        settings[i].seed = random_bits(&seed);
        tap_child(settings[i].name, 300, systems, &settings[i]);
    }
    tap_child("more and more memory, in place", 300, growing_memory, &settings[0]);
    tap_child("more and more memory, own memory", 300, growing_memory, &settings[2]);
    tap_child("A goes up once", 120, one_upload, &settings[4]);
    return tap_done();
}
