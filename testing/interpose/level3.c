/* A program that calls the rest of Level 3 by Fortran and C names in all precisions and with all
 * options, and checks every entry against higher precision, that nothing else was written, and that
 * what is not to be read was not: the other triangle and, with beta = 0, C hold NaN, imaginary
 * parts of a Hermitian diagonal anything.
 *
 * Names are looked up, because not every library has all. Those that are missing are left out, or,
 * with "all", an error.
 *
 * usage: level3 SEED LARGEST [all] */
#include "matrices.h"

#include <dlfcn.h>

enum form { FORTRAN, C_COLUMNS, C_ROWS, FORMS };
static const char *const form_names[] = {"Fortran", "C in columns", "C in rows"};

enum shape { SYMM, SYRK, SYR2K, TRMM, GEMMTR, GEMM };

static const struct routine {
    const char *name;
    enum shape shape;
    bool hermitian, complex_only;
} routines[] = {
    {"symm", SYMM, false, false},    {"hemm", SYMM, true, true},
    {"syrk", SYRK, false, false},    {"herk", SYRK, true, true},
    {"syr2k", SYR2K, false, false},  {"her2k", SYR2K, true, true},
    {"trmm", TRMM, false, false},    {"gemmtr", GEMMTR, false, false},
    {"gemmt", GEMMTR, false, false}, {"gemm3m", GEMM, false, true},
};
enum { ROUTINES = sizeof routines / sizeof *routines };

struct problem {
    const struct routine *routine;
    const struct precision *p;
    bool right, upper, unit;
    int transa, transb; /* of "NTC" */
    size_t m, n, k;
    number alpha, beta;
    char alpha_at[2 * sizeof(double)], beta_at[2 * sizeof(double)];
    struct matrix a, b, c, old;
};

static bool is_complex(const struct problem *s)
{
    return s->p->parts == 2;
}

static bool has_triangle(const struct problem *s)
{
    enum shape shape = s->routine->shape;
    return shape == SYRK || shape == SYR2K || shape == GEMMTR;
}

/* ---- what is right --------------------------------------------------------------------------- */

static number op(const struct matrix *x, int trans, size_t i, size_t j)
{
    number e = trans == 0 ? get(x, i, j) : get(x, j, i);
    return trans == 2 ? conjl(e) : e;
}

static number symmetric(const struct problem *s, size_t i, size_t j)
{
    bool stored = s->upper ? i <= j : i >= j;
    number e = stored ? get(&s->a, i, j) : get(&s->a, j, i);
    if (s->routine->hermitian && i == j)
        return creall(e);
    return s->routine->hermitian && !stored ? conjl(e) : e;
}

static number triangular(const struct problem *s, size_t i, size_t j)
{
    size_t row = s->transa == 0 ? i : j, col = s->transa == 0 ? j : i;
    if (i == j && s->unit)
        return 1;
    return (s->upper ? row > col : row < col) ? 0 : op(&s->a, s->transa, i, j);
}

/* Term l of the sum for entry (i, j), without alpha; the second one of xSYR2K in *second. */
static number product(const struct problem *s, size_t i, size_t j, size_t l, number *second)
{
    const int adjoint = s->transa != 0 ? 0 : s->routine->hermitian ? 2 : 1;
    *second = 0;
    switch (s->routine->shape) {
    case SYMM:
        return s->right ? get(&s->b, i, l) * symmetric(s, l, j)
                        : symmetric(s, i, l) * get(&s->b, l, j);
    case SYRK:
        return op(&s->a, s->transa, i, l) * op(&s->a, adjoint, l, j);
    case SYR2K:
        *second = op(&s->b, s->transa, i, l) * op(&s->a, adjoint, l, j);
        return op(&s->a, s->transa, i, l) * op(&s->b, adjoint, l, j);
    case TRMM:
        return s->right ? get(&s->old, i, l) * triangular(s, l, j)
                        : triangular(s, i, l) * get(&s->old, l, j);
    default:
        return op(&s->a, s->transa, i, l) * op(&s->b, s->transb, l, j);
    }
}

