/* SPDX-License-Identifier: BSD-3-Clause
 * Judges of solutions: residuals componentwise, |B - A*X| <= c n u (|A||X| + |B|), with A as the
 * product of the factors that the solve uses. No use of inverses would keep that. */
#include "fuzz.h"

static bool is_within(const struct model *x, long i, long j, real largest)
{
    const number value = *model_at(x, i, j);
    return fabsl(creall(value)) < largest && fabsl(cimagl(value)) < largest;
}

/* All of it, or a row or column; -1 stands for any. */
static bool are_within(const struct model *x, long row, long col, real largest)
{
    for (long j = col < 0 ? 0 : col; j < (col < 0 ? x->cols : col + 1); j++) {
        for (long i = row < 0 ? 0 : row; i < (row < 0 ? x->rows : row + 1); i++) {
            if (!is_within(x, i, j, largest))
                return false;
        }
    }
    return true;
}

/* Solutions with it don't overflow: plain contents and a diagonal that is not tiny. */
static bool is_tame_system(const struct problem *p, const struct model *t)
{
    for (int i = FIELD_FILL_A; i <= FIELD_FILL_C; i++) {
        if (p->c.value[i] > 2)
            return false;
    }
    for (long i = 0; i < t->rows; i++) {
        if (!(fabsl(creall(*model_at(t, i, i))) > 0x1p-10L))
            return false;
    }
    return p->c.value[FIELD_ALPHA] <= 5 && are_within(t, -1, -1, 0x1p20L);
}

/* A right-hand side without special values has a solution without them, whatever the others hold.
 */
static void check_finite(struct problem *p, const struct model *x, const struct model *t, bool unit,
                         const struct model *b)
{
    const bool by_rows = p->c.value[FIELD_SIDE];
    const bool tame = is_tame_system(p, model_triangle(t, true, unit)) &&
                      is_tame_system(p, model_triangle(t, false, unit));
    for (long side = 0; tame && side < (by_rows ? x->rows : x->cols); side++) {
        const long row = by_rows ? side : -1, col = by_rows ? -1 : side;
        if (are_within(b, row, col, 0x1p20L) && !are_within(x, row, col, p->p->huge * 2))
            fail(p, "solution %ld is not finite", side);
    }
}

static void run_trsm(struct problem *p)
{
    const bool right = p->c.value[FIELD_SIDE];
    struct model *x = model_of(p, &p->operands[1]);
    struct model *t = model_triangle(p->old[0], p->c.value[FIELD_UPLO], p->c.value[FIELD_DIAG]);
    struct model *a = model_op(t, trans_letter(p, FIELD_TRANSA));
    struct sums s = make_sums(x->rows, x->cols);
    const struct model *left = right ? x : a, *factor = right ? a : x;
    check_finite(p, x, t, p->c.value[FIELD_DIAG], p->old[1]);
    add_product(p, &s, minus_one, left, factor);
    add_size(&s, model_abs(p, left), model_abs(p, factor));
    add_model(p, &s, p->alpha, p->old[1]);
    check_sums(p, &s, NULL, (real)(a->rows + 4));
}

/* ---- with two factors ---- */

/* P*X as a new model. */
static struct model *interchanged(const struct model *x, const int *ipiv)
{
    struct model *y = model_op(x, 'N');
    permute_rows(y, ipiv, y->rows);
    return y;
}

/* F*(G*X) = B, by both factors' magnitudes. */
static void check_two(struct problem *p, const struct model *f, const struct model *g,
                      const struct model *x, const struct model *b)
{
    const struct model *size = model_product(model_abs(p, g), model_abs(p, x));
    struct sums s = make_sums(x->rows, x->cols);
    add_product(p, &s, minus_one, f, model_product(g, x));
    add_size(&s, model_abs(p, f), model_abs(p, size));
    add_model(p, &s, one, b);
    check_sums(p, &s, NULL, (real)(3 * f->rows + 8));
}

/* L*U*X = P*B; U'*L'*P*X = B. */
void check_lu_solution(struct problem *p, const struct model *lu, char op)
{
    struct model *x = model_of(p, &p->operands[1]), *b = p->old[1];
    struct model *lower = model_triangle(lu, false, true), *upper = model_triangle(lu, true, false);
    check_finite(p, x, lu, false, b);
    if (op == 'N') {
        check_two(p, lower, upper, x, interchanged(b, p->ipiv));
    } else {
        check_two(p, model_op(upper, op), model_op(lower, op), interchanged(x, p->ipiv), b);
    }
}

static void run_getrs(struct problem *p)
{
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    check_lu_solution(p, p->old[0], trans_letter(p, FIELD_TRANSA));
}

/* U'*U*X = B or L*L'*X = B. */
void check_cholesky_solution(struct problem *p, const struct model *factor)
{
    const bool upper = p->c.value[FIELD_UPLO];
    struct model *x = model_of(p, &p->operands[1]);
    struct model *t = model_triangle(factor, upper, false), *other = model_op(t, 'C');
    check_finite(p, x, t, false, p->old[1]);
    check_two(p, upper ? other : t, upper ? t : other, x, p->old[1]);
}

static void run_potrs(struct problem *p)
{
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    check_cholesky_solution(p, p->old[0]);
}

const struct judge judge_trsm = {CONTENT_TRIANGLE, false, run_trsm};
const struct judge judge_getrs = {CONTENT_FACTORS, false, run_getrs};
const struct judge judge_potrs = {CONTENT_CHOLESKY, false, run_potrs};
