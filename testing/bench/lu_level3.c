/* The rest of Level 3 for bench-lu: rank-k updates, symmetric and triangular products, in every
 * form or those that --forms lists. Both results are compared with each other, entry by entry; the
 * error is the largest difference in units of n*u times the largest entry. */
#include "lu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef void rank_k_function(const char *, const char *, const int *, const int *, const void *,
                             const void *, const int *, const void *, void *, const int *, size_t,
                             size_t);
typedef void rank_2k_function(const char *, const char *, const int *, const int *, const void *,
                              const void *, const int *, const void *, const int *, const void *,
                              void *, const int *, size_t, size_t);
typedef void trmm_function(const char *, const char *, const char *, const char *, const int *,
                           const int *, const void *, const void *, const int *, void *,
                           const int *, size_t, size_t, size_t, size_t);

static bool is_hermitian(const struct problem *p)
{
    return p->routine == HERK || p->routine == HER2K || p->routine == HEMM;
}

/* The form's letters are those of the routine's arguments, in their order. */
const char *level3_forms(enum routine routine, clb_precision precision)
{
    bool complex = clb_precision_parts(precision) > 1;
    switch (routine) {
    case HERK:
    case HER2K:
        return complex ? "LN,LC,UN,UC" : "";
    case HEMM:
        return complex ? "LL,LU,RL,RU" : "";
    case SYMM:
        return "LL,LU,RL,RU";
    case TRMM:
        return "LLN,LLT,LUN,LUT,RLN,RLT,RUN,RUT";
    default:
        return "LN,LT,UN,UT";
    }
}

double level3_work(const struct problem *p)
{
    double n = (double)p->n, cube = n * n * n;
    bool whole =
        p->routine == SYMM || p->routine == HEMM || p->routine == SYR2K || p->routine == HER2K;
    return whole ? 2 * cube : cube;
}

/* ---- the shim -------------------------------------------------------------------------------- */

static clb_op op_of(char letter)
{
    return letter == 'N' ? CLB_OP_N : letter == 'T' ? CLB_OP_T : CLB_OP_C;
}

static void set_operands(const struct problem *p, void *x, struct clb_level3 *level3)
{
    const char *form = p->form;
    struct clb_level3_operand a = {.data = p->a, .ld = p->n, .upper = form[1] == 'U'};
    struct clb_level3_operand b = {.data = p->routine == TRMM ? x : p->b, .ld = p->n};
    clb_op adjoint = is_hermitian(p) ? CLB_OP_C : CLB_OP_T;
    if (p->routine >= SYMM) {
        a.shape = p->routine == TRMM   ? CLB_STRUCTURE_TRIANGULAR
                  : p->routine == HEMM ? CLB_STRUCTURE_HERMITIAN
                                       : CLB_STRUCTURE_SYMMETRIC;
        a.op = p->routine == TRMM ? op_of(form[2]) : CLB_OP_N;
        level3->a[0] = form[0] == 'R' ? b : a;
        level3->b[0] = form[0] == 'R' ? a : b;
        level3->in_place = p->routine == TRMM;
        return;
    }
    level3->region = form[0] == 'U' ? CLB_REGION_UPPER : CLB_REGION_LOWER;
    level3->real_diagonal = is_hermitian(p);
    a.upper = false;
    a.op = b.op = op_of(form[1]);
    if (level3->terms == 1)
        b = a;
    level3->a[0] = level3->b[1] = a;
    level3->a[1] = level3->b[0] = b;
    level3->b[0].op = level3->b[1].op = a.op == CLB_OP_N ? adjoint : CLB_OP_N;
}

clb_status level3_shim(const struct problem *p, struct clb_runtime *runtime,
                       const struct clb_gemm_variant *variant, void *x)
{
    struct clb_gemm_progress progress;
    struct clb_level3 level3 = {.precision = p->precision,
                                .m = p->n,
                                .n = p->n,
                                .k = p->n,
                                .terms = p->routine == SYR2K || p->routine == HER2K ? 2 : 1,
                                .c = x,
                                .ldc = p->n};
    for (int i = 0; i < 2; i++)
        memcpy(&level3.alpha[i], clb_scalar_one(p->precision), clb_precision_size(p->precision));
    set_operands(p, x, &level3);
    clb_status status = clb_level3_run(runtime, variant, &level3, &progress);
    clb_gemm_progress_free(&progress);
    return status;
}

/* ---- OpenBLAS -------------------------------------------------------------------------------- */

void level3_openblas(const struct problem *p, const char *name, void *x)
{
    const void *one = clb_scalar_one(p->precision), *zero = clb_scalar_zero(p->precision);
    const char *form = p->form;
    const int n = (int)p->n;
    void (*function)(void) = function_of(p->precision, name);
    if (p->routine == TRMM)
        ((trmm_function *)function)(&form[0], &form[1], &form[2], "N", &n, &n, one, p->a, &n, x, &n,
                                    1, 1, 1, 1);
    else if (p->routine == SYRK || p->routine == HERK)
        ((rank_k_function *)function)(&form[0], &form[1], &n, &n, one, p->a, &n, zero, x, &n, 1, 1);
    else
        ((rank_2k_function *)function)(&form[0], &form[1], &n, &n, one, p->a, &n, p->b, &n, zero, x,
                                       &n, 1, 1);
}

/* ---- is it right? ---------------------------------------------------------------------------- */

double level3_error(const struct problem *p)
{
    bool single = clb_precision_real_size(p->precision) == sizeof(float);
    size_t count = p->n * p->n * clb_precision_parts(p->precision);
    double worst = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        double x = single ? (double)((float *)p->x[0])[i] : ((double *)p->x[0])[i];
        double y = single ? (double)((float *)p->x[1])[i] : ((double *)p->x[1])[i];
        double d = fabs(x - y);
        worst = d <= worst ? worst : d;
        largest = fmax(largest, fabs(y));
    }
    return worst / (largest * (double)p->n * (single ? 0x1p-24 : 0x1p-53));
}
