/* SPDX-License-Identifier: BSD-3-Clause
 * LAPACK xTRTRI, xLAUUM and xPOTRI in the caller's memory.
 *
 * The comments describe a lower triangle L. Where U is stored, L stands for U^T, and rows and
 * columns are exchanged.
 *
 * The inverse: X*L = I is solved by halves, from the end:
 *
 *     L = [L11 0; L21 L22]:  X22 = L22^-1, X21 = -(X22*L21)*L11^-1, X11 = L11^-1.
 *
 * X21 is a product with the part that is already inverted, and then a solve with the given
 * triangle; diagonal blocks are solved by substitution. So X*L - I (for U, U*X - I) is small
 * componentwise, like the residual of a solve (Du Croz and Higham 1992, method 2C; LAPACK xTRTRI);
 * solving on both sides would multiply the error by the condition number.
 *
 * The product L^H*L, or U*U^H: where kernels skip zeros, L^H is packed as the triangle that it is,
 * and multiplied with itself. Other kernels compute it by block rows: rows [i, i + h) are L(i:n,
 * i:i+h)^H*L(i:n, 0:i+h). The inverse of L*L^H is the inverse followed by the product, since
 * L*L^H*X^H*X - I is L*(R + R^H)*L^-1 where R = X*L - I.
 *
 * Other products are computed in strips. The zeros of triangles in them are multiplied or, by
 * kernels that can, skipped except for the width of a micro-tile. So X has zeros within `base` of
 * its diagonal in the other triangle, and is undefined beyond.
 *
 * A result that is not finite is not written, because that may come from zeros outside the
 * triangle: zero times infinity. */
#include "job.h"

#include <string.h>

/* Columns of one transfer. */
#define COLUMNS ((size_t)512)
/* Columns of the product that a launch computes, at least. */
#define LEAST_COLUMNS ((size_t)128)
/* A strip, in blocks of triangles. */
#define STRIP     ((size_t)4)
#define MOST_ROWS (STRIP * CLB_MAX_BLOCK)

struct inverse_run {
    struct clb_job run;
    const struct clb_call *call;
    size_t base;  /* order of the diagonal blocks */
    size_t strip; /* rows (or columns) of a product; at most base where zeros are multiplied */
    bool cuts;    /* products of the inverse skip zeros */
    const char *kernel;      /* of the products, for reports */
    struct clb_dmat a, x, y; /* the given triangle; its inverse, or a copy of it with zeros in the
                              * other triangle; the product; n x n */
    void *host;              /* discrete: for the result, with the device's leading dimension */
    size_t bytes;            /* of that */
};

/* ---- open ---- */

/* Choose base and strip. Where the family skips zeros, diagonal blocks need zeros beside them only
 * as far as micro-tiles reach over the edge. */
static void choose_blocks(struct inverse_run *inverting)
{
    const struct clb_workspace *workspace = &inverting->run.workspace;
    const struct clb_gemm_variant *variant = workspace->variant;
    size_t reach =
        clb_max(clb_gemm_unit(variant, CLB_OPERAND_A), clb_gemm_unit(variant, CLB_OPERAND_B)) +
        clb_gemm_depth_unit(variant);
    inverting->base = clb_round_up(reach, workspace->block);
    inverting->strip = clb_max(STRIP * workspace->block, inverting->base);
    inverting->cuts = variant->family->has_skip && inverting->strip <= workspace->max_k;
    if (!inverting->cuts)
        inverting->base = inverting->strip = STRIP * workspace->block;
}

static bool inverts(const struct clb_call *call)
{
    return call->kind != CLB_KIND_lauum;
}

static bool multiplies(const struct clb_call *call)
{
    return call->kind != CLB_KIND_trtri;
}

/* The product is computed from a packed triangle. */
static bool squares(const struct inverse_run *inverting)
{
    return multiplies(inverting->call) && inverting->run.variant->family->has_skip;
}

/* Columns of the product that one launch computes from a packed triangle: few, because work-groups
 * in the other triangle cost time, too. */
static size_t square_columns(const struct clb_gemm_variant *variant)
{
    size_t group = clb_max(variant->tuning.value[CLB_PARAM_NC], 1);
    return clb_round_up(clb_round_up(LEAST_COLUMNS, group), clb_gemm_unit(variant, CLB_OPERAND_A));
}

