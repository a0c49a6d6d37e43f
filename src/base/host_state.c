/* The host_state guard: the program's thread is left as it was found.
 *
 * Seen with PoCL 3.1: its worker threads inherit the creating thread's trapping floating-point
 * mode. What happens to signals meanwhile stands in signals.c. */
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

/* Signals that the hardware raises in the offending thread stay deliverable: blocking them would
 * turn the program's own handler into an unconditional kill. */
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
