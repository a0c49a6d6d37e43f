/* dmat: matrices in the device's memory, and what is computed on them in place.
 *
 * Everything here is enqueued on one in-order queue, so that operations follow each other without
 * events; the memory that they need beside the matrices is the workspace's, which a run opens for
 * the largest sizes that it will ask for. */
#ifndef CLB_DMAT_H
#define CLB_DMAT_H

#include "algo.h"

/* A column-major matrix, or part of one: element (i, j) is at offset + i + j*ld of the buffer.
 * Everything counts elements. */
struct clb_dmat {
    cl_mem mem;
    size_t offset, rows, cols, ld;
};

static inline struct clb_dmat clb_dmat_part(const struct clb_dmat *x, size_t row, size_t col,
                                            size_t rows, size_t cols)
{
    return (struct clb_dmat){x->mem, x->offset + row + col * x->ld, rows, cols, x->ld};
}

/* A leading dimension for `rows` rows in the shim's own memory: whole cache lines, and no power of
 * two, at which the columns of a tile would share few places of a cache. */
size_t clb_dmat_ld(size_t rows, size_t element);

/* ---- workspace.c --------------------------------------------------------------------------------
 */

/* Most interchanges that are applied at once. */
#define CLB_MAX_SWAPS ((size_t)1024)
/* The largest diagonal block of a triangle. */
#define CLB_MAX_BLOCK ((size_t)256)

/* Most of what a run will ask for: extents of an update C -= op(A)*op(B), rows of C where A is
 * kept, the order of a triangle; and extents of updates of another shape, 0 where there are none.
 */
struct clb_workspace_limits {
    size_t m, n, k, kept_m, triangle;
    size_t other_m, other_n, other_k;
};

struct clb_workspace {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant; /* never a split one */
    struct clb_queue_set *queue_set;
    struct clb_queue *queue; /* the queue_set's, for kernels */
    struct clb_program *trsm, *laswp;
    size_t groups, group; /* of a launch of these, always the same, see prelaunch.c; work-items */
    size_t block;         /* order of a diagonal block */
    size_t max_m, max_n, max_k; /* most of one launch of the product's kernels */
    /* So many of the next launches of products have at most so many tiles: the rest of the device
     * is for another queue. */
    size_t small_launches, most_tiles;
    struct clb_buffer *packed_a, *packed_b, *kept_a, *triangles, *moves, *moves_host;
};

/* Whether the workspace's kernels are good: once it is known that they are not, a call is declined
 * by this before anything is prepared. CLB_ERR_UNSUPPORTED when they don't build or miscalculate.
 */
clb_status clb_workspace_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
/* On failure nothing is held. */
clb_status clb_workspace_open(struct clb_workspace *workspace, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant,
                              const struct clb_workspace_limits *limits) CLB_MUST_CHECK;
clb_status clb_workspace_open_unchecked(struct clb_workspace *workspace,
                                        struct clb_runtime *runtime,
                                        const struct clb_gemm_variant *variant,
                                        const struct clb_workspace_limits *limits) CLB_MUST_CHECK;
