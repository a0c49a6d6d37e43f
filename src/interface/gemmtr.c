/* xGEMMTR, also called xGEMMT: Fortran and CBLAS names.
 *
 *   C = alpha*op(A)*op(B) + beta*C,  op(A) n x k, op(B) k x n, C n x n, of which one triangle is
 *   computed
 *
 * Libraries have it under one name, under both or not at all. Without it the shim computes it by
 * calls of xGEMM (route/blas3_next.c) and reports wrong arguments as the routine would (errors.c).
 *
 * Source: Reference BLAS 3.12.1 xGEMMTR, cblas_xgemmtr; OpenBLAS and MKL xGEMMT. */
#include "next.h"

/* The target is xGEMM, the second fallback in targets.c. */
#define IS_COMPOSED(target) ((target)->fallback == 2)

static struct clb_next_blas3 next_for(const struct clb_symbol *symbol,
                                      const struct clb_target *target, const void *caller,
                                      clb_next_own call_own)
{
    struct clb_next_blas3 next = clb_next_blas3_for(symbol, target, caller, call_own);
    if (IS_COMPOSED(target)) {
        next.gemm = target;
        next.call_own = NULL;
    }
    return next;
}

/* Compute a declined call by xGEMM where the library lacks the routine, and return 0; or return the
 * position of the first wrong argument in Fortran's list. */
static int compose(const struct clb_symbol *symbol, struct clb_blas3_call *call,
                   const struct clb_next_blas3 *next)
{
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    int wrong = clb_route_compose_gemmtr(call, next);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
    return wrong;
}

/* ---- Fortran --------------------------------------------------------------------------------- */

#define FORTRAN_PARAMETERS                                                                         \
    const char *uplo, const char *transa, const char *transb, const void *n, const void *k,        \
        const void *alpha, const void *a, const void *lda, const void *b, const void *ldb,         \
        const void *beta, void *c, const void *ldc
#define FORTRAN_ARGUMENTS    uplo, transa, transb, n, k, alpha, a, lda, b, ldb, beta, c, ldc
#define FORTRAN_LENGTH_TYPES size_t, size_t, size_t
#define FORTRAN_LENGTHS      1, 1, 1
#define FORTRAN_WORK(wide)                                                                         \
    clb_work_gemmtr((double)clb_int(n, wide), (double)clb_int(n, wide), (double)clb_int(k, wide))
#define FORTRAN_ROUTINES(X)                                                                        \
    CLB_FORMS_FORTRAN(X, sgemmtr)                                                                  \
    CLB_FORMS_FORTRAN(X, dgemmtr)                                                                  \
    CLB_FORMS_FORTRAN(X, cgemmtr)                                                                  \
    CLB_FORMS_FORTRAN(X, zgemmtr)                                                                  \
    CLB_FORMS_FORTRAN(X, sgemmt)                                                                   \
    CLB_FORMS_FORTRAN(X, dgemmt)                                                                   \
    CLB_FORMS_FORTRAN(X, cgemmt)                                                                   \
    CLB_FORMS_FORTRAN(X, zgemmt)

static void gemmtr_next_fortran(const struct clb_target *target, const struct clb_blas3 *p);

static bool route_fortran(struct clb_symbol *symbol, const struct clb_target *target,
                          const void *caller, FORTRAN_PARAMETERS)
{
    const bool wide = target->ilp64;
    const struct clb_next_blas3 next = next_for(symbol, target, caller, gemmtr_next_fortran);
    struct clb_blas3_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .transa = clb_op_of_letter(*transa),
                    .transb = clb_op_of_letter(*transb),
                    .alpha = alpha,
                    .a = a,
                    .b = b,
                    .beta = beta,
                    .c = c},
        .m = clb_int(n, wide),
        .n = clb_int(n, wide),
        .k = clb_int(k, wide),
        .lda = clb_int(lda, wide),
        .ldb = clb_int(ldb, wide),
        .ldc = clb_int(ldc, wide),
        .options_valid = true,
    };
    call.problem.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    if (clb_route_blas3(symbol, &call, &next))
        return true;
    if (!IS_COMPOSED(target))
        return false;
    int wrong = compose(symbol, &call, &next);
    if (wrong != 0)
        clb_report_argument(symbol, caller, wrong);
    return true;
}

#include "blas_fortran.t.h"

