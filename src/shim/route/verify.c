/* CLBLAS_SHIM_VERIFY: results of the device are checked before the call returns.
 *
 * What a result must satisfy is applied to a random vector, or, for triangular systems,
 * factorisations and inverses, the residual is: sums of O(n^2), entry by entry within the error
 * bound of the algorithm, which is summed beside them (blas/operator.h). Entries that may overflow
 * and those with NaN or infinity in their sums are not judged. What the call overwrites is copied
 * first where the check or the next library needs it.
 *
 * A result that fails is undone, the device is not used any more, and the call is declined: the
 * next library computes it from the original arguments. */
#include "blas/operator.h"
#include "run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- which calls ----------------------------------------------------------------------------- */

atomic_bool clb_verify_passed[CLB_ROUTINES][CLB_VERIFY_CLASSES];

struct clb_verify_counts clb_verify_counts;

static void name_first_use(const struct clb_run *run, char name[80])
{
    snprintf(name, 80, "results of %s %d, version " CLB_VERSION,
             clb_routines[run->call->routine].name, run->verify.size_class);
}

static void set_passed(const struct clb_run *run)
{
    atomic_store(&clb_verify_passed[run->call->routine][run->verify.size_class], true);
}

/* Whether this use of a kernel is the first one that is known of. */
static bool is_first_use(const struct clb_run *run, const struct clb_runtime *runtime,
                         const struct clb_gemm_variant *variant)
{
    char name[80];
    name_first_use(run, name);
    if (!clb_program_is_checked(runtime, variant->program, name))
        return true;
    set_passed(run);
    return false;
}

