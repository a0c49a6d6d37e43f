/* SPDX-License-Identifier: BSD-3-Clause
 * clblas-shim run: a program under the shim, on request with a summary at the end. */
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_report(const char *path, void *sum)
{
    (void)clb_report_add(sum, path);
}

static int run_with_report(char **program)
{
    char *folder = clb_make_folder();
    char stats[PATH_MAX];
    if (folder == NULL)
        return CLB_EXIT_RUN;
    snprintf(stats, sizeof stats, "%s/%%p.json", folder);
    setenv("CLBLAS_SHIM_STATS", stats, 1);
    int status = clb_run_program(program);
    json_auto_t *sum = json_object();
    clb_consume_folder(folder, add_report, sum);
    if (json_object_size(sum) > 0)
        clb_report_print(stderr, sum);
    else if (status > CLB_EXIT_SIGNAL)
        clb_fail(0, "%s left no report: a signal ended it (status %d), %s", program[0], status,
                 "or it made no BLAS or LAPACK call");
    else if (status != CLB_EXIT_NO_EXEC && status != CLB_EXIT_NOT_FOUND)
        clb_fail(0, "no BLAS or LAPACK call of %s reached the library", program[0]);
    free(folder);
    return status;
}

int clb_command_run(int argc, char **argv)
{
    char **program = argv + clb_options_read(argc, argv);
    if (*program == NULL)
        return clb_fail(CLB_EXIT_RUN, "no program, see --help");
    const char *library = clb_find_library();
    if (library == NULL)
        return CLB_EXIT_RUN;
    if (library[strcspn(library, " :")] != '\0')
        return clb_fail(CLB_EXIT_RUN, "%s can't be preloaded: its path has a space or a colon",
                        library);
    clb_preload(library);
    if (clb_option('r') != NULL)
        return run_with_report(program);
    execvp(program[0], program);
    return clb_fail(errno == ENOENT ? CLB_EXIT_NOT_FOUND : CLB_EXIT_NO_EXEC, "%s: %s", program[0],
                    strerror(errno));
}
