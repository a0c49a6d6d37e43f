/* Finds the next library, in the order of docs/next-library.md, by dlopen, dlsym and dladdr1.
 * SPDX-License-Identifier: BSD-3-Clause
 * A first call therefore waits while another thread is inside dlopen. No lock of the shim is held
 * meanwhile, and what is found is stored without one: it works in a child forked at any time. An
 * object whose address is stored is kept loaded by RTLD_NODELETE. */
#include "host/process.h"
#include "next.h"

#include <dlfcn.h>
#include <limits.h>
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
#ifndef CLB_PROVIDER_NEXT
#define CLB_PROVIDER_NEXT ""
#endif

CLB_THREAD const struct clb_next_symbol *clb_next_declined;

typedef void (*function)(void);

/* ---- loaded objects: with the GNU C library a handle is the object's link map ---- */

/* The object that an address is in; NULL: none, for code that was made at run time. */
static struct link_map *object_at(const void *address)
{
    Dl_info info;
    void *map = NULL;
    return address != NULL && dladdr1(address, &info, &map, RTLD_DL_LINKMAP) != 0 ? map : NULL;
}

static struct link_map *own_object(void)
{
    return object_at((void *)(uintptr_t)clb_next_search);
}

/* A handle of the loaded object of that path. NULL: it has been unloaded. */
static struct link_map *open_loaded(const char *path, int flags)
{
    return dlopen(path, RTLD_LAZY | RTLD_NOLOAD | flags);
}

/* Keep an object loaded. False: it has been unloaded, or there is no memory to do so. */
static bool keep_loaded(const struct link_map *object)
{
    return object == NULL || open_loaded(object->l_name, RTLD_NODELETE) == object;
}

/* The function of an object, which must stay loaded, or of what it needs; NULL: there is none. */
static void *look_up(const struct link_map *object, const char *name)
{
    struct link_map *handle = object != NULL ? open_loaded(object->l_name, 0) : NULL;
    void *address = handle == object && handle != NULL ? dlsym(handle, name) : NULL;
    if (handle != NULL)
        dlclose(handle);
    return address;
}

/* The same, of this object alone. */
static void *defined_in(const struct link_map *object, const char *name)
{
    void *address = look_up(object, name);
    return object_at(address) == object ? address : NULL;
}

/* A libblas.so.3 or liblapack.so.3 of ours: it passes all names on to clb_next_provide. */
static bool is_provider(const struct link_map *object)
{
    return defined_in(object, "clblas_shim_provider") != NULL;
}

/* Copies the path of the object with a number in load order, and counts how many were loaded. */
struct listed {
    size_t number;
    bool found;
    char path[PATH_MAX];
    uint64_t loads;
};

static int list_object(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct listed *listed = argument;
    (void)size;
    listed->loads = info->dlpi_adds;
    if (listed->number-- > 0)
        return 0;
    listed->found = strlen(info->dlpi_name) < sizeof listed->path;
    strcpy(listed->path, listed->found ? info->dlpi_name : "");
    return 1;
}

/* The address that an object's dynamic section has for a tag; NULL: none. The dynamic linker has
 * added the object's base to it, but not where the section is read-only. */
static const void *dynamic_table(const struct link_map *object, ElfW(Sxword) tag)
{
    const ElfW(Dyn) *entry = object->l_ld;
    while (entry != NULL && entry->d_tag != tag && entry->d_tag != DT_NULL)
        entry++;
    const uintptr_t value = entry != NULL && entry->d_tag == tag ? entry->d_un.d_ptr : 0;
    return (const void *)(value != 0 && value < object->l_addr ? value + object->l_addr : value);
}

/* True for what may be a dispatcher: an object that finds functions by dlsym or dlopen, as its
 * symbol table tells. A GNU hash table begins with the first symbol that is not imported. */
