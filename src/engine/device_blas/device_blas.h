/* device_blas: operations on matrices in the device's memory, in place.
 * SPDX-License-Identifier: BSD-3-Clause
 * They are enqueued on one in-order queue, so that they follow each other without events. Other
 * memory that they need belongs to the workspace, which a run opens for its largest sizes. */
#ifndef CLB_DEVICE_BLAS_H
#define CLB_DEVICE_BLAS_H

#include "engine/kernel/kernel.h"

/* A leading dimension for `rows` rows: whole cache lines, and not a multiple of a large power of
 * two, with which the columns of a tile would compete for few sets of a cache. */
size_t clb_dmat_ld(size_t rows, size_t element);

/* ---- workspace.c ---- */

/* Most interchanges that one launch applies. */
#define CLB_MAX_SWAPS ((size_t)1024)
/* The largest diagonal block of a triangle. */
#define CLB_MAX_BLOCK ((size_t)256)

/* The largest sizes of a run: m, n and k of an update C -= op(A)*op(B), rows of C in updates that
 * keep the packed A, order of a triangle; m, n and k of updates of another shape, or 0. */
struct clb_workspace_limits {
    size_t m, n, k, kept_m, triangle;
    size_t other_m, other_n, other_k;
};

struct clb_workspace {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant; /* not of a split family */
    struct clb_program *program;            /* trsm.cl */
    size_t groups, group;       /* work-groups of every launch of it, always the same number (see
                                 * prelaunch.c), and work-items of a group */
    size_t block;               /* order of a diagonal block of triangles */
    size_t max_m, max_n, max_k; /* limits of one GEMM launch */
    bool direct;                /* B may be read unpacked */
    struct clb_queue_set *queue_set;
    struct clb_queue *queue; /* queue_set's queue for kernels */
    /* The next small_launches GEMM launches have at most most_tiles tiles each, to leave part of
     * the device to another queue. */
    size_t small_launches, most_tiles;
    struct clb_buffer *packed_a, *packed_b, *kept_a, *triangles, *moves, *moves_host;
    struct clb_buffer *parts; /* for clb_product, or NULL */
};

/* The first call builds and checks the kernels. clb_workspace_prepare does only that, for callers
 * that must know early whether to decline. CLB_ERR_UNSUPPORTED: they don't work. On failure nothing
 * is held. Only the checks themselves open one that is not `checked`. */
clb_status clb_workspace_prepare(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_workspace_open(struct clb_workspace *workspace, struct clb_runtime *runtime,
                              const struct clb_gemm_variant *variant,
                              const struct clb_workspace_limits *limits,
                              bool checked) CLB_MUST_CHECK;
/* Wait for the queue_set. False: some commands may still be running. */
bool clb_workspace_finish(struct clb_workspace *workspace);
/* `idle`, here and in other functions: no enqueued command is still running. */
void clb_workspace_close(struct clb_workspace *workspace, bool idle);

/* Launch a kernel of workspace->program, or of any with so many groups of so many work-items. */
clb_status clb_workspace_launch(struct clb_workspace *workspace, const char *name,
                                const struct clb_argument *arguments, size_t count) CLB_MUST_CHECK;
clb_status clb_workspace_launch_groups(struct clb_workspace *workspace, struct clb_program *program,
                                       const char *name, size_t groups, size_t group,
                                       struct clb_order order, const struct clb_argument *arguments,
                                       size_t count) CLB_MUST_CHECK;

#define CLB_PLACE(x) CLB_ARG((x)->mem), CLB_ARG((x)->offset), CLB_ARG((x)->ld)

/* ---- rows that change place; copies ---- */

/* Row `from` is copied to row `to`; UINT32_MAX: none. All moves of an operation happen at once. */
struct clb_move {
    cl_uint to, from;
};

/* Send the first `count` moves in workspace->moves_host, which may be overwritten when this
 * transfer is complete; apply them to the rows of x; copy x to y and apply them. */
clb_status clb_dmat_send_moves(struct clb_workspace *workspace, size_t count) CLB_MUST_CHECK;
clb_status clb_dmat_move(struct clb_workspace *workspace, const struct clb_dmat *x,
                         size_t count) CLB_MUST_CHECK;
clb_status clb_dmat_move_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, size_t count) CLB_MUST_CHECK;
/* Apply moves that are on the device, from number `first` on. The `gap` columns of x behind the
 * first `before` are left out and not counted in x->cols. */
