/* Judges of factorisations: |P*A - L*U| <= c n u |L||U| and |A - L*L'| <= c n u |L||L'|
 * componentwise, pivots and info. NaN, infinity and what may overflow have no right answer but a
 * sound one: pivots are rows, and nothing outside is touched. */
#include "fuzz.h"

#include <stdlib.h>

static bool holds_special(const struct problem *p, const struct model *x)
{
    for (size_t i = 0; i < (size_t)x->rows * (size_t)x->cols; i++) {
        /* Growth by elimination has room. */
        if (!(fabsl(x->re[i]) < p->p->huge / 1024) ||
            (x->im != NULL && !(fabsl(x->im[i]) < p->p->huge / 1024)))
            return true;
    }
    return false;
}

/* ---- LU -------------------------------------------------------------------------------------- */

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
        const long at = i + i * x->rows;
        if (x->re[at] == 0 && (x->im == NULL || x->im[at] == 0))
            return i + 1;
    }
    return 0;
}

/* Pivots were the largest: no multiplier is above 1, or 2 as |re| + |im| of what |re| + |im| chose.
 */
static void check_multipliers(struct problem *p, const struct model *l)
{
    struct model *size = model_abs(l, 0);
    for (size_t i = 0; i < (size_t)l->rows * (size_t)l->cols; i++) {
        if (!(size->re[i] <= ((p->p->complex ? 2 : 1) * (1 + 8 * p->p->unit))))
            fail(p, "a multiplier is %.9Lg", size->re[i]);
    }
    free_model(size);
}

/* Elimination in extended precision; `rounded` are the entries that arithmetic has reached. */
static void eliminate(struct model *x, bool *rounded, long k)
{
    const long m = x->rows, pivot = k + k * m;
    const real none = 0, *im = x->im, pivot_im = im != NULL ? im[pivot] : none;
    const real size = x->re[pivot] * x->re[pivot] + pivot_im * pivot_im;
    for (long i = k + 1; i < m && size != 0; i++) {
        const real re = x->re[i + k * m], other = im != NULL ? im[i + k * m] : none;
        const real l_re = (re * x->re[pivot] + other * pivot_im) / size;
        const real l_im = (other * x->re[pivot] - re * pivot_im) / size;
        /* What rounding has reached may be a zero here only. */
        const bool none_of_row = l_re == 0 && l_im == 0 && !rounded[i + k * m];
        for (long j = k + 1; !none_of_row && j < x->cols; j++) {
            const long at = i + j * m, above = k + j * m;
            const real u_im = im != NULL ? im[above] : none;
            rounded[at] |= x->re[above] != 0 || u_im != 0 || rounded[above];
            x->re[at] -= l_re * x->re[above] - l_im * u_im;
            if (im != NULL)
                x->im[at] -= l_re * u_im + l_im * x->re[above];
        }
    }
}

static real size_at(const struct model *x, long at)
{
    return fabsl(x->re[at]) + (x->im != NULL ? fabsl(x->im[at]) : 0);
}

