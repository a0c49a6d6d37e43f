/* The part of routing that is the same for all routines: min_work, policy, outcome, statistics,
 * log.
 */
#include "dispatch.h"

#include <math.h>
#include <pthread.h>

/* This thread is inside a device call of the shim: BLAS calls that it makes are declined. */
static CLB_THREAD bool inside;

bool clb_route_set_inside(bool now)
{
    bool before = inside;
    inside = now;
    return before;
}

/* A LAPACKE call that was declined. The next library's function calls the Fortran name, with the
 * same routine and sizes: that call is declined without deciding or counting again. Only a value is
 * stored, so nothing leaks when an error handler jumps out of the call; but then one later call of
 * the same routine and sizes may be declined and not counted. */
static CLB_THREAD struct {
    const struct clb_symbol *symbol;
    int64_t m, n, k;
} declined;

void clb_route_end_declined(void)
{
    declined.symbol = NULL;
}

static void remember_declined(const struct clb_dispatch *dispatch)
{
    if (dispatch->symbol->next.abi != CLB_ABI_LAPACKE)
        return;
    declined.symbol = dispatch->symbol;
    declined.m = dispatch->m;
    declined.n = dispatch->n;
    declined.k = dispatch->k;
}

static bool is_declined_already(const struct clb_dispatch *dispatch)
{
    const struct clb_symbol *symbol = dispatch->symbol;
    if (declined.symbol == NULL || declined.symbol == symbol ||
        declined.symbol->routine != symbol->routine || declined.m != dispatch->m ||
        declined.n != dispatch->n || declined.k != dispatch->k)
        return false;
    if (symbol->next.abi == CLB_ABI_FORTRAN && !dispatch->query)
        clb_route_end_declined();
    return true;
}

/* ---- the tables ------------------------------------------------------------------------------ */

clb_work clb_routine_work(clb_routine routine)
{
    static const clb_work works[CLB_ROUTINES] = {
#define CLB_NAME(name, precision, kind) [CLB_ROUTINE_##name] = CLB_WORK_##kind,
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,    \
                    flags, sizes, work, kind, ...)                                                 \
    CLB_NAMES_##precisions(CLB_NAME, stem, kind)
#include "blas/routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
    };
    return works[routine];
}

const char *clb_reason_name(clb_reason reason)
{
    static const char *const names[CLB_REASONS] = {
#define CLB_REASON(id, name) [CLB_REASON_##id] = name,
#include "reasons.def"
#undef CLB_REASON
    };
    return names[reason];
}

/* ---- min_work: calls that the interface may decline at once ---------------------------------- */

static pthread_once_t configured = PTHREAD_ONCE_INIT;

static bool calls_are_observed(void)
{
    return clb_stats_wanted() || clb_log_wanted(CLB_LOG_DEBUG);
}

static bool runs_are_timed(void)
{
    return calls_are_observed() || clb_trace_wanted();
}

/* The threshold on the work of a routine: +inf in mode `off`, 0 in `always`, negative when the
 * tuning tables decide. */
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
static double lowest[CLB_WORKS];

static const char *routine_name(size_t index)
{
    return index < CLB_ROUTINES ? clb_routine_get((clb_routine)index)->name : NULL;
}

static void configure(void)
{
    clb_tuning_check_config(clb_config_get());
    clb_config_check_names(routine_name);
    clb_stats_configure();
    clb_report_configure();
    for (int w = 0; w < CLB_WORKS; w++)
        lowest[w] = clb_tuning_lowest_threshold((clb_work)w);
    for (int r = 0; r < CLB_ROUTINES; r++)
        thresholds[r] = work_threshold(clb_routine_get((clb_routine)r)->name);
    for (int s = 0; s < CLB_SYMBOLS && !calls_are_observed(); s++) {
        double threshold = thresholds[clb_symbols[s].routine];
        double edge = lowest[clb_routine_work(clb_symbols[s].routine)];
        atomic_store(&clb_symbols[s].min_work, threshold < 0 ? edge * edge * edge : threshold);
    }
}

void clb_route_configure(void)
{
    pthread_once(&configured, configure);
}

/* Called when this process can no longer use a device. */
static CLB_COLD void decline_all(void)
{
    for (int s = 0; s < CLB_SYMBOLS && !calls_are_observed(); s++)
        atomic_store(&clb_symbols[s].min_work, INFINITY);
}

/* ---- policy ---------------------------------------------------------------------------------- */

static double cube(double edge)
{
    return edge * edge * edge;
}

bool clb_dispatch_is_auto(const struct clb_dispatch *dispatch)
{
    return thresholds[dispatch->symbol->routine] < 0;
}

bool clb_scalar_is_zero(clb_precision precision, const void *value)
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

bool clb_diagonal_has_zero(clb_precision precision, size_t n, const void *a, size_t lda)
{
    size_t step = (lda + 1) * clb_precision_size(precision);
    for (size_t i = 0; i < n; i++) {
        if (clb_scalar_is_zero(precision, (const char *)a + i * step))
            return true;
    }
    return false;
}

