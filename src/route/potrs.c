/* xPOTRS: A*X = B from the factor of xPOTRF. */
#include "chol.h"

#include <stdio.h>

/* ---- a solve --------------------------------------------------------------------------------- */

struct clb_potrs clb_back_solving_problem(const struct clb_chol_call *call)
{
    return (struct clb_potrs){.precision = call->precision,
                              .upper = call->upper,
                              .n = (size_t)call->n,
                              .nrhs = (size_t)call->nrhs,
                              .a = call->a,
                              .lda = (size_t)call->lda,
                              .b = call->b,
                              .ldb = (size_t)call->ldb};
}

/* Parts are columns of B. */
void clb_back_solving_compute_next(const struct clb_back_solving *solving,
                                   const struct clb_rect *rect)
{
    struct clb_potrs part = solving->problem;
    if (rect != NULL)
        part = clb_potrs_part(&solving->problem, rect);
    solving->next->call_potrs(solving->next->potrs, &part);
}

bool clb_chol_call_is_valid(const struct clb_chol_call *call)
{
    return call->options_valid && call->n >= 0 && call->nrhs >= 0 &&
           clb_ld_is_valid(call->lda, call->n) && clb_ld_is_valid(call->ldb, call->n);
}

void clb_chol_call_describe(const struct clb_chol_call *call, char *text, size_t size)
{
    snprintf(text, size, "%c n=%lld nrhs=%lld", call->upper ? 'U' : 'L', (long long)call->n,
             (long long)call->nrhs);
}

/* ---- the routine ----------------------------------------------------------------------------- */

struct potrs {
    struct clb_offer offer;
    struct clb_back_solving solving;
};

static const struct clb_chol_call *call_of(const struct clb_offer *offer)
{
    return ((const struct potrs *)offer)->solving.call;
}

static bool is_valid(const struct clb_offer *offer)
{
    return clb_chol_call_is_valid(call_of(offer));
}

static bool is_quick(const struct clb_offer *offer)
{
    return call_of(offer)->n == 0 || call_of(offer)->nrhs == 0;
}

static clb_status run(struct clb_offer *offer, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant)
{
    struct clb_back_solving *solving = &((struct potrs *)offer)->solving;
    solving->problem = clb_back_solving_problem(solving->call);
    if (solving->next->potrs == NULL)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = clb_potrs_run(runtime, variant, &solving->problem, &solving->progress);
    clb_offer_take_progress(offer, &solving->progress, status, solving->problem.n,
                            solving->problem.nrhs);
    return status;
}

static void compute_next(struct clb_offer *offer, const struct clb_rect *rect)
{
    clb_back_solving_compute_next(&((struct potrs *)offer)->solving, rect);
}

static bool complete(struct clb_offer *offer, clb_status status)
{
    const struct clb_back_solving *solving = &((const struct potrs *)offer)->solving;
    bool next_used = clb_offer_complete_parts(offer, &solving->progress, status, compute_next);
    clb_set_integer(solving->call->info, 0, solving->call->wide, 0);
    return next_used;
}

static void describe(const struct clb_offer *offer, char *text, size_t size)
{
    clb_chol_call_describe(call_of(offer), text, size);
}

bool clb_route_potrs(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_offer_type type = {is_valid, is_quick, run, complete, describe};
    struct potrs potrs = {
        .offer = {.type = &type,
                  .symbol = symbol,
                  .next = next->potrs,
                  .lapacke = call->lapacke,
                  .m = call->n,
                  .n = call->n,
                  .k = call->nrhs,
                  .smallest = clb_min((size_t)call->n, (size_t)call->nrhs)},
        .solving = {.call = call, .next = next},
    };
    bool computed = clb_route_offer(&potrs.offer);
    clb_gemm_progress_free(&potrs.solving.progress);
    return computed;
}
