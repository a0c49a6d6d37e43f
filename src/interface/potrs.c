/* spotrs, dpotrs, cpotrs and zpotrs: A*X = B from xPOTRF's factor; and sposv, dposv, cposv and
 * zposv, which factor first. A is n x n, X overwrites B. The arguments are the same.
 *
 * Source: LAPACK xPOTRS, xPOSV. */
#include "abi.h"

typedef void potrs(const char *uplo, const void *n, const void *nrhs, void *a, const void *lda,
                   void *b, const void *ldb, void *info);
typedef void potrs_length(const char *uplo, const void *n, const void *nrhs, void *a,
                          const void *lda, void *b, const void *ldb, void *info,
                          size_t length_uplo);
typedef bool route(struct clb_symbol *symbol, const struct clb_chol_call *call,
                   const struct clb_next_lapack *next);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE void potrs_dispatch(route *taken, struct clb_symbol *symbol,
                                        const struct clb_target *target, const void *caller,
                                        const char *uplo, const void *n, const void *nrhs, void *a,
                                        const void *lda, void *b, const void *ldb, void *info)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_chol_call call = {.precision = clb_routine_get(symbol->routine)->precision,
                                 .options_valid = true,
                                 .n = clb_int(n, wide),
                                 .nrhs = clb_int(nrhs, wide),
                                 .lda = clb_int(lda, wide),
                                 .ldb = clb_int(ldb, wide),
                                 .a = a,
                                 .b = b,
                                 .info = info,
                                 .wide = wide};
    call.upper = clb_is_letter(*uplo, 'U', 'L', &call.options_valid);
    if (taken(symbol, &call, &next))
        return;
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    ((potrs_length *)target->function)(uplo, n, nrhs, a, lda, b, ldb, info, 1);
    if (clb_stats_wanted())
        clb_next_end(symbol, begin);
}

typedef double work(double m, double n, double k);

CLB_INLINE void enter(route *taken, work *work_of, struct clb_symbol *symbol, const void *caller,
                      const char *uplo, const void *n, const void *nrhs, void *a, const void *lda,
                      void *b, const void *ldb, void *info)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    const double order = (double)clb_int(n, wide);
    if (clb_work_is_small(symbol, work_of(order, order, (double)clb_int(nrhs, wide))))
        ((potrs *)target->function)(uplo, n, nrhs, a, lda, b, ldb, info);
    else
        potrs_dispatch(taken, symbol, target, caller, uplo, n, nrhs, a, lda, b, ldb, info);
}

#define CLB_EXPORT(taken, work_of, routine, form, prefix, suffix)                                  \
    potrs prefix##routine##suffix;                                                                 \
    CLB_PUBLIC void prefix##routine##suffix(const char *uplo, const void *n, const void *nrhs,     \
                                            void *a, const void *lda, void *b, const void *ldb,    \
                                            void *info)                                            \
    {                                                                                              \
        enter(taken, work_of, &clb_symbols[CLB_SYMBOL_##routine##_##form],                         \
              __builtin_return_address(0), uplo, n, nrhs, a, lda, b, ldb, info);                   \
    }
#define CLB_EXPORT_POTRS(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_potrs, clb_work_potrs, routine, form, prefix, suffix)
#define CLB_EXPORT_POSV(routine, form, prefix, suffix, abi, ilp64)                                 \
    CLB_EXPORT(clb_route_posv, clb_work_posv, routine, form, prefix, suffix)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRS, spotrs)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRS, dpotrs)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRS, cpotrs)
CLB_FORMS_FORTRAN(CLB_EXPORT_POTRS, zpotrs)
CLB_FORMS_FORTRAN(CLB_EXPORT_POSV, sposv)
CLB_FORMS_FORTRAN(CLB_EXPORT_POSV, dposv)
CLB_FORMS_FORTRAN(CLB_EXPORT_POSV, cposv)
CLB_FORMS_FORTRAN(CLB_EXPORT_POSV, zposv)
