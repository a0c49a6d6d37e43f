/* What the checks of kernels share. */
#include "check.h"

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
    clb_queue_set_end(queue_set, idle);
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