/* The error of an entry as a multiple of its bound. */
static long double error_of(const struct problem *s, size_t i, size_t j)
{
    /* Where there is nothing to do the diagonal is left as it is. */
    const bool quick = (s->alpha == 0 || s->k == 0) && s->beta == 1;
    const bool hermitian = s->routine->hermitian && s->routine->shape != SYMM && !quick;
    const number alpha2 = s->routine->hermitian ? conjl(s->alpha) : s->alpha;
    number c = get(&s->old, i, j), sum = 0;
    if (hermitian && i == j)
        c = creall(c);
    long double size = 0;
    if (s->beta != 0 && s->routine->shape != TRMM) {
        sum = s->beta * c;
        size = cabsl(sum);
    }
    for (size_t l = 0; l < s->k && s->alpha != 0; l++) {
        number second, first = product(s, i, j, l, &second);
        sum += s->alpha * first + alpha2 * second;
        size += cabsl(s->alpha) * (cabsl(first) + cabsl(second));
    }
    number found = get(&s->c, i, j);
    if (hermitian && i == j && cimagl(found) != 0)
        return INFINITY;
    /* Three multiplications for a complex one are accurate in norm only. */
    if (s->routine->shape == GEMM)
        size += 8 * (long double)s->k * cabsl(s->alpha);
    long double bound = ((long double)s->k + 4) * (is_complex(s) ? 3 : 1) * s->p->unit * size;
    long double error = cabsl(found - sum);
    return bound > 0 ? error / bound : error == 0 ? 0 : INFINITY;
}

/* ---- the call -------------------------------------------------------------------------------- */

typedef void function(void);

static function *look_up(const struct problem *s, enum form form)
{
    char name[40];
    snprintf(name, sizeof name, "%s%c%s%s", form == FORTRAN ? "" : "cblas_", s->p->letter,
             s->routine->name, form == FORTRAN ? "_" : "");
    void *address = dlsym(RTLD_DEFAULT, name);
    function *found;
    memcpy(&found, &address, sizeof found);
    return found;
}

typedef const char *letter;
typedef const blas_int *integer;
typedef void symm_fortran(letter, letter, integer, integer, const void *, const void *, integer,
                          const void *, integer, const void *, void *, integer, size_t, size_t);
typedef void syrk_fortran(letter, letter, integer, integer, const void *, const void *, integer,
                          const void *, void *, integer, size_t, size_t);
typedef void trmm_fortran(letter, letter, letter, letter, integer, integer, const void *,
                          const void *, integer, void *, integer, size_t, size_t, size_t, size_t);
typedef void gemmtr_fortran(letter, letter, letter, integer, integer, const void *, const void *,
                            integer, const void *, integer, const void *, void *, integer, size_t,
                            size_t, size_t);
typedef void gemm_fortran(letter, letter, integer, integer, integer, const void *, const void *,
                          integer, const void *, integer, const void *, void *, integer, size_t,
                          size_t);

static void call_fortran(struct problem *s, function *f)
{
    const size_t lower_case = below(2);
    const char *side = (s->right ? "Rr" : "Ll") + lower_case;
    const char *uplo = (s->upper ? "Uu" : "Ll") + lower_case;
    const char *diag = (s->unit ? "Uu" : "Nn") + lower_case;
    const char *letters = lower_case ? "ntc" : "NTC";
    const char *ta = letters + s->transa, *tb = letters + s->transb;
    const blas_int m = (blas_int)s->m, n = (blas_int)s->n, k = (blas_int)s->k;
    const blas_int lda = (blas_int)s->a.ld, ldb = (blas_int)s->b.ld, ldc = (blas_int)s->c.ld;
    const void *a = s->a.data, *b = s->b.data, *alpha = s->alpha_at, *beta = s->beta_at;
    void *c = s->c.data;
    switch (s->routine->shape) {
    case SYMM:
        ((symm_fortran *)f)(side, uplo, &m, &n, alpha, a, &lda, b, &ldb, beta, c, &ldc, 1, 1);
        break;
    case SYRK:
        ((syrk_fortran *)f)(uplo, ta, &n, &k, alpha, a, &lda, beta, c, &ldc, 1, 1);
        break;
    case SYR2K:
        ((symm_fortran *)f)(uplo, ta, &n, &k, alpha, a, &lda, b, &ldb, beta, c, &ldc, 1, 1);
        break;
    case TRMM:
        ((trmm_fortran *)f)(side, uplo, ta, diag, &m, &n, alpha, a, &lda, c, &ldc, 1, 1, 1, 1);
        break;
    case GEMMTR:
        ((gemmtr_fortran *)f)(uplo, ta, tb, &n, &k, alpha, a, &lda, b, &ldb, beta, c, &ldc, 1, 1,
                              1);
        break;
    case GEMM:
        ((gemm_fortran *)f)(ta, tb, &m, &n, &k, alpha, a, &lda, b, &ldb, beta, c, &ldc, 1, 1);
    }
}

