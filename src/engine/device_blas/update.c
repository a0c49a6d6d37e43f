/* SPDX-License-Identifier: BSD-3-Clause
 * Updates of device matrices by the GEMM kernels, and triangular systems, whose work is updates. */
#include "device_blas.h"

/* ---- updates ---- */

/* The part of x from row (of op(A)) or column (of op(B)) i0 and depth p0 on, for packing. */
static struct clb_chunk chunk_of(const struct clb_dmat *x, clb_operand_role role, clb_op op,
                                 size_t i0, size_t p0)
{
    bool depth_contiguous = (role == CLB_OPERAND_A) == (op != CLB_OP_N);
    size_t first = depth_contiguous ? p0 + i0 * x->ld : i0 + p0 * x->ld;
    return (struct clb_chunk){.mem = x->mem,
                              .offset = x->offset + first,
                              .ld = x->ld,
                              .depth_contiguous = depth_contiguous,
                              .conjugated = op == CLB_OP_C};
}

clb_status clb_workspace_pack(const struct clb_workspace *workspace, const struct clb_chunk *chunk,
                              size_t rows, size_t depth, cl_mem packed, cl_ulong offset)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    clb_status status = CLB_OK;
    for (size_t i0 = 0, some; i0 < rows && status == CLB_OK; i0 += some) {
        struct clb_chunk part = *chunk;
        some = clb_min(workspace->max_m, rows - i0);
        part.offset += i0 * (chunk->depth_contiguous ? chunk->ld : 1);
        part.diagonal += (ptrdiff_t)i0;
        status =
            clb_gemm_pack(workspace->queue_set, variant, CLB_OPERAND_A, &part, some, depth, packed,
                          offset + clb_packed_offset(variant, CLB_OPERAND_A, i0, depth), NULL,
                          (struct clb_order){.queue = workspace->queue});
    }
    return status;
}

static cl_mem packed_a(const struct clb_workspace *workspace, const struct clb_dmat_update *update)
{
    return (update->keep != CLB_PACK_ONCE ? workspace->kept_a : workspace->packed_a)->mem;
}

/* Rows and columns of C for as few launches as possible of at most most_tiles tiles each. */
static void cut_product(const struct clb_workspace *workspace, size_t m, size_t n, size_t *rows,
                        size_t *cols)
{
    size_t unit_m = clb_gemm_unit(workspace->variant, CLB_OPERAND_A);
    size_t unit_n = clb_gemm_unit(workspace->variant, CLB_OPERAND_B);
    size_t high = clb_div_up(m, unit_m), wide = clb_div_up(n, unit_n), fewest = SIZE_MAX;
    for (size_t w = 1; w <= clb_min(wide, workspace->most_tiles); w++) {
        size_t h = workspace->most_tiles / w, launches = clb_div_up(high, h) * clb_div_up(wide, w);
        if (launches <= fewest) {
            fewest = launches;
            *rows = clb_min(clb_min(clb_div_up(high, clb_div_up(high, h)) * unit_m, m),
                            workspace->max_m);
            *cols = clb_min(w * unit_n, n);
        }
    }
}

/* The cut of the part of the product that begins at (row, col) and depth p0. */
static struct clb_skip cut_from(const struct clb_dmat_update *update, size_t row, size_t col,
                                size_t p0)
{
    struct clb_skip cut = update->cut;
    cut.a += (ptrdiff_t)row - (ptrdiff_t)p0;
    cut.b += (ptrdiff_t)col - (ptrdiff_t)p0;
    cut.c += (ptrdiff_t)row - (ptrdiff_t)col;
    return cut;
}

/* Whether in_order is obeyed: on a device with its own memory only for complex precisions. In real
 * ones LU's residual is at most 1.17 times the reference's without, and in_order would cost 2 %. */
static bool keeps_order(const struct clb_workspace *workspace)
{
    return workspace->runtime->device.unified ||
           clb_precision_parts(workspace->variant->precision) > 1;
}

/* How an update is computed. */
struct update_way {
    bool direct; /* B is read unpacked: packing pays when many rows of A are multiplied with it */
    const struct clb_gemm_variant *raw; /* both operands are, by this variant; or NULL */
    size_t part;                        /* see clb_part_depth */
};

