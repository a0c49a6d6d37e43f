/* SPDX-License-Identifier: BSD-3-Clause
 * Every routine of the table through the route layer: why calls are declined, each argument that is
 * wrong, workspace queries, thresholds, C names and matrices by rows, NaN, integers of both widths,
 * singular matrices, what the next library lacks, and the calls that it makes itself. Each test
 * walks the table; precisions, options and operands are random. */
#include "any_call.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARAMS                                                                           \
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,trsm.nb=8,trsm.part=8,getrf.nb=8," \
    "potrf.nb=8,geqrf.nb=8"

static uint64_t seed;
static const struct any_options usual, hosted = {.hosted = true};

static void set_up(const char *mode)
{
    routed_set_up(mode, PARAMS);
}

/* A routine of a row in one of some precisions; false: there is none. */
static bool draw(int row, const char *precisions, clb_routine *routine)
{
    clb_routine found[CLB_PRECISIONS];
    size_t count = 0;
    for (int r = 0; r < CLB_ROUTINES; r++) {
        if ((int)clb_routines[r].row == row &&
            strchr(precisions, "sdcz"[clb_routines[r].precision]) != NULL &&
            !any_call_reads_beyond((clb_routine)r))
            found[count++] = (clb_routine)r;
    }
    if (count > 0)
        *routine = found[random_below(&seed, count)];
    return count > 0;
}

/* The same with operands. */
static bool open_row(struct any_call *x, int row, const char *precisions,
                     const struct any_options *options)
{
    clb_routine routine;
    return draw(row, precisions, &routine) && any_call_open(x, routine, options, &seed);
}

static const char *name_of(const struct any_call *x)
{
    return x->entry.symbol->next.name;
}

static bool is_right(const struct any_call *x)
{
    return any_call_deviation(x) < any_call_tolerance(x->entry.symbol->routine);
}

/* True when the call was taken; its result is right, or nothing has changed. */
static bool run(struct any_call *x, const char *what)
{
    const bool taken = any_call_route(x);
    char text[120];
    clb_call_describe(&x->entry.call, text, sizeof text);
    clb_route_end_declined();
    if (taken)
        expect(is_right(x), "%s, %s %s: off by %g", what, name_of(x), text, any_call_deviation(x));
    else
        expect(any_call_is_intact(x), "%s, %s %s: a declined call has changed something", what,
               name_of(x), text);
    return taken;
}

static void expect_declines(struct any_call *x, const char *reason, const char *what)
{
    const double before = reported(name_of(x), reason);
    expect(!any_call_route(x) && any_call_is_intact(x), "%s, %s: taken or written", name_of(x),
           what);
    clb_route_end_declined();
    expect(reported(name_of(x), reason) == before + 1, "%s, %s: not declined as %s", name_of(x),
           what, reason);
}

/* ---- reasons that are the same for all ---- */

static struct reason {
    const char *name, *mode, *variable, *value, *precisions;
    int times;
} reasons[] = {
    {"off", "off", "NONE", "", "sdcz", 1},
    {"nodevice", "always", "CLBLAS_SHIM_DEVICE", "none", "sdcz", 2},
    {"nofp64", "always", "NONE", "", "dz", 1},
    {"dry-run", "dry-run", "CLBLAS_SHIM_THRESHOLD", "10", "sdcz", 1},
    {"nomemory", "always", "CLBLAS_SHIM_MEMORY", "2K", "sdcz", 4},
};

static void declines_all(void *argument)
{
    const struct reason *reason = argument;
    const bool memory = strcmp(reason->name, "nomemory") == 0;
    int taken = 0;
    setenv(reason->variable, reason->value, 1);
    fake_cl.no_fp64 = strcmp(reason->name, "nofp64") == 0;
    set_up(reason->mode);
    for (int row = 0; row < CLB_STEMS; row++) {
        struct any_call x;
        if (!open_row(&x, row, reason->precisions, &usual))
            continue;
        for (int time = 0; time < reason->times; time++)
            taken += run(&x, reason->name);
        if (!memory || reported(name_of(&x), "device") == 0)
            expect_declined(name_of(&x), reason->name, reason->times);
        any_call_close(&x);
    }
    /* Systems in place need hardly any. */
    expect(taken <= (memory ? CLB_STEMS / 2 * reason->times : 0), "%d were taken", taken);
    if (strcmp(reason->name, "off") == 0 || strcmp(reason->name, "nodevice") == 0)
        expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started");
    for (int row = 0; row < 2 && fake_cl.no_fp64; row++) {
        struct any_call x;
        if (!open_row(&x, row == 0 ? CLB_STEM_gemm : CLB_STEM_gesv, "sc", &usual))
            continue;
        expect(run(&x, "without fp64"), "single precision needs no fp64");
        any_call_close(&x);
    }
}

