/* The part of routing that is the same for all routines: min_work, policy, outcome, statistics,
 * log.
 */
#include "engine/device_blas/device_blas.h"
#include "inflight.h"
#include "repeated.h"
#include "run.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

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

static bool is_lapacke(const struct clb_run *run)
{
    return run->call->symbol->next.abi == CLB_ABI_LAPACKE;
}

static bool is_query(const struct clb_run *run)
{
    return clb_signature_has(run->call, 'w') && run->call->lwork == -1;
}

static void remember_declined(const struct clb_run *run)
{
    if (!is_lapacke(run))
        return;
    declined.symbol = run->call->symbol;
    declined.m = run->m;
    declined.n = run->n;
    declined.k = run->k;
}

static bool is_declined_already(const struct clb_run *run)
{
    const struct clb_symbol *symbol = run->call->symbol;
    if (declined.symbol == NULL || declined.symbol == symbol ||
        declined.symbol->routine != symbol->routine || declined.m != run->m ||
        declined.n != run->n || declined.k != run->k)
        return false;
    if (symbol->next.abi == CLB_ABI_FORTRAN && !is_query(run))
        clb_route_end_declined();
    return true;
}

/* A call of LAPACK that an optimised next library computes because that is predicted to be faster:
 * the products that it asks for by their names are in that time, so they stay there. An error
 * handler may jump out of it; what it leaves here counts no longer when the stack is not that deep,
 * or when ten times the predicted time has passed. */
static CLB_THREAD struct {
    const char *frame; /* NULL: none */
    double until;
} outer;

#define OUTER_PATIENCE 10

static bool is_outer(const struct clb_run *run, clb_reason reason)
{
    return reason == CLB_REASON_COST && run->call->target != NULL && run->call->target->optimised &&
           isgreater(run->alone.next, 0) &&
           clb_cost_family_of(run->call->routine) >= CLB_COST_GETRF;
}

static void begin_outer(const struct clb_run *run)
{
    outer.frame = __builtin_frame_address(0);
    outer.until = clb_now() + OUTER_PATIENCE * run->prediction.next;
}

void clb_route_end_outer(void)
{
    outer.frame = NULL;
}

static bool is_inner(void)
{
    return outer.frame != NULL && (const char *)__builtin_frame_address(0) < outer.frame &&
           clb_now() < outer.until;
}

/* ---- the tables ------------------------------------------------------------------------------ */

#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,    \
                    flags, sizes, work, kind, ops, ...)                                            \
    extern const struct clb_ops clb_##ops##_ops;
#include "blas/routines.def"
#undef CLB_ROUTINE

static const struct clb_ops *const families[CLB_ROUTINES] = {
#define CLB_NAME(name, precision, ops) [CLB_ROUTINE_##name] = &clb_##ops##_ops,
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,    \
                    flags, sizes, work, kind, ops, ...)                                            \
    CLB_NAMES_##precisions(CLB_NAME, stem, ops)
#include "blas/routines.def"
#undef CLB_ROUTINE
#undef CLB_NAME
};

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
    return clb_stats_wanted || clb_log_wanted(CLB_LOG_DEBUG);
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
static _Atomic double lowest[CLB_WORKS]; /* edges below which `auto` declines at once */
static size_t cpus;                      /* of the system */

static const char *routine_name(size_t index)
{
    return index < CLB_ROUTINES ? clb_routines[index].name : NULL;
}

/* Where a device's costs are known, no smaller call is faster on any; on one that is the CPU, which
 * nothing has to be moved to. */
#define SMALLEST_CROSSOVER     250.0
#define SMALLEST_CROSSOVER_CPU 138.0

static double cube(double edge)
{
    return edge * edge * edge;
}

/* The work below which `auto` declines a call of the routine at once. */
static double lowest_work(clb_routine routine)
{
    return cube(lowest[clb_routine_work(routine)]);
}

/* What decline_all has set stays. */
static void set_min_work(void)
{
    for (int s = 0; s < CLB_SYMBOLS && !calls_are_observed(); s++) {
        const double threshold = thresholds[clb_symbols[s].routine];
        const double wanted = threshold < 0 ? lowest_work(clb_symbols[s].routine) : threshold;
        double now = atomic_load(&clb_symbols[s].min_work);
        while (now < INFINITY &&
               !atomic_compare_exchange_weak(&clb_symbols[s].min_work, &now, wanted))
            continue;
    }
}

/* What next libraries have been seen, and whether the device's costs are known beside one. */
enum { SEEN_PLAIN = 1, SEEN_OPTIMISED = 2, SEEN_COSTS = 4, SEEN_COSTS_CPU = 8, SEEN_ANY = 15 };

