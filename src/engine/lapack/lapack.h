/* lapack: the interface of this layer to route for everything but products. Triangular systems, LU,
 * Cholesky and QR factorisations and inverses of the caller's matrices, which are in host memory,
 * are computed on the device. A call is valid and not quick (clb_call_is_quick); its work and info
 * are not used. */
#ifndef CLB_LAPACK_H
#define CLB_LAPACK_H

#include "blas/host_blas.h"
#include "engine/gemm/gemm.h"

/* ---- rhs_blocks.c ---------------------------------------------------------------------------- */

/* Run on the device. The parts of the progress are blocks of columns (left) or rows (right) of B,
 * which don't depend on each other. On failure the parts that are not marked written are untouched,
 * and the caller must compute them elsewhere, by clb_call_part. On return no command is
 * outstanding. The caller frees *progress. */
clb_status clb_trsm_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_call *call,
                        struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- getrf.c --------------------------------------------------------------------------------- */

struct clb_getrf_result {
    int64_t *ipiv;          /* min(m, n) pivots, 1-based; the caller's memory */
    size_t info;            /* 0, or the first column (1-based) whose pivot is exactly zero */
    size_t columns_written; /* of A, from the left: final, all others are untouched */
    const char *kernel;     /* of the updates, for reports */
    double host_work;       /* work of the panels that the host has factored (routines.def) */
    size_t blocks;          /* blocks of columns that were on the device one after the other */
};

/* Factor on the device. CLB_OK: everything is written. Otherwise the matrix is intact beyond
 * columns_written, and when that is not 0 clb_getrf_resume must finish the factorisation. */
clb_status clb_getrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_getrf_result *result) CLB_MUST_CHECK;

/* Finish on the CPU what clb_getrf_run has left. */
void clb_getrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_getrf_result *result);

/* ---- geqrf.c --------------------------------------------------------------------------------- */

struct clb_geqrf_result {
    void *tau;              /* min(m, n) elements of private memory, since A may still be intact */
    size_t columns_written; /* of A, from the left: final, all others are untouched */
    const char *kernel;     /* of the updates, for reports */
    double host_work;       /* work of the panels that the host has factored (routines.def) */
};

/* Factor on the device. CLB_OK: everything is written. Otherwise the matrix is intact beyond
 * columns_written, and when that is not 0 clb_geqrf_resume must finish the factorisation. */
clb_status clb_geqrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_geqrf_result *result) CLB_MUST_CHECK;

/* Finish on the CPU what clb_geqrf_run has left. With w columns written and k = min(w, m): A2 =
 * H(k)^H*...*H(1)^H*A2 for the columns A2 that are not written, then their rows from k on are
 * factored. */
void clb_geqrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_geqrf_result *result);

/* ---- ormqr.c --------------------------------------------------------------------------------- */

/* Like clb_trsm_run; the parts are blocks of columns (left) or rows (right) of C. */
clb_status clb_ormqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call,
                         struct clb_gemm_progress *progress) CLB_MUST_CHECK;
/* ---- orgqr.c --------------------------------------------------------------------------------- */

struct clb_orgqr_result {
    size_t columns_left; /* of A, from the left: untouched, all others are final */
    const char *kernel;
};

/* Column j of the result depends on reflectors 1 ... j only. So columns are written from right to
 * left, and what a failure leaves is a call of the same kind, clb_orgqr_rest. */
clb_status clb_orgqr_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call,
                         struct clb_orgqr_result *result) CLB_MUST_CHECK;
struct clb_call clb_orgqr_rest(const struct clb_call *call, const struct clb_orgqr_result *result);

/* ---- rhs_blocks.c: xGETRS -------------------------------------------------------------------- */

/* Like clb_trsm_run; the parts are blocks of columns of B. */
clb_status clb_getrs_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call,
                         struct clb_gemm_progress *progress) CLB_MUST_CHECK;
/* ---- getrf.c: xGESV -------------------------------------------------------------------------- */

/* Run clb_getrf_run and, unless A is singular, clb_getrs_run with the factors; `call` is xGESV's.
 * After a failure the factorisation is complete if columns_written = n; otherwise nothing of B is
 * written. The parts of *progress are blocks of columns of B, none where A is singular; the caller
 * frees it. */
clb_status clb_gesv_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                        const struct clb_call *call, const struct clb_host_blas *next,
                        struct clb_getrf_result *result,
                        struct clb_gemm_progress *progress) CLB_MUST_CHECK;

/* ---- getri.c --------------------------------------------------------------------------------- */

/* Invert on the device; no diagonal element of U is zero. Unless this returns CLB_OK, A is intact.
 * *kernel is for reports. */
clb_status clb_getri_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const char **kernel) CLB_MUST_CHECK;

/* ---- potrf.c --------------------------------------------------------------------------------- */

struct clb_potrf_result {
    size_t info;            /* 0, or the first column (1-based) whose pivot is not positive */
    size_t columns_written; /* of A, from the left: final, all others are untouched */
    const char *kernel;     /* of the updates, for reports */
    double host_work;       /* work of the panels that the host has factored (routines.def) */
};

/* Factor on the device. CLB_OK: all columns are written, or info is set and the first info - 1
 * columns are. Otherwise the matrix is intact beyond columns_written, and when that is not 0
 * clb_potrf_resume must finish the factorisation. */
clb_status clb_potrf_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call, const struct clb_host_blas *next,
                         struct clb_potrf_result *result) CLB_MUST_CHECK;

/* Finish on the CPU what clb_potrf_run has left. */
void clb_potrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_potrf_result *result);

/* ---- rhs_blocks.c: xPOTRS -------------------------------------------------------------------- */

/* Like clb_trsm_run; the parts are blocks of columns of B. */
clb_status clb_potrs_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         const struct clb_call *call,
                         struct clb_gemm_progress *progress) CLB_MUST_CHECK;
/* ---- inverse.c ------------------------------------------------------------------------------- */

/* xTRTRI, xLAUUM and xPOTRI on the device; a triangle that is inverted has no zero on its diagonal.
 * Unless this returns CLB_OK, A is intact. CLB_ERR_RANGE: the result is not
 * finite. *kernel is for reports. */
clb_status clb_inverse_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_call *call, const char **kernel) CLB_MUST_CHECK;

#endif
