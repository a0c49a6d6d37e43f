/* SPDX-License-Identifier: BSD-3-Clause
 * routed: calls through the route layer, GEMM with a fake next library, and the report. */
#ifndef ROUTED_H
#define ROUTED_H

#include "matrix.h"
#include "shim/route/route.h"

/* A call of a name, as the interface would make it: true when the route layer took it. */
bool routed_call(struct clb_symbol *symbol, const struct clb_call *call,
                 struct clb_host_blas *host);

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

/* Configure this process, unless its parameters and its report are set already, and install the
 * failing OpenCL table. */
void routed_set_up(const char *mode, const char *params);

/* Before that: a device with memory of its own, or one that shares the CPU's. */
void routed_set_device(bool discrete);

/* ---- calls that the next library makes ---- */

/* For hooks: an SGEMM through the route layer, checked, from a random state of its own. */
void routed_call_product(void);
extern long routed_products;      /* how often that was done */
extern bool routed_product_taken; /* the last one was */

#endif
