/* SPDX-License-Identifier: BSD-3-Clause
 * The rest of Level 3 on the device: every routine, in all precisions and cases, in place and
 * streamed, by the families that the CPU device has, and in little memory. */
#include "engine/kernel/kernel.h"
#include "fakecl.h"
#include "level3_case.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct setting {
    const char *name, *kernel, *params;
    bool discrete;
    int rounds; /* of all routines and precisions */
    uint64_t seed;
    cl_ulong max_alloc; /* of the device, or 0 */
    bool single;        /* the family has no double precision */
    bool extreme;       /* A is of extreme scale, for which the family has kernels */
};

static struct clb_runtime *start(const struct setting *setting)
{
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    fake_cl.max_alloc = setting->max_alloc;
    return fake_cl_start(setting->kernel, setting->params, setting->discrete);
}

/* hemm and the like are complex only. */
static bool exists(level3_routine routine, clb_precision precision)
{
    bool hermitian = routine == LEVEL3_HEMM || routine == LEVEL3_HERK || routine == LEVEL3_HER2K;
    return !hermitian || clb_precision_parts(precision) > 1;
}

/* Columns of A, as it is stored, beyond a split family's range; the sums are within single
 * precision's. */
static void scale_columns(struct level3_case *x)
{
    for (size_t j = 0; j < x->a.cols; j++) {
        for (size_t i = 0; i < x->a.rows; i++) {
            const number value = dense_get(&x->a, i, j);
            const long double scale = j % 2 != 0 ? 0x1p57L : 0x1p-30L;
            dense_set(&x->a, i, j, dense_number(creall(value) * scale, cimagl(value) * scale));
        }
    }
    dense_remember(&x->a);
}

static long scaled_runs;

static bool run(struct clb_runtime *runtime, struct level3_case *x, const char *what)
{
    struct clb_gemm_progress progress;
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, x->problem.precision);
    const struct clb_rect all = {0, 0, x->problem.m, x->problem.n};
    if (variant == NULL)
        return false;
    clb_status status = clb_gemm_run(runtime, variant, &x->problem, &progress);
    scaled_runs += progress.kernel != NULL && strstr(progress.kernel, "-scaled") != NULL;
    if (status == CLB_OK) {
        expect(progress.parts > 0, "%s: no parts", what);
        for (size_t i = 0; i < progress.parts; i++)
            expect(progress.written[i], "%s: part %zu was not written", what, i);
    }
    level3_check_part(x, &all, status == CLB_OK, what);
    level3_check_rest(x, &progress, what);
    clb_gemm_progress_free(&progress);
    return expect(status == CLB_OK || status == CLB_ERR_NOMEM, "%s: %s", what,
                  clb_status_name(status)) &&
           status == CLB_OK;
}

static void all_routines(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    int rounds = tap_rounds(setting->rounds);
    for (int i = 0; i < rounds * LEVEL3_ROUTINES * CLB_PRECISIONS; i++) {
        level3_routine routine = (level3_routine)(i % LEVEL3_ROUTINES);
        clb_precision precision = (clb_precision)(i / LEVEL3_ROUTINES % CLB_PRECISIONS);
        struct level3_case x;
        if (runtime == NULL || !exists(routine, precision) ||
            (setting->single && clb_precision_real_size(precision) == sizeof(double)))
            continue;
        size_t largest = setting->max_alloc != 0 ? 90 : random_below(&setting->seed, 3) ? 50 : 9;
        level3_make(&x, routine, precision, largest, &setting->seed);
        if (setting->extreme)
            scale_columns(&x);
        expect(run(runtime, &x, setting->name), "%s: not computed", x.name);
        level3_free(&x);
    }
    expect(scaled_runs >= (setting->extreme ? 8 : 0), "only %ld products were scaled", scaled_runs);
}

/* Infinity in B must not reach what it has nothing to do with through a triangle's zeros: such
 * parts are left to the next library, and all others are written. */
static void infinity_in_b(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (int i = 0; i < 12 && runtime != NULL; i++) {
        struct level3_case x;
        struct clb_gemm_progress progress;
        size_t left = 0;
        level3_make(&x, LEVEL3_TRMM, (clb_precision)(i % CLB_PRECISIONS), 50, &setting->seed);
        size_t row = random_below(&setting->seed, x.problem.m);
        size_t col = random_below(&setting->seed, x.problem.n);
        dense_set(&x.b, row, col, i % 2 != 0 ? INFINITY : NAN);
        dense_remember(&x.b);
        clb_status status = clb_gemm_run(runtime, fake_cl_variant(runtime, x.problem.precision),
                                         &x.problem, &progress);
        for (size_t p = 0; p < progress.parts; p++) {
            const struct clb_rect *part = &progress.part[p];
            bool hit = x.problem.b[0].data == x.problem.c
                           ? col >= part->col && col < part->col + part->cols
                           : row >= part->row && row < part->row + part->rows;
            expect(progress.written[p] == !hit, "%s: part %zu", x.name, p);
            level3_check_part(&x, part, progress.written[p], "infinity");
            left += !progress.written[p];
        }
        expect(status == CLB_ERR_RANGE && left == 1, "%s: %s, %zu parts left", x.name,
               clb_status_name(status), left);
        level3_check_rest(&x, &progress, "infinity");
        clb_gemm_progress_free(&progress);
        level3_free(&x);
    }
}

