/* The life of a call, the same for all routines: it is described, decided about (decide.c), run on
 * the device by its family, and finished or declined. */
#include "run.h"

#include <math.h>
#include <stdlib.h>

#define CLB_KIND(kind, work) extern const struct clb_ops clb_##kind##_ops;
CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND

static const struct clb_ops *const families[CLB_KINDS] = {
#define CLB_KIND(kind, work) [CLB_KIND_##kind] = &clb_##kind##_ops,
    CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
};

bool clb_diagonal_has_zero(clb_precision precision, size_t n, const void *a, size_t lda)
{
    size_t step = (lda + 1) * clb_precision_size(precision);
    for (size_t i = 0; i < n; i++) {
        if (clb_scalar_is_zero(precision, (const char *)a + i * step))
            return true;
    }
    return false;
}

/* ---- progress -------------------------------------------------------------------------------- */

void clb_run_take_progress(struct clb_run *run, clb_status status, size_t rows, size_t cols)
{
    const struct clb_gemm_progress *progress = &run->progress;
    double area = 0;
    run->parts = progress->parts;
    run->written = 0;
    run->kernel = progress->kernel;
    for (size_t i = 0; i < progress->parts; i++) {
        const struct clb_rect *part = &progress->part[i];
        run->written += progress->written[i];
        area += progress->written[i] ? (double)part->rows * (double)part->cols : 0;
    }
    run->share = status == CLB_OK ? 1 : area / ((double)rows * (double)cols);
}

bool clb_run_complete_parts(struct clb_run *run, clb_status status,
                            void (*compute)(struct clb_run *, const struct clb_rect *))
{
    const struct clb_gemm_progress *progress = &run->progress;
    if (status == CLB_OK)
        return false;
    if (run->written == 0)
        compute(run, NULL);
    for (size_t i = 0; run->written > 0 && i < progress->parts; i++) {
        if (!progress->written[i])
            compute(run, &progress->part[i]);
    }
    return true;
}

void clb_run_compute_part(struct clb_run *run, const struct clb_rect *rect)
{
    /* Of xGESV and xPOSV, the solution. */
    const clb_kind kind = run->call->kind;
    const struct clb_call whole = clb_call_as(run->call, kind == CLB_KIND_gesv   ? CLB_KIND_getrs
                                                         : kind == CLB_KIND_posv ? CLB_KIND_potrs
                                                                                 : kind);
    const struct clb_call part = rect != NULL ? clb_call_part(&whole, rect) : whole;
    clb_host_call(run->host, &part);
}

void clb_run_take_columns(struct clb_run *run, clb_status status, size_t columns, size_t written,
                          double host_work, double work, const char *kernel)
{
    /* The algorithm has not begun. */
    if (status == CLB_ERR_UNSUPPORTED && written == 0)
        return;
    run->kernel = kernel;
    run->parts = columns;
    run->written = status == CLB_OK ? columns : written;
    run->share = host_work < work ? 1 - host_work / work : 0;
    if (status != CLB_OK)
        run->share *= (double)written / (double)columns;
}

void clb_run_take_all(struct clb_run *run, clb_status status)
{
    run->parts = status != CLB_ERR_UNSUPPORTED;
    run->written = status == CLB_OK;
    run->share = status == CLB_OK ? 1 : 0;
}

void clb_run_add_solution(struct clb_run *run, double factor_work, double solve_work)
{
    const struct clb_run factors = *run;
    clb_run_take_progress(run, run->solution, (size_t)run->m, (size_t)run->k);
    run->kernel = factors.kernel;
    run->parts += factors.parts;
    run->written += factors.written;
    run->share =
        (factors.share * factor_work + run->share * solve_work) / (factor_work + solve_work);
}

bool clb_run_complete_solution(struct clb_run *run)
{
    run->written = 0;
    for (size_t i = 0; i < run->progress.parts; i++)
        run->written += run->progress.written[i];
    return clb_run_complete_parts(run, run->solution, clb_run_compute_part);
}

bool clb_run_asks_for_size(struct clb_run *run)
{
    run->host->lwork = -1;
    return run->call->work != NULL;
}

