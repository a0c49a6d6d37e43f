/* What the next library computes of a call that the device has run: the parts that are missing
 * after a failure, and the best size of a workspace.
 *
 * A part of C of xSYMM, xSYRK, xSYR2K or xGEMMTR is computed by the routine itself where the part
 * has the structure that the routine computes, otherwise by xGEMM. xGEMMTR can also be computed by
 * xGEMM alone, for libraries that lack it. */
#include "run.h"

bool clb_run_complete_parts(struct clb_run *run,
                            void (*compute)(struct clb_run *, const struct clb_rect *))
{
    const struct clb_gemm_progress *progress = &run->progress;
    if (run->written == 0)
        compute(run, NULL);
    for (size_t i = 0; run->written > 0 && i < progress->parts; i++) {
        if (!progress->written[i])
            compute(run, &progress->part[i]);
    }
    return true;
}

/* Of xGESV and xPOSV, the solution. */
void clb_run_compute_part(struct clb_run *run, const struct clb_rect *rect)
{
    const clb_kind kind = run->call->kind;
    const struct clb_call whole = clb_call_as(run->call, kind == CLB_KIND_gesv   ? CLB_KIND_getrs
                                                         : kind == CLB_KIND_posv ? CLB_KIND_potrs
                                                                                 : kind);
    const struct clb_call part = rect != NULL ? clb_call_part(&whole, rect) : whole;
    clb_host_call(run->host, &part);
}

void clb_run_give_size(const struct clb_run *run)
{
    if (run->call->work == NULL)
        return;
    run->host->lwork = -1;
    clb_host_call(run->host, run->call);
}

/* Columns of xGEMMTR that are computed at once; a diagonal block of this order is on the stack. */
enum { BLOCK = 32 };

struct level3 {
    const struct clb_call *call;
    const struct clb_host_blas *host;
    bool hermitian;
    clb_scalar alpha, beta; /* as xGEMM takes them */
};

struct level3_part {
    const struct level3 *x;
    const struct clb_call *call; /* x's */
    const struct clb_rect *rect;
};

static struct level3 level3_of(const struct clb_call *call, const struct clb_host_blas *host)
{
    const clb_precision precision = call->precision;
    return (struct level3){
        call, host, clb_routine_has_flag(call->routine, 'h'),
        clb_scalar_get(precision, clb_routine_has_flag(call->routine, '*'), call->alpha),
        clb_scalar_get(precision, clb_routine_has_flag(call->routine, '+'), call->beta)};
}

/* The op of the right factor when the left one has `op`: A*A^T, A^T*A and so on. */
static clb_op adjoint_op(const struct level3 *x, clb_op op)
{
    return op != CLB_OP_N ? CLB_OP_N : x->hermitian ? CLB_OP_C : CLB_OP_T;
}

static void *level3_at(const struct clb_call *call, void *base, size_t i, size_t j, size_t ld)
{
    return (char *)base + (i + j * ld) * clb_precision_size(call->precision);
}

/* The address of row i of op(X), and of column j. */
static void *row_of(const struct clb_call *call, clb_op op, void *x, size_t i, size_t ld)
{
    return op == CLB_OP_N ? level3_at(call, x, i, 0, ld) : level3_at(call, x, 0, i, ld);
}

static void *column_of(const struct clb_call *call, clb_op op, void *x, size_t j, size_t ld)
{
    return op == CLB_OP_N ? level3_at(call, x, 0, j, ld) : level3_at(call, x, j, 0, ld);
}

/* A product whose result is the part of C. */
static struct clb_call product_into(const struct level3_part *part)
{
    const struct clb_rect *rect = part->rect;
    struct clb_call product = clb_call_as(part->call, CLB_KIND_gemm);
    product.m = rect->rows;
    product.n = rect->cols;
    product.alpha = &part->x->alpha;
    product.beta = &part->x->beta;
    product.c = level3_at(part->call, part->call->c, rect->row, rect->col, part->call->ldc);
    return product;
}

/* ---- xSYMM and xHEMM: blocks of A off the diagonal are general matrices ---------------------- */

