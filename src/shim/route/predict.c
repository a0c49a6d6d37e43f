/* SPDX-License-Identifier: BSD-3-Clause
 * predict: which side computes a call that the history does not know, by predicted times; whether
 * such calls are worth a start of the device; and what calls have taken, for later ones. */
#include "engine/device_blas/device_blas.h"
#include "host/process.h"
#include "profile.h"
#include "route.h"

#include <math.h>

/* ---- predictions ---- */

static struct clb_prediction predict(struct clb_run *run, const struct clb_device *device)
{
    const struct clb_cost_machine owner = {.device = device, .next = run->next};
    const struct clb_cost_call cost = clb_cost_describe(run->call);
    struct clb_prediction alone = clb_profile_predict(&owner, &cost);
    run->key = clb_decide_key(run->entry, &run->next);
    if (clb_decide_has_history(run))
        clb_history_correct(&run->key, run->work, clb_cost_shape_of(&cost) % CLB_COST_ASPECTS != 0,
                            &alone);
    return alone;
}

void clb_predict_try_other(struct clb_run *run, struct clb_prediction *alone)
{
    if (!clb_decide_times_both(run) || !clb_prediction_is_known(alone))
        return;
    const bool disturbed = clb_decide_others(alone) > 0;
    run->turned = clb_history_tries(&run->key, run->stands_for, disturbed, alone);
    run->entry->compared = !disturbed && run->entry->target != NULL;
}

/* ---- decisions ---- */

/* Times decide, unless the user has set a threshold; the device's, if unknown, are found out. */
static bool is_for_device(const struct clb_prediction *prediction)
{
    return !clb_prediction_is_known(prediction) || clb_prediction_is_for_device(prediction);
}

static clb_reason decide_for_device(const struct clb_device *device, const struct clb_run *run,
                                    const struct clb_prediction *prediction, bool *by_times)
{
    *by_times = clb_run_is_auto(run);
    if (clb_precision_real_size(run->call->precision) == sizeof(double) && !device->fp64)
        return CLB_REASON_NOFP64;
    if (*by_times && clb_rate_was_slow(device, run->call->precision))
        return CLB_REASON_SLOW;
    return !*by_times || is_for_device(prediction) != run->turned ? CLB_REASONS : CLB_REASON_COST;
}

bool clb_predict_declines(struct clb_run *run)
{
    const struct clb_device *device = &run->runtime->device;
    bool by_times;
    if (clb_run_is_auto(run) || clb_calls_are_observed() || clb_decide_learns()) {
        struct clb_prediction alone = predict(run, device);
        clb_predict_try_other(run, &alone);
        clb_decide_set_prediction(run, &alone);
    }
    run->reason = decide_for_device(device, run, &run->prediction, &by_times);
    return run->reason != CLB_REASONS;
}

/* A call that the device loses without competition it loses beside other calls, too
 * (clb_history_crowding): only the decision without these is remembered. A call that waits for a
 * start is for the device. */
void clb_predict_remember(struct clb_run *run, clb_reason reason)
{
    if (run->runtime == NULL && clb_prediction_is_known(&run->alone) &&
        (run->entry->weighed || reason == CLB_REASON_STARTING))
        reason = CLB_REASONS;
    struct clb_decision decision = {.alone = run->alone, .for_device = reason == CLB_REASONS};
    const struct clb_device *device =
        run->runtime != NULL ? &run->runtime->device : clb_device_expected();
    if (!clb_decide_has_history(run) || device == NULL || run->turned ||
        (reason != CLB_REASONS && reason != CLB_REASON_COST && reason != CLB_REASON_SMALL) ||
        decide_for_device(device, run, &run->alone, &decision.by_times) != reason)
        return;
    decision.reason = reason;
    clb_history_decide(&run->key, &decision);
}

/* ---- the start of the device ---- */

/* Seconds that the device would have saved in the calls so far that wanted it, by what these have
 * taken; of calls beside each other, no more than have passed. */
static struct {
    struct clb_mutex lock;
    double seconds, end, last, work; /* the last call's */
    bool paid;
} saved = {.lock = CLB_MUTEX_INITIALIZER};

/* A forked child begins anew. */
static void lock_saved(void)
{
    if (clb_lock(&saved.lock)) {
        saved.seconds = saved.end = saved.work = 0;
        saved.paid = false;
    }
}

