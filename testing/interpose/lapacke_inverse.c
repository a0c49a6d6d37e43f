/* A program that inverts triangles and definite matrices, and multiplies triangles by themselves,
 * by LAPACK's C names in all precisions, matrices by columns and by rows, and checks what it gets:
 * residuals, and that nothing else was read or written, the other triangle and a unit diagonal
 * included. What the functions return is printed: it must be the same whichever library computes
 * it.
 *
 * usage: lapacke_inverse SEED LARGEST        matrices of up to LARGEST rows
 *        lapacke_inverse SEED LARGEST bad    NaN in every input, and arguments that are not valid
 */
#include "stored.h"

typedef blas_int potri(int layout, char uplo, blas_int n, void *a, blas_int lda);
typedef blas_int trtri(int layout, char uplo, char diag, blas_int n, void *a, blas_int lda);

#define DECLARE(x)                                                                                 \
    potri HIGH(x##potri), WORK(x##potri), HIGH(x##lauum), WORK(x##lauum);                          \
    trtri HIGH(x##trtri), WORK(x##trtri);
DECLARE(s)
DECLARE(d)
DECLARE(c)
DECLARE(z)

static const struct routines {
    potri *potri[2], *lauum[2]; /* the second one is the _work function */
    trtri *trtri[2];
} routines[PRECISIONS] = {
#define ROUTINES(x)                                                                                \
    {                                                                                              \
        .potri = {HIGH(x##potri), WORK(x##potri)}, .lauum = {HIGH(x##lauum), WORK(x##lauum)},      \
        .trtri = {                                                                                 \
            HIGH(x##trtri),                                                                        \
            WORK(x##trtri)                                                                         \
        }                                                                                          \
    }
    ROUTINES(s),
    ROUTINES(d),
    ROUTINES(c),
    ROUTINES(z),
};

enum kind { POTRI, LAUUM, TRTRI, KINDS };
static const char *const kinds[KINDS] = {"potri", "lauum", "trtri"};

struct call {
    const struct precision *p;
    enum kind kind;
    int layout, work;
    bool upper, unit;
    size_t n;
};

static blas_int make_call(const struct call *call, struct stored *a)
{
    const struct routines *r = &routines[call->p - precisions];
    const char uplo = call->upper ? 'U' : 'L';
    const blas_int n = (blas_int)call->n, lda = (blas_int)a->x.ld;
    if (call->kind == TRTRI)
        return r->trtri[call->work](call->layout, uplo, call->unit ? 'U' : 'N', n, a->x.data, lda);
    return (call->kind == POTRI ? r->potri : r->lauum)[call->work](call->layout, uplo, n, a->x.data,
                                                                   lda);
}

static bool is_stated(const struct call *call, size_t i, size_t j)
{
    return i == j ? !call->unit : (i < j) == call->upper;
}

/* What is not stated is a number that must stay; on a unit diagonal it is NaN. */
static struct stored make_triangle(const struct call *call)
{
    struct stored a = make_stored(call->p, call->layout, call->n, call->n);
    for (size_t j = 0; j < call->n; j++) {
        for (size_t i = 0; i < call->n; i++) {
            number value = random_number(call->p);
            if (i == j)
                value = is_stated(call, i, j) ? 1 + fabsl(creall(value)) : (long double)NAN;
            else
                value = is_stated(call, i, j) ? value / (long double)call->n : -7;
            set(&a, i, j, value);
        }
    }
    return a;
}

/* With its structure. */
static number entry(const struct call *call, const struct stored *a, size_t i, size_t j)
{
    if (!is_stated(call, i, j))
        return i == j;
    return at(a, i, j);
}

/* Entry (i, j) of a Hermitian result. */
static number mirrored(const struct call *call, const struct stored *x, size_t i, size_t j)
{
    return is_stated(call, i, j) ? at(x, i, j) : conjl(at(x, j, i));
}

/* Entry (i, j) of what should be zero: T*X - I, U*U^H - X or L^H*L - X; and by potri's T, of
 * T*(T^H*X) - I or T^H*(T*X) - I, whose inner product is column j of `inner`. */
static number residual(const struct call *call, const struct stored *t, const struct stored *x,
                       const number *inner, size_t i, size_t j)
{
    number sum = call->kind == LAUUM ? -mirrored(call, x, i, j) : -(number)(i == j);
    for (size_t k = 0; k < call->n; k++) {
        if (call->kind == TRTRI)
            sum += entry(call, t, i, k) * entry(call, x, k, j);
        else if (call->kind == LAUUM)
            sum += call->upper ? entry(call, t, i, k) * conjl(entry(call, t, j, k))
                               : conjl(entry(call, t, k, i)) * entry(call, t, k, j);
        else
            sum += (call->upper ? conjl(entry(call, t, k, i)) : entry(call, t, i, k)) * inner[k];
    }
    return sum;
}

static void check(const struct call *call, const struct stored *t, const struct stored *x)
{
    const size_t n = call->n;
    number *inner = calloc(n, sizeof *inner);
    long double worst = 0;
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n && call->kind == POTRI; i++) {
            inner[i] = 0;
            for (size_t k = 0; k < n; k++)
                inner[i] += (call->upper ? entry(call, t, i, k) : conjl(entry(call, t, k, i))) *
                            mirrored(call, x, k, j);
        }
        for (size_t i = 0; i < n; i++) {
            long double error = cabsl(residual(call, t, x, inner, i, j));
            worst = error <= worst ? worst : error;
            if (i != j && !is_stated(call, i, j) && at(x, i, j) != -7)
                fail("the other triangle was written", call->p, call->layout, i, j, 0);
        }
        if (call->unit && !isnan((double)creall(at(x, j, j))))
            fail("the unit diagonal was written", call->p, call->layout, j, j, 0);
    }
    /* All entries are about 1 or less, and sums of n of those that are not are, too. */
    if (!(worst <= 50 * (long double)n * call->p->unit))
        fail(kinds[call->kind], call->p, call->layout, n, n, worst);
    if (!gaps_hold(&x->x))
        fail("a gap was written", call->p, call->layout, n, n, 0);
    free(inner);
}

static void compute(const struct call *call)
{
    struct stored t = make_triangle(call), x = copy_stored(&t);
    const blas_int info = make_call(call, &x);
    printf("%c %s %d %zu %lld\n", call->p->letter, kinds[call->kind], call->layout, call->n,
           (long long)info);
    if (info != 0)
        fail("info", call->p, call->layout, call->n, call->n, (long double)info);
    check(call, &t, &x);
    free(t.x.data);
    free(x.x.data);
}

/* A zero on the diagonal says where it is, and all stays as it was. */
static void refuse_singular(const struct call *call)
{
    struct stored t = make_triangle(call);
    const size_t zero = below(call->n);
    set(&t, zero, zero, 0);
    struct stored x = copy_stored(&t);
    const blas_int info = make_call(call, &x);
    printf("%c %s singular %lld\n", call->p->letter, kinds[call->kind], (long long)info);
    if (!call->unit && (info != (blas_int)zero + 1 || !same(&x, &t)))
        fail("a singular matrix", call->p, call->layout, call->n, zero, (long double)info);
    free(t.x.data);
    free(x.x.data);
}

/* NaN in the triangle, in the other one. */
static void refuse_nan(const struct call *call)
{
    for (int where = 0; where < 2; where++) {
        struct stored a = make_triangle(call);
        size_t i = below(call->n - 1), j = i + 1 + below(call->n - 1 - i); /* above the diagonal */
        set(&a, call->upper == (where == 0) ? i : j, call->upper == (where == 0) ? j : i, NAN);
        const blas_int info = make_call(call, &a);
        printf("%cNaN %d %d %d %lld\n", call->p->letter, call->layout, where, call->work,
               (long long)(info < 0 ? info : 0));
        free(a.x.data);
    }
}

static void refuse_arguments(const struct call *call)
{
    const struct routines *r = &routines[call->p - precisions];
    const int layout = call->layout, work = call->work;
    const blas_int n = (blas_int)call->n;
    char *zeros = calloc(call->n * call->n, 16);
    const blas_int info[] = {r->potri[work](layout, 'x', n, zeros, n),
                             r->potri[work](layout, 'U', n, zeros, n - 1),
                             r->lauum[work](layout + 3, 'U', n, zeros, n),
                             r->lauum[work](layout, 'L', -n, zeros, n),
                             r->trtri[work](layout, 'L', 'x', n, zeros, n),
                             r->trtri[work](layout, 'x', 'N', n, zeros, n),
                             r->trtri[work](layout, 'L', 'N', n, zeros, n),
                             r->trtri[work](layout, 'L', 'N', n, zeros, n - 1)};
    for (size_t k = 0; k < sizeof info / sizeof *info; k++)
        printf("%cinvalid %d %d %lld\n", call->p->letter, layout, work, (long long)info[k]);
    free(zeros);
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 60;
    for (size_t i = 0; i < 8 * PRECISIONS * KINDS; i++) {
        const struct call call = {.p = &precisions[i / (8 * KINDS)],
                                  .kind = (enum kind)(i / 8 % KINDS),
                                  .layout = i % 2 ? BY_ROWS : BY_COLUMNS,
                                  .work = i / 2 % 2,
                                  .upper = i / 4 % 2,
                                  .unit = i / 8 % KINDS == TRTRI && below(2),
                                  .n = largest / 2 + below(largest / 2) + 1};
        if (count > 3)
            refuse_nan(&call);
        else
            compute(&call);
        if (count > 3 && call.kind == TRTRI)
            refuse_arguments(&call);
        if (count > 3 && call.kind != LAUUM)
            refuse_singular(&call);
    }
    return failures != 0;
}
