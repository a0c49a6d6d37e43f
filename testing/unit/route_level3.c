/* Level 3 through the route layer with a next library of plain loops: every reason for which a call
 * is declined, every OpenCL call of a warm one failing in turn, and xGEMMTR composed of products
 * where the next library has none. */
#include "fakecl.h"
#include "level3_case.h"
#include "routed.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed;

/* ---- the next library ------------------------------------------------------------------------ */

static level3_routine current; /* what the next library's own function computes */
static _Atomic long own_calls, product_calls;
static size_t largest_part; /* entries of C that it was asked for at once */

static bool is_hermitian(void)
{
    return current == LEVEL3_HEMM || current == LEVEL3_HERK || current == LEVEL3_HER2K;
}

static void *at(clb_precision precision, const void *x, size_t ld, size_t i, size_t j)
{
    return (char *)(uintptr_t)x + (i + j * ld) * clb_precision_size(precision);
}

/* The imaginary part becomes its `sign` fold. */
static void turn(clb_precision precision, void *element, int sign)
{
    float *single = element;
    double *full = element;
    if (clb_precision_real_size(precision) == sizeof(float))
        single[1] *= (float)sign;
    else
        full[1] *= sign;
}

/* All of a matrix of which a triangle is stored; the other one mirrored, or zero. */
static void *expand(clb_precision precision, const void *a, size_t lda, size_t n, bool upper,
                    bool mirrored)
{
    size_t size = clb_precision_size(precision);
    char *full = calloc(n * n, size);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < n; i++) {
            bool stored = upper ? i <= j : i >= j;
            char *element = at(precision, full, n, i, j);
            if (stored || mirrored)
                memcpy(element, at(precision, a, lda, stored ? i : j, stored ? j : i), size);
            if (mirrored && is_hermitian() && !stored)
                turn(precision, element, -1);
            if (mirrored && is_hermitian() && i == j)
                memset(element + size / 2, 0, size / 2);
        }
    }
    return full;
}

static size_t next_gemm(const struct clb_host_blas *from, const struct clb_call *call)
{
    product_calls++;
    return dense_gemm(from, call);
}

static struct clb_call product_of(const struct clb_call *p, const clb_scalar *alpha,
                                  const clb_scalar *beta)
{
    struct clb_call product = *p;
    clb_call_set_routine(&product, clb_routine_of(CLB_KIND_gemm, p->precision, false));
    product.alpha = alpha;
    product.beta = beta;
    return product;
}

static void compute_symm(const struct clb_call *p, struct clb_call product)
{
    const size_t order = p->right ? p->n : p->m;
    void *full = expand(p->precision, p->a, p->lda, order, p->upper, true);
    product.transa = product.transb = CLB_OP_N;
    product.k = order;
    product.a = p->right ? p->b : full;
    product.lda = p->right ? p->ldb : order;
    product.b = p->right ? full : p->b;
    product.ldb = p->right ? order : p->ldb;
    dense_gemm(NULL, &product);
    free(full);
}

/* The products go to a copy of C, of which the triangle comes back. */
static void compute_triangle(const struct clb_call *p, struct clb_call product,
                             const clb_scalar *alpha)
{
    size_t n = p->n, size = clb_precision_size(p->precision);
    void *c = expand(p->precision, p->c, p->ldc, n, p->upper, true);
    product.c = c;
    product.ldc = n;
    if (current != LEVEL3_GEMMTR) {
        product.transb = p->transa != CLB_OP_N ? CLB_OP_N : is_hermitian() ? CLB_OP_C : CLB_OP_T;
        product.b = p->b != NULL ? p->b : p->a;
        product.ldb = p->b != NULL ? p->ldb : p->lda;
    }
    dense_gemm(NULL, &product);
    if (current == LEVEL3_SYR2K || current == LEVEL3_HER2K) {
        const clb_scalar second =
            is_hermitian() ? clb_scalar_conjugate(p->precision, *alpha) : *alpha;
        product.a = p->b;
        product.lda = p->ldb;
        product.b = p->a;
        product.ldb = p->lda;
        product.alpha = &second;
        product.beta = clb_scalar_one(p->precision);
        dense_gemm(NULL, &product);
    }
    for (size_t j = 0; j < n; j++) {
        for (size_t i = p->upper ? 0 : j; i < (p->upper ? j + 1 : n); i++)
            memcpy(at(p->precision, p->c, p->ldc, i, j), at(p->precision, c, n, i, j), size);
        if (is_hermitian())
            turn(p->precision, at(p->precision, p->c, p->ldc, j, j), 0);
    }
    free(c);
}

