/* Level 3 by the next library. A part of C that the device has not written is computed by the
 * routine itself where the part has the structure that the routine computes, otherwise by xGEMM.
 * xGEMMTR can also be computed by xGEMM alone, for libraries that lack it. */
#include "blas3.h"

/* Columns of xGEMMTR that are computed at once; a diagonal block of this order is on the stack. */
enum { BLOCK = 32 };

struct blas3_next_part {
    const struct clb_blas3_traits *traits;
    const struct clb_blas3 *problem;
    const struct clb_next_blas3 *next;
    const struct clb_rect *rect;
    clb_scalar alpha, beta; /* in the precision, as xGEMM takes them */
};

static const void *blas3_next_at(const struct clb_blas3 *p, const void *base, size_t i, size_t j,
                                 size_t ld)
{
    return (const char *)base + (i + j * ld) * clb_precision_size(p->precision);
}

static void *at_c(const struct clb_blas3 *p, size_t i, size_t j)
{
    return (char *)p->c + (i + j * p->ldc) * clb_precision_size(p->precision);
}

/* The address of row i of op(X), and of column j. */
static const void *row_of(const struct clb_blas3 *p, clb_op op, const void *x, size_t i, size_t ld)
{
    return op == CLB_OP_N ? blas3_next_at(p, x, i, 0, ld) : blas3_next_at(p, x, 0, i, ld);
}

static const void *blas3_next_column_of(const struct clb_blas3 *p, clb_op op, const void *x,
                                        size_t j, size_t ld)
{
    return op == CLB_OP_N ? blas3_next_at(p, x, 0, j, ld) : blas3_next_at(p, x, j, 0, ld);
}

/* A product whose result is the part of C. */
static struct clb_gemm product_into(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    const struct clb_rect *rect = part->rect;
    return (struct clb_gemm){.precision = p->precision,
                             .m = rect->rows,
                             .n = rect->cols,
                             .k = p->k,
                             .alpha = &part->alpha,
                             .beta = &part->beta,
                             .c = at_c(p, rect->row, rect->col),
                             .ldc = p->ldc};
}

static void blas3_next_multiply(const struct blas3_next_part *part, const struct clb_gemm *product)
{
    part->next->call_gemm(part->next->gemm, product);
}

/* ---- xSYMM and xHEMM: blocks of A off the diagonal are general matrices ---------------------- */

/* The op with which a block of A off the diagonal is used. *i, *j become the position at which it
 * is stored: its own, or that of the transposed block. */
static clb_op stored_block(const struct blas3_next_part *part, size_t *i, size_t *j)
{
    bool below = *i > *j;
    if (below != part->problem->upper)
        return CLB_OP_N;
    size_t row = *i;
    *i = *j;
    *j = row;
    return part->traits->hermitian ? CLB_OP_C : CLB_OP_T;
}

/* C += the product with the block of A that begins at (i, j), `depth` deep. */
static void blas3_next_add_block(const struct blas3_next_part *part, size_t i, size_t j,
                                 size_t depth)
{
    const struct clb_blas3 *p = part->problem;
    struct clb_gemm product = product_into(part);
    size_t from = p->right ? i : j;
    clb_op op = stored_block(part, &i, &j);
    const void *a = blas3_next_at(p, p->a, i, j, p->lda);
    product.k = depth;
    product.beta = clb_scalar_one(p->precision);
    product.transa = p->right ? CLB_OP_N : op;
    product.transb = p->right ? op : CLB_OP_N;
    product.a = p->right ? blas3_next_at(p, p->b, part->rect->row, from, p->ldb) : a;
    product.lda = p->right ? p->ldb : p->lda;
    product.b = p->right ? a : blas3_next_at(p, p->b, from, part->rect->col, p->ldb);
    product.ldb = p->right ? p->lda : p->ldb;
    blas3_next_multiply(part, &product);
}

static void compute_symm(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    const struct clb_rect *rect = part->rect;
    size_t first = p->right ? rect->col : rect->row, count = p->right ? rect->cols : rect->rows;
    size_t behind = first + count;
    struct clb_blas3 own = *p;
    own.m = rect->rows;
    own.n = rect->cols;
    own.k = count;
    own.a = blas3_next_at(p, p->a, first, first, p->lda);
    own.b = blas3_next_at(p, p->b, rect->row, rect->col, p->ldb);
    own.c = at_c(p, rect->row, rect->col);
    part->next->call_own(part->next->own, &own);
    if (first > 0)
        blas3_next_add_block(part, p->right ? 0 : first, p->right ? first : 0, first);
    if (behind < p->k)
        blas3_next_add_block(part, p->right ? behind : first, p->right ? first : behind,
                             p->k - behind);
}

/* ---- a triangle of C ------------------------------------------------------------------------- */

/* A part on the diagonal is a smaller problem of the same routine. */
static void compute_diagonal(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    size_t i = part->rect->row;
    struct clb_blas3 own = *p;
    own.m = own.n = part->rect->rows;
    own.a = row_of(p, p->transa, p->a, i, p->lda);
    if (part->traits->sort == CLB_SORT_GEMMTR)
        own.b = blas3_next_column_of(p, p->transb, p->b, i, p->ldb);
    else if (part->traits->sort == CLB_SORT_SYR2K)
        own.b = row_of(p, p->transa, p->b, i, p->ldb);
    own.c = at_c(p, i, i);
    clb_blas3_compute_next(&own, part->next);
}

