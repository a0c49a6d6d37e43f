/* A program that factors positive definite matrices, solves with them and inverts them by LAPACK's
 * Fortran names in all precisions, from both triangles, and checks what it gets:
 * ||A - L*L^H|| / (n ||A|| u) and ||A*X - B|| / (n ||A|| ||X|| u) in 1-norms, info, and that
 * nothing else was read or written.
 *
 * usage: chol SEED LARGEST [nan]
 *
 * for matrices of up to LARGEST rows; nan: also with NaN on the diagonal, which OpenBLAS takes for
 * a pivot */
#include "matrices.h"

#ifndef ROUTINE /* what it is called */
#define ROUTINE(name) name##_
#endif

#define LAPACK(x)                                                                                  \
    void ROUTINE(x##potrf)(const char *uplo, const blas_int *n, void *a, const blas_int *lda,      \
                           blas_int *info, size_t length);                                         \
    void ROUTINE(x##potrs)(const char *uplo, const blas_int *n, const blas_int *nrhs,              \
                           const void *a, const blas_int *lda, void *b, const blas_int *ldb,       \
                           blas_int *info, size_t length);                                         \
    void ROUTINE(x##posv)(const char *uplo, const blas_int *n, const blas_int *nrhs, void *a,      \
                          const blas_int *lda, void *b, const blas_int *ldb, blas_int *info,       \
                          size_t length);                                                          \
    void ROUTINE(x##potri)(const char *uplo, const blas_int *n, void *a, const blas_int *lda,      \
                           blas_int *info, size_t length);                                         \
    void ROUTINE(x##lauum)(const char *uplo, const blas_int *n, void *a, const blas_int *lda,      \
                           blas_int *info, size_t length);                                         \
    void ROUTINE(x##trtri)(const char *uplo, const char *diag, const blas_int *n, void *a,         \
                           const blas_int *lda, blas_int *info, size_t length,                     \
                           size_t length_diag);
LAPACK(s)
LAPACK(d)
LAPACK(c)
LAPACK(z)

static const struct routines {
    void (*potrf)(const char *, const blas_int *, void *, const blas_int *, blas_int *, size_t);
    void (*potrs)(const char *, const blas_int *, const blas_int *, const void *, const blas_int *,
                  void *, const blas_int *, blas_int *, size_t);
    void (*posv)(const char *, const blas_int *, const blas_int *, void *, const blas_int *, void *,
                 const blas_int *, blas_int *, size_t);
    void (*potri)(const char *, const blas_int *, void *, const blas_int *, blas_int *, size_t);
    void (*lauum)(const char *, const blas_int *, void *, const blas_int *, blas_int *, size_t);
    void (*trtri)(const char *, const char *, const blas_int *, void *, const blas_int *,
                  blas_int *, size_t, size_t);
} routines[PRECISIONS] = {
    {ROUTINE(spotrf), ROUTINE(spotrs), ROUTINE(sposv), ROUTINE(spotri), ROUTINE(slauum),
     ROUTINE(strtri)},
    {ROUTINE(dpotrf), ROUTINE(dpotrs), ROUTINE(dposv), ROUTINE(dpotri), ROUTINE(dlauum),
     ROUTINE(dtrtri)},
    {ROUTINE(cpotrf), ROUTINE(cpotrs), ROUTINE(cposv), ROUTINE(cpotri), ROUTINE(clauum),
     ROUTINE(ctrtri)},
    {ROUTINE(zpotrf), ROUTINE(zpotrs), ROUTINE(zposv), ROUTINE(zpotri), ROUTINE(zlauum),
     ROUTINE(ztrtri)},
};

enum kind { DEFINITE, GRADED, INDEFINITE, WITH_NAN, KINDS };
static const char *const kinds[KINDS] = {"definite", "graded", "indefinite", "with NaN"};

struct problem {
    const struct precision *p;
    const struct routines *of;
    enum kind kind;
    char uplo;
    size_t n;
    struct matrix whole; /* both triangles, the diagonal real */
    struct matrix a;     /* what LAPACK gets: the guard in the other triangle */
    blas_int info;       /* expected */
};

static void fail(const struct problem *problem, const char *what, long double value)
{
    fprintf(stderr, "%c %c n=%zu %s: %s %Lg\n", problem->p->letter, problem->uplo, problem->n,
            kinds[problem->kind], what, value);
    failures++;
}

static bool is_stated(const struct problem *problem, size_t i, size_t j)
{
    return problem->uplo == 'U' || problem->uplo == 'u' ? i <= j : i >= j;
}

/* ---- matrices -------------------------------------------------------------------------------- */

