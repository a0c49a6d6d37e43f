/* LAPACKE_xgeqrf, LAPACKE_xormqr (xunmqr) and LAPACKE_xorgqr (xungqr), and with the caller's
 * workspace the same with _work.
 *
 * Source: LAPACKE. */
#include "lapacke.h"

#include <stdlib.h>

/* Columns of a workspace that the shim allocates. */
#define OWN_COLUMNS ((size_t)32)

/* Add tau to the arrays that are checked for NaN. */
static void add_tau(struct clb_qr_call *call, int layout, int64_t count)
{
    const bool by_rows = layout == CLB_ROW_MAJOR;
    const int64_t ld = clb_lapacke_add(
        call->lapacke, layout, by_rows ? 1 : count,
        (struct clb_lapacke_matrix){CLB_LAPACKE_KEPT, .rows = count, .cols = 1, .at = &call->tau});
    (void)ld;
}

/* Allocate a workspace of `least` elements by some columns, which the next library may need. NULL
 * when the caller passes one, or when memory has run out: then the call is declined as invalid. */
static void *open_work(const struct clb_symbol *symbol, struct clb_qr_call *call, void *work,
                       int64_t lwork, int64_t least)
{
    const size_t rows = least > 1 ? (size_t)least : 1;
    const size_t element = clb_precision_size(call->precision);
    if (clb_lapacke_is_work(symbol)) {
        call->work = work;
        call->lwork = lwork;
        return NULL;
    }
    call->work = calloc(rows, OWN_COLUMNS * element);
    call->lwork = call->work != NULL ? (int64_t)(rows * OWN_COLUMNS) : 0;
    return call->work;
}

/* ---- geqrf: A = Q*R, A is m x n -------------------------------------------------------------- */

typedef int64_t geqrf(int layout, int64_t m, int64_t n, void *a, int64_t lda, void *tau);
typedef int64_t geqrf_work(int layout, int64_t m, int64_t n, void *a, int64_t lda, void *tau,
                           void *work, int64_t lwork);

static int64_t lapacke_qr_next_geqrf(const struct clb_symbol *symbol,
                                     const struct clb_target *target, int layout, int64_t m,
                                     int64_t n, void *a, int64_t lda, void *tau, void *work,
                                     int64_t lwork)
{
    if (clb_lapacke_is_work(symbol))
        return ((geqrf_work *)target->function)(layout, m, n, a, lda, tau, work, lwork);
    return ((geqrf *)target->function)(layout, m, n, a, lda, tau);
}

/* Slow path: enough work (min_work), or calls are counted or logged. The first element of the
 * caller's workspace is what the next library says to a query. */
static CLB_NOINLINE int64_t dispatch_geqrf(struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller,
                                           int layout, int64_t m, int64_t n, void *a, int64_t lda,
                                           void *tau, void *work, int64_t lwork)
{
    const bool wide = target->ilp64;
    const struct clb_next_qr next = clb_next_qr_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    struct clb_qr_call call = {.lapacke = &lapacke,
                               .precision = lapacke.precision,
                               .m = clb_c_int(m, wide),
                               .n = clb_c_int(n, wide),
                               .a = a,
                               .tau = tau};
    call.lda = clb_lapacke_add(&lapacke, layout, clb_c_int(lda, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .rows = call.m,
                                                           .cols = call.n, .at = &call.a});
    void *own = open_work(symbol, &call, work, clb_c_int(lwork, wide), call.n);
    const bool computed = clb_route_geqrf(symbol, &call, &next);
    free(own);
    if (computed) {
        const struct clb_geqrf problem = {.precision = call.precision,
                                          .m = (size_t)call.m,
                                          .n = (size_t)call.n,
                                          .a = a,
                                          .lda = (size_t)call.lda};
        if (own == NULL)
            next.call_geqrf(next.geqrf, &problem, tau, work, -1);
        return 0;
    }
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result =
        lapacke_qr_next_geqrf(symbol, target, layout, m, n, a, lda, tau, work, lwork);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_geqrf(struct clb_symbol *symbol, const void *caller, int layout, int64_t m,
                               int64_t n, void *a, int64_t lda, void *tau, void *work,
                               int64_t lwork)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double rows = (double)clb_c_int(m, target->ilp64);
    const double cols = (double)clb_c_int(n, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_geqrf(rows, cols, rows < cols ? rows : cols)))
        return lapacke_qr_next_geqrf(symbol, target, layout, m, n, a, lda, tau, work, lwork);
    return dispatch_geqrf(symbol, target, caller, layout, m, n, a, lda, tau, work, lwork);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    geqrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t m, int64_t n, void *a,          \
                                               int64_t lda, void *tau)                             \
    {                                                                                              \
        return enter_geqrf(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, m, n, a, lda, tau, NULL, 0);       \
    }
#define CLB_EXPORT_WORK(routine, form, prefix, suffix, abi, ilp64)                                 \
    geqrf_work prefix##routine##suffix;                                                            \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t m, int64_t n, void *a,          \
                                               int64_t lda, void *tau, void *work, int64_t lwork)  \
    {                                                                                              \
        return enter_geqrf(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, m, n, a, lda, tau, work, lwork);   \
    }