static struct clb_gemm gemmtr_product(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    struct clb_gemm product = product_into(part);
    product.transa = p->transa;
    product.transb = p->transb;
    product.a = row_of(p, p->transa, p->a, part->rect->row, p->lda);
    product.b = blas3_next_column_of(p, p->transb, p->b, part->rect->col, p->ldb);
    product.lda = p->lda;
    product.ldb = p->ldb;
    return product;
}

static void compute_gemmtr(const struct blas3_next_part *part)
{
    const struct clb_gemm product = gemmtr_product(part);
    blas3_next_multiply(part, &product);
}

/* C += alpha * X*Y^T or X^T*Y, or Y^H and X^H, with rows of op(X) and of op(Y). */
static void add_adjoint(const struct blas3_next_part *part, const void *alpha, const void *beta,
                        const void *x, size_t ldx, const void *y, size_t ldy)
{
    const struct clb_blas3 *p = part->problem;
    struct clb_gemm product = product_into(part);
    product.alpha = alpha;
    product.beta = beta;
    product.transa = p->transa;
    product.transb = clb_blas3_adjoint(part->traits, p->transa);
    product.a = row_of(p, p->transa, x, part->rect->row, ldx);
    product.b = row_of(p, p->transa, y, part->rect->col, ldy);
    product.lda = ldx;
    product.ldb = ldy;
    blas3_next_multiply(part, &product);
}

static void compute_syrk(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    add_adjoint(part, &part->alpha, &part->beta, p->a, p->lda, p->a, p->lda);
}

static void compute_syr2k(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    clb_scalar second = part->alpha;
    if (part->traits->hermitian)
        second = clb_scalar_conjugate(p->precision, second);
    add_adjoint(part, &part->alpha, &part->beta, p->a, p->lda, p->b, p->ldb);
    add_adjoint(part, &second, clb_scalar_one(p->precision), p->b, p->ldb, p->a, p->lda);
}

void clb_blas3_compute_part(const struct clb_blas3_traits *traits, const struct clb_blas3 *problem,
                            const struct clb_next_blas3 *next, const struct clb_rect *rect)
{
    const struct blas3_next_part part = {
        .traits = traits,
        .problem = problem,
        .next = next,
        .rect = rect,
        .alpha = clb_scalar_get(problem->precision, traits->real_alpha, problem->alpha),
        .beta = clb_scalar_get(problem->precision, traits->real_beta, problem->beta)};
    if (traits->sort == CLB_SORT_SYMM)
        compute_symm(&part);
    else if (rect->row == rect->col)
        compute_diagonal(&part);
    else if (traits->sort == CLB_SORT_SYRK)
        compute_syrk(&part);
    else if (traits->sort == CLB_SORT_SYR2K)
        compute_syr2k(&part);
    else
        compute_gemmtr(&part);
}

/* ---- xGEMMTR from products ------------------------------------------------------------------- */

/* A diagonal block: computes the whole product on the stack, then copies its triangle. */
static void compose_diagonal(const struct blas3_next_part *part)
{
    const struct clb_blas3 *p = part->problem;
    const struct clb_rect *rect = part->rect;
    const void *one = clb_scalar_one(p->precision);
    double block[2 * BLOCK * BLOCK];
    struct clb_gemm product = gemmtr_product(part);
    product.beta = clb_scalar_zero(p->precision);
    product.c = block;
    product.ldc = BLOCK;
    blas3_next_multiply(part, &product);
    for (size_t j = 0; j < rect->cols; j++) {
        size_t first = p->upper ? 0 : j, rows = p->upper ? j + 1 : rect->rows - j;
        clb_merge_tile(p->precision, rows, 1, one, blas3_next_at(p, block, first, j, BLOCK), BLOCK,
                       &part->beta, at_c(p, rect->row + first, rect->col + j), p->ldc);
    }
}

static void compose_gemmtr(const struct clb_blas3 *p, const struct clb_next_blas3 *next)
{
    struct clb_rect diagonal, beside;
    struct blas3_next_part part = {.problem = p,
                                   .next = next,
                                   .alpha = clb_scalar_get(p->precision, false, p->alpha),
                                   .beta = clb_scalar_get(p->precision, false, p->beta)};
    for (size_t j = 0; j < p->n; j += BLOCK) {
        size_t cols = clb_min((size_t)BLOCK, p->n - j);
        diagonal = (struct clb_rect){j, j, cols, cols};
        beside = (struct clb_rect){0, j, j, cols};
        if (!p->upper)
            beside = (struct clb_rect){j + cols, j, p->n - j - cols, cols};
        part.rect = &diagonal;
        compose_diagonal(&part);
        part.rect = &beside;
        if (beside.rows > 0)
            compute_gemmtr(&part);
    }
}

void clb_blas3_compute_next(const struct clb_blas3 *problem, const struct clb_next_blas3 *next)
{
    if (next->call_own != NULL)
        next->call_own(next->own, problem);
    else
        compose_gemmtr(problem, next);
}