static void fill(struct matrix *x)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, random_number(x->p));
    }
}

/* B*B^H/n with something on the diagonal; powers of two grade it and change no digit. */
static void fill_whole(struct problem *problem)
{
    size_t n = problem->n;
    struct matrix b = make(problem->p, n, n);
    fill(&b);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j; i < n; i++) {
            int scale = problem->kind == GRADED ? 8 - (int)(i % 7 + j % 7) : 0;
            number sum = 0;
            for (size_t k = 0; k < n; k++)
                sum += get(&b, i, k) * conjl(get(&b, j, k));
            sum = (i == j ? creall(sum) / (long double)n + 0.1L : sum / (long double)n) *
                  ldexpl(1, scale);
            put(&problem->whole, i, j, sum);
            put(&problem->whole, j, i, conjl(get(&problem->whole, i, j)));
        }
    }
    free(b.data);
}

/* Imaginary parts of the diagonal are not read. */
static void fill_given(struct problem *problem)
{
    size_t n = problem->n, bad = below(n);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            if (i == j)
                put(&problem->a, i, j, CMPLXL(creall(get(&problem->whole, i, j)), NAN));
            else if (is_stated(problem, i, j))
                put(&problem->a, i, j, get(&problem->whole, i, j));
        }
    }
    if (problem->kind >= INDEFINITE)
        put(&problem->a, bad, bad, problem->kind == WITH_NAN ? NAN : -1);
    problem->info = problem->kind >= INDEFINITE ? (blas_int)bad + 1 : 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static number factor_of(const struct problem *problem, const struct matrix *l, size_t i, size_t j)
{
    return problem->uplo == 'U' || problem->uplo == 'u' ? conjl(get(l, j, i)) : get(l, i, j);
}

static void check_around(const struct problem *problem, const struct matrix *l)
{
    for (size_t j = 0; j < problem->n; j++) {
        for (size_t i = 0; i < problem->n; i++) {
            if (!is_stated(problem, i, j) && creall(get(l, i, j)) != guard)
                fail(problem, "the other triangle was written, row", (long double)i);
        }
    }
    if (!gaps_hold(l))
        fail(problem, "a gap was written", 0);
}

/* The leading minor before the first bad pivot, and the other triangle. */
static void check_factor(const struct problem *problem, const struct matrix *l, blas_int info)
{
    size_t n = problem->info != 0 ? (size_t)problem->info - 1 : problem->n;
    long double worst = 0;
    if (info != problem->info)
        fail(problem, "info is", (long double)info);
    for (size_t j = 0; j < n; j++) {
        long double sum = 0;
        for (size_t i = 0; i < n; i++) {
            number e = get(&problem->whole, i, j);
            for (size_t k = 0; k <= i && k <= j; k++)
                e -= factor_of(problem, l, i, k) * conjl(factor_of(problem, l, j, k));
            sum += cabsl(e);
        }
        worst = sum <= worst ? worst : sum;
        if (cimagl(get(l, j, j)) != 0)
            fail(problem, "an imaginary part on the diagonal", cimagl(get(l, j, j)));
    }
    long double bound = (long double)problem->n * norm(&problem->whole) * problem->p->unit;
    if (!(worst <= 10 * bound))
        fail(problem, "residual", worst / bound);
    check_around(problem, l);
}

static void check_solution(const struct problem *problem, const struct matrix *x,
                           const struct matrix *b)
{
    const struct matrix *a = &problem->whole;
    long double worst = 0;
    for (size_t j = 0; j < x->cols; j++) {
        long double sum = 0, size = 0;
        for (size_t i = 0; i < problem->n; i++) {
            number e = get(b, i, j);
            for (size_t k = 0; k < problem->n; k++)
                e -= get(a, i, k) * get(x, k, j);
            sum += cabsl(e);
            size += cabsl(get(x, i, j));
        }
        long double residual = sum / ((long double)problem->n * norm(a) * size * problem->p->unit);
        worst = residual <= worst ? worst : residual;
    }
    if (!(worst < 10))
        fail(problem, "residual of the solution", worst);
    if (!gaps_hold(x))
        fail(problem, "a gap of B was written", 0);
}

