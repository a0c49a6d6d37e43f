/* Factorisations, and systems that are solved with them: xGETRF, xPOTRF, xGEQRF, xGESV and xPOSV.
 * The device updates the trailing matrix; panels that the algorithm factors on the CPU are factored
 * by the next library. LQ, xGELQF, is QR of the adjoint matrix: A = L*Q is A^H = Q^H*L^H, with the
 * same reflectors. SPDX-License-Identifier: BSD-3-Clause */
#include "engine/kernel/kernel.h"
#include "engine/lapack/lapack.h"
#include "engine/ocl/helper.h"
#include "route.h"

#include <stdlib.h>
#include <string.h>

struct factored {
    struct clb_factors of;
    bool complete;       /* of a system: the factors are */
    clb_status solution; /* and the status of the solve; UNSUPPORTED: left to next */
    int64_t memory[];    /* pivots as 64-bit integers where the caller's are not, or tau */
};

static bool is_lu(const struct clb_call *call)
{
    return call->kind == CLB_KIND_getrf || call->kind == CLB_KIND_gesv;
}

static bool is_qr(const struct clb_call *call)
{
    return call->kind == CLB_KIND_geqrf;
}

static bool make_factors(struct clb_run *run)
{
    const struct clb_call *call = run->call;
    const size_t count = clb_min(call->m, call->n);
    const size_t bytes = is_qr(call)                  ? count * clb_precision_size(call->precision)
                         : is_lu(call) && !call->wide ? count * sizeof(int64_t)
                                                      : 0;
    struct factored *factors = run->results = calloc(1, sizeof *factors + bytes);
    if (factors == NULL)
        return false;
    factors->of.ipiv = call->wide ? call->ipiv : factors->memory;
    factors->of.tau = factors->memory;
    factors->solution = CLB_ERR_UNSUPPORTED;
    return true;
}

/* Set the progress in columns of the matrix that has U, L or R. */
static void take_columns(struct clb_run *run, clb_status status)
{
    const struct clb_call *call = run->call;
    const struct clb_factors *result = &((struct factored *)run->results)->of;
    const bool adjoint = clb_call_is_adjoint(call);
    const size_t columns = adjoint ? call->m : call->n, rows = adjoint ? call->n : call->m;
    const clb_stem stem = is_lu(call)   ? CLB_STEM_getrf
                          : is_qr(call) ? CLB_STEM_geqrf
                                        : CLB_STEM_potrf;
    const double work =
        clb_work_of(stem, (double)rows, (double)columns, (double)clb_min(rows, columns));
    if (status == CLB_ERR_UNSUPPORTED && result->columns_written == 0)
        return; /* the algorithm has not begun */
    run->kernel = result->kernel;
    run->parts = columns;
    run->written = status == CLB_OK ? columns : result->columns_written;
    run->share = result->host_work < work ? 1 - result->host_work / work : 0;
    if (status != CLB_OK)
        run->share *= (double)run->written / (double)columns;
}

/* Factor, and for xGESV with `solves` solve with the factors. Where the device is the CPU the next
 * library computes with one thread meanwhile: idle threads of it spin. It leaves a helper CPUs. */
static clb_status factor(struct clb_run *run, bool solves)
{
    const struct clb_call *call = run->call;
    const struct clb_host_blas *host = run->host;
    if (!make_factors(run))
        return CLB_ERR_NOMEM;
    struct clb_factors *result = &((struct factored *)run->results)->of;
    const int threads = run->runtime->device.unified ? 1 : clb_helper_leaves();
    const bool held =
        threads > 0 && host->hold_threads != NULL && host->hold_threads(host, threads);
    clb_status status;
    if (solves)
        status = clb_gesv_run(run->runtime, run->variant, call, host, result, &run->progress);
    else
        status = (is_lu(call)   ? clb_getrf_run
                  : is_qr(call) ? clb_geqrf_run
                                : clb_potrf_run)(run->runtime, run->variant, call, host, result);
    if (held)
        clb_next_release_threads();
    take_columns(run, status);
    return status;
}

static clb_status factor_run(struct clb_run *run)
{
    return factor(run, false);
}

