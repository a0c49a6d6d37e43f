/* Level 3 of BLAS: xGEMM, xSYMM, xSYRK, xSYR2K, xGEMMTR and their Hermitian forms, xTRMM and xTRSM.
 *
 * A part of C that the device has not written is computed by the routine itself where the part has
 * the structure that the routine computes, otherwise by xGEMM. xGEMMTR can also be computed by
 * xGEMM alone, for libraries that lack it. */
#include "run.h"

/* ---- xGEMM ----------------------------------------------------------------------------------- */

static struct clb_gemm gemm_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_gemm){.precision = run->precision,
                             .transa = call->transa,
                             .transb = call->transb,
                             .m = call->m,
                             .n = call->n,
                             .k = call->k,
                             .alpha = call->alpha,
                             .a = call->a,
                             .b = call->b,
                             .beta = call->beta,
                             .c = call->c,
                             .lda = call->lda,
                             .ldb = call->ldb,
                             .ldc = call->ldc};
}

static clb_status gemm_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_gemm problem = gemm_problem(run);
    clb_status status = clb_gemm_run(runtime, variant, &problem, &run->progress);
    clb_run_take_progress(run, status, problem.m, problem.n);
    return status;
}

static void gemm_compute(struct clb_run *run, const struct clb_rect *rect)
{
    const struct clb_gemm whole = gemm_problem(run);
    const struct clb_gemm part = rect != NULL ? clb_gemm_part(&whole, rect) : whole;
    run->host->gemm(run->host, &part);
}

static bool gemm_complete(struct clb_run *run, clb_status status)
{
    return clb_run_complete_parts(run, status, gemm_compute);
}

const struct clb_ops clb_gemm_ops = {
    .run = gemm_run, .complete = gemm_complete, .main = CLB_HOST_GEMM};

/* ---- xTRSM, and xTRMM with the same arguments ------------------------------------------------ */

static struct clb_trsm triangle_problem(const struct clb_run *run)
{
    const struct clb_call *call = run->call;
    return (struct clb_trsm){.precision = run->precision,
                             .right = call->right,
                             .upper = call->upper,
                             .unit = call->unit,
                             .trans = call->transa,
                             .m = call->m,
                             .n = call->n,
                             .alpha = call->alpha,
                             .a = call->a,
                             .b = call->b,
                             .lda = call->lda,
                             .ldb = call->ldb};
}

static clb_status trsm_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_trsm problem = triangle_problem(run);
    clb_status status = clb_trsm_run(runtime, variant, &problem, &run->progress);
    clb_run_take_progress(run, status, problem.m, problem.n);
    return status;
}

static clb_status trmm_run(struct clb_run *run, struct clb_runtime *runtime,
                           const struct clb_gemm_variant *variant)
{
    const struct clb_trsm p = triangle_problem(run);
    const struct clb_level3_operand a = {.data = p.a,
                                         .ld = p.lda,
                                         .op = p.trans,
                                         .shape = CLB_STRUCTURE_TRIANGULAR,
                                         .upper = p.upper,
                                         .unit = p.unit};
    const struct clb_level3_operand b = {.data = p.b, .ld = p.ldb, .op = CLB_OP_N};
    const struct clb_level3 level3 = {
        .precision = p.precision,
        .m = p.m,
        .n = p.n,
        .k = p.right ? p.n : p.m,
        .terms = 1,
        .a = {p.right ? b : a},
        .b = {p.right ? a : b},
        .alpha = {clb_scalar_get(p.precision, false, p.alpha)},
        .c = p.b,
        .ldc = p.ldb,
        .in_place = true,
    };
    clb_status status = clb_level3_run(runtime, variant, &level3, &run->progress);
    clb_run_take_progress(run, status, p.m, p.n);
    return status;
}

/* Parts are independent, and a missing part of X still has the values of B, from which the next
 * library computes it. */
static void triangle_compute(struct clb_run *run, const struct clb_rect *rect)
{
    const struct clb_trsm whole = triangle_problem(run);
    const struct clb_trsm part = rect != NULL ? clb_trsm_part(&whole, rect) : whole;
    if (run->ops->main == CLB_HOST_TRSM)
        run->host->trsm(run->host, &part);
    else
        run->host->trmm(run->host, &part);
}

static bool triangle_complete(struct clb_run *run, clb_status status)
{
    return clb_run_complete_parts(run, status, triangle_compute);
}

const struct clb_ops clb_trsm_ops = {
    .run = trsm_run, .complete = triangle_complete, .main = CLB_HOST_TRSM};
const struct clb_ops clb_trmm_ops = {
    .run = trmm_run, .complete = triangle_complete, .main = CLB_HOST_TRMM};

/* ---- the others: what a routine is ----------------------------------------------------------- */

