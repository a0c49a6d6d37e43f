/* SPDX-License-Identifier: BSD-3-Clause
 * Level 3 of BLAS but xTRSM: xGEMM, xTRMM, xSYMM, xSYRK, xSYR2K, xGEMMTR and their Hermitian forms.
 * What the next library does for parts that are missing is in complete.c. */
#include "engine/gemm/gemm.h"
#include "route.h"

static clb_status product_run(struct clb_run *run)
{
    const clb_status status =
        clb_product_run(run->runtime, run->variant, run->call, NULL, 0, &run->progress);
    clb_run_take_progress(run, status);
    return status;
}

CLB_OPS(gemm, product_run, clb_run_complete_parts, CLB_NEEDS(gemm));
CLB_OPS(trmm, product_run, clb_run_complete_parts, CLB_NEEDS(trmm));
CLB_OPS(symm, product_run, clb_run_complete_parts, CLB_NEEDS(gemm) | CLB_NEEDS(symm));
CLB_OPS(syrk, product_run, clb_run_complete_parts, CLB_NEEDS(gemm) | CLB_NEEDS(syrk));
CLB_OPS(syr2k, product_run, clb_run_complete_parts, CLB_NEEDS(gemm) | CLB_NEEDS(syr2k));
CLB_OPS(gemmtr, product_run, clb_run_complete_parts, CLB_NEEDS(gemm) | CLB_NEEDS(gemmtr));
