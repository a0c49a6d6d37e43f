/* SPDX-License-Identifier: BSD-3-Clause
 * After a failure the next library finishes factorisations whose first columns are written. */
#include "job.h"

#include <string.h>

static void *at(const struct clb_call *call, size_t row, size_t col)
{
    return (char *)call->a + (row + col * call->lda) * clb_precision_size(call->precision);
}

/* C -= op(A)*op(B) for parts of the call's matrix. */
static void subtract(const struct clb_call *call, const struct clb_host_blas *next, clb_op transa,
                     clb_op transb, const struct clb_rect *c, size_t k, void *a, void *b)
{
    struct clb_call gemm = clb_call_as(call, CLB_KIND_gemm);
    gemm.transa = transa;
    gemm.transb = transb;
    gemm.m = c->rows;
    gemm.n = c->cols;
    gemm.k = k;
    gemm.alpha = clb_scalar_of(call->precision, -1);
    gemm.beta = clb_scalar_of(call->precision, 1);
    gemm.a = a;
    gemm.b = b;
    gemm.c = at(call, c->row, c->col);
    gemm.ldb = gemm.ldc = call->lda;
    if (gemm.m > 0)
        clb_host_call(next, &gemm);
}

/* The first `rows` rows of columns from `rows` or `first` on: B = op(T)^-1*B, T on their left. */
static void solve_top(const struct clb_call *call, const struct clb_host_blas *next, bool upper,
                      size_t rows, size_t first)
{
    struct clb_call trsm = clb_call_as(call, CLB_KIND_trsm);
    trsm.upper = upper;
    trsm.unit = !upper;
    trsm.transa = upper ? CLB_OP_C : CLB_OP_N;
    trsm.m = rows;
    trsm.n = call->n - first;
    trsm.alpha = clb_scalar_of(call->precision, 1);
    trsm.b = at(call, 0, first);
    trsm.ldb = call->lda;
    clb_host_call(next, &trsm);
}

/* ---- LU ----
 *
 * With w columns written and k = min(w, m): undo the interchanges of later steps in the written
 * columns; apply those of the first k steps to the other, still original columns; U12 = L11^-1*A12;
 * A22 -= L21*U12; factor A22 anew, and apply its interchanges to the written columns. So the pivots
 * are a sequence as in LAPACK, even where the new ones differ from the device's. */

/* Apply interchanges [i0, i1) to columns [j0, j1), or with `backward` undo them. */
static void interchange(const struct clb_call *call, const int64_t *ipiv, size_t i0, size_t i1,
                        bool backward, size_t j0, size_t j1)
{
    const size_t element = clb_precision_size(call->precision);
    char held[16];
    for (size_t j = j0; j < j1; j++) {
        for (size_t i = i0; i < i1; i++) {
            size_t row = backward ? i1 - 1 - (i - i0) : i;
            void *x = at(call, row, j), *y = at(call, (size_t)ipiv[row] - 1, j);
            memcpy(held, x, element);
            memcpy(x, y, element);
            memcpy(y, held, element);
        }
    }
}

void clb_getrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_factors *result)
{
    const size_t written = result->columns_written, inner = clb_min(call->m, call->n);
    const size_t k = clb_min(written, inner);
    int64_t *ipiv = result->ipiv;
    if (written == call->n)
        return;
    interchange(call, ipiv, k, inner, true, 0, written);
    interchange(call, ipiv, 0, k, false, written, call->n);
    if (k > 0) {
        const struct clb_rect rest = {k, written, call->m - k, call->n - written};
        solve_top(call, next, false, k, written);
        subtract(call, next, CLB_OP_N, CLB_OP_N, &rest, k, at(call, k, 0), at(call, 0, written));
    }
    if (k < inner) {
        size_t info = clb_getrf_on_host(next, call, call->m - k, call->n - k, at(call, k, k),
                                        call->lda, ipiv + k);
        for (size_t i = k; i < inner; i++)
            ipiv[i] += (int64_t)k;
        interchange(call, ipiv, k, inner, false, 0, k);
        if (result->info == 0 || result->info > k)
            result->info = info != 0 ? k + info : 0;
    }
    result->columns_written = call->n;
}

