/* route: which call goes where. Guard, policy, outcome, recovery, statistics.
 *
 * A call is *declined* (the interface then calls the next library with the original arguments), or
 * it has been computed: on the device, or recovered by the next library after the device failed. */
#ifndef CLB_ROUTE_H
#define CLB_ROUTE_H

#include "algo/algo.h"
#include "algo/lapack.h"
#include "algo/level3.h"
#include "next/next.h"
#include "route/forms.h"

/* ---- symbols.c: the exported names ----------------------------------------------------------- */

typedef enum clb_routine {
#define CLB_ROUTINE(name, precision, library, work) CLB_ROUTINE_##name,
#include "route/routines.def"
#undef CLB_ROUTINE
    CLB_ROUTINES
} clb_routine;

typedef enum clb_symbol_id {
#define CLB_SYMBOL_ENUM(routine, form, prefix, suffix, abi, ilp64) CLB_SYMBOL_##routine##_##form,
#define CLB_ROUTINE(name, precision, library, work)                CLB_FORMS_##library(CLB_SYMBOL_ENUM, name)
#include "route/routines.def"
#undef CLB_ROUTINE
#undef CLB_SYMBOL_ENUM
    CLB_SYMBOLS
} clb_symbol_id;

/* The forms of forms.h; Fortran's come first, in the same order, for every routine. */
typedef enum clb_form {
#define CLB_FORM_ENUM(routine, form, prefix, suffix, abi, ilp64) CLB_FORM_##form,
    CLB_FORMS_BLAS(CLB_FORM_ENUM, any) CLB_FORMS_LAPACK_C(CLB_FORM_ENUM, any)
#undef CLB_FORM_ENUM
        CLB_FORMS
} clb_form;

struct clb_symbol {
    struct clb_next_symbol next;
    _Atomic double min_work; /* work below this is declined without another look; -inf: none is */
    clb_routine routine;
    clb_form form;
};

/* Hidden, one row for each name; the fast path of the interface reads it. */
extern struct clb_symbol clb_symbols[CLB_SYMBOLS];

struct clb_routine_info {
    const char *name;
    clb_precision precision;
    double (*work)(double m, double n, double k);
    clb_symbol_id symbol; /* its plain name; the others follow in the order of forms.h */
};

/* The work formulas, clb_work_dgemm(m, n, k), for the interface's fast path. */
#define CLB_ROUTINE(name, precision, library, work)                                                \
    static inline double clb_work_##name(double m, double n, double k)                             \
    {                                                                                              \
        return (void)m, (void)n, (void)k, (work);                                                  \
    }
#include "route/routines.def"
#undef CLB_ROUTINE

/* Floating-point operations for each of work. */
static inline double clb_flops_per_work(clb_precision precision)
{
    return clb_precision_parts(precision) == 2 ? 8 : 2;
}

const struct clb_routine_info *clb_routine_get(clb_routine routine);
clb_work clb_routine_work(clb_routine routine);

/* A name's number among its routine's, and another routine's name of the same form: dtrsm_64_ for
 * dgemm_64_. */
size_t clb_symbol_form(const struct clb_symbol *symbol);
struct clb_symbol *clb_symbol_same_abi(const struct clb_symbol *symbol, clb_routine routine);

/* ---- route.c: what is the same for all routines ---------------------------------------------- */

typedef enum clb_reason {
#define CLB_REASON(id, name) CLB_REASON_##id,
#include "route/reasons.def"
#undef CLB_REASON
    CLB_REASONS
} clb_reason;

const char *clb_reason_name(clb_reason reason);

/* Read the configuration and open the gates; idempotent. Called by the slow path. */
void clb_route_configure(void);

/* ---- the routines, a file for each -----------------------------------------------------------
 *
 * Calls come decoded. Integers are as the caller gave them; an option of ..._INVALID or a layout
 * that does not exist makes a call `invalid`. The problem's sizes are not yet set.
 *
 * True: the call has been computed. False: it is declined; call the next library, between
 * clb_next_begin and clb_next_end. */
