/* signals.h: signals of threads inside the driver; for host_state.c, signals.c and workers.c. */
#ifndef CLB_SIGNALS_H
#define CLB_SIGNALS_H

#include <signal.h>

/* The signals that threads inside the driver and the shim's own threads block. */
void clb_signals_list_asynchronous(sigset_t *set);

/* Register the calling thread, which has blocked the signals above and enters the driver; `mask` is
 * its own signal mask. Returns the slot for clb_signals_leave. */
int clb_signals_enter(const sigset_t *mask);
void clb_signals_leave(int slot);

#endif
