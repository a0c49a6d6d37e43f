/* A program that solves triangular systems by Fortran and C names in all precisions and with all
 * options, and checks every entry against the bound of substitution,
 * |alpha*B - op(A)*X| <= (n + 4) u (|op(A)||X| + |alpha*B|), which no use of inverses would keep on
 * the badly conditioned ones, and that nothing else was written. The triangle that is not to be
 * read holds NaN.
 *
 * usage: trsm SEED LARGEST */
#include "matrices.h"

#define FORTRAN_TRSM(x)                                                                            \
    void x##trsm_(const char *side, const char *uplo, const char *trans, const char *diag,         \
                  const blas_int *m, const blas_int *n, const void *alpha, const void *a,          \
                  const blas_int *lda, void *b, const blas_int *ldb, size_t, size_t, size_t,       \
                  size_t);
FORTRAN_TRSM(s)
FORTRAN_TRSM(d)
FORTRAN_TRSM(c)
FORTRAN_TRSM(z)

#define C_TRSM(x, scalar)                                                                          \
    void cblas_##x##trsm(int layout, int side, int uplo, int trans, int diag, blas_int m,          \
                         blas_int n, scalar alpha, const void *a, blas_int lda, void *b,           \
                         blas_int ldb);
C_TRSM(s, float)
C_TRSM(d, double)
C_TRSM(c, const void *)
C_TRSM(z, const void *)

enum form { FORTRAN, C_COLUMNS, C_ROWS, FORMS };
enum kind { UNIFORM, GRADED, ILL_CONDITIONED, KINDS };

static const char *const form_names[] = {"Fortran", "C in columns", "C in rows"};
static const char *const kind_names[] = {"uniform", "graded", "ill-conditioned"};

struct problem {
    const struct precision *p;
    bool right, upper, unit;
    size_t trans; /* of "NTC" */
    size_t m, n;
    number alpha;
    char scalar[2 * sizeof(double)];
    struct matrix a, b, x;
};

/* ---- the call -------------------------------------------------------------------------------- */

static void call_fortran(struct problem *s)
{
    static void (*const trsm[PRECISIONS])(
        const char *, const char *, const char *, const char *, const blas_int *, const blas_int *,
        const void *, const void *, const blas_int *, void *, const blas_int *, size_t, size_t,
        size_t, size_t) = {strsm_, dtrsm_, ctrsm_, ztrsm_};
    const bool lower_case = below(2);
    const char *side = s->right ? "Rr" : "Ll", *uplo = s->upper ? "Uu" : "Ll";
    const char *diag = s->unit ? "Uu" : "Nn", trans = (lower_case ? "ntc" : "NTC")[s->trans];
    const blas_int m = (blas_int)s->m, n = (blas_int)s->n, lda = (blas_int)s->a.ld,
                   ldb = (blas_int)s->x.ld;
    trsm[s->p - precisions](side + lower_case, uplo + lower_case, &trans, diag + lower_case, &m, &n,
                            s->scalar, s->a.data, &lda, s->x.data, &ldb, 1, 1, 1, 1);
}

/* In rows: the same memory is the transposed system from the other side. */
static void call_c(struct problem *s, bool rows)
{
    const int layout = rows ? 101 : 102, side = s->right != rows ? 142 : 141,
              uplo = s->upper != rows ? 121 : 122, trans = 111 + (int)s->trans,
              diag = s->unit ? 132 : 131;
    const blas_int m = (blas_int)(rows ? s->n : s->m), n = (blas_int)(rows ? s->m : s->n);
    const blas_int lda = (blas_int)s->a.ld, ldb = (blas_int)s->x.ld;
    switch (s->p->letter) {
    case 's':
        cblas_strsm(layout, side, uplo, trans, diag, m, n, (float)creall(s->alpha), s->a.data, lda,
                    s->x.data, ldb);
        break;
    case 'd':
        cblas_dtrsm(layout, side, uplo, trans, diag, m, n, (double)creall(s->alpha), s->a.data, lda,
                    s->x.data, ldb);
        break;
    case 'c':
        cblas_ctrsm(layout, side, uplo, trans, diag, m, n, s->scalar, s->a.data, lda, s->x.data,
                    ldb);
        break;
    default:
        cblas_ztrsm(layout, side, uplo, trans, diag, m, n, s->scalar, s->a.data, lda, s->x.data,
                    ldb);
    }
}

/* ---- problems -------------------------------------------------------------------------------- */

