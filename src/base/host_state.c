/* The host_state guard: saves the state of the program's thread before the OpenCL driver is entered
 * and restores it afterwards.
 *
 * The floating-point environment must be the default meanwhile: the worker threads of PoCL 3.1
 * inherit trapping from the thread that creates them. signals.c handles signals that arrive
 * meanwhile. */
#include "base.h"
#include "signals.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

struct saved_thread {
    sigset_t mask;
    fenv_t environment;
    int cancel_state;
    int error;
    int slot;
};

_Static_assert(sizeof(struct saved_thread) <= sizeof(struct clb_host_state),
               "struct clb_host_state is too small for this platform");

/* All signals except those that the hardware raises in the offending thread: with these blocked,
 * the kernel would kill the process instead of calling the program's handler. */
void clb_signals_list_asynchronous(sigset_t *set)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    sigfillset(set);
    for (size_t i = 0; i < CLB_COUNT_OF(synchronous); i++)
        sigdelset(set, synchronous[i]);
}

void clb_host_state_save(struct clb_host_state *host_state)
{
    struct saved_thread saved;
    memset(&saved, 0, sizeof saved);
    saved.error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &saved.cancel_state);
    sigset_t block;
    clb_signals_list_asynchronous(&block);
    pthread_sigmask(SIG_BLOCK, &block, &saved.mask);
    saved.slot = clb_signals_enter(&saved.mask);
    fegetenv(&saved.environment);
    fesetenv(FE_DFL_ENV);
    memcpy(host_state->storage, &saved, sizeof saved);
}

void clb_host_state_restore(const struct clb_host_state *host_state)
{
    struct saved_thread saved;
    memcpy(&saved, host_state->storage, sizeof saved);
    fesetenv(&saved.environment);
    clb_signals_leave(saved.slot);
    pthread_sigmask(SIG_SETMASK, &saved.mask, NULL);
    pthread_setcancelstate(saved.cancel_state, NULL);
    errno = saved.error;
}
