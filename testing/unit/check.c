/* SPDX-License-Identifier: BSD-3-Clause
 * Self-checks of kernels: sizes at which they miscalculate, launches that a device refuses, and
 * small devices, by an OpenCL that loses or refuses launches. */
#include "engine/kernel/kernel.h"
#include "dense.h"
#include "dense_qr.h"
#include "fakecl.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[64];

/* ---- what is computed ---- */

static clb_status multiply(struct clb_runtime *runtime, clb_precision precision, size_t n,
                           uint64_t *seed)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, precision);
    struct dense a, b, c;
    struct clb_gemm_progress progress;
    if (variant == NULL)
        return CLB_ERR_UNSUPPORTED;
    dense_make(&a, precision, n, n, 5, seed);
    dense_make(&b, precision, n, n, 5, seed);
    dense_make(&c, precision, n, n, 5, seed);
    const struct clb_gemm problem = {
        .precision = precision,
        .m = n,
        .n = n,
        .k = n,
        .terms = 1,
        .a = {{.data = dense_data(&a), .ld = a.ld}},
        .b = {{.data = dense_data(&b), .ld = b.ld}},
        .alpha = {clb_scalar_get(precision, true, clb_scalar_of(precision, 1))},
        .c = dense_data(&c),
        .ldc = c.ld};
    clb_status status = clb_gemm_run(runtime, variant, &problem, &progress);
    for (size_t e = 0; e < n * n && status == CLB_OK; e++) {
        number sum = dense_get(&c, e % n, e / n);
        long double size = 0;
        for (size_t p = 0; p < n; p++) {
            number term = dense_times(dense_get(&a, e % n, p), dense_get(&b, p, e / n));
            sum -= term;
            size += dense_abs(term);
        }
        expect(dense_abs(sum) <= 3 * ((long double)n + 4) * dense_unit(precision) * size,
               "%c product of order %zu: off by %Lg", "sdcz"[precision], n, dense_abs(sum));
    }
    clb_gemm_progress_free(&progress);
    dense_free(&a);
    dense_free(&b);
    dense_free(&c);
    return status;
}

/* L*X = B; *parts is what the run had begun. */
static clb_status solve(struct clb_runtime *runtime, clb_precision precision, size_t n, size_t rhs,
                        uint64_t *seed, size_t *parts)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, precision);
    struct dense a, b;
    struct clb_gemm_progress progress;
    if (variant == NULL)
        return CLB_ERR_UNSUPPORTED;
    dense_make(&a, precision, n, n, 5, seed);
    dense_make(&b, precision, n, rhs, 5, seed);
    for (size_t i = 0; i < n; i++)
        dense_set(&a, i, i, dense_get(&a, i, i) + n);
    struct clb_call problem = dense_call(CLB_KIND_trsm, n, rhs, &a);
    problem.alpha = clb_scalar_of(precision, 1);
    problem.b = dense_data(&b);
    problem.ldb = b.ld;
    clb_status status = clb_trsm_run(runtime, variant, &problem, &progress);
    *parts = progress.parts;
    for (size_t e = 0; e < n * rhs && status == CLB_OK; e++) {
        size_t i = e % n, j = e / n;
        number sum = dense_old(&b, i, j);
        long double size = dense_abs(sum);
        for (size_t p = 0; p <= i; p++) {
            number term = dense_times(dense_get(&a, i, p), dense_get(&b, p, j));
            sum -= term;
            size += dense_abs(term);
        }
        expect(dense_abs(sum) <= 3 * ((long double)n + 4) * dense_unit(precision) * size,
               "%c system of order %zu: off by %Lg", "sdcz"[precision], n, dense_abs(sum));
    }
    clb_gemm_progress_free(&progress);
    dense_free(&a);
    dense_free(&b);
    return status;
}

static clb_status factor_definite(struct clb_runtime *runtime, clb_precision precision, size_t n,
                                  uint64_t *seed)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, precision);
    struct clb_factors result = {0};
    struct dense a;
    bool upper = random_below(seed, 2);
    if (variant == NULL)
        return CLB_ERR_UNSUPPORTED;
    dense_make_definite(&a, precision, n, 9, upper, 0, seed);
    struct clb_call problem = dense_call(CLB_KIND_potrf, n, n, &a);
    problem.upper = upper;
    clb_status status = clb_potrf_run(runtime, variant, &problem, &dense_next, &result);
    if (status == CLB_OK) {
        long double error = dense_cholesky_error(&a, upper, n);
        expect(result.info == 0, "%c n=%zu: info = %zu", "sdcz"[precision], n, result.info);
        expect(error <= 3, "%c n=%zu: backward error %.3Lg", "sdcz"[precision], n, error);
    }
    dense_free(&a);
    return status;
}

