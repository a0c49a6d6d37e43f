/* rhs_blocks: operations on blocks of right-hand sides with a matrix A, in the caller's memory:
 * triangular systems (rhs_blocks.c) and products with Q (ormqr.c).
 * SPDX-License-Identifier: BSD-3-Clause
 * B is divided into parts that don't depend on each other, blocks of columns (left) or rows
 * (right). They are processed in the shim's memory, and the CPU copies the results X back, which is
 * the only write to the caller's memory: so a part of B is either old or final. */
#ifndef CLB_RHS_BLOCKS_H
#define CLB_RHS_BLOCKS_H

#include "job.h"

struct clb_solve;

struct clb_solve_work {
    /* The workspace limits, for the parts that solve->progress has. */
    struct clb_workspace_limits (*limits)(const struct clb_solve *solve);
    /* Both enqueue work: `prepare` once when A is on the device, `apply` for each part of B. */
    clb_status (*prepare)(struct clb_solve *solve, struct clb_workspace *workspace,
                          const struct clb_dmat *a);
    clb_status (*apply)(struct clb_solve *solve, struct clb_workspace *workspace,
                        const struct clb_dmat *part);
    /* Free what `prepare` has allocated; may be NULL. `idle`: no command is still running. */
    void (*end)(struct clb_solve *solve, bool idle);
};

struct clb_solve {
    const struct clb_solve_work *work;
    void *context; /* for the functions of `work` */
    /* As if it were one of xTRSM: B is m x n, A's rows are B's rows (left) or columns (right). */
    struct clb_call call;
    size_t cols_a;
    bool adjoint_a; /* the memory of A has A^H */
    /* Left: row i of the right-hand side is row order_in[i] of B, and row i of X is row
     * order_out[i] of the solution; NULL where nothing is interchanged. */
    const cl_uint *order_in, *order_out;
    struct clb_gemm_progress *progress; /* the parts of B */
};

/* A solve with triangles, the context, with the call's A and B or C, if any, and alpha = 1. */
struct clb_solve clb_solve_of(const struct clb_call *call, void *context,
                              struct clb_gemm_progress *progress);

/* Divide B into parts and run. */
clb_status clb_solve_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         struct clb_solve *solve) CLB_MUST_CHECK;

/* The rows of A; the number of right-hand sides of the largest part. */
size_t clb_solve_order(const struct clb_solve *solve);
size_t clb_solve_part(const struct clb_solve *solve);

/* Solves with triangles of A in turn, whose upper, unit and op the caller sets. */
struct clb_solve_triangles {
    struct clb_dmat_triangle step[2];
    size_t steps;
};
extern const struct clb_solve_work clb_solve_triangles_work; /* its context is one of these */

/* The pivots of xGETRF, in turn or backwards, as an order (clb_order_make, clb_order_swap). */
cl_uint *clb_pivot_order(const struct clb_call *call, bool backward);

#endif
