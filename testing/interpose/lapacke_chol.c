/* A program that factors and solves positive definite systems by LAPACK's C names in all
 * precisions, matrices by columns and by rows, and checks what it gets: residuals, and that nothing
 * else was written, the other triangle included. What the functions return is printed: it must be
 * the same whichever library computes it.
 *
 * usage: lapacke_chol SEED LARGEST        matrices of up to LARGEST rows
 *        lapacke_chol SEED LARGEST bad    NaN in every input, and arguments that are not valid */
#include "stored.h"

typedef blas_int potrf(int layout, char uplo, blas_int n, void *a, blas_int lda);
typedef blas_int potrs(int layout, char uplo, blas_int n, blas_int nrhs, void *a, blas_int lda,
                       void *b, blas_int ldb);

#define DECLARE(x)                                                                                 \
    potrf HIGH(x##potrf), WORK(x##potrf);                                                          \
    potrs HIGH(x##potrs), WORK(x##potrs), HIGH(x##posv), WORK(x##posv);
DECLARE(s)
DECLARE(d)
DECLARE(c)
DECLARE(z)

static const struct routines {
    potrf *potrf[2]; /* the second one is the _work function */
    potrs *potrs[2], *posv[2];
} routines[PRECISIONS] = {
#define ROUTINES(x)                                                                                \
    {                                                                                              \
        .potrf = {HIGH(x##potrf), WORK(x##potrf)}, .potrs = {HIGH(x##potrs), WORK(x##potrs)},      \
        .posv = {                                                                                  \
            HIGH(x##posv),                                                                         \
            WORK(x##posv)                                                                          \
        }                                                                                          \
    }
    ROUTINES(s),
    ROUTINES(d),
    ROUTINES(c),
    ROUTINES(z),
};

static const struct routines *routines_of(const struct precision *p)
{
    return &routines[p - precisions];
}

/* Hermitian with a dominant diagonal, a negative one at `bad`; what is not stored is any value. */
static void fill_definite(struct stored *all, struct stored *triangle, bool upper, size_t bad)
{
    size_t n = all->x.cols;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i <= j; i++) {
            number value = random_number(all->x.p);
            if (i == j)
                value = creall(value) + (j == bad ? -3.0L : 3.0L) * (long double)n;
            set(all, i, j, value);
            set(all, j, i, conjl(value));
        }
    }
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++)
            set(triangle, i, j, (upper ? i <= j : i >= j) ? at(all, i, j) : -7);
    }
}

static void check_other_triangle(const struct stored *factor, bool upper, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            if ((upper ? i > j : i < j) && at(factor, i, j) != -7)
                fail("the other triangle was written", factor->x.p, factor->layout, i, j, 0);
        }
    }
}

static void solve(const struct precision *p, int layout, size_t n, bool upper, int work, bool drive)
{
    const size_t nrhs = 1 + below(40);
    const char uplo = upper ? 'U' : 'L';
    struct stored all = make_stored(p, layout, n, n), b = make_stored(p, layout, n, nrhs);
    struct stored a = copy_stored(&all);
    fill_definite(&all, &a, upper, n);
    fill(&b);
    struct stored x = copy_stored(&b);
    const blas_int lda = (blas_int)a.x.ld, ldb = (blas_int)x.x.ld;
    const struct routines *r = routines_of(p);
    blas_int info = 0;
    if (!drive)
        info = r->potrf[work](layout, uplo, (blas_int)n, a.x.data, lda);
    if (info == 0)
        info = (drive ? r->posv : r->potrs)[work](layout, uplo, (blas_int)n, (blas_int)nrhs,
                                                  a.x.data, lda, x.x.data, ldb);
    printf("%c %d %c %zu %lld\n", p->letter, layout, uplo, n, (long long)info);
    check_solution(&all, &x, &b, 'N', n, nrhs);
    check_other_triangle(&a, upper, n);
    if (info != 0 || !gaps_hold(&a.x) || !gaps_hold(&x.x))
        fail("info or a gap", p, layout, n, nrhs, (long double)info);
    free(all.x.data);
    free(a.x.data);
    free(b.x.data);
    free(x.x.data);
}