/* Every 1/p-th call, by their number in this process. */
static bool is_in_share(double share)
{
    static _Atomic unsigned long calls;
    const double before = (double)atomic_fetch_add(&calls, 1);
    return floor((before + 1) * share) > floor(before * share);
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct verify_matrix {
    char name;
    void *data;
    size_t ld;
    struct clb_shape shape;
    char part; /* as in clb_copy_triangle; 0: all of it */
};

/* Matrix number i of the call, as it is in memory now. False: it has none. */
static bool matrix_of(const struct clb_run *run, size_t i, struct verify_matrix *matrix)
{
    const struct clb_call *call = run->call;
    void *const data[] = {call->a, call->b, call->c};
    const size_t ld[] = {call->lda, call->ldb, call->ldc};
    *matrix = (struct verify_matrix){.name = (char)('A' + i), .data = data[i], .ld = ld[i]};
    if (!clb_call_shape(call, matrix->name, &matrix->shape))
        return false;
    if (matrix->shape.triangle)
        matrix->part = (char)((call->upper ? 'U' : 'L') | (call->unit ? 0x20 : 0));
    return true;
}

static void copy_part(const struct clb_run *run, const struct verify_matrix *matrix,
                      const void *from, size_t ld_from, void *to, size_t ld_to)
{
    const size_t rows = matrix->shape.rows, cols = matrix->shape.cols;
    if (matrix->part != 0)
        clb_copy_triangle(run->precision, matrix->part, cols, cols, from, ld_from, to, ld_to);
    else
        clb_copy_trapezoid(run->precision, true, (ptrdiff_t)rows, rows, cols, from, ld_from, to,
                           ld_to);
}

/* What beta = 0 leaves unread need not be kept: the next library does not read it either. */
static clb_status copy_outputs(struct clb_run *run)
{
    for (size_t i = 0; i < CLB_VERIFY_MATRICES; i++) {
        struct clb_verify_copy *copy = &run->verify.copy[i];
        struct verify_matrix matrix;
        if (!matrix_of(run, i, &matrix) || !matrix.shape.written || !clb_call_reads_c(run->call))
            continue;
        copy->ld = matrix.shape.rows;
        clb_status status = clb_extent_bytes(copy->ld, matrix.shape.cols, copy->ld,
                                             clb_precision_size(run->precision), &copy->bytes);
        copy->data = status == CLB_OK ? clb_host_map(copy->bytes) : NULL;
        if (copy->data == NULL)
            return CLB_ERR_NOMEM;
        copy_part(run, &matrix, matrix.data, matrix.ld, copy->data, copy->ld);
    }
    return CLB_OK;
}

static void put_back(struct clb_run *run)
{
    for (size_t i = 0; i < CLB_VERIFY_MATRICES; i++) {
        const struct clb_verify_copy *copy = &run->verify.copy[i];
        struct verify_matrix matrix;
        if (copy->data != NULL && matrix_of(run, i, &matrix))
            copy_part(run, &matrix, copy->data, copy->ld, matrix.data, matrix.ld);
    }
}

void clb_verify_free(struct clb_run *run)
{
    for (size_t i = 0; i < CLB_VERIFY_MATRICES; i++) {
        if (run->verify.copy[i].data != NULL)
            clb_host_unmap(run->verify.copy[i].data, run->verify.copy[i].bytes);
        run->verify.copy[i].data = NULL;
    }
    run->verify.wanted = false;
}

clb_reason clb_verify_begin(struct clb_run *run, struct clb_runtime *runtime,
                            const struct clb_gemm_variant *variant)
{
    const double share = clb_config_get()->verify;
    if (!(share < 0 ? is_first_use(run, runtime, variant) : is_in_share(share)))
        return CLB_REASONS;
    run->verify.wanted = true;
    run->verify.runtime = runtime;
    run->verify.variant = variant;
    if (copy_outputs(run) == CLB_OK)
        return CLB_REASONS;
    clb_verify_free(run);
    return share >= 1 ? CLB_REASON_NOMEMORY : CLB_REASONS;
}

/* ---- a check --------------------------------------------------------------------------------- */

/* Random vectors in turn. The signs of one of them may let errors in several entries of a row
 * cancel each other: where the errors are r times the bound, in about one case of r. */
enum { ROUNDS = 3 };

struct verification {
    struct clb_run *run;
    const struct clb_call *call;
    clb_precision precision;
    double unit, tiny, huge; /* roundoff, smallest normal and largest number */
    uint64_t round;          /* 1 to ROUNDS: which random vector */
    struct clb_sample x; /* the random vector; entries that are zero: columns that are not read */
    struct clb_sample y, z; /* what is compared, */
    struct clb_sample held; /* and on the way there */
    double *largest;        /* room for columns' magnitudes */
    double smallest;        /* of |x(j)| that are not zero */
    size_t judged, left;    /* entries; left: not judged */
    double worst;           /* error by bound */
    const char *failed;     /* what is wrong; NULL: nothing so far */
    double error, bound;    /* of an entry, where that is it */
};

static size_t largest_size(const struct clb_run *run)
{
    size_t size = 1;
    for (size_t i = 0; i < CLB_VERIFY_MATRICES; i++) {
        struct verify_matrix matrix;
        if (matrix_of(run, i, &matrix))
            size = clb_max(size, clb_max(matrix.shape.rows, matrix.shape.cols));
    }
    return size;
}

static clb_status verification_open(struct verification *v, struct clb_run *run)
{
    const size_t size = largest_size(run);
    const bool single = clb_precision_real_size(run->precision) == sizeof(float);
    *v = (struct verification){.run = run,
                               .call = run->call,
                               .precision = run->precision,
                               .unit = single ? FLT_EPSILON / 2 : DBL_EPSILON / 2,
                               .tiny = single ? FLT_MIN : DBL_MIN,
                               .huge = single ? FLT_MAX : DBL_MAX,
                               .largest = malloc(size * sizeof(double))};
    clb_status status = v->largest != NULL ? CLB_OK : CLB_ERR_NOMEM;
    struct clb_sample *const samples[] = {&v->x, &v->y, &v->z, &v->held};
    for (size_t i = 0; i < CLB_COUNT_OF(samples) && status == CLB_OK; i++)
        status = clb_sample_make(samples[i], size);
    return status;
}

static void verification_close(struct verification *v)
{
    clb_sample_free(&v->x);
    clb_sample_free(&v->y);
    clb_sample_free(&v->z);
    clb_sample_free(&v->held);
    free(v->largest);
}

/* ---- operators of a call --------------------------------------------------------------------- */

static struct clb_operator plain(const struct verification *v, const void *data, size_t rows,
                                 size_t cols, size_t ld)
{
    return (struct clb_operator){
        .precision = v->precision, .data = data, .rows = rows, .cols = cols, .ld = ld};
}

/* Matrix A, B or C of the call as it is now, or as it was before it; triangles as such. */
static struct clb_operator matrix_now(const struct verification *v, char name)
{
    struct verify_matrix matrix = {0};
    (void)matrix_of(v->run, (size_t)(name - 'A'), &matrix);
    struct clb_operator m = plain(v, matrix.data, matrix.shape.rows, matrix.shape.cols, matrix.ld);
    m.part = matrix.part;
    return m;
}

static struct clb_operator matrix_before(const struct verification *v, char name)
{
    const struct clb_verify_copy *copy = &v->run->verify.copy[name - 'A'];
    struct clb_operator m = matrix_now(v, name);
    m.data = copy->data;
    m.ld = copy->ld;
    return m;
}

static struct clb_operator transpose(struct clb_operator m)
{
    m.transposed = !m.transposed;
    return m;
}

static struct clb_operator adjoint(struct clb_operator m)
{
    m.transposed = !m.transposed;
    m.conjugated = !m.conjugated;
    return m;
}

static struct clb_operator with_op(struct clb_operator m, clb_op op)
{
    return op == CLB_OP_N ? m : op == CLB_OP_T ? transpose(m) : adjoint(m);
}

static struct clb_operator transpose_if(bool condition, struct clb_operator m)
{
    return condition ? transpose(m) : m;
}

static struct clb_operator mirror(struct clb_operator m, bool hermitian)
{
    m.mirrored = true;
    m.hermitian = hermitian;
    return m;
}

static struct clb_operator triangle(struct clb_operator m, char part)
{
    const size_t order = clb_min(m.rows, m.cols);
    m.part = part;
    if (part == 'U')
        m.rows = order;
    else
        m.cols = order;
    return m;
}

static bool is_complex(const struct verification *v)
{
    return clb_precision_parts(v->precision) == 2;
}

/* ---- the random vector ----------------------------------------------------------------------- */

/* The same for every call: it has nothing to do with what is computed. */
static double next_sign(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 63 != 0 ? 1 : -1;
}

static void set_vector(struct verification *v, size_t n, const double *magnitude)
{
    uint64_t state = v->round;
    v->x.n = n;
    v->x.norm = 0;
    v->smallest = INFINITY;
    for (size_t j = 0; j < n; j++) {
        const double size = magnitude != NULL ? magnitude[j] : 1;
        v->x.re[j] = next_sign(&state) * size;
        v->x.im[j] = 0;
        v->x.size[j] = size;
        v->x.norm += size;
        if (size != 0)
            v->smallest = fmin(v->smallest, size);
    }
    v->x.least = 16 * v->tiny / v->unit;
}

/* Scales that bring columns to about the same size, so that an error in a small one shows, too;
 * zero for columns that are not finite. */
static void set_scaled(struct verification *v, const struct clb_operator *matrices, size_t count)
{
    const size_t n = clb_operator_cols(&matrices[0]);
    const int range = v->huge > FLT_MAX ? 400 : 40;
    int most = INT16_MIN;
    for (size_t i = 0; i < count; i++) {
        double *largest = i == 0 ? v->largest : v->held.re;
        clb_operator_columns(&matrices[i], largest);
        for (size_t j = 0; i > 0 && j < n; j++)
            v->largest[j] = fmax(v->largest[j], largest[j]);
    }
    for (size_t j = 0; j < n; j++) {
        if (v->largest[j] > 0 && v->largest[j] <= DBL_MAX && ilogb(v->largest[j]) > most)
            most = ilogb(v->largest[j]);
    }
    most = most == INT16_MIN ? 0 : most;
    for (size_t j = 0; j < n; j++) {
        double *size = &v->largest[j];
        if (*size > DBL_MAX)
            *size = 0;
        else
            *size = ldexp(1, -(*size > 0 && ilogb(*size) > most - range ? ilogb(*size)
                               : *size > 0                              ? most - range
                                                                        : most));
    }
    set_vector(v, n, v->largest);
}

/* Where a scalar makes operands smaller before they are multiplied, they lose more. */
static void note_scalar(struct verification *v, const double alpha[2])
{
    v->x.least /= fmin(1, fabs(alpha[0]) + fabs(alpha[1]));
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void multiply(const struct clb_operator *m, const struct clb_sample *x, struct clb_sample *y,
                     bool first)
{
    y->n = clb_operator_rows(m);
    clb_operator_apply(m, x, y, first);
}

/* y = M*x, sizes the norms of rows. */
static void apply_first(struct verification *v, struct clb_operator m, struct clb_sample *y)
{
    multiply(&m, &v->x, y, true);
}

/* y = M*y. */
static void apply_next(struct verification *v, struct clb_operator m, struct clb_sample *y)
{
    const struct clb_sample from = *y;
    multiply(&m, &from, &v->held, false);
    *y = v->held;
    v->held = from;
}

static void scale(struct clb_sample *y, const double alpha[2])
{
    for (size_t i = 0; i < y->n; i++) {
        const double re = y->re[i];
        y->re[i] = alpha[0] * re - alpha[1] * y->im[i];
        y->im[i] = alpha[0] * y->im[i] + alpha[1] * re;
        y->size[i] *= fabs(alpha[0]) + fabs(alpha[1]);
    }
}

/* y = y + sign*z; sizes only where `sized`. */
static void add(struct clb_sample *y, double sign, const struct clb_sample *z, bool sized)
{
    for (size_t i = 0; i < y->n; i++) {
        y->re[i] += sign * z->re[i];
        y->im[i] += sign * z->im[i];
        y->size[i] += sized ? z->size[i] : 0;
    }
}

static void get_scalar(const struct verification *v, bool beta, double value[2])
{
    const clb_scalar scalar =
        clb_scalar_get(v->precision, clb_routine_has_flag(v->call->routine, beta ? '+' : '*'),
                       beta ? v->call->beta : v->call->alpha);
    const bool single = clb_precision_real_size(v->precision) == sizeof(float);
    value[0] = single ? (double)scalar.s[0] : scalar.d[0];
    value[1] = !is_complex(v) ? 0 : single ? (double)scalar.s[1] : scalar.d[1];
}

/* ---- judgement ------------------------------------------------------------------------------- */

static void fail(struct verification *v, const char *what)
{
    if (v->failed == NULL)
        v->failed = what;
}

/* How many roundoffs of its size an entry may be off. The deviations of the signs are below 9 but
 * in one case of 10^17, and never above the root of their number; and the sums of the check itself
 * have errors. */
static double factor_of(const struct verification *v, double terms)
{
    const double most = fmin(9, sqrt((double)v->x.n));
    const double own = 16 * sqrt((double)(v->x.n + v->y.n + v->held.n)) * (DBL_EPSILON / 2);
    if (clb_config_get()->math == CLB_MATH_FAST)
        terms += 64;
    return (is_complex(v) ? 2 : 1) * v->unit * most * terms + most * own;
}

/* Entries of y should be zero, within `terms` roundoffs of their size. What is off where a sum may
 * overflow is not judged. */
static void judge(struct verification *v, double terms)
{
    const double factor = factor_of(v, terms);
    const double largest = v->huge / 16 * v->smallest * v->tiny * 16 / v->unit / v->x.least;
    for (size_t i = 0; i < v->y.n; i++) {
        const double bound = factor * v->y.size[i];
        const double error = fmax(fabs(v->y.re[i]), fabs(v->y.im[i]));
        const bool holds = error <= bound && !isnan(v->y.re[i] + v->y.im[i]);
        if (!(bound <= DBL_MAX) || (!holds && !(v->y.size[i] < largest))) {
            v->left++;
            continue;
        }
        v->judged++;
        if (bound > 0)
            v->worst = fmax(v->worst, error / bound);
        if (!holds && v->failed == NULL) {
            fail(v, "its entries are off");
            v->error = error;
            v->bound = bound;
        }
    }
}

/* The same by norms: |y| <= terms*u*|sizes|. The norm of a sum with random signs is below 10 times
 * the root of the sum of squares but in one case of 10^17. */
static void judge_norm(struct verification *v, double terms)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < v->y.n; i++) {
        error += v->y.re[i] * v->y.re[i] + v->y.im[i] * v->y.im[i];
        size += v->y.size[i] * v->y.size[i];
    }
    const double bound = 10.0 / 9 * factor_of(v, terms) * sqrt(size);
    v->judged++;
    v->worst = bound > 0 ? sqrt(error) / bound : v->worst;
    v->error = sqrt(error);
    v->bound = bound;
    if (!(sqrt(error) <= bound) && bound <= DBL_MAX)
        fail(v, "its columns are off");
}

