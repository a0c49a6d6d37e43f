/* next.h: for next*.c, which call the next library from the shim: arguments of such calls, and the
 * names of the functions. */
#ifndef CLB_INTERFACE_NEXT_H
#define CLB_INTERFACE_NEXT_H

#include "abi.h"

/* An integer to be passed by reference: the low half is the 32-bit value on little-endian machines,
 * and the upper half is read by 64-bit libraries only. */
union clb_integer {
    int64_t wide;
    int32_t narrow;
};

static inline union clb_integer clb_integer_for(size_t value, const struct clb_target *target)
{
    union clb_integer out;
    if (target->ilp64)
        out.wide = (int64_t)value;
    else
        out.narrow = (int32_t)value;
    return out;
}

static inline const char *clb_letter_of_op(clb_op op)
{
    return op == CLB_OP_N ? "N" : op == CLB_OP_T ? "T" : "C";
}

/* The number of the last Fortran name of a routine, counted from 0 in the order of names.h. */
#define CLB_FORTRAN_FORMS CLB_FORM_scipy_ilp64

/* The Fortran form of the same naming scheme as a symbol's: LAPACKE calls that one. */
static inline size_t clb_form_of(const struct clb_symbol *symbol)
{
    switch (symbol->form) {
    case CLB_FORM_ilp64:
    case CLB_FORM_lapacke_ilp64:
    case CLB_FORM_lapacke_ilp64_ref:
    case CLB_FORM_lapacke_work_ilp64:
    case CLB_FORM_lapacke_work_ilp64_ref:
        return CLB_FORM_ilp64;
    case CLB_FORM_scipy:
    case CLB_FORM_scipy_lapacke:
    case CLB_FORM_scipy_lapacke_work:
        return CLB_FORM_scipy;
    case CLB_FORM_scipy_ilp64:
    case CLB_FORM_scipy_lapacke_ilp64:
    case CLB_FORM_scipy_lapacke_work_ilp64:
        return CLB_FORM_scipy_ilp64;
    default:
        return CLB_FORM_plain;
    }
}

/* The target of another symbol for the same caller; NULL when there is none or its integers have
 * another width. */
static inline const struct clb_target *
clb_same_abi(struct clb_next_symbol *symbol, const struct clb_target *target, const void *caller)
{
    const struct clb_target *found = clb_next_try(symbol, caller);
    return found != NULL && found->ilp64 == target->ilp64 ? found : NULL;
}

#endif
