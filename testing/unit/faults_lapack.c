/* Every OpenCL call of a warm factorisation, triangular system, product with Q or generation of Q
 * fails once, and every kernel is once not run: what the device has not written is intact, the next
 * library finishes, and the result is as good as any: backward error, multipliers, pivots and info.
 */
#include "dense_qr.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static const cl_int codes[] = {CL_OUT_OF_RESOURCES, CL_MEM_OBJECT_ALLOCATION_FAILURE,
                               CL_INVALID_VALUE, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
                               -9999 /* a vendor's own */};

struct setting;

/* Computes the setting's problem with a failure, finishes where the device has not, and checks. */
typedef void run_function(struct clb_runtime *, const struct clb_gemm_variant *,
                          const struct setting *, const struct fake_failure *);

struct setting {
    const char *name;
    run_function *run;
    const char *kernel, *params;
    bool discrete;
    clb_precision precision;
    size_t m, n, k;       /* k: reflectors */
    bool in_parts;        /* some failures leave a part to the next library */
    bool singular, right; /* right: of Cholesky's the upper triangle; of QR's the adjoint */
    bool tight;           /* hardly more memory than is enough */
    uint64_t seed;        /* the same problem for every call, so that call n is the same */
};

/* Between the test and its children. */
static struct shared {
    long calls, launches, partly, whole;
} * shared;

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

/* Nothing of x that lies in the rectangle has changed. */
static void expect_old(const struct dense *x, const struct clb_rect *rect, const char *what)
{
    size_t changed = 0;
    for (size_t j = rect->col; j < rect->col + rect->cols; j++) {
        for (size_t i = rect->row; i < rect->row + rect->rows; i++)
            changed += dense_get(x, i, j) != dense_old(x, i, j);
    }
    expect(changed == 0, "%s: %zu entries have changed that are not written", what, changed);
}

static void expect_near(const struct dense *x, const struct dense *y, long double units,
                        const char *what)
{
    long double worst = 0;
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            worst = fmaxl(worst, cabsl(dense_get(x, i, j) - dense_get(y, i, j)));
    }
    expect(worst <= units * dense_unit(x->precision), "%s: off by %.3Lg", what, worst);
    expect(dense_gaps_intact(x), "%s: a gap was written", what);
}

static void count_part(size_t written, size_t all)
{
    shared->partly += written > 0 && written < all;
    shared->whole += written == 0;
}

static void end_run(const struct fake_failure *failure, clb_status status, const char *what)
{
    shared->calls = fake_cl.calls;
    shared->launches = fake_cl.launches;
    fake_cl_end(failure, status, what);
}

/* ---- LU -------------------------------------------------------------------------------------- */

struct factorisation {
    struct dense a;
    int64_t ipiv[64];
    struct clb_call problem;
    struct clb_host_blas next;
    struct clb_factors result;
};

