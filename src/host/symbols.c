/* Lists the objects that the dynamic linker has loaded and reads their symbol tables.
 *
 * The list is kept between visits and read anew after an object was loaded or unloaded. All static
 * data is guarded by the lock that dl_iterate_phdr holds while it calls back: a visit runs inside
 * such a callback, so no object can be unmapped meanwhile.
 *
 * Source: System V ABI, dynamic linking; the GNU hash table as the GNU linker writes it. */
#include "host/symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

/* ThreadSanitizer does not see the dynamic linker's lock. */
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#define LOCK_SEEN   __tsan_acquire(&list)
#define UNLOCK_SEEN __tsan_release(&list)
#else
#define LOCK_SEEN   (void)0
#define UNLOCK_SEEN (void)0
#endif

/* ---- the list -------------------------------------------------------------------------------- */

/* Room for so many objects needs no allocation; when one fails, only these are listed. */
#define FIRST_OBJECTS 64

static struct clb_object first_objects[FIRST_OBJECTS];
static struct clb_object *first_closure[FIRST_OBJECTS];

static struct clb_objects list;
static struct clb_object *storage = first_objects;
static struct clb_object **closure = first_closure;
static size_t capacity = FIRST_OBJECTS;
static bool is_valid; /* the list was read when these two counts held */
static uint64_t loads, unloads;
static size_t startup; /* 0: not yet known */

static void *map_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static bool grow(void)
{
    size_t larger = 4 * capacity;
    struct clb_object *objects = map_memory(larger * sizeof *objects);
    struct clb_object **members = map_memory(larger * sizeof *members);
    if (objects == NULL || members == NULL) {
        if (objects != NULL)
            munmap(objects, larger * sizeof *objects);
        if (members != NULL)
            munmap(members, larger * sizeof *members);
        return false;
    }
    memcpy(objects, storage, list.count * sizeof *objects);
    if (storage != first_objects) {
        munmap(storage, capacity * sizeof *storage);
        munmap(closure, capacity * sizeof *closure);
    }
    storage = objects;
    closure = members;
    capacity = larger;
    return true;
}

static int symbols_add_object(struct dl_phdr_info *info, size_t size, void *unused)
{
    struct clb_object object = {
        .base = info->dlpi_addr, .begin = UINTPTR_MAX, .path = info->dlpi_name};
    (void)size, (void)unused;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr, end = begin + header->p_memsz;
        if (header->p_type == PT_DYNAMIC)
            memcpy(&object.dynamic, &begin, sizeof begin);
        if (header->p_type != PT_LOAD)
            continue;
        object.begin = begin < object.begin ? begin : object.begin;
        object.end = end > object.end ? end : object.end;
    }
    if (list.count == capacity && !grow())
        return 1;
    storage[list.count++] = object;
    return 0;
}

/* ---- an object's tables ---------------------------------------------------------------------- */

static uint32_t gnu_hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++)
        hash = hash * 33 + *c;
    return hash;
}

static uint32_t hash_of(const char *name)
{
    uint32_t hash = 0;
    for (const unsigned char *c = (const unsigned char *)name; *c != '\0'; c++) {
        hash = (hash << 4) + *c;
        hash ^= (hash >> 24) & 0xf0;
        hash &= 0x0fffffff;
    }
    return hash;
}

static const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The address for a value in the dynamic section: the dynamic linker has made most of them
 * absolute, but not in read-only sections. NULL when it is outside of the object. */
static const void *symbols_at(const struct clb_object *object, uintptr_t value)
{
    const void *address;
    if (value < object->begin || value >= object->end)
        value += object->base;
    memcpy(&address, &value, sizeof address);
    return value >= object->begin && value < object->end ? address : NULL;
}