/* With less and less memory: the same bits, until there is too little. */
static void little_memory(void *argument)
{
    struct setting *setting = argument;
    struct clb_runtime *runtime = start(setting);
    for (int i = 0; i < 2 * LEVEL3_ROUTINES && runtime != NULL; i++) {
        struct level3_case x;
        int succeeded = 0;
        level3_routine routine = (level3_routine)(i % LEVEL3_ROUTINES);
        clb_precision precision = i < LEVEL3_ROUTINES ? CLB_C : CLB_D;
        if (!exists(routine, precision))
            continue;
        level3_make(&x, routine, precision, 90, &setting->seed);
        const struct matrix *c = x.problem.in_place ? &x.b.real : &x.c.real;
        unsigned char *first = malloc(c->bytes);
        for (runtime->memory_limit = (uint64_t)64 << 20;; runtime->memory_limit /= 2) {
            level3_restore(&x);
            if (!run(runtime, &x, "little memory"))
                break;
            if (succeeded++ == 0)
                memcpy(first, c->memory, c->bytes);
            expect(memcmp(first, c->memory, c->bytes) == 0, "%s: other bits with %llu bytes",
                   x.name, (unsigned long long)runtime->memory_limit);
        }
        expect(succeeded >= 3, "%s: only %d limits were enough", x.name, succeeded);
        free(first);
        level3_free(&x);
    }
}

/* ---- settings ---- */

#define TINY     "gemm.tile=min"
#define LARGER   "gemm.tile=min,gemm.tm=64,gemm.tn=32,gemm.slab=64"
#define STREAMED ",gemm.stream=1"

static void run_settings(const struct setting *settings, size_t count, unsigned seconds,
                         void (*body)(void *setting), uint64_t *seed)
{
    for (size_t i = 0; i < count; i++) {
        struct setting setting = settings[i];
        setting.seed = random_bits(seed);
        tap_child(setting.name, seconds, body, &setting);
    }
}

int main(void)
{
    uint64_t seed = tap_seed();
    static const struct setting settings[] = {
        {.name = "cpu in place", .kernel = "cpu", .params = TINY, .rounds = 6},
        {.name = "cpu in place, larger tiles", .kernel = "cpu", .params = LARGER, .rounds = 4},
        {.name = "cpu in place, as tuned", .kernel = "cpu", .params = "", .rounds = 1},
        {.name = "portable in place", .kernel = "portable", .params = TINY, .rounds = 3},
        {.name = "operands larger than a buffer",
         .kernel = "cpu",
         .params = TINY ",gemm.piece=65536",
         .rounds = 2,
         .max_alloc = 75000},
        {.name = "cpu streamed",
         .kernel = "cpu",
         .params = TINY STREAMED ",gemm.threads=3",
         .rounds = 6},
        {.name = "cpu streamed by one thread",
         .kernel = "cpu",
         .params = TINY STREAMED ",gemm.threads=1",
         .rounds = 2},
        {.name = "cpu streamed, larger slabs",
         .kernel = "cpu",
         .params = LARGER STREAMED ",gemm.threads=2",
         .rounds = 3},
        {.name = "portable in own memory",
         .kernel = "portable",
         .params = TINY ",gemm.threads=3,gemm.strip=4",
         .rounds = 4,
         .discrete = true},
        {.name = "portable in own memory, as tuned",
         .kernel = "portable",
         .params = "gemm.threads=3",
         .rounds = 1,
         .discrete = true},
        {.name = "split, emulated",
         .kernel = "nv-bf16-sync",
         .params = TINY ",gemm.emulate=1,gemm.threads=2",
         .rounds = 1,
         .single = true},
        {.name = "split, emulated, extreme scale",
         .kernel = "nv-bf16-sync",
         .params = TINY ",gemm.emulate=1,gemm.threads=2",
         .rounds = 1,
         .single = true,
         .extreme = true},
    };
    static const struct setting memory[] = {
        {.name = "in place in little memory", .kernel = "cpu", .params = LARGER},
        {.name = "own memory, and little", .kernel = "portable", .params = TINY, .discrete = true},
    };
    static const struct setting infinities[] = {
        {.name = "infinity in place", .kernel = "cpu", .params = TINY},
        {.name = "infinity streamed", .kernel = "portable", .params = TINY, .discrete = true},
    };
    run_settings(settings, CLB_COUNT_OF(settings), 300, all_routines, &seed);
    run_settings(infinities, CLB_COUNT_OF(infinities), 120, infinity_in_b, &seed);
    run_settings(memory, CLB_COUNT_OF(memory), 120, little_memory, &seed);
    return tap_done();
}
