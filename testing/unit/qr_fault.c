/* Every OpenCL call of a warm QR factorisation, product with Q or generation of Q fails once: what
 * the device has not written is intact, the next library finishes, and the result is as good as
 * any. */
#include "dense_qr.h"
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
    size_t m, n, k;
    bool right;
    uint64_t seed;
};

/* Between the test and its children. */
static struct shared {
    long calls, launches, partly, whole;
} * shared;

#define PARAMS "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.ks=64,geqrf.nb=8,trsm.part=16"

static const struct setting factorisations[] = {
    {"QR in place", "cpu", PARAMS, false, CLB_D, 35, 20, 0, false, 0},
    {"QR in own memory", "cpu", PARAMS ",gemm.threads=3", true, CLB_Z, 20, 30, 0, false, 0},
    {"QR streamed by one thread", "portable", PARAMS ",gemm.threads=1,gemm.stream=1", false, CLB_S,
     30, 30, 0, false, 0},
};

static const struct setting products[] = {
    {"Q*C in place", "cpu", PARAMS, false, CLB_D, 20, 37, 12, false, 0},
    {"C*Q in own memory", "cpu", PARAMS ",gemm.threads=3", true, CLB_C, 37, 20, 12, true, 0},
};

static const struct setting generations[] = {
    {"Q in place", "cpu", PARAMS, false, CLB_Z, 30, 24, 12, false, 0},
    {"Q in own memory", "cpu", PARAMS ",gemm.threads=3", true, CLB_D, 30, 20, 20, false, 0},
};

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

static void count(size_t written, size_t all)
{
    shared->partly += written > 0 && written < all;
    shared->whole += written == 0;
}

/* ---- the routines: run with call `at` failing, then finish and check ------------------------- */

typedef clb_status run_function(struct clb_runtime *, const struct clb_gemm_variant *,
                                const struct setting *, uint64_t *seed,
                                const struct fake_failure *failure);

static void end(const struct fake_failure *failure, clb_status status, const char *what)
{
    shared->calls = fake_cl.calls;
    shared->launches = fake_cl.launches;
    fake_cl_end(failure, status, what);
}

static const struct fake_failure none;

static clb_status factor(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct setting *setting, uint64_t *seed,
                         const struct fake_failure *failure)
{
    char what[80];
    struct dense a;
    double tau[2 * 64];
    dense_make(&a, setting->precision, setting->m, setting->n, 5, seed);
    const struct clb_geqrf problem = {setting->precision, setting->m, setting->n, dense_data(&a),
                                      a.ld};
    struct clb_host_qr next = dense_qr_next;
    struct clb_geqrf_result result = {.tau = tau};
    next.context = &problem.precision;
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_geqrf_run(runtime, variant, &problem, &next, &result);
    end(failure, status, what);
    size_t written = result.columns_written;
    const struct clb_rect rest = {0, written, setting->m, setting->n - written};
    expect(status != CLB_OK || written == setting->n, "%s: %zu columns written", what, written);
    expect_old(&a, &rest, what);
    count(written, setting->n);
    if (status != CLB_OK && written == 0)
        next.geqrf(next.context, &problem, tau);
    else if (status != CLB_OK)
        clb_geqrf_resume(&problem, &next, &result);
    long double error = dense_qr_error(&a, tau);
    expect(error <= 3, "%s: error %.3Lg", what, error);
    expect(dense_gaps_intact(&a), "%s: written outside of A", what);
    dense_free(&a);
    return status;
}

static void expect_near(const struct dense *x, const struct dense *y, const char *what)
{
    long double worst = 0;
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            worst = fmaxl(worst, cabsl(dense_get(x, i, j) - dense_get(y, i, j)));
    }
    expect(worst <= 200 * dense_unit(x->precision), "%s: off by %.3Lg", what, worst);
    expect(dense_gaps_intact(x), "%s: a gap was written", what);
}

static void make_vectors(struct dense *a, size_t rows, size_t cols, const struct setting *setting,
                         void *tau, uint64_t *seed)
{
    dense_make(a, setting->precision, rows, cols, 5, seed);
    const struct clb_geqrf problem = {setting->precision, rows, setting->k, dense_data(a), a->ld};
    dense_qr_next.geqrf(&setting->precision, &problem, tau);
    dense_remember(a);
}

static clb_status multiply(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct setting *setting, uint64_t *seed,
                           const struct fake_failure *failure)
{
    char what[80];
    struct dense a, c, expected;
    struct clb_gemm_progress progress;
    double tau[2 * 64];
    size_t written = 0, order = setting->right ? setting->n : setting->m;
    make_vectors(&a, order, setting->k, setting, tau, seed);
    uint64_t same = random_bits(seed), again = same;
    dense_make(&c, setting->precision, setting->m, setting->n, 5, &same);
    dense_make(&expected, setting->precision, setting->m, setting->n, 5, &again);
    struct clb_ormqr problem = {.precision = setting->precision,
                                .right = setting->right,
                                .trans = CLB_OP_C,
                                .m = setting->m,
                                .n = setting->n,
                                .k = setting->k,
                                .a = dense_data(&a),
                                .lda = a.ld,
                                .tau = tau,
                                .c = dense_data(&expected),
                                .ldc = c.ld};
    dense_qr_next.ormqr(NULL, &problem);
    problem.c = dense_data(&c);
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_ormqr_run(runtime, variant, &problem, &progress);
    end(failure, status, what);
    for (size_t p = 0; p < clb_max(progress.parts, 1); p++) {
        const struct clb_rect all = {0, 0, setting->m, setting->n};
        const struct clb_rect *rect = progress.parts == 0 ? &all : &progress.part[p];
        if (progress.parts != 0 && progress.written[p]) {
            written++;
            continue;
        }
        expect_old(&c, rect, what);
        struct clb_ormqr part = clb_ormqr_part(&problem, rect);
        dense_qr_next.ormqr(NULL, &part);
    }
    expect(status != CLB_OK || written == progress.parts, "%s: parts are missing", what);
    count(written, progress.parts);
    clb_gemm_progress_free(&progress);
    /* Where parts are written while later ones are computed, clFinish comes too late. */
    if (failure->kind != FAKE_FINISH_REPORTS)
        expect_near(&c, &expected, what);
    expect(dense_intact(&a), "%s: A was written", what);
    dense_free(&a);
    dense_free(&c);
    dense_free(&expected);
    return status;
}

