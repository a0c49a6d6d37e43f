/* Level 3 of BLAS: xGEMM, xSYMM, xSYRK, xSYR2K, xGEMMTR and their Hermitian forms, xTRMM and xTRSM.
 * What the next library does for results with a structure is in level3_next.c. */
#include "engine/gemm/gemm.h"
#include "run.h"

/* ---- xGEMM, xTRMM and xTRSM: parts are calls of the same routine ----------------------------- */

static clb_status product_run(struct clb_run *run, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant)
{
    clb_status status = clb_product_run(runtime, variant, run->call, &run->progress);
    clb_run_take_progress(run, status, run->call->m, run->call->n);
    return status;
}

static clb_status trsm_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    clb_status status = clb_trsm_run(runtime, variant, run->call, &run->progress);
    clb_run_take_progress(run, status, run->call->m, run->call->n);
    return status;
}

/* Parts are independent, and a missing part of X still has the values of B, from which the next
 * library computes it. */
static bool product_complete(struct clb_run *run, clb_status status)
{
    return clb_run_complete_parts(run, status, clb_run_compute_part);
}

const struct clb_ops clb_gemm_ops = {
    .run = product_run, .complete = product_complete, .needs = CLB_NEEDS(gemm)};
const struct clb_ops clb_trmm_ops = {
    .run = product_run, .complete = product_complete, .needs = CLB_NEEDS(trmm)};
const struct clb_ops clb_trsm_ops = {
    .run = trsm_run, .complete = product_complete, .needs = CLB_NEEDS(trsm)};

/* ---- the others ----------------------------------------------------------------------------- */

static clb_status level3_run(struct clb_run *run, struct clb_runtime *runtime,
                             const struct clb_gemm_variant *variant)
{
    clb_status status = clb_product_run(runtime, variant, run->call, &run->progress);
    size_t area = 0;
    for (size_t i = 0; i < run->progress.parts; i++)
        area += run->progress.part[i].rows * run->progress.part[i].cols;
    clb_run_take_progress(run, status, area, 1);
    return status;
}

static bool level3_complete(struct clb_run *run, clb_status status)
{
    return clb_run_complete_parts(run, status, clb_level3_compute_part);
}

#define LEVEL3_OPS(kind)                                                                           \
    {                                                                                              \
        .run = level3_run, .complete = level3_complete, .needs = CLB_NEEDS(gemm) | CLB_NEEDS(kind) \
    }
const struct clb_ops clb_symm_ops = LEVEL3_OPS(symm), clb_syrk_ops = LEVEL3_OPS(syrk);
const struct clb_ops clb_syr2k_ops = LEVEL3_OPS(syr2k), clb_gemmtr_ops = LEVEL3_OPS(gemmtr);
