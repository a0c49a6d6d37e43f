/* SPDX-License-Identifier: BSD-3-Clause
 * decide: which side computes a call. It passes the gates of the table below in order. A call like
 * one before is the history's to decide; predict.c has the gates for others. */
#include "engine/kernel/kernel.h"
#include "engine/ocl/helper.h"
#include "cost.h"
#include "route.h"

#include <math.h>

const char *clb_reason_name(clb_reason reason)
{
    static const char *const names[CLB_REASONS] = {
#define CLB_REASON_NAME(id, name) [CLB_REASON_##id] = name,
        CLB_REASON_TABLE(CLB_REASON_NAME)
#undef CLB_REASON_NAME
    };
    return names[reason];
}

bool clb_run_is_query(const struct clb_run *run)
{
    return clb_signature_has(run->call, 'w') && run->call->lwork == -1;
}

bool clb_run_computes_nothing(const struct clb_run *run)
{
    return clb_call_first_wrong(run->call) != 0 || clb_run_is_query(run);
}

/* Outside the guard a comparison with NaN would raise the program's FE_INVALID. */
bool clb_run_is_predicted(const struct clb_run *run)
{
    return isgreater(run->prediction.next, 0) && clb_prediction_is_known(&run->prediction);
}

bool clb_starts_at_once(void)
{
    const struct clb_config *config = clb_config_get();
    return config->mode != CLB_MODE_AUTO || config->reproducible || config->kernel != NULL;
}

bool clb_decide_learns(void)
{
    return clb_config_get()->learn && !clb_config_get()->reproducible;
}

bool clb_decide_has_history(const struct clb_run *run)
{
    return clb_run_is_auto(run) && !clb_decide_learns();
}

/* A C name of LAPACK copies matrices besides, and then makes such a call. */
bool clb_decide_times_both(const struct clb_run *run)
{
    return clb_config_get()->mode == CLB_MODE_AUTO && clb_run_is_auto(run) &&
           !clb_config_get()->reproducible && !clb_run_is_lapacke(run);
}

bool clb_run_is_learnt(const struct clb_run *run)
{
    return clb_decide_learns() || (!clb_config_get()->reproducible && clb_run_is_auto(run) &&
                                   clb_prediction_is_known(&run->prediction));
}

/* ---- what the history has decided ---- */

struct clb_next_library clb_decide_next(const struct clb_host_blas *host,
                                        const struct clb_target *target)
{
    struct clb_next_library next = {"", false, 0};
    if (host != NULL)
        next = (struct clb_next_library){host->library, host->optimised, host->threads};
    else if (target != NULL)
        next = (struct clb_next_library){target->library, target->optimised,
                                         target->get_threads != NULL ? target->get_threads() : 0};
    if (next.name == NULL)
        next.name = "";
    if (next.threads <= 0)
        next.threads = (int)clb_cpus;
    return next;
}

/* The shapes of the matrices follow from these sizes and the side. Names of other forms may lack a
 * function that a failure needs. */
struct clb_history_key clb_decide_key(const struct clb_entry *entry,
                                      const struct clb_next_library *next)
{
    const struct clb_call *call = &entry->call;
    const unsigned flags = (unsigned)call->right << 2 | (unsigned)clb_call_reads_c(call) << 1 |
                           (unsigned)next->optimised;
    return (struct clb_history_key){
        {(uint64_t)call->routine << 32 | (uint64_t)entry->symbol->form << 24 |
             (uint64_t)(next->threads & 0xffffff),
         (uintptr_t)next->name, (uint64_t)clb_runtime_settle() << 3 | flags, (uint64_t)call->m,
         (uint64_t)call->n, (uint64_t)call->k, (uint64_t)call->nrhs}};
}

/* Where results must not depend on what else the program does, no other call counts. */
double clb_decide_others(const struct clb_prediction *alone)
{
    return clb_config_get()->reproducible ? 0 : clb_history_beside(alone);
}

double clb_decide_crowding(const struct clb_next_library *next, clb_side side, double others)
{
    return clb_history_crowding(side, others, next->optimised ? fmax(next->threads, 1) : 1,
                                (double)clb_cpus);
}

void clb_decide_set_prediction(struct clb_run *run, const struct clb_prediction *alone)
{
    run->prediction = run->alone = *alone;
    const double others = clb_prediction_is_known(alone) ? clb_decide_others(alone) : 0;
    if (!isgreater(others, 0))
        return;
    run->prediction.device *= clb_decide_crowding(&run->next, CLB_SIDE_DEVICE, others);
    run->prediction.next *= clb_decide_crowding(&run->next, CLB_SIDE_NEXT, others);
}

/* The decision for such a call is remembered, and is not to be asked about again. */
static bool is_remembered(struct clb_run *run)
{
    const struct clb_target *target = run->entry->target;
    if (!clb_decide_has_history(run) || (run->host == NULL && target == NULL))
        return false;
    run->next = clb_decide_next(run->host, target);
    run->key = clb_decide_key(run->entry, &run->next);
    const bool timed = clb_decide_times_both(run) && clb_runtime_peek() != NULL;
    run->is_known = clb_history_recall(&run->key, timed, &run->known, &run->asks, &run->stands_for);
    if (!run->is_known || run->known.for_device || run->asks)
        return false;
    clb_decide_set_prediction(run, &run->known.alone);
    run->reason = (clb_reason)run->known.reason;
    return true;
}

