/* Finds the next library, in the order of docs/next-library.md.
 *
 * Names are looked up in loaded objects without taking the dynamic linker's lock (base/symbols.h):
 * the constructor of a library being loaded may wait for a thread that runs this search. dlopen is
 * used only for CLBLAS_SHIM_NEXT, for the configured sonames, and for the search of all loaded
 * objects when nothing else has the name. */
#include "pin.h"
#include "next.h"

#include <dlfcn.h>
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

CLB_THREAD const struct clb_next_symbol *clb_next_declined;

typedef void (*function)(void);

static function as_function(const void *address)
{
    function result;
    memcpy(&result, &address, sizeof result);
    return result;
}

static const void *as_address(function f)
{
    const void *address;
    memcpy(&address, &f, sizeof address);
    return address;
}

/* ---- one search ------------------------------------------------------------------------------ */

/* The symbol and caller of a search, and the result; passed through clb_objects_visit. */
struct library_search {
    const struct clb_next_symbol *symbol;
    const void *caller;
    struct clb_place place; /* the caller's object */
    bool linked;            /* the caller needs the shim, and may have no other BLAS */
    bool below;             /* a dispatcher has called, see is_dispatched */
    bool dispatchers;       /* in that case, accept other libraries that may be dispatchers */
    const char *path;       /* the argument of dlopen */
    const void *handle;     /* an address in the object that dlopen returned */
    size_t skip;            /* number of results to skip */
    uint64_t loads, unloads;
    struct clb_found found;
    struct clb_place found_place;
    bool own;         /* the caller is the shim, for any of the reasons in is_dispatched */
    bool dispatcher;  /* the result may be in a dispatcher */
    bool everyone;    /* the result is valid for all callers */
    bool half_loaded; /* the result may be in an object whose dlopen has not ended */
};

/* The shim's object. NULL: memory is short and the list of objects is incomplete. */
static struct clb_object *own_object(const struct clb_objects *objects)
{
    return clb_object_at(objects, as_address((function)clb_next_find));
}

static bool opens_libraries(struct clb_object *object)
{
    return clb_object_imports(object, "dlsym") || clb_object_imports(object, "dlopen");
}

static bool is_startup(const struct clb_objects *objects, const struct clb_object *object)
{
    return (size_t)(object - objects->object) < objects->startup;
}

/* The result is never the shim or another copy of it. For a caller that is a dispatcher it is not
 * the caller, and at first no other library that may be a dispatcher; one of these that was loaded
 * with the program is never accepted, because the call came from it. */
static bool is_refused(const struct library_search *search, const struct clb_objects *objects,
                       struct clb_object *object)
{
    if (object == own_object(objects) ||
        clb_object_find(object, "clblas_shim_version").address != NULL)
        return true;
    if (!search->below)
        return false;
    return object == clb_object_at(objects, search->caller) ||
           (opens_libraries(object) && (!search->dispatchers || is_startup(objects, object)));
}

/* Take an object's function as the result, if it has one and is not refused. */
static bool find_take(struct library_search *search, const struct clb_objects *objects,
                      struct clb_object *object)
{
    struct clb_found found = clb_object_find(object, search->symbol->name);
    if (found.address == NULL || is_refused(search, objects, object))
        return false;
    if (search->skip > 0) {
        search->skip--;
        return false;
    }
    search->found = found;
    search->dispatcher = opens_libraries(object);
    clb_place_note(&search->found_place, objects, object);
    return true;
}

static bool take_from_closure(struct library_search *search, const struct clb_objects *objects,
                              struct clb_object *root)
{
    struct clb_closure closure = clb_object_closure(objects, root);
    for (size_t i = 0; i < closure.count; i++) {
        if (find_take(search, objects, closure.member[i]))
            return true;
    }
    return false;
}

/* True when a dispatcher has called: an object that defines the routine itself, but calls the
 * shim's. Those that find a back end by dlsym do so when the back end is the shim or needs it. A
 * cblas_dgemm that calls dgemm_ of its own library also reaches the shim, but through the dynamic
 * linker, and the calling function has another name.
 *
 * FlexiBLAS jumps into its back end. The caller seen is then the shim, if that has called it (see
 * `dispatched` in struct clb_next_symbol), or an object that is bound to FlexiBLAS. When the name
 * is another one than the shim has called, a library has jumped from its own function. */
