/* clblas-shim warm: the helper process compiles and checks what programs will need. */
#include "command.h"
#include "blas/routines.h"
#include "engine/kernel/kernel.h"
#include "engine/ocl/helper.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEP(name) (1U << CLB_STEP_##name)
#define ALL_STEPS  ((1U << CLB_STEPS) - 1)
#define LOOK_US    100000 /* how often the bar is drawn */

/* ---- which steps ----------------------------------------------------------------------------- */

static const struct {
    const char *stem, *precisions;
    clb_kind kind;
} routines[] = {
#define CLB_ROUTINE(stem, precisions, library, signature, shapes, limits, trans, trans_complex,    \
                    flags, sizes, work, kind, others)                                              \
    {#stem, #precisions, CLB_KIND_##kind},
#include "blas/routines.def"
#undef CLB_ROUTINE
};

static const char letters[CLB_PRECISIONS + 1] = "sdcz";

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
        return STEP(GEMM) | STEP(SKIP) | STEP(STRUCTURE);
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

/* Add the steps of "dgemm", "gemm" or "dgemm_"; false for another name. */
static bool add_routine(unsigned steps[CLB_PRECISIONS], const char *name)
{
    size_t length = strlen(name);
    length -= length > 0 && name[length - 1] == '_';
    for (size_t i = 0; i < CLB_COUNT_OF(routines); i++) {
        const char *stem = routines[i].stem;
        size_t size = strlen(stem);
        bool one = length == size + 1 && strncmp(name + 1, stem, size) == 0 &&
                   strchr(routines[i].precisions, name[0]) != NULL;
        if (!one && (length != size || strncmp(name, stem, size) != 0))
            continue;
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            if (one ? name[0] == letters[p] : strchr(routines[i].precisions, letters[p]) != NULL)
                steps[p] |= find_steps(routines[i].kind);
        }
        return true;
    }
    return false;
}

/* ---- doing them ------------------------------------------------------------------------------ */

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

/* What the helper's list says of a step: "passed", "failed", "" (not done), or NULL: the device has
 * no such precision. */
static const char *state_of(const json_t *list, const char *step)
{
    return json_string_value(
        json_object_get(json_object_get(json_object_get(list, "cache"), "steps"), step));
}

/* Call `visit` for each step that is wanted; returns how many it is true for. */
static int count_steps(const unsigned steps[CLB_PRECISIONS], const json_t *list, const char *state)
{
    int count = 0;
    for (int s = 0; s < CLB_STEPS; s++) {
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            char name[64];
            clb_step_format(name, sizeof name, (clb_helper_step)s, (clb_precision)p);
            const char *now = (steps[p] >> s & 1) != 0 ? state_of(list, name) : NULL;
            count += now != NULL && (state == NULL || strcmp(now, state) == 0);
        }
    }
    return count;
}

static bool do_steps(const unsigned steps[CLB_PRECISIONS], const json_t *list)
{
    struct progress progress = {.all = count_steps(steps, list, "") + 1, .begin = clb_now()};
    /* Which drivers work is recorded too. */
    if (progress.all > 1 && !do_step(&progress, "devices"))
        return false;
    for (int s = 0; s < CLB_STEPS; s++) {
        for (int p = 0; p < CLB_PRECISIONS; p++) {
            char name[64];
            clb_step_format(name, sizeof name, (clb_helper_step)s, (clb_precision)p);
            const char *now = (steps[p] >> s & 1) != 0 ? state_of(list, name) : NULL;
            if (now != NULL && *now == '\0' && !do_step(&progress, name))
                return false;
        }
    }
    return true;
}

/* NULL, or why nothing can be made. */
static const char *find_obstacle(const json_t *list, const unsigned steps[CLB_PRECISIONS])
{
    const json_t *cache = json_object_get(list, "cache");
    if (*json_string_value(json_object_get(cache, "folder")) == '\0')
        return "there is no cache that can be written";
    if (!json_is_true(json_object_get(cache, "room")))
        return "the disk of the cache is full";
    return count_steps(steps, list, NULL) == 0 ? "the device has no double precision" : NULL;
}

int clb_command_warm(int argc, char **argv)
{
    unsigned steps[CLB_PRECISIONS] = {ALL_STEPS, ALL_STEPS, 0, 0};
    for (int letter; (letter = clb_option_next(argc, argv)) >= 0;) {
        if (letter == 'd')
            setenv("CLBLAS_SHIM_DEVICE", optarg, 1);
        else
            steps[CLB_C] = steps[CLB_Z] = ALL_STEPS;
    }
    if (optind < argc)
        memset(steps, 0, sizeof steps);
    for (int i = optind; i < argc; i++) {
        if (!add_routine(steps, argv[i]))
            return clb_fail(CLB_EXIT_USAGE, "%s is none of the routines", argv[i]);
    }
    json_t *before = clb_devices_ready();
    if (before == NULL)
        return CLB_EXIT_FAILED;
    const char *obstacle = find_obstacle(before, steps);
    int ready = count_steps(steps, before, "passed");
    json_t *after = obstacle == NULL && do_steps(steps, before) ? clb_devices_list() : NULL;
    if (obstacle != NULL)
        clb_fail(0, "%s", obstacle);
    json_decref(before);
    if (after == NULL)
        return CLB_EXIT_FAILED;
    int all = count_steps(steps, after, NULL), now = count_steps(steps, after, "passed");
    printf("Of %d sets of kernels %d are ready, %d were before.\n", all, now, ready);
    json_decref(after);
    return now == all ? EXIT_SUCCESS
                      : clb_fail(CLB_EXIT_FAILED,
                                 "%d can't be had on this device: CLBLAS_SHIM_LOG=warn %s",
                                 all - now, "says why when a program needs them");
}
