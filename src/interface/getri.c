/* sgetri, dgetri, cgetri and zgetri: A^-1 from xGETRF's factors, which it overwrites; A is n x n.
 *
 * Source: LAPACK xGETRI. */
#include "abi.h"

typedef void getri(const void *n, void *a, const void *lda, void *ipiv, void *work,
                   const void *lwork, void *info);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void getri_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const void *n, void *a, const void *lda,
                                        void *ipiv, void *work, const void *lwork, void *info)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    const struct clb_lu_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                     .m = clb_int(n, wide),
                                     .n = clb_int(n, wide),
                                     .lda = clb_int(lda, wide),
                                     .a = a,
                                     .ipiv = ipiv,
                                     .work = work,
                                     .lwork = clb_int(lwork, wide),
                                     .info = info,
                                     .wide = wide};
    if (clb_route_getri(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((getri *)target->function)(n, a, lda, ipiv, work, lwork, info);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const void *n, void *a,
                      const void *lda, void *ipiv, void *work, const void *lwork, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_int(n, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_getri(order, order, order)))
        ((getri *)target->function)(n, a, lda, ipiv, work, lwork, info);
    else
        getri_dispatch(symbol, target, caller, n, a, lda, ipiv, work, lwork, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getri prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const void *n, void *a, const void *lda, void *ipiv,   \
                                            void *work, const void *lwork, void *info)             \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), n, a, lda, \
              ipiv, work, lwork, info);                                                            \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, sgetri)
CLB_FORMS_FORTRAN(CLB_EXPORT, dgetri)
CLB_FORMS_FORTRAN(CLB_EXPORT, cgetri)
CLB_FORMS_FORTRAN(CLB_EXPORT, zgetri)