static size_t next_own(const struct clb_host_blas *from, const struct clb_call *p)
{
    const clb_scalar alpha = clb_scalar_get(p->precision, current == LEVEL3_HERK, p->alpha);
    const clb_scalar beta =
        clb_scalar_get(p->precision, current == LEVEL3_HERK || current == LEVEL3_HER2K, p->beta);
    const struct clb_call product = product_of(p, &alpha, &beta);
    (void)from;
    own_calls++;
    largest_part = clb_max(largest_part, p->m * p->n);
    if (current == LEVEL3_SYMM || current == LEVEL3_HEMM)
        compute_symm(p, product);
    else
        compute_triangle(p, product, &alpha);
    return 0;
}

static size_t next_trmm(const struct clb_host_blas *from, const struct clb_call *p)
{
    size_t n = p->right ? p->n : p->m, size = clb_precision_size(p->precision);
    char *a = expand(p->precision, p->a, p->lda, n, p->upper, false);
    char *b = malloc(p->m * p->n * size);
    (void)from;
    own_calls++;
    largest_part = clb_max(largest_part, p->m * p->n);
    for (size_t j = 0; j < n && p->unit; j++)
        memcpy(at(p->precision, a, n, j, j), clb_scalar_one(p->precision), size);
    for (size_t j = 0; j < p->n; j++)
        memcpy(b + j * p->m * size, at(p->precision, p->b, p->ldb, 0, j), p->m * size);
    struct clb_call product = product_of(p, p->alpha, clb_scalar_zero(p->precision));
    product.transa = p->right ? CLB_OP_N : p->transa;
    product.transb = p->right ? p->transa : CLB_OP_N;
    product.k = n;
    product.a = p->right ? b : a;
    product.b = p->right ? a : b;
    product.c = p->b;
    product.lda = p->right ? p->m : n;
    product.ldb = p->right ? n : p->m;
    product.ldc = p->ldb;
    dense_gemm(NULL, &product);
    free(a);
    free(b);
    return 0;
}

#define OWN                                                                                        \
    [CLB_KIND_gemmtr] = next_own, [CLB_KIND_syrk] = next_own, [CLB_KIND_syr2k] = next_own,         \
    [CLB_KIND_symm] = next_own
static struct clb_host_blas next = {
    .of = {OWN, [CLB_KIND_gemm] = next_gemm, [CLB_KIND_trmm] = next_trmm}};

static const char params[] = "gemm.tile=min,gemm.tm=16,gemm.tn=16,gemm.slab=32";

/* ---- calls ----------------------------------------------------------------------------------- */

static struct clb_symbol *symbol_of(level3_routine routine, clb_precision precision)
{
#define ALL(x)                                                                                     \
    {                                                                                              \
        CLB_SYMBOL_s##x##_plain, CLB_SYMBOL_d##x##_plain, CLB_SYMBOL_c##x##_plain,                 \
            CLB_SYMBOL_z##x##_plain                                                                \
    }
#define COMPLEX(x)                                                                                 \
    {                                                                                              \
        0, 0, CLB_SYMBOL_c##x##_plain, CLB_SYMBOL_z##x##_plain                                     \
    }
    static const clb_symbol_id ids[LEVEL3_ROUTINES][CLB_PRECISIONS] = {
        [LEVEL3_SYMM] = ALL(symm),   [LEVEL3_HEMM] = COMPLEX(hemm),
        [LEVEL3_SYRK] = ALL(syrk),   [LEVEL3_HERK] = COMPLEX(herk),
        [LEVEL3_SYR2K] = ALL(syr2k), [LEVEL3_HER2K] = COMPLEX(her2k),
        [LEVEL3_TRMM] = ALL(trmm),   [LEVEL3_GEMMTR] = ALL(gemmtr),
    };
#undef ALL
#undef COMPLEX
    return &clb_symbols[ids[routine][precision]];
}

