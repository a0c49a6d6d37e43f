/* interface: the exported functions. They only decode arguments and call the route layer.
 *
 * Integers. A plain Fortran name (dgemm_) takes the integer width of the library that the caller
 * would have reached without the shim, so Fortran integers are read through clb_int. C names pass
 * integers by value in registers or stack slots of 64 bits, of which a caller with 32-bit integers
 * fills the lower half: they are declared 64-bit and narrowed by clb_c_int; passing them on
 * unchanged is right for a library of either width.
 *
 * Hidden lengths. Fortran compilers append the lengths of character arguments; C callers omit them.
 * They are never read. A declined call is a tail call that leaves the caller's arguments as they
 * are, hidden ones included; a call that the shim makes itself passes 1 for each. */
#ifndef CLB_ABI_H
#define CLB_ABI_H

#include "route/route.h"

#define CLB_INLINE static inline __attribute__((always_inline))

/* Joins expanded macros to a name: CLB_CAT(enter, c) is enter_c. */
#define CLB_CAT_(a, b) a##_##b
#define CLB_CAT(a, b)  CLB_CAT_(a, b)

/* How C passes scalars, by kind: the parameter's type, the argument for a scalar stored at p, and
 * the address of a scalar passed as x. */
#define CLB_TYPE_float         float
#define CLB_AT_float(p)        (*(const float *)(p))
#define CLB_ADDRESS_float(x)   (&(x))
#define CLB_TYPE_double        double
#define CLB_AT_double(p)       (*(const double *)(p))
#define CLB_ADDRESS_double(x)  (&(x))
#define CLB_TYPE_complex       const void *
#define CLB_AT_complex(p)      (p)
#define CLB_ADDRESS_complex(x) (x)

/* A Fortran INTEGER of the target's width. */
CLB_INLINE int64_t clb_int(const void *value, bool ilp64)
{
    return ilp64 ? *(const int64_t *)value : *(const int32_t *)value;
}

/* An integer passed by value. */
CLB_INLINE int64_t clb_c_int(int64_t value, bool ilp64)
{
    return ilp64 ? value : (int32_t)value;
}

/* Decode TRANS. */
CLB_INLINE clb_op clb_op_of_letter(char letter)
{
    switch (letter) {
    case 'N':
    case 'n':
        return CLB_OP_N;
    case 'T':
    case 't':
        return CLB_OP_T;
    case 'C':
    case 'c':
        return CLB_OP_C;
    default:
        return CLB_OP_INVALID;
    }
}

/* SIDE, UPLO and DIAG: one of two upper-case letters. Any other clears *valid. */
CLB_INLINE bool clb_is_letter(char letter, char yes, char no, bool *valid)
{
    const char upper = (char)(letter & 0xdf);
    *valid = *valid && (upper == yes || upper == no);
    return upper == yes;
}

/* CBLAS_LAYOUT, CBLAS_TRANSPOSE, CBLAS_UPLO, CBLAS_DIAG and CBLAS_SIDE. */
enum { CLB_ROW_MAJOR = 101, CLB_COL_MAJOR = 102 };
enum { CLB_NO_TRANS = 111, CLB_TRANS = 112, CLB_CONJ_TRANS = 113 };
enum { CLB_UPPER = 121, CLB_LOWER = 122 };
enum { CLB_NON_UNIT = 131, CLB_UNIT = 132 };
enum { CLB_LEFT = 141, CLB_RIGHT = 142 };

CLB_INLINE bool clb_is_option(int option, int yes, int no, bool *valid)
{
    *valid = *valid && (option == yes || option == no);
    return option == yes;
}

CLB_INLINE int clb_cblas_of_op(clb_op op)
{
    return op == CLB_OP_N ? CLB_NO_TRANS : op == CLB_OP_T ? CLB_TRANS : CLB_CONJ_TRANS;
}

CLB_INLINE int clb_cblas_of_side(bool right)
{
    return right ? CLB_RIGHT : CLB_LEFT;
}

CLB_INLINE int clb_cblas_of_uplo(bool upper)
{
    return upper ? CLB_UPPER : CLB_LOWER;
}

CLB_INLINE clb_op clb_op_of_cblas(int trans)
{
    switch (trans) {
    case CLB_NO_TRANS:
        return CLB_OP_N;
    case CLB_TRANS:
        return CLB_OP_T;
    case CLB_CONJ_TRANS:
        return CLB_OP_C;
    default:
        return CLB_OP_INVALID;
    }
}

/* targets.c: the target of a name for a call that returns to `caller`. For a name that not every
 * library has it may be another name's function (see `fallback` in struct clb_target). */
const struct clb_target *clb_target_find(struct clb_symbol *symbol, const void *caller);

CLB_INLINE const struct clb_target *clb_target_get(struct clb_symbol *symbol, const void *caller)
{
    const struct clb_target *target =
        atomic_load_explicit(&symbol->next.target, memory_order_acquire);
    return CLB_LIKELY(target != NULL) ? target : clb_target_find(symbol, caller);
}

/* errors.c: report that argument number `position`, from 1, is wrong, to the error handler that the
 * routine would call (xerbla_, ...). Used only where the next library lacks the routine. */
void clb_report_argument(const struct clb_symbol *symbol, const void *caller, int position);

/* next.c: compute a problem by a Fortran function of the next library. */
void clb_next_gemm_fortran(const struct clb_target *target, const struct clb_gemm *problem);
void clb_next_trsm_fortran(const struct clb_target *target, const struct clb_trsm *problem);

/* gemm.c: the function that computes a problem by the next library's CBLAS function. */
clb_next_gemm clb_next_gemm_c(clb_precision precision);

/* targets.c: the functions of the next library that xSYMM and the others of blas3.c use. */
struct clb_next_blas3 clb_next_blas3_for(const struct clb_symbol *symbol,
                                         const struct clb_target *target, const void *caller,
                                         clb_next_own call_own);

/* The functions of the next library that the LU, Cholesky and inverse routines use, under names of
 * the same form as `symbol`, which is one of these routines; `target` is the symbol's. */
struct clb_next_lapack clb_next_lapack_for(const struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller);

/* next_qr.c: the same for QR; the symbol is one of xGEQRF, xORMQR and xORGQR. */
struct clb_next_qr clb_next_qr_for(const struct clb_symbol *symbol, const struct clb_target *target,
                                   const void *caller);

/* True when the call must be declined at once, by a jump to the target: its work is less than the
 * symbol's min_work. */
CLB_INLINE bool clb_work_is_small(struct clb_symbol *symbol, double work)
{
    return work < atomic_load_explicit(&symbol->min_work, memory_order_relaxed) &&
           CLB_LIKELY(!atomic_load_explicit(&symbol->next.dispatched, memory_order_relaxed));
}

#endif