/* ---- arguments ---- */

static size_t *size_of(struct clb_call *call, char letter)
{
    return letter == 'm'   ? &call->m
           : letter == 'n' ? &call->n
           : letter == 'k' ? &call->k
                           : &call->nrhs;
}

static size_t *ld_of(struct clb_call *call, char matrix)
{
    return matrix == 'A' ? &call->lda : matrix == 'B' ? &call->ldb : &call->ldc;
}

static bool is_in_limits(const struct clb_call *call)
{
    const char *s = clb_routines[call->routine].limits;
    for (; *s != '\0'; s += s[2] == ' ' ? 3 : 2) {
        if (clb_call_size(call, s[0]) > clb_call_size(call, s[1]))
            return false;
    }
    return true;
}

static void quick(void *unused)
{
    static const double zero[2] = {0, 0}, imaginary[2] = {0, 1};
    (void)unused;
    set_up("always");
    for (int row = 0; row < CLB_STEMS; row++) {
        struct any_call x;
        if (!open_row(&x, row, "dz", &usual))
            continue;
        const struct clb_call right = x.entry.call;
        for (const char *s = clb_routines[right.routine].signature; *s != '\0'; s++) {
            if (*s == '*')
                x.entry.call.alpha = clb_routine_has_flag(right.routine, '*') ? imaginary : zero;
            else if (strchr("mnkr", *s) != NULL)
                *size_of(&x.entry.call, *s) = 0;
            else
                continue;
            expect_declines(&x, is_in_limits(&x.entry.call) ? "quick" : "invalid",
                            (char[]){*s, '\0'});
            x.entry.call = right;
        }
        any_call_close(&x);
    }
}

/* The first wrong argument has this position, and the call is declined. */
static void expect_invalid(struct any_call *x, int position, char letter)
{
    expect(clb_call_first_wrong(&x->entry.call) == position, "%s: argument %d (%c), not %d",
           name_of(x), position, letter, clb_call_first_wrong(&x->entry.call));
    expect_declines(x, "invalid", (char[]){letter, '\0'});
}

static void wrong_op(struct any_call *x, clb_op *op, int position, char letter)
{
    static const struct {
        clb_op op;
        char letter;
    } ops[] = {{CLB_OP_N, 'N'}, {CLB_OP_T, 'T'}, {CLB_OP_C, 'C'}, {CLB_OP_INVALID, '?'}};
    for (size_t i = 0; i < CLB_COUNT_OF(ops); i++) {
        *op = ops[i].op;
        if (strchr(clb_routines[x->entry.call.routine].trans, ops[i].letter) == NULL)
            expect_invalid(x, position, letter);
    }
}

static void wrong_size(struct any_call *x, int position, char letter)
{
    struct clb_call *call = &x->entry.call;
    const struct clb_call right = *call;
    const char *s = clb_routines[call->routine].limits;
    *size_of(call, letter) = (size_t)-1;
    /* Where m may not be larger than n, that is noticed first. */
    expect_invalid(x, letter == 'n' && strstr(s, "mn") != NULL ? position - 1 : position, letter);
    *call = right;
    for (; *s != '\0'; s += s[2] == ' ' ? 3 : 2) {
        if (s[0] != letter)
            continue;
        *size_of(call, letter) = (size_t)clb_call_size(call, s[1]) + 1;
        expect_invalid(x, position, letter);
    }
}

/* One too small; and zero, where there is nothing in the matrix. */
static void wrong_ld(struct any_call *x, int position, char letter)
{
    struct clb_call *call = &x->entry.call;
    *ld_of(call, letter) = x->x.matrix[letter - 'A'].shape.rows - 1;
    expect_invalid(x, position, letter);
    call->m = call->n = call->k = call->nrhs = 0;
    *ld_of(call, letter) = 0;
    expect_invalid(x, position, letter);
}

static void wrong_work(struct any_call *x, int position)
{
    struct clb_call *call = &x->entry.call;
    call->lwork = clb_call_size(call, clb_routines[call->routine].sizes[1]) - 1;
    expect_invalid(x, position, 'w');
    call->lwork = -2;
    expect_invalid(x, position, 'w');
    call->lwork = -1;
    expect_declines(x, "query", "lwork = -1");
    expect(reported(name_of(x), "flops") < 8e6, "a query counts as the work of the call");
    call->m = call->n = call->k = 0;
    call->lwork = 0;
    expect_invalid(x, position, 'w');
}