/* Among entries that no rounding has reached, each pivot is the first of the largest. */
static void check_choices(struct problem *p)
{
    const long m = p->old[0]->rows, n = p->old[0]->cols;
    struct model *x = model_op(p->old[0], 'N');
    bool *rounded = calloc((size_t)(m * n + 1), sizeof *rounded);
    for (long k = 0; rounded != NULL && k < smaller(m, n); k++) {
        const long chosen = p->ipiv[k] - 1;
        long best = k;
        for (long i = k; i < m; i++)
            best = size_at(x, i + k * m) > size_at(x, best + k * m) ? i : best;
        /* |re| + |im| is rounded, too. */
        const real large = size_at(x, best + k * m), size = size_at(x, chosen + k * m);
        const bool wrong = x->im == NULL ? best != chosen : large - size > 4 * p->p->unit * large;
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
    free(rounded);
    free_model(x);
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
    struct model *l = model_triangle(lu, false, true), *u = model_triangle(lu, true, false);
    struct model *size_l = model_abs(l, p->p->tiny), *size_u = model_abs(u, p->p->tiny);
    struct sums s = make_sums(m, n);
    if (p->c.value[FIELD_FILL_A] < 6 || p->c.value[FIELD_FILL_A] == 8)
        check_choices(p);
    permute_rows(p->old[0], p->ipiv, smaller(m, n));
    add_model(p, &s, minus_one, p->old[0]);
    add_product(p, &s, one, l, u);
    add_size(&s, size_l, size_u);
    check_sums(p, &s, NULL, (real)(smaller(m, n) + 4));
    check_multipliers(p, l);
    free_sums(&s);
    free_model(l);
    free_model(u);
    free_model(size_l);
    free_model(size_u);
    return p->info == 0;
}

static void run_getrf(struct problem *p)
{
    struct model *lu = model_of(p, &p->operands[0]);
    check_lu(p, lu);
    free_model(lu);
}

static void check_b_kept(struct problem *p)
{
    struct model *b = model_of(p, &p->operands[1]);
    for (size_t i = 0; i < (size_t)b->rows * (size_t)b->cols; i++) {
        if (b->re[i] != p->old[1]->re[i] && !isnan(b->re[i]))
            fail(p, "B was changed although A is singular");
    }
    free_model(b);
}

static void run_gesv(struct problem *p)
{
    struct model *lu = model_of(p, &p->operands[0]);
    /* Without right-hand sides OpenBLAS does not factor. */
    if (p->c.value[FIELD_K] > 0 && check_lu(p, lu))
        check_lu_solution(p, lu, 'N');
    else if (p->info != 0)
        check_b_kept(p);
    free_model(lu);
}

/* ---- Cholesky -------------------------------------------------------------------------------- */

/* The leading part of `order` of a Hermitian matrix and of its factor. */
static struct model *leading(const struct model *x, long order)
{
    struct model *y = make_model(order, order, x->im != NULL);
    for (long j = 0; j < order; j++) {
        for (long i = 0; i < order; i++) {
            y->re[i + j * order] = x->re[i + j * x->rows];
            if (y->im != NULL)
                y->im[i + j * order] = x->im[i + j * x->rows];
        }
    }
    return y;
}

/* Where a pivot is negative from the beginning, it is the first that can't be used. */
static long expected_info(const struct problem *p)
{
    for (long i = 0; i < p->old[0]->rows; i++) {
        if (!(p->old[0]->re[i + i * p->old[0]->rows] > 0))
            return i + 1;
    }
    return 0;
}

static void check_real_pivots(struct problem *p, const struct model *factor)
{
    for (long i = 0; i < factor->rows; i++) {
        if (!(factor->re[i + i * factor->rows] > 0))
            fail(p, "pivot %ld is %.9Lg", i + 1, factor->re[i + i * factor->rows]);
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
    struct model *mirrored = model_mirror(p->old[0], upper, true), *a = leading(mirrored, order);
    struct model *whole = model_triangle(factor, upper, false), *t = leading(whole, order);
    struct model *other = model_op(t, 'C');
    struct model *size_t_ = model_abs(t, p->p->tiny), *size_other = model_abs(other, p->p->tiny);
    struct sums s = make_sums(order, order);
    add_model(p, &s, minus_one, a);
    add_product(p, &s, one, upper ? other : t, upper ? t : other);
    add_size(&s, upper ? size_other : size_t_, upper ? size_t_ : size_other);
    check_sums(p, &s, NULL, (real)(order + 6));
    check_real_pivots(p, t);
    free_sums(&s);
    free_model(mirrored);
    free_model(a);
    free_model(whole);
    free_model(t);
    free_model(other);
    free_model(size_t_);
    free_model(size_other);
    return info == 0;
}

static void run_potrf(struct problem *p)
{
    struct model *factor = model_of(p, &p->operands[0]);
    check_cholesky(p, factor);
    free_model(factor);
}

static void run_posv(struct problem *p)
{
    struct model *factor = model_of(p, &p->operands[0]);
    if (check_cholesky(p, factor))
        check_cholesky_solution(p, factor);
    else if (p->info != 0)
        check_b_kept(p);
    free_model(factor);
}

const struct judge judge_getrf = {CONTENT_ANY, true, run_getrf};
const struct judge judge_gesv = {CONTENT_ANY, true, run_gesv};
const struct judge judge_potrf = {CONTENT_DEFINITE, true, run_potrf};
const struct judge judge_posv = {CONTENT_DEFINITE, true, run_posv};
