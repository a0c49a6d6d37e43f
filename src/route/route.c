/* Routing: guard, policy, outcome, recovery. */
#include "route.h"

#include <math.h>
#include <pthread.h>

/* This thread is inside a device call of the shim: whatever it calls goes straight to next. */
static CLB_THREAD bool inside;

/* ---- gates: what the interface may decline without asking ------------------------------------ */

static pthread_once_t configured = PTHREAD_ONCE_INIT;

static bool calls_are_observed(void)
{
    return clb_stats_wanted() || clb_log_wanted(CLB_LOG_DEBUG);
}

/* The threshold on the work of a routine: +inf in `off`, 0 in `always`, negative when the device's
 * table decides. */
static double work_threshold(const char *routine)
{
    double edge;
    switch (clb_config_get()->mode) {
    case CLB_MODE_OFF:
        return INFINITY;
    case CLB_MODE_ALWAYS:
        return 0;
    default:
        edge = clb_config_threshold(routine);
        return edge < 0 ? -1 : edge * edge * edge;
    }
}

static double thresholds[CLB_ROUTINES];

static void configure(void)
{
    clb_tuning_check_config(clb_config_get());
    clb_stats_configure();
    clb_report_configure();
    double lowest = clb_tuning_lowest_threshold();
    for (int r = 0; r < CLB_ROUTINES; r++)
        thresholds[r] = work_threshold(clb_routine_get((clb_routine)r)->name);
    for (int s = 0; s < CLB_SYMBOLS && !calls_are_observed(); s++) {
        double threshold = thresholds[clb_symbols[s].routine];
        atomic_store(&clb_symbols[s].gate, threshold < 0 ? lowest * lowest * lowest : threshold);
    }
}

void clb_route_configure(void)
{
    pthread_once(&configured, configure);
}

/* There will be no device any more in this process. */
static CLB_COLD void close_gates(void)
{
    for (int s = 0; s < CLB_SYMBOLS && !calls_are_observed(); s++)
        atomic_store(&clb_symbols[s].gate, INFINITY);
}

/* ---- guard: is it a call that computes anything? --------------------------------------------- */

static bool is_zero(clb_precision precision, const void *value)
{
    const float *single = value;
    const double *full = value;
    switch (precision) {
    case CLB_S:
        return single[0] == 0;
    case CLB_D:
        return full[0] == 0;
    case CLB_C:
        return single[0] == 0 && single[1] == 0;
    default:
        return full[0] == 0 && full[1] == 0;
    }
}

/* The checks of the reference xGEMM, in its terms. */
static bool is_valid(const struct clb_gemm_call *call)
{
    clb_op transa = call->problem.transa, transb = call->problem.transb;
    if (!call->layout_valid || transa == CLB_OP_INVALID || transb == CLB_OP_INVALID ||
        call->m < 0 || call->n < 0 || call->k < 0)
        return false;
    int64_t rows_a = transa == CLB_OP_N ? call->m : call->k;
    int64_t rows_b = transb == CLB_OP_N ? call->k : call->n;
    return call->lda >= (rows_a > 1 ? rows_a : 1) && call->ldb >= (rows_b > 1 ? rows_b : 1) &&
           call->ldc >= (call->m > 1 ? call->m : 1);
}

/* Nothing to multiply: the reference returns, scales or clears C. */
static bool is_quick(const struct clb_gemm_call *call)
{
    const struct clb_gemm *problem = &call->problem;
    return call->m == 0 || call->n == 0 || call->k == 0 ||
           is_zero(problem->precision, problem->alpha);
}

static void take_sizes(struct clb_gemm_call *call)
{
    call->problem.m = (size_t)call->m;
    call->problem.n = (size_t)call->n;
    call->problem.k = (size_t)call->k;
    call->problem.lda = (size_t)call->lda;
    call->problem.ldb = (size_t)call->ldb;
    call->problem.ldc = (size_t)call->ldc;
}

/* ---- policy ---------------------------------------------------------------------------------- */

