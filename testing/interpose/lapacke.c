/* A program that factors and solves by LAPACK's C names in all precisions, matrices by columns and
 * by rows, and checks what it gets: residuals, and that nothing else was written. What the
 * functions return and pivots are printed: they must be the same whichever library computes them.
 *
 * usage: lapacke SEED LARGEST        matrices of up to LARGEST rows
 *        lapacke SEED LARGEST bad    NaN in every input, with LAPACKE's search for it on and off,
 * and arguments that are not valid */
#include "stored.h"

typedef blas_int getrf(int layout, blas_int m, blas_int n, void *a, blas_int lda, blas_int *ipiv);
typedef blas_int getrs(int layout, char trans, blas_int n, blas_int nrhs, const void *a,
                       blas_int lda, const blas_int *ipiv, void *b, blas_int ldb);
typedef blas_int getri(int layout, blas_int n, void *a, blas_int lda, const blas_int *ipiv);
typedef blas_int getri_work(int layout, blas_int n, void *a, blas_int lda, const blas_int *ipiv,
                            void *work, blas_int lwork);
typedef blas_int gesv(int layout, blas_int n, blas_int nrhs, void *a, blas_int lda, blas_int *ipiv,
                      void *b, blas_int ldb);

#define DECLARE(x)                                                                                 \
    getrf HIGH(x##getrf), WORK(x##getrf);                                                          \
    getrs HIGH(x##getrs), WORK(x##getrs);                                                          \
    getri HIGH(x##getri);                                                                          \
    getri_work WORK(x##getri);                                                                     \
    gesv HIGH(x##gesv), WORK(x##gesv);
DECLARE(s)
DECLARE(d)
DECLARE(c)
DECLARE(z)
#ifdef LAPACKE_SET_NANCHECK
void LAPACKE_SET_NANCHECK(int flag);
#endif

static const struct routines {
    getrf *getrf[2]; /* the second one is the _work function */
    getrs *getrs[2];
    gesv *gesv[2];
    getri *getri;
    getri_work *getri_work;
} routines[PRECISIONS] = {
#define ROUTINES(x)                                                                                \
    {                                                                                              \
        .getrf = {HIGH(x##getrf), WORK(x##getrf)}, .getrs = {HIGH(x##getrs), WORK(x##getrs)},      \
        .gesv = {HIGH(x##gesv), WORK(x##gesv)}, .getri = HIGH(x##getri),                           \
        .getri_work = WORK(x##getri)                                                               \
    }
    ROUTINES(s),
    ROUTINES(d),
    ROUTINES(c),
    ROUTINES(z),
};

/* Pivots that no rounding changes: the largest elements of a permutation, and zeros in a column. */
static void fill_matrix(struct stored *s, size_t m, size_t n, bool singular)
{
    size_t shift = below(m), zero = below(n);
    fill(s);
    for (size_t j = 0; j < n; j++) {
        if (j < m)
            set(s, (j + shift) % m, j, at(s, (j + shift) % m, j) + 3.0L * (long double)(m + n));
        for (size_t i = 0; i < m && singular && j == zero; i++)
            set(s, i, j, 0);
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_factors(const struct stored *a, const struct stored *lu, const blas_int *ipiv,
                          size_t m, size_t n)
{
    size_t inner = m < n ? m : n, *row = malloc(m * sizeof *row);
    long double worst = 0;
    for (size_t i = 0; i < m; i++)
        row[i] = i;
    for (size_t i = 0; i < inner; i++) {
        size_t other = (size_t)ipiv[i] - 1, held = row[i];
        if (ipiv[i] < 1 || ipiv[i] > (blas_int)m) {
            fail("a pivot is no row", a->x.p, a->layout, m, n, (long double)ipiv[i]);
            free(row);
            return;
        }
        row[i] = row[other];
        row[other] = held;
    }
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++) {
            number e = at(a, row[i], j);
            long double size = cabsl(e);
            for (size_t k = 0; k < inner && k <= i && k <= j; k++) {
                number product = (k == i ? 1 : at(lu, i, k)) * at(lu, k, j);
                e -= product;
                size += cabsl(product);
            }
            long double error =
                cabsl(e) / ((long double)(inner + 4) * a->x.p->unit * (size + 1e-30L));
            worst = error <= worst ? worst : error;
        }
    }
    if (!(worst < 5))
        fail("residual of the factors", a->x.p, a->layout, m, n, worst);
    free(row);
}

static blas_int *make_pivots(size_t count)
{
    blas_int *ipiv = malloc((count + 1) * sizeof *ipiv);
    for (size_t i = 0; i <= count; i++)
        ipiv[i] = -77;
    return ipiv;
}

static void print(const struct precision *p, const char *routine, int layout, size_t m, size_t n,
                  const blas_int *ipiv, blas_int info)
{
    size_t inner = m < n ? m : n;
    printf("%c%s %d %zux%zu %lld", p->letter, routine, layout, m, n, (long long)info);
    for (size_t i = 0; i < inner; i++)
        printf(" %lld", (long long)ipiv[i]);
    printf("\n");
}

/* ---- calls ----------------------------------------------------------------------------------- */

static const struct routines *routines_of(const struct precision *p)
{
    return &routines[p - precisions];
}

/* With a workspace of the size that it asks for in its first element. */
static blas_int invert(const struct precision *p, struct stored *lu, const blas_int *ipiv, int work)
{
    const blas_int n = (blas_int)lu->x.cols, ld = (blas_int)lu->x.ld;
    char first[16] = {0};
    if (!work)
        return routines_of(p)->getri(lu->layout, n, lu->x.data, ld, ipiv);
    blas_int info = routines_of(p)->getri_work(lu->layout, n, lu->x.data, ld, ipiv, first, -1);
    size_t size = (size_t)get_real(p, first);
    if (info != 0 || size < lu->x.cols)
        fail("getri's query", p, lu->layout, lu->x.cols, size, (long double)info);
    void *space = malloc((size + lu->x.cols) * p->parts * p->real);
    info = routines_of(p)->getri_work(lu->layout, n, lu->x.data, ld, ipiv, space, (blas_int)size);
    if (!(get_real(p, space) >= (long double)lu->x.cols))
        fail("getri's size", p, lu->layout, lu->x.cols, size, get_real(p, space));
    free(space);
    return info;
}

static void check_inverse(const struct stored *a, const struct stored *x, size_t n)
{
    long double worst = 0, size_a = norm(&a->x), size_x = norm(&x->x);
    for (size_t j = 0; j < n; j++) {
        long double sum = 0;
        for (size_t i = 0; i < n; i++) {
            number e = i == j ? -1 : 0;
            for (size_t k = 0; k < n; k++)
                e += at(x, i, k) * at(a, k, j);
            sum += cabsl(e);
        }
        worst = sum <= worst ? worst : sum;
    }
    worst /= (long double)n * a->x.p->unit * size_a * size_x;
    if (!(worst < 30))
        fail("residual of the inverse", a->x.p, a->layout, n, n, worst);
}

static void factor_and_solve(const struct precision *p, int layout, size_t m, size_t n, int work,
                             bool singular)
{
    static const char letters[] = {'N', 'T', 'C'};
    const size_t inner = m < n ? m : n, nrhs = 1 + below(40);
    const char trans = letters[below(3)];
    struct stored a = make_stored(p, layout, m, n), b = make_stored(p, layout, n, nrhs);
    fill_matrix(&a, m, n, singular);
    fill(&b);
    struct stored lu = copy_stored(&a), x = copy_stored(&b);
    blas_int *ipiv = make_pivots(inner);
    const blas_int lda = (blas_int)lu.x.ld, ldb = (blas_int)x.x.ld;
    blas_int info =
        routines_of(p)->getrf[work](layout, (blas_int)m, (blas_int)n, lu.x.data, lda, ipiv);
    print(p, "getrf", layout, m, n, ipiv, info);
    check_factors(&a, &lu, ipiv, m, n);
    if (m == n && info == 0) {
        const struct stored factors = copy_stored(&lu);
        info = routines_of(p)->getrs[work](layout, trans, (blas_int)n, (blas_int)nrhs, lu.x.data,
                                           lda, ipiv, x.x.data, ldb);
        if (info != 0 || !same(&factors, &lu))
            fail("getrs", p, layout, n, nrhs, (long double)info);
        check_solution(&a, &x, &b, trans, n, nrhs);
        if (invert(p, &lu, ipiv, work) != 0)
            fail("getri", p, layout, n, n, 0);
        check_inverse(&a, &lu, n);
        free(factors.x.data);
    }
    if (!gaps_hold(&lu.x) || !gaps_hold(&x.x) || ipiv[inner] != -77)
        fail("a gap was written", p, layout, m, n, 0);
    free(a.x.data);
    free(b.x.data);
    free(lu.x.data);
    free(x.x.data);
    free(ipiv);
}

static void drive(const struct precision *p, int layout, size_t n, int work, bool singular)
{
    const size_t nrhs = 1 + below(40);
    struct stored a = make_stored(p, layout, n, n), b = make_stored(p, layout, n, nrhs);
    fill_matrix(&a, n, n, singular);
    fill(&b);
    struct stored lu = copy_stored(&a), x = copy_stored(&b);
    blas_int *ipiv = make_pivots(n);
    blas_int info = routines_of(p)->gesv[work](layout, (blas_int)n, (blas_int)nrhs, lu.x.data,
                                               (blas_int)lu.x.ld, ipiv, x.x.data, (blas_int)x.x.ld);
    print(p, "gesv", layout, n, n, ipiv, info);
    check_factors(&a, &lu, ipiv, n, n);
    if (info == 0)
        check_solution(&a, &x, &b, 'N', n, nrhs);
    else if (!same(&x, &b))
        fail("B was changed", p, layout, n, nrhs, 0);
    if (!gaps_hold(&lu.x) || !gaps_hold(&x.x) || ipiv[n] != -77)
        fail("a gap was written", p, layout, n, n, 0);
    free(a.x.data);
    free(b.x.data);
    free(lu.x.data);
    free(x.x.data);
    free(ipiv);
}

/* ---- what LAPACKE refuses -------------------------------------------------------------------- */

/* NaN in one of the matrices; what comes of it where they are not searched is any result. */
static void call_with_nan(const struct precision *p, int layout, size_t n, int work, bool in_b)
{
    const size_t nrhs = 3;
    struct stored a = make_stored(p, layout, n, n), b = make_stored(p, layout, n, nrhs);
    blas_int *ipiv = make_pivots(n), info[4];
    fill_matrix(&a, n, n, false);
    fill(&b);
    set(in_b ? &b : &a, below(n), below(nrhs), p->parts == 2 ? CMPLXL(0, NAN) : CMPLXL(NAN, 0));
    struct stored lu = copy_stored(&a), x = copy_stored(&b);
    const blas_int order = (blas_int)n, columns = (blas_int)nrhs, lda = (blas_int)lu.x.ld,
                   ldb = (blas_int)x.x.ld;
    info[0] =
        routines_of(p)->gesv[work](layout, order, columns, lu.x.data, lda, ipiv, x.x.data, ldb);
    if (info[0] < 0 && !(same(&lu, &a) && same(&x, &b)))
        fail("a refused call wrote", p, layout, n, nrhs, 0);
    for (size_t i = 0; i < n; i++)
        ipiv[i] = (blas_int)n; /* a permutation anyway */
    info[1] = routines_of(p)->getrs[work](layout, 'T', order, columns, a.x.data, lda, ipiv,
                                          x.x.data, ldb);
    info[2] = in_b ? 0 : routines_of(p)->getrf[work](layout, order, order, a.x.data, lda, ipiv);
    info[3] = in_b || work ? 0 : routines_of(p)->getri(layout, order, a.x.data, lda, ipiv);
    for (size_t i = 0; i < 4; i++)
        printf("%cNaN %d %d %lld\n", p->letter, layout, work,
               (long long)(info[i] < 0 ? info[i] : 0));
    free(a.x.data);
    free(b.x.data);
    free(lu.x.data);
    free(x.x.data);
    free(ipiv);
}

static void call_invalid_ones(const struct precision *p, int work)
{
    enum { N = 40 };
    const struct routines *r = routines_of(p);
    char *a = calloc(N * N, 16), *b = calloc(N * N, 16);
    blas_int ipiv[N], info[13];
    for (int layout = BY_ROWS; layout <= BY_COLUMNS; layout++) {
        const bool rows = layout == BY_ROWS;
        info[0] = r->getrf[work](layout, -1, N, a, N, ipiv);
        info[1] = r->getrf[work](layout, rows ? 4 : N, rows ? N : 4, a, N - 1, ipiv);
        info[2] = r->getrf[work](layout, 4, -1, a, N, ipiv);
        info[3] = r->getrs[work](layout, 'N', N, N, a, N, ipiv, b, N - 1);
        info[4] = r->getrs[work](layout, 'x', N, N, a, N, ipiv, b, N);
        info[5] = r->getrs[work](layout, 'N', N, -N, a, N, ipiv, b, N);
        info[6] = r->gesv[work](layout, N, N, a, N - 1, ipiv, b, N);
        info[7] = r->gesv[work](layout, N, N, a, N, ipiv, b, N - 1);
        info[8] = r->gesv[work](layout, -N, 1, a, N, ipiv, b, N);
        info[9] = r->gesv[work](layout + 2, N, 1, a, N, ipiv, b, N);
        info[10] = r->getri(layout, N, a, N - 1, ipiv);
        info[11] = r->getri_work(layout, N, a, N, ipiv, b, N - 1);
        info[12] = r->getri_work(layout, -N, a, N, ipiv, b, N);
        for (size_t i = 0; i < sizeof info / sizeof *info; i++)
            printf("%cinvalid %d %d %zu %lld\n", p->letter, layout, work, i, (long long)info[i]);
    }
    free(a);
    free(b);
}

static void refuse(const struct precision *p, size_t n)
{
    for (int work = 0; work < 2; work++) {
        for (int i = 0; i < 4; i++)
            call_with_nan(p, i % 2 ? BY_ROWS : BY_COLUMNS, n, work, i / 2);
        call_invalid_ones(p, work);
    }
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 60;
    for (size_t i = 0; i < PRECISIONS && count > 3; i++)
        refuse(&precisions[i], largest);
#ifdef LAPACKE_SET_NANCHECK
    for (size_t i = 0; i < PRECISIONS && count > 3; i++) {
        LAPACKE_SET_NANCHECK(0);
        refuse(&precisions[i], largest);
    }
#endif
    for (size_t i = 0; i < 4 * PRECISIONS && count <= 3; i++) {
        const struct precision *p = &precisions[i / 4];
        const int layout = i % 2 ? BY_ROWS : BY_COLUMNS, work = i % 4 / 2;
        size_t n = largest / 2 + below(largest / 2) + 1;
        factor_and_solve(p, layout, n, n, work, false);
        factor_and_solve(p, layout, n, 20 + below(largest), work, i % 3 == 0);
        drive(p, layout, n, work, false);
        drive(p, layout, n, work, true);
    }
    return failures != 0;
}
