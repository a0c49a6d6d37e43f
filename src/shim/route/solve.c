/* What is computed with factors or of triangles: xTRSM, xGETRS, xPOTRS and xORMQR, in parts of the
 * result that don't depend on each other; xORGQR, in columns; and inverses, xGETRI, xTRTRI, xLAUUM
 * and xPOTRI, at once. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/lapack/lapack.h"
#include "route.h"

#include <stdlib.h>

static clb_status decline_invalid(struct clb_run *run)
{
    run->declined = CLB_REASON_INVALID;
    return CLB_ERR_RANGE;
}

static void set_info(const struct clb_run *run, size_t info)
{
    clb_integer_set(run->call->info, 0, run->call->wide, (int64_t)info);
}

/* Reference LAPACK does not check that pivots are row indices; the next library gets such calls. */
static bool are_rows(const struct clb_call *call)
{
    for (size_t i = 0; i < call->n; i++) {
        const int64_t pivot = clb_integer_get(call->ipiv, i, call->wide);
        if (pivot < 1 || pivot > (int64_t)call->n)
            return false;
    }
    return true;
}

/* ---- parts ---- */

static clb_status parts_run(struct clb_run *run)
{
    const clb_kind kind = run->call->kind;
    if (kind == CLB_KIND_getrs && !are_rows(run->call))
        return decline_invalid(run);
    const clb_status status = (kind == CLB_KIND_trsm    ? clb_trsm_run
                               : kind == CLB_KIND_getrs ? clb_getrs_run
                               : kind == CLB_KIND_potrs ? clb_potrs_run
                                                        : clb_ormqr_run)(run->runtime, run->variant,
                                                                         run->call, &run->progress);
    clb_run_take_progress(run, status);
    return status;
}

/* A missing part of X still has the values of B, from which the next library computes it. */
static bool parts_complete(struct clb_run *run, clb_status status)
{
    const bool next_used = clb_run_complete_parts(run, status);
    if (run->call->kind == CLB_KIND_ormqr)
        clb_run_give_size(run);
    if (run->call->kind != CLB_KIND_trsm)
        set_info(run, 0);
    return next_used;
}

CLB_OPS(trsm, parts_run, parts_complete, CLB_NEEDS(trsm));
CLB_OPS(getrs, parts_run, parts_complete, CLB_NEEDS(getrs));
CLB_OPS(potrs, parts_run, parts_complete, CLB_NEEDS(potrs));
CLB_OPS(ormqr, parts_run, parts_complete, CLB_NEEDS(ormqr));

/* ---- columns ---- */

static clb_status orgqr_run(struct clb_run *run)
{
    const size_t columns = clb_call_is_adjoint(run->call) ? run->call->m : run->call->n;
    struct clb_orgqr_result *result = run->results = calloc(1, sizeof *result);
    if (result == NULL)
        return CLB_ERR_NOMEM;
    const clb_status status = clb_orgqr_run(run->runtime, run->variant, run->call, result);
    run->kernel = result->kernel;
    run->written = status == CLB_OK ? columns : columns - result->columns_left;
    run->parts = status == CLB_ERR_UNSUPPORTED && run->written == 0 ? 0 : columns;
    run->share = (double)run->written / (double)columns;
    return status;
}

static bool orgqr_complete(struct clb_run *run, clb_status status)
{
    const struct clb_orgqr_result *result = run->results;
    const struct clb_call rest = clb_orgqr_rest(run->call, result);
    if (status != CLB_OK && result->columns_left > 0)
        clb_host_call(run->host, &rest);
    clb_run_give_size(run);
    set_info(run, 0);
    return status != CLB_OK;
}

CLB_OPS(orgqr, orgqr_run, orgqr_complete, CLB_NEEDS(orgqr));

/* ---- inverses ---- */

/* With a zero on the diagonal LAPACK sets info to its index and leaves the matrix unchanged. */
static bool is_singular(const struct clb_call *call)
{
    const size_t step = (call->lda + 1) * clb_precision_size(call->precision);
    bool zero = false;
    for (size_t i = 0; i < call->n && !zero; i++)
        zero = clb_scalar_equal(call->precision, (const char *)call->a + i * step,
                                clb_scalar_of(call->precision, 0));
    return zero;
}

static clb_status inverse_run(struct clb_run *run)
{
    const struct clb_call *call = run->call;
    const bool is_lu = call->kind == CLB_KIND_getri;
    if ((is_lu && !are_rows(call)) ||
        (call->kind != CLB_KIND_lauum && !call->unit && is_singular(call)))
        return decline_invalid(run);
    const clb_status status =
        (is_lu ? clb_getri_run : clb_inverse_run)(run->runtime, run->variant, call, &run->kernel);
    run->parts = status != CLB_ERR_UNSUPPORTED;
    run->written = status == CLB_OK;
    run->share = status == CLB_OK ? 1 : 0;
    return status;
}

static bool inverse_complete(struct clb_run *run, clb_status status)
{
    size_t info = 0;
    if (status != CLB_OK)
        info = clb_host_call(run->host, run->call);
    else if (run->call->kind == CLB_KIND_getri)
        clb_run_give_size(run);
    set_info(run, info);
    return status != CLB_OK;
}

CLB_OPS(getri, inverse_run, inverse_complete, CLB_NEEDS(getri));
CLB_OPS(trtri, inverse_run, inverse_complete, CLB_NEEDS(trtri));
CLB_OPS(lauum, inverse_run, inverse_complete, CLB_NEEDS(lauum));
CLB_OPS(potri, inverse_run, inverse_complete, CLB_NEEDS(potri));