void clb_run_set_info(const struct clb_run *run, size_t info)
{
    clb_integer_set(run->call->info, 0, run->call->wide, (int64_t)info);
}

bool clb_run_hold_threads(const struct clb_run *run, const struct clb_runtime *runtime)
{
    return runtime->device.unified && run->host->hold_threads != NULL &&
           run->host->hold_threads(run->host);
}

static double count_flops(const struct clb_run *run)
{
    const bool counts = run->m > 0 && run->n > 0 && run->k > 0;
    return counts ? run->work * (clb_precision_parts(run->precision) == 2 ? 8 : 2) : 0;
}

/* ---- outcome --------------------------------------------------------------------------------- */

struct outcome {
    clb_reason reason; /* CLB_REASONS: it ran on the device */
    clb_status status;
    const char *kernel;
    double seconds;
};

/* Why a run has done nothing after all; CLB_REASONS: it has. Only failures of OpenCL count against
 * the device: memory may be in use by another call, and operands may be out of a kernel's range. */
static clb_reason reason_of_run(const struct clb_run *run, struct clb_runtime *runtime,
                                clb_status status)
{
    if (run->declined != CLB_REASONS)
        return run->declined;
    if (status == CLB_ERR_NOMEM && run->written == 0)
        return CLB_REASON_NOMEMORY;
    if (status == CLB_ERR_STARTING && run->written == 0)
        return CLB_REASON_STARTING;
    if (status == CLB_ERR_UNSUPPORTED && run->parts == 0)
        return CLB_REASON_COST;
    if (status == CLB_OK)
        clb_runtime_report_success(runtime);
    else if (status == CLB_ERR_OPENCL || status == CLB_ERR_LAUNCH)
        clb_runtime_report_failure(runtime);
    return CLB_REASONS;
}

/* How long the device may complete no command. */
static double longest_standstill(const struct clb_gemm_variant *variant, double flops)
{
    const size_t millis = variant->tuning.value[CLB_PARAM_HANG];
    if (millis != 0)
        return millis == 1 ? INFINITY : 1e-3 * (double)millis;
    return fmax(30, 100 * variant->flop_seconds * flops);
}

/* By powers of two of the edge. */
static int size_class_of(double work)
{
    int exponent = 0;
    (void)frexp(work, &exponent);
    const int edge = exponent < 0 ? 0 : exponent / 3;
    return edge < CLB_VERIFY_CLASSES ? edge : CLB_VERIFY_CLASSES - 1;
}

/* Results of a routine and a size whose first use has passed are not verified again. */
static clb_reason begin_verification(struct clb_run *run)
{
    const double share = clb_config_get()->verify;
    run->verify.size_class = size_class_of(run->work);
    const atomic_bool *passed = &clb_verify_passed[run->call->routine][run->verify.size_class];
    if (share == 0 || (share < 0 && atomic_load_explicit(passed, memory_order_relaxed)))
        return CLB_REASONS;
    return clb_verify_begin(run, run->runtime, run->variant);
}

/* How long other threads' calls wait for this one: times as long as was predicted, or seconds. */
#define WAIT_PREDICTED 2
#define WAIT_UNKNOWN   0.2

/* What must be ready before the family runs the call: by-rows matrices, copies to verify. */
static clb_reason prepare_run(struct clb_run *run)
{
    const clb_reason reason = clb_run_is_lapacke(run) ? clb_lapacke_open(run) : CLB_REASONS;
    return reason != CLB_REASONS ? reason : begin_verification(run);
}

/* One call in its turn. */
static void run_family(struct clb_run *run, struct outcome *outcome)
{
    struct clb_progress progress;
    run->declined = CLB_REASONS;
    run->solution = CLB_ERR_UNSUPPORTED;
    clb_decide_begin(run, CLB_SIDE_DEVICE);
    clb_turn_begin(run->runtime, clb_run_is_predicted(run) ? WAIT_PREDICTED * run->prediction.device
                                                           : WAIT_UNKNOWN);
    clb_runtime_expect(run->runtime, longest_standstill(run->variant, run->flops));
    clb_progress_begin(&progress, run->entry->symbol->next.name, run->flops);
    outcome->status = run->ops->run(run, run->runtime, run->variant);
    clb_turn_end(run->runtime);
    clb_decide_end(run);
    clb_progress_end(&progress);
    outcome->reason = reason_of_run(run, run->runtime, outcome->status);
    outcome->kernel = run->kernel != NULL ? run->kernel : run->variant->name;
}

