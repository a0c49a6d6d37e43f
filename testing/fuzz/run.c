/* One case: operands, the call, the judge. SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lenient, flushing;

static void open_pivots(struct problem *p)
{
    p->pivots = larger(p->operands[0].rows, p->operands[0].cols) + PIVOT_GUARDS;
    p->ipiv = malloc((size_t)p->pivots * sizeof *p->ipiv);
    const size_t bytes = (size_t)(p->reflectors + 1) * element_size(p);
    p->tau = malloc(bytes);
    if (p->ipiv == NULL || p->tau == NULL)
        abort();
    for (long i = 0; i < p->pivots; i++)
        p->ipiv[i] = PIVOT_GUARD;
    for (size_t at = 0; at < bytes; at += p->p->real_size)
        put_guard(p->p, p->tau + at);
}

static void check_vectors(struct problem *p)
{
    const long pivots = smaller(p->operands[0].rows, p->operands[0].cols);
    for (int i = 0; i < PIVOT_GUARDS; i++) {
        if (p->ipiv[pivots + i] != PIVOT_GUARD)
            fail(p, "something was written behind ipiv");
    }
    if (!is_guard(p->p, p->tau + (size_t)p->reflectors * element_size(p)))
        fail(p, "something was written behind tau");
}

/* What LAPACKE refuses, NaN and arguments that are not valid, it refuses as another library does,
 * and nothing is written. True when the call was refused. */
static bool check_refused(struct problem *p)
{
    const bool may_be =
        is_lapacke(p) && (p->c.value[FIELD_INVALID] != 0 || p->c.value[FIELD_SPECIAL] != 0);
    int expected = may_be ? info_elsewhere(p, p->witnesses[0], p->info) : p->info < 0 ? 0 : p->info;
    if (p->info >= 0 && expected >= 0)
        return false;
    if (p->info != expected)
        fail(p, "info is %d and not %d", p->info, expected);
    if (!all_intact(p))
        fail(p, "refused with %d, but something was written", p->info);
    return true;
}

static bool open_problem(struct problem *p, const struct fuzz_case *c)
{
    *p = (struct problem){.c = *c,
                          .routine = &routines[c->value[FIELD_ROUTINE]],
                          .p = &precisions[c->value[FIELD_PRECISION]]};
    shape_operands(p);
    for (int i = 0; i < OPERANDS; i++)
        p->operands[i].by_rows =
            c->value[FIELD_FORM] == FORM_ROWS || c->value[FIELD_FORM] == FORM_WORK_ROWS;
    open_pivots(p);
    if (!place_operands(p))
        return false;
    fill_operands(p);
    remember_operands(p);
    for (int i = 0; i < OPERANDS; i++)
        p->old[i] = model_of(p, &p->operands[i]);
    return true;
}

static void close_problem(struct problem *p)
{
    free_models();
    free_operands(p);
    free(p->ipiv);
    free(p->tau);
}

bool run_case(const struct fuzz_case *c, const struct library *library,
              const struct library *const witnesses[2], char message[MESSAGE])
{
    struct problem p;
    message[0] = '\0';
    if (open_problem(&p, c)) {
        p.witnesses[0] = witnesses[0];
        p.witnesses[1] = witnesses[1];
        call_routine(&p, library);
        check_vectors(&p);
        if (outside_intact(&p) && !check_refused(&p))
            p.routine->judge->run(&p);
        snprintf(message, MESSAGE, "%s", p.message);
    }
    close_problem(&p);
    return message[0] == '\0';
}
