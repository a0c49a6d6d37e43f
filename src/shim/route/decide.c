/* decide: which side computes a call, and what follows from it.
 *
 * A call passes the gates of the table below in order, and the first one that declines it names the
 * reason. The first gates need no driver; the others start the device where that pays, ask for the
 * durations on both sides and for the kernels. */
#include "decide.h"
#include "engine/device_blas/device_blas.h"
#include "run.h"

#include <math.h>

bool clb_run_is_lapacke(const struct clb_run *run)
{
    return run->entry->symbol->next.abi == CLB_ABI_LAPACKE;
}

bool clb_run_is_query(const struct clb_run *run)
{
    return clb_signature_has(run->call, 'w') && run->call->lwork == -1;
}

bool clb_run_computes_nothing(const struct clb_run *run)
{
    return clb_call_first_wrong(run->call) != 0 || clb_run_is_query(run);
}

/* Whether the calls that this one makes are to stay with it. */
static bool keeps_calls(const struct clb_run *run, clb_reason reason)
{
    return reason == CLB_REASON_COST && clb_run_is_auto(run) && run->entry->target != NULL &&
           run->entry->target->optimised && isgreater(run->alone.next, 0) &&
           run->entry->symbol->next.library == CLB_LIBRARY_LAPACK;
}

static void begin_enclosing(const struct clb_run *run, clb_reason reason)
{
    struct clb_entry *entry = run->entry;
    const bool keeps = keeps_calls(run, reason);
    entry->encloses = (clb_stats_wanted || keeps) && !clb_history_is_inside(run->call) &&
                      !clb_run_computes_nothing(run);
    if (entry->encloses)
        clb_history_enclose(run->call, keeps, run->prediction.next);
}