static bool opens_libraries(const struct link_map *object)
{
    const char *strings = dynamic_table(object, DT_STRTAB);
    const ElfW(Sym) *symbols = dynamic_table(object, DT_SYMTAB);
    const uint32_t *hash = dynamic_table(object, DT_HASH),
                   *gnu_hash = dynamic_table(object, DT_GNU_HASH);
    const size_t count = gnu_hash != NULL ? gnu_hash[1] : hash != NULL ? hash[1] : 0;
    for (size_t i = 1; i < count && strings != NULL && symbols != NULL; i++) {
        const char *name = strings + symbols[i].st_name;
        if (symbols[i].st_shndx == SHN_UNDEF &&
            (strcmp(name, "dlsym") == 0 || strcmp(name, "dlopen") == 0))
            return true;
    }
    return false;
}

/* ---- one search ---- */

struct library_search {
    const struct clb_next_symbol *symbol;
    const void *caller;
    struct link_map *own, *home; /* the objects of the shim and of the caller, which may be NULL */
    bool global;                 /* all the program's calls of the name come to the shim */
    bool linked;                 /* the caller needs the shim, and may have no other BLAS */
    bool provided;               /* functions of a provider are refused */
    bool dispatched;             /* a dispatcher has called */
    bool below;                  /* a dispatcher may have called; */
    bool dispatchers;        /* in that case, accept what was loaded after the shim all the same */
    void *found;             /* the function */
    struct link_map *object; /* where it is */
    bool in_dispatcher;      /* that may be a dispatcher */
    bool everyone;           /* the result is valid for all callers */
};

/* Whether a dispatcher, such as FlexiBLAS, has called: a library that passes its calls on to a back
 * end, which is the shim or needs it. Its function of the called name may call; or it has jumped to
 * the shim, after the shim has called it (see `dispatched` in struct clb_next_symbol): then the
 * caller seen is the shim, and the symbol the one that it declined last. A name that differs is a
 * jump within the next library. Its other functions call by name as any library does. */
static bool is_dispatched(const struct library_search *search)
{
    const char *name = search->symbol->name;
    Dl_info info;
    if (search->home == NULL || search->home == search->own)
        return search->home != NULL && clb_next_declined == search->symbol;
    const void *defined = opens_libraries(search->home) ? defined_in(search->home, name) : NULL;
    if (defined == NULL || dladdr((const char *)search->caller - 1, &info) == 0)
        return defined != NULL;
    const size_t length = info.dli_sname != NULL ? strlen(info.dli_sname) : 0;
    return info.dli_sname == NULL || info.dli_saddr == defined ||
           strncmp(info.dli_sname, "flexiblas_", strlen("flexiblas_")) == 0 ||
           (length > strlen(name) && strcmp(info.dli_sname + length - strlen(name), name) == 0);
}

static struct library_search begin_search(const struct clb_next_symbol *symbol, const void *caller)
{
    struct library_search search = {
        .symbol = symbol, .caller = caller, .own = own_object(), .home = object_at(caller)};
    static const char version[] = "clblas_shim_version";
    struct link_map *program = dlopen(NULL, RTLD_LAZY);
    search.global = program == search.own || object_at(dlsym(program, version)) == search.own;
    search.linked =
        search.home == search.own || object_at(look_up(search.home, version)) == search.own;
    search.dispatched = is_dispatched(&search);
    /* A caller that neither needs the shim nor finds it in the whole program's scope has its
     * address from a dispatcher, which may have jumped. */
    search.below = search.dispatched || (!search.global && !search.linked);
    return search;
}

static bool find_provided(struct library_search *search);
static atomic_bool provider_in_use;

/* Take a function as the result. False: it is refused. The result is never in the shim or another
 * copy of it, and for a function of a provider it is the one behind that. Below a dispatcher it is
 * not in the caller, and at first in nothing that may be a dispatcher. */
static bool take(struct library_search *search, void *address)
{
    struct link_map *object = object_at(address);
    if (is_provider(object))
        return !search->provided && find_provided(search);
    if (object == NULL || object == search->own || defined_in(object, "clblas_shim_version") ||
        (search->below && object == search->home))
        return false;
    const bool in_dispatcher = opens_libraries(object);
    if (search->below && in_dispatcher) {
        const struct link_map *map = search->dispatchers && !search->global ? search->own : NULL;
        while (map != NULL && map != object)
            map = map->l_next;
        if (map == NULL)
            return false;
    }
    search->found = address;
    search->object = object;
    search->in_dispatcher = in_dispatcher;
    return true;
}

