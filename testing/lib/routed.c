/* Calls through the route layer. SPDX-License-Identifier: BSD-3-Clause */
#include "routed.h"
#include "host/process.h"

#include "fakecl.h"
#include "report.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool routed_call(struct clb_symbol *symbol, const struct clb_call *call, struct clb_host_blas *host)
{
    struct clb_entry entry = {.call = *call, .symbol = symbol};
    return clb_route(&entry, host);
}

void (*next_hook)(void);

static size_t fake_next(const struct clb_host_blas *host, const struct clb_call *p)
{
    (void)host;
    if (next_hook != NULL)
        next_hook();
    gemm_plain(p->precision, p->transa, p->transb, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b,
               p->ldb, p->beta, p->c, p->ldc);
    return 0;
}

bool routed_gemm(const struct gemm_case *g)
{
    const bool single = g->precision == CLB_S;
    struct clb_symbol *symbol =
        &clb_symbols[single ? CLB_SYMBOL_sgemm_plain : CLB_SYMBOL_dgemm_plain];
    struct clb_host_blas next = {.of = {[CLB_KIND_gemm] = fake_next}};
    struct clb_call call = {
        .precision = g->precision,
        .transa = g->transa,
        .transb = g->transb,
        .alpha = single ? (const void *)&g->alpha_s : &g->alpha,
        .beta = single ? (const void *)&g->beta_s : &g->beta,
        .a = matrix_data(&g->a),
        .b = matrix_data(&g->b),
        .c = matrix_data(&g->c),
        .m = g->m,
        .n = g->n,
        .k = g->k,
        .lda = g->a.ld,
        .ldb = g->b.ld,
        .ldc = g->c.ld,
    };
    if (routed_call(symbol, &call, &next))
        return true;
    fake_next(&next, &call);
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

void routed_set_up(const char *mode, const char *params)
{
    setenv("CLBLAS_SHIM", mode, 1);
    setenv("CLBLAS_SHIM_PARAMS", params, 0);
    setenv("CLBLAS_SHIM_STATS", "/dev/null", 0);
    setenv("CLBLAS_SHIM_REPRODUCIBLE", "1", 0); /* the first call waits for the device */
    setenv("CLBLAS_SHIM_LOG_FILE", "/dev/null", 1);
    fake_cl_install();
}

void routed_set_device(bool discrete)
{
    fake_cl.discrete = discrete;
    setenv("CLBLAS_SHIM_DEVICE", discrete ? "gpu" : "cpu", 1);
}

/* ---- calls that the next library makes ---- */

long routed_products;
bool routed_product_taken;

void routed_call_product(void)
{
    static uint64_t state = 1;
    struct gemm_case g = {.precision = CLB_S, .m = 20, .n = 9, .k = 14, .alpha = 1, .beta = 1};
    gemm_make(&g, &state, 3);
    routed_product_taken = routed_gemm(&g);
    gemm_check(&g, "nested");
    gemm_free(&g);
    routed_products++;
}
