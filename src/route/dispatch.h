/* dispatch.h: between route's generic part (route.c) and the routines' files (gemm.c, ...).
 *
 * A routine's file describes a decoded call as an dispatch, the head of a struct of its own. Its
 * type says how such a call is checked, run and completed; guard, threshold, device decision,
 * outcome, statistics and log are the same for all routines. */
#ifndef CLB_OFFER_H
#define CLB_OFFER_H

#include "route.h"

struct clb_dispatch;

struct clb_dispatch_ops {
    /* The argument checks of the reference, in its terms. */
    bool (*is_valid)(const struct clb_dispatch *dispatch);
    /* Of a valid call: there is nothing to do for a device. */
    bool (*is_quick)(const struct clb_dispatch *dispatch);
    /* Run on the device, with the thread guarded, and fill in the dispatch's progress. */
    clb_status (*run)(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant);
    /* After run, unguarded: the next library computes what is missing. True when it had to. */
    bool (*complete)(struct clb_dispatch *dispatch, clb_status status);
    /* Options and sizes for the log, "NT m=5 n=6 k=7". */
    void (*describe)(const struct clb_dispatch *dispatch, char *text, size_t size);
};

struct clb_dispatch {
    const struct clb_dispatch_ops *type;
    struct clb_symbol *symbol;
    const struct clb_target *next; /* NULL: its threshold is that next to a plain library */
    struct clb_lapacke *lapacke;   /* NULL: not a C name of LAPACK */
    bool query;                    /* it asks for a workspace size */
    int64_t m, n, k;               /* of the work formula in routines.def */
    size_t smallest; /* of a valid call: the dimension that `auto` compares with the table's */

    /* By run: why it did nothing after all, CLB_REASONS by default; and its progress. */
    clb_reason declined;
    size_t parts, written; /* of the result */
    double share;          /* of the operations that the device did for what is written, 0 to 1 */
    const char *kernel;    /* NULL: the variant's name */
};

/* The generic part. True: the call has been computed. */
bool clb_route_dispatch(struct clb_dispatch *dispatch);

/* True when the tables decide, not a threshold of the user's. */
bool clb_dispatch_is_auto(const struct clb_dispatch *dispatch);

/* Whether this thread is inside a device call: then what it calls goes straight to next. Returns
 * what held before. */
bool clb_route_set_inside(bool now);

/* alpha or beta. */
bool clb_scalar_is_zero(clb_precision precision, const void *value);
/* Any entry of the diagonal of a matrix of order n. */
bool clb_diagonal_has_zero(clb_precision precision, size_t n, const void *a, size_t lda);

/* For routines whose result is written in parts: what an algorithm left in *progress as the
 * dispatch's progress, for a rows x cols result; and `compute` for each part that is missing, with
 * NULL for the whole when nothing was written. */
void clb_dispatch_take_progress(struct clb_dispatch *dispatch,
                                const struct clb_gemm_progress *progress, clb_status status,
                                size_t rows, size_t cols);
bool clb_dispatch_complete_parts(struct clb_dispatch *dispatch,
                                 const struct clb_gemm_progress *progress, clb_status status,
                                 void (*compute)(struct clb_dispatch *, const struct clb_rect *));

/* lapacke.c. Before the call is run: CLB_REASONS, or why it is not; nothing is held then. */
clb_reason clb_lapacke_open(struct clb_lapacke *lapacke);
/* After it: with `computed`, results to the caller. */
void clb_lapacke_close(struct clb_lapacke *lapacke, bool computed);
/* Of an array of Fortran integers, 64-bit ones if `wide`. */
void clb_set_integer(void *array, size_t index, bool wide, int64_t value);

/* An upper-case letter for a clb_op, '?' for CLB_OP_INVALID. */
char clb_op_letter(clb_op op);

static inline bool clb_ld_is_valid(int64_t ld, int64_t rows)
{
    return ld >= (rows > 1 ? rows : 1);
}

#endif
