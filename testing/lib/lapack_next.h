/* lapack_next: a next LAPACK for calls through the route layer, in both integer widths. */
#ifndef LAPACK_NEXT_H
#define LAPACK_NEXT_H

#include "shim/route/route.h"

/* Queries are not counted. */
extern _Atomic long next_getrf_calls, next_getrs_calls, next_getri_calls;

/* Called by its getrf; NULL by default. */
extern void (*next_getrf_hook)(void);

/* xTRTRI, xLAUUM and xPOTRI by sums in higher precision, each entry rounded once. */
void lapack_next_inverse(const struct clb_call *call);
extern _Atomic long next_inverse_calls;

extern const struct clb_host_blas lapack_next;

#endif
