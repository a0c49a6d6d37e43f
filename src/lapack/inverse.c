/* LAPACK xTRTRI, xLAUUM and xPOTRI: the steps on the device's matrices. inverse.h has the scheme.
 */
#include "inverse.h"

#include <string.h>

/* A strip, in blocks of triangles. */
#define STRIP     ((size_t)4)
#define MOST_ROWS (STRIP * CLB_MAX_BLOCK)

/* ---- open ------------------------------------------------------------------------------------ */

/* Choose base and strip. Where the family skips zeros, diagonal blocks need zeros beside them only
 * as far as micro-tiles reach over the edge. */
static void choose_blocks(struct clb_inverse_state *inverting)
{
    const struct clb_workspace *workspace = &inverting->workspace;
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

/* Updates of the inverse are at most half as large as the matrix; those of the product have a
 * strip's rows (or columns). */
static struct clb_workspace_limits inverse_limits_of(const struct clb_inverse *problem)
{
    size_t n = problem->n, half = clb_min(n / 2 + MOST_ROWS, n), strip = clb_min(n, MOST_ROWS);
    struct clb_workspace_limits limits = {0};
    if (problem->inverts)
        limits = (struct clb_workspace_limits){.m = half, .n = half, .k = half, .triangle = n};
    if (problem->multiplies) {
        limits.other_m = problem->upper ? n : strip;
        limits.other_n = problem->upper ? strip : n;
        limits.other_k = n;
    }
    if (!problem->inverts)
        limits = (struct clb_workspace_limits){.m = limits.other_m, .n = limits.other_n, .k = n};
    return limits;
}

clb_status clb_inverting_open(struct clb_inverse_state *inverting,
                              const struct clb_gemm_variant *variant)
{
    const struct clb_inverse *problem = inverting->problem;
    const struct clb_workspace_limits limits = inverse_limits_of(problem);
    size_t n = problem->n;
    inverting->element = clb_precision_size(problem->precision);
    inverting->n = n;
    inverting->a =
        (struct clb_dmat){.rows = n, .cols = n, .ld = clb_dmat_ld(n, inverting->element)};
    inverting->x = inverting->y = inverting->a;
    /* Open nothing if the kernel that skips zeros is known to be wrong. */
    clb_status status = clb_skip_prepare(inverting->runtime, variant);
    if (status == CLB_OK)
        status = clb_workspace_open(&inverting->workspace, inverting->runtime, variant, &limits);
    if (status != CLB_OK)
        return status;
    inverting->kernel = inverting->workspace.variant->name;
    choose_blocks(inverting);
    return clb_skip_prepare(inverting->runtime, inverting->workspace.variant);
}

/* ---- the inverse ----------------------------------------------------------------------------- */

/* The block on the diagonal that begins at (i, i). */
static struct clb_dmat square(const struct clb_dmat *x, size_t i, size_t order)
{
    return clb_dmat_part(x, i, i, order, order);
}

/* The triangle of order m that begins at i, in the order of elimination, which is from the end: n -
 * (i + m) is a multiple of the block. */
static struct clb_dmat_triangle triangle_at(const struct clb_inverse_state *inverting, size_t i,
                                            size_t m)
{
    const struct clb_inverse *problem = inverting->problem;
    return (struct clb_dmat_triangle){.a = square(&inverting->a, i, m),
                                      .right = !problem->upper,
                                      .upper = problem->upper,
                                      .unit = problem->unit,
                                      .op = CLB_OP_N,
                                      .at = inverting->n - i - m};
}

static clb_status invert_block(struct clb_inverse_state *inverting, size_t i, size_t m)
{
    bool upper = inverting->problem->upper;
    size_t beside = clb_min(inverting->base, inverting->n - i - m);
    const struct clb_dmat_triangle triangle = triangle_at(inverting, i, m);
    const struct clb_dmat block = square(&inverting->x, i, m);
    const struct clb_dmat around =
        clb_dmat_part(&inverting->x, i, i, m + (upper ? beside : 0), m + (upper ? 0 : beside));
    clb_status status = clb_dmat_trapezoid(&inverting->workspace, &around, &around, false);
    return status == CLB_OK ? clb_dmat_solve(&inverting->workspace, &triangle, &block) : status;
}

/* X21 = -X22*L21, or -U12*X22, where X22 begins at i + m1 and has order m2. */
static clb_status multiply_beside(struct clb_inverse_state *inverting, size_t i, size_t m1,
                                  size_t m2)
{
    const struct clb_dmat *a = &inverting->a, *x = &inverting->x;
    bool upper = inverting->problem->upper;
    size_t split = i + m1;
    clb_status status = CLB_OK;
    for (size_t r = 0, h; r < m2 && status == CLB_OK; r += h) {
        h = clb_min(inverting->strip, m2 - r);
        struct clb_dmat_update update = {.assign = true, .negate = true};
        if (upper) {
            update.a = clb_dmat_part(a, i, split, m1, r + h);
            update.b = clb_dmat_part(x, split, split + r, r + h, h);
            update.c = clb_dmat_part(x, i, split + r, m1, h);
            update.cut = (struct clb_skip){.kind = CLB_SKIP_B_END, .b = (ptrdiff_t)r};
        } else {
            update.a = clb_dmat_part(x, split + r, split, h, r + h);
            update.b = clb_dmat_part(a, split, i, r + h, m1);
            update.c = clb_dmat_part(x, split + r, i, h, m1);
            update.cut = (struct clb_skip){.kind = CLB_SKIP_A_END, .a = (ptrdiff_t)r};
        }
        if (!inverting->cuts)
            update.cut.kind = 0;
        status = clb_dmat_update(&inverting->workspace, &update);
    }
    return status;
}

/* Invert the triangle of order m that begins at i. All halves but the first are whole blocks. */
static clb_status invert(struct clb_inverse_state *inverting, size_t i, size_t m)
{
    bool upper = inverting->problem->upper;
    if (m <= inverting->base)
        return invert_block(inverting, i, m);
    size_t m2 = clb_round_up(m / 2, inverting->base), m1 = m - m2, split = i + m1;
    const struct clb_dmat_triangle triangle = triangle_at(inverting, i, m1);
    const struct clb_dmat beside = upper ? clb_dmat_part(&inverting->x, i, split, m1, m2)
                                         : clb_dmat_part(&inverting->x, split, i, m2, m1);
    clb_status status = invert(inverting, split, m2);
    if (status == CLB_OK)
        status = multiply_beside(inverting, i, m1, m2);
    if (status == CLB_OK)
        status = clb_dmat_solve(&inverting->workspace, &triangle, &beside);
    if (status == CLB_OK)
        status = invert(inverting, i, m1);
    return status;
}

/* ---- the product ----------------------------------------------------------------------------- */

/* Y = X^H*X or X*X^H: one triangle, and the elements of strips beside it. */
static clb_status inverse_multiply(struct clb_inverse_state *inverting)
{
    const struct clb_dmat *x = &inverting->x, *y = &inverting->y;
    bool upper = inverting->problem->upper;
    size_t n = inverting->n;
    clb_status status = CLB_OK;
    for (size_t i = 0, h; i < n && status == CLB_OK; i += h) {
        h = clb_min(inverting->strip, n - i);
        struct clb_dmat_update update = {.assign = true};
        struct clb_skip *cut = &update.cut;
        if (upper) {
            update.a = clb_dmat_part(x, 0, i, i + h, n - i);
            update.b = clb_dmat_part(x, i, i, h, n - i);
            update.op_b = CLB_OP_C;
            update.c = clb_dmat_part(y, 0, i, i + h, h);
            *cut =
                (struct clb_skip){.kind = CLB_SKIP_UPPER, .a = -(ptrdiff_t)i, .c = -(ptrdiff_t)i};
        } else {
            update.a = clb_dmat_part(x, i, i, n - i, h);
            update.op_a = CLB_OP_C;
            update.b = clb_dmat_part(x, i, 0, n - i, i + h);
            update.c = clb_dmat_part(y, i, 0, h, i + h);
            *cut = (struct clb_skip){.kind = CLB_SKIP_LOWER, .b = -(ptrdiff_t)i, .c = (ptrdiff_t)i};
        }
        cut->kind = inverting->cuts ? cut->kind | CLB_SKIP_A_BEGIN | CLB_SKIP_B_BEGIN : 0;
        status = clb_dmat_update(&inverting->workspace, &update);
    }
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------- */

clb_status clb_inverting_compute(struct clb_inverse_state *inverting)
{
    const struct clb_inverse *problem = inverting->problem;
    const struct clb_dmat_triangle all = triangle_at(inverting, 0, inverting->n);
    clb_status status;
    if (problem->inverts) {
        status = clb_dmat_pack_triangle(&inverting->workspace, &all);
        if (status == CLB_OK)
            status = invert(inverting, 0, inverting->n);
    } else {
        status = clb_dmat_triangle_copy(&inverting->workspace, &inverting->a, &inverting->x,
                                        problem->upper);
    }
    if (status == CLB_OK && problem->multiplies)
        status = inverse_multiply(inverting);
    return status;
}

const struct clb_dmat *clb_inverting_result(const struct clb_inverse_state *inverting)
{
    return inverting->problem->multiplies ? &inverting->y : &inverting->x;
}

/* The diagonal of a product of a matrix with its conjugate transpose is real. */
static void make_real(const struct clb_inverse *problem)
{
    size_t real = clb_precision_real_size(problem->precision);
    for (size_t i = 0; i < problem->n; i++)
        memset((char *)problem->a + i * (problem->lda + 1) * 2 * real + real, 0, real);
}

clb_status clb_inverting_write(const struct clb_inverse_state *inverting, const void *result,
                               size_t ld)
{
    const struct clb_inverse *problem = inverting->problem;
    size_t n = problem->n;
    const char part = problem->unit ? (problem->upper ? 'u' : 'l') : (problem->upper ? 'U' : 'L');
    if (!clb_triangle_is_finite(problem->precision, part, n, result, ld))
        return CLB_ERR_RANGE;
    clb_copy_triangle(problem->precision, part, n, n, result, ld, problem->a, problem->lda);
    if (problem->multiplies && clb_precision_parts(problem->precision) == 2)
        make_real(problem);
    return CLB_OK;
}

clb_status clb_inverse_run(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                           const struct clb_inverse *problem, const char **kernel)
{
    struct clb_inverse_state inverting = {.runtime = runtime, .problem = problem};
    bool stream = !runtime->device.unified || variant->tuning.value[CLB_PARAM_STREAM] != 0;
    inverting.kernel = variant->name;
    clb_status status = stream ? clb_inverse_run_stream(&inverting, variant)
                               : clb_inverse_run_shared(&inverting, variant);
    *kernel = inverting.kernel;
    return status;
}
