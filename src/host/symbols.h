/* symbols.h: lists the objects that the dynamic linker has loaded, and finds functions in them
 * (symbols.c).
 *
 * dlsym, dlopen and dladdr wait until a dlopen of another thread has run the constructors of the
 * objects that it loads, and a constructor may wait for threads that call BLAS. dl_iterate_phdr
 * waits only while the list of objects changes. So this module gets the list from dl_iterate_phdr
 * and looks names up in the objects' own symbol tables. */
#ifndef CLB_SYMBOLS_H
#define CLB_SYMBOLS_H

#include "host/host.h"

#include <link.h>

/* An executable or shared library. Strings and tables are the object's own memory. */
struct clb_object {
    uintptr_t base;       /* the offset to be added to addresses in its tables */
    uintptr_t begin, end; /* the range of its segments */
    const char *path;     /* as the dynamic linker names it; empty: the executable */
    const ElfW(Dyn) * dynamic;
    /* The rest is filled in when it is first needed. */
    bool parsed;
    bool listed; /* it is in the closure that is being made */
    const char *strings;
    const char *soname;    /* NULL: none */
    uint32_t name_hash[2]; /* hashes of soname and file name */
    const ElfW(Sym) * symbols;
    const uint16_t *versions;
    const uint32_t *gnu_hash;
    const uint32_t *hash;
    struct clb_relocations {
        const char *begin;
        size_t bytes, size; /* all entries, one entry */
    } relocations[3];
};

/* All objects of this namespace, in load order. Valid inside clb_objects_visit. */
struct clb_objects {
    struct clb_object *object;
    size_t count;
    size_t startup;          /* number of objects loaded with the program, which stay loaded */
    uint64_t loads, unloads; /* objects loaded and unloaded so far */
};

/* Call `visit` with the loaded objects, which stay loaded until it returns. `visit` must take no
 * lock, allocate nothing and not call this function. Objects at the end of the list may belong to a
 * dlopen that has not ended: not yet relocated, constructors not yet run. */
void clb_objects_visit(void (*visit)(const struct clb_objects *objects, void *argument),
                       void *argument);

/* The object that contains an address; NULL: none, for code generated at run time. */
struct clb_object *clb_object_at(const struct clb_objects *objects, const void *address);

/* True when the object has the name that a DT_NEEDED entry or dlopen asks for. */
bool clb_object_is_named(struct clb_object *object, const char *name);

/* Objects in the order in which the dynamic linker looks into them. */
struct clb_closure {
    struct clb_object **member;
    size_t count;
};

/* An object and all objects that it needs, directly or indirectly, in the order in which dlsym with
 * its handle searches them. Valid until the next call. */
struct clb_closure clb_object_closure(const struct clb_objects *objects, struct clb_object *root);

/* A function that an object exports. */
struct clb_found {
    const void *address; /* NULL: none */
    bool resolver;       /* the address is an IFUNC resolver, which returns the function */
    struct clb_object *object;
};

/* Find the default version of a name, as dlsym does, in this object alone. */
struct clb_found clb_object_find(struct clb_object *object, const char *name);

/* True when the object refers to `name` without defining it. */
bool clb_object_imports(struct clb_object *object, const char *name);

/* True when the object's references to `name` are resolved by the dynamic linker, whether or not
 * the object defines it too. */
bool clb_object_binds(struct clb_object *object, const char *name);

/* The other object to which the dynamic linker has bound a reference to `name`; NULL: none. */
struct clb_object *clb_object_bound(const struct clb_objects *objects, struct clb_object *object,
                                    const char *name);

/* True when `address` is in a function that the object exports under a name that ends with `name`.
 */
bool clb_object_runs(struct clb_object *object, const char *name, const void *address);

/* The address of the function that was found, after calling an IFUNC resolver. To be called outside
 * of clb_objects_visit. NULL: only dlsym can tell. */
const void *clb_found_address(const struct clb_found *found);

/* The first function of that name in the objects loaded with the program; NULL: none. Objects
 * loaded later may not be ready to be called. */
const void *clb_loaded_symbol(const char *name);

/* The function of that name in the objects after the shim, by dlsym; NULL: none. */
const void *clb_next_symbol(const char *name);

#endif
