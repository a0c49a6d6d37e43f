/* What the program must not notice of the OpenCL driver: in its threads, their signal masks and
 * floating-point environments; in the process, the signal handlers that drivers install.
 *
 * A thread that enters the driver blocks the signals that have a handler, because a handler may
 * jump out of the driver; they are delivered when it has left it. Signals at their default are not
 * blocked, so they end or stop the program at once. Threads of the shim, and those that drivers
 * make in them, block all. SIGPIPE and SIGXFSZ are always blocked: one that the driver's or our
 * own writing raises in the thread is removed. The floating-point environment is the default
 * meanwhile: the worker threads of PoCL 3.1 inherit trapping from the thread that creates them.
 *
 * Signal handlers that a driver installs are removed: LLVM replaces 15 dispositions when it first
 * compiles. Only handlers in objects that were loaded by a driver task are removed, and replaced
 * by the program's latest disposition; a handler that another thread of the program installs
 * meanwhile stays. */
#include "host.h"

#include <errno.h>
#include <fenv.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Signals are 1 to 64 on Linux. sigaction fails for those that the C library uses itself; they are
 * skipped. */
#define SIGNALS 64

static bool has_handler(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 ||
           (action->sa_handler != SIG_DFL && action->sa_handler != SIG_IGN);
}

/* All signals except those that the hardware raises in the offending thread: with these blocked,
 * the kernel would kill the process instead of calling the program's handler. */
static void list_asynchronous(sigset_t *set)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < CLB_COUNT_OF(synchronous); i++)
        sigdelset(set, synchronous[i]);
}

/* The asynchronous ones without those that would end or stop the program now. Nobody sends others,
 * the real-time signals, to a program that has no handler for them. */
static void list_deferred(sigset_t *set)
{
    static const int ending[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGALRM,  SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU,  SIGPROF, SIGVTALRM,
                                 SIGIO,   SIGXCPU, SIGPWR,  SIGSTKFLT};
    list_asynchronous(set);
    for (size_t i = 0; i < CLB_COUNT_OF(ending); i++) {
        struct sigaction now;
        if (sigaction(ending[i], NULL, &now) == 0 && !has_handler(&now))
            sigdelset(set, ending[i]);
    }
}

/* ---- dispositions that a driver has changed -------------------------------------------------- */

struct object {
    uintptr_t address;
    const ElfW(Phdr) * headers;
};

struct objects {
    size_t count, capacity;
    struct object *object;
    bool failed;
};

static struct clb_mutex lock = CLB_MUTEX_INITIALIZER; /* guards what follows */
static bool task_runs;                                /* a driver may install handlers */
static struct sigaction program[SIGNALS + 1];         /* the program's dispositions */
static bool known[SIGNALS + 1];
static struct objects programs; /* objects that were loaded when the task began */
static struct objects drivers;  /* objects that tasks have loaded */

static bool signals_contains(const struct objects *objects, const struct object *object)
{
    for (size_t i = 0; i < objects->count; i++) {
        if (objects->object[i].address == object->address &&
            objects->object[i].headers == object->headers)
            return true;
    }
    return false;
}

static void signals_add_object(struct objects *objects, const struct object *object)
{
    if (objects->count == objects->capacity) {
        size_t capacity = 2 * objects->capacity + 64;
        struct object *larger = realloc(objects->object, capacity * sizeof *larger);
        if (larger == NULL) {
            objects->failed = true;
            return;
        }
        objects->object = larger;
        objects->capacity = capacity;
    }
    objects->object[objects->count++] = *object;
}

static int note_program(struct dl_phdr_info *info, size_t size, void *unused)
{
    const struct object object = {info->dlpi_addr, info->dlpi_phdr};
    (void)size;
    (void)unused;
    if (!signals_contains(&drivers, &object))
        signals_add_object(&programs, &object);
    return 0;
}

static int note_driver(struct dl_phdr_info *info, size_t size, void *unused)
{
    const struct object object = {info->dlpi_addr, info->dlpi_phdr};
    (void)size;
    (void)unused;
    if (!signals_contains(&programs, &object) && !signals_contains(&drivers, &object))
        signals_add_object(&drivers, &object);
    return 0;
}

struct owner {
    uintptr_t address;
    bool found, is_driver;
};

static int find_owner(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct owner *owner = argument;
    const struct object object = {info->dlpi_addr, info->dlpi_phdr};
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum && !owner->found; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t begin = info->dlpi_addr + header->p_vaddr;
        owner->found = header->p_type == PT_LOAD && owner->address >= begin &&
                       owner->address < begin + header->p_memsz;
    }
    owner->is_driver = owner->found && !signals_contains(&programs, &object);
    return owner->found;
}

