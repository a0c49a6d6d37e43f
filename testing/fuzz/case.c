/* SPDX-License-Identifier: BSD-3-Clause
 * A case: drawn from a seed, printed as a line, read back, made simpler. */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[FIELDS] = {
#define FIELD(id, name) name,
#include "fields.def"
#undef FIELD
};

static const struct routine *routine_of(const struct fuzz_case *c)
{
    return &routines[c->value[FIELD_ROUTINE]];
}

bool signature_has(const struct routine *routine, char argument)
{
    return strchr(routine->signature, argument) != NULL;
}

/* ---- only what the routine looks at ---- */

/* The argument by which a field is seen; 0: always. */
static const char seen_by[FIELDS] = {
    [FIELD_SIDE] = 's',   [FIELD_UPLO] = 'u',   [FIELD_TRANSA] = 't', [FIELD_TRANSB] = 'T',
    [FIELD_DIAG] = 'd',   [FIELD_ALPHA] = '*',  [FIELD_BETA] = '+',   [FIELD_M] = 'm',
    [FIELD_N] = 'n',      [FIELD_K] = 'k',      [FIELD_PAD_B] = 'B',  [FIELD_PAD_C] = 'C',
    [FIELD_FILL_B] = 'B', [FIELD_FILL_C] = 'C', [FIELD_WORK] = 'w',
};

/* "nm kn": no more of the first than of the second. */
static void keep_limits(struct fuzz_case *c, const char *limits)
{
    for (; *limits != '\0'; limits += strspn(limits, " ")) {
        const enum field field = limits[0] == 'm' ? FIELD_M : limits[0] == 'n' ? FIELD_N : FIELD_K;
        c->value[field] = smaller(c->value[field], size_of(c, limits[1]));
        limits += strcspn(limits, " ");
    }
}

/* Only what LAPACKE refuses itself, the layout and leading dimensions of rows: the reference's
 * handler of all other arguments ends the process. */
static bool can_be_invalid(const struct fuzz_case *c)
{
    const struct routine *routine = routine_of(c);
    const long form = c->value[FIELD_FORM], index = c->value[FIELD_INVALID] - 2;
    if (!routine->lapack || form == FORM_FORTRAN || index >= (long)strlen(routine->signature))
        return false;
    return index < 0 || (strchr("ABC", routine->signature[index]) != NULL &&
                         (form == FORM_ROWS || form == FORM_WORK_ROWS));
}

/* What the reference does wrong in LQ: a query with sizes of 0 is answered with less workspace than
 * the call accepts; and from the right LAPACKE takes A for a matrix of m columns where it is by
 * rows, and in complex precisions where it looks for NaN. */
static void keep_lq(struct fuzz_case *c)
{
    long *value = c->value;
    const long form = value[FIELD_FORM];
    const bool nan = form == FORM_COLS || form == FORM_ROWS;
    if (nan || value[FIELD_WORK] == 2) {
        for (int i = FIELD_M; i <= FIELD_K; i++)
            value[i] = larger(value[i], signature_has(routine_of(c), seen_by[i]));
    }
    if (form == FORM_ROWS || form == FORM_WORK_ROWS ||
        (nan && precisions[value[FIELD_PRECISION]].complex))
        value[FIELD_SIDE] = 0;
}