struct level3 {
    clb_kind kind;
    bool hermitian;
    clb_scalar alpha, beta; /* in the precision, as xGEMM takes them */
    struct clb_blas3 problem;
    struct clb_host_blas *host;
};

static struct level3 level3_of(struct clb_call *call, struct clb_host_blas *host)
{
    const clb_precision precision = call->precision;
    const clb_routine routine = call->routine;
    const bool symm = call->kind == CLB_KIND_symm;
    return (struct level3){
        .kind = call->kind,
        .hermitian = clb_routine_has_flag(routine, 'h'),
        .alpha = clb_scalar_get(precision, clb_routine_has_flag(routine, '*'), call->alpha),
        .beta = clb_scalar_get(precision, clb_routine_has_flag(routine, '+'), call->beta),
        .problem = {.precision = precision,
                    .right = call->right,
                    .upper = call->upper,
                    .transa = call->transa,
                    .transb = call->transb,
                    .m = call->m,
                    .n = call->n,
                    .k = symm ? (size_t)clb_call_size(call, 'o') : call->k,
                    .alpha = call->alpha,
                    .a = call->a,
                    .b = call->b,
                    .beta = call->beta,
                    .c = call->c,
                    .lda = call->lda,
                    .ldb = call->ldb,
                    .ldc = call->ldc},
        .host = host,
    };
}

/* The op of the right factor when the left one has `op`: A*A^T, A^T*A and so on. */
static clb_op adjoint_op(const struct level3 *x, clb_op op)
{
    return op != CLB_OP_N ? CLB_OP_N : x->hermitian ? CLB_OP_C : CLB_OP_T;
}

/* ---- the others on the device ---------------------------------------------------------------- */

static void set_operands(const struct level3 *x, struct clb_level3 *level3)
{
    const struct clb_blas3 *p = &x->problem;
    struct clb_level3_operand a = {.data = p->a, .ld = p->lda, .op = p->transa, .upper = p->upper};
    struct clb_level3_operand b = {.data = p->b, .ld = p->ldb, .op = p->transb};
    switch (x->kind) {
    case CLB_KIND_symm:
        a.op = b.op = CLB_OP_N;
        a.shape = x->hermitian ? CLB_STRUCTURE_HERMITIAN : CLB_STRUCTURE_SYMMETRIC;
        level3->a[0] = p->right ? b : a;
        level3->b[0] = p->right ? a : b;
        break;
    case CLB_KIND_syrk:
        level3->a[0] = level3->b[0] = a;
        level3->b[0].op = adjoint_op(x, p->transa);
        break;
    case CLB_KIND_syr2k:
        b.op = a.op;
        level3->a[0] = level3->b[1] = a;
        level3->a[1] = level3->b[0] = b;
        level3->b[0].op = level3->b[1].op = adjoint_op(x, p->transa);
        break;
    default:
        level3->a[0] = a;
        level3->b[0] = b;
    }
}

static clb_status level3_run(struct clb_run *run, struct clb_runtime *runtime,
                             const struct clb_gemm_variant *variant)
{
    const struct level3 x = level3_of(run->call, run->host);
    const struct clb_blas3 *p = &x.problem;
    struct clb_level3 level3 = {
        .precision = p->precision,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .terms = x.kind == CLB_KIND_syr2k ? 2 : 1,
        .alpha = {x.alpha, x.hermitian ? clb_scalar_conjugate(p->precision, x.alpha) : x.alpha},
        .beta = x.beta,
        .c = p->c,
        .ldc = p->ldc,
        .region = x.kind == CLB_KIND_symm ? CLB_REGION_FULL
                  : p->upper              ? CLB_REGION_UPPER
                                          : CLB_REGION_LOWER,
        .real_diagonal = x.hermitian && x.kind != CLB_KIND_symm,
    };
    set_operands(&x, &level3);
    clb_status status = clb_level3_run(runtime, variant, &level3, &run->progress);
    size_t area = 0;
    for (size_t i = 0; i < run->progress.parts; i++)
        area += run->progress.part[i].rows * run->progress.part[i].cols;
    clb_run_take_progress(run, status, area, 1);
    return status;
}

/* ---- the others by the next library ---------------------------------------------------------- */

/* Columns of xGEMMTR that are computed at once; a diagonal block of this order is on the stack. */
enum { BLOCK = 32 };

struct level3_part {
    const struct level3 *x;
    const struct clb_rect *rect;
};

static const void *level3_at(const struct clb_blas3 *p, const void *base, size_t i, size_t j,
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
    return op == CLB_OP_N ? level3_at(p, x, i, 0, ld) : level3_at(p, x, 0, i, ld);
}

static const void *column_of(const struct clb_blas3 *p, clb_op op, const void *x, size_t j,
                             size_t ld)
{
    return op == CLB_OP_N ? level3_at(p, x, 0, j, ld) : level3_at(p, x, j, 0, ld);
}

