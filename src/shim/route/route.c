/* SPDX-License-Identifier: BSD-3-Clause
 * The life of a call: described, decided about, run on the device, and finished or declined. */
#include "engine/kernel/kernel.h"
#include "engine/ocl/helper.h"
#include "route.h"

#include <math.h>
#include <stdlib.h>

static const struct clb_ops *const families[CLB_KINDS] = {
#define CLB_KIND(kind) [CLB_KIND_##kind] = &clb_##kind##_ops,
    CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
};

void clb_run_take_progress(struct clb_run *run, clb_status status)
{
    const struct clb_gemm_progress *progress = &run->progress;
    double area = 0, all = 0;
    run->parts = progress->parts;
    run->written = 0;
    run->kernel = progress->kernel;
    for (size_t i = 0; i < progress->parts; i++) {
        const double part = (double)progress->part[i].rows * (double)progress->part[i].cols;
        run->written += progress->written[i];
        area += progress->written[i] ? part : 0;
        all += part;
    }
    run->share = status == CLB_OK ? 1 : all > 0 ? area / all : 0;
}

/* ---- on the device ---- */

/* Why a run has done nothing after all. Only failures of OpenCL count against the device: memory
 * may be in use by another call, and operands may be out of a kernel's range. */
static clb_reason reason_of_run(const struct clb_run *run)
{
    if (run->declined != CLB_REASONS)
        return run->declined;
    if (run->status == CLB_ERR_NOMEM && run->written == 0)
        return CLB_REASON_NOMEMORY;
    if (run->status == CLB_ERR_STARTING && run->written == 0)
        return CLB_REASON_STARTING;
    if (run->status == CLB_ERR_UNSUPPORTED && run->parts == 0)
        return CLB_REASON_COST;
    if (run->status == CLB_OK)
        clb_runtime_report_success(run->runtime);
    else if (run->status == CLB_ERR_OPENCL || run->status == CLB_ERR_LAUNCH)
        clb_runtime_report_failure(run->runtime);
    return CLB_REASONS;
}

/* How long the device may complete no command. */
static double longest_standstill(const struct clb_run *run)
{
    const size_t millis = run->variant->tuning.value[CLB_PARAM_HANG];
    if (millis != 0)
        return millis == 1 ? INFINITY : 1e-3 * (double)millis;
    return fmax(30, 100 * run->variant->flop_seconds * run->flops);
}

/* Each product of a batch is verified apart. */
static clb_reason prepare_run(struct clb_run *run)
{
    const clb_reason reason = clb_run_is_lapacke(run) ? clb_lapacke_open(run) : CLB_REASONS;
    return reason != CLB_REASONS || run->entry->batch != NULL ? reason : clb_verify_begin(run);
}

/* How long other threads' calls wait for this one: times as long as was predicted, or seconds. */
#define WAIT_PREDICTED 2
#define WAIT_UNKNOWN   0.2

/* One call in its turn. Other threads' predictions count with it meanwhile. */
static clb_reason run_family(struct clb_run *run)
{
    const bool predicted = clb_run_is_predicted(run);
    run->declined = CLB_REASONS;
    if (predicted)
        clb_history_begin(CLB_SIDE_DEVICE, run->alone.device, run->prediction.device);
    clb_turn_begin(run->runtime,
                   predicted ? WAIT_PREDICTED * run->prediction.device : WAIT_UNKNOWN);
    clb_runtime_expect(run->runtime, longest_standstill(run));
    clb_progress_begin(run->entry->symbol->next.name, run->flops);
    run->status = run->ops->run(run);
    clb_turn_end(run->runtime);
    if (predicted)
        clb_history_end();
    clb_progress_end();
    if (run->kernel == NULL)
        run->kernel = run->variant->name;
    return reason_of_run(run);
}

