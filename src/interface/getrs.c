/* sgetrs, dgetrs, cgetrs and zgetrs: op(A)*X = B from xGETRF's factors; A is n x n, X overwrites B.
 *
 * Source: LAPACK xGETRS. */
#include "abi.h"

typedef void getrs(const char *trans, const void *n, const void *nrhs, void *a, const void *lda,
                   void *ipiv, void *b, const void *ldb, void *info);
typedef void getrs_length(const char *trans, const void *n, const void *nrhs, void *a,
                          const void *lda, void *ipiv, void *b, const void *ldb, void *info,
                          size_t length_trans);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void getrs_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const char *trans, const void *n,
                                        const void *nrhs, void *a, const void *lda, void *ipiv,
                                        void *b, const void *ldb, void *info)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    const struct clb_lu_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                     .trans = clb_op_of_letter(*trans),
                                     .m = clb_int(n, wide),
                                     .n = clb_int(n, wide),
                                     .nrhs = clb_int(nrhs, wide),
                                     .lda = clb_int(lda, wide),
                                     .ldb = clb_int(ldb, wide),
                                     .a = a,
                                     .b = b,
                                     .ipiv = ipiv,
                                     .info = info,
                                     .wide = wide};
    if (clb_route_getrs(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((getrs_length *)target->function)(trans, n, nrhs, a, lda, ipiv, b, ldb, info, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const char *trans,
                      const void *n, const void *nrhs, void *a, const void *lda, void *ipiv,
                      void *b, const void *ldb, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double order = (double)clb_int(n, wide);
    if (clb_work_is_small(symbol, clb_work_getrs(order, order, (double)clb_int(nrhs, wide))))
        ((getrs *)target->function)(trans, n, nrhs, a, lda, ipiv, b, ldb, info);
    else
        getrs_dispatch(symbol, target, caller, trans, n, nrhs, a, lda, ipiv, b, ldb, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getrs prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const char *trans, const void *n, const void *nrhs,    \
                                            void *a, const void *lda, void *ipiv, void *b,         \
                                            const void *ldb, void *info)                           \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), trans, n,  \
              nrhs, a, lda, ipiv, b, ldb, info);                                                   \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, sgetrs)
CLB_FORMS_FORTRAN(CLB_EXPORT, dgetrs)
CLB_FORMS_FORTRAN(CLB_EXPORT, cgetrs)
CLB_FORMS_FORTRAN(CLB_EXPORT, zgetrs)
