/* SPDX-License-Identifier: BSD-3-Clause
 * Batches of products through the route layer: groups and strides, Fortran and C names, both
 * integer widths, rows and columns, wrong arguments, nothing to do, NaN in C, results that are
 * operands of later products, devices that fail or compute wrongly in the middle, and thresholds.
 */
#include "any_call.h"
#include "fakecl.h"
#include "number.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS "gemm.tile=min,gemm.tm=32,gemm.tn=32,gemm.slab=32"

enum { GROUPS = 3, MOST = 4, PRODUCTS = GROUPS * MOST, MATRICES = 3, PAD = 3, INTEGERS = 6 };
enum { SIZE_M, SIZE_N, SIZE_K, LD_A, LD_B, LD_C };

static uint64_t seed;
static size_t largest = 40;

/* ---- elements ---- */

static number get(clb_precision precision, const void *at, size_t index)
{
    const bool two = clb_precision_parts(precision) == 2;
    index *= two ? 2 : 1;
    if (clb_precision_real_size(precision) == sizeof(float))
        return dense_number(((const float *)at)[index], two ? ((const float *)at)[index + 1] : 0);
    return dense_number(((const double *)at)[index], two ? ((const double *)at)[index + 1] : 0);
}

static void put(clb_precision precision, void *at, size_t index, double re, double im)
{
    const double parts[] = {re, im};
    const size_t count = clb_precision_parts(precision);
    for (size_t i = 0; i < count; i++) {
        if (clb_precision_real_size(precision) == sizeof(float))
            ((float *)at)[count * index + i] = (float)parts[i];
        else
            ((double *)at)[count * index + i] = parts[i];
    }
}

/* ---- a batch ---- */

struct matrix_of {
    size_t rows, cols; /* as stored; of C also its own */
    char *data, *before;
    size_t elements; /* what is between and behind the columns included */
};

struct test {
    struct clb_entry entry;
    struct clb_target target;
    struct clb_batch batch;
    clb_precision precision;
    bool rows, strided, c_name;
    int64_t groups, size[GROUPS];
    char letter[2][GROUPS]; /* of transa, transb */
    int number[2][GROUPS];  /* the same for C */
    int64_t value[INTEGERS][GROUPS];
    /* As the caller passes them. */
    int64_t integers[INTEGERS][GROUPS], sizes[GROUPS], count, stride[MATRICES];
    double alpha[2 * GROUPS], beta[2 * GROUPS];
    void *pointer[MATRICES][PRODUCTS];
    struct matrix_of matrix[MATRICES][PRODUCTS];
    char *arena[MATRICES];
    size_t bytes[MATRICES];
    size_t products;
};

static void *allocate(size_t bytes)
{
    void *memory = calloc(bytes + 1, 1);
    if (memory == NULL)
        abort();
    return memory;
}

static size_t ld_of(const struct test *x, int64_t group, size_t matrix)
{
    return (size_t)x->value[LD_A + (int)matrix][group];
}

/* Rows and columns of a stored matrix. */
static void shape(const struct test *x, int64_t group, size_t matrix, size_t size[2])
{
    static const int extent[MATRICES][2] = {{SIZE_M, SIZE_K}, {SIZE_K, SIZE_N}, {SIZE_M, SIZE_N}};
    const bool turned = matrix < 2 && x->letter[matrix][group] != 'N';
    for (int i = 0; i < 2; i++)
        size[i] = (size_t)x->value[extent[matrix][turned ? 1 - i : i]][group];
}

static void draw_group(struct test *x, int64_t group)
{
    static const char letters[] = "NTC";
    for (int i = 0; i < 2; i++) {
        const size_t at = random_below(&seed, 3);
        x->letter[i][group] = letters[at];
        x->number[i][group] = 111 + (int)at;
    }
    for (int i = SIZE_M; i <= SIZE_K; i++)
        x->value[i][group] = (int64_t)(1 + random_below(&seed, largest));
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        size_t size[2];
        shape(x, group, matrix, size);
        x->value[LD_A + (int)matrix][group] = (int64_t)(size[x->rows] + random_below(&seed, PAD));
    }
    for (int i = 0; i < 2; i++) {
        double *scalar = i == 0 ? x->alpha : x->beta;
        const size_t kind = random_below(&seed, 4);
        put(x->precision, scalar, (size_t)group, i == 1 && kind < 2 ? (double)kind : 0.75,
            i == 1 && kind < 2 ? 0 : -0.5);
    }
}