#define CLB_EXPORT_BOTH(routine)                                                                   \
    CLB_FORMS_LAPACK_HIGH(CLB_EXPORT, routine) CLB_FORMS_LAPACK_WORK(CLB_EXPORT_WORK, routine)
CLB_EXPORT_BOTH(sgeqrf)
CLB_EXPORT_BOTH(dgeqrf)
CLB_EXPORT_BOTH(cgeqrf)
CLB_EXPORT_BOTH(zgeqrf)
#undef CLB_EXPORT
#undef CLB_EXPORT_WORK

/* ---- orgqr: n columns of Q, m x m, from k reflectors ----------------------------------------- */

typedef int64_t orgqr(int layout, int64_t m, int64_t n, int64_t k, void *a, int64_t lda, void *tau);
typedef int64_t orgqr_work(int layout, int64_t m, int64_t n, int64_t k, void *a, int64_t lda,
                           void *tau, void *work, int64_t lwork);

static int64_t next_orgqr(const struct clb_symbol *symbol, const struct clb_target *target,
                          int layout, int64_t m, int64_t n, int64_t k, void *a, int64_t lda,
                          void *tau, void *work, int64_t lwork)
{
    if (clb_lapacke_is_work(symbol))
        return ((orgqr_work *)target->function)(layout, m, n, k, a, lda, tau, work, lwork);
    return ((orgqr *)target->function)(layout, m, n, k, a, lda, tau);
}

static CLB_NOINLINE int64_t dispatch_orgqr(struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller,
                                           int layout, int64_t m, int64_t n, int64_t k, void *a,
                                           int64_t lda, void *tau, void *work, int64_t lwork)
{
    const bool wide = target->ilp64;
    const struct clb_next_qr next = clb_next_qr_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    struct clb_qr_call call = {.lapacke = &lapacke,
                               .precision = lapacke.precision,
                               .m = clb_c_int(m, wide),
                               .n = clb_c_int(n, wide),
                               .k = clb_c_int(k, wide),
                               .a = a,
                               .tau = tau};
    call.lda = clb_lapacke_add(&lapacke, layout, clb_c_int(lda, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .rows = call.m,
                                                           .cols = call.n, .at = &call.a});
    add_tau(&call, layout, call.k);
    void *own = open_work(symbol, &call, work, clb_c_int(lwork, wide), call.n);
    const bool computed = clb_route_orgqr(symbol, &call, &next);
    free(own);
    if (computed) {
        const struct clb_orgqr problem = {.precision = call.precision,
                                          .m = (size_t)call.m,
                                          .n = (size_t)call.n,
                                          .k = (size_t)call.k,
                                          .a = a,
                                          .lda = (size_t)call.lda,
                                          .tau = tau};
        if (own == NULL)
            next.call_orgqr(next.orgqr, &problem, work, -1);
        return 0;
    }
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = next_orgqr(symbol, target, layout, m, n, k, a, lda, tau, work, lwork);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_orgqr(struct clb_symbol *symbol, const void *caller, int layout, int64_t m,
                               int64_t n, int64_t k, void *a, int64_t lda, void *tau, void *work,
                               int64_t lwork)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64;
    if (clb_work_is_small(symbol,
                          clb_work_orgqr((double)clb_c_int(m, wide), (double)clb_c_int(n, wide),
                                         (double)clb_c_int(k, wide))))
        return next_orgqr(symbol, target, layout, m, n, k, a, lda, tau, work, lwork);
    return dispatch_orgqr(symbol, target, caller, layout, m, n, k, a, lda, tau, work, lwork);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    orgqr prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t m, int64_t n, int64_t k,        \
                                               void *a, int64_t lda, void *tau)                    \
    {                                                                                              \
        return enter_orgqr(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, m, n, k, a, lda, tau, NULL, 0);    \
    }
#define CLB_EXPORT_WORK(routine, form, prefix, suffix, abi, ilp64)                                 \
    orgqr_work prefix##routine##suffix;                                                            \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, int64_t m, int64_t n, int64_t k,        \
                                               void *a, int64_t lda, void *tau, void *work,        \
                                               int64_t lwork)                                      \
    {                                                                                              \
        return enter_orgqr(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, m, n, k, a, lda, tau, work,        \
                           lwork);                                                                 \
    }
CLB_EXPORT_BOTH(sorgqr)
CLB_EXPORT_BOTH(dorgqr)
CLB_EXPORT_BOTH(cungqr)
CLB_EXPORT_BOTH(zungqr)
#undef CLB_EXPORT
#undef CLB_EXPORT_WORK

/* ---- ormqr: op(Q)*C or C*op(Q), C is m x n, Q of k reflectors -------------------------------- */

typedef int64_t ormqr(int layout, char side, char trans, int64_t m, int64_t n, int64_t k, void *a,
                      int64_t lda, void *tau, void *c, int64_t ldc);