static number make_element(const struct problem *s, enum kind kind, size_t i, size_t j)
{
    size_t n = s->a.rows;
    if ((s->upper ? i > j : i < j) || (i == j && s->unit))
        return CMPLXL(NAN, NAN);
    number e = random_number(s->p);
    if (i == j)
        e += creall(e) < 0 ? -1 : 1;
    else
        e /= kind == ILL_CONDITIONED ? 2 : (long double)n;
    if (kind == GRADED)
        e *= s->unit ? 1 : ldexpl(1, (int)(i % 13) - (int)(j % 11));
    if (kind == ILL_CONDITIONED && i == j)
        e *= ldexpl(1, -(int)below(6));
    return e;
}

static struct problem make_problem(const struct precision *p, enum kind kind, size_t options,
                                   size_t largest)
{
    struct problem s = {.p = p,
                        .right = options & 1,
                        .upper = options & 2,
                        .unit = options & 4,
                        .trans = options / 8 % 3,
                        .alpha = below(2)        ? 1
                                 : p->parts == 2 ? CMPLXL(-0.75L, 0.5L)
                                                 : -0.75L};
    /* Ill-conditioned solutions grow by a factor with each row. */
    size_t n = 1 + below(kind == ILL_CONDITIONED && largest > 40 ? 40 : largest);
    size_t rhs = 1 + below(largest);
    s.m = s.right ? rhs : n;
    s.n = s.right ? n : rhs;
    put_real(p, s.scalar, creall(s.alpha));
    put_real(p, s.scalar + p->real, cimagl(s.alpha));
    s.a = make(p, n, n);
    s.b = make(p, s.m, s.n);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++)
            put(&s.a, i, j, make_element(&s, kind, i, j));
    }
    for (size_t j = 0; j < s.n; j++) {
        for (size_t i = 0; i < s.m; i++)
            put(&s.b, i, j, random_number(p));
    }
    s.x = copy(&s.b);
    return s;
}

static number op_element(const struct problem *s, size_t i, size_t j)
{
    size_t row = s->trans == 0 ? i : j, col = s->trans == 0 ? j : i;
    if (row == col && s->unit)
        return 1;
    if (s->upper ? row > col : row < col)
        return 0;
    number e = get(&s->a, row, col);
    return s->trans == 2 ? conjl(e) : e;
}

static long double worst_error(const struct problem *s)
{
    long double worst = 0;
    size_t n = s->a.rows;
    for (size_t j = 0; j < s->n; j++) {
        for (size_t i = 0; i < s->m; i++) {
            number sum = s->alpha * get(&s->b, i, j);
            long double size = cabsl(sum);
            for (size_t k = 0; k < n; k++) {
                number t = s->right ? get(&s->x, i, k) * op_element(s, k, j)
                                    : op_element(s, i, k) * get(&s->x, k, j);
                sum -= t;
                size += cabsl(t);
            }
            long double error = cabsl(sum) / (((long double)n + 4) * s->p->unit * size);
            worst = error <= worst ? worst : error;
        }
    }
    return worst;
}

static void run(const struct precision *p, enum kind kind, enum form form, size_t options,
                size_t largest)
{
    struct problem s = make_problem(p, kind, options, largest);
    struct matrix a = copy(&s.a);
    if (form == FORTRAN)
        call_fortran(&s);
    else
        call_c(&s, form == C_ROWS);
    long double error = worst_error(&s);
    bool intact =
        gaps_hold(&s.x) && memcmp(a.data, s.a.data, a.ld * (a.cols + 1) * p->parts * p->real) == 0;
    if (!(error <= (p->parts == 2 ? 3 : 1)) || !intact) {
        fprintf(stderr, "%ctrsm %s, %s, %c%c%c%c m=%zu n=%zu: %Lg of the bound%s\n", p->letter,
                form_names[form], kind_names[kind], s.right ? 'R' : 'L', s.upper ? 'U' : 'L',
                "NTC"[s.trans], s.unit ? 'U' : 'N', s.m, s.n, error,
                intact ? "" : ", something else was written");
        failures++;
    }
    free(a.data);
    free(s.a.data);
    free(s.b.data);
    free(s.x.data);
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 60;
    for (size_t i = 0; i < PRECISIONS; i++) {
        for (size_t options = 0; options < 24; options++) {
            for (int form = 0; form < FORMS; form++)
                run(&precisions[i], (enum kind)below(KINDS), (enum form)form, options, largest);
        }
    }
    return failures != 0;
}