static void make_factorisation(struct factorisation *f, const struct setting *setting,
                               uint64_t *seed)
{
    *f = (struct factorisation){0};
    dense_make(&f->a, setting->precision, setting->m, setting->n, 5, seed);
    for (size_t i = 0; setting->singular && i < setting->m; i++)
        dense_set(&f->a, i, 12, 0);
    dense_remember(&f->a);
    f->problem = dense_call(CLB_KIND_getrf, setting->m, setting->n, &f->a);
    f->problem.ipiv = f->ipiv;
    f->next = dense_next;
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
    uint64_t seed = setting->seed;
    char what[80];
    make_factorisation(&f, setting, &seed);
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_getrf_run(runtime, variant, &f.problem, &f.next, &f.result);
    end_run(failure, status, what);
    size_t written = f.result.columns_written;
    expect(status != CLB_OK || written == setting->n, "%s: %zu columns written", what, written);
    expect_old(&f.a, &(struct clb_rect){0, written, setting->m, setting->n - written}, what);
    count_part(written, setting->n);
    if (status != CLB_OK && written == 0)
        f.result.info = clb_host_call(&f.next, &f.problem);
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
    struct clb_call problem = dense_call(CLB_KIND_potrf, n, n, &a);
    problem.upper = upper;
    const struct clb_host_blas *next = &dense_next;
    struct clb_factors result;
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_potrf_run(runtime, variant, &problem, next, &result);
    end_run(failure, status, what);
    size_t written = result.columns_written;
    expect(status != CLB_OK || written == right, "%s: %zu columns written", what, written);
    long double error = dense_cholesky_error(&a, upper, written);
    expect(error <= (pairs ? 3 : 1), "%s: backward error of %zu columns %.3Lg", what, written,
           error);
    count_part(written, right);
    if (status != CLB_OK && written == 0)
        result.info = clb_host_call(next, &problem);
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
    struct clb_call problem;
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
    s->problem = dense_call(CLB_KIND_trsm, setting->m, setting->n, &s->a);
    s->problem.right = setting->right;
    s->problem.upper = true;
    s->problem.transa = CLB_OP_C;
    s->problem.alpha = clb_scalar_one(setting->precision);
    s->problem.b = dense_data(&s->expected);
    s->problem.ldb = s->b.ld;
    dense_trsm(&dense_next, &s->problem);
    s->problem.b = dense_data(&s->b);
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
        expect_old(&s->b, rect, what);
        struct clb_call part = clb_call_part(&s->problem, rect);
        dense_trsm(&dense_next, &part);
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
    end_run(failure, status, what);
    size_t left = finish(setting, &s, &progress, what);
    expect(status != CLB_OK || left == 0, "%s: parts are missing", what);
    count_part(setting->m * setting->n - left, setting->m * setting->n);
    clb_gemm_progress_free(&progress);
    expect_near(&s.b, &s.expected, 100, what);
    expect(dense_intact(&s.a), "%s: A was written", what);
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
    /* What the device keeps for itself, its counters of launches. */
    const uint64_t used = runtime->memory_limit - clb_memory_available(runtime);
    for (uint64_t limit = 20000; status == CLB_ERR_NOMEM; limit += limit / 8) {
        struct system s;
        struct clb_gemm_progress progress;
        uint64_t seed = setting->seed;
        make_system(&s, setting, &seed);
        runtime->memory_limit = used + limit + limit / 8; /* the pool may keep larger buffers */
        status = clb_trsm_run(runtime, variant, &s.problem, &progress);
        clb_gemm_progress_free(&progress);
        dense_free(&s.a);
        dense_free(&s.b);
        dense_free(&s.expected);
    }
    size_t bytes = setting->m * setting->n * clb_precision_size(setting->precision);
    expect(runtime->memory_limit - used < bytes, "%llu bytes are not enough, B has %zu",
           (unsigned long long)(runtime->memory_limit - used), bytes);
}

/* ---- QR -------------------------------------------------------------------------------------- */

static void copy(struct dense *to, const struct dense *from, bool adjoint)
{
    for (size_t j = 0; j < to->cols; j++) {
        for (size_t i = 0; i < to->rows; i++)
            dense_set(to, i, j, adjoint ? conjl(dense_get(from, j, i)) : dense_get(from, i, j));
    }
}

/* The memory of a problem: with X's content, or that of its adjoint. */
static void make_memory(struct dense *memory, const struct dense *x, bool adjoint, uint64_t *seed)
{
    dense_make(memory, x->precision, adjoint ? x->cols : x->rows, adjoint ? x->rows : x->cols, 5,
               seed);
    copy(memory, x, adjoint);
}

static void factor_qr(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                      const struct setting *setting, const struct fake_failure *failure)
{
    uint64_t state = setting->seed, *seed = &state;
    char what[80];
    const bool adjoint = setting->right;
    struct dense a, memory;
    double tau[2 * 64];
    dense_make(&a, setting->precision, setting->m, setting->n, 5, seed);
    make_memory(&memory, &a, adjoint, seed);
    struct clb_call problem =
        (adjoint ? dense_lq_call : dense_call)(CLB_KIND_geqrf, setting->m, setting->n, &memory);
    problem.tau = tau;
    struct clb_host_blas next = dense_qr_next;
    struct clb_factors result = {.tau = tau};
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_geqrf_run(runtime, variant, &problem, &next, &result);
    end_run(failure, status, what);
    size_t written = result.columns_written;
    const struct clb_rect rest = {0, written, setting->m, setting->n - written};
    expect(status != CLB_OK || written == setting->n, "%s: %zu columns written", what, written);
    copy(&a, &memory, adjoint);
    expect_old(&a, &rest, what);
    count_part(written, setting->n);
    if (status != CLB_OK && written == 0)
        clb_host_call(&next, &problem);
    else if (status != CLB_OK)
        clb_geqrf_resume(&problem, &next, &result);
    copy(&a, &memory, adjoint);
    long double error = dense_qr_error(&a, tau);
    expect(error <= 3, "%s: error %.3Lg", what, error);
    expect(dense_gaps_intact(&memory), "%s: written outside of A", what);
    dense_free(&a);
    dense_free(&memory);
}

