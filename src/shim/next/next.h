/* next: finds the BLAS/LAPACK that computes every call which does not run on the device.
 * SPDX-License-Identifier: BSD-3-Clause
 * It is searched for each symbol, and for each caller where the global search finds nothing. The
 * result is never the shim itself and never NULL. No lock is held while dlopen or dlsym runs. */
#ifndef CLB_NEXT_H
#define CLB_NEXT_H

#include "blas/blas.h"

#include <stdatomic.h>

/* How arguments are passed: Fortran by reference, C by value. LAPACKE is C, too, but the integer
 * width is probed by a BLAS function with a Fortran name. */
typedef enum clb_abi { CLB_ABI_FORTRAN, CLB_ABI_C, CLB_ABI_LAPACKE } clb_abi;

/* The soname that is loaded for a symbol when nothing else is found. */
typedef enum clb_library {
    CLB_LIBRARY_BLAS,
    CLB_LIBRARY_LAPACK,
    CLB_LIBRARY_LAPACKE = CLB_LIBRARY_LAPACK
} clb_library;

/* A function of the next library. Never freed; constant once published. */
struct clb_target {
    void (*function)(void);
    bool ilp64;          /* its integers are 64-bit */
    bool optimised;      /* it, or the BLAS that it calls, is an optimised library */
    const char *library; /* file name without its directory, for reports */
    enum { CLB_OWN, CLB_SAME, CLB_COMPOSED } fallback; /* another name's: see `others` there */
    /* OpenBLAS's functions, in the library that has `function`; NULL: it has none, or no number for
     * the whole process to set, as with OpenMP. */
    void (*set_threads)(int count);
    int (*get_threads)(void);
    struct clb_target *link;
};

/* A symbol to search for, and the targets found. One for every exported name. */
struct clb_next_symbol {
    _Atomic(const struct clb_target *) target; /* valid for all callers; NULL: depends on caller */
    _Atomic(struct clb_target *) targets;      /* all that were ever found */
    const char *name;                          /* "dgemm_" */
    const char *probe;                         /* i?amax of the same naming scheme, "isamax_" */
    clb_abi abi;
    clb_library library;
    bool always_ilp64; /* the naming scheme says 64-bit integers */
    /* A target may be in a dispatcher, which may jump back into the shim: it must be called from
     * the shim, not jumped to, so that the second call comes from the shim and goes elsewhere. */
    _Atomic bool dispatched;
    _Atomic uint64_t absent; /* 1 + the count of loads when no library had it; 0: not known */
};

/* The symbol whose call was declined last in this thread, before its target is called. */
extern CLB_THREAD const struct clb_next_symbol *clb_next_declined;

/* The slow path of clb_next_try. */
const struct clb_target *clb_next_search(struct clb_next_symbol *symbol, const void *caller);

/* The target for a call that returns to `caller` (a return address), of a symbol that the caller
 * perhaps was not linked to: NULL when no library has it. A few instructions. */
static inline const struct clb_target *clb_next_try(struct clb_next_symbol *symbol,
                                                    const void *caller)
{
    const struct clb_target *target = atomic_load_explicit(&symbol->target, memory_order_acquire);
    if (target == NULL)
        target = clb_next_search(symbol, caller);
    return target != NULL && target->fallback == CLB_OWN ? target : NULL;
}

/* Whether the library that has `function` takes 64-bit integers, by its i?amax of that name. */
bool clb_next_probe_ilp64(void (*function)(void), const char *probe, clb_abi abi);

/* host_blas.c: make the target's library compute with so many threads at most, until
 * clb_next_release_threads. False when that is not needed: then don't release. Calls may nest and
 * overlap, and then have as many as the first. */
bool clb_next_hold_threads(const struct clb_target *target, int count);
void clb_next_release_threads(void);
/* Called before a call's side is chosen: undo in a forked child what the parent's threads left. */
extern _Atomic unsigned clb_next_threads_process; /* host_blas.c's alone, and this: */
void clb_next_forget_holders(void);
static inline void clb_next_settle_threads(void)
{
    if (CLB_UNLIKELY(atomic_load_explicit(&clb_next_threads_process, memory_order_relaxed) !=
                     clb_generation()))
        clb_next_forget_holders();
}

/* ---- host_blas.c: the exported names ---- */

typedef enum clb_symbol_id {
#define CLB_SYMBOL_ENUM(routine, form, prefix, suffix, abi, ilp64) CLB_SYMBOL_##routine##_##form,
#define CLB_NAME(name, precision, library)                         CLB_FORMS_##library(CLB_SYMBOL_ENUM, name)
#define CLB_ROUTINE(stem, precisions, library, ...)                CLB_NAMES_##precisions(CLB_NAME, stem, library)
#include "blas/routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
#undef CLB_SYMBOL_ENUM
    CLB_SYMBOLS
} clb_symbol_id;

