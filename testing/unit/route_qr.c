/* xGEQRF, xORMQR and xORGQR, and the same of LQ, through the route layer with a next library of
 * plain loops: the reasons for which calls are declined, workspaces, what panels are asked of, and
 * a device that fails. */
#include "dense_qr.h"
#include "fakecl.h"
#include "routed.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed;
static _Atomic long next_geqrf_calls, next_geqrt_calls, next_ormqr_calls, next_orgqr_calls,
    next_lq_calls;
static bool geqrt_fails;

/* ---- the next library ------------------------------------------------------------------------ */

/* False for a query. The workspace is the caller's, of which some is used. */
static bool use_work(const struct clb_host_blas *host, size_t least, clb_precision precision)
{
    const size_t element = clb_precision_size(precision);
    if (host->lwork == -1) {
        memcpy(host->work, clb_scalar_one(precision), element);
        return false;
    }
    expect(host->lwork >= (int64_t)least, "a workspace of %lld for %zu", (long long)host->lwork,
           least);
    memset(host->work, 0, least * element);
    return true;
}

static size_t call_geqrf(const struct clb_host_blas *host, const struct clb_call *p)
{
    const bool adjoint = clb_call_is_adjoint(p);
    if (!use_work(host, adjoint ? p->m : p->n, p->precision))
        return 0;
    next_geqrf_calls++;
    next_lq_calls += adjoint;
    return clb_host_call(&dense_qr_next, p);
}

static bool call_geqrt(const struct clb_host_blas *host, const struct clb_call *p)
{
    (void)host;
    next_geqrt_calls++;
    if (!geqrt_fails)
        clb_host_call(&dense_qr_next, p);
    return !geqrt_fails;
}

static size_t call_ormqr(const struct clb_host_blas *host, const struct clb_call *p)
{
    if (!use_work(host, p->right ? p->m : p->n, p->precision))
        return 0;
    next_ormqr_calls++;
    next_lq_calls += clb_call_is_adjoint(p);
    return clb_host_call(&dense_qr_next, p);
}

static size_t call_orgqr(const struct clb_host_blas *host, const struct clb_call *p)
{
    const bool adjoint = clb_call_is_adjoint(p);
    if (!use_work(host, adjoint ? p->m : p->n, p->precision))
        return 0;
    next_orgqr_calls++;
    next_lq_calls += adjoint;
    return clb_host_call(&dense_qr_next, p);
}

static const struct clb_host_blas complete_next = {.of = {[CLB_KIND_geqrf] = call_geqrf,
                                                          [CLB_KIND_ormqr] = call_ormqr,
                                                          [CLB_KIND_orgqr] = call_orgqr},
                                                   .geqrt = call_geqrt};

/* ---- calls ----------------------------------------------------------------------------------- */

enum routine { GEQRF, ORMQR, ORGQR, GELQF, ORMLQ, ORGLQ, ROUTINES };

struct call {
    enum routine routine; /* of QR */
    bool lq;
    struct clb_call call;
    struct clb_host_blas next;
    int32_t info;
    struct dense a, c, expected; /* expected: of C, or of A for orgqr */
    struct dense adjoint;        /* lq: what the call gets for A */
    char *tau, *work;
    size_t tau_bytes, work_bytes;
};

static struct clb_symbol *symbol_of(enum routine routine, clb_precision precision)
{
    static const clb_symbol_id ids[ROUTINES][CLB_PRECISIONS] = {
        {CLB_SYMBOL_sgeqrf_plain, CLB_SYMBOL_dgeqrf_plain, CLB_SYMBOL_cgeqrf_plain,
         CLB_SYMBOL_zgeqrf_plain},
        {CLB_SYMBOL_sormqr_plain, CLB_SYMBOL_dormqr_plain, CLB_SYMBOL_cunmqr_plain,
         CLB_SYMBOL_zunmqr_plain},
        {CLB_SYMBOL_sorgqr_plain, CLB_SYMBOL_dorgqr_plain, CLB_SYMBOL_cungqr_plain,
         CLB_SYMBOL_zungqr_plain},
        {CLB_SYMBOL_sgelqf_plain, CLB_SYMBOL_dgelqf_plain, CLB_SYMBOL_cgelqf_plain,
         CLB_SYMBOL_zgelqf_plain},
        {CLB_SYMBOL_sormlq_plain, CLB_SYMBOL_dormlq_plain, CLB_SYMBOL_cunmlq_plain,
         CLB_SYMBOL_zunmlq_plain},
        {CLB_SYMBOL_sorglq_plain, CLB_SYMBOL_dorglq_plain, CLB_SYMBOL_cunglq_plain,
         CLB_SYMBOL_zunglq_plain}};
    return &clb_symbols[ids[routine][precision]];
}

