/* SPDX-License-Identifier: BSD-3-Clause
 * lapack: triangular systems, LU, Cholesky and QR factorisations and inverses of the caller's
 * matrices, for route. A call is valid and not quick (clb_call_is_quick); its work and info are not
 * used. When a function returns no command that uses the caller's memory is outstanding. */
#ifndef CLB_LAPACK_H
#define CLB_LAPACK_H

#include "blas/blas.h"

struct clb_runtime;
struct clb_gemm_variant;

/* ---- results that are written in parts: xTRSM, xGETRS, xPOTRS, xORMQR ---- */

/* Parts of the progress are independent blocks of columns of B or C, or of rows where A is on the
 * right. On failure those not marked written are untouched, and the caller must compute them
 * elsewhere, by clb_call_part. The caller frees *progress. */
typedef clb_status clb_parts_run(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_call *call, struct clb_gemm_progress *progress);
CLB_MUST_CHECK clb_parts_run clb_trsm_run, clb_getrs_run, clb_potrs_run, clb_ormqr_run;

/* ---- factorisations: xGETRF, xPOTRF, xGEQRF ---- */

struct clb_factors {
    int64_t *ipiv; /* LU: min(m, n) pivots, 1-based; the caller's memory */
    void *tau;     /* QR: min(m, n) elements, not in the call's tau: A may still be intact */
    size_t info;   /* 0, or the first column (1-based) whose pivot is exactly zero (LU), or
                    * not positive (Cholesky) */
    size_t columns_written; /* of A, from the left: final, all others are untouched */
    const char *kernel;     /* of the updates, for reports */
    double host_work;       /* work of the panels that the host has factored (routines.def) */
    size_t blocks;          /* LU: blocks of columns that were on the device one after the other */
};

/* Factor on the device. CLB_OK: everything is written, or, where Cholesky sets info, the first info
 * - 1 columns. Nothing is written before the factorisation on the device is complete; then columns
 * are written from left to right. After a failure the matrix is intact beyond columns_written, and
 * when that is not 0 resume must finish the factorisation, on the CPU. */
typedef clb_status clb_factor_run(struct clb_runtime *runtime,
                                  const struct clb_gemm_variant *variant,
                                  const struct clb_call *call, const struct clb_host_blas *next,
                                  struct clb_factors *result);
typedef void clb_factor_resume(const struct clb_call *call, const struct clb_host_blas *next,
                               struct clb_factors *result);
CLB_MUST_CHECK clb_factor_run clb_getrf_run, clb_potrf_run, clb_geqrf_run;
clb_factor_resume clb_getrf_resume, clb_potrf_resume, clb_geqrf_resume;

/* xGESV: run clb_getrf_run and, unless A is singular, clb_getrs_run with the factors. After a
 * failure the factorisation is complete if columns_written = n; else nothing of B is written. No
 * parts where A is singular. */
clb_status clb_gesv_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_call *call, const struct clb_host_blas *next,
                        struct clb_factors *result,
                        struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- the others ---- */

struct clb_orgqr_result {
    size_t columns_left; /* of A, from the left: untouched, all others are final */
    const char *kernel;
};

/* Column j depends on reflectors 1 ... j only: when Q is complete on the device columns are written
 * from right to left, and what a failure leaves is a call of the same kind, clb_orgqr_rest. */
clb_status clb_orgqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call,
                         struct clb_orgqr_result *result) CLB_MUST_CHECK;
struct clb_call clb_orgqr_rest(const struct clb_call *call, const struct clb_orgqr_result *result);

/* xGETRI, for which no diagonal element of U is zero; xTRTRI, xLAUUM and xPOTRI, where a triangle
 * that is inverted has no zero on its diagonal. The result is complete in the shim's memory before
 * the CPU copies it to A, which can't fail: unless this returns CLB_OK, A is intact. *kernel is for
 * reports. clb_inverse_run: CLB_ERR_RANGE when the result is not finite. */
typedef clb_status clb_whole_run(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant,
                                 const struct clb_call *call, const char **kernel);
CLB_MUST_CHECK clb_whole_run clb_getri_run, clb_inverse_run;

#endif