/* ---- Cholesky ----
 *
 * With c columns written: for A = L*L^H all rows of these are final: A22 -= L21*L21^H, and A22 is
 * factored. For A = U^H*U the other columns are still original, their first c rows too: so first
 * U12 = U11^-H*A12, then A22 -= U12^H*U12. The triangle of A22 is updated in block columns, and
 * their diagonal blocks column by column, because the other triangle must not be written. */
#define BLOCK ((size_t)64)

/* A(row:row+rows, col:col+cols) -= the product of the first `depth` rows of U or columns of L. */
static void update(const struct clb_call *call, const struct clb_host_blas *next, size_t depth,
                   size_t row, size_t rows, size_t col, size_t cols)
{
    const struct clb_rect c = {row, col, rows, cols};
    if (call->upper)
        subtract(call, next, CLB_OP_C, CLB_OP_N, &c, depth, at(call, 0, row), at(call, 0, col));
    else
        subtract(call, next, CLB_OP_N, CLB_OP_C, &c, depth, at(call, row, 0), at(call, col, 0));
}

/* Clear the imaginary part of a diagonal element, because a product with beta = 1 may read it. */
static void clear_imaginary(const struct clb_call *call, size_t q)
{
    const size_t real = clb_precision_real_size(call->precision);
    if (clb_precision_parts(call->precision) > 1)
        memset((char *)at(call, q, q) + real, 0, real);
}

static void update_triangle(const struct clb_call *call, const struct clb_host_blas *next,
                            size_t written)
{
    for (size_t j = written; j < call->n; j += BLOCK) {
        size_t end = clb_min(j + BLOCK, call->n);
        for (size_t q = j; q < end; q++) {
            size_t first = call->upper ? j : q, last = call->upper ? q + 1 : end;
            clear_imaginary(call, q);
            update(call, next, written, first, last - first, q, 1);
        }
        if (call->upper)
            update(call, next, written, written, j - written, j, end - j);
        else
            update(call, next, written, end, call->n - end, j, end - j);
    }
}

void clb_potrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_factors *result)
{
    const size_t written = result->columns_written, n = call->n;
    struct clb_call rest = clb_call_as(call, CLB_KIND_potrf);
    /* With info set no more columns are to be written than these. */
    if (written == n || (result->info != 0 && written == result->info - 1))
        return;
    if (call->upper)
        solve_top(call, next, true, written, written);
    update_triangle(call, next, written);
    rest.m = rest.n = n - written;
    rest.a = at(call, written, written);
    size_t info = clb_host_call(next, &rest);
    result->info = info != 0 ? written + info : 0;
    result->columns_written = n;
}

/* ---- QR ----
 *
 * With w columns written and k = min(w, m): A2 = H(k)^H*...*H(1)^H*A2 for the columns A2 that are
 * not written, then their rows from k on are factored. For LQ that is A2^H*Q, where the Q of LQ is
 * this one's adjoint. */

void clb_geqrf_resume(const struct clb_call *call, const struct clb_host_blas *next,
                      struct clb_factors *result)
{
    const bool adjoint = clb_call_is_adjoint(call);
    const size_t written = result->columns_written;
    const size_t m = adjoint ? call->n : call->m, n = adjoint ? call->m : call->n;
    const size_t k = clb_min(written, clb_min(m, n));
    if (written == n)
        return;
    if (k > 0) {
        struct clb_call reflect =
            clb_call_of(clb_routine_of(CLB_KIND_ormqr, call->precision, adjoint));
        reflect.right = adjoint;
        reflect.transa = clb_precision_parts(call->precision) == 1 ? CLB_OP_T : CLB_OP_C;
        reflect.m = adjoint ? n - written : m;
        reflect.n = adjoint ? m : n - written;
        reflect.k = k;
        reflect.a = call->a;
        reflect.tau = result->tau;
        reflect.c = adjoint ? at(call, written, 0) : at(call, 0, written);
        reflect.lda = reflect.ldc = call->lda;
        clb_host_call(next, &reflect);
    }
    if (k < m) {
        struct clb_call rest = *call;
        rest.m -= adjoint ? written : k;
        rest.n -= adjoint ? k : written;
        rest.a = adjoint ? at(call, written, k) : at(call, k, written);
        rest.tau = (char *)result->tau + k * clb_precision_size(call->precision);
        clb_host_call(next, &rest);
    }
    result->columns_written = n;
}
