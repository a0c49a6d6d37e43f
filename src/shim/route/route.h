/* route: decides where a call is computed. Recursion guard, policy, outcome, recovery, statistics.
 *
 * A call is *declined* (the interface then calls the next library with the original arguments), or
 * it has been computed: on the device, or recovered by the next library after the device failed. */
#ifndef CLB_ROUTE_H
#define CLB_ROUTE_H

#include "shim/next/next.h"

/* Why a call went to the next library, X(id, name): a closed list, docs/report.md explains each. */
#define CLB_REASON_TABLE(X)                                                                        \
    X(OFF, "off")                                                                                  \
    X(SMALL, "small")                                                                              \
    X(COST, "cost")                                                                                \
    X(QUICK, "quick")                                                                              \
    X(INVALID, "invalid")                                                                          \
    X(QUERY, "query")                                                                              \
    X(NODEVICE, "nodevice")                                                                        \
    X(NOFP64, "nofp64")                                                                            \
    X(NOMEMORY, "nomemory")                                                                        \
    X(SLOW, "slow")                                                                                \
    X(QUARANTINED, "quarantined")                                                                  \
    X(FORKED, "forked")                                                                            \
    X(REENTRANT, "reentrant")                                                                      \
    X(STARTING, "starting")                                                                        \
    X(DRY_RUN, "dry-run")

typedef enum clb_reason {
#define CLB_REASON_ID(id, name) CLB_REASON_##id,
    CLB_REASON_TABLE(CLB_REASON_ID)
#undef CLB_REASON_ID
        CLB_REASONS
} clb_reason;

const char *clb_reason_name(clb_reason reason);

/* Called by the interface with a decoded call whose symbol, target, caller and width are set; a
 * wrong option is noted in it. Its routine, kind and precision are set here. `host` has the next
 * library's functions, or is NULL: those of the call's naming scheme.
 *
 * True: the call has been computed. False: it is declined; call the next library, and then
 * clb_next_end where the call is `timed`. */
bool clb_route(struct clb_entry *entry, struct clb_host_blas *host);
/* lapacke.c: the same for a C name of LAPACK. */
bool clb_route_lapacke(struct clb_entry *entry, struct clb_host_blas *host);

/* Called when the next library has returned from a declined call of a C name of LAPACK. */
void clb_route_end_declined(void);

/* Called after a declined call that is `timed` and began then, by clb_now. Only the caller's values
 * are kept meanwhile, so nothing leaks when the next library's xerbla_ jumps out of the call. */
void clb_next_end(const struct clb_entry *entry, double begin);

/* complete.c: compute a declined call of xGEMMTR by the next library's xGEMM, and return 0. When
 * an argument is wrong, return the position of the first such argument in Fortran's list. */
int clb_route_compose_gemmtr(struct clb_entry *entry, struct clb_host_blas *host);

/* threshold.c: read the configuration and set every symbol's min_work; idempotent. */
void clb_route_configure(void);

/* stats.c: the report as JSON, in the format that docs/report.md defines, and as a table to be
 * read. */
struct clb_text;
void clb_stats_format_json(struct clb_text *text);
void clb_stats_format_table(struct clb_text *text);

#endif
