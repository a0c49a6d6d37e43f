/* Calls through the route layer. */
#include "routed.h"

#include "report.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

long next_calls;
size_t next_entries;
void (*next_hook)(void);

static void fake_next(const struct clb_target *target, const struct clb_gemm *p)
{
    (void)target;
    next_calls++;
    next_entries += p->m * p->n;
    if (next_hook != NULL)
        next_hook();
    gemm_plain(p->precision, p->transa, p->transb, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b,
               p->ldb, p->beta, p->c, p->ldc);
}

bool routed_gemm(const struct gemm_case *g)
{
    const float alpha_s = (float)g->alpha, beta_s = (float)g->beta;
    bool single = g->precision == CLB_S;
    struct clb_symbol *symbol =
        &clb_symbols[single ? CLB_SYMBOL_sgemm_plain : CLB_SYMBOL_dgemm_plain];
    struct clb_gemm_call call = {
        .problem = {.precision = g->precision,
                    .transa = g->transa,
                    .transb = g->transb,
                    .alpha = single ? (const void *)&alpha_s : &g->alpha,
                    .beta = single ? (const void *)&beta_s : &g->beta,
                    .a = matrix_data(&g->a),
                    .b = matrix_data(&g->b),
                    .c = matrix_data(&g->c)},
        .m = (int64_t)g->m,
        .n = (int64_t)g->n,
        .k = (int64_t)g->k,
        .lda = (int64_t)g->a.ld,
        .ldb = (int64_t)g->b.ld,
        .ldc = (int64_t)g->c.ld,
        .layout_valid = true,
    };
    if (clb_route_gemm(symbol, NULL, &call, fake_next))
        return true;
    struct clb_gemm problem = call.problem;
    problem.m = g->m;
    problem.n = g->n;
    problem.k = g->k;
    problem.lda = g->a.ld;
    problem.ldb = g->b.ld;
    problem.ldc = g->c.ld;
    fake_next(NULL, &problem);
    return false;
}

static double random_scalar(uint64_t *seed, clb_precision precision)
{
    static const double special[] = {0, 1, -1};
    size_t choice = random_below(seed, 6);
    double value = choice < CLB_COUNT_OF(special) ? special[choice] : 2 * random_uniform(seed);
    return precision == CLB_S ? (double)(float)value : value;
}

void routed_random(struct gemm_case *g, clb_precision precision, size_t largest, uint64_t *seed)
{
    *g = (struct gemm_case){.precision = precision,
                            .transa = (clb_op)random_below(seed, 3),
                            .transb = (clb_op)random_below(seed, 3),
                            .m = 1 + random_below(seed, largest),
                            .n = 1 + random_below(seed, largest),
                            .k = 1 + random_below(seed, largest),
                            .alpha = random_scalar(seed, precision),
                            .beta = random_scalar(seed, precision)};
    gemm_make(g, seed, 5);
}

double reported(const char *symbol, const char *key)
{
    struct clb_text text = {0};
    clb_stats_format_json(&text);
    double value = text.data != NULL ? report_number(text.data, symbol, key) : 0;
    clb_text_free(&text);
    return value;
}

void expect_sums(const char *symbol)
{
    double declined = 0;
    for (int r = 0; r < CLB_REASONS; r++)
        declined += reported(symbol, clb_reason_name((clb_reason)r));
    expect(reported(symbol, "calls") == reported(symbol, "device") + reported(symbol, "next") +
                                            reported(symbol, "recovered"),
           "%s: calls = device + next + recovered", symbol);
    expect(reported(symbol, "next") == declined, "%s: reasons add up to next", symbol);
}

void expect_declined(const char *symbol, const char *reason, double count)
{
    expect(reported(symbol, reason) == count && reported(symbol, "calls") == count,
           "%s: %g of %g calls are %s, not %g", symbol, reported(symbol, reason),
           reported(symbol, "calls"), reason, count);
    expect_sums(symbol);
}