/* The integers as the caller has them, of its width; C's by value are 64-bit ones. */
static void pass_integers(struct test *x)
{
    const bool wide = x->target.ilp64;
    for (int i = 0; i < INTEGERS; i++) {
        for (int64_t g = 0; g < GROUPS; g++)
            clb_integer_set(x->integers[i], (size_t)g, wide, x->value[i][g]);
    }
    for (int64_t g = 0; g < GROUPS; g++)
        clb_integer_set(x->sizes, (size_t)g, wide, x->size[g]);
    clb_integer_set(&x->count, 0, wide, x->groups);
}

static void fill(const struct test *x, struct matrix_of *m, size_t ld)
{
    for (size_t i = 0; i < m->elements; i++) {
        const bool inside = i % ld < (x->rows ? m->cols : m->rows);
        put(x->precision, m->data, i, inside ? random_uniform(&seed) : NAN,
            inside ? random_uniform(&seed) : NAN);
    }
}

/* Matrices of a kind one behind the other, equally apart where strides are wanted. */
static void make_matrices(struct test *x)
{
    const size_t element = clb_precision_size(x->precision);
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        size_t elements = 0, count = 0;
        for (int pass = 0; pass < 2; pass++, count = 0) {
            if (pass == 1)
                x->arena[matrix] = allocate(x->bytes[matrix] = elements * element);
            elements = 0;
            for (int64_t g = 0; g < x->groups; g++) {
                size_t size[2];
                shape(x, g, matrix, size);
                for (int64_t i = 0; i < x->size[g]; i++, count++) {
                    const size_t all = ld_of(x, g, matrix) * size[!x->rows] + PAD;
                    struct matrix_of *m = &x->matrix[matrix][count];
                    *m = (struct matrix_of){.rows = size[0], .cols = size[1], .elements = all};
                    x->stride[matrix] = (int64_t)all;
                    if (pass == 1) {
                        m->data = x->pointer[matrix][count] = x->arena[matrix] + elements * element;
                        fill(x, m, ld_of(x, g, matrix));
                    }
                    elements += all;
                }
            }
        }
    }
}

static void connect(struct test *x)
{
    const bool c = x->c_name;
    x->batch = (struct clb_batch){.transa = c ? (const void *)x->number[0] : x->letter[0],
                                  .transb = c ? (const void *)x->number[1] : x->letter[1],
                                  .m = x->integers[SIZE_M],
                                  .n = x->integers[SIZE_N],
                                  .k = x->integers[SIZE_K],
                                  .lda = x->integers[LD_A],
                                  .ldb = x->integers[LD_B],
                                  .ldc = x->integers[LD_C],
                                  .alpha = x->alpha,
                                  .beta = x->beta,
                                  .a = x->strided ? (const void *)x->arena[0] : x->pointer[0],
                                  .b = x->strided ? (const void *)x->arena[1] : x->pointer[1],
                                  .c = x->strided ? (const void *)x->arena[2] : x->pointer[2],
                                  .stridea = x->strided ? &x->stride[0] : NULL,
                                  .strideb = x->strided ? &x->stride[1] : NULL,
                                  .stridec = x->strided ? &x->stride[2] : NULL,
                                  .count = x->strided ? NULL : &x->count,
                                  .sizes = x->sizes};
    pass_integers(x);
}

static const clb_form forms[] = {CLB_FORM_plain, CLB_FORM_ilp64, CLB_FORM_cblas,
                                 CLB_FORM_cblas_ilp64};

static void open_test(struct test *x)
{
    const clb_form form = forms[random_below(&seed, CLB_COUNT_OF(forms))];
    memset(x, 0, sizeof *x);
    x->precision = (clb_precision)random_below(&seed, CLB_PRECISIONS);
    x->strided = random_below(&seed, 3) == 0;
    x->c_name = form >= CLB_FORM_cblas;
    x->rows = x->c_name && random_below(&seed, 2) == 0;
    x->groups = x->strided ? 1 : (int64_t)(1 + random_below(&seed, GROUPS));
    const int first = (int)(x->strided ? CLB_ROUTINE_sgemm_batch_strided : CLB_ROUTINE_sgemm_batch);
    struct clb_symbol *symbol = clb_symbol_at((clb_routine)(first + (int)x->precision), 0);
    while (symbol->form != form)
        symbol++;
    x->target = (struct clb_target){.ilp64 = symbol->next.always_ilp64, .library = "fake"};
    for (int64_t g = 0; g < GROUPS; g++) {
        draw_group(x, g);
        x->size[g] = (int64_t)random_below(&seed, MOST + 1);
    }
    x->size[0] += x->size[0] == 0;
    for (int64_t g = 0; g < x->groups; g++)
        x->products += (size_t)x->size[g];
    make_matrices(x);
    connect(x);
    x->entry = (struct clb_entry){.symbol = symbol, .target = &x->target, .batch = &x->batch};
    if (x->c_name)
        x->entry.layout = x->rows ? CLB_ROW_MAJOR : CLB_COL_MAJOR;
}

