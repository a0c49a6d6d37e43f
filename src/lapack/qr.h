/* qr: what the files geqrf*.c share.
 *
 * Right-looking, blocked. Step k takes a panel of columns k ... k+w-1: the next library factors its
 * rows from k on, on the CPU; the device applies the block of reflectors, conjugate-transposed, to
 * the columns on the right (reflect.h). Nothing is done to a panel after its step.
 *
 * Nothing is written to the caller's matrix before the factorisation on the device is complete:
 * until then a failure means that the next library factors the intact matrix. The columns are
 * written back from left to right; a failure in it is what clb_geqrf_resume is for. */
#ifndef CLB_ALGO_QR_H
#define CLB_ALGO_QR_H

#include "dense/reflect.h"
#include "lapack.h"

struct clb_qr {
    struct clb_runtime *runtime;
    const struct clb_geqrf *problem;
    const struct clb_host_blas *next;
    struct clb_geqrf_result *result;
    size_t element, inner, nb; /* bytes; min(m, n) */
    struct clb_workspace workspace;
    struct clb_reflectors reflectors;
    struct clb_buffer *memory;
    struct clb_dmat x; /* m x n, there */
};

/* On failure only the close is left to do. */
clb_status clb_qr_open(struct clb_qr *qr, const struct clb_gemm_variant *variant,
                       clb_memory_kind kind) CLB_MUST_CHECK;
void clb_qr_close(struct clb_qr *qr, bool idle);

/* Columns of the panel that begins with column k, and its part of x. */
size_t clb_qr_width(const struct clb_qr *qr, size_t k);
struct clb_dmat clb_qr_panel(const struct clb_qr *qr, size_t k);

/* Have the panel that begins at (k, k) factored, from a copy whose first row is row k. */
void clb_qr_factor(const struct clb_qr *qr, size_t k, void *panel, size_t ld);

/* The step's work: once when its panel is there, then on columns [first, first + count). */
clb_status clb_qr_prepare(struct clb_qr *qr, size_t k) CLB_MUST_CHECK;
clb_status clb_qr_apply(struct clb_qr *qr, size_t k, size_t first, size_t count) CLB_MUST_CHECK;

clb_status clb_geqrf_run_shared(struct clb_qr *qr,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_geqrf_run_stream(struct clb_qr *qr,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;

#endif
