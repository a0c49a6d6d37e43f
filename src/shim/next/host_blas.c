/* The exported names, and calls of the next library's functions of these names by the shim itself.
 * SPDX-License-Identifier: BSD-3-Clause
 * Arguments are passed as the signature in routines.def says. In the ABIs of x86-64 and AArch64
 * integers and addresses travel in one sequence of registers and 8-byte stack slots and
 * floating-point numbers in another, and a function ignores arguments behind its last one. So one
 * type of function for each of float and double serves all routines. */
#include "next.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the names, expanded from routines.def ---- */

#define PROBE_FORTRAN(prefix, suffix) #prefix "isamax" #suffix
#define PROBE_C(prefix, suffix)       PROBE_FORTRAN(prefix, suffix)
/* Only names of reference LAPACK don't tell the integer width: isamax_ of its BLAS does. */
#define PROBE_LAPACKE(prefix, suffix) "isamax_"

enum {
#define CLB_NAME(name, precision, library)          LIBRARY_OF_##name = CLB_LIBRARY_##library,
#define CLB_ROUTINE(stem, precisions, library, ...) CLB_NAMES_##precisions(CLB_NAME, stem, library)
#include "blas/routines.def"
#undef CLB_NAME
};

/* Until the configuration is read, every call takes the slow path, also an invalid one whose work
 * is negative; it stays so when calls are counted or logged. */