/* The least workspace, and a byte pattern behind it and behind tau. */
static void make_arrays(struct call *c, size_t tau, size_t work)
{
    size_t element = clb_precision_size(c->call.precision);
    c->tau_bytes = tau * element;
    c->work_bytes = clb_max(work, 1) * element;
    c->tau = malloc(c->tau_bytes + 16);
    c->work = malloc(c->work_bytes + 16);
    memset(c->tau, 0x5a, c->tau_bytes + 16);
    memset(c->work, 0x5a, c->work_bytes + 16);
    c->call.tau = c->tau;
    c->call.work = c->work;
    c->call.info = &c->info;
    c->call.lwork = (int64_t)clb_max(work, 1);
}

/* The call of LQ that does the same. */
static void make_lq(struct call *c, uint64_t *state)
{
    const bool has_c = c->routine == ORMQR;
    dense_make(&c->adjoint, c->call.precision, c->a.cols, c->a.rows, 5, state);
    dense_set_adjoint(&c->adjoint, &c->a);
    dense_remember(&c->adjoint);
    if (!c->lq)
        return;
    c->call.a = dense_data(&c->adjoint);
    c->call.lda = clb_max(c->adjoint.ld, 1);
    if (has_c)
        return;
    const size_t m = c->call.m;
    c->call.m = c->call.n;
    c->call.n = m;
}

/* geqrf: A is m x n. ormqr: k reflectors from the left on C, m x n, conjugate-transposed; those of
 * LQ as they are. orgqr: m x n from k. LQ has m and n exchanged where C is none. */
static void make_call(struct call *c, enum routine of, clb_precision precision, size_t m, size_t n,
                      size_t k, uint64_t *state)
{
    bool real = clb_precision_parts(precision) == 1, lq = of >= GELQF;
    const enum routine routine = lq ? of - GELQF : of;
    *c = (struct call){.routine = routine, .lq = lq, .next = complete_next};
    dense_make(&c->a, precision, m, routine == ORMQR ? k : n, 5, state);
    dense_make(&c->c, precision, m, n, 5, state);
    c->call = (struct clb_call){.precision = precision,
                                .transa = lq     ? CLB_OP_N
                                          : real ? CLB_OP_T
                                                 : CLB_OP_C,
                                .m = m,
                                .n = n,
                                .k = k,
                                .lda = clb_max(c->a.ld, 1),
                                .ldc = clb_max(c->c.ld, 1),
                                .a = dense_data(&c->a),
                                .c = dense_data(&c->c)};
    make_arrays(c, routine == GEQRF ? clb_min(m, n) : k, n);
    if (routine == GEQRF) {
        make_lq(c, state);
        return;
    }
    struct clb_call vectors = dense_call(CLB_KIND_geqrf, m, k, &c->a);
    vectors.tau = c->tau;
    clb_host_call(&dense_qr_next, &vectors);
    dense_remember(&c->a);
    make_lq(c, state);
    const struct dense *from = routine == ORMQR ? &c->c : &c->a;
    dense_make(&c->expected, precision, m, n, 5, state);
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            dense_set(&c->expected, i, j, dense_get(from, i, j));
    }
    struct clb_call product = dense_call(CLB_KIND_ormqr, m, n, &c->a);
    product.transa = CLB_OP_C;
    product.k = k;
    product.tau = c->tau;
    product.c = dense_data(&c->expected);
    product.ldc = c->expected.ld;
    struct clb_call generation = dense_call(CLB_KIND_orgqr, m, n, &c->expected);
    generation.k = k;
    generation.tau = c->tau;
    if (k > 0)
        clb_host_call(&dense_qr_next, routine == ORMQR ? &product : &generation);
}

