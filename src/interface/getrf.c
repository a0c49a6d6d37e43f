/* sgetrf, dgetrf, cgetrf and zgetrf: A = P*L*U, A is m x n.
 *
 * LAPACK's arguments are all references, so that one function serves every precision.
 * Source: LAPACK xGETRF. */
#include "abi.h"

typedef void getrf(const void *m, const void *n, void *a, const void *lda, void *ipiv, void *info);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void getrf_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const void *m, const void *n, void *a,
                                        const void *lda, void *ipiv, void *info)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    const struct clb_lu_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                     .m = clb_int(m, wide),
                                     .n = clb_int(n, wide),
                                     .lda = clb_int(lda, wide),
                                     .a = a,
                                     .ipiv = ipiv,
                                     .info = info,
                                     .wide = wide};
    if (clb_route_getrf(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((getrf *)target->function)(m, n, a, lda, ipiv, info);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const void *m, const void *n,
                      void *a, const void *lda, void *ipiv, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double rows = (double)clb_int(m, wide), cols = (double)clb_int(n, wide);
    if (clb_work_is_small(symbol, clb_work_getrf(rows, cols, rows < cols ? rows : cols)))
        ((getrf *)target->function)(m, n, a, lda, ipiv, info);
    else
        getrf_dispatch(symbol, target, caller, m, n, a, lda, ipiv, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const void *m, const void *n, void *a,                 \
                                            const void *lda, void *ipiv, void *info)               \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), m, n, a,   \
              lda, ipiv, info);                                                                    \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, sgetrf)
CLB_FORMS_FORTRAN(CLB_EXPORT, dgetrf)
CLB_FORMS_FORTRAN(CLB_EXPORT, cgetrf)
CLB_FORMS_FORTRAN(CLB_EXPORT, zgetrf)
