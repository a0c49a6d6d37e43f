/* Every OpenCL call of a warm factorisation, LU or Cholesky, or triangular system fails once: what
 * the device has not written is intact, the next library finishes, and the result is as good as
 * any: backward error, multipliers, pivots and info. */
#include "dense.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const cl_int codes[] = {CL_OUT_OF_RESOURCES, CL_MEM_OBJECT_ALLOCATION_FAILURE,
                               CL_INVALID_VALUE, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                               -9999 /* a vendor's own */};

struct setting {
    const char *name, *kernel, *params;
    bool discrete;
    clb_precision precision;
    size_t m, n;
    bool singular, right; /* right: of Cholesky's the upper triangle */
    uint64_t seed;
    bool tight; /* hardly more memory than is enough */
};

/* Between the test and its children. */
static struct shared {
    long calls, launches, partly, whole;
} * shared;

#define PARAMS                                                                                     \
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.ks=64,getrf.nb=8,getrf.strip=4,potrf.nb=8,"          \
    "trsm.nb=8,trsm.part=8"

static const struct setting factorisations[] = {
    {"LU in place", "cpu", PARAMS, false, CLB_D, 37, 37, false, false, 0, false},
    {"LU in place, wide, singular", "cpu", PARAMS, false, CLB_C, 20, 45, true, false, 0, false},
    {"LU in own memory", "cpu", PARAMS ",gemm.threads=3", true, CLB_D, 37, 37, false, false, 0,
     false},
    {"LU in own memory, singular", "cpu", PARAMS ",gemm.threads=2", true, CLB_S, 41, 35, true,
     false, 0, false},
    {"LU in own memory, panels by the device", "cpu", PARAMS ",gemm.threads=2,getrf.panel=2", true,
     CLB_D, 37, 41, false, false, 0, false},
    {"LU streamed by one thread, panels by the device", "portable",
     PARAMS ",gemm.threads=1,gemm.stream=1,getrf.panel=2", false, CLB_S, 29, 26, true, false, 0,
     false},
    {"LU streamed by one thread", "portable", PARAMS ",gemm.threads=1,gemm.stream=1", false, CLB_Z,
     26, 40, false, false, 0, false},
    {"LU in blocks of columns", "cpu", PARAMS ",gemm.threads=3,getrf.block=16", true, CLB_D, 34, 41,
     false, false, 0, false},
    {"LU in blocks of columns, singular", "cpu", PARAMS ",gemm.threads=1,getrf.block=10", true,
     CLB_C, 37, 30, true, false, 0, false},
};

static const struct setting definite[] = {
    {"Cholesky in place", "cpu", PARAMS, false, CLB_Z, 37, 37, false, false, 0, false},
    {"Cholesky in place, blocks by the device, indefinite", "cpu", PARAMS ",potrf.block=2", false,
     CLB_D, 45, 45, true, true, 0, false},
    {"Cholesky in own memory", "cpu", PARAMS ",gemm.threads=3", true, CLB_C, 45, 45, false, false,
     0, false},
    {"Cholesky in own memory, upper, blocks by the CPU", "cpu",
     PARAMS ",gemm.threads=2,potrf.block=1", true, CLB_D, 37, 37, false, true, 0, false},
    {"Cholesky streamed by one thread, indefinite", "portable",
     PARAMS ",gemm.threads=1,gemm.stream=1", false, CLB_S, 41, 41, true, true, 0, false},
};

static const struct setting systems[] = {
    {"left system in place", "cpu", PARAMS, false, CLB_D, 30, 37, false, false, 0, false},
    {"right system in own memory", "cpu", PARAMS ",gemm.threads=3", true, CLB_Z, 37, 30, false,
     true, 0, false},
    {"left system streamed", "portable", PARAMS ",gemm.threads=2,gemm.stream=1", false, CLB_S, 30,
     37, false, false, 0, false},
    {"left system, taking turns", "cpu",
     "gemm.tile=min,gemm.ks=64,trsm.nb=8,trsm.part=300,gemm.threads=2", true, CLB_D, 16, 3000,
     false, false, 0, true},
};

static const struct fake_failure none;

static struct clb_runtime *start(const struct setting *setting,
                                 const struct clb_gemm_variant **variant)
{
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    struct clb_runtime *runtime =
        fake_cl_start(setting->kernel, setting->params, setting->discrete);
    if (runtime == NULL ||
        !expect(clb_gemm_variant_get(runtime, setting->precision, variant) == CLB_OK, "no variant"))
        return NULL;
    return runtime;
}

/* ---- LU -------------------------------------------------------------------------------------- */

struct factorisation {
    struct dense a;
    int64_t ipiv[64];
    struct clb_getrf problem;
    struct clb_host_lu next;
    struct clb_getrf_result result;
};