static void free_call(struct call *c)
{
    dense_free(&c->a);
    dense_free(&c->adjoint);
    dense_free(&c->c);
    if (c->routine != GEQRF)
        dense_free(&c->expected);
    free(c->tau);
    free(c->work);
}

static bool run(struct call *c)
{
    next_geqrf_calls = next_geqrt_calls = next_ormqr_calls = next_orgqr_calls = next_lq_calls = 0;
    return routed_call(symbol_of(c->routine + (c->lq ? GELQF : 0), c->call.precision), &c->call,
                       &c->next);
}

static bool is_untouched(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != 0x5a)
            return false;
    }
    return true;
}

static void check_call(struct call *c, const char *what, long at)
{
    const struct dense *x = c->routine == ORMQR ? &c->c : &c->a;
    long double worst = 0;
    if (c->lq)
        dense_set_adjoint(&c->a, &c->adjoint);
    expect(is_untouched(c->tau + c->tau_bytes, 16) && is_untouched(c->work + c->work_bytes, 16),
           "%s %ld: written behind tau or work", what, at);
    expect(dense_gaps_intact(&c->a) && dense_gaps_intact(&c->adjoint) && dense_gaps_intact(&c->c),
           "%s %ld: a gap was written", what, at);
    if (c->routine == GEQRF) {
        worst = dense_qr_error(&c->a, c->tau);
        expect(worst <= 3, "%s %ld: error %.3Lg", what, at, worst);
        return;
    }
    for (size_t j = 0; j < x->cols; j++) {
        for (size_t i = 0; i < x->rows; i++)
            worst = fmaxl(worst, cabsl(dense_get(x, i, j) - dense_get(&c->expected, i, j)));
    }
    expect(worst <= 300 * dense_unit(x->precision), "%s %ld: off by %.3Lg", what, at, worst);
}

/* Nothing of a declined call has changed. */
static void check_declined(const struct call *c, const char *what, long at)
{
    expect(dense_intact(&c->a) && dense_intact(&c->adjoint) && dense_intact(&c->c) &&
               is_untouched(c->work, c->work_bytes + 16),
           "%s %ld: a declined call has changed something", what, at);
    expect(c->routine != GEQRF || is_untouched(c->tau, c->tau_bytes), "%s %ld: tau", what, at);
}

static bool run_one(int routine, clb_precision precision, size_t m, size_t n, size_t k)
{
    struct call c;
    make_call(&c, (enum routine)routine, precision, m, n, k, &seed);
    bool taken = run(&c);
    if (taken)
        check_call(&c, "a call", 0);
    else
        check_declined(&c, "a call", 0);
    free_call(&c);
    return taken;
}

static const char *symbol_name(int routine, clb_precision precision)
{
    return symbol_of((enum routine)routine, precision)->next.name;
}

static const struct routed_family family = {
    "gemm.tile=min,gemm.tm=64,gemm.tn=64,gemm.slab=64,geqrf.nb=8,trsm.part=8",
    symbol_name,
    run_one,
    60,
    ROUTINES,
    20,
    0};

static void set_up(const char *mode)
{
    routed_set_up(mode, family.params);
}

/* ---- reasons --------------------------------------------------------------------------------- */

static const struct routed_reason reasons[] = {
    {.reason = "quick",
     .mode = "always",
     .call = {{GEQRF, CLB_Z, 0, 7, 0},
              {GEQRF, CLB_Z, 7, 0, 0},
              {ORMQR, CLB_Z, 7, 0, 3},
              {ORMQR, CLB_Z, 7, 5, 0},
              {ORGQR, CLB_Z, 7, 0, 0},
              {ORGQR, CLB_Z, 7, 5, 0}}},
    {.reason = "quick",
     .mode = "always",
     .call = {{GELQF, CLB_Z, 7, 0, 0}, {ORMLQ, CLB_Z, 7, 5, 0}, {ORGLQ, CLB_Z, 7, 5, 0}}},
};