/* The call is for the device: run and time it there. */
static void run_and_learn(struct clb_run *run, struct outcome *outcome)
{
    const bool learns = clb_run_is_learnt(run);
    const bool timed = clb_runs_are_timed() || learns;
    const double cpu_begin = learns ? clb_decide_cpu_now(&run->runtime->device) : NAN;
    const double begin = timed ? clb_now() : 0;
    outcome->reason = prepare_run(run);
    if (outcome->reason != CLB_REASONS)
        return;
    run_family(run, outcome);
    outcome->seconds = timed ? clb_now() - begin : 0;
    if (learns && outcome->reason == CLB_REASONS && outcome->status == CLB_OK && run->share > 0)
        clb_decide_learn(run, outcome->seconds, cpu_begin);
    if (clb_trace_wanted())
        clb_trace_since(run->entry->symbol->next.name, begin);
}

/* All code that may enter the driver: what it may do to the thread's state is undone. */
static struct outcome run_on_device(struct clb_run *run)
{
    struct outcome outcome = {0};
    struct clb_thread_state thread_state;
    clb_thread_state_save(&thread_state);
    const bool before = clb_thread_inside;
    clb_thread_inside = true;
    const double patience = clb_driver_set_time_limit(INFINITY);
    outcome.reason = clb_decide_on_device(run);
    if (outcome.reason == CLB_REASONS)
        run_and_learn(run, &outcome);
    clb_driver_set_time_limit(patience);
    clb_thread_inside = before;
    clb_thread_state_restore(&thread_state);
    return outcome;
}

static void log_call(const struct clb_run *run, const char *where, const char *detail,
                     double seconds)
{
    char text[120];
    char predicted[80] = "";
    const struct clb_prediction *p = &run->prediction;
    clb_call_describe(run->call, text, sizeof text);
    if (clb_run_is_predicted(run))
        snprintf(predicted, sizeof predicted, "; %s: device %.3f, next %.3f ms",
                 p->measured ? "measured" : "estimated", 1e3 * p->device, 1e3 * p->next);
    clb_log(CLB_LOG_DEBUG, "%s %s -> %s (%s) %.3f ms%s", run->entry->symbol->next.name, text, where,
            detail, 1e3 * seconds, predicted);
}

static void decline(const struct clb_run *run, clb_reason reason)
{
    clb_decide_declined(run, reason);
    if (clb_stats_wanted)
        clb_stats_declined(run->entry, reason, clb_run_computes_nothing(run) ? 0 : run->flops);
    if (clb_stats_wanted && clb_run_is_predicted(run))
        clb_stats_predicted(
            run->entry->symbol, &run->prediction,
            reason == CLB_REASON_DRY_RUN ? run->prediction.next - run->prediction.device : 0);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(run, "next", clb_reason_name(reason), 0);
}

static void close_lapacke(struct clb_run *run, bool computed)
{
    struct clb_thread_state thread_state;
    if (!clb_run_is_lapacke(run))
        return;
    clb_thread_state_save(&thread_state);
    clb_lapacke_close(run, computed);
    clb_thread_state_restore(&thread_state);
}

