/* Entries against sums. An entry whose sum holds no NaN and no infinity and can't overflow meets
 * the bound; one with NaN or infinity is what the reference or OpenBLAS makes of it (they differ).
 * SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void fail(struct problem *p, const char *format, ...)
{
    va_list arguments;
    if (p->message[0] != '\0')
        return;
    va_start(arguments, format);
    vsnprintf(p->message, sizeof p->message, format, arguments);
    va_end(arguments);
}

/* ---- what others give ---- */

enum { REFERENCE, OPENBLAS };

struct witness {
    struct model *results[2]; /* NULL: it has no such routine */
    bool asked;
};

/* A copy of everything that a call changes. */
struct kept {
    char **spans, *tau;
    int *ipiv, info;
};

static void *copy_of(const void *from, size_t bytes)
{
    return memcpy(make_memory(bytes), from, bytes);
}

static size_t tau_bytes(const struct problem *p)
{
    return (size_t)p->reflectors * element_size(p);
}

static struct kept keep(const struct problem *p)
{
    struct kept kept = {.spans = make_memory(p->memory.count * sizeof *kept.spans),
                        .tau = copy_of(p->tau, tau_bytes(p)),
                        .ipiv = copy_of(p->ipiv, (size_t)p->pivots * sizeof *p->ipiv),
                        .info = p->info};
    for (size_t i = 0; i < p->memory.count; i++)
        kept.spans[i] = copy_of(p->memory.spans[i].at, p->memory.spans[i].bytes);
    return kept;
}

static void put_back(struct problem *p, struct kept *kept)
{
    for (size_t i = 0; i < p->memory.count; i++)
        memcpy(p->memory.spans[i].at, kept->spans[i], p->memory.spans[i].bytes);
    memcpy(p->tau, kept->tau, tau_bytes(p));
    memcpy(p->ipiv, kept->ipiv, (size_t)p->pivots * sizeof *p->ipiv);
    p->info = kept->info;
}

/* The output as a library computes it from the same input. */
static struct model *ask(struct problem *p, const struct library *library, const struct operand *x)
{
    struct model *result = NULL;
    if (library == NULL)
        return NULL;
    struct kept kept = keep(p);
    restore_operands(p);
    if (call_plain(p, library))
        result = model_of(p, x);
    put_back(p, &kept);
    return result;
}

int info_elsewhere(struct problem *p, const struct library *library, int none)
{
    int info = none;
    if (library == NULL)
        return none;
    struct kept kept = keep(p);
    restore_operands(p);
    if (call_plain(p, library))
        info = p->info;
    put_back(p, &kept);
    return info;
}

/* OpenBLAS's gemmt is no witness: in 0.3.26 it refuses valid arguments or crashes, and until 2025
 * it conjugated its input (github.com/OpenMathLib/OpenBLAS/issues/5111). */
static void ask_all(struct problem *p, struct witness *w, const struct operand *x)
{
    if (w->asked)
        return;
    w->asked = true;
    w->results[REFERENCE] = ask(p, p->witnesses[REFERENCE], x);
    if (!is_gemmtr(p->routine))
        w->results[OPENBLAS] = ask(p, p->witnesses[OPENBLAS], x);
}

static bool same_class(real x, real y)
{
    return isnan(x) ? isnan(y) : isinf(x) ? isinf(y) && (x > 0) == (y > 0) : isfinite(y);
}

/* Finite parts of what is special may overflow on the way too. */
static bool may_overflow(const struct fuzz_case *c)
{
    for (int i = FIELD_FILL_A; i <= FIELD_FILL_C; i++) {
        if (c->value[i] == 4 || c->value[i] == 7)
            return true;
    }
    return c->value[FIELD_ALPHA] > 5 || c->value[FIELD_BETA] > 5;
}

/* Of complex alpha*A*B' + conj(alpha)*B*A' infinities cancel or don't as alpha is applied early or
 * late. */
static bool has_two_scales(const struct problem *p)
{
    return p->p->complex && is_syrk(p->routine) && signature_has(p->routine, 'B');
}

/* As same_class() for both parts, where a real number has one. */
static bool same_classes(const struct problem *p, number x, number y)
{
    return same_class(creall(x), creall(y)) && (!p->p->complex || same_class(cimagl(x), cimagl(y)));
}

static bool is_finite(number x)
{
    return isfinite(creall(x)) && isfinite(cimagl(x));
}

