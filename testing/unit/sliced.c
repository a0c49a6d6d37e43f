/* reference_sliced gives the bits of the library that it cuts: products and triangular systems of
 * all precisions, forms and some shapes, by four threads. */
#include "bench/bench.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void gemm_function(const char *, const char *, const int *, const int *, const int *,
                           const void *, const void *, const int *, const void *, const int *,
                           const void *, void *, const int *, size_t, size_t);
typedef void trsm_function(const char *, const char *, const char *, const char *, const int *,
                           const int *, const void *, const void *, const int *, void *,
                           const int *, size_t, size_t, size_t, size_t);

enum { LD = 600, COLS = 600 }; /* of all operands: larger than any */

struct pair {
    void *sliced, *reference;
    int precision;
    void *a, *b, *c[2]; /* one result each */
    size_t bytes;
};

static void (*function(const struct pair *pair, bool sliced, const char *routine))(void)
{
    char name[16];
    snprintf(name, sizeof name, "%c%s_", BENCH_PRECISIONS[pair->precision], routine);
    return bench_symbol(sliced ? pair->sliced : pair->reference, name);
}

static bool same(const struct pair *pair)
{
    return memcmp(pair->c[0], pair->c[1], pair->bytes) == 0;
}

/* Whatever is beside the results must be the same as well. */
static void refill(const struct pair *pair, uint64_t seed)
{
    bench_fill(pair->c[0], (size_t)LD * COLS, pair->precision, seed);
    memcpy(pair->c[1], pair->c[0], pair->bytes);
}

static void products(const struct pair *pair, int m, int n, int k)
{
    const double scalars[2][2] = {{-1, 0.5}, {0.75, 0}};
    const float narrow[2][2] = {{-1, 0.5F}, {0.75F, 0}};
    const bool single = bench_real_size(pair->precision) == sizeof(float);
    const void *alpha = single ? (const void *)narrow[0] : scalars[0];
    const void *beta = single ? (const void *)narrow[1] : scalars[1];
    const int ld = LD;
    for (int form = 0; form < 9; form++) {
        const char *transa = &"NTC"[form % 3], *transb = &"NTC"[form / 3];
        refill(pair, (uint64_t)form + 10);
        for (int i = 0; i < 2; i++)
            ((gemm_function *)function(pair, i == 0, "gemm"))(transa, transb, &m, &n, &k, alpha,
                                                              pair->a, &ld, pair->b, &ld, beta,
                                                              pair->c[i], &ld, 1, 1);
        expect(same(pair), "%cgemm %c%c %d x %d x %d", BENCH_PRECISIONS[pair->precision], *transa,
               *transb, m, n, k);
    }
}

static void systems(const struct pair *pair, int m, int n)
{
    const double one[2] = {1, 0};
    const float narrow[2] = {1, 0};
    const bool single = bench_real_size(pair->precision) == sizeof(float);
    const void *alpha = single ? (const void *)narrow : one;
    const int ld = LD;
    for (int form = 0; form < 24; form++) {
        const char *side = &"LR"[form % 2], *uplo = &"UL"[form / 2 % 2],
                   *diag = &"NU"[form / 4 % 2], *trans = &"NTC"[form / 8];
        refill(pair, (uint64_t)form + 30);
        for (int i = 0; i < 2; i++)
            ((trsm_function *)function(pair, i == 0, "trsm"))(
                side, uplo, trans, diag, &m, &n, alpha, pair->a, &ld, pair->c[i], &ld, 1, 1, 1, 1);
        expect(same(pair), "%ctrsm %c%c%c%c %d x %d", BENCH_PRECISIONS[pair->precision], *side,
               *uplo, *trans, *diag, m, n);
    }
}

/* The calls that are large enough are cut, and threads start. */
static void is_cut(const struct pair *pair)
{
    int (*parts)(void) = (int (*)(void))bench_symbol(pair->sliced, "reference_sliced_blocks");
    expect(parts() > 100, "%d blocks", parts());
}

/* A triangle that its solutions do not grow with. */
static void make_triangle(const struct pair *pair)
{
    const size_t parts = (size_t)bench_parts(pair->precision);
    for (size_t i = 0; i < COLS; i++) {
        const size_t at = (i + i * LD) * parts;
        if (bench_real_size(pair->precision) == sizeof(float))
            ((float *)pair->a)[at] += 30;
        else
            ((double *)pair->a)[at] += 30;
    }
}

static void compare(void *argument)
{
    struct pair pair = {.precision = *(int *)argument};
    setenv("REFERENCE_BLAS", bench_reference(), 1);
    setenv("REFERENCE_THREADS", "4", 1);
    pair.reference = bench_open(bench_reference());
    pair.sliced = bench_open(bench_sliced());
    pair.bytes =
        (size_t)LD * COLS * (size_t)bench_parts(pair.precision) * bench_real_size(pair.precision);
    pair.a = bench_memory(pair.bytes);
    pair.b = bench_memory(pair.bytes);
    pair.c[0] = bench_memory(pair.bytes);
    pair.c[1] = bench_memory(pair.bytes);
    bench_fill(pair.a, (size_t)LD * COLS, pair.precision, 1);
    bench_fill(pair.b, (size_t)LD * COLS, pair.precision, 2);
    make_triangle(&pair);
    products(&pair, 530, 301, 67); /* several blocks either way */
    products(&pair, 600, 2, 500);
    products(&pair, 3, 5, 7); /* not cut */
    systems(&pair, 257, 300);
    systems(&pair, 530, 129);
    is_cut(&pair);
}

int main(void)
{
    for (int precision = 0; precision < 4; precision++) {
        char name[32];
        snprintf(name, sizeof name, "%c, the reference's bits", BENCH_PRECISIONS[precision]);
        if (bench_reference() == NULL || bench_sliced() == NULL)
            tap_skip("not installed", "%s", name);
        else
            tap_child(name, 120, compare, &precision);
    }
    return tap_done();
}
