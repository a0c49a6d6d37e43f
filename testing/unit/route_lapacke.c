/* What C names of LAPACK add to a call, through the route layer with a next library of plain loops:
 * matrices by rows, also when every OpenCL call of a warm one fails in turn, the search for NaN,
 * and calls that were declined and come back by other names. */
#include "dense.h"
#include "fakecl.h"
#include "lapack_next.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 64

static uint64_t seed;

/* ---- transposition and the search ------------------------------------------------------------ */

static void transposes(void *unused)
{
    (void)unused;
    for (size_t round = 0; round < 60; round++) {
        const clb_precision precision = (clb_precision)(round % CLB_PRECISIONS);
        const bool conjugate = random_below(&seed, 2);
        size_t rows = random_below(&seed, 200), cols = random_below(&seed, 200);
        struct dense x, y;
        dense_make(&x, precision, cols, rows, 5, &seed);
        dense_make(&y, precision, rows, cols, 5, &seed);
        clb_transpose(precision, rows, cols, dense_data(&x), x.ld, dense_data(&y), y.ld, conjugate);
        size_t wrong = 0;
        for (size_t j = 0; j < cols; j++) {
            for (size_t i = 0; i < rows; i++) {
                number e = dense_get(&x, j, i);
                wrong += dense_get(&y, i, j) != (conjugate ? conjl(e) : e);
            }
        }
        expect(wrong == 0 && dense_gaps_intact(&y) && dense_intact(&x), "%zux%zu: %zu wrong", rows,
               cols, wrong);
        dense_free(&x);
        dense_free(&y);
    }
}

static void finds_nan(void *unused)
{
    static const char parts[] = {'U', 'L', 'A'};
    (void)unused;
    for (size_t round = 0; round < 200; round++) {
        const clb_precision precision = (clb_precision)(round % CLB_PRECISIONS);
        const char part = parts[random_below(&seed, 3)];
        size_t rows = 1 + random_below(&seed, 150),
               cols = part == 'A' ? 1 + random_below(&seed, 150) : rows;
        size_t i = random_below(&seed, rows), j = random_below(&seed, cols);
        struct dense x;
        dense_make(&x, precision, rows, cols, 5, &seed);
        expect(!clb_has_nan(precision, rows, cols, dense_data(&x), x.ld, part), "there is none");
        dense_set(&x, i, j,
                  clb_precision_parts(precision) == 2 && random_below(&seed, 2)
                      ? dense_number(1, NAN)
                      : dense_number(NAN, 1));
        bool there = part == 'A' || (part == 'U' ? i <= j : i >= j);
        expect(clb_has_nan(precision, rows, cols, dense_data(&x), x.ld, part) == there,
               "%c of %zux%zu: (%zu, %zu)", part, rows, cols, i, j);
        dense_free(&x);
    }
}

/* ---- calls ----------------------------------------------------------------------------------- */

enum routine { GETRF, GETRS, GESV };

/* The caller's matrices by rows are kept as their transposes. */
struct system {
    enum routine routine;
    struct clb_call call;
    bool checks;
    struct dense a, b, rows_a, rows_b;
    int64_t ipiv[MOST], info;
};

static void copy_transposed(const struct dense *from, struct dense *to)
{
    for (size_t j = 0; j < from->cols; j++) {
        for (size_t i = 0; i < from->rows; i++)
            dense_set(to, j, i, dense_get(from, i, j));
    }
}

static void make_system(struct system *s, enum routine routine, clb_precision precision, size_t m,
                        size_t n, size_t nrhs, uint64_t *state)
{
    *s = (struct system){.routine = routine, .info = -77};
    dense_make(&s->a, precision, m, n, 5, state);
    dense_make(&s->b, precision, n, nrhs, 5, state);
    dense_make(&s->rows_a, precision, n, m, 5, state);
    dense_make(&s->rows_b, precision, nrhs, n, 5, state);
    if (routine == GETRS)
        dense_getrf(&s->a, s->ipiv);
    copy_transposed(&s->a, &s->rows_a);
    copy_transposed(&s->b, &s->rows_b);
    dense_remember(&s->rows_a);
    dense_remember(&s->rows_b);
    s->checks = true;
    s->call = (struct clb_call){.precision = precision,
                                .m = m,
                                .n = n,
                                .nrhs = nrhs,
                                .ipiv = s->ipiv,
                                .info = &s->info,
                                .wide = true};
    s->call.a = dense_data(&s->rows_a);
    s->call.lda = s->rows_a.ld;
    if (routine != GETRF) {
        s->call.b = dense_data(&s->rows_b);
        s->call.ldb = s->rows_b.ld;
    }
}

