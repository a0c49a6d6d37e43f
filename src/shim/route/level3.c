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

#define PRODUCT(kind, needs)                                                             \
    const struct clb_ops clb_##kind##_ops = {product_run, clb_run_complete_parts, needs, \
                                             CLB_SMALLEST}
PRODUCT(gemm, CLB_NEEDS(gemm));
PRODUCT(trmm, CLB_NEEDS(trmm));
PRODUCT(symm, CLB_NEEDS(gemm) | CLB_NEEDS(symm));
PRODUCT(syrk, CLB_NEEDS(gemm) | CLB_NEEDS(syrk));
PRODUCT(syr2k, CLB_NEEDS(gemm) | CLB_NEEDS(syr2k));
PRODUCT(gemmtr, CLB_NEEDS(gemm) | CLB_NEEDS(gemmtr));
