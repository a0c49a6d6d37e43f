/* The shim's own calls to the next library by Fortran names: parts of a problem that the device has
 * not computed, and what algorithms leave to it. All arguments are references, so that one function
 * serves every precision. */
#include "abi.h"

typedef void gemm_fortran(const char *transa, const char *transb, const void *m, const void *n,
                          const void *k, const void *alpha, const void *a, const void *lda,
                          const void *b, const void *ldb, const void *beta, void *c,
                          const void *ldc, size_t length_transa, size_t length_transb);

typedef void trsm_fortran(const char *side, const char *uplo, const char *transa, const char *diag,
                          const void *m, const void *n, const void *alpha, const void *a,
                          const void *lda, void *b, const void *ldb, size_t length_side,
                          size_t length_uplo, size_t length_transa, size_t length_diag);

/* An integer to be passed by reference: the low half is the 32-bit value on little-endian machines,
 * and the upper half is read by 64-bit libraries only. */
union integer {
    int64_t wide;
    int32_t narrow;
};

static union integer integer_for(size_t value, const struct clb_target *target)
{
    union integer out;
    if (target->ilp64)
        out.wide = (int64_t)value;
    else
        out.narrow = (int32_t)value;
    return out;
}

static const char *letter_of_op(clb_op op)
{
    return op == CLB_OP_N ? "N" : op == CLB_OP_T ? "T" : "C";
}

void clb_next_gemm_fortran(const struct clb_target *target, const struct clb_gemm *p)
{
    const union integer m = integer_for(p->m, target), n = integer_for(p->n, target),
                        k = integer_for(p->k, target), lda = integer_for(p->lda, target),
                        ldb = integer_for(p->ldb, target), ldc = integer_for(p->ldc, target);
    ((gemm_fortran *)target->function)(letter_of_op(p->transa), letter_of_op(p->transb), &m, &n, &k,
                                       p->alpha, p->a, &lda, p->b, &ldb, p->beta, p->c, &ldc, 1, 1);
}

void clb_next_trsm_fortran(const struct clb_target *target, const struct clb_trsm *p)
{
    const union integer m = integer_for(p->m, target), n = integer_for(p->n, target),
                        lda = integer_for(p->lda, target), ldb = integer_for(p->ldb, target);
    ((trsm_fortran *)target->function)(p->right ? "R" : "L", p->upper ? "U" : "L",
                                       letter_of_op(p->trans), p->unit ? "U" : "N", &m, &n,
                                       p->alpha, p->a, &lda, p->b, &ldb, 1, 1, 1, 1);
}