static void wrong_arguments(void *unused)
{
    (void)unused;
    set_up("always");
    for (int row = 0; row < CLB_STEMS; row++) {
        struct any_call x;
        int position = 1;
        if (!open_row(&x, row, "sdcz", &usual))
            continue;
        struct clb_call *call = &x.entry.call;
        const struct clb_call right = *call;
        for (const char *s = clb_routines[right.routine].signature; *s != '\0'; s++, position++) {
            position += strchr("ABCw", *s) != NULL;
            if (strchr("sud", *s) != NULL) {
                call->invalid = *s;
                expect_invalid(&x, position, *s);
            } else if (*s == 't' || *s == 'T') {
                wrong_op(&x, *s == 't' ? &call->transa : &call->transb, position, *s);
            } else if (strchr("mnkr", *s) != NULL) {
                wrong_size(&x, position, *s);
            } else if (strchr("ABC", *s) != NULL) {
                wrong_ld(&x, position, *s);
            } else if (*s == 'w') {
                wrong_work(&x, position);
            }
            *call = right;
        }
        any_call_close(&x);
    }
}

/* By what is in the operands: pivots that are no rows, zeros on a diagonal, and a result that
 * overlaps what is read, where the check of a first result would fail. The device is not held
 * responsible. */
static void wrong_operands(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_VERIFY", "1", 1);
    set_up("always");
    for (int row = 0; row < CLB_STEMS; row++) {
        struct any_call x;
        if (!open_row(&x, row, "dz", &usual))
            continue;
        struct clb_call *call = &x.entry.call;
        const struct clb_call right = *call;
        const size_t at = random_below(&seed, call->n);
        const bool inverts = call->kind == CLB_KIND_getri || call->kind == CLB_KIND_potri ||
                             call->kind == CLB_KIND_trtri;
        const int64_t bad[] = {0, -1, (int64_t)call->n + 1, INT32_MAX};
        for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
            if (call->kind != CLB_KIND_getrs && call->kind != CLB_KIND_getri)
                break;
            const int64_t good = clb_integer_get(x.x.ipiv, at, false);
            clb_integer_set(x.x.ipiv, at, false, bad[i]);
            clb_integer_set(x.before.ipiv, at, false, bad[i]);
            expect_declines(&x, "invalid", "a pivot");
            clb_integer_set(x.x.ipiv, at, false, good);
            clb_integer_set(x.before.ipiv, at, false, good);
        }
        if (clb_signature_has(call, 'B') || clb_signature_has(call, 'C')) {
            call->a = clb_signature_has(call, 'C') ? call->c : call->b;
            expect_declines(&x, "invalid", "matrices that overlap");
            *call = right;
        }
        if (inverts || call->kind == CLB_KIND_lauum) {
            any_call_set(&x, 0, at, at, 0);
            if (inverts && !call->unit)
                expect_declines(&x, "invalid", "a zero on the diagonal");
            else
                expect(any_call_route(&x), "%s: a zero on the diagonal", name_of(&x));
        }
        any_call_close(&x);
    }
    struct any_call x;
    if (any_call_open(&x, CLB_ROUTINE_dgemm, &usual, &seed)) {
        expect(run(&x, "afterwards"), "the device is no longer used");
        any_call_close(&x);
    }
}

/* ---- thresholds ---- */

/* The work is the number of multiplications with an addition; at the second sizes 8000 or more. */
static const struct known {
    clb_stem row;
    size_t below[4], above[4]; /* m, n, k, nrhs; 0: the usual one */
} known[] = {
    {CLB_STEM_gemm, {20, 20, 19, 0}, {20, 20, 20, 0}},
    {CLB_STEM_gemmtr, {0, 40, 9, 0}, {0, 40, 10, 0}},
    {CLB_STEM_syrk, {0, 40, 9, 0}, {0, 40, 10, 0}},
    {CLB_STEM_herk, {0, 40, 9, 0}, {0, 40, 10, 0}},
    {CLB_STEM_syr2k, {0, 20, 19, 0}, {0, 20, 20, 0}},
    {CLB_STEM_symm, {20, 19, 0, 0}, {20, 20, 0, 0}},
    {CLB_STEM_trmm, {20, 39, 0, 0}, {20, 40, 0, 0}},
    {CLB_STEM_trsm, {20, 39, 0, 0}, {20, 40, 0, 0}},
    {CLB_STEM_potrf, {0, 36, 0, 0}, {0, 37, 0, 0}},
    {CLB_STEM_potrs, {0, 20, 0, 19}, {0, 20, 0, 20}},
    {CLB_STEM_posv, {0, 20, 0, 16}, {0, 20, 0, 17}},
    {CLB_STEM_trtri, {0, 36, 0, 0}, {0, 37, 0, 0}},
    {CLB_STEM_lauum, {0, 36, 0, 0}, {0, 37, 0, 0}},
    {CLB_STEM_potri, {0, 28, 0, 0}, {0, 29, 0, 0}},
    {CLB_STEM_getrf, {28, 28, 0, 0}, {29, 29, 0, 0}},
    {CLB_STEM_getrf2, {58, 17, 0, 0}, {62, 17, 0, 0}},
    {CLB_STEM_getrs, {0, 20, 0, 19}, {0, 20, 0, 20}},
    {CLB_STEM_getri, {0, 22, 0, 0}, {0, 23, 0, 0}},
    {CLB_STEM_gesv, {0, 20, 0, 13}, {0, 20, 0, 14}},
    {CLB_STEM_geqrf, {90, 9, 0, 0}, {102, 9, 0, 0}},
    {CLB_STEM_ormqr, {20, 19, 20, 0}, {20, 20, 20, 0}},
    {CLB_STEM_ungqr, {22, 22, 22, 0}, {23, 23, 23, 0}},
    {CLB_STEM_gelqf, {9, 90, 0, 0}, {9, 102, 0, 0}},
    {CLB_STEM_unmlq, {20, 19, 20, 0}, {20, 20, 20, 0}},
    {CLB_STEM_orglq, {22, 22, 22, 0}, {23, 23, 23, 0}},
};

