/* A program that factors by QR, makes Q, multiplies by it and solves least squares by LAPACK's
 * Fortran names in all precisions, and checks what it gets: ||A - Q*R|| / (n ||A|| u) and ||I -
 * Q^H*Q|| / (n u) in 1-norms, products against Q as it was made, residuals of least squares,
 * WORK(1), and that nothing else was written. The sums of the first two are printed: a library that
 * runs instead of another may not be much worse.
 *
 * usage: qr SEED LARGEST   matrices of up to LARGEST rows */
#include "matrices.h"

#ifndef ROUTINE /* what it is called */
#define ROUTINE(name) name##_
#endif

#define LAPACK(x, apply, make)                                                                     \
    void ROUTINE(x##geqrf)(const blas_int *m, const blas_int *n, void *a, const blas_int *lda,     \
                           void *tau, void *work, const blas_int *lwork, blas_int *info);          \
    void ROUTINE(x##apply)(const char *side, const char *trans, const blas_int *m,                 \
                           const blas_int *n, const blas_int *k, const void *a,                    \
                           const blas_int *lda, const void *tau, void *c, const blas_int *ldc,     \
                           void *work, const blas_int *lwork, blas_int *info, size_t, size_t);     \
    void ROUTINE(x##make)(const blas_int *m, const blas_int *n, const blas_int *k, void *a,        \
                          const blas_int *lda, const void *tau, void *work, const blas_int *lwork, \
                          blas_int *info);                                                         \
    void ROUTINE(x##gels)(const char *trans, const blas_int *m, const blas_int *n,                 \
                          const blas_int *nrhs, void *a, const blas_int *lda, void *b,             \
                          const blas_int *ldb, void *work, const blas_int *lwork, blas_int *info,  \
                          size_t);
LAPACK(s, ormqr, orgqr)
LAPACK(d, ormqr, orgqr)
LAPACK(c, unmqr, ungqr)
LAPACK(z, unmqr, ungqr)

static const struct routines {
    void (*geqrf)(const blas_int *, const blas_int *, void *, const blas_int *, void *, void *,
                  const blas_int *, blas_int *);
    void (*ormqr)(const char *, const char *, const blas_int *, const blas_int *, const blas_int *,
                  const void *, const blas_int *, const void *, void *, const blas_int *, void *,
                  const blas_int *, blas_int *, size_t, size_t);
    void (*orgqr)(const blas_int *, const blas_int *, const blas_int *, void *, const blas_int *,
                  const void *, void *, const blas_int *, blas_int *);
    void (*gels)(const char *, const blas_int *, const blas_int *, const blas_int *, void *,
                 const blas_int *, void *, const blas_int *, void *, const blas_int *, blas_int *,
                 size_t);
} routines[PRECISIONS] = {
    {ROUTINE(sgeqrf), ROUTINE(sormqr), ROUTINE(sorgqr), ROUTINE(sgels)},
    {ROUTINE(dgeqrf), ROUTINE(dormqr), ROUTINE(dorgqr), ROUTINE(dgels)},
    {ROUTINE(cgeqrf), ROUTINE(cunmqr), ROUTINE(cungqr), ROUTINE(cgels)},
    {ROUTINE(zgeqrf), ROUTINE(zunmqr), ROUTINE(zungqr), ROUTINE(zgels)},
};

static const struct routines *routines_of(const struct precision *p)
{
    return &routines[p - precisions];
}

static long double residuals[PRECISIONS], departures[PRECISIONS];

static void fail(const char *what, const struct precision *p, size_t m, size_t n, long double value)
{
    fprintf(stderr, "%c m=%zu n=%zu: %s %Lg\n", p->letter, m, n, what, value);
    failures++;
}

/* ---- workspaces: the smallest that is allowed, or as large as a query says ------------------- */

static struct matrix make_work(const struct precision *p, size_t least, number best,
                               blas_int *lwork)
{
    size_t size = below(2) ? least : (size_t)creall(best);
    struct matrix work = make(p, size > 0 ? size : 1, 1);
    *lwork = (blas_int)work.rows;
    return work;
}

/* WORK(1) and what is behind the workspace. */
static void check_work(const struct matrix *work, number best, blas_int info, const char *routine,
                       size_t m, size_t n)
{
    if (info != 0 || creall(get(work, 0, 0)) != creall(best) || !gaps_hold(work))
        fail(routine, work->p, m, n, creall(get(work, 0, 0)));
    free(work->data);
}

/* ---- the routines, each after a query -------------------------------------------------------- */

static void factor(struct matrix *a, struct matrix *tau)
{
    const blas_int m = (blas_int)a->rows, n = (blas_int)a->cols, lda = (blas_int)a->ld, query = -1;
    struct matrix best = make(a->p, 1, 1);
    blas_int info = -77, lwork;
    routines_of(a->p)->geqrf(&m, &n, a->data, &lda, tau->data, best.data, &query, &info);
    struct matrix work = make_work(a->p, a->cols, get(&best, 0, 0), &lwork);
    info = -77;
    routines_of(a->p)->geqrf(&m, &n, a->data, &lda, tau->data, work.data, &lwork, &info);
    /* The reference says n where it did not use blocks. */
    if (creall(get(&work, 0, 0)) == (long double)a->cols)
        put(&best, 0, 0, (long double)a->cols);
    check_work(&work, get(&best, 0, 0), info, "geqrf: info or work is", a->rows, a->cols);
    if (!gaps_hold(a) || !gaps_hold(tau))
        fail("geqrf: written outside of A or tau", a->p, a->rows, a->cols, 0);
    free(best.data);
}

