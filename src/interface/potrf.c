/* spotrf, dpotrf, cpotrf and zpotrf: A = U^H*U or A = L*L^H, A is n x n; spotri and so on: A^-1
 * from the factor; slauum and so on: U*U^H or L^H*L. The arguments are the same.
 *
 * Source: LAPACK xPOTRF, xPOTRI, xLAUUM. */
#include "abi.h"

typedef void potrf(const char *uplo, const void *n, void *a, const void *lda, void *info);
/* Declined calls pass the length explicitly: the caller has it in a register, which a tail call
 * without that argument need not keep. */
typedef void potrf_length(const char *uplo, const void *n, void *a, const void *lda, void *info,
                          size_t length_uplo);
typedef bool route(struct clb_symbol *symbol, const struct clb_chol_call *call,
                   const struct clb_next_lapack *next);
typedef double work(double m, double n, double k);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void potrf_dispatch(route *taken, struct clb_symbol *symbol,
                                        const struct clb_target *target, const void *caller,
                                        const char *uplo, const void *n, void *a, const void *lda,
                                        void *info)
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
    if (taken(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((potrf_length *)target->function)(uplo, n, a, lda, info, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

CLB_INLINE void enter(route *taken, work *work_of, struct clb_symbol *symbol, const void *caller,
                      const char *uplo, const void *n, void *a, const void *lda, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_int(n, target->ilp64);
    if (clb_work_is_small(symbol, work_of(order, order, order)))
        ((potrf_length *)target->function)(uplo, n, a, lda, info, 1);
    else
        potrf_dispatch(taken, symbol, target, caller, uplo, n, a, lda, info);
}

#define CLB_EXPORT(taken, work_of, routine, form, prefix, suffix)                                  \
    potrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const char *uplo, const void *n, void *a,              \
                                            const void *lda, void *info)                           \
    {                                                                                              \
        enter(taken, work_of, &clb_symbols[CLB_SYMBOL_##routine##_##form],                         \
              __builtin_return_address(0), uplo, n, a, lda, info);                                 \
    }
#define CLB_EXPORT_POTRF(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_potrf, clb_work_potrf, routine, form, prefix, suffix)
#define CLB_EXPORT_POTRI(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_potri, clb_work_potri, routine, form, prefix, suffix)
#define CLB_EXPORT_LAUUM(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_lauum, clb_work_lauum, routine, form, prefix, suffix)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRF, spotrf)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRF, dpotrf)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRF, cpotrf)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRF, zpotrf)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRI, spotri)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRI, dpotri)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRI, cpotri)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRI, zpotri)
CLB_FORMS_FORTRAN(CLB_EXPORT_LAUUM, slauum)
CLB_FORMS_FORTRAN(CLB_EXPORT_LAUUM, dlauum)
CLB_FORMS_FORTRAN(CLB_EXPORT_LAUUM, clauum)
CLB_FORMS_FORTRAN(CLB_EXPORT_LAUUM, zlauum)