static clb_reason run_and_learn(struct clb_run *run)
{
    const bool learns = clb_run_is_learnt(run);
    const bool timed = learns || clb_calls_are_observed() || clb_trace_wanted();
    const double begin = timed ? clb_now() : 0;
    run->cpu_begin = learns ? clb_predict_cpu_now(&run->runtime->device) : NAN;
    clb_reason reason = prepare_run(run);
    if (reason != CLB_REASONS)
        return reason;
    reason = run_family(run);
    run->seconds = timed ? clb_now() - begin : 0;
    run->learns = learns && reason == CLB_REASONS && run->status == CLB_OK && run->share > 0;
    if (clb_trace_wanted())
        clb_trace_since(run->entry->symbol->next.name, begin);
    return reason;
}

static bool is_one_product(const struct clb_run *run)
{
    return run->call->kind == CLB_KIND_gemm && run->entry->batch == NULL;
}

/* All code that may enter the driver: what it may do to the thread's state is undone. */
static clb_reason run_on_device(struct clb_run *run)
{
    struct clb_thread_state thread_state;
    clb_thread_state_save(&thread_state, false);
    const bool before = clb_thread_inside;
    clb_thread_inside = true;
    const double time_limit = clb_driver_set_time_limit(INFINITY);
    clb_reason reason = clb_decide_on_device(run);
    if (reason == CLB_REASONS && (!is_one_product(run) || !run->runtime->device.unified))
        clb_signals_let_through();
    if (reason == CLB_REASONS)
        reason = run_and_learn(run);
    clb_driver_set_time_limit(time_limit);
    clb_thread_inside = before;
    clb_thread_state_restore(&thread_state);
    return reason;
}

/* ---- the life of a call ---- */

/* A LAPACKE call that was declined. The next library's function calls the Fortran name, with the
 * same routine and sizes, which is declined without deciding or counting again. An error handler
 * that jumps out leaks nothing, but one later call like it may be declined and not counted. */
static CLB_THREAD struct declined {
    const struct clb_symbol *symbol;
    int64_t m, n, k;
} declined;

void clb_route_end_declined(void)
{
    declined.symbol = NULL;
}

static bool is_declined_again(const struct clb_run *run)
{
    const struct clb_symbol *symbol = run->entry->symbol;
    if (declined.symbol == NULL || declined.symbol == symbol ||
        declined.symbol->routine != symbol->routine || declined.m != run->m ||
        declined.n != run->n || declined.k != run->k)
        return false;
    if (symbol->next.abi == CLB_ABI_FORTRAN && !clb_run_is_query(run))
        clb_route_end_declined();
    return true;
}

static void close_lapacke(struct clb_run *run, bool computed)
{
    struct clb_thread_state thread_state;
    if (!clb_run_is_lapacke(run))
        return;
    clb_thread_state_save(&thread_state, true);
    clb_lapacke_close(run, computed);
    clb_thread_state_restore(&thread_state);
}

static void decline(struct clb_run *run, clb_reason reason)
{
    clb_predict_declined(run, reason);
    if (clb_calls_are_observed())
        clb_stats_declined(run, reason);
}

/* Not of a call that ends in the program's xerbla_, which may jump out of it. */
static void hold_threads(const struct clb_run *run)
{
    struct clb_entry *entry = run->entry;
    const int count = clb_helper_leaves();
    entry->held = count > 0 && clb_call_first_wrong(run->call) == 0 && entry->target != NULL &&
                  clb_next_hold_threads(entry->target, count);
    entry->timed = entry->timed || entry->held;
}

/* False when the result is wrong, and undone. */
static bool finish(struct clb_run *run)
{
    const bool recovered = run->status != CLB_OK;
    if (recovered)
        clb_log(CLB_LOG_WARN, "%s: %s after %zu of %zu parts, the next library computes the rest",
                run->entry->symbol->next.name, clb_status_name(run->status), run->written,
                run->parts);
    const double begin = run->learns || clb_calls_are_observed() ? clb_now() : 0;
    const bool next_used = run->ops->complete(run, run->status);
    const double completing = begin > 0 ? clb_now() - begin : 0;
    if (run->learns) {
        struct clb_thread_state thread_state;
        clb_thread_state_save(&thread_state, false);
        clb_predict_learn(run, run->seconds + completing);
        clb_thread_state_restore(&thread_state);
    }
    if (run->verification != NULL && !clb_verify_end(run))
        return false;
    close_lapacke(run, true);
    /* An algorithm that left all to the next library has not used the device, and won't. */
    if (!recovered && run->share <= 0) {
        if (clb_decide_has_history(run))
            clb_history_decide(
                &run->key, &(struct clb_decision){.alone = run->alone, .reason = CLB_REASON_COST});
        decline(run, CLB_REASON_COST);
    } else if (clb_calls_are_observed())
        clb_stats_computed(run, recovered, next_used ? completing : 0);
    return true;
}