static void make_factorisation(struct factorisation *f, const struct setting *setting,
                               uint64_t *seed)
{
    *f = (struct factorisation){0};
    dense_make(&f->a, setting->precision, setting->m, setting->n, 5, seed);
    for (size_t i = 0; setting->singular && i < setting->m; i++)
        dense_set(&f->a, i, 12, 0);
    dense_remember(&f->a);
    f->problem =
        (struct clb_getrf){setting->precision, setting->m, setting->n, dense_data(&f->a), f->a.ld};
    f->next = dense_next;
    f->next.context = &f->problem.precision;
    f->result.ipiv = f->ipiv;
}

static void check_factorisation(const struct setting *setting, const struct factorisation *f,
                                const char *what)
{
    bool pairs = clb_precision_parts(setting->precision) > 1;
    long double error = dense_lu_error(&f->a, f->ipiv), worst = 0;
    for (size_t j = 0; j < setting->n; j++) {
        for (size_t i = j + 1; i < setting->m; i++)
            worst = fmaxl(worst, cabsl(dense_get(&f->a, i, j)));
    }
    expect(error <= (pairs ? 3 : 1), "%s: backward error %.3Lg", what, error);
    expect(worst <= (pairs ? sqrtl(2) : 1) * (1 + 4 * dense_unit(setting->precision)),
           "%s: a multiplier of %.8Lg", what, worst);
    expect(f->result.info == (setting->singular ? 13 : 0), "%s: info = %zu", what, f->result.info);
    expect(dense_gaps_intact(&f->a), "%s: written outside of A", what);
}

static void factor(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                   const struct setting *setting, const struct fake_failure *failure)
{
    struct factorisation f;
    uint64_t seed = setting->seed; /* the same problem for every call, so that call n is the same */
    char what[80];
    make_factorisation(&f, setting, &seed);
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_getrf_run(runtime, variant, &f.problem, &f.next, &f.result);
    shared->calls = fake_cl.calls;
    shared->launches = fake_cl.launches;
    fake_cl_end(failure, status, what);
    size_t written = f.result.columns_written;
    expect(status != CLB_OK || written == setting->n, "%s: %zu columns written", what, written);
    for (size_t j = written; j < setting->n; j++) {
        for (size_t i = 0; i < setting->m; i++)
            expect(dense_get(&f.a, i, j) == dense_old(&f.a, i, j), "%s: column %zu of %zu written",
                   what, j, written);
    }
    shared->partly += written > 0 && written < setting->n;
    shared->whole += status != CLB_OK && written == 0;
    if (status != CLB_OK && written == 0)
        f.result.info = f.next.getrf(f.next.context, setting->m, setting->n, f.problem.a,
                                     f.problem.lda, f.ipiv);
    else if (status != CLB_OK)
        clb_getrf_resume(&f.problem, &f.next, &f.result);
    check_factorisation(setting, &f, what);
    dense_free(&f.a);
}

/* ---- Cholesky -------------------------------------------------------------------------------- */

static void factor_definite(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                            const struct setting *setting, const struct fake_failure *failure)
{
    struct dense a;
    uint64_t seed = setting->seed;
    size_t n = setting->n, bad = setting->singular ? 30 : 0, right = bad != 0 ? bad - 1 : n;
    bool pairs = clb_precision_parts(setting->precision) > 1, upper = setting->right;
    char what[80];
    dense_make_definite(&a, setting->precision, n, 5, upper, 3, &seed);
    if (bad != 0)
        dense_set(&a, bad - 1, bad - 1, -1);
    dense_remember(&a);
    const struct clb_potrf problem = {setting->precision, upper, n, dense_data(&a), a.ld};
    const struct clb_host_cholesky *next = &dense_potrf_next;
    struct clb_potrf_result result;
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_potrf_run(runtime, variant, &problem, next, &result);
    shared->calls = fake_cl.calls;
    shared->launches = fake_cl.launches;
    fake_cl_end(failure, status, what);
    size_t written = result.columns_written;
    expect(status != CLB_OK || written == right, "%s: %zu columns written", what, written);
    long double error = dense_cholesky_error(&a, upper, written);
    expect(error <= (pairs ? 3 : 1), "%s: backward error of %zu columns %.3Lg", what, written,
           error);
    shared->partly += written > 0 && written < right;
    shared->whole += status != CLB_OK && written == 0;
    if (status != CLB_OK && written == 0)
        result.info = next->potrf(next->context, &problem);
    else if (status != CLB_OK)
        clb_potrf_resume(&problem, next, &result);
    expect(result.info == bad, "%s: info = %zu", what, result.info);
    dense_restore(&a, right); /* behind the pivot there may be anything */
    error = dense_cholesky_error(&a, upper, right);
    expect(error <= (pairs ? 3 : 1), "%s: backward error %.3Lg", what, error);
    dense_free(&a);
}

