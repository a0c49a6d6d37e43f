/* route: decides where a call is computed. A call is *declined* (the interface then calls the next
 * library with the original arguments), or it has been computed: on the device, or recovered by the
 * next library after the device failed. SPDX-License-Identifier: BSD-3-Clause */
#ifndef CLB_ROUTE_H
#define CLB_ROUTE_H

#include "history.h"
#include "shim/next/next.h"

/* Why a call went to the next library, X(id, name): a closed list, docs/report.md explains each. */
#define CLB_REASON_TABLE(X)       \
    X(OFF, "off")                 \
    X(SMALL, "small")             \
    X(COST, "cost")               \
    X(QUICK, "quick")             \
    X(INVALID, "invalid")         \
    X(QUERY, "query")             \
    X(NODEVICE, "nodevice")       \
    X(NOFP64, "nofp64")           \
    X(NOMEMORY, "nomemory")       \
    X(SLOW, "slow")               \
    X(QUARANTINED, "quarantined") \
    X(FORKED, "forked")           \
    X(REENTRANT, "reentrant")     \
    X(STARTING, "starting")       \
    X(DRY_RUN, "dry-run")

typedef enum clb_reason {
#define CLB_REASON_ID(id, name) CLB_REASON_##id,
    CLB_REASON_TABLE(CLB_REASON_ID)
#undef CLB_REASON_ID
        CLB_REASONS
} clb_reason;

const char *clb_reason_name(clb_reason reason);

/* Called with a decoded call that has its symbol, target, caller, width and a wrong option; its
 * routine, kind and precision are set here. `host` has the next library's functions, or is NULL:
 * those of the call's naming scheme. True: the call has been computed. False: it is declined; call
 * the next library, and then clb_next_end where the call is `timed`. */
bool clb_route(struct clb_entry *entry, struct clb_host_blas *host);
/* lapacke.c: the same for a C name of LAPACK. */
bool clb_route_lapacke(struct clb_entry *entry, struct clb_host_blas *host);

/* Called when the next library has returned from a declined call of a C name of LAPACK. */
void clb_route_end_declined(void);

/* Called after a declined call that is `timed` and began then, by clb_now. Nothing leaks when the
 * next library's xerbla_ jumps out of the call. */
void clb_next_end(const struct clb_entry *entry, double begin);

/* complete.c, batch.c: compute a declined call of xGEMMTR, or of a batch, by the next library's
 * xGEMM. Returns 0, or the position of the first wrong argument in Fortran's list of xGEMMTR or
 * xGEMM_BATCH. */
int clb_route_compose_gemmtr(struct clb_entry *entry, struct clb_host_blas *host);
int clb_route_compose_batch(struct clb_entry *entry, struct clb_host_blas *host);

/* The arguments of xGEMM_BATCH, arrays with an element for each group, of a, b and c for each
 * product; or of xGEMM_BATCH_STRIDED, one group, whose matrices are so many elements apart. */
struct clb_batch {
    const void *transa, *transb, *m, *n, *k, *alpha, *a, *lda, *stridea, *b, *ldb, *strideb, *beta,
        *c, *ldc, *stridec; /* strides: NULL in groups */
    const void *count;      /* of groups; NULL: one */
    const void *sizes;      /* how many products they have */
};
/* Set the entry's call to a product of the group with the most work, or of a wrong one, and its
 * nrhs. Returns the work of all. */
double clb_batch_describe(struct clb_entry *entry);

/* threshold.c: read the configuration and set every symbol's min_work; idempotent. */
void clb_route_configure(void);

/* stats.c: the report as JSON (docs/report.md), and as a table to be read. */
struct clb_text;
void clb_stats_format_json(struct clb_text *text);
void clb_stats_format_table(struct clb_text *text);
/* The sums of clblas_shim_statistics, of one name or, with NULL, of all; false when there are none.
 */
enum { CLB_STATS_SUMS = 8 };
bool clb_stats_sum_calls(const char *name, double result[CLB_STATS_SUMS]);

/* ---- one call on its way: route.c for all; level3.c, factor.c, solve.c by families ---- */

struct clb_device;
struct clb_gemm_variant;
struct clb_run;
struct clb_runtime;
struct clb_verification;

#define CLB_NEEDS(kind) (1U << CLB_KIND_##kind)

