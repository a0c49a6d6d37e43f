/* xGESV: A = P*L*U, then A*X = B unless A is singular. */
#include "lu.h"

#include <stdio.h>

struct gesv {
    struct clb_offer offer;
    struct clb_factoring factoring;
    struct clb_solving solving;
    bool factored;       /* by the device */
    clb_status solution; /* of the device's solve; CLB_ERR_UNSUPPORTED: left to next */
};

static const struct clb_lu_call *call_of(const struct clb_offer *offer)
{
    return ((const struct gesv *)offer)->factoring.call;
}

static bool is_valid(const struct clb_offer *offer)
{
    const struct clb_lu_call *call = call_of(offer);
    return call->n >= 0 && call->nrhs >= 0 && clb_ld_is_valid(call->lda, call->n) &&
           clb_ld_is_valid(call->ldb, call->n);
}

/* Without right-hand sides the reference factors and others don't. */
static bool is_quick(const struct clb_offer *offer)
{
    return call_of(offer)->n == 0 || call_of(offer)->nrhs == 0;
}

/* The factorisation's progress, counted in columns, and the solve's, in parts, become one. */
static void add_progress(struct gesv *gesv)
{
    struct clb_offer *offer = &gesv->offer, solve = *offer;
    double n = (double)offer->n, factor_work = clb_work_dgetrf(n, n, n);
    double solve_work = clb_work_dgetrs(n, n, (double)offer->k);
    clb_offer_take_progress(&solve, &gesv->solving.progress, gesv->solution,
                            gesv->solving.problem.n, gesv->solving.problem.nrhs);
    offer->parts += solve.parts;
    offer->written += solve.written;
    offer->share =
        (offer->share * factor_work + solve.share * solve_work) / (factor_work + solve_work);
}

/* Few right-hand sides are the next library's in `auto`. */
static bool is_solved_here(const struct gesv *gesv, const struct clb_gemm_variant *variant)
{
    return gesv->factoring.result.info == 0 &&
           !(clb_offer_is_auto(&gesv->offer) &&
             (size_t)gesv->factoring.call->nrhs < variant->tuning.smallest);
}

static clb_status run(struct clb_offer *offer, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant)
{
    struct gesv *gesv = (struct gesv *)offer;
    struct clb_solving *solving = &gesv->solving;
    gesv->solution = CLB_ERR_UNSUPPORTED;
    if (solving->next->getrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = clb_factoring_run(&gesv->factoring, offer, runtime, variant);
    gesv->factored = status == CLB_OK;
    solving->problem = clb_solving_problem(gesv->factoring.call, CLB_OP_N);
    solving->problem.ipiv = gesv->factoring.result.ipiv;
    if (gesv->factored && is_solved_here(gesv, variant)) {
        gesv->solution = clb_getrs_run(runtime, variant, &solving->problem, &solving->progress);
        status = gesv->solution == CLB_ERR_UNSUPPORTED ? CLB_OK : gesv->solution;
    }
    if (gesv->factored)
        add_progress(gesv);
    return status;
}

static void compute_next(struct clb_offer *offer, const struct clb_rect *rect)
{
    clb_solving_compute_next(&((struct gesv *)offer)->solving, rect);
}

static bool complete(struct clb_offer *offer, clb_status status)
{
    struct gesv *gesv = (struct gesv *)offer;
    bool next_used = clb_factoring_complete(&gesv->factoring, gesv->factored ? CLB_OK : status);
    if (gesv->factoring.result.info != 0)
        return next_used;
    offer->written = 0;
    for (size_t i = 0; i < gesv->solving.progress.parts; i++)
        offer->written += gesv->solving.progress.written[i];
    return clb_offer_complete_parts(offer, &gesv->solving.progress, gesv->solution, compute_next) ||
           next_used;
}

static void describe(const struct clb_offer *offer, char *text, size_t size)
{
    const struct clb_lu_call *call = call_of(offer);
    snprintf(text, size, "n=%lld nrhs=%lld", (long long)call->n, (long long)call->nrhs);
}

bool clb_route_gesv(struct clb_symbol *symbol, const struct clb_lu_call *call,
                    const struct clb_next_lapack *next)
{
    static const struct clb_offer_type type = {is_valid, is_quick, run, complete, describe};
    struct gesv gesv = {
        .offer = {.type = &type,
                  .symbol = symbol,
                  .next = next->getrf,
                  .lapacke = call->lapacke,
                  .m = call->n,
                  .n = call->n,
                  .k = call->nrhs,
                  .smallest = (size_t)call->n},
        .factoring = {.call = call, .next = next},
        .solving = {.call = call, .next = next},
    };
    bool computed = clb_route_offer(&gesv.offer);
    clb_gemm_progress_free(&gesv.solving.progress);
    clb_factoring_free(&gesv.factoring);
    return computed;
}
