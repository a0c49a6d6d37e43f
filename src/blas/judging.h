/* SPDX-License-Identifier: BSD-3-Clause
 * judging: what the formulas of judge_blas.c and judge_lapack.c are made of (judge.c). */
#ifndef CLB_JUDGING_H
#define CLB_JUDGING_H

#include "judge.h"
#include "operator.h"

struct judge {
    const struct clb_judged *question;
    const struct clb_call *call;
    clb_precision precision;
    double unit, tiny, huge; /* roundoff, smallest normal and largest number */
    size_t entry;            /* which column of the identity; CLB_EVERY: random signs */
    struct clb_sample x;     /* the vectors; entries that are zero: columns that are not read */
    struct clb_sample y, z;  /* what is compared, */
    struct clb_sample held;  /* and on the way there */
    double *largest;         /* columns' magnitudes; then the scales of x */
    double smallest;         /* of |x(j)| that are not zero */
    clb_status status;       /* a lack of memory */
    struct clb_verdict *verdict;
};

/* ---- operators: matrices A, B or C of the call as they are now, or as they were before it ---- */

struct clb_operator clb_matrix_now(const struct judge *v, char name);
struct clb_operator clb_matrix_before(const struct judge *v, char name);

static inline struct clb_operator clb_with_op(struct clb_operator m, clb_op op)
{
    m.transposed = m.transposed != (op != CLB_OP_N);
    m.conjugated = m.conjugated != (op == CLB_OP_C);
    return m;
}

static inline struct clb_operator clb_adjoint(struct clb_operator m)
{
    return clb_with_op(m, CLB_OP_C);
}

static inline struct clb_operator clb_transposed_if(bool condition, struct clb_operator m)
{
    return clb_with_op(m, condition ? CLB_OP_T : CLB_OP_N);
}

static inline struct clb_operator clb_mirrored(struct clb_operator m, bool hermitian)
{
    m.mirrored = true;
    m.hermitian = hermitian;
    return m;
}

static inline struct clb_operator clb_triangle_of(struct clb_operator m, char part)
{
    const size_t order = clb_min(m.rows, m.cols);
    m.part = part;
    if (part == 'U')
        m.rows = order;
    else
        m.cols = order;
    return m;
}

static inline bool clb_is_complex(const struct judge *v)
{
    return clb_precision_parts(v->precision) == 2;
}

/* ---- vectors ---- */

/* x: random signs times the sizes of columns, or times one; zero: the column is not read. */
void clb_set_vectors(struct judge *v, size_t n, const double *magnitude);
/* v->largest: the magnitudes of the columns of M. */
void clb_find_largest(struct judge *v, const struct clb_operator *m);
/* Sizes that bring the columns in v->largest to about the same size, so that an error in a small
 * one shows, too; zero for columns that are not finite. True: there are none. The other one sets
 * v->largest. */
bool clb_set_scaled_to_largest(struct judge *v, size_t n);
bool clb_set_scaled(struct judge *v, const struct clb_operator *m);
/* Where a scalar makes operands smaller before they are multiplied, they lose more. */
void clb_note_scalar(struct judge *v, double complex alpha);
/* y = M*x, sizes the norms of rows; y = M*y. */
void clb_apply_first(struct judge *v, struct clb_operator m, struct clb_sample *y);
void clb_apply_next(struct judge *v, struct clb_operator m, struct clb_sample *y);
/* Alpha or beta of the call. */
double complex clb_get_scalar(const struct judge *v, bool beta);

/* ---- judgement ---- */

void clb_judge_fail(struct judge *v, const char *what);
static inline bool clb_has_failed(const struct judge *v)
{
    return v->verdict->failed != NULL;
}

/* Entries of y should be zero, within `terms` roundoffs of their size, or y should be, by norms. */
void clb_judge_entries(struct judge *v, double terms);
void clb_judge_norm(struct judge *v, double terms);
/* Every element is below the limit, and far from overflow. */
bool clb_is_below(struct judge *v, struct clb_operator m, double limit);
static inline bool clb_is_moderate(struct judge *v, struct clb_operator m)
{
    return clb_is_below(v, m, ldexp(v->huge, -20));
}

/* F[0]*F[1]*x = alpha*M*x, or F[0]*F[1]*F[2]*x where there is a third, whose leading dimension is
 * not zero then; or x itself where M is NULL; the vectors are set. */
struct equation {
    struct clb_operator factor[3];
    const struct clb_operator *right;
    const double complex *alpha;  /* NULL: one */
    bool swaps_left, swaps_right; /* interchange rows of the last factor, or of M, by ipiv */
    bool unsized;                 /* errors are none of M's size */
    bool is_solution;             /* the last factor is what was solved for */
    double terms;
};
static inline size_t clb_last_factor(const struct equation *equation)
{
    return equation->factor[2].ld != 0 ? 2 : 1;
}

void clb_judge_equation(struct judge *v, const struct equation *equation);
/* Of an equation with a solution: columns that were not read, because they are not finite. */
void clb_judge_unread(struct judge *v, const struct equation *equation);

/* ---- the formulas, by what computes a routine: `ops` in routines.def ---- */

typedef void clb_formula(struct judge *v);
#define CLB_FORMULA(kind) clb_formula clb_judge_##kind;
CLB_KIND_TABLE(CLB_FORMULA)
#undef CLB_FORMULA

#endif