/* One for each kind of routines. */
struct clb_ops {
    /* Run on the device, inside clb_thread_state_save/restore, and set the progress below. */
    clb_status (*run)(struct clb_run *run);
    /* After `run` and clb_thread_state_restore: compute missing parts of the result by the next
     * library. True when there were any. */
    bool (*complete)(struct clb_run *run, clb_status status);
    /* Kinds of the next library's functions without which the call is declined, CLB_NEEDS. */
    unsigned needs;
};

#define CLB_OPS(kind, run, complete, needs) \
    const struct clb_ops clb_##kind##_ops = {run, complete, needs}

#define CLB_KIND(kind) extern const struct clb_ops clb_##kind##_ops;
CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
extern const struct clb_ops clb_batch_ops;

struct clb_run {
    const struct clb_ops *ops;
    struct clb_entry *entry;
    struct clb_call *call;      /* the entry's */
    struct clb_host_blas *host; /* set before `run`, but for products that the history knows */
    int64_t m, n, k;            /* arguments of the work formula */
    double work, flops;         /* of that, and of the call */

    /* Set by decide.c and predict.c. */
    clb_reason reason; /* of a gate that has several */
    double begin;      /* by clb_now, where this call may start the device; 0: it is there */
    struct clb_next_library next; /* that the call is compared with */
    struct clb_runtime *runtime;  /* with `variant`, of a call that is for the device */
    const struct clb_gemm_variant *variant;
    struct clb_history_key key;
    struct clb_decision known;        /* by the history, where that is_known; the call may be one */
    bool is_known, asks;              /* of those that go to the other side, to be timed there, */
    bool turned;                      /* and is it */
    unsigned stands_for;              /* calls like it, most of which nothing was asked about */
    struct clb_prediction alone;      /* without other calls; 0: none was made */
    struct clb_prediction prediction; /* beside those that are in flight */

    /* verify.c's; owned, NULL where the result is not to be verified. */
    struct clb_verification *verification;
    int size_class; /* for that: by powers of two of the edge */

    /* Set by `run`, and the status and seconds that it has taken. */
    clb_reason declined;   /* why run did nothing after all; CLB_REASONS: it did */
    size_t parts, written; /* the parts of the result, and how many of them are written */
    size_t done, chunk;    /* of a batch, products that are written, and that failed together */
    double share;          /* share of the written parts' operations done by the device, 0 to 1 */
    const char *kernel;    /* NULL: the variant's name */
    struct clb_gemm_progress progress; /* of a result that is written in parts */
    void *results;                     /* the family's; owned */
    clb_status status;
    double seconds, cpu_begin;
    bool learns; /* the seconds, when what the next library solves is done, too */
};

/* route.c: set the progress of a result that is written in parts from the algorithm's. */
void clb_run_take_progress(struct clb_run *run, clb_status status);

/* ---- complete.c: by the next library ---- */

/* `complete` of a result that is written in parts: the next library computes each missing part, or
 * all when nothing was written; of xGESV and xPOSV parts of the solution. */
bool clb_run_complete_parts(struct clb_run *run, clb_status status);

/* The first element of the caller's workspace, if any, becomes the best size that a query says. */
void clb_run_give_size(const struct clb_run *run);

/* ---- decide.c ---- */

/* The gates that need neither the driver nor a guard of the host's state. */
clb_reason clb_decide(struct clb_run *run);
/* The other gates, inside clb_thread_state_save/restore: they set the runtime and the variant. */
clb_reason clb_decide_on_device(struct clb_run *run);

bool clb_run_is_query(const struct clb_run *run);
/* Whether it is a query for a workspace's size, or has a wrong argument. */
bool clb_run_computes_nothing(const struct clb_run *run);
/* Whether both sides' durations were asked about and are known. */
bool clb_run_is_predicted(const struct clb_run *run);
/* True where the device is used at once and whatever it costs, as the user has asked for. */
bool clb_starts_at_once(void);
/* The library that calls of a host, or where that is NULL of a target, are compared with. */
struct clb_next_library clb_decide_next(const struct clb_host_blas *host,
                                        const struct clb_target *target);
/* What tells the call's entry of the history from others. */
struct clb_history_key clb_decide_key(const struct clb_entry *entry,
                                      const struct clb_next_library *next);
/* Whether the history's decisions count for the call, and it adds to them. */
bool clb_decide_has_history(const struct clb_run *run);
/* Whether what calls take goes to a profile (CLBLAS_SHIM_LEARN); whether such calls are timed on
 * both sides; and whether the call's duration on the device says something. */