/* Every element is finite and far from overflow. */
static bool is_moderate(struct verification *v, struct clb_operator m)
{
    clb_operator_columns(&m, v->largest);
    for (size_t j = 0; j < clb_operator_cols(&m); j++) {
        if (!(v->largest[j] < ldexp(v->huge, -20)))
            return false;
    }
    return true;
}

static bool is_finite(struct verification *v, struct clb_operator m)
{
    clb_operator_columns(&m, v->largest);
    for (size_t j = 0; j < clb_operator_cols(&m); j++) {
        if (!(v->largest[j] <= DBL_MAX))
            return false;
    }
    return true;
}

/* Columns of a solution were not read because they are not finite: that is wrong where a triangular
 * solve, or two, in double precision stays far from overflow. `right` NULL: columns of the
 * identity. `swaps`: its rows are interchanged first.
 */
static void judge_unread(struct verification *v, const struct clb_operator *right, bool swaps,
                         const double alpha[2], const struct clb_operator *solves, size_t count)
{
    enum { MOST = 8 };
    size_t tried = 0;
    for (size_t j = 0; j < v->x.n && tried < MOST && v->failed == NULL; j++) {
        double most = 0, value[2];
        if (v->x.size[j] != 0)
            continue;
        for (size_t i = 0; i < solves[0].rows; i++) {
            value[0] = i == j;
            value[1] = 0;
            if (right != NULL)
                clb_operator_get(right, i, j, value);
            v->held.re[i] = value[0] * alpha[0] - value[1] * alpha[1];
            v->held.im[i] = value[0] * alpha[1] + value[1] * alpha[0];
            most = isfinite(v->held.re[i] + v->held.im[i])
                       ? fmax(most, fabs(v->held.re[i]) + fabs(v->held.im[i]))
                       : INFINITY;
        }
        if (swaps)
            clb_sample_swap(&v->held, v->call->ipiv, v->call->wide, solves[0].rows);
        tried += most <= DBL_MAX;
        for (size_t s = 0; s < count && most < v->huge / 1024; s++)
            most =
                fmax(most, clb_operator_solve(&solves[s], v->held.re, v->held.im, 1024 * v->tiny));
        if (most < v->huge / 1024)
            fail(v, "it is not finite");
    }
}