/* Search an object and what it needs, directly or indirectly: nearest first, as dlsym does, but
 * past functions that are refused. The object must stay loaded meanwhile. */
static bool find_from(struct library_search *search, const struct link_map *object)
{
    const struct link_map *queue[64] = {object};
    size_t count = object != NULL;
    for (size_t i = 0; i < count; i++) {
        void *address = look_up(queue[i], search->symbol->name);
        if (address == NULL)
            continue;
        if (take(search, address))
            return true;
        const char *strings = dynamic_table(queue[i], DT_STRTAB);
        for (const ElfW(Dyn) *d = queue[i]->l_ld; d != NULL && d->d_tag != DT_NULL; d++) {
            struct link_map *needed =
                d->d_tag == DT_NEEDED ? open_loaded(strings + d->d_un.d_val, 0) : NULL;
            size_t known = 0;
            if (needed == NULL)
                continue;
            while (known < count && queue[known] != needed)
                known++;
            if (known == count && count < CLB_COUNT_OF(queue))
                queue[count++] = needed;
            dlclose(needed);
        }
    }
    return false;
}

/* Open a library, which is never closed, and search it and what it needs. */
static bool find_in_library(struct library_search *search, const char *path, bool *has_failed)
{
    const struct link_map *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (has_failed != NULL && (library == NULL || is_provider(library))) {
        clb_complain("CLBLAS_SHIM_NEXT: %s%s", library == NULL ? dlerror() : path,
                     library == NULL ? "" : " is clblas-shim itself");
        *has_failed = true;
    }
    return library != NULL && find_from(search, library);
}

static bool find_in_list(struct library_search *search, const char *list, bool *has_failed)
{
    bool found = false;
    while (list != NULL && *list != '\0' && !found) {
        char path[PATH_MAX];
        const size_t length = strcspn(list, ":");
        snprintf(path, sizeof path, "%.*s", (int)length, list);
        found = length > 0 && length < sizeof path && find_in_library(search, path, has_failed);
        list += length + (list[length] == ':');
    }
    return found;
}

/* Search CLBLAS_SHIM_NEXT. What can't be opened, or is a provider, is reported for the first such
 * symbol only. */
static bool find_configured(struct library_search *search)
{
    static atomic_bool has_complained;
    const bool provided = search->provided;
    bool has_failed = false;
    search->provided = true;
    const bool found = find_in_list(search, clb_config_get()->next,
                                    atomic_load(&has_complained) ? NULL : &has_failed);
    search->provided = provided;
    if (has_failed)
        atomic_store(&has_complained, true);
    search->everyone = found && !search->in_dispatcher;
    return found;
}

/* Search what comes behind a provider, which shares its sonames: full paths. */
static bool find_provided(struct library_search *search)
{
    search->provided = true;
    const bool found = find_configured(search) || find_in_list(search, CLB_PROVIDER_NEXT, NULL);
    search->provided = false;
    return found;
}

/* Below a dispatcher the library with the configured soname may be the dispatcher. */
static bool find_fallback(struct library_search *search)
{
    const struct clb_next_symbol *symbol = search->symbol;
    const char *sonames[] = {symbol->abi == CLB_ABI_LAPACKE          ? CLB_NEXT_LAPACKE
                             : symbol->library == CLB_LIBRARY_LAPACK ? CLB_NEXT_LAPACK
                                                                     : CLB_NEXT_BLAS,
                             symbol->abi == CLB_ABI_C ? "libcblas.so.3" : NULL,
                             search->below ? "libopenblas.so.0" : NULL,
                             search->below ? "libblis.so.4" : NULL};
    bool found = false;
    for (size_t i = 0; i < CLB_COUNT_OF(sonames) && !found; i++)
        found = sonames[i] != NULL && find_in_library(search, sonames[i], NULL);
    return found;
}

/* ---- properties of a library ---- */

/* OpenBLAS's functions: plain names, builds with 64-bit integers, numpy's and scipy's wheels. */
static const char *const thread_names[][2] = {
    {"openblas_set_num_threads", "openblas_get_num_threads"},
    {"openblas_set_num_threads64_", "openblas_get_num_threads64_"},
    {"scipy_openblas_set_num_threads", "scipy_openblas_get_num_threads"},
    {"scipy_openblas_set_num_threads64_", "scipy_openblas_get_num_threads64_"}};