typedef int64_t ormqr_work(int layout, char side, char trans, int64_t m, int64_t n, int64_t k,
                           void *a, int64_t lda, void *tau, void *c, int64_t ldc, void *work,
                           int64_t lwork);

static int64_t lapacke_qr_next_ormqr(const struct clb_symbol *symbol,
                                     const struct clb_target *target, int layout, char side,
                                     char trans, int64_t m, int64_t n, int64_t k, void *a,
                                     int64_t lda, void *tau, void *c, int64_t ldc, void *work,
                                     int64_t lwork)
{
    if (clb_lapacke_is_work(symbol))
        return ((ormqr_work *)target->function)(layout, side, trans, m, n, k, a, lda, tau, c, ldc,
                                                work, lwork);
    return ((ormqr *)target->function)(layout, side, trans, m, n, k, a, lda, tau, c, ldc);
}

static CLB_NOINLINE int64_t dispatch_ormqr(struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller,
                                           int layout, char side, char trans, int64_t m, int64_t n,
                                           int64_t k, void *a, int64_t lda, void *tau, void *c,
                                           int64_t ldc, void *work, int64_t lwork)
{
    const bool wide = target->ilp64;
    const struct clb_next_qr next = clb_next_qr_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    struct clb_qr_call call = {.lapacke = &lapacke,
                               .precision = lapacke.precision,
                               .trans = clb_op_of_letter(trans),
                               .options_valid = true,
                               .m = clb_c_int(m, wide),
                               .n = clb_c_int(n, wide),
                               .k = clb_c_int(k, wide),
                               .a = a,
                               .tau = tau,
                               .c = c};
    call.right = clb_is_letter(side, 'R', 'L', &call.options_valid);
    call.lda = clb_lapacke_add(&lapacke, layout, clb_c_int(lda, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_IN,
                                                           .rows = call.right ? call.n : call.m,
                                                           .cols = call.k, .at = &call.a});
    call.ldc = clb_lapacke_add(&lapacke, layout, clb_c_int(ldc, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .rows = call.m,
                                                           .cols = call.n, .at = &call.c});
    add_tau(&call, layout, call.k);
    void *own =
        open_work(symbol, &call, work, clb_c_int(lwork, wide), call.right ? call.m : call.n);
    const bool computed = clb_route_ormqr(symbol, &call, &next);
    free(own);
    if (computed) {
        const struct clb_ormqr problem = {.precision = call.precision,
                                          .right = call.right,
                                          .trans = call.trans,
                                          .m = (size_t)call.m,
                                          .n = (size_t)call.n,
                                          .k = (size_t)call.k,
                                          .a = a,
                                          .lda = (size_t)call.lda,
                                          .tau = tau,
                                          .c = c,
                                          .ldc = (size_t)call.ldc};
        if (own == NULL)
            next.call_ormqr(next.ormqr, &problem, work, -1);
        return 0;
    }
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = lapacke_qr_next_ormqr(symbol, target, layout, side, trans, m, n, k, a,
                                                 lda, tau, c, ldc, work, lwork);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_ormqr(struct clb_symbol *symbol, const void *caller, int layout, char side,
                               char trans, int64_t m, int64_t n, int64_t k, void *a, int64_t lda,
                               void *tau, void *c, int64_t ldc, void *work, int64_t lwork)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const bool wide = target->ilp64, right = (side & 0xdf) == 'R';
    const double rows = (double)clb_c_int(m, wide), cols = (double)clb_c_int(n, wide),
                 count = (double)clb_c_int(k, wide);
    if (clb_work_is_small(symbol, clb_work_ormqr(right ? cols : rows, right ? rows : cols, count)))
        return lapacke_qr_next_ormqr(symbol, target, layout, side, trans, m, n, k, a, lda, tau, c,
                                     ldc, work, lwork);
    return dispatch_ormqr(symbol, target, caller, layout, side, trans, m, n, k, a, lda, tau, c, ldc,
                          work, lwork);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    ormqr prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, char side, char trans, int64_t m,       \
                                               int64_t n, int64_t k, void *a, int64_t lda,         \
                                               void *tau, void *c, int64_t ldc)                    \
    {                                                                                              \
        return enter_ormqr(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, side, trans, m, n, k, a, lda, tau, \
                           c, ldc, NULL, 0);                                                       \
    }
#define CLB_EXPORT_WORK(routine, form, prefix, suffix, abi, ilp64)                                 \
    ormqr_work prefix##routine##suffix;                                                            \
    CLB_PUBLIC int64_t prefix##routine##suffix(                                                    \
        int layout, char side, char trans, int64_t m, int64_t n, int64_t k, void *a, int64_t lda,  \
        void *tau, void *c, int64_t ldc, void *work, int64_t lwork)                                \
    {                                                                                              \
        return enter_ormqr(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, side, trans, m, n, k, a, lda, tau, \
                           c, ldc, work, lwork);                                                   \
    }
CLB_EXPORT_BOTH(sormqr)
CLB_EXPORT_BOTH(dormqr)
CLB_EXPORT_BOTH(cunmqr)
CLB_EXPORT_BOTH(zunmqr)