static void thresholds(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    set_up("dry-run");
    for (size_t i = 0; i < CLB_COUNT_OF(known); i++) {
        clb_routine routine;
        if (!draw((int)known[i].row, "sdcz", &routine))
            continue;
        const char *name = clb_symbol_at(routine, 0)->next.name;
        for (int above = 0; above < 2; above++) {
            const size_t *sizes = above ? known[i].above : known[i].below;
            const struct any_options options = {
                .m = sizes[0], .n = sizes[1], .k = sizes[2], .nrhs = sizes[3]};
            struct any_call x;
            if (!any_call_open(&x, routine, &options, &seed))
                continue;
            x.entry.call.right = false; /* where A is not larger */
            expect_declines(&x, above ? "dry-run" : "small", "by its work");
            any_call_close(&x);
        }
        const double each = clb_precision_parts(clb_routines[routine].precision) == 2 ? 8 : 2;
        const double work = reported(name, "flops") / each;
        expect(work > 14000 && work < 18000, "%s: %g multiplications", name, work);
    }
}

/* ---- results ---- */

/* All routines, of random sizes: few of them are too small for the device. */
static void computes(void *discrete)
{
    int taken = 0, all = 0;
    routed_set_device(discrete != NULL);
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    set_up("always");
    for (int r = 0; r < CLB_ROUTINES; r++) {
        const struct any_options options = {.most = 64,
                                            .hosted = random_below(&seed, 2),
                                            .wide = random_below(&seed, 2),
                                            .least_work = random_below(&seed, 2),
                                            .singular = random_below(&seed, 3) == 0};
        struct any_call x;
        if (any_call_reads_beyond((clb_routine)r) ||
            !any_call_open(&x, (clb_routine)r, &options, &seed))
            continue;
        taken += run(&x, options.singular ? "singular" : "random");
        all++;
        expect_sums(name_of(&x));
        any_call_close(&x);
    }
    expect(taken > all / 2, "%d of %d were taken", taken, all);
}

/* A call, and the same one with a kernel that fails: the first call builds and checks kernels, of
 * which none is to fail. `change` is made before each; NULL: nothing. */
static void run_twice(clb_routine routine, const struct any_options *options,
                      void (*change)(struct any_call *), const char *what)
{
    uint64_t same = seed = random_bits(&seed);
    struct any_call x;
    for (int fails = 0; fails < 2; fails++, same = seed) {
        if (!any_call_open(&x, routine, options, &same))
            return;
        if (change != NULL)
            change(&x);
        any_host_calls = 0;
        fake_cl.only = 1ull << FAKE_EnqueueNDRangeKernel;
        fake_cl_arm(fails, CL_OUT_OF_RESOURCES, false);
        expect(run(&x, what), "%s, %s: declined", what, name_of(&x));
        expect(fails == 0 || !options->hosted || any_host_calls > 0, "%s, %s: nothing is recovered",
               what, name_of(&x));
        fake_cl_arm(0, 0, false);
        any_call_close(&x);
    }
}

static void search_nan(struct any_call *x)
{
    x->entry.checks = x->entry.symbol->form == CLB_FORM_lapacke;
    if (x->entry.checks)
        x->entry.call.work = NULL;
}