static clb_status generate(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct setting *setting, uint64_t *seed,
                           const struct fake_failure *failure)
{
    char what[80];
    struct dense a, expected;
    double tau[2 * 64];
    uint64_t again = *seed;
    make_vectors(&expected, setting->m, setting->n, setting, tau, &again);
    make_vectors(&a, setting->m, setting->n, setting, tau, seed);
    struct clb_orgqr problem = {setting->precision,    setting->m,  setting->n, setting->k,
                                dense_data(&expected), expected.ld, tau};
    dense_orgqr(&problem);
    problem.a = dense_data(&a);
    struct clb_orgqr_result result;
    fake_cl_begin(failure, what, sizeof what);
    clb_status status = clb_orgqr_run(runtime, variant, &problem, &result);
    end(failure, status, what);
    const struct clb_rect rest = {0, 0, setting->m, result.columns_left};
    expect(status != CLB_OK || result.columns_left == 0, "%s: columns are missing", what);
    expect_old(&a, &rest, what);
    count(setting->n - result.columns_left, setting->n);
    if (result.columns_left > 0) {
        const struct clb_orgqr missing = clb_orgqr_rest(&problem, &result);
        dense_orgqr(&missing);
    }
    expect_near(&a, &expected, what);
    dense_free(&a);
    dense_free(&expected);
    return status;
}

/* ---- every call ------------------------------------------------------------------------------ */

static run_function *function; /* of the test under way */

static void run_once(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                     const struct setting *setting, const struct fake_failure *failure)
{
    uint64_t seed = setting->seed; /* the same problem for every call, so that call n is the same */
    (void)!function(runtime, variant, setting, &seed, failure);
}

static void fail_every_call(void *argument)
{
    const struct setting *setting = argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = start(setting, &variant);
    bool streamed = setting->discrete || strstr(setting->params, "stream") != NULL;
    if (runtime == NULL)
        return;
    for (int i = 0; i < 3; i++)
        run_once(runtime, variant, setting, &none);
    long calls = shared->calls;
    shared->partly = shared->whole = 0;
    for (long at = 1; at <= calls; at++) {
        fake_cl.run_anyway = at % 3 == 0;
        const struct fake_failure failure = {at, FAKE_CALL_FAILS,
                                             codes[(size_t)at % CLB_COUNT_OF(codes)]};
        run_once(runtime, variant, setting, &failure);
    }
    fake_cl.run_anyway = false;
    run_once(runtime, variant, setting, &none);
    shared->calls = calls;
    expect(calls > 100, "only %ld calls", calls);
    expect(shared->whole > 0, "no failure left everything to the next library");
    expect(!(streamed || function == multiply) || shared->partly > 0,
           "nothing was finished in part");
}

/* A kernel that is not run: its event says so, or clFinish does. */
static void skip_every_kernel(void *argument)
{
    const struct setting *setting = argument;
    const struct clb_gemm_variant *variant;
    struct clb_runtime *runtime = start(setting, &variant);
    if (runtime == NULL)
        return;
    for (int i = 0; i < 2; i++)
        run_once(runtime, variant, setting, &none);
    long launches = shared->launches;
    expect(launches > 5, "only %ld kernels", launches);
    for (long at = 1; at <= launches; at++) {
        const struct fake_failure by_event = {at, FAKE_EVENT_REPORTS, 0};
        const struct fake_failure by_finish = {at, FAKE_FINISH_REPORTS, 0};
        run_once(runtime, variant, setting, &by_event);
        run_once(runtime, variant, setting, &by_finish);
    }
    run_once(runtime, variant, setting, &none);
    shared->launches = launches;
    expect(fake_cl.missed <= 6 + launches / 4, "%ld kernels were not launched", fake_cl.missed);
}

static void test(const struct setting *settings, size_t tests, run_function *run, uint64_t *seed)
{
    for (size_t i = 0; i < tests; i++) {
        struct setting setting = settings[i];
        setting.seed = random_bits(seed);
        *shared = (struct shared){0};
        function = run;
        tap_child(setting.name, 200, fail_every_call, &setting);
        tap_note("%ld calls, %ld failures before anything was written, %ld with a part written",
                 shared->calls, shared->whole, shared->partly);
        char name[120];
        snprintf(name, sizeof name, "%s: a kernel that is not run is noticed", setting.name);
        tap_child(name, 200, skip_every_kernel, &setting);
        tap_note("%ld kernels", shared->launches);
    }
}

int main(void)
{
    uint64_t seed = tap_seed();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    test(factorisations, CLB_COUNT_OF(factorisations), factor, &seed);
    test(products, CLB_COUNT_OF(products), multiply, &seed);
    test(generations, CLB_COUNT_OF(generations), generate, &seed);
    return tap_done();
}