static bool is_dispatched(const struct clb_objects *objects, struct clb_object *object,
                          const struct clb_next_symbol *symbol, const void *caller)
{
    const char *name = symbol->name;
    if (object == own_object(objects))
        return clb_next_declined == symbol;
    if (clb_object_find(object, name).address != NULL &&
        (!clb_object_binds(object, name) || clb_object_runs(object, name, caller)))
        return true;
    struct clb_object *bound = clb_object_bound(objects, object, name);
    return bound != NULL && bound != own_object(objects) && opens_libraries(bound);
}

static bool closure_has(const struct clb_objects *objects, struct clb_object *root,
                        const struct clb_object *object)
{
    struct clb_closure closure = clb_object_closure(objects, root);
    for (size_t i = 0; i < closure.count; i++) {
        if (closure.member[i] == object)
            return true;
    }
    return false;
}

/* Search the objects loaded with the program that come after the shim, as RTLD_NEXT does, and also
 * after the caller if that is a dispatcher. */
static bool take_from_startup(struct library_search *search, const struct clb_objects *objects,
                              const struct clb_object *caller)
{
    size_t i = (size_t)(own_object(objects) - objects->object);
    if (search->below && caller != NULL && is_startup(objects, caller))
        i = clb_max(i, (size_t)(caller - objects->object));
    for (i++; i < objects->startup; i++) {
        if (find_take(search, objects, &objects->object[i]))
            return true;
    }
    return false;
}

/* Search the libraries loaded later that need the shim, and the other libraries that these need: a
 * back end of a dispatcher, or the plugin that loaded the shim. */
static bool take_from_dependents(struct library_search *search, const struct clb_objects *objects)
{
    const struct clb_object *own = own_object(objects);
    for (size_t i = objects->startup; i < objects->count; i++) {
        struct clb_object *object = &objects->object[i];
        if (object != own && closure_has(objects, object, own) &&
            take_from_closure(search, objects, object))
            return true;
    }
    return false;
}

/* The first visit: describe the caller, and search the libraries that it or all callers reach. */
static void find_look(const struct clb_objects *objects, void *argument)
{
    struct library_search *search = argument;
    struct clb_object *own = own_object(objects), *caller = clb_object_at(objects, search->caller);
    const bool preloaded = own != NULL && is_startup(objects, own);
    search->loads = objects->loads;
    search->unloads = objects->unloads;
    search->below =
        caller != NULL && is_dispatched(objects, caller, search->symbol, search->caller);
    search->own = caller != NULL && caller == own;
    clb_place_note(&search->place, objects, caller);
    if (preloaded && !search->below && take_from_startup(search, objects, caller)) {
        search->everyone = !opens_libraries(search->found.object);
        return;
    }
    if (search->below && take_from_dependents(search, objects)) {
        search->half_loaded = true;
        return;
    }
    if (caller != NULL && take_from_closure(search, objects, caller))
        return;
    search->linked = caller != NULL && closure_has(objects, caller, own);
    if (preloaded && search->below && take_from_startup(search, objects, caller))
        return;
    if (!preloaded && !search->below)
        search->half_loaded = take_from_dependents(search, objects);
}

static void look_in_handle(const struct clb_objects *objects, void *argument)
{
    struct library_search *search = argument;
    struct clb_object *root = clb_object_at(objects, search->handle);
    if (root != NULL && take_from_closure(search, objects, root))
        search->everyone = !opens_libraries(search->found.object);
}

static void look_anywhere(const struct clb_objects *objects, void *argument)
{
    struct library_search *search = argument;
    for (size_t i = 0; i < objects->count; i++) {
        if (find_take(search, objects, &objects->object[i]))
            return;
    }
}

static void look_in_named(const struct clb_objects *objects, void *argument)
{
    struct library_search *search = argument;
    for (size_t i = 0; i < objects->count; i++) {
        struct clb_object *root = &objects->object[i];
        if (!clb_object_is_named(root, search->path))
            continue;
        clb_place_note(&search->found_place, objects, root);
        if (clb_place_stays(&search->found_place) && take_from_closure(search, objects, root))
            search->everyone = !opens_libraries(search->found.object);
        return;
    }
}

/* Search a loaded library that stays loaded, otherwise open `path` by dlopen. The handle is never
 * closed, so the libraries that it needs stay loaded, too. */
static bool find_in_opened(struct library_search *search, const char *path)
{
    search->path = path;
    clb_objects_visit(look_in_named, search);
    struct link_map *map =
        search->found.address != NULL ? NULL : dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (map != NULL) {
        search->handle = map->l_ld;
        clb_objects_visit(look_in_handle, search);
    }
    if (search->found.address != NULL)
        clb_place_is_kept(&search->found_place);
    return search->found.address != NULL;
}