/* The op with which a block of A off the diagonal is used. *i, *j become the position at which it
 * is stored: its own, or that of the transposed block. */
static clb_op stored_block(const struct level3_part *part, size_t *i, size_t *j)
{
    bool below = *i > *j;
    if (below != part->call->upper)
        return CLB_OP_N;
    size_t row = *i;
    *i = *j;
    *j = row;
    return part->x->hermitian ? CLB_OP_C : CLB_OP_T;
}

/* C += the product with the block of A that begins at (i, j), `depth` deep. */
static void add_block(const struct level3_part *part, size_t i, size_t j, size_t depth)
{
    const struct clb_call *p = part->call;
    struct clb_call product = product_into(part);
    size_t from = p->right ? i : j;
    clb_op op = stored_block(part, &i, &j);
    void *a = level3_at(p, p->a, i, j, p->lda);
    product.k = depth;
    product.beta = clb_scalar_one(p->precision);
    product.transa = p->right ? CLB_OP_N : op;
    product.transb = p->right ? op : CLB_OP_N;
    product.a = p->right ? level3_at(p, p->b, part->rect->row, from, p->ldb) : a;
    product.lda = p->right ? p->ldb : p->lda;
    product.b = p->right ? a : level3_at(p, p->b, from, part->rect->col, p->ldb);
    product.ldb = p->right ? p->lda : p->ldb;
    clb_host_call(part->x->host, &product);
}

static void compute_symm(const struct level3_part *part)
{
    const struct clb_call *p = part->call;
    const struct clb_rect *rect = part->rect;
    size_t first = p->right ? rect->col : rect->row, count = p->right ? rect->cols : rect->rows;
    size_t behind = first + count, order = p->right ? p->n : p->m;
    struct clb_call own = *p;
    own.m = rect->rows;
    own.n = rect->cols;
    own.a = level3_at(p, p->a, first, first, p->lda);
    own.b = level3_at(p, p->b, rect->row, rect->col, p->ldb);
    own.c = level3_at(p, p->c, rect->row, rect->col, p->ldc);
    clb_host_call(part->x->host, &own);
    if (first > 0)
        add_block(part, p->right ? 0 : first, p->right ? first : 0, first);
    if (behind < order)
        add_block(part, p->right ? behind : first, p->right ? first : behind, order - behind);
}

/* ---- a triangle of C ------------------------------------------------------------------------- */

static void compute_all(const struct level3 *x);

/* A part on the diagonal is a smaller problem of the same routine. */
static void compute_diagonal(const struct level3_part *part)
{
    const struct clb_call *p = part->call;
    size_t i = part->rect->row;
    struct clb_call own = *p;
    own.m = own.n = part->rect->rows;
    own.a = row_of(p, p->transa, p->a, i, p->lda);
    if (p->kind == CLB_KIND_gemmtr)
        own.b = column_of(p, p->transb, p->b, i, p->ldb);
    else if (p->kind == CLB_KIND_syr2k)
        own.b = row_of(p, p->transa, p->b, i, p->ldb);
    own.c = level3_at(p, p->c, i, i, p->ldc);
    struct level3 smaller = *part->x;
    smaller.call = &own;
    compute_all(&smaller);
}

static struct clb_call gemmtr_product(const struct level3_part *part)
{
    const struct clb_call *p = part->call;
    struct clb_call product = product_into(part);
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
    const struct clb_call product = gemmtr_product(part);
    clb_host_call(part->x->host, &product);
}

/* C += alpha * X*Y^T or X^T*Y, or Y^H and X^H, with rows of op(X) and of op(Y). */
static void add_adjoint(const struct level3_part *part, const void *alpha, const void *beta,
                        void *x, size_t ldx, void *y, size_t ldy)
{
    const struct clb_call *p = part->call;
    struct clb_call product = product_into(part);
    product.alpha = alpha;
    product.beta = beta;
    product.transa = p->transa;
    product.transb = adjoint_op(part->x, p->transa);
    product.a = row_of(p, p->transa, x, part->rect->row, ldx);
    product.b = row_of(p, p->transa, y, part->rect->col, ldy);
    product.lda = ldx;
    product.ldb = ldy;
    clb_host_call(part->x->host, &product);
}

