/* SPDX-License-Identifier: BSD-3-Clause
 * What the next library computes of a call that the device has run: the parts that are missing
 * after a failure, and the best size of a workspace. A part of C of xSYMM, xSYRK, xSYR2K or xGEMMTR
 * is computed by the routine itself where the part has the structure that the routine computes,
 * otherwise by xGEMM; xGEMMTR by xGEMM alone for libraries that lack it. */
#include "route.h"

void clb_run_give_size(const struct clb_run *run)
{
    if (run->call->work == NULL)
        return;
    run->host->lwork = -1;
    clb_host_call(run->host, run->call);
}

/* ---- results and operands with a structure ---- */

struct structured {
    const struct clb_call *call;
    const struct clb_host_blas *host;
    bool hermitian;
    clb_scalar alpha, beta; /* as xGEMM takes them */
};

static struct structured structured_of(const struct clb_call *call,
                                       const struct clb_host_blas *host)
{
    const clb_precision precision = call->precision;
    return (struct structured){
        call, host, clb_routine_has_flag(call->routine, 'h'),
        clb_scalar_get(precision, clb_routine_has_flag(call->routine, '*'), call->alpha),
        clb_scalar_get(precision, clb_routine_has_flag(call->routine, '+'), call->beta)};
}

static void *element_at(const struct clb_call *call, void *base, size_t i, size_t j, size_t ld)
{
    return (char *)base + (i + j * ld) * clb_precision_size(call->precision);
}

/* The address of row i of op(X), and of column j. */
static void *row_of(const struct clb_call *call, clb_op op, void *x, size_t i, size_t ld)
{
    return op == CLB_OP_N ? element_at(call, x, i, 0, ld) : element_at(call, x, 0, i, ld);
}

static void *column_of(const struct clb_call *call, clb_op op, void *x, size_t j, size_t ld)
{
    return row_of(call, op == CLB_OP_N ? CLB_OP_T : CLB_OP_N, x, j, ld);
}

static struct clb_call product_into(const struct structured *x, const struct clb_rect *rect)
{
    struct clb_call product = clb_call_as(x->call, CLB_KIND_gemm);
    product.m = rect->rows;
    product.n = rect->cols;
    product.alpha = &x->alpha;
    product.beta = &x->beta;
    product.c = element_at(x->call, x->call->c, rect->row, rect->col, x->call->ldc);
    return product;
}

/* ---- xSYMM and xHEMM: blocks of A off the diagonal are general matrices ---- */

/* C += the product with the block of A at (i, j), or stored transposed at (j, i), `depth` deep. */
static void add_block(const struct structured *x, const struct clb_rect *rect, size_t i, size_t j,
                      size_t depth)
{
    const struct clb_call *p = x->call;
    struct clb_call product = product_into(x, rect);
    const size_t from = p->right ? i : j;
    const bool stored = (i > j) != p->upper;
    const clb_op op = stored ? CLB_OP_N : x->hermitian ? CLB_OP_C : CLB_OP_T;
    void *a = stored ? element_at(p, p->a, i, j, p->lda) : element_at(p, p->a, j, i, p->lda);
    product.k = depth;
    product.beta = clb_scalar_of(p->precision, 1);
    product.transa = p->right ? CLB_OP_N : op;
    product.transb = p->right ? op : CLB_OP_N;
    product.a = p->right ? element_at(p, p->b, rect->row, from, p->ldb) : a;
    product.lda = p->right ? p->ldb : p->lda;
    product.b = p->right ? a : element_at(p, p->b, from, rect->col, p->ldb);
    product.ldb = p->right ? p->lda : p->ldb;
    clb_host_call(x->host, &product);
}

static void compute_symm(const struct structured *x, const struct clb_rect *rect)
{
    const struct clb_call *p = x->call;
    const size_t first = p->right ? rect->col : rect->row, order = p->right ? p->n : p->m;
    const size_t count = p->right ? rect->cols : rect->rows, behind = first + count;
    struct clb_call own = *p;
    own.m = rect->rows;
    own.n = rect->cols;
    own.a = element_at(p, p->a, first, first, p->lda);
    own.b = element_at(p, p->b, rect->row, rect->col, p->ldb);
    own.c = element_at(p, p->c, rect->row, rect->col, p->ldc);
    clb_host_call(x->host, &own);
    if (first > 0)
        add_block(x, rect, p->right ? 0 : first, p->right ? first : 0, first);
    if (behind < order)
        add_block(x, rect, p->right ? behind : first, p->right ? first : behind, order - behind);
}

/* ---- a triangle of C ---- */

static void compute_all(const struct structured *x);

/* A part on the diagonal is a smaller problem of the same routine. */
static void compute_diagonal(const struct structured *x, const struct clb_rect *rect)
{
    const struct clb_call *p = x->call;
    const size_t i = rect->row;
    struct clb_call own = *p;
    own.m = own.n = rect->rows;
    own.a = row_of(p, p->transa, p->a, i, p->lda);
    if (p->kind == CLB_KIND_gemmtr)
        own.b = column_of(p, p->transb, p->b, i, p->ldb);
    else if (p->kind == CLB_KIND_syr2k)
        own.b = row_of(p, p->transa, p->b, i, p->ldb);
    own.c = element_at(p, p->c, i, i, p->ldc);
    struct structured smaller = *x;
    smaller.call = &own;
    compute_all(&smaller);
}