static void remember(struct test *x)
{
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        char *copy = allocate(x->bytes[matrix]);
        memcpy(copy, x->arena[matrix], x->bytes[matrix]);
        for (size_t p = 0; p < x->products; p++)
            x->matrix[matrix][p].before = copy + (x->matrix[matrix][p].data - x->arena[matrix]);
    }
}

static void close_test(struct test *x)
{
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        free(x->matrix[matrix][0].before);
        free(x->arena[matrix]);
    }
}

/* ---- what is expected ---- */

static size_t index_of(const struct test *x, size_t ld, size_t i, size_t j)
{
    return x->rows ? j + i * ld : i + j * ld;
}

/* Entry (i, j) of op(X), of what was there before, or is there now. */
static number operand(const struct test *x, const char *data, char letter, size_t ld, size_t i,
                      size_t j)
{
    const number value =
        get(x->precision, data, letter == 'N' ? index_of(x, ld, i, j) : index_of(x, ld, j, i));
    return letter == 'C' ? conjl(value) : value;
}

/* The expected C of a product, onto `before` of it, from what `before` of A and B has. */
static void expect_product(struct test *x, int64_t group, size_t p)
{
    const struct matrix_of *a = &x->matrix[0][p], *b = &x->matrix[1][p], *c = &x->matrix[2][p];
    const number alpha = get(x->precision, x->alpha, (size_t)group),
                 beta = get(x->precision, x->beta, (size_t)group);
    for (size_t i = 0; i < c->rows; i++) {
        for (size_t j = 0; j < c->cols; j++) {
            const size_t at = index_of(x, ld_of(x, group, 2), i, j);
            number sum = 0;
            for (size_t l = 0; l < (size_t)x->value[SIZE_K][group] && alpha != 0; l++)
                sum += dense_times(
                    operand(x, a->before, x->letter[0][group], ld_of(x, group, 0), i, l),
                    operand(x, b->before, x->letter[1][group], ld_of(x, group, 1), l, j));
            sum = alpha != 0 ? dense_times(alpha, sum) : 0;
            if (beta != 0)
                sum += dense_times(beta, get(x->precision, c->before, at));
            put(x->precision, c->before, at, (double)creall(sum), (double)cimagl(sum));
        }
    }
}

static void expect_all(struct test *x)
{
    size_t p = 0;
    for (int64_t g = 0; g < x->groups; g++) {
        for (int64_t i = 0; i < x->size[g]; i++)
            expect_product(x, g, p++);
    }
}

/* What is outside of C's elements is a NaN in both, bit by bit. */
static bool is_right(const struct test *x)
{
    const size_t element = clb_precision_size(x->precision);
    const long double bound = element / clb_precision_parts(x->precision) == 4 ? 1e-4L : 1e-12L;
    for (size_t p = 0; p < x->products; p++) {
        const struct matrix_of *c = &x->matrix[2][p];
        for (size_t i = 0; i < c->elements; i++) {
            const number is = get(x->precision, c->data, i),
                         wanted = get(x->precision, c->before, i);
            const bool same = memcmp(c->data + i * element, c->before + i * element, element) == 0;
            if (!same && !(dense_abs(is - wanted) <= bound * (1 + dense_abs(wanted))))
                return false;
        }
    }
    return true;
}

static bool is_intact(const struct test *x)
{
    for (size_t matrix = 0; matrix < MATRICES; matrix++) {
        if (x->products > 0 &&
            memcmp(x->arena[matrix], x->matrix[matrix][0].before, x->bytes[matrix]) != 0)
            return false;
    }
    return true;
}

static bool route(struct test *x)
{
    struct clb_host_blas host = any_call_host();
    host.optimised = true;
    return clb_route(&x->entry, &host);
}

