/* any_call: calls of any routine of the table through the route layer, with random operands; the
 * signature and shapes in routines.def say what these are. The next library's Fortran functions
 * compute what is expected. SPDX-License-Identifier: BSD-3-Clause */
#ifndef ANY_CALL_H
#define ANY_CALL_H

#include "shim/route/route.h"

/* What a call is like; all zero: the Fortran name, 32-bit integers, usual sizes. */
struct any_options {
    size_t m, n, k, nrhs; /* 0: the usual ones */
    size_t most;          /* random sizes up to this; 0: those above */
    clb_form form;        /* a C name */
    bool rows;            /* and by rows; of a C name */
    bool wide;            /* ipiv and info of 64 bits; by any_call_host */
    bool hosted;          /* by any_call_host: it counts what the next library computes */
    bool singular;        /* LU: a column of zeros; Cholesky: not positive definite */
    bool least_work;      /* the smallest workspace that is allowed */
};

enum { ANY_MATRICES = 3 };

struct any_operands {
    struct any_matrix {
        char *data; /* owned; NULL: the routine has none */
        size_t bytes, ld;
        struct clb_shape shape;
        bool rows;
    } matrix[ANY_MATRICES];  /* A, B, C */
    char *tau, *work, *ipiv; /* owned, each with an element that nothing writes */
    size_t taus, works, pivots;
    int64_t info;
    bool wide;
};

struct any_call {
    struct clb_entry entry; /* to be changed before the call, but for its matrices */
    struct clb_host_blas host, *host_given;
    struct any_operands x, expected, before;
};

/* False: the next library has no such routine. */
bool any_call_open(struct any_call *x, clb_routine routine, const struct any_options *options,
                   uint64_t *seed);
void any_call_close(struct any_call *x);

/* True when the route layer took it. */
bool any_call_route(struct any_call *x);

/* Of a call that was computed: the greatest deviation of what it writes from what is expected,
 * relative to 1 + its magnitude; infinity where INFO or pivots differ or anything else has changed.
 * Of a singular matrix, what is left undefined is not looked at. */
double any_call_deviation(const struct any_call *x);
/* A smaller deviation is right, in the routine's precision. */
double any_call_tolerance(clb_routine routine);

/* Of a call that was declined: nothing has changed. */
bool any_call_is_intact(const struct any_call *x);

/* Set a matrix's element of the call, which is then not what is expected. */
void any_call_set(struct any_call *x, size_t matrix, size_t i, size_t j, double re);

/* One call, computed by whoever takes it: its deviation; negative when the next library has no such
 * routine. With these options; all zero by default. */
double any_call_run(clb_routine routine, uint64_t *seed);
extern struct any_options any_call_options;
extern size_t any_call_entries; /* of the matrices that the last one writes */

/* Called before and after any_call_run's call goes through the route layer; NULL by default. */
extern void (*any_call_routes)(bool begins);

/* The next library's functions, for the calls that are `hosted`. They count calls and the entries
 * of what these write, and call the hook first. */
struct clb_host_blas any_call_host(void);
extern _Atomic long any_host_calls;
extern _Atomic size_t any_host_entries;
extern void (*any_host_hook)(void);

/* OpenBLAS 0.3.21's zlauu2 reads beyond the matrix, which AddressSanitizer may not survive. */
bool any_call_reads_beyond(clb_routine routine);

#endif
