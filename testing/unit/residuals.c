/* SPDX-License-Identifier: BSD-3-Clause
 * Residuals of LU next to those of other libraries, on matrices that try it: |P*A - L*U| and
 * |A*X - B| are at most 1.25 times the reference's. OpenBLAS is better than both on triangles, and
 * is exceeded by no more than 2.
 *
 * usage: residuals [--sizes N,N,...] [--precisions s,d,c,z] [--kinds random,...] [--settings N,...]
 *                  [--peers reference,openblas,none] [--params KEY=VALUE,...] [--columns N]
 *                  [--threads N]
 *
 * Without options small matrices in small blocks, where the CPU is the device; otherwise those that
 * are asked for, with the parameters given and no others, on the device of CLBLAS_SHIM_DEVICE.
 * Settings: 1 in place, 2 streamed with panels by the CPU, 3 streamed with panels by the device, 4
 * streamed in blocks of columns. On a CPU device a panel's rows are one work-group, so that the
 * third needs --params getrf.group=1024 for matrices of up to 1000 rows. Residuals are in units of
 * n|A|u and n|A||X|u, in Frobenius norms, over as many matrices as have
 * --columns columns together. The peer is also the next library, which factors the CPU's panels.
 * Without one OpenBLAS does that, and residuals are to be at most 1, which is what very large
 * matrices are for: 17.3 GB and entries behind the 2^31st with
 *
 *   CLBLAS_SHIM_DEVICE=gpu residuals --sizes 46500 --precisions d --kinds random --settings 2
 *       --peers none --columns 1
 *
 * and in blocks of columns with CLBLAS_SHIM_MEMORY=8G as well. With --threads the residuals are
 * computed by that many. */
#include "engine/kernel/kernel.h"
#include "bench/beside.h"
#include "bench/lapack_peer.h"
#include "bench/residual.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *sizes, *precisions, *kinds, *settings, *peers, *params;
    size_t columns; /* of the matrices of a row of the table, together */
    const char *threads;
} options = {.sizes = "50,180",
             .precisions = "s,d,c,z",
             .peers = "reference",
             .columns = 1200,
             .params = "getrf.nb=48,trsm.nb=16"};

static const struct setting {
    const char *name, *params;
    size_t largest; /* on CPUs; 0: any */
} settings[] = {
    {"in place", "gemm.stream=0,getrf.panel=1", 0},
    {"streamed", "gemm.stream=1,getrf.panel=1", 0},
    {"panels by the device", "gemm.stream=1,getrf.panel=2", 1000},
    {"blocks of columns", "gemm.stream=1,getrf.block=100", 0},
};

enum peer { REFERENCE, OPENBLAS, NONE, PEERS };
static const char *const peer_names[PEERS] = {"reference", "openblas", "none"};
static const double most_ratio[PEERS] = {1.25, 2, 1};

struct test {
    const struct setting *setting;
    enum peer peer;
    uint64_t seed;
    void *library;
    struct clb_runtime *runtime;
    size_t blocks; /* of the last factorisation */
};

/* ---- one matrix ---- */

struct system {
    struct residual_matrix matrix;
    void *a, *b, *x; /* factors, right-hand sides, solution */
    int64_t *ipiv;
};

struct residuals {
    double factors, solution;
};

static struct residuals measure(const struct system *s)
{
    return (struct residuals){residual_of_factors(&s->matrix, s->a, s->ipiv, s->matrix.seed),
                              residual_of_solution(&s->matrix, s->x, s->b)};
}

static void restore(const struct system *s)
{
    size_t bytes = s->matrix.n * clb_precision_size((clb_precision)s->matrix.precision);
    residual_fill(&s->matrix, s->a);
    memcpy(s->x, s->b, RESIDUAL_LANES * bytes);
}

static struct clb_call call_of(clb_kind kind, clb_precision precision, size_t n, void *a,
                               int64_t *ipiv)
{
    struct clb_call call = clb_call_of(clb_routine_of(kind, precision, false));
    call.m = call.n = call.lda = n;
    call.a = a;
    call.ipiv = ipiv;
    call.wide = true;
    return call;
}