static int compose(struct test *x)
{
    struct clb_host_blas host = any_call_host();
    return clb_route_compose_batch(&x->entry, &host);
}

static const char *name_of(const struct test *x)
{
    return x->entry.symbol->next.name;
}

static double all_reported(const char *key)
{
    double sum = 0;
    for (int s = 0; s < CLB_SYMBOLS; s++) {
        if (clb_routine_has_flag(clb_symbols[s].routine, 'b'))
            sum += reported(clb_symbols[s].next.name, key);
    }
    return sum;
}

/* ---- tests ---- */

static void set_up(const char *mode)
{
    routed_set_up(mode, PARAMS);
}

/* All are one call on the device, which the report says. */
static void computes(void *discrete)
{
    const int runs = tap_runs(120);
    routed_set_device(discrete != NULL);
    setenv("CLBLAS_SHIM_VERIFY", "0", 1); /* products that are verified are run one by one */
    set_up("always");
    for (int i = 0; i < runs; i++) {
        struct test x;
        open_test(&x);
        remember(&x);
        expect(route(&x), "%s: declined", name_of(&x));
        expect_all(&x);
        expect(is_right(&x), "%s of %zu products: wrong", name_of(&x), x.products);
        close_test(&x);
    }
    expect(all_reported("calls") == runs && all_reported("device") == runs,
           "%g of %d on the device", all_reported("device"), runs);
}

static void composes(void *unused)
{
    (void)unused;
    set_up("off");
    for (int i = 0; i < 60; i++) {
        struct test x;
        open_test(&x);
        remember(&x);
        any_host_calls = 0;
        expect(!route(&x) && is_intact(&x), "%s: taken", name_of(&x));
        expect(compose(&x) == 0 && any_host_calls == (long)x.products, "%s: %ld of %zu products",
               name_of(&x), any_host_calls, x.products);
        expect_all(&x);
        expect(is_right(&x), "%s: composed wrongly", name_of(&x));
        close_test(&x);
    }
    expect(all_reported("off") == 60, "not all are declined");
}

static void expect_refused(struct test *x, const char *reason, int position, const char *what)
{
    const double before = reported(name_of(x), reason);
    pass_integers(x);
    expect(!route(x) && is_intact(x), "%s, %s: taken or written", name_of(x), what);
    expect(reported(name_of(x), reason) == before + 1, "%s, %s: not %s", name_of(x), what, reason);
    if (position != 0) {
        const int found = compose(x);
        expect(found == position, "%s, %s: argument %d, not %d", name_of(x), what, found, position);
        expect(is_intact(x), "%s, %s: something is written", name_of(x), what);
    }
}

/* The place in the list of the Fortran call by columns that is equal to one by rows. */
static int turned(const struct test *x, int position)
{
    static const int other[] = {[1] = 2, [2] = 1, [3] = 4, [4] = 3, [8] = 10, [10] = 8, [13] = 0};
    return x->rows && other[position] != 0 ? other[position] : position;
}

/* In any of the groups, also in one without products: nothing is computed. */
static void wrong_arguments(void *unused)
{
    static const int positions[INTEGERS] = {3, 4, 5, 8, 10, 13};
    (void)unused;
    set_up("always");
    for (int i = 0; i < 60; i++) {
        struct test x;
        open_test(&x);
        remember(&x);
        const size_t g = random_below(&seed, (size_t)x.groups);
        for (int v = 0; v < INTEGERS; v++) {
            const int64_t right = x.value[v][g];
            size_t size[2];
            if (v >= LD_A)
                shape(&x, (int64_t)g, (size_t)(v - LD_A), size);
            x.value[v][g] = v < LD_A ? -1 : (int64_t)size[x.rows] - 1;
            expect_refused(&x, "invalid", turned(&x, positions[v]), "an integer");
            x.value[v][g] = right;
        }
        for (int t = 0; t < 2; t++) {
            const char right = x.letter[t][g];
            const int option = x.number[t][g];
            x.letter[t][g] = 'X';
            x.number[t][g] = 110;
            expect_refused(&x, "invalid", turned(&x, 1 + t), "trans");
            x.letter[t][g] = right;
            x.number[t][g] = option;
        }
        const int64_t size = x.size[g], groups = x.groups;
        x.size[g] = -1;
        expect_refused(&x, "invalid", 15, "a group's size");
        x.size[g] = size;
        x.groups = -1;
        if (!x.strided)
            expect_refused(&x, "invalid", 14, "the count of groups");
        x.groups = groups;
        if (x.c_name) {
            x.entry.layout = 99;
            expect_refused(&x, "invalid", 1, "the layout");
        }
        close_test(&x);
    }
}

