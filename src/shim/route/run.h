/* run.h: the interface between route.c, decide.c and the files of the families (level3.c, lu.c,
 * cholesky.c, qr.c): what is the same for all calls is in route.c, and a family says how a routine
 * is computed on the device and completed by the next library. */
#ifndef CLB_ROUTE_RUN_H
#define CLB_ROUTE_RUN_H

#include "blas/judge.h"
#include "engine/lapack/lapack.h"
#include "decide.h"

struct clb_run;

#define CLB_NEEDS(kind) (1U << CLB_KIND_##kind)

/* One for each kind of routines. */
struct clb_ops {
    /* Run on the device, inside clb_thread_state_save/restore, and set the progress below. */
    clb_status (*run)(struct clb_run *run, struct clb_runtime *runtime,
                      const struct clb_gemm_variant *variant);
    /* After `run` and clb_thread_state_restore: compute missing parts of the result by the next
     * library. True when there were any. */
    bool (*complete)(struct clb_run *run, clb_status status);
    /* Kinds of the next library's functions without which the call is declined, CLB_NEEDS. */
    unsigned needs;
    /* `auto` compares with the table's smallest dimension: 0, the smallest of m, n and k; else m
     * alone, or half of the smallest. */
    enum { CLB_SMALLEST, CLB_SMALLEST_M, CLB_SMALLEST_HALF } smallest;
};

/* The matrices of a C name of LAPACK that are passed row-major: see lapacke.c. */
struct clb_lapacke {
    struct clb_lapacke_matrix {
        void **at;     /* the pointer in the call */
        size_t *ld_at; /* and its leading dimension there */
        void *callers; /* the caller's matrix while *at points to the copy */
        size_t rows, cols, ld, ld_copied;
        bool copied, written, conjugated;
        char part; /* the part that is checked for NaN, as in clb_has_nan */
    } matrix[3];
    size_t count;
    void *work; /* owned; where the caller passes none */
};

/* Routines and classes of size whose results have passed at their first use. */
enum { CLB_VERIFY_CLASSES = 16 };
extern atomic_bool clb_verify_passed[CLB_ROUTINES][CLB_VERIFY_CLASSES];

/* A call that is to be verified, with copies of the matrices that it overwrites. */
struct clb_verify {
    int size_class; /* of the call */
    bool wanted;
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_before before[CLB_CALL_MATRICES];
    struct clb_verify_copy {
        void *data; /* owned; NULL: none */
        size_t bytes;
    } copy[CLB_CALL_MATRICES];
};

struct clb_run {
    const struct clb_ops *ops;
    struct clb_entry *entry;
    struct clb_call *call; /* the entry's */
    clb_precision precision;
    struct clb_host_blas *host; /* set before `run` */
    struct clb_lapacke lapacke;
    int64_t m, n, k;    /* arguments of the work formula */
    double work, flops; /* of that, and of the call */
    struct clb_verify verify;

    /* Set by decide.c. */
    clb_reason reason; /* of a gate that has several */
    bool starts;       /* the device is not started yet */
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
    struct clb_question question;
    struct clb_history_key key;
    bool is_known, asks;         /* the history has the decision; it may be one of those that */
    struct clb_decision known;   /* go to the other side */
    unsigned stands_for;         /* calls like it, most of which nothing was asked about */
    struct clb_prediction alone; /* without other calls; 0: none was made */
    struct clb_prediction prediction; /* beside those that are in flight */

    /* Set by run. */
    clb_reason declined;   /* why run did nothing after all; CLB_REASONS: it did */
    size_t parts, written; /* the parts of the result, and how many of them are written */
    double share;          /* share of the written parts' operations done by the device, 0 to 1 */
    const char *kernel;    /* NULL: the variant's name */