/* What needs no device to be decided. CLB_REASONS: nothing speaks against the device. */
static clb_reason decide_early(const struct clb_gemm_call *call, clb_routine routine, double work)
{
    double threshold = thresholds[routine], lowest = clb_tuning_lowest_threshold();
    if (clb_config_get()->mode == CLB_MODE_OFF)
        return CLB_REASON_OFF;
    if (!is_valid(call))
        return CLB_REASON_INVALID;
    if (is_quick(call))
        return CLB_REASON_QUICK;
    if (inside)
        return CLB_REASON_REENTRANT;
    if (work < (threshold < 0 ? lowest * lowest * lowest : threshold))
        return CLB_REASON_SMALL;
    return CLB_REASONS;
}

static clb_reason reason_of_state(clb_runtime_state state)
{
    switch (state) {
    case CLB_RUNTIME_ABANDONED:
        return CLB_REASON_FORKED;
    case CLB_RUNTIME_QUARANTINED:
        return CLB_REASON_QUARANTINED;
    default:
        return CLB_REASON_NODEVICE;
    }
}

/* What the device has to say. The table's threshold stands unless the user gave one. */
static clb_reason decide_on_device(struct clb_runtime *runtime, const struct clb_gemm *problem,
                                   clb_routine routine, double work,
                                   const struct clb_gemm_variant **variant)
{
    struct clb_gemm_tuning tuning;
    if (clb_precision_real_size(problem->precision) == sizeof(double) && !runtime->device.fp64)
        return CLB_REASON_NOFP64;
    if (thresholds[routine] < 0) {
        if (clb_tuning_gemm(&runtime->device, problem->precision, clb_config_get()->math, 0,
                            &tuning) != CLB_OK)
            return CLB_REASON_NODEVICE;
        if (work < tuning.threshold * tuning.threshold * tuning.threshold)
            return CLB_REASON_SMALL;
        if (clb_min(clb_min(problem->m, problem->n), problem->k) < tuning.smallest)
            return CLB_REASON_COST;
    }
    switch (clb_gemm_variant_get(runtime, problem->precision, variant)) {
    case CLB_OK:
        break;
    case CLB_ERR_NOMEM:
        return CLB_REASON_NOMEMORY;
    case CLB_ERR_UNSUPPORTED:
        return CLB_REASON_QUARANTINED;
    default:
        return CLB_REASON_NODEVICE;
    }
    return clb_config_get()->mode == CLB_MODE_DRY_RUN ? CLB_REASON_DRY_RUN : CLB_REASONS;
}

/* ---- outcome --------------------------------------------------------------------------------- */

struct outcome {
    clb_reason reason; /* CLB_REASONS: it ran on the device */
    clb_status status;
    struct clb_gemm_progress progress;
    const struct clb_gemm_variant *variant;
    double seconds;
};

/* The part of C that the device has written, between 0 and 1. */
static double written_share(const struct clb_gemm *problem,
                            const struct clb_gemm_progress *progress)
{
    double area = 0;
    for (size_t i = 0; i < progress->parts; i++) {
        const struct clb_rect *part = &progress->part[i];
        area += progress->written[i] ? (double)part->rows * (double)part->cols : 0;
    }
    return area / ((double)problem->m * (double)problem->n);
}

/* Everything that may enter the driver, with the thread guarded. */
static struct outcome run_on_device(const struct clb_gemm *problem, clb_routine routine,
                                    double work)
{
    struct outcome outcome = {.reason = CLB_REASONS};
    struct clb_guest guest;
    clb_runtime_state state;
    clb_guest_enter(&guest);
    inside = true;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL) {
        close_gates();
        outcome.reason = reason_of_state(state);
    } else {
        outcome.reason = decide_on_device(runtime, problem, routine, work, &outcome.variant);
    }
    if (outcome.reason == CLB_REASONS) {
        double begin = calls_are_observed() ? clb_now() : 0;
        outcome.status = clb_gemm_run(runtime, outcome.variant, problem, &outcome.progress);
        outcome.seconds = calls_are_observed() ? clb_now() - begin : 0;
        /* Only OpenCL's own failures speak against the device: memory may be another call's just
         * now, and operands may be out of a kernel's range. */
        if (outcome.status == CLB_ERR_NOMEM && written_share(problem, &outcome.progress) == 0)
            outcome.reason = CLB_REASON_NOMEMORY;
        else if (outcome.status == CLB_OK || outcome.status == CLB_ERR_OPENCL)
            clb_runtime_report(outcome.status == CLB_OK);
    }
    inside = false;
    clb_guest_leave(&guest);
    return outcome;
}