/* Search CLBLAS_SHIM_NEXT. Libraries that can't be opened are reported for the first symbol only.
 */
static bool find_configured(struct library_search *search)
{
    static _Atomic bool named;
    const bool quiet = atomic_load(&named);
    const char *list = clb_config_get()->next;
    bool found = false;
    while (list != NULL && *list != '\0' && !found) {
        char path[4096];
        size_t length = strcspn(list, ":");
        if (length > 0 && length < sizeof path) {
            memcpy(path, list, length);
            path[length] = '\0';
            dlerror();
            found = find_in_opened(search, path);
            const char *error = found || quiet ? NULL : dlerror();
            if (error != NULL) {
                clb_complain("CLBLAS_SHIM_NEXT: %s", error);
                atomic_store(&named, true);
            }
        }
        list += length;
        list += *list == ':';
    }
    return found;
}

static bool find_fallback(struct library_search *search)
{
    const struct clb_next_symbol *symbol = search->symbol;
    const char *sonames[] = {symbol->abi == CLB_ABI_LAPACKE          ? CLB_NEXT_LAPACKE
                             : symbol->library == CLB_LIBRARY_LAPACK ? CLB_NEXT_LAPACK
                                                                     : CLB_NEXT_BLAS,
                             symbol->abi == CLB_ABI_C ? "libcblas.so.3" : NULL,
                             /* The library with the configured soname may be the dispatcher. */
                             search->below ? "libopenblas.so.0" : NULL,
                             search->below ? "libblis.so.4" : NULL};
    bool found = false;
    for (size_t i = 0; i < CLB_COUNT_OF(sonames) && !found; i++)
        found = sonames[i] != NULL && find_in_opened(search, sonames[i]);
    search->everyone = false;
    return found;
}

/* ---- properties of a library ----------------------------------------------------------------- */

/* Properties of the library that has `function`; its integer width is tested by its isamax. */
struct description {
    const void *function;
    const char *probe;
    struct clb_found isamax, set_threads, get_threads;
    bool optimised;
    uint64_t unloads;
    char library[256];
};

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
                                              "scipy_openblas_get_config64_",
                                              "mkl_get_version",
                                              "bli_info_get_version_str",
                                              "armplversion"};

static struct clb_found find_in(const struct clb_closure *closure, const char *name)
{
    struct clb_found found = {0};
    for (size_t i = 0; i < closure->count && found.address == NULL; i++)
        found = clb_object_find(closure->member[i], name);
    return found;
}

static void find_describe(const struct clb_objects *objects, void *argument)
{
    struct description *what = argument;
    struct clb_object *object = clb_object_at(objects, what->function);
    what->unloads = objects->unloads;
    if (object == NULL)
        return;
    const char *slash = strrchr(object->path, '/');
    const char *name = slash != NULL ? slash + 1 : object->path;
    const size_t length = clb_min(strlen(name), sizeof what->library - 1);
    memcpy(what->library, name, length);
    what->library[length] = '\0';
    const struct clb_closure closure = clb_object_closure(objects, object);
    what->isamax = find_in(&closure, what->probe);
    for (size_t i = 0; i < CLB_COUNT_OF(thread_names) && what->set_threads.address == NULL; i++) {
        what->set_threads = find_in(&closure, thread_names[i][0]);
        what->get_threads = find_in(&closure, thread_names[i][1]);
    }
    what->optimised = what->set_threads.address != NULL;
    for (size_t i = 0; i < CLB_COUNT_OF(optimised_names) && !what->optimised; i++)
        what->optimised = find_in(&closure, optimised_names[i]).address != NULL;
}

/* Call i?amax with n = 3 in the low half and a nonzero upper half, with which n is negative. */
static bool is_wide(function isamax, clb_abi abi)
{
    const float x[3] = {1, 3, 2};
    const int64_t n = (int64_t)UINT64_C(0xffffffff00000003), one = 1;
    if (isamax == NULL)
        return false;
    /* With either width the low half of the result is the index; and 32-bit Fortran integers are
     * read from the low half of the arguments. */
    if (abi != CLB_ABI_C)
        return ((int (*)(const int64_t *, const float *, const int64_t *))isamax)(&n, x, &one) != 2;
    return (int)((size_t(*)(int64_t, const float *, int64_t))isamax)(n, x, one) != 1;
}