static struct clb_call call_of(const struct level3_case *x)
{
    const struct clb_level3 *p = &x->problem;
    bool right = p->b[0].shape != CLB_STRUCTURE_GENERAL;
    bool symm = x->routine == LEVEL3_SYMM || x->routine == LEVEL3_HEMM;
    bool rank = x->routine == LEVEL3_SYRK || x->routine == LEVEL3_HERK;
    return (struct clb_call){.precision = p->precision,
                             .right = right,
                             .upper = symm ? (right ? p->b : p->a)->upper
                                           : p->region == CLB_REGION_UPPER,
                             .transa = p->a[0].op,
                             .transb = x->routine == LEVEL3_GEMMTR ? p->b[0].op : CLB_OP_N,
                             .alpha = &p->alpha[0],
                             .a = dense_data(&x->a),
                             .b = rank ? NULL : dense_data(&x->b),
                             .beta = &p->beta,
                             .c = p->c,
                             .m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .lda = x->a.ld,
                             .ldb = x->b.ld,
                             .ldc = p->ldc};
}

static bool route_trmm(const struct level3_case *x)
{
    const struct clb_level3 *p = &x->problem;
    bool right = p->b[0].shape != CLB_STRUCTURE_GENERAL;
    const struct clb_level3_operand *a = right ? p->b : p->a;
    struct clb_call call = {.precision = p->precision,
                            .right = right,
                            .upper = a->upper,
                            .unit = a->unit,
                            .transa = a->op,
                            .alpha = &p->alpha[0],
                            .a = (void *)(uintptr_t)a->data,
                            .b = p->c,
                            .m = p->m,
                            .n = p->n,
                            .lda = a->ld,
                            .ldb = p->ldc};
    return routed_call(symbol_of(LEVEL3_TRMM, p->precision), &call, &next);
}

static bool route(const struct level3_case *x)
{
    current = x->routine;
    if (x->routine == LEVEL3_TRMM)
        return route_trmm(x);
    struct clb_call call = call_of(x);
    return routed_call(symbol_of(x->routine, call.precision), &call, &next);
}

static void check(const struct level3_case *x, bool computed, const char *what)
{
    const struct clb_rect all = {0, 0, x->problem.m, x->problem.n};
    const struct clb_gemm_progress none = {0};
    level3_check_part(x, &all, computed, what);
    level3_check_rest(x, &none, what);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static bool exists(level3_routine routine, clb_precision precision)
{
    bool hermitian = routine == LEVEL3_HEMM || routine == LEVEL3_HERK || routine == LEVEL3_HER2K;
    return !hermitian || clb_precision_parts(precision) > 1;
}

/* A routine goes by its own threshold, and its operations are counted. */
static void thresholds(void *unused)
{
    static const struct {
        level3_routine routine;
        double flops; /* of order 20 and depth 20, one multiplication and addition each */
    } known[] = {{LEVEL3_SYMM, 16000},
                 {LEVEL3_SYRK, 8000},
                 {LEVEL3_SYR2K, 16000},
                 {LEVEL3_TRMM, 8000},
                 {LEVEL3_GEMMTR, 8000}};
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_DSYRK", "15.8", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_DTRMM", "15.8", 1);
    setenv("CLBLAS_SHIM_THRESHOLD_DGEMMTR", "15.9", 1);
    routed_set_up("auto", params);
    for (size_t i = 0; i < CLB_COUNT_OF(known); i++) {
        struct level3_case x;
        do {
            level3_make(&x, known[i].routine, CLB_D, 20, &seed);
            if (x.problem.m == 20 && x.problem.n == 20 && x.problem.k == 20)
                break;
            level3_free(&x);
        } while (true);
        const char *name = symbol_of(known[i].routine, CLB_D)->next.name;
        bool taken = route(&x);
        check(&x, taken, "a call");
        expect(taken == (known[i].routine != LEVEL3_GEMMTR), "%s was%s taken", name,
               taken ? "" : " not");
        expect(reported(name, "flops") == known[i].flops, "%s: %g operations", name,
               reported(name, "flops"));
        if (!taken)
            expect_declined(name, "small", 1);
        level3_free(&x);
    }
}

