/* LAPACKE_xpotrf, LAPACKE_xpotri, LAPACKE_xlauum, LAPACKE_xpotrs and LAPACKE_xposv, and the same
 * with _work, whose arguments are the same; LAPACKE_xtrtri.
 *
 * The memory of a Hermitian matrix by rows is that of its conjugate by columns, with the other
 * triangle: A^T = conj(A). So conj(A) = L*L^H is factored in place where A = U^H*U is asked for,
 * L = U^T, and systems are conj(A)*conj(X) = conj(B): only B is copied. L^-1 is the transpose of
 * U^-1, and L^H*L that of U*U^H.
 *
 * Source: LAPACKE. */
#include "lapacke.h"

typedef int64_t potrf(int layout, char uplo, int64_t n, void *a, int64_t lda);
typedef int64_t trtri(int layout, char uplo, char diag, int64_t n, void *a, int64_t lda);
typedef int64_t potrs(int layout, char uplo, int64_t n, int64_t nrhs, void *a, int64_t lda, void *b,
                      int64_t ldb);
typedef bool route(struct clb_symbol *symbol, const struct clb_chol_call *call,
                   const struct clb_next_lapack *next);
typedef double work(double m, double n, double k);

/* Sizes, uplo and A. */
static struct clb_chol_call decode(struct clb_lapacke *lapacke, bool wide, int layout, char uplo,
                                   int64_t n)
{
    struct clb_chol_call call = {.lapacke = lapacke,
                                 .precision = lapacke->precision,
                                 .options_valid = true,
                                 .n = clb_c_int(n, wide),
                                 .wide = wide};
    call.upper = clb_is_letter(uplo, 'U', 'L', &call.options_valid);
    if (layout == CLB_ROW_MAJOR)
        call.upper = !call.upper;
    return call;
}

static void add_a(struct clb_chol_call *call, int layout, char uplo, int64_t lda)
{
    const char part = (char)(uplo & 0xdf);
    call->lda =
        clb_lapacke_add(call->lapacke, layout, clb_c_int(lda, call->wide),
                        (struct clb_lapacke_matrix){
                            CLB_LAPACKE_KEPT, .part = call->unit ? (char)(part | 0x20) : part,
                            .rows = call->n, .cols = call->n, .at = &call->a});
}

/* ---- potrf: A = U^H*U or A = L*L^H; potri: A^-1; lauum: U*U^H or L^H*L ----------------------- */

/* Slow path: enough work (min_work), or calls are counted or logged. */
static CLB_NOINLINE int64_t dispatch_factor(route *taken, struct clb_symbol *symbol,
                                            const struct clb_target *target, const void *caller,
                                            int layout, char uplo, int64_t n, void *a, int64_t lda)
{
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_chol_call call = decode(&lapacke, target->ilp64, layout, uplo, n);
    call.a = a;
    call.info = &info;
    add_a(&call, layout, uplo, lda);
    if (taken(symbol, &call, &next))
        return clb_c_int(info, target->ilp64);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = ((potrf *)target->function)(layout, uplo, n, a, lda);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_factor(route *taken, work *work_of, struct clb_symbol *symbol,
                                const void *caller, int layout, char uplo, int64_t n, void *a,
                                int64_t lda)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_c_int(n, target->ilp64);
    if (clb_work_is_small(symbol, work_of(order, order, order)))
        return ((potrf *)target->function)(layout, uplo, n, a, lda);
    return dispatch_factor(taken, symbol, target, caller, layout, uplo, n, a, lda);
}

