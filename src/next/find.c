/* Finding the next library, in the order of docs/design.md: CLBLAS_SHIM_NEXT, RTLD_NEXT, the
 * calling object's own dependencies, the configured soname. */
#include "next.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CLB_NEXT_BLAS
#define CLB_NEXT_BLAS "libblas.so.3"
#endif
#ifndef CLB_NEXT_LAPACK
#define CLB_NEXT_LAPACK "liblapack.so.3"
#endif
#ifndef CLB_NEXT_LAPACKE
#define CLB_NEXT_LAPACKE "liblapacke.so.3"
#endif

typedef void (*function)(void);

/* A pointer to an object from dlsym as a pointer to a function, as POSIX intends. */
static function as_function(void *address)
{
    function result;
    memcpy(&result, &address, sizeof result);
    return result;
}

static void *as_address(function f)
{
    void *address;
    memcpy(&address, &f, sizeof address);
    return address;
}

static bool is_own(function f)
{
    Dl_info theirs, ours;
    return dladdr(as_address(f), &theirs) != 0 &&
           dladdr(as_address((function)clb_next_find), &ours) != 0 &&
           theirs.dli_fbase == ours.dli_fbase;
}

/* dlsym that refuses the shim's own functions. */
static function lookup(void *handle, const char *name)
{
    function f = handle == NULL ? NULL : as_function(dlsym(handle, name));
    return f != NULL && !is_own(f) ? f : NULL;
}

/* A handle for the object that contains `address`, without loading anything. The object stays
 * loaded from then on, so that what is remembered about its addresses stays true. */
static void *handle_of(const void *address)
{
    Dl_info info;
    struct link_map *map;
    if (dladdr1(address, &info, (void **)&map, RTLD_DL_LINKMAP) == 0 || map == NULL)
        return NULL;
    const char *path = map->l_name[0] != '\0' ? map->l_name : NULL;
    return dlopen(path, RTLD_LAZY | RTLD_NOLOAD | (path != NULL ? RTLD_NODELETE : 0));
}

/* Libraries that can't be opened are named when the first symbol is looked up, not for each. */
static function find_configured(const char *name)
{
    static _Atomic bool named;
    const bool quiet = atomic_load(&named);
    const char *list = clb_config_get()->next;
    function found = NULL;
    while (list != NULL && *list != '\0' && found == NULL) {
        char path[4096];
        size_t length = strcspn(list, ":");
        if (length > 0 && length < sizeof path) {
            memcpy(path, list, length);
            path[length] = '\0';
            void *handle = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
            if (handle == NULL && !quiet) {
                clb_complain("CLBLAS_SHIM_NEXT: %s", dlerror());
                atomic_store(&named, true);
            }
            found = lookup(handle, name);
        }
        list += length;
        list += *list == ':';
    }
    return found;
}

static function find_fallback(const struct clb_next_symbol *symbol)
{
    const char *sonames[] = {symbol->abi == CLB_ABI_LAPACKE          ? CLB_NEXT_LAPACKE
                             : symbol->library == CLB_LIBRARY_LAPACK ? CLB_NEXT_LAPACK
                                                                     : CLB_NEXT_BLAS,
                             symbol->abi == CLB_ABI_C ? "libcblas.so.3" : NULL};
    function found = NULL;
    for (size_t i = 0; i < CLB_COUNT_OF(sonames) && found == NULL; i++) {
        if (sonames[i] != NULL)
            found = lookup(dlopen(sonames[i], RTLD_LAZY | RTLD_LOCAL), symbol->name);
    }
    return found;
}

bool clb_next_probe_ilp64(void (*f)(void), const char *probe, clb_abi abi)
{
    const float x[3] = {1, 3, 2};
    const int64_t n = (int64_t)UINT64_C(0xffffffff00000003), one = 1;
    function isamax = lookup(handle_of(as_address(f)), probe);
    if (isamax == NULL)
        return false;
    /* The index sits in the low half of the result in both cases, and so do Fortran's arguments. */
    if (abi != CLB_ABI_C)
        return ((int (*)(const int64_t *, const float *, const int64_t *))isamax)(&n, x, &one) != 2;
    return (int)((size_t(*)(int64_t, const float *, int64_t))isamax)(n, x, one) != 1;
}

