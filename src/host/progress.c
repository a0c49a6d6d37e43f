/* SPDX-License-Identifier: BSD-3-Clause
 * The progress of a long call, as one line on standard error that is written over and removed when
 * the call ends. Only where it is wanted and standard error is a terminal. */
#include "process.h"

#include <unistd.h>

#define FIRST_SECONDS 2.0 /* shorter calls show nothing */
#define NEXT_SECONDS  0.2

CLB_THREAD struct clb_progress clb_progress;

void clb_progress_open(const char *name, double flops)
{
    if (isatty(STDERR_FILENO))
        clb_progress = (struct clb_progress){.name = name, .flops = flops, .begin = clb_now()};
}

static void put(const char *text, int length)
{
    if (length > 0)
        (void)clb_file_write(STDERR_FILENO, text, (size_t)length, 0);
}

void clb_progress_close(void)
{
    static const char blank[] = "\r                                                            \r";
    clb_progress.name = NULL;
    if (clb_progress.shown > 0)
        put(blank, sizeof blank - 1);
}

void clb_progress_show(double share)
{
    struct clb_progress *progress = &clb_progress;
    char line[128];
    double now = clb_now(), seconds = now - progress->begin;
    if (seconds < FIRST_SECONDS || now < progress->shown + NEXT_SECONDS || !(share > 0))
        return;
    /* Whole numbers are the same in all locales. */
    double rate = share * progress->flops / seconds * 1e-9;
    bool tera = rate >= 1e4;
    int length =
        snprintf(line, sizeof line, "\rclblas-shim: %s %3.0f %%, %.0f %cFLOP/s, %.0f s left  ",
                 progress->name, 100 * share, tera ? rate / 1e3 : rate, tera ? 'T' : 'G',
                 seconds / share - seconds);
    progress->shown = now;
    put(line, length < (int)sizeof line ? length : 0);
}
