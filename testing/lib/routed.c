/* Calls through the route layer. */
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

_Atomic long next_calls;
_Atomic size_t next_entries;
void (*next_hook)(void);

static size_t fake_next(const struct clb_host_blas *host, const struct clb_call *p)
{
    (void)host;
    next_calls++;
    next_entries += p->m * p->n;
    if (next_hook != NULL)
        next_hook();
    gemm_plain(p->precision, p->transa, p->transb, p->m, p->n, p->k, p->alpha, p->a, p->lda, p->b,
               p->ldb, p->beta, p->c, p->ldc);
    return 0;
}

bool routed_gemm(const struct gemm_case *g)
{
    const bool single = g->precision == CLB_S;
    const struct clb_gemm problem = gemm_problem(g);
    struct clb_symbol *symbol =
        &clb_symbols[single ? CLB_SYMBOL_sgemm_plain : CLB_SYMBOL_dgemm_plain];
    struct clb_host_blas next = {.of = {[CLB_KIND_gemm] = fake_next}};
    struct clb_call call = {
        .precision = g->precision,
        .transa = g->transa,
        .transb = g->transb,
        .alpha = problem.alpha,
        .beta = problem.beta,
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

/* ---- declined calls -------------------------------------------------------------------------- */

static int larger(int x, int y)
{
    return x < y ? y : x;
}

struct reason_run {
    const struct routed_family *family;
    const struct routed_reason *reason;
};

static bool is_call(const struct routed_reason *reason, size_t i)
{
    return i < ROUTED_CALLS &&
           reason->call[i].m + reason->call[i].n + reason->call[i].k + (size_t)(i == 0) > 0;
}

static void run_reason(void *argument)
{
    const struct reason_run *run = argument;
    const struct routed_reason *reason = run->reason;
    if (reason->variable != NULL)
        setenv(reason->variable, reason->value, 1);
    fake_cl.no_fp64 = reason->no_fp64;
    routed_set_up(reason->mode, run->family->params);
    for (int time = 0; time < larger(reason->times, 1); time++) {
        for (size_t i = 0; is_call(reason, i); i++)
            expect(!run->family->run_one(reason->call[i].routine, reason->call[i].precision,
                                         reason->call[i].m, reason->call[i].n, reason->call[i].k),
                   "call %zu was taken", i);
    }
    for (size_t i = 0; is_call(reason, i); i++) {
        const char *symbol =
            run->family->symbol(reason->call[i].routine, reason->call[i].precision);
        double calls = 0;
        for (size_t j = 0; is_call(reason, j); j++)
            calls += strcmp(symbol, run->family->symbol(reason->call[j].routine,
                                                        reason->call[j].precision)) == 0;
        expect_declined(symbol, reason->reason, calls * larger(reason->times, 1));
    }
    if (strcmp(reason->reason, "off") == 0 || strcmp(reason->reason, "nodevice") == 0)
        expect(fake_cl.of[FAKE_GetPlatformIDs] == 0, "OpenCL was started");
}

void routed_test_reasons(const struct routed_family *family, const struct routed_reason *reasons,
                         size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct reason_run run = {family, &reasons[i]};
        tap_child(reasons[i].reason, 60, run_reason, &run);
    }
}

void routed_test_usual(const struct routed_family *family)
{
    static const struct routed_reason usual[] = {
        {.reason = "off", .mode = "off"},
        {.reason = "nofp64", .mode = "always", .no_fp64 = true},
        {.reason = "dry-run",
         .mode = "dry-run",
         .variable = "CLBLAS_SHIM_THRESHOLD",
         .value = "10"},
        {.reason = "nomemory",
         .mode = "always",
         .variable = "CLBLAS_SHIM_MEMORY",
         .value = "2K",
         .times = 4},
    };
    for (size_t i = 0; i < CLB_COUNT_OF(usual); i++) {
        struct routed_reason reason = usual[i];
        const bool memory = strcmp(reason.reason, "nomemory") == 0;
        size_t calls = 0;
        for (int routine = 0; routine < family->routines; routine++) {
            const clb_precision full = reason.no_fp64 && routine % 2 == 0 ? CLB_Z : CLB_D;
            if (memory && (family->small >> routine & 1) != 0)
                continue;
            reason.call[calls].routine = routine;
            reason.call[calls].precision = strcmp(reason.mode, "dry-run") == 0 ? CLB_S : full;
            reason.call[calls].m = reason.call[calls].n = memory ? 40 : 30;
            reason.call[calls++].k = family->k;
        }
        routed_test_reasons(family, &reason, 1);
    }
}

/* ---- failures -------------------------------------------------------------------------------- */

struct failing_run {
    const struct routed_family *family;
    const struct routed_failing *setting;
    void (*call)(const struct routed_failing *setting, long at);
};

static long run_failing(const struct failing_run *run, long at)
{
    fake_cl.run_anyway = at % 3 == 0;
    fake_cl_arm(at, CL_OUT_OF_RESOURCES, false);
    run->call(run->setting, at);
    long calls = fake_cl.calls;
    fake_cl_arm(0, 0, false);
    return calls;
}

static void fail_every_call(void *argument)
{
    const struct failing_run *run = argument;
    const struct routed_failing *setting = run->setting;
    const char *symbol = run->family->symbol(setting->routine, setting->precision);
    long calls = 0;
    setenv("CLBLAS_SHIM_MEMORY", "256M", 1);
    routed_set_device(setting->discrete);
    routed_set_up("always", setting->params != NULL ? setting->params : run->family->params);
    for (int i = 0; i < 3; i++)
        calls = run_failing(run, 0);
    expect(reported(symbol, "device") == 3, "the device did not compute the first calls");
    const long most = run->family->most, step = most == 0 ? tap_step(calls) : 1 + calls / most;
    uint64_t state = setting->seed;
    for (long at = 1 + (long)random_below(&state, (size_t)step); at <= calls; at += step) {
        run_failing(run, at);
        if (at % 2 == 0 || step > 1) /* three failures in a row would end it */
            run_failing(run, 0);
    }
    double recovered = reported(symbol, "recovered");
    expect(calls > 20, "only %ld calls", calls);
    /* The failure of one that asks changes nothing; slow threads ask more often. */
    const double least = tap_full() ? 0.5 : 0.3;
    expect(recovered > least * (double)(calls / step), "only %g of %ld calls recovered", recovered,
           calls / step);
    expect(reported(symbol, "quarantined") == 0, "quarantined");
    expect_sums(symbol);
    tap_note("%ld OpenCL calls, %g recovered", calls, recovered);
}

void routed_test_failures(const struct routed_family *family, struct routed_failing *settings,
                          size_t count, uint64_t *seed,
                          void (*call)(const struct routed_failing *setting, long at))
{
    for (size_t i = 0; i < count; i++) {
        struct failing_run run = {family, &settings[i], call};
        char name[100];
        settings[i].seed = random_bits(seed);
        snprintf(name, sizeof name, "%s: every OpenCL call fails", settings[i].name);
        tap_child(name, 240, fail_every_call, &run);
    }
}

/* ---- calls that the next library makes ------------------------------------------------------- */

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
