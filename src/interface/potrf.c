/* spotrf, dpotrf, cpotrf and zpotrf: A = U^H*U or A = L*L^H, A is n x n.
 *
 * Source: LAPACK xPOTRF. */
#include "abi.h"

typedef void potrf(const char *uplo, const void *n, void *a, const void *lda, void *info);
/* The length would be in a register, which a tail call without it need not keep. */
typedef void potrf_length(const char *uplo, const void *n, void *a, const void *lda, void *info,
                          size_t length_uplo);

/* A call that passed the gate, or that is observed. */
static CLB_NOINLINE void offer(struct clb_symbol *symbol, const struct clb_target *target,
                               const void *caller, const char *uplo, const void *n, void *a,
                               const void *lda, void *info)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_chol_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                 .options_valid = true,
                                 .n = clb_int(n, wide),
                                 .lda = clb_int(lda, wide),
                                 .a = a,
                                 .info = info,
                                 .wide = wide};
    call.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    if (clb_route_potrf(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((potrf_length *)target->function)(uplo, n, a, lda, info, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const char *uplo,
                      const void *n, void *a, const void *lda, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_int(n, target->ilp64);
    if (clb_gate_closed(symbol, clb_work_dpotrf(order, order, order)))
        ((potrf_length *)target->function)(uplo, n, a, lda, info, 1);
    else
        offer(symbol, target, caller, uplo, n, a, lda, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    potrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const char *uplo, const void *n, void *a,              \
                                            const void *lda, void *info)                           \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), uplo, n,   \
              a, lda, info);                                                                       \
    }
CLB_FORMS_LAPACK(CLB_EXPORT, spotrf)
CLB_FORMS_LAPACK(CLB_EXPORT, dpotrf)
CLB_FORMS_LAPACK(CLB_EXPORT, cpotrf)
CLB_FORMS_LAPACK(CLB_EXPORT, zpotrf)