static void make_q(struct matrix *q, size_t k, const struct matrix *tau)
{
    const blas_int m = (blas_int)q->rows, n = (blas_int)q->cols, lda = (blas_int)q->ld, query = -1,
                   count = (blas_int)k;
    struct matrix best = make(q->p, 1, 1);
    blas_int info = -77, lwork;
    routines_of(q->p)->orgqr(&m, &n, &count, q->data, &lda, tau->data, best.data, &query, &info);
    struct matrix work = make_work(q->p, q->cols, get(&best, 0, 0), &lwork);
    info = -77;
    routines_of(q->p)->orgqr(&m, &n, &count, q->data, &lda, tau->data, work.data, &lwork, &info);
    if (creall(get(&work, 0, 0)) == (long double)q->cols)
        put(&best, 0, 0, (long double)q->cols);
    check_work(&work, get(&best, 0, 0), info, "orgqr: info or work is", q->rows, q->cols);
    if (!gaps_hold(q))
        fail("orgqr: written outside of A", q->p, q->rows, q->cols, 0);
    free(best.data);
}

static void multiply(char side, char trans, const struct matrix *qr, const struct matrix *tau,
                     struct matrix *c)
{
    const blas_int m = (blas_int)c->rows, n = (blas_int)c->cols, k = (blas_int)tau->rows,
                   lda = (blas_int)qr->ld, ldc = (blas_int)c->ld, query = -1;
    struct matrix best = make(c->p, 1, 1);
    blas_int info = -77, lwork;
    routines_of(c->p)->ormqr(&side, &trans, &m, &n, &k, qr->data, &lda, tau->data, c->data, &ldc,
                             best.data, &query, &info, 1, 1);
    struct matrix work = make_work(c->p, side == 'L' ? c->cols : c->rows, get(&best, 0, 0), &lwork);
    info = -77;
    routines_of(c->p)->ormqr(&side, &trans, &m, &n, &k, qr->data, &lda, tau->data, c->data, &ldc,
                             work.data, &lwork, &info, 1, 1);
    check_work(&work, get(&best, 0, 0), info, "ormqr: info or work is", c->rows, c->cols);
    if (!gaps_hold(c))
        fail("ormqr: written outside of C", c->p, c->rows, c->cols, 0);
    free(best.data);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* 1-norm of X - op(Y)*Z, without X of the identity - op(Y)*Z. */
static long double distance(const struct matrix *x, const struct matrix *y, bool conjugated,
                            const struct matrix *z, bool upper)
{
    size_t rows = conjugated ? y->cols : y->rows, depth = conjugated ? y->rows : y->cols;
    long double largest = 0;
    for (size_t j = 0; j < z->cols; j++) {
        long double sum = 0;
        for (size_t i = 0; i < rows; i++) {
            number e = x != NULL ? get(x, i, j) : i == j;
            for (size_t k = 0; k < depth && !(upper && k > j); k++)
                e -= (conjugated ? conjl(get(y, k, i)) : get(y, i, k)) * get(z, k, j);
            sum += cabsl(e);
        }
        largest = sum <= largest ? largest : sum;
    }
    return largest;
}

static void fill(struct matrix *x, bool graded)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, random_number(x->p) * (graded ? ldexpl(1, 12 - (int)(j % 29)) : 1));
    }
}

/* Q of all rows, from the reflectors of qr. */
static struct matrix whole_q(const struct matrix *qr, const struct matrix *tau)
{
    struct matrix q = make(qr->p, qr->rows, qr->rows);
    for (size_t j = 0; j < q.cols; j++) {
        for (size_t i = 0; i < q.rows; i++)
            put(&q, i, j, j < tau->rows ? get(qr, i, j) : 0);
    }
    make_q(&q, tau->rows, tau);
    return q;
}

/* C = op(Q)*C or C*op(Q) against Q itself. */
static void check_product(const struct matrix *qr, const struct matrix *tau, const struct matrix *q)
{
    bool left = below(2), plain = below(2);
    size_t order = q->rows, others = 1 + below(order);
    struct matrix c = make(qr->p, left ? order : others, left ? others : order);
    fill(&c, false);
    struct matrix product = copy(&c);
    multiply(left ? 'L' : 'R', plain ? 'N' : qr->p->parts == 2 ? 'C' : 'T', qr, tau, &product);
    /* Back to C by the other op, where that is one product of plain loops: from the left. */
    struct matrix x = left ? product : make(qr->p, order, others);
    struct matrix y = left ? c : make(qr->p, order, others);
    for (size_t j = 0; !left && j < others; j++) {
        for (size_t i = 0; i < order; i++) {
            put(&x, i, j, conjl(get(&product, j, i)));
            put(&y, i, j, conjl(get(&c, j, i)));
        }
    }
    /* Left: X = op(Q)*C; right: X^H = op(Q)^H*C^H. */
    long double error =
        distance(&x, q, plain != left, &y, false) / ((long double)order * norm(&y) * qr->p->unit);
    if (!(error < 10))
        fail(left ? "a product from the left is off by" : "a product from the right is off by",
             qr->p, order, others, error);
    if (!left) {
        free(x.data);
        free(y.data);
    }
    free(c.data);
    free(product.data);
}