/* ---- products -------------------------------------------------------------------------------- */

struct product_term {
    struct clb_operator outer, inner;
    double alpha[2];
};

/* C = alpha*op(A)*op(B) and so on as sums of products of a left operator and a right one; where A
 * is on the right, of the transposes. Returns the number of terms. */
static size_t terms_of(const struct verification *v, struct product_term term[2])
{
    const struct clb_call *call = v->call;
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    const bool two = call->kind == CLB_KIND_syr2k;
    struct clb_operator a = matrix_now(v, 'A');
    get_scalar(v, false, term[0].alpha);
    if (call->kind == CLB_KIND_trmm) {
        term[0].outer = transpose_if(call->right, with_op(a, call->transa));
        term[0].inner = transpose_if(call->right, matrix_before(v, 'B'));
    } else if (call->kind == CLB_KIND_symm) {
        term[0].outer = transpose_if(call->right, mirror(a, hermitian));
        term[0].inner = transpose_if(call->right, matrix_now(v, 'B'));
    } else if (call->kind == CLB_KIND_gemm || call->kind == CLB_KIND_gemmtr) {
        term[0].outer = with_op(a, call->transa);
        term[0].inner = with_op(matrix_now(v, 'B'), call->transb);
    } else {
        const clb_op op = call->transa == CLB_OP_N ? CLB_OP_N : hermitian ? CLB_OP_C : CLB_OP_T;
        struct clb_operator b = with_op(two ? matrix_now(v, 'B') : a, op);
        a = with_op(a, op);
        term[0].outer = a;
        term[0].inner = hermitian ? adjoint(b) : transpose(b);
        term[1].outer = b;
        term[1].inner = hermitian ? adjoint(a) : transpose(a);
        term[1].alpha[0] = term[0].alpha[0];
        term[1].alpha[1] = hermitian ? -term[0].alpha[1] : term[0].alpha[1];
    }
    return two ? 2 : 1;
}

/* y = the triangle of a product, times x: for row i the inner product of row i of the left operand
 * and the sum of the right one's columns that are in the triangle, which grows with i. */
static void multiply_triangle(struct verification *v, const struct product_term *term, bool upper)
{
    const size_t n = clb_operator_rows(&term->outer), depth = clb_operator_cols(&term->outer);
    struct clb_sample *sum = &v->held, *y = &v->y;
    double b[2], a[2];
    sum->n = depth;
    y->n = n;
    for (size_t p = 0; p < depth; p++)
        sum->re[p] = sum->im[p] = sum->size[p] = 0;
    for (size_t step = 0; step < n; step++) {
        const size_t i = upper ? n - 1 - step : step;
        for (size_t p = 0; v->x.size[i] != 0 && p < depth; p++) {
            clb_operator_get(&term->inner, p, i, b);
            sum->re[p] += b[0] * v->x.re[i];
            sum->im[p] += b[1] * v->x.re[i];
            sum->size[p] += (b[0] * v->x.re[i]) * (b[0] * v->x.re[i]) +
                            (b[1] * v->x.re[i]) * (b[1] * v->x.re[i]);
        }
        y->re[i] = y->im[i] = 0;
        y->size[i] = v->x.least * (double)depth * v->x.norm;
        for (size_t p = 0; p < depth; p++) {
            const double size =
                sqrt(sum->size[p] + (double)n * DBL_MIN) + 2 * v->x.least * v->x.norm;
            clb_operator_get(&term->outer, i, p, a);
            y->re[i] += a[0] * sum->re[p] - a[1] * sum->im[p];
            y->im[i] += a[0] * sum->im[p] + a[1] * sum->re[p];
            y->size[i] += (fabs(a[0]) + fabs(a[1]) + v->x.least) * size;
        }
    }
}