/* What leaves units to another queue is not divided, and what is packed for later is packed. */
static struct update_way choose_way(const struct clb_workspace *workspace,
                                    const struct clb_dmat_update *update, size_t depth)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    const size_t m = update->c.rows, n = update->c.cols;
    const size_t units = workspace->runtime->device.units;
    struct update_way way = {0};
    if (update->cut.kind != 0)
        return way;
    way.direct = workspace->direct && update->op_b == CLB_OP_N &&
                 m <= variant->tuning.value[CLB_PARAM_DIRECT];
    if (workspace->direct && update->keep == CLB_PACK_ONCE) {
        const struct clb_gemm_variant *chosen = clb_gemm_for(variant, units, m, n, depth, true);
        if (clb_gemm_reads_raw(chosen))
            variant = way.raw = chosen;
    }
    if (workspace->small_launches == 0 && workspace->parts != NULL)
        way.part = clb_part_depth(variant, units, m, n, depth);
    return way;
}

/* Multiply one slab of the depth, from p0 on, for the part of C at `part`. The packed columns of B
 * begin with j0; B that is not packed is `b`, and with way->raw A is `a`. */
static clb_status multiply_part(struct clb_workspace *workspace,
                                const struct clb_dmat_update *update, const struct update_way *way,
                                const struct clb_chunk *b, const struct clb_rect *part, size_t j0,
                                size_t p0, size_t depth)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    const struct clb_chunk a = chunk_of(&update->a, CLB_OPERAND_A, update->op_a, part->row, p0);
    struct clb_product product = {
        .m = part->rows,
        .n = part->cols,
        .k = depth,
        .a = packed_a(workspace, update),
        .b = workspace->packed_b->mem,
        .c = update->c.mem,
        .a_offset = clb_packed_offset(variant, CLB_OPERAND_A, part->row, depth),
        .b_offset = clb_packed_offset(variant, CLB_OPERAND_B, part->col, depth),
        .c_offset = update->c.offset + part->row + (j0 + part->col) * update->c.ld,
        .ldc = update->c.ld,
        .add = update->assign && p0 > 0,
        .subtract = !update->assign,
        .in_order = update->in_order && keeps_order(workspace),
        .negate = update->negate,
        .part = way->part,
        .parts = way->part != 0 ? workspace->parts->mem : NULL,
        .cut = cut_from(update, part->row, j0 + part->col, p0)};
    if (way->direct || way->raw) {
        product.b = b->mem;
        product.b_offset = b->offset + part->col * (b->depth_contiguous ? b->ld : 1);
        product.ldb = b->ld;
    }
    if (way->raw) {
        variant = way->raw;
        product.raw = true;
        product.a = a.mem;
        product.a_offset = a.offset;
        product.lda = a.ld;
        product.a_depth_contiguous = a.depth_contiguous;
        product.b_depth_contiguous = b->depth_contiguous;
        product.a_conjugated = a.conjugated;
        product.b_conjugated = b->conjugated;
    }
    return clb_gemm_multiply(workspace->queue_set, variant, &product,
                             (struct clb_order){.queue = workspace->queue});
}

/* Multiply one slab of the depth for columns [j0, j0 + cols). */
static clb_status dmat_multiply(struct clb_workspace *workspace,
                                const struct clb_dmat_update *update, const struct update_way *way,
                                size_t j0, size_t cols, size_t p0, size_t depth)
{
    const struct clb_order order = {.queue = workspace->queue};
    struct clb_chunk chunk = chunk_of(&update->b, CLB_OPERAND_B, update->op_b, j0, p0);
    size_t m = update->c.rows, some_rows = 0, some_cols = 0;
    clb_status status = CLB_OK;
    if (!way->direct && !way->raw)
        status = clb_gemm_pack(workspace->queue_set, workspace->variant, CLB_OPERAND_B, &chunk,
                               cols, depth, workspace->packed_b->mem, 0, NULL, order);
    if (workspace->small_launches > 0)
        cut_product(workspace, m, cols, &some_rows, &some_cols);
    for (size_t j = 0, wide; j < cols && status == CLB_OK; j += wide) {
        wide = workspace->small_launches > 0 ? clb_min(some_cols, cols - j) : cols - j;
        for (size_t i = 0, rows; i < m && status == CLB_OK; i += rows) {
            const bool small = workspace->small_launches > 0;
            rows = clb_min(small ? some_rows : workspace->max_m, m - i);
            workspace->small_launches -= small;
            const struct clb_rect part = {i, j, rows, wide};
            status = multiply_part(workspace, update, way, &chunk, &part, j0, p0, depth);
        }
    }
    return status;
}

