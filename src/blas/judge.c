/* The call, the vectors and the judgement: see judge.h. SPDX-License-Identifier: BSD-3-Clause */
#include "judging.h"

#include <stdlib.h>

/* ---- the matrices of a call ---- */

static size_t largest_size(const struct clb_call *call)
{
    size_t size = 1;
    for (char name = 'A'; name <= 'C'; name++) {
        struct clb_shape matrix;
        if (clb_call_shape(call, name, &matrix))
            size = clb_max(size, clb_max(matrix.rows, matrix.cols));
    }
    return size;
}

struct clb_operator clb_matrix_now(const struct judge *v, char name)
{
    struct clb_shape matrix = {0};
    (void)clb_call_shape(v->call, name, &matrix);
    return (struct clb_operator){.precision = v->precision,
                                 .data = matrix.data,
                                 .rows = matrix.rows,
                                 .cols = matrix.cols,
                                 .ld = matrix.ld,
                                 .part = matrix.part};
}

struct clb_operator clb_matrix_before(const struct judge *v, char name)
{
    const struct clb_before *before = &v->question->before[name - 'A'];
    struct clb_operator m = clb_matrix_now(v, name);
    m.data = before->data;
    m.ld = before->ld;
    return m;
}

/* ---- the vectors ---- */

/* The same for every call, whatever it computes. */
static double next_sign(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 63 != 0 ? 1 : -1;
}

/* With one vector, errors in several entries of a row may cancel each other: where the errors are r
 * times the bound, in about one case of r; with all three in one of r^3. */
void clb_set_vectors(struct judge *v, size_t n, const double *magnitude)
{
    const bool entries = v->question->entries;
    v->x.n = n;
    v->x.norm = 0;
    v->smallest = INFINITY;
    for (size_t j = 0; j < n; j++) {
        v->x.size[j] = entries && j != v->entry ? 0 : magnitude != NULL ? magnitude[j] : 1;
        v->x.norm += v->x.size[j];
        if (v->x.size[j] != 0)
            v->smallest = fmin(v->smallest, v->x.size[j]);
    }
    for (size_t r = 0; r < CLB_VECTORS; r++) {
        uint64_t state = r + 1;
        for (size_t j = 0; j < n; j++) {
            v->x.re[r][j] = (entries ? 1 : next_sign(&state)) * v->x.size[j];
            v->x.im[r][j] = 0;
        }
    }
    v->x.least = 16 * v->tiny / v->unit;
}

void clb_find_largest(struct judge *v, const struct clb_operator *m)
{
    clb_operator_columns(m, m->mirrored ? CLB_EVERY : v->entry, NULL, v->largest);
}

bool clb_set_scaled_to_largest(struct judge *v, size_t n)
{
    const int range = v->huge > FLT_MAX ? 400 : 40;
    int most = INT16_MIN;
    bool finite = true;
    if (v->question->entries) { /* one column: its scale is of no account */
        for (size_t j = 0; j < n; j++)
            v->largest[j] = v->largest[j] <= DBL_MAX;
        clb_set_vectors(v, n, v->largest);
        return v->entry >= n || v->largest[v->entry] != 0;
    }
    for (size_t j = 0; j < n; j++) {
        finite = finite && v->largest[j] <= DBL_MAX;
        if (v->largest[j] > 0 && v->largest[j] <= DBL_MAX && ilogb(v->largest[j]) > most)
            most = ilogb(v->largest[j]);
    }
    most = most == INT16_MIN ? 0 : most;
    for (size_t j = 0; j < n; j++) {
        const int at = v->largest[j] > 0 ? ilogb(v->largest[j]) : most;
        v->largest[j] =
            v->largest[j] > DBL_MAX ? 0 : ldexp(1, at > most - range ? -at : range - most);
    }
    clb_set_vectors(v, n, v->largest);
    return finite;
}

bool clb_set_scaled(struct judge *v, const struct clb_operator *m)
{
    clb_find_largest(v, m);
    return clb_set_scaled_to_largest(v, clb_operator_cols(m));
}

void clb_note_scalar(struct judge *v, double complex alpha)
{
    v->x.least /= fmin(1, fabs(creal(alpha)) + fabs(cimag(alpha)));
}