static void make_vectors(struct dense *a, size_t rows, size_t cols, const struct setting *setting,
                         void *tau, uint64_t *seed)
{
    dense_make(a, setting->precision, rows, cols, 5, seed);
    struct clb_call problem = dense_call(CLB_KIND_geqrf, rows, setting->k, a);
    problem.tau = tau;
    clb_host_call(&dense_qr_next, &problem);
    dense_remember(a);
}

static void multiply(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                     const struct setting *setting, const struct fake_failure *failure)
{
    uint64_t state = setting->seed, *seed = &state;
    char what[80];
    struct dense a, c, expected;
    struct clb_gemm_progress progress;
    double tau[2 * 64];
    size_t written = 0, order = setting->right ? setting->n : setting->m;
    make_vectors(&a, order, setting->k, setting, tau, seed);
    uint64_t same = random_bits(seed), again = same;
    dense_make(&c, setting->precision, setting->m, setting->n, 5, &same);
    dense_make(&expected, setting->precision, setting->m, setting->n, 5, &again);
    struct clb_call problem = dense_call(CLB_KIND_ormqr, setting->m, setting->n, &a);
    problem.right = setting->right;
    problem.transa = CLB_OP_C;
    problem.k = setting->k;
    problem.tau = tau;
    problem.c = dense_data(&expected);
    problem.ldc = c.ld;
    clb_host_call(&dense_qr_next, &problem);
    problem.c = dense_data(&c);
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_ormqr_run(runtime, variant, &problem, &progress);
    end_run(failure, status, what);
    for (size_t p = 0; p < clb_max(progress.parts, 1); p++) {
        const struct clb_rect all = {0, 0, setting->m, setting->n};
        const struct clb_rect *rect = progress.parts == 0 ? &all : &progress.part[p];
        if (progress.parts != 0 && progress.written[p]) {
            written++;
            continue;
        }
        expect_old(&c, rect, what);
        struct clb_call part = clb_call_part(&problem, rect);
        clb_host_call(&dense_qr_next, &part);
    }
    expect(status != CLB_OK || written == progress.parts, "%s: parts are missing", what);
    count_part(written, progress.parts);
    clb_gemm_progress_free(&progress);
    expect_near(&c, &expected, 200, what);
    expect(dense_intact(&a), "%s: A was written", what);
    dense_free(&a);
    dense_free(&c);
    dense_free(&expected);
}

static void generate(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                     const struct setting *setting, const struct fake_failure *failure)
{
    uint64_t state = setting->seed, *seed = &state;
    char what[80];
    const bool adjoint = setting->right;
    struct dense a, memory, expected;
    double tau[2 * 64];
    uint64_t again = *seed;
    make_vectors(&expected, setting->m, setting->n, setting, tau, &again);
    make_vectors(&a, setting->m, setting->n, setting, tau, seed);
    struct clb_call problem = dense_call(CLB_KIND_orgqr, setting->m, setting->n, &expected);
    problem.k = setting->k;
    problem.tau = tau;
    clb_host_call(&dense_qr_next, &problem);
    make_memory(&memory, &a, adjoint, seed);
    problem =
        (adjoint ? dense_lq_call : dense_call)(CLB_KIND_orgqr, setting->m, setting->n, &memory);
    problem.k = setting->k;
    problem.tau = tau;
    struct clb_orgqr_result result;
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_orgqr_run(runtime, variant, &problem, &result);
    end_run(failure, status, what);
    const struct clb_rect rest = {0, 0, setting->m, result.columns_left};
    expect(status != CLB_OK || result.columns_left == 0, "%s: columns are missing", what);
    copy(&a, &memory, adjoint);
    expect_old(&a, &rest, what);
    count_part(setting->n - result.columns_left, setting->n);
    if (result.columns_left > 0) {
        const struct clb_call missing = clb_orgqr_rest(&problem, &result);
        clb_host_call(&dense_qr_next, &missing);
    }
    copy(&a, &memory, adjoint);
    expect_near(&a, &expected, 200, what);
    expect(dense_gaps_intact(&memory), "%s: written outside of A", what);
    dense_free(&a);
    dense_free(&memory);
    dense_free(&expected);
}