/* Fields that do not matter are 0, and sizes fit each other. */
static void normalise(struct fuzz_case *c)
{
    const struct routine *routine = routine_of(c);
    long *value = c->value;
    for (int i = 0; i < FIELDS; i++) {
        const bool other_size = i == FIELD_K && signature_has(routine, 'r');
        if (seen_by[i] != 0 && !signature_has(routine, seen_by[i]) && !other_size)
            value[i] = 0;
    }
    value[FIELD_NAMES] %= NAMES;
    value[FIELD_FORM] %= routine->lapack ? FORM_WORK_ROWS + 1 : FORM_ROWS + 1;
    if (value[FIELD_FORM] != FORM_FORTRAN && !routine->lapack)
        value[FIELD_LETTERS] = 0;
    if (routine->lapack && (value[FIELD_FORM] == FORM_COLS || value[FIELD_FORM] == FORM_ROWS))
        value[FIELD_WORK] = 0;
    if (!routine->judge->can_be_wrong)
        value[FIELD_WRONG] = 0;
    if (!can_be_invalid(c))
        value[FIELD_INVALID] = 0;
    if (value[FIELD_INVALID] != 0 && value[FIELD_WORK] == 2) /* a query is refused, too */
        value[FIELD_WORK] = 0;
    /* A and B may be the same memory where both are inputs. */
    if (value[FIELD_PLACE] > 1 && !(signature_has(routine, 'B') && signature_has(routine, 'C')))
        value[FIELD_PLACE] = 0;
    if (strchr(routine->flags, ADJOINT) != NULL)
        keep_lq(c);
    keep_limits(c, routine->limits);
    /* The reference's LAPACKE_xGETRI gives xGETRI of nothing too small a workspace. */
    if (signature_has(routine, 'p') && signature_has(routine, 'w') &&
        value[FIELD_FORM] != FORM_FORTRAN)
        value[FIELD_N] = larger(value[FIELD_N], 1);
    const size_t letters = strlen(routine->trans[precisions[value[FIELD_PRECISION]].complex]);
    if (letters != 0) {
        value[FIELD_TRANSA] %= (long)letters;
        value[FIELD_TRANSB] %= (long)letters;
    }
}

/* ---- drawing ---- */

static long below(uint64_t *state, long bound)
{
    return (long)random_below(state, (size_t)bound);
}

/* True once in `times`. */
static bool one_in(uint64_t *state, long times)
{
    return below(state, times) == 0;
}

static long draw_size(uint64_t *state, long largest)
{
    static const long edges[] = {1, 2, 4, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40};
    if (one_in(state, 60))
        return 0;
    if (one_in(state, 4))
        return edges[below(state, sizeof edges / sizeof *edges)];
    return 1 + below(state, one_in(state, 2) ? smaller(largest, 12) : largest);
}

/* One product in 25 is skinny or deep: a size that no other operand has squared is long. */
static void draw_long(struct fuzz_case *c, uint64_t *state, long largest)
{
    const struct routine *routine = routine_of(c);
    if (routine->lapack || !signature_has(routine, 'k') || !one_in(state, 25))
        return;
    const bool any = signature_has(routine, 'm');
    c->value[any ? FIELD_M + below(state, 3) : FIELD_K] = 1 + below(state, 5 * largest);
}

static long draw_pad(uint64_t *state, bool wide)
{
    if (wide)
        return (1L << 30) + below(state, 1 << 20);
    if (one_in(state, 4))
        return below(state, one_in(state, 8) ? 1500 : 70);
    return below(state, 6);
}

/* Mostly one, plain contents and no special values: each makes the others' errors invisible. */
static long draw_seldom(uint64_t *state, long plain, long all, long times)
{
    return one_in(state, times) ? below(state, all) : below(state, plain);
}

static void draw_routine(struct fuzz_case *c, uint64_t *state, const struct limits *limits)
{
    long routine, precision, scheme, form;
    do {
        routine = below(state, (long)routine_count);
        precision = below(state, 4);
    } while (limits->allowed[routine][precision] == 0);
    do {
        scheme = one_in(state, 2) ? below(state, NAMES) : 0;
        form = below(state, FORM_WORK_ROWS + 1);
    } while ((limits->allowed[routine][precision] & name_bit(scheme, group_of(form))) == 0);
    c->value[FIELD_ROUTINE] = routine;
    c->value[FIELD_PRECISION] = precision;
    c->value[FIELD_NAMES] = scheme;
    c->value[FIELD_FORM] = form;
}