/* Functions that only OpenBLAS, MKL, BLIS, AMD's or Arm's library has. */
static const char *const optimised_names[] = {"openblas_get_config",
                                              "openblas_get_config64_",
                                              "scipy_openblas_get_config",
                                              "armplversion",
                                              "mkl_get_version",
                                              "bli_info_get_version_str",
                                              "scipy_openblas_get_config64_"};

/* Call i?amax with n = 3 in the low half and a nonzero upper half, with which n is negative. With
 * either width the low half of the result, or of Fortran's arguments, counts. */
bool clb_next_probe_ilp64(void (*f)(void), const char *probe, clb_abi abi)
{
    typedef int fortran(const int64_t *, const float *, const int64_t *);
    typedef size_t c(int64_t, const float *, int64_t);
    const float x[3] = {1, 3, 2};
    const int64_t n = (int64_t)UINT64_C(0xffffffff00000003), one = 1;
    void *isamax = look_up(object_at((void *)(uintptr_t)f), probe);
    if (isamax == NULL)
        return false;
    return abi == CLB_ABI_C ? (int)((c *)(uintptr_t)isamax)(n, x, one) != 1
                            : ((fortran *)(uintptr_t)isamax)(&n, x, &one) != 2;
}

/* The function, which not every BLAS has, of the one behind a provider. */
static void *look_behind_provider(const char *name)
{
    const struct clb_next_symbol blas = {.name = "isamax_"};
    struct library_search search = {.symbol = &blas, .own = own_object()};
    void *address = find_provided(&search) ? look_up(search.object, name) : NULL;
    return is_provider(object_at(address)) ? NULL : address;
}

/* The function of an object, of what it needs, or of the BLAS behind the provider that it needs. */
static void *look_behind(const struct link_map *object, const char *name)
{
    void *address = look_up(object, name);
    return is_provider(object_at(address)) ? look_behind_provider(name) : address;
}

/* A target that is not published yet. The names of its library and of what that needs tell. */
static struct clb_target make_target(const struct library_search *search)
{
    const struct clb_next_symbol *symbol = search->symbol;
    const struct link_map *object = search->object;
    const char *slash = strrchr(object->l_name, '/');
    struct clb_target target = {.function = (function)(uintptr_t)search->found,
                                .library = slash != NULL ? slash + 1 : object->l_name};
    target.ilp64 =
        symbol->always_ilp64 || clb_next_probe_ilp64(target.function, symbol->probe, symbol->abi);
    for (size_t i = 0; i < CLB_COUNT_OF(thread_names) && target.set_threads == NULL; i++) {
        target.set_threads = (void (*)(int))(uintptr_t)look_behind(object, thread_names[i][0]);
        target.get_threads = (int (*)(void))(uintptr_t)look_behind(object, thread_names[i][1]);
    }
    target.optimised = target.set_threads != NULL;
    if (look_behind(object, "omp_get_max_threads") != NULL)
        target.set_threads = NULL;
    for (size_t i = 0; i < CLB_COUNT_OF(optimised_names) && !target.optimised; i++)
        target.optimised = look_behind(object, optimised_names[i]) != NULL;
    return target;
}

/* ---- targets ---- */

static struct clb_target *known_target(const struct clb_next_symbol *symbol, function f)
{
    struct clb_target *target = atomic_load(&symbol->targets);
    while (target != NULL && target->function != f)
        target = target->link;
    return target;
}

/* Publish a new target, in a static reserve where malloc fails; NULL when that is used up. Without
 * a lock: a race may leave a duplicate, which does no harm. */
static struct clb_target *add_target(struct clb_next_symbol *symbol, const struct clb_target *value)
{
    static struct clb_target reserve[2048];
    static _Atomic size_t used;
    struct clb_target *target = malloc(sizeof *target);
    if (target == NULL) {
        const size_t number = atomic_fetch_add(&used, 1);
        if (number >= CLB_COUNT_OF(reserve))
            return NULL;
        target = &reserve[number];
    }
    *target = *value;
    target->link = atomic_load(&symbol->targets);
    while (!atomic_compare_exchange_weak(&symbol->targets, &target->link, target))
        ;
    return target;
}

