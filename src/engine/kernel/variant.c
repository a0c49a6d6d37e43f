/* SPDX-License-Identifier: BSD-3-Clause
 * Checks that run once; and variants, which are built and checked at their first use. */
#include "check.h"
#include "host/process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks that run once ---- */

struct attempt {
    struct clb_check *check;
    const char *lost;
    clb_check_task *task;
    _Alignas(max_align_t) char argument[CLB_CHECK_ARGUMENT];
};

/* A driver task, because a driver may compile at a kernel's first launch; inside clb_load_begin,
 * because CPU devices load the libraries that they compile. */
static clb_status judge(struct attempt *attempt)
{
    struct clb_check *check = attempt->check;
    clb_load_begin();
    clb_status status = attempt->task(attempt->argument);
    clb_load_end();
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

/* A driver task, so only one attempt runs at a time; another caller may have been first. */
static clb_status attempt_once(void *argument)
{
    struct attempt *attempt = argument;
    const struct clb_check *check = attempt->check;
    return atomic_load(&check->done) ? check->status : judge(attempt);
}

#define ASKS_AGAIN 0.02 /* seconds; a look takes a tenth of a millisecond */

clb_status clb_check_once(struct clb_check *check, const char *lost, clb_check_task *task,
                          const void *argument, size_t size)
{
    struct attempt attempt = {check, lost, task, {0}};
    if (atomic_load_explicit(&check->done, memory_order_acquire))
        return check->status;
    if (clb_driver_time_limit < INFINITY && clb_now() < check->again)
        return CLB_ERR_STARTING;
    memcpy(attempt.argument, argument, size);
    const clb_status status = clb_driver_request(attempt_once, &attempt, sizeof attempt);
    if (status == CLB_ERR_STARTING)
        check->again = clb_now() + ASKS_AGAIN;
    return status;
}

/* ---- variants ---- */

/* What has been chosen for each precision; the checks guard it. */
static struct selection {
    struct clb_check check;
    struct clb_gemm_variant variant, plain, second, plain_second, scaled, second_scaled;
    struct clb_gemm_variant raw[2];
    struct clb_check skip_check;
    struct clb_direct direct;
} selections[CLB_PRECISIONS];

const struct clb_gemm_variant *_Atomic clb_gemm_variants[CLB_PRECISIONS];

static char *build_options(const struct clb_gemm_variant *variant, bool turned)
{
    struct clb_text options = {0};
    clb_text_addf(&options, "-DCLB_DOUBLE=%d -DCLB_COMPLEX=%d",
                  clb_precision_real_size(variant->precision) == sizeof(double),
                  clb_precision_parts(variant->precision) > 1);
    for (int i = 0; i < CLB_PARAMS; i++) {
        if (clb_params[i].kernels && variant->tuning.value[i] != 0)
            clb_text_addf(&options, " -DCLB_%s=%zu", clb_params[i].name, variant->tuning.value[i]);
    }
    if (turned)
        clb_text_add(&options, " -DCLB_TURNED=1");
    if (options.failed)
        clb_text_free(&options);
    return options.data;
}

static clb_status variant_build(struct clb_runtime *runtime, const struct clb_gemm_variant *variant,
                                bool turned, struct clb_program **program)
{
    char *options = build_options(variant, turned);
    if (options == NULL)
        return CLB_ERR_NOMEM;
    clb_status status = clb_program_get(runtime, variant->family->source, options, program);
    free(options);
    return status;
}

static clb_status variant_prepare(struct clb_runtime *runtime, struct clb_gemm_variant *variant)
{
    const size_t *value = variant->tuning.value;
    variant->family = clb_gemm_family_get(variant->tuning.family);
    variant->split = variant->family->pieces != 0;
    snprintf(variant->name, sizeof variant->name, "gemm-%s-%zux%zu",
             clb_families[variant->tuning.family].name, value[CLB_PARAM_MR], value[CLB_PARAM_NR]);
    /* The padding of the depth must not separate re and im. */
    if (!variant->family->fits(variant->family, value, &runtime->device,
                               clb_precision_real_size(variant->precision)) ||
        value[CLB_PARAM_KU] % clb_precision_parts(variant->precision) != 0)
        return CLB_ERR_UNSUPPORTED;
    clb_status status = variant_build(runtime, variant, false, &variant->program), turned = CLB_OK;
    if (clb_gemm_reads_raw(variant)) /* also by a child that builds ahead */
        turned = variant_build(runtime, variant, true, &variant->turned);
    return status == CLB_OK ? turned : status;
}

static clb_status check_products(struct clb_runtime *runtime,
                                 const struct clb_gemm_variant *variant, bool direct)
{
    clb_status status = clb_gemm_prelaunch(runtime, variant, direct);
    return status == CLB_OK ? clb_gemm_check_full(runtime, variant, direct) : status;
}

/* With `direct` NULL also check the kernels that read B unpacked. CLB_ERR_UNSUPPORTED: values don't
 * suit family or device; CLB_ERR_BUILD: they don't work. */
static clb_status make_variant(struct clb_runtime *runtime, clb_precision precision,
                               const struct clb_gemm_tuning *tuning, struct clb_direct *direct,
                               struct clb_gemm_variant *variant)
{
    *variant = (struct clb_gemm_variant){.precision = precision,
                                         .tuning = *tuning,
                                         .direct = direct,
                                         .flop_seconds =
                                             clb_tuning_seconds(&runtime->device, precision, 1)};
    clb_status status = variant_prepare(runtime, variant);
    if (clb_helper_get_role() == CLB_HELPER_AHEAD && (status == CLB_OK || status == CLB_ERR_NOMEM))
        return CLB_OK; /* the next program */
    CLB_THEN(status, check_products(runtime, variant, false));
    return status == CLB_OK && direct == NULL && clb_gemm_has_direct(variant)
               ? check_products(runtime, variant, true)
               : status;
}

/* The row that this machine has kept, then those of the table. */
static clb_status find_row(const struct clb_device *device, clb_precision precision, clb_math math,
                           size_t skip, struct clb_gemm_tuning *tuning)
{
    const bool kept = clb_tuning_kept(device, precision, math, tuning) == CLB_OK;
    if (kept && skip == 0) {
        clb_log(CLB_LOG_INFO, "products: the row that clblas-shim tune --kernels has kept");
        return CLB_OK;
    }
    return clb_tuning_gemm(device, precision, math, kept ? skip - 1 : skip, tuning);
}

struct wish {
    struct clb_runtime *runtime;
    clb_precision precision;
    int which;     /* of the choices */
    clb_math math; /* of families at most */
    struct selection *selection;
};

static clb_status make_row(const struct wish *wish, size_t row, struct clb_gemm_variant *variant)
{
    struct clb_gemm_tuning tuning;
    clb_status status = find_row(&wish->runtime->device, wish->precision, wish->math, row, &tuning);
    *variant = (struct clb_gemm_variant){0};
    return status == CLB_OK ? make_variant(wish->runtime, wish->precision, &tuning,
                                           &wish->selection->direct, variant)
                            : status;
}

static double measure_row(const struct wish *wish, const struct clb_gemm_variant *row)
{
    double rate = 0;
    if (clb_helper_get_role() != CLB_HELPER_BUILDS)
        return 0;
    (void)clb_helper_take(CLB_HELPER_DEVICE, true);
    if (clb_gemm_measure(wish->runtime, row, &rate) == CLB_OK && rate > 0)
        clb_log(CLB_LOG_INFO, "%s in %c: %.3g GFLOP/s", row->name, "sdcz"[wish->precision], rate);
    clb_helper_leave(CLB_HELPER_DEVICE);
    return rate;
}

/* Find the first row that works on the device. */
static clb_status find_out(const struct wish *wish, struct clb_choice *choice,
                           struct clb_gemm_variant *variant)
{
    for (;; choice->row++) {
        const clb_status status = make_row(wish, choice->row, variant);
        if (status == CLB_OK) {
            snprintf(choice->name, sizeof choice->name, "%s", variant->name);
            choice->rate = measure_row(wish, variant);
        }
        if (status == CLB_OK || status == CLB_ERR_NOMEM || variant->family == NULL) /* the end */
            return status;
        clb_log(CLB_LOG_WARN, "%s is not used on %s: %s", variant->name, wish->runtime->device.name,
                clb_status_name(status));
    }
}

static clb_status variant_choose(const struct wish *wish, struct clb_gemm_variant *variant)
{
    struct clb_choice choice;
    clb_status status = CLB_ERR_UNSUPPORTED;
    if (clb_choice_find(&wish->runtime->device, wish->precision, wish->which, &choice))
        status = make_row(wish, choice.row, variant);
    if (status != CLB_OK && status != CLB_ERR_NOMEM) {
        choice = (struct clb_choice){0};
        status = find_out(wish, &choice, variant);
        if (clb_helper_get_role() == CLB_HELPER_BUILDS && wish->which == 0) {
            double rate[2];
            clb_link_measure(wish->runtime, rate);
            choice.link = fmin(rate[0], rate[1]);
        }
        clb_choice_note(wish->precision, wish->which, &choice);
    }
    variant->rate = choice.rate;
    return status;
}

/* The second variant that packs (raw = 0), or the first or second one that does not. */
static clb_status choose_second(const struct wish *wish, const struct clb_gemm_variant *first,
                                int raw, struct clb_gemm_variant *second,
                                const struct clb_gemm_variant **chosen)
{
    struct clb_gemm_tuning tuning = {0};
    clb_status status =
        clb_tuning_second(&wish->runtime->device, wish->precision, &first->tuning, raw, &tuning);
    const bool same = raw > 1 && first->raw != NULL &&
                      memcmp(tuning.value, first->raw->tuning.value, sizeof tuning.value) == 0;
    if (status == CLB_ERR_UNSUPPORTED || same)
        return CLB_OK;
    CLB_THEN(status, make_variant(wish->runtime, wish->precision, &tuning, NULL, second));
    if (status == CLB_ERR_NOMEM)
        return status;
    if (status != CLB_OK) {
        clb_log(CLB_LOG_WARN, "%s is not used on %s: %s", second->name, wish->runtime->device.name,
                clb_status_name(status));
        return CLB_OK;
    }
    second->plain = first->plain;
    *chosen = second;
    return CLB_OK;
}

static void set_scaled(struct clb_gemm_variant *variant, struct clb_gemm_variant *scaled)
{
    static const char suffix[] = "-scaled";
    *scaled = *variant;
    scaled->scales = true;
    scaled->second = scaled->raw = NULL;
    strncat(scaled->name, suffix, sizeof scaled->name - 1 - strlen(scaled->name));
    variant->scaled = scaled;
}

/* Choose a precision's variant, for a split family also the plain one; for clb_check_once. */
static clb_status select_variant(void *argument)
{
    struct wish wish = *(const struct wish *)argument;
    struct selection *selection = wish.selection;
    struct clb_gemm_variant *variant = &selection->variant, *plain = &selection->plain;
    CLB_TRY(clb_step_need(wish.runtime, CLB_STEP_GEMM, wish.precision));
    selection->direct.runtime = wish.runtime;
    clb_status status = variant_choose(&wish, variant);
    variant->too_slow = variant->rate > 0 && variant->rate < CLB_LEAST_RATE && clb_rates_decide();
    if (status == CLB_OK && variant->too_slow)
        clb_rate_note_slow(&wish.runtime->device, wish.precision, variant->name, variant->rate);
    CLB_THEN(status, choose_second(&wish, variant, 0, &selection->second, &variant->second));
    if (status != CLB_OK || !variant->split)
        return status;
    wish.which = 1;
    wish.math = CLB_MATH_STRICT;
    status = variant_choose(&wish, plain);
    CLB_THEN(status, choose_second(&wish, plain, 0, &selection->plain_second, &plain->second));
    variant->plain = plain;
    selection->second.plain = plain;
    set_scaled(variant, &selection->scaled);
    if (variant->second != NULL)
        set_scaled(&selection->second, &selection->second_scaled);
    return status;
}

clb_status clb_gemm_variant_choose(struct clb_runtime *runtime, clb_precision precision,
                                   const struct clb_gemm_variant **variant)
{
    struct selection *selection = &selections[precision];
    const struct wish wish = {runtime, precision, 0, clb_config_get()->math, selection};
    *variant = &selection->variant;
    const clb_status status = clb_check_once(&selection->check, "no kernels for products",
                                             select_variant, &wish, sizeof wish);
    if (status == CLB_OK)
        atomic_store_explicit(&clb_gemm_variants[precision], *variant, memory_order_release);
    return status;
}

static clb_status launch_and_check_direct(void *argument)
{
    const struct clb_gemm_variant *variant = *(const struct clb_gemm_variant **)argument;
    const struct clb_gemm_variant *plain = variant->plain != NULL ? variant->plain : variant;
    struct selection *selection = &selections[variant->precision];
    const struct wish wish = {.runtime = selection->direct.runtime,
                              .precision = variant->precision};
    clb_status status = clb_step_need(wish.runtime, CLB_STEP_DIRECT, wish.precision);
    CLB_THEN(status, choose_second(&wish, &selection->variant, 1, &selection->raw[0],
                                   &selection->variant.raw));
    CLB_THEN(status, choose_second(&wish, &selection->variant, 2, &selection->raw[1],
                                   &selection->raw[0].second));
    return status == CLB_OK && clb_gemm_has_direct(plain) && plain->program != NULL
               ? check_products(wish.runtime, plain, true)
               : status;
}

clb_status clb_direct_check(const struct clb_gemm_variant *variant)
{
    return clb_check_once(&variant->direct->check, "B is always packed", launch_and_check_direct,
                          &variant, sizeof variant);
}

struct skip_task {
    struct clb_runtime *runtime;
    const struct clb_gemm_variant *variant;
};

static clb_status launch_and_check_skip(void *argument)
{
    const struct skip_task *task = argument;
    clb_status status = clb_step_need(task->runtime, CLB_STEP_SKIP, task->variant->precision);
    return status == CLB_OK ? clb_gemm_check_skip(task->runtime, task->variant) : status;
}

clb_status clb_skip_prepare(struct clb_runtime *runtime, const struct clb_gemm_variant *variant)
{
    struct skip_task task = {runtime, variant};
    if (!variant->family->has_skip)
        return CLB_OK;
    return clb_check_once(&selections[variant->precision].skip_check,
                          "triangular products are not the device's", launch_and_check_skip, &task,
                          sizeof task);
}
