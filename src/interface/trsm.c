/* xTRSM and xTRMM: Fortran and CBLAS names.
 *
 *   xTRSM: op(A)*X = alpha*B (side L) or X*op(A) = alpha*B (side R), X overwrites B
 *   xTRMM: B = alpha*op(A)*B (side L) or B = alpha*B*op(A) (side R)
 *
 * B is m x n, A of order m (side L) or n (side R).
 *
 * Source: Reference BLAS xTRSM, xTRMM; CBLAS cblas_xtrsm, cblas_xtrmm (BLAS Technical Forum
 * standard, 2.8). */
#include "abi.h"

/* As routines.def has it: k is the order of A. */
CLB_INLINE double work(bool right, int64_t m, int64_t n)
{
    return clb_work_trsm((double)m, (double)n, (double)(right ? n : m));
}

/* ---- Fortran --------------------------------------------------------------------------------- */

#define FORTRAN_PARAMETERS                                                                         \
    const char *side, const char *uplo, const char *transa, const char *diag, const void *m,       \
        const void *n, const void *alpha, const void *a, const void *lda, void *b, const void *ldb
#define FORTRAN_ARGUMENTS    side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb
#define FORTRAN_LENGTH_TYPES size_t, size_t, size_t, size_t
#define FORTRAN_LENGTHS      1, 1, 1, 1
#define FORTRAN_WORK(wide)   work((*side & 0xdf) == 'R', clb_int(m, wide), clb_int(n, wide))
#define FORTRAN_ROUTINES(X)                                                                        \
    CLB_FORMS_FORTRAN(X, strsm)                                                                    \
    CLB_FORMS_FORTRAN(X, dtrsm)                                                                    \
    CLB_FORMS_FORTRAN(X, ctrsm)                                                                    \
    CLB_FORMS_FORTRAN(X, ztrsm)                                                                    \
    CLB_FORMS_FORTRAN(X, strmm)                                                                    \
    CLB_FORMS_FORTRAN(X, dtrmm)                                                                    \
    CLB_FORMS_FORTRAN(X, ctrmm)                                                                    \
    CLB_FORMS_FORTRAN(X, ztrmm)

static bool route_fortran(struct clb_symbol *symbol, const struct clb_target *target,
                          const void *caller, FORTRAN_PARAMETERS)
{
    const bool wide = target->ilp64;
    struct clb_trsm_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .trans = clb_op_of_letter(*transa),
                    .alpha = alpha,
                    .a = a,
                    .b = b},
        .m = clb_int(m, wide),
        .n = clb_int(n, wide),
        .lda = clb_int(lda, wide),
        .ldb = clb_int(ldb, wide),
        .options_valid = true,
    };
    call.problem.right = clb_is_letter(*side, 'R', 'L', &call.options_valid);
    call.problem.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    call.problem.unit = clb_is_letter(*diag, 'U', 'N', &call.options_valid);
    call.options_valid = call.options_valid && call.problem.trans != CLB_OP_INVALID;
    (void)caller;
    return clb_route_trsm(symbol, target, &call, clb_next_trsm_fortran);
}

#include "blas_fortran.t.h"

/* ---- C --------------------------------------------------------------------------------------- */

#define C_PARAMETERS(ALPHA, BETA)                                                                  \
    int layout, int side, int uplo, int transa, int diag, int64_t m, int64_t n, ALPHA alpha,       \
        const void *a, int64_t lda, void *b, int64_t ldb
#define C_ARGUMENTS(alpha, beta) layout, side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb
#define C_WORK(wide)             work(side == CLB_RIGHT, clb_c_int(m, wide), clb_c_int(n, wide))
#define C_PROBLEM                struct clb_trsm
#define C_NEXT_ARGUMENTS(alpha, beta)                                                              \
    CLB_COL_MAJOR, clb_cblas_of_side(p->right), clb_cblas_of_uplo(p->upper),                       \
        clb_cblas_of_op(p->trans), p->unit ? CLB_UNIT : CLB_NON_UNIT, (int64_t)p->m,               \
        (int64_t)p->n, alpha, p->a, (int64_t)p->lda, p->b, (int64_t)p->ldb
#define C_ROUTINES_float(X)                                                                        \
    CLB_FORMS_C(X, strsm)                                                                          \
    CLB_FORMS_C(X, strmm)
#define C_ROUTINES_double(X)                                                                       \
    CLB_FORMS_C(X, dtrsm)                                                                          \
    CLB_FORMS_C(X, dtrmm)
#define C_ROUTINES_complex(X)                                                                      \
    CLB_FORMS_C(X, ctrsm)                                                                          \
    CLB_FORMS_C(X, ztrsm)                                                                          \
    CLB_FORMS_C(X, ctrmm)                                                                          \
    CLB_FORMS_C(X, ztrmm)

/* Read as column-major, the memory of a row-major call has B^T and A^T, whose other triangle is
 * stored: so this is the same call with the other side. */
static bool route_c(struct clb_symbol *symbol, const struct clb_target *target, const void *caller,
                    clb_next_trsm next, C_PARAMETERS(const void *, const void *))
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    struct clb_trsm_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .trans = clb_op_of_cblas(transa),
                    .alpha = alpha,
                    .a = a,
                    .b = b},
        .m = clb_c_int(row_major ? n : m, wide),
        .n = clb_c_int(row_major ? m : n, wide),
        .lda = clb_c_int(lda, wide),
        .ldb = clb_c_int(ldb, wide),
        .options_valid = row_major || layout == CLB_COL_MAJOR,
    };
    call.problem.right = clb_is_option(side, CLB_RIGHT, CLB_LEFT, &call.options_valid) != row_major;
    call.problem.upper =
        clb_is_option(uplo, CLB_UPPER, CLB_LOWER, &call.options_valid) != row_major;
    call.problem.unit = clb_is_option(diag, CLB_UNIT, CLB_NON_UNIT, &call.options_valid);
    call.options_valid = call.options_valid && call.problem.trans != CLB_OP_INVALID;
    (void)caller;
    return clb_route_trsm(symbol, target, &call, next);
}

#define CLB_KIND float
#include "blas_c.t.h"
#define CLB_KIND double
#include "blas_c.t.h"
#define CLB_KIND complex
#include "blas_c.t.h"