/* Names of the same text are the same string, by which the history knows a library. */
static const char *keep_name(const char *name)
{
    static struct name {
        struct name *link;
        char text[];
    } * _Atomic names;
    struct name *known = atomic_load(&names);
    while (known != NULL && strcmp(known->text, name) != 0)
        known = known->link;
    if (known != NULL)
        return known->text;
    struct name *new = malloc(sizeof *new + strlen(name) + 1);
    if (new == NULL)
        return "?";
    strcpy(new->text, name);
    new->link = atomic_load(&names);
    while (!atomic_compare_exchange_weak(&names, &new->link, new))
        ;
    return new->text;
}

static struct clb_target *intern(struct clb_next_symbol *symbol,
                                 const struct library_search *search)
{
    struct clb_target *known = known_target(symbol, (function)(uintptr_t)search->found);
    if (known != NULL)
        return known;
    struct clb_target target = make_target(search);
    target.library = keep_name(target.library);
    clb_log(CLB_LOG_INFO, "%s -> %s%s", symbol->name, search->object->l_name,
            target.ilp64 ? " (64-bit integers)" : "");
    return add_target(symbol, &target);
}

/* ---- targets stored by caller: push-only chains, read without a lock ---- */

static struct caller {
    const void *address;
    const struct clb_next_symbol *symbol;
    const struct clb_target *target;
    struct caller *link;
} * _Atomic callers[512];

static struct caller *_Atomic *bucket_of(const struct clb_next_symbol *symbol, const void *address)
{
    uintptr_t mixed = ((uintptr_t)address ^ ((uintptr_t)symbol >> 4)) * 0x9e3779b1u;
    return &callers[(mixed >> 7) % CLB_COUNT_OF(callers)];
}

/* The whole cost of a call when the target depends on the caller, therefore inlined. */
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
    struct caller *_Atomic *bucket = bucket_of(symbol, address);
    struct caller *entry = malloc(sizeof *entry);
    if (entry == NULL)
        return;
    *entry = (struct caller){address, symbol, target, atomic_load(bucket)};
    while (!atomic_compare_exchange_weak(bucket, &entry->link, entry))
        ;
}

/* ---- the search ---- */

/* Store the result for all callers, or for this one, if the objects involved stay loaded. */
static const struct clb_target *answer(struct clb_next_symbol *symbol,
                                       const struct library_search *search)
{
    const bool lasts = keep_loaded(search->object);
    if (search->in_dispatcher)
        atomic_store(&symbol->dispatched, true);
    const struct clb_target *target = intern(symbol, search);
    if (target == NULL || !lasts)
        return target;
    if (search->everyone)
        atomic_store_explicit(&symbol->target, target, memory_order_release);
    /* The next call from the same place in the shim may be the dispatcher's. */
    else if (!(search->home == search->own && search->in_dispatcher) && keep_loaded(search->home))
        remember(symbol, search->caller, target);
    return target;
}

/* Search the libraries behind the shim, and those that the caller's object needs. Behind the shim
 * come those that the program was started with; or, where a plugin has loaded it, that plugin's;
 * but a provider comes before the shim, which it needs. */
static bool find_reached(struct library_search *search)
{
    const bool next_first = search->global || search->below;
    void *next = dlsym(RTLD_DEFAULT, search->symbol->name);
    if (!is_provider(object_at(next)))
        next = dlsym(RTLD_NEXT, search->symbol->name);
    if (next_first && take(search, next)) {
        search->everyone = !search->below && !search->in_dispatcher;
        return true;
    }
    return find_from(search, search->home) || (!next_first && take(search, next));
}

