/* route: decides where a call is computed. Recursion guard, policy, outcome, recovery, statistics.
 *
 * A call is *declined* (the interface then calls the next library with the original arguments), or
 * it has been computed: on the device, or recovered by the next library after the device failed. */
#ifndef CLB_ROUTE_H
#define CLB_ROUTE_H

#include "gemm/gemm.h"
#include "lapack/lapack.h"
#include "next/next.h"

/* ---- route.c: what is the same for all routines ---------------------------------------------- */

typedef enum clb_reason {
#define CLB_REASON(id, name) CLB_REASON_##id,
#include "route/reasons.def"
#undef CLB_REASON
    CLB_REASONS
} clb_reason;

clb_work clb_routine_work(clb_routine routine);
const char *clb_reason_name(clb_reason reason);

/* Read the configuration and set every symbol's min_work; idempotent. Called by the slow path. */
void clb_route_configure(void);

/* ---- the routines, a file for each -----------------------------------------------------------
 *
 * The interface has decoded the call. Integers are as the caller passed them; a call with an option
 * ..._INVALID or an unknown layout is declined as `invalid`. The problem's sizes are not yet set.
 *
 * True: the call has been computed. False: it is declined; call the next library, between
 * clb_next_begin and clb_next_end. */
#define CLB_OP_INVALID ((clb_op)-1)

/* gemm.c: xGEMM */

struct clb_gemm_call {
    struct clb_gemm problem; /* pointers, ops and precision; sizes are set from the next line */
    int64_t m, n, k, lda, ldb, ldc;
    bool layout_valid;
};

/* Computes one column-major problem with the next library. */
typedef void (*clb_next_gemm)(const struct clb_target *target, const struct clb_gemm *problem);

bool clb_route_gemm(struct clb_symbol *symbol, const struct clb_target *target,
                    struct clb_gemm_call *call, clb_next_gemm next);

/* trsm.c: xTRSM, and xTRMM, which has the same arguments */

struct clb_trsm_call {
    struct clb_trsm problem;
    int64_t m, n, lda, ldb;
    bool options_valid; /* layout, side, uplo, trans and diag */
};

typedef void (*clb_next_trsm)(const struct clb_target *target, const struct clb_trsm *problem);

bool clb_route_trsm(struct clb_symbol *symbol, const struct clb_target *target,
                    struct clb_trsm_call *call, clb_next_trsm next);

/* blas3.c: xSYMM, xHEMM, xSYRK, xHERK, xSYR2K, xHER2K, xGEMMTR */

struct clb_blas3_call {
    struct clb_blas3 problem; /* sizes are set from the next line */
    int64_t m, n, k, lda, ldb, ldc;
    bool options_valid; /* layout, side and uplo */
};

typedef void (*clb_next_own)(const struct clb_target *target, const struct clb_blas3 *problem);

/* The next library's functions of one form for one caller. */
struct clb_next_blas3 {
    const struct clb_target *own, *gemm; /* gemm NULL: not found in the caller's integer width */
    clb_next_own call_own;               /* NULL: compute xGEMMTR by calls of `gemm` */
    clb_next_gemm call_gemm;
};

bool clb_route_blas3(struct clb_symbol *symbol, struct clb_blas3_call *call,
                     const struct clb_next_blas3 *next);

/* For decoding row-major calls: the op with which the routine (xSYRK, ...) computes the same when
 * the memory is read as column-major; CLB_OP_INVALID when the routine does not accept `op`. */
clb_op clb_blas3_op_in_rows(clb_routine routine, clb_op op);
bool clb_blas3_is_hermitian(clb_routine routine);

/* The scalar at `value`, of the precision or, with `real`, of its real type. */
clb_scalar clb_scalar_get(clb_precision precision, bool real, const void *value);
clb_scalar clb_scalar_conjugate(clb_precision precision, clb_scalar scalar);