static void verify_product(struct verification *v)
{
    const struct clb_call *call = v->call;
    const bool symm = call->kind == CLB_KIND_symm, trmm = call->kind == CLB_KIND_trmm;
    const bool corner = call->kind == CLB_KIND_gemmtr;
    const bool hermitian = clb_routine_has_flag(call->routine, 'h');
    const char name = trmm ? 'B' : 'C';
    struct product_term term[2];
    double beta[2] = {0};
    const size_t count = terms_of(v, term);
    set_scaled(v, (const struct clb_operator[]){term[0].inner, term[count - 1].inner}, count);
    note_scalar(v, term[0].alpha);
    v->y.n = clb_operator_rows(&term[0].outer);
    if (corner) {
        multiply_triangle(v, &term[0], call->upper);
        scale(&v->y, term[0].alpha);
    } else {
        apply_first(v, term[0].inner, &v->y);
        apply_next(v, term[0].outer, &v->y);
        scale(&v->y, term[0].alpha);
        for (size_t t = 1; t < count; t++) {
            apply_first(v, term[t].inner, &v->z);
            apply_next(v, term[t].outer, &v->z);
            scale(&v->z, term[t].alpha);
            add(&v->y, 1, &v->z, true);
        }
    }
    const bool mirrored = !symm && matrix_now(v, name).part != 0 && !corner;
    if (!trmm)
        get_scalar(v, true, beta);
    for (int now = 0; now < 2; now++) {
        struct clb_operator c = now ? matrix_now(v, name) : matrix_before(v, name);
        if (!now && (trmm || c.data == NULL))
            continue;
        c = transpose_if(symm && call->right, mirrored ? mirror(c, hermitian) : c);
        apply_first(v, c, &v->z);
        if (!now)
            scale(&v->z, beta);
        add(&v->y, now ? -1 : 1, &v->z, !now);
    }
    judge(v, (double)(count * clb_operator_cols(&term[0].outer) + 8) * (corner ? 2 : 1));
}

/* ---- systems --------------------------------------------------------------------------------- */

static const double one[2] = {1, 0};

static void verify_trsm(struct verification *v)
{
    const struct clb_call *call = v->call;
    const struct clb_operator a =
        transpose_if(call->right, with_op(matrix_now(v, 'A'), call->transa));
    const struct clb_operator x = transpose_if(call->right, matrix_now(v, 'B'));
    const struct clb_operator b = transpose_if(call->right, matrix_before(v, 'B'));
    double alpha[2];
    get_scalar(v, false, alpha);
    set_scaled(v, &x, 1);
    note_scalar(v, alpha);
    apply_first(v, x, &v->y);
    apply_next(v, a, &v->y);
    apply_first(v, b, &v->z);
    scale(&v->z, alpha);
    add(&v->y, -1, &v->z, true);
    judge(v, (double)a.rows + 16);
    judge_unread(v, &b, false, alpha, &a, 1);
}

/* F*G*X = B; with pivots, of the rows of B or of X. */
static void verify_solution(struct verification *v, struct clb_operator f, struct clb_operator g,
                            bool swaps_b, bool swaps_x)
{
    const struct clb_call *call = v->call;
    const struct clb_operator x = matrix_now(v, 'B'), b = matrix_before(v, 'B');
    set_scaled(v, &x, 1);
    apply_first(v, x, &v->y);
    if (swaps_x)
        clb_sample_swap(&v->y, call->ipiv, call->wide, x.rows);
    apply_next(v, g, &v->y);
    apply_next(v, f, &v->y);
    apply_first(v, b, &v->z);
    if (swaps_b)
        clb_sample_swap(&v->z, call->ipiv, call->wide, x.rows);
    add(&v->y, -1, &v->z, true);
    judge(v, (double)x.rows + 16);
    /* In which order rows are solved for does not matter for their being finite. */
    judge_unread(v, &b, swaps_b, one, (const struct clb_operator[]){f, g}, 2);
}

static void verify_lu_solution(struct verification *v, clb_op op)
{
    const struct clb_operator a = matrix_now(v, 'A');
    const struct clb_operator l = triangle(a, 'l'), u = triangle(a, 'U');
    if (op == CLB_OP_N)
        verify_solution(v, l, u, true, false);
    else
        verify_solution(v, with_op(u, op), with_op(l, op), false, true);
}

static void verify_getrs(struct verification *v)
{
    verify_lu_solution(v, v->call->transa);
}

/* The factor F of F*F^H: U^H or L. */
static struct clb_operator cholesky_factor(const struct verification *v, size_t order)
{
    struct clb_operator a = matrix_now(v, 'A');
    a.rows = a.cols = order;
    return v->call->upper ? adjoint(a) : a;
}

static void verify_potrs(struct verification *v)
{
    const struct clb_operator f = cholesky_factor(v, v->call->n);
    verify_solution(v, f, adjoint(f), false, false);
}

/* A factorisation that found no factors has not touched B. */
static void verify_b_kept(struct verification *v)
{
    const struct clb_operator now = matrix_now(v, 'B'), before = matrix_before(v, 'B');
    for (size_t j = 0; j < now.cols; j++) {
        for (size_t i = 0; i < now.rows; i++) {
            double x[2], y[2];
            clb_operator_get(&now, i, j, x);
            clb_operator_get(&before, i, j, y);
            if ((x[0] != y[0] && !isnan(x[0])) || (x[1] != y[1] && !isnan(x[1])))
                fail(v, "B was changed");
        }
    }
}

/* ---- LU -------------------------------------------------------------------------------------- */

static int64_t info_of(const struct verification *v)
{
    return clb_integer_get(v->call->info, 0, v->call->wide);
}

static void verify_pivots(struct verification *v, size_t rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const int64_t pivot = clb_integer_get(v->call->ipiv, i, v->call->wide);
        if (pivot < (int64_t)i + 1 || pivot > (int64_t)rows)
            fail(v, "a pivot is no row");
    }
}

static int64_t first_zero_pivot(const struct clb_operator *lu)
{
    for (size_t i = 0; i < clb_min(lu->rows, lu->cols); i++) {
        double value[2];
        clb_operator_get(lu, i, i, value);
        if (value[0] == 0 && value[1] == 0)
            return (int64_t)i + 1;
    }
    return 0;
}

/* Partial pivoting: what a pivot was chosen from, multiplier times pivot, is not larger than the
 * pivot, in the norm that LAPACK chooses by, |re| + |im|. Other pivots may give factors of A too,
 * with larger errors. */
