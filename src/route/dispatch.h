/* dispatch.h: the interface between route.c and the file of each routine (gemm.c, ...).
 *
 * A routine's file describes a decoded call by a struct that begins with struct clb_dispatch, whose
 * functions (clb_dispatch_ops) check, run and complete the call. route.c does the rest for all
 * routines: recursion guard, threshold, choice of the device, outcome, statistics and log. */
#ifndef CLB_DISPATCH_H
#define CLB_DISPATCH_H

#include "route.h"

struct clb_dispatch;

struct clb_dispatch_ops {
    /* True when the arguments pass the checks of reference BLAS or LAPACK. */
    bool (*is_valid)(const struct clb_dispatch *dispatch);
    /* True when a valid call leaves nothing to compute on a device. */
    bool (*is_quick)(const struct clb_dispatch *dispatch);
    /* Run on the device, inside clb_host_state_save/restore, and set the dispatch's progress. */
    clb_status (*run)(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant);
    /* After `run` and clb_host_state_restore: compute missing parts of the result by the next
     * library. True when there were any. */
    bool (*complete)(struct clb_dispatch *dispatch, clb_status status);
    /* Format options and sizes for the log, "NT m=5 n=6 k=7". */
    void (*describe)(const struct clb_dispatch *dispatch, char *text, size_t size);
};

struct clb_dispatch {
    const struct clb_dispatch_ops *type;
    struct clb_symbol *symbol;
    const struct clb_target *next; /* NULL: use the threshold for a library that isn't optimised */
    struct clb_lapacke *lapacke;   /* NULL: not a C name of LAPACK */
    bool query;                    /* a workspace query */
    int64_t m, n, k;               /* arguments of the work formula in routines.def */
    size_t smallest; /* for a valid call: `auto` compares it with the table's smallest dimension */

    /* Set by run. */
    clb_reason declined;   /* why run did nothing after all; CLB_REASONS: it did */
    size_t parts, written; /* the parts of the result, and how many of them are written */
    double share;          /* share of the written parts' operations done by the device, 0 to 1 */
    const char *kernel;    /* NULL: the variant's name */
};

/* route.c: decide about a call and run it. True: the call has been computed. */
bool clb_route_dispatch(struct clb_dispatch *dispatch);

/* True when the thresholds of the tuning tables apply, and not one set by the user. */
bool clb_dispatch_is_auto(const struct clb_dispatch *dispatch);

/* Set whether this thread is inside a device call: BLAS calls that it makes meanwhile are declined.
 * Returns the previous value. */
bool clb_route_set_inside(bool now);

/* True when alpha or beta is zero. */
bool clb_scalar_is_zero(clb_precision precision, const void *value);
/* True when any entry of the diagonal of a matrix of order n is zero. */
bool clb_diagonal_has_zero(clb_precision precision, size_t n, const void *a, size_t lda);

/* For routines whose rows x cols result is written in parts. take_progress sets the dispatch's
 * progress from an algorithm's *progress; complete_parts calls `compute` for each missing part, or
 * once with NULL when nothing was written. */
void clb_dispatch_take_progress(struct clb_dispatch *dispatch,
                                const struct clb_gemm_progress *progress, clb_status status,
                                size_t rows, size_t cols);
bool clb_dispatch_complete_parts(struct clb_dispatch *dispatch,
                                 const struct clb_gemm_progress *progress, clb_status status,
                                 void (*compute)(struct clb_dispatch *, const struct clb_rect *));

/* lapacke.c. Called before the call is run. Returns CLB_REASONS, or the reason to decline the call;
 * then no copy is held. */
clb_reason clb_lapacke_open(struct clb_lapacke *lapacke);
/* Called after it: frees the copies; with `computed`, first stores the results in the caller's
 * matrices. */
void clb_lapacke_close(struct clb_lapacke *lapacke, bool computed);
/* Set an element of an array of Fortran integers, 64-bit ones if `wide`. */
void clb_set_integer(void *array, size_t index, bool wide, int64_t value);

/* An upper-case letter for a clb_op, '?' for CLB_OP_INVALID. */
char clb_op_letter(clb_op op);

static inline bool clb_ld_is_valid(int64_t ld, int64_t rows)
{
    return ld >= (rows > 1 ? rows : 1);
}

#endif