/* The work is the number of multiplications with an addition. */
static void reason_small(void *unused)
{
    (void)unused;
    setenv("CLBLAS_SHIM_THRESHOLD", "20", 1); /* 8000 */
    set_up("auto");
    expect(!run_one(GEQRF, CLB_S, 22, 22, 0) && run_one(GEQRF, CLB_S, 23, 23, 0), "2*n^3/3");
    expect(!run_one(GEQRF, CLB_S, 90, 9, 0) && run_one(GEQRF, CLB_S, 102, 9, 0), "tall");
    expect(!run_one(ORMQR, CLB_S, 20, 19, 20) && run_one(ORMQR, CLB_S, 20, 20, 20), "n*k*(2*m-k)");
    expect(!run_one(ORGQR, CLB_S, 22, 22, 22) && run_one(ORGQR, CLB_S, 23, 23, 23), "2*n^3/3");
    expect(reported("sgeqrf_", "small") == 2 && reported("sgeqrf_", "device") == 2, "geqrf");
    expect(reported("sormqr_", "small") == 1 && reported("sormqr_", "device") == 1, "ormqr");
    expect(reported("sorgqr_", "small") == 1 && reported("sorgqr_", "device") == 1, "orgqr");
    expect(!run_one(GELQF, CLB_S, 90, 9, 0) && run_one(GELQF, CLB_S, 102, 9, 0), "wide");
    expect(!run_one(ORMLQ, CLB_S, 20, 19, 20) && run_one(ORMLQ, CLB_S, 20, 20, 20), "n*k*(2*m-k)");
    expect(!run_one(ORGLQ, CLB_S, 22, 22, 22) && run_one(ORGLQ, CLB_S, 23, 23, 23), "2*n^3/3");
}

static void reason_query(void *unused)
{
    (void)unused;
    set_up("always");
    for (int routine = 0; routine < ROUTINES; routine++) {
        struct call c;
        make_call(&c, (enum routine)routine, CLB_D, 30, 30, 20, &seed);
        c.call.lwork = -1;
        expect(!run(&c), "a query was taken");
        check_declined(&c, "query", routine);
        free_call(&c);
    }
    expect_declined("dgeqrf_", "query", 1);
    expect_declined("dormqr_", "query", 1);
    expect_declined("dorgqr_", "query", 1);
    expect_declined("dgelqf_", "query", 1);
    expect_declined("dormlq_", "query", 1);
    expect_declined("dorglq_", "query", 1);
    expect(reported("dgeqrf_", "flops") == 0, "a query counts as the work of the call");
}

