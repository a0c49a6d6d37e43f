/* next: the BLAS/LAPACK that gets every call which does not run on the device.
 *
 * Found per symbol, and per caller where the global search finds nothing. The answer is never the
 * shim itself and never NULL. No lock is held while the dynamic linker works. */
#ifndef CLB_NEXT_H
#define CLB_NEXT_H

#include "base/base.h"

#include <stdatomic.h>

/* How arguments are passed: Fortran by reference, C by value; LAPACKE is C beside a Fortran BLAS.
 */
typedef enum clb_abi { CLB_ABI_FORTRAN, CLB_ABI_C, CLB_ABI_LAPACKE } clb_abi;

/* Which soname stands for the symbol when nothing else is found. */
typedef enum clb_library {
    CLB_LIBRARY_BLAS,
    CLB_LIBRARY_LAPACK,
    CLB_LIBRARY_LAPACKE = CLB_LIBRARY_LAPACK
} clb_library;

/* A function of the next library. Immutable once published but for `lasting`, never freed. */
struct clb_target {
    void (*function)(void);
    bool ilp64;          /* its integers are 64-bit */
    bool optimised;      /* it, or the BLAS that it calls, is made for speed */
    const char *library; /* file name without its directory, for reports */
    unsigned fallback;   /* 0, or whose function it is: see clb_next_find_or */
    /* OpenBLAS's, of the library that has the function; NULL: it has none. */
    void (*set_threads)(int count);
    int (*get_threads)(void);
    /* Its library can't be unloaded, or was not before the count of unloaded ones changes. */
    _Atomic bool lasting;
    uint64_t unloads;
    struct clb_target *link;
};

/* What is to be found, and what was. One for every exported name. */
struct clb_next_symbol {
    _Atomic(const struct clb_target *) target; /* valid for every caller; NULL: ask by caller */
    _Atomic(struct clb_target *) targets;      /* all that were ever found */
    const char *name;                          /* "dgemm_" */
    const char *probe;                         /* i?amax of the same naming scheme, "isamax_" */
    clb_abi abi;
    clb_library library;
    bool always_ilp64;       /* the naming scheme says 64-bit integers */
    _Atomic uint64_t absent; /* no library had it when so many had been loaded; 0: not known */
};

/* The slow path of clb_next_get. Ends the process with status 127 when no library has the symbol,
 * as the dynamic linker would. */
const struct clb_target *clb_next_find(struct clb_next_symbol *symbol, const void *caller);

/* For a symbol that not every library has: where none has it, the first of `count` others that one
 * has stands in, and the target's fallback is its number, from 1. Ends the process when there is
 * none of them either. */
const struct clb_target *clb_next_find_or(struct clb_next_symbol *symbol,
                                          struct clb_next_symbol *const *others, unsigned count,
                                          const void *caller);

/* For a symbol that the caller may not have been linked to at all: NULL when no library has it. */
const struct clb_target *clb_next_try(struct clb_next_symbol *symbol, const void *caller);

/* The target for a call that returns to `caller` (a return address). A few instructions. */
static inline const struct clb_target *clb_next_get(struct clb_next_symbol *symbol,
                                                    const void *caller)
{
    const struct clb_target *target = atomic_load_explicit(&symbol->target, memory_order_acquire);
    return CLB_LIKELY(target != NULL) ? target : clb_next_find(symbol, caller);
}

/* threads.c: from now on the library of the target computes with one thread. True when that was to
 * be done, and clb_next_release_threads must follow; calls may nest and overlap. */
bool clb_next_hold_threads(const struct clb_target *target);
void clb_next_release_threads(void);

/* True when the library that has `function` takes 64-bit integers: i?amax is asked for the largest
 * of n elements with n = 3 in the low half and a negative number as a whole. */
bool clb_next_probe_ilp64(void (*function)(void), const char *probe, clb_abi abi);

#endif
