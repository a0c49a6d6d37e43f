/* clblas-shim warm: the helper process compiles and checks what programs will need. */
#include "measure.h"
#include "engine/ocl/helper.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP(name) (1U << CLB_STEP_##name)
#define ALL_STEPS  ((1U << CLB_STEPS) - 1)
#define LOOK_US    100000 /* how often the bar is drawn */

/* ---- which steps ---- */

static unsigned find_steps(clb_kind kind)
{
    switch (kind) {
    case CLB_KIND_gemm:
        return STEP(GEMM) | STEP(DIRECT);
    case CLB_KIND_gemmtr:
    case CLB_KIND_syrk:
    case CLB_KIND_syr2k:
    case CLB_KIND_symm:
    case CLB_KIND_trmm:
        return STEP(GEMM) | STEP(SKIP);
    case CLB_KIND_trsm:
        return STEP(GEMM) | STEP(DIRECT) | STEP(SYSTEMS);
    case CLB_KIND_getrf:
    case CLB_KIND_gesv:
        return STEP(GEMM) | STEP(DIRECT) | STEP(SYSTEMS) | STEP(PANELS);
    case CLB_KIND_potrf:
    case CLB_KIND_posv:
        return STEP(GEMM) | STEP(DIRECT) | STEP(SKIP) | STEP(SYSTEMS) | STEP(BLOCKS);
    default: /* all that matrices in the device's memory need */
        return STEP(GEMM) | STEP(DIRECT) | STEP(SKIP) | STEP(SYSTEMS);
    }
}

/* Add the steps of a routine, "dgemm" or "gemm" for all precisions; false for another name. */
static bool add_routine(unsigned steps[CLB_PRECISIONS], const char *name)
{
    bool found = false;
    for (size_t i = 0; i < CLB_ROUTINES; i++) {
        const struct clb_routine_info *info = &clb_routines[i];
        if (!clb_is_named(name, info->name) && !clb_is_named(name, info->stem))
            continue;
        steps[info->precision] |= find_steps(info->kind);
        found = true;
    }
    return found;
}

/* ---- doing them ---- */

struct progress {
    int done, all;
    double begin;
};

/* False when the helper can't be had. */
static bool do_step(struct progress *progress, const char *step)
{
    double begin = clb_now();
    int status;
    pid_t child = clb_helper_begin(step), ended;
    if (child < 0)
        return false;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        clb_bar_draw((double)progress->done / progress->all, "%d of %d, %.0f s: %s", progress->done,
                     progress->all, clb_now() - progress->begin, step);
        usleep(LOOK_US);
    }
    progress->done++;
    clb_bar_clear();
    printf("%-12s %6.1f s%s\n", step, clb_now() - begin,
           ended == child && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "  (failed)");
    fflush(stdout);
    return true;
}

/* How many of the wanted steps are in this state: "passed", "failed", "" (not done), or NULL: all
 * that the device can have. They are done unless `progress` is NULL; -1: the helper can't be
 * had. */
static int count_steps(const unsigned steps[CLB_PRECISIONS], const json_t *list, const char *state,
                       struct progress *progress)
{
    const json_t *states = json_object_get(json_object_get(list, "cache"), "steps");
    int count = 0;
    for (int s = 0; s < CLB_STEPS; s++) {
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            char name[64];
            clb_step_format(name, sizeof name, (clb_helper_step)s, (clb_precision)p);
            const char *now = json_string_value(json_object_get(states, name));
            if ((steps[p] >> s & 1) == 0 || now == NULL ||
                (state != NULL && strcmp(now, state) != 0))
                continue;
            if (progress != NULL && !do_step(progress, name))
                return -1;
            count++;
        }
    }
    return count;
}

static bool do_steps(const unsigned steps[CLB_PRECISIONS], const json_t *list)
{
    struct progress progress = {.all = count_steps(steps, list, "", NULL) + 1, .begin = clb_now()};
    /* Which drivers work is recorded too. */
    return progress.all == 1 ||
           (do_step(&progress, "devices") && count_steps(steps, list, "", &progress) >= 0);
}

/* NULL, or why nothing can be made. */
static const char *find_obstacle(const json_t *list, const unsigned steps[CLB_PRECISIONS])
{
    const json_t *cache = json_object_get(list, "cache");
    if (*json_string_value(json_object_get(cache, "folder")) == '\0')
        return "there is no cache that can be written";
    if (!clb_is_true(cache, "room"))
        return "the disk of the cache is full";
    return count_steps(steps, list, NULL, NULL) == 0 ? "the device has no double precision" : NULL;
}

int clb_command_warm(int argc, char **argv)
{
    const int first = clb_options_read(argc, argv);
    const unsigned real = first == argc ? ALL_STEPS : 0,
                   complex = clb_option('a') != NULL ? real : 0;
    unsigned steps[CLB_PRECISIONS] = {real, real, complex, complex};
    for (int i = first; i < argc; i++) {
        if (!add_routine(steps, argv[i]))
            return clb_fail(CLB_EXIT_USAGE, "%s is none of the routines", argv[i]);
    }
    json_auto_t *before = clb_devices_ready();
    if (before == NULL)
        return CLB_EXIT_FAILED;
    const char *obstacle = find_obstacle(before, steps);
    int ready = count_steps(steps, before, "passed", NULL);
    json_auto_t *after = obstacle == NULL && do_steps(steps, before) ? clb_devices_list() : NULL;
    if (obstacle != NULL)
        clb_fail(0, "%s", obstacle);
    if (after == NULL)
        return CLB_EXIT_FAILED;
    int all = count_steps(steps, after, NULL, NULL),
        now = count_steps(steps, after, "passed", NULL);
    printf("Of %d sets of kernels %d are ready, %d were before.\n", all, now, ready);
    return now == all ? EXIT_SUCCESS
                      : clb_fail(CLB_EXIT_FAILED,
                                 "%d can't be had on this device: CLBLAS_SHIM_LOG=warn %s",
                                 all - now, "says why when a program needs them");
}