static void verify_multipliers(struct verification *v, const struct clb_operator *lu)
{
    for (size_t j = 0; j < clb_min(lu->rows, lu->cols); j++) {
        double pivot[2], value[2];
        clb_operator_get(lu, j, j, pivot);
        const double size = fabs(pivot[0]) + fabs(pivot[1]);
        const double re = size > 0 ? pivot[0] / size : 1, im = size > 0 ? pivot[1] / size : 0;
        for (size_t i = j + 1; i < lu->rows; i++) {
            clb_operator_get(lu, i, j, value);
            if (fabs(value[0] * re - value[1] * im) + fabs(value[0] * im + value[1] * re) > 1.001)
                fail(v, "a multiplier is too large");
        }
    }
}

/* The first pivot whose reciprocal, or that of its square, may overflow; the number of pivots where
 * there is none. Libraries multiply by these: from its column on factors need not be finite then.
 */
static size_t first_tiny_pivot(const struct verification *v, const struct clb_operator *lu)
{
    const double limit = 16 * (is_complex(v) ? sqrt(v->tiny) : v->tiny);
    const size_t order = clb_min(lu->rows, lu->cols);
    for (size_t i = 0; i < order; i++) {
        double value[2];
        clb_operator_get(lu, i, i, value);
        const double size = fabs(value[0]) + fabs(value[1]);
        if (size > 0 && size < limit)
            return i;
    }
    return order;
}

/* P*A = L*U. */
static void verify_getrf(struct verification *v)
{
    const struct clb_operator lu = matrix_now(v, 'A');
    const struct clb_operator l = triangle(lu, 'l'), u = triangle(lu, 'U');
    const size_t order = clb_min(lu.rows, lu.cols);
    verify_pivots(v, lu.rows, order);
    if (v->failed != NULL || !is_moderate(v, matrix_before(v, 'A')))
        return;
    if (!is_finite(v, lu)) {
        struct clb_operator left_of_it = lu;
        left_of_it.cols = first_tiny_pivot(v, &lu);
        v->left += order;
        if (left_of_it.cols == order || !is_finite(v, left_of_it))
            fail(v, "it is not finite");
        return;
    }
    if (info_of(v) != first_zero_pivot(&lu))
        fail(v, "info is wrong");
    verify_multipliers(v, &lu);
    set_scaled(v, &u, 1);
    apply_first(v, u, &v->y);
    apply_next(v, l, &v->y);
    apply_first(v, matrix_before(v, 'A'), &v->z);
    clb_sample_swap(&v->z, v->call->ipiv, v->call->wide, order);
    add(&v->y, -1, &v->z, true);
    judge(v, (double)order + 16);
}

static void verify_gesv(struct verification *v)
{
    verify_getrf(v);
    if (v->failed != NULL || !is_moderate(v, matrix_before(v, 'A')) ||
        !is_finite(v, matrix_now(v, 'A')))
        return;
    if (info_of(v) == 0)
        verify_lu_solution(v, CLB_OP_N);
    else
        verify_b_kept(v);
}

/* Z*L*U = I where A^-1 = Z*P, by columns of the transposes: the solve from the right keeps this
 * residual small. */
static void verify_getri(struct verification *v)
{
    const struct clb_operator before = matrix_before(v, 'A'),
                              inverse = transpose(matrix_now(v, 'A'));
    const struct clb_operator l = transpose(triangle(before, 'l'));
    const struct clb_operator u = transpose(triangle(before, 'U'));
    set_scaled(v, &inverse, 1);
    apply_first(v, inverse, &v->y);
    clb_sample_swap(&v->y, v->call->ipiv, v->call->wide, before.rows);
    apply_next(v, l, &v->y);
    apply_next(v, u, &v->y);
    add(&v->y, -1, &v->x, true);
    judge(v, 2 * (double)before.rows + 16);
    judge_unread(v, NULL, false, one, (const struct clb_operator[]){u, l}, 2);
}

/* ---- Cholesky -------------------------------------------------------------------------------- */

/* Pivot k that was not positive: a(k,k) - |w|^2 with F*w = a(0:k,k) is below what errors E of the
 * factors make of it, [-z; 1]^H*E*[-z; 1] with F^H*z = w and |E| <= c u |F||F^H|. */
static void verify_bad_pivot(struct verification *v, const struct clb_operator *f, size_t k)
{
    const struct clb_operator before = matrix_before(v, 'A'), other = adjoint(*f);
    double pivot[2], square = 0;
    clb_operator_get(&before, k, k, pivot);
    for (size_t i = 0; i < k; i++) {
        double value[2];
        clb_operator_get(&before, v->call->upper ? i : k, v->call->upper ? k : i, value);
        v->y.re[i] = value[0];
        v->y.im[i] = v->call->upper ? value[1] : -value[1];
    }
    double most = clb_operator_solve(f, v->y.re, v->y.im, v->tiny);
    for (size_t i = 0; i < k; i++) {
        v->z.re[i] = v->y.re[i];
        v->z.im[i] = v->y.im[i];
        square += v->y.re[i] * v->y.re[i] + v->y.im[i] * v->y.im[i];
    }
    most = fmax(most, clb_operator_solve(&other, v->z.re, v->z.im, v->tiny));
    double bound = fabs(pivot[0]) + v->tiny;
    v->z.n = k;
    v->z.least = v->z.norm = 0;
    for (size_t i = 0; i < k; i++)
        v->z.size[i] = fabs(v->z.re[i]) + fabs(v->z.im[i]);
    apply_next(v, other, &v->z);
    for (size_t i = 0; i < k; i++) {
        const double size = v->z.size[i] + fabs(v->y.re[i]) + fabs(v->y.im[i]);
        bound += size * size;
    }
    bound *= (4 * (double)k + 32) * (is_complex(v) ? 3 : 1) * v->unit;
    if (most <= DBL_MAX && bound <= DBL_MAX && pivot[0] - square > bound)
        fail(v, "info is wrong");
}

