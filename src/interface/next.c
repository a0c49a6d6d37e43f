/* Calls of the next library's Fortran functions by the shim itself: for parts of a problem that the
 * device has not computed, and for the algorithms. All arguments are references, so one function
 * serves all precisions. */
#include "next.h"

#include <string.h>

typedef void gemm_fortran(const char *transa, const char *transb, const void *m, const void *n,
                          const void *k, const void *alpha, const void *a, const void *lda,
                          const void *b, const void *ldb, const void *beta, void *c,
                          const void *ldc, size_t length_transa, size_t length_transb);

typedef void trsm_fortran(const char *side, const char *uplo, const char *transa, const char *diag,
                          const void *m, const void *n, const void *alpha, const void *a,
                          const void *lda, void *b, const void *ldb, size_t length_side,
                          size_t length_uplo, size_t length_transa, size_t length_diag);

typedef void getrf_fortran(const void *m, const void *n, void *a, const void *lda, void *ipiv,
                           void *info);
typedef void getri_fortran(const void *n, void *a, const void *lda, const void *ipiv, void *work,
                           const void *lwork, void *info);
typedef void getrs_fortran(const char *trans, const void *n, const void *nrhs, const void *a,
                           const void *lda, const void *ipiv, void *b, const void *ldb, void *info,
                           size_t length_trans);

typedef void potrf_fortran(const char *uplo, const void *n, void *a, const void *lda, void *info,
                           size_t length_uplo);
typedef void trtri_fortran(const char *uplo, const char *diag, const void *n, void *a,
                           const void *lda, void *info, size_t length_uplo, size_t length_diag);
typedef void potrs_fortran(const char *uplo, const void *n, const void *nrhs, const void *a,
                           const void *lda, void *b, const void *ldb, void *info,
                           size_t length_uplo);

void clb_next_gemm_fortran(const struct clb_target *target, const struct clb_gemm *p)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            k = clb_integer_for(p->k, target),
                            lda = clb_integer_for(p->lda, target),
                            ldb = clb_integer_for(p->ldb, target),
                            ldc = clb_integer_for(p->ldc, target);
    ((gemm_fortran *)target->function)(clb_letter_of_op(p->transa), clb_letter_of_op(p->transb), &m,
                                       &n, &k, p->alpha, p->a, &lda, p->b, &ldb, p->beta, p->c,
                                       &ldc, 1, 1);
}

void clb_next_trsm_fortran(const struct clb_target *target, const struct clb_trsm *p)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target),
                            ldb = clb_integer_for(p->ldb, target);
    ((trsm_fortran *)target->function)(p->right ? "R" : "L", p->upper ? "U" : "L",
                                       clb_letter_of_op(p->trans), p->unit ? "U" : "N", &m, &n,
                                       p->alpha, p->a, &lda, p->b, &ldb, 1, 1, 1, 1);
}

/* ---- Cholesky -------------------------------------------------------------------------------- */

static size_t call_potrf(const struct clb_target *target, const struct clb_potrf *p)
{
    const union clb_integer n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target);
    union clb_integer info = {.wide = 0};
    ((potrf_fortran *)target->function)(p->upper ? "U" : "L", &n, p->a, &lda, &info, 1);
    int64_t first_bad = target->ilp64 ? info.wide : info.narrow;
    return first_bad > 0 ? (size_t)first_bad : 0;
}

static void call_potrs(const struct clb_target *target, const struct clb_potrs *p)
{
    const union clb_integer n = clb_integer_for(p->n, target),
                            nrhs = clb_integer_for(p->nrhs, target),
                            lda = clb_integer_for(p->lda, target),
                            ldb = clb_integer_for(p->ldb, target);
    union clb_integer info;
    ((potrs_fortran *)target->function)(p->upper ? "U" : "L", &n, &nrhs, p->a, &lda, p->b, &ldb,
                                        &info, 1);
}

/* The arguments of xPOTRI and xLAUUM are xPOTRF's. */
static size_t call_inverse(const struct clb_target *target, const struct clb_inverse *p)
{
    const struct clb_potrf others = {p->precision, p->upper, p->n, p->a, p->lda};
    const union clb_integer n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target);
    union clb_integer info = {.wide = 0};
    if (p->multiplies)
        return call_potrf(target, &others);
    ((trtri_fortran *)target->function)(p->upper ? "U" : "L", p->unit ? "U" : "N", &n, p->a, &lda,
                                        &info, 1, 1);
    int64_t first_zero = target->ilp64 ? info.wide : info.narrow;
    return first_zero > 0 ? (size_t)first_zero : 0;
}

/* ---- LU -------------------------------------------------------------------------------------- */

