/* Scalars and contents.
 *
 * Contents: 0 small integers, 1 uniform, 2 positive, 3 graded rows and columns, 4 large (1e30), 5
 * small (1e-30), 6 below the smallest normal number, 7 near the largest, 8 mostly zeros, 9 of very
 * different magnitudes. SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <string.h>

void put_real(const struct precision *p, char *at, real value)
{
    const float single = (float)value;
    const double full = (double)value;
    memcpy(at, p->real_size == 4 ? (const void *)&single : &full, p->real_size);
}

real get_real(const struct precision *p, const char *at)
{
    float single;
    double full;
    memcpy(p->real_size == 4 ? (void *)&single : &full, at, p->real_size);
    return p->real_size == 4 ? (real)single : (real)full;
}

number get_number(const struct precision *p, const char *at)
{
    return dense_number(get_real(p, at), p->complex ? get_real(p, at + p->real_size) : 0);
}

/* Powers of two that are the precision's 1e30, 1e300 and so on. */
static int exponents(const struct precision *p)
{
    return p->real_size == 4 ? 126 : 1022;
}

void put_scalar(const struct precision *p, long kind, bool is_real, uint64_t *state, char *at)
{
    const real random = (real)random_uniform(state), other = (real)random_uniform(state);
    const int large = exponents(p) / 2;
    const number values[SCALARS] = {1,
                                    0,
                                    -1,
                                    dense_number(random, other),
                                    random,
                                    dense_number(0, random),
                                    ldexpl(random, large),
                                    ldexpl(random, -large),
                                    ldexpl(random, -2 * large - 10),
                                    NAN,
                                    random < 0 ? -INFINITY : INFINITY};
    put_real(p, at, creall(values[kind]));
    if (p->complex)
        put_real(p, at + p->real_size, is_real ? 0 : cimagl(values[kind]));
}

/* ---- an entry ---- */

/* The same for row i and column i, so that D*A*D stays definite. */
static int grade(const struct problem *p, long index)
{
    uint64_t state = (uint64_t)(p->c.value[FIELD_SEED] + index);
    const int most = exponents(p->p) / 16;
    return (int)random_below(&state, (size_t)(2 * most + 1)) - most;
}

static int scale_of(const struct problem *p, long kind, long i, long j, uint64_t *state)
{
    const int range = exponents(p->p);
    switch (kind) {
    case 3:
        return grade(p, i) + grade(p, j);
    case 4:
        return (int)(0.79 * range);
    case 5:
        return -(int)(0.79 * range);
    case 6:
        return -range - 8;
    case 7:
        return range + 1;
    case 9:
        return (int)random_below(state, (size_t)(range / 2)) - range / 4;
    default:
        return 0;
    }
}

static real base_of(long kind, uint64_t *state)
{
    const real random = (real)random_uniform(state);
    switch (kind) {
    case 0:
        return (real)((long)(random_bits(state) % 9) - 4);
    case 2:
        return fabsl(random);
    case 8:
        return random_below(state, 5) == 0 ? random : random < 0 ? -0.0L : 0.0L;
    default:
        return random;
    }
}

/* Systems are well conditioned before they are scaled: their solutions don't overflow. */
static real shaped(const struct operand *x, long i, long j, real value)
{
    if (x->content == CONTENT_ANY || x->content == CONTENT_REFLECTORS)
        return value;
    if (i != j)
        return value / (real)(4 * x->rows);
    return x->content == CONTENT_DEFINITE || value >= 0 ? 2 + fabsl(value) : -2 - fabsl(value);
}

static void fill(struct problem *p, struct operand *x, long kind, uint64_t *state)
{
    /* Of reflectors, only the direction matters; and a graded definite matrix is one by rows and
     * columns. */
    if (x->content == CONTENT_REFLECTORS && kind > 2 && kind != 8)
        kind = 1;
    if (x->content == CONTENT_DEFINITE && kind == 9)
        kind = 3;
    for (long j = 0; j < x->cols; j++) {
        for (long i = 0; i < x->rows; i++) {
            if (!is_in_part(x, i, j))
                continue;
            const int scale = scale_of(p, kind, i, j, state);
            char *at = element(p, x, i, j);
            put_real(p->p, at, ldexpl(shaped(x, i, j, base_of(kind, state)), scale));
            /* Imaginary parts that are not read: NaN, unless somebody looks for it. */
            if (!p->p->complex || (x->real_diagonal && i == j && !looks_for_nan(p)))
                continue;
            const real im = x->content == CONTENT_DEFINITE || i != j
                                ? shaped(x, 0, 1, base_of(kind, state))
                                : base_of(kind, state);
            put_real(p->p, at + p->p->real_size,
                     x->content == CONTENT_CHOLESKY && i == j ? 0 : ldexpl(im, scale));
        }
    }
}