void clb_apply_first(struct judge *v, struct clb_operator m, struct clb_sample *y)
{
    clb_operator_apply(&m, &v->x, y, true);
}

void clb_apply_next(struct judge *v, struct clb_operator m, struct clb_sample *y)
{
    const struct clb_sample from = *y;
    clb_operator_apply(&m, &from, &v->held, false);
    *y = v->held;
    v->held = from;
}

double complex clb_get_scalar(const struct judge *v, bool beta)
{
    const clb_scalar x =
        clb_scalar_get(v->precision, clb_routine_has_flag(v->call->routine, beta ? '+' : '*'),
                       beta ? v->call->beta : v->call->alpha);
    return clb_precision_real_size(v->precision) == sizeof(float)
               ? __builtin_complex((double)x.s[0], (double)x.s[1])
               : __builtin_complex(x.d[0], x.d[1]);
}

/* ---- judgement ---- */

void clb_judge_fail(struct judge *v, const char *what)
{
    if (v->verdict->failed == NULL)
        v->verdict->failed = what;
}

/* How many roundoffs of its size an entry may be off. The deviations of the signs are below 9 but
 * in one case of 10^17, and never above the root of their number; the check's sums have errors. */
static double factor_of(const struct judge *v, double terms)
{
    const double most = v->question->entries ? 1 : fmin(9, sqrt((double)v->x.n));
    const double own = 16 * sqrt((double)(v->x.n + v->y.n + v->held.n)) * (DBL_EPSILON / 2);
    if (v->question->rounded)
        terms += 64;
    return (clb_is_complex(v) ? 2 : 1) * v->unit * most * terms + most * own;
}

/* What is off where a sum may overflow is not judged. */
void clb_judge_entries(struct judge *v, double terms)
{
    struct clb_verdict *verdict = v->verdict;
    const double factor = factor_of(v, terms);
    const double largest = v->huge / 16 * v->smallest * v->tiny * 16 / v->unit / v->x.least;
    for (size_t i = 0; i < v->y.n; i++) {
        const double bound = factor * v->y.size[i];
        double error = 0, sum = 0;
        for (size_t r = 0; r < CLB_VECTORS; r++) {
            error = fmax(error, fmax(fabs(v->y.re[r][i]), fabs(v->y.im[r][i])));
            sum += v->y.re[r][i] + v->y.im[r][i];
        }
        const bool holds = error <= bound && !isnan(sum);
        if (!(bound <= DBL_MAX) || (!holds && !(v->y.size[i] < largest))) {
            verdict->left++;
            continue;
        }
        verdict->judged++;
        if (bound > 0)
            verdict->worst = fmax(verdict->worst, error / bound);
        if (!holds && !clb_has_failed(v)) {
            clb_judge_fail(v, "its entries are off");
            verdict->error = error;
            verdict->bound = bound;
        }
    }
}

/* By norms: |y| <= terms*u*|sizes|. The norm of a sum with random signs is below 10 times the root
 * of the sum of squares but in one case of 10^17. */
void clb_judge_norm(struct judge *v, double terms)
{
    struct clb_verdict *verdict = v->verdict;
    double error = 0, size = 0;
    for (size_t r = 0; r < CLB_VECTORS; r++) {
        double sum = 0;
        for (size_t i = 0; i < v->y.n; i++)
            sum += v->y.re[r][i] * v->y.re[r][i] + v->y.im[r][i] * v->y.im[r][i];
        error = sum <= error ? error : sum; /* NaN, too */
    }
    for (size_t i = 0; i < v->y.n; i++)
        size += v->y.size[i] * v->y.size[i];
    const double bound = 10.0 / 9 * factor_of(v, terms) * sqrt(size);
    verdict->judged++;
    verdict->worst = bound > 0 ? sqrt(error) / bound : verdict->worst;
    verdict->error = sqrt(error);
    verdict->bound = bound;
    if (!(sqrt(error) <= bound) && bound <= DBL_MAX)
        clb_judge_fail(v, "its columns are off");
}

bool clb_is_below(struct judge *v, struct clb_operator m, double limit)
{
    clb_find_largest(v, &m);
    for (size_t j = 0; j < clb_operator_cols(&m); j++) {
        if (!(v->largest[j] < limit))
            return false;
    }
    return true;
}