/* A = F*F^H; where a pivot is not positive, of the part before it. */
static void verify_potrf(struct verification *v)
{
    const int64_t info = info_of(v);
    const size_t n = v->call->n;
    struct clb_operator before = mirror(matrix_before(v, 'A'), true);
    if (info < 0 || info > (int64_t)n) {
        fail(v, "info is wrong");
        return;
    }
    if (!is_moderate(v, matrix_before(v, 'A')))
        return;
    before.rows = before.cols = info == 0 ? n : (size_t)info - 1;
    const struct clb_operator f = cholesky_factor(v, before.rows);
    const struct clb_operator other = adjoint(f);
    if (before.rows > 0) {
        if (!is_finite(v, f))
            fail(v, "it is not finite");
        set_scaled(v, &other, 1);
        apply_first(v, other, &v->y);
        apply_next(v, f, &v->y);
        apply_first(v, before, &v->z);
        add(&v->y, -1, &v->z, true);
        judge(v, (double)n + 16);
    }
    if (info > 0 && v->failed == NULL)
        verify_bad_pivot(v, &f, before.rows);
}

static void verify_posv(struct verification *v)
{
    verify_potrf(v);
    if (v->failed != NULL || !is_moderate(v, matrix_before(v, 'A')))
        return;
    if (info_of(v) == 0)
        verify_potrs(v);
    else
        verify_b_kept(v);
}

/* ---- inverses and products of triangles ------------------------------------------------------ */

/* U*X = I; X*L = I by columns of the transposes: the residual that the algorithm keeps small. */
static void verify_trtri(struct verification *v)
{
    const bool lower = !v->call->upper;
    const struct clb_operator t = transpose_if(lower, matrix_before(v, 'A'));
    const struct clb_operator x = transpose_if(lower, matrix_now(v, 'A'));
    set_scaled(v, &x, 1);
    apply_first(v, x, &v->y);
    apply_next(v, t, &v->y);
    add(&v->y, -1, &v->x, true);
    judge(v, (double)t.rows + 16);
    judge_unread(v, NULL, false, one, &t, 1);
}

/* U*U^H or L^H*L. */
static void verify_lauum(struct verification *v)
{
    const struct clb_operator before = matrix_before(v, 'A');
    const struct clb_operator f = v->call->upper ? before : adjoint(before), other = adjoint(f);
    set_scaled(v, &other, 1);
    apply_first(v, other, &v->y);
    apply_next(v, f, &v->y);
    apply_first(v, mirror(matrix_now(v, 'A'), true), &v->z);
    add(&v->y, -1, &v->z, false);
    judge(v, (double)f.rows + 8);
}

/* F*F^H*P = I with P = X^H*X, X the inverse of F: the residual is F*(R + R^H)*X for R = X*F - I,
 * and that of the last product. With |R| <= c u |X||F| it is at most 3 c u |F|^2 |X|^2 in the
 * Frobenius norm, and |X|^2 is the trace of P. */
static void verify_potri(struct verification *v)
{
    const struct clb_operator before = matrix_before(v, 'A'), now = matrix_now(v, 'A');
    const struct clb_operator f = v->call->upper ? adjoint(before) : before, other = adjoint(f);
    const double n = (double)before.rows;
    double trace = 0, norm = 0;
    set_vector(v, before.rows, NULL);
    if (!is_moderate(v, now)) {
        for (size_t j = 0; j < before.rows; j++)
            v->x.size[j] = v->largest[j] <= DBL_MAX;
        judge_unread(v, NULL, false, one, (const struct clb_operator[]){f, other}, 2);
        return;
    }
    if (!is_moderate(v, before))
        return;
    apply_first(v, f, &v->y);
    for (size_t i = 0; i < before.rows; i++) {
        double value[2];
        norm += v->y.size[i] * v->y.size[i];
        clb_operator_get(&now, i, i, value);
        trace += fabs(value[0]);
    }
    apply_first(v, mirror(now, true), &v->y);
    apply_next(v, other, &v->y);
    apply_next(v, f, &v->y);
    add(&v->y, -1, &v->x, true);
    for (size_t i = 0; i < before.rows; i++)
        v->y.size[i] = norm * trace / sqrt(n) + v->x.least * (1 + norm) * n;
    judge_norm(v, n + 16);
}

/* ---- QR -------------------------------------------------------------------------------------- */

/* Contents whose squares neither overflow nor underflow. */
static bool has_tame_columns(struct verification *v, struct clb_operator m)
{
    const double range = v->huge > FLT_MAX ? 0x1p450 : 0x1p40;
    clb_operator_columns(&m, v->largest);
    for (size_t j = 0; j < clb_operator_cols(&m); j++) {
        if (v->largest[j] != 0 && !(v->largest[j] < range && v->largest[j] > 1 / range))
            return false;
    }
    return true;
}

/* LQ is QR of the adjoint matrices. */
static struct clb_operator as_qr(const struct verification *v, struct clb_operator m)
{
    return clb_routine_has_flag(v->call->routine, 'l') ? adjoint(m) : m;
}

static struct clb_reflector_list reflectors_of(const struct verification *v, struct clb_operator a,
                                               size_t count)
{
    const struct clb_operator m = as_qr(v, a);
    return (struct clb_reflector_list){.precision = v->precision,
                                       .data = a.data,
                                       .order = clb_operator_rows(&m),
                                       .count = count,
                                       .ld = a.ld,
                                       .tau = v->call->tau,
                                       .adjoint = m.transposed};
}

static double reflector_terms(const struct clb_reflector_list *list)
{
    return (double)(list->order + list->count + 16);
}

