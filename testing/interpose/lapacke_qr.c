/* A program that factors by QR, applies Q and generates it by LAPACK's C names in all precisions,
 * matrices by columns and by rows, and checks what it gets: residuals, orthogonality, and that
 * nothing else was written. What the functions return is printed: it must be the same whichever
 * library computes it.
 *
 * usage: lapacke_qr SEED LARGEST        matrices of up to LARGEST rows
 *        lapacke_qr SEED LARGEST bad    NaN in every input, and arguments that are not valid */
#include "stored.h"

typedef blas_int geqrf(int layout, blas_int m, blas_int n, void *a, blas_int lda, void *tau);
typedef blas_int geqrf_work(int layout, blas_int m, blas_int n, void *a, blas_int lda, void *tau,
                            void *work, blas_int lwork);
typedef blas_int ormqr(int layout, char side, char trans, blas_int m, blas_int n, blas_int k,
                       const void *a, blas_int lda, const void *tau, void *c, blas_int ldc);
typedef blas_int ormqr_work(int layout, char side, char trans, blas_int m, blas_int n, blas_int k,
                            const void *a, blas_int lda, const void *tau, void *c, blas_int ldc,
                            void *work, blas_int lwork);
typedef blas_int orgqr(int layout, blas_int m, blas_int n, blas_int k, void *a, blas_int lda,
                       const void *tau);
typedef blas_int orgqr_work(int layout, blas_int m, blas_int n, blas_int k, void *a, blas_int lda,
                            const void *tau, void *work, blas_int lwork);