/* No groups, only empty ones; no rows; a product of nothing, which still scales C. */
static void nothing_to_do(void *unused)
{
    (void)unused;
    set_up("always");
    for (int i = 0; i < 40; i++) {
        struct test x;
        open_test(&x);
        remember(&x);
        const int64_t groups = x.groups;
        if (i % 4 == 0) {
            memset(x.size, 0, sizeof x.size);
        } else if (i % 4 == 1) {
            x.groups = x.strided ? 1 : 0;
            x.size[0] = x.strided ? 0 : x.size[0];
        }
        for (int64_t g = 0; g < GROUPS && i % 4 > 1; g++) {
            if (i % 4 == 2)
                put(x.precision, x.alpha, (size_t)g, 0, 0);
            else
                x.value[SIZE_K][g] = 0;
        }
        expect_refused(&x, "quick", 0, "nothing to do");
        expect(compose(&x) == 0, "%s: an error", name_of(&x));
        if (i % 4 > 1)
            expect_all(&x);
        expect(is_right(&x), "%s: wrong, of kind %d", name_of(&x), i % 4);
        x.groups = groups;
        close_test(&x);
    }
}

/* With beta = 0 a NaN in C is not read; and products without work are computed beside others. */
static void nan_in_c(void *unused)
{
    (void)unused;
    set_up("always");
    for (int i = 0; i < 40; i++) {
        struct test x;
        open_test(&x);
        for (size_t g = 0; g < GROUPS; g++)
            put(x.precision, x.beta, g, 0, 0);
        for (size_t p = 0; p < x.products; p++)
            put(x.precision, x.matrix[2][p].data, 0, NAN, NAN);
        if (x.groups > 1 && x.size[1] > 0)
            put(x.precision, x.alpha, 1, 0, 0);
        remember(&x);
        expect(route(&x), "%s: declined", name_of(&x));
        expect_all(&x);
        expect(is_right(&x), "%s: wrong", name_of(&x));
        close_test(&x);
    }
}

/* As one after the other: a result that is written twice or more, one that is then an operand of
 * the next product, and one that was an operand of the last. */
static void in_order(void *discrete)
{
    routed_set_device(discrete != NULL);
    setenv("CLBLAS_SHIM_VERIFY", "0", 1);
    set_up("always");
    for (int i = 0; i < 60; i++) {
        struct test x;
        do {
            open_test(&x);
            if (!x.strided && x.size[0] > 1)
                break;
            close_test(&x);
        } while (true);
        x.value[SIZE_N][0] = x.value[SIZE_K][0] = x.value[SIZE_M][0];
        x.value[LD_A][0] = x.value[LD_B][0] = x.value[LD_C][0] = x.value[SIZE_M][0] + 1;
        x.groups = 1;
        x.products = (size_t)x.size[0];
        for (size_t matrix = 0; matrix < MATRICES; matrix++)
            free(x.arena[matrix]);
        make_matrices(&x);
        connect(&x);
        remember(&x);
        for (size_t p = 1; p < x.products; p++) {
            const size_t some = random_below(&seed, 2), to = i % 3 == 1 ? some : 2,
                         from = i % 3 == 2 ? some : 2;
            x.pointer[to][p] = x.pointer[from][p - 1];
            x.matrix[to][p].data = x.matrix[from][p - 1].data;
            x.matrix[to][p].before = x.matrix[from][p - 1].before;
        }
        expect(route(&x), "%s: declined", name_of(&x));
        expect_all(&x);
        expect(is_right(&x), "%s: not in order", name_of(&x));
        close_test(&x);
    }
}