static void reason_invalid(void *unused)
{
    static const struct {
        enum routine routine;
        clb_precision precision;
        int64_t m, n, k, lda, ldc, lwork;
        clb_op trans;
        bool right, bad_side;
    } bad[] = {
        {GEQRF, CLB_D, -1, 5, 0, 5, 5, 5, CLB_OP_N, false, false},
        {GEQRF, CLB_D, 5, -1, 0, 5, 5, 5, CLB_OP_N, false, false},
        {GEQRF, CLB_D, 5, 5, 0, 4, 5, 5, CLB_OP_N, false, false},
        {GEQRF, CLB_D, 5, 5, 0, 5, 5, 4, CLB_OP_N, false, false},
        {GEQRF, CLB_D, 5, 0, 0, 5, 5, 0, CLB_OP_N, false, false},
        {GEQRF, CLB_D, 5, 5, 0, 5, 5, -2, CLB_OP_N, false, false},
        {ORMQR, CLB_D, -1, 5, 2, 5, 5, 5, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 5, -1, 2, 5, 5, 5, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 5, 5, -1, 5, 5, 5, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 5, 8, 6, 5, 5, 8, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 8, 5, 6, 8, 8, 8, CLB_OP_N, true, false},
        {ORMQR, CLB_D, 5, 5, 2, 4, 5, 5, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 5, 5, 2, 5, 4, 5, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 5, 5, 2, 5, 5, 4, CLB_OP_N, false, false},
        {ORMQR, CLB_D, 6, 5, 2, 6, 6, 5, CLB_OP_N, true, false},
        {ORMQR, CLB_D, 5, 5, 2, 5, 5, 5, CLB_OP_C, false, false},
        {ORMQR, CLB_Z, 5, 5, 2, 5, 5, 5, CLB_OP_T, false, false},
        {ORMQR, CLB_Z, 5, 5, 2, 5, 5, 5, CLB_OP_INVALID, false, false},
        {ORMQR, CLB_Z, 5, 5, 2, 5, 5, 5, CLB_OP_N, false, true},
        {ORGQR, CLB_D, 5, 6, 2, 5, 5, 6, CLB_OP_N, false, false},
        {ORGQR, CLB_D, 5, -1, -2, 5, 5, 6, CLB_OP_N, false, false},
        {ORGQR, CLB_D, 5, 4, 5, 5, 5, 6, CLB_OP_N, false, false},
        {ORGQR, CLB_D, 5, 4, -1, 5, 5, 6, CLB_OP_N, false, false},
        {ORGQR, CLB_D, 5, 4, 4, 4, 5, 6, CLB_OP_N, false, false},
        {ORGQR, CLB_D, 5, 4, 4, 5, 5, 3, CLB_OP_N, false, false},
        {GELQF, CLB_D, 5, 5, 0, 4, 5, 5, CLB_OP_N, false, false},
        {GELQF, CLB_D, 5, 2, 0, 5, 5, 4, CLB_OP_N, false, false},
        {ORMLQ, CLB_D, 5, 8, 6, 6, 5, 8, CLB_OP_N, false, false},
        {ORMLQ, CLB_D, 5, 5, 3, 2, 5, 5, CLB_OP_N, false, false},
        {ORMLQ, CLB_D, 6, 5, 2, 2, 6, 5, CLB_OP_N, true, false},
        {ORGLQ, CLB_D, 6, 5, 2, 6, 5, 6, CLB_OP_N, false, false},
        {ORGLQ, CLB_D, 4, 5, 5, 4, 5, 6, CLB_OP_N, false, false},
        {ORGLQ, CLB_D, 4, 5, 4, 3, 5, 6, CLB_OP_N, false, false},
        {ORGLQ, CLB_D, 4, 5, 4, 4, 5, 3, CLB_OP_N, false, false},
    };
    (void)unused;
    set_up("always");
    for (size_t i = 0; i < CLB_COUNT_OF(bad); i++) {
        struct call c;
        make_call(&c, bad[i].routine, bad[i].precision, 8, 8, 8, &seed);
        c.call.m = (size_t)bad[i].m;
        c.call.n = (size_t)bad[i].n;
        c.call.k = (size_t)bad[i].k;
        c.call.lda = (size_t)bad[i].lda;
        c.call.ldc = (size_t)bad[i].ldc;
        c.call.lwork = bad[i].lwork;
        c.call.transa = bad[i].trans;
        c.call.right = bad[i].right;
        c.call.invalid = bad[i].bad_side ? 's' : 0;
        expect(!run(&c), "call %zu was taken", i);
        check_declined(&c, "invalid", (long)i);
        free_call(&c);
    }
    expect_declined("dgeqrf_", "invalid", 6);
    expect_declined("dormqr_", "invalid", 10);
    expect_declined("zunmqr_", "invalid", 3);
    expect_declined("dorgqr_", "invalid", 6);
    expect_declined("dgelqf_", "invalid", 2);
    expect_declined("dormlq_", "invalid", 3);
    expect_declined("dorglq_", "invalid", 4);
}

/* Without the functions that would finish it, and where all of it is one panel. */
static void reason_cost(void *unused)
{
    (void)unused;
    set_up("always");
    for (int routine = 0; routine < ROUTINES; routine++) {
        struct call c;
        make_call(&c, (enum routine)routine, CLB_C, 30, 30, 20, &seed);
        c.next.of[CLB_KIND_ormqr] = NULL;
        c.next.of[CLB_KIND_orgqr] = NULL;
        expect(!run(&c), "taken");
        check_declined(&c, "no siblings", routine);
        free_call(&c);
    }
    expect_declined("cgeqrf_", "cost", 1);
    expect_declined("cunmqr_", "cost", 1);
    expect_declined("cungqr_", "cost", 1);
    expect_declined("cgelqf_", "cost", 1);
    expect_declined("cunmlq_", "cost", 1);
    expect_declined("cunglq_", "cost", 1);
    run_one(GEQRF, CLB_D, 40, 8, 0);
    expect_declined("dgeqrf_", "cost", 1);
    expect(reported("dgeqrf_", "flops_device") == 0, "operations on the device");
    expect(run_one(GEQRF, CLB_D, 8, 40, 0), "a panel with columns on its right");
    expect(reported("dgeqrf_", "device") == 1 && reported("dgeqrf_", "flops_device") > 0, "device");
}

