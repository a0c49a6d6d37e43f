/* xGETRI: A^-1 from the factors of xGETRF. */
#include "lu.h"

#include <stdio.h>
#include <stdlib.h>

/* Columns of a workspace that the shim allocates: enough for the next library's block size. */
#define OWN_COLUMNS ((size_t)32)

struct getri {
    struct clb_dispatch dispatch;
    const struct clb_lu_call *call;
    const struct clb_next_lapack *next;
    struct clb_getri problem;
    int64_t *pivots; /* owned; NULL where the caller's array has 64-bit integers */
    void *work;      /* owned; NULL where the caller passes one */
};

static const struct clb_lu_call *getri_call_of(const struct clb_dispatch *dispatch)
{
    return ((const struct getri *)dispatch)->call;
}

static bool getri_is_valid(const struct clb_dispatch *dispatch)
{
    const struct clb_lu_call *call = getri_call_of(dispatch);
    return call->n >= 0 && clb_ld_is_valid(call->lda, call->n) &&
           (call->work == NULL || dispatch->query || clb_ld_is_valid(call->lwork, call->n));
}

static bool getri_is_quick(const struct clb_dispatch *dispatch)
{
    return getri_call_of(dispatch)->n == 0;
}

static clb_status getri_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    struct getri *getri = (struct getri *)dispatch;
    const struct clb_lu_call *call = getri->call;
    size_t n = (size_t)call->n, element = clb_precision_size(call->precision);
    getri->problem = (struct clb_getri){
        .precision = call->precision, .n = n, .a = call->a, .lda = (size_t)call->lda};
    if (getri->next->getri == NULL)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = clb_lu_open_pivots(call, &getri->pivots, &getri->problem.ipiv);
    /* For a singular matrix LAPACK sets info to the zero pivot and leaves A unchanged. */
    if (status == CLB_ERR_RANGE ||
        (status == CLB_OK &&
         clb_diagonal_has_zero(call->precision, n, call->a, (size_t)call->lda))) {
        dispatch->declined = CLB_REASON_INVALID;
        return CLB_ERR_RANGE;
    }
    /* A workspace for the next library, in case the device fails. */
    if (status == CLB_OK && call->work == NULL) {
        getri->work = malloc(n * OWN_COLUMNS * element);
        status = getri->work != NULL ? CLB_OK : CLB_ERR_NOMEM;
    }
    if (status != CLB_OK)
        return status;
    dispatch->parts = 1;
    status = clb_getri_run(runtime, variant, &getri->problem, &dispatch->kernel);
    if (status == CLB_ERR_UNSUPPORTED)
        dispatch->parts = 0;
    dispatch->written = status == CLB_OK;
    dispatch->share = status == CLB_OK ? 1 : 0;
    return status;
}

/* Also sets the first element of the caller's workspace to its optimal size, as LAPACK does. */
static bool getri_complete(struct clb_dispatch *dispatch, clb_status status)
{
    const struct getri *getri = (const struct getri *)dispatch;
    const struct clb_lu_call *call = getri->call;
    const struct clb_next_lapack *next = getri->next;
    size_t info = 0;
    if (status != CLB_OK)
        info = next->call_getri(next->getri, &getri->problem, call->ipiv,
                                call->work != NULL ? call->work : getri->work,
                                call->work != NULL ? call->lwork : call->n * (int64_t)OWN_COLUMNS);
    else if (call->work != NULL)
        info = next->call_getri(next->getri, &getri->problem, call->ipiv, call->work, -1);
    clb_set_integer(call->info, 0, call->wide, (int64_t)info);
    return status != CLB_OK;
}

static void getri_describe(const struct clb_dispatch *dispatch, char *text, size_t size)
{
    snprintf(text, size, "n=%lld", (long long)getri_call_of(dispatch)->n);
}

bool clb_route_getri(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next)
{
    static const struct clb_dispatch_ops type = {getri_is_valid, getri_is_quick, getri_run,
                                                 getri_complete, getri_describe};
    struct getri getri = {
        .dispatch = {.type = &type,
                     .symbol = symbol,
                     .next = next->getri,
                     .lapacke = call->lapacke,
                     .query = call->work != NULL && call->lwork == -1,
                     .m = call->n,
                     .n = call->n,
                     .k = call->n,
                     .smallest = (size_t)call->n},
        .call = call,
        .next = next,
    };
    bool computed = clb_route_dispatch(&getri.dispatch);
    free(getri.pivots);
    free(getri.work);
    return computed;
}