/* Widen 32-bit integers in the first half of an array to 64-bit ones, from last to first. */
static void widen_in_place(int64_t *array, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        int32_t value;
        memcpy(&value, (const char *)array + i * sizeof value, sizeof value);
        array[i] = value;
    }
}

static size_t call_getrf(const struct clb_target *target, const struct clb_getrf *p, int64_t *ipiv)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target);
    union clb_integer info = {.wide = 0};
    ((getrf_fortran *)target->function)(&m, &n, p->a, &lda, ipiv, &info);
    if (!target->ilp64)
        widen_in_place(ipiv, clb_min(p->m, p->n));
    int64_t first_zero = target->ilp64 ? info.wide : info.narrow;
    return first_zero > 0 ? (size_t)first_zero : 0;
}

static void call_getrs(const struct clb_target *target, const struct clb_getrs *p, const void *ipiv)
{
    const union clb_integer n = clb_integer_for(p->n, target),
                            nrhs = clb_integer_for(p->nrhs, target),
                            lda = clb_integer_for(p->lda, target),
                            ldb = clb_integer_for(p->ldb, target);
    union clb_integer info;
    ((getrs_fortran *)target->function)(clb_letter_of_op(p->trans), &n, &nrhs, p->a, &lda, ipiv,
                                        p->b, &ldb, &info, 1);
}

static size_t call_getri(const struct clb_target *target, const struct clb_getri *p,
                         const void *ipiv, void *work, int64_t lwork)
{
    const union clb_integer n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target);
    const union clb_integer size = {.wide =
                                        lwork}; /* the low half of a small number is that number */
    union clb_integer info = {.wide = 0};
    ((getri_fortran *)target->function)(&n, p->a, &lda, ipiv, work, &size, &info);
    int64_t first_zero = target->ilp64 ? info.wide : info.narrow;
    return first_zero > 0 ? (size_t)first_zero : 0;
}

/* ---- functions of the same form -------------------------------------------------------------- */

/* The symbols of a precision; the forms of each follow in the order of names.h. */
struct family {
    clb_symbol_id getrf, getrs, getri, potrf, potrs, trsm, gemm, potri, trtri, lauum;
};

static const struct family families[CLB_PRECISIONS] = {
#define CLB_FAMILY(x)                                                                              \
    {                                                                                              \
        CLB_SYMBOL_##x##getrf_plain, CLB_SYMBOL_##x##getrs_plain, CLB_SYMBOL_##x##getri_plain,     \
            CLB_SYMBOL_##x##potrf_plain, CLB_SYMBOL_##x##potrs_plain, CLB_SYMBOL_##x##trsm_plain,  \
            CLB_SYMBOL_##x##gemm_plain, CLB_SYMBOL_##x##potri_plain, CLB_SYMBOL_##x##trtri_plain,  \
            CLB_SYMBOL_##x##lauum_plain                                                            \
    }
    [CLB_S] = CLB_FAMILY(s),
    [CLB_D] = CLB_FAMILY(d),
    [CLB_C] = CLB_FAMILY(c),
    [CLB_Z] = CLB_FAMILY(z),
#undef CLB_FAMILY
};

_Static_assert(CLB_SYMBOL_sgemm_scipy_ilp64 - CLB_SYMBOL_sgemm_plain == CLB_FORTRAN_FORMS,
               "BLAS and LAPACK have the same Fortran forms, in one order");

struct clb_next_lapack clb_next_lapack_for(const struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller)
{
    const struct family *family = &families[clb_routine_get(symbol->routine)->precision];
    size_t form = clb_form_of(symbol);
    return (struct clb_next_lapack){
        .getrf = clb_same_abi(&clb_symbols[family->getrf + form].next, target, caller),
        .getrs = clb_same_abi(&clb_symbols[family->getrs + form].next, target, caller),
        .getri = clb_same_abi(&clb_symbols[family->getri + form].next, target, caller),
        .potrf = clb_same_abi(&clb_symbols[family->potrf + form].next, target, caller),
        .potrs = clb_same_abi(&clb_symbols[family->potrs + form].next, target, caller),
        .trsm = clb_same_abi(&clb_symbols[family->trsm + form].next, target, caller),
        .gemm = clb_same_abi(&clb_symbols[family->gemm + form].next, target, caller),
        .potri = clb_same_abi(&clb_symbols[family->potri + form].next, target, caller),
        .trtri = clb_same_abi(&clb_symbols[family->trtri + form].next, target, caller),
        .lauum = clb_same_abi(&clb_symbols[family->lauum + form].next, target, caller),
        .call_getrf = call_getrf,
        .call_getrs = call_getrs,
        .call_getri = call_getri,
        .call_potrf = call_potrf,
        .call_potrs = call_potrs,
        .call_inverse = call_inverse,
        .call_trsm = clb_next_trsm_fortran,
        .call_gemm = clb_next_gemm_fortran,
    };
}
