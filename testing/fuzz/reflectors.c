/* Judges of QR: reflectors are applied one by one in extended precision; errors are bounded by
 * columns' norms (rows' where they are applied from the right). LQ is judged as QR of the adjoint.
 * SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

/* X := (I - tau*v*v')*X with v(0..j-1) = 0, v(j) = 1; tau conjugated where asked for. */
static void reflect(const struct problem *p, struct model *x, const struct model *v, long j,
                    bool conjugate)
{
    const number held = get_number(p->p, p->tau + (size_t)j * element_size(p));
    const number tau = conjugate ? conjl(held) : held;
    for (long col = 0; col < x->cols; col++) {
        number sum = *model_at(x, j, col);
        for (long i = j + 1; i < x->rows; i++)
            sum += dense_times(conjl(*model_at(v, i, j)), *model_at(x, i, col));
        sum = dense_times(tau, sum);
        *model_at(x, j, col) -= sum;
        for (long i = j + 1; i < x->rows; i++)
            *model_at(x, i, col) -= dense_times(*model_at(v, i, j), sum);
    }
}

/* X := Q*X or Q'*X with Q = H(1)...H(count). */
static void apply(const struct problem *p, struct model *x, const struct model *v, bool adjoint)
{
    for (long step = 0; step < p->reflectors; step++)
        reflect(p, x, v, adjoint ? step : p->reflectors - 1 - step, adjoint);
}

/* Contents with which squares neither overflow nor underflow. */
static bool is_tame(const struct problem *p)
{
    for (int i = FIELD_FILL_A; i <= FIELD_FILL_C; i++) {
        if (p->c.value[i] >= 4 && p->c.value[i] != 8)
            return false;
    }
    return p->c.value[FIELD_SPECIAL] == 0;
}

static real column_norm(const struct model *x, long j)
{
    real sum = 0;
    for (long i = 0; i < x->rows; i++)
        sum += dense_square(*model_at(x, i, j));
    return sqrtl(sum);
}

/* Columns of X are those of `expected` within c u of `norms`' columns. */
static void check_columns(struct problem *p, const struct model *x, const struct model *expected,
                          const struct model *norms, real terms)
{
    for (long j = 0; j < x->cols; j++) {
        real error = 0;
        for (long i = 0; i < x->rows; i++)
            error += dense_square(*model_at(x, i, j) - *model_at(expected, i, j));
        const real bound = terms * p->p->unit * column_norm(norms, j) + p->p->tiny;
        if (!(sqrtl(error) <= bound))
            fail(p, "column (row) %ld is off by %.3Lg, bound %.3Lg", j, sqrtl(error), bound);
    }
}

/* X as QR has it. */
static struct model *model_qr(const struct problem *p, const struct model *x)
{
    return model_op(x, is(p, ADJOINT) ? 'C' : 'N');
}

static struct model *result_of(const struct problem *p)
{
    return model_qr(p, model_of(p, &p->operands[0]));
}

static real terms_of(const struct problem *p, long length)
{
    return (real)(4 * p->reflectors + 4) * sqrtl((real)(length + 4));
}

static void run_geqrf(struct problem *p)
{
    struct model *qr = result_of(p), *old = model_qr(p, p->old[0]);
    struct model *r = make_model(qr->rows, qr->cols, qr->complex);
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    for (long j = 0; j < qr->cols; j++) {
        for (long i = 0; i <= smaller(j, qr->rows - 1); i++)
            *model_at(r, i, j) = *model_at(qr, i, j);
    }
    if (is_tame(p)) {
        apply(p, r, qr, false);
        check_columns(p, r, old, old, terms_of(p, qr->rows));
    }
}

static void run_orgqr(struct problem *p)
{
    struct model *q = result_of(p), *vectors = model_qr(p, p->old[0]);
    struct model *expected = make_model(q->rows, q->cols, q->complex);
    for (long j = 0; j < q->cols; j++)
        *model_at(expected, j, j) = 1;
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    if (p->c.value[FIELD_SPECIAL] == 0) {
        apply(p, expected, vectors, false);
        check_columns(p, q, expected, expected, terms_of(p, q->rows));
    }
}

/* From the right: the adjoint from the left. The Q of LQ is the adjoint of QR's. */
static void run_ormqr(struct problem *p)
{
    const bool right = p->c.value[FIELD_SIDE];
    const bool adjoint = (trans_letter(p, FIELD_TRANSA) != 'N') != is(p, ADJOINT);
    struct model *vectors = model_qr(p, p->old[0]);
    struct model *found = model_op(model_of(p, &p->operands[2]), right ? 'C' : 'N');
    struct model *expected = model_op(p->old[2], right ? 'C' : 'N');
    struct model *norms = model_op(expected, 'N');
    if (p->info != 0)
        fail(p, "info is %d", p->info);
    if (is_tame(p)) {
        apply(p, expected, vectors, adjoint != right);
        check_columns(p, found, expected, norms, terms_of(p, found->rows));
    }
}

const struct judge judge_geqrf = {CONTENT_ANY, false, run_geqrf};
const struct judge judge_orgqr = {CONTENT_REFLECTORS, false, run_orgqr};
const struct judge judge_ormqr = {CONTENT_REFLECTORS, false, run_ormqr};