static void reason_quick(void *unused)
{
    static const struct {
        level3_routine routine;
        int64_t m, n, k;
        double alpha[2];
    } calls[] = {
        {LEVEL3_SYMM, 0, 5, 0, {1, 0}},   {LEVEL3_HEMM, 5, 0, 5, {1, 0}},
        {LEVEL3_HEMM, 5, 5, 5, {0, 0}},   {LEVEL3_SYRK, 0, 0, 5, {1, 0}},
        {LEVEL3_SYRK, 5, 5, 0, {1, 0}},   {LEVEL3_HERK, 5, 5, 5, {0, 1 /* not read */}},
        {LEVEL3_SYR2K, 5, 5, 0, {1, 0}},  {LEVEL3_HER2K, 5, 5, 5, {0, 0}},
        {LEVEL3_GEMMTR, 5, 5, 0, {1, 0}}, {LEVEL3_GEMMTR, 5, 5, 5, {0, 0}},
    };
    double memory[64] = {0}, zero[2] = {0, 0};
    (void)unused;
    routed_set_up("always", params);
    for (size_t i = 0; i < CLB_COUNT_OF(calls); i++) {
        struct clb_symbol *symbol = symbol_of(calls[i].routine, CLB_Z);
        double before = reported(symbol->next.name, "quick");
        struct clb_call call = {.alpha = calls[i].alpha,
                                .a = memory,
                                .b = memory,
                                .beta = zero,
                                .c = memory,
                                .m = (size_t)calls[i].m,
                                .n = (size_t)calls[i].n,
                                .k = (size_t)calls[i].k,
                                .lda = 5,
                                .ldb = 5,
                                .ldc = 5};
        expect(!routed_call(symbol, &call, &next), "call %zu was taken", i);
        expect(reported(symbol->next.name, "quick") == before + 1, "call %zu is not quick", i);
    }
    expect(own_calls + product_calls == 0, "a declined call was computed");
}