/* Arguments of a C function, by the way its scalars are passed: calls of all shapes. */
struct c_arguments {
    int layout, side, uplo, transa, transb, diag;
    blas_int m, n, k, lda, ldb, ldc;
    const void *a, *b;
    void *c;
};
#define CALL_C(name, ALPHA, BETA)                                                                  \
    static void name(enum shape shape, function *f, const struct c_arguments *x, ALPHA alpha,      \
                     BETA beta)                                                                    \
    {                                                                                              \
        typedef void symm_c(int, int, int, blas_int, blas_int, ALPHA, const void *, blas_int,      \
                            const void *, blas_int, BETA, void *, blas_int);                       \
        typedef void syrk_c(int, int, int, blas_int, blas_int, ALPHA, const void *, blas_int,      \
                            BETA, void *, blas_int);                                               \
        typedef void trmm_c(int, int, int, int, int, blas_int, blas_int, ALPHA, const void *,      \
                            blas_int, void *, blas_int);                                           \
        typedef void gemmtr_c(int, int, int, int, blas_int, blas_int, ALPHA, const void *,         \
                              blas_int, const void *, blas_int, BETA, void *, blas_int);           \
        typedef void gemm_c(int, int, int, blas_int, blas_int, blas_int, ALPHA, const void *,      \
                            blas_int, const void *, blas_int, BETA, void *, blas_int);             \
        if (shape == SYMM)                                                                         \
            ((symm_c *)f)(x->layout, x->side, x->uplo, x->m, x->n, alpha, x->a, x->lda, x->b,      \
                          x->ldb, beta, x->c, x->ldc);                                             \
        else if (shape == SYRK)                                                                    \
            ((syrk_c *)f)(x->layout, x->uplo, x->transa, x->n, x->k, alpha, x->a, x->lda, beta,    \
                          x->c, x->ldc);                                                           \
        else if (shape == SYR2K)                                                                   \
            ((symm_c *)f)(x->layout, x->uplo, x->transa, x->n, x->k, alpha, x->a, x->lda, x->b,    \
                          x->ldb, beta, x->c, x->ldc);                                             \
        else if (shape == TRMM)                                                                    \
            ((trmm_c *)f)(x->layout, x->side, x->uplo, x->transa, x->diag, x->m, x->n, alpha,      \
                          x->a, x->lda, x->c, x->ldc);                                             \
        else if (shape == GEMMTR)                                                                  \
            ((gemmtr_c *)f)(x->layout, x->uplo, x->transa, x->transb, x->n, x->k, alpha, x->a,     \
                            x->lda, x->b, x->ldb, beta, x->c, x->ldc);                             \
        else                                                                                       \
            ((gemm_c *)f)(x->layout, x->transa, x->transb, x->m, x->n, x->k, alpha, x->a, x->lda,  \
                          x->b, x->ldb, beta, x->c, x->ldc);                                       \
    }
CALL_C(call_float, float, float)
CALL_C(call_double, double, double)
CALL_C(call_complex, const void *, const void *)
CALL_C(call_float_beta, const void *, float)
CALL_C(call_double_beta, const void *, double)

static void swap_operands(struct c_arguments *x)
{
    const struct c_arguments y = *x;
    x->transa = y.transb;
    x->transb = y.transa;
    x->m = y.n;
    x->n = y.m;
    x->a = y.b;
    x->lda = y.ldb;
    x->b = y.a;
    x->ldb = y.lda;
}

/* The same memory in rows: all matrices are the transposed ones. */
static void turn_to_rows(struct problem *s, struct c_arguments *x)
{
    const bool real = !is_complex(s);
    x->layout = 101;
    x->uplo = s->upper ? 122 : 121;
    switch (s->routine->shape) {
    case SYMM:
    case TRMM:
        x->side = s->right ? 141 : 142;
        x->m = (blas_int)s->n;
        x->n = (blas_int)s->m;
        break;
    case SYRK:
    case SYR2K:
        x->transa = s->transa != 0 ? 111 : s->routine->hermitian || (real && below(2)) ? 113 : 112;
        break;
    case GEMMTR:
        swap_operands(x);
        x->n = (blas_int)s->n;
        break;
    case GEMM:
        swap_operands(x);
    }
    if (s->routine->shape == SYR2K && s->routine->hermitian)
        put_real(s->p, s->alpha_at + s->p->real, -cimagl(s->alpha));
}

