/* xGEQRF: A = Q*R. The next library factors panels, the device updates the trailing matrix. */
#include "qr.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct geqrf {
    struct clb_dispatch dispatch;
    const struct clb_qr_call *call;
    const struct clb_next_qr *next;
    struct clb_geqrf problem;
    struct clb_geqrf_result result; /* its tau is owned */
};

static const struct clb_qr_call *geqrf_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct geqrf *)dispatch)->call;
}

/* ---- calls of the next library by the algorithm ---------------------------------------------- */

static double geqrf_work_of(size_t m, size_t n)
{
    return clb_work_geqrf((double)m, (double)n, (double)clb_min(m, n));
}

static void geqrf_next_geqrf(const struct clb_host_blas *host, const struct clb_geqrf *problem,
                             void *tau)
{
    const struct geqrf *geqrf = host->context;
    geqrf->next->call_geqrf(geqrf->next->geqrf, problem, tau, geqrf->call->work,
                            geqrf->call->lwork);
}

static bool next_geqrt(const struct clb_host_blas *host, const struct clb_geqrf *panel, void *tau)
{
    const struct geqrf *geqrf = host->context;
    return geqrf->next->geqrt != NULL && geqrf->next->call_geqrt(geqrf->next->geqrt, panel, tau);
}

static void geqrf_next_ormqr(const struct clb_host_blas *host, const struct clb_ormqr *problem)
{
    const struct geqrf *geqrf = host->context;
    geqrf->next->call_ormqr(geqrf->next->ormqr, problem, geqrf->call->work, geqrf->call->lwork);
}

/* ---- the dispatch ---------------------------------------------------------------------------- */

static bool geqrf_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_qr_call *call = geqrf_call_of(dispatch);
    return call->m >= 0 && call->n >= 0 && clb_ld_is_valid(call->lda, call->m) &&
           clb_work_is_valid(call, call->n);
}

static bool geqrf_is_quick(const struct clb_dispatch *dispatch)
{
    return geqrf_call_of(dispatch)->m == 0 || geqrf_call_of(dispatch)->n == 0;
}

/* The share of the operations that the device did for the columns that are written. */
static double geqrf_device_share(const struct geqrf *geqrf, clb_status status)
{
    double work = geqrf_work_of(geqrf->problem.m, geqrf->problem.n);
    double share = geqrf->result.host_work < work ? 1 - geqrf->result.host_work / work : 0;
    return status == CLB_OK
               ? share
               : share * (double)geqrf->result.columns_written / (double)geqrf->problem.n;
}

static clb_status geqrf_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct geqrf *geqrf = (struct geqrf *)dispatch;
    const struct clb_qr_call *call = geqrf->call;
    const struct clb_host_blas next = {.context = geqrf,
                                       .geqrf = geqrf_next_geqrf,
                                       .geqrt = next_geqrt,
                                       .ormqr = geqrf_next_ormqr};
    size_t m = (size_t)call->m, n = (size_t)call->n;
    if (geqrf->next->geqrf == NULL || geqrf->next->ormqr == NULL) {
        clb_log(CLB_LOG_INFO, "%s: there is no LAPACK of its integer width to finish it",
                dispatch->symbol->next.name);
        return CLB_ERR_UNSUPPORTED;
    }
    geqrf->problem = (struct clb_geqrf){call->precision, m, n, call->a, (size_t)call->lda};
    geqrf->result.tau = calloc(clb_min(m, n), clb_precision_size(call->precision));
    if (geqrf->result.tau == NULL)
        return CLB_ERR_NOMEM;
    /* The next library's idle threads spin and would take CPU time from a device that is the CPU.
     */
    bool held = runtime->device.unified && clb_next_hold_threads(geqrf->next->geqrf);
    clb_status status = clb_geqrf_run(runtime, variant, &geqrf->problem, &next, &geqrf->result);
    if (held)
        clb_next_release_threads();
    /* The algorithm has not begun. */
    if (status == CLB_ERR_UNSUPPORTED && geqrf->result.columns_written == 0)
        return status;
    dispatch->kernel = geqrf->result.kernel;
    dispatch->parts = n;
    dispatch->written = status == CLB_OK ? n : geqrf->result.columns_written;
    dispatch->share = geqrf_device_share(geqrf, status);
    return status;
}

static bool geqrf_complete(struct clb_dispatch *dispatch, clb_status status)
{
    struct geqrf *geqrf = (struct geqrf *)dispatch;
    const struct clb_host_blas next = {.context = geqrf,
                                       .geqrf = geqrf_next_geqrf,
                                       .geqrt = next_geqrt,
                                       .ormqr = geqrf_next_ormqr};
    size_t count = clb_min(geqrf->problem.m, geqrf->problem.n);
    if (status != CLB_OK && geqrf->result.columns_written == 0)
        geqrf_next_geqrf(&next, &geqrf->problem, geqrf->result.tau);
    else if (status != CLB_OK)
        clb_geqrf_resume(&geqrf->problem, &next, &geqrf->result);
    memcpy(geqrf->call->tau, geqrf->result.tau,
           count * clb_precision_size(geqrf->problem.precision));
    return status != CLB_OK;
}

static void geqrf_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    snprintf(text, size, "m=%lld n=%lld", (long long)geqrf_call_of(dispatch)->m,
             (long long)geqrf_call_of(dispatch)->n);
}

bool clb_route_geqrf(struct clb_symbol *symbol, const struct clb_qr_call *call,
                     const struct clb_next_qr *next)
{
    static const struct clb_dispatch_ops type = {geqrf_is_valid, geqrf_is_quick, geqrf_run,
                                                 geqrf_complete, geqrf_describe};
    const int64_t smaller = call->m < call->n ? call->m : call->n;
    struct geqrf geqrf = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->geqrf,
                     .lapacke = call->lapacke,
                     .m = call->m,
                     .n = call->n,
                     .k = smaller,
                     .smallest = clb_qr_smallest(call->m, call->n),
                     .query = call->lwork == -1},
        .call = call,
        .next = next,
    };
    bool computed = clb_route_dispatch(&geqrf.dispatch);
    free(geqrf.result.tau);
    return computed;
}