#define CLB_OP_INVALID ((clb_op)-1)

/* gemm.c: xGEMM */

struct clb_gemm_call {
    struct clb_gemm problem; /* pointers, ops and precision; sizes are taken from below */
    int64_t m, n, k, lda, ldb, ldc;
    bool layout_valid;
};

/* Computes one column-major problem by the next library. */
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

/* Arguments as BLAS names them: of xSYRK and so on transa is TRANS and m is n. Alpha and beta are
 * of the types that the routine has, real ones for xHERK, and xHER2K's beta. */
struct clb_blas3 {
    clb_precision precision;
    bool right, upper;
    clb_op transa, transb;
    size_t m, n, k;
    const void *alpha, *a, *b, *beta;
    void *c;
    size_t lda, ldb, ldc;
};

struct clb_blas3_call {
    struct clb_blas3 problem; /* sizes are taken from below */
    int64_t m, n, k, lda, ldb, ldc;
    bool options_valid; /* layout, side and uplo */
};

typedef void (*clb_next_own)(const struct clb_target *target, const struct clb_blas3 *problem);

/* The next library's functions of one form for one caller. */
struct clb_next_blas3 {
    const struct clb_target *own, *gemm; /* gemm NULL: not found in the caller's integer width */
    clb_next_own call_own;               /* NULL: xGEMMTR is to be composed of products */
    clb_next_gemm call_gemm;
};

bool clb_route_blas3(struct clb_symbol *symbol, struct clb_blas3_call *call,
                     const struct clb_next_blas3 *next);

/* For decoding row-major calls. The op with which the routine, xSYRK and so on, computes the same
 * from the memory's columns; CLB_OP_INVALID when it does not take this one. */
clb_op clb_blas3_op_in_rows(clb_routine routine, clb_op op);
bool clb_blas3_is_hermitian(clb_routine routine);

/* The scalar at `value`: of the precision, or of its real type. */
clb_scalar clb_scalar_get(clb_precision precision, bool real, const void *value);
clb_scalar clb_scalar_conjugate(clb_precision precision, clb_scalar scalar);

/* A declined call of xGEMMTR from the next library's products. Otherwise an argument is wrong, and
 * the result is the first one's position in Fortran's list. */
int clb_route_compose_gemmtr(struct clb_blas3_call *call, const struct clb_next_blas3 *next);

/* ---- lapacke.c: what a C name of LAPACK adds to a call ---------------------------------------
 *
 * Matrices by rows, and input that is searched for NaN. The call that is routed is Fortran's: while
 * it is computed, its pointer to a matrix by rows is one to a copy by columns. */

typedef enum clb_lapacke_use {
    CLB_LAPACKE_KEPT, /* the call takes it as it is */
    CLB_LAPACKE_IN,
    CLB_LAPACKE_INOUT
} clb_lapacke_use;

struct clb_lapacke_matrix {
    clb_lapacke_use use;
    bool conjugated; /* the copy is the conjugate */
    char part;       /* what is searched for NaN, as clb_has_nan has it */
    int64_t rows, cols, ld;
    void **at;         /* the call's pointer */
    int64_t ld_copied; /* of the copy */
    void *callers;     /* while *at is a copy */
};

struct clb_lapacke {
    clb_precision precision;
    bool by_rows, checks; /* for NaN */
    size_t count;
    struct clb_lapacke_matrix matrix[3];
};

/* A call that was declined has returned from the next library. */
void clb_route_end_declined(void);

/* ---- LAPACK ---------------------------------------------------------------------------------- */

/* The next library's functions for one precision and caller, and how to call them. Their integers
 * have the width of the caller's. */