/* Updates of the inverse are at most half as large as the matrix; those of the product have a
 * strip's rows (or columns), or all rows of the packed triangle. */
static struct clb_workspace_limits inverse_limits_of(const struct inverse_run *inverting)
{
    const struct clb_call *call = inverting->call;
    size_t n = call->n, half = clb_min(n / 2 + MOST_ROWS, n), strip = clb_min(n, MOST_ROWS);
    struct clb_workspace_limits limits = {0};
    if (inverts(call))
        limits = (struct clb_workspace_limits){.m = half, .n = half, .k = half, .triangle = n};
    if (squares(inverting)) {
        limits.other_m = limits.other_k = n;
        limits.other_n = clb_min(n, square_columns(inverting->run.variant));
    } else if (multiplies(call)) {
        limits.other_m = call->upper ? n : strip;
        limits.other_n = call->upper ? strip : n;
        limits.other_k = n;
    }
    if (!inverts(call))
        limits = (struct clb_workspace_limits){.m = limits.other_m, .n = limits.other_n, .k = n};
    return limits;
}

/* The product's factor. */
static const struct clb_dmat *product_factor(const struct inverse_run *inverting)
{
    return squares(inverting) && !inverts(inverting->call) ? &inverting->a : &inverting->x;
}

static struct clb_dmat *inverse_result(struct inverse_run *inverting)
{
    return multiplies(inverting->call) ? &inverting->y : &inverting->x;
}

/* Unified memory: the device reads the caller's matrix in place. Discrete memory: block columns are
 * uploaded, and the result's downloaded to the run's host memory. A product overwrites the given
 * matrix where that is the device's and not the factor. */
static clb_status open_matrices(struct inverse_run *inverting)
{
    const struct clb_call *call = inverting->call;
    struct clb_job *run = &inverting->run;
    struct clb_dmat *result = inverse_result(inverting);
    size_t n = call->n;
    clb_status status = run->discrete ? clb_job_matrix(run, &inverting->a) : CLB_OK;
    CLB_THEN(status, clb_job_matrix(run, &inverting->x));
    bool from_a = product_factor(inverting) == &inverting->a;
    if (from_a || run->discrete)
        inverting->y = from_a ? inverting->x : inverting->a;
    else if (status == CLB_OK && multiplies(call))
        status = clb_job_matrix(run, &inverting->y);
    if (status != CLB_OK || !run->discrete)
        return status == CLB_OK ? clb_job_view(run, &inverting->a) : status;
    inverting->bytes = inverting->x.ld * n * run->element;
    inverting->host = clb_host_map(inverting->bytes);
    if (inverting->host == NULL)
        return CLB_ERR_NOMEM;
    status = clb_job_plan(run, 2 * clb_div_up(n, COLUMNS));
    for (size_t k = 0; k < n && status == CLB_OK; k += COLUMNS)
        clb_job_add_triangle(run, false, &inverting->a, call->upper, k, clb_min(COLUMNS, n - k),
                             call->a, call->lda);
    for (size_t k = 0; k < n && status == CLB_OK; k += COLUMNS)
        clb_job_add_triangle(run, true, result, call->upper, k, clb_min(COLUMNS, n - k),
                             inverting->host, result->ld);
    return status == CLB_OK ? clb_job_begin(run) : status;
}

static clb_status inverse_open(struct inverse_run *inverting)
{
    const struct clb_call *call = inverting->call;
    struct clb_job *run = &inverting->run;
    const struct clb_workspace_limits limits = inverse_limits_of(inverting);
    inverting->a = inverting->x = inverting->y =
        (struct clb_dmat){.rows = call->n, .cols = call->n};
    /* Open nothing if the kernel that skips zeros is known to be wrong. */
    CLB_TRY(clb_skip_prepare(run->runtime, run->variant));
    CLB_TRY(clb_job_open(run, &limits));
    inverting->kernel = run->workspace.variant->name;
    choose_blocks(inverting);
    CLB_TRY(clb_skip_prepare(run->runtime, run->workspace.variant));
    return open_matrices(inverting);
}

/* ---- the inverse ---- */

