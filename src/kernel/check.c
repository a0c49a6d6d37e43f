/* Checks of kernels: running them once, and the functions that they share. */
#include "check.h"

struct check_run {
    clb_check_task *task;
    void *argument;
};

/* Between clb_load_begin and clb_load_end, because CPU devices load the shared libraries that they
 * compile. */
static clb_status run_loading(void *argument)
{
    const struct check_run *run = argument;
    clb_load_begin();
    clb_status status = run->task(run->argument);
    clb_load_end();
    return status;
}

/* Runs on the driver thread, because a driver may compile at the first launch of a kernel. */
clb_status clb_check_run(clb_check_task *task, void *argument)
{
    struct check_run run = {task, argument};
    return clb_driver_call(run_loading, &run);
}

/* ---- once ------------------------------------------------------------------------------------ */

struct attempt {
    struct clb_check *check;
    const char *lost;
    clb_check_task *task;
    void *argument;
};

static clb_status judge(const struct attempt *attempt)
{
    struct clb_check *check = attempt->check;
    clb_status status = attempt->task(attempt->argument);
    if (status == CLB_ERR_BUILD || status == CLB_ERR_LAUNCH || status == CLB_ERR_UNSUPPORTED) {
        clb_log(CLB_LOG_WARN, "%s: %s", attempt->lost, clb_status_name(status));
        status = CLB_ERR_UNSUPPORTED;
    }
    if (status == CLB_OK || status == CLB_ERR_UNSUPPORTED) {
        check->status = status;
        atomic_store_explicit(&check->done, true, memory_order_release);
    }
    return status;
}

/* Runs on the driver thread, so only one attempt runs at a time; another caller may have been
 * first. */
static clb_status attempt_once(void *argument)
{
    const struct attempt *attempt = argument;
    const struct clb_check *check = attempt->check;
    return atomic_load(&check->done) ? check->status : judge(attempt);
}

clb_status clb_check_once(struct clb_check *check, const char *lost, clb_check_task *task,
                          void *argument)
{
    struct attempt attempt = {check, lost, task, argument};
    if (atomic_load_explicit(&check->done, memory_order_acquire))
        return check->status;
    return clb_check_run(attempt_once, &attempt);
}

/* ---- which sizes ----------------------------------------------------------------------------- */

bool clb_check_tries_all(const struct clb_check_programs *check)
{
    bool known = true;
    for (size_t i = 0; i < CLB_COUNT_OF(check->program) && check->program[i] != NULL; i++)
        known = known && clb_program_is_checked(check->runtime, check->program[i], check->name);
    clb_log(CLB_LOG_INFO, "check of %s: %s", check->name, known ? "a small size" : "all sizes");
    return !known;
}

void clb_check_note_passed(const struct clb_check_programs *check)
{
    for (size_t i = 0; i < CLB_COUNT_OF(check->program) && check->program[i] != NULL; i++)
        clb_program_set_checked(check->runtime, check->program[i], check->name);
}

bool clb_check_end(struct clb_queue_set *queue_set)
{
    bool idle = queue_set == NULL || clb_queue_set_settle(queue_set);
    if (queue_set != NULL && idle)
        clb_queue_set_release(queue_set);
    else if (queue_set != NULL)
        clb_queue_set_discard(queue_set);
    return idle;
}

/* ---- numbers --------------------------------------------------------------------------------- */

double clb_check_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(*state >> 40) / (double)(1 << 24) - 0.5;
}

static bool is_single(clb_precision precision)
{
    return clb_precision_real_size(precision) == sizeof(float);
}

double clb_check_get(clb_precision precision, const void *x, size_t at)
{
    return is_single(precision) ? (double)((const float *)x)[at] : ((const double *)x)[at];
}

void clb_check_put(clb_precision precision, void *x, size_t at, double value)
{
    if (is_single(precision))
        ((float *)x)[at] = (float)value;
    else
        ((double *)x)[at] = value;
}

double clb_check_unit(clb_precision precision)
{
    return is_single(precision) ? 0x1p-24 : 0x1p-53;
}
