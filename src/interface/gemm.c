/* xGEMM, and xGEMM3M for complex ones: Fortran and CBLAS names.
 *
 *   C = alpha*op(A)*op(B) + beta*C,  op(A) m x k, op(B) k x n, C m x n
 *
 * xGEMM3M permits multiplying complex numbers with three real multiplications, which has larger
 * errors. The shim does not do so: it computes xGEMM3M as xGEMM.
 *
 * Source: Reference BLAS xGEMM; CBLAS cblas_xgemm (BLAS Technical Forum standard, 2.8); OpenBLAS
 * and MKL xGEMM3M. */
#include "abi.h"

/* ---- Fortran --------------------------------------------------------------------------------- */

#define FORTRAN_PARAMETERS                                                                         \
    const char *transa, const char *transb, const void *m, const void *n, const void *k,           \
        const void *alpha, const void *a, const void *lda, const void *b, const void *ldb,         \
        const void *beta, void *c, const void *ldc
#define FORTRAN_ARGUMENTS    transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
#define FORTRAN_LENGTH_TYPES size_t, size_t
#define FORTRAN_LENGTHS      1, 1
#define FORTRAN_WORK(wide)                                                                         \
    clb_work_gemm((double)clb_int(m, wide), (double)clb_int(n, wide), (double)clb_int(k, wide))
#define FORTRAN_ROUTINES(X)                                                                        \
    CLB_FORMS_FORTRAN(X, sgemm)                                                                    \
    CLB_FORMS_FORTRAN(X, dgemm)                                                                    \
    CLB_FORMS_FORTRAN(X, cgemm)                                                                    \
    CLB_FORMS_FORTRAN(X, zgemm)                                                                    \
    CLB_FORMS_FORTRAN(X, cgemm3m)                                                                  \
    CLB_FORMS_FORTRAN(X, zgemm3m)

static bool route_fortran(struct clb_symbol *symbol, const struct clb_target *target,
                          const void *caller, FORTRAN_PARAMETERS)
{
    const bool wide = target->ilp64;
    struct clb_gemm_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .transa = clb_op_of_letter(*transa),
                    .transb = clb_op_of_letter(*transb),
                    .alpha = alpha,
                    .a = a,
                    .b = b,
                    .beta = beta,
                    .c = c},
        .m = clb_int(m, wide),
        .n = clb_int(n, wide),
        .k = clb_int(k, wide),
        .lda = clb_int(lda, wide),
        .ldb = clb_int(ldb, wide),
        .ldc = clb_int(ldc, wide),
        .layout_valid = true,
    };
    (void)caller;
    return clb_route_gemm(symbol, target, &call, clb_next_gemm_fortran);
}

#include "blas_fortran.t.h"

/* ---- C --------------------------------------------------------------------------------------- */

#define C_PARAMETERS(ALPHA, BETA)                                                                  \
    int layout, int transa, int transb, int64_t m, int64_t n, int64_t k, ALPHA alpha,              \
        const void *a, int64_t lda, const void *b, int64_t ldb, BETA beta, void *c, int64_t ldc
#define C_ARGUMENTS(alpha, beta)                                                                   \
    layout, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc
#define C_WORK(wide)                                                                               \
    clb_work_gemm((double)clb_c_int(m, wide), (double)clb_c_int(n, wide),                          \
                  (double)clb_c_int(k, wide))
#define C_PROBLEM struct clb_gemm
#define C_NEXT_ARGUMENTS(alpha, beta)                                                              \
    CLB_COL_MAJOR, clb_cblas_of_op(p->transa), clb_cblas_of_op(p->transb), (int64_t)p->m,          \
        (int64_t)p->n, (int64_t)p->k, alpha, p->a, (int64_t)p->lda, p->b, (int64_t)p->ldb, beta,   \
        p->c, (int64_t)p->ldc
#define C_ROUTINES_float(X)  CLB_FORMS_C(X, sgemm)
#define C_ROUTINES_double(X) CLB_FORMS_C(X, dgemm)
#define C_ROUTINES_complex(X)                                                                      \
    CLB_FORMS_C(X, cgemm)                                                                          \
    CLB_FORMS_C(X, zgemm)                                                                          \
    CLB_FORMS_C(X, cgemm3m)                                                                        \
    CLB_FORMS_C(X, zgemm3m)

/* A row-major product is the column-major C^T = op(B)^T * op(A)^T over the same memory. */
static bool route_c(struct clb_symbol *symbol, const struct clb_target *target, const void *caller,
                    clb_next_gemm next, C_PARAMETERS(const void *, const void *))
{
    const bool wide = target->ilp64, row_major = layout == CLB_ROW_MAJOR;
    struct clb_gemm_call call = {
        .problem = {.precision = clb_routine_get(symbol->routine)->precision,
                    .transa = clb_op_of_cblas(row_major ? transb : transa),
                    .transb = clb_op_of_cblas(row_major ? transa : transb),
                    .alpha = alpha,
                    .a = row_major ? b : a,
                    .b = row_major ? a : b,
                    .beta = beta,
                    .c = c},
        .m = clb_c_int(row_major ? n : m, wide),
        .n = clb_c_int(row_major ? m : n, wide),
        .k = clb_c_int(k, wide),
        .lda = clb_c_int(row_major ? ldb : lda, wide),
        .ldb = clb_c_int(row_major ? lda : ldb, wide),
        .ldc = clb_c_int(ldc, wide),
        .layout_valid = row_major || layout == CLB_COL_MAJOR,
    };
    (void)caller;
    return clb_route_gemm(symbol, target, &call, next);
}

#define CLB_KIND float
#include "blas_c.t.h"
#define CLB_KIND double
#include "blas_c.t.h"
#define CLB_KIND complex
#include "blas_c.t.h"

clb_next_gemm clb_next_gemm_c(clb_precision precision)
{
    return precision == CLB_S ? next_c_float : precision == CLB_D ? next_c_double : next_c_complex;
}