/* trsm_check.c: build, launch and check the kernels, by the first caller of each precision. */
clb_status clb_workspace_check(struct clb_runtime *runtime,
                               const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
/* Wait for the queue_set. False: what was enqueued may still be under way. */
bool clb_workspace_finish(struct clb_workspace *workspace);
/* `idle`: nothing is under way. */
void clb_workspace_close(struct clb_workspace *workspace, bool idle);

/* ---- dmat.c, trsm.c -------------------------------------------------------------------------- */

/* C -= op(A)*op(B), or C = op(A)*op(B) with `assign`, or C = -op(A)*op(B) with `negate` too. With
 * `keep` the packed form of A stays where no other operation uses it, and with `kept` it is there
 * from an earlier call: for one A and several B, between which there may be solves (only where the
 * depth is at most max_k).
 *
 * With `in_order` products are subtracted one after the other: where C is what many updates have
 * left of larger numbers, as in LU, the sum of one update's products would have larger partial sums
 * than C has, and their errors would stay (1.3 times the reference's residual in complex precisions
 * at n = 1024). Where C is larger than the sums, as right-hand sides mostly are, they are better
 * subtracted at once.
 *
 * The cut, of the whole product, is for families that have a kernel for it, prepared by
 * clb_skip_prepare. The first max_k depths must reach all that is wanted of C, and what is within a
 * micro-tile of the zeros' edge is multiplied, hence must be zeros in memory. */
struct clb_dmat_update {
    struct clb_dmat a, b, c;
    clb_op op_a, op_b;
    bool keep, kept, assign, negate, in_order;
    size_t depth; /* at most, of products that are summed before they are added to C; 0: any */
    struct clb_skip cut;
};
clb_status clb_dmat_update(struct clb_workspace *workspace,
                           const struct clb_dmat_update *update) CLB_MUST_CHECK;

/* The most products of a system of order n that are summed before they are subtracted from
 * right-hand sides, where that matters; 0: any number. */
size_t clb_dmat_sum_depth(const struct clb_workspace *workspace, size_t n);

/* op(A)*X = B or X*op(A) = B; X overwrites B. For right-hand sides, whose AX - B is to be the
 * reference's, `short_sums` cuts the products' sums where that needs it (trsm.c). */
struct clb_dmat_triangle {
    struct clb_dmat a;
    bool right, upper, unit, short_sums;
    clb_op op;
    size_t
        at; /* where its packed blocks are, in rows of triangles; a multiple of workspace->block */
};
/* First the diagonal blocks are packed, then any number of solves may use them. */
clb_status clb_dmat_pack_triangle(struct clb_workspace *workspace,
                                  const struct clb_dmat_triangle *triangle) CLB_MUST_CHECK;
clb_status clb_dmat_solve(struct clb_workspace *workspace, const struct clb_dmat_triangle *triangle,
                          const struct clb_dmat *b) CLB_MUST_CHECK;

/* What a solve of order n with `rhs` right-hand sides asks of the workspace. */
struct clb_workspace_limits clb_solve_limits(size_t n, bool right, size_t rhs);

/* ---- laswp.c --------------------------------------------------------------------------------- */

/* Row `from` goes to row `to`, all at once. */
struct clb_move {
    cl_uint to, from;
};

/* Turns interchanges into moves: rows 0 ... rows-1 where nothing has moved. */
struct clb_row_permutation {
    cl_uint *row;
};
clb_status clb_row_permutation_make(struct clb_row_permutation *permutation,
                                    size_t rows) CLB_MUST_CHECK;
void clb_row_permutation_free(struct clb_row_permutation *permutation);

/* The interchanges first+i <-> ipiv[i] - 1 for i = 0 ... count-1 in turn as moves of the rows that
 * change place, at most 2*count; count <= CLB_MAX_SWAPS. */
size_t clb_row_permutation_moves(struct clb_row_permutation *permutation, const int64_t *ipiv,
                                 size_t first, size_t count, struct clb_move *moves);

/* The moves of the operations that follow: written to workspace->moves_host, then sent. The last
 * ones must have been sent when new ones are written. */
clb_status clb_dmat_send_moves(struct clb_workspace *workspace, size_t count) CLB_MUST_CHECK;
/* Apply the moves that were sent to the rows of x; the same from x to y. */
clb_status clb_dmat_move(struct clb_workspace *workspace, const struct clb_dmat *x,
                         size_t count) CLB_MUST_CHECK;
/* The same by moves that are on the device: `count` from number `first` on, of which those to row
 * CLB_NOWHERE are none. Left out, and not counted among the columns of x, are the `gap` columns
 * behind the first `before`. */
#define CLB_NOWHERE UINT32_MAX
struct clb_moves {
    cl_mem mem;
    size_t first, count;
};
clb_status clb_dmat_move_by(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_moves *moves, size_t before,
                            size_t gap) CLB_MUST_CHECK;
clb_status clb_dmat_move_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, size_t count) CLB_MUST_CHECK;
/* y(i, j) = x(order[i], j); `order` holds a cl_uint for every row of y. */
clb_status clb_dmat_permute(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_dmat *y, cl_mem order) CLB_MUST_CHECK;

/* y = the unit lower trapezoid of x, of the shape of y: zeros above the diagonal, ones on it, below
 * it what x has, or zeros without `below`. They don't overlap. */
clb_status clb_dmat_trapezoid(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, bool below) CLB_MUST_CHECK;
/* y = the triangle of a square x, zeros beside it. They don't overlap. */
clb_status clb_dmat_triangle_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                                  const struct clb_dmat *y, bool upper) CLB_MUST_CHECK;

#endif