static void add_saved(double seconds, double work)
{
    lock_saved();
    const double now = clb_now();
    saved.seconds += fmin(seconds, now - saved.end);
    saved.end = now;
    saved.last = seconds;
    saved.work = work;
    clb_unlock(&saved.lock);
}

/* Whether they, and this one, would have saved the start's cost; from then on true. */
static bool start_pays(const struct clb_device *device, const struct clb_run *run)
{
    if (clb_starts_at_once() || clb_tuning_override(clb_config_get(), CLB_PARAM_START) != 0)
        return true;
    const struct clb_cost_machine owner = {.device = device, .next = run->next};
    const struct clb_cost_call cost = clb_cost_describe(run->call);
    const double price = clb_profile_start_cost(&owner, run->call->precision);
    const double predicted = clb_cost_saved(&owner, &cost, &run->prediction);
    lock_saved();
    saved.paid =
        saved.paid || saved.seconds + (run->work == saved.work ? saved.last : predicted) >= price;
    const bool pays = saved.paid;
    clb_unlock(&saved.lock);
    return pays;
}

/* Calls that are not for the device, as another process has seen it, don't start it. */
static clb_reason decide_by_expected(struct clb_run *run, const struct clb_device *expected)
{
    bool by_times;
    const struct clb_prediction alone = predict(run, expected);
    clb_decide_set_prediction(run, &alone);
    const clb_reason reason = decide_for_device(expected, run, &run->prediction, &by_times);
    if (reason != CLB_REASONS)
        return reason;
    return clb_config_get()->mode == CLB_MODE_DRY_RUN ? CLB_REASON_DRY_RUN : CLB_REASONS;
}

/* Known calls here are for the device; what they need besides a start is asked of others. */
bool clb_predict_declines_start(struct clb_run *run)
{
    const struct clb_device *expected = clb_device_expected();
    if (!clb_run_is_auto(run) || clb_runtime_peek() != NULL)
        return false;
    run->begin = clb_now();
    if (run->is_known && expected != NULL) {
        run->reason = CLB_REASONS;
    } else if (expected != NULL) {
        run->reason = decide_by_expected(run, expected);
    } else {
        run->prediction = (struct clb_prediction){.device = NAN, .next = NAN};
        run->reason = clb_run_is_small(run) ? CLB_REASON_SMALL : CLB_REASONS;
    }
    run->entry->weighed = run->reason == CLB_REASONS && !start_pays(expected, run);
    run->entry->on_device = run->prediction.device;
    if (run->entry->weighed)
        run->reason = CLB_REASON_COST;
    else
        run->is_known = false;
    return run->reason != CLB_REASONS;
}

/* What the call's kind needs besides the kernels of products is loaded in the time that a call
 * waits for a start, and counts with that. */
bool clb_predict_has_no_kernels(struct clb_run *run)
{
    clb_status status = CLB_OK;
    if (run->call->kind == CLB_KIND_trmm)
        status = clb_skip_prepare(run->runtime, run->variant);
    else if (!clb_kind_is_product(run->call->kind))
        status = clb_workspace_prepare(run->runtime, run->variant);
    const double taken = run->begin > 0 ? clb_now() - run->begin : 0;
    if (taken > run->runtime->start_seconds)
        run->runtime->start_seconds = taken;
    return status == CLB_ERR_STARTING;
}

/* ---- what calls take ---- */

double clb_predict_cpu_now(const struct clb_device *device)
{
    return device != NULL && clb_device_is_cpu(device) ? clb_cpu_now() : NAN;
}

static double undisturbed(double seconds, const struct clb_device *device, double cpu_begin)
{
    return fmin(seconds, clb_predict_cpu_now(device) - cpu_begin);
}

/* Beside other calls, at its begin or since, it takes longer than alone: not for the file. */
void clb_predict_learn(const struct clb_run *run, double took)
{
    static atomic_bool start_is_known;
    const struct clb_cost_machine owner = {.device = &run->runtime->device, .next = run->next};
    const double crowding =
        fmax(run->prediction.device / run->alone.device,
             clb_decide_crowding(&run->next, CLB_SIDE_DEVICE, clb_decide_others(&run->alone)));
    const double seconds = undisturbed(took, owner.device, run->cpu_begin);
    if (!atomic_exchange(&start_is_known, true))
        clb_profile_learn_start(&owner, run->runtime->start_seconds);
    if (!clb_decide_learns()) {
        clb_history_learn_work(&run->key, seconds, fmax(crowding, 1));
    } else if (!(crowding > 1)) {
        const struct clb_cost_call cost = clb_cost_describe(run->call);
        clb_profile_learn(&owner, CLB_SIDE_DEVICE, &cost, seconds);
    }
    if (!(crowding > 1) && run->entry->compared)
        clb_history_learn(&run->key, CLB_SIDE_DEVICE, run->verification == NULL ? seconds : NAN);
}