/* LU or QR. */
static clb_status factor_general(struct clb_runtime *runtime, clb_kind kind,
                                 clb_precision precision, size_t n, uint64_t *seed)
{
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, precision);
    const bool qr = kind == CLB_KIND_geqrf;
    struct dense a;
    if (variant == NULL)
        return CLB_ERR_UNSUPPORTED;
    void *vector = calloc(n, qr ? clb_precision_size(precision) : sizeof(int64_t));
    struct clb_factors result = {.ipiv = qr ? NULL : vector, .tau = qr ? vector : NULL};
    struct clb_host_blas next = qr ? dense_qr_next : dense_next;
    dense_make(&a, precision, n, n, 9, seed);
    const struct clb_call problem = dense_call(kind, n, n, &a);
    clb_factor_run *const run = qr ? clb_geqrf_run : clb_getrf_run;
    clb_status status = run(runtime, variant, &problem, &next, &result);
    if (status == CLB_OK)
        expect((qr ? dense_qr_error(&a, vector) : dense_lu_error(&a, vector)) <= 3,
               "%c %s of order %zu", "sdcz"[precision], qr ? "QR" : "LU", n);
    dense_free(&a);
    free(vector);
    return status;
}

/* Cholesky of every order, by the device's kernel. */
static void every_order(struct clb_runtime *runtime)
{
    uint64_t seed = 12;
    for (size_t n = 1; runtime != NULL && n <= 40; n++) {
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            clb_status status = factor_definite(runtime, (clb_precision)p, n, &seed);
            expect(status == CLB_OK, "n=%zu: %s", n, clb_status_name(status));
        }
    }
}

/* ---- sizes ---- */

#define BLOCKS "gemm.tile=min,potrf.block=2"

static void use_cache(const char *name)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    setenv("CLBLAS_SHIM_CACHE_DIR", path, 1);
}

static void cholesky(void *unused)
{
    (void)unused;
    every_order(fake_cl_start("cpu", BLOCKS, false));
}

/* A kernel that does nothing below an order is wrong there and right elsewhere. */
static cl_int lose_small(const char *kernel, const cl_ulong *argument)
{
    bool small = (strcmp(kernel, "clb_potrf_block") == 0 && argument[4] < 8) ||
                 (strcmp(kernel, "clb_trsm_solve") == 0 && argument[2] < 4) ||
                 (strcmp(kernel, "clb_laswp") == 0 && argument[8] < 4);
    return small ? FAKE_LOST : CL_SUCCESS;
}

static void small_blocks_lost(void *cache)
{
    use_cache(cache);
    fake_cl.launch = lose_small;
    struct clb_runtime *runtime = fake_cl_start("cpu", BLOCKS, false);
    uint64_t seed = 13;
    size_t parts;
    for (size_t n = 1; runtime != NULL && n <= 40; n++) { /* right, or declined */
        (void)factor_definite(runtime, CLB_D, n, &seed);
        (void)solve(runtime, CLB_D, n, 3, &seed, &parts);
        (void)factor_general(runtime, CLB_KIND_getrf, CLB_D, n, &seed);
    }
    expect(runtime != NULL && multiply(runtime, CLB_D, 20, &seed) == CLB_OK, "no product");
}

static long launches;

static cl_int count_launches(const char *kernel, const cl_ulong *argument)
{
    (void)argument;
    launches += strcmp(kernel, "clb_potrf_block") == 0;
    return CL_SUCCESS;
}

/* Reports by its exit status whether blocks were checked at one size or at all. */
static void count_checks(void *cache)
{
    uint64_t seed = 14;
    use_cache(cache);
    fake_cl.launch = count_launches;
    struct clb_runtime *runtime = fake_cl_start("cpu", BLOCKS, false);
    expect(runtime != NULL && factor_definite(runtime, CLB_D, 8, &seed) == CLB_OK, "not computed");
    expect(launches < 10, "%ld launches", launches);
}

static void test_records(void)
{
    char text[2000];
    static char cache[] = "records", failing[] = "failing";
    bool first = run_child(300, count_checks, cache, text, sizeof text) == 0;
    bool second = run_child(300, count_checks, cache, text, sizeof text) == 0;
    bool third = run_child(300, count_checks, cache, text, sizeof text) == 0;
    tap_ok(!first && second && third, "all sizes once, a small one in later processes");
    tap_child("a self-check that passes at some sizes only is caught", 300, small_blocks_lost,
              failing);
    tap_child("by every process", 300, small_blocks_lost, failing);
    bool again = run_child(300, count_checks, failing, text, sizeof text) == 0;
    tap_ok(!again, "a check that fails is not recorded");
}