/* Compute a declined call of xGEMMTR by the next library's xGEMM, and return 0. When an argument is
 * wrong, return the position of the first such argument in Fortran's list. */
int clb_route_compose_gemmtr(struct clb_blas3_call *call, const struct clb_next_blas3 *next);

/* ---- lapacke.c: what LAPACKE does in addition to a Fortran call -------------------------------
 *
 * LAPACKE takes row-major matrices and checks its input for NaN. The call is routed as the Fortran
 * call: while it is computed, its pointer to a row-major matrix is replaced by a pointer to a
 * column-major copy. */

typedef enum clb_lapacke_use {
    CLB_LAPACKE_KEPT, /* not copied: the call takes a row-major matrix as it is */
    CLB_LAPACKE_IN,
    CLB_LAPACKE_INOUT
} clb_lapacke_use;

struct clb_lapacke_matrix {
    clb_lapacke_use use;
    bool conjugated; /* the copy is the conjugate */
    char part;       /* the part that is checked for NaN, as in clb_has_nan */
    int64_t rows, cols, ld;
    void **at;         /* the pointer in the call */
    int64_t ld_copied; /* leading dimension of the copy */
    void *callers;     /* the caller's matrix while *at points to the copy */
};

struct clb_lapacke {
    clb_precision precision;
    bool by_rows, checks; /* row-major; check the input for NaN */
    size_t count;
    struct clb_lapacke_matrix matrix[3];
};

/* Called when the next library has returned from a declined call. */
void clb_route_end_declined(void);

/* ---- LAPACK ---------------------------------------------------------------------------------- */

/* The next library's functions for one precision and caller, and how to call them. Their integers
 * have the same width as the caller's. */
struct clb_next_lapack {
    /* NULL: no function with that integer width */
    const struct clb_target *getrf, *getrs, *getri, *potrf, *potrs, *trsm, *gemm;
    const struct clb_target *potri, *trtri, *lauum;
    /* ipiv has room for min(m, n) 64-bit integers; the target's pivots are widened to them */
    size_t (*call_getrf)(const struct clb_target *target, const struct clb_getrf *problem,
                         int64_t *ipiv);
    /* ipiv: the caller's array */
    void (*call_getrs)(const struct clb_target *target, const struct clb_getrs *problem,
                       const void *ipiv);
    /* ipiv: the caller's array; lwork of -1 is a workspace query. Returns info >= 0 */
    size_t (*call_getri)(const struct clb_target *target, const struct clb_getri *problem,
                         const void *ipiv, void *work, int64_t lwork);
    /* Returns info >= 0. */
    size_t (*call_potrf)(const struct clb_target *target, const struct clb_potrf *problem);
    void (*call_potrs)(const struct clb_target *target, const struct clb_potrs *problem);
    /* `target` is the one of the problem's routine. Returns info >= 0. */
    size_t (*call_inverse)(const struct clb_target *target, const struct clb_inverse *problem);
    clb_next_trsm call_trsm;
    clb_next_gemm call_gemm;
};

/* LU: getrf.c, getrs.c, getri.c, gesv.c */

/* A call of xGETRF, xGETRS, xGETRI or xGESV: A is m x n or of order n, B has nrhs columns. */
struct clb_lu_call {
    struct clb_lapacke *lapacke; /* NULL: a Fortran name */
    clb_precision precision;
    clb_op trans; /* getrs */
    int64_t m, n, nrhs, lda, ldb;
    void *a, *b;
    void *ipiv, *info; /* Fortran integers, 64-bit ones if `wide` */
    void *work;        /* getri: lwork elements; NULL: the caller passes no workspace */
    int64_t lwork;
    bool wide;
};