/* ---- systems --------------------------------------------------------------------------------- */

struct system {
    struct dense a, b, expected;
    struct clb_trsm problem;
};

/* Well conditioned, so that solutions agree. */
static void make_system(struct system *s, const struct setting *setting, uint64_t *seed)
{
    size_t n = setting->right ? setting->n : setting->m;
    uint64_t same = random_bits(seed), again = same;
    dense_make(&s->a, setting->precision, n, n, 5, seed);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++)
            dense_set(&s->a, i, j, i == j ? 2 : dense_get(&s->a, i, j) / (long double)n);
    }
    dense_remember(&s->a);
    dense_make(&s->b, setting->precision, setting->m, setting->n, 5, &same);
    dense_make(&s->expected, setting->precision, setting->m, setting->n, 5, &again);
    s->problem = (struct clb_trsm){.precision = setting->precision,
                                   .right = setting->right,
                                   .upper = true,
                                   .trans = CLB_OP_C,
                                   .m = setting->m,
                                   .n = setting->n,
                                   .alpha = clb_scalar_one(setting->precision),
                                   .a = dense_data(&s->a),
                                   .b = dense_data(&s->expected),
                                   .lda = s->a.ld,
                                   .ldb = s->b.ld};
    dense_next.trsm(dense_next.context, &s->problem);
    s->problem.b = dense_data(&s->b);
}

static void check_system(const struct setting *setting, const struct system *s, const char *what)
{
    long double worst = 0;
    for (size_t j = 0; j < setting->n; j++) {
        for (size_t i = 0; i < setting->m; i++)
            worst = fmaxl(worst, cabsl(dense_get(&s->b, i, j) - dense_get(&s->expected, i, j)));
    }
    expect(worst <= 100 * dense_unit(setting->precision), "%s: off by %.3Lg", what, worst);
    expect(dense_gaps_intact(&s->b) && dense_intact(&s->a), "%s: something else was written", what);
}

/* What is not written is untouched; compute it elsewhere. */
static size_t finish(const struct setting *setting, const struct system *s,
                     const struct clb_gemm_progress *progress, const char *what)
{
    const struct clb_rect all = {0, 0, setting->m, setting->n};
    size_t parts = clb_max(progress->parts, 1), left = 0;
    for (size_t p = 0; p < parts; p++) {
        const struct clb_rect *rect = progress->parts == 0 ? &all : &progress->part[p];
        if (progress->parts != 0 && progress->written[p])
            continue;
        for (size_t j = rect->col; j < rect->col + rect->cols; j++) {
            for (size_t i = rect->row; i < rect->row + rect->rows; i++)
                expect(dense_get(&s->b, i, j) == dense_old(&s->b, i, j), "%s: part %zu is written",
                       what, p);
        }
        struct clb_trsm part = clb_trsm_part(&s->problem, rect);
        dense_next.trsm(dense_next.context, &part);
        left += rect->rows * rect->cols;
    }
    return left;
}

static void solve(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                  const struct setting *setting, const struct fake_failure *failure)
{
    struct system s;
    struct clb_gemm_progress progress;
    uint64_t seed = setting->seed;
    char what[80];
    make_system(&s, setting, &seed);
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_trsm_run(runtime, variant, &s.problem, &progress);
    shared->calls = fake_cl.calls;
    shared->launches = fake_cl.launches;
    fake_cl_end(failure, status, what);
    size_t left = finish(setting, &s, &progress, what);
    expect(status != CLB_OK || left == 0, "%s: parts are missing", what);
    shared->partly += left > 0 && left < setting->m * setting->n;
    shared->whole += left == setting->m * setting->n;
    clb_gemm_progress_free(&progress);
    if (failure->kind != FAKE_FINISH_REPORTS)
        check_system(setting, &s, what);
    dense_free(&s.a);
    dense_free(&s.b);
    dense_free(&s.expected);
}

/* So little memory that parts take turns. */
static void tighten(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                    const struct setting *setting)
{
    clb_status status = CLB_ERR_NOMEM;
    solve(runtime, variant, setting, &none); /* with enough: builds and checks kernels */
    for (uint64_t limit = 20000; status == CLB_ERR_NOMEM; limit += limit / 8) {
        struct system s;
        struct clb_gemm_progress progress;
        uint64_t seed = setting->seed;
        make_system(&s, setting, &seed);
        runtime->memory_limit = limit + limit / 8; /* the pool may keep larger buffers */
        status = clb_trsm_run(runtime, variant, &s.problem, &progress);
        clb_gemm_progress_free(&progress);
        dense_free(&s.a);
        dense_free(&s.b);
        dense_free(&s.expected);
    }
    size_t bytes = setting->m * setting->n * clb_precision_size(setting->precision);
    expect(runtime->memory_limit < bytes, "%llu bytes are not enough, B has %zu",
           (unsigned long long)runtime->memory_limit, bytes);
}

