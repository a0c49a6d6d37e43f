/* SPDX-License-Identifier: BSD-3-Clause
 * profile: what calls have taken on this machine, in a record in the cache folder for each device
 * beside each next library with a number of threads. It is read when the first call asks for its
 * prediction. When the process ends it is written with CLBLAS_SHIM_LEARN=1, and else, once an hour,
 * what declined calls have taken, which CLBLAS_SHIM_REPRODUCIBLE=1 does not read either. */
#ifndef CLB_PROFILE_H
#define CLB_PROFILE_H

#include "cost.h"

struct clb_prediction clb_profile_predict(const struct clb_cost_machine *owner,
                                          const struct clb_cost_call *call);

/* Seconds that a start for calls in a precision costs; the owner's device is NULL where none is
 * known. The duration of a start counts with CLBLAS_SHIM_LEARN=1. */
double clb_profile_start_cost(const struct clb_cost_machine *owner, clb_precision precision);
void clb_profile_learn_start(const struct clb_cost_machine *owner, double seconds);

/* Add a call's duration: the median of a kind in this process counts. For CLBLAS_SHIM_LEARN=1 and
 * clblas-shim tune. */
void clb_profile_learn(const struct clb_cost_machine *owner, clb_side side,
                       const struct clb_cost_call *call, double seconds);

/* At a process's end: write what it has learnt; what others have written meanwhile is kept. A
 * `sample`, which nobody has asked for, is small and seldom written. */
void clb_profile_write(bool sample);

/* ---- for tests ---- */

/* The text that names an owner. NULL when memory has run out. */
char *clb_profile_key(const struct clb_cost_machine *owner);
struct clb_text;
void clb_profile_format(struct clb_text *text, const struct clb_profile *profile);
/* False: the text is damaged; the profile is empty then. */
bool clb_profile_parse(const char *text, struct clb_profile *profile);

#endif