    /* Of the families. */
    struct clb_gemm_progress progress; /* of a result that is written in parts */
    struct clb_factors factors;        /* its tau is owned */
    struct clb_orgqr_result orgqr;
    int64_t *pivots;     /* owned; pivots as 64-bit integers where the caller's are not */
    bool factored;       /* gesv, posv: the factors are complete */
    clb_status solution; /* and the status of the solve; UNSUPPORTED: left to next */
};

/* True when predictions and the tables' thresholds decide, and not a threshold set by the user. */
bool clb_run_is_auto(const struct clb_run *run);

/* Have the next library compute with one thread where the device is the CPU: idle threads of it
 * spin. True: the caller must call clb_next_release_threads. */
bool clb_run_hold_threads(const struct clb_run *run, const struct clb_runtime *runtime);

/* For routines whose rows x cols result is written in parts. take_progress sets the progress from
 * the algorithm's; complete_parts calls `compute` for each missing part, or once with NULL when
 * nothing was written. */
void clb_run_take_progress(struct clb_run *run, clb_status status, size_t rows, size_t cols);
bool clb_run_complete_parts(struct clb_run *run, clb_status status,
                            void (*compute)(struct clb_run *, const struct clb_rect *));

/* Have the next library compute a part of B or C, or with NULL all of it. */
void clb_run_compute_part(struct clb_run *run, const struct clb_rect *rect);

/* level3_next.c: the same for xSYMM, xSYRK, xSYR2K, xGEMMTR and their Hermitian forms, whose parts
 * need not be calls of the routine. */
void clb_level3_compute_part(struct clb_run *run, const struct clb_rect *rect);

/* For factorisations: set the progress in columns. `host_work` of `work` was done by the host. */
void clb_run_take_columns(struct clb_run *run, clb_status status, size_t columns, size_t written,
                          double host_work, double work, const char *kernel);

/* The same for a result that is written at once, or not at all. */
void clb_run_take_all(struct clb_run *run, clb_status status);

/* For xGESV and xPOSV, after the factorisation has set the progress in columns: add that of the
 * solve, in parts of B. */
void clb_run_add_solution(struct clb_run *run, double factor_work, double solve_work);
/* After complete has completed the factors: the same for the parts of B. */
bool clb_run_complete_solution(struct clb_run *run);

/* True when any entry of the diagonal of a matrix of order n is zero. */
bool clb_diagonal_has_zero(clb_precision precision, size_t n, const void *a, size_t lda);

/* For a call that has been computed: the next call of `host` only asks for the best size of the
 * workspace, which goes to its first element. False: the caller has passed none. */
bool clb_run_asks_for_size(struct clb_run *run);

/* Store a result of LAPACK's INFO. */
void clb_run_set_info(const struct clb_run *run, size_t info);

/* lapacke.c. decode: note the matrices of a C name of LAPACK, before the checks. open: called
 * before the call is run; returns CLB_REASONS, or the reason to decline the call. close: frees the
 * copies; with `computed`, first stores the results in the caller's matrices. */
void clb_lapacke_decode(struct clb_run *run);
clb_reason clb_lapacke_open(struct clb_run *run);
void clb_lapacke_close(struct clb_run *run, bool computed);

/* A declined call of a C name of LAPACK reaches the library again under its Fortran name: true for
 * that one, which is declined without deciding or counting again. */
bool clb_lapacke_is_declined_again(const struct clb_run *run);
void clb_lapacke_note_declined(const struct clb_run *run);

/* verify.c. begin: called before `run` where the configuration asks for verification; where the
 * call is to be verified, copies what it overwrites. Returns CLB_REASONS, or the reason to decline
 * the call. The others are for a call that is to be verified. end: called after `complete`, with
 * the status of `run`; false when the result is wrong: then the matrices of the call are as they
 * were, the device is quarantined, and the call must be declined. free: frees the copies. */
clb_reason clb_verify_begin(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant);
bool clb_verify_end(struct clb_run *run, clb_status status);
void clb_verify_free(struct clb_run *run);

extern _Atomic long clb_verified_calls; /* for tests */

#endif