static struct residuals by_peer(const struct test *test, const struct system *s)
{
    clb_precision precision = (clb_precision)s->matrix.precision;
    const int n = (int)s->matrix.n, rhs = RESIDUAL_LANES;
    peer_getrf_function *getrf = peer_getrf(test->library, precision);
    if (test->peer == NONE)
        return (struct residuals){1, 1};
    int *narrow = calloc(s->matrix.n, sizeof *narrow), info;
    restore(s);
    const struct clb_host_blas next = {.context = &getrf};
    const struct clb_call call = call_of(CLB_KIND_getrf, precision, s->matrix.n, s->a, s->ipiv);
    peer_next_getrf(&next, &call);
    for (size_t i = 0; i < s->matrix.n; i++)
        narrow[i] = (int)s->ipiv[i];
    peer_getrs(test->library, precision)("N", &n, &rhs, s->a, &n, narrow, s->x, &n, &info, 1);
    free(narrow);
    return measure(s);
}

static struct residuals by_shim(struct test *test, const struct system *s)
{
    clb_precision precision = (clb_precision)s->matrix.precision;
    peer_getrf_function *getrf = peer_getrf(test->library, precision);
    size_t n = s->matrix.n;
    struct clb_call call = call_of(CLB_KIND_gesv, precision, n, s->a, s->ipiv);
    call.nrhs = RESIDUAL_LANES;
    call.b = s->x;
    call.ldb = n;
    const struct clb_host_blas next = {.context = &getrf,
                                       .of = {[CLB_KIND_getrf] = peer_next_getrf}};
    struct clb_factors result = {.ipiv = s->ipiv};
    struct clb_gemm_progress progress = {0};
    const struct clb_gemm_variant *variant;
    restore(s);
    clb_status status = clb_gemm_variant_get(test->runtime, precision, &variant);
    if (status == CLB_OK)
        status = clb_gesv_run(test->runtime, variant, &call, &next, &result, &progress);
    clb_gemm_progress_free(&progress);
    test->blocks = result.blocks;
    if (!expect(status == CLB_OK, "%s", clb_status_name(status)))
        return (struct residuals){INFINITY, INFINITY};
    return measure(s);
}

/* ---- a row of the table ---- */

static void open_system(struct system *s)
{
    size_t n = s->matrix.n, element = clb_precision_size((clb_precision)s->matrix.precision);
    s->a = bench_memory(n * n * element);
    s->b = calloc(n * RESIDUAL_LANES, element);
    s->x = calloc(n * RESIDUAL_LANES, element);
    s->ipiv = calloc(n, sizeof *s->ipiv);
    if (s->b == NULL || s->x == NULL || s->ipiv == NULL)
        bench_fail("no memory");
}

static void close_system(struct system *s)
{
    size_t n = s->matrix.n, element = clb_precision_size((clb_precision)s->matrix.precision);
    bench_release(s->a, n * n * element);
    free(s->b);
    free(s->x);
    free(s->ipiv);
}

static double ratio(double shim, double peer)
{
    return peer > 0 ? shim / peer : shim > 0 ? INFINITY : 1;
}

/* Residuals of solutions of matrices that grow or are graded hang on a few roundings, so that
 * chance moves the ratio: by about this share of it. */
static double chance(size_t runs)
{
    return 2 / sqrt((double)(runs * RESIDUAL_LANES));
}

static void judge(const struct test *test, const char *what, double shim, double peer, double more)
{
    expect(ratio(shim, peer) <= most_ratio[test->peer] * (1 + more), "%s: %.4g, the peer's is %.4g",
           what, shim, peer);
}

/* The root of the mean square over some matrices. */
static void compare(struct test *test, clb_precision precision, enum residual_kind kind, size_t n,
                    uint64_t *seed)
{
    size_t runs = clb_max(1, options.columns / n);
    struct system s = {.matrix = {kind, (int)precision, n, 0}};
    struct residuals shim = {0}, peer = {0};
    open_system(&s);
    for (size_t run = 0; run < runs; run++) {
        s.matrix.seed = random_bits(seed);
        uint64_t of_b = random_bits(seed);
        bench_fill(s.b, n * RESIDUAL_LANES, (int)precision, of_b);
        struct residuals theirs = by_peer(test, &s), ours = by_shim(test, &s);
        shim.factors = hypot(shim.factors, ours.factors);
        shim.solution = hypot(shim.solution, ours.solution);
        peer.factors = hypot(peer.factors, theirs.factors);
        peer.solution = hypot(peer.solution, theirs.solution);
    }
    close_system(&s);
    double root = sqrt((double)runs);
    char what[64];
    snprintf(what, sizeof what, "%c %-8s %6zu", BENCH_PRECISIONS[precision], residual_kinds[kind],
             n);
    tap_note("%s  %9.3g %9.3g %6.3f  %9.3g %9.3g %6.3f  %zu", what, shim.factors / root,
             peer.factors / root, ratio(shim.factors, peer.factors), shim.solution / root,
             peer.solution / root, ratio(shim.solution, peer.solution), test->blocks);
    judge(test, what, shim.factors, peer.factors, 0);
    judge(test, what, shim.solution, peer.solution, chance(runs));
}