static bool is_cpu(const struct clb_device *device)
{
    return (device->type & CL_DEVICE_TYPE_CPU) != 0;
}

static void set_lowest(unsigned seen)
{
    for (int w = 0; w < CLB_WORKS; w++) {
        double edge = (seen & SEEN_COSTS_CPU) != 0 ? SMALLEST_CROSSOVER_CPU
                      : (seen & SEEN_COSTS) != 0   ? SMALLEST_CROSSOVER
                                                   : INFINITY;
        if ((seen & SEEN_PLAIN) != 0)
            edge = fmin(edge, clb_tuning_lowest_threshold((clb_work)w, false));
        if ((seen & SEEN_OPTIMISED) != 0)
            edge = fmin(edge, clb_tuning_lowest_threshold((clb_work)w, true));
        lowest[w] = edge;
    }
    set_min_work();
}

/* The owner's device is NULL where none is known. Where nothing is known of its costs no call below
 * the tables' thresholds for such a next library needs it. Once there is something for any next
 * library, all calls are asked about. */
static void settle_lowest(const struct clb_profile_owner *owner)
{
    static _Atomic unsigned all;
    const bool known = owner->device != NULL && clb_profile_has(owner);
    const unsigned costs = !known ? 0U : is_cpu(owner->device) ? SEEN_COSTS_CPU : SEEN_COSTS;
    const unsigned seen = (owner->optimised ? SEEN_OPTIMISED : SEEN_PLAIN) | costs;
    if ((atomic_load(&all) & seen) == seen)
        return;
    const unsigned before = atomic_fetch_or(&all, seen);
    if ((before & seen) != seen)
        set_lowest(before | seen);
}