static void describe(struct clb_run *run)
{
    struct clb_call *call = run->call;
    struct clb_entry *entry = run->entry;
    const struct clb_routine_info *routine = &clb_routines[entry->symbol->routine];
    clb_call_set_routine(call, entry->symbol->routine);
    if (entry->batch != NULL)
        run->work = clb_batch_describe(entry);
    else if (entry->symbol->next.abi == CLB_ABI_C && entry->layout == CLB_ROW_MAJOR)
        clb_call_turn(call, &entry->turned);
    if (clb_run_is_lapacke(run))
        clb_lapacke_decode(run);
    entry->inside = clb_stats_wanted && (clb_thread_inside || clb_history_is_inside(call));
    run->m = clb_call_size(call, routine->sizes[0]);
    run->n = clb_call_size(call, routine->sizes[1]);
    run->k = clb_call_size(call, routine->sizes[2]);
    if (entry->batch == NULL)
        run->work = clb_work_of(routine->row, (double)run->m, (double)run->n, (double)run->k);
    if (run->m > 0 && run->n > 0 && run->k > 0)
        run->flops = run->work * (clb_precision_parts(call->precision) == 2 ? 8 : 2);
}

static void open_host(struct clb_run *run, struct clb_next_blas *next)
{
    if (run->host == NULL) {
        clb_next_blas_open(next, run->entry, run->ops->needs);
        run->host = &next->host;
    }
    run->host->work = run->call->work;
    run->host->lwork = run->call->lwork;
    run->next = clb_decide_next(run->host, NULL);
}

/* A product that the history knows needs the next library's functions only if the device fails. */
static clb_reason try_device(struct clb_run *run, struct clb_next_blas *next)
{
    if (!run->is_known || !run->known.for_device || !is_one_product(run))
        open_host(run, next);
    const clb_reason reason = run_on_device(run);
    if (reason == CLB_REASONS && run->status != CLB_OK && run->host == NULL)
        open_host(run, next);
    return reason == CLB_REASONS && !finish(run) ? CLB_REASON_QUARANTINED : reason;
}

bool clb_route(struct clb_entry *entry, struct clb_host_blas *host)
{
    const struct clb_symbol *symbol = entry->symbol;
    struct clb_run run = {
        .ops = entry->batch != NULL ? &clb_batch_ops : families[clb_routines[symbol->routine].kind],
        .entry = entry,
        .call = &entry->call,
        .host = host,
        .stands_for = 1};
    struct clb_next_blas next;
    if (CLB_UNLIKELY(!atomic_load_explicit(&clb_route_is_configured, memory_order_acquire)))
        clb_route_configure();
    clb_next_settle_threads();
    clb_next_declined = &symbol->next;
    describe(&run);
    if (is_declined_again(&run))
        return false;
    clb_reason reason = clb_decide(&run);
    if (reason == CLB_REASONS)
        reason = try_device(&run, &next);
    if (reason != CLB_REASONS) {
        close_lapacke(&run, false);
        if (clb_run_is_lapacke(&run))
            declined = (struct declined){symbol, run.m, run.n, run.k};
        clb_next_declined = &symbol->next;
        decline(&run, reason);
        hold_threads(&run);
        if (clb_run_is_predicted(&run))
            clb_history_begin(CLB_SIDE_NEXT, run.alone.next, run.prediction.next);
    }
    if (run.verification != NULL)
        clb_verify_free(&run);
    clb_gemm_progress_free(&run.progress);
    free(run.results);
    return reason == CLB_REASONS;
}