clb_work clb_routine_work(clb_routine routine)
{
    static const clb_work works[CLB_KINDS] = {
#define CLB_KIND(kind, work) [CLB_KIND_##kind] = CLB_WORK_##work,
        CLB_KIND_TABLE(CLB_KIND)
#undef CLB_KIND
    };
    return works[clb_routines[routine].kind];
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

bool clb_calls_are_observed(void)
{
    return clb_stats_wanted || clb_log_wanted(CLB_LOG_DEBUG);
}

bool clb_runs_are_timed(void)
{
    return clb_calls_are_observed() || clb_trace_wanted();
}

/* ---- predictions ----------------------------------------------------------------------------- */

bool clb_run_is_auto(const struct clb_run *run)
{
    return clb_threshold_is_auto(run->entry->symbol->routine);
}

/* False also for calls that were declined before they were asked about. Outside the guard of the
 * host's state a comparison with NaN would raise the program's FE_INVALID. */
bool clb_run_is_predicted(const struct clb_run *run)
{
    return isgreater(run->prediction.next, 0) && clb_prediction_is_known(&run->prediction);
}

static size_t smallest_of(const struct clb_run *run)
{
    const size_t m = (size_t)run->m;
    const size_t smallest = clb_min(clb_min(m, (size_t)run->n), (size_t)run->k);
    switch (run->ops->smallest) {
    case CLB_SMALLEST_M:
        return m;
    case CLB_SMALLEST_HALF:
        return smallest / 2;
    default:
        return smallest;
    }
}

static struct clb_profile_owner owner_of(const struct clb_host_blas *host)
{
    return (struct clb_profile_owner){.library = host->library != NULL ? host->library : "",
                                      .optimised = host->optimised,
                                      .threads =
                                          host->threads > 0 ? host->threads : (int)clb_cpus()};
}

/* As clb_next_blas_open finds it for most routines. */
static struct clb_profile_owner owner_of_target(const struct clb_target *target)
{
    const struct clb_host_blas host = {.library = target->library,
                                       .optimised = target->optimised,
                                       .threads =
                                           target->get_threads != NULL ? target->get_threads() : 0};
    return owner_of(&host);
}

static struct clb_prediction predict(const struct clb_device *device,
                                     const struct clb_question *question)
{
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    return clb_profile_predict(&owner, &question->cost);
}

static bool writes_profile(void)
{
    return clb_config_get()->learn && !clb_config_get()->reproducible;
}

/* The shapes of the matrices follow from these sizes and the side. Names of other forms may lack a
 * function that a failure needs. */
static struct clb_history_key key_of(const struct clb_entry *entry,
                                     const struct clb_profile_owner *owner)
{
    const struct clb_call *call = &entry->call;
    const unsigned flags = (unsigned)call->right << 2 | (unsigned)clb_call_reads_c(call) << 1 |
                           (unsigned)owner->optimised;
    return (struct clb_history_key){
        {(uint64_t)call->routine << 32 | (uint64_t)entry->symbol->form << 24 |
             (uint64_t)(owner->threads & 0xffffff),
         (uintptr_t)owner->library, (uint64_t)clb_runtime_settle() << 3 | flags, (uint64_t)call->m,
         (uint64_t)call->n, (uint64_t)call->k, (uint64_t)call->nrhs}};
}

/* How many other threads' calls count beside this one. Where results must not depend on what else
 * the program does, none does. */
static double count_others(const struct clb_prediction *alone)
{
    return clb_config_get()->reproducible ? 0 : clb_history_beside(alone);
}

/* How many times as long as alone the call takes beside so many others. */
static double crowding_of(const struct clb_profile_owner *owner, clb_side side, double others)
{
    const double threads = owner->optimised ? fmax(owner->threads, 1) : 1;
    return clb_history_crowding(side, others, threads, (double)clb_cpus());
}

static void set_prediction(struct clb_run *run, const struct clb_prediction *alone,
                           const struct clb_profile_owner *owner)
{
    run->prediction = run->alone = *alone;
    const double others = clb_prediction_is_known(alone) ? count_others(alone) : 0;
    if (!isgreater(others, 0))
        return;
    run->prediction.device *= crowding_of(owner, CLB_SIDE_DEVICE, others);
    run->prediction.next *= crowding_of(owner, CLB_SIDE_NEXT, others);
}

/* Whether calls like this one are timed on both sides. A C name of LAPACK copies matrices besides,
 * and then makes such a call. */
static bool times_both_sides(const struct clb_run *run)
{
    return clb_config_get()->mode == CLB_MODE_AUTO && clb_run_is_auto(run) &&
           !clb_config_get()->reproducible && !clb_run_is_lapacke(run);
}

/* Whether durations are asked for: to decide, for reports, or to learn. */
static bool wants_prediction(const struct clb_run *run)
{
    return clb_run_is_auto(run) || clb_calls_are_observed() || writes_profile();
}

static void settle_for(const struct clb_device *device, const struct clb_question *question)
{
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    clb_threshold_settle(&owner);
}

/* Whether the history's decisions count for the call, and it adds to them. */
static bool has_history(const struct clb_run *run)
{
    return clb_run_is_auto(run) && !writes_profile();
}

/* The prediction for such a device, by what the history knows of such work. */
static struct clb_prediction predict_by_history(struct clb_run *run,
                                                const struct clb_device *device)
{
    struct clb_prediction alone = predict(device, &run->question);
    run->key = key_of(run->entry, &run->question.owner);
    if (has_history(run))
        clb_history_correct(&run->key, run->work, &alone);
    return alone;
}

/* The call may be one of those that go to the other side, to be timed there. */
static void try_other_side(struct clb_run *run, struct clb_prediction *alone)
{
    if (!times_both_sides(run) || !clb_prediction_is_known(alone))
        return;
    const bool disturbed = count_others(alone) > 0;
    run->question.turned = clb_history_tries(&run->key, run->stands_for, disturbed, alone);
    run->entry->compared = !disturbed && run->entry->target != NULL;
}

static void predict_run(struct clb_run *run, const struct clb_device *device)
{
    struct clb_prediction alone = predict_by_history(run, device);
    try_other_side(run, &alone);
    set_prediction(run, &alone, &run->question.owner);
    run->question.alone = run->alone;
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* Whether the call is one for such a device. Where the times of both sides are known they decide,
 * else the table's threshold; neither where the user has set a threshold. */
static clb_reason decide_for_device(const struct clb_device *device,
                                    const struct clb_question *question,
                                    const struct clb_prediction *prediction, bool *by_times)
{
    clb_precision precision = clb_routines[question->routine].precision;
    struct clb_gemm_tuning tuning;
    *by_times = false;
    if (clb_precision_real_size(precision) == sizeof(double) && !device->fp64)
        return CLB_REASON_NOFP64;
    if (!clb_threshold_is_auto(question->routine))
        return CLB_REASONS;
    if (clb_tuning_gemm(device, precision, clb_config_get()->math, 0, &tuning) != CLB_OK)
        return CLB_REASON_NODEVICE;
    /* Shapes are known for devices with memory of their own. */
    *by_times = clb_prediction_is_known(prediction) &&
                (!device->unified || question->smallest >= tuning.smallest);
    if (*by_times)
        return clb_prediction_is_for_device(prediction) != question->turned ? CLB_REASONS
                                                                            : CLB_REASON_COST;
    if (question->work < clb_threshold(question->routine))
        return CLB_REASON_SMALL;
    const struct clb_offload from = clb_tuning_offload(
        device, precision, &tuning, clb_routine_work(question->routine), question->owner.optimised);
    if (question->work < clb_cube(from.threshold))
        return isinf(from.threshold) ? CLB_REASON_COST : CLB_REASON_SMALL;
    return question->smallest < from.smallest ? CLB_REASON_COST : CLB_REASONS;
}

/* ---- what the history has decided ------------------------------------------------------------ */

/* A call that the device loses without competition it loses beside other calls, too: these cost it
 * as much there as in the next library at least (clb_history_crowding). So only the decision
 * without other calls is remembered. What a start would save must be added up, so that a call that
 * is for the device is remembered only when the device is there. */
static void remember_decision(struct clb_run *run, const struct clb_device *device,
                              clb_reason reason)
{
    struct clb_decision decision = {.alone = run->alone, .for_device = reason == CLB_REASONS};
    if (!has_history(run) || device == NULL || run->question.turned ||
        (reason != CLB_REASONS && reason != CLB_REASON_COST && reason != CLB_REASON_SMALL) ||
        decide_for_device(device, &run->question, &run->alone, &decision.by_times) != reason)
        return;
    decision.reason = reason;
    clb_history_decide(&run->key, &decision);
}

/* The decision for such a call is remembered, and is not to be asked about again. This is before
 * the driver may be entered, so the host's state needs no guard. */
static bool is_remembered(struct clb_run *run)
{
    const struct clb_target *target = run->entry->target;
    if (!has_history(run) || (run->host == NULL && target == NULL))
        return false;
    run->question.owner = run->host != NULL ? owner_of(run->host) : owner_of_target(target);
    run->key = key_of(run->entry, &run->question.owner);
    const bool timed = times_both_sides(run) && clb_runtime_peek() != NULL;
    run->is_known = clb_history_recall(&run->key, timed, &run->known, &run->asks, &run->stands_for);
    if (!run->is_known || run->known.for_device || run->asks)
        return false;
    set_prediction(run, &run->known.alone, &run->question.owner);
    run->reason = (clb_reason)run->known.reason;
    return true;
}

/* The decision is remembered; the call may be one of those that go to the other side, and others
 * may be beside it. */
static bool is_for_next_by_history(struct clb_run *run)
{
    struct clb_prediction alone = run->known.alone;
    if (!run->is_known)
        return false;
    if (run->asks)
        try_other_side(run, &alone);
    set_prediction(run, &alone, &run->question.owner);
    if (!run->known.by_times)
        return !run->known.for_device;
    if (!run->question.turned && clb_prediction_is_for_device(&alone) != run->known.for_device)
        clb_history_forget(&run->key); /* the times have decided otherwise: ask all again */
    return clb_prediction_is_for_device(&run->prediction) == run->question.turned;
}

/* ---- waiting for the device ------------------------------------------------------------------ */

/* In `auto` a call waits for the device so many times as long as its start should take, and this;
 * and never for a helper process. */
#define READY_TIMES   3
#define READY_SECONDS 1.0

/* True where the device is used at once and whatever it costs, as the user has asked for. */
static bool starts_at_once(void)
{
    const struct clb_config *config = clb_config_get();
    return config->mode != CLB_MODE_AUTO || config->reproducible || config->kernel != NULL;
}

static double price_of_start(const struct clb_device *device, const struct clb_question *question)
{
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    return clb_profile_start_cost(&owner);
}

/* A driver task: all that a call of this routine needs first. */
static clb_status prepare(void *argument)
{
    const struct clb_question *question = argument;
    const struct clb_gemm_variant *variant;
    clb_runtime_state state;
    const double begin = clb_now();
    const bool starts = clb_runtime_peek() == NULL;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL)
        return CLB_OK;
    struct clb_prediction prediction = question->alone;
    bool by_times;
    if (question->predicted && prediction.next == 0)
        prediction = predict(&runtime->device, question);
    if (decide_for_device(&runtime->device, question, &prediction, &by_times) != CLB_REASONS ||
        clb_gemm_variant_get(runtime, clb_routines[question->routine].precision, &variant) !=
            CLB_OK)
        return CLB_OK;
    clb_status status = CLB_OK;
    switch (clb_routines[question->routine].kind) {
    case CLB_KIND_gemm:
    case CLB_KIND_gemmtr:
    case CLB_KIND_symm:
    case CLB_KIND_syrk:
    case CLB_KIND_syr2k:
        break;
    case CLB_KIND_trmm:
        status = clb_skip_prepare(runtime, variant);
        break;
    default:
        status = clb_workspace_prepare(runtime, variant);
    }
    if (starts)
        runtime->start_seconds = clb_now() - begin;
    return status;
}

static void set_patience(const struct clb_run *run)
{
    static _Atomic double seconds; /* 0: not known */
    double longest = atomic_load_explicit(&seconds, memory_order_relaxed);
    if (!clb_run_is_auto(run) || starts_at_once())
        return;
    if (run->is_known && run->known.for_device) { /* all is ready */
        clb_driver_set_time_limit(0);
        return;
    }
    if (longest == 0) {
        const struct clb_device *device = clb_device_expected();
        longest = READY_SECONDS + READY_TIMES * price_of_start(device, &run->question);
        atomic_store_explicit(&seconds, device != NULL ? longest : 0, memory_order_relaxed);
    }
    clb_driver_set_time_limit(clb_now() + longest);
}

/* In `auto` the first call of each routine on the device starts it if need be, loads and checks the
 * kernels that the routine needs, and waits for that. False: it has not waited to the end. */
static bool make_ready(const struct clb_run *run)
{
    static atomic_bool ready[CLB_ROUTINES];
    const clb_routine routine = run->question.routine;
    if (clb_driver_time_limit == INFINITY || atomic_load(&ready[routine]))
        return true;
    const clb_status status = clb_driver_request(prepare, &run->question, sizeof run->question);
    if (status != CLB_ERR_STARTING && status != CLB_ERR_NOMEM)
        atomic_store(&ready[routine], true);
    return status != CLB_ERR_STARTING;
}

/* Whether the device would have saved what its start costs, had it been there for the calls that it
 * was wanted for so far and for this one. */
static bool start_pays(const struct clb_device *device, const struct clb_question *question,
                       const struct clb_prediction *prediction)
{
    static struct clb_mutex lock = CLB_MUTEX_INITIALIZER;
    static double saved;
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    if (starts_at_once() || clb_tuning_override(clb_config_get(), CLB_PARAM_START) != 0)
        return true;
    const double price = price_of_start(device, question);
    clb_lock(&lock);
    saved += clb_profile_saved(&owner, &question->cost, prediction);
    const bool pays = saved >= price;
    clb_unlock(&lock);
    return pays;
}

/* ---- the gates ------------------------------------------------------------------------------- */

static bool is_query(struct clb_run *run)
{
    return clb_run_is_query(run);
}

static bool is_off(struct clb_run *run)
{
    (void)run;
    return clb_config_get()->mode == CLB_MODE_OFF;
}

static bool is_wrong(struct clb_run *run)
{
    return clb_call_first_wrong(run->call) != 0;
}

static bool is_quick(struct clb_run *run)
{
    return clb_call_is_quick(run->call);
}

static bool is_reentrant(struct clb_run *run)
{
    (void)run;
    return clb_thread_inside;
}

static bool is_kept(struct clb_run *run)
{
    return clb_run_is_auto(run) && clb_history_is_kept(run->call);
}

static bool is_small(struct clb_run *run)
{
    return run->work < clb_threshold(run->entry->symbol->routine);
}

/* A C name of LAPACK has transposed copies of matrices by rows. */
static bool overlaps(struct clb_run *run)
{
    return !clb_run_is_lapacke(run) && clb_call_overlaps(run->call);
}

/* Calls that are not for the device that is expected, as another process has seen it, don't start
 * it. NULL: no process has used one before. */
static bool is_for_next_by_expected(struct clb_run *run)
{
    const struct clb_question *question = &run->question;
    const struct clb_device *expected = clb_device_expected();
    if (!clb_run_is_auto(run) || clb_runtime_peek() != NULL)
        return false;
    run->starts = true;
    settle_for(expected, question);
    if (expected == NULL) {
        run->prediction = (struct clb_prediction){.device = NAN, .next = NAN};
        run->reason = CLB_REASON_SMALL;
        return question->work < clb_threshold(question->routine);
    }
    bool by_times;
    const struct clb_prediction alone = predict_by_history(run, expected);
    set_prediction(run, &alone, &question->owner);
    run->reason = decide_for_device(expected, question, &run->prediction, &by_times);
    return run->reason != CLB_REASONS;
}

static bool was_slow(struct clb_run *run)
{
    const struct clb_device *expected = clb_device_expected();
    return run->starts && expected != NULL && clb_rate_was_slow(expected, run->precision);
}

static bool is_dry_start(struct clb_run *run)
{
    return run->starts && clb_device_expected() != NULL &&
           clb_config_get()->mode == CLB_MODE_DRY_RUN;
}

static bool start_costs_more(struct clb_run *run)
{
    return run->starts && !start_pays(clb_device_expected(), &run->question, &run->prediction);
}

static clb_reason reason_of_state(clb_runtime_state state)
{
    switch (state) {
    case CLB_RUNTIME_ABANDONED:
        return CLB_REASON_FORKED;
    case CLB_RUNTIME_QUARANTINED:
        return CLB_REASON_QUARANTINED;
    case CLB_RUNTIME_STARTING:
        return CLB_REASON_STARTING;
    default:
        return CLB_REASON_NODEVICE;
    }
}

static bool has_no_device(struct clb_run *run)
{
    clb_runtime_state state = (clb_runtime_state)clb_runtime_settle();
    if ((state == CLB_RUNTIME_IDLE || state == CLB_RUNTIME_STARTING) && !make_ready(run)) {
        run->reason = CLB_REASON_STARTING;
        return true;
    }
    run->runtime = clb_runtime_get(&state);
    if (run->runtime != NULL)
        return false;
    if (state != CLB_RUNTIME_STARTING)
        clb_threshold_decline_all();
    run->reason = reason_of_state(state);
    return true;
}

static bool is_for_next(struct clb_run *run)
{
    bool by_times;
    const struct clb_device *device = &run->runtime->device;
    if (run->question.predicted) {
        settle_for(device, &run->question);
        predict_run(run, device);
    }
    run->reason = decide_for_device(device, &run->question, &run->prediction, &by_times);
    return run->reason != CLB_REASONS;
}

static bool has_no_kernels(struct clb_run *run)
{
    if (!make_ready(run)) {
        run->reason = CLB_REASON_STARTING;
        return true;
    }
    switch (clb_gemm_variant_get(run->runtime, run->precision, &run->variant)) {
    case CLB_OK:
        return false;
    case CLB_ERR_NOMEM:
        run->reason = CLB_REASON_NOMEMORY;
        return true;
    case CLB_ERR_UNSUPPORTED:
        run->reason = CLB_REASON_QUARANTINED;
        return true;
    case CLB_ERR_STARTING:
        run->reason = CLB_REASON_STARTING;
        return true;
    default:
        run->reason = CLB_REASON_NODEVICE;
        return true;
    }
}

static bool is_slow(struct clb_run *run)
{
    return clb_run_is_auto(run) && clb_gemm_is_too_slow(run->variant);
}

static bool is_dry_run(struct clb_run *run)
{
    (void)run;
    return clb_config_get()->mode == CLB_MODE_DRY_RUN;
}

static bool has_no_room(struct clb_run *run)
{
    (void)run;
    return !clb_host_has_room();
}

static bool log_no_host(const struct clb_run *run)
{
    clb_log(CLB_LOG_INFO, "%s: there is no library of its integer width to finish it",
            run->entry->symbol->next.name);
    return true;
}

/* The next library has not all functions that finish the routine if the device fails. */
static bool has_no_host(struct clb_run *run)
{
    if (run->host == NULL)
        return false; /* the history knows that it has */
    /* xGEMMTR, which not every library has, is composed of products. */
    const unsigned needs = run->ops->needs & ~CLB_NEEDS(gemmtr);
    for (unsigned kind = 0; kind < CLB_KINDS; kind++) {
        if ((needs & 1U << kind) != 0 && run->host->of[kind] == NULL)
            return log_no_host(run);
    }
    return false;
}

/* All reasons to decline a call, in order: the first gate that declines it names the reason, or
 * sets the run's where the table has CLB_REASONS. Of a call that the history knows those of
 * `unknown` are left out. */
static const struct gate {
    bool (*declines)(struct clb_run *run);
    clb_reason reason;
    enum { ALL, UNKNOWN } of;
} gates[] = {
    {is_off, CLB_REASON_OFF, ALL},
    {is_wrong, CLB_REASON_INVALID, ALL},
    {is_query, CLB_REASON_QUERY, ALL},
    {is_quick, CLB_REASON_QUICK, ALL},
    {is_reentrant, CLB_REASON_REENTRANT, ALL},
    {is_kept, CLB_REASON_COST, ALL},
    {is_small, CLB_REASON_SMALL, ALL},
    {is_remembered, CLB_REASONS, ALL},
    {overlaps, CLB_REASON_INVALID, ALL},
    /* From here on the driver may be entered. */
    {is_for_next_by_history, CLB_REASON_COST, ALL},
    {is_for_next_by_expected, CLB_REASONS, UNKNOWN},
    {was_slow, CLB_REASON_SLOW, UNKNOWN},
    {is_dry_start, CLB_REASON_DRY_RUN, UNKNOWN},
    {start_costs_more, CLB_REASON_COST, UNKNOWN},
    {has_no_device, CLB_REASONS, ALL},
    {is_for_next, CLB_REASONS, UNKNOWN},
    {has_no_kernels, CLB_REASONS, ALL},
    {is_slow, CLB_REASON_SLOW, ALL},
    {is_dry_run, CLB_REASON_DRY_RUN, ALL},
    {has_no_room, CLB_REASON_NOMEMORY, ALL},
    {has_no_host, CLB_REASON_COST, ALL},
};
enum { GATES = CLB_COUNT_OF(gates), GATES_BEFORE_DRIVER = 9 };

static clb_reason walk(struct clb_run *run, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (gates[i].of == UNKNOWN && run->is_known)
            continue;
        if (gates[i].declines(run))
            return gates[i].reason != CLB_REASONS ? gates[i].reason : run->reason;
    }
    return CLB_REASONS;
}