/* ---- every call ------------------------------------------------------------------------------ */

/* Warm, and with as little memory as is wanted; NULL when the device can't be had. */
static struct clb_runtime *warm_up(const struct setting *setting,
                                   const struct clb_gemm_variant **variant)
{
    struct clb_runtime *runtime = start(setting, variant);
    if (runtime == NULL)
        return NULL;
    if (setting->tight)
        tighten(runtime, *variant, setting);
    for (int i = 0; i < 3; i++)
        setting->run(runtime, *variant, setting, &none);
    return runtime;
}

static void fail_every_call(void *argument)
{
    const struct setting *setting = argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = warm_up(setting, &variant);
    if (runtime == NULL)
        return;
    long calls = shared->calls;
    shared->partly = shared->whole = 0;
    /* On a busy machine no part may be written by the time of the failure: again, then. */
    for (int round = 0; round < 3 && (round == 0 || setting->in_parts) && shared->partly == 0;
         round++) {
        for (long at = 1; at <= calls;
             at += setting->tight ? 23 : tap_step(calls)) { /* that one takes long */
            fake_cl.run_anyway = at % 3 == 0;
            const struct fake_failure failure = {at, FAKE_CALL_FAILS,
                                                 codes[(size_t)at % CLB_COUNT_OF(codes)]};
            setting->run(runtime, variant, setting, &failure);
        }
    }
    fake_cl.run_anyway = false;
    if (setting->tight) /* buffers of commands that may never end are not used again */
        runtime->memory_limit = runtime->device.memory;
    setting->run(runtime, variant, setting, &none);
    shared->calls = calls;
    expect(calls > 100, "only %ld calls", calls);
    expect(shared->whole > 0, "no failure left everything to the next library");
    expect(!setting->in_parts || shared->partly > 0 || tap_step(calls) > 1,
           "nothing was finished in part");
}

/* A kernel that is not run, and its event, clFinish or nobody says so. */
static void skip_every_kernel(void *argument)
{
    const struct setting *setting = argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = warm_up(setting, &variant);
    if (runtime == NULL)
        return;
    long launches = shared->launches;
    long runs = 0;
    expect(launches > 5, "only %ld kernels", launches);
    for (long at = 1; at <= launches; at += setting->tight ? 5 : tap_step(launches)) {
        const struct fake_failure by_event = {at, FAKE_EVENT_REPORTS, 0};
        const struct fake_failure by_finish = {at, FAKE_FINISH_REPORTS, 0};
        const struct fake_failure by_nobody = {at, FAKE_NOBODY_REPORTS, 0};
        setting->run(runtime, variant, setting, &by_event);
        setting->run(runtime, variant, setting, &by_nobody);
        if (!setting->tight) /* what nobody could wait for is not used again */
            setting->run(runtime, variant, setting, &by_finish);
        runs += setting->tight ? 2 : 3;
    }
    setting->run(runtime, variant, setting, &none);
    shared->launches = launches;
    /* How many kernels a run launches depends on time: panels are enqueued as pieces arrive. */
    expect(fake_cl.missed <= 6 + runs / 2, "%ld of %ld kernels were not launched", fake_cl.missed,
           runs);
}

#define LU                                                                                         \
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,getrf.nb=8,getrf.strip=4,trsm.nb=8,trsm."    \
    "part="                                                                                        \
    "8"
#define CHOL   "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,potrf.nb=8,trsm.nb=8,trsm.part=8"
#define QR     "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,geqrf.nb=8,trsm.part=16"
#define STREAM ",gemm.threads=1,gemm.stream=1"