/* The results of xGEQRF and xGETRF are private until all is well: A may still be intact. */
static void give_factors(const struct clb_run *run)
{
    const struct factored *factors = run->results;
    const struct clb_call *call = run->call;
    const size_t count = clb_min(call->m, call->n);
    for (size_t i = 0; is_lu(call) && !call->wide && i < count; i++)
        clb_integer_set(call->ipiv, i, false, factors->memory[i]);
    if (is_qr(call)) {
        memcpy(call->tau, factors->memory, count * clb_precision_size(call->precision));
        clb_run_give_size(run);
    }
    clb_integer_set(call->info, 0, call->wide, (int64_t)factors->of.info);
}

static bool factor_complete(struct clb_run *run, clb_status status)
{
    struct clb_factors *result = &((struct factored *)run->results)->of;
    struct clb_call call = *run->call;
    if (!is_qr(&call))
        call = clb_call_as(&call, is_lu(&call) ? CLB_KIND_getrf : CLB_KIND_potrf);
    if (is_lu(&call)) {
        call.ipiv = result->ipiv;
        call.wide = true;
    } else if (is_qr(&call)) {
        call.tau = result->tau;
    }
    if (status != CLB_OK && result->columns_written == 0)
        result->info = clb_host_call(run->host, &call);
    else if (status != CLB_OK)
        (is_lu(&call)   ? clb_getrf_resume
         : is_qr(&call) ? clb_geqrf_resume
                        : clb_potrf_resume)(&call, run->host, result);
    give_factors(run);
    return status != CLB_OK;
}

#define UPDATED (CLB_NEEDS(trsm) | CLB_NEEDS(gemm))
CLB_OPS(getrf, factor_run, factor_complete, CLB_NEEDS(getrf) | UPDATED);
CLB_OPS(potrf, factor_run, factor_complete, CLB_NEEDS(potrf) | UPDATED);
CLB_OPS(geqrf, factor_run, factor_complete, CLB_NEEDS(geqrf) | CLB_NEEDS(ormqr));

/* ---- A*X = B, unless A is singular, or a pivot not positive ---- */

/* Add the progress of the solve, in parts of B, to that of the factors. */
static void add_solution(struct clb_run *run)
{
    const double n = (double)run->call->n, nrhs = (double)run->call->nrhs;
    const bool lu = is_lu(run->call);
    const double factor_work = clb_work_of(lu ? CLB_STEM_getrf : CLB_STEM_potrf, n, n, n);
    const double solve_work = clb_work_of(lu ? CLB_STEM_getrs : CLB_STEM_potrs, n, n, nrhs);
    const size_t parts = run->parts, written = run->written;
    const double share = run->share;
    const char *kernel = run->kernel;
    clb_run_take_progress(run, ((struct factored *)run->results)->solution);
    run->kernel = kernel;
    run->parts += parts;
    run->written += written;
    run->share = (share * factor_work + run->share * solve_work) / (factor_work + solve_work);
}

/* Right-hand sides. */
#define FEW 64

/* In mode `auto` the next library solves for few right-hand sides, but not with LU factors that are
 * on the device and would have to be read from host memory. */
static clb_status system_run(struct clb_run *run)
{
    const struct clb_call *call = run->call;
    const bool few = clb_run_is_auto(run) && call->nrhs < FEW;
    const bool solves = is_lu(call) && !(few && run->runtime->device.unified);
    const clb_status status = factor(run, solves);
    struct factored *factors = run->results;
    if (factors == NULL)
        return status;
    factors->complete = is_lu(call) ? factors->of.columns_written == call->n : status == CLB_OK;
    if (!factors->complete)
        return status;
    if (factors->of.info == 0 && is_lu(call) && solves)
        factors->solution = status;
    else if (factors->of.info == 0 && !is_lu(call) && !few)
        factors->solution = clb_potrs_run(run->runtime, run->variant, call, &run->progress);
    add_solution(run);
    return factors->solution == CLB_ERR_UNSUPPORTED ? CLB_OK : factors->solution;
}

static bool system_complete(struct clb_run *run, clb_status status)
{
    const struct factored *factors = run->results;
    const bool next_used = factor_complete(run, factors->complete ? CLB_OK : status);
    if (factors->of.info != 0 || factors->solution == CLB_OK)
        return next_used;
    run->written = 0;
    for (size_t i = 0; i < run->progress.parts; i++)
        run->written += run->progress.written[i];
    return clb_run_complete_parts(run, factors->solution);
}

CLB_OPS(gesv, system_run, system_complete, CLB_NEEDS(getrf) | UPDATED | CLB_NEEDS(getrs));
CLB_OPS(posv, system_run, system_complete, CLB_NEEDS(potrf) | UPDATED | CLB_NEEDS(potrs));