struct clb_next_lapack {
    /* NULL: none of that width */
    const struct clb_target *getrf, *getrs, *getri, *potrf, *potrs, *trsm, *gemm;
    const struct clb_target *potri, *trtri, *lauum;
    /* ipiv has room for min(m, n) 64-bit integers and gets them from the target's */
    size_t (*call_getrf)(const struct clb_target *target, const struct clb_getrf *problem,
                         int64_t *ipiv);
    /* ipiv as the caller has it */
    void (*call_getrs)(const struct clb_target *target, const struct clb_getrs *problem,
                       const void *ipiv);
    /* ipiv as the caller has it; lwork of -1 asks for the size only. Returns info >= 0 */
    size_t (*call_getri)(const struct clb_target *target, const struct clb_getri *problem,
                         const void *ipiv, void *work, int64_t lwork);
    /* Returns info >= 0. */
    size_t (*call_potrf)(const struct clb_target *target, const struct clb_potrf *problem);
    void (*call_potrs)(const struct clb_target *target, const struct clb_potrs *problem);
    /* The target is that of the problem's routine. Returns info >= 0. */
    size_t (*call_inverse)(const struct clb_target *target, const struct clb_inverse *problem);
    clb_next_trsm call_trsm;
    clb_next_gemm call_gemm;
};

/* LU: getrf.c, getrs.c, getri.c, gesv.c */

/* xGETRF, xGETRS, xGETRI and xGESV are calls of one shape: A is m x n or of order n, B has nrhs
 * columns. */
struct clb_lu_call {
    struct clb_lapacke *lapacke; /* NULL: a Fortran name */
    clb_precision precision;
    clb_op trans; /* getrs */
    int64_t m, n, nrhs, lda, ldb;
    void *a, *b;
    void *ipiv, *info; /* Fortran integers, 64-bit ones if `wide` */
    void *work;        /* getri's, of lwork elements; NULL: the caller brings none */
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

/* xPOTRF, xPOTRS, xPOSV, xPOTRI, xLAUUM and xTRTRI are calls of one shape: A is of order n, B has
 * nrhs columns. */
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
 * have the width of the caller's; `work` is the caller's workspace. */
struct clb_next_qr {
    const struct clb_target *geqrf, *geqrt, *ormqr, *orgqr; /* NULL: not found in that width */
    void (*call_geqrf)(const struct clb_target *target, const struct clb_geqrf *problem, void *tau,
                       void *work, int64_t lwork);
    /* The results of xGEQRF; false: there is no memory, and nothing was done. */
    bool (*call_geqrt)(const struct clb_target *target, const struct clb_geqrf *problem, void *tau);
    void (*call_ormqr)(const struct clb_target *target, const struct clb_ormqr *problem, void *work,
                       int64_t lwork);
    void (*call_orgqr)(const struct clb_target *target, const struct clb_orgqr *problem, void *work,
                       int64_t lwork);
};

/* xGEQRF, xORMQR and xORGQR. WORK(1) and INFO of a call that has been computed are the interface's.
 */
struct clb_qr_call {
    struct clb_lapacke *lapacke; /* NULL: a Fortran name */
    clb_precision precision;
    bool right; /* ormqr, and the next two */
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

/* True when calls are counted and timed. */
bool clb_stats_wanted(void);
void clb_stats_configure(void);
/* True when anything was counted. */
bool clb_stats_any(void);

void clb_stats_declined(const struct clb_symbol *symbol, clb_reason reason, double flops);
void clb_stats_computed(const struct clb_symbol *symbol, const char *kernel, bool recovered,
                        double flops, double flops_device, double seconds_device,
                        double seconds_next);

/* Around a declined call when clb_stats_wanted(): plain values, so that a next library whose
 * xerbla_ jumps out of the call leaves nothing behind. */
double clb_next_begin(void);
void clb_next_end(const struct clb_symbol *symbol, double begin);

/* The report as JSON, as the README defines it, and as a table for people. */
void clb_stats_format_json(struct clb_text *text);
void clb_stats_format_table(struct clb_text *text);

/* ---- report.c: the file at exit -------------------------------------------------------------- */

/* Remember where a relative CLBLAS_SHIM_STATS is. */
void clb_report_configure(void);

#endif