#define DECLARE(x, multiply, generate)                                                             \
    geqrf HIGH(x##geqrf);                                                                          \
    geqrf_work WORK(x##geqrf);                                                                     \
    ormqr HIGH(multiply);                                                                          \
    ormqr_work WORK(multiply);                                                                     \
    orgqr HIGH(generate);                                                                          \
    orgqr_work WORK(generate);
DECLARE(s, sormqr, sorgqr)
DECLARE(d, dormqr, dorgqr)
DECLARE(c, cunmqr, cungqr)
DECLARE(z, zunmqr, zungqr)

static const struct routines {
    geqrf *geqrf;
    geqrf_work *geqrf_work;
    ormqr *ormqr;
    ormqr_work *ormqr_work;
    orgqr *orgqr;
    orgqr_work *orgqr_work;
} routines[PRECISIONS] = {
#define ROUTINES(x, multiply, generate)                                                            \
    {                                                                                              \
        HIGH(x##geqrf), WORK(x##geqrf), HIGH(multiply), WORK(multiply), HIGH(generate),            \
            WORK(generate)                                                                         \
    }
    ROUTINES(s, sormqr, sorgqr),
    ROUTINES(d, dormqr, dorgqr),
    ROUTINES(c, cunmqr, cungqr),
    ROUTINES(z, zunmqr, zungqr),
};

static const struct routines *routines_of(const struct precision *p)
{
    return &routines[p - precisions];
}

/* A workspace of the size in `first`, which a query has left there. */
static void *workspace(const struct precision *p, const char *first, size_t least, blas_int *size)
{
    *size = (blas_int)get_real(p, first);
    if (*size < (blas_int)least)
        fail("a query's size", p, 0, least, 0, (long double)*size);
    return malloc(((size_t)*size + least) * p->parts * p->real);
}

/* ---- calls, with a workspace of our own or without ------------------------------------------- */

static blas_int factor(struct stored *a, size_t m, size_t n, void *tau, bool work)
{
    const struct precision *p = a->x.p;
    const blas_int rows = (blas_int)m, cols = (blas_int)n, lda = (blas_int)a->x.ld;
    char first[16] = {0};
    if (!work)
        return routines_of(p)->geqrf(a->layout, rows, cols, a->x.data, lda, tau);
    blas_int size,
        info = routines_of(p)->geqrf_work(a->layout, rows, cols, a->x.data, lda, tau, first, -1);
    void *space = workspace(p, first, n, &size);
    if (info == 0)
        info = routines_of(p)->geqrf_work(a->layout, rows, cols, a->x.data, lda, tau, space, size);
    if (info == 0 && get_real(p, space) < (long double)n)
        fail("work", p, a->layout, m, n, get_real(p, space));
    free(space);
    return info;
}

static blas_int multiply(const struct stored *q, size_t k, const void *tau, struct stored *c,
                         size_t m, size_t n, char side, char trans, bool work)
{
    const struct precision *p = c->x.p;
    const blas_int rows = (blas_int)m, cols = (blas_int)n, count = (blas_int)k;
    const blas_int lda = (blas_int)q->x.ld, ldc = (blas_int)c->x.ld;
    char first[16] = {0};
    if (!work)
        return routines_of(p)->ormqr(c->layout, side, trans, rows, cols, count, q->x.data, lda, tau,
                                     c->x.data, ldc);
    blas_int size,
        info = routines_of(p)->ormqr_work(c->layout, side, trans, rows, cols, count, q->x.data, lda,
                                          tau, c->x.data, ldc, first, -1);
    void *space = workspace(p, first, side == 'L' ? n : m, &size);
    if (info == 0)
        info = routines_of(p)->ormqr_work(c->layout, side, trans, rows, cols, count, q->x.data, lda,
                                          tau, c->x.data, ldc, space, size);
    free(space);
    return info;
}

static blas_int generate(struct stored *q, size_t m, size_t n, size_t k, const void *tau, bool work)
{
    const struct precision *p = q->x.p;
    const blas_int rows = (blas_int)m, cols = (blas_int)n, count = (blas_int)k;
    const blas_int lda = (blas_int)q->x.ld;
    char first[16] = {0};
    if (!work)
        return routines_of(p)->orgqr(q->layout, rows, cols, count, q->x.data, lda, tau);
    blas_int size, info = routines_of(p)->orgqr_work(q->layout, rows, cols, count, q->x.data, lda,
                                                     tau, first, -1);
    void *space = workspace(p, first, n, &size);
    if (info == 0)
        info = routines_of(p)->orgqr_work(q->layout, rows, cols, count, q->x.data, lda, tau, space,
                                          size);
    free(space);
    return info;
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* Columns of Q are orthonormal, and Q*R is A. */
static void check_factors(const struct stored *a, const struct stored *factors,
                          const struct stored *q, size_t m, size_t n)
{
    long double worst = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            number e = i == j ? -1 : 0;
            for (size_t k = 0; k < m; k++)
                e += conjl(at(q, k, i)) * at(q, k, j);
            worst = cabsl(e) <= worst ? worst : cabsl(e);
        }
        for (size_t i = 0; i < m; i++) {
            number e = -at(a, i, j);
            for (size_t k = 0; k <= j && k < n; k++)
                e += at(q, i, k) * at(factors, k, j);
            worst = cabsl(e) / 2 <= worst ? worst : cabsl(e) / 2;
        }
    }
    worst /= (long double)m * a->x.p->unit;
    if (!(worst < 10))
        fail("Q and R", a->x.p, a->layout, m, n, worst);
}

/* C from the left or the right by Q (all of it: m or n reflectors) against a product by columns. */
static void check_product(const struct stored *q, const struct stored *old, const struct stored *c,
                          size_t m, size_t n, char side, char trans)
{
    long double worst = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) {
            number e = -at(c, i, j);
            for (size_t k = 0; k < (side == 'L' ? m : n); k++) {
                size_t row = side == 'L' ? i : k, col = side == 'L' ? k : j;
                number t = trans == 'N' ? at(q, row, col) : conjl(at(q, col, row));
                e += side == 'L' ? t * at(old, k, j) : at(old, i, k) * t;
            }
            worst = cabsl(e) <= worst ? worst : cabsl(e);
        }
    }
    worst /= (long double)(m + n) * c->x.p->unit;
    if (!(worst < 20))
        fail("a product", c->x.p, c->layout, m, n, worst);
}