static struct clb_call gemmtr_product(const struct structured *x, const struct clb_rect *rect)
{
    const struct clb_call *p = x->call;
    struct clb_call product = product_into(x, rect);
    product.transa = p->transa;
    product.transb = p->transb;
    product.a = row_of(p, p->transa, p->a, rect->row, p->lda);
    product.b = column_of(p, p->transb, p->b, rect->col, p->ldb);
    return product;
}

/* C += alpha * X*Y^T or X^T*Y, or Y^H and X^H, with rows of op(X) and of op(Y). */
static void add_adjoint(const struct structured *x, const struct clb_rect *rect, const void *alpha,
                        const void *beta, bool b_first)
{
    const struct clb_call *p = x->call;
    struct clb_call product = product_into(x, rect);
    void *const second = p->kind == CLB_KIND_syrk || b_first ? p->a : p->b;
    const size_t ld_second = p->kind == CLB_KIND_syrk || b_first ? p->lda : p->ldb;
    product.alpha = alpha;
    product.beta = beta;
    product.transa = p->transa;
    product.transb = p->transa != CLB_OP_N ? CLB_OP_N : x->hermitian ? CLB_OP_C : CLB_OP_T;
    product.lda = b_first ? p->ldb : p->lda;
    product.ldb = ld_second;
    product.a = row_of(p, p->transa, b_first ? p->b : p->a, rect->row, product.lda);
    product.b = row_of(p, p->transa, second, rect->col, ld_second);
    clb_host_call(x->host, &product);
}

static void compute_part(const struct structured *x, const struct clb_rect *rect)
{
    const struct clb_call *p = x->call;
    if (p->kind == CLB_KIND_symm) {
        compute_symm(x, rect);
    } else if (rect->row == rect->col) {
        compute_diagonal(x, rect);
    } else if (p->kind == CLB_KIND_gemmtr) {
        const struct clb_call product = gemmtr_product(x, rect);
        clb_host_call(x->host, &product);
    } else {
        add_adjoint(x, rect, &x->alpha, &x->beta, false);
        const clb_scalar conjugate = clb_scalar_conjugate(p->precision, x->alpha);
        if (p->kind == CLB_KIND_syr2k)
            add_adjoint(x, rect, x->hermitian ? &conjugate : &x->alpha,
                        clb_scalar_of(p->precision, 1), true);
    }
}

/* ---- xGEMMTR from products ---- */

/* Columns that are computed at once; a diagonal block of this order is on the stack. */
enum { BLOCK = 32 };

/* A diagonal block: computes the whole product on the stack, then copies its triangle. */
static void compose_diagonal(const struct structured *x, const struct clb_rect *rect)
{
    const struct clb_call *p = x->call;
    double block[2 * BLOCK * BLOCK];
    struct clb_call product = gemmtr_product(x, rect);
    product.beta = clb_scalar_of(p->precision, 0);
    product.c = block;
    product.ldc = BLOCK;
    clb_host_call(x->host, &product);
    for (size_t j = 0; j < rect->cols; j++) {
        const size_t first = p->upper ? 0 : j, rows = p->upper ? j + 1 : rect->rows - j;
        clb_merge_tile(p->precision, rows, 1, clb_scalar_of(p->precision, 1),
                       element_at(p, block, first, j, BLOCK), BLOCK, &x->beta,
                       element_at(p, p->c, rect->row + first, rect->col + j, p->ldc), p->ldc);
    }
}

static void compute_all(const struct structured *x)
{
    const struct clb_call *p = x->call;
    if (x->host->of[p->kind] != NULL) {
        clb_host_call(x->host, p);
        return;
    }
    for (size_t j = 0; j < p->n; j += BLOCK) {
        const size_t cols = clb_min((size_t)BLOCK, p->n - j), end = j + cols;
        const struct clb_rect diagonal = {j, j, cols, cols};
        const struct clb_rect beside = {p->upper ? 0 : end, j, p->upper ? j : p->n - end, cols};
        const struct clb_call product = gemmtr_product(x, &beside);
        compose_diagonal(x, &diagonal);
        if (beside.rows > 0)
            clb_host_call(x->host, &product);
    }
}

/* ---- any call ---- */

/* Of xGESV and xPOSV, the solution. */
static void complete_other(struct clb_run *run, const struct clb_rect *rect)
{
    const clb_kind kind = run->call->kind;
    const struct clb_call whole = clb_call_as(run->call, kind == CLB_KIND_gesv   ? CLB_KIND_getrs
                                                         : kind == CLB_KIND_posv ? CLB_KIND_potrs
                                                                                 : kind);
    const struct clb_call part = rect != NULL ? clb_call_part(&whole, rect) : whole;
    clb_host_call(run->host, &part);
}

static void complete_part(struct clb_run *run, const struct clb_rect *rect)
{
    const clb_kind kind = run->call->kind;
    if (kind != CLB_KIND_symm && kind != CLB_KIND_syrk && kind != CLB_KIND_syr2k &&
        kind != CLB_KIND_gemmtr) {
        complete_other(run, rect);
        return;
    }
    const struct structured x = structured_of(run->call, run->host);
    if (rect == NULL)
        compute_all(&x);
    else
        compute_part(&x, rect);
}

bool clb_run_complete_parts(struct clb_run *run, clb_status status)
{
    const struct clb_gemm_progress *progress = &run->progress;
    if (status != CLB_OK && run->written == 0)
        complete_part(run, NULL);
    for (size_t i = 0; status != CLB_OK && run->written > 0 && i < progress->parts; i++) {
        if (!progress->written[i])
            complete_part(run, &progress->part[i]);
    }
    return status != CLB_OK;
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
    const struct structured x = structured_of(&entry->call, host);
    compute_all(&x);
    return 0;
}