/* Under the plain names, those of builds with 64-bit integers, and those in numpy's and scipy's
 * wheels. */
static void find_threads(struct clb_target *target, void *handle)
{
    static const char *const names[][2] = {
        {"openblas_set_num_threads", "openblas_get_num_threads"},
        {"openblas_set_num_threads64_", "openblas_get_num_threads64_"},
        {"scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"},
        {"scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"}};
    for (size_t i = 0; i < CLB_COUNT_OF(names) && target->set_threads == NULL; i++) {
        target->set_threads = (void (*)(int))lookup(handle, names[i][0]);
        target->get_threads = (int (*)(void))lookup(handle, names[i][1]);
    }
}

/* Whether the library or one that it needs is OpenBLAS, MKL, BLIS, AMD's or Arm's: by functions
 * that only they have. */
static bool is_optimised(const struct clb_target *target, void *handle)
{
    static const char *const names[] = {"openblas_get_config",
                                        "openblas_get_config64_",
                                        "scipy_openblas_get_config",
                                        "scipy_openblas_get_config64_",
                                        "mkl_get_version",
                                        "bli_info_get_version_str",
                                        "armplversion"};
    bool found = target->set_threads != NULL;
    for (size_t i = 0; i < CLB_COUNT_OF(names) && !found; i++)
        found = lookup(handle, names[i]) != NULL;
    return found;
}

static const struct clb_target *known_target(const struct clb_next_symbol *symbol, function f)
{
    const struct clb_target *target = atomic_load(&symbol->targets);
    while (target != NULL && target->function != f)
        target = target->link;
    return target;
}

/* Publish a new target. Lock-free; a race may leave a duplicate, which does no harm. */
static const struct clb_target *add_target(struct clb_next_symbol *symbol,
                                           const struct clb_target *value)
{
    struct clb_target *target = malloc(sizeof *target);
    if (target == NULL) {
        clb_complain("out of memory");
        _exit(127);
    }
    *target = *value;
    target->link = atomic_load(&symbol->targets);
    while (!atomic_compare_exchange_weak(&symbol->targets, &target->link, target))
        ;
    return target;
}

/* The target for a function: the known one, or a new one. */
static const struct clb_target *intern(struct clb_next_symbol *symbol, function f)
{
    const struct clb_target *known = known_target(symbol, f);
    if (known != NULL)
        return known;
    Dl_info info;
    const char *path = dladdr(as_address(f), &info) != 0 ? info.dli_fname : "";
    const char *slash = strrchr(path, '/');
    struct clb_target target = {.function = f,
                                .library = strdup(slash != NULL ? slash + 1 : path),
                                .ilp64 = symbol->always_ilp64 ||
                                         clb_next_probe_ilp64(f, symbol->probe, symbol->abi)};
    void *handle = handle_of(as_address(f));
    find_threads(&target, handle);
    target.optimised = is_optimised(&target, handle);
    clb_log(CLB_LOG_INFO, "%s -> %s%s", symbol->name, path,
            target.ilp64 ? " (64-bit integers)" : "");
    return add_target(symbol, &target);
}

/* ---- what is known about callers: push-only chains, read without a lock ---------------------- */

struct caller {
    const void *address;
    const struct clb_next_symbol *symbol;
    const struct clb_target *target;
    struct caller *link;
};

#define BUCKETS 512
static _Atomic(struct caller *) callers[BUCKETS];

static _Atomic(struct caller *) *bucket_of(const struct clb_next_symbol *symbol,
                                           const void *address)
{
    uintptr_t mixed = ((uintptr_t)address ^ ((uintptr_t)symbol >> 4)) * 0x9e3779b1u;
    return &callers[(mixed >> 7) % BUCKETS];
}

