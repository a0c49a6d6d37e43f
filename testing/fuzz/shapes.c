/* The operands of a routine from its row: how large they are, what of them is read, what is
 * written. SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <string.h>

/* See routines.def; nrhs is k. */
long size_of(const struct fuzz_case *c, char letter)
{
    const long m = c->value[FIELD_M], n = c->value[FIELD_N], right = c->value[FIELD_SIDE];
    switch (letter) {
    case 'm':
        return m;
    case 'n':
        return n;
    case 'o':
        return right ? n : m;
    case 'e':
        return right ? m : n;
    case 's':
        return smaller(m, n);
    default:
        return c->value[FIELD_K];
    }
}

/* A matrix of "<mkt <knT >mn"; `at` is its part of that. */
static struct operand shape_of(const struct problem *p, const char *at)
{
    struct operand x = {
        .rows = size_of(&p->c, at[1]), .cols = size_of(&p->c, at[2]), .output = at[0] == '>'};
    for (at += 3; *at != '\0' && *at != ' '; at++) {
        const long rows = x.rows;
        if (*at == 'u') {
            x.part = p->c.value[FIELD_UPLO] ? PART_UPPER : PART_LOWER;
        } else if (trans_letter(p, *at == 't' ? FIELD_TRANSA : FIELD_TRANSB) != 'N') {
            x.rows = x.cols;
            x.cols = rows;
        }
    }
    return x;
}

void shape_operands(struct problem *p)
{
    const struct routine *routine = p->routine;
    const char *at = routine->shapes;
    for (const char *argument = routine->signature; *argument != '\0'; argument++) {
        if (strchr("ABC", *argument) == NULL)
            continue;
        struct operand *x = &p->operands[*argument - 'A'];
        *x = shape_of(p, at);
        /* What BLAS calls Hermitian has a diagonal of which it reads the real parts. */
        x->real_diagonal = !routine->lapack && is(p, HERMITIAN) && x->part != PART_ALL;
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    struct operand *a = &p->operands[0];
    a->content = routine->judge->content;
    a->unit = p->c.value[FIELD_DIAG];
    if (a->content == CONTENT_DEFINITE)
        a->real_diagonal = p->p->complex;
    if (signature_has(routine, 'q'))
        p->reflectors = size_of(&p->c, routine->sizes[2]);
}

bool is_symm(const struct routine *routine)
{
    return strncmp(routine->signature, "su", 2) == 0 && signature_has(routine, 'C');
}

bool is_syrk(const struct routine *routine)
{
    return strncmp(routine->signature, "utnk", 4) == 0;
}

bool is_gemmtr(const struct routine *routine)
{
    return strncmp(routine->signature, "utT", 3) == 0;
}