/* One call of OpenCL after the other fails: what is left, and only that, is the next library's. */
static void fails(void *discrete)
{
    struct test x;
    long series = 0, some = 0, tries = 0;
    bool whole = false; /* the last call failed as a whole: after five of these none is tried */
    routed_set_device(discrete != NULL);
    setenv("CLBLAS_SHIM_VERIFY", "0", 1);
    set_up("always");
    for (long at = 0; at <= series; at += whole ? 0 : at == 0 ? 1 : tap_step(series)) {
        uint64_t before = seed;
        do {
            open_test(&x);
            if (x.products > 4)
                break;
            close_test(&x);
        } while (true);
        seed = at == 0 ? before : seed;
        remember(&x);
        any_host_entries = 0;
        fake_cl_arm(whole ? 0 : at, CL_OUT_OF_RESOURCES, false);
        const bool taken = route(&x);
        const long failures = fake_cl.failures;
        if (at == 0)
            series = fake_cl.calls;
        fake_cl_arm(0, 0, false);
        size_t entries = 0;
        for (size_t p = 0; p < x.products; p++)
            entries += x.matrix[2][p].rows * x.matrix[2][p].cols;
        some += taken && any_host_entries > 0 && any_host_entries < entries;
        whole = taken && failures > 0 && any_host_entries == entries;
        tries++;
        if (!taken)
            expect(is_intact(&x) && compose(&x) == 0, "%s: failure %ld of %ld", name_of(&x), at,
                   series);
        expect_all(&x);
        expect(is_right(&x), "%s: wrong after failure %ld of %ld (%ld)", name_of(&x), at, series,
               failures);
        close_test(&x);
    }
    expect(some > 0 || tries < 20, "no batch was completed in part");
    expect(all_reported("recovered") >= (double)some, "%g recovered", all_reported("recovered"));
}

static long launches_left;
static bool flipped, single;

static void flip(cl_command_queue queue)
{
    if (--launches_left <= 0 && !flipped)
        flipped = fake_cl_flip(queue, single, &seed);
}

/* A bit is flipped in what a kernel has computed: the product is judged, undone, and computed once
 * more, like those after it, by the next library. */
static void computes_wrongly(void *unused)
{
    int undone = 0;
    (void)unused;
    setenv("CLBLAS_SHIM_VERIFY", "1", 1);
    set_up("always");
    largest = 30; /* three launches for each */
    for (int i = 0; i < 40 && any_host_calls == 0; i++) {
        struct test x;
        open_test(&x);
        remember(&x);
        launches_left = 12;
        flipped = false;
        single = clb_precision_real_size(x.precision) == sizeof(float);
        fake_cl.launched = flip;
        expect(route(&x), "declined");
        fake_cl.launched = NULL;
        expect_all(&x);
        expect(is_right(&x), "%s: wrong", name_of(&x));
        undone += any_host_calls > 0 && any_host_calls < (long)x.products;
        close_test(&x);
    }
    expect(undone == 1 && all_reported("recovered") == 1, "%d of %g batches are undone", undone,
           all_reported("recovered"));
    struct test x;
    open_test(&x);
    remember(&x);
    expect(!route(&x) && reported(name_of(&x), "quarantined") == 1, "the device is used again");
    close_test(&x);
}

/* The threshold is compared with the work of all. */
static void thresholds(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "40", 1);
    set_up("dry-run");
    for (int i = 0; i < 60; i++) {
        struct test x;
        double work = 0;
        open_test(&x);
        remember(&x);
        for (int64_t g = 0; g < x.groups; g++)
            work +=
                (double)(x.size[g] * x.value[SIZE_M][g] * x.value[SIZE_N][g] * x.value[SIZE_K][g]);
        const double flops = reported(name_of(&x), "flops");
        expect_refused(&x, work < 64000 ? "small" : "dry-run", 0, "by its work");
        expect(fabs(reported(name_of(&x), "flops") - flops -
                    work * (clb_precision_parts(x.precision) == 2 ? 8 : 2)) < 1,
               "%s: not the work of all", name_of(&x));
        close_test(&x);
    }
}

int main(void)
{
    static const struct tap_test tests[] = {
        {"results", computes, NULL},
        {"results in the device's memory", computes, &seed},
        {"by the next library", composes, NULL},
        {"wrong arguments", wrong_arguments, NULL},
        {"nothing to do", nothing_to_do, NULL},
        {"NaN in C", nan_in_c, NULL},
        {"in order", in_order, NULL},
        {"in order in the device's memory", in_order, &seed},
        {"a device that fails", fails, NULL},
        {"a device with own memory that fails", fails, &seed},
        {"a device that computes wrongly", computes_wrongly, NULL},
        {"thresholds", thresholds, NULL},
    };
    seed = tap_seed();
    tap_few_threads();
    for (size_t i = 0; i < CLB_COUNT_OF(tests); i++) {
        seed = random_bits(&seed);
        tap_child(tests[i].name, 120, tests[i].body, tests[i].argument);
    }
    return tap_done();
}