/* A product whose result is the part of C. */
static struct clb_gemm product_into(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    const struct clb_rect *rect = part->rect;
    return (struct clb_gemm){.precision = p->precision,
                             .m = rect->rows,
                             .n = rect->cols,
                             .k = p->k,
                             .alpha = &part->x->alpha,
                             .beta = &part->x->beta,
                             .c = at_c(p, rect->row, rect->col),
                             .ldc = p->ldc};
}

static void multiply(const struct level3_part *part, const struct clb_gemm *product)
{
    part->x->host->gemm(part->x->host, product);
}

/* ---- xSYMM and xHEMM: blocks of A off the diagonal are general matrices ---------------------- */

/* The op with which a block of A off the diagonal is used. *i, *j become the position at which it
 * is stored: its own, or that of the transposed block. */
static clb_op stored_block(const struct level3_part *part, size_t *i, size_t *j)
{
    bool below = *i > *j;
    if (below != part->x->problem.upper)
        return CLB_OP_N;
    size_t row = *i;
    *i = *j;
    *j = row;
    return part->x->hermitian ? CLB_OP_C : CLB_OP_T;
}

/* C += the product with the block of A that begins at (i, j), `depth` deep. */
static void add_block(const struct level3_part *part, size_t i, size_t j, size_t depth)
{
    const struct clb_blas3 *p = &part->x->problem;
    struct clb_gemm product = product_into(part);
    size_t from = p->right ? i : j;
    clb_op op = stored_block(part, &i, &j);
    const void *a = level3_at(p, p->a, i, j, p->lda);
    product.k = depth;
    product.beta = clb_scalar_one(p->precision);
    product.transa = p->right ? CLB_OP_N : op;
    product.transb = p->right ? op : CLB_OP_N;
    product.a = p->right ? level3_at(p, p->b, part->rect->row, from, p->ldb) : a;
    product.lda = p->right ? p->ldb : p->lda;
    product.b = p->right ? a : level3_at(p, p->b, from, part->rect->col, p->ldb);
    product.ldb = p->right ? p->lda : p->ldb;
    multiply(part, &product);
}

static void compute_symm(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    const struct clb_rect *rect = part->rect;
    size_t first = p->right ? rect->col : rect->row, count = p->right ? rect->cols : rect->rows;
    size_t behind = first + count;
    struct clb_blas3 own = *p;
    own.m = rect->rows;
    own.n = rect->cols;
    own.k = count;
    own.a = level3_at(p, p->a, first, first, p->lda);
    own.b = level3_at(p, p->b, rect->row, rect->col, p->ldb);
    own.c = at_c(p, rect->row, rect->col);
    part->x->host->level3(part->x->host, &own);
    if (first > 0)
        add_block(part, p->right ? 0 : first, p->right ? first : 0, first);
    if (behind < p->k)
        add_block(part, p->right ? behind : first, p->right ? first : behind, p->k - behind);
}

/* ---- a triangle of C ------------------------------------------------------------------------- */

static void compute_all(const struct level3 *x);

/* A part on the diagonal is a smaller problem of the same routine. */
static void compute_diagonal(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    size_t i = part->rect->row;
    struct clb_blas3 own = *p;
    own.m = own.n = part->rect->rows;
    own.a = row_of(p, p->transa, p->a, i, p->lda);
    if (part->x->kind == CLB_KIND_gemmtr)
        own.b = column_of(p, p->transb, p->b, i, p->ldb);
    else if (part->x->kind == CLB_KIND_syr2k)
        own.b = row_of(p, p->transa, p->b, i, p->ldb);
    own.c = at_c(p, i, i);
    struct level3 smaller = *part->x;
    smaller.problem = own;
    compute_all(&smaller);
}

static struct clb_gemm gemmtr_product(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    struct clb_gemm product = product_into(part);
    product.transa = p->transa;
    product.transb = p->transb;
    product.a = row_of(p, p->transa, p->a, part->rect->row, p->lda);
    product.b = column_of(p, p->transb, p->b, part->rect->col, p->ldb);
    product.lda = p->lda;
    product.ldb = p->ldb;
    return product;
}

static void compute_gemmtr(const struct level3_part *part)
{
    const struct clb_gemm product = gemmtr_product(part);
    multiply(part, &product);
}

/* C += alpha * X*Y^T or X^T*Y, or Y^H and X^H, with rows of op(X) and of op(Y). */
static void add_adjoint(const struct level3_part *part, const void *alpha, const void *beta,
                        const void *x, size_t ldx, const void *y, size_t ldy)
{
    const struct clb_blas3 *p = &part->x->problem;
    struct clb_gemm product = product_into(part);
    product.alpha = alpha;
    product.beta = beta;
    product.transa = p->transa;
    product.transb = adjoint_op(part->x, p->transa);
    product.a = row_of(p, p->transa, x, part->rect->row, ldx);
    product.b = row_of(p, p->transa, y, part->rect->col, ldy);
    product.lda = ldx;
    product.ldb = ldy;
    multiply(part, &product);
}