/* ---- a setting and a peer, in a process of its own ---- */

static bool start(struct test *test)
{
    char params[256];
    clb_runtime_state state;
    snprintf(params, sizeof params, "%s%s%s", test->setting->params,
             options.params[0] != '\0' ? "," : "", options.params);
    setenv("CLBLAS_SHIM_PARAMS", params, 1);
    if (bench_has_avx512())
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    if (test->peer == REFERENCE)
        bench_open(bench_reference()); /* the BLAS that its LAPACK asks for by name */
    test->library =
        bench_open(test->peer == REFERENCE ? bench_reference_lapack() : bench_openblas());
    test->runtime = clb_runtime_get(&state);
    return expect(test->runtime != NULL, "no device");
}

static void run(void *argument)
{
    struct test *test = argument;
    if (!start(test))
        return;
    bool cpu = (test->runtime->device.type & CL_DEVICE_TYPE_CPU) != 0;
    int n;
    size_t most = cpu && test->setting->largest != 0 ? test->setting->largest : SIZE_MAX;
    tap_note("%-17s  %9s %9s %6s  %9s %9s %6s  blocks", test->setting->name, "LU",
             peer_names[test->peer], "ratio", "AX-B", peer_names[test->peer], "ratio");
    for (int p = 0; p < CLB_PRECISIONS; p++) {
        const char letter[2] = {BENCH_PRECISIONS[p], '\0'};
        for (int kind = 0; kind < RESIDUAL_KINDS; kind++) {
            if (!bench_is_listed(options.precisions, letter) ||
                !bench_is_listed(options.kinds, residual_kinds[kind]))
                continue;
            for (const char *at = options.sizes; bench_next_number(&at, &n);) {
                if ((size_t)n <= most)
                    compare(test, (clb_precision)p, (enum residual_kind)kind, (size_t)n,
                            &test->seed);
            }
        }
    }
}

static bool is_installed(enum peer peer)
{
    return peer == REFERENCE ? bench_reference() != NULL && bench_reference_lapack() != NULL
                             : bench_openblas() != NULL;
}

/* ---- a sum that is not made ---- */

/* An entry that an update by one panel makes b - 1*b - 1*1 of, where b + 1 is rounded to b: -1 when
 * the products are subtracted one after the other, 0 when their sum is. */
enum { ORDER = 40, SECOND = 16 };

static void put_real(clb_precision precision, void *a, size_t i, size_t j, double value)
{
    const size_t at = (i + j * ORDER) * (size_t)bench_parts((int)precision);
    if (clb_precision_real_size(precision) == sizeof(float))
        ((float *)a)[at] = (float)value;
    else
        ((double *)a)[at] = value;
}

static double get_real(clb_precision precision, const void *a, size_t i, size_t j)
{
    const size_t at = (i + j * ORDER) * (size_t)bench_parts((int)precision);
    return clb_precision_real_size(precision) == sizeof(float) ? ((const float *)a)[at]
                                                               : ((const double *)a)[at];
}

static void make_order(clb_precision precision, void *a)
{
    const double large = clb_precision_real_size(precision) == sizeof(float) ? 0x1p24 : 0x1p53;
    for (size_t i = 0; i < SECOND; i++)
        put_real(precision, a, i, i, 1);
    for (size_t j = 0; j < 2; j++) {
        for (size_t i = SECOND; i < ORDER; i++)
            put_real(precision, a, i, j, 1);
    }
    for (size_t j = SECOND; j < ORDER; j++) {
        put_real(precision, a, 0, j, large);
        put_real(precision, a, 1, j, 1);
        for (size_t i = SECOND; i < ORDER; i++)
            put_real(precision, a, i, j, large);
    }
}

