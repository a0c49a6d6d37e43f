/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim warm: the helper process compiles and checks what programs will need. */
#include "measure.h"
#include "engine/ocl/helper.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define STEP(name) (1U << CLB_STEP_##name)
#define ALL_STEPS  ((1U << CLB_STEPS) - 1)
#define LOOK_MS    100 /* how often the bar is drawn */

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

/* Numbers of steps: those that the device can have, that were ready, and that are. */
struct counts {
    int all, before, now;
};

/* Have the helper do steps, and print which it has done. False when it can't be had. */
static bool do_steps(const char *steps, struct counts *counts)
{
    const int all = counts->all + 1; /* with "devices": which drivers work is recorded, too */
    const double begin = clb_now();
    double last = begin;
    char line[80], name[64];
    int status, done = 0;
    FILE *answers = clb_helper_begin(steps);
    if (answers == NULL)
        return false;
    setvbuf(answers, NULL, _IONBF, 0); /* for poll */
    struct pollfd ready = {.fd = fileno(answers), .events = POLLIN};
    for (;;) {
        clb_bar_draw((double)done / all, "%d of %d, %.0f s: %.*s", done, all, clb_now() - begin,
                     (int)strcspn(steps, ","), steps);
        if (poll(&ready, 1, LOOK_MS) == 0)
            continue;
        clb_bar_clear();
        if (fgets(line, sizeof line, answers) == NULL ||
            sscanf(line, "%63s %d", name, &status) != 2)
            break;
        if (status >= 0 && status != CLB_ERR_NODEVICE)
            printf("%-12s %6.1f s%s\n", name, clb_now() - last, status > 0 ? "  (failed)" : "");
        fflush(stdout);
        last = clb_now();
        steps += strcspn(steps, ",");
        steps += *steps == ',';
        if (done++ > 0) {
            counts->all -= status == CLB_HELPER_NONE_SUCH;
            counts->before += status == CLB_HELPER_READY;
            counts->now += status == CLB_HELPER_READY || status == CLB_OK;
        }
    }
    fclose(answers);
    wait(NULL);
    return true;
}

/* False, after a message, where none of so many steps could be made. */
static bool can_be_made(int all)
{
    json_auto_t *list = clb_devices_ready();
    const json_t *cache = json_object_get(list, "cache");
    const char *obstacle = *clb_text_of(cache, "folder") == '\0'
                               ? "there is no cache that can be written"
                           : !clb_is_true(cache, "room") ? "the disk of the cache is full"
                           : all == 0                    ? "the device has no double precision"
                                                         : NULL;
    if (list != NULL && obstacle != NULL)
        clb_fail(0, "%s", obstacle);
    return list != NULL && obstacle == NULL;
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
    struct clb_text text = {0};
    struct counts counts = {0};
    clb_text_add(&text, "devices");
    for (int i = 0; i < CLB_STEPS * CLB_PRECISIONS; i++) {
        const int step = i / CLB_PRECISIONS, precision = i % CLB_PRECISIONS;
        if ((steps[precision] >> step & 1) == 0)
            continue;
        char name[64];
        clb_step_format(name, sizeof name, (clb_helper_step)step, (clb_precision)precision);
        clb_text_addf(&text, ",%s", name);
        counts.all++;
    }
    if (text.failed || !do_steps(text.data, &counts) ||
        ((counts.now < counts.all || counts.all == 0) && !can_be_made(counts.all)))
        return CLB_EXIT_FAILED;
    clb_text_free(&text);
    printf("%d of %d sets of kernels are ready, %d were before.\n", counts.now, counts.all,
           counts.before);
    return counts.now == counts.all
               ? EXIT_SUCCESS
               : clb_fail(CLB_EXIT_FAILED,
                          "%d can't be had on this device: CLBLAS_SHIM_LOG=warn %s",
                          counts.all - counts.now, "says why when a program needs them");
}
