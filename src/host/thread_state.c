/* What the program must not notice of the OpenCL driver in its threads. (signals.c: the handlers
 * that drivers install.)
 *
 * A thread that enters the driver blocks the signals that have a handler, because a handler may
 * jump out of the driver. Signals at their default are not blocked, so they end or stop the program
 * at once; but they are while a call is decided about, which is short, and in a product on a device
 * that shares memory until that has its first commands: to ask for their handlers takes longer.
 * Threads of the shim, and those that drivers make in them, block all. SIGPIPE and SIGXFSZ are
 * always blocked: one that the driver's or our own writing raises is removed. The floating-point
 * environment is the default meanwhile: worker threads of PoCL 3.1 inherit trapping from the thread
 * that creates them. SPDX-License-Identifier: BSD-3-Clause */
#include "host.h"

#include <errno.h>

bool clb_signal_has_handler(const struct sigaction *action)
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

/* Leaves out those that would end or stop the program now. Nobody sends others, the real-time
 * signals, to a program that has no handler for them. */
static void leave_out_defaults(sigset_t *set)
{
    static const int ending[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGALRM,  SIGTERM, SIGUSR1,
                                 SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU,  SIGPROF, SIGVTALRM,
                                 SIGIO,   SIGXCPU, SIGPWR,  SIGSTKFLT};
    for (size_t i = 0; i < CLB_COUNT_OF(ending); i++) {
        struct sigaction now;
        if (sigaction(ending[i], NULL, &now) == 0 && !clb_signal_has_handler(&now))
            sigdelset(set, ending[i]);
    }
}

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

/* A signal of the program's that is sent just now is pending too; nobody sends these. */
void clb_signals_remove_raised(const sigset_t *before)
{
    static const int raised_by_writing[] = {SIGPIPE, SIGXFSZ};
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

/* The state of a thread that blocks signals at their default, too. */
static CLB_THREAD const struct clb_thread_state *all_blocked;

void clb_signals_let_through(void)
{
    sigset_t block;
    if (all_blocked == NULL)
        return;
    list_asynchronous(&block);
    leave_out_defaults(&block);
    sigorset(&block, &block, &all_blocked->mask);
    all_blocked = NULL;
    pthread_sigmask(SIG_SETMASK, &block, NULL);
}

void clb_thread_state_save(struct clb_thread_state *state, bool lets_through)
{
    sigset_t block;
    state->error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state->cancel_state);
    list_asynchronous(&block);
    if (lets_through)
        leave_out_defaults(&block);
    pthread_sigmask(SIG_BLOCK, &block, &state->mask);
    all_blocked = lets_through ? NULL : state;
    sigemptyset(&state->pending); /* only what was blocked can have been pending */
    if (sigismember(&state->mask, SIGPIPE) == 1 || sigismember(&state->mask, SIGXFSZ) == 1)
        sigpending(&state->pending);
    clb_inside_add(1);
    fegetenv(&state->environment);
    fesetenv(FE_DFL_ENV);
}

void clb_thread_state_restore(const struct clb_thread_state *state)
{
    fesetenv(&state->environment);
    clb_inside_add(-1);
    clb_signals_remove_raised(&state->pending);
    if (all_blocked == state)
        all_blocked = NULL;
    pthread_sigmask(SIG_SETMASK, &state->mask, NULL);
    pthread_setcancelstate(state->cancel_state, NULL);
    errno = state->error;
}
