/* xGETRS: op(A)*X = B from the factors of xGETRF. */
#include "lu.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a solve --------------------------------------------------------------------------------- */

struct clb_getrs clb_solving_problem(const struct clb_lu_call *call, clb_op trans)
{
    return (struct clb_getrs){.precision = call->precision,
                              .trans = trans,
                              .n = (size_t)call->n,
                              .nrhs = (size_t)call->nrhs,
                              .a = call->a,
                              .lda = (size_t)call->lda,
                              .b = call->b,
                              .ldb = (size_t)call->ldb};
}

/* Parts are columns of B. */
void clb_solving_compute_next(const struct clb_solving *solving, const struct clb_rect *rect)
{
    struct clb_getrs part = solving->problem;
    if (rect != NULL)
        part = clb_getrs_part(&solving->problem, rect);
    solving->next->call_getrs(solving->next->getrs, &part, solving->call->ipiv);
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct getrs {
    struct clb_offer offer;
    struct clb_solving solving;
};

static const struct clb_lu_call *call_of(const struct clb_offer *offer)
{
    return ((const struct getrs *)offer)->solving.call;
}

static bool is_valid(const struct clb_offer *offer)
{
    const struct clb_lu_call *call = call_of(offer);
    return call->trans != CLB_OP_INVALID && call->n >= 0 && call->nrhs >= 0 &&
           clb_ld_is_valid(call->lda, call->n) && clb_ld_is_valid(call->ldb, call->n);
}

static bool is_quick(const struct clb_offer *offer)
{
    return call_of(offer)->n == 0 || call_of(offer)->nrhs == 0;
}

clb_status clb_lu_open_pivots(const struct clb_lu_call *call, int64_t **owned, const int64_t **ipiv)
{
    size_t n = (size_t)call->n;
    if (!call->wide) {
        *owned = malloc(n * sizeof **owned);
        if (*owned == NULL)
            return CLB_ERR_NOMEM;
    }
    *ipiv = call->wide ? call->ipiv : *owned;
    for (size_t i = 0; i < n; i++) {
        int64_t pivot = clb_lu_integer(call, call->ipiv, i);
        if (pivot < 1 || pivot > call->n)
            return CLB_ERR_RANGE;
        if (!call->wide)
            (*owned)[i] = pivot;
    }
    return CLB_OK;
}

static clb_status run(struct clb_offer *offer, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant)
{
    struct clb_solving *solving = &((struct getrs *)offer)->solving;
    const struct clb_lu_call *call = solving->call;
    solving->problem = clb_solving_problem(call, call->trans);
    if (solving->next->getrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = clb_lu_open_pivots(call, &solving->pivots, &solving->problem.ipiv);
    if (status == CLB_ERR_RANGE)
        offer->declined = CLB_REASON_INVALID;
    if (status != CLB_OK)
        return status;
    status = clb_getrs_run(runtime, variant, &solving->problem, &solving->progress);
    clb_offer_take_progress(offer, &solving->progress, status, solving->problem.n,
                            solving->problem.nrhs);
    return status;
}

static void compute_next(struct clb_offer *offer, const struct clb_rect *rect)
{
    clb_solving_compute_next(&((struct getrs *)offer)->solving, rect);
}

static bool complete(struct clb_offer *offer, clb_status status)
{
    const struct clb_solving *solving = &((const struct getrs *)offer)->solving;
    bool next_used = clb_offer_complete_parts(offer, &solving->progress, status, compute_next);
    clb_set_integer(solving->call->info, 0, solving->call->wide, 0);
    return next_used;
}

static void describe(const struct clb_offer *offer, char *text, size_t size)
{
    const struct clb_lu_call *call = call_of(offer);
    snprintf(text, size, "%c n=%lld nrhs=%lld", clb_op_letter(call->trans), (long long)call->n,
             (long long)call->nrhs);
}

bool clb_route_getrs(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_offer_type type = {is_valid, is_quick, run, complete, describe};
    struct getrs getrs = {
        .offer = {.type = &type,
                  .symbol = symbol,
                  .next = next->getrs,
                  .lapacke = call->lapacke,
                  .m = call->n,
                  .n = call->n,
                  .k = call->nrhs,
                  .smallest = clb_min((size_t)call->n, (size_t)call->nrhs)},
        .solving = {.call = call, .next = next},
    };
    bool computed = clb_route_offer(&getrs.offer);
    clb_gemm_progress_free(&getrs.solving.progress);
    free(getrs.solving.pivots);
    return computed;
}