/* A block of L or X, as it is stored. */
static struct clb_dmat stored(const struct inverse_run *inverting, const struct clb_dmat *x,
                              size_t row, size_t col, size_t rows, size_t cols)
{
    return inverting->call->upper ? clb_dmat_part(x, col, row, cols, rows)
                                  : clb_dmat_part(x, row, col, rows, cols);
}

/* The triangle of order m that begins at i, in the order of elimination, from the end: n - (i + m)
 * is a multiple of the block. */
static struct clb_dmat_triangle triangle_at(const struct inverse_run *inverting, size_t i, size_t m)
{
    const struct clb_call *call = inverting->call;
    return (struct clb_dmat_triangle){.a = clb_dmat_part(&inverting->a, i, i, m, m),
                                      .right = !call->upper,
                                      .upper = call->upper,
                                      .unit = call->unit,
                                      .op = CLB_OP_N,
                                      .at = inverting->call->n - i - m};
}

static clb_status invert_block(struct inverse_run *inverting, size_t i, size_t m)
{
    size_t beside = clb_min(inverting->base, inverting->call->n - i - m);
    const struct clb_dmat_triangle triangle = triangle_at(inverting, i, m);
    const struct clb_dmat block = clb_dmat_part(&inverting->x, i, i, m, m);
    const struct clb_dmat around = stored(inverting, &inverting->x, i, i, m, m + beside);
    clb_status status = clb_dmat_trapezoid(&inverting->run.workspace, &around, &around, false);
    return status == CLB_OK ? clb_dmat_solve(&inverting->run.workspace, &triangle, &block) : status;
}

/* X21 = -X22*L21, where X22 begins at i + m1 and has order m2. */
static clb_status multiply_beside(struct inverse_run *inverting, size_t i, size_t m1, size_t m2)
{
    const struct clb_dmat *x = &inverting->x;
    bool upper = inverting->call->upper;
    size_t split = i + m1;
    clb_status status = CLB_OK;
    for (size_t r = 0, h; r < m2 && status == CLB_OK; r += h) {
        h = clb_min(inverting->strip, m2 - r);
        const struct clb_dmat x22 = stored(inverting, x, split + r, split, h, r + h);
        const struct clb_dmat l21 = stored(inverting, &inverting->a, split, i, r + h, m1);
        struct clb_dmat_update update = {.a = upper ? l21 : x22,
                                         .b = upper ? x22 : l21,
                                         .c = stored(inverting, x, split + r, i, h, m1),
                                         .assign = true,
                                         .negate = true};
        if (inverting->cuts)
            update.cut = upper ? (struct clb_skip){.kind = CLB_SKIP_B_END, .b = (ptrdiff_t)r}
                               : (struct clb_skip){.kind = CLB_SKIP_A_END, .a = (ptrdiff_t)r};
        status = clb_dmat_update(&inverting->run.workspace, &update);
    }
    return status;
}

/* Invert the triangle of order m that begins at i. All halves but the first are whole blocks. */
static clb_status invert(struct inverse_run *inverting, size_t i, size_t m)
{
    if (m <= inverting->base)
        return invert_block(inverting, i, m);
    size_t m2 = clb_round_up(m / 2, inverting->base), m1 = m - m2, split = i + m1;
    const struct clb_dmat_triangle triangle = triangle_at(inverting, i, m1);
    const struct clb_dmat beside = stored(inverting, &inverting->x, split, i, m2, m1);
    CLB_TRY(invert(inverting, split, m2));
    CLB_TRY(multiply_beside(inverting, i, m1, m2));
    CLB_TRY(clb_dmat_solve(&inverting->run.workspace, &triangle, &beside));
    return invert(inverting, i, m1);
}

/* ---- the product ---- */

/* The rows of A = X^H, or X, from i0 on, and its depths from p0 on. */
static struct clb_chunk triangle_chunk(const struct inverse_run *inverting, size_t i0, size_t p0)
{
    const struct clb_dmat *x = product_factor(inverting);
    bool upper = inverting->call->upper;
    return (struct clb_chunk){.mem = x->mem,
                              .offset = x->offset + (upper ? i0 + p0 * x->ld : p0 + i0 * x->ld),
                              .ld = x->ld,
                              .depth_contiguous = !upper,
                              .conjugated = !upper,
                              .triangle = CLB_TRIANGLE_HIGH,
                              .diagonal = (ptrdiff_t)i0 - (ptrdiff_t)p0};
}

