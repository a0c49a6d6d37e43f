/* SPDX-License-Identifier: BSD-3-Clause
 * Judges of factorisations: |P*A - L*U| <= c n u |L||U| and |A - L*L'| <= c n u |L||L'|
 * componentwise, pivots and info. NaN, infinity and what may overflow have no right answer but a
 * sound one: pivots are rows, and nothing outside is touched. */
#include "fuzz.h"

/* Growth by elimination has room. */
static bool holds_special(const struct problem *p, const struct model *x)
{
    for (long i = 0; i < x->rows * x->cols; i++) {
        if (!(fabsl(creall(x->at[i])) < p->p->huge / 1024) ||
            !(fabsl(cimagl(x->at[i])) < p->p->huge / 1024))
            return true;
    }
    return false;
}

/* ---- LU ---- */

static void check_pivots(struct problem *p, long m, long n)
{
    for (long i = 0; i < smaller(m, n); i++) {
        if (p->ipiv[i] < i + 1 || p->ipiv[i] > m)
            fail(p, "ipiv(%ld) is %d", i + 1, p->ipiv[i]);
    }
}

/* OpenBLAS divides by multiplying with the inverse, which overflows for the smallest pivots. */
static bool is_beyond(const struct problem *p)
{
    return lenient && (p->c.value[FIELD_FILL_A] == 6 || p->c.value[FIELD_FILL_A] == 9);
}

static long first_zero(const struct model *x)
{
    for (long i = 0; i < smaller(x->rows, x->cols); i++) {
        if (*model_at(x, i, i) == 0)
            return i + 1;
    }
    return 0;
}

/* Pivots were the largest: no multiplier is above 1, or 2 as |re| + |im| of what |re| + |im| chose.
 */
static void check_multipliers(struct problem *p, const struct model *l)
{
    for (long i = 0; i < l->rows * l->cols; i++) {
        const real size = dense_abs1(l->at[i]);
        if (!(size <= ((p->p->complex ? 2 : 1) * (1 + 8 * p->p->unit))))
            fail(p, "a multiplier is %.9Lg", size);
    }
}

/* Elimination in extended precision; `rounded` are the entries that arithmetic has reached. */
static void eliminate(struct model *x, bool *rounded, long k)
{
    const number pivot = *model_at(x, k, k);
    const real size = dense_square(pivot);
    for (long i = k + 1; i < x->rows && size != 0; i++) {
        const number l = dense_times(*model_at(x, i, k), conjl(pivot)) / size;
        /* What rounding has reached may be a zero here only. */
        const bool none_of_row = l == 0 && !rounded[i + k * x->rows];
        for (long j = k + 1; !none_of_row && j < x->cols; j++) {
            const number u = *model_at(x, k, j);
            rounded[i + j * x->rows] |= u != 0 || rounded[k + j * x->rows];
            *model_at(x, i, j) -= dense_times(l, u);
        }
    }
}

static real size_at(const struct model *x, long i, long j)
{
    return dense_abs1(*model_at(x, i, j));
}

/* Among entries that no rounding has reached, each pivot is the first of the largest. */
static void check_choices(struct problem *p)
{
    const long m = p->old[0]->rows, n = p->old[0]->cols;
    struct model *x = model_op(p->old[0], 'N');
    bool *rounded = make_memory((size_t)(m * n) * sizeof *rounded);
    for (long k = 0; k < smaller(m, n); k++) {
        const long chosen = p->ipiv[k] - 1;
        long best = k;
        for (long i = k; i < m; i++)
            best = size_at(x, i, k) > size_at(x, best, k) ? i : best;
        /* |re| + |im| is rounded, too. */
        const real large = size_at(x, best, k), size = size_at(x, chosen, k);
        const bool wrong = !x->complex ? best != chosen : large - size > 4 * p->p->unit * large;
        if (wrong && !rounded[best + k * m] && !rounded[chosen + k * m])
            fail(p, "ipiv(%ld) is %ld and not %ld", k + 1, chosen + 1, best + 1);
        swap_rows(x, k, chosen);
        for (long j = 0; j < n; j++) {
            const bool held = rounded[k + j * m];
            rounded[k + j * m] = rounded[chosen + j * m];
            rounded[chosen + j * m] = held;
        }
        eliminate(x, rounded, k);
    }
}