/* ---- what belongs to LAPACK ---- */

static void make_pivots(struct problem *p, uint64_t *state)
{
    const long n = p->operands[0].rows;
    for (long i = 0; i < n; i++)
        p->ipiv[i] = (int)(i + 1 + (long)random_below(state, (size_t)(n - i)));
}

/* tau = (1 - e^(i phi)) / |v|^2 makes I - tau*v*v' unitary; real ones have phi = pi. */
static void make_tau(struct problem *p, uint64_t *state)
{
    const struct operand *x = &p->operands[0];
    for (long j = 0; j < p->reflectors; j++) {
        real norm = 1, phi = p->p->complex ? (real)random_uniform(state) : 0;
        for (long i = j + 1; i < (is(p, ADJOINT) ? x->cols : x->rows); i++) {
            const char *at = is(p, ADJOINT) ? element(p, x, j, i) : element(p, x, i, j);
            norm += dense_square(get_number(p->p, at));
        }
        char *tau = p->tau + (size_t)j * element_size(p);
        put_real(p->p, tau, (1 + cosl(phi)) / norm);
        if (p->p->complex)
            put_real(p->p, tau + p->p->real_size, sinl(phi) / norm);
    }
}

/* A zero column or a negative pivot. */
static void make_wrong(struct problem *p, uint64_t *state)
{
    struct operand *x = &p->operands[0];
    if (x->rows == 0 || x->cols == 0)
        return;
    const long j = (long)random_below(state, (size_t)smaller(x->rows, x->cols));
    if (x->content == CONTENT_DEFINITE) {
        char *at = element(p, x, j, j);
        put_real(p->p, at, -get_real(p->p, at));
        return;
    }
    for (long i = 0; i < x->rows; i++) {
        if (is_in_part(x, i, j))
            memset(element(p, x, i, j), 0, element_size(p));
    }
}

/* ---- all operands ---- */

static void make_special(struct problem *p, uint64_t *state)
{
    static const real values[SPECIALS] = {(real)NAN, (real)INFINITY, -(real)INFINITY, -0.0L};
    const long special = p->c.value[FIELD_SPECIAL] - 1;
    struct operand *x = &p->operands[special / SPECIALS % OPERANDS];
    if (x->rows == 0 || x->cols == 0)
        return;
    for (size_t count = 1 + random_below(state, 3); count > 0; count--) {
        const long i = (long)random_below(state, (size_t)x->rows);
        const long j = (long)random_below(state, (size_t)x->cols);
        if (is_in_part(x, i, j))
            put_real(p->p, element(p, x, i, j), values[special % SPECIALS]);
    }
}

bool is_zero(const struct problem *p, const char *scalar)
{
    return get_number(p->p, scalar) == 0;
}

/* What is not read: A and B where alpha is 0, C where beta is. */
static bool is_unread(const struct problem *p, int operand)
{
    const struct routine *routine = p->routine;
    if (p->c.value[FIELD_SEED] & 1)
        return false;
    if (operand == 2)
        return signature_has(routine, '+') && is_zero(p, p->beta);
    return signature_has(routine, '*') && is_zero(p, p->alpha) &&
           (operand == 0 || signature_has(routine, 'C'));
}

void fill_operands(struct problem *p)
{
    uint64_t state = (uint64_t)p->c.value[FIELD_SEED];
    put_scalar(p->p, p->c.value[FIELD_ALPHA], is(p, REAL_ALPHA), &state, p->alpha);
    put_scalar(p->p, p->c.value[FIELD_BETA], is(p, REAL_BETA), &state, p->beta);
    for (int i = 0; i < OPERANDS; i++) {
        if (!is_unread(p, i))
            fill(p, &p->operands[i], p->c.value[FIELD_FILL_A + i], &state);
    }
    if (p->c.value[FIELD_WRONG])
        make_wrong(p, &state);
    if (p->operands[0].content == CONTENT_REFLECTORS)
        make_tau(p, &state);
    if (p->operands[0].content == CONTENT_FACTORS)
        make_pivots(p, &state);
    if (p->c.value[FIELD_SPECIAL] != 0)
        make_special(p, &state);
}
