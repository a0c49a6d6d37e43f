/* LAPACKE_xgetrf, LAPACKE_xgetrs and LAPACKE_xgesv, and the same with _work, whose arguments are
 * the same. Pointers are passed on, so that one function serves every precision.
 *
 * Source: LAPACKE (LAPACK Users' Guide; lapacke.h of Reference LAPACK). */
#include "lapacke.h"

#define ALL_FORMS CLB_FORMS_LAPACK_C

/* ---- getrf: A = P*L*U, A is m x n ------------------------------------------------------------ */

typedef int64_t getrf(int layout, int64_t m, int64_t n, void *a, int64_t lda, void *ipiv);

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE int64_t dispatch_getrf(struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller,
                                           int layout, int64_t m, int64_t n, void *a, int64_t lda,
                                           void *ipiv)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_lu_call call = {.lapacke = &lapacke,
                               .precision = lapacke.precision,
                               .m = clb_c_int(m, wide),
                               .n = clb_c_int(n, wide),
                               .a = a,
                               .ipiv = ipiv,
                               .info = &info,
                               .wide = wide};
    call.lda = clb_lapacke_add(&lapacke, layout, clb_c_int(lda, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .rows = call.m,
                                                           .cols = call.n, .at = &call.a});
    if (clb_route_getrf(symbol, &call, &next))
        return clb_c_int(info, wide);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = ((getrf *)target->function)(layout, m, n, a, lda, ipiv);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_getrf(struct clb_symbol *symbol, const void *caller, int layout, int64_t m,
                               int64_t n, void *a, int64_t lda, void *ipiv)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double rows = (double)clb_c_int(m, target->ilp64);
    const double cols = (double)clb_c_int(n, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_getrf(rows, cols, rows < cols ? rows : cols)))
        return ((getrf *)target->function)(layout, m, n, a, lda, ipiv);
    return dispatch_getrf(symbol, target, caller, layout, m, n, a, lda, ipiv);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t m, int64_t n, void *a,          \
                                               int64_t lda, void *ipiv)                            \
    {                                                                                              \
        return enter_getrf(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, m, n, a, lda, ipiv);               \
    }
ALL_FORMS(CLB_EXPORT, sgetrf)
ALL_FORMS(CLB_EXPORT, dgetrf)
ALL_FORMS(CLB_EXPORT, cgetrf)
ALL_FORMS(CLB_EXPORT, zgetrf)
#undef CLB_EXPORT

/* ---- systems: op(A)*X = B, A is n x n, B has nrhs columns ------------------------------------ */

/* Both routines' call; A is only read by getrs. */
static struct clb_lu_call decode_system(struct clb_lapacke *lapacke, bool wide, int64_t n,
                                        int64_t nrhs, void *a, void *ipiv, void *b, int64_t *info)
{
    const int64_t order = clb_c_int(n, wide);
    return (struct clb_lu_call){.lapacke = lapacke,
                                .precision = lapacke->precision,
                                .m = order,
                                .n = order,
                                .nrhs = clb_c_int(nrhs, wide),
                                .a = a,
                                .b = b,
                                .ipiv = ipiv,
                                .info = info,
                                .wide = wide};
}

static void add_matrices(struct clb_lu_call *call, int layout, clb_lapacke_use use_a, int64_t lda,
                         int64_t ldb)
{
    call->lda = clb_lapacke_add(
        call->lapacke, layout, clb_c_int(lda, call->wide),
        (struct clb_lapacke_matrix){use_a, .rows = call->n, .cols = call->n, .at = &call->a});
    call->ldb = clb_lapacke_add(call->lapacke, layout, clb_c_int(ldb, call->wide),
                                (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .rows = call->n,
                                                            .cols = call->nrhs, .at = &call->b});
}

/* ---- getrs ----------------------------------------------------------------------------------- */

typedef int64_t getrs(int layout, char trans, int64_t n, int64_t nrhs, void *a, int64_t lda,
                      void *ipiv, void *b, int64_t ldb);