struct fuzz_case draw_case(uint64_t seed, const struct limits *limits)
{
    struct fuzz_case c = {{0}};
    uint64_t state = seed;
    long *value = c.value;
    const bool large = one_in(&state, limits->often),
               wide = limits->wide != 0 && one_in(&state, limits->wide);
    const long most = large ? limits->largest : wide ? 6 : 40;
    draw_routine(&c, &state, limits);
    value[FIELD_M] = draw_size(&state, most);
    value[FIELD_N] = draw_size(&state, most);
    value[FIELD_K] = draw_size(&state, most);
    if (!large && !wide)
        draw_long(&c, &state, limits->largest);
    for (int i = FIELD_SIDE; i <= FIELD_DIAG; i++)
        value[i] = below(&state, i == FIELD_TRANSA || i == FIELD_TRANSB ? 6 : 2);
    value[FIELD_ALPHA] = draw_seldom(&state, 5, SCALARS, 8);
    value[FIELD_BETA] = draw_seldom(&state, 5, SCALARS, 8);
    for (int i = FIELD_PAD_A; i <= FIELD_PAD_C; i++)
        value[i] = draw_pad(&state, wide);
    value[FIELD_PLACE] = wide ? 0 : draw_seldom(&state, 2, 4, 3);
    value[FIELD_SHIFT] = below(&state, 9);
    value[FIELD_LETTERS] = below(&state, 2);
    for (int i = FIELD_FILL_A; i <= FIELD_FILL_C; i++)
        value[i] = draw_seldom(&state, 3, FILLS, 3);
    value[FIELD_SPECIAL] = one_in(&state, 12) ? 1 + below(&state, OPERANDS * SPECIALS) : 0;
    value[FIELD_WRONG] = one_in(&state, 8);
    value[FIELD_WORK] = below(&state, 3);
    value[FIELD_INVALID] = one_in(&state, 20) ? 1 + below(&state, 12) : 0;
    value[FIELD_SEED] = (long)(random_bits(&state) >> 4);
    normalise(&c);
    return c;
}

/* ---- text ---- */

void print_case(const struct fuzz_case *c, char *text, size_t size)
{
    int at = snprintf(text, size, "%c%s", precisions[c->value[FIELD_PRECISION]].letter,
                      routine_of(c)->name);
    for (int i = FIELD_FORM; i < FIELDS && at >= 0 && (size_t)at < size; i++) {
        if (c->value[i] != 0)
            at += snprintf(text + at, size - (size_t)at, " %s=%ld", names[i], c->value[i]);
    }
}

static bool read_routine(struct fuzz_case *c, const char *word)
{
    for (size_t r = 0; r < routine_count; r++) {
        for (long p = 0; p < 4; p++) {
            if (*word == precisions[p].letter && strcmp(word + 1, routines[r].name) == 0) {
                c->value[FIELD_ROUTINE] = (long)r;
                c->value[FIELD_PRECISION] = p;
                return true;
            }
        }
    }
    return false;
}

static bool read_field(struct fuzz_case *c, const char *word)
{
    for (int i = FIELD_FORM; i < FIELDS; i++) {
        size_t length = strlen(names[i]);
        if (strncmp(word, names[i], length) == 0 && word[length] == '=') {
            c->value[i] = strtol(word + length + 1, NULL, 10);
            return c->value[i] >= 0;
        }
    }
    return false;
}

bool read_case(struct fuzz_case *c, const char *text)
{
    char copy[1000], *rest, *word;
    *c = (struct fuzz_case){{0}};
    snprintf(copy, sizeof copy, "%s", text);
    word = strtok_r(copy, " ", &rest);
    if (word == NULL || !read_routine(c, word))
        return false;
    while ((word = strtok_r(NULL, " ", &rest)) != NULL) {
        if (!read_field(c, word))
            return false;
    }
    normalise(c);
    return true;
}

/* ---- simpler ---- */

/* Each field to 0, to half and to one less. The seed stays: what it means would be lost. */
bool simpler_case(const struct fuzz_case *c, size_t candidate, struct fuzz_case *simpler)
{
    const size_t fields = FIELD_SEED - FIELD_FORM;
    size_t field = FIELD_FORM + candidate % fields;
    long value = c->value[field];
    if (candidate >= 3 * fields)
        return false;
    *simpler = *c;
    simpler->value[field] = candidate < fields ? 0 : candidate < 2 * fields ? value / 2 : value - 1;
    if (simpler->value[field] < 0)
        simpler->value[field] = 0;
    normalise(simpler);
    return true;
}