static void gemmtr_next_fortran(const struct clb_target *target, const struct clb_blas3 *p)
{
    const union clb_integer n = clb_integer_for(p->n, target), k = clb_integer_for(p->k, target),
                            lda = clb_integer_for(p->lda, target),
                            ldb = clb_integer_for(p->ldb, target),
                            ldc = clb_integer_for(p->ldc, target);
    ((fortran_lengths *)target->function)(p->upper ? "U" : "L", clb_letter_of_op(p->transa),
                                          clb_letter_of_op(p->transb), &n, &k, p->alpha, p->a, &lda,
                                          p->b, &ldb, p->beta, p->c, &ldc, 1, 1, 1);
}

/* ---- C --------------------------------------------------------------------------------------- */

#define C_PARAMETERS(ALPHA, BETA)                                                                  \
    int layout, int uplo, int transa, int transb, int64_t n, int64_t k, ALPHA alpha,               \
        const void *a, int64_t lda, const void *b, int64_t ldb, BETA beta, void *c, int64_t ldc
#define C_ARGUMENTS(alpha, beta)                                                                   \
    layout, uplo, transa, transb, n, k, alpha, a, lda, b, ldb, beta, c, ldc
#define C_WORK(wide)                                                                               \
    clb_work_gemmtr((double)clb_c_int(n, wide), (double)clb_c_int(n, wide),                        \
                    (double)clb_c_int(k, wide))
#define C_PROBLEM struct clb_blas3
#define C_NEXT_ARGUMENTS(alpha, beta)                                                              \
    CLB_COL_MAJOR, clb_cblas_of_uplo(p->upper), clb_cblas_of_op(p->transa),                        \
        clb_cblas_of_op(p->transb), (int64_t)p->n, (int64_t)p->k, alpha, p->a, (int64_t)p->lda,    \
        p->b, (int64_t)p->ldb, beta, p->c, (int64_t)p->ldc
#define C_ROUTINES_float(X)                                                                        \
    CLB_FORMS_C(X, sgemmtr)                                                                        \
    CLB_FORMS_C(X, sgemmt)
#define C_ROUTINES_double(X)                                                                       \
    CLB_FORMS_C(X, dgemmtr)                                                                        \
    CLB_FORMS_C(X, dgemmt)
#define C_ROUTINES_complex(X)                                                                      \
    CLB_FORMS_C(X, cgemmtr)                                                                        \
    CLB_FORMS_C(X, zgemmtr)                                                                        \
    CLB_FORMS_C(X, cgemmt)                                                                         \
    CLB_FORMS_C(X, zgemmt)

/* The position of an argument in C's list, from its position in the decoded Fortran call. */
static int position_in_c(int position, bool layout_valid, bool row_major)
{
    enum { TRANSA = 2, TRANSB = 3, LDA = 8, LDB = 10 };
    static const int swapped[] = {[TRANSA] = TRANSB, [TRANSB] = TRANSA, [LDA] = LDB, [LDB] = LDA};
    if (!layout_valid)
        return 1;
    if (row_major && position <= LDB && swapped[position] != 0)
        position = swapped[position];
    return position + 1;
}

/* A row-major product is the column-major C^T = op(B)^T * op(A)^T in the same memory; its triangle
 * is the other one. */
static bool route_c(struct clb_symbol *symbol, const struct clb_target *target, const void *caller,
                    clb_next_own call_own, C_PARAMETERS(const void *, const void *))
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    const bool layout_valid = row_major || layout == CLB_COL_MAJOR;
    const struct clb_next_blas3 next = next_for(symbol, target, caller, call_own);
    struct clb_blas3_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .transa = clb_op_of_cblas(row_major ? transb : transa),
                    .transb = clb_op_of_cblas(row_major ? transa : transb),
                    .alpha = alpha,
                    .a = row_major ? b : a,
                    .b = row_major ? a : b,
                    .beta = beta,
                    .c = c},
        .m = clb_c_int(n, wide),
        .n = clb_c_int(n, wide),
        .k = clb_c_int(k, wide),
        .lda = clb_c_int(row_major ? ldb : lda, wide),
        .ldb = clb_c_int(row_major ? lda : ldb, wide),
        .ldc = clb_c_int(ldc, wide),
        .options_valid = layout_valid,
    };
    call.problem.upper =
        clb_is_option(uplo, CLB_UPPER, CLB_LOWER, &call.options_valid) != row_major;
    if (clb_route_blas3(symbol, &call, &next))
        return true;
    if (!IS_COMPOSED(target))
        return false;
    int wrong = compose(symbol, &call, &next);
    if (wrong != 0)
        clb_report_argument(symbol, caller, position_in_c(wrong, layout_valid, row_major));
    return true;
}

#define CLB_KIND float
#include "blas_c.t.h"
#define CLB_KIND double
#include "blas_c.t.h"
#define CLB_KIND complex
#include "blas_c.t.h"