/* Columns of a solution were not read because they are not finite: that is wrong where a triangular
 * solve, or two, in double precision stays far from overflow. In which order rows are solved for
 * does not matter. */
void clb_judge_unread(struct judge *v, const struct equation *equation)
{
    enum { MOST = 8 };
    const struct clb_operator *solves = equation->factor, *right = equation->right;
    size_t tried = 0;
    for (size_t j = 0; j < v->x.n && tried < MOST && !clb_has_failed(v); j++) {
        double most = 0;
        if (v->largest[j] != 0) /* its scale */
            continue;
        for (size_t i = 0; i < solves[0].rows; i++) {
            const double complex value = (right != NULL ? clb_operator_get(right, i, j) : i == j) *
                                         (equation->alpha != NULL ? *equation->alpha : 1);
            v->held.re[0][i] = creal(value);
            v->held.im[0][i] = cimag(value);
            most = fmax(most, clb_magnitude(creal(value), cimag(value)));
        }
        if (equation->swaps_right)
            clb_sample_swap(&v->held, v->call->ipiv, v->call->wide, solves[0].rows);
        tried += most <= DBL_MAX;
        for (size_t s = 0; s < clb_last_factor(equation) && most < v->huge / 1024; s++)
            most = fmax(
                most, clb_operator_solve(&solves[s], v->held.re[0], v->held.im[0], 1024 * v->tiny));
        if (most < v->huge / 1024)
            clb_judge_fail(v, "it is not finite");
    }
}

void clb_judge_equation(struct judge *v, const struct equation *equation)
{
    const size_t last = clb_last_factor(equation);
    clb_apply_first(v, equation->factor[last], &v->y);
    const size_t rows = v->y.n;
    if (equation->swaps_left)
        clb_sample_swap(&v->y, v->call->ipiv, v->call->wide, rows);
    for (size_t i = last; i-- > 0;)
        clb_apply_next(v, equation->factor[i], &v->y);
    if (equation->right != NULL)
        clb_apply_first(v, *equation->right, &v->z);
    if (equation->alpha != NULL)
        clb_sample_scale(&v->z, *equation->alpha);
    if (equation->swaps_right)
        clb_sample_swap(&v->z, v->call->ipiv, v->call->wide, rows);
    clb_sample_add(&v->y, -1, equation->right != NULL ? &v->z : &v->x, !equation->unsized);
    clb_judge_entries(v, equation->terms);
    if (equation->is_solution)
        clb_judge_unread(v, equation);
}

/* ---- all of them ---- */

static clb_formula *const formulas[CLB_KINDS] = {
#define CLB_FORMULA(kind) [CLB_KIND_##kind] = clb_judge_##kind,
    CLB_KIND_TABLE(CLB_FORMULA)
#undef CLB_FORMULA
};

clb_status clb_judge(const struct clb_judged *question, struct clb_verdict *verdict)
{
    const clb_precision precision = question->call->precision;
    const bool single = clb_precision_real_size(precision) == sizeof(float);
    const size_t size = largest_size(question->call);
    struct judge v = {.question = question,
                      .call = question->call,
                      .precision = precision,
                      .unit = single ? FLT_EPSILON / 2 : DBL_EPSILON / 2,
                      .tiny = single ? (double)FLT_MIN : DBL_MIN,
                      .huge = single ? (double)FLT_MAX : DBL_MAX,
                      .largest = malloc(size * sizeof(double)),
                      .verdict = verdict};
    struct clb_sample *const samples[] = {&v.x, &v.y, &v.z, &v.held};
    *verdict = (struct clb_verdict){0};
    v.status = v.largest != NULL ? CLB_OK : CLB_ERR_NOMEM;
    for (size_t i = 0; i < CLB_COUNT_OF(samples) && v.status == CLB_OK; i++)
        v.status = clb_sample_make(samples[i], size);
    /* The first formula says how many columns there are. */
    for (size_t entry = 0;
         v.status == CLB_OK && (entry == 0 || (question->entries && entry < v.x.n)) &&
         verdict->failed == NULL;
         entry++) {
        v.entry = question->entries ? entry : CLB_EVERY;
        formulas[v.call->kind](&v);
    }
    for (size_t i = 0; i < CLB_COUNT_OF(samples); i++)
        clb_sample_free(samples[i]);
    free(v.largest);
    return v.status;
}