static void compute_syrk(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    add_adjoint(part, &part->x->alpha, &part->x->beta, p->a, p->lda, p->a, p->lda);
}

static void compute_syr2k(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    clb_scalar second = part->x->alpha;
    if (part->x->hermitian)
        second = clb_scalar_conjugate(p->precision, second);
    add_adjoint(part, &part->x->alpha, &part->x->beta, p->a, p->lda, p->b, p->ldb);
    add_adjoint(part, &second, clb_scalar_one(p->precision), p->b, p->ldb, p->a, p->lda);
}

static void compute_part(const struct level3 *x, const struct clb_rect *rect)
{
    const struct level3_part part = {x, rect};
    if (x->kind == CLB_KIND_symm)
        compute_symm(&part);
    else if (rect->row == rect->col)
        compute_diagonal(&part);
    else if (x->kind == CLB_KIND_syrk)
        compute_syrk(&part);
    else if (x->kind == CLB_KIND_syr2k)
        compute_syr2k(&part);
    else
        compute_gemmtr(&part);
}

/* ---- xGEMMTR from products ------------------------------------------------------------------- */

/* A diagonal block: computes the whole product on the stack, then copies its triangle. */
static void compose_diagonal(const struct level3_part *part)
{
    const struct clb_blas3 *p = &part->x->problem;
    const struct clb_rect *rect = part->rect;
    const void *one = clb_scalar_one(p->precision);
    double block[2 * BLOCK * BLOCK];
    struct clb_gemm product = gemmtr_product(part);
    product.beta = clb_scalar_zero(p->precision);
    product.c = block;
    product.ldc = BLOCK;
    multiply(part, &product);
    for (size_t j = 0; j < rect->cols; j++) {
        size_t first = p->upper ? 0 : j, rows = p->upper ? j + 1 : rect->rows - j;
        clb_merge_tile(p->precision, rows, 1, one, level3_at(p, block, first, j, BLOCK), BLOCK,
                       &part->x->beta, at_c(p, rect->row + first, rect->col + j), p->ldc);
    }
}

static void compose_gemmtr(const struct level3 *x)
{
    const struct clb_blas3 *p = &x->problem;
    for (size_t j = 0; j < p->n; j += BLOCK) {
        size_t cols = clb_min((size_t)BLOCK, p->n - j);
        const struct clb_rect diagonal = {j, j, cols, cols};
        const struct clb_rect beside = p->upper
                                           ? (struct clb_rect){0, j, j, cols}
                                           : (struct clb_rect){j + cols, j, p->n - j - cols, cols};
        compose_diagonal(&(struct level3_part){x, &diagonal});
        if (beside.rows > 0)
            compute_gemmtr(&(struct level3_part){x, &beside});
    }
}

static void compute_all(const struct level3 *x)
{
    if (x->host->level3 != NULL)
        x->host->level3(x->host, &x->problem);
    else
        compose_gemmtr(x);
}

static void level3_compute(struct clb_run *run, const struct clb_rect *rect)
{
    const struct level3 x = level3_of(run->call, run->host);
    if (rect == NULL)
        compute_all(&x);
    else
        compute_part(&x, rect);
}

static bool level3_complete(struct clb_run *run, clb_status status)
{
    return clb_run_complete_parts(run, status, level3_compute);
}

#define LEVEL3_OPS                                                                                 \
    {                                                                                              \
        .run = level3_run, .complete = level3_complete, .main = CLB_HOST_LEVEL3,                   \
        .needs = 1U << CLB_HOST_GEMM                                                               \
    }
const struct clb_ops clb_symm_ops = LEVEL3_OPS, clb_syrk_ops = LEVEL3_OPS;
const struct clb_ops clb_syr2k_ops = LEVEL3_OPS, clb_gemmtr_ops = LEVEL3_OPS;

int clb_route_compose_gemmtr(struct clb_entry *entry, struct clb_host_blas *host)
{
    struct clb_next_blas next;
    clb_call_set_routine(&entry->call, entry->symbol->routine);
    int wrong = clb_call_first_wrong(&entry->call);
    if (wrong != 0)
        return wrong;
    if (host == NULL) {
        clb_next_blas_open(&next, entry, CLB_HOST_LEVEL3, 1U << CLB_HOST_GEMM);
        host = &next.host;
    }
    const struct level3 x = level3_of(&entry->call, host);
    compute_all(&x);
    return 0;
}