/* In load order; unless `any_width`, accept only 32-bit integers where the name tells no width. */
static bool find_anywhere(struct library_search *search, bool any_width)
{
    struct listed listed = {.found = true};
    for (size_t number = 0; listed.found; number++) {
        listed.number = number;
        listed.found = false;
        dl_iterate_phdr(list_object, &listed);
        struct link_map *object = listed.found ? open_loaded(listed.path, 0) : NULL;
        void *address = object != NULL ? defined_in(object, search->symbol->name) : NULL;
        if (address != NULL && take(search, address) &&
            (any_width || search->symbol->always_ilp64 || !make_target(search).ilp64)) {
            clb_log(CLB_LOG_INFO, "%s is not in what its caller needs: taken from what is loaded",
                    search->symbol->name);
            return true;
        }
        if (object != NULL)
            dlclose(object);
    }
    return false;
}

/* Where a provider is in use, what comes behind it. Otherwise: a caller that needs the shim may
 * have no other BLAS: it gets the library with the configured soname. Any other caller would reach
 * the name without the shim, so a loaded object has it. */
static bool find_elsewhere(struct library_search *search)
{
    if (atomic_load(&provider_in_use) && find_provided(search))
        return true;
    if (search->linked && find_fallback(search))
        return true;
    return find_anywhere(search, false) || (!search->linked && find_fallback(search)) ||
           find_anywhere(search, true);
}

/* NULL: no library has the symbol. `doubt`: search again even when an earlier search failed and no
 * object was loaded since, because memory may have been short. */
static const struct clb_target *search(struct clb_next_symbol *symbol, const void *caller,
                                       bool doubt)
{
    struct listed first = {0};
    dl_iterate_phdr(list_object, &first);
    if (!doubt && first.loads + 1 == atomic_load(&symbol->absent))
        return NULL;
    struct library_search search = begin_search(symbol, caller), configured = search;
    configured.below = search.dispatched;
    if (find_configured(&configured))
        return answer(symbol, &configured);
    bool found = find_reached(&search) || find_elsewhere(&search);
    if (!found && search.below) {
        search.dispatchers = true;
        found = find_elsewhere(&search);
    }
    if (!found && !search.below)
        atomic_store(&symbol->absent, first.loads + 1);
    return found ? answer(symbol, &search) : NULL;
}

/* Search while forks wait, because the search may load libraries. */
static CLB_COLD const struct clb_target *search_unforked(struct clb_next_symbol *symbol,
                                                         const void *caller, bool doubt)
{
    clb_load_begin();
    const struct clb_target *target = search(symbol, caller, doubt);
    clb_load_end();
    return target;
}

const struct clb_target *clb_next_search(struct clb_next_symbol *symbol, const void *caller)
{
    const struct clb_target *target = known_for(symbol, caller);
    return target != NULL ? target : search_unforked(symbol, caller, false);
}

/* ---- names of routines ---- */

/* Another routine of the same precision, whose stem ends at a space. */
static clb_routine find_other(const struct clb_symbol *symbol, const char *stem)
{
    const size_t length = strcspn(stem, " ");
    int r = 0;
    while (r + 1 < CLB_ROUTINES &&
           (clb_routines[r].precision != clb_routines[symbol->routine].precision ||
            strncmp(clb_routines[r].stem, stem, length) != 0 ||
            clb_routines[r].stem[length] != '\0'))
        r++;
    return (clb_routine)r;
}

/* Make the target of another routine's symbol of the same form that of this one, for this caller
 * only: others may reach a library that has the symbol itself. Stored if the other's target is. */
static const struct clb_target *fallback(struct clb_symbol *of, const void *caller,
                                         clb_routine routine)
{
    const struct clb_routine_info *own = &clb_routines[of->routine], *info = &clb_routines[routine];
    struct clb_next_symbol *symbol = &of->next;
    struct clb_next_symbol *other = &clb_symbol_at(routine, clb_symbol_form(of))->next;
    const struct clb_target *found = clb_next_try(other, caller);
    const struct clb_target *target = found != NULL ? known_target(symbol, found->function) : NULL;
    if (found == NULL)
        return NULL;
    if (atomic_load(&other->dispatched))
        atomic_store(&symbol->dispatched, true);
    if (target == NULL) {
        struct clb_target copy = *found;
        copy.fallback =
            strcmp(own->signature, info->signature) == 0 && strcmp(own->flags, info->flags) == 0
                ? CLB_SAME
                : CLB_COMPOSED;
        target = add_target(symbol, &copy);
        clb_log(CLB_LOG_INFO, "%s -> %s's %s", symbol->name, found->library, other->name);
    }
    if (target != NULL &&
        (atomic_load(&other->target) == found || known_for(other, caller) == found))
        remember(symbol, caller, target);
    return target;
}