clb_status clb_dmat_update(struct clb_workspace *workspace, const struct clb_dmat_update *update)
{
    size_t k = update->op_a == CLB_OP_N ? update->a.cols : update->a.rows;
    size_t most = clb_min(clb_min(workspace->max_k, update->depth != 0 ? update->depth : k), k);
    clb_status status = CLB_OK;
    if (update->c.rows == 0 || update->c.cols == 0)
        return CLB_OK;
    const struct update_way way = choose_way(workspace, update, most);
    for (size_t p0 = 0, depth; p0 < k && status == CLB_OK; p0 += depth) {
        depth = clb_min(most, k - p0);
        const struct clb_chunk a = chunk_of(&update->a, CLB_OPERAND_A, update->op_a, 0, p0);
        if (!way.raw && (update->keep != CLB_PACK_KEPT || depth < k))
            status = clb_workspace_pack(workspace, &a, update->c.rows, depth,
                                        packed_a(workspace, update), 0);
        for (size_t j0 = 0, cols; j0 < update->c.cols && status == CLB_OK; j0 += cols) {
            cols = clb_min(workspace->max_n, update->c.cols - j0);
            status = dmat_multiply(workspace, update, &way, j0, cols, p0, depth);
        }
    }
    return status;
}

/* ---- triangular systems ---- */

/* Every case is converted to T*X = B with T lower triangular in the order of elimination: T =
 * op(A), or op(A)^T with the rows of B as right-hand sides; where that is upper triangular the
 * indices are reversed. The recursion halves T: X1 from T11*X1 = B1, then B2 -= T21*X1 by GEMM,
 * then X2, so that most of the work is in deep products. Diagonal blocks are solved by substitution
 * (kernels/trsm.cl). */
struct solve {
    struct clb_workspace *workspace;
    const struct clb_dmat_triangle *triangle;
    const struct clb_dmat *b;
    size_t n; /* order of A */
    bool reversed;
};

static bool trsm_is_reversed(const struct clb_dmat_triangle *triangle)
{
    bool as_stored = triangle->op == CLB_OP_N;
    return triangle->right ? triangle->upper != as_stored : triangle->upper == as_stored;
}

clb_status clb_dmat_pack_triangle(struct clb_workspace *workspace,
                                  const struct clb_dmat_triangle *triangle)
{
    const struct clb_dmat *a = &triangle->a;
    bool reversed = trsm_is_reversed(triangle);
    bool transposed = triangle->right != (triangle->op != CLB_OP_N);
    cl_long row = transposed ? (cl_long)a->ld : 1, col = transposed ? 1 : (cl_long)a->ld;
    const cl_ulong offset = a->offset + (reversed ? (a->rows - 1) * (a->ld + 1) : 0);
    const cl_long ai = reversed ? -row : row, ap = reversed ? -col : col;
    const cl_uint n = (cl_uint)a->rows, conjugate = triangle->op == CLB_OP_C;
    const cl_uint unit = triangle->unit;
    const cl_ulong packed = triangle->at * workspace->block;
    return clb_workspace_launch(workspace, "clb_trsm_pack",
                                CLB_ARGUMENTS(CLB_ARG(a->mem), CLB_ARG(offset), CLB_ARG(ai),
                                              CLB_ARG(ap), CLB_ARG(n), CLB_ARG(conjugate),
                                              CLB_ARG(unit), CLB_ARG(workspace->triangles->mem),
                                              CLB_ARG(packed)));
}

