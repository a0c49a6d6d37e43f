/* What products and triangular systems must satisfy. SPDX-License-Identifier: BSD-3-Clause */
#include "judging.h"

/* ---- products ---- */

struct product_term {
    struct clb_operator outer, inner;
    double complex alpha;
};

/* C = alpha*op(A)*op(B) and so on as sums of products of a left operator and a right one; where A
 * is on the right, of the transposes. Returns the number of terms. */
static size_t terms_of(const struct judge *v, struct product_term term[2])
{
    const struct clb_call *call = v->call;
    const clb_kind kind = call->kind;
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    const bool two = kind == CLB_KIND_syr2k, twice = two || kind == CLB_KIND_syrk;
    const bool symm = kind == CLB_KIND_symm, trmm = kind == CLB_KIND_trmm;
    const bool right = call->right && (symm || trmm);
    struct clb_operator a = clb_matrix_now(v, 'A'), b = clb_matrix_now(v, 'B');
    clb_op op = symm ? CLB_OP_N : call->transa, op_b = symm || trmm ? CLB_OP_N : call->transb;
    if (trmm)
        b = clb_matrix_before(v, 'B');
    if (symm)
        a = clb_mirrored(a, hermitian);
    if (twice) { /* A*A^T, or A*B^T and B*A^T */
        op = op == CLB_OP_N ? CLB_OP_N : hermitian ? CLB_OP_C : CLB_OP_T;
        op_b = hermitian ? CLB_OP_C : CLB_OP_T;
        b = clb_with_op(two ? b : a, op);
    }
    a = clb_with_op(a, op);
    term[0].alpha = clb_get_scalar(v, false);
    term[0].outer = clb_transposed_if(right, a);
    term[0].inner = clb_transposed_if(right, clb_with_op(b, op_b));
    term[1] = (struct product_term){b, clb_with_op(a, op_b),
                                    hermitian ? conj(term[0].alpha) : term[0].alpha};
    return two ? 2 : 1;
}

static void add_product(struct judge *v, const struct product_term *term, struct clb_sample *y)
{
    clb_apply_first(v, term->inner, y);
    clb_apply_next(v, term->outer, y);
    clb_sample_scale(y, term->alpha);
}

static void judge_product(struct judge *v)
{
    const struct clb_call *call = v->call;
    const bool symm = call->kind == CLB_KIND_symm, trmm = call->kind == CLB_KIND_trmm;
    const bool corner = call->kind == CLB_KIND_gemmtr;
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    const char name = trmm ? 'B' : 'C';
    struct product_term term[2];
    const size_t count = terms_of(v, term), n = clb_operator_cols(&term[0].inner);
    clb_find_largest(v, &term[0].inner);
    if (count > 1)
        clb_operator_columns(&term[1].inner, v->entry, NULL, v->held.size);
    for (size_t j = 0; j < n && count > 1; j++)
        v->largest[j] = fmax(v->largest[j], v->held.size[j]);
    (void)clb_set_scaled_to_largest(v, n);
    clb_note_scalar(v, term[0].alpha);
    if (corner) {
        clb_operator_triangle(&term[0].outer, &term[0].inner, call->upper, &v->x, &v->y);
        clb_sample_scale(&v->y, term[0].alpha);
    } else {
        add_product(v, &term[0], &v->y);
    }
    for (size_t t = 1; t < count; t++) {
        add_product(v, &term[t], &v->z);
        clb_sample_add(&v->y, 1, &v->z, true);
    }
    const bool mirrored = !symm && clb_matrix_now(v, name).part != 0 && !corner;
    for (int now = 0; now < 2; now++) {
        struct clb_operator c = now ? clb_matrix_now(v, name) : clb_matrix_before(v, name);
        if (!now && (trmm || c.data == NULL))
            continue;
        c = clb_transposed_if((symm || trmm) && call->right,
                              mirrored ? clb_mirrored(c, hermitian) : c);
        clb_apply_first(v, c, &v->z);
        if (!now)
            clb_sample_scale(&v->z, clb_get_scalar(v, true));
        clb_sample_add(&v->y, now ? -1 : 1, &v->z, !now);
    }
    clb_judge_entries(v,
                      (double)(count * clb_operator_cols(&term[0].outer) + 8) * (corner ? 2 : 1));
}

#define PRODUCT(kind)                      \
    void clb_judge_##kind(struct judge *v) \
    {                                      \
        judge_product(v);                  \
    }
PRODUCT(gemm)
PRODUCT(gemmtr)
PRODUCT(syrk)
PRODUCT(syr2k)
PRODUCT(symm)
PRODUCT(trmm)

/* op(A)*X = alpha*B; from the right, the transposes. */
void clb_judge_trsm(struct judge *v)
{
    const struct clb_call *call = v->call;
    const struct clb_operator a =
        clb_transposed_if(call->right, clb_with_op(clb_matrix_now(v, 'A'), call->transa));
    const struct clb_operator x = clb_transposed_if(call->right, clb_matrix_now(v, 'B'));
    const struct clb_operator b = clb_transposed_if(call->right, clb_matrix_before(v, 'B'));
    const double complex alpha = clb_get_scalar(v, false);
    (void)clb_set_scaled(v, &x);
    clb_note_scalar(v, alpha);
    clb_judge_equation(v, &(struct equation){.factor = {a, x},
                                             .right = &b,
                                             .alpha = &alpha,
                                             .is_solution = true,
                                             .terms = (double)a.rows + 16});
}