bool clb_next_probe_ilp64(void (*f)(void), const char *probe, clb_abi abi)
{
    struct description what = {.function = as_address(f), .probe = probe};
    clb_objects_visit(find_describe, &what);
    return is_wide(as_function(clb_found_address(&what.isamax)), abi);
}

/* ---- targets --------------------------------------------------------------------------------- */

static struct clb_target *known_target(const struct clb_next_symbol *symbol, function f,
                                       uint64_t unloads)
{
    struct clb_target *target = atomic_load(&symbol->targets);
    while (target != NULL && (target->function != f ||
                              (!atomic_load(&target->lasting) && target->unloads != unloads)))
        target = target->link;
    return target;
}

/* Allocate a target, from a static reserve when malloc fails. NULL: the reserve is used up. */
static struct clb_target *allocate_target(void)
{
    static struct clb_target reserve[2048];
    static _Atomic size_t used;
    struct clb_target *target = malloc(sizeof *target);
    if (target != NULL)
        return target;
    size_t number = atomic_load(&used);
    while (number < CLB_COUNT_OF(reserve) &&
           !atomic_compare_exchange_weak(&used, &number, number + 1))
        ;
    return number < CLB_COUNT_OF(reserve) ? &reserve[number] : NULL;
}

/* Publish a new target. Lock-free; a race may leave a duplicate, which does no harm. */
static struct clb_target *add_target(struct clb_next_symbol *symbol, const struct clb_target *value)
{
    struct clb_target *target = allocate_target();
    if (target == NULL)
        return NULL;
    *target = *value;
    target->link = atomic_load(&symbol->targets);
    while (!atomic_compare_exchange_weak(&symbol->targets, &target->link, target))
        ;
    return target;
}

/* Make a target that is not published yet; the name of its library is still stored in *what. */
static struct clb_target make_target(const struct clb_next_symbol *symbol, function f,
                                     struct description *what)
{
    *what = (struct description){.function = as_address(f), .probe = symbol->probe};
    clb_objects_visit(find_describe, what);
    return (struct clb_target){
        .function = f,
        .library = what->library,
        .ilp64 = symbol->always_ilp64 ||
                 is_wide(as_function(clb_found_address(&what->isamax)), symbol->abi),
        .optimised = what->optimised,
        .set_threads = (void (*)(int))as_function(clb_found_address(&what->set_threads)),
        .get_threads = (int (*)(void))as_function(clb_found_address(&what->get_threads)),
        .unloads = what->unloads};
}

/* The target of function f: the known one, or a new one. `lasting`: its library stays loaded. */
static struct clb_target *intern(struct clb_next_symbol *symbol,
                                 const struct library_search *search, function f, bool lasting)
{
    struct clb_target *known = known_target(symbol, f, search->unloads);
    if (known != NULL) {
        if (lasting)
            atomic_store(&known->lasting, true);
        return known;
    }
    struct description what;
    struct clb_target target = make_target(symbol, f, &what);
    target.library = strdup(what.library);
    if (target.library == NULL)
        target.library = "?";
    atomic_init(&target.lasting, lasting);
    clb_log(CLB_LOG_INFO, "%s -> %s%s", symbol->name,
            search->found_place.path[0] != '\0' ? search->found_place.path : target.library,
            target.ilp64 ? " (64-bit integers)" : "");
    return add_target(symbol, &target);
}

/* ---- targets stored by caller: push-only chains, read without a lock ------------------------- */

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
    _Atomic(struct caller *) *bucket = bucket_of(symbol, address);
    struct caller *entry = malloc(sizeof *entry);
    if (entry == NULL)
        return;
    *entry = (struct caller){address, symbol, target, atomic_load(bucket)};
    while (!atomic_compare_exchange_weak(bucket, &entry->link, entry))
        ;
}

/* ---- the search ------------------------------------------------------------------------------ */

/* The address of the function that was found. NULL when it has an IFUNC resolver that only the
 * dynamic linker can call, and dlopen of the library fails. */
static function resolve(struct library_search *search)
{
    const void *address = clb_found_address(&search->found);
    if (address == NULL && search->found_place.path[0] != '\0') {
        void *handle = dlopen(search->found_place.path, RTLD_LAZY | RTLD_NOLOAD);
        address = handle == NULL ? NULL : dlsym(handle, search->symbol->name);
    }
    return as_function(address);
}