/* Of the inverse's stated triangle. */
static void check_inverse(const struct problem *problem, const struct matrix *stated, blas_int info)
{
    const struct matrix *a = &problem->whole;
    struct matrix x = make(problem->p, problem->n, problem->n);
    long double worst = 0;
    for (size_t j = 0; j < problem->n; j++) {
        for (size_t i = 0; i < problem->n; i++)
            put(&x, i, j, is_stated(problem, i, j) ? get(stated, i, j) : conjl(get(stated, j, i)));
    }
    for (size_t j = 0; j < problem->n; j++) {
        long double sum = 0;
        for (size_t i = 0; i < problem->n; i++) {
            number e = i == j ? -1 : 0;
            for (size_t k = 0; k < problem->n; k++)
                e += get(a, i, k) * get(&x, k, j);
            sum += cabsl(e);
        }
        worst = sum <= worst ? worst : sum;
    }
    worst /= (long double)problem->n * norm(a) * norm(&x) * problem->p->unit;
    if (!(worst < 10) || info != 0)
        fail(problem, "residual of the inverse", worst);
    check_around(problem, stated);
    free(x.data);
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* From the factor, in one step and in two. */
static void invert(const struct problem *problem, const struct matrix *factor)
{
    struct matrix x = copy(factor), y = copy(factor);
    const blas_int n = (blas_int)problem->n, lda = (blas_int)x.ld;
    blas_int info = -77;
    problem->of->potri(&problem->uplo, &n, x.data, &lda, &info, 1);
    check_inverse(problem, &x, info);
    info = -77;
    problem->of->trtri(&problem->uplo, "N", &n, y.data, &lda, &info, 1, 1);
    if (info != 0)
        fail(problem, "trtri: info is", (long double)info);
    info = -77;
    problem->of->lauum(&problem->uplo, &n, y.data, &lda, &info, 1);
    check_inverse(problem, &y, info);
    free(x.data);
    free(y.data);
}

static void factor_and_solve(const struct problem *problem)
{
    struct matrix l = copy(&problem->a), b = make(problem->p, problem->n, 1 + below(40));
    fill(&b);
    struct matrix x = copy(&b);
    const blas_int n = (blas_int)problem->n, lda = (blas_int)l.ld, ldb = (blas_int)b.ld,
                   nrhs = (blas_int)b.cols;
    blas_int info = -77;
    problem->of->potrf(&problem->uplo, &n, l.data, &lda, &info, 1);
    check_factor(problem, &l, info);
    if (problem->info == 0) {
        struct matrix before = copy(&l);
        info = -77;
        problem->of->potrs(&problem->uplo, &n, &nrhs, l.data, &lda, x.data, &ldb, &info, 1);
        check_solution(problem, &x, &b);
        if (info != 0)
            fail(problem, "potrs: info is", (long double)info);
        if (memcmp(before.data, l.data, l.ld * l.cols * problem->p->parts * problem->p->real) != 0)
            fail(problem, "potrs: the factor was written", 0);
        free(before.data);
        invert(problem, &l);
    }
    free(l.data);
    free(b.data);
    free(x.data);
}

static void drive(const struct problem *problem)
{
    struct matrix l = copy(&problem->a), b = make(problem->p, problem->n, 1 + below(40));
    fill(&b);
    struct matrix x = copy(&b);
    const blas_int n = (blas_int)problem->n, lda = (blas_int)l.ld, ldb = (blas_int)b.ld,
                   nrhs = (blas_int)b.cols;
    blas_int info = -77;
    problem->of->posv(&problem->uplo, &n, &nrhs, l.data, &lda, x.data, &ldb, &info, 1);
    check_factor(problem, &l, info);
    if (problem->info == 0)
        check_solution(problem, &x, &b);
    else if (memcmp(x.data, b.data, x.ld * x.cols * problem->p->parts * problem->p->real) != 0)
        fail(problem, "posv: B was changed", 0);
    free(l.data);
    free(b.data);
    free(x.data);
}

static void run(size_t precision, enum kind kind, char uplo, size_t n)
{
    const struct precision *p = &precisions[precision];
    struct problem problem = {
        .p = p, .of = &routines[precision], .kind = kind, .uplo = uplo, .n = n};
    problem.whole = make(p, n, n);
    problem.a = make(p, n, n);
    fill_whole(&problem);
    fill_given(&problem);
    factor_and_solve(&problem);
    drive(&problem);
    free(problem.whole.data);
    free(problem.a.data);
}

int main(int count, char **arguments)
{
    static const char letters[] = {'U', 'L', 'u', 'l'};
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 100;
    for (size_t kind = 0; kind < (count > 3 ? KINDS : WITH_NAN); kind++) {
        for (size_t i = 0; i < PRECISIONS; i++) {
            for (size_t turn = 0; turn < 2; turn++)
                run(i, (enum kind)kind, letters[turn + 2 * below(2)],
                    largest / 2 + below(largest / 2) + 1);
        }
    }
    return failures != 0;
}
