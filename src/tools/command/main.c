/* clblas-shim: chooses the sub-command, reads its options, prints its help. */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct subcommand {
    const char *name, *operands, *summary, *text;
    int (*run)(int argc, char **argv);
} commands[] = {
#define CLB_COMMAND(name, operands, summary, text)                                                 \
    {#name, operands, summary, text, clb_command_##name},
#define CLB_OPTION(command, letter, name, argument, help)
#include "commands.def"
#undef CLB_COMMAND
#undef CLB_OPTION
};

static const struct option_row {
    const char *command, *name, *argument, *help;
    char letter;
} options[] = {
#define CLB_COMMAND(name, operands, summary, text)
#define CLB_OPTION(command, letter, name, argument, help) {#command, name, argument, help, letter},
#include "commands.def"
#undef CLB_COMMAND
#undef CLB_OPTION
};

static const struct subcommand *chosen; /* NULL: none yet */

/* ---- messages -------------------------------------------------------------------------------- */

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

const char *clb_style(FILE *stream, const char *code)
{
    static char sequences[8][8];
    static size_t next;
    const char *terminal = getenv("TERM");
    if (!isatty(fileno(stream)) || getenv("NO_COLOR") != NULL || terminal == NULL ||
        strcmp(terminal, "dumb") == 0)
        return "";
    char *sequence = sequences[next++ % CLB_COUNT_OF(sequences)];
    snprintf(sequence, sizeof sequences[0], "\033[%sm", code);
    return sequence;
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

/* ---- help ------------------------------------------------------------------------------------ */

/* Print text in lines of at most 80 characters. */
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

static void print_help(void)
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

/* Ends the process: 0 unless the output can't be written. */
static _Noreturn void exit_written(void)
{
    if (fflush(stdout) != 0)
        exit(clb_fail(CLB_EXIT_FAILED, "can't write the output: %s", strerror(errno)));
    exit(EXIT_SUCCESS);
}

/* ---- options --------------------------------------------------------------------------------- */

int clb_option_next(int argc, char **argv)
{
    static struct option list[CLB_COUNT_OF(options) + 2];
    static char letters[2 * CLB_COUNT_OF(options) + 8];
    if (letters[0] == '\0') {
        size_t count = 0;
        strcpy(letters, "+:h");
        list[count++] = (struct option){"help", no_argument, NULL, 'h'};
        for (size_t i = 0; i < CLB_COUNT_OF(options); i++) {
            const struct option_row *row = &options[i];
            bool has_argument = row->argument[0] != '\0';
            if (strcmp(row->command, chosen->name) != 0)
                continue;
            list[count++] = (struct option){
                row->name, has_argument ? required_argument : no_argument, NULL, row->letter};
            size_t used = strlen(letters);
            snprintf(letters + used, sizeof letters - used, "%c%s", row->letter,
                     has_argument ? ":" : "");
        }
        opterr = 0;
    }
    int at = optind, letter = getopt_long(argc, argv, letters, list, NULL);
    if (letter == 'h') {
        print_help();
        exit_written();
    }
    if (letter != '?' && letter != ':')
        return letter;
    /* Of several letters in one argument the wrong one. */
    char one[] = {'-', (char)optopt, '\0'};
    const char *wrong =
        argv[at][1] != '-' && optopt != 0 ? one : argv[at < optind ? optind - 1 : at];
    exit(clb_fail(chosen->run == clb_command_run ? CLB_EXIT_RUN : CLB_EXIT_USAGE,
                  letter == ':' ? "option %s needs an argument" : "unknown option %s, see --help",
                  wrong));
}

int main(int argc, char **argv)
{
    /* Where a parent has it ignored, no child's end is ever known. */
    signal(SIGCHLD, SIG_DFL);
    if (argc < 2)
        return clb_fail(CLB_EXIT_USAGE, "no command, see clblas-shim --help");
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help();
        exit_written();
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("clblas-shim " CLB_VERSION "\n");
        exit_written();
    }
    for (size_t i = 0; i < CLB_COUNT_OF(commands); i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        chosen = &commands[i];
        int status = chosen->run(argc - 1, argv + 1);
        if (fflush(stdout) != 0 || ferror(stdout))
            return clb_fail(CLB_EXIT_FAILED, "can't write the output: %s", strerror(errno));
        return status;
    }
    return clb_fail(CLB_EXIT_USAGE, "unknown command %s, see clblas-shim --help", name);
}
