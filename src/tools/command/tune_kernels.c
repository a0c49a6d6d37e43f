/* clblas-shim tune --kernels: searches the parameters of the product's kernels on this device.
 * SPDX-License-Identifier: BSD-3-Clause
 * Every candidate is a child process, since a kernel may crash or hang it: it compiles without the
 * cache, lets the library check the kernels, and measures a product in the device's memory. The
 * best is kept in the cache, where the library looks first (clb_tuning_kept). */
#include "measure.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATIENCE 90 /* seconds; a candidate that takes longer hangs */
/* Gains below are noise: of a first look, and of two rates measured one after the other. */
#define LOOKS_BETTER 1.02
#define IS_BETTER    1.01

/* What children have found, in shared memory; the rate, of the last one, is set last. */
static struct answer {
    char class[32];
    struct clb_gemm_tuning tuning;
    double rate; /* operations per second */
} * answer;

static struct search {
    clb_precision precision;
    const struct clb_tune_space *space;
    struct clb_gemm_tuning start, now;
    double rate;  /* of `now` */
    json_t *seen; /* sets of values that were tried, as keys */
    size_t tried, failed;
    double begun, end;
} search;

static volatile sig_atomic_t stopped;

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

/* ---- a candidate ---- */

/* The values as the user would set them, behind those that the user has set. */
static void choose_values(const struct clb_gemm_tuning *tuning)
{
    const char *before = getenv("CLBLAS_SHIM_PARAMS");
    struct clb_text list = {0};
    if (before != NULL && *before != '\0')
        clb_text_addf(&list, "%s,", before);
    for (size_t i = 0; i < search.space->count; i++) {
        char key[CLB_PARAM_KEY_SIZE];
        const clb_param param = search.space->axes[i].param;
        clb_param_key(param, key);
        if (tuning->value[param] > 0)
            clb_text_addf(&list, "%s%s=%zu", i > 0 ? "," : "", key, tuning->value[param]);
    }
    if (!list.failed)
        setenv("CLBLAS_SHIM_PARAMS", list.data, 1);
    setenv("CLBLAS_SHIM_KERNEL", clb_families[tuning->family].name, 1);
    clb_text_free(&list);
}

static json_t *answer_rate(void *argument)
{
    const struct clb_gemm_tuning *tuning = argument;
    struct clb_measure measure;
    const struct clb_gemm_variant *variant;
    signal(SIGALRM, SIG_DFL);
    alarm(PATIENCE);
    if (tuning != NULL)
        choose_values(tuning);
    setenv("CLBLAS_SHIM_CACHE_DIR", "none", 1);
    if (!clb_measure_start(&measure, search.precision) ||
        clb_gemm_variant_get(measure.runtime, search.precision, &variant) != CLB_OK)
        return json_object();
    snprintf(answer->class, sizeof answer->class, "%s", clb_tuning_class(&measure.runtime->device));
    answer->tuning = variant->tuning;
    answer->rate = clb_measure_product_rate(&measure);
    return json_object();
}

/* Operations per second of a candidate, or of the library's choice where that is NULL; 0: it was
 * not built, is wrong, crashed or hung, or the library has refused it and taken another row. */
static double rate_of(struct clb_gemm_tuning *tuning)
{
    answer->rate = 0;
    json_decref(clb_ask_child(answer_rate, tuning));
    double rate = answer->rate;
    if (tuning == NULL)
        return rate;
    for (size_t i = 0; i < search.space->count; i++) {
        const clb_param param = search.space->axes[i].param;
        const size_t wanted = tuning->value[param];
        if (wanted > 0 && answer->tuning.value[param] != wanted)
            rate = 0;
    }
    search.tried++;
    search.failed += rate <= 0;
    return rate;
}