/* Multiply packed rows [first, end) of A with columns [j0, j0 + cols) of B = A^H, read from A. */
static clb_status square_columns_of(struct inverse_run *inverting, size_t p0, size_t depth,
                                    size_t j0, size_t cols, size_t first, size_t end)
{
    const struct clb_workspace *workspace = &inverting->run.workspace;
    const struct clb_gemm_variant *variant = workspace->variant;
    const struct clb_dmat *y = &inverting->y;
    bool upper = inverting->call->upper;
    struct clb_product product = {
        .n = cols,
        .k = depth,
        .a = workspace->packed_a->mem,
        .b = workspace->packed_a->mem,
        .b_offset = clb_packed_offset(variant, CLB_OPERAND_A, j0, depth),
        .c = y->mem,
        .ldc = y->ld,
        .b_op_of_a = clb_precision_parts(variant->precision) > 1 ? CLB_OP_C : CLB_OP_T,
        .add = p0 + depth < inverting->call->n,
        .cut = {.kind =
                    CLB_SKIP_A_BEGIN | CLB_SKIP_B_BEGIN | (upper ? CLB_SKIP_UPPER : CLB_SKIP_LOWER),
                .b = (ptrdiff_t)j0 - (ptrdiff_t)p0}};
    clb_status status = CLB_OK;
    for (size_t i = first; i < end && status == CLB_OK; i += product.m) {
        product.m = clb_min(workspace->max_m, end - i);
        product.a_offset = clb_packed_offset(variant, CLB_OPERAND_A, i, depth);
        product.c_offset = y->offset + i + j0 * y->ld;
        product.cut.a = (ptrdiff_t)i - (ptrdiff_t)p0;
        product.cut.c = (ptrdiff_t)i - (ptrdiff_t)j0;
        status = clb_gemm_multiply(workspace->queue_set, variant, &product,
                                   (struct clb_order){.queue = workspace->queue});
    }
    return status;
}

/* Y = X^H*X or X*X^H by kernels that skip zeros, in slabs of the depth from the last one on, which
 * alone reaches all of Y. */
static clb_status square_triangle(struct inverse_run *inverting)
{
    const struct clb_workspace *workspace = &inverting->run.workspace;
    const struct clb_gemm_variant *variant = workspace->variant;
    bool upper = inverting->call->upper;
    size_t n = inverting->call->n, width = square_columns(variant);
    size_t unit = clb_gemm_unit(variant, CLB_OPERAND_A);
    size_t slab =
        clb_round_up(clb_div_up(n, clb_div_up(n, workspace->max_k)), clb_gemm_depth_unit(variant));
    clb_status status = CLB_OK;
    for (size_t end = n, p0; end > 0 && status == CLB_OK; end = p0) {
        p0 = (end - 1) / slab * slab;
        const struct clb_chunk chunk = triangle_chunk(inverting, 0, p0);
        status = clb_workspace_pack(workspace, &chunk, end, end - p0, workspace->packed_a->mem, 0);
        for (size_t j = 0, cols; j < end && status == CLB_OK; j += cols) {
            cols = clb_min(width, end - j);
            status = square_columns_of(inverting, p0, end - p0, j, cols, upper ? 0 : j - j % unit,
                                       upper ? j + cols : end);
        }
    }
    return status;
}

/* Y = X^H*X or X*X^H by block rows: one triangle, and the elements of strips beside it. */
static clb_status square_strips(struct inverse_run *inverting)
{
    const struct clb_dmat *x = &inverting->x;
    bool upper = inverting->call->upper;
    size_t n = inverting->call->n;
    clb_status status = CLB_OK;
    for (size_t i = 0, h; i < n && status == CLB_OK; i += h) {
        h = clb_min(inverting->strip, n - i);
        const struct clb_dmat strip = stored(inverting, x, i, i, n - i, h);
        const struct clb_dmat all = stored(inverting, x, i, 0, n - i, i + h);
        const struct clb_dmat_update update = {.a = upper ? all : strip,
                                               .op_a = upper ? CLB_OP_N : CLB_OP_C,
                                               .b = upper ? strip : all,
                                               .op_b = upper ? CLB_OP_C : CLB_OP_N,
                                               .c =
                                                   stored(inverting, &inverting->y, i, 0, h, i + h),
                                               .assign = true};
        status = clb_dmat_update(&inverting->run.workspace, &update);
    }
    return status;
}