/* Solve with diagonal block [i0, i0 + n) in the order of elimination. */
static clb_status solve_block(const struct solve *solve, size_t i0, size_t n)
{
    struct clb_workspace *workspace = solve->workspace;
    const struct clb_dmat *b = solve->b;
    bool right = solve->triangle->right;
    cl_long step = right ? (cl_long)b->ld : 1;
    size_t first = solve->reversed ? solve->n - 1 - i0 : i0;
    const cl_ulong packed = (solve->triangle->at + i0) * workspace->block,
                   rhs = right ? b->rows : b->cols;
    const cl_ulong offset = b->offset + first * (right ? b->ld : 1);
    const cl_long bi = solve->reversed ? -step : step, br = right ? 1 : (cl_long)b->ld;
    const cl_uint order = (cl_uint)n, unit = solve->triangle->unit;
    return clb_workspace_launch(workspace, "clb_trsm_solve",
                                CLB_ARGUMENTS(CLB_ARG(workspace->triangles->mem), CLB_ARG(packed),
                                              CLB_ARG(order), CLB_ARG(unit), CLB_ARG(rhs),
                                              CLB_ARG(b->mem), CLB_ARG(offset), CLB_ARG(bi),
                                              CLB_ARG(br)));
}

/* Limits for the sums of complex products. The device rounds the real products whose sum a complex
 * one is, the reference that sum. Sums over half the order, whose terms cancel, had 1.3 times its
 * error: so the limit is an eighth. The CPU family's kernel makes short sums anyway. */
#define SUM_MIN   ((size_t)64)
#define SUM_SHARE ((size_t)8)

size_t clb_dmat_sum_depth(const struct clb_workspace *workspace, size_t n)
{
    const struct clb_gemm_variant *variant = workspace->variant;
    if (clb_precision_parts(variant->precision) == 1 || variant->tuning.family == CLB_FAMILY_CPU)
        return 0;
    return clb_round_up(clb_max(n / SUM_SHARE, SUM_MIN), clb_gemm_depth_unit(variant));
}

/* B2 -= T21*X1 for [i0, i0 + n1) and [i0 + n1, i0 + n), in the order of elimination. */
static clb_status trsm_update(const struct solve *solve, size_t i0, size_t n1, size_t n)
{
    const struct clb_dmat_triangle *triangle = solve->triangle;
    const struct clb_dmat *a = &triangle->a, *b = solve->b;
    bool as_stored = triangle->op == CLB_OP_N;
    size_t n2 = n - n1;
    size_t first1 = solve->reversed ? solve->n - i0 - n1 : i0;
    size_t first2 = solve->reversed ? solve->n - i0 - n : i0 + n1;
    /* op(A) has the rows of B2 and those of B1 as columns, or on the right the reverse. */
    const struct clb_dmat t = triangle->right == as_stored
                                  ? clb_dmat_part(a, first1, first2, n1, n2)
                                  : clb_dmat_part(a, first2, first1, n2, n1);
    struct clb_dmat_update update = {
        .depth = triangle->short_sums ? clb_dmat_sum_depth(solve->workspace, solve->n) : 0};
    if (triangle->right) {
        update.a = clb_dmat_part(b, 0, first1, b->rows, n1);
        update.b = t;
        update.op_b = triangle->op;
        update.c = clb_dmat_part(b, 0, first2, b->rows, n2);
    } else {
        update.a = t;
        update.op_a = triangle->op;
        update.b = clb_dmat_part(b, first1, 0, n1, b->cols);
        update.c = clb_dmat_part(b, first2, 0, n2, b->cols);
    }
    return clb_dmat_update(solve->workspace, &update);
}

static clb_status solve_range(const struct solve *solve, size_t i0, size_t n)
{
    size_t block = solve->workspace->block;
    if (n <= block)
        return solve_block(solve, i0, n);
    size_t n1 = clb_round_up(n / 2, block);
    CLB_TRY(solve_range(solve, i0, n1));
    CLB_TRY(trsm_update(solve, i0, n1, n));
    return solve_range(solve, i0 + n1, n - n1);
}

clb_status clb_dmat_solve(struct clb_workspace *workspace, const struct clb_dmat_triangle *triangle,
                          const struct clb_dmat *b)
{
    const struct solve solve = {workspace, triangle, b, triangle->a.rows,
                                trsm_is_reversed(triangle)};
    if (b->rows == 0 || b->cols == 0)
        return CLB_OK;
    return solve_range(&solve, 0, solve.n);
}

/* All halves but the last are whole blocks. */
struct clb_workspace_limits clb_solve_limits(size_t n, bool right, size_t rhs)
{
    size_t half = clb_min(n / 2 + CLB_MAX_BLOCK, n);
    return (struct clb_workspace_limits){
        .m = right ? rhs : half, .n = right ? half : rhs, .k = half, .triangle = n};
}