static void parse(struct clb_object *object)
{
    if (object->parsed)
        return;
    object->parsed = true;
    const ElfW(Dyn) *soname = NULL;
    size_t plt_entry = sizeof(ElfW(Rela));
    for (const ElfW(Dyn) *d = object->dynamic; d != NULL && d->d_tag != DT_NULL; d++) {
        switch (d->d_tag) {
        case DT_STRTAB:
            object->strings = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_SYMTAB:
            object->symbols = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_VERSYM:
            object->versions = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_GNU_HASH:
            object->gnu_hash = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_HASH:
            object->hash = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_SONAME:
            soname = d;
            break;
        case DT_JMPREL:
            object->relocations[0].begin = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            object->relocations[0].bytes = d->d_un.d_val;
            break;
        case DT_PLTREL:
            plt_entry = d->d_un.d_val == DT_REL ? sizeof(ElfW(Rel)) : sizeof(ElfW(Rela));
            break;
        case DT_RELA:
            object->relocations[1].begin = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_RELASZ:
            object->relocations[1].bytes = d->d_un.d_val;
            break;
        case DT_REL:
            object->relocations[2].begin = symbols_at(object, d->d_un.d_ptr);
            break;
        case DT_RELSZ:
            object->relocations[2].bytes = d->d_un.d_val;
            break;
        default:
            break;
        }
    }
    object->relocations[0].size = plt_entry;
    object->relocations[1].size = sizeof(ElfW(Rela));
    object->relocations[2].size = sizeof(ElfW(Rel));
    if (object->strings == NULL || object->symbols == NULL) {
        object->dynamic = NULL;
        object->gnu_hash = object->hash = NULL;
        object->relocations[0].begin = object->relocations[1].begin = NULL;
        object->relocations[2].begin = NULL;
    } else if (soname != NULL) {
        object->soname = object->strings + soname->d_un.d_val;
        object->name_hash[0] = gnu_hash_of(object->soname);
    }
    object->name_hash[1] = gnu_hash_of(file_name(object->path));
}

bool clb_object_is_named(struct clb_object *object, const char *name)
{
    parse(object);
    if (strchr(name, '/') != NULL)
        return strcmp(object->path, name) == 0;
    uint32_t hash = gnu_hash_of(name);
    return (hash == object->name_hash[0] && object->soname != NULL &&
            strcmp(object->soname, name) == 0) ||
           (hash == object->name_hash[1] && strcmp(file_name(object->path), name) == 0);
}

/* The object that a DT_NEEDED entry refers to: the first one of that name, since a second one can
 * only be loaded by its path. NULL: only the dynamic linker knows it by that name. */
static struct clb_object *needed(const struct clb_objects *objects, const char *name)
{
    for (size_t i = 0; i < objects->count; i++) {
        if (clb_object_is_named(&objects->object[i], name))
            return &objects->object[i];
    }
    return NULL;
}

/* ---- visits ---------------------------------------------------------------------------------- */

/* The number of objects loaded with the program. They are the first of the list: the executable,
 * preloaded libraries, and all that these need, directly or indirectly. The last one that any of
 * them needs is searched for; all before it belong to them, also preloaded libraries, which come
 * between the executable and the libraries that it needs. */
static size_t count_startup(const struct clb_objects *objects)
{
    size_t last = 0;
    for (size_t i = 0; i <= last && i < objects->count; i++) {
        struct clb_object *object = &objects->object[i];
        parse(object);
        for (const ElfW(Dyn) *d = object->dynamic; d != NULL && d->d_tag != DT_NULL; d++) {
            if (d->d_tag != DT_NEEDED)
                continue;
            const struct clb_object *next = needed(objects, object->strings + d->d_un.d_val);
            if (next != NULL)
                last = clb_max(last, (size_t)(next - objects->object));
        }
    }
    return clb_min(last + 1, objects->count);
}

struct visit {
    void (*visit)(const struct clb_objects *objects, void *argument);
    void *argument;
};

/* Called by dl_iterate_phdr for the first object, the executable. The lock is held until this
 * returns. */
static int begin_visit(struct dl_phdr_info *info, size_t size, void *argument)
{
    const struct visit *visit = argument;
    LOCK_SEEN;
    if (!is_valid || loads != info->dlpi_adds || unloads != info->dlpi_subs) {
        is_valid = false;
        list.count = 0;
        dl_iterate_phdr(symbols_add_object, NULL);
        loads = info->dlpi_adds;
        unloads = info->dlpi_subs;
        is_valid = true;
    }
    (void)size;
    list.object = storage;
    if (startup == 0)
        startup = count_startup(&list);
    list.startup = startup;
    list.loads = loads;
    list.unloads = unloads;
    visit->visit(&list, visit->argument);
    UNLOCK_SEEN;
    return 1;
}

void clb_objects_visit(void (*visit)(const struct clb_objects *objects, void *argument),
                       void *argument)
{
    struct visit both = {visit, argument};
    sigset_t all, before;
    /* Forks wait, because in a child forked now the lock would stay held for ever. Signals are
     * blocked, because a handler that calls BLAS would see an incomplete list. */
    sigfillset(&all);
    clb_load_begin();
    pthread_sigmask(SIG_SETMASK, &all, &before);
    dl_iterate_phdr(begin_visit, &both);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    clb_load_end();
}