static void reason_invalid(void *unused)
{
#define N CLB_OP_N
#define T CLB_OP_T
#define C CLB_OP_C
#define X CLB_OP_INVALID
    static const struct {
        level3_routine routine;
        clb_precision precision;
        clb_op transa, transb;
        int64_t m, n, k, lda, ldb, ldc;
        bool right, options_valid;
    } bad[] = {
        {LEVEL3_SYMM, CLB_D, N, N, 5, 4, 5, 5, 5, 5, false, false},
        {LEVEL3_SYMM, CLB_D, N, N, -1, 4, -1, 5, 5, 5, false, true},
        {LEVEL3_SYMM, CLB_D, N, N, 5, -1, 5, 5, 5, 5, false, true},
        {LEVEL3_SYMM, CLB_D, N, N, 5, 4, 5, 4, 5, 5, false, true},
        {LEVEL3_SYMM, CLB_D, N, N, 4, 5, 5, 4, 5, 5, true, true},
        {LEVEL3_SYMM, CLB_D, N, N, 5, 4, 5, 5, 4, 5, false, true},
        {LEVEL3_SYMM, CLB_D, N, N, 5, 4, 5, 5, 5, 4, false, true},
        {LEVEL3_SYMM, CLB_D, N, N, 0, 4, 0, 0, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_Z, C, N, 5, 5, 4, 5, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_D, X, N, 5, 5, 4, 5, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_D, N, N, -1, -1, 4, 5, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_D, N, N, 5, 5, -1, 5, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_D, N, N, 5, 5, 4, 4, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_D, T, N, 5, 5, 4, 3, 5, 5, false, true},
        {LEVEL3_SYRK, CLB_D, N, N, 5, 5, 4, 5, 5, 4, false, true},
        {LEVEL3_HERK, CLB_Z, T, N, 5, 5, 4, 5, 5, 5, false, true},
        {LEVEL3_SYR2K, CLB_D, N, N, 5, 5, 4, 5, 4, 5, false, true},
        {LEVEL3_SYR2K, CLB_D, C, N, 5, 5, 4, 4, 3, 5, false, true},
        {LEVEL3_SYR2K, CLB_C, C, N, 5, 5, 4, 5, 5, 5, false, true},
        {LEVEL3_HER2K, CLB_C, T, N, 5, 5, 4, 5, 5, 5, false, true},
        {LEVEL3_GEMMTR, CLB_D, N, N, 5, 5, 4, 5, 4, 5, false, false},
        {LEVEL3_GEMMTR, CLB_D, X, N, 5, 5, 4, 5, 4, 5, false, true},
        {LEVEL3_GEMMTR, CLB_D, N, X, 5, 5, 4, 5, 4, 5, false, true},
        {LEVEL3_GEMMTR, CLB_D, N, N, 5, 5, -1, 5, 4, 5, false, true},
        {LEVEL3_GEMMTR, CLB_D, N, N, 5, 5, 4, 4, 4, 5, false, true},
        {LEVEL3_GEMMTR, CLB_D, N, T, 5, 5, 4, 5, 4, 5, false, true},
        {LEVEL3_GEMMTR, CLB_D, N, N, 5, 5, 4, 5, 4, 4, false, true},
    };
#undef N
#undef T
#undef C
#undef X
    static const double one[2] = {1, 0};
    double memory[3][64] = {{0}};
    (void)unused;
    routed_set_up("always", params);
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct clb_symbol *symbol = symbol_of(bad[i].routine, bad[i].precision);
        double before = reported(symbol->next.name, "invalid");
        struct clb_call call = {.right = bad[i].right,
                                .transa = bad[i].transa,
                                .transb = bad[i].transb,
                                .alpha = one,
                                .a = memory[0],
                                .b = memory[1],
                                .beta = one,
                                .c = memory[2],
                                .m = (size_t)bad[i].m,
                                .n = (size_t)bad[i].n,
                                .k = (size_t)bad[i].k,
                                .lda = (size_t)bad[i].lda,
                                .ldb = (size_t)bad[i].ldb,
                                .ldc = (size_t)bad[i].ldc,
                                .invalid = bad[i].options_valid ? 0 : 'u'};
        expect(!routed_call(symbol, &call, &next), "call %zu was taken", i);
        expect(reported(symbol->next.name, "invalid") == before + 1, "call %zu is not invalid", i);
    }
    expect(own_calls + product_calls == 0, "an invalid call was computed");
}

/* Row-major calls are decoded to the other op, where the routine takes the one that is given. */
/* The op by which a row-major call is computed. */
static clb_op op_in_rows(clb_symbol_id symbol, clb_op op)
{
    static const double one[2] = {1, 0};
    struct clb_call call = {.routine = clb_symbols[symbol].routine, .transa = op, .alpha = one};
    clb_scalar alpha;
    clb_call_turn(&call, &alpha);
    return call.transa;
}

static void ops_in_rows(void *unused)
{
    (void)unused;
    expect(op_in_rows(CLB_SYMBOL_dsyrk_plain, CLB_OP_N) == CLB_OP_T, "dsyrk N");
    expect(op_in_rows(CLB_SYMBOL_dsyrk_plain, CLB_OP_C) == CLB_OP_N, "dsyrk C");
    expect(op_in_rows(CLB_SYMBOL_zsyrk_plain, CLB_OP_C) == CLB_OP_INVALID, "zsyrk C");
    expect(op_in_rows(CLB_SYMBOL_zsyr2k_plain, CLB_OP_T) == CLB_OP_N, "zsyr2k T");
    expect(op_in_rows(CLB_SYMBOL_zherk_plain, CLB_OP_N) == CLB_OP_C, "zherk N");
    expect(op_in_rows(CLB_SYMBOL_cher2k_plain, CLB_OP_T) == CLB_OP_INVALID, "cher2k T");
    expect(op_in_rows(CLB_SYMBOL_ssyrk_plain, CLB_OP_INVALID) == CLB_OP_INVALID, "ssyrk ?");
}