static void free_system(struct system *s)
{
    dense_free(&s->a);
    dense_free(&s->b);
    dense_free(&s->rows_a);
    dense_free(&s->rows_b);
}

#define IDS(x, form)                                                                               \
    {                                                                                              \
        CLB_SYMBOL_##x##getrf_##form, CLB_SYMBOL_##x##getrs_##form, CLB_SYMBOL_##x##gesv_##form    \
    }
static const clb_symbol_id high[CLB_PRECISIONS][3] = {IDS(s, lapacke), IDS(d, lapacke),
                                                      IDS(c, lapacke), IDS(z, lapacke)};

static bool run_as(struct system *s, clb_symbol_id id)
{
    struct clb_host_blas next = lapack_next;
    struct clb_entry entry = {
        .call = s->call, .symbol = &clb_symbols[id], .layout = CLB_ROW_MAJOR, .checks = s->checks};
    const bool lapacke = clb_symbols[id].next.abi == CLB_ABI_LAPACKE;
    bool computed = (lapacke ? clb_route_lapacke : clb_route)(&entry, &next);
    s->call.a = entry.call.a;
    s->call.b = entry.call.b;
    return computed;
}

static bool run(struct system *s)
{
    return run_as(s, high[s->call.precision][s->routine]);
}

static void check_solution(struct system *s, const char *what, long at)
{
    size_t n = s->a.rows;
    long double worst = 0;
    for (size_t j = 0; j < s->b.cols; j++) {
        for (size_t i = 0; i < n; i++) {
            number e = dense_old(&s->b, i, j);
            long double size = 0;
            for (size_t k = 0; k < n; k++) {
                number x = dense_get(&s->rows_b, j, k);
                e -= dense_old(&s->a, i, k) * x;
                size = fmaxl(size, cabsl(x));
            }
            worst =
                fmaxl(worst, cabsl(e) / ((long double)(n * n) * dense_unit(s->a.precision) * size));
        }
    }
    expect(worst < 30, "%s %ld: residual %Lg", what, at, worst);
}

/* After a call that was computed. */
static void check_system(struct system *s, const char *what, long at)
{
    expect(s->call.a == dense_data(&s->rows_a), "%s %ld: a copy is left", what, at);
    expect(dense_gaps_intact(&s->rows_a) && dense_gaps_intact(&s->rows_b), "%s %ld: a gap", what,
           at);
    expect(s->info == 0, "%s %ld: info", what, at);
    if (s->routine == GETRS) {
        expect(dense_intact(&s->rows_a), "%s %ld: the factors were written", what, at);
    } else {
        copy_transposed(&s->rows_a, &s->a);
        long double error = dense_lu_error(&s->a, s->ipiv);
        expect(error <= 3, "%s %ld: backward error %Lg", what, at, error);
    }
    if (s->routine != GETRF)
        check_solution(s, what, at);
}

static const char *symbol_name(int routine, clb_precision precision)
{
    return clb_symbols[high[precision][routine]].next.name;
}

static bool run_one(int routine, clb_precision precision, size_t m, size_t n, size_t nrhs)
{
    struct system s;
    make_system(&s, (enum routine)routine, precision, m, n, nrhs, &seed);
    bool taken = run(&s);
    if (taken)
        check_system(&s, "a call", 0);
    else
        expect(s.call.a == dense_data(&s.rows_a) &&
                   (routine == GETRF || s.call.b == dense_data(&s.rows_b)) &&
                   dense_intact(&s.rows_a) && dense_intact(&s.rows_b) && s.info == -77,
               "a declined call has changed something");
    clb_route_end_declined();
    free_system(&s);
    return taken;
}

