/* SPDX-License-Identifier: BSD-3-Clause
 * Judges of inverses and of products of triangles with themselves, by the same in extended
 * precision: with Y = T^-1, |X - Y| <= c n u |Y||T||Y| componentwise, which each of the residuals
 * that algorithms keep small bounds as well; and what that means for Y'*Y. */
#include "fuzz.h"

/* Of a lower triangle, by columns of T*Y = I. */
static struct model *invert_lower(const struct model *t)
{
    struct model *y = make_model(t->rows, t->rows, t->complex);
    for (long j = 0; j < t->rows; j++) {
        for (long i = j; i < t->rows; i++) {
            number sum = i == j, pivot = *model_at(t, i, i);
            for (long k = j; k < i; k++)
                sum -= dense_times(*model_at(t, i, k), *model_at(y, k, j));
            *model_at(y, i, j) = t->complex ? sum / pivot : creall(sum) / creall(pivot);
        }
    }
    return y;
}

static struct model *invert(const struct model *t, bool upper)
{
    return upper ? model_op(invert_lower(model_op(t, 'T')), 'T') : invert_lower(t);
}

static struct model *make_unit(long order)
{
    struct model *unit = make_model(order, order, false);
    for (long i = 0; i < order; i++)
        *model_at(unit, i, i) = 1;
    return unit;
}

/* |Y||T||Y|. */
static struct model *error_of(const struct problem *p, const struct model *t, const struct model *y)
{
    const struct model *size = model_abs(p, y);
    return model_product(model_product(size, model_abs(p, t)), size);
}

/* ---- info ---- */

/* OpenBLAS inverts definite matrices without a look at the diagonal, and others' with one that NaN
 * misleads. */
static bool may_say_anything(const struct problem *p)
{
    return lenient && (p->routine->judge == &judge_potri || p->c.value[FIELD_SPECIAL] != 0);
}

/* A zero on the diagonal is said, and nothing is written. True where there is none. */
static bool check_info(struct problem *p)
{
    const struct model *t = p->old[0];
    long zero = 0;
    for (long i = t->rows; i-- > 0 && !p->operands[0].unit;)
        zero = *model_at(t, i, i) == 0 ? i + 1 : zero;
    if (zero != 0 && may_say_anything(p))
        return false;
    if (p->info != zero)
        fail(p, "info is %d and not %ld", p->info, zero);
    if (zero != 0 && !all_intact(p))
        fail(p, "a singular matrix was written");
    return zero == 0;
}

/* Far from overflow and underflow on the way, whatever the order; a unit diagonal is not scaled as
 * what is beside it. */
static bool is_tame(const struct problem *p)
{
    const long kind = p->c.value[FIELD_FILL_A];
    return kind < (p->operands[0].unit ? 3 : 6) || kind == 8;
}

/* Libraries differ in what becomes of NaN and infinity, and no two need to agree. */
static void leave_special(struct sums *s)
{
    for (long i = 0; i < s->rows * s->cols; i++) {
        if (!isfinite(s->size[i])) {
            s->size[i] = 0;
            s->overflow[i] = true;
        }
    }
}

/* ---- judges ---- */

static struct model *given(const struct problem *p)
{
    return model_triangle(p->old[0], p->c.value[FIELD_UPLO], p->operands[0].unit);
}

static void run_trtri(struct problem *p)
{
    struct operand *x = &p->operands[0];
    if (!check_info(p) || !is_tame(p))
        return;
    struct model *t = given(p), *y = invert(t, p->c.value[FIELD_UPLO]), *error = error_of(p, t, y);
    struct sums s = make_sums(x->rows, x->rows);
    add_model(p, &s, one, y);
    add_size(&s, error, make_unit(x->rows));
    leave_special(&s);
    check_sums(p, &s, x, (real)(x->rows + 4));
}

/* Y*Y' or Y'*Y with errors of |E||Y'| + |Y||E'|; without E, the product's own. */
static void check_square(struct problem *p, const struct model *y, const struct model *error)
{
    struct operand *x = &p->operands[0];
    const bool upper = p->c.value[FIELD_UPLO];
    struct model *other = model_op(y, 'C');
    struct sums s = make_sums(x->rows, x->rows);
    add_product(p, &s, one, upper ? y : other, upper ? other : y);
    if (error != NULL) {
        const struct model *size = model_abs(p, y), *size_other = model_op(size, 'T');
        const struct model *error_other = model_op(error, 'T');
        add_size(&s, upper ? error : error_other, upper ? size_other : size);
        add_size(&s, upper ? size : size_other, upper ? error_other : error);
    }
    leave_special(&s);
    check_sums(p, &s, x, (real)(x->rows + 6));
    check_real_diagonal(p, x);
}

static void run_lauum(struct problem *p)
{
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    check_square(p, given(p), NULL);
}

static void run_potri(struct problem *p)
{
    if (!check_info(p) || !is_tame(p))
        return;
    struct model *t = given(p), *y = invert(t, p->c.value[FIELD_UPLO]), *error = error_of(p, t, y);
    check_square(p, y, error);
}

/* X*A = I with A = P'*L*U: |X*P'*L*U - I| <= c n u |X*P'||L||U|. */
static void run_getri(struct problem *p)
{
    if (!check_info(p) || p->c.value[FIELD_FILL_A] > 2 || p->c.value[FIELD_SPECIAL] != 0)
        return;
    struct model *turned = model_op(model_of(p, &p->operands[0]), 'T');
    /* X*P' has X's columns in the order in which P puts rows. */
    permute_rows(turned, p->ipiv, turned->rows);
    const struct model *x = model_op(turned, 'T');
    const struct model *l = model_triangle(p->old[0], false, true);
    const struct model *u = model_triangle(p->old[0], true, false);
    struct sums s = make_sums(x->rows, x->rows);
    add_product(p, &s, one, model_product(x, l), u);
    add_size(&s, model_product(model_abs(p, x), model_abs(p, l)), model_abs(p, u));
    add_model(p, &s, minus_one, make_unit(x->rows));
    check_sums(p, &s, NULL, (real)(4 * x->rows + 16));
}

const struct judge judge_trtri = {CONTENT_TRIANGLE, true, run_trtri};
const struct judge judge_lauum = {CONTENT_CHOLESKY, false, run_lauum};
const struct judge judge_potri = {CONTENT_CHOLESKY, true, run_potri};
const struct judge judge_getri = {CONTENT_FACTORS, true, run_getri};