clb_reason clb_decide(struct clb_run *run)
{
    return walk(run, 0, GATES_BEFORE_DRIVER);
}

clb_reason clb_decide_on_device(struct clb_run *run)
{
    struct clb_question *question = &run->question;
    question->routine = run->entry->symbol->routine;
    question->work = run->work;
    question->smallest = smallest_of(run);
    question->predicted = !run->is_known && wants_prediction(run);
    if (run->host != NULL)
        question->owner = owner_of(run->host);
    if (question->predicted)
        question->cost = clb_cost_describe(run->call, run->m, run->n, run->k);
    set_patience(run);
    const clb_reason reason = walk(run, GATES_BEFORE_DRIVER, GATES);
    if (!run->is_known)
        remember_decision(run, run->runtime != NULL ? &run->runtime->device : clb_device_expected(),
                          reason);
    return reason;
}

/* ---- what calls take ------------------------------------------------------------------------- */

/* Whether the call's duration on the device says something. */
bool clb_run_is_learnt(const struct clb_run *run)
{
    return writes_profile() || (!clb_config_get()->reproducible && clb_run_is_auto(run) &&
                                clb_prediction_is_known(&run->prediction));
}

/* Others that use the CPU lengthen a call, but not its CPU time; where the device is the CPU that
 * says on both sides what a call takes undisturbed. NAN: it is not. */