/* Store the result for all callers, or for this one, if the objects involved stay loaded. */
static const struct clb_target *answer(struct clb_next_symbol *symbol,
                                       struct library_search *search)
{
    function f = resolve(search);
    if (f == NULL)
        return NULL;
    const bool lasting = clb_place_keep(&search->found_place);
    const bool caller_lasts = search->everyone || clb_place_keep(&search->place);
    if (search->dispatcher)
        atomic_store(&symbol->dispatched, true);
    struct clb_target *target = intern(symbol, search, f, lasting);
    if (target == NULL || !lasting)
        return target;
    if (search->everyone)
        atomic_store_explicit(&symbol->target, target, memory_order_release);
    /* The next call from the same place in the shim may be the dispatcher's. */
    else if (caller_lasts && !(search->own && search->dispatcher))
        remember(symbol, search->caller, target);
    return target;
}

/* Search all loaded objects in load order; unless `any_width`, accept only 32-bit integers where
 * the name does not tell the width. Waits until the dlopen of the accepted library has ended. */
static bool find_anywhere(struct library_search *search, bool any_width)
{
    for (size_t skip = 0;; skip++) {
        struct description what;
        search->skip = skip;
        search->found.address = NULL;
        clb_objects_visit(look_anywhere, search);
        search->skip = 0;
        if (search->found.address == NULL)
            return false;
        if (!clb_place_keep_now(&search->found_place) && !any_width)
            continue;
        function f = resolve(search);
        if (f != NULL && (any_width || search->symbol->always_ilp64 ||
                          !make_target(search->symbol, f, &what).ilp64)) {
            clb_log(CLB_LOG_INFO, "%s is not in what its caller needs: taken from what is loaded",
                    search->symbol->name);
            return true;
        }
    }
}

/* A caller that needs the shim may have no other BLAS: it gets the library with the configured
 * soname. Any other caller would reach the name without the shim, so a loaded object has it. */
static bool find_elsewhere(struct library_search *search)
{
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
    struct library_search search = {.symbol = symbol, .caller = caller};
    clb_objects_visit(find_look, &search);
    if (search.found.address == NULL && !doubt && search.loads + 1 == atomic_load(&symbol->absent))
        return NULL;
    struct library_search configured = search;
    configured.found.address = NULL;
    configured.everyone = false;
    if (find_configured(&configured))
        return answer(symbol, &configured);
    if (search.half_loaded)
        clb_place_keep_now(&search.found_place);
    bool found = search.found.address != NULL || find_elsewhere(&search);
    if (!found && search.below) {
        search.dispatchers = true;
        found = find_elsewhere(&search);
    }
    if (!found && !search.below)
        atomic_store(&symbol->absent, search.loads + 1);
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

/* End the process as the dynamic linker does. The message also goes to the log file, because a test
 * runner may have redirected stderr. */
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
        target = search_unforked(symbol, caller, true);
    if (target == NULL)
        fail_to_find(symbol);
    return target;
}

/* Make the target of another symbol the target of this one, for this caller only: other callers may
 * reach a library that has the symbol itself. Stored if the other symbol's target is. */
static const struct clb_target *fallback(struct clb_next_symbol *symbol, const void *caller,
                                         const struct clb_next_symbol *other,
                                         const struct clb_target *found, unsigned number)
{
    const struct clb_target *target = known_target(symbol, found->function, found->unloads);
    if (atomic_load(&other->dispatched))
        atomic_store(&symbol->dispatched, true);
    if (target == NULL) {
        struct clb_target copy = *found;
        copy.fallback = number;
        target = add_target(symbol, &copy);
        clb_log(CLB_LOG_INFO, "%s -> %s's %s", symbol->name, found->library, other->name);
    }
    if (target != NULL &&
        (atomic_load(&other->target) == found || known_for(other, caller) == found))
        remember(symbol, caller, target);
    return target;
}

const struct clb_target *clb_next_find_or(struct clb_next_symbol *symbol,
                                          struct clb_next_symbol *const *others, unsigned count,
                                          const void *caller)
{
    const struct clb_target *target = known_for(symbol, caller);
    if (CLB_UNLIKELY(target == NULL))
        target = search_unforked(symbol, caller, false);
    for (unsigned i = 0; i < count && target == NULL; i++) {
        const struct clb_target *found = clb_next_try(others[i], caller);
        if (found != NULL)
            target = fallback(symbol, caller, others[i], found, i + 1);
    }
    if (target == NULL)
        target = search_unforked(symbol, caller, true);
    if (target == NULL)
        fail_to_find(symbol);
    return target;
}