struct clb_object *clb_object_at(const struct clb_objects *objects, const void *address)
{
    uintptr_t place = (uintptr_t)address;
    for (size_t i = 0; i < objects->count; i++) {
        if (place >= objects->object[i].begin && place < objects->object[i].end)
            return &objects->object[i];
    }
    return NULL;
}

struct clb_closure clb_object_closure(const struct clb_objects *objects, struct clb_object *root)
{
    size_t count = 0;
    for (size_t i = 0; i < objects->count; i++)
        objects->object[i].listed = false;
    closure[count++] = root;
    root->listed = true;
    for (size_t i = 0; i < count; i++) {
        parse(closure[i]);
        for (const ElfW(Dyn) *d = closure[i]->dynamic; d != NULL && d->d_tag != DT_NULL; d++) {
            struct clb_object *next =
                d->d_tag == DT_NEEDED ? needed(objects, closure[i]->strings + d->d_un.d_val) : NULL;
            if (next != NULL && !next->listed) {
                next->listed = true;
                closure[count++] = next;
            }
        }
    }
    return (struct clb_closure){closure, count};
}

/* ---- symbols --------------------------------------------------------------------------------- */

/* The bit of a version number that marks symbols of other than the default version. */
#define VERSION_IS_HIDDEN 0x8000

