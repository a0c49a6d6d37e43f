/* Names in loaded objects: what is found is what dlsym finds. */
#include "host/symbols.h"
#include "tap.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *built(const char *name)
{
    static char path[512];
    const char *build = getenv("builddir");
    snprintf(path, sizeof path, "%s/testing/unit/.libs/%s", build != NULL ? build : ".", name);
    return path;
}

/* Names of an object's functions, copied inside a visit, and what was found of each. */
enum { MAX_NAMES = 6000 };
struct names {
    const char *object; /* part of its path */
    size_t count, startup, position;
    bool is_there;
    struct clb_found found[MAX_NAMES];
    char name[MAX_NAMES][64];
};

static void list_names(const struct clb_objects *objects, void *argument)
{
    struct names *names = argument;
    for (size_t i = 0; i < objects->count; i++) {
        struct clb_object *object = &objects->object[i];
        if (strstr(object->path, names->object) == NULL)
            continue;
        names->is_there = true;
        names->position = i;
        names->startup = objects->startup;
        clb_object_find(object, "x");
        /* Symbols end where strings begin, as every linker writes them. */
        size_t count =
            (size_t)(object->strings - (const char *)object->symbols) / sizeof *object->symbols;
        for (size_t s = 1; s < count && names->count < MAX_NAMES; s++) {
            const ElfW(Sym) *symbol = &object->symbols[s];
            const char *name = object->strings + symbol->st_name;
            unsigned type = ELF64_ST_TYPE(symbol->st_info);
            if ((type != STT_FUNC && type != STT_GNU_IFUNC && symbol->st_shndx != SHN_UNDEF) ||
                strlen(name) >= sizeof names->name[0])
                continue;
            strcpy(names->name[names->count], name);
            names->found[names->count++] = clb_object_find(object, name);
        }
        return;
    }
}

/* An undefined name is none here, and may be there in what the object needs: not compared. */
static void check_library(const char *path, const char *part, bool startup)
{
    struct names *names = calloc(1, sizeof *names);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!expect(handle != NULL && names != NULL, "%s", path))
        return;
    const struct link_map *map = handle;
    names->object = part;
    clb_objects_visit(list_names, names);
    size_t functions = 0, wrong = 0, resolvers = 0;
    for (size_t i = 0; i < names->count; i++) {
        const void *found = clb_found_address(&names->found[i]),
                   *real = dlsym(handle, names->name[i]);
        Dl_info info;
        if (real != NULL && (dladdr(real, &info) == 0 || (uintptr_t)info.dli_fbase != map->l_addr))
            real = NULL;
        functions += real != NULL;
        resolvers += names->found[i].resolver;
        if (found != real && !names->found[i].resolver && wrong++ < 5)
            tap_note("%s: %p, not %p", names->name[i], found, real);
        if (names->found[i].resolver && found != real && real != NULL && wrong++ < 5)
            tap_note("%s: resolved to %p, not %p", names->name[i], found, real);
    }
    expect(names->is_there && functions > 0, "no function in %s", part);
    expect(wrong == 0, "%zu of %zu functions of %s", wrong, names->count, part);
    expect((names->position < names->startup) == startup, "%s: %zu of %zu at the start", part,
           names->position, names->startup);
    tap_note("%s: %zu functions, %zu of them resolved", part, functions, resolvers);
    free(names);
}

static void of_the_start(void *unused)
{
    (void)unused;
    check_library("libc.so.6", "libc.so", true);
}

static void of_the_tests(void *unused)
{
    (void)unused;
    check_library(built("next32.so"), "next32.so", false);
    check_library(built("next_sysv.so"), "next_sysv.so", false);
}

static void of_the_system(void *unused)
{
    static const char *const libraries[] = {"libm.so.6", "libblas.so.3", "liblapack.so.3",
                                            "libgfortran.so.5", "libstdc++.so.6"};
    (void)unused;
    for (size_t i = 0; i < CLB_COUNT_OF(libraries); i++) {
        /* Where the program needs it itself, it is of the start. */
        if (dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) == NULL &&
            dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL) != NULL)
            check_library(libraries[i], libraries[i], false);
    }
}

static void find_closure(const struct clb_objects *objects, void *argument)
{
    bool *right = argument;
    for (size_t i = 0; i < objects->count; i++) {
        struct clb_object *object = &objects->object[i];
        if (!clb_object_is_named(object, "liblapack.so.3"))
            continue;
        struct clb_closure closure = clb_object_closure(objects, object);
        bool blas = false, libc = false;
        for (size_t m = 0; m < closure.count; m++) {
            blas = blas || clb_object_find(closure.member[m], "dgemm_").address != NULL;
            libc = libc || clb_object_is_named(closure.member[m], "libc.so.6");
        }
        *right = closure.member[0] == object && blas && libc &&
                 clb_object_imports(object, "dgemm_") && clb_object_binds(object, "dgemm_") &&
                 !clb_object_imports(object, "dgetrf_") && !clb_object_binds(object, "no_such_");
    }
}

static void closures(void *unused)
{
    bool right = false;
    (void)unused;
    if (dlopen("liblapack.so.3", RTLD_NOW | RTLD_LOCAL) == NULL) {
        tap_note("no liblapack.so.3");
        return;
    }
    clb_objects_visit(find_closure, &right);
    expect(right, "liblapack.so.3 and what it needs");
}

static void find_threads(const struct clb_objects *objects, void *argument)
{
    const void **found = argument;
    *found = NULL;
    for (size_t i = 0; i < objects->count && *found == NULL; i++)
        *found = clb_object_find(&objects->object[i], "openblas_set_num_threads").address;
}

static void unloading(void *unused)
{
    const void *found;
    (void)unused;
    clb_objects_visit(find_threads, &found);
    expect(found == NULL, "found before");
    void *handle = dlopen(built("next32.so"), RTLD_NOW | RTLD_LOCAL);
    clb_objects_visit(find_threads, &found);
    expect(handle != NULL && found == dlsym(handle, "openblas_set_num_threads"), "not found");
    expect(clb_loaded_symbol("openblas_set_num_threads") == NULL, "found as of the start");
    expect(clb_loaded_symbol("fflush") == (const void *)(uintptr_t)fflush, "fflush is not found");
    dlclose(handle);
    clb_objects_visit(find_threads, &found);
    expect(found == NULL, "found in what is gone");
}

int main(void)
{
    tap_child("a library of the program's start, with versions and resolvers", 30, of_the_start,
              NULL);
    tap_child("both kinds of hash tables", 30, of_the_tests, NULL);
    tap_child("libraries of the system", 60, of_the_system, NULL);
    tap_child("what a library needs, imports and calls", 30, closures, NULL);
    tap_child("libraries that are unloaded", 30, unloading, NULL);
    return tap_done();
}
