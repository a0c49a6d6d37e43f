/* The guest guard: the host program's thread and process are left as they were found.
 *
 * Seen with PoCL 3.1: its start replaces 15 signal handlers, SIGUSR1 and SIGFPE among them, and its
 * worker threads inherit the creating thread's trapping floating-point mode. */
#include "base.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct saved_thread {
    sigset_t mask;
    fenv_t environment;
    int cancel_state;
    int error;
};

_Static_assert(sizeof(struct saved_thread) <= sizeof(struct clb_guest),
               "struct clb_guest is too small for this platform");

/* Signals that the hardware raises in the offending thread stay deliverable: blocking them would
 * turn the program's own handler into an unconditional kill. */
static void asynchronous_signals(sigset_t *set)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < CLB_COUNT_OF(synchronous); i++)
        sigdelset(set, synchronous[i]);
}

void clb_guest_enter(struct clb_guest *guest)
{
    struct saved_thread saved;
    memset(&saved, 0, sizeof saved);
    saved.error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved.cancel_state);
    sigset_t block;
    asynchronous_signals(&block);
    pthread_sigmask(SIG_BLOCK, &block, &saved.mask);
    fegetenv(&saved.environment);
    fesetenv(FE_DFL_ENV);
    memcpy(guest->storage, &saved, sizeof saved);
}

void clb_guest_leave(const struct clb_guest *guest)
{
    struct saved_thread saved;
    memcpy(&saved, guest->storage, sizeof saved);
    fesetenv(&saved.environment);
    pthread_sigmask(SIG_SETMASK, &saved.mask, NULL);
    pthread_setcancelstate(saved.cancel_state, NULL);
    errno = saved.error;
}

/* Signals 1 to 64 on Linux; numbers that the C library keeps for itself fail in sigaction and are
 * skipped. */
#define SIGNALS 64

struct clb_dispositions {
    struct sigaction action[SIGNALS + 1];
    bool known[SIGNALS + 1];
    stack_t stack; /* the thread's alternate stack, which LLVM replaces by a larger one */
    bool stack_known;
};

static bool same_action(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_flags == b->sa_flags &&
           ((a->sa_flags & SA_SIGINFO) != 0 ? a->sa_sigaction == b->sa_sigaction
                                            : a->sa_handler == b->sa_handler);
}

struct clb_dispositions *clb_dispositions_save(void)
{
    struct clb_dispositions *saved = calloc(1, sizeof *saved);
    for (int i = 1; saved != NULL && i <= SIGNALS; i++)
        saved->known[i] = sigaction(i, NULL, &saved->action[i]) == 0;
    if (saved != NULL)
        saved->stack_known = sigaltstack(NULL, &saved->stack) == 0;
    return saved;
}

void clb_dispositions_restore(struct clb_dispositions *saved)
{
    for (int i = 1; saved != NULL && i <= SIGNALS; i++) {
        struct sigaction now;
        if (saved->known[i] && sigaction(i, NULL, &now) == 0 &&
            !same_action(&now, &saved->action[i]))
            sigaction(i, &saved->action[i], NULL);
    }
    stack_t now;
    if (saved != NULL && saved->stack_known && sigaltstack(NULL, &now) == 0 &&
        (now.ss_sp != saved->stack.ss_sp || now.ss_size != saved->stack.ss_size))
        sigaltstack(&saved->stack, NULL);
    free(saved);
}