/* C names, by rows and by columns. */
static void c_names(void *unused)
{
    (void)unused;
    set_up("always");
    for (int i = 0; i < 2 * CLB_STEMS; i++) {
        struct any_call x;
        clb_routine routine;
        if (!draw(i / 2, "sdcz", &routine))
            continue;
        const bool lapack = strchr(clb_routines[routine].signature, 'i') != NULL;
        struct any_options options = {.form = !lapack                  ? CLB_FORM_cblas
                                              : random_below(&seed, 2) ? CLB_FORM_lapacke
                                                                       : CLB_FORM_lapacke_work,
                                      .hosted = random_below(&seed, 2),
                                      .rows = i % 2 != 0};
        if (random_below(&seed, 4) == 0) /* more than a block of a transposition */
            options.m = options.n = 130, options.k = 70, options.nrhs = 140;
        run_twice(routine, &options, search_nan, options.rows ? "by rows" : "by columns");
        options.rows = false;
        if (!any_call_open(&x, routine, &options, &seed))
            continue;
        x.entry.layout = 0;
        x.entry.call.invalid = lapack ? 0 : 'l';
        expect_declines(&x, "invalid", "layout");
        any_call_close(&x);
    }
}

/* Put one where the routine reads. */
static void put_nan(struct any_call *x)
{
    const struct clb_call *call = &x->entry.call;
    for (;;) {
        const size_t m = random_below(&seed, ANY_MATRICES);
        const struct clb_shape *shape = &x->x.matrix[m].shape;
        if (x->x.matrix[m].data == NULL)
            continue;
        const size_t i = random_below(&seed, shape->rows), j = random_below(&seed, shape->cols);
        if (shape->triangle && (call->upper ? i > j : i < j))
            continue;
        if (i == j && call->unit)
            continue;
        any_call_set(x, m, i, j, NAN);
        return;
    }
}

static void finds_nan(void *unused)
{
    (void)unused;
    set_up("always");
    for (int i = 0; i < 2 * CLB_STEMS; i++) {
        const struct any_options options = {.form = CLB_FORM_lapacke, .rows = i % 2 != 0};
        struct any_call x;
        clb_routine routine;
        if (!draw(i / 2, "sdcz", &routine) ||
            strchr(clb_routines[routine].signature, 'i') == NULL ||
            !any_call_open(&x, routine, &options, &seed))
            continue;
        put_nan(&x);
        x.entry.checks = true;
        expect_declines(&x, "invalid", "NaN");
        if (x.entry.call.kind == CLB_KIND_getrs) {
            x.entry.checks = false;
            expect(any_call_route(&x), "%s: declined although nobody looks", name_of(&x));
        }
        any_call_close(&x);
    }
}

/* The next library's function calls our other names: _work's, then Fortran's. */
static void counted_once(void *unused)
{
    static const struct any_options c_name = {.m = 20, .n = 20, .form = CLB_FORM_lapacke};
    struct any_call x;
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "30", 1);
    set_up("auto");
    if (!any_call_open(&x, CLB_ROUTINE_dgetrf, &c_name, &seed))
        return;
    struct clb_symbol *own = x.entry.symbol, *fortran = &clb_symbols[CLB_SYMBOL_dgetrf_plain];
    expect(!any_call_route(&x), "a small call was taken");
    x.entry.symbol = &clb_symbols[CLB_SYMBOL_dgetrf_lapacke_work];
    expect(!any_call_route(&x), "taken by another name");
    x.entry.symbol = fortran;
    expect(!any_call_route(&x), "taken by another name");
    expect(reported("LAPACKE_dgetrf", "small") == 1 &&
               reported("LAPACKE_dgetrf_work", "calls") == 0 && reported("dgetrf_", "calls") == 0,
           "counted more than once");
    /* That was it; and after a return, and for other sizes, calls are their own. */
    for (int i = 1; i <= 3; i++) {
        any_call_route(&x);
        expect(reported("dgetrf_", "small") == i, "call %d is not counted", i);
        x.entry.symbol = own;
        any_call_route(&x);
        if (i == 1)
            clb_route_end_declined();
        x.entry.call.m = i == 2 ? 19 : 20;
        x.entry.symbol = fortran;
    }
    expect_sums("dgetrf_");
    expect_sums("LAPACKE_dgetrf");
    any_call_close(&x);
}

static void *call_some(void *argument)
{
    struct any_call *calls = argument;
    for (int i = 0; i < 6; i++)
        expect(any_call_route(&calls[i]), "%s: declined", name_of(&calls[i]));
    return NULL;
}

