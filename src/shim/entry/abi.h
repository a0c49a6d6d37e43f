/* interface: the exported functions. They only decode arguments and call the route layer. Most of
 * them are made by generate.awk; entries/fortran.c and so on in the build folder have the result.
 *
 * Integers. A plain Fortran name (dgemm_) takes the integer width of the library that the caller
 * would have reached without the shim, so Fortran integers are read through clb_int. C names pass
 * integers by value in registers or stack slots of 64 bits, of which a caller with 32-bit integers
 * fills the lower half: they are declared 64-bit and narrowed by clb_c_int; passing them on
 * unchanged is right for a library of either width. SPDX-License-Identifier: BSD-3-Clause
 *
 * Hidden lengths. Fortran compilers append the lengths of character arguments; C callers omit them.
 * They are never read. A declined call is a tail call that leaves the caller's arguments as they
 * are, hidden ones included; a call that the shim makes itself passes 1 for each. */
#ifndef CLB_ABI_H
#define CLB_ABI_H

#include "shim/route/route.h"

#define CLB_INLINE static inline __attribute__((always_inline))

/* A Fortran INTEGER of the target's width. */
CLB_INLINE int64_t clb_int(const void *value, bool ilp64)
{
    return ilp64 ? *(const int64_t *)value : *(const int32_t *)value;
}

CLB_INLINE int64_t clb_c_int(int64_t value, bool ilp64)
{
    return ilp64 ? value : (int32_t)value;
}

/* SIDE, UPLO and DIAG: one of two upper-case letters. Any other is noted in *invalid. */
CLB_INLINE bool clb_is_letter(char letter, char yes, char no, char argument, char *invalid)
{
    const char upper = (char)(letter & 0xdf);
    if (upper != yes && upper != no && *invalid == 0)
        *invalid = argument;
    return upper == yes;
}

enum { CLB_RIGHT = 142 };

CLB_INLINE struct clb_entry clb_entry_for(struct clb_symbol *symbol,
                                          const struct clb_target *target, const void *caller)
{
    return (struct clb_entry){
        .symbol = symbol, .target = target, .caller = caller, .call.wide = target->ilp64};
}

/* True when the call must be declined at once, by a jump to the target: its work is less than the
 * symbol's min_work. */
CLB_INLINE bool clb_work_is_small(struct clb_symbol *symbol, double work)
{
    return work < atomic_load_explicit(&symbol->min_work, memory_order_relaxed) &&
           CLB_LIKELY(!atomic_load_explicit(&symbol->next.dispatched, memory_order_relaxed));
}

/* compose.c: compute a declined call of xGEMMTR or of a batch where the next library lacks it, or
 * report a wrong argument to the error handler that the routine would call (xerbla_, ...). */
void clb_compose(struct clb_entry *entry);

#endif