static void run(const struct precision *p, int layout, size_t m, size_t n, bool work)
{
    struct stored a = make_stored(p, layout, m, n), square = make_stored(p, layout, m, m);
    char *tau = calloc(m + 1, p->parts * p->real);
    fill(&a);
    struct stored factors = copy_stored(&a);
    blas_int info = factor(&factors, m, n, tau, work);
    struct stored q = copy_stored(&factors);
    blas_int made = generate(&q, m, n, n, tau, work);
    printf("%c %d %zux%zu %lld %lld\n", p->letter, layout, m, n, (long long)info, (long long)made);
    check_factors(&a, &factors, &q, m, n);
    if (!gaps_hold(&factors.x) || !gaps_hold(&q.x))
        fail("a gap", p, layout, m, n, 0);
    /* All of an m x m Q, from both sides. */
    fill(&square);
    memset(tau, 0, (m + 1) * p->parts * p->real);
    info = factor(&square, m, m, tau, work);
    struct stored whole = copy_stored(&square);
    made = generate(&whole, m, m, m, tau, work);
    for (int i = 0; i < 4 && info == 0 && made == 0; i++) {
        const char side = i % 2 ? 'R' : 'L', trans = i / 2 == 0 ? 'N' : p->parts == 1 ? 'T' : 'C';
        const size_t rows = side == 'L' ? m : n, cols = side == 'L' ? n : m;
        struct stored old = make_stored(p, layout, rows, cols);
        fill(&old);
        struct stored c = copy_stored(&old);
        info = multiply(&square, m, tau, &c, rows, cols, side, trans, work);
        check_product(&whole, &old, &c, rows, cols, side, trans);
        if (info != 0 || !gaps_hold(&c.x))
            fail("info or a gap", p, layout, rows, cols, (long double)info);
        free(old.x.data);
        free(c.x.data);
    }
    free(a.x.data);
    free(square.x.data);
    free(factors.x.data);
    free(q.x.data);
    free(whole.x.data);
    free(tau);
}

/* ---- what LAPACKE refuses -------------------------------------------------------------------- */

static void print(const struct precision *p, const char *what, int layout, bool work, blas_int info)
{
    printf("%c%s %d %d %lld\n", p->letter, what, layout, work, (long long)(info < 0 ? info : 0));
}

static void refuse(const struct precision *p, int layout, size_t n, bool work)
{
    const size_t element = p->parts * p->real;
    for (int where = 0; where < 3; where++) { /* in A, tau, C */
        struct stored a = make_stored(p, layout, n, n), c = make_stored(p, layout, n, 5);
        char *tau = calloc(n, element);
        fill(&a);
        fill(&c);
        if (where == 1)
            put_real(p, tau + below(n) * element, NAN);
        else
            set(where == 0 ? &a : &c, below(n), below(5), NAN);
        print(p, "NaN", layout, work, multiply(&a, n, tau, &c, n, 5, 'L', 'N', work));
        struct stored q = copy_stored(&a);
        print(p, "NaN", layout, work, generate(&q, n, n, n, tau, work));
        print(p, "NaN", layout, work, factor(&a, n, n, tau, work));
        free(a.x.data);
        free(c.x.data);
        free(q.x.data);
        free(tau);
    }
    char *zeros = calloc(n * n, element);
    const blas_int order = (blas_int)n;
    const struct routines *r = routines_of(p);
    print(p, "invalid", layout, work, r->geqrf(layout, order, -1, zeros, order, zeros));
    print(p, "invalid", layout, work, r->geqrf(layout, order, order, zeros, order - 1, zeros));
    print(p, "invalid", layout, work,
          r->geqrf_work(layout, order, order, zeros, order, zeros, zeros, order - 1));
    print(p, "invalid", layout, work, r->orgqr(layout, 4, 5, 4, zeros, order, zeros));
    print(p, "invalid", layout, work,
          r->ormqr(layout, 'x', 'N', order, order, 4, zeros, order, zeros, zeros, order));
    print(p, "invalid", layout, work,
          r->ormqr(layout, 'L', 'N', order, order, order, zeros, order, zeros, zeros, order - 1));
    free(zeros);
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 60;
    for (size_t i = 0; i < 4 * PRECISIONS; i++) {
        const struct precision *p = &precisions[i / 4];
        const int layout = i % 2 ? BY_ROWS : BY_COLUMNS;
        const bool work = i / 2 % 2;
        size_t m = largest / 2 + below(largest / 2) + 1;
        if (count > 3)
            refuse(p, layout, m, work);
        else
            run(p, layout, m, largest / 3 + below(m - largest / 3), work);
    }
    return failures != 0;
}