/* A call that takes less is timed once, in case its prediction is wrong. A longer one is decided
 * anew until one like it counts, and when its time is off by so much of the prediction. */
#define LEAST_SAMPLE 50e-6
#define SURPRISE     0.2
#define LEAST_KEPT   0.1  /* seconds in which a call keeps those that it makes; */
#define MOST_PLAIN   2e-4 /* of a call of a plain library that does so */

void clb_predict_learn_next(const struct clb_entry *entry, double seconds)
{
    struct clb_thread_state thread_state;
    clb_thread_state_save(&thread_state, false); /* a handler must not jump out of the locks */
    const struct clb_next_library next = clb_decide_next(NULL, entry->target);
    const struct clb_cost_machine owner = {.device = clb_device_expected(), .next = next};
    const struct clb_cost_call cost = clb_cost_describe(&entry->call);
    seconds = undisturbed(seconds, owner.device, entry->cpu_begin);
    if (entry->weighed) {
        const struct clb_prediction took = {.device = entry->on_device, .next = seconds};
        add_saved(fmax(0, clb_cost_saved(&owner, &cost, &took)), cost.times * cost.work);
    }
    const struct clb_history_key key = clb_decide_key(entry, &next);
    const bool counts =
        (entry->compared || entry->learnt) && clb_history_learn(&key, CLB_SIDE_NEXT, seconds);
    if (entry->learnt && (counts || clb_decide_learns()))
        clb_profile_learn(&owner, CLB_SIDE_NEXT, &cost, seconds);
    if (entry->learnt && fmax(seconds, entry->expected) > LEAST_SAMPLE &&
        (!counts || fabs(seconds - entry->expected) > SURPRISE * entry->expected))
        clb_history_decide(&key, NULL);
    clb_thread_state_restore(&thread_state);
}

/* Of calls that were predicted anew or are asked about, or all with CLBLAS_SHIM_LEARN=1. */
static bool learns_of_next(const struct clb_run *run, clb_reason reason)
{
    const double least = run->is_known ? LEAST_SAMPLE : 0; /* 0 is predicted inside another call */
    const bool samples = reason == CLB_REASON_COST && clb_decide_times_both(run) &&
                         (!run->is_known || run->asks) && isgreater(run->alone.next, least);
    return (samples || clb_decide_learns()) && !isgreater(run->prediction.next, run->alone.next) &&
           clb_device_expected() != NULL && run->entry->target != NULL &&
           !clb_run_computes_nothing(run) && !clb_call_is_quick(run->call) && !clb_thread_inside;
}

/* Whether calls that this one makes stay with it. Longer ones of a plain library gain by them. */
static bool keeps_calls(const struct clb_run *run, clb_reason reason)
{
    const struct clb_target *target = run->entry->target;
    return (reason == CLB_REASON_STARTING ||
            (reason == CLB_REASON_COST && isgreater(run->alone.next, 0))) &&
           clb_run_is_auto(run) && run->entry->symbol->next.library == CLB_LIBRARY_LAPACK &&
           target != NULL && (target->optimised || isless(run->alone.next, MOST_PLAIN));
}

void clb_predict_declined(const struct clb_run *run, clb_reason reason)
{
    struct clb_entry *entry = run->entry;
    const bool keeps = keeps_calls(run, reason);
    entry->learnt = learns_of_next(run, reason);
    entry->expected = run->alone.next;
    entry->compared = entry->compared && reason == CLB_REASON_COST;
    entry->encloses = (clb_stats_wanted || keeps) && !clb_history_is_inside(run->call) &&
                      !clb_run_computes_nothing(run);
    if (entry->encloses)
        clb_history_enclose(run->call, keeps, fmax(run->prediction.next, LEAST_KEPT));
    const bool counts = entry->learnt || entry->compared || entry->weighed;
    entry->timed = clb_stats_wanted || counts || entry->encloses;
    if (counts)
        entry->cpu_begin = clb_predict_cpu_now(clb_device_expected());
}