struct clb_moves {
    cl_mem mem;
    size_t first, count;
};
clb_status clb_dmat_move_by(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_moves *moves, size_t before,
                            size_t gap) CLB_MUST_CHECK;
/* y(i, j) = x(order[i], j); `order` holds a cl_uint for every row of y. */
clb_status clb_dmat_permute(struct clb_workspace *workspace, const struct clb_dmat *x,
                            const struct clb_dmat *y, cl_mem order) CLB_MUST_CHECK;

/* In larfb.c; x and y don't overlap. y = the unit lower trapezoid of x, with zeros instead of x's
 * elements without `below`. */
clb_status clb_dmat_trapezoid(struct clb_workspace *workspace, const struct clb_dmat *x,
                              const struct clb_dmat *y, bool below) CLB_MUST_CHECK;
/* y = one triangle of the square x, with zeros in the other. */
clb_status clb_dmat_triangle_copy(struct clb_workspace *workspace, const struct clb_dmat *x,
                                  const struct clb_dmat *y, bool upper) CLB_MUST_CHECK;

/* ---- update.c ---- */

/* C -= op(A)*op(B); with `assign` C = op(A)*op(B), with `negate` too C = -op(A)*op(B). KEEP packs
 * A, of depth max_k at most, into memory that no other operation uses, and KEPT says that it is
 * there from an earlier call, so that several updates pack A once.
 *
 * With `in_order` each product is subtracted from C by itself. In LU, C is what many updates have
 * left of larger numbers; partial sums of one update's products would be larger than C, and their
 * rounding errors would stay (1.3 times the reference's residual in complex precisions at n =
 * 1024). Where C is larger, as right-hand sides mostly are, subtracting the sum is more accurate.
 *
 * `cut` is for the whole product, and only for families that have a kernel for it, prepared by
 * clb_skip_prepare. The first max_k depths must cover all wanted elements of C. What is within a
 * micro-tile of the zeros' edge is multiplied, hence must be zeros in memory. */
enum clb_keep { CLB_PACK_ONCE, CLB_PACK_KEEP, CLB_PACK_KEPT };
struct clb_dmat_update {
    struct clb_dmat a, b, c;
    clb_op op_a, op_b;
    enum clb_keep keep;
    bool assign, negate, in_order;
    size_t depth; /* at most so many products are summed before they are added to C; 0: any */
    struct clb_skip cut;
};
clb_status clb_dmat_update(struct clb_workspace *workspace,
                           const struct clb_dmat_update *update) CLB_MUST_CHECK;

/* Pack rows of A, for products that the caller enqueues, by as few launches as possible. */
clb_status clb_workspace_pack(const struct clb_workspace *workspace, const struct clb_chunk *chunk,
                              size_t rows, size_t depth, cl_mem packed,
                              cl_ulong offset) CLB_MUST_CHECK;

/* The most products that may be summed before they are subtracted from right-hand sides of a system
 * of order n; 0: any number. See update.c. */
size_t clb_dmat_sum_depth(const struct clb_workspace *workspace, size_t n);

/* op(A)*X = B or X*op(A) = B; X overwrites B. `short_sums` limits sums by clb_dmat_sum_depth, where
 * the residual AX - B is to be as small as the reference's. */
struct clb_dmat_triangle {
    struct clb_dmat a;
    bool right, upper, unit, short_sums;
    clb_op op;
    size_t at; /* position of its packed blocks, in rows of `triangles`; a multiple of
                * workspace->block */
};
/* Pack the diagonal blocks; any number of solves may use them then. */
clb_status clb_dmat_pack_triangle(struct clb_workspace *workspace,
                                  const struct clb_dmat_triangle *triangle) CLB_MUST_CHECK;