/* ---- panels ---------------------------------------------------------------------------------- */

static void panels(void *unused)
{
    struct call c;
    (void)unused;
    set_up("always");
    make_call(&c, GEQRF, CLB_Z, 40, 30, 0, &seed);
    expect(run(&c) && next_geqrt_calls == 4 && next_geqrf_calls == 0, "%ld and %ld panels",
           next_geqrt_calls, next_geqrf_calls);
    check_call(&c, "by geqrt", 0);
    free_call(&c);
    make_call(&c, GEQRF, CLB_D, 40, 30, 0, &seed);
    c.next.geqrt = NULL;
    expect(run(&c) && next_geqrt_calls == 0 && next_geqrf_calls == 4, "without geqrt");
    check_call(&c, "by geqrf", 0);
    free_call(&c);
    make_call(&c, GEQRF, CLB_D, 40, 30, 0, &seed);
    geqrt_fails = true;
    expect(run(&c) && next_geqrt_calls == 4 && next_geqrf_calls == 4, "without memory");
    check_call(&c, "without memory", 0);
    free_call(&c);
}

/* ---- a device that fails --------------------------------------------------------------------- */

/* The next library finishes with the least workspace, tau and all. */
static void call_failing(const struct routed_failing *setting, long at)
{
    struct call c;
    uint64_t state = setting->seed;
    make_call(&c, (enum routine)setting->routine, setting->precision, 40, 30, 20, &state);
    if (expect(run(&c), "call %ld: declined", at))
        check_call(&c, setting->name, at);
    /* All but the panels of a factorisation, which are geqrt's, is asked for in LQ's form. */
    expect(next_lq_calls == (c.lq ? next_geqrf_calls + next_ormqr_calls + next_orgqr_calls : 0),
           "call %ld: %ld of LQ", at, next_lq_calls);
    free_call(&c);
}

static struct routed_failing failing[] = {
    {"dgeqrf in place", NULL, GEQRF, CLB_D, false, false, 0},
    {"cgeqrf in own memory", NULL, GEQRF, CLB_C, true, false, 0},
    {"zunmqr in place", NULL, ORMQR, CLB_Z, false, false, 0},
    {"sormqr in own memory", NULL, ORMQR, CLB_S, true, false, 0},
    {"sorgqr in place", NULL, ORGQR, CLB_S, false, false, 0},
    {"dorgqr in own memory", NULL, ORGQR, CLB_D, true, false, 0},
    {"zgelqf in place", NULL, GELQF, CLB_Z, false, false, 0},
    {"dgelqf in own memory", NULL, GELQF, CLB_D, true, false, 0},
    {"cunmlq in own memory", NULL, ORMLQ, CLB_C, true, false, 0},
    {"dormlq in place", NULL, ORMLQ, CLB_D, false, false, 0},
    {"zunglq in own memory", NULL, ORGLQ, CLB_Z, true, false, 0},
};

static const struct tap_test tests[] = {
    {"small", reason_small, NULL},     {"queries", reason_query, NULL},
    {"invalid", reason_invalid, NULL}, {"cost", reason_cost, NULL},
    {"panels", panels, NULL},
};

int main(void)
{
    seed = tap_seed();
    routed_test_usual(&family);
    routed_test_reasons(&family, reasons, CLB_COUNT_OF(reasons));
    tap_children(60, tests, CLB_COUNT_OF(tests));
    routed_test_failures(&family, failing, CLB_COUNT_OF(failing), &seed, call_failing);
    return tap_done();
}
