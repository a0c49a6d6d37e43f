/* route: decides where a call is computed. Recursion guard, policy, outcome, recovery, statistics.
 *
 * A call is *declined* (the interface then calls the next library with the original arguments), or
 * it has been computed: on the device, or recovered by the next library after the device failed. */
#ifndef CLB_ROUTE_H
#define CLB_ROUTE_H

#include "blas/routines.h"
#include "cost.h"
#include "shim/next/next.h"
#include "engine/tuning/tuning.h"

/* ---- route.c --------------------------------------------------------------------------------- */

typedef enum clb_reason {
#define CLB_REASON(id, name) CLB_REASON_##id,
#include "shim/route/reasons.def"
#undef CLB_REASON
    CLB_REASONS
} clb_reason;

/* The kind of work of a routine, for thresholds. */
clb_work clb_routine_work(clb_routine routine);
const char *clb_reason_name(clb_reason reason);

/* Read the configuration and set every symbol's min_work; idempotent. Called by the slow path. */
void clb_route_configure(void);

/* Called by the interface with a decoded call whose symbol, target, caller and width are set; a
 * wrong option is noted in it. Its routine, kind and precision are set here. `host` has the next
 * library's functions, or is NULL: those of the call's naming scheme.
 *
 * True: the call has been computed. False: it is declined; call the next library, between
 * clb_next_begin and clb_next_end. */
bool clb_route(struct clb_entry *entry, struct clb_host_blas *host);

/* Called when the next library has returned from a declined call of a C name of LAPACK. */
void clb_route_end_declined(void);

/* Called with the seconds that the next library has taken for a declined call that is `learnt`
 * or `compared`. */
void clb_route_learn_next(const struct clb_entry *entry, double seconds);

/* ---- level3_next.c
 * -------------------------------------------------------------------------------- */

/* Compute a declined call of xGEMMTR by the next library's xGEMM, and return 0. When an argument is
 * wrong, return the position of the first such argument in Fortran's list. */
int clb_route_compose_gemmtr(struct clb_entry *entry, struct clb_host_blas *host);

/* ---- stats.c --------------------------------------------------------------------------------- */

/* Calls are to be counted and timed, for a report or to learn. Constant once clb_route_configure
 * has run. */
extern bool clb_stats_wanted;
void clb_stats_configure(void);
/* True when any call was counted. */
bool clb_stats_any(void);

/* Count a call: one that is declined, one that was computed on the device or, if `recovered`, begun
 * there. Those that another call makes (`inside`) are also counted apart. */
void clb_stats_declined(const struct clb_entry *entry, clb_reason reason, double flops);
void clb_stats_computed(const struct clb_entry *entry, const char *kernel, bool recovered,
                        double flops, double flops_device, double seconds_device,
                        double seconds_next);

/* The prediction for a call that is counted, both sides of which are known, and the seconds that
 * the device has saved, or would have in a dry run. */
void clb_stats_predicted(const struct clb_symbol *symbol, const struct clb_prediction *prediction,
                         double saved);

/* Called before and after a declined call that is `timed`. Only the caller's values are kept
 * meanwhile, so nothing leaks when the next library's xerbla_ jumps out of the call. */
double clb_next_begin(void);
void clb_next_end(const struct clb_entry *entry, double begin);

/* The report as JSON, in the format that docs/report.md defines, and as a table to be read. */
struct clb_text;
void clb_stats_format_json(struct clb_text *text);
void clb_stats_format_table(struct clb_text *text);

#endif