clb_status clb_dmat_solve(struct clb_workspace *workspace, const struct clb_dmat_triangle *triangle,
                          const struct clb_dmat *b) CLB_MUST_CHECK;

/* The workspace limits for a solve of order n with `rhs` right-hand sides. */
struct clb_workspace_limits clb_solve_limits(size_t n, bool right, size_t rhs);

/* ---- getf2.c ----
 *
 * Panels of LU factored by the device, where it is so fast that the CPU would delay it. */

struct clb_getf2 {
    struct clb_program *program;
    size_t width, block, group; /* columns of a strip and of a block of strips, rows of a group */
    size_t most_groups; /* most work-groups of a launch; 1 where groups can't wait for each other */
    size_t rows, cols;  /* rows of the matrix, and columns of it that get a pivot */
    struct clb_buffer *aside, *exchange, *state, *order, *moves;
    cl_int *state_host;
    cl_uint tag; /* of the last launch; marks words in `exchange` as new */
};

/* Prepare to factor panels of a matrix of `rows` rows and `cols` columns with a pivot.
 * CLB_ERR_UNSUPPORTED when the device can't, or computed a test panel wrongly. The workspace must
 * be open for updates of `rows` rows by as many columns and depths as the widest panel has, and for
 * CLB_MAX_BLOCK rows of a triangle. On failure nothing is held. */
clb_status clb_getf2_open(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                          size_t cols) CLB_MUST_CHECK;
void clb_getf2_close(struct clb_getf2 *panel, struct clb_workspace *workspace, bool idle);

/* For the checks: open without a test. */
clb_status clb_getf2_prepare(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t rows,
                             size_t cols) CLB_MUST_CHECK;

/* Enqueue the factorisation in place of the panel of x that begins at (first, first) (LAPACK
 * xGETRF). Rows of its `width` columns only are interchanged. Panels must come from left to right,
 * each once. Overwrites the first CLB_MAX_BLOCK rows of the workspace's triangles. */
clb_status clb_getf2_enqueue(struct clb_getf2 *panel, struct clb_workspace *workspace,
                             const struct clb_dmat *x, size_t first, size_t width) CLB_MUST_CHECK;

/* The interchanges of an enqueued panel as moves on the device, for clb_dmat_move_by. */
struct clb_moves clb_getf2_moves(const struct clb_getf2 *panel, size_t first, size_t width);

/* Wait for the panels, and read the pivots of columns [first, first + count), 1-based and counted
 * from the first row of x; *info: 0, or the first column (1-based) of all so far with a pivot 0. */
clb_status clb_getf2_read(struct clb_getf2 *panel, struct clb_workspace *workspace, size_t first,
                          size_t count, int64_t *ipiv, size_t *info) CLB_MUST_CHECK;

/* ---- programs.c ---- */

/* Begin a workspace or a panel: a variant's programs and the sizes compiled into them. */
clb_status clb_workspace_choose(struct clb_workspace *workspace, struct clb_runtime *runtime,
                                const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_getf2_choose(struct clb_getf2 *panel,
                            const struct clb_workspace *workspace) CLB_MUST_CHECK;
/* The variant itself, or that of a split family for what the family does not compute. */
static inline const struct clb_gemm_variant *
clb_plain_variant(const struct clb_gemm_variant *variant)
{
    return variant->split ? variant->plain : variant;
}
/* For the checks: set the sizes of strips and groups. */
void clb_getf2_set_shape(struct clb_getf2 *panel, const struct clb_device *device,
                         const struct clb_gemm_variant *variant);

/* ---- checks.c ---- */

/* Build, launch and check the kernels, once for each precision (clb_check_once). */
clb_status clb_workspace_check(struct clb_runtime *runtime,
                               const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
clb_status clb_getf2_check(struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant) CLB_MUST_CHECK;
/* Begun ones of the variant that all calls of a precision have, whose kernels have passed. NULL:
 * not yet, or another's have. */
extern const struct clb_workspace *_Atomic clb_known_workspaces[CLB_PRECISIONS];
extern const struct clb_getf2 *_Atomic clb_known_panels[CLB_PRECISIONS];

#endif