/* All that a call costs where the answer depends on the caller: inlined. */
static inline __attribute__((always_inline)) const struct clb_target *
known_for(const struct clb_next_symbol *symbol, const void *address)
{
    const struct caller *entry =
        atomic_load_explicit(bucket_of(symbol, address), memory_order_acquire);
    for (; entry != NULL; entry = entry->link) {
        if (entry->address == address && entry->symbol == symbol)
            return entry->target;
    }
    return NULL;
}

static void remember(const struct clb_next_symbol *symbol, const void *address,
                     const struct clb_target *target)
{
    _Atomic(struct caller *) *bucket = bucket_of(symbol, address);
    struct caller *entry = malloc(sizeof *entry);
    if (entry == NULL)
        return;
    *entry = (struct caller){address, symbol, target, atomic_load(bucket)};
    while (!atomic_compare_exchange_weak(bucket, &entry->link, entry))
        ;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* NULL: no library has it. */
static const struct clb_target *search(struct clb_next_symbol *symbol, const void *caller)
{
    const struct clb_target *target;
    function found = find_configured(symbol->name);
    if (found == NULL)
        found = lookup(RTLD_NEXT, symbol->name);
    if (found != NULL) {
        target = intern(symbol, found);
        atomic_store_explicit(&symbol->target, target, memory_order_release);
        return target;
    }
    found = lookup(handle_of(caller), symbol->name);
    if (found == NULL)
        found = find_fallback(symbol);
    if (found == NULL)
        return NULL;
    target = intern(symbol, found);
    remember(symbol, caller, target);
    return target;
}

/* The search may open libraries. */
static CLB_COLD const struct clb_target *search_unforked(struct clb_next_symbol *symbol,
                                                         const void *caller)
{
    clb_load_begin();
    const struct clb_target *target = search(symbol, caller);
    clb_load_end();
    return target;
}

const struct clb_target *clb_next_try(struct clb_next_symbol *symbol, const void *caller)
{
    const struct clb_target *target = atomic_load_explicit(&symbol->target, memory_order_acquire);
    if (target == NULL)
        target = known_for(symbol, caller);
    if (target == NULL)
        target = search_unforked(symbol, caller);
    return target != NULL && target->stand_in == 0 ? target : NULL;
}

static CLB_COLD void fail_to_find(const struct clb_next_symbol *symbol)
{
    clb_complain("symbol lookup error: no BLAS/LAPACK library has %s (CLBLAS_SHIM_NEXT can name "
                 "one)",
                 symbol->name);
    _exit(127);
}

const struct clb_target *clb_next_find(struct clb_next_symbol *symbol, const void *caller)
{
    const struct clb_target *target = known_for(symbol, caller);
    if (CLB_UNLIKELY(target == NULL))
        target = search_unforked(symbol, caller);
    if (target == NULL)
        fail_to_find(symbol);
    return target;
}

/* Another symbol's target as this one's. For this caller only: others may reach a library that has
 * the symbol itself. */
static const struct clb_target *stand_in(struct clb_next_symbol *symbol, const void *caller,
                                         const struct clb_next_symbol *other,
                                         const struct clb_target *found, unsigned number)
{
    const struct clb_target *target = known_target(symbol, found->function);
    if (target == NULL) {
        struct clb_target copy = *found;
        copy.stand_in = number;
        target = add_target(symbol, &copy);
        clb_log(CLB_LOG_INFO, "%s -> %s's %s", symbol->name, found->library, other->name);
    }
    remember(symbol, caller, target);
    return target;
}

const struct clb_target *clb_next_find_or(struct clb_next_symbol *symbol,
                                          struct clb_next_symbol *const *others, unsigned count,
                                          const void *caller)
{
    const struct clb_target *target = known_for(symbol, caller);
    if (CLB_UNLIKELY(target == NULL))
        target = search_unforked(symbol, caller);
    for (unsigned i = 0; i < count && target == NULL; i++) {
        const struct clb_target *found = clb_next_try(others[i], caller);
        if (found != NULL)
            target = stand_in(symbol, caller, others[i], found, i + 1);
    }
    if (target == NULL)
        fail_to_find(symbol);
    return target;
}