static const struct routed_family family = {
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,getrf.nb=8,trsm.nb=8,trsm.part=8",
    symbol_name,
    run_one,
    0,
    GESV + 1,
    9,
    0};

static void set_up(const char *mode)
{
    routed_set_up(mode, family.params);
}

/* ---- declined -------------------------------------------------------------------------------- */

static void declines_nan(void *unused)
{
    (void)unused;
    set_up("always");
    for (int i = 0; i < 12; i++) {
        struct system s;
        make_system(&s, (enum routine)(i % 3), (clb_precision)(i % 4), 30, 30, 5, &seed);
        bool in_b = s.routine != GETRF && random_below(&seed, 2);
        struct dense *bad = in_b ? &s.rows_b : &s.rows_a;
        dense_set(bad, random_below(&seed, bad->rows), random_below(&seed, bad->cols), NAN);
        dense_remember(bad);
        expect(!run(&s) && s.info == -77, "call %d was taken", i);
        clb_route_end_declined();
        expect(s.call.a == dense_data(&s.rows_a) && (s.routine == GETRF || dense_intact(&s.rows_b)),
               "call %d has changed something", i);
        s.checks = false;
        expect(run(&s), "call %d was declined although nobody looks", i);
        free_system(&s);
    }
    expect(reported("LAPACKE_sgetrf", "invalid") == 1 && reported("LAPACKE_sgetrf", "device") == 1,
           "counters");
    expect_sums("LAPACKE_sgetrf");
}

/* The next library's function calls our other names: _work's, then Fortran's. */
static void counted_once(void *unused)
{
    struct system s;
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1);
    set_up("auto");
    make_system(&s, GETRF, CLB_D, 20, 20, 1, &seed);
    expect(!run(&s), "a small call was taken");
    expect(!run_as(&s, CLB_SYMBOL_dgetrf_lapacke_work) && !run_as(&s, CLB_SYMBOL_dgetrf_plain),
           "taken by another name");
    expect(reported("LAPACKE_dgetrf", "small") == 1 &&
               reported("LAPACKE_dgetrf_work", "calls") == 0 && reported("dgetrf_", "calls") == 0,
           "counted more than once");
    /* That was it; and after a return, and for other sizes or routines, calls are their own. */
    run_as(&s, CLB_SYMBOL_dgetrf_plain);
    expect(reported("dgetrf_", "small") == 1, "the next call is not counted");
    run(&s);
    clb_route_end_declined();
    run_as(&s, CLB_SYMBOL_dgetrf_plain);
    expect(reported("dgetrf_", "small") == 2, "a call after the return is not counted");
    run(&s);
    s.call.m = 19;
    run_as(&s, CLB_SYMBOL_dgetrf_plain);
    expect(reported("dgetrf_", "small") == 3, "a call of another size is not counted");
    expect_sums("dgetrf_");
    expect_sums("LAPACKE_dgetrf");
    free_system(&s);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void call_failing(const struct routed_failing *setting, long at)
{
    struct system s;
    uint64_t state = setting->seed;
    size_t n = 18 + random_below(&state, 8), m = n, nrhs = 5 + random_below(&state, 6);
    if (setting->routine == GETRF)
        m = 18 + random_below(&state, 8);
    make_system(&s, (enum routine)setting->routine, setting->precision, m, n, nrhs, &state);
    if (expect(run(&s), "call %ld: declined", at))
        check_system(&s, setting->name, at);
    free_system(&s);
}

static struct routed_failing failing[] = {
    {"dgetrf by rows in place", NULL, GETRF, CLB_D, false, false, 0},
    {"cgetrs by rows in place", NULL, GETRS, CLB_C, false, false, 0},
    {"zgesv by rows in place", NULL, GESV, CLB_Z, false, false, 0},
    {"sgesv by rows in own memory", NULL, GESV, CLB_S, true, false, 0},
};

static const struct tap_test tests[] = {
    {"transposition", transposes, NULL},
    {"the search for NaN", finds_nan, NULL},
    {"NaN is declined", declines_nan, NULL},
    {"declined calls are counted once", counted_once, NULL},
};

int main(void)
{
    seed = tap_seed();
    tap_children(60, tests, CLB_COUNT_OF(tests));
    routed_test_usual(&family);
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