/* ---- the run ---- */

static clb_status inverse_compute(struct inverse_run *inverting)
{
    const struct clb_call *call = inverting->call;
    struct clb_job *run = &inverting->run;
    const struct clb_dmat_triangle all = triangle_at(inverting, 0, inverting->call->n);
    clb_status status = CLB_OK;
    for (size_t i = 0; i < run->uploads && status == CLB_OK; i++)
        status = clb_job_await(run, i);
    if (status == CLB_OK && inverts(call)) {
        status = clb_dmat_pack_triangle(&run->workspace, &all);
        CLB_THEN(status, invert(inverting, 0, inverting->call->n));
    } else if (status == CLB_OK && product_factor(inverting) == &inverting->x) {
        status = clb_dmat_triangle_copy(&run->workspace, &inverting->a, &inverting->x, call->upper);
    }
    if (status == CLB_OK && multiplies(call))
        status = squares(inverting) ? square_triangle(inverting) : square_strips(inverting);
    for (size_t i = 0; i < run->downloads && status == CLB_OK; i++)
        status = clb_job_publish(run, i);
    return status;
}

/* Copy the result to the caller's matrix, unless it is not finite: CLB_ERR_RANGE. Of a product the
 * diagonal tells: each entry of the factor is in one of its sums of squares. */
static clb_status inverse_write(const struct inverse_run *inverting, const void *result, size_t ld)
{
    const struct clb_call *call = inverting->call;
    size_t n = call->n;
    const char part = call->unit ? (call->upper ? 'u' : 'l') : (call->upper ? 'U' : 'L');
    bool finite = multiplies(call) ? clb_tile_is_finite(call->precision, 1, n, result, ld + 1)
                                   : clb_triangle_is_finite(call->precision, part, n, result, ld);
    if (!finite)
        return CLB_ERR_RANGE;
    clb_copy_part(call->precision, part, n, n, result, ld, call->a, call->lda);
    /* The diagonal of a product of a matrix with its conjugate transpose is real. */
    const size_t real = clb_precision_real_size(call->precision);
    for (size_t i = 0; multiplies(call) && clb_precision_parts(call->precision) == 2 && i < n; i++)
        memset((char *)call->a + i * (call->lda + 1) * 2 * real + real, 0, real);
    return CLB_OK;
}

/* The view of the caller's matrix is closed first, after all its commands. */
static clb_status inverse_write_mapped(struct inverse_run *inverting)
{
    struct clb_job *run = &inverting->run;
    const struct clb_dmat *result = inverse_result(inverting);
    void *mapped;
    CLB_TRY(clb_job_complete(run));
    CLB_TRY(clb_job_map(run, result, &mapped));
    clb_job_unwrap(run);
    clb_status status = inverse_write(inverting, mapped, result->ld);
    clb_status unmapped = clb_job_unmap(run, result, mapped);
    if (unmapped != CLB_OK)
        clb_log(CLB_LOG_INFO, "inverse: %s after the result was written",
                clb_status_name(unmapped));
    return status;
}

clb_status clb_inverse_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_call *call, const char **kernel)
{
    const struct clb_caller caller = {call->a, call->lda, call->n, false};
    struct inverse_run inverting = {.run = clb_job_on(runtime, variant, call->precision, caller),
                                    .call = call,
                                    .kernel = variant->name};
    struct clb_job *run = &inverting.run;
    clb_status status = inverse_open(&inverting);
    CLB_THEN(status, inverse_compute(&inverting));
    if (status == CLB_OK && !run->discrete)
        status = inverse_write_mapped(&inverting);
    clb_status ended = clb_job_end(run, status);
    if (run->discrete && ended == CLB_OK)
        ended = inverse_write(&inverting, inverting.host, inverting.x.ld);
    if (inverting.host != NULL)
        clb_host_unmap(inverting.host, inverting.bytes);
    clb_job_close(run);
    *kernel = inverting.kernel;
    return run->discrete ? ended : status; /* mapped memory was written before the end */
}