static bool find_start(clb_precision precision)
{
    answer = mmap(NULL, sizeof *answer, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    search.precision = precision;
    search.rate = answer != MAP_FAILED ? rate_of(NULL) : 0;
    if (!(search.rate > 0))
        return clb_fail(false, "the device's own kernels can't be measured in this precision");
    search.start = search.now = answer->tuning;
    search.space = clb_tune_space_of(search.start.family);
    return true;
}

/* ---- the search ---- */

/* Whether these values were tried; from now on they were. */
static bool was_seen(const size_t *value)
{
    struct clb_text key = {0};
    for (int i = 0; i < CLB_PARAMS; i++)
        clb_text_addf(&key, "%zu ", value[i]);
    const bool seen = key.failed || json_object_get(search.seen, key.data) != NULL;
    if (!seen)
        json_object_set_new(search.seen, key.data, json_true());
    clb_text_free(&key);
    return seen;
}

static bool consider(struct clb_gemm_tuning candidate)
{
    size_t *value = candidate.value;
    if (search.space->repair != NULL)
        search.space->repair(value);
    if (!clb_tune_is_sensible(candidate.family, value, clb_precision_real_size(search.precision)) ||
        was_seen(value))
        return false;
    double rate = rate_of(&candidate);
    bool better = rate > LOOKS_BETTER * search.rate;
    if (better) {
        const double other = rate_of(&search.now);
        rate = rate_of(&candidate);
        better = rate > IS_BETTER * other && rate > search.rate;
    }
    clb_bar_draw((clb_now() - search.begun) / (search.end - search.begun),
                 "%zu tried, best %.1f GFLOP/s, %.0f s left", search.tried, 1e-9 * search.rate,
                 fmax(search.end - clb_now(), 0));
    if (!better || stopped)
        return false;
    clb_bar_clear();
    printf("%10.1f GFLOP/s", 1e-9 * rate);
    for (size_t i = 0; i < search.space->count; i++) {
        const clb_param param = search.space->axes[i].param;
        const size_t from = search.now.value[param], to = value[param];
        if (from != to)
            printf("  %s %zu -> %zu", clb_params[param].name, from, to);
    }
    printf("\n");
    fflush(stdout);
    search.now = candidate;
    search.rate = rate;
    return true;
}

/* Try every value of every parameter, the others kept; whether anything became better. */
static bool sweep(void)
{
    bool better = false;
    for (size_t a = 0; a < search.space->count; a++) {
        const struct clb_tune_axis *axis = &search.space->axes[a];
        for (size_t v = 0; v < axis->count && !stopped && clb_now() < search.end; v++) {
            struct clb_gemm_tuning candidate = search.now;
            /* A zero is the kernel's default, which can't be asked for in the place of a value. */
            if (axis->values[v] == 0 && search.start.value[axis->param] != 0)
                continue;
            candidate.value[axis->param] = axis->values[v];
            better = consider(candidate) || better;
        }
    }
    return better;
}

/* ---- the result ---- */

static json_t *answer_keep(void *unused)
{
    struct clb_measure measure;
    clb_param params[CLB_PARAMS];
    (void)unused;
    for (size_t i = 0; i < search.space->count; i++)
        params[i] = search.space->axes[i].param;
    return clb_measure_start(&measure, search.precision) &&
                   clb_tuning_keep(&measure.runtime->device, search.precision, &search.now, params,
                                   search.space->count)
               ? json_array()
               : json_object();
}

static int conclude(double before)
{
    clb_bar_clear();
    printf("%zu tried, %zu of them don't work%s\n", search.tried, search.failed,
           stopped ? ", interrupted" : "");
    if (memcmp(&search.now, &search.start, sizeof search.now) == 0) {
        printf("Nothing is clearly better than the library's own row, %.1f GFLOP/s.\n",
               1e-9 * before);
        return EXIT_SUCCESS;
    }
    printf("%.1f GFLOP/s instead of %.1f. A row for src/engine/tuning/gemm.def, to be sent "
           "upstream:\n\n",
           1e-9 * search.rate, 1e-9 * before);
    clb_tune_print_row(answer->class, search.precision, &search.now);
    json_auto_t *kept = clb_ask_child(answer_keep, NULL);
    if (!json_is_array(kept))
        return clb_fail(CLB_EXIT_FAILED, "the row can't be kept: there is no cache to write to");
    printf("\nIt is kept in the cache, and programs use it from now on.\n");
    return EXIT_SUCCESS;
}

int clb_tune_kernels(clb_precision precision, double seconds)
{
    const struct sigaction action = {.sa_handler = stop, .sa_flags = (int)SA_RESETHAND};
    if (!find_start(precision))
        return CLB_EXIT_FAILED;
    const double before = search.rate;
    printf("%10.1f GFLOP/s  %s, the library's own row for %s\n", 1e-9 * before,
           clb_families[search.start.family].name, answer->class);
    fflush(stdout);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    search.begun = clb_now();
    search.end = search.begun + seconds;
    search.seen = json_object();
    was_seen(search.start.value);
    while (!stopped && clb_now() < search.end && sweep()) {
    }
    int status = conclude(before);
    json_decref(search.seen);
    return status;
}
