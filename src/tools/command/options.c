/* SPDX-License-Identifier: BSD-3-Clause
 * Options, help and messages, for the command and for programs of its own that it starts. */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct subcommand {
    const char *name, *operands, *summary, *text;
} commands[] = {
#define CLB_COMMAND(name, operands, summary, text) {#name, operands, summary, text},
#define CLB_OPTION(command, letter, name, argument, help)
#include "commands.def"
};

static const struct option_row {
    const char *command, *name, *argument, *help;
    char letter;
} options[] = {
#define CLB_COMMAND(name, operands, summary, text)
#define CLB_OPTION(command, letter, name, argument, help) {#command, name, argument, help, letter},
#include "commands.def"
};

static const struct subcommand *chosen; /* NULL: none yet */

/* ---- messages ---- */

int clb_fail(int status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "clblas-shim%s%s: ", chosen != NULL ? " " : "",
            chosen != NULL ? chosen->name : "");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return status;
}

const char *clb_style(FILE *stream, const char *sequence)
{
    const char *terminal = getenv("TERM");
    return isatty(fileno(stream)) && getenv("NO_COLOR") == NULL && terminal != NULL &&
                   strcmp(terminal, "dumb") != 0
               ? sequence
               : "";
}

void clb_bar_draw(double share, const char *format, ...)
{
    static const char full[] = "########################", empty[] = "------------------------";
    const int width = (int)sizeof full - 1;
    const int length = share > 0 ? (int)(share < 1 ? share * width : width) : 0;
    va_list arguments;
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r[%.*s%.*s] ", length, full, width - length, empty);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\033[K");
}

void clb_bar_clear(void)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K");
}

/* ---- help ---- */

/* Lines of at most 80 characters. */
static void print_wrapped(const char *text)
{
    while (*text != '\0') {
        size_t length = strlen(text);
        if (length > 80) {
            length = 80;
            while (length > 0 && text[length] != ' ')
                length--;
        }
        printf("%.*s\n", (int)length, text);
        text += length;
        text += *text == ' ';
    }
}

void clb_help_print(void)
{
    if (chosen == NULL) {
        printf("Usage: clblas-shim COMMAND [OPTION...] [OPERAND...]\n"
               "Runs BLAS and LAPACK calls of unmodified programs on an OpenCL device.\n\n");
        for (size_t i = 0; i < CLB_COUNT_OF(commands); i++)
            printf("  %-10s %s\n", commands[i].name, commands[i].summary);
        printf("\nclblas-shim COMMAND --help tells more; so does clblas-shim(1).\n");
        return;
    }
    printf("Usage: clblas-shim %s [OPTION...] %s\n\n", chosen->name, chosen->operands);
    print_wrapped(chosen->text);
    printf("\n");
    for (size_t i = 0; i < CLB_COUNT_OF(options); i++) {
        const struct option_row *row = &options[i];
        char name[64];
        if (strcmp(row->command, chosen->name) != 0)
            continue;
        snprintf(name, sizeof name, "--%s%s%s", row->name, row->argument[0] != '\0' ? "=" : "",
                 row->argument);
        printf("  -%c, %-18s %s\n", row->letter, name, row->help);
    }
    printf("  -h, %-18s print this\n", "--help");
}

int clb_end(int status)
{
    return fflush(stdout) == 0 && !ferror(stdout)
               ? status
               : clb_fail(CLB_EXIT_FAILED, "can't write the output: %s", strerror(errno));
}

/* ---- options ---- */

int clb_command_choose(const char *name)
{
    for (size_t i = 0; i < CLB_COUNT_OF(commands) && chosen == NULL; i++)
        chosen = strcmp(name, commands[i].name) == 0 ? &commands[i] : NULL;
    return chosen != NULL ? (int)(chosen - commands) : -1;
}

static const char *given[128]; /* by letter: the argument, or "" */

const char *clb_option(char letter)
{
    return given[(unsigned char)letter];
}

static void refuse_option(int found, const char *argument, const char *letters)
{
    /* A letter that is known is refused only where a long option has an argument too many. */
    const bool is_long = optopt == 0 || (found == ':' && strncmp(argument, "--", 2) == 0) ||
                         (found == '?' && strchr(letters, optopt) != NULL);
    const char one[] = {'-', (char)optopt, '\0'};
    exit(clb_fail(strcmp(chosen->name, "run") == 0 ? CLB_EXIT_RUN : CLB_EXIT_USAGE,
                  found == ':' ? "option %s needs an argument" : "unknown option %s, see --help",
                  is_long ? argument : one));
}

int clb_options_read(int argc, char **argv)
{
    struct option list[CLB_COUNT_OF(options) + 2] = {{"help", no_argument, NULL, 'h'}};
    char letters[2 * CLB_COUNT_OF(options) + 8];
    size_t count = 1;
    /* What stands behind a program's name is the program's. */
    int used = sprintf(letters, strstr(chosen->operands, "PROGRAM") != NULL ? "+:h" : ":h");
    for (size_t i = 0; i < CLB_COUNT_OF(options); i++) {
        const struct option_row *row = &options[i];
        bool has_argument = row->argument[0] != '\0';
        if (strcmp(row->command, chosen->name) != 0)
            continue;
        list[count++] = (struct option){row->name, has_argument ? required_argument : no_argument,
                                        NULL, row->letter};
        used += sprintf(letters + used, "%c%s", row->letter, has_argument ? ":" : "");
    }
    opterr = 0;
    for (int letter; (letter = getopt_long(argc, argv, letters, list, NULL)) >= 0;) {
        if (letter == '?' || letter == ':')
            refuse_option(letter, argv[optind - 1], letters);
        if (letter == 'h') {
            clb_help_print();
            exit(clb_end(EXIT_SUCCESS));
        }
        if (letter == 'd')
            setenv("CLBLAS_SHIM_DEVICE", optarg, 1);
        if (letter == 'o' && !clb_plot_name(optarg))
            exit(CLB_EXIT_USAGE);
        given[letter] = optarg != NULL ? optarg : "";
    }
    return optind;
}

void clb_json_print(const json_t *result)
{
    json_dumpf(result, stdout, JSON_COMPACT);
    putchar('\n');
}
