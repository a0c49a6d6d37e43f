/* strtri, dtrtri, ctrtri and ztrtri: A^-1 of a triangular A, n x n.
 *
 * Source: LAPACK xTRTRI. */
#include "abi.h"

typedef void trtri(const char *uplo, const char *diag, const void *n, void *a, const void *lda,
                   void *info);
typedef void trtri_length(const char *uplo, const char *diag, const void *n, void *a,
                          const void *lda, void *info, size_t length_uplo, size_t length_diag);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void trtri_dispatch(struct clb_symbol *symbol, const struct clb_target *target,
                                        const void *caller, const char *uplo, const char *diag,
                                        const void *n, void *a, const void *lda, void *info)
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
    call.unit = clb_is_letter(*diag, 'U', 'N', &call.options_valid);
    if (clb_route_trtri(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((trtri_length *)target->function)(uplo, diag, n, a, lda, info, 1, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(struct clb_symbol *symbol, const void *caller, const char *uplo,
                      const char *diag, const void *n, void *a, const void *lda, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_int(n, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_trtri(order, order, order)))
        ((trtri *)target->function)(uplo, diag, n, a, lda, info);
    else
        trtri_dispatch(symbol, target, caller, uplo, diag, n, a, lda, info);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    trtri prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const char *uplo, const char *diag, const void *n,     \
                                            void *a, const void *lda, void *info)                  \
    {                                                                                              \
        enter(&clb_symbols[CLB_SYMBOL_##routine##_##form], __builtin_return_address(0), uplo,      \
              diag, n, a, lda, info);                                                              \
    }
CLB_FORMS_FORTRAN(CLB_EXPORT, strtri)
CLB_FORMS_FORTRAN(CLB_EXPORT, dtrtri)
CLB_FORMS_FORTRAN(CLB_EXPORT, ctrtri)
CLB_FORMS_FORTRAN(CLB_EXPORT, ztrtri)