static void run(const struct precision *p, size_t m, size_t n, bool graded)
{
    size_t inner = m < n ? m : n;
    struct matrix a = make(p, m, n), tau = make(p, inner, 1);
    fill(&a, graded);
    struct matrix qr = copy(&a);
    factor(&qr, &tau);
    struct matrix q = whole_q(&qr, &tau), r = copy(&qr);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = j + 1; i < m; i++)
            put(&r, i, j, 0);
    }
    long double residual =
        distance(&a, &q, false, &r, true) / ((long double)n * norm(&a) * p->unit);
    long double departure = distance(NULL, &q, true, &q, false) / ((long double)m * p->unit);
    if (!(residual < 10))
        fail("residual", p, m, n, residual);
    if (!(departure < 10))
        fail("departure from orthogonality", p, m, n, departure);
    residuals[p - precisions] += residual;
    departures[p - precisions] += departure;
    check_product(&qr, &tau, &q);
    /* The first columns of Q are the same whoever asks for them. */
    size_t cols = 1 + below(inner);
    struct matrix some = make(p, m, cols);
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < m; i++)
            put(&some, i, j, get(&qr, i, j));
    }
    make_q(&some, cols, &tau);
    long double worst = 0;
    for (size_t j = 0; j < cols; j++) {
        for (size_t i = 0; i < m; i++)
            worst = fmaxl(worst, cabsl(get(&some, i, j) - get(&q, i, j)));
    }
    if (!(worst <= 20 * (long double)m * p->unit))
        fail("the first columns of Q are off by", p, m, cols, worst);
    free(some.data);
    free(q.data);
    free(r.data);
    free(qr.data);
    free(tau.data);
    free(a.data);
}

/* The residual of least squares is orthogonal to A's columns. */
static void solve(const struct precision *p, size_t m, size_t n)
{
    struct matrix a = make(p, m, n), b = make(p, m, 1 + below(40));
    fill(&a, false);
    fill(&b, false);
    struct matrix qr = copy(&a), x = copy(&b), best = make(p, 1, 1);
    const blas_int rows = (blas_int)m, cols = (blas_int)n, nrhs = (blas_int)b.cols,
                   lda = (blas_int)a.ld, ldb = (blas_int)b.ld, query = -1;
    blas_int info = -77;
    routines_of(p)->gels("N", &rows, &cols, &nrhs, qr.data, &lda, x.data, &ldb, best.data, &query,
                         &info, 1);
    const blas_int lwork = (blas_int)creall(get(&best, 0, 0));
    struct matrix work = make(p, (size_t)lwork, 1), rest = copy(&b);
    info = -77;
    routines_of(p)->gels("N", &rows, &cols, &nrhs, qr.data, &lda, x.data, &ldb, work.data, &lwork,
                         &info, 1);
    for (size_t j = 0; j < b.cols; j++) {
        for (size_t k = 0; k < n; k++) {
            for (size_t i = 0; i < m; i++)
                put(&rest, i, j, get(&rest, i, j) - get(&a, i, k) * get(&x, k, j));
        }
    }
    long double worst = 0;
    for (size_t j = 0; j < b.cols; j++) {
        for (size_t k = 0; k < n; k++) {
            number e = 0;
            for (size_t i = 0; i < m; i++)
                e += conjl(get(&a, i, k)) * get(&rest, i, j);
            worst = fmaxl(worst, cabsl(e));
        }
    }
    long double error = worst / ((long double)m * norm(&a) * norm(&b) * p->unit);
    if (info != 0 || !(error < 10) || !gaps_hold(&qr) || !gaps_hold(&x) || !gaps_hold(&work))
        fail("gels: info, a gap or the residual", p, m, n, error);
    free(a.data);
    free(b.data);
    free(qr.data);
    free(x.data);
    free(best.data);
    free(work.data);
    free(rest.data);
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 100;
    for (size_t i = 0; i < PRECISIONS; i++) {
        for (int graded = 0; graded < 2; graded++) {
            size_t n = largest / 2 + below(largest / 2) + 1;
            run(&precisions[i], n, n, graded);
            run(&precisions[i], n, 1 + below(largest), graded);
            run(&precisions[i], largest, 1 + below(largest / 3), graded);
        }
        solve(&precisions[i], largest, largest / 2);
        printf("%c %.3Lf %.3Lf\n", precisions[i].letter, residuals[i], departures[i]);
    }
    return failures != 0;
}