/* Q*R = A, by norms of columns. */
static void verify_geqrf(struct verification *v)
{
    const struct clb_operator qr = matrix_now(v, 'A');
    const struct clb_operator before = as_qr(v, matrix_before(v, 'A'));
    const bool lq = before.transposed;
    const struct clb_reflector_list list = reflectors_of(v, qr, clb_min(qr.rows, qr.cols));
    if (!has_tame_columns(v, before))
        return;
    if (!is_finite(v, qr))
        fail(v, "it is not finite");
    set_scaled(v, &before, 1);
    apply_first(v, as_qr(v, triangle(qr, lq ? 'L' : 'U')), &v->y);
    for (size_t i = v->y.n; i < list.order; i++)
        v->y.re[i] = v->y.im[i] = 0;
    v->y.n = list.order;
    clb_reflector_list_apply(&list, false, v->y.re, v->y.im);
    for (size_t i = 0; i < v->y.n; i++)
        v->y.size[i] = 0;
    apply_first(v, before, &v->z);
    add(&v->y, -1, &v->z, true);
    judge_norm(v, reflector_terms(&list));
}

/* op(Q)*C; C*op(Q) by the adjoints. */
static void verify_ormqr(struct verification *v)
{
    const struct clb_operator now = matrix_now(v, 'C'), before = matrix_before(v, 'C');
    const struct clb_reflector_list list = reflectors_of(v, matrix_now(v, 'A'), v->call->k);
    const bool right = v->call->right;
    const bool forward = ((v->call->transa != CLB_OP_N) != list.adjoint) != right;
    const struct clb_operator c = right ? adjoint(before) : before;
    if (!has_tame_columns(v, c) || !clb_reflector_list_is_unitary(&list))
        return;
    set_scaled(v, &c, 1);
    apply_first(v, c, &v->y);
    clb_reflector_list_apply(&list, forward, v->y.re, v->y.im);
    apply_first(v, right ? adjoint(now) : now, &v->z);
    add(&v->y, -1, &v->z, false);
    judge_norm(v, reflector_terms(&list));
}

/* The first columns of Q. */
static void verify_orgqr(struct verification *v)
{
    const struct clb_operator q = as_qr(v, matrix_now(v, 'A'));
    const size_t cols = clb_operator_cols(&q);
    const struct clb_reflector_list list = reflectors_of(v, matrix_before(v, 'A'), v->call->k);
    if (!clb_reflector_list_is_unitary(&list))
        return;
    set_vector(v, cols, NULL);
    v->y.n = list.order;
    for (size_t i = 0; i < list.order; i++) {
        v->y.re[i] = i < cols ? v->x.re[i] : 0;
        v->y.im[i] = 0;
        v->y.size[i] = i < cols;
    }
    clb_reflector_list_apply(&list, false, v->y.re, v->y.im);
    apply_first(v, q, &v->z);
    add(&v->y, -1, &v->z, false);
    judge_norm(v, reflector_terms(&list));
}

/* ---- the call -------------------------------------------------------------------------------- */

static void (*const verifications[CLB_KINDS])(struct verification *) = {
    [CLB_KIND_gemm] = verify_product, [CLB_KIND_gemmtr] = verify_product,
    [CLB_KIND_syrk] = verify_product, [CLB_KIND_syr2k] = verify_product,
    [CLB_KIND_symm] = verify_product, [CLB_KIND_trmm] = verify_product,
    [CLB_KIND_trsm] = verify_trsm,    [CLB_KIND_getrf] = verify_getrf,
    [CLB_KIND_getrs] = verify_getrs,  [CLB_KIND_gesv] = verify_gesv,
    [CLB_KIND_getri] = verify_getri,  [CLB_KIND_potrf] = verify_potrf,
    [CLB_KIND_potrs] = verify_potrs,  [CLB_KIND_posv] = verify_posv,
    [CLB_KIND_trtri] = verify_trtri,  [CLB_KIND_lauum] = verify_lauum,
    [CLB_KIND_potri] = verify_potri,  [CLB_KIND_geqrf] = verify_geqrf,
    [CLB_KIND_ormqr] = verify_ormqr,  [CLB_KIND_orgqr] = verify_orgqr,
};

static void note_passed(const struct clb_run *run)
{
    char name[80];
    if (clb_config_get()->verify >= 0)
        return;
    name_first_use(run, name);
    clb_program_set_checked(run->verify.runtime, run->verify.variant->program, name);
    set_passed(run);
}

static bool end_verification(struct clb_run *run, const struct verification *v)
{
    const char *name = run->entry->symbol->next.name;
    char text[120];
    clb_verify_counts.calls++;
    clb_verify_counts.judged += (long)v->judged;
    clb_verify_counts.left += (long)v->left;
    clb_call_describe(run->call, text, sizeof text);
    clb_log(CLB_LOG_INFO, "%s %s: %s, %zu of %zu entries judged, at most %.2g of the bound", name,
            text, v->failed != NULL ? v->failed : "verified", v->judged, v->judged + v->left,
            v->worst);
    if (v->failed == NULL) {
        if (v->judged > 0)
            note_passed(run);
        return true;
    }
    clb_verify_counts.failed++;
    clb_log(CLB_LOG_ERROR,
            "%s %s: the result is wrong (%s, %.3g where %.3g is the bound), the next library "
            "computes it",
            name, text, v->failed, v->error, v->bound);
    put_back(run);
    clb_runtime_quarantine(run->verify.runtime);
    return false;
}

bool clb_verify_end(struct clb_run *run, clb_status status)
{
    struct clb_host_state host_state;
    struct verification v;
    bool right = true;
    if (status != CLB_OK && run->written == 0)
        return true;
    clb_host_state_save(&host_state);
    if (verification_open(&v, run) == CLB_OK) {
        const double begin = clb_trace_wanted() ? clb_now() : 0;
        for (v.round = 1; v.round <= ROUNDS && v.failed == NULL; v.round++) {
            v.judged = v.left = 0;
            verifications[run->call->kind](&v);
        }
        right = end_verification(run, &v);
        if (clb_trace_wanted())
            clb_trace_since("verify", begin);
    }
    verification_close(&v);
    clb_verify_free(run);
    clb_host_state_restore(&host_state);
    return right;
}
