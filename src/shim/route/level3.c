/* Level 3 of BLAS but xTRSM: xGEMM, xTRMM, xSYMM, xSYRK, xSYR2K, xGEMMTR and their Hermitian forms.
 * What the next library does for parts that are missing is in complete.c. */
#include "engine/gemm/gemm.h"
#include "route.h"

static clb_status product_run(struct clb_run *run)
{
    const clb_status status =
        clb_product_run(run->runtime, run->variant, run->call, &run->progress);
    clb_run_take_progress(run, status);
    return status;
}

/* Parts of xGEMM and xTRMM are calls of the same routine. */
static bool product_complete(struct clb_run *run, clb_status status)
{
    return status != CLB_OK && clb_run_complete_parts(run, clb_run_compute_part);
}

static bool structured_complete(struct clb_run *run, clb_status status)
{
    return status != CLB_OK && clb_run_complete_parts(run, clb_level3_compute_part);
}

const struct clb_ops clb_gemm_ops = {product_run, product_complete, CLB_NEEDS(gemm), CLB_SMALLEST};
const struct clb_ops clb_trmm_ops = {product_run, product_complete, CLB_NEEDS(trmm), CLB_SMALLEST};
#define STRUCTURED(kind)                                                       \
    const struct clb_ops clb_##kind##_ops = {product_run, structured_complete, \
                                             CLB_NEEDS(gemm) | CLB_NEEDS(kind), CLB_SMALLEST}
STRUCTURED(symm);
STRUCTURED(syrk);
STRUCTURED(syr2k);
STRUCTURED(gemmtr);
