/* trial: calls of any routine by a public name. Contents of matrices are as good as random and well
 * conditioned, and are the same before every call. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_TRIAL_H
#define CLB_TRIAL_H

#include "shim/next/next.h"

double clb_median(double *values, size_t count); /* sorts */

/* Without options, transposes or leading dimensions beyond the rows; alpha is one and beta zero.
 * Sizes that the routine has not are ignored. */
struct clb_call clb_trial_make(clb_routine routine, int64_t m, int64_t n, int64_t k, int64_t nrhs);

/* Give the call its matrices, in memory kept for the next time; without memory the process ends. */
void clb_trial_fill(struct clb_call *call, bool ilp64);

/* Call the function, by Fortran's conventions, so many times, fewer when `limit` seconds have
 * passed, and time the calls; before these `uncounted` times. The call gets its matrices. */
enum { CLB_TRIAL_CALLS = 1000 };
struct clb_trial_time {
    double median, best, cpu; /* seconds of a call; the median of the process's CPU time; */
    double all;               /* the sum of those that were counted */
    size_t calls;
};
struct clb_trial_time clb_trial_run(struct clb_call *call, const struct clb_target *target,
                                    size_t uncounted, size_t calls, double limit);

/* Whether C = A*B, m x k times k x n, column-major without gaps. */
bool clb_trial_product_is_right(clb_precision precision, size_t m, size_t n, size_t k, void *a,
                                void *b, void *c);

#endif