/* The factors; false when there is nothing more to judge. */
static bool check_lu(struct problem *p, const struct model *lu)
{
    const long m = lu->rows, n = lu->cols;
    check_pivots(p, m, n);
    if (p->message[0] != '\0' || holds_special(p, p->old[0]) || is_beyond(p))
        return false;
    if (p->info != first_zero(lu))
        fail(p, "info is %d and not %ld", p->info, first_zero(lu));
    const struct model *l = model_triangle(lu, false, true), *u = model_triangle(lu, true, false);
    struct sums s = make_sums(m, n);
    if (p->c.value[FIELD_FILL_A] < 6 || p->c.value[FIELD_FILL_A] == 8)
        check_choices(p);
    permute_rows(p->old[0], p->ipiv, smaller(m, n));
    add_model(p, &s, minus_one, p->old[0]);
    add_product(p, &s, one, l, u);
    add_size(&s, model_abs(p, l), model_abs(p, u));
    check_sums(p, &s, NULL, (real)(smaller(m, n) + 4));
    check_multipliers(p, l);
    return p->info == 0;
}

static void run_getrf(struct problem *p)
{
    check_lu(p, model_of(p, &p->operands[0]));
}

static void check_b_kept(struct problem *p)
{
    struct model *b = model_of(p, &p->operands[1]);
    for (long i = 0; i < b->rows * b->cols; i++) {
        const real now = creall(b->at[i]);
        if (now != creall(p->old[1]->at[i]) && !isnan(now))
            fail(p, "B was changed although A is singular");
    }
}

static void run_gesv(struct problem *p)
{
    struct model *lu = model_of(p, &p->operands[0]);
    /* Without right-hand sides OpenBLAS does not factor. */
    if (p->c.value[FIELD_K] > 0 && check_lu(p, lu))
        check_lu_solution(p, lu, 'N');
    else if (p->info != 0)
        check_b_kept(p);
}

/* ---- Cholesky ---- */

/* The leading part of `order` of a Hermitian matrix and of its factor. */
static struct model *leading(const struct model *x, long order)
{
    struct model *y = make_model(order, order, x->complex);
    for (long j = 0; j < order; j++) {
        for (long i = 0; i < order; i++)
            *model_at(y, i, j) = *model_at(x, i, j);
    }
    return y;
}

/* Where a pivot is negative from the beginning, it is the first that can't be used. */
static long expected_info(const struct problem *p)
{
    for (long i = 0; i < p->old[0]->rows; i++) {
        if (!(creall(*model_at(p->old[0], i, i)) > 0))
            return i + 1;
    }
    return 0;
}

static void check_real_pivots(struct problem *p, const struct model *factor)
{
    for (long i = 0; i < factor->rows; i++) {
        const real pivot = creall(*model_at(factor, i, i));
        if (!(pivot > 0))
            fail(p, "pivot %ld is %.9Lg", i + 1, pivot);
    }
}

static bool check_cholesky(struct problem *p, const struct model *factor)
{
    const bool upper = p->c.value[FIELD_UPLO];
    if (holds_special(p, p->old[0]) || p->c.value[FIELD_FILL_A] >= 6)
        return false;
    const long info = expected_info(p), order = info == 0 ? factor->rows : info - 1;
    if (p->info != info) {
        fail(p, "info is %d and not %ld", p->info, info);
        return false;
    }
    const struct model *t = leading(model_triangle(factor, upper, false), order);
    const struct model *other = model_op(t, 'C'), *f = upper ? other : t, *g = upper ? t : other;
    struct sums s = make_sums(order, order);
    add_model(p, &s, minus_one, leading(model_mirror(p->old[0], upper, true), order));
    add_product(p, &s, one, f, g);
    add_size(&s, model_abs(p, f), model_abs(p, g));
    check_sums(p, &s, NULL, (real)(order + 6));
    check_real_pivots(p, t);
    return info == 0;
}

static void run_potrf(struct problem *p)
{
    check_cholesky(p, model_of(p, &p->operands[0]));
}

static void run_posv(struct problem *p)
{
    struct model *factor = model_of(p, &p->operands[0]);
    if (check_cholesky(p, factor))
        check_cholesky_solution(p, factor);
    else if (p->info != 0)
        check_b_kept(p);
}

const struct judge judge_getrf = {CONTENT_ANY, true, run_getrf};
const struct judge judge_gesv = {CONTENT_ANY, true, run_gesv};
const struct judge judge_potrf = {CONTENT_DEFINITE, true, run_potrf};
const struct judge judge_posv = {CONTENT_DEFINITE, true, run_posv};