static bool is_function(const struct clb_object *object, size_t index)
{
    const ElfW(Sym) *symbol = &object->symbols[index];
    unsigned type = ELF64_ST_TYPE(symbol->st_info), binding = ELF64_ST_BIND(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && symbol->st_value != 0 &&
           (type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE) &&
           (binding == STB_GLOBAL || binding == STB_WEAK || binding == STB_GNU_UNIQUE) &&
           (object->versions == NULL || (object->versions[index] & VERSION_IS_HIDDEN) == 0);
}

static const char *symbols_name_of(const struct clb_object *object, size_t index)
{
    return object->strings + object->symbols[index].st_name;
}

/* The index of a function's symbol; 0: none. */
static size_t find_by_gnu_hash(const struct clb_object *object, const char *name)
{
    const uint32_t *header = object->gnu_hash, hash = gnu_hash_of(name);
    const uint32_t buckets = header[0], first = header[1], words = header[2], shift = header[3];
    const unsigned bits = 8 * sizeof(ElfW(Addr));
    const ElfW(Addr) *filter = (const void *)(header + 4);
    const uint32_t *bucket = (const void *)(filter + words), *chain = bucket + buckets;
    if (buckets == 0 || words == 0)
        return 0;
    ElfW(Addr) word = filter[hash / bits % words];
    if ((word >> (hash % bits) & word >> ((hash >> shift) % bits) & 1) == 0)
        return 0;
    for (size_t i = bucket[hash % buckets]; i >= first && i != 0; i++) {
        uint32_t other = chain[i - first];
        if ((other | 1) == (hash | 1) && strcmp(symbols_name_of(object, i), name) == 0 &&
            is_function(object, i))
            return i;
        if ((other & 1) != 0)
            break;
    }
    return 0;
}

static size_t find_by_hash(const struct clb_object *object, const char *name)
{
    const uint32_t *header = object->hash, *bucket = header + 2, *chain = bucket + header[0];
    if (header[0] == 0)
        return 0;
    for (size_t i = bucket[hash_of(name) % header[0]]; i != 0; i = chain[i]) {
        if (strcmp(symbols_name_of(object, i), name) == 0 && is_function(object, i))
            return i;
    }
    return 0;
}

struct clb_found clb_object_find(struct clb_object *object, const char *name)
{
    struct clb_found found = {.object = object};
    parse(object);
    size_t index = object->gnu_hash != NULL ? find_by_gnu_hash(object, name)
                   : object->hash != NULL   ? find_by_hash(object, name)
                                            : 0;
    if (index != 0) {
        const ElfW(Sym) *symbol = &object->symbols[index];
        uintptr_t address =
            symbol->st_shndx == SHN_ABS ? symbol->st_value : object->base + symbol->st_value;
        memcpy(&found.address, &address, sizeof address);
        found.resolver = ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC;
    }
    return found;
}

/* The number of symbols. The GNU hash table lists the exported ones, which are the last. */
static size_t count_symbols(const struct clb_object *object)
{
    if (object->hash != NULL)
        return object->hash[1];
    if (object->gnu_hash == NULL)
        return 0;
    const uint32_t *header = object->gnu_hash;
    const uint32_t buckets = header[0], first = header[1], words = header[2];
    const ElfW(Addr) *filter = (const void *)(header + 4);
    const uint32_t *bucket = (const void *)(filter + words), *chain = bucket + buckets;
    size_t last = 0;
    for (size_t i = 0; i < buckets; i++)
        last = clb_max(last, bucket[i]);
    if (last < first || last == 0)
        return first;
    while ((chain[last - first] & 1) == 0)
        last++;
    return last + 1;
}

bool clb_object_imports(struct clb_object *object, const char *name)
{
    parse(object);
    size_t count = count_symbols(object);
    for (size_t i = 1; i < count; i++) {
        if (object->symbols[i].st_shndx == SHN_UNDEF &&
            strcmp(symbols_name_of(object, i), name) == 0)
            return true;
    }
    return false;
}

/* The next relocation for `name` after *next, which starts at zero; false: there is none. */
struct position {
    size_t table, offset;
};

static bool next_relocation(struct clb_object *object, const char *name, struct position *next,
                            ElfW(Rel) * entry)
{
    for (; next->table < CLB_COUNT_OF(object->relocations); next->table++, next->offset = 0) {
        const struct clb_relocations *table = &object->relocations[next->table];
        while (table->begin != NULL && next->offset + table->size <= table->bytes) {
            /* the beginning of an entry with an addend */
            memcpy(entry, table->begin + next->offset, sizeof *entry);
            next->offset += table->size;
            size_t index = sizeof(void *) == 8 ? (size_t)(ELF64_R_SYM((uint64_t)entry->r_info))
                                               : (size_t)ELF32_R_SYM(entry->r_info);
            if (index != 0 && strcmp(symbols_name_of(object, index), name) == 0)
                return true;
        }
    }
    return false;
}

bool clb_object_binds(struct clb_object *object, const char *name)
{
    ElfW(Rel) entry;
    parse(object);
    return next_relocation(object, name, &(struct position){0}, &entry);
}

struct clb_object *clb_object_bound(const struct clb_objects *objects, struct clb_object *object,
                                    const char *name)
{
    struct position next = {0};
    ElfW(Rel) entry;
    parse(object);
    while (next_relocation(object, name, &next, &entry)) {
        const void *address;
        memcpy(&address, (const char *)object->base + entry.r_offset, sizeof address);
        struct clb_object *found = clb_object_at(objects, address);
        if (found != NULL && found != object) /* a call that is not yet bound stays in the object */
            return found;
    }
    return NULL;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && memcmp(text + length - wanted, end, wanted) == 0;
}

bool clb_object_runs(struct clb_object *object, const char *name, const void *address)
{
    parse(object);
    const uintptr_t offset = (uintptr_t)address - object->base;
    const size_t count = count_symbols(object);
    for (size_t i = 1; i < count; i++) {
        const ElfW(Sym) *symbol = &object->symbols[i];
        /* `address` may be one past the function, when its last instruction is the call. */
        if (symbol->st_shndx != SHN_UNDEF && offset > symbol->st_value &&
            offset <= symbol->st_value + symbol->st_size &&
            ends_with(symbols_name_of(object, i), name))
            return true;
    }
    return false;
}

const void *clb_found_address(const struct clb_found *found)
{
    if (!found->resolver || found->address == NULL)
        return found->address;
#if defined __x86_64__ || defined __i386__
    const void *(*resolve)(void);
    memcpy(&resolve, &found->address, sizeof resolve);
    return resolve();
#else
    return NULL; /* only the dynamic linker knows the resolver's arguments */
#endif
}

struct symbols_wanted {
    const char *name;
    struct clb_found found;
};

static void find_in_startup(const struct clb_objects *objects, void *argument)
{
    struct symbols_wanted *wanted = argument;
    for (size_t i = 0; i < objects->startup && wanted->found.address == NULL; i++)
        wanted->found = clb_object_find(&objects->object[i], wanted->name);
}

const void *clb_loaded_symbol(const char *name)
{
    struct symbols_wanted wanted = {.name = name};
    clb_objects_visit(find_in_startup, &wanted);
    return clb_found_address(&wanted.found);
}

const void *clb_next_symbol(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}