/* The forms of routines.def. For every routine the Fortran forms come first, in the same order. */
typedef enum clb_form {
#define CLB_FORM_ENUM(routine, form, prefix, suffix, abi, ilp64) CLB_FORM_##form,
    CLB_FORMS_BLAS(CLB_FORM_ENUM, any) CLB_FORMS_LAPACK_C(CLB_FORM_ENUM, any)
#undef CLB_FORM_ENUM
        CLB_FORMS
} clb_form;

struct clb_symbol {
    struct clb_next_symbol next;
    _Atomic double min_work; /* a call with less work is declined at once; -inf: none is */
    clb_routine routine;
    clb_form form;
};

/* One row for each exported name; read by the interface's fast path. */
extern struct clb_symbol clb_symbols[CLB_SYMBOLS];

/* A decoded call of an exported name, with integers as the caller passed them. Where C names pass
 * row-major matrices, clb_route turns calls of BLAS and copies matrices of LAPACK. */
struct clb_entry {
    struct clb_call call;
    struct clb_symbol *symbol;
    const struct clb_target *target; /* the next library's function of that name */
    const void *caller;              /* the address that the call returns to */
    int layout;                      /* of C names; 0: a Fortran name */
    bool checks;                     /* C names of LAPACK: look for NaN in the input */
    struct clb_lapacke *lapacke;     /* route/lapacke.c's, of such a name; else NULL */
    const struct clb_batch *batch; /* the arguments of a batch, from which `call` is set; or NULL */
    clb_scalar turned;             /* see clb_call_turn */

    /* Set by clb_route where it declines the call. */
    bool timed;       /* the time that the next library takes is wanted: clb_next_end; */
    bool learnt;      /* for the profile, */
    bool compared;    /* for later calls like this one, */
    bool weighed;     /* for the decision to start the device; */
    bool encloses;    /* calls that it makes are inside it; */
    bool held;        /* the next library has fewer threads meanwhile; */
    bool inside;      /* it is made by another call */
    double on_device; /* seconds that it is predicted to take there, or NaN; */
    double expected;  /* and in the next library, alone */
    double cpu_begin; /* the process's CPU time then, where that counts; else NaN */
};

enum { CLB_ROW_MAJOR = 101, CLB_COL_MAJOR = 102 }; /* CBLAS_LAYOUT, LAPACK_ROW_MAJOR */

/* The number of a name among the names of its routine, its form; and the name of a routine in a
 * form: dtrsm_64_ in that of dgemm_64_. */
size_t clb_symbol_form(const struct clb_symbol *symbol);
struct clb_symbol *clb_symbol_at(clb_routine routine, size_t form);

/* ---- host_blas.c: calls of the next library by the shim itself ---- */

struct clb_next_blas {
    struct clb_host_blas host; /* its context is this struct, which must not be moved */
    clb_abi abi;
    /* Of each kind, and of its adjoint form where the routine that is called has the flag l: the
     * first routine of the kind, or the one that is called. */
    clb_routine routine[CLB_KINDS][2];
    const struct clb_target *target[CLB_KINDS][2];
    const struct clb_target *main, *geqrt;
};

/* Call a target of the call's routine, without the workspace query that a C name may need; `info`
 * is ignored. Returns info >= 0 where the routine has one. */
size_t clb_next_call(const struct clb_target *target, clb_abi abi, struct clb_call *x);

/* Find the functions that a call needs (a bit for each kind), under names of the form that it was
 * called by; for a C name of LAPACK, of the Fortran names that LAPACKE calls. */
void clb_next_blas_open(struct clb_next_blas *next, const struct clb_entry *entry, unsigned needs);

/* find.c: the slow path of clb_next_get_target: for a name that not every library has the target
 * may be that of another name (`others` in routines.def). Ends the process with status 127 when no
 * library has any of them, as the dynamic linker would. */
const struct clb_target *clb_next_find_target(struct clb_symbol *symbol, const void *caller);

/* The target of a call that returns to `caller`. A few instructions. */
static inline const struct clb_target *clb_next_get_target(struct clb_symbol *symbol,
                                                           const void *caller)
{
    const struct clb_target *target =
        atomic_load_explicit(&symbol->next.target, memory_order_acquire);
    return CLB_LIKELY(target != NULL) ? target : clb_next_find_target(symbol, caller);
}

/* find.c: what a provider library (src/shim/provider) jumps to for one of its names: the shim's own
 * function, or that of the next library. Ends the process when there is none. */
void *clb_next_provide(const char *name);

/* True when the target of xGEMMTR or a batch is xGEMM: the shim computes it by products. */
static inline bool clb_next_is_composed(const struct clb_target *target)
{
    return target->fallback == CLB_COMPOSED;
}

/* find.c: whether the next library's LAPACKE of the form of this name checks for NaN. */
bool clb_next_checks_nan(const struct clb_symbol *symbol, const void *caller);

#endif
