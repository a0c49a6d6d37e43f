/* xSYRK and xHERK: Fortran and CBLAS names.
 *
 *   C = alpha*A*A^T + beta*C (trans N) or C = alpha*A^T*A + beta*C (trans T), for xHERK ^H and C
 *
 * C is n x n, of which one triangle is computed; A is n x k or k x n. xHERK's scalars are real.
 *
 * Source: Reference BLAS xSYRK, xHERK; CBLAS cblas_xsyrk, cblas_xherk (BLAS Technical Forum
 * standard, 2.8). */
#include "next.h"

/* ---- Fortran --------------------------------------------------------------------------------- */

#define FORTRAN_PARAMETERS                                                                         \
    const char *uplo, const char *trans, const void *n, const void *k, const void *alpha,          \
        const void *a, const void *lda, const void *beta, void *c, const void *ldc
#define FORTRAN_ARGUMENTS    uplo, trans, n, k, alpha, a, lda, beta, c, ldc
#define FORTRAN_LENGTH_TYPES size_t, size_t
#define FORTRAN_LENGTHS      1, 1
#define FORTRAN_WORK(wide)                                                                         \
    clb_work_syrk((double)clb_int(n, wide), (double)clb_int(n, wide), (double)clb_int(k, wide))
#define FORTRAN_ROUTINES(X)                                                                        \
    CLB_FORMS_FORTRAN(X, ssyrk)                                                                    \
    CLB_FORMS_FORTRAN(X, dsyrk)                                                                    \
    CLB_FORMS_FORTRAN(X, csyrk)                                                                    \
    CLB_FORMS_FORTRAN(X, zsyrk)                                                                    \
    CLB_FORMS_FORTRAN(X, cherk)                                                                    \
    CLB_FORMS_FORTRAN(X, zherk)

static void syrk_next_fortran(const struct clb_target *target, const struct clb_blas3 *p);

static bool route_fortran(struct clb_symbol *symbol, const struct clb_target *target,
                          const void *caller, FORTRAN_PARAMETERS)
{
    const bool wide = target->ilp64;
    const struct clb_next_blas3 next =
        clb_next_blas3_for(symbol, target, caller, syrk_next_fortran);
    struct clb_blas3_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .transa = clb_op_of_letter(*trans),
                    .alpha = alpha,
                    .a = a,
                    .beta = beta,
                    .c = c},
        .m = clb_int(n, wide),
        .n = clb_int(n, wide),
        .k = clb_int(k, wide),
        .lda = clb_int(lda, wide),
        .ldc = clb_int(ldc, wide),
        .options_valid = true,
    };
    call.problem.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    return clb_route_blas3(symbol, &call, &next);
}

#include "blas_fortran.t.h"

static void syrk_next_fortran(const struct clb_target *target, const struct clb_blas3 *p)
{
    const union clb_integer n = clb_integer_for(p->n, target), k = clb_integer_for(p->k, target),
                            lda = clb_integer_for(p->lda, target),
                            ldc = clb_integer_for(p->ldc, target);
    ((fortran_lengths *)target->function)(p->upper ? "U" : "L", clb_letter_of_op(p->transa), &n, &k,
                                          p->alpha, p->a, &lda, p->beta, p->c, &ldc, 1, 1);
}

/* ---- C --------------------------------------------------------------------------------------- */

#define C_PARAMETERS(ALPHA, BETA)                                                                  \
    int layout, int uplo, int trans, int64_t n, int64_t k, ALPHA alpha, const void *a,             \
        int64_t lda, BETA beta, void *c, int64_t ldc
#define C_ARGUMENTS(alpha, beta) layout, uplo, trans, n, k, alpha, a, lda, beta, c, ldc
#define C_WORK(wide)                                                                               \
    clb_work_syrk((double)clb_c_int(n, wide), (double)clb_c_int(n, wide),                          \
                  (double)clb_c_int(k, wide))
#define C_PROBLEM struct clb_blas3
#define C_NEXT_ARGUMENTS(alpha, beta)                                                              \
    CLB_COL_MAJOR, clb_cblas_of_uplo(p->upper), clb_cblas_of_op(p->transa), (int64_t)p->n,         \
        (int64_t)p->k, alpha, p->a, (int64_t)p->lda, beta, p->c, (int64_t)p->ldc
#define C_ROUTINES_float(X)                                                                        \
    CLB_FORMS_C(X, ssyrk)                                                                          \
    CLB_FORMS_C(X, cherk)
#define C_ROUTINES_double(X)                                                                       \
    CLB_FORMS_C(X, dsyrk)                                                                          \
    CLB_FORMS_C(X, zherk)
#define C_ROUTINES_complex(X)                                                                      \
    CLB_FORMS_C(X, csyrk)                                                                          \
    CLB_FORMS_C(X, zsyrk)

/* Read as column-major, the memory of a row-major call has A^T and C^T, whose other triangle is
 * stored. C^T is C if C is symmetric, conj(C) if it is Hermitian: so this is the same call with the
 * other op. */
static bool route_c(struct clb_symbol *symbol, const struct clb_target *target, const void *caller,
                    clb_next_own call_own, C_PARAMETERS(const void *, const void *))
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    const struct clb_next_blas3 next = clb_next_blas3_for(symbol, target, caller, call_own);
    const clb_op op = clb_op_of_cblas(trans);
    struct clb_blas3_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .transa = row_major ? clb_blas3_op_in_rows(symbol->routine, op) : op,
                    .alpha = alpha,
                    .a = a,
                    .beta = beta,
                    .c = c},
        .m = clb_c_int(n, wide),
        .n = clb_c_int(n, wide),
        .k = clb_c_int(k, wide),
        .lda = clb_c_int(lda, wide),
        .ldc = clb_c_int(ldc, wide),
        .options_valid = row_major || layout == CLB_COL_MAJOR,
    };
    call.problem.upper =
        clb_is_option(uplo, CLB_UPPER, CLB_LOWER, &call.options_valid) != row_major;
    return clb_route_blas3(symbol, &call, &next);
}

#define CLB_KIND float
#include "blas_c.t.h"
#define CLB_KIND double
#include "blas_c.t.h"
#define CLB_KIND complex
#include "blas_c.t.h"