static void at_once(void *unused)
{
    enum { THREADS = 4 };
    static struct any_call calls[THREADS][6];
    (void)unused;
    set_up("always");
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < CLB_COUNT_OF(calls[t]);)
            i += open_row(&calls[t][i], (int)random_below(&seed, CLB_STEMS), "sdcz", &usual);
    }
    run_threads(THREADS, call_some, calls, sizeof calls[0]);
    for (size_t t = 0; t < THREADS; t++) {
        for (size_t i = 0; i < CLB_COUNT_OF(calls[t]); i++) {
            expect(is_right(&calls[t][i]), "%s: off by %g", name_of(&calls[t][i]),
                   any_call_deviation(&calls[t][i]));
            any_call_close(&calls[t][i]);
        }
    }
}

/* ---- the next library ---- */

static clb_kind missing;

static void take_away(struct any_call *x)
{
    x->host.of[missing] = NULL;
}

/* Without what would finish it nothing is begun; what is begun is finished without what is missing.
 */
static void lacks(void *unused)
{
    int declined = 0;
    (void)unused;
    set_up("always");
    for (int i = 0; i < 4 * CLB_STEMS; i++) {
        struct any_call x;
        clb_routine routine;
        if (!draw(i / 4, "dz", &routine) || !any_call_open(&x, routine, &hosted, &seed))
            continue;
        const clb_kind own = x.entry.call.kind;
        missing = i % 4 == 0 ? own : (clb_kind)random_below(&seed, CLB_KINDS);
        take_away(&x);
        const bool taken = run(&x, "a library that lacks something");
        declined += !taken;
        expect(!(taken && missing == own) || own == CLB_KIND_gemmtr || own == CLB_KIND_gesv ||
                   own == CLB_KIND_posv,
               "%s: taken without itself", name_of(&x));
        expect(taken || reported(name_of(&x), "cost") > 0, "%s: not for its cost", name_of(&x));
        expect_sums(name_of(&x));
        any_call_close(&x);
        if (taken)
            run_twice(routine, &hosted, take_away, "without something");
    }
    expect(declined >= CLB_STEMS - 2, "%d are declined", declined);
}

static long products_inside;

static void call_product(void)
{
    routed_call_product();
    products_inside += !routed_product_taken;
}

/* Its own calls of our names go straight back while the device computes; once the device is out of
 * the call they are like any. */
static void reentrant(void *unused)
{
    (void)unused;
    set_up("always");
    routed_call_product();
    any_host_hook = call_product;
    for (int row = 0; row < CLB_STEMS; row++) {
        clb_routine routine;
        if (!draw(row, "dz", &routine))
            continue;
        routed_product_taken = false;
        run_twice(routine, &hosted, NULL, "with nested calls");
        expect(routed_product_taken, "%s: a call that it makes was not taken",
               clb_routines[routine].name);
    }
    any_host_hook = NULL;
    expect(products_inside > 10 && reported("sgemm_", "reentrant") == (double)products_inside,
           "%g of %ld nested calls", reported("sgemm_", "reentrant"), products_inside);
    expect_sums("sgemm_");
}

/* A matrix of one panel is the next library's, whoever calls it. */
static void one_panel(void *unused)
{
    static const clb_stem rows[] = {CLB_STEM_getrf, CLB_STEM_potrf, CLB_STEM_geqrf, CLB_STEM_gelqf};
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < 2 * CLB_COUNT_OF(rows); i++) {
        const size_t small = i % 2 != 0 ? 9 : 8;
        const bool lq = rows[i / 2] == CLB_STEM_gelqf;
        const struct any_options options = {
            .m = lq ? small : 40, .n = lq ? 40 : small, .hosted = true};
        struct any_call x;
        if (!open_row(&x, (int)rows[i / 2], i % 2 == 0 ? "dz" : "sc", &options))
            continue;
        expect(run(&x, "panels"), "%s: declined", name_of(&x));
        expect(reported(name_of(&x), small == 8 ? "cost" : "device") == 1 &&
                   (reported(name_of(&x), "flops_device") > 0) == (small == 9),
               "%s of %zu columns", name_of(&x), small);
        any_call_close(&x);
    }
}

static int geqrt_calls;
static bool geqrt_fails;

static bool call_geqrt(const struct clb_host_blas *host, const struct clb_call *p, void *t,
                       size_t ldt)
{
    double work[4096];
    const double *a = p->a, *tau = p->tau;
    struct clb_host_blas with_work = *host;
    with_work.work = work;
    with_work.lwork = (int64_t)p->n;
    geqrt_calls++;
    if (!geqrt_fails)
        host->of[CLB_KIND_geqrf](&with_work, p);
    for (size_t j = 0; !geqrt_fails && t != NULL && j < p->n; j++) {
        double *y = (double *)t + j * ldt;
        for (size_t i = 0; i < p->n; i++)
            y[i] = i == j ? tau[j] : 0;
        for (size_t i = 0; i < j; i++) {
            double dot = a[j + i * p->lda]; /* of reflectors i and j */
            for (size_t r = j + 1; r < p->m; r++)
                dot += a[r + i * p->lda] * a[r + j * p->lda];
            for (size_t r = 0; r <= i; r++)
                y[r] -= tau[j] * dot * ((double *)t)[r + i * ldt];
        }
    }
    return !geqrt_fails;
}