static void subtract_in_order(struct test *test, clb_precision precision)
{
    int64_t ipiv[ORDER];
    void *a = calloc((size_t)ORDER * ORDER, clb_precision_size(precision));
    peer_getrf_function *getrf = peer_getrf(test->library, precision);
    const struct clb_call problem = call_of(CLB_KIND_getrf, precision, ORDER, a, ipiv);
    const struct clb_host_blas next = {.context = &getrf,
                                       .of = {[CLB_KIND_getrf] = peer_next_getrf}};
    struct clb_factors result = {.ipiv = ipiv};
    const struct clb_gemm_variant *variant;
    clb_status status = clb_gemm_variant_get(test->runtime, precision, &variant);
    make_order(precision, a);
    if (status == CLB_OK)
        status = clb_getrf_run(test->runtime, variant, &problem, &next, &result);
    expect(status == CLB_OK, "%s", clb_status_name(status));
    expect(get_real(precision, a, SECOND, SECOND) == -1, "%c: %g", BENCH_PRECISIONS[precision],
           get_real(precision, a, SECOND, SECOND));
    free(a);
}

static void run_in_order(void *argument)
{
    struct test *test = argument;
    if (!start(test))
        return;
    const char *family = getenv("CLBLAS_SHIM_KERNEL");
    bool doubles = family != NULL && strcmp(family, "nv-dmma") == 0; /* it has no others */
    for (int p = 0; p < CLB_PRECISIONS; p++) {
        if (!doubles || clb_precision_real_size((clb_precision)p) == sizeof(double))
            subtract_in_order(test, (clb_precision)p);
    }
}

/* In the settings of this file, by the other families, and by LU's inner blocks of columns. */
static void test_order(void)
{
    static const struct setting order[] = {
        {"in place", "gemm.stream=0,getrf.panel=1", 0},
        {"streamed", "gemm.stream=1,getrf.panel=1", 0},
        {"panels by the device", "gemm.stream=1,getrf.panel=2", 0},
        {"minimal tiles", "gemm.tile=min,gemm.stream=0,getrf.panel=1", 0},
        {"portable", "gemm.tile=min,getrf.panel=1", 0},
        {"nv-dmma", "gemm.tile=min,gemm.emulate=1,getrf.panel=1", 0},
    };
    options.params = "getrf.nb=16,trsm.nb=16";
    for (size_t i = 0; i < CLB_COUNT_OF(order); i++) {
        char name[64];
        struct test test = {.setting = &order[i], .peer = REFERENCE};
        unsetenv("CLBLAS_SHIM_KERNEL");
        if (i >= 4)
            setenv("CLBLAS_SHIM_KERNEL", order[i].name, 1);
        snprintf(name, sizeof name, "products are subtracted in order, %s", order[i].name);
        if (is_installed(REFERENCE))
            tap_child(name, 120, run_in_order, &test);
        else
            tap_skip("not installed", "%s", name);
    }
}

static void parse(int count, char **arguments)
{
    if (count > 1) {
        options.params = "";
        options.peers = "reference,openblas";
    }
    const struct bench_option table[] = {
        {"--sizes", BENCH_TEXT, &options.sizes},
        {"--precisions", BENCH_TEXT, &options.precisions},
        {"--kinds", BENCH_TEXT, &options.kinds},
        {"--settings", BENCH_TEXT, &options.settings},
        {"--peers", BENCH_TEXT, &options.peers},
        {"--columns", BENCH_COUNT, &options.columns},
        {"--threads", BENCH_TEXT, &options.threads},
        {"--params", BENCH_TEXT, &options.params},
    };
    bench_parse(NULL, table, CLB_COUNT_OF(table), "residuals.c", arguments);
    if (options.threads != NULL && atoi(options.threads) > 1)
        residual_threads = (int)clb_min((size_t)atoi(options.threads), RESIDUAL_MOST_THREADS);
}

int main(int count, char **arguments)
{
    uint64_t seed = tap_seed();
    parse(count, arguments);
    for (size_t i = 0; i < CLB_COUNT_OF(settings); i++) {
        char number[8], name[64];
        snprintf(number, sizeof number, "%zu", i + 1);
        for (int peer = 0; peer < PEERS; peer++) {
            struct test test = {.setting = &settings[i], .peer = (enum peer)peer};
            test.seed = random_bits(&seed);
            if (!bench_is_listed(options.settings, number) ||
                !bench_is_listed(options.peers, peer_names[peer]))
                continue;
            if (count == 1 && !tap_full() && peer != (int)(i % PEERS)) /* peers in turns */
                continue;
            snprintf(name, sizeof name, "%s, next to %s", settings[i].name, peer_names[peer]);
            if (is_installed((enum peer)peer))
                tap_child(name, count > 1 ? 3600 : 300, run, &test);
            else
                tap_skip("not installed", "%s", name);
        }
    }
    if (count == 1)
        test_order();
    return tap_done();
}