static void configure(void)
{
    clb_tuning_check_config(clb_config_get());
    clb_config_check_names(routine_name);
    clb_stats_configure();
    clb_report_configure();
    cpus = (size_t)fmax(1, (double)sysconf(_SC_NPROCESSORS_ONLN));
    for (int r = 0; r < CLB_ROUTINES; r++)
        thresholds[r] = work_threshold(clb_routines[r].name);
    set_lowest(SEEN_ANY);
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

bool clb_run_is_auto(const struct clb_run *run)
{
    return thresholds[run->call->symbol->routine] < 0;
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
static clb_reason decide_early(const struct clb_run *run, double work)
{
    double threshold = thresholds[run->call->symbol->routine];
    if (clb_config_get()->mode == CLB_MODE_OFF)
        return CLB_REASON_OFF;
    if (clb_call_first_wrong(run->call) != 0)
        return CLB_REASON_INVALID;
    if (is_query(run))
        return CLB_REASON_QUERY;
    if (clb_call_is_quick(run->call))
        return CLB_REASON_QUICK;
    if (clb_thread_inside)
        return CLB_REASON_REENTRANT;
    if (threshold < 0 && is_inner())
        return CLB_REASON_COST;
    if (work < (threshold < 0 ? lowest_work(run->call->symbol->routine) : threshold))
        return CLB_REASON_SMALL;
    /* A C name of LAPACK has transposed copies of matrices by rows. */
    if (!is_lapacke(run) && clb_call_overlaps(run->call))
        return CLB_REASON_INVALID;
    return CLB_REASONS;
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

/* What decides about a call on the device. */
struct question {
    clb_routine routine;
    const struct clb_ops *ops;
    double work;
    size_t smallest;
    struct clb_profile_owner owner; /* its device is the one that is asked about */
    bool predicted;                 /* the durations on both sides are asked for, */
    struct clb_cost_call cost;      /* of this; */
    struct clb_prediction alone;    /* they are these, alone; 0: it was not asked yet */
    bool turned;                    /* it goes to the other side, to be timed there */
};

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
                                      .threads = host->threads > 0 ? host->threads : (int)cpus};
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
                                     const struct question *question)
{
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    return clb_profile_predict(&owner, &question->cost);
}

static bool writes_profile(void)
{
    return clb_config_get()->learn && !clb_config_get()->reproducible;
}

/* The shapes of the matrices follow from these sizes and the side. */
static struct clb_asked asked_of(const struct clb_call *call, const struct clb_profile_owner *owner)
{
    const unsigned flags = (unsigned)call->right << 2 | (unsigned)clb_call_reads_c(call) << 1 |
                           (unsigned)owner->optimised;
    return (struct clb_asked){
        {(uintptr_t)owner->library, (uint64_t)call->routine << 32 | (uint32_t)owner->threads,
         (uint64_t)atomic_load_explicit(&clb_runtime_now, memory_order_relaxed) << 3 | flags,
         (uint64_t)call->m, (uint64_t)call->n, (uint64_t)call->k, (uint64_t)call->nrhs}};
}

/* How many other threads' calls count beside this one. Where results must not depend on what else
 * the program does, none does. */
static double count_others(const struct clb_prediction *alone)
{
    return clb_config_get()->reproducible ? 0 : clb_inflight_beside(alone);
}

static void set_prediction(struct clb_run *run, const struct clb_prediction *alone,
                           const struct clb_profile_owner *owner)
{
    const struct clb_cost_machine machine = {.optimised = owner->optimised,
                                             .threads = owner->threads};
    run->prediction = run->alone = *alone;
    if (!clb_cost_is_known(&run->alone))
        return;
    const double others = count_others(&run->alone);
    run->prediction.device *= clb_cost_crowding(&machine, CLB_SIDE_DEVICE, others, cpus);
    run->prediction.next *= clb_cost_crowding(&machine, CLB_SIDE_NEXT, others, cpus);
}

/* Whether calls like this one are timed on both sides. A C name of LAPACK copies matrices besides,
 * and then makes such a call. */
static bool times_both_sides(const struct clb_run *run)
{
    return clb_config_get()->mode == CLB_MODE_AUTO && clb_run_is_auto(run) &&
           !clb_config_get()->reproducible && !is_lapacke(run);
}

/* The device is there, and the call may be one of those that try it, or the next library. */
static void predict_run(struct clb_run *run, const struct clb_device *device,
                        struct question *question)
{
    struct clb_prediction alone = predict(device, question);
    if (times_both_sides(run) && clb_cost_is_known(&alone)) {
        const struct clb_asked asked = asked_of(run->call, &question->owner);
        const bool disturbed = count_others(&alone) > 0;
        question->turned = clb_repeated_tries(&asked, run->stands_for, disturbed, &alone);
        run->call->compared = !disturbed && run->call->target != NULL;
    }
    set_prediction(run, &alone, &question->owner);
    question->alone = run->alone;
}

/* Whether the call is one for such a device. Where the times of both sides are known they decide,
 * else the table's threshold; neither where the user has set a threshold. */
static clb_reason decide_for_device(const struct clb_device *device,
                                    const struct question *question,
                                    const struct clb_prediction *prediction)
{
    clb_precision precision = clb_routines[question->routine].precision;
    struct clb_gemm_tuning tuning;
    if (clb_precision_real_size(precision) == sizeof(double) && !device->fp64)
        return CLB_REASON_NOFP64;
    if (thresholds[question->routine] >= 0)
        return CLB_REASONS;
    if (clb_tuning_gemm(device, precision, clb_config_get()->math, 0, &tuning) != CLB_OK)
        return CLB_REASON_NODEVICE;
    /* Shapes are known for devices with memory of their own. */
    if (clb_cost_is_known(prediction) &&
        (!device->unified || question->smallest >= tuning.smallest))
        return clb_cost_is_for_device(prediction) != question->turned ? CLB_REASONS
                                                                      : CLB_REASON_COST;
    if (question->work < lowest_work(question->routine))
        return CLB_REASON_SMALL;
    const struct clb_offload from = clb_tuning_offload(
        device, precision, &tuning, clb_routine_work(question->routine), question->owner.optimised);
    if (question->work < cube(from.threshold))
        return isinf(from.threshold) ? CLB_REASON_COST : CLB_REASON_SMALL;
    return question->smallest < from.smallest ? CLB_REASON_COST : CLB_REASONS;
}

/* The checks that need the device. */
static clb_reason decide_on_device(struct clb_runtime *runtime, const struct question *question,
                                   const struct clb_prediction *prediction,
                                   const struct clb_gemm_variant **variant)
{
    clb_precision precision = clb_routines[question->routine].precision;
    const clb_reason reason = decide_for_device(&runtime->device, question, prediction);
    if (reason != CLB_REASONS)
        return reason;
    switch (clb_gemm_variant_get(runtime, precision, variant)) {
    case CLB_OK:
        if (thresholds[question->routine] < 0 && clb_gemm_is_too_slow(*variant))
            return CLB_REASON_SLOW;
        break;
    case CLB_ERR_NOMEM:
        return CLB_REASON_NOMEMORY;
    case CLB_ERR_UNSUPPORTED:
        return CLB_REASON_QUARANTINED;
    case CLB_ERR_STARTING:
        return CLB_REASON_STARTING;
    default:
        return CLB_REASON_NODEVICE;
    }
    return clb_config_get()->mode == CLB_MODE_DRY_RUN ? CLB_REASON_DRY_RUN : CLB_REASONS;
}

/* ---- calls that are declined again and again ------------------------------------------------- */

/* A call that is not the device's alone is not beside others either, which cost it as much on the
 * device as in the next library at least (clb_cost_crowding). What a start would save must be added
 * up, so that only what decide_for_device has said is remembered. */
static void remember_decision(const struct clb_run *run, const struct clb_device *device,
                              const struct question *question, uint64_t valid, clb_reason reason)
{
    if ((reason != CLB_REASON_COST && reason != CLB_REASON_SMALL) || device == NULL ||
        !clb_run_is_auto(run) || writes_profile() || question->turned ||
        decide_for_device(device, question, &run->alone) != reason)
        return;
    const struct clb_asked asked = asked_of(run->call, &question->owner);
    clb_declined_remember(&asked, valid, &(struct clb_declined){run->alone, reason});
}

/* The reason, where the decision for such a call is remembered and still valid; otherwise
 * CLB_REASONS. This is before the driver may be entered, so the host's state needs no guard. */
static clb_reason recall_decision(struct clb_run *run)
{
    const struct clb_target *target = run->call->target;
    struct clb_declined known;
    if (!clb_run_is_auto(run) || writes_profile() || (run->host == NULL && target == NULL))
        return CLB_REASONS;
    const struct clb_profile_owner owner =
        run->host != NULL ? owner_of(run->host) : owner_of_target(target);
    const struct clb_asked asked = asked_of(run->call, &owner);
    const bool asks_again = times_both_sides(run) && clb_runtime_peek() != NULL;
    if (!clb_declined_recall(&asked, asks_again, &known, &run->stands_for))
        return CLB_REASONS;
    set_prediction(run, &known.prediction, &owner);
    return (clb_reason)known.reason;
}

/* ---- waiting for the device ------------------------------------------------------------------ */

static double count_flops(const struct clb_run *run, double work)
{
    bool counts = run->m > 0 && run->n > 0 && run->k > 0;
    return counts ? work * (clb_precision_parts(run->precision) == 2 ? 8 : 2) : 0;
}

/* Until when a call may wait for the device's start, programs and checks. */
static double patience_of(const struct clb_run *run, double work)
{
    const struct clb_config *config = clb_config_get();
    struct clb_wait wait = {.flops = count_flops(run, work),
                            .precision = run->precision,
                            .optimised = run->host->optimised,
                            .cpus = cpus,
                            .compiled = true};
    if (config->mode != CLB_MODE_AUTO || !clb_run_is_auto(run) || config->kernel != NULL ||
        config->reproducible)
        return INFINITY;
    wait.device = clb_device_expected();
    double seconds = clb_tuning_patience(&wait);
    if (seconds > 0 && !clb_cache_has_entries()) {
        wait.compiled = false;
        seconds = clb_tuning_patience(&wait);
    }
    return seconds > 0 ? clb_now() + seconds : 0;
}

/* Runs on the driver thread. What it leaves out is requested by the next call. */
static clb_status prepare(void *argument)
{
    const struct question *question = argument;
    const struct clb_gemm_variant *variant;
    clb_runtime_state state;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL)
        return CLB_OK;
    struct clb_prediction prediction = question->alone;
    if (question->predicted && prediction.next == 0)
        prediction = predict(&runtime->device, question);
    if (decide_on_device(runtime, question, &prediction, &variant) != CLB_REASONS)
        return CLB_OK;
    switch (question->ops->main) {
    case CLB_HOST_GEMM:
    case CLB_HOST_LEVEL3:
        return CLB_OK;
    case CLB_HOST_TRMM:
        return clb_skip_prepare(runtime, variant);
    default:
        return clb_workspace_prepare(runtime, variant);
    }
}