/* Without a product to finish with, nothing is begun. */
static void no_products(void *unused)
{
    struct clb_host_blas alone = {.of = {OWN}};
    struct level3_case x;
    (void)unused;
    routed_set_up("always", params);
    level3_make(&x, LEVEL3_SYRK, CLB_D, 30, &seed);
    struct clb_call call = call_of(&x);
    expect(!routed_call(symbol_of(x.routine, CLB_D), &call, &alone), "taken");
    check(&x, false, "declined");
    expect_declined("dsyrk_", "cost", 1);
    level3_free(&x);
}

/* ---- failures -------------------------------------------------------------------------------- */

struct failing {
    level3_routine routine;
    clb_precision precision;
};

/* The number of OpenCL calls. Counts whether the next library computed all of C or parts. */
static long run_failing(const struct failing *test, uint64_t state, long at, long *whole,
                        long *partly)
{
    struct level3_case x;
    char what[60];
    snprintf(what, sizeof what, "call %ld fails", at);
    do {
        level3_make(&x, test->routine, test->precision, 60, &state);
        if (x.problem.m > 40 && x.problem.n > 40)
            break;
        level3_free(&x);
    } while (true);
    own_calls = product_calls = 0;
    largest_part = 0;
    fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
    bool taken = route(&x);
    long calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    check(&x, taken, what);
    expect(taken || at > 0, "%s: declined", what);
    *whole += largest_part == x.problem.m * x.problem.n;
    *partly += own_calls + product_calls > 0 && largest_part < x.problem.m * x.problem.n;
    level3_free(&x);
    return calls;
}

/* Or as many of them as a few seconds allow. */
static void fail_every_call(void *argument)
{
    const struct failing *test = argument;
    const char *name = symbol_of(test->routine, test->precision)->next.name;
    const uint64_t state = random_bits(&seed); /* every run has the same problem */
    uint64_t other = state;
    long whole = 0, partly = 0, products = 0;
    routed_set_up("always", params);
    run_failing(test, state, 0, &whole, &partly);
    long calls = run_failing(test, state, 0, &whole, &partly);
    expect(whole + partly == 0, "the device did not compute the first calls");
    const long step = 1 + calls / 80;
    for (long at = 1 + (long)random_below(&other, (size_t)step); at <= calls; at += step) {
        run_failing(test, state, at, &whole, &partly);
        products += product_calls;
        run_failing(test, state, 0, &whole, &partly); /* three failures in a row would end it */
    }
    tap_note(
        "%s: of %ld OpenCL calls every %ld. fails: %ld computed again, %ld in parts, %ld products",
        name, calls, step, whole, partly, products);
    expect(calls > 20 && partly > 0, "no call was finished in part");
    expect((products > 0) == (test->routine != LEVEL3_TRMM), "%ld products", products);
    expect(reported(name, "recovered") > 0 && reported(name, "quarantined") == 0, "recovered");
    expect_sums(name);
}

/* Kernels that don't build cost the routines that need them, never the device. */
static void build_failure(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    setenv("CLBLAS_SHIM_KERNEL", "cpu", 1);
    routed_set_up("always", params);
    for (int i = 0; i < 6; i++) {
        bool builds = i == 0 || i == 5; /* of these symm has had its kernels built */
        level3_routine routine = builds ? LEVEL3_SYMM : i % 2 != 0 ? LEVEL3_SYRK : LEVEL3_TRMM;
        struct level3_case x;
        do {
            level3_make(&x, routine, CLB_D, 40, &seed);
            if (x.problem.m > 10 && x.problem.n > 10)
                break;
            level3_free(&x);
        } while (true);
        bool taken = route(&x);
        check(&x, taken, "a call");
        expect(taken == builds, "call %d was%s taken", i, taken ? "" : " not");
        level3_free(&x);
        fake_cl.only = 1ull << FAKE_BuildProgram;
        if (i == 0)
            fake_cl_arm(1, CL_BUILD_PROGRAM_FAILURE, true);
    }
    expect(fake_cl.failures == 1, "%ld builds failed", fake_cl.failures);
    expect_declined("dsyrk_", "cost", 2);
    expect_declined("dtrmm_", "cost", 2);
    expect(reported("dsymm_", "device") == 2, "the device was not used any more");
}

