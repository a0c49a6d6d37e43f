/* sorgqr, dorgqr, cungqr and zungqr: the first n columns of Q, m x n, from k reflectors of xGEQRF.
 *
 * Source: LAPACK xORGQR. */
#include "abi.h"

typedef void orgqr(const void *m, const void *n, const void *k, void *a, const void *lda, void *tau,
                   void *work, const void *lwork, void *info);

/* Slow path: enough work (min_work), or calls are counted or logged. WORK(1) and INFO as geqrf.c
 * has them. */
static CLB_NOINLINE void orgqr_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const void *m, const void *n,
                                        const void *k, void *a, const void *lda, void *tau,
                                        void *work, const void *lwork, void *info)
{
    static const int64_t query = -1;
    const bool wide = target->ilp64;
    const struct clb_next_qr next = clb_next_qr_for(symbol, target, caller);
    const struct clb_qr_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                     .m = clb_int(m, wide),
                                     .n = clb_int(n, wide),
                                     .k = clb_int(k, wide),
                                     .lda = clb_int(lda, wide),
                                     .lwork = clb_int(lwork, wide),
                                     .a = a,
                                     .tau = tau,
                                     .work = work};
    if (clb_route_orgqr(symbol, &call, &next)) {
        ((orgqr *)target->function)(m, n, k, a, lda, tau, work, &query, info);
        return;
    }
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((orgqr *)target->function)(m, n, k, a, lda, tau, work, lwork, info);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const void *m, const void *n,
                      const void *k, void *a, const void *lda, void *tau, void *work,
                      const void *lwork, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double rows = (double)clb_int(m, wide), cols = (double)clb_int(n, wide),
                 count = (double)clb_int(k, wide);
    if (clb_work_is_small(symbol, clb_work_orgqr(rows, cols, count)))
        ((orgqr *)target->function)(m, n, k, a, lda, tau, work, lwork, info);
    else
        orgqr_dispatch(symbol, target, caller, m, n, k, a, lda, tau, work, lwork, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    orgqr prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const void *m, const void *n, const void *k, void *a,  \
                                            const void *lda, void *tau, void *work,                \
                                            const void *lwork, void *info)                         \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), m, n, k,   \
              a, lda, tau, work, lwork, info);                                                     \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, sorgqr)
CLB_FORMS_FORTRAN(CLB_EXPORT, dorgqr)
CLB_FORMS_FORTRAN(CLB_EXPORT, cungqr)
CLB_FORMS_FORTRAN(CLB_EXPORT, zungqr)