/* False when the result is wrong, and undone. */
static bool route_finish(struct clb_run *run, const struct outcome *outcome)
{
    const struct clb_symbol *symbol = run->entry->symbol;
    bool recovered = outcome->status != CLB_OK;
    if (recovered)
        clb_log(CLB_LOG_WARN, "%s: %s after %zu of %zu parts, the next library computes the rest",
                symbol->next.name, clb_status_name(outcome->status), run->written, run->parts);
    double begin = clb_calls_are_observed() ? clb_now() : 0;
    bool next_used = run->ops->complete(run, outcome->status);
    if (run->verify.wanted && !clb_verify_end(run, outcome->status))
        return false;
    close_lapacke(run, true);
    double seconds_next = next_used && clb_calls_are_observed() ? clb_now() - begin : 0;
    /* An algorithm that left all the work to the next library has not used the device. */
    if (!recovered && run->share <= 0) {
        decline(run, CLB_REASON_COST);
        return true;
    }
    if (clb_stats_wanted)
        clb_stats_computed(run->entry, outcome->kernel, recovered, run->flops,
                           run->flops * run->share, outcome->seconds, seconds_next);
    if (clb_stats_wanted && clb_run_is_predicted(run))
        clb_stats_predicted(symbol, &run->prediction,
                            run->prediction.next - outcome->seconds - seconds_next);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(run, recovered ? "recovered" : "device", outcome->kernel,
                 outcome->seconds + seconds_next);
    return true;
}

/* Set what the decision needs of the call: its sizes and its work. */
static void describe(struct clb_run *run)
{
    struct clb_call *call = run->call;
    struct clb_entry *entry = run->entry;
    const struct clb_routine_info *routine = &clb_routines[entry->symbol->routine];
    clb_call_set_routine(call, entry->symbol->routine);
    if (entry->symbol->next.abi == CLB_ABI_C && entry->layout == CLB_ROW_MAJOR)
        clb_call_turn(call, &entry->turned);
    if (clb_run_is_lapacke(run))
        clb_lapacke_decode(run);
    run->entry->inside =
        clb_stats_wanted && (clb_thread_inside || clb_history_is_inside(run->call));
    run->m = clb_call_size(call, routine->sizes[0]);
    run->n = clb_call_size(call, routine->sizes[1]);
    run->k = clb_call_size(call, routine->sizes[2]);
    run->work = clb_work_of(routine->row, (double)run->m, (double)run->n, (double)run->k);
    run->flops = count_flops(run);
}

static void open_host(struct clb_run *run, struct clb_next_blas *next)
{
    if (run->host == NULL) {
        clb_next_blas_open(next, run->entry, run->ops->needs);
        run->host = &next->host;
    }
    run->host->work = run->call->work;
    run->host->lwork = run->call->lwork;
}

/* The outcome of a call that the first gates have let through; `next` is the place for the next
 * library's functions. A product that the history knows needs them only if the device fails. */
static struct outcome try_device(struct clb_run *run, struct clb_next_blas *next)
{
    if (!run->is_known || !run->known.for_device || run->call->kind != CLB_KIND_gemm)
        open_host(run, next);
    struct outcome outcome = run_on_device(run);
    if (outcome.reason == CLB_REASONS && outcome.status != CLB_OK)
        open_host(run, next);
    if (outcome.reason == CLB_REASONS && !route_finish(run, &outcome))
        outcome.reason = CLB_REASON_QUARANTINED;
    return outcome;
}

bool clb_route(struct clb_entry *entry, struct clb_host_blas *host)
{
    const struct clb_symbol *symbol = entry->symbol;
    struct clb_run run = {.ops = families[clb_routines[symbol->routine].kind],
                          .entry = entry,
                          .call = &entry->call,
                          .precision = clb_routines[symbol->routine].precision,
                          .host = host,
                          .stands_for = 1};
    struct clb_next_blas next;
    clb_route_configure();
    clb_next_settle_threads();
    clb_next_declined = &symbol->next;
    describe(&run);
    if (clb_lapacke_is_declined_again(&run))
        return false;
    clb_reason reason = clb_decide(&run);
    if (reason == CLB_REASONS)
        reason = try_device(&run, &next).reason;
    if (reason != CLB_REASONS) {
        close_lapacke(&run, false);
        clb_lapacke_note_declined(&run);
        clb_next_declined = &symbol->next;
        decline(&run, reason);
        clb_decide_begin(&run, CLB_SIDE_NEXT);
    }
    if (run.verify.wanted)
        clb_verify_free(&run);
    clb_gemm_progress_free(&run.progress);
    free(run.factors.tau);
    free(run.pivots);
    return reason == CLB_REASONS;
}
