/* SPDX-License-Identifier: BSD-3-Clause
 * Calls that are made of others, parts and column-major forms; and their text for the log. */
#include "blas.h"

#include <stdio.h>
#include <string.h>

struct clb_call clb_call_part(const struct clb_call *call, const struct clb_rect *rect)
{
    const size_t size = clb_precision_size(call->precision);
    const size_t at_b = rect->row + rect->col * call->ldb, at_c = rect->row + rect->col * call->ldc;
    struct clb_call part = *call;
    switch (call->kind) {
    case CLB_KIND_gemm:
        part.a = (char *)call->a + rect->row * (call->transa == CLB_OP_N ? 1 : call->lda) * size;
        part.b = (char *)call->b + rect->col * (call->transb == CLB_OP_N ? call->ldb : 1) * size;
        part.c = (char *)call->c + at_c * size;
        break;
    case CLB_KIND_ormqr:
        part.c = (char *)call->c + at_c * size;
        break;
    case CLB_KIND_trsm:
    case CLB_KIND_trmm:
        part.b = (char *)call->b + at_b * size;
        break;
    default:
        part.nrhs = rect->cols;
        part.b = (char *)call->b + at_b * size;
        return part;
    }
    part.m = rect->rows;
    part.n = rect->cols;
    return part;
}

void clb_call_describe(const struct clb_call *call, char *text, size_t size)
{
    const char *signature = clb_routines[call->routine].signature;
    int length = 0;
    for (const char *s = signature; *s != '\0' && (size_t)length + 1 < size; s++) {
        if (strchr("sudtT", *s) != NULL)
            text[length++] = (char)(*s == 's'   ? (call->right ? 'R' : 'L')
                                    : *s == 'u' ? (call->upper ? 'U' : 'L')
                                    : *s == 'd' ? (call->unit ? 'U' : 'N')
                                    : *s == 't' ? clb_letter_of_op(call->transa)
                                                : clb_letter_of_op(call->transb));
    }
    text[length] = '\0';
    for (const char *s = signature; *s != '\0' && (size_t)length < size; s++) {
        if (strchr("mnkr", *s) != NULL)
            length += snprintf(text + length, size - (size_t)length, "%s%.1s%s=%lld",
                               length > 0 ? " " : "", *s == 'r' ? "n" : s, *s == 'r' ? "rhs" : "",
                               (long long)clb_call_size(call, *s));
    }
}

/* ---- row-major calls of BLAS ---- */

clb_scalar clb_scalar_conjugate(clb_precision precision, clb_scalar scalar)
{
    if (clb_precision_real_size(precision) == sizeof(float))
        scalar.s[1] = -scalar.s[1];
    else
        scalar.d[1] = -scalar.d[1];
    return scalar;
}

/* Read as column-major, the memory of a row-major call has the transposes of its matrices.
 *
 * A product C = op(A)*op(B) is C^T = op(B)^T * op(A)^T. A symmetric, Hermitian or triangular A has
 * its other triangle stored; on one side of B it is on the other side of B^T. C = A*A^T, or its
 * triangle, is computed by the other op; if it is Hermitian, C^T is conj(C), and alpha*A*B^H
 * becomes alpha*conj(A)*B^T, which is the second product of the call with A^T and B^T: its alpha is
 * conjugated. */
void clb_call_turn(struct clb_call *call, clb_scalar *alpha)
{
    const struct clb_call old = *call;
    const struct clb_routine_info *routine = &clb_routines[call->routine];
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    call->upper = !old.upper;
    call->right = !old.right;
    if (clb_signature_has(call, 'm')) {
        call->m = old.n;
        call->n = old.m;
    }
    if (clb_signature_has(call, 'T')) {
        call->transa = old.transb;
        call->transb = old.transa;
        call->a = old.b;
        call->b = old.a;
        call->lda = old.ldb;
        call->ldb = old.lda;
    } else if (clb_signature_has(call, 't') && !clb_signature_has(call, 's')) {
        if (strchr(routine->trans, clb_letter_of_op(old.transa)) == NULL)
            call->transa = CLB_OP_INVALID;
        else
            call->transa = old.transa != CLB_OP_N ? CLB_OP_N : hermitian ? CLB_OP_C : CLB_OP_T;
        if (hermitian && clb_signature_has(call, 'B')) {
            *alpha = clb_scalar_conjugate(routine->precision,
                                          clb_scalar_get(routine->precision, false, old.alpha));
            call->alpha = alpha;
        }
    }
}