bool clb_route_getrf(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_getrs(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_getri(struct clb_symbol *symbol, const struct clb_lu_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_gesv(struct clb_symbol *symbol, const struct clb_lu_call *call,
                    const struct clb_next_lapack *next);

/* Cholesky, and inverses of triangles: potrf.c, potrs.c, posv.c, inverse.c */

/* A call of xPOTRF, xPOTRS, xPOSV, xPOTRI, xLAUUM or xTRTRI: A has order n, B nrhs columns. */
struct clb_chol_call {
    struct clb_lapacke *lapacke; /* NULL: a Fortran name */
    clb_precision precision;
    bool upper, options_valid; /* uplo and diag */
    bool unit;                 /* trtri */
    int64_t n, nrhs, lda, ldb;
    void *a, *b;
    void *info; /* a Fortran integer, a 64-bit one if `wide` */
    bool wide;
};

bool clb_route_potrf(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_potrs(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_posv(struct clb_symbol *symbol, const struct clb_chol_call *call,
                    const struct clb_next_lapack *next);
bool clb_route_potri(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_lauum(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next);
bool clb_route_trtri(struct clb_symbol *symbol, const struct clb_chol_call *call,
                     const struct clb_next_lapack *next);

/* ---- QR: geqrf.c, ormqr.c, orgqr.c ----------------------------------------------------------- */

/* The next library's functions for one precision and caller, and how to call them. Their integers
 * have the same width as the caller's; `work` is the caller's workspace. */
struct clb_next_qr {
    const struct clb_target *geqrf, *geqrt, *ormqr, *orgqr; /* NULL: not found in that width */
    void (*call_geqrf)(const struct clb_target *target, const struct clb_geqrf *problem, void *tau,
                       void *work, int64_t lwork);
    /* Computes the results of xGEQRF; false: no memory for it, and nothing was done. */
    bool (*call_geqrt)(const struct clb_target *target, const struct clb_geqrf *problem, void *tau);
    void (*call_ormqr)(const struct clb_target *target, const struct clb_ormqr *problem, void *work,
                       int64_t lwork);
    void (*call_orgqr)(const struct clb_target *target, const struct clb_orgqr *problem, void *work,
                       int64_t lwork);
};

/* A call of xGEQRF, xORMQR or xORGQR. After it has been computed the interface sets WORK(1) and
 * INFO. */
struct clb_qr_call {
    struct clb_lapacke *lapacke; /* NULL: a Fortran name */
    clb_precision precision;
    bool right; /* this and the next two: ormqr */
    clb_op trans;
    bool options_valid;
    int64_t m, n, k, lda, ldc, lwork;
    void *a, *tau, *c, *work;
};

bool clb_route_geqrf(struct clb_symbol *symbol, const struct clb_qr_call *call,
                     const struct clb_next_qr *next);
bool clb_route_ormqr(struct clb_symbol *symbol, const struct clb_qr_call *call,
                     const struct clb_next_qr *next);
bool clb_route_orgqr(struct clb_symbol *symbol, const struct clb_qr_call *call,
                     const struct clb_next_qr *next);

/* ---- stats.c --------------------------------------------------------------------------------- */

/* True when calls are to be counted and timed. */
bool clb_stats_wanted(void);
void clb_stats_configure(void);
/* True when any call was counted. */
bool clb_stats_any(void);

void clb_stats_declined(const struct clb_symbol *symbol, clb_reason reason, double flops);
void clb_stats_computed(const struct clb_symbol *symbol, const char *kernel, bool recovered,
                        double flops, double flops_device, double seconds_device,
                        double seconds_next);

/* Called before and after a declined call when clb_stats_wanted(). Only a time is kept meanwhile,
 * so nothing leaks when the next library's xerbla_ jumps out of the call. */
double clb_next_begin(void);
void clb_next_end(const struct clb_symbol *symbol, double begin);

/* The report as JSON, in the format that docs/report.md defines, and as a table to be read. */
void clb_stats_format_json(struct clb_text *text);
void clb_stats_format_table(struct clb_text *text);

/* ---- report.c: the file at exit -------------------------------------------------------------- */

/* Remember the directory that a relative CLBLAS_SHIM_STATS refers to. */
void clb_report_configure(void);

#endif