/* A matrix that is not definite says where; B stays. */
static void refuse_indefinite(const struct precision *p, int layout, size_t n, bool upper, int work)
{
    const size_t bad = below(n);
    struct stored all = make_stored(p, layout, n, n), b = make_stored(p, layout, n, 3);
    struct stored a = copy_stored(&all), driven = copy_stored(&all);
    fill_definite(&all, &a, upper, bad);
    fill(&b);
    memcpy(driven.x.data, a.x.data, a.x.ld * n * p->parts * p->real);
    const struct stored x = copy_stored(&b);
    const char uplo = upper ? 'U' : 'L';
    const struct routines *r = routines_of(p);
    blas_int info[2] = {r->potrf[work](layout, uplo, (blas_int)n, a.x.data, (blas_int)a.x.ld),
                        r->posv[work](layout, uplo, (blas_int)n, 3, driven.x.data,
                                      (blas_int)driven.x.ld, b.x.data, (blas_int)b.x.ld)};
    printf("%c indefinite %lld %lld\n", p->letter, (long long)info[0], (long long)info[1]);
    if (info[0] != (blas_int)bad + 1 || !same(&x, &b))
        fail("an indefinite matrix", p, layout, n, bad, (long double)info[0]);
    check_other_triangle(&a, upper, n);
    free(all.x.data);
    free(a.x.data);
    free(b.x.data);
    free(driven.x.data);
    free(x.x.data);
}

static void refuse(const struct precision *p, int layout, size_t n, bool upper, int work)
{
    const struct routines *r = routines_of(p);
    const char uplo = upper ? 'U' : 'L';
    const blas_int order = (blas_int)n, nrhs = 3;
    for (int where = 0; where < 3; where++) { /* in the triangle, in the other one, in B */
        struct stored all = make_stored(p, layout, n, n), b = make_stored(p, layout, n, 3);
        struct stored a = copy_stored(&all);
        size_t i = below(n - 1), j = i + 1 + below(n - 1 - i); /* above the diagonal */
        fill_definite(&all, &a, upper, n);
        fill(&b);
        if (where == 2)
            set(&b, i, below(3), NAN);
        else
            set(&a, upper == (where == 0) ? i : j, upper == (where == 0) ? j : i, NAN);
        const blas_int lda = (blas_int)a.x.ld, ldb = (blas_int)b.x.ld;
        struct stored factor = copy_stored(&a);
        blas_int info[3] = {
            r->posv[work](layout, uplo, order, nrhs, factor.x.data, lda, b.x.data, ldb),
            r->potrs[work](layout, uplo, order, nrhs, a.x.data, lda, b.x.data, ldb),
            r->potrf[work](layout, uplo, order, a.x.data, lda)};
        for (size_t k = 0; k < 3; k++)
            printf("%cNaN %d %d %d %lld\n", p->letter, layout, where, work,
                   (long long)(info[k] < 0 ? info[k] : 0));
        free(all.x.data);
        free(a.x.data);
        free(b.x.data);
        free(factor.x.data);
    }
    char *zeros = calloc(n * n, 16);
    blas_int info[6] = {r->potrf[work](layout, 'x', order, zeros, order),
                        r->potrf[work](layout, uplo, order, zeros, order - 1),
                        r->potrf[work](layout + 3, uplo, order, zeros, order),
                        r->potrs[work](layout, uplo, order, -1, zeros, order, zeros, order),
                        r->posv[work](layout, uplo, order, order, zeros, order, zeros, order - 1),
                        r->posv[work](layout, uplo, -order, 1, zeros, order, zeros, order)};
    for (size_t k = 0; k < 6; k++)
        printf("%cinvalid %d %d %lld\n", p->letter, layout, work, (long long)info[k]);
    free(zeros);
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 60;
    for (size_t i = 0; i < 8 * PRECISIONS; i++) {
        const struct precision *p = &precisions[i / 8];
        const int layout = i % 2 ? BY_ROWS : BY_COLUMNS, work = i / 2 % 2;
        const bool upper = i / 4 % 2;
        size_t n = largest / 2 + below(largest / 2) + 1;
        if (count > 3) {
            refuse(p, layout, n, upper, work);
        } else {
            solve(p, layout, n, upper, work, false);
            solve(p, layout, n, upper, work, true);
            refuse_indefinite(p, layout, n, upper, work);
        }
    }
    return failures != 0;
}
