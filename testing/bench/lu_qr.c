/* QR for bench-lu. Results are checked with a random vector v, and Q applied by OpenBLAS: |A*v -
 * Q*(R*v)|, |C*v - Q*(X*v)| for X = Q^H*C, and |Q^H*(X*v) - v| for X = Q, each by the norm of the
 * first and n*u. */
#include "lu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef void geqrf_function(const int *, const int *, void *, const int *, void *, void *,
                            const int *, int *);
typedef void geqrt_function(const int *, const int *, const int *, void *, const int *, void *,
                            const int *, void *, int *);
typedef void ormqr_function(const char *, const char *, const int *, const int *, const int *,
                            const void *, const int *, const void *, void *, const int *, void *,
                            const int *, int *, size_t, size_t);
typedef void orgqr_function(const int *, const int *, const int *, void *, const int *,
                            const void *, void *, const int *, int *);

static bool is_real(const struct problem *p)
{
    return bench_parts((int)p->precision) == 1;
}

static size_t element_of(const struct problem *p)
{
    return clb_precision_size(p->precision);
}

/* A workspace for OpenBLAS's blocks of 32, with room for their T. */
static int make_work(const struct problem *p, size_t columns, void **work)
{
    size_t size = 64 * columns + 64 * 64;
    *work = calloc(size, element_of(p));
    if (*work == NULL)
        bench_fail("no memory");
    return (int)size;
}

/* ---- the shim -------------------------------------------------------------------------------- */

static bool panel(const struct clb_host_blas *host, const struct clb_geqrf *problem, void *tau)
{
    const struct problem *p = host->context;
    const int rows = (int)problem->m, cols = (int)problem->n, ld = (int)problem->lda,
              block = cols < 32 ? cols : 32;
    size_t element = element_of(p);
    int info;
    void *t, *work;
    make_work(p, problem->n, &t);
    make_work(p, problem->n, &work);
    set_panel_threads(true);
    ((geqrt_function *)function_of(p->precision, "geqrt"))(&rows, &cols, &block, problem->a, &ld, t,
                                                           &block, work, &info);
    set_panel_threads(false);
    for (int i = 0; i < cols && i < rows; i++)
        memcpy((char *)tau + (size_t)i * element,
               (char *)t + (size_t)(i * block + i % block) * element, element);
    free(t);
    free(work);
    return true;
}

clb_status qr_shim(const struct problem *p, struct clb_runtime *runtime,
                   const struct clb_gemm_variant *variant, void *x)
{
    if (p->routine == GEQRF) {
        const struct clb_geqrf problem = {p->precision, p->n, p->rhs, x, p->n, false};
        const struct clb_host_blas next = {.context = p, .geqrt = panel};
        struct clb_geqrf_result result = {.tau = p->tau[0]};
        return clb_geqrf_run(runtime, variant, &problem, &next, &result);
    }
    if (p->routine == ORGQR) {
        const struct clb_orgqr problem = {p->precision, p->n,      p->rhs, p->rhs, x,
                                          p->n,         p->tau[0], false};
        struct clb_orgqr_result result;
        return clb_orgqr_run(runtime, variant, &problem, &result);
    }
    const struct clb_ormqr problem = {.precision = p->precision,
                                      .trans = CLB_OP_C,
                                      .m = p->n,
                                      .n = p->rhs,
                                      .k = p->n,
                                      .a = p->a,
                                      .lda = p->n,
                                      .tau = p->tau[0],
                                      .c = x,
                                      .ldc = p->n};
    struct clb_gemm_progress progress;
    clb_status status = clb_ormqr_run(runtime, variant, &problem, &progress);
    clb_gemm_progress_free(&progress);
    return status;
}

/* ---- OpenBLAS -------------------------------------------------------------------------------- */

static void geqrf(const struct problem *p, size_t columns, void *x, void *tau)
{
    const int n = (int)p->n, cols = (int)columns;
    void *work;
    const int size = make_work(p, columns, &work);
    int info;
    ((geqrf_function *)function_of(p->precision, "geqrf"))(&n, &cols, x, &n, tau, work, &size,
                                                           &info);
    free(work);
}

static void ormqr(const struct problem *p, bool conjugated, const void *vectors, const void *tau,
                  size_t count, void *x, size_t columns)
{
    const int n = (int)p->n, cols = (int)columns, k = (int)count;
    const char *trans = !conjugated ? "N" : is_real(p) ? "T" : "C";
    void *work;
    const int size = make_work(p, columns, &work);
    int info;
    ((ormqr_function *)function_of(p->precision, is_real(p) ? "ormqr" : "unmqr"))(
        "L", trans, &n, &cols, &k, vectors, &n, tau, x, &n, work, &size, &info, 1, 1);
    free(work);
}

