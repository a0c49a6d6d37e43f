/* SPDX-License-Identifier: BSD-3-Clause
 * CLBLAS_SHIM_VERIFY: results of the device are checked before the call returns (blas/judge.h).
 * What the check or the next library needs of what is overwritten is copied first. A result that
 * fails is undone, the device is not used any more, and the next library computes the call. */
#include "blas/judge.h"
#include "engine/kernel/kernel.h"
#include "engine/ocl/helper.h"
#include "route.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A call that is to be verified, with copies of the matrices that it overwrites. */
struct clb_verification {
    struct clb_before before[CLB_CALL_MATRICES]; /* owned; NULL: none */
    size_t bytes[CLB_CALL_MATRICES];
};

/* ---- which calls ---- */

atomic_bool clb_verify_passed[CLB_ROUTINES][CLB_VERIFY_CLASSES];

_Atomic long clb_verified_calls;

/* What a check of the kernel that has passed is called in the cache. */
static void name_first_use(const struct clb_run *run, char name[80])
{
    snprintf(name, 80, "results of %s %d, version " CLB_VERSION,
             clb_routines[run->call->routine].name, run->size_class);
}

static bool is_first_use(const struct clb_run *run)
{
    char name[80];
    name_first_use(run, name);
    const bool passed = clb_program_is_checked(run->variant->program, name);
    if (passed)
        atomic_store(&clb_verify_passed[run->call->routine][run->size_class], true);
    return !passed;
}

/* Every 1/p-th call, by their number in this process. */
static bool is_in_share(double share)
{
    static _Atomic unsigned long calls;
    const double before = (double)atomic_fetch_add(&calls, 1);
    return floor((before + 1) * share) > floor(before * share);
}

/* ---- copies ---- */

/* What beta = 0 leaves unread need not be kept: the next library does not read it either. */
static clb_status copy_outputs(struct clb_run *run)
{
    for (size_t i = 0; i < CLB_CALL_MATRICES; i++) {
        struct clb_before *before = &run->verification->before[i];
        struct clb_shape matrix;
        size_t bytes = 0;
        if (!clb_call_shape(run->call, (char)('A' + i), &matrix) || !matrix.written ||
            !clb_call_reads_c(run->call))
            continue;
        clb_status status = clb_extent_bytes(matrix.rows, matrix.cols, matrix.rows,
                                             clb_precision_size(run->call->precision), &bytes);
        void *copy = status == CLB_OK ? clb_host_map(bytes) : NULL;
        if (copy == NULL)
            return CLB_ERR_NOMEM;
        *before = (struct clb_before){copy, matrix.rows};
        run->verification->bytes[i] = bytes;
        clb_copy_part(run->call->precision, matrix.part, matrix.rows, matrix.cols, matrix.data,
                      matrix.ld, copy, before->ld);
    }
    return CLB_OK;
}

static void put_back(struct clb_run *run)
{
    for (size_t i = 0; i < CLB_CALL_MATRICES; i++) {
        const struct clb_before *before = &run->verification->before[i];
        struct clb_shape matrix;
        if (before->data != NULL && clb_call_shape(run->call, (char)('A' + i), &matrix))
            clb_copy_part(run->call->precision, matrix.part, matrix.rows, matrix.cols, before->data,
                          before->ld, matrix.data, matrix.ld);
    }
}

void clb_verify_free(struct clb_run *run)
{
    for (size_t i = 0; i < CLB_CALL_MATRICES; i++)
        clb_host_unmap((void *)(uintptr_t)run->verification->before[i].data,
                       run->verification->bytes[i]);
    free(run->verification);
    run->verification = NULL;
}

/* ---- a call ---- */

static int size_class_of(double work)
{
    int exponent = 0;
    (void)frexp(work, &exponent);
    const int edge = exponent < 0 ? 0 : exponent / 3;
    return edge < CLB_VERIFY_CLASSES ? edge : CLB_VERIFY_CLASSES - 1;
}

/* Results of a routine and a size whose first use has passed are not verified again. */
bool clb_verify_is_due(struct clb_run *run)
{
    const double share = clb_config_get()->verify;
    run->size_class = size_class_of(run->work);
    const atomic_bool *passed = &clb_verify_passed[run->call->routine][run->size_class];
    return share > 0 || (share < 0 && !atomic_load_explicit(passed, memory_order_relaxed));
}

clb_reason clb_verify_begin(struct clb_run *run)
{
    const double share = clb_config_get()->verify;
    if (!clb_verify_is_due(run))
        return CLB_REASONS;
    if (!(share < 0 ? is_first_use(run) : is_in_share(share)))
        return CLB_REASONS;
    clb_signals_let_through();
    const double begin = clb_trace_wanted() ? clb_now() : 0;
    run->verification = calloc(1, sizeof *run->verification);
    const clb_status status = run->verification != NULL ? copy_outputs(run) : CLB_ERR_NOMEM;
    if (clb_trace_wanted())
        clb_trace_since("copy", begin);
    if (status == CLB_OK)
        return CLB_REASONS;
    if (run->verification != NULL)
        clb_verify_free(run);
    return share >= 1 ? CLB_REASON_NOMEMORY : CLB_REASONS;
}

static void note_passed(const struct clb_run *run)
{
    char name[80];
    if (clb_config_get()->verify >= 0)
        return;
    name_first_use(run, name);
    clb_program_set_checked(run->runtime, run->variant->program, name);
    atomic_store(&clb_verify_passed[run->call->routine][run->size_class], true);
}

static bool end_verification(struct clb_run *run, const struct clb_verdict *verdict)
{
    const char *name = run->entry->symbol->next.name;
    char text[120];
    atomic_fetch_add(&clb_verified_calls, 1);
    clb_call_describe(run->call, text, sizeof text);
    clb_log(CLB_LOG_INFO, "%s %s: %s, %zu of %zu entries judged, at most %.2g of the bound", name,
            text, verdict->failed != NULL ? verdict->failed : "verified", verdict->judged,
            verdict->judged + verdict->left, verdict->worst);
    if (verdict->failed == NULL) {
        if (verdict->judged > 0)
            note_passed(run);
        return true;
    }
    clb_log(CLB_LOG_ERROR,
            "%s %s: the result is wrong (%s, %.3g where %.3g is the bound), the next library "
            "computes it",
            name, text, verdict->failed, verdict->error, verdict->bound);
    put_back(run);
    clb_runtime_quarantine(run->runtime);
    return false;
}

bool clb_verify_end(struct clb_run *run)
{
    const struct clb_judged question = {.call = run->call,
                                        .before = run->verification->before,
                                        .rounded = clb_config_get()->math == CLB_MATH_FAST};
    struct clb_thread_state thread_state;
    struct clb_verdict verdict;
    bool right = true;
    if (run->status != CLB_OK && run->written == 0)
        return true;
    clb_thread_state_save(&thread_state, true);
    const double begin = clb_trace_wanted() ? clb_now() : 0;
    if (clb_judge(&question, &verdict) == CLB_OK)
        right = end_verification(run, &verdict);
    if (clb_trace_wanted())
        clb_trace_since("verify", begin);
    clb_verify_free(run);
    clb_thread_state_restore(&thread_state);
    return right;
}