/* ---- xGEMMTR from products ------------------------------------------------------------------- */

static void compose(void *unused)
{
    struct clb_host_blas none = {.of = {[CLB_KIND_gemm] = next_gemm}};
    (void)unused;
    for (int i = 0; i < 24; i++) {
        struct level3_case x;
        level3_make(&x, LEVEL3_GEMMTR, (clb_precision)(i % CLB_PRECISIONS), 100, &seed);
        struct clb_entry entry = {.call = call_of(&x),
                                  .symbol = symbol_of(LEVEL3_GEMMTR, x.problem.precision)};
        expect(clb_route_compose_gemmtr(&entry, &none) == 0, "declined");
        check(&x, true, "composed");
        level3_free(&x);
    }
    expect(product_calls > 0 && own_calls == 0, "not from products");
}

static void positions(void *unused)
{
    const struct clb_call right = {.transa = CLB_OP_N,
                                   .transb = CLB_OP_N,
                                   .m = 5,
                                   .n = 5,
                                   .k = 4,
                                   .lda = 5,
                                   .ldb = 4,
                                   .ldc = 5};
    struct clb_host_blas none = {.of = {[CLB_KIND_gemm] = next_gemm}};
    (void)unused;
    struct clb_entry entry = {.call = right, .symbol = symbol_of(LEVEL3_GEMMTR, CLB_D)};
    struct clb_call *call = &entry.call;
    call->ldc = 4;
    expect(clb_route_compose_gemmtr(&entry, &none) == 13, "ldc");
    call->ldb = 3;
    expect(clb_route_compose_gemmtr(&entry, &none) == 10, "ldb");
    call->lda = 4;
    expect(clb_route_compose_gemmtr(&entry, &none) == 8, "lda");
    call->k = (size_t)-1;
    expect(clb_route_compose_gemmtr(&entry, &none) == 5, "k");
    call->n = (size_t)-1;
    expect(clb_route_compose_gemmtr(&entry, &none) == 4, "n");
    call->transb = CLB_OP_INVALID;
    expect(clb_route_compose_gemmtr(&entry, &none) == 3, "transb");
    call->transa = CLB_OP_INVALID;
    expect(clb_route_compose_gemmtr(&entry, &none) == 2, "transa");
    call->invalid = 'u';
    expect(clb_route_compose_gemmtr(&entry, &none) == 1, "uplo");
    expect(product_calls == 0, "computed all the same");
}

int main(void)
{
    static const struct tap_test tests[] = {
        {"thresholds and operations", thresholds, NULL},
        {"quick", reason_quick, NULL},
        {"invalid", reason_invalid, NULL},
        {"ops in rows", ops_in_rows, NULL},
        {"no products", no_products, NULL},
        {"kernels that do not build", build_failure, NULL},
        {"a triangle composed of products", compose, NULL},
        {"positions of wrong arguments", positions, NULL},
    };
    seed = tap_seed();
    tap_children(60, tests, CLB_COUNT_OF(tests));
    for (int i = 0; i < LEVEL3_ROUTINES; i++) {
        struct failing test = {(level3_routine)i,
                               (clb_precision)random_below(&seed, CLB_PRECISIONS)};
        char name[60];
        while (!exists(test.routine, test.precision))
            test.precision = (clb_precision)random_below(&seed, CLB_PRECISIONS);
        snprintf(name, sizeof name, "%s every OpenCL call fails",
                 symbol_of(test.routine, test.precision)->next.name);
        tap_child(name, 120, fail_every_call, &test);
    }
    return tap_done();
}