struct clb_symbol clb_symbols[CLB_SYMBOLS] = {
#define CLB_SYMBOL_ROW(routine_name, form_name, prefix, suffix, abi_name, ilp64)  \
    [CLB_SYMBOL_##routine_name##_##                                               \
        form_name] = {.next = {.name = #prefix #routine_name #suffix,             \
                               .probe = PROBE_##abi_name(prefix, suffix),         \
                               .abi = CLB_ABI_##abi_name,                         \
                               .library = (clb_library)LIBRARY_OF_##routine_name, \
                               .always_ilp64 = ilp64},                            \
                      .min_work = -INFINITY,                                      \
                      .routine = CLB_ROUTINE_##routine_name,                      \
                      .form = CLB_FORM_##form_name},
#define CLB_NAME(name, precision, library) CLB_FORMS_##library(CLB_SYMBOL_ROW, name)
#include "blas/routines.def"
#undef CLB_SYMBOL_ROW
#undef CLB_NAME
};

static const clb_symbol_id plain[CLB_ROUTINES] = {
#define CLB_NAME(name, precision, library) [CLB_ROUTINE_##name] = CLB_SYMBOL_##name##_plain,
#include "blas/routines.def"
};

size_t clb_symbol_form(const struct clb_symbol *symbol)
{
    return (size_t)(symbol - &clb_symbols[plain[symbol->routine]]);
}

struct clb_symbol *clb_symbol_at(clb_routine routine, size_t form)
{
    return &clb_symbols[plain[routine] + form];
}

/* ---- arguments ---- */

enum { ARGUMENTS = 16 };

#define PARAMETERS                                                                          \
    uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, \
        uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t
#define LIST(a)                                                                              \
    (a)[0], (a)[1], (a)[2], (a)[3], (a)[4], (a)[5], (a)[6], (a)[7], (a)[8], (a)[9], (a)[10], \
        (a)[11], (a)[12], (a)[13], (a)[14], (a)[15]

typedef void with_floats(PARAMETERS, float, float);
typedef void with_doubles(PARAMETERS, double, double);

/* An integer to be passed by reference: the low half is the 32-bit value on little-endian machines,
 * and the upper half is read by 64-bit libraries only. */
union integer {
    int64_t wide;
    int32_t narrow;
};

struct arguments {
    clb_abi abi;
    bool wide;
    uintptr_t list[ARGUMENTS];
    size_t count, letters, floating_count;
    union integer integers[ARGUMENTS];
    clb_scalar floating[2];
};

static void add_address(struct arguments *to, const void *address)
{
    to->list[to->count++] = (uintptr_t)address;
}

static void add_integer(struct arguments *to, int64_t value)
{
    union integer *integer = &to->integers[to->count];
    if (to->wide)
        integer->wide = value;
    else
        integer->narrow = (int32_t)value;
    if (to->abi == CLB_ABI_C)
        to->list[to->count++] = (uintptr_t)value;
    else
        add_address(to, integer);
}

/* An option: one of the letters, or CBLAS's number, which follow each other as these do. */
static void add_option(struct arguments *to, const char *letters, int first, int index)
{
    to->letters++;
    if (to->abi == CLB_ABI_C)
        to->list[to->count++] = (uintptr_t)(first + index);
    else
        add_address(to, letters + index);
}

/* C passes real scalars by value. */
static void add_scalar(struct arguments *to, const struct clb_routine_info *routine, char flag,
                       const void *scalar)
{
    const clb_precision precision = routine->precision;
    if (to->abi == CLB_ABI_C &&
        (strchr(routine->flags, flag) != NULL || clb_precision_parts(precision) == 1))
        to->floating[to->floating_count++] = clb_scalar_get(precision, true, scalar);
    else
        add_address(to, scalar);
}

static void add_matrix(struct arguments *to, const void *data, int64_t ld)
{
    add_address(to, data);
    add_integer(to, ld);
}

static void add_argument(struct arguments *to, const struct clb_routine_info *routine,
                         const struct clb_call *x, char letter)
{
    if (letter == 's')
        add_option(to, "LR", 141, x->right);
    else if (letter == 'u')
        add_option(to, "UL", 121, !x->upper);
    else if (letter == 'd')
        add_option(to, "NU", 131, x->unit);
    else if (letter == 't')
        add_option(to, "NTC", 111, (int)x->transa);
    else if (letter == 'T')
        add_option(to, "NTC", 111, (int)x->transb);
    else if (letter == '*' || letter == '+')
        add_scalar(to, routine, letter, letter == '*' ? x->alpha : x->beta);
    else if (letter == 'A')
        add_matrix(to, x->a, (int64_t)x->lda);
    else if (letter == 'B')
        add_matrix(to, x->b, (int64_t)x->ldb);
    else if (letter == 'C')
        add_matrix(to, x->c, (int64_t)x->ldc);
    else if (letter == 'w')
        add_matrix(to, x->work, x->lwork);
    else if (letter == 'p' || letter == 'q' || letter == 'i')
        add_address(to, letter == 'p' ? x->ipiv : letter == 'q' ? x->tau : x->info);
    else
        add_integer(to, clb_call_size(x, letter));
}

size_t clb_next_call(const struct clb_target *target, clb_abi abi, struct clb_call *x)
{
    const struct clb_routine_info *routine = &clb_routines[x->routine];
    union integer info = {.wide = 0};
    struct arguments to = {.abi = abi, .wide = target->ilp64};
    x->info = &info;
    if (abi == CLB_ABI_C)
        to.list[to.count++] = CLB_COL_MAJOR;
    for (const char *s = routine->signature; *s != '\0'; s++)
        add_argument(&to, routine, x, *s);
    /* The lengths of Fortran's character arguments. */
    for (size_t i = 0; abi != CLB_ABI_C && i < to.letters; i++)
        to.list[to.count++] = 1;
    if (clb_precision_real_size(routine->precision) == sizeof(float))
        ((with_floats *)target->function)(LIST(to.list), to.floating[0].s[0], to.floating[1].s[0]);
    else
        ((with_doubles *)target->function)(LIST(to.list), to.floating[0].d[0], to.floating[1].d[0]);
    int64_t result = to.wide ? info.wide : info.narrow;
    return result > 0 ? (size_t)result : 0;
}

/* ---- fewer threads for a while ----
 *
 * OpenBLAS's idle threads spin for 25 ms after each call; when the device is the CPU they take CPU
 * time from it. Those that wait for another call sched_yield, which lets a process of any priority
 * run in their place: beside a helper, calls with a thread on each CPU take several times as long.
 *
 * OpenBLAS has one thread count for the process: the first holder sets it, and the last one
 * restores it unless the program has set another since. Meanwhile other callers get as many. A
 * child that was forked meanwhile has no holders: its next call sets the count back. Doing that in
 * the fork handler would start threads during the fork. */

static struct clb_mutex threads_lock = CLB_MUTEX_INITIALIZER; /* guards what follows */
static void (*set_threads)(int count);
static int (*get_threads)(void);
static size_t holders;
static int threads_before, threads_held;

_Atomic unsigned clb_next_threads_process;

static void give_back(void)
{
    if (get_threads() == threads_held)
        set_threads(threads_before);
}

/* The holders' threads do not exist in a forked child. */
static void lock_holders(void)
{
    if (!clb_lock(&threads_lock))
        return;
    if (holders > 0)
        give_back();
    holders = 0;
    atomic_store(&clb_next_threads_process, clb_generation());
}

void clb_next_forget_holders(void)
{
    lock_holders();
    clb_unlock(&threads_lock);
}

bool clb_next_hold_threads(const struct clb_target *target, int count)
{
    bool held = false;
    if (target->set_threads == NULL || target->get_threads == NULL)
        return false;
    lock_holders();
    if (holders == 0) {
        threads_before = target->get_threads();
        set_threads = target->set_threads;
        get_threads = target->get_threads;
    }
    /* Only one library is held at a time; one that has so few threads needs no change. */
    if (set_threads == target->set_threads && threads_before > count) {
        held = true;
        if (holders++ == 0)
            set_threads(threads_held = count);
    }
    clb_unlock(&threads_lock);
    return held;
}

void clb_next_release_threads(void)
{
    lock_holders();
    if (holders > 0 && --holders == 0)
        give_back();
    clb_unlock(&threads_lock);
}

/* ---- the functions of struct clb_host_blas ---- */

/* Widen 32-bit integers in the first half of an array to 64-bit ones, from last to first. */
static void widen_in_place(int64_t *array, size_t count)
{
    for (size_t i = count; i-- > 0;) {
        int32_t value;
        memcpy(&value, (const char *)array + i * sizeof value, sizeof value);
        array[i] = value;
    }
}

static size_t call_host(const struct clb_host_blas *host, const struct clb_call *call)
{
    const struct clb_next_blas *next = host->context;
    const bool adjoint = clb_call_is_adjoint(call);
    const struct clb_target *target = next->target[call->kind][adjoint];
    struct clb_call x = *call;
    x.routine = next->routine[call->kind][adjoint];
    x.work = host->work;
    x.lwork = host->lwork;
    const size_t info = clb_next_call(target, next->abi, &x);
    if (call->kind == CLB_KIND_getrf && call->wide && !target->ilp64)
        widen_in_place(call->ipiv, clb_min(call->m, call->n));
    return info;
}

/* ---- xGEQRT, which is no row of routines.def: the shim does not export it ---- */

typedef void geqrt_function(const void *m, const void *n, const void *nb, void *a, const void *lda,
                            void *t, const void *ldt, void *work, void *info);

/* Columns of a block of xGEQRT, the order of a triangular factor, whose diagonal is tau. */
#define BLOCK ((size_t)32)

static bool host_geqrt(const struct clb_host_blas *host, const struct clb_call *p, void *t,
                       size_t ldt)
{
    const struct clb_next_blas *next = host->context;
    size_t element = clb_precision_size(p->precision), count = clb_min(p->m, p->n);
    size_t block = t != NULL ? count : clb_min(BLOCK, count);
    char *memory = malloc((count + p->n) * block * element), *work = memory;
    if (memory == NULL)
        return false;
    if (t == NULL) {
        t = memory;
        ldt = block;
        work += count * block * element;
    }
    for (size_t i = 0; i < count; i++)
        memset((char *)t + i * ldt * element, 0, block * element);
    struct arguments to = {.wide = next->geqrt->ilp64};
    add_integer(&to, (int64_t)p->m);
    add_integer(&to, (int64_t)p->n);
    add_integer(&to, (int64_t)block);
    add_integer(&to, (int64_t)p->lda);
    add_integer(&to, (int64_t)ldt);
    union integer *const x = to.integers, info;
    ((geqrt_function *)next->geqrt->function)(&x[0], &x[1], &x[2], p->a, &x[3], t, &x[4], work,
                                              &info);
    for (size_t i = 0; i < count; i++)
        memcpy((char *)p->tau + i * element, (char *)t + (i * ldt + i % block) * element, element);
    free(memory);
    return true;
}

#define CLB_GEQRT(routine, form, prefix, suffix, abi_name, ilp64) \
    {.name = #prefix #routine #suffix,                            \
     .probe = #prefix "isamax" #suffix,                           \
     .abi = CLB_ABI_##abi_name,                                   \
     .library = CLB_LIBRARY_LAPACK,                               \
     .always_ilp64 = ilp64},
static struct clb_next_symbol geqrt[CLB_PRECISIONS][CLB_FORM_scipy_ilp64 + 1] = {
    [CLB_S] = {CLB_FORMS_FORTRAN(CLB_GEQRT, sgeqrt)},
    [CLB_D] = {CLB_FORMS_FORTRAN(CLB_GEQRT, dgeqrt)},
    [CLB_C] = {CLB_FORMS_FORTRAN(CLB_GEQRT, cgeqrt)},
    [CLB_Z] = {CLB_FORMS_FORTRAN(CLB_GEQRT, zgeqrt)},
};

/* ---- finding the functions ---- */

/* The form of a Fortran name of the same naming scheme as a symbol's: LAPACKE calls that one. */
static size_t fortran_form(const struct clb_symbol *symbol)
{
    /* Of LAPACKE's names, in the order of routines.def. */
    static const clb_form forms[] = {CLB_FORM_plain, CLB_FORM_ilp64, CLB_FORM_ilp64, CLB_FORM_scipy,
                                     CLB_FORM_scipy_ilp64};
    return symbol->next.abi == CLB_ABI_LAPACKE
               ? (size_t)forms[(size_t)(symbol->form - CLB_FORM_lapacke) % CLB_COUNT_OF(forms)]
               : clb_symbol_form(symbol);
}

/* The target of another name for the same caller; NULL: none has integers of this width. */
static const struct clb_target *same_abi(struct clb_next_symbol *symbol,
                                         const struct clb_entry *entry)
{
    const struct clb_target *found = clb_next_try(symbol, entry->caller);
    return found != NULL && found->ilp64 == entry->target->ilp64 ? found : NULL;
}

static bool hold_threads(const struct clb_host_blas *host, int count)
{
    const struct clb_next_blas *next = host->context;
    return clb_next_hold_threads(next->main, count);
}

/* Of the kind: the routine that is called where it is of that kind and no batch, otherwise the
 * first one. */
static clb_routine routine_of(clb_kind kind, bool adjoint, clb_routine called)
{
    const struct clb_routine_info *info = &clb_routines[called];
    return kind == info->kind && clb_routine_has_flag(called, 'l') == adjoint &&
                   !clb_routine_has_flag(called, 'b')
               ? called
               : clb_routine_of(kind, info->precision, adjoint);
}

/* The kind that does most of the work of another. */
static clb_kind main_of(clb_kind kind)
{
    return kind == CLB_KIND_gesv ? CLB_KIND_getrf : kind == CLB_KIND_posv ? CLB_KIND_potrf : kind;
}

void clb_next_blas_open(struct clb_next_blas *next, const struct clb_entry *entry, unsigned needs)
{
    const struct clb_symbol *symbol = entry->symbol;
    const clb_routine called = symbol->routine;
    const clb_kind main = main_of(clb_routines[called].kind);
    const bool lapacke = symbol->next.abi == CLB_ABI_LAPACKE;
    const bool composed = clb_next_is_composed(entry->target);
    const size_t form = fortran_form(symbol);
    const bool adjoint = clb_routine_has_flag(called, 'l');
    const struct clb_target *(*target)[2] = next->target;
    *next =
        (struct clb_next_blas){.abi = symbol->next.abi == CLB_ABI_C ? CLB_ABI_C : CLB_ABI_FORTRAN};
    for (unsigned i = 0; i < 2 * CLB_KINDS; i++) {
        const clb_kind kind = (clb_kind)(i / 2);
        if ((needs & 1U << kind) == 0 || i % 2 > adjoint || (composed && kind == CLB_KIND_gemmtr))
            continue;
        const clb_routine routine = routine_of(kind, i % 2, called);
        const bool own = routine == called || (kind == CLB_KIND_gemm && composed);
        next->routine[kind][i % 2] = routine;
        target[kind][i % 2] =
            own && !lapacke ? entry->target : same_abi(&clb_symbol_at(routine, form)->next, entry);
    }
    /* xGEQRT of another library may be slower than the program's xGEQRF. */
    if (target[CLB_KIND_geqrf][0] != NULL)
        next->geqrt = same_abi(&geqrt[clb_routines[called].precision][form], entry);
    if (next->geqrt != NULL &&
        strcmp(next->geqrt->library, target[CLB_KIND_geqrf][0]->library) != 0)
        next->geqrt = NULL;
    next->main = composed ? entry->target : target[main][adjoint];
    next->host.context = next;
    next->host.geqrt = next->geqrt != NULL ? host_geqrt : NULL;
    if (next->main != NULL) {
        next->host.optimised = next->main->optimised;
        next->host.library = next->main->library;
        next->host.threads = next->main->get_threads != NULL ? next->main->get_threads() : 0;
        next->host.hold_threads = hold_threads;
    }
    for (int kind = 0; kind < CLB_KINDS; kind++) {
        if (target[kind][0] != NULL && target[kind][adjoint] != NULL)
            next->host.of[kind] = call_host;
    }
}
