/* Updates of device matrices by the GEMM kernels. */
#include "dense.h"

/* The part of x from row (of op(A)) or column (of op(B)) i0 and depth p0 on, as a chunk for
 * packing. */
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

static cl_mem packed_a(const struct clb_workspace *workspace, const struct clb_dmat_update *update)
{
    return (update->keep || update->kept ? workspace->kept_a : workspace->packed_a)->mem;
}

static clb_status pack_a(struct clb_workspace *workspace, const struct clb_dmat_update *update,
                         size_t p0, size_t depth)
{
    clb_status status = CLB_OK;
    for (size_t i0 = 0; i0 < update->c.rows && status == CLB_OK;) {
        size_t rows = clb_min(workspace->max_m, update->c.rows - i0);
        struct clb_chunk chunk = chunk_of(&update->a, CLB_OPERAND_A, update->op_a, i0, p0);
        status = clb_gemm_pack(workspace->queue_set, workspace->variant, CLB_OPERAND_A, &chunk,
                               rows, depth, packed_a(workspace, update),
                               clb_packed_offset(workspace->variant, CLB_OPERAND_A, i0, depth),
                               NULL, (struct clb_order){.queue = workspace->queue});
        i0 += rows;
    }
    return status;
}

/* Whether B is read without packing, where it is better: packing pays when every packed element is
 * multiplied by many rows of A. */
static bool dmat_is_direct(const struct clb_workspace *workspace,
                           const struct clb_dmat_update *update)
{
    return workspace->variant->family->has_direct && update->op_b == CLB_OP_N &&
           update->cut.kind == 0 &&
           update->c.rows <= workspace->variant->tuning.value[CLB_PARAM_DIRECT];
}

/* Choose rows and columns of C for one launch, so that each has at most most_tiles tiles and there
 * are as few launches as possible. */
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

/* Whether in_order is obeyed. On a device with its own memory it is not for real precisions, which
 * sum a block's products first: LU's residual is at most 1.17 times the reference's then (H200, n =
 * 16384), and in_order would cost 2 % (dgetrf, n = 8192). In complex precisions the residual would
 * be 1.3 times the reference's. */
static bool keeps_order(const struct clb_workspace *workspace)
{
    return workspace->runtime->device.unified ||
           clb_precision_parts(workspace->variant->precision) > 1;
}

/* Multiply one slab of the depth, from p0 on, for the part of C at `part`. The packed columns of B
 * begin with column j0. `direct`: B in memory from there on; NULL where B is packed. */
static clb_status multiply_part(struct clb_workspace *workspace,
                                const struct clb_dmat_update *update,
                                const struct clb_chunk *direct, const struct clb_rect *part,
                                size_t j0, size_t p0, size_t depth)
{
    const struct clb_product product = {
        .m = part->rows,
        .n = part->cols,
        .k = depth,
        .a = packed_a(workspace, update),
        .b = direct != NULL ? direct->mem : workspace->packed_b->mem,
        .c = update->c.mem,
        .a_offset = clb_packed_offset(workspace->variant, CLB_OPERAND_A, part->row, depth),
        .b_offset = direct != NULL
                        ? direct->offset + part->col * direct->ld
                        : clb_packed_offset(workspace->variant, CLB_OPERAND_B, part->col, depth),
        .ldb = direct != NULL ? direct->ld : 0,
        .c_offset = update->c.offset + part->row + (j0 + part->col) * update->c.ld,
        .ldc = update->c.ld,
        .add = update->assign && p0 > 0,
        .subtract = !update->assign,
        .in_order = update->in_order && keeps_order(workspace),
        .negate = update->negate,
        .cut = cut_from(update, part->row, j0 + part->col, p0)};
    return clb_gemm_multiply(workspace->queue_set, workspace->variant, &product,
                             (struct clb_order){.queue = workspace->queue});
}

/* Multiply one slab of the depth for columns [j0, j0 + cols). */
static clb_status dmat_multiply(struct clb_workspace *workspace,
                                const struct clb_dmat_update *update, size_t j0, size_t cols,
                                size_t p0, size_t depth)
{
    const struct clb_order order = {.queue = workspace->queue};
    struct clb_chunk chunk = chunk_of(&update->b, CLB_OPERAND_B, update->op_b, j0, p0);
    bool direct = dmat_is_direct(workspace, update);
    size_t m = update->c.rows, some_rows = 0, some_cols = 0;
    clb_status status = CLB_OK;
    if (!direct)
        status = clb_gemm_pack(workspace->queue_set, workspace->variant, CLB_OPERAND_B, &chunk,
                               cols, depth, workspace->packed_b->mem, 0, NULL, order);
    if (workspace->small_launches > 0)
        cut_product(workspace, m, cols, &some_rows, &some_cols);
    for (size_t j = 0, wide; j < cols && status == CLB_OK; j += wide) {
        wide = workspace->small_launches > 0 ? clb_min(some_cols, cols - j) : cols - j;
        for (size_t i = 0, rows; i < m && status == CLB_OK; i += rows) {
            bool small = workspace->small_launches > 0;
            rows = clb_min(small ? some_rows : workspace->max_m, m - i);
            workspace->small_launches -= small;
            const struct clb_rect part = {i, j, rows, wide};
            status = multiply_part(workspace, update, direct ? &chunk : NULL, &part, j0, p0, depth);
        }
    }
    return status;
}

clb_status clb_dmat_update(struct clb_workspace *workspace, const struct clb_dmat_update *update)
{
    size_t k = update->op_a == CLB_OP_N ? update->a.cols : update->a.rows;
    size_t most = clb_min(workspace->max_k, update->depth != 0 ? update->depth : k);
    clb_status status = CLB_OK;
    if (update->c.rows == 0 || update->c.cols == 0)
        return CLB_OK;
    for (size_t p0 = 0; p0 < k && status == CLB_OK;) {
        size_t depth = clb_min(most, k - p0);
        if (!update->kept || depth < k)
            status = pack_a(workspace, update, p0, depth);
        for (size_t j0 = 0; j0 < update->c.cols && status == CLB_OK;) {
            size_t cols = clb_min(workspace->max_n, update->c.cols - j0);
            status = dmat_multiply(workspace, update, j0, cols, p0, depth);
            j0 += cols;
        }
        p0 += depth;
    }
    return status;
}
