/* A program that factors and solves by LAPACK's Fortran names in all precisions, and checks what it
 * gets: ||P*A - L*U|| / (n ||A|| u) and ||op(A)*X - B|| / (n ||A|| ||X|| u) in 1-norms, L's size,
 * and that nothing else was written. Info and pivots are printed: they must be the same whichever
 * library computes them.
 *
 * usage: lu SEED LARGEST [nan]   matrices of up to LARGEST rows; nan: also with NaN in them */
#include "matrices.h"

#ifndef ROUTINE /* what it is called */
#define ROUTINE(name) name##_
#endif

#define LAPACK(x)                                                                                  \
    void ROUTINE(x##getrf)(const blas_int *m, const blas_int *n, void *a, const blas_int *lda,     \
                           blas_int *ipiv, blas_int *info);                                        \
    void ROUTINE(x##getrs)(const char *trans, const blas_int *n, const blas_int *nrhs,             \
                           const void *a, const blas_int *lda, const blas_int *ipiv, void *b,      \
                           const blas_int *ldb, blas_int *info, size_t length);                    \
    void ROUTINE(x##gesv)(const blas_int *n, const blas_int *nrhs, void *a, const blas_int *lda,   \
                          blas_int *ipiv, void *b, const blas_int *ldb, blas_int *info);
LAPACK(s)
LAPACK(d)
LAPACK(c)
LAPACK(z)

static const struct routines {
    void (*getrf)(const blas_int *, const blas_int *, void *, const blas_int *, blas_int *,
                  blas_int *);
    void (*getrs)(const char *, const blas_int *, const blas_int *, const void *, const blas_int *,
                  const blas_int *, void *, const blas_int *, blas_int *, size_t);
    void (*gesv)(const blas_int *, const blas_int *, void *, const blas_int *, blas_int *, void *,
                 const blas_int *, blas_int *);
} routines[PRECISIONS] = {
    {ROUTINE(sgetrf), ROUTINE(sgetrs), ROUTINE(sgesv)},
    {ROUTINE(dgetrf), ROUTINE(dgetrs), ROUTINE(dgesv)},
    {ROUTINE(cgetrf), ROUTINE(cgetrs), ROUTINE(cgesv)},
    {ROUTINE(zgetrf), ROUTINE(zgetrs), ROUTINE(zgesv)},
};

static const struct routines *routines_of(const struct precision *p)
{
    return &routines[p - precisions];
}

static void fail(const char *what, const struct precision *p, const char *kind, size_t m, size_t n,
                 long double value)
{
    fprintf(stderr, "%c %s m=%zu n=%zu: %s %Lg\n", p->letter, kind, m, n, what, value);
    failures++;
}

/* ---- kinds of matrices ----------------------------------------------------------------------- */

static void swap_rows_at_random(struct matrix *x)
{
    for (size_t i = x->rows; i > 1; i--) {
        size_t other = below(i);
        for (size_t j = 0; j < x->cols; j++) {
            number held = get(x, i - 1, j);
            put(x, i - 1, j, get(x, other, j));
            put(x, other, j, held);
        }
    }
}

static void fill_uniform(struct matrix *x)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, random_number(x->p));
    }
}

/* P*L*U with multipliers well below 1: no rounding changes a pivot. */
static void fill_separated(struct matrix *x)
{
    size_t inner = x->rows < x->cols ? x->rows : x->cols;
    number *l = calloc(x->rows * inner, sizeof *l), *u = calloc(inner * x->cols, sizeof *u);
    for (size_t k = 0; k < inner; k++) {
        for (size_t i = k; i < x->rows; i++)
            l[i + k * x->rows] = i == k ? 1 : random_number(x->p) / 4;
        for (size_t j = k; j < x->cols; j++)
            u[k + j * inner] = j == k ? 1 + below(8) / 8.0L : random_number(x->p) / 2;
    }
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++) {
            number sum = 0;
            for (size_t k = 0; k < inner; k++)
                sum += l[i + k * x->rows] * u[k + j * inner];
            put(x, i, j, sum);
        }
    }
    free(l);
    free(u);
    swap_rows_at_random(x);
}

/* A column of zeros stays one, and so does a pivot of exactly zero. */
static void fill_singular(struct matrix *x)
{
    fill_separated(x);
    for (size_t zero = 0; zero < 2; zero++) {
        size_t j = below(x->cols);
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, 0);
    }
}

/* Powers of two change no digit and, as they fall with the columns, no pivot. */
static void fill_graded(struct matrix *x)
{
    fill_separated(x);
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, get(x, i, j) * ldexpl(1, 12 - (int)(j % 29)));
    }
}

static void fill_triangular(struct matrix *x)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, i > j ? 0 : i == j ? 2 : random_number(x->p));
    }
    swap_rows_at_random(x);
}