/* End the process as the dynamic linker does. The message also goes to the log file, because a test
 * runner may have redirected stderr. */
static CLB_COLD _Noreturn void end_without(const char *name)
{
    clb_complain("symbol lookup error: no BLAS/LAPACK library has %s (CLBLAS_SHIM_NEXT can name "
                 "one)",
                 name);
    _exit(127);
}

/* Where there is nothing, search once more. */
const struct clb_target *clb_next_find_target(struct clb_symbol *symbol, const void *caller)
{
    const struct clb_target *target = clb_next_search(&symbol->next, caller);
    const char *stem = clb_routines[symbol->routine].others;
    while (target == NULL && *stem != '\0') {
        target = fallback(symbol, caller, find_other(symbol, stem));
        stem += strcspn(stem, " ");
        stem += *stem == ' ';
    }
    if (target == NULL)
        target = search_unforked(&symbol->next, caller, true);
    if (target != NULL)
        return target;
    end_without(symbol->next.name);
}

/* ---- providers ---- */

static int zero(void)
{
    return 0;
}
static int one(void)
{
    return 1;
}
static const char *text(void)
{
    return "unknown";
}

/* For what libblas.so.3 has besides the reference's names, OpenBLAS's and BLIS's functions of
 * threads, and the next library may lack; NULL: a name that must be there. */
static function default_of(const char *name)
{
    if (strncmp(name, "openblas_", 9) != 0 && strncmp(name, "goto_", 5) != 0 &&
        strncmp(name, "bli_", 4) != 0)
        return NULL;
    return strstr(name, "_set_") != NULL || strstr(name, "parallel") != NULL ? (function)zero
           : strstr(name, "_num_") != NULL                                   ? (function)one
                                                                             : (function)text;
}

static void *provide(const char *name)
{
    const struct clb_next_symbol symbol = {.name = name};
    struct library_search search = {.symbol = &symbol, .own = own_object()};
    const function standard = default_of(name);
    void *found = standard != NULL ? look_behind_provider(name) : defined_in(search.own, name);
    if (found == NULL && standard != NULL)
        found = (void *)(uintptr_t)standard;
    if (found != NULL)
        return found;
    return find_provided(&search) ? search.found : NULL;
}

void *clb_next_provide(const char *name)
{
    atomic_store(&provider_in_use, true);
    clb_load_begin();
    void *address = provide(name);
    clb_load_end();
    if (address == NULL)
        end_without(name);
    return address;
}

/* ---- the switch of LAPACKE's check for NaN ---- */

/* The names of the function that returns the switch, by the naming scheme. Newer releases of
 * reference LAPACKE have it in a function of another name, old ones lack it. */
#define NANCHECK(name)                                                                  \
    {                                                                                   \
        NULL, NULL, name, "isamax_", CLB_ABI_LAPACKE, CLB_LIBRARY_BLAS, false, false, 0 \
    }
static struct clb_next_symbol nanchecks[][2] = {
    {NANCHECK("LAPACKE_get_nancheck"), NANCHECK("LAPACKE_get_nancheck_flag")},
    {NANCHECK("LAPACKE_get_nancheck64_"), NANCHECK("LAPACKE_get_nancheck")},
    {NANCHECK("LAPACKE_get_nancheck_64"), NANCHECK("LAPACKE_get_nancheck")},
    {NANCHECK("scipy_LAPACKE_get_nancheck")},
    {NANCHECK("scipy_LAPACKE_get_nancheck64_")},
};

bool clb_next_checks_nan(const struct clb_symbol *symbol, const void *caller)
{
    struct clb_next_symbol *names = nanchecks[symbol->form - CLB_FORM_lapacke];
    for (size_t i = 0; i < 2 && names[i].name != NULL; i++) {
        const struct clb_target *target = clb_next_try(&names[i], caller);
        if (target != NULL)
            return ((int (*)(void))target->function)() != 0;
    }
    return true;
}