static void call_c(struct problem *s, function *f, bool rows)
{
    struct c_arguments x = {.layout = 102,
                            .side = s->right ? 142 : 141,
                            .uplo = s->upper ? 121 : 122,
                            .transa = 111 + s->transa,
                            .transb = 111 + s->transb,
                            .diag = s->unit ? 132 : 131,
                            .m = (blas_int)s->m,
                            .n = (blas_int)s->n,
                            .k = (blas_int)s->k,
                            .lda = (blas_int)s->a.ld,
                            .ldb = (blas_int)s->b.ld,
                            .ldc = (blas_int)s->c.ld,
                            .a = s->a.data,
                            .b = s->b.data,
                            .c = s->c.data};
    const enum shape shape = s->routine->shape;
    const bool single = s->p->real == sizeof(float),
               complex_beta = is_complex(s) && !(s->routine->hermitian && shape != SYMM);
    if (rows)
        turn_to_rows(s, &x);
    if (complex_beta)
        call_complex(shape, f, &x, s->alpha_at, s->beta_at);
    else if (shape == SYR2K && is_complex(s) && single)
        call_float_beta(shape, f, &x, s->alpha_at, (float)creall(s->beta));
    else if (shape == SYR2K && is_complex(s))
        call_double_beta(shape, f, &x, s->alpha_at, (double)creall(s->beta));
    else if (single)
        call_float(shape, f, &x, (float)creall(s->alpha), (float)creall(s->beta));
    else
        call_double(shape, f, &x, (double)creall(s->alpha), (double)creall(s->beta));
}

/* ---- problems -------------------------------------------------------------------------------- */

static void fill(struct matrix *x)
{
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            put(x, i, j, random_number(x->p));
    }
}

/* What of A is not to be read. */
static void poison(struct problem *s)
{
    for (size_t j = 0; j < s->a.cols; j++) {
        for (size_t i = 0; i < s->a.rows; i++) {
            if ((s->upper ? i > j : i < j) || (s->routine->shape == TRMM && s->unit && i == j))
                put(&s->a, i, j, CMPLXL(NAN, NAN));
        }
    }
}

/* C as it is given: NaN with beta = 0, the real diagonal of a Hermitian one included. */
static void fill_result(struct problem *s)
{
    fill(&s->c);
    for (size_t j = 0; j < s->n && s->beta == 0 && s->routine->shape != TRMM; j++) {
        for (size_t i = 0; i < s->m; i++)
            put(&s->c, i, j, CMPLXL(NAN, NAN));
    }
}

static number random_scalar(const struct problem *s, bool real)
{
    static const long double simple[] = {0, 1, 1, -0.75L, -0.75L};
    size_t choice = below(8);
    if (choice < sizeof simple / sizeof *simple)
        return simple[choice];
    return is_complex(s) && !real ? CMPLXL(0.5L, -1.25L) : CMPLXL(1.5L, 0);
}

static void put_scalar(const struct problem *s, char *at, number value)
{
    put_real(s->p, at, creall(value));
    put_real(s->p, at + s->p->real, cimagl(value));
}

/* `options`: of side or trans, uplo, and so on, every combination once. False when the routine does
 * not take it. */
static bool make_problem(struct problem *s, const struct routine *routine,
                         const struct precision *p, size_t options, size_t largest)
{
    const enum shape shape = routine->shape;
    *s = (struct problem){.routine = routine, .p = p};
    s->right = options & 1;
    s->upper = options & 2;
    s->transa = (int)(options / 4 % 3);
    if (shape == TRMM)
        s->unit = options / 12;
    else
        s->transb = (int)(options / 12);
    if (s->transb > 2 || options / 12 > (shape == TRMM ? 1 : 2) ||
        ((shape == SYMM) && (s->transa != 0 || s->transb != 0)) ||
        ((shape == SYRK || shape == SYR2K) && (s->right || s->transb != 0)) ||
        (shape == GEMMTR && s->right) || (shape == GEMM && (s->right || s->upper)))
        return false;
    if ((shape == SYRK || shape == SYR2K) && is_complex(s) &&
        s->transa == (routine->hermitian ? 1 : 2))
        return false;
    s->m = 1 + below(largest);
    s->n = has_triangle(s) ? s->m : 1 + below(largest);
    s->k = shape == SYMM || shape == TRMM ? (s->right ? s->n : s->m) : 1 + below(largest);
    if (shape == GEMMTR && below(8) == 0)
        s->k = 0;
    const bool real = routine->hermitian && shape != SYMM;
    s->alpha = random_scalar(s, real && shape == SYRK);
    s->beta = random_scalar(s, real);
    put_scalar(s, s->alpha_at, s->alpha);
    put_scalar(s, s->beta_at, s->beta);
    return true;
}

