/* What factors, solutions and inverses must satisfy. SPDX-License-Identifier: BSD-3-Clause */
#include "judging.h"

#include <string.h>

/* F*G*X = B; with pivots, of the rows of B or of X. */
static void check_solution(struct judge *v, struct clb_operator f, struct clb_operator g,
                           bool swaps_b, bool swaps_x)
{
    const struct clb_operator x = clb_matrix_now(v, 'B'), b = clb_matrix_before(v, 'B');
    (void)clb_set_scaled(v, &x);
    clb_judge_equation(v, &(struct equation){.factor = {f, g, x},
                                             .right = &b,
                                             .swaps_left = swaps_x,
                                             .swaps_right = swaps_b,
                                             .is_solution = true,
                                             .terms = (double)x.rows + 16});
}

static void check_lu_solution(struct judge *v, clb_op op)
{
    const struct clb_operator a = clb_matrix_now(v, 'A');
    const struct clb_operator l = clb_triangle_of(a, 'l'), u = clb_triangle_of(a, 'U');
    if (op == CLB_OP_N)
        check_solution(v, l, u, true, false);
    else
        check_solution(v, clb_with_op(u, op), clb_with_op(l, op), false, true);
}

void clb_judge_getrs(struct judge *v)
{
    check_lu_solution(v, v->call->transa);
}

/* The factor F of F*F^H: U^H or L. */
static struct clb_operator cholesky_factor(const struct judge *v, size_t order)
{
    struct clb_operator a = clb_matrix_now(v, 'A');
    a.rows = a.cols = order;
    return v->call->upper ? clb_adjoint(a) : a;
}

void clb_judge_potrs(struct judge *v)
{
    const struct clb_operator f = cholesky_factor(v, v->call->n);
    check_solution(v, f, clb_adjoint(f), false, false);
}

/* A factorisation that found no factors has not touched B. */
static void check_b_kept(struct judge *v)
{
    const struct clb_operator now = clb_matrix_now(v, 'B'), before = clb_matrix_before(v, 'B');
    const size_t element = clb_precision_size(v->precision);
    for (size_t j = 0; j < now.cols; j++) {
        if (memcmp((const char *)now.data + j * now.ld * element,
                   (const char *)before.data + j * before.ld * element, now.rows * element) != 0)
            clb_judge_fail(v, "B was changed");
    }
}

/* ---- LU ---- */

static int64_t info_of(const struct judge *v)
{
    return clb_integer_get(v->call->info, 0, v->call->wide);
}

static void check_pivots(struct judge *v, size_t rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t pivot = clb_integer_get(v->call->ipiv, i, v->call->wide);
        if (pivot < (int64_t)i + 1 || pivot > (int64_t)rows)
            clb_judge_fail(v, "a pivot is no row");
    }
}

/* |re| + |im| of element (i, i). */
static double pivot_size(const struct clb_operator *m, size_t i)
{
    const double complex pivot = clb_operator_get(m, i, i);
    return clb_magnitude(creal(pivot), cimag(pivot));
}

/* The first pivot with a size in [least, limit); the number of pivots where there is none. */
static size_t first_pivot_in(const struct clb_operator *lu, double least, double limit)
{
    const size_t order = clb_min(lu->rows, lu->cols);
    for (size_t i = 0; i < order; i++) {
        const double size = pivot_size(lu, i);
        if (size >= least && size < limit)
            return i;
    }
    return order;
}

/* Partial pivoting: what a pivot was chosen from, multiplier times pivot, is not larger than the
 * pivot, in the norm that LAPACK chooses by, |re| + |im|. Other pivots may give factors of A too,
 * with larger errors. Returns the largest of these multiples; infinity: one is not finite. */
static double largest_multiplier(struct judge *v, const struct clb_operator *lu,
                                 const struct clb_operator *l)
{
    const size_t order = clb_min(lu->rows, lu->cols);
    double most = 0;
    for (size_t j = 0; j < order; j++) {
        const double size = pivot_size(lu, j);
        const double complex unit =
            size > 0 && size <= DBL_MAX ? clb_operator_get(lu, j, j) / size : 1;
        v->held.re[0][j] = creal(unit);
        v->held.im[0][j] = cimag(unit);
    }
    clb_operator_columns(l, v->entry, &v->held, v->z.size);
    for (size_t j = 0; j < order; j++)
        most = fmax(most, v->z.size[j]);
    return most;
}