static size_t count_written(const struct clb_gemm_progress *progress)
{
    size_t count = 0;
    for (size_t i = 0; i < progress->parts; i++)
        count += progress->written[i];
    return count;
}

/* Contract 2: the parts that the device has not written are computed by the next library. */
static void recover(const struct clb_target *target, const struct clb_gemm *problem,
                    const struct clb_gemm_progress *progress, clb_next_gemm next)
{
    if (count_written(progress) == 0) {
        next(target, problem);
        return;
    }
    for (size_t i = 0; i < progress->parts; i++) {
        struct clb_gemm part = clb_gemm_part(problem, &progress->part[i]);
        if (!progress->written[i])
            next(target, &part);
    }
}

static void log_call(const struct clb_symbol *symbol, const struct clb_gemm_call *call,
                     const char *where, const char *detail, double seconds)
{
    static const char letters[] = {[CLB_OP_N] = 'N', [CLB_OP_T] = 'T', [CLB_OP_C] = 'C'};
    clb_op a = call->problem.transa, b = call->problem.transb;
    clb_log(CLB_LOG_DEBUG, "%s %c%c m=%lld n=%lld k=%lld -> %s (%s) %.3f ms", symbol->next.name,
            a == CLB_OP_INVALID ? '?' : letters[a], b == CLB_OP_INVALID ? '?' : letters[b],
            (long long)call->m, (long long)call->n, (long long)call->k, where, detail,
            1e3 * seconds);
}

static bool decline(const struct clb_symbol *symbol, const struct clb_gemm_call *call,
                    clb_reason reason, double flops)
{
    if (clb_stats_wanted())
        clb_stats_declined(symbol, reason, flops);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(symbol, call, "next", clb_reason_name(reason), 0);
    return false;
}

static const char *kernel_name(const struct outcome *outcome)
{
    const char *used = outcome->progress.kernel;
    return used != NULL ? used : outcome->variant->name;
}

static void finish(const struct clb_symbol *symbol, const struct clb_target *target,
                   const struct clb_gemm_call *call, struct outcome *outcome, clb_next_gemm next,
                   double flops)
{
    bool recovered = outcome->status != CLB_OK;
    double begin = recovered && calls_are_observed() ? clb_now() : 0;
    double seconds_next = 0;
    double share = recovered ? written_share(&call->problem, &outcome->progress) : 1;
    if (recovered) {
        clb_log(CLB_LOG_WARN, "%s: %s after %zu of %zu parts, the next BLAS computes the rest",
                symbol->next.name, clb_status_name(outcome->status),
                count_written(&outcome->progress), outcome->progress.parts);
        recover(target, &call->problem, &outcome->progress, next);
        seconds_next = calls_are_observed() ? clb_now() - begin : 0;
    }
    if (clb_stats_wanted())
        clb_stats_computed(symbol, kernel_name(outcome), recovered, flops, flops * share,
                           outcome->seconds, seconds_next);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(symbol, call, recovered ? "recovered" : "device", kernel_name(outcome),
                 outcome->seconds + seconds_next);
}

bool clb_route_gemm(struct clb_symbol *symbol, const struct clb_target *target,
                    struct clb_gemm_call *call, clb_next_gemm next)
{
    clb_route_configure();
    const struct clb_routine_info *routine = clb_routine_get(symbol->routine);
    double m = (double)call->m, n = (double)call->n, k = (double)call->k;
    double work = routine->work(m, n, k);
    bool counts = call->m > 0 && call->n > 0 && call->k > 0;
    double flops = counts ? routine->flops(m, n, k) : 0;
    clb_reason reason = decide_early(call, symbol->routine, work);
    if (reason != CLB_REASONS)
        return decline(symbol, call, reason, flops);
    take_sizes(call);
    struct outcome outcome = run_on_device(&call->problem, symbol->routine, work);
    bool computed = outcome.reason == CLB_REASONS;
    if (computed)
        finish(symbol, target, call, &outcome, next, flops);
    clb_gemm_progress_free(&outcome.progress);
    return computed || decline(symbol, call, outcome.reason, flops);
}
