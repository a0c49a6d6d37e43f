/* SPDX-License-Identifier: BSD-3-Clause
 * The table of routines, and what its signatures say of calls: sizes, shapes, checks. */
#include "blas.h"

#include <string.h>

/* ---- the table ---- */

const struct clb_routine_info clb_routines[CLB_ROUTINES] = {
#define CLB_NAME(full_name, letter, STEM, SIGNATURE, SHAPES, LIMITS, TRANS, TRANS_COMPLEX, FLAGS, \
                 SIZES, KIND, OTHERS)                                                             \
    [CLB_ROUTINE_##full_name] = {.name = #full_name,                                              \
                                 .stem = #STEM,                                                   \
                                 .row = CLB_STEM_##STEM,                                          \
                                 .kind = CLB_KIND_##KIND,                                         \
                                 .precision = CLB_##letter,                                       \
                                 .signature = SIGNATURE,                                          \
                                 .shapes = SHAPES,                                                \
                                 .limits = LIMITS,                                                \
                                 .trans = CLB_##letter < CLB_C ? TRANS : TRANS_COMPLEX,           \
                                 .flags = FLAGS,                                                  \
                                 .sizes = SIZES,                                                  \
                                 .others = OTHERS},
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,   \
                    flags, sizes, work, kind, others)                                             \
    CLB_NAMES_##precisions(CLB_NAME, stem, stem, signature, shapes, limits, trans, trans_complex, \
                           flags, sizes, kind, others)
#include "routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
};

double clb_work_of(clb_stem row, double m, double n, double k)
{
    switch (row) {
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex, \
                    flags, sizes, work, ...)                                                    \
    case CLB_STEM_##stem:                                                                       \
        return (work);
#include "routines.def"
#undef CLB_ROUTINE
    default:
        return 0;
    }
}

clb_routine clb_routine_of(clb_kind kind, clb_precision precision, bool adjoint)
{
    clb_routine found = CLB_ROUTINES;
    for (int r = CLB_ROUTINES - 1; r >= 0; r--) {
        const struct clb_routine_info *routine = &clb_routines[r];
        if (routine->kind == kind && routine->precision == precision &&
            (found == CLB_ROUTINES || clb_routine_has_flag((clb_routine)r, 'l') == adjoint))
            found = (clb_routine)r;
    }
    return found;
}

void clb_call_set_routine(struct clb_call *call, clb_routine routine)
{
    call->routine = routine;
    call->kind = clb_routines[routine].kind;
    call->precision = clb_routines[routine].precision;
    if (!clb_signature_has(call, 'm'))
        call->m = call->n;
}

struct clb_call clb_call_of(clb_routine routine)
{
    struct clb_call call = {0};
    clb_call_set_routine(&call, routine);
    return call;
}

struct clb_call clb_call_as(const struct clb_call *call, clb_kind kind)
{
    struct clb_call other = *call;
    if (call->kind == kind)
        return other;
    other.right = other.unit = false;
    other.transa = other.transb = CLB_OP_N;
    clb_call_set_routine(&other, clb_routine_of(kind, call->precision, false));
    return other;
}

/* ---- scalars and integers ---- */

clb_scalar clb_scalar_get(clb_precision precision, bool real, const void *value)
{
    clb_scalar scalar = {.d = {0, 0}};
    memcpy(&scalar, value,
           (real ? 1 : clb_precision_parts(precision)) * clb_precision_real_size(precision));
    return scalar;
}

int64_t clb_integer_get(const void *array, size_t index, bool wide)
{
    return wide ? ((const int64_t *)array)[index] : ((const int32_t *)array)[index];
}

void clb_integer_set(void *array, size_t index, bool wide, int64_t value)
{
    if (wide)
        ((int64_t *)array)[index] = value;
    else
        ((int32_t *)array)[index] = (int32_t)value;
}

/* ---- sizes and shapes ---- */

bool clb_signature_has(const struct clb_call *call, char letter)
{
    return strchr(clb_routines[call->routine].signature, letter) != NULL;
}

bool clb_routine_has_flag(clb_routine routine, char flag)
{
    return strchr(clb_routines[routine].flags, flag) != NULL;
}

int64_t clb_call_size(const struct clb_call *call, char letter)
{
    const int64_t m = (int64_t)call->m, n = (int64_t)call->n;
    return letter == 'm'   ? m
           : letter == 'n' ? n
           : letter == 'k' ? (int64_t)call->k
           : letter == 'r' ? (int64_t)call->nrhs
           : letter == 'o' ? (call->right ? n : m)
           : letter == 'e' ? (call->right ? m : n)
           : m < n         ? m
                           : n;
}

bool clb_call_shape(const struct clb_call *call, char matrix, struct clb_shape *shape)
{
    const struct clb_routine_info *routine = &clb_routines[call->routine];
    const char *at = routine->shapes;
    void *const data[] = {call->a, call->b, call->c};
    const size_t ld[] = {call->lda, call->ldb, call->ldc};
    const char *const found = strchr(routine->signature, matrix);
    if (found == NULL)
        return false;
    for (const char *s = routine->signature; s < found; s++)
        at += strchr("ABC", *s) != NULL ? strcspn(at, " ") + 1 : 0;
    const bool turned =
        (at[3] == 't' && call->transa != CLB_OP_N) || (at[3] == 'T' && call->transb != CLB_OP_N);
    const bool triangle = at[3] == 'u';
    *shape = (struct clb_shape){.data = data[matrix - 'A'],
                                .rows = (size_t)clb_call_size(call, at[turned ? 2 : 1]),
                                .cols = (size_t)clb_call_size(call, at[turned ? 1 : 2]),
                                .ld = ld[matrix - 'A'],
                                .written = at[0] == '>',
                                .triangle = triangle,
                                .part = triangle ? "LUlu"[call->upper + 2 * call->unit] : '\0'};
    return true;
}

