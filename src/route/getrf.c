/* xGETRF: A = P*L*U. The device updates; panels, where the algorithm leaves them to the CPU, are
 * the next library's. */
#include "lu.h"

#include <stdio.h>
#include <stdlib.h>

int64_t clb_lu_integer(const struct clb_lu_call *call, const void *array, size_t index)
{
    return call->wide ? ((const int64_t *)array)[index] : ((const int32_t *)array)[index];
}

/* ---- a factorisation ------------------------------------------------------------------------- */

static size_t next_getrf(const void *context, size_t m, size_t n, void *a, size_t lda,
                         int64_t *ipiv)
{
    struct clb_factoring *factoring = (struct clb_factoring *)(uintptr_t)context;
    const struct clb_next_lapack *next = factoring->assist.next;
    const struct clb_getrf panel = {factoring->problem.precision, m, n, a, lda};
    double work = clb_work_dgetrf((double)m, (double)n, (double)clb_min(m, n));
    bool before = clb_assist_begin(&factoring->assist, work);
    size_t info = next->call_getrf(next->getrf, &panel, ipiv);
    clb_assist_end(before);
    return info;
}

/* What the algorithm asks of the next library. */
static struct clb_lapack_next next_of(const struct clb_factoring *factoring)
{
    return (struct clb_lapack_next){&factoring->assist, next_getrf, clb_assist_trsm,
                                    clb_assist_gemm};
}

static bool open_factoring(struct clb_factoring *factoring)
{
    const struct clb_lu_call *call = factoring->call;
    size_t m = (size_t)call->m, n = (size_t)call->n;
    factoring->problem = (struct clb_getrf){call->precision, m, n, call->a, (size_t)call->lda};
    if (!call->wide)
        factoring->pivots = malloc(clb_min(m, n) * sizeof *factoring->pivots);
    factoring->result.ipiv = call->wide ? call->ipiv : factoring->pivots;
    return factoring->result.ipiv != NULL;
}

/* Of the operations, those that the device did for columns that are written. */
static double device_share(const struct clb_factoring *factoring, clb_status status)
{
    double m = (double)factoring->problem.m, n = (double)factoring->problem.n;
    double work = clb_work_dgetrf(m, n, m < n ? m : n);
    double share = clb_assist_share(&factoring->assist, work);
    return status == CLB_OK ? share : share * (double)factoring->result.columns_written / n;
}

clb_status clb_factoring_run(struct clb_factoring *factoring, struct clb_offer *offer,
                             struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    const struct clb_lapack_next next = next_of(factoring);
    const struct clb_next_lapack *found = factoring->assist.next;
    if (found->getrf == NULL || found->trsm == NULL || found->gemm == NULL) {
        clb_log(CLB_LOG_INFO, "%s: there is no BLAS of its integer width to finish it",
                offer->symbol->next.name);
        return CLB_ERR_UNSUPPORTED;
    }
    if (!open_factoring(factoring))
        return CLB_ERR_NOMEM;
    /* Panels by idle-spinning threads would take the CPU from a device that is the CPU. */
    bool held = runtime->device.unified && clb_next_hold_threads(found->getrf);
    factoring->assist.on_device = true;
    clb_status status =
        factoring->system != NULL
            ? clb_gesv_run(runtime, variant, &factoring->problem, factoring->system, &next,
                           &factoring->result, factoring->solution)
            : clb_getrf_run(runtime, variant, &factoring->problem, &next, &factoring->result);
    factoring->assist.on_device = false;
    if (held)
        clb_next_release_threads();
    /* Nothing was begun. */
    if (status == CLB_ERR_UNSUPPORTED && factoring->result.columns_written == 0)
        return status;
    offer->kernel = factoring->result.kernel;
    offer->parts = factoring->problem.n;
    offer->written = status == CLB_OK ? offer->parts : factoring->result.columns_written;
    offer->share = device_share(factoring, status);
    return status;
}

static void give_results(const struct clb_factoring *factoring)
{
    const struct clb_lu_call *call = factoring->call;
    size_t count = clb_min(factoring->problem.m, factoring->problem.n);
    for (size_t i = 0; factoring->pivots != NULL && i < count; i++)
        clb_set_integer(call->ipiv, i, call->wide, factoring->pivots[i]);
    clb_set_integer(call->info, 0, call->wide, (int64_t)factoring->result.info);
}

bool clb_factoring_complete(struct clb_factoring *factoring, clb_status status)
{
    const struct clb_lapack_next next = next_of(factoring);
    const struct clb_next_lapack *found = factoring->assist.next;
    struct clb_getrf_result *result = &factoring->result;
    if (status != CLB_OK && result->columns_written == 0)
        result->info = found->call_getrf(found->getrf, &factoring->problem, result->ipiv);
    else if (status != CLB_OK)
        clb_getrf_resume(&factoring->problem, &next, result);
    give_results(factoring);
    return status != CLB_OK;
}

void clb_factoring_free(struct clb_factoring *factoring)
{
    free(factoring->pivots);
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct getrf {
    struct clb_offer offer;
    struct clb_factoring factoring;
};

static const struct clb_lu_call *call_of(const struct clb_offer *offer)
{
    return ((const struct getrf *)offer)->factoring.call;
}

static bool is_valid(const struct clb_offer *offer)
{
    const struct clb_lu_call *call = call_of(offer);
    return call->m >= 0 && call->n >= 0 && clb_ld_is_valid(call->lda, call->m);
}

static bool is_quick(const struct clb_offer *offer)
{
    return call_of(offer)->m == 0 || call_of(offer)->n == 0;
}

static clb_status run(struct clb_offer *offer, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant)
{
    return clb_factoring_run(&((struct getrf *)offer)->factoring, offer, runtime, variant);
}

static bool complete(struct clb_offer *offer, clb_status status)
{
    return clb_factoring_complete(&((struct getrf *)offer)->factoring, status);
}

static void describe(const struct clb_offer *offer, char *text, size_t size)
{
    snprintf(text, size, "m=%lld n=%lld", (long long)call_of(offer)->m,
             (long long)call_of(offer)->n);
}

bool clb_route_getrf(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_offer_type type = {is_valid, is_quick, run, complete, describe};
    const int64_t smaller = call->m < call->n ? call->m : call->n;
    struct getrf getrf = {
        .offer = {.type = &type,
                  .symbol = symbol,
                  .next = next->getrf,
                  .lapacke = call->lapacke,
                  .m = call->m,
                  .n = call->n,
                  .k = smaller,
                  .smallest = (size_t)smaller},
        .factoring = {.assist = {.next = next}, .call = call},
    };
    bool computed = clb_route_offer(&getrf.offer);
    clb_factoring_free(&getrf.factoring);
    return computed;
}