/* ---- refused launches ---- */

static cl_int refusal;

static cl_int refuse_solve(const char *kernel, const cl_ulong *argument)
{
    (void)argument;
    return strcmp(kernel, "clb_trsm_solve") == 0 ? refusal : CL_SUCCESS;
}

/* Declined without a call of the driver once it is known. */
static void refused(void *status)
{
    uint64_t seed = 15;
    size_t parts = 0;
    refusal = *(const cl_int *)status;
    fake_cl.launch = refuse_solve;
    struct clb_runtime *runtime = fake_cl_start("cpu", "gemm.tile=min", false);
    for (int i = 0; runtime != NULL && i < 5; i++) {
        long before = fake_cl.calls;
        clb_status solved = solve(runtime, CLB_S, 30, 7, &seed, &parts);
        expect(solved == CLB_ERR_UNSUPPORTED && parts == 0, "%s, %zu parts",
               clb_status_name(solved), parts);
        expect(i == 0 || fake_cl.calls == before, "%ld calls of the driver",
               fake_cl.calls - before);
        expect(multiply(runtime, CLB_S, 30, &seed) == CLB_OK, "no product");
    }
}

/* ---- small devices ---- */

struct small {
    const char *name;
    size_t max_group;
    cl_ulong local_memory;
    clb_precision precision;
    const char *kernel;
};

static void everything(void *argument)
{
    const struct small *small = argument;
    uint64_t seed = 16;
    size_t parts;
    fake_cl.max_group = small->max_group;
    fake_cl.local_memory = small->local_memory;
    struct clb_runtime *runtime =
        fake_cl_start("portable", "gemm.threads=1,potrf.nb=32,getrf.nb=32", true);
    const struct clb_gemm_variant *variant = fake_cl_variant(runtime, small->precision);
    if (variant == NULL)
        return;
    expect(strcmp(variant->name, small->kernel) == 0, "%s", variant->name);
    expect(multiply(runtime, small->precision, 70, &seed) == CLB_OK, "no product");
    expect(solve(runtime, small->precision, 70, 37, &seed, &parts) == CLB_OK, "no system");
    expect(factor_definite(runtime, small->precision, 70, &seed) == CLB_OK, "no Cholesky");
    expect(factor_general(runtime, CLB_KIND_getrf, small->precision, 70, &seed) == CLB_OK, "no LU");
    expect(factor_general(runtime, CLB_KIND_geqrf, small->precision, 70, &seed) == CLB_OK, "no QR");
}

/* Too small for anything: declined. */
static void nothing(void *unused)
{
    const struct clb_gemm_variant *variant;
    (void)unused;
    fake_cl.max_group = 16;
    struct clb_runtime *runtime = fake_cl_start("portable", "", true);
    expect(runtime != NULL && clb_gemm_variant_get(runtime, CLB_S, &variant) == CLB_ERR_UNSUPPORTED,
           "kernels with groups of 16");
}

int main(void)
{
    static const struct small devices[] = {
        {"groups of 64", 64, 0, CLB_D, "gemm-portable-32x32"},
        {"groups of 64, complex", 64, 0, CLB_C, "gemm-portable-32x32"},
        {"groups of 128", 128, 0, CLB_S, "gemm-portable-32x32"},
        {"16 KiB of local memory cost nothing", 0, 16 << 10, CLB_D, "gemm-portable-32x32"},
        {"16 KiB of local memory cost nothing, single", 0, 16 << 10, CLB_S, "gemm-portable-64x64"},
        {"16 KiB and groups of 64, double complex", 64, 16 << 10, CLB_Z, "gemm-portable-32x32"},
    };
    static cl_int refusals[] = {CL_OUT_OF_RESOURCES, CL_INVALID_WORK_GROUP_SIZE,
                                CL_INVALID_WORK_ITEM_SIZE};
    tap_note("seed 12 to 16");
    snprintf(directory, sizeof directory, "/tmp/clb-checks-%ld", (long)getpid());
    tap_child("Cholesky of one to forty columns", 300, cholesky, NULL);
    test_records();
    for (size_t i = 0; i < CLB_COUNT_OF(refusals); i++) {
        char name[100];
        snprintf(name, sizeof name, "%s costs trsm, not products", clb_cl_error_name(refusals[i]));
        tap_child(name, 300, refused, &refusals[i]);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(devices); i++)
        tap_child(devices[i].name, 600, everything, (void *)(uintptr_t)&devices[i]);
    tap_child("groups of 16 are declined", 60, nothing, NULL);
    char command[120];
    snprintf(command, sizeof command, "rm -r %s", directory);
    tap_ok(system(command) == 0, "caches are removed");
    return tap_done();
}
