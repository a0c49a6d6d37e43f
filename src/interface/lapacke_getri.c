/* LAPACKE_xgetri, and with the caller's workspace LAPACKE_xgetri_work.
 *
 * Source: LAPACKE. */
#include "lapacke.h"

typedef int64_t getri(int layout, int64_t n, void *a, int64_t lda, void *ipiv);
typedef int64_t getri_work(int layout, int64_t n, void *a, int64_t lda, void *ipiv, void *work,
                           int64_t lwork);

static int64_t call_next(const struct clb_symbol *symbol, const struct clb_target *target,
                         int layout, int64_t n, void *a, int64_t lda, void *ipiv, void *work,
                         int64_t lwork)
{
    if (clb_lapacke_is_work(symbol))
        return ((getri_work *)target->function)(layout, n, a, lda, ipiv, work, lwork);
    return ((getri *)target->function)(layout, n, a, lda, ipiv);
}

/* Slow path: enough work (min_work), or calls are counted or logged; `work` is NULL for the first
 * form. */
static CLB_NOINLINE int64_t lapacke_getri_dispatch(struct clb_symbol *symbol,
                                                   const struct clb_target *target,
                                                   const void *caller, int layout, int64_t n,
                                                   void *a, int64_t lda, void *ipiv, void *work,
                                                   int64_t lwork)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_lu_call call = {.lapacke = &lapacke,
                               .precision = lapacke.precision,
                               .m = clb_c_int(n, wide),
                               .n = clb_c_int(n, wide),
                               .a = a,
                               .ipiv = ipiv,
                               .work = work,
                               .lwork = clb_c_int(lwork, wide),
                               .info = &info,
                               .wide = wide};
    call.lda = clb_lapacke_add(&lapacke, layout, clb_c_int(lda, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .rows = call.n,
                                                           .cols = call.n, .at = &call.a});
    if (clb_route_getri(symbol, &call, &next))
        return clb_c_int(info, wide);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = call_next(symbol, target, layout, n, a, lda, ipiv, work, lwork);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter(struct clb_symbol *symbol, const void *caller, int layout, int64_t n,
                         void *a, int64_t lda, void *ipiv, void *work, int64_t lwork)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_c_int(n, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_getri(order, order, order)))
        return call_next(symbol, target, layout, n, a, lda, ipiv, work, lwork);
    return lapacke_getri_dispatch(symbol, target, caller, layout, n, a, lda, ipiv, work, lwork);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getri prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t n, void *a, int64_t lda,        \
                                               void *ipiv)                                         \
    {                                                                                              \
        return enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0),     \
                     layout, n, a, lda, ipiv, NULL, 0);                                            \
    }
CLB_FORMS_LAPACK_HIGH(CLB_EXPORT, sgetri)
CLB_FORMS_LAPACK_HIGH(CLB_EXPORT, dgetri)
CLB_FORMS_LAPACK_HIGH(CLB_EXPORT, cgetri)
CLB_FORMS_LAPACK_HIGH(CLB_EXPORT, zgetri)
#undef CLB_EXPORT

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getri_work prefix##routine##suffix;                                                            \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t n, void *a, int64_t lda,        \
                                               void *ipiv, void *work, int64_t lwork)              \
    {                                                                                              \
        return enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0),     \
                     layout, n, a, lda, ipiv, work, lwork);                                        \
    }
CLB_FORMS_LAPACK_WORK(CLB_EXPORT, sgetri)
CLB_FORMS_LAPACK_WORK(CLB_EXPORT, dgetri)
CLB_FORMS_LAPACK_WORK(CLB_EXPORT, cgetri)
CLB_FORMS_LAPACK_WORK(CLB_EXPORT, zgetri)