#define CLB_EXPORT(taken, work_of, routine, form, prefix, suffix)                                  \
    potrf prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, char uplo, int64_t n, void *a,          \
                                               int64_t lda)                                        \
    {                                                                                              \
        return enter_factor(taken, work_of, &clb_symbols[CLB_SYMBOL_##routine##_##form],           \
                            __builtin_return_address(0), layout, uplo, n, a, lda);                 \
    }
#define CLB_EXPORT_POTRF(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_potrf, clb_work_potrf, routine, form, prefix, suffix)
#define CLB_EXPORT_POTRI(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_potri, clb_work_potri, routine, form, prefix, suffix)
#define CLB_EXPORT_LAUUM(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_lauum, clb_work_lauum, routine, form, prefix, suffix)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRF, spotrf)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRF, dpotrf)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRF, cpotrf)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRF, zpotrf)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRI, spotri)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRI, dpotri)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRI, cpotri)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRI, zpotri)
CLB_FORMS_LAPACK_C(CLB_EXPORT_LAUUM, slauum)
CLB_FORMS_LAPACK_C(CLB_EXPORT_LAUUM, dlauum)
CLB_FORMS_LAPACK_C(CLB_EXPORT_LAUUM, clauum)
CLB_FORMS_LAPACK_C(CLB_EXPORT_LAUUM, zlauum)
#undef CLB_EXPORT

/* ---- trtri: the inverse of a triangle -------------------------------------------------------- */

static CLB_NOINLINE int64_t dispatch_trtri(struct clb_symbol *symbol,
                                           const struct clb_target *target, const void *caller,
                                           int layout, char uplo, char diag, int64_t n, void *a,
                                           int64_t lda)
{
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_chol_call call = decode(&lapacke, target->ilp64, layout, uplo, n);
    call.unit = clb_is_letter(diag, 'U', 'N', &call.options_valid);
    call.a = a;
    call.info = &info;
    add_a(&call, layout, uplo, lda);
    if (clb_route_trtri(symbol, &call, &next))
        return clb_c_int(info, target->ilp64);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = ((trtri *)target->function)(layout, uplo, diag, n, a, lda);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_trtri(struct clb_symbol *symbol, const void *caller, int layout, char uplo,
                               char diag, int64_t n, void *a, int64_t lda)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_c_int(n, target->ilp64);
    if (clb_work_is_small(symbol, clb_work_trtri(order, order, order)))
        return ((trtri *)target->function)(layout, uplo, diag, n, a, lda);
    return dispatch_trtri(symbol, target, caller, layout, uplo, diag, n, a, lda);
}

#define CLB_EXPORT(routine, form, prefix, suffix, abi, ilp64)                                      \
    trtri prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, char uplo, char diag, int64_t n,        \
                                               void *a, int64_t lda)                               \
    {                                                                                              \
        return enter_trtri(&clb_symbols[CLB_SYMBOL_##routine##_##form],                            \
                           __builtin_return_address(0), layout, uplo, diag, n, a, lda);            \
    }
CLB_FORMS_LAPACK_C(CLB_EXPORT, strtri)
CLB_FORMS_LAPACK_C(CLB_EXPORT, dtrtri)
CLB_FORMS_LAPACK_C(CLB_EXPORT, ctrtri)
CLB_FORMS_LAPACK_C(CLB_EXPORT, ztrtri)
#undef CLB_EXPORT

/* ---- potrs, posv: A*X = B, X overwrites B ---------------------------------------------------- */

static CLB_NOINLINE int64_t dispatch_system(route *taken, struct clb_symbol *symbol,
                                            const struct clb_target *target, const void *caller,
                                            int layout, char uplo, int64_t n, int64_t nrhs, void *a,
                                            int64_t lda, void *b, int64_t ldb)
{
    const bool wide = target->ilp64;
    const struct clb_next_lapack next = clb_next_lapack_for(symbol, target, caller);
    struct clb_lapacke lapacke = clb_lapacke_for(symbol, caller, layout);
    int64_t info = 0;
    struct clb_chol_call call = decode(&lapacke, wide, layout, uplo, n);
    call.nrhs = clb_c_int(nrhs, wide);
    call.a = a;
    call.b = b;
    call.info = &info;
    add_a(&call, layout, uplo, lda);
    call.ldb = clb_lapacke_add(&lapacke, layout, clb_c_int(ldb, wide),
                               (struct clb_lapacke_matrix){CLB_LAPACKE_INOUT, .conjugated = true,
                                                           .rows = call.n, .cols = call.nrhs,
                                                           .at = &call.b});
    if (taken(symbol, &call, &next))
        return clb_c_int(info, wide);
    const double begin = clb_stats_wanted() ? clb_next_begin() : 0;
    const int64_t result = ((potrs *)target->function)(layout, uplo, n, nrhs, a, lda, b, ldb);
    return clb_lapacke_end(symbol, target, begin, result);
}

CLB_INLINE int64_t enter_system(route *taken, work *work_of, struct clb_symbol *symbol,
                                const void *caller, int layout, char uplo, int64_t n, int64_t nrhs,
                                void *a, int64_t lda, void *b, int64_t ldb)
{
    const struct clb_target *target = clb_next_get(&symbol->next, caller);
    const double order = (double)clb_c_int(n, target->ilp64);
    if (clb_work_is_small(symbol, work_of(order, order, (double)clb_c_int(nrhs, target->ilp64))))
        return ((potrs *)target->function)(layout, uplo, n, nrhs, a, lda, b, ldb);
    return dispatch_system(taken, symbol, target, caller, layout, uplo, n, nrhs, a, lda, b, ldb);
}

#define CLB_EXPORT(taken, work_of, routine, form, prefix, suffix)                                  \
    potrs prefix##routine##suffix;                                                                 \
    CLB_PUBLIC int64_t prefix##routine##suffix(int layout, char uplo, int64_t n, int64_t nrhs,     \
                                               void *a, int64_t lda, void *b, int64_t ldb)         \
    {                                                                                              \
        return enter_system(taken, work_of, &clb_symbols[CLB_SYMBOL_##routine##_##form],           \
                            __builtin_return_address(0), layout, uplo, n, nrhs, a, lda, b, ldb);   \
    }
#define CLB_EXPORT_POTRS(routine, form, prefix, suffix, abi, ilp64)                                \
    CLB_EXPORT(clb_route_potrs, clb_work_potrs, routine, form, prefix, suffix)
#define CLB_EXPORT_POSV(routine, form, prefix, suffix, abi, ilp64)                                 \
    CLB_EXPORT(clb_route_posv, clb_work_posv, routine, form, prefix, suffix)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRS, spotrs)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRS, dpotrs)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRS, cpotrs)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POTRS, zpotrs)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POSV, sposv)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POSV, dposv)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POSV, cposv)
CLB_FORMS_LAPACK_C(CLB_EXPORT_POSV, zposv)