/* `letter`: that of alpha or beta in signatures. */
static bool is_zero(const struct clb_call *call, char letter, const void *value)
{
    const clb_scalar scalar =
        clb_scalar_get(call->precision, clb_routine_has_flag(call->routine, letter), value);
    return clb_scalar_equal(call->precision, &scalar, clb_scalar_of(call->precision, 0));
}

bool clb_call_reads_c(const struct clb_call *call)
{
    return !clb_signature_has(call, '+') || call->beta == NULL || !is_zero(call, '+', call->beta);
}

/* ---- checks ---- */

static bool is_in_limits(const struct clb_call *call, char size)
{
    const char *limits = clb_routines[call->routine].limits;
    for (; *limits != '\0'; limits += limits[2] == ' ' ? 3 : 2) {
        if (limits[0] == size && clb_call_size(call, size) > clb_call_size(call, limits[1]))
            return false;
    }
    return true;
}

static bool is_length_valid(int64_t length, int64_t least)
{
    return length >= (least > 1 ? least : 1);
}

static bool is_ld_valid(const struct clb_call *call, char matrix)
{
    struct clb_shape shape;
    return clb_call_shape(call, matrix, &shape) &&
           is_length_valid((int64_t)shape.ld, (int64_t)shape.rows);
}

static bool is_argument_valid(const struct clb_call *call, char letter)
{
    const struct clb_routine_info *routine = &clb_routines[call->routine];
    switch (letter) {
    case 't':
        return strchr(routine->trans, clb_letter_of_op(call->transa)) != NULL;
    case 'T':
        return strchr(routine->trans, clb_letter_of_op(call->transb)) != NULL;
    case 'm':
    case 'n':
    case 'k':
    case 'r':
        return clb_call_size(call, letter) >= 0 && is_in_limits(call, letter);
    case 'A':
    case 'B':
    case 'C':
        return is_ld_valid(call, letter);
    case 'w':
        return call->lwork == -1 ||
               is_length_valid(call->lwork, clb_call_size(call, routine->sizes[1]));
    default:
        return call->invalid != letter;
    }
}

int clb_call_first_wrong(const struct clb_call *call)
{
    int position = 1;
    if (call->invalid == 'l')
        return position;
    for (const char *s = clb_routines[call->routine].signature; *s != '\0'; s++, position++) {
        /* A leading dimension is behind its matrix, and LWORK behind WORK. */
        const bool pair = *s == 'A' || *s == 'B' || *s == 'C' || *s == 'w';
        position += pair;
        if (!is_argument_valid(call, *s))
            return position;
    }
    return 0;
}

static bool have_common(const struct clb_shape *x, const struct clb_shape *y, size_t size)
{
    const int64_t ld = (int64_t)(x->cols > 1 ? x->ld : y->ld);
    const int64_t rows_x = (int64_t)x->rows, cols_x = (int64_t)x->cols;
    const int64_t rows_y = (int64_t)y->rows, cols_y = (int64_t)y->cols;
    const int64_t bytes = (int64_t)((uintptr_t)y->data - (uintptr_t)x->data);
    if (bytes >= (int64_t)(((x->cols - 1) * x->ld + x->rows) * size) ||
        -bytes >= (int64_t)(((y->cols - 1) * y->ld + y->rows) * size))
        return false;
    if ((cols_y > 1 && (int64_t)y->ld != ld) || rows_x > ld || rows_y > ld ||
        bytes % (int64_t)size != 0)
        return true; /* not worth the trouble */
    /* Where y begins in x's columns. Rows that don't fit there are at the top of the next ones. */
    int64_t column = bytes / (int64_t)size / ld, row = bytes / (int64_t)size % ld;
    if (row < 0) {
        row += ld;
        column--;
    }
    const bool in_same = row < rows_x && column < cols_x && column + cols_y > 0;
    const bool in_next = row + rows_y > ld && column + 1 < cols_x && column + 1 + cols_y > 0;
    return in_same || in_next;
}

bool clb_call_overlaps(const struct clb_call *call)
{
    const size_t size = clb_precision_size(call->precision);
    struct clb_shape shapes[CLB_CALL_MATRICES];
    size_t count = 0;
    for (char name = 'A'; name <= 'C'; name++) {
        struct clb_shape *const shape = &shapes[count];
        if (!clb_call_shape(call, name, shape) || shape->rows == 0 || shape->cols == 0)
            continue;
        for (size_t j = 0; j < count; j++) {
            if ((shape->written || shapes[j].written) && have_common(&shapes[j], shape, size))
                return true;
        }
        count++;
    }
    return false;
}

bool clb_call_is_quick(const struct clb_call *call)
{
    for (const char *s = clb_routines[call->routine].signature; *s != '\0'; s++) {
        if ((strchr("mnkr", *s) != NULL && clb_call_size(call, *s) == 0) ||
            (*s == '*' && is_zero(call, '*', call->alpha)))
            return true;
    }
    return false;
}