/* The checks that need no device. CLB_REASONS: no reason to decline the call so far. */
static clb_reason decide_early(const struct clb_dispatch *dispatch, double work)
{
    double threshold = thresholds[dispatch->symbol->routine];
    if (clb_config_get()->mode == CLB_MODE_OFF)
        return CLB_REASON_OFF;
    if (!dispatch->type->is_valid(dispatch))
        return CLB_REASON_INVALID;
    if (dispatch->query)
        return CLB_REASON_QUERY;
    if (dispatch->type->is_quick(dispatch))
        return CLB_REASON_QUICK;
    if (inside)
        return CLB_REASON_REENTRANT;
    if (work <
        (threshold < 0 ? cube(lowest[clb_routine_work(dispatch->symbol->routine)]) : threshold))
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

/* The checks that need the device. The table's threshold applies unless the user has set one. */
static clb_reason decide_on_device(struct clb_runtime *runtime, const struct clb_dispatch *dispatch,
                                   double work, const struct clb_gemm_variant **variant)
{
    clb_precision precision = clb_routine_get(dispatch->symbol->routine)->precision;
    struct clb_gemm_tuning tuning;
    if (clb_precision_real_size(precision) == sizeof(double) && !runtime->device.fp64)
        return CLB_REASON_NOFP64;
    if (clb_dispatch_is_auto(dispatch)) {
        if (clb_tuning_gemm(&runtime->device, precision, clb_config_get()->math, 0, &tuning) !=
            CLB_OK)
            return CLB_REASON_NODEVICE;
        double edge = clb_tuning_offload(&runtime->device, precision, &tuning,
                                         clb_routine_work(dispatch->symbol->routine),
                                         dispatch->next != NULL && dispatch->next->optimised);
        if (work < cube(edge))
            return isinf(edge) ? CLB_REASON_COST : CLB_REASON_SMALL;
        if (dispatch->smallest < tuning.smallest)
            return CLB_REASON_COST;
    }
    switch (clb_gemm_variant_get(runtime, precision, variant)) {
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

/* ---- progress in parts ----------------------------------------------------------------------- */

void clb_dispatch_take_progress(struct clb_dispatch *dispatch,
                                const struct clb_gemm_progress *progress, clb_status status,
                                size_t rows, size_t cols)
{
    double area = 0;
    dispatch->parts = progress->parts;
    dispatch->written = 0;
    dispatch->kernel = progress->kernel;
    for (size_t i = 0; i < progress->parts; i++) {
        const struct clb_rect *part = &progress->part[i];
        dispatch->written += progress->written[i];
        area += progress->written[i] ? (double)part->rows * (double)part->cols : 0;
    }
    dispatch->share = status == CLB_OK ? 1 : area / ((double)rows * (double)cols);
}

bool clb_dispatch_complete_parts(struct clb_dispatch *dispatch,
                                 const struct clb_gemm_progress *progress, clb_status status,
                                 void (*compute)(struct clb_dispatch *, const struct clb_rect *))
{
    if (status == CLB_OK)
        return false;
    if (dispatch->written == 0)
        compute(dispatch, NULL);
    for (size_t i = 0; dispatch->written > 0 && i < progress->parts; i++) {
        if (!progress->written[i])
            compute(dispatch, &progress->part[i]);
    }
    return true;
}

/* ---- outcome --------------------------------------------------------------------------------- */

struct outcome {
    clb_reason reason; /* CLB_REASONS: it ran on the device */
    clb_status status;
    const char *kernel;
    double seconds;
};

static struct outcome route_run(struct clb_dispatch *dispatch, struct clb_runtime *runtime,
                                const struct clb_gemm_variant *variant)
{
    struct outcome outcome = {.reason = CLB_REASONS, .kernel = variant->name};
    double begin = runs_are_timed() ? clb_now() : 0;
    dispatch->declined = CLB_REASONS;
    if (dispatch->lapacke != NULL)
        outcome.reason = clb_lapacke_open(dispatch->lapacke);
    if (outcome.reason != CLB_REASONS)
        return outcome;
    outcome.status = dispatch->type->run(dispatch, runtime, variant);
    outcome.seconds = runs_are_timed() ? clb_now() - begin : 0;
    if (clb_trace_wanted())
        clb_trace_since(dispatch->symbol->next.name, begin);
    if (dispatch->kernel != NULL)
        outcome.kernel = dispatch->kernel;
    /* Only failures of OpenCL count against the device: memory may be in use by another call, and
     * operands may be out of a kernel's range. */
    if (dispatch->declined != CLB_REASONS)
        outcome.reason = dispatch->declined;
    else if (outcome.status == CLB_ERR_NOMEM && dispatch->written == 0)
        outcome.reason = CLB_REASON_NOMEMORY;
    else if (outcome.status == CLB_ERR_UNSUPPORTED && dispatch->parts == 0)
        outcome.reason = CLB_REASON_COST;
    else if (outcome.status == CLB_OK || outcome.status == CLB_ERR_OPENCL ||
             outcome.status == CLB_ERR_LAUNCH)
        clb_runtime_report(runtime, outcome.status == CLB_OK);
    return outcome;
}

/* All code that may enter the driver, inside clb_host_state_save/restore. */
static struct outcome run_on_device(struct clb_dispatch *dispatch, double work)
{
    struct outcome outcome = {.reason = CLB_REASON_NODEVICE};
    const struct clb_gemm_variant *variant;
    struct clb_host_state host_state;
    clb_runtime_state state;
    clb_host_state_save(&host_state);
    inside = true;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL) {
        decline_all();
        outcome.reason = reason_of_state(state);
    } else {
        outcome.reason = decide_on_device(runtime, dispatch, work, &variant);
    }
    if (outcome.reason == CLB_REASONS)
        outcome = route_run(dispatch, runtime, variant);
    inside = false;
    clb_host_state_restore(&host_state);
    return outcome;
}

void clb_set_integer(void *array, size_t index, bool wide, int64_t value)
{
    if (wide)
        ((int64_t *)array)[index] = value;
    else
        ((int32_t *)array)[index] = (int32_t)value;
}

char clb_op_letter(clb_op op)
{
    static const char letters[] = {[CLB_OP_N] = 'N', [CLB_OP_T] = 'T', [CLB_OP_C] = 'C'};
    return op == CLB_OP_INVALID ? '?' : letters[op];
}

static void log_call(const struct clb_dispatch *dispatch, const char *where, const char *detail,
                     double seconds)
{
    char text[120];
    dispatch->type->describe(dispatch, text, sizeof text);
    clb_log(CLB_LOG_DEBUG, "%s %s -> %s (%s) %.3f ms", dispatch->symbol->next.name, text, where,
            detail, 1e3 * seconds);
}

static bool decline(const struct clb_dispatch *dispatch, clb_reason reason, double flops)
{
    if (clb_stats_wanted())
        clb_stats_declined(dispatch->symbol, reason, flops);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(dispatch, "next", clb_reason_name(reason), 0);
    return false;
}

static void close_lapacke(struct clb_dispatch *dispatch, bool computed)
{
    struct clb_host_state host_state;
    if (dispatch->lapacke == NULL)
        return;
    clb_host_state_save(&host_state);
    clb_lapacke_close(dispatch->lapacke, computed);
    clb_host_state_restore(&host_state);
}

static void route_finish(struct clb_dispatch *dispatch, const struct outcome *outcome, double flops)
{
    const struct clb_symbol *symbol = dispatch->symbol;
    bool recovered = outcome->status != CLB_OK;
    if (recovered)
        clb_log(CLB_LOG_WARN, "%s: %s after %zu of %zu parts, the next library computes the rest",
                symbol->next.name, clb_status_name(outcome->status), dispatch->written,
                dispatch->parts);
    double begin = calls_are_observed() ? clb_now() : 0;
    bool next_used = dispatch->type->complete(dispatch, outcome->status);
    close_lapacke(dispatch, true);
    double seconds_next = next_used && calls_are_observed() ? clb_now() - begin : 0;
    /* An algorithm that left all the work to the next library has not used the device. */
    if (!recovered && dispatch->share <= 0) {
        decline(dispatch, CLB_REASON_COST, flops);
        return;
    }
    if (clb_stats_wanted())
        clb_stats_computed(symbol, outcome->kernel, recovered, flops, flops * dispatch->share,
                           outcome->seconds, seconds_next);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(dispatch, recovered ? "recovered" : "device", outcome->kernel,
                 outcome->seconds + seconds_next);
}

bool clb_route_dispatch(struct clb_dispatch *dispatch)
{
    clb_route_configure();
    clb_next_declined = &dispatch->symbol->next;
    if (is_declined_already(dispatch))
        return false;
    const struct clb_routine_info *routine = clb_routine_get(dispatch->symbol->routine);
    double work = routine->work((double)dispatch->m, (double)dispatch->n, (double)dispatch->k);
    bool counts = dispatch->m > 0 && dispatch->n > 0 && dispatch->k > 0;
    double flops = counts ? work * clb_flops_per_work(routine->precision) : 0;
    struct outcome outcome = {.reason = decide_early(dispatch, work)};
    if (outcome.reason == CLB_REASONS)
        outcome = run_on_device(dispatch, work);
    if (outcome.reason != CLB_REASONS) {
        close_lapacke(dispatch, false);
        remember_declined(dispatch);
        clb_next_declined = &dispatch->symbol->next;
        return decline(dispatch, outcome.reason, flops);
    }
    route_finish(dispatch, &outcome, flops);
    return true;
}