bool clb_decide_learns(void);
bool clb_decide_times_both(const struct clb_run *run);
bool clb_run_is_learnt(const struct clb_run *run);
/* How many times as long as alone a call takes on a side beside so many others. */
double clb_decide_crowding(const struct clb_next_library *next, clb_side side, double others);
/* How many other threads' calls count beside such a one. */
double clb_decide_others(const struct clb_prediction *alone);
void clb_decide_set_prediction(struct clb_run *run, const struct clb_prediction *alone);

/* ---- predict.c: calls that the history does not know, and what calls take ---- */

/* The call may be one of those that go to the other side, to be timed there. */
void clb_predict_try_other(struct clb_run *run, struct clb_prediction *alone);

/* Gates for calls that the history doesn't know: the device is not worth a start; the next library
 * is faster; kernels are not ready yet. The reason is the run's. */
bool clb_predict_declines_start(struct clb_run *run);
bool clb_predict_declines(struct clb_run *run);
bool clb_predict_has_no_kernels(struct clb_run *run);
/* Keep the decision of a call that was asked about, for the next one like it. */
void clb_predict_remember(struct clb_run *run, clb_reason reason);

/* The process's CPU time where the device is the CPU, since others lengthen a call but not that;
 * else NAN. A call that began at run->cpu_begin has taken so many seconds on the device. */
double clb_predict_cpu_now(const struct clb_device *device);
void clb_predict_learn(const struct clb_run *run, double seconds);

/* The call is declined: note in it what is to be done when the next library has returned; and it
 * has taken so many seconds for a call that is `learnt`, `compared` or `weighed`. */
void clb_predict_declined(const struct clb_run *run, clb_reason reason);
void clb_predict_learn_next(const struct clb_entry *entry, double seconds);

/* ---- threshold.c ---- */

/* The work below which a routine's calls are declined: the user's, +inf in mode `off`, 0 in
 * `always`, or, `auto`, the lowest at which any may be the device's. */
extern struct clb_threshold {
    double work, plain; /* that beside a plain library */
    bool is_auto;       /* the user has set none: predictions decide */
} clb_thresholds[CLB_ROUTINES];
extern size_t clb_cpus; /* of the system */
extern atomic_bool clb_route_is_configured;

static inline bool clb_run_is_auto(const struct clb_run *run)
{
    return clb_thresholds[run->entry->symbol->routine].is_auto;
}

bool clb_run_is_small(const struct clb_run *run);

/* Where this process can no longer use a device. */
void clb_threshold_decline_all(void);

/* ---- lapacke.c ---- */

static inline bool clb_run_is_lapacke(const struct clb_run *run)
{
    return run->entry->lapacke != NULL;
}

/* decode: note the matrices, before the checks. open: before the call runs; CLB_REASONS, or why it
 * is declined. close: free the copies, with `computed` after storing results in the caller's. */
void clb_lapacke_decode(struct clb_run *run);
clb_reason clb_lapacke_open(struct clb_run *run);
void clb_lapacke_close(struct clb_run *run, bool computed);

/* ---- verify.c ---- */

/* Routines and classes of size whose results have passed at their first use. */
enum { CLB_VERIFY_CLASSES = 16 };
extern atomic_bool clb_verify_passed[CLB_ROUTINES][CLB_VERIFY_CLASSES];

/* begin: before `run`, where verification is wanted: copies what a call to be verified overwrites.
 * Returns CLB_REASONS, or why the call is declined. end: after `complete`; false when the result is
 * wrong: the matrices are as they were, the device is quarantined, the call must be declined. */
clb_reason clb_verify_begin(struct clb_run *run);
bool clb_verify_is_due(struct clb_run *run); /* it may be; sets size_class */
bool clb_verify_end(struct clb_run *run);
void clb_verify_free(struct clb_run *run);

extern _Atomic long clb_verified_calls; /* for tests */

/* ---- stats.c ---- */

/* Calls are counted and timed, for a report or to learn. Constant after clb_route_configure. */
extern bool clb_stats_wanted;
void clb_stats_configure(void);

static inline bool clb_calls_are_observed(void)
{
    return clb_stats_wanted || clb_log_wanted(CLB_LOG_DEBUG);
}

/* Count and log a call that is declined; or that was computed on the device or, if `recovered`,
 * begun there. Those that another call makes (`inside`) are also counted apart. */
void clb_stats_declined(const struct clb_run *run, clb_reason reason);
void clb_stats_computed(const struct clb_run *run, bool recovered, double seconds_next);

#endif