static void compute_syrk(const struct level3_part *part)
{
    const struct clb_call *p = part->call;
    add_adjoint(part, &part->x->alpha, &part->x->beta, p->a, p->lda, p->a, p->lda);
}

static void compute_syr2k(const struct level3_part *part)
{
    const struct clb_call *p = part->call;
    clb_scalar second = part->x->alpha;
    if (part->x->hermitian)
        second = clb_scalar_conjugate(p->precision, second);
    add_adjoint(part, &part->x->alpha, &part->x->beta, p->a, p->lda, p->b, p->ldb);
    add_adjoint(part, &second, clb_scalar_one(p->precision), p->b, p->ldb, p->a, p->lda);
}

static void compute_part(const struct level3 *x, const struct clb_rect *rect)
{
    const struct level3_part part = {x, x->call, rect};
    if (x->call->kind == CLB_KIND_symm)
        compute_symm(&part);
    else if (rect->row == rect->col)
        compute_diagonal(&part);
    else if (x->call->kind == CLB_KIND_syrk)
        compute_syrk(&part);
    else if (x->call->kind == CLB_KIND_syr2k)
        compute_syr2k(&part);
    else
        compute_gemmtr(&part);
}

/* ---- xGEMMTR from products ------------------------------------------------------------------- */

/* A diagonal block: computes the whole product on the stack, then copies its triangle. */
static void compose_diagonal(const struct level3_part *part)
{
    const struct clb_call *p = part->call;
    const struct clb_rect *rect = part->rect;
    const void *one = clb_scalar_one(p->precision);
    double block[2 * BLOCK * BLOCK];
    struct clb_call product = gemmtr_product(part);
    product.beta = clb_scalar_zero(p->precision);
    product.c = block;
    product.ldc = BLOCK;
    clb_host_call(part->x->host, &product);
    for (size_t j = 0; j < rect->cols; j++) {
        size_t first = p->upper ? 0 : j, rows = p->upper ? j + 1 : rect->rows - j;
        clb_merge_tile(p->precision, rows, 1, one, level3_at(p, block, first, j, BLOCK), BLOCK,
                       &part->x->beta, level3_at(p, p->c, rect->row + first, rect->col + j, p->ldc),
                       p->ldc);
    }
}

static void compose_gemmtr(const struct level3 *x)
{
    const struct clb_call *p = x->call;
    for (size_t j = 0; j < p->n; j += BLOCK) {
        size_t cols = clb_min((size_t)BLOCK, p->n - j);
        const struct clb_rect diagonal = {j, j, cols, cols};
        const struct clb_rect beside = p->upper
                                           ? (struct clb_rect){0, j, j, cols}
                                           : (struct clb_rect){j + cols, j, p->n - j - cols, cols};
        compose_diagonal(&(struct level3_part){x, x->call, &diagonal});
        if (beside.rows > 0)
            compute_gemmtr(&(struct level3_part){x, x->call, &beside});
    }
}

static void compute_all(const struct level3 *x)
{
    if (x->host->of[x->call->kind] != NULL)
        clb_host_call(x->host, x->call);
    else
        compose_gemmtr(x);
}

void clb_level3_compute_part(struct clb_run *run, const struct clb_rect *rect)
{
    const struct level3 x = level3_of(run->call, run->host);
    if (rect == NULL)
        compute_all(&x);
    else
        compute_part(&x, rect);
}

int clb_route_compose_gemmtr(struct clb_entry *entry, struct clb_host_blas *host)
{
    struct clb_next_blas next;
    clb_call_set_routine(&entry->call, entry->symbol->routine);
    int wrong = clb_call_first_wrong(&entry->call);
    if (wrong != 0)
        return wrong;
    if (host == NULL) {
        clb_next_blas_open(&next, entry, CLB_NEEDS(gemm) | CLB_NEEDS(gemmtr));
        host = &next.host;
    }
    const struct level3 x = level3_of(&entry->call, host);
    compute_all(&x);
    return 0;
}
