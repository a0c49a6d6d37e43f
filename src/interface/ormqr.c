/* sormqr, dormqr, cunmqr and zunmqr: op(Q)*C or C*op(Q), C is m x n, Q of k reflectors of xGEQRF.
 *
 * Source: LAPACK xORMQR. */
#include "abi.h"

typedef void ormqr(const char *side, const char *trans, const void *m, const void *n, const void *k,
                   void *a, const void *lda, void *tau, void *c, const void *ldc, void *work,
                   const void *lwork, void *info);
typedef void ormqr_length(const char *side, const char *trans, const void *m, const void *n,
                          const void *k, void *a, const void *lda, void *tau, void *c,
                          const void *ldc, void *work, const void *lwork, void *info,
                          size_t length_side, size_t length_trans);

/* Slow path: enough work (min_work), or calls are counted or logged. WORK(1) and INFO as geqrf.c
 * has them. */
static CLB_NOINLINE void ormqr_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const char *side, const char *trans,
                                        const void *m, const void *n, const void *k, void *a,
                                        const void *lda, void *tau, void *c, const void *ldc,
                                        void *work, const void *lwork, void *info)
{
    static const int64_t query = -1;
    const bool wide = target->ilp64;
    const struct clb_next_qr next = clb_next_qr_for(symbol, target, caller);
    struct clb_qr_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                               .trans = clb_op_of_letter(*trans),
                               .options_valid = true,
                               .m = clb_int(m, wide),
                               .n = clb_int(n, wide),
                               .k = clb_int(k, wide),
                               .lda = clb_int(lda, wide),
                               .ldc = clb_int(ldc, wide),
                               .lwork = clb_int(lwork, wide),
                               .a = a,
                               .tau = tau,
                               .c = c,
                               .work = work};
    call.right = clb_is_letter(*side, 'R', 'L', &call.options_valid);
    if (clb_route_ormqr(symbol, &call, &next)) {
        ((ormqr_length *)target->function)(side, trans, m, n, k, a, lda, tau, c, ldc, work, &query,
                                           info, 1, 1);
        return;
    }
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((ormqr_length *)target->function)(side, trans, m, n, k, a, lda, tau, c, ldc, work, lwork, info,
                                       1, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const char *side,
                      const char *trans, const void *m, const void *n, const void *k, void *a,
                      const void *lda, void *tau, void *c, const void *ldc, void *work,
                      const void *lwork, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64, right = (*side & 0xdf) == 'R';
    const double rows = (double)clb_int(m, wide), cols = (double)clb_int(n, wide),
                 count = (double)clb_int(k, wide);
    if (clb_work_is_small(symbol, clb_work_ormqr(right ? cols : rows, right ? rows : cols, count)))
        ((ormqr *)target->function)(side, trans, m, n, k, a, lda, tau, c, ldc, work, lwork, info);
    else
        ormqr_dispatch(symbol, target, caller, side, trans, m, n, k, a, lda, tau, c, ldc, work,
                       lwork, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    ormqr prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const char *side, const char *trans, const void *m,    \
                                            const void *n, const void *k, void *a,                 \
                                            const void *lda, void *tau, void *c, const void *ldc,  \
                                            void *work, const void *lwork, void *info)             \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), side,      \
              trans, m, n, k, a, lda, tau, c, ldc, work, lwork, info);                             \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, sormqr)
CLB_FORMS_FORTRAN(CLB_EXPORT, dormqr)
CLB_FORMS_FORTRAN(CLB_EXPORT, cunmqr)
CLB_FORMS_FORTRAN(CLB_EXPORT, zunmqr)