double clb_decide_cpu_now(const struct clb_device *device)
{
    return device != NULL && clb_device_is_cpu(device) ? clb_cpu_now() : NAN;
}

static double undisturbed(double seconds, const struct clb_device *device, double cpu_begin)
{
    return fmin(seconds, clb_decide_cpu_now(device) - cpu_begin);
}

/* Beside other calls, those that it began beside or that have come since, it takes longer than
 * alone. That is not for the profile's file. */
void clb_decide_learn(const struct clb_run *run, double seconds, double cpu_begin)
{
    static atomic_bool start_is_known;
    struct clb_profile_owner owner = run->question.owner;
    owner.device = &run->runtime->device;
    const double crowding = fmax(run->prediction.device / run->alone.device,
                                 crowding_of(&owner, CLB_SIDE_DEVICE, count_others(&run->alone)));
    seconds = undisturbed(seconds, owner.device, cpu_begin);
    if (!atomic_exchange(&start_is_known, true))
        clb_profile_learn_start(&owner, run->runtime->start_seconds);
    if (!writes_profile())
        clb_history_learn_work(&run->key, seconds, fmax(crowding, 1));
    else if (!(crowding > 1))
        clb_profile_learn(&owner, CLB_SIDE_DEVICE, &run->question.cost, seconds);
    if (!(crowding > 1) && run->entry->compared && !run->verify.wanted)
        clb_history_learn(&run->key, CLB_SIDE_DEVICE, seconds);
}