/* Ties in every column, and elements that double with each step. */
static void fill_growing(struct matrix *x)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, i == j || j + 1 == x->cols ? 1 : i > j ? -1 : 0);
    }
}

static void fill_with_nan(struct matrix *x)
{
    fill_separated(x);
    put(x, below(x->rows), below(x->cols), NAN);
}

static const struct kind {
    const char *name;
    void (*fill)(struct matrix *x);
    size_t most;     /* rows and columns */
    bool any_pivots; /* rounding may decide */
    bool growing;    /* no solution is accurate */
    bool nan;
} kinds[] = {
    {"uniform", fill_uniform, SIZE_MAX, true, false, false},
    {"separated", fill_separated, SIZE_MAX, false, false, false},
    {"singular", fill_singular, SIZE_MAX, false, false, false},
    {"graded", fill_graded, SIZE_MAX, false, false, false},
    {"triangular", fill_triangular, SIZE_MAX, false, false, false},
    {"growing", fill_growing, 60, false, true, false},
    {"with NaN", fill_with_nan, SIZE_MAX, false, false, true},
};

/* ---- checks ---------------------------------------------------------------------------------- */

/* Rows of the identity in the order of P; false when a pivot is no row. */
static bool permute(const blas_int *ipiv, size_t inner, size_t rows, size_t *row)
{
    for (size_t i = 0; i < rows; i++)
        row[i] = i;
    for (size_t i = 0; i < inner; i++) {
        if (ipiv[i] < (blas_int)i + 1 || ipiv[i] > (blas_int)rows)
            return false;
        size_t other = (size_t)ipiv[i] - 1, held = row[i];
        row[i] = row[other];
        row[other] = held;
    }
    return true;
}

static void check_factors(const struct matrix *a, const struct matrix *lu, const blas_int *ipiv,
                          const struct kind *kind)
{
    size_t m = a->rows, n = a->cols, inner = m < n ? m : n;
    size_t *row = malloc(m * sizeof *row);
    long double largest = 0, multiplier = 0;
    if (!permute(ipiv, inner, m, row)) {
        fail("a pivot is no row of the rest", a->p, kind->name, m, n, 0);
        free(row);
        return;
    }
    for (size_t j = 0; j < n; j++) {
        long double sum = 0;
        for (size_t i = 0; i < m; i++) {
            number e = get(a, row[i], j);
            for (size_t k = 0; k < inner && k <= i && k <= j; k++)
                e -= (k == i ? 1 : get(lu, i, k)) * get(lu, k, j);
            sum += cabsl(e);
            if (i > j) {
                long double size = cabsl(get(lu, i, j));
                multiplier = size <= multiplier ? multiplier : size;
            }
        }
        largest = sum <= largest ? largest : sum;
    }
    long double bound = 10 * (long double)n * norm(a) * a->p->unit;
    if (!kind->nan && !(largest <= bound))
        fail("residual", a->p, kind->name, m, n, 10 * largest / bound);
    if (!kind->nan && !(multiplier <= (a->p->parts == 2 ? 1.4143L : 1.0001L)))
        fail("a multiplier of size", a->p, kind->name, m, n, multiplier);
    free(row);
}

static void check_solution(const struct matrix *a, const struct matrix *x, const struct matrix *b,
                           char trans, const struct kind *kind)
{
    size_t n = a->rows;
    long double worst = 0;
    for (size_t j = 0; j < x->cols; j++) {
        long double sum = 0, size = 0;
        for (size_t i = 0; i < n; i++) {
            number e = get(b, i, j);
            for (size_t k = 0; k < n; k++) {
                number t = trans == 'N' ? get(a, i, k) : get(a, k, i);
                e -= (trans == 'C' ? conjl(t) : t) * get(x, k, j);
            }
            sum += cabsl(e);
            size += cabsl(get(x, i, j));
        }
        long double residual = sum / ((long double)n * norm(a) * size * a->p->unit);
        worst = residual <= worst ? worst : residual;
    }
    if (!kind->growing && !(worst < 10))
        fail("residual of the solution", a->p, kind->name, n, x->cols, worst);
}

/* FNV-1a of all pivots, and the first few as they are. */
static void print_result(const struct precision *p, const struct kind *kind, const char *routine,
                         size_t m, size_t n, const blas_int *ipiv, blas_int info)
{
    size_t inner = m < n ? m : n;
    uint64_t hash = 0xcbf29ce484222325u;
    printf("%c%s %s %zux%zu info=%lld", p->letter, routine, kind->name, m, n, (long long)info);
    for (size_t i = 0; i < inner && !kind->any_pivots; i++)
        hash = (hash ^ (uint64_t)ipiv[i]) * 0x100000001b3u;
    for (size_t i = 0; i < inner && i < 8 && !kind->any_pivots; i++)
        printf(" %lld", (long long)ipiv[i]);
    printf(" %llx\n", (unsigned long long)hash);
}

