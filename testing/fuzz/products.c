/* Judges of products: gemm, symm, syrk, syr2k, trmm and their like are sums of one or two products
 * of dense matrices and an old one. SPDX-License-Identifier: BSD-3-Clause */
#include "fuzz.h"

#include <string.h>

/* A as it is multiplied. */
static struct model *left_factor(const struct problem *p)
{
    const struct routine *routine = p->routine;
    if (is_symm(routine))
        return model_mirror(p->old[0], p->c.value[FIELD_UPLO], is(p, HERMITIAN));
    return model_op(p->old[0], trans_letter(p, FIELD_TRANSA));
}

static void conjugate(const struct problem *p, const char *scalar, char *to)
{
    memcpy(to, scalar, sizeof p->alpha);
    if (p->p->complex)
        put_real(p->p, to + p->p->real_size, -get_real(p->p, scalar + p->p->real_size));
}

/* op(A)*op(A)', op(A)*op(B)' + op(B)*op(A)': the transposed ones conjugated where hermitian. */
static void add_squares(struct problem *p, struct sums *s, const struct model *a)
{
    const char transposed = is(p, HERMITIAN) ? 'C' : 'T';
    const bool twice = signature_has(p->routine, 'B');
    struct model *b = twice ? model_op(p->old[1], trans_letter(p, FIELD_TRANSA)) : NULL;
    add_product(p, s, p->alpha, a, model_op(twice ? b : a, transposed));
    if (twice) {
        char alpha[sizeof p->alpha];
        conjugate(p, p->alpha, alpha);
        add_product(p, s, is(p, HERMITIAN) ? alpha : p->alpha, b, model_op(a, transposed));
    }
}

static void add_factors(struct problem *p, struct sums *s, const struct model *a)
{
    const char op = signature_has(p->routine, 'T') ? trans_letter(p, FIELD_TRANSB) : 'N';
    struct model *b = model_op(p->old[1], op);
    const bool right = p->c.value[FIELD_SIDE];
    add_product(p, s, p->alpha, right ? b : a, right ? a : b);
}

/* Nothing to do: also imaginary parts stay as they were. The reference's gemmtr multiplies by 1
 * instead. */
static bool is_quick(const struct problem *p)
{
    static const char zeros[16];
    char unit[16] = {0};
    const size_t size = element_size(p);
    put_real(p->p, unit, 1);
    const bool nothing = memcmp(p->alpha, zeros, size) == 0 ||
                         (signature_has(p->routine, 'k') && p->c.value[FIELD_K] == 0);
    return !is_gemmtr(p->routine) && nothing && memcmp(p->beta, unit, size) == 0;
}

static void judge_products(struct problem *p)
{
    struct operand *x = &p->operands[2];
    /* OpenBLAS (0.3.21) multiplies by it in small products, NaN and all. */
    if (lenient && is_zero(p, p->alpha))
        return;
    struct sums s = make_sums(x->rows, x->cols);
    struct model *a = left_factor(p);
    if (is_quick(p) && !all_intact(p))
        fail(p, "something was changed although there is nothing to do");
    add_model(p, &s, p->beta, p->old[2]);
    if (is_syrk(p->routine))
        add_squares(p, &s, a);
    else
        add_factors(p, &s, a);
    const long depth = is_symm(p->routine) ? a->cols : p->c.value[FIELD_K];
    if (!is_quick(p)) {
        if (x->real_diagonal)
            check_real_diagonal(p, x);
        check_sums(p, &s, x, (real)(2 * depth + 6));
    }
}

static void judge_triangles(struct problem *p)
{
    struct operand *x = &p->operands[1];
    struct sums s = make_sums(x->rows, x->cols);
    struct model *t = model_triangle(p->old[0], p->c.value[FIELD_UPLO], p->c.value[FIELD_DIAG]);
    struct model *a = model_op(t, trans_letter(p, FIELD_TRANSA));
    const bool right = p->c.value[FIELD_SIDE];
    add_product(p, &s, p->alpha, right ? p->old[1] : a, right ? a : p->old[1]);
    check_sums(p, &s, x, (real)(a->rows + 4));
}

const struct judge judge_gemm = {CONTENT_ANY, false, judge_products};
const struct judge judge_gemmtr = {CONTENT_ANY, false, judge_products};
const struct judge judge_syrk = {CONTENT_ANY, false, judge_products};
const struct judge judge_syr2k = {CONTENT_ANY, false, judge_products};
const struct judge judge_symm = {CONTENT_ANY, false, judge_products};
const struct judge judge_trmm = {CONTENT_TRIANGLE, false, judge_triangles};
