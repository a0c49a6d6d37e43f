/* LU in single precision, n = 2048, with the rungs of a teaching text, "OpenCL for High-Performance
 * Computing", as it reports them: RTX 4090, no pivoting. Ours pivots, and is timed from and to
 * ordinary memory. Errors are the largest entry of A - LU or PA - LU, for entries of A in
 * (-1, 1). */
#include "lu_ladder.h"

#include "bench.h"
#include "lapack_peer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N    ((size_t)2048)
#define REPS 15

static const struct rung {
    const char *name;
    double rate, error; /* MFLOP/s; 0: not reported */
} rungs[] = {
    {"sequential", 714.8, 0},
    {"naive kernels, two launches a column", 20991, 0},
    {"blocked hybrid, synchronous", 1339874, 0},
    {"blocked hybrid, pipelined", 3044024, 0.187},
};

static void print(const char *name, double rate, double error)
{
    char text[16] = "";
    if (error > 0)
        snprintf(text, sizeof text, "%.3g", error);
    printf("%-44s %12.1f %10s\n", name, rate, text);
}

/* L*U in double precision. */
static double *multiply_factors(void *openblas, const float *factors)
{
    typedef void trmm_function(const char *, const char *, const char *, const char *, const int *,
                               const int *, const double *, const double *, const int *, double *,
                               const int *, size_t, size_t, size_t, size_t);
    trmm_function *trmm = (trmm_function *)bench_symbol(openblas, "dtrmm_");
    double *lower = bench_memory(N * N * sizeof *lower),
           *product = bench_memory(N * N * sizeof *product);
    const double one = 1;
    const int n = (int)N;
    for (size_t j = 0; j < N; j++) {
        for (size_t i = 0; i < N; i++)
            (i > j ? lower : product)[i + j * N] = (double)factors[i + j * N];
    }
    trmm("L", "L", "N", "U", &n, &n, &one, lower, &n, product, &n, 1, 1, 1, 1);
    bench_release(lower, N * N * sizeof *lower);
    return product;
}

static double largest_error(void *openblas, const float *a, const float *factors,
                            const int64_t *ipiv)
{
    double *product = multiply_factors(openblas, factors), worst = 0;
    size_t row[N];
    for (size_t i = 0; i < N; i++)
        row[i] = i;
    for (size_t i = 0; i < N; i++) {
        size_t other = (size_t)ipiv[i] - 1, held = row[i];
        row[i] = row[other];
        row[other] = held;
    }
    for (size_t j = 0; j < N; j++) {
        for (size_t i = 0; i < N; i++) {
            double error = fabs((double)a[row[i] + j * N] - product[i + j * N]);
            worst = error <= worst ? worst : error;
        }
    }
    bench_release(product, N * N * sizeof *product);
    return worst;
}

bool lu_ladder(struct clb_runtime *runtime, void *openblas)
{
    size_t bytes = N * N * sizeof(float);
    float *a = bench_memory(bytes), *x = bench_memory(bytes);
    int64_t ipiv[N];
    double seconds[REPS];
    peer_getrf_function *getrf = peer_getrf(openblas, CLB_S);
    const struct clb_getrf problem = {CLB_S, N, N, x, N};
    const struct clb_host_blas next = {.context = &getrf, .getrf = peer_next_getrf};
    struct clb_getrf_result result = {.ipiv = ipiv};
    const struct clb_gemm_variant *variant;
    clb_status status = clb_gemm_variant_get(runtime, CLB_S, &variant);
    bench_fill(a, N * N, CLB_S, 1);
    for (int i = -2; i < REPS && status == CLB_OK; i++) { /* the first ones warm up */
        memcpy(x, a, bytes);
        double begin = bench_now();
        status = clb_getrf_run(runtime, variant, &problem, &next, &result);
        seconds[i < 0 ? 0 : i] = bench_now() - begin;
    }
    if (status != CLB_OK)
        bench_fail("getrf: %s", clb_status_name(status));
    double error = largest_error(openblas, a, x, ipiv);
    printf("%-44s %12s %10s\n", "single precision, n = 2048", "MFLOP/s", "error");
    for (size_t i = 0; i < CLB_COUNT_OF(rungs); i++)
        print(rungs[i].name, rungs[i].rate, rungs[i].error);
    print("clblas-shim, with pivoting, on this device",
          2.0 / 3 * (double)N * (double)N * (double)N / bench_median(seconds, REPS) * 1e-6, error);
    bench_release(a, bytes);
    bench_release(x, bytes);
    return error < 0.01;
}