void qr_openblas(const struct problem *p, void *x)
{
    const int n = (int)p->n, cols = (int)p->rhs;
    void *work;
    const int size = make_work(p, p->rhs, &work);
    int info;
    if (p->routine == GEQRF)
        geqrf(p, p->rhs, x, p->tau[1]);
    else if (p->routine == ORMQR)
        ormqr(p, true, p->a, p->tau[1], p->n, x, p->rhs);
    else
        ((orgqr_function *)function_of(p->precision, is_real(p) ? "orgqr" : "ungqr"))(
            &n, &cols, &cols, x, &n, p->tau[1], work, &size, &info);
    free(work);
}

void qr_make(struct problem *p)
{
    if (p->routine == GEQRF)
        return;
    geqrf(p, p->routine == ORMQR ? p->n : p->rhs, p->a, p->tau[0]);
    memcpy(p->tau[1], p->tau[0], p->n * element_of(p));
}

/* ---- is it right? ---------------------------------------------------------------------------- */

static double get(const struct problem *p, const void *x, size_t at)
{
    bool single = bench_real_size((int)p->precision) == sizeof(float);
    return single ? (double)((const float *)x)[at] : ((const double *)x)[at];
}

static void put(const struct problem *p, void *x, size_t at, double value)
{
    if (bench_real_size((int)p->precision) == sizeof(float))
        ((float *)x)[at] = (float)value;
    else
        ((double *)x)[at] = value;
}

/* y = M*v for the first `cols` columns of a matrix, or its upper triangle; v is real. The sum of
 * the sizes of what is added is at most *scale. */
static void apply(const struct problem *p, const void *x, size_t cols, bool upper, const double *v,
                  void *y, double *scale)
{
    size_t parts = (size_t)bench_parts((int)p->precision), rows = p->n * parts;
    double *sum = calloc(2 * rows, sizeof *sum);
    if (sum == NULL)
        bench_fail("no memory");
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < (upper ? (j + 1) * parts : rows) && i < rows; i++) {
            double e = get(p, x, i + j * rows) * v[j];
            sum[i] += e;
            sum[rows + i] += fabs(e);
        }
    }
    for (size_t i = 0; i < rows; i++) {
        put(p, y, i, sum[i]);
        *scale = fmax(*scale, sum[rows + i]);
    }
    free(sum);
}

double qr_error(const struct problem *p, int library)
{
    size_t parts = (size_t)bench_parts((int)p->precision);
    bool single = bench_real_size((int)p->precision) == sizeof(float);
    double *v = calloc(p->n + p->rhs, sizeof *v), scale = 1, worst = 0, unused = 0;
    void *memory = calloc(2 * p->n, element_of(p)), *x = p->x[library], *tau = p->tau[library];
    void *other = (char *)memory + p->n * element_of(p);
    uint64_t state = 7;
    if (v == NULL || memory == NULL)
        bench_fail("no memory");
    for (size_t i = 0; i < p->rhs; i++)
        v[i] = bench_random(&state);
    apply(p, x, p->rhs, p->routine == GEQRF, v, memory, &unused);
    if (p->routine == GEQRF) {
        ormqr(p, false, x, tau, p->rhs, memory, 1);
        apply(p, p->a, p->rhs, false, v, other, &scale);
    } else if (p->routine == ORMQR) {
        ormqr(p, false, p->a, tau, p->n, memory, 1);
        apply(p, p->b, p->rhs, false, v, other, &scale);
    } else {
        ormqr(p, true, p->a, tau, p->rhs, memory, 1);
        for (size_t i = 0; i < p->rhs; i++)
            put(p, other, i * parts, v[i]);
    }
    for (size_t i = 0; i < p->n * parts; i++) {
        double d = fabs(get(p, memory, i) - get(p, other, i));
        worst = d <= worst ? worst : d;
    }
    free(v);
    free(memory);
    return worst / ((double)p->n * (single ? 0x1p-24 : 0x1p-53) * scale);
}

double qr_work(const struct problem *p)
{
    double m = (double)p->n, n = (double)p->rhs;
    return p->routine == ORMQR ? 2 * m * m * n : 2 * n * n * (m - n / 3);
}