/* Forks wait meanwhile: in a child forked now the linker's lock would stay held for ever. */
static void iterate_objects(int (*callback)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    clb_load_begin();
    dl_iterate_phdr(callback, argument);
    clb_load_end();
}

/* True for a handler of a driver. One outside of all objects counts as the program's: a
 * just-in-time compiler has made it. */
static bool signals_is_drivers(const struct sigaction *action)
{
    struct owner owner = {.address = (action->sa_flags & SA_SIGINFO) != 0
                                         ? (uintptr_t)action->sa_sigaction
                                         : (uintptr_t)action->sa_handler};
    if (!has_handler(action) || programs.failed)
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
    if (sigaction(number, &program[number], &replaced) != 0 || signals_is_drivers(&replaced))
        return;
    program[number] = replaced;
    sigaction(number, &replaced, NULL);
}

static void look_at_dispositions(void)
{
    for (int number = 1; number <= SIGNALS; number++) {
        struct sigaction now;
        if (!known[number] || sigaction(number, NULL, &now) != 0 || is_same(&now, &program[number]))
            continue;
        if (signals_is_drivers(&now))
            put_back(number);
        else
            program[number] = now;
    }
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
    iterate_objects(note_program, NULL);
    for (int number = 1; number <= SIGNALS; number++)
        known[number] = sigaction(number, NULL, &program[number]) == 0;
    task_runs = true;
    clb_unlock(&lock);
}

void clb_signals_look(void)
{
    bool in_new_child;
    if (!clb_lock_try(&lock, &in_new_child))
        return;
    task_runs = task_runs && !in_new_child;
    if (task_runs)
        look_at_dispositions();
    clb_unlock(&lock);
}

void clb_signals_end_task(void)
{
    if (no_program)
        return;
    clb_lock(&lock);
    task_runs = false;
    iterate_objects(note_driver, NULL);
    look_at_dispositions();
    clb_unlock(&lock);
}

/* ---- threads --------------------------------------------------------------------------------- */

clb_status clb_thread_start(size_t stack, void *(*run)(void *), void *argument)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t block, before;
    fenv_t environment;
    if (pthread_attr_init(&attributes) != 0)
        return CLB_ERR_NOMEM;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack);
    list_asynchronous(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV);
    int error = pthread_create(&thread, &attributes, run, argument);
    fesetenv(&environment);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error == 0 ? CLB_OK : CLB_ERR_NOMEM;
}

/* ---- threads inside the driver --------------------------------------------------------------- */

static atomic_int inside;     /* of all threads */
static CLB_THREAD int within; /* of this one */

void clb_inside_add(int change)
{
    within += change;
    atomic_fetch_add(&inside, change);
}

bool clb_inside_others(void)
{
    return atomic_load(&inside) > within;
}

struct saved_thread {
    sigset_t mask, pending;
    fenv_t environment;
    int cancel_state;
    int error;
};

_Static_assert(sizeof(struct saved_thread) <= sizeof(struct clb_host_state),
               "struct clb_host_state is too small for this platform");

/* Signals that writing raises in the thread that writes. */
static const int raised_by_writing[] = {SIGPIPE, SIGXFSZ};

void clb_host_state_save(struct clb_host_state *host_state)
{
    struct saved_thread saved;
    sigset_t block;
    memset(&saved, 0, sizeof saved);
    saved.error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved.cancel_state);
    list_deferred(&block);
    pthread_sigmask(SIG_BLOCK, &block, &saved.mask);
    sigpending(&saved.pending);
    clb_inside_add(1);
    fegetenv(&saved.environment);
    fesetenv(FE_DFL_ENV);
    memcpy(host_state->storage, &saved, sizeof saved);
}

/* One that is pending now and was not before. */
static void remove_raised(const sigset_t *before)
{
    sigset_t now, one;
    if (sigpending(&now) != 0)
        return;
    for (size_t i = 0; i < CLB_COUNT_OF(raised_by_writing); i++) {
        const int number = raised_by_writing[i];
        if (sigismember(&now, number) != 1 || sigismember(before, number) != 0)
            continue;
        sigemptyset(&one);
        sigaddset(&one, number);
        while (sigtimedwait(&one, NULL, &(struct timespec){0}) < 0 && errno == EINTR)
            ;
    }
}

void clb_host_state_restore(const struct clb_host_state *host_state)
{
    struct saved_thread saved;
    memcpy(&saved, host_state->storage, sizeof saved);
    fesetenv(&saved.environment);
    clb_inside_add(-1);
    remove_raised(&saved.pending);
    pthread_sigmask(SIG_SETMASK, &saved.mask, NULL);
    pthread_setcancelstate(saved.cancel_state, NULL);
    errno = saved.error;
}
