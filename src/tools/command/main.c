/* clblas-shim: starts the sub-command. SPDX-License-Identifier: BSD-3-Clause */
#include "command.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int (*const commands[])(int argc, char **argv) = {
#define CLB_COMMAND(name, operands, summary, text) clb_command_##name,
#define CLB_OPTION(command, letter, name, argument, help)
#include "commands.def"
};

/* A program of its own: examples/ladder. */
int clb_command_ladder(int argc, char **argv)
{
    const char *program = clb_find_ladder();
    (void)argc;
    if (program == NULL)
        return CLB_EXIT_FAILED;
    execv(program, argv);
    return clb_fail(CLB_EXIT_FAILED, "%s: %s", program, strerror(errno));
}

int main(int argc, char **argv)
{
    /* Where a parent has it ignored, no child's end is ever known. */
    signal(SIGCHLD, SIG_DFL);
    if (argc < 2)
        return clb_fail(CLB_EXIT_USAGE, "no command, see clblas-shim --help");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        clb_help_print();
        return clb_end(EXIT_SUCCESS);
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("clblas-shim " CLB_VERSION "\n");
        return clb_end(EXIT_SUCCESS);
    }
    const int chosen = clb_command_choose(name);
    if (chosen >= 0)
        return clb_end(commands[chosen](argc - 1, argv + 1));
    return clb_fail(CLB_EXIT_USAGE, "unknown command %s, see clblas-shim --help", name);
}