/* P*A = L*U. */
void clb_judge_getrf(struct judge *v)
{
    const struct clb_operator lu = clb_matrix_now(v, 'A');
    const struct clb_operator l = clb_triangle_of(lu, 'l'), u = clb_triangle_of(lu, 'U');
    const struct clb_operator before = clb_matrix_before(v, 'A');
    const size_t order = clb_min(lu.rows, lu.cols);
    check_pivots(v, lu.rows, order);
    if (clb_has_failed(v) || !clb_is_moderate(v, before))
        return;
    /* Libraries multiply by a pivot's reciprocal, or by that of its square: from the column of the
     * first where that may overflow on factors need not be finite. */
    const double least = DBL_TRUE_MIN, tiny = 16 * (clb_is_complex(v) ? sqrt(v->tiny) : v->tiny);
    const double multiplier = largest_multiplier(v, &lu, &l);
    if (!clb_set_scaled(v, &u) || !(multiplier <= DBL_MAX)) {
        struct clb_operator left_of_it = lu;
        left_of_it.cols = first_pivot_in(&lu, least, tiny);
        v->verdict->left += order;
        if (left_of_it.cols == order || !clb_is_below(v, left_of_it, INFINITY))
            clb_judge_fail(v, "it is not finite");
        return;
    }
    const size_t zero = first_pivot_in(&lu, 0, least);
    if (info_of(v) != (zero < order ? (int64_t)zero + 1 : 0))
        clb_judge_fail(v, "info is wrong");
    if (multiplier > 1.001)
        clb_judge_fail(v, "a multiplier is too large");
    clb_judge_equation(v, &(struct equation){.factor = {l, u},
                                             .right = &before,
                                             .swaps_right = true,
                                             .terms = (double)order + 16});
}

void clb_judge_gesv(struct judge *v)
{
    clb_judge_getrf(v);
    if (clb_has_failed(v) || !clb_is_moderate(v, clb_matrix_before(v, 'A')) ||
        !clb_is_below(v, clb_matrix_now(v, 'A'), INFINITY))
        return;
    if (info_of(v) == 0)
        check_lu_solution(v, CLB_OP_N);
    else
        check_b_kept(v);
}

/* Z*L*U = I where A^-1 = Z*P, transposed: the solve from the right keeps this residual small. */
void clb_judge_getri(struct judge *v)
{
    const struct clb_operator before = clb_matrix_before(v, 'A'),
                              inverse = clb_with_op(clb_matrix_now(v, 'A'), CLB_OP_T);
    const struct clb_operator l = clb_with_op(clb_triangle_of(before, 'l'), CLB_OP_T);
    const struct clb_operator u = clb_with_op(clb_triangle_of(before, 'U'), CLB_OP_T);
    (void)clb_set_scaled(v, &inverse);
    clb_judge_equation(v, &(struct equation){.factor = {u, l, inverse},
                                             .swaps_left = true,
                                             .is_solution = true,
                                             .terms = 2 * (double)before.rows + 16});
}

/* ---- Cholesky ---- */

/* Pivot k that was not positive: a(k,k) - |w|^2 with F*w = a(0:k,k) is below what errors E of the
 * factors make of it, [-z; 1]^H*E*[-z; 1] with F^H*z = w and |E| <= c u |F||F^H|. */
static void check_bad_pivot(struct judge *v, const struct clb_operator *f, size_t k)
{
    const struct clb_operator before = clb_matrix_before(v, 'A'), other = clb_adjoint(*f);
    const double pivot = creal(clb_operator_get(&before, k, k));
    double square = 0;
    for (size_t i = 0; i < k; i++) {
        const double complex value =
            clb_operator_get(&before, v->call->upper ? i : k, v->call->upper ? k : i);
        v->y.re[0][i] = creal(value);
        v->y.im[0][i] = v->call->upper ? cimag(value) : -cimag(value);
    }
    double most = clb_operator_solve(f, v->y.re[0], v->y.im[0], v->tiny);
    for (size_t i = 0; i < k; i++) {
        v->z.re[0][i] = v->y.re[0][i];
        v->z.im[0][i] = v->y.im[0][i];
        square += v->y.re[0][i] * v->y.re[0][i] + v->y.im[0][i] * v->y.im[0][i];
    }
    most = fmax(most, clb_operator_solve(&other, v->z.re[0], v->z.im[0], v->tiny));
    double bound = fabs(pivot) + v->tiny;
    v->z.n = k;
    v->z.least = v->z.norm = 0;
    for (size_t i = 0; i < k; i++)
        v->z.size[i] = fabs(v->z.re[0][i]) + fabs(v->z.im[0][i]);
    clb_apply_next(v, other, &v->z);
    for (size_t i = 0; i < k; i++) {
        const double size = v->z.size[i] + fabs(v->y.re[0][i]) + fabs(v->y.im[0][i]);
        bound += size * size;
    }
    bound *= (4 * (double)k + 32) * (clb_is_complex(v) ? 3 : 1) * v->unit;
    if (most <= DBL_MAX && bound <= DBL_MAX && pivot - square > bound)
        clb_judge_fail(v, "info is wrong");
}

