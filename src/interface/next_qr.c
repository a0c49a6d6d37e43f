/* Calls of the next library's QR functions by the shim itself. */
#include "next.h"

#include <stdlib.h>
#include <string.h>

typedef void geqrf_fortran(const void *m, const void *n, void *a, const void *lda, void *tau,
                           void *work, const void *lwork, void *info);
typedef void geqrt_fortran(const void *m, const void *n, const void *nb, void *a, const void *lda,
                           void *t, const void *ldt, void *work, void *info);
typedef void ormqr_fortran(const char *side, const char *trans, const void *m, const void *n,
                           const void *k, const void *a, const void *lda, const void *tau, void *c,
                           const void *ldc, void *work, const void *lwork, void *info,
                           size_t length_side, size_t length_trans);
typedef void orgqr_fortran(const void *m, const void *n, const void *k, void *a, const void *lda,
                           const void *tau, void *work, const void *lwork, void *info);

static void call_geqrf(const struct clb_target *target, const struct clb_geqrf *p, void *tau,
                       void *work, int64_t lwork)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            lda = clb_integer_for(p->lda, target),
                            size = clb_integer_for((size_t)lwork, target);
    union clb_integer info;
    ((geqrf_fortran *)target->function)(&m, &n, p->a, &lda, tau, work, &size, &info);
}

/* Columns of a block of xGEQRT. The triangular factor of a block has this order and tau on its
 * diagonal. */
#define BLOCK ((size_t)32)

static bool call_geqrt(const struct clb_target *target, const struct clb_geqrf *p, void *tau)
{
    size_t element = clb_precision_size(p->precision), count = clb_min(p->m, p->n);
    size_t block = clb_min(BLOCK, count);
    char *memory = malloc((count + p->n) * block * element);
    if (memory == NULL)
        return false;
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            nb = clb_integer_for(block, target),
                            lda = clb_integer_for(p->lda, target);
    union clb_integer info;
    ((geqrt_fortran *)target->function)(&m, &n, &nb, p->a, &lda, memory, &nb,
                                        memory + count * block * element, &info);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)tau + i * element, memory + (i * block + i % block) * element, element);
    free(memory);
    return true;
}

static void call_ormqr(const struct clb_target *target, const struct clb_ormqr *p, void *work,
                       int64_t lwork)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            k = clb_integer_for(p->k, target),
                            lda = clb_integer_for(p->lda, target),
                            ldc = clb_integer_for(p->ldc, target),
                            size = clb_integer_for((size_t)lwork, target);
    bool real = clb_precision_parts(p->precision) == 1;
    const char *trans = p->trans == CLB_OP_N ? "N" : real ? "T" : "C";
    union clb_integer info;
    ((ormqr_fortran *)target->function)(p->right ? "R" : "L", trans, &m, &n, &k, p->a, &lda, p->tau,
                                        p->c, &ldc, work, &size, &info, 1, 1);
}

static void call_orgqr(const struct clb_target *target, const struct clb_orgqr *p, void *work,
                       int64_t lwork)
{
    const union clb_integer m = clb_integer_for(p->m, target), n = clb_integer_for(p->n, target),
                            k = clb_integer_for(p->k, target),
                            lda = clb_integer_for(p->lda, target),
                            size = clb_integer_for((size_t)lwork, target);
    union clb_integer info;
    ((orgqr_fortran *)target->function)(&m, &n, &k, p->a, &lda, p->tau, work, &size, &info);
}

/* ---- targets of the functions ---------------------------------------------------------------- */

/* The shim does not export xGEQRT, so routines.def lacks its names. */
#define CLB_GEQRT(routine, form, prefix, suffix, abi_name, ilp64)                                  \
    {.name = #prefix #routine #suffix,                                                             \
     .probe = #prefix "isamax" #suffix,                                                            \
     .abi = CLB_ABI_##abi_name,                                                                    \
     .library = CLB_LIBRARY_LAPACK,                                                                \
     .always_ilp64 = ilp64},
static struct clb_next_symbol geqrt[CLB_PRECISIONS][CLB_FORTRAN_FORMS + 1] = {
    [CLB_S] = {CLB_FORMS_FORTRAN(CLB_GEQRT, sgeqrt)},
    [CLB_D] = {CLB_FORMS_FORTRAN(CLB_GEQRT, dgeqrt)},
    [CLB_C] = {CLB_FORMS_FORTRAN(CLB_GEQRT, cgeqrt)},
    [CLB_Z] = {CLB_FORMS_FORTRAN(CLB_GEQRT, zgeqrt)},
};

/* xGEQRF, xORMQR and xORGQR. */
static const clb_symbol_id families[CLB_PRECISIONS][3] = {
    [CLB_S] = {CLB_SYMBOL_sgeqrf_plain, CLB_SYMBOL_sormqr_plain, CLB_SYMBOL_sorgqr_plain},
    [CLB_D] = {CLB_SYMBOL_dgeqrf_plain, CLB_SYMBOL_dormqr_plain, CLB_SYMBOL_dorgqr_plain},
    [CLB_C] = {CLB_SYMBOL_cgeqrf_plain, CLB_SYMBOL_cunmqr_plain, CLB_SYMBOL_cungqr_plain},
    [CLB_Z] = {CLB_SYMBOL_zgeqrf_plain, CLB_SYMBOL_zunmqr_plain, CLB_SYMBOL_zungqr_plain},
};

struct clb_next_qr clb_next_qr_for(const struct clb_symbol *symbol, const struct clb_target *target,
                                   const void *caller)
{
    clb_precision precision = clb_routine_get(symbol->routine)->precision;
    const clb_symbol_id *family = families[precision];
    size_t form = clb_form_of(symbol);
    const struct clb_target *panel = clb_same_abi(&geqrt[precision][form], target, caller);
    /* xGEQRT of another library may be slower than the program's xGEQRF. */
    if (panel != NULL && strcmp(panel->library, target->library) != 0)
        panel = NULL;
    return (struct clb_next_qr){
        .geqrf = clb_same_abi(&clb_symbols[family[0] + form].next, target, caller),
        .ormqr = clb_same_abi(&clb_symbols[family[1] + form].next, target, caller),
        .orgqr = clb_same_abi(&clb_symbols[family[2] + form].next, target, caller),
        .geqrt = panel,
        .call_geqrf = call_geqrf,
        .call_geqrt = call_geqrt,
        .call_ormqr = call_ormqr,
        .call_orgqr = call_orgqr,
    };
}
