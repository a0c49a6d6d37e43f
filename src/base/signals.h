/* Between host_state.c, signals.c and workers.c: signals of threads that are inside the driver. */
#ifndef CLB_GUESTS_H
#define CLB_GUESTS_H

#include <signal.h>

/* What threads inside the driver, and threads of ours, block. */
void clb_signals_list_asynchronous(sigset_t *set);

/* This thread, whose own signal mask is given, enters the driver with signals blocked. Returns what
 * clb_signals_leave wants. */
int clb_signals_enter(const sigset_t *mask);
void clb_signals_leave(int slot);

#endif