/* Other threads' predictions count with the call from now on. */
void clb_decide_begin(const struct clb_run *run, clb_side side)
{
    if (clb_run_is_predicted(run) && side == CLB_SIDE_DEVICE)
        clb_history_begin(side, run->alone.device, run->prediction.device);
    else if (clb_run_is_predicted(run))
        clb_history_begin(side, run->alone.next, run->prediction.next);
}

void clb_decide_end(const struct clb_run *run)
{
    if (clb_run_is_predicted(run))
        clb_history_end();
}

/* Whether what the next library takes for the call that is declined says something. */
static bool learns_of_next(const struct clb_run *run)
{
    return writes_profile() && !isgreater(run->prediction.next, run->alone.next) &&
           clb_device_expected() != NULL && run->entry->target != NULL &&
           !clb_run_computes_nothing(run) && !clb_call_is_quick(run->call) && !clb_thread_inside;
}

void clb_route_learn_next(const struct clb_entry *entry, double seconds)
{
    const struct clb_call *call = &entry->call;
    const char *sizes = clb_routines[call->routine].sizes;
    struct clb_thread_state thread_state;
    clb_thread_state_save(&thread_state); /* a handler must not jump out of the locks */
    struct clb_profile_owner owner = owner_of_target(entry->target);
    owner.device = clb_device_expected();
    seconds = undisturbed(seconds, owner.device, entry->cpu_begin);
    if (entry->learnt) {
        const struct clb_cost_call cost =
            clb_cost_describe(call, clb_call_size(call, sizes[0]), clb_call_size(call, sizes[1]),
                              clb_call_size(call, sizes[2]));
        clb_profile_learn(&owner, CLB_SIDE_NEXT, &cost, seconds);
    }
    if (entry->compared) {
        const struct clb_history_key key = key_of(entry, &owner);
        clb_history_learn(&key, CLB_SIDE_NEXT, seconds);
    }
    clb_thread_state_restore(&thread_state);
}

void clb_decide_declined(const struct clb_run *run, clb_reason reason)
{
    struct clb_entry *entry = run->entry;
    entry->learnt = learns_of_next(run);
    entry->compared = entry->compared && reason == CLB_REASON_COST;
    begin_enclosing(run, reason);
    entry->timed = clb_stats_wanted || entry->learnt || entry->compared || entry->encloses;
    if (entry->learnt || entry->compared)
        entry->cpu_begin = clb_decide_cpu_now(clb_device_expected());
}
