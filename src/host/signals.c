/* Signal handlers that a driver installs are removed: LLVM replaces 15 dispositions when it first
 * writes a file. Only handlers in objects that were loaded by a driver task are removed, and
 * replaced by the program's latest disposition; a handler that another thread of the program
 * installs meanwhile stays. SPDX-License-Identifier: BSD-3-Clause */
#include "process.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* Signals are 1 to 64 on Linux. sigaction fails for the C library's own, which are skipped. */
#define SIGNALS 64

/* Loaded objects, by their program headers. */
struct objects {
    size_t count, capacity;
    const void **headers;
    bool failed;
};

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards what follows */
static bool task_runs;                                /* a driver may install handlers */
static struct sigaction program[SIGNALS + 1];         /* the program's dispositions */
static bool known[SIGNALS + 1];
static struct objects programs; /* objects that were loaded when the task began */
static struct objects drivers;  /* objects that tasks have loaded */
static const char *llvm[4];     /* those of them that are to install their handlers */
static size_t llvm_count;

static bool contains(const struct objects *objects, const void *headers)
{
    size_t i = 0;
    while (i < objects->count && objects->headers[i] != headers)
        i++;
    return i < objects->count;
}

/* Adds an object that is in neither list to `list`. */
static int note_object(struct dl_phdr_info *info, size_t size, void *list)
{
    struct objects *objects = list;
    (void)size;
    if (contains(&programs, info->dlpi_phdr) || contains(&drivers, info->dlpi_phdr))
        return 0;
    if (objects->count == objects->capacity) {
        size_t capacity = 2 * objects->capacity + 64;
        const void **larger = realloc(objects->headers, capacity * sizeof *larger);
        if (larger == NULL) {
            objects->failed = true;
            return 0;
        }
        objects->headers = larger;
        objects->capacity = capacity;
    }
    objects->headers[objects->count++] = info->dlpi_phdr;
    if (objects == &drivers && strstr(info->dlpi_name, "/libLLVM") != NULL &&
        llvm_count < CLB_COUNT_OF(llvm))
        llvm[llvm_count++] = info->dlpi_name;
    return 0;
}

struct owner {
    uintptr_t address;
    bool found, is_driver;
};

static int find_owner(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct owner *owner = argument;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum && !owner->found; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr;
        owner->found = header->p_type == PT_LOAD && owner->address >= begin &&
                       owner->address < begin + header->p_memsz;
    }
    owner->is_driver = owner->found && !contains(&programs, info->dlpi_phdr);
    return owner->found;
}

/* Forks wait meanwhile: in a child forked now the linker's lock would stay held for ever. */
static void iterate_objects(int (*callback)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    clb_load_begin();
    dl_iterate_phdr(callback, argument);
    clb_load_end();
}

/* True for a driver's handler. One outside of all objects, from a just-in-time compiler, is not. */
static bool is_drivers(const struct sigaction *action)
{
    struct owner owner = {.address = (action->sa_flags & SA_SIGINFO) != 0
                                         ? (uintptr_t)action->sa_sigaction
                                         : (uintptr_t)action->sa_handler};
    if (!clb_signal_has_handler(action) || programs.failed)
        return false;
    iterate_objects(find_owner, &owner);
    return owner.is_driver;
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    /* sigaction sets only 64 signals of the mask, the rest of sa_mask is undefined. */
    return a->sa_flags == b->sa_flags && a->sa_handler == b->sa_handler &&
           memcmp(&a->sa_mask, &b->sa_mask, SIGNALS / 8) == 0;
}

/* Replace the driver's handler by the program's. When the program has installed another handler
 * since the driver's one was seen, that one is kept. */
static void put_back(int number)
{
    struct sigaction replaced;
    if (sigaction(number, &program[number], &replaced) != 0 || is_drivers(&replaced))
        return;
    program[number] = replaced;
    sigaction(number, &replaced, NULL);
}

/* Returns how many of the driver's handlers there were. */
static int look_at_dispositions(void)
{
    int count = 0;
    for (int number = 1; number <= SIGNALS; number++) {
        struct sigaction now;
        if (!known[number] || sigaction(number, NULL, &now) != 0 || is_same(&now, &program[number]))
            continue;
        if (is_drivers(&now)) {
            put_back(number);
            count++;
        } else {
            program[number] = now;
        }
    }
    return count;
}

/* In PoCL a signal that LLVM's handler takes, until it is seen a millisecond later, deletes the
 * file that is being written, and the kernel does not compile. LLVM installs its handlers once, and
 * again when one of them has run: so it does that here, before it writes a file, until none has
 * run. */
static void have_llvm_install(const char *name)
{
    void *library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL)
        return;
    /* llvm::sys::SetInterruptFunction: NULL, as it is, which installs the handlers. */
    void (*install)(void (*)(void)) =
        (void (*)(void (*)(void)))dlsym(library, "_ZN4llvm3sys20SetInterruptFunctionEPFvvE");
    for (int i = 0, now = 0, before = 0; i < 10 && install != NULL; i++, before = now) {
        look_at_dispositions();
        install(NULL);
        now = look_at_dispositions();
        if (before > 0 && now == 0)
            break;
    }
    dlclose(library);
}

static bool no_program;

void clb_signals_have_no_program(void)
{
    no_program = true;
}

void clb_signals_begin_task(void)
{
    if (no_program)
        return;
    clb_lock(&lock);
    programs.count = 0;
    programs.failed = false;
    iterate_objects(note_object, &programs);
    for (int number = 1; number <= SIGNALS; number++)
        known[number] = sigaction(number, NULL, &program[number]) == 0;
    task_runs = true;
    clb_unlock(&lock);
}

bool clb_signals_look(void)
{
    bool in_new_child;
    if (!clb_lock_try(&lock, &in_new_child))
        return true;
    task_runs = task_runs && !in_new_child;
    const bool look = task_runs;
    if (look)
        look_at_dispositions();
    clb_unlock(&lock);
    return look;
}

void clb_signals_end_task(void)
{
    if (no_program)
        return;
    clb_lock(&lock);
    task_runs = false;
    iterate_objects(note_object, &drivers);
    clb_load_begin();
    while (llvm_count > 0 && !programs.failed)
        have_llvm_install(llvm[--llvm_count]);
    clb_load_end();
    look_at_dispositions();
    clb_unlock(&lock);
}