/* A = F*F^H; where a pivot is not positive, of the part before it. */
void clb_judge_potrf(struct judge *v)
{
    const int64_t info = info_of(v);
    const size_t n = v->call->n;
    struct clb_operator before = clb_mirrored(clb_matrix_before(v, 'A'), true);
    if (info < 0 || info > (int64_t)n) {
        clb_judge_fail(v, "info is wrong");
        return;
    }
    if (!clb_is_moderate(v, clb_matrix_before(v, 'A')))
        return;
    before.rows = before.cols = info == 0 ? n : (size_t)info - 1;
    const struct clb_operator f = cholesky_factor(v, before.rows);
    const struct clb_operator other = clb_adjoint(f);
    if (before.rows > 0) {
        if (!clb_set_scaled(v, &other))
            clb_judge_fail(v, "it is not finite");
        clb_judge_equation(
            v, &(struct equation){.factor = {f, other}, .right = &before, .terms = (double)n + 16});
    }
    if (info > 0 && !clb_has_failed(v))
        check_bad_pivot(v, &f, before.rows);
}

void clb_judge_posv(struct judge *v)
{
    clb_judge_potrf(v);
    if (clb_has_failed(v) || !clb_is_moderate(v, clb_matrix_before(v, 'A')))
        return;
    if (info_of(v) == 0)
        clb_judge_potrs(v);
    else
        check_b_kept(v);
}

/* ---- inverses and products of triangles ---- */

/* U*X = I; X*L = I by columns of the transposes: the residual that the algorithm keeps small. */
void clb_judge_trtri(struct judge *v)
{
    const bool lower = !v->call->upper;
    const struct clb_operator t = clb_transposed_if(lower, clb_matrix_before(v, 'A'));
    const struct clb_operator x = clb_transposed_if(lower, clb_matrix_now(v, 'A'));
    (void)clb_set_scaled(v, &x);
    clb_judge_equation(
        v, &(struct equation){.factor = {t, x}, .is_solution = true, .terms = (double)t.rows + 16});
}

/* U*U^H or L^H*L. */
void clb_judge_lauum(struct judge *v)
{
    const struct clb_operator before = clb_matrix_before(v, 'A');
    const struct clb_operator f = v->call->upper ? before : clb_adjoint(before),
                              other = clb_adjoint(f);
    const struct clb_operator now = clb_mirrored(clb_matrix_now(v, 'A'), true);
    (void)clb_set_scaled(v, &other);
    clb_judge_equation(
        v, &(struct equation){
               .factor = {f, other}, .right = &now, .unsized = true, .terms = (double)f.rows + 8});
}

/* F*F^H*P = I with P = X^H*X, X the inverse of F: the residual is F*(R + R^H)*X for R = X*F - I,
 * and that of the last product. With |R| <= c u |X||F| it is at most 3 c u |F|^2 |X|^2 in the
 * Frobenius norm, and |X|^2 is the trace of P. */
void clb_judge_potri(struct judge *v)
{
    const struct clb_operator before = clb_matrix_before(v, 'A'), now = clb_matrix_now(v, 'A');
    const struct clb_operator f = v->call->upper ? clb_adjoint(before) : before,
                              other = clb_adjoint(f);
    const double n = (double)before.rows;
    double trace = 0, norm = 0;
    clb_set_vectors(v, before.rows, NULL);
    if (!clb_is_moderate(v, now)) {
        for (size_t j = 0; j < before.rows; j++)
            v->largest[j] = v->largest[j] <= DBL_MAX;
        clb_judge_unread(v, &(struct equation){.factor = {f, other, now}});
        return;
    }
    if (!clb_is_moderate(v, before))
        return;
    clb_apply_first(v, f, &v->y);
    for (size_t i = 0; i < before.rows; i++) {
        norm += v->y.size[i] * v->y.size[i];
        trace += fabs(creal(clb_operator_get(&now, i, i)));
    }
    clb_apply_first(v, clb_mirrored(now, true), &v->y);
    clb_apply_next(v, other, &v->y);
    clb_apply_next(v, f, &v->y);
    clb_sample_add(&v->y, -1, &v->x, true);
    for (size_t i = 0; i < before.rows; i++)
        v->y.size[i] = norm * trace / sqrt(n) + v->x.least * (1 + norm) * n;
    clb_judge_norm(v, n + 16);
}

