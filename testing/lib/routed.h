/* routed: GEMM calls through the route layer with a fake next library, and the report on them. */
#ifndef ROUTED_H
#define ROUTED_H

#include "matrix.h"
#include "route/route.h"

/* What the fake next library was asked for in this process. */
extern long next_calls;     /* whole or part of a problem */
extern size_t next_entries; /* entries of C that it computed */

/* Called by the fake next library before it computes; NULL by default. */
extern void (*next_hook)(void);

/* sgemm_ or dgemm_, as the interface would: computed on the device or by the fake next library.
 * True when the route layer took the call. */
bool routed_gemm(const struct gemm_case *g);

/* A random case: sizes in [1, largest], all transposes, alpha and beta often 0, 1 or -1. */
void routed_random(struct gemm_case *g, clb_precision precision, size_t largest, uint64_t *seed);

/* A number of the JSON report so far, e.g. ("dgemm_", "calls") or ("dgemm_", "small"); 0 when it is
 * not there. */
double reported(const char *symbol, const char *key);

/* calls = device + next + recovered, and the reasons add up to next, for a symbol. */
void expect_sums(const char *symbol);

/* So many calls of a symbol, and all of them declined for one reason. */
void expect_declined(const char *symbol, const char *reason, double count);

#endif
