/* solve: triangular systems in the caller's memory, what trsm_run.c and getrs.c have in common.
 *
 * B is cut into parts that don't depend on each other, blocks of columns (left) or rows (right).
 * They are solved in the shim's memory, and the CPU copies X back, which is the only write to the
 * caller's memory: a part of B is either old or new, and what is not written can be computed
 * elsewhere. */
#ifndef CLB_SOLVE_H
#define CLB_SOLVE_H

#include "dmat.h"
#include "lapack.h"

struct clb_solve {
    clb_precision precision;
    bool right;
    size_t m, n; /* of B */
    const void *alpha, *a;
    void *b;
    size_t lda, ldb;
    /* One triangle of A after the other. */
    struct {
        bool upper, unit;
        clb_op op;
    } step[2];
    size_t steps;
    /* Right, the first triangle upper and op N: B is the identity, so that what is left of a part's
     * first row stays zero in the first step. */
    bool identity;
    /* Left: row i of what is solved is row order_in[i] of B, row i of X is row order_out[i] of the
     * solution; NULL where nothing is interchanged. */
    const cl_uint *order_in, *order_out;
    struct clb_gemm_progress *progress; /* the parts of B */
};

/* Make the parts and run. */
clb_status clb_solve_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                         struct clb_solve *solve) CLB_MUST_CHECK;

/* Order of A, number of right-hand sides, those of the largest part. */
size_t clb_solve_order(const struct clb_solve *solve);
size_t clb_solve_extent(const struct clb_solve *solve);
struct clb_engine_limits clb_solve_engine_limits(const struct clb_solve *solve);

/* The triangles of a device's copy of A, packed. */
clb_status clb_solve_pack(const struct clb_solve *solve, struct clb_engine *engine,
                          const struct clb_dmat *a,
                          struct clb_dmat_triangle triangle[2]) CLB_MUST_CHECK;

/* Solve a part: `x` has its rows and columns, `row` is its first row in B. */
clb_status clb_solve_part(const struct clb_solve *solve, struct clb_engine *engine,
                          const struct clb_dmat_triangle triangle[2], const struct clb_dmat *x,
                          size_t row) CLB_MUST_CHECK;

/* Interchanges in turn, or backwards, as an order: what is at place i afterwards was at order[i].
 * Owned by the caller; NULL when memory has run out. */
cl_uint *clb_pivot_order(const int64_t *ipiv, size_t n, bool backward);

clb_status clb_solve_run_shared(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_solve *solve) CLB_MUST_CHECK;
clb_status clb_solve_run_stream(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                const struct clb_solve *solve) CLB_MUST_CHECK;

#endif