/* ---- QR ---- */

/* set_scaled for contents whose squares neither overflow nor underflow; else false. */
static bool set_scaled_if_tame(struct judge *v, const struct clb_operator *m)
{
    const double range = v->huge > FLT_MAX ? 0x1p450 : 0x1p40;
    clb_find_largest(v, m);
    for (size_t j = 0; j < clb_operator_cols(m); j++) {
        if (v->largest[j] != 0 && !(v->largest[j] < range && v->largest[j] > 1 / range))
            return false;
    }
    return clb_set_scaled_to_largest(v, clb_operator_cols(m));
}

/* LQ is QR of the adjoint matrices. */
static struct clb_operator as_qr(const struct judge *v, struct clb_operator m)
{
    return clb_routine_has_flag(v->call->routine, 'l') ? clb_adjoint(m) : m;
}

static struct clb_stored_q reflectors_of(const struct judge *v, struct clb_operator a, size_t count)
{
    return (struct clb_stored_q){as_qr(v, a), count, v->call->tau};
}

/* y = op(Q)*y, whose entries behind its last one are zeros. False when Q is not unitary. */
static bool reflect(struct judge *v, const struct clb_stored_q *q, bool forward)
{
    const size_t order = clb_operator_rows(&q->m);
    bool unitary = true;
    for (size_t a = 0; a < CLB_COUNT_OF(v->y.of); a++) {
        for (size_t i = v->y.n; i < order; i++)
            v->y.of[a][i] = 0;
    }
    v->y.n = order;
    v->status = clb_stored_q_apply(q, forward, &v->y, &unitary);
    return unitary;
}

/* y = M*x; `sized`: with errors of M's size. */
static void judge_reflected(struct judge *v, const struct clb_stored_q *q, struct clb_operator m,
                            bool sized)
{
    clb_apply_first(v, m, &v->z);
    clb_sample_add(&v->y, -1, &v->z, sized);
    clb_judge_norm(v, (double)(clb_operator_rows(&q->m) + q->count + 16));
}

/* Q*R = A, by norms of columns. */
void clb_judge_geqrf(struct judge *v)
{
    const struct clb_operator qr = clb_matrix_now(v, 'A');
    const struct clb_operator before = as_qr(v, clb_matrix_before(v, 'A'));
    const bool lq = before.transposed;
    const struct clb_stored_q q = reflectors_of(v, qr, clb_min(qr.rows, qr.cols));
    if (!set_scaled_if_tame(v, &before))
        return;
    clb_apply_first(v, as_qr(v, clb_triangle_of(qr, lq ? 'L' : 'U')), &v->y);
    (void)reflect(v, &q, false);
    for (size_t i = 0; i < v->y.n; i++)
        v->y.size[i] = 0;
    judge_reflected(v, &q, before, true);
}

/* op(Q)*C; C*op(Q) by the adjoints. */
void clb_judge_ormqr(struct judge *v)
{
    const struct clb_operator now = clb_matrix_now(v, 'C'), before = clb_matrix_before(v, 'C');
    const struct clb_stored_q q = reflectors_of(v, clb_matrix_now(v, 'A'), v->call->k);
    const bool right = v->call->right;
    const bool forward = ((v->call->transa != CLB_OP_N) != q.m.transposed) != right;
    const struct clb_operator c = right ? clb_adjoint(before) : before;
    if (!set_scaled_if_tame(v, &c))
        return;
    clb_apply_first(v, c, &v->y);
    if (!reflect(v, &q, forward))
        return;
    judge_reflected(v, &q, right ? clb_adjoint(now) : now, false);
}

/* The first columns of Q. */
void clb_judge_orgqr(struct judge *v)
{
    const struct clb_operator now = as_qr(v, clb_matrix_now(v, 'A'));
    const size_t cols = clb_operator_cols(&now);
    const struct clb_stored_q q = reflectors_of(v, clb_matrix_before(v, 'A'), v->call->k);
    clb_set_vectors(v, cols, NULL);
    clb_sample_clear(&v->y, cols);
    clb_sample_add(&v->y, 1, &v->x, true);
    if (!reflect(v, &q, false))
        return;
    judge_reflected(v, &q, now, false);
}