static CLB_NOINLINE int64_t dispatch_getrs(struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller,
                                           int layout, char trans, int64_t n, int64_t nrhs, void *a,
                                           int64_t lda, void *ipiv, void *b, int64_t ldb)
{
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_lu_call call = decode_system(&lapacke, target->ilp64, n, nrhs, a, ipiv, b, &info);
    call.trans = clb_op_of_letter(trans);
    add_matrices(&call, layout, CLB_LAPACKE_IN, lda, ldb);
    if (clb_route_getrs(symbol, &call, &next))
        return clb_c_int(info, target->ilp64);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result =
        ((getrs *)target->function)(layout, trans, n, nrhs, a, lda, ipiv, b, ldb);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_getrs(struct clb_symbol *symbol, const void *caller, int layout,
                               char trans, int64_t n, int64_t nrhs, void *a, int64_t lda,
                               void *ipiv, void *b, int64_t ldb)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_c_int(n, target->ilp64);
    const double columns = (double)clb_c_int(nrhs, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_getrs(order, order, columns)))
        return ((getrs *)target->function)(layout, trans, n, nrhs, a, lda, ipiv, b, ldb);
    return dispatch_getrs(symbol, target, caller, layout, trans, n, nrhs, a, lda, ipiv, b, ldb);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    getrs prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, char trans, int64_t n, int64_t nrhs,    \
                                               void *a, int64_t lda, void *ipiv, void *b,          \
                                               int64_t ldb)                                        \
    {                                                                                              \
        return enter_getrs(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, trans, n, nrhs, a, lda, ipiv, b,   \
                           ldb);                                                                   \
    }
ALL_FORMS(CLB_EXPORT, sgetrs)
ALL_FORMS(CLB_EXPORT, dgetrs)
ALL_FORMS(CLB_EXPORT, cgetrs)
ALL_FORMS(CLB_EXPORT, zgetrs)
#undef CLB_EXPORT

/* ---- gesv ------------------------------------------------------------------------------------ */

typedef int64_t gesv(int layout, int64_t n, int64_t nrhs, void *a, int64_t lda, void *ipiv, void *b,
                     int64_t ldb);

static CLB_NOINLINE int64_t dispatch_gesv(struct clb_symbol *symbol,
                                          const struct clb_target *target, const void *caller,
                                          int layout, int64_t n, int64_t nrhs, void *a, int64_t lda,
                                          void *ipiv, void *b, int64_t ldb)
{
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_lu_call call = decode_system(&lapacke, target->ilp64, n, nrhs, a, ipiv, b, &info);
    add_matrices(&call, layout, CLB_LAPACKE_INOUT, lda, ldb);
    if (clb_route_gesv(symbol, &call, &next))
        return clb_c_int(info, target->ilp64);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = ((gesv *)target->function)(layout, n, nrhs, a, lda, ipiv, b, ldb);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_gesv(struct clb_symbol *symbol, const void *caller, int layout, int64_t n,
                              int64_t nrhs, void *a, int64_t lda, void *ipiv, void *b, int64_t ldb)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_c_int(n, target->ilp64);
    const double columns = (double)clb_c_int(nrhs, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_gesv(order, order, columns)))
        return ((gesv *)target->function)(layout, n, nrhs, a, lda, ipiv, b, ldb);
    return dispatch_gesv(symbol, target, caller, layout, n, nrhs, a, lda, ipiv, b, ldb);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    gesv prefix##routine##suffix;                                                                  \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t n, int64_t nrhs, void *a,       \
                                               int64_t lda, void *ipiv, void *b, int64_t ldb)      \
    {                                                                                              \
        return enter_gesv(&clb_symbols[CLB_SYMBOL_##routine##_##form],                             \
                          __builtin_return_address(0), layout, n, nrhs, a, lda, ipiv, b, ldb);     \
    }
ALL_FORMS(CLB_EXPORT, sgesv)
ALL_FORMS(CLB_EXPORT, dgesv)
ALL_FORMS(CLB_EXPORT, cgesv)
ALL_FORMS(CLB_EXPORT, zgesv)