static const struct setting settings[] = {
    {"LU in place", factor, "cpu", LU, false, CLB_D, 37, 37, .k = 0},
    {"LU in place, wide, singular", factor, "cpu", LU, false, CLB_C, 20, 45, .singular = true},
    {"LU in own memory", factor, "cpu", LU ",gemm.threads=3", true, CLB_D, 37, 37,
     .in_parts = true},
    {"LU in own memory, singular", factor, "cpu", LU ",gemm.threads=2", true, CLB_S, 41, 35,
     .singular = true, .in_parts = true},
    {"LU in own memory, panels by the device", factor, "cpu", LU ",gemm.threads=2,getrf.panel=2",
     true, CLB_D, 37, 41, .in_parts = true},
    {"LU streamed by one thread, panels by the device", factor, "portable",
     LU STREAM ",getrf.panel=2", false, CLB_S, 29, 26, .singular = true, .in_parts = true},
    {"LU streamed by one thread", factor, "portable", LU STREAM, false, CLB_Z, 26, 40,
     .in_parts = true},
    /* Written at once, when all is complete. */
    {"LU in blocks of columns", factor, "cpu", LU ",gemm.threads=3,getrf.block=16", true, CLB_D, 34,
     41, .k = 0},
    {"LU in blocks of columns, singular", factor, "cpu", LU ",gemm.threads=1,getrf.block=10", true,
     CLB_C, 37, 30, .singular = true},
    {"Cholesky in place", factor_definite, "cpu", CHOL, false, CLB_Z, 37, 37, .k = 0},
    {"Cholesky in place, blocks by the device, indefinite", factor_definite, "cpu",
     CHOL ",potrf.block=2", false, CLB_D, 45, 45, .singular = true, .right = true},
    {"Cholesky in own memory", factor_definite, "cpu", CHOL ",gemm.threads=3", true, CLB_C, 45, 45,
     .in_parts = true},
    {"Cholesky in own memory, upper, blocks by the CPU", factor_definite, "cpu",
     CHOL ",gemm.threads=2,potrf.block=1", true, CLB_D, 37, 37, .right = true, .in_parts = true},
    {"Cholesky streamed by one thread, indefinite", factor_definite, "portable", CHOL STREAM, false,
     CLB_S, 41, 41, .singular = true, .right = true, .in_parts = true},
    {"left system in place", solve, "cpu", CHOL, false, CLB_D, 30, 37, .in_parts = true},
    {"right system in own memory", solve, "cpu", CHOL ",gemm.threads=3", true, CLB_Z, 37, 30,
     .right = true, .in_parts = true},
    {"left system streamed", solve, "portable", CHOL ",gemm.threads=2,gemm.stream=1", false, CLB_S,
     30, 37, .in_parts = true},
    {"left system, taking turns", solve, "cpu",
     "gemm.tile=min,gemm.slab=64,trsm.nb=8,trsm.part=300,gemm.threads=2", true, CLB_D, 16, 3000,
     .in_parts = true, .tight = true},
    {"QR in place", factor_qr, "cpu", QR, false, CLB_D, 35, 20, .k = 0},
    {"QR in own memory", factor_qr, "cpu", QR ",gemm.threads=3", true, CLB_Z, 20, 30,
     .in_parts = true},
    {"QR streamed by one thread", factor_qr, "portable", QR STREAM, false, CLB_S, 30, 30,
     .in_parts = true},
    {"QR of the adjoint in place", factor_qr, "cpu", QR, false, CLB_C, 20, 35, .right = true},
    {"QR of the adjoint in own memory", factor_qr, "cpu", QR ",gemm.threads=3", true, CLB_Z, 37, 30,
     .right = true, .in_parts = true},
    {"Q*C in place", multiply, "cpu", QR, false, CLB_D, 20, 37, 12, .in_parts = true},
    /* One staging thread: with ENQUEUER several have been told of all parts before one is written.
     */
    {"C*Q in own memory", multiply, "cpu", QR ",gemm.threads=1", true, CLB_C, 37, 20, 12,
     .right = true, .in_parts = true},
    {"Q in place", generate, "cpu", QR, false, CLB_Z, 30, 24, 12, .in_parts = false},
    {"Q in own memory", generate, "cpu", QR ",gemm.threads=1", true, CLB_D, 30, 20, 20,
     .in_parts = true},
    {"Q's adjoint in own memory", generate, "cpu", QR ",gemm.threads=1", true, CLB_C, 30, 24, 20,
     .right = true, .in_parts = true},
};

int main(void)
{
    uint64_t seed = tap_seed();
    tap_few_threads();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        struct setting setting = settings[i];
        char name[120];
        setting.seed = random_bits(&seed);
        *shared = (struct shared){0};
        tap_child(setting.name, 200, fail_every_call, &setting);
        tap_note("%ld calls, %ld failures before anything was written, %ld with a part written",
                 shared->calls, shared->whole, shared->partly);
        snprintf(name, sizeof name, "%s: a kernel that is not run is noticed", setting.name);
        tap_child(name, 200, skip_every_kernel, &setting);
        tap_note("%ld kernels", shared->launches);
    }
    return tap_done();
}
