/* solve: what is done to B by a matrix A, in the caller's memory: triangular systems (trsm_run.c,
 * getrs.c) and products with Q (ormqr.c).
 *
 * B is cut into parts that don't depend on each other, blocks of columns (left) or rows (right).
 * They are worked on in the shim's memory, and the CPU copies X back, which is the only write to
 * the caller's memory: a part of B is either old or new, and what is not written can be computed
 * elsewhere. */
#ifndef CLB_SOLVE_H
#define CLB_SOLVE_H

#include "dmat.h"
#include "lapack.h"

struct clb_solve;

/* What is done. */
struct clb_solve_work {
    /* Of parts as the progress has them. */
    struct clb_workspace_limits (*limits)(const struct clb_solve *solve);
    /* Once A is on the device, and then to each part of B; enqueued. */
    clb_status (*prepare)(struct clb_solve *solve, struct clb_workspace *workspace,
                          const struct clb_dmat *a);
    clb_status (*apply)(struct clb_solve *solve, struct clb_workspace *workspace,
                        const struct clb_dmat *part);
    /* Of whatever prepare has got; may be NULL. `idle`: nothing is under way. */
    void (*end)(struct clb_solve *solve, bool idle);
};

struct clb_solve {
    const struct clb_solve_work *work;
    clb_precision precision;
    bool right;
    size_t m, n;   /* of B */
    size_t cols_a; /* its rows are B's rows (left) or columns (right) */
    const void *alpha, *a;
    void *b;
    size_t lda, ldb;
    void *context; /* of the work */
    /* Left: row i of what is solved is row order_in[i] of B, row i of X is row order_out[i] of the
     * solution; NULL where nothing is interchanged. */
    const cl_uint *order_in, *order_out;
    struct clb_gemm_progress *progress; /* the parts of B */
};

/* Make the parts and run. */
clb_status clb_solve_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         struct clb_solve *solve) CLB_MUST_CHECK;

/* Rows of A, number of right-hand sides, those of the largest part. */
size_t clb_solve_order(const struct clb_solve *solve);
size_t clb_solve_extent(const struct clb_solve *solve);
size_t clb_solve_part(const struct clb_solve *solve);

/* Systems: one triangle of A after the other. */
struct clb_solve_triangles {
    struct {
        bool upper, unit;
        clb_op op;
    } step[2];
    size_t steps;
    struct clb_dmat_triangle packed[2]; /* of a device's copy of A */
};
extern const struct clb_solve_work clb_solve_triangles_work; /* its context is one of those */

/* Interchanges in turn, or backwards, as an order: what is at place i afterwards was at order[i].
 * Owned by the caller; NULL when memory has run out. */
cl_uint *clb_pivot_order(const int64_t *ipiv, size_t n, bool backward);

clb_status clb_solve_run_shared(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                struct clb_solve *solve) CLB_MUST_CHECK;
clb_status clb_solve_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                struct clb_solve *solve) CLB_MUST_CHECK;

#endif