/* Infinity in a complex number becomes NaN in this or that order of operations. */
static bool is_allowed(const struct problem *p, const struct witness *w, number expected,
                       size_t index, number found)
{
    const real re = creall(found), im = cimagl(found);
    bool asked = false;
    if (!is_finite(found) && (may_overflow(&p->c) || has_two_scales(p)))
        return true;
    if (same_classes(p, expected, found))
        return true;
    for (int i = 0; i < 2; i++) {
        if (w->results[i] == NULL)
            continue;
        asked = true;
        const number other = w->results[i]->at[index];
        if (same_classes(p, other, found) ||
            (p->p->complex && (same_class(creall(other), re) || isnan(re)) &&
             (same_class(cimagl(other), im) || isnan(im))))
            return true;
    }
    return !asked;
}

/* ---- entries ---- */

static void fail_entry(struct problem *p, const struct operand *x, long i, long j, const char *what,
                       real found, real expected, real bound)
{
    fail(p, "%s (%ld, %ld) is %.9Lg and not %.9Lg, %s %.3Lg", x != NULL ? "entry" : "residual", i,
         j, found, expected, what, bound);
}

static void check_special(struct problem *p, struct witness *w, number expected,
                          const struct operand *x, long i, long j, number found)
{
    if (x == NULL)
        return;
    ask_all(p, w, x);
    const size_t index = (size_t)(i + j * x->rows);
    /* Where the imaginary part is zero by definition, it is no part of the sum either. */
    if (x->real_diagonal && i == j && cimagl(found) == 0 &&
        same_class(creall(expected), creall(found)))
        return;
    if (is_allowed(p, w, expected, index, found))
        return;
    const number other = (w->results[0] != NULL ? w->results[0] : w->results[1])->at[index];
    const bool part = p->p->complex && same_class(creall(other), creall(found));
    fail_entry(p, x, i, j, "a special value; another library's",
               part ? cimagl(found) : creall(found), part ? cimagl(other) : creall(other), 0);
}

/* Where another library has no number either: the order of operations decides what overflows and
 * which zeros are multiplied. */
static bool is_no_number_elsewhere(struct problem *p, struct witness *w, const struct operand *x,
                                   size_t index)
{
    bool found = false;
    ask_all(p, w, x);
    for (int i = 0; i < 2; i++)
        found = found || (w->results[i] != NULL && !is_finite(w->results[i]->at[index]));
    return found;
}

static void check_entry(struct problem *p, struct witness *w, const struct sums *s,
                        const struct operand *x, long i, long j, real terms)
{
    const size_t index = (size_t)(i + j * s->rows);
    const number expected = s->at[index];
    const number found = x != NULL ? get_number(p->p, element(p, x, i, j)) : 0;
    if (!isfinite(s->size[index])) {
        check_special(p, w, expected, x, i, j, found);
        return;
    }
    if (s->overflow[index])
        return;
    if (!is_finite(found) && x != NULL && may_overflow(&p->c) && p->c.value[FIELD_SPECIAL] != 0 &&
        is_no_number_elsewhere(p, w, x, index))
        return;
    const real bound = terms * (p->p->complex ? 3 : 1) * p->p->unit * s->size[index] + s->slack;
    if (!(fabsl(creall(found) - creall(expected)) <= bound))
        fail_entry(p, x, i, j, "bound", creall(found), creall(expected), bound);
    else if (!(fabsl(cimagl(found) - cimagl(expected)) <= bound))
        fail_entry(p, x, i, j, "imaginary, bound", cimagl(found), cimagl(expected), bound);
}

void check_real_diagonal(struct problem *p, const struct operand *x)
{
    for (long i = 0; i < x->rows; i++) {
        const number value = get_number(p->p, element(p, x, i, i));
        if (cimagl(value) != 0 && isfinite(creall(value)))
            fail(p, "diagonal entry %ld has the imaginary part %.9Lg", i, cimagl(value));
    }
}

void check_sums(struct problem *p, const struct sums *s, const struct operand *x, real terms)
{
    struct witness w = {{NULL, NULL}, false};
    for (long j = 0; j < s->cols; j++) {
        for (long i = 0; i < s->rows && p->message[0] == '\0'; i++) {
            if (x == NULL || is_in_part(x, i, j))
                check_entry(p, &w, s, x, i, j, terms);
        }
    }
}