/* ---- every call ------------------------------------------------------------------------------ */

typedef void run_function(struct clb_runtime *, const struct clb_gemm_variant *,
                          const struct setting *, const struct fake_failure *);

static void fail_every_call(const struct setting *setting, run_function *run)
{
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = start(setting, &variant);
    if (runtime == NULL)
        return;
    if (setting->tight)
        tighten(runtime, variant, setting);
    run(runtime, variant, setting, &none);
    run(runtime, variant, setting, &none);
    run(runtime, variant, setting, &none);
    long calls = shared->calls;
    shared->partly = shared->whole = 0;
    for (long at = 1; at <= calls; at += setting->tight ? 23 : 1) { /* that one takes long */
        fake_cl.run_anyway = at % 3 == 0;
        const struct fake_failure failure = {at, FAKE_CALL_FAILS,
                                             codes[(size_t)at % CLB_COUNT_OF(codes)]};
        run(runtime, variant, setting, &failure);
    }
    fake_cl.run_anyway = false;
    run(runtime, variant, setting, &none);
    shared->calls = calls;
    expect(calls > 100, "only %ld calls", calls);
    expect(shared->whole > 0, "no failure left everything to the next library");
}

/* A kernel that is not run: its event says so, or clFinish does. The latter is of no use where
 * parts are written while later ones are computed; that they are not called right is checked as
 * well. */
static void skip_every_kernel(const struct setting *setting, run_function *run)
{
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = start(setting, &variant);
    if (runtime == NULL)
        return;
    if (setting->tight)
        tighten(runtime, variant, setting);
    run(runtime, variant, setting, &none);
    run(runtime, variant, setting, &none);
    long launches = shared->launches;
    expect(launches > 5, "only %ld kernels", launches);
    for (long at = 1; at <= launches; at += setting->tight ? 5 : 1) {
        const struct fake_failure by_event = {at, FAKE_EVENT_REPORTS, 0};
        const struct fake_failure by_finish = {at, FAKE_FINISH_REPORTS, 0};
        run(runtime, variant, setting, &by_event);
        if (!setting->tight) /* what nobody could wait for is not used again */
            run(runtime, variant, setting, &by_finish);
    }
    run(runtime, variant, setting, &none);
    shared->launches = launches;
    /* How many kernels a run launches may depend on time: panels are enqueued as pieces arrive. */
    expect(fake_cl.missed <= 6 + launches / 4, "%ld kernels were not launched", fake_cl.missed);
}

static void lu_skipping(void *setting)
{
    skip_every_kernel(setting, factor);
}

static void cholesky_skipping(void *setting)
{
    skip_every_kernel(setting, factor_definite);
}

static void triangles_skipping(void *setting)
{
    skip_every_kernel(setting, solve);
}

static void lu(void *setting)
{
    fail_every_call(setting, factor);
    const struct setting *s = setting;
    bool blocks = strstr(s->params, "block") != NULL; /* written at once, when all is complete */
    bool streamed = !blocks && (s->discrete || strstr(s->params, "stream") != NULL);
    expect(!streamed || shared->partly > 0, "no factorisation was resumed");
}

static void cholesky(void *setting)
{
    fail_every_call(setting, factor_definite);
    const struct setting *s = setting;
    bool streamed = s->discrete || strstr(s->params, "stream") != NULL;
    expect(!streamed || shared->partly > 0, "no factorisation was resumed");
}

static void triangles(void *setting)
{
    fail_every_call(setting, solve);
    expect(shared->partly > 0, "nothing was finished in part");
}

static void test(const struct setting *settings, size_t count, void (*body)(void *),
                 void (*skipping)(void *), uint64_t *seed)
{
    for (size_t i = 0; i < count; i++) {
        struct setting setting = settings[i];
        setting.seed = random_bits(seed);
        *shared = (struct shared){0};
        tap_child(setting.name, 200, body, &setting);
        tap_note("%ld calls, %ld failures before anything was written, %ld with a part written",
                 shared->calls, shared->whole, shared->partly);
        char name[120];
        snprintf(name, sizeof name, "%s: a kernel that is not run is noticed", setting.name);
        tap_child(name, 200, skipping, &setting);
        tap_note("%ld kernels", shared->launches);
    }
}

int main(void)
{
    uint64_t seed = tap_seed();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    test(factorisations, CLB_COUNT_OF(factorisations), lu, lu_skipping, &seed);
    test(definite, CLB_COUNT_OF(definite), cholesky, cholesky_skipping, &seed);
    test(systems, CLB_COUNT_OF(systems), triangles, triangles_skipping, &seed);
    return tap_done();
}
