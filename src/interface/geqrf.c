/* sgeqrf, dgeqrf, cgeqrf and zgeqrf: A = Q*R, A is m x n.
 *
 * Source: LAPACK xGEQRF. */
#include "abi.h"

typedef void geqrf(const void *m, const void *n, void *a, const void *lda, void *tau, void *work,
                   const void *lwork, void *info);

/* Slow path: enough work (min_work), or calls are counted or logged. The best size of the
 * workspace, WORK(1) of a call that has been computed, and INFO are what the next library says to a
 * query. */
static CLB_NOINLINE void geqrf_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const void *m, const void *n, void *a,
                                        const void *lda, void *tau, void *work, const void *lwork,
                                        void *info)
{
    static const int64_t query = -1;
    const bool wide = target->ilp64;
    const struct clb_next_qr next = clb_next_qr_for(symbol, target, caller);
    const struct clb_qr_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                     .m = clb_int(m, wide),
                                     .n = clb_int(n, wide),
                                     .lda = clb_int(lda, wide),
                                     .lwork = clb_int(lwork, wide),
                                     .a = a,
                                     .tau = tau,
                                     .work = work};
    if (clb_route_geqrf(symbol, &call, &next)) {
        ((geqrf *)target->function)(m, n, a, lda, tau, work, &query, info);
        return;
    }
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((geqrf *)target->function)(m, n, a, lda, tau, work, lwork, info);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const void *m, const void *n,
                      void *a, const void *lda, void *tau, void *work, const void *lwork,
                      void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double rows = (double)clb_int(m, wide), cols = (double)clb_int(n, wide);
    if (clb_work_is_small(symbol, clb_work_geqrf(rows, cols, rows < cols ? rows : cols)))
        ((geqrf *)target->function)(m, n, a, lda, tau, work, lwork, info);
    else
        geqrf_dispatch(symbol, target, caller, m, n, a, lda, tau, work, lwork, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    geqrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const void *m, const void *n, void *a,                 \
                                            const void *lda, void *tau, void *work,                \
                                            const void *lwork, void *info)                         \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), m, n, a,   \
              lda, tau, work, lwork, info);                                                        \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, sgeqrf)
CLB_FORMS_FORTRAN(CLB_EXPORT, dgeqrf)
CLB_FORMS_FORTRAN(CLB_EXPORT, cgeqrf)
CLB_FORMS_FORTRAN(CLB_EXPORT, zgeqrf)
