/* xSYMM and xHEMM: Fortran and CBLAS names.
 *
 *   C = alpha*A*B + beta*C (side L, A of order m) or C = alpha*B*A + beta*C (side R, of order n)
 *
 * A is symmetric or Hermitian, of which one triangle is stored; B and C are m x n.
 *
 * Source: Reference BLAS xSYMM, xHEMM; CBLAS cblas_xsymm, cblas_xhemm (BLAS Technical Forum
 * standard, 2.8). */
#include "next.h"

/* As routines.def has it: k is the order of A. */
CLB_INLINE double work(bool right, int64_t m, int64_t n)
{
    return clb_work_symm((double)m, (double)n, (double)(right ? n : m));
}

/* ---- Fortran --------------------------------------------------------------------------------- */

#define FORTRAN_PARAMETERS                                                                         \
    const char *side, const char *uplo, const void *m, const void *n, const void *alpha,           \
        const void *a, const void *lda, const void *b, const void *ldb, const void *beta, void *c, \
        const void *ldc
#define FORTRAN_ARGUMENTS    side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc
#define FORTRAN_LENGTH_TYPES size_t, size_t
#define FORTRAN_LENGTHS      1, 1
#define FORTRAN_WORK(wide)   work((*side & 0xdf) == 'R', clb_int(m, wide), clb_int(n, wide))
#define FORTRAN_ROUTINES(X)                                                                        \
    CLB_FORMS_FORTRAN(X, ssymm)                                                                    \
    CLB_FORMS_FORTRAN(X, dsymm)                                                                    \
    CLB_FORMS_FORTRAN(X, csymm)                                                                    \
    CLB_FORMS_FORTRAN(X, zsymm)                                                                    \
    CLB_FORMS_FORTRAN(X, chemm)                                                                    \
    CLB_FORMS_FORTRAN(X, zhemm)

static void symm_next_fortran(const struct clb_target *target, const struct clb_blas3 *p);

static bool route_fortran(struct clb_symbol *symbol, const struct clb_target *target,
                          const void *caller, FORTRAN_PARAMETERS)
{
    const bool wide = target->ilp64;
    const struct clb_next_blas3 next =
        clb_next_blas3_for(symbol, target, caller, symm_next_fortran);
    struct clb_blas3_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .alpha = alpha,
                    .a = a,
                    .b = b,
                    .beta = beta,
                    .c = c},
        .m = clb_int(m, wide),
        .n = clb_int(n, wide),
        .lda = clb_int(lda, wide),
        .ldb = clb_int(ldb, wide),
        .ldc = clb_int(ldc, wide),
        .options_valid = true,
    };
    call.problem.right = clb_is_letter(*side, 'R', 'L', &call.options_valid);
    call.problem.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    call.k = call.problem.right ? call.n : call.m;
    return clb_route_blas3(symbol, &call, &next);
}

#include "blas_fortran.t.h"

static void symm_next_fortran(const struct clb_target *target, const struct clb_blas3 *p)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target),
                            ldb = clb_integer_for(p->ldb, target),
                            ldc = clb_integer_for(p->ldc, target);
    ((fortran_lengths *)target->function)(p->right ? "R" : "L", p->upper ? "U" : "L", &m, &n,
                                          p->alpha, p->a, &lda, p->b, &ldb, p->beta, p->c, &ldc, 1,
                                          1);
}

/* ---- C --------------------------------------------------------------------------------------- */

#define C_PARAMETERS(ALPHA, BETA)                                                                  \
    int layout, int side, int uplo, int64_t m, int64_t n, ALPHA alpha, const void *a, int64_t lda, \
        const void *b, int64_t ldb, BETA beta, void *c, int64_t ldc
#define C_ARGUMENTS(alpha, beta) layout, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc
#define C_WORK(wide)             work(side == CLB_RIGHT, clb_c_int(m, wide), clb_c_int(n, wide))
#define C_PROBLEM                struct clb_blas3
#define C_NEXT_ARGUMENTS(alpha, beta)                                                              \
    CLB_COL_MAJOR, clb_cblas_of_side(p->right), clb_cblas_of_uplo(p->upper), (int64_t)p->m,        \
        (int64_t)p->n, alpha, p->a, (int64_t)p->lda, p->b, (int64_t)p->ldb, beta, p->c,            \
        (int64_t)p->ldc
#define C_ROUTINES_float(X)  CLB_FORMS_C(X, ssymm)
#define C_ROUTINES_double(X) CLB_FORMS_C(X, dsymm)
#define C_ROUTINES_complex(X)                                                                      \
    CLB_FORMS_C(X, csymm)                                                                          \
    CLB_FORMS_C(X, zsymm)                                                                          \
    CLB_FORMS_C(X, chemm)                                                                          \
    CLB_FORMS_C(X, zhemm)

/* Read as column-major, the memory of a row-major call has B^T, C^T and A^T. A^T is symmetric or
 * Hermitian too, and its other triangle is stored: so this is the same call with the other side. */
static bool route_c(struct clb_symbol *symbol, const struct clb_target *target, const void *caller,
                    clb_next_own call_own, C_PARAMETERS(const void *, const void *))
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    const struct clb_next_blas3 next = clb_next_blas3_for(symbol, target, caller, call_own);
    struct clb_blas3_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .alpha = alpha,
                    .a = a,
                    .b = b,
                    .beta = beta,
                    .c = c},
        .m = clb_c_int(row_major ? n : m, wide),
        .n = clb_c_int(row_major ? m : n, wide),
        .lda = clb_c_int(lda, wide),
        .ldb = clb_c_int(ldb, wide),
        .ldc = clb_c_int(ldc, wide),
        .options_valid = row_major || layout == CLB_COL_MAJOR,
    };
    call.problem.right = clb_is_option(side, CLB_RIGHT, CLB_LEFT, &call.options_valid) != row_major;
    call.problem.upper =
        clb_is_option(uplo, CLB_UPPER, CLB_LOWER, &call.options_valid) != row_major;
    call.k = call.problem.right ? call.n : call.m;
    return clb_route_blas3(symbol, &call, &next);
}

#define CLB_KIND float
#include "blas_c.t.h"
#define CLB_KIND double
#include "blas_c.t.h"
#define CLB_KIND complex
#include "blas_c.t.h"