/* The call may be one of those that go to the other side, and others may be beside it. */
static bool is_for_next_by_history(struct clb_run *run)
{
    struct clb_prediction alone = run->known.alone;
    if (!run->is_known)
        return false;
    if (run->asks)
        clb_predict_try_other(run, &alone);
    clb_decide_set_prediction(run, &alone);
    if (!run->known.by_times)
        return !run->known.for_device;
    if (!run->turned && clb_prediction_is_for_device(&alone) != run->known.for_device)
        clb_history_decide(&run->key, NULL); /* the times have decided otherwise: ask all again */
    return clb_prediction_is_for_device(&run->prediction) == run->turned;
}

/* ---- the other gates ---- */

#define GATE(name, condition)             \
    static bool name(struct clb_run *run) \
    {                                     \
        (void)run;                        \
        return condition;                 \
    }
GATE(is_query, clb_run_is_query(run))
GATE(is_off, clb_config_get()->mode == CLB_MODE_OFF)
GATE(is_wrong, clb_call_first_wrong(run->call) != 0)
GATE(is_quick, clb_call_is_quick(run->call))
GATE(is_reentrant, clb_thread_inside)
GATE(is_kept, clb_run_is_auto(run) && clb_history_is_kept(run->call))
GATE(is_small, clb_run_is_small(run))
/* A C name of LAPACK has transposed copies of matrices by rows. */
GATE(overlaps, !clb_run_is_lapacke(run) && clb_call_overlaps(run->call))
GATE(is_slow, clb_run_is_auto(run) && run->variant->too_slow)
GATE(is_dry_run, clb_config_get()->mode == CLB_MODE_DRY_RUN)
GATE(has_no_room, !clb_host_has_room(CLB_ROOM_FOR_CALL))

static bool has_no_device(struct clb_run *run)
{
    clb_runtime_state state;
    if (clb_runtime_peek() == NULL)
        clb_helper_expect(run->call->precision, !clb_kind_is_product(run->call->kind));
    run->runtime = clb_runtime_get(&state);
    if (run->runtime == NULL && state != CLB_RUNTIME_STARTING)
        clb_threshold_decline_all();
    run->reason = state == CLB_RUNTIME_ABANDONED     ? CLB_REASON_FORKED
                  : state == CLB_RUNTIME_QUARANTINED ? CLB_REASON_QUARANTINED
                  : state == CLB_RUNTIME_STARTING    ? CLB_REASON_STARTING
                                                     : CLB_REASON_NODEVICE;
    return run->runtime == NULL;
}

static bool has_no_kernels(struct clb_run *run)
{
    const clb_status status =
        clb_gemm_variant_get(run->runtime, run->call->precision, &run->variant);
    run->reason = status == CLB_ERR_NOMEM         ? CLB_REASON_NOMEMORY
                  : status == CLB_ERR_UNSUPPORTED ? CLB_REASON_QUARANTINED
                  : status == CLB_ERR_STARTING    ? CLB_REASON_STARTING
                                                  : CLB_REASON_NODEVICE;
    return status != CLB_OK;
}

/* The next library can't finish what the device fails at; xGEMMTR is composed of products. */
static bool has_no_host(struct clb_run *run)
{
    if (run->host == NULL)
        return false; /* the history knows that it has */
    const unsigned needs = run->ops->needs & ~CLB_NEEDS(gemmtr);
    bool has_all = true;
    for (unsigned kind = 0; kind < CLB_KINDS; kind++)
        has_all = has_all && ((needs & 1U << kind) == 0 || run->host->of[kind] != NULL);
    if (!has_all)
        clb_log(CLB_LOG_INFO, "%s: there is no library of its integer width to finish it",
                run->entry->symbol->next.name);
    return !has_all;
}

/* The first gate that declines a call names the reason, or sets the run's where the table has
 * CLB_REASONS. Those of UNKNOWN are not for calls that the history knows. */
static const struct gate {
    bool (*declines)(struct clb_run *run);
    clb_reason reason;
    enum { ALL, UNKNOWN } of;
} gates[] = {
    {is_kept, CLB_REASON_COST, ALL},
    {is_off, CLB_REASON_OFF, ALL},
    {is_wrong, CLB_REASON_INVALID, ALL},
    {is_query, CLB_REASON_QUERY, ALL},
    {is_quick, CLB_REASON_QUICK, ALL},
    {is_reentrant, CLB_REASON_REENTRANT, ALL},
    {is_small, CLB_REASON_SMALL, ALL},
    {is_remembered, CLB_REASONS, ALL},
    {overlaps, CLB_REASON_INVALID, ALL},
    /* From here on the driver may be entered. */
    {is_for_next_by_history, CLB_REASON_COST, ALL},
    {clb_predict_declines_start, CLB_REASONS, ALL},
    {has_no_device, CLB_REASONS, ALL},
    {clb_predict_declines, CLB_REASONS, UNKNOWN},
    {has_no_kernels, CLB_REASONS, ALL},
    {clb_predict_has_no_kernels, CLB_REASON_STARTING, UNKNOWN},
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

/* In `auto` a call waits so long for a start; not at all where one like it was on the device. */
#define LONGEST_START 2.5

clb_reason clb_decide_on_device(struct clb_run *run)
{
    const bool is_ready = run->is_known && run->known.for_device && clb_runtime_peek() != NULL;
    if (clb_run_is_auto(run) && !clb_starts_at_once())
        clb_driver_set_time_limit(is_ready ? 0 : clb_now() + LONGEST_START);
    const clb_reason reason = walk(run, GATES_BEFORE_DRIVER, GATES);
    if (!run->is_known)
        clb_predict_remember(run, reason);
    return reason;
}