/* op of it is rows x cols. */
static struct matrix make_operand(const struct problem *s, int trans, size_t rows, size_t cols)
{
    size_t stored_rows = trans == 0 ? rows : cols, stored_cols = trans == 0 ? cols : rows;
    return make(s->p, stored_rows == 0 ? 1 : stored_rows, stored_cols);
}

static void make_matrices(struct problem *s)
{
    const enum shape shape = s->routine->shape;
    bool square = shape == SYMM || shape == TRMM;
    s->a = square ? make(s->p, s->k, s->k) : make_operand(s, s->transa, s->m, s->k);
    if (shape == SYMM)
        s->b = make(s->p, s->m, s->n);
    else if (shape == SYR2K)
        s->b = make_operand(s, s->transa, s->m, s->k);
    else
        s->b = make_operand(s, s->transb, s->k, s->n);
    s->c = make(s->p, s->m, s->n);
    fill(&s->a);
    fill(&s->b);
    fill_result(s);
    if (square)
        poison(s);
    s->old = copy(&s->c);
}

static bool same_bytes(const struct matrix *x, const struct matrix *y)
{
    return memcmp(x->data, y->data, x->ld * (x->cols + 1) * x->p->parts * x->p->real) == 0;
}

/* The entries outside the triangle are what they were. */
static bool others_hold(const struct problem *s)
{
    const size_t bytes = s->p->parts * s->p->real;
    for (size_t j = 0; j < s->n && has_triangle(s); j++) {
        for (size_t i = 0; i < s->m; i++) {
            if ((s->upper ? i > j : i < j) &&
                memcmp(element(&s->c, i, j), element(&s->old, i, j), bytes) != 0)
                return false;
        }
    }
    return true;
}

static long double worst_error(const struct problem *s)
{
    long double worst = 0;
    for (size_t j = 0; j < s->n; j++) {
        for (size_t i = 0; i < s->m; i++) {
            if (has_triangle(s) && (s->upper ? i > j : i < j))
                continue;
            long double error = error_of(s, i, j);
            worst = error <= worst ? worst : error;
        }
    }
    return worst;
}

static void run(struct problem *s, enum form form, function *f)
{
    make_matrices(s);
    struct matrix a = copy(&s->a), b = copy(&s->b);
    if (form == FORTRAN)
        call_fortran(s, f);
    else
        call_c(s, f, form == C_ROWS);
    long double error = worst_error(s);
    bool intact =
        gaps_hold(&s->c) && others_hold(s) && same_bytes(&a, &s->a) && same_bytes(&b, &s->b);
    if (!(error <= 1) || !intact) {
        fprintf(stderr,
                "%c%s %s, %c%c%c%c%c m=%zu n=%zu k=%zu alpha=%Lg%+Lgi beta=%Lg%+Lgi: %Lg of the "
                "bound%s\n",
                s->p->letter, s->routine->name, form_names[form], s->right ? 'R' : 'L',
                s->upper ? 'U' : 'L', "NTC"[s->transa], "NTC"[s->transb], s -> unit ? 'U' : 'N',
                s->m, s->n, s->k, creall(s->alpha), cimagl(s->alpha), creall(s->beta),
                cimagl(s->beta), error, intact ? "" : ", something else was written");
        failures++;
    }
    free(a.data);
    free(b.data);
    free(s->a.data);
    free(s->b.data);
    free(s->c.data);
    free(s->old.data);
}

static void run_all(const struct routine *routine, const struct precision *p, size_t largest,
                    bool all)
{
    for (int form = 0; form < FORMS; form++) {
        for (size_t options = 0; options < 36; options++) {
            struct problem s;
            if (!make_problem(&s, routine, p, options, largest))
                continue;
            function *f = look_up(&s, (enum form)form);
            if (f != NULL) {
                run(&s, (enum form)form, f);
            } else if (all) {
                fprintf(stderr, "%c%s, %s: not found\n", p->letter, routine->name,
                        form_names[form]);
                failures++;
                break;
            }
        }
    }
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    size_t largest = count > 2 ? strtoul(arguments[2], NULL, 10) : 30;
    for (size_t r = 0; r < ROUTINES; r++) {
        for (size_t i = 0; i < PRECISIONS; i++) {
            if (precisions[i].parts == 2 || !routines[r].complex_only)
                run_all(&routines[r], &precisions[i], largest, count > 3);
        }
    }
    return failures != 0;
}
