/* Judges of inverses and of products of triangles with themselves, by the same in extended
 * precision: with Y = T^-1, |X - Y| <= c n u |Y||T||Y| componentwise, which each of the residuals
 * that algorithms keep small bounds as well; and what that means for Y'*Y. */
#include "fuzz.h"

#include <complex.h>

typedef long double complex number;
#undef complex /* a field of precisions */

static number get(const struct model *x, long i, long j)
{
    const long at = i + j * x->rows;
    return x->im == NULL ? x->re[at] : x->re[at] + x->im[at] * (number)I;
}

static void set(struct model *x, long i, long j, number value)
{
    const long at = i + j * x->rows;
    x->re[at] = creall(value);
    if (x->im != NULL)
        x->im[at] = cimagl(value);
}

/* Of a lower triangle, by columns of T*Y = I. */
static struct model *invert_lower(const struct model *t)
{
    struct model *y = make_model(t->rows, t->rows, t->im != NULL);
    for (long j = 0; j < t->rows; j++) {
        for (long i = j; i < t->rows; i++) {
            number sum = i == j;
            for (long k = j; k < i; k++)
                sum -= get(t, i, k) * get(y, k, j);
            set(y, i, j, t->im == NULL ? creall(sum) / t->re[i + i * t->rows] : sum / get(t, i, i));
        }
    }
    return y;
}

static struct model *invert(const struct model *t, bool upper)
{
    if (!upper)
        return invert_lower(t);
    struct model *lower = model_op(t, 'T'), *y = invert_lower(lower), *inverse = model_op(y, 'T');
    free_model(lower);
    free_model(y);
    return inverse;
}

/* |Y||T||Y|. */
static struct model *error_of(const struct problem *p, const struct model *t, const struct model *y)
{
    struct model *size_t_ = model_abs(t, p->p->tiny), *size_y = model_abs(y, p->p->tiny);
    struct model *half = model_product(size_y, size_t_), *error = model_product(half, size_y);
    free_model(size_t_);
    free_model(size_y);
    free_model(half);
    return error;
}

/* ---- info ------------------------------------------------------------------------------------ */

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
        zero = get(t, i, i) == 0 ? i + 1 : zero;
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

/* ---- judges ---------------------------------------------------------------------------------- */

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
    struct model *unit = make_model(x->rows, x->rows, false);
    struct sums s = make_sums(x->rows, x->rows);
    for (long i = 0; i < x->rows; i++)
        set(unit, i, i, 1);
    add_model(p, &s, one, y);
    add_size(&s, error, unit);
    leave_special(&s);
    check_sums(p, &s, x, (real)(x->rows + 4));
    free_sums(&s);
    free_model(t);
    free_model(y);
    free_model(error);
    free_model(unit);
}

static void check_real(struct problem *p)
{
    const struct operand *x = &p->operands[0];
    for (long i = 0; i < x->rows && p->p->complex; i++) {
        const char *at = element(p, x, i, i);
        if (get_real(p->p, at + p->p->real_size) != 0 && isfinite(get_real(p->p, at)))
            fail(p, "diagonal entry %ld has the imaginary part %.9Lg", i,
                 get_real(p->p, at + p->p->real_size));
    }
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
        struct model *size = model_abs(y, p->p->tiny), *size_other = model_op(size, 'T');
        struct model *error_other = model_op(error, 'T');
        add_size(&s, upper ? error : error_other, upper ? size_other : size);
        add_size(&s, upper ? size : size_other, upper ? error_other : error);
        free_model(size);
        free_model(size_other);
        free_model(error_other);
    }
    leave_special(&s);
    check_sums(p, &s, x, (real)(x->rows + 6));
    check_real(p);
    free_sums(&s);
    free_model(other);
}

static void run_lauum(struct problem *p)
{
    struct model *t = given(p);
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    check_square(p, t, NULL);
    free_model(t);
}

static void run_potri(struct problem *p)
{
    if (!check_info(p) || !is_tame(p))
        return;
    struct model *t = given(p), *y = invert(t, p->c.value[FIELD_UPLO]), *error = error_of(p, t, y);
    check_square(p, y, error);
    free_model(t);
    free_model(y);
    free_model(error);
}

/* X*A = I with A = P'*L*U: |X*P'*L*U - I| <= c n u |X*P'||L||U|. */
static void run_getri(struct problem *p)
{
    if (!check_info(p) || p->c.value[FIELD_FILL_A] > 2 || p->c.value[FIELD_SPECIAL] != 0)
        return;
    struct model *x = model_of(p, &p->operands[0]), *turned = model_op(x, 'T');
    /* X*P' has X's columns in the order in which P puts rows. */
    permute_rows(turned, p->ipiv, turned->rows);
    struct model *moved = model_op(turned, 'T'), *unit = make_model(x->rows, x->rows, false);
    struct model *l = model_triangle(p->old[0], false, true);
    struct model *u = model_triangle(p->old[0], true, false);
    struct model *half = model_product(moved, l), *size_u = model_abs(u, p->p->tiny);
    struct model *size_x = model_abs(moved, p->p->tiny), *size_l = model_abs(l, p->p->tiny);
    struct model *size_half = model_product(size_x, size_l);
    struct sums s = make_sums(x->rows, x->rows);
    for (long i = 0; i < x->rows; i++)
        set(unit, i, i, 1);
    add_product(p, &s, one, half, u);
    add_size(&s, size_half, size_u);
    add_model(p, &s, minus_one, unit);
    check_sums(p, &s, NULL, (real)(4 * x->rows + 16));
    free_sums(&s);
    free_model(x);
    free_model(turned);
    free_model(moved);
    free_model(unit);
    free_model(l);
    free_model(u);
    free_model(half);
    free_model(size_u);
    free_model(size_x);
    free_model(size_l);
    free_model(size_half);
}

const struct judge judge_trtri = {CONTENT_TRIANGLE, true, run_trtri};
const struct judge judge_lauum = {CONTENT_CHOLESKY, false, run_lauum};
const struct judge judge_potri = {CONTENT_CHOLESKY, true, run_potri};
const struct judge judge_getri = {CONTENT_FACTORS, true, run_getri};
