/* symbols.h: what the dynamic linker has loaded, and the functions in it (symbols.c).
 *
 * dlsym, dlopen and dladdr wait for a dlopen of another thread until the constructors of what that
 * loads have run, and a constructor may wait for threads that call BLAS. dl_iterate_phdr waits only
 * while the list of objects changes, so names are looked up in the objects' own tables here. */
#ifndef CLB_SYMBOLS_H
#define CLB_SYMBOLS_H

#include "base/base.h"

#include <link.h>

/* An executable or shared library. Strings and tables are the object's own memory. */
struct clb_object {
    uintptr_t base;       /* what is added to the addresses in its tables */
    uintptr_t begin, end; /* where its segments are */
    const char *path;     /* as the dynamic linker names it; empty: the executable */
    const ElfW(Dyn) * dynamic;
    /* The rest is there after it was needed. */
    bool parsed;
    bool listed; /* in the closure that is being made */
    const char *strings;
    const char *soname;    /* NULL: none */
    uint32_t name_hash[2]; /* of soname and file name */
    const ElfW(Sym) * symbols;
    const uint16_t *versions;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
    struct clb_relocations {
        const char *begin;
        size_t bytes, size; /* of all, and of each */
    } relocations[3];
};

/* All of this namespace, in the order in which they were loaded. Valid inside clb_objects_visit. */
struct clb_objects {
    struct clb_object *object;
    size_t count;
    size_t startup;          /* the first so many were loaded with the program, and stay */
    uint64_t loads, unloads; /* so far */
};

/* Call `visit` with what is loaded, which stays loaded until it returns: it must take no lock and
 * allocate nothing. Objects at the end of the list may be those of a dlopen under way, without
 * relocations and before their constructors. Not to be called from within `visit`. */
void clb_objects_visit(void (*visit)(const struct clb_objects *objects, void *argument),
                       void *argument);

/* The object that an address is in; NULL: none, code made at run time. */
struct clb_object *clb_object_at(const struct clb_objects *objects, const void *address);

/* True when the object has the name that a DT_NEEDED entry or dlopen asks for. */
bool clb_object_is_named(struct clb_object *object, const char *name);

/* Objects in the order in which the dynamic linker looks into them. */
struct clb_closure {
    struct clb_object **member;
    size_t count;
};

/* An object, what it needs, what that needs: as dlsym with its handle. Until the next one. */
struct clb_closure clb_object_closure(const struct clb_objects *objects, struct clb_object *root);

/* A function that an object exports. */
struct clb_found {
    const void *address; /* NULL: none */
    bool resolver;       /* an IFUNC's: calling it returns the function */
    struct clb_object *object;
};

/* A name's default version, as dlsym finds it, in this object alone. */
struct clb_found clb_object_find(struct clb_object *object, const char *name);

/* True when the object leaves `name` to others. */
bool clb_object_imports(struct clb_object *object, const char *name);

/* True when the object, if it has `name` itself or not, reaches it by way of the dynamic linker. */
bool clb_object_binds(struct clb_object *object, const char *name);

/* True when `address` is in a function that the object exports under a name that ends with `name`.
 */
bool clb_object_runs(struct clb_object *object, const char *name, const void *address);

/* The function behind what was found: outside of clb_objects_visit. NULL: it can't be told without
 * dlsym. */
const void *clb_found_address(const struct clb_found *found);

/* The first function of that name in what the program was started with; NULL: none. Others may not
 * be ready to be called. */
const void *clb_loaded_symbol(const char *name);

#endif