/* Get all ready, behind the program's back, that a later call of this routine will need first. */
static void request_preparation(const struct question *question)
{
    static atomic_bool requested[CLB_ROUTINES];
    clb_driver_set_patience(0);
    if (!atomic_exchange(&requested[question->routine], true) &&
        clb_driver_request(prepare, question, sizeof *question) == CLB_ERR_NOMEM)
        atomic_store(&requested[question->routine], false);
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

bool clb_run_complete_solution(struct clb_run *run,
                               void (*compute)(struct clb_run *, const struct clb_rect *))
{
    run->written = 0;
    for (size_t i = 0; i < run->progress.parts; i++)
        run->written += run->progress.written[i];
    return clb_run_complete_parts(run, run->solution, compute);
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

/* ---- outcome --------------------------------------------------------------------------------- */

struct outcome {
    clb_reason reason; /* CLB_REASONS: it ran on the device */
    clb_status status;
    const char *kernel;
    double seconds;
};

/* The functions that the routine needs of the next library. */
static bool is_host_complete(const struct clb_run *run)
{
    const struct clb_host_blas *host = run->host;
    const bool found[CLB_HOST_FUNCTIONS] = {
#define CLB_HOST_FOUND(function, member) host->member != NULL,
        CLB_HOST_TABLE(CLB_HOST_FOUND)
#undef CLB_HOST_FOUND
    };
    /* A routine that the next library lacks is composed of products. */
    const unsigned needs = (run->ops->needs | 1U << run->ops->main) & ~(1U << CLB_HOST_LEVEL3);
    for (unsigned f = 0; f < CLB_HOST_FUNCTIONS; f++) {
        if ((needs & 1U << f) != 0 && !found[f])
            return false;
    }
    return true;
}

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

static void settle_for(const struct clb_device *device, const struct question *question)
{
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    settle_lowest(&owner);
}

/* Whether the device would have saved what its start costs, had it been there for the calls that it
 * was wanted for so far and for this one. */
static bool start_pays(const struct clb_device *device, const struct question *question,
                       const struct clb_prediction *prediction)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double saved;
    const struct clb_config *config = clb_config_get();
    struct clb_profile_owner owner = question->owner;
    owner.device = device;
    if (config->mode != CLB_MODE_AUTO || config->reproducible || config->kernel != NULL ||
        clb_tuning_override(config, CLB_PARAM_START) != 0)
        return true;
    const double price = clb_profile_start_cost(&owner);
    pthread_mutex_lock(&lock);
    saved += clb_profile_saved(&owner, &question->cost, prediction);
    const bool pays = saved >= price;
    pthread_mutex_unlock(&lock);
    return pays;
}

/* Why the device, NULL: one that no process has used before, is not started for a call that may be
 * one for it; CLB_REASONS: it is. */
static clb_reason refuse_start(const struct clb_run *run, const struct question *question,
                               const struct clb_device *expected)
{
    if (expected != NULL && clb_rate_was_slow(expected, run->precision))
        return CLB_REASON_SLOW;
    if (expected != NULL && clb_config_get()->mode == CLB_MODE_DRY_RUN)
        return CLB_REASON_DRY_RUN;
    return start_pays(expected, question, &run->prediction) ? CLB_REASONS : CLB_REASON_COST;
}

/* The device, started; NULL with the reason why not. Calls that are not for the device that is
 * remembered don't start it. */
static struct clb_runtime *start_device(struct clb_run *run, const struct question *question,
                                        clb_reason *reason)
{
    clb_runtime_state state;
    *reason = CLB_REASONS;
    if (clb_run_is_auto(run) && clb_runtime_peek() == NULL) {
        const struct clb_device *expected = clb_device_expected();
        settle_for(expected, question);
        if (expected != NULL) {
            const struct clb_prediction alone = predict(expected, question);
            set_prediction(run, &alone, &question->owner);
            *reason = decide_for_device(expected, question, &run->prediction);
        } else {
            run->prediction = (struct clb_prediction){.device = NAN, .next = NAN};
            if (question->work < lowest_work(question->routine))
                *reason = CLB_REASON_SMALL;
        }
        if (*reason == CLB_REASONS)
            *reason = refuse_start(run, question, expected);
    }
    if (*reason != CLB_REASONS)
        return NULL;
    struct clb_runtime *runtime = clb_runtime_get(&state);
    if (runtime == NULL && state != CLB_RUNTIME_STARTING)
        decline_all();
    if (runtime == NULL)
        *reason = reason_of_state(state);
    return runtime;
}

/* How long the device may complete no command. */
static double longest_standstill(const struct clb_gemm_variant *variant, double flops)
{
    const size_t millis = variant->tuning.value[CLB_PARAM_HANG];
    if (millis != 0)
        return millis == 1 ? INFINITY : 1e-3 * (double)millis;
    return fmax(30, 100 * variant->flop_seconds * flops);
}

/* Whether durations are asked for: to decide, for reports, or to learn. */
static bool wants_prediction(const struct clb_run *run)
{
    return clb_run_is_auto(run) || calls_are_observed() || writes_profile();
}

/* Whether the call's duration on the device says something. */
static bool learns_of(const struct clb_run *run)
{
    return writes_profile() || (!clb_config_get()->reproducible && clb_run_is_auto(run) &&
                                clb_cost_is_known(&run->prediction));
}

/* Others that use the CPU lengthen a call, but not its CPU time; where the device is the CPU that
 * says on both sides what a call takes undisturbed. NAN: it is not. */
static double cpu_now(const struct clb_device *device)
{
    return device != NULL && is_cpu(device) ? clb_cpu_now() : NAN;
}

static double undisturbed(double seconds, const struct clb_device *device, double cpu_begin)
{
    return fmin(seconds, cpu_now(device) - cpu_begin);
}

/* Beside other calls, those that it began beside or that have come since, it takes longer than
 * alone, and so many calls together say as much as one alone. That is not for the profile's file.
 */
static void learn(const struct clb_run *run, const struct clb_runtime *runtime,
                  const struct question *question, double seconds)
{
    static atomic_bool start_is_known;
    struct clb_profile_owner owner = question->owner;
    owner.device = &runtime->device;
    const struct clb_cost_machine machine = {.optimised = owner.optimised,
                                             .threads = owner.threads};
    const double alone = run->alone.device;
    const double crowding =
        fmax(run->prediction.device / alone,
             clb_cost_crowding(&machine, CLB_SIDE_DEVICE, count_others(&run->alone), cpus));
    if (!atomic_exchange(&start_is_known, true))
        clb_profile_learn_start(&owner, runtime->start_seconds);
    if (!(crowding > 1)) {
        const struct clb_asked asked = asked_of(run->call, &question->owner);
        clb_profile_learn(&owner, CLB_SIDE_DEVICE, &question->cost, seconds);
        if (run->call->compared && !run->verify.wanted)
            clb_repeated_learn(&asked, CLB_SIDE_DEVICE, seconds);
    } else if (!writes_profile()) {
        clb_profile_learn(&owner, CLB_SIDE_DEVICE, &question->cost,
                          alone + (fmin(seconds / crowding, 2 * alone) - alone) / crowding);
    }
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
static clb_reason begin_verification(struct clb_run *run, double work, struct clb_runtime *runtime,
                                     const struct clb_gemm_variant *variant)
{
    const double share = clb_config_get()->verify;
    run->verify.size_class = size_class_of(work);
    const atomic_bool *passed = &clb_verify_passed[run->call->routine][run->verify.size_class];
    if (share == 0 || run->ops->verify == CLB_VERIFY_NOTHING ||
        (share < 0 && atomic_load_explicit(passed, memory_order_relaxed)))
        return CLB_REASONS;
    return clb_verify_begin(run, runtime, variant);
}

/* False also for calls that were declined before they were asked about. Outside the guard of the
 * host's state a comparison with NaN would raise the program's FE_INVALID. */
static bool is_predicted(const struct clb_run *run)
{
    return isgreater(run->prediction.next, 0) && clb_cost_is_known(&run->prediction);
}

/* Other threads' predictions count with the call from now on. */
static void begin_on(const struct clb_run *run, clb_side side)
{
    if (is_predicted(run) && side == CLB_SIDE_DEVICE)
        clb_inflight_begin(side, run->alone.device, run->prediction.device);
    else if (is_predicted(run))
        clb_inflight_begin(side, run->alone.next, run->prediction.next);
}

/* For other threads' calls: times as long as was predicted, or seconds. */
#define WAIT_PREDICTED 2
#define WAIT_UNKNOWN   0.2

/* All code that may enter the driver. */
static struct outcome run_on_device(struct clb_run *run, double work)
{
    struct outcome outcome = {0};
    struct question question = {.routine = run->call->symbol->routine,
                                .ops = run->ops,
                                .work = work,
                                .smallest = smallest_of(run),
                                .owner = owner_of(run->host),
                                .predicted = wants_prediction(run)};
    const struct clb_gemm_variant *variant;
    const uint64_t changes = clb_run_is_auto(run) ? clb_repeated_version() : 0;
    struct clb_host_state host_state;
    if (question.predicted)
        question.cost = clb_cost_describe(run->call, run->m, run->n, run->k);
    clb_host_state_save(&host_state);
    const bool before = clb_thread_inside;
    clb_thread_inside = true;
    const double patience = clb_driver_set_patience(patience_of(run, work));
    struct clb_runtime *runtime = start_device(run, &question, &outcome.reason);
    if (runtime != NULL && question.predicted) {
        settle_for(&runtime->device, &question);
        predict_run(run, &runtime->device, &question);
    }
    if (runtime != NULL)
        outcome.reason = decide_on_device(runtime, &question, &run->prediction, &variant);
    if (outcome.reason == CLB_REASON_STARTING)
        request_preparation(&question);
    remember_decision(run, runtime != NULL ? &runtime->device : clb_device_expected(), &question,
                      changes, outcome.reason);
    if (outcome.reason == CLB_REASONS && !is_host_complete(run)) {
        clb_log(CLB_LOG_INFO, "%s: there is no library of its integer width to finish it",
                run->call->symbol->next.name);
        outcome.reason = CLB_REASON_COST;
    }
    const bool learns = learns_of(run);
    const bool timed = runs_are_timed() || learns;
    const double cpu_begin = learns && runtime != NULL ? cpu_now(&runtime->device) : NAN;
    const double begin = timed ? clb_now() : 0;
    if (outcome.reason == CLB_REASONS && is_lapacke(run))
        outcome.reason = clb_lapacke_open(run);
    if (outcome.reason == CLB_REASONS)
        outcome.reason = begin_verification(run, work, runtime, variant);
    if (outcome.reason == CLB_REASONS) {
        run->declined = CLB_REASONS;
        run->solution = CLB_ERR_UNSUPPORTED;
        begin_on(run, CLB_SIDE_DEVICE);
        clb_turn_begin(runtime,
                       is_predicted(run) ? WAIT_PREDICTED * run->prediction.device : WAIT_UNKNOWN);
        clb_runtime_expect(runtime, longest_standstill(variant, count_flops(run, work)));
        struct clb_progress progress;
        clb_progress_begin(&progress, run->call->symbol->next.name, count_flops(run, work));
        outcome.status = run->ops->run(run, runtime, variant);
        clb_turn_end(runtime);
        if (is_predicted(run))
            clb_inflight_end();
        clb_progress_end(&progress);
        outcome.reason = reason_of_run(run, runtime, outcome.status);
        outcome.kernel = run->kernel != NULL ? run->kernel : variant->name;
        outcome.seconds = timed ? clb_now() - begin : 0;
        if (learns && outcome.reason == CLB_REASONS && outcome.status == CLB_OK && run->share > 0)
            learn(run, runtime, &question,
                  undisturbed(outcome.seconds, &runtime->device, cpu_begin));
        if (clb_trace_wanted())
            clb_trace_since(run->call->symbol->next.name, begin);
    }
    clb_driver_set_patience(patience);
    clb_thread_inside = before;
    clb_host_state_restore(&host_state);
    return outcome;
}

static void log_call(const struct clb_run *run, const char *where, const char *detail,
                     double seconds)
{
    char text[120];
    char predicted[80] = "";
    const struct clb_prediction *p = &run->prediction;
    clb_call_describe(run->call, text, sizeof text);
    if (is_predicted(run))
        snprintf(predicted, sizeof predicted, "; %s: device %.3f, next %.3f ms",
                 p->measured ? "measured" : "estimated", 1e3 * p->device, 1e3 * p->next);
    clb_log(CLB_LOG_DEBUG, "%s %s -> %s (%s) %.3f ms%s", run->call->symbol->next.name, text, where,
            detail, 1e3 * seconds, predicted);
}

/* Whether what the next library takes for the call that is declined says something. */
static bool learns_of_next(const struct clb_run *run)
{
    return writes_profile() && !isgreater(run->prediction.next, run->alone.next) &&
           clb_device_expected() != NULL && run->call->target != NULL &&
           clb_call_first_wrong(run->call) == 0 && !is_query(run) &&
           !clb_call_is_quick(run->call) && !clb_thread_inside;
}

void clb_route_learn_next(const struct clb_call *call, double seconds)
{
    const char *sizes = clb_routines[call->routine].sizes;
    struct clb_host_state host_state;
    clb_host_state_save(&host_state); /* a handler must not jump out of the locks */
    struct clb_profile_owner owner = owner_of_target(call->target);
    owner.device = clb_device_expected();
    const struct clb_asked asked = asked_of(call, &owner);
    const struct clb_cost_call cost =
        clb_cost_describe(call, clb_call_size(call, sizes[0]), clb_call_size(call, sizes[1]),
                          clb_call_size(call, sizes[2]));
    seconds = undisturbed(seconds, owner.device, call->cpu_begin);
    if (call->learnt)
        clb_profile_learn(&owner, CLB_SIDE_NEXT, &cost, seconds);
    if (call->compared)
        clb_repeated_learn(&asked, CLB_SIDE_NEXT, seconds);
    clb_host_state_restore(&host_state);
}

static void decline(const struct clb_run *run, clb_reason reason, double flops)
{
    struct clb_call *call = run->call;
    call->learnt = learns_of_next(run);
    call->compared = call->compared && reason == CLB_REASON_COST;
    call->outer = clb_run_is_auto(run) && is_outer(run, reason) && !is_inner();
    call->timed = clb_stats_wanted || call->learnt || call->compared || call->outer;
    if (call->outer)
        begin_outer(run);
    if (call->learnt || call->compared)
        call->cpu_begin = cpu_now(clb_device_expected());
    if (clb_stats_wanted)
        clb_stats_declined(run->call->symbol, reason, flops);
    if (clb_stats_wanted && is_predicted(run))
        clb_stats_predicted(
            run->call->symbol, &run->prediction,
            reason == CLB_REASON_DRY_RUN ? run->prediction.next - run->prediction.device : 0);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(run, "next", clb_reason_name(reason), 0);
}

static void close_lapacke(struct clb_run *run, bool computed)
{
    struct clb_host_state host_state;
    if (!is_lapacke(run))
        return;
    clb_host_state_save(&host_state);
    clb_lapacke_close(run, computed);
    clb_host_state_restore(&host_state);
}

/* False when the result is wrong, and undone. */
static bool route_finish(struct clb_run *run, const struct outcome *outcome, double flops)
{
    const struct clb_symbol *symbol = run->call->symbol;
    bool recovered = outcome->status != CLB_OK;
    if (recovered)
        clb_log(CLB_LOG_WARN, "%s: %s after %zu of %zu parts, the next library computes the rest",
                symbol->next.name, clb_status_name(outcome->status), run->written, run->parts);
    double begin = calls_are_observed() ? clb_now() : 0;
    bool next_used = run->ops->complete(run, outcome->status);
    if (run->verify.wanted && !clb_verify_end(run, outcome->status))
        return false;
    close_lapacke(run, true);
    double seconds_next = next_used && calls_are_observed() ? clb_now() - begin : 0;
    /* An algorithm that left all the work to the next library has not used the device. */
    if (!recovered && run->share <= 0) {
        decline(run, CLB_REASON_COST, flops);
        return true;
    }
    if (clb_stats_wanted)
        clb_stats_computed(symbol, outcome->kernel, recovered, flops, flops * run->share,
                           outcome->seconds, seconds_next);
    if (clb_stats_wanted && is_predicted(run))
        clb_stats_predicted(symbol, &run->prediction,
                            run->prediction.next - outcome->seconds - seconds_next);
    if (clb_log_wanted(CLB_LOG_DEBUG))
        log_call(run, recovered ? "recovered" : "device", outcome->kernel,
                 outcome->seconds + seconds_next);
    return true;
}

bool clb_route(struct clb_call *call, struct clb_host_blas *host)
{
    const struct clb_symbol *symbol = call->symbol;
    const struct clb_routine_info *routine = &clb_routines[symbol->routine];
    struct clb_run run = {.ops = families[symbol->routine],
                          .call = call,
                          .precision = routine->precision,
                          .host = host,
                          .stands_for = 1};
    struct clb_next_blas next;
    call->routine = symbol->routine;
    call->precision = routine->precision;
    if (symbol->next.abi == CLB_ABI_C && call->layout == CLB_ROW_MAJOR)
        clb_call_turn(call);
    clb_route_configure();
    clb_next_declined = &symbol->next;
    if (is_lapacke(&run))
        clb_lapacke_decode(&run);
    run.m = clb_call_size(call, routine->sizes[0]);
    run.n = clb_call_size(call, routine->sizes[1]);
    run.k = clb_call_size(call, routine->sizes[2]);
    call->timed = clb_stats_wanted;
    if (is_declined_already(&run))
        return false;
    double work = clb_work_of(routine->row, (double)run.m, (double)run.n, (double)run.k);
    double flops = count_flops(&run, work);
    struct outcome outcome = {.reason = decide_early(&run, work)};
    if (outcome.reason == CLB_REASONS)
        outcome.reason = recall_decision(&run);
    if (outcome.reason == CLB_REASONS) {
        if (host == NULL) {
            clb_next_blas_open(&next, call, run.ops->main, run.ops->needs | 1U << run.ops->main);
            run.host = &next.host;
        }
        run.host->work = call->work;
        run.host->lwork = call->lwork;
        outcome = run_on_device(&run, work);
    }
    if (outcome.reason == CLB_REASONS && !route_finish(&run, &outcome, flops))
        outcome.reason = CLB_REASON_QUARANTINED;
    bool computed = outcome.reason == CLB_REASONS;
    if (!computed) {
        close_lapacke(&run, false);
        remember_declined(&run);
        clb_next_declined = &symbol->next;
        decline(&run, outcome.reason, flops);
        begin_on(&run, CLB_SIDE_NEXT);
    }
    if (run.verify.wanted)
        clb_verify_free(&run);
    clb_gemm_progress_free(&run.progress);
    free(run.qr.tau);
    free(run.pivots);
    return computed;
}