static blas_int *make_pivots(size_t count)
{
    blas_int *ipiv = malloc((count + 2) * sizeof *ipiv);
    for (size_t i = 0; i < count + 2; i++)
        ipiv[i] = -77;
    return ipiv;
}

static void solve_all(const struct precision *p, const struct kind *kind, const struct matrix *a,
                      const struct matrix *lu, const blas_int *ipiv)
{
    static const char letters[] = {'N', 'T', 'C'};
    const blas_int n = (blas_int)a->rows, lda = (blas_int)lu->ld;
    for (size_t i = 0; i < sizeof letters; i++) {
        struct matrix b = make(p, a->rows, 1 + below(40));
        fill_uniform(&b);
        struct matrix x = copy(&b);
        const blas_int nrhs = (blas_int)b.cols, ldb = (blas_int)b.ld;
        blas_int info = -77;
        routines_of(p)->getrs(&letters[i], &n, &nrhs, lu->data, &lda, ipiv, x.data, &ldb, &info, 1);
        check_solution(a, &x, &b, letters[i], kind);
        if (info != 0 || !gaps_hold(&x))
            fail("getrs: info or a gap", p, kind->name, a->rows, b.cols, (long double)info);
        free(b.data);
        free(x.data);
    }
}

/* The same factors as getrf's and a solution, or B as it was when A is singular. */
static void drive(const struct precision *p, const struct kind *kind, const struct matrix *a,
                  blas_int expected)
{
    struct matrix lu = copy(a), b = make(p, a->rows, 1 + below(40));
    fill_uniform(&b);
    struct matrix x = copy(&b);
    blas_int *ipiv = make_pivots(a->rows), info = -77;
    const blas_int n = (blas_int)a->rows, nrhs = (blas_int)b.cols, lda = (blas_int)lu.ld,
                   ldb = (blas_int)b.ld;
    routines_of(p)->gesv(&n, &nrhs, lu.data, &lda, ipiv, x.data, &ldb, &info);
    print_result(p, kind, "gesv", a->rows, a->rows, ipiv, info);
    if (info != expected || !gaps_hold(&x) || !gaps_hold(&lu) || ipiv[n] != -77)
        fail("gesv: info or a gap", p, kind->name, a->rows, b.cols, (long double)info);
    check_factors(a, &lu, ipiv, kind);
    if (info == 0 && !kind->nan)
        check_solution(a, &x, &b, 'N', kind);
    else if (info != 0 && memcmp(x.data, b.data, x.ld * x.cols * p->parts * p->real) != 0)
        fail("gesv: B was changed", p, kind->name, a->rows, b.cols, (long double)info);
    free(ipiv);
    free(lu.data);
    free(b.data);
    free(x.data);
}

static void run(const struct precision *p, const struct kind *kind, size_t m, size_t n)
{
    struct matrix a = make(p, m, n);
    size_t inner = m < n ? m : n;
    kind->fill(&a);
    struct matrix lu = copy(&a);
    blas_int *ipiv = make_pivots(inner), info = -77;
    const blas_int rows = (blas_int)m, cols = (blas_int)n, lda = (blas_int)lu.ld;
    routines_of(p)->getrf(&rows, &cols, lu.data, &lda, ipiv, &info);
    print_result(p, kind, "getrf", m, n, ipiv, info);
    check_factors(&a, &lu, ipiv, kind);
    if (!gaps_hold(&lu) || ipiv[inner] != -77)
        fail("getrf: a gap was written", p, kind->name, m, n, 0);
    if (m == n && info == 0 && !kind->nan)
        solve_all(p, kind, &a, &lu, ipiv);
    if (m == n)
        drive(p, kind, &a, info);
    free(ipiv);
    free(a.data);
    free(lu.data);
}

/* OpenBLAS's number of threads: the program's business alone. */
extern int openblas_get_num_threads(void) __attribute__((weak));

static int threads_now(void)
{
    return openblas_get_num_threads != NULL ? openblas_get_num_threads() : 0;
}

int main(int count, char **arguments)
{
    const int threads = threads_now();
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 100;
    bool nan = count > 3;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t most = kinds[k].most < largest ? kinds[k].most : largest;
        for (size_t i = 0; (nan || !kinds[k].nan) && i < PRECISIONS; i++) {
            size_t n = most / 2 + below(most / 2) + 1;
            run(&precisions[i], &kinds[k], n, n);
            run(&precisions[i], &kinds[k], n, 1 + below(most));
            run(&precisions[i], &kinds[k], 1 + below(most), n);
        }
    }
    if (threads_now() != threads) {
        fprintf(stderr, "the BLAS had %d threads and has %d\n", threads, threads_now());
        failures++;
    }
    return failures != 0;
}