/* Panels are xGEQRT's where there is one that has memory, and xGEQRF's otherwise. */
static void panels_of_qr(void *unused)
{
    static const struct any_options options = {.m = 40, .n = 30, .hosted = true};
    (void)unused;
    set_up("always");
    for (int i = 0; i < 3; i++) {
        struct any_call x;
        if (!any_call_open(&x, CLB_ROUTINE_dgeqrf, &options, &seed))
            return;
        x.host.geqrt = i == 0 ? NULL : call_geqrt;
        geqrt_fails = i == 2;
        geqrt_calls = 0;
        any_host_calls = 0;
        expect(run(&x, "panels"), "declined");
        /* One call asks for the size of the workspace. */
        expect(geqrt_calls == (i == 0 ? 0 : 4) && any_host_calls == 5, "%d and %ld panels",
               geqrt_calls, any_host_calls);
        any_call_close(&x);
    }
}

/* In `auto` the next library solves for few right-hand sides. */
static void few_right_hand_sides(void *unused)
{
    static const struct any_options options = {.n = 800, .nrhs = 1, .hosted = true};
    static const struct {
        clb_routine routine, solve;
    } drivers[] = {{CLB_ROUTINE_sgesv, CLB_ROUTINE_sgetrs},
                   {CLB_ROUTINE_sposv, CLB_ROUTINE_spotrs}};
    (void)unused;
    routed_set_up("auto", "getrf.nb=64,potrf.nb=64");
    for (size_t i = 0; i < CLB_COUNT_OF(drivers); i++) {
        struct any_call x;
        if (!any_call_open(&x, drivers[i].routine, &options, &seed))
            continue;
        expect(run(&x, "one right-hand side"), "%s: declined", name_of(&x));
        expect(reported(name_of(&x), "device") == 1 && reported(name_of(&x), "seconds_next") > 0,
               "%s: all is the device's", name_of(&x));
        any_call_close(&x);
        if (!any_call_open(&x, drivers[i].solve, &options, &seed))
            continue;
        expect(!run(&x, "one right-hand side"), "%s: taken", name_of(&x));
        expect(reported(name_of(&x), "cost") + reported(name_of(&x), "small") == 1, "%s",
               name_of(&x));
        any_call_close(&x);
    }
}

/* Without a threshold of the user's the table has one for each kind of work and of next library. */
static void by_kind_of_next(void *unused)
{
    static const struct any_options small = {.most = 16, .hosted = true};
    (void)unused;
    set_up("auto");
    for (int i = 0; i < 2 * CLB_STEMS; i++) {
        struct any_call x;
        if (!open_row(&x, i / 2, "sdcz", &small))
            continue;
        x.host.optimised = i % 2 != 0;
        expect_declines(&x, "small", "below the table's threshold");
        any_call_close(&x);
    }
}

/* Kernels that don't build cost the routines that need them, never the device. */
static void build_failure(void *unused)
{
    static const clb_routine order[] = {CLB_ROUTINE_dsymm, CLB_ROUTINE_dtrsm,  CLB_ROUTINE_dgetrf,
                                        CLB_ROUTINE_dtrsm, CLB_ROUTINE_dgetrf, CLB_ROUTINE_dsymm};
    (void)unused;
    setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    setenv("CLBLAS_SHIM_KERNEL", "cpu", 1);
    routed_set_up("always", "gemm.tile=min,gemm.tm=16,gemm.tn=16,gemm.slab=32");
    for (size_t i = 0; i < CLB_COUNT_OF(order); i++) {
        const bool builds = order[i] == CLB_ROUTINE_dsymm;
        struct any_call x;
        if (!any_call_open(&x, order[i], &usual, &seed))
            return;
        expect(run(&x, "a kernel that does not build") == builds, "call %zu was%s taken", i,
               builds ? " not" : "");
        any_call_close(&x);
        fake_cl.only = 1ull << FAKE_BuildProgram;
        if (i == 0)
            fake_cl_arm(1, CL_BUILD_PROGRAM_FAILURE, true);
    }
    expect(fake_cl.failures == 1, "%ld builds failed", fake_cl.failures);
    expect_declined("dtrsm_", "cost", 2);
    expect_declined("dgetrf_", "cost", 2);
    expect(reported("dsymm_", "device") == 2, "the device was not used any more");
}

/* ---- xGEMMTR from products, BLAS by rows ---- */

static void compose(void *unused)
{
    static const struct any_options options = {.most = 100};
    (void)unused;
    for (int i = 0; i < 24; i++) {
        struct any_call x;
        if (!open_row(&x, CLB_STEM_gemmtr, "sdcz", &options))
            return;
        const struct clb_host_blas all = any_call_host();
        struct clb_host_blas products = {.of = {[CLB_KIND_gemm] = all.of[CLB_KIND_gemm]}};
        struct clb_entry entry = x.entry;
        expect(clb_route_compose_gemmtr(&entry, &products) == 0, "declined");
        expect(is_right(&x), "composed: off by %g", any_call_deviation(&x));
        const struct clb_call right = x.entry.call;
        int position = 1;
        for (const char *s = "utTnkABC"; *s != '\0'; s++, position++) {
            struct clb_call *call = &entry.call;
            *call = right;
            position += strchr("ABC", *s) != NULL;
            if (*s == 'A')
                position++; /* alpha */
            else if (*s == 'C')
                position++; /* beta */
            if (*s == 'u')
                call->invalid = 'u';
            else if (*s == 't')
                call->transa = CLB_OP_INVALID;
            else if (*s == 'T')
                call->transb = CLB_OP_INVALID;
            else if (*s == 'n' || *s == 'k')
                *size_of(call, *s) = (size_t)-1;
            else
                *ld_of(call, *s) = x.x.matrix[*s - 'A'].shape.rows - 1;
            expect(clb_route_compose_gemmtr(&entry, &products) == position, "argument %c", *s);
        }
        any_call_close(&x);
    }
}

/* The op by which a row-major call is computed. */
static clb_op op_in_rows(clb_routine routine, clb_op op)
{
    static const double one[2] = {1, 0};
    struct clb_call call = {.routine = routine, .transa = op, .alpha = one};
    clb_scalar alpha;
    clb_call_turn(&call, &alpha);
    return call.transa;
}

static void ops_in_rows(void *unused)
{
    (void)unused;
    expect(op_in_rows(CLB_ROUTINE_dsyrk, CLB_OP_N) == CLB_OP_T, "dsyrk N");
    expect(op_in_rows(CLB_ROUTINE_dsyrk, CLB_OP_C) == CLB_OP_N, "dsyrk C");
    expect(op_in_rows(CLB_ROUTINE_zsyrk, CLB_OP_C) == CLB_OP_INVALID, "zsyrk C");
    expect(op_in_rows(CLB_ROUTINE_zsyr2k, CLB_OP_T) == CLB_OP_N, "zsyr2k T");
    expect(op_in_rows(CLB_ROUTINE_zherk, CLB_OP_N) == CLB_OP_C, "zherk N");
    expect(op_in_rows(CLB_ROUTINE_cher2k, CLB_OP_T) == CLB_OP_INVALID, "cher2k T");
    expect(op_in_rows(CLB_ROUTINE_ssyrk, CLB_OP_INVALID) == CLB_OP_INVALID, "ssyrk ?");
}

int main(void)
{
    static const struct tap_test tests[] = {
        {"off", declines_all, &reasons[0]},
        {"nodevice", declines_all, &reasons[1]},
        {"nofp64", declines_all, &reasons[2]},
        {"dry-run", declines_all, &reasons[3]},
        {"nomemory", declines_all, &reasons[4]},
        {"quick", quick, NULL},
        {"wrong arguments, queries", wrong_arguments, NULL},
        {"wrong operands", wrong_operands, NULL},
        {"thresholds and operations", thresholds, NULL},
        {"in place", computes, NULL},
        {"in own memory", computes, &seed},
        {"C names", c_names, NULL},
        {"the search for NaN", finds_nan, NULL},
        {"declined calls are counted once", counted_once, NULL},
        {"four threads", at_once, NULL},
        {"a next library that lacks something", lacks, NULL},
        {"calls that the next library makes", reentrant, NULL},
        {"one panel", one_panel, NULL},
        {"panels of QR", panels_of_qr, NULL},
        {"few right-hand sides", few_right_hand_sides, NULL},
        {"the kind of next library", by_kind_of_next, NULL},
        {"kernels that do not build", build_failure, NULL},
        {"a triangle composed of products", compose, NULL},
        {"ops in rows", ops_in_rows, NULL},
    };
    seed = tap_seed();
    tap_few_threads();
    for (size_t i = 0; i < CLB_COUNT_OF(tests); i++) {
        seed = random_bits(&seed);
        tap_child(tests[i].name, 120, tests[i].body, tests[i].argument);
    }
    return tap_done();
}
